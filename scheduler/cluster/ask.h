// SPDX-License-Identifier: Apache-2.0
// ask: one call of another node, with a pass for a tenant: a client's, sent there as it came, or
// one of our own. Once: the other node answers by itself. A node that is lost under one ends it.
// All calls of nodes go this way but those for bytes (pull.h). Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/remote/fetch.h"

struct ask;
struct asks;
struct nodes;
struct seal;
struct trace;
struct asks_config { // borrowed, but for auth, which is counted
    struct fetcher *fetcher;
    struct fetch_auth *auth; // for https; no bearer
    const struct nodes *nodes;
    const char *node; // ours
    const struct seal *seal;
    int64_t max_bytes; // of a reply
};
struct asks *asks_new(const struct asks_config *cfg);
void asks_stop(struct asks *s); // each ends with UNAVAILABLE; NULL is fine, as for
void asks_free(struct asks *s);

struct ask_spec {              // copied
    const char *node, *method; // of hlod.v1.Hlod
    const char *life;          // the process that is meant; NULL: the one that is there
    const char *tenant;
    unsigned scopes;
    const ProtobufCMessage *request;
    struct fetch_body body;                  // or it, packed; taken, also where there is no call
    const ProtobufCMessageDescriptor *reply; // NULL: a stream of events
    int64_t timeout_ms;                      // 0: none; of who asks, to which the node is not held
    int64_t deadline_ns;                     // 0: none; of the client, which the node is told
    int32_t priority;
    const struct trace *trace; // NULL: none
    // Of a stream, but ERROR and DONE. True: it is the callee's (protobuf_c_message_free_unpacked).
    bool (*event)(void *ctx, Hlod__V1__Event *e);
    // Nobody began it: the node was not reached. st is taken. NULL: done tells that, too.
    void (*missed)(void *ctx, status_t st);
    // Once, never from inside ask_start. The reply lies in a, which may be taken; st is.
    void (*done)(void *ctx, status_t st, struct arena *a, ProtobufCMessage *reply);
    void *ctx;
};
// NULL: that node is not there.
struct ask *ask_start(struct asks *s, const struct ask_spec *spec);
void ask_cancel(struct ask *x); // no done; NULL is fine
// What is said of a node that does not do what it was asked for: UNAVAILABLE.
status_t ask_broken(const char *node, const char *why) MUST_CHECK;
void asks_lost(struct asks *s, const char *node);
const char *asks_node(const struct asks *s); // ours
const struct seal *asks_seal(const struct asks *s);
