// SPDX-License-Identifier: Apache-2.0
// Records in memory of sources and executables (sched_inside.h): counted, the least recently used
// go.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "scheduler/sched_inside.h"

enum { MAX_RECORDS = 2048 };

// ---- records

static void *ref(struct record *x) {
    if (x) x->refs++;
    return x;
}
static void *unref(struct record *x) {
    if (x && --x->refs == 0) x->free(x);
    return NULL;
}

static void free_model(struct record *x) {
    hlod__wire__ingest_reply__free_unpacked(((struct model *)x)->rec, NULL);
    free(x);
}
struct model *model_new(struct digest id, struct digest source, Hlod__Wire__IngestReply *rec) {
    struct model *m = arena_must_calloc(1, sizeof *m);
    m->record = (struct record){.refs = 1, .free = free_model};
    m->id = id;
    m->source = source;
    m->rec = rec;
    memcpy(m->program.b, rec->program_digest.data, sizeof m->program.b);
    memcpy(m->weights.b, rec->weights_digest.data, sizeof m->weights.b);
    return m;
}
int64_t model_weights(const struct model *m) {
    int64_t all = 0;
    for (size_t i = 0; i < m->rec->n_weights; i++)
        sz_sum(&all, m->rec->weights[i]->size);
    return all;
}
struct model *model_ref(struct model *m) {
    return ref((struct record *)m);
}
struct model *model_unref(struct model *m) {
    return unref((struct record *)m);
}

static void free_exe(struct record *x) {
    hlod__v1__executable_info__free_unpacked(((struct exe *)x)->info, NULL);
    free(x);
}
struct exe *exe_new(struct digest key, Hlod__V1__ExecutableInfo *info) {
    struct exe *e = arena_must_calloc(1, sizeof *e);
    e->record = (struct record){.refs = 1, .free = free_exe};
    e->key = key;
    e->info = info;
    return e;
}
struct exe *exe_ref(struct exe *e) {
    return ref((struct record *)e);
}
struct exe *exe_unref(struct exe *e) {
    return unref((struct record *)e);
}

struct digest sched_record(const struct sched *s, const char *tenant, struct digest d) {
    struct sha256 h;
    if (!s->cfg.pool.isolate) return d;
    sha256_init(&h);
    sha256_add(&h, "hlod tenant", 12); // with its 0, as the name
    sha256_add(&h, tenant, strlen(tenant) + 1);
    sha256_add(&h, d.b, sizeof d.b);
    return sha256_end(&h);
}

static void *find(struct sched *s, const struct smap *records, struct digest d) {
    struct record *x = smap_get(records, digest_str(&d));
    if (x) x->used = (int64_t)++s->tick;
    return x;
}
struct model *sched_model(struct sched *s, struct digest id) {
    return find(s, &s->models, id);
}
struct exe *sched_exe(struct sched *s, struct digest key) {
    return find(s, &s->exes, key);
}

// Takes x and keeps it, or the one of its digest that is there. What has to make room for it can be
// read again from the journal: the least recently used that nobody else holds.
static void *keep(struct sched *s, struct smap *records, struct digest d, struct record *x) {
    struct record *old = find(s, records, d);
    const struct record *oldest = NULL;
    if (old) {
        unref(x);
        return old;
    }
    struct str k, key;
    void *v;
    for (size_t i = 0; records->n >= MAX_RECORDS && smap_next(records, &i, &k, &v);) {
        const struct record *r = v;
        if (r->refs != 1 || (oldest && r->used >= oldest->used)) continue;
        oldest = r;
        key = k;
    }
    if (oldest) unref(smap_del(records, key));
    x->used = (int64_t)++s->tick;
    smap_put(records, digest_str(&d), x);
    return x;
}
struct model *sched_keep_model(struct sched *s, struct model *m) {
    return keep(s, &s->models, m->id, &m->record);
}
struct exe *sched_keep_exe(struct sched *s, struct exe *e) {
    return keep(s, &s->exes, e->key, &e->record);
}

static void on_unloaded(void *ctx, struct frame *f, status_t lost) {
    (void)ctx, (void)f; // a worker that had dropped it already, or died, does not hold it either
    st_drop(lost);
}
bool sched_remembers(struct sched *s, struct digest source) {
    struct str k;
    void *v;
    if (!s->cfg.pool.isolate) return smap_has(&s->models, digest_str(&source));
    for (size_t i = 0; smap_next(&s->models, &i, &k, &v);)
        if (digest_eq(((const struct model *)v)->source, source)) return true;
    return false;
}
bool sched_loaded(struct sched *s, struct digest key) {
    for (int i = 0; i < pool_size(s->pool); i++)
        if (warm_has_executable(worker_warm(pool_worker(s->pool, i)), key)) return true;
    return false;
}
void sched_forget_executable(struct sched *s, struct digest key) {
    exe_unref(smap_del(&s->exes, digest_str(&key)));
    Hlod__Wire__Unload m = HLOD__WIRE__UNLOAD__INIT;
    m.key = (ProtobufCBinaryData){sizeof key.b, key.b};
    for (int i = 0; i < pool_size(s->pool); i++) {
        struct worker *w = pool_worker(s->pool, i);
        if (!warm_has_executable(worker_warm(w), key)) continue;
        warm_forget(worker_warm(w), key);
        if (worker_ready(w))
            pool_call(w, HLOD__WIRE__TYPE__TYPE_UNLOAD, &m.base, NULL, 0, on_unloaded, NULL);
    }
}

// Both buckets fill at one speed: a tenant that takes all it can gets what flows in, and keeps the
// bucket half full for the next. Gives how many must flow in first.
static int64_t lacks(struct sched *s, struct tenant *t, int64_t now_ns) {
    int64_t limit = s->compiles.per_minute;
    quota_set(&t->compiles, limit);
    if (limit <= 0 || s->tenants.n < 2) return 0;
    int64_t left = quota_left(&s->compiles, now_ns),
            taken = limit - quota_left(&t->compiles, now_ns);
    if (left <= 0 || taken < left) return 0; // where nothing is left, that is what to say
    return (taken - left) / 2 + 1;
}
status_t sched_take_compile(struct sched *s, struct tenant *t) {
    int64_t now_ns = clock_ns(), limit = s->compiles.per_minute, wait_ms = 0;
    int64_t missing = lacks(s, t, now_ns);
    if (!missing && quota_take(&s->compiles, now_ns, 1, &wait_ms)) {
        quota_charge(&t->compiles, 1);
        return ST_OK;
    }
    metric_add(M_COMPILES_REFUSED, 1);
    if (missing) wait_ms = missing * 60000 / limit + 1;
    status_t st = st_exhausted("more than %s%lld compiles a minute; the next may begin in %.1f s",
                               missing ? "this tenant's share of " : "", (long long)limit,
                               (double)wait_ms / 1e3);
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_COMPILE_RATE), wait_ms);
}
