// SPDX-License-Identifier: Apache-2.0
// amx: products of bf16 matrices whose right operand is a bound weight, by AMX's tiles (cpu_amx.h),
// as a step, with the post-operations of library.h; results in f32 or bf16.
// Does not: batches, right operands that a run computes, convolutions, 8-bit integers. Those are
// the library's. Which products, cpu_choice.c says.
#include "devices/cpu/amx/cpu_amx.h"

#include "devices/cpu/cpu_bind.h"
#include "devices/cpu/onednn/cpu_onednn.h"

enum { AWAKE = 3 }; // in a loop other threads are awake: a third of the share is worth one

struct amx_state {
    struct amx m;
    int left, right, out; // leaves
    int leaf[LIB_MAX_POST];
    bool leaf_bf16[LIB_MAX_POST];
};

static bool rows_of(const struct shape *s, bool f32) {
    return !shape_is_tuple(s) && (s->dtype == DT_BF16 || (f32 && s->dtype == DT_F32)) &&
           !s->dynamic && layout_is_default(s->layout, s->rank) && shape_elements(s) > 0;
}
static bool takes(const struct hlo_instr *i, struct lib_call *c) {
    if (!cpu_amx_isa() || !rows_of(i->shape, true) || !lib_match(i, c) || c->hero->op != HLO_DOT ||
        !rows_of(c->lhs->shape, false) || !rows_of(c->rhs->shape, false) ||
        c->hero->shape->dtype != DT_F32 || !onednn_dot_ok(c->hero) ||
        HLO_ATTR(c->hero, dot)->lhs_batch_dims.n)
        return false;
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        if (p->kind > LIB_POST_BF16 || (p->operand && !rows_of(p->operand->shape, true)))
            return false;
    }
    struct onednn_dot d;
    onednn_dot_dims(c->hero, &d);
    return d.left_strides[1] == 1 || d.left[1] == 1;
}
static bool amx_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                        const char **why) {
    struct lib_call c;
    *why = "not a product of bf16 matrices on a CPU with AMX, or not asked for by a tuning";
    return takes(i, &c);
}

static status_t amx_open(struct cpu_exe *x, struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    struct onednn_dot d;
    if (!takes(i, &c)) return st_internal("accepted a product that does not match");
    int right = lib_operand(i, c.rhs);
    s->declined = !cpu_amx_better() || !cpu_is_bound(x, s, right);
    if (s->declined) return ST_OK;
    onednn_dot_dims(c.hero, &d);
    struct amx_state *t = arena_new_of(&x->arena, struct amx_state);
    t->left = lib_operand(i, c.lhs), t->right = right, t->out = s->plan->n_in;
    t->m = (struct amx){.rows = d.left[0],
                        .depth = d.left[1],
                        .columns = d.right[1],
                        .left_row = d.left_strides[0],
                        .right_term = d.right_strides[0],
                        .right_column = d.right_strides[1],
                        .bf16 = i->shape->dtype == DT_BF16,
                        .n_post = c.n_post};
    lib_copy_posts(&c, t->m.post, t->leaf);
    for (int k = 0; k < c.n_post; k++)
        t->leaf_bf16[k] = t->leaf[k] >= 0 && c.post[k].operand->shape->dtype == DT_BF16;

    amx_plan(&t->m, cpu_amx_isa(), cpu_threads());
    if (x->in_loop) t->m.grain = t->m.grain / AWAKE + 1;
    s->packed_in = t->right;
    s->pack_slot = x->n_packs++;
    if (amx_scratch_bytes(&t->m) > x->scratch_bytes) x->scratch_bytes = amx_scratch_bytes(&t->m);
    s->apart = !t->m.pack_left;
    s->flops = 2 * t->m.rows * t->m.depth * t->m.columns;
    s->alone = t->m.units < 2 * t->m.grain;
    s->detail = "amx:bf16";
    s->state = t;
    return ST_OK;
}
static int64_t amx_pack_bytes(const struct cpu_step *s) {
    const struct amx_state *t = s->state;
    return amx_packed_bytes(&t->m);
}
static status_t amx_pack_step(struct cpu_exe *x, struct cpu_step *s, const void *plain,
                              void *packed) {
    const struct amx_state *t = s->state;
    for (int64_t k = 0; k < amx_pack_parts(&t->m); k++) {
        struct span read = amx_pack(&t->m, plain, k, packed);
        cpu_has_read(x, read.p, (int64_t)read.n);
    }
    return ST_OK;
}
static bool amx_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct amx *v = &((const struct amx_state *)a->state)->m,
                     *w = &((const struct amx_state *)b->state)->m;
    return v->depth == w->depth && v->columns == w->columns && v->right_term == w->right_term &&
           v->right_column == w->right_column;
}
static status_t amx_run_step(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct amx_state *t = s->state;
    struct amx_run r = {.m = &t->m,
                        .left = bufs[t->left],
                        .right = bufs[t->right],
                        .out = bufs[t->out],
                        .scratch = x->scratch};
    for (int k = 0; k < t->m.n_post; k++) {
        r.operand[k] = t->leaf[k] >= 0 ? bufs[t->leaf[k]] : NULL;
        r.operand_bf16[k] = t->leaf_bf16[k];
    }
    amx_multiply(&r);
    return ST_OK;
}
const struct cpu_impl cpu_impl_amx = {"amx",        amx_accepts,    amx_open,      NULL,
                                      amx_run_step, amx_pack_bytes, amx_pack_step, amx_same_pack};
