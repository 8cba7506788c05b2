// SPDX-License-Identifier: Apache-2.0
// The contract of devices/device.h, held against every row of proto/kinds.def: attributes, loading,
// weights, values in and out, profiles, cancelling, threads, refusals. Expected values are worked
// out here in plain C or are the input's own bytes, never another device's answer.
//     device_test            all kinds
//     device_test KIND       one
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/conform/device_help.h"

const char *device_kind;

// ---- open, describe

static void test_open(void **state) {
    (void)state;
    struct device *d = NULL, *two = NULL;
    char spec[64];
    expect(dev_open("nothing", &d), ST_NOT_FOUND, device_kind);
    snprintf(spec, sizeof spec, "%s:no_such_option=1", device_kind);
    expect(dev_open(spec, &d), ST_INVALID_ARGUMENT, "no_such_option");
    assert_null(d);
    d = open_one();
    two = open_one();
    dev_close(two);
    dev_close(d);
    dev_close(NULL);
}

static void test_attributes(void **state) {
    (void)state;
    struct device *d = open_one(), *two = open_one();
    const struct target *t = dev_target(d);
    struct dev_attributes a = dev_attributes(d);
    assert_string_equal(t->kind, device_kind);
    assert_memory_equal(t->id, device_kind, strlen(device_kind));
    assert_int_equal(t->id[strlen(device_kind)], ':');
    assert_string_equal(t->id, dev_target(two)->id);
    assert_true(t->threads >= 1);
    assert_true(a.memory_bytes > 0);
    assert_true(a.description && a.description[0]);
    dev_close(d);
    dev_close(two);
}

// ---- load

static void test_load_refuses_another_target(void **state) {
    (void)state;
    struct device *d = open_one();
    struct executable *e = compile(d, TWICE);
    struct dev_exe *x = NULL;
    e->target_id = "elsewhere:1";
    expect(dev_load(d, e, NULL, &x), ST_FAILED_PRECONDITION, "elsewhere:1"); // took e
    assert_null(x);
    x = load(d, TWICE);
    dev_unload(x);
    dev_unload(NULL);
    dev_close(d);
}

static void test_several_executables(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x[3];
    struct dev_weights *w[3];
    float in[4] = {1, -2, 3.5f, 0}, out[4];
    for (int k = 0; k < 3; k++) {
        char text[200];
        snprintf(text, sizeof text,
                 "HloModule m\nENTRY e { x = f32[4] parameter(0) c = f32[] constant(%d) b = f32[4] "
                 "broadcast(c), dimensions={}\nROOT r = f32[4] add(x, b) }\n",
                 10 * k);
        x[k] = load(d, text);
        w[k] = prepare(x[k]);
    }
    for (int turn = 0; turn < 2; turn++)
        for (int k = 2; k >= 0; k--) {
            ok(run2(x[k], w[k], in, NULL, out, NULL));
            for (int i = 0; i < 4; i++)
                assert_true(out[i] == in[i] + 10 * (float)k);
        }
    dev_release(w[1]); // the middle one goes first; the others live on
    dev_unload(x[1]);
    ok(run2(x[2], w[2], in, NULL, out, NULL));
    assert_true(out[3] == 20);
    dev_release(w[0]);
    dev_unload(x[0]);
    ok(run2(x[2], w[2], in, NULL, out, NULL));
    assert_true(out[0] == 21);
    dev_release(w[2]);
    dev_unload(x[2]);
    dev_close(d);
}

static void test_stats_and_plan(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, TWICE);
    struct dev_weights *w = prepare(x);
    struct strbuf b = {0};
    float in[4] = {1, 2, 3, 4}, out[4];
    int64_t busy = 0;
    assert_int_equal(dev_stats(x).runs, 0);
    for (int k = 1; k <= 3; k++) {
        ok(run2(x, w, in, NULL, out, NULL));
        struct dev_stats s = dev_stats(x);
        assert_int_equal(s.runs, k);
        assert_true(s.busy_ns >= busy && s.arena_bytes >= 0 && s.reference_steps >= 0);
        busy = s.busy_ns;
    }
    d->vt->explain(x, &b);
    assert_true(b.n > 0);
    strbuf_done(&b);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// ---- weights

static void test_weights(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, SCALE);
    struct dev_weights *w[2];
    float in[3] = {1, 2, 3}, out[3], scale[2][3] = {{2, 3, 4}, {-1, 0, 0.5f}};
    uint8_t bytes[2][1 + 12]; // at an odd address, as in a model file
    for (int k = 0; k < 2; k++) {
        memcpy(bytes[k] + 1, scale[k], 12);
        ok(dev_prepare(x, &(struct span){bytes[k] + 1, 12}, 1, NULL, &w[k]));
        assert_true(w[k]->bytes >= 12);
        assert_ptr_equal(w[k]->exe, x);
    }
    memset(bytes, 0xff, sizeof bytes); // borrowed for the call only
    for (int turn = 0; turn < 4; turn++) {
        ok(run2(x, w[turn & 1], in, NULL, out, NULL));
        for (int i = 0; i < 3; i++)
            assert_true(out[i] == in[i] * scale[turn & 1][i]);
    }
    dev_release(w[0]);
    ok(run2(x, w[1], in, NULL, out, NULL));
    assert_true(out[2] == 1.5f);
    dev_release(w[1]);
    dev_release(NULL);
    dev_unload(x);
    dev_close(d);
}

