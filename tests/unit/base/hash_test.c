// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256 by the vectors of RFC 4231; digests that are remembered.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

static void is(const void *key, size_t n, const void *data, size_t bytes, const char *hex) {
    struct hmac m;
    char got[65];
    hmac_init(&m, (struct span){key, n});
    sha256_add(&m.inner, data, bytes / 2); // in two pieces
    sha256_add(&m.inner, (const char *)data + bytes / 2, bytes - bytes / 2);
    digest_hex(hmac_end(&m), got);
    assert_string_equal(got, hex);
}
static void vectors(void **state) {
    (void)state;
    uint8_t key[131], data[50];
    memset(key, 0x0b, 20);
    is(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    is("Jefe", 4, "what do ya want for nothing?", 28,
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    is(key, 20, data, sizeof data,
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    is(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
static void equal(void **state) {
    (void)state;
    struct digest a = sha256_of("a", 1), b = a;
    assert_true(digest_eq_secret(a, b));
    for (int k = 0; k < 32; k++) {
        b = a;
        b.b[k] ^= 0x40;
        assert_false(digest_eq_secret(a, b));
    }
}
// The same as without memory, the first time and again, for short texts and long ones.
static void remembered(void **state) {
    (void)state;
    uint8_t text[900];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(i * 7);
    for (int again = 0; again < 2; again++)
        for (size_t n = 0; n <= sizeof text; n += 1 + n / 40) {
            struct sha256 s;
            struct sha256_text t = {0};
            sha256_init(&s);
            sha256_str(&s, (struct str){(const char *)text, n / 2});
            sha256_add(&s, text + n / 2, n - n / 2);
            sha256_u64(&s, n);
            sha256_text_str(&t, (struct str){(const char *)text, n / 2});
            sha256_text_add(&t, text + n / 2, n - n / 2);
            sha256_text_u64(&t, n);
            assert_true(digest_eq(sha256_end(&s), sha256_text_end(&t)));
        }
    struct sha256_text none = {0};
    assert_true(digest_eq(sha256_text_end(&none), sha256_of("", 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(equal),
                                       cmocka_unit_test(remembered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
