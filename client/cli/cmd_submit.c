// SPDX-License-Identifier: Apache-2.0
// hlo submit: a suite's files to the server, the suite itself, and with --wait its end as an exit
// code and reports. The server keeps the jobs: a lost connection, or a restart of the daemon, only
// makes the waiting begin again. Interrupted, it cancels what it submitted.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/store/file.h"
#include "base/vec.h"
#include "client/cli/hlo.h"
#include "client/cli/report.h"
#include "client/hlod_jobs.h"
#include "client/lib/onnx_external.h"
#include "proto/json.h"

enum {
    PASSED_SHOWN = 40,
    PATIENCE_S = 60,
    SIGN_OF_LIFE_S = 10,
    PAGE = 1000
}; // patience with a lost server
struct submit {
    struct hlo *h;
    const char *path, *junit, *key;
    bool wait, github;
    int64_t timeout_ms, start_ns;
    struct suite suite;
    const char *id;
    int64_t n_jobs, n_ended, n_bad, n_told, told_ns;
    int64_t reached_ns; // when the server last told something
    bool over;          // the stream said that all jobs ended
    int rc;             // of an error already reported
};

static volatile sig_atomic_t interrupted;
static void on_signal(int number) {
    interrupted = number;
}
static bool out_of_time(const struct submit *s) {
    return s->timeout_ms && clock_ns() - s->start_ns > clock_of_ms(s->timeout_ms);
}
static bool should_stop(void *ctx) {
    return interrupted || out_of_time(ctx);
}

// ---- uploads

static status_t put(struct hlo *h, char hex[65], const struct span *parts, size_t n) {
    struct hlod_bytes *v = arena_array(&h->arena, struct hlod_bytes, n);
    json_t *there = hlo_try(h, "StatBlob", json_pack("{s:s}", "digest", hex));
    json_decref(there);
    if (there) return ST_OK;

    RETURN_IF_ERR(hlo_open(h));
    for (size_t k = 0; k < n; k++)
        v[k] = (struct hlod_bytes){parts[k].p, parts[k].n};
    if (!hlod_blob_put_parts(h->hlod, v, n, hex)) return ST_OK;
    const struct hlod_error *e = hlod_error(h->hlod);
    return st_new((enum status_code)e->code, "upload refused: %.300s", e->message);
}
static status_t put_model(void *ctx, const char *path, char out_hex[65]) {
    struct submit *s = ctx;
    struct span *parts, file;
    size_t n;
    RETURN_IF_ERR(onnx_external_inline(&s->h->arena, path, &parts, &n));
    RETURN_IF_ERR(file_digest(path, parts, n, out_hex));
    if (!n) RETURN_IF_ERR(file_map(&s->h->arena, path, &file));
    return st_note(put(s->h, out_hex, n ? parts : &file, n ? n : 1), "%s", path);
}
static status_t put_blob(void *ctx, struct span bytes, char out_hex[65]) {
    struct submit *s = ctx;
    digest_hex(sha256_of(bytes.p, bytes.n), out_hex);
    return put(s->h, out_hex, &bytes, 1);
}

// ---- submit

// A client that sends again must not submit twice; a workflow that is run again should run.
static const char *default_key(struct submit *s) {
    static const char *const names[] = {"GITHUB_REPOSITORY", "GITHUB_RUN_ID",  "GITHUB_RUN_ATTEMPT",
                                        "GITHUB_JOB",        "CI_PIPELINE_ID", "CI_JOB_ID"};
    struct strbuf b = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v && *v) strbuf_printf(&b, "%s;", v);
    }
    if (!b.n) strbuf_printf(&b, "%d;%lld;", (int)getpid(), (long long)clock_wall_ns());
    strbuf_puts(&b, s->path);
    char hex[65];
    digest_hex(sha256_of(b.p, b.n), hex);
    strbuf_done(&b);
    return arena_strdup(&s->h->arena, hex);
}

