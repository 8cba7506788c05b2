// SPDX-License-Identifier: Apache-2.0
// Records of tunings: kept and read again by another life of the store; those that do not hold are
// left aside and counted.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "scheduler/records/tuning.h"
#include "tests/unit/scheduler/folder.h"

static char dir[] = "/tmp/hlod-tuning-XXXXXX";
static const struct digest key = {.b = {1, 2, 3}};

static void must(status_t st) {
    if (st) fail_msg("%s", st_message(st));
}
static struct store *opened(void) {
    struct store *s;
    must(store_open(dir, 0, &s));
    return s;
}
static Hlod__V1__ExecutableInfo of(const char *target, const char *content) {
    Hlod__V1__ExecutableInfo x = HLOD__V1__EXECUTABLE_INFO__INIT;
    x.target_id = (char *)(uintptr_t)target;
    x.content_digest = (char *)(uintptr_t)content;
    return x;
}
static void keep(struct store *s) {
    Hlod__V1__Tuning t = HLOD__V1__TUNING__INIT;
    Hlod__V1__TunedStep step = HLOD__V1__TUNED_STEP__INIT, *steps[] = {&step};
    step.usual = (char *)"one";
    step.kept = (char *)"other";
    t.target_id = (char *)"cpu:a";
    t.content_digest = (char *)"c0";
    t.steps = steps;
    t.n_steps = 1;
    must(tuning_keep(s, key, &t));
}
static bool holds(struct store *s, const char *target, const char *content) {
    Hlod__V1__ExecutableInfo x = of(target, content);
    Hlod__V1__Tuning *t = tuning_read(s, key, &x);
    bool yes = t && t->n_steps == 1 && strcmp(t->steps[0]->kept, "other") == 0;
    if (t) hlod__v1__tuning__free_unpacked(t, NULL);
    return yes;
}
static int64_t ignored(void) {
    return metric_get(M_TUNINGS_IGNORED);
}
static void damage(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/tunings/%.2s/%s", dir, digest_to_hex(key).z,
             digest_to_hex(key).z);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(c ^ 1, f);
    fclose(f);
}

static void kept(void **state) {
    (void)state;
    struct store *s = opened();
    int64_t before = ignored();
    assert_false(holds(s, "cpu:a", "c0")); // none: nothing to ignore
    keep(s);
    assert_true(holds(s, "cpu:a", "c0"));
    store_close(s);
    s = opened();
    assert_true(holds(s, "cpu:a", "c0"));
    assert_int_equal(ignored(), before);
    assert_false(holds(s, "cpu:b", "c0"));
    assert_false(holds(s, "cpu:a", "c1"));
    assert_int_equal(ignored(), before + 2);
    assert_true(holds(s, "cpu:a", "c0")); // it stays
    store_close(s);
}
static void damaged(void **state) {
    (void)state;
    struct store *s = opened();
    int64_t before = ignored();
    keep(s);
    damage();
    assert_false(holds(s, "cpu:a", "c0"));
    assert_int_equal(ignored(), before + 1);
    assert_false(holds(s, "cpu:a", "c0")); // it is in quarantine now
    assert_int_equal(ignored(), before + 1);
    keep(s);
    assert_true(holds(s, "cpu:a", "c0"));
    must(store_put(s, STORE_TUNING, key, "\xff\xff\xff", 3, false)); // whole, but no message
    assert_false(holds(s, "cpu:a", "c0"));
    assert_int_equal(ignored(), before + 2);
    store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kept), cmocka_unit_test(damaged)};
    if (!mkdtemp(dir)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return folder_remove(dir) || rc;
}
