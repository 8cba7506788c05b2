// SPDX-License-Identifier: Apache-2.0
// hlo-run: compiles one file for a device, runs it, and compares with the reference evaluator or
// times it. A developer's tool; users have `hlo`.
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "compiler/calls/bits.h"
#include "compiler/eval.h"
#include "compiler/parts.h"
#include "compiler/pipeline.h"
#include "compiler/results.h"
#include "compiler/strings.h"
#include "devices/device.h"
#include "devices/device_cases.h"

static const char usage[] =
    "usage: hlo-run [OPTION...] FILE.hlo|FILE.onnx\n"
    "  --bind N=1,S=128     sizes of symbolic dimensions\n"
    "  --device KIND        cpu (default)\n"
    "  --precision NAME     strict: no Winograd, no reassociation; fast: convolutions and dots of\n"
    "                       f32 read bf16, on a CPU that has instructions for it\n"
    "  --in FILE            raw little-endian input; repeat for each input "
    "(default: seeded random)\n"
    "  --out FILE           write all results, raw, one after the other\n"
    "  --compare            compare with the reference evaluator\n"
    "  --time N             median of N runs\n"
    "  --compile N          compile N times, print the milliseconds of each\n"
    "  --profile            a row per step, medians, beside the cost model's\n"
    "                       estimate, and memory as planned and as it was at\n"
    "                       most; with --compile one per pass, and for each\n"
    "                       kernel of the first that LLVM made: why\n"
    "  --explain            what each step should take, and why it runs as it\n"
    "                       does; HLOD_CPU_MACHINE=nominal: by round figures\n"
    "  --plan               the plan and how each step runs\n"
    "  --cases              each FILE holds cases of tests/ops: run all, compare;\n"
    "                       of several files it says PASS or FAIL\n"
    "                       (--disable-passes a,b; --list-reference)\n"
    "  --impl NAME          only this implementation of the cpu: kernel,\n"
    "                       onednn, gemm, reference\n"
    "  --tune SECONDS       measures who runs each product and convolution\n"
    "                       fastest, says so, and goes by that\n"
    "  --loop               for benchmarks: reads a number of runs per "
    "line on stdin, answers their times in ms\n"
    "Exit codes: 0 ok, 2 usage, 3 refused, 5 failed, 6 results differ.\n";

enum { MAX_IN = 4096 };
struct args {
    const char **files; // [n_files] names on the command line; path: the last
    int n_files;
    const char *path, *bind, *device, *out, *disable_passes;
    enum precision precision;
    const char *in[MAX_IN];
    int n_in, time, compile, tune;
    bool compare, profile, plan, explain, loop, cases, list_reference;
};
struct loaded {
    struct arena arena;
    struct span file;
    struct ingest_result src;
    struct device *dev;
    struct dev_exe *exe;
    struct dev_weights *weights;
    int64_t before_bytes; // of the process, before the load
    struct span *spans;
    const void **in;
    void **out;
    int n_in, n_out;
    struct string_layout text; // inputs of text are places, like other numbers here
    // Of a program that runs in parts: what the parts before found, and left for this one.
    struct lower_request req;
    const void **carried;
    int n_carried;
};

// Uniform in [-1, 1) for floats, small integers otherwise: xorshift64*, the same on every machine.
static void fill_random(struct literal *l, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (int64_t k = 0, n = shape_elements(l->shape); k < n; k++) {
        x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
        double u = (double)((x * 0x2545f4914f6cdd1du) >> 11) / 9007199254740992.0;
        if (dtype_is_int(l->shape->dtype) || l->shape->dtype == DT_PRED)
            lit_set_i64(l, k, (int64_t)(u * 2));
        else
            lit_set_c128(l, k, 2 * u - 1, 0);
    }
}

