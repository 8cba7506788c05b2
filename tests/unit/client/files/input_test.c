// SPDX-License-Identifier: Apache-2.0
// The words behind -i: numbers, typed numbers, raw files, and what is refused.
#include "client/files/input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct arena a;
static const struct image_options none = {.std = {1, 1, 1}};

static void numbers(void **state) {
    (void)state;
    struct npy x;
    assert_null(input_parse(&a, "x=1,-2.5,3", &none, &x));
    assert_string_equal(x.name, "x");
    assert_string_equal(x.descr, "<f4");
    assert_int_equal(x.rank, 1);
    assert_int_equal(x.dims[0], 3);
    assert_true(((float *)x.data)[1] == -2.5f);
    assert_null(input_parse(&a, "ids=2x3xs64=1,2,3,4,5,-6", &none, &x));
    assert_string_equal(x.descr, "<i8");
    assert_int_equal(x.rank, 2);
    assert_int_equal(((int64_t *)x.data)[5], -6);
    assert_null(input_parse(&a, "k=f64=2.5", &none, &x)); // a scalar
    assert_int_equal(x.rank, 0);
    assert_int_equal(x.size_bytes, 8);
    assert_string_equal(input_datatype("|b1"), "BOOL");
    assert_true(input_set_type(&x, "INT64"));
    assert_string_equal(x.descr, "<i8");
    assert_true(input_set_type(&x, "f8e5m2")); // NumPy has none: as ml_dtypes writes it
    assert_string_equal(x.descr, "|V1");
    assert_string_equal(input_type(&x), "f8e5m2");
    assert_false(input_set_type(&x, "f9"));
    assert_null(input_parse(&a, "b=2xbf16=1,-2", &none, &x));
    assert_string_equal(input_type(&x), "BF16");
    assert_int_equal(((uint16_t *)x.data)[1], 0xc000);
}

static void raw_file(void **state) {
    (void)state;
    char path[] = "/tmp/input-test-XXXXXX", word[100];
    int fd = mkstemp(path);
    const int32_t v[6] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(write(fd, v, sizeof v), sizeof v);
    close(fd);
    struct npy x;
    snprintf(word, sizeof word, "x=2x3xs32=@%s", path);
    assert_null(input_parse(&a, word, &none, &x));
    assert_memory_equal(x.data, v, sizeof v);
    snprintf(word, sizeof word, "x=2x2xs32=@%s", path);
    status_t st = input_parse(&a, word, &none, &x);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(st_message(st), "24 bytes"));
    st_drop(st);
    unlink(path);
}

static void refused(void **state) {
    (void)state;
    static const char *const words[] = {"x",
                                        "x=1,two",
                                        "x=2xf32=1",
                                        "x=-1xf32=1",
                                        "x=@/nonexistent",
                                        "x=2xf99=1,2",
                                        "x=2xf32x=1",
                                        "x=99999999999x99999999999xf32=1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct npy x;
        status_t st = input_parse(&a, words[i], &none, &x);
        assert_non_null(st);
        st_drop(st);
    }
    struct image_options o = none;
    double c[3];
    static const char *const sizes[] = {"224", "0x4", "4x", "4x4x4", "99999x4"};
    for (size_t i = 0; i < 5; i++) {
        status_t st = input_size(sizes[i], &o);
        assert_non_null(st);
        st_drop(st);
    }
    assert_null(input_size("3x5", &o));
    assert_int_equal(o.height, 3);
    assert_null(input_channels("1,2,3", c));
    assert_true(c[2] == 3);
    status_t st = input_channels("1,2", c);
    assert_non_null(st);
    st_drop(st);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(numbers), cmocka_unit_test(raw_file),
                                   cmocka_unit_test(refused)};
    int rc = cmocka_run_group_tests(t, NULL, NULL);
    arena_done(&a);
    return rc;
}
