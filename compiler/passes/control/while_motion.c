// SPDX-License-Identifier: Apache-2.0
// Moves out of a while what need not be in it. An element of the state that every turn leaves as it
// is and that starts as a scalar constant becomes that constant inside; an element that nothing
// needs is dropped; what the body computes from unchanged elements alone is computed once in front
// and carried as a new element. The loop is then built again over the new state.
//     (i, x, w) -> (i + 1, x * tanh(w), w)   =>   t = tanh(w); (i, x, t) -> (i + 1, x * t, t)
#include "compiler/passes/control/graph.h"
#include "compiler/passes/pass.h"

enum { MAX_ELEMENTS = 4096, MAX_HOISTED = 512, MAX_OPERANDS = 64 };

struct loop {
    struct hlo_instr *w, *init;
    struct hlo_computation *cond, *body;
    int n;                                                         // elements of the state
    bool keep[MAX_ELEMENTS];                                       // stays an element
    bool fixed[MAX_ELEMENTS];                                      // every turn leaves it as it is
    struct hlo_instr *hoisted[MAX_HOISTED], *outside[MAX_HOISTED]; // in the body; in front
    int n_hoisted;
};

static bool only_elements(const struct hlo_instr *p) {
    for (size_t k = 0; k < p->users.n; k++)
        if (p->users.v[k]->op != HLO_GET_TUPLE_ELEMENT) return false;
    return p->parent->root != p;
}
static int64_t index_of(const struct hlo_instr *gte) {
    return HLO_ATTR(gte, gte)->index;
}
static bool open_loop(struct hlo_instr *w, struct loop *l) {
    *l = (struct loop){.w = w, .init = w->operands[0], .n = w->shape->n_elems};
    if (!shape_is_tuple(w->shape) || l->n < 1 || l->n > MAX_ELEMENTS || w->control_preds.n)
        return false;
    for (int k = 0; k < 2; k++)
        if (!only_elements(w->called[k]->params.v[0]) || hlo_computation_has_effect(w->called[k]))
            return false;
    const struct hlo_instr *p = w->called[1]->params.v[0], *r = w->called[1]->root;
    if (r->op != HLO_TUPLE || r->users.n) return false;
    for (int k = 0; k < l->n; k++) {
        const struct hlo_instr *x = r->operands[k];
        l->keep[k] = true;
        l->fixed[k] = x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == p && index_of(x) == k;
    }
    return true;
}
static void own(struct loop *l) {
    graph_own_callee(l->w, 0);
    graph_own_callee(l->w, 1);
    l->cond = l->w->called[0];
    l->body = l->w->called[1];
}

// ---- constants, dead elements

static const struct hlo_instr *constant_start(const struct loop *l, int k) {
    if (!l->fixed[k] || l->init->op != HLO_TUPLE) return NULL;
    const struct hlo_instr *c = l->init->operands[k];
    return c->op == HLO_CONSTANT && !shape_is_tuple(c->shape) && c->shape->rank == 0 ? c : NULL;
}
static void write_constant(struct hlo_computation *f, int k, const struct hlo_instr *value) {
    HLO_EACH_INSTR(i, f) {
        if (i->op != HLO_GET_TUPLE_ELEMENT || i->operands[0] != f->params.v[0] || index_of(i) != k)
            continue;
        struct hlo_instr *c = hlo_clone_instr(f, value, NULL);
        hlo_move_before(c, i);
        hlo_replace_uses(i, c);
        hlo_remove_instr(i);
    }
}

// The elements of the state that something needs: behind the loop, in its condition, or in what the
// body makes of elements that are needed.
struct needs {
    const struct loop *l;
    bool *needed; // [elements]
    struct pmap seen;
    VEC(const struct hlo_instr *) open; // looked at next
};
static void need_value(struct needs *n, const struct hlo_instr *x) {
    if (pmap_has_ptr(&n->seen, x)) return;
    pmap_put_ptr(&n->seen, x, NULL);
    vec_push(&n->open, x);
}
static void need_element(struct needs *n, int64_t k) {
    if (n->needed[k]) return;
    n->needed[k] = true;
    need_value(n, n->l->w->called[1]->root->operands[k]);
}
static void find_needed(const struct loop *l, bool *needed) {
    struct needs n = {.l = l, .needed = needed};
    const struct hlo_instr *w = l->w;
    bool all = w->parent->root == w;
    for (size_t u = 0; u < w->users.n; u++) {
        if (w->users.v[u]->op == HLO_GET_TUPLE_ELEMENT)
            need_element(&n, index_of(w->users.v[u]));
        else
            all = true;
    }
    for (int k = 0; k < l->n && all; k++)
        need_element(&n, k);
    need_value(&n, w->called[0]->root);
    while (n.open.n) {
        const struct hlo_instr *x = vec_pop(&n.open);
        if (x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == x->parent->params.v[0])
            need_element(&n, index_of(x));
        for (int k = 0; k < x->n_operands; k++)
            need_value(&n, x->operands[k]);
    }
    pmap_done(&n.seen);
    vec_done(&n.open);
}