// Steps that read one weight in a form of the device's own read one copy of it; what a branch is
// handed is kept in that form only.
static void test_weights_shared(void **state) {
    (void)state;
    static const char *const texts[] = {
        "HloModule m\nENTRY e { x = f32[1,64] parameter(0) w = f32[64,64] parameter(1), "
        "frontend_attributes={hlod_param=\"weight:0\"}\na = f32[1,64] dot(x, w), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\nb = f32[1,64] dot(a, w), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\nROOT c = f32[1,64] dot(b, w), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0} }\n",
        "HloModule m\nadd { y = f32[] parameter(0) z = f32[] parameter(1) ROOT k = f32[] add(y, z) "
        "}\nf { p = (f32[1,64], f32[64,64]) parameter(0)\na = f32[1,64] "
        "get-tuple-element(p), index=0\nw = f32[64,64] get-tuple-element(p), index=1\n"
        "b = f32[1,64] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "ROOT c = f32[1,64] dot(b, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }\n"
        "g { q = (f32[1,64]) parameter(0)\nROOT d = f32[1,64] get-tuple-element(q), index=0 }\n"
        "ENTRY e { x = f32[1,64] parameter(0) w = f32[64,64] parameter(1), "
        "frontend_attributes={hlod_param=\"weight:0\"}\no = f32[] constant(0)\ns = f32[] "
        "reduce(x, o), dimensions={0,1}, to_apply=add\nt = pred[] compare(s, o), direction=GT\n"
        "u = (f32[1,64], f32[64,64]) tuple(x, w)\nv = (f32[1,64]) tuple(x)\nROOT r = f32[1,64] "
        "conditional(t, u, v), true_computation=f, false_computation=g }\n"};
    struct device *d = open_one();
    float w[64][64], in[64], out[64];
    for (int k = 0; k < 64; k++) {
        in[k] = (float)k;
        for (int j = 0; j < 64; j++)
            w[k][j] = k == (j + 1) % 64; // turns a row by one
    }
    for (int n = 0; n < 2; n++) {
        struct dev_exe *x = load(d, texts[n]);
        struct dev_weights *weights = NULL;
        ok(dev_prepare(x, &(struct span){(const uint8_t *)w, sizeof w}, 1, NULL, &weights));
        assert_true(weights->bytes < 2 * (int64_t)sizeof w);
        ok(run2(x, weights, in, NULL, out, NULL));
        for (int k = 0; k < 64; k++)
            assert_true(out[k] == (float)((k + (n ? 2 : 3)) % 64));
        dev_release(weights);
        dev_unload(x);
    }
    dev_close(d);
}

static void test_weights_refused(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, SCALE);
    struct dev_weights *w = NULL;
    float good[3] = {1, 1, 1}, in[3] = {5, 6, 7}, out[3];
    expect(dev_prepare(x, NULL, 0, NULL, &w), ST_INVALID_ARGUMENT, "weight 0");
    expect(dev_prepare(x, &(struct span){(const uint8_t *)good, 8}, 1, NULL, &w),
           ST_INVALID_ARGUMENT, "weight 0");
    expect(dev_prepare(x, &(struct span){NULL, 0}, 1, NULL, &w), ST_INVALID_ARGUMENT, "weight 0");
    static const _Atomic bool cancelled = true;
    struct span own = {(const uint8_t *)good, 12};
    expect(dev_prepare(x, &own, 1, &cancelled, &w), ST_CANCELLED, "cancelled");
    struct dev_exe *more = NULL;
    expect(dev_load(d, compile(d, SCALE), &cancelled, &more), ST_CANCELLED, "cancelled");
    assert_true(!w && !more);
    struct span three[] = {{(const uint8_t *)good, 12}, {NULL, 0}, {NULL, 0}}; // two not used
    ok(dev_prepare(x, three, 3, NULL, &w));
    ok(run2(x, w, in, NULL, out, NULL));
    assert_memory_equal(in, out, 12);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// ---- loading in two parts

