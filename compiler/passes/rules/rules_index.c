// SPDX-License-Identifier: Apache-2.0
// Rules of places: what integers an index can be, gathers at the element's own place along a dim,
// slices of rows that were given other dims.
#include "base/span.h"
#include "compiler/passes/rules/rules.h"

enum { MAX_LOOK = 8 };

// ---- comparisons that are decided

struct bounds {
    int64_t lo, hi;
};
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static struct bounds bounds_of_type(enum dtype t) {
    int bits = t == DT_PRED ? 1 : dtype_bits(t);
    if (dtype_class(t) == DC_SIGNED)
        return (struct bounds){-1 - ((INT64_C(1) << (bits - 2)) - 1) * 2 - 1,
                               ((INT64_C(1) << (bits - 2)) - 1) * 2 + 1};
    return (struct bounds){0, bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1};
}
static bool within(struct bounds v, struct bounds all) {
    return v.lo >= all.lo && v.hi <= all.hi;
}
static bool has_bounds(enum dtype t) {
    return (dtype_is_int(t) || t == DT_PRED) && t != DT_U64 && dtype_bits(t) >= 2;
}
// The integers that x's elements can be, of which the type has bounds.
static struct bounds bounds_of(const struct hlo_instr *x, int look) {
    struct bounds all = bounds_of_type(x->shape->dtype), a = all, b = all, c = all;
    bool select = x->op == HLO_SELECT;
    for (int k = select; k < x->n_operands && k < 3; k++) {
        if (look == 0 || !has_bounds(x->operands[k]->shape->dtype)) return all;
        *(k == 0 ? &a : k == 1 ? &b : &c) = bounds_of(x->operands[k], look - 1);
    }

    switch (x->op) {
    case HLO_CONSTANT:
        if (x->shape->rank || x->shape->dtype == DT_PRED) return all;
        a.lo = a.hi = lit_get_i64(x->literal, 0);
        break;
    case HLO_IOTA:
        a = (struct bounds){0, x->shape->dims[HLO_ATTR(x, iota)->iota_dimension] - 1};
        break;
    case HLO_BROADCAST:
    case HLO_RESHAPE:
    case HLO_TRANSPOSE:
    case HLO_SLICE:
    case HLO_REVERSE:
    case HLO_COPY:
    case HLO_CONVERT:
        break;
    case HLO_MAXIMUM:
        a = (struct bounds){most(a.lo, b.lo), most(a.hi, b.hi)};
        break;
    case HLO_MINIMUM:
        a = (struct bounds){least(a.lo, b.lo), least(a.hi, b.hi)};
        break;
    case HLO_CLAMP: // the upper bound counts last
        a = (struct bounds){least(most(b.lo, a.lo), c.lo), least(most(b.hi, a.hi), c.hi)};
        break;
    case HLO_SELECT:
        a = (struct bounds){least(b.lo, c.lo), most(b.hi, c.hi)};
        break;
    case HLO_REMAINDER: // has the sign of the dividend
        if (b.lo < 1) return all;
        a = (struct bounds){a.lo < 0 ? -(b.hi - 1) : 0, a.hi > 0 ? b.hi - 1 : 0};
        break;
    default:
        return all;
    }
    return within(a, all) ? a : all;
}
RULE_FN(compare_bounds) {
    enum dtype t = i->operands[0]->shape->dtype;
    if (i->op != HLO_COMPARE || !has_bounds(t) || t == DT_PRED) return NULL;
    struct bounds x = bounds_of(i->operands[0], MAX_LOOK), y = bounds_of(i->operands[1], MAX_LOOK);
    enum cmp_direction d = HLO_ATTR(i, compare)->direction;
    bool apart = x.hi < y.lo || y.hi < x.lo, less = x.hi < y.lo, more = y.hi < x.lo;
    bool up_to = x.hi <= y.lo, from = y.hi <= x.lo;
    bool yes = (d == CMP_NE && apart) || (d == CMP_LT && less) || (d == CMP_GT && more) ||
               (d == CMP_LE && up_to) || (d == CMP_GE && from);
    bool no = (d == CMP_EQ && apart) || (d == CMP_LT && from) || (d == CMP_GT && up_to) ||
              (d == CMP_LE && more) || (d == CMP_GE && less);
    return yes || no ? hb_splat(&r->b, i->shape, yes) : NULL;
}

// ---- gathers at the element's own place

