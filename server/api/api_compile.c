// SPDX-License-Identifier: Apache-2.0
// Compile, CompileStream, Inspect.
#include <string.h>

#include "base/clock.h"
#include "base/store/store.h"
#include "proto/message.h"
#include "scheduler/job/key.h"
#include "scheduler/records/blobs.h"
#include "server/api/api_job.h"

// Within what the request allows? A line for each part that is not, and for what cannot be told.
static void check_budget(struct call *c, Hlod__V1__CompileReply *m) {
    const Hlod__V1__Budget *b = ((Hlod__V1__CompileRequest *)c->request)->budget;
    const Hlod__V1__ExecutableInfo *x = m->executable;
    if (!b) return;
    const Hlod__V1__Counts *n = key_counts(x);
    const struct {
        const char *what;
        int64_t most, found; // found -1: not known
    } rows[] = {{"instructions", b->instructions, n ? n->entry : -1},
                {"bytes", b->bytes, x->artifact_bytes},
                {"hbm", b->hbm, x->memory && x->memory->needed ? x->memory->needed : -1}};
    m->over_budget = arena_array(&c->arena, char *, 3);
    for (size_t i = 0; i < 3; i++) {
        if (rows[i].most <= 0 || (rows[i].found >= 0 && rows[i].found <= rows[i].most)) continue;
        m->over_budget[m->n_over_budget++] =
            rows[i].found < 0
                ? arena_printf(&c->arena, "%s: not known for this target", rows[i].what)
            : i == 0
                ? arena_printf(&c->arena, "%s: %lld, more than %lld", rows[i].what,
                               (long long)rows[i].found, (long long)rows[i].most)
                : arena_printf(&c->arena, "%s: %.4g MB (%lld bytes), more than %.4g MB (%lld)",
                               rows[i].what, (double)rows[i].found / 1e6, (long long)rows[i].found,
                               (double)rows[i].most / 1e6, (long long)rows[i].most);
    }
}

static status_t compiled(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    Hlod__V1__CompileReply *m = message_new(&c->arena, &hlod__v1__compile_reply__descriptor);
    m->digest = r->exe->digest;
    m->source_digest = api_hex(&c->arena, r->source);
    m->ingest_hit = r->ingest_hit;
    m->cache_hit = r->cache_hit;
    m->joined = r->compile.joined;
    m->executable = arena_dup(&c->arena, r->exe, sizeof *r->exe);
    m->executable->signature = key_signature(&c->arena, r->exe, r->model->signature);
    m->model_signature = r->model->signature;
    m->job = r->id;
    if (r->remote) m->remote = (char *)(uintptr_t)r->remote;
    m->assumed = r->compile.assumed;
    m->n_assumed = r->compile.n_assumed;
    check_budget(c, m);

    size_t upload = c->upload_ms > 0;
    m->timings = arena_array(&c->arena, Hlod__V1__Timing *, r->n_timings + 1);
    if (upload) {
        Hlod__V1__Timing *t = message_new(&c->arena, &hlod__v1__timing__descriptor);
        t->name = (char *)"upload";
        t->ms = c->upload_ms;
        m->timings[0] = t;
    }
    memcpy(m->timings + upload, r->timings, r->n_timings * sizeof *m->timings);
    m->n_timings = r->n_timings + upload;
    c->timings = m->timings;
    c->n_timings = m->n_timings;
    *out = &m->base;
    return ST_OK;
}

static status_t start(struct call *c) {
    Hlod__V1__CompileRequest *q = call_request(c);
    RETURN_IF_ERR(call_check_priority(q->priority));
    struct job_spec spec = {.kind = JOB_COMPILE,
                            .model = c->source,
                            .format = *q->format ? q->format : c->content_type,
                            .compile = {q->shapes, q->n_shapes, q->target},
                            .options = q->options,
                            .device = q->device,
                            .timeout_ms = q->timeout_ms,
                            .priority = q->priority};
    return api_start_job(c, &spec, compiled);
}

// A model inside the message (protobuf or base64): to the store first.
static status_t put(void *arg) {
    struct call *c = arg;
    const Hlod__V1__CompileRequest *q = call_request(c);
    struct span bytes = {q->source.data, q->source.len};
    return blob_store(sched_store(c->api->sched), bytes, &c->source, &c->source_fresh);
}
static status_t put_done(void *arg) {
    struct call *c = arg;
    c->has_source = true;
    return start(c);
}

