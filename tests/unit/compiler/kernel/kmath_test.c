// SPDX-License-Identifier: Apache-2.0
// Accuracy of the f32 functions against libm in double, at both precisions and of those that do
// with f32 alone: every 4099th bit pattern (subnormals, NaN and the largest arguments among them),
// the special values, and a dense sweep of the range that models use. For functions of two values
// all pairs of a list that holds the special ones, and random pairs. Bounds in ULP of f32; what was
// measured is printed.
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/str.h"
#include "compiler/codegen/abi.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/text/text.h"

#define HOST                                                                                       \
    .id = "test", .kind = "cpu", .llvm_triple = "", .llvm_cpu = "", .llvm_features = "",           \
    .vector_bits = 512, .threads = 2
static const struct target host = {HOST};
static const struct kernel_policy f32_alone = {.units = 64, .has_scratch = true};
static const struct target narrow = {HOST, .policy = &f32_alone};
static double logistic(double x) {
    return 1 / (1 + exp(-x));
}
static double rsqrt(double x) {
    return 1 / sqrt(x);
}
struct row {
    const char *op;
    double (*f)(double), (*f2)(double, double);
    double ulp, narrow; // bounds; of f32 alone
};
static const struct row rows[] = {
    {"exponential", exp, NULL, 1, 1.25},
    {"exponential-minus-one", expm1, NULL, 1.5, 1.75},
    {"log", log, NULL, 1, 1},
    {"log-plus-one", log1p, NULL, 1.25, 1.25},
    {"tanh", tanh, NULL, 2.5, 2.75},
    {"logistic", logistic, NULL, 2.5, 2.75},
    {"erf", erf, NULL, 1.35, 1.35},
    {"sine", sin, NULL, 0.5001, 1.25},
    {"cosine", cos, NULL, 0.5001, 1.25},
    {"tan", tan, NULL, 0.5001, 2.5},
    {"cbrt", cbrt, NULL, 0.5001, 0.51},
    {"sqrt", sqrt, NULL, 0.5, 0.5},
    {"rsqrt", rsqrt, NULL, 1.5, 1.5},
    {"power", NULL, pow, 0.51, 1},
    {"atan2", NULL, atan2, 0.51, 2.5},
    {"remainder", NULL, fmod, 0, 0},
    {"asin", asin, NULL, 0.51, 2.5},
    {"acos", acos, NULL, 0.51, 1.25},
    {"sinh", sinh, NULL, 0.51, 2.25},
    {"cosh", cosh, NULL, 0.51, 1.5},
    {"asinh", asinh, NULL, 0.51, 2},
    {"acosh", acosh, NULL, 0.51, 2.25},
    {"atanh", atanh, NULL, 0.51, 2.25},
};
enum { N = 1 << 20, ROWS = sizeof rows / sizeof rows[0] };

