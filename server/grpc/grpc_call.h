// SPDX-License-Identifier: Apache-2.0
// grpc_call: a call as the services see it: messages in, messages out, one end. The library is
// grpc.c's alone. A service is a table of functions; a method is a path, a service and a datum.
//
//   begin -> message* -> message(NULL): the client has no more -> ... rpc_send* -> rpc_finish
//   cancelled instead, at any time: the client left or its deadline passed. ended: always, last
//
// Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "server/grpc/grpc.h"

struct rpc_call;
struct rpc_bytes { // a message in pieces, borrowed until the callback returns, or rpc_release
    const struct span *pieces;
    size_t n;
    size_t bytes;
    bool compressed; // as they came: rpc_inflate
};
struct rpc_service {
    void (*begin)(struct rpc_call *c); // optional. The first rpc_receive is the service's
    void (*message)(struct rpc_call *c, const struct rpc_bytes *m);
    void (*sent)(struct rpc_call *c);      // optional: what was queued has gone out
    void (*cancelled)(struct rpc_call *c); // optional: no sends any more, they are dropped
    void (*ended)(struct rpc_call *c);     // optional: free what the service hung on the call
    bool idle; // its calls may stand open for ever: a shutdown does not wait for them
    void (*quiesce)(struct rpc_call *c); // optional, of one that is open when the daemon takes no
                                         // more requests: ends it as soon as it has its answers
};
struct rpc_method {
    const char *path;
    const struct rpc_service *service;
    const void *datum;
};
// NULL: unknown, answered UNIMPLEMENTED. Each service's own lookup, asked in turn.
const struct rpc_method *rpc_api_method(const char *path);
const struct rpc_method *rpc_health_method(const char *path);
const struct rpc_method *rpc_reflection_method(const char *path);

struct rpc *rpc_of(struct rpc_call *c);
struct api *rpc_api(struct rpc *r);
struct loop *rpc_loop(struct rpc *r);
const struct rpc_config *rpc_cfg(const struct rpc *r);
const struct rpc_method *rpc_method_of(const struct rpc_call *c);
void rpc_set_data(struct rpc_call *c, void *data);
void *rpc_data(const struct rpc_call *c);
int64_t rpc_timeout_ms(const struct rpc_call *c);                              // left; 0 = none
const char *rpc_header(struct rpc_call *c, struct arena *a, const char *name); // NULL if absent
// Whether all who read it take it alike: it is there at most once, without a NUL.
bool rpc_header_clear(const struct rpc_call *c, const char *name);

// CN and SANs of the client's verified certificate, in a; returns how many.
size_t rpc_peer_names(struct rpc_call *c, struct arena *a, const char *const **out);
// Metadata of the reply, in front of the first message and with the status; value NULL = none. Keys
// are literals, values borrowed until the call has ended.
void rpc_head(struct rpc_call *c, int slot, const char *key, const char *value); // slot 0, 1
void rpc_tail(struct rpc_call *c, const char *key, const char *value);

void rpc_receive(struct rpc_call *c); // asks for one more message
void rpc_hold(struct rpc_call *c);    // from the message callback: it stays; the call lives
void rpc_release(struct rpc_call *c); // may end the call
void rpc_send(struct rpc_call *c, const ProtobufCMessage *m);
// A message from the pieces of it, which stay where they are: borrowed until done(arg), on the
// loop, which may come after the call's end.
void rpc_send_lent(struct rpc_call *c, const struct span *v, size_t n, void (*done)(void *arg),
                   void *arg);
size_t rpc_unsent(const struct rpc_call *c); // bytes queued and not yet taken by the library
void rpc_reply(struct rpc_call *c, const ProtobufCMessage *m); // the last one, and success
void rpc_finish(struct rpc_call *c, status_t st); // takes st; after what was sent before
bool rpc_over(const struct rpc_call *c);          // finished or cancelled
// Takes a compressed message out of its coding, into `a`; at most max_bytes. INVALID_ARGUMENT.
status_t rpc_inflate(struct arena *a, struct rpc_bytes *m, int64_t max_bytes) MUST_CHECK;
// What m may come to in that: its bytes, where it is not compressed.
int64_t rpc_inflated_bytes(const struct rpc_bytes *m, int64_t max_bytes);
// A message of a method that anybody may call, as one piece: small, or an error.
status_t rpc_small(struct arena *a, const struct rpc_bytes *m, struct span *out) MUST_CHECK;
// The caller showed its token, or needs none: messages may now take what the options allow.
// RESOURCE_EXHAUSTED where the tenant (NULL: none) has as many calls open as it leaves to others.
status_t rpc_admitted(struct rpc_call *c, const char *tenant) MUST_CHECK;
// A message as one piece, in `a` where it came in several. Not of compressed ones.
struct span rpc_flat(struct arena *a, const struct rpc_bytes *m);

// grpc_health.c: watchers look at the state now and then.
void rpc_health_start(struct rpc *r);
void rpc_health_stop(struct rpc *r);
void rpc_health_free(struct rpc *r);
struct rpc_health **rpc_health_slot(struct rpc *r);
