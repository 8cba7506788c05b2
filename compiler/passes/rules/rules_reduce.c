// SPDX-License-Identifier: Apache-2.0
// Rules of reductions and windows. Those that change the order of a float sum are not strict.
#include <math.h>

#include "compiler/ops/rules.h"
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/rules/rules.h"

// A reduction of one operand by one operation; may its terms be reordered here?
static bool simple(const struct rule_ctx *r, const struct hlo_instr *i, enum hlo_op *op) {
    if (i->op != HLO_REDUCE || i->n_operands != 2 || !hlo_reducer_op(i->called[0], op))
        return false;
    bool exact = *op == HLO_MAXIMUM || *op == HLO_MINIMUM || *op == HLO_AND || *op == HLO_OR;
    bool sum = *op == HLO_ADD || *op == HLO_MULTIPLY;
    return exact || (sum && (dtype_is_int(i->shape->dtype) || !r->strict));
}
static bool same_scalar(const struct hlo_instr *a, const struct hlo_instr *b) {
    return a == b ||
           (a->op == HLO_CONSTANT && b->op == HLO_CONSTANT && lit_equal(a->literal, b->literal));
}
static bool neutral(enum hlo_op op, const struct hlo_instr *init) {
    double v;
    if (!match_splat(init, &v)) return false;
    return op == HLO_ADD        ? v == 0
           : op == HLO_MULTIPLY ? v == 1
           : op == HLO_MAXIMUM  ? isinf(v) && v < 0
           : op == HLO_MINIMUM  ? isinf(v) && v > 0
                                : false;
}
static struct hlo_instr *reduce(struct rule_ctx *r, const struct hlo_instr *i, struct hlo_instr *x,
                                int64_t *dims, int n) {
    return hb_call(&r->b, HLO_REDUCE, i->shape, (hv[]){x, i->operands[1]}, 2,
                   &(struct hlo_attr_dims){.dimensions = {dims, n}}, i->called, 1);
}

// Of a reduction over dims of s: how many of the last dims it takes, where those are a short line
// and others that it takes lie before ones that stay. 0: it is no such one.
static int short_line(const struct shape *s, const int64_t *dims, int n) {
    enum { LONGEST = 128, LEAST_LINES = 4, LEAST_SIDE = 8, MOST_SIDE = 8192 };
    struct i64s d = {(int64_t *)(uintptr_t)dims, n};
    int64_t line = 1, between = 1, lines = 1;
    int k = s->rank, last;
    while (k > 0 && (s->dims[k - 1] == 1 || i64s_has(d, k - 1)))
        line *= s->dims[--k];
    for (last = k; k > 0 && !i64s_has(d, k - 1); k--)
        between *= s->dims[k - 1];
    for (; k > 0; k--)
        if (i64s_has(d, k - 1)) lines *= s->dims[k - 1];
    bool pays = line > 1 && line <= LONGEST && between > 1 && lines >= LEAST_LINES &&
                line * between >= LEAST_SIDE && line * between <= MOST_SIDE;
    return pays && !s->dynamic && !s->layout ? s->rank - last : 0;
}

