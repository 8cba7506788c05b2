// SPDX-License-Identifier: Apache-2.0
// breaker: whether something outside is worth asking. After three failures in a row it is down:
// nobody asks it, and no request waits for it, until a probe finds it well; probes come after 1 s,
// then 2, 4, ... 60 s, or when it said. Pure; time is given. Thread: any, one at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { BREAKER_FAILURES = 3 };
struct breaker {
    int failures; // in a row
    int64_t pause_ns, until_ns;
    bool down, probing;
}; // zero-initialise
static inline bool breaker_down(const struct breaker *b) {
    return b->down;
}
// It is down, and to be probed now; until that ends by one of the next two, no other probe is due.
bool breaker_probe(struct breaker *b, int64_t now_ns);
void breaker_ok(struct breaker *b);
// retry_after_ms: as it said, 0 = it did not: goes before the pause. `sure`: one failure is enough.
void breaker_failed(struct breaker *b, int64_t now_ns, int64_t retry_after_ms, bool sure);
