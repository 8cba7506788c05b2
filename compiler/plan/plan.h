// SPDX-License-Identifier: Apache-2.0
// plan: where every value of a computation lives and in which order instructions run. Deterministic
// from the module alone, so it is never stored: it is made again at load. Buffers of one
// computation share an arena [0, arena_bytes) by liveness (best fit by offset, 64-byte aligned);
// called computations (while, conditional, call) get their own plan, whose arena lies inside the
// caller's as the step's scratch. Tuples, get-tuple-element, bitcast (and reshape where layouts
// allow) take no step: they alias. In place where legal (in_place.h): a result may lie in an
// operand's buffer that ends there, and a loop's body may write a new element of the state over the
// old one, as the entry may over a parameter that the module's input_output_alias gives to a
// result; so an output slice can be SLICE_PARAM. What a loop's body leaves as it is has one place.
// Loops that need nothing of each other stand side by side (loops.h).
#pragma once
#include "compiler/ir/module.h"
#include "compiler/target.h"

enum slice_where { SLICE_NONE, SLICE_PARAM, SLICE_CONST, SLICE_ARENA, SLICE_OUTPUT };
struct slice {
    enum slice_where where;
    int32_t index; // PARAM: leaf number over all parameters; CONST: constant table; OUTPUT: leaf of
                   // the root
    int64_t offset, size_bytes;
    int32_t result; // ARENA, of the entry: 1 + the root leaf whose value lies here at the end, and
                    // that may be given memory of its own instead; 0 = none
};
struct plan_value {
    const struct hlo_instr *instr;
    struct slice *leaves;
    int32_t n_leaves;
};
struct plan_step {
    const struct hlo_instr *instr;
    struct slice *in;
    int32_t n_in; // operand leaves in order
    struct slice *out;
    int32_t n_out; // result leaves
    int32_t
        kernel; // index into the executable's kernel table, -1 = none (library, control flow, eval)
    struct plan **called; // plans of called computations that run as steps, in instr->called order
    int64_t scratch_offset, scratch_bytes; // for called plans
    int32_t beside; // this step and so many behind it need nothing of each other and have no memory
                    // in common that any of them writes: they may run at the same time
};
struct plan {
    const struct hlo_computation *comp;
    struct plan_step *steps;
    int32_t n_steps;
    struct slice *root;
    int32_t n_root;
    bool *kept;    // root leaf k is parameter leaf k itself, not a new value in its place
    int32_t *over; // of the entry: the donated parameter leaf that root leaf k is written over; the
                   // run gives it memory that may be written. -1 = none; NULL where it is for all
    struct slice *params;
    int32_t n_params; // leaves
    const struct literal **consts;
    int32_t n_consts;
    int64_t arena_bytes;  // peak of temporaries, called plans included
    int64_t values_bytes; // sum of all temporaries if nothing were shared
    int32_t n_in_place;   // results that lie in an operand, called plans included
};
// A computation gets a plan for each place that calls it: so many instructions that are planned
// again are taken.
enum { PLAN_MAX_REPEATED = 1 << 18 };
// INTERNAL on a module that is not verified, RESOURCE_EXHAUSTED above PLAN_MAX_REPEATED.
status_t plan_make(struct arena *a, const struct hlo_computation *entry,
                   struct plan **out) MUST_CHECK;
// Does a loop's body give this leaf of the state back as it got it? Then the loop's result lies
// where its operand does.
bool plan_unchanged(const struct plan *body, int leaf);
// Does it give another leaf of the state, whose place may be overwritten before it is read? Then it
// is staged.
bool plan_moves(const struct plan *body, int leaf);
// The first operand leaf of branch b of a conditional.
int plan_branch_leaf(const struct plan_step *conditional, int b);
int64_t plan_step_bytes(const struct plan_step *s);      // of operands and results
void plan_print(struct strbuf *b, const struct plan *p); // hlo inspect --stage plan
// Without names and without the plans that it calls: what code for it is known by.
void plan_print_alone(struct strbuf *b, const struct plan *p);
