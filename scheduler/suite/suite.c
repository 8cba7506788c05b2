// SPDX-License-Identifier: Apache-2.0
// States of batch jobs: which one is next, what follows an attempt, who is told. Whose turn it is:
// the suite's priority, then the tenant with the fewest jobs running for its weight, on all nodes,
// then the oldest.
#include "scheduler/suite/suite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/error.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"
#include "scheduler/suite/training.h"

enum { MAX_LOG = 64 << 10 };
static const struct {
    uint32_t attempts, backoff_ms, max_backoff_ms;
} defaults = {3, 500, 30000};

bool suite_parse_id(const char *text, int64_t *out_suite, uint32_t *out_n) {
    struct str rest = str_of(text), head;
    int64_t n = 0;
    if (!str_cut(&rest, '.', &head) || !str_to_i64(head, out_suite) || *out_suite < 1) return false;
    if (strchr(text, '.') && (!str_to_i64(rest, &n) || n < 1 || n > SUITE_MAX_JOBS)) return false;
    *out_n = (uint32_t)n;
    return true;
}

// ---- telling

static void set_state(struct suite_job *j, enum job_state state, const char *text) {
    bool idle = j->state == J_QUEUED || j->state == J_WAITING;
    bool now_idle = state == J_QUEUED || state == J_WAITING;
    j->suite->n_idle += (uint32_t)now_idle - (uint32_t)idle;
    j->suite->n_ending += (uint32_t)(state == J_ENDING) - (uint32_t)(j->state == J_ENDING);
    j->suite->n_running += (state == J_RUNNING) - (j->state == J_RUNNING);
    j->state = state;
    if (text) j->brief->state = (char *)(uintptr_t)text;
    j->brief->attempts = j->attempts;
}

void suites_tell_all(struct suite_watch *w) {
    struct suite *x = w->suite;
    for (uint32_t i = 0; i < x->n_jobs && !w->gone; i++)
        if (!w->n || w->n == i + 1) w->changed(w->ctx, x->jobs[i].brief);
}

static struct suite *find_suite(struct suites *s, int64_t id) {
    struct suite *x = s->first;
    while (x && x->id != id)
        x = x->next;
    return x;
}
// NULL: ended and recorded, or never here.
static struct suite_job *find_job(struct suites *s, int64_t id, uint32_t n) {
    struct suite *x = find_suite(s, id);
    return x && n >= 1 && n <= x->n_jobs && x->jobs[n - 1].state != J_ENDED ? &x->jobs[n - 1]
                                                                            : NULL;
}

struct suite_watch *suites_watch(struct suites *s, int64_t suite, uint32_t n,
                                 void (*changed)(void *, const Hlod__V1__Job *),
                                 void (*ended)(void *, status_t), void *ctx) {
    struct suite *x = find_suite(s, suite);
    if (!x || (n && !find_job(s, suite, n))) return NULL;
    struct suite_watch *w = arena_must_calloc(1, sizeof *w);
    *w = (struct suite_watch){s->watches, x, n, changed, ended, ctx, false};
    s->watches = w;
    return w;
}

static void drop_gone(void *arg) {
    struct suites *s = arg;
    for (struct suite_watch **at = &s->watches, *w; (w = *at);) {
        if (!w->gone) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w);
    }
}
void suites_unwatch(struct suite_watch *w) {
    struct suites *s = w->suite->s;
    w->gone = true;
    loop_post(sched_loop(s->sched), drop_gone, s);
}

// Ends the watches of a job that ended, and of the suite if it was the last.
static void end_watches(struct suites *s, struct suite *x, uint32_t n) {
    for (struct suite_watch *w = s->watches; w; w = w->next) {
        if (w->gone || w->suite != x || (w->n ? w->n != n : x->n_left > 0)) continue;
        w->gone = true;
        w->ended(w->ctx, ST_OK);
    }
    drop_gone(s);
}

bool suites_overlay(struct suites *s, int64_t suite, uint32_t n, struct arena *a,
                    Hlod__V1__Job *brief) {
    const struct suite_job *j = find_job(s, suite, n);
    if (!j) return false;
    brief->state = arena_strdup(a, j->brief->state);
    brief->attempts = j->attempts;
    brief->node = arena_strdup(a, j->brief->node);
    brief->train = training_progress_dup(a, j->brief->train);
    const Hlod__V1__Error *e = j->brief->error;
    if (!e) return true;
    brief->error = arena_dup(a, e, sizeof *e);
    brief->error->code = arena_strdup(a, e->code);
    brief->error->reason = arena_strdup(a, e->reason);
    brief->error->message = arena_strdup(a, e->message);
    brief->error->details = NULL;
    brief->error->n_details = 0;
    return true;
}

