// SPDX-License-Identifier: Apache-2.0
// Executables between daemons. What comes in is object code: its digest says that it is what the
// other side had, not that the other side is honest. So it takes a switch of the operator's and a
// scope of the caller's; then everything that can be checked is: the key follows from what the
// record says, the artefact says the same, both are of this compiler build and for a target here;
// and, with a cache key, that a daemon which has it vouches for both.
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "scheduler/records/artifact.h"
#include "scheduler/records/owners.h"
#include "scheduler/workers/pool.h"
#include "server/api/api_cache.h"
#include "server/cache_key.h"

// ---- export

static status_t export(struct cache_work *w) {
    struct arena *a = &w->c->arena;
    Hlod__V1__ExecutableBundle *m = message_new(a, &hlod__v1__executable_bundle__descriptor);
    struct span bytes;
    RETURN_IF_ERR(cache_record(w, w->digest, &m->info));
    RETURN_IF_ERR(store_read(w->store, STORE_EXECUTABLE, w->digest, a, &bytes));
    m->artifact = (ProtobufCBinaryData){bytes.n, (uint8_t *)(uintptr_t)bytes.p};
    m->artifact_digest = api_hex(a, sha256_of(bytes.p, bytes.n));
    const struct cache_key *key = w->c->api->cache_key;
    if (key && !m->info->unsigned_import) { // else it would vouch for what it does not know
        struct digest d = cache_key_sign(key, m);
        m->hmac = (ProtobufCBinaryData){sizeof d.b, arena_dup(a, d.b, sizeof d.b)};
    }
    w->reply = &m->base;
    return ST_OK;
}
status_t api_export(struct call *c) {
    return cache_go_for(cache_new(c, export),
                        ((Hlod__V1__ExportExecutableRequest *)c->request)->digest);
}

// ---- import

// A device here that it is made for, with the compiler that made it.
static status_t fits(struct call *c, const Hlod__V1__ExecutableInfo *x) {
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

MUST_CHECK static status_t refused(const char *what) {
    return st_because(ST_INVALID_ARGUMENT, IMPORT_REFUSED, "%s", what);
}
static status_t import(struct cache_work *w) {
    const Hlod__V1__ExecutableBundle *q = call_request(w->c);
    struct key_parts parts = cache_parts(&w->c->arena, q->info);
    struct span bytes = {q->artifact.data, q->artifact.len};
    struct digest said;
    Hlod__V1__ImportExecutableReply *m =
        message_new(&w->c->arena, &hlod__v1__import_executable_reply__descriptor);
    m->digest = q->info->digest;
    w->reply = &m->base;

    if (!digest_eq(key_of(&parts), w->digest))
        return refused("the digest does not follow from program, shapes, options, target and "
                       "compiler: the record was changed");
    if (!digest_parse(str_of(q->artifact_digest), &said) ||
        !digest_eq(said, sha256_of(bytes.p, bytes.n)))
        return refused("the artefact does not have its digest");

    const struct cache_key *key = w->c->api->cache_key;
    if (key)
        RETURN_IF_ERR(st_reason(cache_key_check(key, q), HLOD__V1__REASON__REASON_IMPORT_REFUSED));
    RETURN_IF_ERR(
        st_reason(artifact_check(bytes, q->info), HLOD__V1__REASON__REASON_IMPORT_REFUSED));

    Hlod__V1__ExecutableInfo *old;
    // The caller's, but with no model of it: whose that may be used is another matter.
    RETURN_IF_ERR(owner_write(w->journal, w->c->principal.tenant, w->digest, (struct digest){0}));
    status_t st = cache_record(w, w->digest, &old);
    m->existed = !st;
    if (st_code(st) != ST_NOT_FOUND) return st; // one that was made here is never replaced
    st_drop(st);
    RETURN_IF_ERR(store_put(w->store, STORE_EXECUTABLE, w->digest, bytes.p, bytes.n, true));
    q->info->pinned = false;
    q->info->unsigned_import = !key;
    return journal_put_message(w->journal, JOURNAL_EXECUTABLE, w->digest, parts.program,
                               &q->info->base);
}
status_t api_import(struct call *c) {
    const Hlod__V1__ExecutableBundle *q = call_request(c);
    if (!c->api->allow_cache_import)
        return st_because(ST_PERMISSION_DENIED, IMPORT_REFUSED,
                          "executables of others are code that would run here: the operator "
                          "allows it with --allow-cache-import");
    if (!q->info || !q->artifact.len || !q->info->signature)
        return refused("the bundle is not whole");
    RETURN_IF_ERR(fits(c, q->info));
    return cache_go_for(cache_new(c, import), q->info->digest);
}