static int submit(struct submit *s) {
    struct hlo *h = s->h;
    Hlod__V1__SubmitJobsRequest *q = s->suite.request;
    q->idempotency_key = (char *)(uintptr_t)(s->key ? s->key : default_key(s));
    struct strbuf text = {0};
    char *reply = NULL;
    enum hlod_code code;
    status_t st = hlo_open(h);
    if (st) return fail_status(st);

    json_print(&text, &q->base);
    for (int tries = 0;; tries++) { // the key makes a second one harmless
        code = hlod_call_json(h->hlod, "SubmitJobs", strbuf_cstr(&text), NULL, NULL, &reply);
        if (code != HLOD_UNAVAILABLE || hlod_error(h->hlod)->answered || tries == 2) break;
        sleep(1);
    }
    strbuf_done(&text);
    if (code) return hlo_fail(h, EXIT_REFUSED);

    json_error_t e;
    json_t *j = shown_json(h, json_loads(reply, 0, &e));
    hlod_text_free(reply);
    s->id = arena_strdup(&h->arena, text_at(j, "suite"));
    s->n_jobs = (int64_t)number_at(j, "jobs");
    if (j && !h->quiet)
        fprintf(stderr, "suite %s: %" PRId64 " jobs%s\n", s->id, s->n_jobs,
                json_is_true(json_object_get(j, "existed")) ? ", submitted before" : "");
    if (j && !s->wait) {
        if (h->json)
            print_json(j);
        else
            puts(s->id);
    }
    json_decref(j);
    return 0;
}

// ---- wait

static bool ended_state(const char *state) {
    static const char *const states[] = {"passed", "failed", "error", "cancelled"};
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(state, states[i])) return true;
    return false;
}
// On a terminal a line that changes; elsewhere what went wrong, and a sign of life now and then.
static void tell(struct submit *s, const json_t *job) {
    bool passed = !strcmp(text_at(job, "state"), "passed");
    s->n_ended++;
    s->n_bad += !passed;
    if (s->h->quiet) return;
    int64_t now = clock_ns();
    if (s->h->tty)
        fprintf(stderr, "\r\033[K");
    else if (!passed && s->n_bad > s->n_told) {
        s->n_told = s->n_bad; // a stream that began again repeats itself
        fprintf(stderr, "%s %s: %s\n", text_at(job, "id"), text_at(job, "state"),
                text_at(json_object_get(job, "error"), "message"));
    } else if (now - s->told_ns < SIGN_OF_LIFE_S * 1000000000ll)
        return;
    s->told_ns = now;
    fprintf(stderr, "%" PRId64 " of %" PRId64 " ended, %" PRId64 " not passed%s", s->n_ended,
            s->n_jobs, s->n_bad, s->h->tty ? "" : "\n");
}
static bool on_event(void *ctx, const char *event) {
    struct submit *s = ctx;
    json_error_t e;
    json_t *j = shown_json(s->h, json_loads(event, 0, &e));
    const json_t *job = json_object_get(j, "job"), *done = json_object_get(j, "done");
    if (job && ended_state(text_at(job, "state"))) tell(s, job);
    if (done) s->over = !strcmp(text_at(done, "code"), "OK");
    s->reached_ns = clock_ns();
    json_decref(j);
    return !should_stop(s);
}

