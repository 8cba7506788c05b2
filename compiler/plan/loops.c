// SPDX-License-Identifier: Apache-2.0
// Loops that need nothing of each other (the two directions of a recurrent layer) come one after
// the other, so that a device may run them at the same time: a loop of small steps occupies one
// thread only. What a later loop needs moves in front of the first one; everything else keeps its
// place. Only near ones are looked for, and what lives longer for it is bounded.
#include "compiler/plan/loops.h"

#include "compiler/ir/op.h"
#include "compiler/plan/renew.h"

enum { NEAR = 512, MOST_LOOPS = 8 };
static const int64_t MOST_BYTES = 16 << 20; // of what moves, and of a loop's state

struct orderer {
    const struct hlo_instr **list; // as the computation has them
    int n;
    struct pmap index; // instruction -> 1 + its place in list
    bool *placed;
    int *needs; // list[k] needs a loop of the group that is being made: its mark
    int *moves; // list[k] moves in front of it, or is of it: its mark
    int mark;
    struct plan_order out;
};

static bool may_run_beside(const struct hlo_instr *i) {
    return i->op == HLO_WHILE && !i->control_preds.n && shape_bytes(i->shape) <= MOST_BYTES &&
           !hlo_has_effect(i);
}
static int index_of(const struct orderer *o, const struct hlo_instr *i) {
    return (int)(intptr_t)pmap_get_ptr(&o->index, i) - 1;
}
static bool needs_group(const struct orderer *o, const struct hlo_instr *i) {
    for (int k = 0; k < i->n_operands; k++)
        if (o->needs[index_of(o, i->operands[k])] == o->mark) return true;
    for (size_t k = 0; k < i->control_preds.n; k++)
        if (o->needs[index_of(o, i->control_preds.v[k])] == o->mark) return true;
    return false;
}
// Marks what list[at] needs of (from, at). False: something may not move, or it is too much.
static bool gather(struct orderer *o, int from, int at, int64_t *bytes) {
    const int unsure = -o->mark; // until all of it is known to move
    const int64_t before = *bytes;
    o->moves[at] = unsure;
    bool ok = true;
    for (int j = at; j > from && ok; j--) {
        const struct hlo_instr *i = o->list[j];
        if (o->moves[j] != unsure) continue;
        if (j < at) {
            ok = !i->control_preds.n && !hlo_has_effect(i) && i->op != HLO_WHILE &&
                 i->op != HLO_CONDITIONAL && i->op != HLO_CALL;
            *bytes += shape_is_tuple(i->shape) ? 0 : shape_bytes(i->shape);
            ok &= *bytes <= MOST_BYTES;
        }
        for (int k = 0; k < i->n_operands; k++) {
            int e = index_of(o, i->operands[k]);
            if (!o->placed[e] && o->moves[e] != o->mark) o->moves[e] = unsure;
        }
    }
    for (int j = from + 1; j <= at; j++)
        if (o->moves[j] == unsure) o->moves[j] = ok ? o->mark : 0;
    if (!ok) *bytes = before;
    return ok;
}
static void put(struct orderer *o, int k, int beside) {
    o->placed[k] = true;
    o->out.beside[o->out.n] = beside;
    o->out.v[o->out.n++] = o->list[k];
}
// list[first] is a loop: places it, with what may run beside it.
static void place_loops(struct orderer *o, int first) {
    int group[MOST_LOOPS] = {first}, n = 1, last = first;
    int64_t bytes = 0;
    o->mark++;
    o->needs[first] = o->mark;
    for (int k = first + 1; k < o->n && k < first + NEAR && n < MOST_LOOPS; k++) {
        if (o->placed[k]) continue;
        if (needs_group(o, o->list[k]))
            o->needs[k] = o->mark;
        else if (may_run_beside(o->list[k]) && gather(o, first, k, &bytes))
            o->needs[k] = o->mark, last = group[n++] = k;
    }
    for (int k = first + 1; k < last; k++) // before any loop of the group is placed
        if (o->moves[k] == o->mark && o->needs[k] != o->mark) put(o, k, 0);
    for (int k = 0; k < n; k++)
        put(o, group[k], n - 1 - k);
}

struct plan_order plan_order(struct arena *a, const struct hlo_computation *c,
                             const int32_t *over) {
    struct orderer o = {.n = c->n_instrs};
    o.list = arena_array(a, const struct hlo_instr *, o.n + 1);
    o.placed = arena_zarray(a, bool, o.n + 1);
    o.needs = arena_zarray(a, int, o.n + 1);
    o.moves = arena_zarray(a, int, o.n + 1);
    o.out.v = arena_array(a, const struct hlo_instr *, o.n + 1);
    o.out.beside = arena_zarray(a, int, o.n + 1);
    int n = 0;
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        o.list[n++] = i;
    plan_renew_last(a, c, over, o.list, n);
    for (int k = 0; k < n; k++)
        pmap_put_ptr(&o.index, o.list[k], (void *)(intptr_t)(k + 1));
    for (int k = 0; k < n; k++) {
        if (o.placed[k]) continue;
        if (may_run_beside(o.list[k]))
            place_loops(&o, k);
        else
            put(&o, k, 0);
    }
    pmap_done(&o.index);
    return o.out;
}
