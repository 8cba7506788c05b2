// SPDX-License-Identifier: Apache-2.0
// ModelInfer: the same run job as hlod.v1's; the model by its name. The reply is the message
// without tensor data; each transport puts the call's outputs where they belong.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "proto/message.h"
#include "server/body/tensors.h"
#include "server/oip/oip.h"

struct infer { // c->state
    struct oip_model model;
    int64_t version;          // of the name, as it was found
    struct batching batching; // the same
    int64_t timeout_ms;
    int32_t priority;
    const Hlod__V1__Signature *signature; // of a whole body
    const struct job_result *r;           // when it is done
};

Inference__InferParameter *oip_add_parameter(struct arena *a, Inference__ModelInferResponse *m,
                                             const char *key) {
    typedef Inference__ModelInferResponse__ParametersEntry entry;
    VEC(entry *) all = {m->parameters, m->n_parameters, m->n_parameters};
    entry *e = message_new(a, &inference__model_infer_response__parameters_entry__descriptor);
    e->key = (char *)key;
    e->value = message_new(a, &inference__infer_parameter__descriptor);
    avec_push(a, &all, e);
    m->parameters = all.v;
    m->n_parameters = all.n;
    return e->value;
}

// "queue=0.012 run=3.100 total=3.400" in ms, under the key of the request.
static void put_timing(struct call *c, Inference__ModelInferResponse *m) {
    struct strbuf b = {0};
    for (size_t i = 0; i < c->n_timings; i++)
        strbuf_printf(&b, "%s%s=%.3f", i ? " " : "", c->timings[i]->name, c->timings[i]->ms);
    Inference__InferParameter *p = oip_add_parameter(&c->arena, m, "hlod_timing");
    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    p->string_param = arena_strdup(&c->arena, strbuf_cstr(&b));
    strbuf_done(&b);
}

// The name's row; it may be gone meanwhile.
static struct named_model *named(struct call *c) {
    const struct infer *f = c->state;
    if (!f->model.named) return NULL;
    return models_find(sched_models(c->api->sched), api_space(c, f->model.name), f->model.name,
                       f->model.version);
}

static status_t inferred(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    typedef Inference__ModelInferResponse__InferOutputTensor output;
    const Inference__ModelInferRequest *q = call_request(c);
    struct infer *f = c->state;
    f->r = r;
    RETURN_IF_ERR(api_take_outputs(c, r));
    RETURN_IF_ERR(oip_classify(c, named(c)));
    RETURN_IF_ERR(oip_outputs_to_regions(c));
    Inference__ModelInferResponse *m =
        message_new(&c->arena, &inference__model_infer_response__descriptor);
    m->model_name = q->model_name;
    m->model_version = (char *)f->model.version;
    m->id = q->id;
    m->outputs = arena_array(&c->arena, output *, c->n_outputs + 1);
    for (; m->n_outputs < c->n_outputs; m->n_outputs++) {
        const struct call_output *o = &c->outputs[m->n_outputs];
        output *t = m->outputs[m->n_outputs] = message_new(
            &c->arena, &inference__model_infer_response__infer_output_tensor__descriptor);
        t->name = (char *)o->name;
        t->datatype = (char *)(o->dtype->oip ? o->dtype->oip : o->dtype->name);
        t->shape = (int64_t *)o->dims;
        t->n_shape = (size_t)o->rank;
    }
    if (oip_flag(oip_parameter(&q->base, "hlod_timing")) == 1) put_timing(c, m);
    *out = &m->base;
    return ST_OK;
}

static void count(struct model_times *t, uint64_t ns) {
    t->n++;
    t->ns += ns;
}
static void finished(struct call *c, bool ok) {
    const struct infer *f = c->state;
    if (!f->model.named) return;
    struct named_model *x = named(c);
    if (!x) return;
    count(ok ? &x->success : &x->fail, (uint64_t)(clock_ns() - c->start_ns));
    if (!ok || !f->r) return;
    if (!f->r->run.batch_rows) { // else the scheduler counts
        x->inferences++;
        x->executions++;
    }
    x->last_ms = (uint64_t)(clock_wall_ns() / CLOCK_MS);
    if (f->r->reply) x->prepared_bytes = f->r->reply->prepared_bytes;
    snprintf(x->device, sizeof x->device, "%.*s", (int)strcspn(f->r->device, ":"), f->r->device);
    for (size_t i = 0; i < f->r->n_timings; i++) {
        uint64_t ns = (uint64_t)(f->r->timings[i]->ms * 1e6);
        if (!strcmp(f->r->timings[i]->name, "queue")) count(&x->queue, ns);
        if (!strcmp(f->r->timings[i]->name, "run")) count(&x->infer, ns);
    }
}

// ---- start

