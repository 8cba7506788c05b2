// SPDX-License-Identifier: Apache-2.0
// Kernels of sort and topk. A unit sorts one line: positions (not elements) by a stable bottom-up
// merge sort in scratch, in which each element finds its place in the merged run by binary search
// in the other run. All loops are counted, so kir needs no branches; the comparator stands inline.
#include "base/span.h"
#include "compiler/kernel/lower.h"
#include "compiler/kernel/lower_priv.h"
#include "compiler/ops/lower/lower_rules.h"
#include "compiler/ops/rules.h"

enum { MAX_LINE = 1 << 30 };

struct line {
    const struct hlo_instr *i;
    int dim;
    int64_t n;
    struct kir_val *index[HLO_MAX_RANK + 1]; // of the line; index[dim] is set by those who ask
    int64_t order;                           // scratch: 2 n positions, s32
};

// Does position a come before position b?
static status_t before(struct lower *lw, struct line *l, struct kir_val *a, struct kir_val *b,
                       struct kir_val **out) {
    struct kir_val *args[2 * LOWER_MAX_RESULTS];
    const struct hlo_instr *i = l->i;
    for (int o = 0; o < i->n_operands; o++) {
        l->index[l->dim] = a;
        RETURN_IF_ERR(lower_operand(lw, i, o, l->index, &args[2 * o]));
        l->index[l->dim] = b;
        RETURN_IF_ERR(lower_operand(lw, i, o, l->index, &args[2 * o + 1]));
    }
    if (i->op == HLO_SORT) return lower_call(lw, i->called[0], args, 2 * i->n_operands, out);
    struct kir_val *x = kmath_total_order(&lw->k, args[0]), *y = kmath_total_order(&lw->k, args[1]);
    *out = kir_cmp(&lw->k, HLO_ATTR(i, topk)->largest ? CMP_GT : CMP_LT, x, y);
    return ST_OK;
}

static struct kir_val *load_order(struct lower *lw, const struct line *l, struct kir_val *at) {
    struct kir *k = &lw->k;
    struct kir_val *v =
        kir_load(k, KIR_SCRATCH, DT_S32, kir_idx_add(k, at, kir_i64(k, l->order / 4)), KF_PINNED);
    v = kir_cast(k, DT_S64, v);
    v->lo = 0;
    v->hi = l->n - 1;
    return v;
}
static void store_order(struct lower *lw, const struct line *l, struct kir_val *at,
                        struct kir_val *v) {
    struct kir *k = &lw->k;
    kir_store(k, KIR_SCRATCH, DT_S32, kir_idx_add(k, at, kir_i64(k, l->order / 4)),
              kir_cast(k, DT_S32, v));
}
static struct kir_val *two(struct kir *k, enum kop op, struct kir_val *x, struct kir_val *y) {
    return kir_op(k, op, x, y, NULL);
}

