// SPDX-License-Identifier: Apache-2.0
// Evaluation of reductions, windows, map, sort, and control flow: everything that calls a
// computation.
#include <stdlib.h>

#include "compiler/eval.h"
#include "compiler/ops/index.h"

#define EVAL(op)                                                                                   \
    status_t hlo_eval_##op(struct hlo_eval *ev, const struct hlo_instr *i,                         \
                           struct literal *const *in, struct literal **out)

// Results of a variadic op: one literal each, and the tuple around them.
static status_t results(struct hlo_eval *ev, const struct hlo_instr *i, int n,
                        struct literal ***out_each, struct literal **out) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    *out = r;
    if (n == 1 && !shape_is_tuple(i->shape)) {
        *out_each = arena_array(ev->arena, struct literal *, 1);
        (*out_each)[0] = r;
    } else {
        *out_each = r->elems;
    }
    return ST_OK;
}

// acc[at] = f(acc[at], in[from]) for the n components.
static status_t fold(struct hlo_fn *f, struct literal **acc, int64_t at, struct literal *const *in,
                     int64_t from, int n) {
    struct literal *v;
    for (int k = 0; k < n; k++) {
        element_copy(hlo_fn_arg(f, k), 0, acc[k], at);
        element_copy(hlo_fn_arg(f, n + k), 0, in[k], from);
    }
    RETURN_IF_ERR(hlo_fn_call(f, &v));
    for (int k = 0; k < n; k++)
        element_copy(acc[k], at, n == 1 && !shape_is_tuple(v->shape) ? v : v->elems[k], 0);
    return ST_OK;
}

static status_t reduce_with(struct hlo_fn *f, const struct hlo_instr *i, struct literal *const *in,
                            int n, struct literal **acc) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    const struct shape *s = in[0]->shape;
    int64_t from = 0;
    EACH_INDEX(x, s) {
        int64_t to = 0;
        for (int d = 0; d < s->rank; d++)
            if (!i64s_has(dims, d)) to = to * s->dims[d] + x[d];
        RETURN_IF_ERR(fold(f, acc, to, in, from++, n));
    }
    return ST_OK;
}

EVAL(REDUCE) {
    int n = i->n_operands / 2;
    struct literal **acc, *r;
    struct hlo_fn *f;
    RETURN_IF_ERR(results(ev, i, n, &acc, &r));
    for (int k = 0; k < n; k++)
        for (int64_t e = 0, m = shape_elements(acc[k]->shape); e < m; e++)
            element_copy(acc[k], e, in[n + k], 0);
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], &f));
    status_t st = reduce_with(f, i, in, n, acc);
    hlo_fn_close(f);
    *out = r;
    return st;
}

// The operand position of one tap of a window; false outside the operand (padding and holes of base
// dilation).
static bool tap_position(const struct window *w, const struct shape *s, const int64_t *o,
                         const int64_t *tap, int64_t *at) {
    for (int d = 0; d < s->rank; d++) {
        const struct window_dim *v = &w->v[d];
        int64_t pos = o[d] * v->stride - v->pad_low + tap[d] * v->window_dilation;
        if (pos < 0 || pos % v->base_dilation || pos / v->base_dilation >= s->dims[d]) return false;
        at[d] = pos / v->base_dilation;
    }
    return true;
}
static bool first_tap(const struct window *w, int64_t *sizes) {
    for (int d = 0; d < w->n; d++)
        if ((sizes[d] = w->v[d].size) == 0) return false;
    return true;
}

EVAL(REDUCE_WINDOW) {
    int n = i->n_operands / 2;
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = in[0]->shape;
    struct literal **acc, *r;
    struct hlo_fn *f;
    int64_t sizes[HLO_MAX_RANK + 1], to = 0;
    RETURN_IF_ERR(results(ev, i, n, &acc, &r));
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], &f));
    status_t st = ST_OK;
    bool any = first_tap(w, sizes);
    EACH_INDEX(o, acc[0]->shape) {
        int64_t tap[HLO_MAX_RANK + 1] = {0}, at[HLO_MAX_RANK];
        for (int k = 0; k < n; k++)
            element_copy(acc[k], to, in[n + k], 0);
        if (any && !st) do {
                if (tap_position(w, s, o, tap, at))
                    st = fold(f, acc, to, in, index_linear(at, s->dims, s->rank), n);
            } while (!st && index_next(tap, sizes, s->rank));
        to++;
    }
    hlo_fn_close(f);
    *out = r;
    return st;
}

