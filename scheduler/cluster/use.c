// SPDX-License-Identifier: Apache-2.0
// Both the tenants here and those of a message are in the order of their names, so one walk along
// both finds each.
#include "scheduler/cluster/use.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/metrics.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vec.h"
#include "proto/message.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/seal.h"
#include "scheduler/queue/tenant.h"
#include "scheduler/remote/peers.h"

enum { WINDOW_BEATS = 2, STALE_BEATS = 2 * NODES_BEATS, SHUN_BEATS = 2, SMOOTH = 4 };
enum { COUNT_MAX = 1 << 30 };
static const int64_t WANT_MAX = INT64_C(1) << 50;
struct seen { // of a tenant at a node, as that last told
    char *tenant;
    int64_t runs, bytes, want_runs, want_bytes, heard_ns;
    int32_t places, want_places, jobs, jobs_waiting;
};
struct peer {
    char *node, *life;
    VEC(struct seen) v; // by tenant
    uint64_t number;    // of its last message
    int64_t heard_ns, shun_ns;
};
struct sum { // of a tenant at all others
    int64_t want_runs, want_bytes, places, jobs;
    int32_t nodes, given; // that tell of it; places that it got from here since our last beat
};
struct use {
    struct use_config cfg;
    void (*tally)(void *ctx);
    void *tally_ctx;
    VEC(struct peer *) peers; // by node
    struct smap sums;
    size_t n_seen;
    char *next; // that is told first in our next message; NULL: begins again
    bool up;
    uint64_t number;
    int64_t sent, heard, refused, moved;
};

// ---- who is there

static bool is_there(const struct node *x) {
    return x->m->proved && !x->lost && !x->gone;
}
static int32_t count_nodes(const struct use *u) { // with us
    int32_t n = 1;
    for (size_t k = 0; k < u->cfg.nodes->v.n; k++)
        n += is_there(u->cfg.nodes->v.v[k]);
    return n;
}
static int64_t window_ns(const struct use *u) {
    int64_t beat = u->cfg.beat_ms;
    for (size_t k = 0; k < u->cfg.nodes->v.n; k++) {
        const struct node *x = u->cfg.nodes->v.v[k];
        if (is_there(x) && x->m->beat_ms > beat) beat = x->m->beat_ms;
    }
    return WINDOW_BEATS * beat * CLOCK_MS;
}
static size_t place(const struct use *u, const char *node, bool *there) {
    size_t at = 0;
    while (at < u->peers.n && strcmp(u->peers.v[at]->node, node) < 0)
        at++;
    *there = at < u->peers.n && !strcmp(u->peers.v[at]->node, node);
    return at;
}

// ---- what is known of a tenant

static struct sum *sum_of(const struct use *u, const char *tenant) {
    return smap_get(&u->sums, str_of(tenant));
}
static void add(struct use *u, const struct seen *x, int sign) {
    struct sum *s = sum_of(u, x->tenant);
    if (!s) {
        s = arena_must_calloc(1, sizeof *s);
        smap_put(&u->sums, str_of(x->tenant), s);
    }
    s->want_runs += sign * x->want_runs;
    s->want_bytes += sign * x->want_bytes;
    s->places += sign * (int64_t)x->places;
    s->jobs += sign * (int64_t)x->jobs;
    s->nodes += sign;
    if (!s->nodes) free(smap_del(&u->sums, str_of(x->tenant)));
}
static void drop_seen(struct use *u, struct peer *p, size_t k) {
    add(u, &p->v.v[k], -1);
    free(p->v.v[k].tenant);
    memmove(p->v.v + k, p->v.v + k + 1, (--p->v.n - k) * sizeof *p->v.v);
    u->n_seen--;
}
static void empty(struct use *u, struct peer *p) {
    while (p->v.n)
        drop_seen(u, p, p->v.n - 1);
    free(p->life);
    p->life = NULL;
    p->number = 0;
}
static void drop_peer(struct use *u, struct peer *p) {
    empty(u, p);
    vec_done(&p->v);
    free(p->node);
    free(p);
}
static const struct seen *seen_at(const struct peer *p, const char *tenant) {
    size_t low = 0, high = p->v.n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(p->v.v[mid].tenant, tenant) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->v.n && !strcmp(p->v.v[low].tenant, tenant) ? &p->v.v[low] : NULL;
}

// ---- the shares

