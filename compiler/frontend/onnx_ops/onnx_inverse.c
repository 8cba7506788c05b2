// SPDX-License-Identifier: Apache-2.0
// Elimination with the largest pivot of each column as a loop. Inverse of square matrices: on the
// matrix with the unit matrix beside it, then one triangular solve. A column without a pivot is
// left as it is, so that a singular matrix gives what the division by zero gives: infinities and
// NaN, no error. Determinants of large matrices (onnx_einsum.c has the small ones, unrolled).
#include "compiler/frontend/onnx/onnx_tools.h"

// Which rows of m [batch, n, wide] are those of `at` (s64[batch] or a scalar).
static hv rows_at(struct onnx_ctx *c, hv m, hv at, enum cmp_direction d) {
    struct hb *b = &c->b;
    const struct shape *s = shape_make(c->a, DT_S64, m->shape->dims, 3);
    at = at->shape->rank ? onnx_along(c, at, s, 0) : onnx_spread(c, at, s);
    return hb_compare(b, hb_iota(b, s, 1), at, d);
}
// Turn k of v[0]: the pivot's row comes to row k, column k is cleared below it. v[1]: NULL or the
// sign of the rows' order, [batch].
static void eliminate(struct onnx_ctx *c, hv k, hv *v, UNUSED void *user) {
    struct hb *b = &c->b;
    hv m = v[0], column = onnx_take(c, m, k, 2),
       top = onnx_take(c, m, k, 1); // [batch, n], [batch, wide]
    int64_t axis = 1;

    if (!hb_ok(b)) return;
    const struct shape *s = shape_make(c->a, DT_S64, column->shape->dims, 2);
    hv below = hb_compare(b, hb_iota(b, s, 1), onnx_spread(c, k, s), CMP_GE);
    hv size = hb_select(b, below, hb_unary(b, HLO_ABS, column), onnx_splat_like(c, column, -1));
    hv first = onnx_place_of_extreme(c, size, axis, true, false, false); // s64[batch]
    if (!hb_ok(b)) return;

    if (v[1]) {
        hv stays = hb_compare(b, first, onnx_spread(c, k, first->shape), CMP_EQ);
        v[1] = hb_select(b, stays, v[1], hb_unary(b, HLO_NEGATE, v[1]));
    }

    hv here = rows_at(c, m, first, CMP_EQ);
    hv pivots = hb_select(b, here, m, onnx_splat_like(c, m, 0));
    // the pivot's row, [batch, wide]
    pivots = onnx_reduce_keep(c, pivots, &axis, 1, HLO_ADD, false);
    hv low = onnx_back_to(c, pivots, m->shape, &axis, 1);
    m = hb_select(b, here, onnx_back_to(c, top, m->shape, &axis, 1), m);
    m = hb_select(b, rows_at(c, m, k, CMP_EQ), low, m);

    hv pivot = onnx_take(c, pivots, k, 1); // [batch]
    pivot = hb_select(b, onnx_compare_k(c, pivot, 0, CMP_EQ), onnx_splat_like(c, pivot, 1), pivot);
    column = onnx_take(c, m, k, 2);
    if (!hb_ok(b)) return;

    hv ratio = hb_div(b, column, onnx_along(c, pivot, column->shape, 0));
    ratio = hb_broadcast(b, ratio, m->shape->dims, 3, (int64_t[]){0, 1});
    v[0] = hb_select(b, rows_at(c, m, k, CMP_GT), hb_sub(b, m, hb_mul(b, ratio, low)), m);
}
ONNX_X(inverse) {
    const struct shape *s = x->shape;
    int rank = s->rank;
    int64_t n = rank < 2 ? 0 : s->dims[rank - 1];
    if (rank < 2 || s->dims[rank - 2] != n || !dtype_is_float(s->dtype))
        return onnx_fail(c, "input %s: expected square matrices", shape_text(c->a, s));
    if (shape_elements(s) == 0) return onnx_out_val(c, 0, x);
    int64_t batch = shape_elements(s) / (n * n), dims[3] = {batch, n, n};
    enum dtype t = dtype_size(s->dtype) < 4 ? DT_F32 : s->dtype;
    const struct shape *square = shape_make(c->a, DT_S64, dims, 3);
    hv unit = hb_compare(b, hb_iota(b, square, 1), hb_iota(b, square, 2), CMP_EQ);
    hv m = hb_reshape(b, hb_convert(b, x, t), dims, 3);
    hv v[2] = {hb_concat(b, (hv[]){m, hb_convert(b, unit, t)}, 2, 2), NULL};
    if (n > 1) onnx_loop_times(c, n - 1, v, 2, eliminate, NULL);
    if (!hb_ok(b)) return;
    m = v[0];
    struct hlo_attr_trisolve solve = {.left_side = true, .transpose_a = TRI_NO_TRANSPOSE};
    hv both[2] = {onnx_part(c, m, 2, 0, n), onnx_part(c, m, 2, n, 2 * n)};
    m = hb_op(b, HLO_TRIANGULAR_SOLVE, both[1]->shape, both, 2, &solve);
    onnx_out_val(c, 0, hb_reshape(b, hb_convert(b, m, s->dtype), s->dims, rank));
}
// m [batch, n, n] -> [batch]: the product of the pivots.
hv onnx_det_by_loop(struct onnx_ctx *c, hv m) {
    struct hb *b = &c->b;
    const struct shape *s = shape_make(c->a, DT_S64, m->shape->dims, 3);
    const struct shape *rows = shape_make(c->a, m->shape->dtype, m->shape->dims, 1);
    int64_t last = 2, one = 1;
    hv v[2] = {m, hb_splat(b, rows, 1)};
    onnx_loop_times(c, m->shape->dims[1] - 1, v, 2, eliminate, NULL);
    if (!hb_ok(b)) return m;
    hv unit = hb_compare(b, hb_iota(b, s, 1), hb_iota(b, s, 2), CMP_EQ);
    hv pivots = hb_select(b, unit, v[0], onnx_splat_like(c, m, 0));
    pivots = onnx_reduce_keep(c, pivots, &last, 1, HLO_ADD, false); // [batch, n]
    return hb_mul(b, v[1], onnx_reduce_keep(c, pivots, &one, 1, HLO_MULTIPLY, false));
}
