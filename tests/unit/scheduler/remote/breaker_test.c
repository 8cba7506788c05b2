// SPDX-License-Identifier: Apache-2.0
// When something outside is asked, left alone, and probed.
#include "scheduler/remote/breaker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int64_t S = 1000000000;

static void opens_and_closes(void **state) {
    (void)state;
    struct breaker b = {0};
    breaker_failed(&b, 0, 0, false);
    breaker_failed(&b, 0, 0, false);
    assert_false(breaker_down(&b));
    breaker_ok(&b); // failures in a row count
    for (int k = 0; k < BREAKER_FAILURES; k++)
        breaker_failed(&b, 10 * S, 0, false);
    assert_true(breaker_down(&b));
    assert_false(breaker_probe(&b, 10 * S));
    assert_true(breaker_probe(&b, 11 * S));
    assert_false(breaker_probe(&b, 12 * S)); // one at a time
    breaker_ok(&b);
    assert_false(breaker_down(&b));
    assert_false(breaker_probe(&b, 99 * S));
}

static void pauses_grow(void **state) {
    (void)state;
    struct breaker b = {0};
    int64_t now = 0;
    breaker_failed(&b, now, 0, true); // sure: one is enough
    assert_true(breaker_down(&b));
    static const int64_t pauses[] = {1, 2, 4, 8, 16, 32, 60, 60};
    for (size_t k = 0; k < sizeof pauses / sizeof *pauses; k++) {
        breaker_failed(&b, now, 0, true); // what was asked before it was down changes nothing
        assert_false(breaker_probe(&b, now + pauses[k] * S - 1));
        now += pauses[k] * S;
        assert_true(breaker_probe(&b, now));
        breaker_failed(&b, now, 0, false);
    }
}

static void it_said_when(void **state) {
    (void)state;
    struct breaker b = {0};
    breaker_failed(&b, 0, 5000, true);
    assert_false(breaker_probe(&b, 5 * S - 1));
    assert_true(breaker_probe(&b, 5 * S));
    breaker_failed(&b, 5 * S, INT64_MAX, true); // a minute at most
    assert_true(breaker_probe(&b, 65 * S));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens_and_closes),
                                       cmocka_unit_test(pauses_grow),
                                       cmocka_unit_test(it_said_when)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
