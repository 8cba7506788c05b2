// SPDX-License-Identifier: Apache-2.0
// queue: what waits for a worker, in order of priority, then arrival, bounded. Items are embedded
// in their owners; the queue never owns them. Pure: no clock, no I/O. Thread: one at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct queue_item {
    struct queue_item *prev, *next; // both NULL and not the head: not queued
    bool queued;
    int32_t priority;    // larger goes first
    int64_t deadline_ns; // 0 = none
    void *owner;
};
struct queue {
    struct queue_item *head, *tail;
    int32_t n, max; // max 0 = no bound
};
bool queue_push(struct queue *q, struct queue_item *it);   // false when full
void queue_remove(struct queue *q, struct queue_item *it); // not queued is fine
struct queue_item *queue_expired(const struct queue *q,
                                 int64_t now_ns); // the first one past its deadline, or NULL
int32_t queue_position(const struct queue *q,
                       const struct queue_item *it); // 0 = next; -1 if not in it
