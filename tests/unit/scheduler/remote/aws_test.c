// SPDX-License-Identifier: Apache-2.0
// Credentials, region and endpoint, as AWS's tools find them.
#include "scheduler/remote/aws.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static struct arena arena;
static const char *const *vars; // NAME, VALUE, ..., NULL
static const char *env(const char *name) {
    for (size_t i = 0; vars && vars[i]; i += 2)
        if (!strcmp(vars[i], name)) return vars[i + 1];
    return NULL;
}
static const char credentials[] = "# comment\n[default]\naws_access_key_id = ID1\n"
                                  "aws_secret_access_key=SE/C=1 \n\n[ other ]\n"
                                  "aws_access_key_id=ID2\naws_secret_access_key = S2\n"
                                  "aws_session_token = T2\n";
static const char config[] = "[default]\nregion = eu-west-1\ns3 =\n  endpoint_url = http://wrong\n"
                             "[profile other]\nregion=us-west-2\n"
                             "endpoint_url = https://minio.example:9000/\n";

static struct aws find(const char *const *v) {
    struct aws x;
    vars = v;
    status_t st = aws_find(&arena, env, str_of(credentials), str_of(config), &x);
    if (st) fail_msg("%s", st_message(st));
    return x;
}
static void of_files(void **state) {
    (void)state;
    struct aws x = find(NULL);
    assert_string_equal(x.id, "ID1");
    assert_string_equal(x.secret, "SE/C=1");
    assert_null(x.session);
    assert_string_equal(x.region, "eu-west-1");
    assert_null(x.endpoint);
    static const char *const other[] = {"AWS_PROFILE", "other", NULL};
    x = find(other);
    assert_string_equal(x.id, "ID2");
    assert_string_equal(x.session, "T2");
    assert_string_equal(x.region, "us-west-2");
    assert_string_equal(x.endpoint, "https://minio.example:9000");
}
static void of_environment(void **state) {
    (void)state;
    static const char *const v[] = {"AWS_ACCESS_KEY_ID",
                                    "E",
                                    "AWS_SECRET_ACCESS_KEY",
                                    "F",
                                    "AWS_REGION",
                                    "ap-1",
                                    "AWS_DEFAULT_REGION",
                                    "no",
                                    "AWS_ENDPOINT_URL",
                                    "http://127.0.0.1:9",
                                    "AWS_CA_BUNDLE",
                                    "/ca",
                                    "AWS_SESSION_TOKEN",
                                    "",
                                    NULL};
    struct aws x = find(v);
    assert_string_equal(x.id, "E");
    assert_null(x.session); // empty is none
    assert_string_equal(x.region, "ap-1");
    assert_string_equal(x.endpoint, "http://127.0.0.1:9");
    assert_string_equal(x.ca, "/ca");
    static const char *const half[] = {"AWS_ACCESS_KEY_ID", "E", NULL};
    x = find(half); // not half from here, half from there
    assert_string_equal(x.id, "ID1");
    assert_string_equal(x.secret, "SE/C=1");
    struct aws_files f;
    static const char *const home[] = {"HOME", "/home/u", "AWS_CONFIG_FILE", "/c", NULL};
    vars = home;
    aws_files(&arena, env, &f);
    assert_string_equal(f.credentials, "/home/u/.aws/credentials");
    assert_string_equal(f.config, "/c");
    vars = NULL;
    aws_files(&arena, env, &f);
    assert_string_equal(f.credentials, "");
}
static void mistakes(void **state) {
    (void)state;
    struct aws x;
    vars = NULL;
    status_t st = aws_find(&arena, env, STR(""), STR("[default]\nregion=x\n"), &x);
    assert_int_equal(st_code(st), ST_FAILED_PRECONDITION);
    st_drop(st);
    static const char *const all[][3] = {{"AWS_REGION", "a/b", NULL},
                                         {"AWS_ENDPOINT_URL", "minio:9000", NULL},
                                         {"AWS_ENDPOINT_URL", "http://u:p@h", NULL},
                                         {"AWS_ENDPOINT_URL_S3", "https://h/path", NULL},
                                         {"AWS_ENDPOINT_URL", "https://", NULL}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        vars = all[k];
        st = aws_find(&arena, env, str_of(credentials), STR(""), &x);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        st_drop(st);
    }
}
static void urls(void **state) {
    (void)state;
    struct aws x = {.region = "eu-west-1"};
    assert_string_equal(aws_url(&arena, &x, "bucket", "a/b"),
                        "https://bucket.s3.eu-west-1.amazonaws.com/a/b");
    assert_string_equal(aws_url(&arena, &x, "bucket", ""),
                        "https://bucket.s3.eu-west-1.amazonaws.com");
    assert_string_equal(aws_url(&arena, &x, "my.bucket", "a"),
                        "https://s3.eu-west-1.amazonaws.com/my.bucket/a");
    x.endpoint = "http://127.0.0.1:9000";
    assert_string_equal(aws_url(&arena, &x, "bucket", "a"), "http://127.0.0.1:9000/bucket/a");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_files), cmocka_unit_test(of_environment),
                                       cmocka_unit_test(mistakes), cmocka_unit_test(urls)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_done(&arena);
    return rc;
}
