// SPDX-License-Identifier: Apache-2.0
// The call inliner: every `call` becomes a copy of what it calls, callees first, so that the other
// passes see through it. A budget bounds the growth of modules whose computations call each other
// many times.
#include "compiler/ir/work.h"
#include "compiler/passes/control/graph.h"
#include "compiler/passes/pass.h"

enum { MAX_INSTRS = 200000 };

status_t pass_inline(struct hlo_module *m, struct pass_ctx *p) {
    int64_t total = hlo_total(m);
    HLO_EACH_COMPUTATION(c, m) // callees stand first: what is copied has no calls left
    HLO_EACH_INSTR(i, c) {
        if (i->op != HLO_CALL || i->control_preds.n || i->n_awaiting) continue;
        total += i->called[0]->n_instrs;
        if (total > MAX_INSTRS) continue;
        hlo_replace_uses(i, graph_inline(i, i->called[0], i->operands));
        hlo_remove_instr(i);
        p->changed = true;
    }
    if (hlo_nesting(m, true) > HLO_MOST_NESTED) // whoever follows calls goes so deep
        return st_exhausted("calls that cannot become what they call (something waits for them, or "
                            "there would be more than %d instructions) nest deeper than %d",
                            MAX_INSTRS, HLO_MOST_NESTED);
    return ST_OK;
}
