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
#include "proto/weigh.h"
#include "scheduler/cluster/ask.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/loop.h"
#include "scheduler/suite/suite.h"
#include "server/api/api.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000, MOST_LOOKS = 3 };
struct jobs_work {
    struct call *c;
    struct journal_jobs *journal;
    status_t (*work)(struct jobs_work *w); // pool
    status_t (*then)(struct jobs_work *w); // loop, without an error
    const char *tenant;                    // NULL: any
    int64_t suite;
    uint32_t n;
    enum journal_job_part part;
    struct span record;
    bool ended;
    struct jobs_query query;
    VEC(Hlod__V1__Job *) jobs;
    size_t n_ended;
    // Submit.
    Hlod__V1__SubmitJobsRequest *q;
    struct suite_record suite_record;
    bool existed, stored;
    int looks;      // at the journal
    bool past_end;  // of a list: no page, but the suite is here, whose jobs are as many everywhere
    int64_t shared; // its id, once other nodes keep what it needs
    struct suite_watch *watch;
    struct ask *ask; // of the node that has the suite
    status_t st;
};
static bool is_elsewhere(const struct jobs_work *w);
static void seek(struct jobs_work *w);
static void share(struct jobs_work *w);

static void work(void *arg) {
    struct jobs_work *w = arg;
    w->st = w->work(w);
}
static void done(void *arg) {
    struct jobs_work *w = arg;
    struct call *c = w->c;
    struct suites *s = c->api->suites;
    if (!w->st && w->suite) w->st = suites_sure(s, w->suite);
    if (is_elsewhere(w)) {
        seek(w);
        return;
    }
    if (!w->st && w->q && !w->existed && !w->stored) { // not in the journal yet
        share(w);
        return;
    }
    bool reused = st_get_reason(w->st) == HLOD__V1__REASON__REASON_KEY_REUSED; // it is not there
    if (w->st && w->suite_record.id && !reused) suites_doubt(s, w->suite_record.key);
    if (!w->st && w->existed) w->stored = suites_doubted(s, w->suite_record.key);
    // Whoever waits for the answer or not: it is on disk now.
    if (w->stored) w->st = st_first(w->st, suites_admit(s, &w->suite_record));
    if (w->shared && (w->existed || w->st)) suites_unshare(s, w->shared);
    if (w->shared) suites_share_ends(s, w->shared);
    if (call_goes_on(c, w->st)) call_fail(c, w->then(w));
}
static status_t go(struct jobs_work *w) {
    w->c->busy = true;
    loop_work(sched_loop(w->c->api->sched), work, done, w);
    return ST_OK;
}
static struct jobs_work *new_work(struct call *c, status_t (*fn)(struct jobs_work *),
                                  status_t (*then)(struct jobs_work *)) {
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

MUST_CHECK static status_t no_such(const char *id) {
    return st_because(ST_NOT_FOUND, JOB_NOT_FOUND, "no job '%.80s' here", id);
}
static status_t parse_id(struct jobs_work *w, const char *id, bool suite_too) {
    if (!suite_parse_id(id, &w->suite, &w->n) || (!w->n && !suite_too))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "job '%.80s': expected SUITE.N%s", id,
                          suite_too ? " or SUITE" : "");
    return ST_OK;
}
// Starts the work on a job that the request names.
static status_t go_for(struct jobs_work *w, const char *id, bool suite_too) {
    RETURN_IF_ERR(parse_id(w, id, suite_too));
    return go(w);
}

