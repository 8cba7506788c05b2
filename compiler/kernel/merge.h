// SPDX-License-Identifier: Apache-2.0
// merge: which loops become one function, and of what; codegen makes it. A while does whose
// condition and body, and the computations that they call, consist of small generated kernels (each
// of at most MERGE_WORK operations, some 20 us: no second thread is wanted), dynamic-update-slices,
// conditionals, calls and loops of the same kind, within bounds on code and constants (merge.c).
// What the library would run is such a kernel too where it is small.
#pragma once
#include "compiler/kernel/kir.h"
#include "compiler/plan/plan.h"
#include "compiler/target.h"

enum { MERGE_WORK = 1000000, MERGE_BRANCHES = 32 };
struct merged_loop {
    const struct plan_step *loop;
    struct pmap kernels;   // plan_step -> kir_fn of what is no control flow
    int64_t scratch_bytes; // of kernels, and behind them what changes places in the state
    int64_t stage_at;      // where that begins
    struct strbuf text;    // all that its code follows from
    // While it is looked at.
    struct arena *a;
    const struct target *t;
    enum precision prec;
    const char *why; // it is none: static text
    int64_t values, consts;
    int64_t work, product_work; // of the kernels, once each; of those with contractions of floats
                                // of at most 32 bits
    int64_t long_work;          // of others with long steps along lines
    double lost_ns;             // a turn, on products that the library would run
    int steps, depth;
    int rare; // conditions that few elements meet (KF_RARE)
};
// Is loop one? Kernels in arena a. Call merge_done in either case.
bool merge_loop(struct arena *a, const struct plan_step *loop, const struct target *t,
                enum precision prec, struct merged_loop *out);
void merge_done(struct merged_loop *l);
// Is it a contraction, or a fusion around one, that a loop takes as a kernel though the library
// would run it?
bool merge_is_small(const struct hlo_instr *i);
// Operations of a turn of `loop`, without those of loops inside it; branches as the longest.
int64_t merge_turn_work(const struct merged_loop *l, const struct plan_step *loop);
// Are products, and long steps along lines where vectors have 512 bits, most of what it does, of so
// much work that what is kept from one kernel to the next in memory does not count? Then code that
// is made kernel by kernel (codegen/x86/x86_loop.c) is as quick as LLVM's for the whole. So it is
// where sines and the like are many: it leaves out what large arguments ask for.
bool merge_without_llvm(const struct merged_loop *l);