// ---- what does not change from turn to turn

static bool cheap(const struct hlo_instr *i) {
    return i->op == HLO_BROADCAST || i->op == HLO_RESHAPE || i->op == HLO_BITCAST ||
           i->op == HLO_IOTA || i->op == HLO_CONSTANT || i->op == HLO_GET_TUPLE_ELEMENT;
}
static bool same_each_turn(const struct loop *l, const struct hlo_instr *i,
                           const struct pmap *same) {
    if (i->op == HLO_CONSTANT || i->op == HLO_IOTA) return true;
    if (i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0] == l->w->called[1]->params.v[0])
        return l->fixed[index_of(i)];
    if (!(hlo_op_info(i->op)->traits & HLO_T_P) || !i->n_operands || i->n_operands > MAX_OPERANDS ||
        i->op == HLO_FUSION || shape_is_tuple(i->shape) || i->shape->dtype == DT_TOKEN ||
        i->control_preds.n)
        return false;
    for (int k = 0; k < i->n_operands; k++)
        if (!pmap_has_ptr(same, i->operands[k])) return false;
    return true;
}
static void find_hoisted(struct loop *l) {
    const struct hlo_computation *body = l->w->called[1];
    struct pmap same = {0};
    for (const struct hlo_instr *i = body->first; i; i = i->next)
        if (same_each_turn(l, i, &same)) pmap_put_ptr(&same, i, NULL);
    for (struct hlo_instr *i = body->first; i && l->n_hoisted < MAX_HOISTED; i = i->next) {
        bool border = false;
        if (!pmap_has_ptr(&same, i) || cheap(i)) continue;
        for (size_t k = 0; k < i->users.n; k++) // used by what changes, or behind a broadcast
            border |= !pmap_has_ptr(&same, i->users.v[k]) || cheap(i->users.v[k]);
        if (border) l->hoisted[l->n_hoisted++] = i;
    }
    pmap_done(&same);
}
// x, a value of the body that is the same each turn, in front of the loop.
static struct hlo_instr *in_front(struct loop *l, struct hlo_instr *x, struct pmap *done) {
    struct hlo_instr *r = pmap_get_ptr(done, x), *in[MAX_OPERANDS];
    if (r) return r;
    if (x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == l->body->params.v[0]) {
        r = graph_element(l->init, (int)index_of(x), l->w);
    } else {
        for (int k = 0; k < x->n_operands; k++)
            in[k] = in_front(l, x->operands[k], done);
        r = hlo_clone_instr(l->w->parent, x, in);
        hlo_move_before(r, l->w);
    }
    pmap_put_ptr(done, x, r);
    return r;
}

// ---- the loop again

