// SPDX-License-Identifier: Apache-2.0
// What a kernel computes at an index: values of instructions, memoised and kept in scratch between
// phases, offsets through layouts, calls of scalar computations, and the stores of results. The
// loops around are lower.c's.
#include "compiler/kernel/lower.h"
#include "compiler/kernel/lower_priv.h"
#include "compiler/ops/lower/lower_rules.h"

enum { MAX_DEPTH = 1500 };

status_t lower_no(struct lower *lw, const char *why) {
    lw->why = why;
    return st_unimplemented("instruction '%s': no kernel: %s", lw->instr->name, why);
}

int lower_level(struct kir_val *const *v, int n) {
    int level = 0;
    for (int i = 0; i < n; i++)
        if (v[i]->level > level) level = v[i]->level;
    return level;
}

void lower_unflatten(struct lower *lw, struct kir_val *v, const int64_t *dims, int rank,
                     struct kir_val **index) {
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        index[d] = kir_idx_divmod(&lw->k, v, stride, dims[d]);
        stride *= dims[d];
    }
}
struct kir_val *lower_flatten(struct lower *lw, struct kir_val *const *index, const int64_t *dims,
                              int rank) {
    struct kir_val *v = kir_i64(&lw->k, 0);
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        v = kir_idx_add(&lw->k, v, kir_idx_mul(&lw->k, index[d], stride));
        stride *= dims[d];
    }
    return v;
}
struct kir_val *lower_offset(struct lower *lw, const struct shape *s,
                             struct kir_val *const *index) {
    struct shape_phys p;
    shape_physical(s, &p);
    struct kir_val *v = kir_i64(&lw->k, 0);
    int64_t stride = 1;
    for (int d = p.rank - 1; d >= 0; d--) {
        struct kir_val *at = index[p.of[d]];
        if (!lw->in_range || p.dims[d] != s->dims[p.of[d]])
            at = kir_idx_divmod(&lw->k, at, p.step[d], p.dims[d]);
        v = kir_idx_add(&lw->k, v, kir_idx_mul(&lw->k, at, stride));
        stride *= p.dims[d];
    }
    return v;
}

void lower_begin(struct lower *lw, int n_in, int n_out) {
    kir_init(&lw->k, lw->arena, n_in, n_in + n_out);
    lw->k.no_fma = !lw->policy->has_fma;
    lw->k.no_f64 = !lw->policy->has_f64;
    lw->k.no_libm = !lw->policy->has_libm;
    for (size_t t = 0; lw->sums && t < lw->sums->tables.n; t++)
        avec_push(lw->arena, &lw->k.fn->tables, lw->sums->tables.v[t]);
}
void lower_forget(struct lower *lw) {
    pmap_done(&lw->memo);
    pmap_done(&lw->var_space);
    pmap_done(&lw->canon);
    pmap_done(&lw->reductions);
    lw->memo = lw->var_space = lw->canon = lw->reductions = (struct pmap){0};
    lw->twice = false;
    lw->kept.n = 0;
    lw->scratch = 0;
    lw->row = NULL;
    lw->env = NULL;
    kir_done(&lw->k);
}

// ---- spaces and scratch

