// SPDX-License-Identifier: Apache-2.0
// Files of one TensorProto: raw and typed elements, and what is refused.
#include "client/files/onnx_tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "proto/formats/onnx_tensor.pb-c.h"

static status_t parse(struct arena *a, const Onnx__TensorProto *t, struct npy *out) {
    size_t n = onnx__tensor_proto__get_packed_size(t);
    uint8_t *p = arena_alloc(a, n + 1);
    onnx__tensor_proto__pack(t, p);
    return onnx_tensor_parse(a, (struct span){p, n}, "t.pb", out);
}
static Onnx__TensorProto tensor(int type, int64_t *dims, size_t n_dims) {
    Onnx__TensorProto t = ONNX__TENSOR_PROTO__INIT;
    t.data_type = type;
    t.dims = dims;
    t.n_dims = n_dims;
    return t;
}

static void typed(void **state) {
    (void)state;
    struct arena a = {0};
    struct npy x;
    int64_t dims[2] = {1, 3};
    float f[3] = {1, -2.5f, 3};
    Onnx__TensorProto t = tensor(1, dims, 2);
    t.float_data = f;
    t.n_float_data = 3;
    t.name = (char *)"x";
    assert_null(parse(&a, &t, &x));
    assert_string_equal(x.descr, "<f4");
    assert_string_equal(x.name, "x");
    assert_int_equal(x.rank, 2);
    assert_int_equal(x.dims[1], 3);
    assert_memory_equal(x.data, f, sizeof f);
    int32_t small[3] = {-1, 127, -128};
    const int8_t want[3] = {-1, 127, -128};
    t = tensor(3, dims, 2);
    t.int32_data = small;
    t.n_int32_data = 3;
    assert_null(parse(&a, &t, &x));
    assert_string_equal(x.descr, "|i1");
    assert_memory_equal(x.data, want, 3);
    uint64_t big[3] = {UINT64_MAX, 0, 1};
    t = tensor(13, dims, 2);
    t.uint64_data = big;
    t.n_uint64_data = 3;
    assert_null(parse(&a, &t, &x));
    assert_memory_equal(x.data, big, sizeof big);
    double d[3] = {1e300, 2, 3};
    t = tensor(11, dims, 2);
    t.double_data = d;
    t.n_double_data = 3;
    assert_null(parse(&a, &t, &x));
    assert_memory_equal(x.data, d, sizeof d);
    int64_t scalar[1] = {INT64_MIN};
    t = tensor(7, NULL, 0);
    t.int64_data = scalar;
    t.n_int64_data = 1;
    assert_null(parse(&a, &t, &x));
    assert_int_equal(x.rank, 0);
    assert_memory_equal(x.data, scalar, 8);
    arena_done(&a);
}

static void raw(void **state) {
    (void)state;
    struct arena a = {0};
    struct npy x;
    int64_t dims[1] = {2}, none[1] = {0};
    uint8_t bytes[4] = {0, 0x3c, 0, 0xbc};
    Onnx__TensorProto t = tensor(10, dims, 1);
    t.raw_data = (ProtobufCBinaryData){4, bytes};
    assert_null(parse(&a, &t, &x));
    assert_string_equal(x.descr, "<f2");
    assert_memory_equal(x.data, bytes, 4);
    t = tensor(1, none, 1); // no elements at all
    assert_null(parse(&a, &t, &x));
    assert_int_equal(x.size_bytes, 0);
    arena_done(&a);
}

static void refused(void **state) {
    (void)state;
    struct arena a = {0};
    struct npy x;
    int64_t two[1] = {2}, huge[2] = {INT64_MAX, 8}, minus[1] = {-1}, many[20] = {0};
    uint8_t bytes[7] = {0};
    float f[3] = {0};
    Onnx__TensorProto cases[7] = {tensor(1, two, 1),   tensor(1, huge, 2), tensor(1, minus, 1),
                                  tensor(1, many, 20), tensor(16, two, 1), tensor(8, two, 1),
                                  tensor(1, two, 1)};
    cases[0].raw_data = (ProtobufCBinaryData){7, bytes};
    cases[6].float_data = f;
    cases[6].n_float_data = 3;
    for (size_t i = 0; i < 7; i++) {
        status_t st = parse(&a, &cases[i], &x);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(st_message(st), "t.pb"));
        st_drop(st);
    }
    status_t st = onnx_tensor_parse(&a, (struct span){(const uint8_t *)"\xff\xff", 2}, "t.pb", &x);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(typed), cmocka_unit_test(raw),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
