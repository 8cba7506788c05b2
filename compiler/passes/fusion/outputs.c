// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/fusion/outputs.h"

#include "compiler/ops/while.h"
#include "compiler/passes/control/graph.h"

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && dtype_class(s->dtype) != DC_NONE && !s->dynamic &&
           layout_is_default(s->layout, s->rank);
}
// Is i the new value of a large parameter that it reads: of a loop's state, or of what a caller
// gives for a result? Alone it is written over the old value (plan/in_place.h); a fusion with
// several results is not, and the copy costs more than what it reads once.
enum { STATE_BYTES = 64 << 10 };
static bool renews_parameter(const struct hlo_instr *i) {
    const struct hlo_computation *c = i->parent;
    const struct hlo_instr *root = c->root;
    if (root->op != HLO_TUPLE || shape_bytes(i->shape) < STATE_BYTES) return false;
    bool entry = c == c->module->entry && hlo_module_extra(c->module, "input_output_alias").n;
    bool body = c->params.n == 1 && shape_is_tuple(c->params.v[0]->shape) &&
                shape_compatible(c->params.v[0]->shape, root->shape);
    for (size_t u = 0; (entry || body) && u < i->users.n; u++) {
        if (i->users.v[u] != root) continue;
        for (int k = 0; k < i->n_operands; k++) {
            const struct hlo_instr *x = i->operands[k];
            bool same = shape_same_dims(x->shape, i->shape) && x->shape->dtype == i->shape->dtype;
            if (entry && same && x->op == HLO_PARAMETER) return true;
            if (body && same && x->op == HLO_GET_TUPLE_ELEMENT &&
                x->operands[0] == c->params.v[0] && root->operands[HLO_ATTR(x, gte)->index] == i)
                return true;
        }
    }
    return false;
}
const char *outputs_no_member(const struct hlo_instr *i, const struct target *t) {
    if (!plain(i->shape) || i->control_preds.n || i->n_awaiting) return "it is no plain array";
    bool loop = i->op == HLO_FUSION && (HLO_ATTR(i, fusion)->kind == FUSION_LOOP ||
                                        HLO_ATTR(i, fusion)->kind == FUSION_INPUT);
    bool single = hlo_is_pointwise(i) || (i->op == HLO_REDUCE && i->n_operands == 2);
    if (!loop && !single) return "it is neither a loop nor a reduction";
    if (!i->users.n && i->parent->root != i) return "nothing uses it";
    if (while_of_fusion(i)) return "it is a loop";
    if (renews_parameter(i)) return "it is written over a parameter's old value";
    return t->library_accepts && t->library_accepts(t, i) ? "the library runs it" : NULL;
}

