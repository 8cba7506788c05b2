// SPDX-License-Identifier: Apache-2.0
// Normalisations: layer, RMS, instance, group, batch, mean-variance, Lp. Those with a stash_type
// compute in f32 when the data is narrower, as the definition says.
#include "compiler/frontend/onnx_nn/onnx_quant.h"

static enum dtype stash_dtype(struct onnx_ctx *c, hv x) {
    enum dtype t = onnx_attr_dtype(c, "stash_type", DT_F32);
    return dtype_size(x->shape->dtype) < dtype_size(t) ? t : x->shape->dtype;
}
static hv keep_dims(struct onnx_ctx *c, hv x, const struct shape *like) {
    return hb_broadcast_numpy(&c->b, x, like->dims, like->rank);
}
struct normal {
    hv y, mean, inv; // (x - mean) * inv; mean and inv keep their dimensions as 1
};
static struct normal normalise(struct onnx_ctx *c, hv x, const int64_t *axes, int n, double eps) {
    struct hb *b = &c->b;
    struct normal r;
    r.mean = onnx_mean_of(c, x, axes, n, true);
    hv d = hb_sub(b, x, keep_dims(c, r.mean, x->shape));
    hv var = onnx_mean_of(c, hb_mul(b, d, d), axes, n, true);
    r.inv = hb_unary(b, HLO_RSQRT, onnx_add_k(c, var, eps));
    r.y = hb_mul(b, d, keep_dims(c, r.inv, x->shape));
    return r;
}
static int axes_from(struct onnx_ctx *c, hv x, int64_t def, int64_t *axes) {
    int64_t first = onnx_axis_of(c, onnx_at_int(c, "axis", def), x->shape->rank);
    int n = 0;
    for (int64_t d = first; d < x->shape->rank; d++)
        axes[n++] = d;
    return n;
}

