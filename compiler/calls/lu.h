// SPDX-License-Identifier: Apache-2.0
// lu: LU decomposition with row interchanges as LAPACK's getrf has it, as JAX writes the call:
//     (lu T[..., m, n], pivots s32[..., min(m, n)], info s32[...]) = custom-call(T[..., m, n])
//     custom_call_target = lapack_sgetrf_ffi (T = f32) or lapack_dgetrf_ffi (T = f64)
// lu holds U and, below its diagonal, L without its unit diagonal. Row k changed places with row
// pivots[k], counted from 1. info is 0, or the first place from 1 where U's diagonal is zero: that
// column of L is then left as it was. compiler/ops/linalg/lapack.h has all of LAPACK's calls.
// Thread: any.
#pragma once
#include "compiler/ir/build.h"

// Is it such a call of real numbers, with results that fit, and not empty?
bool lu_is(const struct hlo_instr *i);
// The call for a [..., m, n] of f32 or f64; errors stick to b.
hv lu_call(struct hb *b, hv a);
// The same tuple by a loop over the columns, for compilers that know no such call. Its computations
// stand in front of b's. Source: LAPACK's getf2 (right-looking elimination), all rows at once.
hv lu_as_while(struct hb *b, hv a);
