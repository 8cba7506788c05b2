// SPDX-License-Identifier: Apache-2.0
#include "devices/worker/worker_streams.h"

#include <stdint.h>

#include "devices/worker/worker_calls.h"

// Rings: no more runs are under way than there are threads, and one that waits.
enum { RING = WORKER_STREAMS * 2 };
struct ring {
    struct worker_run *at[RING];
    unsigned first, end;
};
static struct ring waiting, done;
static pthread_mutex_t *lock;
static pthread_cond_t *told, posted = PTHREAD_COND_INITIALIZER;
static int threads;

static void put(struct ring *r, struct worker_run *run) {
    r->at[r->end++ % RING] = run;
}
static struct worker_run *take(struct ring *r) {
    return r->first == r->end ? NULL : r->at[r->first++ % RING];
}

static void *stream_thread(void *arg) {
    int stream = (int)(intptr_t)arg;
    pthread_mutex_lock(lock);
    for (;;) {
        struct worker_run *run = take(&waiting);
        if (!run) {
            pthread_cond_wait(&posted, lock);
            continue;
        }
        pthread_mutex_unlock(lock);
        worker_run_compute(run, stream);
        pthread_mutex_lock(lock);
        put(&done, run);
        pthread_cond_signal(told);
    }
    return NULL;
}

bool worker_streams_begin(int n, pthread_mutex_t *mutex, pthread_cond_t *more) {
    lock = mutex;
    told = more;
    for (pthread_t t; threads < n; threads++) {
        if (pthread_create(&t, NULL, stream_thread, (void *)(intptr_t)threads)) return false;
        pthread_detach(t);
    }
    return true;
}
void worker_streams_put(struct worker_run *run) {
    put(&waiting, run);
    pthread_cond_signal(&posted);
}
struct worker_run *worker_streams_done(void) {
    return take(&done);
}
