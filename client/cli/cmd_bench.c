// SPDX-License-Identifier: Apache-2.0
// hlo bench: one request, sent by as many clients as --concurrency says, each list entry in turn.
// Where no input is given its name, type and shape come from the model's metadata and its numbers
// from a fixed generator.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/bench/bench_request.h"
#include "client/cli/hlo.h"
#include "client/files/model_inputs.h"

enum { MAX_STEPS = 16 };
struct bench {
    const char *model, *grpc;
    enum bench_protocol protocol;
    bool json_body;
    struct bench_load load;
    int64_t concurrency[MAX_STEPS];
    int n_steps;
    struct model_inputs in;
};

// ---- options

static bool list(const char *text, struct bench *b) {
    struct str all = str_of(text), one;
    for (b->n_steps = 0; str_cut(&all, ',', &one); b->n_steps++)
        if (b->n_steps == MAX_STEPS || !str_to_i64(one, &b->concurrency[b->n_steps]) ||
            b->concurrency[b->n_steps] < 1 || b->concurrency[b->n_steps] > 4096)
            return false;
    return b->n_steps > 0;
}
// "5s", "500ms", "2m" or plain seconds.
static bool duration(const char *text, int64_t *out_ns) {
    size_t n = strspn(text, "0123456789.");
    double v, unit = !strcmp(text + n, "ms")              ? 1e6
                     : !strcmp(text + n, "m")             ? 60e9
                     : !text[n] || !strcmp(text + n, "s") ? 1e9
                                                          : 0;
    if (!unit || !str_to_f64((struct str){text, n}, &v) || !(v * unit >= 1e6) || v * unit > 1e15)
        return false;
    *out_ns = (int64_t)(v * unit);
    return true;
}
static bool count(const char *text, int64_t *out) {
    return str_to_i64(str_of(text), out) && *out >= 0 && *out <= 1000000000;
}
static bool protocol(const char *text, enum bench_protocol *out) {
    static const char *const names[] = {"http", "grpc", "oip", "oip-grpc"};
    for (int k = 0; k < 4; k++)
        if (!strcmp(text, names[k])) {
            *out = (enum bench_protocol)k;
            return true;
        }
    return false;
}

static int options(struct hlo *h, struct bench *b) {
    const char *v;

    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "-i"))) {
            if (!model_inputs_add(&b->in, v))
                return usage_error("more than %d inputs", MODEL_INPUTS_MAX);
        } else if ((v = option_value(h, &k, "--concurrency"))) {
            if (!list(v, b)) return usage_error("--concurrency: expected numbers as in 1,8,64");
        } else if ((v = option_value(h, &k, "--duration"))) {
            if (!duration(v, &b->load.duration_ns))
                return usage_error("--duration: expected a time as in 5s or 500ms");
        } else if ((v = option_value(h, &k, "--requests"))) {
            if (!count(v, &b->load.requests) || !b->load.requests)
                return usage_error("--requests: expected a number");
        } else if ((v = option_value(h, &k, "--warmup"))) {
            if (!count(v, &b->load.warmup)) return usage_error("--warmup: expected a number");
        } else if ((v = option_value(h, &k, "--protocol"))) {
            if (!protocol(v, &b->protocol))
                return usage_error("--protocol: expected http, grpc, oip or oip-grpc");
        } else if ((v = option_value(h, &k, "--body"))) {
            b->json_body = !strcmp(v, "json");
            if (!b->json_body && strcmp(v, "binary"))
                return usage_error("--body: expected binary or json");
        } else if ((v = option_value(h, &k, "--grpc")))
            b->grpc = v;
        else if (h->argv[k][0] == '-' || b->model)
            return unknown_word(h, "bench", k);
        else
            b->model = h->argv[k];
    }
    return b->model ? 0 : usage_error("bench needs a model's file, digest or name");
}

// ---- results

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}
static double part_ms(const struct bench_result *r, double part) {
    return r->ns.n ? clock_ms(r->ns.v[(size_t)((double)(r->ns.n - 1) * part)]) : 0;
}
static double each(double sum, int64_t n) {
    return n ? sum / (double)n : 0;
}

