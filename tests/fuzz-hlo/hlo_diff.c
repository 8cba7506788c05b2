// SPDX-License-Identifier: Apache-2.0
// hlo-diff: many HLO modules, each run in every way this tree can run it, compared. Reads a batch
// that fuzz_hlo.py writes; per module and way one line when the results differ. A crash or a
// timeout kills the process: the caller sees which module had begun and goes on after it.
//
//     batch:  case...       case: CASE name has_oracle text_bytes n_in n_out\n
//                                 text, n_in x (u64 bytes, data), n_out x (u64 bytes, f64 atol,
//                                 data)
//     ways:   print/parse round trip · evaluator · every pass off in turn, all off, rules off
//     or alone (evaluator on
//             what the passes left) · the CPU device with each implementation forced, fused and
//             not, strict, and by its own choice
//             With HLOD_DIFF_DEVICE=SPEC in the environment only the evaluator and that device.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/map.h"
#include "compiler/eval.h"
#include "compiler/ir/text/text.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/rules/rules.h"
#include "devices/device.h"

struct fcase {
    char name[64];
    int oracle, n_in, n_out;
    struct str text;
    struct span *in, *out; // raw little-endian; out may be empty when there is no oracle
    double *atol;
};
struct route {
    const char *name, *impl, *disable, *rules; // passes and rules that are off
    enum precision precision;
};
struct session {
    struct arena a; // of one case
    const struct fcase *c;
    struct hlo_module *m;
    struct device *dev;
    const char *other; // the kind of dev, where it is not the CPU
    const void **want; // [n_out] what ways are compared with
    struct pmap seen;  // hash of the optimised text -> itself
    int ways, differ;
    int64_t kernel_steps, reference_steps;
};

static void say(struct session *s, const char *way, const char *what, const char *detail) {
    s->differ++;
    printf("%s %s %s: %s\n", what, s->c->name, way, detail);
}

static bool close_enough(double x, double y, double atol) {
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    return x == y || fabs(x - y) <= atol;
}

static bool same(struct session *s, int leaf, const void *got, struct strbuf *why) {
    const struct shape *sh = shape_leaf(s->m->entry->root->shape, leaf);
    const struct literal *x = lit_borrow(&s->a, sh, (void *)(uintptr_t)s->want[leaf]),
                         *y = lit_borrow(&s->a, sh, (void *)(uintptr_t)got);
    bool inexact = dtype_is_float(sh->dtype) || dtype_is_complex(sh->dtype);
    for (int64_t e = 0, n = shape_elements(sh); e < n; e++) {
        double v[2] = {0}, w[2] = {0};
        bool ok;
        if (inexact) {
            lit_get_c128(x, e, v);
            lit_get_c128(y, e, w);
            ok = close_enough(v[0], w[0], s->c->atol[leaf]) &&
                 close_enough(v[1], w[1], s->c->atol[leaf]);
        } else {
            v[0] = (double)lit_get_i64(x, e), w[0] = (double)lit_get_i64(y, e);
            ok = lit_get_i64(x, e) == lit_get_i64(y, e);
        }
        if (ok) continue;
        bool complex = dtype_is_complex(sh->dtype);
        strbuf_printf(why, "result %d %s element %lld is %.9g", leaf, shape_text(&s->a, sh),
                      (long long)e, w[0]);
        if (complex) strbuf_printf(why, "%+.9gi", w[1]);
        strbuf_printf(why, ", expected %.9g", v[0]);
        if (complex) strbuf_printf(why, "%+.9gi", v[1]);
        if (inexact) strbuf_printf(why, " within %.3g", s->c->atol[leaf]);
        return false;
    }
    return true;
}

static void compare(struct session *s, const char *way, const void *const *got) {
    struct strbuf why = {0};
    for (int k = 0; k < s->c->n_out; k++)
        if (!same(s, k, got[k], &why)) {
            say(s, way, "DIFFERS", strbuf_cstr(&why));
            break;
        }
    strbuf_done(&why);
    s->ways++;
}

static void failed(struct session *s, const char *way, status_t st) {
    say(s, way, st_code(st) == ST_UNIMPLEMENTED ? "REFUSED" : "FAILED", st_message(st));
    st_drop(st);
}

// ---- one way on the device

