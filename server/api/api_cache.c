// SPDX-License-Identifier: Apache-2.0
// The cache: list, get, remove, explain, statistics. Store and journal block, so each request is
// one piece of pool work that fills a reply in the call's arena.
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "base/vec.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/job/key.h"
#include "scheduler/records/owners.h"
#include "scheduler/records/tuning.h"
#include "scheduler/remote/remotes.h"
#include "server/api/api_cache.h"

static status_t work(void *arg) {
    struct cache_work *w = arg;
    return w->work(w);
}
static status_t done(void *arg) {
    struct cache_work *w = arg;
    return w->then ? w->then(w) : call_reply(w->c, w->reply);
}
static void forget_trust(void *t) {
    trust_unref(t);
}
struct cache_work *cache_new(struct call *c, status_t (*fn)(struct cache_work *)) {
    struct cache_work *w = arena_new_of(&c->arena, struct cache_work);
    *w = (struct cache_work){.c = c,
                             .store = sched_store(c->api->sched),
                             .journal = sched_journal(c->api->sched),
                             .trust = trust_ref(sched_trust(c->api->sched)),
                             .owner = api_sees_all(c) ? NULL : c->principal.tenant,
                             .work = fn};
    arena_link(&c->arena, forget_trust, w->trust);
    return w;
}
status_t cache_go(struct cache_work *w) {
    return call_work(w->c, work, done, w);
}
status_t cache_go_for(struct cache_work *w, const char *digest) {
    RETURN_IF_ERR(api_digest(digest, "digest", &w->digest));
    return cache_go(w);
}

static Hlod__V1__ExecutableInfo *unpack(struct call *c, struct span rec) {
    return weigh_unpack_in(&c->arena, &hlod__v1__executable_info__descriptor, rec);
}

// What is shown of an executable: with the names of the model it was first compiled from, or the
// compiler's own where that is forgotten. Reads the journal: not from inside a journal_list.
// A tenant's executable came by its own model, whoever compiled the same graph first.
static void by_own_model(struct cache_work *w, struct digest key, Hlod__V1__ExecutableInfo *x) {
    struct digest source;
    status_t st = owner_read(w->journal, w->owner, key, &source);
    free(x->source_digest);
    free(x->weights_digest);
    x->source_digest = x->weights_digest = (char *)protobuf_c_empty_string;
    if (!st && !digest_is_zero(source) && !(x->source_digest = strdup(digest_to_hex(source).z)))
        abort();
    st_drop(st);
}
struct names { // of the model met last: lists have many of one
    Hlod__Wire__IngestReply *of;
    struct digest source;
};
static Hlod__V1__ExecutableInfo *named(struct cache_work *w, struct names *n,
                                       Hlod__V1__ExecutableInfo *x) {
    struct arena *a = &w->c->arena;
    struct digest source, key;
    struct span rec;
    bool known = digest_parse(str_of(x->digest), &key);
    x->pinned = known && store_pinned(w->store, STORE_EXECUTABLE, key);
    if (w->owner && known) by_own_model(w, key, x);
    if (!digest_parse(str_of(x->source_digest), &source)) return x;
    if (!n->of || !digest_eq(source, n->source)) {
        status_t st = journal_get(w->journal, JOURNAL_SOURCE, source, a, &rec);
        n->of = st ? NULL : weigh_unpack_in(a, &hlod__wire__ingest_reply__descriptor, rec);
        n->source = source;
        st_drop(st);
        if (!n->of) return x;
    }
    Hlod__V1__ExecutableInfo *shown = arena_dup(a, x, sizeof *x);
    shown->signature = key_signature(a, x, n->of->signature);
    return shown;
}

// ---- list

