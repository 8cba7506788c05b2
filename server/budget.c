// SPDX-License-Identifier: Apache-2.0
// A count and a list. Only the head of the list is served, so that a large body is not starved by
// small ones; one that is larger than the whole budget goes when nothing else is held.
#include "server/budget.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/loop.h"

struct budget {
    struct loop_timer *timer;
    int64_t max, used, wait_ns;
    struct budget_hold *head, *tail;
};

static bool fits(const struct budget *b, int64_t n) {
    return b->used + n <= b->max || b->used == 0;
}

static void add(struct budget *b, struct budget_hold *h, int64_t n) {
    h->b = b;
    h->held += n;
    b->used += n;
    metric_set(M_RECEIVE_BYTES, b->used);
}

static void leave(struct budget_hold *h) {
    struct budget *b = h->b;
    *(h->prev ? &h->prev->next : &b->head) = h->next;
    *(h->next ? &h->next->prev : &b->tail) = h->prev;
    h->prev = h->next = NULL;
    h->waits = false;
}

static status_t no_room(const struct budget *b, int64_t n) {
    metric_add(M_RECEIVE_REFUSED, 1);
    status_t st = st_new(ST_UNAVAILABLE,
                         "no room for %lld bytes of request: the requests under way hold %lld of "
                         "%lld",
                         (long long)n, (long long)b->used, (long long)b->max);
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_RECEIVE_BUDGET), 1000);
}

static void serve(void *arg) {
    struct budget *b = arg;
    while (b->head) {
        struct budget_hold *h = b->head;
        bool room = fits(b, h->wanted), late = clock_ns() - h->since_ns >= b->wait_ns;
        if (!room && !late) break;
        leave(h);
        if (room) add(b, h, h->wanted);
        h->ready(h->ctx, room ? ST_OK : no_room(b, h->wanted));
    }
    if (b->head)
        loop_timer_start(b->timer, (b->head->since_ns + b->wait_ns - clock_ns()) / 1000000 + 1);
}
static void serve_soon(struct budget *b) {
    if (b->head) loop_timer_start(b->timer, 0);
}

struct budget *budget_new(struct loop *l, int64_t max_bytes, int64_t wait_ms) {
    struct budget *b = calloc(1, sizeof *b);
    if (!b) abort();
    *b = (struct budget){.max = max_bytes, .wait_ns = wait_ms * 1000000};
    b->timer = loop_timer_new(l, serve, b);
    return b;
}
void budget_free(struct budget *b) {
    if (!b) return;
    loop_timer_free(b->timer);
    free(b);
}

bool budget_take(struct budget *b, struct budget_hold *h, int64_t n,
                 void (*ready)(void *ctx, status_t st), void *ctx) {
    if (!b->head && fits(b, n)) {
        add(b, h, n);
        return true;
    }
    metric_add(M_RECEIVE_WAITS, 1);
    h->b = b;
    h->wanted = n;
    h->since_ns = clock_ns();
    h->ready = ready;
    h->ctx = ctx;
    h->waits = true;
    h->next = NULL;
    h->prev = b->tail;
    *(b->tail ? &b->tail->next : &b->head) = h;
    b->tail = h;
    serve_soon(b); // starts the clock
    return false;
}

status_t budget_try(struct budget *b, struct budget_hold *h, int64_t n) {
    if (b->head || !fits(b, n)) return no_room(b, n);
    add(b, h, n);
    return ST_OK;
}

void budget_set(struct budget *b, struct budget_hold *h, int64_t n) {
    add(b, h, n - h->held);
    serve_soon(b);
}

void budget_drop(struct budget_hold *h) {
    if (!h->b) return;
    if (h->waits) leave(h);
    add(h->b, h, -h->held);
    serve_soon(h->b);
}

