// SPDX-License-Identifier: Apache-2.0
// Accuracy of the f32 functions against libm in double, over a sweep of all bit patterns, with the
// special values in it. Bounds in ULP of f32.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/codegen/abi.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/text.h"

static const struct target host = {.id = "test",
                                   .kind = "cpu",
                                   .llvm_triple = "",
                                   .llvm_cpu = "",
                                   .llvm_features = "",
                                   .vector_bits = 512,
                                   .threads = 2};
static double logistic(double x) {
    return 1 / (1 + exp(-x));
}
static const struct {
    const char *op;
    double (*f)(double);
    double ulp, most; // |x| <= most
} rows[] = {
    {"exponential", exp, 2, INFINITY}, {"exponential-minus-one", expm1, 3, INFINITY},
    {"log", log, 2, INFINITY},         {"log-plus-one", log1p, 3, INFINITY},
    {"tanh", tanh, 4, INFINITY},       {"logistic", logistic, 4, 80},
    {"erf", erf, 4, INFINITY},         {"sine", sin, 1, 0x1p50},
    {"cosine", cos, 1, 0x1p50},        {"tan", tan, 1, 0x1p50},
    {"cbrt", cbrt, 1, INFINITY},
};
enum { N = 1 << 18, ROWS = sizeof rows / sizeof rows[0] };

static double ulps(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    float w = (float)want;
    if (got == w) return signbit(got) == signbit(w) ? 0 : INFINITY;
    if (isinf(w) || isinf(got))
        return fabs(want) > 0x1.fffffep127 - 0x1p105 && fabsf(got) >= 0x1.fffffcp127f ? 1
                                                                                      : INFINITY;
    int e;
    frexp(want, &e);
    double unit = ldexp(1, (e < -125 ? -125 : e) - 24);
    return fabs(got - want) / unit;
}

static void accuracy(void **s) {
    (void)s;
    char text[4096] = "HloModule m\nENTRY e {\n x = f32[262144] parameter(0)\n";
    for (int i = 0; i < ROWS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %s r%d = f32[262144] %s(x)\n",
                 i == ROWS - 1 ? "ROOT" : "", i, rows[i].op);
    strncat(text, "}\n", sizeof text - strlen(text) - 1);
    struct hlo_module *m;
    struct arena a = {0};
    struct kernel_set set;
    struct code *code;
    assert_null(hlo_parse(str_of(text), NULL, &m));
    assert_null(codegen_module(&a, m, &host, PRECISION_DEFAULT, NULL, NULL, &set));
    assert_null(code_load(set.object, &code));
    float *x = aligned_alloc(64, N * 4), *y = aligned_alloc(64, N * 4);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = i * 16411u + (i & 7); // 16411 is odd: spread over all patterns
        bits = (uint32_t)((uint64_t)bits % UINT64_C(0x100000000));
        if (i < 8)
            bits = (const uint32_t[]){0,          0x80000000, 0x7f800000, 0xff800000,
                                      0x7fc00000, 1,          0x80000001, 0x3f800000}[i];
        if (i >= N / 2) { // the range that models use
            float v = ((float)(i - N / 2) / (N / 2) - 0.5f) * 40;
            memcpy(&bits, &v, 4);
        }
        memcpy(&x[i], &bits, 4);
    }
    bool good = true;
    for (int r = 0; r < ROWS; r++) {
        void *bufs[2] = {x, y};
        hlod_kernel_fn fn;
        *(void **)&fn = code_symbol(code, set.k[r].symbol);
        fn((void *const *)bufs, 0, set.k[r].extent, NULL);
        double worst = 0;
        float at = 0;
        for (int i = 0; i < N; i++) {
            double u =
                fabsf(x[i]) <= (float)rows[r].most || isnan(x[i]) ? ulps(y[i], rows[r].f(x[i])) : 0;
            if (u > worst) worst = u, at = x[i];
        }
        printf("%-24s %.2f ulp at %a\n", rows[r].op, worst, at);
        good &= worst <= rows[r].ulp;
    }
    assert_true(good);
    free(x);
    free(y);
    code_free(code);
    arena_done(&a);
    hlo_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(accuracy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
