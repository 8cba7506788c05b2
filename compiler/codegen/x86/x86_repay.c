// SPDX-License-Identifier: Apache-2.0
// Which kernels LLVM makes so much better that its milliseconds repay (docs/decisions/0029, 0046).
// The bounds are operations of one call.
#include "compiler/codegen/x86/x86_plan.h"

enum {
    USUAL = 400,
    SLOW_WORK = 20000,
    SHORT_WORK = 200000,
    SMALL = 1 << 22,
    LOOP_WORK = 1 << 21,
    NARROW_WORK = 1 << 20,
    LONG_WORK = 1 << 21,
    FAR_WORK = 1 << 23,
    ONCE = 256, // how much more work that must be where it is done once
};

// Does LLVM repay the milliseconds that it takes, from so much work in one call on? It takes as
// much longer as there are more values than kernels mostly have: some 0.1 ms each.
static bool repays(const struct x86_plan *p, int64_t least) {
    int64_t work = kir_work(p->f), all, longer = p->values > USUAL ? p->values / USUAL : 1;
    if (!p->turns) return work / ONCE >= least * longer;
    if (__builtin_mul_overflow(work, p->turns, &all)) all = INT64_MAX;
    return work >= least * longer || (p->turns > 1 && all >= LOOP_WORK * longer);
}
// Why LLVM's code of a kernel that could be made here repays; NULL: it does not.
const char *x86_slower(const struct x86_plan *p) {
    if (p->slow && repays(p, SLOW_WORK)) return p->slow; // LLVM's is a multiple as fast
    if (p->f->exchanges || !repays(p, SHORT_WORK)) return NULL;
    // LLVM writes loops out, 1.07 times as fast (Zen 5, 40 random ones, up to 1.5).
    if (p->sums) return p->is_small && repays(p, SMALL) ? "products of small matrices" : NULL;
    // Vectors mostly empty, or put together of elements, in loops of one or two turns: LLVM writes
    // these out, and what is around them.
    if (p->is_short || (p->is_brief && !p->has_work)) return "loops of few elements";
    // With AVX2 LLVM reads neighbours and shuffles them (of gathers it makes a chain of operations
    // on single elements for each lane's place), has all lanes of 32 bits where a loop also
    // has some of 64 (1.5 to 2 times as fast) and more lanes of 16 and 8 (2 to 4 times), and keeps
    // more in 16 registers (a sixth).
    if (p->is_apart) return "elements that do not lie side by side";
    if (p->is_mixed) return "lanes of 32 and 64 bits";
    if (p->is_narrow && repays(p, NARROW_WORK)) return "lanes of 8 and 16 bits";
    // LLVM has fewer instructions a line, so more lines are under way (36 MB: 1.3 to 1.6 times).
    if (p->sums_alone && !p->reads_else && repays(p, FAR_WORK)) return "sums from memory";
    // LLVM has no tiles to turn short rows in.
    return p->is_long && !p->merged && !p->f->rows && repays(p, LONG_WORK)
               ? "more values than registers"
               : NULL;
}
