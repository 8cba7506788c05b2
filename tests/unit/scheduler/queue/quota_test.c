// SPDX-License-Identifier: Apache-2.0
// The quota: a minute's worth at once, then one every minute / n, never more than that saved up.
#include "scheduler/queue/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int64_t second = 1000000000;

static void refills(void **state) {
    (void)state;
    struct quota q;
    int64_t wait = 0, now = 77;
    quota_init(&q, 6, now);
    for (int i = 0; i < 6; i++)
        assert_true(quota_take(&q, now, 1, &wait));
    assert_false(quota_take(&q, now, 1, &wait));
    assert_int_equal(wait, 10000);
    assert_false(quota_take(&q, now + 4 * second, 1, &wait));
    assert_int_equal(wait, 6000);
    assert_true(quota_take(&q, now + 10 * second, 1, &wait));
    assert_false(quota_take(&q, now + 10 * second, 1, &wait));
    now += 3600 * second; // an hour saves up one minute
    for (int i = 0; i < 6; i++)
        assert_true(quota_take(&q, now, 1, &wait));
    assert_false(quota_take(&q, now, 1, &wait));
    assert_false(quota_take(&q, now - second, 1, &wait)); // a clock that steps back gives nothing
}

static void no_limit(void **state) {
    (void)state;
    struct quota q;
    int64_t wait;
    quota_init(&q, 0, 0);
    for (int i = 0; i < 1000; i++)
        assert_true(quota_take(&q, 0, 1, &wait));
}

// Bytes: what is larger than a minute's worth goes when the bucket is full and is paid off after.
static void debt(void **state) {
    (void)state;
    struct quota q;
    int64_t wait = 0;
    quota_init(&q, 1000, 0);
    assert_true(quota_take(&q, 0, 3000, &wait));
    assert_false(quota_take(&q, 0, 1, &wait));
    assert_int_equal(wait, 120060);
    assert_true(quota_take(&q, 121 * second, 1, &wait));
    quota_charge(&q, 1000); // the reply
    assert_false(quota_take(&q, 122 * second, 500, &wait));
    quota_set(&q, 0);
    assert_true(quota_take(&q, 122 * second, 500, &wait));
    quota_init(&q, 1, 0);
    quota_charge(&q, INT64_MAX);
    quota_charge(&q, INT64_MAX);
    assert_false(quota_take(&q, second, 1, &wait));
    assert_true(wait > 0);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(refills), cmocka_unit_test(no_limit),
                                   cmocka_unit_test(debt)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
