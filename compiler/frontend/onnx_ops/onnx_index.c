// SPDX-License-Identifier: Apache-2.0
// Gathers and scatters by element or by point, one-hot, top-k, triangles and sequences reversed.
#include <string.h>

#include "compiler/frontend/onnx/onnx_tools.h"

// ---- gathers

ONNX_X(gatherelements) {
    hv idx = onnx_in_val(c, 1);
    int rank = x->shape->rank;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), rank);
    if (!hb_ok(b)) return;
    if (idx->shape->rank != rank || rank == HLO_MAX_RANK)
        return onnx_fail(c, "indices of rank %d for data of rank %d", idx->shape->rank, rank);
    idx = onnx_wrapped(c, idx, x->shape->dims[axis]);
    onnx_out_val(c, 0, onnx_take_elements(c, x, idx, axis));
}

// Index vectors whose components count negative from the end: each is wrapped by its dimension.
static hv wrapped_points(struct onnx_ctx *c, hv idx, const struct shape *x, int first, int n) {
    struct hb *b = &c->b;
    int64_t sizes[HLO_MAX_RANK], last = idx->shape->rank - 1, count = n;
    for (int d = 0; d < n; d++)
        sizes[d] = x->dims[first + d];
    hv size = hb_convert(b, onnx_lit_s64s(c, sizes, &count, 1), idx->shape->dtype);
    hv up = hb_add(b, idx, onnx_along(c, size, idx->shape, last));
    return hb_select(b, onnx_compare_k(c, idx, 0, CMP_LT), up, idx);
}

ONNX_X(gathernd) {
    hv idx = onnx_in_val(c, 1);
    int64_t batch = onnx_at_int(c, "batch_dims", 0);
    int xr = x->shape->rank, ir = idx->shape->rank;
    int64_t n = ir ? idx->shape->dims[ir - 1] : 0;
    if (batch < 0 || batch >= ir || batch + n > xr || ir < 1)
        return onnx_fail(c, "indices %s on %s with batch_dims %lld", onnx_show(c, idx),
                         onnx_show(c, x), (long long)batch);
    idx = wrapped_points(c, idx, x->shape, (int)batch, (int)n);
    if (batch) { // positions of the batch dimensions come first
        hv at[HLO_MAX_RANK + 1];
        int64_t dims[HLO_MAX_RANK];
        memcpy(dims, idx->shape->dims, sizeof *dims * (size_t)ir);
        dims[ir - 1] = 1;
        const struct shape *s = shape_make(c->a, idx->shape->dtype, dims, ir);
        for (int64_t d = 0; d < batch; d++)
            at[d] = hb_iota(b, s, d);
        at[batch] = idx;
        idx = hb_concat(b, at, (int)batch + 1, ir - 1);
    }
    onnx_out_val(c, 0, onnx_take_points(c, x, idx, (int)(batch + n)));
}

// ---- scatters

static enum hlo_op reduction_of(struct onnx_ctx *c) {
    struct str r = onnx_at_str(c, "reduction", "none");
    if (str_is(r, "none")) return HLO_COPY;
    if (str_is(r, "add")) return HLO_ADD;
    if (str_is(r, "mul")) return HLO_MULTIPLY;
    if (str_is(r, "max")) return HLO_MAXIMUM;
    if (str_is(r, "min")) return HLO_MINIMUM;
    onnx_fail(c, "reduction '" STR_FMT "' is not supported", STR_ARG(r));
    return HLO_COPY;
}
ONNX_X(scatterelements) { // and its old name Scatter
    hv idx = onnx_in_val(c, 1), upd = onnx_in_val(c, 2);
    int rank = x->shape->rank;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), rank);
    enum hlo_op op = reduction_of(c);
    if (!hb_ok(b)) return;
    if (idx->shape->rank != rank || rank == HLO_MAX_RANK)
        return onnx_fail(c, "indices of rank %d for data of rank %d", idx->shape->rank, rank);
    idx = onnx_wrapped(c, idx, x->shape->dims[axis]);
    onnx_out_val(c, 0, onnx_put_elements(c, x, idx, axis, upd, op));
}
ONNX_X(scatternd) {
    hv idx = onnx_in_val(c, 1), upd = onnx_in_val(c, 2);
    int ir = idx->shape->rank;
    int64_t n = ir ? idx->shape->dims[ir - 1] : 0;
    if (ir < 1 || n > x->shape->rank)
        return onnx_fail(c, "indices %s on %s", onnx_show(c, idx), onnx_show(c, x));
    idx = wrapped_points(c, idx, x->shape, 0, (int)n);
    onnx_out_val(c, 0, onnx_put_points(c, x, idx, (int)n, upd, reduction_of(c)));
}

// ---- one-hot and order

