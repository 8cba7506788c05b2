// SPDX-License-Identifier: Apache-2.0
// Edges: turns of a loop at which a comparison or a bound of its variable changes sides: where the
// padding begins, or the next operand of a concatenation. The loops of the result begin anew there
// (lower.c), so that in each part the comparison is decided, what it leaves out is not computed,
// and loads read neighbours. Only the two innermost loops: further out a condition costs little.
// Does not: conditions on more than one loop, and reductions.
// And how many vectors of a long body run side by side.
#include "compiler/kernel/lower_priv.h"

// Turns of a part of the innermost loop, with vectors of 128 bits and longer ones; edges of the
// loop around it.
enum { SMALL_PART = 4, LEAST_PART = 8, MOST_OUTER = 6 };

// A sum of constants and up to two loop variables of the result.
enum { LINE_TERMS = 2 };
struct line {
    int64_t stride[LINE_TERMS], coef[LINE_TERMS], base;
    int terms; // more than LINE_TERMS: no such sum
};
static void add_loop(struct line *l, int64_t stride, int64_t c) {
    int k = 0;
    while (k < l->terms && k < LINE_TERMS && l->stride[k] != stride)
        k++;
    if (k == l->terms) l->terms++;
    if (k == LINE_TERMS) return;
    l->coef[k] = k + 1 == l->terms ? c : l->coef[k] + c;
    l->stride[k] = stride;
}
static void add(const struct lower *lw, struct line *l, const struct kir_val *v, int64_t c) {
    int64_t k;
    const struct lower_units *u = &lw->units;
    bool divided = v->op == K_DIVMOD && v->args[0] == u->var && v->imm_j == u->extent;
    if (kir_is_const(v, &k)) {
        l->base += c * k;
    } else if (v->op == K_ADD) {
        add(lw, l, v->args[0], c);
        add(lw, l, v->args[1], c);
    } else if (v->op == K_MUL && (kir_is_const(v->args[0], &k) || kir_is_const(v->args[1], &k)) &&
               k < INT32_MAX && c < INT32_MAX) {
        add(lw, l, v->args[v->args[0]->op == K_CONST], c * k);
    } else if (v->op == K_VAR && pmap_get_ptr(&lw->var_space, v) == lw->result) {
        add_loop(l, v->imm_j, c);
    } else if (u->var &&
               (divided ? v->imm_i == u->below : v == u->var && u->below == 1 && u->extent == 0)) {
        add_loop(l, u->stride, c); // the loop of this stride lies in the units
    } else {
        l->terms = LINE_TERMS + 1;
    }
}
static int64_t up(int64_t a, int64_t b) { // b > 0
    return a >= 0 ? (a + b - 1) / b : -(-a / b);
}
static void note(struct lower *lw, int64_t stride, int64_t at, bool place) {
    struct lower_space *s = lw->result;
    bool inner = stride == lower_width(s), outer = !place && s->n && stride == s->cut[s->n - 1];
    if ((!inner && !outer) || at <= 0 || s->n_edges == LOWER_MAX_EDGES) return;
    for (int k = 0; k < s->n_edges; k++)
        if (s->edge[k].stride == stride && s->edge[k].at == at) return;
    s->edge[s->n_edges++] = (struct lower_edge){stride, at};
}
// The two innermost loops' terms as one of the outer's: coefficient in *a, what else there is lies
// between *lo and *hi.
static bool by_outer(const struct lower_space *s, const struct line *l, int64_t *a, int64_t *lo,
                     int64_t *hi) {
    int64_t inner = lower_width(s);
    int o = l->terms == 2 && l->stride[0] == inner; // which of them is the outer's
    if (l->terms != 2 || !s->n || l->stride[o] != s->cut[s->n - 1] || l->stride[!o] != inner)
        return false;
    int64_t most = l->coef[!o] * (s->cut[s->n - 1] / inner - 1);
    *a = l->coef[o];
    *lo = l->base + (most < 0 ? most : 0);
    *hi = l->base + (most > 0 ? most : 0);
    return true;
}
static void look(void *ctx, struct kir_val *v) {
    struct lower *lw = ctx;
    struct line l = {0};
    if ((v->op != K_CMP && v->op != K_MIN && v->op != K_MAX) || v->args[0]->type != DT_S64) return;
    add(lw, &l, v->args[0], 1);
    add(lw, &l, v->args[1], -1);
    int64_t a = l.coef[0], lo = l.base, hi = l.base, stride = l.stride[0];
    if (by_outer(lw->result, &l, &a, &lo, &hi))
        stride = lw->result->cut[lw->result->n - 1];
    else if (l.terms != 1)
        return;
    if (a == 0) return;
    bool turned = a < 0;
    if (turned) {
        int64_t was = lo;
        a = -a, lo = -hi, hi = -was;
    }
    // a x + lo .. a x + hi changes from below 0 to 0 or more at `from`, to more than 0 at `past`.
    int64_t from = up(-lo, a), past = up(1 - lo, a);
    bool equal = v->op == K_CMP && (v->imm_i == CMP_EQ || v->imm_i == CMP_NE);
    bool strict = v->op == K_CMP && (v->imm_i == CMP_GT || v->imm_i == CMP_LE) ? !turned : turned;
    if (v->op != K_CMP) strict = v->op == K_MIN; // the variable itself lies between two edges
    bool place = v->flags & KF_PLACE;
    if ((equal || !strict) && a * (from - 1) + hi < 0) note(lw, stride, from, place);
    if ((equal || strict) && a * (past - 1) + hi <= 0) note(lw, stride, past, place);
}
bool lower_edges_find(struct lower *lw) {
    struct lower_space *s = lw->result;
    int before = s->n_edges;
    if (lw->edges != EDGES_ALL || lw->reduces || lw->cached.n) return false;
    kir_each(&lw->k.fn->top, look, lw);
    return s->n_edges > before;
}
// Of the parts of the innermost loop the longest stays, with what lies before it and behind: where
// a window of many elements hangs over, turns of few kinds share one loop.
static bool keep_longest(struct lower *lw) {
    struct lower_space *s = lw->result;
    int64_t inner = lower_width(s), begin[LOWER_MAX_EDGES + 1];
    int64_t extent = (s->n ? s->cut[s->n - 1] : s->total) / inner, from = 0, to = 0;
    int n = lower_parts(lw, s, inner, extent, true, begin), kept = 0;
    for (int k = 0; k < n; k++) {
        int64_t end = k + 1 < n ? begin[k + 1] : extent;
        if (end - begin[k] > to - from) from = begin[k], to = end;
    }
    for (int k = 0; k < s->n_edges; k++)
        if (s->edge[k].stride == inner && (s->edge[k].at == from || s->edge[k].at == to))
            s->edge[kept++] = s->edge[k];
    bool fewer = kept && kept < s->n_edges;
    s->n_edges = kept;
    return fewer;
}
bool lower_edges_fewer(struct lower *lw) {
    enum { EDGE_VALUES = 600, LONGEST_VALUES = 900 }; // of a kernel
    struct lower_space *s = lw->result;
    uint32_t most = lw->edges == EDGES_ALL ? EDGE_VALUES : LONGEST_VALUES;
    if (lw->k.n_vals <= most || !s->n_edges) return false;
    bool longest = lw->edges == EDGES_ALL && keep_longest(lw);
    lw->edges = longest ? EDGES_LONGEST : EDGES_NONE;
    if (!longest) s->n_edges = 0;
    return true;
}
int lower_parts(const struct lower *lw, const struct lower_space *s, int64_t stride, int64_t extent,
                bool innermost, int64_t *begin) {
    bool small = lw->target && lw->target->vector_bits == 128;
    int n = 1;
    begin[0] = 0;
    for (int k = 0; k < s->n_edges; k++) {
        if (s->edge[k].stride != stride || s->edge[k].at >= extent) continue;
        int at = n++;
        for (; at > 1 && begin[at - 1] > s->edge[k].at; at--)
            begin[at] = begin[at - 1];
        begin[at] = s->edge[k].at;
    }
    if (innermost ? extent / n < (small ? SMALL_PART : LEAST_PART) : n - 1 > MOST_OUTER) n = 1;
    return n;
}

