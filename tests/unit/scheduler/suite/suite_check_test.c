// SPDX-License-Identifier: Apache-2.0
// Submits: ids, the matrix, and what is refused with its place, over a real store and journal.
#include "scheduler/suite/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/store/store.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/journal.h"

static char dir[] = "/tmp/suite-test-XXXXXX";
static struct store *store;
static struct journal *journal;
static char model_hex[65], tensor_hex[65], other_hex[65];

static void hex_of(struct digest d, char out[65]) {
    digest_hex(d, out);
}
static int setup(void **state) {
    (void)state;
    struct digest d;
    if (!mkdtemp(dir) || store_open(dir, 0, &store) || journal_open(dir, &journal)) return -1;
    if (blob_put(store, journal, "t", (struct span){(const uint8_t *)"a model", 7}, &d)) return -1;
    hex_of(d, model_hex);
    if (blob_put(store, journal, "t", (struct span){(const uint8_t *)"16 bytes, or so.", 16}, &d))
        return -1;
    hex_of(d, tensor_hex);
    if (blob_put(store, journal, "u", (struct span){(const uint8_t *)"16 bytes of u's.", 16}, &d))
        return -1;
    hex_of(d, other_hex);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    journal_close(journal);
    store_close(store);
    char line[100];
    snprintf(line, sizeof line, "rm -r %s", dir);
    FILE *p = popen(line, "r");
    return p ? pclose(p) : -1;
}

static void ids(void **state) {
    (void)state;
    int64_t s;
    uint32_t n;
    assert_true(suite_parse_id("12", &s, &n) && s == 12 && n == 0);
    assert_true(suite_parse_id("12.3", &s, &n) && s == 12 && n == 3);
    static const char *const bad[] = {"",
                                      ".",
                                      "12.",
                                      "0",
                                      "-1",
                                      "12.0",
                                      "12.3.4",
                                      "x",
                                      "12.x",
                                      "1 2",
                                      "99999999999999999999",
                                      "1.10001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(suite_parse_id(bad[i], &s, &n));
}

// A whole request that passes: two models, two targets, two inputs, one for the second model only.
struct whole {
    Hlod__V1__SubmitJobsRequest q;
    Hlod__V1__JobModel m[2], *mp[2];
    Hlod__V1__JobTarget t[2], *tp[2];
    Hlod__V1__JobInput in[2], *inp[2];
    Hlod__V1__JobTensor x, *xp[1], y, *yp[1];
    Hlod__V1__RetryPolicy retry;
    Hlod__V1__JobBudget budget;
    char *only[1];
    int64_t dims[2];
};
static void make(struct whole *w) {
    memset(w, 0, sizeof *w);
    hlod__v1__submit_jobs_request__init(&w->q);
    for (int i = 0; i < 2; i++) {
        hlod__v1__job_model__init(&w->m[i]);
        hlod__v1__job_target__init(&w->t[i]);
        hlod__v1__job_input__init(&w->in[i]);
        w->m[i].model = model_hex;
        w->m[i].name = (char *)(i ? "two" : "one");
        w->mp[i] = &w->m[i];
        w->tp[i] = &w->t[i];
        w->inp[i] = &w->in[i];
        w->in[i].inputs = w->xp;
        w->in[i].n_inputs = 1;
        w->in[i].expect = w->yp;
        w->in[i].n_expect = 1;
    }
    hlod__v1__job_tensor__init(&w->x);
    w->dims[0] = 1;
    w->dims[1] = 4;
    w->x.name = (char *)"x";
    w->x.dtype = (char *)"f32";
    w->x.shape = w->dims;
    w->x.n_shape = 2;
    w->x.blob = tensor_hex;
    w->y = w->x;
    w->y.name = (char *)"";
    w->xp[0] = &w->x;
    w->yp[0] = &w->y;
    w->only[0] = (char *)"two";
    w->in[1].models = w->only;
    w->in[1].n_models = 1;
    hlod__v1__retry_policy__init(&w->retry);
    hlod__v1__job_budget__init(&w->budget);
    w->q.models = w->mp;
    w->q.targets = w->tp;
    w->q.inputs = w->inp;
    w->q.n_models = w->q.n_targets = w->q.n_inputs = 2;
    w->q.retry = &w->retry;
    w->q.budget = &w->budget;
}

static void matrix(void **state) {
    (void)state;
    struct whole w;
    struct arena a = {0};
    struct suite_cell *c;
    make(&w);
    assert_int_equal(suite_expand(&w.q, &a, &c), 6);
    static const int want[6][3] = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0},
                                   {1, 0, 1}, {1, 1, 0}, {1, 1, 1}};
    for (int i = 0; i < 6; i++)
        assert_true(c[i].model == want[i][0] && c[i].target == want[i][1] &&
                    c[i].input == want[i][2]);
    w.t[1].device = (char *)"cpu";
    Hlod__V1__Job *b = suite_brief(&a, &w.q, &c[5], "t", 0);
    assert_string_equal(b->model, "two");
    assert_string_equal(b->target, "cpu");
    assert_string_equal(b->input, "input1");
    assert_string_equal(b->state, "queued");
    w.q.n_targets = w.q.n_inputs = 0;
    assert_int_equal(suite_expand(&w.q, &a, &c), 2);
    assert_true(c[0].input == -1 && c[1].input == -1);
    arena_done(&a);
}