ONNX(onehot) {
    hv idx = onnx_in_val(c, 0), values = onnx_in_val(c, 2);
    int64_t depth, dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
    int n, rank = idx->shape->rank + 1, k = 0;
    const struct literal *known = onnx_in_known(c, 1);
    if (!known) return;
    n = (int)shape_elements(known->shape);
    depth = n == 1 ? lit_get_i64(known, 0) : 0;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", -1), rank);
    if (n != 1 || depth < 0 || rank > HLO_MAX_RANK || shape_elements(values->shape) != 2)
        return onnx_fail(c, "depth %lld, values %s", (long long)depth, onnx_show(c, values));
    if (!hb_ok(b)) return;
    for (int d = 0; d < rank; d++) {
        dims[d] = d == axis ? depth : idx->shape->dims[k];
        if (d != axis) map[k++] = d;
    }
    idx = onnx_wrapped(c, idx, depth);
    const struct shape *s = shape_make(c->a, idx->shape->dtype, dims, rank);
    hv wide = hb_broadcast(b, idx, dims, rank, map);
    hv pos = dtype_is_float(idx->shape->dtype)
                 ? hb_convert(b, onnx_index_along(c, s, DT_S64, axis), idx->shape->dtype)
                 : onnx_index_along(c, s, idx->shape->dtype, axis);
    hv off = onnx_row(c, hb_reshape(b, values, (int64_t[]){2}, 1), 0, 0);
    hv on = onnx_row(c, hb_reshape(b, values, (int64_t[]){2}, 1), 0, 1);
    onnx_out_val(c, 0,
                 hb_select(b, hb_compare(b, wide, pos, CMP_EQ), onnx_spread(c, on, s),
                           onnx_spread(c, off, s)));
}

ONNX_X(topk) {
    int rank = x->shape->rank, n = 1;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", -1), rank), k = onnx_at_int(c, "k", 0);
    if (!hb_ok(b)) return;
    if (c->opset >= 10 && (!onnx_in_ints(c, 1, &k, 1, &n) || n != 1))
        return onnx_fail(c, "k is missing");
    if (k < 0 || k > x->shape->dims[axis])
        return onnx_fail(c, "k %lld of %lld elements", (long long)k,
                         (long long)x->shape->dims[axis]);
    struct hlo_attr_topk a = {.k = k, .largest = onnx_at_int(c, "largest", 1) != 0};
    hv r = hb_op(b, HLO_TOPK, NULL, (hv[]){onnx_swap_axes(c, x, axis, rank - 1)}, 1, &a);
    if (!hb_ok(b)) return;
    onnx_out_val(c, 0, onnx_swap_axes(c, hb_gte(b, r, 0), axis, rank - 1));
    onnx_out_val(c, 1, onnx_swap_axes(c, hb_convert(b, hb_gte(b, r, 1), DT_S64), axis, rank - 1));
}

// ---- triangles and diagonals

// column - row of the two last dimensions.
static hv diagonal_number(struct onnx_ctx *c, const struct shape *s) {
    return hb_sub(&c->b, onnx_index_along(c, s, DT_S64, s->rank - 1),
                  onnx_index_along(c, s, DT_S64, s->rank - 2));
}
ONNX_X(trilu) {
    if (x->shape->rank < 2) return onnx_fail(c, "input %s", onnx_show(c, x));
    hv d = diagonal_number(c, x->shape);
    hv k = onnx_in_has(c, 1) ? onnx_spread(c, hb_convert(b, onnx_scalar_in(c, 1), DT_S64), d->shape)
                             : onnx_splat_like(c, d, 0);
    bool upper = onnx_at_int(c, "upper", 1) != 0;
    hv keep = hb_compare(b, d, k, upper ? CMP_GE : CMP_LE);
    onnx_out_val(c, 0, hb_select(b, keep, x, onnx_splat_like(c, x, 0)));
}
ONNX_X(eyelike) {
    enum dtype t = onnx_attr_dtype(c, "dtype", x->shape->dtype);
    if (x->shape->rank != 2) return onnx_fail(c, "input %s, expected a matrix", onnx_show(c, x));
    hv d = diagonal_number(c, x->shape);
    hv on = hb_compare(b, d, onnx_splat_like(c, d, (double)onnx_at_int(c, "k", 0)), CMP_EQ);
    onnx_out_val(c, 0, hb_convert(b, on, t));
}

// The first lens[b] elements of each batch along time, backwards; the rest as they are.
ONNX_X(reversesequence) {
    hv lens = onnx_in_val(c, 1);
    int64_t batch = onnx_at_int(c, "batch_axis", 1), time = onnx_at_int(c, "time_axis", 0);
    if (x->shape->rank < 2 || lens->shape->rank != 1 || batch == time || batch < 0 || batch > 1 ||
        time < 0 || time > 1 || lens->shape->dims[0] != x->shape->dims[batch])
        return onnx_fail(c, "batch_axis %lld, time_axis %lld on %s", (long long)batch,
                         (long long)time, onnx_show(c, x));
    const struct shape *s = shape_make(c->a, DT_S64, x->shape->dims, 2);
    hv t = hb_iota(b, s, time), n = onnx_along(c, hb_convert(b, lens, DT_S64), s, batch);
    hv from = hb_select(b, hb_compare(b, t, n, CMP_LT), hb_sub(b, onnx_add_k(c, n, -1), t), t);
    onnx_out_val(c, 0, onnx_take_points(c, x, onnx_element_points(c, from, time), 2));
}
