// SPDX-License-Identifier: Apache-2.0
// Rules of reductions that few elements wait for, or that read what counts for nothing: along lines
// of few columns, and over all but a diagonal.
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/rules/rules.h"

static hv reduced(struct rule_ctx *r, const struct hlo_instr *i, const struct shape *shape, hv x,
                  int64_t *dims, int n) {
    return hb_call(&r->b, HLO_REDUCE, shape, (hv[]){x, i->operands[1]}, 2,
                   &(struct hlo_attr_dims){.dimensions = {dims, n}}, i->called, 1);
}

// ---- few columns

// [before, lines, columns], of which the lines are reduced.
struct columns {
    int64_t before, lines, columns;
    int at; // how many dims of the operand lie before
};
static bool columns_of(const struct hlo_instr *i, struct columns *c) {
    const struct shape *s = i->operands[0]->shape;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    int k = 0;
    *c = (struct columns){1, 1, 1, 0};
    for (; k < s->rank && !i64s_has(d, k); k++)
        c->before *= s->dims[k];
    c->at = k;
    for (; k < s->rank && i64s_has(d, k); k++)
        c->lines *= s->dims[k];
    if (k - c->at != d.n) return false;
    for (; k < s->rank; k++)
        c->columns *= s->dims[k];
    return true;
}
// x: [before, lines, columns]; some lines beside each other are one, as long as several vectors.
static hv in_two(struct rule_ctx *r, const struct hlo_instr *i, hv x, int64_t beside) {
    int64_t one = 1;
    const int64_t *d = x->shape->dims, columns = d[2];
    x = hb_reshape(&r->b, x, (int64_t[]){d[0], d[1] / beside, beside * columns}, 3);
    x = reduced(r, i, NULL, x, &one, 1);
    x = hb_reshape(&r->b, x, (int64_t[]){x->shape->dims[0], beside, columns}, 3);
    return reduced(r, i, NULL, x, &one, 1);
}
// How many lines lie beside each other: so many that they fill vectors; a number that divides all
// where there is one, so that nothing is copied.
static int64_t lines_beside(const struct columns *c) {
    enum { WIDE = 128, MOST = 512, LANES = 16 };
    int64_t least = ceil_div(WIDE, c->columns), found = 0;
    for (int64_t n = least; n * c->columns <= MOST; n++) {
        if (c->lines % n) continue;
        if (n * c->columns % LANES == 0) return n;
        if (!found) found = n;
    }
    return found ? found : round_up(least, LANES);
}
RULE_FN(reduce_columns) {
    enum { LEAST = 1024, MOST_SUMS = 24, MOST_EXTREMES = 40 };
    enum hlo_op op;
    const struct shape *s = i->operands[0]->shape;
    struct columns c;
    if (i->operands[0]->op == HLO_BROADCAST || i->n_operands != 2 ||
        !hlo_reducer_op(i->called[0], &op) || s->dtype != i->shape->dtype || s->dynamic ||
        s->layout || i->shape->layout || dtype_is_complex(s->dtype))
        return NULL;
    bool extreme = op == HLO_MAXIMUM || op == HLO_MINIMUM || op == HLO_AND || op == HLO_OR;
    bool sum = op == HLO_ADD && match_splat_is(i->operands[1], 0);
    bool exact = dtype_is_int(s->dtype) || (!r->strict && dtype_bits(s->dtype) >= 32);
    if ((!extreme && !(sum && exact)) || !columns_of(i, &c)) return NULL;
    if (c.columns < 2 || c.columns > (sum ? MOST_SUMS : MOST_EXTREMES) || c.lines < LEAST ||
        c.before < 1)
        return NULL;

    int64_t beside = lines_beside(&c);
    hv x = hb_reshape(&r->b, i->operands[0], (int64_t[]){c.before, c.lines, c.columns}, 3);
    int64_t rest = c.lines % beside, one = 1;
    if (rest) {
        const struct range all = {0, c.before, 1}, every = {0, c.columns, 1};
        const struct range whole[] = {all, {0, c.lines - rest, 1}, every},
                           behind[] = {all, {c.lines - rest, c.lines, 1}, every};
        hv y = reduced(r, i, NULL, hb_slice(&r->b, x, behind), &one, 1);
        x = hb_binary(&r->b, op, in_two(r, i, hb_slice(&r->b, x, whole), beside), y);
    } else {
        x = in_two(r, i, x, beside);
    }
    return hb_reshape(&r->b, x, i->shape->dims, i->shape->rank);
}

