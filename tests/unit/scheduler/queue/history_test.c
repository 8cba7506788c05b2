// SPDX-License-Identifier: Apache-2.0
// The choice among kinds of devices: measured, planned, tried, first.
#include "scheduler/queue/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct digest work(const char *name) {
    return sha256_of(name, strlen(name));
}
static const struct history_candidate two[2] = {{"cpu:a", 0}, {"tpu:b", 0}};

static void first_and_tried(void **state) {
    (void)state;
    struct history h = {0};
    enum history_why why;
    history_init(&h);
    assert_int_equal(history_choose(&h, work("x"), two, 2, &why), 0);
    assert_int_equal(why, HISTORY_FIRST);
    for (int i = 0; i < HISTORY_LEARN_RUNS - 1; i++)
        history_note(&h, work("x"), "cpu:a", 1000, 500);
    assert_int_equal(history_choose(&h, work("x"), two, 2, &why), 0);
    assert_int_equal(why, HISTORY_MEASURED);
    history_note(&h, work("x"), "cpu:a", 1000, 500);
    assert_int_equal(history_choose(&h, work("x"), two, 2, &why), 1); // the other gets a try
    assert_int_equal(why, HISTORY_TRIED);
    const struct history_candidate busy[2] = {{"cpu:a", 0}, {"tpu:b", 1}}; // that is under way
    assert_int_equal(history_choose(&h, work("x"), busy, 2, &why), 0);
    history_done(&h);
}

static void measured_and_planned(void **state) {
    (void)state;
    struct history h = {0};
    enum history_why why;
    history_init(&h);
    for (int i = 0; i < HISTORY_LEARN_RUNS; i++)
        history_note(&h, work("x"), "cpu:a", 1000, 500);
    history_note(&h, work("x"), "tpu:b", 100, 500);
    assert_int_equal(history_choose(&h, work("x"), two, 2, &why), 1);
    assert_int_equal(why, HISTORY_MEASURED);
    // Work that only the CPU ran: planned from its size and how fast the other is.
    history_note(&h, work("y"), "cpu:a", 2000, 1000);
    assert_int_equal(history_choose(&h, work("y"), two, 2, &why), 1);
    assert_int_equal(why, HISTORY_PLANNED);
    // A queue there is worth waiting for, up to a point.
    const struct history_candidate queue[2] = {{"cpu:a", 0}, {"tpu:b", 8}},
                                   crowd[2] = {{"cpu:a", 0}, {"tpu:b", 15}};
    assert_int_equal(history_choose(&h, work("x"), queue, 2, &why), 1);
    assert_int_equal(history_choose(&h, work("x"), crowd, 2, &why), 0);
    // It became slow: the last runs count.
    for (int i = 0; i < 20; i++)
        history_note(&h, work("x"), "tpu:b", 5000, 500);
    assert_int_equal(history_choose(&h, work("x"), two, 2, &why), 0);
    history_done(&h);
}

static void bounded(void **state) {
    (void)state;
    struct history h = {0};
    history_init(&h);
    for (int i = 0; i < HISTORY_MAX + 100; i++) {
        struct digest d = sha256_of(&i, sizeof i);
        history_note(&h, d, "cpu:a", 1000, 500);
    }
    assert_true(h.runs.n <= HISTORY_MAX && h.works.n <= HISTORY_MAX);
    history_note(&h, work("x"), "cpu:a", 0, 500); // a run of no time changes nothing
    assert_null(smap_get(&h.runs, STR("x")));
    history_done(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_and_tried),
                                       cmocka_unit_test(measured_and_planned),
                                       cmocka_unit_test(bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
