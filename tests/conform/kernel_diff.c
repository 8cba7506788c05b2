// SPDX-License-Identifier: Apache-2.0
// Both code generators beside each other: every kernel of the given programs is made by LLVM and by
// the direct generator, run on the same buffers, and compared bit for bit; kernels with sums that
// may be reordered, and contractions, within 2e-5 of the scale.
//     kernel_diff [--time] [--verbose] [--bind N=1,S=8] FILE.hlo|FILE.onnx...
// .hlo with values: cases as in tests/ops, without their values. --time: the least of some runs
// of each, and the kernels where the direct generator loses most.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/store/file.h"
#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/codegen/x86/x86_direct.h"
#include "compiler/compile.h"
#include "compiler/kernel/lower.h"
#include "compiler/pipeline.h"
#include "compiler/tools/cases.h"
#include "devices/cpu/cpu.h"

enum { PAD = 64, ROUNDS = 9, MAX_BUFS = 512 };
static const double WITHIN = 2e-5;

static struct {
    bool time, verbose;
    int kernels, left, differ;
    double llvm_ms, direct_ms;
    uint64_t seed;
} all = {.seed = 88172645463325252u};

static uint64_t next(void) {
    all.seed ^= all.seed << 13, all.seed ^= all.seed >> 7, all.seed ^= all.seed << 17;
    return all.seed;
}
static void fill(void *p, const struct shape *s, bool odd) {
    static const double odds[] = {NAN,   INFINITY, -INFINITY, -0.0, 0.0,
                                  1e-40, 3e38,     0.5,       -2.5, 1e10};
    enum dtype t = s->dtype;
    int64_t n = shape_bytes(s) / dtype_size(t);
    struct arena a = {0};
    struct literal *one = lit_new(&a, shape_make(&a, t, NULL, 0));
    for (int64_t k = 0; k < n; k++) {
        double u = (double)(next() >> 11) * 0x1p-53;
        if (t == DT_PRED)
            lit_set_i64(one, 0, u > 0.5);
        else if (dtype_is_int(t))
            lit_set_i64(one, 0,
                        odd && u < 0.1 ? (int64_t)next()
                                       : (int64_t)(u * 12) - (dtype_class(t) == DC_SIGNED) * 3);
        else
            lit_set_c128(one, 0, odd && u < 0.2 ? odds[next() % 10] : 4 * u - 2, 2 * u - 1);
        memcpy((char *)p + (size_t)k * (size_t)dtype_size(t), one->data, (size_t)dtype_size(t));
    }
    arena_done(&a);
}
static void *buffer(size_t n) {
    void *p = aligned_alloc(64, (n + PAD + 63) / 64 * 64);
    if (!p) exit(5);
    memset(p, 0xa5, (n + PAD + 63) / 64 * 64);
    return p;
}

struct side {
    void *code, *bufs[MAX_BUFS], *scratch;
    const struct kernel_info *k;
};
static void run(const struct side *s) {
    hlod_kernel_call(s->code, s->k->n_bufs, s->bufs, 0, s->k->extent, s->scratch, s->k->sizes);
}
static double value(const struct literal *l, int64_t k) {
    double v[2];
    lit_get_c128(l, k, v);
    return v[0];
}
// Same bits, or both NaN; or near, where sums may be reordered: those of odd values may then
// overflow in one order and not in the other.
static bool same(const struct shape *s, const void *x, const void *y, bool near, bool odd,
                 int64_t *where) {
    size_t size = (size_t)dtype_size(s->dtype);
    int64_t n = shape_bytes(s) / (int64_t)size;
    if (memcmp(x, y, (size_t)shape_bytes(s) + PAD) == 0) return true;
    struct arena a = {0};
    const struct shape *flat = shape_make(&a, s->dtype, &n, 1);
    struct literal *p = lit_borrow(&a, flat, x), *q = lit_borrow(&a, flat, y);
    double scale = 0;
    bool ok = true;
    for (int64_t k = 0; k < n; k++)
        if (isfinite(value(p, k))) scale = fmax(scale, fabs(value(p, k)));
    for (int64_t k = 0; k < n && ok; k++) {
        if (memcmp((const char *)x + (size_t)k * size, (const char *)y + (size_t)k * size, size) ==
            0)
            continue;
        double u = value(p, k), v = value(q, k);
        ok = (isnan(u) && isnan(v)) || (near && (fabs(u - v) <= WITHIN * scale || odd));
        *where = k;
    }
    if (memcmp((const char *)x + shape_bytes(s), (const char *)y + shape_bytes(s), PAD) != 0) {
        ok = false; // wrote behind its result
        *where = n;
    }
    arena_done(&a);
    return ok;
}