RULE_FN(reduce_reduce) {
    enum hlo_op op, inner_op;
    struct hlo_instr *x = i->operands[0];
    if (!simple(r, i, &op) || !simple(r, x, &inner_op) || op != inner_op || x->users.n != 1 ||
        !same_scalar(i->operands[1], x->operands[1]))
        return NULL;
    bool idempotent = op == HLO_MAXIMUM || op == HLO_MINIMUM || op == HLO_AND || op == HLO_OR;
    if (!idempotent && !neutral(op, i->operands[1])) return NULL; // the initial value counts once
    struct i64s in = HLO_ATTR(x, dims)->dimensions, out = HLO_ATTR(i, dims)->dimensions;
    int64_t dims[HLO_MAX_RANK];
    int n = 0, kept = 0;
    for (int d = 0; d < x->operands[0]->shape->rank; d++) {
        bool gone = i64s_has(in, d);
        if (gone || i64s_has(out, kept)) dims[n++] = d;
        kept += !gone;
    }
    if (short_line(x->operands[0]->shape, dims, n)) return NULL;
    return reduce(r, i, x->operands[0], dims, n);
}
// The groups of channels last: what lies before what stays first, in vectors along all that lies
// side by side; then the short lines. Together each line would be a sum of its own.
RULE_FN(reduce_lines_last) {
    enum hlo_op op;
    const struct shape *s = i->operands[0]->shape;
    if (!simple(r, i, &op) || s->dtype != i->shape->dtype || !neutral(op, i->operands[1]))
        return NULL;
    if (dtype_bits(s->dtype) < 32 || dtype_is_complex(s->dtype)) return NULL;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    int64_t first[HLO_MAX_RANK], then[HLO_MAX_RANK];
    int n = 0, m = 0, kept = 0, last = short_line(s, d.v, d.n);
    if (!last) return NULL;
    for (int k = 0; k < s->rank; k++) {
        bool line = k >= s->rank - last, gone = i64s_has(d, k);
        if (gone && !line) first[n++] = k;
        if (gone && line) then[m++] = kept;
        kept += !gone || line;
    }
    hv x = hb_call(&r->b, HLO_REDUCE, NULL, (hv[]){i->operands[0], i->operands[1]}, 2,
                   &(struct hlo_attr_dims){.dimensions = {first, n}}, i->called, 1);
    return reduce(r, i, x, then, m);
}
// Reduced before, then put into another order where the dimensions that are left change places.
static struct hlo_instr *reduce_first(struct rule_ctx *r, const struct hlo_instr *i,
                                      const struct hlo_instr *x, int64_t *dims, int n,
                                      const int64_t *kept) {
    const struct shape *from = x->operands[0]->shape;
    int64_t left[HLO_MAX_RANK], order[HLO_MAX_RANK];
    int rank = i->shape->rank;
    if (x->users.n != 1 || from->dynamic || i->shape->layout) return NULL;
    for (int k = 0; k < rank; k++) {
        int at = 0; // among the kept ones in the operand's order
        for (int j = 0; j < rank; j++)
            at += kept[j] < kept[k];
        left[at] = from->dims[kept[k]];
        order[k] = at;
    }
    const struct shape *s = shape_make(i->parent->module->arena, i->shape->dtype, left, rank);
    hv y = hb_call(&r->b, HLO_REDUCE, s, (hv[]){x->operands[0], i->operands[1]}, 2,
                   &(struct hlo_attr_dims){.dimensions = {dims, n}}, i->called, 1);
    return hb_transpose(&r->b, y, order);
}
RULE_FN(reduce_transpose) {
    enum hlo_op op;
    struct hlo_instr *x = i->operands[0];
    if (!simple(r, i, &op) || x->op != HLO_TRANSPOSE) return NULL;
    struct i64s perm = HLO_ATTR(x, dims)->dimensions, d = HLO_ATTR(i, dims)->dimensions;
    int64_t dims[HLO_MAX_RANK], kept[HLO_MAX_RANK];
    int n = 0, n_kept = 0;
    bool ordered = true;
    for (int k = 0; k < perm.n; k++) {
        if (i64s_has(d, k)) {
            dims[n++] = perm.v[k];
            continue;
        }
        ordered = ordered && (!n_kept || perm.v[k] > kept[n_kept - 1]);
        kept[n_kept++] = perm.v[k];
    }
    for (int k = 1; k < n; k++) // ascending, as the text has them
        for (int j = k; j > 0 && dims[j] < dims[j - 1]; j--) {
            int64_t t = dims[j];
            dims[j] = dims[j - 1];
            dims[j - 1] = t;
        }
    if (!ordered) return reduce_first(r, i, x, dims, n, kept);
    return reduce(r, i, x->operands[0], dims, n);
}
// So many of a type, as its sums have it: modulo 2^bits for integers. False: it cannot be exact.
static bool times_of(enum dtype t, int64_t n, double *out) {
    int bits = dtype_bits(t);
    if (dtype_is_float(t) && bits < 32 && n > (bits == 16 ? 1 << 8 : 1)) return false;
    if (dtype_is_int(t) && bits < 32) {
        n &= ((int64_t)1 << bits) - 1;
        if (dtype_class(t) == DC_SIGNED && n >> (bits - 1)) n -= (int64_t)1 << bits;
    }
    *out = (double)n;
    return true;
}
RULE_FN(reduce_broadcast) {
    enum hlo_op op;
    double v;
    struct hlo_instr *x = i->operands[0];
    if (!simple(r, i, &op) || x->op != HLO_BROADCAST || op == HLO_MULTIPLY ||
        !match_splat(i->operands[1], &v))
        return NULL;
    struct i64s map = HLO_ATTR(x, dims)->dimensions, d = HLO_ATTR(i, dims)->dimensions;
    int64_t times = 1, to[HLO_MAX_RANK];
    for (int k = 0; k < d.n; k++) {
        if (i64s_has(map, d.v[k])) return NULL;
        times *= x->shape->dims[d.v[k]];
    }
    if (times == 0 || times > 1 << 24) return NULL;
    if (op == HLO_ADD && !times_of(i->shape->dtype, times, &v)) return NULL;
    for (int k = 0; k < map.n; k++) {
        to[k] = map.v[k];
        for (int j = 0; j < d.n; j++)
            to[k] -= d.v[j] < map.v[k];
    }
    const struct shape *s = i->shape;
    struct hlo_instr *y = hb_broadcast(&r->b, x->operands[0], s->dims, s->rank, to);
    if (op == HLO_ADD) y = hb_mul(&r->b, y, hb_splat(&r->b, s, v));
    return hb_binary(&r->b, op, y,
                     s->rank ? hb_broadcast(&r->b, i->operands[1], s->dims, s->rank, NULL)
                             : i->operands[1]);
}

