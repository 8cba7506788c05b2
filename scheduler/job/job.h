// SPDX-License-Identifier: Apache-2.0
// job: one request's way through ingest, compile, prepare and run (D13), doing whichever are
// missing and telling its owner as it goes. What several jobs need at once is done once. A job ends
// exactly once: with its result, an error, its deadline, or job_cancel. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "proto/frame.h"
#include "proto/hlod.pb-c.h"
#include "proto/numbers.h"
#include "proto/wire.pb-c.h"
#include "scheduler/job/batch.h"
#include "scheduler/sched.h"

struct batch;
struct buffer;
struct memfd;
struct plan_spec;

// WARM: ingest, and compile unless the model has dimensions that only a request fixes.
// VERIFY: compile an executable anew, compare with what is stored, keep nothing.
// PLAN: steps in one device worker; also a run with resident buffers, a plan of one step. PUT, GET:
// resident buffers. STEP: the scheduler's own, what a plan's step needs before the plan can run.
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
    JOB_STEP
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
struct job_spec { // everything borrowed until on_done
    enum job_kind kind;
    struct digest model; // of a source or an executable
    bool has_weights;
    struct digest weights;           // source whose weights to use with an executable
    const char *format;              // hint for ingest
    Hlod__V1__ShapeBinding **shapes; // JOB_COMPILE
    size_t n_shapes;
    const struct job_input *inputs; // JOB_RUN, JOB_PLAN, JOB_PUT
    size_t n_inputs;
    int payload_fd;        // memfd with the inputs, or -1: they are in payload_bytes
    struct memfd *payload; // whose payload_fd is, where it is kept for reuse; else NULL
    struct span payload_bytes;
    char **outputs;
    size_t n_outputs;
    const Hlod__V1__CompileOptions *options; // NULL = defaults
    const char *device, *stage;              // "" where not given
    const char *target;                      // JOB_COMPILE: instead of a device; NULL or "" = none
    int64_t timeout_ms;                      // 0 = the default
    const char *tenant;                      // whose share and quotas; NULL = "default"
    int32_t priority;                        // higher first
    const char *trace; // W3C trace id (32 hex digits) that the client gave, or NULL
    uint32_t repeat;
    bool sees_all; // the caller may use what is not its tenant's
    bool profile, no_compile;
    bool quiet;       // nobody is told that it runs
    const char *name; // of the model, and which version, where it was asked for by name
    int64_t version;
    const char *space;        // whose name that is
    struct batching batching; // JOB_RUN: may be joined with others; JOB_WARM: compile its buckets
    struct batch *leads;      // the scheduler's own
    struct plan_spec *plan;   // JOB_PLAN: resolved (plan.h)
    int64_t lease_ms;         // of the handles that are made: 0 = the default, -1 = none
    bool tuple;               // one handle for all of them
    const char *handle;       // JOB_GET
    int64_t part_offset, part_bytes;                 // JOB_GET: of its contents; 0, 0 = all
    void (*on_event)(void *ctx, Hlod__V1__Event *e); // optional; the event is borrowed, t_ms is set
    void (*on_done)(
        void *ctx, struct job *j,
        status_t st); // takes st; the result is valid until job_free, which the owner calls
    void *ctx;
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
    const Hlod__Wire__IngestReply *model; // NULL if not reached
    const Hlod__V1__ExecutableInfo *exe;  // NULL if not reached
    struct digest source;
    bool ingest_hit, cache_hit, joined;
    const char *device;
    const Hlod__Wire__RunReply *run; // JOB_RUN
    int fds[FRAME_MAX_FDS];          // of run's or inspect's blobs; the job's
    int n_fds;
    struct memfd *memory; // whose descriptor fds[0] is, where the daemon gave it; or NULL
    // JOB_PLAN, JOB_PUT, JOB_GET.
    const struct job_step_result *steps; // as they ran
    size_t n_steps;
    struct buffer *const *held; // PUT, GET: the buffers
    size_t n_held;
    const char *const *handles; // PUT, PLAN: of those, of the outputs; NULL where it is not kept
    const char *tuple;          // one for all, or NULL
    bool part;                  // GET: its output is only so many bytes
    int64_t part_bytes;
    const Hlod__V1__Signature *names; // JOB_RUN: of the tensors in and out, sequences flattened
    const uint32_t *outputs;          // names' index of each of run->outputs
    size_t n_outputs;
    int64_t batch_rows, rows;         // that ran together, and this job's own; 0 = not batched
    const Hlod__Wire__Blob *text;     // JOB_INSPECT
    Hlod__V1__ShapeBinding **assumed; // inputs of which the request left sizes open
    size_t n_assumed;
    const char *differs;           // JOB_VERIFY: the first part that does, "" for none
    Hlod__V1__Timing *timings[96]; // in order, of all parts; the last is total
    size_t n_timings;
};
const struct job_result *job_result(const struct job *j);
int64_t job_start_ns(const struct job *j);
