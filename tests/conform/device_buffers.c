// SPDX-License-Identifier: Apache-2.0
// The contract of device.h, resident values: put and get, results that stay, donation.
#include "tests/conform/device_help.h"

// Two states change places; each grows.
#define SWAP                                                                                       \
    "HloModule m\nENTRY e { a = f32[4] parameter(0) b = f32[4] parameter(1) c = f32[] "            \
    "constant(1) d = f32[4] broadcast(c), dimensions={}\n s = f32[4] add(a, d) ROOT t = (f32[4], " \
    "f32[4], f32[4]) tuple(b, a, s) }\n"

static const struct shape *f32x4(struct arena *a) {
    return shape_make(a, DT_F32, (const int64_t[]){4}, 1);
}
static struct dev_buffer *put4(struct device *d, const float v[4]) {
    struct arena a = {0};
    struct dev_buffer *b = NULL;
    ok(dev_put(d, f32x4(&a), v, &b));
    arena_done(&a); // the shape is copied
    return b;
}
static void holds(struct dev_buffer *b, const float want[4]) {
    float v[4] = {0};
    assert_int_equal(b->bytes, sizeof v);
    ok(dev_get(b, 0, sizeof v, v));
    assert_memory_equal(v, want, sizeof v);
}

void test_buffers(void **state) {
    (void)state;
    struct device *d = open_one();
    struct arena a = {0};
    const float v[4] = {1.5f, -2, 0, 1e30f};
    struct dev_buffer *b = put4(d, v), *scalar = NULL, *empty = NULL;
    float part[2];
    holds(b, v);
    assert_int_equal(b->shape->rank, 1);
    ok(dev_get(b, 4, 8, part));
    assert_memory_equal(part, v + 1, sizeof part);
    ok(dev_put(d, shape_scalar(&a, DT_F32), v, &scalar));
    ok(dev_get(scalar, 0, 4, part));
    assert_true(part[0] == 1.5f);
    ok(dev_put(d, shape_make(&a, DT_S32, (const int64_t[]){0, 3}, 2), v, &empty));
    assert_int_equal(empty->bytes, 0);
    ok(dev_get(empty, 0, 0, part));
    dev_buffer_ref(b);
    dev_buffer_unref(b);
    holds(b, v); // one reference is left
    dev_buffer_unref(b);
    dev_buffer_unref(scalar);
    dev_buffer_unref(empty);
    dev_buffer_unref(NULL);
    arena_done(&a);
    dev_close(d);
}

void test_kept_results(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, SWAP);
    struct dev_weights *w = prepare(x);
    const float a[4] = {1, 2, 3, 4}, b[4] = {-1, -2, -3, -4}, s[4] = {2, 3, 4, 5};
    float back[4];
    struct dev_buffer *ba = put4(d, a), *in[] = {ba, NULL}, *kept[3] = {0};
    const void *host[] = {NULL, b};
    void *out[] = {NULL, back, NULL};
    ok(dev_run(x, w, &(struct dev_run){.in = host, .out = out, .in_buffers = in, .kept = kept}));
    holds(kept[0], b);
    assert_memory_equal(back, a, sizeof back);
    holds(kept[2], s);
    assert_null(kept[1]);
    holds(ba, a); // was not donated: untouched, also where a result is the input itself
    dev_buffer_unref(ba);
    holds(kept[0], b);
    dev_release(w);
    dev_unload(x); // buffers outlive the executable that made them
    holds(kept[2], s);
    dev_buffer_unref(kept[0]);
    dev_buffer_unref(kept[2]);
    dev_close(d);
}

// Both inputs are given away and change places: neither may be overwritten before it is read.
void test_donation(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, SWAP);
    struct dev_weights *w = prepare(x);
    float a[4] = {1, 2, 3, 4}, b[4] = {-1, -2, -3, -4}, s[4], t[4];
    struct dev_buffer *in[2] = {put4(d, a), put4(d, b)};
    const bool donate[2] = {true, true};
    for (int turn = 0; turn < 5; turn++) {
        struct dev_buffer *kept[3] = {0};
        const void *host[2] = {0};
        void *out[3] = {NULL, NULL, s};
        ok(dev_run(x, w,
                   &(struct dev_run){
                       .in = host, .out = out, .in_buffers = in, .donate = donate, .kept = kept}));
        dev_buffer_unref(in[0]);
        dev_buffer_unref(in[1]);
        holds(kept[0], b);
        holds(kept[1], a);
        for (int k = 0; k < 4; k++)
            assert_true(s[k] == a[k] + 1);
        memcpy(t, a, sizeof t), memcpy(a, b, sizeof a), memcpy(b, t, sizeof b);
        in[0] = kept[0], in[1] = kept[1];
    }
    dev_buffer_unref(in[0]);
    dev_buffer_unref(in[1]);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

void test_failed_run_donates_nothing(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, TWICE);
    struct dev_weights *w = prepare(x);
    const float v[4] = {1, 2, 3, 4}, twice[4] = {2, 4, 6, 8};
    struct dev_buffer *in[] = {put4(d, v)}, *kept[1] = {0};
    const void *host[1] = {0};
    void *out[1] = {0};
    _Atomic bool cancel = true;
    struct dev_run r = {.in = host,
                        .out = out,
                        .in_buffers = in,
                        .donate = (const bool[]){true},
                        .kept = kept,
                        .cancel = &cancel};
    expect(dev_run(x, w, &r), ST_CANCELLED, "cancelled");
    assert_null(kept[0]);
    holds(in[0], v);
    cancel = false;
    ok(dev_run(x, w, &r));
    holds(kept[0], twice);
    dev_buffer_unref(in[0]);
    dev_buffer_unref(kept[0]);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// 64 KiB of memory: what is put and kept counts, what is dropped or donated is given back.
void test_sim_buffers_are_counted(void **state) {
    (void)state;
    struct device *d = NULL;
    struct arena a = {0};
    ok(dev_open("sim:memory=64K", &d));
    const struct shape *s = shape_make(&a, DT_F32, (const int64_t[]){6000}, 1);
    float *v = arena_zarray(&a, float, 6000);
    struct dev_buffer *b[3] = {0};
    ok(dev_put(d, s, v, &b[0]));
    ok(dev_put(d, s, v, &b[1]));
    expect(dev_put(d, s, v, &b[2]), ST_RESOURCE_EXHAUSTED, "buffer");
    dev_buffer_unref(b[1]);
    struct dev_exe *x = load(
        d, "HloModule m\nENTRY e { x = f32[6000] parameter(0) ROOT r = f32[6000] negate(x) }\n");
    struct dev_weights *w = prepare(x);
    const void *host[1] = {0};
    void *out[1] = {0};
    const bool donate[1] = {true};
    for (int k = 0; k < 100; k++) { // kept beside the donated one there is room for one more only
        struct dev_buffer *kept[1] = {0};
        ok(dev_run(x, w,
                   &(struct dev_run){
                       .in = host, .out = out, .in_buffers = b, .donate = donate, .kept = kept}));
        dev_buffer_unref(b[0]);
        b[0] = kept[0];
    }
    dev_release(w);
    dev_unload(x);
    ok(dev_put(d, s, v, &b[1])); // as much is free as in the beginning
    expect(dev_put(d, s, v, &b[2]), ST_RESOURCE_EXHAUSTED, "buffer");
    dev_buffer_unref(b[0]);
    dev_buffer_unref(b[1]);
    arena_done(&a);
    dev_close(d);
}
