// SPDX-License-Identifier: Apache-2.0
#include "server/api/api_job.h"

#include "base/clock.h"
#include "proto/frame.h"
#include "scheduler/records/blobs.h"

struct job_call {
    struct call *c;
    bool uploaded; // the model came with the call
    struct job *job;
    api_reply_fn reply;
};

static void on_event(void *ctx, Hlod__V1__Event *e) {
    struct job_call *jc = ctx;
    call_event(jc->c, e);
}

static void on_cancel(struct call *c) {
    struct job_call *jc = c->handler;
    job_cancel(jc->job);
}

static void on_free(struct call *c) {
    struct job_call *jc = c->handler;
    if (jc->uploaded) sched_upload_used(c->api->sched, c->source);
    job_free(jc->job);
}

// `curl -d @model.onnx` takes line ends out of what it sends.
MUST_CHECK static status_t note_form(const struct call *c, status_t st) {
    int reason = st_get_reason(st);
    if (!c->as_form || (reason != HLOD__V1__REASON__REASON_MALFORMED_MODEL &&
                        reason != HLOD__V1__REASON__REASON_UNSUPPORTED_FORMAT))
        return st;
    return st_note(st, "came as a form (curl's -d changes a file, --data-binary @FILE does not)");
}

// A stream's answer is its last event but one.
static void send_result(struct call *c, struct job *j, const ProtobufCMessage *reply) {
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.t_ms = clock_ms_since(job_start_ns(j));
    if (reply->descriptor == &hlod__v1__run_reply__descriptor) {
        e.kind_case = HLOD__V1__EVENT__KIND_RESULT;
        e.result = (Hlod__V1__RunReply *)reply;
    } else if (reply->descriptor == &hlod__v1__compile_reply__descriptor) {
        e.kind_case = HLOD__V1__EVENT__KIND_COMPILE_RESULT;
        e.compile_result = (Hlod__V1__CompileReply *)reply;
    }
    call_event(c, &e);
}
static void answer(struct call *c, struct job *j, const ProtobufCMessage *reply, status_t st) {
    if (st)
        st = note_form(c, st);
    else if (c->row->stream)
        send_result(c, j, reply);
    call_finish(c, reply, st);
}

// A model that came with the call is its tenant's on disk before that is answered: a file whose
// owner nobody remembers after a restart could go without a word.
struct keep {
    struct call *c;
    struct job *j;
    const ProtobufCMessage *reply;
};
static status_t keep_own(void *arg) {
    const struct keep *k = arg;
    return blob_keep_own(sched_journal(k->c->api->sched), k->c->principal.tenant, k->c->source);
}
static status_t kept(void *arg) {
    const struct keep *k = arg;
    answer(k->c, k->j, k->reply, ST_OK);
    return ST_OK;
}
static status_t answer_when_kept(struct call *c, struct job *j, const ProtobufCMessage *reply) {
    struct keep *k = arena_new_of(&c->arena, struct keep);
    *k = (struct keep){.c = c, .j = j, .reply = reply};
    return call_work(c, keep_own, kept, k);
}

static void on_done(void *ctx, struct job *j, status_t st) {
    struct job_call *jc = ctx;
    struct call *c = jc->c;
    const struct job_result *r = job_result(j);
    c->timings = (Hlod__V1__Timing **)r->timings;
    c->n_timings = r->n_timings;
    c->record = r->record;
    c->work_ns = job_start_ns(j);
    if (r->kind == JOB_RUN) c->batch = r->run.batch, c->batch_rows = r->run.batch_rows;
    const ProtobufCMessage *reply = NULL;
    if (!st)
        st = jc->reply(c, r, &reply);
    else if (jc->uploaded && c->source_fresh && !r->model && st_code(st) == ST_INVALID_ARGUMENT)
        sched_drop_upload(c->api->sched, c->principal.tenant, c->source, c->source_fresh);
    if (c->busy) return;
    if (!st && jc->uploaded)
        call_fail(c, answer_when_kept(c, j, reply));
    else
        answer(c, j, reply, st);
}

struct job_spec api_job_spec(const struct call *c, enum job_kind kind) {
    return (struct job_spec){.kind = kind,
                             .inputs = c->inputs,
                             .n_inputs = c->n_inputs,
                             .payload_fd = c->payload_fd,
                             .payload = c->payload,
                             .payload_bytes = c->payload_bytes};
}

status_t api_run_options(const Hlod__V1__RunOptions *o, struct job_spec *spec) {
    if (!o) return ST_OK;
    RETURN_IF_ERR(call_check_priority(o->priority));
    if (o->repeat > RUN_MAX_REPEAT)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "repeat: at most %d, found %u",
                          RUN_MAX_REPEAT, o->repeat);
    spec->options = o->compile;
    spec->device = o->device;
    spec->timeout_ms = o->timeout_ms;
    spec->priority = o->priority;
    spec->repeat = o->repeat;
    spec->profile = o->profile;
    spec->no_compile = o->no_compile;
    return ST_OK;
}

status_t api_start_job(struct call *c, struct job_spec *spec, api_reply_fn reply) {
    struct job_call *jc = arena_new_of(&c->arena, struct job_call);
    jc->c = c;
    jc->reply = reply;
    spec->on_event = on_event;
    spec->quiet = !c->row->stream;
    spec->on_done = on_done;
    spec->ctx = jc;
    spec->tenant = c->principal.tenant;
    spec->sees_all = api_sees_all(c);
    spec->may_leave = !c->forwarded;
    // A run that a node had no place for it has counted; one about what lies here is ours to count.
    spec->counted = c->principal.node && spec->kind == JOB_RUN;
    jc->uploaded = c->has_source;
    if (jc->uploaded) sched_upload(c->api->sched, spec->tenant, c->source);
    if (c->trace) spec->trace = &c->trace->t;
    if (!spec->priority) spec->priority = c->priority;
    if (c->timeout_ms && (!spec->timeout_ms || spec->timeout_ms > c->timeout_ms))
        spec->timeout_ms = c->timeout_ms;
    c->handler = jc;
    c->on_cancel = on_cancel;
    c->on_free = on_free;
    jc->job = job_start(c->api->sched, spec);
    return ST_OK;
}
