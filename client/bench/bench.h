// SPDX-License-Identifier: Apache-2.0
// bench: sends one request over and over, `concurrency` of them at a time, and keeps every latency.
// One thread, so that the load takes as little of a shared machine as it can: HTTP/1.1 over sockets
// of its own (bench_http.c), gRPC over one channel (bench_grpc.c). Closed loop: the next request
// goes when the last one's reply is whole.
#pragma once
#include "base/span.h"
#include "base/status.h"
#include "base/vec.h"
#include "client/lib/http.h"

struct bench_request {
    const char *addr; // HOST:PORT
    bool tls;
    const struct http_security *security; // of TLS
    struct span bytes;                    // HTTP: head and body. gRPC: the message
    const char *method;                   // gRPC: "/package.Service/Method"
    const char *authorization;            // gRPC: value of that metadata, or NULL
};
struct bench_load {
    int concurrency;
    int64_t requests;    // this many, or
    int64_t duration_ns; // or this long
    int64_t warmup;      // requests before those that count
};
struct bench_split { // what the server says of its part, sums over n replies that said it
    int64_t n;
    double queue_ms, run_ms, total_ms;
};
struct bench_result {
    VEC(int64_t) ns; // of each good reply, in the order they came
    int64_t errors, elapsed_ns, reply_bytes;
    struct bench_split server;
    char error[256]; // the first one's
};
void bench_result_done(struct bench_result *r);
// UNAVAILABLE when the server cannot be reached at all; replies that are errors are counted.
status_t bench_http(const struct bench_request *q, const struct bench_load *l,
                    struct bench_result *out) MUST_CHECK;
status_t bench_grpc(const struct bench_request *q, const struct bench_load *l,
                    struct bench_result *out) MUST_CHECK;

// ---- of both: how far a load is

struct bench_progress {
    const struct bench_load *load;
    struct bench_result *r;
    int64_t sent, done, start_ns, end_ns; // start: of what counts
};
void bench_begin(struct bench_progress *p, const struct bench_load *l, struct bench_result *r);
bool bench_may_send(struct bench_progress *p); // counts it as sent
// A reply (or its failure, `error` in words) to a request sent at sent_ns. False: it was warm-up.
bool bench_took(struct bench_progress *p, int64_t sent_ns, const char *error);
bool bench_over(const struct bench_progress *p);
// "queue;dur=0.1, run;dur=2" or "queue=0.1 run=2": adds what it names.
void bench_split_text(struct bench_split *s, struct str text);
void bench_split_add(struct bench_split *s, const char *name, double ms);
