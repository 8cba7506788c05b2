// SPDX-License-Identifier: Apache-2.0
// Attention as com.microsoft has it: Attention and QAttention (with the projection),
// MultiHeadAttention, DecoderMaskedMultiHeadAttention, GroupQueryAttention. A mask adds
// mask_filter_value to what it hides, as ONNX Runtime does; what causality hides is gone. Where
// past and present share a buffer, how much of it counts is a value of the run, or, of
// GroupQueryAttention, bound by value.
#include <math.h>

#include "compiler/frontend/onnx_nn/onnx_attention.h"
#include "compiler/frontend/onnx_nn/onnx_quant.h"

struct attend {
    hv q, k, v; // [batch, heads, sequence, size]; k and v may have fewer heads
    hv add,
        seen; // NULL, or what broadcasts to the scores [batch, heads, s, t]: added; hidden if false
    hv sink;  // NULL, or [heads]
    double scale, cap;
    hv scores, probs, y; // results; y [batch, heads, s, size of v]
};

static hv over_scores(struct onnx_ctx *c, hv x, const struct shape *s) {
    if (x->shape->rank != 4) return onnx_fail(c, "bias or mask %s", onnx_show(c, x)), x;
    return hb_broadcast_numpy(&c->b, x, s->dims, 4);
}
static bool attend(struct onnx_ctx *c, struct attend *a) {
    struct hb *b = &c->b;
    if (!hb_ok(b)) return false;
    if (a->q->shape->rank != 4 || a->k->shape->rank != 4 || a->v->shape->rank != 4)
        return onnx_fail(c, "query, key and value must have 4 dimensions here"), false;
    const int64_t *q = a->q->shape->dims, *k = a->k->shape->dims, *v = a->v->shape->dims;
    if (k[1] < 1 || q[1] % k[1] || v[1] != k[1] || v[2] != k[2] || q[3] != k[3] || q[0] != k[0])
        return onnx_fail(c, "query %s, key %s, value %s", onnx_show(c, a->q), onnx_show(c, a->k),
                         onnx_show(c, a->v)),
               false;
    enum dtype t = a->q->shape->dtype, work = dtype_size(t) < 4 ? DT_F32 : t;
    int64_t rows = q[1] / k[1] * q[2], all[4] = {q[0], q[1], q[2], k[2]};
    if (a->scale == 0) a->scale = 1 / sqrt((double)q[3]);
    hv x = hb_reshape(b, onnx_mul_k(c, a->q, a->scale), (int64_t[]){q[0], k[1], rows, q[3]}, 4);
    x = hb_convert(b, hb_reshape(b, onnx_batch_dot(c, x, a->k, true), all, 4), work);
    if (a->cap > 0) x = onnx_mul_k(c, hb_unary(b, HLO_TANH, onnx_mul_k(c, x, 1 / a->cap)), a->cap);
    if (a->add) x = hb_add(b, x, hb_convert(b, over_scores(c, a->add, x->shape), work));
    if (a->seen)
        x = hb_select(b, over_scores(c, a->seen, x->shape), x,
                      onnx_splat_like(c, x, -(double)INFINITY));
    if (!hb_ok(b)) return false;
    a->scores = x;
    hv sink =
        a->sink ? hb_broadcast(b, hb_convert(b, a->sink, work), all, 3, (int64_t[]){1}) : NULL;
    a->probs = x = onnx_masked_softmax(c, x, sink);
    x = hb_reshape(b, hb_convert(b, x, t), (int64_t[]){q[0], k[1], rows, k[2]}, 4);
    x = onnx_batch_dot(c, x, a->v, false);
    a->y = hb_reshape(b, x, (int64_t[]){q[0], q[1], q[2], v[3]}, 4);
    return hb_ok(b);
}
// [batch, heads, sequence, size] -> [batch, sequence, heads * size]
static hv join_heads(struct onnx_ctx *c, hv x) {
    const int64_t *d = x->shape->dims;
    int64_t flat[3] = {d[0], d[2], d[1] * d[3]};
    return hb_reshape(&c->b, onnx_swap_axes(c, x, 1, 2), flat, 3);
}

// ---- masks

