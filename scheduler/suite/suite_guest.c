// SPDX-License-Identifier: Apache-2.0
// One attempt at another node's job: a suite of one job that is in no list and in no journal. What
// it needs comes from its home by digest; then it is what an attempt here is (suite_run.c), and its
// outcome goes to its home, which alone decides what follows.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/cluster/pull.h"
#include "scheduler/cluster/tickets.h"
#include "scheduler/error.h"
#include "scheduler/job/job.h"
#include "scheduler/loop.h"
#include "scheduler/sched_inside.h"
#include "scheduler/suite/suite_inside.h"

enum { MAX_LOG = 64 << 10, MAX_TENSORS = 256 };
struct suite_guest {
    struct suites *s;
    struct suite_guest_spec spec;
    struct arena arena; // copies of its texts
    struct suite *suite;
    VEC(struct digest) wanted;
    size_t n_had;
    bool busy, cancelled; // busy: others hold it, and call back
    status_t st;
};

static void drop(struct suite_guest *g) {
    struct suites *s = g->s;
    s->n_runs--;
    s->n_guests--;
    if (g->suite) suite_unref(g->suite);
    vec_done(&g->wanted);
    st_drop(g->st);
    arena_done(&g->arena);
    free(g);
    if (s->tickets) tickets_look(s->tickets);
}
static void finish(struct suite_guest *g, status_t st, const Hlod__V1__JobOutcome *o) {
    struct str log = {0};
    if (!st && o) log = (struct str){strbuf_cstr(&g->suite->jobs[0].log), g->suite->jobs[0].log.n};
    g->spec.done(g->spec.ctx, st, o, log);
    drop(g);
}
// Back from who held it: true, and it goes on.
static bool goes_on(struct suite_guest *g, status_t st) {
    bool on = !g->cancelled && !st;
    g->busy = false;
    if (g->cancelled) {
        st_drop(st);
        drop(g);
    } else if (st)
        finish(g, st, NULL);
    return on;
}

// ---- what it needs

static bool want(struct suite_guest *g, const char *text) {
    struct digest d;
    if (!digest_parse(str_of(text), &d)) return false;
    for (size_t k = 0; k < g->wanted.n; k++)
        if (digest_eq(g->wanted.v[k], d)) return true;
    vec_push(&g->wanted, d);
    return true;
}
static bool want_tensors(struct suite_guest *g, Hlod__V1__JobTensor *const *v, size_t n) {
    for (size_t k = 0; k < n && n <= MAX_TENSORS; k++)
        if (*v[k]->blob && !want(g, v[k]->blob)) return false;
    return n <= MAX_TENSORS;
}
MUST_CHECK static status_t read_suite(struct suite_guest *g) {
    struct suite_cell *cells;
    struct suite *x = arena_must_calloc(1, sizeof *x);
    Hlod__V1__SubmitJobsRequest *q =
        weigh_unpack_or_null(&hlod__v1__submit_jobs_request__descriptor, g->spec.suite);
    bool one = q && q->n_models == 1 && q->n_inputs == 1 && q->n_targets <= 1 && !q->train &&
               q->inputs[0]->n_inputs && suite_expand(q, &g->arena, &cells) == 1;
    bool fits = one && want(g, q->models[0]->model) &&
                want_tensors(g, q->inputs[0]->inputs, q->inputs[0]->n_inputs) &&
                want_tensors(g, q->inputs[0]->expect, q->inputs[0]->n_expect);
    if (!fits) {
        if (q) hlod__v1__submit_jobs_request__free_unpacked(q, NULL);
        free(x);
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "suite: expected one job that runs");
    }

    *x = (struct suite){.s = g->s, .refs = 1, .q = q, .n_jobs = 1, .n_left = 1, .guest = g};
    x->tenant = strdup(g->spec.tenant);
    x->jobs = arena_must_calloc(1, sizeof *x->jobs);
    if (!x->tenant) abort();
    struct suite_job *j = &x->jobs[0];
    *j = (struct suite_job){
        .suite = x, .n = 1, .cell = cells[0], .state = J_RUNNING, .attempts = g->spec.attempt};
    strbuf_limit(&j->log, MAX_LOG);
    j->brief = suite_brief(&j->arena, q, &j->cell, x->tenant, clock_wall_ns());
    j->brief->id = arena_strdup(&j->arena, g->spec.job);
    if (g->spec.trace) {
        j->trace = *g->spec.trace;
        j->traced = true;
    }
    g->suite = x;
    return ST_OK;
}
// All of it, again: what a home accepted long ago must be right here, too.
static void check_work(void *arg) {
    struct suite_guest *g = arg;
    const struct sched *s = g->s->sched;
    struct suite_checker k = {s->store, s->journal, g->spec.tenant, false};
    g->st = suite_check(g->suite->q, &k);
}
static void checked(void *arg) {
    struct suite_guest *g = arg;
    status_t st = g->st;
    g->st = ST_OK;
    if (goes_on(g, st)) suite_run_start(&g->suite->jobs[0]);
}
static void next_blob(struct suite_guest *g);
static void on_pulled(void *ctx, status_t st) {
    struct suite_guest *g = ctx;
    if (goes_on(g, st)) next_blob(g);
}
static void next_blob(struct suite_guest *g) {
    const struct sched *s = g->s->sched;
    g->busy = true;
    if (g->n_had == g->wanted.n)
        loop_work(s->loop, check_work, checked, g);
    else
        pull_get(s->pull, g->spec.tenant, g->wanted.v[g->n_had++], g->spec.home, on_pulled, g);
}

