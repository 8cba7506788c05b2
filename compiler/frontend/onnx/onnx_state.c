// SPDX-License-Identifier: Apache-2.0
// Operators that are handed a state and give it back moved on: caches of keys and values
// (TensorScatter), causal convolutions, linear attention. The state is an input and a result like
// any other; nothing stays between runs.
#include <math.h>

#include "compiler/frontend/onnx/onnx_tools.h"

// ---- TensorScatter

// Rows [at[b], at[b] + n) of the axis of each sample b.
static hv write_rows(struct onnx_ctx *c, hv cache, hv update, hv at, int64_t axis) {
    struct hb *b = &c->b;
    hv zero = hb_const_i64(b, DT_S64, 0), start[HLO_MAX_RANK + 2];
    for (int64_t k = 0; k < cache->shape->dims[0] && hb_ok(b); k++) {
        start[0] = cache, start[1] = onnx_part(c, update, 0, k, k + 1);
        for (int d = 0; d < cache->shape->rank; d++)
            start[d + 2] = d == 0      ? hb_const_i64(b, DT_S64, k)
                           : d == axis ? onnx_row(c, at, 0, k)
                                       : zero;
        cache = hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, NULL, start, cache->shape->rank + 2, NULL);
    }
    return cache;
}
// The same by an index for each row, round the end of the axis if asked.
static hv scatter_rows(struct onnx_ctx *c, hv cache, hv update, hv at, int64_t axis, bool wrap) {
    struct hb *b = &c->b;
    int64_t dims[2] = {update->shape->dims[0], update->shape->dims[axis]};
    const struct shape *s = shape_make(c->a, DT_S64, dims, 2);
    hv idx = hb_add(b, hb_broadcast(b, at, dims, 2, (int64_t[]){0}), hb_iota(b, s, 1));
    if (wrap)
        idx = hb_binary(b, HLO_REMAINDER, idx,
                        onnx_splat_like(c, idx, (double)cache->shape->dims[axis]));
    idx = onnx_stack_last(c, (hv[]){hb_iota(b, s, 0), idx}, 2);
    hv moved = onnx_put_points(c, onnx_swap_axes(c, cache, 1, axis), idx, 2,
                               onnx_swap_axes(c, update, 1, axis), HLO_COPY);
    return onnx_swap_axes(c, moved, 1, axis);
}
ONNX(tensorscatter) {
    enum { WRITTEN = 16 };
    hv cache = onnx_in_val(c, 0), update = onnx_in_val(c, 1);
    int rank = cache->shape->rank;
    struct str mode = onnx_at_str(c, "mode", "linear");
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", -2), rank);
    bool wrap = str_is(mode, "circular");
    if (!hb_ok(b)) return;
    if (!wrap && !str_is(mode, "linear")) return onnx_fail(c, "mode '" STR_FMT "'", STR_ARG(mode));
    if (axis == 0 || update->shape->rank != rank)
        return onnx_fail(c, "cache %s, update %s, axis %lld", onnx_show(c, cache),
                         onnx_show(c, update), (long long)axis);
    for (int d = 0; d < rank; d++)
        if (d == axis ? update->shape->dims[d] > cache->shape->dims[d]
                      : update->shape->dims[d] != cache->shape->dims[d])
            return onnx_fail(c, "cache %s, update %s", onnx_show(c, cache), onnx_show(c, update));
    int64_t batch = cache->shape->dims[0];

    if (shape_elements(update->shape) == 0) return onnx_out_val(c, 0, cache);
    hv at = onnx_in_has(c, 2) ? hb_convert(b, onnx_in_val(c, 2), DT_S64)
                              : hb_splat(b, shape_make(c->a, DT_S64, &batch, 1), 0);
    if (at->shape->rank != 1 || at->shape->dims[0] != batch)
        return onnx_fail(c, "write_indices %s", onnx_show(c, at));
    onnx_out_val(c, 0,
                 wrap || batch > WRITTEN ? scatter_rows(c, cache, update, at, axis, wrap)
                                         : write_rows(c, cache, update, at, axis));
}

