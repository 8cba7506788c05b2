// SPDX-License-Identifier: Apache-2.0
// What a call holds of resident buffers while it is on its way; the table of buffers' tie to the
// workers and the clock.
#include "scheduler/job/hold.h"

#include <stdlib.h>

#include "base/clock.h"
#include "scheduler/loop.h"

// ---- the table, the workers, the clock

int64_t device_memory(const struct worker *w) {
    return worker_hello(w) ? worker_hello(w)->memory_bytes : 0;
}

struct buffers *sched_buffers(struct sched *s) {
    for (int i = 0; i < pool_size(s->pool); i++) {
        const struct worker *w = pool_worker(s->pool, i);
        if (worker_role(w) != ROLE_DEVICE) continue;
        buffers_worker(s->buffers, i, worker_ready(w) ? worker_epoch(w) : 0, pool_place(w).name);
    }
    return s->buffers;
}
bool buffer_alive(const struct sched *s, const struct buffer *b) {
    const struct worker *w = pool_worker(s->pool, b->worker);
    return b->state == BUFFER_READY && worker_ready(w) && worker_epoch(w) == b->epoch;
}

void sched_watch_leases(struct sched *s) {
    int64_t due = buffers_due(s->buffers);
    if (due && !s->stopping) loop_timer_at(s->lease_timer, due);
}
void sched_lease_over(void *arg) {
    struct sched *s = arg;
    buffers_expire(sched_buffers(s), clock_ns());
    sched_watch_leases(s);
}

static void on_freed(void *ctx, struct frame *f, status_t lost) {
    (void)ctx, (void)f; // a worker that died does not hold it either
    st_drop(lost);
}
void sched_buffer_dropped(void *ctx, const struct buffer *b) {
    struct sched *s = ctx;
    if (s->stopping || !buffer_alive(s, b)) return;
    Hlod__Wire__Free m = HLOD__WIRE__FREE__INIT;
    uint64_t id = b->id;
    m.ids = &id;
    m.n_ids = 1;
    pool_call(pool_worker(s->pool, b->worker), HLOD__WIRE__TYPE__TYPE_FREE, &m.base, NULL, 0,
              on_freed, NULL);
}

// ---- what a call holds

struct hold *hold_new(struct job *j) {
    struct hold *h = arena_must_calloc(1, sizeof *h);
    h->s = j->s;
    h->job = j->r.id;
    return h;
}

void hold_settle(struct hold *h, bool success, const uint64_t *consumed, size_t n_consumed) {
    bool taken = false;
    for (size_t i = 0; i < h->held.n; i++)
        for (size_t k = 0; k < n_consumed; k++)
            if (h->held.v[i]->id == consumed[k]) buffer_gone(h->held.v[i]);
    for (size_t i = 0; i < h->lent.n; i++) {
        taken = success;
        for (size_t k = 0; k < h->lent.v[i]->n; k++)
            taken |= h->lent.v[i]->leaf[k]->state == BUFFER_GONE;
        if (taken)
            buffers_taken(h->s->buffers, h->lent.v[i], h->job);
        else
            buffers_returned(h->lent.v[i]);
    }
    h->lent.n = 0;
    for (size_t i = 0; i < h->made.n && !success; i++)
        buffer_gone(h->made.v[i]);
}

void hold_abandon(struct hold *h) {
    for (size_t i = 0; i < h->made.n; i++)
        h->made.v[i]->state = BUFFER_READY;
}

void hold_free(struct hold *h) {
    if (!h) return;
    for (size_t i = 0; i < h->held.n; i++)
        buffer_unref(h->held.v[i]);
    for (size_t i = 0; i < h->made.n; i++)
        buffer_unref(h->made.v[i]);
    vec_done(&h->held);
    vec_done(&h->made);
    vec_done(&h->lent);
    free(h);
}
