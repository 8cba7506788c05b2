// SPDX-License-Identifier: Apache-2.0
// job_inside: a job's inside, for files of this folder. job_table.c has the rows that a job goes
// through, job.c its life, job_call.c its calls of workers: these three write struct job. Others
// read it and hand over what they found by job_deliver; a kind's own files fill its part of the
// union and its fields of the result. Thread: loop.
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
struct plan_run;
struct run_call;
struct job {
    struct sched *s;
    struct job *prev, *next;
    struct arena arena;
    struct job_spec spec;
    struct job_result r;
    struct tenant *tenant;
    struct job *parent; // JOB_STEP; its slot is the parent's
    const char *owner;  // must own what is used; NULL: all may be
    int64_t start_ns, deadline_ns;
    struct loop_timer *deadline;
    bool finished, cancelled, free_later;
    bool held;              // a posted step or pool work uses the job
    status_t refused;       // found at the start, told in the first step
    bool admitted;          // by its tenant's quotas, for so many bytes
    int64_t admitted_bytes; // then
    int64_t unread_bytes;   // of the result, until job_free

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
    struct seat seat;      // of ROW_SLOT
    struct run_call *call; // ROW_REPLY, in flight
    int64_t sent_ns;       // then
    struct memfd *out;     // where the results lie; r.fds[0] then, or NULL
    union {                // what came back; owned
        ProtobufCMessage *any;
        Hlod__Wire__RunReply *run;
        Hlod__Wire__InspectReply *inspect;
        Hlod__Wire__RunPlanReply *plan;
        Hlod__Wire__GetReply *get;
    } reply;

    union { // by kind
        struct {
            const struct job_input **order; // inputs as the executable has them
            struct job_parts *parts;        // of the program that are over; or NULL
            struct batch *batch;            // it was run in, or waits for
        } run;
        struct {
            size_t n_buckets;      // begun
            const char *constants; // of the last of them that has several rows
            Hlod__V1__ShapeBinding **shapes;
            size_t n_shapes; // of the one under way; 0 = those of the request
        } warm;
        struct plan_run *plan;
        VEC(struct buffer *) kept; // results of PUT and GET; references
    };
};

// ---- job_table.c

struct delivery {                  // of one row; what it has no use for is zero
    struct model *model, *weights; // MODEL: borrowed. weights alone: they are known, the model not
    const struct job_key *key;     // KEY
    struct exe *exe;               // EXECUTABLE: borrowed
    bool hit;
    const char *differs;            // COMPARED
    const struct job_input **order; // CHECKED
    const Hlod__V1__Signature *names;
    const uint32_t *outputs;
    size_t n_outputs;
    const struct seat *seat; // SLOT: taken over
    ProtobufCMessage *reply; // REPLY: taken; NULL: the result is not the job's own
    const char *timing;      // what the time since then is told as; NULL: it is not
    int64_t since_ns;
};
// The job has this row now. Whoever delivers wakes it by job_advance, unless a row's `start` does
// it.
void job_deliver(struct job *j, enum job_row row, const struct delivery *d);
struct kind { // what it goes through, and what is its own of that; NULL where there is nothing
    const char *name;                                      // "run"
    uint32_t rows;                                         // bits
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
    void (*detach)(struct job *j);                      // it ends: what is under way goes
    void (*free)(struct job *j);
};
const struct kind *job_kind(const struct job *j);
void op_deliver(struct op *op, enum job_row row, const struct delivery *d); // to every waiter
void job_advance(struct job *j); // starts the first row that it lacks, or ends it
bool job_has(const struct job *j, enum job_row row);
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
void job_leave_slot(struct job *j);         // and what was prepared there
const char *job_doing(const struct job *j); // for an error
void jobs_wake(struct sched *s);            // a worker came, went or became free

// ---- job.c

void job_finish(struct job *j, status_t st); // takes st
void job_retire(struct job *j);              // a JOB_STEP ends, without a word
void job_event(struct job *j, Hlod__V1__Event *e);
void job_event_queued(struct job *j);
void job_timing(struct job *j, const char *name, int64_t ns); // it ends now
void job_timing_to(struct job *j, const char *name, int64_t ns, int64_t end_ns);
void job_own_executable(struct job *j);         // it is its tenant's, by its model
void job_hold(struct job *j);                   // work off the loop uses it
bool job_held_no_more(struct job *j);           // false: it has ended, and may be freed
void job_wait_op(struct job *j, struct op *op); // NULL: it does not any more
void job_wait_worker(struct job *j);
void job_choose_device(struct job *j, const char *kind); // for "auto"
void job_count_out(struct job *j, int64_t bytes);        // a device gave so many
void job_drop_result(struct job *j);                     // a reply's descriptors and memory
int job_replicas(const struct job *j); // 1 and up
// The job's inputs, and shapes, that are called by an alias get the model's own names.
void job_rename_inputs(struct job *j);
const Hlod__V1__TensorSpec *job_signature_input(const Hlod__V1__Signature *sig, const char *name);
struct seat *job_seat(struct job *j); // where it works: its own or its plan's

// ---- job_resolve.c, job_bind.c

status_t job_resolve(struct job *j, bool *later) MUST_CHECK; // digest -> model, exe
status_t job_bind(struct job *j, bool *later) MUST_CHECK;    // shapes -> key
// A run by an executable's key: the values it was made for must be those given.
status_t job_same_values(struct job *j, const struct job_key *k) MUST_CHECK;
// Kind of the devices that its key would be made for; NULL = none has said hello.
const char *job_device_kind(struct job *j);
// "auto", and no kind was chosen yet.
static inline bool job_wants_auto(const struct job *j) {
    return j->spec.device && !strcmp(j->spec.device, "auto");
}
// The kind that history finds best for it with so many rows in dimension 0 of each input; "": none
// is up, any will do.
const char *job_auto_device(struct job *j, int64_t rows);
