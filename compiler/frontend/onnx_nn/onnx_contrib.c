// SPDX-License-Identifier: Apache-2.0
// Operators of com.microsoft that ONNX Runtime's optimizer and exporters write: fused activations,
// products and convolutions, and older operators of its own and of the standard's first drafts.
// Attention: onnx_contrib_attention.c; quantised ones: onnx_contrib_quant.c; normalisations:
// onnx_norm.c.
#include <math.h>

#include "compiler/frontend/onnx/onnx_tools.h"

// ---- activations

ONNX_X(biasgelu) { // arg: by tanh
    if (onnx_in_has(c, 1))
        x = hb_add(b, x, hb_broadcast_numpy(b, onnx_in_val(c, 1), x->shape->dims, x->shape->rank));
    onnx_out_val(c, 0, onnx_gelu(c, x, onnx_op_arg(c) != 0));
}
ONNX_X(quickgelu) {
    hv s = hb_unary(b, HLO_LOGISTIC, onnx_mul_k(c, x, onnx_at_float(c, "alpha", 1.702f)));
    onnx_out_val(c, 0, hb_mul(b, x, s));
}
// The activation that a fused operator names; its numbers from attributes or from a list.
hv onnx_fused(struct onnx_ctx *c, hv x) {
    struct hb *b = &c->b;
    struct str name = onnx_at_str(c, "activation", "");
    const struct onnx_attr *list = onnx_attr(c->n, "activation_params");
    static const struct {
        const char *name;
        float alpha, beta; // or gamma
    } usual[] = {{"Elu", 1, 0},
                 {"Celu", 1, 0},
                 {"ThresholdedRelu", 1, 0},
                 {"HardSigmoid", 0.2f, 0.5f},
                 {"Selu", 1.67326319217681884765625f, 1.05070102214813232421875f},
                 {"", 0.01f, 0}};

    size_t u = 0;
    while (usual[u].name[0] && !str_is(name, usual[u].name))
        u++;
    bool selu = str_is(name, "Selu");
    double p[2] = {onnx_at_float(c, "activation_alpha", usual[u].alpha),
                   onnx_at_float(c, selu ? "activation_gamma" : "activation_beta", usual[u].beta)};
    for (size_t k = 0; list && k < 2 && k < list->floats.n; k++)
        p[k] = (double)list->floats.v[k];

    if (!name.n || str_is(name, "Identity") || !hb_ok(b)) return x;
    if (str_is(name, "Clip"))
        return hb_clamp(b, onnx_splat_like(c, x, p[0]), x, onnx_splat_like(c, x, p[1]));
    if (str_is(name, "HardSwish")) {
        hv g = onnx_add_k(c, onnx_mul_k(c, x, 1.0 / 6), 0.5);
        return hb_mul(b, x, hb_clamp(b, onnx_splat_like(c, x, 0), g, onnx_splat_like(c, x, 1)));
    }
    if (selu) return onnx_mul_k(c, onnx_activate(c, STR("Elu"), x, p[0], 0), p[1]);
    if (str_is(name, "Celu"))
        return onnx_mul_k(c, onnx_activate(c, STR("Elu"), onnx_mul_k(c, x, 1 / p[0]), 1, 0), p[0]);
    return onnx_activate(c, name, x, p[0], p[1]);
}
ONNX_X(affine) { // y = alpha x + beta, and its kin of the first drafts
    hv y = x;
    struct str op = c->n->op;
    double alpha = onnx_at_float(c, "alpha", 1), beta = onnx_at_float(c, "beta", 0);
    const struct onnx_attr *bias = onnx_attr(c->n, "bias");
    if (str_is(op, "ScaledTanh")) {
        y = onnx_mul_k(c, hb_unary(b, HLO_TANH, onnx_mul_k(c, x, beta)), alpha);
    } else if (str_is(op, "ParametricSoftplus")) {
        y = onnx_mul_k(c, onnx_activate(c, STR("Softplus"), onnx_mul_k(c, x, beta), 0, 0), alpha);
    } else if (str_is(op, "Affine")) {
        y = onnx_add_k(c, onnx_mul_k(c, x, alpha), beta);
    } else { // Scale, ImageScaler
        y = onnx_mul_k(c, x, onnx_at_float(c, "scale", 1));
    }
    if (bias && bias->floats.n) {
        int64_t n = (int64_t)bias->floats.n;
        double *v = arena_array(c->a, double, n);
        if (x->shape->rank != 4 || x->shape->dims[1] != n)
            return onnx_fail(c, "%lld values of bias for %s", (long long)n, onnx_show(c, x));
        for (int64_t k = 0; k < n; k++)
            v[k] = (double)bias->floats.v[k];
        y = hb_add(b, y, onnx_along(c, onnx_lit_f64s(c, x->shape->dtype, v, &n, 1), x->shape, 1));
    }
    onnx_out_val(c, 0, y);
}