// ---- the end

// Not an attempt: there was no place after all.
static bool is_none(status_t st) {
    return suite_not_begun(st) || st_get_reason(st) == HLOD__V1__REASON__REASON_NO_WORKER;
}
void suite_guest_done(struct suite_job *j, Hlod__V1__JobOutcome *o, struct arena *a, status_t st) {
    struct suite_guest *g = j->suite->guest;
    j->run = NULL;
    if (st && is_none(st)) {
        finish(g, st, NULL);
        return;
    }
    if (st) {
        o->state = (char *)(uintptr_t)"error";
        o->error = error_of(a, st);
        st_drop(st);
    }
    o->job = j->brief->id;
    o->attempts = j->attempts;
    finish(g, ST_OK, o);
}

static void begin(void *arg) {
    struct suite_guest *g = arg;
    int64_t suite;
    uint32_t n;
    bool named = suite_parse_id(g->spec.job, &suite, &n) && n;
    status_t st = named ? read_suite(g) : st_invalid("grant: it names no job");
    if (!st && !g->s->sched->pull) st = st_new(ST_UNAVAILABLE, "the cluster has ended");
    if (goes_on(g, st)) next_blob(g);
}
struct suite_guest *suites_guest(struct suites *s, const struct suite_guest_spec *spec) {
    struct suite_guest *g = arena_must_calloc(1, sizeof *g);
    g->s = s;
    g->spec = *spec;
    g->spec.home = arena_strdup(&g->arena, spec->home);
    g->spec.tenant = arena_strdup(&g->arena, spec->tenant);
    g->spec.job = arena_strdup(&g->arena, spec->job);
    g->spec.suite.p = arena_dup(&g->arena, spec->suite.p, spec->suite.n);
    if (spec->trace) g->spec.trace = arena_dup(&g->arena, spec->trace, sizeof *spec->trace);
    s->n_guests++;
    s->n_runs++;
    g->busy = true;
    loop_post(s->sched->loop, begin, g);
    return g;
}
void suites_guest_cancel(struct suite_guest *g) {
    if (!g) return;
    g->cancelled = true;
    if (g->busy) return;
    suite_run_cancel(&g->suite->jobs[0]);
    drop(g);
}