// The mask of input k for t keys: how much each hides, [batch, 1, 1 or s, t].
static hv padding_mask(struct onnx_ctx *c, size_t k, int64_t batch, int64_t t) {
    struct hb *b = &c->b;
    hv m = onnx_in_val(c, k), seen;
    const struct shape *s = m->shape;
    int64_t n = s->rank ? s->dims[0] : 0, dims[4] = {batch, 1, 1, t};
    const struct shape *wide = shape_make(c->a, s->dtype, dims, 4);
    if (s->rank == 1 && (n == batch || n == 2 * batch)) { // ends, and behind them starts
        hv at = hb_iota(b, wide, 3);
        seen = hb_compare(b, at, onnx_along(c, onnx_part(c, m, 0, 0, batch), wide, 0), CMP_LT);
        if (n == 2 * batch)
            seen = onnx_and(
                c, seen,
                hb_compare(b, at, onnx_along(c, onnx_part(c, m, 0, batch, n), wide, 0), CMP_GE));
    } else if ((s->rank == 2 || s->rank == 3) && n == batch && s->dims[s->rank - 1] == t) {
        if (s->rank == 3) dims[2] = s->dims[1];
        seen = hb_reshape(b, m, dims, 4);
        seen = onnx_compare_k(c, seen, 0, CMP_GT);
    } else {
        return onnx_fail(c, "mask %s for a batch of %lld and %lld keys is not supported",
                         shape_text(c->a, s), (long long)batch, (long long)t),
               m;
    }
    const struct shape *f = shape_with_dtype(c->a, seen->shape, DT_F32);
    double hidden = onnx_at_float(c, "mask_filter_value", -10000.0f);
    return hb_select(b, seen, hb_splat(b, f, 0), hb_splat(b, f, hidden));
}
// Keys up to each query's own position, the first query standing behind `past` keys: [1, 1, s, t].
// The last query sees all keys, as ONNX Runtime has it, where there are more keys than queries.
static hv causal_mask(struct onnx_ctx *c, int64_t s, int64_t t, int64_t past) {
    const struct shape *wide = shape_make(c->a, DT_S64, (int64_t[]){1, 1, s, t}, 4);
    hv q = onnx_add_k(c, hb_iota(&c->b, wide, 2), (double)past);
    hv seen = hb_compare(&c->b, hb_iota(&c->b, wide, 3), q, CMP_LE);
    if (past + s >= t) return seen;
    return hb_binary(&c->b, HLO_OR, seen,
                     onnx_compare_k(c, hb_iota(&c->b, wide, 2), (double)(s - 1), CMP_EQ));
}
// past: how many of the keys came from a state. Other keys than the queries' own (from an encoder)
// are counted from the first one on.
static void add_masks(struct onnx_ctx *c, struct attend *a, size_t mask, size_t bias,
                      int64_t past) {
    int64_t t = a->k->shape->dims[2], s = a->q->shape->dims[2];
    if (onnx_in_has(c, mask)) a->add = padding_mask(c, mask, a->q->shape->dims[0], t);
    if (onnx_in_has(c, bias) && hb_ok(&c->b)) {
        hv more = hb_convert(&c->b, onnx_in_val(c, bias), DT_F32);
        if (a->add) hb_numpy_pair(&c->b, &a->add, &more);
        a->add = a->add ? hb_add(&c->b, a->add, more) : more;
    }
    if (onnx_at_int(c, "unidirectional", 0)) a->seen = causal_mask(c, s, t, past);
}
// One buffer for past and present, input `past`, [batch, heads, longest, size]: the rows of x stand
// from `at` on, over what is there.
static hv shared_past(struct onnx_ctx *c, hv x, size_t past, hv at) {
    hv old = onnx_in_val(c, past), zero = hb_const_i64(&c->b, DT_S64, 0);
    const int64_t *o = old->shape->dims, *d = x->shape->dims;
    if (!hb_ok(&c->b)) return x;
    if (x->shape->rank != 4 || old->shape->rank != 4 || o[0] != d[0] || o[1] != d[1] ||
        o[2] < d[2] || o[3] != d[3])
        return onnx_fail(c, "past %s for %s", onnx_show(c, old), onnx_show(c, x)), x;
    return hb_op(&c->b, HLO_DYNAMIC_UPDATE_SLICE, NULL, (hv[]){old, x, zero, zero, at, zero}, 6,
                 NULL);
}
// Keys, values and masks of a past that shares its buffer with the present; input `length` says how
// many of its rows there are. What lies behind the new rows is hidden.
static void attend_shared(struct onnx_ctx *c, struct attend *a, size_t past, size_t length,
                          size_t mask, size_t bias) {
    struct hb *b = &c->b;
    hv at = hb_convert(b, onnx_scalar_in(c, length), DT_S64);
    int64_t own = a->k->shape->rank == 4 ? a->k->shape->dims[2] : 0;
    a->k = shared_past(c, a->k, past, at), a->v = shared_past(c, a->v, past + 1, at);
    if (!hb_ok(b)) return;
    int64_t s = a->q->shape->dims[2], t = a->k->shape->dims[2];
    if (onnx_in_has(c, mask)) {
        const struct shape *m = onnx_in_val(c, mask)->shape;
        int64_t keys = m->rank > 1 && m->dims[m->rank - 1] < t ? m->dims[m->rank - 1] : t;
        a->add = padding_mask(c, mask, a->q->shape->dims[0], keys);
        if (hb_ok(b)) a->add = onnx_pad_axis(c, a->add, 3, 0, t - keys, 0);
    }
    if (onnx_in_has(c, bias) && hb_ok(b)) {
        hv more = hb_convert(b, onnx_in_val(c, bias), DT_F32);
        if (more->shape->rank != 4 || more->shape->dims[3] > t)
            return onnx_fail(c, "attention_bias %s", onnx_show(c, more));
        more = onnx_pad_axis(c, more, 3, 0, t - more->shape->dims[3], 0);
        if (a->add) hb_numpy_pair(b, &a->add, &more);
        a->add = a->add ? hb_add(b, a->add, more) : more;
    }
    const struct shape *wide = shape_make(c->a, DT_S64, (int64_t[]){1, 1, s, t}, 4);
    bool causal = onnx_at_int(c, "unidirectional", 0) != 0;
    hv last = causal ? hb_iota(b, wide, 2) : hb_splat(b, wide, (double)(own - 1));
    last = hb_add(b, last, onnx_spread(c, at, wide));
    a->seen = hb_compare(b, hb_iota(b, wide, 3), last, CMP_LE);
}
static void join_past(struct onnx_ctx *c, hv *x, hv past) {
    if (past->shape->rank != 4) return onnx_fail(c, "past %s", onnx_show(c, past));
    *x = hb_concat(&c->b, (hv[]){past, *x}, 2, 2);
}

