// SPDX-License-Identifier: Apache-2.0
// Attention and RotaryEmbedding. Attention follows the definition as corrected after ONNX 1.18 (and
// as ONNX Runtime computes it): 3-D inputs hold [sequence, head, size], key and value heads repeat
// next to each other for grouped queries, softcap comes before the mask, a causal mask counts from
// the end of the past, and a row that is masked as a whole gives 0.
#include <math.h>

#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx_nn/onnx_attention.h"

struct attention {
    hv q, k, v;                 // [batch, heads, sequence, size]
    int64_t b, heads, kv, s, t; // batch, query heads, key heads, query and key lengths
    int64_t past;
    enum dtype type;
};

hv onnx_split_heads(struct onnx_ctx *c, hv x, int64_t heads) {
    const int64_t *d = x->shape->dims;
    if (x->shape->rank == 4) return x;
    if (x->shape->rank != 3 || heads < 1 || d[2] % heads)
        return onnx_fail(c, "input %s with %lld heads", onnx_show(c, x), (long long)heads), x;
    x = hb_reshape(&c->b, x, (int64_t[]){d[0], d[1], heads, d[2] / heads}, 4);
    return onnx_swap_axes(c, x, 1, 2);
}

static bool attention_inputs(struct onnx_ctx *c, struct attention *a) {
    int64_t qh = onnx_at_int(c, "q_num_heads", 0), kvh = onnx_at_int(c, "kv_num_heads", 0);
    a->q = onnx_split_heads(c, onnx_in_val(c, 0), qh);
    a->k = onnx_split_heads(c, onnx_in_val(c, 1), kvh);
    a->v = onnx_split_heads(c, onnx_in_val(c, 2), kvh);
    if (!hb_ok(&c->b)) return false;
    if (onnx_in_has(c, 4)) {
        hv past = onnx_in_val(c, 4);
        if (past->shape->rank != 4) return onnx_fail(c, "past_key must have 4 dimensions"), false;
        a->past = past->shape->dims[2];
        a->k = hb_concat(&c->b, (hv[]){past, a->k}, 2, 2);
    }
    if (onnx_in_has(c, 5)) a->v = hb_concat(&c->b, (hv[]){onnx_in_val(c, 5), a->v}, 2, 2);
    if (!hb_ok(&c->b)) return false;
    const int64_t *q = a->q->shape->dims, *k = a->k->shape->dims, *v = a->v->shape->dims;
    a->b = q[0], a->heads = q[1], a->kv = k[1], a->s = q[2], a->t = k[2];
    a->type = a->q->shape->dtype;
    if (a->kv < 1 || a->heads % a->kv || v[1] != a->kv || k[3] != q[3] || v[2] != a->t)
        return onnx_fail(c, "query %s, key %s, value %s", onnx_show(c, a->q), onnx_show(c, a->k),
                         onnx_show(c, a->v)),
               false;
    return true;
}

// Scores with what may not be seen at -inf, or with the mask added.
static hv attention_mask(struct onnx_ctx *c, const struct attention *a, hv scores) {
    struct hb *b = &c->b;
    const struct shape *s = scores->shape;
    hv hidden = onnx_splat_like(c, scores, -(double)INFINITY);
    if (onnx_in_has(c, 3)) {
        hv m = onnx_in_val(c, 3);
        bool seen = m->shape->dtype == DT_PRED;
        int last = m->shape->rank - 1;
        if (last >= 1 && m->shape->dims[last] < a->t && m->shape->dims[last] > 1)
            m = onnx_pad_axis(c, m, last, 0, a->t - m->shape->dims[last],
                              seen ? 0 : -(double)INFINITY);
        m = hb_broadcast_numpy(b, m, s->dims, s->rank);
        if (!hb_ok(b)) return scores;
        scores =
            seen ? hb_select(b, m, scores, hidden) : hb_add(b, scores, hb_convert(b, m, s->dtype));
    }
    hv q = onnx_index_along(c, s, DT_S64, 2), k = onnx_index_along(c, s, DT_S64, 3);
    hv lens = onnx_in_has(c, 6) ? hb_convert(b, onnx_in_val(c, 6), DT_S64)
                                : NULL; // valid keys of each batch
    if (lens) {
        hv n = onnx_along(c, lens, s, 0);
        scores = hb_select(b, hb_compare(b, k, n, CMP_LT), scores, hidden);
        q = onnx_in_has(c, 4) ? q : hb_add(b, q, onnx_add_k(c, n, -(double)a->s));
    }
    if (onnx_at_int(c, "is_causal", 0)) {
        q = onnx_add_k(c, q, (double)a->past);
        scores = hb_select(b, hb_compare(b, k, q, CMP_LE), scores, hidden);
    }
    return scores;
}
hv onnx_masked_softmax(struct onnx_ctx *c, hv x, hv sink) {
    struct hb *b = &c->b;
    int64_t last = 3;
    hv m = onnx_reduce_keep(c, x, &last, 1, HLO_MAXIMUM, false);
    if (sink) m = hb_max(b, m, sink);
    hv none = onnx_compare_k(c, m, -(double)INFINITY, CMP_EQ);
    m = hb_select(b, none, onnx_splat_like(c, m, 0), m); // then exp gives 0 and the sum is 0
    hv e = hb_unary(b, HLO_EXP, hb_sub(b, x, onnx_back_to(c, m, x->shape, &last, 1)));
    hv sum = onnx_reduce_keep(c, e, &last, 1, HLO_ADD, false);
    if (sink) sum = hb_add(b, sum, hb_unary(b, HLO_EXP, hb_sub(b, sink, m)));
    sum = hb_select(b, none, onnx_splat_like(c, sum, 1), sum);
    return hb_div(b, e, onnx_back_to(c, sum, x->shape, &last, 1));
}

