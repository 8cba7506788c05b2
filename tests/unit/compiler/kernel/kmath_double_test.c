// SPDX-License-Identifier: Apache-2.0
// Accuracy of the f64 functions (kmath_double.c) against libm in long double, by both code
// generators at either precision: bit patterns over all exponents, the neighbourhood of multiples
// of pi/2 and of 1, small ones, the special values. Bounds in ULP of f64; what was measured is
// printed.
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/text/text.h"

static long double logistic(long double x) {
    return 1 / (1 + expl(-x));
}
static const struct row {
    const char *op;
    long double (*f)(long double);
    double ulp;
} rows[] = {{"exponential", expl, 1}, {"exponential-minus-one", expm1l, 2},
            {"log", logl, 1},         {"log-plus-one", log1pl, 1.5},
            {"tanh", tanhl, 2.5},     {"logistic", logistic, 2.5},
            {"sine", sinl, 1},        {"cosine", cosl, 1},
            {"tan", tanl, 2.5},         {"erf", erfl, 2},
            {"asin", asinl, 2.5},     {"acos", acosl, 2.5},
            {"sinh", sinhl, 2.5},     {"cosh", coshl, 2},
            {"asinh", asinhl, 2.5},   {"acosh", acoshl, 2.5},
            {"atanh", atanhl, 2.5},   {"cbrt", cbrtl, 1}};
enum { N = 1 << 17, ROWS = sizeof rows / sizeof rows[0] };

static double ulps(double got, long double want) {
    double w = (double)want;
    if (isnan(w) || isnan(got)) return isnan(w) && isnan(got) ? 0 : INFINITY;
    if (w == 0 || isinf(w) || isinf(got))
        return got == w && signbit(got) == signbit(w) ? 0 : INFINITY;
    int e;
    frexp(w, &e);
    return (double)(fabsl((long double)got - want) / ldexpl(1, (e < -1021 ? -1021 : e) - 53));
}
static void fill(double *x) {
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-1074, -0x1p-1074,
                                     0x1p-1022, 1, -1, 709.782, 710, -745.13, -746, 0x1p20, 0x1p53,
                                     DBL_MAX, -DBL_MAX, 22, 37,
                                     // of all, the nearest to a multiple of pi/2
                                     6381956970095103.0 * 0x1p797};
    uint64_t r = 1;
    for (int i = 0; i < N; i++) {
        r = r * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double unit = (double)(int64_t)r * 0x1p-63; // [-1, 1)
        memcpy(&x[i], &r, sizeof r);
        if (i % 4 == 1) x[i] = unit * 800;
        if (i % 4 == 2) x[i] = nextafter(i * 1.5707963267948966, unit * 1e9);
        if (i % 4 == 3) x[i] = i % 8 == 3 ? 1 + unit * 1e-3 : unit * (i % 16 == 7 ? 1e-9 : 3);
        if (i < (int)(sizeof special / sizeof special[0])) x[i] = special[i];
    }
}
static void check(bool direct, int vector_bits, const struct kernel_policy *policy,
                  enum precision prec) {
    const struct target host = {.id = "test",
                                .kind = "cpu",
                                .llvm_triple = "",
                                .llvm_cpu = "",
                                .llvm_features = "",
                                .vector_bits = vector_bits,
                                .direct = direct,
                                .policy = policy,
                                .threads = 2};
    struct strbuf b = {0};
    struct hlo_module *m;
    struct arena a = {0};
    struct kernel_set set;
    struct code *code;
    bool good = true;
    strbuf_printf(&b, "HloModule m\nENTRY e {\n x = f64[%d] parameter(0)\n", N);
    for (int i = 0; i < ROWS; i++)
        strbuf_printf(&b, " %s r%d = f64[%d] %s(x)\n", i == ROWS - 1 ? "ROOT" : "", i, N,
                      rows[i].op);
    strbuf_puts(&b, "}\n");
    assert_null(hlo_parse(str_of(strbuf_cstr(&b)), NULL, &m));
    assert_null(codegen_module(&a, m, &host, prec, NULL, NULL, &set));
    assert_null(code_load(set.object, &code));
    double *x = aligned_alloc(64, N * sizeof *x), *z = aligned_alloc(64, N * sizeof *z);
    fill(x);
    for (int r = 0; r < ROWS; r++) {
        void *bufs[HLOD_KERNEL_DIRECT] = {x, z, z};
        double worst = 0;
        int at = 0;
        hlod_kernel_call(code_symbol(code, set.k[r].symbol), set.k[r].n_bufs, bufs, 0,
                         set.k[r].extent, NULL, set.k[r].sizes);
        for (int i = 0; i < N; i++) {
            double u = ulps(z[i], rows[r].f((long double)x[i]));
            if (u > worst) worst = u, at = i;
        }
        printf("%s %-24s %.3f ulp at %a: %a\n",
               direct   ? "direct"
               : policy ? "no fma"
                        : "llvm  ",
               rows[r].op, worst, x[at], z[at]);
        good &= worst <= rows[r].ulp;
    }
    assert_true(good);
    free(x);
    free(z);
    code_free(code);
    arena_done(&a);
    strbuf_done(&b);
    hlo_module_free(m);
}
static void by_llvm(void **s) {
    (void)s;
    check(false, 512, NULL, PRECISION_DEFAULT);
    check(false, 512, NULL, PRECISION_STRICT);
}
// As WebAssembly has it: products that are rounded, what is lost found from halves of the factors.
static void without_fma(void **s) {
    (void)s;
    static const struct kernel_policy p = {
        .units = 1, .has_f64 = true, .has_s64 = true, .has_scratch = true};
    check(false, 512, &p, PRECISION_DEFAULT);
}
static void by_ours(void **s) {
    (void)s;
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        check(true, 512, NULL, PRECISION_DEFAULT);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        check(true, 256, NULL, PRECISION_DEFAULT);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_llvm), cmocka_unit_test(without_fma),
                                       cmocka_unit_test(by_ours)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