// Half of it equally, so that who begins to want has some at once; half by what each wants.
static int32_t share_of(int64_t ours, int64_t others, int32_t n) {
    __int128 half = QUOTA_ONE / 2, all = (__int128)ours + others;
    return (int32_t)(all ? half / n + half * ours / all : QUOTA_ONE / n);
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
// Of `whole`, laid along `all`, what begins between first and first + n: such parts make the whole.
static int64_t piece(int64_t whole, int64_t all, int64_t first, int64_t n) {
    return (int64_t)((__int128)(first + n) * whole / all - (__int128)first * whole / all);
}
// Places that may be taken here: what is wanted, while that is not too much, and an equal part of
// the rest; else a part by what is wanted. As all were told, so that the parts make the whole.
static int32_t may_places(const struct use *u, const struct tenant *t, int32_t n) {
    int64_t most = t->limits.places, ours = least(t->told.want_places, most), all = ours;
    int64_t first = 0, rank = 0; // what is wanted by the nodes before us; how many there are
    for (size_t k = 0; k < u->peers.n; k++) {
        const struct seen *x = seen_at(u->peers.v[k], t->name);
        int64_t want = x ? least(x->want_places, most) : 0;
        all += want;
        if (strcmp(u->peers.v[k]->node, u->cfg.node) < 0) first += want;
    }
    for (size_t k = 0; k < u->cfg.nodes->v.n; k++) {
        const struct node *x = u->cfg.nodes->v.v[k];
        rank += is_there(x) && strcmp(x->m->node, u->cfg.node) < 0;
    }
    if (all > most) return (int32_t)piece(most, all, first, ours);
    return (int32_t)least(ours + piece(most - all, n, rank, 1), COUNT_MAX);
}
// Of one tenant, as far as is known.
static void reckon(const struct use *u, struct tenant *t, int32_t n, int64_t window, int64_t now) {
    const struct sum *s = sum_of(u, t->name);
    struct tenant_elsewhere *e = &t->elsewhere;
    bool alone = n < 2, cut = !alone && !u->up;
    if (t->limits.runs || t->limits.bytes) {
        int32_t runs = share_of(t->told.want_runs, s ? s->want_runs : 0, n);
        int32_t bytes = share_of(t->told.want_bytes, s ? s->want_bytes : 0, n);
        quota_share(&t->runs, now, alone ? 0 : runs, window);
        quota_share(&t->bytes, now, alone ? 0 : bytes, window);
        quota_cut(&t->runs, now, cut ? n : 0);
        quota_cut(&t->bytes, now, cut ? n : 0);
    }
    *e = (struct tenant_elsewhere){.counts = !alone && t->limits.places > 0,
                                   .places = s && !cut ? (int32_t)least(s->places, COUNT_MAX) : 0,
                                   .suite_jobs = s ? (int32_t)least(s->jobs, COUNT_MAX) : 0};
    if (!e->counts) return;
    // More than at our last beat only from the next one on: until then others may not have heard
    // that we want it, nor we what they took.
    e->may_places =
        cut ? (int32_t)(t->limits.places / n) : (int32_t)least(may_places(u, t, n), t->told.part);
}
static void note_parts(struct use *u) {
    int32_t n = count_nodes(u);
    for (struct tenant *t = u->cfg.tenants->first; t; t = t->next)
        if (t->limits.places) t->told.part = may_places(u, t, n);
}
static void reckon_all(struct use *u) {
    int32_t n = count_nodes(u);
    int64_t window = window_ns(u), now = clock_ns();
    for (struct tenant *t = u->cfg.tenants->first; t; t = t->next)
        reckon(u, t, n, window, now);
    u->cfg.room(u->cfg.ctx);
}

// ---- what we tell

static int64_t smooth(int64_t want, int64_t more) {
    int64_t now = more < WANT_MAX / 1000 ? more * 1000 : WANT_MAX;
    int64_t next = want + (now - want) / SMOOTH;
    return next == want && now < want ? now : next; // rounded to a stand-still
}
static void look_at(struct tenant *t) {
    struct tenant_told *x = &t->told;
    x->want_runs = smooth(x->want_runs, t->runs.wanted - x->wanted_runs);
    x->want_bytes = smooth(x->want_bytes, t->bytes.wanted - x->wanted_bytes);
    // A moment without any waiting is no end of it.
    int64_t places = (int64_t)t->places + t->lanes[ROLE_COMPILE].n + t->lanes[ROLE_DEVICE].n;
    if (places > COUNT_MAX) places = COUNT_MAX;
    if (places < x->want_places) places += (x->want_places - places) / 2;
    x->want_places = places;
    x->wanted_runs = t->runs.wanted;
    x->wanted_bytes = t->bytes.wanted;
}
// NULL: nothing that others need to know.
static Hlod__Cluster__TenantUse *told_of(struct arena *a, struct tenant *t, int64_t now) {
    Hlod__Cluster__TenantUse m = HLOD__CLUSTER__TENANT_USE__INIT;
    m.tenant = t->name;
    m.runs = t->runs.taken;
    m.runs_before = t->told.runs;
    m.bytes = t->bytes.taken;
    m.bytes_before = t->told.bytes;
    m.runs_owed_us = quota_owed_us(&t->runs, now);
    m.bytes_owed_us = quota_owed_us(&t->bytes, now);
    m.want_runs = t->told.want_runs;
    m.want_bytes = t->told.want_bytes;
    m.places = t->places;
    m.want_places = (int32_t)t->told.want_places;
    m.jobs = t->suite_jobs;
    m.jobs_waiting = t->suite_waiting;
    const struct tenant_limits *l = &t->limits;
    bool flows = m.runs != m.runs_before || m.bytes != m.bytes_before || m.runs_owed_us ||
                 m.bytes_owed_us || m.want_runs || m.want_bytes;
    bool any = ((l->runs || l->bytes) && flows) || (l->places && (m.places || m.want_places)) ||
               m.jobs || m.jobs_waiting;
    if (!any) return NULL;
    t->told.runs = m.runs;
    t->told.bytes = m.bytes;
    return arena_dup(a, &m, sizeof m);
}
static void tell(struct use *u) {
    struct arena a = {0};
    Hlod__Cluster__Use m = HLOD__CLUSTER__USE__INIT;
    Hlod__Cluster__TenantUse *all[USE_TENANTS];
    int64_t now = clock_ns();
    char *next = NULL;
    m.node = (char *)(uintptr_t)u->cfg.node;
    m.life = (char *)(uintptr_t)u->cfg.life;
    m.number = ++u->number;
    m.tenants = all;
    for (struct tenant *t = u->cfg.tenants->first; t && !next; t = t->next) {
        if (u->next && strcmp(t->name, u->next) < 0) continue;
        if (m.n_tenants == USE_TENANTS && !(next = strdup(t->name))) abort();
        if (!next && (all[m.n_tenants] = told_of(&a, t, now))) m.n_tenants++;
    }
    free(u->next);
    u->next = next;
    u->sent += m.n_tenants > 0;
    if (m.n_tenants) u->cfg.send(u->cfg.ctx, &m);
    arena_done(&a);
}
static void forget_stale(struct use *u, int64_t now) {
    int64_t old = now - STALE_BEATS * window_ns(u);
    for (size_t p = 0; p < u->peers.n; p++)
        for (size_t k = u->peers.v[p]->v.n; k-- > 0;)
            if (u->peers.v[p]->v.v[k].heard_ns < old) drop_seen(u, u->peers.v[p], k);
}
void use_beat(struct use *u) {
    struct str name;
    void *s;
    if (u->tally) u->tally(u->tally_ctx);
    for (struct tenant *t = u->cfg.tenants->first; t; t = t->next)
        look_at(t);
    for (size_t i = 0; smap_next(&u->sums, &i, &name, &s);)
        ((struct sum *)s)->given = 0;
    if (u->up) tell(u);
    forget_stale(u, clock_ns());
    reckon_all(u);
    note_parts(u);
}
void use_connected(struct use *u, bool up) {
    if (u->up == up) return;
    u->up = up;
    // What they took meanwhile was their part: counted again from what they tell next.
    for (size_t p = 0; !up && p < u->peers.n; p++)
        u->peers.v[p]->heard_ns = 0;
    reckon_all(u);
}

// ---- what we hear

static bool count_fits(int64_t n) {
    return n >= 0 && n <= COUNT_MAX;
}
static bool one_fits(const Hlod__Cluster__TenantUse *m) {
    const int64_t most = INT64_MAX / 4;
    bool sums = m->runs > -most && m->runs < most && m->runs_before > -most &&
                m->runs_before < most && m->bytes > -most && m->bytes < most &&
                m->bytes_before > -most && m->bytes_before < most;
    return sums && m->runs_owed_us >= 0 && m->bytes_owed_us >= 0 && m->want_runs >= 0 &&
           m->want_runs <= WANT_MAX && m->want_bytes >= 0 && m->want_bytes <= WANT_MAX &&
           count_fits(m->places) && count_fits(m->want_places) && count_fits(m->jobs) &&
           count_fits(m->jobs_waiting) && text_is_name(str_of(m->tenant), SEAL_TENANT);
}
const char *use_fault(const Hlod__Cluster__Use *m) {
    if (!peer_name_fits(m->node) || !peer_name_fits(m->life)) return "no name of a node";
    if (m->n_tenants > USE_TENANTS) return "too many tenants";
    for (size_t k = 0; k < m->n_tenants; k++) {
        if (!one_fits(m->tenants[k])) return "numbers out of bounds";
        if (k && strcmp(m->tenants[k - 1]->tenant, m->tenants[k]->tenant) >= 0)
            return "no order of tenants";
    }
    return NULL;
}
static struct peer *peer_of(struct use *u, const char *node) {
    bool there;
    size_t at = place(u, node, &there);
    if (there) return u->peers.v[at];
    struct peer *p = arena_must_calloc(1, sizeof *p);
    if (!(p->node = strdup(node))) abort();
    vec_push(&u->peers, p);
    memmove(u->peers.v + at + 1, u->peers.v + at, (u->peers.n - 1 - at) * sizeof *u->peers.v);
    u->peers.v[at] = p;
    return p;
}
// What was taken there since it was last heard; where a message was lost, since that.
static int64_t since(bool known, int64_t last, int64_t before, int64_t now) {
    return now - (known && last <= before ? last : before);
}
// It may be new here, or our view of it: it is charged what its bucket lacks there.
static void charge(struct tenant *t, const struct seen *last, const Hlod__Cluster__TenantUse *m,
                   bool fresh, int64_t now) {
    bool known = last && !fresh;
    quota_others(&t->runs, now, since(known, known ? last->runs : 0, m->runs_before, m->runs));
    quota_others(&t->bytes, now, since(known, known ? last->bytes : 0, m->bytes_before, m->bytes));
    if (!fresh) return;
    quota_owe(&t->runs, now, m->runs_owed_us);
    quota_owe(&t->bytes, now, m->bytes_owed_us);
}
static void keep(struct use *u, struct peer *p, size_t k, bool there,
                 const Hlod__Cluster__TenantUse *m, int64_t now) {
    if (!there) {
        struct seen x = {.tenant = strdup(m->tenant)};
        if (!x.tenant) abort();
        vec_push(&p->v, x);
        memmove(p->v.v + k + 1, p->v.v + k, (p->v.n - 1 - k) * sizeof *p->v.v);
        p->v.v[k] = x;
        add(u, &x, 1);
        u->n_seen++;
    }
    struct seen *x = &p->v.v[k], next = {.tenant = x->tenant,
                                         .runs = m->runs,
                                         .bytes = m->bytes,
                                         .want_runs = m->want_runs,
                                         .want_bytes = m->want_bytes,
                                         .heard_ns = now,
                                         .places = m->places,
                                         .want_places = m->want_places,
                                         .jobs = m->jobs,
                                         .jobs_waiting = m->jobs_waiting};
    add(u, &next, 1);
    add(u, x, -1);
    *x = next;
}
// Those of the message are known here from now on, so that what they owe is kept.
static void meet(struct use *u, const Hlod__Cluster__Use *m, int64_t now) {
    const struct tenant *t = u->cfg.tenants->first;
    bool missing = false;
    for (size_t k = 0; k < m->n_tenants && !missing; k++) {
        while (t && strcmp(t->name, m->tenants[k]->tenant) < 0)
            t = t->next;
        missing = !t || strcmp(t->name, m->tenants[k]->tenant) != 0;
    }
    for (size_t k = 0; k < m->n_tenants && missing; k++)
        tenants_get(u->cfg.tenants, m->tenants[k]->tenant, now);
}
void use_hear(struct use *u, const Hlod__Cluster__Use *m) {
    const struct node *x = nodes_find(u->cfg.nodes, m->node);
    int64_t now = clock_ns();
    if (!strcmp(m->life, u->cfg.life)) return;
    if (!x || !is_there(x) || strcmp(x->m->life, m->life) != 0) return; // its beat comes first
    struct peer *p = peer_of(u, m->node);
    if (p->life && strcmp(p->life, m->life) != 0) empty(u, p);
    if (m->number <= p->number) return; // somebody says it again
    p->number = m->number;
    bool fresh = !p->life || now - p->heard_ns > NODES_BEATS * CLOCK_MS * x->m->beat_ms;
    if (!p->life && !(p->life = strdup(m->life))) abort();
    p->heard_ns = now;
    u->heard++;
    meet(u, m, now);

    int32_t n = count_nodes(u);
    int64_t window = window_ns(u);
    struct tenant *t = u->cfg.tenants->first;
    size_t at = 0;
    for (size_t k = 0; k < m->n_tenants; k++) {
        const Hlod__Cluster__TenantUse *one = m->tenants[k];
        while (at < p->v.n && strcmp(p->v.v[at].tenant, one->tenant) < 0)
            at++;
        while (t && strcmp(t->name, one->tenant) < 0)
            t = t->next;
        bool there = at < p->v.n && !strcmp(p->v.v[at].tenant, one->tenant);
        bool here = t && !strcmp(t->name, one->tenant);
        if (here) charge(t, there ? &p->v.v[at] : NULL, one, fresh, now);
        if (there || u->n_seen < USE_MAX)
            keep(u, p, at, there, one, now);
        else
            u->refused++;
        if (here) reckon(u, t, n, window, now);
    }
    u->cfg.room(u->cfg.ctx);
}
void use_lost(struct use *u, const char *node) {
    bool there;
    size_t at = place(u, node, &there);
    struct peer *p = there ? u->peers.v[at] : NULL;
    if (p) {
        memmove(u->peers.v + at, u->peers.v + at + 1, (--u->peers.n - at) * sizeof *u->peers.v);
        drop_peer(u, p);
    }
    reckon_all(u);
}

// ---- batch jobs

struct choice {
    const struct peer *home;
    struct sum *sum;
    int64_t running, weight;
};
static bool better(const struct choice *a, const struct choice *b) {
    return !b->home || a->running * b->weight < b->running * a->weight;
}
// The tenant of those that wait there which has least for its weight.
static struct choice best_at(const struct use *u, const struct peer *p) {
    struct choice best = {0};
    for (size_t k = 0; k < p->v.n; k++) {
        const struct seen *x = &p->v.v[k];
        const struct tenant *t = tenants_find(u->cfg.tenants, x->tenant);
        struct sum *s = sum_of(u, x->tenant);
        if (x->jobs_waiting <= 0) continue;
        struct choice c = {p, s, s->jobs + s->given + (t ? t->suite_jobs : 0),
                           t ? t->limits.weight : 1};
        if (better(&c, &best)) best = c;
    }
    return best;
}
const char *use_home(struct use *u, const char *home) {
    struct choice best = {0};
    int64_t now = clock_ns();
    bool there;
    size_t own = place(u, home, &there);
    if (there) best = best_at(u, u->peers.v[own]);
    for (size_t k = 0; k < u->peers.n && best.home; k++) {
        const struct peer *p = u->peers.v[k];
        const struct node *x = nodes_find(u->cfg.nodes, p->node);
        if (k == own || !x || !is_there(x) || now < p->shun_ns) continue;
        struct choice c = best_at(u, p);
        if (c.home && better(&c, &best)) best = c;
    }
    if (!best.home) return home;
    best.sum->given++;
    u->moved += best.home != u->peers.v[own];
    return best.home->node;
}
void use_nothing(struct use *u, const char *home) {
    bool there;
    size_t at = place(u, home, &there);
    if (there) u->peers.v[at]->shun_ns = clock_ns() + SHUN_BEATS * CLOCK_MS * u->cfg.beat_ms;
}

// ---- life

// Before it takes anything: else each node would give it a whole bucket until its next beat.
static void on_ruled(void *ctx, struct tenant *t) {
    const struct use *u = ctx;
    reckon(u, t, count_nodes(u), window_ns(u), clock_ns());
}
struct use *use_new(const struct use_config *cfg) {
    struct use *u = arena_must_calloc(1, sizeof *u);
    u->cfg = *cfg;
    cfg->tenants->ruled = on_ruled;
    cfg->tenants->ctx = u;
    return u;
}
void use_join(struct use *u, void (*tally)(void *ctx), void *ctx) {
    u->tally = tally;
    u->tally_ctx = ctx;
}
void use_stop(struct use *u) {
    if (u) u->cfg.tenants->ruled = NULL;
}
void use_free(struct use *u) {
    if (!u) return;
    for (size_t k = 0; k < u->peers.n; k++)
        drop_peer(u, u->peers.v[k]);
    vec_done(&u->peers);
    smap_done(&u->sums);
    free(u->next);
    free(u);
}
void use_metrics(const struct use *u, struct strbuf *b) {
    const struct metric_count all[] = {
        {"sent", u->sent}, {"heard", u->heard}, {"refused", u->refused}, {"moved", u->moved}};
    metrics_counts(b, "hlod_cluster_use_total",
                   "messages of what tenants use: sent, heard; tenants of nodes beyond those that "
                   "are kept; tickets whose place went to another home's job",
                   "what", all, sizeof all / sizeof *all);
}