const struct strbuf *suites_log(struct suites *s, int64_t suite, uint32_t n) {
    const struct suite_job *j = find_job(s, suite, n);
    return j ? &j->log : NULL;
}

// ---- whose turn it is

struct load { // of a tenant
    int64_t running, weight;
};
static struct load load_of(const struct suites *s, const char *tenant) {
    const struct tenant *t = tenants_find(&s->sched->tenants, tenant);
    int64_t n = t ? t->elsewhere.suite_jobs : 0;
    for (const struct suite *x = s->first; x; x = x->next)
        if (!strcmp(x->tenant, tenant)) n += x->n_running;
    return (struct load){n, t ? t->limits.weight : 1};
}

// The first that may run now: here, or where a node has a device of that kind.
static struct suite_job *ready_job(struct suite *x, const char *kind, int64_t now, int64_t *next) {
    const char *seen = NULL;
    bool stays = true, looked = false;
    if (x->held) return NULL;
    for (uint32_t i = 0; i < x->n_jobs && x->n_idle; i++) {
        struct suite_job *j = &x->jobs[i];
        if (j->state != J_QUEUED && j->state != J_WAITING) continue;
        if (x->s->tickets && !kind) { // looked up once where jobs are alike
            const char *own = suite_kind(j);
            if (!looked || own != seen) stays = suite_may_stay(j);
            seen = own;
            looked = true;
            if (!stays) continue;
        }
        if (kind && !suite_may_go(j, kind)) continue;
        if (j->state == J_QUEUED || j->not_before_ns <= now) return j;
        if (!*next || j->not_before_ns < *next) *next = j->not_before_ns;
    }
    return NULL;
}

// Trainings last for hours: they have places of their own.
static int *running_now(struct suites *s, const struct suite *x) {
    return x->q->train ? &s->n_training : &s->n_running;
}

static struct suite_job *next_job(struct suites *s, const char *kind, int64_t *next) {
    struct suite_job *best = NULL;
    struct load least = {0, 1};
    int64_t now = clock_ns();
    for (struct suite *x = s->first; x; x = x->next) {
        if (!kind && *running_now(s, x) >= s->cfg.parallel) continue;
        struct suite_job *j = ready_job(x, kind, now, next);
        if (!j) continue;
        struct load l = load_of(s, x->tenant);
        int32_t a = x->q->priority, b = best ? best->suite->q->priority : 0;
        bool less = l.running * least.weight < least.running * l.weight;
        if (best && (a < b || (a == b && !less))) continue;
        best = j;
        least = l;
    }
    return best;
}
bool suites_wait(struct suites *s) {
    int64_t next = 0;
    return next_job(s, NULL, &next) != NULL;
}

static void begin(struct suite_job *j) {
    j->attempts++;
    set_state(j, J_RUNNING, "running");
    suite_log(j, "attempt %u", j->attempts);
    suite_trace_begin(j);
}
bool suites_give(struct suites *s, const char *kind, struct suite_job **out) {
    int64_t next = 0;
    *out = s->stopping ? NULL : next_job(s, kind, &next);
    if (!*out) return false;
    s->n_away++;
    begin(*out);
    return true;
}

static void pump(void *arg) {
    struct suites *s = arg;
    s->pump_posted = false;
    int64_t next = 0;
    while (!s->stopping) {
        struct suite_job *j = next_job(s, NULL, &next);
        if (!j) break;
        ++*running_now(s, j->suite);
        begin(j);
        j->brief->node = (char *)(uintptr_t)"";
        if (j->suite->q->train)
            training_start(j);
        else
            suite_run_start(j);
        suite_tell(j);
    }
    if (next && !s->stopping) loop_timer_at(s->timer, next);
    if (s->tickets && !s->stopping) suites_put_tickets(s, false);
}
void suites_pump(struct suites *s) {
    if (s->pump_posted || s->stopping) return;
    s->pump_posted = true;
    loop_post(sched_loop(s->sched), pump, s);
}
static void on_timer(void *arg) {
    suites_pump(arg);
}