ONNX(attention) {
    struct attention a = {.past = 0};
    if (!attention_inputs(c, &a)) return;

    const int64_t size = a.q->shape->dims[3], vsize = a.v->shape->dims[3];
    int64_t mode = onnx_at_int(c, "qk_matmul_output_mode", 0), rep = a.heads / a.kv;
    double scale = onnx_at_float(c, "scale", 0), cap = onnx_at_float(c, "softcap", 0);
    if (!onnx_attr(c->n, "scale")) scale = 1 / sqrt((double)size);

    // The queries of a group stand one after another, so they are rows of one product.
    hv q = hb_reshape(b, onnx_mul_k(c, a.q, scale), (int64_t[]){a.b, a.kv, rep * a.s, size}, 4);
    hv x = onnx_batch_dot(c, q, a.k, true), shown;
    x = hb_reshape(b, x, (int64_t[]){a.b, a.heads, a.s, a.t}, 4);
    shown = x;
    if (cap > 0) x = onnx_mul_k(c, hb_unary(b, HLO_TANH, onnx_mul_k(c, x, 1 / cap)), cap);
    if (mode == 1) shown = x;
    x = attention_mask(c, &a, x);
    if (mode == 2) shown = x;
    x = onnx_masked_softmax(c, hb_convert(b, x, onnx_attr_dtype(c, "softmax_precision", a.type)),
                            NULL);
    if (mode == 3) shown = x;

    hv p = hb_reshape(b, hb_convert(b, x, a.type), (int64_t[]){a.b, a.kv, rep * a.s, a.t}, 4);
    hv y = onnx_batch_dot(c, p, a.v, false);
    y = hb_reshape(b, y, (int64_t[]){a.b, a.heads, a.s, vsize}, 4);
    if (onnx_in_val(c, 0)->shape->rank == 3)
        y = hb_reshape(b, onnx_swap_axes(c, y, 1, 2), (int64_t[]){a.b, a.s, a.heads * vsize}, 3);

    onnx_out_val(c, 0, y);
    onnx_out_val(c, 1, a.k);
    onnx_out_val(c, 2, a.v);
    onnx_out_val(c, 3, hb_convert(b, shown, a.type));
}

// ---- FlexAttention: graphs of the node's own change the scores and the probabilities