// ---- products and convolutions

// One side of FusedMatMul as MatMul takes it.
static hv turned(struct onnx_ctx *c, hv x, bool batch, bool last) {
    int rank = x->shape->rank;
    int64_t perm[HLO_MAX_RANK];
    if (rank < 2) return x;
    for (int d = 0; d < rank; d++)
        perm[d] = d;
    if (batch) { // [rows, batch..., columns]
        for (int d = 0; d < rank - 2; d++)
            perm[d] = d + 1;
        perm[rank - 2] = 0;
    }
    x = hb_transpose(&c->b, x, perm);
    return last ? onnx_swap_axes(c, x, rank - 2, rank - 1) : x;
}
ONNX(fusedmatmul) {
    hv x = turned(c, onnx_in_val(c, 0), onnx_at_int(c, "transBatchA", 0) != 0,
                  onnx_at_int(c, "transA", 0) != 0);
    hv y = turned(c, onnx_in_val(c, 1), onnx_at_int(c, "transBatchB", 0) != 0,
                  onnx_at_int(c, "transB", 0) != 0);
    onnx_out_val(c, 0, onnx_mul_k(c, hb_matmul(b, x, y), onnx_at_float(c, "alpha", 1)));
}
ONNX(matmulinteger16) {
    hv x = hb_convert(b, onnx_in_val(c, 0), DT_S32), y = hb_convert(b, onnx_in_val(c, 1), DT_S32);
    onnx_out_val(c, 0, hb_matmul(b, x, y));
}
ONNX(fusedgemm) {
    onnx_gemm(c);
    if (hb_ok(b)) onnx_out_val(c, 0, onnx_fused(c, onnx_result(c, 0)));
}
ONNX(fusedconv) { // x, w, bias, and a sum before the activation
    onnx_conv(c);
    if (!hb_ok(b)) return;
    hv y = onnx_result(c, 0);
    if (onnx_in_has(c, 3)) y = hb_add(b, y, onnx_in_val(c, 3));
    onnx_out_val(c, 0, onnx_fused(c, y));
}
ONNX(nhwcmaxpool) {
    onnx_channels_first(c, onnx_pool);
}

// Words of characters, s32[words, length] (0: none), by a convolution over the characters' vectors,
// its tanh, and the largest value of each filter over the places that the word fills. A word that
// begins with no character gives 0.
ONNX_X(wordconv) {
    hv w = onnx_in_val(c, 1), table = onnx_in_val(c, 3), low;
    const int64_t *f = w->shape->dims;
    if (x->shape->rank != 2 || w->shape->rank != 4 || table->shape->rank != 2 || f[1] != 1 ||
        f[3] != table->shape->dims[1] || f[2] < 1 || f[2] > x->shape->dims[1] ||
        table->shape->dims[0] < 1)
        return onnx_fail(c, "words %s, filters %s, characters %s", onnx_show(c, x), onnx_show(c, w),
                         onnx_show(c, table));
    int64_t words = x->shape->dims[0], length = x->shape->dims[1], size = f[3],
            places = length - f[2] + 1, axis = 1, four[4] = {words, 1, length, size},
            three[3] = {words, f[0], places};

    hv there = onnx_compare_k(c, x, 0, CMP_GT), first = onnx_row(c, there, 1, 0);
    hv n = onnx_reduce_keep(c, hb_convert(b, there, DT_S64), &axis, 1, HLO_ADD, false);
    hv at = hb_clamp(b, hb_const_i64(b, x->shape->dtype, 0), x,
                     hb_const_i64(b, x->shape->dtype, table->shape->dims[0] - 1));
    struct window_dim win[2] = {{f[2], 1, 0, 0, 1, 1, false}, {size, 1, 0, 0, 1, 1, false}};
    struct hlo_attr_conv a = {.window = {win, 2}, .feature_group_count = 1, .batch_group_count = 1};
    a.dim_labels =
        (struct labels){.n_spatial = 2, .in_feature = 1, .k_in = 1, .k_out = 0, .out_feature = 1};
    for (int d = 0; d < 2; d++)
        a.dim_labels.in_spatial[d] = a.dim_labels.k_spatial[d] = a.dim_labels.out_spatial[d] =
            d + 2;
    hv y = hb_conv(b, hb_reshape(b, onnx_take(c, table, at, 0), four, 4), w, &a);
    y = onnx_add_along(c, hb_reshape(b, y, three, 3), 2, 1);
    y = hb_unary(b, HLO_TANH, y);
    if (!hb_ok(b)) return;

    low = onnx_splat_like(c, y, -1e12);
    hv last = hb_max(b, onnx_add_k(c, n, -(double)f[2]), onnx_splat_like(c, n, 0));
    const struct shape *s = shape_with_dtype(c->a, y->shape, DT_S64);
    hv inside = hb_compare(b, hb_iota(b, s, 2), onnx_along(c, last, s, 0), CMP_LE);
    axis = 2;
    y = onnx_reduce_keep(c, hb_select(b, inside, y, low), &axis, 1, HLO_MAXIMUM, false);
    hv given = hb_broadcast(b, first, three, 2, (int64_t[]){0});
    onnx_out_val(c, 0, hb_select(b, given, y, onnx_splat_like(c, y, 0)));
}

