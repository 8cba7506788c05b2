// SPDX-License-Identifier: Apache-2.0
// Streams: runs of one executable at the same time, on the weight sets of the first, give what it
// gives; programs that cannot have them say so, and so do kinds of devices; the CPU's options.
#include <math.h>
#include <pthread.h>

#include "tests/conform/device_help.h"

const char *device_kind = "cpu";

// What the library and kernels run, with packed and plain weights, and a loop.
static const char network[] =
    "HloModule m\n"
    "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
    "cond {\n"
    "  s = (s32[], f32[64]) parameter(0)\n"
    "  n = s32[] constant(3)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  ROOT l = pred[] compare(i, n), direction=LT\n"
    "}\n"
    "body {\n"
    "  s = (s32[], f32[64]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  v = f32[64] get-tuple-element(s), index=1\n"
    "  one = s32[] constant(1)\n"
    "  j = s32[] add(i, one)\n"
    "  t = f32[64] tanh(v)\n"
    "  ROOT r = (s32[], f32[64]) tuple(j, t)\n"
    "}\n"
    "ENTRY e {\n"
    "  x = f32[1,16,20,20] parameter(0)\n"
    "  k = f32[16,16,3,3] parameter(1), frontend_attributes={hlod_param=\"weight:0\"}\n"
    "  w = f32[400,64] parameter(2), frontend_attributes={hlod_param=\"weight:1\"}\n"
    "  b = f32[64] parameter(3), frontend_attributes={hlod_param=\"weight:2\"}\n"
    "  zero = f32[] constant(0)\n"
    "  c = f32[1,16,20,20] convolution(x, k), window={size=3x3 pad=1_1x1_1}"
    ", dim_labels=bf01_oi01->bf01\n"
    "  h = f32[1,16,20,20] tanh(c)\n"
    "  f = f32[16,400] reshape(h)\n"
    "  d = f32[16,64] dot(f, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  bb = f32[16,64] broadcast(b), dimensions={1}\n"
    "  e = f32[16,64] add(d, bb)\n"
    "  g = f32[64] reduce(e, zero), dimensions={0}, to_apply=sum\n"
    "  i = s32[] constant(0)\n"
    "  t = (s32[], f32[64]) tuple(i, g)\n"
    "  l = (s32[], f32[64]) while(t), condition=cond, body=body\n"
    "  ROOT r = f32[64] get-tuple-element(l), index=1\n"
    "}\n";
enum {
    IN = 16 * 20 * 20,
    OUT = 64,
    KERNEL = 16 * 16 * 9,
    DENSE = 400 * 64,
    THREADS = 3,
    RUNS = 60
};

static void fill(float *p, int n, unsigned seed) {
    for (int k = 0; k < n; k++) {
        seed = seed * 1664525u + 1013904223u;
        p[k] = ((float)(seed >> 8) / (float)(1 << 24) - 0.5f) * 0.2f;
    }
}

struct runner {
    struct dev_exe *x;
    struct dev_weights *w;
    float in[IN], want[OUT];
    int bad;
};
static void *run_many(void *arg) {
    struct runner *r = arg;
    float out[OUT];
    for (int k = 0; k < RUNS; k++) {
        status_t st = run2(r->x, r->w, r->in, NULL, out, NULL);
        r->bad += st != ST_OK;
        st_drop(st);
        for (int e = 0; e < OUT; e++)
            r->bad += !(fabsf(out[e] - r->want[e]) < 1e-5f);
    }
    return NULL;
}

static void test_streams(void **state) {
    (void)state;
    static float kernel[KERNEL], dense[DENSE], bias[OUT];
    static struct runner r[THREADS];
    struct device *d = open_one();
    struct dev_exe *x = load(d, network);
    struct dev_weights *w;
    pthread_t t[THREADS];
    fill(kernel, KERNEL, 1);
    fill(dense, DENSE, 2);
    fill(bias, OUT, 3);
    struct span weights[] = {{(const uint8_t *)kernel, sizeof kernel},
                             {(const uint8_t *)dense, sizeof dense},
                             {(const uint8_t *)bias, sizeof bias}};
    ok(dev_prepare(x, weights, 3, NULL, &w));

    for (int k = 0; k < THREADS; k++) {
        ok(dev_stream(x, &r[k].x));
        r[k].w = w;
        r[k].bad = 0;
        fill(r[k].in, IN, 10 + (unsigned)k);
        ok(run2(x, w, r[k].in, NULL, r[k].want, NULL));
    }
    for (int k = 0; k < THREADS; k++)
        assert_int_equal(pthread_create(&t[k], NULL, run_many, &r[k]), 0);
    for (int k = 0; k < THREADS; k++) {
        pthread_join(t[k], NULL);
        assert_int_equal(r[k].bad, 0);
        assert_true(dev_stats(r[k].x).runs == RUNS);
    }
    for (int k = 0; k < THREADS; k++)
        dev_unload(r[k].x);

    float out[OUT]; // x is as it was
    ok(run2(x, w, r[0].in, NULL, out, NULL));
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

static void test_refused(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *s = NULL, *x = load(d, "HloModule m\nENTRY e { ROOT r = u64[2] "
                                           "rng-get-and-update-state(), delta=4\n}\n");
    expect(dev_stream(x, &s), ST_UNIMPLEMENTED, "goes on from the run before");
    dev_unload(x);
    x = load(d, "HloModule m\nENTRY e { x = f32[8192,8192] parameter(0) y = f32[8192,8192] "
                "negate(x) ROOT r = f32[8192,8192] transpose(y), dimensions={1,0}\n}\n");
    expect(dev_stream(x, &s), ST_UNIMPLEMENTED, "bytes each");
    dev_unload(x);
    dev_close(d);

    device_kind = "sim";
    d = open_one();
    x = load(d, TWICE);
    expect(dev_stream(x, &s), ST_UNIMPLEMENTED, "no streams");
    assert_null(s);
    dev_unload(x);
    dev_close(d);
    device_kind = "cpu";
}

static void test_options(void **state) {
    (void)state;
    struct device *d = NULL;
    expect(dev_open("cpu:threads=0", &d), ST_INVALID_ARGUMENT, "threads cannot be '0'");
    expect(dev_open("cpu:streams=two", &d), ST_INVALID_ARGUMENT, "streams cannot be 'two'");
    expect(dev_open("cpu:streams=2:thread=1", &d), ST_INVALID_ARGUMENT, "no option thread=1");
    assert_null(d);
    ok(dev_open("cpu:threads=3:streams=7", &d));
    assert_int_equal(dev_attributes(d).streams, 7);
    dev_close(d);
    ok(dev_open("cpu:threads=1", &d));
    assert_int_equal(dev_attributes(d).streams, 1);
    dev_close(d);
    ok(dev_open("cpu:threads=3", &d));
    assert_int_equal(dev_attributes(d).streams, 3);
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