static json_t *as_json(const struct bench *b, const struct bench_result *r, int64_t concurrency) {
    double s = (double)r->elapsed_ns / 1e9, sum = 0, in_bytes = 0;
    for (size_t k = 0; k < r->ns.n; k++)
        sum += clock_ms(r->ns.v[k]);
    for (int k = 0; k < b->in.n; k++)
        in_bytes += (double)b->in.v[k].size_bytes;
    double n = (double)r->ns.n, bytes = in_bytes * n + (double)r->reply_bytes;
    json_t *j =
        json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "concurrency", (json_int_t)concurrency,
                  "requests", (json_int_t)r->ns.n, "errors", (json_int_t)r->errors, "seconds", s,
                  "requestsPerS", s > 0 ? n / s : 0, "megabytesPerS", s > 0 ? bytes / 1e6 / s : 0);
    json_object_update_new(j, json_pack("{s:f, s:f, s:f, s:f, s:f}", "meanMs",
                                        each(sum, (int64_t)r->ns.n), "p50Ms", part_ms(r, 0.5),
                                        "p90Ms", part_ms(r, 0.9), "p99Ms", part_ms(r, 0.99),
                                        "maxMs", part_ms(r, 1)));
    if (r->server.n)
        json_object_set_new(j, "server",
                            json_pack("{s:f, s:f, s:f}", "queueMs",
                                      each(r->server.queue_ms, r->server.n), "runMs",
                                      each(r->server.run_ms, r->server.n), "totalMs",
                                      each(r->server.total_ms, r->server.n)));
    if (r->error[0]) json_object_set_new(j, "error", json_string(r->error));
    return j;
}

static void print_row(const json_t *j) {
    const json_t *s = json_object_get(j, "server");
    printf("%11.0f %9.0f %8.0f %10.1f %9.3f %9.3f %9.3f %9.3f", number_at(j, "concurrency"),
           number_at(j, "requests"), number_at(j, "errors"), number_at(j, "requestsPerS"),
           number_at(j, "p50Ms"), number_at(j, "p90Ms"), number_at(j, "p99Ms"),
           number_at(j, "maxMs"));
    if (s) printf(" %9.3f %9.3f", number_at(s, "queueMs"), number_at(s, "runMs"));
    putchar('\n');
    fflush(stdout);
}

static int sweep(struct hlo *h, struct bench *b, const struct bench_request *q) {
    bool grpc = b->protocol == BENCH_GRPC || b->protocol == BENCH_OIP_GRPC;
    json_t *runs = json_array();
    int rc = 0;

    if (!h->json)
        printf("%11s %9s %8s %10s %9s %9s %9s %9s %9s %9s\n", "concurrency", "requests", "errors",
               "requests/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "queue ms", "run ms");
    for (int k = 0; k < b->n_steps && !rc; k++) {
        struct bench_result r = {0};
        b->load.concurrency = (int)b->concurrency[k];
        status_t st = grpc ? bench_grpc(q, &b->load, &r) : bench_http(q, &b->load, &r);
        if (st) {
            rc = fail_status(st);
        } else {
            if (r.ns.n) qsort(r.ns.v, r.ns.n, sizeof *r.ns.v, by_value);
            json_t *j = as_json(b, &r, b->concurrency[k]);
            if (!h->json) print_row(j);
            json_array_append_new(runs, j);
            if (r.errors) {
                fprintf(stderr, "hlo: %lld of %lld requests failed, the first with: %s\n",
                        (long long)r.errors, (long long)(r.errors + (int64_t)r.ns.n), r.error);
                rc = EXIT_RUN;
            }
        }
        bench_result_done(&r);
    }

    if (h->json) {
        json_t *all = json_pack("{s:s, s:O}", "model", b->model, "runs", runs);
        print_json(all);
        json_decref(all);
    }
    json_decref(runs);
    return rc;
}

int cmd_bench(struct hlo *h) {
    struct bench b = {.grpc = getenv("HLOD_GRPC_ADDR"),
                      .load = {.warmup = 50, .duration_ns = 3000000000ll},
                      .concurrency = {1, 8, 64},
                      .n_steps = 3};
    int rc = options(h, &b);
    if (!rc) rc = model_inputs_read(h, &b.model, &b.in);
    if (rc) return rc;
    bool grpc = b.protocol == BENCH_GRPC || b.protocol == BENCH_OIP_GRPC;
    const char *at = !grpc ? h->addr : b.grpc && *b.grpc ? b.grpc : "127.0.0.1:8001";
    struct http_where w;
    status_t st =
        http_where(at, grpc ? "grpc" : "http", grpc ? "grpcs" : "https", &h->security, &w);
    if (st) return fail_status(st);
    bool oip = b.protocol == BENCH_OIP || b.protocol == BENCH_OIP_GRPC; // knows no executables
    struct bench_what what = {.protocol = b.protocol,
                              .json = b.json_body,
                              .addr = w.addr,
                              .tls = w.tls,
                              .security = &h->security,
                              .model = oip && b.in.weights ? b.in.weights : b.model,
                              .weights = b.in.weights,
                              .in = b.in.v,
                              .n_in = b.in.n};
    struct bench_request q;
    st = bench_request_make(&h->arena, &what, &q);
    return st ? fail_status(st) : sweep(h, &b, &q);
}