static void refused(struct whole *w, const char *why) {
    struct suite_checker k = {store, journal, "t", false};
    status_t st = suite_check(&w->q, &k);
    assert_non_null(st);
    if (!strstr(st_message(st), why)) print_error("%s: %s\n", why, st_message(st));
    assert_non_null(strstr(st_message(st), why));
    st_drop(st);
    make(w);
}
static void checks(void **state) {
    (void)state;
    struct whole w;
    struct suite_checker k = {store, journal, "t", false};
    make(&w);
    assert_null(suite_check(&w.q, &k));
    w.q.n_models = 0;
    refused(&w, "models");
    w.m[1].model = (char *)"0000000000000000000000000000000000000000000000000000000000000000";
    refused(&w, "models[1]");
    w.m[1].model = (char *)"name";
    refused(&w, "models[1]");
    w.x.dtype = (char *)"f33";
    refused(&w, "inputs[0]");
    w.y.blob = other_hex; // another tenant's
    refused(&w, "no blob");
    w.dims[0] = 2;
    refused(&w, "does not have the shape's size");
    w.dims[0] = INT64_MAX;
    refused(&w, "absurd shape");
    w.dims[1] = -4;
    refused(&w, "absurd shape");
    w.x.raw = (ProtobufCBinaryData){16, (uint8_t *)tensor_hex};
    refused(&w, "both blob and raw");
    w.only[0] = (char *)"three";
    refused(&w, "inputs[1]: names a model");
    w.q.n_models = 1; // the only input left is for the other one
    w.inp[0] = &w.in[1];
    w.q.n_inputs = 1;
    refused(&w, "names a model");
    w.in[0].n_inputs = 0;
    refused(&w, "expect without inputs");
    w.in[1].rtol = NAN;
    refused(&w, "inputs[1]: a tolerance");
    w.q.atol = -1;
    refused(&w, "a tolerance");
    w.budget.run_ms = -1;
    refused(&w, "budget");
    w.q.repeat = 1001;
    refused(&w, "repeat");
    w.retry.max_attempts = 101;
    refused(&w, "retry");
    w.q.name = (char *)"two\nlines";
    refused(&w, "name");
    Hlod__V1__JobInput *many[4000];
    for (int i = 0; i < 4000; i++)
        many[i] = &w.in[0];
    w.q.inputs = many;
    w.q.n_inputs = 4000;
    refused(&w, "16000 jobs, at most 10000");
    static char long_name[300];
    memset(long_name, 'x', 250);
    w.in[0].name = long_name;
    refused(&w, "200 bytes");
    w.x.dtype = (char *)"string";
    refused(&w, "strings come as raw");
    assert_null(suite_check(&w.q, &k));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids), cmocka_unit_test(matrix),
                                       cmocka_unit_test(checks)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
