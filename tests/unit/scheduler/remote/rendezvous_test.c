// SPDX-License-Identifier: Apache-2.0
// Which node keeps a key in mind: all say the same, shares are even, and a node that goes moves its
// own share only.
#include "scheduler/remote/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static struct digest key(int k) {
    return sha256_of(&k, sizeof k);
}
static void same_for_all(void **state) {
    (void)state;
    static const char *const one[] = {"a", "b", "c", "d"}, *const two[] = {"d", "b", "a", "c"};
    size_t x[3], y[3];
    for (int k = 0; k < 500; k++) {
        assert_int_equal(rendezvous(key(k), one, 4, x, 3), 3);
        assert_int_equal(rendezvous(key(k), two, 4, y, 3), 3);
        for (int i = 0; i < 3; i++)
            assert_string_equal(one[x[i]], two[y[i]]);
        assert_int_equal(rendezvous(key(k), one, 4, y, 1), 1);
        assert_int_equal(x[0], y[0]);
    }
    assert_int_equal(rendezvous(key(0), one, 0, x, 3), 0);
    assert_int_equal(rendezvous(key(0), one, 2, x, 3), 2);
}
static void even_and_steady(void **state) {
    (void)state;
    enum { NODES = 10, KEYS = 5000 };
    static char names[NODES][8];
    const char *nodes[NODES];
    int share[NODES] = {0};
    for (int i = 0; i < NODES; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        nodes[i] = names[i];
    }
    for (int k = 0; k < KEYS; k++) {
        size_t with, without;
        rendezvous(key(k), nodes, NODES, &with, 1);
        rendezvous(key(k), nodes, NODES - 1, &without, 1); // the last one goes
        share[with]++;
        if (with != NODES - 1) assert_int_equal(with, without);
    }
    for (int i = 0; i < NODES; i++)
        assert_in_range(share[i], KEYS / NODES * 8 / 10, KEYS / NODES * 12 / 10);
}
static void many(void **state) {
    (void)state;
    const char *nodes[RENDEZVOUS_MAX + 50];
    size_t out[3];
    for (int i = 0; i < RENDEZVOUS_MAX + 50; i++)
        nodes[i] = "same";
    assert_int_equal(rendezvous(key(1), nodes, RENDEZVOUS_MAX + 50, out, 3), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_for_all),
                                       cmocka_unit_test(even_and_steady), cmocka_unit_test(many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
