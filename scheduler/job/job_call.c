// SPDX-License-Identifier: Apache-2.0
// A job's call of a worker: sent, cancelled with its job, over.
#include "scheduler/job/job_call.h"

#include <stdlib.h>

#include "scheduler/job/hold.h"
#include "scheduler/workers/memfds.h"

struct run_call *job_call_new(struct job *j) {
    struct run_call *c = arena_must_calloc(1, sizeof *c);
    *c = (struct run_call){.j = j, .s = j->s, .w = j->slot.w};
    if (j->spec->payload) c->in = memfd_ref(j->spec->payload);
    return c;
}

void job_call_drop(struct run_call *c) {
    memfd_unref(c->in);
    memfd_unref(c->out);
    hold_free(c->hold);
    free(c);
}

void job_call_send(struct run_call *c, uint32_t type, const ProtobufCMessage *m, const int *fds,
                   int n_fds, pool_reply_fn fn) {
    worker_flight(c->w, c->flight_bytes);
    job_sent(c->j, c);
    c->id = pool_call(c->w, type, m, fds, n_fds, fn, c);
}

void job_call_running(struct run_call *c) {
    c->began = true;
    if (!c->j) return;
    Hlod__V1__RunningEvent running = HLOD__V1__RUNNING_EVENT__INIT;
    running.device = worker_hello(c->w)->device_name;
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.kind_case = HLOD__V1__EVENT__KIND_RUNNING;
    e.running = &running;
    job_event(c->j, &e);
}

struct job *job_call_ended(struct run_call *c, struct frame *f, status_t st) {
    struct job *j = c->j;
    struct memfd *out = c->out;
    struct run_call was = *c;
    worker_flight(c->w, -c->flight_bytes);
    memfd_unref(c->in);
    slot_leave(c->s, &c->slot);
    hold_free(c->hold);
    free(c);
    if (was.let_go) was.let_go(was.batch);
    if (j) {
        job_answered(j, f, out);
        return j;
    }
    memfd_unref(out);
    st_drop(st);
    return NULL;
}
