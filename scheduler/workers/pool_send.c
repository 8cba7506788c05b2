// SPDX-License-Identifier: Apache-2.0
// Frames to a worker: at once, together at the end of the loop's turn, or when its socket has room.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/loop.h"
#include "scheduler/workers/pool_inside.h"

static void free_pending(struct pending *p) {
    for (int i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    free(p->body);
}

void worker_drop_unsent(struct worker *w) {
    for (size_t i = 0; i < w->out.n; i++)
        free_pending(&w->out.v[i]);
    w->out.n = w->batch.n = 0;
    w->full = false;
}

// Takes st, of a send that does not wait. A loss is logged; the read side will see it.
static bool had_room(status_t st) {
    bool full = st_code(st) == ST_DEADLINE_EXCEEDED;
    if (st && !full)
        log_status(LOG_WARN, "worker.send", st);
    else
        st_drop(st);
    return !full;
}
// What goes to a worker that has work already waits for the end of the loop's turn: many brief runs
// are one message then, and one wake. False: the socket has no room.
static bool send_batch(struct worker *w) {
    w->full = !had_room(frame_batch_send(w->sock, &w->batch, 0));
    if (w->full) loop_watch_set(w->watch, LOOP_READ | LOOP_WRITE);
    return !w->full;
}
static void send_batches(void *arg) {
    struct pool *p = arg;
    p->flush_due = false;
    for (int i = 0; i < p->n; i++)
        if (p->w[i].batch.n && !p->w[i].full) send_batch(&p->w[i]);
}
static bool add_to_batch(struct worker *w, uint32_t type, uint64_t call,
                         const ProtobufCMessage *m) {
    struct pool *p = w->pool;
    if (!frame_batch_add(&w->batch, type, call, m) &&
        !(w->batch.n && send_batch(w) && frame_batch_add(&w->batch, type, call, m)))
        return false;
    if (!p->flush_due) loop_post(p->loop, send_batches, p);
    p->flush_due = true;
    return true;
}

void worker_send_rest(struct worker *w) {
    if (w->batch.n && !send_batch(w)) return;
    while (w->out.n) {
        struct pending *p = &w->out.v[0];
        status_t st = frame_send(w->sock, p->type, p->call, (struct span){p->body, p->n}, p->fds,
                                 p->n_fds, 0);
        if (st_code(st) == ST_DEADLINE_EXCEEDED) {
            st_drop(st);
            break;
        }
        st_drop(st); // a lost peer shows at the next read
        free_pending(p);
        memmove(w->out.v, w->out.v + 1, --w->out.n * sizeof *w->out.v);
    }
    if (w->watch) loop_watch_set(w->watch, LOOP_READ | (w->out.n ? LOOP_WRITE : 0));
}

void worker_send_frame(struct worker *w, uint32_t type, uint64_t call, const ProtobufCMessage *m,
                       const int *fds, int n_fds) {
    metric_add(M_FRAME_BYTES_OUT, (int64_t)protobuf_c_message_get_packed_size(m));
    bool others = w->calls.n > 1, free = !w->out.n && !w->full;
    if (free && others && !n_fds && add_to_batch(w, type, call, m)) return;
    if (free && send_batch(w) && had_room(frame_send_msg(w->sock, type, call, m, fds, n_fds, 0)))
        return;
    struct pending p = {
        .type = type, .call = call, .n = protobuf_c_message_get_packed_size(m), .n_fds = n_fds};
    p.body = malloc(p.n + 1);
    if (!p.body) abort();
    protobuf_c_message_pack(m, p.body);
    for (int i = 0; i < n_fds; i++)
        p.fds[i] = dup(fds[i]);
    vec_push(&w->out, p);
    loop_watch_set(w->watch, LOOP_READ | LOOP_WRITE);
}