// Calls of the library, in the entry and in a loop, and kernels between them.
static const char layers[] =
    "HloModule m\n"
    "cond {\n  c = (s32[], f32[32,32]) parameter(0)\n"
    "  k = s32[] get-tuple-element(c), index=0\n  n = s32[] constant(3)\n"
    "  ROOT l = pred[] compare(k, n), direction=LT\n}\n"
    "body {\n  b = (s32[], f32[32,32]) parameter(0)\n"
    "  k = s32[] get-tuple-element(b), index=0\n  y = f32[32,32] get-tuple-element(b), index=1\n"
    "  one = s32[] constant(1)\n  s = s32[] add(k, one)\n"
    "  d = f32[32,32] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  t = f32[32,32] tanh(d)\n  ROOT r = (s32[], f32[32,32]) tuple(s, t)\n}\n"
    "ENTRY e {\n  x = f32[1,16,8,8] parameter(0)\n  y = f32[32,32] parameter(1)\n"
    "  k = f32[16,16,3,3] parameter(2), frontend_attributes={hlod_param=\"weight:0\"}\n"
    "  v = f32[1,16,8,8] convolution(x, k), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=bf01_oi01->bf01\n"
    "  a = f32[1,16,8,8] cosine(v)\n  z = s32[] constant(0)\n"
    "  i = (s32[], f32[32,32]) tuple(z, y)\n"
    "  w = (s32[], f32[32,32]) while(i), condition=cond, body=body\n"
    "  o = f32[32,32] get-tuple-element(w), index=1\n"
    "  ROOT q = (f32[1,16,8,8], f32[32,32]) tuple(a, o)\n}\n";

static void keep_draft(void *ctx, struct executable *e) {
    struct strbuf *draft = ctx;
    ok(executable_pack_main(e, draft));
}
// The draft and the artefact of one compile.
static void compile_in_two(struct device *d, const char *text, struct strbuf *draft,
                           struct strbuf *whole) {
    struct compile_options opt = {.disable_passes = "", .disable_rules = ""};
    struct compile_observer obs = {.ctx = draft, .on_main = keep_draft};
    struct hlo_module *m = NULL;
    struct executable *e = NULL;
    ok(hlo_parse(str_of(text), NULL, &m));
    ok(hlo_compile_module(m, &opt, dev_target(d), &obs, &e));
    ok(executable_pack(e, whole, NULL));
    executable_free(e);
}
static struct span span_of(struct strbuf *b) {
    return (struct span){(const uint8_t *)strbuf_cstr(b), b->n};
}
static void run_layers(struct dev_exe *x, float *out) {
    static float in[1024], other[1024], taps[16 * 16 * 9];
    for (int k = 0; k < 1024; k++)
        in[k] = (float)(k % 37) / 37, other[k] = (float)(k % 29) / 290;
    for (int k = 0; k < 16 * 16 * 9; k++)
        taps[k] = (float)(k % 11) / 110;
    struct span weights = {(const uint8_t *)taps, sizeof taps};
    struct dev_weights *w = NULL;
    ok(dev_prepare(x, &weights, 1, NULL, &w));
    ok(run2(x, w, in, other, out, out + 1024));
    dev_release(w);
}

static void test_begun_loads(void **state) {
    (void)state;
    static float expected[2048], got[2048];
    static const _Atomic bool now = true;
    struct device *d = open_one();
    struct strbuf draft = {0}, whole = {0}, other = {0}, others = {0};
    if (!d->vt->begin) {
        dev_close(d);
        return;
    }
    compile_in_two(d, layers, &draft, &whole);
    compile_in_two(d, SCALE, &other, &others);
    struct executable *e = NULL;
    struct dev_exe *x = NULL;
    ok(executable_unpack(span_of(&whole), &e));
    ok(dev_load(d, e, NULL, &x));
    run_layers(x, expected);
    dev_unload(x);
    for (int way = 0; way < 6; way++) { // from a draft or all of it; stopped at once, late, never
        bool same = false, stopped = way % 3 == 0;
        if (way < 3)
            ok(executable_unpack_main(span_of(&draft), &e));
        else
            ok(executable_unpack(span_of(&whole), &e));
        ok(d->vt->begin(d, e, stopped ? &now : NULL, &x));
        if (way < 3) {
            ok(executable_complete(e, span_of(&draft), span_of(&others), &same));
            assert_false(same);
            ok(executable_complete(e, span_of(&draft), span_of(&whole), &same));
            assert_true(same);
        }
        if (way % 3 == 1) expect(d->vt->finish(x, &now), ST_CANCELLED, "cancelled");
        ok(d->vt->finish(x, NULL));
        ok(d->vt->finish(x, &now)); // it is
        run_layers(x, got);
        assert_memory_equal(got, expected, sizeof got);
        dev_unload(x);
    }
    ok(executable_unpack_main(span_of(&draft), &e)); // of no use to anybody
    ok(d->vt->begin(d, e, NULL, &x));
    bool same;
    expect(executable_complete(e, span_of(&draft), (struct span){NULL, 0}, &same),
           ST_FAILED_PRECONDITION, "version");
    dev_unload(x);
    strbuf_done(&draft);
    strbuf_done(&whole);
    strbuf_done(&other);
    strbuf_done(&others);
    dev_close(d);
}

