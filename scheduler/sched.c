// SPDX-License-Identifier: Apache-2.0
// The scheduler's frame: its life, what workers' changes mean for jobs. See sched.h.
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
#include "scheduler/job/hold.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/op/ahead.h"
#include "scheduler/queue/aside.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/models.h"
#include "scheduler/remote/trust.h"

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
    struct sched *s = arena_must_calloc(1, sizeof *s);
    s->loop = l;
    s->store = store;
    s->journal = journal;
    s->cfg = *cfg;
    s->trust = cfg->trust;
    s->cfg.trust = NULL;
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
    s->measure_timer = loop_timer_new(l, op_measure_due, s);
    s->aheads = aheads_new(l);

    status_t st = s->recent ? sched_configure(s, cfg) : st_oom();
    if (!st && !s->trust) st = trust_open(&(struct trust_files){"", "", ""}, &s->trust);
    if (!st) st = pins_load(store, journal);
    if (!st) st = models_new(s, &s->names);
    store_on_evict(store, forget_evicted, journal);
    s->owners = owners_new(l, journal);
    if (!st) st = own_named(s);
    if (!st) st = pool_new(l, &s->cfg.pool, &s->pool);
    if (st) {
        loop_timer_free(s->lease_timer);
        loop_timer_free(s->relief_timer);
        loop_timer_free(s->measure_timer);
        aheads_free(s->aheads);
        sched_free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void sched_observe(struct sched *s, void (*told)(void *ctx, const struct trace_work *w),
                   void *ctx) {
    s->told = told;
    s->told_ctx = ctx;
}

void sched_stop(struct sched *s) {
    while (s->jobs) {
        struct job *j = s->jobs;
        job_finish(j, st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down"));
        if (s->jobs == j) break; // cannot be
    }
    s->stopping = true;
    loop_timer_free(s->lease_timer);
    loop_timer_free(s->relief_timer);
    loop_timer_free(s->measure_timer);
    s->lease_timer = s->relief_timer = s->measure_timer = NULL;
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
    trust_unref(s->trust);
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
struct trust *sched_trust(struct sched *s) {
    return s->trust;
}
void sched_set_trust(struct sched *s, struct trust *t) {
    trust_unref(s->trust);
    s->trust = t;
}
void sched_set_cluster(struct sched *s, struct pull *p, struct forward *f) {
    s->pull = p;
    s->forward = f;
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
struct tenants *sched_tenants(struct sched *s) {
    return &s->tenants;
}
