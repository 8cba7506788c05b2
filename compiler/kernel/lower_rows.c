// SPDX-License-Identifier: Apache-2.0
// Kernels that reduce short rows: what a row's vectors would leave empty, or what is left behind
// its last one, costs more than the row. So a unit takes a block of rows with their elements turned
// in scratch, where the rows lie side by side: the loops over elements are outside, those over rows
// inside, for vectors that are full. What is as large as the rows is turned on its way in and out;
// reductions are those by columns. A value of a row that is dear is made once, and one of an
// element that a reduction and what follows it need is kept.
#include "compiler/ir/work.h"
#include "compiler/kernel/lower.h"
#include "compiler/kernel/lower_priv.h"
#include "compiler/plan/in_place.h"

enum {
    MOST_ROUNDED = 64,
    ROUNDED_AT_ONCE = 12, // where the CPU rounds to bf16: without a root of each row,
    ROUNDED_ONCE = 32,    // with one, of one reduction,
    ROUNDED_TWICE = 44,   // of more
    WRITTEN_OUT = 8,
    BLOCK = 4096, // elements of a block
    LEAST = 64,   // rows of one
    MOST = 256
};

// Where leading dims of s number the rows: how many there are; -1 where they do not.
static int split_at(const struct shape *s, int64_t rows) {
    int64_t n = 1;
    int d = 0;
    while (d < s->rank && n < rows)
        n *= s->dims[d++];
    return n == rows ? d : -1;
}
static bool can_turn(enum dtype t) {
    return dtype_size(t) <= 8 && t != DT_PRED && dtype_bits(t) >= 8 && !dtype_is_complex(t) &&
           !(dtype_is_float(t) && dtype_bits(t) < 16);
}

