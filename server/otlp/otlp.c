// SPDX-License-Identifier: Apache-2.0
#include "server/otlp/otlp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "server/grpc/grpc_export.h"
#include "server/otlp/otlp_http.h"

#define SECOND INT64_C(1000000000)
enum { MOST_BYTES = 2 << 20 };                       // of a request: collectors take 4 MiB
enum { FIRST_WAIT_MS = 1000, MOST_WAIT_MS = 30000 }; // between two tries
enum { GIVE_UP_S = 60 };                             // so long one request is tried
enum { SAY_EVERY_S = 60 };
struct otlp {
    struct otlp_config cfg; // keep and sampler: the loop's
    struct otlp_queue *queue;
    pthread_t thread;
    _Atomic int64_t stop_ns; // when it must have ended; INT64_MAX: goes on
    // The thread's.
    struct otlp_origin origin;
    const struct otlp_transport *by[OTLP_SIGNALS];
    void *senders[OTLP_SIGNALS];
    int64_t wall_ns, start_ns; // of the wall clock: what to add to clock_ns; the process's start
    struct otlp_bytes spans, request;
    struct arena arena;
    unsigned n_spans;                                                 // in `spans`
    int64_t deadline_ns;                                              // of the request under way
    int64_t flush_ns, metrics_ns;                                     // when the next are due
    enum outcome { WELL, PARTIAL, LATER, REFUSED } was[OTLP_SIGNALS]; // the one before
    int64_t said_ns[OTLP_SIGNALS];                                    // when that was logged
};

// ---- the loop's side

bool otlp_samples(const struct otlp *o, const struct trace *t) {
    return o->cfg.to[OTLP_TRACES].on && sampler_takes(&o->cfg.sampler, t);
}
void otlp_tell(void *otlp, const struct trace_work *w) {
    struct otlp *o = otlp;
    unsigned lost = otlp_record_put(o->queue, w, &o->cfg.keep);
    if (lost) metric_add(M_OTLP_DROPPED, lost);
}
void otlp_configure(struct otlp *o, const struct otlp_config *cfg) {
    if (!o) return;
    o->cfg.sampler = cfg->sampler;
    o->cfg.keep = cfg->keep;
}

// ---- the thread: one request

static bool stopping(const struct otlp *o) {
    return atomic_load(&o->stop_ns) != INT64_MAX;
}
static int64_t until(void *ctx) {
    const struct otlp *o = ctx;
    int64_t stop = atomic_load(&o->stop_ns);
    return stop < o->deadline_ns ? stop : o->deadline_ns;
}
// A line when it begins to fail, fails otherwise, is well again, and now and then between.
static void say(struct otlp *o, enum otlp_signal s, const struct otlp_answer *x) {
    static const char *const names[OTLP_SIGNALS] = {"traces", "metrics"};
    static const char *const results[] = {
        [WELL] = "ok", [PARTIAL] = "partial", [LATER] = "later", [REFUSED] = "refused"};
    static const enum outcome outcomes[] = {
        [OTLP_TAKEN] = WELL, [OTLP_AGAIN] = LATER, [OTLP_REFUSED] = REFUSED};
    enum outcome is = x->how == OTLP_TAKEN && x->rejected ? PARTIAL : outcomes[x->how];
    const char *where = o->cfg.to[s].where;
    int64_t now = clock_ns();
    if (is == o->was[s] && (is == WELL || now - o->said_ns[s] < SAY_EVERY_S * SECOND)) return;
    o->was[s] = is;
    o->said_ns[s] = now;
    if (is == WELL)
        log_event(LOG_INFO, "otlp.export", "signal=%s to=%s result=ok", names[s], where);
    else
        log_event(LOG_WARN, "otlp.export", "signal=%s to=%s result=%s rejected=%lld why=\"%s\"",
                  names[s], where, results[is], (long long)x->rejected, x->why);
}
static void send_once(struct otlp *o, enum otlp_signal s, struct otlp_answer *x) {
    const struct otlp_bytes *b = &o->request;
    *x = (struct otlp_answer){.how = OTLP_REFUSED};
    o->deadline_ns = clock_ns() + o->cfg.to[s].timeout_ms * CLOCK_MS;
    o->by[s]->send(o->senders[s], (struct span){b->p, b->n}, until, o, x);
    if (x->how != OTLP_TAKEN) metric_add(M_OTLP_FAILURES, 1);
    say(o, s, x);
}

// ---- spans

