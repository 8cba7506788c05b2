// SPDX-License-Identifier: Apache-2.0
// sched: the whole scheduler as other folders see it: store, journal, workers, queue, records in
// memory. Jobs are job/job.h. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "proto/wire.pb-c.h"
#include "scheduler/workers/pool.h"

struct blames;
struct buffers;
struct forward;
struct journal;
struct loop;
struct models;
struct pull;
struct recent;
struct remotes;
struct sched;
struct store;
struct tenants;
struct trust;

struct sched_config {
    struct pool_config pool;    // on_change is the scheduler's own
    int32_t max_queue;          // jobs waiting for a worker; beyond: RESOURCE_EXHAUSTED
    int64_t default_timeout_ms; // of a job that names none; 0 = no deadline
    Hlod__Wire__Limits limits;  // of models
    int64_t cache_budget_bytes; // for CacheStats
    int32_t max_shapes;         // executables of one program; 0 = no limit
    int64_t compiles_a_minute;  // 0 = no limit
    const char *tenants;        // rules (tenant.h)
    int64_t buffer_bytes;       // resident buffers of a tenant on one device; 0 = half its memory
    int64_t max_names;          // versions of named models; 0 = no limit
    int64_t reply_bytes;        // results that clients have not taken yet; 0 = no bound
    int64_t buffer_lease_ms;    // of those who ask for none
    int64_t cancel_grace_ms;    // a cancelled call's worker is killed after so long
    bool by_tenant;             // content belongs to those who brought it (owners.h)
    struct remotes *remotes;    // borrowed; NULL: there are none
    struct trust *trust;        // of executables from elsewhere; taken. NULL: nothing is asked
    int64_t alone_ns;           // runs that take longer get a device for themselves; 0 = none do
};
status_t sched_new(struct loop *l, struct store *store, struct journal *journal,
                   const struct sched_config *cfg, struct sched **out) MUST_CHECK;
// Takes over what may change while it runs: all but pool, limits, cache_budget_bytes.
// INVALID_ARGUMENT, and nothing changes.
status_t sched_configure(struct sched *s, const struct sched_config *cfg) MUST_CHECK;
// Who is told of work that nobody waits for: batches, and jobs of suites. Only of what is sampled.
// Borrowed: the work, and ctx until sched_free. Before anything runs.
struct trace_work;
void sched_observe(struct sched *s, void (*told)(void *ctx, const struct trace_work *w), void *ctx);
void sched_stop(struct sched *s); // ends all jobs with UNAVAILABLE, stops the workers
void sched_free(struct sched *s);
int sched_active(const struct sched *s); // jobs not yet finished
bool sched_can_serve(struct sched *s);   // a worker of each role is up
// Does work of the tenant wait for a place because its clients have not taken results?
bool sched_waits_for_reply(const struct sched *s, const char *tenant);
struct pool *sched_pool(struct sched *s);
struct blames *sched_blames(struct sched *s); // work that is put aside (workers/blame.h)
struct store *sched_store(struct sched *s);
struct journal *sched_journal(struct sched *s);
struct trust *sched_trust(struct sched *s);             // borrowed
void sched_set_trust(struct sched *s, struct trust *t); // takes t
struct models *sched_models(struct sched *s);
// Other nodes of the cluster: models come from there, runs go there. Borrowed; NULL: no more.
void sched_set_cluster(struct sched *s, struct pull *p, struct forward *f);
struct tenants *sched_tenants(struct sched *s);
void sched_room(struct sched *s); // a tenant may have more places now
const struct recent *sched_recent(const struct sched *s);
struct loop *sched_loop(struct sched *s);
// The table of resident buffers, with what died in the meantime marked. After handles were made,
// found or renewed: sched_watch_leases.
struct buffers *sched_buffers(struct sched *s);
void sched_watch_leases(struct sched *s);
const struct sched_config *sched_cfg(const struct sched *s);
bool sched_loaded(struct sched *s, struct digest key); // in a worker
// A call brought these bytes: they are the tenant's. Until it is over, sched_upload_used.
void sched_upload(struct sched *s, const char *tenant, struct digest source);
void sched_upload_used(struct sched *s, struct digest source);
// No reader takes what a call brought first: unless somebody else has it too, brings it meanwhile,
// or some reader took it, its bytes go, which nothing will ever use. file: of store_write_end.
void sched_drop_upload(struct sched *s, const char *tenant, struct digest source, uint64_t file);
// A model's record is in memory.
bool sched_remembers(struct sched *s, struct digest source);
void sched_forget_executable(struct sched *s, struct digest key); // it leaves the store: workers
                                                                  // let go of it too
