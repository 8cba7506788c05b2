// SPDX-License-Identifier: Apache-2.0
// See cost.h. The operations of one instruction are counted in compiler/ir/work.c.
#include "compiler/plan/cost.h"

#include "compiler/ir/work.h"

// Names and views of values that lie elsewhere.
static bool moves_nothing(const struct hlo_instr *i) {
    return i->op == HLO_PARAMETER || i->op == HLO_CONSTANT || i->op == HLO_TUPLE ||
           i->op == HLO_GET_TUPLE_ELEMENT || i->op == HLO_BITCAST || i->op == HLO_AFTER_ALL;
}

static int64_t body_bytes(const struct hlo_computation *c) {
    int64_t n = 0;
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        if (moves_nothing(i)) continue;
        if (i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL) {
            for (int k = 0; k < i->n_called; k++)
                sz_sum(&n, body_bytes(i->called[k]));
            continue;
        }
        sz_sum(&n, shape_bytes(i->shape));
        for (int k = 0; k < i->n_operands; k++)
            sz_sum(&n, shape_bytes(i->operands[k]->shape));
    }
    return n;
}

struct hlo_cost plan_cost(const struct hlo_module *m) {
    return (struct hlo_cost){hlo_body_flops(m->entry), body_bytes(m->entry)};
}
