// SPDX-License-Identifier: Apache-2.0
// Evaluation of dot and convolution, accumulating in double (integers in 64 bits), so that the
// reference is closer to the true value than what is tested against it.
#include "compiler/eval.h"
#include "compiler/ops/index.h"

// Elements of a literal as doubles, once, so that inner loops are plain. Complex takes two.
static double *as_doubles(struct arena *a, const struct literal *l) {
    int64_t n = shape_elements(l->shape);
    bool c = dtype_is_complex(l->shape->dtype);
    double *v = arena_array(a, double, (c ? 2 * n : n) + 1);
    for (int64_t k = 0; k < n; k++) {
        if (c)
            lit_get_c128(l, k, v + 2 * k);
        else
            v[k] = lit_get_f64(l, k);
    }
    return v;
}
static int64_t *as_ints(struct arena *a, const struct literal *l) {
    int64_t n = shape_elements(l->shape), *v = arena_array(a, int64_t, n + 1);
    for (int64_t k = 0; k < n; k++)
        v[k] = lit_get_i64(l, k);
    return v;
}

// One accumulator for the three classes.
struct terms {
    const double *x, *y;
    const int64_t *xi, *yi;
    bool complex;
    double re, im;
    int64_t sum;
};
static void term(struct terms *t, int64_t a, int64_t b) {
    if (t->xi) {
        t->sum = (int64_t)((uint64_t)t->sum + (uint64_t)t->xi[a] * (uint64_t)t->yi[b]);
    } else if (!t->complex) {
        t->re += t->x[a] * t->y[b];
    } else {
        const double *p = t->x + 2 * a, *q = t->y + 2 * b;
        t->re += p[0] * q[0] - p[1] * q[1];
        t->im += p[0] * q[1] + p[1] * q[0];
    }
}
static void open_terms(struct arena *a, const struct literal *x, const struct literal *y,
                       struct terms *t) {
    bool ints = dtype_is_int(x->shape->dtype) || x->shape->dtype == DT_PRED;
    *t = (struct terms){.complex = dtype_is_complex(x->shape->dtype)};
    if (ints)
        t->xi = as_ints(a, x), t->yi = as_ints(a, y);
    else
        t->x = as_doubles(a, x), t->y = as_doubles(a, y);
}
static void close_terms(struct terms *t, struct literal *r, int64_t k) {
    if (t->xi)
        lit_set_i64(r, k, t->sum);
    else if (t->complex)
        lit_set_c128(r, k, t->re, t->im);
    else
        lit_set_f64(r, k, t->re);
    t->re = t->im = 0;
    t->sum = 0;
}

static void row_major(const struct shape *s, int64_t *stride) {
    int64_t n = 1;
    for (int d = s->rank - 1; d >= 0; d--)
        stride[d] = n, n *= s->dims[d];
}

status_t hlo_eval_DOT(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                      struct literal **out) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = in[0]->shape, *y = in[1]->shape;
    int64_t xs[HLO_MAX_RANK], ys[HLO_MAX_RANK], cdims[HLO_MAX_RANK], k = 0;
    struct arena tmp = {0};
    struct terms t;
    open_terms(&tmp, in[0], in[1], &t);
    row_major(x, xs);
    row_major(y, ys);
    int nc = d->lhs_contracting_dims.n, nb = d->lhs_batch_dims.n;
    int64_t terms = 1;
    for (int c = 0; c < nc; c++)
        terms *= cdims[c] = x->dims[d->lhs_contracting_dims.v[c]];
    EACH_INDEX(o, r->shape) {
        int64_t xo = 0, yo = 0;
        int p = nb;
        for (int b = 0; b < nb; b++) {
            xo += o[b] * xs[d->lhs_batch_dims.v[b]];
            yo += o[b] * ys[d->rhs_batch_dims.v[b]];
        }
        for (int e = 0; e < x->rank; e++)
            if (!i64s_has(d->lhs_batch_dims, e) && !i64s_has(d->lhs_contracting_dims, e))
                xo += o[p++] * xs[e];
        for (int e = 0; e < y->rank; e++)
            if (!i64s_has(d->rhs_batch_dims, e) && !i64s_has(d->rhs_contracting_dims, e))
                yo += o[p++] * ys[e];
        if (nc == 1) {
            int64_t sx = xs[d->lhs_contracting_dims.v[0]], sy = ys[d->rhs_contracting_dims.v[0]];
            for (int64_t c = 0; c < terms; c++)
                term(&t, xo + c * sx, yo + c * sy);
        } else if (terms) {
            int64_t c[HLO_MAX_RANK + 1] = {0};
            do {
                int64_t a = xo, b = yo;
                for (int e = 0; e < nc; e++)
                    a += c[e] * xs[d->lhs_contracting_dims.v[e]],
                        b += c[e] * ys[d->rhs_contracting_dims.v[e]];
                term(&t, a, b);
            } while (index_next(c, cdims, nc));
        }
        close_terms(&t, r, k++);
    }
    arena_done(&tmp);
    *out = r;
    return ST_OK;
}

// XLA operation semantics, "ConvWithGeneralPadding": groups over features or over the batch, both
// dilations, reversal.
status_t hlo_eval_CONVOLUTION(struct hlo_eval *ev, const struct hlo_instr *i,
                              struct literal *const *in, struct literal **out) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    const struct shape *x = in[0]->shape, *w = in[1]->shape;
    int64_t xs[HLO_MAX_RANK], ws[HLO_MAX_RANK], wdims[HLO_MAX_RANK], k = 0;
    int n = l->n_spatial;
    struct arena tmp = {0};
    struct terms t;
    open_terms(&tmp, in[0], in[1], &t);
    row_major(x, xs);
    row_major(w, ws);
    int64_t ki = w->dims[l->k_in], ko = w->dims[l->k_out], per_group = ko / c->feature_group_count,
            taps = 1;
    int64_t out_batch = r->shape->dims[l->out_batch], per_batch_group = ko / c->batch_group_count;
    for (int d = 0; d < n; d++)
        taps *= wdims[d] = w->dims[l->k_spatial[d]];
    EACH_INDEX(o, r->shape) {
        int64_t f = o[l->out_feature], first_in = f / (per_group ? per_group : 1) * ki;
        int64_t b =
            o[l->out_batch] + (c->batch_group_count > 1 ? f / per_batch_group * out_batch : 0);
        int64_t tap[HLO_MAX_RANK + 1] = {0};
        if (c->feature_group_count == 1) first_in = 0;
        do {
            int64_t xo = b * xs[l->in_batch], wo = f * ws[l->k_out];
            bool inside = taps > 0;
            for (int d = 0; inside && d < n; d++) {
                struct window_dim v =
                    c->window.n ? c->window.v[d] : (struct window_dim){1, 1, 0, 0, 1, 1, false};
                int64_t pos =
                    o[l->out_spatial[d]] * v.stride - v.pad_low + tap[d] * v.window_dilation;
                inside = pos >= 0 && pos % v.base_dilation == 0 &&
                         pos / v.base_dilation < x->dims[l->in_spatial[d]];
                xo += pos / v.base_dilation * xs[l->in_spatial[d]];
                wo += (v.reversal ? v.size - 1 - tap[d] : tap[d]) * ws[l->k_spatial[d]];
            }
            for (int64_t q = 0; inside && q < ki; q++)
                term(&t, xo + (first_in + q) * xs[l->in_feature], wo + q * ws[l->k_in]);
        } while (taps > 0 && index_next(tap, wdims, n));
        close_terms(&t, r, k++);
    }
    arena_done(&tmp);
    *out = r;
    return ST_OK;
}