// ---- CausalConvWithState: x [batch, channels, length], w [channels, 1, k]

ONNX_X(causalconv) {
    hv w = onnx_in_val(c, 1), y;
    const struct shape *s = x->shape, *k = w->shape;
    struct str act = onnx_at_str(c, "activation", "none");
    bool silu = str_is(act, "silu") || str_is(act, "swish");
    if (!silu && !str_is(act, "none"))

        return onnx_fail(c, "activation '" STR_FMT "'", STR_ARG(act));
    if (onnx_at_int(c, "state_window", 0) ||
        onnx_at_int(c, "channels_last", 0) || // com.microsoft's
        onnx_at_int(c, "ndim", 1) != 1 || onnx_at_int(c, "dilation", 1) != 1)
        return onnx_fail(c, "state_window, channels_last, ndim and dilation are not supported");
    if (s->rank != 3 || k->rank != 3 || k->dims[0] != s->dims[1] || k->dims[1] != 1 ||
        k->dims[2] < 1)
        return onnx_fail(c, "input %s with weights %s", shape_text(c->a, s), shape_text(c->a, k));

    int64_t keep = k->dims[2] - 1;
    if (!onnx_in_has(c, 3))
        x = onnx_pad_axis(c, x, 2, keep, 0, 0);
    else if (keep)
        x = hb_concat(b, (hv[]){onnx_in_val(c, 3), x}, 2, 2);

    struct window_dim win = {keep + 1, 1, 0, 0, 1, 1, false};
    struct hlo_attr_conv a = {
        .window = {&win, 1}, .feature_group_count = s->dims[1], .batch_group_count = 1};
    a.dim_labels = (struct labels){.n_spatial = 1, .in_feature = 1, .k_in = 1, .out_feature = 1};
    a.dim_labels.in_spatial[0] = a.dim_labels.k_spatial[0] = a.dim_labels.out_spatial[0] = 2;
    y = hb_conv(b, x, w, &a);

    y = onnx_add_along(c, y, 2, 1);
    if (!hb_ok(b)) return;
    if (!shape_same_dims(y->shape, s))
        return onnx_fail(c, "past_state does not hold %lld", (long long)keep);

    if (silu) y = hb_mul(b, y, hb_unary(b, HLO_LOGISTIC, y));
    onnx_out_val(c, 0, y);
    onnx_out_val(c, 1, onnx_part(c, x, 2, s->dims[2], s->dims[2] + keep));
}

// ---- LinearAttention: a state [batch, heads, dk, dv] that every token decays, corrects and adds
// to

enum { UNROLLED_TOKENS = 8 };
enum { LA_STATE, LA_OUT, LA_QUERY, LA_KEY, LA_VALUE, LA_DECAY, LA_BETA, LA_VALUES };
struct linear {
    int64_t batch, heads, group, tokens, dk, dv; // heads of keys; queries of one head
    bool decays, corrects;
    double scale;
    enum dtype work;
};

