// SPDX-License-Identifier: Apache-2.0
// Credit is kept as time, so that nothing is rounded away between two events.
#include "scheduler/queue/quota.h"

#include "base/clock.h"

static const int64_t minute_ns = 60000 * CLOCK_MS;

void quota_init(struct quota *q, int64_t per_minute, int64_t now_ns) {
    *q = (struct quota){per_minute, minute_ns, now_ns};
}
void quota_set(struct quota *q, int64_t per_minute) {
    q->per_minute = per_minute;
}

static int64_t cost_ns(const struct quota *q, int64_t n) {
    __int128 ns = (__int128)n * minute_ns / q->per_minute;
    return ns < INT64_MAX / 2 ? (int64_t)ns : INT64_MAX / 2;
}

bool quota_take(struct quota *q, int64_t now_ns, int64_t n, int64_t *out_wait_ms) {
    if (q->per_minute <= 0) return true;
    int64_t passed = now_ns > q->last_ns ? now_ns - q->last_ns : 0;
    q->last_ns = now_ns;
    q->credit_ns = passed < minute_ns - q->credit_ns ? q->credit_ns + passed : minute_ns;
    int64_t cost = cost_ns(q, n), needed = cost < minute_ns ? cost : minute_ns;
    if (q->credit_ns < needed) {
        *out_wait_ms = (needed - q->credit_ns + CLOCK_MS - 1) / CLOCK_MS;
        return false;
    }
    q->credit_ns -= cost;
    return true;
}

void quota_give(struct quota *q, int64_t n) {
    if (q->per_minute <= 0) return;
    int64_t cost = cost_ns(q, n);
    q->credit_ns = cost < minute_ns - q->credit_ns ? q->credit_ns + cost : minute_ns;
}

void quota_charge(struct quota *q, int64_t n) {
    if (q->per_minute <= 0) return;
    int64_t cost = cost_ns(q, n);
    q->credit_ns = q->credit_ns > INT64_MIN / 2 + cost ? q->credit_ns - cost : INT64_MIN / 2;
}
