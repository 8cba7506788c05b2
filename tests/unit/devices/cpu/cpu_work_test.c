// SPDX-License-Identifier: Apache-2.0
// The memory that runs work in: executables take it in turn, streams and runs that go on meanwhile
// have blocks of their own; it grows for who joins and goes with who leaves. Steps that may run
// beside each other have scratch apart.
#include "devices/cpu/cpu_work.h"

#include "tests/conform/device_help.h"

const char *device_kind = "cpu";
enum { KB = 1 << 10 };

static struct cpu_exe user(struct device *d, const struct cpu_exe *of, int64_t memory,
                           int64_t scratch) {
    return (struct cpu_exe){
        .base.dev = d, .of = of, .memory_bytes = memory, .scratch_bytes = scratch};
}
static void *taken(struct cpu_exe *x) {
    ok(cpu_work_take(x));
    assert_non_null(x->memory);
    assert_true((char *)x->scratch >= (char *)x->memory + (x->scratch_bytes ? x->memory_bytes : 0));
    memset(x->memory, 1, (size_t)x->memory_bytes);
    memset(x->scratch, 2, (size_t)x->scratch_bytes);
    return x->memory;
}
static void *borrowed(struct cpu_exe *x) {
    void *p = taken(x);
    cpu_work_give(x);
    assert_null(x->memory);
    assert_null(x->scratch);
    return p;
}

static void test_in_turn(void **state) {
    (void)state;
    struct device *d = open_one();
    struct cpu_exe small = user(d, NULL, 100, 0), large = user(d, NULL, 900 * KB, 100 * KB),
                   larger = user(d, NULL, 1100 * KB, 0);
    ok(cpu_work_join(&small));
    ok(cpu_work_join(&large));
    void *p = borrowed(&large);
    assert_ptr_equal(borrowed(&small), p);
    ok(cpu_work_join(&larger)); // it grows, by more than is asked for
    p = borrowed(&larger);
    assert_ptr_equal(borrowed(&large), p);
    larger.scratch_bytes = 100 * KB;
    ok(cpu_work_join(&larger)); // again
    assert_ptr_equal(borrowed(&larger), p);

    // Nobody had a block for this one: what is there stays.
    struct cpu_exe most = user(d, NULL, INT64_C(1) << 60, 0);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ // they end the process there
    expect(cpu_work_join(&most), ST_RESOURCE_EXHAUSTED, "working set");
#endif
    borrowed(&larger);
    cpu_work_leave(&most); // it never joined
    cpu_work_leave(&larger);
    borrowed(&large);
    cpu_work_leave(&large);
    borrowed(&small);
    cpu_work_leave(&small);
    dev_close(d);
}

static void test_at_once(void **state) {
    (void)state;
    struct device *d = open_one();
    struct cpu_exe x = user(d, NULL, 300 * KB, 0), a = user(d, &x, 200 * KB, 10 * KB),
                   b = user(d, &x, 200 * KB, 10 * KB), other = user(d, NULL, 10 * KB, 0);
    ok(cpu_work_join(&x));
    ok(cpu_work_join(&a));
    ok(cpu_work_join(&b));
    ok(cpu_work_join(&other));
    void *p = taken(&a), *q = taken(&b), *r = taken(&other); // more than was said
    assert_ptr_not_equal(p, q);
    assert_ptr_not_equal(p, r);
    assert_ptr_not_equal(q, r);
    cpu_work_give(&b);
    borrowed(&x);
    cpu_work_give(&other);
    cpu_work_leave(&b);
    assert_int_equal(((char *)a.memory)[200 * KB - 1], 1); // who leaves takes nobody's
    cpu_work_give(&a);
    cpu_work_leave(&a);
    cpu_work_leave(&x);
    borrowed(&other);
    cpu_work_leave(&other);
    dev_close(d);
}

