// SPDX-License-Identifier: Apache-2.0
// What keeps the cache sound and small: verify, pin, collect.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"
#include "proto/message.h"
#include "scheduler/records/blobs.h"
#include "scheduler/records/pins.h"
#include "scheduler/suite/journal_jobs.h"
#include "scheduler/suite/suite.h"
#include "server/api/api_cache.h"
#include "server/api/api_job.h"

// ---- verify

struct verify {
    struct cache_work *w;
    Hlod__V1__VerifyCacheReply *m;
    VEC(struct digest) keys;
    VEC(Hlod__V1__CacheFinding *) found;
};
static void add_key(void *ctx, UNUSED enum store_kind kind, struct digest key, UNUSED int64_t bytes,
                    UNUSED int64_t mtime, UNUSED bool pinned) {
    struct verify *v = ctx;
    avec_push(&v->w->c->arena, &v->keys, key);
}
static void finding(struct verify *v, struct digest key, const char *state, const char *message) {
    struct arena *a = &v->w->c->arena;
    Hlod__V1__CacheFinding *f = message_new(a, &hlod__v1__cache_finding__descriptor);
    f->digest = api_hex(a, key);
    f->state = arena_strdup(a, state);
    f->message = arena_strdup(a, message);
    avec_push(a, &v->found, f);
}
// Opening an entry reads all of it and compares; what does not fit is quarantined there.
static status_t verify_one(struct verify *v, struct digest key) {
    int fd;
    int64_t offset, size;
    Hlod__V1__ExecutableInfo *x;
    status_t st =
        store_open_fd(v->w->store, STORE_EXECUTABLE, key, STORE_CHECK, &fd, &offset, &size);
    v->m->checked++;
    if (st_code(st) == ST_DATA_LOSS) {
        finding(v, key, "damaged", st_message(st));
        st_drop(st);
        return journal_remove(v->w->journal, JOURNAL_EXECUTABLE, key);
    }
    if (st) return st;
    close(fd);
    v->m->bytes += size;
    st = cache_record(v->w, key, &x);
    if (st_code(st) != ST_NOT_FOUND) return st;
    finding(v, key, "forgotten", "a file without a record: it serves the next compile of its key");
    st_drop(st);
    return ST_OK;
}
static status_t verify_blob(struct verify *v, enum store_kind kind, struct digest d) {
    int fd;
    int64_t offset, size;
    status_t st = store_open_fd(v->w->store, kind, d, STORE_CHECK, &fd, &offset, &size);
    v->m->blobs++;
    if (st_code(st) == ST_DATA_LOSS) {
        finding(v, d, "damaged", st_message(st));
        st_drop(st);
        return ST_OK;
    }
    if (st) return st;
    close(fd);
    v->m->bytes += size;
    return ST_OK;
}
// What models and programs were stored as: their bytes are their names.
static status_t verify_blobs(struct verify *v) {
    static const enum store_kind others[] = {STORE_BLOB, STORE_PROGRAM, STORE_TUNING,
                                             STORE_PACKAGE};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        v->keys.n = 0;
        RETURN_IF_ERR(store_list(v->w->store, others[k], add_key, v));
        for (size_t i = 0; i < v->keys.n; i++) // removed meanwhile is fine
            RETURN_IF_ERR(st_unless(ST_NOT_FOUND, verify_blob(v, others[k], v->keys.v[i])));
    }
    return ST_OK;
}
// What is known to be here and has no file. Owners of models and blobs have a row each, in the
// family of its digest; those of executables name a source behind the tenant, and may have been
// evicted.
static bool is_blobs_row(struct span r) {
    return !memchr(r.p, 0, r.n);
}
static void in_blobs(void *ctx, struct digest d, struct span record) {
    struct verify *v = ctx;
    bool again = v->keys.n && digest_eq(v->keys.v[v->keys.n - 1], d);
    if (is_blobs_row(record) && !again && !store_has(v->w->store, STORE_BLOB, d) &&
        !store_has(v->w->store, STORE_EXECUTABLE, d))
        avec_push(&v->w->c->arena, &v->keys, d);
}
static void in_executables(void *ctx, struct digest d, UNUSED struct span record) {
    struct verify *v = ctx;
    if (!store_has(v->w->store, STORE_EXECUTABLE, d)) avec_push(&v->w->c->arena, &v->keys, d);
}
static void in_programs(void *ctx, struct digest d, UNUSED struct span record) {
    struct verify *v = ctx;
    bool again = v->keys.n && digest_eq(v->keys.v[v->keys.n - 1], d);
    if (!again && !store_has(v->w->store, STORE_PROGRAM, d))
        avec_push(&v->w->c->arena, &v->keys, d);
}
static void missing(struct verify *v, const char *what) {
    for (size_t i = 0; i < v->keys.n; i++)
        finding(
            v, v->keys.v[i], "missing",
            arena_printf(&v->w->c->arena, "%s: its file was removed from the data folder", what));
}
// What was found in the sources of a program that is gone: the next use reads one of them again.
struct keys {
    struct arena *a;
    struct digest *v;
    size_t n, cap;
};
static void add_source(void *ctx, struct digest key, UNUSED int64_t used_ns) {
    struct keys *k = ctx;
    avec_push(k->a, k, key);
}
static status_t forget_sources(struct verify *v, struct digest program) {
    struct keys k = {.a = &v->w->c->arena};
    RETURN_IF_ERR(journal_family(v->w->journal, JOURNAL_SOURCE, program, add_source, &k));
    for (size_t i = 0; i < k.n; i++)
        RETURN_IF_ERR(journal_remove(v->w->journal, JOURNAL_SOURCE, k.v[i]));
    return ST_OK;
}
static status_t verify_missing(struct verify *v) {
    struct journal *j = v->w->journal;
    v->keys.n = 0;
    RETURN_IF_ERR(journal_families(j, JOURNAL_BLOB, in_blobs, v));
    missing(v, "blob");
    v->keys.n = 0;
    RETURN_IF_ERR(journal_list(j, JOURNAL_EXECUTABLE, -1, in_executables, v));
    missing(v, "executable");
    for (size_t i = 0; i < v->keys.n; i++) // told once: the next use compiles it
        st_drop(journal_remove(j, JOURNAL_EXECUTABLE, v->keys.v[i]));
    v->keys.n = 0;
    RETURN_IF_ERR(journal_families(j, JOURNAL_SOURCE, in_programs, v));
    missing(v, "program");
    for (size_t i = 0; i < v->keys.n; i++)
        RETURN_IF_ERR(forget_sources(v, v->keys.v[i]));
    return ST_OK;
}
static void damaged_file(void *ctx, const char *file, const char *why) {
    struct verify *v = ctx;
    finding(v, (struct digest){0}, "damaged",
            arena_printf(&v->w->c->arena, "%s: %s; it is made again", file, why));
    v->found.v[v->found.n - 1]->digest = arena_strdup(&v->w->c->arena, file);
}
static void verify_folder(struct verify *v) {
    char said[200];
    store_check_folder(v->w->store, said);
    if (!*said) return;
    finding(v, (struct digest){0}, "damaged", said);
    v->found.v[v->found.n - 1]->digest = (char *)"VERSION";
}
static status_t verify_journals(struct verify *v) {
    RETURN_IF_ERR(journal_verify(v->w->journal, damaged_file, v));
    return journal_jobs_verify(suites_journal(v->w->c->api->suites), damaged_file, v);
}

