// SPDX-License-Identifier: Apache-2.0
// Elementwise operators beyond the plain ones of onnx_math.c: inverse and hyperbolic functions,
// bits, modulus, type changes with saturation.
#include <math.h>

#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

static const double LN2 = 0.6931471805599453;

ONNX_X(asin) { // atan2(x, sqrt((1-x)(1+x)))
    hv one = onnx_splat_like(c, x, 1);
    hv s = hb_unary(b, HLO_SQRT, hb_mul(b, hb_sub(b, one, x), hb_add(b, one, x)));
    onnx_out_val(c, 0, hb_binary(b, HLO_ATAN2, x, s));
}
ONNX_X(atan) {
    onnx_out_val(c, 0, hb_binary(b, HLO_ATAN2, x, onnx_splat_like(c, x, 1)));
}
ONNX(acosh) { // with t = x - 1: log1p(t + sqrt(t) sqrt(t + 2)), exact near 1
    hv t = onnx_add_k(c, onnx_in_val(c, 0), -1);
    hv root = hb_mul(b, hb_unary(b, HLO_SQRT, t), hb_unary(b, HLO_SQRT, onnx_add_k(c, t, 2)));
    onnx_out_val(c, 0, hb_unary(b, HLO_LOG1P, hb_add(b, t, root)));
}
ONNX_X(
    asinh) { // sign * log1p(a + a^2 / (1 + sqrt(a^2 + 1))); log(a) + log(2) where a^2 may overflow
    hv a = hb_unary(b, HLO_ABS, x), sq = hb_mul(b, a, a);
    double big = x->shape->dtype == DT_F16 ? 128 : 1e9;
    hv root = onnx_add_k(c, hb_unary(b, HLO_SQRT, onnx_add_k(c, sq, 1)), 1);
    hv small = hb_unary(b, HLO_LOG1P, hb_add(b, a, hb_div(b, sq, root)));
    hv large = onnx_add_k(c, hb_unary(b, HLO_LOG, a), LN2);
    hv r = hb_select(b, onnx_compare_k(c, a, big, CMP_GT), large, small);
    onnx_out_val(c, 0, hb_mul(b, hb_unary(b, HLO_SIGN, x), r));
}
ONNX_X(atanh) {
    hv r = hb_sub(b, hb_unary(b, HLO_LOG1P, x), hb_unary(b, HLO_LOG1P, hb_unary(b, HLO_NEGATE, x)));
    onnx_out_val(c, 0, onnx_mul_k(c, r, 0.5));
}
// exp(x)/2 as exp(x - log 2), which does not overflow before the result does.
static hv half_exp(struct onnx_ctx *c, hv x) {
    return hb_unary(&c->b, HLO_EXP, onnx_add_k(c, x, -LN2));
}
ONNX_X(cosh) {
    onnx_out_val(c, 0, hb_add(b, half_exp(c, x), half_exp(c, hb_unary(b, HLO_NEGATE, x))));
}
ONNX_X(sinh) { // near 0, (e + e / (e + 1)) / 2 with e = exp(x) - 1 keeps the digits
    hv e = hb_unary(b, HLO_EXPM1, x);
    hv small = onnx_mul_k(c, hb_add(b, e, hb_div(b, e, onnx_add_k(c, e, 1))), 0.5);
    hv large = hb_sub(b, half_exp(c, x), half_exp(c, hb_unary(b, HLO_NEGATE, x)));
    hv near = hb_compare(b, hb_unary(b, HLO_ABS, x), onnx_splat_like(c, x, 1), CMP_LT);
    onnx_out_val(c, 0, hb_select(b, near, small, large));
}