// reduce of a concatenate of slices of one, along that dimension: max(a, max(b, c)), where nothing
// else is reduced.
RULE_FN(reduce_stack) {
    enum { MAX = 16 };
    enum hlo_op op;
    struct hlo_instr *x = i->operands[0], *y = NULL;
    const struct shape *s = i->shape;
    if (!simple(r, i, &op) || x->op != HLO_CONCATENATE || x->users.n != 1 || x->n_operands > MAX)
        return NULL;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    bool sum = op == HLO_ADD || op == HLO_MULTIPLY; // of short floats: rounded once, at the end
    if (sum && dtype_is_float(s->dtype) && dtype_bits(s->dtype) < 32) return NULL;
    if (d.n != 1 || d.v[0] != HLO_ATTR(x, dims)->dimensions.v[0] || s->dtype != x->shape->dtype)
        return NULL;
    for (int k = 0; k < x->n_operands; k++)
        if (x->operands[k]->shape->dims[d.v[0]] != 1) return NULL;
    if (!neutral(op, i->operands[1]))
        y = hb_broadcast(&r->b, i->operands[1], s->dims, s->rank, NULL);
    for (int k = 0; k < x->n_operands; k++) {
        struct hlo_instr *z = hb_reshape(&r->b, x->operands[k], s->dims, s->rank);
        y = y ? hb_binary(&r->b, op, y, z) : z;
    }
    return y;
}

// Padding inside the window is the initial value: a pad with that value is the window's own. Kept
// smaller than the window, as libraries want it.
RULE_FN(pad_into_window) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_REDUCE_WINDOW || i->n_operands != 2 || x->op != HLO_PAD ||
        !same_scalar(i->operands[1], x->operands[1]))
        return NULL;
    const struct padding *p = &HLO_ATTR(x, pad)->padding;
    const struct window *w = &HLO_ATTR(i, window)->window;
    struct window_dim v[HLO_MAX_RANK];
    if (w->n != p->n) return NULL;
    for (int d = 0; d < w->n; d++) {
        v[d] = w->v[d];
        v[d].pad_low += p->v[d].low;
        v[d].pad_high += p->v[d].high;
        bool pads = p->v[d].low || p->v[d].high;
        if (p->v[d].interior || p->v[d].low < 0 || p->v[d].high < 0 || v[d].base_dilation != 1 ||
            (pads && (v[d].pad_low >= v[d].size || v[d].pad_high >= v[d].size)))
            return NULL;
    }
    return hb_call(&r->b, HLO_REDUCE_WINDOW, i->shape, (hv[]){x->operands[0], i->operands[1]}, 2,
                   &(struct hlo_attr_window){.window = {v, w->n}}, i->called, 1);
}
RULE_FN(window_of_one) {
    enum hlo_op op;
    if (i->op != HLO_REDUCE_WINDOW || i->n_operands != 2 || !hlo_reducer_op(i->called[0], &op) ||
        !neutral(op, i->operands[1]) || !dtype_is_float(i->shape->dtype) ||
        i->shape->dtype != i->operands[0]->shape->dtype)
        return NULL;
    if (op == HLO_ADD && r->strict) return NULL; // 0 + -0
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = i->operands[0]->shape;
    struct range v[HLO_MAX_RANK];
    for (int d = 0; d < w->n; d++) {
        if (w->v[d].size != 1 || w->v[d].pad_low || w->v[d].pad_high || w->v[d].base_dilation != 1)
            return NULL;
        v[d] = (struct range){0, s->dims[d], w->v[d].stride};
    }
    return w->n == s->rank ? hb_slice(&r->b, i->operands[0], v) : NULL;
}