// What a reduction says of rows: false where it is not one of trailing dims.
static bool rows_of(const struct hlo_instr *i, struct lower_rows *t) {
    const struct shape *s = i->operands[0]->shape;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    int kept = s->rank - d.n;
    int64_t n = 1, row = 1;
    for (int k = 0; k < d.n; k++)
        if (d.v[k] < kept) return false;
    for (int k = 0; k < s->rank; k++)
        *(k < kept ? &n : &row) *= s->dims[k];
    bool first = t->n == 0;
    if (first) t->n = n, t->row = row;
    return shape_in_order(s) && n == t->n && row == t->row;
}
static bool takes(const struct hlo_instr *i, struct lower_rows *t) {
    bool tuple = shape_is_tuple(i->shape), place = i->op == HLO_CONSTANT || i->op == HLO_IOTA;
    int64_t size = tuple || place ? 0 : dtype_size(i->shape->dtype);
    if (size > 8 || (size == 8 && i->shape->dtype != DT_F64)) return false;
    if (size > t->size) t->size = size;
    if (i->op == HLO_REDUCE) return rows_of(i, t);
    return i->op == HLO_PARAMETER || i->op == HLO_CONSTANT || i->op == HLO_BROADCAST ||
           i->op == HLO_IOTA || i->op == HLO_TUPLE || i->op == HLO_RESHAPE ||
           i->op == HLO_BITCAST || hlo_is_elementwise(i);
}
// A value of the kernel's surroundings: turned if it is as large as the rows.
static bool add_leaf(struct lower_rows *t, const struct hlo_instr *i, int buf) {
    if (shape_is_tuple(i->shape) || !shape_in_order(i->shape)) return false;
    if (shape_elements(i->shape) != t->n * t->row) return shape_elements(i->shape) <= t->n;
    if (!can_turn(i->shape->dtype) || t->n_leaves == LOWER_MAX_TURNED ||
        split_at(i->shape, t->n) < 0)
        return false;
    t->leaf[t->n_leaves] = (struct lower_turned){.i = i, .buf = buf};
    t->n_leaves++;
    return true;
}
// What a kernel does, counted.
struct work {
    int reductions, dear, phases; // dear ones on elements of rows; phases: how often a row is read
    bool each, slow;              // a dear one on values of rows; one dearer than an exponential
    bool rounds;                  // to bf16, which is up to seven operations
    bool roots;                   // a root or quotient of values of rows
};
static struct work work_of(const struct hlo_instr *fusion, const struct lower_rows *t) {
    struct work w = {.phases = t->whole};
    HLO_EACH_INSTR(i, fusion->called[0]) {
        w.reductions += i->op == HLO_REDUCE;
        bool all = shape_elements(i->shape) == t->n * t->row;
        w.rounds |= all && i->op == HLO_CONVERT && i->shape->dtype == DT_BF16;
        bool root = i->op == HLO_RSQRT || i->op == HLO_SQRT || i->op == HLO_DIVIDE;
        w.roots |= root && shape_elements(i->shape) == t->n;
        if (!hlo_is_dear(i)) continue;
        w.dear += all;
        w.slow |= all && i->op != HLO_EXP;
        w.each |= shape_elements(i->shape) == t->n;
    }
    w.phases += w.reductions;
    return w;
}
// Is turning them less than what it saves? Hundredths of nanoseconds as measured on Zen 4, f32,
// rows of 2 to 129 elements, one to four operands as large as the rows (f64: on Zen 5). Row by row:
// each vector of it, be it full or not, in each phase; a sum of its lanes for each reduction; a
// dear value alone. What is slow LLVM computes, which takes what is behind the last vector one by
// one. Turned: each element for each array that is turned, and for what is dear.
static bool repays(const struct lower *lw, const struct lower_rows *t, int results) {
    enum { ALONE = 1200, LANES_SUM = 360, ONE = 150 };
    const struct hlo_instr *i = lw->instr;
    if (i->op != HLO_FUSION || t->n < PLAN_LEAST_SHORT_ROWS || t->row < 2 ||
        t->row > PLAN_MOST_SHORT_ROW)
        return false;
    bool direct = lw->target && lw->target->direct && !lw->target->merged,
         wide = lw->target && lw->target->vector_bits == 512,
         comes_back = HLO_ATTR(i, fusion)->kind == FUSION_CUSTOM;
    // These are written out.
    if (t->row < WRITTEN_OUT + !comes_back && (t->whole || !comes_back)) return false;
    if (!direct && t->whole && t->row % 8 == 0) return false; // LLVM's loops turn slowly

    struct work w = work_of(i, t);
    int64_t size = t->size > 4 ? 8 : 4;
    int64_t lanes = (wide ? 64 : 32) / size, vectors = ceil_div(t->row, lanes),
            vector = (260 + 170 * w.phases) * (wide ? 10 : 6) / 10,
            turn = !direct ? 50
                   : wide  ? 20
                           : 27,
            step = wide ? 33 : 50, turns = t->n_leaves + (t->whole ? results : 0);
    int64_t by_rows = LANES_SUM * w.reductions + vectors * vector + (w.each ? ALONE * size / 4 : 0);
    if (size > 4) turn = 2 * turn, step = 11 * step / 5;
    if (w.slow) by_rows += t->row % lanes * ONE;
    if (w.dear) return t->row * (turn * turns + step) < by_rows;

    bool rounds = lw->target && lw->target->direct_bf16;
    int64_t most = !rounds             ? MOST_ROUNDED
                   : !w.roots          ? ROUNDED_AT_ONCE
                   : w.reductions == 1 ? ROUNDED_ONCE
                                       : ROUNDED_TWICE;
    step = step / 2 + 3;
    if (comes_back) by_rows = by_rows * 7 / 5; // loads of 16 bits, in vectors that are partly empty
    return w.rounds && t->row <= most && t->row * (turn * turns + step) < by_rows;
}
bool lower_rows_fit(struct lower *lw, const struct lower_outputs *o, const struct shape *first) {
    const struct hlo_instr *i = lw->instr;
    struct lower_rows *t = arena_new_of(lw->arena, struct lower_rows);
    if (lw->policy->tiles != TILES_OF_CPU || lw->elements || !lw->policy->has_scratch) return false;
    if (i->parent && i->parent->fusion) return false; // a library runs some of its rows at a time
    if (i->op == HLO_FUSION) {
        HLO_EACH_INSTR(b, i->called[0]) if (!takes(b, t)) return false;
        for (size_t p = 0; p < i->called[0]->params.n; p++)
            if (!add_leaf(t, i->called[0]->params.v[p], (int)p)) return false;
    } else {
        if (i->op != HLO_REDUCE || !rows_of(i, t)) return false;
        for (int p = 0; p < i->n_operands; p++)
            if (!add_leaf(t, i->operands[p], p)) return false;
    }

    t->whole = shape_elements(first) != t->n;
    if (!t->n_leaves || !repays(lw, t, o->n)) return false;
    for (int r = 0; r < o->n; r++) {
        const struct shape *s = o->together ? shape_leaf(o->root[0]->shape, r) : o->root[r]->shape;
        if (!shape_in_order(s) || (t->whole && (!can_turn(s->dtype) || split_at(s, t->n) < 0)))
            return false;
    }
    if (t->whole && shape_elements(first) != t->n * t->row) return false;
    t->block = BLOCK / t->row / 16 * 16;
    t->block = t->block < LEAST ? LEAST : t->block > MOST ? MOST : t->block;
    if (t->block > t->n) t->block = t->n;
    lw->rows = t;
    return true;
}