// ---- shapes

ONNX(expanddims) {
    int64_t axis;
    int n;
    hv x = onnx_in_val(c, 0);
    if (!onnx_in_ints(c, 1, &axis, 1, &n) || n != 1) return;
    axis = onnx_axis_of(c, axis, x->shape->rank + 1);
    if (hb_ok(b)) onnx_out_val(c, 0, onnx_add_axis(c, x, axis));
}
ONNX_X(unfoldtensor) { // windows of the axis, in a new last dimension
    hv parts[1024];
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "dim", -1), x->shape->rank),
            size = onnx_at_int(c, "size", 0), step = onnx_at_int(c, "step", 1);
    if (!hb_ok(b)) return;
    int64_t in = x->shape->dims[axis],
            n = step < 1 || size < 1 || size > in ? 0 : (in - size) / step + 1;
    if (n < 1 || size > 1024)
        return onnx_fail(c, "%lld windows of %lld", (long long)n, (long long)size);
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        r[d] = (struct range){0, x->shape->dims[d], 1};
    for (int64_t k = 0; k < size; k++) {
        r[axis] = (struct range){k, k + (n - 1) * step + 1, step};
        hv v = hb_slice(b, x, r);
        parts[k] = onnx_add_axis(c, v, v->shape->rank);
    }
    onnx_out_val(c, 0, hb_concat(b, parts, (int)size, x->shape->rank));
}

// ---- decoding

// Scores [batch, words] without the words that would make the last ngram_size - 1 tokens of
// input_ids [batch, length] an n-gram that stood there before: each place of an n-gram compares
// its head with the tail, and lowers the score of the token behind.
ONNX_X(ngramblock) {
    enum { MOST = 256 };
    hv scores = onnx_in_val(c, 1), same = NULL;
    int64_t n = onnx_at_int(c, "ngram_size", 0);
    if (x->shape->rank != 2 || scores->shape->rank != 2 ||
        x->shape->dims[0] != scores->shape->dims[0] || !dtype_is_float(scores->shape->dtype))
        return onnx_fail(c, "input_ids %s, scores %s", onnx_show(c, x), onnx_show(c, scores));
    if (n < 1 || n > MOST) return onnx_fail(c, "ngram_size %lld", (long long)n);
    int64_t length = x->shape->dims[1], places = length - n + 1, count = places * x->shape->dims[0];
    if (places < 1 || count < 1) return onnx_out_val(c, 0, scores);

    for (int64_t k = 0; k < n - 1 && hb_ok(b); k++) {
        hv head = onnx_part(c, x, 1, k, k + places),
           last = onnx_part(c, x, 1, places + k, places + k + 1);
        head = hb_compare(b, head, hb_broadcast_numpy(b, last, head->shape->dims, 2), CMP_EQ);
        same = same ? onnx_and(c, same, head) : head;
    }

    hv words = hb_convert(b, onnx_part(c, x, 1, n - 1, length), DT_S64), row, low;
    if (!hb_ok(b)) return;
    int64_t flat[2] = {count, 1};
    row = hb_reshape(b, hb_iota(b, words->shape, 0), flat, 2);
    const struct shape *s = shape_with_dtype(c->a, words->shape, scores->shape->dtype);
    low = hb_splat(b, s, -(double)INFINITY);
    if (same) low = hb_select(b, same, low, hb_splat(b, s, (double)INFINITY));
    hv at = hb_concat(b, (hv[]){row, hb_reshape(b, words, flat, 2)}, 2, 1);
    onnx_out_val(c, 0,
                 onnx_put_points(c, scores, at, 2, hb_reshape(b, low, &count, 1), HLO_MINIMUM));
}
