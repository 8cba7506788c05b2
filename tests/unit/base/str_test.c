// SPDX-License-Identifier: Apache-2.0
// Numbers to text and back: the quick ways against printf and strtod.
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t rng = 88172645463325252ull;
static uint64_t next(void) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    return rng ^= rng << 17;
}

static void same_as_strtod(const char *text) {
    double got, want = strtod(text, NULL);
    assert_true(str_to_f64(str_of(text), &got));
    if (memcmp(&got, &want, 8)) fail_msg("%s: %a, strtod %a", text, got, want);
}

static void reading(void **state) {
    (void)state;
    static const char *const texts[] = {"0",
                                        "-0",
                                        "0.0",
                                        "-0.000",
                                        "1",
                                        "1.",
                                        ".5",
                                        "-.25e1",
                                        "1e22",
                                        "1e23",
                                        "1e-22",
                                        "1e-23",
                                        "9007199254740993",
                                        "123456789012345",
                                        "1e308",
                                        "1e309",
                                        "4e-324",
                                        "1e-400",
                                        "000000000000000000000001.5",
                                        "0.1e-5",
                                        "1E+3"};
    static const char *const bad[] = {"",    "-",     ".",  "e5",  "1e",
                                      "1e+", "1.2.3", "1 ", "--1", "1e5x"};
    double v;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
        same_as_strtod(texts[k]);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        if (str_to_f64(str_of(bad[k]), &v)) fail_msg("'%s' was taken", bad[k]);
    for (int k = 0; k < 200000; k++) {
        char text[64];
        uint64_t r = next();
        snprintf(text, sizeof text, "%s%llu.%0*llue%d", r & 1 ? "-" : "",
                 (unsigned long long)(r >> 8 & 0xffffff), 1 + (int)(r >> 1 & 7),
                 (unsigned long long)(r >> 32 & 0xfffff), (int)(r >> 4 & 63) - 32);
        same_as_strtod(text);
        snprintf(text, sizeof text, "%llu.%llue%d", (unsigned long long)(next() >> (r & 31)),
                 (unsigned long long)(r >> 58), (int)(r >> 4 & 63) - 32);
        same_as_strtod(text);
    }
    // 17 digits, of which some lie so close to the middle of two numbers that 64 bits cannot tell.
    for (int k = 0; k < 200000; k++) {
        char text[64];
        double any = ldexp((double)(next() >> 11), (int)(next() % 120) - 110);
        snprintf(text, sizeof text, "%.*g", 15 + k % 5, any);
        same_as_strtod(text);
    }
}

// As short as printf's shortest, the same value, and in all but a few cases the same text.
static void printing(void **state) {
    (void)state;
    int other = 0, all = 300000;
    for (int k = 0; k < all; k++) {
        uint32_t bits = k < 512 ? (uint32_t)k << 23 : (uint32_t)(next() >> 16);
        char text[40];
        double back;
        float v;
        if (k % 3 == 1)
            bits = (bits & 0x007fffff) | (bits >> 29 << 31) | (uint32_t)(120 + k % 16) << 23;
        memcpy(&v, &bits, 4);
        if (k % 3 == 2) v = (float)((int)(bits % 2000001) - 1000000) / 1000;
        if (!isfinite(v)) continue;
        struct strbuf b = {0};
        strbuf_f32(&b, v);
        assert_true(str_to_f64(str_of(strbuf_cstr(&b)), &back));
        float f = (float)back;
        if (memcmp(&f, &v, 4)) fail_msg("%a: %s reads as %a", (double)v, strbuf_cstr(&b), back);
        for (int n = fabsf(v) < 0x1p-126f ? 1 : 6; n <= 9; n++) {
            snprintf(text, sizeof text, "%.*g", n, (double)v);
            if (strtof(text, NULL) == v) break;
        }
        if (b.n > strlen(text)) fail_msg("%s is longer than %s", strbuf_cstr(&b), text);
        other += strcmp(text, strbuf_cstr(&b)) != 0;
        strbuf_done(&b);
    }
    assert_in_range(other, 0, all / 10000);
}

static void printing_ms(void **state) {
    (void)state;
    static const double v[] = {0, 0.0004, 0.00051, 0.9996, 1.5, 12.3456, 1e9, 3e14, -1.25, NAN};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[40];
        struct strbuf b = {0};
        strbuf_ms(&b, v[i]);
        snprintf(text, sizeof text, "%.3f", v[i]);
        assert_string_equal(strbuf_cstr(&b), text);
        strbuf_done(&b);
    }
}