// ---- after an attempt

static int64_t backoff_ms(const struct suite_job *j) {
    const Hlod__V1__RetryPolicy *p = j->suite->q->retry;
    int64_t ms = p && p->backoff_ms ? p->backoff_ms : defaults.backoff_ms;
    int64_t max = p && p->max_backoff_ms ? p->max_backoff_ms : defaults.max_backoff_ms;
    for (uint32_t i = 1; i < j->attempts && ms < max; i++)
        ms *= 2;
    return ms < max ? ms : max;
}

// Refused before anything was tried: waits without costing an attempt.
bool suite_not_begun(status_t st) {
    int r = st_get_reason(st);
    return r == HLOD__V1__REASON__REASON_QUEUE_FULL || r == HLOD__V1__REASON__REASON_COMPILE_RATE ||
           r == HLOD__V1__REASON__REASON_TENANT_QUOTA ||
           r == HLOD__V1__REASON__REASON_SHUTTING_DOWN;
}

// True: it was put back, to be tried again.
static bool tries_again(struct suite_job *j, status_t st) {
    const Hlod__V1__RetryPolicy *p = j->suite->q->retry;
    uint32_t most = p && p->max_attempts ? p->max_attempts : defaults.attempts;
    if (suite_not_begun(st)) j->attempts--;
    if (!st_code_retryable(st_code(st)) || j->attempts >= most) return false;
    int64_t ms = backoff_ms(j), asked = st_get_retry_ms(st);
    if (asked > ms) ms = asked;
    suite_log(j, "%s: %s; again in %" PRId64 " ms", st_code_name(st_code(st)), st_message(st), ms);
    j->not_before_ns = clock_ns() + clock_of_ms(ms);
    j->brief->error = error_of(&j->arena, st);
    set_state(j, J_WAITING, "waiting");
    metric_add(M_BATCH_RETRIES, 1);
    return true;
}

static void end_job(struct suite_job *j, Hlod__V1__JobOutcome *o) {
    char now[32];
    clock_wall_text(clock_wall_ns(), now);
    o->job = j->brief->id;
    o->attempts = j->attempts;
    o->finished = arena_strdup(&j->arena, now);
    suite_log(j, "%s%s%s", o->state, o->error ? ": " : "", o->error ? o->error->message : "");
    j->outcome = o;
    set_state(j, J_ENDING, NULL); // what is shown changes once it is on disk
    if (suite_is_shared(j->suite))
        suite_put(j);
    else
        suite_save(j);
}

// No attempt at it is under way any more.
static void stands(struct suite_job *j) {
    struct suites *s = j->suite->s;
    if (j->away)
        s->n_away--;
    else
        --*running_now(s, j->suite);
    j->away = NULL;
    j->run = NULL;
    j->ticket_ns = 0;
}
void suite_put_back(struct suite_job *j) {
    stands(j);
    j->attempts--;
    set_state(j, J_QUEUED, "queued");
    j->brief->node = (char *)(uintptr_t)"";
    suite_away_settle(j);
    suite_tell(j);
    suites_pump(j->suite->s);
}
static void job_done(struct suite_job *j, Hlod__V1__JobOutcome *o, struct arena *a, status_t st) {
    struct suites *s = j->suite->s;
    if (j->suite->guest) {
        suite_guest_done(j, o, a, st);
        return;
    }
    stands(j);
    arena_done(&j->outcome_arena); // of the attempt before
    j->outcome_arena = *a;
    *a = (struct arena){0};
    if (st && st_get_reason(st) == HLOD__V1__REASON__REASON_SHUTTING_DOWN) {
        j->attempts--;
        set_state(j, J_QUEUED, "queued"); // the next daemon's
    } else if (st && tries_again(j, st)) {
        suite_away_settle(j);
        suite_save(j);
        suite_tell(j);
    } else {
        if (st) {
            o->state = (char *)(uintptr_t)"error";
            o->error = error_of(&j->outcome_arena, st);
        }
        end_job(j, o);
    }
    st_drop(st);
    suites_pump(s);
}