static hv modified(struct onnx_ctx *c, const char *name, hv x) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    struct onnx_val *in = onnx_tensor_val(c, x), *out = NULL;
    if (!a || !a->graph || !hb_ok(&c->b)) return x;
    if (a->graph->inputs.n != 1 || a->graph->outputs.n != 1)
        return onnx_fail(c, "%s must have one input and one output", name), x;
    onnx_inline(c, a->graph, &in, &out);
    if (!hb_ok(&c->b)) return x;
    if (!out || !out->v || out->size || !shape_compatible(out->v->shape, x->shape))
        return onnx_fail(c, "%s must give %s", name, onnx_show(c, x)), x;
    return out->v;
}
ONNX(flexattention) {
    hv q = onnx_in_val(c, 0), k = onnx_in_val(c, 1), v = onnx_in_val(c, 2);
    const int64_t *qd = q->shape->dims, *kd = k->shape->dims, *vd = v->shape->dims;
    if (q->shape->rank != 4 || k->shape->rank != 4 || v->shape->rank != 4 || kd[1] < 1 ||
        qd[1] % kd[1] || vd[1] != kd[1] || vd[2] != kd[2] || qd[3] != kd[3])
        return onnx_fail(c, "query %s, key %s, value %s", onnx_show(c, q), onnx_show(c, k),
                         onnx_show(c, v));
    enum dtype t = q->shape->dtype;
    enum dtype work = onnx_attr_dtype(c, "softmax_precision", t == DT_F64 ? DT_F64 : DT_F32);
    int64_t rows = qd[1] / kd[1] * qd[2], all[4] = {qd[0], qd[1], qd[2], kd[2]}, last = 3;
    double scale = onnx_at_float(c, "scale", 0);
    if (!onnx_attr(c->n, "scale")) scale = 1 / sqrt((double)qd[3]);
    q = hb_reshape(b, onnx_mul_k(c, q, scale), (int64_t[]){qd[0], kd[1], rows, qd[3]}, 4);
    hv x = hb_convert(b, hb_reshape(b, onnx_batch_dot(c, q, k, true), all, 4), work);
    x = modified(c, "score_mod", x);
    if (!hb_ok(b)) return;
    x = modified(c, "prob_mod", onnx_softmax_over(c, x, &last, 1));
    x = hb_reshape(b, x, (int64_t[]){qd[0], kd[1], rows, kd[2]}, 4);
    x = onnx_batch_dot(c, x, hb_convert(b, v, work), false);
    x = hb_reshape(b, x, (int64_t[]){qd[0], qd[1], qd[2], vd[3]}, 4);
    onnx_out_val(c, 0, hb_convert(b, x, v->shape->dtype));
}

// ---- RotaryEmbedding