// Two loops whose state changes places, by way of scratch, and that need nothing of each other.
static const char loops[] =
    "HloModule m\n"
    "cond {\n"
    "  s = (s32[], f32[8,8], f32[8,8]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  n = s32[] constant(100)\n"
    "  ROOT c = pred[] compare(i, n), direction=LT\n"
    "}\n"
    "body {\n"
    "  s = (s32[], f32[8,8], f32[8,8]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  a = f32[8,8] get-tuple-element(s), index=1\n"
    "  b = f32[8,8] get-tuple-element(s), index=2\n"
    "  one = s32[] constant(1)\n"
    "  j = s32[] add(i, one)\n"
    "  c = f32[8,8] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  ROOT t = (s32[], f32[8,8], f32[8,8]) tuple(j, b, c)\n"
    "}\n"
    "ENTRY e {\n"
    "  x = f32[8,8] parameter(0)\n"
    "  y = f32[8,8] parameter(1)\n"
    "  z = s32[] constant(0)\n"
    "  p = (s32[], f32[8,8], f32[8,8]) tuple(z, x, y)\n"
    "  q = (s32[], f32[8,8], f32[8,8]) tuple(z, y, x)\n"
    "  v = (s32[], f32[8,8], f32[8,8]) while(p), condition=cond, body=body\n"
    "  w = (s32[], f32[8,8], f32[8,8]) while(q), condition=cond, body=body\n"
    "  a = f32[8,8] get-tuple-element(v), index=2\n"
    "  b = f32[8,8] get-tuple-element(w), index=2\n"
    "  ROOT r = (f32[8,8], f32[8,8]) tuple(a, b)\n"
    "}\n";

// Steps that run beside each other have scratch apart, within what there is.
static void apart(const struct cpu_exe *x, const struct cpu_plan *p) {
    const struct cpu_step *s = p->steps, *end = s + p->plan->n_steps;
    while (s < end && !s->beside_below)
        s++;
    assert_true(s + 1 < end);
    assert_true(s[0].own_bytes > 0 && s[1].own_bytes > 0);
    assert_true(s[1].own_at >= s[0].own_at + s[0].own_bytes);
    assert_true(s[1].own_at + s[1].own_bytes <= x->scratch_bytes);
}
static void test_beside(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, loops);
    struct dev_weights *w = prepare(x);
    apart((const struct cpu_exe *)x, ((const struct cpu_exe *)x)->main);

    // Powers of one rotation of the places: their exponents are Fibonacci's numbers.
    static float in[2][64], out[2][64];
    int v[2] = {0, 1}, u[2] = {1, 0};
    for (int k = 0; k < 8; k++)
        in[0][9 * k] = in[1][8 * k + (k + 1) % 8] = 1;
    for (int n = 0; n < 100; n++) {
        v[n % 2] = (v[0] + v[1]) % 8;
        u[n % 2] = (u[0] + u[1]) % 8;
    }
    for (int n = 0; n < 200; n++) {
        ok(run2(x, w, in[0], in[1], out[0], out[1]));
        for (int k = 0; k < 64; k++) {
            assert_true(out[0][k] == (float)(k % 8 == (k / 8 + v[1]) % 8));
            assert_true(out[1][k] == (float)(k % 8 == (k / 8 + u[1]) % 8));
        }
    }
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// The same of weights: two loops in prepare, whose steps have scratch for each row.
static const char prepared_loops[] =
    "HloModule m\n"
    "either { a = pred[] parameter(0) b = pred[] parameter(1) ROOT o = pred[] or(a, b) }\n"
    "more { a = f32[] parameter(0) b = f32[] parameter(1) ROOT o = f32[] maximum(a, b) }\n"
    "cond {\n"
    "  s = f32[128,128] parameter(0)\n"
    "  n = f32[] constant(100)\n"
    "  ns = f32[128,128] broadcast(n), dimensions={}\n"
    "  l = pred[128,128] compare(s, ns), direction=LT\n"
    "  no = pred[] constant(false)\n"
    "  ROOT c = pred[] reduce(l, no), dimensions={0,1}, to_apply=either\n"
    "}\n"
    "body {\n"
    "  s = f32[128,128] parameter(0)\n"
    "  l = f32[] constant(-inf)\n"
    "  m = f32[128] reduce(s, l), dimensions={0}, to_apply=more\n"
    "  k = f32[] constant(5)\n"
    "  five = f32[128] broadcast(k), dimensions={}\n"
    "  t = f32[128] subtract(m, five)\n"
    "  ts = f32[128,128] broadcast(t), dimensions={1}\n"
    "  one = f32[] constant(1)\n"
    "  ones = f32[128,128] broadcast(one), dimensions={}\n"
    "  p = f32[128,128] add(s, ones)\n"
    "  ROOT a = f32[128,128] maximum(p, ts)\n"
    "}\n"
    "ENTRY e {\n"
    "  x = f32[128,128] parameter(0), frontend_attributes={hlod_param=\"weight:0\"}\n"
    "  y = f32[128,128] parameter(1), frontend_attributes={hlod_param=\"weight:1\"}\n"
    "  i = f32[128,128] parameter(2)\n"
    "  v = f32[128,128] while(x), condition=cond, body=body\n"
    "  w = f32[128,128] while(y), condition=cond, body=body\n"
    "  c = f32[128,128] multiply(v, i)\n"
    "  d = f32[128,128] multiply(w, i)\n"
    "  ROOT t = (f32[128,128], f32[128,128]) tuple(c, d)\n"
    "}\n";

