// SPDX-License-Identifier: Apache-2.0
// What the server did last, and one of it as a timeline in the Trace Event Format: three processes
// (the request, the compiler, the device), each span an "X" event.
#include <inttypes.h>
#include <string.h>

#include "base/vec.h"
#include "proto/message.h"
#include "proto/weigh.h"
#include "scheduler/records/recent.h"
#include "server/api/api.h"

enum { LIST_DEFAULT = 100, LIST_MOST = 1000, PID_REQUEST = 1, PID_COMPILER, PID_DEVICE };

// NULL also for a record that is not the caller's to see.
static Hlod__V1__RunRecord *unpack(struct call *c, struct span s) {
    Hlod__V1__RunRecord *m =
        s.p ? weigh_unpack_in(&c->arena, &hlod__v1__run_record__descriptor, s) : NULL;
    bool all = c->principal.scopes & SCOPE_ADMIN;
    return m && (all || !strcmp(m->tenant, c->principal.tenant)) ? m : NULL;
}

// A copy without passes and steps: r frees what it owns.
static Hlod__V1__RunRecord *brief(struct call *c, const Hlod__V1__RunRecord *r) {
    Hlod__V1__RunRecord *m = arena_dup(&c->arena, r, sizeof *r);
    m->n_passes = 0;
    m->profile = NULL;
    return m;
}

status_t api_list_runs(struct call *c) {
    const Hlod__V1__ListRunsRequest *q = call_request(c);
    Hlod__V1__ListRunsReply m = HLOD__V1__LIST_RUNS_REPLY__INIT;
    size_t limit = q->limit ? q->limit : LIST_DEFAULT;
    struct span *found = arena_array(&c->arena, struct span, LIST_MOST);
    size_t n = recent_list(sched_recent(c->api->sched), LIST_MOST, found);
    m.runs = arena_array(&c->arena, Hlod__V1__RunRecord *, n + 1);
    for (size_t k = 0; k < n && m.n_runs < limit; k++) {
        const Hlod__V1__RunRecord *r = unpack(c, found[k]);
        if (!r) continue;
        m.runs[m.n_runs++] = brief(c, r);
    }
    return call_reply(c, &m.base);
}

// ---- a timeline

struct timeline {
    struct arena *a;
    VEC(Hlod__V1__TraceEvent *) events;
};

static Hlod__V1__TraceEvent *add(struct timeline *t, const char *ph, const char *name, int64_t pid,
                                 int64_t tid) {
    Hlod__V1__TraceEvent *e = message_new(t->a, &hlod__v1__trace_event__descriptor);
    e->ph = (char *)ph;
    e->name = (char *)name;
    e->pid = pid;
    e->tid = tid;
    e->args = message_new(t->a, &hlod__v1__trace_args__descriptor);
    avec_push(t->a, &t->events, e);
    return e;
}
static void label(struct timeline *t, const char *what, const char *text, int64_t pid,
                  int64_t tid) {
    add(t, "M", what, pid, tid)->args->name = (char *)text;
}
static Hlod__V1__TraceEvent *span(struct timeline *t, const char *cat, const char *name,
                                  int64_t pid, int64_t tid, double start_ms, double ms) {
    Hlod__V1__TraceEvent *e = add(t, "X", name, pid, tid);
    e->cat = (char *)cat;
    e->_ts_case = HLOD__V1__TRACE_EVENT___TS_TS;
    e->ts = start_ms * 1e3;
    e->_dur_case = HLOD__V1__TRACE_EVENT___DUR_DUR;
    e->dur = ms * 1e3;
    return e;
}

static const Hlod__V1__Timing *timing(const Hlod__V1__RunRecord *r, const char *name) {
    for (size_t k = r->n_timings; k-- > 0;)
        if (!strcmp(r->timings[k]->name, name)) return r->timings[k];
    return NULL;
}

