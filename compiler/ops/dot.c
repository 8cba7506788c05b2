// SPDX-License-Identifier: Apache-2.0
// Evaluation of dot and convolution. Operands are first packed: elements widened (floats to double,
// integers to 64 bits, complex to two arrays of doubles) and dimensions put in the order in which
// the sum walks them, so that every result element is a few inner products of contiguous runs.
// Sums of floats are kept in double: the reference is closer to the true value than what is tested
// against it.
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"

struct packed {
    double *re, *im; // floats: re; complex: both
    int64_t *ints;   // integers and pred
    int64_t dims[HLO_MAX_RANK];
};

// order[k] = the literal's dimension that becomes dimension k.
static void pack(struct arena *a, const struct literal *l, const int *order, struct packed *out) {
    const struct shape *s = l->shape;
    int64_t n = shape_elements(s), stride[HLO_MAX_RANK], step = 1, to = 0;
    *out = (struct packed){0};
    for (int d = s->rank - 1; d >= 0; d--)
        stride[d] = step, step *= s->dims[d];
    for (int k = 0; k < s->rank; k++)
        out->dims[k] = s->dims[order[k]];

    switch (dtype_class(s->dtype)) {
    case DC_COMPLEX:
        out->im = arena_array(a, double, n + 1);
        // fall through
    case DC_FLOAT:
        out->re = arena_array(a, double, n + 1);
        break;
    default:
        out->ints = arena_array(a, int64_t, n + 1);
        break;
    }

    if (n == 0) return;
    int64_t x[HLO_MAX_RANK + 1] = {0};
    do {
        int64_t from = 0;
        double c[2];
        for (int k = 0; k < s->rank; k++)
            from += x[k] * stride[order[k]];
        if (out->ints) {
            out->ints[to++] = lit_get_i64(l, from);
        } else if (out->im) {
            lit_get_c128(l, from, c);
            out->re[to] = c[0], out->im[to++] = c[1];
        } else {
            out->re[to++] = lit_get_f64(l, from);
        }
    } while (index_next(x, out->dims, s->rank));
}

// What a result element is summed up in.
struct sum {
    double re, im;
    uint64_t ints; // wraps
};

static double inner(const double *x, const double *y, int64_t n) {
    double s[4] = {0};
    int64_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int j = 0; j < 4; j++)
            s[j] += x[k + j] * y[k + j];
    for (; k < n; k++)
        s[0] += x[k] * y[k];
    return (s[0] + s[1]) + (s[2] + s[3]);
}
// Adds the inner product of n elements of x from a and of y from b.
static void add_inner(struct sum *s, const struct packed *x, int64_t a, const struct packed *y,
                      int64_t b, int64_t n) {
    if (x->ints) {
        for (int64_t k = 0; k < n; k++)
            s->ints += (uint64_t)x->ints[a + k] * (uint64_t)y->ints[b + k];
    } else if (x->im) {
        s->re += inner(x->re + a, y->re + b, n) - inner(x->im + a, y->im + b, n);
        s->im += inner(x->re + a, y->im + b, n) + inner(x->im + a, y->re + b, n);
    } else {
        s->re += inner(x->re + a, y->re + b, n);
    }
}
static void store(const struct sum *s, const struct packed *x, struct literal *r, int64_t k) {
    if (x->ints)
        lit_set_i64(r, k, (int64_t)s->ints);
    else
        lit_set_c128(r, k, s->re, s->im);
}

// The operands must be of one class; mixed widths are fine. The packed copies count against the
// budget while they live.
static status_t open_pair(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                          int64_t *out_bytes) {
    const struct shape *x = in[0]->shape, *y = in[1]->shape;
    int64_t bytes = 0;
    bool fx = dtype_is_float(x->dtype), fy = dtype_is_float(y->dtype);
    if (fx != fy || dtype_is_complex(x->dtype) != dtype_is_complex(y->dtype))
        return st_unimplemented("instruction '%s': %s of %s and %s", i->name, hlo_op_name(i->op),
                                dtype_name(x->dtype), dtype_name(y->dtype));
    if (!sz_add(shape_elements(x), shape_elements(y), &bytes) || !sz_mul(bytes, 16, &bytes) ||
        (ev->max_bytes && bytes > ev->max_bytes - ev->used_bytes))
        return st_exhausted("instruction '%s': operands do not fit into the evaluation's budget",
                            i->name);
    ev->used_bytes += bytes;
    *out_bytes = bytes;
    return ST_OK;
}
static bool cancelled(const struct hlo_eval *ev) {
    return ev->cancel && *ev->cancel;
}

// batch dimensions, then free ones, then contracting ones.
static void dot_order(const struct shape *s, struct i64s batch, struct i64s contract, int *order) {
    int n = 0;
    for (int k = 0; k < batch.n; k++)
        order[n++] = (int)batch.v[k];
    for (int d = 0; d < s->rank; d++)
        if (!i64s_has(batch, d) && !i64s_has(contract, d)) order[n++] = d;
    for (int k = 0; k < contract.n; k++)
        order[n++] = (int)contract.v[k];
}

