// SPDX-License-Identifier: Apache-2.0
// Several profiles of one program as one: medians without the first run, laid out in time.
#include "devices/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// A step, a loop of two steps, a step.
static void fill(struct profile *p, int64_t a, int64_t b, int64_t c, int64_t loop, int64_t d) {
    const int64_t ns[] = {a, b, c, loop, d};
    const int32_t depth[] = {0, 1, 1, 0, 0};
    for (int k = 0; k < 5; k++)
        p->rows[p->n++] =
            (struct profile_row){.name = "", .ns = ns[k], .start_ns = 1000 * k, .depth = depth[k]};
}

static void medians(void **state) {
    (void)state;
    struct arena a = {0};
    struct profile_runs runs;
    struct profile out;
    int n;
    profile_begin(&runs, &a, 8);
    fill(profile_next(&runs, true, 0), 9000, 9000, 9000, 20000, 9000); // touches
    fill(profile_next(&runs, true, 1), 10, 3, 4, 8, 5);
    fill(profile_next(&runs, true, 2), 700, 2, 5, 8, 6); // interrupted once
    fill(profile_next(&runs, true, 3), 12, 4, 6, 9, 900);
    assert_null(profile_next(&runs, true, PROFILE_ENOUGH_NS + 1));
    profile_median(&runs, &out, &n);
    assert_int_equal(n, 3);
    const int64_t want[][2] = {{0, 12}, {12, 3}, {15, 5}, {12, 8}, {20, 6}}; // start, ns
    for (int k = 0; k < 5; k++) {
        assert_int_equal(out.rows[k].start_ns, want[k][0]);
        assert_int_equal(out.rows[k].ns, want[k][1]);
    }
    assert_int_equal(profile_end(&out), 26); // longer than some of the runs
    arena_done(&a);
}

static void one(void **state) {
    (void)state;
    struct arena a = {0};
    struct profile_runs runs;
    struct profile out;
    int n;
    profile_begin(&runs, &a, 8);
    fill(profile_next(&runs, false, 0), 1, 2, 3, 6, 5); // a device that cannot repeat
    assert_null(profile_next(&runs, false, 0));
    profile_median(&runs, &out, &n);
    assert_int_equal(n, 1);
    assert_int_equal(out.rows[3].start_ns, 3000); // as it came
    profile_begin(&runs, &a, 8);
    fill(profile_next(&runs, true, 0), 1, 2, 3, 6, 5);
    assert_null(profile_next(&runs, true, PROFILE_SLOW_NS + 1)); // long enough to be believed
    arena_done(&a);
}

// A run that took other steps (a loop with other turns) is left out.
static void others(void **state) {
    (void)state;
    struct arena a = {0};
    struct profile_runs runs;
    struct profile out;
    int n;
    profile_begin(&runs, &a, 8);
    fill(profile_next(&runs, true, 0), 1, 1, 1, 2, 1);
    struct profile *p = profile_next(&runs, true, 0);
    fill(p, 50, 50, 50, 100, 50);
    p->n--;
    fill(profile_next(&runs, true, 0), 10, 1, 1, 2, 1);
    profile_median(&runs, &out, &n);
    assert_int_equal(n, 1);
    assert_int_equal(out.rows[0].ns, 10);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(medians), cmocka_unit_test(one),
                                       cmocka_unit_test(others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
