// SPDX-License-Identifier: Apache-2.0
// Kernels of a module: finds the instructions that need one, lowers them, makes equal kernels share
// one symbol and kernels that differ in sizes alone one body, compiles each body that this process
// has not compiled recently, and packs the objects. All that is done for a kernel alone, by two
// threads. A body of its own is the better code, so only forms that are met often are shared:
// networks whose every layer has another shape compile in a fraction of the time. A symbol is a
// digest of the text it was made from, so that an object does not know the module it is in.
#include "compiler/codegen/codegen.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/alike.h"
#include "compiler/ir/turns.h"
#include "compiler/ir/work.h"
#include "compiler/kernel/lower.h"

enum { SHARED = 3, MANY = 8, LOOKED_AT = 8 };
// Operations of one run's turns from which LLVM's code, by a sixth the faster (a complex iteration
// of 50 turns), repays the 10 to 25 ms that it takes to make.
enum { LLVM_LOOP_WORK = 1 << 25 };

struct form {          // distinct kernels of one form
    struct kir_fn *fn; // of the first
    struct str text;   // the form's
    int64_t work;      // of the heaviest
    int n_sizes, kernels;
};
struct kernel { // what a kernel_info is made from once it is known which share a body
    struct kir_fn *fn;
    struct str exact;   // its text
    struct form *form;  // NULL: made directly
    struct span direct; // its code, if LLVM need not make it
    const char *why;    // it must
    const int64_t *sizes;
    bool in_loop;  // the first instruction that has it
    int64_t turns; // of the loops of all that have it
};
struct wanted { // an instruction that needs a kernel
    const struct hlo_instr *instr;
    bool in_loop;
    int64_t turns;         // of the loops around it that are known, in all
    struct wanted *first;  // an alike one, which is lowered for both; or NULL
    struct wanted *before; // of the same hash
    struct kir_fn *fn;
    struct str text; // its kir
    struct kernel *kernel;
    status_t st;
};
struct made_loop { // a body of loops
    const char *symbol, *why_llvm;
};
struct gather {
    struct arena *a;
    const struct target *t;
    const struct backend *back;
    enum precision prec;
    struct strbuf *text;
    bool in_module;      // nothing by the back end's direct way
    struct smap by_text; // kir text -> struct kernel
    struct smap by_form; // kir text without sizes -> struct form
    struct pmap seen;    // computations
    struct arena own[2]; // of each thread, until the objects are packed
    VEC(struct wanted *) wanted;
    VEC(struct kernel *) distinct;
    VEC(struct kernel_info) kernels;
    VEC(struct kernel *) made; // [kernels]
    VEC(struct kernel_unit) units;
    VEC(struct merged_loop *) loops; // that are one function each
    struct smap loops_made;          // struct made_loop, by the digest of what it is made of
    struct pmap merged;              // their instructions; of others that were looked at: NULL
};

bool codegen_supports(const struct hlo_instr *i, const char **why) {
    struct arena a = {0};
    struct kir_fn *fn;
    const char *reason;
    status_t st = lower_kernel(&a, i, NULL, PRECISION_DEFAULT, &fn, &reason);
    if (!st) reason = NULL;
    st_drop(st);
    arena_done(&a);
    if (why) *why = reason;
    return !reason;
}

static int64_t body_ops(const struct hlo_computation *c) {
    int64_t n = 0;
    HLO_EACH_INSTR(i, c) {
        if (hlo_is_elementwise(i))
            n += shape_elements(shape_is_tuple(i->shape) ? shape_leaf(i->shape, 0) : i->shape);
        if (i->op == HLO_REDUCE || i->op == HLO_REDUCE_WINDOW)
            n += shape_elements(i->operands[0]->shape);
        if (i->op == HLO_DOT || i->op == HLO_CONVOLUTION) n += hlo_flops(i);
    }
    return n;
}

static struct str kept(struct arena *a, const struct strbuf *b) {
    return (struct str){arena_strndup(a, strbuf_cstr((struct strbuf *)b), b->n), b->n};
}

