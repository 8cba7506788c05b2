// SPDX-License-Identifier: Apache-2.0
// Loops that are one function (compiler/kernel/merge.h): they stop when they are told to, in an
// inner loop too, and a profile has one row for all of such a loop.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include "compiler/ir/text/text.h"
#include "devices/device.h"

// n times to n; for n = INT64_MAX it does not end.
static const char text[] =
    "HloModule m\n"
    "less { p = (s64[], s64[], s64[]) parameter(0)\n i = s64[] get-tuple-element(p), index=0\n"
    " n = s64[] get-tuple-element(p), index=1\n ROOT l = pred[] compare(i, n), direction=LT\n}\n"
    "step { p = (s64[], s64[], s64[]) parameter(0)\n i = s64[] get-tuple-element(p), index=0\n"
    " n = s64[] get-tuple-element(p), index=1\n s = s64[] get-tuple-element(p), index=2\n"
    " o = s64[] constant(1)\n j = s64[] add(i, o)\n x = s64[] xor(s, j)\n"
    " ROOT t = (s64[], s64[], s64[]) tuple(j, n, x)\n}\n"
    "more { p = (s64[], s64[], s64[]) parameter(0)\n i = s64[] get-tuple-element(p), index=0\n"
    " n = s64[] get-tuple-element(p), index=1\n ROOT l = pred[] compare(i, n), direction=LT\n}\n"
    "body { p = (s64[], s64[], s64[]) parameter(0)\n i = s64[] get-tuple-element(p), index=0\n"
    " n = s64[] get-tuple-element(p), index=1\n s = s64[] get-tuple-element(p), index=2\n"
    " z = s64[] constant(0)\n o = s64[] constant(1)\n j = s64[] add(i, o)\n"
    " t = (s64[], s64[], s64[]) tuple(z, n, s)\n"
    " w = (s64[], s64[], s64[]) while(t), condition=less, body=step\n"
    " x = s64[] get-tuple-element(w), index=2\n"
    " ROOT r = (s64[], s64[], s64[]) tuple(j, n, x)\n}\n"
    "ENTRY main { n = s64[] parameter(0)\n z = s64[] constant(0)\n"
    " t = (s64[], s64[], s64[]) tuple(z, n, z)\n"
    " w = (s64[], s64[], s64[]) while(t), condition=more, body=body\n"
    " ROOT x = s64[] get-tuple-element(w), index=2\n}\n";

static void must(status_t st) {
    if (st) fail_msg("%s", st_message(st));
}
struct loaded {
    struct device *d;
    struct dev_exe *x;
    struct dev_weights *w;
};
static void load(struct loaded *l) {
    struct hlo_module *m;
    struct executable *e;
    struct compile_options opt = {.disable_passes = "", .disable_rules = "", .verify_each = true};
    must(hlo_parse((struct str){text, sizeof text - 1}, NULL, &m));
    must(dev_open("cpu", &l->d));
    must(hlo_compile_module(m, &opt, dev_target(l->d), NULL, &e));
    must(dev_load(l->d, e, NULL, &l->x));
    must(dev_prepare(l->x, NULL, 0, NULL, &l->w));
}
static void unload(struct loaded *l) {
    dev_release(l->w);
    dev_unload(l->x);
    dev_close(l->d);
}
static status_t run(struct loaded *l, int64_t n, const _Atomic bool *cancel, struct profile *p,
                    int64_t *to) {
    return dev_run(
        l->x, l->w,
        &(struct dev_run){
            .in = (const void *[]){&n}, .out = (void *[]){to}, .cancel = cancel, .profile = p});
}

static void *cancel_soon(void *arg) {
    usleep(50000);
    *(_Atomic bool *)arg = true;
    return NULL;
}
static void stops(void **state) {
    (void)state;
    struct loaded l;
    load(&l);
    _Atomic bool cancel = false;
    pthread_t t;
    int64_t to = -1;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
    status_t st = run(&l, INT64_MAX, &cancel, NULL, &to);
    pthread_join(t, NULL);
    assert_int_equal(st_code(st), ST_CANCELLED);
    st_drop(st);
    cancel = false;
    must(run(&l, 5, &cancel, NULL, &to)); // and runs again
    assert_int_equal(to, 1 ^ 2 ^ 3 ^ 4 ^ 5);
    unload(&l);
}

static void one_row(void **state) {
    (void)state;
    struct loaded l;
    struct profile_row rows[8];
    struct profile p = {.rows = rows, .cap = 8};
    int64_t to;
    load(&l);
    must(run(&l, 100, NULL, &p, &to));
    assert_int_equal(p.n, 1);
    assert_string_equal(rows[0].impl, "loop");
    assert_true(rows[0].estimate_ns > 1000); // of all turns
    unload(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stops), cmocka_unit_test(one_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