// A compile's passes come without a start: they follow one another, so they are laid end to end.
// Those that were done ahead (devices/worker/worker_lowered.c) take longer than the compile and end
// with it.
static void put_passes(struct timeline *t, const Hlod__V1__RunRecord *r) {
    const Hlod__V1__Timing *compile = timing(r, "compile");
    if (!compile || !r->n_passes) return;
    double at = compile->start_ms, all = 0;
    for (size_t k = 0; k < r->n_passes; k++)
        all += r->passes[k]->ms;
    if (all > compile->ms) at = compile->start_ms + compile->ms - all;
    if (at < 0) at = 0;
    label(t, "process_name", "compiler", PID_COMPILER, 1);
    label(t, "thread_name", "passes", PID_COMPILER, 1);
    for (size_t k = 0; k < r->n_passes; k++) {
        const Hlod__V1__PassStat *p = r->passes[k];
        Hlod__V1__TraceEvent *e = span(t, "pass", p->name, PID_COMPILER, 1, at, p->ms);
        e->args->before = p->before;
        e->args->after = p->after;
        at += p->ms;
    }
}

// Rows count from the start of the run on the device, which lies somewhere inside the request's
// `run`: what went into carrying is taken to be half before and half after, or less before where
// the device's time would not end in it.
static void put_steps(struct timeline *t, const Hlod__V1__RunRecord *r) {
    const Hlod__V1__Timing *run = timing(r, "run"), *carried = timing(r, "transfer");
    if (!run || !r->profile) return;
    double at = run->start_ms + (carried ? carried->ms / 2 : 0) + r->profile->start_ms,
           latest = run->start_ms + run->ms - r->profile->total_ms;
    if (at > latest) at = latest > run->start_ms ? latest : run->start_ms;
    label(t, "process_name", r->device, PID_DEVICE, 1);
    label(t, "thread_name", "steps", PID_DEVICE, 1);
    span(t, "request", "run on the device", PID_DEVICE, 1, at, r->profile->total_ms);
    for (size_t k = 0; k < r->profile->n_rows; k++) {
        const Hlod__V1__ProfileRow *p = r->profile->rows[k];
        Hlod__V1__TraceArgs *args =
            span(t, "step", p->name, PID_DEVICE, 1, at + p->start_ms, p->ms)->args;
        args->op = p->op;
        args->impl = p->impl;
        args->hlo = p->hlo;
        args->n_hlo = p->n_hlo;
        args->nodes = p->nodes;
        args->n_nodes = p->n_nodes;
        args->flops = p->flops;
        args->bytes = p->bytes;
        args->of_peak = p->of_peak;
        args->bound = p->bound;
        args->estimate_ms = p->estimate_ms;
    }
}

status_t api_trace(struct call *c) {
    const Hlod__V1__GetTraceRequest *q = call_request(c);
    Hlod__V1__RunRecord *r = unpack(c, recent_find(sched_recent(c->api->sched), q->job));
    if (!r)
        return st_new(ST_NOT_FOUND,
                      "no run has the number %" PRIu64 ", or it was too long ago (the last "
                      "256 are kept, and the last 64 that compiled or were profiled)",
                      q->job);
    struct timeline t = {.a = &c->arena};
    const Hlod__V1__Timing *total = timing(r, "total");
    label(&t, "process_name", "request", PID_REQUEST, 1);
    label(&t, "thread_name", "request", PID_REQUEST, 1);
    if (total) span(&t, "request", "request", PID_REQUEST, 1, 0, total->ms);
    for (size_t k = 0; k < r->n_timings; k++)
        if (r->timings[k] != total)
            span(&t, "request", r->timings[k]->name, PID_REQUEST, 1, r->timings[k]->start_ms,
                 r->timings[k]->ms);
    put_passes(&t, r);
    put_steps(&t, r);
    Hlod__V1__Trace m = HLOD__V1__TRACE__INIT;
    m.trace_events = t.events.v;
    m.n_trace_events = t.events.n;
    m.display_time_unit = (char *)"ms";
    m.other_data = brief(c, r);
    return call_reply(c, &m.base);
}