static void compare_once(const struct hlo_instr *i, struct side *two, bool near, bool odd) {
    int n_in = i->n_operands;
    for (int o = 0; o < n_in; o++)
        fill(two[0].bufs[o], i->operands[o]->shape, odd);
    for (int s = 0; s < 2; s++)
        run(&two[s]);
    for (int r = 0; r < shape_leaves(i->shape); r++) {
        const struct shape *shape = shape_leaf(i->shape, r);
        int64_t at = 0;
        const char *x = two[0].bufs[n_in + r], *y = two[1].bufs[n_in + r];
        if (same(shape, x, y, near, odd, &at)) continue;
        size_t size = (size_t)dtype_size(shape->dtype);
        all.differ++;
        printf("DIFFER %s result %d element %lld%s:", i->name, r, (long long)at,
               odd ? " (odd)" : "");
        for (size_t b = 0; b < size; b++)
            printf("%s%02x", b ? "" : " llvm ", (uint8_t)x[(size_t)at * size + b]);
        for (size_t b = 0; b < size; b++)
            printf("%s%02x", b ? "" : " direct ", (uint8_t)y[(size_t)at * size + b]);
        printf("\n");
        break;
    }
}
static int64_t least(const struct side *s) {
    int64_t best = INT64_MAX;
    for (int k = 0; k < 3; k++) {
        int64_t start = clock_ns();
        run(s);
        int64_t ns = clock_ns() - start;
        if (ns < best) best = ns;
    }
    return best;
}
static void time_both(const struct hlo_instr *i, const struct side *two, const char *text) {
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int k = 0; k < ROUNDS; k++)
        for (int s = 0; s < 2; s++) {
            int64_t ns = least(&two[s]);
            if (ns < best[s]) best[s] = ns;
        }
    all.llvm_ms += (double)best[0] / 1e6;
    all.direct_ms += (double)best[1] / 1e6;
    printf("TIME %9.1f us llvm %9.1f us direct %5.2f excess %8.1f %s\n", (double)best[0] / 1e3,
           (double)best[1] / 1e3, (double)best[1] / (double)(best[0] + 1),
           (double)(best[1] - best[0]) / 1e3, i->name);
    if (all.verbose) fputs(text, stdout);
}

