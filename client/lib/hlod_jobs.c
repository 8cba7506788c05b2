// SPDX-License-Identifier: Apache-2.0
// Each call is a request made in an arena, sent by either kind of connection, and a function that
// makes the public object of the reply, which borrows from the message it came in.
#include "client/hlod_jobs.h"

#include <string.h>

#include "base/hash.h"
#include "client/lib/async.h"
#include "client/lib/jobs.h"
#include "proto/message.h"

static char *text(const char *z) {
    return (char *)(uintptr_t)(z ? z : "");
}

void *jobs_call(struct hlod *h, struct arena *a, const struct wire_request *q, wire_finish finish) {
    struct wire_reader r;
    void *got = NULL;
    status_t st = wire_stream(h, q, &r);
    if (!st) st = finish(&r, &got);
    arena_done(a);
    wire_end(h, st);
    return got;
}
// ---- requests

static void blob_request(struct arena *a, bool grpc, const struct hlod_bytes *v, size_t n,
                         char digest[HLOD_DIGEST_CHARS], struct wire_request *out) {
    Hlod__V1__PutBlobRequest *q = message_new(a, &hlod__v1__put_blob_request__descriptor);
    struct span *part = arena_array(a, struct span, n);
    struct sha256 sum;
    sha256_init(&sum);
    for (size_t k = 0; k < n; k++) {
        part[k] = (struct span){v[k].data, v[k].size_bytes};
        sha256_add(&sum, v[k].data, v[k].size_bytes);
    }
    digest_hex(sha256_end(&sum), digest);
    q->digest = arena_strdup(a, digest);
    if (grpc) {
        q->data = wire_joined(a, part, n);
        wire_call(a, true, "PutBlob", &q->base, &hlod__v1__blob_info__descriptor, out);
        return;
    }
    *out = (struct wire_request){.reply = &hlod__v1__blob_info__descriptor,
                                 .verb = "PUT",
                                 .path = arena_printf(a, "/v1/blobs/%s", digest),
                                 .content_type = "application/octet-stream",
                                 .parts = part,
                                 .n_parts = n,
                                 .method = "PutBlob"};
}

Hlod__V1__JobTensor **jobs_tensors(struct arena *a, const struct hlod_job_tensor *v, size_t n) {
    Hlod__V1__JobTensor **out = arena_array(a, Hlod__V1__JobTensor *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const struct hlod_tensor *x = &v[i].tensor;
        Hlod__V1__JobTensor *t = out[i] = message_new(a, &hlod__v1__job_tensor__descriptor);
        t->name = text(x->name);
        t->dtype = text(x->dtype);
        t->shape = (int64_t *)(uintptr_t)x->dims;
        t->n_shape = x->rank > 0 ? (size_t)x->rank : 0;
        t->blob = text(v[i].blob);
        if (!v[i].blob)
            t->raw = (ProtobufCBinaryData){x->size_bytes, (uint8_t *)(uintptr_t)x->data};
    }
    return out;
}
static Hlod__V1__JobModel *model(struct arena *a, const struct hlod_job_model *m) {
    Hlod__V1__JobModel *q = message_new(a, &hlod__v1__job_model__descriptor);
    q->name = text(m->name);
    q->model = text(m->model);
    q->shapes = wire_shapes(a, m->shapes, m->n_shapes);
    q->n_shapes = m->n_shapes;
    return q;
}
static Hlod__V1__JobTarget *target(struct arena *a, const struct hlod_job_target *t) {
    Hlod__V1__JobTarget *q = message_new(a, &hlod__v1__job_target__descriptor);
    q->name = text(t->name);
    q->device = text(t->device);
    q->target = text(t->target);
    return q;
}
static Hlod__V1__JobInput *input(struct arena *a, const struct hlod_job_input *in) {
    Hlod__V1__JobInput *q = message_new(a, &hlod__v1__job_input__descriptor);
    q->name = text(in->name);
    q->inputs = jobs_tensors(a, in->inputs, in->n_inputs);
    q->n_inputs = in->n_inputs;
    q->expect = jobs_tensors(a, in->expect, in->n_expect);
    q->n_expect = in->n_expect;
    return q;
}
static void suite_request(struct arena *a, bool grpc, const struct hlod_suite *given,
                          struct wire_request *out) {
    struct hlod_suite s = HLOD_SUITE;
    memcpy(&s, given, given->size < sizeof s ? given->size : sizeof s);

    Hlod__V1__SubmitJobsRequest *q = arena_new_of(a, Hlod__V1__SubmitJobsRequest);
    Hlod__V1__JobBudget *budget = arena_new_of(a, Hlod__V1__JobBudget);
    Hlod__V1__RetryPolicy *retry = arena_new_of(a, Hlod__V1__RetryPolicy);
    hlod__v1__submit_jobs_request__init(q);
    hlod__v1__job_budget__init(budget);
    hlod__v1__retry_policy__init(retry);

    q->name = text(s.name);
    q->idempotency_key = text(s.idempotency_key);

    q->models = arena_array(a, Hlod__V1__JobModel *, s.n_models + 1);
    for (; q->n_models < s.n_models; q->n_models++)
        q->models[q->n_models] = model(a, &s.models[q->n_models]);
    q->targets = arena_array(a, Hlod__V1__JobTarget *, s.n_targets + 1);
    for (; q->n_targets < s.n_targets; q->n_targets++)
        q->targets[q->n_targets] = target(a, &s.targets[q->n_targets]);
    q->inputs = arena_array(a, Hlod__V1__JobInput *, s.n_inputs + 1);
    for (; q->n_inputs < s.n_inputs; q->n_inputs++)
        q->inputs[q->n_inputs] = input(a, &s.inputs[q->n_inputs]);

    q->budget = budget;
    budget->run_ms = s.budget.run_ms;
    budget->compile_ms = s.budget.compile_ms;
    budget->instructions = s.budget.instructions;
    budget->peak_bytes = s.budget.peak_bytes;
    q->retry = retry;
    retry->max_attempts = s.max_attempts;

    q->rtol = s.rtol;
    q->atol = s.atol;
    q->timeout_ms = s.timeout_ms;
    q->repeat = s.repeat;
    q->priority = s.priority;
    q->keep_outputs = s.keep_outputs;
    wire_call(a, grpc, "SubmitJobs", &q->base, &hlod__v1__submit_jobs_reply__descriptor, out);
}