// ---- Attention, QAttention

// qkv [batch, sequence, sizes of q, k and v together]; past and present [2, batch, heads, t, size].
static void projected(struct onnx_ctx *c, hv qkv, size_t mask, size_t past, size_t bias) {
    struct hb *b = &c->b;
    int64_t heads = onnx_at_int(c, "num_heads", 0), sizes[3], at = 0;
    int n;
    struct attend a = {.scale = onnx_at_float(c, "scale", 0)};
    hv *parts[3] = {&a.q, &a.k, &a.v};

    if (!hb_ok(b)) return;
    if (!onnx_at_ints(c, "qkv_hidden_sizes", sizes, 3, &n) || n != 3)
        sizes[0] = sizes[1] = sizes[2] = qkv->shape->dims[2] / 3;
    if (onnx_at_int(c, "do_rotary", 0)) return onnx_fail(c, "do_rotary is not supported");
    if (onnx_at_int(c, "past_present_share_buffer", 0))
        return onnx_fail(c, "past_present_share_buffer is not supported");
    if (sizes[0] < 1 || sizes[1] < 1 || sizes[2] < 1 ||
        sizes[0] + sizes[1] + sizes[2] != qkv->shape->dims[2])
        return onnx_fail(c, "weights for %lld columns", (long long)qkv->shape->dims[2]);

    for (int k = 0; k < 3; at += sizes[k++])
        *parts[k] = onnx_split_heads(c, onnx_part(c, qkv, 2, at, at + sizes[k]), heads);
    if (!hb_ok(b)) return;

    if (onnx_in_has(c, past)) {
        hv p = onnx_in_val(c, past);
        if (p->shape->rank != 5 || p->shape->dims[0] != 2)
            return onnx_fail(c, "past %s", onnx_show(c, p));
        join_past(c, &a.k, onnx_row(c, p, 0, 0));
        join_past(c, &a.v, onnx_row(c, p, 0, 1));
    }

    if (!hb_ok(b)) return;
    add_masks(c, &a, mask, bias, a.k->shape->dims[2] - a.q->shape->dims[2]);
    if (!attend(c, &a)) return;

    onnx_out_val(c, 0, join_heads(c, a.y));
    if (c->n->out.n > 1)
        onnx_out_val(
            c, 1, hb_concat(b, (hv[]){onnx_add_axis(c, a.k, 0), onnx_add_axis(c, a.v, 0)}, 2, 0));
}
static bool projects(struct onnx_ctx *c) {
    const struct shape *x = onnx_in_val(c, 0)->shape, *w = onnx_in_val(c, 1)->shape;
    if (x->rank == 3 && w->rank == 2 && x->dims[2] == w->dims[0]) return true;
    onnx_fail(c, "input %s with weights %s", shape_text(c->a, x), shape_text(c->a, w));
    return false;
}
ONNX(msattention) {
    if (!projects(c)) return;
    hv y = hb_matmul(b, onnx_in_val(c, 0), onnx_in_val(c, 1));
    y = onnx_add_along(c, y, 2, 2);
    projected(c, y, 3, 4, 5);
}
ONNX(qattention) { // input, weight, bias, scales, mask, zero points, past
    if (!projects(c)) return;
    hv y = hb_matmul(b, onnx_matrix_centred(c, 0, 6, false), onnx_matrix_centred(c, 1, 7, true));
    y = hb_convert(b, y, DT_F32);
    if (!hb_ok(b)) return;
    y = hb_mul(b, y, onnx_matrix_param(c, onnx_in_val(c, 3), y, false));
    y = hb_mul(b, y, onnx_matrix_param(c, onnx_in_val(c, 4), y, true));
    projected(c, hb_add(b, y, onnx_along(c, onnx_in_val(c, 2), y->shape, 2)), 5, 8, 64);
}

