// SPDX-License-Identifier: Apache-2.0
// hlo bench's bookkeeping: what counts, the server's times in both spellings, the request's bytes.
#include "client/bench/bench_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static void splits(void **state) {
    (void)state;
    struct bench_split s = {0};
    bench_split_text(&s, STR("queue;dur=0.250, transfer;dur=9, run;dur=2.5, total;dur=3"));
    bench_split_text(&s, STR("queue=0.750 run=1.5 total=2"));
    bench_split_text(&s, STR("total"));
    bench_split_text(&s, STR("total=x, =3,,"));
    bench_split_text(&s, (struct str){0});
    assert_int_equal(s.n, 2);
    assert_float_equal(s.queue_ms, 1, 1e-9);
    assert_float_equal(s.run_ms, 4, 1e-9);
    assert_float_equal(s.total_ms, 5, 1e-9);
}

static void counts(void **state) {
    (void)state;
    struct bench_load l = {.concurrency = 2, .requests = 3, .warmup = 2};
    struct bench_result r = {0};
    struct bench_progress p;
    bench_begin(&p, &l, &r);
    int sent = 0;
    while (bench_may_send(&p))
        sent++;
    assert_int_equal(sent, 5);
    assert_false(bench_over(&p));
    int64_t now = clock_ns();
    assert_false(bench_took(&p, now, "an error of the warm-up"));
    assert_false(bench_took(&p, now, NULL));
    assert_true(bench_took(&p, now - 5000, NULL));
    assert_false(bench_took(&p, now, "one that counts"));
    assert_true(bench_took(&p, now, NULL));
    assert_true(bench_over(&p));
    assert_int_equal(r.ns.n, 2);
    assert_true(r.ns.v[0] >= 5000);
    assert_int_equal(r.errors, 1);
    bench_result_done(&r);
}

static void requests(void **state) {
    (void)state;
    struct arena a = {0};
    struct npy x = {.name = "x", .descr = "<f4", .rank = 2, .dims = {1, 3}, .size_bytes = 12};
    input_random(&a, &x);
    const float *v = x.data;
    for (int k = 0; k < 3; k++)
        assert_true(v[k] >= 0 && v[k] < 1);
    assert_true(v[0] != v[1]);
    struct http_security none = {0}, with = {.token = "t"};
    struct bench_what w = {.protocol = BENCH_OIP,
                           .addr = "h:1",
                           .security = &none,
                           .model = "m",
                           .in = &x,
                           .n_in = 1,
                           .json = true};
    struct bench_request q;
    assert_int_equal(bench_request_make(&a, &w, &q), ST_OK);
    static const char front[] =
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,3],\"data\":";
    char *all = arena_strndup(&a, (const char *)q.bytes.p, q.bytes.n), *end;
    char *text = strstr(all, "\r\n\r\n") + 4;
    assert_memory_equal(text, front, sizeof front - 1);
    assert_null(strstr(all, "Authorization"));
    text += sizeof front; // behind the bracket
    for (int k = 0; k < 3; k++, text = end + 1)
        assert_true(strtof(text, &end) == v[k]);
    assert_string_equal(end, "]}]}");
    assert_memory_equal(all, "POST /v2/models/m/infer HTTP/1.1\r\n", 34);
    w.json = false;
    w.security = &with;
    assert_int_equal(bench_request_make(&a, &w, &q), ST_OK); // the bytes lie behind the JSON
    assert_memory_equal(q.bytes.p + q.bytes.n - 12, x.data, 12);
    assert_non_null(strstr(arena_strndup(&a, (const char *)q.bytes.p, q.bytes.n - 12),
                           "\r\nAuthorization: Bearer t\r\n\r\n{"));
    memcpy(x.descr, "|V1", 4); // a byte of no known type
    status_t st = bench_request_make(&a, &w, &q);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(splits), cmocka_unit_test(counts),
                                       cmocka_unit_test(requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
