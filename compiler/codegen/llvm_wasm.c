// SPDX-License-Identifier: Apache-2.0
// The back end "wasm": a WebAssembly module. All bodies go into one LLVM module, whose object for
// wasm32 wasm_module.c makes a module of: no linker is needed. Kernels are exported under their
// symbols and called as
//     (i32 buffers, i32 begin, i32 end, i32 scratch, i32 sizes)
// where `buffers` is the place of an array of places. Names of libm.def that bodies call are
// imported from "env".
#include "base/str.h"
#include "compiler/codegen/llvm_emit.h"
#include "compiler/codegen/wasm/wasm_module.h"

// All bodies as an object, or in the assembler's language.
static status_t build(struct backend_work *w, LLVMCodeGenFileType kind, LLVMMemoryBufferRef *out) {
    LLVMContextRef c = llvm_context();
    LLVMModuleRef m = LLVMModuleCreateWithNameInContext("kernels", c);
    LLVMTargetMachineRef tm = NULL;
    status_t st = llvm_machine(w->t, EFFORT_FULL, &tm);
    for (int i = 0; i < w->n && !st; i++)
        st = llvm_emit_kernel(m, w->units[i].fn, w->units[i].symbol, w->units[i].n_sizes, w->t);
    if (!st) st = llvm_compile(m, tm, EFFORT_FULL, NULL, kind, out);
    if (tm) LLVMDisposeTargetMachine(tm);
    LLVMDisposeModule(m);
    LLVMContextDispose(c);
    return st;
}
static status_t make_module(struct backend_work *w, struct span *out) {
    LLVMMemoryBufferRef made;
    *out = (struct span){(const uint8_t *)"\0asm\1\0\0", 8}; // of nothing
    if (w->n == 0) return ST_OK;
    const char **exports = arena_array(w->a, const char *, w->n + 1);
    for (int i = 0; i < w->n; i++)
        exports[i] = w->units[i].symbol;
    if (w->text) {
        RETURN_IF_ERR(build(w, LLVMAssemblyFile, &made));
        strbuf_add(w->text, LLVMGetBufferStart(made), LLVMGetBufferSize(made));
        LLVMDisposeMemoryBuffer(made);
    }
    RETURN_IF_ERR(build(w, LLVMObjectFile, &made));
    struct span object = {(const uint8_t *)LLVMGetBufferStart(made), LLVMGetBufferSize(made)};
    status_t st = wasm_module(w->a, object, exports, w->n, out);
    LLVMDisposeMemoryBuffer(made);
    return st;
}
const struct backend backend_wasm = {"wasm", LLVM_MAX_SIZES, false, NULL, NULL, make_module};
