// SPDX-License-Identifier: Apache-2.0
// Which coding a client gets, and that what was coded comes back; damaged and swollen bodies.
#include "server/http/coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hlod.pb-c.h"

static void accepted(void **state) {
    (void)state;
    assert_int_equal(coding_accepted(""), CODING_NONE);
    assert_int_equal(coding_accepted("gzip"), CODING_GZIP);
    assert_int_equal(coding_accepted("deflate, gzip"), CODING_DEFLATE);
    assert_int_equal(coding_accepted("deflate;q=0.5, gzip;q=0.8"), CODING_GZIP);
    assert_int_equal(coding_accepted("br, GZIP ; q=0.1"), CODING_GZIP);
    assert_int_equal(coding_accepted("gzip;q=0"), CODING_NONE);
    assert_int_equal(coding_accepted("gzip;q=0, deflate;q=0.001"), CODING_DEFLATE);
    assert_int_equal(coding_accepted("gzip;q=nonsense"), CODING_NONE);
    assert_int_equal(coding_accepted("br, identity, *"), CODING_NONE);
    assert_int_equal(coding_accepted("xgzip, gzipx, averyveryverylongname"), CODING_NONE);
    enum coding c;
    assert_true(coding_of("", &c) && c == CODING_NONE);
    assert_true(coding_of("identity", &c) && c == CODING_NONE);
    assert_true(coding_of("Deflate", &c) && c == CODING_DEFLATE);
    assert_true(coding_of("X-GZIP", &c) && c == CODING_GZIP);
    assert_false(coding_of("br", &c) || coding_of("x-deflate", &c));
}

// Sizes around zlib's buffers, in parts of all lengths, empty ones too.
static void there_and_back(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 1023, 32767, 32768, 32769, 300000};
    for (int c = CODING_GZIP; c <= CODING_DEFLATE; c++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            size_t n = sizes[s], cut = n / 3;
            uint8_t *p = malloc(n + 1);
            for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)(i * 2654435761u >> (i % 7));
            struct span parts[] = {{p, cut}, {NULL, 0}, {p + cut, n - cut}, {NULL, 0}};
            struct strbuf small = {0}, back = {0};
            coding_do((enum coding)c, parts, 4, &small);
            assert_null(coding_undo((struct str){small.p, small.n}, (int64_t)n, &back));
            assert_int_equal(back.n, n);
            if (n) assert_memory_equal(back.p, p, n);
            strbuf_clear(&back);
            if (n) { // one byte less than it takes
                status_t st = coding_undo((struct str){small.p, small.n}, (int64_t)n - 1, &back);
                assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BODY_TOO_LARGE);
                st_drop(st);
            }
            strbuf_clear(&back);
            status_t st = coding_undo((struct str){small.p, small.n - 1}, 1 << 20, &back);
            assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BAD_FRAMING);
            st_drop(st);
            strbuf_done(&small);
            strbuf_done(&back);
            free(p);
        }
}

// What `cat a.gz b.gz` and compressors with threads give: members one behind the other.
static void members(void **state) {
    (void)state;
    struct span parts[] = {{(const uint8_t *)"abcdefgh", 8}};
    struct strbuf both = {0}, back = {0};
    coding_do(CODING_GZIP, parts, 1, &both);
    coding_do(CODING_GZIP, parts, 1, &both);
    assert_null(coding_undo((struct str){both.p, both.n}, 16, &back));
    assert_int_equal(back.n, 16);
    assert_memory_equal(back.p, "abcdefghabcdefgh", 16);
    strbuf_puts(&both, "x");
    strbuf_clear(&back);
    status_t st = coding_undo((struct str){both.p, both.n}, 1 << 20, &back);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BAD_FRAMING);
    st_drop(st);
    strbuf_clear(&back);
    st = coding_undo((struct str){both.p, both.n - 3}, 1 << 20, &back);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BAD_FRAMING);
    st_drop(st);
    strbuf_clear(&both);
    coding_do(CODING_DEFLATE, parts, 1, &both);
    coding_do(CODING_DEFLATE, parts, 1, &both);
    strbuf_clear(&back);
    st = coding_undo((struct str){both.p, both.n}, 1 << 20, &back);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BAD_FRAMING);
    st_drop(st);
    strbuf_done(&both);
    strbuf_done(&back);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(accepted), cmocka_unit_test(there_and_back),
                                   cmocka_unit_test(members)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
