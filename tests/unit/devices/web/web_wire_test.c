// SPDX-License-Identifier: Apache-2.0
// A page's results against what was asked for.
#include "devices/web/web_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { OUTPUTS = 3 };
static const int64_t DIMS[] = {2, 3};
static const struct shape F32 = {.dtype = DT_F32, .rank = 2, .dims = (int64_t *)DIMS},
                          PRED = {.dtype = DT_PRED, .rank = 2, .dims = (int64_t *)DIMS},
                          S4 = {.dtype = DT_S4, .rank = 1, .dims = (int64_t *)DIMS};
static const struct shape *const SHAPES[OUTPUTS] = {&F32, &PRED, &S4};

static void make(struct arena *a, struct web_result *r, uint8_t **m) {
    status_t st = web_result_make(a, SHAPES, OUTPUTS, 77, r);
    assert_null(st);
    *m = arena_zarray(a, uint8_t, r->bytes + 8);
    memcpy(*m, r->head.p, r->head.n);
}
static void test_result(void **state) {
    (void)state;
    struct arena a = {0};
    struct web_result r;
    uint8_t *m;
    make(&a, &r, &m);
    assert_int_equal(r.head.n, 16 + 3 * 32 + 8 * (2 + 2 + 1));
    assert_int_equal(r.at[0], r.head.n);
    assert_int_equal(r.at[1], r.at[0] + 24);
    assert_int_equal(r.at[2], r.at[1] + 8);
    assert_int_equal(r.bytes, r.at[2] + 8);
    assert_memory_equal(r.head.p, "\3\0\0\0\x4d\0\0\0\3\0\0\0\0\0\0\0f32\0", 20);
    assert_null(web_result_fault(&r, (struct span){m, (size_t)r.bytes}));

    for (size_t n = 0; n < (size_t)r.bytes; n++) // any length but its own
        assert_non_null(web_result_fault(&r, (struct span){m, n}));
    assert_non_null(web_result_fault(&r, (struct span){m, (size_t)r.bytes + 1}));
    for (size_t k = 0; k < r.head.n; k++) // any byte of its head
        for (int bit = 0; bit < 8; bit++) {
            m[k] ^= (uint8_t)(1 << bit);
            assert_non_null(web_result_fault(&r, (struct span){m, (size_t)r.bytes}));
            m[k] ^= (uint8_t)(1 << bit);
        }
    arena_done(&a);
}
static void test_elements(void **state) {
    (void)state;
    struct arena a = {0};
    struct web_result r;
    uint8_t *m;
    make(&a, &r, &m);
    for (int v = 0; v < 256; v++) {
        m[r.at[0] + 3] = (uint8_t)v; // any float
        m[r.at[1] + 5] = v & 1;
        m[r.at[2] + 1] = 0;
        assert_null(web_result_fault(&r, (struct span){m, (size_t)r.bytes}));
        m[r.at[1] + 5] = (uint8_t)v;
        assert_int_equal(!web_result_fault(&r, (struct span){m, (size_t)r.bytes}), v < 2);
        m[r.at[1] + 5] = 1;
        m[r.at[2] + 1] = (uint8_t)v;
        assert_int_equal(!web_result_fault(&r, (struct span){m, (size_t)r.bytes}),
                         v < 8 || v >= 248);
    }
    arena_done(&a);
}
static void test_heads_and_texts(void **state) {
    (void)state;
    uint8_t head[WEB_HEAD_BYTES];
    enum web_type type;
    uint32_t number;
    char text[8];
    web_head(head, WEB_DONE, 0x01020304);
    assert_memory_equal(head, "\5\0\0\0\4\3\2\1", 8);
    assert_true(web_read_head((struct span){head, 8}, &type, &number));
    assert_int_equal(type, WEB_DONE);
    assert_int_equal(number, 0x01020304);
    assert_false(web_read_head((struct span){head, 7}, &type, &number));
    web_text((struct span){(const uint8_t *)"a\n\x80<b>cdef", 11}, text, sizeof text);
    assert_string_equal(text, "a?"
                              "?<b>c");
    web_text((struct span){NULL, 0}, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_result),
                                       cmocka_unit_test(test_elements),
                                       cmocka_unit_test(test_heads_and_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