// Who may share k's body. text: a buffer to write in.
static void add_form(struct gather *g, struct kernel *k, struct strbuf *text) {
    struct kir_sizes sizes = {NULL, 0, 0};
    strbuf_clear(text);
    kir_print_form(text, g->a, k->fn, &sizes);
    struct form *f = smap_get(&g->by_form, (struct str){strbuf_cstr(text), text->n});
    if (!f) {
        f = arena_new_of(g->a, struct form);
        f->n_sizes = (int)sizes.n;
        f->fn = k->fn;
        f->text = kept(g->a, text);
        smap_put(&g->by_form, f->text, f);
    }
    k->form = f;
    k->sizes = sizes.v;
    f->kernels++;
    int64_t work = k->in_loop ? INT64_MAX : kir_work(k->fn);
    if (work > f->work) f->work = work;
}
// ---- two threads

struct side {
    struct gather *g;
    struct arena *a;
    void (*each)(struct gather *g, size_t k, struct arena *a);
    size_t n;
    atomic_size_t *next;
};
static void *run_side(void *arg) {
    struct side *x = arg;
    for (size_t k; (k = atomic_fetch_add(x->next, 1)) < x->n;)
        x->each(x->g, k, x->a);
    return NULL;
}
// each(k) for all k below n, in any order and two at a time. What they allocate lies in g->own.
static void in_turn(struct gather *g, size_t n,
                    void (*each)(struct gather *, size_t, struct arena *)) {
    atomic_size_t next = 0;
    struct side x[2];
    for (int k = 0; k < 2; k++)
        x[k] = (struct side){g, &g->own[k], each, n, &next};
    pthread_t other;
    bool two = n >= MANY && !pthread_create(&other, NULL, run_side, &x[1]);
    run_side(&x[0]);
    if (two) pthread_join(other, NULL);
}

// ---- kernels of a module

static void lower_one(struct gather *g, size_t n, struct arena *a) {
    struct wanted *w = g->wanted.v[n];
    struct strbuf text = {0};
    const char *why;
    if (w->first) return;
    w->st = lower_kernel(a, w->instr, g->t, g->prec, &w->fn, &why);
    if (!w->st) {
        kir_print(&text, w->fn);
        w->text = kept(a, &text);
    }
    strbuf_done(&text);
}
// Is an extremum of floats reduced across the lanes of a vector? LLVM asks for the sign and for NaN
// at each step of it: rows of 200 with their softmax take 1.6 times as long (Zen 5).
static bool reduces_extremum(const struct kir_block *b) {
    for (const struct kir_val *v = b->first; v; v = v->next) {
        if (v->op != K_FOR) continue;
        const struct kir_loop *l = v->loop;
        for (int c = 0; c < l->n_carry && l->vectorize; c++) {
            const struct kir_val *to = l->yield[c];
            if ((to->op == K_MAX || to->op == K_MIN) && dtype_is_float(to->type) &&
                (to->args[0] == l->carry[c] || to->args[1] == l->carry[c]))
                return true;
        }
        if (reduces_extremum(&l->body)) return true;
    }
    return false;
}
static void generate_one(struct gather *g, size_t n, struct arena *a) {
    struct kernel *k = g->distinct.v[n];
    int64_t work = 0;
    k->why = "no direct generator for this target";
    if (!g->t->direct || !g->back->direct || g->in_module) return;
    bool loops = k->turns > 1 || k->fn->turns;
    bool rare = loops && kir_rare(k->fn) > 0; // LLVM would compute what few elements want
    bool long_run =
        !rare && (k->fn->turns || (k->turns > 1 && !k->fn->exchanges &&
                                   (__builtin_mul_overflow(k->turns, kir_work(k->fn), &work) ||
                                    (work >= LLVM_LOOP_WORK && !reduces_extremum(&k->fn->top)))));
    k->why = "a loop runs it for long";
    int64_t turns = g->t->runs_once && k->turns <= 1 ? 0 : k->turns;
    if (!long_run) k->direct = g->back->direct(a, g->t, k->fn, turns, &k->why);
}
// A new kernel, or an equal one. What a loop's body runs counts as run many times.
static struct kernel *add_kernel(struct gather *g, const struct wanted *w) {
    struct kernel *k = w->first ? w->first->kernel : smap_get(&g->by_text, w->text);
    int64_t turns;
    if (g->text) strbuf_printf(g->text, k ? "// %s: as before\n" : "// %s\n", w->instr->name);
    bool again = w->turns > 1; // steps that share a kernel outside of loops make no loop of it
    if (k && again && !__builtin_add_overflow(k->turns, w->turns, &turns)) k->turns = turns;
    if (k) return k;
    if (g->text) strbuf_add(g->text, w->text.p, w->text.n);
    k = arena_new_of(g->a, struct kernel);
    k->fn = w->fn;
    k->exact = w->text;
    k->in_loop = w->in_loop;
    k->turns = w->turns;
    smap_put(&g->by_text, w->text, k);
    avec_push(g->a, &g->distinct, k);
    return k;
}

