// SPDX-License-Identifier: Apache-2.0
// Whose suites are: every few beats each node looks through the heads that JetStream keeps.
//
//   of ours, not looked at since we were apart  -> still ours: it goes on; another's: handed over
//   of ours, and not there: JetStream lost it   -> put again
//   of ours, and not here                       -> ended: its records go; else fetched from them
//   another's that is lost for longer than the lease, and we are the first of its keepers that is
//   there -> fetched: request, blobs; then the head is made ours, if nobody did so; then its
//   results, and it goes on here
//
// The head says who may begin jobs and who is asked; that each job has one result does not depend
// on it (suite_share.c).
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/formats/cluster.pb-c.h"
#include "proto/message.h"
#include "proto/reason.h"
#include "proto/weigh.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/nodes.h"
#include "scheduler/cluster/pull.h"
#include "scheduler/cluster/registers.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"

enum { SWEEP_MS = 100, SWEEP_MOST_MS = 5000, LAST_MS = 600000, AGAIN_MS = 2000, MOST_KEEPERS = 64 };
struct seen { // a head
    int64_t id;
    bool there;       // in the list of now
    char *home;       // NULL: not read yet
    int64_t dead_ns;  // since when its home, if not known at all, is not there; 0: it is
    int64_t ended_ns; // of ours: when it was found to have ended; 0: it goes on, as far as is known
};
struct taking { // of a suite
    struct arena arena;
    int64_t id;
    bool ours; // by its head
    const char *from;
    uint64_t number; // of the head
    Hlod__Cluster__Suite *head;
    Hlod__V1__SubmitJobsRequest *q;
    struct strbuf bytes;
    uint32_t part;
    struct share_blobs blobs;
    size_t n_had, at;
    uint32_t *keys; // numbers of jobs
    size_t n_keys;
    VEC(struct job_record) ended;
    struct suite_record r;
    int64_t open;
    status_t st;
};
struct move {
    struct suites *s;
    struct loop_timer *timer;
    VEC(struct seen) all;              // by id
    size_t at;                         // of a sweep under way
    int64_t tick_ns, met_ns, since_ns; // met: JetStream; since: without a gap
    int64_t again, after;              // is put again; 0: none. Those up to `after` were
    struct taking *taking;
    bool stopped; // frees itself at the end of the sweep that is under way
    bool busy;
};

// ---- words

static struct suite *find(struct suites *s, int64_t id) {
    struct suite *x = s->first;
    while (x && x->id != id)
        x = x->next;
    return x;
}
static size_t place(const struct move *m, int64_t id) {
    size_t from = 0, to = m->all.n;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (m->all.v[mid].id < id)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}
static struct seen *seen_of(struct move *m, int64_t id) {
    size_t k = place(m, id);
    if (k < m->all.n && m->all.v[k].id == id) return &m->all.v[k];
    vec_push(&m->all, (struct seen){0});
    memmove(&m->all.v[k + 1], &m->all.v[k], (m->all.n - 1 - k) * sizeof *m->all.v);
    m->all.v[k] = (struct seen){.id = id};
    return &m->all.v[k];
}
static int64_t lease_ns(const struct move *m) {
    return m->s->cfg.lease_ms * CLOCK_MS;
}
static const char *self(const struct move *m) {
    return cluster_node(m->s->fleet.cluster);
}
static bool is_there(const struct move *m, const char *name) {
    const struct node *n = nodes_find(cluster_nodes(m->s->fleet.cluster), name);
    return !strcmp(name, self(m)) || (n && n->m->proved && !n->lost && !n->gone);
}
// For how long the home of that suite is lost to us, who could have heard it.
static int64_t dead_for(struct move *m, struct seen *e) {
    const struct node *n = nodes_find(cluster_nodes(m->s->fleet.cluster), e->home);
    int64_t now = clock_ns();
    if (is_there(m, e->home)) {
        e->dead_ns = 0;
        return 0;
    }
    if (!e->dead_ns) e->dead_ns = n ? n->heard_ns : now;
    return now - (e->dead_ns > m->since_ns ? e->dead_ns : m->since_ns);
}
static bool is_pending(const struct move *m, int64_t id) {
    for (size_t k = 0; k < m->s->sharing.n; k++)
        if (m->s->sharing.v[k] == id) return true;
    return false;
}

