// SPDX-License-Identifier: Apache-2.0
// Jobs of this node that others run, while more wait than it has places for. Where a node offers a
// place the next job by this node's own order goes there; so priorities, shares and ages mean what
// they mean here. It runs there as one more attempt, which ends in suites.job_done as any other.
//
//   offer -> one job, packed -> attempt (cluster/attempt.h) -> outputs that are kept, fetched
//                                                           -> job_done
//                                 | it was none: back, as if it had not begun
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "proto/message.h"
#include "scheduler/cluster/attempt.h"
#include "scheduler/cluster/forward.h"
#include "scheduler/cluster/pull.h"
#include "scheduler/cluster/tickets.h"
#include "scheduler/cluster/use.h"
#include "scheduler/error.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/queue/place.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"

enum { WINDOW = 256, IN_VAIN = 3 }; // waiting jobs that have tickets; attempts that were none
struct suite_away {
    struct suite_job *j; // NULL: cancelled
    struct suite *suite;
    struct attempt *attempt;
    char *node;
    struct arena arena; // the outcome's
    Hlod__V1__JobOutcome *outcome;
    size_t n_pulled;
};

// ---- which jobs, which devices

static bool is_device(const struct place_worker *w) {
    return w->role == ROLE_DEVICE && !w->spare && !w->relief && *w->kind;
}
// "web": pages, which serve their own tenant at the node that they joined.
static bool is_shared(const char *kind) {
    return tickets_kind_fits(kind) && strcmp(kind, "auto") != 0 && strcmp(kind, "web") != 0;
}
static const char *first_kind(struct pool *p) {
    for (int i = 0; i < pool_size(p); i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        if (is_device(&w)) return w.kind;
    }
    return "";
}
static bool is_here(struct pool *p, const char *kind) {
    for (int i = 0; i < pool_size(p); i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        if (is_device(&w) && !w.hopeless && !strcmp(w.kind, kind)) return true;
    }
    return false;
}
// One that trains keeps its checkpoints here, one that compiles fills the cache here; a name of one
// device, or of a target, is this node's.
const char *suite_kind(const struct suite_job *j) {
    const Hlod__V1__SubmitJobsRequest *q = j->suite->q;
    const Hlod__V1__JobTarget *t = q->n_targets ? q->targets[j->cell.target] : NULL;
    if (q->train || j->cell.input < 0 || !q->inputs[j->cell.input]->n_inputs) return NULL;
    if (t && *t->target) return NULL;
    const char *kind = t && *t->device ? t->device : first_kind(j->suite->s->sched->pool);
    return is_shared(kind) ? kind : NULL;
}
// Without tokens the nodes know no tenants but one.
static bool is_known(const struct suite_job *j) {
    return j->suite->s->sched->cfg.by_tenant || !strcmp(j->suite->tenant, "default");
}
bool suite_may_go(const struct suite_job *j, const char *kind) {
    const char *own = suite_kind(j);
    bool here = own && j->in_vain >= IN_VAIN && is_here(j->suite->s->sched->pool, own);
    return own && !here && is_known(j) && !strcmp(own, kind);
}
bool suite_may_stay(const struct suite_job *j) {
    const struct sched *s = j->suite->s->sched;
    const char *kind = suite_kind(j);
    return !kind || !is_known(j) || is_here(s->pool, kind) || !s->forward ||
           !forward_knows(s->forward, kind);
}

// ---- the end

static void free_away(struct suite_away *x) {
    x->suite->s->n_runs--;
    suite_unref(x->suite);
    arena_done(&x->arena);
    free(x->node);
    free(x);
}
static void end(struct suite_away *x, status_t st) { // takes st: what the job gave
    struct suite_job *j = x->j;
    const Hlod__V1__Error *e = x->outcome->error;
    suite_trace_end(j, NULL,
                    st  ? st_code(st)
                    : e ? ST_FAILED_PRECONDITION
                        : ST_CODE_OK,
                    st_get_reason(st), st ? st_message(st) : NULL);
    j->suite->s->job_done(j, x->outcome, &x->arena, st);
    free_away(x);
}
// It did not run there to its end: as if it had not begun. Where that goes on it stays here, or, if
// it cannot, that is an attempt.
static void in_vain(struct suite_away *x, status_t st) { // takes st
    struct suite_job *j = x->j;
    if (st_get_reason(st) == HLOD__V1__REASON__REASON_TENANT_QUOTA) { // no other node would either
        if (!x->outcome) x->outcome = message_new(&x->arena, &hlod__v1__job_outcome__descriptor);
        end(x, st);
        return;
    }
    suite_log(j, "no attempt: %s", st_message(st));
    if (j->suite->s->stopping)
        st = st_reason(st, HLOD__V1__REASON__REASON_SHUTTING_DOWN);
    else if (++j->in_vain < IN_VAIN || suite_may_stay(j)) {
        suite_trace_end(j, NULL, st_code(st), st_get_reason(st), st_message(st));
        st_drop(st);
        suite_put_back(j);
        free_away(x);
        return;
    } else {
        j->in_vain = 0;
        status_t why =
            st_because(ST_UNAVAILABLE, WORKER_LOST, "no node ran it: %s", st_message(st));
        st_drop(st);
        st = why;
    }
    if (!x->outcome) x->outcome = message_new(&x->arena, &hlod__v1__job_outcome__descriptor);
    end(x, st);
}