// Elements of f's parameter under their new numbers.
static status_t renumber(struct loop *l, struct hlo_computation *f, const struct shape *state,
                         const int *to) {
    struct hlo_instr *p = f->params.v[0];
    hlo_set_shape(p, state);
    HLO_EACH_INSTR(i, f) {
        struct hlo_instr *e;
        if (i->op != HLO_GET_TUPLE_ELEMENT || i->operands[0] != p || !l->keep[index_of(i)])
            continue;
        RETURN_IF_ERR(hlo_add_instr(f, HLO_GET_TUPLE_ELEMENT, NULL, &p, 1,
                                    &(struct hlo_attr_gte){.index = to[index_of(i)]}, NULL, 0, &e));
        hlo_move_before(e, i);
        hlo_replace_uses(i, e);
        hlo_remove_instr(i);
    }
    return ST_OK;
}
static status_t new_body(struct loop *l, const struct shape *state, const int *to, int n) {
    struct hlo_instr *p = l->body->params.v[0], *old = l->body->root, *root;
    struct hlo_instr **out = arena_array(l->body->module->arena, struct hlo_instr *, n + 1);
    RETURN_IF_ERR(renumber(l, l->body, state, to));
    graph_to_front(p);
    for (int e = 0; e < l->n_hoisted; e++) {
        int at = n - l->n_hoisted + e;
        RETURN_IF_ERR(hlo_add_instr(l->body, HLO_GET_TUPLE_ELEMENT, NULL, &p, 1,
                                    &(struct hlo_attr_gte){.index = at}, NULL, 0, &out[at]));
        hlo_move_before(out[at], p->next);
        hlo_replace_uses(l->hoisted[e], out[at]);
    }
    for (int k = 0; k < l->n; k++)
        if (l->keep[k]) out[to[k]] = old->operands[k];
    RETURN_IF_ERR(hlo_add_instr(l->body, HLO_TUPLE, NULL, out, n, NULL, NULL, 0, &root));
    hlo_set_root(l->body, root);
    hlo_remove_dead(l->body);
    return ST_OK;
}
static status_t rebuild(struct loop *l) {
    struct hlo_computation *c = l->w->parent, *called[2] = {l->cond, l->body};
    struct arena *a = c->module->arena;
    int to[MAX_ELEMENTS], n = 0;
    const struct shape **s = arena_array(a, const struct shape *, l->n + MAX_HOISTED);
    struct hlo_instr **in = arena_array(a, struct hlo_instr *, l->n + MAX_HOISTED), *init, *w, *all;

    for (int k = 0; k < l->n; k++) {
        if (!l->keep[k]) continue;
        in[n] = graph_element(l->init, k, l->w);
        s[n] = l->w->shape->elems[k];
        to[k] = n++;
    }

    for (int e = 0; e < l->n_hoisted; e++) {
        in[n] = l->outside[e];
        s[n++] = l->outside[e]->shape;
    }

    const struct shape *state = shape_tuple(a, s, n);
    RETURN_IF_ERR(new_body(l, state, to, n));
    RETURN_IF_ERR(renumber(l, l->cond, state, to));
    hlo_remove_dead(l->cond);

    RETURN_IF_ERR(hlo_add_instr(c, HLO_TUPLE, NULL, in, n, NULL, NULL, 0, &init));
    hlo_move_before(init, l->w);
    RETURN_IF_ERR(hlo_add_instr(c, HLO_WHILE, NULL, &init, 1, NULL, called, 2, &w));
    hlo_move_before(w, l->w);
    w->op_type = l->w->op_type;
    w->op_name = l->w->op_name;

    for (int k = 0; k < l->n; k++)
        in[k] = graph_element(l->keep[k] ? w : l->init, l->keep[k] ? to[k] : k, l->w);
    RETURN_IF_ERR(hlo_add_instr(c, HLO_TUPLE, NULL, in, l->n, NULL, NULL, 0, &all));
    hlo_move_before(all, l->w);
    hlo_replace_uses(l->w, all);
    hlo_remove_instr(l->w);
    return ST_OK;
}

static status_t improve(struct hlo_instr *w, bool *changed) {
    struct loop l;
    bool needed[MAX_ELEMENTS] = {false}, constants = false, dropped = false;

    if (!open_loop(w, &l)) return ST_OK;
    for (int k = 0; k < l.n; k++)
        constants |= constant_start(&l, k) != NULL;
    find_needed(&l, needed);
    for (int k = 0; k < l.n; k++)
        dropped |= !needed[k];

    find_hoisted(&l);
    int left = l.n + l.n_hoisted;
    for (int k = 0; k < l.n; k++)
        left -= !needed[k] || constant_start(&l, k);

    if ((!constants && !dropped && !l.n_hoisted) || left == 0) return ST_OK;
    l.n_hoisted = 0;
    own(&l);
    for (int k = 0; k < l.n; k++) {
        const struct hlo_instr *c = constant_start(&l, k);
        l.keep[k] = needed[k] && !c;
        if (!c) continue;
        write_constant(l.cond, k, c);
        write_constant(l.body, k, c);
    }

    find_hoisted(&l); // again, in the body that is the loop's own, with constants written
    struct pmap done = {0};
    for (int e = 0; e < l.n_hoisted; e++)
        l.outside[e] = in_front(&l, l.hoisted[e], &done);
    pmap_done(&done);

    *changed = true;
    return rebuild(&l);
}

status_t pass_while_motion(struct hlo_module *m, struct pass_ctx *p) {
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c) {
        if (i->op != HLO_WHILE || (!i->users.n && i != c->root)) continue;
        RETURN_IF_ERR(improve(i, &p->changed));
    }
    return ST_OK;
}