// The brief as shown; ids are the row's. NULL: unreadable.
static Hlod__V1__Job *shown(struct call *c, const struct job_record *r) {
    struct arena *a = &c->arena;
    const Hlod__V1__Job *stored = weigh_unpack_in(a, &hlod__v1__job__descriptor, r->brief);
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

static status_t add_work(struct jobs_work *w) {
    RETURN_IF_ERR(journal_suite_add(w->journal, &w->suite_record, &w->existed));
    w->stored = !w->existed;
    return ST_OK;
}
static status_t submit_work(struct jobs_work *w) {
    struct api *api = w->c->api;
    struct arena *a = &w->c->arena;
    struct suite_record *r = &w->suite_record;
    struct suite_checker k = {sched_store(api->sched), sched_journal(api->sched),
                              w->c->principal.tenant, api->auth != NULL};
    RETURN_IF_ERR(suite_check(w->q, &k));

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
    if (w->c->trace) {
        char *text = arena_alloc(a, TRACE_PARENT_TEXT);
        trace_write(&w->c->trace->t, text);
        r->traceparent = text;
        r->tracestate = w->c->trace->t.state;
    }
    struct span *briefs = arena_array(a, struct span, r->n_jobs);
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        Hlod__V1__Job *b = suite_brief(a, w->q, &cells[i], r->tenant, r->created_ns);
        if (r->traceparent) {
            b->traceparent = (char *)(uintptr_t)r->traceparent;
            b->tracestate = (char *)(uintptr_t)r->tracestate;
        }
        briefs[i] = message_pack(a, &b->base);
    }
    r->briefs = briefs;
    r->request = message_pack(a, &w->q->base);
    if (suites_share_new(api->suites) && !w->q->train)
        return journal_suite_find(w->journal, r, &w->existed);
    return add_work(w);
}
static void on_shared(void *ctx, status_t st) {
    struct jobs_work *w = ctx;
    w->work = add_work;
    w->shared = w->suite_record.id;
    if (!st)
        loop_work(sched_loop(w->c->api->sched), work, done, w);
    else {
        if (w->shared) suites_unshare(w->c->api->suites, w->shared);
        bool on = call_goes_on(w->c, st); // no
        (void)on;
    }
}
static void share(struct jobs_work *w) {
    suites_share(w->c->api->suites, &w->suite_record, on_shared, w);
}
static status_t submitted(struct jobs_work *w) {
    struct arena *a = &w->c->arena;
    Hlod__V1__SubmitJobsReply *m = message_new(a, &hlod__v1__submit_jobs_reply__descriptor);
    m->suite = arena_printf(a, "%" PRId64, w->suite_record.id);
    m->jobs = w->suite_record.n_jobs;
    m->existed = w->existed;
    return call_reply(w->c, &m->base);
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
status_t api_submit_jobs(struct call *c) {
    struct jobs_work *w = new_work(c, submit_work, submitted);
    RETURN_IF_ERR(with_digests(c, &w->q));
    return go(w);
}

// A training is a suite of one job.
status_t api_train(struct call *c) {
    const Hlod__V1__TrainRequest *t = call_request(c);
    struct arena *a = &c->arena;
    struct jobs_work *w = new_work(c, submit_work, submitted);
    Hlod__V1__SubmitJobsRequest *q = message_new(a, &hlod__v1__submit_jobs_request__descriptor);
    Hlod__V1__JobModel *m = message_new(a, &hlod__v1__job_model__descriptor);
    Hlod__V1__JobInput *in = message_new(a, &hlod__v1__job_input__descriptor);
    Hlod__V1__JobTarget *target = message_new(a, &hlod__v1__job_target__descriptor);
    struct digest model;
    if (!t->train)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "train: how it is trained is missing");
    RETURN_IF_ERR(st_note(api_model(c, t->model, &model), "model"));

    m->name = *t->name ? t->name : t->model; // in lists
    m->model = api_hex(a, model);
    m->options = t->options;
    in->name = (char *)(uintptr_t)"rows";
    in->inputs = t->data;
    in->n_inputs = t->n_data;
    target->device = t->device;
    q->models = arena_dup(a, &m, sizeof(Hlod__V1__JobModel *));
    q->inputs = arena_dup(a, &in, sizeof(Hlod__V1__JobInput *));
    q->targets = arena_dup(a, &target, sizeof(Hlod__V1__JobTarget *));
    q->n_models = q->n_inputs = 1;
    q->n_targets = *t->device != 0;
    q->train = t->train;
    q->retry = t->retry;
    q->timeout_ms = t->timeout_ms;
    q->priority = t->priority;
    q->idempotency_key = t->idempotency_key;
    w->q = q;
    return go(w);
}

// ---- one job

