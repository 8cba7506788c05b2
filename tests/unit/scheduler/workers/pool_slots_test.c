// SPDX-License-Identifier: Apache-2.0
// How many processes a configuration asks for, and what a compiler may take of a small machine.
#include "scheduler/workers/pool_slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *const cpu_and_sim[] = {"cpu", "sim", "sim:latency_us=5"};

static void reliefs(void **state) {
    (void)state;
    struct pool_config c = {.devices = cpu_and_sim, .n_devices = 3, .n_compile = 2};
    assert_int_equal(pool_slots(&c), 3 + 2 * 2);
    c.relief_ns = 1;
    assert_int_equal(pool_slots(&c), 4 + 2 * 2); // one for all processes of the CPU
    c.compile_relief_ns = 1;
    assert_int_equal(pool_slots(&c), 4 + 2 * 3); // one for the compilers of each kind
    assert_int_equal(pool_of_compilers(&c, "cuda"), 2);
    c.isolate = 5;
    assert_int_equal(pool_slots(&c), 3 * 5 + 2 * 5);
}

static void memory(void **state) {
    (void)state;
    struct pool_config c = {.n_compile = 1, .compile_memory = 8ll << 30};
    assert_int_equal(pool_compile_memory(&c, 64ll << 30), 8ll << 30);
    assert_int_equal(pool_compile_memory(&c, 4ll << 30), 3ll << 30); // a control group's
    c.n_compile = 3;
    assert_int_equal(pool_compile_memory(&c, 4ll << 30), 1ll << 30);
    c.compile_memory = 0; // no bound
    assert_int_equal(pool_compile_memory(&c, 4ll << 30), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reliefs), cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
