// SPDX-License-Identifier: Apache-2.0
// job_inside: a job's inside, for files of this folder and op/. job_table.c has the rows that a job
// goes through. Only job.c writes struct job (`make lint` looks for others); everybody reads it,
// and hands over what was found by job_deliver and the other functions of job.c below. Two things
// in it are others' to write: its arena, from which all take memory that lives as long as the job,
// and what `own` points to, a struct that the kind's files declare. Thread: loop.
#pragma once
#include <string.h>

#include "base/arena.h"
#include "scheduler/job/job.h"
#include "scheduler/job/key.h"
#include "scheduler/op/op.h"

enum job_row { // in the order in which a job has them; job_table.c
    ROW_MODEL,
    ROW_JOINED,
    ROW_BUCKET,
    ROW_KEY,
    ROW_EXECUTABLE,
    ROW_STEPS,
    ROW_BUFFERS,
    ROW_CHECKED,
    ROW_COMPARED,
    ROW_SLOT,
    ROW_PREPARED,
    ROW_REPLY,
    ROWS
};
#define ROW_BIT(row) (1u << (row))
struct job_key { // what its executable is found by
    struct digest digest;
    struct key_parts parts;
    Hlod__Wire__Binding **bindings;
    size_t n_bindings;
    const char *device_kind;
    struct digest work; // program, shapes and options, whatever the target
    Hlod__V1__ShapeBinding **assumed;
    size_t n_assumed; // shapes that the request left open
};
struct job {
    struct sched *s;
    struct job *prev, *next;
    struct arena arena;
    const struct job_spec *spec; // as it was asked for
    struct job_result r;
    struct tenant *tenant;
    struct job *parent; // JOB_STEP; its slot is the parent's
    struct away *away;  // where it went; it does not leave again
    const char *owner;  // must own what is used; NULL: all may be
    int64_t start_ns, timeout_ms, deadline_ns;
    struct loop_timer *deadline;
    bool finished, free_later;
    bool held;              // a posted step or pool work uses the job
    status_t refused;       // found at the start, told in the first step
    bool admitted;          // by its tenant's quotas, for so many bytes
    int64_t admitted_bytes; // then
    int64_t unread_bytes;   // of the result, until job_free

    // What of its spec is understood otherwise than it was said.
    struct digest subject;           // spec.model; or the source that an executable's digest led to
    const char *device;              // spec.device; or the kind that was chosen for "auto"
    const struct job_input *inputs;  // spec.inputs, under the model's own names once it has MODEL
    Hlod__V1__ShapeBinding **shapes; // spec.compile.shapes, the same; COMPILE

    // Where it stands: the rows it has as bits, the first it lacks, how often it went back.
    uint32_t has;
    enum job_row at;
    int retries;
    bool waits_for_worker, woken;

    // What its rows have.
    struct model *model, *weights; // weights: whose to prepare; owned references
    bool reread;                   // no record of the model is believed
    struct job_key key;
    struct exe *exe;
    struct op *op;         // a row waits for it
    struct task task;      // ROW_SLOT
    struct slot slot;      // of ROW_SLOT
    struct run_call *call; // ROW_REPLY, in flight
    int64_t sent_ns;       // then
    struct memfd *out;     // where the results lie; r.fds[0] then, or NULL
    union {                // what came back; owned
        ProtobufCMessage *any;
        Hlod__Wire__RunReply *run;
        Hlod__Wire__InspectReply *inspect;
        Hlod__Wire__RunPlanReply *plan;
        Hlod__Wire__GetReply *get;
        Hlod__Wire__TrainReply *train;
        Hlod__Wire__TrainedReply *trained;
        Hlod__Wire__TuneReply *tune;
        Hlod__Wire__ExportReply *export;
    } reply;

    union {                    // the kind's own (kind.own bytes, zero at the start), in the arena
        struct run_own *run;   // job_run.h
        struct warm_own *warm; // the same
        struct plan_run *plan; // job_plan.h
        struct kept *kept;     // job_buffers.h: PUT, GET
        struct export_own *export; // job_run.h
        void *own;
    };
};

