// SPDX-License-Identifier: Apache-2.0
// What is written reads back; what is no such file is refused with its reason.
#include "proto/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/store/file.h"

static struct span file_of(struct arena *a, const char *header, size_t data) {
    size_t n = strlen(header);
    uint8_t *p = arena_zalloc(a, 8 + n + data + 1);
    for (int k = 0; k < 8; k++)
        p[k] = (uint8_t)((uint64_t)n >> 8 * k);
    memcpy(p + 8, header, n);
    return (struct span){p, 8 + n + data};
}

static void test_round_trip(void **state) {
    (void)state;
    struct arena a = {0};
    const float x[3] = {1, 2, 3};
    const int32_t step = 7;
    const int64_t dims[2] = {3, 1}, none[2] = {0, 5};
    const char *const metadata[] = {"spec", "loss=\"mse\"", NULL}, *const * got;
    const struct safetensor v[3] = {{"w/x", "f32", 2, dims, {(const uint8_t *)x, sizeof x}},
                                    {"none", "bf16", 2, none, {NULL, 0}},
                                    {"step", "s32", 0, NULL, {(const uint8_t *)&step, 4}}};
    char path[] = "/tmp/safetensors-test.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_null(safetensors_write(fd, path, v, 3, metadata));
    close(fd);

    struct span file;
    struct safetensor *r;
    size_t n;
    assert_null(file_map(&a, path, &file));
    unlink(path);
    assert_null(safetensors_read(&a, file, &r, &n, &got));
    assert_int_equal(n, 3);
    assert_int_equal(((uintptr_t)file.p + 8 + file.p[0] + 256u * file.p[1]) % 8, 0);
    assert_string_equal(r[0].name, "w/x");
    assert_int_equal(r[0].rank, 2);
    assert_int_equal(r[0].dims[0], 3);
    assert_memory_equal(r[0].data.p, x, sizeof x);
    assert_string_equal(r[2].dtype, "s32");
    assert_memory_equal(r[2].data.p, &step, 4);
    assert_string_equal(got[0], "spec");
    assert_string_equal(got[1], "loss=\"mse\"");
    assert_null(got[2]);
    arena_done(&a);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *why;
    } cases[] = {
        {"[]", 0, "no JSON object"},
        {"{\"a\":", 0, "no JSON"},
        {"{\"a\":{\"dtype\":\"F9\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "'F9' is not known"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "needs 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "is no size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
         "is no size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4, "not within"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "not within"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "no list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "do not follow"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
         6, "do not follow"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 2, "behind the last"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         1, "no JSON"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "is no text"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct arena a = {0};
        struct safetensor *v;
        size_t n;
        status_t st =
            safetensors_read(&a, file_of(&a, cases[k].header, cases[k].data), &v, &n, NULL);
        assert_non_null(st);
        if (!strstr(st_message(st), cases[k].why)) fail_msg("case %zu: %s", k, st_message(st));
        st_drop(st);
        arena_done(&a);
    }
}
static void test_short(void **state) {
    (void)state;
    struct arena a = {0};
    struct safetensor *v;
    size_t n;
    struct span whole =
        file_of(&a, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    assert_null(safetensors_read(&a, whole, &v, &n, NULL));
    for (size_t k = 0; k < whole.n; k++) {
        status_t st = safetensors_read(&a, (struct span){whole.p, k}, &v, &n, NULL);
        assert_non_null(st);
        st_drop(st);
    }
    uint8_t huge[16] = {255, 255, 255, 255, 255, 255, 255, 255};
    status_t st = safetensors_read(&a, (struct span){huge, sizeof huge}, &v, &n, NULL);
    assert_non_null(st);
    st_drop(st);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
