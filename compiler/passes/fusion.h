// SPDX-License-Identifier: Apache-2.0
// fusion: making a fusion instruction out of a set of instructions of one computation.
#pragma once
#include "compiler/ir/ir.h"
// Brings instructions of one computation into list order.
void fusion_in_list_order(struct hlo_instr **v, int n);
// Moves instrs[0..n), which stand in list order and whose last is the only one used outside, into
// the body of a new fusion that replaces the last. Constants are copied into the body. The fusion
// takes the metadata of `hero`. The caller removes what died (hlo_remove_dead).
status_t fusion_make(struct hlo_instr *const *instrs, int n, enum fusion_kind kind,
                     const struct hlo_instr *hero, struct hlo_instr **out) MUST_CHECK;
