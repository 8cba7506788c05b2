// SPDX-License-Identifier: Apache-2.0
// codegen: kernels for the instructions that no library takes: lowered to kir, made into code here
// or by LLVM (llvm_*.c alone know it), and loaded again without the optimiser. Thread: compile on
// any (one target machine per call); load and lookup on one.
#pragma once
#include "base/span.h"
#include "compiler/target.h"

struct kernel_info {
    const char *symbol;    // of its code: "k<digest of the kernel's text>"
    const char *instr;     // name of the instruction it computes
    int32_t n_bufs;        // operand leaves, then result leaves
    int32_t n_sizes;       // of a body that several kernels share
    const int64_t *sizes;  // [n_sizes]
    int64_t extent;        // parallel units
    int64_t scratch_bytes; // per thread
    bool tiles;            // a contraction in tiles, no loops over elements
    int64_t flops, bytes;  // estimate of the whole kernel, for grain size and profiles
    // Of the compile that made it, for hlo-run --compile; not kept in the artefact.
    const char *why_llvm; // static text: why the direct generator left it; NULL: it did not
    int64_t codegen_ns;   // of its body, at the first kernel that has it; 0 if it was in the cache
};
struct kernel_set {
    struct kernel_info *k;
    int32_t n;
    struct span object;
};

// Can this instruction (fusion or single op of an entry, while body, ... computation) be a kernel?
// Says why not in *why when false (static text).
bool codegen_supports(const struct hlo_instr *i, const char **why);
// Makes kernels for every instruction of `m` (all computations that run as steps: entry,
// while/conditional/call bodies) that is supported and that t->library_accepts does not take.
// Objects in arena a. text_kir: optional, the kernels as kir; text_code: optional, what the
// target's back end makes, as text.
status_t codegen_module(struct arena *a, const struct hlo_module *m, const struct target *t,
                        enum precision prec, struct strbuf *text_kir, struct strbuf *text_code,
                        struct kernel_set *out) MUST_CHECK;
struct code; // loaded object
status_t code_load(struct span object, struct code **out) MUST_CHECK;
void *code_symbol(struct code *c, const char *symbol); // NULL if absent
void code_free(struct code *c);