enum { SIDE = 128 };
static void turn(float *s) {
    for (bool again = true; again;) {
        float most[SIDE];
        memcpy(most, s, sizeof most);
        for (int k = 0; k < SIDE * SIDE; k++)
            if (s[k] > most[k % SIDE]) most[k % SIDE] = s[k];
        again = false;
        for (int k = 0; k < SIDE * SIDE; k++) {
            s[k] = s[k] + 1 > most[k % SIDE] - 5 ? s[k] + 1 : most[k % SIDE] - 5;
            again = again || s[k] < 100;
        }
    }
}
static void test_beside_prepared(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, prepared_loops);
    static float weights[2][SIDE * SIDE], want[2][SIDE * SIDE], ones[SIDE * SIDE],
        got[2][SIDE * SIDE];
    const struct span spans[] = {{(const uint8_t *)weights[0], sizeof *weights},
                                 {(const uint8_t *)weights[1], sizeof *weights}};
    for (int k = 0; k < SIDE * SIDE; k++) {
        ones[k] = 1;
        weights[0][k] = want[0][k] = (float)(k * 7 % 31);
        weights[1][k] = want[1][k] = (float)(k * 11 % 47);
    }
    turn(want[0]);
    turn(want[1]);
    for (int n = 0; n < 50; n++) {
        struct dev_weights *w = NULL;
        ok(dev_prepare(x, spans, 2, NULL, &w));
        ok(run2(x, w, ones, NULL, got[0], got[1]));
        assert_memory_equal(got, want, sizeof got);
        dev_release(w);
    }
    const struct cpu_plan *p = ((const struct cpu_exe *)x)->prepare;
    assert_int_equal(p->plan->n_steps, 2);
    assert_true(p->steps[0].beside_below > 1);
    int64_t end = 0;
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < p->steps[0].called[c]->plan->n_steps; k++) {
            const struct cpu_step *s = &p->steps[0].called[c]->steps[k],
                                  *other = &p->steps[1].called[c]->steps[k];
            if (s->own_at + s->own_bytes > end) end = s->own_at + s->own_bytes;
            assert_true(other->own_at >= s->own_at + s->own_bytes);
        }
    assert_true(end > 0);
    dev_unload(x);
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_turn),
                                       cmocka_unit_test(test_at_once),
                                       cmocka_unit_test(test_beside),
                                       cmocka_unit_test(test_beside_prepared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