EVAL(DOT) {
    struct literal *r;
    int64_t bytes;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));

    RETURN_IF_ERR(open_pair(ev, i, in, &bytes));
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = in[0]->shape, *y = in[1]->shape;
    int xo[HLO_MAX_RANK], yo[HLO_MAX_RANK];
    dot_order(x, d->lhs_batch_dims, d->lhs_contracting_dims, xo);
    dot_order(y, d->rhs_batch_dims, d->rhs_contracting_dims, yo);

    struct arena tmp = {0};
    struct packed px, py;
    pack(&tmp, in[0], xo, &px);
    pack(&tmp, in[1], yo, &py);

    int64_t batch = 1, m = 1, n = 1, depth = 1, k = 0;
    int nb = d->lhs_batch_dims.n, nc = d->lhs_contracting_dims.n;
    for (int e = 0; e < x->rank; e++)
        *(e < nb ? &batch : e < x->rank - nc ? &m : &depth) *= px.dims[e];
    for (int e = nb; e < y->rank - nc; e++)
        n *= py.dims[e];

    status_t st = ST_OK;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t row = 0; row < m && !st; row++) {
            if (cancelled(ev)) st = st_new(ST_CANCELLED, "evaluation was cancelled");
            for (int64_t col = 0; col < n; col++) {
                struct sum s = {0};
                add_inner(&s, &px, (b * m + row) * depth, &py, (b * n + col) * depth, depth);
                store(&s, &px, r, k++);
            }
        }

    arena_done(&tmp);
    ev->used_bytes -= bytes;
    *out = r;
    return st;
}

struct conv {
    const struct hlo_attr_conv *attr;
    struct packed x; // [batch, spatial..., feature]
    struct packed w; // [out feature, spatial..., in feature]
    int n;           // spatial dimensions
    int64_t per_group, per_batch_group, out_batch;
};

// One output element: output features are spread over feature groups (each sees its own slice of
// input features) or over batch groups (each sees its own slice of the batch).
static void conv_element(const struct conv *c, int64_t batch, int64_t feature, const int64_t *at,
                         struct sum *s) {
    const struct hlo_attr_conv *a = c->attr;
    int64_t ki = c->w.dims[c->n + 1],
            group = a->feature_group_count > 1 ? feature / c->per_group : 0;
    int64_t tap[HLO_MAX_RANK + 1] = {0};
    if (a->batch_group_count > 1) batch += feature / c->per_batch_group * c->out_batch;
    do {
        int64_t from = batch, weight = feature;
        bool inside = true;
        for (int d = 0; inside && d < c->n; d++) {
            struct window_dim v =
                a->window.n ? a->window.v[d] : (struct window_dim){1, 1, 0, 0, 1, 1, false};
            int64_t pos = at[d] * v.stride - v.pad_low + tap[d] * v.window_dilation;
            inside =
                pos >= 0 && pos % v.base_dilation == 0 && pos / v.base_dilation < c->x.dims[d + 1];
            from = from * c->x.dims[d + 1] + pos / v.base_dilation;
            weight = weight * v.size + (v.reversal ? v.size - 1 - tap[d] : tap[d]);
        }
        if (inside)
            add_inner(s, &c->x, from * c->x.dims[c->n + 1] + group * ki, &c->w, weight * ki, ki);
    } while (index_next(tap, c->w.dims + 1, c->n));
}

// XLA operation semantics, "ConvWithGeneralPadding".
EVAL(CONVOLUTION) {
    struct literal *r;
    int64_t bytes, k = 0;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    RETURN_IF_ERR(open_pair(ev, i, in, &bytes));

    struct conv c = {.attr = HLO_ATTR(i, conv)};
    const struct labels *l = &c.attr->dim_labels;
    c.n = l->n_spatial;
    int xo[HLO_MAX_RANK], wo[HLO_MAX_RANK];
    xo[0] = l->in_batch, wo[0] = l->k_out;

    for (int d = 0; d < c.n; d++)
        xo[d + 1] = l->in_spatial[d], wo[d + 1] = l->k_spatial[d];
    xo[c.n + 1] = l->in_feature, wo[c.n + 1] = l->k_in;

    struct arena tmp = {0};
    pack(&tmp, in[0], xo, &c.x);
    pack(&tmp, in[1], wo, &c.w);

    c.per_group = c.w.dims[0] / c.attr->feature_group_count;
    c.per_batch_group = c.w.dims[0] / c.attr->batch_group_count;
    c.out_batch = r->shape->dims[l->out_batch];
    bool empty = shape_elements(in[1]->shape) == 0;
    status_t st = ST_OK;

    EACH_INDEX(o, r->shape) {
        int64_t at[HLO_MAX_RANK];
        struct sum s = {0};
        for (int d = 0; d < c.n; d++)
            at[d] = o[l->out_spatial[d]];
        if (!empty && !st) conv_element(&c, o[l->out_batch], o[l->out_feature], at, &s);
        if ((k & 1023) == 0 && !st && cancelled(ev))
            st = st_new(ST_CANCELLED, "evaluation was cancelled");
        store(&s, &c.x, r, k++);
    }

    arena_done(&tmp);
    ev->used_bytes -= bytes;
    *out = r;
    return st;
}
