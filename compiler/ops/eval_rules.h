// SPDX-License-Identifier: Apache-2.0
// eval_rules: the heads of evaluation rules, hlo_eval_<ENUM> of ops.def.
#pragma once
#include "compiler/eval.h"

#define EVAL(op)                                                                                   \
    status_t hlo_eval_##op(UNUSED struct hlo_eval *ev, UNUSED const struct hlo_instr *i,           \
                           UNUSED struct literal *const *in, struct literal **out)
// Declares r, a literal of i's shape charged to the evaluator's budget, and makes it the result.
#define NEW_RESULT(r)                                                                              \
    struct literal *r;                                                                             \
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));                                                      \
    *out = r
