// SPDX-License-Identifier: Apache-2.0
// cpu_bind: who runs a step. At load it is what a tuning chose (docs/tuning.md), or the first of
// the ordered list that takes the step; a tuning asks for one after the other by name.
#pragma once
#include "devices/cpu/cpu.h"

enum { CPU_CANDIDATE = 40 }; // bytes of a candidate's name
// One way to run a step: an implementation, and which of its schedules (from 1; 0: as it chooses).
struct cpu_candidate {
    const struct cpu_impl *impl;
    int variant;
};
enum { WINOGRAD_2X2 = 1, WINOGRAD_4X4 }; // its variants
// What the calling thread asks for now, past the cost models of cpu_choice.c; impl NULL: nothing.
void cpu_ask(struct cpu_candidate c);
const struct cpu_candidate *cpu_asked(void);
// cpu_bind.c. Binds s to what a tuning chose for it, or else to the first of the list that takes
// it. Without an error and s->impl: it is not to be opened yet.
status_t cpu_open_step(struct cpu_exe *x, struct cpu_step *s) MUST_CHECK;
// Binds s to c alone. s->declined: c does not take it, and s is as it was.
status_t cpu_open_as(struct cpu_exe *x, struct cpu_step *s, struct cpu_candidate c) MUST_CHECK;
// All that could be asked for, NULL impl at the end; and "IMPL" or "IMPL:VARIANT" of one.
const struct cpu_candidate *cpu_candidates(void);
const char *cpu_candidate_name(struct cpu_candidate c, char to[CPU_CANDIDATE]);
// Names of all of them, hashed: choices of another list mean nothing here.
const char *cpu_candidates_id(void);
// tune/cpu_tune.c: the vtable's.
status_t cpu_tune(struct device *d, struct executable *e, const struct dev_tune *how,
                  struct arena *a, struct dev_tuning *out);