struct lower_space *lower_space(struct lower *lw, const void *owner, int64_t total) {
    for (size_t i = 0; i < lw->spaces.n; i++)
        if (lw->spaces.v[i]->owner == owner && lw->spaces.v[i]->total == total)
            return lw->spaces.v[i];
    struct lower_space *s = arena_new_of(lw->arena, struct lower_space);
    s->owner = owner;
    s->total = total;
    avec_push(lw->arena, &lw->spaces, s);
    return s;
}
void lower_track(struct lower *lw, struct kir_val *var, struct lower_space *sp, int64_t stride) {
    var->imm_j = stride;
    pmap_put_ptr(&lw->var_space, var, sp);
}
enum dtype lower_scratch_type(enum dtype t) {
    return dtype_is_complex(t) ? t : kir_type(t);
}
int64_t lower_scratch(struct lower *lw, enum dtype t, int64_t n) {
    int64_t at = lw->scratch;
    lw->scratch += (n * dtype_size(lower_scratch_type(t)) + 63) & ~INT64_C(63);
    return at;
}
struct kir_val *lower_scratch_index(struct lower *lw, enum dtype t, int64_t at, struct kir_val *i) {
    return kir_idx_add(&lw->k, i, kir_i64(&lw->k, at / dtype_size(lower_scratch_type(t))));
}
struct kir_val *lower_canon(struct lower *lw, const struct lower_row *row) {
    struct kir_block *b = lw->k.stack[row->base];
    struct kir_val *v = pmap_get_ptr(&lw->canon, b);
    if (v) return v;
    v = arena_new_of(lw->arena, struct kir_val);
    *v = *row->var;
    v->id = lw->k.n_vals++;
    v->level = b->level;
    v->block = b;
    v->loop = NULL;
    v->imm_j = 0;
    v->lo = 0;
    pmap_put_ptr(&lw->canon, b, v);
    return v;
}
// Rows over the same positions: a loop over a part of them has other values at the same index.
struct lower_kept *lower_find_kept(struct lower *lw, const struct hlo_instr *i,
                                   struct kir_val *const *index, int rank,
                                   const struct lower_row *row) {
    const struct kir_block *b = lw->k.stack[row->base];
    for (size_t n = 0; n < lw->kept.n; n++) {
        struct lower_kept *k = lw->kept.v[n];
        if (k->i == i && k->block == b && k->rank == rank && k->begin == row->begin &&
            k->end == row->end && memcmp(k->index, index, sizeof *index * (size_t)rank) == 0)
            return k;
    }
    return NULL;
}
struct lower_kept *lower_keep(struct lower *lw, const struct hlo_instr *i,
                              struct kir_val *const *index, int rank, const struct lower_row *row) {
    struct lower_kept *k = arena_new_of(lw->arena, struct lower_kept);
    k->i = i;
    k->rank = rank;
    k->block = lw->k.stack[row->base];
    k->begin = row->begin;
    k->end = row->end;
    memcpy(k->index, index, sizeof *index * (size_t)rank);
    avec_push(lw->arena, &lw->kept, k);
    return k;
}
void lower_kept_ready(struct lower *lw, const struct kir_val *var) {
    for (size_t n = 0; n < lw->kept.n; n++)
        if (lw->kept.v[n]->filler == var) lw->kept.v[n]->ready = true;
}

// ---- values

struct lower_memo {
    const struct hlo_instr *i;
    int64_t turn;
    int rank, n;
    struct kir_val **index, *out[LOWER_MAX_RESULTS];
};
static uint64_t memo_key(const struct lower *lw, const struct hlo_instr *i,
                         struct kir_val *const *index, int rank) {
    uint64_t h = (uint64_t)(uintptr_t)i + (uint64_t)lw->turn_number;
    for (int d = 0; d < rank; d++)
        h = (h ^ (index[d]->id + 1)) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 31;
    return h;
}
static bool memo_find(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                      int rank, int n, struct kir_val **out) {
    struct lower_memo *m = pmap_get(&lw->memo, memo_key(lw, i, index, rank));
    if (!m || m->i != i || m->turn != lw->turn_number || m->rank != rank ||
        (rank && memcmp(m->index, index, sizeof *index * (size_t)rank)))
        return false;
    for (int r = 0; r < n; r++) {
        struct kir_val *v = m->out[r];
        if (v->flags & KF_PINNED || !kir_visible(&lw->k, v)) return false;
    }
    memcpy(out, m->out, sizeof *out * (size_t)n);
    return true;
}
static void memo_add(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                     int rank, int n, struct kir_val *const *out) {
    struct lower_memo *m = arena_new_of(lw->arena, struct lower_memo);
    m->i = i;
    m->turn = lw->turn_number;
    m->rank = rank;
    m->index = arena_array(lw->arena, struct kir_val *, rank + 1);
    if (rank) memcpy(m->index, index, sizeof *index * (size_t)rank);
    memcpy(m->out, out, sizeof *out * (size_t)n);
    pmap_put(&lw->memo, memo_key(lw, i, index, rank), m);
}

// A value that several phases need and that is dear: filled by the first reduction that meets it.
static status_t cached(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                       int rank, bool *done, struct kir_val **out) {
    struct kir *k = &lw->k;
    struct lower_row *row = lw->row;
    int64_t zero;
    *done = false;
    if (!row || dtype_is_complex(i->shape->dtype) || row->extent > 65536 ||
        !kir_is_const(row->begin, &zero) || zero != 0)
        return ST_OK;
    if (lower_level(index, rank) != row->base + 1) return ST_OK;

    struct kir_block *now = kir_at_level(k, row->base);
    struct kir_val *canon = lower_canon(lw, row), *cindex[HLO_MAX_RANK + 1];
    kir_restore(k, now);
    for (int d = 0; d < rank; d++) {
        cindex[d] = kir_subst(k, index[d], row->var, canon);
        if (!cindex[d] || cindex[d]->level > row->base) return ST_OK;
    }

    enum dtype t = i->shape->dtype;
    struct lower_kept *kept = lower_find_kept(lw, i, cindex, rank, row);
    if (kept && !kept->ready) return ST_OK; // by a loop that is still open: this one precedes it
    if (!kept && !row->reduces) return ST_OK;
    *done = true;
    if (kept) {
        *out = kir_load(k, KIR_SCRATCH, lower_scratch_type(t),
                        lower_scratch_index(lw, t, kept->at[0], row->var), KF_PINNED);
        return ST_OK;
    }

    RETURN_IF_ERR(hlo_op_info(i->op)->lower(lw, i, index, out));
    kept = lower_keep(lw, i, cindex, rank, row);
    kept->filler = row->var;
    kept->at[0] = lower_scratch(lw, t, row->extent);
    kir_store(k, KIR_SCRATCH, lower_scratch_type(t),
              lower_scratch_index(lw, t, kept->at[0], row->var), *out);
    return ST_OK;
}