// ---- where a value lies in scratch

// The place of element `index` of an array as large as the rows, from its beginning in scratch;
// NULL: it is not one of the block's, at the variable of a loop over its rows.
static struct kir_val *place(struct lower *lw, const struct shape *s,
                             struct kir_val *const *index) {
    const struct lower_rows *t = lw->rows;
    struct kir *k = &lw->k;
    int kept = split_at(s, t->n);
    if (kept < 0) return NULL;
    struct kir_val *row = lower_flatten(lw, index, s->dims, kept),
                   *at = lower_flatten(lw, index + kept, s->dims + kept, s->rank - kept);
    row = kir_idx_add(k, row, kir_idx_mul(k, t->first, -1));
    if (row->op != K_VAR || pmap_get_ptr(&lw->var_space, row) != t->space) return NULL;
    return kir_idx_add(k, kir_idx_mul(k, at, t->block), row);
}
static struct kir_val *load(struct lower *lw, enum dtype t, int64_t at, struct kir_val *v) {
    return kir_load(&lw->k, KIR_SCRATCH, lower_scratch_type(t), lower_scratch_index(lw, t, at, v),
                    KF_PINNED);
}
static void store(struct lower *lw, enum dtype t, int64_t at, struct kir_val *v,
                  struct kir_val *x) {
    kir_store(&lw->k, KIR_SCRATCH, lower_scratch_type(t), lower_scratch_index(lw, t, at, v), x);
}
bool lower_rows_leaf(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                     struct kir_val **out) {
    struct lower_rows *t = lw->rows;
    for (int n = 0; t && n < t->n_leaves; n++) {
        if (t->leaf[n].i != i) continue;
        struct kir_val *v = place(lw, i->shape, index);
        if (v) *out = load(lw, i->shape->dtype, t->leaf[n].at, v);
        t->failed |= !v;
        return v != NULL;
    }
    return false;
}

// ---- values that are kept