static void cancel_request(struct arena *a, bool grpc, const char *job, struct wire_request *out) {
    Hlod__V1__CancelJobRequest *q = message_new(a, &hlod__v1__cancel_job_request__descriptor);
    q->job = arena_strdup(a, job);
    wire_call(a, grpc, "CancelJob", &q->base, &hlod__v1__cancel_job_reply__descriptor, out);
}
static void outcome_request(struct arena *a, bool grpc, const char *job, struct wire_request *out) {
    Hlod__V1__JobResultRequest *q = message_new(a, &hlod__v1__job_result_request__descriptor);
    q->job = arena_strdup(a, job);
    wire_call(a, grpc, "JobResult", &q->base, &hlod__v1__job_outcome__descriptor, out);
}

struct watch {
    hlod_job_fn on_job;
    void *ctx;
};
static bool on_message(void *ctx, const Hlod__V1__Event *event) {
    const struct watch *w = ctx;
    static const Hlod__V1__Error none = HLOD__V1__ERROR__INIT;
    if (event->kind_case != HLOD__V1__EVENT__KIND_JOB) return true;

    const Hlod__V1__Job *m = event->job;
    const Hlod__V1__Error *e = m->error ? m->error : &none;
    struct hlod_job j = {m->id,    m->suite,  m->suite_name, m->model,    m->target,
                         m->input, m->state,  *m->finished,  m->attempts, m->run_ms,
                         e->code,  e->reason, e->message};
    return !w->on_job || w->on_job(w->ctx, &j);
}
static void watch_request(struct arena *a, bool grpc, const char *job, hlod_job_fn fn, void *ctx,
                          struct wire_request *out) {
    Hlod__V1__WatchJobRequest *q = arena_new_of(a, Hlod__V1__WatchJobRequest);
    struct watch *w = arena_new_of(a, struct watch);
    *w = (struct watch){fn, ctx};
    hlod__v1__watch_job_request__init(q);
    q->job = arena_strdup(a, job);
    wire_call(a, grpc, "WatchJob", &q->base, NULL, out);
    out->any_end = true;
    out->on_message = on_message;
    out->ctx = w;
}

// ---- replies

