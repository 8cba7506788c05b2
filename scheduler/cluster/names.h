// SPDX-License-Identifier: Apache-2.0
// names: the names of models, the same on all nodes that share the cluster's secret
// (scheduler/records/models.h has the rule by which they agree). A change is told to all as it is
// made. Whether all know the same is seen by the sum in each beat: where it is not, one node after
// the other tells all that it knows, so that nodes that join, were away, or lost a message catch
// up; those who know what another told already keep still. Bytes of models do not travel here: a
// node fetches them by digest when it needs them (pull.h). Thread: loop, where not said otherwise.
#pragma once
#include "base/arena.h"
#include "proto/formats/cluster.pb-c.h"
#include "scheduler/records/models.h"

struct loop;
struct names;
struct strbuf;
enum {
    NAMES_PIECE = 32 << 10,   // bytes of records in a message
    NAMES_RECORD = 256 << 10, // a longer one is not told
    NAMES_RECORDS = 4096,     // of a message
    NAMES_AHEAD_MS = 86400000 // a revision further in the future is refused: it would hold forever
};
struct names_config {
    struct loop *loop;
    struct models *models;
    const char *node; // ours; outlives the names
    int64_t beat_ms;
    void (*send)(void *ctx, Hlod__Cluster__Names *m);
    bool (*differ)(void *ctx, uint64_t sum); // does a node that is there know other names?
    void (*changed)(void *ctx);              // what we know, by what another told
    void *ctx;
};
struct names *names_new(const struct names_config *cfg);
void names_stop(struct names *n); // nothing is told any more; NULL is fine, as for
void names_free(struct names *n);

struct names_heard { // a message, read
    Hlod__Journal__NamedModel **records;
    size_t n;
    bool whole;
    uint64_t sum;
};
// Why it is no record that may be kept; NULL: it is one. Pure. Thread: any.
const char *names_fault(const Hlod__Journal__NamedModel *r, int64_t wall_ms);
// NULL: one of its records is none. In a. Pure. Thread: any.
struct names_heard *names_read(struct arena *a, const Hlod__Cluster__Names *m, int64_t wall_ms);
void names_hear(struct names *n, const struct names_heard *h);
// A node that is there knows other names. fresh: it was not there before, so at once.
void names_look(struct names *n, bool fresh);
void names_metrics(const struct names *n, struct strbuf *b);
