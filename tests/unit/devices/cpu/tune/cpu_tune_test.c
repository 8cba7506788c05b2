// SPDX-License-Identifier: Apache-2.0
// Tuning by given times (HLOD_CPU_TUNE): what is found, what a load makes of it, what is left
// alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "compiler/ir/text/text.h"
#include "devices/cpu/tune/cpu_tune.h"

// Two products; behind the second follows a function.
static const char text[] =
    "HloModule m\n"
    "ENTRY main {\n"
    "  x = f32[16,32] parameter(0)\n  y = f32[32,24] parameter(1)\n  z = f32[32,24] parameter(2)\n"
    "  a = f32[16,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  b = f32[16,24] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  t = f32[16,24] tanh(b)\n"
    "  ROOT r = (f32[16,24], f32[16,24]) tuple(a, t)\n}\n";

static void must(status_t st) {
    if (st) fail_msg("%s", st_message(st));
}
static struct executable *compiled(struct device *d) {
    struct hlo_module *m;
    struct executable *e;
    struct compile_options opt = {.disable_passes = "", .disable_rules = "", .verify_each = true};
    must(hlo_parse((struct str){text, sizeof text - 1}, NULL, &m));
    must(hlo_compile_module(m, &opt, dev_target(d), NULL, &e));
    return e;
}
struct fixture {
    struct device *d;
    struct arena a;
    struct dev_tuning t;
};
static void tuned(struct fixture *f, const char *times) {
    *f = (struct fixture){0};
    must(dev_open("cpu", &f->d));
    setenv("HLOD_CPU_TUNE", times, 1);
    must(f->d->vt->tune(f->d, compiled(f->d), &(struct dev_tune){.budget_ns = 1}, &f->a, &f->t));
    unsetenv("HLOD_CPU_TUNE");
}
static void done(struct fixture *f) {
    dev_close(f->d);
    arena_done(&f->a);
}
// What is not who takes it without a tuning, of the first step; NULL: nobody else can.
static const char *other(const struct dev_tuning *t) {
    for (int k = 1; k < t->steps[0].n_candidates; k++)
        if (!*t->steps[0].candidates[k].why ||
            strcmp(t->steps[0].candidates[k].why, "slower") == 0 ||
            strcmp(t->steps[0].candidates[k].why, "no clear gain") == 0)
            return t->steps[0].candidates[k].impl;
    return NULL;
}
// Who takes a step in a load by these choices.
static char *explained(struct device *d, const char *list, const struct exe_choice *v, int n,
                       int *choices) {
    struct executable *e = compiled(d);
    struct dev_exe *x;
    struct strbuf b = {0};
    executable_choose(e, list, v, n);
    must(dev_load(d, e, NULL, &x));
    *choices = dev_stats(x).choices;
    d->vt->explain(x, &b);
    char *said = strdup(strbuf_cstr(&b));
    strbuf_done(&b);
    dev_unload(x);
    return said;
}

static void keeps_what_is_faster(void **state) {
    (void)state;
    struct fixture f, g;
    char times[80];
    tuned(&f, "none=1");
    assert_true(f.t.complete);
    assert_true(f.t.n_steps >= 1);
    for (int k = 0; k < f.t.n_steps; k++)
        assert_int_equal(f.t.steps[k].kept, 0); // all took the same
    const char *name = other(&f.t);
    assert_non_null(name);
    snprintf(times, sizeof times, "%s=500", name);
    tuned(&g, times);
    const struct dev_tuned_step *s = &g.t.steps[0];
    assert_true(s->kept > 0);
    assert_string_equal(s->candidates[s->kept].impl, name);
    assert_int_equal(s->candidates[s->kept].ns, 500);
    assert_int_equal(s->candidates[0].ns, 1000);

    struct exe_choice v[] = {{s->instrs[0], name, s->candidates[0].impl, 500, 1000},
                             {"no.such", name, name, 1, 2}};
    int n;
    char *said = explained(f.d, g.t.list, v, 2, &n);
    assert_int_equal(n, 1); // the other has no step
    assert_non_null(strstr(said, "tuned: 0.0005 ms"));
    free(said);
    said = explained(f.d, "another list", v, 1, &n);
    assert_int_equal(n, 0);
    assert_null(strstr(said, "tuned"));
    free(said);
    v[0].impl = "no such implementation";
    said = explained(f.d, g.t.list, v, 1, &n);
    assert_int_equal(n, 0);
    free(said);
    done(&f);
    done(&g);
}

