// SPDX-License-Identifier: Apache-2.0
// otlp_encode: work and metrics as OTLP's messages (proto/formats/otlp.proto), by OpenTelemetry's
// semantic conventions of the version that OTLP_SCHEMA names; what is ours is under `hlod.`.
// Pure. Thread: any, one at a time.
#pragma once
#include "scheduler/trace.h"
#include "server/otlp/otlp_bytes.h"

#define OTLP_SCHEMA "https://opentelemetry.io/schemas/1.30.0"
struct otlp_attribute {
    const char *key, *value;
};
// Who sends: the same in every message.
struct otlp_origin {
    struct otlp_bytes resource;   // Resource, packed
    struct otlp_bytes scope;      // InstrumentationScope
    struct otlp_bytes http, grpc; // attributes of every request over these, fields of Span
};
struct otlp_address { // where the server listens; port 0: not over that
    const char *host, *scheme;
    uint16_t port;
};
void otlp_origin_make(struct otlp_origin *o, const char *version,
                      const struct otlp_attribute *resource, size_t n,
                      const struct otlp_address *http, const struct otlp_address *grpc);
void otlp_origin_done(struct otlp_origin *o);

// The work's own span and those of its parts, each as a field `spans` of ScopeSpans, and after each
// one `put`. wall_ns: to be added to clock_ns. a: what is needed meanwhile.
void otlp_encode_work(struct otlp_bytes *b, const struct trace_work *w, const struct otlp_origin *o,
                      int64_t wall_ns, struct arena *a, void (*put)(void *ctx), void *ctx);

// A request is a head in front of such fields and a tail behind them. `bytes`: of all of them.
void otlp_request_head(struct otlp_bytes *b, const struct otlp_origin *o, size_t bytes);
void otlp_request_tail(struct otlp_bytes *b);

// All of metrics.def as one ExportMetricsServiceRequest. start_ns, now_ns: of the wall clock.
void otlp_encode_metrics(struct otlp_bytes *b, const struct otlp_origin *o, int64_t start_ns,
                         int64_t now_ns);
// A metric's name and unit ("" = none) there. Pure.
enum { OTLP_METRIC_NAME = 80 };
void otlp_metric_name(const char *prometheus, char out[OTLP_METRIC_NAME], const char **unit);
