// SPDX-License-Identifier: Apache-2.0
// TfIdfVectorizer, on numbers or on the places of texts: how often each n-gram of a pool stands in
// a sequence, with gaps up to max_skip_count. An item becomes its number in the pool's vocabulary;
// an n-gram is found item by item, as the number of what it begins with among all such beginnings,
// by binary search. So the time does not grow with the pool, but for its logarithm.
#include <stdlib.h>
#include <string.h>

#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_ITEMS = 1 << 22, MAX_COLUMNS = 1 << 22, MAX_SEARCHES = 1 << 12 };

struct pool {
    struct i64s items, words; // words: the different items, in order
    const struct onnx_attr *starts;
    hv at, in; // of the sequences: s64 and pred [batch, items], each item's word, if it is one
};

// ---- what is known before the run

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}
static struct i64s in_order(struct onnx_ctx *c, const int64_t *v, int64_t n) {
    struct i64s r = {arena_array(c->a, int64_t, n + 1), 0};
    memcpy(r.v, v, (size_t)n * sizeof *v);
    qsort(r.v, (size_t)n, sizeof *v, by_value);
    for (int64_t k = 0; k < n; k++)
        if (!k || r.v[k] != r.v[r.n - 1]) r.v[r.n++] = r.v[k];
    return r;
}
static int64_t number_in(struct i64s v, int64_t x) {
    const int64_t *at = bsearch(&x, v.v, (size_t)v.n, sizeof x, by_value);
    return at ? at - v.v : 0;
}
// The pool: grams of length 1, then 2, ...; ngram_counts says where each length begins.
static bool pool_part(struct onnx_ctx *c, const struct pool *pool, size_t length,
                      struct i64s *grams) {
    const struct onnx_attr *starts = pool->starts;
    int64_t from = starts->ints.v[length - 1],
            to = length < starts->ints.n ? starts->ints.v[length] : pool->items.n;
    if (from < 0 || to < from || to > pool->items.n || (to - from) % (int64_t)length)
        return onnx_fail(c, "ngram_counts do not fit the pool"), false;
    *grams = (struct i64s){pool->items.v + from, (to - from) / (int64_t)length};
    return grams->n > 0;
}

// ---- finding

// Numbers that lie so near to each other, as those of a vocabulary do, are looked up by themselves.
static bool lies_dense(struct i64s table) {
    enum { LEAST = 1 << 10, MOST = 1 << 16 };
    int64_t most = table.n * 4 > LEAST ? table.n * 4 : LEAST;
    return table.n && table.v[0] >= 0 && table.v[table.n - 1] < (most < MOST ? most : MOST);
}
static hv place_by_number(struct onnx_ctx *c, struct i64s table, hv x, hv *found) {
    struct hb *b = &c->b;
    int64_t room = table.v[table.n - 1] + 1, *v = arena_array(c->a, int64_t, room);
    for (int64_t k = 0; k < room; k++)
        v[k] = -1;
    for (int64_t k = 0; k < table.n; k++)
        v[table.v[k]] = k;
    hv in = onnx_within(c, x, 0, (double)(room - 1));
    hv at = hb_select(b, in, x, onnx_splat_like(c, x, 0));
    at = onnx_take(c, onnx_lit_s64s(c, v, &room, 1), at, 0);
    *found = onnx_and(c, in, onnx_compare_k(c, at, 0, CMP_GE));
    return hb_max(b, at, onnx_splat_like(c, at, 0));
}
// Where x stands in `table`, which is in order: s64 like x, and pred whether it does.
static hv place_in(struct onnx_ctx *c, struct i64s table, hv x, hv *found) {
    struct hb *b = &c->b;
    int64_t room = 1;
    if (lies_dense(table)) return place_by_number(c, table, x, found);
    while (room <= table.n)
        room *= 2;
    int64_t *v = arena_array(c->a, int64_t, room);
    for (int64_t k = 0; k < room; k++)
        v[k] = k < table.n ? table.v[k] : INT64_MAX;
    hv all = onnx_lit_s64s(c, v, &room, 1), at = onnx_splat_like(c, x, 0);
    for (int64_t step = room / 2; step && hb_ok(b); step /= 2) {
        hv here = onnx_take(c, all, onnx_add_k(c, at, (double)(step - 1)), 0);
        hv next = onnx_add_k(c, at, (double)step);
        at = hb_select(b, hb_compare(b, here, x, CMP_LT), next, at);
    }
    *found = onnx_and(c, hb_compare(b, onnx_take(c, all, at, 0), x, CMP_EQ),
                      onnx_compare_k(c, at, (double)table.n, CMP_LT));
    return at;
}