// [batch, tokens, heads * size] -> [tokens, batch, heads, size]
static hv by_token(struct onnx_ctx *c, const struct linear *l, size_t k, int64_t heads) {
    hv x = hb_convert(&c->b, onnx_in_val(c, k), l->work);
    const int64_t *d = x->shape->dims;
    if (x->shape->rank != 3 || d[0] != l->batch || d[1] != l->tokens || d[2] % heads)
        return onnx_fail(c, "input %zu is %s", k, onnx_show(c, x)), x;
    x = hb_reshape(&c->b, x, (int64_t[]){d[0], d[1], heads, d[2] / heads}, 4);
    return onnx_swap_axes(c, x, 0, 1);
}
// The state over its last dimension: x [batch, heads, dk or 1] next to dv.
static hv over_state(struct onnx_ctx *c, hv x, const struct shape *state) {
    return hb_broadcast_numpy(&c->b, onnx_add_axis(c, x, 3), state->dims, 4);
}
// One token: moves the state; gives [batch, heads, group, dv].
static hv token(struct onnx_ctx *c, const struct linear *l, hv *state, hv const *now) {
    struct hb *b = &c->b;
    const struct shape *s = (*state)->shape;
    hv v = now[LA_VALUE], key = now[LA_KEY];
    if (l->decays)
        *state = hb_mul(b, *state, over_state(c, hb_unary(b, HLO_EXP, now[LA_DECAY]), s));
    if (l->corrects) {
        hv held = onnx_batch_dot(c, onnx_add_axis(c, key, 2), *state, false);
        v = hb_sub(b, v, hb_reshape(b, held, v->shape->dims, 3));
        v = hb_mul(b, v, hb_broadcast_numpy(b, now[LA_BETA], v->shape->dims, 3));
    }
    hv wide = hb_broadcast_numpy(b, onnx_add_axis(c, v, 2), s->dims, 4);
    *state = hb_add(b, *state, hb_mul(b, over_state(c, key, s), wide));
    hv q = hb_reshape(b, now[LA_QUERY], (int64_t[]){l->batch, l->heads, l->group, l->dk}, 4);
    return onnx_mul_k(c, onnx_batch_dot(c, q, *state, false), l->scale);
}
static void token_of(struct onnx_ctx *c, hv i, hv *v, void *user) {
    const struct linear *l = user;
    struct hb *b = &c->b;
    hv now[LA_VALUES] = {NULL}, zero = hb_const_i64(b, DT_S64, 0);
    for (int k = LA_QUERY; k < LA_VALUES; k++) {
        if (!v[k]) continue;
        const int64_t *d = v[k]->shape->dims;
        int64_t size[4] = {1, d[1], d[2], d[3]};
        hv x = hb_op(b, HLO_DYNAMIC_SLICE, NULL, (hv[]){v[k], i, zero, zero, zero}, 5,
                     &(struct hlo_attr_dynslice){.dynamic_slice_sizes = {size, 4}});
        now[k] = hb_reshape(b, x, size + 1, 3);
    }
    hv y = onnx_add_axis(c, token(c, l, &v[LA_STATE], now), 0);
    v[LA_OUT] = hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, NULL,
                      (hv[]){v[LA_OUT], y, i, zero, zero, zero, zero}, 7, NULL);
}
// Out [tokens, batch, heads, group, dv]; moves v[LA_STATE].
static hv all_tokens(struct onnx_ctx *c, struct linear *l, hv *v) {
    int64_t dims[5] = {l->tokens, l->batch, l->heads, l->group, l->dv};
    hv ys[UNROLLED_TOKENS];
    if (l->tokens > UNROLLED_TOKENS) {
        v[LA_OUT] = hb_splat(&c->b, shape_make(c->a, l->work, dims, 5), 0);
        onnx_loop_times(c, l->tokens, v, LA_VALUES, token_of, l);
        return v[LA_OUT];
    }
    for (int64_t t = 0; t < l->tokens; t++) {
        hv now[LA_VALUES] = {NULL};
        for (int k = LA_QUERY; k < LA_VALUES; k++)
            if (v[k]) now[k] = onnx_row(c, v[k], 0, t);
        ys[t] = onnx_add_axis(c, token(c, l, &v[LA_STATE], now), 0);
    }
    if (!l->tokens) return hb_splat(&c->b, shape_make(c->a, l->work, dims, 5), 0);
    return hb_concat(&c->b, ys, (int)l->tokens, 0);
}
static bool read_linear(struct onnx_ctx *c, struct linear *l) {
    const struct shape *q = onnx_in_val(c, 0)->shape, *v = onnx_in_val(c, 2)->shape;
    int64_t heads = onnx_at_int(c, "q_num_heads", 0);
    struct str rule = onnx_at_str(c, "update_rule", "gated_delta");
    l->heads = onnx_at_int(c, "kv_num_heads", 0);
    if (onnx_at_int(c, "state_window", 0))
        return onnx_fail(c, "state_window is not supported"), false;
    l->decays = str_is(rule, "gated") || str_is(rule, "gated_delta");
    l->corrects = str_is(rule, "delta") || str_is(rule, "gated_delta");
    if (!l->decays && !l->corrects && !str_is(rule, "linear"))
        return onnx_fail(c, "update_rule '" STR_FMT "'", STR_ARG(rule)), false;
    if (l->decays != onnx_in_has(c, 4) || l->corrects != onnx_in_has(c, 5))
        return onnx_fail(c, "update_rule '" STR_FMT "' with%s decay, with%s beta", STR_ARG(rule),
                         onnx_in_has(c, 4) ? "" : "out", onnx_in_has(c, 5) ? "" : "out"),
               false;
    if (heads < 1 || l->heads < 1 || heads % l->heads || q->rank != 3 || v->rank != 3 ||
        q->dims[2] % heads || v->dims[2] % l->heads)
        return onnx_fail(c, "query %s of %lld heads, value %s of %lld", shape_text(c->a, q),
                         (long long)heads, shape_text(c->a, v), (long long)l->heads),
               false;
    l->group = heads / l->heads, l->batch = q->dims[0], l->tokens = q->dims[1];
    l->dk = q->dims[2] / heads, l->dv = v->dims[2] / l->heads;
    l->work = q->dtype == DT_F64 ? DT_F64 : DT_F32;
    l->scale = onnx_at_float(c, "scale", 0);
    if (l->scale == 0) l->scale = 1 / sqrt((double)l->dk);
    return true;
}
ONNX(linearattention) {
    struct linear l;
    hv v[LA_VALUES] = {NULL};
    if (!read_linear(c, &l)) return;
    enum dtype t = onnx_in_val(c, 0)->shape->dtype,
               kept = onnx_in_has(c, 3) ? onnx_in_val(c, 3)->shape->dtype : t;
    const int64_t dims[4] = {l.batch, l.heads, l.dk, l.dv};
    const struct shape *s = shape_make(c->a, l.work, dims, 4);
    v[LA_STATE] = onnx_in_has(c, 3) ? hb_convert(b, onnx_in_val(c, 3), l.work) : hb_splat(b, s, 0);
    v[LA_QUERY] = by_token(c, &l, 0, l.heads * l.group);
    v[LA_KEY] = by_token(c, &l, 1, l.heads);
    v[LA_VALUE] = by_token(c, &l, 2, l.heads);
    if (l.decays) v[LA_DECAY] = by_token(c, &l, 4, l.heads);
    if (l.corrects)
        v[LA_BETA] = by_token(c, &l, 5, onnx_in_val(c, 5)->shape->dims[2] == 1 ? 1 : l.heads);
    if (!hb_ok(b)) return;
    if (!shape_same_dims(v[LA_STATE]->shape, s) || v[LA_KEY]->shape->dims[3] != l.dk ||
        (l.corrects && v[LA_BETA]->shape->dims[3] != 1) ||
        (l.decays && v[LA_DECAY]->shape->dims[3] != l.dk && v[LA_DECAY]->shape->dims[3] != 1))
        return onnx_fail(c, "state, key, decay or beta do not fit the query and the value");
    hv y = all_tokens(c, &l, v); // [tokens, batch, heads, group, dv]
    if (!hb_ok(b)) return;
    y = hb_reshape(b, y, (int64_t[]){l.tokens, l.batch, l.heads * l.group * l.dv}, 3);
    onnx_out_val(c, 0, hb_convert(b, onnx_swap_axes(c, y, 0, 1), t));
    onnx_out_val(c, 1, hb_convert(b, v[LA_STATE], kept));
}
