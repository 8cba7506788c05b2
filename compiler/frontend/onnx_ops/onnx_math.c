// SPDX-License-Identifier: Apache-2.0
// Elementwise operators, activations, reductions, softmax and normalisation.
#include <float.h>
#include <math.h>
#include <string.h>

#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

static hv scalar_like(struct onnx_ctx *c, hv x, double v) {
    return hb_splat(&c->b, x->shape, v);
}

ONNX(unary) {
    onnx_out_val(c, 0, hb_unary(b, (enum hlo_op)onnx_op_arg(c), onnx_in_val(c, 0)));
}

// Before opset 7 broadcasting was an attribute: the second input aligned at `axis` of the first.
static void align_old_broadcast(struct onnx_ctx *c, hv x, hv *y) {
    int64_t axis = onnx_at_int(c, "axis", -1), dims[HLO_MAX_RANK];
    int rank = x->shape->rank, yr = (*y)->shape->rank;
    if (c->opset >= 7 || !onnx_at_int(c, "broadcast", 0) || axis < 0 || axis + yr > rank) return;
    for (int d = 0; d < rank - axis; d++)
        dims[d] = d < yr ? (*y)->shape->dims[d] : 1;
    *y = hb_reshape(&c->b, *y, dims, rank - (int)axis);
}
static void two(struct onnx_ctx *c, hv *x, hv *y) {
    *x = onnx_in_val(c, 0);
    *y = onnx_in_val(c, 1);
    align_old_broadcast(c, *x, y);
    hb_numpy_pair(&c->b, x, y);
}

// ONNX integer division truncates and by zero is undefined: HLO's rule serves.
ONNX(binary) {
    hv x, y;
    two(c, &x, &y);
    onnx_out_val(c, 0, hb_binary(b, (enum hlo_op)onnx_op_arg(c), x, y));
}
ONNX(compare) {
    hv x, y;
    two(c, &x, &y);
    onnx_out_val(c, 0, hb_compare(b, x, y, (enum cmp_direction)onnx_op_arg(c)));
}
ONNX_X(pow) {
    hv y = onnx_in_val(c, 1);
    align_old_broadcast(c, x, &y);
    enum dtype t = x->shape->dtype;
    // An integer to a real power: in f64, as ONNX Runtime, whatever the exponent's type.
    if (dtype_is_float(y->shape->dtype) && !dtype_is_float(t)) x = hb_convert(b, x, DT_F64);
    y = hb_convert(b, y, x->shape->dtype);
    hb_numpy_pair(b, &x, &y);
    onnx_out_val(c, 0, hb_convert(b, hb_binary(b, HLO_POWER, x, y), t));
}
ONNX(variadic) {
    hv r = onnx_in_val(c, 0);
    enum hlo_op op = (enum hlo_op)onnx_op_arg(c);
    bool mean = op == HLO_DIVIDE;
    for (size_t k = 1; k < c->n->in.n; k++) {
        hv y = onnx_in_val(c, k);
        hb_numpy_pair(b, &r, &y);
        r = hb_binary(b, mean ? HLO_ADD : op, r, y);
    }
    if (mean) r = hb_div(b, r, scalar_like(c, r, (double)c->n->in.n));
    onnx_out_val(c, 0, r);
}
ONNX(where) {
    hv p = onnx_in_val(c, 0), x = onnx_in_val(c, 1), y = onnx_in_val(c, 2);
    hb_numpy_pair(b, &x, &y);
    hb_numpy_pair(b, &p, &x);
    hb_numpy_pair(b, &p, &y);
    hb_numpy_pair(b, &x, &y);
    onnx_out_val(c, 0, hb_select(b, p, x, y));
}
ONNX_X(isnan) {
    onnx_out_val(c, 0, hb_compare(b, x, x, CMP_NE));
}
ONNX_X(reciprocal) {
    onnx_out_val(c, 0, hb_div(b, scalar_like(c, x, 1), x));
}
ONNX_X(acos) { // atan2(sqrt((1-x)(1+x)), x)
    hv one = scalar_like(c, x, 1);
    hv s = hb_unary(b, HLO_SQRT, hb_mul(b, hb_sub(b, one, x), hb_add(b, one, x)));
    onnx_out_val(c, 0, hb_binary(b, HLO_ATAN2, s, x));
}
ONNX_X(prelu) {
    hv s = onnx_in_val(c, 1);
    hb_numpy_pair(b, &x, &s); // ONNX Runtime spreads x too
    if (!hb_ok(b)) return;
    hv pos = hb_compare(b, x, scalar_like(c, x, 0), CMP_GE);
    onnx_out_val(c, 0, hb_select(b, pos, x, hb_mul(b, x, s)));
}

