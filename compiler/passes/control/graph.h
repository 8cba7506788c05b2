// SPDX-License-Identifier: Apache-2.0
// graph: edits that passes on computations share: order of computations, bodies of one's own,
// copying a body into its caller.
#pragma once
#include "compiler/ir/ir.h"
// List position only; callees must stand before callers.
void graph_move_before(struct hlo_computation *c, struct hlo_computation *pos);
// Makes called[k] of i its own: a copy, when something else calls it too.
void graph_own_callee(struct hlo_instr *i, int k);
// Puts copies of f's instructions in front of `at`, with args for f's parameters, and gives the
// value of f's root. f stays as it is. Fusions get bodies of their own.
struct hlo_instr *graph_inline(struct hlo_instr *at, const struct hlo_computation *f,
                               struct hlo_instr *const *args);
// Element k of a tuple value: the operand of a tuple instruction, or a new get-tuple-element in
// front of pos.
struct hlo_instr *graph_element(struct hlo_instr *tuple, int k, struct hlo_instr *pos);
// Moves a parameter in front of its computation: programs may name it after values of constants
// alone, whose users its elements are then given to.
void graph_to_front(struct hlo_instr *parameter);
