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
#include "server/spans.h"

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

static void put_step(Hlod__V1__TraceArgs *args, const Hlod__V1__ProfileRow *p) {
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
static void put_spans(struct timeline *t, const Hlod__V1__RunRecord *r) {
    static const struct {
        int64_t pid;
        const char *cat;
    } rows[] = {[SPAN_PHASE] = {PID_REQUEST, "request"},
                [SPAN_PASS] = {PID_COMPILER, "pass"},
                [SPAN_DEVICE] = {PID_DEVICE, "request"},
                [SPAN_STEP] = {PID_DEVICE, "step"}};
    struct spans all = spans_of(t->a, r, SPANS_STEPS);
    bool named[PID_DEVICE + 1] = {[PID_REQUEST] = true};
    for (size_t k = 0; k < all.n; k++) {
        const struct spans_one *s = &all.v[k];
        int64_t pid = rows[s->kind].pid;
        if (!named[pid]) {
            label(t, "process_name", pid == PID_DEVICE ? r->device : "compiler", pid, 1);
            label(t, "thread_name", pid == PID_DEVICE ? "steps" : "passes", pid, 1);
            named[pid] = true;
        }
        Hlod__V1__TraceArgs *args =
            span(t, rows[s->kind].cat, s->name, pid, 1, s->start_ms, s->ms)->args;
        if (s->pass) {
            args->before = s->pass->before;
            args->after = s->pass->after;
        }
        if (s->row) put_step(args, s->row);
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
    const Hlod__V1__Timing *total = spans_timing(r, "total");
    label(&t, "process_name", "request", PID_REQUEST, 1);
    label(&t, "thread_name", "request", PID_REQUEST, 1);
    if (total) span(&t, "request", "request", PID_REQUEST, 1, 0, total->ms);
    put_spans(&t, r);
    Hlod__V1__Trace m = HLOD__V1__TRACE__INIT;
    m.trace_events = t.events.v;
    m.n_trace_events = t.events.n;
    m.display_time_unit = (char *)"ms";
    m.other_data = brief(c, r);
    return call_reply(c, &m.base);
}
