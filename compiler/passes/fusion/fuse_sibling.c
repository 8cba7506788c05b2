// SPDX-License-Identifier: Apache-2.0
// Multi-output fusion: loops and reductions that read the same value, have results of the same dims
// and do not depend on each other become one fusion with a tuple as root, so that what they share
// is read once: a sum and a sum of squares, a value and its derivative. Runs behind the other
// fusions, and takes their fusions in whole.
#include "compiler/passes/control/graph.h"
#include "compiler/passes/pass.h"

// LOWER_MAX_RESULTS of the kernels bounds members. Each pair costs a walk over the computation:
// WALKED bounds them together, in instructions.
enum { MAX_GROUP = 16, MAX_USERS = 64, MAX_OPERANDS = 64, WORTH_BYTES = 1024, WALKED = 20000000 };

struct siblings {
    struct hlo_instr *v[MAX_GROUP];
    int n;
    int64_t *budget;
};

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && dtype_class(s->dtype) != DC_NONE && !s->dynamic &&
           layout_is_default(s->layout, s->rank);
}
static const char *not_a_member(const struct hlo_instr *i, const struct target *t) {
    if (!plain(i->shape) || i->control_preds.n) return "it is no plain array";
    bool loop = i->op == HLO_FUSION && (HLO_ATTR(i, fusion)->kind == FUSION_LOOP ||
                                        HLO_ATTR(i, fusion)->kind == FUSION_INPUT);
    bool single = (hlo_is_elementwise(i) && i->op != HLO_STOCHASTIC_CONVERT) ||
                  (i->op == HLO_REDUCE && i->n_operands == 2);
    if (!loop && !single) return "it is neither a loop nor a reduction";
    if (!i->users.n && i->parent->root != i) return "nothing uses it";
    return t->library_accepts && t->library_accepts(t, i) ? "the library runs it" : NULL;
}
static const char *keeps_out(const struct siblings *g, const struct hlo_instr *i,
                             const struct target *t) {
    const char *why = not_a_member(i, t);
    if (why) return why;
    if (g->n == MAX_GROUP) return "the fusion has its most results";
    if (!shape_same_dims(i->shape, g->v[0]->shape)) return "its result has other dims";
    for (int k = 0; k < g->n; k++) {
        if (g->v[k] == i) return "it is in already";
        *g->budget -= i->parent->n_instrs;
        if (*g->budget < 0) return "the pass has used its budget";
        if (hlo_depends_on(i, g->v[k]) || hlo_depends_on(g->v[k], i))
            return "one depends on the other";
    }
    return NULL;
}

// The body: every member's own, one after the other, over shared parameters.
struct merged {
    struct hlo_computation *body;
    struct pmap params; // outer value -> parameter
    struct hlo_instr *operands[MAX_OPERANDS];
    int n;
};
static struct hlo_instr *param_for(struct merged *f, struct hlo_instr *x) {
    struct hlo_instr *p = pmap_get_ptr(&f->params, x);
    if (p) return p;
    if (x->op == HLO_CONSTANT && x->shape->rank == 0) {
        p = hlo_clone_instr(f->body, x, NULL);
    } else {
        p = hlo_add_param(f->body, f->n, x->shape, "param");
        f->operands[f->n++] = x;
    }
    pmap_put_ptr(&f->params, x, p);
    return p;
}
static struct hlo_instr *add_member(struct merged *f, const struct hlo_instr *i) {
    struct arena *a = f->body->module->arena;
    struct pmap map = {0};
    struct hlo_instr *root;
    const struct hlo_computation *c = i->op == HLO_FUSION ? i->called[0] : NULL;
    for (int k = 0; c && k < i->n_operands; k++)
        pmap_put_ptr(&map, c->params.v[k], param_for(f, i->operands[k]));
    for (const struct hlo_instr *x = c ? c->first : i; x; x = c ? x->next : NULL) {
        struct hlo_instr **in = arena_array(a, struct hlo_instr *, x->n_operands + 1);
        if (c && x->op == HLO_PARAMETER) continue;
        for (int k = 0; k < x->n_operands; k++)
            in[k] = c ? pmap_get_ptr(&map, x->operands[k]) : param_for(f, x->operands[k]);
        pmap_put_ptr(&map, x, hlo_clone_instr(f->body, x, in));
    }
    root = pmap_get_ptr(&map, c ? c->root : i);
    pmap_done(&map);
    return root;
}