static const struct kernel_info *find(const struct kernel_set *k, const char *name) {
    for (int n = 0; n < k->n; n++)
        if (strcmp(k->k[n].instr, name) == 0) return &k->k[n];
    return NULL;
}
static void one(const struct hlo_instr *i, const struct kernel_set *sets, struct code *const *codes,
                enum precision prec) {
    struct side two[2] = {0};
    struct arena a = {0};
    struct kir_fn *fn;
    const char *why;
    if (i->op == HLO_WHILE) return; // one function: LLVM makes all of those
    for (int s = 0; s < 2; s++) {
        two[s].k = find(&sets[s], i->name);
        if (!two[s].k || two[s].k->n_bufs > MAX_BUFS) return;
        two[s].code = code_symbol(codes[s], two[s].k->symbol);
    }
    status_t st = lower_kernel(&a, i, cpu_target(), prec, &fn, &why);
    struct strbuf text = {0};
    if (!st) kir_print(&text, fn);
    st_drop(st);
    all.kernels++;
    if (!x86_direct(&a, fn, 0, cpu_target()->vector_bits, cpu_target()->direct_bf16, &why).n) {
        all.left++;
        if (all.verbose) printf("LEFT %s: %s\n", i->name, why);
    } else {
        // LLVM's quick selector rounds products of a contraction's vectors before their sums.
        bool near = strstr(strbuf_cstr(&text), " reassoc") || strstr(strbuf_cstr(&text), " splat ");
        int n = 0;
        for (int o = 0; o < i->n_operands; o++, n++)
            two[0].bufs[n] = two[1].bufs[n] = buffer((size_t)shape_bytes(i->operands[o]->shape));
        for (int r = 0; r < shape_leaves(i->shape); r++, n++)
            for (int s = 0; s < 2; s++)
                two[s].bufs[n] = buffer((size_t)shape_bytes(shape_leaf(i->shape, r)));
        for (int s = 0; s < 2; s++)
            two[s].scratch = buffer((size_t)two[s].k->scratch_bytes);
        compare_once(i, two, near, false);
        compare_once(i, two, near, true);
        if (all.time) {
            for (int o = 0; o < i->n_operands; o++)
                fill(two[0].bufs[o], i->operands[o]->shape, false);
            time_both(i, two, strbuf_cstr(&text));
        }
        for (int k = 0; k < n; k++) {
            if (two[0].bufs[k] != two[1].bufs[k]) free(two[1].bufs[k]);
            free(two[0].bufs[k]);
        }
        free(two[0].scratch);
        free(two[1].scratch);
    }
    strbuf_done(&text);
    arena_done(&a);
}
// library: what it takes is no kernel.
static status_t module(const struct hlo_module *m, enum precision prec, bool library) {
    struct arena a = {0};
    struct kernel_set sets[2];
    struct code *codes[2] = {NULL, NULL};
    status_t st = ST_OK;
    for (int s = 0; s < 2 && !st; s++) {
        struct target t = *cpu_target();
        t.direct = s == 1;
        t.runs_once = true; // more is made directly
        if (!library) t.library_accepts = NULL, t.routine_runs = NULL;
        st = codegen_module(&a, m, &t, prec, NULL, NULL, &sets[s]);
        if (!st) st = code_load(sets[s].object, &codes[s]);
    }
    if (!st) {
        HLO_EACH_COMPUTATION(c, m)
        HLO_EACH_INSTR(i, c) one(i, sets, codes, prec);
    }
    code_free(codes[0]);
    code_free(codes[1]);
    arena_done(&a);
    return st;
}
static status_t file_cases(struct str text, enum precision prec) {
    int line = 0;
    for (;;) {
        struct test_case c;
        RETURN_IF_ERR(cases_next(&text, &line, &c));
        if (!c.m) return ST_OK;
        struct compile_options opt = {.disable_passes = "", .disable_rules = "", .precision = prec};
        struct executable *e;
        status_t st = hlo_compile_module(hlo_module_clone(c.m), &opt, cpu_target(), NULL, &e);
        if (!st) {
            st = module(e->main, prec, false);
            executable_free(e);
        }
        if (st_code(st) != ST_UNIMPLEMENTED) RETURN_IF_ERR(st);
        st_drop(st);
        cases_done(&c);
    }
}
static bool has_cases(struct span f) {
    return memmem(f.p, f.n, "// IN: ", 7) || memmem(f.p, f.n, "// OUT: ", 8) ||
           memmem(f.p, f.n, "// REFUSED: ", 12);
}
static status_t file(const char *path, const char *bind) {
    struct arena a = {0};
    struct span f;
    struct ingest_result src;
    struct executable *e;
    size_t n = strlen(path);
    RETURN_IF_ERR(file_map(&a, path, &f));
    struct str text = {(const char *)f.p, f.n};
    if (n > 4 && strcmp(path + n - 4, ".hlo") == 0 && has_cases(f)) {
        RETURN_IF_ERR(file_cases(text, PRECISION_DEFAULT));
        status_t st = file_cases(text, PRECISION_STRICT);
        arena_done(&a);
        return st;
    }
    struct lower_request req = {.entry_name = "main"};
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    RETURN_IF_ERR(frontend_ingest(&a, NULL, f, NULL, &src));
    RETURN_IF_ERR(frontend_bindings_parse(&a, bind, &req));
    req.program = src.program;
    RETURN_IF_ERR(hlo_compile(src.format, &req, &opt, cpu_target(), NULL, &e));
    status_t st = module(e->main, PRECISION_DEFAULT, true);
    if (!st && !all.time) st = module(e->prepare, PRECISION_DEFAULT, true);
    executable_free(e);
    arena_done(&a);
    return st;
}

int main(int argc, char **argv) {
    const char *bind = NULL;
    int failed = 0;
    if (!cpu_target()->direct)
        return puts("SKIP kernel_diff: no direct generator here (it needs x86-64 with AVX-512)"), 0;
    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "--time") == 0) {
            all.time = true;
        } else if (strcmp(argv[k], "--verbose") == 0) {
            all.verbose = true;
        } else if (strcmp(argv[k], "--bind") == 0 && k + 1 < argc) {
            bind = argv[++k];
        } else {
            int before = all.differ;
            status_t st = file(argv[k], bind);
            if (st) printf("%s: %s\n", argv[k], st_message(st));
            failed += st != NULL;
            st_drop(st);
            printf("%s %s\n", st || all.differ > before ? "FAIL" : "PASS", argv[k]);
        }
    }
    printf("%d kernels, %d left to LLVM, %d differ\n", all.kernels, all.left, all.differ);
    if (all.time) printf("total ms: llvm %.3f direct %.3f\n", all.llvm_ms, all.direct_ms);
    return failed || all.differ ? 1 : 0;
}
