// SPDX-License-Identifier: Apache-2.0
// hlo top: what the server does now, redrawn every interval: rates and mean times from the
// difference of two readings of /metrics, devices, cache and the last runs as they stand. Plain
// escape codes on a terminal, blocks of text elsewhere; --once and --json for programs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/cli/hlo.h"

enum { MAX_RUNS = 10 };
struct reading { // of /metrics: totals since the server's start
    int64_t ns;
    double requests, errors, runs, active, queued, connections;
    double run_s, run_n, queue_s, queue_n, compile_s, compile_n;
};
struct top {
    struct hlo *h;
    struct reading was, is;
    json_t *health, *devices, *cache, *runs, *version;
};

// ---- reading

static double metric(const char *text, const char *name) {
    size_t n = strlen(name);
    double v = 0;
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, name, n) || p[n] != ' ') continue;
        const char *end = strchr(p, '\n');
        struct str value = {p + n + 1, end ? (size_t)(end - p) - n - 1 : strlen(p + n + 1)};
        return str_to_f64(value, &v) ? v : 0;
    }
    return 0;
}
static int read_metrics(struct hlo *h, struct reading *r) {
    char *t;
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    if (hlod_metrics(h->hlod, &t)) return hlo_fail(h, EXIT_REFUSED);
    *r = (struct reading){.ns = clock_ns(),
                          .requests = metric(t, "hlod_requests_total"),
                          .errors = metric(t, "hlod_request_errors_total"),
                          .runs = metric(t, "hlod_runs_total"),
                          .active = metric(t, "hlod_jobs_active"),
                          .queued = metric(t, "hlod_jobs_queued"),
                          .connections = metric(t, "hlod_connections"),
                          .run_s = metric(t, "hlod_run_seconds_sum"),
                          .run_n = metric(t, "hlod_run_seconds_count"),
                          .queue_s = metric(t, "hlod_queue_seconds_sum"),
                          .queue_n = metric(t, "hlod_queue_seconds_count"),
                          .compile_s = metric(t, "hlod_compile_seconds_sum"),
                          .compile_n = metric(t, "hlod_compile_seconds_count")};
    hlod_text_free(t);
    return 0;
}
static void forget(struct top *t) {
    json_t **all[] = {&t->health, &t->devices, &t->cache, &t->runs};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        json_decref(*all[k]);
        *all[k] = NULL;
    }
}
static int look(struct top *t) {
    struct hlo *h = t->h;
    forget(t);
    t->was = t->is;
    int rc = read_metrics(h, &t->is);
    if (!rc) rc = hlo_call(h, "Health", NULL, &t->health);
    if (!rc) rc = hlo_call(h, "ListDevices", NULL, &t->devices);
    if (!rc) rc = hlo_call(h, "CacheStats", NULL, &t->cache);
    if (!rc) rc = hlo_call(h, "ListRuns", json_pack("{s:i}", "limit", MAX_RUNS), &t->runs);
    if (!rc && !t->version) rc = hlo_call(h, "Version", NULL, &t->version);
    return rc;
}

static double seconds(const struct top *t) {
    return (double)(t->is.ns - t->was.ns) / 1e9;
}
static double rate(const struct top *t, double is, double was) {
    return seconds(t) > 0 && is >= was ? (is - was) / seconds(t) : 0; // a new server begins again
}
static double mean_ms(double sum, double was_sum, double n, double was_n) {
    return n > was_n ? (sum - was_sum) / (n - was_n) * 1e3 : 0;
}

// ---- showing

static json_t *as_json(const struct top *t) {
    const struct reading *a = &t->was, *b = &t->is;
    json_t *j =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "seconds", seconds(t), "requestsPerS",
                  rate(t, b->requests, a->requests), "errorsPerS", rate(t, b->errors, a->errors),
                  "runsPerS", rate(t, b->runs, a->runs), "jobsActive", b->active, "jobsQueued",
                  b->queued, "connections", b->connections);
    json_object_update_new(
        j, json_pack("{s:f, s:f, s:f}", "meanRunMs",
                     mean_ms(b->run_s, a->run_s, b->run_n, a->run_n), "meanQueueMs",
                     mean_ms(b->queue_s, a->queue_s, b->queue_n, a->queue_n), "meanCompileMs",
                     mean_ms(b->compile_s, a->compile_s, b->compile_n, a->compile_n)));
    json_object_update_new(
        j,
        json_pack("{s:O, s:O, s:O, s:O}", "health", t->health, "devices",
                  json_object_get(t->devices, "devices") ? json_object_get(t->devices, "devices")
                                                         : t->devices,
                  "cache", t->cache, "runs",
                  json_object_get(t->runs, "runs") ? json_object_get(t->runs, "runs") : t->runs));
    return j;
}

