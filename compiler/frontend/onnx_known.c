// SPDX-License-Identifier: Apache-2.0
// Unique: its values must be known when the program is made (constants, or a request's inputs that
// the program is specialised to). The result is a constant then.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/frontend/onnx_tools.h"

enum { MAX_KNOWN = 1 << 22 }; // elements looked at

static const struct literal *known_in(struct onnx_ctx *c, size_t k) {
    const struct literal *l = in_known(c, k);
    if (l && shape_elements(l->shape) > MAX_KNOWN)
        return fail(c, "input %zu: the result's size depends on more than %d values", k, MAX_KNOWN),
               NULL;
    return l;
}

// ---- Unique

struct rows { // slices along an axis, each `len` elements
    const struct literal *l;
    int64_t inner, len,
        size; // element e of row r is at e / inner * inner * size + r * inner + e % inner
};
static int64_t row_at(const struct rows *r, int64_t row, int64_t e) {
    return e / r->inner * r->inner * r->size + row * r->inner + e % r->inner;
}
static int row_order(const struct rows *r, int64_t x, int64_t y) {
    bool f = dtype_is_float(r->l->shape->dtype), u64 = r->l->shape->dtype == DT_U64;
    for (int64_t e = 0; e < r->len; e++) {
        int64_t p = row_at(r, x, e), q = row_at(r, y, e);
        int order;
        if (f) {
            double a = lit_get_f64(r->l, p), b = lit_get_f64(r->l, q);
            order = isnan(a) || isnan(b) ? isnan(a) - isnan(b) : (a > b) - (a < b);
        } else {
            int64_t bias = u64 ? INT64_MIN : 0, a = lit_get_i64(r->l, p) ^ bias,
                    b = lit_get_i64(r->l, q) ^ bias;
            order = (a > b) - (a < b);
        }
        if (order) return order;
    }
    return 0;
}
static int compare_rows(const void *x, const void *y, void *ctx) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    int order = row_order(ctx, a, b);
    return order ? order : (a > b) - (a < b);
}
static int by_first(const void *x, const void *y, void *first) {
    int64_t a = ((const int64_t *)first)[*(const int64_t *)x],
            b = ((const int64_t *)first)[*(const int64_t *)y];
    return (a > b) - (a < b);
}

ONNX(unique) {
    const struct literal *l = known_in(c, 0);
    if (!l) return;
    hv x = in_val(c, 0);
    int64_t axis = 0, n = shape_elements(l->shape), u = 0;
    struct rows r = {.l = l, .inner = 1, .len = 1, .size = n};
    if (onnx_attr(c->n, "axis")) {
        axis = axis_of(c, at_int(c, "axis", 0), l->shape->rank);
        if (!hb_ok(&c->b)) return;
        for (int d = (int)axis + 1; d < l->shape->rank; d++)
            r.inner *= l->shape->dims[d];
        r.size = l->shape->dims[axis];
        r.len = r.size ? n / r.size : 0;
    } else {
        x = hb_reshape(&c->b, x, &n, 1);
    }
    int64_t *order = arena_array(c->a, int64_t, r.size + 1),
            *group = arena_array(c->a, int64_t, r.size + 1),
            *first = arena_array(c->a, int64_t, r.size + 1),
            *count = arena_zarray(c->a, int64_t, r.size + 1),
            *rank = arena_array(c->a, int64_t, r.size + 1);
    for (int64_t k = 0; k < r.size; k++)
        order[k] = k;
    qsort_r(order, (size_t)r.size, sizeof *order, compare_rows, &r);
    for (int64_t k = 0; k < r.size; k++) { // groups in sorted order
        if (k == 0 || row_order(&r, order[k], order[k - 1])) first[u++] = order[k];
        group[order[k]] = u - 1;
        count[u - 1]++;
    }
    for (int64_t k = 0; k < u; k++)
        order[k] = k;
    if (!at_int(c, "sorted", 1)) qsort_r(order, (size_t)u, sizeof *order, by_first, first);
    int64_t *from = arena_array(c->a, int64_t, u + 1), *times = arena_array(c->a, int64_t, u + 1);
    for (int64_t k = 0; k < u; k++) {
        from[k] = first[order[k]];
        times[k] = count[order[k]];
        rank[order[k]] = k;
    }
    for (int64_t k = 0; k < r.size; k++)
        group[k] = rank[group[k]];
    hv at = lit_s64s(c, from, &u, 1);
    out_val(c, 0, take(c, x, at, axis));
    out_val(c, 1, at);
    out_val(c, 2, lit_s64s(c, group, &r.size, 1));
    out_val(c, 3, lit_s64s(c, times, &u, 1));
}
