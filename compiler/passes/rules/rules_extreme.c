// SPDX-License-Identifier: Apache-2.0
// The position of a row's largest or smallest element, as JAX and others write it: a reduction of
// values and positions together, whose reducer only compares and selects. What it does follows
// from how the two values stand to each other and the two positions, so it is tried on each case.
#include <math.h>

#include "compiler/passes/rules/rules.h"

struct trial {
    const struct hlo_computation *c;
    double p[4]; // value and position so far, value and position of the element
    int steps;   // left
};
static bool compared(const struct hlo_instr *i, double x, double y, double *out) {
    const struct hlo_attr_compare *a = HLO_ATTR(i, compare);
    if (a->type == CMPT_TOTALORDER) return false;
    switch (a->direction) {
    case CMP_EQ:
        *out = x == y;
        break;
    case CMP_NE:
        *out = x != y;
        break;
    case CMP_LT:
        *out = x < y;
        break;
    case CMP_LE:
        *out = x <= y;
        break;
    case CMP_GT:
        *out = x > y;
        break;
    case CMP_GE:
        *out = x >= y;
        break;
    default:
        return false;
    }
    return true;
}
// False: i computes, or takes too long.
static bool try_value(struct trial *t, const struct hlo_instr *i, double *out) {
    double x[3];
    bool pred = i->shape->dtype == DT_PRED;
    if (t->steps-- <= 0) return false;
    for (size_t k = 0; k < t->c->params.n; k++)
        if (t->c->params.v[k] == i) {
            *out = t->p[k];
            return true;
        }
    if (i->n_operands < 1 || i->n_operands > 3) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (!try_value(t, i->operands[k], &x[k])) return false;

    switch (i->op) {
    case HLO_COMPARE:
        return compared(i, x[0], x[1], out);
    case HLO_SELECT:
        *out = x[0] ? x[1] : x[2];
        return true;
    case HLO_AND:
        *out = x[0] && x[1];
        return pred;
    case HLO_OR:
        *out = x[0] || x[1];
        return pred;
    case HLO_NOT:
        *out = !x[0];
        return pred;
    default:
        return false;
    }
}

// Does the reducer keep the first of the largest (smallest) values with its position, and NaN
// before all, where positions ascend? The initial one may be that of the first element.
static bool keeps_first(const struct hlo_computation *c, bool largest, bool nans) {
    static const double values[][2] = {{0, 1},   {1, 0},   {1, 1},    {0, 0},
                                       {NAN, 1}, {1, NAN}, {NAN, NAN}};
    static const double places[][2] = {{3, 7}, {5, 5}};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
            double x = values[v][0], y = values[v][1], value, place;
            if (!nans && (isnan(x) || isnan(y))) continue;
            bool stays = isnan(x) || (!isnan(y) && (largest ? x >= y : x <= y));
            struct trial t = {c, {x, places[k][0], y, places[k][1]}, 500};
            if (!try_value(&t, c->root->operands[0], &value) ||
                !try_value(&t, c->root->operands[1], &place) || place != places[k][!stays])
                return false;
            double best = stays ? x : y;
            if (isnan(best) ? !isnan(value) : value != best) return false;
        }
    return true;
}
static bool counts_along(const struct hlo_instr *i, int64_t axis) {
    if (i->op == HLO_IOTA) return HLO_ATTR(i, iota)->iota_dimension == axis;
    if (i->op != HLO_BROADCAST || i->operands[0]->op != HLO_IOTA) return false;
    struct i64s map = HLO_ATTR(i, dims)->dimensions;
    int64_t along = HLO_ATTR(i->operands[0], iota)->iota_dimension;
    return along < map.n && map.v[along] == axis;
}

// Does every value of the type stand at it or before it? *largest: they are above it.
static bool is_worst(enum dtype t, double v, bool *largest) {
    *largest = v == dtype_lowest(t);
    return *largest || v == dtype_highest(t);
}

// The first place of what equals the extreme, where that and a place together are no integer: NaN
// is the extreme where there is one.
static hv place_of_equal(struct hb *b, hv x, hv none, int64_t axis, bool largest) {
    const struct shape *s = shape_with_dtype(b->c->module->arena, x->shape, DT_S64);
    bool is_float = dtype_is_float(x->shape->dtype);
    hv extreme = hb_reduce(b, x, none, &axis, 1, largest ? HLO_MAXIMUM : HLO_MINIMUM);
    int64_t map[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        map[d] = d;
    hv spread = hb_broadcast(b, extreme, x->shape->dims, x->shape->rank, map);
    hv is = hb_compare(b, x, spread, CMP_EQ);
    if (is_float) is = hb_binary(b, HLO_OR, is, hb_compare(b, x, x, CMP_NE));
    hv place = hb_select(b, is, hb_iota(b, s, axis), hb_splat(b, s, (double)INT32_MAX));
    return hb_reduce(b, place, hb_const_i64(b, DT_S64, INT32_MAX), &axis, 1, HLO_MINIMUM);
}

// Types of up to 32 bits, f64, and s64 whose initial value, which a double need not hold, is the
// last of all.
static bool can_order(enum dtype t, const struct hlo_instr *init) {
    if (t == DT_PRED || dtype_is_float(t) || (dtype_is_int(t) && dtype_bits(t) <= 32)) return true;
    if (t != DT_S64 || init->op != HLO_CONSTANT) return false;
    int64_t v = lit_get_i64(init->literal, 0);
    return v == INT64_MIN || v == INT64_MAX;
}

// get-tuple-element of the position; along the last dimension, where a reduction of two values has
// no vectors.
RULE_FN(place_of_extreme) {
    const struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_GET_TUPLE_ELEMENT || HLO_ATTR(i, gte)->index != 1 || x->op != HLO_REDUCE ||
        x->n_operands != 4 || x->called[0]->root->op != HLO_TUPLE)
        return NULL;
    for (size_t u = 0; u < x->users.n; u++) // of the value too: both at once
        if (x->users.v[u] != i && x->users.v[u]->users.n) return NULL;
    const struct shape *s = x->operands[0]->shape;
    struct i64s d = HLO_ATTR(x, dims)->dimensions;
    double worst, first;
    bool largest, is_float = dtype_is_float(s->dtype);
    if (d.n != 1 || d.v[0] != s->rank - 1 || s->dynamic ||
        s->dims[d.v[0]] < (s->dtype == DT_F64 ? 9 : 8) || s->dims[d.v[0]] >= INT32_MAX ||
        !can_order(s->dtype, x->operands[2]) || !dtype_is_int(i->shape->dtype) ||
        dtype_bits(i->shape->dtype) < 32 || i->shape->dynamic)
        return NULL;
    if (!counts_along(x->operands[1], d.v[0]) || !match_splat(x->operands[2], &worst) ||
        !match_splat(x->operands[3], &first) || !is_worst(s->dtype, worst, &largest) ||
        first != 0 || !keeps_first(x->called[0], largest, is_float))
        return NULL;
    hv of = x->operands[0];
    if (s->dtype == DT_PRED) of = hb_convert(&r->b, of, DT_U8);
    hv place = dtype_bits(s->dtype) > 32
                   ? place_of_equal(&r->b, of, x->operands[2], d.v[0], largest)
                   : hb_place_of_extreme(&r->b, of, d.v[0], largest, false);
    return hb_convert(&r->b, place, i->shape->dtype);
}
