// SPDX-License-Identifier: Apache-2.0
// op: one piece of work that several jobs may wait for (ingest, look up or compile, prepare, ask a
// target): found by its name while it runs, so it is done once (single flight). What it finds it
// hands to each waiter by job_deliver; op_end wakes them. Thread: loop, except *_work functions.
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include "scheduler/sched_inside.h"

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
    const char *differs;                                    // of a verify
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
void op_ingest_start(struct job *j); // the job's source
// Rows of the table (job_table.c).
status_t op_exe_start(struct job *j, bool *later) MUST_CHECK;    // the job's key
status_t op_verify_start(struct job *j, bool *later) MUST_CHECK; // the executable, made anew
void op_prepare_start(struct job *j); // the job's exe and weights in the job's worker
