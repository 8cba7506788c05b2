// SPDX-License-Identifier: Apache-2.0
// batch: runs of one model joined into one (D17). A model's name may say that its rows are
// independent: then runs that ask for the same and differ in their rows only are laid one behind
// the other along dimension 0, run once by the executable of the next larger bucket (1, 2, 4, ...
// max), and cut apart again.
//
//   members join ---- delay passed, or full ----> a task in the queue, still joined
//     -> placed: closed; a job of its own (the leader) runs all of them -> each member's rows
//
// So a batch grows while devices are busy and costs at most `delay` while they are idle. Nothing is
// copied here: the worker gathers the rows from the members' own memory, and each result is a view
// of the leader's. A member that leaves costs the others nothing; the last one takes the leader
// with it. That rows are independent is shown by the compiler (compiler/batchable.h) for each
// bucket when the model is named, unless whoever names it says so himself. Thread: loop.
#pragma once
#include "base/status.h"
#include "proto/hlod.pb-c.h"
#include "proto/wire.pb-c.h"
#include "scheduler/job/batching.h"

struct batch;
struct job;
struct sched;
// Bounds, and that each input and output has the same symbol as dimension 0 and nowhere else, and
// a shape known beforehand. INVALID_ARGUMENT names what is in the way.
status_t batch_check(const struct batching *b, const Hlod__V1__Signature *sig) MUST_CHECK;
// That each output has as many rows as the bucket.
status_t batch_check_outputs(const Hlod__V1__ExecutableInfo *x, int64_t bucket) MUST_CHECK;
// That the compiler has shown the rows of a bucket's executable to be independent, and that its
// constants are those of the bucket before (NULL: none to compare with). INVALID_ARGUMENT says
// where rows meet.
status_t batch_check_rows(const Hlod__V1__ExecutableInfo *x, const char *constants) MUST_CHECK;

// ROW_JOINED of a run (job_table.c): it goes alone, or later its rows come as its REPLY.
status_t batch_start(struct job *j, bool *later) MUST_CHECK;
void batch_leave(struct job *j);              // it ends otherwise; none is fine
struct batch *batch_ref(struct batch *b);     // NULL is fine
void batch_unref(struct batch *b);            // its results are no longer looked at; NULL is fine
const char *batch_doing(const struct job *j); // a member whose rows are running
// For the leader: input i of the RUN frame out of the members' memory. Descriptors are borrowed.
status_t batch_gather(struct batch *b, size_t i, Hlod__Wire__WireTensor *t, int *fds,
                      int *n_fds) MUST_CHECK;
