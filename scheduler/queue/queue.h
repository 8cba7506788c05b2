// SPDX-License-Identifier: Apache-2.0
// queue: what waits for one kind of worker. Each tenant has a lane; the lanes take turns by stride
// scheduling: a lane's `pass` grows by what it was charged over its weight, and the lane with the
// smallest pass is served first, so that over time tenants get device time in the proportion of
// their weights, independent of how much each requests. A lane that was empty joins at the present
// pass: an idle tenant saves up no time. Within a lane larger priorities go first, then arrival: a
// priority never takes time from another tenant. Bounded: when the queue is full a new item takes
// the place of the last item of the lane that is longest for its weight, or is refused if that is
// its own. Items and lanes are embedded in their owners; the queue owns nothing. Pure: no clock, no
// I/O. Thread: one at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct queue_lane;
struct queue_item {
    struct queue_item *prev, *next;
    struct queue_lane *lane; // NULL: not queued
    int32_t priority;        // larger goes first
    int64_t deadline_ns;     // 0 = none
    void *owner;
};
struct queue_lane {
    struct queue_lane *prev, *next; // by pass; only while it has items
    struct queue_item *head, *tail;
    int32_t n;
    int32_t weight; // 0 counts as 1
    int64_t pass;   // virtual ns
};
struct queue {
    struct queue_lane *first; // smallest pass
    int32_t n, max;           // items; max 0 = no bound
    int64_t pass;             // of the lane served last, when it was served
};
// False: full, and `it` is not in it. *out_evicted: the item that had to leave instead, or NULL.
bool queue_push(struct queue *q, struct queue_lane *lane, struct queue_item *it,
                struct queue_item **out_evicted);
void queue_remove(struct queue *q, struct queue_item *it); // not queued is fine
// In the order they should be served: lane by lane, each in its own order.
struct queue_item *queue_first(const struct queue *q);
struct queue_item *queue_next(const struct queue_item *it);
struct queue_item *queue_next_lane(const struct queue_item *it); // the first of the lane behind
// The item is served: it leaves, and its lane is charged what it is expected to take.
void queue_serve(struct queue *q, struct queue_item *it, int64_t cost_ns);
// What it took differs from what was charged; may be negative. The lane need not have items.
void queue_charge(struct queue *q, struct queue_lane *lane, int64_t cost_ns);
// How many would be served before it if nothing else came; -1 if not queued.
int32_t queue_position(const struct queue *q, const struct queue_item *it);
