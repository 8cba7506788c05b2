// SPDX-License-Identifier: Apache-2.0
// llvm_emit: kir to LLVM, and the optimiser. Private to codegen.
#pragma once
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "compiler/codegen/backend.h"
#include "compiler/target.h"

enum { LLVM_MAX_SIZES = 64 };
// Adds the kernel `symbol` to m, called as abi.h says. n_sizes = 0: f's constants are its own;
// else it reads those that kir_print_form left open from its argument `sizes`.
status_t llvm_emit_kernel(LLVMModuleRef m, const struct kir_fn *f, const char *symbol, int n_sizes,
                          const struct target *t) MUST_CHECK;
// Within another function (llvm_loop.c). What an access of a buffer belongs to, and what it cannot
// be: metadata of alias scopes, NULL = nothing is known.
struct llvm_apart {
    LLVMValueRef own, others;
};
struct llvm_inside {
    LLVMModuleRef m;
    LLVMBuilderRef b; // where the kernel's operations go
    LLVMValueRef fn, scratch;
    const LLVMValueRef *bufs; // [f->n_bufs]
    const struct llvm_apart *apart;
    struct llvm_apart scratch_apart;
    int vector_bits;
};
// Of a loop for vectors there: over scratch, where lanes would be hidden or elements lie apart; and
// is what is behind its whole vectors one with hidden lanes, rather than one by one?
bool llvm_loop_is_worse(const struct kir_loop *l);
bool llvm_loop_ends_hidden(const struct llvm_inside *in, const struct kir_loop *l);
bool llvm_sum_ends_hidden(const struct llvm_inside *in, const struct kir_loop *l);
// All units of f, in place.
status_t llvm_emit_inside(const struct llvm_inside *in, const struct kir_fn *f) MUST_CHECK;
void llvm_function_attributes(LLVMModuleRef m, LLVMValueRef fn, const struct target *t);
// A loop as the function `symbol` (merge.h).
status_t llvm_emit_loop(LLVMModuleRef m, const struct merged_loop *l, const char *symbol,
                        const struct target *t) MUST_CHECK;
// A context in which LLVM says nothing on standard error. Dispose after use.
LLVMContextRef llvm_context(void);
// Target machine of t (the host's where t's fields are empty). Dispose after use.
status_t llvm_machine(const struct target *t, enum effort effort,
                      LLVMTargetMachineRef *out) MUST_CHECK;
// Runs the pass pipeline and emits an object or assembly; text: optional dump of the optimised
// module.
status_t llvm_compile(LLVMModuleRef m, LLVMTargetMachineRef tm, enum effort effort,
                      struct strbuf *text, LLVMCodeGenFileType kind,
                      LLVMMemoryBufferRef *out) MUST_CHECK;
// llvm_soft.c: what WebAssembly lacks, in operations of integers. A half is its bits, an i16; x is
// a float (of f32 or f64 for round).
LLVMValueRef llvm_soft_widen(LLVMBuilderRef b, LLVMValueRef half);
LLVMValueRef llvm_soft_narrow(LLVMBuilderRef b, LLVMValueRef x);
LLVMValueRef llvm_soft_round(LLVMModuleRef m, LLVMBuilderRef b, LLVMValueRef x);
