// SPDX-License-Identifier: Apache-2.0
// Whose suites are: every few beats each node looks through the heads that JetStream keeps.
//
//   of ours, not looked at since we were apart  -> still ours: it goes on; another's: handed over
//   of ours, and not there: JetStream lost it   -> put again; the same for a while after it ended
//   another's that was ours                     -> the journal says so; once all its jobs have
//                                                  results: copied here
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

enum { COPY_MS = 500, COPY_MOST_MS = 60000, APART_MS = 60000 }; // APART: clocks, at most
enum { SWEEP_MS = 100, SWEEP_MOST_MS = 5000, LAST_MS = 600000, MOST_KEEPERS = 64 };
struct seen { // a head
    int64_t id;
    bool there;       // in the list of now
    char *home;       // NULL: not read yet
    int64_t dead_ns;  // since when its home, if not known at all, is not there; 0: it is
    int64_t ended_ns; // of ours: when it was found to have ended; 0: it goes on, as far as is known
    bool forgot;      // its records were dropped
    bool copy;        // was ours: the journal has it, without the results of its new home
    bool told;        // what the journal has of it are records, as far as nobody was first
    int64_t copy_ns, pause_ms; // when to look next whether it has ended there
};
struct taking { // of a suite; copy: of its results alone, once all are there
    struct arena arena;
    int64_t id;
    bool ours, copy; // ours by its head
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
    int64_t made_ns;                   // wall clock: when the stream was made; 0: not known
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

static void hand_over(struct seen *e, struct suite *x, const char *home) {
    e->copy = true;
    e->told = false;
    e->copy_ns = 0;
    e->pause_ms = COPY_MS;
    suite_leave(x, home);
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
static void write_work(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    struct journal_jobs *j = m->s->journal;
    t->st = journal_suite_replace(j, &t->r, t->ended.v, t->ended.n);
}
static void written(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    char why[200] = "";
    if (t->st) {
        struct strbuf b = strbuf_over(why, sizeof why);
        strbuf_puts(&b, st_message(t->st));
        st_drop(t->st);
    } else if (t->copy) {
        log_event(LOG_INFO, "suite.copied", "suite=%" PRId64 " from=%s jobs=%u", t->id, t->from,
                  t->r.n_jobs);
        seen_of(m, t->id)->copy = false;
    } else {
        seen_of(m, t->id)->copy = false;
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
    if (t->at == t->n_keys && t->copy && t->ended.n < t->r.n_jobs)
        taken(m, "a result is none");
    else if (t->at == t->n_keys)
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
        uint32_t n = share_job(r->keys[k], t->r.n_jobs);
        if (n) t->keys[t->n_keys++] = n;
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
    else if (t->n_had < t->blobs.n && !t->copy)
        pull_get(p, t->head->tenant, t->blobs.v[t->n_had++], t->from, on_blob, m);
    else if (t->ours || t->copy)
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
// Of one that was ours: are all its results there?
static void on_count(void *ctx, const struct register_reply *r) {
    struct move *m = ctx;
    struct taking *t = m->taking;
    size_t n = 0;
    if (ends_with(m, r, "its results are gone")) return;
    for (size_t k = 0; k < r->n_keys; k++)
        n += share_job(r->keys[k], t->head->jobs) > 0;
    if (n == t->head->jobs)
        next_part(m);
    else
        taken(m, NULL);
}
static void skip_suite(UNUSED void *ctx, UNUSED const struct suite_record *r) {}
static void skip_job(UNUSED void *ctx, UNUSED const struct job_record *r) {}
static void look_work(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    struct journal_jobs_reader r = {skip_suite, skip_job, NULL};
    t->open = -1;
    t->st = journal_suite_read(m->s->journal, t->id, &r, &t->open);
}
static void look_on(struct move *m) {
    struct taking *t = m->taking;
    if (t->copy) {
        struct arena a = {0};
        registers_list(m->s->fleet.registers, share_key(&a, "result", t->id, 0), on_count, m);
        arena_done(&a);
    } else
        next_part(m);
}
static void on_own(void *ctx, int64_t suite, int failed) {
    struct move *m = ctx;
    if (m->stopped || failed) {
        taken(m, m->stopped ? "the server is shutting down"
                            : "what the journal has of it cannot be put");
        return;
    }
    seen_of(m, suite)->told = true;
    look_on(m);
}
// What was told from our journal is to hold: it goes to the records before they take its place.
static void looked(void *arg) {
    struct move *m = arg;
    struct taking *t = m->taking;
    bool ended = !t->st && t->open == 0 && (t->ours || t->copy);
    status_t st = t->st;
    t->st = ST_OK;
    if (st || m->stopped || ended || find(m->s, t->id) || is_pending(m, t->id)) {
        if (ended && t->ours) seen_of(m, t->id)->ended_ns = clock_ns();
        if (ended) seen_of(m, t->id)->copy = false;
        st_drop(st);
        taken(m, NULL);
    } else if (t->open >= 0 && !seen_of(m, t->id)->told)
        share_again(m->s, t->id, false, on_own, m);
    else
        look_on(m);
}
static void take(struct move *m, int64_t id, bool copy, const struct register_reply *r,
                 const Hlod__Cluster__Suite *h) {
    struct taking *t = m->taking = arena_must_calloc(1, sizeof *t);
    t->id = id;
    t->number = r->number;
    t->head = weigh_unpack_in(&t->arena, &hlod__cluster__suite__descriptor,
                              message_pack(&t->arena, &h->base));
    t->from = t->head ? t->head->home : "";
    t->ours = !strcmp(t->from, self(m));
    t->copy = copy;
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
static bool wants_copy(const struct seen *e) {
    return e->copy && clock_ns() >= e->copy_ns;
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
            own->held = own->unsure = false;
            suites_pump(m->s);
        } else if (own)
            hand_over(e, own, h->home);
        else if (is_over(m, e)) {
            share_forget(m->s, e->id);
            e->ended_ns = clock_ns(); // until it is out of the list
            e->forgot = true;
        } else if (ours || (dead_for(m, e) > lease_ns(m) && is_my_turn(m, h))) {
            take(m, e->id, false, r, h);
            arena_done(&a);
            return;
        } else if (wants_copy(e)) {
            e->pause_ms = e->pause_ms < COPY_MOST_MS / 2 ? 2 * e->pause_ms : COPY_MOST_MS;
            e->copy_ns = clock_ns() + e->pause_ms * CLOCK_MS;
            take(m, e->id, true, r, h);
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
    if (!e->there || is_pending(m, e->id)) return false;
    if (own) return own->held || !e->home;
    if (!e->home) return true;
    if (strcmp(e->home, self(m)) != 0) return wants_copy(e) || dead_for(m, e) > lease_ns(m);
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
// Of ours, and ended a short while ago: its head is kept.
static bool lasts(const struct move *m, const struct seen *e) {
    return e->home && !strcmp(e->home, self(m)) && e->ended_ns && !e->forgot && !is_over(m, e);
}
// For how long the stream is there, at least; a new one lacks what its forerunner had.
static int64_t stream_age(const struct move *m) {
    int64_t age = m->made_ns ? clock_wall_ns() - m->made_ns : 0;
    return age > 0 ? age : 0;
}
// The next that JetStream has not, though it is ours. One of an earlier process may have been taken
// by another node since: where the stream is new that one is to put it.
static int64_t next_missing(struct move *m) {
    int64_t id = INT64_MAX;
    bool early = stream_age(m) < 2 * lease_ns(m);
    for (const struct suite *x = m->s->first; x && id == INT64_MAX; x = x->next) {
        size_t k = place(m, x->id);
        bool there = k < m->all.n && m->all.v[k].id == x->id && m->all.v[k].there;
        bool none = !suite_is_shared(x) || there || is_pending(m, x->id) || (early && x->unsure);
        if (x->id > m->after && !none) id = x->id;
    }
    for (size_t k = 0; k < m->all.n; k++) {
        const struct seen *e = &m->all.v[k];
        if (e->id > m->after && e->id < id && !e->there && lasts(m, e) && !find(m->s, e->id))
            id = e->id;
    }
    return id;
}
static void put_missing(struct move *m) {
    int64_t id = m->again || m->stopped ? INT64_MAX : next_missing(m);
    if (id == INT64_MAX) return;
    m->again = id;
    m->s->n_runs++;
    share_again(m->s, id, true, on_again, m);
}
// Suites that ended here.
static void note_ends(struct move *m) {
    for (size_t k = 0; k < m->s->ends.n; k++) {
        struct seen *e = seen_of(m, m->s->ends.v[k].id);
        free(e->home); // the one that it was taken from, maybe
        if (!(e->home = strdup(self(m)))) abort();
        e->ended_ns = m->s->ends.v[k].at_ns;
        e->copy = e->forgot = false;
    }
    m->s->ends.n = 0;
    for (size_t k = 0; k < m->s->away.n; k++) {
        struct suite_moved *x = &m->s->away.v[k];
        struct seen *e = seen_of(m, x->id);
        if (!e->home)
            e->home = x->node;
        else
            free(x->node);
        e->copy = true;
        e->pause_ms = COPY_MS;
    }
    m->s->away.n = 0;
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
    note_ends(m);
    m->made_ns = r->made_ns;

    size_t n = 0;
    m->s->n_listed = 0;
    for (size_t k = 0; k < m->all.n; k++) {
        struct seen e = m->all.v[k];
        m->s->n_listed += e.there;
        if (e.there || e.copy || lasts(m, &e))
            m->all.v[n++] = e;
        else
            free(e.home);
    }
    m->all.n = n;
    m->at = 0;
    if (!m->again) m->after = 0;
    put_missing(m);
    look_next(m);
}
// What ended in an earlier process, a short while ago, is put again, too; what moved is looked for.
struct earlier {
    struct suites *s;
    VEC(int64_t) ids;
    VEC(struct suite_moved) away;
    status_t st;
};
static void add_away(void *ctx, int64_t id, const char *node) {
    struct earlier *r = ctx;
    char *own = strdup(node);
    if (!own) abort();
    vec_push(&r->away, ((struct suite_moved){id, own}));
}
static void add_earlier(void *ctx, int64_t id) {
    struct earlier *r = ctx;
    vec_push(&r->ids, id);
}
static void read_earlier(void *arg) {
    struct earlier *r = arg;
    r->st =
        journal_suites_ended(r->s->journal, clock_wall_ns() - LAST_MS * CLOCK_MS, add_earlier, r);
    if (!r->st) r->st = journal_suites_moved(r->s->journal, add_away, r);
}
static void earlier_read(void *arg) {
    struct earlier *r = arg;
    for (size_t k = 0; k < r->ids.n && !r->st; k++)
        vec_push(&r->s->ends, ((struct suite_end){r->ids.v[k], clock_ns()}));
    for (size_t k = 0; k < r->away.n; k++)
        vec_push(&r->s->away, r->away.v[k]);
    if (r->st) log_event(LOG_ERROR, "jobs.read", "why=\"%s\"", st_message(r->st));
    st_drop(r->st);
    vec_done(&r->away);
    r->s->n_runs--;
    vec_done(&r->ids);
    free(r);
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
    struct earlier *r = arena_must_calloc(1, sizeof *r);
    r->s = s;
    s->n_runs++;
    loop_work(s->sched->loop, read_earlier, earlier_read, r);
    loop_timer_start(m->timer, 0);
}
bool suites_keeps(struct suites *s, int64_t suite) {
    return find(s, suite) != NULL;
}
status_t suites_sure(struct suites *s, int64_t suite) {
    const struct suite *x = find(s, suite);
    if (!x || !x->held) return ST_OK;
    return st_new(ST_UNAVAILABLE, "suite %" PRId64 " may be another node's by now: %s", suite,
                  suite_is_shared(x)
                      ? "JetStream is not reached, or has not said yet whose it is"
                      : "it is looked for once this node is started with jobs_replicas");
}

struct seek {
    struct suites *s;
    int64_t id;
    bool here;
    char *tenant; // NULL: any
    void (*done)(void *ctx, status_t st, const char *node);
    void *ctx;
};
MUST_CHECK static status_t no_such(int64_t id) {
    return st_because(ST_NOT_FOUND, JOB_NOT_FOUND, "no suite %" PRId64 " here", id);
}
static bool has_ended(const struct move *m, int64_t id) {
    size_t k = place(m, id);
    for (size_t i = 0; i < m->s->ends.n; i++)
        if (m->s->ends.v[i].id == id) return true;
    return k < m->all.n && m->all.v[k].id == id && m->all.v[k].ended_ns;
}
// May a suite that has no head have been accepted? It is older than the stream, and who has it may
// not have put it again yet: the stream is new, or a node was lost since before it was there.
static bool may_be(const struct move *m, int64_t id) {
    int64_t at_ns = (id >> 20) * CLOCK_MS, young = 4 * lease_ns(m), age = stream_age(m);
    if (!m->made_ns) return true;
    if (at_ns > m->made_ns + APART_MS * CLOCK_MS) return false;
    const struct nodes *all = cluster_nodes(m->s->fleet.cluster);
    int64_t since_ns = clock_ns() - age;
    bool lost = age < young;
    for (size_t k = 0; k < all->v.n && !lost; k++) {
        const struct node *x = all->v.v[k];
        lost = x->m->proved && (x->lost || x->gone) && x->heard_ns < since_ns + young;
    }
    return lost;
}
// The node that had it when it was last heard of, of one whose head is gone: it answers for as long
// as its journal has it. NULL: nobody.
static const char *last_home(const struct move *m, int64_t id) {
    size_t k = place(m, id);
    const struct seen *e = k < m->all.n && m->all.v[k].id == id ? &m->all.v[k] : NULL;
    return e && e->copy && e->home && strcmp(e->home, self(m)) != 0 ? e->home : NULL;
}
static void on_found(void *ctx, const struct register_reply *r) {
    struct seek *k = ctx;
    struct arena a = {0};
    const struct move *m = k->s->move;
    const Hlod__Cluster__Suite *h =
        r->what == REGISTER_OK ? weigh_unpack_in(&a, &hlod__cluster__suite__descriptor, r->bytes)
                               : NULL;
    status_t st = ST_OK;
    const char *last = r->what == REGISTER_NONE && m && k->here ? last_home(m, k->id) : NULL;

    if (last)
        st = is_there(m, last)
                 ? ST_OK
                 : st_new(ST_UNAVAILABLE, "node %s, which had suite %" PRId64 " last, is lost",
                          last, k->id);
    else if (r->what == REGISTER_NONE && (!m || k->here || may_be(m, k->id)))
        st = st_new(ST_UNAVAILABLE,
                    "whose suite %" PRId64 " is nobody says now: JetStream has lost it, and the "
                    "node that has it has not put it there again yet",
                    k->id);
    else if (r->what == REGISTER_NONE || (h && k->tenant && strcmp(k->tenant, h->tenant) != 0))
        st = no_such(k->id);
    else if (!h || !m)
        st = st_new(ST_UNAVAILABLE, "whose suite %" PRId64 " is cannot be looked at: %s", k->id,
                    r->why ? r->why : "the cluster has ended");
    else if (!strcmp(h->home, self(m)) && has_ended(m, k->id))
        st = k->here ? ST_OK : no_such(k->id); // no such job of it
    else if (!strcmp(h->home, self(m)))
        st = st_new(ST_UNAVAILABLE, "suite %" PRId64 " is on its way to this node", k->id);
    else if (!is_there(m, h->home))
        st = st_new(ST_UNAVAILABLE,
                    "node %s, which has suite %" PRId64 ", is lost: it waits, and moves once its "
                    "lease is over",
                    h->home, k->id);
    k->done(k->ctx, st, last ? last : h ? h->home : "");
    k->s->n_runs--;
    arena_done(&a);
    free(k->tenant);
    free(k);
}
static void not_asked(void *arg) {
    on_found(arg, &(struct register_reply){.what = REGISTER_FAILED,
                                           .why = "the cluster is not reached"});
}
void suites_seek(struct suites *s, int64_t suite, const char *tenant, bool here,
                 void (*done)(void *, status_t, const char *), void *ctx) {
    struct arena a = {0};
    struct seek *k = arena_must_calloc(1, sizeof *k);
    *k = (struct seek){s, suite, here, tenant ? strdup(tenant) : NULL, done, ctx};
    if (tenant && !k->tenant) abort();
    s->n_runs++;
    if (s->fleet.registers)
        registers_get(s->fleet.registers, share_key(&a, "head", suite, 0), on_found, k);
    else
        loop_post(s->sched->loop, not_asked, k);
    arena_done(&a);
}
