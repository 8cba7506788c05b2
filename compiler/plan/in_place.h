// SPDX-License-Identifier: Apache-2.0
// in_place: which steps may write a result over an operand, and which results of a program over a
// parameter.
#pragma once
#include "compiler/ir/module.h"
// May result leaf `out` of i lie where operand leaf `in` lies (leaves in order over all operands
// and results)? True when every element of the operand is read before, or at, the moment the
// element of the result at the same place is written, and by the same unit of work. The caller
// knows that nothing needs the operand afterwards.
bool plan_may_share(const struct hlo_instr *i, int in, int out);
// Kernels that reduce rows of so few elements, of so many rows, may take some rows twice
// (compiler/kernel/lower_rows.c); in their fusions nothing shares.
enum { PLAN_MOST_SHORT_ROW = 128, PLAN_LEAST_SHORT_ROWS = 64 };
// The dynamic-update-slice of its first operand that loop fusion i ends in, where i reads of that
// operand the updated places alone, each for its own new value; NULL: i is no such fusion.
const struct hlo_instr *plan_last_update(const struct hlo_instr *i);
// May the fusion `up`, or the operation, and dynamic-update-slice d of what it makes be one such?
bool plan_may_end_in(const struct hlo_instr *up, const struct hlo_instr *d);
// A scatter whose results are laid out as its operands, or such a fusion: its kernel makes the
// updates alone. Who runs it sees to it that result k holds operand k first, for all k below the
// number of results.
bool plan_updates_alone(const struct hlo_instr *i);
// By the module's input_output_alias: the parameter leaf whose memory each leaf of the root may
// take, -1 = none. NULL = none for all. What is not written so is passed over.
int32_t *plan_donated(struct arena *a, const struct hlo_computation *entry);
