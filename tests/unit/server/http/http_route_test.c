// SPDX-License-Identifier: Apache-2.0
// Routing as data: which row and reply form a request gets, path and query parameters, errors as
// JSON. And the cut of tensor data out of a JSON body.
#include "server/http/http_route.h"

#include "scheduler/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/vec.h"
#include "proto/json.h"
#include "server/body/tensors.h"

static struct arena a;

static void goes(const char *verb, const char *path, const char *accept, int stream,
                 const char *method, enum reply_form form) {
    struct route r;
    const char *allow;
    status_t st = http_route(&a, verb, path, accept, stream, &r, &allow);
    if (st) fail_msg("%s %s: %s", verb, path, st_message(st));
    assert_string_equal(r.row->method, method);
    assert_int_equal(r.form, form);
}

static void rows(void **state) {
    (void)state;
    assert_null(api_init());
    goes("POST", "/v1/executables", "", -1, "Compile", FORM_JSON);
    goes("POST", "/v1/executables", "*/*", 1, "CompileStream", FORM_NDJSON);
    goes("POST", "/v1/executables", "application/x-ndjson", -1, "CompileStream", FORM_NDJSON);
    goes("POST", "/v1/run", "*/*", -1, "Run", FORM_NDJSON);
    goes("POST", "/v1/run", "application/json", -1, "RunUnary", FORM_JSON);
    goes("POST", "/v1/run", "application/octet-stream", -1, "RunUnary", FORM_BINARY);
    goes("POST", "/v1/run", "application/x-ndjson, application/json", -1, "Run", FORM_NDJSON);
    goes("POST", "/v1/run", "", 0, "RunUnary", FORM_JSON);
    goes("GET", "/v1/executables", "", -1, "ListExecutables", FORM_JSON);
    goes("GET", "/v1/executables/abc", "", -1, "GetExecutable", FORM_JSON);
    goes("DELETE", "/v1/executables/abc", "", -1, "RemoveExecutable", FORM_JSON);
    goes("GET", "/v1/executables/abc/stage/pass/dce", "", -1, "Inspect", FORM_TEXT);
    goes("GET", "/v1/executables/abc/stage/kir", "application/json", -1, "Inspect", FORM_JSON);
    goes("GET", "/v1/blobs/abc", "", -1, "GetBlob", FORM_FILE);
    goes("GET", "/v1/buffers/abc", "application/octet-stream", -1, "GetBuffer", FORM_BYTES);
    goes("POST", "/v2/models/m/infer", "", -1, "ModelInfer", FORM_OIP);
    goes("POST", "/v2/models/m/generate", "", -1, "ModelInfer", FORM_GENERATE);
    goes("POST", "/v2/models/m/generate_stream", "", -1, "ModelInfer", FORM_GENERATE_STREAM);
    goes("GET", "/v2/models/generate", "", -1, "ModelMetadata", FORM_OIP);
    goes("POST", "/hlod.v1.Hlod/RunUnary", "application/x-protobuf", -1, "RunUnary", FORM_PROTO);
}

static void refused(const char *verb, const char *path, unsigned code, const char *allow_words) {
    struct route r;
    const char *allow;
    status_t st = http_route(&a, verb, path, "", -1, &r, &allow);
    assert_int_equal(error_http_code(st), code);
    if (allow_words) assert_string_equal(allow, allow_words);
    st_drop(st);
}

static void refusals(void **state) {
    (void)state;
    refused("GET", "/v1", 404, NULL);
    refused("GET", "/v1/executables/", 404, NULL);
    refused("GET", "/v2/models//", 404, NULL);
    refused("GET", "/v1/executables/a/b", 404, NULL);
    refused("PATCH", "/v1/executables", 405, "POST, GET, HEAD");
    refused("POST", "/v1/executables/abc", 405, "GET, HEAD, DELETE");
    refused("GET", "/hlod.v1.Hlod/Run", 405, "POST");
    refused("POST", "/hlod.v1.Hlod/Run2", 501, NULL);
    struct strbuf b = {0};
    status_t st = st_reason(st_new(ST_INVALID_ARGUMENT, "two nodes\nnode \"a\"\nnode b"),
                            HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
    http_error_json(&b, st);
    assert_string_equal(b.p,
                        "{\"code\":\"INVALID_ARGUMENT\",\"reason\":\"UNSUPPORTED_OP\",\"message\":"
                        "\"two nodes\",\"details\":[\"node \\\"a\\\"\",\"node b\"]}");
    st_drop(st);
    strbuf_done(&b);
}

static void parameters(void **state) {
    (void)state;
    struct route r;
    const char *allow;
    assert_null(http_route(&a, "GET", "/v1/executables/abc/stage/pass/dce", "", -1, &r, &allow));
    Hlod__V1__InspectRequest q = HLOD__V1__INSPECT_REQUEST__INIT;
    assert_null(http_route_params(&a, &r, &q.base));
    assert_string_equal(q.digest, "abc");
    assert_string_equal(q.stage, "pass/dce");
}

// A request like one before has its own values, and nothing of the other where it differs.
static void again(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        char path[] = "/v1/executables/abc/stage/kir";
        struct route r;
        const char *allow = "x";
        assert_null(http_route(&a, "GET", path, "", -1, &r, &allow));
        assert_null(allow);
        assert_string_equal(r.row->method, "Inspect");
        assert_int_equal(r.n_params, 2);
        assert_ptr_equal(r.params[0].value.p, path + 16);
        assert_ptr_equal(r.params[1].value.p, path + 26);
        goes("GET", path, "application/json", -1, "Inspect", FORM_JSON);
        goes("GET", path, "", -1, "Inspect", FORM_TEXT);
        refused("POST", path, 405, "GET, HEAD");
        goes("POST", "/v1/run", "application/json", -1, "RunUnary", FORM_JSON);
        goes("POST", "/v1/run", "application/json", 1, "Run", FORM_NDJSON);
        goes("HEAD", "/v1/executables/abc", "", -1, "GetExecutable", FORM_JSON);
        char longer[400]; // more than is remembered
        memset(longer, 'x', sizeof longer);
        memcpy(longer, "/v1/executables/", 16);
        longer[sizeof longer - 1] = 0;
        goes("GET", longer, "", -1, "GetExecutable", FORM_JSON);
    }
}

