// SPDX-License-Identifier: Apache-2.0
// pointwise: convolutions of f32 by a window of one pixel, stride 1, over images in blocks of
// channels whose weights are bound: cpu_pointwise.h's, as a step. Which ones, cpu_choice.c says.
// Does not: strides, padding, groups, weights that the program computes. Those are the library's.
#include "devices/cpu/panels/cpu_pointwise.h"

#include "devices/cpu/cpu.h"
#include "devices/cpu/onednn/cpu_onednn.h"

struct pointwise_state {
    struct pointwise p;
    int x, weights, out; // leaves
    int leaf[LIB_MAX_POST];
};

// ---- which ones

static bool in_blocks(const struct shape *s) {
    int block;
    return s->dtype == DT_F32 && !s->dynamic &&
           lib_form_of(s->layout, s->rank, &block) == FORM_BLOCKED && block == POINT_LANES;
}
// A sum stands before activations. Those that are done on results in memory pay for results that
// stay near.
static bool posts_ok(const struct lib_call *c) {
    enum { FAR = 1 << 20 };
    bool acts = false, far = shape_bytes(c->result) > FAR;
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        bool bounds = p->kind == LIB_POST_RELU || p->kind == LIB_POST_CLIP;
        if (p->kind > LIB_POST_SWISH || (p->kind == LIB_POST_BIAS && k > 0) ||
            (p->kind == LIB_POST_SUM && (acts || !in_blocks(p->operand->shape))) ||
            (p->kind == LIB_POST_BIAS && p->operand->shape->dtype != DT_F32))
            return false;
        acts |= p->kind != LIB_POST_BIAS && p->kind != LIB_POST_SUM;
        if (acts && !bounds && far) return false;
    }
    return true;
}
static bool one_pixel(const struct hlo_instr *h) {
    const struct hlo_attr_conv *a = HLO_ATTR(h, conv);
    if (a->feature_group_count != 1 || !onednn_conv_ok(h)) return false;
    for (int d = 0; d < a->window.n; d++) {
        const struct window_dim *w = &a->window.v[d];
        if (w->size != 1 || w->stride != 1 || w->pad_low || w->pad_high) return false;
    }
    return true;
}
static bool takes(const struct hlo_instr *i, struct lib_call *c) {
    if (cpu_target()->vector_bits != 512 || shape_is_tuple(i->shape) || !lib_match(i, c) ||
        c->hero->op != HLO_CONVOLUTION || !one_pixel(c->hero) || !cpu_pointwise_better(c->hero))
        return false;
    const struct shape *w = c->rhs->shape;
    return in_blocks(c->lhs->shape) && in_blocks(c->result) && w->dtype == DT_F32 &&
           layout_is_default(w->layout, w->rank) && posts_ok(c) && shape_elements(i->shape) > 0 &&
           shape_elements(w) > 0;
}
static bool pointwise_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                              const char **why) {
    struct lib_call c;
    *why = "not a 1x1 convolution over blocks of channels";
    return takes(i, &c);
}

// ---- a step

static status_t pointwise_open(struct cpu_exe *x, struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    if (!takes(i, &c)) return st_internal("accepted a convolution that does not match");
    int weights = lib_operand(i, c.rhs);
    s->declined = !cpu_is_bound(x, s, weights);
    if (s->declined) return ST_OK;
    struct pointwise_state *t = arena_new_of(&x->arena, struct pointwise_state);
    const struct shape *in = c.lhs->shape;
    t->p = (struct pointwise){.images = in->dims[0],
                              .pixels = 1,
                              .channels = in->dims[1],
                              .features = c.result->dims[1],
                              .n_post = c.n_post};
    for (int d = 2; d < in->rank; d++)
        t->p.pixels *= in->dims[d];
    t->x = lib_operand(i, c.lhs), t->weights = weights, t->out = s->plan->n_in;
    lib_copy_posts(&c, t->p.post, t->leaf);
    pointwise_plan(&t->p, cpu_threads());

    s->packed_in = weights;
    s->pack_slot = x->n_packs++;
    s->flops = 2 * t->p.images * t->p.pixels * t->p.channels * t->p.features;
    s->alone = t->p.units < 2 * t->p.grain;
    s->apart = true;
    s->detail = "pointwise:avx512";
    s->state = t;
    return ST_OK;
}
static int64_t pointwise_pack_bytes(const struct cpu_step *s) {
    const struct pointwise_state *t = s->state;
    return pointwise_packed_bytes(&t->p);
}
static status_t pointwise_pack_step(UNUSED struct cpu_exe *x, struct cpu_step *s, const void *plain,
                                    void *packed) {
    const struct pointwise_state *t = s->state;
    pointwise_pack(&t->p, plain, packed);
    return ST_OK;
}
static bool pointwise_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct pointwise *v = &((const struct pointwise_state *)a->state)->p,
                           *w = &((const struct pointwise_state *)b->state)->p;
    return v->channels == w->channels && v->features == w->features;
}
static status_t pointwise_run_step(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct pointwise_state *t = s->state;
    struct pointwise_run r = {
        .p = &t->p, .image = bufs[t->x], .weights = bufs[t->weights], .out = bufs[t->out]};
    for (int k = 0; k < t->p.n_post; k++)
        if (t->leaf[k] >= 0) r.operand[k] = bufs[t->leaf[k]];
    pointwise_run(&r);
    return ST_OK;
}
const struct cpu_impl cpu_impl_pointwise = {
    "pointwise",        pointwise_accepts,    pointwise_open,      NULL,
    pointwise_run_step, pointwise_pack_bytes, pointwise_pack_step, pointwise_same_pack};
