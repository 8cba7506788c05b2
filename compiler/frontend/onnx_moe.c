// SPDX-License-Identifier: Apache-2.0
// Mixture of experts (com.microsoft MoE): each row goes through the k experts that its router
// scores choose. Many rows: all experts for all rows as two products, what was not chosen weighted
// by 0. Few rows of many experts: the chosen experts' weights are gathered. What ONNX Runtime's CPU
// kernel refuses (fc3, SwiGLU in two parts) is refused here, and use_sparse_mixer changes nothing,
// as there.
#include "compiler/frontend/onnx_tools.h"

struct moe {
    int64_t rows, hidden, inter, wide, experts, k; // wide: of the first product
    hv x;                                          // [rows, hidden]
    hv at, scale;                                  // s64 and f32 [rows, k]: the chosen
    hv w1, b1, w2, b2;                             // [experts, out, in], [experts, out] or NULL
};

// The k largest of each row's softmax, of equal ones the last.
static void route(struct onnx_ctx *c, struct moe *m, hv scores) {
    struct hb *b = &c->b;
    int64_t last = 1;
    hv s = hb_convert(b, scores, DT_F32);
    hv top = reduce_keep(c, s, &last, 1, HLO_MAXIMUM, false);
    s = hb_unary(b, HLO_EXP, hb_sub(b, s, back_to(c, top, s->shape, &last, 1)));
    s = hb_div(b, s, back_to(c, reduce_keep(c, s, &last, 1, HLO_ADD, false), s->shape, &last, 1));
    s = hb_reverse(b, s, &last, 1);
    hv r = hb_op(b, HLO_TOPK, NULL, &s, 1, &(struct hlo_attr_topk){.k = m->k, .largest = true});
    if (!hb_ok(b)) return;
    m->scale = hb_gte(b, r, 0);
    m->at = hb_convert(b, hb_gte(b, r, 1), DT_S64);
    m->at = hb_sub(b, splat_like(c, m->at, (double)(m->experts - 1)), m->at);
    if (at_int(c, "normalize_routing_weights", 0) != 1) return;
    hv sum = reduce_keep(c, m->scale, &last, 1, HLO_ADD, false);
    m->scale = hb_div(b, m->scale, back_to(c, sum, m->scale->shape, &last, 1));
}
// Gates and values in turn, [rows, n, 2 * inter] -> [rows, n, inter].
static hv swiglu(struct onnx_ctx *c, hv h, int64_t inter) {
    struct hb *b = &c->b;
    int64_t dims[4] = {h->shape->dims[0], h->shape->dims[1], inter, 2};
    h = hb_reshape(b, h, dims, 4);
    hv gate = row(c, h, 3, 0), value = row(c, h, 3, 1);
    if (onnx_attr(c->n, "swiglu_limit")) {
        hv hi = splat_like(c, gate, (double)at_float(c, "swiglu_limit", 0));
        gate = hb_min(b, gate, hi);
        value = hb_clamp(b, hb_unary(b, HLO_NEGATE, hi), value, hi);
    }
    hv s = hb_unary(b, HLO_LOGISTIC, mul_k(c, gate, (double)at_float(c, "activation_alpha", 1)));
    value = add_k(c, value, (double)at_float(c, "activation_beta", 0));
    return hb_mul(b, hb_mul(b, gate, s), value);
}
static hv moe_activation(struct onnx_ctx *c, const struct moe *m, hv h) {
    struct str how = at_str(c, "activation_type", "relu");
    if (str_is(how, "swiglu")) return swiglu(c, h, m->inter);
    if (str_is(how, "gelu")) return onnx_gelu(c, h, true);
    if (str_is(how, "silu")) return hb_mul(&c->b, h, hb_unary(&c->b, HLO_LOGISTIC, h));
    if (str_is(how, "relu")) return hb_max(&c->b, h, splat_like(c, h, 0));
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
    hv none = splat_like(c, h, 0); // an expert that was not chosen is not asked
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
    scale = reduce_keep(c, hb_select(b, hit, scale, splat_like(c, scale, 0)), &one, 1, HLO_ADD,
                        false); // [rows, experts]
    hv h = hb_dot(b, m->x, m->w1,
                  &(struct hlo_attr_dot){.lhs_contracting_dims = {&one, 1},
                                         .rhs_contracting_dims = {&two, 1}});
    hv bias = m->b1 ? hb_broadcast(b, m->b1, out, 3, both) : NULL;
    h = between(c, m, h, bias, scale);
    hv y = hb_dot(b, h, m->w2, // [rows, hidden]
                  &(struct hlo_attr_dot){.lhs_contracting_dims = {both, 2},
                                         .rhs_contracting_dims = {second, 2}});
    y = hb_convert(b, y, DT_F32);
    if (m->b2) y = hb_add(b, y, hb_matmul(b, scale, hb_convert(b, m->b2, DT_F32)));
    return y;
}
static hv chosen_experts(struct onnx_ctx *c, const struct moe *m) {
    struct hb *b = &c->b;
    int64_t zero = 0, one = 1, three = 3, both[2] = {1, 2}, second[2] = {1, 3};
    hv h = hb_dot(b, m->x, take(c, m->w1, m->at, 0), // [rows, k, wide]
                  &(struct hlo_attr_dot){.lhs_batch_dims = {&zero, 1},
                                         .rhs_batch_dims = {&zero, 1},
                                         .lhs_contracting_dims = {&one, 1},
                                         .rhs_contracting_dims = {&three, 1}});
    h = between(c, m, h, m->b1 ? take(c, m->b1, m->at, 0) : NULL, m->scale);
    hv y = hb_dot(b, h, take(c, m->w2, m->at, 0), // [rows, hidden]
                  &(struct hlo_attr_dot){.lhs_batch_dims = {&zero, 1},
                                         .rhs_batch_dims = {&zero, 1},
                                         .lhs_contracting_dims = {both, 2},
                                         .rhs_contracting_dims = {second, 2}});
    y = hb_convert(b, y, DT_F32);
    if (!m->b2 || !hb_ok(b)) return y;
    hv bias = hb_convert(b, take(c, m->b2, m->at, 0), DT_F32); // [rows, k, hidden]
    bias = hb_mul(b, bias, hb_broadcast(b, m->scale, bias->shape->dims, 3, (int64_t[]){0, 1}));
    return hb_add(b, y, reduce_keep(c, bias, &one, 1, HLO_ADD, false));
}