// ---- job_table.c

struct delivery {                  // of one row; what it has no use for is zero
    struct model *model, *weights; // MODEL: borrowed. weights alone: they are known, the model not
    const struct job_key *key;     // KEY
    struct exe *exe;               // EXECUTABLE: borrowed
    bool hit;                      // MODEL, EXECUTABLE: it was here
    const char *remote;            // EXECUTABLE: that gave it; NULL: none
    const char *differs;           // COMPARED
    const Hlod__V1__Signature *names; // CHECKED
    const uint32_t *outputs;
    size_t n_outputs;
    const struct slot *slot; // SLOT: taken over
    ProtobufCMessage *reply; // REPLY: taken; NULL: the result is not the job's own
    const char *timing;      // what the time since then is told as; NULL: it is not
    int64_t since_ns;
};
struct kind { // what it goes through, and what is its own of that; NULL where there is nothing
    const char *name;                                      // "run"
    uint32_t rows;                                         // bits
    size_t own;                                            // bytes of job.own
    status_t (*check)(struct job *j, struct delivery *d);  // CHECKED
    status_t (*want)(const struct job *j, struct task *t); // SLOT: what place, beside whose
    status_t (*prepare)(struct job *j, bool *later);       // PREPARED
    status_t (*send)(struct job *j);                       // REPLY
    void (*end)(struct job *j);                            // it has its last row; NULL: it is over
    void (*unprepare)(struct job *j);                      // PREPARED is given up
    void (*evicted)(struct job *j);                  // its worker has let go of what it was to run
    status_t (*lost)(const struct job *j);           // buffers that it waits with are gone
    const char *(*doing)(const struct job *j);       // NULL: as the row says
    void (*tell)(struct job *j, Hlod__V1__Event *e); // who hears of events beside its owner
    status_t (*note)(const struct job *j, status_t st); // to how it ended; takes st
    struct away *(*leave)(struct job *j, status_t st);  // instead of ending so (op/away.h)
    void (*detach)(struct job *j);                      // it ends: what is under way goes
    void (*free)(struct job *j);
};
const struct kind *job_kind(const struct job *j);
extern const struct row {
    bool (*have)(const struct job *j);             // NULL: since it was delivered
    status_t (*start)(struct job *j, bool *later); // later: it comes, the job may be gone by now
    void (*forget)(struct job *j);                 // of job.c
    const char *doing;
    int retries;
} job_rows[ROWS];
bool job_has(const struct job *j, enum job_row row);
enum job_row job_next_row(const struct job *j); // the first that it lacks; ROWS: it has its last
const char *job_doing(const struct job *j);     // for an error

// ---- job.c: rows had and given up

// The job has this row now. Whoever delivers wakes it by job_advance, unless a row's `start` does
// it.
void job_deliver(struct job *j, enum job_row row, const struct delivery *d);
void op_deliver(struct op *op, enum job_row row, const struct delivery *d); // to every waiter
void job_advance(struct job *j); // starts the first row that it lacks, or ends it
// What the job has from this row on does not hold: it goes back there, if it did not too often.
// False: nothing is changed. The only rule for retries.
bool job_invalidate(struct job *j, enum job_row row) MUST_CHECK;
// The work itself goes on from this row: the next bucket of a WARM, the next part of a program.
void job_repeat(struct job *j, enum job_row row);
// Its call ended with st. True: it is tried again, and st and the reply are dropped: from another
// slot where the worker was lost before it began, from the loading where it had let go of the
// executable. Else st is the caller's.
bool job_call_again(struct job *j, status_t st, bool lost, bool began) MUST_CHECK;
// Its call was lost with a compilers' relief, and it waits for another worker: not a retry. True:
// takes `lost`.
bool job_call_moved(struct job *j, const struct worker *w, status_t lost) MUST_CHECK;
void job_leave_slot(struct job *j); // and what was prepared there
void jobs_wake(struct sched *s);    // a worker came, went or became free
// Rows' `start` and `forget`, for the table.
status_t job_start_slot(struct job *j, bool *later) MUST_CHECK;
void job_forget_model(struct job *j);
void job_forget_executable(struct job *j);
void job_forget_slot(struct job *j);
void job_forget_prepared(struct job *j);
void job_forget_reply(struct job *j);

