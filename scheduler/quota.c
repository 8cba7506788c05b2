// SPDX-License-Identifier: Apache-2.0
// Credit is kept as time, so that nothing is rounded away between two events.
#include "scheduler/quota.h"

static const int64_t minute_ns = 60000000000;

void quota_init(struct quota *q, int64_t per_minute, int64_t now_ns) {
    *q = (struct quota){per_minute, minute_ns, now_ns};
}

bool quota_take(struct quota *q, int64_t now_ns, int64_t *out_wait_ms) {
    if (q->per_minute <= 0) return true;
    int64_t passed = now_ns > q->last_ns ? now_ns - q->last_ns : 0;
    q->last_ns = now_ns;
    q->credit_ns = passed < minute_ns - q->credit_ns ? q->credit_ns + passed : minute_ns;
    int64_t cost = minute_ns / q->per_minute;
    if (q->credit_ns < cost) {
        *out_wait_ms = (cost - q->credit_ns + 999999) / 1000000;
        return false;
    }
    q->credit_ns -= cost;
    return true;
}
