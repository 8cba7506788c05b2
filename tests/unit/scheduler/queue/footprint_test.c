// SPDX-License-Identifier: Apache-2.0
// Footprint: an executable counts once however many runs use it, tensors for each.
#include "scheduler/queue/footprint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void counts(void **state) {
    (void)state;
    struct footprint f = {0};
    struct footprint_want a = {{{1}}, 1000, 10, 0}, a_big = {{{1}}, 1000, 500, 0},
                          b = {{{2}}, 70, 7, 0};
    assert_int_equal(footprint_needs(&f, &a), 1010);
    footprint_add(&f, &a);
    assert_int_equal(f.bytes, 1010);
    assert_int_equal(footprint_needs(&f, &a_big), 500);
    footprint_add(&f, &a_big);
    footprint_add(&f, &b);
    assert_int_equal(f.bytes, 1010 + 500 + 77);
    footprint_drop(&f, &a);
    assert_int_equal(f.bytes, 1500 + 77);
    footprint_drop(&f, &a_big);
    assert_int_equal(f.bytes, 77);
    assert_int_equal(footprint_needs(&f, &a), 1010);
    footprint_drop(&f, &b);
    assert_int_equal(f.bytes, 0);
    assert_int_equal(f.uses.n, 0);
    footprint_done(&f);
}

// In any order of coming and going nothing is left over.
static void returns_to_nothing(void **state) {
    (void)state;
    struct footprint f = {0};
    struct footprint_want held[64];
    int n = 0;
    uint32_t rng = 3;
    for (int k = 0; k < 5000; k++) {
        rng = rng * 1664525 + 1013904223;
        if (n < 64 && rng >> 31) {
            uint8_t key = rng >> 20 & 7;
            struct footprint_want w = {{{key}}, 100 * key, rng >> 10 & 255, 0};
            footprint_add(&f, &w);
            held[n++] = w;
        } else if (n) {
            int at = (int)((rng >> 8) % (uint32_t)n);
            footprint_drop(&f, &held[at]);
            held[at] = held[--n];
        }
        assert_true(f.bytes >= 0);
    }
    while (n)
        footprint_drop(&f, &held[--n]);
    assert_int_equal(f.bytes, 0);
    footprint_done(&f);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(counts), cmocka_unit_test(returns_to_nothing)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