// The body: every member's own, one after the other, over shared parameters.
struct merged {
    struct hlo_computation *body;
    struct pmap params; // outer value -> parameter
    struct hlo_instr *operands[OUTPUTS_OPERANDS];
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

// Does anything but the group use member k?
static bool is_output(const struct outputs *g, int k) {
    const struct hlo_instr *i = g->v[k];
    bool out = i->parent->root == i;
    for (size_t u = 0; u < i->users.n && !out; u++) {
        out = true;
        for (int j = 0; j < g->n; j++)
            out &= i->users.v[u] != g->v[j];
    }
    return out;
}
int outputs_count(const struct outputs *g) {
    int n = 0;
    for (int k = 0; k < g->n; k++)
        n += is_output(g, k);
    return n;
}

// ---- order. A merge changes the list between the first user of its results and its last member
// alone. `place` tells where that is: numbers that grow along the list, with room between them.

void outputs_begin(struct hlo_computation *c) {
    uint32_t step = UINT32_MAX / ((uint32_t)c->n_instrs + 2), at = step;
    for (struct hlo_instr *i = c->first; i; i = i->next, at += step)
        i->place = at;
}
static void put_before(struct hlo_instr *i, struct hlo_instr *pos) {
    hlo_move_before(i, pos);
    uint32_t before = i->prev ? i->prev->place : 0, room = pos->place - before;
    if (room > 1)
        i->place = before + 1 + (room - 2) / 16; // more may come between it and pos
    else
        outputs_begin(i->parent);
}
// What x needs and stands behind pos moves in front of it, then x itself.
static void bring_before(struct hlo_instr *x, struct hlo_instr *pos) {
    struct open {
        struct hlo_instr *i;
        size_t next;
    };
    VEC(struct open) stack = {0};
    vec_push(&stack, ((struct open){x, 0}));
    while (stack.n) {
        struct open *top = &stack.v[stack.n - 1];
        size_t needs = hlo_needs(top->i);
        while (top->next < needs && hlo_need(top->i, top->next)->place < pos->place)
            top->next++;
        if (top->next < needs) {
            vec_push(&stack, ((struct open){hlo_need(top->i, top->next), 0}));
            continue;
        }
        put_before(top->i, pos);
        (void)vec_pop(&stack);
    }
    vec_done(&stack);
}
// NULL: only the root is it, or nothing.
static struct hlo_instr *first_user(const struct hlo_instr *x) {
    struct hlo_instr *first = NULL;
    for (size_t u = 0; u < x->users.n; u++)
        if (!first || x->users.v[u]->place < first->place) first = x->users.v[u];
    return first;
}
// `whole`, which stands last with the n results out[] behind it, goes in front of the first that
// uses one, and each result in front of its first user.
static void order(struct hlo_instr *whole, struct hlo_instr *const *out, int n) {
    struct hlo_instr *user[OUTPUTS_MEMBERS], *first = NULL;
    bool last = false;
    for (int k = 0; k < n; k++) {
        user[k] = first_user(out[k]);
        if (user[k] && (!first || user[k]->place < first->place)) first = user[k];
        last |= !user[k];
    }
    if (first) bring_before(whole, first);

    for (int k = 0; k < n && out[0] != whole; k++) {
        struct hlo_instr *of = user[k]; // those that it reads first, as it reads them
        for (int j = 0; of && j < of->n_operands; j++)
            for (int e = k; e < n; e++) {
                if (out[e] != of->operands[j] || user[e] != of) continue;
                put_before(out[e], of);
                user[e] = NULL;
            }
    }
    if (last) outputs_begin(whole->parent);
}

// What stands for the members is replaced by results of `whole`.
static status_t hand_over(const struct outputs *g, struct hlo_instr *whole) {
    struct hlo_instr *out[OUTPUTS_MEMBERS];
    bool tuple = shape_is_tuple(whole->shape);
    int n = 0;
    for (int k = 0; k < g->n; k++) {
        if (!is_output(g, k)) continue;
        out[n] = whole;
        if (tuple)
            RETURN_IF_ERR(hlo_add_instr(whole->parent, HLO_GET_TUPLE_ELEMENT, NULL, &whole, 1,
                                        &(struct hlo_attr_gte){.index = n}, NULL, 0, &out[n]));
        hlo_replace_uses(g->v[k], out[n++]);
    }
    for (int k = g->n - 1; k >= 0; k--)
        hlo_remove_instr(g->v[k]);
    order(whole, out, n);
    return ST_OK;
}

status_t outputs_merge(struct outputs *g) {
    struct hlo_computation *outer = g->v[0]->parent;
    struct hlo_instr *roots[OUTPUTS_MEMBERS], *root, *whole;
    struct merged f = {.body = hlo_computation_add(outer->module, "fused_computation")};
    enum fusion_kind kind = FUSION_LOOP;
    int n = 0;
    graph_move_before(f.body, outer);

    if (g->operand) param_for(&f, g->operand);
    for (int k = 0; k < g->n; k++) {
        root = add_member(&f, g->v[k]);
        pmap_put_ptr(&f.params, g->v[k], root);
        if (is_output(g, k)) roots[n++] = root;
        bool reduces =
            g->v[k]->op == HLO_REDUCE ||
            (g->v[k]->op == HLO_FUSION && HLO_ATTR(g->v[k], fusion)->kind == FUSION_INPUT);
        if (reduces) kind = FUSION_INPUT;
    }
    pmap_done(&f.params);

    root = roots[0];
    if (n > 1)
        RETURN_IF_ERR(hlo_add_instr(f.body, HLO_TUPLE, NULL, roots, n, NULL, NULL, 0, &root));
    hlo_set_root(f.body, root);

    RETURN_IF_ERR(hlo_add_instr(outer, HLO_FUSION, NULL, f.operands, f.n,
                                &(struct hlo_attr_fusion){.kind = kind}, &f.body, 1, &whole));
    whole->op_type = g->v[0]->op_type;
    whole->op_name = g->v[0]->op_name;
    hlo_mark_fused(whole);
    g->whole = whole;
    return hand_over(g, whole);
}
