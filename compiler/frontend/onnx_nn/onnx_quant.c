// SPDX-License-Identifier: Apache-2.0
// Quantised operators: values are q = round(x / scale) + zero point, saturated to the type. Scales
// and zero points are scalars, one per index of an axis, or one per block along it.
#include <math.h>

#include "compiler/frontend/onnx_nn/onnx_quant.h"

// A parameter of quantisation over the whole of `like`.
hv onnx_spread_param(struct onnx_ctx *c, hv p, const struct shape *like, int64_t axis) {
    struct hb *b = &c->b;
    if (shape_elements(p->shape) == 1) return onnx_spread(c, hb_reshape(b, p, NULL, 0), like);
    int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], wide[HLO_MAX_RANK + 1];
    int rank = like->rank;
    if (axis < 0 || axis >= rank)
        return onnx_fail(c, "axis %lld of rank %d", (long long)axis, rank), p;
    int64_t block = onnx_at_int(c, "block_size", 0),
            blocks = p->shape->rank == rank ? p->shape->dims[axis] : 0;
    if (p->shape->rank == 1 && (rank > 1 || block < 1)) return onnx_along(c, p, like, axis);
    if (blocks < 1 || rank == HLO_MAX_RANK)
        return onnx_fail(c, "scale %s for %s", onnx_show(c, p), shape_text(c->a, like)), p;
    if (block < 1) block = (like->dims[axis] + blocks - 1) / blocks;
    for (int d = 0; d < rank; d++) {
        map[d] = d <= axis ? d : d + 1;
        dims[d] = wide[map[d]] = p->shape->dims[d];
    }
    if (!sz_mul(blocks, block, &dims[axis]) || dims[axis] < like->dims[axis])
        return onnx_fail(c, "blocks of %lld do not cover the axis", (long long)block), p;
    wide[axis + 1] = block;
    p = hb_reshape(b, hb_broadcast(b, p, wide, rank + 1, map), dims, rank);
    return onnx_part(c, p, axis, 0, like->dims[axis]); // the last block may be shorter
}

// x (f32, rounded already where it must be) plus the zero point, saturated into t.
hv onnx_quant_saturate(struct onnx_ctx *c, hv x, hv zero, enum dtype t) {
    struct hb *b = &c->b;
    if (dtype_is_float(t)) {
        if (zero) x = hb_add(b, x, hb_convert(b, zero, DT_F32));
        return onnx_saturating_convert(c, x, t, onnx_at_int(c, "saturate", 1) != 0);
    }
    x = hb_unary(b, HLO_ROUND_EVEN, x);
    if (zero) x = hb_add(b, x, hb_convert(b, zero, DT_F32));
    double lo = dtype_lowest(t), hi = dtype_highest(t);
    x = hb_clamp(b, hb_const_f64(b, DT_F32, lo), x, hb_const_f64(b, DT_F32, hi));
    return hb_convert(b, x, t);
}

ONNX_X(quantizelinear) {
    hv scale = onnx_in_val(c, 1), zero = onnx_in_opt(c, 2);
    int64_t axis = onnx_at_int(c, "axis", 1);
    enum dtype t = onnx_attr_dtype(c, "output_dtype", zero ? zero->shape->dtype : DT_U8);
    if (zero) t = zero->shape->dtype;
    enum dtype work = onnx_attr_dtype(c, "precision", scale->shape->dtype);
    if (axis < 0) axis += x->shape->rank;
    hv q = hb_convert(b, x, work);
    q = hb_div(b, q, onnx_spread_param(c, hb_convert(b, scale, work), q->shape, axis));
    q = hb_convert(b, q, DT_F32);
    if (zero) zero = onnx_spread_param(c, hb_convert(b, zero, DT_F32), q->shape, axis);
    onnx_out_val(c, 0, onnx_quant_saturate(c, q, zero, t));
}

