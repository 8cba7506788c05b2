// SPDX-License-Identifier: Apache-2.0
// http: one request to hlod over libcurl, whole or line by line. Not thread safe: one hlod_http,
// one thread.
#pragma once
#include "base/span.h"
#include "base/status.h"
#include "base/str.h"

struct http_request {
    const char *method, *path; // path begins with '/'
    const char *content_type, *accept;
    const char *const *headers; // further ones, NULL-terminated, or NULL
    struct span body;           // or
    const char *body_file;      // streamed from this file
    void (*on_line)(void *ctx,
                    struct str line); // ndjson replies as they come; the body is then not kept
    void (*on_progress)(void *ctx, int64_t sent, int64_t total); // or NULL
    void *ctx;
};
struct http_reply {
    int code;
    struct strbuf body;
    int64_t json_bytes; // Inference-Header-Content-Length of the reply, -1 = absent
};
// UNAVAILABLE when the server cannot be reached. An HTTP error is not an error here: look at
// reply->code.
status_t http_call(const char *addr, const struct http_request *q,
                   struct http_reply *out) MUST_CHECK;
void http_reply_done(struct http_reply *r);
