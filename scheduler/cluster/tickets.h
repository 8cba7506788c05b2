// SPDX-License-Identifier: Apache-2.0
// tickets: batch jobs that wait at one node, its suite's *home*, are told to those that have room,
// by a work queue of JetStream for each kind of device.
//
//   home: tickets_put -> JetStream -> who has room pulls it: a ticket
//   it -> home: an offer of a place -> offered(): the home chooses a job and calls (attempt.h)
//                                   -> or none waits any more: the ticket is acknowledged
//   home: the job's result is on disk -> tickets_settle: acknowledged
//
// A ticket says that a job of its home waits, nothing more: which job goes to the place that it
// brings, the home decides when it hears of it, by its own order. So nothing depends on what
// JetStream keeps: a ticket that is lost costs time (the home makes another after
// tickets_live_ns), one too many costs an offer. All is sealed; who cannot prove the cluster's
// secret makes no node do anything. Nothing waits. Thread: loop, where not said otherwise.
#pragma once
#include "base/arena.h"
#include "proto/formats/cluster.pb-c.h"
#include "scheduler/cluster/bus.h"

struct loop;
struct nodes;
struct seal;
struct strbuf;
struct tickets;
struct use;
enum { TICKETS_KIND = 40, TICKETS_KINDS = 16 };
struct tickets_config { // borrowed
    struct loop *loop;
    struct bus *bus;
    const struct nodes *nodes;
    const struct seal *seal;
    const char *name, *node, *life; // of the cluster; ours
    int64_t beat_ms;
    int replicas;                         // servers of NATS that keep the queue
    bool (*settled)(const void *cluster); // all nodes that are there were heard
    const void *cluster;
    struct use *use; // says whose turn it is
};
struct tickets_offer { // borrowed
    uint64_t id;
    const char *node, *life, *kind;
    const char *ack;
};
struct tickets_user {
    // Could a job of another node begin here now, beside so many that places were offered to?
    bool (*room)(void *ctx, const char *kind, int promised);
    // Kinds of the devices that are here; texts borrowed for this turn of the loop.
    size_t (*kinds)(void *ctx, const char **out, size_t max);
    // A node has a place: true, and it is called; or nothing waits.
    bool (*offered)(void *ctx, const struct tickets_offer *o);
    // Put what waits. lost: all that was put before is gone.
    void (*look)(void *ctx, bool lost);
    void *ctx;
};
struct tickets *tickets_new(const struct tickets_config *cfg);
void tickets_join(struct tickets *t, const struct tickets_user *u); // NULL: nobody any more
void tickets_leave(struct tickets *t);                              // takes no more
void tickets_stop(struct tickets *t);                               // NULL is fine, as for
void tickets_free(struct tickets *t);

// A kind of device that can be a part of a subject, and so is shared.
bool tickets_kind_fits(const char *kind);
bool tickets_ready(const struct tickets *t); // JetStream is there
int64_t tickets_live_ns(const struct tickets *t);
// id: what a ticket that is there already is known by.
void tickets_put(struct tickets *t, const char *kind, const char *job, const char *id, bool again);
// A job runs for it: it is not to come to others. Until it is settled, with the same text.
void tickets_hold(struct tickets *t, const char *ack);
void tickets_settle(struct tickets *t, const char *ack);
// There may be room now.
void tickets_look(struct tickets *t);
// The place that was offered to that home is taken up. False: none is, or not any more.
bool tickets_claim(struct tickets *t, uint64_t id, const char *home);

// ---- from the bus
void tickets_connected(struct tickets *t, bool up);
struct tickets_mail;
// NULL: it is none. In a. Pure. Thread: any.
struct tickets_mail *tickets_read(const struct seal *s, struct arena *a,
                                  const struct bus_mail *mail);
void tickets_hear(struct tickets *t, const struct tickets_mail *m);
void tickets_metrics(const struct tickets *t, struct strbuf *b);