static status_t run(void *arg) {
    struct call *c = arg;
    const Inference__ModelInferRequest *q = call_request(c);
    const struct infer *f = c->state;
    struct job_spec spec = api_job_spec(c, JOB_RUN);
    spec.model = f->model.source;
    spec.timeout_ms = f->timeout_ms;
    spec.priority = f->priority;
    if (f->model.named) {
        spec.run.name = f->model.name;
        spec.run.version = f->version;
        spec.run.space = api_space(c, f->model.name);
        spec.run.batching = f->batching;
    }
    spec.run.outputs = arena_array(&c->arena, char *, q->n_outputs + 1);
    for (; spec.run.n_outputs < q->n_outputs; spec.run.n_outputs++)
        spec.run.outputs[spec.run.n_outputs] = q->outputs[spec.run.n_outputs]->name;
    return api_start_job(c, &spec, inferred);
}

// Inputs that are not yet in the payload: a whole body, shared memory. On the pool.
static status_t fill_work(void *arg) {
    struct call *c = arg;
    struct infer *f = c->state;
    const Inference__ModelInferRequest *q = call_request(c);
    if (f->signature) RETURN_IF_ERR(oip_whole(c, f->signature));
    for (size_t i = 0; i < q->n_inputs; i++)
        if (oip_in_region(&q->inputs[i]->base))
            RETURN_IF_ERR(oip_region_read(c, &q->inputs[i]->base, &c->inputs[i]));
    return ST_OK;
}
static status_t fill(struct call *c) {
    return call_work(c, fill_work, run, c);
}

// The signature first; then what the whole body means is known.
static void free_job(void *j) {
    job_free(j);
}
static void on_signature(void *ctx, struct job *j, status_t st) {
    struct call *c = ctx;
    struct infer *f = c->state;
    c->on_cancel = NULL;
    f->signature = st ? NULL : job_result(j)->model->signature;
    call_fail(c, st ? st : fill(c));
}
static void stop_looking(struct call *c) {
    job_cancel(c->handler);
}
static status_t look_up(struct call *c) {
    const struct infer *f = c->state;
    struct job_spec spec = {.kind = JOB_INGEST,
                            .model = f->model.source,
                            .tenant = c->principal.tenant,
                            .sees_all = api_sees_all(c),
                            .on_done = on_signature,
                            .ctx = c};
    struct job *j = job_start(c->api->sched, &spec);
    arena_link(&c->arena, free_job, j);
    c->handler = j;
    c->on_cancel = stop_looking;
    return ST_OK;
}

// What is asked for and not offered.
static status_t check(const Inference__ModelInferRequest *q, struct infer *f) {
    RETURN_IF_ERR(oip_check_parameters(&q->base, "", ""));
    for (size_t i = 0; i < q->n_outputs; i++)
        RETURN_IF_ERR(oip_check_parameters(&q->outputs[i]->base, "output", q->outputs[i]->name));
    int64_t level = 0, sequence = 0, timeout_us = 0;
    const Inference__InferParameter *id = oip_parameter(&q->base, "sequence_id");
    bool in_sequence =
        id && id->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM
            ? *id->string_param
            : oip_integer(id, &sequence) && sequence;
    if (in_sequence || oip_flag(oip_parameter(&q->base, "sequence_start")) == 1 ||
        oip_flag(oip_parameter(&q->base, "sequence_end")) == 1)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION,
                          "sequences are not supported: models here keep no state between "
                          "requests; pass it as inputs and outputs");
    oip_integer(oip_parameter(&q->base, "timeout"), &timeout_us);
    f->timeout_ms = timeout_us > 0 ? timeout_us / 1000 + 1 : 0;
    // There 1 is the highest and 0 the default; here the default is below all that is asked for.
    oip_integer(oip_parameter(&q->base, "priority"), &level);
    if (level < 0 || level > CALL_MAX_PRIORITY)
        return st_because(ST_INVALID_ARGUMENT, BAD_OPTION, "priority: expected 0 to %d",
                          CALL_MAX_PRIORITY);
    f->priority = level ? (int32_t)(CALL_MAX_PRIORITY + 1 - level) : 0;
    return ST_OK;
}

status_t oip_infer(struct call *c) {
    const Inference__ModelInferRequest *q = call_request(c);
    struct infer *f = arena_new_of(&c->arena, struct infer);
    RETURN_IF_ERR(oip_find(c, q->model_name, q->model_version, &f->model));
    RETURN_IF_ERR(check(q, f));
    if (f->model.named) {
        f->version = f->model.named->version;
        f->batching = f->model.named->batching;
    }
    c->state = f;
    c->on_finished = finished;
    bool elsewhere = false;
    for (size_t i = 0; i < q->n_inputs; i++)
        elsewhere = elsewhere || oip_in_region(&q->inputs[i]->base);
    return c->whole ? look_up(c) : elsewhere ? fill(c) : run(c);
}
