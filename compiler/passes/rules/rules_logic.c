// SPDX-License-Identifier: Apache-2.0
// Rules of predicates, bits, comparisons and conversions. All are exact.
#include <math.h>

#include "compiler/passes/rules/rules.h"

static bool logical(enum dtype t) {
    return t == DT_PRED || dtype_is_int(t);
}
RULE_FN(and_or_constant) {
    double v;
    enum dtype t = i->shape->dtype;
    struct hlo_instr *x =
        (i->op == HLO_AND || i->op == HLO_OR) && logical(t) ? match_with_splat(i, &v) : NULL;
    if (!x) return NULL;
    bool ones = t == DT_PRED ? v == 1 : dtype_class(t) == DC_SIGNED && v == -1;
    if (v == 0) return i->op == HLO_OR ? x : hb_splat(&r->b, i->shape, 0);
    return !ones ? NULL : i->op == HLO_AND ? x : hb_splat(&r->b, i->shape, t == DT_PRED ? 1 : -1);
}
RULE_FN(xor_shift_zero) {
    double v;
    bool shift = i->op == HLO_SHIFT_LEFT || i->op == HLO_SHIFT_RIGHT_ARITH ||
                 i->op == HLO_SHIFT_RIGHT_LOGICAL;
    if (shift) return match_splat_is(i->operands[1], 0) ? i->operands[0] : NULL;
    struct hlo_instr *x =
        i->op == HLO_XOR && logical(i->shape->dtype) ? match_with_splat(i, &v) : NULL;
    if (!x) return NULL;
    if (v == 0) return x;
    return i->shape->dtype == DT_PRED ? hb_unary(&r->b, HLO_NOT, x) : NULL;
}
RULE_FN(compare_same) {
    if (i->op != HLO_COMPARE || i->operands[0] != i->operands[1] ||
        !logical(i->operands[0]->shape->dtype))
        return NULL;
    enum cmp_direction d = HLO_ATTR(i, compare)->direction;
    return hb_splat(&r->b, i->shape, d == CMP_EQ || d == CMP_LE || d == CMP_GE);
}
RULE_FN(not_compare) {
    static const enum cmp_direction opposite[] = {
        [CMP_EQ] = CMP_NE, [CMP_NE] = CMP_EQ, [CMP_GE] = CMP_LT,
        [CMP_GT] = CMP_LE, [CMP_LE] = CMP_GT, [CMP_LT] = CMP_GE};
    struct hlo_instr *c = i->operands[0];
    if (i->op != HLO_NOT || c->op != HLO_COMPARE || c->users.n != 1) return NULL;
    struct hlo_attr_compare a = *HLO_ATTR(c, compare);
    bool equality = a.direction == CMP_EQ || a.direction == CMP_NE;
    if (!equality && !logical(c->operands[0]->shape->dtype)) return NULL; // NaN is not ordered
    a.direction = opposite[a.direction];
    return hb_op(&r->b, HLO_COMPARE, NULL, c->operands, 2, &a);
}
RULE_FN(select_not) {
    if (i->op != HLO_SELECT || i->operands[0]->op != HLO_NOT) return NULL;
    return hb_select(&r->b, i->operands[0]->operands[0], i->operands[2], i->operands[1]);
}
RULE_FN(select_pred) {
    double t, f;
    if (i->op != HLO_SELECT || i->shape->dtype != DT_PRED || !match_splat(i->operands[1], &t) ||
        !match_splat(i->operands[2], &f) || t == f ||
        !shape_same_dims(i->operands[0]->shape, i->shape))
        return NULL;
    return t != 0 ? i->operands[0] : hb_unary(&r->b, HLO_NOT, i->operands[0]);
}
RULE_FN(unsigned_power_two) {
    double v;
    int e;
    if ((i->op != HLO_DIVIDE && i->op != HLO_REMAINDER) ||
        dtype_class(i->shape->dtype) != DC_UNSIGNED || !match_splat(i->operands[1], &v) || v < 1 ||
        frexp(v, &e) != 0.5)
        return NULL;
    if (i->op == HLO_REMAINDER)
        return e > 52 ? NULL
                      : hb_binary(&r->b, HLO_AND, i->operands[0], hb_splat(&r->b, i->shape, v - 1));
    return hb_binary(&r->b, HLO_SHIFT_RIGHT_LOGICAL, i->operands[0],
                     hb_splat(&r->b, i->shape, e - 1));
}
RULE_FN(real_of_complex) {
    if ((i->op != HLO_REAL && i->op != HLO_IMAG) || i->operands[0]->op != HLO_COMPLEX) return NULL;
    return i->operands[0]->operands[i->op == HLO_IMAG];
}
// Does every value of `from` stand in `to` as it is?
static bool widens(enum dtype from, enum dtype to) {
    if (dtype_is_int(from) && dtype_is_int(to))
        return dtype_class(from) == dtype_class(to)
                   ? dtype_bits(to) >= dtype_bits(from)
                   : dtype_class(from) == DC_UNSIGNED && dtype_bits(to) > dtype_bits(from);
    if (from == DT_F16 || from == DT_BF16) return to == DT_F32 || to == DT_F64;
    return from == DT_F32 && to == DT_F64;
}
RULE_FN(convert_convert) {
    struct hlo_instr *c = i->operands[0];
    if (i->op != HLO_CONVERT || c->op != HLO_CONVERT ||
        !widens(c->operands[0]->shape->dtype, c->shape->dtype))
        return NULL;
    return hb_convert(&r->b, c->operands[0], i->shape->dtype);
}
