// SPDX-License-Identifier: Apache-2.0
// dot_blocks: how a ragged dot reads its operands; shared by its evaluation and its lowering.
#pragma once
#include "compiler/ir/op.h"

// What the ragged dimension of lhs is: one of its rows (each group meets its own rhs), contracted
// (each group gives its own result), a batch dimension (groups change nothing). None: no groups.
enum ragged { RAGGED_ROWS, RAGGED_CONTRACTED, RAGGED_BATCH, RAGGED_NONE };
enum ragged dot_ragged_mode(const struct hlo_attr_ragged_dot *d);
// The dimensions of lhs that index rows of group sizes when those have more than one: batch
// dimensions and those of the ragged dimension's own kind, as far as they stand before it. Returns
// their number; out[HLO_MAX_RANK].
int dot_ragged_leading(const struct hlo_attr_ragged_dot *d, const struct shape *lhs, int64_t *out);
// A dot as a ragged dot without groups.
struct hlo_attr_ragged_dot dot_ragged_none(const struct hlo_attr_dot *d);
