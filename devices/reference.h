// SPDX-License-Identifier: Apache-2.0
// reference: one step by the reference evaluator, for a device that has nothing else for it.
#pragma once
#include "devices/device.h"

struct dev_reference {
    uint64_t rng_state;         // of random numbers, since the first: goes on from run to run
    struct strings *texts;      // of the run; or NULL
    const _Atomic bool *cancel; // or NULL
};
// Operand leaves of i, then from bufs[n_in] on its result leaves, in host memory as their layouts
// have them; padding is written as zero. UNIMPLEMENTED where there is no rule (hlo_eval_supports);
// CANCELLED; RESOURCE_EXHAUSTED: it takes more than some copies of what it reads and writes.
status_t dev_reference_run(struct dev_reference *r, const struct hlo_instr *i, void *const *bufs,
                           int n_in) MUST_CHECK;
