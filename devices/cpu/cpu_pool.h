// SPDX-License-Identifier: Apache-2.0
// The compute pool's inner side: regions of shares, and where their threads run. What the steps use
// of it is cpu_parallel (cpu.h).
#pragma once
#include <sched.h>

#include "devices/cpu/cpu.h"

enum { POOL_THREADS = 256 }; // at most; beyond, OpenMP's own

// ---- whose the pool is (cpu_pool.c)

// The calling thread takes the pool for a run, and its sleeping threads are woken when `wake` is
// set. False: another thread has it; cpu_parallel then runs alone, the library by OpenMP's own
// threads. Calls nest; each has its cpu_pool_end.
bool cpu_pool_begin(bool wake);
void cpu_pool_end(void);
bool cpu_pool_is_mine(void);
bool cpu_pool_inside(void); // the calling thread does a piece of a region: it begins no other
// The pool of n threads is there (the caller's counts). Owner only. Gives how many there are.
int cpu_pool_grow(int n);

// One region: fn(ctx, k) for each k below n, which may wait for one another: each has a thread that
// begins it without any other's ending. Owner only; n is at most the pool's threads.
void cpu_pool_team(void (*fn)(void *ctx, int k), void *ctx, int n);

// A thread within a region waits for all others of it: they are woken if they were not.
void cpu_pool_call(void);

// Runs alone for ns from now on; then the next verdict decides again. Owner only.
void cpu_pool_alone(int64_t ns);

// ---- whether others are worth waiting for (cpu_pace.c); times are of clock_ns

// What regions saved and cost of late: what others did the owner would have done itself, at its own
// speed; it waited for them instead. Where CPUs have other work the wait is more than is saved;
// then the owner works alone for a while, longer each time that it still is so.
struct cpu_pace {
    int64_t saved_ns, waited_ns, own_ns; // of the regions since the last verdict
    int64_t rest_ns; // the last time alone; halved by each verdict for others, 0: none
    int64_t alone_until_ns;
    bool doubt; // the last verdict was the first against others
};
bool cpu_pace_alone(const struct cpu_pace *p, int64_t now);
// After a region: the owner did `mine` of its chunks in own_ns, others the rest, and it waited.
void cpu_pace_saw(struct cpu_pace *p, int64_t now, int mine, int others, int64_t own_ns,
                  int64_t waited_ns);

// ---- where threads run (cpu_place.c)

// Where a thread should go that shares its CPU with another: the allowed CPUs that no other one
// uses. used: of the other threads, -1 = asleep. False: there is none, or it is alone where it is.
bool cpu_place_choose(int own, const cpu_set_t *allowed, const int *used, int n, cpu_set_t *out);
// Moves the calling thread to one of `to` now, and leaves it free to run wherever it was before.
bool cpu_place_move(const cpu_set_t *to);
// Where the environment binds OpenMP's threads to places (OMP_PROC_BIND), the calling thread goes
// to that of thread k, for good. False: it does not, or the kernel refuses.
bool cpu_place_bind(int k);
