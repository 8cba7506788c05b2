// SPDX-License-Identifier: Apache-2.0
// rules: the signature of an algebraic rule. It looks at i (and what feeds it) and gives a value to
// put in its place, or NULL. New instructions come through the builder, which appends; the pass
// moves them in front of i. A rule must be monotone: the result has fewer instructions, or is
// nearer to the stated form.
#pragma once
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/pass.h"

// In the place of the operations that a rule looks at: all with a trait.
#define RULE_COMMUTES    HLO_OP_COUNT
#define RULE_ELEMENTWISE ((enum hlo_op)(HLO_OP_COUNT + 1))

struct rule_ctx {
    struct hb b;
    bool strict;
    const struct target *target; // or NULL
};
typedef struct hlo_instr *(*rule_fn)(struct rule_ctx *r, struct hlo_instr *i);
#define RULE(name, doc, ...) struct hlo_instr *rule_##name(struct rule_ctx *r, struct hlo_instr *i);
#include "compiler/passes/rules/rules.def"
#undef RULE
#define RULE_FN(name) struct hlo_instr *rule_##name(UNUSED struct rule_ctx *r, struct hlo_instr *i)

// The table, for lists and options.
struct rule {
    const char *name;
    rule_fn fn;
    const char *doc;
};
const struct rule *rule_table(int *n);
