// SPDX-License-Identifier: Apache-2.0
// Evaluation of reductions, windows and map: what calls a scalar computation per element.
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"
#include "compiler/ops/rules.h"

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
        element_copy(acc[k], at, shape_is_tuple(v->shape) ? v->elems[k] : v, 0);
    return ST_OK;
}

// By rows of the last dimension, whose elements follow each other in the operands and go to one
// place or to neighbours.
static status_t reduce_with(struct hlo_fn *f, const struct hlo_instr *i, struct literal *const *in,
                            int n, struct literal **acc) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    const struct shape *s = in[0]->shape;
    int64_t from = 0, row = s->rank ? s->dims[s->rank - 1] : 1;
    int64_t step = s->rank && !i64s_has(dims, s->rank - 1);
    EACH_INDEX(x, s) {
        int64_t to = 0, done = 1;
        bool did = false;
        for (int d = 0; d < s->rank; d++)
            if (!i64s_has(dims, d)) to = to * s->dims[d] + x[d];
        if (n == 1) RETURN_IF_ERR(hlo_fn_row(f, acc[0], to, step, in[0], from, row, &did));
        if (did)
            done = row;
        else
            RETURN_IF_ERR(fold(f, acc, to, in, from, n));
        from += done;
        if (did && s->rank) x[s->rank - 1] = row - 1;
    }
    return ST_OK;
}

EVAL(REDUCE) {
    int n = i->n_operands / 2;
    struct literal **acc, *r;
    struct hlo_fn *f;
    RETURN_IF_ERR(hlo_eval_alloc_each(ev, i, n, &acc, &r));
    for (int k = 0; k < n; k++)
        for (int64_t e = 0, m = shape_elements(acc[k]->shape); e < m; e++)
            element_copy(acc[k], e, in[n + k], 0);
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], 2 * n, n, &f));
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

// Windows that reach back to the first element: each has one more than the one before, behind what
// that one has.
static status_t run_along(struct hlo_fn *f, const struct running_window *r, const struct shape *s,
                          struct literal *const *in, int n, struct literal **acc) {
    int64_t step = 1, to = 0;
    for (int d = r->dim + 1; d < s->rank; d++)
        step *= s->dims[d];
    EACH_INDEX(o, s) {
        bool first = o[r->dim] == 0;
        for (int k = 0; k < n; k++)
            element_copy(acc[k], to, first ? in[n + k] : acc[k], first ? 0 : to - step);
        if (!first || !r->exclusive)
            RETURN_IF_ERR(fold(f, acc, to, in, r->exclusive ? to - step : to, n));
        to++;
    }
    return ST_OK;
}
static status_t each_window(struct hlo_fn *f, const struct hlo_instr *i, struct literal *const *in,
                            int n, struct literal **acc) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = in[0]->shape;
    int64_t sizes[HLO_MAX_RANK + 1], to = 0;
    bool any = first_tap(w, sizes);
    EACH_INDEX(o, acc[0]->shape) {
        int64_t tap[HLO_MAX_RANK + 1] = {0}, at[HLO_MAX_RANK];
        for (int k = 0; k < n; k++)
            element_copy(acc[k], to, in[n + k], 0);
        if (any) do {
                if (!tap_position(w, s, o, tap, at)) continue;
                int64_t from = index_linear(at, s->dims, s->rank);
                RETURN_IF_ERR(fold(f, acc, to, in, from, n));
            } while (index_next(tap, sizes, s->rank));
        to++;
    }
    return ST_OK;
}
EVAL(REDUCE_WINDOW) {
    int n = i->n_operands / 2;
    struct literal **acc, *r;
    struct running_window run;
    struct hlo_fn *f;
    RETURN_IF_ERR(hlo_eval_alloc_each(ev, i, n, &acc, &r));
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], 2 * n, n, &f));
    status_t st = rule_running_window(i, &run) && !run.back
                      ? run_along(f, &run, in[0]->shape, in, n, acc)
                      : each_window(f, i, in, n, acc);
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
    status_t st = hlo_fn_open(ev, i->called[0], 2, 1, &select);
    if (!st) st = hlo_fn_open(ev, i->called[1], 2, 1, &scatter);
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
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], i->n_operands, 1, &f));
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