// What LLVM had to make, at the first of some compiles: the next find it in the cache.
static void print_llvm(const struct kernel_set *s, const char *module) {
    for (int k = 0; k < s->n; k++)
        if (s->k[k].why_llvm)
            printf("%9.3f ms  llvm: %s %s (%s)\n", clock_ms(s->k[k].codegen_ns), module,
                   s->k[k].instr, s->k[k].why_llvm);
}
static status_t open_program(const struct args *a, struct loaded *l) {
    l->req.entry_name = "main";
    RETURN_IF_ERR(file_map(&l->arena, a->path, &l->file));
    RETURN_IF_ERR(frontend_ingest(&l->arena, NULL, l->file, NULL, &l->src));
    RETURN_IF_ERR(frontend_bindings_parse(&l->arena, a->bind, &l->req));
    l->req.program = l->src.program;
    l->spans = arena_zarray(&l->arena, struct span, l->src.n_weights + 1);
    for (int k = 0; k < l->src.n_weights; k++) {
        const struct weight *w = &l->src.weights[k];
        l->spans[k] = (struct span){(w->sidecar ? l->src.sidecar.p : l->file.p) + w->offset,
                                    (size_t)w->size_bytes};
    }
    file_forget(l->file); // the digests of weights have read it
    return dev_open(a->device ? a->device : "cpu", &l->dev);
}
static status_t compile_often(const struct args *a, struct loaded *l,
                              const struct compile_options *opt) {
    for (int n = 0; n < a->compile; n++) {
        struct executable *e;
        RETURN_IF_ERR(hlo_compile(l->src.format, &l->req, opt, dev_target(l->dev), NULL, &e));
        printf("%.1f%c", clock_ms(e->compile_ns), n + 1 < a->compile ? ' ' : '\n');
        for (int k = 0; a->profile && n + 1 == a->compile && k < e->n_passes; k++)
            printf("%9.3f ms  %s\n", clock_ms(e->passes[k].ns), e->passes[k].name);
        if (a->profile && n == 0) print_llvm(&e->kernels, "main");
        if (a->profile && n == 0) print_llvm(&e->prepare_kernels, "prepare");
        fflush(stdout);
        executable_free(e);
    }
    return ST_OK;
}
// A line of /proc/self/status in bytes, 0 where there is none.
static int64_t process_bytes(const char *name) {
    char line[256];
    long long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    size_t n = strlen(name);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0 && line[n] == ':') sscanf(line + n + 1, "%lld", &kb);
    if (f) fclose(f);
    return kb * 1024;
}
// From now on VmHWM is the peak since here.
static int64_t begin_peak(void) {
    malloc_trim(0); // what the compile freed
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f) fputs("5", f);
    if (f) fclose(f);
    return process_bytes("VmRSS");
}
// What the plan counts beside what the process took.
static void print_memory(const struct loaded *l, int64_t peak) {
    struct dev_stats s = dev_stats(l->exe);
    int64_t weights = l->weights->bytes, run = s.arena_bytes;
    int64_t working = run > s.prepare_bytes ? run : s.prepare_bytes;
    printf("memory, MB: planned %.1f = weights %.1f, steps %.1f, and run %.1f (%.1f of it scratch) "
           "or prepare %.1f; measured since the load %.1f, the process %.1f\n",
           (double)(weights + s.resident_bytes + working) / 1e6, (double)weights / 1e6,
           (double)s.resident_bytes / 1e6, (double)run / 1e6, (double)s.scratch_bytes / 1e6,
           (double)s.prepare_bytes / 1e6, (double)(peak - l->before_bytes) / 1e6,
           (double)peak / 1e6);
}
// What was measured, as text and as e's choices.
static void take_tuning(const struct dev_tuning *t, struct loaded *l, struct executable *e) {
    int n = 0, most = 0;
    for (int k = 0; k < t->n_steps; k++)
        most += t->steps[k].n_instrs;
    struct exe_choice *v = arena_array(&l->arena, struct exe_choice, most + 1);
    for (int k = 0; k < t->n_steps; k++) {
        const struct dev_tuned_step *s = &t->steps[k];
        const struct dev_candidate *usual = &s->candidates[0], *kept = &s->candidates[s->kept];
        fprintf(stderr, "tuned %-32s x%-3d", s->instrs[0], s->n_instrs);
        if (s->n_candidates == 1) fprintf(stderr, " %s: nothing else takes it", usual->impl);
        for (int c = 0; c < s->n_candidates && s->n_candidates > 1; c++)
            fprintf(stderr, "%s %s %.4f ms%s%s", c ? "," : "", s->candidates[c].impl,
                    clock_ms(s->candidates[c].ns), *s->candidates[c].why ? ": " : " (kept)",
                    s->candidates[c].why);
        fprintf(stderr, "\n");
        for (int i = 0; s->kept && i < s->n_instrs; i++)
            v[n++] =
                (struct exe_choice){s->instrs[i], kept->impl, usual->impl, kept->ns, usual->ns};
    }
    if (!t->complete) fprintf(stderr, "tuned: time was too short for all\n");
    executable_choose(e, t->list, v, n);
}
// Measures a copy of e.
static status_t tune(const struct args *a, struct loaded *l, struct executable *e) {
    struct strbuf bytes = {0};
    struct executable *copy;
    struct dev_tuning found;
    if (!l->dev->vt->tune) return st_unimplemented("this kind of device chooses nothing");
    RETURN_IF_ERR(executable_pack(e, &bytes, NULL));
    status_t st =
        executable_unpack((struct span){(const uint8_t *)strbuf_cstr(&bytes), bytes.n}, &copy);
    if (!st)
        st = l->dev->vt->tune(l->dev, copy,
                              &(struct dev_tune){.budget_ns = a->tune * INT64_C(1000000000)},
                              &l->arena, &found);
    if (!st) take_tuning(&found, l, e);
    strbuf_done(&bytes);
    return st;
}
static status_t load(const struct args *a, struct loaded *l) {
    struct compile_options opt = {.precision = a->precision,
                                  .disable_passes = a->disable_passes ? a->disable_passes : "",
                                  .disable_rules = "",
                                  .verify_each = a->compile == 0};
    struct executable *e;
    struct lower_request *req = &l->req;
    if (a->compile) return compile_often(a, l, &opt);
    RETURN_IF_ERR(hlo_compile(l->src.format, req, &opt, dev_target(l->dev), NULL, &e));
    fprintf(stderr,
            "compiled in %.1f ms: before entry=%lld total=%lld, after entry=%lld total=%lld "
            "fusions=%lld, prepare entry=%lld, peak %.1f MB of %.1f MB, %d in place\n",
            clock_ms(e->compile_ns), (long long)e->before.entry, (long long)e->before.total,
            (long long)e->after.entry, (long long)e->after.total, (long long)e->after.fusions,
            (long long)e->prepare_counts.entry, (double)e->peak_bytes / 1e6,
            (double)e->values_bytes / 1e6, e->in_place);
    if (e->precision_note) fprintf(stderr, "%s\n", e->precision_note);
    status_t tuned = a->tune ? tune(a, l, e) : ST_OK;
    if (tuned) {
        executable_free(e);
        return tuned;
    }

    if (a->profile) l->before_bytes = begin_peak();
    RETURN_IF_ERR(dev_load(l->dev, e, NULL, &l->exe));
    strings_of_module(&l->arena, l->exe->exe->main, &l->text);
    int64_t start = clock_ns();
    RETURN_IF_ERR(dev_prepare_mapped(l->exe, l->spans, l->src.n_weights, l->file,
                                     (struct digest){0}, NULL, &l->weights));
    fprintf(stderr, "prepared in %.1f ms, %.1f MB resident\n", clock_ms_since(start),
            (double)l->weights->bytes / 1e6);
    return ST_OK;
}

