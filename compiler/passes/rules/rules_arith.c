// SPDX-License-Identifier: Apache-2.0
// Rules of arithmetic. Values stay the same (0 equals -0), but where the table says "not strict".
#include <math.h>

#include "compiler/passes/rules/rules.h"

RULE_FN(add_zero) {
    double v;
    struct hlo_instr *x = i->op == HLO_ADD ? match_with_splat(i, &v) : NULL;
    // x + 0 turns -0 into 0; that one bit is given up, as XLA does, except for strict.
    return x && v == 0 && (!dtype_is_float(i->shape->dtype) || signbit(v) || !r->strict) ? x : NULL;
}
RULE_FN(sub_zero) {
    double v;
    bool zero = i->op == HLO_SUBTRACT && match_splat(i->operands[1], &v) && v == 0;
    // x - (-0) turns -0 into 0, as x + 0 does.
    return zero && (!dtype_is_float(i->shape->dtype) || !signbit(v) || !r->strict) ? i->operands[0]
                                                                                   : NULL;
}
RULE_FN(mul_one) {
    double v;
    struct hlo_instr *x = i->op == HLO_MULTIPLY ? match_with_splat(i, &v) : NULL;
    return x && v == 1 ? x : NULL;
}
RULE_FN(div_one) {
    return i->op == HLO_DIVIDE && match_splat_is(i->operands[1], 1) ? i->operands[0] : NULL;
}
// Whether u hands on the last bit of its operand x. Few operands each, so that all divisions of a
// module together look at few users.
static bool hands_on(const struct hlo_instr *u, const struct hlo_instr *x) {
    switch (u->op) {
    case HLO_CONVERT:
    case HLO_ABS:
    case HLO_ADD:
    case HLO_BROADCAST:
    case HLO_CLAMP:
    case HLO_MAXIMUM:
    case HLO_MINIMUM:
    case HLO_MULTIPLY:
    case HLO_NEGATE:
    case HLO_RESHAPE:
    case HLO_SLICE:
    case HLO_SUBTRACT:
    case HLO_TRANSPOSE:
        return true;
    case HLO_SELECT:
        return u->operands[0] != x;
    default:
        return false;
    }
}
// Is the value rounded soon after, or compared? Then the last bit of a quotient decides: values
// that a quantiser rounds lie on ties by design, and 21 / 7 is 3, so such a division stays a
// division. shifted: by one value for all, so that what becomes of 21 / 7 - 3 is its sign.
static bool is_rounded(const struct hlo_instr *x, int depth, bool shifted) {
    double v;
    for (size_t k = 0; k < x->users.n; k++) {
        const struct hlo_instr *u = x->users.v[k];
        bool real = dtype_is_float(u->shape->dtype) && dtype_size(u->shape->dtype) > 1,
             moved = shifted;
        switch (u->op) {
        case HLO_ROUND_EVEN:
        case HLO_ROUND_AFZ:
        case HLO_FLOOR:
        case HLO_CEIL:
        case HLO_REMAINDER:
            return true;
        case HLO_CONVERT:
            if (!real) return true;
            break;
        case HLO_SIGN:
            if (shifted) return true;
            break;
        case HLO_COMPARE: // with 0 the sign alone counts
            if (shifted || !match_splat(u->operands[u->operands[0] == x], &v) || v != 0)
                return true;
            break;
        case HLO_ADD:
        case HLO_SUBTRACT:
            moved |= match_splat(u->operands[u->operands[0] == x], &v) && v != 0;
            break;
        default:
            break;
        }

        if (depth > 0 && hands_on(u, x) && is_rounded(u, depth - 1, moved)) return true;
    }
    return false;
}
// Has type t the power of two v as a normal number?
static bool holds(enum dtype t, double v) {
    struct arena a = {0};
    bool same = lit_get_f64(lit_scalar_f64(&a, t, v), 0) == v;
    arena_done(&a);
    return same && fabs(v) >= ldexp(1, float_least(t));
}
// Floats of fewer than 32 bits have a rounded reciprocal too far off: with that of f8e5m2 almost
// half of all quotients by 3 are other numbers.
RULE_FN(div_by_constant) {
    double v;
    int e;
    if (i->op != HLO_DIVIDE || !dtype_is_float(i->shape->dtype) ||
        !match_splat(i->operands[1], &v) || v == 0 || !isfinite(v))
        return NULL;
    bool exact = fabs(frexp(v, &e)) == 0.5;
    if (dtype_bits(i->shape->dtype) < 32 && !(exact && holds(i->shape->dtype, 1 / v))) return NULL;
    bool one = shape_elements(i->shape) == 1; // nothing is gained; it may be a quantiser's scale
    if ((!exact && (r->strict || one || is_rounded(i, 4, false))) || !isnormal((float)(1 / v)))
        return NULL;
    return hb_mul(&r->b, i->operands[0], hb_splat(&r->b, i->shape, 1 / v));
}
RULE_FN(mul_zero_int) {
    double v;
    struct hlo_instr *x =
        i->op == HLO_MULTIPLY && dtype_is_int(i->shape->dtype) ? match_with_splat(i, &v) : NULL;
    return x && v == 0 ? hb_splat(&r->b, i->shape, 0) : NULL;
}
RULE_FN(double_negate) {
    return i->op == HLO_NEGATE && i->operands[0]->op == HLO_NEGATE ? i->operands[0]->operands[0]
                                                                   : NULL;
}
RULE_FN(not_not) {
    return i->op == HLO_NOT && i->operands[0]->op == HLO_NOT ? i->operands[0]->operands[0] : NULL;
}
RULE_FN(power_two) {
    double v;
    if (i->op != HLO_POWER || !match_splat(i->operands[1], &v)) return NULL;
    return v == 2 ? hb_mul(&r->b, i->operands[0], i->operands[0]) : v == 1 ? i->operands[0] : NULL;
}
// Is no element below zero, nor -0? NaN may be there.
static bool never_negative(const struct hlo_instr *x, int depth) {
    double v;
    if (match_splat(x, &v)) return v >= 0 && !signbit(v);
    switch (x->op) {
    case HLO_ABS:
    case HLO_EXP:
    case HLO_LOGISTIC:
        return true;
    case HLO_MULTIPLY:
        if (x->operands[0] == x->operands[1]) return true;
        break;
    case HLO_ADD:
    case HLO_DIVIDE:
    case HLO_MAXIMUM:
    case HLO_MINIMUM:
    case HLO_BROADCAST:
    case HLO_RESHAPE:
    case HLO_TRANSPOSE:
    case HLO_SLICE:
    case HLO_SQRT:
        break;
    case HLO_REDUCE: {
        enum hlo_op by;
        if (x->n_operands != 2 || !hlo_reducer_op(x->called[0], &by) ||
            (by != HLO_ADD && by != HLO_MAXIMUM))
            return false;
        break;
    }
    default:
        return false;
    }

    for (int k = 0; k < x->n_operands; k++)
        if (depth == 0 || !never_negative(x->operands[k], depth - 1)) return false;
    return true;
}
// x ^ 0.5 by sqrt, x ^ -0.5 by rsqrt: where IEEE 754's pow differs from these, of -inf and -0, it
// gives what it gives of inf and 0.
static struct hlo_instr *power_by_root(struct rule_ctx *r, enum hlo_op root, struct hlo_instr *x) {
    struct hlo_instr *y = hb_unary(&r->b, root, x);
    if (!dtype_is_float(x->shape->dtype) || never_negative(x, 6)) return y;
    struct hlo_instr *below =
        hb_compare(&r->b, x, hb_splat(&r->b, x->shape, -(double)INFINITY), CMP_EQ);
    double limit = root == HLO_SQRT ? (double)INFINITY : 0;
    return hb_select(&r->b, below, hb_splat(&r->b, x->shape, limit), hb_unary(&r->b, HLO_ABS, y));
}
RULE_FN(power_half) {
    if (i->op != HLO_POWER || r->strict || !match_splat_is(i->operands[1], 0.5)) return NULL;
    return power_by_root(r, HLO_SQRT, i->operands[0]);
}
RULE_FN(sqrt_rsqrt) {
    if (i->op != HLO_DIVIDE || r->strict || i->operands[1]->op != HLO_SQRT ||
        !match_splat_is(i->operands[0], 1))
        return NULL;
    return hb_unary(&r->b, HLO_RSQRT, i->operands[1]->operands[0]);
}
RULE_FN(max_min_to_clamp) {
    double lo, hi;
    if (dtype_is_int(i->shape->dtype)) return NULL; // a bound may not fit a double
    struct hlo_instr *m = i->op == HLO_MINIMUM ? match_with_splat(i, &hi) : NULL;
    struct hlo_instr *x =
        m && m->op == HLO_MAXIMUM && m->users.n == 1 ? match_with_splat(m, &lo) : NULL;
    if (!x || !(lo <= hi)) return NULL;
    return hb_clamp(&r->b, hb_const_f64(&r->b, i->shape->dtype, lo), x,
                    hb_const_f64(&r->b, i->shape->dtype, hi));
}
RULE_FN(select_constant) {
    double v;
    return i->op == HLO_SELECT && match_splat(i->operands[0], &v) ? i->operands[v != 0 ? 1 : 2]
                                                                  : NULL;
}
RULE_FN(select_same) {
    return i->op == HLO_SELECT && i->operands[1] == i->operands[2] ? i->operands[1] : NULL;
}

