// SPDX-License-Identifier: Apache-2.0
// jobs: what calls about batch jobs and trainings share.
#pragma once
#include "client/hlod_jobs.h"
#include "client/lib/async.h"

// Tensors of a job's message, which borrow from v.
Hlod__V1__JobTensor **jobs_tensors(struct arena *a, const struct hlod_job_tensor *v, size_t n);
// Sent and answered, and the arena done: the public object; NULL after an error, or where there is
// none.
void *jobs_call(struct hlod *h, struct arena *a, const struct wire_request *q, wire_finish finish);
status_t jobs_submitted(struct wire_reader *r,
                        void **out) MUST_CHECK; // SubmitJobsReply -> hlod_submitted
status_t jobs_nothing(struct wire_reader *r, void **out) MUST_CHECK; // drops the reply
