// SPDX-License-Identifier: Apache-2.0
// Entries of --cache-remote.
#include "scheduler/remote/remote_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/str.h"

static struct arena arena;
static struct remote_spec one(const char *text) {
    struct remote_spec *v;
    size_t n;
    status_t st = remote_specs(&arena, text, &v, &n);
    if (st) fail_msg("%s: %s", text, st_message(st));
    assert_int_equal(n, 1);
    return v[0];
}
static void bad(const char *text, const char *says) {
    struct remote_spec *v;
    size_t n;
    status_t st = remote_specs(&arena, text, &v, &n);
    if (!st) fail_msg("%s is taken", text);
    if (!strstr(st_message(st), says)) fail_msg("%s: %s", text, st_message(st));
    st_drop(st);
}

static void kinds(void **state) {
    (void)state;
    struct remote_spec x = one("http://10.0.0.1:8000");
    assert_true(x.kind == REMOTE_PEER && !x.tls && x.port == 8000);
    assert_string_equal(x.host, "10.0.0.1");
    x = one("https://[fd00::1]:8443");
    assert_true(x.kind == REMOTE_PEER && x.tls && x.port == 8443);
    assert_string_equal(x.host, "fd00::1");
    x = one("dns:hlod-headless.prod.svc:8000  tls");
    assert_true(x.kind == REMOTE_DNS && x.tls && x.port == 8000);
    assert_string_equal(x.host, "hlod-headless.prod.svc");
    assert_string_equal(x.name, "dns:hlod-headless.prod.svc:8000");
    x = one("https://cache.example/hlod/v1/ readonly token=/etc/t ca=/etc/c");
    assert_true(x.kind == REMOTE_PREFIX && x.tls && x.read_only);
    assert_string_equal(x.base, "https://cache.example/hlod/v1");
    assert_string_equal(x.token, "/etc/t");
    assert_string_equal(x.ca, "/etc/c");
    x = one("http://127.0.0.1:9/ token=/t"); // a slash makes it a prefix
    assert_true(x.kind == REMOTE_PREFIX);
    assert_string_equal(x.base, "http://127.0.0.1:9");
    x = one("s3://my-bucket.x/a/b/");
    assert_true(x.kind == REMOTE_S3);
    assert_string_equal(x.bucket, "my-bucket.x");
    assert_string_equal(x.base, "a/b");
    x = one("s3://bucket readonly");
    assert_string_equal(x.base, "");
}
static void several(void **state) {
    (void)state;
    struct remote_spec *v;
    size_t n;
    assert_null(remote_specs(&arena, "dns:a:1, http://b:2 , s3://ccc/d readonly", &v, &n));
    assert_int_equal(n, 3);
    assert_string_equal(v[1].host, "b");
    assert_true(v[2].read_only);
    assert_null(remote_specs(&arena, "", &v, &n));
    assert_int_equal(n, 0);
    struct strbuf b = {0};
    for (int k = 0; k <= REMOTES_MAX; k++)
        strbuf_printf(&b, "%shttp://h%d:1", k ? "," : "", k);
    bad(b.p, "more than");
    strbuf_done(&b);
}
static void refused(void **state) {
    (void)state;
    bad("cache.example", "expected http");
    bad("file:///etc", "expected http");
    bad("http://", "a peer is");
    bad("http://h", "a peer is");
    bad("http://h:0", "a peer is");
    bad("http://h:70000", "a peer is");
    bad("http://h:1x", "a peer is");
    bad("http://[::1:80", "a peer is");
    bad("http://user@h:1", "no credentials");
    bad("https://u:p@h/x", "no credentials");
    bad("https://h/../x", "a path");
    bad("https://h/a/./x", "a path");
    bad("https://h/a?x", "a path");
    bad("https://h/a#x", "a path");
    bad("https://h/%2e", "a path");
    bad("https://h\\x/a", "expected https");
    bad("dns:h", "expected dns");
    bad("dns:h:1/x", "expected dns");
    bad("s3://ab/x", "expected s3");
    bad("s3://Bucket/x", "expected s3");
    bad("s3://bucket//x", "expected s3");
    bad("s3://bucket/..", "expected s3");
    bad("http://a:1,http://a:1", "twice");
    bad("http://a:1 readonly", "no word 'readonly'");
    bad("dns:a:1 readonly", "no word 'readonly'");
    bad("s3://bucket token=/x", "no word");
    bad("https://h/x token=", "no word");
    bad("http://h/x token=/t", "unencrypted");
    bad(",", "expected http");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(several),
                                       cmocka_unit_test(refused)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_done(&arena);
    return rc;
}