// ---- one that is another's

struct lost {
    struct suites *s;
    struct suite *x;
    int64_t id;
    struct loop_timer *timer;
};
static void remove_work(void *arg) {
    const struct lost *l = arg;
    st_drop(journal_suite_remove(l->s->journal, l->id));
}
static void lost_over(void *arg) {
    struct lost *l = arg;
    l->s->n_runs--;
    suites_share_ends(l->s, l->id);
    loop_timer_free(l->timer);
    suite_unref(l->x);
    free(l);
}
static void tell_all(void *arg);
static void on_told(void *ctx, UNUSED int64_t suite, int failed) {
    struct lost *l = ctx;
    if (!failed)
        loop_work(l->s->sched->loop, remove_work, lost_over, l);
    else if (l->s->fleet.registers)
        loop_timer_start(l->timer, AGAIN_MS);
    else // it stays in the journal: the next daemon looks again
        lost_over(l);
}
// What only our journal had of it goes to the records first.
static void tell_all(void *arg) {
    struct lost *l = arg;
    share_again(l->s, l->id, false, on_told, l);
}
static void on_saved(void *ctx, UNUSED uint32_t n) {
    tell_all(ctx);
}
static void hand_over(struct move *m, struct suite *x, const char *home) {
    struct suites *s = m->s;
    struct lost *l = arena_must_calloc(1, sizeof *l);
    *l = (struct lost){s, x, x->id, loop_timer_new(s->sched->loop, tell_all, l)};
    log_event(LOG_WARN, "suite.moved", "suite=%" PRId64 " node=%s jobs=%u", x->id, home, x->n_left);
    s->n_runs++;
    vec_push(&s->sharing, x->id); // it is not taken back before its rows are gone
    s->lost(x);                   // out of the list, whose reference is ours
    suite_save_then(s, on_saved, l, 0);
}

// ---- one that becomes ours

