// SPDX-License-Identifier: Apache-2.0
// registers: small records that JetStream keeps for all nodes, each under a key, of which the last
// one written counts. A write may ask that nobody wrote since (compare and set), or that nobody
// wrote ever: of several nodes that do so at once one succeeds. Records are sealed with their key,
// so that none can be made or moved by who has not the cluster's secret; that what was written is
// still there nobody promises. Nothing waits; a request that is not answered fails in time, and one
// that failed may have been done. Thread: loop, where not said otherwise.
#pragma once
#include "base/arena.h"
#include "scheduler/cluster/bus.h"

struct loop;
struct registers;
struct seal;
struct strbuf;
enum { REGISTER_MAX_BYTES = 256 << 10, REGISTER_KEY = 80 };
enum { REGISTER_ANY = -1, REGISTER_NEW = 0 }; // in the place of a number
struct registers_config {                     // borrowed
    struct loop *loop;
    struct bus *bus;
    const struct seal *seal;
    const char *name; // of the cluster
    int replicas;     // servers of NATS that keep each record
};
struct register_reply { // borrowed
    enum { REGISTER_OK, REGISTER_NONE, REGISTER_BAD, REGISTER_CONFLICT, REGISTER_FAILED } what;
    const char *why;   // of FAILED, and of BAD: it is not the cluster's
    uint64_t number;   // of what was read or written
    struct span bytes; // that were read
    const char **keys; // of a list, after its prefix
    size_t n_keys;
    int64_t made_ns; // of a list: wall clock of when the stream was made; 0: not said
    struct arena *a; // where they are
};
typedef void register_done(void *ctx, const struct register_reply *r);
struct registers *registers_new(const struct registers_config *cfg);
void registers_stop(struct registers *r); // what is under way fails; NULL is fine, as for
void registers_free(struct registers *r);
bool registers_ready(const struct registers *r);
// `done` comes once, never from inside. Keys: letters, digits, '-' and '.'.
void registers_put(struct registers *r, const char *key, struct span bytes, int64_t number,
                   register_done *done, void *ctx);
void registers_get(struct registers *r, const char *key, register_done *done, void *ctx);
void registers_list(struct registers *r, const char *prefix, register_done *done, void *ctx);
void registers_drop(struct registers *r, const char *prefix); // all of them, some time

// ---- from the bus
void registers_connected(struct registers *r, bool up);
struct register_mail;
// NULL: it is none. In a. Pure. Thread: any.
struct register_mail *registers_read(struct arena *a, const struct bus_mail *mail);
void registers_hear(struct registers *r, const struct register_mail *m);
void registers_metrics(const struct registers *r, struct strbuf *b);
