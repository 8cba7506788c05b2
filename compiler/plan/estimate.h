// SPDX-License-Identifier: Apache-2.0
// estimate: how long a step of a plan should take, before anything runs: the work that its shapes
// ask for (estimate_work), what a way of running it makes of a machine (a row of `ways`), and the
// machine's own figures (struct machine, measured by the device). A roofline with a ceiling for
// each level of the caches, as in Williams, Waterman & Patterson, "Roofline" (2009), plus a fixed
// cost a step. Good to a factor of about three: made to name a step that is an order of magnitude
// off, not to choose between two ways that are close. A step by a last resort is estimated as if
// the way that should have taken it had: so it is named. Pure. Thread: any.
#pragma once
#include "compiler/plan/plan.h"

enum { ESTIMATE_CLIFF = 10 }; // times its estimate: a measured step above is named

// What the work of a step is, per kind of arithmetic. Counts are of the whole step.
struct step_work {
    double products; // 2 for each multiply-add of a dot or convolution
    double lanes;    // 0..1: of a vector's lanes, how many the product's result fills at best
    double depth;    // terms of each sum
    double simple;   // additions, comparisons, ...: in elements of 4 bytes, 8 bytes count double
    double hard;     // exponentials, logarithms, divisions: in additions that they are worth
    double moved;    // elements or runs of elements that are addressed one by one
    double serial;   // operations that wait for each other
    double bytes;    // read and written by the step, but for weights
    double weights;  // read from prepared weights
    double passed;   // of `bytes`: read from what steps before it wrote
    enum dtype product_type; // of the operands; DT_INVALID: no products
};

// The ways that devices run steps by, and what is known of them: compiler/plan/estimate.c.
enum way {
    WAY_LIBRARY, // blocked products and convolutions
    WAY_THIN,    // products of few rows
    WAY_BLOCKED, // products of types that the library lacks
    WAY_KERNEL,  // generated loops
    WAY_COPY,    // runs of bytes
    WAY_SORT,
    WAY_FFT,
    WAY_TREES,
    WAY_BITS,
    WAY_CONTROL, // what it calls is estimated step by step
    WAY_LAST     // the reference evaluator
};

enum { MACHINE_LEVELS = 4 };
struct machine {
    int threads;
    double flops_f32, flops_f64; // multiply-adds in registers, 2 each; a second and thread
    double flops_i8;             // sums of products of 8-bit integers; 0 = as f32
    // Caches from the nearest on, memory last: how many bytes a thread finds in it (memory:
    // INT64_MAX), bytes a second that one thread reads.
    struct {
        int64_t bytes;
        double rate;
    } level[MACHINE_LEVELS];
    double memory_all;  // bytes a second that all threads together read from memory
    double passed_rate; // that one reads of what another has just written; 0: as its own
};
// A machine for tests and texts that shall be the same everywhere: one thread, round figures.
extern const struct machine estimate_nominal;

// The work of `s`. What a called plan does is not in it.
void estimate_work(const struct plan_step *s, struct step_work *out);
// Nanoseconds of one run of the step. `together`: bytes of all weights that a run of the program
// reads, which decides where they lie when they are read again. `alone`: on one thread.
double estimate_ns(const struct machine *m, const struct step_work *w, enum way way,
                   double together, bool alone);