static void look_next(struct move *m);
static void taken(struct move *m, const char *why) { // NULL: well
    struct taking *t = m->taking;
    if (why)
        log_event(LOG_WARN, "suite.take", "suite=%" PRId64 " from=%s why=\"%s\"", t->id, t->from,
                  why);
    m->taking = NULL;
    if (t->q) hlod__v1__submit_jobs_request__free_unpacked(t->q, NULL);
    strbuf_done(&t->bytes);
    vec_done(&t->blobs);
    vec_done(&t->ended);
    arena_done(&t->arena);
    free(t);
    look_next(m);
}
static bool ends_with(struct move *m, const struct register_reply *r, const char *what) {
    const char *why = m->stopped ? "the server is shutting down"
                      : r->what == REGISTER_FAILED || r->what == REGISTER_BAD ? r->why
                      : r->what == REGISTER_CONFLICT ? "another node was first"
                      : r->what == REGISTER_NONE     ? what
                                                     : NULL;
    if (why) taken(m, why);
    return why != NULL;
}
// A key that is another suite's here stays that one's: this one goes on without.
MUST_CHECK static status_t add_record(struct journal_jobs *j, struct suite_record *r) {
    struct suite_record with_key = *r;
    bool existed = false;
    status_t st = journal_suite_add(j, &with_key, &existed);
    if (st ? st_get_reason(st) != HLOD__V1__REASON__REASON_KEY_REUSED : !existed) return st;
    st_drop(st);
    memset(&r->key, 0, sizeof r->key);
    return journal_suite_add(j, r, &existed);
}
static void write_work(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    struct journal_jobs *j = m->s->journal;
    bool *kept = arena_zarray(&t->arena, bool, t->ended.n + 1);
    t->st = journal_suite_remove(j, t->id); // of an earlier time
    if (!t->st) t->st = add_record(j, &t->r);
    if (!t->st && t->ended.n) t->st = journal_jobs_write(j, t->ended.v, t->ended.n, kept);
}
static void written(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    char why[200] = "";
    if (t->st) {
        struct strbuf b = strbuf_over(why, sizeof why);
        strbuf_puts(&b, st_message(t->st));
        st_drop(t->st);
    } else {
        log_event(LOG_WARN, "suite.taken", "suite=%" PRId64 " from=%s jobs=%u ended=%zu", t->id,
                  t->from, t->r.n_jobs, t->ended.n);
        if (!m->stopped) m->s->found(m->s, &t->r, t->ended.v, t->ended.n);
    }
    taken(m, *why ? why : NULL);
}
// The record of the suite as the journal has it.
static void make_record(struct taking *t) {
    struct arena *a = &t->arena;
    const Hlod__Cluster__Suite *h = t->head;
    struct suite_cell *cells;
    t->r = (struct suite_record){.id = t->id,
                                 .tenant = h->tenant,
                                 .request = {(const uint8_t *)t->bytes.p, t->bytes.n},
                                 .created_ns = h->created_ns};
    if (h->key.len == sizeof t->r.key.b) memcpy(t->r.key.b, h->key.data, h->key.len);
    if (*h->traceparent) {
        t->r.traceparent = h->traceparent;
        t->r.tracestate = h->tracestate;
    }
    t->r.n_jobs = (uint32_t)suite_expand(t->q, a, &cells);
    struct span *briefs = arena_array(a, struct span, t->r.n_jobs + 1);
    for (uint32_t i = 0; i < t->r.n_jobs; i++) {
        Hlod__V1__Job *b = suite_brief(a, t->q, &cells[i], h->tenant, h->created_ns);
        b->traceparent = h->traceparent;
        b->tracestate = h->tracestate;
        briefs[i] = message_pack(a, &b->base);
    }
    t->r.briefs = briefs;
}
static void next_result(struct move *m);
static void on_result(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    struct taking *t = m->taking;
    if (r->what == REGISTER_BAD && !m->stopped) { // nobody's: that job has not ended
        next_result(m);
        return;
    }
    if (ends_with(m, r, "a result is gone")) return;
    const Hlod__Cluster__Ended *e =
        weigh_unpack_in(&t->arena, &hlod__cluster__ended__descriptor, r->bytes);
    if (!e || !e->result.len || e->finished_ns <= 0) {
        taken(m, "a result is none");
        return;
    }
    vec_push(&t->ended, ((struct job_record){.suite = t->id,
                                             .n = t->keys[t->at - 1],
                                             .brief = {e->brief.data, e->brief.len},
                                             .result = {e->result.data, e->result.len},
                                             .log = {e->log.data, e->log.len},
                                             .finished_ns = e->finished_ns}));
    next_result(m);
}
static void next_result(struct move *m) {
    struct taking *t = m->taking;
    struct arena a = {0};
    if (t->at == t->n_keys)
        loop_work(m->s->sched->loop, write_work, written, m);
    else {
        registers_get(m->s->fleet.registers, share_key(&a, "result", t->id, t->keys[t->at++]),
                      on_result, m);
    }
    arena_done(&a);
}
static void on_results(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    struct taking *t = m->taking;
    if (ends_with(m, r, "its results are gone")) return;
    t->keys = arena_array(&t->arena, uint32_t, r->n_keys + 1);
    for (size_t k = 0; k < r->n_keys; k++) { // others may have put what is no job's
        int64_t n = 0;
        if (str_to_i64(str_of(r->keys[k]), &n) && n > 0 && n <= t->r.n_jobs)
            t->keys[t->n_keys++] = (uint32_t)n;
    }
    next_result(m);
}
static void ask_results(struct move *m) {
    struct arena a = {0};
    make_record(m->taking);
    registers_list(m->s->fleet.registers, share_key(&a, "result", m->taking->id, 0), on_results, m);
    arena_done(&a);
}
static void on_ours(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    if (!ends_with(m, r, "its head is gone")) ask_results(m);
}
// The keepers stay; the home that is lost has all of it, too.
static void make_ours(struct move *m) {
    struct taking *t = m->taking;
    struct arena a = {0};
    Hlod__Cluster__Suite h = *t->head;
    h.keepers = arena_array(&a, char *, h.n_keepers + 1);
    h.n_keepers = 0;
    for (size_t k = 0; k < t->head->n_keepers; k++)
        if (strcmp(t->head->keepers[k], t->head->home) != 0)
            h.keepers[h.n_keepers++] = t->head->keepers[k];
    h.keepers[h.n_keepers++] = t->head->home;
    h.home = (char *)(uintptr_t)self(m);
    registers_put(m->s->fleet.registers, share_key(&a, "head", t->id, 0), message_pack(&a, &h.base),
                  (int64_t)t->number, on_ours, m);
    arena_done(&a);
}
static void next_blob(struct move *m);
static void on_blob(void *ctx, status_t st) {
    struct move *m = ctx;
    char why[300];
    if (!st && !m->stopped) {
        next_blob(m);
        return;
    }
    struct strbuf b = strbuf_over(why, sizeof why);
    strbuf_puts(&b, st ? st_message(st) : "the server is shutting down");
    st_drop(st);
    taken(m, strbuf_cstr(&b));
}
static void next_blob(struct move *m) {
    struct taking *t = m->taking;
    struct pull *p = m->s->sched->pull;
    if (!p)
        taken(m, "the cluster has ended");
    else if (t->n_had < t->blobs.n)
        pull_get(p, t->head->tenant, t->blobs.v[t->n_had++], t->from, on_blob, m);
    else if (t->ours)
        ask_results(m);
    else
        make_ours(m);
}
static void next_part(struct move *m);
static void on_part(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    if (ends_with(m, r, "a part of its request is gone")) return;
    strbuf_add(&m->taking->bytes, r->bytes.p, r->bytes.n);
    next_part(m);
}
static void next_part(struct move *m) {
    struct taking *t = m->taking;
    struct arena a = {0};
    if (t->part < t->head->parts)
        registers_get(m->s->fleet.registers, share_key(&a, "part", t->id, ++t->part), on_part, m);
    else {
        struct digest d = sha256_of(t->bytes.p, t->bytes.n);
        struct suite_cell *cells;
        bool whole = t->head->request.len == 32 && !memcmp(d.b, t->head->request.data, 32);
        if (whole)
            t->q = weigh_unpack_or_null(&hlod__v1__submit_jobs_request__descriptor,
                                        (struct span){(const uint8_t *)t->bytes.p, t->bytes.n});
        if (!t->q || !share_blobs(t->q, &t->blobs) ||
            suite_expand(t->q, &t->arena, &cells) != t->head->jobs)
            taken(m, "its request is not whole");
        else
            next_blob(m);
    }
    arena_done(&a);
}
static void skip_suite(UNUSED void *ctx, UNUSED const struct suite_record *r) {}
static void skip_job(UNUSED void *ctx, UNUSED const struct job_record *r) {}
static void look_work(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    struct journal_jobs_reader r = {skip_suite, skip_job, NULL};
    t->open = -1;
    if (t->ours) t->st = journal_suite_read(m->s->journal, t->id, &r, &t->open);
}
static void looked(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    bool ended = !t->st && t->open == 0;
    status_t st = t->st;
    t->st = ST_OK;
    if (st || m->stopped || ended || find(m->s, t->id) || is_pending(m, t->id)) {
        if (ended) seen_of(m, t->id)->ended_ns = clock_ns();
        st_drop(st);
        taken(m, NULL);
    } else
        next_part(m);
}
static void take(struct move *m, int64_t id, const struct register_reply *r,
                 const Hlod__Cluster__Suite *h) {
    struct taking *t = m->taking = arena_must_calloc(1, sizeof *t);
    t->id = id;
    t->number = r->number;
    t->head = weigh_unpack_in(&t->arena, &hlod__cluster__suite__descriptor,
                              message_pack(&t->arena, &h->base));
    t->from = t->head ? t->head->home : "";
    t->ours = !strcmp(t->from, self(m));
    loop_work(m->s->sched->loop, look_work, looked, m);
}

