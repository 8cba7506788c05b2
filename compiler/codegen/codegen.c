// SPDX-License-Identifier: Apache-2.0
// Kernels of a module: finds the instructions that need one, lowers them, makes equal kernels share
// one symbol and kernels that differ in sizes alone one body, compiles on two threads and packs the
// objects. A body of its own is the better code, so only forms that are met often are shared:
// networks whose every layer has another shape compile in a fraction of the time.
#include "compiler/codegen/codegen.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/str.h"
#include "compiler/codegen/llvm_emit.h"
#include "compiler/kernel/lower.h"

enum { THREADS = 2, FEW = 4, SHARED = 4 };

struct unit { // one body, and the kernels that run it
    const struct kir_fn *fn;
    const struct llvm_entry *entries;
    int n_entries, n_sizes; // n_sizes 0: one entry, whose constants are in the body
};
struct form { // distinct kernels of one form
    VEC(struct llvm_entry) entries;
    VEC(struct kir_fn *) fns;
    int n_sizes;
};
struct half {
    const struct unit *u;
    int n, first, step;
    const struct target *t;
    bool want_text;
    struct strbuf text;
    LLVMMemoryBufferRef object;
    status_t st;
};
struct gather {
    struct arena *a;
    const struct target *t;
    enum precision prec;
    struct strbuf *text;
    struct smap by_text; // kir text -> symbol
    struct smap by_form; // kir text without sizes -> struct form
    VEC(struct form *) forms;
    struct pmap seen; // computations
    VEC(struct kernel_info) kernels;
    VEC(struct unit) units;
    size_t n_distinct;
};

bool kernel_supported(const struct hlo_instr *i, const char **why) {
    struct arena a = {0};
    struct kir_fn *fn;
    const char *reason;
    status_t st = lower_kernel(&a, i, PRECISION_DEFAULT, &fn, &reason);
    if (!st) reason = NULL;
    st_drop(st);
    arena_done(&a);
    if (why) *why = reason;
    return !reason;
}

