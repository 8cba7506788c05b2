// SPDX-License-Identifier: Apache-2.0
// Loads ELF objects with ORC, one a kernel, so that what several threads compile needs no link
// step. Only the names of calls.c resolve.
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <stdlib.h>

#include "compiler/codegen/calls.h"
#include "compiler/codegen/llvm_jit.h"

struct llvm_jit {
    LLVMOrcLLJITRef jit;
};
static status_t failed(const char *what, LLVMErrorRef e) {
    char *m = LLVMGetErrorMessage(e);
    status_t st = st_new(ST_DATA_LOSS, "%s: %s", what, m);
    LLVMDisposeErrorMessage(m);
    return st;
}
static void init_native(void) {
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
}

static status_t define_symbols(LLVMOrcLLJITRef jit, LLVMOrcJITDylibRef lib) {
    LLVMOrcCSymbolMapPair pairs[96];
    size_t n = 0;
    for (const struct code_symbol *s = code_symbols; s->name && n < 96; s++)
        pairs[n++] = (LLVMOrcCSymbolMapPair){
            LLVMOrcLLJITMangleAndIntern(jit, s->name),
            {(LLVMOrcExecutorAddress)(uintptr_t)s->fn,
             {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0}}};
    LLVMErrorRef e = LLVMOrcJITDylibDefine(lib, LLVMOrcAbsoluteSymbols(pairs, n));
    return e ? failed("symbols", e) : ST_OK;
}

static status_t start(struct llvm_jit **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_native);
    struct llvm_jit *j = *out = calloc(1, sizeof *j);
    if (!j) return st_oom();
    LLVMErrorRef e = LLVMOrcCreateLLJIT(&j->jit, NULL);
    if (e) return failed("loader", e);
    return define_symbols(j->jit, LLVMOrcLLJITGetMainJITDylib(j->jit));
}
status_t llvm_jit_add(struct llvm_jit **j, struct span object) {
    if (!*j) RETURN_IF_ERR(start(j));
    LLVMMemoryBufferRef b =
        LLVMCreateMemoryBufferWithMemoryRangeCopy((const char *)object.p, object.n, "kernels");
    LLVMErrorRef e =
        LLVMOrcLLJITAddObjectFile((*j)->jit, LLVMOrcLLJITGetMainJITDylib((*j)->jit), b);
    return e ? failed("damaged object", e) : ST_OK;
}

void *llvm_jit_symbol(struct llvm_jit *j, const char *symbol) {
    LLVMOrcExecutorAddress a = 0;
    LLVMErrorRef e = LLVMOrcLLJITLookup(j->jit, &a, symbol);
    if (e) {
        LLVMConsumeError(e);
        return NULL;
    }
    return (void *)(uintptr_t)a;
}

void llvm_jit_free(struct llvm_jit *j) {
    if (!j) return;
    if (j->jit) {
        LLVMErrorRef e = LLVMOrcDisposeLLJIT(j->jit);
        if (e) LLVMConsumeError(e);
    }
    free(j);
}