// ---- the sweep

static bool is_my_turn(const struct move *m, const Hlod__Cluster__Suite *h) {
    for (size_t k = 0; k < h->n_keepers && k < MOST_KEEPERS; k++)
        if (is_there(m, h->keepers[k])) return !strcmp(h->keepers[k], self(m));
    return false;
}
// Ours, and ended so long ago that its records may go.
static bool is_over(const struct move *m, const struct seen *e) {
    return e->home && !strcmp(e->home, self(m)) && e->ended_ns &&
           clock_ns() - e->ended_ns > LAST_MS * CLOCK_MS;
}
// The head first: nobody takes what is there in part.
static void forget_records(struct suites *s, int64_t id) {
    static const char *const what[] = {"head", "result", "part"};
    for (size_t k = 0; k < sizeof what / sizeof *what && s->fleet.registers; k++) {
        struct arena a = {0};
        const char *key = share_key(&a, what[k], id, 0);
        registers_drop(s->fleet.registers, k == 0 ? key : arena_printf(&a, "%s.>", key));
        arena_done(&a);
    }
}
static void on_head(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    struct arena a = {0};
    struct seen *e = &m->all.v[m->at - 1];
    const Hlod__Cluster__Suite *h =
        r->what == REGISTER_OK ? weigh_unpack_in(&a, &hlod__cluster__suite__descriptor, r->bytes)
                               : NULL;

    if (h && !m->stopped && !is_pending(m, e->id)) {
        struct suite *own = find(m->s, e->id);
        if (!e->home || strcmp(e->home, h->home) != 0) e->dead_ns = 0;
        if (e->home && strcmp(e->home, h->home) != 0) e->ended_ns = 0;
        free(e->home);
        if (!(e->home = strdup(h->home))) abort();
        bool ours = !strcmp(h->home, self(m));
        if (own && ours) {
            own->held = false;
            suites_pump(m->s);
        } else if (own)
            hand_over(m, own, h->home);
        else if (is_over(m, e)) {
            forget_records(m->s, e->id);
            e->ended_ns = clock_ns(); // until it is out of the list
        } else if (ours || (dead_for(m, e) > lease_ns(m) && is_my_turn(m, h))) {
            take(m, e->id, r, h);
            arena_done(&a);
            return;
        }
    }
    arena_done(&a);
    look_next(m);
}
// Is there something to be found out about it?
static bool wants_look(struct move *m, struct seen *e) {
    const struct suite *own = find(m->s, e->id);
    if (is_pending(m, e->id)) return false;
    if (own) return own->held || !e->home;
    if (!e->home) return true;
    if (strcmp(e->home, self(m)) != 0) return dead_for(m, e) > lease_ns(m);
    return !e->ended_ns || is_over(m, e);
}
static void free_move(struct move *m) {
    for (size_t k = 0; k < m->all.n; k++)
        free(m->all.v[k].home);
    vec_done(&m->all);
    m->s->n_runs--;
    free(m);
}
static void next_sweep(struct move *m) {
    int64_t ms = lease_ns(m) / CLOCK_MS / 8;
    m->busy = false;
    if (m->stopped) {
        if (!m->again) free_move(m);
    } else
        loop_timer_start(m->timer, ms < SWEEP_MS        ? SWEEP_MS
                                   : ms > SWEEP_MOST_MS ? SWEEP_MOST_MS
                                                        : ms);
}
static void look_next(struct move *m) {
    while (m->at < m->all.n && !m->stopped) {
        struct seen *e = &m->all.v[m->at++];
        if (!wants_look(m, e)) continue;
        struct arena a = {0};
        registers_get(m->s->fleet.registers, share_key(&a, "head", e->id, 0), on_head, m);
        arena_done(&a);
        return;
    }
    next_sweep(m);
}
static void put_missing(struct move *m);
static void on_again(void *ctx, int64_t suite, int failed) {
    struct move *m = ctx;
    if (!failed)
        log_event(LOG_WARN, "suite.again",
                  "suite=%" PRId64 " why=\"JetStream had lost it: it is put again\"", suite);
    m->again = 0;
    m->after = suite;
    m->s->n_runs--;
    if (!m->stopped)
        put_missing(m);
    else if (!m->busy)
        free_move(m);
}
// Ours that JetStream has not, one after the other.
static void put_missing(struct move *m) {
    for (struct suite *x = m->s->first; x && !m->again && !m->stopped; x = x->next) {
        if (x->id <= m->after) continue;
        size_t k = place(m, x->id);
        bool there = k < m->all.n && m->all.v[k].id == x->id;
        if (!suite_is_shared(x) || there || is_pending(m, x->id)) continue;
        m->again = x->id;
        m->s->n_runs++;
        share_again(m->s, x->id, true, on_again, m);
    }
}
static void on_heads(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    if (r->what != REGISTER_OK || m->stopped) {
        next_sweep(m);
        return;
    }
    int64_t now = clock_ns(), id;
    if (now - m->met_ns > lease_ns(m) / 2) m->since_ns = now; // others may have been there
    m->met_ns = now;
    for (size_t k = 0; k < m->all.n; k++)
        m->all.v[k].there = false;
    for (size_t k = 0; k < r->n_keys; k++)
        if (str_to_i64(str_of(r->keys[k]), &id) && id >= SUITE_SHARED) seen_of(m, id)->there = true;
    size_t n = 0;
    for (size_t k = 0; k < m->all.n; k++) {
        struct seen e = m->all.v[k];
        if (e.there)
            m->all.v[n++] = e;
        else
            free(e.home);
    }
    m->all.n = m->s->n_listed = n;
    m->at = 0;
    if (!m->again) m->after = 0;
    put_missing(m);
    look_next(m);
}
static void put_failed(struct suites *s) {
    for (struct suite *x = s->first; x; x = x->next)
        for (uint32_t i = 0; i < x->n_jobs && suite_is_shared(x); i++)
            if (x->jobs[i].put == P_FAILED && !x->held) suite_put(&x->jobs[i]);
}
static void on_tick(void *arg) {
    struct move *m = arg;
    struct suites *s = m->s;
    int64_t now = clock_ns();
    // We stood still, or were apart, for so long that others may have taken what is ours.
    bool apart = now - m->tick_ns > lease_ns(m) / 2 || now - m->met_ns > lease_ns(m) / 2;
    m->tick_ns = now;
    for (struct suite *x = s->first; x && apart; x = x->next)
        x->held = x->held || suite_is_shared(x);
    if (registers_ready(s->fleet.registers)) put_failed(s);
    m->busy = true;
    if (registers_ready(s->fleet.registers) && cluster_settled(s->fleet.cluster))
        registers_list(s->fleet.registers, "head", on_heads, m);
    else
        next_sweep(m);
}