// The largest finite value of a type; of integers, too.
static double largest_finite(enum dtype t) {
    switch (t) {
    case DT_F16:
        return 65504;
    case DT_BF16:
        return 0x1.fep127;
    case DT_F32:
        return (double)FLT_MAX;
    case DT_F64:
        return DBL_MAX;
    default:
        return dtype_highest(t);
    }
}
// Bound k of a Clip; NULL: none. NaN bounds nothing, as in ONNX Runtime.
static hv clip_bound(struct onnx_ctx *c, size_t k, hv x) {
    const struct onnx_val *given = onnx_in_any(c, k + 1);
    bool real = dtype_is_float(x->shape->dtype);
    hv limit = hb_reshape(&c->b, onnx_in_val(c, k + 1), NULL, 0);
    if (!hb_ok(&c->b)) return NULL; // it may have no element
    if (real && given && given->known && isnan(lit_get_f64(given->known, 0))) return NULL;
    if (real && !(given && given->known)) {
        hv open = onnx_splat_like(c, limit, k ? INFINITY : -INFINITY);
        limit = hb_select(&c->b, hb_compare(&c->b, limit, limit, CMP_EQ), limit, open);
    }
    return hb_broadcast(&c->b, limit, x->shape->dims, x->shape->rank, NULL);
}
// A bound that is left out is the type's last finite value, of an infinity too, as in the standard.
ONNX_X(clip) {
    if (c->opset < 11 && !(onnx_at_float(c, "min", -FLT_MAX) <= onnx_at_float(c, "max", FLT_MAX)))
        return onnx_fail(c, "min %g, max %g", onnx_at_float(c, "min", -FLT_MAX),
                         onnx_at_float(c, "max", FLT_MAX));

    static const char *const names[] = {"min", "max"};
    for (size_t k = 0; k < 2; k++) {
        hv limit;
        bool least = k == 0;
        if (c->opset >= 11 && onnx_in_has(c, k + 1))
            limit = clip_bound(c, k, x);
        else if (c->opset < 11 && onnx_attr(c->n, names[k]))
            limit = scalar_like(c, x, onnx_at_float(c, names[k], 0));
        else if (dtype_is_float(x->shape->dtype))
            limit = scalar_like(c, x, (least ? -1 : 1) * largest_finite(x->shape->dtype));
        else
            continue;
        if (limit) x = hb_binary(b, least ? HLO_MAXIMUM : HLO_MINIMUM, x, limit);
    }
    onnx_out_val(c, 0, x);
}

static hv elu_like(struct onnx_ctx *c, hv x, double alpha, double inner) {
    hv neg = hb_mul(
        &c->b, scalar_like(c, x, alpha),
        hb_unary(&c->b, HLO_EXPM1, inner == 1 ? x : hb_div(&c->b, x, scalar_like(c, x, inner))));
    return hb_select(&c->b, hb_compare(&c->b, x, scalar_like(c, x, 0), CMP_GT), x, neg);
}
static hv softplus(struct onnx_ctx *c,
                   hv x) { // max(x, 0) + log1p(exp(-|x|)), which does not overflow
    hv e = hb_unary(&c->b, HLO_EXP, hb_unary(&c->b, HLO_NEGATE, hb_unary(&c->b, HLO_ABS, x)));
    return hb_add(&c->b, hb_max(&c->b, x, scalar_like(c, x, 0)), hb_unary(&c->b, HLO_LOG1P, e));
}
hv onnx_gelu(struct onnx_ctx *c, hv x, bool tanh) {
    hv half_x = hb_mul(&c->b, x, scalar_like(c, x, 0.5)), inner;
    if (tanh) {
        hv x3 = hb_mul(&c->b, hb_mul(&c->b, x, x), x);
        inner = hb_add(&c->b, x, hb_mul(&c->b, x3, scalar_like(c, x, 0.044715)));
        inner =
            hb_unary(&c->b, HLO_TANH, hb_mul(&c->b, inner, scalar_like(c, x, 0.7978845608028654)));
    } else {
        inner = hb_unary(&c->b, HLO_ERF, hb_mul(&c->b, x, scalar_like(c, x, 0.7071067811865476)));
    }
    return hb_mul(&c->b, half_x, hb_add(&c->b, inner, scalar_like(c, x, 1)));
}