// One element of one pass: runs of 2^pass positions pairwise become runs of twice that.
static status_t place(struct lower *lw, struct line *l, struct kir_val *pass, struct kir_val *e) {
    struct kir *k = &lw->k;

    struct kir_val *n = kir_i64(k, l->n), *zero = kir_i64(k, 0), *one = kir_i64(k, 1);
    struct kir_val *w = two(k, K_SHL, one, pass), *wide = two(k, K_ADD, pass, one);
    struct kir_val *from =
                       kir_select(k, kir_cmp(k, CMP_EQ, two(k, K_AND, pass, one), one), n, zero),
                   *to = two(k, K_SUB, n, from);

    struct kir_val *base = two(k, K_SHL, two(k, K_SHR, e, wide), wide);
    struct kir_val *mid = two(k, K_MIN, two(k, K_ADD, base, w), n),
                   *end = two(k, K_MIN, two(k, K_ADD, mid, w), n);
    struct kir_val *right = kir_cmp(k, CMP_GE, e, mid);

    struct kir_val *mine = load_order(lw, l, two(k, K_ADD, from, e));
    struct kir_val *start = kir_select(k, right, base, mid);
    struct kir_val *range[2] = {start, kir_select(k, right, mid, end)}, *next[2], *less;

    struct kir_loop *search = kir_for(k, zero, wide, 64, range, 2);
    struct kir_val *lo = search->carry[0], *hi = search->carry[1];
    struct kir_val *m = two(k, K_SHR, two(k, K_ADD, lo, hi), one);
    struct kir_val *probe = two(k, K_MIN, m, kir_i64(k, l->n - 1));
    struct kir_val *other = load_order(lw, l, two(k, K_ADD, from, probe));

    // Of equal elements the left one comes first.
    RETURN_IF_ERR(
        before(lw, l, kir_select(k, right, mine, other), kir_select(k, right, other, mine), &less));

    struct kir_val *further = two(k, K_XOR, less, right), *open = kir_cmp(k, CMP_LT, lo, hi);
    next[0] = kir_select(k, two(k, K_AND, open, further), two(k, K_ADD, m, one), lo);
    next[1] =
        kir_select(k, two(k, K_AND, open, two(k, K_XOR, further, kir_int(k, DT_PRED, 1))), m, hi);
    kir_end(k, search, next);

    // base + how many of my run come before me + how many of the other.
    struct kir_val *own = two(k, K_SUB, e, kir_select(k, right, mid, base));
    struct kir_val *others = two(k, K_SUB, search->result[0], start);
    struct kir_val *at = two(k, K_ADD, two(k, K_ADD, base, own), others);
    store_order(lw, l, two(k, K_ADD, to, at), mine);
    return ST_OK;
}

// Sorts the line; *out_at: where its order lies among the 2 n positions.
static status_t sort_line(struct lower *lw, struct line *l, int64_t *out_at) {
    struct kir *k = &lw->k;
    int passes = 0;
    while ((INT64_C(1) << passes) < l->n)
        passes++;
    struct kir_val *zero = kir_i64(k, 0), *n = kir_i64(k, l->n);
    struct kir_loop *fill = kir_for(k, zero, n, l->n, NULL, 0);
    store_order(lw, l, fill->var, fill->var);
    kir_end(k, fill, NULL);
    struct kir_loop *pass = kir_for(k, zero, kir_i64(k, passes), passes, NULL, 0);
    struct kir_loop *each = kir_for(k, zero, n, l->n, NULL, 0);
    RETURN_IF_ERR(place(lw, l, pass->var, each->var));
    kir_end(k, each, NULL);
    kir_end(k, pass, NULL);
    *out_at = passes % 2 ? l->n : 0;
    return ST_OK;
}

// Opens the loop over lines and sorts one.
static status_t begin_line(struct lower *lw, struct line *l, struct kir_loop **out_unit,
                           int64_t *out_at) {
    struct kir *k = &lw->k;
    const struct shape *s = l->i->operands[0]->shape;
    int64_t others[HLO_MAX_RANK + 1], lines = 1;
    struct kir_val *at[HLO_MAX_RANK + 1];
    int rank = 0;
    l->n = s->dims[l->dim];
    if (l->n > MAX_LINE) return lower_no(lw, "lines that are too long");
    for (int d = 0; d < s->rank; d++)
        if (d != l->dim) lines *= others[rank++] = s->dims[d];
    k->fn->extent = l->n ? lines : 0;
    l->order = lower_scratch(lw, DT_S32, 2 * l->n);
    *out_unit = kir_for(k, k->fn->begin, k->fn->end, lines, NULL, 0);
    if (lines == 0 || l->n == 0) return ST_OK;
    lower_unflatten(lw, (*out_unit)->var, others, rank, at);
    for (int d = 0, o = 0; d < s->rank; d++)
        if (d != l->dim) l->index[d] = at[o++];
    return sort_line(lw, l, out_at);
}

// ---- short lines side by side in vectors

