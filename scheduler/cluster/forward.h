// SPDX-License-Identifier: Apache-2.0
// forward: runs that this node has no place for, sent to one that has: chosen by what the nodes
// last told of themselves and what was sent there since, called with a pass for the tenant. Events
// come back as they happen. A node that cannot be reached, or does not take the run, is passed over
// for the next one; one that took it and is lost costs the run. Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/hlod.pb-c.h"

struct asks;
struct cluster;
struct forward;
struct forward_call;
struct strbuf;
struct trace;
struct forward_config { // borrowed
    struct asks *asks;
    const struct cluster *cluster;
};
struct forward *forward_new(const struct forward_config *cfg);
// Ends what is under way with UNAVAILABLE; nothing is forwarded any more. NULL is fine, as for
void forward_stop(struct forward *f);
void forward_free(struct forward *f);

enum { FORWARD_NODES = 3 }; // that are tried for one run
struct forward_spec {
    const char *device;        // kind; "", or "auto": any
    const char *tenant;        // for whom
    unsigned scopes;           // of the pass
    const struct trace *trace; // NULL: none
    int64_t deadline_ns;       // 0: none
    struct span body;          // RunRequest, packed, from malloc; taken
    // Both borrowed. Not of RESULT, ERROR and DONE.
    void (*event)(void *ctx, Hlod__V1__Event *e);
    // Once, never from inside forward_start. OK: the result, from malloc, whose the callee's it is
    // (protobuf_c_message_free_unpacked), and the node that ran it, borrowed. st is taken; NULL and
    // no result: no node takes it.
    void (*done)(void *ctx, status_t st, Hlod__V1__Event *result, const char *node);
    void *ctx;
};
// Is there a node with room for such a run?
bool forward_may(struct forward *f, const char *device);
// Does one have that device, or had it a while ago, or may have it once its workers are up, or once
// it is heard? Then a run that no node takes now is worth another try.
bool forward_knows(const struct forward *f, const char *device);
// NULL, and the body is freed: there is none.
struct forward_call *forward_start(struct forward *f, const struct forward_spec *spec);
void forward_cancel(struct forward_call *c); // no done; NULL is fine
void forward_metrics(const struct forward *f, struct strbuf *b);
