// SPDX-License-Identifier: Apache-2.0
// Tasks to workers: who is next (queue), where it goes (place), what it is charged. One queue for
// each role, since compilers and devices are not in each other's way. A *slot* is a place in a
// worker that was given; leaving it gives back what it took and settles what it cost.
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "scheduler/loop.h"
#include "scheduler/sched_inside.h"

enum {
    MEMORY_PATIENCE_MS = 1000,
    MIXED_MS = 60000,
    GUESS_NS = CLOCK_MS,
    RELIEF_MS = 10,
    AGAIN_MS = 100
};

// ---- the queue

static void show_queued(const struct sched *s) {
    metric_set(M_JOBS_QUEUED, s->queue[ROLE_COMPILE].n + s->queue[ROLE_DEVICE].n);
}

static void dispatch_posted(void *arg) {
    struct sched *s = arg;
    s->dispatch_due = false;
    sched_dispatch(s);
}
static void dispatch_soon(struct sched *s) {
    if (!s->dispatch_due) loop_post(s->loop, dispatch_posted, s);
    s->dispatch_due = true;
}

void sched_room(struct sched *s) {
    if (!s->stopping && s->queue[ROLE_COMPILE].n + s->queue[ROLE_DEVICE].n) dispatch_soon(s);
}

bool sched_alone(const struct sched *s, int64_t expected_ns) {
    return s->cfg.alone_ns && expected_ns > s->cfg.alone_ns && s->mixed_ns &&
           clock_ns() - s->mixed_ns < clock_of_ms(MIXED_MS);
}

static int workers_of(struct sched *s, enum worker_role role) {
    int n = 0;
    for (int i = 0; i < pool_size(s->pool); i++)
        n += worker_role(pool_worker(s->pool, i)) == role;
    return n;
}

// When about half of what waits will have been served.
static int64_t retry_ms(struct sched *s, enum worker_role role) {
    int64_t each = s->usual_ns[role] ? s->usual_ns[role] : GUESS_NS;
    int64_t n = workers_of(s, role), ms = s->queue[role].n * each / (n ? n : 1) / 2 / CLOCK_MS;
    return ms < 100 ? 100 : ms > 60000 ? 60000 : ms;
}

static void refuse(struct task *t) {
    struct sched *s = t->s;
    t->tenant->refused++;
    metric_add(M_QUEUE_REFUSED, 1);
    status_t st =
        st_new(ST_UNAVAILABLE,
               "the queue is full: %d jobs wait, of %d that may (max_queue); %d are of tenant '%s'",
               s->queue[t->want.role].n, s->queue[t->want.role].max,
               t->tenant->lanes[t->want.role].n, t->tenant->name);
    t->failed(t, st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_QUEUE_FULL),
                                retry_ms(s, t->want.role)));
}

void sched_relief_due(void *s) {
    sched_dispatch(s);
}
// So long something may wait for workers that are held; 0: a relief never comes.
static int64_t relief_ns(const struct sched *s, enum worker_role role) {
    if (s->cfg.pool.isolate) return 0;
    return role == ROLE_COMPILE ? s->cfg.pool.compile_relief_ns : s->cfg.pool.relief_ns;
}
static struct place_want wanted(const struct sched *s, const struct task *t) {
    struct place_want want = t->want;
    want.relief_ns = relief_ns(s, want.role);
    if (s->cfg.pool.isolate) want.tenant = t->tenant->name;
    want.owner = t->tenant->name;
    return want;
}
// Work waits: if it is brief, and for workers that are stuck, a relief comes.
static void relieve(struct sched *s, const struct place_want *want, struct place_worker *view,
                    int n) {
    int i = place_relief(want, view, n);
    if (i >= 0 && !s->stopping) worker_relieve(pool_worker(s->pool, i));
}
// The processes of a device have one memory.
static void share_memory(struct place_worker *w, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; w[i].relief && k < n; k++)
            if (k != i && w[k].role == w[i].role && w[k].group == w[i].group) {
                int64_t both = w[i].planned_bytes + w[k].planned_bytes;
                w[i].planned_bytes = w[k].planned_bytes = both;
                if (!w[i].memory_bytes) w[i].memory_bytes = w[k].memory_bytes;
            }
}

static int place_task(struct sched *s, const struct task *t) {
    struct place_worker view[POOL_MAX_WORKERS];
    int n = pool_size(s->pool);
    for (int i = 0; i < n; i++) {
        struct worker *w = pool_worker(s->pool, i);
        view[i] = worker_role(w) == t->want.role ? pool_place(w)
                                                 : (struct place_worker){.role = worker_role(w)};
        if (!t->has_key || view[i].role != t->want.role) continue;
        view[i].has_executable = warm_has_executable(worker_warm(w), t->plan.key);
        view[i].has_prepared = warm_has_prepared(worker_warm(w), t->plan.key, t->weights);
        int64_t more = view[i].has_prepared ? 0 : t->plan.prepare_bytes;
        view[i].needed_bytes = footprint_needs(worker_footprint(w), &t->plan) + more;
        view[i].alone_bytes = t->plan.resident_bytes + t->plan.tensor_bytes + more;
    }
    struct place_want want = wanted(s, t);
    if (!s->cfg.pool.isolate) {
        share_memory(view, n);
        int chosen = place_choose(&want, view, n);
        if (chosen == PLACE_WAIT) relieve(s, &want, view, n);
        return chosen;
    }
    place_group(view, n);
    return place_choose(&want, view, n);
}