// Every second element of the last dimension from `first`.
static hv every_other(struct onnx_ctx *c, hv x, int64_t first) {
    struct range r[4];
    for (int d = 0; d < 4; d++)
        r[d] = (struct range){0, x->shape->dims[d], 1};
    r[3] = (struct range){first, x->shape->dims[3], 2};
    return hb_slice(&c->b, x, r);
}
// cos or sin [batch or 1, sequence, d] as [batch, sequence, heads, d].
static hv rotation(struct onnx_ctx *c, hv t, const struct shape *like) {
    if (t->shape->rank != 3 || t->shape->dims[2] < like->dims[3])
        return onnx_fail(c, "cos or sin is %s", onnx_show(c, t)), t;
    t = onnx_add_axis(c, onnx_part(c, t, 2, 0, like->dims[3]), 2);
    return hb_broadcast_numpy(&c->b, t, like->dims, 4);
}
hv onnx_rotate(struct onnx_ctx *c, hv x, hv cosine, hv sine, int64_t dim, bool inter) {
    struct hb *b = &c->b;
    int64_t size = x->shape->dims[3];
    if (dim == 0) dim = size;
    if (dim < 0 || dim > size || dim % 2)
        return onnx_fail(c, "rotary_embedding_dim %lld of %lld", (long long)dim, (long long)size),
               x;
    hv turned = onnx_part(c, x, 3, 0, dim), y;
    hv p = inter ? every_other(c, turned, 0) : onnx_part(c, turned, 3, 0, dim / 2);
    hv q = inter ? every_other(c, turned, 1) : onnx_part(c, turned, 3, dim / 2, dim);
    cosine = rotation(c, cosine, p->shape), sine = rotation(c, sine, p->shape);
    if (!hb_ok(b)) return x;
    hv re = hb_sub(b, hb_mul(b, cosine, p), hb_mul(b, sine, q));
    hv im = hb_add(b, hb_mul(b, sine, p), hb_mul(b, cosine, q));
    if (inter)
        y = hb_reshape(b, onnx_stack_last(c, (hv[]){re, im}, 2), turned->shape->dims, 4);
    else
        y = hb_concat(b, (hv[]){re, im}, 2, 3);
    return dim < size ? hb_concat(b, (hv[]){y, onnx_part(c, x, 3, dim, size)}, 2, 3) : y;
}
// A table of cosines or sines [positions, half] at [3, batch, sequence]: which of the three streams
// each column goes by, `section` says; they lie one behind the other or, of layout 1, in turns.
static hv by_streams(struct onnx_ctx *c, hv table, hv at, const int64_t *section, bool turns) {
    struct hb *b = &c->b;
    int64_t half = table->shape->dims[1], *of = arena_array(c->a, int64_t, half + 1), k = 0;
    hv y = NULL;
    for (int64_t end = 0, s = 0; s < 3; s++)
        for (end += section[s]; k < half && k < end; k++)
            of[k] = turns ? 0 : s;
    for (int64_t s = 1; s < 3 && turns; s++)
        for (k = s; k < half && k < 3 * section[s]; k += 3)
            of[k] = s;
    hv which = onnx_lit_s64s(c, of, &half, 1);
    for (int64_t s = 0; s < 3 && hb_ok(b); s++) {
        hv one = onnx_take(c, table, onnx_row(c, at, 0, s), 0);
        hv mine = onnx_along(c, onnx_compare_k(c, which, (double)s, CMP_EQ), one->shape, 2);
        y = y ? hb_select(b, mine, one, y) : one;
    }
    return y;
}
static void multimodal(struct onnx_ctx *c, hv at, hv *cosine, hv *sine) {
    int64_t section[3];
    int n;
    if (!onnx_at_ints(c, "mrope_section", section, 3, &n) || n != 3 || at->shape->rank != 3 ||
        at->shape->dims[0] != 3 || (*cosine)->shape->rank != 2 || (*sine)->shape->rank != 2 ||
        !shape_same_dims((*cosine)->shape, (*sine)->shape))
        return onnx_fail(c, "position_ids %s, cos_cache %s, sin_cache %s", onnx_show(c, at),
                         onnx_show(c, *cosine), onnx_show(c, *sine));
    int64_t half = (*cosine)->shape->dims[1], left = half;
    for (n = 0; n < 3; left -= section[n++])
        if (section[n] < 0 || section[n] > left) break;
    if (n < 3 || left) return onnx_fail(c, "mrope_section for %lld columns", (long long)half);
    bool turns = onnx_at_int(c, "mrope_layout", 0) == 1;
    *cosine = by_streams(c, *cosine, at, section, turns);
    *sine = by_streams(c, *sine, at, section, turns);
}
// Arg 1: com.microsoft's, whose positions come second: one, from which it counts, or all. 2: its
// MRotaryEmbedding, of three positions each.
ONNX_X(rotary) {
    hv y;
    const struct shape *s = x->shape;
    bool own = onnx_op_arg(c) != 0, flat = s->rank == 3;
    int64_t heads = onnx_at_int(c, "num_heads", 0), dim = onnx_at_int(c, "rotary_embedding_dim", 0);
    hv cosine = onnx_in_val(c, own ? 2 : 1), sine = onnx_in_val(c, own ? 3 : 2);
    hv at = own ? onnx_in_val(c, 1) : onnx_in_opt(c, 3);
    if (own && flat && heads == 0 && cosine->shape->rank == 2 && cosine->shape->dims[1] > 0)
        heads = s->dims[2] / (2 * cosine->shape->dims[1]);
    if ((s->rank != 3 && s->rank != 4) || (flat && (heads < 1 || s->dims[2] % heads)))
        return onnx_fail(c, "input %s with %lld heads", shape_text(c->a, s), (long long)heads);
    x = flat ? hb_reshape(b, x, (int64_t[]){s->dims[0], s->dims[1], heads, s->dims[2] / heads}, 4)
             : onnx_swap_axes(c, x, 1, 2); // [batch, sequence, heads, size]
    if (onnx_op_arg(c) == 2) {
        multimodal(c, at, &cosine, &sine);
        at = NULL;
    } else if (own && shape_elements(at->shape) == 1) {
        const struct shape *rows = shape_make(c->a, at->shape->dtype, x->shape->dims, 2);
        at = hb_add(b, onnx_spread(c, hb_reshape(b, at, NULL, 0), rows), hb_iota(b, rows, 1));
    }
    if (at) cosine = onnx_take(c, cosine, at, 0), sine = onnx_take(c, sine, at, 0);
    if (!hb_ok(b)) return;
    y = onnx_rotate(c, x, cosine, sine, dim, onnx_at_int(c, "interleaved", 0) != 0);
    if (hb_ok(b))
        onnx_out_val(c, 0, flat ? hb_reshape(b, y, s->dims, 3) : onnx_swap_axes(c, y, 1, 2));
}
