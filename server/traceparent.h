// SPDX-License-Identifier: Apache-2.0
// traceparent: the W3C Trace Context header, version 00, as HTTP header and gRPC metadata. What a
// client gives goes into the logs, the job's record and back to the client; we make no trace of our
// own where none is given, and a header that is not well formed is as none (the specification's
// rule). Thread: any.
#pragma once
#include <stdbool.h>

enum { TRACE_ID_BYTES = 33, TRACEPARENT_BYTES = 56 }; // with the terminating 0
struct traceparent {
    char id[TRACE_ID_BYTES];       // 32 lower-case hex digits
    char given[TRACEPARENT_BYTES]; // as it came
    char reply[TRACEPARENT_BYTES]; // the same trace, a span of ours: for `traceresponse`
};
// text may be NULL. False: no valid header; *out is then untouched.
bool traceparent_parse(const char *text, struct traceparent *out);
