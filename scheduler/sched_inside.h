// SPDX-License-Identifier: Apache-2.0
// sched_inside: the scheduler's inside, for files of this folder only. A *record* is what memory
// keeps of a source (model) or executable (exe), counted, found by digest. Jobs are
// job/job_inside.h, work that several jobs share op/op.h, the queue queue/task.h. Thread: loop,
// except *_work functions (pool), which touch only the object they are given.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "scheduler/op/shapes.h"
#include "scheduler/queue/footprint.h"
#include "scheduler/queue/history.h"
#include "scheduler/queue/queue.h"
#include "scheduler/queue/quota.h"
#include "scheduler/queue/task.h"
#include "scheduler/records/buffers.h"
#include "scheduler/records/journal.h"
#include "scheduler/records/owners.h"
#include "scheduler/sched.h"
#include "scheduler/workers/blame.h"

struct aheads;
struct job;
struct loop_timer;
struct record { // the first member of each, for records/known.c
    int refs;
    int64_t used;
    void (*free)(struct record *x);
};
struct model {
    struct record record;
    struct digest source, program, weights;
    struct digest id;                 // sched_record of source: what memory and journal know it by
    Hlod__Wire__IngestReply *rec;     // owned; blobs empty
    struct footprint_want batch_plan; // of the last batch of it, and what it took; 0 = none yet
    int64_t batch_ns;
    size_t shapes, made; // when they were last counted; executables made since
};
struct exe {
    struct record record;
    struct digest key;
    Hlod__V1__ExecutableInfo *info; // owned
    int64_t run_ns;                 // what a run takes, as measured lately; 0 = not known
};
struct model *model_new(struct digest id, struct digest source,
                        Hlod__Wire__IngestReply *rec); // takes rec
int64_t model_weights(const struct model *m);          // their bytes
struct model *model_ref(struct model *m);
struct model *model_unref(struct model *m);                             // NULL
struct exe *exe_new(struct digest key, Hlod__V1__ExecutableInfo *info); // takes info
struct exe *exe_ref(struct exe *e);
struct exe *exe_unref(struct exe *e); // NULL

enum { TARGET_NAME_MAX = 96 };
struct target_rec { // what a target's name stands for, in one life of a compile worker
    char name[TARGET_NAME_MAX], kind[32];
    char id[256];
    struct worker *worker;
    uint64_t epoch;
    int64_t memory_bytes;
};

struct sched {
    struct loop *loop;
    struct store *store;
    struct journal *journal;
    struct models *names;
    struct pull *pull;       // from other nodes of the cluster; NULL: there are none
    struct forward *forward; // to them; NULL: there are none
    struct owners *owners;
    struct recent *recent;
    struct buffers *buffers;
    struct loop_timer *lease_timer;
    struct aheads *aheads;           // ahead.h
    struct loop_timer *relief_timer; // brief work waits for a device that is held (dispatch.c)
    int64_t unread_bytes;            // of results, all tenants together (dispatch.c)
    struct pool *pool;
    struct sched_config cfg;
    struct trust *trust;           // cfg.trust, or its successor
    struct smap uploads;           // calls under way that brought a model, by its digest
    struct smap models, exes, ops; // by digest bytes; by digest bytes; by name
    struct smap batches;           // that are open, by what their runs have in common
    struct smap targets;           // struct target_rec by name
    struct history history;        // for "auto"
    struct queue queue[2];         // by worker_role
    struct queue refused;          // had to leave a full queue, do not know it yet
    struct queue_lane refused_lane;
    struct blames blames;             // work that ended its workers (queue/aside.h)
    const struct tenant *last_tenant; // whose job came last; only compared
    int64_t mixed_ns;    // when one came of another tenant than the one before; 0 = never
    int64_t usual_ns[2]; // that a piece of work holds a worker, by role
    struct tenants tenants;
    struct quota compiles;
    struct job *jobs; // all unfinished
    int n_jobs;
    uint64_t next_job, tick;
    bool dispatching, dispatch_due, stopping;
    bool measures, measure_due; // pool work sums up the store, or did a while ago; and is to again
    int64_t measure_ns;         // that it took
    struct loop_timer *measure_timer;
    void (*told)(void *ctx, const struct trace_work *w); // sched_observe; or NULL
    void *told_ctx;
};
struct model *sched_model(struct sched *s, struct digest id); // borrowed, NULL if not in memory
// What is known of content under: the digest itself, or, where workers belong to tenants, the
// tenant's own name for it, so that what one tenant's worker says of it counts for no other.
struct digest sched_record(const struct sched *s, const char *tenant, struct digest d);
struct exe *sched_exe(struct sched *s, struct digest key);
struct target_rec *sched_target(struct sched *s, const char *name); // NULL if it must be asked
struct model *sched_keep_model(struct sched *s,
                               struct model *m); // takes m; the record that is kept (borrowed): an
                                                 // older one of the same digest wins
struct exe *sched_keep_exe(struct sched *s, struct exe *e);
// One of the compiles a minute, on the tenant's account; of several tenants each may have as many
// of late as it leaves. RESOURCE_EXHAUSTED, REASON_COMPILE_RATE.
status_t sched_take_compile(struct sched *s, struct tenant *t) MUST_CHECK;
void sched_dispatch(struct sched *s);
// Should work that takes so long not be placed behind other work, so that what comes meanwhile does
// not wait for both? Only while several tenants are at work: one alone wants the device kept busy.
void sched_relief_due(void *s);
// So many more bytes of results wait to be taken by the tenant's clients, or fewer. Who has as many
// as all may still have gets no place on a device before some are (cfg.reply_bytes).
void sched_unread(struct sched *s, struct tenant *t, int64_t bytes);
// RESOURCE_EXHAUSTED where the tenant has so much: for results of other workers than devices'.
status_t sched_reply_room(const struct sched *s, const struct tenant *t) MUST_CHECK;
bool sched_alone(const struct sched *s, int64_t expected_ns);
