// SPDX-License-Identifier: Apache-2.0
// The back end "llvm": machine code of this kind of CPU. Bodies are made by LLVM on two threads, an
// object a body, unless this process made them recently; on x86-64 most are made directly before.
// The result is a container (container.h).
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/str.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/code_cache.h"
#include "compiler/codegen/container.h"
#include "compiler/codegen/llvm_emit.h"
#include "compiler/codegen/x86/x86_direct.h"

enum { FEW = 2 };
struct work { // bodies that threads take in turn
    struct kernel_unit *u;
    int n;
    atomic_int next;
    const struct target *t;
    struct arena *a;      // of the objects; under lock
    struct span *objects; // [n]
    struct strbuf *text;  // NULL, or the optimised IR: then there is one thread and no cache
    pthread_mutex_t lock;
    status_t st; // the first failure
};

static status_t compile_unit(struct work *w, const struct kernel_unit *u, LLVMTargetMachineRef tm,
                             struct span *out) {
    LLVMContextRef c = llvm_context();
    LLVMModuleRef m = LLVMModuleCreateWithNameInContext("kernels", c);
    LLVMMemoryBufferRef object = NULL;
    status_t st = u->loop ? llvm_emit_loop(m, u->loop, u->symbol, w->t)
                          : llvm_emit_kernel(m, u->fn, u->symbol, u->n_sizes, w->t);
    if (!st) st = llvm_compile(m, tm, u->effort, w->text, LLVMObjectFile, &object);
    if (!st) {
        struct span made = {(const uint8_t *)LLVMGetBufferStart(object), LLVMGetBufferSize(object)};
        if (!w->text) code_cache_put(u->key, made);
        pthread_mutex_lock(&w->lock);
        *out = (struct span){arena_dup(w->a, made.p, made.n), made.n};
        pthread_mutex_unlock(&w->lock);
    }
    if (object) LLVMDisposeMemoryBuffer(object);
    LLVMDisposeModule(m);
    LLVMContextDispose(c);
    return st;
}

static void *compile_units(void *arg) {
    struct work *w = arg;
    LLVMTargetMachineRef tm[EFFORTS] = {NULL};
    status_t st = ST_OK;
    for (int k; !st && (k = atomic_fetch_add(&w->next, 1)) < w->n;) {
        if (w->objects[k].n) continue;
        LLVMTargetMachineRef *m = &tm[w->u[k].effort];
        if (!*m) st = llvm_machine(w->t, w->u[k].effort, m);
        int64_t start = clock_ns();
        if (!st) st = compile_unit(w, &w->u[k], *m, &w->objects[k]);
        w->u[k].ns = clock_ns() - start;
    }
    for (int k = 0; k < EFFORTS; k++)
        if (tm[k]) LLVMDisposeTargetMachine(tm[k]);
    if (!st) return NULL;
    atomic_store(&w->next, w->n);
    pthread_mutex_lock(&w->lock);
    if (w->st)
        st_drop(st);
    else
        w->st = st;
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static struct span pack(struct arena *a, const struct span *objects, int n) {
    struct strbuf b = {0};
    uint32_t count = (uint32_t)n;
    strbuf_puts(&b, "HKOB");
    strbuf_add(&b, &count, 4);
    for (int i = 0; i < n; i++) {
        uint64_t size = objects[i].n;
        strbuf_add(&b, &size, 8);
        strbuf_add(&b, objects[i].p, objects[i].n);
    }
    struct span s = {arena_dup(a, b.p, b.n), b.n};
    strbuf_done(&b);
    return s;
}

static status_t make_module(struct backend_work *b, struct span *out) {
    int n = b->n, missing = 0;
    struct work w = {.u = b->units,
                     .n = n,
                     .t = b->t,
                     .a = b->a,
                     .objects = arena_zarray(b->a, struct span, n + 1),
                     .text = b->text,
                     .lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < n && !b->text; i++)
        w.objects[i] = w.u[i].direct.n ? blob_make(b->a, w.u[i].symbol, w.u[i].direct)
                                       : code_cache_get(b->a, w.u[i].key);
    for (int i = 0; i < n; i++)
        missing += !w.objects[i].n;
    pthread_t other;
    bool two = missing >= FEW && !b->text && !pthread_create(&other, NULL, compile_units, &w);
    if (missing) compile_units(&w);
    if (two) pthread_join(other, NULL);
    if (!w.st) *out = pack(b->a, w.objects, n);
    return w.st;
}

static struct span direct(struct arena *a, const struct target *t, const struct kir_fn *f,
                          int64_t turns, const char **why) {
    return x86_direct(a, f, turns, t->vector_bits, t->direct_bf16, why);
}
static struct span direct_loop(struct arena *a, const struct target *t, const struct merged_loop *l,
                               const char **why) {
    return x86_direct_loop(a, l, t->vector_bits, t->direct_bf16, why);
}
const struct backend backend_llvm = {"llvm", LLVM_MAX_SIZES, true,
                                     direct, direct_loop,    make_module};
