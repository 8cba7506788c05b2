// SPDX-License-Identifier: Apache-2.0
// Packages as archives: bounds of the format, and a header's fields. tests/api/web.py has tar and
// Python read whole ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/web/web.h"

static void a_file(void **state) {
    (void)state;
    static const uint8_t text[] = "0123456789";
    struct web_file v[] = {{"a/b.txt", {text, 10}}, {"empty", {NULL, 0}}};
    struct web_files f = {.v = v, .n = 2};
    int64_t bytes;
    assert_null(web_archive_bytes(&f, "top", &bytes));
    assert_int_equal(bytes, 512 + 512 + 512 + 1024);
    uint8_t *to = malloc((size_t)bytes);
    assert_non_null(to);
    memset(to, 0xee, (size_t)bytes);
    web_archive_write(&f, "top", to);

    assert_string_equal((char *)to, "top/a/b.txt");
    assert_string_equal((char *)to + 124, "00000000012");
    assert_memory_equal(to + 257, "ustar\00000", 8);
    unsigned long sum = 0, said = strtoul((char *)to + 148, NULL, 8);
    for (int k = 0; k < 512; k++)
        sum += k >= 148 && k < 156 ? ' ' : to[k];
    assert_int_equal(sum, said);
    assert_memory_equal(to + 512, text, 10);
    for (int k = 522; k < 1024; k++)
        assert_int_equal(to[k], 0);
    assert_string_equal((char *)to + 1024, "top/empty");
    for (int64_t k = 1536; k < bytes; k++)
        assert_int_equal(to[k], 0);
    free(to);
}

static void bounds(void **state) {
    (void)state;
    char path[200];
    struct web_file v[] = {{path, {(const uint8_t *)"x", 1}}};
    struct web_files f = {.v = v, .n = 1};
    int64_t bytes;
    memset(path, 'p', sizeof path);
    path[95] = 0; // with "top/" and the end: 100
    assert_null(web_archive_bytes(&f, "top", &bytes));
    path[95] = 'p';
    path[96] = 0;
    status_t st = web_archive_bytes(&f, "top", &bytes);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
    path[1] = 0;
    v[0].bytes.n = ((size_t)1 << 33) - 1;
    assert_null(web_archive_bytes(&f, "top", &bytes));
    v[0].bytes.n++;
    st = web_archive_bytes(&f, "top", &bytes);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_file), cmocka_unit_test(bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
