// SPDX-License-Identifier: Apache-2.0
#include "scheduler/remote/breaker.h"

static const int64_t FIRST_NS = 1000000000, LONGEST_NS = 60000000000;

bool breaker_probe(struct breaker *b, int64_t now_ns) {
    if (!b->down || b->probing || now_ns < b->until_ns) return false;
    return b->probing = true;
}
void breaker_ok(struct breaker *b) {
    *b = (struct breaker){0};
}
void breaker_failed(struct breaker *b, int64_t now_ns, int64_t retry_after_ms, bool sure) {
    b->failures++;
    if (!b->down && b->failures < BREAKER_FAILURES && !sure) return;
    if (b->down && !b->probing) return; // of what was asked before it was down
    int64_t said_ns = retry_after_ms < LONGEST_NS / 1000000 ? retry_after_ms * 1000000 : LONGEST_NS;
    b->pause_ns = b->down ? b->pause_ns * 2 : FIRST_NS;
    if (b->pause_ns > LONGEST_NS) b->pause_ns = LONGEST_NS;
    if (b->pause_ns < said_ns) b->pause_ns = said_ns;
    b->until_ns = now_ns + b->pause_ns;
    b->down = true;
    b->probing = false;
}