// Distance of `got` from the exact value in units of the last place of f32 there.
static double ulps(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    float w = (float)want;
    if (w == 0 || got == 0) // zeros: the sign counts
        if (got == w) return signbit(got) == signbit(w) ? 0 : INFINITY;
    if (isinf(w) || isinf(got)) {
        if (got == w) return 0;
        return fabs(want) > 0x1.fffffep127 - 0x1p105 && fabsf(got) >= 0x1.fffffcp127f ? 1
                                                                                      : INFINITY;
    }
    int e;
    frexp(want, &e);
    double unit = ldexp(1, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / unit;
}

static const uint32_t special[] = {
    0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 1,          0x80000001,
    0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x007fffff, 0x00800000, 0x40000000,
    0xc0000000, 0x40400000, 0xc0400000, 0x3f000000, 0xbf000000, 0x4b800001, 0xcb800001,
    0x3f800001, 0x3f7fffff, 0x42b17218, 0x3f815d2d, // erf's worst
    0x6f79be45}; // 16367173 * 2^72: of all, the nearest to a multiple of pi/2
enum { SPECIAL = sizeof special / sizeof special[0] };
static float of_bits(uint32_t b) {
    float f;
    memcpy(&f, &b, 4);
    return f;
}
static void fill(float *x, float *y) {
    uint64_t r = 1;
    for (uint32_t i = 0; i < N; i++) {
        r = r * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = of_bits(i * 4099u);
        y[i] = of_bits((uint32_t)(r >> 32));
        if (i >= N / 2) {
            x[i] = ((float)(i - N / 2) / (N / 2) - 0.5f) * 40;
            y[i] = (float)(int32_t)(r >> 32) * 0x1p-28f; // [-8, 8)
        }
        if (i < SPECIAL * SPECIAL) {
            x[i] = of_bits(special[i % SPECIAL]);
            y[i] = of_bits(special[i / SPECIAL]);
        }
    }
}

static void check(const struct target *t, enum precision prec, const char *name) {
    struct strbuf b = {0};
    strbuf_printf(
        &b, "HloModule m\nENTRY e {\n x = f32[%d] parameter(0)\n y = f32[%d] parameter(1)\n", N, N);
    for (int i = 0; i < ROWS; i++)
        strbuf_printf(&b, " %s r%d = f32[%d] %s(x%s)\n", i == ROWS - 1 ? "ROOT" : "", i, N,
                      rows[i].op, rows[i].f2 ? ", y" : "");
    strbuf_puts(&b, "}\n");
    struct hlo_module *m;
    struct arena a = {0};
    struct kernel_set set;
    struct code *code;
    assert_null(hlo_parse(str_of(strbuf_cstr(&b)), NULL, &m));
    assert_null(codegen_module(&a, m, t, prec, NULL, NULL, &set));
    assert_int_equal(set.n, ROWS);
    assert_null(code_load(set.object, &code));
    float *x = aligned_alloc(64, N * 4), *y = aligned_alloc(64, N * 4),
          *z = aligned_alloc(64, N * 4);
    fill(x, y);
    bool good = true;
    for (int r = 0; r < ROWS; r++) {
        bool two = rows[r].f2 != NULL;
        void *bufs[HLOD_KERNEL_DIRECT] = {x, two ? y : z, z};
        void *fn = code_symbol(code, set.k[r].symbol);
        hlod_kernel_call(fn, set.k[r].n_bufs, bufs, 0, set.k[r].extent, NULL, set.k[r].sizes);
        double worst = 0;
        int at = 0;
        for (int i = 0; i < N; i++) {
            double u = ulps(z[i], two ? rows[r].f2(x[i], y[i]) : rows[r].f(x[i]));
            if (u > worst) worst = u, at = i;
        }
        printf("%-8s %-24s %.3f ulp at %a, %a: %a\n", name, rows[r].op, worst, (double)x[at],
               two ? (double)y[at] : 0, (double)z[at]);
        good &= worst <= (t->policy ? rows[r].narrow : rows[r].ulp);
    }
    assert_true(good);
    free(x);
    free(y);
    free(z);
    code_free(code);
    arena_done(&a);
    strbuf_done(&b);
    hlo_module_free(m);
}
static void accuracy(void **s) {
    (void)s;
    check(&host, PRECISION_DEFAULT, "default");
}
static void accuracy_strict(void **s) {
    (void)s;
    check(&host, PRECISION_STRICT, "strict");
}
static void accuracy_narrow(void **s) {
    (void)s;
    check(&narrow, PRECISION_DEFAULT, "narrow");
}

// An operation that underflows costs some CPUs more than a hundred cycles, and half of what softmax
// sees may be hidden by a mask: where an exponential is 0, nothing underflows on the way.
static void zeros_are_exact(void **s) {
    (void)s;
    enum { LANES = 64 };
    static const char text[] = "HloModule m\nENTRY e {\n x = f32[64] parameter(0)\n"
                               " y = f64[64] parameter(1)\n half = f32[64] parameter(2)\n"
                               " a = f32[64] exponential(x)\n b = f32[64] logistic(x)\n"
                               " c = f32[64] power(half, x)\n"
                               " ROOT d = f64[64] exponential(y)\n}\n";
    static const double to[] = {-105.25,  -150, -1e3, -1e4, -1e9, -(double)0x1.fffffep127f,
                                -INFINITY};
    alignas(64) float x[LANES], two[LANES], z[LANES];
    alignas(64) double y[LANES], w[LANES];
    struct hlo_module *m;
    struct arena a = {0};
    struct kernel_set set;
    struct code *code;
    for (int i = 0; i < LANES; i++) {
        x[i] = (float)to[(size_t)i % (sizeof to / sizeof to[0])];
        y[i] = (double)x[i] * 7.5;
        two[i] = 3;
    }
    assert_null(hlo_parse(str_of(text), NULL, &m));
    assert_null(codegen_module(&a, m, &host, PRECISION_DEFAULT, NULL, NULL, &set));
    assert_int_equal(set.n, 4);
    assert_null(code_load(set.object, &code));
    for (int k = 0; k < set.n; k++) {
        void *of_two[HLOD_KERNEL_DIRECT] = {two, x, z}, *of_f32[HLOD_KERNEL_DIRECT] = {x, z},
             *of_f64[HLOD_KERNEL_DIRECT] = {y, w};
        bool wide = k == set.n - 1;
        void *fn = code_symbol(code, set.k[k].symbol);
        feclearexcept(FE_ALL_EXCEPT);
        hlod_kernel_call(fn, set.k[k].n_bufs,
                         set.k[k].n_bufs == 3 ? of_two
                         : wide               ? of_f64
                                              : of_f32,
                         0, set.k[k].extent, NULL, set.k[k].sizes);
        assert_int_equal(fetestexcept(FE_UNDERFLOW), 0);
        for (int i = 0; i < LANES; i++)
            assert_true((wide ? w[i] : (double)z[i]) == 0);
    }
    code_free(code);
    arena_done(&a);
    hlo_module_free(m);
}

// Strict kernels round after each operation: no fma and no flag that lets LLVM make one, and
// products of a reduction stay in order.
static void strict_flags(void **s) {
    (void)s;
    static const char text[] =
        "HloModule m\nmul { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] "
        "multiply(a, b)\n}\nf { p = f32[9,70] parameter(0)\n q = f32[9,70] multiply(p, p)\n ROOT r "
        "= f32[9,70] add(q, p)\n}\n"
        "ENTRY e {\n x = f32[9,70] parameter(0)\n o = f32[] constant(1)\n y = f32[9,70] fusion(x), "
        "kind=kLoop, calls=f\n ROOT z = f32[9] reduce(y, o), dimensions={1}, to_apply=mul\n}\n";
    for (int strict = 0; strict < 2; strict++) {
        struct hlo_module *m;
        struct arena a = {0};
        struct kernel_set set;
        struct strbuf kir = {0};
        assert_null(hlo_parse(str_of(text), NULL, &m));
        assert_null(codegen_module(&a, m, &host, strict ? PRECISION_STRICT : PRECISION_DEFAULT,
                                   &kir, NULL, &set));
        assert_int_equal(set.n, 2);
        assert_int_equal(strstr(strbuf_cstr(&kir), " fma ") == NULL, strict);
        if (strict) assert_null(strstr(strbuf_cstr(&kir), "contract"));
        assert_int_equal(strstr(strbuf_cstr(&kir), "reassoc") == NULL, strict);
        strbuf_done(&kir);
        arena_done(&a);
        hlo_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracy), cmocka_unit_test(accuracy_strict),
        cmocka_unit_test(accuracy_narrow), cmocka_unit_test(strict_flags),
        cmocka_unit_test(zeros_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
