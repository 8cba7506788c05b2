// SPDX-License-Identifier: Apache-2.0
// Optimisers: w' = w - rate * (direction + decay * w). Sutskever et al. 2013 (momentum, Nesterov),
// Kingma & Ba 2015 (Adam), Loshchilov & Hutter 2019 (AdamW), Hinton's lecture 6e (RMSprop), Duchi
// et al. 2011 (Adagrad), Chen et al. 2023 (Lion).
#include "compiler/train/parts.h"

#include <math.h>

const struct optimizer_row optimizer_rows[TRAIN_OPTIMIZER_COUNT] = {
#define OPTIMIZER(id, text, slots, initial, decoupled, ...)                                        \
    {text, slots, initial, decoupled, {__VA_ARGS__}},
#include "compiler/train/optimizers.def"
#undef OPTIMIZER
};

// A factor of x: k, or `otherwise` where the step does not count.
static hv times(struct update *u, hv x, double k, double otherwise) {
    struct hb *b = u->b;
    if (!u->good || !hb_ok(b)) return part_mul(b, x, k);
    enum dtype t = x->shape->dtype;
    hv factor = hb_select(b, u->good, hb_const_f64(b, t, k), hb_const_f64(b, t, otherwise));
    return hb_mul(b, x, part_wide(b, factor, x));
}
static hv blend(struct update *u, hv old, hv now, double keep) {
    return hb_add(u->b, times(u, old, keep, 1), times(u, now, 1 - keep, 0));
}
static hv square(struct hb *b, hv x) {
    return hb_mul(b, x, x);
}
// 1 - k^step, without cancellation.
static hv not_yet(struct update *u, double k) {
    hv power = part_mul(u->b, u->step, log(k));
    return hb_unary(u->b, HLO_NEGATE, hb_unary(u->b, HLO_EXPM1, power));
}
static hv divided(struct update *u, hv x, hv scalar) {
    return hb_div(u->b, x, part_wide(u->b, scalar, x));
}

static hv optimizer_sgd(struct update *u) {
    return u->gradient;
}
static hv optimizer_momentum(struct update *u) {
    struct hb *b = u->b;
    u->next[0] = hb_add(b, times(u, u->slots[0], u->s->hyper.momentum, 1), u->gradient);
    return u->next[0];
}
static hv optimizer_nesterov(struct update *u) {
    hv v = optimizer_momentum(u);
    return hb_add(u->b, part_mul(u->b, v, u->s->hyper.momentum), u->gradient);
}
static hv optimizer_adam(struct update *u) {
    struct hb *b = u->b;
    const struct train_hyper *h = &u->s->hyper;
    u->next[0] = blend(u, u->slots[0], u->gradient, h->beta1);
    u->next[1] = blend(u, u->slots[1], square(b, u->gradient), h->beta2);
    hv m = divided(u, u->next[0], not_yet(u, h->beta1));
    hv v = divided(u, u->next[1], not_yet(u, h->beta2));
    return hb_div(b, m, part_add(b, hb_unary(b, HLO_SQRT, v), h->eps));
}
static hv optimizer_adamw(struct update *u) {
    return optimizer_adam(u);
}
static hv optimizer_rmsprop(struct update *u) {
    struct hb *b = u->b;
    u->next[0] = blend(u, u->slots[0], square(b, u->gradient), u->s->hyper.decay);
    hv scale = hb_unary(b, HLO_RSQRT, part_add(b, u->next[0], u->s->hyper.eps));
    return hb_mul(b, u->gradient, scale);
}
static hv optimizer_adagrad(struct update *u) {
    struct hb *b = u->b;
    u->next[0] = hb_add(b, u->slots[0], square(b, u->gradient));
    hv scale = hb_unary(b, HLO_RSQRT, part_add(b, u->next[0], u->s->hyper.eps));
    return hb_mul(b, u->gradient, scale);
}
static hv optimizer_lion(struct update *u) {
    struct hb *b = u->b;
    hv now = blend(u, u->slots[0], u->gradient, u->s->hyper.beta1);
    u->next[0] = blend(u, u->slots[0], u->gradient, u->s->hyper.beta2);
    return hb_unary(b, HLO_SIGN, now);
}

// A step that does not count leaves all as it was by its factors: the gradient is 0, what is kept
// is kept by 1, the rate is 0. So new values need no second pass that chooses between them and the
// old ones.
hv optimizer_step(struct update *u) {
    static hv (*const rules[TRAIN_OPTIMIZER_COUNT])(struct update *) = {
#define OPTIMIZER(id, ...) optimizer_##id,
#include "compiler/train/optimizers.def"
#undef OPTIMIZER
    };
    struct hb *b = u->b;
    bool decoupled = optimizer_rows[u->s->optimizer].decoupled;
    double decay = u->decays ? u->s->hyper.weight_decay : 0;
    hv pull = decay != 0 ? part_mul(b, u->weight, decay) : NULL, rate = u->rate;
    if (pull && !decoupled) u->gradient = hb_add(b, u->gradient, pull);
    if (u->good && hb_ok(b)) {
        const struct shape *s = shape_with_dtype(b->c->module->arena, u->gradient->shape, DT_PRED);
        hv wide = s->rank ? hb_broadcast(b, u->good, s->dims, s->rank, NULL) : u->good;
        u->gradient = hb_select(b, wide, u->gradient, part_like(b, u->gradient, 0));
        rate = hb_select(b, u->good, rate, part_like(b, rate, 0));
    }

    hv direction = rules[u->s->optimizer](u);
    if (pull && decoupled) direction = hb_add(b, direction, pull);
    hv next = hb_sub(b, u->weight, hb_mul(b, part_wide(b, rate, direction), direction));
    if (u->s->ema > 0) u->next_mean = blend(u, u->mean, next, u->s->ema);
    return next;
}
