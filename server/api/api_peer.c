// SPDX-License-Identifier: Apache-2.0
// What the servers of a fleet ask each other (docs/cluster.md): who one is, an executable by its
// key and who compiles it. Callers have the scope `peer`: they are trusted with the executables of
// all tenants. RunJob is between nodes of a cluster: who calls proves by its secret that the job's
// home gives it, for a place that this node offered.
//
//   FetchExecutable: pool: here? -> the bundle
//                              -> not, and nobody was to compile it: the asker is
//                              -> not, another is: wait until that ends, or wait_ms -> again
#include <string.h>

#include "base/clock.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/cluster/capacity.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/pull.h"
#include "scheduler/loop.h"
#include "scheduler/remote/peers.h"
#include "scheduler/remote/remotes.h"
#include "scheduler/suite/suite.h"
#include "server/api/api_cache.h"

// Answers at once where there are no peers: a server alone keeps nothing in mind.
static struct remotes *remotes_of(const struct call *c) {
    return sched_cfg(c->api->sched)->remotes;
}
static struct peers *peers_of(const struct call *c) {
    struct remotes *r = remotes_of(c);
    return r ? remotes_peers(r) : NULL;
}

// ---- who we are

status_t api_get_peer(struct call *c) {
    struct arena *a = &c->arena;
    struct peers *p = peers_of(c);
    Hlod__V1__Peer *m = message_new(a, &hlod__v1__peer__descriptor);
    m->node = (char *)(uintptr_t)(p ? peers_node(p) : "alone");
    m->life = (char *)(uintptr_t)(p ? peers_life(p) : "alone");
    m->version = (char *)(uintptr_t)api_version_text();
    m->targets = capacity_targets(sched_pool(c->api->sched), a, &m->n_targets);
    return call_reply(c, &m->base);
}

// ---- an executable

struct asked {              // cache_work's own
    struct claim_wait wait; // while another compiles it
    struct loop_timer *timer;
    int64_t until_ns;
};
static status_t again(struct cache_work *w);

static status_t fetch_work(struct cache_work *w) {
    struct exchange x = cache_exchange(w);
    Hlod__V1__FetchExecutableReply *m =
        message_new(&w->c->arena, &hlod__v1__fetch_executable_reply__descriptor);
    w->reply = &m->base;
    return st_unless(ST_NOT_FOUND, exchange_give(&x, &w->c->arena, w->digest, &m->bundle));
}
static void leave(struct cache_work *w) {
    struct asked *own = w->own;
    claims_leave(&own->wait);
    loop_timer_free(own->timer);
    own->timer = NULL;
}
static void on_cancel(struct call *c) {
    leave(c->handler);
}
static void on_free(struct call *c) {
    leave(c->handler);
}
static void ended(void *ctx) {
    struct cache_work *w = ctx;
    leave(w);
    call_fail(w->c, again(w));
}
static void waited(void *ctx) {
    struct cache_work *w = ctx;
    leave(w);
    call_fail(w->c, call_reply(w->c, w->reply));
}
static status_t fetched(struct cache_work *w) {
    const Hlod__V1__FetchExecutableRequest *q = call_request(w->c);
    Hlod__V1__FetchExecutableReply *m = (Hlod__V1__FetchExecutableReply *)w->reply;
    struct remotes *r = remotes_of(w->c);
    struct asked *own = w->own;
    const char *node = NULL;
    if (m->bundle || !*q->node || !peers_of(w->c)) return call_reply(w->c, w->reply);
    if (remotes_claim(r, w->digest, q->node, q->life, &node)) {
        m->granted = true;
        return call_reply(w->c, w->reply);
    }
    m->compiles = arena_strdup(&w->c->arena, node);
    if (clock_ns() >= own->until_ns) return call_reply(w->c, w->reply);
    own->wait = (struct claim_wait){.ended = ended, .ctx = w};
    remotes_wait(r, w->digest, &own->wait);
    own->timer = loop_timer_new(sched_loop(w->c->api->sched), waited, w);
    loop_timer_at(own->timer, own->until_ns);
    return ST_OK;
}
static status_t again(struct cache_work *w) {
    return cache_go(w);
}
status_t api_fetch(struct call *c) {
    enum { MOST_MS = 30000 };
    const Hlod__V1__FetchExecutableRequest *q = call_request(c);
    struct cache_work *w = cache_new(c, fetch_work);
    struct asked *own = arena_new_of(&c->arena, struct asked);
    own->until_ns = clock_ns() + clock_of_ms(q->wait_ms < MOST_MS ? q->wait_ms : MOST_MS);
    w->own = own;
    w->then = fetched;
    c->handler = w;
    c->on_cancel = on_cancel;
    c->on_free = on_free;
    bool asks = *q->node || *q->life; // for itself
    if (asks && (!peer_name_fits(q->node) || !peer_name_fits(q->life)))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "node and life: who asks");
    return cache_go_for(w, q->digest);
}

