// SPDX-License-Identifier: Apache-2.0
// Shapes: types' codes, sizes, overflow, layouts and tiles, comparison, text.
#include "tests/unit/compiler/ir_test.h"

static struct arena a;
static int clean(void **state) {
    (void)state;
    arena_done(&a);
    return 0;
}
#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / 8

static void types_have_codes(void **state) {
    (void)state;
    for (int t = 1; t < DT_COUNT; t++) {
        assert_int_equal(dtype_from_name(str_of(dtype_name((enum dtype)t))), t);
        assert_int_equal(dtype_from_xla(dtype_to_xla((enum dtype)t)), t);
        int onnx = dtype_to_onnx((enum dtype)t);
        if (onnx) assert_int_equal(dtype_from_onnx(onnx), t);
    }
    assert_int_equal(dtype_from_name(STR("f33")), DT_INVALID);
    assert_int_equal(dtype_from_xla(99), DT_INVALID);
    assert_int_equal(dtype_from_onnx(0), DT_INVALID);
    // Values of the published PrimitiveType.
    assert_int_equal(dtype_to_xla(DT_F32), 11);
    assert_int_equal(dtype_to_xla(DT_BF16), 16);
    assert_int_equal(dtype_to_xla(DT_TUPLE), 13);
}
static void sizes_overflow_into_errors(void **state) {
    (void)state;
    const struct shape *s = shape_make(&a, DT_F32, DIMS(2, 3, 5));
    assert_int_equal(shape_elements(s), 30);
    assert_int_equal(shape_bytes(s), 120);
    must(shape_check(s, 0));
    must(shape_check(s, 120));
    expect(shape_check(s, 119), ST_RESOURCE_EXHAUSTED, "take 120 bytes, the budget is 119");
    expect(shape_check(shape_make(&a, DT_F64, DIMS(INT64_C(1) << 40, INT64_C(1) << 40)), 0),
           ST_INVALID_ARGUMENT, "overflows 64 bits");
    assert_int_equal(shape_elements(shape_make(&a, DT_F32, DIMS(7, 0, 9))), 0);
}
static void tuples_have_leaves(void **state) {
    (void)state;
    const struct shape *x = shape_scalar(&a, DT_S32), *y = shape_make(&a, DT_PRED, DIMS(4));
    const struct shape *in[] = {x, y}, *inner = shape_tuple(&a, in, 2);
    const struct shape *out[] = {inner, y, inner}, *s = shape_tuple(&a, out, 3);
    assert_int_equal(shape_leaves(s), 5);
    assert_ptr_equal(shape_leaf(s, 0), x);
    assert_ptr_equal(shape_leaf(s, 2), y);
    assert_ptr_equal(shape_leaf(s, 4), y);
    assert_null(shape_leaf(s, 5));
    assert_int_equal(shape_bytes(s), 4 + 4 + 4 + 4 + 4);
    for (int k = 0; k < 3; k++) {
        const int first[] = {0, 2, 3};
        assert_int_equal(shape_first_leaf(s, k), first[k]);
        assert_int_equal(shape_first_leaf(inner, k % 2), k % 2);
    }
    const int element_of[] = {0, 0, 1, 2, 2, -1};
    for (int k = 0; k < 6; k++)
        assert_int_equal(shape_element_of(s, k), element_of[k]);

    // Elements without leaves in front, between and behind.
    const struct shape *none = shape_tuple(&a, NULL, 0);
    const struct shape *mixed[] = {none, x, none, none, y, none};
    const struct shape *t = shape_tuple(&a, mixed, 6);
    assert_int_equal(shape_element_of(t, 0), 1);
    assert_int_equal(shape_element_of(t, 1), 4);
    assert_int_equal(shape_element_of(t, 2), -1);
    assert_ptr_equal(shape_leaf(t, 1), y);
    assert_null(shape_leaf(none, 0));
    assert_string_equal(shape_text(&a, s), "((s32[], pred[4]), pred[4], (s32[], pred[4]))");
}
static void layouts_place_elements(void **state) {
    (void)state;
    struct layout columns = {.minor_to_major = {0, 1}};
    const struct shape *s = shape_make(&a, DT_F32, DIMS(2, 3)),
                       *t = shape_with_layout(&a, s, &columns);
    int64_t stride[2];
    shape_strides(t, stride);
    assert_int_equal(stride[0], 1);
    assert_int_equal(stride[1], 2);
    assert_int_equal(shape_offset(s, (int64_t[]){1, 2}), 5);
    assert_int_equal(shape_offset(t, (int64_t[]){1, 2}), 5);
    assert_int_equal(shape_offset(t, (int64_t[]){1, 0}), 1);
    assert_true(shape_compatible(s, t));
    assert_false(shape_equal(s, t));
    struct layout rows = {.minor_to_major = {1, 0}};
    assert_true(shape_equal(s, shape_with_layout(&a, s, &rows)));
}
// nChw16c of one image with 20 channels: two blocks of 16, the second padded.
static void tiles_pad(void **state) {
    (void)state;
    struct layout l = {.minor_to_major = {3, 2, 1, 0}, .tile_rank = 3, .tile = {16, 1, 1}};
    const struct shape *s = shape_with_layout(&a, shape_make(&a, DT_F32, DIMS(1, 20, 3, 5)), &l);
    struct shape_phys p;
    shape_physical(s, &p);
    assert_int_equal(p.rank, 5);
    assert_true(p.padded);
    assert_int_equal(p.dims[1], 2);
    assert_int_equal(p.dims[4], 16);
    assert_int_equal(shape_bytes(s), 2 * 3 * 5 * 16 * 4);
    assert_int_equal(shape_offset(s, (int64_t[]){0, 17, 2, 4}), ((1 * 3 + 2) * 5 + 4) * 16 + 1);
    struct strbuf b = {0};
    shape_print(&b, s, false);
    assert_string_equal(b.p, "f32[1,20,3,5]{3,2,1,0:T(16,1,1)}");
    strbuf_done(&b);
}

// Every byte at every place of a word and behind the last one: beside the definition.
static void codes_become_whole(void **state) {
    (void)state;
    static const enum dtype types[] = {DT_PRED,     DT_S2, DT_U2, DT_S4,      DT_U4,
                                       DT_F4E2M1FN, DT_S8, DT_U8, DT_F8E4M3FN};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (int code = 0; code < 256; code++) {
            enum dtype t = types[k];
            int bits = t == DT_PRED ? 1 : dtype_bits(t), v = code & ((1 << bits) - 1);
            if (t == DT_PRED) v = code != 0;
            if (dtype_class(t) == DC_SIGNED && v >> (bits - 1)) v -= 1 << bits;
            for (size_t at = 0; at < 19; at++) {
                uint8_t in[19] = {0};
                in[at] = (uint8_t)code;
                struct span got = dtype_whole_codes(&a, t, (struct span){in, sizeof in});
                assert_int_equal(got.n, sizeof in);
                assert_true((got.p == in) == (in[at] == (uint8_t)v)); // copied only if need be
                for (size_t i = 0; i < sizeof in; i++)
                    assert_int_equal(got.p[i], i == at ? (uint8_t)v : 0);
            }
        }
    assert_int_equal(dtype_whole_codes(&a, DT_S4, (struct span){0}).n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(types_have_codes, clean),
        cmocka_unit_test_teardown(sizes_overflow_into_errors, clean),
        cmocka_unit_test_teardown(tuples_have_leaves, clean),
        cmocka_unit_test_teardown(layouts_place_elements, clean),
        cmocka_unit_test_teardown(tiles_pad, clean),
        cmocka_unit_test_teardown(codes_become_whole, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
