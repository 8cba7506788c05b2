// SPDX-License-Identifier: Apache-2.0
// Control predecessors say what runs before what. Seen from outside that is nothing but the order
// of instructions with effects: others may be computed whenever they are needed, and passes merge,
// fuse and remove them. So an edge stays where both of its ends have effects; where others go, the
// computation's effects are put in a row, as they stand, which holds what went through the others.
//     a = rng; b = add(a, a); c = rng, after {b}   =>   a = rng; b = add(a, a); c = rng, after {a}
#include "compiler/ir/op.h"
#include "compiler/passes/pass.h"

// Takes edges away that have an end without effects. False: there was none.
static bool keep_effects(struct hlo_instr *i) {
    bool effect = i->control_preds.n && hlo_has_effect(i), any = false;
    for (size_t k = i->control_preds.n; k-- > 0;) {
        if (effect && hlo_has_effect(i->control_preds.v[k])) continue;
        hlo_remove_control_pred(i, k);
        any = true;
    }
    return any;
}

status_t pass_control_order(struct hlo_module *m, struct pass_ctx *p) {
    HLO_EACH_COMPUTATION(c, m) {
        struct hlo_instr *last = NULL;
        bool any = false;
        for (struct hlo_instr *i = c->first; i; i = i->next)
            any |= keep_effects(i);
        p->changed |= any;
        for (struct hlo_instr *i = c->first; i && any; i = i->next) {
            if (!hlo_has_effect(i)) continue;
            if (last && !hlo_awaits(i, last)) hlo_add_control_pred(i, last);
            last = i;
        }
    }
    return ST_OK;
}