static void no_worker(struct task *t) {
    const char *why = pool_why(t->s->pool, t->want.role, t->want.device);
    t->failed(t, st_because(ST_UNAVAILABLE, NO_WORKER, "no %s worker%s%s can be started%s%s",
                            t->want.role == ROLE_COMPILE ? "compile" : "device",
                            *t->want.device ? " for device " : "", t->want.device, *why ? ": " : "",
                            why));
}
static void too_large(struct task *t) {
    char prepare[64] = "";
    if (t->plan.prepare_bytes)
        snprintf(prepare, sizeof prepare, ", %lld to prepare weights",
                 (long long)t->plan.prepare_bytes);
    t->failed(t, st_because(ST_RESOURCE_EXHAUSTED, DEVICE_MEMORY,
                            "the run needs %lld bytes of device memory by plan (%lld of "
                            "working memory and weights, %lld of tensors%s): more than any "
                            "device%s%s here has",
                            (long long)(t->plan.resident_bytes + t->plan.tensor_bytes +
                                        t->plan.prepare_bytes),
                            (long long)t->plan.resident_bytes, (long long)t->plan.tensor_bytes,
                            prepare, *t->want.device ? " " : "", t->want.device));
}

void task_queue(struct sched *s, struct task *t) {
    t->s = s;
    t->queue = &s->queue[t->want.role];
    t->item.owner = t;
    t->queued_ns = clock_ns();
    if (t->has_key && place_task(s, t) == PLACE_TOO_LARGE) { // waiting would not help
        too_large(t);
        return;
    }
    struct queue_item *evicted;
    if (!queue_push(t->queue, &t->tenant->lanes[t->want.role], &t->item, &evicted)) {
        refuse(t);
        return;
    }
    if (evicted) { // told by the loop, not from inside another job's call
        struct task *v = evicted->owner;
        v->queue = &s->refused;
        queue_push(&s->refused, &s->refused_lane, evicted, &evicted);
    }
    if (t->want.role == ROLE_COMPILE && *t->want.device) pool_wake(s->pool, t->want.device);
    dispatch_soon(s);
}

void task_drop(struct task *t) {
    if (!t->item.lane) return;
    queue_remove(t->queue, &t->item);
    show_queued(t->s);
}
bool task_waits(const struct task *t) {
    return t->item.lane != NULL;
}

bool task_moved(struct task *t, const struct worker *w, status_t lost) {
    struct place_worker v = pool_place(w);
    if (t->s->stopping || v.role != ROLE_COMPILE || !v.relief) return false;
    st_drop(lost);
    t->want.moved = true;
    task_queue(t->s, t);
    return true;
}

// ---- slots

static void take_slot(struct task *t, struct worker *w, int64_t now) {
    struct slot *x = &t->slot;
    *x = (struct slot){.w = w,
                       .tenant = t->tenant,
                       .role = t->want.role,
                       .plan = t->plan,
                       .charged_ns = t->cost_ns ? t->cost_ns : GUESS_NS,
                       .unknown = !t->cost_ns,
                       .since_ns = now,
                       .epoch = worker_epoch(w)};
    if (t->has_key && !warm_has_prepared(worker_warm(w), t->plan.key, t->weights))
        x->plan.tensor_bytes += t->plan.prepare_bytes; // this piece of work alone needs it
    queue_serve(t->queue, &t->item, x->charged_ns);
    t->tenant->places++;
    worker_take(w, x->unknown);
    worker_expect(w, x->charged_ns);
    if (t->has_key) footprint_add(worker_footprint(w), &x->plan);
    x->planned = t->has_key;
}

void slot_leave(struct sched *s, struct slot *x) {
    if (!x->w) return;
    int64_t used = x->used_ns ? x->used_ns + x->before_ns : clock_ns() - x->since_ns;
    queue_charge(&s->queue[x->role], &x->tenant->lanes[x->role], used - x->charged_ns);
    s->usual_ns[x->role] += (used - s->usual_ns[x->role]) / 8;
    x->tenant->used_ns[x->role] += used;
    x->tenant->places--;
    if (x->planned) footprint_drop(worker_footprint(x->w), &x->plan);
    struct worker *w = x->w;
    bool unknown = x->unknown;
    worker_expect(w, -x->charged_ns);
    *x = (struct slot){0};
    worker_release(w, unknown);
}

