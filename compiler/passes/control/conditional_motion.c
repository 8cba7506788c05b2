// SPDX-License-Identifier: Apache-2.0
// Takes out of a conditional's branches what depends on weights and constants alone, so that it is
// computed once with the weights and not at every run; and elements of a branch's operand that
// nothing reads. What depends on the request stays: the branch may not be taken.
//     p ? f(x, w) : g(x)  with  f = x * transpose(w)   =>   t = transpose(w); p ? f'(x, t) : g(x)
// Looks into branches of branches and into bodies of loops; each round takes a value one step out.
#include "compiler/passes/control/graph.h"
#include "compiler/passes/pass.h"

struct branch {
    struct hlo_instr *i; // the conditional
    int k;               // which branch
    struct hlo_instr *operand;
    VEC(struct hlo_instr *) hoisted; // of the branch
};

static int64_t index_of(const struct hlo_instr *gte) {
    return HLO_ATTR(gte, gte)->index;
}
static bool cheap(const struct hlo_instr *i) {
    return i->op == HLO_BROADCAST || i->op == HLO_RESHAPE || i->op == HLO_BITCAST ||
           i->op == HLO_IOTA || i->op == HLO_CONSTANT || i->op == HLO_GET_TUPLE_ELEMENT;
}
static bool only_elements(const struct hlo_instr *p) {
    for (size_t k = 0; k < p->users.n; k++)
        if (p->users.v[k]->op != HLO_GET_TUPLE_ELEMENT) return false;
    return p->parent->root != p;
}
static bool follows(const struct hlo_instr *i, const struct pmap *only) {
    if (i->op == HLO_CONSTANT || i->op == HLO_IOTA) return true;
    if (!(hlo_op_info(i->op)->traits & HLO_T_P) || !i->n_operands || i->op == HLO_FUSION ||
        i->op == HLO_GET_TUPLE_ELEMENT || shape_is_tuple(i->shape) || i->shape->dtype == DT_TOKEN ||
        i->control_preds.n)
        return false;
    for (int k = 0; k < i->n_operands; k++)
        if (!pmap_has_ptr(only, i->operands[k])) return false;
    return true;
}

// In `inner`: values of f that depend on weights and constants alone; those of the caller are in
// `only`. The parameter's elements are the operands of `operand`; in a loop's body those that every
// turn leaves as they are.
static void find_inside(const struct hlo_computation *f, const struct hlo_instr *operand, bool body,
                        const struct pmap *only, struct pmap *inner) {
    const struct hlo_instr *p = f->params.n == 1 ? f->params.v[0] : NULL, *r = f->root;
    for (const struct hlo_instr *i = f->first; i; i = i->next) {
        bool yes = follows(i, only) && i->n_operands == 0;
        if (i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0] == p && operand->op == HLO_TUPLE) {
            int64_t at = index_of(i);
            yes = pmap_has_ptr(only, operand->operands[at]);
            if (body && yes) {
                const struct hlo_instr *x = r->op == HLO_TUPLE ? r->operands[at] : NULL;
                yes =
                    x && x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == p && index_of(x) == at;
            }
        }
        if (yes || follows(i, inner)) pmap_put_ptr(inner, i, NULL);
    }
}

static void find_hoisted(struct branch *b, const struct pmap *inner, struct arena *a) {
    b->hoisted.n = 0;
    for (struct hlo_instr *i = b->i->called[b->k]->first; i; i = i->next) {
        bool border = i == b->i->called[b->k]->root;
        if (!pmap_has_ptr(inner, i) || cheap(i)) continue;
        for (size_t k = 0; k < i->users.n; k++) // used by what changes, or behind a broadcast
            border |= !pmap_has_ptr(inner, i->users.v[k]) || cheap(i->users.v[k]);
        if (border) avec_push(a, &b->hoisted, i);
    }
}

// x, a value of the branch that depends on weights alone, in front of the conditional.
static struct hlo_instr *in_front(const struct branch *b, struct hlo_instr *x, struct pmap *done) {
    struct hlo_instr *r = pmap_get_ptr(done, x);
    if (r) return r;
    if (x->op == HLO_GET_TUPLE_ELEMENT) {
        r = b->operand->operands[index_of(x)];
    } else {
        struct hlo_instr **in =
            arena_array(x->parent->module->arena, struct hlo_instr *, x->n_operands + 1);
        for (int k = 0; k < x->n_operands; k++)
            in[k] = in_front(b, x->operands[k], done);
        r = hlo_clone_instr(b->i->parent, x, in);
        hlo_move_before(r, b->i);
    }
    pmap_put_ptr(done, x, r);
    return r;
}

// A read of element `at` of p for those of i.
static status_t read_instead(struct hlo_instr *p, int64_t at, struct hlo_instr *i) {
    struct hlo_instr *e;
    RETURN_IF_ERR(hlo_add_instr(p->parent, HLO_GET_TUPLE_ELEMENT, NULL, &p, 1,
                                &(struct hlo_attr_gte){.index = at}, NULL, 0, &e));
    hlo_move_before(e, p->next);
    hlo_replace_uses(i, e);
    return ST_OK;
}

