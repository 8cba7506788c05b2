// SPDX-License-Identifier: Apache-2.0
// libhlod's batch jobs, waited for and started, over the transport that the address names. The
// model is one of the scripted worker: y = x + 1.  Usage: jobs_test ADDR MODEL
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hlod_jobs.h>

static int failures, line;
#define CHECK(c)                                                                                   \
    do {                                                                                           \
        if (!(c)) {                                                                                \
            failures++;                                                                            \
            line = __LINE__;                                                                       \
            fprintf(stderr, "line %d: %s\n", line, #c);                                            \
        }                                                                                          \
    } while (0)

static struct hlod *h;
static struct hlod_async *q;
static char model[1 << 16], slow[sizeof model + 32];
static const int64_t dims[2] = {1, 4};
static const float x[4] = {1, 2, 3, 4}, y[4] = {2, 3, 4, 5}, wrong[4] = {2, 3, 4, 6};
static const struct hlod_job_tensor in = {.tensor = {"x", "f32", 2, dims, x, sizeof x}};

struct seen {
    int calls, ended, passed, stop_after;
};
static bool watching(void *ctx, const struct hlod_job *j) {
    struct seen *s = ctx;
    s->calls++;
    s->ended += j->ended;
    s->passed += !strcmp(j->state, "passed");
    return !s->stop_after || s->calls < s->stop_after;
}

// A suite of one model with n inputs that expect y, the first of them `first`.
static struct hlod_suite suite(const struct hlod_job_model *m, struct hlod_job_input *v, size_t n,
                               const struct hlod_job_tensor *expect,
                               const struct hlod_job_tensor *first) {
    struct hlod_suite s = HLOD_SUITE;
    for (size_t k = 0; k < n; k++)
        v[k] = (struct hlod_job_input){NULL, &in, k || !first ? expect : first, 1, 1};
    s.name = "test";
    s.models = m;
    s.n_models = 1;
    s.inputs = v;
    s.n_inputs = n;
    return s;
}

static void blobs(void) {
    char a[HLOD_DIGEST_CHARS], b[HLOD_DIGEST_CHARS];
    static unsigned char big[3 << 20];
    for (size_t k = 0; k < sizeof big; k++)
        big[k] = (unsigned char)(k * 2654435761u >> 24);
    struct hlod_blob *got;
    CHECK(!hlod_blob_put(h, big, sizeof big, a) && strlen(a) == 64);
    CHECK(!hlod_blob_put(h, big, sizeof big, b) && !strcmp(a, b));
    CHECK(!hlod_blob_get(h, a, &got) && got->bytes == sizeof big);
    CHECK(!memcmp(got->data, big, sizeof big));
    hlod_blob_free(got);
    const struct hlod_bytes parts[] = {{big, 5}, {NULL, 0}, {(char *)big + 5, sizeof big - 5}};
    CHECK(!hlod_blob_put_parts(h, parts, 3, b) && !strcmp(a, b));
    a[0] = a[0] == '0' ? '1' : '0';
    CHECK(hlod_blob_get(h, a, &got) == HLOD_NOT_FOUND);
}

static void submit_and_watch(void) {
    char digest[HLOD_DIGEST_CHARS], blob[HLOD_DIGEST_CHARS], key[HLOD_DIGEST_CHARS + 8];
    CHECK(!hlod_blob_put(h, model, strlen(model), digest));
    CHECK(!hlod_blob_put(h, y, sizeof y, blob)); // expected, by its digest
    const struct hlod_job_tensor expect = {.tensor = {.name = "y", .dtype = "f32", 2, dims},
                                           .blob = blob};
    const struct hlod_job_model m = {.name = "m", .model = digest};
    struct hlod_job_input v[5];
    struct hlod_suite s = suite(&m, v, 5, &expect, NULL);
    struct hlod_submitted *sent, *again;
    snprintf(key, sizeof key, "key-%s", digest);
    s.idempotency_key = key;
    s.keep_outputs = true;
    CHECK(!hlod_jobs_submit(h, &s, &sent) && sent->n_jobs == 5);
    CHECK(!hlod_jobs_submit(h, &s, &again) && again->existed && !strcmp(again->suite, sent->suite));
    hlod_submitted_free(again);
    struct seen n = {0};
    CHECK(!hlod_jobs_watch(h, sent->suite, watching, &n) && n.passed == 5 && n.ended == 5);
    char job[64];
    struct hlod_outcome *o;
    snprintf(job, sizeof job, "%s.5", sent->suite);
    CHECK(!hlod_job_outcome(h, job, &o) && !strcmp(o->state, "passed") && o->attempts == 1);
    CHECK(o->n_run_ms >= 1 && strlen(o->executable) == 64 && o->instructions > 0 && !*o->error);
    CHECK(o->n_comparisons == 1 && o->comparisons[0].ok && o->comparisons[0].elements == 4);
    CHECK(o->n_outputs == 1 && !strcmp(o->outputs[0].blob, blob) && o->outputs[0].tensor.rank == 2);
    hlod_outcome_free(o);
    hlod_submitted_free(sent);
}

static void differs(void) {
    char digest[HLOD_DIGEST_CHARS], job[64];
    const struct hlod_job_tensor good = {.tensor = {"y", "f32", 2, dims, y, sizeof y}};
    const struct hlod_job_tensor bad = {.tensor = {"y", "f32", 2, dims, wrong, sizeof wrong}};
    struct hlod_job_input v[2];
    CHECK(!hlod_blob_put(h, model, strlen(model), digest));
    const struct hlod_job_model m = {.model = digest};
    struct hlod_suite s = suite(&m, v, 2, &good, &bad);
    struct hlod_submitted *sent;
    struct seen n = {0};
    CHECK(!hlod_jobs_submit(h, &s, &sent));
    CHECK(!hlod_jobs_watch(h, sent->suite, watching, &n) && n.ended == 2 && n.passed == 1);
    struct hlod_outcome *o;
    snprintf(job, sizeof job, "%s.1", sent->suite);
    CHECK(!hlod_job_outcome(h, job, &o) && !strcmp(o->state, "failed") && *o->error);
    CHECK(o->n_comparisons == 1 && !o->comparisons[0].ok && o->comparisons[0].mismatches == 1);
    CHECK(o->comparisons[0].max_abs == 1);
    hlod_outcome_free(o);
    hlod_submitted_free(sent);
}

static bool was_told(void *ctx) {
    return ((struct seen *)ctx)->calls > 0;
}
static void cancel(void) {
    char digest[HLOD_DIGEST_CHARS], job[64];
    uint32_t cancelled = 0;
    struct hlod_job_input v[3];
    const struct hlod_job_tensor good = {.tensor = {"y", "f32", 2, dims, y, sizeof y}};
    CHECK(!hlod_blob_put(h, slow, strlen(slow), digest));
    const struct hlod_job_model m = {.model = digest};
    struct hlod_suite s = suite(&m, v, 3, &good, NULL);
    struct hlod_submitted *sent;
    struct hlod_outcome *o;
    struct seen stops = {.stop_after = 1}, n = {0};
    CHECK(!hlod_jobs_submit(h, &s, &sent));
    snprintf(job, sizeof job, "%s.1", sent->suite);
    CHECK(hlod_jobs_watch(h, sent->suite, watching, &stops) == HLOD_CANCELLED && stops.calls == 1);
    CHECK(hlod_job_outcome(h, job, &o) == HLOD_FAILED_PRECONDITION);
    struct seen told = {0};
    hlod_set_stop(h, was_told, &told); // between two events
    CHECK(hlod_jobs_watch(h, sent->suite, watching, &told) == HLOD_CANCELLED && !told.ended);
    hlod_set_stop(h, NULL, NULL);
    CHECK(!hlod_jobs_cancel(h, sent->suite, &cancelled) && cancelled == 3);
    CHECK(!hlod_jobs_watch(h, sent->suite, watching, &n) && n.ended >= 3 && n.passed == 0);
    CHECK(!hlod_job_outcome(h, job, &o) && !strcmp(o->state, "cancelled"));
    hlod_outcome_free(o);
    CHECK(!hlod_jobs_cancel(h, sent->suite, NULL));
    hlod_submitted_free(sent);
}

static void errors(void) {
    struct hlod_submitted *sent;
    struct hlod_outcome *o;
    struct hlod_suite s = HLOD_SUITE;
    CHECK(hlod_jobs_submit(h, &s, &sent) == HLOD_INVALID_ARGUMENT && *hlod_error(h)->message);
    CHECK(hlod_jobs_watch(h, "99999999", watching, &(struct seen){0}) == HLOD_NOT_FOUND);
    CHECK(hlod_job_outcome(h, "99999999.1", &o) == HLOD_NOT_FOUND);
    CHECK(hlod_jobs_cancel(h, "x/../y?", NULL) != HLOD_OK);
}

// ---- started

static struct hlod_call *next(void) { // as an event loop would
    struct pollfd p = {.fd = hlod_async_fd(q), .events = POLLIN};
    return poll(&p, 1, 20000) == 1 ? hlod_async_next(q, 0) : NULL;
}
static void set_flag(void *ctx, struct hlod_call *c) {
    *(_Atomic(enum hlod_code) *)ctx = hlod_call_error(c)->code;
    hlod_call_free(c);
}
static void started(void) {
    char digest[2][HLOD_DIGEST_CHARS], job[64];
    struct hlod_call *c, *w;
    const struct hlod_job_tensor good = {.tensor = {"y", "f32", 2, dims, y, sizeof y}};
    CHECK(!hlod_blob_put_start(q, model, strlen(model), digest[0], NULL, NULL, NULL));
    CHECK(!hlod_blob_put_start(q, slow, strlen(slow), digest[1], NULL, NULL, NULL));
    for (int k = 0; k < 2; k++) {
        CHECK((c = next()) && !hlod_call_error(c)->code && !hlod_call_take_submitted(c));
        hlod_call_free(c);
    }
    struct hlod_submitted *sent[2];
    for (int k = 0; k < 2; k++) {
        const struct hlod_job_model m = {.model = digest[k]};
        struct hlod_job_input v[4];
        struct hlod_suite s = suite(&m, v, 4, &good, NULL);
        CHECK(!hlod_jobs_submit_start(q, &s, NULL, NULL, NULL));
        CHECK((c = next()) && !hlod_call_error(c)->code && !hlod_call_take_outcome(c));
        CHECK((sent[k] = hlod_call_take_submitted(c)) && sent[k]->n_jobs == 4);
        CHECK(!hlod_call_take_submitted(c));
        hlod_call_free(c);
    }
    // Both watched at once: one to its end, the other given up, then cancelled.
    struct seen quick = {0}, late = {0};
    _Atomic(enum hlod_code) cancelled = HLOD_UNKNOWN; // written by the queue's thread
    CHECK(!hlod_jobs_watch_start(q, sent[1]->suite, watching, NULL, &late, &w));
    CHECK(!hlod_jobs_watch_start(q, sent[0]->suite, watching, NULL, &quick, NULL));
    hlod_call_cancel(w);
    CHECK((c = next()) == w && hlod_call_error(c)->code == HLOD_CANCELLED && late.ended == 0);
    hlod_call_free(c);
    CHECK(!hlod_jobs_cancel_start(q, sent[1]->suite, set_flag, &cancelled, NULL));
    CHECK((c = next()) && hlod_call_ctx(c) == &quick && !hlod_call_error(c)->code);
    CHECK(quick.passed == 4 && quick.ended == 4);
    hlod_call_free(c);
    snprintf(job, sizeof job, "%s.2", sent[0]->suite);
    CHECK(!hlod_job_outcome_start(q, job, NULL, NULL, &c) && hlod_call_wait(c, 20000));
    struct hlod_outcome *o = hlod_call_take_outcome(c);
    CHECK(o && !strcmp(o->state, "passed") && !hlod_call_take_result(c));
    hlod_outcome_free(o);
    hlod_call_free(c);
    CHECK(!hlod_jobs_watch(h, sent[1]->suite, watching, &late));
    for (int k = 0; k < 2000 && cancelled == HLOD_UNKNOWN; k++) // answered before or after the end
        poll(NULL, 0, 10);
    CHECK(cancelled == HLOD_OK);
    CHECK(!hlod_job_outcome_start(q, "99999999.1", NULL, NULL, &c) && hlod_call_wait(c, 20000));
    CHECK(hlod_call_error(c)->code == HLOD_NOT_FOUND && !hlod_call_take_outcome(c));
    hlod_call_free(c);
    for (int k = 0; k < 2; k++)
        hlod_submitted_free(sent[k]);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*fn)(void);
    } tests[] = {{"blobs", blobs},     {"submit_and_watch", submit_and_watch},
                 {"differs", differs}, {"cancel", cancel},
                 {"errors", errors},   {"started", started}};
    if (argc < 3 || hlod_open(argv[1], &h) || hlod_async_open(argv[1], NULL, &q)) return 2;
    FILE *f = fopen(argv[2], "rb");
    if (!f) return 2;
    model[fread(model, 1, sizeof model - 1, f)] = 0;
    fclose(f);
    snprintf(slow, sizeof slow, "%srun_ms 20000\n", model);
    for (size_t k = 0; k < sizeof tests / sizeof *tests; k++) {
        int before = failures;
        tests[k].fn();
        printf("%s %s\n", failures == before ? "PASS" : "FAIL", tests[k].name);
        fflush(stdout);
    }
    hlod_async_close(q);
    hlod_close(h);
    return failures != 0;
}