// Counts [batch, grams] of the n-grams, items `gap` apart.
static hv gram_counts(struct onnx_ctx *c, const struct pool *p, struct i64s grams, int64_t n,
                      int64_t gap) {
    struct hb *b = &c->b;
    int64_t count = grams.n, batch = p->at->shape->dims[0],
            places = p->at->shape->dims[1] - (n - 1) * gap;
    hv counts = hb_splat(b, shape_make(c->a, DT_S32, (int64_t[]){batch, count}, 2), 0);
    if (places < 1 || !hb_ok(b)) return counts;

    int64_t *begun = arena_zarray(c->a, int64_t, grams.n + 1);
    hv at = onnx_splat_like(c, onnx_part(c, p->at, 1, 0, places), 0), ok = NULL, in;
    for (int64_t l = 0; l < n && hb_ok(b); l++) {
        for (int64_t k = 0; k < grams.n; k++)
            begun[k] = begun[k] * p->words.n + number_in(p->words, grams.v[k * n + l]);
        struct i64s table = in_order(c, begun, grams.n);
        for (int64_t k = 0; k < grams.n; k++)
            begun[k] = number_in(table, begun[k]);
        hv word = onnx_part(c, p->at, 1, l * gap, l * gap + places);
        at = place_in(c, table, hb_add(b, onnx_mul_k(c, at, (double)p->words.n), word), &in);
        in = onnx_and(c, in, onnx_part(c, p->in, 1, l * gap, l * gap + places));
        ok = ok ? onnx_and(c, ok, in) : in;
    }

    // Grams that stand in the pool several times are counted as the last of them.
    int64_t *last = arena_zarray(c->a, int64_t, grams.n + 1);
    for (int64_t k = 0; k < grams.n; k++)
        last[begun[k]] = k;
    at = onnx_take(c, onnx_lit_s64s(c, last, &count, 1), at, 0);
    at = hb_select(b, ok, at, onnx_splat_like(c, at, (double)grams.n)); // beyond: nowhere
    hv to = onnx_stack_last(c, (hv[]){onnx_index_along(c, at->shape, DT_S64, 0), at}, 2);
    hv one = hb_splat(b, shape_with_dtype(c->a, at->shape, DT_S32), 1);
    counts = onnx_put_points(c, counts, to, 2, one, HLO_ADD);

    bool twice = false;
    for (int64_t k = 0; k < grams.n; k++) {
        begun[k] = last[begun[k]];
        twice |= begun[k] != k;
    }
    return twice ? onnx_take(c, counts, onnx_lit_s64s(c, begun, &count, 1), 1) : counts;
}

// The pool of texts as one of their places.
static const struct onnx_attr *text_pool(struct onnx_ctx *c) {
    const struct onnx_attr *texts = onnx_attr(c->n, "pool_strings");
    struct onnx_attr *places = arena_new_of(c->a, struct onnx_attr);
    if (!texts) return NULL;
    const struct literal *l = onnx_string_list(c, texts->strings.v, texts->strings.n);
    for (size_t k = 0; k < texts->strings.n; k++)
        avec_push(c->a, &places->ints, lit_get_i64(l, (int64_t)k));
    return places;
}

// Counts [batch, n-grams] by their weights; not both: the weight alone of each that occurs.
static hv weighted(struct onnx_ctx *c, hv y, const struct onnx_attr *weights, bool both) {
    struct hb *b = &c->b;
    int64_t total = y->shape->dims[1];
    struct literal *w = lit_new(c->a, shape_make(c->a, DT_F32, &total, 1));
    for (int64_t k = 0; k < total; k++)
        lit_set_f64(w, k, weights ? (double)weights->floats.v[k] : 1);
    hv wide = onnx_along(c, hb_constant(b, w), y->shape, 1), zero = onnx_splat_like(c, y, 0);
    return both ? hb_mul(b, y, wide) : hb_select(b, hb_compare(b, y, zero, CMP_GT), wide, zero);
}
// Gram k goes to column ngram_indexes[k]. NULL and an error in c: one is out of range.
static hv to_columns(struct onnx_ctx *c, hv y, const struct onnx_attr *index) {
    struct hb *b = &c->b;
    int64_t batch = y->shape->dims[0], total = y->shape->dims[1], outs = 0;
    bool as_is = true;
    for (int64_t k = 0; k < total; k++) {
        if (index->ints.v[k] < 0 || index->ints.v[k] > MAX_COLUMNS)
            return onnx_fail(c, "ngram_indexes holds %lld", (long long)index->ints.v[k]), (hv)NULL;
        if (index->ints.v[k] >= outs) outs = index->ints.v[k] + 1;
        as_is &= index->ints.v[k] == k;
    }
    if (as_is) return y;
    hv to = hb_splat(b, shape_make(c->a, DT_F32, (int64_t[]){outs, batch}, 2), 0);
    hv at = onnx_lit_s64s(c, index->ints.v, (int64_t[]){total, 1}, 2);
    to = onnx_put_points(c, to, at, 1, hb_transpose(b, y, (int64_t[]){1, 0}), HLO_ADD);
    return hb_transpose(b, to, (int64_t[]){1, 0});
}

