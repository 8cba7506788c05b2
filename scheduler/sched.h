// SPDX-License-Identifier: Apache-2.0
// sched: the scheduler's inside, shared by its job_*.c and op_*.c files and nobody else. A *record*
// is what memory keeps of a source (model) or executable (exe), counted, found by digest. A *task*
// is a wish for a worker in the queue. An *op* is one piece of shared work (ingest, look up or
// compile, prepare) with the jobs that wait for it: single flight means that an op is found by its
// name while it runs.
//
//   job_advance: model? -> resolve, op_ingest      key? -> bind      exe? -> op_exe (look up, else
//   compile)      RUN: task -> worker -> op_prepare -> RUN frame
//
// Every asynchronous step ends by calling job_advance again, which looks at what is still missing;
// so a step may be repeated (a cache entry gone bad) without a special path. Thread: loop, except
// *_work functions (pool), which touch only the object they are given.
#pragma once
#include "base/map.h"
#include "base/vec.h"
#include "scheduler/records/buffers.h"
#include "scheduler/queue/footprint.h"
#include "scheduler/queue/history.h"
#include "scheduler/job/job.h"
#include "scheduler/job/key.h"
#include "scheduler/records/owners.h"
#include "scheduler/queue/queue.h"
#include "scheduler/queue/quota.h"
#include "scheduler/job/shapes.h"
#include "scheduler/queue/task.h"
struct loop_timer;
struct model {
    int refs;
    struct digest source, program, weights;
    struct digest id;             // sched_record of source: what memory and journal know it by
    Hlod__Wire__IngestReply *rec; // owned; blobs empty
    int64_t used;
    struct footprint_want batch_plan; // of the last batch of it, and what it took; 0 = none yet
    int64_t batch_ns;
};
struct exe {
    int refs;
    struct digest key;
    Hlod__V1__ExecutableInfo *info; // owned
    int64_t used;
    int64_t run_ns; // what a run takes, as measured lately; 0 = not known
};
struct model *model_new(struct digest id, struct digest source,
                        Hlod__Wire__IngestReply *rec); // takes rec
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

enum op_kind { OP_INGEST, OP_EXE, OP_PREPARE, OP_TARGET };
struct op {
    enum op_kind kind;
    struct sched *s;
    char name[200]; // in sched.ops while `listed`
    bool listed, ending;
    VEC(struct job *) waiters;
    struct arena arena;
    struct task task;
    struct seat seat;
    uint64_t call;
    int64_t start_ns;
    status_t st; // outcome of pool work
    // what it is about
    struct model *model;  // OP_EXE, OP_PREPARE
    struct exe *exe;      // OP_PREPARE; result of OP_EXE
    struct digest digest; // source, or key
    struct digest record; // of source, OP_INGEST
    const char *format;
    struct tenant *tenant; // on whose account, OP_INGEST
    int32_t priority;
    Hlod__Wire__Binding **bindings;
    size_t n_bindings;
    const char *bindings_text, *options, *target_id, *device_kind, *build_id;
    uint32_t kernel_abi;
    const char *differs; // of a verify
    bool hit, damaged, compiling, loaded, verify, expected; // OP_EXE: a device was told
    uint64_t epoch;         // of the worker, OP_PREPARE and expected
    int target_index;       // of the worker in the pool, OP_PREPARE and expected
    int fds[FRAME_MAX_FDS]; // of the reply
    int n_fds;
    Hlod__Wire__IngestReply *ingest;
    Hlod__Wire__CompileReply *compile;
    int64_t artifact_offset, artifact_size, prepared_bytes;
    struct {
        struct shape_use *v;
        size_t n, cap;
    } shapes; // of the program, OP_EXE
};
struct op *op_find(struct sched *s, const char *name); // NULL if none runs
struct op *op_new(struct sched *s, enum op_kind kind, const char *name);
void op_join(struct op *op, struct job *j);
void op_leave(struct op *op,
              struct job *j);            // an op without waiters is given up where that saves work
void op_end(struct op *op, status_t st); // takes st; wakes the waiters and frees the op
void op_tell(struct op *op, Hlod__V1__Event *e); // to every waiter
// The last frame of op's call came, or its worker was lost: the worker's place is free again; takes
// the frame's descriptors. False: the op has ended with `lost`, or waits for another worker.
bool op_answered(struct op *op, struct frame *f, status_t lost);
status_t blob_map(const Hlod__Wire__Blob *b, const int *fds, int n_fds, struct span *out,
                  void **out_base, size_t *out_base_bytes) MUST_CHECK;

// The job's target: sched_target has it once the op ends well. INVALID_ARGUMENT at once for a name
// that means nothing here.
status_t op_target_start(struct job *j) MUST_CHECK;
void op_ingest_start(struct job *j);  // the job's source
void op_exe_start(struct job *j);     // the job's key
void op_verify_start(struct job *j);  // the job's executable; sets r.differs
void op_prepare_start(struct job *j); // the job's exe and weights in the job's worker

