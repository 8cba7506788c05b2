// SPDX-License-Identifier: Apache-2.0
// Layout assignment for the CPU: convolutions that the library runs give and take channel-blocked
// values (T(16,1,1) over NCHW, shape.h), and so does what lies between them and does not care
// (maximum pooling). Everything else keeps row-major; `copy` stands at each border, one for all
// users of a value.
#include "compiler/passes/library.h"
#include "compiler/passes/pass.h"

static const struct shape *blocked(struct arena *a, const struct shape *s, int block) {
    struct layout l = {.minor_to_major = {3, 2, 1, 0}, .tile_rank = 3, .tile = {block, 1, 1}};
    return shape_with_layout(a, s, &l);
}
static bool is_blocked(const struct hlo_instr *i) {
    return i->shape->layout && i->shape->layout->tile_rank;
}

// x in the wanted layout: itself, what it was copied from, or a new copy behind it (shared through
// `copies`).
static struct hlo_instr *in_layout(struct hlo_computation *c, struct hlo_instr *x, bool want,
                                   int block, struct pmap *copies) {
    if (is_blocked(x) == want) return x;
    if (x->op == HLO_COPY && is_blocked(x->operands[0]) == want) return x->operands[0];
    struct hlo_instr *k = pmap_get_ptr(copies, x);
    if (k) return k;
    struct arena *a = c->module->arena;
    const struct shape *s =
        want ? blocked(a, x->shape, block) : shape_with_layout(a, x->shape, NULL);
    status_t st = hlo_add_instr(c, HLO_COPY, s, &x, 1, NULL, NULL, 0, &k);
    if (st) { // a copy of an array cannot fail its rule
        st_drop(st);
        return x;
    }
    k->op_type = x->op_type;
    k->op_name = x->op_name;
    if (x->next) hlo_move_before(k, x->next);
    pmap_put_ptr(copies, x, k);
    return k;
}

static void set_operand(struct hlo_instr *i, int k, struct hlo_instr *x) {
    hlo_set_operand(i, k, x);
    if (i->op == HLO_FUSION) hlo_set_shape(i->called[0]->params.v[k], x->shape);
}

static void assign(struct hlo_computation *c, const struct target *t, struct pmap *copies) {
    struct arena *a = c->module->arena;
    for (struct hlo_instr *i = c->first, *next; i; i = next) {
        bool in = false, out = false;
        struct lib_call call;
        next = i->next;
        if (i->op == HLO_COPY && pmap_has_ptr(copies, i->operands[0])) continue;
        bool conv =
            t->library_accepts(t, i) && t->wants_blocked(t, i, &in, &out) && lib_match(i, &call);
        bool pool = !conv && lib_max_pool(i) && is_blocked(i->operands[0]);
        for (int k = 0; k < i->n_operands; k++) {
            struct hlo_instr *x = i->operands[k];
            if (shape_is_tuple(x->shape) || x->shape->rank != 4) continue;
            bool want = pool && k == 0;
            if (conv && k == lib_operand(i, call.lhs)) want = in;
            for (int p = 0; conv && p < call.n_post; p++)
                if (call.post[p].kind == LIB_POST_SUM && k == lib_operand(i, call.post[p].operand))
                    want = out;
            set_operand(i, k, in_layout(c, x, want, t->conv_block, copies));
        }
        if ((conv && out) || pool) {
            const struct shape *s = blocked(a, i->shape, t->conv_block);
            hlo_set_shape(i, s);
            if (i->op == HLO_FUSION) hlo_set_shape(i->called[0]->root, s);
        }
    }
    if (c->root && !shape_is_tuple(c->root->shape) && c->root->shape->rank == 4)
        hlo_set_root(c, in_layout(c, c->root, false, t->conv_block, copies));
}

status_t pass_layout(struct hlo_module *m, struct pass_ctx *p) {
    const struct target *t = p->target;
    if (!t || !t->conv_block || !t->wants_blocked) return ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        struct pmap copies = {0};
        if (c->fusion || c != m->entry) continue;
        assign(c, t, &copies);
        p->changed |= copies.n > 0;
        pmap_done(&copies);
    }
    return ST_OK;
}
