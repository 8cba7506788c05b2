// SPDX-License-Identifier: Apache-2.0
// Who compiles which key, and who waits for it.
#include "scheduler/remote/claims.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

static struct digest key(int k) {
    return (struct digest){{(uint8_t)k, (uint8_t)(k >> 8), 1}};
}
static int ended;
static void count(void *ctx) {
    ended += *(int *)ctx;
}

static void one_at_a_time(void **state) {
    (void)state;
    struct claims c;
    const char *node = NULL;
    int one = 1;
    struct claim_wait a = {.ended = count, .ctx = &one}, b = a, gone = a;
    claims_init(&c);
    ended = 0;
    assert_true(claims_take(&c, key(1), "n0", "L0", 0, 100, &node));
    assert_true(claims_take(&c, key(1), "n0", "L0", 0, 100, &node)); // it asks again
    assert_false(claims_take(&c, key(1), "n1", "L1", 0, 100, &node));
    assert_string_equal(node, "n0");
    assert_true(claims_take(&c, key(2), "n1", "L1", 0, 100, &node)); // another key
    claims_wait(&c, key(1), &a);
    claims_wait(&c, key(1), &gone);
    claims_wait(&c, key(1), &b);
    claims_leave(&gone);
    claims_leave(&gone);
    claims_end(&c, key(1), "L9"); // not its
    assert_int_equal(ended, 0);
    claims_end(&c, key(1), "L0");
    assert_int_equal(ended, 2);
    claims_end(&c, key(1), NULL); // nobody's now
    assert_true(claims_take(&c, key(1), "n1", "L1", 0, 100, &node));
    claims_done(&c);
}

static void time_is_over(void **state) {
    (void)state;
    struct claims c;
    const char *node;
    int one = 1;
    struct claim_wait a = {.ended = count, .ctx = &one};
    claims_init(&c);
    ended = 0;
    assert_true(claims_take(&c, key(1), "n0", "L0", 0, 100, &node));
    claims_wait(&c, key(1), &a);
    assert_false(claims_take(&c, key(1), "n1", "L1", 99, 100, &node));
    assert_true(claims_take(&c, key(1), "n1", "L1", 100, 100, &node));
    assert_int_equal(ended, 1); // who waited hears of it
    claims_done(&c);
}

static void abandoned_ones_take_no_room(void **state) {
    (void)state;
    struct claims c;
    const char *node = NULL;
    claims_init(&c);
    for (int k = 0; k < CLAIMS_MAX + 9; k++) // who asked for them never comes back
        assert_true(claims_take(&c, key(k), "n0", "L0", 0, 100, &node));
    assert_true(claims_take(&c, key(9999), "n0", "L0", 99, 100, &node));
    assert_true(claims_take(&c, key(9999), "n1", "L1", 99, 100, &node)); // full: nobody remembers
    assert_true(claims_take(&c, key(9999), "n0", "L0", 100, 100, &node));
    assert_false(claims_take(&c, key(9999), "n1", "L1", 100, 100, &node));
    assert_int_equal(c.by_key.n, 1);
    claims_end(&c, key(9999), NULL);
    assert_null(c.oldest);
    assert_null(c.newest);
    claims_done(&c);
}

static void a_process_is_gone(void **state) {
    (void)state;
    struct claims c;
    const char *node;
    int one = 1;
    struct claim_wait w[4] = {{.ended = count, .ctx = &one},
                              {.ended = count, .ctx = &one},
                              {.ended = count, .ctx = &one},
                              {.ended = count, .ctx = &one}};
    claims_init(&c);
    ended = 0;
    for (int k = 0; k < 4; k++) {
        assert_true(claims_take(&c, key(k), k % 2 ? "n1" : "n0", k % 2 ? "L1" : "L0", 0, 9, &node));
        claims_wait(&c, key(k), &w[k]);
    }
    claims_end_of(&c, "L0");
    assert_int_equal(ended, 2);
    assert_false(claims_take(&c, key(1), "n2", "L2", 0, 9, &node));
    claims_end_of(&c, NULL);
    assert_int_equal(ended, 4);
    claims_done(&c);
}

// Beyond the bound nobody remembers, and everybody may compile.
static void bounded(void **state) {
    (void)state;
    struct claims c;
    const char *node;
    claims_init(&c);
    for (int k = 0; k < CLAIMS_MAX; k++)
        assert_true(claims_take(&c, key(k), "n0", "L0", 0, 9, &node));
    assert_true(claims_take(&c, key(CLAIMS_MAX), "n0", "L0", 0, 9, &node));
    assert_true(claims_take(&c, key(CLAIMS_MAX), "n1", "L1", 0, 9, &node));
    assert_false(claims_take(&c, key(7), "n1", "L1", 0, 9, &node));
    claims_done(&c);
}

struct again {
    struct claims *c;
    bool took;
};
static void take_again(void *ctx) {
    struct again *a = ctx;
    const char *node;
    a->took = claims_take(a->c, key(1), "n9", "L9", 5, 9, &node);
}
static void from_inside(void **state) {
    (void)state;
    struct claims c;
    const char *node;
    claims_init(&c);
    struct again one = {&c, false}, two = {&c, false};
    struct claim_wait a = {.ended = take_again, .ctx = &one},
                      b = {.ended = take_again, .ctx = &two};
    assert_true(claims_take(&c, key(1), "n0", "L0", 0, 9, &node));
    claims_wait(&c, key(1), &a);
    claims_wait(&c, key(1), &b);
    claims_end(&c, key(1), NULL);
    assert_true(one.took && two.took); // the same asker
    assert_false(claims_take(&c, key(1), "n0", "L0", 5, 9, &node));
    claims_done(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_at_a_time),
                                       cmocka_unit_test(time_is_over),
                                       cmocka_unit_test(abandoned_ones_take_no_room),
                                       cmocka_unit_test(a_process_is_gone),
                                       cmocka_unit_test(bounded), cmocka_unit_test(from_inside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
