// SPDX-License-Identifier: Apache-2.0
// otlp_send: one request to a collector, as the exporter's thread makes it: it waits for the
// answer. And what an answer means.
#pragma once
#include "base/span.h"
#include "base/status.h"
#include "server/otlp/otlp_encode.h"

enum otlp_signal { OTLP_TRACES, OTLP_METRICS, OTLP_SIGNALS };
struct otlp_target { // where a signal goes
    bool on, tls, gzip;
    bool http;                            // protobuf over HTTP/1.1; else gRPC
    const char *where;                    // HOST:PORT, for the log too
    const char *url;                      // over HTTP: all of it
    const struct otlp_attribute *headers; // keys in lower case
    size_t n_headers;
    const char *ca, *cert, *key; // PEM files; "" = the system's CAs, no certificate of ours
    int64_t timeout_ms;          // of one request
};
struct otlp_answer {
    enum { OTLP_TAKEN, OTLP_AGAIN, OTLP_REFUSED } how; // AGAIN: it may pass
    int64_t retry_ms;                                  // not before that; 0 = not said
    int64_t rejected;                                  // of what was taken: spans, points
    char why[160];                                     // for the log; "" = nothing to say
};
#define OTLP_AGENT "OTel-OTLP-Exporter-hlod/" HLOD_VERSION // whom a collector sees
enum { OTLP_MOST_ANSWER = 64 << 10 };                      // bytes of one that are read
struct otlp_transport {
    // Reads files; nothing is sent yet. errors: those of the files
    status_t (*open)(const struct otlp_target *t, enum otlp_signal signal, void **out);
    // until: when to give it up (clock_ns), asked again and again, for it may come nearer.
    void (*send)(void *sender, struct span body, int64_t (*until)(void *ctx), void *ctx,
                 struct otlp_answer *out);
    void (*close)(void *sender); // NULL is fine
};

// A successful answer's body.
void otlp_answer_body(struct span body, struct otlp_answer *out);
// A refusal by its canonical code, with the google.rpc.Status that came with it (or nothing):
// by OTLP's table of what may be tried again.
void otlp_answer_refusal(int code, struct span status, struct otlp_answer *out);
// Of an answer over HTTP: 2xx, what may be tried again, or a refusal with such a Status as its
// body.
void otlp_answer_http(int code, struct span body, struct otlp_answer *out);