static struct lower_turned *find_kept(struct lower_rows *t, const struct hlo_instr *i) {
    for (int n = 0; n < t->n_kept; n++)
        if (t->kept[n].i == i) return &t->kept[n];
    return NULL;
}
static struct lower_turned *keep(struct lower *lw, const struct hlo_instr *i, int64_t elements) {
    struct lower_rows *t = lw->rows;
    if (t->n_kept == LOWER_MAX_TURNED) return NULL;
    struct lower_turned *k = &t->kept[t->n_kept++];
    *k = (struct lower_turned){.i = i, .at = lower_scratch(lw, i->shape->dtype, elements)};
    return k;
}
// A value of each row: made in a loop of its own before the rows' elements.
static status_t value_of_rows(struct lower *lw, const struct hlo_instr *i,
                              struct kir_val *const *index, bool *done, struct kir_val **out) {
    struct lower_rows *t = lw->rows;
    struct lower_row row = *lw->row, *now = lw->row;
    struct kir *k = &lw->k;
    struct kir_val *v = place(lw, i->shape, index), *at, *there[HLO_MAX_RANK + 1];
    struct lower_turned *kept = find_kept(t, i);
    if (!v || v != row.var || (!kept && !(kept = keep(lw, i, t->block)))) return ST_OK;
    *done = true;
    if (!kept->ready) {
        struct kir_block *here = kir_at_level(k, row.base);
        struct kir_loop *l = lower_row_loop(lw, &row, &at);
        for (int d = 0; d < i->shape->rank; d++)
            there[d] = kir_subst(k, index[d], row.var, l->var);
        row.var = l->var;
        lw->row = &row;
        t->making = true;
        status_t st = hlo_op_info(i->op)->lower(lw, i, there, out);
        t->making = false;
        lw->row = now;
        if (st) return st;
        store(lw, i->shape->dtype, kept->at, at, *out);
        kir_end(k, l, NULL);
        kir_restore(k, here);
        kept->ready = true;
    }
    *out = load(lw, i->shape->dtype, kept->at, v);
    return ST_OK;
}
status_t lower_rows_kept(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                         bool *done, struct kir_val **out) {
    struct lower_rows *t = lw->rows;
    *done = false;
    if (!lw->row || !shape_in_order(i->shape) || dtype_is_complex(i->shape->dtype)) return ST_OK;
    bool dear = hlo_is_dear(i) || i->op == HLO_DIVIDE || i->op == HLO_SQRT || i->op == HLO_RSQRT;
    if (shape_elements(i->shape) == t->n && (t->whole || t->filling) && dear && !t->making)
        return value_of_rows(lw, i, index, done, out);
    if (shape_elements(i->shape) != t->n * t->row || !pmap_has_ptr(&lw->cached, i)) return ST_OK;

    struct kir_val *v = place(lw, i->shape, index);
    struct lower_turned *kept = find_kept(t, i);
    if (!v || (!kept && !t->filling)) return ST_OK;
    if (kept && kept->ready) {
        *done = true;
        *out = load(lw, i->shape->dtype, kept->at, v);
        return ST_OK;
    }
    if (!kept) {
        kept = keep(lw, i, t->block * t->row);
        if (!kept) return ST_OK;
        kept->by = t->filling;
    }
    if (kept->by != t->filling) return ST_OK;
    *done = true;
    RETURN_IF_ERR(hlo_op_info(i->op)->lower(lw, i, index, out));
    store(lw, i->shape->dtype, kept->at, v, *out);
    return ST_OK;
}
const struct hlo_instr *lower_rows_fill(struct lower *lw, const struct hlo_instr *reduction) {
    struct lower_rows *t = lw->rows;
    if (!t) return NULL;
    const struct hlo_instr *before = t->filling;
    t->filling = reduction;
    return before;
}
void lower_rows_filled(struct lower *lw, const struct hlo_instr *reduction,
                       const struct hlo_instr *before) {
    struct lower_rows *t = lw->rows;
    if (!t) return;
    t->filling = before;
    for (int n = 0; n < t->n_kept; n++)
        t->kept[n].ready |= t->kept[n].by == reduction;
}

// ---- the loops

