// SPDX-License-Identifier: Apache-2.0
// http_joins: how often a holder of the scope `worker` may join pages (--join-rate): a join takes a
// device from one page and gives it to the next, and starts a session of a worker. Thread: loop.
#pragma once
#include "base/map.h"
#include "server/auth.h"

struct http_joins {
    struct smap holders;
};
// RESOURCE_EXHAUSTED, REASON_JOIN_RATE: not now. take: it joins; else whether it might is asked.
// per_minute: of each holder, the same at each call; 0 = no limit.
status_t http_joins_may(struct http_joins *j, int64_t per_minute, const struct principal *p,
                        bool take) MUST_CHECK;
void http_joins_done(struct http_joins *j);