// Watches until the suite ended. A broken stream begins again: it starts with the present states.
static int wait_for_end(struct submit *s) {
    struct hlo *h = s->h;
    char *request = arena_printf(&h->arena, "{\"job\": \"%s\"}", s->id);
    s->reached_ns = clock_ns();
    hlod_set_stop(h->hlod, should_stop, s);
    while (!s->over && !should_stop(s)) {
        s->n_ended = s->n_bad = 0;
        enum hlod_code code = hlod_call_json(h->hlod, "WatchJob", request, on_event, s, NULL);
        if (code && code != HLOD_CANCELLED && code != HLOD_UNAVAILABLE)
            return hlo_fail(h, EXIT_RUN);
        if (code && !hlod_error(h->hlod)->answered &&
            clock_ns() - s->reached_ns > PATIENCE_S * 1000000000ll)
            return hlo_fail(h, EXIT_RUN);
        if (!s->over && !should_stop(s)) sleep(1);
    }
    hlod_set_stop(h->hlod, NULL, NULL);
    if (h->tty && !h->quiet) fputs("\r\033[K", stderr);
    if (s->over) return 0;
    json_t *gone = hlo_try(h, "CancelJob", json_pack("{s:s}", "job", s->id)); // nobody's now
    json_decref(gone);
    fprintf(stderr, "hlo: %s; suite %s %s\n", interrupted ? "interrupted" : "out of time", s->id,
            gone ? "is cancelled" : "goes on");
    return interrupted ? EXIT_INTERRUPTED : EXIT_DEADLINE;
}

// ---- results

static void release(void *obj) {
    json_decref(obj);
}
// request: taken.
static int keep_json(struct hlo *h, const char *method, json_t *request, json_t **out) {
    int rc = hlo_call(h, method, request, out);
    if (!rc) arena_link(&h->arena, release, *out);
    return rc;
}

typedef VEC(struct report_job) job_list;
static int read_jobs(struct submit *s, job_list *all) {
    struct arena *a = &s->h->arena;
    const char *token = "";
    do {
        json_t *page, *j;
        size_t i;
        int rc = keep_json(
            s->h, "ListJobs",
            json_pack("{s:s, s:i, s:s}", "suite", s->id, "limit", PAGE, "pageToken", token), &page);
        if (rc) return rc;
        json_array_foreach(json_object_get(page, "jobs"), i, j) {
            struct report_job x = {.job = j, .log = ""};
            if (strcmp(text_at(j, "state"), "passed")) {
                json_t *result, *log;
                const char *id = text_at(j, "id");
                rc = keep_json(s->h, "JobResult", json_pack("{s:s}", "job", id), &result);
                if (!rc) rc = keep_json(s->h, "JobLogs", json_pack("{s:s}", "job", id), &log);
                if (rc) return rc;
                x.result = result;
                x.log = text_at(log, "text");
            }
            avec_push(a, all, x);
        }
        token = text_at(page, "nextPageToken");
    } while (*token);
    return 0;
}

static void print_report(struct hlo *h, const struct report *r) {
    struct report_counts n = report_count(r);

    if (h->json) {
        json_t *all = json_array();
        for (size_t i = 0; i < r->n_jobs; i++) {
            json_t *j = json_deep_copy(r->jobs[i].job);
            if (r->jobs[i].result)
                json_object_set(j, "result", (json_t *)(uintptr_t)r->jobs[i].result);
            json_array_append_new(all, j);
        }
        json_t *o = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:o}", "suite", r->id, "name",
                              r->suite->request->name, "passed", (int)n.passed, "failed",
                              (int)n.failed, "errors", (int)n.errors, "cancelled", (int)n.cancelled,
                              "seconds", r->seconds, "jobs", all);
        print_json(o);
        json_decref(o);
        return;
    }

    for (size_t i = 0; i < r->n_jobs; i++) {
        const json_t *j = r->jobs[i].job;
        if (!strcmp(text_at(j, "state"), "passed")) {
            if (r->n_jobs <= PASSED_SHOWN && !h->quiet) print_job(j);
            continue;
        }
        printf("%-9s %-8s %s%s%s%s%s  %s\n", text_at(j, "state"), text_at(j, "id"),
               text_at(j, "model"), *text_at(j, "target") ? " on " : "", text_at(j, "target"),
               *text_at(j, "input") ? ", " : "", text_at(j, "input"), report_message(&r->jobs[i]));
    }
    printf("suite %s: %zu jobs, %zu passed, %zu failed, %zu errors, %zu cancelled\n", r->id,
           r->n_jobs, n.passed, n.failed, n.errors, n.cancelled);
}

