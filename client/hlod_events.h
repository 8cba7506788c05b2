// SPDX-License-Identifier: Apache-2.0
// hlod_events.h: what a call tells while it waits for its result; part of hlod.h.
#pragma once
#include <stdbool.h>

#if defined(__cplusplus)
extern "C" {
#endif

enum hlod_event_kind {
    HLOD_EVENT_INGESTED,  // hit, ms
    HLOD_EVENT_QUEUED,    // for a device
    HLOD_EVENT_COMPILING, // hit: another request compiles the same, this one waits for it
    HLOD_EVENT_PASS,      // name, ms
    HLOD_EVENT_COMPILED,  // hit: no compile was needed; ms
    HLOD_EVENT_PREPARED,  // weights are on the device; hit: they were; ms
    HLOD_EVENT_RUNNING    // name: of the device
};
struct hlod_event { // borrowed during the callback
    enum hlod_event_kind kind;
    double t_ms; // since the server accepted the request
    const char *name;
    double ms;
    bool hit;
};
// Called on the caller's thread as events arrive. False cancels: the call returns CANCELLED, the
// server stops the work. Must not use the same connection.
typedef bool (*hlod_event_fn)(void *ctx, const struct hlod_event *e);
// The same with an event (proto/hlod.proto) as JSON on one line, borrowed during the call.
typedef bool (*hlod_json_fn)(void *ctx, const char *event);

#if defined(__cplusplus)
}
#endif
