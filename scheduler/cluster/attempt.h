// SPDX-License-Identifier: Apache-2.0
// attempt: one attempt at a batch job by another node, which offered a place for it (tickets.h): a
// call that lasts as long as the job runs there. What proves that it is given by its home is a
// grant, for that offer of that process alone; who leaves cancels the run. A node that is lost
// under one ends it. Thread: loop.
#pragma once
#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "proto/formats/cluster.pb-c.h"
#include "proto/hlod.pb-c.h"

struct asks;
struct attempt;
struct attempts;
struct nodes;
struct seal;
struct strbuf;
struct trace;
struct attempts_config { // borrowed
    struct asks *asks;
    const struct nodes *nodes;
};
struct attempts *attempts_new(const struct attempts_config *cfg);
// Ends what is under way with UNAVAILABLE, SHUTTING_DOWN. NULL is fine, as for
void attempts_stop(struct attempts *s);
void attempts_free(struct attempts *s);

struct attempt_spec { // copied
    const char *node, *life;
    uint64_t offer;
    const char *tenant, *job;
    uint32_t number;
    const struct trace *trace; // NULL: none
    struct span suite;         // a SubmitJobsRequest of one job, packed
    // Once, never from inside attempt_start. OK: the node ran it; m is in a, which is taken with
    // what it holds. Else it was not run to the end; st is taken.
    void (*done)(void *ctx, status_t st, struct arena *a, Hlod__V1__RunJobReply *m);
    void *ctx;
};
struct attempt *attempt_start(struct attempts *s, const struct attempt_spec *spec);
void attempt_cancel(struct attempt *x);                   // no done; NULL is fine
void attempts_lost(struct attempts *s, const char *node); // it is lost, or has ended
void attempts_metrics(const struct attempts *s, struct strbuf *b);

// What such a call proves, of the bytes of its request. In a. NULL, and why.
Hlod__Cluster__Grant *attempt_grant(const struct seal *s, struct arena *a,
                                    const Hlod__V1__RunJobRequest *q, const char *life,
                                    const char **out_why);