ONNX_X(layernorm) {
    int64_t axes[HLO_MAX_RANK];
    enum dtype t = x->shape->dtype, stash = stash_dtype(c, x);
    int n = axes_from(c, x, -1, axes);
    if (!hb_ok(b)) return;
    struct normal r =
        normalise(c, hb_convert(b, x, stash), axes, n, onnx_at_float(c, "epsilon", 1e-5f));
    hv y = hb_mul(b, hb_convert(b, r.y, t), keep_dims(c, onnx_in_val(c, 1), x->shape));
    if (onnx_in_has(c, 2)) y = hb_add(b, y, keep_dims(c, onnx_in_val(c, 2), x->shape));
    onnx_out_val(c, 0, y);
    enum dtype told = t == DT_F64 ? onnx_attr_dtype(c, "stash_type", DT_F32) : stash;
    onnx_out_val(c, 1, hb_convert(b, r.mean, told));
    onnx_out_val(c, 2, hb_convert(b, r.inv, told));
}
ONNX_X(rmsnorm) {
    hv w = hb_convert(b, x, stash_dtype(c, x));
    int64_t axes[HLO_MAX_RANK];
    int n = axes_from(c, x, -1, axes);
    if (!hb_ok(b)) return;
    hv sq = onnx_mean_of(c, hb_mul(b, w, w), axes, n, true);
    hv inv = hb_unary(b, HLO_RSQRT, onnx_add_k(c, sq, onnx_at_float(c, "epsilon", 1e-5f)));
    hv y = hb_convert(b, hb_mul(b, w, keep_dims(c, inv, x->shape)), x->shape->dtype);
    hv scale = hb_convert(b, onnx_in_val(c, 1), x->shape->dtype);
    onnx_out_val(c, 0, hb_mul(b, y, keep_dims(c, scale, x->shape)));
    onnx_out_val(c, 1, inv);
}
// The same of com.microsoft over a sum, which is a result, too: x + skip + bias, then layer (1) or
// RMS (0) normalisation along the last dimension.
ONNX_X(skipnorm) {
    hv skip = keep_dims(c, onnx_in_val(c, 1), x->shape);
    const struct shape *s = x->shape;
    int64_t last = s->rank - 1;
    bool layer = onnx_op_arg(c) != 0;
    size_t bias = layer ? 4 : 3;
    double eps = onnx_at_float(c, "epsilon", 1e-12f);
    if (last < 0 || !hb_ok(b)) return onnx_fail(c, "a scalar has no rows");
    x = hb_add(b, x, skip);
    if (onnx_in_has(c, bias)) x = hb_add(b, x, keep_dims(c, onnx_in_val(c, bias), s));
    hv wide = hb_convert(b, x, dtype_size(s->dtype) < 4 ? DT_F32 : s->dtype), y;
    struct normal r = {.mean = NULL};
    if (layer) {
        r = normalise(c, wide, &last, 1, eps);
    } else {
        r.inv = onnx_add_k(c, onnx_mean_of(c, hb_mul(b, wide, wide), &last, 1, true), eps);
        r.inv = hb_unary(b, HLO_RSQRT, r.inv);
        r.y = hb_mul(b, wide, keep_dims(c, r.inv, s));
    }
    y = hb_mul(b, hb_convert(b, r.y, s->dtype), keep_dims(c, onnx_in_val(c, 2), s));
    if (layer && onnx_in_has(c, 3)) y = hb_add(b, y, keep_dims(c, onnx_in_val(c, 3), s));
    onnx_out_val(c, 0, y);
    if (r.mean) onnx_out_val(c, 1, r.mean);
    onnx_out_val(c, 2, r.inv);
    onnx_out_val(c, 3, x);
}
// Rows of input k, a table of QEmbedLayerNormalization (arg 1): scales and zero points of all five
// tables stand behind the inputs of the other operator.
static hv real_rows(struct onnx_ctx *c, size_t k, hv rows) {
    enum { SCALES = 6, ZEROS = 11 };
    if (!onnx_op_arg(c)) return rows;
    hv scale = onnx_in_opt(c, k + SCALES);
    if (!scale) return onnx_fail(c, "the scale of input %zu is missing", k), rows;
    rows =
        hb_convert(&c->b, onnx_centred(c, rows, onnx_in_opt(c, k + ZEROS), 0), scale->shape->dtype);
    return hb_mul(&c->b, rows, onnx_spread_param(c, scale, rows->shape, 0));
}
// Words, positions and segments looked up, summed and normalised; the mask's length besides.
ONNX(embedlayernorm) {
    hv ids = onnx_in_val(c, 0), words = onnx_in_val(c, 2), places = onnx_in_val(c, 3), sum, at;
    const struct shape *s = ids->shape;
    int64_t last = 2, one = 1;

    if (s->rank != 2 || words->shape->rank != 2 || places->shape->rank != 2)
        return onnx_fail(c, "input_ids %s", shape_text(c->a, s));

    sum = real_rows(c, 2, onnx_take(c, words, ids, 0));
    if (!onnx_op_arg(c) && onnx_in_has(c, 8)) {
        at = hb_broadcast_numpy(b, onnx_in_val(c, 8), s->dims, 2);
        at = onnx_take(c, places, at, 0);
    } else {
        if (places->shape->dims[0] < s->dims[1])
            return onnx_fail(c, "%lld positions for %s", (long long)places->shape->dims[0],
                             shape_text(c->a, s));
        at = onnx_part(c, places, 0, 0, s->dims[1]);
    }
    if (!hb_ok(b)) return;
    at = real_rows(c, 3, at);
    sum = hb_add(b, sum, hb_broadcast_numpy(b, at, sum->shape->dims, 3));

    if (onnx_in_has(c, 4)) { // without ids all are of the first segment
        hv of = onnx_in_has(c, 1) ? onnx_in_val(c, 1) : onnx_splat_like(c, ids, 0);
        sum = hb_add(b, sum, real_rows(c, 4, onnx_take(c, onnx_in_val(c, 4), of, 0)));
    }
    if (!hb_ok(b)) return;

    enum dtype t = sum->shape->dtype;
    struct normal r = normalise(c, hb_convert(b, sum, dtype_size(t) < 4 ? DT_F32 : t), &last, 1,
                                onnx_at_float(c, "epsilon", 1e-12f));
    hv y = hb_mul(b, hb_convert(b, r.y, t),
                  keep_dims(c, real_rows(c, 5, onnx_in_val(c, 5)), sum->shape));
    onnx_out_val(c, 0, hb_add(b, y, keep_dims(c, real_rows(c, 6, onnx_in_val(c, 6)), sum->shape)));

    hv mask = hb_splat(b, shape_make(c->a, DT_S32, s->dims, 1), 0);
    if (onnx_in_has(c, 7)) {
        mask = hb_compare(b, onnx_in_val(c, 7), onnx_splat_like(c, onnx_in_val(c, 7), 1), CMP_EQ);
        mask = onnx_reduce_keep(c, hb_convert(b, mask, DT_S32), &one, 1, HLO_ADD, false);
    }
    onnx_out_val(c, 1, mask);
    onnx_out_val(c, 2, sum);
}