enum { MOST_ROWS = 64 };
struct beside {
    const struct hlo_instr *i;
    int64_t n, lines, at[LOWER_MAX_RESULTS]; // of a block; where each operand's lie in scratch
    struct kir_val *v[LOWER_MAX_RESULTS][MOST_ROWS]; // of each operand the line's elements
};
// Puts elements a and b of the line, a before b, in order.
static status_t exchange(struct lower *lw, struct beside *s, int a, int b) {
    struct kir_val *args[2 * LOWER_MAX_RESULTS], *swap;
    struct kir *k = &lw->k;
    enum cmp_direction d;
    if (rule_sort_plain(s->i, &d)) {
        struct kir_val *x = s->v[0][a], *y = s->v[0][b];
        s->v[0][a] = two(k, d == CMP_LT ? K_MIN : K_MAX, x, y);
        s->v[0][b] = two(k, d == CMP_LT ? K_MAX : K_MIN, x, y);
        return ST_OK;
    }
    for (int o = 0; o < s->i->n_operands; o++) {
        args[2 * o] = s->v[o][b];
        args[2 * o + 1] = s->v[o][a];
    }
    RETURN_IF_ERR(lower_call(lw, s->i->called[0], args, 2 * s->i->n_operands, &swap));
    for (int o = 0; o < s->i->n_operands; o++) {
        struct kir_val *x = s->v[o][a], *y = s->v[o][b];
        s->v[o][a] = kir_select(k, swap, y, x);
        s->v[o][b] = kir_select(k, swap, x, y);
    }
    return ST_OK;
}
// Equal elements stay in order where only neighbours change places: odd and even pairs in turn
// (Knuth, The Art of Computer Programming, volume 3, 5.3.4). Integers that are equal are the same:
// Batcher's merge exchange (there 5.2.2, algorithm M) has fewer.
static status_t exchanges(struct lower *lw, struct beside *s) {
    enum cmp_direction d;
    int n = (int)s->n, top = 1;
    if (!rule_sort_plain(s->i, &d)) {
        for (int round = 0; round < n; round++)
            for (int a = round % 2; a + 1 < n; a += 2)
                RETURN_IF_ERR(exchange(lw, s, a, a + 1));
        return ST_OK;
    }
    while (2 * top < n)
        top *= 2;
    for (int p = top; p > 0; p /= 2)
        for (int q = top, r = 0, apart = p;; apart = q - p, q /= 2, r = p) {
            for (int a = 0; a + apart < n; a++)
                if ((a & p) == r) RETURN_IF_ERR(exchange(lw, s, a, a + apart));
            if (q == p) break;
        }
    return ST_OK;
}
static status_t sort_lines(struct lower *lw, struct beside *s, struct kir_val **index, int dim) {
    for (int64_t e = 0; e < s->n; e++) {
        index[dim] = kir_i64(&lw->k, e);
        for (int o = 0; o < s->i->n_operands; o++)
            RETURN_IF_ERR(lower_operand(lw, s->i, o, index, &s->v[o][e]));
    }
    RETURN_IF_ERR(exchanges(lw, s));
    for (int64_t e = 0; e < s->n; e++) {
        index[dim] = kir_i64(&lw->k, e);
        for (int o = 0; o < s->i->n_operands; o++)
            lower_put(lw, s->i, o, index, s->v[o][e]);
    }
    return ST_OK;
}
// Where element e of a block's line `at` lies in scratch, the lines side by side.
static struct kir_val *turned(struct lower *lw, const struct beside *s, int o, struct kir_val *e,
                              struct kir_val *at) {
    struct kir *k = &lw->k;
    return lower_scratch_index(lw, s->i->operands[o]->shape->dtype, s->at[o],
                               kir_idx_add(k, kir_idx_mul(k, e, s->lines), at));
}
static struct kir_val *load_turned(struct lower *lw, const struct beside *s, int o,
                                   struct kir_val *e, struct kir_val *at) {
    enum dtype t = lower_scratch_type(s->i->operands[o]->shape->dtype);
    return kir_load(&lw->k, KIR_SCRATCH, t, turned(lw, s, o, e, at), KF_PINNED);
}
static void store_turned(struct lower *lw, const struct beside *s, int o, struct kir_val *e,
                         struct kir_val *at, struct kir_val *v) {
    enum dtype t = lower_scratch_type(s->i->operands[o]->shape->dtype);
    kir_store(&lw->k, KIR_SCRATCH, t, turned(lw, s, o, e, at), v);
}
// The index of element e of line `at` of the block that begins at `begin`.
static void index_of(struct lower *lw, const struct beside *s, struct kir_val *begin,
                     struct kir_val *at, struct kir_val *e, struct kir_val **index) {
    const struct shape *x = s->i->operands[0]->shape;
    int dim = (int)HLO_ATTR(s->i, sort)->dimensions.v[0];
    lower_unflatten(lw, kir_idx_add(&lw->k, begin, at), x->dims, dim, index);
    for (int d = dim + 1; d < x->rank; d++)
        index[d] = kir_i64(&lw->k, 0);
    index[dim] = e;
}
// Lines whose own elements are neighbours are turned in scratch, sorted there, and turned back.
static status_t sort_turned(struct lower *lw, struct beside *s, struct kir_val *begin,
                            struct kir_val *count) {
    struct kir *k = &lw->k;
    struct kir_val *zero = kir_i64(k, 0), *n = kir_i64(k, s->n), *index[HLO_MAX_RANK + 1], *v;
    struct kir_loop *each, *line;
    int operands = s->i->n_operands;
    for (int o = 0; o < operands; o++) {
        each = kir_for(k, zero, n, s->n, NULL, 0);
        line = kir_for(k, zero, count, s->lines, NULL, 0);
        line->vectorize = true;
        index_of(lw, s, begin, line->var, each->var, index);
        RETURN_IF_ERR(lower_operand(lw, s->i, o, index, &v));
        store_turned(lw, s, o, each->var, line->var, v);
        kir_end(k, line, NULL);
        kir_end(k, each, NULL);
    }

    line = kir_for(k, zero, count, s->lines, NULL, 0);
    line->vectorize = true;
    for (int64_t e = 0; e < s->n * operands; e++)
        s->v[e / s->n][e % s->n] =
            load_turned(lw, s, (int)(e / s->n), kir_i64(k, e % s->n), line->var);
    RETURN_IF_ERR(exchanges(lw, s));
    for (int64_t e = 0; e < s->n * operands; e++)
        store_turned(lw, s, (int)(e / s->n), kir_i64(k, e % s->n), line->var,
                     s->v[e / s->n][e % s->n]);
    kir_end(k, line, NULL);

    for (int o = 0; o < operands; o++) {
        line = kir_for(k, zero, count, s->lines, NULL, 0);
        each = kir_for(k, zero, n, s->n, NULL, 0);
        each->vectorize = true;
        index_of(lw, s, begin, line->var, each->var, index);
        lower_put(lw, s->i, o, index, load_turned(lw, s, o, each->var, line->var));
        kir_end(k, each, NULL);
        kir_end(k, line, NULL);
    }
    return ST_OK;
}
static status_t sort_beside(struct lower *lw, const struct hlo_instr *i) {
    enum { BLOCK = 4096, LEAST = 64, MOST = 256 };
    struct kir *k = &lw->k;
    struct beside *s = arena_new_of(lw->arena, struct beside);
    const struct shape *x = i->operands[0]->shape;
    int dim = (int)HLO_ATTR(i, sort)->dimensions.v[0];
    struct kir_val *index[HLO_MAX_RANK + 1];
    int64_t before = 1, behind = 1;
    s->i = i;
    s->n = x->dims[dim];
    for (int d = 0; d < x->rank; d++)
        if (d != dim) *(d < dim ? &before : &behind) *= x->dims[d];

    // The lines that lie side by side: those behind the line's dimension, else all.
    bool last = behind == 1;
    int64_t lines = BLOCK / s->n / 16 * 16, beside = last ? before : behind;
    s->lines = lines < LEAST ? LEAST : lines > MOST ? MOST : lines;
    if (s->lines > beside) s->lines = beside;
    int64_t blocks = ceil_div(beside, s->lines), units = last ? blocks : before * blocks;
    k->fn->extent = units;
    k->fn->rows = k->fn->exchanges = true;
    for (int o = 0; o < i->n_operands && last; o++)
        s->at[o] = lower_scratch(lw, i->operands[o]->shape->dtype, s->lines * s->n);

    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0);
    struct kir_val *begin = kir_idx_mul(k, kir_idx_divmod(k, u->var, 1, blocks), s->lines),
                   *end = kir_op(k, K_MIN, kir_idx_add(k, begin, kir_i64(k, s->lines)),
                                 kir_i64(k, beside), NULL);
    if (last) {
        RETURN_IF_ERR(sort_turned(lw, s, begin, kir_idx_add(k, end, kir_idx_mul(k, begin, -1))));
    } else {
        lower_unflatten(lw, kir_idx_divmod(k, u->var, blocks, 0), x->dims, dim, index);
        struct kir_loop *l = kir_for(k, begin, end, s->lines, NULL, 0);
        l->vectorize = true;
        lower_unflatten(lw, l->var, x->dims + dim + 1, x->rank - dim - 1, index + dim + 1);
        RETURN_IF_ERR(sort_lines(lw, s, index, dim));
        kir_end(k, l, NULL);
    }
    kir_end(k, u, NULL);
    return ST_OK;
}