// Integers less their zero point, as s32; floats as f32.
hv onnx_centred(struct onnx_ctx *c, hv x, hv zero, int64_t axis) {
    struct hb *b = &c->b;
    enum dtype t = dtype_is_float(x->shape->dtype) ? DT_F32 : DT_S32;
    x = hb_convert(b, x, t);
    if (!zero) return x;
    return hb_sub(b, x, onnx_spread_param(c, hb_convert(b, zero, t), x->shape, axis));
}
ONNX_X(dequantizelinear) {
    hv scale = onnx_in_val(c, 1), zero = onnx_in_opt(c, 2);
    int64_t axis = onnx_at_int(c, "axis", 1);
    enum dtype st = scale->shape->dtype, t = onnx_attr_dtype(c, "output_dtype", st);
    enum dtype work = dtype_size(st) < 4 ? DT_F32 : st;
    if (axis < 0) axis += x->shape->rank;
    hv v = hb_convert(b, onnx_centred(c, x, zero, axis), work);
    v = hb_mul(b, v, onnx_spread_param(c, hb_convert(b, scale, work), x->shape, axis));
    onnx_out_val(c, 0, hb_convert(b, v, t));
}
hv onnx_quant_dynamic(struct onnx_ctx *c, hv x, hv *scale_out, hv *zero_out) {
    struct hb *b = &c->b;
    hv zero = hb_const_f64(b, DT_F32, 0);
    int64_t all[HLO_MAX_RANK];
    int n = x->shape->rank;
    for (int d = 0; d < n; d++)
        all[d] = d;
    hv top = hb_max(b, onnx_reduce_keep(c, x, all, n, HLO_MAXIMUM, false), zero);
    hv low = hb_min(b, onnx_reduce_keep(c, x, all, n, HLO_MINIMUM, false), zero);
    hv scale = hb_div(b, hb_sub(b, top, low), hb_const_f64(b, DT_F32, 255));
    scale = hb_select(b, hb_compare(b, scale, zero, CMP_EQ), hb_const_f64(b, DT_F32, 1), scale);
    hv point = hb_div(b, hb_unary(b, HLO_NEGATE, low), scale);
    hv zp = onnx_quant_saturate(c, point, NULL, DT_U8);
    *scale_out = scale, *zero_out = zp;
    x = hb_div(b, x, onnx_spread(c, scale, x->shape));
    return onnx_quant_saturate(c, x, onnx_spread(c, zp, x->shape), DT_U8);
}
ONNX(dynamicquantize) {
    hv scale, zero;
    onnx_out_val(c, 0, onnx_quant_dynamic(c, onnx_in_val(c, 0), &scale, &zero));
    onnx_out_val(c, 1, scale);
    onnx_out_val(c, 2, zero);
}

// ---- products

// Rows of the left operand or columns of the right may have a parameter each, as a vector or with
// a 1 in the contracted dimension.
hv onnx_matrix_param(struct onnx_ctx *c, hv p, hv x, bool right) {
    struct hb *b = &c->b;
    int rank = x->shape->rank;
    if (shape_elements(p->shape) == 1) return onnx_spread(c, hb_reshape(b, p, NULL, 0), x->shape);
    if (p->shape->rank == 1 && rank > 1)
        return onnx_along(c, p, x->shape, right ? rank - 1 : rank - 2);
    return hb_broadcast_numpy(b, p, x->shape->dims, rank);
}
hv onnx_matrix_centred(struct onnx_ctx *c, size_t x, size_t zero, bool right) {
    struct hb *b = &c->b;
    hv v = hb_convert(b, onnx_in_val(c, x), DT_S32);
    if (!onnx_in_has(c, zero)) return v;
    return hb_sub(b, v,
                  onnx_matrix_param(c, hb_convert(b, onnx_in_val(c, zero), DT_S32), v, right));
}
ONNX(matmulinteger) {
    hv x = onnx_matrix_centred(c, 0, 2, false), y = onnx_matrix_centred(c, 1, 3, true);
    onnx_out_val(c, 0, hb_matmul(b, x, y));
}
ONNX(qlinearmatmul) { // a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
    hv x = onnx_matrix_centred(c, 0, 2, false), y = onnx_matrix_centred(c, 3, 5, true),
       zero = onnx_in_val(c, 7);
    hv r = hb_convert(b, hb_matmul(b, x, y), DT_F32);
    if (!hb_ok(b) || r->shape->rank < 1) return onnx_fail(c, "operands must be matrices");
    for (size_t k = 1; k <= 4; k += 3)
        r = hb_mul(b, r, onnx_matrix_param(c, hb_convert(b, onnx_in_val(c, k), DT_F32), r, k == 4));
    r = hb_div(b, r, onnx_matrix_param(c, hb_convert(b, onnx_in_val(c, 6), DT_F32), r, false));
    hv wide = onnx_matrix_param(c, hb_convert(b, zero, DT_F32), r, false);
    onnx_out_val(c, 0, onnx_quant_saturate(c, r, wide, zero->shape->dtype));
}

ONNX_X(convinteger) {
    hv w = onnx_in_val(c, 1);
    x = onnx_centred(c, x, onnx_in_opt(c, 2), 1);
    w = onnx_centred(c, w, onnx_in_opt(c, 3), 0);
    onnx_out_val(c, 0, onnx_convolve(c, x, w));
}
ONNX(qlinearconv) { // x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias
    hv x = onnx_centred(c, onnx_in_val(c, 0), onnx_in_val(c, 2), 1),
       w = onnx_centred(c, onnx_in_val(c, 3), onnx_in_val(c, 5), 0);
    hv r = onnx_convolve(c, x, w), zero = onnx_in_val(c, 7);
    if (!hb_ok(b)) return;
    r = onnx_add_along(c, r, 8, 1);
    r = hb_convert(b, r, DT_F32);
    r = hb_mul(b, r, onnx_spread_param(c, onnx_in_val(c, 1), r->shape, 1));
    r = hb_mul(b, r, onnx_spread_param(c, onnx_in_val(c, 4), r->shape, 1));
    r = hb_div(b, r, onnx_spread_param(c, onnx_in_val(c, 6), r->shape, 1));
    hv wide = onnx_spread_param(c, hb_convert(b, zero, DT_F32), r->shape, 1);
    onnx_out_val(c, 0, onnx_quant_saturate(c, r, wide, zero->shape->dtype));
}
