// SPDX-License-Identifier: Apache-2.0
// An ordered list: insertion walks from the tail, which is where equal priorities end at once; the
// bound keeps a walk short.
#include "scheduler/queue.h"

#include <stddef.h>

bool queue_push(struct queue *q, struct queue_item *it) {
    if (q->max && q->n >= q->max) return false;
    struct queue_item *after = q->tail;
    while (after && after->priority < it->priority)
        after = after->prev;
    it->prev = after;
    it->next = after ? after->next : q->head;
    *(after ? &after->next : &q->head) = it;
    *(it->next ? &it->next->prev : &q->tail) = it;
    it->queued = true;
    q->n++;
    return true;
}

void queue_remove(struct queue *q, struct queue_item *it) {
    if (!it->queued) return;
    *(it->prev ? &it->prev->next : &q->head) = it->next;
    *(it->next ? &it->next->prev : &q->tail) = it->prev;
    it->prev = it->next = NULL;
    it->queued = false;
    q->n--;
}

struct queue_item *queue_expired(const struct queue *q, int64_t now_ns) {
    for (struct queue_item *it = q->head; it; it = it->next)
        if (it->deadline_ns && it->deadline_ns <= now_ns) return it;
    return NULL;
}

int32_t queue_position(const struct queue *q, const struct queue_item *it) {
    int32_t i = 0;
    for (const struct queue_item *x = q->head; x; x = x->next, i++)
        if (x == it) return i;
    return -1;
}
