// SPDX-License-Identifier: Apache-2.0
// Inverses and determinants of square matrices by an LU decomposition (compiler/calls/lu.h), in f32
// or f64. A singular matrix has no error: its determinant is 0, its inverse what the division by
// zero gives, infinities and NaN. onnx_einsum.c has determinants of few rows, unrolled.
#include "compiler/calls/lu.h"
#include "compiler/frontend/onnx/onnx_tools.h"

static enum dtype computed_in(enum dtype t) {
    return dtype_size(t) < 4 ? DT_F32 : t;
}
// LU of the matrix with the unit matrix beside it is U beside the inverse of L, in the rows' order:
// one triangular solve is left.
ONNX_X(inverse) {
    const struct shape *s = x->shape;
    int rank = s->rank;
    int64_t n = rank < 2 ? 0 : s->dims[rank - 1];
    if (rank < 2 || s->dims[rank - 2] != n || !dtype_is_float(s->dtype))
        return onnx_fail(c, "input %s: expected square matrices", shape_text(c->a, s));
    if (shape_elements(s) == 0) return onnx_out_val(c, 0, x);
    int64_t batch = shape_elements(s) / (n * n), dims[3] = {batch, n, n};
    const struct shape *square = shape_make(c->a, DT_S64, dims, 3);
    hv unit = hb_compare(b, hb_iota(b, square, 1), hb_iota(b, square, 2), CMP_EQ);
    enum dtype t = computed_in(s->dtype);
    hv pair[2] = {hb_reshape(b, hb_convert(b, x, t), dims, 3), hb_convert(b, unit, t)};
    hv m = hb_gte(b, lu_call(b, hb_concat(b, pair, 2, 2)), 0);
    struct hlo_attr_trisolve solve = {.left_side = true, .transpose_a = TRI_NO_TRANSPOSE};
    if (!hb_ok(b)) return;
    hv both[2] = {onnx_part(c, m, 2, 0, n), onnx_part(c, m, 2, n, 2 * n)};
    m = hb_op(b, HLO_TRIANGULAR_SOLVE, both[1]->shape, both, 2, &solve);
    onnx_out_val(c, 0, hb_reshape(b, hb_convert(b, m, s->dtype), s->dims, rank));
}
// The product of U's diagonal, its sign turned by each row that changed places.
hv onnx_det_by_lu(struct onnx_ctx *c, hv m) {
    struct hb *b = &c->b;
    const struct shape *s = shape_make(c->a, DT_S64, m->shape->dims, 3);
    int64_t last = 2, one = 1;
    hv lu = lu_call(b, hb_convert(b, m, computed_in(m->shape->dtype)));
    hv a = hb_gte(b, lu, 0), pivots = hb_gte(b, lu, 1);
    if (!hb_ok(b)) return m;
    hv unit = hb_compare(b, hb_iota(b, s, 1), hb_iota(b, s, 2), CMP_EQ);
    a = hb_select(b, unit, a, onnx_splat_like(c, a, 0));
    a = onnx_reduce_keep(c, a, &last, 1, HLO_ADD, false); // [batch, n]
    hv place = hb_add(b, hb_iota(b, pivots->shape, 1), onnx_splat_like(c, pivots, 1));
    hv moved = hb_compare(b, pivots, place, CMP_NE);
    a = hb_select(b, moved, hb_unary(b, HLO_NEGATE, a), a);
    return hb_convert(b, onnx_reduce_keep(c, a, &one, 1, HLO_MULTIPLY, false), m->shape->dtype);
}
