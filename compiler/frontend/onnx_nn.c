// SPDX-License-Identifier: Apache-2.0
// Convolution, matrix products, pooling.
#include <math.h>

#include "compiler/frontend/onnx_tools.h"

// The spatial attributes of Conv and the pools, resolved against the input: pads from auto_pad,
// defaults filled in.
struct spatial {
    int n;
    int64_t kernel[HLO_MAX_RANK], stride[HLO_MAX_RANK], dilation[HLO_MAX_RANK], low[HLO_MAX_RANK],
        high[HLO_MAX_RANK];
};

static bool spatial_of(struct onnx_ctx *c, hv x, const int64_t *kernel, int n_kernel,
                       struct spatial *s) {
    int n = x->shape->rank - 2, k;
    int64_t pads[2 * HLO_MAX_RANK];
    *s = (struct spatial){.n = n};
    if (n < 1 || n_kernel != n)
        return fail(c, "kernel of %d dimensions for an input of rank %d", n_kernel, x->shape->rank),
               false;
    for (int d = 0; d < n; d++)
        s->kernel[d] = kernel[d], s->stride[d] = s->dilation[d] = 1;
    if (at_ints(c, "strides", s->stride, n, &k) && k != n)
        return fail(c, "strides has %d values, expected %d", k, n), false;
    if (at_ints(c, "dilations", s->dilation, n, &k) && k != n)
        return fail(c, "dilations has %d values, expected %d", k, n), false;
    if (at_ints(c, "pads", pads, 2 * n, &k)) {
        if (k != 2 * n) return fail(c, "pads has %d values, expected %d", k, 2 * n), false;
        for (int d = 0; d < n; d++)
            s->low[d] = pads[d], s->high[d] = pads[n + d];
    }
    for (int d = 0; d < n; d++)
        if (s->kernel[d] < 1 || s->stride[d] < 1 || s->dilation[d] < 1 || s->low[d] < 0 ||
            s->high[d] < 0)
            return fail(c, "kernel, strides, dilations and pads must not be negative or zero"),
                   false;
    struct str mode = at_str(c, "auto_pad", "NOTSET");
    bool upper = str_is(mode, "SAME_UPPER"), lower = str_is(mode, "SAME_LOWER");
    for (int d = 0; d < n && (upper || lower); d++) {
        int64_t in = x->shape->dims[d + 2], out = (in + s->stride[d] - 1) / s->stride[d];
        int64_t total = (out - 1) * s->stride[d] + (s->kernel[d] - 1) * s->dilation[d] + 1 - in;
        if (total < 0) total = 0;
        s->low[d] = upper ? total / 2 : total - total / 2;
        s->high[d] = total - s->low[d];
    }
    return hb_ok(&c->b);
}

static struct window_dim window_of(const struct spatial *s, int d) {
    return (struct window_dim){s->kernel[d],   s->stride[d], s->low[d], s->high[d], 1,
                               s->dilation[d], false};
}

static hv add_channel_bias(struct onnx_ctx *c, hv y, hv bias) {
    int64_t channel = 1;
    return hb_add(&c->b, y, hb_broadcast(&c->b, bias, y->shape->dims, y->shape->rank, &channel));
}

// x [N, C, d...] with w [O, C/group, d...] and the node's spatial attributes.
hv onnx_convolve(struct onnx_ctx *c, hv x, hv w) {
    struct spatial s;
    struct window_dim dims[HLO_MAX_RANK];
    if (w->shape->rank != x->shape->rank || x->shape->rank < 3)
        return fail(c, "input %s with weights %s", shape_text(c->a, x->shape),
                    shape_text(c->a, w->shape)),
               x;
    if (!spatial_of(c, x, w->shape->dims + 2, w->shape->rank - 2, &s)) return x;
    struct hlo_attr_conv a = {.window = {dims, s.n},
                              .feature_group_count = at_int(c, "group", 1),
                              .batch_group_count = 1};
    a.dim_labels =
        (struct labels){.n_spatial = s.n, .in_feature = 1, .k_in = 1, .k_out = 0, .out_feature = 1};
    for (int d = 0; d < s.n; d++) {
        dims[d] = window_of(&s, d);
        a.dim_labels.in_spatial[d] = a.dim_labels.k_spatial[d] = a.dim_labels.out_spatial[d] =
            d + 2;
    }
    return hb_conv(&c->b, x, w, &a);
}
ONNX(conv) {
    hv y = onnx_convolve(c, in_val(c, 0), in_val(c, 1));
    if (hb_ok(&c->b)) out_val(c, 0, in_has(c, 2) ? add_channel_bias(c, y, in_val(c, 2)) : y);
}

