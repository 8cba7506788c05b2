// SPDX-License-Identifier: Apache-2.0
// Literals: element access and conversion at the edges of each type, equality, text that reads back
// to the same bits.
#include <math.h>

#include "tests/unit/compiler/ir_test.h"

static struct arena a;
static int clean(void **state) {
    (void)state;
    arena_done(&a);
    return 0;
}
static int64_t to_int(enum dtype t, double v) {
    return lit_get_i64(lit_scalar_f64(&a, t, v), 0);
}

static void floats_saturate_into_integers(void **state) {
    (void)state;
    assert_int_equal(to_int(DT_S8, 300), 127);
    assert_int_equal(to_int(DT_S8, -300), -128);
    assert_int_equal(to_int(DT_U8, -1), 0);
    assert_int_equal(to_int(DT_U8, 255.9), 255);
    assert_int_equal(to_int(DT_S4, 9), 7);
    assert_int_equal(to_int(DT_U4, 99), 15);
    assert_int_equal(to_int(DT_S64, 1e300), INT64_MAX);
    assert_int_equal(to_int(DT_S64, -1e300), INT64_MIN);
    assert_int_equal((uint64_t)to_int(DT_U64, 1e300), UINT64_MAX);
    assert_int_equal(to_int(DT_S32, (double)NAN), 0);
    assert_int_equal(to_int(DT_S32, -2.9), -2);
    assert_int_equal(to_int(DT_PRED, 0.25), 1);
}
static void integers_wrap_into_integers(void **state) {
    (void)state;
    assert_int_equal(lit_get_i64(lit_scalar_i64(&a, DT_S8, 200), 0), -56);
    assert_int_equal(lit_get_i64(lit_scalar_i64(&a, DT_S4, 15), 0), -1);
    assert_int_equal(lit_get_i64(lit_scalar_i64(&a, DT_U4, -1), 0), 15);
    assert_int_equal(lit_get_i64(lit_scalar_i64(&a, DT_U32, -1), 0), UINT32_MAX);
    struct literal *big = lit_scalar_i64(&a, DT_U64, -1);
    assert_true(lit_get_f64(big, 0) == 0x1p64);
}
static void complex_has_two_parts(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct literal *l = lit_new(&a, shape_make(&a, k ? DT_C128 : DT_C64, (int64_t[]){2}, 1));
        double c[2];
        lit_set_c128(l, 1, 3, -4);
        lit_get_c128(l, 1, c);
        assert_true(c[0] == 3 && c[1] == -4);
        lit_get_c128(l, 0, c);
        assert_true(c[0] == 0 && c[1] == 0);
    }
}
static void equality_is_of_bits(void **state) {
    (void)state;
    struct literal *nan1 = lit_scalar_f64(&a, DT_F32, (double)NAN),
                   *nan2 = lit_scalar_f64(&a, DT_F32, (double)-NAN),
                   *zero = lit_scalar_f64(&a, DT_F32, 0), *minus = lit_scalar_f64(&a, DT_F32, -0.0);
    assert_false(lit_equal(nan1, nan2));
    assert_true(lit_equal(nan1, lit_clone(&a, nan1)));
    assert_false(lit_equal(zero, minus));
    assert_false(lit_equal(zero, lit_scalar_f64(&a, DT_F64, 0)));
    assert_true(lit_all_equal_f64(minus, -0.0));
    assert_false(lit_all_equal_f64(minus, 0.0));
    assert_true(lit_hash(zero) == lit_hash(lit_clone(&a, zero)));
}
static void conversion_keeps_64_bits(void **state) {
    (void)state;
    struct literal *l = lit_scalar_i64(&a, DT_S64, (INT64_C(1) << 60) + 1);
    assert_int_equal(lit_get_i64(lit_convert(&a, l, DT_U64), 0), (INT64_C(1) << 60) + 1);
    assert_int_equal(lit_get_i64(lit_convert(&a, l, DT_S32), 0), 1);
}

