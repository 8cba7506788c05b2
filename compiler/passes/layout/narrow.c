// SPDX-License-Identifier: Apache-2.0
// Moves quantisation in front of what only moves values, so that bytes are moved and not floats:
//     clamp(round(concatenate(a, b) / s) + z) -> u8   =>   concatenate of the same of a and of b
// Networks of quantise-dequantise pairs have one around each operator; what stands in front of the
// movement then often dequantises, and both are one kernel from bytes to bytes. The chain is of
// elementwise operations with one value for all; each has one user.
// Does not: reshapes and transposes, which reshape-mover takes behind the chain.
#include "compiler/passes/pass.h"

enum { MAX_CHAIN = 12 };

// The operand that the chain goes on with, where the others are one value for all; -1: none.
static int goes_on(const struct hlo_instr *i) {
    int on = -1;
    if (!hlo_is_elementwise(i) || i->n_operands > 3) return -1;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (x->shape->rank == 0 || (x->op == HLO_BROADCAST && x->operands[0]->shape->rank == 0))
            continue;
        if (on >= 0 || !shape_same_dims(x->shape, i->shape)) return -1;
        on = k;
    }
    return on;
}
static bool only_use(const struct hlo_instr *i) {
    return i->users.n == 1 && i->parent->root != i && !i->control_preds.n && !i->shape->dynamic;
}
// Does it move values, and drop none that would be quantised in vain?
static bool moves(const struct hlo_instr *i) {
    if (!i->n_operands || (i->op != HLO_CONCATENATE &&
                           shape_elements(i->operands[0]->shape) > shape_elements(i->shape)))
        return false;
    return i->op == HLO_CONCATENATE || i->op == HLO_GATHER || i->op == HLO_REVERSE ||
           i->op == HLO_SLICE || i->op == HLO_DYNAMIC_SLICE ||
           (i->op == HLO_BROADCAST && i->operands[0]->shape->rank > 0);
}
// The chain, from its last instruction backwards, on x.
static hv apply(struct hb *b, struct hlo_instr *const *chain, int n, hv x) {
    struct arena *a = b->c->module->arena;
    while (n-- > 0) {
        const struct hlo_instr *i = chain[n];
        hv in[3];
        int on = goes_on(i);
        for (int k = 0; k < i->n_operands; k++) {
            hv v = i->operands[k];
            if (k == on)
                v = x;
            else if (v->op == HLO_BROADCAST)
                v = hb_broadcast(b, v->operands[0], x->shape->dims, x->shape->rank, NULL);
            in[k] = v;
        }
        const struct shape *s = shape_make(a, i->shape->dtype, x->shape->dims, x->shape->rank);
        x = hb_op(b, i->op, s, in, i->n_operands, i->attr);
    }
    return x;
}
static hv rewrite(struct hb *b, hv i, UNUSED const struct pass_ctx *p) {
    struct hlo_instr *chain[MAX_CHAIN], *at = i;
    int n = 0;
    if (i->op != HLO_CONVERT || (i->shape->dtype != DT_S8 && i->shape->dtype != DT_U8) ||
        i->operands[0]->shape->dtype != DT_F32 || i->shape->dynamic)
        return NULL;
    for (int on; n < MAX_CHAIN && (on = goes_on(at)) >= 0; at = at->operands[on]) {
        if (at != i && !only_use(at)) return NULL;
        chain[n++] = at;
    }
    if (!moves(at) || !only_use(at) || n == 0 || at->shape->dtype != DT_F32) return NULL;
    int moved = at->op == HLO_CONCATENATE ? at->n_operands : 1;
    hv *in = arena_array(b->c->module->arena, hv, at->n_operands + 1);
    for (int k = 0; k < at->n_operands; k++)
        in[k] = k < moved ? apply(b, chain, n, at->operands[k]) : at->operands[k];
    const struct shape *s = shape_with_dtype(b->c->module->arena, at->shape, i->shape->dtype);
    return hb_op(b, at->op, s, in, at->n_operands, at->attr);
}

status_t pass_narrow(struct hlo_module *m, struct pass_ctx *p) {
    return pass_rewrite(m, p, rewrite);
}