status_t jobs_nothing(struct wire_reader *r, void **out) {
    if (r->reply) protobuf_c_message_free_unpacked(r->reply, NULL);
    *out = NULL;
    return ST_OK;
}
status_t jobs_submitted(struct wire_reader *r, void **out) {
    struct arena *a;
    struct hlod_submitted *x = wire_result_new(sizeof *x, &a);
    const Hlod__V1__SubmitJobsReply *m = (const Hlod__V1__SubmitJobsReply *)r->reply;
    wire_keep(a, r->reply);
    *x = (struct hlod_submitted){m->suite, m->jobs, m->existed};
    *out = x;
    return ST_OK;
}
static status_t outcome(struct wire_reader *r, void **out) {
    static const Hlod__V1__Error none = HLOD__V1__ERROR__INIT;
    struct arena *a;
    struct hlod_outcome *x = wire_result_new(sizeof *x, &a);
    const Hlod__V1__JobOutcome *m = (const Hlod__V1__JobOutcome *)r->reply;
    const Hlod__V1__Error *e = m->error ? m->error : &none;
    wire_keep(a, r->reply);

    struct hlod_comparison *c = arena_array(a, struct hlod_comparison, m->n_comparisons + 1);
    for (size_t i = 0; i < m->n_comparisons; i++) {
        const Hlod__V1__Comparison *v = m->comparisons[i];
        c[i] = (struct hlod_comparison){v->output,  v->ok,      v->elements, v->mismatches,
                                        v->max_abs, v->max_rel, v->message};
    }
    struct hlod_job_tensor *t = arena_zarray(a, struct hlod_job_tensor, m->n_outputs + 1);
    for (size_t i = 0; i < m->n_outputs; i++) {
        const Hlod__V1__JobTensor *v = m->outputs[i];
        t[i].tensor = (struct hlod_tensor){
            .name = v->name, .dtype = v->dtype, .rank = (int32_t)v->n_shape, .dims = v->shape};
        t[i].blob = v->blob;
    }

    *x = (struct hlod_outcome){.job = m->job,
                               .state = m->state,
                               .attempts = m->attempts,
                               .error_code = e->code,
                               .error_reason = e->reason,
                               .error = e->message,
                               .executable = m->executable,
                               .device = m->device,
                               .cache_hit = m->cache_hit,
                               .compile_ms = m->compile_ms,
                               .instructions = m->counts ? m->counts->entry : 0,
                               .peak_bytes = m->peak_bytes,
                               .run_ms = m->run_ms,
                               .n_run_ms = m->n_run_ms,
                               .comparisons = c,
                               .n_comparisons = m->n_comparisons,
                               .over_budget = (const char *const *)m->over_budget,
                               .n_over_budget = m->n_over_budget,
                               .outputs = t,
                               .n_outputs = m->n_outputs};
    *out = x;
    return ST_OK;
}
static status_t blob(struct wire_reader *r, void **out) {
    struct arena *a;
    struct hlod_blob *x = wire_result_new(sizeof *x, &a);
    const Hlod__V1__Blob *m = (const Hlod__V1__Blob *)r->reply;
    wire_keep(a, r->reply);
    if ((uint64_t)m->bytes != m->data.len) {
        wire_result_free(x);
        return st_new(ST_OUT_OF_RANGE, "the blob's %lld bytes do not fit a message",
                      (long long)m->bytes);
    }
    *x = (struct hlod_blob){m->data.data, m->data.len};
    *out = x;
    return ST_OK;
}

// ---- calls that wait

