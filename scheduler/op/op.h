// SPDX-License-Identifier: Apache-2.0
// op: one piece of work that several jobs may wait for (ingest, look up or compile, prepare, ask a
// target): found by its name while it runs, so it is done once (single flight). What it finds it
// hands to each waiter by job_deliver; op_end wakes them. Thread: loop, except *_work functions.
#pragma once
#include "base/arena.h"
#include "base/store/store.h"
#include "base/vec.h"
#include "scheduler/sched_inside.h"

enum op_kind { OP_INGEST, OP_EXE, OP_PREPARE, OP_TARGET, OP_PULL };
struct op {
    enum op_kind kind;
    struct sched *s;
    char name[200]; // in sched.ops while `listed`
    bool listed, ending;
    VEC(struct job *) waiters;
    struct arena arena;
    struct task task;
    void (*placed)(struct op *op); // it has its slot
    struct slot slot;
    uint64_t call;
    int64_t start_ns;
    status_t st; // outcome of pool work:
    status_t (*work)(struct op *op);
    void (*then)(struct op *op, status_t st);
    status_t said; // by the worker, while the bytes it read are looked at again; OP_INGEST
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
    const char *options, *target_id, *device_kind, *build_id;
    uint32_t kernel_abi;
    const char *differs;                                    // of a verify
    bool hit, damaged, compiling, loaded, verify, expected; // OP_EXE: a device was told
    bool tuned;               // OP_EXE: there is a record of that, which a LOAD brings
    Hlod__V1__Tuning *tuning; // OP_PREPARE: of the executable to be loaded, or NULL
    uint64_t epoch;           // of the worker, OP_PREPARE and expected
    int target_index;         // of the worker in the pool, OP_PREPARE and expected
    int fds[FRAME_MAX_FDS];   // of the reply
    int n_fds;
    Hlod__Wire__IngestReply *ingest;
    Hlod__Wire__CompileReply *compile;
    Hlod__Wire__Blob artifact; // to be loaded, OP_PREPARE
    int64_t prepared_bytes;
    VEC(struct shape_use) shapes; // of the program, OP_EXE
    bool counts;                  // looks how many there are
    // OP_EXE, by op_remote.c:
    struct look *look;  // under way
    int looks;          // that were begun
    bool claimed;       // the remotes wait to hear what came of it
    const char *remote; // that gave it; NULL: none
    void (*remote_then)(struct op *op, Hlod__V1__ExecutableInfo *found, bool here);
    void (*remote_leave)(struct op *op); // at its end; NULL: nobody was asked
    VEC(Hlod__V1__RemoteAnswer *) answers;
};
// The job waits for the op of this name. True: it is new, and the caller's to start.
bool op_wait(struct job *j, enum op_kind kind, const char *name, struct op **out);
// Waits for a compile worker for devices of this kind, "" = any; then op->placed.
void op_queue(struct op *op, const char *device, struct tenant *tenant, int32_t priority);
void op_leave(struct op *op,
              struct job *j); // an op without waiters is given up where that saves work
// work on the pool; then takes what it gave, on the loop.
void op_work(struct op *op, status_t (*work)(struct op *op),
             void (*then)(struct op *op, status_t st));
void op_measure_due(void *sched);        // its measure_timer's
void op_end(struct op *op, status_t st); // takes st; wakes the waiters and frees the op
void op_quarantined(const struct op *op, status_t why); // its executable; borrows why
void op_tell(struct op *op, Hlod__V1__Event *e);        // to every waiter
// The last frame of op's call came, or its worker was lost: the worker's place is free again; takes
// the frame's descriptors. False: the op has ended with `lost`, or waits for another worker.
bool op_answered(struct op *op, struct frame *f, status_t lost);
// The message that a frame has, and its status into *st; NULL: there is no frame, and *st stays, or
// it cannot be read. The caller's to free.
void *wire_reply(const ProtobufCMessageDescriptor *d, const struct frame *f, status_t *st);
// An object of the store as a blob of a message: its descriptor is fds[*n_fds], then the caller's.
status_t wire_blob_open(struct store *s, enum store_kind kind, struct digest d,
                        enum store_check look, int *fds, int *n_fds,
                        Hlod__Wire__Blob *out) MUST_CHECK;
status_t blob_map(const Hlod__Wire__Blob *b, const int *fds, int n_fds, struct span *out,
                  void **out_base, size_t *out_base_bytes) MUST_CHECK;

// The remotes are asked for the op's executable; then `then`: with its record, which is the op's to
// take over; or NULL. here: look here again. False: there are no remotes, or they were asked often
// enough.
bool op_remote_start(struct op *op,
                     void (*then)(struct op *op, Hlod__V1__ExecutableInfo *found, bool here));

// The job's target: sched_target has it once the op ends well. INVALID_ARGUMENT at once for a name
// that means nothing here.
status_t op_target_start(struct job *j) MUST_CHECK;
void op_ingest_start(struct job *j); // the job's source
// The bytes of the job's model, from another node of the cluster; then the job looks for it again.
// False: no name here stands for it, or that was done already.
bool op_pull_start(struct job *j);
// Rows of the table (job_table.c).
status_t op_exe_start(struct job *j, bool *later) MUST_CHECK;    // the job's key
status_t op_verify_start(struct job *j, bool *later) MUST_CHECK; // the executable, made anew
void op_prepare_start(struct job *j); // the job's exe and weights in the job's worker
