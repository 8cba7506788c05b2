// SPDX-License-Identifier: Apache-2.0
// Rules of operations that move elements, and of tuples.
#include "compiler/gradient/tape.h"

void grad_tuple(struct tape *t, hv i, hv const *d) {
    int leaf = 0;
    for (int k = 0; k < i->n_operands; k++)
        for (int j = 0; j < shape_leaves(i->operands[k]->shape); j++)
            tape_give_leaf(t, i->operands[k], j, d[leaf++]);
}
void grad_gte(struct tape *t, hv i, hv const *d) {
    int first = shape_first_leaf(i->operands[0]->shape, (int)HLO_ATTR(i, gte)->index);
    for (int j = 0; j < shape_leaves(i->shape); j++)
        tape_give_leaf(t, i->operands[0], first + j, d[j]);
}
void grad_same(struct tape *t, hv i, hv const *d) { // opt-barrier, add-dependency
    for (int j = 0; j < shape_leaves(i->shape); j++)
        tape_give_leaf(t, i->operands[0], j, d[j]);
}

void grad_reshape(struct tape *t, hv i, hv const *d) {
    const struct shape *s = i->operands[0]->shape;
    tape_give(t, i->operands[0], hb_reshape(t->b, d[0], s->dims, s->rank));
}
void grad_transpose(struct tape *t, hv i, hv const *d) {
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    int64_t back[HLO_MAX_RANK];
    for (int k = 0; k < perm.n; k++)
        back[perm.v[k]] = k;
    tape_give(t, i->operands[0], hb_transpose(t->b, d[0], back));
}
void grad_reverse(struct tape *t, hv i, hv const *d) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    tape_give(t, i->operands[0], hb_reverse(t->b, d[0], dims.v, dims.n));
}
// The sum over what was added, then the dimensions in the operand's order.
void grad_broadcast(struct tape *t, hv i, hv const *d) {
    struct i64s map = HLO_ATTR(i, dims)->dimensions;
    int64_t gone[HLO_MAX_RANK], perm[HLO_MAX_RANK];
    int n = 0;
    for (int64_t k = 0; k < i->shape->rank; k++)
        if (!i64s_has(map, k)) gone[n++] = k;
    for (int k = 0; k < map.n; k++) {
        perm[k] = 0;
        for (int j = 0; j < map.n; j++)
            perm[k] += map.v[j] < map.v[k];
    }
    tape_give(t, i->operands[0], hb_transpose(t->b, tape_sum_over(t, d[0], gone, n), perm));
}
void grad_slice(struct tape *t, hv i, hv const *d) {
    struct ranges r = HLO_ATTR(i, slice)->slice;
    const struct shape *s = i->operands[0]->shape;
    struct pad_dim p[HLO_MAX_RANK];
    for (int k = 0; k < s->rank; k++) {
        int64_t n = i->shape->dims[k], used = n ? (n - 1) * r.v[k].stride + 1 : 0;
        p[k] = (struct pad_dim){r.v[k].start, s->dims[k] - r.v[k].start - used, r.v[k].stride - 1};
    }
    tape_give(t, i->operands[0], hb_pad(t->b, d[0], hb_const_f64(t->b, d[0]->shape->dtype, 0), p));
}
// The padding taken away (or put back, where it was negative), then each element where it went.
void grad_pad(struct tape *t, hv i, hv const *d) {
    struct padding p = HLO_ATTR(i, pad)->padding;
    hv x = i->operands[0], v = i->operands[1], zero = hb_const_f64(t->b, d[0]->shape->dtype, 0);
    struct pad_dim off[HLO_MAX_RANK];
    struct range r[HLO_MAX_RANK];
    for (int k = 0; k < p.n; k++) {
        off[k] = (struct pad_dim){-p.v[k].low, -p.v[k].high, 0};
        int64_t n = x->shape->dims[k], step = p.v[k].interior + 1;
        r[k] = (struct range){0, n ? (n - 1) * step + 1 : 0, step};
    }
    hv by = hb_slice(t->b, hb_pad(t->b, d[0], zero, off), r);
    tape_give(t, x, by);
    if (tape_wants(t, v)) tape_give(t, v, hb_sub(t->b, tape_sum_all(t, d[0]), tape_sum_all(t, by)));
}
void grad_concatenate(struct tape *t, hv i, hv const *d) {
    int64_t dim = HLO_ATTR(i, dims)->dimensions.v[0], at = 0;
    for (int k = 0; k < i->n_operands; k++) {
        struct range r[HLO_MAX_RANK];
        int64_t n = i->operands[k]->shape->dims[dim];
        for (int j = 0; j < i->shape->rank; j++)
            r[j] = (struct range){0, i->shape->dims[j], 1};
        r[dim] = (struct range){at, at + n, 1};
        if (tape_wants(t, i->operands[k])) tape_give(t, i->operands[k], hb_slice(t->b, d[0], r));
        at += n;
    }
}

// ---- at places that the run gives

static hv slice_at(struct tape *t, hv x, hv const *at, const int64_t *sizes) {
    int rank = x->shape->rank;
    hv in[HLO_MAX_RANK + 1] = {x};
    for (int k = 0; k < rank; k++)
        in[k + 1] = at[k];
    struct hlo_attr_dynslice a = {.dynamic_slice_sizes = {(int64_t *)(uintptr_t)sizes, rank}};
    return hb_op(t->b, HLO_DYNAMIC_SLICE, NULL, in, rank + 1, &a);
}
static hv update_at(struct tape *t, hv x, hv with, hv const *at) {
    int rank = x->shape->rank;
    hv in[HLO_MAX_RANK + 2] = {x, with};
    for (int k = 0; k < rank; k++)
        in[k + 2] = at[k];
    return hb_op(t->b, HLO_DYNAMIC_UPDATE_SLICE, NULL, in, rank + 2, NULL);
}
// Into what there is already: a loop that reads a slice a turn adds a slice a turn.
void grad_dynamic_slice(struct tape *t, hv i, hv const *d) {
    hv x = i->operands[0], *at = i->operands + 1, sum = tape_sum(t, x, 0);
    if (!tape_wants(t, x) || !hb_ok(t->b)) return;
    hv more = d[0];
    if (sum)
        more = hb_add(t->b, slice_at(t, sum, at, i->shape->dims), more);
    else
        sum = tape_zeros(t, x->shape);
    tape_set_sum(t, x, 0, update_at(t, sum, more, at));
}
void grad_dynamic_update_slice(struct tape *t, hv i, hv const *d) {
    hv x = i->operands[0], u = i->operands[1], *at = i->operands + 2;
    if (tape_wants(t, x)) tape_give(t, x, update_at(t, d[0], tape_zeros(t, u->shape), at));
    if (tape_wants(t, u)) tape_give(t, u, slice_at(t, d[0], at, u->shape->dims));
}