// For each window the first element that `select` keeps gets the source value, combined by
// `scatter`.
static status_t select_and_scatter(struct hlo_fn *select, struct hlo_fn *scatter,
                                   const struct hlo_instr *i, struct literal *const *in,
                                   struct literal *r) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = in[0]->shape;
    int64_t sizes[HLO_MAX_RANK + 1], from = 0;
    if (!first_tap(w, sizes)) return ST_OK;
    EACH_INDEX(o, in[1]->shape) {
        int64_t tap[HLO_MAX_RANK + 1] = {0}, at[HLO_MAX_RANK], best = -1;
        do {
            struct literal *keep;
            if (!tap_position(w, s, o, tap, at)) continue;
            int64_t here = index_linear(at, s->dims, s->rank);
            if (best >= 0) {
                element_copy(hlo_fn_arg(select, 0), 0, in[0], best);
                element_copy(hlo_fn_arg(select, 1), 0, in[0], here);
                RETURN_IF_ERR(hlo_fn_call(select, &keep));
                if (lit_get_i64(keep, 0)) continue;
            }
            best = here;
        } while (index_next(tap, sizes, s->rank));
        if (best >= 0) RETURN_IF_ERR(fold(scatter, &r, best, in + 1, from, 1));
        from++;
    }
    return ST_OK;
}
EVAL(SELECT_AND_SCATTER) {
    struct literal *r;
    struct hlo_fn *select = NULL, *scatter = NULL;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++)
        element_copy(r, k, in[2], 0);
    status_t st = hlo_fn_open(ev, i->called[0], &select);
    if (!st) st = hlo_fn_open(ev, i->called[1], &scatter);
    if (!st) st = select_and_scatter(select, scatter, i, in, r);
    hlo_fn_close(select);
    hlo_fn_close(scatter);
    *out = r;
    return st;
}

EVAL(MAP) {
    struct literal *r, *v;
    struct hlo_fn *f;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], &f));
    status_t st = ST_OK;
    for (int64_t k = 0, n = shape_elements(r->shape); k < n && !st; k++) {
        for (int a = 0; a < i->n_operands; a++)
            element_copy(hlo_fn_arg(f, a), 0, in[a], k);
        st = hlo_fn_call(f, &v);
        if (!st) element_copy(r, k, v, 0);
    }
    hlo_fn_close(f);
    *out = r;
    return st;
}

// ---- sort: merge sort along one dimension (always stable), comparator called with pairs (a0, b0,
// a1, b1, ...)

struct sorter {
    struct hlo_fn *f;
    struct literal *const *in;
    int n;
    int64_t base, stride;
    status_t st;
};
static bool less(struct sorter *s, int64_t a, int64_t b) {
    struct literal *v;
    if (s->st) return false;
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
    RETURN_IF_ERR(results(ev, i, n, &each, &r));
    for (int e = s->rank - 1; e > d; e--)
        stride *= s->dims[e];
    int64_t len = s->dims[d], lines = len ? shape_elements(s) / len : 0;
    int64_t *order = malloc(sizeof *order * 2 * (size_t)(len + 1));
    if (!order) return st_oom();
    status_t st = hlo_fn_open(ev, i->called[0], &so.f);
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

// ---- control flow

EVAL(CALL) {
    return hlo_eval_computation(ev, i->called[0], in, i->n_operands, out);
}
EVAL(FUSION) {
    return hlo_eval_computation(ev, i->called[0], in, i->n_operands, out);
}
EVAL(CONDITIONAL) {
    int64_t k = lit_get_i64(in[0], 0);
    if (in[0]->shape->dtype == DT_PRED)
        k = k ? 0 : 1;
    else if (k < 0 || k >= i->n_called)
        k = i->n_called - 1; // out of range takes the last branch
    return hlo_eval_computation(ev, i->called[k], &in[k + 1], 1, out);
}
// Iterations alternate between two arenas, so that a long loop keeps only two states.
EVAL(WHILE) {
    struct arena two[2] = {{0}, {0}}, *home = ev->arena;
    struct literal *state = in[0], *go;
    int64_t used = ev->used_bytes;
    status_t st = ST_OK;
    for (int turn = 0;; turn ^= 1) {
        arena_reset(&two[turn]);
        ev->arena = &two[turn];
        ev->used_bytes = used;
        st = hlo_eval_computation(ev, i->called[0], &state, 1, &go);
        if (st || !lit_get_i64(go, 0)) break;
        st = hlo_eval_computation(ev, i->called[1], &state, 1, &state);
        if (st) break;
        state = lit_clone(&two[turn], state);
    }
    ev->arena = home;
    if (!st) *out = lit_clone(home, state);
    arena_done(&two[0]);
    arena_done(&two[1]);
    return st;
}