// The outcome is needed for its state alone from here; watchers hear of it, and the last job takes
// its suite out of memory.
static void drop_suite(struct suite *x) {
    struct suite **at = &x->s->first;
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
}
static void end_cancels(struct suites *s);
static void job_saved(struct suite_job *j) {
    struct suite *x = j->suite;
    struct suites *s = x->s;
    if (x->moved || j->state == J_ENDED) return;
    metric_add(M_BATCH_ENDED, 1);
    metric_set(M_BATCH_WAITING, metric_get(M_BATCH_WAITING) - 1);
    log_event(LOG_INFO, "batch.job", "job=%s state=%s attempts=%u model=\"%s\" input=\"%s\"",
              j->brief->id, j->outcome->state, j->attempts, j->brief->model, j->brief->input);
    set_state(j, J_ENDED, NULL);
    suite_away_settle(j);
    suite_ended_brief(j, j->brief);
    strbuf_done(&j->log);
    x->n_left--;
    suite_tell(j);
    end_watches(s, x, j->n);
    end_cancels(s);
    if (x->n_left) return;
    if (suite_is_shared(x)) vec_push(&s->ends, ((struct suite_end){x->id, clock_ns()}));
    drop_suite(x);
    suite_unref(x);
}

// ---- cancel

struct suite_cancel {
    struct suite_cancel *next;
    int64_t suite;
    uint32_t n, cancelled;
    void (*done)(void *ctx, uint32_t n);
    void *ctx;
};
static bool is_ending(struct suites *s, const struct suite_cancel *c) {
    const struct suite *x = find_suite(s, c->suite);
    if (!x) return false;
    return c->n ? c->n <= x->n_jobs && x->jobs[c->n - 1].state == J_ENDING : x->n_ending > 0;
}
static void end_cancels(struct suites *s) {
    for (struct suite_cancel **at = &s->cancels, *c; (c = *at);) {
        bool ending = is_ending(s, c);
        if (!s->stopping && ending) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        suite_save_then(s, c->done, c->ctx, ending ? SUITES_UNTOLD : c->cancelled);
        free(c);
    }
}
static void stop_attempt(struct suite_job *j) {
    suite_trace_end(j, NULL, ST_CANCELLED, 0, NULL);
    if (j->away)
        suite_away_cancel(j);
    else if (j->training)
        training_cancel(j);
    else
        suite_run_cancel(j);
    stands(j);
}
void suites_cancel(struct suites *s, int64_t suite, uint32_t n, void (*done)(void *, uint32_t),
                   void *ctx) {
    struct suite *x = find_suite(s, suite);
    uint32_t cancelled = 0;
    for (uint32_t i = 0; x && i < x->n_jobs; i++) {
        struct suite_job *j = &x->jobs[i];
        if ((n && n != j->n) || j->state == J_ENDED || j->state == J_ENDING) continue;
        if (j->state == J_RUNNING) stop_attempt(j);
        Hlod__V1__JobOutcome *o = message_new(&j->arena, &hlod__v1__job_outcome__descriptor);
        o->state = (char *)(uintptr_t)"cancelled";
        end_job(j, o);
        cancelled++;
    }
    struct suite_cancel *c = arena_must_calloc(1, sizeof *c);
    *c = (struct suite_cancel){s->cancels, suite, n, cancelled, done, ctx};
    s->cancels = c;
    if (x && suite_is_shared(x)) { // its results are put before they are on disk
        end_cancels(s);
    } else {
        s->cancels = c->next;
        free(c);
        suite_save_then(s, done, ctx, cancelled);
    }
    suites_pump(s);
}

// ---- suites that come and go (suite_move.c)

static void end_moved_cancels(struct suites *s, int64_t suite) {
    for (struct suite_cancel **at = &s->cancels, *c; (c = *at);) {
        if (c->suite != suite) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        suite_save_then(s, c->done, c->ctx, SUITES_MOVED);
        free(c);
    }
}
static void lost(struct suite *x) {
    struct suites *s = x->s;
    size_t n = 0;
    for (uint32_t i = 0; i < x->n_jobs; i++) {
        struct suite_job *j = &x->jobs[i];
        if (j->state == J_RUNNING) stop_attempt(j);
        if (j->state != J_ENDED) metric_set(M_BATCH_WAITING, metric_get(M_BATCH_WAITING) - 1);
        set_state(j, J_ENDED, NULL);
        suite_away_settle(j);
    }
    for (size_t k = 0; k < s->dirty.n; k++)
        if (s->dirty.v[k]->suite != x) s->dirty.v[n++] = s->dirty.v[k];
    s->dirty.n = n;
    x->moved = true;
    drop_suite(x);
    for (struct suite_watch *w = s->watches; w; w = w->next) {
        if (w->gone || w->suite != x) continue;
        w->gone = true;
        w->ended(w->ctx, st_new(ST_UNAVAILABLE, "the suite moved to another node: ask again"));
    }
    drop_gone(s);
    end_moved_cancels(s, x->id);
    suites_pump(s);
}

