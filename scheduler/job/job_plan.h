// SPDX-License-Identifier: Apache-2.0
// job_plan: the inside of a PLAN job, shared by job_plan.c (up to the call) and job_plan_run.c (the
// call and what comes of it). Thread: loop.
#pragma once
#include "scheduler/job/job_buffers.h"
#include "scheduler/job/job_run.h"
#include "scheduler/job/plan.h"

struct pvalue {          // what steps may read: a tensor of the request, or a resident buffer
    struct job_input in; // a buffer's has its handle
    struct buffer *held; // a reference, or NULL
};
struct pinput { // an input of the request: one value, or a tuple's
    int *values;
    size_t n;
    bool tuple;
};
struct parg { // of a step, tuples expanded
    const char *name;
    int value;          // or -1
    int step;           // or -1
    const char *output; // of that step
    uint32_t leaf;
};
struct pstep {
    const struct job_plan_step *spec;
    struct job *job; // JOB_STEP
    VEC(struct parg) args;
    struct job_input *inputs; // [args.n] what the job was told
    uint32_t *order;          // [n_order] args in signature order
    size_t n_order;
};
struct pout {
    const char *name;
    int step;
    uint32_t leaf;
    bool keep;
    const Hlod__V1__TensorSpec *type;
};
struct plan_run {
    VEC(struct pvalue) values;
    struct pinput *inputs; // [spec.n_inputs]
    struct pstep *steps;
    size_t n_steps;
    VEC(struct pout) outs;
    VEC(struct handle *) lent; // to be donated
    int32_t pinned;            // 1 + the worker that holds the buffers; 0 = any
    const char *device;
    int64_t compiled_ns, prepare_ns;
    bool prepared_some;
    bool placing; // plan_prepare is at it
};
// Rows of the table (job_table.c).
status_t plan_start(struct job *j, bool *later) MUST_CHECK; // STEPS: has each step compiled
status_t plan_check(struct job *j, struct delivery *d) MUST_CHECK;
status_t plan_want(const struct job *j, struct task *t) MUST_CHECK;
status_t plan_prepare(struct job *j, bool *later) MUST_CHECK;
status_t plan_send(struct job *j) MUST_CHECK;
status_t plan_lost_buffers(const struct job *j) MUST_CHECK; // something that it is to read is gone
struct digest plan_work(const struct job *j);               // of its steps' keys, in order
void plan_unprepare(struct job *j);                         // its steps have no place any more
void plan_evicted(struct job *j);                           // the worker has let go of them
void plan_step_ready(struct job *step);                     // a JOB_STEP waits for its plan

void plan_detach(struct job *j); // the plan is over
void plan_free(struct job *j);
void plan_step_event(struct job *j, Hlod__V1__Event *e); // one tells its plan's owner
