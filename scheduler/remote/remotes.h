// SPDX-License-Identifier: Apache-2.0
// remotes: where else than here executables are looked for and brought to (--cache-remote): other
// daemons (peers.h), prefixes that take GET and PUT, object stores. They are asked in their order;
// the peers together are one of them, at the place of the first. Whatever a remote does costs a
// bounded time and is counted; none of it fails a request. What one gives is checked by exchange.h,
// regardless of who gives it. The loop never waits: transfers are fetch.h's, checks and files the
// pool's. Life: made before the scheduler, which borrows it; remotes_stop before the scheduler
// goes. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/remote/claims.h"
#include "scheduler/remote/remote_spec.h"

struct fetch_auth;
struct fetcher;
struct journal;
struct loop;
struct look;
struct peers;
struct remotes;
struct store;
struct strbuf;
struct trust;

struct remotes_config {
    const struct remote_spec *specs; // copied as they are; their texts outlive the remotes
    size_t n_specs;
    const char *node;   // this daemon's name in the fleet; outlives them
    int64_t connect_ms; // bounds of one look-up in one remote
    int64_t total_ms;
    int64_t wait_ms;   // for what another daemon compiles
    int64_t max_bytes; // of a bundle
};
status_t remotes_new(struct loop *l, struct store *store, struct journal *journal,
                     const struct remotes_config *cfg, struct trust *trust, // trust: counted
                     struct remotes **out) MUST_CHECK;
void remotes_stop(struct remotes *r); // ends all that is under way, without a word; NULL is fine
// This daemon drains: who waits here for what is compiled elsewhere waits no longer.
void remotes_quiesce(struct remotes *r);
void remotes_free(struct remotes *r);                       // after the loop; NULL is fine
void remotes_set_trust(struct remotes *r, struct trust *t); // counted
// Puts under way or waiting: a daemon that ends may wait for them.
int remotes_busy(const struct remotes *r);
struct peers *remotes_peers(struct remotes *r); // NULL: there are none

// ---- credentials: files of theirs that change are read again by who owns them

struct remote_secrets { // what one read of all files gave; remotes_secrets_free
    struct fetch_auth *peers;
    struct fetch_auth **auth; // [n_specs]
    const char **url;         // [n_specs], where it comes with them (s3), else NULL; in arena
    size_t n;
    struct arena *arena;
};
struct peer_files { // "": none
    const char *token, *ca, *cert, *key;
};
// Blocks: pool, or the start. The error names the remote or option.
status_t remote_secrets_read(const struct remote_spec *specs, size_t n,
                             const struct peer_files *files,
                             struct remote_secrets **out) MUST_CHECK;
void remote_secrets_free(struct remote_secrets *x);                    // NULL is fine
void remotes_set_secrets(struct remotes *r, struct remote_secrets *x); // takes x

// ---- executables

struct look_spec {
    struct digest key;
    const char *target_id, *build_id; // copied
    uint32_t kernel_abi;
    bool serves;                   // a device here has the target
    bool claim;                    // who looks will compile it where nobody has it
    struct digest source, weights; // of the model that it is for
    int64_t weights_bytes;
    // Each remote's answer as it comes; outcome "waits" may come before its last. Borrowed.
    void (*tell)(void *ctx, const Hlod__V1__RemoteAnswer *a);
    // Once. found: its record, which is in store and journal now; taken by the callee. NULL: there
    // is none. here: it came here meanwhile, by another way: look again.
    void (*done)(void *ctx, Hlod__V1__ExecutableInfo *found, const char *remote, bool here);
    void *ctx;
};
struct look *remotes_look(struct remotes *r, const struct look_spec *q); // done: never from inside
void look_cancel(struct look *l); // no done, no tell; NULL is fine
// After a look that claimed: it was compiled here, and goes to the remotes in the background; or it
// was not going to be.
void remotes_made(struct remotes *r, struct digest key);
void remotes_given_up(struct remotes *r, struct digest key);

// ---- what this daemon keeps in mind for its peers: who compiles which executable

// True: the asker is to. False: *out_node is; borrowed.
bool remotes_claim(struct remotes *r, struct digest key, const char *node, const char *life,
                   const char **out_node);
// w fires once that ends, as claims_wait says.
void remotes_wait(struct remotes *r, struct digest key, struct claim_wait *w); // claims_leave
void remotes_claim_ends(struct remotes *r, struct digest key, const char *life); // NULL: anybody's

// ---- what is told of them

void remotes_describe(struct remotes *r, struct arena *a, Hlod__V1__CacheStatsReply *out);
void remotes_metrics(struct remotes *r, struct strbuf *b);
