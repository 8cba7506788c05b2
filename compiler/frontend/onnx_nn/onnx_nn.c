// SPDX-License-Identifier: Apache-2.0
// Convolution, its transpose, and matrix products.
#include <math.h>
#include <string.h>

#include "compiler/frontend/onnx_nn/onnx_spatial.h"

bool onnx_spatial_of(struct onnx_ctx *c, hv x, const int64_t *kernel, int n_kernel,
                     struct spatial *s) {
    int n = x->shape->rank - 2, k;
    int64_t pads[2 * HLO_MAX_RANK];
    *s = (struct spatial){.n = n};

    if (n < 1 || n_kernel != n)
        return onnx_fail(c, "kernel of %d dimensions for an input of rank %d", n_kernel,
                         x->shape->rank),
               false;
    for (int d = 0; d < n; d++)
        s->kernel[d] = kernel[d], s->stride[d] = s->dilation[d] = 1;

    int64_t said[HLO_MAX_RANK];
    bool says = onnx_at_ints(c, "kernel_shape", said, n, &k) && k > 0;
    for (int d = 0; says && d < n; d++)
        if (k != n || said[d] != kernel[d])
            return onnx_fail(c, "kernel_shape is [%lld%s] where the weights have %lld",
                             (long long)said[k == n ? d : 0], n > 1 ? ", ..." : "",
                             (long long)kernel[d]),
                   false;
    if (onnx_at_ints(c, "strides", s->stride, n, &k) && k != n)
        return onnx_fail(c, "strides has %d values, expected %d", k, n), false;
    if (onnx_at_ints(c, "dilations", s->dilation, n, &k) && k != n)
        return onnx_fail(c, "dilations has %d values, expected %d", k, n), false;
    if (onnx_at_ints(c, "pads", pads, 2 * n, &k)) {
        if (k != 2 * n) return onnx_fail(c, "pads has %d values, expected %d", k, 2 * n), false;
        for (int d = 0; d < n; d++)
            s->low[d] = pads[d], s->high[d] = pads[n + d];
    }

    for (int d = 0; d < n; d++) {
        static const char *const names[] = {"kernel_shape", "strides", "dilations", "pads", "pads"};
        const char *name = "a dimension";
        int64_t most = x->shape->dims[d + 2],
                given[] = {s->kernel[d], s->stride[d], s->dilation[d], s->low[d], s->high[d]};
        for (int i = 0; i < 5; i++) {
            if (given[i] < (i < 3))
                return onnx_fail(
                           c, "kernel, strides, dilations and pads must not be negative or zero"),
                       false;
            if (given[i] > most) most = given[i], name = names[i];
        }
        if (most > INT32_MAX) // so that products of two fit
            return onnx_fail(c, "%s of %lld under a window is not supported", name,
                             (long long)most),
                   false;
    }

    struct str mode = onnx_at_str(c, "auto_pad", "NOTSET");
    bool upper = str_is(mode, "SAME_UPPER"), lower = str_is(mode, "SAME_LOWER");
    for (int d = 0; d < n && (upper || lower); d++) {
        int64_t in = x->shape->dims[d + 2], out = in / s->stride[d] + (in % s->stride[d] != 0);
        int64_t total = (out - 1) * s->stride[d] + (s->kernel[d] - 1) * s->dilation[d] + 1 - in;
        if (total < 0) total = 0;
        s->low[d] = upper ? total / 2 : total - total / 2;
        s->high[d] = total - s->low[d];
    }
    return hb_ok(&c->b);
}

struct window_dim onnx_window_of(const struct spatial *s, int d) {
    return (struct window_dim){s->kernel[d],   s->stride[d], s->low[d], s->high[d], 1,
                               s->dilation[d], false};
}

static hv add_channel_bias(struct onnx_ctx *c, hv y, hv bias) {
    return hb_add(&c->b, y, onnx_along(c, bias, y->shape, 1));
}