// ---- MultiHeadAttention

enum { MH_BIAS = 3, MH_MASK, MH_ADDED, MH_PAST, MH_SHARED = 8, MH_BEAMS };
// Part k of three of the vector `bias` added to x [batch, sequence, size].
static hv with_bias(struct onnx_ctx *c, hv x, size_t bias, int64_t from) {
    if (!onnx_in_has(c, bias) || x->shape->rank != 3 || !hb_ok(&c->b)) return x;
    hv v = onnx_in_val(c, bias);
    int64_t n = x->shape->dims[2];
    if (v->shape->rank != 1 || v->shape->dims[0] < from + n)
        return onnx_fail(c, "bias %s", onnx_show(c, v)), x;
    return hb_add(&c->b, x, onnx_along(c, onnx_part(c, v, 0, from, from + n), x->shape, 2));
}
// Packed [batch, sequence, heads, parts, size]: part k as [batch, heads, sequence, size].
static hv unpacked(struct onnx_ctx *c, hv x, int64_t k) {
    return onnx_swap_axes(c, onnx_row(c, x, 3, k), 1, 2);
}
static bool read_heads(struct onnx_ctx *c, struct attend *a, size_t bias) {
    int64_t heads = onnx_at_int(c, "num_heads", 0);
    hv q = onnx_in_val(c, 0), k = onnx_in_opt(c, 1), v = onnx_in_opt(c, 2);
    if (q->shape->rank == 5) {
        if (q->shape->dims[3] != 3) return onnx_fail(c, "query %s", onnx_show(c, q)), false;
        if (onnx_in_has(c, bias))
            return onnx_fail(c, "bias of packed heads is not supported"), false;
        a->q = unpacked(c, q, 0), a->k = unpacked(c, q, 1), a->v = unpacked(c, q, 2);
        return hb_ok(&c->b);
    }
    if (q->shape->rank == 3 && !k) { // side by side
        int64_t n = q->shape->dims[2] / 3;
        v = onnx_part(c, q, 2, 2 * n, 3 * n), k = onnx_part(c, q, 2, n, 2 * n),
        q = onnx_part(c, q, 2, 0, n);
    }
    if (!k || q->shape->rank != 3)
        return onnx_fail(c, "query %s without key", onnx_show(c, q)), false;
    int64_t size = q->shape->dims[2];
    a->q = onnx_split_heads(c, with_bias(c, q, bias, 0), heads);
    if (k->shape->rank == 5 && k->shape->dims[3] == 2) {
        a->k = unpacked(c, k, 0), a->v = unpacked(c, k, 1);
        return hb_ok(&c->b);
    }
    if (!v) return onnx_fail(c, "value is missing"), false;
    a->k = onnx_split_heads(c, with_bias(c, k, bias, size), heads);
    a->v = onnx_split_heads(c, with_bias(c, v, bias, 2 * size), heads);
    return hb_ok(&c->b);
}
ONNX(multihead) {
    struct attend a = {.scale = onnx_at_float(c, "scale", 0)};
    bool shared = onnx_in_has(c, MH_PAST) && onnx_in_has(c, MH_SHARED);
    if (onnx_in_has(c, MH_BEAMS)) return onnx_fail(c, "cache_indirection is not supported");
    if (!read_heads(c, &a, MH_BIAS)) return;
    int64_t own = a.k->shape->rank == 4 ? a.k->shape->dims[2] : 0;
    if (shared) {
        attend_shared(c, &a, MH_PAST, MH_SHARED, MH_MASK, MH_ADDED);
    } else {
        if (onnx_in_has(c, MH_PAST)) join_past(c, &a.k, onnx_in_val(c, MH_PAST));
        if (onnx_in_has(c, MH_PAST + 1)) join_past(c, &a.v, onnx_in_val(c, MH_PAST + 1));
        if (!hb_ok(b)) return;
        add_masks(c, &a, MH_MASK, MH_ADDED, a.k->shape->dims[2] - own);
    }
    if (!attend(c, &a)) return;
    if (shared && c->n->out.n > 3 && c->n->out.v[3].n)
        return onnx_fail(c, "qk beside a past that shares its buffer is not supported");
    onnx_out_val(c, 0, join_heads(c, a.y));
    onnx_out_val(c, 1, a.k);
    onnx_out_val(c, 2, a.v);
    onnx_out_val(c, 3, hb_convert(b, a.scores, a.q->shape->dtype));
}

