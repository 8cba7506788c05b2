// SPDX-License-Identifier: Apache-2.0
// Jobs on their way to the journal: one that ends while a change of it waits behind another write
// has its result written, and told, once, and not before its record is put.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/message.h"
#include "scheduler/loop.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"
#include "tests/unit/scheduler/folder.h"

static int n_told;
static void told(struct suite_job *j) {
    (void)j;
    n_told++;
}
static void all_written(struct suites *s, struct loop *l) {
    while (s->saving || s->dirty.n)
        loop_turn(l);
}
static bool has_ended(struct journal_jobs *journal, int64_t suite) {
    struct arena a = {0};
    struct span record;
    bool ended = false;
    assert_null(journal_job_get(journal, NULL, suite, 1, JOB_PART_BRIEF, &a, &record, &ended));
    arena_done(&a);
    return ended;
}

static void test_ends_once(void **state) {
    char dir[] = "/tmp/save-test-XXXXXX";
    struct sched sched = {0};
    struct suites s = {.sched = &sched, .job_saved = told, .trimmed_ns = clock_ns()};
    struct suite x = {.s = &s};
    struct arena a = {0};
    bool existed;
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_null(journal_jobs_open(dir, &s.journal));
    assert_null(loop_new(&sched.loop));
    Hlod__V1__Job *brief = message_new(&a, &hlod__v1__job__descriptor);
    Hlod__V1__JobOutcome *o = message_new(&a, &hlod__v1__job_outcome__descriptor);
    struct span packed = {(const uint8_t *)"brief", 5};
    struct suite_record r = {
        .tenant = "t", .request = packed, .briefs = &packed, .n_jobs = 1, .created_ns = 1};
    assert_null(journal_suite_add(s.journal, &r, &existed));
    x.id = r.id;
    struct suite_job j = {.suite = &x, .n = 1, .brief = brief};

    suite_save(&j); // under way
    assert_non_null(s.saving);
    suite_save(&j); // and once more, behind it
    assert_true(j.dirty);
    o->state = arena_strdup(&a, "cancelled");
    o->finished = arena_strdup(&a, "2026-01-01T00:00:00Z");
    j.outcome = o;
    j.state = J_ENDING;
    j.put = P_UNDER_WAY;
    all_written(&s, sched.loop);
    assert_int_equal(n_told, 0);
    assert_false(has_ended(s.journal, r.id));

    j.put = P_FAILED; // the same until it is tried again
    suite_save(&j);
    all_written(&s, sched.loop);
    assert_int_equal(n_told, 0);

    j.put = P_NONE;
    suite_save(&j);
    all_written(&s, sched.loop);
    assert_int_equal(n_told, 1);
    assert_true(has_ended(s.journal, r.id));

    suite_save_free(&s);
    strbuf_done(&j.log);
    journal_jobs_close(s.journal);
    loop_free(sched.loop);
    arena_done(&a);
    assert_int_equal(folder_remove(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
