// SPDX-License-Identifier: Apache-2.0
// spans: a job's record as a tree of pieces of time, the one place that knows which there are, what
// they are called and what is a part of what: for GET /v1/runs/{job}/trace and for OpenTelemetry.
// Pure. Thread: any.
#pragma once
#include "base/arena.h"
#include "proto/hlod.pb-c.h"

// Each with those before it.
enum spans_detail { SPANS_REQUEST, SPANS_PHASES, SPANS_PASSES, SPANS_STEPS };
enum spans_kind { SPAN_PHASE, SPAN_PASS, SPAN_DEVICE, SPAN_STEP };
struct spans_one {
    enum spans_kind kind;
    const char *name;                // borrowed from the record
    int parent;                      // place in the array; -1: the job itself
    double start_ms, ms;             // from the job's start
    const Hlod__V1__PassStat *pass;  // of a pass
    const Hlod__V1__ProfileRow *row; // of a step
};
struct spans {
    struct spans_one *v; // in the arena
    size_t n;
};
struct spans spans_of(struct arena *a, const Hlod__V1__RunRecord *r, enum spans_detail detail);
size_t spans_count(const Hlod__V1__RunRecord *r, enum spans_detail detail); // how many at most
// The job's timing of that name, the last of them; NULL if none.
const Hlod__V1__Timing *spans_timing(const Hlod__V1__RunRecord *r, const char *name);
