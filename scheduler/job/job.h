// SPDX-License-Identifier: Apache-2.0
// job: one request's way through ingest, compile, prepare and run (D13), doing whichever are
// missing and telling its owner as it goes. What several jobs need at once is done once. A job ends
// exactly once: with its result, an error, its deadline, or job_cancel. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "proto/frame.h"
#include "proto/numbers.h"
#include "proto/reason.h"
#include "proto/wire.pb-c.h"
#include "scheduler/job/batching.h"
#include "scheduler/sched.h"

struct batch;
struct buffer;
struct memfd;
struct plan_spec;
struct trace;

// WARM: ingest, and compile unless the model has dimensions that only a request fixes.
// VERIFY: compile an executable anew, compare with what is stored, keep nothing.
// PLAN: steps in one device worker; also a run with resident buffers, a plan of one step. PUT, GET:
// resident buffers. STEP: the scheduler's own, what a plan's step needs before the plan can run.
// TRAIN: a model as the program that trains it; or, after training, its file with new weights.
// TUNE: measures who is to run an executable's steps, and keeps that. EXPORT: a model as a package
// for browsers.
enum job_kind {
    JOB_COMPILE,
    JOB_RUN,
    JOB_INSPECT,
    JOB_INGEST,
    JOB_WARM,
    JOB_VERIFY,
    JOB_PLAN,
    JOB_PUT,
    JOB_GET,
    JOB_STEP,
    JOB_TRAIN,
    JOB_TUNE,
    JOB_EXPORT
};
struct job_input {
    const char *name; // "" = by position
    const struct dtype_row *dtype;
    int32_t rank;
    const int64_t *dims;
    int64_t offset, size; // in the payload
    int64_t elements;
    const char *handle; // instead of all but the name: a resident buffer; NULL or ""
    bool donate;
    bool resident; // its bytes are on the device: set by the scheduler
};
struct job;
// What a job is to do: what several kinds share, and a member for what only one kind has, which is
// read for that kind alone.
struct job_spec { // everything borrowed until on_done
    enum job_kind kind;
    struct digest model;                     // of a source or an executable
    const char *format;                      // hint for ingest
    const Hlod__V1__CompileOptions *options; // NULL = defaults
    const char *device;                      // "" where not given
    int64_t timeout_ms;                      // 0 = the default
    const char *tenant;                      // whose share and quotas; NULL = "default"
    int32_t priority;                        // higher first
    const struct trace *trace; // of the work that it is a part of, or NULL (scheduler/trace.h)
    bool sees_all;             // the caller may use what is not its tenant's
    bool quiet;                // nobody is told that it runs
    bool counted;              // in its tenant's quotas, by the node that sent it
    bool may_leave;            // RUN: another node may do it where there is no place here
    void (*on_event)(void *ctx, Hlod__V1__Event *e); // optional; the event is borrowed, t_ms is set
    // Takes st; the result is valid until job_free, which the owner calls.
    void (*on_done)(void *ctx, struct job *j, status_t st);
    void *ctx; // STEP: the plan's job

    // RUN, STEP, PLAN, PUT: the tensors that it brings. Other kinds do not look at them.
    const struct job_input *inputs;
    size_t n_inputs;
    int payload_fd;        // memfd with the inputs, or -1: they are in payload_bytes
    struct memfd *payload; // whose payload_fd is, where it is kept for reuse; else NULL
    struct span payload_bytes;
    // RUN, STEP, PLAN.
    bool has_weights;      // PLAN: its steps say it
    struct digest weights; // source whose weights to use with an executable
    uint32_t repeat;
    bool profile, no_compile;