// ---- job.c: its life and what others tell it

void job_finish(struct job *j, status_t st); // takes st
void job_retire(struct job *j);              // a JOB_STEP ends, without a word
void job_event(struct job *j, Hlod__V1__Event *e);
void job_event_queued(struct job *j);
// Its model: read since then, or known before (0).
void job_event_ingest(struct job *j, const struct model *m, int64_t since_ns);
void job_timing(struct job *j, const char *name, int64_t ns); // it ends now
void job_timing_to(struct job *j, const char *name, int64_t ns, int64_t end_ns);
// The result as the kind completes it: a changed copy of job.r, with no timing told in between.
void job_answer(struct job *j, const struct job_result *r);
void job_own_executable(struct job *j);         // it is its tenant's, by its model
void job_hold(struct job *j);                   // work off the loop uses it
bool job_held_no_more(struct job *j);           // false: it has ended, and may be freed
void job_wait_op(struct job *j, struct op *op); // NULL: it does not any more
void job_joined(struct job *j);                 // a compile that is under way
void job_wait_worker(struct job *j);
void job_choose_device(struct job *j, const char *kind);                       // for "auto"
void job_count_out(struct job *j, Hlod__Wire__WireTensor *const *v, size_t n); // device gave them
void job_used(struct job *j, int64_t ns);        // of its worker, by its running
void job_used_before(struct job *j, int64_t ns); // and by loading, preparing
struct slot job_take_slot(struct job *j);        // its place is the caller's now
int job_replicas(const struct job *j);           // 1 and up
// Of its call (job_call.c): it was sent; its last frame, or loss, came. `out`: where the worker was
// told to put the results, or NULL; taken.
void job_sent(struct job *j, struct run_call *c);
void job_answered(struct job *j, struct frame *f, struct memfd *out);
// The reply with its memory, which then is not the job's any more. *fd and *memory stay as they are
// where it has none.
Hlod__Wire__RunReply *job_take_reply(struct job *j, int *fd, struct memfd **memory);

// ---- job_report.c: what is told of a job that ends. Borrows st

status_t job_at_assumed_sizes(const struct job *j, status_t st) MUST_CHECK; // takes st
// To the log and GET /v1/runs. What is told, in the job's arena; NULL: nothing.
const Hlod__V1__RunRecord *job_report(struct job *j, const char *kind, status_t st);

// ---- job_resolve.c, job_bind.c

status_t job_resolve(struct job *j, bool *later) MUST_CHECK; // digest -> model, exe
status_t job_bind(struct job *j, bool *later) MUST_CHECK;    // shapes -> key
// A run by an executable's key: the values it was made for must be those given.
// How the sizes of a request bind (key.h): of ONNX's the names of dimensions are but names.
unsigned job_key_how(const struct job *j, bool complete);
status_t job_same_values(struct job *j, const struct job_key *k) MUST_CHECK;
// Kind of the devices that its key would be made for; NULL = none has said hello.
const char *job_device_kind(struct job *j);
// "auto", and no kind was chosen yet.
static inline bool job_wants_auto(const struct job *j) {
    return j->device && !strcmp(j->device, "auto");
}
static inline bool job_takes_inputs(const struct job *j) {
    return j->spec->kind == JOB_RUN || j->spec->kind == JOB_STEP;
}
static inline struct batch *job_leads(const struct job *j) {
    return j->spec->kind == JOB_RUN ? j->spec->run.leads : NULL;
}
// The kind that history finds best for it with so many rows in dimension 0 of each input; "": none
// is up, any will do.
const char *job_auto_device(struct job *j, int64_t rows);