static bool commutes(enum hlo_op op) {
    return (hlo_op_info(op)->traits & HLO_T_COMM) != 0;
}
RULE_FN(constant_right) {
    double v;
    if (!commutes(i->op) || !match_splat(i->operands[0], &v) || match_splat(i->operands[1], &v))
        return NULL;
    return hb_binary(&r->b, i->op, i->operands[1], i->operands[0]);
}
static struct hlo_instr *spread(struct rule_ctx *r, struct hlo_instr *scalar,
                                const struct shape *s) {
    return s->rank ? hb_broadcast(&r->b, scalar, s->dims, s->rank, NULL) : scalar;
}
// May constants v and w of sums or products be one? Of floats of 32 bits and more (narrower ones
// are computed in these, or rounded too far off), where what they make is neither too large nor too
// small for the type: x * 1e20 * 1e20 is finite for small x.
static bool combine(const struct hlo_instr *i, double v, double w) {
    enum dtype t = i->shape->dtype;
    double c = i->op == HLO_ADD ? v + w : v * w;
    if (!dtype_is_float(t)) return true;
    bool normal = t == DT_F64 ? isnormal(c) : isnormal((float)c);
    return dtype_bits(t) >= 32 && (normal || (c == 0 && (i->op == HLO_ADD || v == 0 || w == 0)));
}
RULE_FN(combine_constants) {
    double v, w;
    bool rounds = i->op == HLO_ADD || i->op == HLO_MULTIPLY;
    if (!commutes(i->op) || (rounds && !dtype_is_int(i->shape->dtype) && r->strict) ||
        !match_splat(i->operands[1], &v))
        return NULL;
    struct hlo_instr *x = i->operands[0];
    if (x->op != i->op || x->users.n != 1 || !match_splat(x->operands[1], &w)) return NULL;
    if (rounds && !combine(i, v, w)) return NULL;
    struct hlo_instr *c =
        hb_binary(&r->b, i->op, match_scalar(x->operands[1]), match_scalar(i->operands[1]));
    return hb_binary(&r->b, i->op, x->operands[0], spread(r, c, i->shape));
}
RULE_FN(negate_into) {
    if (i->n_operands != 2) return NULL;
    struct hlo_instr *x = i->operands[0], *y = i->operands[1];
    bool nx = x->op == HLO_NEGATE, ny = y->op == HLO_NEGATE;
    if ((i->op == HLO_MULTIPLY || i->op == HLO_DIVIDE) && nx && ny) {
        if (i->op == HLO_DIVIDE && !dtype_is_float(i->shape->dtype)) return NULL; // -MIN / -1
        return hb_binary(&r->b, i->op, x->operands[0], y->operands[0]);
    }
    if (i->op == HLO_ADD && ny) return hb_sub(&r->b, x, y->operands[0]);
    if (i->op == HLO_ADD && nx) return hb_sub(&r->b, y, x->operands[0]);
    if (i->op == HLO_SUBTRACT && ny) return hb_add(&r->b, x, y->operands[0]);
    return NULL;
}
RULE_FN(sub_self) {
    bool same = i->op == HLO_SUBTRACT && i->operands[0] == i->operands[1];
    return same && dtype_is_int(i->shape->dtype) ? hb_splat(&r->b, i->shape, 0) : NULL;
}
RULE_FN(same_operands) {
    bool kind = i->op == HLO_MAXIMUM || i->op == HLO_MINIMUM || i->op == HLO_AND || i->op == HLO_OR;
    return kind && i->operands[0] == i->operands[1] ? i->operands[0] : NULL;
}
RULE_FN(abs_of) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_ABS || !dtype_is_float(x->shape->dtype)) return NULL;
    if (x->op == HLO_NEGATE) return hb_unary(&r->b, HLO_ABS, x->operands[0]);
    return x->op == HLO_ABS || (x->op == HLO_MULTIPLY && x->operands[0] == x->operands[1]) ? x
                                                                                           : NULL;
}
RULE_FN(power_integer) {
    double v;
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_POWER || !dtype_is_float(i->shape->dtype) || !match_splat(i->operands[1], &v))
        return NULL;
    bool narrow = dtype_bits(i->shape->dtype) < 16; // each product would be rounded
    if (v == 0) return hb_splat(&r->b, i->shape, 1);
    if (r->strict) return NULL;
    if (v == 3) return narrow ? NULL : hb_mul(&r->b, hb_mul(&r->b, x, x), x);
    if (v == -1) return hb_div(&r->b, hb_splat(&r->b, i->shape, 1), x);
    return v == -0.5 ? power_by_root(r, HLO_RSQRT, x) : NULL;
}
// One division for each element of y instead of each of x: the scale of a layer norm, the sum of a
// softmax.
RULE_FN(div_broadcast) {
    double v;
    struct hlo_instr *y = i->op == HLO_DIVIDE ? i->operands[1] : NULL;
    if (!y || r->strict || y->op != HLO_BROADCAST || match_splat(y, &v) ||
        (i->shape->dtype != DT_F32 && i->shape->dtype != DT_F64) ||
        shape_elements(y->operands[0]->shape) * 2 > shape_elements(i->shape) ||
        is_rounded(i, 4, false))
        return NULL;
    struct hlo_instr *d = y->operands[0], *one = hb_splat(&r->b, d->shape, 1);
    return hb_mul(&r->b, i->operands[0],
                  hb_broadcast(&r->b, hb_div(&r->b, one, d), i->shape->dims, i->shape->rank,
                               HLO_ATTR(y, dims)->dimensions.v));
}
RULE_FN(log_exp) {
    bool both = i->op == HLO_LOG && i->operands[0]->op == HLO_EXP;
    return both && !r->strict && dtype_is_float(i->shape->dtype) ? i->operands[0]->operands[0]
                                                                 : NULL;
}
// Of f32 and f64: the exponential of a shorter float is rounded first, and its power with it.
RULE_FN(power_exp) {
    const struct hlo_instr *e = i->operands[0];
    if (i->op != HLO_POWER || r->strict || e->op != HLO_EXP || e->users.n != 1 ||
        (i->shape->dtype != DT_F32 && i->shape->dtype != DT_F64))
        return NULL;
    return hb_unary(&r->b, HLO_EXP, hb_mul(&r->b, e->operands[0], i->operands[1]));
}
RULE_FN(logistic_form) {
    double v;
    if (i->op != HLO_DIVIDE || r->strict || !dtype_is_float(i->shape->dtype) ||
        !match_splat_is(i->operands[0], 1) || i->operands[1]->op != HLO_ADD)
        return NULL;
    struct hlo_instr *e = match_with_splat(i->operands[1], &v);
    if (!e || v != 1 || e->op != HLO_EXP || e->operands[0]->op != HLO_NEGATE) return NULL;
    return hb_unary(&r->b, HLO_LOGISTIC, e->operands[0]->operands[0]);
}
// x * g + (offset - mean * g) with g = scale / sqrt(variance + epsilon): all but two operations are
// on vectors, which depend on weights alone.
RULE_FN(batch_norm_expand) {
    if (i->op != HLO_BATCH_NORM_INFERENCE || r->strict) return NULL;
    const struct hlo_attr_batchnorm *a = HLO_ATTR(i, batchnorm);
    hv in[5]; // x, scale, offset, mean, variance: their types may differ
    for (int k = 0; k < 5; k++)
        in[k] = hb_convert(&r->b, i->operands[k], i->shape->dtype);
    if (!hb_ok(&r->b)) return NULL;
    hv eps = hb_splat(&r->b, in[4]->shape, (double)a->epsilon),
       g = hb_mul(&r->b, in[1], hb_unary(&r->b, HLO_RSQRT, hb_add(&r->b, in[4], eps))),
       t = hb_sub(&r->b, in[2], hb_mul(&r->b, in[3], g));
    int64_t d = a->feature_index;
    return hb_add(&r->b,
                  hb_mul(&r->b, in[0], hb_broadcast(&r->b, g, i->shape->dims, i->shape->rank, &d)),
                  hb_broadcast(&r->b, t, i->shape->dims, i->shape->rank, &d));
}
