// SPDX-License-Identifier: Apache-2.0
// The scheduler's frame: records in memory, its life, what workers' changes mean for jobs.
#include "scheduler/sched_inside.h"

#include "scheduler/records/pins.h"
#include "scheduler/records/recent.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "scheduler/job/ahead.h"
#include "scheduler/job/job_buffers.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/queue/aside.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/models.h"

enum { MAX_RECORDS = 2048 };

static void *must(void *p) {
    if (!p) abort(); // small fixed sizes only
    return p;
}
struct str digest_str(const struct digest *d) {
    return (struct str){(const char *)d->b, sizeof d->b};
}

// ---- records

struct model *model_new(struct digest id, struct digest source, Hlod__Wire__IngestReply *rec) {
    struct model *m = must(calloc(1, sizeof *m));
    m->refs = 1;
    m->id = id;
    m->source = source;
    m->rec = rec;
    memcpy(m->program.b, rec->program_digest.data, sizeof m->program.b);
    memcpy(m->weights.b, rec->weights_digest.data, sizeof m->weights.b);
    return m;
}
struct model *model_ref(struct model *m) {
    if (m) m->refs++;
    return m;
}
struct model *model_unref(struct model *m) {
    if (m && --m->refs == 0) {
        hlod__wire__ingest_reply__free_unpacked(m->rec, NULL);
        free(m);
    }
    return NULL;
}
struct exe *exe_new(struct digest key, Hlod__V1__ExecutableInfo *info) {
    struct exe *e = must(calloc(1, sizeof *e));
    e->refs = 1;
    e->key = key;
    e->info = info;
    return e;
}
struct exe *exe_ref(struct exe *e) {
    if (e) e->refs++;
    return e;
}
struct exe *exe_unref(struct exe *e) {
    if (e && --e->refs == 0) {
        hlod__v1__executable_info__free_unpacked(e->info, NULL);
        free(e);
    }
    return NULL;
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

struct model *sched_model(struct sched *s, struct digest id) {
    struct model *m = smap_get(&s->models, digest_str(&id));
    if (m) m->used = (int64_t)++s->tick;
    return m;
}
struct exe *sched_exe(struct sched *s, struct digest key) {
    struct exe *e = smap_get(&s->exes, digest_str(&key));
    if (e) e->used = (int64_t)++s->tick;
    return e;
}
struct model *sched_keep_model(struct sched *s, struct model *m) {
    struct model *old = sched_model(s, m->id);
    if (old) {
        model_unref(m);
        return old;
    }
    if (s->models.n >= MAX_RECORDS) { // everything here can be read again from the journal
        struct model *victim = NULL;
        struct str k;
        void *v;
        for (size_t i = 0; smap_next(&s->models, &i, &k, &v);) {
            struct model *x = v;
            if (x->refs == 1 && (!victim || x->used < victim->used)) victim = x;
        }
        if (victim) model_unref(smap_del(&s->models, digest_str(&victim->id)));
    }
    m->used = (int64_t)++s->tick;
    smap_put(&s->models, digest_str(&m->id), m);
    return m;
}
struct exe *sched_keep_exe(struct sched *s, struct exe *e) {
    struct exe *old = sched_exe(s, e->key);
    if (old) {
        exe_unref(e);
        return old;
    }
    if (s->exes.n >= MAX_RECORDS) {
        struct exe *victim = NULL;
        struct str k;
        void *v;
        for (size_t i = 0; smap_next(&s->exes, &i, &k, &v);) {
            struct exe *x = v;
            if (x->refs == 1 && (!victim || x->used < victim->used)) victim = x;
        }
        if (victim) exe_unref(smap_del(&s->exes, digest_str(&victim->key)));
    }
    e->used = (int64_t)++s->tick;
    smap_put(&s->exes, digest_str(&e->key), e);
    return e;
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

status_t sched_take_compile(struct sched *s) {
    int64_t wait_ms;
    if (quota_take(&s->compiles, clock_ns(), 1, &wait_ms)) return ST_OK;
    metric_add(M_COMPILES_REFUSED, 1);
    status_t st = st_new(ST_RESOURCE_EXHAUSTED,
                         "more than %lld compiles a minute; the next may begin in %.1f s",
                         (long long)s->compiles.per_minute, (double)wait_ms / 1e3);
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_COMPILE_RATE), wait_ms);
}

// ---- workers

// A worker came, went or became free. Posted, because it may be told from the middle of anything.
static void after_change(void *arg) {
    struct sched *s = arg;
    sched_buffers(s);
    sched_dispatch(s);
    jobs_wake(s);
}
static void on_pool_change(void *ctx) {
    struct sched *s = ctx;
    if (!s->stopping) loop_post(s->loop, after_change, s);
}

// ---- life

status_t sched_configure(struct sched *s, const struct sched_config *cfg) {
    RETURN_IF_ERR(tenants_set(&s->tenants, cfg->tenants));
    s->cfg.tenants = s->tenants.rules;
    s->queue[ROLE_COMPILE].max = s->queue[ROLE_DEVICE].max = s->cfg.max_queue = cfg->max_queue;
    s->cfg.default_timeout_ms = cfg->default_timeout_ms;
    s->cfg.max_shapes = cfg->max_shapes;
    s->cfg.alone_ns = cfg->alone_ns;
    s->cfg.pool.kill_grace_ms = cfg->cancel_grace_ms;
    if (s->pool) pool_set_grace(s->pool, cfg->cancel_grace_ms);
    s->cfg.buffer_bytes = cfg->buffer_bytes;
    s->cfg.reply_bytes = cfg->reply_bytes;
    s->cfg.max_names = cfg->max_names;
    s->cfg.buffer_lease_ms = cfg->buffer_lease_ms;
    buffers_configure(s->buffers, cfg->buffer_lease_ms, cfg->buffer_bytes);
    quota_set(&s->compiles, s->cfg.compiles_a_minute = cfg->compiles_a_minute);
    return ST_OK;
}

