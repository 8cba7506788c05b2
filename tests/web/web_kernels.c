// SPDX-License-Identifier: Apache-2.0
// Kernels as WebAssembly: the modules of kernel_cases.h against the evaluator, every value of each;
// and the f32 functions of kmath, bit for bit against the same kernels as code of this machine,
// whose accuracy kmath_test.c measures: the arithmetic is the same, so are the results. By WebGPU,
// whose arithmetic is less exact, within GPU_ULP.
//     web_kernels [--node PROGRAM] [--backend webgpu] [--write DIR | --read DIR] RUNTIME SERVE
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/eval.h"
#include "compiler/ir/text/text.h"
#include "tests/unit/compiler/kernel_cases.h"
#include "tests/web/web_runner.h"

static struct web_runner runner;
static enum web_backend backend;
static int ran, failed;
static uint64_t state = 1;

static double unit(void) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-53;
}
static struct literal *random_literal(struct arena *a, const struct shape *s) {
    struct literal *l = lit_new(a, s);
    for (int64_t i = 0; i < shape_elements(s); i++) {
        double v = unit() * 4 - 2;
        int sign = dtype_class(s->dtype) == DC_SIGNED;
        if (dtype_class(s->dtype) == DC_PRED)
            lit_set_i64(l, i, v > 0);
        else if (dtype_is_int(s->dtype))
            lit_set_i64(l, i, (int64_t)(v * (sign ? 3 : 6)) % 7 + (sign ? 0 : 3));
        else if (dtype_is_complex(s->dtype))
            lit_set_c128(l, i, v, unit());
        else
            lit_set_f64(l, i, v);
    }
    return l;
}
static bool close_to(enum dtype t, const struct literal *want, const struct literal *got,
                     int64_t i) {
    double w[2], g[2],
        tol = t == DT_F64 || t == DT_C128 ? 1e-9
              : t == DT_BF16              ? 2e-2
              : t == DT_F16               ? 3e-3
              : dtype_bits(t) == 8        ? 0.26 // one step of two mantissa bits
                                          : 3e-5;
    if (!dtype_is_float(t) && !dtype_is_complex(t))
        return lit_get_i64(want, i) == lit_get_i64(got, i);
    lit_get_c128(want, i, w);
    lit_get_c128(got, i, g);
    for (int k = 0; k < 2; k++)
        if (!(isnan(w[k]) && isnan(g[k])) && w[k] != g[k] &&
            !(fabs(w[k] - g[k]) <= tol * (1 + fabs(w[k]))))
            return false;
    return true;
}

// Every value of the entry as a result.
static status_t all_results(struct hlo_module *m) {
    VEC(struct hlo_instr *) v = {0};
    struct hlo_instr *root;
    HLO_EACH_INSTR(i, m->entry)
    if (!shape_is_tuple(i->shape) && i->op != HLO_PARAMETER &&
        dtype_class(i->shape->dtype) != DC_NONE)
        avec_push(m->arena, &v, i);
    for (struct hlo_instr *i = m->entry->first; i; i = i->next) {
        struct hlo_instr *e;
        for (int k = 0; shape_is_tuple(i->shape) && i->op != HLO_TUPLE && k < i->shape->n_elems;
             k++) {
            RETURN_IF_ERR(hlo_add_instr(m->entry, HLO_GET_TUPLE_ELEMENT, NULL, &i, 1,
                                        &(struct hlo_attr_gte){.index = k}, NULL, 0, &e));
            avec_push(m->arena, &v, e);
        }
    }
    RETURN_IF_ERR(hlo_add_instr(m->entry, HLO_TUPLE, NULL, v.v, (int)v.n, NULL, NULL, 0, &root));
    hlo_set_root(m->entry, root);
    return ST_OK;
}
static status_t run_module(struct arena *a, struct hlo_module *m, const struct span *in, int n_in,
                           struct executable **e, struct span **out) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct web_options o = {.name = "", .backend = backend};
    struct web_files files;
    RETURN_IF_ERR(hlo_compile_module(m, &opt, web_target_for(backend), NULL, e));
    RETURN_IF_ERR(web_package(a, *e, NULL, 0, &o, NULL, &files));
    return web_runner_run(&runner, a, &files, in, n_in,
                          shape_leaves((*e)->main->entry->root->shape), out);
}
static status_t check_case(struct arena *a, const char *text, struct executable **e) {
    struct hlo_module *m;
    RETURN_IF_ERR(hlo_parse(str_of(text), NULL, &m));
    RETURN_IF_ERR(all_results(m));
    int n = (int)m->entry->params.n;
    struct literal *args[64], *want;
    struct span in[64], *out;
    for (int k = 0; k < n; k++) {
        args[k] = random_literal(a, shape_with_layout(a, m->entry->params.v[k]->shape, NULL));
        in[k] = (struct span){args[k]->data, args[k]->size_bytes};
    }
    struct hlo_eval ev = hlo_eval_begin(a);
    RETURN_IF_ERR(hlo_eval_module(&ev, m, args, n, &want));
    RETURN_IF_ERR(run_module(a, m, in, n, e, &out));
    for (int r = 0; out && r < want->shape->n_elems; r++) {
        const struct literal *w = want->elems[r];
        struct literal got = *w;
        got.data = (void *)(uintptr_t)out[r].p;
        for (int64_t i = 0; i < shape_elements(w->shape); i++)
            if (!close_to(w->shape->dtype, w, &got, i))
                return st_internal("result %d, element %lld: want %g, got %g", r, (long long)i,
                                   lit_get_f64(w, i), lit_get_f64(&got, i));
    }
    return ST_OK;
}