// ---- life

static struct suite *add_suite(struct suites *s, const struct suite_record *r) {
    struct suite *x = arena_must_calloc(1, sizeof *x), **at = &s->first;
    x->s = s;
    x->refs = 1;
    x->id = r->id;
    x->held = suite_is_shared(x);
    if (!(x->tenant = strdup(r->tenant))) abort();
    x->q = weigh_unpack_or_null(&hlod__v1__submit_jobs_request__descriptor, r->request);
    struct arena a = {0};
    struct suite_cell *cells = NULL;
    if (x->q) x->n_jobs = (uint32_t)suite_expand(x->q, &a, &cells);
    if (!x->q || x->n_jobs != r->n_jobs) {
        log_event(LOG_ERROR, "jobs.read", "suite=%" PRId64 " why=\"unreadable\"", r->id);
        arena_done(&a);
        x->n_jobs = 0;
        if (x->q) hlod__v1__submit_jobs_request__free_unpacked(x->q, NULL);
        free(x->tenant);
        free(x);
        return NULL;
    }

    x->jobs = arena_must_calloc(x->n_jobs, sizeof *x->jobs);
    for (uint32_t i = 0; i < x->n_jobs; i++) {
        struct suite_job *j = &x->jobs[i];
        *j = (struct suite_job){
            .suite = x, .n = i + 1, .cell = cells[i], .state = J_ENDED}; // until it is read
        strbuf_limit(&j->log, MAX_LOG);
        j->brief = suite_brief(&j->arena, x->q, &j->cell, x->tenant, r->created_ns);
        j->brief->suite = arena_printf(&j->arena, "%" PRId64, x->id);
        j->brief->id = arena_printf(&j->arena, "%" PRId64 ".%u", x->id, j->n);
        if (r->traceparent) {
            j->brief->traceparent = arena_strdup(&j->arena, r->traceparent);
            j->brief->tracestate = arena_strdup(&j->arena, r->tracestate);
        }
    }

    arena_done(&a);
    while (*at && (*at)->id < x->id)
        at = &(*at)->next;
    x->next = *at;
    *at = x;
    return x;
}

static void enqueue(struct suite_job *j) {
    set_state(j, J_QUEUED, "queued");
    j->suite->n_left++;
    metric_set(M_BATCH_WAITING, metric_get(M_BATCH_WAITING) + 1);
}

status_t suites_admit(struct suites *s, const struct suite_record *r) {
    struct suite *x = add_suite(s, r);
    if (!x) return st_internal("the suite cannot be read back");
    x->held = false;
    for (uint32_t i = 0; i < x->n_jobs; i++)
        enqueue(&x->jobs[i]);
    suites_pump(s);
    return ST_OK;
}

void suites_doubt(struct suites *s, struct digest key) {
    if (!digest_is_zero(key)) (void)smap_put(&s->doubtful, digest_str(&key), s);
}
bool suites_doubted(struct suites *s, struct digest key) {
    return smap_del(&s->doubtful, digest_str(&key)) != NULL;
}

