// SPDX-License-Identifier: Apache-2.0
// pass: what a pass is, and the runner that gives every pass verification, timing, counts, dumps
// and scratch memory. A pass file holds only its idea.
#pragma once
#include "compiler/compile.h"
#include "compiler/ir/ir.h"

// What a pass says of its decisions, for `hlo-opt --explain-fusion` and `--explain-rules`; both may
// be NULL. Called while the graph is whole: the instructions may be read.
struct pass_trace {
    void *ctx;
    // why_not NULL = fused. A decision is told once, when it is final.
    void (*fusion)(void *ctx, const char *pass, const struct hlo_instr *producer,
                   const struct hlo_instr *consumer, const char *why_not);
    void (*rule)(void *ctx, const char *rule, const struct hlo_instr *i,
                 const struct hlo_instr *with);
};
struct pass_ctx {
    const struct compile_options *opt;
    const struct target *target;
    const struct compile_observer *obs; // or NULL
    const struct pass_trace *trace;     // or NULL
    const char *running;                // name of the pass
    struct arena scratch;               // reset after each pass
    VEC(struct pass_stat) stats;        // in `keep`
    struct arena *keep;
    // Can the target run this fusion as a kernel? NULL: it is not asked, and the answer is yes.
    bool (*has_kernel)(const struct pass_ctx *p, const struct hlo_instr *fusion);
    bool changed;        // set by a pass that changed something
    int64_t folded_work; // operations that folding took so far, of EVAL_COMPILE_WORK (eval.h)
};
typedef status_t (*pass_fn)(struct hlo_module *m, struct pass_ctx *p);
struct pass {
    const char *name;
    pass_fn fn;
    const char *doc;
};
static inline const _Atomic bool *pass_cancel(const struct pass_ctx *p) {
    return p->obs ? p->obs->cancel : NULL;
}
static inline void pass_tell_fusion(const struct pass_ctx *p, const struct hlo_instr *producer,
                                    const struct hlo_instr *consumer, const char *why_not) {
    if (p->trace && p->trace->fusion)
        p->trace->fusion(p->trace->ctx, p->running, producer, consumer, why_not);
}
// Asks of contraction i what lib_reads_bf16 tells, but of a dot that asks for another algorithm.
void pass_ask_bf16(struct hlo_instr *i);
// What a program asks of contraction `from` beside its result (operand_precision, algorithm), asked
// of `to`, which is made of it; of other operations nothing.
void pass_ask_alike(struct hlo_instr *to, const struct hlo_instr *from);
// Instructions that the builder appended behind `last` go in front of pos, in their order. The
// contractions among them are asked alike.
void pass_place(struct hlo_instr *last, struct hlo_instr *pos);
// r, built by b behind `last`, stands where i stood, which is removed. Gives b's status; where that
// is not ST_OK, i is as it was.
status_t pass_put_instead(struct hb *b, struct hlo_instr *last, struct hlo_instr *i,
                          struct hlo_instr *r) MUST_CHECK;
// Offers every instruction outside of fusions, in list order, to `fn`, which gives what replaces it
// (built with b, placed before it, under its metadata) or NULL. Sets p->changed.
typedef struct hlo_instr *(*pass_rewrite_fn)(struct hb *b, struct hlo_instr *i,
                                             const struct pass_ctx *p);
status_t pass_rewrite(struct hlo_module *m, struct pass_ctx *p, pass_rewrite_fn fn) MUST_CHECK;
// Sets the mark of each instruction of c: 1 where it depends on weights and constants alone, else
// 0.
void pass_mark_weights(struct hlo_computation *c);
const struct pass *pass_find(struct str name); // NULL if unknown
const struct pass *pass_table(int *n);
// Runs one pass by name unless opt disables it. CANCELLED when the observer says so; a module that
// no longer verifies is INTERNAL and names the pass.
status_t pass_run(struct hlo_module *m, const char *name, struct pass_ctx *p) MUST_CHECK;
// Repeats a list until nothing changes, at most `rounds` times.
status_t pass_run_list(struct hlo_module *m, const char *const *names, int rounds,
                       struct pass_ctx *p) MUST_CHECK;

#define PASS(fn, name, doc) status_t pass_##fn(struct hlo_module *m, struct pass_ctx *p) MUST_CHECK;
#include "compiler/passes/passes.def"
#undef PASS