// ---- what others of the daemon ask

void suites_move(struct suites *s, const struct suites_fleet *f) {
    struct move *m = s->move;
    if (m) {
        loop_timer_free(m->timer);
        m->timer = NULL;
        m->stopped = true;
        if (!m->busy && !m->again) free_move(m);
        s->move = NULL;
    }
    s->fleet = f && f->registers ? *f : (struct suites_fleet){0};
    if (!s->fleet.registers) return;
    m = s->move = arena_must_calloc(1, sizeof *m);
    m->s = s;
    s->n_runs++;
    m->timer = loop_timer_new(s->sched->loop, on_tick, m);
    m->tick_ns = m->met_ns = clock_ns();
    loop_timer_start(m->timer, 0);
}
void suites_unshare(struct suites *s, int64_t id) {
    forget_records(s, id);
    suites_share_ends(s, id);
}
bool suites_keeps(struct suites *s, int64_t suite) {
    return find(s, suite) != NULL;
}
status_t suites_sure(struct suites *s, int64_t suite) {
    const struct suite *x = find(s, suite);
    const struct move *m = s->move;
    if (!x || !suite_is_shared(x) || !x->held) return ST_OK;
    if (m && clock_ns() - m->met_ns < lease_ns(m) / 2) return ST_OK; // it is being looked at
    return st_new(ST_UNAVAILABLE,
                  "suite %" PRId64 " may be another node's by now: JetStream is not reached",
                  suite);
}

