// SPDX-License-Identifier: Apache-2.0
// The cost model on the nominal machine (100 GFLOP/s; 200, 80, 30 and 10 GB/s): what steps are
// estimated at, against figures worked out by hand, within a factor.
#include "compiler/plan/estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/ir/text/text.h"

// The estimate of the module's last step.
static double us_of(const char *body, enum way way) {
    struct hlo_module *m;
    struct arena a = {0};
    struct plan *p;
    struct step_work w;
    status_t st = hlo_parse(str_of(body), NULL, &m);
    if (!st) st = plan_make(&a, m->entry, &p);
    if (st) fail_msg("%s", st_message(st));
    assert_true(p->n_steps > 0);
    estimate_work(&p->steps[p->n_steps - 1], &w);
    double ns = estimate_ns(&estimate_nominal, &w, way, 0, true);
    arena_done(&a);
    hlo_module_free(m);
    return ns / 1e3;
}
static void near(double us, double want) {
    if (us < want / 1.5 || us > want * 1.5) fail_msg("%g us, expected about %g", us, want);
}

#define DOT(m, k, n)                                                                               \
    "HloModule m\nENTRY e { x = f32[" m "," k "] parameter(0) y = f32[" k "," n                    \
    "] parameter(1) ROOT d = f32[" m "," n "] dot(x, y), lhs_contracting_dims={1}, "               \
    "rhs_contracting_dims={0} }\n"

static void products(void **state) {
    (void)state;
    near(us_of(DOT("512", "512", "512"), WAY_LIBRARY), 2.0 * 512 * 512 * 512 / 60e3);
    // Few rows: the matrix is read, 4 MiB from the third cache at half its rate.
    near(us_of(DOT("1", "1024", "1024"), WAY_THIN), (4 << 20) / 15e3);
    // A last resort is estimated as what it stands in for.
    double library = us_of(DOT("256", "256", "256"), WAY_LIBRARY);
    near(us_of(DOT("256", "256", "256"), WAY_KERNEL), library);
    near(us_of(DOT("256", "256", "256"), WAY_LAST), library);
}

static void loops(void **state) {
    (void)state;
    // 16 MiB there and back: memory.
    near(us_of("HloModule m\nENTRY e { x = f32[4194304] parameter(0) ROOT y = f32[4194304] "
               "negate(x) }\n",
               WAY_KERNEL),
         (32 << 20) / 5e3);
    // In the nearest cache: an exponential is worth 20 additions, at a quarter of the peak.
    near(us_of("HloModule m\nENTRY e { x = f32[2048] parameter(0) ROOT y = f32[2048] "
               "exponential(x) }\n",
               WAY_KERNEL),
         .2 + 2048 * 20 / 25e3);
    // A transposition addresses elements one by one.
    near(us_of("HloModule m\nENTRY e { x = f32[64,32] parameter(0) ROOT y = f32[32,64] "
               "transpose(x), dimensions={1,0} }\n",
               WAY_KERNEL),
         .2 + 2048 * .7e-3);
}

// What other threads wrote costs more where the machine says so, by their share of it; an input
// and a machine without that figure do not.
static void passed(void **state) {
    (void)state;
    struct step_work w = {.lanes = 1, .depth = 1, .bytes = 200e3, .passed = 100e3};
    struct machine m = estimate_nominal;
    m.threads = 2;
    double own = estimate_ns(&m, &w, WAY_COPY, 0, true);
    m.passed_rate = 4e9; // half of 100e3 bytes, .25 ns each instead of 1 / 40
    near((estimate_ns(&m, &w, WAY_COPY, 0, true) - own) / 1e3, 50 * (.25 - .025));
    // Both threads at once: half of that.
    m.passed_rate = 0;
    own = estimate_ns(&m, &w, WAY_KERNEL, 0, false);
    m.passed_rate = 4e9;
    near((estimate_ns(&m, &w, WAY_KERNEL, 0, false) - own) / 1e3, 25 * (.25 - .025));
    w.passed = 0;
    assert_true(estimate_ns(&m, &w, WAY_KERNEL, 0, false) == own);
}

static void parts(void **state) {
    (void)state;
    // Of a table only the rows that are asked for are read.
    double rows = us_of(
        "HloModule m\nENTRY e { t = f32[100000,256] parameter(0) i = s32[8,1] parameter(1) ROOT g "
        "= f32[8,256] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,256} }\n",
        WAY_KERNEL);
    assert_true(rows < 2);
    double slice = us_of("HloModule m\nENTRY e { x = f32[1000000] parameter(0) ROOT s = f32[64] "
                         "slice(x), slice={[128:192]} }\n",
                         WAY_KERNEL);
    assert_true(slice < 1);
    // An update in place, in a loop's body or of a value that nobody else reads, writes the update.
    double update =
        us_of("HloModule m\nENTRY e { p = f32[1000000] parameter(0) x = f32[1000000] negate(p) "
              "u = f32[4] parameter(1) i = s32[] parameter(2) ROOT d = f32[1000000] "
              "dynamic-update-slice(x, u, i) }\n",
              WAY_COPY);
    assert_true(update < 1);
}

static void control(void **state) {
    (void)state;
    double us = us_of(
        "HloModule m\nc { s = (s32[], f32[100000]) parameter(0) i = s32[] get-tuple-element(s), "
        "index=0\nn = s32[] constant(7) ROOT r = pred[] compare(i, n), direction=LT }\n"
        "b { s = (s32[], f32[100000]) parameter(0) i = s32[] get-tuple-element(s), index=0\nx = "
        "f32[100000] get-tuple-element(s), index=1\no = s32[] constant(1) j = s32[] add(i, o) y = "
        "f32[100000] exponential(x) ROOT r = (s32[], f32[100000]) tuple(j, y) }\n"
        "ENTRY e { s = (s32[], f32[100000]) parameter(0) ROOT w = (s32[], f32[100000]) while(s), "
        "condition=c, body=b }\n",
        WAY_CONTROL);
    assert_true(us < 1); // what it calls is estimated by itself
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(loops),
                                       cmocka_unit_test(passed), cmocka_unit_test(parts),
                                       cmocka_unit_test(control)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