static status_t get_work(struct jobs_work *w) {
    w->looks++;
    return journal_job_get(w->journal, w->tenant, w->suite, w->n, w->part, &w->c->arena, &w->record,
                           &w->ended);
}
// Looks for the part of the job that is asked for, and goes on with what was found.
static status_t get(struct call *c, const char *id, enum journal_job_part part,
                    status_t (*then)(struct jobs_work *)) {
    struct jobs_work *w = new_work(c, get_work, then);
    w->part = part;
    return go_for(w, id, false);
}
static status_t reply_record(struct call *c, const ProtobufCMessage *m) {
    return m ? call_reply(c, m) : st_new(ST_DATA_LOSS, "unreadable record");
}
static status_t got_brief(struct jobs_work *w) {
    struct job_record r = {.suite = w->suite, .n = w->n, .brief = w->record};
    Hlod__V1__Job *b = shown(w->c, &r);
    if (b && !w->ended && !suites_overlay(w->c->api->suites, w->suite, w->n, &w->c->arena, b))
        return go(w);
    return reply_record(w->c, b ? &b->base : NULL);
}
status_t api_get_job(struct call *c) {
    return get(c, ((Hlod__V1__GetJobRequest *)c->request)->job, JOB_PART_BRIEF, got_brief);
}

static status_t got_result(struct jobs_work *w) {
    const char *id = ((Hlod__V1__JobResultRequest *)w->c->request)->job;
    if (!w->ended)
        return st_because(ST_FAILED_PRECONDITION, JOB_NOT_ENDED, "job %s has not ended", id);
    return reply_record(
        w->c, weigh_unpack_in(&w->c->arena, &hlod__v1__job_outcome__descriptor, w->record));
}
status_t api_job_result(struct call *c) {
    return get(c, ((Hlod__V1__JobResultRequest *)c->request)->job, JOB_PART_RESULT, got_result);
}

static status_t got_log(struct jobs_work *w) {
    const Hlod__V1__JobLogsRequest *q = call_request(w->c);
    struct str text = {(const char *)w->record.p, w->record.n};
    if (!w->ended) {
        const struct strbuf *live = suites_log(w->c->api->suites, w->suite, w->n);
        if (!live) return go(w);
        text = (struct str){strbuf_cstr(live), live->n};
    }
    Hlod__V1__JobLogsReply *m = message_new(&w->c->arena, &hlod__v1__job_logs_reply__descriptor);
    size_t from = q->offset < text.n ? (size_t)q->offset : text.n;
    m->text = arena_strndup(&w->c->arena, text.p + from, text.n - from);
    m->next_offset = text.n;
    m->ended = w->ended;
    return call_reply(w->c, &m->base);
}
status_t api_job_logs(struct call *c) {
    return get(c, ((Hlod__V1__JobLogsRequest *)c->request)->job, JOB_PART_LOG, got_log);
}

// ---- list