static void splits(const char *in, const char *reduced, size_t n, const char *first) {
    struct strbuf b = {0};
    struct tensors_spans s = {0};
    bool ok = tensors_split(str_of(in), &b, &s);
    assert_int_equal(ok, reduced != NULL);
    if (ok) {
        assert_string_equal(strbuf_cstr(&b), reduced);
        assert_int_equal(s.n, n);
        if (first) assert_true(str_is(s.v[0], first));
    }
    strbuf_done(&b);
    vec_done(&s);
}

static void cut(void **state) {
    (void)state;
    splits("{}", "{}", 0, NULL);
    splits("{\"inputs\":[{\"name\":\"a\\\"]\",\"data\": [[1,2],[3]] ,\"shape\":[3]}]}",
           "{\"inputs\":[{\"name\":\"a\\\"]\",\"raw\": null ,\"shape\":[3]}]}", 1, "[[1,2],[3]]");
    splits("{\"data\":[1],\"inputs\":[{},{\"data\":7}]}",
           "{\"data\":[1],\"inputs\":[{},{\"raw\":null}]}", 2, NULL);
    splits("{\"inputs\":[{\"data\":[1],\"data\":[2]}]}", NULL, 0, NULL);
    splits("{\"inputs\":[{\"data\":[1}]}", NULL, 0, NULL);
    splits("{\"inputs\":[{\"data\":\"a]}", NULL, 0, NULL);
    splits("{\"inputs\":[{\"data\":[1]}]} x", NULL, 0, NULL);
    splits("[1]", NULL, 0, NULL);
    splits("", NULL, 0, NULL);
}

static void path_is(const char *target, const char *path, const char *authority) {
    char got[HTTP_AUTHORITY];
    assert_string_equal(http_path_of(target, got), path);
    assert_string_equal(got, authority);
}
static void absolute(void **state) {
    (void)state;
    path_is("/v1/run", "/v1/run", "");
    path_is("http://host:80/v1/run", "/v1/run", "host:80");
    path_is("HTTPS://[::1]:8000//v1", "//v1", "[::1]:8000");
    path_is("http://host", "/", "host");
    path_is("http://host/http://other/x", "/http://other/x", "host");
    path_is("/http://host/x", "/http://host/x", "");
    path_is("http:///x", "http:///x", "");
    path_is("http://me@host/x", "http://me@host/x", "");
    path_is("ftp://host/x", "ftp://host/x", "");
    path_is("*", "*", "");
    char longer[HTTP_AUTHORITY + 16] = "http://";
    memset(longer + 7, 'a', HTTP_AUTHORITY);
    path_is(longer, longer, "");
}

static void web_pages(void **state) {
    (void)state;
    assert_true(http_same_site("127.0.0.1:8000", NULL, true));
    assert_true(http_same_site("[::1]:8000", NULL, true));
    assert_true(http_same_site("localhost", NULL, true));
    assert_true(http_same_site("a.localhost:80", NULL, true));
    assert_true(http_same_site(NULL, NULL, true));
    assert_true(http_same_site("localhost:8000", "http://localhost:8000", true));
    assert_false(http_same_site("localhost:8000", "http://localhost:8001", true));
    assert_false(http_same_site("localhost:8000", "null", true));
    assert_false(http_same_site("localhost:8000", "https://evil.example", false));
    assert_false(http_same_site("evil.example:8000", NULL, true)); // a name pointed at us
    assert_false(http_same_site("evil.example", "http://evil.example", true));
    assert_false(http_same_site("notlocalhost:1", NULL, true));
    assert_false(http_same_site("127.0.0.1.evil.example", NULL, true));
    assert_true(http_same_site("hlod.example", "https://hlod.example", false));
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(rows),      cmocka_unit_test(refusals),
                                   cmocka_unit_test(web_pages), cmocka_unit_test(absolute),
                                   cmocka_unit_test(again),     cmocka_unit_test(parameters),
                                   cmocka_unit_test(cut)};
    int bad = cmocka_run_group_tests(t, NULL, NULL);
    arena_done(&a);
    return bad;
}