// ---- values both ways

// Bytes through every element type: one result is the argument itself, the other reversed.
static void test_every_dtype(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int size, bits;
    } types[] = {
#define DTYPE(e, text, bits, class, size, xla, onnx, numpy) {text, size, bits},
#include "compiler/ir/dtype.def"
#undef DTYPE
    };
    struct device *d = open_one();
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        if (!types[t].size) continue;
        char text[300];
        uint8_t in[5 * 16], out[2][5 * 16];
        int size = types[t].size;
        snprintf(text, sizeof text,
                 "HloModule m\nENTRY e { x = %s[5] parameter(0) y = %s[5] reverse(x), "
                 "dimensions={0}\nROOT t = (%s[5], %s[5]) tuple(x, y) }\n",
                 types[t].name, types[t].name, types[t].name, types[t].name);
        memset(in, 0, sizeof in);
        for (int k = 0; k < 5; k++) // small numbers: no NaN in any type, within its bits
            in[k * size] = (uint8_t)(types[t].bits <= 2 ? k % 2 : k + 1);
        struct dev_exe *x = load(d, text);
        struct dev_weights *w = prepare(x);
        ok(run2(x, w, in, NULL, out[0], out[1]));
        if (memcmp(in, out[0], (size_t)(5 * size))) fail_msg("%s does not travel", types[t].name);
        for (int k = 0; k < 5; k++)
            if (memcmp(in + k * size, out[1] + (4 - k) * size, (size_t)size))
                fail_msg("%s: element %d reversed", types[t].name, k);
        dev_release(w);
        dev_unload(x);
    }
    dev_close(d);
}

static void test_shapes(void **state) {
    (void)state;
    struct device *d = open_one();
    float in[120], out[120], empty = 7;
    for (int k = 0; k < 120; k++)
        in[k] = (float)k - 60.5f;
    // rank 3, transposed
    struct dev_exe *x = load(d, "HloModule m\nENTRY e { x = f32[2,3,20] parameter(0) ROOT r = "
                                "f32[20,2,3] transpose(x), dimensions={2,0,1} }\n");
    struct dev_weights *w = prepare(x);
    ok(run2(x, w, in, NULL, out, NULL));
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 20; c++)
                assert_true(out[(c * 2 + a) * 3 + b] == in[(a * 3 + b) * 20 + c]);
    dev_release(w);
    dev_unload(x);
    // scalar
    x = load(d, "HloModule m\nENTRY e { x = f32[] parameter(0) ROOT r = f32[] negate(x) }\n");
    w = prepare(x);
    ok(run2(x, w, in, NULL, out, NULL));
    assert_true(out[0] == 60.5f);
    dev_release(w);
    dev_unload(x);
    // rank 7
    x = load(d, "HloModule m\nENTRY e { x = f32[1,2,1,3,4,1,5] parameter(0) ROOT r = "
                "f32[1,2,1,3,4,1,5] abs(x) }\n");
    w = prepare(x);
    ok(run2(x, w, in, NULL, out, NULL));
    for (int k = 0; k < 120; k++)
        assert_true(out[k] == (in[k] < 0 ? -in[k] : in[k]));
    dev_release(w);
    dev_unload(x);
    // nothing at all, and a sum over nothing
    x = load(d, "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] "
                "add(a, b) }\nENTRY e { x = f32[0,4] parameter(0) z = f32[] constant(3) n = "
                "f32[0,4] negate(x) s = f32[4] reduce(x, z), dimensions={0}, to_apply=add\nROOT t "
                "= (f32[0,4], f32[4]) tuple(n, s) }\n");
    w = prepare(x);
    ok(run2(x, w, in, NULL, &empty, out));
    assert_true(empty == 7);
    for (int k = 0; k < 4; k++)
        assert_true(out[k] == 3);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

