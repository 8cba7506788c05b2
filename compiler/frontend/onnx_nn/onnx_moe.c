// SPDX-License-Identifier: Apache-2.0
// Mixture of experts (com.microsoft MoE, QMoE): each row goes through the k experts that its router
// scores choose. Many rows: all experts for all rows as two products, what was not chosen weighted
// by 0. Few rows of many experts: the chosen experts' weights are gathered. Packed weights become
// f32 by instructions that depend on weights alone. What ONNX Runtime's CPU kernels refuse (fc3,
// SwiGLU in two parts, widths that differ) is refused here; use_sparse_mixer changes nothing, as
// there.
#include "compiler/frontend/onnx_nn/onnx_quant.h"

struct moe {
    int64_t rows, hidden, inter, wide, experts, k; // wide: of the first product
    hv x;                                          // [rows, hidden]
    hv at, scale;                                  // s64 and f32 [rows, k]: the chosen
    hv w1, b1, w2, b2;                             // [experts, out, in], [experts, out] or NULL
};

static hv soft(struct onnx_ctx *c, hv s) { // along the last of two dimensions
    struct hb *b = &c->b;
    int64_t last = 1;
    hv top = onnx_reduce_keep(c, s, &last, 1, HLO_MAXIMUM, false);
    s = hb_unary(b, HLO_EXP, hb_sub(b, s, onnx_back_to(c, top, s->shape, &last, 1)));
    hv sum = onnx_reduce_keep(c, s, &last, 1, HLO_ADD, false);
    return hb_div(b, s, onnx_back_to(c, sum, s->shape, &last, 1));
}
// The k largest of each row of scores, of equal ones the last.
static void choose(struct onnx_ctx *c, struct moe *m, hv scores) {
    struct hb *b = &c->b;
    int64_t last = 1;
    scores = hb_reverse(b, scores, &last, 1);
    hv r =
        hb_op(b, HLO_TOPK, NULL, &scores, 1, &(struct hlo_attr_topk){.k = m->k, .largest = true});
    if (!hb_ok(b)) return;
    m->scale = hb_gte(b, r, 0);
    m->at = hb_convert(b, hb_gte(b, r, 1), DT_S64);
    m->at = hb_sub(b, onnx_splat_like(c, m->at, (double)(m->experts - 1)), m->at);
}
static void normalise(struct onnx_ctx *c, struct moe *m) {
    int64_t last = 1;
    if (!hb_ok(&c->b) || onnx_at_int(c, "normalize_routing_weights", 0) != 1) return;
    hv sum = onnx_reduce_keep(c, m->scale, &last, 1, HLO_ADD, false);
    m->scale = hb_div(&c->b, m->scale, onnx_back_to(c, sum, m->scale->shape, &last, 1));
}
// Gates and values in turn, [rows, n, 2 * inter] -> [rows, n, inter].
static hv swiglu(struct onnx_ctx *c, hv h, int64_t inter) {
    struct hb *b = &c->b;
    int64_t dims[4] = {h->shape->dims[0], h->shape->dims[1], inter, 2};
    h = hb_reshape(b, h, dims, 4);
    hv gate = onnx_row(c, h, 3, 0), value = onnx_row(c, h, 3, 1);
    if (onnx_attr(c->n, "swiglu_limit")) {
        hv hi = onnx_splat_like(c, gate, onnx_at_float(c, "swiglu_limit", 0));
        gate = hb_min(b, gate, hi);
        value = hb_clamp(b, hb_unary(b, HLO_NEGATE, hi), value, hi);
    }
    hv s = hb_unary(b, HLO_LOGISTIC, onnx_mul_k(c, gate, onnx_at_float(c, "activation_alpha", 1)));
    value = onnx_add_k(c, value, onnx_at_float(c, "activation_beta", 0));
    return hb_mul(b, hb_mul(b, gate, s), value);
}
static hv moe_activation(struct onnx_ctx *c, const struct moe *m, hv h) {
    struct str how = onnx_at_str(c, "activation_type", "relu");
    if (str_is(how, "swiglu")) return swiglu(c, h, m->inter);
    if (str_is(how, "gelu")) return onnx_gelu(c, h, true);
    if (str_is(how, "silu")) return hb_mul(&c->b, h, hb_unary(&c->b, HLO_LOGISTIC, h));
    if (str_is(how, "relu")) return hb_max(&c->b, h, onnx_splat_like(c, h, 0));
    return h;
}
// h [rows, n, wide] of n experts with their scales [rows, n], up to what the second product takes.
static hv between(struct onnx_ctx *c, const struct moe *m, hv h, hv bias, hv scale) {
    struct hb *b = &c->b;
    enum dtype t = m->x->shape->dtype;
    h = hb_convert(b, h, DT_F32);
    if (bias) h = hb_add(b, h, hb_convert(b, bias, DT_F32));
    h = moe_activation(c, m, h);
    if (!hb_ok(b)) return h;
    scale = hb_broadcast(b, scale, h->shape->dims, 3, (int64_t[]){0, 1});
    hv none = onnx_splat_like(c, h, 0); // an expert that was not chosen is not asked
    h = hb_select(b, hb_compare(b, scale, none, CMP_GT), hb_mul(b, h, scale), none);
    return hb_convert(b, h, t);
}
static hv all_experts(struct onnx_ctx *c, const struct moe *m) {
    struct hb *b = &c->b;
    int64_t one = 1, two = 2, both[2] = {1, 2}, second[2] = {0, 2};
    int64_t pick[3] = {m->rows, m->k, m->experts}, out[3] = {m->rows, m->experts, m->wide};
    const struct shape *s = shape_make(c->a, DT_S64, pick, 3);
    hv hit = hb_compare(b, hb_broadcast(b, m->at, pick, 3, (int64_t[]){0, 1}), hb_iota(b, s, 2),
                        CMP_EQ);
    hv scale = hb_broadcast(b, m->scale, pick, 3, (int64_t[]){0, 1});
    scale = onnx_reduce_keep(c, hb_select(b, hit, scale, onnx_splat_like(c, scale, 0)), &one, 1,
                             HLO_ADD,
                             false); // [rows, experts]
    hv h = hb_dot_over(b, m->x, m->w1, one, two);
    hv bias = m->b1 ? hb_broadcast(b, m->b1, out, 3, both) : NULL;
    h = between(c, m, h, bias, scale);
    hv y = hb_dot(b, h, m->w2, // [rows, hidden]
                  &(struct hlo_attr_dot){.lhs_contracting_dims = {both, 2},
                                         .rhs_contracting_dims = {second, 2}});
    y = hb_convert(b, y, DT_F32);
    if (m->b2) y = hb_add(b, y, hb_matmul(b, scale, hb_convert(b, m->b2, DT_F32)));
    return y;
}
// Weights [experts, out, in] of the chosen as [chosen, in, out]: turned before they are gathered,
// which is done once.
static hv weights_of(struct onnx_ctx *c, hv w, hv at) {
    return onnx_take(c, onnx_swap_axes(c, w, 1, 2), at, 0);
}
static hv chosen_experts(struct onnx_ctx *c, const struct moe *m) {
    struct hb *b = &c->b;
    int64_t one = 1, all = m->rows * m->k, wide[3] = {m->rows, m->k, m->hidden};
    hv at = hb_reshape(b, m->at, &all, 1);
    hv x = hb_broadcast(b, m->x, wide, 3, (int64_t[]){0, 2});
    hv h = hb_matmul(b, hb_reshape(b, x, (int64_t[]){all, 1, m->hidden}, 3),
                     weights_of(c, m->w1, at)); // [chosen, 1, wide]
    h = hb_reshape(b, h, (int64_t[]){m->rows, m->k, m->wide}, 3);
    h = between(c, m, h, m->b1 ? onnx_take(c, m->b1, m->at, 0) : NULL, m->scale);
    hv y = hb_matmul(b, hb_reshape(b, h, (int64_t[]){all, 1, m->inter}, 3),
                     weights_of(c, m->w2, at));
    y = hb_convert(b, hb_reshape(b, y, wide, 3), DT_F32); // [rows, k, hidden]
    if (m->b2 && hb_ok(b)) {
        hv bias = hb_convert(b, onnx_take(c, m->b2, m->at, 0), DT_F32);
        y = hb_add(b, y, hb_mul(b, bias, hb_broadcast(b, m->scale, wide, 3, (int64_t[]){0, 1})));
    }
    return onnx_reduce_keep(c, y, &one, 1, HLO_ADD, false);
}

