// SPDX-License-Identifier: Apache-2.0
// cluster: this daemon among others (--cluster): it tells them of itself every few seconds, and
// hears who they are, what they serve and how much room they have. Nothing of it is on disk, and
// nothing else of the daemon depends on it: while NATS is away each node serves alone. Life: made
// once the daemon listens, cluster_stop before the scheduler goes. Thread: loop.
#pragma once
#include "base/status.h"
#include "proto/formats/cluster.pb-c.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/cluster/bus.h"

struct asks;
struct attempts;
struct cluster;
struct fetch_auth;
struct fetcher;
struct forward;
struct journal;
struct models;
struct nodes;
struct pull;
struct registers;
struct seal;
struct store;
struct strbuf;
struct tenants;
struct tickets;
struct use;
struct cluster_config {
    struct loop *loop;
    const char *name; // subjects begin with it: cluster_name_fits
    const struct bus_server *servers;
    size_t n_servers;
    const char *credentials, *ca, *cert, *key; // files; "": none
    const char *node, *address;                // ours; all texts outlive the cluster
    int64_t beat_ms;
    const struct seal *seal; // outlives the cluster; NULL: no secret, and so nothing but the list
    struct tenants *tenants; // whose quotas and shares hold over all nodes that share it
    struct models *models;   // their names are the same on all nodes that share the secret
    struct fetcher *fetcher; // to fetch models from other nodes and send runs there, with the next
    struct fetch_auth *auth; // counted
    struct store *store;
    struct journal *journal;
    int64_t max_model_bytes, max_reply_bytes;
    int nats_replicas; // servers of NATS that keep a copy of what JetStream has
    bool records;      // of suites, which may move to other nodes
    // What this node serves, its room and its state: fields 4 to 12 of the message, in a.
    void (*describe)(void *ctx, struct arena *a, Hlod__V1__Node *out);
    void (*room)(void *ctx); // a tenant may have more places now
    void *ctx;
};
bool cluster_name_fits(const char *name); // 1 to 60 letters, digits, '_' or '-'
status_t cluster_new(const struct cluster_config *cfg, struct cluster **out) MUST_CHECK;
void cluster_tell(struct cluster *c);  // now: something that matters has changed; NULL is fine
void cluster_leave(struct cluster *c); // it takes no more jobs of others; NULL is fine
void cluster_stop(struct cluster *c);  // the others hear that it ends; NULL is fine, as for
void cluster_free(struct cluster *c);  // after the loop

bool cluster_connected(const struct cluster *c);
struct pull *cluster_pull(const struct cluster *c);       // NULL: no secret, no names
struct forward *cluster_forward(const struct cluster *c); // the same, as for
struct tickets *cluster_tickets(const struct cluster *c);
struct attempts *cluster_attempts(const struct cluster *c);
struct use *cluster_use(const struct cluster *c);
struct registers *cluster_registers(const struct cluster *c); // NULL: none are kept
struct asks *cluster_asks(const struct cluster *c);
// A batch job that another node gives to this one (attempt.h): in a, and the place that was offered
// is taken. UNAUTHENTICATED; UNAVAILABLE: there is none.
status_t cluster_take_job(const struct cluster *c, struct arena *a,
                          const Hlod__V1__RunJobRequest *q, Hlod__Cluster__Grant **out) MUST_CHECK;
// Who shows a pass of the cluster: for whom it calls. UNAUTHENTICATED, also where there is no
// secret.
status_t cluster_admit(const struct cluster *c, struct arena *a, const char *pass,
                       Hlod__Cluster__Pass **out) MUST_CHECK;
const char *cluster_node(const struct cluster *c); // ours
// NATS has been reached for long enough that all nodes that are there were heard.
bool cluster_settled(const struct cluster *c);
// The other nodes, borrowed for this turn of the loop.
const struct nodes *cluster_nodes(const struct cluster *c);
void cluster_describe(struct cluster *c, struct arena *a, Hlod__V1__ListNodesReply *out);
void cluster_metrics(struct cluster *c, struct strbuf *b);
