// SPDX-License-Identifier: Apache-2.0
// A bucket a holder, as long as the server runs: holders are entries of the tokens file, or the one
// of servers without.
#include "server/http/http_joins.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "proto/hlod.pb-c.h"
#include "scheduler/queue/quota.h"

static struct quota *bucket_of(struct http_joins *j, int64_t per_minute,
                               const struct principal *p) {
    struct str name = str_of(p->name);
    struct quota *q = smap_get(&j->holders, name);
    if (q) return q;
    q = arena_must_calloc(1, sizeof *q);
    quota_init(q, per_minute, clock_ns());
    smap_put(&j->holders, name, q);
    return q;
}
status_t http_joins_may(struct http_joins *j, int64_t per_minute, const struct principal *p,
                        bool take) {
    int64_t wait_ms;
    if (!per_minute) return ST_OK;
    struct quota *q = bucket_of(j, per_minute, p);
    if (quota_take(q, clock_ns(), 1, &wait_ms)) {
        if (!take) quota_give(q, 1);
        return ST_OK;
    }
    if (take) metric_add(M_JOINS_REFUSED, 1);
    status_t st =
        st_exhausted("more than %lld pages a minute joined by one holder of a token; the next may "
                     "in %.1f s",
                     (long long)per_minute, (double)wait_ms / 1e3);
    return st_retry_after(st_reason(st, HLOD__V1__REASON__REASON_JOIN_RATE), wait_ms);
}
void http_joins_done(struct http_joins *j) {
    struct str name;
    void *q;
    for (size_t i = 0; smap_next(&j->holders, &i, &name, &q);)
        free(q);
    smap_done(&j->holders);
}
