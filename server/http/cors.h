// SPDX-License-Identifier: Apache-2.0
// cors: which web pages may call (--cors-origin), by the Fetch standard's CORS protocol. Origins
// are compared whole; nothing is ever allowed with cookies or other credentials that a browser adds
// by itself: a page sends its token in Authorization, as every caller. Pure. Thread: any.
#pragma once
#include <stdbool.h>

#include "base/status.h"

// INVALID_ARGUMENT: an entry of the list is neither "*" nor scheme://host[:port].
status_t cors_check(const char *list) MUST_CHECK;
bool cors_allows(const char *list, const char *origin); // list "", origin NULL: false
bool cors_any(const char *list);                        // the list has "*"
#define CORS_METHODS "GET, HEAD, POST, PUT, DELETE"
#define CORS_REQUEST_HEADERS                                                                       \
    "Authorization, Content-Type, Accept, Inference-Header-Content-Length, Range, traceparent, "   \
    "Hlod-Timeout-Ms, Hlod-Priority, Hlod-Tenant"
#define CORS_REPLY_HEADERS                                                                         \
    "Inference-Header-Content-Length, Content-Range, Retry-After, Server-Timing, traceresponse"
