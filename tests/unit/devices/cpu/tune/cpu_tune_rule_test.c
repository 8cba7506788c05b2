// SPDX-License-Identifier: Apache-2.0
// The rule by which a way to run a step is kept (devices/cpu/tune/cpu_tune_rule.c): clear gains
// alone, and noise that is in one round, or in both ways of many, decides nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cpu/tune/cpu_tune.h"

static struct tune_times times(int rounds, int64_t usual, int64_t one, int64_t two) {
    struct tune_times t = {.n_ways = 3, .n_rounds = rounds};
    for (int k = 0; k < rounds; k++)
        t.ns[0][k] = usual, t.ns[1][k] = one, t.ns[2][k] = two;
    return t;
}

static void clear_gain(void **state) {
    (void)state;
    struct tune_times t = times(TUNE_ROUNDS, 1000, 900, 800);
    assert_int_equal(tune_choose(&t), 2);
    t = times(TUNE_ROUNDS, 1000, 960, 1200); // not by 5%; slower
    assert_int_equal(tune_choose(&t), 0);
    t = times(TUNE_ROUNDS, 1000, 950, 1200);
    assert_int_equal(tune_choose(&t), 1);
}
static void few_rounds(void **state) {
    (void)state;
    struct tune_times t = times(TUNE_LEAST_ROUNDS - 1, 1000, 100, 100);
    assert_int_equal(tune_choose(&t), 0);
    t = times(0, 1000, 100, 100);
    assert_int_equal(tune_choose(&t), 0);
    assert_int_equal(tune_median(&t, 1), 0);
    t = times(TUNE_LEAST_ROUNDS, 1000, 100, 110);
    assert_int_equal(tune_choose(&t), 1);
}
// Much slower in a few rounds, as where another process ran: still a gain. Faster in half of them
// and slower in the other: none.
static void noise(void **state) {
    (void)state;
    struct tune_times t = times(TUNE_ROUNDS, 1000, 800, 2000);
    t.ns[1][3] = 50000;
    assert_int_equal(tune_choose(&t), 1);
    for (int k = 0; k < TUNE_ROUNDS; k += 2)
        t.ns[1][k] = 1100;
    assert_int_equal(tune_choose(&t), 0);
}
// All is three times as slow from some round on: rounds are compared in themselves.
static void drift(void **state) {
    (void)state;
    struct tune_times t = times(TUNE_ROUNDS, 1000, 990, 900);
    for (int w = 0; w < 3; w++)
        for (int k = TUNE_ROUNDS / 2; k < TUNE_ROUNDS; k++)
            t.ns[w][k] *= 3;
    assert_int_equal(tune_choose(&t), 2);
    assert_false(tune_wins(&t, 1));
    assert_false(tune_wins(&t, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(clear_gain), cmocka_unit_test(few_rounds),
                                       cmocka_unit_test(noise), cmocka_unit_test(drift)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
