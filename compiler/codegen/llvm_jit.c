// SPDX-License-Identifier: Apache-2.0
// Loads kernel objects with ORC. The span is a container: "HKOB", count, then length and bytes of
// each ELF object, so that modules compiled on several threads need no link step. Only the
// names of calls.c resolve.
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <pthread.h>
#include <stdlib.h>

#include "compiler/codegen/calls.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/container.h"

struct code {
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

status_t code_load(struct span object, struct code **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_native);
    struct container c;
    RETURN_IF_ERR(container_open(object, &c));
    struct code *code = calloc(1, sizeof *code);
    if (!code) return st_oom();
    LLVMErrorRef e = LLVMOrcCreateLLJIT(&code->jit, NULL);
    status_t st = e ? failed("loader", e) : ST_OK;
    LLVMOrcJITDylibRef lib = st ? NULL : LLVMOrcLLJITGetMainJITDylib(code->jit);
    if (!st) st = define_symbols(code->jit, lib);
    for (struct span part; !st && container_next(&c, &part);) {
        LLVMMemoryBufferRef b =
            LLVMCreateMemoryBufferWithMemoryRangeCopy((const char *)part.p, part.n, "kernels");
        if ((e = LLVMOrcLLJITAddObjectFile(code->jit, lib, b))) st = failed("damaged object", e);
    }
    if (!st && c.damaged) st = st_new(ST_DATA_LOSS, "damaged object: container of kernels");
    if (st) {
        code_free(code);
        return st;
    }
    *out = code;
    return ST_OK;
}

void *code_symbol(struct code *c, const char *symbol) {
    LLVMOrcExecutorAddress a = 0;
    LLVMErrorRef e = LLVMOrcLLJITLookup(c->jit, &a, symbol);
    if (e) {
        LLVMConsumeError(e);
        return NULL;
    }
    return (void *)(uintptr_t)a;
}

void code_free(struct code *c) {
    if (!c) return;
    if (c->jit) {
        LLVMErrorRef e = LLVMOrcDisposeLLJIT(c->jit);
        if (e) LLVMConsumeError(e);
    }
    free(c);
}
