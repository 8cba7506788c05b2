// SPDX-License-Identifier: Apache-2.0
// membership: what the options say of the cluster that this daemon is a node of (--cluster): judged
// before anything is opened, made once it listens. Thread: start-up.
#pragma once
#include "base/status.h"
#include "scheduler/cluster/bus.h"

struct api;
struct config;
struct fetcher;
struct loop;
struct seal;
struct secrets;
struct suites;
struct membership {
    struct config *cfg;
    struct bus_server servers[BUS_SERVERS];
    size_t n_servers; // 0: no cluster
    struct cluster *cluster;
    struct seal *seal;       // NULL: no secret
    struct fetcher *fetcher; // of calls to other nodes; NULL then
    struct suites *suites;   // whose waiting jobs go to them; NULL: not yet
};
// errors  INVALID_ARGUMENT, with the option
// Its file of secrets is looked at again.
status_t membership_read(struct membership *m, struct config *cfg,
                         struct secrets *watch) MUST_CHECK;
// node: this daemon's name; host, port: where its HTTP API is bound. Into api->cluster, too.
status_t membership_start(struct membership *m, struct loop *l, struct config *cfg,
                          const char *node, const char *host, uint16_t port,
                          struct api *api) MUST_CHECK;
void membership_stop(struct membership *m);  // before the scheduler
void membership_close(struct membership *m); // after the loop
