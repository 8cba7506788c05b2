// SPDX-License-Identifier: Apache-2.0
// quota: so much a minute (events, bytes), as a bucket that refills steadily and holds one minute's
// worth. Something larger than the bucket goes when it is full, and leaves a debt. Pure: the clock
// is the caller's. Thread: one at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct quota {
    int64_t per_minute; // 0 = no limit
    int64_t credit_ns;  // one event costs a minute / per_minute; negative: a debt
    int64_t last_ns;
};
void quota_init(struct quota *q, int64_t per_minute, int64_t now_ns); // full
// Another limit from now on; what was saved or owed stays, in minutes.
void quota_set(struct quota *q, int64_t per_minute);
// True: n are taken. False: *out_wait_ms (at least 1) says when there will be so many.
bool quota_take(struct quota *q, int64_t now_ns, int64_t n, int64_t *out_wait_ms);
// What was taken for nothing.
void quota_give(struct quota *q, int64_t n);
void quota_charge(struct quota *q, int64_t n); // taken already: may leave a debt
