// SPDX-License-Identifier: Apache-2.0
// job_parts: runs of programs whose sizes their own values decide (docs/decisions/0022). Such a
// program runs in parts, each an executable of its own: the first results of a part are bound like
// the values of an input and make the next part's key; the others are its last inputs. Thread:
// loop.
#pragma once
#include "scheduler/job/job_inside.h"

// The part after which another comes.
static inline bool exe_is_open(const Hlod__V1__ExecutableInfo *x) {
    return x->part && x->part->sizes > 0;
}
// Refuses what does not go with parts: batches, replicas, plans, a later part by itself.
status_t job_check_part(struct job *j, struct delivery *d) MUST_CHECK;
// The job has the reply of an open part: takes it with its memory, and the job goes back to the
// next part's key. INTERNAL: a reply that does not fit.
status_t job_next_part(struct job *j) MUST_CHECK;
// What the part before left: how many tensors, their bytes; into `to` as wire tensors of descriptor
// `fd` (from 1), which is job_parts_fd; -1 = they are in the message.
size_t job_carried(const struct job *j);
int64_t job_carried_bytes(const struct job *j);
int job_parts_fd(const struct job *j);
void job_carry(struct job *j, uint32_t fd, Hlod__Wire__WireTensor **to);
// The last part has run: all parts as steps of *r, and in the reply's times those before it.
void job_tell_parts(struct job *j, struct job_result *r);
void job_drop_parts(struct job *j); // job_free's
// Why the compile of a later part was refused, with the sizes that it was for. Takes st.
status_t job_note_parts(const struct job *j, status_t st) MUST_CHECK;