ONNX_X(isinf) {
    hv none = hb_splat(b, shape_with_dtype(c->a, x->shape, DT_PRED), 0);
    hv up = onnx_compare_k(c, x, (double)INFINITY, CMP_EQ);
    hv down = onnx_compare_k(c, x, -(double)INFINITY, CMP_EQ);
    onnx_out_val(c, 0,
                 hb_binary(b, HLO_OR, onnx_at_int(c, "detect_positive", 1) ? up : none,
                           onnx_at_int(c, "detect_negative", 1) ? down : none));
}
ONNX_X(shrink) {
    double lambd = onnx_at_float(c, "lambd", 0.5f), bias = onnx_at_float(c, "bias", 0);
    hv low = onnx_compare_k(c, x, -lambd, CMP_LT);
    hv high = onnx_compare_k(c, x, lambd, CMP_GT);
    hv r = hb_select(b, high, onnx_add_k(c, x, -bias), onnx_splat_like(c, x, 0));
    onnx_out_val(c, 0, hb_select(b, low, onnx_add_k(c, x, bias), r));
}
ONNX_X(swish) {
    hv s = hb_unary(b, HLO_LOGISTIC, onnx_mul_k(c, x, onnx_at_float(c, "alpha", 1)));
    onnx_out_val(c, 0, hb_mul(b, x, s));
}

// fmod=1: the sign of the dividend, as in C; otherwise of the divisor, as in Python.
ONNX_X(mod) {
    hv y = onnx_in_val(c, 1);
    hb_numpy_pair(b, &x, &y);
    hv r = hb_binary(b, HLO_REMAINDER, x, y), zero = onnx_splat_like(c, x, 0);
    if (!onnx_at_int(c, "fmod", 0) && dtype_class(x->shape->dtype) != DC_UNSIGNED) {
        hv differ =
            hb_compare(b, hb_compare(b, r, zero, CMP_LT), hb_compare(b, y, zero, CMP_LT), CMP_NE);
        r = hb_select(b, onnx_and(c, differ, hb_compare(b, r, zero, CMP_NE)), hb_add(b, r, y), r);
    }
    onnx_out_val(c, 0, r);
}
ONNX_X(bitshift) {
    hv y = onnx_in_val(c, 1);
    hb_numpy_pair(b, &x, &y);
    bool left = str_is(onnx_at_str(c, "direction", ""), "LEFT");
    onnx_out_val(c, 0, hb_binary(b, left ? HLO_SHIFT_LEFT : HLO_SHIFT_RIGHT_LOGICAL, x, y));
}

// ---- type changes