static void add_job(void *ctx, const struct job_record *r) {
    struct jobs_work *w = ctx;
    Hlod__V1__Job *b = shown(w->c, r);
    if (!b) return;
    avec_push(&w->c->arena, &w->jobs, b);
    w->n_ended += r->finished_ns != 0;
}
static void find_past_end(void *ctx, UNUSED const struct job_record *r) {
    ((struct jobs_work *)ctx)->past_end = true;
}
static status_t list_work(struct jobs_work *w) {
    w->jobs.n = w->n_ended = 0;
    w->looks++;
    RETURN_IF_ERR(journal_jobs_list(w->journal, &w->query, add_job, w));
    w->past_end = false;
    if (w->jobs.n || !w->query.suite || !w->query.after_n) return ST_OK;
    const struct jobs_query first = {.tenant = w->tenant, .suite = w->query.suite, .limit = 1};
    return journal_jobs_list(w->journal, &first, find_past_end, w);
}
// False: one ended between the looks.
static bool overlay_all(struct jobs_work *w) {
    for (size_t i = 0; i < w->jobs.n; i++) {
        Hlod__V1__Job *b = w->jobs.v[i];
        int64_t suite = 0;
        uint32_t n = 0;
        if (ended_state(b)) continue;
        (void)suite_parse_id(b->id, &suite, &n);
        // One that moved to another node may be in the journal for a while.
        bool found = suites_overlay(w->c->api->suites, suite, n, &w->c->arena, b);
        if (!found && (suite < SUITE_SHARED || w->looks < MOST_LOOKS)) return false;
    }
    return true;
}
static status_t listed(struct jobs_work *w) {
    const Hlod__V1__ListJobsRequest *q = call_request(w->c);
    if (!overlay_all(w)) return go(w);
    Hlod__V1__ListJobsReply *m = message_new(&w->c->arena, &hlod__v1__list_jobs_reply__descriptor);
    if ((int64_t)w->jobs.n == w->query.limit) // one more than was asked for: there is a next page
        m->next_page_token = w->jobs.v[--w->jobs.n - 1]->id;
    m->jobs = w->jobs.v;
    for (size_t i = 0; i < w->jobs.n; i++)
        if (!*q->state || !strcmp(q->state, w->jobs.v[i]->state))
            m->jobs[m->n_jobs++] = w->jobs.v[i];
    return call_reply(w->c, &m->base);
}
status_t api_list_jobs(struct call *c) {
    const Hlod__V1__ListJobsRequest *q = call_request(c);
    struct jobs_work *w = new_work(c, list_work, listed);
    int64_t limit = !q->limit ? LIST_DEFAULT : q->limit > LIST_MAX ? LIST_MAX : q->limit;
    w->query = (struct jobs_query){.tenant = w->tenant, .limit = 1 + limit};
    uint32_t n = 0;
    if (*q->suite && (!suite_parse_id(q->suite, &w->query.suite, &n) || n))
        return no_such(q->suite);
    w->suite = w->query.suite;
    if (*q->page_token &&
        (!suite_parse_id(q->page_token, &w->query.after_suite, &w->query.after_n) ||
         !w->query.after_n))
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "page_token '%.80s'", q->page_token);
    return go(w);
}

// ---- watch