// x [N, C, d...] with w [O, C/group, d...] and the node's spatial attributes.
hv onnx_convolve(struct onnx_ctx *c, hv x, hv w) {
    struct spatial s;
    struct window_dim dims[HLO_MAX_RANK];
    if (w->shape->rank != x->shape->rank || x->shape->rank < 3)
        return onnx_fail(c, "input %s with weights %s", onnx_show(c, x), onnx_show(c, w)), x;
    if (!onnx_spatial_of(c, x, w->shape->dims + 2, w->shape->rank - 2, &s)) return x;
    struct hlo_attr_conv a = {.window = {dims, s.n},
                              .feature_group_count = onnx_at_int(c, "group", 1),
                              .batch_group_count = 1};
    a.dim_labels =
        (struct labels){.n_spatial = s.n, .in_feature = 1, .k_in = 1, .k_out = 0, .out_feature = 1};
    for (int d = 0; d < s.n; d++) {
        dims[d] = onnx_window_of(&s, d);
        a.dim_labels.in_spatial[d] = a.dim_labels.k_spatial[d] = a.dim_labels.out_spatial[d] =
            d + 2;
    }
    return hb_conv(&c->b, x, w, &a);
}
ONNX(conv) {
    hv y = onnx_convolve(c, onnx_in_val(c, 0), onnx_in_val(c, 1));
    if (hb_ok(b))
        onnx_out_val(c, 0, onnx_in_has(c, 2) ? add_channel_bias(c, y, onnx_in_val(c, 2)) : y);
}

// What each output element receives, read backwards: a convolution over the input with its elements
// `stride` apart, and the kernel turned round.
static bool transposed_pads(struct onnx_ctx *c, hv x, hv w, struct spatial *s, int64_t *extra) {
    int64_t want[HLO_MAX_RANK];
    int n, k, m;
    struct str mode = onnx_at_str(c, "auto_pad", "NOTSET");
    bool same = str_is(mode, "SAME_UPPER") || str_is(mode, "SAME_LOWER");
    for (n = 0; n < s->n; n++)
        extra[n] = 0;
    if (onnx_at_ints(c, "output_padding", extra, HLO_MAX_RANK, &k) && k != n)
        return onnx_fail(c, "output_padding has %d values, expected %d", k, n), false;
    bool given = onnx_at_ints(c, "output_shape", want, HLO_MAX_RANK, &m);
    if (given && m == n + 2) // some exporters write all dimensions
        for (int d = 0; d < n; d++)
            want[d] = want[d + 2];
    else if (given && m != n)
        return onnx_fail(c, "output_shape has %d values, expected %d", m, n), false;

    for (int d = 0; d < n; d++) {
        // As onnx_spatial_of bounds the others.
        if (extra[d] < 0 || extra[d] > INT32_MAX)
            return onnx_fail(c, "output_padding of %lld", (long long)extra[d]), false;
        if (given && (want[d] < 0 || want[d] > INT32_MAX))
            return onnx_fail(c, "output_shape of %lld", (long long)want[d]), false;
        int64_t in = x->shape->dims[d + 2], win = (w->shape->dims[d + 2] - 1) * s->dilation[d] + 1;
        if (!given && !same) continue;
        if (!given) want[d] = in * s->stride[d];
        int64_t total = (in - 1) * s->stride[d] + extra[d] + win - want[d];
        int64_t half = total >= 0 ? total / 2 : -((1 - total) / 2); // rounded down
        s->low[d] = str_is(mode, "SAME_UPPER") ? half : total - half;
        s->high[d] = total - s->low[d];
    }
    return true;
}
// Pads of com.microsoft's ConvTransposeWithDynamicPads, begins and then ends.
static bool pads_of_input(struct onnx_ctx *c, size_t k, struct spatial *s) {
    int64_t pads[2 * HLO_MAX_RANK];
    int n;
    if (!onnx_in_ints(c, k, pads, 2 * HLO_MAX_RANK, &n)) return false;
    if (n != 2 * s->n) return onnx_fail(c, "%d pads for %d dimensions", n, s->n), false;
    for (int d = 0; d < s->n; d++) {
        s->low[d] = pads[d], s->high[d] = pads[s->n + d];
        if (s->low[d] < 0 || s->high[d] < 0 || s->low[d] > INT32_MAX || s->high[d] > INT32_MAX)
            return onnx_fail(c, "pads of %lld and %lld", (long long)s->low[d],
                             (long long)s->high[d]),
                   false;
    }
    return true;
}
ONNX_X(convtranspose) { // arg: pads are input 2, and the bias comes behind them
    hv w = onnx_in_val(c, 1);
    size_t bias = onnx_op_arg(c) ? 3 : 2;
    int rank = x->shape->rank;
    int64_t group = onnx_at_int(c, "group", 1), extra[HLO_MAX_RANK], dims[HLO_MAX_RANK + 1];
    struct spatial s;
    struct window_dim win[HLO_MAX_RANK];

    if (w->shape->rank != rank || rank < 3 || rank == HLO_MAX_RANK || group < 1 ||
        w->shape->dims[0] % group)
        return onnx_fail(c, "input %s with weights %s in %lld groups", onnx_show(c, x),
                         onnx_show(c, w), (long long)group);
    if (!onnx_spatial_of(c, x, w->shape->dims + 2, rank - 2, &s)) return;
    if (onnx_op_arg(c) && onnx_in_has(c, 2) && !pads_of_input(c, 2, &s)) return;
    if (!transposed_pads(c, x, w, &s, extra)) return;

    // [C, M/group, k...] -> [C/group, M, k...]
    memcpy(dims + 1, w->shape->dims, sizeof *dims * (size_t)rank);
    dims[0] = group, dims[1] /= group;
    w = onnx_swap_axes(c, hb_reshape(b, w, dims, rank + 1), 0, 1);
    dims[0] = dims[1], dims[1] = group * dims[2];
    memmove(dims + 2, dims + 3, sizeof *dims * (size_t)(rank - 2));
    w = hb_reshape(b, w, dims, rank);

    struct hlo_attr_conv a = {
        .window = {win, s.n}, .feature_group_count = group, .batch_group_count = 1};
    a.dim_labels =
        (struct labels){.n_spatial = s.n, .in_feature = 1, .k_in = 0, .k_out = 1, .out_feature = 1};
    for (int d = 0; d < s.n; d++) {
        int64_t span = (s.kernel[d] - 1) * s.dilation[d];
        win[d] = (struct window_dim){
            s.kernel[d],   1,   span - s.low[d], span - s.high[d] + extra[d], s.stride[d],
            s.dilation[d], true};
        a.dim_labels.in_spatial[d] = a.dim_labels.k_spatial[d] = a.dim_labels.out_spatial[d] =
            d + 2;
    }

    hv y = hb_conv(b, x, w, &a);
    if (hb_ok(b))
        onnx_out_val(c, 0, onnx_in_has(c, bias) ? add_channel_bias(c, y, onnx_in_val(c, bias)) : y);
}

