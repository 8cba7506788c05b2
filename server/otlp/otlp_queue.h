// SPDX-License-Identifier: Apache-2.0
// otlp_queue: records from the loop to the exporter's thread, in memory of a fixed size. The loop
// writes a record where it will be read; where there is no room it goes without. One thread puts,
// one takes; neither waits for the other.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct otlp_queue;
// bytes: of all records that wait, rounded up to a power of two. enough: spans for which the taker
// is woken. NULL: no memory.
struct otlp_queue *otlp_queue_new(size_t bytes, unsigned enough);
void otlp_queue_free(struct otlp_queue *q); // NULL is fine

// Thread: the one that puts. Room for n bytes, aligned to 16; NULL: there is none. What is put
// then counts as so many spans.
void *otlp_queue_room(struct otlp_queue *q, size_t n);
void otlp_queue_put(struct otlp_queue *q, unsigned spans);

// Thread: the one that takes. The oldest record, which stays where it is until it is dropped; NULL:
// none.
const void *otlp_queue_first(struct otlp_queue *q);
void otlp_queue_drop(struct otlp_queue *q);
// Until enough spans wait, until that time (clock_ns), or until it is woken.
void otlp_queue_wait(struct otlp_queue *q, int64_t until_ns);
void otlp_queue_sleep(struct otlp_queue *q, int64_t until_ns); // the same, however many wait

// Thread: any.
void otlp_queue_wake(struct otlp_queue *q);
unsigned otlp_queue_spans(const struct otlp_queue *q); // that wait
