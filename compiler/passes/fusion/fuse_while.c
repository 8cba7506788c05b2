// SPDX-License-Identifier: Apache-2.0
// A loop of elementwise steps whose number of turns is known becomes one fusion: its kernel runs
// all turns of some lanes before it looks at the next ones (compiler/ops/while.h), so that the
// state of a turn does not go through memory, and no step of a turn is called.
//     while (i < 50) z = z * z + c, over a million points   =>   one kLoop fusion around the while
// Runs before other fusions, which would take the body's steps into kernels of their own. Starting
// values that are a broadcast constant come in too: the fusion does not read them.
#include "compiler/ops/while.h"

#include "compiler/passes/control/graph.h"
#include "compiler/passes/fusion/fusion.h"

// Elements of the state that something reads and that turns change; where the state is read as a
// whole (`whole`), all that turns change.
static int results(const struct hlo_instr *w, const struct while_lanes *l, int *element,
                   bool *whole) {
    int n = 0;
    *whole = w->parent->root == w;
    for (size_t u = 0; u < w->users.n; u++)
        *whole |= w->users.v[u]->op != HLO_GET_TUPLE_ELEMENT;
    for (int k = 0; k < w->shape->n_elems; k++) {
        bool read = *whole;
        for (size_t u = 0; u < w->users.n && !read; u++)
            read = HLO_ATTR(w->users.v[u], gte)->index == k;
        if (read && l->e[k].kind != LANES_FIXED) element[n++] = k;
    }
    return n;
}
static bool is_scalar_constant(const struct hlo_instr *x) {
    return x->op == HLO_CONSTANT && x->shape->rank == 0;
}

