// SPDX-License-Identifier: Apache-2.0
// fusion: making a fusion instruction out of a set of instructions of one computation.
#pragma once
#include "compiler/ir/ir.h"
#include "compiler/passes/pass.h"

// Brings instructions of one computation into list order, by their places (hlo_number_list): who
// makes fusions numbers the list first, and each fusion takes the place of what it replaces.
void fusion_in_list_order(struct hlo_instr **v, int n);
// Moves instrs[0..n), which stand in list order and whose last is the only one used outside, into
// the body of a new fusion that replaces the last. Constants are copied into the body. The fusion
// takes the metadata of `hero`. The caller removes what died (hlo_remove_dead).
status_t fusion_make(struct hlo_instr *const *instrs, int n, enum fusion_kind kind,
                     const struct hlo_instr *hero, struct hlo_instr **out) MUST_CHECK;

// A reshape that only adds or drops dimensions of one.
bool fusion_drops_ones(const struct hlo_instr *reshape);

// A fusion that grows backwards from its root: an operand comes in when `keeps_out` has no reason
// against it.
enum { FUSION_MAX_MEMBERS = 96, FUSION_MOST_MEMBERS = 320 }; // usually; at all
struct fusion_group {
    struct hlo_instr *v[FUSION_MOST_MEMBERS]; // v[0] is the root
    int n, max;
    const char *(*keeps_out)(const struct fusion_group *g, const struct hlo_instr *p);
    const void *ctx; // for keeps_out
};
// Makes v[0]'s group as large as it may be. The members' marks are the group's; the next two go by
// them, and are keeps_out's to ask.
void fusion_grow(struct fusion_group *g);
bool fusion_has(const struct fusion_group *g, const struct hlo_instr *i);
int fusion_index(const struct fusion_group *g, const struct hlo_instr *i); // in v; -1: no member
// Tells the trace of each operand of a member whether it came in, or why not.
void fusion_tell(const struct pass_ctx *p, const struct fusion_group *g);
// Makes the fusion and removes the members that died with it. *out_prev: the instruction of the
// list before the fusion that is still there; walks towards the front of the list go on from it.
status_t fusion_take(struct fusion_group *g, enum fusion_kind kind,
                     struct hlo_instr **out_prev) MUST_CHECK;
