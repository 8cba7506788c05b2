// SPDX-License-Identifier: Apache-2.0
// pool_process: a worker's process as the system sees it. Thread: loop.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct loop;

// The environment of a worker: ours, how long its compute threads spin, and how many there are
// where a control group has less than the machine. libgomp too reads that, before main, so it
// cannot be an argument. What the user has set stays. `spin`, `threads` and more[0..n_more) are
// part of it; the caller frees the array.
enum { PROCESS_TEXT = 32, PROCESS_END = 160 };
char **process_env(int64_t spins, char spin[PROCESS_TEXT], char threads[PROCESS_TEXT],
                   char *const *more, int n_more);
// How the process behind a closed socket ended; pid 0: not known. It is reaped by libuv later; a
// process closes its sockets a moment before its status can be asked for. *out_fault: by what it
// did itself; not when it was told to end, or killed. Gives `out`.
const char *process_end(int pid, int64_t memory, char out[PROCESS_END], bool *out_fault);
// Lets the loop run until the processes that were told to end have done so: those that have not
// after the grace are killed, and one that the kernel does not let go of (it waits for a driver) is
// left to itself a while later.
void process_await_all(struct loop *l, int64_t grace_ns);
