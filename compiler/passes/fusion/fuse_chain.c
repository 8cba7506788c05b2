// SPDX-License-Identifier: Apache-2.0
// Multi-output fusion along chains: elementwise kernels of the same dims that read each other's
// results element by element, or the same values, become one with several results, or one.
// fuse-loop leaves such chains where a value has several users that lie in no single fusion: the
// rounds of a counter-based random number generator, an optimizer's moments and the parameters made
// of them. Runs behind fuse-loop and takes its fusions in whole.
#include "compiler/passes/fusion/fusion.h"
#include "compiler/passes/fusion/outputs.h"

// A group looks so many instructions ahead. Float chains keep many values at a time: a kernel of
// more operations than FLOAT_OPS of them spills registers; those of integers keep few.
enum { AHEAD = 256, FLOAT_OPS = 48, INT_OPS = 512, WALKED = 20000000 };

static bool floats(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) &&
           (dtype_is_float(i->shape->dtype) || dtype_is_complex(i->shape->dtype));
}
// A parameter, or a part of one that is read where it lies.
static bool reads_memory(const struct hlo_instr *x) {
    while (x->op == HLO_SLICE || (x->op == HLO_RESHAPE && fusion_drops_ones(x)))
        x = x->operands[0];
    return x->op == HLO_PARAMETER;
}
// Operations of a member; -1: it computes its elements otherwise than one by one.
static int ops_of(const struct hlo_instr *i, bool *has_floats) {
    int n = 0;
    *has_floats |= floats(i);
    if (i->op != HLO_FUSION) return hlo_is_pointwise(i) ? 1 : -1;
    if (HLO_ATTR(i, fusion)->kind != FUSION_LOOP) return -1;
    for (const struct hlo_instr *x = i->called[0]->first; x; x = x->next) {
        bool leaf = x->op == HLO_CONSTANT || x->op == HLO_IOTA || reads_memory(x);
        if (!leaf && x->op != HLO_BROADCAST && !hlo_is_pointwise(x)) return -1;
        *has_floats |= floats(x);
        n += hlo_is_pointwise(x);
    }
    return n;
}
static bool in_group(const struct outputs *g, const struct hlo_instr *i) {
    for (int k = 0; k < g->n; k++)
        if (g->v[k] == i) return true;
    return false;
}
// Does a member read x, an array as large as theirs, or larger?
static bool read_by(const struct outputs *g, const struct hlo_instr *x) {
    if (shape_elements(x->shape) < shape_elements(g->v[0]->shape)) return false;
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->v[k]->n_operands; j++)
            if (g->v[k]->operands[j] == x) return true;
    return false;
}
// Operand k of i at the place of i's own element.
static bool reads_in_place(const struct hlo_instr *i, int k) {
    if (!shape_same_dims(i->operands[k]->shape, i->shape)) return false;
    if (i->op != HLO_FUSION) return true;
    const struct hlo_instr *p = i->called[0]->params.v[k];
    for (size_t u = 0; u < p->users.n; u++)
        if (!hlo_is_pointwise(p->users.v[u])) return false;
    return i->called[0]->root != p;
}
static const char *keeps_out(const struct outputs *g, const struct hlo_instr *i,
                             const struct target *t, int64_t *budget) {
    bool reads = false;
    for (int k = 0; k < i->n_operands; k++) {
        bool in = in_group(g, i->operands[k]);
        if (in && !reads_in_place(i, k)) return "it reads other elements";
        reads |= in || (!shape_is_tuple(i->operands[k]->shape) && read_by(g, i->operands[k]));
    }
    if (!reads) return "it reads nothing of theirs";
    const char *why = outputs_no_member(i, t);
    if (why) return why;
    if (!shape_same_dims(i->shape, g->v[0]->shape)) return "its result has other dims";
    for (int k = 0; k < i->n_operands; k++)
        for (int j = 0; j < g->n && !in_group(g, i->operands[k]); j++) {
            *budget -= i->parent->n_instrs;
            if (*budget < 0) return "the pass has used its budget";
            if (hlo_depends_on_by_place(i->operands[k], g->v[j]))
                return "another operand depends on one";
        }
    return NULL;
}
static int operands_of(const struct outputs *g) {
    int n = 0;
    for (int k = 0; k < g->n; k++)
        n += g->v[k]->n_operands;
    return n;
}

// The group that begins with `first`; fewer than two members: none.
static void gather(struct outputs *g, struct hlo_instr *first, struct pass_ctx *p,
                   int64_t *budget) {
    bool has_floats = false;
    int ops = outputs_no_member(first, p->target) ? -1 : ops_of(first, &has_floats), ahead = 0;
    *g = (struct outputs){.v = {first}, .n = ops > 0 && shape_bytes(first->shape) >= OUTPUTS_WORTH};
    for (struct hlo_instr *i = first->next; i && g->n && ahead < AHEAD; i = i->next, ahead++) {
        bool with_floats = has_floats;
        int more = ops_of(i, &with_floats);
        if (more <= 0 || keeps_out(g, i, p->target, budget)) continue;
        if (g->n == OUTPUTS_MEMBERS || ops + more > (with_floats ? FLOAT_OPS : INT_OPS)) continue;
        g->v[g->n++] = i;
        if (operands_of(g) > OUTPUTS_OPERANDS || outputs_count(g) > OUTPUTS_MOST) {
            g->n--;
            continue;
        }
        ops += more;
        has_floats = with_floats;
    }
}

status_t pass_fuse_chain(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_computation *) bodies = {0};
    int64_t budget = WALKED;
    if (!p->target) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) avec_push(&p->scratch, &bodies, c);
    for (size_t k = 0; k < bodies.n; k++) {
        struct hlo_instr *i = bodies.v[k]->first;
        outputs_begin(bodies.v[k]);
        while (i) {
            struct hlo_instr *next = i->next;
            struct outputs g;
            gather(&g, i, p, &budget);
            if (g.n > 1) {
                while (next && in_group(&g, next))
                    next = next->next;
                for (int j = 1; j < g.n; j++)
                    pass_tell_fusion(p, g.v[0], g.v[j], NULL);
                RETURN_IF_ERR(outputs_merge(&g));
                p->changed = true;
            }
            i = next;
        }
    }
    return ST_OK;
}