// ---- vectors side by side

// A long loop body is often a chain of operations that wait for each other, longer than what a
// processor looks ahead: then several vectors side by side share the waiting. How many is decided
// by the chain's length, by how many operations there are to fill it with, and by how many values
// are kept at a time, which want registers (measured on Zen 3 with AVX2: docs/performance.md).
enum { FEW_KEPT = 3, SOME_KEPT = 7, MANY_KEPT = 10, LONG_BODY = 40 };

static bool counts(const struct kir_val *v) {
    return v->type != DT_S64; // indices are the loop's own
}
// Cycles until the result is there, about those of processors of today.
static int latency(const struct kir_val *v) {
    bool floats = dtype_is_float(v->type) || (v->n_args && dtype_is_float(v->args[0]->type));
    switch (v->op) {
    case K_SQRT:
        return 14;
    case K_DIV:
        return 11;
    case K_FLOOR:
    case K_CEIL:
    case K_RINT:
        return 6;
    case K_LOAD:
        return 5;
    case K_STORE:
        return 0;
    case K_BITS:
    case K_NEG:
    case K_ABS:
    case K_COPYSIGN:
    case K_SELECT:
        return 1;
    default:
        return floats ? 4 : 1;
    }
}
// The longest chain in cycles; *out_ops: all operations.
static int chain_of(const struct kir_block *b, int *out_ops) {
    struct pmap at = {0}; // value -> cycles until it is there
    int longest = 0;
    *out_ops = 0;
    for (struct kir_val *v = b->first; v; v = v->next) {
        intptr_t from = 0;
        if (!counts(v)) continue;
        for (int a = 0; a < v->n_args; a++) {
            intptr_t e = (intptr_t)pmap_get_ptr(&at, v->args[a]);
            if (e > from) from = e;
        }
        from += latency(v);
        ++*out_ops;
        pmap_put_ptr(&at, v, (void *)from);
        if (from > longest) longest = (int)from;
    }
    pmap_done(&at);
    return longest;
}
// Values that are kept at most at a time, in the order in which they are made.
static int most_kept(const struct kir_block *b) {
    struct pmap last = {0}; // value -> the last one that needs it
    int kept = 0, most = 0;
    for (struct kir_val *v = b->first; v; v = v->next)
        for (int a = 0; a < v->n_args; a++)
            if (v->args[a]->block == b) pmap_put_ptr(&last, v->args[a], v);

    for (const struct kir_val *v = b->first; v; v = v->next) {
        for (int a = 0; a < v->n_args; a++) {
            bool ends = counts(v->args[a]) && pmap_get_ptr(&last, v->args[a]) == v;
            for (int e = 0; e < a; e++)
                ends &= v->args[e] != v->args[a];
            kept -= ends;
        }
        kept += counts(v) && pmap_has_ptr(&last, v);
        if (kept > most) most = kept;
    }
    pmap_done(&last);
    return most;
}
uint8_t lower_side_by_side(const struct lower *lw, const struct kir_block *b) {
    if (lw->target && lw->target->vector_bits < 256) return 0;
    int ops, chain = chain_of(b, &ops), kept = most_kept(b);
    if (kept <= FEW_KEPT || (2 * chain > 3 * ops && kept <= MANY_KEPT)) return 4;
    return kept <= SOME_KEPT || 5 * chain > 6 * ops ? 2 : 0;
}
uint8_t lower_long_body(const struct lower *lw, const struct kir_block *b, int64_t trip) {
    int ops;
    chain_of(b, &ops);
    if (ops <= LONG_BODY) return 0;
    uint8_t n = lower_side_by_side(lw, b);
    int64_t lanes = lw->target ? lw->target->vector_bits / 32 : 1;
    return trip / lanes >= n ? n : 0; // so many vectors that none is left would be no vectors
}
