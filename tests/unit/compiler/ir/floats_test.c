// SPDX-License-Identifier: Apache-2.0
// The small float types against NumPy and ml_dtypes, exhaustively (float_tables.h).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/ir/literal.h"
#include "tests/unit/compiler/float_tables.h"

static const enum dtype f8[9] = {DT_F8E3M4,        DT_F8E4M3,     DT_F8E4M3FN,
                                 DT_F8E4M3B11FNUZ, DT_F8E4M3FNUZ, DT_F8E5M2,
                                 DT_F8E5M2FNUZ,    DT_F4E2M1FN,   DT_F8E8M0FNU};

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return isnan(f) ? 0x7fc00000 : u;
}
static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint64_t fnv(uint64_t h, uint32_t word) {
    return (h ^ word) * 0x100000001B3u;
}
#define FNV_START 0xCBF29CE484222325u

static void f8_decodes(void **state) {
    (void)state;
    for (int t = 0; t < 9; t++)
        for (int c = 0; c < 256; c++) {
            uint32_t got = bits_of((float)f8_to_f64(f8[t], (uint8_t)c));
            if (got != f8_bits[t][c])
                fail_msg("%s code %d: 0x%08x, expected 0x%08x", dtype_name(f8[t]), c, got,
                         f8_bits[t][c]);
        }
}
static void sixteen_bits_decode(void **state) {
    (void)state;
    uint64_t h[2] = {FNV_START, FNV_START};
    for (uint32_t c = 0; c < 65536; c++) {
        h[0] = fnv(h[0], bits_of(f16_to_f32((uint16_t)c)));
        h[1] = fnv(h[1], bits_of(bf16_to_f32((uint16_t)c)));
    }
    assert_true(h[0] == decode_hash[0]);
    assert_true(h[1] == decode_hash[1]);
}

// Code of v in type number t of the tables (f16 is 9, bf16 is 10); a NaN is all ones.
static uint32_t encode(int t, float v) {
    if (t < 9) {
        uint8_t c = f64_to_f8(f8[t], (double)v);
        return isnan(f8_to_f64(f8[t], c)) ? 0xFFFF : c;
    }
    uint16_t c = t == 9 ? f64_to_f16((double)v) : f64_to_bf16((double)v);
    float back = t == 9 ? f16_to_f32(c) : bf16_to_f32(c);
    return isnan(back) ? 0xFFFF : c;
}
static void encoding_of_f16_values(void **state) {
    (void)state;
    for (int t = 0; t < 11; t++) {
        uint64_t h = FNV_START;
        for (uint32_t c = 0; c < 65536; c++)
            h = fnv(h, encode(t, f16_to_f32((uint16_t)c)));
        if (h != encode_f16_hash[t]) fail_msg("type %d", t);
    }
}
static void encoding_of_f32_values(void **state) {
    (void)state;
    for (int t = 0; t < 11; t++) {
        uint64_t h = FNV_START;
        for (uint64_t k = 0; k < 1 << 20; k++)
            h = fnv(h, encode(t, float_of((uint32_t)(k * 4093))));
        if (h != encode_f32_hash[t]) fail_msg("type %d", t);
    }
}
static void f32_forms_agree(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 1 << 20; k++) {
        float v = float_of((uint32_t)(k * 4093));
        if (isnan(v)) continue;
        assert_int_equal(f32_to_f16(v), f64_to_f16((double)v));
        assert_int_equal(f32_to_bf16(v), f64_to_bf16((double)v));
    }
}
// Halfway between two f16 values in f32, but not in f64: one rounding goes up, two go to even.
static void doubles_round_once(void **state) {
    (void)state;
    double v = 1 + 0x1p-11 + 0x1p-40;
    assert_int_equal(f64_to_f16(v), 0x3c01);
    assert_int_equal(f32_to_f16((float)v), 0x3c00);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f8_decodes),
        cmocka_unit_test(sixteen_bits_decode),
        cmocka_unit_test(encoding_of_f16_values),
        cmocka_unit_test(encoding_of_f32_values),
        cmocka_unit_test(f32_forms_agree),
        cmocka_unit_test(doubles_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
