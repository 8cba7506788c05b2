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

static void test_beside(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, loops);
    struct dev_weights *w = prepare(x);
    const struct cpu_exe *c = (const struct cpu_exe *)x;
    const struct cpu_step *s = c->main->steps, *end = s + c->main->plan->n_steps;
    while (s < end && !s->beside_below)
        s++;
    assert_true(s + 1 < end);
    assert_true(s[0].own_bytes > 0 && s[1].own_bytes > 0);
    assert_true(s[1].own_at >= s[0].own_at + s[0].own_bytes);
    assert_true(s[1].own_at + s[1].own_bytes <= c->scratch_bytes);

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_turn),
                                       cmocka_unit_test(test_at_once),
                                       cmocka_unit_test(test_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