ONNX_X(activation) {
    hv zero = scalar_like(c, x, 0), one = scalar_like(c, x, 1), r = x;
    struct str op = c->n->op;

    if (str_is(op, "Relu")) {
        r = hb_max(b, x, zero);
    } else if (str_is(op, "LeakyRelu")) {
        r = hb_select(b, hb_compare(b, x, zero, CMP_GE), x,
                      hb_mul(b, x, scalar_like(c, x, onnx_at_float(c, "alpha", 0.01f))));
    } else if (str_is(op, "ThresholdedRelu")) {
        r = hb_select(b, hb_compare(b, x, scalar_like(c, x, onnx_at_float(c, "alpha", 1)), CMP_GT),
                      x, zero);
    } else if (str_is(op, "Elu")) {
        r = elu_like(c, x, onnx_at_float(c, "alpha", 1), 1);
    } else if (str_is(op, "Celu")) {
        double alpha = onnx_at_float(c, "alpha", 1);
        r = elu_like(c, x, alpha, alpha);
    } else if (str_is(op, "Selu")) {
        r = hb_mul(b, scalar_like(c, x, onnx_at_float(c, "gamma", 1.05070102214813232421875f)),
                   elu_like(c, x, onnx_at_float(c, "alpha", 1.67326319217681884765625f), 1));
    } else if (str_is(op, "HardSigmoid") || str_is(op, "HardSwish")) {
        bool swish = str_is(op, "HardSwish");
        double alpha = swish ? 1.0 / 6 : onnx_at_float(c, "alpha", 0.2f),
               beta = swish ? 0.5 : onnx_at_float(c, "beta", 0.5f);
        r = hb_clamp(b, zero,
                     hb_add(b, hb_mul(b, x, scalar_like(c, x, alpha)), scalar_like(c, x, beta)),
                     one);
        if (swish) r = hb_mul(b, x, r);
    } else if (str_is(op, "Softplus")) {
        r = softplus(c, x);
    } else if (str_is(op, "Mish")) {
        r = hb_mul(b, x, hb_unary(b, HLO_TANH, softplus(c, x)));
    } else if (str_is(op, "Softsign")) {
        r = hb_div(b, x, hb_add(b, one, hb_unary(b, HLO_ABS, x)));
    } else if (str_is(op, "Gelu")) {
        r = onnx_gelu(c, x, str_is(onnx_at_str(c, "approximate", "none"), "tanh"));
    }

    onnx_out_val(c, 0, r);
}

// ---- reductions

