// SPDX-License-Identifier: Apache-2.0
// Unique and NonMaxSuppression, whose results' sizes depend on values in ways that no bound of
// onnx_dynamic.c fits well: those values must be known when the program is made (constants, or a
// request's inputs that the program is specialised to). The result is a constant then.
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

// ---- NonMaxSuppression

struct box {
    double y1, x1, y2, x2;
};
static struct box box_of(const struct literal *l, int64_t k, bool centre) {
    double v[4];
    for (int64_t e = 0; e < 4; e++)
        v[e] = lit_get_f64(l, k * 4 + e);
    if (centre) // x, y, width, height
        return (struct box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    return (struct box){fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]), fmax(v[1], v[3])};
}
static double overlap(struct box a, struct box b) { // intersection over union
    double h = fmin(a.y2, b.y2) - fmax(a.y1, b.y1), w = fmin(a.x2, b.x2) - fmax(a.x1, b.x1);
    if (h <= 0 || w <= 0) return 0;
    double sum = (a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1);
    return h * w / (sum - h * w);
}
struct scores {
    const struct literal *l;
    int64_t base;
};
static int by_score(const void *x, const void *y, void *ctx) { // best first, then by number
    const struct scores *s = ctx;
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    double p = lit_get_f64(s->l, s->base + a), q = lit_get_f64(s->l, s->base + b);
    return p != q ? (p < q ? 1 : -1) : (a > b) - (a < b);
}
static double scalar_or(struct onnx_ctx *c, size_t k, double def) {
    const struct literal *l = in_has(c, k) ? in_known(c, k) : NULL;
    return l && shape_elements(l->shape) == 1 ? lit_get_f64(l, 0) : def;
}
ONNX(nonmaxsuppression) {
    const struct literal *boxes = known_in(c, 0), *s = known_in(c, 1);
    if (!boxes || !s) return;
    double most = scalar_or(c, 2, 0), iou = scalar_or(c, 3, 0);
    double floor_score = scalar_or(c, 4, -(double)INFINITY);
    bool centre = at_int(c, "center_point_box", 0) != 0;
    const struct shape *b = boxes->shape, *t = s->shape;
    if (!hb_ok(&c->b)) return;
    if (b->rank != 3 || t->rank != 3 || b->dims[2] != 4 || b->dims[0] != t->dims[0] ||
        b->dims[1] != t->dims[2])
        return fail(c, "boxes %s, scores %s", shape_text(c->a, b), shape_text(c->a, t));
    int64_t n = t->dims[2], budget = INT64_C(1) << 30;
    int64_t *order = arena_array(c->a, int64_t, n + 1), *kept = arena_array(c->a, int64_t, n + 1);
    VEC(int64_t) out = {0};
    for (int64_t line = 0; line < t->dims[0] * t->dims[1]; line++) {
        int64_t batch = line / t->dims[1], count = 0, m = 0;
        struct scores by = {s, line * n};
        for (int64_t k = 0; k < n; k++)
            if (lit_get_f64(s, by.base + k) > floor_score) order[m++] = k;
        qsort_r(order, (size_t)m, sizeof *order, by_score, &by);
        for (int64_t k = 0; k < m && (double)count < most; k++) {
            struct box x = box_of(boxes, batch * n + order[k], centre);
            bool keep = true;
            budget -= count;
            for (int64_t j = 0; j < count && keep; j++)
                keep = overlap(x, box_of(boxes, batch * n + kept[j], centre)) <= iou;
            if (!keep) continue;
            kept[count++] = order[k];
            avec_push(c->a, &out, batch);
            avec_push(c->a, &out, line % t->dims[1]);
            avec_push(c->a, &out, order[k]);
        }
        if (budget < 0) return fail(c, "too many boxes to compare");
    }
    out_val(c, 0, lit_s64s(c, out.v, (int64_t[]){(int64_t)out.n / 3, 3}, 2));
}