static double timing(const json_t *run, const char *name) {
    const json_t *x;
    size_t k;
    json_array_foreach(json_object_get(run, "timings"), k,
                       x) if (!strcmp(text_at(x, "name"), name)) return number_at(x, "ms");
    return 0;
}
static void print_devices(const struct top *t) {
    const json_t *d;
    size_t k;
    printf("\n%-14s %-9s %9s %9s %8s %9s %9s %9s %9s\n", "DEVICE", "STATE", "RUNNING", "RESTARTS",
           "THREADS", "RSS", "LOADED", "WEIGHTS", "BUFFERS");
    json_array_foreach(json_object_get(t->devices, "devices"), k, d)
        printf("%-14.14s %-9s %9.0f %9.0f %8.0f %9s %9.0f %9s %9s\n", text_at(d, "name"),
               text_at(d, "state"), number_at(d, "runs"), number_at(d, "restarts"),
               number_at(d, "threads"), size_text(number_at(d, "workerRssBytes")).s,
               number_at(d, "residentExecutables"), size_text(number_at(d, "preparedBytes")).s,
               size_text(number_at(d, "bufferBytes")).s);
}
static void print_runs(const struct top *t) {
    const json_t *r;
    size_t k;
    printf("\n%-8s %-8s %-19s %-14s %9s %9s  %-16s  %s\n", "JOB", "KIND", "CODE", "DEVICE",
           "TOTAL ms", "RUN ms", "EXECUTABLE", "MESSAGE");
    json_array_foreach(json_object_get(t->runs, "runs"), k, r)
        printf("%-8.0f %-8s %-19s %-14.14s %9.2f %9.2f  %-16.16s  %s\n", number_at(r, "job"),
               text_at(r, "kind"), text_at(r, "code"), text_at(r, "device"), timing(r, "total"),
               timing(r, "run"), text_at(r, "executable"), text_at(r, "message"));
}
// Over the interval, or over all while nothing came in it.
static void print_mean(const char *what, double sum, double was_sum, double n, double was_n) {
    bool now = n > was_n;
    double mean = mean_ms(sum, now ? was_sum : 0, n, now ? was_n : 0);
    printf("%s %s%s", what, n > 0 ? time_text(mean).s : "-", n > 0 && !now ? " in all" : "");
}
static void print_text(const struct top *t) {
    const struct reading *a = &t->was, *b = &t->is;
    double up = number_at(t->health, "uptimeS"), hits = number_at(t->cache, "hits"),
           all = hits + number_at(t->cache, "misses");
    printf("hlod %s at %s   %s   up %.0f:%02d:%02d", text_at(t->version, "version"), t->h->addr,
           json_is_true(json_object_get(t->health, "ready")) ? "ready" : "not ready",
           (double)((int64_t)up / 3600), (int)((int64_t)up / 60 % 60), (int)((int64_t)up % 60));
    if (number_at(t->health, "rssBytes") > 0) // told to admin alone
        printf("   %s", size_text(number_at(t->health, "rssBytes")).s);
    putchar('\n');
    printf("requests %.1f/s, %.0f in all   errors %.1f/s, %.0f   runs %.1f/s, %.0f   active %.0f   "
           "queued %.0f   connections %.0f\n",
           rate(t, b->requests, a->requests), b->requests, rate(t, b->errors, a->errors), b->errors,
           rate(t, b->runs, a->runs), b->runs, b->active, b->queued, b->connections);
    print_mean("mean run", b->run_s, a->run_s, b->run_n, a->run_n);
    print_mean("   queue", b->queue_s, a->queue_s, b->queue_n, a->queue_n);
    print_mean("   compile", b->compile_s, a->compile_s, b->compile_n, a->compile_n);
    putchar('\n');
    printf("cache %.0f executable%s, %s of %s   hits %.1f%%   compiles %.0f\n",
           number_at(t->cache, "executables"), number_at(t->cache, "executables") == 1 ? "" : "s",
           size_text(number_at(t->cache, "bytes")).s,
           size_text(number_at(t->cache, "budgetBytes")).s, all > 0 ? hits / all * 100 : 0,
           number_at(t->cache, "compiles"));
    print_devices(t);
    print_runs(t);
}
static void show(const struct top *t, bool screen) {
    if (t->h->json) {
        json_t *j = as_json(t);
        print_json_line(j);
        json_decref(j);
    } else {
        if (screen) fputs("\033[H\033[J", stdout);
        print_text(t);
        if (!screen) putchar('\n');
    }
    fflush(stdout);
}

static void pause_for(double s) {
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

int cmd_top(struct hlo *h) {
    struct top t = {.h = h};
    double interval = 1;
    bool once = false;
    const char *v;
    for (int k = 0; k < h->argc; k++) {
        if (strcmp(h->argv[k], "--once") == 0)
            once = true;
        else if ((v = option_value(h, &k, "--interval"))) {
            if (!str_to_f64(str_of(v), &interval) || !(interval >= 0.05 && interval <= 3600))
                return usage_error("--interval: expected seconds, 0.05 to 3600");
        } else
            return unknown_word(h, "top", k);
    }
    bool screen = !once && !h->json && isatty(STDOUT_FILENO);
    int rc = look(&t);
    do {
        pause_for(interval);
        if (!rc) rc = look(&t);
        if (!rc) show(&t, screen);
    } while (!rc && !once && !ferror(stdout));
    forget(&t);
    json_decref(t.version);
    return rc;
}
