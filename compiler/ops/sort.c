// SPDX-License-Identifier: Apache-2.0
// Evaluation of sort and topk by merge sort, which is always stable. sort calls its comparator with
// pairs (a0, b0, a1, b1, ...), as XLA defines it; topk orders by value, then by position.
#include <stdlib.h>

#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"

struct sorter {
    struct hlo_fn *f; // NULL: topk
    bool largest;
    struct literal *const *in;
    int n;
    int64_t base, stride;
    status_t st;
};
static bool less(struct sorter *s, int64_t a, int64_t b) {
    struct literal *v;
    if (s->st) return false;
    if (!s->f) {
        int order = hlo_literal_order(s->in[0], s->base + a, s->base + b);
        return s->largest ? order > 0 : order < 0;
    }
    for (int k = 0; k < s->n; k++) {
        element_copy(hlo_fn_arg(s->f, 2 * k), 0, s->in[k], s->base + a * s->stride);
        element_copy(hlo_fn_arg(s->f, 2 * k + 1), 0, s->in[k], s->base + b * s->stride);
    }
    s->st = hlo_fn_call(s->f, &v);
    return !s->st && lit_get_i64(v, 0);
}
static void merge_sort(struct sorter *s, int64_t *v, int64_t *tmp, int64_t n) {
    if (n < 2) return;
    int64_t h = n / 2, a = 0, b = h;
    merge_sort(s, v, tmp, h);
    merge_sort(s, v + h, tmp, n - h);
    for (int64_t k = 0; k < n; k++)
        tmp[k] = b >= n || (a < h && !less(s, v[b], v[a])) ? v[a++] : v[b++];
    memcpy(v, tmp, sizeof *v * (size_t)n);
}
EVAL(SORT) {
    int n = i->n_operands;
    int64_t d = HLO_ATTR(i, sort)->dimensions.v[0], stride = 1;
    const struct shape *s = in[0]->shape;
    struct literal **each, *r;
    struct sorter so = {.in = in, .n = n};
    RETURN_IF_ERR(hlo_eval_alloc_each(ev, i, n, &each, &r));
    for (int e = s->rank - 1; e > d; e--)
        stride *= s->dims[e];
    int64_t len = s->dims[d], lines = len ? shape_elements(s) / len : 0;
    int64_t *order = malloc(sizeof *order * 2 * (size_t)(len + 1));
    if (!order) return st_oom();
    status_t st = hlo_fn_open(ev, i->called[0], 2 * n, 1, &so.f);
    so.stride = stride;
    for (int64_t line = 0; line < lines && !st; line++) {
        so.base = line / stride * stride * len + line % stride;
        for (int64_t k = 0; k < len; k++)
            order[k] = k;
        merge_sort(&so, order, order + len, len);
        for (int k = 0; k < n; k++)
            for (int64_t e = 0; e < len; e++)
                element_copy(each[k], so.base + e * stride, in[k], so.base + order[e] * stride);
        st = so.st;
    }
    if (so.f) hlo_fn_close(so.f);
    free(order);
    *out = r;
    return st;
}
EVAL(TOPK) {
    const struct shape *s = in[0]->shape;
    int64_t len = s->dims[s->rank - 1], k = HLO_ATTR(i, topk)->k;
    struct literal *r;
    struct sorter so = {.in = in, .n = 1, .largest = HLO_ATTR(i, topk)->largest, .stride = 1};
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    int64_t *order = malloc(sizeof *order * 2 * (size_t)(len + 1));
    if (!order) return st_oom();
    for (int64_t line = 0, lines = len ? shape_elements(s) / len : 0; line < lines; line++) {
        so.base = line * len;
        for (int64_t e = 0; e < len; e++)
            order[e] = e;
        merge_sort(&so, order, order + len, len);
        for (int64_t e = 0; e < k; e++) {
            element_copy(r->elems[0], line * k + e, in[0], so.base + order[e]);
            lit_set_i64(r->elems[1], line * k + e, order[e]);
        }
    }
    free(order);
    *out = r;
    return ST_OK;
}
