// SPDX-License-Identifier: Apache-2.0
// lower_rules: declarations of every rule of ops.def's lower column, and the heads of rules: LOWER
// computes one element of a value, WHOLE (W in the column) a kernel of its own, with its loops.
#pragma once
#include "compiler/ir/op.h"

#define LOWER(op)                                                                                  \
    status_t hlo_lower_##op(struct lower *lw, const struct hlo_instr *i,                           \
                            UNUSED struct kir_val *const *index, struct kir_val **out)
#define WHOLE(op) status_t hlo_whole_##op(struct lower *lw, const struct hlo_instr *i)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#define OP(e, ...)                                                                                 \
    LOWER(e) MUST_CHECK;                                                                           \
    WHOLE(e) MUST_CHECK;
#include "compiler/ir/ops.def"
#undef OP
#pragma GCC diagnostic pop