// The largest finite value of an 8-bit float.
static double f8_largest(enum dtype t) {
    double largest = 0;
    for (int k = 0; k < 1 << dtype_bits(t); k++) {
        double v = f8_to_f64(t, (uint8_t)k);
        if (isfinite(v) && v > largest) largest = v;
    }
    return largest;
}
// x (f32) to a power of two as round_mode says: up, down, or to the nearest. Saturated, what is too
// small (0, too) or too large becomes the smallest or the largest; otherwise it is NaN.
static hv to_power(struct onnx_ctx *c, hv x, bool saturate) {
    struct hb *b = &c->b;
    struct str mode = onnx_at_str(c, "round_mode", "up");
    const double least = 0x1p-127, most = 0x1p127;
    bool up = str_is(mode, "up"), nearest = str_is(mode, "nearest");
    if (!up && !nearest && !str_is(mode, "down"))
        return onnx_fail(c, "round_mode '" STR_FMT "'", STR_ARG(mode)), x;
    hv r = x, small = hb_compare(b, x, onnx_splat_like(c, x, least), saturate ? CMP_LE : CMP_LT);
    hv large = onnx_compare_k(c, x, most, CMP_GE);
    if (!nearest) { // the mantissa's bits decide
        const struct shape *s = shape_with_dtype(c->a, x->shape, DT_S32);
        r = hb_op(b, HLO_BITCAST_CONVERT, s, &x, 1, NULL);
        if (up) r = onnx_add_k(c, r, 0x7fffff);
        r = onnx_and(c, r, onnx_splat_like(c, r, 0x7f800000));
        r = hb_op(b, HLO_BITCAST_CONVERT, x->shape, &r, 1, NULL);
        hv exact = onnx_compare_k(c, x, 2 * least, CMP_LT); // no normal f32
        r = hb_select(b, exact, onnx_splat_like(c, x, up ? 2 * least : least), r);
        r = hb_select(b, onnx_compare_k(c, x, least, CMP_EQ), x, r);
        r = hb_select(b, hb_compare(b, x, x, CMP_NE), x, r);
    }
    r = hb_select(b, small, onnx_splat_like(c, x, saturate ? least : (double)NAN), r);
    if (saturate) r = hb_select(b, large, onnx_splat_like(c, x, most), r);
    return hb_convert(b, r, DT_F8E8M0FNU);
}
// What is out of the range of a narrow integer keeps its lower bits, as if through s32: the
// definition leaves it open, NumPy, ONNX Runtime and the cases of onnx 1.19 and later agree.
hv onnx_saturating_convert(struct onnx_ctx *c, hv x, enum dtype t, bool saturate) {
    struct hb *b = &c->b;
    enum dtype from = x->shape->dtype;
    bool small = dtype_is_float(t) && dtype_size(t) == 1;
    if (dtype_is_float(from) && dtype_is_int(t) && dtype_bits(t) < 32) x = hb_convert(b, x, DT_S32);
    if (!small || from == t) return hb_convert(b, x, t);
    if (!dtype_is_float(from)) x = hb_convert(b, x, DT_F32);
    if (dtype_size(from) == 1 && from != DT_PRED) x = hb_convert(b, x, DT_F32);
    if (t == DT_F8E8M0FNU) return to_power(c, hb_convert(b, x, DT_F32), saturate);
    if (saturate) {
        double top = f8_largest(t);
        x = hb_clamp(b, hb_const_f64(b, x->shape->dtype, -top), x,
                     hb_const_f64(b, x->shape->dtype, top));
    }
    return hb_convert(b, x, t);
}
ONNX(cast) {
    static const struct {
        const char *name;
        enum dtype t;
    } old[] = {{"FLOAT", DT_F32},  {"INT64", DT_S64},   {"INT32", DT_S32},  {"DOUBLE", DT_F64},
               {"BOOL", DT_PRED},  {"FLOAT16", DT_F16}, {"UINT8", DT_U8},   {"INT8", DT_S8},
               {"UINT16", DT_U16}, {"INT16", DT_S16},   {"UINT32", DT_U32}, {"UINT64", DT_U64}};
    const struct onnx_attr *to = onnx_attr(c->n, "to"); // a text before opset 6
    struct str name = to ? to->s : str_of("");
    int64_t code = name.n ? 0 : onnx_at_int(c, "to", 0);
    enum dtype t = dtype_from_onnx((int)code);
    for (size_t k = 0; k < sizeof old / sizeof old[0]; k++)
        if (str_is(name, old[k].name)) t = old[k].t;
    bool text = str_is(name, "STRING") || code == ONNX_STRING;
    if (text || (onnx_in_any(c, 0) && onnx_in_any(c, 0)->text)) return onnx_text_cast(c, t, text);
    if (t == DT_INVALID) return onnx_fail(c, "element type %lld is not supported", (long long)code);
    onnx_out_val(
        c, 0, onnx_saturating_convert(c, onnx_in_val(c, 0), t, onnx_at_int(c, "saturate", 1) != 0));
}
ONNX_X(bitcast) { // booleans are bytes
    enum dtype from = x->shape->dtype, t = onnx_attr_dtype(c, "to", DT_INVALID), byte = DT_U8;
    int bits[2] = {from == DT_PRED ? 8 : dtype_bits(from), t == DT_PRED ? 8 : dtype_bits(t)};
    if (t == DT_INVALID || bits[0] != bits[1])
        return onnx_fail(c, "%s as %s: the widths differ", dtype_name(from), dtype_name(t));
    if (from == DT_PRED) x = hb_convert(b, x, from = byte);
    enum dtype to = t == DT_PRED ? byte : t;
    if (from != to)
        x = hb_op(b, HLO_BITCAST_CONVERT, shape_with_dtype(c->a, x->shape, to), &x, 1, NULL);
    onnx_out_val(c, 0, hb_convert(b, x, t));
}
ONNX(castlike) {
    enum dtype t = onnx_in_val(c, 1)->shape->dtype;
    bool text = onnx_in_any(c, 1) && onnx_in_any(c, 1)->text;
    if (text || (onnx_in_any(c, 0) && onnx_in_any(c, 0)->text)) return onnx_text_cast(c, t, text);
    onnx_out_val(
        c, 0, onnx_saturating_convert(c, onnx_in_val(c, 0), t, onnx_at_int(c, "saturate", 1) != 0));
}
