// SPDX-License-Identifier: Apache-2.0
// A dynamic-update-slice and what computes its update, as one kernel that writes the update where
// it belongs: `x.at[1:-1].add(y)`, staggered grids. It may read of the updated array the updated
// places alone (plan_last_update); other elements might be new already. Nothing may come to lie
// between a value and its last reader that has to be written over it: the fusion stands where the
// update was computed, if nothing reads the old array behind that, else where the
// dynamic-update-slice did, if none of the values that it reads is renewed before. Small updates
// stay: in loops of few elements their values are in registers.
#include "compiler/passes/fusion/fusion.h"
#include "compiler/passes/fusion/outputs.h"
#include "compiler/plan/in_place.h"

enum { WORTH = 2048, MOST = 256 }; // bytes of an update; fusions of a computation

// The last operand of i, from `from` on, in the list.
static uint32_t last_place(const struct hlo_instr *i, int from, const struct hlo_instr *but) {
    uint32_t last = 0;
    for (int k = from; k < i->n_operands; k++)
        if (i->operands[k] != but && i->operands[k]->place > last) last = i->operands[k]->place;
    return last;
}
// Does anything but `a` and `b` use x behind `place`, of the kind that may write over it?
static bool used_behind(const struct hlo_instr *x, uint32_t place, const struct hlo_instr *a,
                        const struct hlo_instr *b) {
    for (size_t u = 0; u < x->users.n; u++) {
        const struct hlo_instr *i = x->users.v[u];
        if (i != a && i != b && i->place > place && i != i->parent->root) return true;
    }
    return false;
}
static bool moves(const struct hlo_instr *i) {
    bool kind = i->op == HLO_SLICE || i->op == HLO_DYNAMIC_SLICE || i->op == HLO_BROADCAST;
    return kind && !i->shape->dynamic && layout_is_default(i->shape->layout, i->shape->rank) &&
           !i->control_preds.n && !i->n_awaiting;
}
static const char *keeps_out(const struct hlo_instr *up, const struct hlo_instr *d,
                             const struct target *t) {
    if (up->users.n != 1 || up->parent->root == up) return "its update has other users";
    if (shape_bytes(up->shape) < WORTH) return "its update is small";
    if (d->control_preds.n || d->n_awaiting) return "it is no plain array";
    if (up->n_operands + d->n_operands - 1 > OUTPUTS_OPERANDS) return "too many operands together";
    const char *why = moves(up) ? NULL : outputs_no_member(up, t);
    if (why) return why;
    if (moves(up)) return plan_may_end_in(up, d) ? NULL : "it moves elements of what is updated";
    if (up->op == HLO_FUSION ? HLO_ATTR(up, fusion)->kind != FUSION_LOOP : !hlo_is_pointwise(up))
        return "its update is no loop";
    if (!plan_may_end_in(up, d)) return "it reads other elements of what is updated";
    return NULL;
}
// Before what the fusion may stand; NULL: nowhere.
static struct hlo_instr *place_for(struct hlo_instr *up, struct hlo_instr *d) {
    struct hlo_instr *old = d->operands[0];
    bool ready = last_place(d, 0, up) < up->place;
    if (ready && !used_behind(old, up->place, up, d)) return up->next == d ? d->next : up->next;
    for (int k = 0; k < up->n_operands; k++) {
        const struct hlo_instr *x = up->operands[k];
        if (x != old && used_behind(x, up->place, up, d)) return NULL;
    }
    return d->next;
}
static status_t fuse(struct hlo_instr *up, struct hlo_instr *d, struct hlo_instr *before,
                     struct pass_ctx *p) {
    struct outputs g = {.v = {up, d}, .n = 2, .operand = d->operands[0]};
    struct hlo_computation *c = d->parent;
    pass_tell_fusion(p, up, d, NULL);
    RETURN_IF_ERR(outputs_merge(&g));
    if (before) hlo_move_before(g.whole, before);
    outputs_begin(c);
    p->changed = true;
    return ST_OK;
}

status_t pass_fuse_update(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_computation *) bodies = {0};
    if (!p->target) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) avec_push(&p->scratch, &bodies, c);
    for (size_t k = 0; k < bodies.n; k++) {
        int made = 0;
        outputs_begin(bodies.v[k]);
        for (struct hlo_instr *d = bodies.v[k]->first, *next; d && made < MOST; d = next) {
            next = d->next;
            if (d->op != HLO_DYNAMIC_UPDATE_SLICE || d->n_operands != d->shape->rank + 2) continue;
            struct hlo_instr *up = d->operands[1];
            const char *why = keeps_out(up, d, p->target);
            struct hlo_instr *before = why ? NULL : place_for(up, d);
            if (!why && !before && d->next) why = "what it reads is written before";
            if (why) {
                pass_tell_fusion(p, up, d, why);
                continue;
            }
            RETURN_IF_ERR(fuse(up, d, before, p));
            made++;
        }
    }
    return ST_OK;
}