WHOLE(SORT) {
    struct kir *k = &lw->k;
    if (lw->policy->tiles == TILES_OF_CPU && !lw->elements && rule_sort_beside(i))
        return sort_beside(lw, i);
    struct line l = {.i = i, .dim = (int)HLO_ATTR(i, sort)->dimensions.v[0]};
    struct kir_loop *unit, *each;
    int64_t order = 0;
    if (i->n_operands > LOWER_MAX_RESULTS) return lower_no(lw, "too many operands");
    RETURN_IF_ERR(begin_line(lw, &l, &unit, &order));
    if (k->fn->extent) {
        each = kir_for(k, kir_i64(k, 0), kir_i64(k, l.n), l.n, NULL, 0);
        struct kir_val *from = load_order(lw, &l, kir_idx_add(k, each->var, kir_i64(k, order))), *v;
        for (int o = 0; o < i->n_operands; o++) {
            l.index[l.dim] = from;
            RETURN_IF_ERR(lower_operand(lw, i, o, l.index, &v));
            l.index[l.dim] = each->var;
            lower_put(lw, i, o, l.index, v);
        }
        kir_end(k, each, NULL);
    }
    kir_end(k, unit, NULL);
    return ST_OK;
}

WHOLE(TOPK) {
    struct kir *k = &lw->k;
    struct line l = {.i = i, .dim = i->operands[0]->shape->rank - 1};
    int64_t order = 0, n = HLO_ATTR(i, topk)->k;
    struct kir_loop *unit, *each;
    if (dtype_is_complex(i->operands[0]->shape->dtype))
        return lower_no(lw, "an order of complex numbers");
    RETURN_IF_ERR(begin_line(lw, &l, &unit, &order));
    if (k->fn->extent && n) {
        each = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
        struct kir_val *from = load_order(lw, &l, kir_idx_add(k, each->var, kir_i64(k, order))), *v;
        l.index[l.dim] = from;
        RETURN_IF_ERR(lower_operand(lw, i, 0, l.index, &v));
        l.index[l.dim] = each->var;
        lower_put(lw, i, 0, l.index, v);
        lower_put(lw, i, 1, l.index, kir_cast(k, kir_type(i->shape->elems[1]->dtype), from));
        kir_end(k, each, NULL);
    }
    kir_end(k, unit, NULL);
    return ST_OK;
}
