// SPDX-License-Identifier: Apache-2.0
// Multi-output fusion: loops and reductions that read the same value, have results of the same dims
// and do not depend on each other become one fusion with a tuple as root, so that what they share
// is read once: a sum and a sum of squares, a value and its derivative. Runs behind the other
// fusions, and takes their fusions in whole.
#include "compiler/passes/fusion/outputs.h"

// Each pair costs a walk over the computation: WALKED bounds them together, in instructions.
enum { MAX_USERS = 64, WALKED = 20000000 };

static const char *keeps_out(const struct outputs *g, const struct hlo_instr *i,
                             const struct target *t, int64_t *budget) {
    const char *why = outputs_no_member(i, t);
    if (why) return why;
    if (g->n == OUTPUTS_MOST) return "the fusion has its most results";
    if (!shape_same_dims(i->shape, g->v[0]->shape)) return "its result has other dims";
    for (int k = 0; k < g->n; k++) {
        if (g->v[k] == i) return "it is in already";
        *budget -= i->parent->n_instrs;
        if (*budget < 0) return "the pass has used its budget";
        if (hlo_depends_on_by_place(i, g->v[k]) || hlo_depends_on_by_place(g->v[k], i))
            return "one depends on the other";
    }
    return NULL;
}

// Operands that the group has together; too many are not worth it, or not possible.
static int operands_of(const struct outputs *g, const struct hlo_instr *more) {
    int n = more->n_operands;
    for (int k = 0; k < g->n; k++)
        n += g->v[k]->n_operands;
    return n;
}

static status_t fuse_users(const struct hlo_instr *x, struct pass_ctx *p, int64_t *budget,
                           bool tell, bool *found) {
    struct outputs g = {.n = 0};
    *found = false;
    if (x->users.n < 2 || x->users.n > MAX_USERS || shape_is_tuple(x->shape) ||
        shape_bytes(x->shape) < OUTPUTS_WORTH)
        return ST_OK;
    for (size_t k = 0; k < x->users.n && !g.n; k++) {
        if (outputs_no_member(x->users.v[k], p->target)) continue;
        g = (struct outputs){.v = {x->users.v[k]}, .n = 1};
        for (size_t j = k + 1; j < x->users.n; j++) {
            struct hlo_instr *u = x->users.v[j];
            const char *why = keeps_out(&g, u, p->target, budget);
            if (!why && operands_of(&g, u) > OUTPUTS_OPERANDS) why = "too many operands together";
            if (!why) g.v[g.n++] = u;
            if (tell && u != g.v[0]) pass_tell_fusion(p, g.v[0], u, why);
        }
        if (g.n < 2) g.n = 0;
    }
    if (g.n < 2) return ST_OK;
    *found = p->changed = true;
    return outputs_merge(&g);
}

status_t pass_fuse_sibling(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_computation *) bodies = {0};
    int64_t budget = WALKED;
    if (!p->target) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) avec_push(&p->scratch, &bodies, c);
    for (size_t k = 0; k < bodies.n; k++) {
        struct hlo_computation *c = bodies.v[k];
        outputs_begin(c);
        for (struct hlo_instr *i = c->first; i; i = i->next) { // i stays: only its users are merged
            bool found = true;
            for (int round = 0; found; round++)
                RETURN_IF_ERR(fuse_users(i, p, &budget, round == 0, &found));
        }
    }
    return ST_OK;
}
