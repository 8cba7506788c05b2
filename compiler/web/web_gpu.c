// SPDX-License-Identifier: Apache-2.0
// Kernels of a program once more, in the languages of GPUs, of those that can be said in them; the
// others stay in WebAssembly alone. A kernel's tables become constants in memory, buffers behind
// its others.
#include "compiler/codegen/shader/shader.h"
#include "compiler/kernel/lower.h"
#include "compiler/kernel/policy.h"
#include "compiler/web/web_program.h"

// Where the runtime may choose, a kernel that has so little to read, write and do is WebAssembly: a
// loop's counter, say, of which the host wants to know whether it goes on. Without rows each
// element computes again what its row has in common: not, where that is so many times the work.
enum { SMALL_BYTES = 4096, SMALL_WORK = 1 << 16, MOST_AGAIN = 1024 };

struct maker {
    struct arena *a;
    struct web_program *p;
    const struct web_options *o;
    struct smap placed; // bytes of a table -> its place
    bool overflow;
    // Of one language.
    struct web_gpu *g;
    struct smap texts; // kir -> the first kernel that has it
    int n;             // texts
};

static bool is_small(const struct web_kernel *k, const struct kir_fn *f) {
    int64_t bytes = 0;
    for (int n = 0; n < k->info->n_bufs; n++)
        bytes += k->bytes[n];
    return bytes <= SMALL_BYTES && kir_work(f) <= SMALL_WORK;
}
static int64_t place(struct maker *m, const struct kir_table *t) {
    int64_t n = t->n * dtype_size(t->elem);
    struct str key = {arena_dup(m->a, t->data, (size_t)n), (size_t)n};
    int64_t *known = smap_get(&m->placed, key);
    if (known) return *known;

    int64_t at = web_take(m->p, n, &m->overflow);
    avec_push(m->a, &m->p->weights,
              ((struct web_bytes){.at = at, .bytes = n, .data = key.p, .result = -1}));
    smap_put(&m->placed, key, arena_dup(m->a, &at, sizeof at));
    return at;
}
// Pairs of a place and a size.
static int64_t *tables(struct maker *m, const struct kir_fn *f) {
    int64_t *out = arena_array(m->a, int64_t, 2 * f->tables.n + 1);
    for (size_t k = 0; k < f->tables.n; k++) {
        const struct kir_table *t = &f->tables.v[k];
        out[2 * k] = place(m, t);
        out[2 * k + 1] = t->n * dtype_size(t->elem);
    }
    return out;
}
static const int *unit_bytes(struct maker *m, const struct kir_fn *f) {
    const struct shader *of = m->g->language;
    int n = f->n_bufs - f->n_in;
    if (!of->unit_bytes) return NULL;
    int *out = arena_array(m->a, int, n + 1);
    for (int k = 0; k < n; k++)
        out[k] = of->unit_bytes(f, k);
    return out;
}
// The kernel's text, appended unless an equal one has it already.
static status_t add(struct maker *m, const struct kir_fn *f, struct web_gpu_kernel *out) {
    struct strbuf kir = {0};
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
    status_t st = m->g->language->kernel(&text, f, name);
    if (!st) {
        m->n++;
        strbuf_add(&m->g->text, text.p, text.n);
        *out = (struct web_gpu_kernel){.entry = name,
                                       .extent = f->extent,
                                       .scratch_bytes = f->scratch_bytes,
                                       .tables = tables(m, f),
                                       .n_tables = (int)f->tables.n,
                                       .unit_bytes = unit_bytes(m, f),
                                       .sum_units = f->sums ? f->sums->extent : 0,
                                       .sums = shader_sums(f)};
        smap_put(&m->texts, key, arena_dup(m->a, out, sizeof *out));
    }
    strbuf_done(&text);
    return st;
}
// Work of the kernel where rows are units: shader_wgsl has these; INT64_MAX: not known.
static int64_t work_by_rows(struct maker *m, const struct web_kernel *k) {
    struct arena a = {0};
    struct kir_fn *f;
    const char *why;
    status_t st =
        lower_kernel(&a, k->of, shader_wgsl.target(m->o->tiles), m->o->precision, &f, &why);
    int64_t work = st ? INT64_MAX : kir_work(f);
    st_drop(st);
    arena_done(&a);
    return work;
}
static bool computes_again(struct maker *m, const struct web_kernel *k, const struct kir_fn *f) {
    const struct kernel_policy *p = policy_of(m->g->language->target(m->o->tiles));
    if (p->rows || k->of->op != HLO_FUSION) return false;
    return kir_work(f) / MOST_AGAIN > work_by_rows(m, k);
}
static status_t one(struct maker *m, const struct web_kernel *k, struct web_gpu_kernel *out) {
    struct arena a = {0};
    struct kir_fn *f;
    const char *why;
    const struct target *t = m->g->language->target(m->o->tiles);
    status_t st = lower_kernel(&a, k->of, t, m->o->precision, &f, &why);
    if (!st && shader_too_narrow(f))
        out->why = "few units with much to do";
    else if (!st && computes_again(m, k, f))
        out->why = "what rows have in common would be computed by each element";
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
static status_t in_language(struct maker *m, const struct shader *of) {
    const struct web_program *p = m->p;
    struct web_gpu *g = m->g;
    status_t st = ST_OK;
    g->language = of;
    g->kernels = arena_zarray(m->a, struct web_gpu_kernel, p->kernels.n + 1);
    strbuf_puts(&g->text, of->prologue);
    for (size_t k = 0; k < p->kernels.n && !st; k++) {
        st = one(m, &p->kernels.v[k], &g->kernels[k]);
        g->n += g->kernels[k].entry != NULL;
    }
    smap_done(&m->texts);
    m->texts = (struct smap){0};
    m->n = 0;
    return st;
}

status_t web_gpu_make(struct arena *a, const struct web_options *o, struct web_program *p) {
    static const struct shader *const languages[WEB_LANGUAGES] = {&shader_wgsl, &shader_glsl};
    static const enum web_backend only[WEB_LANGUAGES] = {WEB_WEBGPU, WEB_WEBGL};
    struct maker m = {.a = a, .p = p, .o = o};
    status_t st = ST_OK;
    for (int k = 0; k < WEB_LANGUAGES && !st; k++) {
        m.g = &p->gpu[k];
        if (o->backend == WEB_AUTO || o->backend == only[k]) st = in_language(&m, languages[k]);
    }
    smap_done(&m.placed);
    if (!st && m.overflow) st = web_overflow();
    return st;
}
