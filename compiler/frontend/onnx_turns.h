// SPDX-License-Identifier: Apache-2.0
// onnx_turns: the number of a Loop's turns, where its condition is known at compile time.
#pragma once
#include "compiler/frontend/onnx_lower.h"

// A loop whose body reads its state from the tuple `param`: init[e] and next[e] are the values of
// element e in front of the loop and after a turn (NULL: not asked), `go` the body's condition;
// `most` turns at most, -1 = no bound. The turns, or -1: only the run knows. One turn is made
// without asking.
int64_t onnx_known_turns(struct onnx_ctx *c, hv param, hv const *init, hv const *next, hv go,
                         int64_t most);