static void test_results_that_are_not_computed(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x =
        load(d, "HloModule m\nENTRY e { x = s32[3] parameter(0) y = s32[2] parameter(1) c = s32[2] "
                "constant({8, 9}) i = (s32[2], s32[3]) tuple(c, x) ROOT t = ((s32[2], s32[3]), "
                "s32[3], s32[2]) tuple(i, x, y) }\n");
    struct dev_weights *w = prepare(x);
    int32_t a[3] = {1, 2, 3}, b[2] = {4, 5}, o0[2], o1[3], o2[3], o3[2];
    const void *in[] = {a, b};
    void *out[] = {o0, o1, o2, o3};
    ok(dev_run(x, w, &(struct dev_run){.in = in, .out = out}));
    assert_true(o0[0] == 8 && o0[1] == 9);
    assert_memory_equal(o1, a, sizeof a);
    assert_memory_equal(o2, a, sizeof a);
    assert_memory_equal(o3, b, sizeof b);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

static void test_numbers(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x =
        load(d, "HloModule m\nENTRY e { x = f32[7,33] parameter(0) y = f32[33,19] parameter(1) p = "
                "f32[7,19] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\nz = "
                "f32[] constant(0) b = f32[7,19] broadcast(z), dimensions={}\nROOT r = f32[7,19] "
                "maximum(p, b) }\n");
    struct dev_weights *w = prepare(x);
    float a[7 * 33], b[33 * 19], out[7 * 19];
    for (int k = 0; k < 7 * 33; k++)
        a[k] = (float)((k * 37) % 41 - 20) / 8;
    for (int k = 0; k < 33 * 19; k++)
        b[k] = (float)((k * 29) % 31 - 15) / 4;
    ok(run2(x, w, a, b, out, NULL));
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 19; j++) {
            double sum = 0; // these products and sums are exact in f32
            for (int k = 0; k < 33; k++)
                sum += (double)a[i * 33 + k] * (double)b[k * 19 + j];
            assert_true((double)out[i * 19 + j] == (sum > 0 ? sum : 0));
        }
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

// Inputs are read-only memory, aligned to their element and no more; around results nothing is
// written.
static void test_memory_is_respected(void **state) {
    (void)state;
    enum { N = 1000, BYTES = N * 4 };
    struct device *d = open_one();
    struct dev_exe *x = load(d, "HloModule m\nENTRY e { x = f32[1000] parameter(0) y = f32[1000] "
                                "parameter(1) ROOT r = f32[1000] subtract(x, y) }\n");
    struct dev_weights *w = prepare(x);
    char *page = mmap(NULL, 3 * 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    float *a = (float *)(void *)(page + 4), *b = (float *)(void *)(page + 8192 + 12);
    for (int k = 0; k < N; k++)
        a[k] = (float)k, b[k] = 0.5f;
    assert_int_equal(mprotect(page, 2 * 8192, PROT_READ), 0);
    for (int shift = 0; shift < 3; shift++) {
        char *out = page + 2 * 8192 + 64 + 4 * shift;
        memset(page + 2 * 8192, 0x5a, 8192);
        ok(run2(x, w, a, b, out, NULL));
        for (int k = 0; k < N; k++)
            assert_true(((float *)(void *)out)[k] == (float)k - 0.5f);
        for (char *p = page + 2 * 8192; p < page + 3 * 8192; p++)
            if ((p < out || p >= out + BYTES) && *p != 0x5a) fail_msg("written %td", p - out);
    }
    munmap(page, 3 * 8192);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

static struct dev_tensor tensor(const char *dtype, int rank, const int64_t *dims, size_t bytes) {
    return (struct dev_tensor){dtype, rank, dims, {(const uint8_t *)"", bytes}};
}
static void test_inputs_are_checked(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, "HloModule m\nENTRY e { x = f32[2,3] parameter(0) y = s32[4] "
                                "parameter(1) ROOT t = (f32[2,3], s32[4]) tuple(x, y) }\n");
    int64_t dims[] = {2, 3}, wrong[] = {3, 2}, four[] = {4}, long_dims[] = {2, 3, 1};
    struct dev_tensor good[] = {tensor("f32", 2, dims, 24), tensor("s32", 1, four, 16)}, in[2];
    ok(dev_check_inputs(x, good, 2));
    expect(dev_check_inputs(x, good, 1), ST_INVALID_ARGUMENT, "1 inputs given");
    expect(dev_check_inputs(x, good, 3), ST_INVALID_ARGUMENT, "takes 2");
    const struct dev_tensor bad[] = {tensor("f64", 2, dims, 24), tensor("f32", 2, wrong, 24),
                                     tensor("f32", 1, dims, 24), tensor("f32", 3, long_dims, 24),
                                     tensor("f32", 2, dims, 23), tensor("f32", 2, dims, 28),
                                     tensor("no", 2, dims, 24)};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        memcpy(in, good, sizeof in);
        in[0] = bad[k];
        expect(dev_check_inputs(x, in, 2), ST_INVALID_ARGUMENT, "expected f32[2,3]");
    }
    dev_unload(x);
    dev_close(d);
}

// ---- profile, cancel, threads

static void test_profile(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x =
        load(d, "HloModule m\nlt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] "
                "compare(a, b), direction=LT }\nENTRY e { x = f32[64] parameter(0) y = f32[64] "
                "exponential(x) s = f32[64] sort(y), dimensions={0}, to_apply=lt\nROOT r = f32[64] "
                "reverse(s), dimensions={0} }\n");
    struct dev_weights *w = prepare(x);
    float in[64] = {0}, out[64];
    const void *ins[] = {in};
    void *outs[] = {out};
    struct profile_row rows[64], one[2] = {{0}};
    struct profile p = {.rows = rows, .cap = 64}, small = {.rows = one, .cap = 1};
    int64_t start = clock_ns(), sum = 0;
    ok(dev_run(x, w, &(struct dev_run){.in = ins, .out = outs, .profile = &p}));
    int64_t wall = clock_ns() - start;
    assert_true(p.n >= 1 && p.n <= 64);
    for (int k = 0; k < p.n; k++) {
        assert_true(rows[k].name && rows[k].op && rows[k].impl && rows[k].impl[0]);
        assert_true(rows[k].ns >= 0 && rows[k].start_ns >= 0);
        sum += rows[k].ns;
    }
    assert_true(sum <= wall);
    ok(dev_run(x, w, &(struct dev_run){.in = ins, .out = outs, .profile = &small}));
    assert_int_equal(small.n, 1);
    assert_null(one[1].name);
    dev_release(w);
    dev_unload(x);
    dev_close(d);
}

static void *cancel_soon(void *arg) {
    usleep(30000);
    *(_Atomic bool *)arg = true;
    return NULL;
}
struct counter {
    struct dev_exe *x;
    struct dev_weights *w;
};
static void count_turns(void *arg, int64_t turns) {
    struct counter *c = arg;
    int32_t from = FOREVER_END - (int32_t)turns, to;
    ok(run2(c->x, c->w, &from, NULL, &to, NULL));
    assert_int_equal(to, FOREVER_END);
}
static void test_cancel(void **state) {
    (void)state;
    struct device *d = open_one();
    struct dev_exe *x = load(d, FOREVER), *y = load(d, TWICE);
    struct dev_weights *w = prepare(x), *wy = prepare(y);
    int32_t from = 0, to;
    float in[4] = {1, 2, 3, 4}, out[4];
    const void *ins[] = {&from};
    void *outs[] = {&to};
    _Atomic bool cancel = true;
    struct dev_run r = {.in = ins, .out = outs, .cancel = &cancel};
    expect(dev_run(x, w, &r), ST_CANCELLED, "cancelled"); // before it began
    cancel = false;
    // Seconds of turns, by the time of some: a GPU takes a thousand times as long for each.
    from =
        FOREVER_END - (int32_t)turns_lasting(3, FOREVER_END, count_turns, &(struct counter){x, w});
    int64_t runs = dev_stats(x).runs;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
    expect(dev_run(x, w, &r), ST_CANCELLED, "cancelled");
    pthread_join(t, NULL);
    ok(run2(y, wy, in, NULL, out, NULL)); // and nothing is broken
    assert_true(out[3] == 8);
    assert_int_equal(dev_stats(x).runs, runs); // the cancelled one is none
    from = FOREVER_END - 4;
    cancel = false;
    ok(dev_run(x, w, &r));
    assert_int_equal(to, FOREVER_END);
    dev_release(w);
    dev_release(wy);
    dev_unload(x);
    dev_unload(y);
    dev_close(d);
}

struct asker {
    struct device *d;
    _Atomic bool stop;
    int asked;
};
static void *ask(void *arg) {
    struct asker *a = arg;
    do {
        if (strcmp(dev_target(a->d)->kind, device_kind) != 0 ||
            dev_attributes(a->d).memory_bytes <= 0)
            return NULL;
        a->asked++;
    } while (!a->stop);
    return a;
}
// The life of a worker: opened on one thread, used on another, asked by the first meanwhile.
static void *whole_life(void *arg) {
    struct device *d = arg;
    struct dev_exe *x = load(d, TWICE);
    struct dev_weights *w = prepare(x);
    float in[4] = {1, 2, 3, 4}, out[4];
    for (int k = 0; k < 200; k++) {
        ok(run2(x, w, in, NULL, out, NULL));
        for (int i = 0; i < 4; i++)
            if (out[i] != 2 * in[i]) return NULL;
    }
    dev_release(w);
    dev_unload(x);
    return d;
}
static void test_threads(void **state) {
    (void)state;
    struct asker a = {.d = open_one()};
    pthread_t asks, runs;
    void *asked, *ran;
    assert_int_equal(pthread_create(&asks, NULL, ask, &a), 0);
    assert_int_equal(pthread_create(&runs, NULL, whole_life, a.d), 0);
    pthread_join(runs, &ran);
    a.stop = true;
    pthread_join(asks, &asked);
    assert_ptr_equal(ran, a.d);
    assert_ptr_equal(asked, &a);
    assert_true(a.asked > 0);
    dev_close(a.d);
}

// ---- what only the simulated device can show: its own options, and through them the codes that
// the contract has for a device's misfortunes

static struct device *open_spec(const char *spec) {
    struct device *d = NULL;
    ok(dev_open(spec, &d));
    return d;
}

static void test_sim_options(void **state) {
    (void)state;
    static const char *const bad[] = {"sim:latency_us=-1",
                                      "sim:latency_us=",
                                      "sim:memory=0",
                                      "sim:memory=12Q",
                                      "sim:memory=99999999999G",
                                      "sim:clock=sundial",
                                      "sim:crash=sometimes",
                                      "sim:crash=run@0",
                                      "sim:crash=run@x",
                                      "sim:=1"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        struct device *d = NULL;
        expect(dev_open(bad[k], &d), ST_INVALID_ARGUMENT, bad[k]);
        assert_null(d);
    }
    struct device *d = open_spec("sim:memory=3M:latency_us=5:clock=virtual");
    assert_int_equal(dev_attributes(d).memory_bytes, 3 << 20);
    dev_close(d);
}

static void test_sim_memory(void **state) {
    (void)state;
    // In and out 64 bytes together; the working set of a chain that cannot be fused: the sort.
    struct device *d = open_spec("sim:memory=4K");
    struct dev_exe *big = NULL, *x = load(d, SCALE), *y = load(d, SCALE);
    expect(
        dev_load(
            d,
            compile(d, "HloModule m\nlt { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = "
                       "pred[] compare(a, b), direction=LT }\nENTRY e { x = f32[4096] parameter(0) "
                       "e = f32[4096] exponential(x) s = f32[4096] sort(e), dimensions={0}, "
                       "to_apply=lt\nROOT r = f32[4096] sort(s), dimensions={0}, to_apply=lt }\n"),
            NULL, &big),
        ST_RESOURCE_EXHAUSTED, "no device memory");
    assert_null(big);
    // Prepared weights: 12 bytes a set, until it is full; letting go of some helps.
    struct dev_weights *sets[400] = {NULL};
    float scale[3] = {1, 2, 3}, in[3] = {1, 1, 1}, out[3];
    int n = 0;
    status_t st = ST_OK;
    while (n < 400 && !(st = dev_prepare(n & 1 ? x : y, &(struct span){(const uint8_t *)scale, 12},
                                         1, NULL, &sets[n])))
        n++;
    expect(st, ST_RESOURCE_EXHAUSTED, "prepared weights");
    assert_true(n > 100 && n < 400);
    expect(run2(y, sets[0], in, NULL, out, NULL), ST_RESOURCE_EXHAUSTED, "inputs and results");
    for (int k = 10; k < n; k++)
        dev_release(sets[k]);
    ok(run2(y, sets[0], in, NULL, out, NULL));
    assert_memory_equal(out, scale, sizeof scale);
    for (int k = 0; k < 10; k++)
        dev_release(sets[k]);
    dev_unload(x);
    dev_unload(y);
    dev_close(d);
}

static void test_sim_oom_and_loss(void **state) {
    (void)state;
    struct device *d = open_spec("sim:oom=run@2:lose=run@4");
    struct dev_exe *x = load(d, TWICE), *more = NULL;
    struct dev_weights *w = prepare(x), *set = NULL;
    float in[4] = {1, 2, 3, 4}, out[4];
    ok(run2(x, w, in, NULL, out, NULL));
    expect(run2(x, w, in, NULL, out, NULL), ST_RESOURCE_EXHAUSTED, "simulated");
    ok(run2(x, w, in, NULL, out, NULL));
    for (int k = 0; k < 2; k++) {
        expect(run2(x, w, in, NULL, out, NULL), ST_UNAVAILABLE, "lost");
        expect(dev_prepare(x, NULL, 0, NULL, &set), ST_UNAVAILABLE, "lost");
        expect(dev_load(d, compile(d, TWICE), NULL, &more), ST_UNAVAILABLE, "lost");
    }
    dev_release(w); // a lost device is still cleaned up after
    dev_unload(x);
    dev_close(d);
}

static void test_sim_time(void **state) {
    (void)state;
    struct device *real = open_spec("sim:latency_us=20000"),
                  *virtual = open_spec("sim:latency_us=3600000000:clock=virtual");
    struct dev_exe *x = load(real, TWICE), *y = load(virtual, TWICE);
    struct dev_weights *w = prepare(x), *wy = prepare(y);
    float in[4] = {1, 2, 3, 4}, out[4];
    const void *ins[] = {in};
    void *outs[] = {out};
    int64_t start = clock_ns();
    ok(run2(x, w, in, NULL, out, NULL));
    assert_true(clock_ns() - start >= 20000000);
    assert_true(dev_stats(x).busy_ns >= 20000000);
    struct profile_row row;
    struct profile p = {.rows = &row, .cap = 1};
    start = clock_ns();
    ok(dev_run(y, wy, &(struct dev_run){.in = ins, .out = outs, .profile = &p}));
    ok(run2(y, wy, in, NULL, out, NULL));
    assert_true(clock_ns() - start < 60000000000ll); // two hours in less than a minute
    assert_int_equal(dev_stats(y).busy_ns, 7200000000000ll);
    assert_int_equal(row.ns, 3600000000000ll);
    _Atomic bool cancel = false;
    pthread_t t;
    struct device *slow = open_spec("sim:latency_us=60000000");
    struct dev_exe *z = load(slow, TWICE);
    struct dev_weights *wz = prepare(z);
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancel), 0);
    expect(dev_run(z, wz, &(struct dev_run){.in = ins, .out = outs, .cancel = &cancel}),
           ST_CANCELLED, "cancelled");
    pthread_join(t, NULL);
    dev_release(w);
    dev_release(wy);
    dev_release(wz);
    dev_unload(x);
    dev_unload(y);
    dev_unload(z);
    dev_close(real);
    dev_close(virtual);
    dev_close(slow);
}