// ---- what it gave

static void next_output(struct suite_away *x);
static void on_pulled(void *ctx, status_t st) {
    struct suite_away *x = ctx;
    if (!x->j) {
        st_drop(st);
        free_away(x);
    } else if (st)
        in_vain(x, st_note(st, "an output that is to be kept"));
    else
        next_output(x);
}
static void next_output(struct suite_away *x) {
    const struct sched *s = x->suite->s->sched;
    struct digest d;
    if (x->n_pulled == x->outcome->n_outputs) {
        end(x, ST_OK);
        return;
    }
    const char *blob = x->outcome->outputs[x->n_pulled++]->blob;
    if (!digest_parse(str_of(blob), &d))
        in_vain(x, st_new(ST_UNAVAILABLE, "node %s names no blob", x->node));
    else if (!s->pull)
        in_vain(x, st_new(ST_UNAVAILABLE, "the cluster has ended"));
    else
        pull_get(s->pull, x->suite->tenant, d, x->node, on_pulled, x);
}
// Lines of another node: as text.
static void add_log(struct suite_job *j, const char *log) {
    for (const char *p = log; *p; p++)
        strbuf_putc(&j->log, (unsigned char)*p < ' ' && *p != '\n' ? '?' : *p);
}
static void on_done(void *ctx, status_t st, struct arena *a, Hlod__V1__RunJobReply *m) {
    struct suite_away *x = ctx;
    struct suite_job *j = x->j;
    x->attempt = NULL;
    if (st) {
        in_vain(x, st);
        return;
    }
    x->arena = *a;
    *a = (struct arena){0};
    // Some of its fields become others' texts.
    Hlod__V1__JobOutcome *o = x->outcome = arena_dup(&x->arena, m->outcome, sizeof *m->outcome);
    add_log(j, m->log);
    o->node = arena_strdup(&x->arena, x->node);
    o->model = (char *)(uintptr_t)"";
    o->train = NULL;
    if (!j->suite->q->keep_outputs) o->n_outputs = 0;

    if (!strcmp(o->state, "error")) {
        char from[256];
        struct strbuf b = strbuf_over(from, sizeof from);
        strbuf_printf(&b, "node %s", x->node);
        end(x, error_from(o->error, strbuf_cstr(&b)));
    } else
        next_output(x);
}

// ---- an offer

// The job alone, as a suite.
static struct span pack_job(struct arena *a, const struct suite_job *j) {
    const Hlod__V1__SubmitJobsRequest *q = j->suite->q;
    Hlod__V1__SubmitJobsRequest one = *q;
    Hlod__V1__JobInput in = *q->inputs[j->cell.input];
    Hlod__V1__JobTarget target = HLOD__V1__JOB_TARGET__INIT;
    Hlod__V1__JobInput *inputs[] = {&in};
    Hlod__V1__JobTarget *targets[] = {&target};
    if (q->n_targets) target = *q->targets[j->cell.target];
    target.device = (char *)(uintptr_t)suite_kind(j);
    in.n_models = 0;
    one.models = &q->models[j->cell.model];
    one.inputs = inputs;
    one.targets = targets;
    one.n_models = one.n_inputs = one.n_targets = 1;
    one.idempotency_key = (char *)(uintptr_t)"";
    one.retry = NULL;
    return message_pack(a, &one.base);
}
static bool on_offer(void *ctx, const struct tickets_offer *o) {
    struct suites *s = ctx;
    struct suite_job *j;
    struct arena a = {0};
    if (!s->attempts || !suites_give(s, o->kind, &j)) return false;
    struct suite_away *x = j->away = arena_must_calloc(1, sizeof *x);
    *x = (struct suite_away){.j = j, .suite = j->suite, .node = strdup(o->node)};
    suite_away_settle(j); // none is held
    j->ack = strdup(o->ack);
    if (!x->node || !j->ack) abort();
    tickets_hold(s->tickets, j->ack);
    j->suite->refs++;
    s->n_runs++;
    j->given++;
    j->brief->node = arena_strdup(&j->arena, o->node);
    suite_log(j, "goes to node %s", o->node);

    x->attempt = attempt_start(s->attempts, &(struct attempt_spec){.node = o->node,
                                                                   .life = o->life,
                                                                   .offer = o->id,
                                                                   .tenant = j->suite->tenant,
                                                                   .job = j->brief->id,
                                                                   .number = j->attempts,
                                                                   .trace = suite_trace(j),
                                                                   .suite = pack_job(&a, j),
                                                                   .done = on_done,
                                                                   .ctx = x});
    arena_done(&a);
    suite_tell(j);
    return true;
}
void suite_away_cancel(struct suite_job *j) {
    struct suite_away *x = j->away;
    x->j = NULL;
    if (!x->attempt) return; // an output is on its way
    attempt_cancel(x->attempt);
    free_away(x);
}
void suite_away_settle(struct suite_job *j) {
    if (j->ack && j->suite->s->tickets) tickets_settle(j->suite->s->tickets, j->ack);
    free(j->ack);
    j->ack = NULL;
}

