// SPDX-License-Identifier: Apache-2.0
// cpu_weights: prepared weights. Executables of one model (one for each shape of its inputs) read
// most of them in the same form: such a value lies in memory once, and the next executable takes it
// from the sets that are there (cpu_share.c). Thread: the one that calls the device.
#pragma once
#include "devices/cpu/cpu.h"

// One value in one form. free()d with its last reference.
struct cpu_hold {
    void *p;
    int64_t bytes;
    int refs;
    struct cpu_weights *counts; // the set whose `bytes` it is in
    bool looked;                // `odd` is known
    _Atomic bool odd;           // it holds NaN or an infinity
};
struct cpu_weights {
    struct dev_weights base;
    struct cpu_hold **bound;  // [n_bound]: plain values, NULL when only read packed
    struct cpu_hold **packed; // [n_packed]
    bool any_odd, *odd; // any holds NaN or an infinity; [n_packed]: of a step that swallows NaN
    int n_bound, n_packed;
    struct digest which, *values; // which weights these are, what of them each bound one is; NULL:
                                  // not known
    struct cpu_weights *next, *previous; // of the device's sets
};
// All sets of a device that others may take values from.
struct cpu_weights **cpu_sets(struct device *d);
// A hold of fresh memory, counted in w; NULL: there is none.
struct cpu_hold *cpu_hold_new(struct cpu_weights *w, int64_t bytes);
// Says which weights w is of (zero: not known) and what of them each value is, so that it may take.
void cpu_name_values(struct cpu_weights *w, struct digest which);
// From now on others may take from w, which is whole.
void cpu_share(struct cpu_weights *w);
// Takes what bound parameter `bound` of w's main needs from the sets that are there. looks: it must
// be known of each value whether it is odd. False: something is missing.
bool cpu_adopt(struct cpu_weights *w, int bound, bool looks);
// Is bound parameter `bound` read by any step that does not read it packed, or a result?
bool cpu_read_plain(const struct cpu_plan *p, bool body, int bound);
// Lets go of all that w holds; what others hold, too, is counted there.
void cpu_unshare(struct cpu_weights *w);