// Per sample and channel, over the spatial dimensions.
ONNX_X(instancenorm) {
    int64_t axes[HLO_MAX_RANK];
    int n = 0;
    if (x->shape->rank < 3) return onnx_fail(c, "input %s", onnx_show(c, x));
    for (int d = 2; d < x->shape->rank; d++)
        axes[n++] = d;
    struct normal r = normalise(c, x, axes, n, onnx_at_float(c, "epsilon", 1e-5f));
    hv y = hb_mul(b, r.y, onnx_along(c, onnx_in_val(c, 1), x->shape, 1));
    onnx_out_val(c, 0, hb_add(b, y, onnx_along(c, onnx_in_val(c, 2), x->shape, 1)));
}
// Before opset 21 scale and bias are per group, then per channel.
ONNX_X(groupnorm) {
    hv p[2] = {onnx_in_val(c, 1), onnx_in_val(c, 2)};
    const struct shape *s = x->shape;
    int64_t groups = onnx_at_int(c, "num_groups", 0), last = 2;
    if (s->rank < 2 || groups < 1 || s->dims[1] % groups || s->dims[0] * groups == 0)
        return onnx_fail(c, "%lld groups on %s", (long long)groups, shape_text(c->a, s));
    int64_t each = s->dims[1] / groups;
    int64_t split[3] = {s->dims[0], groups, shape_elements(s) / (s->dims[0] * groups)};
    hv w = hb_reshape(b, hb_convert(b, x, stash_dtype(c, x)), split, 3);
    hv y = normalise(c, w, &last, 1, onnx_at_float(c, "epsilon", 1e-5f)).y;
    y = hb_convert(b, hb_reshape(b, y, s->dims, s->rank), s->dtype);
    for (int k = 0; k < 2; k++) {
        if (p[k]->shape->rank != 1) return onnx_fail(c, "scale or bias is not a vector");
        if (p[k]->shape->dims[0] == groups && each > 1) {
            hv wide = hb_broadcast(b, p[k], (int64_t[]){groups, each}, 2, (int64_t[]){0});
            p[k] = hb_reshape(b, wide, &s->dims[1], 1);
        }
        y = hb_binary(b, k ? HLO_ADD : HLO_MULTIPLY, y, onnx_along(c, p[k], s, 1));
    }
    onnx_out_val(c, 0, y);
}
ONNX_X(mvn) {
    int64_t axes[HLO_MAX_RANK] = {0, 2, 3};
    int n;
    if (!onnx_at_ints(c, "axes", axes, HLO_MAX_RANK, &n)) n = 3;
    for (int k = 0; k < n; k++)
        axes[k] = onnx_axis_of(c, axes[k], x->shape->rank);
    if (!hb_ok(b)) return;
    hv d = hb_sub(b, x, keep_dims(c, onnx_mean_of(c, x, axes, n, true), x->shape));
    hv dev = hb_unary(b, HLO_SQRT, onnx_mean_of(c, hb_mul(b, d, d), axes, n, true));
    onnx_out_val(c, 0, hb_div(b, d, keep_dims(c, onnx_add_k(c, dev, 1e-9), x->shape)));
}
ONNX_X(lpnorm) { // where the norm is 0 the result is 0
    hv a = hb_unary(b, HLO_ABS, x);
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", -1), x->shape->rank),
            p = onnx_at_int(c, "p", 2);
    if (!hb_ok(b)) return;
    if (p != 1 && p != 2) return onnx_fail(c, "p is %lld, expected 1 or 2", (long long)p);
    hv norm = onnx_reduce_keep(c, p == 2 ? hb_mul(b, x, x) : a, &axis, 1, HLO_ADD, true);
    if (p == 2) norm = hb_unary(b, HLO_SQRT, norm);
    norm = hb_select(b, onnx_compare_k(c, norm, 0, CMP_EQ), onnx_splat_like(c, norm, 1), norm);
    onnx_out_val(c, 0, hb_div(b, x, keep_dims(c, norm, x->shape)));
}

