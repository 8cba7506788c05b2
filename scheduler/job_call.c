// SPDX-License-Identifier: Apache-2.0
// A job's call of a worker: sent, cancelled with its job, over. See sched.h.
#include "scheduler/job_call.h"

#include <stdlib.h>
#include <unistd.h>

#include "scheduler/job_buffers.h"
#include "scheduler/memfds.h"

struct run_call *job_call_new(struct job *j) {
    struct run_call *c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (struct run_call){.j = j, .s = j->s, .w = j->seat.w};
    return c;
}

void job_call_send(struct run_call *c, uint32_t type, const ProtobufCMessage *m, const int *fds,
                   int n_fds, pool_reply_fn fn) {
    worker_flight(c->w, c->flight_bytes);
    c->j->call = c;
    c->id = pool_call(c->w, type, m, fds, n_fds, fn, c);
}

void job_drop_call(struct job *j) {
    j->call->j = NULL;
    j->call->seat = j->seat; // the call holds the place now
    j->seat = (struct seat){0};
    pool_cancel(j->call->w, j->call->id);
    j->call = NULL;
}

struct job *job_call_ended(struct run_call *c, struct frame *f) {
    struct job *j = c->j;
    struct memfd *out = c->out;
    struct batch *batch = c->batch;
    worker_flight(c->w, -c->flight_bytes);
    memfd_unref(c->in);
    seat_leave(c->s, &c->seat);
    hold_free(c->hold);
    free(c);
    batch_unref(batch);
    if (j) {
        j->call = NULL;
        j->r.n_fds = f ? f->n_fds : 0;
        for (int i = 0; i < j->r.n_fds; i++)
            j->r.fds[i] = frame_take_fd(f, i);
        if (out && f && f->n_fds == 0) { // the results lie where we said
            j->out = j->r.memory = out;
            j->r.fds[0] = memfd_fd(out);
            j->r.n_fds = 1;
            return j;
        }
    }
    memfd_unref(out);
    return j;
}
