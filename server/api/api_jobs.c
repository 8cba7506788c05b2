// SPDX-License-Identifier: Apache-2.0
// Batch jobs: submit, look, watch, cancel. The journal knows whose a job is and how it ended; what
// still goes on is laid over it from memory. A job may end between the two looks: then both are
// taken again.
//
//   handler -> pool: read or write the journal -> loop: overlay, watch, answer
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/store/store.h"
#include "base/vec.h"
#include "proto/message.h"
#include "scheduler/loop.h"
#include "scheduler/suite/suite.h"
#include "server/api/api.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };
struct jobs_work {
    struct call *c;
    struct journal_jobs *journal;
    void (*work)(struct jobs_work *w); // pool
    void (*then)(struct jobs_work *w); // loop, without an error
    const char *tenant;                // NULL: any
    int64_t suite;
    uint32_t n;
    enum journal_job_part part;
    struct span record;
    bool ended;
    struct jobs_query query;
    struct {
        Hlod__V1__Job **v;
        size_t n, cap;
    } jobs;
    size_t n_ended;
    // Submit.
    Hlod__V1__SubmitJobsRequest *q;
    struct suite_record suite_record;
    bool existed, stored;
    struct suite_watch *watch;
    status_t st;
};

static void work(void *arg) {
    struct jobs_work *w = arg;
    w->work(w);
}
static void done(void *arg) {
    struct jobs_work *w = arg;
    struct call *c = w->c;
    struct suites *s = c->api->suites;
    if (w->st && w->suite_record.id) suites_doubt(s, w->suite_record.key);
    if (!w->st && w->existed) w->stored = suites_doubted(s, w->suite_record.key);
    if (w->stored) { // whoever waits for the answer or not: it is on disk now
        status_t st = suites_admit(s, &w->suite_record);
        if (st && !w->st)
            w->st = st;
        else
            st_drop(st);
    }
    status_t st = w->st;
    w->st = ST_OK;
    if (call_goes_on(c, st)) w->then(w);
}
static void go(struct jobs_work *w) {
    w->c->busy = true;
    loop_work(sched_loop(w->c->api->sched), work, done, w);
}
static struct jobs_work *new_work(struct call *c, void (*fn)(struct jobs_work *),
                                  void (*then)(struct jobs_work *)) {
    struct jobs_work *w = arena_new_of(&c->arena, struct jobs_work);
    *w = (struct jobs_work){.c = c,
                            .journal = suites_journal(c->api->suites),
                            .work = fn,
                            .then = then,
                            .tenant =
                                c->principal.scopes & SCOPE_ADMIN ? NULL : c->principal.tenant};
    return w;
}

// ---- ids and messages

static status_t no_such(const char *id) MUST_CHECK;
static status_t no_such(const char *id) {
    return st_reason(st_new(ST_NOT_FOUND, "no job '%.80s' here", id),
                     HLOD__V1__REASON__REASON_JOB_NOT_FOUND);
}
static status_t parse_id(struct jobs_work *w, const char *id, bool suite_too) {
    if (!suite_parse_id(id, &w->suite, &w->n) || (!w->n && !suite_too))
        return st_reason(st_new(ST_INVALID_ARGUMENT, "job '%.80s': expected SUITE.N%s", id,
                                suite_too ? " or SUITE" : ""),
                         HLOD__V1__REASON__REASON_BAD_OPTION);
    return ST_OK;
}
// Starts the work on a job that the request names.
static void go_for(struct jobs_work *w, const char *id, bool suite_too) {
    status_t st = parse_id(w, id, suite_too);
    if (st)
        call_finish(w->c, NULL, st);
    else
        go(w);
}

static void free_message(void *m) {
    protobuf_c_message_free_unpacked(m, NULL);
}
static void *unpack(struct call *c, const ProtobufCMessageDescriptor *d, struct span bytes) {
    ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, bytes.n, bytes.p);
    if (m) arena_link(&c->arena, free_message, m);
    return m;
}
// The brief as shown; ids are the row's. NULL: unreadable.
static Hlod__V1__Job *shown(struct call *c, const struct job_record *r) {
    struct arena *a = &c->arena;
    const Hlod__V1__Job *stored = unpack(c, &hlod__v1__job__descriptor, r->brief);
    if (!stored) return NULL;
    Hlod__V1__Job *b = arena_dup(a, stored, sizeof *stored);
    b->id = arena_printf(a, "%" PRId64 ".%u", r->suite, r->n);
    b->suite = arena_printf(a, "%" PRId64, r->suite);
    return b;
}
static bool ended_state(const Hlod__V1__Job *b) {
    return *b->finished != 0;
}

