// SPDX-License-Identifier: Apache-2.0
// Comparison of values: tolerances, what is equal whatever they are, all classes of types.
#include "scheduler/suite/compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static struct compare_result compare(const char *type, int64_t n, const void *f, const void *e,
                                     double rtol, double atol) {
    struct compare_result r;
    const struct dtype_row *t = numbers_dtype(str_of(type));
    assert_non_null(t);
    compare_values(t, n, f, e, rtol, atol, &r);
    return r;
}

static void floats(void **state) {
    (void)state;
    const float e[6] = {1, 100, -2, 0, NAN, INFINITY},
                f[6] = {1.001f, 100.2f, -2, 1e-7f, NAN, INFINITY};
    struct compare_result r = compare("f32", 6, f, e, 0, 0);
    assert_int_equal(r.mismatches, 3);
    assert_int_equal(r.first, 0);
    assert_true(fabs(r.max_abs - 0.2) < 1e-4 && fabs(r.max_rel - 0.002) < 1e-5);
    assert_int_equal(compare("f32", 6, f, e, 0.0015, 0).mismatches, 2); // not 100.2, not 1e-7 of 0
    assert_int_equal(compare("f32", 6, f, e, 0.0015, 0).first, 1);
    assert_int_equal(compare("f32", 6, f, e, 0.003, 1e-6).mismatches, 0);
    const float odd[3] = {NAN, INFINITY, -INFINITY}, other[3] = {1, -INFINITY, 1e30f};
    assert_int_equal(compare("f32", 3, odd, other, 1e9, 1e9).mismatches,
                     3); // no tolerance is that wide
    assert_int_equal(compare("f32", 3, other, odd, 1e9, 1e9).mismatches, 3);
    const float zero[1] = {0.0f}, minus[1] = {-0.0f};
    assert_int_equal(compare("f32", 1, zero, minus, 0, 0).mismatches, 0);
    uint32_t nan1 = 0x7fc00000, nan2 = 0xffc00001;
    assert_int_equal(compare("f32", 1, &nan1, &nan2, 0, 0).mismatches, 0);
    const double d[2] = {1, 1 + 1e-15};
    assert_int_equal(compare("f64", 1, &d[0], &d[1], 0, 0).mismatches, 1);
    assert_int_equal(compare("f64", 1, &d[0], &d[1], 1e-14, 0).mismatches, 0);
    const uint16_t half[2] = {0x3c00, 0x3c01}, b[2] = {0x3f80, 0x3f81};
    assert_int_equal(compare("f16", 1, &half[0], &half[1], 0.0005, 0).mismatches, 1);
    assert_int_equal(compare("f16", 1, &half[0], &half[1], 0.001, 0).mismatches, 0);
    assert_int_equal(compare("bf16", 1, &b[0], &b[1], 0.005, 0).mismatches, 1);
    assert_int_equal(compare("bf16", 1, &b[0], &b[1], 0.008, 0).mismatches, 0);
}

static void integers(void **state) {
    (void)state;
    const int64_t a[2] = {INT64_MAX, INT64_MIN}, b[2] = {INT64_MAX - 1, INT64_MIN};
    struct compare_result r = compare("s64", 2, a, b, 0, 0); // a double would not see it
    assert_int_equal(r.mismatches, 1);
    assert_true(r.max_abs == 1);
    assert_int_equal(compare("s64", 2, a, b, 0, 1).mismatches, 0);
    const uint64_t u[2] = {UINT64_MAX, 0}, v[2] = {UINT64_MAX - 2, 0};
    assert_int_equal(compare("u64", 2, u, v, 0, 1).mismatches, 1);
    const int8_t s[2] = {-128, 127}, t[2] = {127, 127};
    r = compare("s8", 2, s, t, 0, 0);
    assert_true(r.max_abs == 255 && r.mismatches == 1);
    const uint8_t p[3] = {1, 0, 7}, q[3] = {1, 1, 1}; // any other than 0 is true
    assert_int_equal(compare("pred", 3, p, q, 0, 0).mismatches, 1);
    assert_int_equal(compare("s32", 0, p, q, 0, 0).mismatches, 0);
    const uint8_t w[3] = {0xF8, 0x07, 0xFF}, x[3] = {0x08, 0xF7, 0x0E}; // bits beyond the type's
    r = compare("s4", 3, w, x, 0, 0);
    assert_true(r.mismatches == 1 && r.first == 2 && r.max_abs == 1);
    assert_int_equal(compare("s4", 3, w, x, 0, 1).mismatches, 0);
    assert_int_equal(compare("u4", 3, w, x, 0, 0).mismatches, 1);
    assert_int_equal(compare("f4e2m1fn", 3, w, x, 0, 0).mismatches, 1);
    assert_int_equal(compare("s2", 3, w, x, 0, 0).mismatches, 1);
    assert_int_equal(compare("u2", 2, w, x, 0, 0).mismatches, 0);
}

static void others(void **state) {
    (void)state;
    const float c[4] = {1, 2, 3, 4}, d[4] = {1, 2, 3, 4.5f};
    struct compare_result r = compare("c64", 2, c, d, 0, 0);
    assert_int_equal(r.mismatches, 1);
    assert_int_equal(r.first, 1); // of the element, not its part
    assert_int_equal(compare("c64", 2, c, d, 0, 0.5).mismatches, 0);
    const uint8_t f[2] = {0x38, 0x39}, g[2] = {0x38, 0x38};
    assert_int_equal(compare("f8e4m3fn", 2, f, g, 0, 0).mismatches, 1); // 1.125 and 1
    assert_int_equal(compare("f8e4m3fn", 2, f, g, 0, 0.125).mismatches, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats), cmocka_unit_test(integers),
                                       cmocka_unit_test(others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
