// SPDX-License-Identifier: Apache-2.0
// Calls of ours (compiler/calls) as operations, for targets whose devices have no code for them.
// Run on main alone, behind the split: weights of few bits are unpacked where they are used, and
// travel and lie in memory as they are.
#include "compiler/calls/expand.h"
#include "compiler/passes/pass.h"

static status_t expand(struct hlo_instr *i, struct pass_ctx *p) {
    struct hlo_instr *last = i->parent->last, *r;
    struct hb b = hb_begin(i->parent);
    RETURN_IF_ERR(call_expand(&b, &p->scratch, i, &r));
    if (!r) return ST_OK;
    p->changed = true;
    return pass_put_instead(&b, last, i, r);
}

status_t pass_calls(struct hlo_module *m, struct pass_ctx *p) {
    if (!p->target || !p->target->expands_calls) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c)
    if (i->op == HLO_CUSTOM_CALL) RETURN_IF_ERR(expand(i, p));
    return ST_OK;
}