// ---- submit

static void submit_work(struct jobs_work *w) {
    struct api *api = w->c->api;
    struct arena *a = &w->c->arena;
    struct suite_record *r = &w->suite_record;
    struct suite_checker k = {sched_store(api->sched), sched_journal(api->sched),
                              w->c->principal.tenant, api->auth != NULL};
    w->st = suite_check(w->q, &k);
    if (w->st) return;
    struct suite_cell *cells;
    r->tenant = w->c->principal.tenant;
    r->created_ns = clock_wall_ns();
    r->n_jobs = (uint32_t)suite_expand(w->q, a, &cells);
    if (*w->q->idempotency_key) {
        struct sha256 h;
        sha256_init(&h);
        sha256_str(&h, str_of(r->tenant));
        sha256_str(&h, str_of(w->q->idempotency_key));
        r->key = sha256_end(&h);
    }
    struct span *briefs = arena_array(a, struct span, r->n_jobs);
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        Hlod__V1__Job *b = suite_brief(a, w->q, &cells[i], r->tenant, r->created_ns);
        uint8_t *p = arena_alloc(a, hlod__v1__job__get_packed_size(b) + 1);
        briefs[i] = (struct span){p, hlod__v1__job__pack(b, p)};
    }
    r->briefs = briefs;
    uint8_t *p = arena_alloc(a, hlod__v1__submit_jobs_request__get_packed_size(w->q) + 1);
    r->request = (struct span){p, hlod__v1__submit_jobs_request__pack(w->q, p)};
    w->st = journal_suite_add(w->journal, r, &w->existed);
    w->stored = !w->st && !w->existed;
}
static void submitted(struct jobs_work *w) {
    struct arena *a = &w->c->arena;
    Hlod__V1__SubmitJobsReply *m = message_new(a, &hlod__v1__submit_jobs_reply__descriptor);
    m->suite = arena_printf(a, "%" PRId64, w->suite_record.id);
    m->jobs = w->suite_record.n_jobs;
    m->existed = w->existed;
    call_finish(w->c, &m->base, ST_OK);
}
// Names of models become digests: what a name means may change before the job runs.
static status_t with_digests(struct call *c, Hlod__V1__SubmitJobsRequest **out) {
    struct arena *a = &c->arena;
    Hlod__V1__SubmitJobsRequest *q = arena_dup(a, c->request, sizeof *q);
    Hlod__V1__JobModel **models = arena_array(a, Hlod__V1__JobModel *, q->n_models + 1);
    for (size_t i = 0; i < q->n_models; i++) {
        struct digest d;
        RETURN_IF_ERR(st_note(api_model(c, q->models[i]->model, &d), "models[%zu]", i));
        models[i] = arena_dup(a, q->models[i], sizeof *q->models[i]);
        if (!*models[i]->name) models[i]->name = models[i]->model; // as it was asked for
        models[i]->model = api_hex(a, d);
    }
    q->models = models;
    *out = q;
    return ST_OK;
}
void api_submit_jobs(struct call *c) {
    struct jobs_work *w = new_work(c, submit_work, submitted);
    status_t st = with_digests(c, &w->q);
    if (st)
        call_finish(c, NULL, st);
    else
        go(w);
}

// ---- one job

static void get_work(struct jobs_work *w) {
    w->st = journal_job_get(w->journal, w->tenant, w->suite, w->n, w->part, &w->c->arena,
                            &w->record, &w->ended);
}
static void got_brief(struct jobs_work *w) {
    struct job_record r = {.suite = w->suite, .n = w->n, .brief = w->record};
    Hlod__V1__Job *b = shown(w->c, &r);
    if (b && !w->ended && !suites_overlay(w->c->api->suites, w->suite, w->n, &w->c->arena, b)) {
        go(w);
        return;
    }
    call_finish(w->c, b ? &b->base : NULL, b ? ST_OK : st_new(ST_DATA_LOSS, "unreadable record"));
}
void api_get_job(struct call *c) {
    struct jobs_work *w = new_work(c, get_work, got_brief);
    w->part = JOB_PART_BRIEF;
    go_for(w, ((Hlod__V1__GetJobRequest *)c->request)->job, false);
}

