// SPDX-License-Identifier: Apache-2.0
// recent: order, bounds, and that many plain jobs do not wash out those with a profile.
#include "scheduler/records/recent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void add(struct recent *r, uint64_t job, bool keep_long) {
    Hlod__V1__RunRecord m = HLOD__V1__RUN_RECORD__INIT;
    m.job = job;
    recent_add(r, &m, keep_long);
}
static uint64_t job_of(struct span s) {
    Hlod__V1__RunRecord *m = hlod__v1__run_record__unpack(NULL, s.n, s.p);
    assert_non_null(m);
    uint64_t job = m->job;
    hlod__v1__run_record__free_unpacked(m, NULL);
    return job;
}

static void order(void **state) {
    struct recent *r = recent_new();
    struct span s[8];
    (void)state;
    assert_int_equal(recent_list(r, 8, s), 0);
    assert_null(recent_find(r, 1).p);
    assert_null(recent_find(r, 0).p); // an empty slot is no job
    for (uint64_t k = 1; k <= 5; k++)
        add(r, k, k == 2);
    assert_int_equal(recent_list(r, 8, s), 5);
    for (uint64_t k = 0; k < 5; k++)
        assert_int_equal(job_of(s[k]), 5 - k);
    assert_int_equal(recent_list(r, 2, s), 2);
    assert_int_equal(job_of(recent_find(r, 2)), 2);
    recent_free(r);
}

static void bounds(void **state) {
    struct recent *r = recent_new();
    struct span s[1000];
    (void)state;
    add(r, 1, true);
    for (uint64_t k = 2; k < 2000; k++)
        add(r, k, false);
    size_t n = recent_list(r, 1000, s);
    assert_int_equal(n, 257);
    assert_int_equal(job_of(s[0]), 1999);
    assert_int_equal(job_of(s[n - 1]), 1); // the profiled one is still there
    assert_null(recent_find(r, 2).p);
    recent_free(r);
}

// Profiles of 5 MB: what all of them together take is bounded, and the newest stay.
static void large(void **state) {
    enum { EACH = 5 << 20, MANY = 40 };
    struct recent *r = recent_new();
    struct span s[100];
    char *text = malloc(EACH + 1);
    size_t bytes = 0;
    (void)state;
    memset(text, 'x', EACH);
    text[EACH] = 0;
    for (uint64_t k = 1; k <= MANY; k++) {
        Hlod__V1__RunRecord m = HLOD__V1__RUN_RECORD__INIT;
        m.job = k;
        m.device = text;
        recent_add(r, &m, true);
    }
    size_t n = recent_list(r, 100, s);
    for (size_t k = 0; k < n; k++) {
        assert_int_equal(job_of(s[k]), MANY - k);
        bytes += s[k].n;
    }
    assert_in_range(n, 2, 7);
    assert_in_range(bytes, EACH, 32 << 20);
    assert_null(recent_find(r, 1).p);
    add(r, MANY + 1, true); // a small one again
    assert_int_equal(job_of(recent_find(r, MANY + 1)), MANY + 1);
    assert_int_equal(recent_list(r, 100, s), n + 1);
    free(text);
    recent_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(order), cmocka_unit_test(bounds),
                                       cmocka_unit_test(large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
