// SPDX-License-Identifier: Apache-2.0
// buffers: what lies resident in the device workers, under handles. A *buffer* is one array in one
// life of one worker, counted: handles hold it, and calls in flight. A *handle* is a tenant's name
// for one buffer, or for several (a tuple), with a lease that each use begins anew. A handle ends
// when it is freed, donated, not used for the length of its lease, or when its worker dies; what
// ended is remembered for a while, so that an error can say how. Pure: the clock and the
// workers are the caller's. Thread: loop.
//
//     reserve -> (the worker makes it) -> fill -> name ... find ... free, expire, donate, lost
#pragma once
#include "base/status.h"
#include "proto/numbers.h"

struct buffers;
struct buffer_use;
enum buffer_state { BUFFER_PENDING, BUFFER_READY, BUFFER_GONE }; // gone: with its worker, or never
struct buffer {
    int refs;
    uint64_t id; // its number in the worker
    int worker;
    uint64_t epoch;
    enum buffer_state state;
    char *name;
    const struct dtype_row *dtype;
    int32_t rank;
    int64_t *dims;
    int64_t bytes;
    struct buffers *owner;
    struct buffer_use *use;
};
enum handle_state { HANDLE_READY, HANDLE_BUSY, HANDLE_LOST, HANDLE_DEAD };
struct handle {
    char *text;        // [NODE:]LOCAL
    const char *local; // in it
    const char *tenant;
    struct buffer **leaf; // [n]; a lost handle's still say what they were
    size_t n;
    bool tuple;
    enum handle_state state; // busy: a run that is under way will take it
    int64_t lease_ms;        // -1 = none
    int64_t used_ns;
    int code, reason; // lost, dead: of the error
    char why[128];
    struct handle *prev, *next; // of all, oldest first; of the dead
};
struct buffers_config {
    int64_t lease_ms;    // of those who ask for none; -1 = no end
    int64_t quota_bytes; // of a tenant on one device; 0 = half of the device's memory
    void (*drop)(void *ctx, const struct buffer *b); // without a holder: the worker may free it
    void *ctx;
};
struct buffers *buffers_new(const struct buffers_config *cfg);
void buffers_configure(struct buffers *b, int64_t lease_ms, int64_t quota_bytes); // from now on
// Handles made from now on carry the name of this node of a cluster, which says where they lie.
void buffers_set_node(struct buffers *b, const char *node); // outlives b; "": none
void buffers_done(struct buffers *b); // NULL is fine; no buffer may be held any more

// May the tenant hold n more arrays, or names of them in handles? RESOURCE_EXHAUSTED,
// REASON_BUFFER_QUOTA: it has as many as it leaves to the others. Handles of small arrays take more
// memory than those.
status_t buffers_room(struct buffers *b, const char *tenant, size_t n) MUST_CHECK;
// A buffer to be, charged to the tenant: one reference. credit: bytes that the same call gives
// back. RESOURCE_EXHAUSTED, REASON_BUFFER_QUOTA.
status_t buffers_reserve(struct buffers *b, const char *tenant, int worker, uint64_t epoch,
                         int64_t device_bytes, int64_t bytes, int64_t credit,
                         struct buffer **out) MUST_CHECK;
// The worker has made it; what was reserved too much is given back.
void buffer_fill(struct buffer *x, const char *name, const struct dtype_row *dtype, int32_t rank,
                 const int64_t *dims);
void buffer_gone(struct buffer *x); // never made, or taken: the worker has nothing to let go of
struct buffer *buffer_ref(struct buffer *x);
void buffer_unref(struct buffer *x); // NULL is fine
int64_t buffers_quota(const struct buffers *b, int64_t device_bytes);

// A handle for n ready buffers (references of its own). lease_ms 0 = the default, -1 = none.
struct handle *buffers_name(struct buffers *b, const char *tenant, struct buffer *const *leaf,
                            size_t n, bool tuple, int64_t lease_ms, int64_t now_ns);
// By text: HANDLE, or HANDLE.3 for a tuple's element, whichever node it says. Begins the lease
// anew. *out_leaf: which element, -1 = all of the handle. errors  NOT_FOUND unknown (also: another
// tenant's), freed, lease ended; FAILED_PRECONDITION
//         donated, or just being donated; UNAVAILABLE lost with its worker. All name the handle
status_t buffers_find(struct buffers *b, const char *tenant, const char *text, int64_t now_ns,
                      struct handle **out, int *out_leaf) MUST_CHECK;
status_t buffers_renew(struct buffers *b, const char *tenant, const char *text, int64_t lease_ms,
                       int64_t now_ns, struct handle **out) MUST_CHECK;
// Also of a lost one. *out_bytes: of memory that nothing holds any more.
status_t buffers_free(struct buffers *b, const char *tenant, const char *text,
                      int64_t *out_bytes) MUST_CHECK;
// A run that will take the handle is under way; it took it, or not. Between the two the handle
// cannot be used, freed, or expire; it may be lost.
void buffers_lend(struct handle *h);
void buffers_taken(struct buffers *b, struct handle *h, uint64_t job);
void buffers_returned(struct handle *h);
// Ends handles whose lease is over. buffers_due: when that must be done next; 0 = no lease runs.
void buffers_expire(struct buffers *b, int64_t now_ns);
int64_t buffers_due(const struct buffers *b);
// The worker's present life; 0 = it is down. Buffers of an earlier one are lost; `who` for the
// message. Quick when nothing changed.
void buffers_worker(struct buffers *b, int worker, uint64_t epoch, const char *who);

// The tenant's handles, oldest first, without dead ones: start with NULL.
struct handle *buffers_next(const struct buffers *b, const char *tenant, const struct handle *h);
// Of one tenant, or (NULL) of all, on one worker.
void buffers_used(const struct buffers *b, const char *tenant, int worker, int64_t *out_bytes,
                  int *out_n);
