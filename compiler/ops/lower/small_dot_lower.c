// SPDX-License-Identifier: Apache-2.0
// Products of many small matrices: all of a matrix's rows lie in registers, a few at a time, beside
// a row of the other one. Vectors are as wide as a row of the result or narrower; where they do not
// divide it the last one begins where a whole one is left, and the columns that two of them have
// come out twice, equal. The same with the last rows. So nothing is read or written outside, and
// no lane is empty. A right operand whose terms lie side by side is turned into scratch first.
// Integers of 8 and 16 bits become 32 as they are read, or 16 where the result has no more. Does
// not: other types that are computed in others.
#include "base/span.h"
#include "compiler/kernel/lower_priv.h"
#include "compiler/kernel/lower_tile.h"

enum {
    MOST = 128,
    ALONE = 1 << 14, // products of one matrix, of more tiles are as fast
    FEW_TERMS = 4,
    FEW_ROWS = 3, // of one product, for which a matrix is not turned
    SOME_TERMS = 10,
    FEW_COLUMNS = 8,
    NEAR = 32,
    WRITTEN_OUT = 96,
    MOST_KEPT = 16,
    MOST_VECTORS = 3,
    MOST_SUMS = 24,
    MOST_LANES = 16 // of a matrix that is turned
};

// How an operand's matrices lie: elements between them, and along their two dimensions.
struct lie {
    int64_t next, free, term, n; // n: of the free dimension
};
static int64_t stride_of(const struct shape *s, int64_t dim) {
    int64_t n = 1;
    for (int64_t d = dim + 1; d < s->rank; d++)
        n *= s->dims[d];
    return n;
}
// Batch dimensions side by side and in order, before the last dimension, which is read in vectors
// or by terms.
static bool lies(const struct shape *s, struct i64s batch, int64_t term, struct lie *l) {
    int64_t sum = term;
    for (int n = 0; n < batch.n; n++) {
        if (batch.v[n] != batch.v[0] + n) return false;
        sum += batch.v[n];
    }
    int64_t last = batch.n ? batch.v[batch.n - 1] : -1;
    int64_t free = (int64_t)s->rank * (s->rank - 1) / 2 - sum;
    if (last == s->rank - 1) return false;
    *l = (struct lie){batch.n ? stride_of(s, last) : 0, stride_of(s, free), stride_of(s, term),
                      s->dims[free]};
    return true;
}
static bool short_int(enum dtype t) {
    return dtype_is_int(t) && t != DT_PRED && (dtype_bits(t) == 8 || dtype_bits(t) == 16);
}
static bool type_ok(const struct hlo_instr *i, int vector_bits) {
    enum { AVX2 = 256 };
    enum dtype t = i->shape->dtype, x = i->operands[0]->shape->dtype,
               y = i->operands[1]->shape->dtype;
    bool number = t == DT_F32 || t == DT_F64 || (dtype_is_int(t) && dtype_bits(t) >= 32);
    if (number && x == t && y == t) return true;
    bool narrow = short_int(t) || t == DT_S32 || t == DT_U32;
    return narrow && short_int(x) && short_int(y) && vector_bits >= AVX2;
}
// What sums are computed in: modulo 2^16 those of 8 bits are the same.
static enum dtype sum_type(const struct small_dot *s) {
    enum dtype t = s->i->shape->dtype;
    return short_int(t) ? DT_S16 : t;
}
// The type of what lies in buffer `from`.
static enum dtype type_in(const struct small_dot *s, int from) {
    bool left = (from == s->x) != s->swapped;
    return from == KIR_SCRATCH ? sum_type(s) : s->i->operands[left ? 0 : 1]->shape->dtype;
}
// Long lines beside few rows or columns are summed as they lie (measured on Zen 4, AVX-512: at the
// bounds the turned matrix is about as fast, within them up to 4.4 times).
static bool repays_turn(const struct small_dot *s) {
    enum { SOME_ROWS = 4, MANY_ROWS = 8 };
    int64_t wide = 1;
    while (wide * 2 <= s->n)
        wide *= 2;
    return s->k <= wide * (s->m >= MANY_ROWS && s->n >= FEW_COLUMNS ? 8
                           : s->m >= SOME_ROWS                      ? 4
                                                                    : 2);
}
// Of few columns the rows are in the lanes: the operands change sides, and the product is turned.
// Measured as above, 240 sizes: where rows lie apart they are turned too, which pays where columns
// are no power of two, so that two vectors have some of them in common. Sums of few terms of many
// rows others write out.
static bool is_better_swapped(const struct small_dot *s, bool columns) {
    enum { LEAST_ROWS = 12, SHORT = 16, LONG = 48 };
    bool full = (s->n & (s->n - 1)) == 0;
    if (s->m < LEAST_ROWS || s->n >= FEW_COLUMNS) return false;
    if (columns) return s->m <= NEAR || s->k >= SOME_TERMS;
    if (full) return s->turned && s->n == 4 && s->k >= LONG;
    return s->k >= SOME_TERMS && !(s->turned && s->n == 3 && s->k > SHORT);
}
// The same product with its operands, which lie like a and b, in each other's place.
static struct small_dot with_sides_changed(const struct small_dot *s, const struct lie *a,
                                           const struct lie *b) {
    bool columns = a->term != 1;
    return (struct small_dot){.i = s->i,
                              .x = s->y,
                              .y = s->x,
                              .batch = s->batch,
                              .m = s->n,
                              .k = s->k,
                              .n = s->m,
                              .row = b->free,
                              .term = b->term,
                              .line = columns ? a->term : a->free,
                              .x_next = b->next,
                              .y_next = a->next,
                              .turned = !columns,
                              .swapped = true};
}
bool hlo_small_dot(struct lower *lw, const struct hlo_instr *i, int vector_bits,
                   struct small_dot *out) {
    const struct hlo_attr_dot *d = i->op == HLO_DOT ? HLO_ATTR(i, dot) : NULL;
    if (!d || !type_ok(i, vector_bits)) return false;
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    intptr_t left = (intptr_t)pmap_get_ptr(&lw->leaf, i->operands[0]),
             right = (intptr_t)pmap_get_ptr(&lw->leaf, i->operands[1]);
    int n = d->lhs_batch_dims.n;
    struct lie a, b;
    if (!left || !right || !shape_in_order(x) || !shape_in_order(y) || x->rank != n + 2 ||
        y->rank != n + 2 || d->lhs_contracting_dims.n != 1 || d->rhs_contracting_dims.n != 1 ||
        !lies(x, d->lhs_batch_dims, d->lhs_contracting_dims.v[0], &a) ||
        !lies(y, d->rhs_batch_dims, d->rhs_contracting_dims.v[0], &b))
        return false;

    struct small_dot s = {.i = i,
                          .x = (int)left - 1,
                          .y = (int)right - 1,
                          .batch = 1,
                          .m = a.n,
                          .k = x->dims[d->lhs_contracting_dims.v[0]],
                          .n = b.n,
                          .row = a.free,
                          .term = a.term,
                          .x_next = a.next,
                          .y_next = b.next};
    bool columns = a.term != 1; // of the left matrix lie side by side
    s.turned = b.term == 1;
    s.line = s.turned ? b.free : b.term;
    for (int e = 0; e < n; e++)
        s.batch *= x->dims[d->lhs_batch_dims.v[e]];
    if ((s.batch < 2 && s.m * s.n * s.k > ALONE) || s.m < 1 || s.k < 2 || s.n < 2 || s.m > MOST ||
        s.k > MOST || s.n > MOST)
        return false;
    if (is_better_swapped(&s, columns)) {
        s = with_sides_changed(&s, &a, &b);
    } else {
        // Sums of few terms are written out by others, and few rows do not repay a turned matrix.
        if (s.m > NEAR && s.n < FEW_COLUMNS && (columns || s.k < SOME_TERMS)) return false;
        if (s.k <= FEW_TERMS && (s.m > NEAR || s.n > (s.turned ? NEAR / 2 : NEAR))) return false;
        if (s.turned && (!repays_turn(&s) || (s.batch == 1 && s.m < FEW_ROWS))) return false;
    }
    s.lanes = vector_bits / dtype_bits(sum_type(&s));
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
    int from;                   // the buffer of the right one
    int64_t line;               // between its lines
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
static void term(struct lower *lw, const struct small_dot *s, struct block *b, struct kir_val *at) {
    struct kir *k = &lw->k;
    enum dtype e = sum_type(s), ex = type_in(s, s->x), ey = type_in(s, b->from);
    uint8_t flags = dtype_is_float(e) ? KF_CONTRACT : 0;
    struct kir_val *v[MOST_VECTORS], *line = kir_idx_add(k, b->y, kir_idx_mul(k, at, b->line)), *x;
    x = kir_idx_add(k, b->x, kir_idx_mul(k, b->row, s->row));
    x = kir_idx_add(k, x, kir_idx_mul(k, at, s->term));
    for (int c = 0; c < b->vectors; c++)
        v[c] = kir_cast(
            k, e, kir_load_lanes(k, b->from, ey, plus(k, line, column_of(s, b, c)), s->lanes));
    for (int r = 0; r < b->rows; r++) {
        struct kir_val *one = kir_cast(k, e, kir_load(k, s->x, ex, plus(k, x, r * s->row), 0));
        one = kir_splat(k, one, s->lanes);
        for (int c = 0; c < b->vectors; c++) {
            struct kir_val **sum = &b->sum[r * b->vectors + c];
            *sum = kir_flag(k, K_ADD, *sum, kir_flag(k, K_MUL, v[c], one, flags), flags);
        }
    }
}
static void one_block(struct lower *lw, const struct small_dot *s, struct block *b, int out) {
    struct kir *k = &lw->k;
    enum dtype e = sum_type(s), to = out == KIR_SCRATCH ? e : s->i->shape->dtype;
    int n = b->rows * b->vectors;
    for (int c = 0; c < n; c++)
        b->sum[c] = kir_splat(k, kir_zero(k, e), s->lanes);
    // What rows have is in registers for all blocks beside each other.
    bool kept = s->n <= MOST_VECTORS * s->lanes || s->k * b->rows <= MOST_KEPT;
    if (s->k * n <= WRITTEN_OUT && kept) {
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
        kir_store(k, out, to, plus(k, line, at), kir_cast(k, to, b->sum[c]));
    }
}
// A matrix that is turned: from lines of `across` elements, `pitch` apart, to lines of `down`.
struct turn {
    int from, to; // buffers
    enum dtype e_from, e_to;
    struct kir_val *source, *place;
    int64_t down, across, pitch;
};
// A square block of it: each turn of the loop joins the first half of its lines with the second
// one, lane by lane (a perfect shuffle), which after log2 of its size is the turned one (Stone
// 1971, "Parallel Processing with the Perfect Shuffle").
static void turn_block(struct kir *k, const struct turn *t, enum dtype e, int size,
                       struct kir_val *from, struct kir_val *to) {
    struct kir_val *line[MOST_LANES], *next[MOST_LANES];
    for (int n = 0; n < size; n++)
        line[n] = kir_cast(
            k, e, kir_load_lanes(k, t->from, t->e_from, plus(k, from, n * t->pitch), size));
    for (int half = 1; half < size; half *= 2) {
        for (int n = 0; n < size; n++)
            next[n] = kir_zip(k, line[n / 2], line[n / 2 + size / 2], n % 2);
        memcpy(line, next, sizeof *line * (size_t)size);
    }
    for (int n = 0; n < size; n++)
        kir_store(k, t->to, t->e_to, plus(k, to, n * t->down), kir_cast(k, t->e_to, line[n]));
}
// The n-th block of `size` out of `all`: the last one ends with them.
static struct kir_val *block_at(struct kir *k, struct kir_val *n, int size, int64_t all) {
    return kir_op(k, K_MIN, kir_idx_mul(k, n, size), kir_i64(k, all - size), NULL);
}
static void turn(struct kir *k, const struct turn *t, enum dtype e, int size) {
    while (size > t->down || size > t->across || size > MOST_LANES)
        size /= 2;
    int64_t lines = ceil_div(t->across, size), wide = ceil_div(t->down, size);
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, lines), lines, NULL, 0),
                    *c = kir_for(k, kir_i64(k, 0), kir_i64(k, wide), wide, NULL, 0);
    struct kir_val *at = block_at(k, l->var, size, t->across),
                   *line = block_at(k, c->var, size, t->down);
    struct kir_val *there = kir_idx_add(k, kir_idx_mul(k, line, t->pitch), at),
                   *here = kir_idx_add(k, kir_idx_mul(k, at, t->down), line);
    turn_block(k, t, e, size, kir_idx_add(k, t->source, there), kir_idx_add(k, t->place, here));
    kir_end(k, c, NULL);
    kir_end(k, l, NULL);
}
static struct kir_val *in_scratch(struct lower *lw, enum dtype e, int64_t n) {
    return kir_i64(&lw->k, lower_scratch(lw, e, n) / dtype_size(e));
}
// Of columns side by side, into buffer `out`, of which the matrix begins at b->to.
static void sums(struct lower *lw, const struct small_dot *s, struct block b, int out) {
    struct kir *k = &lw->k;
    int64_t vectors = ceil_div(s->n, s->lanes), parts = ceil_div(vectors, MOST_VECTORS);
    for (int64_t p = 0; p < parts; p++) {
        int64_t from = vectors * p / parts, wide = vectors * (p + 1) / parts - from;
        int64_t most = s->sums / wide, groups = ceil_div(s->m, most), tall = ceil_div(s->m, groups);
        b.column = from * s->lanes;
        b.rows = (int)tall;
        b.vectors = (int)wide;
        b.row = kir_i64(k, 0);

        // A loop even over two groups: each has all registers.
        struct kir_loop *l = NULL;
        if (groups > 1) {
            l = kir_for(k, kir_i64(k, 0), kir_i64(k, groups), groups, NULL, 0);
            b.row = block_at(k, l->var, b.rows, s->m);
        }
        one_block(lw, s, &b, out);
        if (l) kir_end(k, l, NULL);
    }
}
// Stores product `at` of the batch in buffer `out` from place `to` on.
static void product(struct lower *lw, const struct small_dot *s, struct kir_val *at, int out,
                    struct kir_val *to) {
    struct kir *k = &lw->k;
    enum dtype e = sum_type(s);
    struct block b = {.from = s->y,
                      .line = s->line,
                      .x = kir_idx_mul(k, at, s->x_next),
                      .y = kir_idx_mul(k, at, s->y_next),
                      .to = to};
    if (s->turned) {
        struct turn t = {s->y, KIR_SCRATCH, type_in(s, s->y),
                         e,    b.y,         in_scratch(lw, e, s->k * s->n),
                         s->n, s->k,        s->line};
        turn(k, &t, e, s->lanes);
        b.from = KIR_SCRATCH;
        b.line = s->n;
        b.y = t.place;
    }
    if (!s->swapped) {
        sums(lw, s, b, out);
        return;
    }

    struct turn back = {
        KIR_SCRATCH, out,  e,   s->i->shape->dtype, in_scratch(lw, e, s->m * s->n), b.to,
        s->m,        s->n, s->n};
    b.to = back.source;
    sums(lw, s, b, KIR_SCRATCH);
    turn(k, &back, e, s->lanes);
}

