// SPDX-License-Identifier: Apache-2.0
// Names for models: SetModel, ListModels, RemoveModel. Setting reads the model first and compiles
// it where its shapes are fixed, so that a name never stands for something that cannot be read, and
// its first request does not wait for what could be done before.
#include <string.h>

#include "proto/message.h"
#include "scheduler/records/models.h"
#include "server/api/api_job.h"
#include "server/api/api_models.h"

struct answer {
    struct call *c;
    const ProtobufCMessage *reply;
};
static void saved(void *ctx, status_t st) {
    struct answer *a = ctx;
    if (st) st = st_note(st, "the change holds until the daemon ends, but could not be written");
    if (call_goes_on(a->c, st)) call_finish(a->c, a->reply, ST_OK);
}
status_t api_models_answer(struct call *c, const ProtobufCMessage *reply) {
    struct answer *a = arena_new_of(&c->arena, struct answer);
    *a = (struct answer){c, reply};
    if (!models_when_saved(sched_models(c->api->sched), saved, a)) return call_reply(c, reply);
    c->busy = true;
    return ST_OK;
}

static Hlod__V1__NamedModel *shown(struct call *c, const struct named_model *x) {
    Hlod__V1__NamedModel *m = message_new(&c->arena, &hlod__v1__named_model__descriptor);
    m->name = arena_strdup(&c->arena, x->name);
    m->tenant = arena_strdup(&c->arena, x->tenant);
    m->version = x->version;
    m->model = api_hex(&c->arena, x->source);
    m->loaded = x->loaded;
    m->reason = (char *)x->reason;
    m->inferences = x->inferences;
    if (x->batching.max > 1) {
        m->batching = message_new(&c->arena, &hlod__v1__batching__descriptor);
        m->batching->max = (uint32_t)x->batching.max;
        m->batching->delay_us = (uint32_t)x->batching.delay_us;
        m->batching->unchecked = x->batching.unchecked;
    }
    return m;
}

static struct batching batching(const Hlod__V1__SetModelRequest *q) {
    if (!q->batching) return (struct batching){0};
    return (struct batching){q->batching->max < INT32_MAX ? (int32_t)q->batching->max : INT32_MAX,
                             q->batching->delay_us < INT32_MAX ? (int32_t)q->batching->delay_us
                                                               : INT32_MAX,
                             q->batching->unchecked};
}

static status_t ingested(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Hlod__V1__SetModelRequest *q = call_request(c);
    const char *space = c->api->auth ? c->principal.tenant : MODELS_DEFAULT;
    struct named_model *x;
    RETURN_IF_ERR(models_set(sched_models(c->api->sched), space, q->name, q->version, r->source,
                             batching(q), &x));
    *out = NULL;
    return api_models_answer(c, &shown(c, x)->base);
}

status_t api_set_model(struct call *c) {
    const Hlod__V1__SetModelRequest *q = call_request(c);
    struct job_spec spec = {.kind = JOB_WARM, .warm.batching = batching(q)};
    RETURN_IF_ERR(api_model(c, q->model, &spec.model));
    return api_start_job(c, &spec, ingested);
}

status_t api_list_models(struct call *c) {
    Hlod__V1__ListModelsReply *m = message_new(&c->arena, &hlod__v1__list_models_reply__descriptor);
    struct named_model *first = models_first(sched_models(c->api->sched));
    size_t n = 0;
    for (const struct named_model *x = first; x; x = x->next)
        n++;
    m->models = arena_array(&c->arena, Hlod__V1__NamedModel *, n + 1);
    for (const struct named_model *x = first; x; x = x->next)
        if (api_sees(c, x)) m->models[m->n_models++] = shown(c, x);
    return call_reply(c, &m->base);
}

status_t api_remove_model(struct call *c) {
    const Hlod__V1__RemoveModelRequest *q = call_request(c);
    struct models *all = sched_models(c->api->sched);
    Hlod__V1__RemoveModelReply *m =
        message_new(&c->arena, &hlod__v1__remove_model_reply__descriptor);
    const char *space = api_space(c, q->name);
    for (struct named_model *x = models_first(all), *next; x; x = next) {
        next = x->next;
        if (strcmp(x->name, q->name) || !models_of(x, space) ||
            (q->version && q->version != x->version))
            continue;
        models_remove(all, x);
        m->removed++;
    }
    if (m->removed) return api_models_answer(c, &m->base);
    return st_because(ST_NOT_FOUND, MODEL_NOT_FOUND, "no model is called '%.200s'%s%s", q->name,
                      q->version ? " in that version" : "", api_like(c, q->name));
}
