// SPDX-License-Identifier: Apache-2.0
// Credit is kept as time, so that nothing is rounded away between two events.
#include "scheduler/queue/quota.h"

#include <string.h>

#include "base/clock.h"

static const int64_t minute_ns = 60000 * CLOCK_MS, worst_ns = -600000 * CLOCK_MS;

void quota_init(struct quota *q, int64_t per_minute, int64_t now_ns) {
    *q = (struct quota){
        .per_minute = per_minute, .credit_ns = minute_ns, .last_ns = now_ns, .parts = 0};
}
void quota_set(struct quota *q, int64_t per_minute) {
    q->per_minute = per_minute;
}

static int64_t cost_ns(const struct quota *q, int64_t n) {
    __int128 ns = (__int128)n * minute_ns / q->per_minute;
    return ns < INT64_MAX / 2 ? (int64_t)ns : INT64_MAX / 2;
}
// What the bucket holds: of the whole, or of the part that is ours while we are cut off.
static int64_t full_ns(const struct quota *q) {
    return q->parts ? minute_ns / q->parts : minute_ns;
}
static void refill(struct quota *q, int64_t now_ns) {
    int64_t passed = now_ns > q->last_ns ? now_ns - q->last_ns : 0, full = full_ns(q);
    if (q->parts) passed /= q->parts;
    q->last_ns = now_ns;
    q->credit_ns = passed < full - q->credit_ns ? q->credit_ns + passed : full;
}
static int64_t saturated(int64_t a, int64_t b) { // of b >= 0
    return a < INT64_MAX / 2 - b ? a + b : INT64_MAX / 2;
}

// ---- the window

static void turn(struct quota *q, int64_t now_ns) {
    enum { N = QUOTA_SLOTS + 1 };
    if (!q->slot_ns || now_ns < q->slot_since_ns) return;
    int64_t n = (now_ns - q->slot_since_ns) / q->slot_ns;
    if (!n) return;
    q->slot_since_ns += n * q->slot_ns;
    if (n > N) n = N;
    memmove(q->recent_ns + n, q->recent_ns, (size_t)(N - n) * sizeof *q->recent_ns);
    memset(q->recent_ns, 0, (size_t)n * sizeof *q->recent_ns);
}
// What was taken in a window, and up to a slot before it.
static int64_t recent(const struct quota *q) {
    int64_t sum = 0;
    for (int k = 0; k <= QUOTA_SLOTS; k++)
        sum = saturated(sum, q->recent_ns[k]);
    return sum;
}
static bool within_share(const struct quota *q, int64_t cost) {
    int64_t taken = recent(q);
    if (!q->share || q->parts || !taken) return true;
    __int128 most = ((__int128)q->credit_ns + taken) * q->share / QUOTA_ONE;
    return (__int128)taken + cost <= most;
}
static void note(struct quota *q, int64_t cost) {
    q->recent_ns[0] = saturated(q->recent_ns[0], cost);
}

// ---- taken and given

bool quota_take(struct quota *q, int64_t now_ns, int64_t n, int64_t *out_wait_ms) {
    q->wanted = saturated(q->wanted, n);
    if (q->per_minute > 0) {
        refill(q, now_ns);
        turn(q, now_ns);
        int64_t cost = cost_ns(q, n), full = full_ns(q), needed = cost < full ? cost : full;
        if (q->credit_ns < needed) {
            __int128 wait = (__int128)(needed - q->credit_ns) * (q->parts ? q->parts : 1);
            *out_wait_ms = (int64_t)(wait / CLOCK_MS) + (wait % CLOCK_MS != 0);
            return false;
        }
        if (!within_share(q, cost)) {
            *out_wait_ms = q->slot_ns / CLOCK_MS + 1;
            return false;
        }
        q->credit_ns -= cost;
        note(q, cost);
    }
    q->taken = saturated(q->taken, n);
    return true;
}

void quota_give(struct quota *q, int64_t n) {
    q->taken -= n;
    if (q->per_minute <= 0) return;
    int64_t cost = cost_ns(q, n), full = full_ns(q);
    q->credit_ns = cost < full - q->credit_ns ? q->credit_ns + cost : full;
    q->recent_ns[0] = cost < q->recent_ns[0] ? q->recent_ns[0] - cost : 0;
}

static void owe(struct quota *q, int64_t cost) {
    q->credit_ns = q->credit_ns > INT64_MIN / 2 + cost ? q->credit_ns - cost : INT64_MIN / 2;
}
void quota_charge(struct quota *q, int64_t n) {
    q->taken = saturated(q->taken, n);
    if (q->per_minute <= 0) return;
    owe(q, cost_ns(q, n));
    note(q, cost_ns(q, n));
}

int64_t quota_left(struct quota *q, int64_t now_ns) {
    if (q->per_minute <= 0) return 0;
    refill(q, now_ns);
    __int128 left = (__int128)q->credit_ns * q->per_minute / minute_ns;
    return left < -INT64_MAX ? -INT64_MAX : (int64_t)left;
}

// ---- counted together

void quota_share(struct quota *q, int64_t now_ns, int32_t share, int64_t window_ns) {
    turn(q, now_ns);
    if (share && !q->slot_ns) q->slot_since_ns = now_ns;
    q->share = share;
    q->slot_ns = share ? window_ns / QUOTA_SLOTS + 1 : 0;
}
void quota_cut(struct quota *q, int64_t now_ns, int32_t parts) {
    refill(q, now_ns);
    if (parts && !q->parts) q->credit_ns /= parts;
    q->parts = parts;
    if (q->credit_ns > full_ns(q)) q->credit_ns = full_ns(q);
}
void quota_others(struct quota *q, int64_t now_ns, int64_t n) {
    if (q->per_minute <= 0) return;
    refill(q, now_ns);
    if (n < 0) {
        int64_t more = n > -INT64_MAX ? cost_ns(q, -n) : INT64_MAX / 2, full = full_ns(q);
        q->credit_ns = more < full - q->credit_ns ? q->credit_ns + more : full;
        return;
    }
    int64_t before = q->credit_ns;
    owe(q, cost_ns(q, n));
    if (q->credit_ns < worst_ns) q->credit_ns = before < worst_ns ? before : worst_ns;
}
int64_t quota_owed_us(struct quota *q, int64_t now_ns) {
    if (q->per_minute <= 0) return 0;
    refill(q, now_ns);
    return (full_ns(q) - q->credit_ns) / 1000;
}
void quota_owe(struct quota *q, int64_t now_ns, int64_t owed_us) {
    if (q->per_minute <= 0 || owed_us <= 0) return;
    refill(q, now_ns);
    int64_t most_us = (minute_ns - worst_ns) / 1000;
    int64_t left = minute_ns - (owed_us < most_us ? owed_us : most_us) * 1000;
    if (q->credit_ns > left) q->credit_ns = left;
}
