// SPDX-License-Identifier: Apache-2.0
// The number scanner against strtod, its limits, and print-then-scan over random bit patterns of
// every type.
#include "proto/numbers.h"

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

static void scan_bad(const char *text, const char *dtype, int64_t n, const char *words) {
    uint8_t out[256];
    status_t s = numbers_scan(str_of(text), numbers_dtype(str_of(dtype)), n, out);
    if (st_code(s) != ST_INVALID_ARGUMENT) fail_msg("'%s' was taken", text);
    if (!strstr(st_message(s), words))
        fail_msg("'%s': '%s' lacks '%s'", text, st_message(s), words);
    st_drop(s);
}

static void against_strtod(void **state) {
    (void)state;
    const struct dtype_row *f64 = numbers_dtype(STR("FP64"));
    for (int i = 0; i < 200000; i++) {
        char text[64], list[128];
        uint64_t r = next();
        double v, got, among[3];
        memcpy(&v, &r, 8);
        if (!isfinite(v)) continue;
        switch (i % 4) {
        case 0:
            snprintf(text, sizeof text, "%.17g", v);
            break;
        case 1:
            snprintf(text, sizeof text, "%.*f", (int)(r % 12), (double)(int64_t)r / 1e9);
            break;
        case 2:
            snprintf(text, sizeof text, "%lld.%llue%d", (long long)(int32_t)r,
                     (unsigned long long)(r >> 40), (int)(r >> 32 & 63) - 30);
            break;
        default:
            snprintf(text, sizeof text, "%llu", (unsigned long long)r);
            break;
        }
        status_t s = numbers_scan(str_of(text), f64, 1, &got);
        if (s) fail_msg("%s: %s", text, st_message(s));
        double want = strtod(text, NULL);
        if (memcmp(&got, &want, 8)) fail_msg("%s: %.17g, strtod %.17g", text, got, want);
        // In the midst of a text short numbers are read another way; some digits are cut off to be.
        text[1 + r % 24] = 0;
        snprintf(list, sizeof list, "[7,%s,-0.00000000000000000000]", text);
        s = numbers_scan(str_of(list), f64, 3, among);
        size_t n = strlen(text);
        bool whole = text[n - 1] >= '0' && text[n - 1] <= '9' && (n < 2 || text[n - 2] != 'e');
        if (s && whole && !strpbrk(text, "e")) fail_msg("%s: %s", list, st_message(s));
        want = strtod(text, NULL);
        if (!s && memcmp(&among[1], &want, 8))
            fail_msg("%s: %.17g, strtod %.17g", list, among[1], want);
        st_drop(s);
    }
}

static void print_scan(void **state) {
    (void)state;
    const char *types[] = {"pred", "s8",  "s16", "s32",  "s64", "u8", "u16",
                           "u32",  "u64", "f16", "bf16", "f32", "f64"};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const struct dtype_row *t = numbers_dtype(str_of(types[k]));
        enum { N = 4096 };
        uint64_t in[N], out[N];
        for (int i = 0; i < N; i++)
            in[i] = next();
        if (t->cls == NUM_PRED)
            for (int i = 0; i < N * 8; i++)
                ((uint8_t *)in)[i] &= 1;
        struct strbuf b = {0};
        numbers_print(&b, t, N, in);
        status_t s = numbers_scan((struct str){b.p, b.n}, t, N, out);
        if (s) fail_msg("%s: %s", types[k], st_message(s));
        for (int i = 0; i < N; i++) {
            const uint8_t *x = (uint8_t *)in + i * t->bytes, *y = (uint8_t *)out + i * t->bytes;
            uint64_t u = 0;
            memcpy(&u, x, (size_t)t->bytes);
            bool nan = (t->cls == NUM_F16 && (u & 0x7fff) > 0x7c00) ||
                       (t->cls == NUM_BF16 && (u & 0x7fff) > 0x7f80) ||
                       (t->cls == NUM_F32 && (u & 0x7fffffff) > 0x7f800000) ||
                       (t->cls == NUM_F64 && (u << 1) > 0xffe0000000000000ull);
            if (!nan && memcmp(x, y, (size_t)t->bytes))
                fail_msg("%s: element %d, bits %llx", types[k], i, (unsigned long long)u);
        }
        strbuf_done(&b);
    }
}

static void shapes_and_words(void **state) {
    (void)state;
    float f[4];
    assert_null(
        numbers_scan(STR(" [ [1, 2.5] ,[ -3e2,\"NaN\" ] ] "), numbers_dtype(STR("f32")), 4, f));
    assert_true(f[0] == 1 && f[1] == 2.5f && f[2] == -300 && isnan(f[3]));
    assert_null(numbers_scan(STR("7"), numbers_dtype(STR("f32")), 1, f));
    assert_null(numbers_scan(STR("[]"), numbers_dtype(STR("f32")), 0, f));
    assert_null(numbers_scan(STR("[ [ ] ]"), numbers_dtype(STR("f32")), 0, f));
    assert_null(numbers_scan(STR("[-Infinity]"), numbers_dtype(STR("f32")), 1, f));
    uint8_t p[2];
    assert_null(numbers_scan(STR("[true,0]"), numbers_dtype(STR("BOOL")), 2, p));
    assert_true(p[0] == 1 && p[1] == 0);
    assert_null(numbers_dtype(STR("FP8")));
}

