// SPDX-License-Identifier: Apache-2.0
// dim_maps: movements of one array in which each dimension of the result says by itself where it
// comes from: out[i, j, ...] = x[at_0(i), at_1(j), ...]. Padding by edges, mirrored or wrapped
// around, rotations and flips, as slices, reversals, broadcasts and concatenations write them.
#pragma once
#include "compiler/ir/ir.h"

struct dim_maps {
    const struct hlo_instr *from;
    const int64_t *at[HLO_MAX_RANK]; // [result's dims[d]]; NULL: as it is
};
// Of a fusion that the pass has made of parameter 0. False: it is none. The tables are of the
// arena.
bool dim_maps_of(struct arena *a, const struct hlo_instr *fusion, struct dim_maps *out);
// True for the same fusions; makes no tables.
bool dim_maps_match(const struct hlo_instr *fusion);
// Is it such a fusion, with dimension d as it is? Then any layout that both have keeps it one.
bool dim_maps_keeps(const struct hlo_instr *fusion, int d);
// Runs of neighbours that dimension d of the result, n elements of `inner` others behind it, is
// made of. 0: too many to be copied one by one.
int64_t dim_maps_runs(const int64_t *at, int64_t n, int64_t inner);
