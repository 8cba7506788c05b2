// SPDX-License-Identifier: Apache-2.0
// TfIdfVectorizer, on numbers or on the places of texts: how often each n-gram of a pool stands in
// a sequence, with gaps up to max_skip_count. Grams of one length are compared with all windows of
// that length at once.
#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_GRAMS = 1 << 16, MAX_COMPARED = 1 << 26 };

// Counts [batch, grams] of the grams [grams, n] in x [batch, items], items `gap` apart.
static hv gram_counts(struct onnx_ctx *c, hv x, hv grams, int64_t gap) {
    struct hb *b = &c->b;
    int64_t count = grams->shape->dims[0], n = grams->shape->dims[1], batch = x->shape->dims[0];
    int64_t places = x->shape->dims[1] - (n - 1) * gap, dims[2] = {places, n}, all[4], last = 3;
    if (places < 1) return hb_splat(b, shape_make(c->a, DT_S32, (int64_t[]){batch, count}, 2), 0);
    if (places > MAX_COMPARED / (count * n))
        return onnx_fail(c, "%lld n-grams over %lld places", (long long)count, (long long)places),
               x;
    int64_t *at = arena_array(c->a, int64_t, places *n + 1);
    for (int64_t p = 0; p < places; p++)
        for (int64_t k = 0; k < n; k++)
            at[p * n + k] = p + k * gap;
    hv windows = onnx_take(c, x, onnx_lit_s64s(c, at, dims, 2), 1); // [batch, places, n]
    all[0] = batch, all[1] = count, all[2] = places, all[3] = n;
    windows = hb_broadcast(b, windows, all, 4, (int64_t[]){0, 2, 3});
    hv wanted = hb_broadcast(b, grams, all, 4, (int64_t[]){1, 3});
    hv same = hb_convert(b, hb_compare(b, windows, wanted, CMP_EQ), DT_S32);
    same = onnx_reduce_keep(c, same, &last, 1, HLO_MINIMUM, false); // all of a window's items
    last = 2;
    return onnx_reduce_keep(c, same, &last, 1, HLO_ADD, false);
}

// The pool: grams of length 1, then 2, ...; ngram_counts says where each length begins.
static hv pool_part(struct onnx_ctx *c, const struct onnx_attr *pool,
                    const struct onnx_attr *starts, size_t length) {
    int64_t from = starts->ints.v[length - 1],
            to = length < starts->ints.n ? starts->ints.v[length] : (int64_t)pool->ints.n;
    if (from < 0 || to < from || to > (int64_t)pool->ints.n || (to - from) % (int64_t)length)
        return onnx_fail(c, "ngram_counts do not fit the pool"), (hv)NULL;
    int64_t dims[2] = {(to - from) / (int64_t)length, (int64_t)length};
    return dims[0] ? onnx_lit_s64s(c, pool->ints.v + from, dims, 2) : NULL;
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
    for (int64_t k = 0; k < total; k++) {
        if (index->ints.v[k] < 0 || index->ints.v[k] > MAX_GRAMS)
            return onnx_fail(c, "ngram_indexes holds %lld", (long long)index->ints.v[k]), (hv)NULL;
        if (index->ints.v[k] >= outs) outs = index->ints.v[k] + 1;
    }
    hv to = hb_splat(b, shape_make(c->a, DT_F32, (int64_t[]){outs, batch}, 2), 0);
    hv at = onnx_lit_s64s(c, index->ints.v, (int64_t[]){total, 1}, 2);
    to = onnx_put_points(c, to, at, 1, hb_transpose(b, y, (int64_t[]){1, 0}), HLO_ADD);
    return hb_transpose(b, to, (int64_t[]){1, 0});
}

ONNX_X(tfidf) {
    hv all[64];
    bool text = onnx_in_any(c, 0) && onnx_in_any(c, 0)->text;
    const struct onnx_attr *pool = text ? text_pool(c) : onnx_attr(c->n, "pool_int64s"),
                           *starts = onnx_attr(c->n, "ngram_counts"),
                           *index = onnx_attr(c->n, "ngram_indexes"),
                           *weights = onnx_attr(c->n, "weights");
    int64_t least = onnx_at_int(c, "min_gram_length", 1),
            most = onnx_at_int(c, "max_gram_length", 1), skip = onnx_at_int(c, "max_skip_count", 0);
    struct str mode = onnx_at_str(c, "mode", "TF");
    bool flat = x->shape->rank == 1;
    int parts = 0;
    if (!pool || !starts || !index || !dtype_is_int(x->shape->dtype))
        return onnx_fail(c, "a pool of n-grams for %s is missing", text ? "text" : "numbers");
    if ((!flat && x->shape->rank != 2) || least < 1 || most < least || skip < 0 || skip > 64 ||
        starts->ints.n > 64 || pool->ints.n > MAX_GRAMS ||
        (weights && weights->floats.n != index->ints.n))
        return onnx_fail(c, "input %s, lengths %lld to %lld, skips up to %lld", onnx_show(c, x),
                         (long long)least, (long long)most, (long long)skip);

    x = hb_convert(b, x, DT_S64);
    if (flat) x = onnx_add_axis(c, x, 0);
    int64_t batch = x->shape->dims[0], total = 0;
    for (size_t n = 1; n <= starts->ints.n && hb_ok(b); n++) {
        hv grams = pool_part(c, pool, starts, n), sum = NULL;
        if (!grams) continue;
        const struct shape *s =
            shape_make(c->a, DT_S32, (int64_t[]){batch, grams->shape->dims[0]}, 2);
        bool used = (int64_t)n >= least && (int64_t)n <= most;
        for (int64_t gap = 1; used && gap <= skip + 1 && (gap == 1 || n > 1); gap++) {
            hv one = gram_counts(c, x, grams, gap); // single items have no gaps
            sum = sum ? hb_add(b, sum, one) : one;
        }
        total += s->dims[1];
        all[parts++] = sum ? sum : hb_splat(b, s, 0);
    }

    if (!hb_ok(b)) return;
    if (total != (int64_t)index->ints.n || total == 0)
        return onnx_fail(c, "%zu ngram_indexes for %lld n-grams", index->ints.n, (long long)total);
    hv y = hb_convert(b, hb_concat(b, all, parts, 1), DT_F32);
    if (!str_is(mode, "TF")) y = weighted(c, y, weights, str_is(mode, "TFIDF"));
    if (!(y = to_columns(c, y, index))) return;
    onnx_out_val(c, 0, flat ? onnx_row(c, y, 0, 0) : y);
}
