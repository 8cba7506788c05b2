// SPDX-License-Identifier: Apache-2.0
// The cache: list, get, remove, explain, statistics. Store and journal block, so each request is
// one piece of pool work that fills a reply in the call's arena.
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "base/store.h"
#include "base/vec.h"
#include "scheduler/journal.h"
#include "scheduler/key.h"
#include "scheduler/loop.h"
#include "server/api.h"

struct cache_work {
    struct call *c;
    struct store *store;
    struct journal *journal;
    void (*work)(struct cache_work *w);
    struct digest digest;
    uint32_t limit;
    Hlod__Wire__IngestReply *names; // see named
    struct digest names_of;
    struct {
        Hlod__V1__ExecutableInfo **v;
        size_t n, cap;
    } list;
    ProtobufCMessage *reply;
    status_t st;
};

static void work(void *arg) {
    struct cache_work *w = arg;
    w->work(w);
}
static void done(void *arg) {
    struct cache_work *w = arg;
    struct call *c = w->c;
    c->busy = false;
    if (c->finished) {
        st_drop(w->st);
        call_released(c);
        return;
    }
    if (!w->st && c->row->handler == api_remove) sched_forget_executable(c->api->sched, w->digest);
    call_finish(c, w->reply, w->st);
}
static struct cache_work *new_work(struct call *c, void (*fn)(struct cache_work *)) {
    struct cache_work *w = arena_new_of(&c->arena, struct cache_work);
    *w = (struct cache_work){.c = c,
                             .store = sched_store(c->api->sched),
                             .journal = sched_journal(c->api->sched),
                             .work = fn};
    return w;
}
static void go(struct cache_work *w) {
    w->c->busy = true;
    loop_work(sched_loop(w->c->api->sched), work, done, w);
}

static void free_info(void *m) {
    hlod__v1__executable_info__free_unpacked(m, NULL);
}
static Hlod__V1__ExecutableInfo *unpack(struct call *c, struct span rec) {
    Hlod__V1__ExecutableInfo *x = hlod__v1__executable_info__unpack(NULL, rec.n, rec.p);
    if (x) arena_link(&c->arena, free_info, x);
    return x;
}

// What is shown of an executable: with the names of the model it was first compiled from, or the
// compiler's own where that is forgotten. Reads the journal: not from inside a journal_list.
static void free_ingest(void *m) {
    hlod__wire__ingest_reply__free_unpacked(m, NULL);
}
static Hlod__V1__ExecutableInfo *named(struct cache_work *w, Hlod__V1__ExecutableInfo *x) {
    struct arena *a = &w->c->arena;
    struct digest source;
    struct span rec;
    if (!digest_parse(str_of(x->source_digest), &source)) return x;
    if (!w->names || !digest_eq(source, w->names_of)) { // lists have many of one model
        status_t st = journal_get(w->journal, JOURNAL_SOURCE, source, a, &rec);
        w->names = st ? NULL : hlod__wire__ingest_reply__unpack(NULL, rec.n, rec.p);
        w->names_of = source;
        st_drop(st);
        if (!w->names) return x;
        arena_link(a, free_ingest, w->names);
    }
    Hlod__V1__ExecutableInfo *shown = arena_dup(a, x, sizeof *x);
    shown->signature = key_signature(a, x->signature, w->names->signature);
    return shown;
}

// ---- list

static void add_row(void *ctx, struct digest key, struct span rec) {
    struct cache_work *w = ctx;
    if (!store_has(w->store, STORE_EXECUTABLE, key))
        return; // evicted; its record may serve a later compile
    Hlod__V1__ExecutableInfo *x = unpack(w->c, rec);
    if (!x) return;
    avec_push(&w->c->arena, &w->list, x);
}
static void list_work(struct cache_work *w) {
    w->st = journal_list(w->journal, JOURNAL_EXECUTABLE, w->limit ? w->limit : 1000, add_row, w);
    Hlod__V1__ListExecutablesReply *m = arena_new_of(&w->c->arena, Hlod__V1__ListExecutablesReply);
    hlod__v1__list_executables_reply__init(m);
    for (size_t i = 0; i < w->list.n; i++)
        w->list.v[i] = named(w, w->list.v[i]);
    m->executables = w->list.v;
    m->n_executables = w->list.n;
    w->reply = &m->base;
}
void api_list(struct call *c) {
    struct cache_work *w = new_work(c, list_work);
    w->limit = ((Hlod__V1__ListExecutablesRequest *)c->request)->limit;
    go(w);
}

// ---- get, remove

