// SPDX-License-Identifier: Apache-2.0
// matmul: products of f32 matrices with the post-operations of library.h by panels of our own
// (cpu_matmul.h), as a step. Which products, cpu_choice.c says.
// Does not: other types, left operands whose terms do not lie together. Those are the library's.
#include "devices/cpu/panels/cpu_matmul.h"

#include "devices/cpu/cpu_bind.h"
#include "devices/cpu/onednn/cpu_onednn.h"
#include "devices/cpu/routines/cpu_thin.h"

enum {
    AWAKE = 3,            // in a loop other threads are awake: a third of the share is worth one
    MOST_KEPT = 64 << 20, // bytes of right operands that loops do not change, packed as they begin
    PACK_GRAIN = 1 << 20  // bytes of them that a thread is worth
};

struct matmul_state {
    struct matmul m;
    int left, right, out; // leaves
    float *kept;          // the right operand as it was packed when the loop began; or NULL
    int leaf[LIB_MAX_POST];
};

// ---- which ones

static bool rows_f32(const struct shape *s) {
    return !shape_is_tuple(s) && s->dtype == DT_F32 && !s->dynamic &&
           layout_is_default(s->layout, s->rank) && shape_elements(s) > 0;
}
static bool takes(const struct hlo_instr *i, struct lib_call *c) {
    if (!rows_f32(i->shape) || !lib_match(i, c) || c->hero->op != HLO_DOT ||
        !cpu_panel_isa(cpu_target()->vector_bits) || !rows_f32(c->lhs->shape) ||
        !rows_f32(c->rhs->shape) || !onednn_dot_ok(c->hero) ||
        !cpu_matmul_better(c->hero, true, true))
        return false;
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        if (p->kind > LIB_POST_SWISH || (p->operand && !rows_f32(p->operand->shape))) return false;
    }
    struct onednn_dot d;
    onednn_dot_dims(c->hero, &d);
    return d.n - 2 <= MATMUL_BATCH && (d.left_strides[d.n - 1] == 1 || d.left[d.n - 1] == 1);
}
static bool matmul_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    struct lib_call c;
    *why = "not a product of f32 matrices that is better by panels";
    return takes(i, &c);
}

// ---- a step