ONNX(gemm) {
    struct hb *b = &c->b;
    hv x = in_val(c, 0), y = in_val(c, 1);
    if (x->shape->rank != 2 || y->shape->rank != 2) {
        int64_t flat[2] = {x->shape->rank ? x->shape->dims[0] : 1,
                           0}; // opsets below 7 flattened the first input
        if (c->opset >= 7 || y->shape->rank != 2 || flat[0] < 1)
            return fail(c, "inputs %s and %s, expected matrices", shape_text(c->a, x->shape),
                        shape_text(c->a, y->shape));
        flat[1] = shape_elements(x->shape) / flat[0];
        x = hb_reshape(b, x, flat, 2);
    }
    int64_t lc = at_int(c, "transA", 0) ? 0 : 1, rc = at_int(c, "transB", 0) ? 1 : 0;
    double alpha = (double)at_float(c, "alpha", 1), beta = (double)at_float(c, "beta", 1);
    hv r = hb_dot(
        b, x, y,
        &(struct hlo_attr_dot){.lhs_contracting_dims = {&lc, 1}, .rhs_contracting_dims = {&rc, 1}});
    if (alpha != 1) r = hb_mul(b, r, splat_like(c, r, alpha));
    if (in_has(c, 2) && beta != 0) {
        hv bias = in_val(c, 2);
        if (beta != 1) bias = hb_mul(b, bias, splat_like(c, bias, beta));
        r = hb_add(b, r, hb_broadcast_numpy(b, bias, r->shape->dims, 2));
    }
    out_val(c, 0, r);
}
ONNX(matmul) {
    out_val(c, 0, hb_matmul(&c->b, in_val(c, 0), in_val(c, 1)));
}

// ---- pooling

static hv window_reduce(struct onnx_ctx *c, hv x, const struct spatial *s, enum hlo_op op,
                        double init) {
    struct window_dim w[HLO_MAX_RANK] = {{1, 1, 0, 0, 1, 1, false}, {1, 1, 0, 0, 1, 1, false}};
    for (int d = 0; d < s->n; d++)
        w[d + 2] = window_of(s, d);
    return hb_reduce_window(&c->b, x, hb_const_f64(&c->b, x->shape->dtype, init),
                            &(struct window){w, s->n + 2}, op);
}

// Rounding the output size up: windows that begin inside the input or its left padding count, so
// the right padding grows to hold the last.
static void ceil_mode(const struct shape *x, struct spatial *s) {
    for (int d = 0; d < s->n; d++) {
        int64_t in = x->dims[d + 2], win = (s->kernel[d] - 1) * s->dilation[d] + 1,
                room = in + s->low[d] + s->high[d] - win;
        if (room < 0) continue;
        int64_t out = (room + s->stride[d] - 1) / s->stride[d] + 1;
        if ((out - 1) * s->stride[d] >= in + s->low[d]) out--;
        int64_t need = (out - 1) * s->stride[d] + win - in - s->low[d];
        if (need > s->high[d]) s->high[d] = need;
    }
}

