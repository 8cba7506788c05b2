// SPDX-License-Identifier: Apache-2.0
// job_buffers: resident buffers inside the scheduler: what a call holds of them, the PUT and GET
// jobs, the table's tie to workers and clock. Thread: loop.
#pragma once
#include "scheduler/job/job_inside.h"

// Resident buffers that a call reads, makes and takes (job_buffers.c).
struct hold {
    struct sched *s;
    uint64_t job;
    VEC(struct buffer *) held; // read; one reference each
    VEC(struct buffer *) made; // reserved; one reference each
    VEC(struct handle *) lent; // donated handles
};
struct hold *hold_new(struct job *j);
// The call has ended: `consumed` the worker has taken, and after success everything lent is gone.
void hold_settle(struct hold *h, bool success, const uint64_t *consumed, size_t n_consumed);
// It went well and nobody wants what was made any more: hold_free lets the worker know.
void hold_abandon(struct hold *h);
void hold_free(struct hold *h); // what was made and has no handle goes; NULL is fine

// A handle for n buffers, or a tuple of them, in the job's tenant and with its lease.
const char *job_handle(struct job *j, struct buffer *const *b, size_t n, bool tuple);
// Rows of the table (job_table.c).
status_t put_want(const struct job *j, struct task *t) MUST_CHECK;
status_t put_send(struct job *j) MUST_CHECK;
status_t get_start(struct job *j, bool *later) MUST_CHECK; // BUFFERS
status_t get_want(const struct job *j, struct task *t) MUST_CHECK;
status_t get_send(struct job *j) MUST_CHECK;
status_t get_lost_buffers(const struct job *j) MUST_CHECK; // one of them is gone

bool buffer_alive(const struct sched *s, const struct buffer *b); // its worker still has it
int64_t device_memory(const struct worker *w);
void sched_lease_over(void *arg);                             // the lease timer's
void sched_buffer_dropped(void *ctx, const struct buffer *b); // the table's