status_t lower_value(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *index,
                     struct kir_val **out) {
    struct kir_val *v;
    if (lw->env && (v = pmap_get_ptr(lw->env, i))) {
        *out = v;
        return ST_OK;
    }

    bool tuple = shape_is_tuple(i->shape);
    const struct shape *s = tuple ? shape_leaf(i->shape, 0) : i->shape;
    int rank = s->rank, n = tuple ? shape_leaves(i->shape) : 1;
    intptr_t leaf = lw->env ? 0 : (intptr_t)pmap_get_ptr(&lw->leaf, i);
    if (leaf) {
        if (tuple) return lower_no(lw, "a tuple operand");
        if (lower_rows_leaf(lw, i, index, out)) return ST_OK;
        *out = kir_load(&lw->k, (int)leaf - 1, lower_memory(lw, s->dtype),
                        lower_offset(lw, s, index), 0);
        return ST_OK;
    }

    if (n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    if (!lw->env && memo_find(lw, i, index, rank, n, out)) return ST_OK;
    hlo_lower_fn rule = hlo_op_info(i->op)->lower;
    if (!rule) return lower_no(lw, "an operation without a lowering");
    if (lw->depth > MAX_DEPTH) return lower_no(lw, "a fusion that is too deep");
    if (lw->k.overflow) return lower_no(lw, "the kernel is too large");

    lw->depth++;
    bool done = false;
    status_t st = ST_OK;
    if (!lw->env && lw->rows)
        st = lower_rows_kept(lw, i, index, &done, out);
    else if (!lw->env && pmap_has_ptr(&lw->cached, i))
        st = cached(lw, i, index, rank, &done, out);
    if (!st && !done) st = rule(lw, i, index, out);
    lw->depth--;
    if (st) return st;

    if (lw->env)
        pmap_put_ptr(lw->env, i, *out);
    else
        memo_add(lw, i, index, rank, n, out);
    return ST_OK;
}

status_t lower_call(struct lower *lw, const struct hlo_computation *c, struct kir_val *const *args,
                    int n, struct kir_val **out) {
    struct pmap env = {0}, *saved = lw->env;
    struct lower_row *row = lw->row;
    struct hlo_instr *root = hlo_root(c);
    status_t st = ST_OK;
    if ((int)c->params.n != n) return lower_no(lw, "a computation with other parameters");
    for (int p = 0; p < n; p++)
        pmap_put_ptr(&env, c->params.v[p], args[p]);
    lw->env = &env;
    lw->row = NULL;
    if (root->op == HLO_TUPLE)
        for (int r = 0; r < root->n_operands && !st; r++)
            st = root->operands[r]->shape->rank ? lower_no(lw, "a computation that is not scalar")
                                                : lower_value(lw, root->operands[r], NULL, &out[r]);
    else
        st = root->shape->rank || shape_is_tuple(root->shape)
                 ? lower_no(lw, "a computation that is not scalar")
                 : lower_value(lw, root, NULL, out);
    lw->env = saved;
    lw->row = row;
    pmap_done(&env);
    return st;
}

// ---- results

// The reductions of a row come first, whatever the order of operands: they fill the caches that the
// rest of the row reads. A row fusion may end in such a reduction.
static status_t reductions_first(struct lower *lw, const struct shape *out,
                                 struct kir_val *const *index) {
    if (!lw->cached.n || lw->instr->op != HLO_FUSION) return ST_OK;
    bool rows = HLO_ATTR(lw->instr, fusion)->kind == FUSION_CUSTOM;
    HLO_EACH_INSTR(i, lw->instr->called[0]) {
        struct kir_val *v;
        bool row = i->op == HLO_REDUCE && i->n_operands == 2 &&
                   (i->shape->rank < out->rank || (rows && i->shape->rank == out->rank));
        for (int d = 0; row && d < i->shape->rank; d++)
            row = i->shape->dims[d] == out->dims[d];
        if (row) RETURN_IF_ERR(lower_value(lw, i, index, &v));
    }
    return ST_OK;
}

// Position of the physical view -> logical index; *valid: it is no padding.
static void physical_index(struct lower *lw, const struct shape *s, struct kir_val *v,
                           struct kir_val **index, struct kir_val **valid) {
    struct kir *k = &lw->k;
    struct shape_phys p;
    *valid = kir_int(k, DT_PRED, 1);
    int64_t stride = 1;
    shape_physical(s, &p);
    for (int d = 0; d < s->rank; d++)
        index[d] = kir_i64(k, 0);
    for (int d = p.rank - 1; d >= 0; d--) {
        struct kir_val *at = kir_idx_divmod(k, v, stride, p.dims[d]);
        index[p.of[d]] = kir_idx_add(k, index[p.of[d]], kir_idx_mul(k, at, p.step[d]));
        stride *= p.dims[d];
    }
    if (p.padded)
        for (int d = 0; d < s->rank; d++) {
            *valid = kir_op(k, K_AND, *valid, kir_cmp(k, CMP_LT, index[d], kir_i64(k, s->dims[d])),
                            NULL);
            index[d] = kir_idx_clamp(k, index[d], 0, s->dims[d] - 1);
        }
}
status_t lower_physical(struct lower *lw, const struct hlo_instr *i, struct kir_val *v,
                        struct kir_val **out) {
    struct kir_val *index[HLO_MAX_RANK + 1], *valid;
    physical_index(lw, i->shape, v, index, &valid);
    return lower_value(lw, i, index, out);
}
// Where the updated array has the update's element at `index`.
static status_t place_updated(struct lower *lw, struct kir_val *const *index,
                              struct kir_val **out) {
    const struct hlo_instr *d = lw->update;
    struct kir_val *at[HLO_MAX_RANK + 1];
    for (int k = 0; k < d->shape->rank; k++) {
        RETURN_IF_ERR(lower_operand(lw, d, k + 2, NULL, &at[k]));
        at[k] = kir_idx_place(&lw->k, at[k], d->shape->dims[k] - d->operands[1]->shape->dims[k]);
        at[k] = kir_idx_add(&lw->k, index[k], at[k]);
    }
    *out = lower_offset(lw, d->shape, at);
    return ST_OK;
}
// Stores at offset v of results that lie as the first does; where not valid, zero.
static status_t store_at(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                         struct kir_val *const *index, struct kir_val *v, struct kir_val *valid) {
    struct kir *k = &lw->k;
    struct kir_val *out[LOWER_MAX_RESULTS];
    RETURN_IF_ERR(reductions_first(lw, first, index));
    if (o->together) RETURN_IF_ERR(lower_value(lw, o->root[0], index, out));

    for (int r = 0; r < o->n; r++) {
        const struct shape *s = o->together ? shape_leaf(o->root[0]->shape, r) : o->root[r]->shape;
        if (!o->together) RETURN_IF_ERR(lower_value(lw, o->root[r], index, &out[r]));
        if (lower_rows_store(lw, r, s, index, out[r])) continue;
        struct kir_val *at =
            layout_equal(s->layout, first->layout, s->rank) ? v : lower_offset(lw, s, index);
        enum dtype t = lower_memory(lw, s->dtype);
        if (o->beside) at = kir_idx_add(k, at, kir_i64(k, r * shape_elements(s)));
        if (lw->update) RETURN_IF_ERR(place_updated(lw, index, &at));
        kir_store(k, k->fn->n_in + (o->beside ? 0 : r), t, at,
                  kir_select(k, valid, out[r], kir_zero(k, t)));
    }
    return ST_OK;
}
status_t lower_store(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                     struct kir_val *const *index) {
    return store_at(lw, o, first, index, lower_offset(lw, first, index),
                    kir_int(&lw->k, DT_PRED, 1));
}
status_t lower_store_all(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                         struct kir_val *v) {
    struct kir_val *index[HLO_MAX_RANK + 1], *valid;
    physical_index(lw, first, v, index, &valid);
    return store_at(lw, o, first, index, v, valid);
}

void lower_put(struct lower *lw, const struct hlo_instr *i, int r, struct kir_val *const *index,
               struct kir_val *v) {
    const struct shape *s = shape_is_tuple(i->shape) ? shape_leaf(i->shape, r) : i->shape;
    enum dtype t = lower_memory(lw, s->dtype);
    kir_store(&lw->k, lw->k.fn->n_in + r, t, lower_offset(lw, s, index), v);
}
struct kir_val *lower_get(struct lower *lw, const struct hlo_instr *i, int r,
                          struct kir_val *const *index) {
    const struct shape *s = shape_is_tuple(i->shape) ? shape_leaf(i->shape, r) : i->shape;
    enum dtype t = lower_memory(lw, s->dtype);
    return kir_load(&lw->k, lw->k.fn->n_in + r, t, lower_offset(lw, s, index), KF_PINNED);
}