void sched_unread(struct sched *s, struct tenant *t, int64_t bytes) {
    s->unread_bytes += bytes;
    t->unread_bytes += bytes;
    if (bytes < 0 && !s->stopping) dispatch_soon(s);
}
static bool has_reply_room(const struct sched *s, const struct tenant *t) {
    int64_t most = s->cfg.reply_bytes;
    return !most || !t->unread_bytes || t->unread_bytes <= most - s->unread_bytes;
}
status_t sched_reply_room(const struct sched *s, const struct tenant *t) {
    if (has_reply_room(s, t)) return ST_OK;
    return st_retry_after(st_exhausted("results that clients have not taken yet take the room of "
                                       "another (--reply-bytes)"),
                          1000);
}
static bool may_place(const struct sched *s, const struct tenant *t, enum worker_role role) {
    return tenant_may_place(t) && (role != ROLE_DEVICE || has_reply_room(s, t));
}
bool sched_waits_for_reply(const struct sched *s, const char *tenant) {
    const struct queue_lane *l = s->queue[ROLE_DEVICE].first;
    for (; l; l = l->next) {
        const struct tenant *t = ((const struct task *)l->head->owner)->tenant;
        if (!strcmp(t->name, tenant)) return !has_reply_room(s, t);
    }
    return false;
}

// ---- dispatch

// Could anything be placed, or refused, in this role at all?
static bool worth_looking(struct sched *s, enum worker_role role) {
    static const struct place_want briefest = {.expected_ns = 1};
    bool any = false;
    for (int i = 0; i < pool_size(s->pool); i++) {
        if (worker_role(pool_worker(s->pool, i)) != role) continue;
        struct place_worker v = pool_place(pool_worker(s->pool, i));
        any = true;
        bool room = v.ready && place_has_room(&briefest, &v), may_start = v.spare && !v.relief;
        if (v.hopeless || may_start || v.stuck || room) return true;
    }
    return !any;
}

// Makes a worker its tenant's, where workers belong to tenants. False: it will be, after a start.
static bool belongs(const struct task *t, struct worker *w) {
    struct place_want want = {.tenant = t->tenant->name};
    struct place_worker v = pool_place(w);
    if (!t->s->cfg.pool.isolate) return true;
    bool mine = place_is_mine(&want, &v);
    if (!mine || !*v.tenant) worker_give(w, want.tenant);
    return mine;
}

// Where nothing has a place: a device, where workers belong to tenants for one of them.
struct full {
    const char *device;
    const struct tenant *tenant; // NULL: for all
};
static bool is_full(const struct full *f, const struct task *t) {
    return f->device && (!f->tenant || f->tenant == t->tenant) &&
           !strcmp(f->device, t->want.device);
}

// Serves or refuses one task of the role. A task that waits for memory lets others pass for a
// while, then none, so that the memory can become free.
static bool dispatch_one(struct sched *s, enum worker_role role) {
    struct queue *q = &s->queue[role];
    int64_t now = clock_ns();
    struct full busy[2] = {{0}}; // for work that may share: brief, other
    for (struct queue_item *it = queue_first(q), *next; it; it = next) {
        struct task *t = it->owner;
        next = queue_next(it);
        if (it->deadline_ns && it->deadline_ns <= now) {
            queue_remove(q, it);
            t->failed(t, st_because(ST_DEADLINE_EXCEEDED, DEADLINE,
                                    "the deadline passed while waiting for a worker"));
            return true;
        }
        if (!may_place(s, t->tenant, role)) {
            next = queue_next_lane(it);
            continue;
        }

        struct place_want want = wanted(s, t);
        struct full *full = &busy[!place_is_brief(&want)];
        if (is_full(full, t)) continue;
        int i = place_task(s, t);
        if (i == PLACE_WAIT && !t->want.alone)
            *full = (struct full){t->want.device, want.tenant ? t->tenant : NULL};
        if (i == PLACE_WAIT) continue;
        if (i == PLACE_MEMORY && now - t->queued_ns > clock_of_ms(MEMORY_PATIENCE_MS)) return false;
        if (i == PLACE_MEMORY) continue;
        if (i >= 0 && !belongs(t, pool_worker(s->pool, i))) continue;

        if (i < 0) {
            queue_remove(q, it);
            (i == PLACE_TOO_LARGE ? too_large : no_worker)(t);
            return true;
        }

        metric_observe_ns(M_QUEUE_TIME, now - t->queued_ns);
        take_slot(t, pool_worker(s->pool, i), now);
        t->placed(t);
        return true;
    }
    return false;
}

void sched_dispatch(struct sched *s) {
    if (s->dispatching || s->stopping)
        return; // a callback below changed something: the loop begins again anyway
    s->dispatching = true;
    for (struct queue_item *it; (it = queue_first(&s->refused));) {
        queue_remove(&s->refused, it);
        refuse(it->owner);
    }
    for (int role = ROLE_COMPILE; role <= ROLE_DEVICE; role++) {
        while (s->queue[role].n && worth_looking(s, role) && dispatch_one(s, role))
            ;
        // Workers that are held may become stuck, those of a tenant idle, and no event tells.
        if (s->queue[role].n && relief_ns(s, role)) loop_timer_start(s->relief_timer, RELIEF_MS);
        if (s->queue[role].n && s->cfg.pool.isolate) loop_timer_start(s->relief_timer, AGAIN_MS);
    }
    s->dispatching = false;
    show_queued(s);
}
