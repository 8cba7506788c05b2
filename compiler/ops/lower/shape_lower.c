// SPDX-License-Identifier: Apache-2.0
// Lowering of operations that move data: each turns the index of its result into operand indices.
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"

LOWER(BROADCAST) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    struct kir_val *at[HLO_MAX_RANK + 1];
    for (int d = 0; d < dims.n; d++)
        at[d] = index[dims.v[d]];
    return lower_operand(lw, i, 0, at, out);
}
LOWER(RESHAPE) {
    const struct shape *from = i->operands[0]->shape, *to = i->shape;
    struct kir_val *at[HLO_MAX_RANK + 1];
    lower_unflatten(lw, lower_flatten(lw, index, to->dims, to->rank), from->dims, from->rank, at);
    return lower_operand(lw, i, 0, at, out);
}
// Same bytes under two layouts: through the physical position.
LOWER(BITCAST) {
    const struct shape *from = i->operands[0]->shape;
    struct shape_phys p;
    struct kir_val *at[HLO_MAX_RANK + 1], *phys[2 * HLO_MAX_RANK];
    if (dtype_size(from->dtype) != dtype_size(i->shape->dtype) || from->dtype != i->shape->dtype)
        return lower_no(lw, "a bitcast of types");
    shape_physical(from, &p);
    if (p.padded) return lower_no(lw, "a bitcast of a padded layout");
    lower_unflatten(lw, lower_offset(lw, i->shape, index), p.dims, p.rank, phys);
    for (int d = 0; d < from->rank; d++)
        at[d] = kir_i64(&lw->k, 0);
    for (int d = 0; d < p.rank; d++)
        at[p.of[d]] = kir_idx_add(&lw->k, at[p.of[d]], kir_idx_mul(&lw->k, phys[d], p.step[d]));
    return lower_operand(lw, i, 0, at, out);
}
LOWER(TRANSPOSE) {
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    struct kir_val *at[HLO_MAX_RANK + 1];
    for (int d = 0; d < perm.n; d++)
        at[perm.v[d]] = index[d];
    return lower_operand(lw, i, 0, at, out);
}
LOWER(REVERSE) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    struct kir_val *at[HLO_MAX_RANK + 1];
    for (int d = 0; d < i->shape->rank; d++)
        at[d] = i64s_has(dims, d) ? kir_idx_add(&lw->k, kir_i64(&lw->k, i->shape->dims[d] - 1),
                                                kir_idx_mul(&lw->k, index[d], -1))
                                  : index[d];
    return lower_operand(lw, i, 0, at, out);
}
LOWER(SLICE) {
    struct ranges r = HLO_ATTR(i, slice)->slice;
    struct kir_val *at[HLO_MAX_RANK + 1];
    for (int d = 0; d < r.n; d++)
        at[d] = kir_idx_add(&lw->k, kir_idx_mul(&lw->k, index[d], r.v[d].stride),
                            kir_i64(&lw->k, r.v[d].start));
    return lower_operand(lw, i, 0, at, out);
}
// What x is a part of, x itself if nothing that this kernel sees; `start`: where that begins.
static const struct hlo_instr *source_of(const struct lower *lw, const struct hlo_instr *x,
                                         int64_t *start) {
    memset(start, 0, sizeof *start * HLO_MAX_RANK);
    if (x->op != HLO_SLICE || lw->env || pmap_get_ptr(&lw->leaf, x)) return x;
    struct ranges r = HLO_ATTR(x, slice)->slice;
    for (int d = 0; d < r.n; d++)
        if (r.v[d].stride != 1) return x;
    for (int d = 0; d < r.n; d++)
        start[d] = r.v[d].start;
    return x->operands[0];
}
// All operands are parts of one array that differ along `dim` alone: a rotation. Which one is asked
// for decides where to read, not what, so that loops around the innermost need no copies.
static const struct hlo_instr *rotated(const struct lower *lw, const struct hlo_instr *i,
                                       int64_t dim, int64_t (*start)[HLO_MAX_RANK]) {
    const struct hlo_instr *source = NULL;
    for (int n = 0; n < i->n_operands; n++) {
        const struct hlo_instr *from = source_of(lw, i->operands[n], start[n]);
        if (n && from != source) return NULL;
        for (int d = 0; n && d < i->shape->rank; d++)
            if (d != dim && start[n][d] != start[0][d]) return NULL;
        source = from;
    }
    return source;
}
static status_t rotate(struct lower *lw, const struct hlo_instr *i, int64_t dim,
                       const struct hlo_instr *source, int64_t (*start)[HLO_MAX_RANK],
                       struct kir_val *const *index, struct kir_val **out) {
    struct kir *k = &lw->k;
    struct kir_val *at[HLO_MAX_RANK + 1], *where = NULL;
    int64_t begin = 0;
    for (int d = 0; d < i->shape->rank; d++)
        at[d] = kir_idx_add(k, index[d], kir_i64(k, start[0][d]));
    for (int n = 0; n < i->n_operands; n++) {
        int64_t size = i->operands[n]->shape->dims[dim];
        struct kir_val *v = kir_idx_add(k, index[dim], kir_i64(k, start[n][dim] - begin));
        struct kir_val *reached = kir_cmp_place(k, CMP_GE, index[dim], kir_i64(k, begin));
        if (size) where = where ? kir_select(k, reached, v, where) : v;
        begin += size;
    }
    at[dim] = kir_idx_between(k, where, 0, source->shape->dims[dim] - 1);
    return lower_value(lw, source, at, out);
}
LOWER(CONCATENATE) {
    enum { MOST_ROTATED = 4 };
    int64_t dim = HLO_ATTR(i, dims)->dimensions.v[0], start = 0,
            at_start[MOST_ROTATED][HLO_MAX_RANK];
    struct kir *k = &lw->k;
    struct kir_val *at[HLO_MAX_RANK + 1], *v, *r = NULL;
    const struct hlo_instr *source = NULL;
    if (i->n_operands > 32) return lower_no(lw, "a concatenation of more than 32");
    if (i->n_operands <= MOST_ROTATED) source = rotated(lw, i, dim, at_start);
    if (source && shape_elements(i->shape)) return rotate(lw, i, dim, source, at_start, index, out);
    for (int n = 0; n < i->n_operands; n++) {
        int64_t size = i->operands[n]->shape->dims[dim];
        if (size == 0) continue;
        memcpy(at, index, sizeof *at * (size_t)i->shape->rank);
        struct kir_val *rel = kir_idx_add(k, index[dim], kir_i64(k, -start));
        at[dim] = kir_idx_clamp(k, rel, 0, size - 1);
        RETURN_IF_ERR(lower_operand(lw, i, n, at, &v));
        r = r ? kir_select(k, kir_cmp(k, CMP_GE, rel, kir_i64(k, 0)), v, r) : v;
        start += size;
    }
    if (!r) return lower_no(lw, "an empty concatenation");
    *out = r;
    return ST_OK;
}
LOWER(PAD) {
    struct padding p = HLO_ATTR(i, pad)->padding;
    const struct shape *from = i->operands[0]->shape;
    struct kir *k = &lw->k;
    struct kir_val *at[HLO_MAX_RANK + 1], *valid = kir_int(k, DT_PRED, 1), *x, *fill;
    if (shape_elements(from) == 0) return lower_operand(lw, i, 1, NULL, out);
    for (int d = 0; d < p.n; d++) {
        int64_t step = p.v[d].interior + 1, n = from->dims[d];
        struct kir_val *rel = kir_idx_add(k, index[d], kir_i64(k, -p.v[d].low));
        valid = kir_op(k, K_AND, valid, kir_cmp(k, CMP_GE, rel, kir_i64(k, 0)), NULL);
        valid =
            kir_op(k, K_AND, valid, kir_cmp(k, CMP_LT, rel, kir_i64(k, (n - 1) * step + 1)), NULL);
        rel = kir_idx_clamp(k, rel, 0, (n - 1) * step);
        if (step > 1)
            valid =
                kir_op(k, K_AND, valid,
                       kir_cmp(k, CMP_EQ, kir_idx_divmod(k, rel, 1, step), kir_i64(k, 0)), NULL);
        at[d] = step > 1 ? kir_idx_divmod(k, rel, step, 0) : rel;
    }
    RETURN_IF_ERR(lower_operand(lw, i, 0, at, &x));
    RETURN_IF_ERR(lower_operand(lw, i, 1, NULL, &fill));
    *out = kir_select(k, valid, x, fill);
    return ST_OK;
}

