// SPDX-License-Identifier: Apache-2.0
// The library's engine and stream, one of each a process, and reorders made once, at PREPARE.
#include "devices/cpu/onednn/cpu_onednn.h"

#include <pthread.h>
#include <stdlib.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

// AMX's registers are the process's once it has asked the kernel for them, by a call that a
// worker's filter refuses. The library asks where it is first asked what it may use, which is
// therefore done when a device is opened; it keeps the answer. ONEDNN_MAX_CPU_ISA keeps it from
// them.
static bool tiles;
static void ask_cpu(void) {
    // It would look for a profiler's library at the first generated code: a search over the disk.
    dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
    unsigned isa = dnnl_get_effective_cpu_isa(), amx = dnnl_cpu_isa_avx512_core_amx;
    tiles = (isa & amx) == amx;
}
bool cpu_has_tiles(void) {
    static pthread_once_t asked = PTHREAD_ONCE_INIT;
    pthread_once(&asked, ask_cpu);
    return tiles && cpu_has_bf16();
}

status_t onednn_start(void) {
    if (engine) return ST_OK;
    (void)cpu_has_tiles();
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
        return st_internal("oneDNN does not start");
    return ST_OK;
}

status_t onednn_failed(const char *what, dnnl_status_t rc) {
    return st_internal("oneDNN: %s failed (%d)", what, (int)rc);
}

dnnl_engine_t onednn_engine(void) {
    return engine;
}

dnnl_stream_t onednn_stream(void) {
    return stream;
}

status_t onednn_reorder_desc(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             dnnl_primitive_desc_t *pd) {
    dnnl_status_t rc = dnnl_reorder_primitive_desc_create(pd, from, engine, to, engine, NULL);
    return rc == dnnl_success ? ST_OK : onednn_failed("reorder", rc);
}

status_t onednn_reorder_prim(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             dnnl_primitive_t *out) {
    dnnl_primitive_desc_t pd = NULL;
    RETURN_IF_ERR(onednn_reorder_desc(from, to, &pd));
    dnnl_status_t rc = dnnl_primitive_create(out, pd);
    dnnl_primitive_desc_destroy(pd);
    return rc == dnnl_success ? ST_OK : onednn_failed("reorder", rc);
}

// A mapped model file gives no alignment, and the library's C++ may take its elements' for granted.
// The largest weights come first: what only they need is not kept for the others.
// What is copied is given back by the piece, or a large one would be in memory three times.
enum { KEPT_BOUNCE = 16 << 20, READ_PIECE = 4 << 20 };
static _Thread_local struct {
    void *p;
    size_t n;
} bounce;

void onednn_packed(void) {
    free(bounce.p);
    bounce.p = NULL;
    bounce.n = 0;
}

static status_t aligned(const struct cpu_exe *x, const dnnl_memory_desc_t *d, const void **plain) {
    size_t n = dnnl_memory_desc_get_size(d), element = dnnl_data_type_size(d->data_type);
    if ((uintptr_t)*plain % element == 0) return ST_OK;
    if (n > bounce.n) {
        onednn_packed();
        if (!(bounce.p = cpu_memory((int64_t)n)))
            return st_exhausted("no memory for %zu bytes while preparing weights", n);
        bounce.n = n;
    }
    for (size_t at = 0; at < n; at += READ_PIECE) {
        size_t piece = n - at < READ_PIECE ? n - at : READ_PIECE;
        memcpy((char *)bounce.p + at, (const char *)*plain + at, piece);
        cpu_has_read(x, (const char *)*plain + at, (int64_t)piece);
    }
    *plain = bounce.p;
    return ST_OK;
}

// Pieces of the pool pack at the same time, but one makes its primitive at a time (README.md).
static status_t made_alone(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                           dnnl_primitive_desc_t *pd, dnnl_primitive_t *prim) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&making);
    status_t status = onednn_reorder_desc(from, to, pd);
    dnnl_status_t rc = status ? dnnl_success : dnnl_primitive_create(prim, *pd);
    pthread_mutex_unlock(&making);
    return rc == dnnl_success ? status : onednn_failed("packing weights", rc);
}

status_t onednn_reorder_once(const dnnl_memory_desc_t *user, const dnnl_memory_desc_t *wanted,
                             const void *plain, void *packed) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t prim = NULL;
    dnnl_memory_t from = NULL, to = NULL;
    status_t status = made_alone(user, wanted, &pd, &prim);
    dnnl_status_t rc = dnnl_success;
    if (!status && rc == dnnl_success)
        rc = dnnl_memory_create(&from, user, engine, (void *)(uintptr_t)plain);
    if (!status && rc == dnnl_success) rc = dnnl_memory_create(&to, wanted, engine, packed);
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    if (!status && rc == dnnl_success) rc = dnnl_primitive_execute(prim, stream, 2, args);
    if (!status && rc == dnnl_success) rc = dnnl_stream_wait(stream);
    if (!status && rc != dnnl_success) status = onednn_failed("packing weights", rc);
    dnnl_memory_destroy(from);
    dnnl_memory_destroy(to);
    if (prim) dnnl_primitive_destroy(prim);
    if (pd) dnnl_primitive_desc_destroy(pd);
    return status;
}

int64_t onednn_pack_bytes(const struct cpu_step *s) {
    return (int64_t)dnnl_memory_desc_get_size(&((const struct onednn_packing *)s->state)->packed);
}
status_t onednn_pack(struct cpu_exe *x, struct cpu_step *s, const void *plain, void *packed) {
    const struct onednn_packing *p = s->state;
    RETURN_IF_ERR(aligned(x, &p->user, &plain));
    status_t status = onednn_reorder_once(&p->user, &p->packed, plain, packed);
    if (bounce.n > KEPT_BOUNCE) onednn_packed();
    return status;
}
bool onednn_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct onednn_packing *p = a->state, *q = b->state;
    return dnnl_memory_desc_equal(&p->user, &q->user) &&
           dnnl_memory_desc_equal(&p->packed, &q->packed);
}
