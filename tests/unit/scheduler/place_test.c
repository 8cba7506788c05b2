// SPDX-License-Identifier: Apache-2.0
// Placement: warm before cold, free before busy, waiting against never.
#include "scheduler/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct place_worker cpu(void) {
    return (struct place_worker){
        .role = ROLE_DEVICE, .kind = "cpu", .name = "cpu:0", .ready = true, .max_calls = 2};
}
static const struct place_want any = {ROLE_DEVICE, ""};

static void prefers(void **state) {
    (void)state;
    struct place_worker w[3] = {cpu(), cpu(), cpu()};
    assert_int_equal(place_choose(&any, w, 3), 0);
    w[0].calls = 1;
    assert_int_equal(place_choose(&any, w, 3), 1);
    w[2].has_executable = true;
    w[2].calls = 1;
    assert_int_equal(place_choose(&any, w, 3), 2);
    w[0].has_prepared = true;
    assert_int_equal(place_choose(&any, w, 3), 0);
    w[0].calls = 2; // warm but full: a cold free one is better than a queue
    assert_int_equal(place_choose(&any, w, 3), 2);
}

static void waits_or_never(void **state) {
    (void)state;
    struct place_worker w[2] = {cpu(), cpu()};
    w[0].ready = false;
    w[1].calls = 2;
    assert_int_equal(place_choose(&any, w, 2), PLACE_WAIT);
    w[0].hopeless = w[1].hopeless = true;
    assert_int_equal(place_choose(&any, w, 2), PLACE_NEVER);
    assert_int_equal(place_choose(&any, w, 0), PLACE_NEVER);
    const struct place_want compile = {ROLE_COMPILE, ""}, tpu = {ROLE_DEVICE, "tpu"},
                            named = {ROLE_DEVICE, "cpu:0"};
    w[0] = w[1] = cpu();
    assert_int_equal(place_choose(&compile, w, 2), PLACE_NEVER);
    assert_int_equal(place_choose(&tpu, w, 2), PLACE_NEVER);
    assert_int_equal(place_choose(&named, w, 2), 0);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(prefers), cmocka_unit_test(waits_or_never)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