ONNX_X(reduce) {
    int64_t axes[HLO_MAX_RANK];
    int n, rank = x->shape->rank;
    bool given, keep = onnx_at_int(c, "keepdims", 1) == 1;
    struct str op = {c->n->op.p + 6, c->n->op.n - 6}; // behind "Reduce"

    onnx_axis_set(c, 1, rank, axes, &n, &given);
    if (!hb_ok(b)) return;
    if (n == 0 && onnx_at_int(c, "noop_with_empty_axes", 0) != 1) // otherwise the rest is done yet
        for (; n < rank; n++)
            axes[n] = n;

    enum dtype t = x->shape->dtype;
    bool roots = str_is(op, "L2") || str_is(op, "LogSum") || str_is(op, "LogSumExp");
    if (roots && dtype_is_int(t)) x = hb_convert(b, x, DT_F64);
    double count = 1;
    for (int k = 0; k < n; k++)
        count *= (double)x->shape->dims[axes[k]];
    count = count > 0 ? count : 1; // the mean of none is 0, as in ONNX Runtime

    if (str_is(op, "Max") || str_is(op, "Min")) {
        if (t == DT_PRED) x = hb_convert(b, x, DT_U8);
        x = onnx_reduce_keep(c, x, axes, n, str_is(op, "Max") ? HLO_MAXIMUM : HLO_MINIMUM, keep);
        return onnx_out_val(c, 0, hb_convert(b, x, t));
    }
    if (str_is(op, "Prod"))
        return onnx_out_val(c, 0, onnx_reduce_keep(c, x, axes, n, HLO_MULTIPLY, keep));

    // Shifted by the maximum, which is taken as 0 where it is not finite.
    if (str_is(op, "LogSumExp")) {
        hv m = onnx_reduce_keep(c, x, axes, n, HLO_MAXIMUM, false);
        m = hb_select(b, hb_unary(b, HLO_IS_FINITE, m), m, scalar_like(c, m, 0));
        hv s = onnx_reduce_keep(
            c, hb_unary(b, HLO_EXP, hb_sub(b, x, onnx_back_to(c, m, x->shape, axes, n))), axes, n,
            HLO_ADD, false);
        hv r = hb_add(b, hb_unary(b, HLO_LOG, s), m);
        int64_t dims[HLO_MAX_RANK];
        for (int d = 0; d < rank; d++)
            dims[d] = i64s_has((struct i64s){axes, n}, d) ? 1 : x->shape->dims[d];
        return onnx_out_val(c, 0, hb_convert(b, keep ? hb_reshape(b, r, dims, rank) : r, t));
    }

    if (str_is(op, "L1")) x = hb_unary(b, HLO_ABS, x);
    if (str_is(op, "L2") || str_is(op, "SumSquare")) x = hb_mul(b, x, x);
    hv r = onnx_reduce_keep(c, x, axes, n, HLO_ADD, keep);
    if (str_is(op, "Mean"))
        r = dtype_is_float(t) ? hb_mul(b, r, scalar_like(c, r, 1 / count))
                              : hb_div(b, r, scalar_like(c, r, count));
    if (str_is(op, "L2")) r = hb_unary(b, HLO_SQRT, r);
    if (str_is(op, "LogSum")) r = hb_unary(b, HLO_LOG, r);
    onnx_out_val(c, 0, hb_convert(b, r, t));
}

// Until opset 12 the input is seen as a matrix [dims before axis, dims from axis on]; from 13 along
// one axis.
ONNX_X(softmax) {
    int rank = x->shape->rank, n = 1;
    int64_t axes[HLO_MAX_RANK];
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", c->opset >= 13 ? -1 : 1), rank);
    if (!hb_ok(b)) return;
    axes[0] = axis;
    if (c->opset < 13)
        for (n = 0; axis + n < rank; n++)
            axes[n] = axis + n;
    hv m = onnx_reduce_keep(c, x, axes, n, HLO_MAXIMUM, false);
    hv d = hb_sub(b, x, onnx_back_to(c, m, x->shape, axes, n));
    hv e = hb_unary(b, HLO_EXP, d);
    hv s = onnx_reduce_keep(c, e, axes, n, HLO_ADD, false);
    if (onnx_op_arg(c))
        onnx_out_val(c, 0,
                     hb_sub(b, d, onnx_back_to(c, hb_unary(b, HLO_LOG, s), x->shape, axes, n)));
    else
        onnx_out_val(c, 0, hb_div(b, e, onnx_back_to(c, s, x->shape, axes, n)));
}

// Sum or product over a growing window: reduce-window with padding on one side.
ONNX_X(cumulative) {
    int64_t axis;
    int n;
    if (!onnx_in_ints(c, 1, &axis, 1, &n) || n != 1) return;
    axis = onnx_axis_of(c, axis, x->shape->rank);
    if (!hb_ok(b)) return;
    bool exclusive = onnx_at_int(c, "exclusive", 0) != 0,
         reverse = onnx_at_int(c, "reverse", 0) != 0;
    enum hlo_op op = (enum hlo_op)onnx_op_arg(c);
    struct window_dim w[HLO_MAX_RANK];
    int64_t size = x->shape->dims[axis];
    for (int d = 0; d < x->shape->rank; d++)
        w[d] = (struct window_dim){1, 1, 0, 0, 1, 1, false};
    w[axis].size = size > 0 ? size : 1;
    w[axis].pad_low = reverse ? -(int64_t)exclusive : size - 1 + exclusive;
    w[axis].pad_high = reverse ? size - 1 + exclusive : -(int64_t)exclusive;
    onnx_out_val(c, 0,
                 hb_reduce_window(b, x, hb_const_f64(b, x->shape->dtype, op == HLO_MULTIPLY),
                                  &(struct window){w, x->shape->rank}, op));
}
