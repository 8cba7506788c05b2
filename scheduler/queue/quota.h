// SPDX-License-Identifier: Apache-2.0
// quota: so much a minute (events, bytes), as a bucket that refills steadily and holds one minute's
// worth. Something larger than the bucket goes when it is full, and leaves a debt. Pure: the clock
// is the caller's. Thread: one at a time.
//
// Several may count one quota together (docs/decisions/0047): each has the whole bucket, and takes
// out of it what it hears that the others took. Until that is heard, at least a window later, each
// takes in a window no more than its share of what was left when it began, and shares make one; so
// together they take what one would. The first of a window goes without looking at the share, else
// a share of less than one would be none. Who hears nothing of the others has an equal part of the
// bucket, and of what flows into it, for itself.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { QUOTA_SLOTS = 8, QUOTA_ONE = 1000000 };
struct quota {
    int64_t per_minute; // 0 = no limit
    int64_t credit_ns;  // one event costs a minute / per_minute; negative: a debt
    int64_t last_ns;
    int64_t taken, wanted; // here, in all, limited or not: less what was given back; also refused
    // Of one that others count too.
    int32_t share, parts;           // of QUOTA_ONE; 0: all. Cut off, with one of so many; 0: not
    int64_t slot_ns, slot_since_ns; // a window is QUOTA_SLOTS of them; 0: there is none
    int64_t recent_ns[QUOTA_SLOTS + 1]; // taken here, the slot under way first
};
void quota_init(struct quota *q, int64_t per_minute, int64_t now_ns); // full
// Another limit from now on; what was saved or owed stays, in minutes.
void quota_set(struct quota *q, int64_t per_minute);
// True: n are taken. False: *out_wait_ms (at least 1) says when there may be so many.
bool quota_take(struct quota *q, int64_t now_ns, int64_t n, int64_t *out_wait_ms);
// What was taken for nothing.
void quota_give(struct quota *q, int64_t n);
void quota_charge(struct quota *q, int64_t n); // taken already: may leave a debt

int64_t quota_left(struct quota *q, int64_t now_ns); // of a limit; negative: a debt

// ---- counted together
// From now on: a share of QUOTA_ONE in a window. share 0: it is alone.
void quota_share(struct quota *q, int64_t now_ns, int32_t share, int64_t window_ns);
// Nothing is heard of the others any more: parts (at least 2) with it; or they are heard again: 0.
void quota_cut(struct quota *q, int64_t now_ns, int32_t parts);
// The others took so many; negative: gave them back. A debt of ten minutes is the most that this
// makes.
void quota_others(struct quota *q, int64_t now_ns, int64_t n);
// Below full, in us of a minute's refill: what others are told.
int64_t quota_owed_us(struct quota *q, int64_t now_ns);
void quota_owe(struct quota *q, int64_t now_ns, int64_t owed_us); // at least so much, ten minutes
                                                                  // at most
