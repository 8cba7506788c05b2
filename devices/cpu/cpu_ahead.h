// SPDX-License-Identifier: Apache-2.0
// cpu_ahead: other threads that open the library's steps of a plan while it is bound. All
// functions: the loading thread.
#pragma once
#include "devices/cpu/cpu.h"

struct cpu_ahead;
// x: its kernels, options and cancel are those of the plan; borrowed, with plan and bound, until
// cpu_ahead_end. NULL, which the others take: not worth it, or no thread.
struct cpu_ahead *cpu_ahead_begin(const struct cpu_exe *x, const struct plan *plan,
                                  const int *bound);
// Step k of a plan, this one or another. True: a helper has opened it, and *s and x are as if
// cpu_open_step had here. False: no helper will.
bool cpu_ahead_take(struct cpu_ahead *h, const struct plan *plan, int k, struct cpu_exe *x,
                    struct cpu_step *s);
// Waits for the helpers; closes what was not taken. What was taken lives as long as x.
void cpu_ahead_end(struct cpu_ahead *h, struct cpu_exe *x);
