// SPDX-License-Identifier: Apache-2.0
// rules: helpers that the shape rules share. A rule says what is wrong in terms of the op's own
// operands: "operand 1 is f32[3], expected f32[2]".
#pragma once
#include "compiler/ir/op.h"

static inline const struct shape *rule_shape(const struct hlo_instr *i, int k) {
    return i->operands[k]->shape;
}
// Operand k must be an array (not a tuple or token).
status_t rule_array(const struct hlo_instr *i, int k) MUST_CHECK;
status_t rule_arrays(const struct hlo_instr *i) MUST_CHECK; // all operands
status_t rule_same_dims(struct arena *a, const struct hlo_instr *i, int k, int j) MUST_CHECK;
status_t rule_same_dtype(struct arena *a, const struct hlo_instr *i, int k, int j) MUST_CHECK;
// Distinct dimension numbers in [0, rank).
status_t rule_dims(struct i64s d, int rank, const char *what) MUST_CHECK;
// Called computation k takes n_params arguments; its result's shape.
status_t rule_callee(const struct hlo_instr *i, int k, int n_params,
                     const struct shape **out) MUST_CHECK;
// The same for a function of scalars: n_results = 1 gives a scalar (or a tuple of one), more a
// tuple of scalars. out_each[n_results].
status_t rule_scalar_callee(const struct hlo_instr *i, int k, int n_params, int n_results,
                            const struct shape **out_each) MUST_CHECK;
// Output size of one windowed dimension, 0 when the window does not fit; -1 on overflow or a size
// below zero.
int64_t rule_window_size(int64_t size, const struct window_dim *w);
// Is it a reduce-window whose windows all reach to one end of one dimension (cumsum, cummax: window
// i holds what stands before i and i itself; back: from i on; exclusive: without i)? Then its dims
// are the operand's. out may be NULL.
struct running_window {
    int dim;
    bool back, exclusive;
};
bool rule_running_window(const struct hlo_instr *i, struct running_window *out);
// Is it the largest (smallest) elements of lines, which are only subtracted from the line before
// its exponentials, of whose sum all is made that depends on them (softmax, its logarithm,
// logsumexp)? Then NaN in a line is in its sum, and the extreme need not be NaN.
bool rule_sum_tells_nan(const struct hlo_instr *i);
// Is it a concatenation of equal parts that lie one behind the other, of which some are computed,
// so that one loop makes an element of each?
bool rule_parts_beside(const struct hlo_instr *i);
// Is it a sort of so many short lines that a kernel of exchanges, with the lines side by side in
// vectors, is the soonest (compiler/ops/lower/sort_lower.c)?
bool rule_sort_beside(const struct hlo_instr *i);
// Does its comparator only compare two integers of its one operand? True: *out how.
bool rule_sort_plain(const struct hlo_instr *i, enum cmp_direction *out);