// Who has a name for a model owns it; names from before there were owners too.
static status_t own_named(struct sched *s) {
    struct digest source;
    status_t st = ST_OK;
    for (struct named_model *x = models_first(s->names); x && !st; x = x->next) {
        st = owner_read(s->journal, x->tenant, x->source, &source);
        if (st_code(st) != ST_NOT_FOUND) continue;
        st_drop(st);
        st = ST_OK;
        owners_add(s->owners, x->tenant, x->source, (struct digest){0});
    }
    return st;
}

// What has a record and no file was removed by somebody else.
static void forget_evicted(void *journal, struct digest key) {
    st_drop(journal_remove(journal, JOURNAL_EXECUTABLE, key));
}
status_t sched_new(struct loop *l, struct store *store, struct journal *journal,
                   const struct sched_config *cfg, struct sched **out) {
    struct sched *s = must(calloc(1, sizeof *s));
    s->loop = l;
    s->store = store;
    s->journal = journal;
    s->cfg = *cfg;
    quota_init(&s->compiles, cfg->compiles_a_minute, clock_ns());
    smap_seed_random(&s->uploads);
    smap_seed_random(&s->models);
    smap_seed_random(&s->exes);
    smap_seed_random(&s->ops);
    smap_seed_random(&s->batches);
    smap_seed_random(&s->targets);
    history_init(&s->history);
    s->cfg.pool.on_change = on_pool_change;
    s->cfg.pool.on_fault = sched_blame;
    s->cfg.pool.ctx = s;
    s->recent = recent_new();
    s->buffers = buffers_new(&(struct buffers_config){.drop = sched_buffer_dropped, .ctx = s});
    s->lease_timer = loop_timer_new(l, sched_lease_over, s);
    s->relief_timer = loop_timer_new(l, sched_relief_due, s);
    s->aheads = aheads_new(l);
    status_t st = s->recent ? sched_configure(s, cfg) : st_oom();
    if (!st) st = pins_load(store, journal);
    if (!st) st = models_new(s, &s->names);
    store_on_evict(store, forget_evicted, journal);
    s->owners = owners_new(l, journal);
    if (!st) st = own_named(s);
    if (!st) st = pool_new(l, &s->cfg.pool, &s->pool);
    if (st) {
        tenants_done(&s->tenants);
        models_free(s->names);
        owners_free(s->owners);
        recent_free(s->recent);
        loop_timer_free(s->lease_timer);
        loop_timer_free(s->relief_timer);
        aheads_free(s->aheads);
        buffers_done(s->buffers);
        free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void sched_stop(struct sched *s) {
    while (s->jobs) {
        struct job *j = s->jobs;
        job_finish(j, st_reason(st_new(ST_UNAVAILABLE, "the server is shutting down"),
                                HLOD__V1__REASON__REASON_SHUTTING_DOWN));
        if (s->jobs == j) break; // cannot be
    }
    s->stopping = true;
    loop_timer_free(s->lease_timer);
    loop_timer_free(s->relief_timer);
    s->lease_timer = s->relief_timer = NULL;
    pool_stop(s->pool);
    aheads_free(s->aheads);
    s->aheads = NULL;
}

void sched_free(struct sched *s) {
    if (!s) return;
    struct str k;
    void *v;
    for (size_t i = 0; smap_next(&s->models, &i, &k, &v);)
        model_unref(v);
    for (size_t i = 0; smap_next(&s->exes, &i, &k, &v);)
        exe_unref(v);
    for (size_t i = 0; smap_next(&s->targets, &i, &k, &v);)
        free(v);
    smap_done(&s->targets);
    history_done(&s->history);
    smap_done(&s->uploads);
    smap_done(&s->models);
    smap_done(&s->exes);
    smap_done(&s->ops);
    smap_done(&s->batches);
    blames_done(&s->blames);
    pool_free(s->pool);
    models_free(s->names);
    owners_free(s->owners);
    recent_free(s->recent);
    buffers_done(s->buffers);
    tenants_done(&s->tenants);
    free(s);
}

int sched_active(const struct sched *s) {
    return s->n_jobs;
}
bool sched_can_serve(struct sched *s) {
    bool up[2] = {false, false};
    for (int i = 0; i < pool_size(s->pool); i++)
        if (worker_ready(pool_worker(s->pool, i)))
            up[pool_place(pool_worker(s->pool, i)).role] = true;
    return up[ROLE_COMPILE] && up[ROLE_DEVICE] && !s->stopping;
}
struct blames *sched_blames(struct sched *s) {
    return &s->blames;
}
struct pool *sched_pool(struct sched *s) {
    return s->pool;
}
struct store *sched_store(struct sched *s) {
    return s->store;
}
struct journal *sched_journal(struct sched *s) {
    return s->journal;
}
struct models *sched_models(struct sched *s) {
    return s->names;
}
const struct recent *sched_recent(const struct sched *s) {
    return s->recent;
}
struct loop *sched_loop(struct sched *s) {
    return s->loop;
}
const struct sched_config *sched_cfg(const struct sched *s) {
    return &s->cfg;
}
const struct tenants *sched_tenants(const struct sched *s) {
    return &s->tenants;
}