static status_t buffers(const struct args *a, struct loaded *l) {
    const struct hlo_computation *c = l->exe->exe->main->entry;
    int inputs = -l->n_carried;
    for (size_t k = 0; k < c->params.n; k++)
        inputs += c->params.v[k]->param_kind != PARAM_BOUND;

    l->in = arena_zarray(&l->arena, const void *, c->params.n + 1);
    l->n_in = 0;
    for (size_t k = 0; k < c->params.n; k++) {
        const struct hlo_instr *p = c->params.v[k];
        if (p->param_kind == PARAM_BOUND) continue;
        if (l->n_in >= inputs) {
            l->in[l->n_in] = l->carried[l->n_in - inputs];
            l->n_in++;
            continue;
        }
        struct literal *v = lit_new(&l->arena, p->shape);
        if (l->n_in < a->n_in) {
            struct span f;
            RETURN_IF_ERR(file_map(&l->arena, a->in[l->n_in], &f));
            if (f.n != v->size_bytes)
                return st_invalid("%s has %zu bytes, input %d needs %zu", a->in[l->n_in], f.n,
                                  l->n_in, v->size_bytes);
            memcpy(v->data, dtype_whole_codes(&l->arena, p->shape->dtype, f).p, f.n);
        } else {
            fill_random(v, (uint64_t)l->n_in + 7);
        }
        l->in[l->n_in++] = v->data;
    }

    l->n_out = shape_leaves(c->root->shape);
    l->out = arena_zarray(&l->arena, void *, l->n_out + 1);
    for (int k = 0; k < l->n_out; k++)
        l->out[k] = arena_alloc_aligned(
            &l->arena, (size_t)shape_bytes(shape_leaf(c->root->shape, k)) + 64, 64);
    return ST_OK;
}

