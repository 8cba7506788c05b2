// SPDX-License-Identifier: Apache-2.0
// What names of devices and targets mean with plugins that are installed, named or absent.
#include "scheduler/workers/plugins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/kinds.h"

static struct arena a;
static struct plugins p;

static int setup(void **state) {
    (void)state;
    return plugins_init(&a, "/nonexistent", "mine=/proc/self/exe:set.n=4, other=/none.so", &p) !=
           NULL;
}
static int teardown(void **state) {
    (void)state;
    arena_done(&a);
    return 0;
}

static void devices(void **state) {
    (void)state;
    const char *spec;
    assert_null(plugins_device(&p, &a, "cpu:plugin=mine:device=1", &spec));
    assert_string_equal(spec, "mine:device=1");
    assert_string_equal(plugins_worker_spec(&p, &a, spec),
                        "pjrt:plugin=/proc/self/exe:kind=mine:set.n=4:device=1");
    assert_null(plugins_device(&p, &a, "cpu:plugin=cpu", &spec));
    assert_string_equal(spec, "xla_cpu");
    assert_string_equal(plugins_worker_spec(&p, &a, "tpu"),
                        "pjrt:plugin=/nonexistent/plugins/tpu/libtpu/libtpu.so:kind=tpu");
    const char *const plain[] = {"cpu", "sim:latency_us=5", "pjrt:plugin=/x.so"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_null(plugins_device(&p, &a, plain[i], &spec));
        assert_string_equal(plugins_worker_spec(&p, &a, spec), plain[i]);
    }
    static const char *const kinds[] = {
#define KIND(kind, traits) #kind,
#include "proto/kinds.def"
#undef KIND
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_null(plugins_device(&p, &a, kinds[i], &spec));
    assert_true(kind_has("web", KIND_JOINS) && kind_has("web:0", KIND_OWN));
    assert_false(kind_has("gl", KIND_JOINS) || kind_has("pjrt", KIND_OWN));
    static const char *const bad[] = {"cpu:plugin=none", "cpuu", "", "gpuu:x=1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status_t st = plugins_device(&p, &a, bad[i], &spec);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        st_drop(st);
    }
}

static void targets(void **state) {
    (void)state;
    const char *kind, *name;
    const char *const good[][3] = {{"cpu", "cpu", ""},
                                   {"mine", "mine", ""},
                                   {"mine:v5e:2x2", "mine", "v5e:2x2"},
                                   {"cpu:plugin=mine", "mine", ""}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_null(plugins_target(&p, &a, good[i][0], &kind, &name));
        assert_string_equal(kind, good[i][1]);
        assert_string_equal(name, good[i][2]);
    }
    const char *const bad[][2] = {{"", "is not a target"},
                                  {":", "is not a target"},
                                  {"cpu:x", "is not a target"},
                                  {"tpux:v5e:1x1", "is not a target"},
                                  {"cpu:plugin=", "no plugin"},
                                  {"other:v5e:1x1", "cannot be read"},
                                  {"tpu:v5e:1x1", "hlo plugins install tpu"},
                                  {"gpu:h100", "hlo plugins install cuda"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status_t st = plugins_target(&p, &a, bad[i][0], &kind, &name);
        assert_non_null(st);
        if (!strstr(st_message(st), bad[i][1])) fail_msg("%s: %s", bad[i][0], st_message(st));
        st_drop(st);
    }
}

static void lists(void **state) {
    (void)state;
    const char *const bad[] = {"=x", "a=", "a b=/x", "gpu=/x.so", "sim=/x.so", "nofile"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plugins q = {0};
        status_t st = plugins_init(&a, "/d", bad[i], &q);
        if (st_code(st) != ST_INVALID_ARGUMENT) fail_msg("'%s' is taken", bad[i]);
        st_drop(st);
    }
    struct plugins q = {0}; // a plugin of one's own in the place of one that installs
    assert_null(plugins_init(&a, "/d", "tpu=/opt/libtpu.so", &q));
    assert_string_equal(plugins_of_kind(&q, "tpu")->path, "/opt/libtpu.so");
    assert_false(plugins_of_kind(&q, "tpu")->installs);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices), cmocka_unit_test(targets),
                                       cmocka_unit_test(lists)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