// A crash and a hang, each in a child.
static void test_sim_crash_and_hang(void **state) {
    (void)state;
    static const char *const specs[] = {"sim:crash=run@2", "sim:hang=run@2"};
    for (int k = 0; k < 2; k++) {
        int pipe_fds[2], how = 0;
        char step = 0;
        assert_int_equal(pipe(pipe_fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct device *d = open_spec(specs[k]);
            struct dev_exe *x = load(d, TWICE);
            struct dev_weights *w = prepare(x);
            float in[4] = {1, 2, 3, 4}, out[4];
            for (char turn = '1'; turn < '4'; turn++) {
                st_drop(run2(x, w, in, NULL, out, NULL));
                if (write(pipe_fds[1], &turn, 1) != 1) break;
            }
            _exit(0);
        }
        close(pipe_fds[1]);
        assert_int_equal(read(pipe_fds[0], &step, 1), 1);
        assert_int_equal(step, '1');
        if (k == 1) { // still there after a while, having said nothing more
            usleep(50000);
            assert_int_equal(waitpid(pid, &how, WNOHANG), 0);
            kill(pid, SIGKILL);
        }
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFSIGNALED(how));
        assert_int_equal(read(pipe_fds[0], &step, 1), 0);
        close(pipe_fds[0]);
    }
}

