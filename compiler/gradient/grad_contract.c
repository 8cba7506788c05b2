// SPDX-License-Identifier: Apache-2.0
// Rules of dot and convolution. A convolution's derivative by an operand is a convolution with the
// roles of dimensions exchanged (Dumoulin & Visin, "A guide to convolution arithmetic", and the
// transposes that JAX's lax states).
#include "compiler/gradient/tape.h"

struct side { // an operand's dimensions: batch and contracting in the order of the other side's
    hv v;
    struct i64s batch, contracting;
    int64_t free[HLO_MAX_RANK];
    int n_free;
};
static void find_free(struct side *s) {
    for (int64_t k = 0; k < s->v->shape->rank; k++)
        if (!i64s_has(s->batch, k) && !i64s_has(s->contracting, k)) s->free[s->n_free++] = k;
}
// By `to`: d, of which the free dimensions of `from` are at [from_at, ...), times from, in to's
// order.
static void by_side(struct tape *t, const struct side *to, const struct side *from, int64_t from_at,
                    hv d) {
    int64_t ones[HLO_MAX_RANK], places[HLO_MAX_RANK], perm[HLO_MAX_RANK];
    int n = 0;
    if (!tape_wants(t, to->v)) return;
    for (int64_t k = 0; k < HLO_MAX_RANK; k++)
        ones[k] = k, places[k] = from_at + k;
    struct hlo_attr_dot a = {
        .lhs_batch_dims = {ones, to->batch.n},
        .rhs_batch_dims = from->batch,
        .lhs_contracting_dims = {places, from->n_free},
        .rhs_contracting_dims = {(int64_t *)(uintptr_t)from->free, from->n_free}};
    hv x = hb_convert(t->b, from->v, d->shape->dtype);
    hv r = hb_dot(t->b, d, x, &a); // batch, to's free, from's contracting in its own order
    for (int k = 0; k < to->batch.n; k++)
        perm[to->batch.v[k]] = n++;
    for (int k = 0; k < to->n_free; k++)
        perm[to->free[k]] = n++;
    for (int64_t k = 0; k < from->v->shape->rank; k++)
        for (int j = 0; j < from->contracting.n; j++)
            if (from->contracting.v[j] == k) perm[to->contracting.v[j]] = n++;
    if (hb_ok(t->b)) tape_give(t, to->v, hb_transpose(t->b, r, perm));
}
void grad_dot(struct tape *t, hv i, hv const *d) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    struct side x = {i->operands[0], a->lhs_batch_dims, a->lhs_contracting_dims, {0}, 0},
                y = {i->operands[1], a->rhs_batch_dims, a->rhs_contracting_dims, {0}, 0};
    find_free(&x);
    find_free(&y);
    by_side(t, &x, &y, x.batch.n + x.n_free, d[0]);
    by_side(t, &y, &x, x.batch.n, d[0]);
}

// ---- convolution

static int64_t dilated(int64_t n, int64_t by) {
    return n ? (n - 1) * by + 1 : 0;
}
// Dimension src of x as groups in dimension src and the rest behind it.
static hv out_of(struct tape *t, hv x, int src, int64_t groups) {
    int64_t dims[HLO_MAX_RANK + 1];
    int n = 0;
    for (int k = 0; k < x->shape->rank; k++) {
        if (k == src) dims[n++] = groups;
        dims[n++] = k == src ? x->shape->dims[k] / groups : x->shape->dims[k];
    }
    return hb_reshape(t->b, x, dims, n);
}
// Dimension src of x put in front of the elements of dimension dst, counted without src.
static hv into(struct tape *t, hv x, int src, int dst) {
    int64_t perm[HLO_MAX_RANK + 1], dims[HLO_MAX_RANK];
    int n = 0, rank = x->shape->rank - 1;
    for (int k = 0; k < x->shape->rank; k++) {
        if (k == src) continue;
        int plain = k > src ? k - 1 : k;
        if (plain == dst) perm[n++] = src;
        perm[n++] = k;
        dims[plain] = x->shape->dims[k] * (plain == dst ? x->shape->dims[src] : 1);
    }
    return hb_reshape(t->b, hb_transpose(t->b, x, perm), dims, rank);
}
static hv regrouped(struct tape *t, hv x, int src, int dst, int64_t groups) {
    return groups > 1 ? into(t, out_of(t, x, src, groups), src, dst) : x;
}
static hv reversed(struct tape *t, hv k, const struct hlo_attr_conv *c, bool all) {
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int s = 0; s < c->dim_labels.n_spatial; s++)
        if (all || c->window.v[s].reversal) dims[n++] = c->dim_labels.k_spatial[s];
    return n ? hb_reverse(t->b, k, dims, n) : k;
}

