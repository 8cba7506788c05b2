// SPDX-License-Identifier: Apache-2.0
// Rules of elementwise operations: x and y are operands, r the result, d the derivative by it.
#include "compiler/gradient/tape.h"

#include <math.h>

static hv un(struct tape *t, enum hlo_op op, hv x) {
    return hb_unary(t->b, op, x);
}
static hv one_minus(struct tape *t, hv x) {
    return tape_add_k(t, tape_neg(t, x), 1);
}
static hv square(struct tape *t, hv x) {
    return hb_mul(t->b, x, x);
}
static hv part(struct tape *t, enum hlo_op op, hv x) { // real or imaginary
    return dtype_is_complex(x->shape->dtype) ? un(t, op, x) : x;
}
static hv conjugate(struct tape *t, hv x) {
    hv im = tape_neg(t, un(t, HLO_IMAG, x));
    return hb_binary(t->b, HLO_COMPLEX, un(t, HLO_REAL, x), im);
}

// Of |x|: the sign, or for complex numbers the conjugate's direction; 0 at 0.
static hv by_abs(struct tape *t, hv x, hv r, hv d) {
    struct hb *b = t->b;
    if (!dtype_is_complex(x->shape->dtype)) return hb_mul(b, d, un(t, HLO_SIGN, x));
    hv is_0 = hb_compare(b, r, tape_splat(t, r, 0), CMP_EQ);
    hv by = hb_div(b, d, hb_select(b, is_0, tape_splat(t, r, 1), r));
    return hb_mul(b, hb_convert(b, by, x->shape->dtype), conjugate(t, x));
}
// d times a factor of the operand x and the result r. NULL: none.
static hv by_trigonometry(struct tape *t, enum hlo_op op, hv x, hv r, hv d) {
    struct hb *b = t->b;

    switch (op) {
    case HLO_ACOS:
        return tape_neg(t, hb_mul(b, d, un(t, HLO_RSQRT, one_minus(t, square(t, x)))));
    case HLO_ACOSH:
        return hb_mul(b, d,
                      hb_mul(b, un(t, HLO_RSQRT, tape_add_k(t, x, -1)),
                             un(t, HLO_RSQRT, tape_add_k(t, x, 1))));
    case HLO_ASIN:
        return hb_mul(b, d, un(t, HLO_RSQRT, one_minus(t, square(t, x))));
    case HLO_ASINH:
        return hb_mul(b, d, un(t, HLO_RSQRT, tape_add_k(t, square(t, x), 1)));
    case HLO_ATANH:
        return hb_div(b, d, hb_mul(b, tape_add_k(t, x, 1), one_minus(t, x)));
    case HLO_COS:
        return tape_neg(t, hb_mul(b, d, un(t, HLO_SIN, x)));
    case HLO_COSH:
        return hb_mul(b, d, un(t, HLO_SINH, x));
    case HLO_SIN:
        return hb_mul(b, d, un(t, HLO_COS, x));
    case HLO_SINH:
        return hb_mul(b, d, un(t, HLO_COSH, x));
    case HLO_TAN:
        return hb_mul(b, d, tape_add_k(t, square(t, r), 1));
    case HLO_TANH:
        return hb_mul(b, d, one_minus(t, square(t, r)));
    default:
        return NULL;
    }
}
static hv by_unary(struct tape *t, enum hlo_op op, hv x, hv r, hv d) {
    struct hb *b = t->b;

    switch (op) {
    case HLO_ABS:
        return by_abs(t, x, r, d);
    case HLO_CBRT:
        return hb_div(b, d, tape_mul_k(t, square(t, r), 3));
    case HLO_COPY:
    case HLO_CONVERT: // what is given is converted back
        return d;
    case HLO_ERF:
        return hb_mul(
            b, d, tape_mul_k(t, un(t, HLO_EXP, tape_neg(t, square(t, x))), 2 / sqrt(acos(-1.0))));
    case HLO_EXP:
        return hb_mul(b, d, r);
    case HLO_EXPM1:
        return hb_mul(b, d, tape_add_k(t, r, 1));
    case HLO_IMAG:
        if (!dtype_is_complex(x->shape->dtype)) return tape_zeros(t, x->shape);
        return hb_binary(b, HLO_COMPLEX, tape_splat(t, d, 0), tape_neg(t, d));
    case HLO_LOG:
        return hb_div(b, d, x);
    case HLO_LOG1P:
        return hb_div(b, d, tape_add_k(t, x, 1));
    case HLO_LOGISTIC:
        return hb_mul(b, d, hb_mul(b, r, one_minus(t, r)));
    case HLO_NEGATE:
        return tape_neg(t, d);
    case HLO_REAL:
        return d;
    case HLO_RSQRT:
        return hb_mul(b, tape_mul_k(t, d, -0.5), hb_div(b, r, x));
    case HLO_SQRT:
        return hb_div(b, tape_mul_k(t, d, 0.5), r);
    default:
        return by_trigonometry(t, op, x, r, d);
    }
}
void grad_unary(struct tape *t, hv i, hv const *d) {
    hv by = by_unary(t, i->op, i->operands[0], i, d[0]);
    if (by)
        tape_give(t, i->operands[0], by);
    else
        grad_NONE(t, i, d);
}
// The same rounding of the derivative, as JAX has it.
void grad_reduce_precision(struct tape *t, hv i, hv const *d) {
    tape_give(t, i->operands[0], hb_op(t->b, i->op, i->shape, d, 1, i->attr));
}
void grad_sign(struct tape *t, hv i, hv const *d) {
    if (dtype_is_complex(i->shape->dtype)) grad_NONE(t, i, d);
}
void grad_first(struct tape *t, hv i, hv const *d) {
    tape_give(t, i->operands[0], d[0]);
}
void grad_complex(struct tape *t, hv i, hv const *d) {
    tape_give(t, i->operands[0], part(t, HLO_REAL, d[0]));
    tape_give(t, i->operands[1], tape_neg(t, part(t, HLO_IMAG, d[0])));
}