// ---- diagonals

// The dim along which x counts its places, no two of which are the same in its type; -1: it is
// something else.
static int64_t counts_along(const struct hlo_instr *x) {
    if (x->op == HLO_IOTA) {
        int64_t d = HLO_ATTR(x, iota)->iota_dimension;
        bool whole = dtype_is_int(x->shape->dtype);
        return whole && (double)(x->shape->dims[d] - 1) <= dtype_highest(x->shape->dtype) ? d : -1;
    }
    if (x->op != HLO_BROADCAST) return -1;
    int64_t d = counts_along(x->operands[0]);
    return d < 0 ? -1 : HLO_ATTR(x, dims)->dimensions.v[d];
}
// Does x hold where two of its dims have the same place? Which, the first one first.
static bool is_diagonal(const struct hlo_instr *x, int64_t *first, int64_t *second) {
    if (x->op == HLO_BROADCAST) {
        const struct i64s d = HLO_ATTR(x, dims)->dimensions;
        if (!is_diagonal(x->operands[0], first, second)) return false;
        *first = d.v[*first];
        *second = d.v[*second];
    } else {
        if (x->op != HLO_COMPARE || HLO_ATTR(x, compare)->direction != CMP_EQ) return false;
        *first = counts_along(x->operands[0]);
        *second = counts_along(x->operands[1]);
    }
    if (*first < 0 || *second < 0 || *first == *second) return false;
    if (*first > *second) {
        int64_t t = *first;
        *first = *second;
        *second = t;
    }
    return true;
}
RULE_FN(sum_diagonal) {
    enum hlo_op op;
    const struct hlo_instr *x = i->operands[0];
    const struct shape *s = x->shape;
    int64_t a, b, dims[HLO_MAX_RANK], left[HLO_MAX_RANK];
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    if (i->n_operands != 2 || !hlo_reducer_op(i->called[0], &op) || op != HLO_ADD ||
        x->op != HLO_SELECT || dtype_is_complex(s->dtype) || s->dynamic || s->layout ||
        i->shape->layout || !match_splat_is(i->operands[1], 0) ||
        !match_splat_is(x->operands[2], 0) || !is_diagonal(x->operands[0], &a, &b) || b != a + 1 ||
        s->dims[a] != s->dims[b] || (!i64s_has(d, a) && !i64s_has(d, b)))
        return NULL;

    struct range r1[HLO_MAX_RANK];
    int n = 0, gone = 0;
    int64_t size = s->dims[a];
    for (int k = 0; k < s->rank; k++) {
        if (k == b) continue;
        int64_t all = k == a ? size * size : s->dims[k];
        r1[n] = (struct range){0, all, 1};
        if (k == a && size > 0) r1[n] = (struct range){0, all, size + 1};
        bool both = k != a || i64s_has(d, b);
        if (i64s_has(d, k) && both) dims[gone++] = n;
        left[n++] = all;
    }
    hv y = hb_slice(&r->b, hb_reshape(&r->b, x->operands[1], left, n), r1);
    if (gone) return reduced(r, i, i->shape, y, dims, gone);
    hv zero = hb_broadcast(&r->b, i->operands[1], i->shape->dims, i->shape->rank, NULL);
    return hb_add(&r->b, y, zero);
}
