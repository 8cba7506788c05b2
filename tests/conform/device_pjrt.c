// SPDX-License-Identifier: Apache-2.0
// What only a plugin's device does: executions that go on after a cancelled run, memory that a
// program says it reuses.
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "devices/pjrt/pjrt_device.h"
#include "tests/conform/device_help.h"

// ---- cancelled runs

// i + 1 and 0.9999999 x + 1 until i = n: nothing that a compiler could know the end of. (XLA:CPU
// runs what it thinks is less than 1000 flops before Execute returns.)
#define COUNT                                                                                      \
    "HloModule m\ncond { p = (s64[], f32[1000], s64[]) parameter(0)\ni = s64[] "                   \
    "get-tuple-element(p), index=0\n"                                                              \
    "n = s64[] get-tuple-element(p), index=2\nROOT l = pred[] compare(i, n), direction=LT }\n"     \
    "body { p = (s64[], f32[1000], s64[]) parameter(0)\ni = s64[] get-tuple-element(p), index=0\n" \
    "x = f32[1000] get-tuple-element(p), index=1\nn = s64[] get-tuple-element(p), index=2\n"       \
    "one = s64[] constant(1) j = s64[] add(i, one) h = f32[] constant(0.9999999) f = f32[1000] "   \
    "broadcast(h), dimensions={}\n y = f32[1000] multiply(x, f)\n"                                 \
    "u = f32[] constant(1) g = f32[1000] broadcast(u), dimensions={}\n z = f32[1000] add(y, g) "   \
    "ROOT r = (s64[], f32[1000], s64[]) tuple(j, z, n) }\n"                                        \
    "ENTRY e { n = s64[] parameter(0) i = s64[] constant(0) o = f32[] constant(1) x = f32[1000] "  \
    "broadcast(o), dimensions={}\n"                                                                \
    "t = (s64[], f32[1000], s64[]) tuple(i, x, n) w = (s64[], f32[1000], s64[]) while(t), "        \
    "condition=cond, body=body\n"                                                                  \
    "a = s64[] get-tuple-element(w), index=0\nb = f32[1000] get-tuple-element(w), index=1\nROOT "  \
    "r = (s64[], f32[1000]) tuple(a, b) }\n"

static status_t count_to(struct dev_exe *x, struct dev_weights *w, int64_t n,
                         const _Atomic bool *cancel, int64_t *to) {
    float ignored[1000];
    const void *in[] = {&n};
    void *out[] = {to, ignored};
    return dev_run(x, w, &(struct dev_run){.in = in, .out = out, .cancel = cancel});
}
static void *cancel_soon(void *arg) {
    usleep(50000);
    *(_Atomic bool *)arg = true;
    return NULL;
}
static void cancelled_run(struct dev_exe *x, struct dev_weights *w, int64_t n) {
    _Atomic bool cancel = false;
    pthread_t t;
    int64_t to = -1;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
    expect(count_to(x, w, n, &cancel, &to), ST_CANCELLED, "cancelled");
    pthread_join(t, NULL);
    assert_int_equal(to, -1); // nothing comes later either: what was given up has nowhere to go
}

struct counter {
    struct dev_exe *x;
    struct dev_weights *w;
};
static void count_turns(void *arg, int64_t turns) {
    struct counter *c = arg;
    int64_t to;
    ok(count_to(c->x, c->w, turns, NULL, &to));
    assert_int_equal(to, turns);
}

// XLA:GPU asks from inside of Execute whether a loop has another turn: the call that begins such an
// execution ends with it, and nothing is left to give up.
static void not_where_calls_drive_loops(struct device *d) {
    if (((struct pj_device *)d)->plugin->family != PJ_FAMILY_GPU) return;
    dev_close(d);
    skip();
}

