// SPDX-License-Identifier: Apache-2.0
// history: what runs took, by work and by target, to choose among devices of several kinds for who
// asked for "auto". Measured times win; where a device never ran this work its time is planned from
// the work's size and how fast the device went through other work; a device that ran nothing yet
// gets a try once the work is known elsewhere. Pure. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/map.h"

enum { HISTORY_LEARN_RUNS = 3, HISTORY_MAX = 8192 };
struct history {
    struct smap runs;    // struct history_run, by work and target
    struct smap works;   // its size, by work
    struct smap targets; // struct history_run of time by unit of size, by target
};
void history_init(struct history *h);
void history_done(struct history *h);
// A run of `work` (a program with its shapes and options) took ns on a device of that target. size:
// its flops and bytes together; 0 = not known.
void history_note(struct history *h, struct digest work, const char *target, int64_t ns,
                  int64_t size);

struct history_candidate {
    const char *target;
    int32_t calls; // under way and waiting there
};
enum history_why { HISTORY_FIRST, HISTORY_MEASURED, HISTORY_PLANNED, HISTORY_TRIED };
// The index of the one to take, n > 0; *why: on what ground.
int history_choose(const struct history *h, struct digest work, const struct history_candidate *c,
                   int n, enum history_why *why);
const char *history_why_name(enum history_why why);
