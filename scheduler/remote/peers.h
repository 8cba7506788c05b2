// SPDX-License-Identifier: Apache-2.0
// peers: the other daemons of the fleet: by address, or all addresses of a name, which is asked
// again every few seconds; who each is and which targets it serves it says itself (GetPeer), every
// few seconds, so that a request neither waits to find out nor meets one that is down. What is
// called here are RPCs of hlod.v1 over HTTP, as protobuf. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/remote/remote_spec.h"

struct loop;
struct peer; // counted
struct peers;
struct peers_config {
    struct loop *loop;
    struct fetcher *fetcher;
    const struct remote_spec *specs; // those of kind PEER and DNS are looked at; outlive the peers
    size_t n_specs;
    const char *node; // ours; outlives them
    int64_t connect_ms, total_ms;
    void (*gone)(void *ctx, const char *life); // one is down, or another process than before
    void *ctx;
};
struct peers *peers_new(const struct peers_config *cfg);
void peers_stop(struct peers *p); // NULL is fine, as for
void peers_free(struct peers *p);
void peers_set_auth(struct peers *p, struct fetch_auth *auth); // counted; NULL: none
// What a node may be called, and a process: 1 to 60 letters, digits, '.', '_' or '-'. Pure.
enum { PEER_NAME_MAX = 60 };
bool peer_name_fits(const char *name);
const char *peers_node(const struct peers *p);
const char *peers_life(const struct peers *p); // of this process, drawn at random

struct peer *peer_ref(struct peer *x);       // NULL is fine
struct peer *peer_unref(struct peer *x);     // the same; gives NULL
const char *peer_name(const struct peer *x); // its node, or where it has not said that, its address

// The best `most` of the daemons that are up and serve the target for a key, best first. NULL
// stands for this daemon, which is among them where `self` says that it serves it. Borrowed.
struct peer_target {
    const char *target_id, *build_id;
    uint32_t kernel_abi;
};
size_t peers_rank(const struct peers *p, struct digest key, const struct peer_target *t, bool self,
                  struct peer **out, size_t most);

// A call of hlod.v1 on a peer. Its outcome counts for whether the peer is up; `done` as fetch.h's,
// after a success with the reply's bytes: protobuf. Where st is OK and code is not 200, the peer
// answered with an error.
struct peer_call {
    const char *method;
    const ProtobufCMessage *request; // packed before peer_call_start returns; or NULL, and
    struct fetch_body body;          // the request packed, taken
    int64_t wait_ms;                 // that the peer itself may take, beside the bound
    int64_t max_bytes;
    void (*done)(void *ctx, struct fetch_reply *r);
    void *ctx;
};
struct peer_flight;
struct peer_flight *peer_call_start(struct peer *x, const struct peer_call *c);
void peer_call_cancel(struct peer_flight *f); // no done; NULL is fine
void peers_describe(const struct peers *p, struct arena *a, Hlod__V1__RemoteState *out);
