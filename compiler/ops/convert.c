// SPDX-License-Identifier: Apache-2.0
// Evaluation of type changes, comparison, clamp, select and precision reduction.
#include <math.h>

#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"

EVAL(CONVERT) {
    RETURN_IF_ERR(hlo_eval_charge(ev, i->shape));
    struct literal *r = lit_convert(ev->arena, in[0], i->shape->dtype);
    *out = r;
    return ST_OK;
}
// Bits of elements one after the other; those below a byte lie in one each, sign-extended.
static void copy_bits(const struct literal *from, struct literal *to) {
    int have = dtype_bits(from->shape->dtype), want = dtype_bits(to->shape->dtype);
    int64_t n = shape_elements(to->shape) * want;
    const uint8_t *x = from->data;
    uint8_t *y = to->data;
    for (int64_t b = 0; b < n; b++) {
        int64_t p = have < 8 ? b / have * 8 + b % have : b,
                q = want < 8 ? b / want * 8 + b % want : b;
        y[q / 8] |= (uint8_t)((x[p / 8] >> p % 8 & 1) << q % 8);
    }
    bool negative = want < 8 && dtype_class(to->shape->dtype) == DC_SIGNED;
    for (int64_t k = 0; negative && k < n / want; k++)
        if (y[k] >> (want - 1)) y[k] |= (uint8_t)(0xFF << want);
}
EVAL(BITCAST_CONVERT) {
    enum dtype from = in[0]->shape->dtype, to = i->shape->dtype;
    if (from == to || (dtype_bits(from) >= 8 && dtype_bits(to) >= 8)) {
        *out = lit_borrow(ev->arena, i->shape, in[0]->data);
        return ST_OK;
    }
    NEW_RESULT(r);
    copy_bits(in[0], r);
    return ST_OK;
}

// Total order of floats (IEEE 754 totalOrder): the bits as sign-magnitude made two's complement.
static int64_t total_order(const struct literal *l, int64_t k) {
    double v = lit_get_f64(l, k);
    int64_t b;
    if (isnan(v)) v = signbit(v) ? -(double)NAN : (double)NAN;
    memcpy(&b, &v, sizeof b);
    return b < 0 ? (int64_t)(INT64_MIN + ~b) : b;
}
int hlo_literal_order(const struct literal *l, int64_t a, int64_t b) {
    if (dtype_is_float(l->shape->dtype)) {
        int64_t x = total_order(l, a), y = total_order(l, b);
        return (x > y) - (x < y);
    }
    int64_t bias = l->shape->dtype == DT_U64 ? INT64_MIN : 0; // makes unsigned order signed
    int64_t x = lit_get_i64(l, a) ^ bias, y = lit_get_i64(l, b) ^ bias;
    return (x > y) - (x < y);
}
#define COMPARE(d, x, y)                                                                           \
    ((d) == CMP_EQ   ? (x) == (y)                                                                  \
     : (d) == CMP_NE ? (x) != (y)                                                                  \
     : (d) == CMP_GE ? (x) >= (y)                                                                  \
     : (d) == CMP_GT ? (x) > (y)                                                                   \
     : (d) == CMP_LE ? (x) <= (y)                                                                  \
                     : (x) < (y))

EVAL(COMPARE) {
    NEW_RESULT(r);
    enum cmp_direction d = HLO_ATTR(i, compare)->direction;
    bool total = HLO_ATTR(i, compare)->type == CMPT_TOTALORDER;
    enum dtype t = in[0]->shape->dtype;

    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++) {
        bool v;
        if (dtype_is_complex(t)) {
            double x[2], y[2];
            lit_get_c128(in[0], k, x);
            lit_get_c128(in[1], k, y);
            bool same = x[0] == y[0] && x[1] == y[1];
            if (d != CMP_EQ && d != CMP_NE)
                return st_invalid("instruction '%s': complex numbers have no order", i->name);
            v = same == (d == CMP_EQ);
        } else if (dtype_is_float(t)) {
            if (total) {
                int64_t x = total_order(in[0], k), y = total_order(in[1], k);
                v = COMPARE(d, x, y);
            } else {
                double x = lit_get_f64(in[0], k), y = lit_get_f64(in[1], k);
                v = COMPARE(d, x, y);
            }
        } else if (t == DT_U64) {
            uint64_t x = (uint64_t)lit_get_i64(in[0], k), y = (uint64_t)lit_get_i64(in[1], k);
            v = COMPARE(d, x, y);
        } else {
            int64_t x = lit_get_i64(in[0], k), y = lit_get_i64(in[1], k);
            v = COMPARE(d, x, y);
        }
        lit_set_i64(r, k, v);
    }

    return ST_OK;
}