// Sleeps between two tries; false: there is no time for another one.
static bool wait_between(struct otlp *o, const struct otlp_answer *x, int64_t backoff_ms,
                         int64_t give_up_ns) {
    uint8_t random[8];
    trace_new_span(random);
    int64_t ms = backoff_ms / 2 + backoff_ms * random[0] / 512; // half of it up to all
    if (x->retry_ms > ms) ms = x->retry_ms;
    int64_t at = clock_ns() + ms * CLOCK_MS;
    if (at > give_up_ns) return false;
    while (!stopping(o) && clock_ns() < at)
        otlp_queue_sleep(o->queue, at);
    return !stopping(o);
}
static void ship(struct otlp *o) {
    struct otlp_answer x;
    int64_t backoff_ms = FIRST_WAIT_MS, give_up_ns = clock_ns() + GIVE_UP_S * SECOND;
    unsigned n = o->n_spans;
    o->request.n = 0;
    otlp_request_head(&o->request, &o->origin, o->spans.n);
    otlp_put_raw(&o->request, o->spans.p, o->spans.n);
    otlp_request_tail(&o->request);
    o->spans.n = o->n_spans = 0;

    for (;; backoff_ms = backoff_ms < MOST_WAIT_MS / 2 ? backoff_ms * 2 : MOST_WAIT_MS) {
        if (clock_ns() >= atomic_load(&o->stop_ns)) {
            metric_add(M_OTLP_DROPPED, n);
            return;
        }
        send_once(o, OTLP_TRACES, &x);
        if (x.how != OTLP_AGAIN || !wait_between(o, &x, backoff_ms, give_up_ns)) break;
    }
    unsigned lost = x.how != OTLP_TAKEN ? n : x.rejected < n ? (unsigned)x.rejected : n;
    metric_add(M_OTLP_DROPPED, lost);
    metric_add(M_OTLP_SPANS, n - lost);
}
static void on_span(void *ctx) {
    struct otlp *o = ctx;
    if (++o->n_spans >= o->cfg.batch || o->spans.n >= MOST_BYTES) ship(o);
}
// Traces of one process have one clock, so that their spans fit together; it is set anew where the
// machine's was set, or slept.
static void look_at_clock(struct otlp *o) {
    int64_t wall_ns = clock_wall_ns() - clock_ns(), off = wall_ns - o->wall_ns;
    if (off > SECOND || off < -SECOND) o->wall_ns = wall_ns;
}
static void export_spans(struct otlp *o, bool all) {
    const void *record;
    look_at_clock(o);
    while ((record = otlp_queue_first(o->queue))) {
        struct trace_work w;
        otlp_record_get(record, &o->arena, &w);
        otlp_encode_work(&o->spans, &w, &o->origin, o->wall_ns, &o->arena, on_span, o);
        arena_reset(&o->arena);
        otlp_queue_drop(o->queue);
    }
    if (all && o->n_spans) ship(o);
}

// ---- metrics

// Not tried again: the next ones say all that these did.
static void export_metrics(struct otlp *o) {
    struct otlp_answer x;
    if (!o->cfg.to[OTLP_METRICS].on) return;
    o->request.n = 0;
    otlp_encode_metrics(&o->request, &o->origin, o->start_ns, clock_ns() + o->wall_ns);
    send_once(o, OTLP_METRICS, &x);
}

// ---- its life

static void *run(void *arg) {
    struct otlp *o = arg;
    while (!stopping(o)) {
        int64_t next = o->flush_ns < o->metrics_ns ? o->flush_ns : o->metrics_ns;
        otlp_queue_wait(o->queue, next);
        int64_t now = clock_ns();
        if (now >= o->metrics_ns && !stopping(o)) {
            export_metrics(o);
            o->metrics_ns = now + o->cfg.metrics_ms * CLOCK_MS;
        }
        bool due = now >= o->flush_ns;
        export_spans(o, due);
        if (due) o->flush_ns = now + o->cfg.delay_ms * CLOCK_MS;
    }
    export_spans(o, true);
    export_metrics(o);
    return NULL;
}

static void free_otlp(struct otlp *o) {
    for (int s = 0; s < OTLP_SIGNALS; s++)
        if (o->senders[s]) o->by[s]->close(o->senders[s]);
    otlp_origin_done(&o->origin);
    otlp_queue_free(o->queue);
    arena_done(&o->arena);
    free(o->spans.p);
    free(o->request.p);
    free(o);
}

status_t otlp_start(const struct otlp_config *cfg, const struct otlp_address *http,
                    const struct otlp_address *grpc, struct otlp **out) {
    for (size_t k = 0; k < cfg->warnings.n; k++)
        log_event(LOG_WARN, "otlp.config", "why=\"%s; it is as if it were not set\"",
                  cfg->warnings.v[k]);
    if (!cfg->to[OTLP_TRACES].on && !cfg->to[OTLP_METRICS].on) return ST_OK;
    struct otlp *o = arena_must_calloc(1, sizeof *o);
    o->cfg = *cfg;
    o->queue = otlp_queue_new((size_t)cfg->queue_bytes, (unsigned)cfg->batch);
    o->start_ns = clock_wall_ns();
    o->wall_ns = o->start_ns - clock_ns();
    o->flush_ns = clock_ns() + cfg->delay_ms * CLOCK_MS;
    o->metrics_ns = clock_ns() + cfg->metrics_ms * CLOCK_MS;
    atomic_store(&o->stop_ns, INT64_MAX);

    otlp_origin_make(&o->origin, HLOD_VERSION, cfg->resource, cfg->n_resource, http, grpc);

    status_t st = o->queue ? ST_OK : st_oom();
    for (int s = 0; s < OTLP_SIGNALS && !st; s++) {
        o->by[s] = cfg->to[s].http ? &otlp_http : &grpc_export;
        if (cfg->to[s].on) st = o->by[s]->open(&o->cfg.to[s], (enum otlp_signal)s, &o->senders[s]);
    }
    if (!st && pthread_create(&o->thread, NULL, run, o)) st = st_exhausted("no thread for OTLP");
    if (st) {
        free_otlp(o);
        return st;
    }
    *out = o;
    return ST_OK;
}
void otlp_stop(struct otlp *o, int64_t most_ms) {
    if (!o) return;
    atomic_store(&o->stop_ns, clock_ns() + most_ms * CLOCK_MS);
    otlp_queue_wake(o->queue);
    pthread_join(o->thread, NULL);
    free_otlp(o);
}
