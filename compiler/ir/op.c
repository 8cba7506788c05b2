// SPDX-License-Identifier: Apache-2.0
// The op table: ops.def with its columns turned into function pointers. A rule that a row promises
// and nobody wrote is a link error.
#include "compiler/ir/op.h"

#include "compiler/ir/attrs.h"

#define OP(e, text, arity, traits, attrs, rule, evals, lowers, ...)                                \
    status_t hlo_infer_##rule(struct arena *a, const struct hlo_instr *i,                          \
                              const struct shape **out);                                           \
    status_t hlo_eval_##e(struct hlo_eval *ev, const struct hlo_instr *i,                          \
                          struct literal *const *in, struct literal **out);                        \
    status_t hlo_lower_##e(struct lower *lw, const struct hlo_instr *i,                            \
                           struct kir_val *const *index, struct kir_val **out);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#include "compiler/ir/ops.def"
#pragma GCC diagnostic pop
#undef OP

enum {
    P = HLO_T_P,
    EW = HLO_T_EW,
    COMM = HLO_T_COMM,
    EFFECT = HLO_T_EFFECT,
    REGION = HLO_T_REGION,
    DATA = HLO_T_DATA,
    COLL = HLO_T_COLL
};
#define EVAL_Y(e)  hlo_eval_##e
#define EVAL_E(e)  hlo_eval_##e
#define EVAL_N(e)  NULL
#define LOWER_Y(e) hlo_lower_##e
#define LOWER_E(e) hlo_lower_##e
#define LOWER_N(e) NULL
#define LOWER_W(e) NULL // no element of it alone: kernel/lower.c has the rule

static const struct hlo_op_info table[HLO_OP_COUNT] = {
#define OP(e, text, arity, traits, attrs, rule, evals, lowers, ...)                                \
    [HLO_##e] = {                                                                                  \
        text, arity, traits, ATTR_##attrs, hlo_infer_##rule, EVAL_##evals(e), LOWER_##lowers(e)},
#include "compiler/ir/ops.def"
#undef OP
};

const struct hlo_op_info *hlo_op_info(enum hlo_op op) {
    return &table[op];
}
const char *hlo_op_name(enum hlo_op op) {
    return (unsigned)op < HLO_OP_COUNT ? table[op].name : "?";
}

bool hlo_op_from_name(struct str name, enum hlo_op *out) {
    for (int k = 0; k < HLO_OP_COUNT; k++)
        if (str_is(name, table[k].name)) {
            *out = (enum hlo_op)k;
            return true;
        }
    return false;
}

// Of an instruction by itself, not by what it calls.
static bool has_own_effect(const struct hlo_instr *i) {
    if (hlo_op_info(i->op)->traits & HLO_T_EFFECT) return true;
    // Shardy's have one so that XLA keeps them until values are spread over devices.
    return i->op == HLO_CUSTOM_CALL && HLO_ATTR(i, custom)->custom_call_has_side_effect &&
           !str_starts(HLO_ATTR(i, custom)->custom_call_target, "xla.sdy.");
}
bool hlo_has_effect(const struct hlo_instr *i) {
    bool yes = has_own_effect(i);
    for (int k = 0; k < i->n_called && !yes; k++)
        yes = hlo_computation_has_effect(i->called[k]);
    return yes;
}
static void find_effect(struct hlo_computation *c) {
    c->effect_known = c->module->effects;
    c->effect = false;
    for (const struct hlo_instr *i = c->first; i && !c->effect; i = i->next)
        c->effect = hlo_has_effect(i);
}
// What is known is kept, and found for all computations at once, callees first: a chain of them is
// walked once, and not again for each of its instructions.
bool hlo_computation_has_effect(const struct hlo_computation *of) {
    struct hlo_computation *c = (struct hlo_computation *)(uintptr_t)of;
    struct hlo_module *m = c->module;
    if (c->effect_known == m->effects) return c->effect;
    if (m->effects_swept != m->effects) {
        m->effects_swept = m->effects;
        HLO_EACH_COMPUTATION(x, m)
        if (x->effect_known != m->effects) find_effect(x);
    }
    if (c->effect_known != m->effects) find_effect(c);
    return c->effect;
}
