// SPDX-License-Identifier: Apache-2.0
// lapack: the custom calls by which JAX asks a CPU's LAPACK. For Cholesky's decomposition (potrf)
// and triangular solves (trsm) HLO has operations, which the pass lapack writes; the others are
// evaluated here (lapack_eval.c). Any element type among f32, f64, c64, c128, stacks of matrices.
#pragma once
#include "compiler/ir/literal.h"
#include "compiler/ir/op.h"

enum lapack_kind {
    LAPACK_NONE,
    LAPACK_POTRF,
    LAPACK_TRSM,
    LAPACK_GETRF,
    LAPACK_GEQRF,
    LAPACK_GEQP3,
    LAPACK_ORGQR,
    LAPACK_ORMQR,
    LAPACK_SYEVD,
    LAPACK_GESDD,
    LAPACK_GESVD,
    LAPACK_GEEV,
    LAPACK_GEES,
    LAPACK_GEHRD,
    LAPACK_SYTRD,
    LAPACK_GTSV
};
struct lapack_call {
    enum lapack_kind kind;
    struct hlo_attr_cholesky cholesky;
    struct hlo_attr_trisolve trisolve;
    int64_t batch, m, n; // matrices; rows and columns of the first operand, gtsv: of b
    bool upper, left, adjoint;
    bool left_vectors, right_vectors; // left: of gesdd, gesvd, syevd and gees any vectors
};
// Is it such a call, with operands and results that fit and a configuration that is understood?
// Pure; takes any instruction.
bool lapack_read(const struct hlo_instr *i, struct lapack_call *out);
// The calls that HLO has no operation for. c as lapack_read gave it; out[k]: result k, zeroed.
// Eigenvalues and singular values of matrices that hold NaN or infinities, with all that belongs to
// them, are NaN, their info -1.
status_t lapack_run(const struct lapack_call *c, struct literal *const *in,
                    struct literal *const *out) MUST_CHECK;
