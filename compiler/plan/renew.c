// SPDX-License-Identifier: Apache-2.0
// An instruction that renews a parameter moves down, with those that only name its results, to
// behind the last one that reads the parameter. Lion's moment is read by the step of the weight, a
// layer's weight by the derivative of its input; which of them came first was chance.
#include "compiler/plan/renew.h"

#include <string.h>

#include "compiler/ir/op.h"

struct mover {
    const struct hlo_computation *c;
    const struct hlo_instr **list;
    struct pmap at; // instruction -> 1 + its place in list
    const struct hlo_instr **moved;
    int n;
    bool ordered; // by control dependences: some of them
    int *first;   // [leaves + 1] of reads: where those of each element of a loop's state begin
    const struct hlo_instr **reads;
};

static int place_of(const struct mover *m, const struct hlo_instr *i) {
    return (int)(intptr_t)pmap_get_ptr(&m->at, i) - 1;
}
// Has no step of its own: stands for an operand, or for a list of them. What it does not hold for
// (a reshape that moves bytes) reads its operand itself, where it stands.
static bool is_name(const struct hlo_instr *i) {
    return i->op == HLO_TUPLE || i->op == HLO_GET_TUPLE_ELEMENT || i->op == HLO_BITCAST ||
           i->op == HLO_RESHAPE || i->op == HLO_COPY || i->op == HLO_OPT_BARRIER ||
           i->op == HLO_BITCAST_CONVERT;
}
static const struct hlo_instr *named(const struct hlo_instr *i) {
    while (i->op == HLO_GET_TUPLE_ELEMENT || i->op == HLO_BITCAST || i->op == HLO_RESHAPE)
        i = i->operands[0];
    return i;
}
static bool is_leaf(const struct mover *m, const struct hlo_instr *i, int leaf) {
    const struct hlo_instr *first = m->c->params.n ? m->c->params.v[0] : NULL;
    if (i->op == HLO_PARAMETER) return i->param_number == leaf && !shape_is_tuple(i->shape);
    return i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0] == first &&
           HLO_ATTR(i, gte)->index == leaf && !shape_is_tuple(i->shape);
}

// The place of the last instruction other than w that reads x, also under other names.
static int last_reader(const struct mover *m, const struct hlo_instr *x, const struct hlo_instr *w,
                       int depth) {
    int last = -1;
    for (size_t u = 0; u < x->users.n; u++) {
        const struct hlo_instr *i = x->users.v[u];
        if (i == w || i == m->c->root) continue;
        int at = place_of(m, i), behind = -1;
        if (is_name(i) && depth > 0) behind = last_reader(m, i, w, depth - 1);
        if (behind > at) at = behind;
        if (at > last) last = at;
    }
    return last;
}
// Marks x's names at or before `to`. False: something else there needs x.
static bool names_until(struct mover *m, const struct hlo_instr *x, int to, int depth) {
    for (size_t u = 0; u < x->users.n; u++) {
        const struct hlo_instr *i = x->users.v[u];
        if (i == m->c->root || place_of(m, i) > to) continue;
        if (!is_name(i) || depth == 0 || m->n == 64 || i->op == HLO_TUPLE) return false;
        m->moved[m->n++] = i;
        if (!names_until(m, i, to, depth - 1)) return false;
    }
    return true;
}
static bool is_moved(const struct mover *m, const struct hlo_instr *i) {
    for (int k = 0; k < m->n; k++)
        if (m->moved[k] == i) return true;
    return false;
}
static bool is_held(const struct mover *m, int from, int to) { // by control dependences
    for (int k = from; k <= to && m->ordered; k++)
        if (m->list[k]->control_preds.n) return true;
    return hlo_has_effect(m->list[from]);
}
static void move(struct mover *m, int from, int to) {
    int n = 0, kept = from;
    for (int k = from; k <= to; k++) {
        const struct hlo_instr *i = m->list[k];
        if (is_moved(m, i))
            m->moved[64 + n++] = i; // in their order
        else
            m->list[kept++] = i;
    }
    memcpy(m->list + kept, m->moved + 64, sizeof *m->list * (size_t)n);
    for (int k = from; k <= to; k++)
        pmap_put_ptr(&m->at, m->list[k], (void *)(intptr_t)(k + 1));
}

// w gives a leaf of the root that may lie in parameter leaf p.
static void renew(struct mover *m, const struct hlo_instr *w, int p) {
    enum { DEPTH = 8 };
    const struct hlo_instr *x = NULL;
    if (w->op == HLO_WHILE || w->op == HLO_PARAMETER || w->op == HLO_TUPLE) return;
    for (int k = 0; k < w->n_operands && !x; k++)
        if (is_leaf(m, w->operands[k], p)) x = w->operands[k];
    if (!x) return;

    int from = place_of(m, w), to = -1;
    const struct hlo_instr *of = x->op == HLO_PARAMETER ? NULL : x->operands[0];
    for (int u = of ? m->first[p] : 0; of && u < m->first[p + 1]; u++) {
        int last = last_reader(m, m->reads[u], w, DEPTH);
        if (last > to) to = last;
    }
    if (!of) to = last_reader(m, x, w, DEPTH);
    m->n = 0;
    m->moved[m->n++] = w;
    if (to > from && names_until(m, w, to, DEPTH) && !is_held(m, from, to)) move(m, from, to);
}
// The elements that are read of the first parameter, by index.
static void sort_reads(struct arena *a, struct mover *m) {
    const struct hlo_instr *p = m->c->params.n ? m->c->params.v[0] : NULL;
    if (!p || !shape_is_tuple(p->shape)) return;
    int n = p->shape->n_elems;
    m->first = arena_zarray(a, int, n + 2);
    m->reads = arena_array(a, const struct hlo_instr *, p->users.n + 1);
    for (int pass = 0; pass < 2; pass++) { // counts, then places
        for (size_t u = 0; u < p->users.n; u++) {
            const struct hlo_instr *x = p->users.v[u];
            if (x->op != HLO_GET_TUPLE_ELEMENT || shape_is_tuple(x->shape)) continue;
            int64_t k = HLO_ATTR(x, gte)->index;
            if (pass)
                m->reads[m->first[k + 1]++] = x;
            else if (k + 2 <= n)
                m->first[k + 2]++;
        }
        for (int k = 2; k <= n && !pass; k++)
            m->first[k] += m->first[k - 1];
    }
}
void plan_renew_last(struct arena *a, const struct hlo_computation *c, const int32_t *over,
                     const struct hlo_instr **list, int n) {
    struct mover m = {.c = c, .list = list};
    const struct hlo_instr *root = c->root;
    if (!over || root->op != HLO_TUPLE || shape_leaves(root->shape) != root->n_operands) return;
    m.moved = arena_array(a, const struct hlo_instr *, 128);
    sort_reads(a, &m);
    for (int k = 0; k < n; k++) {
        pmap_put_ptr(&m.at, list[k], (void *)(intptr_t)(k + 1));
        m.ordered |= list[k]->control_preds.n != 0;
    }
    for (int k = 0; k < root->n_operands; k++)
        if (over[k] >= 0) renew(&m, named(root->operands[k]), over[k]);
    pmap_done(&m.at);
}