struct run_call;
struct plan_run;
struct job {
    struct sched *s;
    struct job *prev, *next;
    struct arena arena;
    struct job_spec spec;
    struct job_result r;
    int64_t unread_bytes; // of the result, until job_free
    int64_t start_ns;
    struct loop_timer *deadline;
    const char *owner; // must own what is used; NULL: all may be
    bool finished, cancelled, free_later, told_compiled, waits_for_worker, woken, bound,
        tried_ingest;
    bool resolving; // a posted step or pool work holds the job
    int retries;
    struct op *op;                 // waiting for it
    struct model *model, *weights; // weights: whose to prepare; owned references
    struct exe *exe;
    struct key_parts key_parts;
    struct digest key;
    Hlod__Wire__Binding **bindings;
    size_t n_bindings;
    const char *device_kind;
    struct digest work; // program, shapes and options, whatever the target
    struct task task;
    struct tenant *tenant;
    int64_t deadline_ns;
    struct seat seat;
    struct batch *batch; // it was run in, or waits for
    bool waits_for_batch;
    int64_t joined_ns;
    size_t n_warm;         // buckets compiled, JOB_WARM
    const char *constants; // of the last of them that has several rows
    bool prepared, checked;
    status_t refused;      // found at the start, told in the first step
    bool admitted;         // by its tenant's quotas, for so many bytes
    int64_t admitted_bytes;
    struct run_call *call; // in flight
    struct memfd *out;     // where the results lie; r.fds[0] then, or NULL
    Hlod__Wire__RunReply *run;
    Hlod__Wire__InspectReply *inspect;
    int64_t run_start_ns;
    struct plan_run *plan; // JOB_PLAN
    struct job *parent;    // JOB_STEP; its seat is the parent's
    Hlod__Wire__RunPlanReply *plan_reply;
    Hlod__Wire__GetReply *get_reply;
    struct job_parts *parts; // JOB_RUN: parts of the program that are over (job_parts.h); or NULL
    VEC(struct buffer *) kept; // results of PUT and GET; references
};
void job_advance(struct job *j);
void job_finish(struct job *j, status_t st); // takes st
void job_event(struct job *j, Hlod__V1__Event *e);
void job_timing(struct job *j, const char *name, int64_t ns); // it ends now
void job_timing_to(struct job *j, const char *name, int64_t ns, int64_t end_ns);
void job_resolve(struct job *j); // job_resolve.c: digest -> model, exe
// j->model. Inputs that the request calls by an alias have the model's own names from here on.
void job_set_model(struct job *j, struct model *m);
status_t job_bind(struct job *j, bool *out_wait)
    MUST_CHECK; // job_resolve.c: shapes -> key; wait: no target known yet
status_t job_check_inputs(struct job *j)
    MUST_CHECK; // job_run.c: against the model's signature, before any compile
int job_replicas(const struct job *j); // 1 and up
// A run's inputs as one replica sees them: without the first dimension where there are several.
status_t job_one_replica(struct job *j, const struct job_input **out) MUST_CHECK; // job_run.c
void job_run(struct job *j);                                                      // job_run.c
void job_inspect(struct job *j);                                                  // job_run.c
void job_event_queued(struct job *j);
status_t job_order_outputs(struct job *j) MUST_CHECK; // which are wanted, and their names
struct footprint_want job_plan(const struct job *j);  // what its run needs; it has its executable
// job_resolve.c: kind of the devices that its key would be made for; NULL = none has said hello
const char *job_device_kind(struct job *j);
bool job_wants_auto(const struct job *j); // "auto", and no kind was chosen yet
// The kind that history finds best for it with so many rows in dimension 0 of each input; "": none
// is up, any will do.
const char *job_auto_device(struct job *j, int64_t rows);

struct sched {
    struct loop *loop;
    struct store *store;
    struct journal *journal;
    struct models *names;
    struct owners *owners;
    struct recent *recent;
    struct buffers *buffers;
    struct loop_timer *lease_timer;
    struct aheads *aheads;           // ahead.h
    struct loop_timer *relief_timer; // brief work waits for a device that is held (dispatch.c)
    int64_t unread_bytes; // of results, all tenants together (dispatch.c)
    struct pool *pool;
    struct sched_config cfg;
    struct smap uploads;           // calls under way that brought a model, by its digest
    struct smap models, exes, ops; // by digest bytes; by digest bytes; by name
    struct smap batches;           // that are open, by what their runs have in common
    struct smap targets;           // struct target_rec by name
    struct history history;        // for "auto"
    struct queue queue[2];         // by worker_role
    struct queue refused;          // had to leave a full queue, do not know it yet
    struct queue_lane refused_lane;
    const struct tenant *last_tenant; // whose job came last; only compared
    int64_t mixed_ns;    // when one came of another tenant than the one before; 0 = never
    int64_t usual_ns[2]; // that a piece of work holds a worker, by role
    struct tenants tenants;
    struct quota compiles;
    struct job *jobs; // all unfinished
    int n_jobs;
    uint64_t next_job, tick;
    bool dispatching, dispatch_due, stopping;
    bool measures; // pool work sums up the store
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
status_t sched_take_compile(struct sched *s) MUST_CHECK; // RESOURCE_EXHAUSTED, REASON_COMPILE_RATE
void sched_dispatch(struct sched *s);
// Should work that takes so long not be placed behind other work, so that what comes meanwhile does
// not wait for both? Only while several tenants are at work: one alone wants the device kept busy.
void sched_relief_due(void *s);
// So many more bytes of results wait to be taken by the tenant's clients, or fewer. Who has as many
// as all may still have gets no place on a device before some are (cfg.reply_bytes).
void sched_unread(struct sched *s, struct tenant *t, int64_t bytes);
bool sched_alone(const struct sched *s, int64_t expected_ns);
struct str digest_str(const struct digest *d);