struct maker {
    struct hlo_computation *body;
    struct pmap inside; // outer value -> what stands for it
    VEC(struct hlo_instr *) operands;
};
static struct hlo_instr *bring_in(struct maker *f, struct hlo_instr *x) {
    struct hlo_instr *r = pmap_get_ptr(&f->inside, x);
    if (r) return r;
    if (is_scalar_constant(x)) {
        r = hlo_clone_instr(f->body, x, NULL);
    } else if (x->op == HLO_BROADCAST && is_scalar_constant(x->operands[0])) {
        struct hlo_instr *c = bring_in(f, x->operands[0]);
        r = hlo_clone_instr(f->body, x, &c);
    } else {
        r = hlo_add_param(f->body, (int64_t)f->operands.n, x->shape, "param");
        avec_push(f->body->module->arena, &f->operands, x);
    }
    pmap_put_ptr(&f->inside, x, r);
    return r;
}
static status_t element(struct hlo_computation *c, struct hlo_instr *tuple, int k,
                        struct hlo_instr **out) {
    return hlo_add_instr(c, HLO_GET_TUPLE_ELEMENT, NULL, &tuple, 1,
                         &(struct hlo_attr_gte){.index = k}, NULL, 0, out);
}
// The fusion in front of w, with the `n` elements of its state as results.
static status_t make(struct hlo_instr *w, const int *wanted, int n, struct hlo_instr **out) {
    struct hlo_computation *outer = w->parent;
    struct hlo_module *m = outer->module;
    struct hlo_instr *init = w->operands[0], *tuple, *loop, *root;
    struct hlo_instr **v = arena_array(m->arena, struct hlo_instr *, w->shape->n_elems + 1);
    struct maker f = {.body = hlo_computation_add(m, "fused_while")};
    graph_move_before(f.body, outer); // behind what w calls
    for (int k = 0; k < w->shape->n_elems; k++)
        v[k] = bring_in(&f, init->operands[k]);
    pmap_done(&f.inside);
    RETURN_IF_ERR(
        hlo_add_instr(f.body, HLO_TUPLE, NULL, v, w->shape->n_elems, NULL, NULL, 0, &tuple));
    loop = hlo_clone_instr(f.body, w, &tuple);
    for (int k = 0; k < n; k++)
        RETURN_IF_ERR(element(f.body, loop, wanted[k], &v[k]));
    root = v[0];
    if (n > 1) RETURN_IF_ERR(hlo_add_instr(f.body, HLO_TUPLE, NULL, v, n, NULL, NULL, 0, &root));
    hlo_set_root(f.body, root);

    RETURN_IF_ERR(hlo_add_instr(outer, HLO_FUSION, NULL, f.operands.v, (int)f.operands.n,
                                &(struct hlo_attr_fusion){.kind = FUSION_LOOP}, &f.body, 1, out));
    (*out)->op_type = w->op_type;
    (*out)->op_name = w->op_name;
    hlo_move_before(*out, w);
    return ST_OK;
}
// Element k of the state behind the loop, in front of pos.
static struct hlo_instr *after(struct hlo_instr *w, struct hlo_instr *fusion, const int *wanted,
                               int n, int k, struct hlo_instr *pos) {
    for (int e = 0; e < n; e++)
        if (wanted[e] == k) return n > 1 ? graph_element(fusion, e, pos) : fusion;
    return w->operands[0]->operands[k]; // no turn changes it
}
static status_t hand_over(struct hlo_instr *w, struct hlo_instr *fusion, const int *wanted, int n,
                          bool whole) {
    struct arena *a = w->parent->module->arena;
    hlo_mark_fused(fusion);
    for (size_t u = w->users.n; u-- > 0;) {
        struct hlo_instr *x = w->users.v[u];
        if (x->op != HLO_GET_TUPLE_ELEMENT || x->parent->root == x) continue;
        int k = (int)HLO_ATTR(x, gte)->index;
        hlo_replace_uses(x, after(w, fusion, wanted, n, k, x));
        hlo_remove_instr(x);
    }
    if (whole || w->users.n) {
        struct hlo_instr *all, **v = arena_array(a, struct hlo_instr *, w->shape->n_elems + 1);
        for (int k = 0; k < w->shape->n_elems; k++)
            v[k] = after(w, fusion, wanted, n, k, w);
        RETURN_IF_ERR(
            hlo_add_instr(w->parent, HLO_TUPLE, NULL, v, w->shape->n_elems, NULL, NULL, 0, &all));
        hlo_move_before(all, w);
        hlo_replace_uses(w, all);
    }
    hlo_remove_instr(w);
    return ST_OK;
}
static status_t fuse(struct hlo_instr *w, struct pass_ctx *p) {
    struct while_lanes l;
    struct hlo_instr *fusion;
    int wanted[LANES_STATE], n;
    bool whole;
    if (!shape_is_tuple(w->shape) || w->shape->n_elems > LANES_STATE || hlo_has_effect(w))
        return ST_OK;
    if (!while_lanes(w, &l)) return ST_OK;
    n = results(w, &l, wanted, &whole);
    if (n < 1) return ST_OK;
    graph_own_callee(w, 0);
    graph_own_callee(w, 1);
    RETURN_IF_ERR(make(w, wanted, n, &fusion));
    if (p->has_kernel && !p->has_kernel(p, fusion)) {
        hlo_mark_fused(fusion);
        w->called[0]->fusion = w->called[1]->fusion = NULL;
        hlo_remove_instr(fusion);
        return ST_OK;
    }
    pass_tell_fusion(p, w, fusion, NULL);
    p->changed = true;
    return hand_over(w, fusion, wanted, n, whole);
}

status_t pass_fuse_while(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_instr *) loops = {0}; // fusing removes their users: the list is taken before
    if (!p->target || p->target->emit) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    for (struct hlo_instr *i = c->first; i && !c->fusion; i = i->next)
        if (i->op == HLO_WHILE) avec_push(&p->scratch, &loops, i);
    for (size_t k = 0; k < loops.n; k++)
        RETURN_IF_ERR(fuse(loops.v[k], p));
    return ST_OK;
}