// ---- DecoderMaskedMultiHeadAttention: one query at a time, whose keys are those of an encoder
// [batch, heads, keys, size], or its own behind a past

enum { DM_MASK = 3, DM_ADDED, DM_PAST, DM_LENGTH = 7, DM_WIDTH, DM_BEAMS, DM_BIAS };
ONNX(decodermasked) {
    struct attend a = {.scale = onnx_at_float(c, "scale", 0)};
    bool self = onnx_in_has(c, DM_PAST);
    if (onnx_in_has(c, DM_BEAMS)) return onnx_fail(c, "cache_indirection is not supported");
    if (!read_heads(c, &a, DM_BIAS)) return;
    if (a.q->shape->rank != 4 || a.q->shape->dims[2] != 1)
        return onnx_fail(c, "query %s: one a run is expected", onnx_show(c, a.q));
    if (self && !onnx_in_has(c, DM_LENGTH)) return onnx_fail(c, "past_sequence_length is missing");
    if (self && onnx_at_int(c, "output_qk", 0))
        return onnx_fail(c, "qk beside a past that shares its buffer is not supported");
    if (self)
        attend_shared(c, &a, DM_PAST, DM_LENGTH, DM_MASK, DM_ADDED);
    else
        add_masks(c, &a, DM_MASK, DM_ADDED, 0);
    if (!attend(c, &a)) return;
    onnx_out_val(c, 0, join_heads(c, a.y));
    onnx_out_val(c, 1, a.k);
    onnx_out_val(c, 2, a.v);
    onnx_out_val(c, 3, a.scores);
}

// ---- GroupQueryAttention: query, key, value, past_key, past_value, seqlens_k,
// total_sequence_length, cos, sin, position_ids, attention_bias, head_sink

enum { MAX_BATCH = 256 };
enum { GQ_PAST = 3, GQ_LENS = 5, GQ_TOTAL, GQ_COS, GQ_SIN, GQ_PLACES, GQ_BIAS, GQ_SINK, GQ_QUANT };
struct group {
    int64_t batch, s, heads, kv, total, t; // t: rows of the keys that are looked at
    bool prompt;
    hv past; // s64[batch]: how many keys were there before
    // With sliding_window_cache: the cache's rows (0: it holds all keys), how many it gives up at
    // once, and s64[batch] of the past keys it holds, the last ones, from row 0 on.
    int64_t room, freed;
    hv kept;
};

