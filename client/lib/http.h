// SPDX-License-Identifier: Apache-2.0
// http: requests to hlod over libcurl, one connection kept open between them, replies whole or as
// they come. Thread: one http_client, one thread at a time.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "base/str.h"

struct http_client;
struct http_security {      // NULL or "" where not wanted
    const char *token;      // sent as `Authorization: Bearer`
    const char *cacert;     // PEM file of the CAs trusted instead of the system's
    const char *cert, *key; // PEM files: the client's own certificate
};
// What s does not say, from HLOD_TOKEN, HLOD_TOKEN_FILE, HLOD_CACERT, HLOD_CERT, HLOD_KEY. In a.
// What nobody wants becomes NULL.
// errors  the token file cannot be read
status_t http_security_env(struct arena *a, struct http_security *s) MUST_CHECK;
struct http_where {
    const char *addr; // HOST:PORT, within what was given
    bool tls;
};
// given "HOST:PORT", or with PLAIN:// or TLS:// in front (the two schemes); without, TLS when s
// names a CA or certificate. INVALID_ARGUMENT; also for a token that would cross a network in the
// clear unless given says PLAIN://.
status_t http_where(const char *given, const char *plain, const char *tls,
                    const struct http_security *s, struct http_where *out) MUST_CHECK;
// addr as above, of http and https. Copied; nothing is sent yet.
// s       NULL = none
status_t http_client_new(const char *addr, const struct http_security *s,
                         struct http_client **out) MUST_CHECK;
void http_client_free(struct http_client *c); // NULL is fine

struct http_request {
    const char *method, *path; // path begins with '/'
    const char *content_type, *accept;
    const char *const *headers; // further ones, NULL-terminated, or NULL
    const struct span *parts;   // the body: these, one after the other, or
    size_t n_parts;
    const char *body_file; // streamed from this file
    // Successful replies piece by piece instead of kept in the reply. False breaks off: CANCELLED.
    bool (*on_bytes)(void *ctx, struct span piece);
    void (*on_progress)(void *ctx, int64_t sent, int64_t total); // or NULL
    bool (*stop)(void *ctx); // or NULL; asked about once a second. True breaks off: CANCELLED
    void *ctx;
};
struct http_reply {
    int code;
    struct strbuf body;
    int64_t json_bytes;     // Inference-Header-Content-Length of the reply, -1 = absent
    int64_t retry_after_ms; // Retry-After, 0 = absent
};
// UNAVAILABLE when the server cannot be reached. An HTTP error is not an error here: look at
// reply->code. After a status *out need not be freed.
status_t http_send(struct http_client *c, const struct http_request *q,
                   struct http_reply *out) MUST_CHECK;
void http_reply_done(struct http_reply *r);

// Requests side by side over as many kept connections as they need, one thread for all of them:
// whoever calls http_flights_turn. Only http_flights_wake may be called by others.
struct http_flights;
struct http_flight;
status_t http_flights_new(struct http_client *c, struct http_flights **out) MUST_CHECK; // borrows c
void http_flights_free(struct http_flights *f); // cancels what is under way; NULL is fine
// done     once, from turn, cancel or free; takes st. As http_send: r is borrowed
// q        its pointers are borrowed until then
status_t http_flight_start(struct http_flights *f, const struct http_request *q,
                           void (*done)(void *ctx, status_t st, const struct http_reply *r),
                           void *ctx, struct http_flight **out) MUST_CHECK;
void http_flight_cancel(struct http_flight *x);                 // done is told CANCELLED at once
void http_flights_turn(struct http_flights *f, int timeout_ms); // waits for something to happen
void http_flights_wake(struct http_flights *f);