ONNX_X(gemm) {
    hv y = onnx_in_val(c, 1);
    if (x->shape->rank != 2 || y->shape->rank != 2) {
        int64_t flat[2] = {x->shape->rank ? x->shape->dims[0] : 1,
                           0}; // opsets below 7 flattened the first input
        if (c->opset >= 7 || y->shape->rank != 2 || flat[0] < 1)
            return onnx_fail(c, "inputs %s and %s, expected matrices", onnx_show(c, x),
                             onnx_show(c, y));
        flat[1] = shape_elements(x->shape) / flat[0];
        x = hb_reshape(b, x, flat, 2);
    }
    int64_t lc = onnx_at_int(c, "transA", 0) ? 0 : 1, rc = onnx_at_int(c, "transB", 0) ? 1 : 0;
    double alpha = onnx_at_float(c, "alpha", 1), beta = onnx_at_float(c, "beta", 1);
    hv r = hb_dot_over(b, x, y, lc, rc);
    if (alpha != 1) r = hb_mul(b, r, onnx_splat_like(c, r, alpha));
    if (onnx_in_has(c, 2) && beta != 0) {
        hv bias = onnx_in_val(c, 2);
        if (beta != 1) bias = hb_mul(b, bias, onnx_splat_like(c, bias, beta));
        r = hb_add(b, r, hb_broadcast_numpy(b, bias, r->shape->dims, 2));
    }
    onnx_out_val(c, 0, r);
}
ONNX(matmul) {
    onnx_out_val(c, 0, hb_matmul(b, onnx_in_val(c, 0), onnx_in_val(c, 1)));
}