static void out_experts(struct onnx_ctx *c, const struct moe *m) {
    struct hb *b = &c->b;
    const struct shape *s = onnx_in_val(c, 0)->shape;
    bool few = m->rows <= m->experts / m->k / 3; // gathered, weights are read, written, read again
    hv y = few ? chosen_experts(c, m) : all_experts(c, m);
    onnx_out_val(c, 0, hb_reshape(b, hb_convert(b, y, s->dtype), s->dims, s->rank));
}

static bool moe_attributes(struct onnx_ctx *c) {
    static const char *const known[] = {"relu", "gelu", "silu", "identity", "swiglu"};
    struct str how = onnx_at_str(c, "activation_type", "relu");
    bool found = false;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        found |= str_is(how, known[k]);
    if (!found) return onnx_fail(c, "activation_type \"%.*s\"", (int)how.n, how.p), false;
    if (str_is(how, "swiglu") && onnx_at_int(c, "swiglu_fusion", 0) != 1)
        return onnx_fail(c, "swiglu_fusion %lld: only 1, gates and values in turn",
                         (long long)onnx_at_int(c, "swiglu_fusion", 0)),
               false;
    if (onnx_at_int(c, "use_sparse_mixer", 0) == 1 && onnx_at_int(c, "k", 1) != 2)
        return onnx_fail(c, "use_sparse_mixer takes k of 2"), false;
    return true;
}
// Sizes by the router's and the second weights' shapes, of which an element holds `packed` numbers.
static bool moe_sizes(struct onnx_ctx *c, struct moe *m, hv x, hv scores, hv w2, int64_t packed) {
    const struct shape *s = x->shape, *r = scores->shape, *w = w2->shape;
    if ((s->rank != 2 && s->rank != 3) || r->rank != 2 || w->rank != 3 ||
        s->dims[s->rank - 1] < 1 || r->dims[1] < 1 || w->dims[0] != r->dims[1] ||
        !dtype_is_float(s->dtype))
        return onnx_fail(c, "input %s, router_probs %s, fc2 %s", shape_text(c->a, s),
                         shape_text(c->a, r), shape_text(c->a, w)),
               false;
    m->hidden = s->dims[s->rank - 1], m->experts = r->dims[1], m->k = onnx_at_int(c, "k", 1);
    m->rows = shape_elements(s) / m->hidden;
    m->inter = shape_elements(w) / m->experts * packed / m->hidden;
    m->wide = str_is(onnx_at_str(c, "activation_type", "relu"), "swiglu") ? 2 * m->inter : m->inter;
    if (r->dims[0] != m->rows || m->k < 1 || m->k > m->experts || m->inter < 1)
        return onnx_fail(c, "k %lld of router_probs %s for %lld rows", (long long)m->k,
                         shape_text(c->a, r), (long long)m->rows),
               false;
    return true;
}
// An input as [experts, out] or [experts, out, in], in rows of `out` whatever its own shape.
static hv of_experts(struct onnx_ctx *c, size_t k, const int64_t *dims, int rank) {
    int64_t all = 1;
    if (!onnx_in_has(c, k)) return NULL;
    hv v = onnx_in_val(c, k);
    for (int d = 0; d < rank; d++)
        if (!sz_mul(all, dims[d], &all)) all = -1;
    if (shape_elements(v->shape) != all)
        return onnx_fail(c, "input %zu: %s", k, onnx_show(c, v)), NULL;
    return hb_reshape(&c->b, v, dims, rank);
}
ONNX(moe) { // x, router_probs, fc1 and its bias, fc2 and its bias, fc3 and its bias
    struct moe m = {.rows = 0};
    hv x = onnx_in_val(c, 0), scores = onnx_in_val(c, 1), w2 = onnx_in_val(c, 4);
    if (onnx_in_has(c, 6) || onnx_in_has(c, 7)) return onnx_fail(c, "fc3 is not supported");
    if (!hb_ok(b) || !moe_attributes(c) || !moe_sizes(c, &m, x, scores, w2, 1)) return;
    if (m.rows == 0) return onnx_out_val(c, 0, x);
    m.x = hb_reshape(b, x, (int64_t[]){m.rows, m.hidden}, 2);
    m.w1 = of_experts(c, 2, (int64_t[]){m.experts, m.wide, m.hidden}, 3);
    m.b1 = of_experts(c, 3, (int64_t[]){m.experts, m.wide}, 2);
    m.w2 = of_experts(c, 4, (int64_t[]){m.experts, m.hidden, m.inter}, 3);
    m.b2 = of_experts(c, 5, (int64_t[]){m.experts, m.hidden}, 2);
    if (!hb_ok(b)) return;
    choose(c, &m, soft(c, hb_convert(b, scores, DT_F32)));
    normalise(c, &m);
    if (!hb_ok(b)) return;
    out_experts(c, &m);
}