// The sequences' items as words, without what does not count of a size that only the run knows.
static void find_words(struct onnx_ctx *c, struct pool *p, hv x) {
    struct hb *b = &c->b;
    const struct onnx_val *v = onnx_in_any(c, 0);
    p->words = in_order(c, p->items.v, p->items.n);
    p->at = place_in(c, p->words, x, &p->in);
    if (!v->size || !hb_ok(b)) return;
    hv item = onnx_index_along(c, x->shape, DT_S64, 1);
    p->in = onnx_and(c, p->in, hb_compare(b, item, onnx_spread(c, v->size, x->shape), CMP_LT));
}
// The counts of all n-grams of the pool, [batch, n-grams]; NULL and an error in c.
static hv count_all(struct onnx_ctx *c, const struct pool *p, int64_t least, int64_t most,
                    int64_t skip) {
    struct hb *b = &c->b;
    hv all[64];
    int parts = 0;
    int64_t searches = 0;
    for (size_t n = 1; n <= p->starts->ints.n && hb_ok(b); n++) {
        struct i64s grams;
        hv sum = NULL;
        if (!pool_part(c, p, n, &grams)) continue;
        bool used = (int64_t)n >= least && (int64_t)n <= most;
        searches += used ? (int64_t)n * (n > 1 ? skip + 1 : 1) : 0;
        if (searches > MAX_SEARCHES)
            return onnx_fail(c, "n-grams up to %zu items with %lld skips", n, (long long)skip),
                   (hv)NULL;
        for (int64_t gap = 1; used && gap <= skip + 1 && (gap == 1 || n > 1); gap++) {
            hv one = gram_counts(c, p, grams, (int64_t)n, gap); // single items have no gaps
            sum = sum ? hb_add(b, sum, one) : one;
        }
        int64_t dims[2] = {p->at->shape->dims[0], grams.n};
        all[parts++] = sum ? sum : hb_splat(b, shape_make(c->a, DT_S32, dims, 2), 0);
    }
    if (hb_ok(b) && !parts) return onnx_fail(c, "a pool of n-grams is missing"), (hv)NULL;
    return hb_ok(b) ? hb_concat(b, all, parts, 1) : NULL;
}

ONNX_X(tfidf) {
    bool text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text;
    const struct onnx_attr *items = text ? text_pool(c) : onnx_attr(c->n, "pool_int64s"),
                           *starts = onnx_attr(c->n, "ngram_counts"),
                           *index = onnx_attr(c->n, "ngram_indexes"),
                           *weights = onnx_attr(c->n, "weights");
    int64_t least = onnx_at_int(c, "min_gram_length", 1),
            most = onnx_at_int(c, "max_gram_length", 1), skip = onnx_at_int(c, "max_skip_count", 0);
    struct str mode = onnx_at_str(c, "mode", "TF");
    bool flat = x->shape->rank == 1;
    if (!items || !starts || !index || !dtype_is_int(x->shape->dtype))
        return onnx_fail(c, "a pool of n-grams for %s is missing", text ? "text" : "numbers");
    if ((!flat && x->shape->rank != 2) || least < 1 || most < least || skip < 0 || skip > 64 ||
        starts->ints.n > 64 || items->ints.n > MAX_ITEMS ||
        (weights && weights->floats.n != index->ints.n))
        return onnx_fail(c, "input %s, lengths %lld to %lld, skips up to %lld", onnx_show(c, x),
                         (long long)least, (long long)most, (long long)skip);

    struct pool p = {.items = {items->ints.v, (int64_t)items->ints.n}, .starts = starts};
    x = hb_convert(b, x, DT_S64);
    if (flat) x = onnx_add_axis(c, x, 0);
    find_words(c, &p, x);
    hv y = count_all(c, &p, least, most, skip);
    if (!y) return;
    if (y->shape->dims[1] != (int64_t)index->ints.n)
        return onnx_fail(c, "%zu ngram_indexes for %lld n-grams", index->ints.n,
                         (long long)y->shape->dims[1]);
    y = hb_convert(b, y, DT_F32);
    if (!str_is(mode, "TF")) y = weighted(c, y, weights, str_is(mode, "TFIDF"));
    if (!(y = to_columns(c, y, index))) return;
    onnx_out_val(c, 0, flat ? onnx_row(c, y, 0, 0) : y);
}