static int exit_code(const struct report *r) {
    struct report_counts n = report_count(r);
    return n.errors                   ? EXIT_RUN
           : n.failed > n.over_budget ? EXIT_DIFFERS
           : n.over_budget            ? EXIT_BUDGET
           : n.cancelled              ? EXIT_INTERRUPTED
                                      : EXIT_OK;
}

// Prints and writes the reports, also of a suite that was cancelled on the way.
static int report(struct submit *s, const char *started) {
    job_list all = {0};
    int rc = read_jobs(s, &all);
    if (rc) return rc;
    struct report r = {.suite = &s->suite,
                       .id = s->id,
                       .started = started,
                       .seconds = (double)(clock_ns() - s->start_ns) / 1e9,
                       .jobs = all.v,
                       .n_jobs = all.n};
    print_report(s->h, &r);
    const char *summary = getenv("GITHUB_STEP_SUMMARY");
    status_t st = s->junit ? report_junit(&r, s->junit) : ST_OK;
    if (!st && s->github && summary && *summary) st = report_summary(&r, summary);
    if (s->github) report_annotations(&r, stdout);
    return st ? fail_status(st) : exit_code(&r);
}

// ---- the command

// "90", "90s", "10m", "2h" in milliseconds.
bool parse_duration(const char *text, int64_t *out_ms) {
    struct str s = str_of(text);
    int64_t unit = 1000, n;
    char last = s.n ? s.p[s.n - 1] : 0;
    if (last == 's' || last == 'm' || last == 'h') s.n--;
    if (last == 'm') unit = 60 * 1000;
    if (last == 'h') unit = 3600 * 1000;
    return str_to_i64(s, &n) && n > 0 && sz_mul(n, unit, out_ms);
}

static int options(struct submit *s) {
    struct hlo *h = s->h;
    const char *v;
    for (int k = 0; k < h->argc; k++) {
        if (!strcmp(h->argv[k], "--wait"))
            s->wait = true;
        else if (!strcmp(h->argv[k], "--github"))
            s->github = s->wait = true;
        else if ((v = option_value(h, &k, "--junit"))) {
            s->junit = v;
            s->wait = true;
        } else if ((v = option_value(h, &k, "--idempotency-key")))
            s->key = v;
        else if ((v = option_value(h, &k, "--timeout"))) {
            if (!parse_duration(v, &s->timeout_ms)) return usage_error("--timeout: as in 90s, 10m");
            s->wait = true;
        } else if (h->argv[k][0] == '-')
            return unknown_word(h, "submit", k);
        else if (s->path)
            return usage_error("submit takes one suite");
        else
            s->path = h->argv[k];
    }
    return s->path ? 0 : usage_error("submit needs a suite: a YAML file, see docs/jobs.md");
}

int cmd_submit(struct hlo *h) {
    struct submit s = {.h = h, .start_ns = clock_ns(), .told_ns = clock_ns()};
    char started[32];
    clock_wall_text(clock_wall_ns(), started);
    int rc = options(&s);
    if (rc) return rc;
    struct suite_io io = {put_model, put_blob, &s};
    status_t st = suite_read(&h->arena, s.path, &io, &s.suite);
    if (st) return fail_status(st);
    struct sigaction sa = {.sa_handler = on_signal};
    if (s.wait) {
        sigaction(SIGINT, &sa, NULL);
        sigaction(SIGTERM, &sa, NULL);
    }
    rc = submit(&s);
    if (!rc && s.wait) {
        rc = wait_for_end(&s);
        if (!rc || rc == EXIT_DEADLINE || rc == EXIT_INTERRUPTED) {
            interrupted = 0;
            int code = report(&s, started);
            if (!rc) rc = code;
        }
    }
    return rc;
}
