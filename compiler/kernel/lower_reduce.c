// SPDX-License-Identifier: Apache-2.0
// Reductions: reduce, dot, convolution and windows all come here. See lower.h.
#include "compiler/kernel/lower.h"
#include "compiler/kernel/lower_priv.h"

enum { MAX_ACC = 2 * LOWER_MAX_RESULTS, UNROLL = 8 };

// Carried values are real: complex accumulators travel as two.
static int split(struct lower *lw, const struct lower_reduce *f, struct kir_val *const *acc,
                 struct kir_val **flat) {
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        flat[n++] = kir_re(&lw->k, acc[i]);
        if (dtype_is_complex(f->type[i])) flat[n++] = kir_im(&lw->k, acc[i]);
    }
    return n;
}
static void join(struct lower *lw, const struct lower_reduce *f, struct kir_val *const *flat,
                 struct kir_val **acc) {
    for (int i = 0; i < f->n; i++) {
        acc[i] = *flat++;
        if (dtype_is_complex(f->type[i])) acc[i] = kir_complex(&lw->k, acc[i], *flat++);
    }
}

static status_t straight(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                         struct kir_val **acc) {
    for (int64_t r = 0; r < f->total; r++) {
        struct kir_val *next[LOWER_MAX_RESULTS];
        RETURN_IF_ERR(f->step(lw, f, index, kir_i64(&lw->k, r), acc, next));
        memcpy(acc, next, sizeof(struct kir_val *) * (size_t)f->n);
        if (lw->k.overflow) return lower_no(lw, "the kernel is too large");
    }
    return ST_OK;
}

