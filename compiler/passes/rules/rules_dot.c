// SPDX-License-Identifier: Apache-2.0
// Products of which one operand is broadcast along a batch dimension: heads of queries that share
// their keys and values (Ainslie et al., "GQA", 2023) as exporters write them. That is no batch: it
// is more rows of the other operand, and nothing is copied.
#include "compiler/passes/rules/rules.h"

// The last batch dimension of such an operand: `own` of what is broadcast, each `times`.
struct shared {
    struct hlo_instr *x; // what is broadcast
    int64_t own, times;
};
static bool is_new(struct i64s dims, const struct shape *s, int64_t d) {
    return !i64s_has(dims, d) && s->dims[d] != 1;
}
// Does the reshape from `from` only put dimensions [first, first + n) together, as d?
static bool joins_dims(const struct shape *from, const struct shape *to, int64_t d, int64_t *first,
                       int64_t *n) {
    int k = 0;
    for (int t = 0; t < to->rank; t++) {
        int64_t product = 1, begin = k;
        if (t != d) {
            if (k == from->rank || from->dims[k++] != to->dims[t]) return false;
            continue;
        }
        while (k < from->rank && product < to->dims[t])
            product *= from->dims[k++];
        if (product != to->dims[t]) return false;
        *first = begin, *n = k - begin;
    }
    return k == from->rank;
}
// What y's dimension d repeats, as its minor part.
static bool repeats(const struct hlo_instr *y, int64_t d, struct shared *s) {
    const struct hlo_instr *b = y->op == HLO_RESHAPE ? y->operands[0] : y;
    int64_t first = d, n = 1;
    if (b->op != HLO_BROADCAST || b->shape->dynamic || shape_elements(b->shape) < 1) return false;
    if (b != y && !joins_dims(b->shape, y->shape, d, &first, &n)) return false;
    struct i64s dims = HLO_ATTR(b, dims)->dimensions;
    for (int k = 1; k < dims.n; k++)
        if (dims.v[k] < dims.v[k - 1]) return false;
    *s = (struct shared){b->operands[0], 1, 1};
    for (int64_t k = 0; k < b->shape->rank; k++) {
        bool inside = k >= first && k < first + n, again = is_new(dims, b->shape, k);
        if (!inside && again) return false;
        if (again)
            s->times *= b->shape->dims[k];
        else if (inside && b->shape->dims[k] != 1 && s->times > 1)
            return false;
        else if (inside)
            s->own *= b->shape->dims[k];
    }
    return s->times > 1;
}

