// SPDX-License-Identifier: Apache-2.0
// alike: do two instructions, or two computations, say the same? Networks repeat their layers, so
// what is made of one (a kernel, a figure) serves the others. Two are alike where one could be
// printed over the other but for names, ids, metadata and what of them is kept as frontend text:
// opcode, shapes with their layouts, attributes, literals, the same operands by place in their
// list, and computations called that are alike. Lists are walked together: the order of independent
// instructions matters (the canonical hash, text/text.h, does without, at some hundred times the
// cost).
#pragma once
#include "compiler/ir/module.h"

// Attributes kept as text that say what an instruction computes: not metadata, frontend_attributes
// and origin. The same ones, with the same values, of both?
bool hlo_text_counts(const struct hlo_text_attr *t);
bool hlo_same_texts(const struct hlo_instr *a, const struct hlo_instr *b);

// Opcode, shape, attributes, literal, and of a parameter which one it is; how many operands and
// callees there are, not which. False where one waits for others (control predecessors).
bool hlo_same_alone(const struct hlo_instr *a, const struct hlo_instr *b);
// Operands, users and what calls the computation are not compared. A computation is alike itself.
bool hlo_computations_alike(const struct hlo_computation *a, const struct hlo_computation *b);

// Are both fusions, or both dots, that compute the same of operands of the same shapes? Their
// kernels are equal: each lies in a fusion itself, or none does, and of a dot both operands are
// one, or of neither. False for other opcodes.
bool hlo_kernels_alike(const struct hlo_instr *a, const struct hlo_instr *b);
// Equal for those that are alike.
uint64_t hlo_kernel_hash(const struct hlo_instr *i);
