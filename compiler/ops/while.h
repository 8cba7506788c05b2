// SPDX-License-Identifier: Apache-2.0
// while: do the turns of a loop mix the elements of its state? Shared by passes and kernels. Pure;
// any thread.
#pragma once
#include "compiler/ir/op.h"

// A loop of elementwise steps: lane l of every array that changes, at every turn, depends on lane l
// of the arrays alone, on values of a few elements that all lanes share, and on what does not
// change. So one kernel can run all turns of some lanes, with their state at hand, before it looks
// at the next ones.
//     (i, x[1000,3], w) -> (i + 1, f(x, w), w)    lanes: 1000, three values each
// Lanes are the leading dimensions that the large arrays share. A state of a few elements in all
// is one lane. The results of turns may be put into an array with a dimension of turns in front
// (lax.scan's), and read from one.
// LANES_VALUES: that a lane carries, with those that all lanes share.
enum { LANES_STATE = 64, LANES_REST = 16, LANES_VALUES = 64 };
enum lanes_kind {
    LANES_FIXED,   // no turn changes it
    LANES_UNIFORM, // a few elements, the same for all lanes
    LANES_VARYING, // `rest` elements a lane
    LANES_STACK    // turn t writes [t] of it, or [turns - 1 - t]: `rest` elements a lane
};
struct while_lanes {
    int64_t turns, lanes;
    int64_t dims[HLO_MAX_RANK]; // of the lanes; their product is `lanes`
    int rank, n;                // of the lanes; elements of the state
    struct {
        enum lanes_kind kind;
        bool back;
        int64_t rest;
        const struct hlo_instr *next; // the body's value of it; of a stack, what is written
    } e[LANES_STATE];
    int64_t ops; // operations that a lane takes a turn, an estimate
};
// False: w is no such loop, or takes too many operations to be run in one piece.
bool while_lanes(const struct hlo_instr *w, struct while_lanes *out);
// The loop that a fusion made by fuse-while is: its only instruction that calls; else NULL.
const struct hlo_instr *while_of_fusion(const struct hlo_instr *fusion);
