// SPDX-License-Identifier: Apache-2.0
// pull: the bytes of a model that lies on another node, named here or not, fetched from there when
// they are needed, in pieces, and checked by their digest before they are kept. Only nodes that
// proved the cluster's secret are asked, each with a pass for itself and for the tenant whose name
// it is; one after the other, the name's writer first; what one did not give to the end the next
// one goes on with. A few at a time, the rest waits. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"

struct cluster;
struct fetch_auth;
struct fetcher;
struct journal;
struct loop;
struct pull;
struct seal;
struct store;
struct strbuf;
struct pull_config { // borrowed, but for auth, which is counted
    struct loop *loop;
    struct fetcher *fetcher;
    struct fetch_auth *auth; // for https; no bearer
    const struct cluster *cluster;
    const struct seal *seal;
    struct store *store;
    struct journal *journal;
    int64_t max_bytes; // of a model
};
struct pull *pull_new(const struct pull_config *cfg);
// Ends what is under way: each `done` is called, from here or, where the pool has it, a little
// later. NULL is fine, as for
void pull_stop(struct pull *p);
void pull_free(struct pull *p); // after the loop
// The blob, as the tenant's. first: the node that is asked first. Texts are copied; `done` never
// fires from inside.
// errors  UNAVAILABLE: no node gave it; those of our disk. Taken by done
void pull_get(struct pull *p, const char *tenant, struct digest d, const char *first,
              void (*done)(void *ctx, status_t st), void *ctx);
// The same for one that no name here says anything of: given only by a node where it is the
// tenant's.
// errors  also NOT_FOUND: none has it. At once, without done: NOT_FOUND where there is no other
//         node, UNAVAILABLE where too many wait, or this one was looked for too often
status_t pull_find(struct pull *p, const char *tenant, struct digest d,
                   void (*done)(void *ctx, status_t st), void *ctx) MUST_CHECK;
void pull_lost(struct pull *p, const char *node); // it is lost: what it was asked for others are
void pull_metrics(const struct pull *p, struct strbuf *b);
