// SPDX-License-Identifier: Apache-2.0
// outputs: fusions with several results, as the passes fuse-sibling and fuse-chain make them of
// instructions whose results have the same dims.
#pragma once
#include "compiler/passes/pass.h"

// OUTPUTS_MOST is LOWER_MAX_RESULTS of the kernels.
enum { OUTPUTS_MOST = 16, OUTPUTS_MEMBERS = 64, OUTPUTS_OPERANDS = 64, OUTPUTS_WORTH = 1024 };
struct outputs { // members; one that reads another stands behind it
    struct hlo_instr *v[OUTPUTS_MEMBERS];
    int n;
    struct hlo_instr *operand; // the first of the fusion, or NULL: as members use them
    struct hlo_instr *whole;   // what outputs_merge made
};
// Why i can be no member: static text; NULL: it can.
const char *outputs_no_member(const struct hlo_instr *i, const struct target *t);
// How many members others than the group use.
int outputs_count(const struct outputs *g);
// Numbers c's instructions, before its first merge. Until the last one nothing but merges moves or
// adds any: hlo_depends_on_by_place holds.
void outputs_begin(struct hlo_computation *c);
// One fusion of the members, in their place: a tuple of those that others use, or the only one.
// The caller has seen to it that no operand from outside depends on a member, and that there are at
// most OUTPUTS_OPERANDS.
status_t outputs_merge(struct outputs *g) MUST_CHECK;
