// SPDX-License-Identifier: Apache-2.0
// Parameters of a URL as fields of a compile request and its options, and those that are refused.
#include "proto/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/hlod.pb-c.h"

static struct arena a;

static void compile(void **state) {
    (void)state;
    Hlod__V1__CompileRequest c = HLOD__V1__COMPILE_REQUEST__INIT;
    assert_null(query_set(&a, &c.base, "shape", "in=put=1x3"));
    assert_null(query_set(&a, &c.base, "shape", "s="));
    assert_null(query_set(&a, &c.base, "precision", "strict"));
    assert_null(query_set(&a, &c.base, "timeout_ms", "5"));
    assert_int_equal(c.n_shapes, 2);
    assert_string_equal(c.shapes[0]->input, "in=put");
    assert_int_equal(c.shapes[0]->dims[1], 3);
    assert_int_equal(c.shapes[1]->n_dims, 0);
    assert_string_equal(c.options->precision, "strict");
    assert_int_equal(c.timeout_ms, 5);
    const char *bad[][2] = {{"shape", "x"},    {"shape", "=1"},   {"shape", "x=1xx2"},
                            {"shape", "x=1x"}, {"shape", "x=-1"}, {"timeout_ms", "x"},
                            {"nope", "1"},     {"options", "1"},  {"source", "aaaa"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status_t st = query_set(&a, &c.base, bad[i][0], bad[i][1]);
        if (!st) fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        st_drop(st);
    }
}

static void budget(void **state) {
    (void)state;
    Hlod__V1__CompileRequest c = HLOD__V1__COMPILE_REQUEST__INIT;
    assert_null(query_set(&a, &c.base, "budget", "instructions=10,hbm=2K"));
    assert_int_equal(c.budget->instructions, 10);
    assert_int_equal(c.budget->hbm, 2048);
    const char *bad[] = {"10", "instructions", "instructions=-1", "time=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status_t st = query_set(&a, &c.base, "budget", bad[i]);
        if (!st) fail_msg("budget=%s was taken", bad[i]);
        st_drop(st);
    }
}

static void options_of_a_run(void **state) {
    (void)state;
    Hlod__V1__RunRequest r = HLOD__V1__RUN_REQUEST__INIT;
    assert_null(query_set(&a, &r.base, "stream", "1")); // of the route
    assert_null(query_set(&a, &r.base, "model", "m"));
    assert_null(query_set(&a, &r.base, "profile", "true"));
    assert_null(query_set(&a, &r.base, "precision", "fast"));
    assert_string_equal(r.model, "m");
    assert_true(r.options->profile);
    assert_string_equal(r.options->compile->precision, "fast");
    status_t st = query_set(&a, &r.base, "shape", "x=1");
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(compile), cmocka_unit_test(budget),
                                   cmocka_unit_test(options_of_a_run)};
    int bad = cmocka_run_group_tests(t, NULL, NULL);
    arena_done(&a);
    return bad;
}