// How many keys a sliding cache holds when `keys` of them, s64[batch], have been there: all while
// there is room, then fewer by `freed` each time it is full.
static hv resident(struct onnx_ctx *c, const struct group *g, hv keys) {
    struct hb *b = &c->b;
    hv over = onnx_add_k(c, keys, (double)(g->freed - 1 - g->room));
    hv times = hb_binary(b, HLO_DIVIDE, over, onnx_splat_like(c, over, (double)g->freed));
    hv fewer = hb_binary(b, HLO_SUBTRACT, keys, onnx_mul_k(c, times, (double)g->freed));
    return hb_select(b, onnx_compare_k(c, keys, (double)g->room, CMP_LE), keys, fewer);
}
static bool read_window(struct onnx_ctx *c, struct group *g) {
    int64_t window = onnx_at_int(c, "local_window_size", -1);
    if (!onnx_in_has(c, GQ_PAST) || !onnx_in_has(c, GQ_PAST + 1))
        return onnx_fail(c, "sliding_window_cache without a past"), false;
    const struct shape *past = onnx_in_val(c, GQ_PAST)->shape;
    if (past->rank != 4 || window < 1 || window > past->dims[2])
        return onnx_fail(c, "a window of %lld keys in past_key %s", (long long)window,
                         shape_text(c->a, past)),
               false;

    g->room = past->dims[2], g->freed = g->room - window + 1;
    g->kept = resident(c, g, g->past);
    g->t = g->prompt ? g->s : g->room + g->s;
    return hb_ok(&c->b);
}
static bool read_group(struct onnx_ctx *c, struct group *g, struct attend *a) {
    struct hb *b = &c->b;
    hv q = onnx_in_val(c, 0), k = onnx_in_opt(c, 1), v = onnx_in_opt(c, 2);
    int n;

    g->heads = onnx_at_int(c, "num_heads", 0), g->kv = onnx_at_int(c, "kv_num_heads", 0);
    for (size_t i = GQ_QUANT; i < c->n->in.n; i++)
        if (onnx_in_has(c, i))
            return onnx_fail(c, "input %zu (a quantised cache, norms of heads) is not supported",
                             i),
                   false;

    if (!onnx_in_ints(c, GQ_TOTAL, &g->total, 1, &n) || n != 1) return false;
    if (q->shape->rank != 3 || g->heads < 1 || g->kv < 1 || g->heads % g->kv || !k != !v)
        return onnx_fail(c, "query %s, %lld and %lld heads", onnx_show(c, q), (long long)g->heads,
                         (long long)g->kv),
               false;

    if (!k) {
        int64_t size = q->shape->dims[2] / (g->heads + 2 * g->kv), at = g->heads * size;
        v = onnx_part(c, q, 2, at + g->kv * size, at + 2 * g->kv * size);
        k = onnx_part(c, q, 2, at, at + g->kv * size);
        q = onnx_part(c, q, 2, 0, at);
    }

    g->batch = q->shape->dims[0], g->s = q->shape->dims[1];
    g->prompt = g->total == g->s;
    a->q = onnx_split_heads(c, q, g->heads), a->k = onnx_split_heads(c, k, g->kv);
    a->v = onnx_split_heads(c, v, g->kv);
    g->t = g->total;
    if (onnx_in_has(c, GQ_PAST) && onnx_in_val(c, GQ_PAST)->shape->rank == 4 &&
        onnx_in_val(c, GQ_PAST)->shape->dims[2] > g->t)
        g->t = onnx_in_val(c, GQ_PAST)->shape->dims[2];

    hv lens = hb_convert(b, onnx_in_val(c, GQ_LENS), DT_S64);
    if (shape_elements(lens->shape) != g->batch || g->total < g->s)
        return onnx_fail(c, "seqlens_k %s, total_sequence_length %lld", onnx_show(c, lens),
                         (long long)g->total),
               false;
    lens = hb_reshape(b, lens, &g->batch, 1);
    g->past = g->prompt ? onnx_splat_like(c, lens, 0) : onnx_add_k(c, lens, (double)(1 - g->s));
    if (onnx_at_int(c, "sliding_window_cache", 0)) return read_window(c, g);
    return hb_ok(b);
}
static void turn_heads(struct onnx_ctx *c, const struct group *g, struct attend *a) {
    struct hb *b = &c->b;
    const struct shape *rows = shape_make(c->a, DT_S64, (int64_t[]){g->batch, g->s}, 2);
    hv at = hb_add(b, onnx_along(c, g->past, rows, 0), hb_iota(b, rows, 1));
    bool inter = onnx_at_int(c, "rotary_interleaved", 0) != 0;
    if (onnx_in_has(c, GQ_PLACES)) {
        hv given = hb_convert(b, onnx_in_val(c, GQ_PLACES), DT_S64);
        if (given->shape->rank != 2) return onnx_fail(c, "position_ids %s", onnx_show(c, given));
        if (g->prompt) { // counted from the first
            given = hb_reshape(b, onnx_part(c, onnx_part(c, given, 0, 0, 1), 1, 0, 1), NULL, 0);
            at = hb_add(b, hb_iota(b, rows, 1), onnx_spread(c, given, rows));
        } else {
            at = hb_broadcast_numpy(b, given, rows->dims, 2);
        }
    }
    const struct shape *tables[2] = {onnx_in_val(c, GQ_COS)->shape, onnx_in_val(c, GQ_SIN)->shape};
    if (tables[0]->rank != 2 || tables[1]->rank != 2)
        return onnx_fail(c, "cos_cache %s, sin_cache %s", shape_text(c->a, tables[0]),
                         shape_text(c->a, tables[1]));
    hv cosine = onnx_take(c, onnx_in_val(c, GQ_COS), at, 0),
       sine = onnx_take(c, onnx_in_val(c, GQ_SIN), at, 0);
    if (!hb_ok(b)) return;
    int64_t dim = 2 * cosine->shape->dims[2];
    a->q = onnx_swap_axes(
        c, onnx_rotate(c, onnx_swap_axes(c, a->q, 1, 2), cosine, sine, dim, inter), 1, 2);
    a->k = onnx_swap_axes(
        c, onnx_rotate(c, onnx_swap_axes(c, a->k, 1, 2), cosine, sine, dim, inter), 1, 2);
}
// The past, padded to `rows` rows, with the new rows x from row `at`, s64[batch], on.
static hv with_rows(struct onnx_ctx *c, const struct group *g, hv x, size_t past, int64_t rows,
                    hv at) {
    struct hb *b = &c->b;
    hv old = onnx_in_val(c, past), zero = hb_const_i64(b, DT_S64, 0);
    if (old->shape->rank != 4 || old->shape->dims[0] != g->batch || old->shape->dims[1] != g->kv ||
        old->shape->dims[3] != x->shape->dims[3] || old->shape->dims[2] > rows)
        return onnx_fail(c, "past %s", onnx_show(c, old)), x;
    old = onnx_pad_axis(c, old, 2, 0, rows - old->shape->dims[2], 0);
    for (int64_t k = 0; k < g->batch && hb_ok(b); k++)
        old = hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, NULL,
                    (hv[]){old, onnx_part(c, x, 0, k, k + 1), hb_const_i64(b, DT_S64, k), zero,
                           onnx_row(c, at, 0, k), zero},
                    6, NULL);
    return old;
}
// Of each of x's batch, `size` elements of dimension `axis` from element from[batch] on.
static hv from_row(struct onnx_ctx *c, hv x, int64_t axis, hv from, int64_t size) {
    struct hb *b = &c->b;
    hv parts[MAX_BATCH], zero = hb_const_i64(b, DT_S64, 0);
    int64_t n = from->shape->dims[0], *sizes = arena_array(c->a, int64_t, 4);
    for (int d = 0; d < 4; d++)
        sizes[d] = d ? x->shape->dims[d] : 1;
    sizes[axis] = size;
    if (!n) return onnx_part(c, x, axis, 0, size);

    for (int64_t k = 0; k < n && hb_ok(b); k++) {
        hv in[] = {onnx_part(c, x, 0, k, k + 1), zero, zero, zero, zero};
        in[1 + axis] = onnx_row(c, from, 0, k);
        parts[k] = hb_op(b, HLO_DYNAMIC_SLICE, NULL, in, 5,
                         &(struct hlo_attr_dynslice){.dynamic_slice_sizes = {sizes, 4}});
    }
    return hb_ok(b) ? hb_concat(b, parts, (int)n, 0) : x;
}
// A sliding cache behind the step, its last keys from row 0 on; *keys: what the step looks at, in
// the order of their positions. A prompt looks at its own rows alone.
static hv slid(struct onnx_ctx *c, const struct group *g, size_t past, hv *keys) {
    struct hb *b = &c->b;
    hv all = with_rows(c, g, *keys, past, g->room + g->s + g->freed, g->kept);
    hv now = onnx_add_k(c, hb_convert(b, onnx_in_val(c, GQ_LENS), DT_S64), 1);
    if (!hb_ok(b)) return all;
    now = hb_reshape(b, now, &g->batch, 1);
    hv gone = hb_binary(b, HLO_SUBTRACT, now, resident(c, g, now)),
       before = hb_binary(b, HLO_SUBTRACT, g->past, g->kept);
    if (!g->prompt) *keys = onnx_part(c, all, 2, 0, g->t);
    return from_row(c, all, 2, hb_binary(b, HLO_SUBTRACT, gone, before), g->room);
}
// The present: the past with the new rows at their places; *keys becomes what the step looks at.
static hv present(struct onnx_ctx *c, const struct group *g, size_t past, hv *keys) {
    if (g->room) return slid(c, g, past, keys);
    *keys = onnx_in_has(c, past) ? with_rows(c, g, *keys, past, g->t, g->past)
                                 : onnx_pad_axis(c, *keys, 2, 0, g->t - (*keys)->shape->dims[2], 0);
    return *keys;
}
// Which keys a query sees: those that are there, up to its own, within the window.
static hv group_mask(struct onnx_ctx *c, const struct group *g) {
    struct hb *b = &c->b;
    const struct shape *wide = shape_make(c->a, DT_S64, (int64_t[]){g->batch, 1, g->s, g->t}, 4);
    hv k = hb_iota(b, wide, 3), lens = hb_convert(b, onnx_in_val(c, GQ_LENS), DT_S64);
    if (g->room) // row 0 is the first key that the cache has not given up
        k = hb_add(b, k, onnx_along(c, hb_binary(b, HLO_SUBTRACT, g->past, g->kept), wide, 0));
    hv seen = hb_compare(b, k, onnx_along(c, hb_reshape(b, lens, &g->batch, 1), wide, 0), CMP_LE);
    if (!onnx_at_int(c, "causal", 1)) return seen;
    hv q = hb_add(b, hb_iota(b, wide, 2), onnx_along(c, g->past, wide, 0));
    int64_t window = onnx_at_int(c, "local_window_size", -1);
    seen = onnx_and(c, seen, hb_compare(b, k, q, CMP_LE));
    if (window > 0)
        seen = onnx_and(c, seen, hb_compare(b, k, onnx_add_k(c, q, -(double)window), CMP_GT));
    return seen;
}
// What is added to scores, whose last dimension counts keys from the sequence's first.
static hv group_bias(struct onnx_ctx *c, const struct group *g) {
    struct hb *b = &c->b;
    hv add = onnx_in_val(c, GQ_BIAS);
    if (add->shape->rank != 4 || add->shape->dims[3] > (g->room ? g->total : g->t))
        return onnx_fail(c, "attention_bias %s", onnx_show(c, add)), add;
    if (!g->room || g->prompt) return onnx_pad_axis(c, add, 3, 0, g->t - add->shape->dims[3], 0);
    add = onnx_pad_axis(c, add, 3, 0, g->total - add->shape->dims[3] + g->t, 0);
    int64_t dims[] = {g->batch, add->shape->dims[1], add->shape->dims[2], add->shape->dims[3]};
    add = hb_broadcast_numpy(b, add, dims, 4);
    if (!hb_ok(b)) return add;
    return from_row(c, add, 3, hb_binary(b, HLO_SUBTRACT, g->past, g->kept), g->t);
}
ONNX(groupquery) {
    struct group g = {0};
    struct attend a = {.scale = onnx_at_float(c, "scale", 0),
                       .cap = onnx_at_float(c, "softcap", 0)};
    if (!read_group(c, &g, &a)) return;
    if (g.batch > MAX_BATCH) return onnx_fail(c, "a batch of %lld", (long long)g.batch);
    if (onnx_at_int(c, "do_rotary", 0)) turn_heads(c, &g, &a);
    if (!hb_ok(b)) return;
    hv k = present(c, &g, GQ_PAST, &a.k), v = present(c, &g, GQ_PAST + 1, &a.v);
    if (!hb_ok(b)) return;
    a.seen = group_mask(c, &g);
    if (onnx_in_has(c, GQ_BIAS)) a.add = group_bias(c, &g);
    if (onnx_in_has(c, GQ_SINK))
        a.sink = onnx_in_val(c, GQ_SINK);
    else if (onnx_at_int(c, "smooth_softmax", 0) > 0)
        a.sink = hb_splat(b, shape_make(c->a, DT_F32, &g.heads, 1), 0);
    if (!attend(c, &a)) return;
    onnx_out_val(c, 0, join_heads(c, a.y));
    onnx_out_val(c, 1, k);
    onnx_out_val(c, 2, v);
    if (c->n->out.n < 4 || !c->n->out.v[3].n) return;
    if (g.room && !g.prompt) return onnx_fail(c, "scores of a sliding cache are not supported");
    hv shown = onnx_at_int(c, "qk_output", 0) == 2 ? a.probs : a.scores;
    onnx_out_val(c, 3, hb_convert(b, onnx_part(c, shown, 3, 0, g.total), a.q->shape->dtype));
}
