// SPDX-License-Identifier: Apache-2.0
// How often a loop turns: known when one element of the state starts at a constant, grows by a
// constant and is compared with a constant.
#include "compiler/ir/turns.h"

enum { MAX_TURNS = 1 << 16 };

static bool whole_number(const struct hlo_instr *i, int64_t *out) {
    enum dtype t = i->shape->dtype;
    if (i->op != HLO_CONSTANT || shape_is_tuple(i->shape) || i->shape->rank || !dtype_is_int(t) ||
        (dtype_class(t) == DC_UNSIGNED && dtype_bits(t) == 64))
        return false;
    *out = lit_get_i64(i->literal, 0);
    return true;
}
bool hlo_is_element_of(const struct hlo_instr *i, const struct hlo_instr *tuple, int64_t *index) {
    if (i->op != HLO_GET_TUPLE_ELEMENT || i->operands[0] != tuple) return false;
    *index = HLO_ATTR(i, gte)->index;
    return true;
}
static bool holds(enum cmp_direction d, int64_t x, int64_t y) {
    switch (d) {
    case CMP_EQ:
        return x == y;
    case CMP_NE:
        return x != y;
    case CMP_GE:
        return x >= y;
    case CMP_GT:
        return x > y;
    case CMP_LE:
        return x <= y;
    case CMP_LT:
        return x < y;
    }
    return false;
}
static int64_t wrap(int64_t v, enum dtype t) {
    int bits = dtype_bits(t);
    if (bits == 64) return v;
    v &= (INT64_C(1) << bits) - 1;
    bool negative = dtype_class(t) == DC_SIGNED && v >> (bits - 1);
    return negative ? v - (INT64_C(1) << bits) : v;
}

bool hlo_turn_step(const struct hlo_computation *body, int64_t k, int64_t *step) {
    const struct hlo_instr *r = body->root, *p = body->params.v[0];
    int64_t at;
    if (r->op != HLO_TUPLE) return false;
    r = r->operands[k];
    bool subtracts = r->op == HLO_SUBTRACT;
    if (r->op != HLO_ADD && !subtracts) return false;
    int by = !subtracts && whole_number(r->operands[0], step) ? 0 : 1;
    if (!whole_number(r->operands[by], step) || !hlo_is_element_of(r->operands[1 - by], p, &at) ||
        at != k)
        return false;
    if (subtracts) *step = -*step;
    return true;
}

int64_t hlo_turns(const struct hlo_instr *w) {
    const struct hlo_computation *cond = w->called[0];
    const struct hlo_instr *r = cond->root, *init = w->operands[0];
    int64_t k, limit, v, step;
    if (r->op == HLO_CONSTANT) return lit_get_i64(r->literal, 0) ? -1 : 0;
    if (r->op != HLO_COMPARE || init->op != HLO_TUPLE) return -1;
    enum cmp_direction d = HLO_ATTR(r, compare)->direction;
    bool left = hlo_is_element_of(r->operands[0], cond->params.v[0], &k);
    if (!left && !hlo_is_element_of(r->operands[1], cond->params.v[0], &k)) return -1;
    if (!whole_number(r->operands[left ? 1 : 0], &limit) || !whole_number(init->operands[k], &v))
        return -1;
    if (!(left ? holds(d, v, limit) : holds(d, limit, v))) return 0;
    if (!hlo_turn_step(w->called[1], k, &step)) return -1;
    for (int64_t n = 1; n < MAX_TURNS; n++) {
        if (__builtin_add_overflow(v, step, &v)) return -1;
        v = wrap(v, r->operands[0]->shape->dtype);
        if (!(left ? holds(d, v, limit) : holds(d, limit, v))) return n;
    }
    return -1;
}