// The most that an operand or the result has: a sum of many elements is work too.
static int64_t elements_met(const struct hlo_instr *i, const struct shape *result) {
    int64_t most = shape_elements(result);
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *s = i->operands[k]->shape;
        if (!shape_is_tuple(s) && shape_elements(s) > most) most = shape_elements(s);
    }
    return most;
}
static void want(struct gather *g, const struct hlo_instr *i, bool in_loop, int64_t turns) {
    const struct shape *result = shape_is_tuple(i->shape) ? shape_leaf(i->shape, 0) : i->shape;
    if (!result || elements_met(i, result) < g->t->min_kernel_elements) return;
    struct wanted *w = arena_new_of(g->a, struct wanted);
    *w = (struct wanted){.instr = i, .in_loop = in_loop, .turns = turns};
    avec_push(g->a, &g->wanted, w);
}
static void add_info(struct gather *g, struct wanted *w) {
    const struct hlo_instr *i = w->instr;
    struct kernel_info info = {.instr = arena_strdup(g->a, i->name),
                               .n_bufs = w->fn->n_bufs,
                               .extent = w->fn->extent,
                               .scratch_bytes = w->fn->scratch_bytes,
                               .tiles = w->fn->tiles};
    info.bytes = shape_bytes(i->shape);
    for (int n = 0; n < i->n_operands; n++)
        info.bytes += shape_bytes(i->operands[n]->shape);
    info.flops = i->op == HLO_FUSION                            ? body_ops(i->called[0])
                 : shape_is_tuple(i->shape)                     ? 0
                 : i->op == HLO_DOT || i->op == HLO_CONVOLUTION ? hlo_flops(i)
                                                                : shape_elements(i->shape);
    w->kernel = add_kernel(g, w);
    avec_push(g->a, &g->made, w->kernel);
    avec_push(g->a, &g->kernels, info);
}
// Layers of a network are the same fusions and products again and again: of those that are alike
// the first is lowered. Of one hash a few are compared.
static void find_alike(struct gather *g) {
    struct pmap by_hash = {0}; // the last of each
    for (size_t n = 0; n < g->wanted.n; n++) {
        struct wanted *w = g->wanted.v[n], *x;
        if (w->instr->op != HLO_FUSION && w->instr->op != HLO_DOT) continue;
        uint64_t h = hlo_kernel_hash(w->instr);
        int looked_at = 0;
        for (x = pmap_get(&by_hash, h); x && looked_at < LOOKED_AT; x = x->before, looked_at++)
            if (hlo_kernels_alike(x->instr, w->instr)) break;
        if (x && looked_at < LOOKED_AT)
            w->first = x;
        else
            w->before = pmap_put(&by_hash, h, w);
    }
    pmap_done(&by_hash);
}
// Kernels of what is wanted; an instruction that has none is nothing wrong.
static status_t make_kernels(struct gather *g) {
    status_t st = ST_OK;
    struct strbuf text = {0};
    find_alike(g);
    in_turn(g, g->wanted.n, lower_one);
    for (size_t n = 0; n < g->wanted.n; n++) {
        struct wanted *w = g->wanted.v[n];
        if (w->first) w->fn = w->first->fn, w->text = w->first->text;
        if (w->st && !st && st_code(w->st) != ST_UNIMPLEMENTED)
            st = w->st;
        else
            st_drop(w->st);
        if (!st && w->fn) add_info(g, w);
    }
    if (!st) in_turn(g, g->distinct.n, generate_one);
    for (size_t n = 0; n < g->distinct.n && !st; n++)
        if (!g->distinct.v[n]->direct.n) add_form(g, g->distinct.v[n], &text);
    strbuf_done(&text);
    return st;
}