struct listing {
    struct cache_work *w;
    VEC(Hlod__V1__ExecutableInfo *) all;
};
static void add_row(void *ctx, struct digest key, struct span rec) {
    struct listing *l = ctx;
    if (!store_has(l->w->store, STORE_EXECUTABLE, key))
        return; // evicted; its record may serve a later compile
    Hlod__V1__ExecutableInfo *x = unpack(l->w->c, rec);
    if (!x) return;
    avec_push(&l->w->c->arena, &l->all, x);
}
// Is it the caller's to see? Reads the journal.
static bool owned(struct cache_work *w, struct digest d) {
    struct digest source;
    status_t st = w->owner ? owner_read(w->journal, w->owner, d, &source) : ST_OK;
    bool yes = !st;
    st_drop(st);
    return yes;
}
static size_t keep_own(struct cache_work *w, Hlod__V1__ExecutableInfo **v, size_t n, size_t most) {
    size_t kept = 0;
    struct digest d;
    for (size_t i = 0; i < n && kept < most; i++)
        if (digest_parse(str_of(v[i]->digest), &d) && owned(w, d)) v[kept++] = v[i];
    return kept;
}
static status_t list_work(struct cache_work *w) {
    struct listing l = {.w = w};
    struct names n = {0};
    uint32_t limit = ((Hlod__V1__ListExecutablesRequest *)w->c->request)->limit;
    size_t most = limit ? limit : 1000;
    RETURN_IF_ERR(
        journal_list(w->journal, JOURNAL_EXECUTABLE, w->owner ? -1 : (int64_t)most, add_row, &l));
    if (w->owner) l.all.n = keep_own(w, l.all.v, l.all.n, most);
    Hlod__V1__ListExecutablesReply *m =
        message_new(&w->c->arena, &hlod__v1__list_executables_reply__descriptor);
    for (size_t i = 0; i < l.all.n; i++)
        l.all.v[i] = named(w, &n, l.all.v[i]);
    m->executables = l.all.v;
    m->n_executables = l.all.n;
    w->reply = &m->base;
    return ST_OK;
}
status_t api_list(struct call *c) {
    return cache_go(cache_new(c, list_work));
}

// ---- get, remove

MUST_CHECK static status_t no_such(struct digest d) {
    return st_because(ST_NOT_FOUND, EXECUTABLE_NOT_FOUND, "no executable %s here",
                      digest_to_hex(d).z);
}
status_t cache_record(struct cache_work *w, struct digest d, Hlod__V1__ExecutableInfo **out) {
    struct span rec;
    status_t st = journal_get(w->journal, JOURNAL_EXECUTABLE, d, &w->c->arena, &rec);
    if (st && st_code(st) != ST_NOT_FOUND) return st;
    bool there = !st && store_has(w->store, STORE_EXECUTABLE, d) && owned(w, d);
    st_drop(st);
    *out = there ? unpack(w->c, rec) : NULL;
    return *out ? ST_OK : no_such(d);
}
static status_t get_work(struct cache_work *w) {
    Hlod__V1__ExecutableInfo *x;
    struct names n = {0};
    RETURN_IF_ERR(cache_record(w, w->digest, &x));
    x->tuning = tuning_read(w->store, w->digest, x); // x's from now on
    w->reply = &named(w, &n, x)->base;
    return ST_OK;
}
status_t api_get(struct call *c) {
    return cache_go_for(cache_new(c, get_work),
                        ((Hlod__V1__GetExecutableRequest *)c->request)->digest);
}
static status_t remove_work(struct cache_work *w) {
    Hlod__V1__RemoveExecutableRequest *q = call_request(w->c);
    if (!store_has(w->store, STORE_EXECUTABLE, w->digest)) return no_such(w->digest);
    if (store_pinned(w->store, STORE_EXECUTABLE, w->digest))
        return st_new(ST_FAILED_PRECONDITION, "executable %s is pinned", q->digest);
    RETURN_IF_ERR(store_remove(w->store, STORE_EXECUTABLE, w->digest));
    st_drop(store_remove(w->store, STORE_TUNING, w->digest)); // few have one
    Hlod__V1__RemoveExecutableReply *m =
        message_new(&w->c->arena, &hlod__v1__remove_executable_reply__descriptor);
    m->digest = q->digest;
    w->reply = &m->base;
    return journal_remove(w->journal, JOURNAL_EXECUTABLE, w->digest);
}
static status_t removed(struct cache_work *w) {
    sched_forget_executable(w->c->api->sched, w->digest);
    return call_reply(w->c, w->reply);
}
status_t api_remove(struct call *c) {
    struct cache_work *w = cache_new(c, remove_work);
    w->then = removed;
    return cache_go_for(w, ((Hlod__V1__RemoveExecutableRequest *)c->request)->digest);
}

// ---- explain