static status_t no_such(const char *hex) MUST_CHECK;
static status_t no_such(const char *hex) {
    return st_reason(st_new(ST_NOT_FOUND, "no executable %s here", hex),
                     HLOD__V1__REASON__REASON_EXECUTABLE_NOT_FOUND);
}
static status_t read_record(struct cache_work *w, struct digest d, const char *hex,
                            Hlod__V1__ExecutableInfo **out) {
    struct span rec;
    status_t st = journal_get(w->journal, JOURNAL_EXECUTABLE, d, &w->c->arena, &rec);
    if (st && st_code(st) != ST_NOT_FOUND) return st;
    bool there = !st && store_has(w->store, STORE_EXECUTABLE, d);
    st_drop(st);
    *out = there ? unpack(w->c, rec) : NULL;
    return *out ? ST_OK : no_such(hex);
}
static void get_work(struct cache_work *w) {
    Hlod__V1__ExecutableInfo *x = NULL;
    w->st =
        read_record(w, w->digest, ((Hlod__V1__GetExecutableRequest *)w->c->request)->digest, &x);
    w->reply = x ? &named(w, x)->base : NULL;
}
void api_get(struct call *c) {
    struct cache_work *w = new_work(c, get_work);
    status_t st =
        api_digest(((Hlod__V1__GetExecutableRequest *)c->request)->digest, "digest", &w->digest);
    if (st)
        call_finish(c, NULL, st);
    else
        go(w);
}
static void remove_work(struct cache_work *w) {
    Hlod__V1__RemoveExecutableRequest *q = (Hlod__V1__RemoveExecutableRequest *)w->c->request;
    bool there = store_has(w->store, STORE_EXECUTABLE, w->digest);
    w->st = there ? store_remove(w->store, STORE_EXECUTABLE, w->digest) : no_such(q->digest);
    if (!w->st) w->st = journal_remove(w->journal, JOURNAL_EXECUTABLE, w->digest);
    Hlod__V1__RemoveExecutableReply *m =
        arena_new_of(&w->c->arena, Hlod__V1__RemoveExecutableReply);
    hlod__v1__remove_executable_reply__init(m);
    m->digest = q->digest;
    w->reply = &m->base;
}
void api_remove(struct call *c) {
    struct cache_work *w = new_work(c, remove_work);
    status_t st =
        api_digest(((Hlod__V1__RemoveExecutableRequest *)c->request)->digest, "digest", &w->digest);
    if (st)
        call_finish(c, NULL, st);
    else
        go(w);
}

// ---- explain

static struct key_parts parts_of(struct arena *a, const Hlod__V1__ExecutableInfo *x) {
    struct key_parts p = {.options = x->options,
                          .target_id = x->target_id,
                          .build_id = x->build_id,
                          .kernel_abi = x->kernel_abi};
    (void)digest_parse(str_of(x->program_digest), &p.program);
    struct strbuf b = {0};
    for (size_t i = 0; i < x->n_bindings; i++)
        strbuf_printf(&b, "%s%s", i ? ";" : "", x->bindings[i]);
    p.bindings = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    return p;
}
static void explain_work(struct cache_work *w) {
    Hlod__V1__ExplainCacheRequest *q = (Hlod__V1__ExplainCacheRequest *)w->c->request;
    struct digest da, db;
    Hlod__V1__ExecutableInfo *a, *b;
    w->st = api_digest(q->a, "a", &da);
    if (!w->st) w->st = api_digest(q->b, "b", &db);
    if (!w->st) w->st = read_record(w, da, q->a, &a);
    if (!w->st) w->st = read_record(w, db, q->b, &b);
    if (w->st) return;
    Hlod__V1__ExplainCacheReply *m = arena_new_of(&w->c->arena, Hlod__V1__ExplainCacheReply);
    hlod__v1__explain_cache_reply__init(m);
    struct key_parts pa = parts_of(&w->c->arena, a), pb = parts_of(&w->c->arena, b);
    const char *va = "", *vb = "", *name = key_explain(&w->c->arena, &pa, &pb, &va, &vb);
    m->same = !name;
    m->component = (char *)(name ? name : "");
    m->a = (char *)va;
    m->b = (char *)vb;
    w->reply = &m->base;
}
void api_explain(struct call *c) {
    go(new_work(c, explain_work));
}

// ---- statistics

static void count_file(void *ctx, enum store_kind kind, struct digest key, int64_t bytes,
                       int64_t mtime, bool pinned) {
    (void)kind, (void)key, (void)bytes, (void)mtime, (void)pinned;
    ++*(int64_t *)ctx;
}
static void stats_work(struct cache_work *w) {
    Hlod__V1__CacheStatsReply *m = arena_new_of(&w->c->arena, Hlod__V1__CacheStatsReply);
    hlod__v1__cache_stats_reply__init(m);
    w->st = store_list(w->store, STORE_EXECUTABLE, count_file, &m->executables);
    m->bytes = store_bytes(w->store);
    m->budget_bytes = sched_cfg(w->c->api->sched)->cache_budget_bytes;
    m->models = journal_count(w->journal, JOURNAL_SOURCE);
    m->hits = metric_get(M_CACHE_HITS);
    m->misses = metric_get(M_CACHE_MISSES);
    m->quarantined = metric_get(M_CACHE_QUARANTINED);
    m->compiles = metric_get(M_COMPILES);
    m->joins = metric_get(M_COMPILE_JOINS);
    w->reply = &m->base;
}
void api_cache(struct call *c) {
    go(new_work(c, stats_work));
}
