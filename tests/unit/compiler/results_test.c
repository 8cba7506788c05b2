// SPDX-License-Identifier: Apache-2.0
// Results of a size that only the run knows: said by the module, cut in place.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"
#include "compiler/results.h"

static struct hlo_module *parse(const char *attributes) {
    struct hlo_module *m;
    char text[600];
    snprintf(text, sizeof text,
             "HloModule m%s\n"
             "ENTRY %%e (x: f32[2,5,3], n: s64[]) -> (f32[2,5,3], s64[]) {\n"
             "  %%x = f32[2,5,3] parameter(0)\n  %%n = s64[] parameter(1)\n"
             "  ROOT %%r = (f32[2,5,3], s64[]) tuple(%%x, %%n)\n}\n",
             attributes);
    status_t st = hlo_parse(str_of(text), NULL, &m);
    if (st) fail_msg("%s", st_message(st));
    return m;
}

static void said(void **state) {
    (void)state;
    struct dynamic_result r[4];
    struct hlo_module *m = parse("");
    assert_int_equal(results_dynamic(m, r, 4), 0);
    assert_int_equal(results_sent(m), 2);
    results_set_dynamic(m, &(struct dynamic_result){0, 1, 1}, 1);
    assert_int_equal(results_dynamic(m, r, 4), 1);
    assert_int_equal(r[0].dim, 1);
    assert_int_equal(results_sent(m), 1);
    hlo_module_free(m);
    // Through text, as an artefact keeps it; what does not fit the root does not count.
    m = parse(", frontend_attributes={hlod_dynamic=\"0:1:1\"}");
    assert_int_equal(results_sent(m), 1);
    hlo_module_free(m);
    static const char *const bad[] = {"0:3:1", "1:0:1", "0:1:7", "0:1", "0:1:-1", "x", ""};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        char text[100];
        snprintf(text, sizeof text, ", frontend_attributes={hlod_dynamic=\"%s\"}", bad[k]);
        m = parse(text);
        assert_int_equal(results_sent(m), 2);
        hlo_module_free(m);
    }
}

static void cut(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 2, 5, 9, -4}, want[] = {0, 2, 5, 5, 0};
    for (int k = 0; k < 5; k++) {
        float v[30];
        int64_t dims[3] = {2, 5, 3};
        for (int i = 0; i < 30; i++)
            v[i] = (float)i;
        assert_int_equal(results_cut(4, 3, 1, sizes[k], v, dims), 2 * want[k] * 3 * 4);
        assert_int_equal(dims[0], 2);
        assert_int_equal(dims[1], want[k]);
        assert_int_equal(dims[2], 3);
        for (int64_t a = 0; a < 2; a++)
            for (int64_t i = 0; i < want[k] * 3; i++)
                assert_true(v[a * want[k] * 3 + i] == (float)(a * 15 + i));
    }
}
static void cut_all(void **state) {
    (void)state;
    struct hlo_module *m = parse(", frontend_attributes={hlod_dynamic=\"0:1:1\"}");
    float v[30];
    int64_t size = 4;
    for (int k = 0; k < 30; k++)
        v[k] = (float)k;
    int64_t **dims = results_cut_all(m->arena, m, (void *[]){v, &size});
    assert_int_equal(dims[0][0], 2);
    assert_int_equal(dims[0][1], 4);
    assert_null(dims[1]);
    assert_true(v[11] == 11 && v[12] == 15 && v[23] == 26); // the second 4x3 behind the first
    hlo_module_free(m);
}
static void cut_twice(void **state) {
    (void)state;
    int32_t v[12] = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};
    int64_t dims[2] = {3, 4};
    assert_int_equal(results_cut(4, 2, 1, 3, v, dims), 36);
    assert_int_equal(results_cut(4, 2, 0, 2, v, dims), 24);
    assert_int_equal(dims[0], 2);
    assert_int_equal(dims[1], 3);
    static const int32_t want[] = {0, 1, 2, 10, 11, 12};
    assert_memory_equal(v, want, sizeof want);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(said), cmocka_unit_test(cut),
                                   cmocka_unit_test(cut_twice), cmocka_unit_test(cut_all)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
