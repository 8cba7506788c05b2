// SPDX-License-Identifier: Apache-2.0
// llvm_emit: kir to LLVM, and the optimiser. Private to codegen.
#pragma once
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "compiler/kernel/kir.h"
#include "compiler/target.h"

enum { LLVM_MAX_SIZES = 64 };
// A kernel by name. Kernels of one form (kir_print_form) share one body and give it their sizes.
struct llvm_entry {
    const char *symbol;
    const int64_t *sizes;
};
// Adds `void symbol(ptr bufs, i64 begin, i64 end, ptr scratch)` to m for each entry. With n_sizes =
// 0 there is one entry and f's constants are its own.
status_t llvm_emit_kernel(LLVMModuleRef m, const struct kir_fn *f, const struct llvm_entry *entries,
                          int n_entries, int n_sizes, const struct target *t) MUST_CHECK;
// Target machine of t (the host's where t's fields are empty). Dispose after use.
status_t llvm_machine(const struct target *t, LLVMTargetMachineRef *out) MUST_CHECK;
// Runs the pass pipeline and emits an object; text: optional dump of the optimised module.
status_t llvm_compile(LLVMModuleRef m, LLVMTargetMachineRef tm, struct strbuf *text,
                      LLVMMemoryBufferRef *out) MUST_CHECK;
