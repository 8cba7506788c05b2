// SPDX-License-Identifier: Apache-2.0
// turns: how often a loop turns. Pure; any thread.
#pragma once
#include "compiler/ir/op.h"

// Is i an element of `tuple`, and which?
bool hlo_is_element_of(const struct hlo_instr *i, const struct hlo_instr *tuple, int64_t *index);
// How often the body of a while runs; -1 when that is not known, or above 65,536.
int64_t hlo_turns(const struct hlo_instr *w);
// What the body of a while adds to element k of its state each turn, a whole number; false when it
// does anything else.
bool hlo_turn_step(const struct hlo_computation *body, int64_t k, int64_t *step);
