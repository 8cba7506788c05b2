// SPDX-License-Identifier: Apache-2.0
// profile: what a run did, step by step. Rows are written by the run thread into memory taken
// beforehand. A step of a loop's body has a row at each turn, one deeper than the loop's own, which
// comes after them and covers them. What is told of a program is the median of several runs, row by
// row, without the first, which touches memory, code and tables that later ones find in the caches.
#pragma once
#include <stdint.h>

#include "base/arena.h"
struct hlo_instr;
struct profile_row {
    const char *name; // instruction; borrowed from the executable
    const char *op;   // source op and node, or the opcode; borrowed
    const char *impl; // "onednn:jit:avx512_core", "kernel", "reference"; static or the executable's
    int64_t start_ns, ns, flops, bytes; // start: from the start of the run
    double estimate_ns;                 // of the cost model (compiler/plan/estimate.h); 0: none
    const struct hlo_instr *instr;      // NULL where a row is no instruction
    int32_t depth;                      // 0 = a step of main
};
struct profile {
    struct profile_row *rows;
    int32_t n, cap;
    int64_t zero_ns;    // clock at the start of the run; the device's
    int32_t depth;      // of the rows to come; the device's
    double estimate_ns; // of the rows so far at this depth; the device's
}; // rows beyond cap are not kept

// Runs of one program on the same inputs.
enum { PROFILE_RUNS = 7 };
#define PROFILE_SLOW_NS   1500000000 // a first run that takes longer is the only one
#define PROFILE_ENOUGH_NS 400000000  // three behind the first, more until all together took this
struct profile_runs {
    struct arena *arena;
    struct profile run[PROFILE_RUNS];
    int n, cap;
};
// cap: rows of each run; memory from `a` as runs come.
void profile_begin(struct profile_runs *p, struct arena *a, int cap);
// The profile for one more run; NULL: there were enough. again: the device's runs can be repeated
// to measure. spent_ns: since the first began.
struct profile *profile_next(struct profile_runs *p, bool again, int64_t spent_ns);
// Of at least one run: rows with the median of their times, laid one behind the other in time.
// *out_runs: how many it is of. Changes the rows of the last run, which *out borrows.
void profile_median(struct profile_runs *p, struct profile *out, int *out_runs);
// Nanoseconds from the start of the run to the end of its last step.
int64_t profile_end(const struct profile *p);