struct seek {
    struct suites *s;
    int64_t id;
    char *tenant; // NULL: any
    void (*done)(void *ctx, status_t st, const char *node);
    void *ctx;
};
MUST_CHECK static status_t no_such(int64_t id) {
    return st_because(ST_NOT_FOUND, JOB_NOT_FOUND, "no suite %" PRId64 " here", id);
}
static bool has_ended(const struct move *m, int64_t id) {
    size_t k = place(m, id);
    return k < m->all.n && m->all.v[k].id == id && m->all.v[k].ended_ns;
}
static void on_found(void *ctx, const struct register_reply *r) {
    struct seek *k = ctx;
    struct arena a = {0};
    const struct move *m = k->s->move;
    const Hlod__Cluster__Suite *h =
        r->what == REGISTER_OK ? weigh_unpack_in(&a, &hlod__cluster__suite__descriptor, r->bytes)
                               : NULL;
    status_t st = ST_OK;
    if (r->what == REGISTER_NONE || (h && k->tenant && strcmp(k->tenant, h->tenant) != 0))
        st = no_such(k->id);
    else if (!h || !m)
        st = st_new(ST_UNAVAILABLE, "whose suite %" PRId64 " is cannot be looked at: %s", k->id,
                    r->why ? r->why : "the cluster has ended");
    else if (!strcmp(h->home, self(m)) && has_ended(m, k->id))
        st = no_such(k->id); // no such job of it
    else if (!strcmp(h->home, self(m)))
        st = st_new(ST_UNAVAILABLE, "suite %" PRId64 " is on its way to this node", k->id);
    else if (!is_there(m, h->home))
        st = st_new(ST_UNAVAILABLE,
                    "node %s, which has suite %" PRId64 ", is lost: it waits, and moves once its "
                    "lease is over",
                    h->home, k->id);
    k->done(k->ctx, st, h ? h->home : "");
    k->s->n_runs--;
    arena_done(&a);
    free(k->tenant);
    free(k);
}
static void not_asked(void *arg) {
    on_found(arg, &(struct register_reply){.what = REGISTER_FAILED,
                                           .why = "the cluster is not reached"});
}
void suites_seek(struct suites *s, int64_t suite, const char *tenant,
                 void (*done)(void *, status_t, const char *), void *ctx) {
    struct arena a = {0};
    struct seek *k = arena_must_calloc(1, sizeof *k);
    *k = (struct seek){s, suite, tenant ? strdup(tenant) : NULL, done, ctx};
    if (tenant && !k->tenant) abort();
    s->n_runs++;
    if (s->fleet.registers)
        registers_get(s->fleet.registers, share_key(&a, "head", suite, 0), on_found, k);
    else
        loop_post(s->sched->loop, not_asked, k);
    arena_done(&a);
}