// ---- weights of few bits

// Bits of every weight: the widths of single products may only say the same.
static int64_t moe_bits(struct onnx_ctx *c) {
    int64_t bits = onnx_at_int(c, "expert_weight_bits", 4),
            fc1 = onnx_at_int(c, "fc1_expert_weight_bits", 0),
            fc2 = onnx_at_int(c, "fc2_expert_weight_bits", 0);
    struct str type = onnx_at_str(c, "quant_type", "int");
    if (bits != 2 && bits != 4 && bits != 8)
        onnx_fail(c, "expert_weight_bits %lld", (long long)bits);
    else if ((fc1 && fc1 != bits) || (fc2 && fc2 != bits))
        onnx_fail(c, "expert weights of different widths");
    else if (!str_is(type, "int"))
        onnx_fail(c, "quant_type \"%.*s\": only int", (int)type.n, type.p);
    return bits;
}
// Zero points [experts, out, blocks]: packed along the blocks, or along `out` where a row has one.
static hv expert_zeros(struct onnx_ctx *c, size_t k, const int64_t *dims, int64_t bits,
                       bool whole) {
    struct hb *b = &c->b;
    int64_t n = whole ? dims[1] : dims[2], bytes = (n * bits + 7) / 8, packed[3], flat[3];
    packed[0] = flat[0] = dims[0], packed[1] = flat[1] = whole ? 1 : dims[1];
    packed[2] = bytes, flat[2] = bytes * 8 / bits;
    hv z = of_experts(c, k, packed, 3);
    if (!z) return NULL;
    if (z->shape->dtype != DT_U8) return onnx_fail(c, "input %zu: expected bytes", k), NULL;
    z = onnx_part(c, hb_reshape(b, onnx_unpack_bits(c, z, bits), flat, 3), 2, 0, n);
    return hb_reshape(b, hb_convert(b, z, DT_F32), dims, 3);
}
// A value [experts, out, blocks] for each weight [experts, out, in]; the last block may be part.
static hv each_weight(struct onnx_ctx *c, hv v, const int64_t *dims, int64_t block) {
    struct hb *b = &c->b;
    if (!hb_ok(b)) return v;
    const int64_t *n = v->shape->dims;
    v = hb_broadcast(b, v, (int64_t[]){n[0], n[1], n[2], block}, 4, (int64_t[]){0, 1, 2});
    v = hb_reshape(b, v, (int64_t[]){dims[0], dims[1], n[2] * block}, 3);
    return onnx_part(c, v, 2, 0, dims[2]);
}
// Input k, packed [experts, out, in], as f32: (q - zero) * scale, of each block of a row or of the
// row; scales are the input behind it, zero points input z.
static hv expert_weights(struct onnx_ctx *c, size_t k, size_t z, const int64_t *dims) {
    struct hb *b = &c->b;
    int64_t bits = moe_bits(c), block = onnx_at_int(c, "block_size", 0), bytes = dims[2] * bits / 8;
    bool whole = block < 1;
    if (whole) block = dims[2];
    if (!hb_ok(b)) return NULL;
    if (block > 1 << 20 || dims[2] * bits % 8)
        return onnx_fail(c, "rows of %lld weights in blocks of %lld", (long long)dims[2],
                         (long long)block),
               NULL;
    int64_t blocks[3] = {dims[0], dims[1], (dims[2] + block - 1) / block};
    hv q = of_experts(c, k, (int64_t[]){dims[0], dims[1], bytes}, 3);
    hv scale = of_experts(c, k + 1, blocks, 3);
    hv zero = hb_ok(b) ? expert_zeros(c, z, blocks, bits, whole) : NULL;
    if (!hb_ok(b)) return NULL;
    if (!q || !scale || q->shape->dtype != DT_U8)
        return onnx_fail(c, "input %zu: expected bytes and their scales", k), NULL;
    q = hb_convert(b, onnx_unpack_bits(c, q, bits), DT_F32);
    if (zero)
        q = hb_sub(b, q, each_weight(c, zero, dims, block));
    else
        q = onnx_add_k(c, q, -(double)(1 << (bits - 1)));
    return hb_mul(b, q, each_weight(c, hb_convert(b, scale, DT_F32), dims, block));
}
// The scales: a softmax of the chosen scores, or what router_weights has for the chosen.
static void quantised_route(struct onnx_ctx *c, struct moe *m, hv scores) {
    struct hb *b = &c->b;
    choose(c, m, hb_convert(b, scores, DT_F32));
    if (!hb_ok(b)) return;
    if (!onnx_in_has(c, 14)) {
        m->scale = soft(c, m->scale);
        return;
    }
    hv w = of_experts(c, 14, (int64_t[]){m->rows, m->experts}, 2);
    if (!hb_ok(b)) return;
    m->scale = onnx_take_points(c, hb_convert(b, w, DT_F32), onnx_element_points(c, m->at, 1), 2);
    normalise(c, m);
    if (!hb_ok(b)) return;
    m->scale = hb_max(b, m->scale, onnx_splat_like(c, m->scale, 0)); // such experts are not asked
}
ONNX(qmoe) { // x, router_probs, (weights, scales, bias) of fc1, fc2, fc3, zero points, ...
    struct moe m = {.rows = 0};
    hv x = onnx_in_val(c, 0), scores = onnx_in_val(c, 1), w2 = onnx_in_val(c, 5);
    int64_t bits = moe_bits(c);
    for (size_t k = 8; k < 21; k++)
        if (onnx_in_has(c, k) && k != 11 && k != 12 && k != 14)
            return onnx_fail(c, "input %zu is not supported", k);
    if (!hb_ok(b) || !moe_attributes(c) || !moe_sizes(c, &m, x, scores, w2, 8 / bits)) return;
    if (m.rows == 0) return onnx_out_val(c, 0, x);
    m.x = hb_reshape(b, hb_convert(b, x, DT_F32), (int64_t[]){m.rows, m.hidden}, 2);
    m.w1 = expert_weights(c, 2, 11, (int64_t[]){m.experts, m.wide, m.hidden});
    m.w2 = expert_weights(c, 5, 12, (int64_t[]){m.experts, m.hidden, m.inter});
    m.b1 = of_experts(c, 4, (int64_t[]){m.experts, m.wide}, 2);
    m.b2 = of_experts(c, 7, (int64_t[]){m.experts, m.hidden}, 2);
    if (!hb_ok(b)) return;
    quantised_route(c, &m, scores);
    if (hb_ok(b)) out_experts(c, &m);
}
