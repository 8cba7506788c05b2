// SPDX-License-Identifier: Apache-2.0
// Work that is put aside since its workers died of it: who sees it, who takes it back.
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/message.h"
#include "scheduler/workers/blame.h"
#include "server/api/api.h"

status_t api_list_aside(struct call *c) {
    const struct blames *all = sched_blames(c->api->sched);
    int64_t now = clock_ns();
    Hlod__V1__ListAsideReply m = HLOD__V1__LIST_ASIDE_REPLY__INIT;
    m.aside = arena_array(&c->arena, Hlod__V1__Aside *, all->rows.n + 1);
    for (size_t i = 0; i < all->rows.n; i++) {
        const struct blame *x = &all->rows.v[i];
        if (x->until_ns <= now) continue;
        if (!api_sees_all(c) && strcmp(x->of.tenant, c->principal.tenant) != 0) continue;
        Hlod__V1__Aside *a = message_new(&c->arena, &hlod__v1__aside__descriptor);
        a->tenant = arena_strdup(&c->arena, x->of.tenant);
        a->step = arena_strdup(&c->arena, x->of.step);
        a->digest = api_hex(&c->arena, x->of.work);
        a->deaths = x->deaths;
        a->seconds = (double)((x->until_ns - now) / CLOCK_MS) / 1e3;
        a->why = arena_strdup(&c->arena, x->why);
        m.aside[m.n_aside++] = a;
    }
    return call_reply(c, &m.base);
}

status_t api_lift_aside(struct call *c) {
    const Hlod__V1__LiftAsideRequest *q = call_request(c);
    Hlod__V1__LiftAsideReply m = HLOD__V1__LIFT_ASIDE_REPLY__INIT;
    struct digest d;
    if (*q->digest && !digest_parse(str_of(q->digest), &d))
        return st_because(ST_INVALID_ARGUMENT, BAD_DIGEST, "digest: 64 hex digits, or nothing");
    m.lifted = blames_lift(sched_blames(c->api->sched), *q->digest ? &d : NULL, clock_ns());
    log_event(LOG_INFO, "work.lifted", "n=%d", (int)m.lifted);
    return call_reply(c, &m.base);
}