// The whole cache, whosever: what is wrong with it.
static status_t verify_all(struct verify *v) {
    v->w->owner = NULL;
    RETURN_IF_ERR(store_list(v->w->store, STORE_EXECUTABLE, add_key, v));
    for (size_t i = 0; i < v->keys.n; i++)
        RETURN_IF_ERR(st_unless(ST_NOT_FOUND, verify_one(v, v->keys.v[i]))); // evicted meanwhile
    verify_folder(v);
    RETURN_IF_ERR(verify_blobs(v));
    RETURN_IF_ERR(verify_journals(v));
    return verify_missing(v);
}
static status_t verify_work(struct cache_work *w) {
    const Hlod__V1__VerifyCacheRequest *q = call_request(w->c);
    struct verify v = {.w = w,
                       .m = message_new(&w->c->arena, &hlod__v1__verify_cache_reply__descriptor)};
    w->own = v.m;
    status_t st = *q->digest ? verify_one(&v, w->digest) : verify_all(&v);
    for (size_t i = 0; i < v.found.n; i++)
        if (strcmp(v.found.v[i]->state, "forgotten"))
            log_event(LOG_ERROR, "cache.damaged", "digest=%s why=\"%s\"", v.found.v[i]->digest,
                      v.found.v[i]->message);
    v.m->findings = v.found.v;
    v.m->n_findings = v.found.n;
    w->reply = &v.m->base;
    return st;
}

