// SPDX-License-Identifier: Apache-2.0
// Executables between daemons, as users move them. What comes in is object code: its digest says
// that it is what the other side had, not that the other side is honest. So it takes a switch of
// the operator's and a scope of the caller's; then everything that can be checked is
// (scheduler/remote/exchange.h), and here that it is of this compiler build and for a target here.
#include <string.h>

#include "proto/frame.h"
#include "proto/message.h"
#include "scheduler/workers/pool.h"
#include "server/api/api_cache.h"


// ---- export

static status_t export(struct cache_work *w) {
    Hlod__V1__ExecutableInfo *x;
    Hlod__V1__ExecutableBundle *b;
    struct exchange with = cache_exchange(w);
    RETURN_IF_ERR(cache_record(w, w->digest, &x)); // the caller's to see
    RETURN_IF_ERR(exchange_give(&with, &w->c->arena, w->digest, &b));
    w->reply = &b->base;
    return ST_OK;
}
status_t api_export(struct call *c) {
    return cache_go_for(cache_new(c, export),
                        ((Hlod__V1__ExportExecutableRequest *)c->request)->digest);
}

// ---- import

status_t cache_fits(struct call *c, const Hlod__V1__ExecutableInfo *x) {
    struct pool *pool = sched_pool(c->api->sched);
    bool target = false, build = false, any = false;
    for (int i = 0; i < pool_size(pool); i++) {
        const Hlod__Wire__Hello *h = worker_hello(pool_worker(pool, i));
        if (!h || pool_place(pool_worker(pool, i)).role != ROLE_DEVICE) continue;
        any = true;
        target = target || !strcmp(h->target_id, x->target_id);
        build = build || (!strcmp(h->build_id, x->build_id) && h->kernel_abi == x->kernel_abi);
    }
    if (!any) return st_because(ST_UNAVAILABLE, NO_WORKER, "no device worker has started yet");
    if (build && target) return ST_OK;
    return st_because(ST_FAILED_PRECONDITION, IMPORT_REFUSED, "it is made %s: '%.200s'",
                      build ? "for a target that is not here" : "by another compiler build",
                      build ? x->target_id : x->build_id);
}

static status_t import(struct cache_work *w) {
    struct arena *a = &w->c->arena;
    const struct exchange with = cache_exchange(w);
    struct arrival how = {.from = "import", .wanted = &w->digest, .owner = w->c->principal.tenant};
    Hlod__V1__ExecutableInfo *kept;
    Hlod__V1__ImportExecutableReply *m =
        message_new(a, &hlod__v1__import_executable_reply__descriptor);
    bool existed;
    RETURN_IF_ERR(exchange_take(&with, a, &how, call_request(w->c), &existed, &kept));
    m->digest = kept->digest;
    m->existed = existed;
    w->reply = &m->base;
    return ST_OK;
}
status_t api_import(struct call *c) {
    const Hlod__V1__ExecutableBundle *q = call_request(c);
    if (!c->api->allow_cache_import)
        return st_because(ST_PERMISSION_DENIED, IMPORT_REFUSED,
                          "executables of others are code that would run here: the operator "
                          "allows it with --allow-cache-import");
    if (!q->info) return st_because(ST_INVALID_ARGUMENT, IMPORT_REFUSED, "the bundle is not whole");
    RETURN_IF_ERR(cache_fits(c, q->info));
    return cache_go_for(cache_new(c, import), q->info->digest);
}
