// SPDX-License-Identifier: Apache-2.0
// job_warm: a WARM job: a model is compiled before anybody runs it; one whose runs will be joined
// for one bucket after the other, each checked to have independent rows. Thread: loop.
#pragma once
#include "scheduler/job/job_inside.h"

// Rows of the table (job_table.c).
status_t warm_start(struct job *j, bool *later) MUST_CHECK; // the next bucket
status_t warm_check(struct job *j, struct delivery *d) MUST_CHECK;
void warm_end(struct job *j);