// The branch over a new operand: `all` without what nobody reads.
static status_t compact(const struct branch *b, struct hlo_instr *const *all, int n) {
    struct hlo_computation *f = b->i->called[b->k];
    struct hlo_instr *p = f->params.v[0], *tuple;
    struct arena *a = f->module->arena;
    const struct shape **s = arena_array(a, const struct shape *, n + 1);
    struct hlo_instr **in = arena_array(a, struct hlo_instr *, n + 1);
    int *to = arena_array(a, int, n + 1), kept = 0;
    bool *read = arena_zarray(a, bool, n + 1);
    for (size_t k = 0; k < p->users.n; k++)
        read[index_of(p->users.v[k])] = true;
    for (int k = 0; k < n; k++) {
        if (!read[k]) continue;
        in[kept] = all[k];
        s[kept] = all[k]->shape;
        to[k] = kept++;
    }
    hlo_set_shape(p, shape_tuple(a, s, kept));
    HLO_EACH_INSTR(i, f) {
        if (i->op != HLO_GET_TUPLE_ELEMENT || i->operands[0] != p || !read[index_of(i)]) continue;
        int64_t at = index_of(i);
        if (to[at] == at) continue;
        RETURN_IF_ERR(read_instead(p, to[at], i));
        hlo_remove_instr(i);
    }
    RETURN_IF_ERR(hlo_add_instr(b->i->parent, HLO_TUPLE, NULL, in, kept, NULL, NULL, 0, &tuple));
    hlo_move_before(tuple, b->i);
    hlo_set_operand(b->i, b->k + 1, tuple);
    return ST_OK;
}

static status_t take_out(struct branch *b) {
    struct hlo_computation *f = b->i->called[b->k];
    struct hlo_instr *p = f->params.v[0];
    struct arena *a = f->module->arena;
    int old = b->operand->n_operands, n = old + (int)b->hoisted.n;
    const struct shape **s = arena_array(a, const struct shape *, n + 1);
    struct hlo_instr **all = arena_array(a, struct hlo_instr *, n + 1);
    struct pmap done = {0};
    for (int k = 0; k < n; k++) {
        all[k] = k < old ? b->operand->operands[k] : in_front(b, b->hoisted.v[k - old], &done);
        s[k] = all[k]->shape;
    }
    pmap_done(&done);
    graph_to_front(p);
    hlo_set_shape(p, shape_tuple(a, s, n));
    for (int k = old; k < n; k++)
        RETURN_IF_ERR(read_instead(p, k, b->hoisted.v[k - old]));
    hlo_remove_dead(f);
    return compact(b, all, n);
}

// Is every element of the operand read?
static bool all_read(const struct branch *b, struct arena *a) {
    const struct hlo_instr *p = b->i->called[b->k]->params.v[0];
    bool *read = arena_zarray(a, bool, b->operand->n_operands + 1);
    int n = 0;
    for (size_t u = 0; u < p->users.n; u++) {
        int64_t k = index_of(p->users.v[u]);
        n += !read[k];
        read[k] = true;
    }
    return n == b->operand->n_operands;
}

static status_t walk(struct hlo_computation *c, const struct pmap *only, struct pass_ctx *p);
static status_t branch(struct hlo_instr *i, int k, const struct pmap *only, struct pass_ctx *p) {
    struct branch b = {.i = i, .k = k, .operand = i->operands[k + 1]};
    struct pmap inner = {0};
    if (b.operand->op != HLO_TUPLE || !only_elements(i->called[k]->params.v[0])) return ST_OK;
    find_inside(i->called[k], b.operand, false, only, &inner);
    find_hoisted(&b, &inner, &p->scratch);
    bool changes = b.hoisted.n || !all_read(&b, &p->scratch);
    if (changes) {
        graph_own_callee(i, k);
        pmap_done(&inner);
        find_inside(i->called[k], b.operand, false, only, &inner);
        find_hoisted(&b, &inner, &p->scratch);
    }
    status_t st = walk(i->called[k], &inner, p);
    if (!st && changes) st = take_out(&b);
    p->changed |= changes;
    pmap_done(&inner);
    return st;
}
static status_t walk(struct hlo_computation *c, const struct pmap *only, struct pass_ctx *p) {
    HLO_EACH_INSTR(i, c) {
        if (!i->users.n && i != c->root) continue;
        if (i->op == HLO_CONDITIONAL && !i->control_preds.n)
            for (int k = 0; k < i->n_called; k++)
                RETURN_IF_ERR(branch(i, k, only, p));
        if (i->op != HLO_WHILE) continue;
        struct pmap inner = {0};
        find_inside(i->called[1], i->operands[0], true, only, &inner);
        status_t st = walk(i->called[1], &inner, p);
        pmap_done(&inner);
        RETURN_IF_ERR(st);
    }
    return ST_OK;
}

status_t pass_conditional_motion(struct hlo_module *m, struct pass_ctx *p) {
    struct pmap only = {0};
    for (const struct hlo_instr *i = m->entry->first; i; i = i->next)
        if ((i->op == HLO_PARAMETER && i->param_kind == PARAM_WEIGHT) || follows(i, &only))
            pmap_put_ptr(&only, i, NULL);
    status_t st = walk(m->entry, &only, p);
    pmap_done(&only);
    return st;
}