enum hlod_code hlod_blob_put_parts(struct hlod *h, const struct hlod_bytes *parts, size_t n_parts,
                                   char out_digest[HLOD_DIGEST_CHARS]) {
    struct arena a = {0};
    struct wire_request q;
    blob_request(&a, h->grpc != NULL, parts, n_parts, out_digest, &q);
    jobs_call(h, &a, &q, jobs_nothing);
    return h->error.code;
}
enum hlod_code hlod_blob_put(struct hlod *h, const void *data, size_t bytes,
                             char out_digest[HLOD_DIGEST_CHARS]) {
    return hlod_blob_put_parts(h, &(struct hlod_bytes){data, bytes}, 1, out_digest);
}
enum hlod_code hlod_blob_get(struct hlod *h, const char *digest, struct hlod_blob **out) {
    struct arena a = {0};
    struct wire_request q;
    Hlod__V1__GetBlobRequest m = HLOD__V1__GET_BLOB_REQUEST__INIT;
    m.digest = text(digest);
    wire_call(&a, h->grpc != NULL, "GetBlob", &m.base, &hlod__v1__blob__descriptor, &q);
    void *got = jobs_call(h, &a, &q, blob);
    if (got) *out = got;
    return h->error.code;
}
enum hlod_code hlod_jobs_submit(struct hlod *h, const struct hlod_suite *s,
                                struct hlod_submitted **out) {
    struct arena a = {0};
    struct wire_request q;
    suite_request(&a, h->grpc != NULL, s, &q);
    void *got = jobs_call(h, &a, &q, jobs_submitted);
    if (got) *out = got;
    return h->error.code;
}
enum hlod_code hlod_jobs_watch(struct hlod *h, const char *job, hlod_job_fn fn, void *ctx) {
    struct arena a = {0};
    struct wire_request q;
    watch_request(&a, h->grpc != NULL, job, fn, ctx, &q);
    jobs_call(h, &a, &q, jobs_nothing);
    return h->error.code;
}
void hlod_set_stop(struct hlod *h, bool (*stop)(void *ctx), void *ctx) {
    h->stop = stop;
    h->stop_ctx = ctx;
}
enum hlod_code hlod_jobs_cancel(struct hlod *h, const char *job, uint32_t *out_cancelled) {
    struct arena a = {0};
    struct wire_request q;
    struct wire_reader r;
    cancel_request(&a, h->grpc != NULL, job, &q);
    status_t st = wire_stream(h, &q, &r);
    if (!st) {
        if (out_cancelled) *out_cancelled = ((Hlod__V1__CancelJobReply *)r.reply)->cancelled;
        protobuf_c_message_free_unpacked(r.reply, NULL);
    }
    arena_done(&a);
    return wire_end(h, st);
}
enum hlod_code hlod_job_outcome(struct hlod *h, const char *job, struct hlod_outcome **out) {
    struct arena a = {0};
    struct wire_request q;
    outcome_request(&a, h->grpc != NULL, job, &q);
    void *got = jobs_call(h, &a, &q, outcome);
    if (got) *out = got;
    return h->error.code;
}
void hlod_blob_free(struct hlod_blob *b) {
    wire_result_free(b);
}
void hlod_submitted_free(struct hlod_submitted *s) {
    wire_result_free(s);
}
void hlod_outcome_free(struct hlod_outcome *o) {
    wire_result_free(o);
}

// ---- calls that are started

enum hlod_code hlod_blob_put_start(struct hlod_async *q, const void *data, size_t bytes,
                                   char out_digest[HLOD_DIGEST_CHARS], hlod_done_fn done, void *ctx,
                                   struct hlod_call **out) {
    struct hlod_call *c = async_call(q, jobs_nothing, done, ctx);
    blob_request(async_arena(c), async_grpc(q), &(struct hlod_bytes){data, bytes}, 1, out_digest,
                 async_request(c));
    return async_start(c, ST_OK, out);
}
enum hlod_code hlod_jobs_submit_start(struct hlod_async *q, const struct hlod_suite *s,
                                      hlod_done_fn done, void *ctx, struct hlod_call **out) {
    struct hlod_call *c = async_call(q, jobs_submitted, done, ctx);
    suite_request(async_arena(c), async_grpc(q), s, async_request(c));
    return async_start(c, ST_OK, out);
}
enum hlod_code hlod_jobs_watch_start(struct hlod_async *q, const char *job, hlod_job_fn fn,
                                     hlod_done_fn done, void *ctx, struct hlod_call **out) {
    struct hlod_call *c = async_call(q, jobs_nothing, done, ctx);
    watch_request(async_arena(c), async_grpc(q), job, fn, ctx, async_request(c));
    return async_start(c, ST_OK, out);
}
enum hlod_code hlod_jobs_cancel_start(struct hlod_async *q, const char *job, hlod_done_fn done,
                                      void *ctx, struct hlod_call **out) {
    struct hlod_call *c = async_call(q, jobs_nothing, done, ctx);
    cancel_request(async_arena(c), async_grpc(q), job, async_request(c));
    return async_start(c, ST_OK, out);
}
enum hlod_code hlod_job_outcome_start(struct hlod_async *q, const char *job, hlod_done_fn done,
                                      void *ctx, struct hlod_call **out) {
    struct hlod_call *c = async_call(q, outcome, done, ctx);
    outcome_request(async_arena(c), async_grpc(q), job, async_request(c));
    return async_start(c, ST_OK, out);
}
struct hlod_submitted *hlod_call_take_submitted(struct hlod_call *c) {
    return async_take(c, jobs_submitted);
}
struct hlod_outcome *hlod_call_take_outcome(struct hlod_call *c) {
    return async_take(c, outcome);
}