static status_t run_once(struct loaded *l, struct profile *p, int64_t *ns) {
    struct dev_run r = {.in = l->in, .out = l->out, .profile = p};
    r.texts = l->text.table ? strings_new(l->text.table, 0) : NULL;
    int64_t start = clock_ns();
    status_t st = dev_run(l->exe, l->weights, &r);
    strings_free(r.texts);
    *ns = clock_ns() - start;
    return st;
}

// What this part found, bound for the next; the rest of its results are that one's inputs.
static status_t next_part(struct loaded *l, const struct part *is) {
    const struct shape *root = l->exe->exe->main->entry->root->shape;
    VEC(struct dim_binding) all = {0};
    for (int k = 0; k < l->req.n_bindings; k++)
        avec_push(&l->arena, &all, l->req.bindings[k]);

    int64_t at = 0;
    for (int k = 0; k < is->sizes; k++) {
        const struct shape *s = shape_leaf(root, k);
        int width = (int)dtype_size(s->dtype);
        for (int64_t e = 0, n = shape_elements(s); e < n; e++) {
            struct dim_binding b = {parts_symbol(&l->arena, is->index, at++),
                                    parts_element((char *)l->out[k] + e * width, width,
                                                  dtype_class(s->dtype) == DC_SIGNED)};
            fprintf(stderr, "%s%s=%lld", at == 1 ? "part found " : ",", b.symbol,
                    (long long)b.size);
            avec_push(&l->arena, &all, b);
        }
    }
    fputc('\n', stderr);

    l->req.bindings = all.v;
    l->req.n_bindings = (int32_t)all.n;
    l->carried = arena_array(&l->arena, const void *, l->n_out + 1);
    l->n_carried = l->n_out - is->sizes;
    for (int k = 0; k < l->n_carried; k++)
        l->carried[k] = l->out[is->sizes + k];

    strings_free(l->text.table);
    l->text.table = NULL;
    dev_release(l->weights);
    dev_unload(l->exe);
    l->weights = NULL;
    l->exe = NULL;
    return ST_OK;
}
// Compiles and runs one part after the other; the last is what is looked at and timed.
static status_t run_parts(const struct args *a, struct loaded *l) {
    struct part is;
    int64_t ns;
    for (;;) {
        RETURN_IF_ERR(load(a, l));
        if (a->compile) return ST_OK;
        RETURN_IF_ERR(buffers(a, l));
        int64_t prepared = dev_stats(l->exe).reference_steps;
        RETURN_IF_ERR(run_once(l, NULL, &ns));
        fprintf(stderr, "first run %.3f ms, %lld reference steps\n", clock_ms(ns),
                (long long)(dev_stats(l->exe).reference_steps - prepared));
        if (!parts_of(l->exe->exe->main, &is) || !is.sizes) return ST_OK;
        RETURN_IF_ERR(next_part(l, &is));
    }
}

