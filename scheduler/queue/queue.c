// SPDX-License-Identifier: Apache-2.0
// A sorted list of lanes, each an ordered list: both insertions walk from the tail, which is where
// newcomers mostly belong; there are few lanes, and the bound keeps a walk short.
#include "scheduler/queue/queue.h"

#include <stddef.h>

static int32_t weight(const struct queue_lane *l) {
    return l->weight > 0 ? l->weight : 1;
}

// ---- lanes in the order of their pass

static void lane_out(struct queue *q, struct queue_lane *l) {
    *(l->prev ? &l->prev->next : &q->first) = l->next;
    if (l->next) l->next->prev = l->prev;
    l->prev = l->next = NULL;
}
static void lane_in(struct queue *q, struct queue_lane *l) {
    struct queue_lane *before = NULL, *x = q->first;
    while (x && x->pass <= l->pass) { // behind its equals: they take turns
        before = x;
        x = x->next;
    }
    l->prev = before;
    l->next = x;
    if (x) x->prev = l;
    *(before ? &before->next : &q->first) = l;
}

void queue_charge(struct queue *q, struct queue_lane *lane, int64_t cost_ns) {
    if (lane->n) lane_out(q, lane);
    lane->pass += cost_ns / weight(lane);
    if (lane->n) lane_in(q, lane);
}

// ---- items

void queue_remove(struct queue *q, struct queue_item *it) {
    struct queue_lane *l = it->lane;
    if (!l) return;
    *(it->prev ? &it->prev->next : &l->head) = it->next;
    *(it->next ? &it->next->prev : &l->tail) = it->prev;
    it->prev = it->next = NULL;
    it->lane = NULL;
    q->n--;
    if (--l->n == 0) lane_out(q, l);
}

// Whose last item leaves when the queue is full: the longest lane's for its weight, if it is longer
// than the newcomer's with it; within the newcomer's own lane only what is less urgent.
static struct queue_item *to_evict(const struct queue *q, const struct queue_lane *lane,
                                   const struct queue_item *it) {
    const struct queue_lane *longest = lane;
    int64_t n = lane->n + 1; // of `longest`
    for (const struct queue_lane *l = q->first; l; l = l->next)
        if (l != lane && (int64_t)l->n * weight(longest) > n * weight(l)) {
            longest = l;
            n = l->n;
        }
    if (longest != lane) return longest->tail;
    return lane->tail && lane->tail->priority < it->priority ? lane->tail : NULL;
}

bool queue_push(struct queue *q, struct queue_lane *lane, struct queue_item *it,
                struct queue_item **out_evicted) {
    *out_evicted = NULL;
    if (q->max && q->n >= q->max) {
        *out_evicted = to_evict(q, lane, it);
        if (!*out_evicted) return false;
        queue_remove(q, *out_evicted);
    }
    struct queue_item *after = lane->tail;
    while (after && after->priority < it->priority)
        after = after->prev;
    it->prev = after;
    it->next = after ? after->next : lane->head;
    *(after ? &after->next : &lane->head) = it;
    *(it->next ? &it->next->prev : &lane->tail) = it;
    it->lane = lane;
    q->n++;
    if (lane->n++ == 0) {
        if (lane->pass < q->pass) lane->pass = q->pass;
        lane_in(q, lane);
    }
    return true;
}

struct queue_item *queue_first(const struct queue *q) {
    return q->first ? q->first->head : NULL;
}
struct queue_item *queue_next_lane(const struct queue_item *it) {
    return it->lane->next ? it->lane->next->head : NULL;
}
struct queue_item *queue_next(const struct queue_item *it) {
    return it->next ? it->next : queue_next_lane(it);
}

void queue_serve(struct queue *q, struct queue_item *it, int64_t cost_ns) {
    struct queue_lane *l = it->lane;
    if (q->pass < l->pass) q->pass = l->pass;
    queue_remove(q, it);
    queue_charge(q, l, cost_ns);
}

int32_t queue_position(const struct queue *q, const struct queue_item *it) {
    int32_t i = 0;
    for (const struct queue_item *x = queue_first(q); x; x = queue_next(x), i++)
        if (x == it) return i;
    return -1;
}
