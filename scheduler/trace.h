// SPDX-License-Identifier: Apache-2.0
// trace: W3C Trace Context (Recommendation, version 00) as values: `traceparent` and `tracestate`
// read and written, new ids. And a piece of work as it is told to who exports it (struct
// trace_work), which scheduler and server fill in alike. Thread: any.
#pragma once
#include "base/span.h"
#include "proto/hlod.pb-c.h"

enum { TRACE_ID_TEXT = 33, TRACE_PARENT_TEXT = 56, TRACE_STATE_MOST = 512 }; // with the 0; without
enum { TRACE_SAMPLED = 1 };                                                  // a flag
struct trace {
    uint8_t id[16];
    uint8_t span[8];   // of the work itself
    uint8_t parent[8]; // of what it is a part of; zeros: of nothing
    uint8_t flags;
    bool remote;       // the parent is another process's
    const char *state; // tracestate; "" = none. Borrowed
};
// A header's value, or NULL: the caller's span becomes `parent`; `span` is new, the state "". A
// header that is not well formed is as none (the specification's rule). False: *out is untouched.
bool trace_parse(const char *parent, struct trace *out);
// Is it a tracestate as the specification has it, at most TRACE_STATE_MOST bytes?
bool trace_state_fits(const char *text);
void trace_begin(struct trace *out);                         // a new trace, sampled by nobody yet
void trace_child(const struct trace *of, struct trace *out); // a part of that work, here
// traceparent for who works for us: `span` is its parent.
void trace_write(const struct trace *t, char out[TRACE_PARENT_TEXT]);
void trace_write_id(const struct trace *t, char out[TRACE_ID_TEXT]);
bool trace_sampled(const struct trace *t); // NULL: no
void trace_new_span(uint8_t out[8]);       // random, not zero

// Work that has ended.
struct trace_work {
    const struct trace *trace;
    const char *name;                  // a literal; NULL: a request's, of the four below
    const char *verb;                  // of HTTP; NULL: gRPC
    struct str service, method, route; // static texts; route: HTTP's template, "" = the rpc's path
    int64_t start_ns, end_ns;          // clock_ns
    int code, reason, http;            // how it ended; http: 0 = nothing was answered
    const char *message;               // why it failed, or NULL
    // What the scheduler made of it: its timings count from work_ns. NULL: nothing.
    const Hlod__V1__RunRecord *record;
    int64_t work_ns;
    double upload_ms;  // of a model that came with it, from start_ns; 0 = none
    const char *model; // as it was asked for, or NULL
    const char *tenant;
    // Others that it did the work of, or that did its work.
    const struct trace *const *links;
    size_t n_links;
    const struct trace *run; // a batch that its run was a part of, or NULL
    int64_t rows;            // of that batch; 0 = none
    const char *job;         // batch job SUITE.N, or NULL
    uint32_t attempt;
};