// Training mode: the batch's own statistics, and the running ones moved towards them; results from
// number `first` on.
static void batchnorm_training(struct onnx_ctx *c, size_t first) {
    struct hb *b = &c->b;
    hv x = onnx_in_val(c, 0);
    int64_t axes[HLO_MAX_RANK];
    int n = 0;
    double m = onnx_at_float(c, "momentum", 0.9f);
    for (int d = 0; d < x->shape->rank; d++)
        if (d != 1) axes[n++] = d;
    hv mean = onnx_mean_of(c, x, axes, n, false);
    hv d = hb_sub(b, x, onnx_along(c, mean, x->shape, 1));
    hv var = onnx_mean_of(c, hb_mul(b, d, d), axes, n, false);
    hv inv = hb_unary(b, HLO_RSQRT, onnx_add_k(c, var, onnx_at_float(c, "epsilon", 1e-5f)));
    hv scale = hb_mul(b, hb_convert(b, onnx_in_val(c, 1), x->shape->dtype), inv);
    hv y = hb_mul(b, d, onnx_along(c, scale, x->shape, 1));
    hv bias = hb_convert(b, onnx_in_val(c, 2), x->shape->dtype);
    if (!first) onnx_out_val(c, 0, hb_add(b, y, onnx_along(c, bias, x->shape, 1)));
    for (size_t k = 3; k < c->n->out.n && k <= 4; k++) // before opset 14: the batch's own
        onnx_out_val(c, k, k == 3 ? mean : var);
    for (size_t k = 1; k <= 2; k++) {
        hv old = onnx_in_val(c, k + 2), now = hb_convert(b, k == 1 ? mean : var, old->shape->dtype);
        onnx_out_val(c, k, hb_add(b, onnx_mul_k(c, old, m), onnx_mul_k(c, now, 1 - m)));
    }
}

// A weight that a training may keep: here the running statistics.
static bool is_weight(hv x) {
    return x->op == HLO_PARAMETER && x->param_kind == PARAM_WEIGHT;
}
// For a training: one operation, so that the statistics can be told from other weights. One that is
// in training mode already says so with its momentum, see compiler/train/program.c.
static hv batchnorm_kept(struct onnx_ctx *c, int64_t channel, bool by_batch) {
    hv x = onnx_in_val(c, 0), in[5] = {x};
    struct hlo_attr_batchnorm how = {.epsilon = (float)onnx_at_float(c, "epsilon", 1e-5f),
                                     .feature_index = channel};
    for (int k = 1; k < 5; k++)
        in[k] = hb_convert(&c->b, onnx_in_val(c, (size_t)k), x->shape->dtype);
    hv y = hb_op(&c->b, HLO_BATCH_NORM_INFERENCE, NULL, in, 5, &how);
    double keep = onnx_at_float(c, "momentum", 0.9f);
    if (by_batch && hb_ok(&c->b))
        hlo_set_extra(y, "frontend_attributes", arena_printf(c->a, "{hlod_batch=\"%.9g\"}", keep));
    return y;
}

// scale * (x - mean) / sqrt(var + eps) + bias, written as x*s + t with s and t from the parameters
// alone, so that they can be prepared once.
ONNX_X(batchnorm) {
    hv scale = onnx_in_val(c, 1), bias = onnx_in_val(c, 2), mean = onnx_in_val(c, 3),
       var = onnx_in_val(c, 4);
    enum dtype t = x->shape->dtype;
    int64_t channel = 1;
    if (c->opset < 9 && !onnx_at_int(c, "spatial", 1))
        return onnx_fail(c, "statistics for each place (spatial 0) are not supported");
    bool by_batch = c->opset >= 14 ? onnx_at_int(c, "training_mode", 0)
                                   : c->n->out.n > 1; // by the outputs once
    if (by_batch) {
        if (x->shape->rank < 2) return onnx_fail(c, "input %s", onnx_show(c, x));
        bool keeps = c->purpose != LOWER_INFERENCE && is_weight(mean) && is_weight(var);
        batchnorm_training(c, keeps);
        if (!keeps) return;
    }
    if (x->shape->rank < 2) channel = 0;
    if (c->purpose == LOWER_TRAINING)
        return onnx_out_val(c, 0, batchnorm_kept(c, channel, by_batch));
    hv inv = hb_unary(b, HLO_RSQRT, onnx_add_k(c, var, onnx_at_float(c, "epsilon", 1e-5f)));
    hv s = hb_mul(b, hb_convert(b, scale, inv->shape->dtype), inv);
    hv off = hb_sub(b, hb_convert(b, bias, s->shape->dtype), hb_mul(b, mean, s));
    hv y = hb_mul(b, x, onnx_along(c, hb_convert(b, s, t), x->shape, channel));
    onnx_out_val(c, 0, hb_add(b, y, onnx_along(c, hb_convert(b, off, t), x->shape, channel)));
}
