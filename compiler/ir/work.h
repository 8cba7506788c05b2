// SPDX-License-Identifier: Apache-2.0
// work: how many operations one instruction is, counted from its shapes. Saturates. Pure.
// Thread: any.
#pragma once
#include "compiler/ir/module.h"

// Additions, products, comparisons, ...; 2 for each multiply-add of a product. What is called
// counts once: a loop's body, each branch. Movements of data count nothing.
int64_t hlo_flops(const struct hlo_instr *i);
int64_t hlo_body_flops(const struct hlo_computation *c); // of all its instructions
// An estimate from above of what computing it at compile time, or once for all runs, would take:
// operations and elements moved; a loop counts as many turns.
int64_t hlo_work(const struct hlo_instr *i);
// Is it a function that takes tens of operations an element, so that its values are worth keeping,
// or computing in vectors?
bool hlo_is_dear(const struct hlo_instr *i);
// Instructions of a computation with those of what it calls, each call for itself: of the module's
// computation that has most. `steps`: only what runs as steps is a call (loop, branch, call).
int64_t hlo_expanded(const struct hlo_module *m, bool steps);
// How deep computations call each other: what calls none is at 0. `calls`: those of `call` count
// too, which the compiler opens where it can.
enum { HLO_MOST_NESTED = 512 };
int hlo_nesting(const struct hlo_module *m, bool calls);
