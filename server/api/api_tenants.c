// SPDX-License-Identifier: Apache-2.0
// Tenants: what each may use, has waiting and has used.
#include <string.h>

#include "base/clock.h"
#include "proto/message.h"
#include "scheduler/queue/tenant.h"
#include "server/api/api.h"

static Hlod__V1__Tenant *shown(struct arena *a, struct tenant *t, int64_t now_ns) {
    Hlod__V1__Tenant *m = message_new(a, &hlod__v1__tenant__descriptor);
    m->name = arena_strdup(a, t->name);
    m->weight = t->limits.weight;
    m->runs_a_minute = t->limits.runs;
    m->bytes_a_minute = t->limits.bytes;
    m->max_places = t->limits.places;
    m->jobs = t->jobs;
    m->waiting = t->lanes[ROLE_DEVICE].n + t->lanes[ROLE_COMPILE].n;
    m->places = t->places;
    m->total_jobs = t->total_jobs;
    m->refused = t->refused;
    m->device_ms = clock_ms(t->used_ns[ROLE_DEVICE]);
    m->compile_ms = clock_ms(t->used_ns[ROLE_COMPILE]);
    m->total_bytes = t->total_bytes;
    m->runs_left = quota_left(&t->runs, now_ns);
    m->bytes_left = quota_left(&t->bytes, now_ns);
    m->places_elsewhere = t->elsewhere.places;
    if (t->elsewhere.counts) m->places_here = t->elsewhere.may_places ? t->elsewhere.may_places : 1;
    return m;
}

status_t api_tenants(struct call *c) {
    const struct tenants *all = sched_tenants(c->api->sched);
    bool every = c->principal.scopes & SCOPE_ADMIN;
    Hlod__V1__ListTenantsReply m = HLOD__V1__LIST_TENANTS_REPLY__INIT;
    m.tenants = arena_array(&c->arena, Hlod__V1__Tenant *, all->n + 1);
    for (struct tenant *t = all->first; t; t = t->next)
        if (every || !strcmp(t->name, c->principal.tenant))
            m.tenants[m.n_tenants++] = shown(&c->arena, t, clock_ns());
    return call_reply(c, &m.base);
}
