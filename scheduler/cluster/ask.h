// SPDX-License-Identifier: Apache-2.0
// ask: one call of a client that another node is to answer, sent there as it came, with a pass for
// the client's tenant; or a call of our own. Once: the other node answers by itself. Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct ask;
struct asks;
struct fetch_auth;
struct fetcher;
struct nodes;
struct seal;
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
    const char *tenant;
    unsigned scopes;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *reply;      // NULL: a stream of events
    int64_t timeout_ms;                           // 0: none
    void (*event)(void *ctx, Hlod__V1__Event *e); // of a stream, but ERROR and DONE; borrowed
    // Once, never from inside ask_start. The reply lies in a, which may be taken; st is.
    void (*done)(void *ctx, status_t st, struct arena *a, ProtobufCMessage *reply);
    void *ctx;
};
// NULL: that node is not there.
struct ask *ask_start(struct asks *s, const struct ask_spec *spec);
void ask_cancel(struct ask *x); // no done; NULL is fine
void asks_lost(struct asks *s, const char *node);
