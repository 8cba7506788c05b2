// SPDX-License-Identifier: Apache-2.0
// infer: the shape rules that ops.def names, declared from the table.
#pragma once
#include "compiler/ir/op.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#define OP(e, text, arity, traits, attrs, rule, ...)                                               \
    status_t hlo_infer_##rule(struct arena *a, const struct hlo_instr *i,                          \
                              const struct shape **out) MUST_CHECK;
#include "compiler/ir/ops.def"
#undef OP
#pragma GCC diagnostic pop
