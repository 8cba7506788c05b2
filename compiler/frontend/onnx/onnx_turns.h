// SPDX-License-Identifier: Apache-2.0
// onnx_turns: the number of a Loop's turns, where its condition is known at compile time, and what
// turns that are lowered one after the other begin and end with (onnx_control.c).
#pragma once
#include "compiler/frontend/onnx/onnx_scope.h"

// A loop whose body reads its state from the tuple `param`: init[e] and next[e] are the values of
// element e in front of the loop and after a turn (NULL: not asked), `go` the body's condition;
// `most` turns at most, -1 = no bound. The turns, or -1: only the run knows. One turn is made
// without asking.
int64_t onnx_known_turns(struct onnx_ctx *c, hv param, hv const *init, hv const *next, hv go,
                         int64_t most);

// What a turn of a Loop begins with: f[0] its number i, f[1] the condition, which is true then.
void onnx_turn_number(struct onnx_ctx *c, const struct onnx_graph *g, hv i, struct onnx_val **f);

struct onnx_row { // one result of each turn
    struct onnx_val **v;
    size_t n, cap;
    int64_t axis; // of the stacked result, in which they follow each other
    bool reversed;
};
// The rows as one array. Of no rows: what `like` declares, where an open dimension is 0. NULL and
// an error in c where they cannot be stacked.
struct onnx_val *onnx_stack_turns(struct onnx_ctx *c, const struct onnx_row *rows,
                                  const struct onnx_value *like);
