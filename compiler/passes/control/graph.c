// SPDX-License-Identifier: Apache-2.0
// See graph.h. Copies of computations are appended by the ir and moved to where callees belong.
#include "compiler/passes/control/graph.h"

#include "compiler/ir/build.h"

void graph_move_before(struct hlo_computation *c, struct hlo_computation *pos) {
    struct hlo_module *m = c->module;
    if (c == pos || c->next == pos) return;
    *(c->prev ? &c->prev->next : &m->first) = c->next;
    *(c->next ? &c->next->prev : &m->last) = c->prev;
    c->next = pos;
    c->prev = pos->prev;
    *(pos->prev ? &pos->prev->next : &m->first) = c;
    pos->prev = c;
}

// A copy of f, which stands with the copies of what it calls in front of pos.
static struct hlo_computation *copy_before(const struct hlo_computation *f,
                                           struct hlo_computation *pos) {
    struct hlo_module *m = pos->module;
    struct hlo_computation *last = m->last, *r = hlo_computation_clone(m, f, f->name);
    for (struct hlo_computation *c = last->next, *next; c; c = next) {
        next = c->next;
        graph_move_before(c, pos);
    }
    return r;
}

void graph_own_callee(struct hlo_instr *i, int k) {
    const struct hlo_computation *f = i->called[k];
    if (f->n_callers > 1) hlo_set_called(i, k, copy_before(f, i->parent));
}

struct hlo_instr *graph_inline(struct hlo_instr *at, const struct hlo_computation *f,
                               struct hlo_instr *const *args) {
    struct hlo_computation *c = at->parent;
    struct arena *a = c->module->arena;
    struct pmap map = {0};
    for (const struct hlo_instr *i = f->first; i; i = i->next) {
        if (i->op == HLO_PARAMETER) {
            pmap_put_ptr(&map, i, args[i->param_number]);
            continue;
        }
        struct hlo_instr **in = arena_array(a, struct hlo_instr *, i->n_operands + 1);
        for (int k = 0; k < i->n_operands; k++)
            in[k] = pmap_get_ptr(&map, i->operands[k]);
        struct hlo_instr *copy = hlo_clone_instr(c, i, in);
        if (i->op == HLO_FUSION) {
            hlo_set_called(copy, 0, copy_before(i->called[0], c));
            hlo_mark_fused(copy);
        }
        for (size_t k = 0; k < i->control_preds.n; k++) {
            struct hlo_instr *p = pmap_get_ptr(&map, i->control_preds.v[k]);
            hlo_add_control_pred(copy, p);
        }
        hlo_move_before(copy, at);
        pmap_put_ptr(&map, i, copy);
    }
    struct hlo_instr *root = pmap_get_ptr(&map, f->root);
    pmap_done(&map);
    return root;
}

struct hlo_instr *graph_element(struct hlo_instr *tuple, int k, struct hlo_instr *pos) {
    if (tuple->op == HLO_TUPLE) return tuple->operands[k];
    struct hb b = hb_begin(pos->parent);
    struct hlo_instr *e = hb_gte(&b, tuple, k);
    hlo_move_before(e, pos);
    st_drop(hb_end(&b)); // an index within the tuple's shape cannot be refused
    return e;
}

void graph_to_front(struct hlo_instr *parameter) {
    struct hlo_instr *first = parameter->parent->first;
    if (first != parameter) hlo_move_before(parameter, first);
}