static status_t explain_work(struct cache_work *w) {
    Hlod__V1__ExplainCacheRequest *q = call_request(w->c);
    struct digest da, db;
    Hlod__V1__ExecutableInfo *a, *b;
    RETURN_IF_ERR(api_digest(q->a, "a", &da));
    RETURN_IF_ERR(cache_record(w, da, &a));
    Hlod__V1__ExplainCacheReply *m =
        message_new(&w->c->arena, &hlod__v1__explain_cache_reply__descriptor);
    w->reply = &m->base;
    if (!*q->b) {
        struct names n = {0};
        m->executable = named(w, &n, a);
        return ST_OK;
    }
    RETURN_IF_ERR(api_digest(q->b, "b", &db));
    RETURN_IF_ERR(cache_record(w, db, &b));
    struct key_parts pa = key_parts_of(&w->c->arena, a), pb = key_parts_of(&w->c->arena, b);
    const char *va = "", *vb = "", *name = key_explain(&w->c->arena, &pa, &pb, &va, &vb);
    m->same = !name;
    m->component = (char *)(name ? name : "");
    m->a = (char *)va;
    m->b = (char *)vb;
    return ST_OK;
}
status_t api_explain(struct call *c) {
    return cache_go(cache_new(c, explain_work));
}

// ---- statistics

static void count_file(void *ctx, UNUSED enum store_kind kind, UNUSED struct digest key,
                       UNUSED int64_t bytes, UNUSED int64_t mtime, UNUSED bool pinned) {
    ++*(int64_t *)ctx;
}
struct held { // in the store, to be asked whose it is
    struct arena *a;
    VEC(struct held_file {
        struct digest key;
        int64_t bytes;
    })
    all;
};
static void hold(struct held *h, struct digest key, int64_t bytes) {
    struct held_file f = {key, bytes};
    avec_push(h->a, &h->all, f);
}
static void hold_file(void *ctx, UNUSED enum store_kind kind, struct digest key, int64_t bytes,
                      UNUSED int64_t mtime, UNUSED bool pinned) {
    hold(ctx, key, bytes);
}
static void hold_row(void *ctx, struct digest key, UNUSED struct span rec) {
    hold(ctx, key, 0);
}
static int64_t count_own(struct cache_work *w, const struct held *h, int64_t *bytes) {
    int64_t n = 0;
    for (size_t k = 0; k < h->all.n; k++) {
        if (!owned(w, h->all.v[k].key)) continue;
        n++;
        *bytes += h->all.v[k].bytes;
    }
    return n;
}
// Of one tenant: its models and executables. What the whole server found and compiled tells what
// the others do.
static status_t own_stats_work(struct cache_work *w) {
    Hlod__V1__CacheStatsReply *m =
        message_new(&w->c->arena, &hlod__v1__cache_stats_reply__descriptor);
    struct held files = {.a = &w->c->arena}, rows = {.a = &w->c->arena};
    int64_t none = 0;
    RETURN_IF_ERR(store_list(w->store, STORE_EXECUTABLE, hold_file, &files));
    RETURN_IF_ERR(journal_list(w->journal, JOURNAL_SOURCE, -1, hold_row, &rows));
    m->executables = count_own(w, &files, &m->bytes);
    m->models = count_own(w, &rows, &none);
    m->budget_bytes = sched_cfg(w->c->api->sched)->cache_budget_bytes;
    w->reply = &m->base;
    return ST_OK;
}
static status_t stats_work(struct cache_work *w) {
    Hlod__V1__CacheStatsReply *m =
        message_new(&w->c->arena, &hlod__v1__cache_stats_reply__descriptor);
    RETURN_IF_ERR(store_list(w->store, STORE_EXECUTABLE, count_file, &m->executables));
    m->bytes = store_bytes(w->store);
    m->budget_bytes = sched_cfg(w->c->api->sched)->cache_budget_bytes;
    m->models = journal_count(w->journal, JOURNAL_SOURCE);
    m->hits = metric_get(M_CACHE_HITS);
    m->misses = metric_get(M_CACHE_MISSES);
    m->quarantined = metric_get(M_CACHE_QUARANTINED);
    m->compiles = metric_get(M_COMPILES);
    m->joins = metric_get(M_COMPILE_JOINS);
    w->reply = &m->base;
    return ST_OK;
}
static status_t stats_done(struct cache_work *w) {
    struct remotes *r = sched_cfg(w->c->api->sched)->remotes;
    if (r) remotes_describe(r, &w->c->arena, (Hlod__V1__CacheStatsReply *)w->reply);
    return call_reply(w->c, w->reply);
}
status_t api_cache(struct call *c) {
    // Upkeep of the whole cache takes the scope `cache`, whoever brought what.
    bool whole = api_sees_all(c) || c->principal.scopes & SCOPE_CACHE;
    struct cache_work *w = cache_new(c, whole ? stats_work : own_stats_work);
    if (whole) w->then = stats_done;
    return cache_go(w);
}
