// SPDX-License-Identifier: Apache-2.0
// Products of many small matrices: all of a matrix's rows lie in registers, a few at a time, beside
// a row of the other one. Vectors are as wide as a row of the result or narrower; where they do not
// divide it the last one begins where a whole one is left, and the columns that two of them have
// come out twice, equal. The same with the last rows. So nothing is read or written outside, and
// no lane is empty. Does not: right operands that are turned, types that are computed in others.
#include "base/span.h"
#include "compiler/kernel/lower_tile.h"

enum { MOST = 32, WRITTEN_OUT = 96, MOST_VECTORS = 3, MOST_SUMS = 24 };

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank);
}
// Batch dimensions first, in order, on both sides.
static bool batches_first(const struct hlo_attr_dot *d) {
    if (d->lhs_batch_dims.n != d->rhs_batch_dims.n || d->lhs_batch_dims.n == 0) return false;
    for (int n = 0; n < d->lhs_batch_dims.n; n++)
        if (d->lhs_batch_dims.v[n] != n || d->rhs_batch_dims.v[n] != n) return false;
    return true;
}
static bool type_ok(const struct hlo_instr *i) {
    enum dtype t = i->shape->dtype;
    bool number = t == DT_F32 || t == DT_F64 || (dtype_is_int(t) && dtype_bits(t) >= 32);
    return number && i->operands[0]->shape->dtype == t && i->operands[1]->shape->dtype == t;
}
bool hlo_small_dot(struct lower *lw, const struct hlo_instr *i, int vector_bits,
                   struct small_dot *out) {
    const struct hlo_attr_dot *d = i->op == HLO_DOT ? HLO_ATTR(i, dot) : NULL;
    if (!d || !type_ok(i) || !batches_first(d)) return false;
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    intptr_t left = (intptr_t)pmap_get_ptr(&lw->leaf, i->operands[0]),
             right = (intptr_t)pmap_get_ptr(&lw->leaf, i->operands[1]);
    int n = d->lhs_batch_dims.n;
    if (!left || !right || !plain(x) || !plain(y) || x->rank != n + 2 || y->rank != n + 2 ||
        d->lhs_contracting_dims.n != 1 || d->rhs_contracting_dims.n != 1 ||
        d->rhs_contracting_dims.v[0] != n)
        return false;

    bool turned = d->lhs_contracting_dims.v[0] == n;
    struct small_dot s = {.i = i, .x = (int)left - 1, .y = (int)right - 1, .batch = 1};
    s.m = x->dims[turned ? n + 1 : n], s.k = y->dims[n], s.n = y->dims[n + 1];
    for (int e = 0; e < n; e++)
        s.batch *= x->dims[e];
    if (s.batch < 2 || s.m < 1 || s.k < 2 || s.n < 2 || s.m > MOST || s.k > MOST || s.n > MOST)
        return false;
    s.row = turned ? 1 : s.k;
    s.term = turned ? s.m : 1;
    s.lanes = vector_bits / dtype_bits(i->shape->dtype);
    while (s.lanes > s.n)
        s.lanes /= 2;
    s.sums = vector_bits == 512 ? MOST_SUMS : MOST_SUMS / 2;
    *out = s;
    return true;
}

// A few rows by a few vectors of columns.
struct block {
    struct kir_val *row; // the first
    int64_t column;
    int rows, vectors;
    struct kir_val *x, *y, *to; // where the matrices begin
    struct kir_val *sum[MOST_SUMS];
};
// Where vector v of a block begins: the last one of a row ends with it.
static int64_t column_of(const struct small_dot *s, const struct block *b, int v) {
    int64_t at = b->column + v * s->lanes;
    return at + s->lanes > s->n ? s->n - s->lanes : at;
}
static struct kir_val *plus(struct kir *k, struct kir_val *x, int64_t c) {
    return kir_idx_add(k, x, kir_i64(k, c));
}
static void term(struct lower *lw, const struct small_dot *s, struct block *b,
                 struct kir_val *at) {
    struct kir *k = &lw->k;
    enum dtype e = s->i->shape->dtype;
    uint8_t flags = dtype_is_float(e) ? KF_CONTRACT : 0;
    struct kir_val *v[MOST_VECTORS], *line = kir_idx_add(k, b->y, kir_idx_mul(k, at, s->n)), *x;
    x = kir_idx_add(k, b->x, kir_idx_mul(k, b->row, s->row));
    x = kir_idx_add(k, x, kir_idx_mul(k, at, s->term));
    for (int c = 0; c < b->vectors; c++)
        v[c] = kir_load_lanes(k, s->y, e, plus(k, line, column_of(s, b, c)), s->lanes);
    for (int r = 0; r < b->rows; r++) {
        struct kir_val *one = kir_load(k, s->x, e, plus(k, x, r * s->row), 0);
        one = kir_splat(k, one, s->lanes);
        for (int c = 0; c < b->vectors; c++) {
            struct kir_val **sum = &b->sum[r * b->vectors + c];
            *sum = kir_flag(k, K_ADD, *sum, kir_flag(k, K_MUL, v[c], one, flags), flags);
        }
    }
}
static void one_block(struct lower *lw, const struct small_dot *s, struct block *b, int out) {
    struct kir *k = &lw->k;
    enum dtype e = s->i->shape->dtype;
    int n = b->rows * b->vectors;
    for (int c = 0; c < n; c++)
        b->sum[c] = kir_splat(k, kir_zero(k, e), s->lanes);
    if (s->k * n <= WRITTEN_OUT) {
        for (int64_t t = 0; t < s->k; t++)
            term(lw, s, b, kir_i64(k, t));
    } else {
        struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, s->k), s->k, b->sum, n);
        memcpy(b->sum, l->carry, sizeof *b->sum * (size_t)n);
        term(lw, s, b, l->var);
        kir_end(k, l, b->sum);
        memcpy(b->sum, l->result, sizeof *b->sum * (size_t)n);
    }

    for (int c = 0; c < n; c++) {
        int64_t at = c / b->vectors * s->n + column_of(s, b, c % b->vectors);
        struct kir_val *line = kir_idx_add(k, b->to, kir_idx_mul(k, b->row, s->n));
        kir_store(k, out, e, plus(k, line, at), b->sum[c]);
    }
}
void hlo_small_dot_sums(struct lower *lw, const struct small_dot *s, struct kir_val *at, int out) {
    struct kir *k = &lw->k;
    int64_t vectors = ceil_div(s->n, s->lanes), parts = ceil_div(vectors, MOST_VECTORS);
    for (int64_t p = 0; p < parts; p++) {
        int64_t from = vectors * p / parts, wide = vectors * (p + 1) / parts - from;
        int64_t most = s->sums / wide, groups = ceil_div(s->m, most), tall = ceil_div(s->m, groups);
        struct block b = {.column = from * s->lanes,
                          .rows = (int)tall,
                          .vectors = (int)wide,
                          .x = kir_idx_mul(k, at, s->m * s->k),
                          .y = kir_idx_mul(k, at, s->k * s->n),
                          .to = kir_idx_mul(k, at, s->m * s->n)};
        // A loop even over two groups: each has all registers.
        struct kir_loop *l = NULL;
        b.row = kir_i64(k, 0);
        if (groups > 1) {
            l = kir_for(k, kir_i64(k, 0), kir_i64(k, groups), groups, NULL, 0);
            b.row = kir_op(k, K_MIN, kir_idx_mul(k, l->var, tall), kir_i64(k, s->m - tall), NULL);
        }
        one_block(lw, s, &b, out);
        if (l) kir_end(k, l, NULL);
    }
}
