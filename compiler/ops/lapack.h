// SPDX-License-Identifier: Apache-2.0
// lapack: the custom calls by which JAX asks a CPU's LAPACK for what HLO has operations for:
// Cholesky's decomposition (potrf) and triangular solves (trsm), of any element type.
#pragma once
#include "compiler/ir/op.h"

enum lapack_kind { LAPACK_NONE, LAPACK_POTRF, LAPACK_TRSM };
struct lapack_call {
    enum lapack_kind kind;
    struct hlo_attr_cholesky cholesky;
    struct hlo_attr_trisolve trisolve;
};
// Is it such a call, with operands and results that fit and a configuration that is understood?
// Pure; takes any instruction.
bool lapack_read(const struct hlo_instr *i, struct lapack_call *out);
