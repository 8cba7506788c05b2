// SPDX-License-Identifier: Apache-2.0
// Kernels of a program once more, as WGSL, of those that can be said in it; the others stay in
// WebAssembly alone. A kernel's tables become constants in memory, buffers behind its others.
#include "compiler/codegen/wgsl.h"
#include "compiler/kernel/lower.h"
#include "compiler/web/web_program.h"

// Where the runtime may choose, a kernel that has so little to read, write and do is WebAssembly: a
// loop's counter, say, of which the host wants to know whether it goes on.
enum { SMALL_BYTES = 4096, SMALL_WORK = 1 << 16 };

struct maker {
    struct arena *a;
    struct web_program *p;
    const struct web_options *o;
    struct smap texts; // kir -> 1 + index in p->gpu.kernels of the first that has it
    int n;             // texts
    bool overflow;
};

static bool is_small(const struct web_kernel *k, const struct kir_fn *f) {
    int64_t bytes = 0;
    for (int n = 0; n < k->info->n_bufs; n++)
        bytes += k->bytes[n];
    return bytes <= SMALL_BYTES && kir_work(f) <= SMALL_WORK;
}
// Pairs of a place and a size.
static int64_t *tables(struct maker *m, const struct kir_fn *f) {
    int64_t *out = arena_array(m->a, int64_t, 2 * f->tables.n + 1);
    for (size_t k = 0; k < f->tables.n; k++) {
        const struct kir_table *t = &f->tables.v[k];
        int64_t n = t->n * dtype_size(t->elem);
        int64_t at = web_take(m->p, n, &m->overflow);
        out[2 * k] = at;
        out[2 * k + 1] = n;
        avec_push(m->a, &m->p->weights,
                  ((struct web_bytes){.at = at,
                                      .bytes = n,
                                      .data = arena_dup(m->a, t->data, (size_t)n),
                                      .result = -1}));
    }
    return out;
}
// The kernel's WGSL, appended unless an equal one has it already.
static status_t add(struct maker *m, const struct kir_fn *f, struct web_gpu_kernel *out) {
    struct strbuf kir = {0};
    struct web_gpu *g = &m->p->gpu;
    kir_print(&kir, f);
    struct str key = {arena_strndup(m->a, strbuf_cstr(&kir), kir.n), kir.n};
    strbuf_done(&kir);
    struct web_gpu_kernel *same = smap_get(&m->texts, key);
    if (same) {
        *out = *same;
        return ST_OK;
    }

    struct strbuf text = {0};
    const char *name = arena_printf(m->a, "g%d", m->n);
    status_t st = wgsl_kernel(&text, f, name);
    if (!st) {
        m->n++;
        strbuf_add(&g->text, text.p, text.n);
        *out = (struct web_gpu_kernel){.entry = name,
                                       .extent = f->extent,
                                       .scratch_bytes = f->scratch_bytes,
                                       .tables = tables(m, f),
                                       .n_tables = (int)f->tables.n};
        smap_put(&m->texts, key, arena_dup(m->a, out, sizeof *out));
    }
    strbuf_done(&text);
    return st;
}
static status_t one(struct maker *m, const struct web_kernel *k, struct web_gpu_kernel *out) {
    struct arena a = {0};
    struct kir_fn *f;
    const char *why;
    status_t st = lower_kernel(&a, k->of, wgsl_target(), m->o->precision, &f, &why);
    if (!st && wgsl_too_narrow(f))
        out->why = "few units with much to do";
    else if (!st && m->o->backend == WEB_AUTO && is_small(k, f))
        out->why = "little to do";
    else if (!st)
        st = add(m, f, out);
    if (st_code(st) == ST_UNIMPLEMENTED) {
        out->why = arena_strdup(m->a, st_message(st));
        st_drop(st);
        st = ST_OK;
    }
    arena_done(&a);
    return st;
}

status_t web_gpu_make(struct arena *a, const struct web_options *o, struct web_program *p) {
    struct maker m = {.a = a, .p = p, .o = o};
    struct web_gpu *g = &p->gpu;
    status_t st = ST_OK;
    g->kernels = arena_zarray(a, struct web_gpu_kernel, p->kernels.n + 1);
    strbuf_puts(&g->text, wgsl_prologue());
    for (size_t k = 0; k < p->kernels.n && !st; k++) {
        st = one(&m, &p->kernels.v[k], &g->kernels[k]);
        g->n += g->kernels[k].entry != NULL;
    }
    smap_done(&m.texts);
    if (!st && m.overflow) st = web_overflow();
    return st;
}
