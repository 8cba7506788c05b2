// SPDX-License-Identifier: Apache-2.0
// A ring. `head` and `tail` count bytes and never go back; a record lies in one piece, so that what
// is left before the ring's end is skipped where it is too small, as a record without spans.
#include "server/otlp/otlp_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"

enum { ALIGN = 16, LEAST = 1 << 12 };
struct head {
    size_t bytes; // with this
    unsigned spans;
    bool skipped;
};
_Static_assert(sizeof(struct head) == ALIGN, "records are aligned");
struct otlp_queue {
    uint8_t *ring;
    size_t cap;
    atomic_size_t first, next;  // taker's, putter's
    size_t room_at, room_bytes; // of the putter's, between room and put
    atomic_uint spans;
    unsigned enough;
    atomic_bool sleeps;
    bool woken; // with the mutex
    pthread_mutex_t mutex;
    pthread_cond_t more;
};

struct otlp_queue *otlp_queue_new(size_t bytes, unsigned enough) {
    struct otlp_queue *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->cap = LEAST;
    while (q->cap < bytes)
        q->cap *= 2;
    q->enough = enough;
    q->ring = aligned_alloc(ALIGN, q->cap);
    pthread_mutex_init(&q->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->more, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (q->ring) return q;
    otlp_queue_free(q);
    return NULL;
}
void otlp_queue_free(struct otlp_queue *q) {
    if (!q) return;
    pthread_cond_destroy(&q->more);
    pthread_mutex_destroy(&q->mutex);
    free(q->ring);
    free(q);
}

static struct head *at(struct otlp_queue *q, size_t place) {
    return (struct head *)(void *)(q->ring + (place & (q->cap - 1)));
}

void *otlp_queue_room(struct otlp_queue *q, size_t n) {
    if (n > q->cap / 2) return NULL;
    size_t need = sizeof(struct head) + ((n + ALIGN - 1) & ~(size_t)(ALIGN - 1));
    size_t next = atomic_load_explicit(&q->next, memory_order_relaxed),
           first = atomic_load_explicit(&q->first, memory_order_acquire);
    size_t before_end = q->cap - (next & (q->cap - 1)), skip = before_end < need ? before_end : 0;
    if (q->cap - (next - first) < skip + need) return NULL;
    if (skip) *at(q, next) = (struct head){.bytes = skip, .skipped = true};
    q->room_at = next + skip;
    q->room_bytes = need;
    return at(q, q->room_at) + 1;
}
void otlp_queue_put(struct otlp_queue *q, unsigned spans) {
    *at(q, q->room_at) = (struct head){.bytes = q->room_bytes, .spans = spans};
    atomic_store_explicit(&q->next, q->room_at + q->room_bytes, memory_order_release);
    unsigned before = atomic_fetch_add(&q->spans, spans);
    if (before + spans < q->enough || !atomic_load(&q->sleeps)) return;
    pthread_mutex_lock(&q->mutex);
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
}

const void *otlp_queue_first(struct otlp_queue *q) {
    size_t first = atomic_load_explicit(&q->first, memory_order_relaxed);
    if (first == atomic_load_explicit(&q->next, memory_order_acquire)) return NULL;
    if (at(q, first)->skipped) {
        first += at(q, first)->bytes; // there is a record behind it
        atomic_store_explicit(&q->first, first, memory_order_release);
    }
    return at(q, first) + 1;
}
void otlp_queue_drop(struct otlp_queue *q) {
    size_t first = atomic_load_explicit(&q->first, memory_order_relaxed);
    const struct head *h = at(q, first);
    atomic_fetch_sub(&q->spans, h->spans);
    atomic_store_explicit(&q->first, first + h->bytes, memory_order_release);
}

// A putter that sees `sleeps` signals; one that does not has counted its spans before we look.
static void wait(struct otlp_queue *q, int64_t until_ns, bool for_spans) {
    pthread_mutex_lock(&q->mutex);
    if (for_spans) atomic_store(&q->sleeps, true);
    while (!q->woken && !(for_spans && atomic_load(&q->spans) >= q->enough)) {
        int64_t left = until_ns - clock_ns();
        if (left <= 0) break;
        struct timespec until = clock_after(left);
        pthread_cond_timedwait(&q->more, &q->mutex, &until);
    }
    atomic_store(&q->sleeps, false);
    q->woken = false;
    pthread_mutex_unlock(&q->mutex);
}
void otlp_queue_wait(struct otlp_queue *q, int64_t until_ns) {
    wait(q, until_ns, true);
}
void otlp_queue_sleep(struct otlp_queue *q, int64_t until_ns) {
    wait(q, until_ns, false);
}
void otlp_queue_wake(struct otlp_queue *q) {
    pthread_mutex_lock(&q->mutex);
    q->woken = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
}
unsigned otlp_queue_spans(const struct otlp_queue *q) {
    return atomic_load(&q->spans);
}