static uint64_t text_hash(const struct executable *e) {
    struct strbuf b = {0};
    hlo_print_module(&b, e->main, HLO_PRINT_DEFAULT);
    hlo_print_module(&b, e->prepare, HLO_PRINT_DEFAULT);
    uint64_t h = 1469598103934665603u;
    for (size_t k = 0; k < b.n; k++)
        h = (h ^ (uint8_t)b.p[k]) * 1099511628211u;
    strbuf_done(&b);
    return h | 1;
}

static status_t run_loaded(struct session *s, struct dev_exe *x, void **out) {
    const struct hlo_computation *e = s->m->entry;
    const void **in = arena_zarray(&s->a, const void *, e->params.n + 1);
    struct span *w = arena_zarray(&s->a, struct span, e->params.n + 1);
    struct dev_weights *weights;
    int n_in = 0, n_w = 0;
    for (size_t k = 0; k < e->params.n; k++) {
        const struct hlo_instr *p = e->params.v[k];
        if (p->param_kind == PARAM_WEIGHT) {
            w[p->param_index] = s->c->in[k];
            if (p->param_index >= n_w) n_w = (int)p->param_index + 1;
        } else {
            in[n_in++] = s->c->in[k].p;
        }
    }
    for (int k = 0; k < s->c->n_out; k++) {
        size_t n = (size_t)shape_bytes(shape_leaf(e->root->shape, k));
        out[k] = arena_alloc_aligned(&s->a, n + 64, 64);
        memset(out[k], 0xA5, n);
    }
    RETURN_IF_ERR(dev_prepare(x, w, n_w, NULL, &weights));
    struct profile p = {.rows = arena_zarray(&s->a, struct profile_row, 4096), .cap = 4096};
    status_t st = dev_run(x, weights, &(struct dev_run){.in = in, .out = out, .profile = &p});
    if (!st) // again, on memory that the first run left dirty
        st = dev_run(x, weights, &(struct dev_run){.in = in, .out = out});
    for (int k = 0; k < p.n; k++) {
        s->kernel_steps += strcmp(p.rows[k].impl, "kernel") == 0;
        s->reference_steps += strcmp(p.rows[k].impl, "reference") == 0;
    }
    dev_release(weights);
    return st;
}

// The device's target without what a forced implementation does not use.
static struct target target_for(struct session *s, const char *impl) {
    struct target t = *dev_target(s->dev);
    if (s->other) return t;
    if (strcmp(impl, "kernel") == 0 || strcmp(impl, "reference") == 0)
        t.library_accepts = NULL, t.routine_runs = NULL, t.wants_form = NULL;
    if (strcmp(impl, "kernel") != 0 && *impl) t.min_kernel_elements = INT64_MAX;
    return t;
}

static void run_way(struct session *s, const struct route *w) {
    struct target t = target_for(s, w->impl);
    struct compile_options opt = {.precision = w->precision,
                                  .disable_passes = w->disable,
                                  .disable_rules = w->rules,
                                  .verify_each = true};
    struct executable *e;
    struct dev_exe *x;
    struct hlo_module *m = hlo_module_clone(s->m);
    bool reference = strcmp(w->impl, "reference") == 0;
    status_t st = hlo_compile_module(m, &opt, &t, NULL, &e);
    if (st) {
        failed(s, w->name, st);
        return;
    }
    uint64_t h = text_hash(e);
    if (reference && pmap_has_ptr(&s->seen, (void *)(uintptr_t)h)) {
        executable_free(e); // the passes made what another way has run already
        return;
    }
    if (reference) pmap_put_ptr(&s->seen, (void *)(uintptr_t)h, s);
    setenv("HLOD_CPU_IMPL", w->impl, 1);
    if ((st = dev_load(s->dev, e, NULL, &x))) {
        failed(s, w->name, st);
        return;
    }
    void **out = arena_zarray(&s->a, void *, s->c->n_out + 1);
    st = run_loaded(s, x, out);
    if (st)
        failed(s, w->name, st);
    else
        compare(s, w->name, (const void *const *)out);
    dev_unload(x);
}

// ---- one case

static struct literal *leaf_of(struct literal *l, int k) {
    if (!shape_is_tuple(l->shape)) return l;
    for (int e = 0; e < l->shape->n_elems; e++) {
        int n = shape_leaves(l->shape->elems[e]);
        if (k < n) return leaf_of(l->elems[e], k);
        k -= n;
    }
    return NULL;
}