// ---- of two operands

static bool is_constant(const struct hlo_instr *x) {
    while (x->op == HLO_BROADCAST || x->op == HLO_RESHAPE || x->op == HLO_CONVERT)
        x = x->operands[0];
    return x->op == HLO_CONSTANT;
}
// Of a maximum or minimum: all to the one that is the result; halves where both are, or nothing
// where the other is a constant.
void grad_extreme(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    hv x = i->operands[0], y = i->operands[1];
    enum cmp_direction first = i->op == HLO_MAXIMUM ? CMP_GT : CMP_LT;
    if (dtype_is_complex(i->shape->dtype)) return grad_NONE(t, i, d);
    hv tie = is_constant(x) || is_constant(y)
                 ? tape_splat(t, d[0], 0)
                 : tape_where(t, hb_compare(b, x, y, CMP_EQ), tape_mul_k(t, d[0], 0.5));
    tape_give(t, x, hb_select(b, hb_compare(b, x, y, first), d[0], tie));
    tape_give(t, y, hb_select(b, hb_compare(b, y, x, first), d[0], tie));
}
// y x^(y-1), nothing where y is 0; x^y log x, nothing where x is 0.
static void by_power(struct tape *t, hv i, hv d) {
    struct hb *b = t->b;
    hv x = i->operands[0], y = i->operands[1];
    if (tape_wants(t, x)) {
        hv no = hb_compare(b, y, tape_splat(t, y, 0), CMP_EQ);
        hv less = hb_select(b, no, tape_splat(t, y, 1), tape_add_k(t, y, -1));
        tape_give(t, x, hb_mul(b, d, hb_mul(b, y, hb_binary(b, HLO_POWER, x, less))));
    }
    if (tape_wants(t, y)) {
        hv no = hb_compare(b, x, tape_splat(t, x, 0), CMP_EQ);
        hv log = un(t, HLO_LOG, hb_select(b, no, tape_splat(t, x, 1), x));
        tape_give(t, y, hb_mul(b, d, hb_mul(b, i, log)));
    }
}
// x - y trunc(x / y)
static void by_remainder(struct tape *t, hv i, hv d) {
    struct hb *b = t->b;
    hv x = i->operands[0], y = i->operands[1], q = hb_div(b, x, y);
    hv whole = hb_mul(b, un(t, HLO_SIGN, q), un(t, HLO_FLOOR, un(t, HLO_ABS, q)));
    tape_give(t, x, d);
    tape_give(t, y, tape_neg(t, hb_mul(b, d, whole)));
}
static void by_atan2(struct tape *t, hv i, hv d) {
    struct hb *b = t->b;
    hv y = i->operands[0], x = i->operands[1];
    hv by = hb_div(b, d, hb_add(b, square(t, x), square(t, y)));
    tape_give(t, y, hb_mul(b, by, x));
    tape_give(t, x, tape_neg(t, hb_mul(b, by, y)));
}
void grad_binary(struct tape *t, hv i, hv const *ds) {
    struct hb *b = t->b;
    hv x = i->operands[0], y = i->operands[1], d = ds[0], by;

    switch (i->op) {
    case HLO_ADD:
        tape_give(t, x, d);
        tape_give(t, y, d);
        break;
    case HLO_ATAN2:
        by_atan2(t, i, d);
        break;
    case HLO_DIVIDE:
        by = hb_div(b, d, y);
        tape_give(t, x, by);
        if (tape_wants(t, y)) tape_give(t, y, tape_neg(t, hb_mul(b, by, i)));
        break;
    case HLO_MULTIPLY:
        if (tape_wants(t, x)) tape_give(t, x, hb_mul(b, d, y));
        if (tape_wants(t, y)) tape_give(t, y, hb_mul(b, d, x));
        break;
    case HLO_POWER:
        by_power(t, i, d);
        break;
    case HLO_REMAINDER:
        by_remainder(t, i, d);
        break;
    case HLO_SUBTRACT:
        tape_give(t, x, d);
        if (tape_wants(t, y)) tape_give(t, y, tape_neg(t, d));
        break;
    default:
        grad_NONE(t, i, ds);
    }
}

// ---- of three

// To the operand, or to a bound that is wide or a scalar.
static void give_narrow(struct tape *t, hv x, hv d) {
    if (tape_wants(t, x)) tape_give(t, x, x->shape->rank ? d : tape_sum_all(t, d));
}
void grad_clamp(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    hv x = i->operands[1], lo = tape_widen(t, i->operands[0], x->shape),
       hi = tape_widen(t, i->operands[2], x->shape);
    hv below = hb_compare(b, x, lo, CMP_LT), above = hb_compare(b, x, hi, CMP_GT);
    hv high = hb_compare(b, lo, hi, CMP_GT); // then the upper bound is what comes out
    above = hb_binary(b, HLO_OR, above, high);
    below = hb_binary(b, HLO_AND, below, hb_unary(b, HLO_NOT, above));
    tape_give(t, x, tape_where_not(t, hb_binary(b, HLO_OR, below, above), d[0]));
    give_narrow(t, i->operands[0], tape_where(t, below, d[0]));
    give_narrow(t, i->operands[2], tape_where(t, above, d[0]));
}
void grad_select(struct tape *t, hv i, hv const *d) {
    hv p = i->operands[0], x = i->operands[1], y = i->operands[2];
    if (tape_wants(t, x)) tape_give(t, x, tape_where(t, p, d[0]));
    if (tape_wants(t, y)) tape_give(t, y, tape_where_not(t, p, d[0]));
}
