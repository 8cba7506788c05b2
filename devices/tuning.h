// SPDX-License-Identifier: Apache-2.0
// tuning: what dev_vtable.tune is told and what it found.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// How a program is tuned.
struct dev_tune {
    int64_t budget_ns;          // no new measurement begins later
    const _Atomic bool *cancel; // or NULL
};
// One way to run a step.
struct dev_candidate {
    const char *impl;
    int64_t ns;      // median; 0: it was not measured
    const char *why; // it was not kept; static, "" for the one that was
};
// Products and convolutions, measured as one where they do the same. One candidate, which was not
// measured: nothing else takes them.
struct dev_tuned_step {
    const char **instrs; // [n_instrs] of main
    int n_instrs;
    struct dev_candidate *candidates; // the first is who takes it without a tuning
    int n_candidates, kept;
};
struct dev_tuning {
    struct dev_tuned_step *steps; // what takes longest first
    int n_steps;
    const char *list; // names the device's implementations (executable_choose)
    int threads;
    bool complete; // the budget was enough for all, and the memory
};