    union {
        struct {
            Hlod__V1__ShapeBinding **shapes;
            size_t n_shapes;
            const char *target; // instead of a device; NULL or "" = none
        } compile;
        struct { // a run with resident buffers is a PLAN of one step
            char **outputs;
            size_t n_outputs;
            const char *name; // of the model, and which version, where it was asked for by name
            int64_t version;
            const char *space;        // whose name that is
            struct batching batching; // it may be joined with others
            struct batch *leads;      // the scheduler's own
        } run;
        struct {
            const char *stage;
        } inspect;
        struct {
            uint32_t budget_ms;
        } tune;
        struct {
            struct batching batching; // whose buckets to compile
        } warm;
        struct {
            struct plan_spec *spec; // resolved (plan.h)
            int64_t lease_ms;       // of the handles that are made: 0 = the default, -1 = none
            bool tuple;             // one handle for all of them
        } plan;
        struct {
            int64_t lease_ms; // as a plan's
            bool tuple;
        } put;
        struct {
            const char *handle;
            int64_t offset, bytes; // of its contents; 0, 0 = all
        } get;
        struct {
            const char *spec; // of compiler/train; NULL: the model with the state's weights
            Hlod__Wire__TrainRows **rows;
            size_t n_rows;
            struct digest state; // blob: a checkpoint, checked before; zero = none
        } train;
        struct {
            const Hlod__V1__ExportWebRequest *how; // its model is not looked at
        } export;
    };
};
struct job *job_start(struct sched *s,
                      const struct job_spec *spec); // on_done never fires from inside
void job_cancel(struct job *j); // on_done does not fire any more; still job_free it
void job_free(struct job *j);   // after on_done or job_cancel; NULL is fine

struct job_step_result {
    const char *name;
    const Hlod__V1__ExecutableInfo *exe;
    bool cache_hit;
    const Hlod__Wire__StepReply *reply;
};
struct job_result {
    uint64_t id;
    enum job_kind kind;
    const Hlod__Wire__IngestReply *model; // NULL if not reached
    const Hlod__V1__ExecutableInfo *exe;  // NULL if not reached
    struct digest source;
    bool ingest_hit, cache_hit;
    const char *remote; // of the cache, that gave the executable to this job; NULL: none
    const char *node;   // of the cluster, that ran it; NULL: this one
    const char *device;
    const Hlod__V1__RunRecord *record; // once it has ended; NULL: nothing is told of it
    int fds[FRAME_MAX_FDS];            // of the reply's blobs; the job's
    int n_fds;
    struct memfd *memory;          // whose descriptor fds[0] is, where the daemon gave it; or NULL
    Hlod__V1__Timing *timings[96]; // in order, of all parts; the last is total
    size_t n_timings;

    // RUN, PLAN, GET: the tensors that it gives.
    const Hlod__Wire__RunReply *reply; // NULL if not reached, and for other kinds
    const Hlod__V1__Signature *names;  // of the tensors out (RUN: and in), sequences flattened
    const uint32_t *outputs;           // names' index of each of reply->outputs
    size_t n_outputs;
    const struct job_step_result *steps; // PLAN, and a RUN in parts: as they ran
    size_t n_steps;

    union {
        struct {
            bool joined;                      // a compile that was under way
            Hlod__V1__ShapeBinding **assumed; // inputs of which the request left sizes open
            size_t n_assumed;
        } compile;
        struct {
            int64_t batch_rows, rows;  // that ran together, and this job's own; 0 = not batched
            const struct trace *batch; // that run's own, or NULL
        } run;
        struct {
            const Hlod__Wire__Blob *text;
        } inspect;
        struct {
            const char *differs; // the first part that does, "" for none
        } verify;
        struct {
            const Hlod__V1__Tuning *tuning;
        } tune;
        struct {
            const char *const *handles; // of the outputs; NULL where one is not kept
            const char *tuple;          // one for all, or NULL
        } plan;
        struct {
            const char *const *handles; // of the buffers, unless there is a tuple
            size_t n_handles;
            const char *tuple;
        } put;
        struct {
            bool part; // its output is only so many bytes
            int64_t part_bytes;
        } get;
        struct { // one of them; blobs are in fds
            const Hlod__Wire__TrainReply *program;
            const Hlod__Wire__Blob *model;
        } train;
        struct {
            const Hlod__Wire__Blob *package; // in fds
            const Hlod__V1__WebPackage *info;
            Hlod__V1__ShapeBinding **assumed; // as of a compile
            size_t n_assumed;
            bool hit; // it was kept
        } export;
    };
};
const struct job_result *job_result(const struct job *j);
const char *job_compiled_for(const struct job *j); // a kind of devices; "": not yet known
int64_t job_start_ns(const struct job *j);