static status_t offer_work(struct cache_work *w) {
    struct exchange x = cache_exchange(w);
    struct arrival how = {.from = "peers", .wanted = &w->digest};
    Hlod__V1__ExecutableInfo *kept;
    Hlod__V1__ImportExecutableReply *m =
        message_new(&w->c->arena, &hlod__v1__import_executable_reply__descriptor);
    bool existed;
    RETURN_IF_ERR(exchange_take(&x, &w->c->arena, &how, call_request(w->c), &existed, &kept));
    m->digest = kept->digest;
    m->existed = existed;
    w->reply = &m->base;
    return ST_OK;
}
static status_t offered(struct cache_work *w) {
    remotes_claim_ends(remotes_of(w->c), w->digest, NULL);
    return call_reply(w->c, w->reply);
}
MUST_CHECK static status_t no_peers(void) {
    return st_new(ST_FAILED_PRECONDITION, "this server has no peers: --cache-remote names none");
}
status_t api_offer(struct call *c) {
    const Hlod__V1__ExecutableBundle *q = call_request(c);
    if (!peers_of(c)) return no_peers();
    if (!q->info) return st_because(ST_INVALID_ARGUMENT, IMPORT_REFUSED, "the bundle is not whole");
    RETURN_IF_ERR(cache_fits(c, q->info));
    struct cache_work *w = cache_new(c, offer_work);
    w->then = offered;
    return cache_go_for(w, q->info->digest);
}
status_t api_release(struct call *c) {
    const Hlod__V1__ReleaseExecutableRequest *q = call_request(c);
    struct digest key;
    if (!peers_of(c)) return no_peers();
    RETURN_IF_ERR(api_digest(q->digest, "digest", &key));
    remotes_claim_ends(remotes_of(c), key, q->life);
    return call_reply(c, message_new(&c->arena, &hlod__v1__release_executable_reply__descriptor));
}

// ---- a batch job of another node, run here (scheduler/suite/suite_guest.c)

static void job_ended(void *ctx, status_t st, const Hlod__V1__JobOutcome *o, struct str log) {
    struct call *c = ctx;
    c->handler = NULL;
    if (st) {
        call_finish(c, NULL, st);
        return;
    }
    struct arena *a = &c->arena;
    Hlod__V1__RunJobReply *m = message_new(a, &hlod__v1__run_job_reply__descriptor);
    m->outcome = weigh_unpack_in(a, &hlod__v1__job_outcome__descriptor, message_pack(a, &o->base));
    m->log = arena_strndup(a, log.p, log.n);
    call_finish(c, &m->base, m->outcome ? ST_OK : st_internal("an outcome that cannot be read"));
}
static void job_left(struct call *c) {
    suites_guest_cancel(c->handler);
    c->handler = NULL;
}
status_t api_run_job(struct call *c) {
    const Hlod__V1__RunJobRequest *q = call_request(c);
    const struct api *api = c->api;
    Hlod__Cluster__Grant *g;
    if (!api->cluster)
        return st_new(ST_FAILED_PRECONDITION, "this server is in no cluster (--cluster)");
    RETURN_IF_ERR(cluster_take_job(api->cluster, &c->arena, q, &g));
    if (api->auth && strcmp(c->principal.tenant, g->tenant) != 0)
        return st_because(ST_PERMISSION_DENIED, MISSING_SCOPE, "the job is of another tenant");
    c->on_cancel = job_left;
    c->handler = suites_guest(api->suites,
                              &(struct suite_guest_spec){.home = g->home,
                                                         .tenant = g->tenant,
                                                         .job = g->job,
                                                         .attempt = g->attempt,
                                                         .trace = c->trace ? &c->trace->t : NULL,
                                                         .suite = {q->suite.data, q->suite.len},
                                                         .done = job_ended,
                                                         .ctx = c});
    return ST_OK;
}

// ---- bytes of another node's suite, kept here

struct keep {
    struct call *c;
    const Hlod__V1__KeepBlobsRequest *q;
    size_t n;
};
static void keep_next(struct keep *k);
static void kept(void *ctx, status_t st) {
    struct keep *k = ctx;
    if (!call_goes_on(k->c, st)) return;
    keep_next(k);
}
static void keep_next(struct keep *k) {
    struct call *c = k->c;
    struct pull *p = cluster_pull(c->api->cluster);
    struct digest d;
    if (k->n == k->q->n_digests) {
        Hlod__V1__KeepBlobsReply *m =
            message_new(&c->arena, &hlod__v1__keep_blobs_reply__descriptor);
        m->blobs = (int64_t)k->n;
        call_fail(c, call_reply(c, &m->base));
        return;
    }
    memcpy(d.b, k->q->digests[k->n++].data, sizeof d.b);
    c->busy = true;
    pull_get(p, c->principal.tenant, d, k->q->home, kept, k);
}
status_t api_keep_blobs(struct call *c) {
    const Hlod__V1__KeepBlobsRequest *q = call_request(c);
    if (!c->api->cluster || !c->principal.node || !cluster_pull(c->api->cluster) ||
        !cluster_registers(c->api->cluster)) // jobs_replicas
        return st_because(ST_PERMISSION_DENIED, MISSING_SCOPE, "for nodes of its cluster alone");
    if (!peer_name_fits(q->home))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "home: which node has them");
    for (size_t k = 0; k < q->n_digests; k++)
        if (q->digests[k].len != sizeof(struct digest))
            return st_because(ST_INVALID_ARGUMENT, BAD_DIGEST, "digests[%zu]", k);
    struct keep *k = arena_new_of(&c->arena, struct keep);
    *k = (struct keep){.c = c, .q = q};
    keep_next(k);
    return ST_OK;
}
