// SPDX-License-Identifier: Apache-2.0
// Ed25519 by RFC 8032's vectors, keys in files, what is signed of an executable.
#include "proto/signing/signing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/store/file.h"
#include "base/str.h"
#include "proto/signing/bundle.h"

static char dir[] = "/tmp/hlod-signing-XXXXXX";
static const char *at(const char *name) {
    static char path[4][100];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}
static void write_file(const char *path, const char *text, unsigned mode) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
}

// RFC 8032, 7.1, TEST 1: its secret key as PKCS#8; its signature is of the empty message, so what
// is compared is the public key.
static void known_key(void **state) {
    (void)state;
    write_file(at("rfc"),
               "-----BEGIN PRIVATE KEY-----\n"
               "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
               "-----END PRIVATE KEY-----\n",
               0600);
    struct sign_private *k;
    assert_null(sign_read_private(at("rfc"), &k));
    static const uint8_t public[] = {0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7,
                                     0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
                                     0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25,
                                     0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};
    assert_memory_equal(sign_public_of(k)->key, public, sizeof public);
    sign_private_free(k);
}

static void signs(void **state) {
    (void)state;
    struct sign_public p, read[3];
    struct sign_private *k;
    size_t n;
    uint8_t s[SIGN_BYTES];
    assert_null(sign_make(at("key"), &p));
    assert_null(sign_read_private(at("key"), &k));
    assert_null(sign_read_public(at("key.pub"), read, 3, &n));
    assert_int_equal(n, 1);
    assert_memory_equal(read[0].key, p.key, sizeof p.key);
    assert_string_equal(read[0].id, p.id);

    struct digest d = sha256_of("x", 1), other = sha256_of("y", 1);
    sign_digest(k, d, s);
    assert_true(sign_verify(&p, d, (struct span){s, sizeof s}));
    assert_false(sign_verify(&p, other, (struct span){s, sizeof s}));
    for (size_t i = 0; i < sizeof s; i++) {
        s[i] ^= 1;
        assert_false(sign_verify(&p, d, (struct span){s, sizeof s}));
        s[i] ^= 1;
    }
    assert_false(sign_verify(&p, d, (struct span){s, sizeof s - 1}));
    assert_false(sign_verify(&p, d, (struct span){NULL, 0}));
    sign_private_free(k);
    sign_private_free(NULL);
}

static void says(status_t st, const char *text) {
    if (!st) fail_msg("it is taken");
    if (!strstr(st_message(st), text)) fail_msg("%s", st_message(st));
    assert_null(strstr(st_message(st), "MC4CAQ"));
    st_drop(st);
}
static void refused(void **state) {
    (void)state;
    struct sign_private *k;
    struct sign_public p, read[1];
    size_t n;
    says(sign_read_private(at("none"), &k), "No such file");
    write_file(at("text"), "hello\n", 0600);
    says(sign_read_private(at("text"), &k), "Ed25519");
    says(sign_read_public(at("text"), read, 1, &n), "no public key");
    says(sign_read_private(at("key.pub"), &k), "is a secret");
    chmod(at("key"), 0640); // its group may read it
    assert_null(sign_read_private(at("key"), &k));
    sign_private_free(k);
    chmod(at("key"), 0644);
    says(sign_read_private(at("key"), &k), "is a secret");
    says(sign_read_public(at("rfc"), read, 1, &n), "expected public keys");
    says(sign_make(at("key"), &p), "is there");
    struct arena a = {0};
    struct str text;
    assert_null(file_read(&a, at("key.pub"), 1000, NULL, &text));
    write_file(at("two"), arena_printf(&a, "# a\n%s# b\n%s", text.p, text.p), 0644);
    says(sign_read_public(at("two"), read, 1, &n), "more than 1");
    write_file(at("cut"), arena_printf(&a, "%.60s\n-----END PUBLIC KEY-----\n", text.p), 0644);
    says(sign_read_public(at("cut"), read, 1, &n), "expected public keys");
    arena_done(&a);
}

// What only the daemon that has it knows, and whose model it was, is not signed; all else is.
static void of_a_bundle(void **state) {
    (void)state;
    Hlod__V1__ExecutableInfo x = HLOD__V1__EXECUTABLE_INFO__INIT;
    Hlod__V1__ExecutableBundle b = HLOD__V1__EXECUTABLE_BUNDLE__INIT;
    uint8_t code[] = "code";
    x.digest = (char *)"k";
    x.peak_bytes = 5;
    b.info = &x;
    b.artifact = (ProtobufCBinaryData){4, code};
    struct str secret = STR("s3cret");
    struct digest d = bundle_digest(&b, NULL), m = bundle_digest(&b, &secret);
    assert_false(digest_eq(d, m));
    x.pinned = x.unsigned_import = true;
    x.source_digest = x.weights_digest = x.origin = x.signed_by = (char *)"elsewhere";
    x.weights_bytes = 9;
    x.ed25519 = b.artifact;
    assert_true(digest_eq(d, bundle_digest(&b, NULL)));
    assert_true(digest_eq(m, bundle_digest(&b, &secret)));
    x.peak_bytes = 6;
    assert_false(digest_eq(d, bundle_digest(&b, NULL)));
    x.peak_bytes = 5;
    code[3] = 'f';
    assert_false(digest_eq(d, bundle_digest(&b, NULL)));
    assert_false(digest_eq(m, bundle_digest(&b, &secret)));
}

static int make_dir(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : 1;
}
static int remove_dir(void **state) {
    (void)state;
    static const char *const names[] = {"rfc", "key", "key.pub", "text", "two", "cut"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        unlink(at(names[k]));
    return rmdir(dir);
}
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_key), cmocka_unit_test(signs),
                                       cmocka_unit_test(refused), cmocka_unit_test(of_a_bundle)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
