// SPDX-License-Identifier: Apache-2.0
#include "server/membership.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "scheduler/cluster/beat.h"
#include "scheduler/cluster/capacity.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/records/buffers.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/remote/pem.h"
#include "scheduler/suite/suite.h"
#include "server/api/api.h"
#include "server/config.h"
#include "server/secrets.h"

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
// Runs on the pool: of what it reads nothing changes.
static status_t load_seal(void *ctx, void **out) {
    const struct membership *m = ctx;
    struct seal *fresh;
    RETURN_IF_ERR(seal_new(m->cfg->cluster_secret, m->cfg->cluster_name, &fresh));
    *out = fresh;
    return ST_OK;
}
static void drop_seal(void *seal) {
    seal_free(seal);
}
static void take_seal(void *ctx, void *loaded) {
    struct membership *m = ctx;
    seal_renew(m->seal, loaded);
}
static status_t read_secret(struct membership *m, const struct config *c, struct secrets *watch) {
    if (!*c->cluster_secret) return ST_OK;
    secrets_add(watch, &(struct secret_group){.what = "cluster_secret",
                                              .files = {c->cluster_secret},
                                              .n = 1,
                                              .load = load_seal,
                                              .take = take_seal,
                                              .drop = drop_seal,
                                              .ctx = m});
    return st_note(seal_new(c->cluster_secret, c->cluster_name, &m->seal), "cluster_secret");
}
status_t membership_read(struct membership *m, struct config *c, struct secrets *watch) {
    m->cfg = c;
    RETURN_IF_ERR(
        st_note(bus_servers(&c->arena, c->cluster, m->servers, &m->n_servers), "cluster"));
    bool more = *c->cluster_credentials || *c->cluster_ca || *c->cluster_cert || *c->cluster_key ||
                *c->cluster_address || *c->cluster_secret;
    if (!m->n_servers && more)
        return st_invalid("cluster_credentials, cluster_ca, cluster_cert, cluster_key, "
                          "cluster_secret and cluster_address are for a cluster, and cluster names "
                          "none");
    if (c->jobs_replicas && (!m->n_servers || !*c->cluster_secret))
        return st_invalid("jobs_replicas needs cluster and cluster_secret: nodes that are not "
                          "there can keep nothing");
    if (!cluster_name_fits(c->cluster_name))
        return st_invalid("cluster_name '%.80s': expected 1 to 60 letters, digits, '_' or '-'",
                          c->cluster_name);
    if (*c->cluster_address && !beat_address_fits(c->cluster_address))
        return st_invalid("cluster_address '%.200s': expected http://HOST:PORT or "
                          "https://HOST:PORT",
                          c->cluster_address);
    RETURN_IF_ERR(read_secret(m, c, watch));
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
    out->state = (char *)(api->leaving                  ? "draining"
                          : sched_can_serve(api->sched) ? "serving"
                                                        : "starting");
}
static void on_room(void *ctx) {
    const struct api *api = ctx;
    sched_room(api->sched);
}
// How other nodes are called where their addresses are https. Passes are no part of it.
static status_t node_auth(struct config *c, struct fetch_auth **out) {
    struct arena a = {0};
    struct fetch_auth x = {0};
    status_t st = *c->peer_ca ? st_note(pem_read(&a, c->peer_ca, false, &x.ca), "peer_ca")
                              : pem_of_system(&a, &x.ca);
    if (!st && *c->peer_cert) st = st_note(pem_read(&a, c->peer_cert, false, &x.cert), "peer_cert");
    if (!st && *c->peer_key) st = st_note(pem_read(&a, c->peer_key, true, &x.key), "peer_key");
    if (!st) *out = fetch_auth_new(&x);
    arena_done(&a);
    return st;
}
static status_t start_calls(struct membership *m, struct loop *l, struct config *c,
                            const char *host, struct cluster_config *cc) {
    if (!m->seal) return ST_OK;
    if (!strncmp(cc->address, "http://", 7) && !str_is_loopback(str_of(host)))
        log_event(LOG_WARN, "server.cluster",
                  "why=\"models and passes of other nodes cross the network unencrypted: "
                  "--tls-cert, or cluster_address of a proxy with TLS\"");
    RETURN_IF_ERR(fetcher_new(l, &m->fetcher));
    cc->seal = m->seal;
    cc->fetcher = m->fetcher;
    return node_auth(c, &cc->auth);
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
                                .nats_replicas = (int)c->cluster_replicas,
                                .records = m->seal && c->jobs_replicas,
                                .tenants = sched_tenants(api->sched),
                                .models = sched_models(api->sched),
                                .store = sched_store(api->sched),
                                .journal = sched_journal(api->sched),
                                .max_model_bytes = c->max_model_bytes,
                                .max_reply_bytes = c->max_message_bytes,
                                .describe = describe,
                                .room = on_room,
                                .ctx = api};
    if (!beat_address_fits(cc.address))
        return st_invalid("cluster_address: '%.200s' is none; say how others reach this server",
                          cc.address);
    RETURN_IF_ERR(start_calls(m, l, c, host, &cc));

    status_t st = cluster_new(&cc, &m->cluster);
    fetch_auth_unref(cc.auth);
    if (st) return st;
    api->cluster = m->cluster;
    sched_set_cluster(api->sched, cluster_pull(m->cluster), cluster_forward(m->cluster));
    if (m->seal) buffers_set_node(sched_buffers(api->sched), node);
    m->suites = api->suites;
    suites_join(m->suites, cluster_tickets(m->cluster), cluster_attempts(m->cluster),
                cluster_use(m->cluster));
    suites_move(m->suites, &(struct suites_fleet){m->cluster, cluster_registers(m->cluster),
                                                  cluster_asks(m->cluster)});
    return ST_OK;
}
void membership_stop(struct membership *m) {
    if (m->suites) suites_move(m->suites, NULL);
    cluster_stop(m->cluster);
    if (m->suites) suites_join(m->suites, NULL, NULL, NULL);
    fetcher_stop(m->fetcher);
}
void membership_close(struct membership *m) {
    cluster_free(m->cluster);
    fetcher_free(m->fetcher);
    seal_free(m->seal);
}
