// SPDX-License-Identifier: Apache-2.0
// op: what the tables say of each opcode, and the signatures of the per-op rules that live in
// compiler/ops.
#pragma once
#include "compiler/ir/module.h"

enum { // traits
    HLO_T_P = 1,
    HLO_T_EW = 2,
    HLO_T_COMM = 4,
    HLO_T_EFFECT = 8,
    HLO_T_REGION = 16,
    HLO_T_DATA = 32,
    HLO_T_COLL = 64,
};

// Shape rule: infers the result shape from operands, attributes and called computations, or checks
// the shape already in i->shape where the op cannot know it. Never reads i->users. *out is in arena
// a. INVALID_ARGUMENT with op, expected and found. Layout: rules give default layouts; comparison
// with a declared shape ignores layout.
typedef status_t (*hlo_infer_fn)(struct arena *a, const struct hlo_instr *i,
                                 const struct shape **out);

// Reference evaluation of one instruction. in[k] = operand k; result in ev->arena.
struct hlo_eval {
    struct arena *arena;
    int64_t max_bytes,
        used_bytes;           // budget over all literals made; RESOURCE_EXHAUSTED beyond. 0 = none
    int64_t max_steps, steps; // budget of evaluated instructions (loops!), 0 = none
    int64_t max_work, work;   // budget of operations (hlo_work of what is evaluated), 0 = none
    const _Atomic bool *cancel; // or NULL
    int depth;                  // nesting of called computations
    uint64_t rng_state;
    struct strings *texts; // the run's table of texts (compiler/strings.h), or NULL
};
typedef status_t (*hlo_eval_fn)(struct hlo_eval *ev, const struct hlo_instr *i,
                                struct literal *const *in, struct literal **out);

struct kir_val;
struct lower; // compiler/kernel/lower.h
// Emits kir that computes element index[0..rank) of i's result (logical index). Operands are asked
// for through lower_operand(lw, i, k, index).
typedef status_t (*hlo_lower_fn)(struct lower *lw, const struct hlo_instr *i,
                                 struct kir_val *const *index, struct kir_val **out);

struct hlo_op_info {
    const char *name;
    int8_t arity; // -1 = variadic
    uint8_t traits;
    enum hlo_attr_kind attrs;
    hlo_infer_fn infer;
    hlo_eval_fn eval;   // NULL = none
    hlo_lower_fn lower; // NULL = none
};
const struct hlo_op_info *hlo_op_info(enum hlo_op op);
const char *hlo_op_name(enum hlo_op op);
bool hlo_op_from_name(struct str name, enum hlo_op *out);
static inline bool hlo_is_elementwise(const struct hlo_instr *i) {
    return (hlo_op_info(i->op)->traits & HLO_T_EW) != 0;
}
// The same, and decided by the operands' elements alone: not by random bits (stochastic-convert).
static inline bool hlo_is_pointwise(const struct hlo_instr *i) {
    return hlo_is_elementwise(i) && i->op != HLO_STOCHASTIC_CONVERT;
}
static inline bool hlo_is_collective(const struct hlo_instr *i) {
    return (hlo_op_info(i->op)->traits & HLO_T_COLL) != 0;
}
// Whether running i does more than make its result, so that it stays where nothing reads it and is
// never one with its like: the trait EFFECT, a custom call that says so
// (custom_call_has_side_effect), or a call, loop, branch, fusion with such an instruction in it. As
// XLA's HloInstruction::HasSideEffect, but for collectives, which have one participant here.
bool hlo_has_effect(const struct hlo_instr *i);
bool hlo_computation_has_effect(const struct hlo_computation *c);
