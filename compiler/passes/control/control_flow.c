// SPDX-License-Identifier: Apache-2.0
// Control flow that is decided before the run: a conditional with a constant selector is its
// branch, a while whose condition is false at once is its initial state, and one that turns a known
// small number of times is as many copies of its body.
#include "compiler/ir/turns.h"
#include "compiler/passes/control/graph.h"
#include "compiler/passes/pass.h"

enum { MAX_UNROLLED = 64 };

static struct hlo_instr *decided_while(struct hlo_instr *w) {
    int64_t turns = hlo_turns(w);
    const struct hlo_computation *body = w->called[1];
    if (turns < 0 || (turns > 1 && turns * body->n_instrs > MAX_UNROLLED)) return NULL;
    if (hlo_computation_has_effect(w->called[0])) return NULL;
    struct hlo_instr *state = w->operands[0];
    for (int64_t n = 0; n < turns; n++)
        state = graph_inline(w, body, &state);
    return state;
}

static struct hlo_instr *decided_conditional(struct hlo_instr *i) {
    const struct hlo_instr *s = i->operands[0];
    if (s->op != HLO_CONSTANT) return NULL;
    int64_t k = lit_get_i64(s->literal, 0);
    if (s->shape->dtype == DT_PRED) k = !k;
    if (k < 0 || k >= i->n_called) k = i->n_called - 1;
    return graph_inline(i, i->called[k], &i->operands[k + 1]);
}

status_t pass_control_flow(struct hlo_module *m, struct pass_ctx *p) {
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c) {
        struct hlo_instr *r = NULL;
        if (i->control_preds.n || i->n_awaiting || (!i->users.n && i != c->root)) continue;
        if (i->op == HLO_CONDITIONAL) r = decided_conditional(i);
        if (i->op == HLO_WHILE) r = decided_while(i);
        if (!r) continue;
        hlo_replace_uses(i, r);
        hlo_remove_instr(i);
        p->changed = true;
    }
    return ST_OK;
}
