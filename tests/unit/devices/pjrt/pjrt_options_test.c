// SPDX-License-Identifier: Apache-2.0
// What a spec of the pjrt device says to the plugin's client: the type of each option.
#include "devices/pjrt/pjrt_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void types_of_options(void **state) {
    (void)state;
    struct arena a = {0};
    struct pj_options o;
    status_t st = pj_options_parse(
        &a,
        "plugin=/p.so:device=2:set.memory_fraction=0.25:set.small=1e-3:set.preallocate=true:"
        "set.node_id=-7:set.allocator=bfc:set.version=1.2.3:set.e=e5x",
        &o);
    assert_null(st);
    assert_int_equal(o.device, 2);
    assert_int_equal(o.n_set, 7);
    assert_string_equal(o.set[0].name, "memory_fraction");
    assert_int_equal(o.set[0].type, PJ_FLOAT);
    assert_true(o.set[0].f32 == 0.25f && o.set[0].value_size == 1);
    assert_int_equal(o.set[1].type, PJ_FLOAT);
    assert_int_equal(o.set[2].type, PJ_BOOL);
    assert_true(o.set[2].boolean && o.set[2].name_size == strlen("preallocate"));
    assert_int_equal(o.set[3].type, PJ_INT64);
    assert_int_equal(o.set[3].i64, -7);
    for (int k = 4; k < 7; k++)
        assert_int_equal(o.set[k].type, PJ_STRING);
    assert_string_equal(o.set[5].string, "1.2.3");
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(types_of_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
