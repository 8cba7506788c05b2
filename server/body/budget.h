// SPDX-License-Identifier: Apache-2.0
// budget: memory for all request bodies together. A transport reserves before it holds bytes and
// gives back when the call is done; who finds no room waits in order of arrival, its client held
// back by not reading on, and is refused with UNAVAILABLE when the wait takes too long.
// Reservations are exact for what is held, so --receive-bytes bounds the daemon's memory whatever
// clients send.
//
// Tenants have shares: one may hold as much as it leaves free, so that there is always room for
// somebody else. Whoever reserved for a whole body and sends it slowly keeps, while others wait,
// what has arrived, and asks again as it goes on. Thread: loop.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct budget;
struct loop;
struct loop_timer;
struct share;
struct budget_hold { // zero-initialise; embedded in the request
    struct budget *b;
    const char *tenant; // set before the first reservation; borrowed until budget_drop. NULL: none
    struct share *share;
    struct budget_hold *prev, *next;           // waiting
    struct budget_hold *held_prev, *held_next; // holding
    bool waits;
    bool slow; // it lost what had not arrived: reserve by what comes
    int64_t held, wanted, since_ns;
    int64_t arrived, begun_ns;             // of the body; the holder says `arrived`
    void (*ready)(void *ctx, status_t st); // takes st; fires once for each wait, never from inside
    void *ctx;
};
// by_tenant: false: one share, of all. of_bodies: the metrics of received bodies tell of it.
struct budget *budget_new(struct loop *l, int64_t max_bytes, int64_t wait_ms, bool by_tenant,
                          bool of_bodies);
void budget_free(struct budget *b); // nothing may be held. NULL is fine
// True: n bytes more are held. False: waits; `ready` follows. One wait at a time.
bool budget_take(struct budget *b, struct budget_hold *h, int64_t n,
                 void (*ready)(void *ctx, status_t st), void *ctx);
// As budget_take, but refuses rather than waits: UNAVAILABLE, REASON_RECEIVE_BUDGET.
status_t budget_try(struct budget *b, struct budget_hold *h, int64_t n) MUST_CHECK;
// What is held already (it exists): never waits, may exceed the limit for a while.
void budget_set(struct budget *b, struct budget_hold *h, int64_t n);
void budget_drop(struct budget_hold *h); // all of it; leaves the queue too, without `ready`