// ---- windows one after the other

static const struct window_dim no_window = {
    .size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
// What windows v over s cost, in terms; after: the dimensions of what they give.
static double window_cost(const int64_t *s, const struct window_dim *v, int n, int64_t *after) {
    enum { PASS = 3 }; // writing a value and reading it again
    double values = 1, terms = 1;
    for (int d = 0; d < n; d++) {
        after[d] = rule_window_size(s[d], &v[d]);
        values *= (double)after[d];
        terms *= (double)v[d].size;
    }
    return values * (terms + PASS);
}
struct two_windows {
    struct window_dim first[HLO_MAX_RANK], second[HLO_MAX_RANK];
    double cost;
};
static void try_two(const struct shape *s, struct two_windows *t, struct two_windows *best) {
    int64_t between[HLO_MAX_RANK], after[HLO_MAX_RANK];
    t->cost = window_cost(s->dims, t->first, s->rank, between);
    t->cost += window_cost(between, t->second, s->rank, after);
    if (t->cost < best->cost) *best = *t;
}
// Dimension d alone first.
static void try_dim(const struct shape *s, const struct window *w, int d,
                    struct two_windows *best) {
    struct two_windows t;
    for (int k = 0; k < w->n; k++) {
        t.first[k] = k == d ? w->v[k] : no_window;
        t.second[k] = k == d ? no_window : w->v[k];
    }
    try_two(s, &t, best);
}
// Windows of `size` along d first, then of those every `step`: they may overlap where counting an
// element twice does no harm.
static void try_lengths(const struct shape *s, const struct window *w, int d, bool overlap,
                        struct two_windows *best) {
    enum { MOST = 64 };
    struct two_windows t;
    int64_t all = w->v[d].size;
    for (int64_t size = 2; size < all && size <= MOST; size++) {
        int64_t times = (all + size - 1) / size, step = times > 1 ? (all - size) / (times - 1) : 0;
        if (step < 1 || step * (times - 1) + size != all || (step != size && !overlap)) continue;
        for (int k = 0; k < w->n; k++) { // others are of one element, but may have strides
            t.first[k] = w->v[k];
            t.second[k] = k == d ? w->v[k] : no_window;
        }
        t.first[d].size = size;
        t.first[d].stride = 1;
        t.second[d].size = times;
        t.second[d].window_dilation *= step;
        t.second[d].base_dilation = 1;
        t.second[d].pad_low = t.second[d].pad_high = 0;
        try_two(s, &t, best);
    }
}
static struct hlo_instr *windowed(struct rule_ctx *r, const struct hlo_instr *i, hv x,
                                  struct window_dim *v) {
    return hb_call(&r->b, HLO_REDUCE_WINDOW, NULL, (hv[]){x, i->operands[1]}, 2,
                   &(struct hlo_attr_window){.window = {v, x->shape->rank}}, i->called, 1);
}
// A window over 9x9 elements takes 18 terms as one over rows and one over columns, a window over
// 256 takes 32 as 16 windows of 16. Where the initial value may count again: it is neutral, or the
// operation gives the same however often.
RULE_FN(split_window) {
    enum { LEAST = 50000 }; // terms
    enum hlo_op op;
    const struct shape *s = i->operands[0]->shape;
    if (i->op != HLO_REDUCE_WINDOW || i->n_operands != 2 || !hlo_reducer_op(i->called[0], &op) ||
        s->dtype != i->shape->dtype || s->dynamic || i->shape->dynamic ||
        rule_running_window(i, NULL) || lib_pool(i))
        return NULL;
    if (r->target && r->target->library_accepts && r->target->library_accepts(r->target, i))
        return NULL;
    bool extreme = op == HLO_MAXIMUM || op == HLO_MINIMUM || op == HLO_AND || op == HLO_OR;
    if (!extreme && !neutral(op, i->operands[1])) return NULL;
    bool small = dtype_is_float(s->dtype) && dtype_bits(s->dtype) < 32; // rounded in between
    if (!extreme && dtype_is_float(s->dtype) && (r->strict || small)) return NULL;
    if (!extreme && dtype_is_complex(s->dtype) && r->strict) return NULL;

    const struct window *w = &HLO_ATTR(i, window)->window;
    int64_t after[HLO_MAX_RANK];
    int wide = 0, last = 0;
    if (w->n != s->rank) return NULL;
    for (int d = 0; d < w->n; d++)
        if (w->v[d].size > 1) wide++, last = d;
    double cost = window_cost(s->dims, w->v, w->n, after);
    struct two_windows best = {.cost = cost * 2 / 3};
    if (cost < LEAST || !wide || !shape_elements(i->shape)) return NULL;

    for (int d = 0; wide > 1 && d < w->n; d++)
        if (w->v[d].size > 1) try_dim(s, w, d, &best);
    if (wide == 1) try_lengths(s, w, last, extreme, &best);
    if (best.cost >= cost * 2 / 3) return NULL;
    return windowed(r, i, windowed(r, i, i->operands[0], best.first), best.second);
}

// ---- products of complex numbers

static hv one(struct rule_ctx *r, enum dtype t) {
    return hb_convert(&r->b, hb_const_f64(&r->b, t == DT_C64 ? DT_F32 : DT_F64, 1), t);
}
// Products of x, [rows.., n], over the leading `n_lead` of dims and its last dim, in two steps: of
// those `apart` elements apart, which lie beside each other in vectors, then of these.
static hv two_products(struct rule_ctx *r, const struct hlo_instr *i, hv x, int64_t apart,
                       int64_t *dims, int n_lead, hv init) {
    int64_t shape[HLO_MAX_RANK + 1], last;
    int rank = x->shape->rank;
    memcpy(shape, x->shape->dims, sizeof *shape * (size_t)rank);
    shape[rank] = apart;
    shape[rank - 1] /= apart;
    dims[n_lead] = rank - 1;
    x = hb_reshape(&r->b, x, shape, rank + 1);
    x = hb_call(&r->b, HLO_REDUCE, NULL, (hv[]){x, one(r, i->shape->dtype)}, 2,
                &(struct hlo_attr_dims){.dimensions = {dims, n_lead + 1}}, i->called, 1);
    last = x->shape->rank - 1;
    return hb_call(&r->b, HLO_REDUCE, i->shape, (hv[]){x, init}, 2,
                   &(struct hlo_attr_dims){.dimensions = {&last, 1}}, i->called, 1);
}
// Each product of a chain waits for both parts of the one before, and no vectoriser takes them
// apart. What does not fill the last vectors is a product of its own.
RULE_FN(product_of_complex) {
    enum { LEAST = 33, MOST_APART = 64, LEAST_APART = 8, APART = 16, TURNS = 4 };
    enum hlo_op op;
    const struct shape *s = i->operands[0]->shape;
    if (!simple(r, i, &op) || op != HLO_MULTIPLY || !dtype_is_complex(i->shape->dtype) ||
        s->dtype != i->shape->dtype || s->dynamic || s->layout || s->rank == HLO_MAX_RANK)
        return NULL;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    int64_t dims[HLO_MAX_RANK + 1], shape[HLO_MAX_RANK], n = 1;
    int kept = s->rank, lead = 0;
    while (kept > 0 && i64s_has(d, kept - 1))
        n *= s->dims[--kept];
    if (n < LEAST || shape_elements(s) == 0) return NULL;

    for (int k = 0; k < kept; k++) {
        shape[k] = s->dims[k];
        if (i64s_has(d, k)) dims[lead++] = k;
    }
    shape[kept] = n;
    int64_t apart = MOST_APART;
    while (apart >= LEAST_APART && (n % apart || n / apart < TURNS))
        apart /= 2;
    if (apart < LEAST_APART) apart = n < TURNS * APART ? LEAST_APART : APART;
    hv x = hb_reshape(&r->b, i->operands[0], shape, kept + 1), init = i->operands[1];
    int64_t rest = n % apart;
    if (!rest) return two_products(r, i, x, apart, dims, lead, init);

    struct range whole[HLO_MAX_RANK], behind[HLO_MAX_RANK];
    for (int k = 0; k <= kept; k++)
        whole[k] = behind[k] = (struct range){0, shape[k], 1};
    whole[kept].limit = behind[kept].start = n - rest;
    hv y = two_products(r, i, hb_slice(&r->b, x, whole), apart, dims, lead, init);
    dims[lead] = kept;
    hv z =
        hb_call(&r->b, HLO_REDUCE, i->shape, (hv[]){hb_slice(&r->b, x, behind), one(r, s->dtype)},
                2, &(struct hlo_attr_dims){.dimensions = {dims, lead + 1}}, i->called, 1);
    return hb_mul(&r->b, y, z);
}