// ---- the kernel: a unit is a product

static void find_quotient(void *ctx, struct kir_val *v) {
    *(bool *)ctx |= v->op == K_DIVMOD;
}
// What follows the sums of a unit, which lie in scratch, in one loop over them, or in rows.
static status_t follow(struct lower *lw, const struct small_dot *s, const struct lower_outputs *o,
                       const struct shape *first, struct kir_val *unit, struct kir_val *sums,
                       bool rows) {
    struct kir *k = &lw->k;
    struct lower_tile t = {.i = s->i, .type = s->i->shape->dtype};
    int64_t all = s->m * s->n, n = rows ? first->dims[first->rank - 1] : all;
    struct kir_loop *row = kir_for(k, kir_i64(k, 0), kir_i64(k, all / n), all / n, NULL, 0),
                    *l = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
    l->vectorize = true;

    struct kir_val *at = kir_idx_add(k, kir_idx_mul(k, row->var, n), l->var);
    lower_unflatten(lw, kir_idx_add(k, kir_idx_mul(k, unit, all), at), first->dims, first->rank,
                    t.index);
    t.at = kir_idx_add(k, sums, at);
    lw->tile = &t;
    lw->in_range = true;
    status_t st = lower_store(lw, o, first, t.index);
    lw->tile = NULL;
    lw->in_range = false;
    if (st) return st;
    kir_end(k, l, NULL);
    kir_end(k, row, NULL);
    return ST_OK;
}
static status_t build(struct lower *lw, const struct small_dot *s, const struct lower_outputs *o,
                      const struct shape *first, int n_in, bool rows) {
    struct kir *k = &lw->k;
    int64_t all = s->m * s->n;
    lower_begin(lw, n_in, o->n);
    k->fn->extent = s->batch;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, s->batch, NULL, 0);
    if (lw->instr == s->i) {
        product(lw, s, u->var, n_in, kir_idx_mul(k, u->var, all));
    } else {
        struct kir_val *sums = in_scratch(lw, sum_type(s), all);
        product(lw, s, u->var, KIR_SCRATCH, sums);
        RETURN_IF_ERR(follow(lw, s, o, first, u->var, sums, rows));
    }
    kir_end(k, u, NULL);
    return k->overflow ? lower_no(lw, "the kernel is too large") : ST_OK;
}
bool hlo_small_dot_build(struct lower *lw, const struct small_dot *s, const struct lower_outputs *o,
                         const struct shape *first, int n_in, status_t *st) {
    bool alone = lw->instr == s->i, quotient = false;
    bool as_made =
        sum_type(s) == s->i->shape->dtype && shape_in_order(first) && shape_in_order(s->i->shape);
    if (!alone && !as_made) return false;
    *st = build(lw, s, o, first, n_in, false);
    if (!alone && !*st) kir_each(&lw->k.fn->top, find_quotient, &quotient);
    if (quotient) {
        lower_forget(lw);
        *st = build(lw, s, o, first, n_in, true);
    }
    if (alone || st_code(*st) != ST_UNIMPLEMENTED) return true;
    st_drop(*st);
    *st = ST_OK;
    lw->why = NULL;
    lower_forget(lw);
    return false;
}
