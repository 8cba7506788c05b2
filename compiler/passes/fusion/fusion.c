// SPDX-License-Identifier: Apache-2.0
// The body is made of clones; what they use from outside becomes parameters in order of first use.
#include "compiler/passes/fusion/fusion.h"

#include "compiler/passes/control/graph.h"

void fusion_in_list_order(struct hlo_instr **v, int n) {
    for (int k = 1; k < n; k++)
        for (int j = k; j > 0 && v[j]->place < v[j - 1]->place; j--) {
            struct hlo_instr *t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
}

status_t fusion_make(struct hlo_instr *const *instrs, int n, enum fusion_kind kind,
                     const struct hlo_instr *hero, struct hlo_instr **out) {
    struct hlo_instr *last = instrs[n - 1];
    struct hlo_computation *outer = last->parent, *body;
    struct hlo_module *m = outer->module;
    struct pmap map = {0};
    VEC(struct hlo_instr *) operands = {0};

    body = hlo_computation_add(m, "fused_computation");
    graph_move_before(body, outer); // callees stand before callers
    for (int k = 0; k < n; k++)
        pmap_put_ptr(&map, instrs[k], instrs[k]); // members, not cloned yet

    for (int k = 0; k < n; k++)
        for (int j = 0; j < instrs[k]->n_operands; j++) {
            struct hlo_instr *x = instrs[k]->operands[j];
            if (pmap_has_ptr(&map, x)) continue;
            if (x->op == HLO_CONSTANT && x->shape->rank == 0) {
                pmap_put_ptr(&map, x, hlo_clone_instr(body, x, NULL));
                continue;
            }
            pmap_put_ptr(&map, x, hlo_add_param(body, (int64_t)operands.n, x->shape, "param"));
            avec_push(m->arena, &operands, x);
        }

    for (int k = 0; k < n; k++) {
        struct hlo_instr *x = instrs[k],
                         **in = arena_array(m->arena, struct hlo_instr *, x->n_operands + 1);
        for (int j = 0; j < x->n_operands; j++)
            in[j] = pmap_get_ptr(&map, x->operands[j]);
        pmap_put_ptr(&map, x, hlo_clone_instr(body, x, in));
    }
    hlo_set_root(body, pmap_get_ptr(&map, last));
    pmap_done(&map);

    struct hlo_instr *f;
    RETURN_IF_ERR(hlo_add_instr(outer, HLO_FUSION, NULL, operands.v, (int)operands.n,
                                &(struct hlo_attr_fusion){.kind = kind}, &body, 1, &f));
    f->shape = last->shape;
    f->op_type = hero->op_type;
    f->op_name = hero->op_name;
    hlo_mark_fused(f);

    hlo_move_before(f, last);
    f->place = last->place; // which goes
    hlo_replace_uses(last, f);
    *out = f;
    return ST_OK;
}

bool fusion_drops_ones(const struct hlo_instr *reshape) {
    const struct shape *a = reshape->operands[0]->shape, *b = reshape->shape;
    int j = 0;
    for (int k = 0; k < a->rank; k++) {
        if (a->dims[k] == 1) continue;
        while (j < b->rank && b->dims[j] == 1)
            j++;
        if (j == b->rank || b->dims[j++] != a->dims[k]) return false;
    }
    return true; // as many elements: the rest of b is ones
}

// A member's mark is its index; of others it may be anything (P. Briggs, L. Torczon, "An efficient
// representation for sparse sets", 1993).
int fusion_index(const struct fusion_group *g, const struct hlo_instr *i) {
    return i->mark < (uint32_t)g->n && g->v[i->mark] == i ? (int)i->mark : -1;
}
bool fusion_has(const struct fusion_group *g, const struct hlo_instr *i) {
    return fusion_index(g, i) >= 0;
}
static void take_in(struct fusion_group *g, struct hlo_instr *i) {
    i->mark = (uint32_t)g->n;
    g->v[g->n++] = i;
}

// The first operand of a member that may come in, or NULL.
static struct hlo_instr *candidate(const struct fusion_group *g) {
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->v[k]->n_operands; j++) {
            struct hlo_instr *p = g->v[k]->operands[j];
            if (!fusion_has(g, p) && !g->keeps_out(g, p)) return p;
        }
    return NULL;
}
void fusion_grow(struct fusion_group *g) {
    for (int k = 0; k < g->n; k++)
        g->v[k]->mark = (uint32_t)k;
    for (struct hlo_instr *p; g->n < g->max && (p = candidate(g));)
        take_in(g, p);
}

void fusion_tell(const struct pass_ctx *p, const struct fusion_group *g) {
    if (!p->trace) return;
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->v[k]->n_operands; j++) {
            const struct hlo_instr *x = g->v[k]->operands[j];
            if (x->op == HLO_CONSTANT || x->op == HLO_PARAMETER) continue;
            const char *why = fusion_has(g, x) ? NULL
                              : g->n == g->max ? "the fusion is full"
                                               : g->keeps_out(g, x);
            pass_tell_fusion(p, x, g->v[k], why);
        }
}

status_t fusion_take(struct fusion_group *g, enum fusion_kind kind, struct hlo_instr **out_prev) {
    const struct hlo_instr *root = g->v[0];
    struct hlo_computation *c = root->parent;
    struct hlo_instr *f, *prev;
    fusion_in_list_order(g->v, g->n);
    RETURN_IF_ERR(fusion_make(g->v, g->n, kind, root, &f));
    // The root is dead now, and members that had no other user with it: members come before it in
    // the list, so removing them from the end is safe.
    prev = f->prev;
    for (int k = g->n - 1; k >= 0; k--) {
        if (g->v[k]->users.n || g->v[k] == c->root) continue;
        if (g->v[k] == prev) prev = prev->prev;
        hlo_remove_instr(g->v[k]);
    }
    *out_prev = prev;
    return ST_OK;
}
