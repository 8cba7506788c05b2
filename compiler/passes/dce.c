// SPDX-License-Identifier: Apache-2.0
// Dead code: one backward sweep per computation, then computations that nothing calls.
#include "compiler/passes/pass.h"

status_t pass_dce(struct hlo_module *m, struct pass_ctx *p) {
    struct pmap called = {0};
    for (struct hlo_computation *c = m->last, *prev; c; c = prev) { // callers before callees
        prev = c->prev;
        if (c != m->entry && !pmap_has_ptr(&called, c)) {
            hlo_computation_remove(c);
            p->changed = true;
            continue;
        }
        if (hlo_remove_dead(c)) p->changed = true;
        for (const struct hlo_instr *i = c->first; i; i = i->next)
            for (int k = 0; k < i->n_called; k++)
                pmap_put_ptr(&called, i->called[k], NULL);
    }
    pmap_done(&called);
    return ST_OK;
}
