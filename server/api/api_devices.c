// SPDX-License-Identifier: Apache-2.0
// Devices, nodes, health, version: what the daemon knows without asking anybody.
#include <string.h>

#include "base/clock.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/records/buffers.h"
#include "server/api/api.h"

// What a device is, and of what it holds and does only this tenant's: how much others compute, and
// when, is not to be read off it.
static void only_own(struct call *c, int worker, Hlod__V1__Device *d) {
    int n;
    buffers_used(sched_buffers(c->api->sched), c->principal.tenant, worker, &d->buffer_bytes, &n);
    d->buffers = n;
    d->worker_pid = d->resident_executables = d->runs = 0;
    d->worker_rss_bytes = d->prepared_bytes = d->planned_bytes = d->flight_bytes = 0;
    if (!strcmp(d->state, "busy")) d->state = (char *)"ready";
}

status_t api_devices(struct call *c) {
    struct pool *p = sched_pool(c->api->sched);
    Hlod__V1__ListDevicesReply m = HLOD__V1__LIST_DEVICES_REPLY__INIT;
    m.devices = arena_array(&c->arena, Hlod__V1__Device *, pool_size(p));
    for (int i = 0; i < pool_size(p); i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        if (w.role != ROLE_DEVICE || w.spare) continue;
        Hlod__V1__Device *d = arena_new_of(&c->arena, Hlod__V1__Device);
        worker_describe(pool_worker(p, i), d);
        if (!api_sees_all(c)) only_own(c, i, d);
        m.devices[m.n_devices++] = d;
    }
    m.worker_filter = (char *)pool_filter(p);
    return call_reply(c, &m.base);
}

status_t api_nodes(struct call *c) {
    Hlod__V1__ListNodesReply m = HLOD__V1__LIST_NODES_REPLY__INIT;
    if (c->api->cluster) cluster_describe(c->api->cluster, &c->arena, &m);
    return call_reply(c, &m.base);
}

bool api_apart(const struct api *api) {
    return api->cluster && !cluster_connected(api->cluster);
}
bool api_serves(const struct api *api) {
    return !api->leaving && sched_can_serve(api->sched);
}
status_t api_health(struct call *c) {
    Hlod__V1__HealthReply m = HLOD__V1__HEALTH_REPLY__INIT;
    m.live = true;
    m.ready = api_serves(c->api);
    m.message = (char *)(c->api->leaving ? "shutting down"
                         : m.ready && api_apart(c->api)
                             ? "ready; the cluster is not reached, this node serves alone"
                         : m.ready ? "ready"
                                   : "workers are starting");
    m.uptime_s = (double)(clock_ns() - c->api->start_ns) / 1e9;
    if (api_sees_all(c)) { // how much others compute, and when, is not to be read off it
        m.rss_bytes = api_rss_bytes();
        m.jobs_active = sched_active(c->api->sched);
    }
    return call_reply(c, &m.base);
}

status_t api_version(struct call *c) {
    Hlod__V1__VersionReply m = HLOD__V1__VERSION_REPLY__INIT;
    m.version = (char *)api_version_text();
    m.api = (char *)"hlod.v1";
    struct pool *p = sched_pool(c->api->sched);
    for (int i = 0; i < pool_size(p); i++) {
        const Hlod__Wire__Hello *h = worker_hello(pool_worker(p, i));
        if (!h) continue;
        m.compiler_build_id = h->build_id;
        m.kernel_abi = h->kernel_abi;
    }
    return call_reply(c, &m.base);
}