// Loops over r inside the element, at the level of the index.
static status_t inner_nest(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                           UNUSED int rank, struct kir_val **acc) {
    struct kir *k = &lw->k;
    struct lower_space *sp = lower_space(lw, f->i, f->total);
    struct kir_loop *loops[LOWER_MAX_CUTS + 1] = {NULL};
    struct kir_val *flat[MAX_ACC], *r = kir_i64(k, 0);
    int base = k->depth, n = split(lw, f, acc, flat);

    for (int i = 0; i <= sp->n; i++) {
        int64_t stride = i == sp->n ? 1 : sp->cut[i],
                extent = (i ? sp->cut[i - 1] : sp->total) / stride;
        loops[i] = kir_for(k, kir_i64(k, 0), kir_i64(k, extent), extent, flat, n);
        memcpy(flat, loops[i]->carry, sizeof(struct kir_val *) * (size_t)n);
        lower_track(lw, loops[i]->var, sp, stride);
        r = kir_idx_add(k, r, kir_idx_mul(k, loops[i]->var, stride));
    }

    struct kir_loop *last = loops[sp->n];
    last->vectorize = true;
    struct lower_row row = {.var = last->var,
                            .begin = last->begin,
                            .end = last->end,
                            .base = base,
                            .extent = sp->total,
                            .reduces = true,
                            .outer = lw->row};
    lw->row = sp->n == 0 && !lw->policy->elements ? &row : NULL;

    struct kir_val *in[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
    join(lw, f, flat, in);
    status_t st = f->step(lw, f, index, r, in, next);
    lw->row = row.outer;
    if (st) return st;

    split(lw, f, next, flat);
    for (int i = sp->n; i >= 0; i--) {
        kir_end(k, loops[i], flat);
        memcpy(flat, loops[i]->result, sizeof(struct kir_val *) * (size_t)n);
        if (i == sp->n) lower_kept_ready(lw, last->var);
    }
    join(lw, f, flat, acc);
    return ST_OK;
}

struct kir_loop *lower_row_loop(struct lower *lw, const struct lower_row *row,
                                struct kir_val **out_at) {
    struct kir *k = &lw->k;
    struct kir_loop *l = kir_for(k, row->begin, row->end, row->extent, NULL, 0);
    l->var->lo = row->var->lo;
    l->var->hi = row->var->hi;
    l->vectorize = true;
    struct lower_space *sp = pmap_get_ptr(&lw->var_space, row->var);
    if (sp) lower_track(lw, l->var, sp, row->var->imm_j); // it runs over the same positions
    *out_at = kir_idx_add(k, l->var, kir_idx_mul(k, row->begin, -1));
    return l;
}

// One pass of the row's loop: acc[at] = step applied to r, r+1, ... r+times-1.
static status_t column_pass(struct lower *lw, struct lower_reduce *f, const struct lower_row *row,
                            struct kir_val *const *canon_index, int rank, struct kir_val *canon,
                            const int64_t *acc_at, struct kir_val *r, int times) {
    struct kir *k = &lw->k;
    struct kir_val *at, *index[HLO_MAX_RANK + 1], *acc[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
    struct kir_loop *l = lower_row_loop(lw, row, &at);
    for (int d = 0; d < rank; d++)
        index[d] = kir_subst(k, canon_index[d], canon, l->var);

    struct lower_row inner = *row, *outer = lw->row;
    inner.var = l->var;
    if (r) {
        for (int i = 0; i < f->n; i++)
            acc[i] = kir_load(k, KIR_SCRATCH, lower_scratch_type(f->type[i]),
                              lower_scratch_index(lw, f->type[i], acc_at[i], at), KF_PINNED);
        lw->row = &inner;
        for (int t = 0; t < times; t++) {
            status_t st = f->step(lw, f, index, kir_idx_add(k, r, kir_i64(k, t)), acc, next);
            if (st) {
                lw->row = outer;
                return st;
            }
            memcpy(acc, next, sizeof acc);
        }
        lw->row = outer;
    } else {
        RETURN_IF_ERR(f->init(lw, f, acc));
    }

    for (int i = 0; i < f->n; i++)
        kir_store(k, KIR_SCRATCH, lower_scratch_type(f->type[i]),
                  lower_scratch_index(lw, f->type[i], acc_at[i], at), acc[i]);
    kir_end(k, l, NULL);
    return ST_OK;
}

static status_t column_nest(struct lower *lw, struct lower_reduce *f, struct lower_kept *kept,
                            const struct lower_row *row, int rank, struct kir_val *canon) {
    struct kir *k = &lw->k;
    struct lower_space *sp = lower_space(lw, f->i, f->total);
    struct kir_loop *loops[LOWER_MAX_CUTS + 1] = {NULL};
    struct kir_val *r = kir_i64(k, 0), *rest_at = NULL;
    int times = 1, rest = 0;
    RETURN_IF_ERR(column_pass(lw, f, row, kept->index, rank, canon, kept->at, NULL, 0));
    for (int i = 0; i <= sp->n; i++) {
        int64_t stride = i == sp->n ? 1 : sp->cut[i],
                extent = (i ? sp->cut[i - 1] : sp->total) / stride;
        if (i == sp->n) {
            times = extent < UNROLL ? (int)extent : UNROLL;
            rest = (int)(extent % times);
            rest_at = kir_idx_add(k, r, kir_i64(k, (extent - rest) * stride));
        }
        loops[i] = kir_for(k, kir_i64(k, 0), kir_i64(k, extent / times), extent / times, NULL, 0);
        if (times == 1) lower_track(lw, loops[i]->var, sp, stride);
        r = kir_idx_add(k, r, kir_idx_mul(k, loops[i]->var, stride * times));
    }
    RETURN_IF_ERR(column_pass(lw, f, row, kept->index, rank, canon, kept->at, r, times));
    kir_end(k, loops[sp->n], NULL);
    if (rest)
        RETURN_IF_ERR(column_pass(lw, f, row, kept->index, rank, canon, kept->at, rest_at, rest));
    for (int i = sp->n - 1; i >= 0; i--)
        kir_end(k, loops[i], NULL);
    return ST_OK;
}

// Another place where a fusion computes this reduction. Integers are the same in any order.
static void note_place(struct lower *lw, const struct lower_reduce *f) {
    bool floats = false;
    for (int n = 0; n < f->n; n++)
        floats |= dtype_is_float(f->type[n]) || dtype_is_complex(f->type[n]);
    if (!floats || lw->instr->op != HLO_FUSION) return;
    lw->twice |= pmap_has_ptr(&lw->reductions, f->i);
    pmap_put_ptr(&lw->reductions, f->i, (void *)(uintptr_t)f->i);
}

// Reduces a whole row at once, where the index is a function of the row's variable and of what is
// known outside of the row.
static status_t column(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                       int rank, bool *done, struct kir_val **out) {
    struct kir *k = &lw->k;
    struct lower_row *row = lw->row;
    *done = false;
    if (!f->column || !row || row->extent < 4 || lower_level(index, rank) <= row->base)
        return ST_OK;
    if (row->extent > 8192) {
        lw->want_chunk = true;
        return ST_OK;
    }

    struct kir_block *now = kir_at_level(k, row->base);
    struct kir_val *canon = lower_canon(lw, row), *cindex[HLO_MAX_RANK + 1];
    kir_restore(k, now);
    bool fits = true;
    for (int d = 0; d < rank && fits; d++) {
        cindex[d] = kir_subst(k, index[d], row->var, canon);
        fits = cindex[d] && cindex[d]->level <= row->base;
    }
    if (!fits) return ST_OK;

    struct lower_kept *kept = lower_find_kept(lw, f->i, cindex, rank, row);
    if (!kept) {
        kept = lower_keep(lw, f->i, cindex, rank, row);
        for (int i = 0; i < f->n; i++)
            kept->at[i] = lower_scratch(lw, f->type[i], row->extent);
        kir_at_level(k, row->base);
        struct lower_row copy = *row;
        note_place(lw, f);
        status_t st = column_nest(lw, f, kept, &copy, rank, canon);
        kir_restore(k, now);
        if (st) return st;
        kept->ready = true;
    }
    if (!kept->ready) return lower_no(lw, "a reduction of itself");

    struct kir_val *at = kir_idx_add(k, row->var, kir_idx_mul(k, row->begin, -1));
    for (int i = 0; i < f->n; i++)
        out[i] = kir_load(k, KIR_SCRATCH, lower_scratch_type(f->type[i]),
                          lower_scratch_index(lw, f->type[i], kept->at[i], at), KF_PINNED);
    *done = lw->columns = true;
    return ST_OK;
}

status_t lower_reduce(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                      int rank, struct kir_val **out) {
    bool done = false;
    if (f->n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    if (f->total == 0) return f->init(lw, f, out);
    if (f->unroll || f->total == 1) {
        if (f->total > 1) note_place(lw, f);
        RETURN_IF_ERR(f->init(lw, f, out));
        return straight(lw, f, index, out);
    }
    lw->reduces = true;
    RETURN_IF_ERR(column(lw, f, index, rank, &done, out));
    if (done) return ST_OK;
    note_place(lw, f);
    struct kir_block *now = kir_at_level(&lw->k, lower_level(index, rank));
    struct kir_val *acc[LOWER_MAX_RESULTS];
    status_t st = f->init(lw, f, acc);
    if (!st) st = inner_nest(lw, f, index, rank, acc);
    kir_restore(&lw->k, now);
    if (st) return st;
    memcpy(out, acc, sizeof(struct kir_val *) * (size_t)f->n);
    return ST_OK;
}
