// SPDX-License-Identifier: Apache-2.0
// The op table: ops.def with its columns turned into function pointers. A rule that a row promises
// and nobody wrote is a link error.
#include "compiler/ir/op.h"

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