// A run that was cancelled is over at once; the next one waits for what is left of it.
void test_pjrt_given_up(void **state) {
    (void)state;
    struct device *d = open_one();
    not_where_calls_drive_loops(d);
    struct dev_exe *x = load(d, COUNT);
    struct dev_weights *w = prepare(x);
    int64_t to, n = turns_lasting(3, INT64_MAX / 4, count_turns, &(struct counter){x, w});
    int64_t runs = dev_stats(x).runs;
    cancelled_run(x, w, n);
    bool busy = false; // the call was over before what it began
    ok(d->vt->idle(d, &busy));
    assert_true(busy);
    ok(count_to(x, w, 10, NULL, &to));
    assert_int_equal(to, 10);
    ok(d->vt->idle(d, &busy));
    assert_false(busy);
    assert_int_equal(dev_stats(x).runs, runs + 1);
    cancelled_run(x, w, n); // and unloading does not mind
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// What never ends costs the device, after drain_ms.
void test_pjrt_never_ends(void **state) {
    (void)state;
    struct device *d = NULL;
    char spec[64];
    snprintf(spec, sizeof spec, "%s:drain_ms=300", device_kind);
    ok(dev_open(spec, &d));
    not_where_calls_drive_loops(d);
    struct dev_exe *x = load(d, COUNT);
    struct dev_weights *w = prepare(x);
    int64_t to;
    cancelled_run(x, w, INT64_MAX); // returns at all
    _Atomic bool cancel = true;     // also while it waits
    expect(count_to(x, w, 10, &cancel, &to), ST_CANCELLED, "cancelled");
    expect(count_to(x, w, 10, NULL, &to), ST_UNAVAILABLE, "has not ended after 300 ms");
    bool busy;
    expect(d->vt->idle(d, &busy), ST_UNAVAILABLE, "has not ended");
    dev_release(w);
    dev_unload(x);
    dev_close(d); // leaves the client behind
}

// ---- donation

#define STEP(head)                                                                                 \
    "HloModule m" head "\nENTRY e { s = f32[4] parameter(0)\nw = f32[4] parameter(1), "            \
    "frontend_attributes={hlod_param=\"weight:0\"}\n"                                              \
    "x = f32[4] parameter(2) p = f32[4] multiply(x, w) n = f32[4] add(s, p)\nROOT t = (f32[4], "   \
    "f32[4]) tuple(p, n) }\n"
static const float weights[4] = {1, 10, 100, 1000}, ones[4] = {1, 1, 1, 1};

struct stepper {
    struct device *d;
    struct dev_exe *x;
    struct dev_weights *w;
};
static struct stepper begin(const char *text) {
    struct stepper s = {.d = open_one()};
    s.x = load(s.d, text);
    struct span one = {(const uint8_t *)weights, sizeof weights};
    ok(dev_prepare(s.x, &one, 1, NULL, &s.w));
    return s;
}
static void end(struct stepper *s) {
    dev_release(s->w);
    dev_unload(s->x);
    dev_close(s->d);
}
static struct dev_buffer *put4(struct device *d, const float v[4]) {
    struct arena a = {0};
    struct dev_buffer *b = NULL;
    ok(dev_put(d, shape_make(&a, DT_F32, (const int64_t[]){4}, 1), v, &b));
    arena_done(&a);
    return b;
}
static void holds(struct dev_buffer *b, const float want[4]) {
    float v[4] = {0};
    ok(dev_get(b, 0, sizeof v, v));
    assert_memory_equal(v, want, sizeof v);
}
static status_t step(struct stepper *s, struct dev_buffer *b, bool donate,
                     struct dev_buffer **next) {
    float product[4];
    struct dev_buffer *in[] = {b, NULL}, *kept[] = {NULL, NULL};
    const void *host[] = {NULL, ones};
    void *out[] = {product, NULL};
    status_t st = dev_run(s->x, s->w,
                          &(struct dev_run){.in = host,
                                            .out = out,
                                            .in_buffers = in,
                                            .donate = (const bool[]){donate, false},
                                            .kept = kept});
    if (!st) assert_memory_equal(product, weights, sizeof product);
    *next = kept[1];
    return st;
}
static void *place_of(struct dev_buffer *b) {
    struct pj_get_args q = {.object = pj_buffer_of(b)};
    ok(PJ_CALL(((struct pj_device *)b->dev)->plugin, Buffer_UnsafePointer, &q));
    return q.out;
}
static bool deleted(struct dev_buffer *b) {
    struct pj_buffer_deleted q = {.buffer = pj_buffer_of(b)};
    ok(PJ_CALL(((struct pj_device *)b->dev)->plugin, Buffer_IsDeleted, &q));
    return q.deleted;
}

void test_pjrt_donation(void **state) {
    (void)state;
    static const float second[4] = {2, 11, 101, 1001}, third[4] = {3, 21, 201, 2001};
    struct stepper s = begin(STEP(", input_output_alias={ {1}: (0, {}, may-alias) }"));
    struct dev_buffer *a = put4(s.d, ones), *b = NULL, *c = NULL;
    ok(step(&s, a, false, &b)); // kept: it stays as it is, and where it is
    holds(b, second);
    holds(a, ones);
    assert_false(deleted(a));
    assert_ptr_not_equal(place_of(a), place_of(b));
    void *place = place_of(b);
    ok(step(&s, b, true, &c)); // given: the result lies in its memory
    assert_true(deleted(b));
    assert_ptr_equal(place_of(c), place);
    holds(c, third);
    dev_buffer_unref(b);
    for (int k = 0; k < 100; k++) { // weights are never given, however often
        ok(step(&s, c, true, &b));
        assert_ptr_equal(place_of(b), place);
        dev_buffer_unref(c);
        c = b;
    }
    dev_buffer_unref(a);
    dev_buffer_unref(c);
    end(&s);
}

// Where the program says nothing, a donated value is given and not taken.
void test_pjrt_no_alias(void **state) {
    (void)state;
    static const float second[4] = {2, 11, 101, 1001};
    struct stepper s = begin(STEP(""));
    struct dev_buffer *a = put4(s.d, ones), *b = NULL;
    ok(step(&s, a, true, &b));
    holds(b, second);
    dev_buffer_unref(a);
    dev_buffer_unref(b);
    end(&s);
}

// An alias that must be cannot be had for a value that was not given. Host memory can always.
void test_pjrt_must_alias(void **state) {
    (void)state;
    static const float second[4] = {2, 11, 101, 1001};
    struct stepper s = begin(STEP(", input_output_alias={ {1}: (0, {}, must-alias) }"));
    struct dev_buffer *a = put4(s.d, ones), *b = NULL;
    expect(step(&s, a, false, &b), ST_INVALID_ARGUMENT, "must-alias");
    holds(a, ones);
    float product[4], sum[4];
    ok(run2(s.x, s.w, ones, ones, product, sum));
    assert_memory_equal(sum, second, sizeof sum);
    dev_buffer_unref(a);
    dev_buffer_unref(b);
    end(&s);
}

// A run that is cancelled once the device has begun: what was given is gone, and says so.
#define COUNT_GIVEN                                                                                \
    "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\n"                                \
    "cond { p = (s64[], f32[1000], s64[]) parameter(0)\ni = s64[] get-tuple-element(p), index=0\n" \
    "n = s64[] get-tuple-element(p), index=2\nROOT l = pred[] compare(i, n), direction=LT }\n"     \
    "body { p = (s64[], f32[1000], s64[]) parameter(0)\ni = s64[] get-tuple-element(p), index=0\n" \
    "x = f32[1000] get-tuple-element(p), index=1\nn = s64[] get-tuple-element(p), index=2\n"       \
    "one = s64[] constant(1) j = s64[] add(i, one) z = f32[1000] sine(x)\nROOT r = (s64[], "       \
    "f32[1000], s64[]) tuple(j, z, n) }\n"                                                         \
    "ENTRY e { x = f32[1000] parameter(0) n = s64[] parameter(1) i = s64[] constant(0)\n"          \
    "t = (s64[], f32[1000], s64[]) tuple(i, x, n)\nw = (s64[], f32[1000], s64[]) while(t), "       \
    "condition=cond, body=body\n"                                                                  \
    "b = f32[1000] get-tuple-element(w), index=1\nROOT r = (f32[1000]) tuple(b) }\n"
void test_pjrt_given_and_cancelled(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, COUNT_GIVEN);
    struct dev_weights *w = prepare(x);
    struct arena a = {0};
    float v[1000] = {1}, back[1000];
    struct dev_buffer *in[2] = {0}, *kept[1] = {0};
    ok(dev_put(d, shape_make(&a, DT_F32, (const int64_t[]){1000}, 1), v, &in[0]));
    int64_t n = 200000;
    const void *host[] = {NULL, &n};
    void *out[] = {NULL};
    _Atomic bool cancel = true;
    struct dev_run r = {.in = host,
                        .out = out,
                        .in_buffers = in,
                        .donate = (const bool[]){true, false},
                        .kept = kept,
                        .cancel = &cancel};
    expect(dev_run(x, w, &r), ST_CANCELLED, "cancelled");
    assert_false(in[0]->spent); // before it began
    ok(dev_get(in[0], 0, sizeof v, back));
    assert_memory_equal(back, v, sizeof v);
    cancel = false;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
    expect(dev_run(x, w, &r), ST_CANCELLED, "cancelled");
    pthread_join(t, NULL);
    assert_true(in[0]->spent);
    assert_null(kept[0]);
    status_t st = dev_get(in[0], 0, sizeof v, back); // an error, not a crash
    assert_non_null(st);
    st_drop(st);
    dev_buffer_unref(in[0]);
    arena_done(&a);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// ---- many values at once

#define PARTS                                                                                      \
    "HloModule m\nENTRY e { x = f32[1000000] parameter(0) y = s4[5] parameter(1) n = "             \
    "f32[1000000] negate(x) z = s4[5] negate(y) ROOT t = (f32[1000000], f32[1000000], s4[5], "     \
    "s4[5]) tuple(n, x, z, y) }\n"
void test_pjrt_many_transfers(void **state) {
    (void)state;
    enum { N = 1000000 };
    struct device *d = open_one();
    struct dev_exe *x = load(d, PARTS);
    struct dev_weights *w = prepare(x);
    float *v = malloc(3 * N * sizeof *v);
    assert_non_null(v);
    const int8_t small[5] = {-8, -1, 0, 1, 7}, negated[5] = {-8, 1, 0, -1, -7};
    int8_t a[5], b[5];
    for (int turn = 0; turn < 5; turn++) {
        for (int k = 0; k < N; k++)
            v[k] = (float)(k + turn);
        const void *in[] = {v, small};
        void *out[] = {v + N, v + 2 * N, a, b};
        ok(dev_run(x, w, &(struct dev_run){.in = in, .out = out}));
        for (int k = 0; k < N; k++)
            assert_true(v[N + k] == -v[k] && v[2 * N + k] == v[k]);
        assert_memory_equal(a, negated, 5);
        assert_memory_equal(b, small, 5);
    }
    free(v);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}