static bool moe_attributes(struct onnx_ctx *c) {
    static const char *const known[] = {"relu", "gelu", "silu", "identity", "swiglu"};
    struct str how = at_str(c, "activation_type", "relu");
    bool found = false;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        found |= str_is(how, known[k]);
    if (!found) return fail(c, "activation_type \"%.*s\"", (int)how.n, how.p), false;
    if (str_is(how, "swiglu") && at_int(c, "swiglu_fusion", 0) != 1)
        return fail(c, "swiglu_fusion %lld: only 1, gates and values in turn",
                    (long long)at_int(c, "swiglu_fusion", 0)),
               false;
    if (at_int(c, "use_sparse_mixer", 0) == 1 && at_int(c, "k", 1) != 2)
        return fail(c, "use_sparse_mixer takes k of 2"), false;
    return true;
}
// Sizes by the router's and the second weights' shapes; *m without what is computed.
static bool moe_sizes(struct onnx_ctx *c, struct moe *m, hv x, hv scores, hv w2) {
    const struct shape *s = x->shape, *r = scores->shape, *w = w2->shape;
    if ((s->rank != 2 && s->rank != 3) || r->rank != 2 || w->rank != 3 ||
        s->dims[s->rank - 1] < 1 || r->dims[1] < 1 || w->dims[0] != r->dims[1] ||
        !dtype_is_float(s->dtype))
        return fail(c, "input %s, router_probs %s, fc2 %s", shape_text(c->a, s),
                    shape_text(c->a, r), shape_text(c->a, w)),
               false;
    m->hidden = s->dims[s->rank - 1], m->experts = r->dims[1], m->k = at_int(c, "k", 1);
    m->rows = shape_elements(s) / m->hidden;
    m->inter = shape_elements(w) / m->experts / m->hidden;
    m->wide = str_is(at_str(c, "activation_type", "relu"), "swiglu") ? 2 * m->inter : m->inter;
    if (r->dims[0] != m->rows || m->k < 1 || m->k > m->experts || m->inter < 1)
        return fail(c, "k %lld of router_probs %s for %lld rows", (long long)m->k,
                    shape_text(c->a, r), (long long)m->rows),
               false;
    return true;
}
// An input as [experts, out] or [experts, out, in], in rows of `out` whatever its own shape.
static hv of_experts(struct onnx_ctx *c, size_t k, const int64_t *dims, int rank) {
    int64_t all = 1;
    if (!in_has(c, k)) return NULL;
    hv v = in_val(c, k);
    for (int d = 0; d < rank; d++)
        if (!sz_mul(all, dims[d], &all)) all = -1;
    if (shape_elements(v->shape) != all)
        return fail(c, "input %zu: %s", k, shape_text(c->a, v->shape)), NULL;
    return hb_reshape(&c->b, v, dims, rank);
}
ONNX(moe) { // x, router_probs, fc1 and its bias, fc2 and its bias, fc3 and its bias
    struct hb *b = &c->b;
    struct moe m = {.rows = 0};
    hv x = in_val(c, 0), scores = in_val(c, 1), w2 = in_val(c, 4);
    if (in_has(c, 6) || in_has(c, 7)) return fail(c, "fc3 is not supported");
    if (!hb_ok(b) || !moe_attributes(c) || !moe_sizes(c, &m, x, scores, w2)) return;
    if (m.rows == 0) return out_val(c, 0, x);
    m.x = hb_reshape(b, x, (int64_t[]){m.rows, m.hidden}, 2);
    m.w1 = of_experts(c, 2, (int64_t[]){m.experts, m.wide, m.hidden}, 3);
    m.b1 = of_experts(c, 3, (int64_t[]){m.experts, m.wide}, 2);
    m.w2 = of_experts(c, 4, (int64_t[]){m.experts, m.hidden, m.inter}, 3);
    m.b2 = of_experts(c, 5, (int64_t[]){m.experts, m.hidden}, 2);
    if (!hb_ok(b)) return;
    route(c, &m, scores);
    if (!hb_ok(b)) return;
    hv y = m.rows < (m.experts + m.k - 1) / m.k ? chosen_experts(c, &m) : all_experts(c, &m);
    out_val(c, 0, hb_reshape(b, hb_convert(b, y, x->shape->dtype), x->shape->dims, x->shape->rank));
}
