// SPDX-License-Identifier: Apache-2.0
// cluster: this daemon among others (--cluster): it tells them of itself every few seconds, and
// hears who they are, what they serve and how much room they have. Nothing of it is on disk, and
// nothing else of the daemon depends on it: while NATS is away each node serves alone. Life: made
// once the daemon listens, cluster_stop before the scheduler goes. Thread: loop.
#pragma once
#include "base/status.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/cluster/bus.h"

struct cluster;
struct strbuf;
struct cluster_config {
    struct loop *loop;
    const char *name; // subjects begin with it: cluster_name_fits
    const struct bus_server *servers;
    size_t n_servers;
    const char *credentials, *ca, *cert, *key; // files; "": none
    const char *node, *address;                // ours; all texts outlive the cluster
    int64_t beat_ms;
    // What this node serves, its room and its state: fields 4 to 12 of the message, in a.
    void (*describe)(void *ctx, struct arena *a, Hlod__V1__Node *out);
    void *ctx;
};
bool cluster_name_fits(const char *name); // 1 to 60 letters, digits, '_' or '-'
status_t cluster_new(const struct cluster_config *cfg, struct cluster **out) MUST_CHECK;
void cluster_tell(struct cluster *c); // now: something that matters has changed; NULL is fine
void cluster_stop(struct cluster *c); // the others hear that it ends; NULL is fine, as for
void cluster_free(struct cluster *c); // after the loop

bool cluster_connected(const struct cluster *c);
void cluster_describe(struct cluster *c, struct arena *a, Hlod__V1__ListNodesReply *out);
void cluster_metrics(struct cluster *c, struct strbuf *b);