// What results may differ by, of their scale: the coarsest rounding in the program, since halves
// are computed in f32 without those between (pass float-normalization), and a model may let rows be
// rounded to 8 bits.
static double bound_of(const struct hlo_module *m) {
    double bound = 1e-4;
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c)
    for (int k = 0, n = shape_leaves(i->shape); k < n; k++) {
        enum dtype t = shape_leaf(i->shape, k)->dtype;
        bool in_8 = bits_is(i) && bits_rounding(i) == BITS_X_LEVEL4;
        double own = in_8 ? 2e-2 : t == DT_BF16 ? 1.6e-2 : t == DT_F16 ? 2e-3 : 0;
        if (own > bound) bound = own;
    }
    return bound;
}

// The program lowered again, without any pass but what the evaluator needs, through the evaluator.
static status_t compare(struct loaded *l, int *rc) {
    struct hlo_module *m;
    struct literal *want;
    RETURN_IF_ERR(frontend_lower(l->src.format, &l->req, &m));
    RETURN_IF_ERR(pipeline_evaluable(m));
    const struct hlo_computation *c = m->entry;

    struct literal **args = arena_array(&l->arena, struct literal *, c->params.n + 1);
    int input = 0;
    for (size_t k = 0; k < c->params.n; k++) {
        const struct hlo_instr *p = c->params.v[k];
        args[k] =
            lit_borrow(&l->arena, p->shape,
                       p->param_kind == PARAM_WEIGHT ? (const void *)l->spans[p->param_index].p
                                                     : l->in[input++]);
    }

    struct hlo_eval ev = hlo_eval_begin(&l->arena);
    RETURN_IF_ERR(hlo_eval_module(&ev, m, args, (int)c->params.n, &want));
    double bound = bound_of(m);
    for (int k = 0; k < l->n_out; k++) {
        const struct shape *s = shape_leaf(c->root->shape, k);
        const struct literal *w = lit_leaf(want, k);
        struct literal *got = lit_borrow(&l->arena, s, l->out[k]);
        double worst = 0, scale = 0;
        for (int64_t e = 0, n = shape_elements(s); e < n; e++) {
            double x[2], y[2];
            lit_get_c128(w, e, x);
            lit_get_c128(got, e, y);
            for (int p = 0; p < 2; p++) {
                if (isfinite(x[p]) && fabs(x[p]) > scale) scale = fabs(x[p]);
                double d = (isnan(x[p]) && isnan(y[p])) || x[p] == y[p] ? 0 : fabs(x[p] - y[p]);
                if (!(d <= worst)) worst = isnan(d) ? INFINITY : d; // it stays
            }
        }
        double relative = scale > 0 ? worst / scale : worst;
        printf("result %d: max error %.3g of scale %.3g (%.3g)\n", k, worst, scale, relative);
        if (!(relative <= bound)) *rc = 6;
    }
    hlo_module_free(m);
    return ST_OK;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

// Files of tests/ops on the device.
static status_t run_file(const struct args *a, struct loaded *l, const char *path, int *rc) {
    struct device_cases c = {.precision = a->precision,
                             .disable_passes = a->disable_passes,
                             .list_reference = a->list_reference};
    struct span file;
    RETURN_IF_ERR(file_map(&l->arena, path, &file));
    struct str text = {(const char *)file.p, file.n};
    RETURN_IF_ERR(device_cases_check(l->dev, text, stdout, &c));
    printf("%d cases, %d failed, %d not run, %lld steps, %lld on the reference evaluator\n", c.ran,
           c.failed, c.skipped, (long long)c.steps, (long long)c.reference);
    if (a->n_files > 1) printf("%s %s\n", c.failed ? "FAIL" : "PASS", path);
    if (c.failed) *rc = 6;
    return ST_OK;
}
static status_t run_cases(const struct args *a, struct loaded *l, int *rc) {
    RETURN_IF_ERR(dev_open(a->device ? a->device : "cpu", &l->dev));
    for (int k = 0; k < a->n_files; k++)
        RETURN_IF_ERR(st_note(run_file(a, l, a->files[k], rc), "%s", a->files[k]));
    return ST_OK;
}

static status_t print_profile(struct loaded *l) {
    struct profile_runs runs;
    struct profile p, *one;
    int n;
    int64_t ns, start, peak = process_bytes("VmHWM"); // before the machine is measured
    bool again = dev_peak(l->dev).machine != NULL;
    profile_begin(&runs, &l->arena, 4096);
    for (start = clock_ns(); (one = profile_next(&runs, again, clock_ns() - start));)
        RETURN_IF_ERR(run_once(l, one, &ns));
    profile_median(&runs, &p, &n);
    for (int k = 0; k < p.n; k++) {
        const struct profile_row *r = &p.rows[k];
        printf("%10.5f ms  %8.1f GF/s  estimate %10.5f ms  %-28s %-36s %s%s\n", clock_ms(r->ns),
               r->ns ? (double)r->flops / (double)r->ns : 0, r->estimate_ns / 1e6, r->name, r->impl,
               r->op,
               r->estimate_ns > 0 && (double)r->ns > ESTIMATE_CLIFF * r->estimate_ns ? "  CLIFF"
                                                                                     : "");
    }
    fprintf(stderr, "profile: medians of %d runs\n", n);
    print_memory(l, peak);
    return ST_OK;
}

static status_t work(const struct args *a, struct loaded *l, int *rc) {
    int64_t ns;
    if (a->cases) return run_cases(a, l, rc);
    RETURN_IF_ERR(open_program(a, l));
    RETURN_IF_ERR(run_parts(a, l));
    if (a->compile) return ST_OK;

    struct strbuf b = {0};
    if (a->plan) l->dev->vt->explain(l->exe, &b);
    if (a->explain && l->dev->vt->explain_costs) l->dev->vt->explain_costs(l->exe, &b);
    fputs(strbuf_cstr(&b), stdout);
    strbuf_done(&b);
    if (a->explain && !l->dev->vt->explain_costs)
        return st_unimplemented("this kind of device explains no costs");

    if (a->compare) RETURN_IF_ERR(compare(l, rc));
    if (a->time > 0) {
        int64_t *t = arena_array(&l->arena, int64_t, a->time);
        for (int k = 0; k < a->time; k++)
            RETURN_IF_ERR(run_once(l, NULL, &t[k]));
        qsort(t, (size_t)a->time, sizeof *t, by_value);
        printf("run ms: median %.3f min %.3f max %.3f of %d\n", clock_ms(t[a->time / 2]),
               clock_ms(t[0]), clock_ms(t[a->time - 1]), a->time);
    }
    if (a->profile) RETURN_IF_ERR(print_profile(l));

    char line[64];
    while (a->loop && fgets(line, sizeof line, stdin)) {
        int64_t n = 0;
        str_to_i64(str_trim(str_of(line)), &n);
        for (int64_t k = 0; k < n; k++) {
            RETURN_IF_ERR(run_once(l, NULL, &ns));
            printf("%.4f%c", clock_ms(ns), k + 1 < n ? ' ' : '\n');
        }
        fflush(stdout);
    }

    if (a->out) {
        const struct hlo_module *m = l->exe->exe->main;
        int64_t **dims = results_cut_all(&l->arena, m, l->out); // as a client gets them
        FILE *f = fopen(a->out, "wbe");
        if (!f) return st_errno(2, a->out);
        for (int k = 0, n = results_sent(m); k < n; k++) {
            const struct shape *s = shape_leaf(m->entry->root->shape, k);
            if (dims[k]) s = shape_make(&l->arena, s->dtype, dims[k], s->rank);
            fwrite(l->out[k], 1, (size_t)shape_bytes(s), f);
        }
        if (fclose(f)) return st_errno(5, a->out);
    }
    return ST_OK;
}

// An option of its own or one with the value v; 0: not known, 1 or 2: as many words were taken.
static int option(struct args *a, const char *o, const char *v) {
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--compare", &a->compare},
                 {"--profile", &a->profile},
                 {"--plan", &a->plan},
                 {"--explain", &a->explain},
                 {"--loop", &a->loop},
                 {"--cases", &a->cases},
                 {"--list-reference", &a->list_reference}};
    const struct {
        const char *name, **text;
        int *number;
    } values[] = {{"--bind", &a->bind, NULL},
                  {"--device", &a->device, NULL},
                  {"--disable-passes", &a->disable_passes, NULL},
                  {"--out", &a->out, NULL},
                  {"--compile", NULL, &a->compile},
                  {"--time", NULL, &a->time},
                  {"--tune", NULL, &a->tune}};
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        if (strcmp(o, flags[k].name) == 0) {
            *flags[k].flag = true;
            return 1;
        }

    for (size_t k = 0; v && k < sizeof values / sizeof *values; k++)
        if (strcmp(o, values[k].name) == 0) {
            if (values[k].text)
                *values[k].text = v;
            else
                *values[k].number = (int)strtol(v, NULL, 10);
            return 2;
        }

    if (v && strcmp(o, "--impl") == 0)
        setenv("HLOD_CPU_IMPL", v, 1);
    else if (v && strcmp(o, "--in") == 0 && a->n_in < MAX_IN)
        a->in[a->n_in++] = v;
    else if (v && strcmp(o, "--precision") == 0)
        return precision_named(str_of(v), &a->precision) ? 2 : 0;
    else
        return 0;
    return 2;
}

