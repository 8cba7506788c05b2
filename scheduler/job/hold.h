// SPDX-License-Identifier: Apache-2.0
// hold: what a call holds of resident buffers, and whether those are still there. Thread: loop.
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

bool buffer_alive(const struct sched *s, const struct buffer *b); // its worker still has it
int64_t device_memory(const struct worker *w);
void sched_lease_over(void *arg);                             // the lease timer's
void sched_buffer_dropped(void *ctx, const struct buffer *b); // the table's