EVAL(SELECT) {
    if (shape_is_tuple(i->shape)) {
        *out = lit_get_i64(in[0], 0) ? in[1] : in[2];
        return ST_OK;
    }
    NEW_RESULT(r);
    bool scalar = in[0]->shape->rank == 0;
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++)
        element_copy(r, k, lit_get_i64(in[0], scalar ? 0 : k) ? in[1] : in[2], k);
    return ST_OK;
}

// min(max(lo, x), hi); NaN anywhere gives NaN.
EVAL(CLAMP) {
    NEW_RESULT(r);
    bool f = dtype_is_float(r->shape->dtype), u64 = r->shape->dtype == DT_U64;
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++) {
        int64_t l = in[0]->shape->rank ? k : 0, h = in[2]->shape->rank ? k : 0;
        if (f) {
            double lo = lit_get_f64(in[0], l), x = lit_get_f64(in[1], k),
                   hi = lit_get_f64(in[2], h);
            lit_set_f64(r, k,
                        isnan(x) || isnan(lo) || isnan(hi) ? (double)NAN : fmin(fmax(lo, x), hi));
        } else {
            int64_t bias = u64 ? INT64_MIN : 0; // makes unsigned order signed
            int64_t lo = lit_get_i64(in[0], l) ^ bias, x = lit_get_i64(in[1], k) ^ bias,
                    hi = lit_get_i64(in[2], h) ^ bias;
            x = x < lo ? lo : x;
            lit_set_i64(r, k, (x > hi ? hi : x) ^ bias);
        }
    }
    return ST_OK;
}

// Rounds to e exponent and m mantissa bits, to nearest even; below the smallest normal number of
// a narrower exponent goes to signed zero, above its largest to infinity. Numbers of the own type
// below its smallest normal one, 2^least, lose the same bits as that.
static double reduce_precision(double v, int64_t e, int64_t m, int least) {
    if (!isfinite(v) || v == 0) return isnan(v) && m == 0 ? (double)INFINITY : v;
    int exp, bias = (1 << (e - 1)) - 1;
    frexp(v, &exp);
    if (exp <= least) exp = least + 1;
    double q = ldexp(v, (int)m + 1 - exp), r = ldexp(rint(q), exp - 1 - (int)m);
    // Without mantissa bits the last bit that is kept is the exponent's, whose bias is odd.
    if (m == 0 && fabs(q) == 1.5 && exp % 2 == 0) r = copysign(ldexp(1, exp - 1), v);
    if (1 - bias <= least) return r;
    frexp(r, &exp);
    if (exp - 1 > bias) return copysign((double)INFINITY, v);
    return exp - 1 < 1 - bias ? copysign(0, v) : r;
}
EVAL(REDUCE_PRECISION) {
    NEW_RESULT(r);
    int64_t e = HLO_ATTR(i, redprec)->exponent_bits, m = HLO_ATTR(i, redprec)->mantissa_bits;
    if (e < 1 || e > 11 || m < 0 || m > 52)
        return st_invalid("instruction '%s': %lld exponent and %lld mantissa bits", i->name,
                          (long long)e, (long long)m);
    int least = float_least(i->shape->dtype);
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++)
        lit_set_f64(r, k, reduce_precision(lit_get_f64(in[0], k), e, m, least));
    return ST_OK;
}

// Floats to integers: away from zero with the probability of the fraction (the random number,
// read as a fraction, lies below it), else toward zero.
EVAL(STOCHASTIC_CONVERT) {
    enum dtype to = i->shape->dtype, from = in[0]->shape->dtype;
    if (!dtype_is_int(to) || !dtype_is_float(from))
        return st_unimplemented("instruction '%s': stochastic-convert of %s to %s", i->name,
                                dtype_name(from), dtype_name(to));
    NEW_RESULT(r);
    double unit = ldexp(1, -dtype_bits(in[1]->shape->dtype));
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++) {
        double v = lit_get_f64(in[0], k), whole = trunc(v);
        double random = (double)(uint64_t)lit_get_i64(in[1], k) * unit;
        lit_set_f64(r, k, isfinite(v) && random < fabs(v - whole) ? whole + copysign(1, v) : v);
    }
    return ST_OK;
}