// ---- functions of f32

enum { N = 1 << 16 };
static const char *const one[] = {"exponential",
                                  "exponential-minus-one",
                                  "log",
                                  "log-plus-one",
                                  "tanh",
                                  "logistic",
                                  "erf",
                                  "sine",
                                  "cosine",
                                  "tan",
                                  "cbrt",
                                  "sqrt",
                                  "rsqrt",
                                  "asin",
                                  "acos",
                                  "sinh",
                                  "cosh",
                                  "asinh",
                                  "acosh",
                                  "atanh",
                                  "round-nearest-afz",
                                  "round-nearest-even"},
                         *const two[] = {"power", "atan2", "remainder"};
enum { ONE = sizeof one / sizeof *one, TWO = sizeof two / sizeof *two };
static char *math_module(struct arena *a) {
    struct strbuf b = {0};
    strbuf_printf(
        &b, "HloModule m\nENTRY e {\n x = f32[%d] parameter(0)\n y = f32[%d] parameter(1)\n", N, N);
    for (int k = 0; k < ONE; k++)
        strbuf_printf(&b, " r%d = f32[%d] %s(x)\n", k, N, one[k]);
    for (int k = 0; k < TWO; k++)
        strbuf_printf(&b, " r%d = f32[%d] %s(x, y)\n", ONE + k, N, two[k]);
    strbuf_puts(&b, " ROOT z = (");
    for (int k = 0; k < ONE + TWO; k++)
        strbuf_printf(&b, "%sf32[%d]", k ? ", " : "", N);
    strbuf_puts(&b, ") tuple(");
    for (int k = 0; k < ONE + TWO; k++)
        strbuf_printf(&b, "%sr%d", k ? ", " : "", k);
    strbuf_puts(&b, ")\n}\n");
    char *text = arena_strndup(a, strbuf_cstr(&b), b.n);
    strbuf_done(&b);
    return text;
}
static float *values(struct arena *a) {
    float *x = arena_alloc_aligned(a, N * sizeof *x, 64);
    for (int k = 0; k < N; k++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t u = (uint32_t)(state >> 32);
        if (k % 2)
            x[k] = (float)((int32_t)u * 0x1p-27); // [-16, 16)
        else
            memcpy(&x[k], &u, 4);
    }
    return x;
}
// By WebGPU subnormals may be 0, and division and square root need not be rounded right.
enum { GPU_ULP = 4 };
static bool is_same(float want, float got, float x, float y) {
    int32_t a, b;
    memcpy(&a, &want, 4);
    memcpy(&b, &got, 4);
    if (a == b || (isnan(want) && isnan(got))) return true;
    if (backend == WEB_WASM) return false;
    const float small = 0x1p-120f; // what it follows from may be subnormal
    bool tiny = fabsf(x) < FLT_MIN || fabsf(y) < FLT_MIN;
    return tiny || (fabsf(want) < small && fabsf(got) < small) ||
           ((a < 0) == (b < 0) && llabs((long long)a - b) <= GPU_ULP);
}
static status_t check_math(struct arena *a, struct executable **e) {
    struct target t = *web_target_for(backend);
    struct hlo_module *m, *native;
    struct kernel_set set;
    struct code *code;
    struct span *out;
    t.backend = t.llvm_triple = t.llvm_cpu = t.llvm_features = NULL;
    const char *text = math_module(a);
    const float *x = values(a), *y = values(a);
    struct span in[] = {{(const uint8_t *)x, N * 4}, {(const uint8_t *)y, N * 4}};
    RETURN_IF_ERR(hlo_parse(str_of(text), NULL, &m));
    RETURN_IF_ERR(hlo_parse(str_of(text), NULL, &native));
    RETURN_IF_ERR(codegen_module(a, native, &t, PRECISION_DEFAULT, NULL, NULL, &set));
    RETURN_IF_ERR(code_load(set.object, &code));
    RETURN_IF_ERR(run_module(a, m, in, 2, e, &out));
    status_t st = ST_OK;
    float *want = arena_alloc_aligned(a, N * 4, 64);
    for (int r = 0; r < ONE + TWO && out && !st; r++) {
        const struct kernel_info *k = &set.k[r];
        void *bufs[HLOD_KERNEL_DIRECT] = {(void *)(uintptr_t)x,
                                          r < ONE ? (void *)want : (void *)(uintptr_t)y, want};
        hlod_kernel_call(code_symbol(code, k->symbol), k->n_bufs, bufs, 0, k->extent, NULL,
                         k->sizes);
        const float *got = (const float *)(const void *)out[r].p;
        for (int i = 0; i < N && !st; i++)
            if (!is_same(want[i], got[i], x[i], r < ONE ? 1 : y[i]))
                st = st_internal("%s(%a, %a): %a, on this machine %a",
                                 r < ONE ? one[r] : two[r - ONE], (double)x[i], (double)y[i],
                                 (double)got[i], (double)want[i]);
    }
    code_free(code);
    hlo_module_free(native);
    return st;
}

