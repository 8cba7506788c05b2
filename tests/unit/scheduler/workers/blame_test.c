// SPDX-License-Identifier: Apache-2.0
// Who is put aside, for how long, and when it is forgotten.
#include "scheduler/workers/blame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct charge of(const char *tenant, const char *step, int k) {
    struct charge c = {.step = step, .work = {{(uint8_t)k, (uint8_t)(k >> 8)}}};
    strcpy(c.tenant, tenant);
    return c;
}
#define S INT64_C(1000000000)

static void aside(void **state) {
    (void)state;
    struct blames b = {0};
    struct charge bad = of("a", "run", 1), other = of("b", "run", 1), step = of("a", "inspect", 1);
    blames_add(&b, &bad, "signal 11", 100 * S);
    assert_null(blames_find(&b, &bad, 100 * S));
    assert_int_equal(blames_add(&b, &bad, "signal 4", 110 * S)->deaths, 2);
    const struct blame *x = blames_find(&b, &bad, 110 * S);
    assert_string_equal(x->why, "signal 4");
    assert_int_equal(x->until_ns, 170 * S);
    assert_null(blames_find(&b, &other, 110 * S)); // its inputs may be others
    assert_null(blames_find(&b, &step, 110 * S));  // may still be looked at
    assert_null(blames_find(&b, &bad, 170 * S));   // is tried again
    blames_add(&b, &bad, "", 171 * S);
    assert_int_equal(blames_find(&b, &bad, 171 * S)->until_ns, (171 + 120) * S);
    for (int64_t t = 300; t < 4300; t += 400)
        blames_add(&b, &bad, "", t * S);
    assert_int_equal(blames_find(&b, &bad, 3900 * S)->until_ns, (3900 + 3600) * S);
    assert_int_equal(b.rows.n, 1);
    assert_int_equal(blames_add(&b, &bad, "", 50000 * S)->deaths, 1); // long ago
    blames_done(&b);
}

static void lifted(void **state) {
    (void)state;
    struct blames b = {0};
    for (int k = 0; k < 3 * BLAME_MAX; k++) {
        struct charge c = of("a", "run", k / 2);
        blames_add(&b, &c, "", k);
    }
    assert_int_equal(b.rows.n, BLAME_MAX);
    struct charge first = of("a", "run", 0), last = of("a", "run", 3 * BLAME_MAX / 2 - 1);
    assert_null(blames_find(&b, &first, 0));
    assert_non_null(blames_find(&b, &last, 5000));
    assert_int_equal(blames_lift(&b, &last.work, 5000), 1);
    assert_null(blames_find(&b, &last, 5000));
    assert_int_equal(blames_lift(&b, NULL, 5000), BLAME_MAX - 1);
    blames_done(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(aside), cmocka_unit_test(lifted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