static void printing_f64(void **state) {
    (void)state;
    int other = 0, all = 300000;
    for (int k = 0; k < all; k++) {
        uint64_t bits = k < 2047 ? (uint64_t)k << 52 : next();
        char text[40];
        double v, back;
        if (k % 3 == 1) bits = (bits & 0x800fffffffffffffull) | (uint64_t)(1000 + k % 50) << 52;
        memcpy(&v, &bits, 8);
        if (k % 3 == 2) v = (double)((int)(bits % 2000001) - 1000000) / 1000;
        if (!isfinite(v)) continue;
        struct strbuf b = {0};
        strbuf_f64(&b, v);
        assert_true(str_to_f64(str_of(strbuf_cstr(&b)), &back));
        if (memcmp(&back, &v, 8)) fail_msg("%a: %s reads as %a", v, strbuf_cstr(&b), back);
        for (int n = fabs(v) < 0x1p-1022 ? 1 : 15; n <= 17; n++) {
            snprintf(text, sizeof text, "%.*g", n, v);
            if (strtod(text, NULL) == v) break;
        }
        if (b.n > strlen(text)) fail_msg("%s is longer than %s", strbuf_cstr(&b), text);
        other += strcmp(text, strbuf_cstr(&b)) != 0;
        strbuf_done(&b);
    }
    assert_in_range(other, 0, all / 100);
}

static void hosts_of_this_machine(void **state) {
    (void)state;
    static const char *const yes[] = {"localhost", "127.0.0.1", "127.8.9.10", "::1", "[::1]"};
    static const char *const no[] = {"",
                                     "127.",
                                     "127.example.org",
                                     "127.0.0.1.example.org",
                                     "[127.0.0.1",
                                     "128.0.0.1",
                                     "::2",
                                     "localhost.example.org",
                                     "0.0.0.0",
                                     "[]",
                                     "1111:2222:3333:4444:5555:6666:7777:8888:9"};
    for (size_t k = 0; k < sizeof yes / sizeof *yes; k++)
        if (!str_is_loopback(str_of(yes[k]))) fail_msg("%s is this machine", yes[k]);
    for (size_t k = 0; k < sizeof no / sizeof *no; k++)
        if (str_is_loopback(str_of(no[k]))) fail_msg("%s is not this machine", no[k]);
    assert_true(str_is_loopback((struct str){"127.0.0.1:80", 9})); // ends where it says
}

static void like(void **state) {
    (void)state;
    static const char *const yes[][2] = {{"modle", "model"},
                                         {"runn", "run"},
                                         {"rnu", "run"},
                                         {"--profle", "--profile"},
                                         {"abdc", "abcd"}},
                             *const no[][2] = {{"run", "run"},
                                               {"", "run"},
                                               {"x", "run"},
                                               {"bcda", "abcd"},
                                               {"run", ""}};
    for (size_t k = 0; k < sizeof yes / sizeof *yes; k++)
        if (!str_is_like(str_of(yes[k][0]), str_of(yes[k][1])))
            fail_msg("%s is like %s", yes[k][0], yes[k][1]);
    for (size_t k = 0; k < sizeof no / sizeof *no; k++)
        if (str_is_like(str_of(no[k][0]), str_of(no[k][1])))
            fail_msg("%s is not like %s", no[k][0], no[k][1]);
}

// What is over the caller's bytes stays in them.
static void globs(void **state) {
    (void)state;
    assert_true(str_in_globs("w*,!w2", "w1"));
    assert_false(str_in_globs("w*,!w2", "w2"));
    assert_true(str_in_globs("w*,!w?, w2 ", "w2")); // the last one decides
    assert_false(str_in_globs("", "w"));
    assert_false(str_in_globs(",,!", "w"));
    assert_false(str_in_globs("!w", "w"));
    char longer[400];
    memset(longer, '*', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_false(str_in_globs(longer, "w"));
    static const char *const names[] = {"a", "!a", "a[0]", "a*b?", "a\\b"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct strbuf b = {0};
        strbuf_glob(&b, names[k]);
        for (size_t j = 0; j < sizeof names / sizeof *names; j++)
            assert_int_equal(str_in_globs(b.p, names[j]), j == k);
        strbuf_done(&b);
    }
}
static void hex(void **state) {
    (void)state;
    const uint8_t bytes[] = {0x00, 0x9a, 0xff};
    char text[7];
    uint8_t back[3];
    struct strbuf b = {0};
    assert_ptr_equal(str_put_hex(text, bytes, 3), text + 6);
    assert_string_equal(text, "009aff");
    strbuf_hex(&b, bytes, 3);
    assert_string_equal(strbuf_cstr(&b), "009aff");
    strbuf_done(&b);
    assert_true(str_from_hex(str_of(text), back, 3));
    assert_memory_equal(back, bytes, 3);
    assert_true(str_from_hex(STR(""), back, 0));
    static const char *const wrong[] = {"", "009af", "009aff0", "009aff00", "009aFF", "00 aff",
                                        "009afg"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
        assert_false(str_from_hex(str_of(wrong[k]), back, 3));
}

static void over(void **state) {
    (void)state;
    char text[9];
    struct strbuf b = strbuf_over(text, sizeof text);
    assert_string_equal(text, "");
    for (int k = 0; k < 5; k++)
        strbuf_puts(&b, "abc");
    strbuf_printf(&b, "%d", 7);
    assert_ptr_equal(b.p, text);
    assert_true(b.truncated);
    assert_string_equal(text, "abcabcab");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading),      cmocka_unit_test(printing),
        cmocka_unit_test(printing_f64), cmocka_unit_test(printing_ms),
        cmocka_unit_test(hosts_of_this_machine),
        cmocka_unit_test(like),         cmocka_unit_test(over),
        cmocka_unit_test(globs),        cmocka_unit_test(hex)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