int main(int argc, char **argv) {
    const char *node = "node";
    int k = 1;
    for (; k + 1 < argc && strncmp(argv[k], "--", 2) == 0; k += 2) {
        if (strcmp(argv[k], "--node") == 0) node = argv[k + 1];
        if (strcmp(argv[k], "--backend") == 0) backend = web_runner_backend(argv[k + 1]);
        bool writes = strcmp(argv[k], "--write") == 0;
        if (writes || strcmp(argv[k], "--read") == 0) {
            runner.dir = argv[k + 1];
            runner.writes = writes;
        }
    }
    if (k + 1 >= argc) return fputs("usage: web_kernels [OPTION VALUE] RUNTIME SERVE\n", stderr), 2;

    status_t st = runner.dir ? ST_OK : web_runner_start(&runner, node, argv[k + 1], argv[k]);
    const int cases = (int)(sizeof kernel_cases / sizeof *kernel_cases);
    for (int i = 0; i <= cases && !st_code(st); i++) {
        struct arena a = {0};
        struct executable *e = NULL;
        status_t of = i < cases ? check_case(&a, kernel_cases[i], &e) : check_math(&a, &e);
        ran++;
        if (of) printf("%s: %s\n", i < cases ? "case" : "functions", st_message(of)), failed++;
        if (of && i < cases) printf("%.300s\n", kernel_cases[i]);
        st_drop(of);
        executable_free(e);
        arena_done(&a);
    }
    web_runner_stop(&runner);
    if (st) fprintf(stderr, "web_kernels: %s\n", st_message(st)), failed++;
    st_drop(st);
    printf("%d modules of kernels, %d failed\n", ran, failed);
    return failed != 0;
}