// One that moved is no suite of ours: only a head that names this node makes it one
// (suite_move.c). Where suites do not move (any more), nobody can say whose it is.
static void read_suite(void *ctx, const struct suite_record *r) {
    struct suites *s = ctx;
    struct suite *x = r->moved_to ? NULL : add_suite(s, r);
    if (!x) return;
    x->unsure = true;
    if (x->id < SUITE_SHARED || s->cfg.replicas) return;
    x->held = true;
    log_event(LOG_WARN, "suite.held",
              "suite=%" PRId64 " why=\"it may be another node's by now: it waits for a start with "
              "jobs_replicas\"",
              x->id);
}
static void free_brief(void *m) {
    hlod__v1__job__free_unpacked(m, NULL);
}
static void read_job(void *ctx, const struct job_record *r) {
    struct suites *s = ctx;
    struct suite *x = find_suite(s, r->suite);
    if (!x || r->n < 1 || r->n > x->n_jobs) return;
    struct suite_job *j = &x->jobs[r->n - 1];
    Hlod__V1__Job *b = weigh_unpack_or_null(&hlod__v1__job__descriptor, r->brief);
    if (b) { // ids are the row's
        arena_link(&j->arena, free_brief, b);
        j->attempts = b->attempts;
        Hlod__V1__Job *mine = j->brief;
        mine->attempts = b->attempts;
        mine->state = b->state;
        mine->error = b->error;
        mine->finished = b->finished;
        mine->run_ms = b->run_ms;
        mine->instructions = b->instructions;
        mine->fusions = b->fusions;
        mine->traceparent = b->traceparent;
        mine->tracestate = b->tracestate;
        if (b->train) mine->train = training_progress_new(&j->arena, b->train);
    }
    if (r->finished_ns) return;
    strbuf_add(&j->log, r->log.p, r->log.n);
    suite_log(j, "the daemon was started again");
    enqueue(j);
}

static void found(struct suites *s, const struct suite_record *r, const struct job_record *ended,
                  size_t n_ended) {
    struct suite *x = find_suite(s, r->id) ? NULL : add_suite(s, r);
    if (!x) return;
    x->held = false;
    for (size_t k = 0; k < n_ended; k++) {
        x->jobs[ended[k].n - 1].state = J_ENDING; // marked
        read_job(s, &ended[k]);
    }
    for (uint32_t i = 0; i < x->n_jobs; i++) {
        struct suite_job *j = &x->jobs[i];
        bool has_ended = j->state == J_ENDING;
        j->state = J_ENDED;
        if (has_ended) continue;
        suite_log(j, "its suite moved here");
        enqueue(j);
    }
    if (!x->n_left) {
        drop_suite(x);
        suite_unref(x);
    }
    suites_pump(s);
}

status_t suites_new(struct sched *sched, struct journal_jobs *journal,
                    const struct suites_config *cfg, struct suites **out) {
    struct suites *s = arena_must_calloc(1, sizeof *s);
    s->sched = sched;
    s->journal = journal;
    s->cfg = *cfg;
    s->job_done = job_done;
    s->job_saved = job_saved;
    s->lost = lost;
    s->found = found;
    smap_seed_random(&s->doubtful);
    s->timer = loop_timer_new(sched_loop(sched), on_timer, s);
    struct journal_jobs_reader r = {read_suite, read_job, s};
    status_t st = journal_jobs_unfinished(journal, &r);
    if (st) {
        suites_free(s);
        return st;
    }
    *out = s;
    suite_save_then(s, NULL, NULL, 0); // removes what is too old
    suites_pump(s);
    return ST_OK;
}

void suites_configure(struct suites *s, const struct suites_config *cfg) {
    s->cfg = *cfg;
    s->trimmed_ns = 0;
    suite_save_then(s, NULL, NULL, 0); // by the new bounds
    suites_pump(s);
}

void suites_stop(struct suites *s) {
    s->stopping = true;
    loop_timer_stop(s->timer);
    end_cancels(s);
    for (struct suite_watch *w = s->watches; w; w = w->next) {
        if (w->gone) continue;
        w->gone = true;
        w->ended(w->ctx, st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down"));
    }
    drop_gone(s);
}

void suites_free(struct suites *s) {
    if (!s) return;
    while (s->n_runs)
        loop_turn(sched_loop(s->sched));
    suite_save_free(s);
    vec_done(&s->sharing);
    vec_done(&s->ends);
    for (size_t k = 0; k < s->away.n; k++)
        free(s->away.v[k].node);
    vec_done(&s->away);
    while (s->cancels) {
        struct suite_cancel *c = s->cancels;
        s->cancels = c->next;
        free(c);
    }
    smap_done(&s->doubtful);
    loop_timer_free(s->timer);
    for (struct suite_watch *w = s->watches; w; w = w->next)
        w->gone = true;
    drop_gone(s);
    while (s->first) {
        struct suite *x = s->first;
        s->first = x->next;
        suite_unref(x);
    }
    free(s);
}

struct journal_jobs *suites_journal(struct suites *s) {
    return s->journal;
}