static char *symbol_name(struct arena *a, size_t n, const char *instr) {
    char *s = arena_printf(a, "k%zu_%.200s", n, instr);
    for (char *p = s; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9')))
            *p = '_';
    return s;
}

static int64_t body_ops(const struct hlo_computation *c) {
    int64_t n = 0;
    HLO_EACH_INSTR(i, c) {
        if (hlo_is_elementwise(i))
            n += shape_elements(shape_is_tuple(i->shape) ? shape_leaf(i->shape, 0) : i->shape);
        if (i->op == HLO_REDUCE || i->op == HLO_REDUCE_WINDOW)
            n += shape_elements(i->operands[0]->shape);
    }
    return n;
}

// The symbol of a kernel: a new one, or that of an equal kernel.
static const char *add_kernel(struct gather *g, struct kir_fn *fn, const char *name) {
    struct strbuf text = {0};
    kir_print(&text, fn);
    struct str key = {strbuf_cstr(&text), text.n};
    const char *symbol = smap_get(&g->by_text, key);
    if (symbol) {
        if (g->text) strbuf_printf(g->text, "// %s: same as %s\n", name, symbol);
        strbuf_done(&text);
        return symbol;
    }
    symbol = symbol_name(g->a, g->n_distinct++, name);
    smap_put(&g->by_text, key, (void *)symbol);
    if (g->text) {
        strbuf_printf(g->text, "// %s\n", name);
        strbuf_add(g->text, key.p, key.n);
    }
    strbuf_clear(&text);
    struct kir_sizes sizes = {NULL, 0, 0};
    kir_print_form(&text, g->a, fn, &sizes);
    key = (struct str){strbuf_cstr(&text), text.n};
    struct form *f = smap_get(&g->by_form, key);
    if (!f) {
        f = arena_new_of(g->a, struct form);
        f->n_sizes = (int)sizes.n;
        smap_put(&g->by_form, key, f);
        avec_push(g->a, &g->forms, f);
    }
    struct llvm_entry entry = {symbol, sizes.v};
    avec_push(g->a, &f->entries, entry);
    avec_push(g->a, &f->fns, fn);
    strbuf_done(&text);
    return symbol;
}

static status_t one(struct gather *g, const struct hlo_instr *i) {
    struct kir_fn *fn;
    const char *why;
    const struct shape *result = shape_is_tuple(i->shape) ? shape_leaf(i->shape, 0) : i->shape;
    if (!result || shape_elements(result) < g->t->min_kernel_elements) return ST_OK;
    status_t st = lower_kernel(g->a, i, g->prec, &fn, &why);
    if (st_code(st) == ST_UNIMPLEMENTED) {
        st_drop(st);
        return ST_OK;
    }
    RETURN_IF_ERR(st);
    const char *symbol = add_kernel(g, fn, i->name);
    struct kernel_info info = {.symbol = symbol,
                               .instr = arena_strdup(g->a, i->name),
                               .extent = fn->extent,
                               .scratch_bytes = fn->scratch_bytes};
    info.bytes = shape_bytes(i->shape);
    for (int n = 0; n < i->n_operands; n++)
        info.bytes += shape_bytes(i->operands[n]->shape);
    info.flops = i->op == HLO_FUSION        ? body_ops(i->called[0])
                 : shape_is_tuple(i->shape) ? 0
                                            : shape_elements(i->shape);
    avec_push(g->a, &g->kernels, info);
    return ST_OK;
}

static status_t computation(struct gather *g, const struct hlo_computation *c) {
    if (pmap_has_ptr(&g->seen, c)) return ST_OK;
    pmap_put_ptr(&g->seen, c, (void *)c);
    HLO_EACH_INSTR(i, c) {
        if (i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL)
            for (int n = 0; n < i->n_called; n++)
                RETURN_IF_ERR(computation(g, i->called[n]));
        else if (!(g->t->library_accepts && g->t->library_accepts(g->t, i)))
            RETURN_IF_ERR(one(g, i));
    }
    return ST_OK;
}

static void make_units(struct gather *g) {
    for (size_t k = 0; k < g->forms.n; k++) {
        const struct form *f = g->forms.v[k];
        int n = (int)f->entries.n;
        if (n >= SHARED && f->n_sizes && f->n_sizes <= LLVM_MAX_SIZES) {
            struct unit u = {f->fns.v[0], f->entries.v, n, f->n_sizes};
            avec_push(g->a, &g->units, u);
            continue;
        }
        for (int e = 0; e < n; e++) {
            struct unit u = {f->fns.v[e], &f->entries.v[e], 1, 0};
            avec_push(g->a, &g->units, u);
        }
    }
}

static void *compile_half(void *arg) {
    struct half *h = arg;
    LLVMContextRef c = LLVMContextCreate();
    LLVMModuleRef m = LLVMModuleCreateWithNameInContext("kernels", c);
    LLVMTargetMachineRef tm = NULL;
    h->st = llvm_machine(h->t, &tm);
    for (int i = h->first; i < h->n && !h->st; i += h->step)
        h->st = llvm_emit_kernel(m, h->u[i].fn, h->u[i].entries, h->u[i].n_entries, h->u[i].n_sizes,
                                 h->t);
    if (!h->st) h->st = llvm_compile(m, tm, h->want_text ? &h->text : NULL, &h->object);
    if (tm) LLVMDisposeTargetMachine(tm);
    LLVMDisposeModule(m);
    LLVMContextDispose(c);
    return NULL;
}

static struct span pack(struct arena *a, struct half *h, int n) {
    struct strbuf b = {0};
    uint32_t count = (uint32_t)n;
    strbuf_puts(&b, "HKOB");
    strbuf_add(&b, &count, 4);
    for (int i = 0; i < n; i++) {
        uint64_t size = LLVMGetBufferSize(h[i].object);
        strbuf_add(&b, &size, 8);
        strbuf_add(&b, LLVMGetBufferStart(h[i].object), (size_t)size);
    }
    struct span s = {arena_dup(a, b.p, b.n), b.n};
    strbuf_done(&b);
    return s;
}

static status_t compile(struct gather *g, struct strbuf *text_llvm, struct span *out) {
    struct half h[THREADS];
    pthread_t other[THREADS];
    bool started[THREADS] = {false};
    int n = g->units.n > FEW && !text_llvm ? THREADS : 1;
    status_t st = ST_OK;
    for (int i = 0; i < n; i++)
        h[i] = (struct half){.u = g->units.v,
                             .n = (int)g->units.n,
                             .first = i,
                             .step = n,
                             .t = g->t,
                             .want_text = text_llvm != NULL};
    for (int i = 1; i < n; i++)
        started[i] = pthread_create(&other[i], NULL, compile_half, &h[i]) == 0;
    compile_half(&h[0]);
    for (int i = 1; i < n; i++) {
        if (started[i])
            pthread_join(other[i], NULL);
        else
            compile_half(&h[i]);
    }
    for (int i = 0; i < n; i++) {
        if (st)
            st_drop(h[i].st);
        else
            st = h[i].st;
        if (text_llvm) strbuf_add(text_llvm, h[i].text.p ? h[i].text.p : "", h[i].text.n);
        strbuf_done(&h[i].text);
    }
    if (!st) *out = pack(g->a, h, n);
    for (int i = 0; i < n; i++)
        if (h[i].object) LLVMDisposeMemoryBuffer(h[i].object);
    return st;
}

status_t codegen_module(struct arena *a, const struct hlo_module *m, const struct target *t,
                        enum precision prec, struct strbuf *text_kir, struct strbuf *text_llvm,
                        struct kernel_set *out) {
    struct gather g = {.a = a, .t = t, .prec = prec, .text = text_kir};
    struct kernel_set set = {0};
    status_t st = computation(&g, m->entry);
    if (!st) make_units(&g);
    if (!st) st = compile(&g, text_llvm, &set.object);
    set.k = g.kernels.v;
    set.n = (int32_t)g.kernels.n;
    smap_done(&g.by_text);
    smap_done(&g.by_form);
    pmap_done(&g.seen);
    if (!st) *out = set;
    return st;
}