static void refusals(void **state) {
    (void)state;
    static const char *const junk[] = {"1.", "-", ".5", "01", "1.2.3", "--1", "1e", "+1", "1-2"};
    for (size_t k = 0; k < sizeof junk / sizeof *junk; k++) {
        char list[64];
        snprintf(list, sizeof list, "[%s,1,1,1,1,1,1,1,1,1,1,1,1]", junk[k]);
        scan_bad(list, "FP64", 13, "element");
    }
    scan_bad("[1,2", "f32", 2, "too early");
    scan_bad("[1,,2]", "f32", 2, "','");
    scan_bad("[1,]", "f32", 1, "']'");
    scan_bad("[1 2]", "f32", 2, "element 1");
    scan_bad("[1,2,3]", "f32", 2, "more elements");
    scan_bad("[1]", "f32", 2, "has 1 elements");
    scan_bad("", "f32", 1, "too early");
    scan_bad("[01]", "s32", 1, "element 0");
    scan_bad("[300]", "u8", 1, "does not fit");
    scan_bad("[-1]", "u64", 1, "does not fit");
    scan_bad("[1.5]", "s64", 1, "does not fit");
    scan_bad("[1e400]", "f32", 1, "does not fit");
    scan_bad("[-1e400]", "f64", 1, "does not fit");
    scan_bad("[1e39]", "f32", 1, "does not fit");
    scan_bad("[70000]", "f16", 1, "does not fit");
    scan_bad("[9223372036854775808]", "s64", 1, "does not fit");
    scan_bad("[nan]", "f32", 1, "not a number");
    scan_bad("[\"NaN]", "f32", 1, "not a number");
    scan_bad("[1]", "c64", 1, "binary");
    scan_bad("1,2", "f32", 2, "','");
    scan_bad("[1][2]", "f32", 2, "'['");
}

// JSON's texts as the protocol's elements and back; escapes and pairs; what is cut off is refused.
static void texts(void **state) {
    (void)state;
    static const char json[] = "[[\"ab\",\"\"],[\"\\u00e9\\ud83d\\ude00\\n\",\"c\"]]";
    static const uint8_t want[] = "\2\0\0\0ab\0\0\0\0\7\0\0\0\xc3\xa9\xf0\x9f\x98\x80\n\1\0\0\0c";
    uint8_t got[64];
    int64_t bytes;
    assert_null(numbers_scan_strings(str_of(json), 4, NULL, &bytes));
    assert_int_equal(bytes, sizeof want - 1);
    assert_null(numbers_scan_strings(str_of(json), 4, got, &bytes));
    assert_memory_equal(got, want, sizeof want - 1);
    struct span data = {got, (size_t)bytes};
    assert_null(numbers_check_strings(data, 4));
    struct strbuf b = {0};
    numbers_print_strings(&b, 4, data);
    assert_null(numbers_scan_strings((struct str){b.p, b.n}, 4, got, &bytes));
    assert_memory_equal(got, want, sizeof want - 1);
    strbuf_done(&b);
    for (size_t cut = 0; cut < data.n; cut++) {
        status_t st = numbers_check_strings((struct span){got, cut}, 4);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        st_drop(st);
    }
    static const char *const bad[] = {"[\"a\",1]",           "[\"a\"]",         "[\"a\",\"b",
                                      "[\"\\ud83d\",\"\"]",  "[\"\\x\",\"\"]",  "[\"a\tb\",\"\"]",
                                      "[\"a\",\"b\",\"c\"]", "[\"\\u12\",\"\"]"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        status_t st = numbers_scan_strings(str_of(bad[k]), 2, NULL, &bytes);
        if (st_code(st) != ST_INVALID_ARGUMENT) fail_msg("'%s' was taken", bad[k]);
        st_drop(st);
    }
}

// A number as an element of each type: what fits is what reads back, rounded where it is real.
static void put(void **state) {
    (void)state;
    static const struct {
        const char *type;
        long double v, back;
        bool fits;
    } table[] = {
        {"f16", 0.1L, 0.0999755859375L, true},
        {"f16", 65504, 65504, true},
        {"f16", 65536, 0, false},
        {"bf16", 3.14159L, 3.140625L, true},
        {"bf16", 1e39L, 0, false},
        {"f32", 0.5L, 0.5L, true},
        {"f32", 1e39L, 0, false},
        {"f64", -0x1p900L, -0x1p900L, true},
        {"s8", -128, -128, true},
        {"s8", 128, 0, false},
        {"u8", 255, 255, true},
        {"u8", -1, 0, false},
        {"s16", 32767, 32767, true},
        {"u16", 65536, 0, false},
        {"s32", 2147483647, 2147483647, true},
        {"s32", 0.5L, 0, false},
        {"u32", 4294967295, 4294967295, true},
        {"s64", -0x1p63L, -0x1p63L, true},
        {"s64", 0x1p63L, 0, false},
        {"u64", 0x1p63L, 0x1p63L, true},
        {"u64", 0x1p64L, 0, false},
        {"pred", 1, 1, true},
        {"pred", 2, 0, false},
        {"string", 1, 0, false},
        {"c64", 1, 0, false},
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        const struct dtype_row *t = numbers_dtype(str_of(table[k].type));
        char bytes[3 * 16] = {0};
        assert_int_equal(numbers_put(t, bytes, 1, table[k].v), table[k].fits);
        if (table[k].fits) assert_true(numbers_at(t, bytes, 1) == table[k].back);
        assert_int_equal(bytes[0], 0); // elements beside stay
        assert_int_equal(bytes[2 * t->bytes], 0);
    }
    const struct dtype_row *f16 = numbers_dtype(STR("f16")), *s8 = numbers_dtype(STR("s8"));
    char one[2];
    assert_true(numbers_put(f16, one, 0, (long double)INFINITY));
    assert_true(numbers_put(f16, one, 0, (long double)NAN));
    assert_false(numbers_put(s8, one, 0, (long double)NAN));
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(against_strtod), cmocka_unit_test(print_scan),
                                   cmocka_unit_test(shapes_and_words), cmocka_unit_test(refusals),
                                   cmocka_unit_test(texts), cmocka_unit_test(put)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
