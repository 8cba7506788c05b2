// SPDX-License-Identifier: Apache-2.0
// Losses: negative log likelihood and softmax with cross entropy. The class is picked by comparing
// positions, which fuses with what comes before.
#include "compiler/frontend/onnx/onnx_tools.h"

// logp [N, C, d...], target [N, d...], weight [C] or NULL
static hv likelihood_loss(struct onnx_ctx *c, hv logp, hv target, hv weight) {
    struct hb *b = &c->b;
    const struct shape *s = logp->shape;
    int64_t channel = 1, all[HLO_MAX_RANK];

    if (s->rank < 2 || target->shape->rank != s->rank - 1)
        return onnx_fail(c, "target %s for scores %s", onnx_show(c, target), shape_text(c->a, s)),
               logp;

    // A negative class counts from the last, as where the standard's own form gathers.
    target = hb_convert(b, target, DT_S64);
    hv named = target, from_last = onnx_add_k(c, target, (double)s->dims[1]);
    target = hb_select(b, onnx_compare_k(c, target, 0, CMP_LT), from_last, target);
    hv wide = onnx_back_to(c, target, s, &channel, 1);
    hv hit = hb_compare(b, wide, onnx_index_along(c, s, DT_S64, 1), CMP_EQ),
       zero = onnx_splat_like(c, logp, 0);
    hv loss = onnx_reduce_keep(c, hb_select(b, hit, logp, zero), &channel, 1, HLO_ADD, false);
    loss = hb_unary(b, HLO_NEGATE, loss);

    hv w = NULL;
    if (weight) {
        hv each = hb_select(b, hit, onnx_along(c, weight, s, 1), zero);
        w = onnx_reduce_keep(c, each, &channel, 1, HLO_ADD, false);
    }

    if (onnx_attr(c->n, "ignore_index")) {
        double ignored = (double)onnx_at_int(c, "ignore_index", 0);
        hv counts = onnx_compare_k(c, named, ignored, CMP_NE);
        w = w ? hb_select(b, counts, w, onnx_splat_like(c, w, 0)) : hb_convert(b, counts, s->dtype);
        loss = hb_select(b, counts, loss, onnx_splat_like(c, loss, 0));
    }

    if (w) loss = hb_mul(b, loss, w);
    struct str how = onnx_at_str(c, "reduction", "mean");
    if (str_is(how, "none")) return loss;

    for (int d = 0; d < loss->shape->rank; d++)
        all[d] = d;
    hv sum = onnx_reduce_keep(c, loss, all, loss->shape->rank, HLO_ADD, false);
    if (!str_is(how, "mean")) return sum; // as ONNX Runtime takes any other text
    if (!w) return onnx_mul_k(c, sum, 1 / (double)shape_elements(loss->shape));
    return hb_div(b, sum, onnx_reduce_keep(c, w, all, w->shape->rank, HLO_ADD, false));
}

ONNX(nllloss) {
    hv weight = onnx_in_opt(c, 2);
    onnx_out_val(c, 0, likelihood_loss(c, onnx_in_val(c, 0), onnx_in_val(c, 1), weight));
}
ONNX_X(softmaxloss) {
    hv weight = onnx_in_opt(c, 2);
    int64_t channel = 1;
    if (x->shape->rank < 2) return onnx_fail(c, "scores %s", onnx_show(c, x));
    hv m = onnx_reduce_keep(c, x, &channel, 1, HLO_MAXIMUM, false);
    hv d = hb_sub(b, x, onnx_back_to(c, m, x->shape, &channel, 1));
    hv sum = onnx_reduce_keep(c, hb_unary(b, HLO_EXP, d), &channel, 1, HLO_ADD, false);
    hv logp = hb_sub(b, d, onnx_back_to(c, hb_unary(b, HLO_LOG, sum), x->shape, &channel, 1));
    onnx_out_val(c, 0, likelihood_loss(c, logp, onnx_in_val(c, 1), weight));
    onnx_out_val(c, 1, logp);
}