static status_t recompiled(struct call *c, const struct job_result *r,
                           const ProtobufCMessage **out) {
    struct verify v = {.w = c->state, .m = ((struct cache_work *)c->state)->own};
    if (*r->verify.differs)
        finding(&v, v.w->digest, "differs",
                arena_printf(&c->arena, "a new compile of it differs first in '%s'",
                             r->verify.differs));
    v.m->recompiled = !*r->verify.differs;
    v.m->findings = v.found.v;
    v.m->n_findings = v.found.n;
    *out = &v.m->base;
    return ST_OK;
}
// The stored bytes are what was stored; are they what the compiler makes?
static status_t recompile(struct cache_work *w) {
    if (((Hlod__V1__VerifyCacheReply *)w->own)->n_findings) return call_reply(w->c, w->reply);
    struct job_spec spec = {.kind = JOB_VERIFY, .model = w->digest};
    w->c->state = w;
    return api_start_job(w->c, &spec, recompiled);
}
status_t api_verify(struct call *c) {
    const Hlod__V1__VerifyCacheRequest *q = call_request(c);
    struct cache_work *w = cache_new(c, verify_work);
    if (q->recompile) w->then = recompile;
    if (*q->digest) return cache_go_for(w, q->digest);
    if (q->recompile)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "recompile: name an executable");
    return cache_go(w);
}

// ---- pins

static status_t pin_work(struct cache_work *w) {
    Hlod__V1__ExecutableInfo *x;
    bool pinned = w->c->row->verb == VERB_PUT;
    if (pinned) RETURN_IF_ERR(cache_record(w, w->digest, &x)); // unpinning what is gone is fine
    RETURN_IF_ERR(pin_set(w->store, w->journal, w->digest, pinned));
    Hlod__V1__PinExecutableReply *m =
        message_new(&w->c->arena, &hlod__v1__pin_executable_reply__descriptor);
    m->digest = ((Hlod__V1__PinExecutableRequest *)w->c->request)->digest;
    m->pinned = pinned;
    w->reply = &m->base;
    return ST_OK;
}
status_t api_pin(struct call *c) {
    return cache_go_for(cache_new(c, pin_work),
                        ((Hlod__V1__PinExecutableRequest *)c->request)->digest);
}

// ---- collect

