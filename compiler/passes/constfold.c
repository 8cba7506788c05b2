// SPDX-License-Identifier: Apache-2.0
// Constant folding by the reference evaluator. Only small results are folded, and never a
// broadcast: it would store one value many times, and rules and library calls look for that form (a
// bias). A result that takes much work stays an instruction, however small it is.
#include "compiler/eval.h"
#include "compiler/ir/work.h"
#include "compiler/passes/pass.h"

enum { MAX_BYTES = 4096, MAX_WORK = 1 << 20 };

static bool foldable(const struct hlo_instr *i) {
    if (i->op == HLO_CONSTANT || i->op == HLO_PARAMETER || i->op == HLO_TUPLE ||
        i->op == HLO_IOTA || i->op == HLO_BROADCAST || !i->n_operands || hlo_has_effect(i) ||
        hlo_is_collective(i)) // whose values come from other participants too
        return false;
    if (shape_is_tuple(i->shape) || shape_bytes(i->shape) > MAX_BYTES ||
        !hlo_op_info(i->op)->eval || i->n_called)
        return false;
    bool whole = false; // some operand already stores as much as the result would
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        bool constant = x->op == HLO_CONSTANT;
        if (!constant && (x->op != HLO_BROADCAST || x->operands[0]->op != HLO_CONSTANT))
            return false;
        whole |= constant && shape_bytes(x->shape) >= shape_bytes(i->shape);
    }
    return whole || i->shape->rank == 0;
}

// Its own and that of its operands; INT64_MAX at most.
static int64_t work_of(const struct hlo_instr *i) {
    int64_t n = hlo_work(i);
    for (int k = 0; k < i->n_operands; k++)
        if (!sz_add(n, hlo_work(i->operands[k]), &n)) return INT64_MAX;
    return n < INT64_MAX - MAX_WORK ? n + i->n_operands : n;
}

status_t pass_constfold(struct hlo_module *m, struct pass_ctx *p) {
    HLO_EACH_COMPUTATION(c, m) {
        HLO_EACH_INSTR(i, c) {
            struct literal *l;
            if (!foldable(i)) continue;
            int64_t work = work_of(i);
            if (work > MAX_WORK || work > EVAL_COMPILE_WORK - p->folded_work) continue;
            struct hlo_eval ev = hlo_eval_at_compile(&p->scratch, work, pass_cancel(p));
            status_t st = hlo_eval_value(&ev, i, &l);
            p->folded_work += work;
            if (st_code(st) == ST_CANCELLED) return st;
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
