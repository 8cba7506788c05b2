// SPDX-License-Identifier: Apache-2.0
// remotes_inside: the inside of remotes, for files of this folder. Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include "scheduler/remote/breaker.h"
#include "scheduler/remote/claims.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/remote/peers.h"
#include "scheduler/remote/remotes.h"
#include "scheduler/remote/trust.h"

struct remote {
    struct remotes *all;
    size_t index; // of its spec; of the peers together: the first peer's
    bool is_peers;
    const char *name;
    struct breaker breaker; // of a prefix or store; each peer has its own
    struct fetch *probe;
    struct {
        int64_t hits, misses, errors, refused, skipped, puts, put_errors, bytes_in, bytes_out, ns;
    } n;
    char why[200]; // the last error
};
struct held { // a key that a look of ours has claimed
    struct digest key;
    struct peer *by; // who keeps that in mind; NULL: this daemon
};
struct remotes {
    struct loop *loop;
    struct store *store;
    struct journal *journal;
    struct trust *trust;
    struct remotes_config cfg;
    struct fetcher *fetcher;
    struct remote_secrets *secrets;
    struct remote *v; // in their order
    size_t n;
    struct peers *peers; // NULL: none
    struct claims claims;
    struct smap held; // struct held by key
    struct look *looks;
    struct puts *puts;
    struct loop_timer *tick; // while something is down
    bool stopping;
};

// ---- remote_state.c

// What came of asking: counted, told of in the log where it changes. st: borrowed; what was wrong.
void remote_well(struct remote *x);
void remote_failed(struct remote *x, status_t st, int64_t retry_after_ms, bool sure);
void remote_refused(struct remote *x, struct digest key, status_t st);
void remotes_tick(void *r); // probes what is down
// ---- remotes.c

// May what is compiled here be of use to others: can it be signed as they ask?
bool remotes_may_give(const struct remotes *r);

void looks_stop(struct remotes *r); // look.c

// ---- objects of a prefix or store (objects.c)

// An executable's address under the remote's. In a.
const char *object_url(struct arena *a, const struct remote *x, struct digest key);
struct fetch *object_get(struct remote *x, const char *url, int64_t max_bytes,
                         void (*done)(void *ctx, struct fetch_reply *r), void *ctx);
// body: taken; its digest.
struct fetch *object_put(struct remote *x, const char *url, struct fetch_body body,
                         struct digest digest, void (*done)(void *ctx, struct fetch_reply *r),
                         void *ctx);
// What an answer says, and whether the remote is well, which is noted.
enum object_answer { OBJECT_THERE, OBJECT_ABSENT, OBJECT_FAILED };
enum object_answer object_answer(struct remote *x, const struct fetch_reply *r);

// ---- what has been compiled goes out (puts.c)

struct puts *puts_new(struct remotes *r);
void puts_stop(struct puts *p);
void puts_free(struct puts *p);
int puts_busy(const struct puts *p);
// The peer that keeps the key in mind hears that it is not going to be compiled.
void puts_release(struct puts *p, struct digest key, struct peer *holder);
// holder: who waits for it; NULL: nobody. to_all: also to all prefixes and stores.
void puts_add(struct puts *p, struct digest key, struct peer *holder, bool to_all);