static void send_job(struct jobs_work *w, const Hlod__V1__Job *b) {
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.t_ms = clock_ms_since(w->c->start_ns);
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
static status_t watch(struct jobs_work *w) {
    struct call *c = w->c;
    if (!w->jobs.n) return no_such(((Hlod__V1__WatchJobRequest *)c->request)->job);
    w->watch = suites_watch(c->api->suites, w->suite, w->n, watch_changed, watch_ended, w);
    if (w->watch) {
        c->handler = w;
        c->on_cancel = watch_cancelled;
        suites_tell_all(w->watch);
        return ST_OK;
    }
    if (w->n_ended < w->jobs.n) return go(w); // it ended between the looks
    for (size_t i = 0; i < w->jobs.n; i++)
        send_job(w, w->jobs.v[i]);
    return call_reply(c, NULL);
}
// The job alone, or all of its suite.
static status_t watch_work(struct jobs_work *w) {
    w->query = (struct jobs_query){.tenant = w->tenant, .suite = w->suite, .limit = SUITE_MAX_JOBS};
    if (w->n) {
        w->query.after_suite = w->suite;
        w->query.after_n = w->n - 1;
        w->query.limit = 1;
    }
    return list_work(w);
}
status_t api_watch_job(struct call *c) {
    struct jobs_work *w = new_work(c, watch_work, watch);
    return go_for(w, ((Hlod__V1__WatchJobRequest *)c->request)->job, true);
}

// ---- cancel

static void cancelled(void *ctx, uint32_t n) {
    struct jobs_work *w = ctx;
    struct call *c = w->c;
    if (!call_goes_on(c, ST_OK)) return;
    if (n == SUITES_UNTOLD) {
        call_finish(c, NULL,
                    st_because(ST_UNAVAILABLE, SHUTTING_DOWN,
                               "the server is shutting down before the cancel is recorded"));
        return;
    }
    if (n == SUITES_MOVED) {
        call_finish(c, NULL,
                    st_new(ST_UNAVAILABLE, "the suite moved to another node before the cancel was "
                                           "recorded: ask again"));
        return;
    }
    Hlod__V1__CancelJobReply *m = message_new(&c->arena, &hlod__v1__cancel_job_reply__descriptor);
    m->cancelled = n;
    call_finish(c, &m->base, ST_OK);
}
static status_t cancel(struct jobs_work *w) {
    if (!w->jobs.n) return no_such(((Hlod__V1__CancelJobRequest *)w->c->request)->job);
    // It ended between the looks, or moved.
    bool gone = w->n_ended < w->jobs.n && !suites_keeps(w->c->api->suites, w->suite);
    if (gone && w->looks < MOST_LOOKS) return go(w);
    w->c->busy = true;
    suites_cancel(w->c->api->suites, w->suite, w->n, cancelled, w);
    return ST_OK;
}
status_t api_cancel_job(struct call *c) {
    struct jobs_work *w = new_work(c, watch_work, cancel);
    return go_for(w, ((Hlod__V1__CancelJobRequest *)c->request)->job, true);
}

// ---- suites that other nodes have (docs/decisions/0050)

static bool is_elsewhere(const struct jobs_work *w) {
    struct suites *s = w->c->api->suites;
    bool move = suites_share_new(s);
    if (w->suite < SUITE_SHARED || suites_keeps(s, w->suite)) return false;
    if (w->st) return move && st_get_reason(w->st) == HLOD__V1__REASON__REASON_JOB_NOT_FOUND;
    // What has not ended and does not go on here has moved; or ended between the looks, where
    // nobody else can be asked.
    bool open = w->work == get_work ? !w->ended : w->n_ended < w->jobs.n;
    if (!move) return open && w->looks >= MOST_LOOKS;
    return open || (w->work != get_work && !w->jobs.n && !w->past_end);
}
static bool on_event(void *ctx, Hlod__V1__Event *e) {
    struct jobs_work *w = ctx;
    call_event(w->c, e);
    return false;
}
static void on_answer(void *ctx, status_t st, UNUSED struct arena *a, ProtobufCMessage *m) {
    struct jobs_work *w = ctx;
    struct call *c = w->c;
    w->ask = NULL;
    ProtobufCMessage *own = NULL;
    if (!st && m) {
        own = weigh_unpack_in(&c->arena, m->descriptor, message_pack(&c->arena, m));
        if (!own) st = st_internal("an answer that cannot be read");
    }
    call_finish(c, own, st);
}
static void ask_left(struct call *c) {
    struct jobs_work *w = c->handler;
    ask_cancel(w->ask);
    w->ask = NULL;
}
static void on_home(void *ctx, status_t st, const char *node) {
    struct jobs_work *w = ctx;
    struct call *c = w->c;
    bool list = w->work == list_work && !w->jobs.n;

    if (!st && !strcmp(node, cluster_node(c->api->cluster))) { // it ended here meanwhile
        if (call_goes_on(c, ST_OK)) call_fail(c, go(w));
        return;
    }
    if (!st && c->forwarded) // once
        st = st_new(ST_UNAVAILABLE, "the suite is node %s's now: ask again", node);
    if (list && st_code(st) == ST_NOT_FOUND) { // there are none
        st_drop(st);
        if (call_goes_on(c, ST_OK)) call_fail(c, w->then(w));
        return;
    }
    if (!call_goes_on(c, st)) return;
    const struct ask_spec spec = {.node = node,
                                  .method = c->row->method,
                                  .tenant = c->principal.tenant,
                                  .scopes = c->principal.scopes,
                                  .request = c->request,
                                  .reply = c->row->stream ? NULL : c->row->output,
                                  .timeout_ms = c->timeout_ms,
                                  .event = on_event,
                                  .done = on_answer,
                                  .ctx = w};
    w->ask = ask_start(cluster_asks(c->api->cluster), &spec);
    if (!w->ask) {
        call_fail(c, st_new(ST_UNAVAILABLE, "node %s, which has the suite, is lost", node));
        return;
    }
    c->handler = w;
    c->on_cancel = ask_left;
}
static void seek(struct jobs_work *w) {
    bool here = !w->st && (w->work == get_work || w->jobs.n);
    st_drop(w->st);
    w->st = ST_OK;
    suites_seek(w->c->api->suites, w->suite, w->tenant, here, on_home, w);
}
