// SPDX-License-Identifier: Apache-2.0
// Rules of arithmetic. Values stay the same bit for bit, but where the table says "not strict".
#include <math.h>

#include "compiler/passes/rules.h"

#define RULE_FN(name) struct hlo_instr *rule_##name(struct rule_ctx *r, struct hlo_instr *i)
#define UNUSED        (void)r

RULE_FN(add_zero) {
    UNUSED;
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
    UNUSED;
    double v;
    struct hlo_instr *x = i->op == HLO_MULTIPLY ? match_with_splat(i, &v) : NULL;
    return x && v == 1 ? x : NULL;
}
RULE_FN(div_one) {
    UNUSED;
    return i->op == HLO_DIVIDE && match_splat_is(i->operands[1], 1) ? i->operands[0] : NULL;
}
RULE_FN(div_by_constant) {
    double v;
    int e;
    if (i->op != HLO_DIVIDE || !dtype_is_float(i->shape->dtype) ||
        !match_splat(i->operands[1], &v) || v == 0 || !isfinite(v))
        return NULL;
    bool exact = fabs(frexp(v, &e)) == 0.5;
    if ((!exact && r->strict) || !isnormal((float)(1 / v))) return NULL;
    if (i->shape->dtype == DT_F16 && (fabs(v) < 0x1p-14 || fabs(v) > 0x1p14)) return NULL;
    return hb_mul(&r->b, i->operands[0], hb_splat(&r->b, i->shape, 1 / v));
}
RULE_FN(mul_zero_int) {
    double v;
    struct hlo_instr *x =
        i->op == HLO_MULTIPLY && dtype_is_int(i->shape->dtype) ? match_with_splat(i, &v) : NULL;
    return x && v == 0 ? hb_splat(&r->b, i->shape, 0) : NULL;
}
RULE_FN(double_negate) {
    UNUSED;
    return i->op == HLO_NEGATE && i->operands[0]->op == HLO_NEGATE ? i->operands[0]->operands[0]
                                                                   : NULL;
}
RULE_FN(not_not) {
    UNUSED;
    return i->op == HLO_NOT && i->operands[0]->op == HLO_NOT ? i->operands[0]->operands[0] : NULL;
}
RULE_FN(power_two) {
    double v;
    if (i->op != HLO_POWER || !match_splat(i->operands[1], &v)) return NULL;
    return v == 2 ? hb_mul(&r->b, i->operands[0], i->operands[0]) : v == 1 ? i->operands[0] : NULL;
}
RULE_FN(power_half) {
    if (i->op != HLO_POWER || r->strict || !match_splat_is(i->operands[1], 0.5)) return NULL;
    return hb_unary(&r->b, HLO_SQRT, i->operands[0]);
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
    UNUSED;
    double v;
    return i->op == HLO_SELECT && match_splat(i->operands[0], &v) ? i->operands[v != 0 ? 1 : 2]
                                                                  : NULL;
}
RULE_FN(select_same) {
    UNUSED;
    return i->op == HLO_SELECT && i->operands[1] == i->operands[2] ? i->operands[1] : NULL;
}
