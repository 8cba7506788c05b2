// SPDX-License-Identifier: Apache-2.0
// Counts, and a list of who waits. Of each tenant only the first is served, so that a large body is
// not starved by small ones of its own; one that is larger than all that may be goes when nothing
// else is held. A share's bound is what it leaves free (dynamic thresholds, as in switches that
// share a buffer between ports).
#include "server/body/budget.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/loop.h"

// A body that came slower than this in its first while is a slow one.
enum { SLOW_BYTES_A_S = 1 << 20, SLOW_AFTER_MS = 500, LOOK_MS = 100 };
struct share {
    struct share *next;
    char *tenant;
    int64_t used;
    int holds; // that name it
    bool seen; // in a walk over who waits
};
struct budget {
    struct loop_timer *timer;
    int64_t max, used, wait_ns;
    bool by_tenant, of_bodies;
    struct share *shares;
    struct budget_hold *head, *tail, *holders;
};

static struct share *share_of(struct budget *b, struct budget_hold *h) {
    if (h->share) return h->share;
    const char *name = b->by_tenant && h->tenant ? h->tenant : "";
    struct share *s = b->shares;
    while (s && strcmp(s->tenant, name) != 0)
        s = s->next;
    if (!s) {
        if (!(s = calloc(1, sizeof *s)) || !(s->tenant = strdup(name))) abort();
        s->next = b->shares;
        b->shares = s;
    }
    s->holds++;
    return h->share = s;
}
static void leave_share(struct budget *b, struct budget_hold *h) {
    struct share *s = h->share, **at = &b->shares;
    h->share = NULL;
    if (!s || --s->holds) return;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s->tenant);
    free(s);
}

static bool fits(const struct budget *b, const struct share *s, int64_t n) {
    if (b->used + n > b->max) return b->used == 0;
    return !b->by_tenant || s->used == 0 || s->used + n <= b->max - b->used - n;
}

static void hold_on(struct budget *b, struct budget_hold *h) {
    h->begun_ns = clock_ns();
    h->held_prev = NULL;
    h->held_next = b->holders;
    if (h->held_next) h->held_next->held_prev = h;
    b->holders = h;
}
static void hold_off(struct budget *b, struct budget_hold *h) {
    *(h->held_prev ? &h->held_prev->held_next : &b->holders) = h->held_next;
    if (h->held_next) h->held_next->held_prev = h->held_prev;
    h->held_prev = h->held_next = NULL;
}
static void add(struct budget *b, struct budget_hold *h, int64_t n) {
    bool before = h->held > 0;
    h->b = b;
    h->held += n;
    b->used += n;
    share_of(b, h)->used += n;
    if (before != (h->held > 0)) (before ? hold_off : hold_on)(b, h);
    if (b->of_bodies) metric_set(M_RECEIVE_BYTES, b->used);
}

static void leave(struct budget_hold *h) {
    struct budget *b = h->b;
    *(h->prev ? &h->prev->next : &b->head) = h->next;
    *(h->next ? &h->next->prev : &b->tail) = h->prev;
    h->prev = h->next = NULL;
    h->waits = false;
}

static status_t no_room(const struct budget *b, int64_t n) {
    if (b->of_bodies) metric_add(M_RECEIVE_REFUSED, 1);
    status_t st = st_new(ST_UNAVAILABLE,
                         "no room for %lld bytes of request: the requests under way hold %lld of "
                         "%lld%s",
                         (long long)n, (long long)b->used, (long long)b->max,
                         b->used + n <= b->max ? ", your tenant its share of them" : "");
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_RECEIVE_BUDGET), 1000);
}

// Others wait: who reserved and sends slowly keeps what came.
static void shrink_slow(struct budget *b) {
    int64_t now = clock_ns();
    for (struct budget_hold *h = b->holders, *next; h; h = next) {
        next = h->held_next;
        int64_t ms = (now - h->begun_ns) / CLOCK_MS;
        if (!h->arrived || h->arrived >= h->held || ms < SLOW_AFTER_MS || h->waits ||
            h->arrived >= ms * SLOW_BYTES_A_S / 1000)
            continue;
        h->slow = true;
        add(b, h, h->arrived - h->held);
    }
}

static void serve(void *arg) {
    struct budget *b = arg;
    if (b->head) shrink_slow(b);
    for (struct share *s = b->shares; s; s = s->next)
        s->seen = false;
    for (struct budget_hold *h = b->head, *next; h; h = next) {
        next = h->next;
        struct share *s = h->share;
        bool room = !s->seen && fits(b, s, h->wanted),
             late = clock_ns() - h->since_ns >= b->wait_ns;
        s->seen = s->seen || !room;
        if (!room && !late) continue;
        leave(h);
        if (room) add(b, h, h->wanted);
        h->ready(h->ctx, room ? ST_OK : no_room(b, h->wanted));
        next = b->head; // the one before may have left as well
        for (struct share *t = b->shares; t; t = t->next)
            t->seen = false;
    }
    if (b->head) loop_timer_start(b->timer, LOOK_MS);
}
static void serve_soon(struct budget *b) {
    if (b->head) loop_timer_start(b->timer, 0);
}

struct budget *budget_new(struct loop *l, int64_t max_bytes, int64_t wait_ms, bool by_tenant,
                          bool of_bodies) {
    struct budget *b = arena_must_calloc(1, sizeof *b);
    *b = (struct budget){.max = max_bytes,
                         .wait_ns = clock_of_ms((double)wait_ms),
                         .by_tenant = by_tenant,
                         .of_bodies = of_bodies};
    b->timer = loop_timer_new(l, serve, b);
    return b;
}
void budget_free(struct budget *b) {
    if (!b) return;
    loop_timer_free(b->timer);
    free(b);
}

// Does one of the share wait already?
static bool before_it(const struct budget *b, const struct share *s) {
    for (const struct budget_hold *h = b->head; h; h = h->next)
        if (h->share == s) return true;
    return false;
}

bool budget_take(struct budget *b, struct budget_hold *h, int64_t n,
                 void (*ready)(void *ctx, status_t st), void *ctx) {
    struct share *s = share_of(b, h);
    h->b = b;
    if (!before_it(b, s) && fits(b, s, n)) {
        add(b, h, n);
        return true;
    }
    metric_add(M_RECEIVE_WAITS, 1);
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
    struct share *s = share_of(b, h);
    h->b = b;
    if (before_it(b, s) || !fits(b, s, n)) return no_room(b, n);
    add(b, h, n);
    return ST_OK;
}

void budget_set(struct budget *b, struct budget_hold *h, int64_t n) {
    add(b, h, n - h->held);
    h->arrived = 0; // whole: no matter how long it stays
    serve_soon(b);
}

void budget_drop(struct budget_hold *h) {
    struct budget *b = h->b;
    if (!b) return;
    if (h->waits) leave(h);
    add(b, h, -h->held);
    leave_share(b, h);
    h->b = NULL;
    serve_soon(b);
}
