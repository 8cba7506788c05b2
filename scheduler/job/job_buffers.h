// SPDX-License-Identifier: Apache-2.0
// job_buffers: PUT and GET jobs; handles that jobs give away. Thread: loop.
#pragma once
#include "scheduler/job/hold.h"
#include "scheduler/job/job_inside.h"

struct kept {
    VEC(struct buffer *) buffers; // results of PUT and GET; references
};
// A handle for n buffers, or a tuple of them, in the job's tenant.
const char *job_handle(struct job *j, struct buffer *const *b, size_t n, bool tuple,
                       int64_t lease_ms);
// Rows of the table (job_table.c).
status_t put_want(const struct job *j, struct task *t) MUST_CHECK;
status_t put_send(struct job *j) MUST_CHECK;
status_t get_start(struct job *j, bool *later) MUST_CHECK; // BUFFERS
status_t get_want(const struct job *j, struct task *t) MUST_CHECK;
status_t get_send(struct job *j) MUST_CHECK;
status_t get_lost_buffers(const struct job *j) MUST_CHECK; // one of them is gone
void kept_free(struct job *j);