static void got_result(struct jobs_work *w) {
    const char *id = ((Hlod__V1__JobResultRequest *)w->c->request)->job;
    if (!w->ended) {
        call_finish(w->c, NULL,
                    st_reason(st_new(ST_FAILED_PRECONDITION, "job %s has not ended", id),
                              HLOD__V1__REASON__REASON_JOB_NOT_ENDED));
        return;
    }
    Hlod__V1__JobOutcome *o = unpack(w->c, &hlod__v1__job_outcome__descriptor, w->record);
    call_finish(w->c, o ? &o->base : NULL, o ? ST_OK : st_new(ST_DATA_LOSS, "unreadable record"));
}
void api_job_result(struct call *c) {
    struct jobs_work *w = new_work(c, get_work, got_result);
    w->part = JOB_PART_RESULT;
    go_for(w, ((Hlod__V1__JobResultRequest *)c->request)->job, false);
}

static void got_log(struct jobs_work *w) {
    const Hlod__V1__JobLogsRequest *q = (Hlod__V1__JobLogsRequest *)w->c->request;
    struct str text = {(const char *)w->record.p, w->record.n};
    if (!w->ended) {
        const struct strbuf *live = suites_log(w->c->api->suites, w->suite, w->n);
        if (!live) {
            go(w);
            return;
        }
        text = (struct str){strbuf_cstr(live), live->n};
    }
    Hlod__V1__JobLogsReply *m = message_new(&w->c->arena, &hlod__v1__job_logs_reply__descriptor);
    size_t from = q->offset < text.n ? (size_t)q->offset : text.n;
    m->text = arena_strndup(&w->c->arena, text.p + from, text.n - from);
    m->next_offset = text.n;
    m->ended = w->ended;
    call_finish(w->c, &m->base, ST_OK);
}
void api_job_logs(struct call *c) {
    struct jobs_work *w = new_work(c, get_work, got_log);
    w->part = JOB_PART_LOG;
    go_for(w, ((Hlod__V1__JobLogsRequest *)c->request)->job, false);
}

// ---- list

static void add_job(void *ctx, const struct job_record *r) {
    struct jobs_work *w = ctx;
    Hlod__V1__Job *b = shown(w->c, r);
    if (!b) return;
    avec_push(&w->c->arena, &w->jobs, b);
    w->n_ended += r->finished_ns != 0;
}
static void list_work(struct jobs_work *w) {
    w->jobs.n = w->n_ended = 0;
    w->st = journal_jobs_list(w->journal, &w->query, add_job, w);
}
// False: one ended between the looks.
static bool overlay_all(struct jobs_work *w) {
    for (size_t i = 0; i < w->jobs.n; i++) {
        Hlod__V1__Job *b = w->jobs.v[i];
        int64_t suite = 0;
        uint32_t n = 0;
        if (ended_state(b)) continue;
        (void)suite_parse_id(b->id, &suite, &n);
        if (!suites_overlay(w->c->api->suites, suite, n, &w->c->arena, b)) return false;
    }
    return true;
}
static void listed(struct jobs_work *w) {
    const Hlod__V1__ListJobsRequest *q = (Hlod__V1__ListJobsRequest *)w->c->request;
    if (!overlay_all(w)) {
        go(w);
        return;
    }
    Hlod__V1__ListJobsReply *m = message_new(&w->c->arena, &hlod__v1__list_jobs_reply__descriptor);
    if ((int64_t)w->jobs.n == w->query.limit) // one more than was asked for: there is a next page
        m->next_page_token = w->jobs.v[--w->jobs.n - 1]->id;
    m->jobs = w->jobs.v;
    for (size_t i = 0; i < w->jobs.n; i++)
        if (!*q->state || !strcmp(q->state, w->jobs.v[i]->state))
            m->jobs[m->n_jobs++] = w->jobs.v[i];
    call_finish(w->c, &m->base, ST_OK);
}
void api_list_jobs(struct call *c) {
    const Hlod__V1__ListJobsRequest *q = (Hlod__V1__ListJobsRequest *)c->request;
    struct jobs_work *w = new_work(c, list_work, listed);
    int64_t limit = !q->limit ? LIST_DEFAULT : q->limit > LIST_MAX ? LIST_MAX : q->limit;
    w->query = (struct jobs_query){.tenant = w->tenant, .limit = 1 + limit};
    uint32_t n = 0;
    status_t st = ST_OK;
    if (*q->suite && (!suite_parse_id(q->suite, &w->query.suite, &n) || n)) st = no_such(q->suite);
    if (!st && *q->page_token &&
        (!suite_parse_id(q->page_token, &w->query.after_suite, &w->query.after_n) ||
         !w->query.after_n))
        st = st_reason(st_new(ST_INVALID_ARGUMENT, "page_token '%.80s'", q->page_token),
                       HLOD__V1__REASON__REASON_BAD_OPTION);
    if (st)
        call_finish(c, NULL, st);
    else
        go(w);
}