// From rows in buffer `buf` to the elements of all of them side by side.
static void turn_in(struct lower *lw, const struct lower_turned *x) {
    struct lower_rows *t = lw->rows;
    struct kir *k = &lw->k;
    enum dtype e = x->i->shape->dtype;
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, t->row), t->row, NULL, 0),
                    *r = kir_for(k, kir_i64(k, 0), kir_i64(k, t->block), t->block, NULL, 0);
    r->vectorize = true;
    struct kir_val *from = kir_idx_mul(k, kir_idx_add(k, t->first, r->var), t->row);
    struct kir_val *to = kir_idx_add(k, kir_idx_mul(k, l->var, t->block), r->var);
    store(lw, e, x->at, to, kir_load(k, x->buf, e, kir_idx_add(k, from, l->var), 0));
    kir_end(k, r, NULL);
    kir_end(k, l, NULL);
}
// And back.
static void turn_out(struct lower *lw, enum dtype e, int64_t at, int buf) {
    struct lower_rows *t = lw->rows;
    struct kir *k = &lw->k;
    struct kir_loop *r = kir_for(k, kir_i64(k, 0), kir_i64(k, t->block), t->block, NULL, 0),
                    *l = kir_for(k, kir_i64(k, 0), kir_i64(k, t->row), t->row, NULL, 0);
    l->vectorize = true;
    struct kir_val *to = kir_idx_mul(k, kir_idx_add(k, t->first, r->var), t->row);
    struct kir_val *from = kir_idx_add(k, kir_idx_mul(k, l->var, t->block), r->var);
    kir_store(k, buf, e, kir_idx_add(k, to, l->var), load(lw, e, at, from));
    kir_end(k, l, NULL);
    kir_end(k, r, NULL);
}
static const struct shape *result(const struct lower_outputs *o, int r) {
    return o->together ? shape_leaf(o->root[0]->shape, r) : o->root[r]->shape;
}
// The loop over a block's rows, `base` levels deep for what is made of all of them.
static status_t each_row(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                         struct kir_val *element, int base) {
    struct lower_rows *t = lw->rows;
    struct kir *k = &lw->k;
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, t->block), t->block, NULL, 0);
    lower_track(lw, l->var, t->space, 1);
    l->vectorize = true;
    struct lower_row row = {
        .var = l->var, .begin = l->begin, .end = l->end, .base = base, .extent = t->block};
    lw->row = &row;
    struct kir_val *v = kir_idx_add(k, t->first, l->var);
    if (element) v = kir_idx_add(k, kir_idx_mul(k, v, t->row), element);
    status_t st = lower_store_all(lw, o, first, v);
    lw->row = NULL;
    if (!st) kir_end(k, l, NULL);
    return st;
}
status_t lower_rows_build(struct lower *lw, const struct lower_outputs *o,
                          const struct shape *first) {
    struct lower_rows *t = lw->rows;
    struct kir *k = &lw->k;
    int64_t blocks = ceil_div(t->n, t->block);
    k->fn->extent = blocks;
    k->fn->rows = true;
    t->n_kept = 0;
    t->failed = t->making = false;
    t->filling = NULL;
    t->space = lower_space(lw, t, t->block);

    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, blocks, NULL, 0);
    struct kir_val *last = kir_i64(k, t->n - t->block); // the last block ends with the rows
    t->first = kir_op(k, K_MIN, kir_idx_mul(k, u->var, t->block), last, NULL);
    for (int n = 0; n < t->n_leaves; n++) {
        t->leaf[n].at = lower_scratch(lw, t->leaf[n].i->shape->dtype, t->block * t->row);
        turn_in(lw, &t->leaf[n]);
    }
    if (!t->whole) {
        RETURN_IF_ERR(each_row(lw, o, first, NULL, k->depth));
        kir_end(k, u, NULL);
        return ST_OK;
    }

    for (int r = 0; r < o->n; r++)
        t->out[r] = lower_scratch(lw, result(o, r)->dtype, t->block * t->row);
    int base = k->depth;
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, t->row), t->row, NULL, 0);
    RETURN_IF_ERR(each_row(lw, o, first, l->var, base));
    kir_end(k, l, NULL);
    for (int r = 0; r < o->n; r++)
        turn_out(lw, result(o, r)->dtype, t->out[r], k->fn->n_in + r);
    kir_end(k, u, NULL);
    return ST_OK;
}
static void is_quotient(void *ctx, struct kir_val *v) {
    bool *found = ctx;
    *found |= v->op == K_DIVMOD;
}
bool lower_rows_failed(const struct lower *lw) {
    bool quotient = false; // of a row's number: what it is for does not lie side by side
    kir_each(&lw->k.fn->top, is_quotient, &quotient);
    return lw->rows->failed || quotient;
}
bool lower_rows_store(struct lower *lw, int r, const struct shape *s, struct kir_val *const *index,
                      struct kir_val *x) {
    struct lower_rows *t = lw->rows;
    if (!t || !t->whole) return false;
    struct kir_val *v = place(lw, s, index);
    bool rounds = x->op == K_QUANT && x->imm_i == (int64_t)s->dtype; // turn_out rounds it
    if (v) store(lw, s->dtype, t->out[r], v, rounds ? x->args[0] : x);
    t->failed |= !v;
    return v != NULL;
}