static void computation(struct gather *g, const struct hlo_computation *c, bool in_loop,
                        int64_t turns) {
    if (pmap_has_ptr(&g->seen, c)) return;
    pmap_put_ptr(&g->seen, c, (void *)c);
    HLO_EACH_INSTR(i, c) {
        if (pmap_get_ptr(&g->merged, i)) continue;
        int64_t all = i->op == HLO_WHILE ? hlo_turns(i) : 1;
        if (all < 1 || __builtin_mul_overflow(turns, all, &all)) all = turns;
        if (i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL)
            for (int n = 0; n < i->n_called; n++)
                computation(g, i->called[n], in_loop || i->op == HLO_WHILE, all);
        else if (!(g->t->library_accepts && g->t->library_accepts(g->t, i)) &&
                 !(g->t->routine_runs && g->t->routine_runs(g->t, i)))
            want(g, i, in_loop, turns);
        else if (i->op == HLO_FUSION) // the library's, around fusions that it runs kernels for
            for (const struct hlo_instr *x = i->called[0]->first; x; x = x->next)
                if (x->op == HLO_FUSION && HLO_ATTR(x, fusion)->kind == FUSION_CUSTOM)
                    want(g, x, in_loop, turns);
    }
}

// The outermost loops that can be one function; what they call needs no kernels then.
static void find_loops(struct gather *g, const struct plan *p) {
    for (int k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        const struct hlo_instr *i = s->instr;
        if (!s->called || pmap_get_ptr(&g->merged, i)) continue;
        struct merged_loop *l = arena_new_of(g->a, struct merged_loop);
        bool merges = i->op == HLO_WHILE && merge_loop(g->a, s, g->t, g->prec, l);
        if (g->text && i->op == HLO_WHILE)
            strbuf_printf(g->text, "// %s: %s%s\n", i->name,
                          merges ? "one function" : "step by step: ", merges ? "" : l->why);
        if (merges) {
            pmap_put_ptr(&g->merged, i, l);
            avec_push(g->a, &g->loops, l);
            continue;
        }
        if (i->op == HLO_WHILE) merge_done(l);
        for (int c = 0; c < i->n_called; c++)
            find_loops(g, s->called[c]);
    }
}

// Everything the code follows from beside the kernel's text.
static void add_target(struct sha256 *h, const struct target *t) {
    const char *text[] = {t->backend, t->llvm_triple, t->llvm_cpu, t->llvm_features};
    for (size_t k = 0; k < sizeof text / sizeof text[0]; k++)
        sha256_str(h, str_of(text[k] ? text[k] : ""));
    sha256_u64(h, (uint64_t)t->vector_bits);
    sha256_u64(h, HLOD_KERNEL_ABI);
}

static enum effort effort_for(const struct target *t, int64_t work) {
    return work < t->little_work ? EFFORT_LITTLE : work < t->less_work ? EFFORT_LESS : EFFORT_FULL;
}

static const char *add_unit(struct gather *g, const struct kernel *k, bool shared, int kernel) {
    enum effort effort = k->form ? effort_for(g->t, k->form->work) : EFFORTS;
    int n_sizes = shared ? k->form->n_sizes : 0;
    struct sha256 h;
    char hex[65];
    sha256_init(&h);
    add_target(&h, g->t);
    sha256_u64(&h, effort);
    sha256_u64(&h, (uint64_t)n_sizes);
    sha256_str(&h, shared ? k->form->text : k->exact);
    const struct kir_fn *fn = shared ? k->form->fn : k->fn;
    struct kernel_unit u = {.fn = fn,
                            .key = sha256_end(&h),
                            .effort = effort,
                            .n_sizes = n_sizes,
                            .direct = k->direct,
                            .kernel = kernel};
    digest_hex(u.key, hex);
    u.symbol = arena_printf(g->a, "k%.24s", hex);
    avec_push(g->a, &g->units, u);
    return u.symbol;
}