int main(int argc, char **argv) {
    // As hlod starts its workers (--compute-spin): libgomp reads it before main.
    if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY")) {
        setenv("GOMP_SPINCOUNT", "5000", 1);
        execv("/proc/self/exe", argv);
    }
    struct args a = {.files = calloc((size_t)argc, sizeof *a.files)};
    if (!a.files) return 5;

    for (int k = 1, taken; k < argc; k += taken ? taken : 1) {
        const char *o = argv[k];
        taken = option(&a, o, k + 1 < argc ? argv[k + 1] : NULL);
        if (taken) continue;
        if (strcmp(o, "--version") == 0) return puts("hlo-run " HLOD_VERSION) < 0;
        if (strcmp(o, "--help") == 0) return fputs(usage, stdout) < 0;
        if (o[0] == '-') return fprintf(stderr, "hlo-run: unknown option %s\n%s", o, usage), 2;
        a.files[a.n_files++] = a.path = o;
    }
    if (!a.path) return fputs(usage, stderr), 2;

    struct loaded l = {0};
    int rc = 0;
    status_t st = work(&a, &l, &rc);
    if (st) {
        fprintf(stderr, "hlo-run: %s: %s: %s\n", a.path, st_code_name(st_code(st)), st_message(st));
        rc = st_code(st) == ST_INVALID_ARGUMENT || st_code(st) == ST_NOT_FOUND ? 3 : 5;
        st_drop(st);
    }

    strings_free(l.text.table);
    dev_release(l.weights);
    dev_unload(l.exe);
    dev_close(l.dev);
    arena_done(&l.arena);
    free(a.files);
    return rc;
}
