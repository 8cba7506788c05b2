// SPDX-License-Identifier: Apache-2.0
// cpu_ahead: other threads that make the library's code for the steps of a plan while it is bound.
// All functions: the loading thread.
#pragma once
#include "devices/cpu/cpu.h"

struct cpu_ahead;
// x: its kernels, code, options and cancel are those of the plan; borrowed, with plan and bound,
// until cpu_ahead_end. NULL, which the others take: not worth it, or no thread.
struct cpu_ahead *cpu_ahead_begin(const struct cpu_exe *x, const struct plan *plan,
                                  const int *bound);
// A step of a plan is about to be bound; of another plan: nothing.
void cpu_ahead_at(struct cpu_ahead *h, const struct plan *plan, int step);
void cpu_ahead_end(struct cpu_ahead *h); // waits for the helpers