static status_t evaluate(struct session *s, const void **got) {
    const struct hlo_computation *e = s->m->entry;
    struct literal **args = arena_zarray(&s->a, struct literal *, e->params.n + 1), *r;
    for (size_t k = 0; k < e->params.n; k++)
        args[k] = lit_borrow(&s->a, e->params.v[k]->shape, (void *)(uintptr_t)s->c->in[k].p);
    struct hlo_eval ev = hlo_eval_begin(&s->a);
    RETURN_IF_ERR(hlo_eval_module(&ev, s->m, args, (int)e->params.n, &r));
    for (int k = 0; k < s->c->n_out; k++)
        got[k] = leaf_of(r, k)->data;
    return ST_OK;
}

static void round_trip(struct session *s) {
    struct strbuf one = {0}, two = {0};
    struct hlo_module *again;
    hlo_print_module(&one, s->m, HLO_PRINT_DEFAULT);
    status_t st = hlo_parse((struct str){strbuf_cstr(&one), one.n}, NULL, &again);
    if (st) {
        failed(s, "print", st);
    } else {
        hlo_print_module(&two, again, HLO_PRINT_DEFAULT);
        if (one.n != two.n || memcmp(one.p, two.p, one.n) != 0)
            say(s, "print", "DIFFERS", "the text is not the same after print and parse");
        hlo_module_free(again);
    }
    strbuf_done(&one);
    strbuf_done(&two);
}

static status_t sizes_fit(const struct session *s) {
    const struct hlo_computation *e = s->m->entry;
    if ((int)e->params.n != s->c->n_in || shape_leaves(e->root->shape) != s->c->n_out)
        return st_new(ST_INVALID_ARGUMENT, "the batch has other inputs or results than the module");
    for (int k = 0; k < s->c->n_in; k++)
        if ((int64_t)s->c->in[k].n != shape_bytes(e->params.v[k]->shape))
            return st_new(ST_INVALID_ARGUMENT, "input %d has %zu bytes", k, s->c->in[k].n);
    for (int k = 0; s->c->oracle && k < s->c->n_out; k++)
        if ((int64_t)s->c->out[k].n != shape_bytes(shape_leaf(e->root->shape, k)))
            return st_new(ST_INVALID_ARGUMENT, "result %d has %zu bytes", k, s->c->out[k].n);
    return ST_OK;
}

// Every eighth rule of algsimp off in turn, and alone: which ones is the case's own.
static void rule_ways(struct session *s) {
    int n, first = 0;
    const struct rule *rule = rule_table(&n);
    for (const char *c = s->c->name; *c; c++)
        first += *c;
    for (int k = first % 8; k < n; k += 8) {
        struct strbuf others = {0};
        struct route off = {arena_printf(&s->a, "no-rule-%s", rule[k].name), "reference", "",
                            rule[k].name, PRECISION_DEFAULT};
        run_way(s, &off);
        for (int o = 0; o < n; o++)
            if (o != k) strbuf_printf(&others, "%s%s", others.n ? "," : "", rule[o].name);
        struct route alone = {arena_printf(&s->a, "only-rule-%s", rule[k].name), "reference", "",
                              strbuf_cstr(&others), PRECISION_DEFAULT};
        run_way(s, &alone);
        strbuf_done(&others);
    }
}

static void all_ways(struct session *s) {
    static const struct route fixed[] = {
        {"reference", "reference", "", "", PRECISION_DEFAULT},
        {"kernel", "kernel", "", "", PRECISION_DEFAULT},
        {"kernel-unfused", "kernel", "fuse-loop,fuse-epilogue,algsimp,constfold", "",
         PRECISION_STRICT},
        {"kernel-no-rows", "kernel", "fuse-row", "", PRECISION_DEFAULT},
        {"kernel-as-written", "kernel", "algsimp,constfold,fuse-sibling", "", PRECISION_DEFAULT},
        {"library", "onednn", "", "", PRECISION_DEFAULT},
        {"products", "gemm", "", "", PRECISION_DEFAULT},
        {"panels", "matmul", "", "", PRECISION_DEFAULT},
        {"winograd", "winograd", "", "", PRECISION_DEFAULT},
        {"default", "", "", "", PRECISION_DEFAULT},
        {"strict", "", "", "", PRECISION_STRICT},
    };
    int n;
    const struct pass *pass = pass_table(&n);
    struct strbuf all = {0};
    if (s->other) {
        run_way(s, &(struct route){s->other, "", "", "", PRECISION_DEFAULT});
        run_way(s, &(struct route){arena_printf(&s->a, "%s-no-rows", s->other), "", "fuse-row", "",
                                   PRECISION_STRICT});
        return;
    }
    for (size_t k = 0; k < sizeof fixed / sizeof fixed[0]; k++)
        run_way(s, &fixed[k]);
    for (int k = 0; k < n; k++) {
        struct route w = {arena_printf(&s->a, "no-%s", pass[k].name), "reference", pass[k].name, "",
                          PRECISION_DEFAULT};
        strbuf_printf(&all, "%s%s", k ? "," : "", pass[k].name);
        run_way(s, &w);
    }
    run_way(s, &(struct route){"no-passes", "reference", strbuf_cstr(&all), "", PRECISION_DEFAULT});

    strbuf_done(&all);
    rule_ways(s);
}

