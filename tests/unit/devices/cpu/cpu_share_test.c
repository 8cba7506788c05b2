// SPDX-License-Identifier: Apache-2.0
// Executables of one model for inputs of several sizes: prepared weights lie in memory once, give
// what they give by themselves, outlive the executable that made them, and are not another
// model's, another precision's or another value.
#include <math.h>

#include "tests/conform/device_help.h"

const char *device_kind = "cpu";

// A table read as it is, a matrix that the library packs, a bias that prepare computes: `rows`
// rows.
static const char network[] =
    "HloModule m\n"
    "ENTRY e {\n"
    "  i = s32[%d] parameter(0)\n"
    "  t = f32[50,64] parameter(1), frontend_attributes={hlod_param=\"weight:0\"}\n"
    "  w = f32[64,96] parameter(2), frontend_attributes={hlod_param=\"weight:1\"}\n"
    "  b = f32[96] parameter(3), frontend_attributes={hlod_param=\"weight:2\"}\n"
    "  x = f32[%d,64] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,64}\n"
    "  d = f32[%d,96] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  s = f32[96] %s(b)\n"
    "  sb = f32[%d,96] broadcast(s), dimensions={1}\n"
    "  a = f32[%d,96] add(d, sb)\n"
    "  z = f32[] constant(0)\n"
    "  zb = f32[%d,96] broadcast(z), dimensions={}\n"
    "  ROOT r = f32[%d,96] maximum(a, zb)\n"
    "}\n";
enum { TABLE = 50 * 64, MATRIX = 64 * 96, BIAS = 96, MOST = 40 };
static float table[TABLE], matrix[MATRIX], bias[BIAS];

static struct dev_exe *of_rows(struct device *d, int rows, const char *op) {
    char text[4096];
    snprintf(text, sizeof text, network, rows, rows, rows, op, rows, rows, rows, rows);
    return load(d, text);
}
static struct dev_weights *prepared(struct dev_exe *x, int which) {
    struct span w[] = {{(const uint8_t *)table, sizeof table},
                       {(const uint8_t *)matrix, sizeof matrix},
                       {(const uint8_t *)bias, sizeof bias}};
    struct digest id = {{(uint8_t)which}};
    struct dev_weights *out = NULL;
    ok(dev_prepare_mapped(x, w, 3, (struct span){0}, id, NULL, &out));
    return out;
}
static void run_rows(struct dev_exe *x, struct dev_weights *w, int rows, float *out) {
    int32_t at[MOST];
    for (int k = 0; k < rows; k++)
        at[k] = (k * 7 + 3) % 50;
    ok(run2(x, w, at, NULL, out, NULL));
}
// By a set of its own.
static void wanted(struct dev_exe *x, int rows, float *out) {
    struct dev_weights *own = prepared(x, 0);
    run_rows(x, own, rows, out);
    dev_release(own);
}
static void same(const float *got, const float *want, int rows) {
    assert_memory_equal(got, want, sizeof(float) * (size_t)rows * BIAS);
}
static void fill_all(float odd) {
    for (int k = 0; k < TABLE; k++)
        table[k] = (float)(k % 17) - 8;
    for (int k = 0; k < MATRIX; k++)
        matrix[k] = (float)(k % 13) * 0.25f - 1.5f;
    for (int k = 0; k < BIAS; k++)
        bias[k] = (float)k * 0.01f;
    matrix[5 * BIAS + 7] = odd;
}

static void tell(struct dev_weights *w) {
    *(int64_t *)w->owner = w->bytes;
}
static void test_once_in_memory(void **state) {
    (void)state;
    int64_t told = 0;
    static float want[2][MOST * BIAS], got[MOST * BIAS];
    struct device *d = open_one();
    fill_all(0.5f);
    struct dev_exe *a = of_rows(d, 33, "exponential"), *b = of_rows(d, 40, "exponential");
    wanted(a, 33, want[0]);
    wanted(b, 40, want[1]);

    struct dev_weights *wa = prepared(a, 1), *wb = prepared(b, 1), *again = prepared(a, 1);
    int64_t bytes = wa->bytes;
    assert_true(bytes >= (int64_t)(sizeof table + sizeof matrix + sizeof bias));
    assert_int_equal(wb->bytes, 0);
    assert_int_equal(again->bytes, 0);
    run_rows(b, wb, 40, got);
    same(got, want[1], 40);
    run_rows(a, again, 33, got);
    same(got, want[0], 33);

    wb->changed = tell;
    wb->owner = &told;
    dev_release(again);
    assert_int_equal(told, 0);
    dev_release(wa);
    dev_unload(a);
    assert_int_equal(wb->bytes, bytes); // what it took counts here now
    assert_int_equal(told, bytes);
    run_rows(b, wb, 40, got);
    same(got, want[1], 40);
    a = of_rows(d, 33, "exponential");
    wa = prepared(a, 1); // from the one that took
    assert_int_equal(wa->bytes, 0);
    dev_release(wb);
    dev_unload(b);
    assert_int_equal(wa->bytes, bytes);
    run_rows(a, wa, 33, got);
    same(got, want[0], 33);
    dev_release(wa);
    dev_unload(a);
    dev_close(d);
}

