// SPDX-License-Identifier: Apache-2.0
// Reductions: reduce, dot, convolution and windows all come here. See lower.h.
#include "compiler/ir/work.h"
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

// Begins the loops over sp that carry flat[n], which become the innermost's; gives r in them.
static struct kir_val *open_nest(struct lower *lw, struct lower_space *sp, struct kir_loop **loops,
                                 struct kir_val **flat, int n) {
    struct kir *k = &lw->k;
    struct kir_val *r = kir_i64(k, 0);
    for (int i = 0; i <= sp->n; i++) {
        int64_t stride = i == sp->n ? 1 : sp->cut[i],
                extent = (i ? sp->cut[i - 1] : sp->total) / stride;
        loops[i] = kir_for(k, kir_i64(k, 0), kir_i64(k, extent), extent, flat, n);
        memcpy(flat, loops[i]->carry, sizeof(struct kir_val *) * (size_t)n);
        lower_track(lw, loops[i]->var, sp, stride);
        r = kir_idx_add(k, r, kir_idx_mul(k, loops[i]->var, stride));
    }
    return r;
}
// One loop with f->times steps a turn.
static status_t turns_of_steps(struct lower *lw, struct lower_reduce *f,
                               struct kir_val *const *index, struct kir_val **acc) {
    struct kir *k = &lw->k;
    struct kir_val *flat[MAX_ACC], *in[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
    int64_t turns = f->total / f->times;
    int n = split(lw, f, acc, flat);
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, turns), turns, flat, n);
    join(lw, f, l->carry, in);
    for (int t = 0; t < f->times; t++) {
        struct kir_val *r = kir_idx_add(k, kir_idx_mul(k, l->var, f->times), kir_i64(k, t));
        RETURN_IF_ERR(f->step(lw, f, index, r, in, next));
        memcpy(in, next, sizeof in);
    }
    split(lw, f, in, flat);
    kir_end(k, l, flat);
    join(lw, f, l->result, acc);
    return ST_OK;
}
// Loops over r inside the element, at the level of the index.
static status_t inner_nest(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                           UNUSED int rank, struct kir_val **acc) {
    struct kir *k = &lw->k;
    struct lower_space *sp = lower_space(lw, f->i, f->total);
    struct kir_loop *loops[LOWER_MAX_CUTS + 1] = {NULL};
    struct kir_val *flat[MAX_ACC];
    int base = k->depth, n = split(lw, f, acc, flat);
    struct kir_val *r = open_nest(lw, sp, loops, flat, n);

    struct kir_loop *last = loops[sp->n];
    last->vectorize = true;
    struct lower_row row = {.var = last->var,
                            .begin = last->begin,
                            .end = last->end,
                            .base = base,
                            .extent = sp->total,
                            .reduces = true,
                            .outer = lw->row};
    lw->row = sp->n == 0 && !lw->elements ? &row : NULL;

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

// One pass of the row's loop: acc[at] = step applied to r, r+1, ... r+times-1; the first one begins
// with the initial values.
static status_t column_pass(struct lower *lw, struct lower_reduce *f, const struct lower_row *row,
                            struct kir_val *const *canon_index, int rank, struct kir_val *canon,
                            const int64_t *acc_at, struct kir_val *r, int times, bool first) {
    struct kir *k = &lw->k;
    struct kir_val *at, *index[HLO_MAX_RANK + 1], *acc[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
    struct kir_loop *l = lower_row_loop(lw, row, &at);
    for (int d = 0; d < rank; d++)
        index[d] = kir_subst(k, canon_index[d], canon, l->var);

    struct lower_row inner = *row, *outer = lw->row;
    inner.var = l->var;
    if (first) {
        RETURN_IF_ERR(f->init(lw, f, acc));
    } else {
        for (int i = 0; i < f->n; i++)
            acc[i] = kir_load(k, KIR_SCRATCH, lower_scratch_type(f->type[i]),
                              lower_scratch_index(lw, f->type[i], acc_at[i], at), KF_PINNED);
    }
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

    for (int i = 0; i < f->n; i++)
        kir_store(k, KIR_SCRATCH, lower_scratch_type(f->type[i]),
                  lower_scratch_index(lw, f->type[i], acc_at[i], at), acc[i]);
    kir_end(k, l, NULL);
    return ST_OK;
}

enum { AT_ONCE = 4, LEAST_ROWS = 8, LIGHT = 8, LOOKED_AT = 64 };
static bool reduces(const struct hlo_instr *i) {
    return i->op == HLO_REDUCE || i->op == HLO_REDUCE_WINDOW || i->op == HLO_DOT ||
           i->op == HLO_CONVOLUTION;
}
// Is what computes i from what is in memory few operations, none of them dear?
static bool light(const struct lower *lw, const struct hlo_instr *i, int *budget) {
    if (pmap_get_ptr(&lw->leaf, i)) return true;
    if (hlo_is_dear(i) || reduces(i) || --*budget < 0) return false;
    for (int n = 0; n < i->n_operands; n++)
        if (!light(lw, i->operands[n], budget)) return false;
    return true;
}
// How many steps of column_nest a turn has. Of short rows that are turned one where it is much, so
// what it keeps in memory is little; or where it is a quotient's, which a loop's variable alone is
// free of.
static int steps_at_once(const struct lower *lw, const struct lower_reduce *f) {
    int budget = LIGHT;
    if (lw->rows && HLO_ATTR(f->i, dims)->dimensions.n > 1) return 1;
    for (int n = 0; lw->rows && n < f->i->n_operands; n++)
        if (!light(lw, f->i->operands[n], &budget)) return 1;
    // One thread, and registers for as many scalars: sums are read and written half as often.
    return lw->target && lw->target->merged && lw->target->vector_bits == 512 ? 2 * UNROLL : UNROLL;
}
static status_t column_nest(struct lower *lw, struct lower_reduce *f, struct lower_kept *kept,
                            const struct lower_row *row, int rank, struct kir_val *canon) {
    struct kir *k = &lw->k;
    struct lower_space *sp = lower_space(lw, f->i, f->total);
    struct kir_loop *loops[LOWER_MAX_CUTS + 1] = {NULL};
    struct kir_val *r = kir_i64(k, 0), *rest_at = NULL;
    int times = 1, rest = 0, unroll = steps_at_once(lw, f);
    bool once = sp->n == 0 && sp->total < 2 * unroll;
    if (!once)
        RETURN_IF_ERR(column_pass(lw, f, row, kept->index, rank, canon, kept->at, r, 0, true));

    for (int i = 0; i <= sp->n; i++) {
        int64_t stride = i == sp->n ? 1 : sp->cut[i],
                extent = (i ? sp->cut[i - 1] : sp->total) / stride;
        if (i == sp->n) {
            times = extent < unroll ? (int)extent : unroll;
            rest = (int)(extent % times);
            rest_at = kir_idx_add(k, r, kir_i64(k, (extent - rest) * stride));
        }
        loops[i] = kir_for(k, kir_i64(k, 0), kir_i64(k, extent / times), extent / times, NULL, 0);
        if (times == 1) lower_track(lw, loops[i]->var, sp, stride);
        r = kir_idx_add(k, r, kir_idx_mul(k, loops[i]->var, stride * times));
    }
    RETURN_IF_ERR(column_pass(lw, f, row, kept->index, rank, canon, kept->at, r, times, once));
    kir_end(k, loops[sp->n], NULL);
    if (rest)
        RETURN_IF_ERR(
            column_pass(lw, f, row, kept->index, rank, canon, kept->at, rest_at, rest, false));
    for (int i = sp->n - 1; i >= 0; i--)
        kir_end(k, loops[i], NULL);
    return ST_OK;
}

int lower_innermost(const struct shape_phys *p) {
    for (int d = p->rank - 1; d >= 0; d--)
        if (p->dims[d] > 1) return p->of[d];
    return -1;
}

// ---- lines side by side

// Does what computes i reduce? Such a reduction would be made once more beside its row.
static bool needs_another(const struct lower *lw, const struct hlo_instr *i, int *budget) {
    if (pmap_get_ptr(&lw->leaf, i)) return false;
    if (reduces(i) || --*budget < 0) return true;
    for (int n = 0; n < i->n_operands; n++)
        if (needs_another(lw, i->operands[n], budget)) return true;
    return false;
}
// How many results of a row are reduced in one loop: several of a dot, which share an operand's
// loads, and of pairs, which are compared one after the other; one where what follows is better in
// vectors; 0: the usual way.
static int lines_at_once(const struct lower *lw, const struct lower_reduce *f) {
    int budget = LIGHT, left = LOOKED_AT;
    bool kept = lw->cached.n > 0; // values of one line, for the reductions behind this one
    if (!f->lines || f->n > 2 || f->total <= LIGHT || kept) return 0;
    for (int n = 0; n < f->i->n_operands; n++)
        if (needs_another(lw, f->i->operands[n], &left)) return 0;
    bool several = f->i->op == HLO_DOT || f->n == 2;
    for (int n = 0; n < f->i->n_operands && several; n++)
        several = light(lw, f->i->operands[n], &budget);
    return several ? AT_ONCE : lw->dear_after ? 1 : 0;
}
// Loops over r with the accumulators of `lines` lines, acc[line * f->n ..]; index[line].
static status_t lines_nest(struct lower *lw, struct lower_reduce *f, int lines,
                           struct kir_val *(*index)[HLO_MAX_RANK + 1], struct kir_val **acc) {
    struct kir *k = &lw->k;
    struct lower_space *sp = lower_space(lw, f->i, f->total);
    struct kir_loop *loops[LOWER_MAX_CUTS + 1] = {NULL};
    struct kir_val *flat[2 * AT_ONCE * 2];
    int n = 0, each = 0;
    for (int l = 0; l < lines; l++)
        n += each = split(lw, f, acc + l * f->n, flat + n);
    struct kir_val *r = open_nest(lw, sp, loops, flat, n);
    loops[sp->n]->vectorize = true;

    for (int l = 0; l < lines; l++) {
        struct kir_val *in[LOWER_MAX_RESULTS], *next[LOWER_MAX_RESULTS];
        join(lw, f, flat + l * each, in);
        RETURN_IF_ERR(f->step(lw, f, index[l], r, in, next));
        split(lw, f, next, flat + l * each);
    }
    for (int i = sp->n; i >= 0; i--) {
        kir_end(k, loops[i], flat);
        memcpy(flat, loops[i]->result, sizeof(struct kir_val *) * (size_t)n);
    }
    for (int l = 0; l < lines; l++)
        join(lw, f, flat + l * each, acc + l * f->n);
    return ST_OK;
}
// The results of a whole row to scratch, `lines` in a turn: the last turn makes some again.
static status_t lines_pass(struct lower *lw, struct lower_reduce *f, const struct lower_kept *kept,
                           const struct lower_row *row, int rank, struct kir_val *canon,
                           int lines) {
    struct kir *k = &lw->k;
    struct kir_val *minus = kir_idx_mul(k, row->begin, -1), *n = kir_idx_add(k, row->end, minus),
                   *last = kir_idx_add(k, row->end, kir_i64(k, -1)), *at[AT_ONCE],
                   *index[AT_ONCE][HLO_MAX_RANK + 1], *acc[AT_ONCE * LOWER_MAX_RESULTS];
    struct kir_val *turns = kir_idx_divmod(k, kir_idx_add(k, n, kir_i64(k, lines - 1)), lines, 0);
    struct kir_loop *l =
        kir_for(k, kir_i64(k, 0), turns, (row->extent + lines - 1) / lines, NULL, 0);
    for (int i = 0; i < lines; i++) {
        at[i] = kir_idx_add(k, row->begin,
                            kir_idx_add(k, kir_idx_mul(k, l->var, lines), kir_i64(k, i)));
        if (lines > 1) at[i] = kir_op(k, K_MIN, at[i], last, NULL);
        for (int d = 0; d < rank; d++)
            index[i][d] = kir_subst(k, kept->index[d], canon, at[i]);
        RETURN_IF_ERR(f->init(lw, f, acc + i * f->n));
    }

    RETURN_IF_ERR(lines_nest(lw, f, lines, index, acc));
    for (int i = 0; i < lines; i++)
        for (int v = 0; v < f->n; v++)
            kir_store(
                k, KIR_SCRATCH, lower_scratch_type(f->type[v]),
                lower_scratch_index(lw, f->type[v], kept->at[v], kir_idx_add(k, at[i], minus)),
                acc[i * f->n + v]);
    kir_end(k, l, NULL);
    return ST_OK;
}

// Integers are the same in any order.
void lower_note(struct lower *lw, const struct lower_reduce *f) {
    bool floats = false;
    for (int n = 0; n < f->n; n++)
        floats |= dtype_is_float(f->type[n]) || dtype_is_complex(f->type[n]);
    if (!floats || lw->instr->op != HLO_FUSION) return;
    lw->twice |= pmap_has_ptr(&lw->reductions, f->i);
    pmap_put_ptr(&lw->reductions, f->i, (void *)(uintptr_t)f->i);
}

// Is x, an index, a quotient or remainder of what varies inside the row? Then neighbours have the
// same result, and the row's loop is to be cut first.
static bool divides(const struct kir_val *x, int base) {
    if (x->level <= base) return false;
    if (x->op == K_DIVMOD) return true;
    for (int n = 0; n < x->n_args; n++)
        if (divides(x->args[n], base)) return true;
    return false;
}
// The results of a row into scratch, by columns or, `lines` at once, line by line.
static status_t make_row(struct lower *lw, struct lower_reduce *f, struct lower_kept *kept,
                         int rank, struct kir_val *canon, int lines) {
    struct lower_row copy = *lw->row;
    lower_note(lw, f);
    if (!lines) {
        const struct hlo_instr *before = lower_rows_fill(lw, f->i);
        RETURN_IF_ERR(column_nest(lw, f, kept, &copy, rank, canon));
        lower_rows_filled(lw, f->i, before);
        return ST_OK;
    }
    lw->row = NULL;
    return lines_pass(lw, f, kept, &copy, rank, canon, lines);
}
// Reduces a whole row at once, where the index is a function of the row's variable and of what is
// known outside of the row.
static status_t row_at_once(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                            int rank, bool *done, struct kir_val **out) {
    struct kir *k = &lw->k;
    struct lower_row *row = lw->row;
    *done = false;
    if (!row || lower_level(index, rank) <= row->base) return ST_OK;
    int lines = f->column || row->reduces || row->extent < LEAST_ROWS ? 0 : lines_at_once(lw, f);
    for (int d = 0; d < rank && lines; d++)
        if (divides(index[d], row->base)) lines = 0;
    if (f->column ? row->extent < 4 : !lines) return ST_OK;
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
        status_t st = make_row(lw, f, kept, rank, canon, lines);
        lw->row = row;
        kir_restore(k, now);
        if (st) return st;
        kept->ready = true;
    }
    if (!kept->ready) return lower_no(lw, "a reduction of itself");

    struct kir_val *at = kir_idx_add(k, row->var, kir_idx_mul(k, row->begin, -1));
    for (int i = 0; i < f->n; i++)
        out[i] = kir_load(k, KIR_SCRATCH, lower_scratch_type(f->type[i]),
                          lower_scratch_index(lw, f->type[i], kept->at[i], at), KF_PINNED);
    *done = true;
    lw->columns |= f->column;
    return ST_OK;
}

status_t lower_reduce(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                      int rank, struct kir_val **out) {
    bool done = false;
    if (f->n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    if (f->total == 0) return f->init(lw, f, out);
    if (f->unroll || f->total == 1) {
        if (f->total > 1) lower_note(lw, f);
        RETURN_IF_ERR(f->init(lw, f, out));
        return straight(lw, f, index, out);
    }
    lw->reduces = true;
    RETURN_IF_ERR(row_at_once(lw, f, index, rank, &done, out));
    if (done) return ST_OK;
    lower_note(lw, f);
    struct kir_block *now = kir_at_level(&lw->k, lower_level(index, rank));
    struct kir_val *acc[LOWER_MAX_RESULTS];
    status_t st = f->init(lw, f, acc);
    bool turns = lw->elements && f->times > 1 && f->total % f->times == 0;
    if (!st) st = turns ? turns_of_steps(lw, f, index, acc) : inner_nest(lw, f, index, rank, acc);
    kir_restore(&lw->k, now);
    if (st) return st;
    memcpy(out, acc, sizeof(struct kir_val *) * (size_t)f->n);
    return ST_OK;
}
