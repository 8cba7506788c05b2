// SPDX-License-Identifier: Apache-2.0
// worker_streams: threads that compute runs at the same time, each on its stream of the executable
// (docs/decisions/0027). Runs wait in one queue, so that a thread that has done one goes on with
// the next while the run thread answers the first. Under the mutex: all functions.
#pragma once
#include <pthread.h>
#include <stdbool.h>

enum { WORKER_STREAMS = 64 }; // at most
struct worker_run;
// Of n threads (those that are missing are begun): where runs go. One a process; `more` is
// signalled when a run is done. False: there are not enough threads.
bool worker_streams_begin(int n, pthread_mutex_t *mutex, pthread_cond_t *more);
void worker_streams_put(struct worker_run *run);
struct worker_run *worker_streams_done(void); // one that is computed; NULL: none