status_t api_compile(struct call *c) {
    Hlod__V1__CompileRequest *q = call_request(c);
    if (*q->target && *q->device)
        return st_because(ST_INVALID_ARGUMENT, BAD_TARGET,
                          "device and target contradict each other: name one");
    int sources = c->has_source + (q->source.len > 0) + (*q->model != 0);
    if (sources != 1)
        return st_because(ST_INVALID_ARGUMENT, MODEL_NOT_FOUND,
                          sources ? "the model is given more than once (body, source, model)"
                                  : "no model: send its bytes, or model=DIGEST");
    if (q->source.len) return call_work(c, put, put_done, c);
    if (*q->model) RETURN_IF_ERR(api_model(c, q->model, &c->source));
    return start(c);
}

// ---- tune

static status_t tuned(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Hlod__V1__TuneExecutableRequest *q = call_request(c);
    Hlod__V1__TuneExecutableReply *m =
        message_new(&c->arena, &hlod__v1__tune_executable_reply__descriptor);
    m->digest = q->digest;
    m->tuning = (Hlod__V1__Tuning *)(uintptr_t)r->tune.tuning;
    *out = &m->base;
    return ST_OK;
}
status_t api_tune(struct call *c) {
    enum { BUDGET_MS = 10000, MOST_MS = 300000 };
    const Hlod__V1__TuneExecutableRequest *q = call_request(c);
    RETURN_IF_ERR(call_check_priority(q->priority));
    if (q->budget_ms > MOST_MS)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "budget_ms: at most %d, found %u",
                          MOST_MS, q->budget_ms);
    struct job_spec spec = {.kind = JOB_TUNE,
                            .timeout_ms = q->timeout_ms,
                            .priority = q->priority,
                            .tune.budget_ms = q->budget_ms ? q->budget_ms : BUDGET_MS};
    RETURN_IF_ERR(api_digest(q->digest, "digest", &spec.model));
    return api_start_job(c, &spec, tuned);
}

// ---- inspect

static status_t inspected(struct call *c, const struct job_result *r,
                          const ProtobufCMessage **out) {
    const Hlod__V1__InspectRequest *q = call_request(c);
    Hlod__V1__InspectReply *m = message_new(&c->arena, &hlod__v1__inspect_reply__descriptor);
    m->stage = q->stage;
    *out = &m->base;
    if (!r->inspect.text) return ST_OK;
    if (r->inspect.text->fd == 0) {
        m->text = arena_strndup(&c->arena, (const char *)r->inspect.text->inline_bytes.data,
                                r->inspect.text->inline_bytes.len);
        return ST_OK;
    }
    if (r->inspect.text->size == 0) return ST_OK;
    if (r->inspect.text->fd > (uint32_t)r->n_fds || r->inspect.text->size > 1u << 30)
        return st_internal("a worker's text names no descriptor");
    uint8_t *p;
    void *base;
    size_t n;
    RETURN_IF_ERR(frame_map(r->fds[r->inspect.text->fd - 1], (int64_t)r->inspect.text->offset,
                            (int64_t)r->inspect.text->size, false, &p, &base, &n));
    m->text = arena_strndup(&c->arena, (const char *)p, r->inspect.text->size);
    frame_unmap(base, n);
    return ST_OK;
}

static bool stage_known(const char *s) {
    static const char *const stages[] = {"hlo-before", "stablehlo", "hlo-after", "prepare",
                                         "kir",        "llvm",      "opencl",    "plan",
                                         "explain",    "optimized", "glsl"};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (!strcmp(s, stages[i])) return true;
    return !strncmp(s, "pass/", 5) && s[5];
}

status_t api_inspect(struct call *c) {
    const Hlod__V1__InspectRequest *q = call_request(c);
    struct job_spec spec = {.kind = JOB_INSPECT, .inspect.stage = q->stage};
    RETURN_IF_ERR(api_digest(q->digest, "digest", &spec.model));
    if (!stage_known(q->stage))
        return st_because(
            ST_NOT_FOUND, NO_SUCH_STAGE,
            "no stage '%.80s': there are hlo-before, stablehlo, hlo-after, prepare, kir, "
            "llvm, opencl, glsl, plan, explain, optimized and pass/NAME",
            q->stage);
    return api_start_job(c, &spec, inspected);
}