// Prints the literal of an HLO constant, reads it back: the same bits.
static void round_trip(const char *shape, const char *value) {
    char text[600];
    snprintf(text, sizeof text, "HloModule m\nENTRY e { ROOT c = %s constant(%s) }", shape, value);
    struct hlo_module *m = parsed(text);
    struct strbuf b = {0};
    hlo_print_module(&b, m, HLO_PRINT_DEFAULT);
    struct hlo_module *again = parsed(b.p);
    const struct literal *x = m->entry->root->literal, *y = again->entry->root->literal;
    assert_true(lit_equal(x, y));
    if (x->size_bytes) assert_memory_equal(x->data, y->data, x->size_bytes);
    strbuf_done(&b);
    hlo_module_free(m);
    hlo_module_free(again);
}
// Large literals lie beside the text of a program that is kept, equal ones once; it reads back to
// the same module, and not where they are cut or misplaced.
static const char *with_tables(void) {
    struct strbuf b = {0}, v = {0};
    for (int k = 0; k < 100; k++)
        strbuf_printf(&v, "%s%d", k ? ", " : "", k * k - 50);
    strbuf_printf(&b, "HloModule m\nENTRY e {\n  a = f64[100] constant({%s})\n", v.p);
    strbuf_printf(&b, "  b = s64[100] constant({%s})\n  c = f64[100] constant({%s})\n", v.p, v.p);
    strbuf_printf(&b, "  d = s8[2] constant({1, 2})\n  e = f64[4,25] reshape(c)\n");
    strbuf_puts(&b, "  ROOT r = (f64[100], s64[100], f64[4,25], s8[2]) tuple(a, b, e, d)\n}\n");
    const char *text = arena_strdup(&a, b.p);
    strbuf_done(&b);
    strbuf_done(&v);
    return text;
}
static void large_ones_lie_beside_text(void **state) {
    (void)state;
    struct hlo_module *m = parsed(with_tables()), *again, *none;
    struct hlo_constants beside = {0};
    struct strbuf text = {0}, whole = {0}, same = {0};
    hlo_print_module(&whole, m, HLO_PRINT_DEFAULT);
    hlo_print_module_beside(&text, m, HLO_PRINT_DEFAULT, &beside);
    assert_true(text.n < whole.n / 2);
    assert_int_equal(beside.bytes.n, 832 + 800); // the first and third are one
    struct hlo_parse_limits l = {.constants = {(uint8_t *)beside.bytes.p, beside.bytes.n}};
    must(hlo_parse((struct str){text.p, text.n}, &l, &again));
    hlo_print_module(&same, again, HLO_PRINT_DEFAULT);
    assert_string_equal(whole.p, same.p);
    hlo_module_free(again);
    expect(hlo_parse((struct str){text.p, text.n}, NULL, &none), ST_INVALID_ARGUMENT, "");
    l.constants.n--;
    expect(hlo_parse((struct str){text.p, text.n}, &l, &none), ST_INVALID_ARGUMENT,
           "s64[100] does not lie at 832 of 1631");
    static const char *const odd[] = {"{@8}", "{@-64}", "{@64", "{@99999999999999999999}", "{@}"};
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++) {
        const char *one =
            arena_printf(&a, "HloModule m\nENTRY e { ROOT c = s8[64] constant(%s) }", odd[k]);
        expect(hlo_parse(str_of(one), &l, &none), ST_INVALID_ARGUMENT, "");
    }
    strbuf_done(&text);
    strbuf_done(&whole);
    strbuf_done(&same);
    hlo_constants_done(&beside);
    hlo_module_free(m);
}
static void text_reads_back(void **state) {
    (void)state;
    round_trip("f32[4]", "{0.1, -0, 1e-45, 3.4028235e38}");
    round_trip("f32[3]", "{nan, inf, -inf}");
    round_trip("f32[5]", "{-nan, nan(0x1), -nan(0x400001), nan(0x7FFFFF), -0}");
    round_trip("f64[3]", "{nan(0x8000000000001), -nan(0x1), -nan}");
    round_trip("f16[3]", "{nan(0x201), -nan(0x3ff), -nan}");
    round_trip("f8e5m2[4]", "{nan(0x1), -nan(0x3), -nan, nan}");
    round_trip("f8e4m3fn[2]", "{nan, -nan}");
    round_trip("c64[2]", "{(nan(0x1), -nan(0x2)), (-nan, 1)}");
    round_trip("f64[3]", "{0.1, 4.9e-324, 1.7976931348623157e308}");
    round_trip("f16[3]", "{65504, 6e-8, 0.333}");
    round_trip("bf16[2]", "{3.4e38, 0.1}");
    round_trip("f8e4m3fn[3]", "{448, 0.001953125, -0}");
    round_trip("f8e5m2fnuz[2]", "{57344, 0.5}");
    round_trip("s64[2]", "{-9223372036854775808, 9223372036854775807}");
    round_trip("u64[1]", "{18446744073709551615}");
    round_trip("s4[2]", "{-8, 7}");
    round_trip("s2[3]", "{-2, 1, 0}");
    round_trip("u2[2]", "{3, 1}");
    round_trip("f4e2m1fn[3]", "{6, -0.5, -0}");
    round_trip("f8e8m0fnu[2]", "{0.25, 1.7014118e38}");
    round_trip("pred[2,1]", "{{true}, {0}}");
    round_trip("c64[2]", "{(1, -0), (inf, 2.5)}");
    round_trip("f32[2,0,3]", "{{}, {}}");
    round_trip("f32[1000000000000,0]", "{}"); // no element, and not that many braces
    round_trip("f32[2,2]{0,1}", "{{1, 2}, {3, 4}}");
    round_trip("(s32[], (f32[1], pred[]))", "(1, ({2}, true))");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(floats_saturate_into_integers, clean),
        cmocka_unit_test_teardown(integers_wrap_into_integers, clean),
        cmocka_unit_test_teardown(complex_has_two_parts, clean),
        cmocka_unit_test_teardown(equality_is_of_bits, clean),
        cmocka_unit_test_teardown(conversion_keeps_64_bits, clean),
        cmocka_unit_test_teardown(text_reads_back, clean),
        cmocka_unit_test_teardown(large_ones_lie_beside_text, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
