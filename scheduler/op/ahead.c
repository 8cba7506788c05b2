// SPDX-License-Identifier: Apache-2.0
// See ahead.h.
#include "scheduler/op/ahead.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/weigh.h"
#include "scheduler/job/job_inside.h"
#include "scheduler/loop.h"
#include "scheduler/queue/aside.h"

enum { PATIENCE_MS = 3000 };
struct ahead {
    struct ahead *next;
    struct sched *s;
    struct worker *w;
    struct tenant *tenant;
    uint64_t epoch, call;
    int64_t start_ns;
};
struct aheads {
    struct ahead *first;
    struct loop_timer *timer;
};

// What does not end is cancelled, once.
static void patience(void *arg) {
    struct aheads *x = arg;
    for (struct ahead *a = x->first; a; a = a->next)
        if (clock_ns() - a->start_ns >= clock_of_ms(PATIENCE_MS) && worker_epoch(a->w) == a->epoch)
            pool_cancel(a->w, a->call);
    if (x->first) loop_timer_start(x->timer, PATIENCE_MS);
}
struct aheads *aheads_new(struct loop *l) {
    struct aheads *x = arena_must_calloc(1, sizeof *x);
    x->timer = loop_timer_new(l, patience, x);
    return x;
}
void aheads_free(struct aheads *x) {
    if (!x) return;
    loop_timer_free(x->timer);
    free(x);
}

static void take_out(struct ahead *a) {
    struct ahead **at = &a->s->aheads->first;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
}
static void on_expected(void *ctx, struct frame *f, status_t lost) {
    struct ahead *a = ctx;
    int64_t ns = clock_ns() - a->start_ns; // the worker may say anything
    if (f && f->type != HLOD__WIRE__TYPE__TYPE_EXPECT_REPLY) return;
    Hlod__Wire__ExpectReply *r =
        f ? weigh_unpack_or_null(&hlod__wire__expect_reply__descriptor, f->body) : NULL;
    int64_t said = r ? clock_of_ms(r->ms) : 0;
    if (said > 0) {
        if (said < ns) ns = said;
        queue_charge(&a->s->queue[ROLE_DEVICE], &a->tenant->lanes[ROLE_DEVICE], ns);
        a->tenant->used_ns[ROLE_DEVICE] += ns;
    }
    if (r) hlod__wire__expect_reply__free_unpacked(r, NULL);
    st_drop(lost);
    take_out(a);
    free(a);
}

static const struct job *who_runs(const struct op *op) {
    for (size_t i = 0; i < op->waiters.n; i++)
        if (job_takes_inputs(op->waiters.v[i])) return op->waiters.v[i];
    return NULL;
}
bool ahead_wanted(const struct op *op) {
    return !op->verify && !op->tuned && who_runs(op); // what is begun knows no tuning
}

// Where it would go now. Where workers belong to tenants: only to one that is its own already.
static struct worker *choose(const struct op *op, const struct job *j) {
    struct place_worker view[POOL_MAX_WORKERS];
    struct sched *s = op->s;
    int n = pool_size(s->pool);
    struct place_want want = {
        .role = ROLE_DEVICE,
        .device = j->device && *j->device && !job_wants_auto(j) ? j->device : op->device_kind};
    if (s->cfg.pool.isolate) want.tenant = j->tenant->name;
    want.owner = j->tenant->name;
    for (int i = 0; i < n; i++) {
        view[i] = pool_place(pool_worker(s->pool, i));
        view[i].ready = view[i].ready && (!want.tenant || !strcmp(view[i].tenant, want.tenant));
    }
    int i = place_choose(&want, view, n);
    return i >= 0 && view[i].ready ? pool_worker(s->pool, i) : NULL;
}

// A descriptor of the same memory that cannot change it: the store reads it too.
static int read_only(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}
static void send(struct op *op, struct worker *w, Hlod__Wire__Blob *blob, const int *fds, int n_fds,
                 bool whole) {
    const struct job *j = who_runs(op);
    int fd = -1;
    if (!blob || (blob->fd && blob->fd > (uint32_t)n_fds)) return;
    if (blob->fd && (fd = read_only(fds[blob->fd - 1])) < 0) return;
    Hlod__Wire__Blob sent = *blob;
    if (fd >= 0) sent.fd = 1;
    Hlod__Wire__Expect m = HLOD__WIRE__EXPECT__INIT;
    m.key = (ProtobufCBinaryData){32, op->digest.b};
    m.artifact = &sent;
    m.whole = whole;
    struct ahead *a = arena_must_calloc(1, sizeof *a);
    *a = (struct ahead){.next = op->s->aheads->first,
                        .s = op->s,
                        .w = w,
                        .tenant = j->tenant,
                        .epoch = worker_epoch(w),
                        .start_ns = clock_ns()};
    op->s->aheads->first = a;
    a->call = pool_call(w, HLOD__WIRE__TYPE__TYPE_EXPECT, &m.base, &fd, fd >= 0, on_expected, a);
    sched_charge(w, a->call, a->tenant, "run", op->digest);
    loop_timer_start(op->s->aheads->timer, PATIENCE_MS);
    if (fd >= 0) close(fd);
}

void ahead_draft(struct op *op, const struct frame *f) {
    Hlod__Wire__Draft *d = weigh_unpack_or_null(&hlod__wire__draft__descriptor, f->body);
    const struct job *j = who_runs(op);
    struct worker *w = d && j && !op->expected && ahead_wanted(op) ? choose(op, j) : NULL;
    if (w) {
        op->expected = true;
        op->target_index = worker_index(w);
        op->epoch = worker_epoch(w);
        send(op, w, d->artifact, f->fds, f->n_fds, false);
    }
    if (d) hlod__wire__draft__free_unpacked(d, NULL);
}
void ahead_whole(struct op *op) {
    if (!op->expected || !who_runs(op)) return;
    struct worker *w = pool_worker(op->s->pool, op->target_index);
    if (worker_epoch(w) == op->epoch && worker_ready(w))
        send(op, w, op->compile->artifact, op->fds, op->n_fds, true);
}
