// SPDX-License-Identifier: Apache-2.0
// quota: so many events a minute, as a bucket that refills steadily and holds one minute's worth.
// Pure: the clock is the caller's. Thread: one at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct quota {
    int64_t per_minute; // 0 = no limit
    int64_t credit_ns;  // one event costs a minute / per_minute
    int64_t last_ns;
};
void quota_init(struct quota *q, int64_t per_minute, int64_t now_ns); // full
// True: one is taken. False: *out_wait_ms (at least 1) says when there will be one.
bool quota_take(struct quota *q, int64_t now_ns, int64_t *out_wait_ms);