// By the input: d, dilated by the stride, under the kernel turned around.
static void by_input(struct tape *t, hv i, hv kernel, hv d) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    hv x = i->operands[0];
    int64_t fg = c->feature_group_count, bg = c->batch_group_count;
    struct window_dim w[HLO_MAX_RANK];
    for (int s = 0; s < l->n_spatial; s++) {
        struct window_dim o = c->window.v[s];
        int64_t in = dilated(x->shape->dims[l->in_spatial[s]], o.base_dilation),
                k = dilated(kernel->shape->dims[l->k_spatial[s]], o.window_dilation),
                out = dilated(d->shape->dims[l->out_spatial[s]], o.stride);
        int64_t low = k - o.pad_low - 1;
        w[s] = (struct window_dim){o.size,   o.base_dilation,   low,  in + k - 1 - out - low,
                                   o.stride, o.window_dilation, false};
    }
    struct labels m = *l;
    m.in_batch = l->out_batch, m.in_feature = l->out_feature;
    m.out_batch = l->in_batch, m.out_feature = l->in_feature;
    m.k_in = l->k_out, m.k_out = l->k_in;
    for (int s = 0; s < l->n_spatial; s++)
        m.in_spatial[s] = l->out_spatial[s], m.out_spatial[s] = l->in_spatial[s];
    kernel = regrouped(t, reversed(t, kernel, c, true), l->k_out, l->k_in, fg * bg);
    hv r = hb_conv(t->b, d, hb_convert(t->b, kernel, d->shape->dtype),
                   &(struct hlo_attr_conv){.window = {w, l->n_spatial},
                                           .dim_labels = m,
                                           .feature_group_count = fg * bg,
                                           .batch_group_count = 1});
    if (hb_ok(t->b)) r = regrouped(t, r, l->in_feature, l->in_batch, bg);
    tape_give(t, x, r);
}
// By the kernel: the input with features as batch, under d.
static void by_kernel(struct tape *t, hv i, hv d) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    hv x = i->operands[0], kernel = i->operands[1];
    struct window_dim w[HLO_MAX_RANK];
    for (int s = 0; s < l->n_spatial; s++) {
        struct window_dim o = c->window.v[s];
        int64_t in = dilated(x->shape->dims[l->in_spatial[s]], o.base_dilation),
                k = dilated(kernel->shape->dims[l->k_spatial[s]], o.window_dilation),
                n = d->shape->dims[l->out_spatial[s]], out = dilated(n, o.stride);
        w[s] = (struct window_dim){n,
                                   o.window_dilation,
                                   o.pad_low,
                                   out - in + k - o.pad_low - 1,
                                   o.base_dilation,
                                   o.stride,
                                   false};
    }

    struct labels m = *l;
    m.in_batch = l->in_feature, m.in_feature = l->in_batch;
    m.k_in = l->out_batch, m.k_out = l->out_feature;
    m.out_batch = l->k_in, m.out_feature = l->k_out;
    for (int s = 0; s < l->n_spatial; s++)
        m.k_spatial[s] = l->out_spatial[s], m.out_spatial[s] = l->k_spatial[s];
    hv r = hb_conv(t->b, hb_convert(t->b, x, d->shape->dtype), d,
                   &(struct hlo_attr_conv){.window = {w, l->n_spatial},
                                           .dim_labels = m,
                                           .feature_group_count = c->batch_group_count,
                                           .batch_group_count = c->feature_group_count});
    if (hb_ok(t->b)) tape_give(t, kernel, reversed(t, r, c, false));
}
void grad_convolution(struct tape *t, hv i, hv const *d) {
    hv kernel = i->operands[1];
    if (!shape_elements(i->shape)) return; // zeros, or nothing
    if (tape_wants(t, i->operands[0]))
        by_input(t, i, reversed(t, kernel, HLO_ATTR(i, conv), false), d[0]);
    if (tape_wants(t, kernel)) by_kernel(t, i, d[0]);
}
