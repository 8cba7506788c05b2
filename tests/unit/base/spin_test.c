// SPDX-License-Identifier: Apache-2.0
// When a thread looks before it sleeps, on made times.
#include "base/spin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { US = 1000, MS = 1000 * US };

static int64_t look_ns(const struct spin *s, int64_t now) {
    return spin_until(s, now) - now;
}

static void looks_where_waits_are_brief(void **state) {
    (void)state;
    struct spin s = {.limit_ns = 200 * US};
    assert_int_equal(look_ns(&s, 0), 0); // nothing is known
    spin_saw_wait(&s, 20 * US);
    assert_int_equal(look_ns(&s, 0), 60 * US);
    for (int i = 0; i < 50; i++)
        spin_saw_wait(&s, 150 * US);
    assert_int_equal(look_ns(&s, 0), 200 * US); // no longer than the limit
}

static void sleeps_where_waits_are_long(void **state) {
    (void)state;
    struct spin s = {.limit_ns = 200 * US};
    for (int i = 0; i < 20; i++)
        spin_saw_wait(&s, 30 * US);
    spin_saw_wait(&s, 3600ll * 1000 * MS); // a pause of an hour is one long wait
    assert_true(look_ns(&s, 0) > 0);
    for (int i = 0; i < 3; i++)
        spin_saw_wait(&s, 1 * MS);
    assert_int_equal(look_ns(&s, 0), 0);
    for (int i = 0; i < 20; i++)
        spin_saw_wait(&s, 30 * US);
    assert_true(look_ns(&s, 0) > 0); // and again
}

static void rests_while_the_processor_is_wanted(void **state) {
    (void)state;
    struct spin s = {.limit_ns = 200 * US};
    spin_saw_wait(&s, 20 * US);
    assert_true(spin_saw_yield(&s, 0, 300));      // nobody took it
    assert_false(spin_saw_yield(&s, 0, 40 * US)); // the client, say: this look ends
    assert_true(look_ns(&s, 0) > 0);              // the next is as before
    int64_t now = 0, rest = 8;
    for (int i = 0; i < 20; i++, rest = rest < 1000 ? 2 * rest : 2000) { // other work
        assert_false(spin_saw_yield(&s, now, 4 * MS));
        assert_int_equal(look_ns(&s, now + rest * MS - 1), 0);
        now += rest * MS;
        assert_true(look_ns(&s, now) > 0);
    }
    assert_int_equal(rest, 2000);
}

static void never_without_a_limit(void **state) {
    (void)state;
    struct spin s = {.limit_ns = 0};
    for (int i = 0; i < 9; i++) {
        spin_begin(&s);
        assert_false(spin_again(&s));
        spin_end(&s);
    }
    spin_saw_wait(&s, 1);
    assert_int_equal(look_ns(&s, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_where_waits_are_brief),
        cmocka_unit_test(sleeps_where_waits_are_long),
        cmocka_unit_test(rests_while_the_processor_is_wanted),
        cmocka_unit_test(never_without_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
