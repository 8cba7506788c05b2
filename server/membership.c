// SPDX-License-Identifier: Apache-2.0
#include "server/membership.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "scheduler/cluster/beat.h"
#include "scheduler/cluster/capacity.h"
#include "scheduler/cluster/cluster.h"
#include "server/api/api.h"
#include "server/config.h"

static status_t judge_files(const struct membership *m, const struct config *c) {
    bool tls = false, clear = false;
    for (size_t k = 0; k < m->n_servers; k++) {
        tls = tls || m->servers[k].tls;
        clear = clear || (!m->servers[k].tls && !m->servers[k].loopback);
    }
    if (!*c->cluster_cert != !*c->cluster_key)
        return st_invalid("cluster_cert and cluster_key go together");
    if (!tls && (*c->cluster_ca || *c->cluster_cert))
        return st_invalid("cluster_ca and cluster_cert are for tls:// servers, of which cluster "
                          "names none");
    if (clear && *c->cluster_credentials)
        log_event(LOG_WARN, "server.cluster",
                  "why=\"cluster_credentials cross the network unencrypted: tls://\"");
    return ST_OK;
}
status_t membership_read(struct membership *m, struct config *c) {
    RETURN_IF_ERR(
        st_note(bus_servers(&c->arena, c->cluster, m->servers, &m->n_servers), "cluster"));
    bool more = *c->cluster_credentials || *c->cluster_ca || *c->cluster_cert || *c->cluster_key ||
                *c->cluster_address;
    if (!m->n_servers && more)
        return st_invalid("cluster_credentials, cluster_ca, cluster_cert, cluster_key and "
                          "cluster_address are for a cluster, and cluster names none");
    if (!cluster_name_fits(c->cluster_name))
        return st_invalid("cluster_name '%.80s': expected 1 to 60 letters, digits, '_' or '-'",
                          c->cluster_name);
    if (*c->cluster_address && !beat_address_fits(c->cluster_address))
        return st_invalid("cluster_address '%.200s': expected http://HOST:PORT or "
                          "https://HOST:PORT",
                          c->cluster_address);
    return judge_files(m, c);
}

// Where others reach us: that of --http, by the machine's name where it is all addresses.
static const char *own_address(struct config *c, const char *host, uint16_t port) {
    char name[256] = "";
    if (*c->cluster_address) return c->cluster_address;
    if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::")) {
        host = gethostname(name, sizeof name - 1) || !*name ? "localhost" : name;
    }
    return arena_printf(&c->arena, strchr(host, ':') ? "http%s://[%s]:%u" : "http%s://%s:%u",
                        *c->tls_cert ? "s" : "", host, port);
}
static void describe(void *ctx, struct arena *a, Hlod__V1__Node *out) {
    const struct api *api = ctx;
    capacity_describe(api->sched, a, out);
    out->version = (char *)(uintptr_t)api_version_text();
    out->state = (char *)(api->draining                 ? "draining"
                          : sched_can_serve(api->sched) ? "serving"
                                                        : "starting");
}
status_t membership_start(struct membership *m, struct loop *l, struct config *c, const char *node,
                          const char *host, uint16_t port, struct api *api) {
    if (!m->n_servers) return ST_OK;
    struct cluster_config cc = {.loop = l,
                                .name = c->cluster_name,
                                .servers = m->servers,
                                .n_servers = m->n_servers,
                                .credentials = c->cluster_credentials,
                                .ca = c->cluster_ca,
                                .cert = c->cluster_cert,
                                .key = c->cluster_key,
                                .node = node,
                                .address = own_address(c, host, port),
                                .beat_ms = c->cluster_beat_ms,
                                .describe = describe,
                                .ctx = api};
    if (!beat_address_fits(cc.address))
        return st_invalid("cluster_address: '%.200s' is none; say how others reach this server",
                          cc.address);
    RETURN_IF_ERR(cluster_new(&cc, &m->cluster));
    api->cluster = m->cluster;
    return ST_OK;
}