// A start index operand as s64, clamped so that the slice fits.
static status_t start_index(struct lower *lw, const struct hlo_instr *i, int n, int64_t last,
                            struct kir_val **out) {
    RETURN_IF_ERR(lower_operand(lw, i, n, NULL, out));
    if (i->operands[n]->shape->rank) return lower_no(lw, "a vector of start indices");
    *out = kir_idx_place(&lw->k, *out, last);
    return ST_OK;
}
LOWER(DYNAMIC_SLICE) {
    const struct shape *from = i->operands[0]->shape;
    struct kir_val *at[HLO_MAX_RANK + 1], *s;
    if (i->n_operands != from->rank + 1) return lower_no(lw, "a vector of start indices");
    for (int d = 0; d < from->rank; d++) {
        RETURN_IF_ERR(start_index(lw, i, d + 1, from->dims[d] - i->shape->dims[d], &s));
        at[d] = kir_idx_add(&lw->k, index[d], s);
    }
    return lower_operand(lw, i, 0, at, out);
}
LOWER(DYNAMIC_UPDATE_SLICE) {
    const struct shape *from = i->operands[0]->shape, *up = i->operands[1]->shape;
    struct kir *k = &lw->k;
    struct kir_val *at[HLO_MAX_RANK + 1], *s, *valid = kir_int(k, DT_PRED, 1), *x, *y;
    if (i->n_operands != from->rank + 2) return lower_no(lw, "a vector of start indices");
    if (shape_elements(up) == 0) return lower_operand(lw, i, 0, index, out);
    for (int d = 0; d < from->rank; d++) {
        RETURN_IF_ERR(start_index(lw, i, d + 2, from->dims[d] - up->dims[d], &s));
        struct kir_val *rel = kir_idx_add(k, index[d], kir_idx_mul(k, s, -1));
        valid = kir_op(k, K_AND, valid, kir_cmp(k, CMP_GE, rel, kir_i64(k, 0)), NULL);
        valid = kir_op(k, K_AND, valid, kir_cmp(k, CMP_LT, rel, kir_i64(k, up->dims[d])), NULL);
        at[d] = kir_idx_clamp(k, rel, 0, up->dims[d] - 1);
    }
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, &x));
    RETURN_IF_ERR(lower_operand(lw, i, 1, at, &y));
    *out = kir_select(k, valid, y, x);
    return ST_OK;
}
// Where the result holds the operand already: the update alone.
WHOLE(DYNAMIC_UPDATE_SLICE) {
    const struct shape *to = i->shape, *up = i->operands[1]->shape;
    struct kir *k = &lw->k;
    struct kir_loop *nest[HLO_MAX_RANK + 1];
    struct kir_val *index[HLO_MAX_RANK + 1], *at[HLO_MAX_RANK + 1], *start[HLO_MAX_RANK + 1], *v;
    if (i->n_operands != to->rank + 2) return lower_no(lw, "a vector of start indices");
    k->fn->extent = 1;
    struct kir_loop *unit = kir_for(k, k->fn->begin, k->fn->end, 1, NULL, 0);
    if (shape_elements(up)) {
        for (int d = 0; d < to->rank; d++)
            RETURN_IF_ERR(start_index(lw, i, d + 2, to->dims[d] - up->dims[d], &start[d]));
        for (int d = 0; d < to->rank; d++) {
            nest[d] = kir_for(k, kir_i64(k, 0), kir_i64(k, up->dims[d]), up->dims[d], NULL, 0);
            index[d] = nest[d]->var;
            at[d] = kir_idx_add(k, index[d], start[d]);
        }
        RETURN_IF_ERR(lower_operand(lw, i, 1, index, &v));
        lower_put(lw, i, 0, at, v);
        if (to->rank) nest[to->rank - 1]->vectorize = true;
        for (int d = to->rank - 1; d >= 0; d--)
            kir_end(k, nest[d], NULL);
    }
    kir_end(k, unit, NULL);
    return ST_OK;
}
LOWER(GATHER) {
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct shape *from = i->operands[0]->shape, *ix = i->operands[1]->shape;
    struct kir *k = &lw->k;
    struct kir_val *batch[HLO_MAX_RANK + 1], *at[HLO_MAX_RANK + 1], *sel[HLO_MAX_RANK + 1], *s;
    int nb = 0, off = 0, b = 0;
    if (shape_elements(from) == 0) return lower_no(lw, "a gather from nothing");
    for (int d = 0; d < i->shape->rank; d++)
        if (!i64s_has(g->offset_dims, d)) batch[nb++] = index[d];
    for (int d = 0; d < from->rank; d++) {
        bool gone = i64s_has(g->collapsed_slice_dims, d) || i64s_has(g->operand_batching_dims, d);
        at[d] = gone ? kir_i64(k, 0) : index[g->offset_dims.v[off++]];
    }
    for (int d = 0; d < ix->rank; d++)
        sel[d] = d == g->index_vector_dim ? kir_i64(k, 0) : batch[b++];
    for (int n = 0; n < g->start_index_map.n; n++) {
        int64_t d = g->start_index_map.v[n];
        if (g->index_vector_dim < ix->rank) sel[g->index_vector_dim] = kir_i64(k, n);
        RETURN_IF_ERR(lower_operand(lw, i, 1, sel, &s));
        s = kir_idx_place(k, s, from->dims[d] - g->slice_sizes.v[d]);
        at[d] = kir_idx_add(k, at[d], s);
    }
    for (int n = 0; n < g->operand_batching_dims.n; n++) {
        int64_t id = g->start_indices_batching_dims.v[n];
        at[g->operand_batching_dims.v[n]] = sel[id];
    }
    return lower_operand(lw, i, 0, at, out);
}
// The values of tuple-shaped rules stand next to each other in `out`.
LOWER(GET_TUPLE_ELEMENT) {
    struct kir_val *all[LOWER_MAX_RESULTS];
    if (lower_turn_has(lw, i)) return lower_turn_get(lw, i, index, out);
    if (shape_leaves(i->operands[0]->shape) > LOWER_MAX_RESULTS)
        return lower_no(lw, "too many results");
    RETURN_IF_ERR(lower_operand(lw, i, 0, index, all));
    *out = all[HLO_ATTR(i, gte)->index];
    return ST_OK;
}
