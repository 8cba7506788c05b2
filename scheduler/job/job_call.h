// SPDX-License-Identifier: Apache-2.0
// job_call: a job's call of the worker it has a place in: sent, given up with its job, over.
// Thread: loop.
#pragma once
#include "scheduler/job/job_inside.h"

struct hold; // hold.h
// A call of a job's. It outlives a cancelled job: its reply frees the worker's place.
struct run_call {
    struct job *j; // NULL when nobody waits any more
    struct sched *s;
    struct worker *w;
    struct slot slot; // the job's, once nobody waits
    uint64_t id;
    bool began; // the worker said that it runs
    int64_t flight_bytes;
    struct batch *batch;             // whose members' memory it reads; or NULL
    void (*let_go)(struct batch *b); // then
    struct memfd *in, *out; // what the worker may read and write until the call ends; or NULL
    struct hold *hold;      // resident buffers that the call is about; or NULL
};

struct run_call *job_call_new(struct job *j); // in the job's slot; not sent yet
void job_call_drop(struct run_call *c);       // nor ever; its hold is settled
void job_call_send(struct run_call *c, uint32_t type, const ProtobufCMessage *m, const int *fds,
                   int n_fds, pool_reply_fn fn);
// The worker began with it: its job's owner hears.
void job_call_running(struct run_call *c);
// The last frame of a call, or its loss: the call is over; what it brought goes to its job (fds
// too). NULL when nobody waits any more: then `st`, how it ended, is dropped. The hold is the
// caller's to settle, before.
struct job *job_call_ended(struct run_call *c, struct frame *f, status_t st);