static void test_another_is_not_taken(void **state) {
    (void)state;
    static float want[MOST * BIAS], got[MOST * BIAS];
    struct device *d = open_one();
    fill_all(0.5f);
    struct dev_exe *a = of_rows(d, 33, "exponential"), *b = of_rows(d, 40, "exponential"),
                   *c = of_rows(d, 40, "tanh");
    wanted(c, 40, want);
    struct dev_weights *wa = prepared(a, 1), *wb = prepared(b, 2), *wc = prepared(c, 1);
    assert_int_equal(wb->bytes, wa->bytes); // other weights: all of its own
    assert_true(wc->bytes > 0 && wc->bytes < (int64_t)sizeof table); // another bias
    run_rows(c, wc, 40, got);
    same(got, want, 40);

    fill_all(2); // weights that are new have another name
    wanted(b, 40, want);
    struct dev_weights *fresh = prepared(b, 3);
    assert_int_equal(fresh->bytes, wa->bytes);
    run_rows(b, fresh, 40, got);
    same(got, want, 40);
    dev_release(fresh);
    dev_release(wa);
    dev_release(wb);
    dev_release(wc);
    dev_unload(a);
    dev_unload(b);
    dev_unload(c);
    dev_close(d);
}

static void test_nan_is_known(void **state) {
    (void)state;
    static float want[MOST * BIAS], got[MOST * BIAS];
    struct device *d = open_one();
    fill_all(NAN);
    struct dev_exe *a = of_rows(d, 33, "exponential"), *b = of_rows(d, 40, "exponential");
    wanted(b, 40, want);
    assert_true(isnan(want[7]));
    struct dev_weights *wa = prepared(a, 1), *wb = prepared(b, 1);
    assert_int_equal(wb->bytes, 0);
    run_rows(b, wb, 40, got);
    for (int k = 0; k < 40 * BIAS; k++)
        assert_true(got[k] == want[k] || (isnan(got[k]) && isnan(want[k])));
    dev_release(wa);
    dev_release(wb);
    dev_unload(a);
    dev_unload(b);
    dev_close(d);
}

// NaN is found in whichever half of a word it lies: the library's maximum would give 0.
static void test_nan_of_halves_is_known(void **state) {
    (void)state;
    enum { N = 256, ROWS = 64, ONE = 0x3f80, NOT = 0x7fc0, EXPONENT = 0x7f80 };
    static const char text[] =
        "HloModule m\n"
        "ENTRY e {\n"
        "  x = bf16[64,256] parameter(0)\n"
        "  w = bf16[256,256] parameter(1), frontend_attributes={hlod_param=\"weight:0\"}\n"
        "  d = bf16[64,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  z = bf16[] constant(0)\n"
        "  zb = bf16[64,256] broadcast(z), dimensions={}\n"
        "  ROOT r = bf16[64,256] maximum(d, zb)\n"
        "}\n";
    static uint16_t x[ROWS * N], w[N * N], got[ROWS * N];
    struct device *d = open_one();
    struct dev_exe *exe = load(d, text);
    struct span bytes = {(const uint8_t *)w, sizeof w};
    for (int k = 0; k < ROWS * N; k++)
        x[k] = ONE;
    for (int column = 10; column < 12; column++) {
        struct dev_weights *of = NULL;
        for (int k = 0; k < N * N; k++)
            w[k] = ONE;
        w[3 * N + column] = NOT;
        ok(dev_prepare(exe, &bytes, 1, NULL, &of));
        ok(run2(exe, of, x, NULL, got, NULL));
        for (int k = 0; k < ROWS * N; k++)
            assert_int_equal((got[k] & EXPONENT) == EXPONENT, k % N == column);
        dev_release(of);
    }
    dev_unload(exe);
    dev_close(d);
}

// Bytes that two products read as numbers of other widths are packed by each for itself.
static void test_bits_are_told_apart(void **state) {
    (void)state;
    enum { N = 96, BLOCKS = 4, BYTES = 16, MOST_K = BLOCKS * BYTES * 4 };
    static const char product[] =
        "HloModule m\n"
        "ENTRY e {\n"
        "  x = f32[1,%d] parameter(0)\n"
        "  q = u8[96,4,16] parameter(1), frontend_attributes={hlod_param=\"weight:0\"}\n"
        "  one = f32[] constant(1)\n"
        "  s = f32[4,96] broadcast(one), dimensions={}\n"
        "  z = f32[] constant(0)\n"
        "  ROOT y = f32[1,96] custom-call(x, q, s, z), custom_call_target=\"hlod.bits.%d\"\n"
        "}\n";
    static uint8_t q[N * BLOCKS * BYTES];
    static float x[MOST_K], got[N];
    struct device *d = open_one();
    struct dev_exe *exe[3];
    struct dev_weights *w[3];
    struct span bytes = {q, sizeof q};
    struct digest id = {{7}};
    for (size_t k = 0; k < sizeof q; k++)
        q[k] = (uint8_t)(k * 37 + k / 16 * 11);
    for (int k = 0; k < MOST_K; k++)
        x[k] = 1;

    for (int e = 0; e < 3; e++) {
        int bits = 2 << e;
        char text[2048];
        snprintf(text, sizeof text, product, BLOCKS * BYTES * 8 / bits, bits);
        exe[e] = load(d, text);
        ok(dev_prepare_mapped(exe[e], &bytes, 1, (struct span){0}, id, NULL, &w[e]));
        ok(run2(exe[e], w[e], x, NULL, got, NULL));
        for (int c = 0; c < N; c++) {
            int sum = 0;
            for (int k = 0; k < BLOCKS * BYTES; k++)
                for (int at = 0; at < 8; at += bits)
                    sum += q[c * BLOCKS * BYTES + k] >> at & ((1 << bits) - 1);
            assert_true(got[c] == (float)sum);
        }
    }
    for (int e = 0; e < 3; e++) {
        dev_release(w[e]);
        dev_unload(exe[e]);
    }
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_in_memory),      cmocka_unit_test(test_another_is_not_taken),
        cmocka_unit_test(test_nan_is_known),        cmocka_unit_test(test_nan_of_halves_is_known),
        cmocka_unit_test(test_bits_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
