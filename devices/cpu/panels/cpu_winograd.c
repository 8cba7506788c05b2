// SPDX-License-Identifier: Apache-2.0
// winograd: convolutions of f32 with 3x3 windows of stride 1 over images in blocks of channels,
// whose weights are bound, with the post-operations of library.h: what cpu_winograd.h says, as a
// step. Weights are transformed at PREPARE, or in each run where that is little; what tile a
// convolution has, or none, is cpu_choice.c's to say. Not under precision=strict.
// Does not: other windows, weights that the program computes. Those are the library's.
#include "devices/cpu/panels/cpu_winograd.h"

#include "devices/cpu/cpu.h"

struct winograd_state {
    struct winograd w;
    int x, weights, out; // leaves
    int leaf[LIB_MAX_POST];
};

// ---- which ones

static bool in_blocks(const struct shape *s, int lanes) {
    int block;
    return s->dtype == DT_F32 && s->rank == 4 && !s->dynamic &&
           lib_form_of(s->layout, s->rank, &block) == FORM_BLOCKED && block == lanes;
}
static bool posts_ok(const struct lib_call *c, int lanes) {
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        if (p->kind > LIB_POST_SWISH ||
            (p->kind == LIB_POST_SUM && !in_blocks(p->operand->shape, lanes)) ||
            (p->kind == LIB_POST_BIAS && p->operand->shape->dtype != DT_F32))
            return false;
    }
    return true;
}
static bool takes(const struct hlo_instr *i, struct lib_call *c) {
    int lanes = cpu_target()->conv_block;
    if (shape_is_tuple(i->shape) || !lib_match(i, c) || c->hero->op != HLO_CONVOLUTION ||
        !cpu_panel_isa(cpu_target()->vector_bits))
        return false;
    const struct shape *w = c->rhs->shape;
    return cpu_winograd_tile(c->hero) && in_blocks(c->lhs->shape, lanes) &&
           in_blocks(c->result, lanes) && w->dtype == DT_F32 &&
           layout_is_default(w->layout, w->rank) && posts_ok(c, lanes);
}
static bool winograd_accepts(const struct cpu_exe *x, const struct hlo_instr *i, const char **why) {
    struct lib_call c;
    *why = x->strict ? "precision is strict" : "not a 3x3 convolution that gains by it";
    return !x->strict && takes(i, &c);
}

// ---- a step

static status_t winograd_open(struct cpu_exe *x, struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    if (!takes(i, &c)) return st_internal("accepted a convolution that does not match");
    int weights = lib_operand(i, c.rhs);
    s->declined = !cpu_is_bound(x, s, weights);
    if (s->declined) return ST_OK;
    struct winograd_state *t = arena_new_of(&x->arena, struct winograd_state);
    const struct shape *in = c.lhs->shape, *out = c.result;
    const struct window *v = &HLO_ATTR(c.hero, conv)->window;
    t->w = (struct winograd){.batch = in->dims[0],
                             .channels = in->dims[1],
                             .features = out->dims[1],
                             .height = in->dims[2],
                             .width = in->dims[3],
                             .out_height = out->dims[2],
                             .out_width = out->dims[3],
                             .top = v->v[0].pad_low,
                             .left = v->v[1].pad_low,
                             .m = cpu_winograd_tile(c.hero),
                             .n_post = c.n_post};
    t->x = lib_operand(i, c.lhs), t->weights = weights, t->out = s->plan->n_in;
    lib_copy_posts(&c, t->w.post, t->leaf);
    if (!winograd_plan(&t->w, cpu_target()->vector_bits, cpu_threads()))
        return st_internal("no tiles for this CPU");

    int64_t scratch = winograd_scratch_bytes(&t->w, cpu_threads());
    if (scratch > x->scratch_bytes) x->scratch_bytes = scratch;
    s->flops = 2 * shape_elements(out) * 9 * t->w.channels; // of the sums as they are written
    s->products = winograd_products(&t->w);
    s->alone = winograd_alone(&t->w);
    if (!t->w.anew) {
        s->packed_in = weights;
        s->pack_slot = x->n_packs++;
    }
    s->detail = arena_printf(&x->arena, "winograd:%s:%dx%d", t->w.panel->name, t->w.m, t->w.m);
    s->state = t;
    return ST_OK;
}
static int64_t winograd_pack_bytes(const struct cpu_step *s) {
    const struct winograd_state *t = s->state;
    return winograd_packed_bytes(&t->w);
}
static status_t winograd_pack_step(UNUSED struct cpu_exe *x, struct cpu_step *s, const void *plain,
                                   void *packed) {
    const struct winograd_state *t = s->state;
    winograd_pack(&t->w, plain, packed);
    return ST_OK;
}
static bool winograd_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct winograd *v = &((const struct winograd_state *)a->state)->w,
                          *w = &((const struct winograd_state *)b->state)->w;
    return v->m == w->m && v->channels == w->channels && v->features == w->features;
}
static status_t winograd_run_step(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct winograd_state *t = s->state;
    struct winograd_run r = {.w = &t->w,
                             .image = bufs[t->x],
                             .weights = bufs[t->weights],
                             .out = bufs[t->out],
                             .scratch = x->scratch};
    for (int k = 0; k < t->w.n_post; k++)
        if (t->leaf[k] >= 0) r.operand[k] = bufs[t->leaf[k]];
    winograd_run(&r);
    return ST_OK;
}
const struct cpu_impl cpu_impl_winograd = {
    "winograd",        winograd_accepts,    winograd_open,      NULL,
    winograd_run_step, winograd_pack_bytes, winograd_pack_step, winograd_same_pack};
