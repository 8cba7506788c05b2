// SPDX-License-Identifier: Apache-2.0
// Small operators of com.microsoft that stand between the products of recent language models:
// gates, gated normalisations, sums over branches. Computed in f32 and converted once where the
// definition says so, else in the inputs' type. And CDist, distances of all pairs.
#include "compiler/frontend/onnx/onnx_tools.h"

// x [.., n] / its root mean square, in f32.
static hv rms(struct onnx_ctx *c, hv x) {
    struct hb *b = &c->b;
    int64_t last = x->shape->rank - 1;
    x = hb_convert(b, x, DT_F32);
    if (last < 0 || !hb_ok(b)) return onnx_fail(c, "a scalar has no rows"), x;
    hv mean = onnx_mean_of(c, hb_mul(b, x, x), &last, 1, false);
    mean = hb_unary(b, HLO_RSQRT, onnx_add_k(c, mean, onnx_at_float(c, "epsilon", 1e-5f)));
    return hb_ok(b) ? hb_mul(b, x, onnx_back_to(c, mean, x->shape, &last, 1)) : x;
}
// v in f32 over the last dimensions of x.
static hv over(struct onnx_ctx *c, hv v, hv x) {
    if (!hb_ok(&c->b)) return v;
    return hb_broadcast_numpy(&c->b, hb_convert(&c->b, v, DT_F32), x->shape->dims, x->shape->rank);
}
// [.., n * each] as [.., n, each].
static hv grouped(struct onnx_ctx *c, hv x, int64_t each) {
    int rank = x->shape->rank;
    int64_t dims[HLO_MAX_RANK];
    if (rank < 1 || rank >= HLO_MAX_RANK || each < 1 || x->shape->dims[rank - 1] % each)
        return onnx_fail(c, "%s in groups of %lld", onnx_show(c, x), (long long)each), x;
    for (int d = 0; d < rank; d++)
        dims[d] = x->shape->dims[d];
    dims[rank - 1] /= each, dims[rank] = each;
    return hb_reshape(&c->b, x, dims, rank + 1);
}
static hv branches(struct onnx_ctx *c, hv x, int64_t n) { // as [.., branches, features]
    int rank = x->shape->rank;
    if (n <= 0 || rank < 1) return x;
    if (x->shape->dims[rank - 1] % n)
        return onnx_fail(c, "%s in %lld branches", onnx_show(c, x), (long long)n), x;
    return grouped(c, x, x->shape->dims[rank - 1] / n);
}
static void out_as(struct onnx_ctx *c, size_t k, hv y, const struct shape *s) {
    if (hb_ok(&c->b))
        onnx_out_val(c, k, hb_reshape(&c->b, hb_convert(&c->b, y, s->dtype), s->dims, s->rank));
}

ONNX_X(gatedadd) { // x + y * gate [.., 1]
    hv y = onnx_in_val(c, 1), gate = onnx_in_val(c, 2);
    if (!hb_ok(b)) return;
    gate = hb_broadcast_numpy(b, gate, y->shape->dims, y->shape->rank);
    onnx_out_val(c, 0, hb_add(b, x, hb_mul(b, y, gate)));
}
ONNX_X(scaledsilu) {
    hv z = hb_convert(b, x, DT_F32);
    if (onnx_in_has(c, 1))
        z = hb_mul(b, z, onnx_spread(c, hb_convert(b, onnx_scalar_in(c, 1), DT_F32), x->shape));
    else
        z = onnx_mul_k(c, z, onnx_at_float(c, "alpha", 1));
    z = hb_convert(b, z, x->shape->dtype);
    onnx_out_val(c, 0, hb_mul(b, z, hb_unary(b, HLO_LOGISTIC, z)));
}
ONNX_X(gatedrmsnorm) { // x, scale [n], gate
    hv scale = onnx_in_val(c, 1), gate = onnx_in_val(c, 2);
    struct str how = onnx_at_str(c, "activation", "silu");
    bool silu = str_is(how, "silu") || str_is(how, "swish");
    if (!silu && !str_is(how, "sigmoid"))
        return onnx_fail(c, "activation \"%.*s\"", (int)how.n, how.p);
    if (scale->shape->rank != 1) return onnx_fail(c, "scale %s", onnx_show(c, scale));
    hv y = rms(c, grouped(c, x, scale->shape->dims[0]));
    y = hb_mul(b, y, over(c, scale, y));
    gate = hb_convert(b, gate, DT_F32);
    hv g = hb_unary(b, HLO_LOGISTIC, gate);
    if (silu) g = hb_mul(b, gate, g);
    if (!hb_ok(b)) return;
    y = hb_reshape(b, y, x->shape->dims, x->shape->rank);
    out_as(c, 0, hb_mul(b, y, g), x->shape);
}
ONNX_X(branchwisermsnorm) { // x, scale [branches * n], [branches, n] or [n]
    int64_t n = onnx_at_int(c, "num_branches", 0);
    hv y = rms(c, branches(c, x, n));
    if (onnx_in_has(c, 1) && hb_ok(b)) {
        hv scale = onnx_in_val(c, 1);
        int rank = y->shape->rank;
        int64_t each = y->shape->dims[rank - 1];
        if (scale->shape->rank == 1 && scale->shape->dims[0] != each)
            scale = grouped(c, scale, each);
        y = hb_mul(b, y, over(c, scale, y));
    }
    out_as(c, 0, y, x->shape);
}
ONNX_X(linearattentiongate) { // a, dt_bias, decay_scale, b
    hv d = hb_convert(b, x, DT_F32);
    d = hb_add(b, d, over(c, onnx_in_val(c, 1), d));
    d = onnx_activate(c, STR("Softplus"), d, 0, 0);
    out_as(c, 0, hb_mul(b, d, over(c, onnx_in_val(c, 2), d)), x->shape);
    if (!onnx_in_has(c, 3)) return;
    hv beta = onnx_in_val(c, 3);
    out_as(c, 1, hb_unary(b, HLO_LOGISTIC, hb_convert(b, beta, DT_F32)), beta->shape);
}
ONNX_X(cdist) { // rows of a and rows of b
    hv y = onnx_in_val(c, 1);
    struct str metric = onnx_at_str(c, "metric", "sqeuclidean");
    bool root = str_is(metric, "euclidean");
    if (!root && !str_is(metric, "sqeuclidean"))
        return onnx_fail(c, "metric \"%.*s\"", (int)metric.n, metric.p);
    if (x->shape->rank != 2 || y->shape->rank != 2 || x->shape->dims[1] != y->shape->dims[1])
        return onnx_fail(c, "rows of %s and %s", onnx_show(c, x), onnx_show(c, y));
    int64_t one = 1, dims[2] = {x->shape->dims[0], y->shape->dims[0]};
    hv xx = onnx_reduce_keep(c, hb_mul(b, x, x), &one, 1, HLO_ADD, false);
    hv yy = onnx_reduce_keep(c, hb_mul(b, y, y), &one, 1, HLO_ADD, false);
    hv r = hb_dot_over(b, x, y, one, one);
    r = hb_add(b, onnx_mul_k(c, r, -2), hb_broadcast(b, xx, dims, 2, (int64_t[]){0}));
    r = hb_add(b, r, hb_broadcast(b, yy, dims, 2, &one));
    if (!hb_ok(b)) return;
    r = hb_max(b, r, onnx_splat_like(c, r, 0)); // rounding may leave less than nothing
    onnx_out_val(c, 0, root ? hb_unary(b, HLO_SQRT, r) : r);
}
