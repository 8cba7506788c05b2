// SPDX-License-Identifier: Apache-2.0
// task: a request for a place in a worker, on a tenant's account, and the slot that it gets. What
// it wants is fixed when it is queued; dispatch.c decides. The owner embeds the task, takes the
// slot over when it is placed, and leaves it when its work there has ended: what the work took is
// settled then. Thread: loop.
#pragma once
#include "base/hash.h"
#include "base/status.h"
#include "scheduler/queue/footprint.h"
#include "scheduler/queue/place.h"
#include "scheduler/queue/queue.h"
#include "scheduler/queue/tenant.h"

struct sched;
struct worker;
struct slot { // a place in a worker, held for one piece of work; all zero: none
    struct worker *w;
    struct tenant *tenant;
    enum worker_role role;
    struct footprint_want plan;
    bool planned;
    bool unknown;       // what it costs was a guess
    uint64_t epoch;     // of the worker when it was taken
    int64_t charged_ns; // in advance
    int64_t since_ns;
    int64_t used_ns;   // of the worker, where it said so; 0: the whole time counts
    int64_t before_ns; // beside used_ns: loading, preparing
};
void slot_leave(struct sched *s, struct slot *x); // and forgets it; none is fine

struct task {
    struct queue_item item;
    struct sched *s;
    struct queue *queue;
    struct tenant *tenant;
    struct place_want want;
    bool has_key; // prefer workers that hold these, plan their memory
    struct footprint_want plan;
    struct digest weights;
    int64_t cost_ns;  // expected; 0 = not known
    struct slot slot; // once placed; the owner takes it over
    void (*placed)(struct task *t);
    void (*failed)(struct task *t, status_t st); // takes st: no worker will ever come or have the
                                                 // memory, the queue is full, the deadline passed
    int64_t queued_ns;
};
void task_queue(struct sched *s, struct task *t); // may answer `failed` at once
void task_drop(struct task *t);
bool task_waits(const struct task *t);
// The worker was lost with what the task stood for. True: it was a compilers' relief, and the task
// waits for another worker now; takes `lost`.
bool task_moved(struct task *t, const struct worker *w, status_t lost);