static void read_sizes(const struct lib_call *c, struct matmul *m) {
    struct onednn_dot d;
    onednn_dot_dims(c->hero, &d);
    int n = m->n_batch = d.n - 2;
    m->rows = d.left[n];
    m->depth = d.left[n + 1];
    m->columns = d.right[n + 1];
    m->left_row = d.left_strides[n];
    m->right_term = d.right_strides[n];
    m->right_column = d.right_strides[n + 1];
    for (int k = 0; k < n; k++) {
        m->batch[k] = d.left[k];
        m->left_batch[k] = d.left_strides[k];
        m->right_batch[k] = d.right_strides[k];
    }
    m->n_post = c->n_post;
}
// Does the loop around s leave the right operand as it is? Then its first turn packs it.
static bool keeps(const struct cpu_exe *x, const struct cpu_step *s, const struct lib_call *c) {
    const struct slice *in = &s->plan->in[lib_operand(s->plan->instr, c->rhs)];
    int64_t bytes;
    return x->kept && in->where == SLICE_PARAM && x->kept[in->index] &&
           HLO_ATTR(c->hero, dot)->lhs_batch_dims.n == 0 &&
           sz_add(x->kept_bytes, shape_bytes(c->rhs->shape), &bytes) && bytes <= MOST_KEPT;
}
static status_t matmul_open(struct cpu_exe *x, struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    if (!takes(i, &c)) return st_internal("accepted a product that does not match");
    int right = lib_operand(i, c.rhs);
    bool bound = HLO_ATTR(c.hero, dot)->lhs_batch_dims.n == 0 && cpu_is_bound(x, s, right);
    bool kept = !bound && keeps(x, s, &c);
    s->declined =
        !cpu_matmul_better(c.hero, bound, kept) || (bound && cpu_thin_halves(x, s, c.hero, right));
    if (s->declined) return ST_OK;
    struct matmul_state *t = arena_new_of(&x->arena, struct matmul_state);
    t->left = lib_operand(i, c.lhs), t->right = right, t->out = s->plan->n_in;
    read_sizes(&c, &t->m);
    lib_copy_posts(&c, t->m.post, t->leaf);
    t->m.packed = bound || kept;
    struct matmul usual = t->m;
    int bits = cpu_target()->vector_bits, variant = cpu_asked()->variant;
    t->m.schedule = variant ? variant - 1 : 0;
    if (!matmul_plan(&t->m, bits, cpu_threads())) return st_internal("no panels for this CPU");
    if (x->in_loop) t->m.grain = t->m.grain / AWAKE + 1;

    if (bound) {
        s->packed_in = t->right;
        s->pack_slot = x->n_packs++;
    } else if (kept) {
        int64_t bytes = matmul_packed_bytes(&t->m);
        t->kept = arena_alloc_aligned(&x->arena, (size_t)bytes, 64);
        x->kept_bytes += bytes;
        s->begins = true;
    } else if (matmul_scratch_bytes(&t->m, cpu_threads()) > x->scratch_bytes) {
        x->scratch_bytes = matmul_scratch_bytes(&t->m, cpu_threads());
    }
    s->apart = t->m.packed;
    s->flops = (int64_t)matmul_products(&t->m);
    s->alone = !kept && t->m.units < 2 * t->m.grain;
    bool same = !t->m.schedule ||
                (matmul_plan(&usual, bits, cpu_threads()) && matmul_same_blocks(&t->m, &usual));
    s->detail = arena_printf(&x->arena, "matmul:%s%s%s", t->m.panel->name, same ? "" : ":",
                             same ? "" : matmul_schedules[t->m.schedule]);
    s->state = t;
    return ST_OK;
}
static int64_t matmul_pack_bytes(const struct cpu_step *s) {
    const struct matmul_state *t = s->state;
    return matmul_packed_bytes(&t->m);
}
static status_t matmul_pack_step(struct cpu_exe *x, struct cpu_step *s, const void *plain,
                                 void *packed) {
    const struct matmul_state *t = s->state;
    for (int64_t k = 0; k < matmul_pack_parts(&t->m); k++) {
        struct span read = matmul_pack(&t->m, plain, k, packed);
        cpu_has_read(x, read.p, (int64_t)read.n);
    }
    return ST_OK;
}
static bool matmul_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct matmul *v = &((const struct matmul_state *)a->state)->m,
                        *w = &((const struct matmul_state *)b->state)->m;
    return v->depth == w->depth && v->columns == w->columns && v->right_term == w->right_term &&
           v->right_column == w->right_column;
}
static void pack_kept(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct matmul_run *r = ctx;
    for (int64_t k = begin; k < end; k++)
        matmul_pack(r->m, r->right, k, r->scratch);
}
static status_t matmul_run_step(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct matmul_state *t = s->state;
    struct matmul_run r = {.m = &t->m,
                           .left = bufs[t->left],
                           .right = bufs[t->right],
                           .out = bufs[t->out],
                           .scratch = x->scratch};
    for (int k = 0; k < t->m.n_post; k++)
        if (t->leaf[k] >= 0) r.operand[k] = bufs[t->leaf[k]];
    if (t->kept && s->begins) {
        struct matmul_run pack = {.m = &t->m, .right = r.right, .scratch = t->kept};
        int64_t parts = matmul_pack_parts(&t->m);
        cpu_parallel(pack_kept, &pack, parts, 1 + PACK_GRAIN * parts / matmul_packed_bytes(&t->m));
        s->begins = false;
    }
    if (t->kept) r.right = t->kept;
    matmul_run(&r);
    return ST_OK;
}
const struct cpu_impl cpu_impl_matmul = {
    "matmul",        matmul_accepts,    matmul_open,      NULL,
    matmul_run_step, matmul_pack_bytes, matmul_pack_step, matmul_same_pack};
