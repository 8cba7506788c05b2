// SPDX-License-Identifier: Apache-2.0
// api_cache: what the cache's handlers share: one piece of pool work a request, since store and
// journal block; it fills a reply in the call's arena. Thread: loop; work functions: pool.
#pragma once
#include "base/store/store.h"
#include "scheduler/job/key.h"
#include "scheduler/records/journal.h"
#include "scheduler/remote/exchange.h"
#include "scheduler/remote/trust.h"
#include "server/api/api.h"

struct cache_work {
    struct call *c;
    struct store *store;
    struct journal *journal;
    struct trust *trust; // counted
    const char *owner;   // whose it must be; NULL: anybody's
    status_t (*work)(struct cache_work *w);
    status_t (*then)(struct cache_work *w); // on the loop, after a success: answers; NULL: `reply`
    struct digest digest;
    void *own; // the handler's
    ProtobufCMessage *reply;
};
struct cache_work *cache_new(struct call *c, status_t (*fn)(struct cache_work *));
status_t cache_go(struct cache_work *w) MUST_CHECK; // as call_work
// The same once the request's digest is read.
status_t cache_go_for(struct cache_work *w, const char *digest) MUST_CHECK;
// A device here that it is made for, with the compiler that made it? FAILED_PRECONDITION,
// UNAVAILABLE. Loop.
status_t cache_fits(struct call *c, const Hlod__V1__ExecutableInfo *x) MUST_CHECK;
// What moves executables, for w's own work. Pool.
static inline struct exchange cache_exchange(const struct cache_work *w) {
    return (struct exchange){w->store, w->journal, w->trust};
}
// Of an executable that is here; *out lives as long as the call. NOT_FOUND. Pool.
status_t cache_record(struct cache_work *w, struct digest d,
                      Hlod__V1__ExecutableInfo **out) MUST_CHECK;