static status_t merge(const struct siblings *g) {
    struct hlo_computation *outer = g->v[0]->parent;
    struct hlo_instr *roots[MAX_GROUP], *root, *whole;
    struct merged f = {.body = hlo_computation_add(outer->module, "fused_computation")};
    enum fusion_kind kind = FUSION_LOOP;
    graph_move_before(f.body, outer);

    for (int k = 0; k < g->n; k++) {
        roots[k] = add_member(&f, g->v[k]);
        bool reduces =
            g->v[k]->op == HLO_REDUCE ||
            (g->v[k]->op == HLO_FUSION && HLO_ATTR(g->v[k], fusion)->kind == FUSION_INPUT);
        if (reduces) kind = FUSION_INPUT;
    }
    pmap_done(&f.params);

    RETURN_IF_ERR(hlo_add_instr(f.body, HLO_TUPLE, NULL, roots, g->n, NULL, NULL, 0, &root));
    hlo_set_root(f.body, root);
    RETURN_IF_ERR(hlo_sort_instrs(f.body));

    RETURN_IF_ERR(hlo_add_instr(outer, HLO_FUSION, NULL, f.operands, f.n,
                                &(struct hlo_attr_fusion){.kind = kind}, &f.body, 1, &whole));
    whole->op_type = g->v[0]->op_type;
    whole->op_name = g->v[0]->op_name;
    f.body->fusion = whole;

    for (int k = 0; k < g->n; k++) {
        struct hlo_instr *e;
        RETURN_IF_ERR(hlo_add_instr(outer, HLO_GET_TUPLE_ELEMENT, NULL, &whole, 1,
                                    &(struct hlo_attr_gte){.index = k}, NULL, 0, &e));
        hlo_replace_uses(g->v[k], e);
        hlo_remove_instr(g->v[k]);
    }
    return hlo_sort_instrs(outer);
}

// Operands that the group has together; too many are not worth it, or not possible.
static int operands_of(const struct siblings *g, const struct hlo_instr *more) {
    int n = more->n_operands;
    for (int k = 0; k < g->n; k++)
        n += g->v[k]->n_operands;
    return n;
}

static status_t fuse_users(const struct hlo_instr *x, struct pass_ctx *p, int64_t *budget,
                           bool tell, bool *found) {
    struct siblings g = {.n = 0};
    *found = false;
    if (x->users.n < 2 || x->users.n > MAX_USERS || shape_is_tuple(x->shape) ||
        shape_bytes(x->shape) < WORTH_BYTES)
        return ST_OK;
    for (size_t k = 0; k < x->users.n && !g.n; k++) {
        if (not_a_member(x->users.v[k], p->target)) continue;
        g = (struct siblings){.v = {x->users.v[k]}, .n = 1, .budget = budget};
        for (size_t j = k + 1; j < x->users.n; j++) {
            struct hlo_instr *u = x->users.v[j];
            const char *why = keeps_out(&g, u, p->target);
            if (!why && operands_of(&g, u) > MAX_OPERANDS) why = "too many operands together";
            if (!why) g.v[g.n++] = u;
            if (tell && u != g.v[0]) pass_tell_fusion(p, g.v[0], u, why);
        }
        if (g.n < 2) g.n = 0;
    }
    if (g.n < 2) return ST_OK;
    *found = p->changed = true;
    return merge(&g);
}

status_t pass_fuse_sibling(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_computation *) bodies = {0};
    int64_t budget = WALKED;
    if (!p->target) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) avec_push(&p->scratch, &bodies, c);
    for (size_t k = 0; k < bodies.n; k++) {
        struct hlo_computation *c = bodies.v[k];
        for (struct hlo_instr *i = c->first; i; i = i->next) { // i stays: only its users are merged
            bool found = true;
            for (int round = 0; found; round++)
                RETURN_IF_ERR(fuse_users(i, p, &budget, round == 0, &found));
        }
    }
    return ST_OK;
}