// ---- tickets

void suites_put_tickets(struct suites *s, bool lost) {
    int64_t now = clock_ns(), live = tickets_live_ns(s->tickets);
    int n = 0;
    if (!tickets_ready(s->tickets)) return;
    for (struct suite *x = s->first; x && n < WINDOW; x = x->next)
        for (uint32_t i = 0; i < x->n_jobs && x->n_idle && n < WINDOW; i++) {
            struct suite_job *j = &x->jobs[i];
            bool idle = j->state == J_QUEUED || (j->state == J_WAITING && j->not_before_ns <= now);
            const char *kind = idle ? suite_kind(j) : NULL;
            if (!kind || !suite_may_go(j, kind)) continue;
            n++;
            if (j->ticket_ns && !lost && now - j->ticket_ns < live + live / 4) continue;
            char id[64];
            struct strbuf b = strbuf_over(id, sizeof id);
            strbuf_printf(&b, "%s/%u.%u", j->brief->id, j->attempts + 1, j->given);
            tickets_put(s->tickets, kind, j->brief->id, strbuf_cstr(&b), j->ticket_ns != 0);
            j->ticket_ns = now;
        }
    tickets_look(s->tickets);
}
static void on_look(void *ctx, bool lost) {
    struct suites *s = ctx;
    if (!s->stopping && !s->pump_posted) suites_put_tickets(s, lost);
}
static bool has_room(void *ctx, const char *kind, int promised) {
    struct suites *s = ctx;
    struct pool *p = s->sched->pool;
    int free_places = 0;
    if (s->stopping || s->pump_posted || !sched_can_serve(s->sched)) return false;
    if (s->n_running + s->n_guests + promised >= s->cfg.parallel) return false;
    for (int i = 0; i < pool_size(p); i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        bool up = is_device(&w) && w.ready && !w.hopeless && !w.drained && !strcmp(w.kind, kind);
        if (up && w.calls < w.max_calls) free_places += w.max_calls - w.calls;
    }
    return free_places > promised && !suites_wait(s);
}
static size_t kinds_here(void *ctx, const char **out, size_t max) {
    struct pool *p = ((struct suites *)ctx)->sched->pool;
    size_t n = 0;
    for (int i = 0; i < pool_size(p) && n < max; i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        if (is_device(&w) && w.ready && is_shared(w.kind)) out[n++] = w.kind;
    }
    return n;
}
// What others are told: jobs of its suites, and those that wait and could go.
static void tally(void *ctx) {
    const struct suites *s = ctx;
    struct tenants *all = &s->sched->tenants;
    for (struct tenant *t = all->first; t; t = t->next)
        t->suite_jobs = t->suite_waiting = 0;
    for (const struct suite *x = s->first; x; x = x->next) {
        struct tenant *t = tenants_get(all, x->tenant, clock_ns());
        t->suite_jobs += x->n_running;
        if (!x->q->train) t->suite_waiting += (int32_t)x->n_idle;
    }
}
void suites_join(struct suites *s, struct tickets *t, struct attempts *x, struct use *u) {
    struct tickets_user tu = {has_room, kinds_here, on_offer, on_look, s};
    s->tickets = t;
    s->attempts = x;
    if (t) tickets_join(t, &tu);
    if (s->use) use_join(s->use, NULL, NULL);
    if (u) use_join(u, tally, s);
    s->use = u;
    suites_pump(s);
}
int suites_away(const struct suites *s) {
    return s->n_away;
}