static void run_case(struct device *dev, const struct fcase *c, bool only_eval) {
    const char *kind = dev_target(dev)->kind;
    struct session s = {.c = c, .dev = dev, .other = strcmp(kind, "cpu") ? kind : NULL};
    printf("BEGIN %s\n", c->name);
    fflush(stdout);
    alarm(600); // of the clock: the machine may be shared
    status_t st = hlo_parse(c->text, NULL, &s.m);
    if (!st) st = sizes_fit(&s);
    s.want = arena_zarray(&s.a, const void *, c->n_out + 1);
    const void **got = arena_zarray(&s.a, const void *, c->n_out + 1);
    if (!st) {
        round_trip(&s);
        st = evaluate(&s, got);
    }
    if (st) {
        failed(&s, "evaluator", st);
    } else {
        for (int k = 0; k < c->n_out; k++)
            s.want[k] = c->oracle ? (const void *)c->out[k].p : got[k];
        int before = s.differ;
        compare(&s, "evaluator", got);
        if (s.differ != before) // compare the other ways with the evaluator, to see what else
            memcpy(s.want, got, sizeof *got * (size_t)c->n_out);
        if (!only_eval) all_ways(&s);
    }
    alarm(0);
    printf("DONE %s ways=%d differ=%d kernel=%lld reference=%lld\n", c->name, s.ways, s.differ,
           (long long)s.kernel_steps, (long long)s.reference_steps);
    fflush(stdout);
    hlo_module_free(s.m);
    pmap_done(&s.seen);
    arena_done(&s.a);
}

// ---- the batch

static void *take(FILE *f, struct arena *a, uint64_t n) {
    void *p = arena_alloc_aligned(a, (size_t)n + 64, 64);
    return fread(p, 1, (size_t)n, f) == n ? p : NULL;
}

static bool read_case(FILE *f, struct arena *a, struct fcase *c) {
    size_t text;
    if (fscanf(f, "CASE %63s %d %zu %d %d", c->name, &c->oracle, &text, &c->n_in, &c->n_out) != 5 ||
        fgetc(f) != '\n' || c->n_in < 0 || c->n_out < 0)
        return false;
    c->text = (struct str){take(f, a, text), text};
    c->in = arena_zarray(a, struct span, c->n_in + 1);
    c->out = arena_zarray(a, struct span, c->n_out + 1);
    c->atol = arena_zarray(a, double, c->n_out + 1);
    for (int k = 0; k < c->n_in + c->n_out; k++) {
        struct span *s = k < c->n_in ? &c->in[k] : &c->out[k - c->n_in];
        uint64_t n;
        if (fread(&n, 8, 1, f) != 1) return false;
        if (k >= c->n_in && fread(&c->atol[k - c->n_in], 8, 1, f) != 1) return false;
        s->n = (size_t)n;
        if (!(s->p = take(f, a, n))) return false;
    }
    return c->text.p != NULL;
}

int main(int argc, char **argv) {
    int skip = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    bool only_eval = argc > 3 && strcmp(argv[3], "--eval") == 0;
    FILE *f = argc > 1 ? fopen(argv[1], "rbe") : NULL;
    struct device *dev;
    if (!f) return fprintf(stderr, "usage: hlo-diff BATCH [SKIP [--eval]]\n"), 2;
    const char *spec = getenv("HLOD_DIFF_DEVICE");
    status_t st = dev_open(spec && *spec ? spec : "cpu", &dev);
    if (st) return fprintf(stderr, "hlo-diff: %s\n", st_message(st)), 2;
    for (int k = 0;; k++) {
        struct arena a = {0};
        struct fcase c = {0};
        bool more = read_case(f, &a, &c);
        if (more && k >= skip) run_case(dev, &c, only_eval);
        arena_done(&a);
        if (!more) break;
    }
    dev_close(dev);
    fclose(f);
    return 0;
}