// The other operand as batch, free and contracting dimensions in this order, the parts of its last
// batch dimension that share among the rows. d: of it and of what is shared, in this order.
static hv gather_rows(struct rule_ctx *r, hv x, const struct shared *s, struct hlo_attr_dot *d) {
    struct i64s batch = d->lhs_batch_dims, sums = d->lhs_contracting_dims;
    int64_t perm[HLO_MAX_RANK], to[HLO_MAX_RANK], rows = s->times;
    int n = 0, rank = 0;
    for (int k = 0; k < batch.n; k++)
        perm[n++] = batch.v[k];
    for (int64_t k = 0; k < x->shape->rank; k++) {
        if (i64s_has(batch, k) || i64s_has(sums, k)) continue;
        perm[n++] = k;
        rows *= x->shape->dims[k];
    }
    for (int k = 0; k < sums.n; k++)
        perm[n++] = sums.v[k];

    for (int k = 0; k + 1 < batch.n; k++)
        to[rank++] = x->shape->dims[batch.v[k]];
    if (s->own > 1) to[rank++] = s->own;
    d->lhs_batch_dims.n = rank;
    to[rank++] = rows;
    for (int k = 0; k < sums.n; k++)
        to[rank++] = x->shape->dims[sums.v[k]];
    for (int k = 0; k < d->lhs_batch_dims.n; k++)
        batch.v[k] = k;
    for (int k = 0; k < sums.n; k++)
        sums.v[k] = rank - sums.n + k;
    return hb_reshape(&r->b, hb_transpose(&r->b, x, perm), to, rank);
}
// y without its repetitions: dimension `last` has `own` elements, or is gone.
static hv once(struct rule_ctx *r, const struct hlo_instr *y, int64_t last, const struct shared *s,
               struct hlo_attr_dot *d) {
    int64_t to[HLO_MAX_RANK];
    int rank = 0;
    for (int64_t k = 0; k < y->shape->rank; k++)
        if (k != last || s->own > 1) to[rank++] = k == last ? s->own : y->shape->dims[k];
    if (s->own == 1) {
        struct i64s all[] = {d->rhs_batch_dims, d->rhs_contracting_dims};
        d->rhs_batch_dims.n--;
        for (int a = 0; a < 2; a++)
            for (int k = 0; k < all[a].n; k++)
                all[a].v[k] -= all[a].v[k] > last;
    }
    return hb_reshape(&r->b, s->x, to, rank);
}
// Does x lie as gather_rows has it?
static bool in_order(const struct shape *x, struct i64s batch, struct i64s sums) {
    for (int k = 0; k < batch.n; k++)
        if (batch.v[k] != k) return false;
    for (int k = 0; k < sums.n; k++)
        if (sums.v[k] != x->rank - sums.n + k) return false;
    return true;
}
// v, of dimensions [batch, free of x, free of y], as the result i, which has y's first.
static hv swap_free(struct rule_ctx *r, hv v, const struct hlo_instr *i, int batch, int free_x) {
    int64_t perm[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int rank = i->shape->rank, free_y = rank - batch - free_x;
    for (int k = 0; k < rank; k++) {
        perm[k] = k < batch ? k : k < batch + free_y ? k + free_x : k - free_y;
        dims[perm[k]] = i->shape->dims[k];
    }
    return hb_transpose(&r->b, hb_reshape(&r->b, v, dims, rank), perm);
}
// Is what is copied elsewhere instead no more than what y is?
static bool pays(const struct hlo_instr *i, const struct hlo_instr *x, const struct hlo_instr *y,
                 bool swapped, const struct hlo_attr_dot *d) {
    int64_t most = shape_elements(y->shape);
    bool turned = i->users.n == 1 && i->users.v[0]->op == HLO_TRANSPOSE;
    if (swapped && !turned && shape_elements(i->shape) > most) return false;
    return in_order(x->shape, d->lhs_batch_dims, d->lhs_contracting_dims) ||
           shape_elements(x->shape) <= most;
}
// Operand y is repeated: the product is of x and of what y repeats.
static hv share(struct rule_ctx *r, struct hlo_instr *i, int side) {
    hv y = i->operands[side], x = i->operands[!side];
    int64_t lists[4][HLO_MAX_RANK];
    struct hlo_attr_dot was = *HLO_ATTR(i, dot), d;
    struct shared s;
    if (side == 0) {
        struct i64s batch = was.lhs_batch_dims, sums = was.lhs_contracting_dims;
        was.lhs_batch_dims = was.rhs_batch_dims,
        was.lhs_contracting_dims = was.rhs_contracting_dims;
        was.rhs_batch_dims = batch, was.rhs_contracting_dims = sums;
    }
    int n = was.rhs_batch_dims.n;
    int64_t last = was.rhs_batch_dims.v[n - 1];
    if (!repeats(y, last, &s) || !pays(i, x, y, side == 0, &was)) return NULL;
    d = was;
    struct i64s *all[] = {&d.lhs_batch_dims, &d.lhs_contracting_dims, &d.rhs_batch_dims,
                          &d.rhs_contracting_dims};
    for (int a = 0; a < 4; a++) {
        for (int k = 0; k < all[a]->n; k++)
            lists[a][k] = all[a]->v[k];
        all[a]->v = lists[a];
    }

    hv of[] = {gather_rows(r, x, &s, &d), once(r, y, last, &s, &d)};
    hv dot = hb_dot(&r->b, of[0], of[1], &d);
    hlo_set_shape(dot, shape_with_dtype(i->parent->module->arena, dot->shape, i->shape->dtype));
    if (side) return hb_reshape(&r->b, dot, i->shape->dims, i->shape->rank);
    return swap_free(r, dot, i, n, x->shape->rank - n - was.lhs_contracting_dims.n);
}
RULE_FN(dot_shared) {
    if (i->op != HLO_DOT || !HLO_ATTR(i, dot)->lhs_batch_dims.n || shape_elements(i->shape) < 1)
        return NULL;
    if (i->shape->dynamic || i->operands[0]->shape->dynamic || i->operands[1]->shape->dynamic)
        return NULL;
    hv v = share(r, i, 1);
    return v ? v : share(r, i, 0);
}