struct entry { // an executable or a package for browsers
    enum store_kind kind;
    struct digest key;
    int64_t bytes, used_ns;
    bool stays;
};
struct collect {
    struct arena *a;
    VEC(struct entry) all;
    int64_t total;
    struct unused_blobs blobs;
    Hlod__V1__CollectCacheReply *m;
};
static const Hlod__V1__CollectCacheRequest *collect_request(const struct cache_work *w) {
    return (Hlod__V1__CollectCacheRequest *)w->c->request;
}
static void add_entry(void *ctx, enum store_kind kind, struct digest key, int64_t bytes,
                      int64_t mtime, bool pinned) {
    struct collect *k = ctx;
    struct entry e = {kind, key, bytes, mtime, pinned};
    avec_push(k->a, &k->all, e);
    k->total += bytes;
}
static int oldest_first(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}
static int64_t before(int64_t seconds) {
    return clock_wall_ns() - seconds * 1000000000;
}
static status_t collect_list(struct cache_work *w) {
    struct collect *k = w->own;
    int64_t blobs = collect_request(w)->blobs_unused_s;
    RETURN_IF_ERR(store_list(w->store, STORE_EXECUTABLE, add_entry, k));
    RETURN_IF_ERR(store_list(w->store, STORE_PACKAGE, add_entry, k));
    if (k->all.n) qsort(k->all.v, k->all.n, sizeof *k->all.v, oldest_first);
    return blobs ? blobs_unused(w->store, w->journal, suites_journal(w->c->api->suites),
                                before(blobs), k->a, &k->blobs)
                 : ST_OK;
}
static status_t collect_remove(struct cache_work *w) {
    struct collect *k = w->own;
    struct digest d;
    for (size_t i = 0; i < k->m->n_packages; i++) {
        (void)digest_parse(str_of(k->m->packages[i]), &d);
        st_drop(store_remove(w->store, STORE_PACKAGE, d));
    }
    for (size_t i = 0; i < k->m->n_removed; i++) {
        (void)digest_parse(str_of(k->m->removed[i]), &d);
        st_drop(store_remove(w->store, STORE_EXECUTABLE, d)); // gone already is as good
        st_drop(store_remove(w->store, STORE_TUNING, d));     // few have one
        st_drop(journal_remove(w->journal, JOURNAL_EXECUTABLE, d));
    }
    for (size_t i = 0; i < k->blobs.n; i++)
        blob_remove(w->store, w->journal, &k->blobs.v[i]);
    w->reply = &k->m->base;
    return ST_OK;
}
static void choose_entries(struct cache_work *w, struct collect *k) {
    const Hlod__V1__CollectCacheRequest *q = collect_request(w);
    int64_t left = k->total, old = before(q->unused_s);
    k->m->removed = arena_array(k->a, char *, k->all.n + 1);
    k->m->packages = arena_array(k->a, char *, k->all.n + 1);
    for (size_t i = 0; i < k->all.n; i++) {
        const struct entry *e = &k->all.v[i];
        bool unused = q->unused_s && e->used_ns < old, over = q->max_bytes && left > q->max_bytes;
        bool package = e->kind == STORE_PACKAGE;
        if (e->stays || (!unused && !over)) continue;
        if (!package && sched_loaded(w->c->api->sched, e->key)) continue;
        k->m->freed_bytes += e->bytes;
        left -= e->bytes;
        if (package) {
            k->m->packages[k->m->n_packages++] = api_hex(k->a, e->key);
            continue;
        }
        k->m->removed[k->m->n_removed++] = api_hex(k->a, e->key);
        if (!q->dry_run) sched_forget_executable(w->c->api->sched, e->key);
    }
    k->m->kept_bytes = left;
}
static void choose_blobs(struct cache_work *w, struct collect *k) {
    size_t n = 0;
    k->m->blobs = arena_array(k->a, char *, k->blobs.n + 1);
    for (size_t i = 0; i < k->blobs.n; i++) {
        const struct unused_blob b = k->blobs.v[i];
        if (sched_remembers(w->c->api->sched, b.digest)) continue;
        k->blobs.v[n++] = b;
        k->m->blobs[k->m->n_blobs++] = api_hex(k->a, b.digest);
        k->m->freed_bytes += b.bytes;
    }
    k->blobs.n = n;
}
static status_t choose(struct cache_work *w) {
    struct collect *k = w->own;
    k->m = message_new(k->a, &hlod__v1__collect_cache_reply__descriptor);
    choose_entries(w, k);
    choose_blobs(w, k);
    if (collect_request(w)->dry_run || (!k->m->n_removed && !k->m->n_packages && !k->m->n_blobs))
        return call_reply(w->c, &k->m->base);
    w->work = collect_remove;
    w->then = NULL;
    return cache_go(w);
}
static bool seconds(int64_t s) {
    return s >= 0 && s < INT64_MAX / 2000000000;
}
status_t api_collect(struct call *c) {
    const Hlod__V1__CollectCacheRequest *q = call_request(c);
    if (q->max_bytes < 0 || !seconds(q->unused_s) || !seconds(q->blobs_unused_s) ||
        (!q->max_bytes && !q->unused_s && !q->blobs_unused_s))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "say max_bytes, unused_s or blobs_unused_s, none below 0");
    struct cache_work *w = cache_new(c, collect_list);
    struct collect *k = arena_new_of(&c->arena, struct collect);
    k->a = &c->arena;
    w->own = k;
    w->then = choose;
    return cache_go(w);
}
