// SPDX-License-Identifier: Apache-2.0
// claims: who of a fleet compiles which executable, for the keys that this daemon keeps in mind
// (peers.h says which): the first that asks gets the key, the others wait until it brings the
// executable, gives up, is gone, or its time is over. They are advice: who is told nothing, or
// waits in vain, compiles; so at worst work is done twice. Pure; time is given. Thread: loop.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/map.h"

enum { CLAIMS_MAX = 4096, CLAIM_NAME = 64 };
struct claim_wait { // the waiter's, as long as it waits
    struct claim_wait *prev, *next;
    struct claim *claim; // NULL: it does not wait
    void (*ended)(void *ctx);
    void *ctx;
};
struct claims {
    struct smap by_key;
    struct claim *oldest, *newest; // of which the oldest is over first
};
void claims_init(struct claims *c);
void claims_done(struct claims *c); // who waits is not told
// True: the key is the asker's now, or was. False: another's, whose node is *out_node, borrowed.
// Those whose time is over end first, of whatever key: abandoned ones take no room. hold_ns: the
// same in all calls.
bool claims_take(struct claims *c, struct digest key, const char *node, const char *life,
                 int64_t now_ns, int64_t hold_ns, const char **out_node);
// `ended` fires once the claim ends, from inside the function that ends it. The key is claimed.
void claims_wait(struct claims *c, struct digest key, struct claim_wait *w);
void claims_leave(struct claim_wait *w); // waits no more; again is fine
// life: only if it is that process's; NULL: whoever's.
void claims_end(struct claims *c, struct digest key, const char *life);
void claims_end_of(struct claims *c, const char *life); // that process is gone; NULL: all
