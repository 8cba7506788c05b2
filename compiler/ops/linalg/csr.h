// SPDX-License-Identifier: Apache-2.0
// csr: the custom call by which JAX on a CPU multiplies compressed sparse rows by a vector or a
// matrix (jax.experimental.sparse.BCSR): data[n], first[rows + 1], column[n], dense[k] or [k, m] to
// [rows] or [rows, m]. Row r has the elements from first[r] up to first[r + 1]; first must not
// decrease. The pass sparse writes it in HLO's operations; csr.c evaluates it.
#pragma once
#include "compiler/ir/literal.h"
#include "compiler/ir/op.h"

enum csr_operand { CSR_DATA, CSR_FIRST, CSR_COLUMN, CSR_DENSE };
// Is it this call, with operands and a result that fit each other?
bool csr_is(const struct hlo_instr *i);
// Adds the product to `out`, which is zero; indices out of range count for nothing.
void csr_run(struct literal *const *in, struct literal *out);