// ---- watch

static void send_job(struct jobs_work *w, const Hlod__V1__Job *b) {
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.t_ms = (double)(clock_ns() - w->c->start_ns) / 1e6;
    e.kind_case = HLOD__V1__EVENT__KIND_JOB;
    e.job = (Hlod__V1__Job *)(uintptr_t)b;
    call_event(w->c, &e);
}
static void watch_changed(void *ctx, const Hlod__V1__Job *b) {
    send_job(ctx, b);
}
static void watch_ended(void *ctx, status_t st) {
    struct jobs_work *w = ctx;
    w->watch = NULL;
    call_finish(w->c, NULL, st);
}
static void watch_cancelled(struct call *c) {
    struct jobs_work *w = c->handler;
    if (w->watch) suites_unwatch(w->watch);
    w->watch = NULL;
}
static void watch(struct jobs_work *w) {
    struct call *c = w->c;
    if (!w->jobs.n) {
        call_finish(c, NULL, no_such(((Hlod__V1__WatchJobRequest *)c->request)->job));
        return;
    }
    w->watch = suites_watch(c->api->suites, w->suite, w->n, watch_changed, watch_ended, w);
    if (w->watch) {
        c->handler = w;
        c->on_cancel = watch_cancelled;
        suites_tell_all(w->watch);
    } else if (w->n_ended < w->jobs.n)
        go(w); // it ended between the looks
    else {
        for (size_t i = 0; i < w->jobs.n; i++)
            send_job(w, w->jobs.v[i]);
        call_finish(c, NULL, ST_OK);
    }
}
// The job alone, or all of its suite.
static void watch_work(struct jobs_work *w) {
    w->query = (struct jobs_query){.tenant = w->tenant, .suite = w->suite, .limit = SUITE_MAX_JOBS};
    if (w->n) {
        w->query.after_suite = w->suite;
        w->query.after_n = w->n - 1;
        w->query.limit = 1;
    }
    list_work(w);
}
void api_watch_job(struct call *c) {
    struct jobs_work *w = new_work(c, watch_work, watch);
    go_for(w, ((Hlod__V1__WatchJobRequest *)c->request)->job, true);
}

// ---- cancel

static void cancelled(void *ctx, uint32_t n) {
    struct jobs_work *w = ctx;
    struct call *c = w->c;
    if (!call_goes_on(c, ST_OK)) return;
    Hlod__V1__CancelJobReply *m = message_new(&c->arena, &hlod__v1__cancel_job_reply__descriptor);
    m->cancelled = n;
    call_finish(c, &m->base, ST_OK);
}
static void cancel(struct jobs_work *w) {
    if (!w->jobs.n) {
        call_finish(w->c, NULL, no_such(((Hlod__V1__CancelJobRequest *)w->c->request)->job));
        return;
    }
    w->c->busy = true;
    suites_cancel(w->c->api->suites, w->suite, w->n, cancelled, w);
}
void api_cancel_job(struct call *c) {
    struct jobs_work *w = new_work(c, watch_work, cancel);
    go_for(w, ((Hlod__V1__CancelJobRequest *)c->request)->job, true);
}