// The dimension of x along which each element is its own place; -1: there is none.
static int own_place(const struct hlo_instr *x, int look) {
    if (!dtype_is_int(x->shape->dtype) || look == 0 || (x->op != HLO_IOTA && x->n_operands != 1))
        return -1;
    if (x->op == HLO_IOTA) {
        int d = (int)HLO_ATTR(x, iota)->iota_dimension;
        struct bounds v = {0, x->shape->dims[d] - 1};
        return within(v, bounds_of_type(x->shape->dtype)) ? d : -1;
    }

    const struct shape *from = x->operands[0]->shape, *to = x->shape;
    int d = own_place(x->operands[0], look - 1);
    if (d < 0) return -1;
    struct bounds v = {0, from->dims[d] - 1};
    int64_t behind = 1, at = 1;
    switch (x->op) {
    case HLO_CONVERT:
        return within(v, bounds_of_type(to->dtype)) ? d : -1;
    case HLO_BROADCAST:
        return (int)HLO_ATTR(x, dims)->dimensions.v[d];
    case HLO_RESHAPE:
        for (int k = d + 1; k < from->rank; k++)
            behind *= from->dims[k];
        for (int k = to->rank - 1; k >= 0; at *= to->dims[k--])
            if (at == behind && to->dims[k] == from->dims[d]) return k;
        return -1;
    default:
        return -1;
    }
}
// Its last component or first, as x[arange(n), i] and x[i, arange(n)] have it.
RULE_FN(gather_own_place) {
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct hlo_instr *c = i->op == HLO_GATHER ? i->operands[1] : NULL;
    if (!c || c->op != HLO_CONCATENATE || c->n_operands < 2 || c->n_operands > HLO_MAX_RANK ||
        HLO_ATTR(c, dims)->dimensions.v[0] != g->index_vector_dim ||
        c->n_operands != g->start_index_map.n || g->operand_batching_dims.n)
        return NULL;

    const struct shape *x = i->operands[0]->shape;
    for (int64_t k = 0; k < c->n_operands; k++) {
        int64_t d = g->start_index_map.v[k], own = own_place(c->operands[k], MAX_LOOK);
        if (own < 0 || own == g->index_vector_dim || !i64s_has(g->collapsed_slice_dims, d) ||
            x->dims[d] != c->shape->dims[own] || x->dynamic || c->shape->dynamic)
            continue;
        struct hlo_attr_gather a = *g;
        int64_t map[HLO_MAX_RANK], gone[HLO_MAX_RANK];
        hv in[HLO_MAX_RANK];
        int n = 0, m = 0;
        for (int64_t j = 0; j < c->n_operands; j++) {
            if (j == k) continue;
            map[n] = g->start_index_map.v[j];
            in[n++] = c->operands[j];
        }
        for (int j = 0; j < g->collapsed_slice_dims.n; j++)
            if (g->collapsed_slice_dims.v[j] != d) gone[m++] = g->collapsed_slice_dims.v[j];
        a.start_index_map = (struct i64s){map, n};
        a.collapsed_slice_dims = (struct i64s){gone, m};
        a.operand_batching_dims = (struct i64s){&d, 1};
        a.start_indices_batching_dims = (struct i64s){&own, 1};
        hv at = n == 1 ? in[0] : hb_concat(&r->b, in, n, g->index_vector_dim);
        return hb_op(&r->b, HLO_GATHER, i->shape, (hv[]){i->operands[0], at}, 2, &a);
    }
    return NULL;
}

// ---- slices of what was given other dims

// What of dimension f of the operand the slice v of dims [first, end) of its reshape takes, where
// these are f; false: it is no range.
static bool range_of(const struct shape *s, const struct range *v, int first, int end,
                     struct range *out) {
    int64_t start = 0, n = 1, stride = 1, inner = 1;
    bool whole = true; // of all dims behind
    for (int k = end - 1; k >= first; k--) {
        int64_t count = ceil_div(v[k].limit - v[k].start, v[k].stride);
        if (count > 1) {
            if (!whole && n > 1) return false;
            if (n > 1 && v[k].stride != 1) return false; // runs apart
            if (n == 1) stride = inner * v[k].stride;
            n *= count;
        }
        start += v[k].start * inner;
        whole = whole && count == s->dims[k];
        inner *= s->dims[k];
    }
    *out = (struct range){start, start + (n - 1) * stride + 1, stride};
    return true;
}
RULE_FN(slice_reshape) {
    struct hlo_instr *x = i->operands[0], *y = x->n_operands ? x->operands[0] : NULL;
    struct range v[HLO_MAX_RANK];
    if (i->op != HLO_SLICE || x->op != HLO_RESHAPE || i->shape->dynamic || x->shape->dynamic ||
        (y->op != HLO_TRANSPOSE && y->op != HLO_CONCATENATE) || shape_elements(i->shape) == 0)
        return NULL;
    const struct shape *from = y->shape, *to = x->shape;
    const struct range *s = HLO_ATTR(i, slice)->slice.v;
    int k = 0;
    for (int f = 0; f < from->rank; f++) {
        int first = k;
        int64_t n = 1;
        while (k < to->rank && (n < from->dims[f] || to->dims[k] == 1))
            n *= to->dims[k++];
        if (n != from->dims[f] || !range_of(to, s, first, k, &v[f])) return NULL;
    }
    return hb_reshape(&r->b, hb_slice(&r->b, y, v), i->shape->dims, i->shape->rank);
}
