// SPDX-License-Identifier: Apache-2.0
// Constant folding by the reference evaluator. Only small results are folded, and never a broadcast
// of a scalar: that form is what other rules look for.
#include "compiler/eval.h"
#include "compiler/passes/pass.h"

enum { MAX_BYTES = 4096 };

static bool foldable(const struct hlo_instr *i) {
    if (i->op == HLO_CONSTANT || i->op == HLO_PARAMETER || i->op == HLO_TUPLE ||
        i->op == HLO_IOTA || !i->n_operands || hlo_has_effect(i))
        return false;
    if (shape_is_tuple(i->shape) || shape_bytes(i->shape) > MAX_BYTES ||
        !hlo_op_info(i->op)->eval || i->n_called)
        return false;
    if (i->op == HLO_BROADCAST && i->operands[0]->shape->rank == 0) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (i->operands[k]->op != HLO_CONSTANT) return false;
    return true;
}

status_t pass_constfold(struct hlo_module *m, struct pass_ctx *p) {
    HLO_EACH_COMPUTATION(c, m) {
        HLO_EACH_INSTR(i, c) {
            struct literal *l;
            if (!foldable(i)) continue;
            status_t st = hlo_eval_value(&p->scratch, i, &l);
            if (st) { // not defined for the type, or over budget: stays an instruction
                st_drop(st);
                continue;
            }
            struct hlo_instr *k = hlo_add_constant(c, lit_clone(m->arena, l));
            hlo_move_before(k, i);
            k->shape = i->shape;
            hlo_replace_uses(i, k);
            hlo_remove_instr(i);
            p->changed = true;
        }
    }
    return ST_OK;
}