// Code of a loop without LLVM, where that is as quick; empty, with *why: LLVM makes it.
static struct span loop_code(struct gather *g, const struct merged_loop *l, const char **why) {
    struct span none = {NULL, 0};
    *why = "a loop";
    if (!g->t->direct || !g->back->direct_loop || g->in_module) return none;
    if (!g->t->direct_loops && !merge_without_llvm(l)) return none;
    return g->back->direct_loop(g->a, g->t, l, why);
}
static void add_loop(struct gather *g, const struct merged_loop *l) {
    const struct plan_step *s = l->loop;
    struct kernel_unit u = {.loop = l, .effort = EFFORT_LOOP, .kernel = (int)g->kernels.n};
    struct sha256 h;
    char hex[65];
    sha256_init(&h);
    add_target(&h, g->t);
    sha256_u64(&h, EFFORT_LOOP);
    sha256_str(&h, (struct str){strbuf_cstr((struct strbuf *)(uintptr_t)&l->text), l->text.n});
    u.key = sha256_end(&h);
    digest_hex(u.key, hex);

    struct made_loop *made = smap_get(&g->loops_made, str_of(hex)); // loops over one body have one
    if (!made) {
        made = arena_new_of(g->a, struct made_loop);
        made->symbol = u.symbol = arena_printf(g->a, "k%.24s", hex);
        u.direct = loop_code(g, l, &made->why_llvm);
        if (u.direct.n) made->why_llvm = NULL;
        smap_put(&g->loops_made, str_of(hex), made);
        avec_push(g->a, &g->units, u);
    }
    struct kernel_info info = {.symbol = made->symbol,
                               .instr = arena_strdup(g->a, s->instr->name),
                               .n_bufs = s->n_out + HLOD_LOOP_BUFFERS,
                               .n_sizes = 1,
                               .sizes = arena_dup(g->a, &s->scratch_bytes, sizeof(int64_t)),
                               .extent = 1,
                               .scratch_bytes = l->scratch_bytes,
                               .flops = merge_turn_work(l, s),
                               .why_llvm = made->why_llvm};
    avec_push(g->a, &g->kernels, info);
}

// Decides which kernels share a body, and sets the symbol of each kernel_info.
static void make_units(struct gather *g) {
    struct pmap symbols = {0}; // struct kernel, or struct form that is shared -> symbol
    for (size_t i = 0; i < g->made.n; i++) {
        struct kernel *k = g->made.v[i];
        struct form *f = k->form;
        bool shared = f && f->kernels >= SHARED && f->n_sizes && f->n_sizes <= g->back->max_sizes;
        const void *key = shared ? (const void *)f : k;
        char *symbol = pmap_get_ptr(&symbols, key);
        if (!symbol) {
            symbol = (char *)(uintptr_t)add_unit(g, k, shared, (int)i);
            pmap_put_ptr(&symbols, key, symbol);
        }
        g->kernels.v[i].symbol = symbol;
        g->kernels.v[i].why_llvm = k->direct.n ? NULL : k->why;
        if (!shared) continue;
        g->kernels.v[i].sizes = k->sizes;
        g->kernels.v[i].n_sizes = f->n_sizes;
    }
    pmap_done(&symbols);
}

static status_t make_object(struct gather *g, struct strbuf *text, struct span *out) {
    struct backend_work w = {
        .a = g->a, .t = g->t, .units = g->units.v, .n = (int)g->units.n, .text = text};
    RETURN_IF_ERR(g->back->module(&w, out));
    for (int i = 0; i < w.n; i++)
        g->kernels.v[w.units[i].kernel].codegen_ns = w.units[i].ns;
    return ST_OK;
}

status_t codegen_module(struct arena *a, const struct hlo_module *m, const struct target *t,
                        enum precision prec, struct strbuf *text_kir, struct strbuf *text_code,
                        struct kernel_set *out) {
    struct gather g = {.a = a,
                       .t = t,
                       .back = backend_of(t),
                       .prec = prec,
                       .text = text_kir,
                       .in_module = text_code != NULL};
    struct kernel_set set = {0};
    struct plan *plan;

    if (!g.back) return st_internal("target %s: no back end is called '%s'", t->id, t->backend);
    status_t st = plan_make(a, m->entry, &plan);
    if (!st && g.back->loops) find_loops(&g, plan);
    computation(&g, m->entry, false, 1);
    if (!st) st = make_kernels(&g);
    if (!st) make_units(&g);
    for (size_t k = 0; k < g.loops.n && !st; k++)
        add_loop(&g, g.loops.v[k]);
    if (!st) st = make_object(&g, text_code, &set.object);

    set.k = g.kernels.v;
    set.n = (int32_t)g.kernels.n;
    for (int k = 0; k < 2; k++)
        arena_done(&g.own[k]);
    smap_done(&g.by_text);
    smap_done(&g.by_form);
    smap_done(&g.loops_made);
    pmap_done(&g.seen);
    pmap_done(&g.merged);
    for (size_t k = 0; k < g.loops.n; k++)
        merge_done(g.loops.v[k]);
    if (!st) *out = set;
    return st;
}