static void results(struct device *d, const char *list, const struct exe_choice *v, int n,
                    float out[2][16 * 24]) {
    float x[16 * 32], y[32 * 24], z[32 * 24];
    struct executable *e = compiled(d);
    struct dev_exe *l;
    struct dev_weights *w;
    for (int k = 0; k < 16 * 32; k++)
        x[k] = (float)(k % 17) / 8 - 1;
    for (int k = 0; k < 32 * 24; k++)
        y[k] = (float)(k % 13) / 8 - 1, z[k] = (float)(k % 11) / 8 - 1;
    executable_choose(e, list, v, n);
    must(dev_load(d, e, NULL, &l));
    must(dev_prepare(l, NULL, 0, NULL, &w));
    must(dev_run(
        l, w,
        &(struct dev_run){.in = (const void *[]){x, y, z}, .out = (void *[]){out[0], out[1]}}));
    dev_release(w);
    dev_unload(l);
}
// Each candidate that was not refused gives what the usual one gives.
static void same_values(void **state) {
    (void)state;
    struct fixture f;
    float want[2][16 * 24], got[2][16 * 24];
    tuned(&f, "none=1");
    results(f.d, f.t.list, NULL, 0, want);
    for (int k = 0; k < f.t.n_steps; k++)
        for (int c = 1; c < f.t.steps[k].n_candidates; c++) {
            const struct dev_tuned_step *s = &f.t.steps[k];
            assert_non_null(s->candidates[c].why);
            struct exe_choice v = {s->instrs[0], s->candidates[c].impl, "", 1, 2};
            results(f.d, f.t.list, &v, 1, got);
            for (int e = 0; e < 16 * 24; e++) {
                assert_float_equal(want[0][e], got[0][e], 1e-4);
                assert_float_equal(want[1][e], got[1][e], 1e-4);
            }
        }
    done(&f);
}

static void no_time_and_cancelled(void **state) {
    (void)state;
    struct device *d;
    struct arena a = {0};
    struct dev_tuning t;
    must(dev_open("cpu", &d));
    must(d->vt->tune(d, compiled(d), &(struct dev_tune){.budget_ns = 0}, &a, &t));
    assert_false(t.complete);
    assert_int_equal(t.n_steps, 0);
    _Atomic bool cancel = true;
    status_t st =
        d->vt->tune(d, compiled(d),
                    &(struct dev_tune){.budget_ns = clock_of_ms(60000), .cancel = &cancel}, &a, &t);
    assert_int_equal(st_code(st), ST_CANCELLED);
    st_drop(st);
    dev_close(d);
    arena_done(&a);
}
// With the clock: it ends, and what it says is in order.
static void by_the_clock(void **state) {
    (void)state;
    struct device *d;
    struct arena a = {0};
    struct dev_tuning t;
    must(dev_open("cpu", &d));
    must(d->vt->tune(d, compiled(d), &(struct dev_tune){.budget_ns = clock_of_ms(20000)}, &a, &t));
    for (int k = 0; k < t.n_steps; k++)
        assert_in_range(t.steps[k].kept, 0, t.steps[k].n_candidates - 1);
    dev_close(d);
    arena_done(&a);
}

// Values: sums in another order are the same, a wrong one is not; blocks' padding does not count.
static void values(void **state) {
    (void)state;
    struct hlo_module *m;
    float a[16 * 24], b[16 * 24];
    must(hlo_parse((struct str){text, sizeof text - 1}, NULL, &m));
    const struct hlo_instr *dot = NULL;
    HLO_EACH_INSTR(i, m->entry)
    if (i->op == HLO_DOT && !dot) dot = i;
    tune_fill(dot->shape, false, a);
    memcpy(b, a, sizeof b);
    assert_true(tune_same(dot, a, b));
    b[7] += 1e-6f;
    assert_true(tune_same(dot, a, b));
    b[7] += 1e-2f;
    assert_false(tune_same(dot, a, b));
    b[7] = __builtin_nanf("");
    assert_false(tune_same(dot, a, b));
    a[7] = b[7];
    assert_true(tune_same(dot, a, b));
    hlo_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_what_is_faster),
                                       cmocka_unit_test(same_values),
                                       cmocka_unit_test(no_time_and_cancelled),
                                       cmocka_unit_test(by_the_clock), cmocka_unit_test(values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