ONNX(pool) {
    struct hb *b = &c->b;
    hv x = in_val(c, 0);
    struct spatial s, declared;
    int64_t kernel[HLO_MAX_RANK];
    int n;
    bool max = op_arg(c) == HLO_MAXIMUM;
    if (!at_ints(c, "kernel_shape", kernel, HLO_MAX_RANK - 2, &n))
        return fail(c, "kernel_shape is missing");
    if (!spatial_of(c, x, kernel, n, &s)) return;
    declared = s;
    if (at_int(c, "ceil_mode", 0)) ceil_mode(x->shape, &s);
    if (max) {
        if (c->n->out.n > 1 && c->n->out.v[1].n)
            return fail(c, "the Indices output is not supported");
        double lowest = dtype_is_float(x->shape->dtype)             ? -(double)INFINITY
                        : dtype_class(x->shape->dtype) == DC_SIGNED ? -9.3e18
                                                                    : 0;
        return out_val(c, 0, window_reduce(c, x, &s, HLO_MAXIMUM, lowest));
    }
    hv sum = window_reduce(c, x, &s, HLO_ADD, 0);
    bool padded = false, grown = false, with_pads = at_int(c, "count_include_pad", 0) != 0;
    double area = 1;
    for (int d = 0; d < s.n; d++) {
        padded |= s.low[d] || s.high[d];
        grown |= s.high[d] != declared.high[d];
        area *= (double)s.kernel[d];
    }
    if (!padded || (with_pads && !grown))
        return out_val(c, 0, hb_mul(b, sum, splat_like(c, sum, 1 / area)));
    // The number of elements under each window: ones over the input (and its declared padding),
    // summed the same way.
    int64_t dims[HLO_MAX_RANK] = {1, 1};
    for (int d = 0; d < s.n; d++) {
        dims[d + 2] = x->shape->dims[d + 2] + (with_pads ? declared.low[d] + declared.high[d] : 0);
        if (with_pads) s.low[d] -= declared.low[d], s.high[d] -= declared.high[d];
    }
    hv ones = hb_splat(b, shape_make(c->a, x->shape->dtype, dims, s.n + 2), 1);
    hv count = window_reduce(c, ones, &s, HLO_ADD, 0);
    out_val(c, 0, hb_div(b, sum, hb_broadcast_numpy(b, count, sum->shape->dims, sum->shape->rank)));
}

ONNX(globalpool) {
    hv x = in_val(c, 0);
    int64_t axes[HLO_MAX_RANK];
    int n = 0;
    double count = 1;
    enum hlo_op op = (enum hlo_op)op_arg(c);
    for (int d = 2; d < x->shape->rank; d++)
        axes[n++] = d, count *= (double)x->shape->dims[d];
    hv r = reduce_keep(c, x, axes, n, op, true);
    out_val(c, 0, op == HLO_ADD ? hb_mul(&c->b, r, splat_like(c, r, 1 / count)) : r);
}

// x / (bias + alpha/size * sum of squares over `size` channels around)^beta
ONNX(lrn) {
    struct hb *b = &c->b;
    hv x = in_val(c, 0);
    int64_t size = at_int(c, "size", 0);
    struct window_dim w[HLO_MAX_RANK];
    if (x->shape->rank < 2 || size < 1)
        return fail(c, "size %lld on %s", (long long)size, shape_text(c->a, x->shape));
    for (int d = 0; d < x->shape->rank; d++)
        w[d] = (struct window_dim){1, 1, 0, 0, 1, 1, false};
    w[1] = (struct window_dim){size, 1, (size - 1) / 2, size / 2, 1, 1, false};
    hv sq = hb_reduce_window(b, hb_mul(b, x, x), hb_const_f64(b, x->shape->dtype, 0),
                             &(struct window){w, x->shape->rank}, HLO_ADD);
    hv base =
        hb_add(b, splat_like(c, x, (double)at_float(c, "bias", 1)),
               hb_mul(b, sq, splat_like(c, x, (double)at_float(c, "alpha", 1e-4f) / (double)size)));
    out_val(c, 0,
            hb_div(b, x,
                   hb_binary(b, HLO_POWER, base,
                             splat_like(c, x, (double)at_float(c, "beta", 0.75f)))));
}
ONNX(dropout) {
    hv x = in_val(c, 0);
    if (in_has(c, 2)) { // training_mode
        const struct literal *t = in_known(c, 2);
        if (t && lit_get_i64(t, 0)) return fail(c, "training mode is not supported");
    }
    out_val(c, 0, x);
    if (c->n->out.n > 1)
        out_val(
            c, 1,
            hb_splat(&c->b,
                     shape_with_dtype(c->a, x->shape, c->opset >= 10 ? DT_PRED : x->shape->dtype),
                     1));
}
