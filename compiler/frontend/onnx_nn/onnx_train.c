// SPDX-License-Identifier: Apache-2.0
// Optimisers of ai.onnx.preview.training. Inputs: rate, step, then the tensors, all of one role
// after another (values, gradients, states); outputs the same way without the gradients.
#include "compiler/frontend/onnx/onnx_tools.h"

// How many tensors each role has; 0 after a failure.
static size_t tensors_of(struct onnx_ctx *c, size_t roles) {
    size_t n = c->n->in.n > 2 ? (c->n->in.n - 2) / roles : 0;
    if (n == 0 || 2 + n * roles != c->n->in.n)
        return onnx_fail(c, "%zu inputs do not make whole groups", c->n->in.n), (size_t)0;
    return n;
}
// Gradient with the regularisation term.
static hv gradient(struct onnx_ctx *c, hv x, size_t k) {
    return hb_add(&c->b, onnx_in_val(c, k),
                  onnx_mul_k(c, x, onnx_at_float(c, "norm_coefficient", 0)));
}
static hv rate_like(struct onnx_ctx *c, hv rate, hv x) {
    return onnx_spread(c, hb_convert(&c->b, rate, x->shape->dtype), x->shape);
}
static hv blend(struct onnx_ctx *c, hv old, hv now, double keep) {
    return hb_add(&c->b, onnx_mul_k(c, old, keep), onnx_mul_k(c, now, 1 - keep));
}

ONNX(adagrad) {
    size_t n = tensors_of(c, 3);
    hv t = hb_convert(b, onnx_scalar_in(c, 1), DT_F64),
       rate = hb_convert(b, onnx_scalar_in(c, 0), DT_F64);
    rate = hb_div(b, rate, onnx_add_k(c, onnx_mul_k(c, t, onnx_at_float(c, "decay_factor", 0)), 1));
    for (size_t k = 0; k < n; k++) {
        hv x = onnx_in_val(c, 2 + k), g = gradient(c, x, 2 + n + k);
        hv h = hb_add(b, onnx_in_val(c, 2 + 2 * n + k), hb_mul(b, g, g));
        hv scale = onnx_add_k(c, hb_unary(b, HLO_SQRT, h), onnx_at_float(c, "epsilon", 1e-6f));
        hv step = hb_div(b, hb_mul(b, rate_like(c, rate, x), g), scale);
        onnx_out_val(c, k, hb_sub(b, x, step));
        onnx_out_val(c, n + k, h);
    }
}
ONNX(adam) {
    size_t n = tensors_of(c, 4);
    double alpha = onnx_at_float(c, "alpha", 0.9f), beta = onnx_at_float(c, "beta", 0.999f);
    hv t = hb_convert(b, onnx_scalar_in(c, 1), DT_F64),
       rate = hb_convert(b, onnx_scalar_in(c, 0), DT_F64);
    hv one = onnx_splat_like(c, t, 1), first = onnx_compare_k(c, t, 0, CMP_LE);
    hv a = hb_sub(b, one, hb_binary(b, HLO_POWER, onnx_splat_like(c, t, alpha), t));
    hv q = hb_sub(b, one, hb_binary(b, HLO_POWER, onnx_splat_like(c, t, beta), t));
    hv corrected = hb_div(b, hb_mul(b, rate, hb_unary(b, HLO_SQRT, q)), a);
    rate = hb_select(b, first, rate, corrected); // no bias to correct at the first step
    for (size_t k = 0; k < n; k++) {
        hv x = onnx_in_val(c, 2 + k), g = gradient(c, x, 2 + n + k);
        hv v = blend(c, onnx_in_val(c, 2 + 2 * n + k), g, alpha);
        hv h = blend(c, onnx_in_val(c, 2 + 3 * n + k), hb_mul(b, g, g), beta);
        hv scale = onnx_add_k(c, hb_unary(b, HLO_SQRT, h), onnx_at_float(c, "epsilon", 1e-6f));
        x = hb_sub(b, x, hb_mul(b, rate_like(c, rate, x), hb_div(b, v, scale)));
        onnx_out_val(c, k, onnx_mul_k(c, x, 1 - onnx_at_float(c, "norm_coefficient_post", 0)));
        onnx_out_val(c, n + k, v);
        onnx_out_val(c, 2 * n + k, h);
    }
}
ONNX(momentum) {
    size_t n = tensors_of(c, 3);
    bool nesterov = str_is(onnx_at_str(c, "mode", "standard"), "nesterov");
    double alpha = onnx_at_float(c, "alpha", 0);
    hv t = onnx_scalar_in(c, 1), rate = onnx_scalar_in(c, 0);
    hv first = onnx_compare_k(c, t, 0, CMP_LE);
    for (size_t k = 0; k < n; k++) {
        hv x = onnx_in_val(c, 2 + k), g = gradient(c, x, 2 + n + k),
           old = onnx_in_val(c, 2 + 2 * n + k);
        hv beta = onnx_splat_like(c, x, onnx_at_float(c, "beta", 0));
        beta = hb_select(b, onnx_spread(c, first, x->shape), onnx_splat_like(c, x, 1), beta);
        hv v = hb_add(b, onnx_mul_k(c, old, alpha), hb_mul(b, beta, g));
        hv step = nesterov ? hb_add(b, g, onnx_mul_k(c, v, alpha)) : v;
        onnx_out_val(c, k, hb_sub(b, x, hb_mul(b, rate_like(c, rate, x), step)));
        onnx_out_val(c, n + k, v);
    }
}