int main(int argc, char **argv) {
    static const char *const kinds[] = {
#define KIND(kind, traits) #kind,
#include "proto/kinds.def"
#undef KIND
    };
    static const struct CMUnitTest contract[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_load_refuses_another_target),
        cmocka_unit_test(test_several_executables),
        cmocka_unit_test(test_stats_and_plan),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_weights_shared),
        cmocka_unit_test(test_weights_refused),
        cmocka_unit_test(test_begun_loads),
        cmocka_unit_test(test_every_dtype),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_results_that_are_not_computed),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_memory_is_respected),
        cmocka_unit_test(test_inputs_are_checked),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_kept_results),
        cmocka_unit_test(test_donation),
        cmocka_unit_test(test_failed_run_donates_nothing),
    };
    static const struct CMUnitTest sim[] = {
        cmocka_unit_test(test_sim_options),        cmocka_unit_test(test_sim_memory),
        cmocka_unit_test(test_sim_oom_and_loss),   cmocka_unit_test(test_sim_time),
        cmocka_unit_test(test_sim_crash_and_hang), cmocka_unit_test(test_sim_buffers_are_counted),
    };
    static const struct CMUnitTest pjrt[] = {
        cmocka_unit_test(test_pjrt_given_up),
        cmocka_unit_test(test_pjrt_donation),
        cmocka_unit_test(test_pjrt_no_alias),
        cmocka_unit_test(test_pjrt_must_alias),
        cmocka_unit_test(test_pjrt_given_and_cancelled),
        cmocka_unit_test(test_pjrt_many_transfers),
        cmocka_unit_test(test_pjrt_never_ends), // last: its thread goes on
    };
    int failed = 0, ran = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (argc > 1 && strcmp(argv[1], kinds[k]) != 0) continue;
        device_kind = kinds[k];
        if (argc == 1 && strcmp(device_kind, "pjrt") == 0 && !getenv("HLOD_PJRT_PLUGIN")) {
            puts("pjrt: tests/conform/pjrt/run.sh runs it with a plugin");
            continue;
        }
        if (argc == 1 && strcmp(device_kind, "opencl") == 0) {
            puts("opencl: tests/conform/opencl/run.sh runs it where a driver is");
            continue;
        }
        if (argc == 1 && strcmp(device_kind, "gl") == 0) {
            puts("gl: tests/conform/gl/run.sh runs it where a driver is");
            continue;
        }
        if (argc == 1 && strcmp(device_kind, "web") == 0) {
            puts("web: tests/web/worker_farm.py runs it where a browser is");
            continue;
        }
        ran++;
        failed += cmocka_run_group_tests_name(device_kind, contract, NULL, NULL);
        if (strcmp(device_kind, "sim") == 0)
            failed += cmocka_run_group_tests_name("sim's own", sim, NULL, NULL);
        if (strcmp(device_kind, "pjrt") == 0)
            failed += cmocka_run_group_tests_name("pjrt's own", pjrt, NULL, NULL);
    }
    if (!ran) fprintf(stderr, "no such device kind\n");
    fflush(NULL);
    if (failed || !ran || strcmp(device_kind, "pjrt") != 0) return failed || !ran;
    _exit(0); // what never ends is left to run, and destructors would wait for it
}
