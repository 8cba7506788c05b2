// SPDX-License-Identifier: Apache-2.0
// cpu_work: the memory that runs work in: values between steps, and what steps keep to themselves
// while they run. It belongs to the device, in blocks that executables use in turn
// (docs/decisions/0076). There are as many blocks as runs go on at once: one, and one more for each
// stream beyond the first. What is in a block when a run takes it is anything.
//
// A worker keeps some thousand executables, one for each shape of a model's inputs, and runs one:
// with memory of its own each held pages that it would perhaps never use again, and the first run
// of a new one waited for the kernel to clear them.
//
// Fault point "cpu.work": a run finds each byte that it works in set, as it may.
#pragma once
#include "devices/cpu/cpu.h"

struct cpu_work;
struct cpu_work *cpu_work_of(struct device *d); // cpu_device.c
void cpu_work_open(struct cpu_work **out);      // aborts without memory: a few words
void cpu_work_close(struct cpu_work *w);        // everyone has left

// There is a block for x from now on, and for x as a stream beside those of x->of that joined
// before. Again when what x needs has grown. RESOURCE_EXHAUSTED: x has not joined, or as before.
// Thread: that calls the device, no run going on.
status_t cpu_work_join(struct cpu_exe *x) MUST_CHECK;
void cpu_work_leave(struct cpu_exe *x); // what nobody else needs is freed; who has not joined may

// x->memory and x->scratch for a run, until it is given back. Thread: any.
status_t cpu_work_take(struct cpu_exe *x) MUST_CHECK;
void cpu_work_give(struct cpu_exe *x);
