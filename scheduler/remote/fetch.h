// SPDX-License-Identifier: Apache-2.0
// fetch: HTTP requests of the daemon to other machines: peers, caches, object stores, by libcurl.
// All transfers run on one thread of its own, so that neither the
// loop nor the pool waits for a network; what comes back is held whole, within a bound that the
// request names. Nothing follows a redirect, sends a cookie, or speaks but http and https. Life:
// one fetcher a daemon; a fetch lives until its done, or was cancelled.
// Thread: loop, but fetch_auth_* (any).
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"

struct loop;
struct fetcher;
struct fetch;
status_t fetcher_new(struct loop *l, struct fetcher **out) MUST_CHECK;
// Ends what is under way: no done is called any more. Waits for the thread. NULL is fine.
void fetcher_stop(struct fetcher *f);
void fetcher_free(struct fetcher *f); // after the loop; NULL is fine

// Who we are and whom we trust; counted, never changes. What is NULL is not wanted.
struct fetch_auth {
    const char *bearer;
    const char *ca, *cert, *key; // PEM texts; ca NULL: whom the system trusts
    const char *s3_region, *s3_id, *s3_secret, *s3_session; // AWS Signature Version 4
};
struct fetch_auth *fetch_auth_new(const struct fetch_auth *what); // copied
struct fetch_auth *fetch_auth_ref(struct fetch_auth *x);          // NULL is fine
struct fetch_auth *fetch_auth_unref(struct fetch_auth *x);        // the same; gives NULL

struct fetch_body { // what is sent, and how it is let go once nobody reads it
    struct span bytes;
    void (*free)(void *owner); // on the loop; NULL: nothing to do
    void *owner;
};
struct fetch_request {
    const char *method, *url;
    const char *address;          // connect there instead of to the URL's host, "10.0.0.1:8000",
                                  // "[::1]:8000"; NULL: as the URL says
    const char *const *headers;   // "Name: value", NULL-terminated; NULL: none
    struct fetch_body body;       // taken
    struct fetch_auth *auth;      // NULL: none
    int64_t connect_ms, total_ms; // bounds
    int64_t max_bytes;            // of the reply's body
    // NULL: the reply is held whole. Else the body of a 200 is told as it comes, on the loop, and
    // not to done; borrowed.
    void (*data)(void *ctx, struct span bytes);
    bool proxy;                   // by http_proxy, https_proxy, no_proxy of the environment
};
struct fetch_reply {
    status_t st;            // UNAVAILABLE: not reached, broken off, too slow; RESOURCE_EXHAUSTED:
                            // more bytes than max_bytes; UNAUTHENTICATED: TLS. Borrowed
    int code;               // HTTP's, 0: none came. 200 to 299 where st is OK, and others
    struct span body;       // from malloc; who keeps it sets p to NULL, and frees it
    int64_t retry_after_ms; // 0: not said
    int64_t sent;           // bytes of the request's body
};
// Copies what q points to, but the body. `done` comes later, never from inside.
void fetch_start(struct fetcher *f, const struct fetch_request *q,
                 void (*done)(void *ctx, struct fetch_reply *r), void *ctx, struct fetch **out);
void fetch_cancel(struct fetch *x); // no done; NULL is fine
