// SPDX-License-Identifier: Apache-2.0
// Tenants: the text of their rules, what is refused and what changes under those at work; quotas.
#include "scheduler/queue/tenant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "proto/hlod.pb-c.h"

static const int64_t second = 1000000000;

static void set(struct tenants *ts, const char *rules) {
    status_t st = tenants_set(ts, rules);
    if (st) fail_msg("%s", st_message(st));
}

static void rules(void **state) {
    (void)state;
    struct tenants ts = {0};
    set(&ts, "");
    struct tenant *early = tenants_get(&ts, "early", 0);
    assert_int_equal(early->limits.weight, 1);
    assert_ptr_equal(tenants_get(&ts, NULL, 0), tenants_get(&ts, "default", 0));
    assert_ptr_equal(tenants_get(&ts, "", 0), tenants_get(&ts, "default", 0));
    set(&ts, "a:weight=3:bytes=2K, early:places=2,*:runs=6");
    struct tenant *a = tenants_get(&ts, "a", 0), *other = tenants_get(&ts, "other", 0);
    assert_int_equal(a->limits.weight, 3);
    assert_int_equal(a->lanes[ROLE_DEVICE].weight, 3);
    assert_int_equal(a->limits.bytes, 2048);
    assert_int_equal(a->limits.runs, 0); // its own rule, not that of all others
    assert_int_equal(other->limits.runs, 6);
    assert_int_equal(early->limits.places, 2);
    early->places = 2;
    assert_false(tenant_may_place(early));
    set(&ts, "early:places=3");
    assert_true(tenant_may_place(early));
    assert_int_equal(a->limits.weight, 1);
    const char *last = "";
    for (struct tenant *t = ts.first; t; last = t->name, t = t->next)
        assert_true(strcmp(last, t->name) < 0);
    tenants_done(&ts);
}

static void bad_rules(void **state) {
    (void)state;
    struct tenants ts = {0};
    set(&ts, "a:weight=7");
    static const char *const bad[] = {"a:weight=0",
                                      "a:weight=1001",
                                      "a:colour=1",
                                      "a:weight",
                                      "a:runs=-1",
                                      "a:bytes=2X",
                                      "a b:runs=1",
                                      ":runs=1",
                                      "a/b",
                                      "a:runs=1:"
                                      "x"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        status_t st = tenants_set(&ts, bad[k]);
        if (st_code(st) != ST_INVALID_ARGUMENT) fail_msg("'%s' was taken", bad[k]);
        assert_non_null(strstr(st_message(st), "tenants"));
        st_drop(st);
    }
    assert_int_equal(tenants_get(&ts, "a", 0)->limits.weight, 7);
    tenants_done(&ts);
}

static void quotas(void **state) {
    (void)state;
    struct tenants ts = {0};
    set(&ts, "a:runs=60:bytes=1000");
    struct tenant *a = tenants_get(&ts, "a", 0);
    assert_null(tenant_admit(a, 0, 900));
    status_t st = tenant_admit(a, 0, 900);
    assert_int_equal(st_code(st), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_TENANT_QUOTA);
    assert_non_null(strstr(st_message(st), "1000 bytes"));
    assert_int_equal(st_get_retry_ms(st), 48000);
    st_drop(st);
    assert_int_equal(a->refused, 1);
    for (int k = 0; k < 59; k++)
        assert_null(tenant_admit(a, 0, 0));
    st = tenant_admit(a, 0, 0); // 59 and the first: what its bytes forbade was no run
    assert_non_null(strstr(st_message(st), "60 runs"));
    st_drop(st);
    assert_null(tenant_admit(a, second, 0));
    tenants_done(&ts);
}

// Names come from outside: the number of tenants is bounded, those at work stay.
static void bounded(void **state) {
    (void)state;
    struct tenants ts = {0};
    set(&ts, "");
    struct tenant *busy = tenants_get(&ts, "busy", 0);
    busy->jobs = 1;
    for (int k = 0; k < 3000; k++) {
        char name[24];
        snprintf(name, sizeof name, "t%d", k);
        tenants_get(&ts, name, 0);
    }
    assert_true(ts.n <= 1000);
    assert_ptr_equal(tenants_get(&ts, "busy", 0), busy);
    assert_false(tenant_name_fits(""));
    assert_false(tenant_name_fits("a\nb"));
    assert_false(
        tenant_name_fits("12345678901234567890123456789012345678901234567890123456789012345"));
    assert_true(tenant_name_fits("team-1.prod_x"));
    tenants_done(&ts);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(rules), cmocka_unit_test(bad_rules),
                                   cmocka_unit_test(quotas), cmocka_unit_test(bounded)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
