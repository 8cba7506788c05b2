// SPDX-License-Identifier: Apache-2.0
// Server and model metadata, repository, statistics. Metadata and config come from the model's
// signature, which a job reads (from memory, mostly).
#include "server/oip/oip.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "proto/message.h"

MUST_CHECK static status_t unknown(struct call *c, const char *name, const char *version) {
    return st_because(ST_NOT_FOUND, MODEL_NOT_FOUND,
                      "unknown model: '%.200s'%s%.40s is not found%s", name,
                      *version ? ", version " : "", version, api_like(c, name));
}

status_t oip_find(struct call *c, const char *name, const char *version, struct oip_model *out) {
    struct named_model *x =
        models_find(sched_models(c->api->sched), api_space(c, name), name, version);
    *out = (struct oip_model){.named = x, .name = name, .version = "1"};
    if (!x && (!*version || !strcmp(version, "1")) && digest_parse(str_of(name), &out->source))
        return ST_OK;
    if (!x) return unknown(c, name, version);
    c->model = name;
    out->source = x->source;
    out->version = arena_printf(&c->arena, "%" PRId64, x->version);
    if (x->loaded) return ST_OK;
    return st_because(ST_UNAVAILABLE, MODEL_NOT_FOUND, "model '%.200s' is not loaded: %s", name,
                      x->reason);
}

const char *oip_datatype(const char *dtype) {
    const struct dtype_row *t = numbers_dtype(str_of(dtype));
    return t && t->oip ? t->oip : dtype;
}

// ---- probes

status_t oip_live(struct call *c) {
    Inference__ServerLiveResponse m = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
    m.live = true;
    return call_reply(c, &m.base);
}
status_t oip_ready(struct call *c) {
    Inference__ServerReadyResponse m = INFERENCE__SERVER_READY_RESPONSE__INIT;
    m.ready = api_serves(c->api);
    return call_reply(c, &m.base);
}
status_t oip_server(struct call *c) {
    static const char *const extensions[] = {
        "binary_tensor_data",  "classification",   "generate",
        "model_configuration", "model_repository", "parameters",
        "statistics",          "schedule_policy",  "logging",
        "system_shared_memory"}; // the last only where it is allowed
    Inference__ServerMetadataResponse m = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    m.name = (char *)"hlod";
    m.version = (char *)api_version_text();
    m.extensions = (char **)extensions;
    m.n_extensions = sizeof extensions / sizeof *extensions - !c->api->regions;
    return call_reply(c, &m.base);
}

// ---- what needs the signature

static status_t with_signature(struct call *c, const char *name, const char *version,
                               api_reply_fn reply) {
    struct oip_model x;
    RETURN_IF_ERR(oip_find(c, name, version, &x));
    struct job_spec spec = {.kind = JOB_INGEST, .model = x.source};
    return api_start_job(c, &spec, reply);
}

static status_t model_ready(struct call *c, UNUSED const struct job_result *r,
                            const ProtobufCMessage **out) {
    Inference__ModelReadyResponse *m =
        message_new(&c->arena, &inference__model_ready_response__descriptor);
    m->ready = api_serves(c->api);
    *out = &m->base;
    return ST_OK;
}
// A name says itself whether its model is loaded; a digest may be of nothing.
status_t oip_model_ready(struct call *c) {
    const Inference__ModelReadyRequest *q = call_request(c);
    Inference__ModelReadyResponse m = INFERENCE__MODEL_READY_RESPONSE__INIT;
    struct oip_model x;
    status_t st = oip_find(c, q->name, q->version, &x);
    if (!st && !x.named) return with_signature(c, q->name, q->version, model_ready);
    if (st_code(st) == ST_NOT_FOUND) return st;
    m.ready = !st && api_serves(c->api);
    st_drop(st);
    return call_reply(c, &m.base);
}

static int64_t *dims_of(struct arena *a, const Hlod__V1__TensorSpec *t) {
    int64_t *d = arena_array(a, int64_t, t->n_dims + 1);
    for (size_t i = 0; i < t->n_dims; i++)
        d[i] = t->dims[i]->size;
    return d;
}
typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;
static tensor_metadata **tensors(struct arena *a, Hlod__V1__TensorSpec *const *v, size_t n) {
    tensor_metadata **out = arena_array(a, tensor_metadata *, n + 1);
    for (size_t i = 0; i < n; i++) {
        out[i] = message_new(a, &inference__model_metadata_response__tensor_metadata__descriptor);
        out[i]->name = v[i]->name;
        out[i]->datatype = (char *)oip_datatype(v[i]->dtype);
        out[i]->shape = dims_of(a, v[i]);
        out[i]->n_shape = v[i]->n_dims;
    }
    return out;
}

static status_t metadata(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Inference__ModelMetadataRequest *q = call_request(c);
    struct arena *a = &c->arena;
    Inference__ModelMetadataResponse *m =
        message_new(a, &inference__model_metadata_response__descriptor);
    m->name = q->name;
    m->platform = arena_printf(a, "hlod_%s", r->model->format);
    const char *space = api_space(c, q->name);
    VEC(char *) versions = {0};
    for (struct named_model *x = models_first(sched_models(c->api->sched)); x; x = x->next)
        if (!strcmp(x->name, q->name) && models_of(x, space) && x->loaded)
            avec_push(a, &versions, arena_printf(a, "%" PRId64, x->version));
    if (!versions.n) avec_push(a, &versions, arena_strdup(a, "1"));
    m->versions = versions.v;
    m->n_versions = versions.n;
    const Hlod__V1__Signature *s = r->model->signature;
    m->inputs = tensors(a, s->inputs, s->n_inputs);
    m->n_inputs = s->n_inputs;
    m->outputs = tensors(a, s->outputs, s->n_outputs);
    m->n_outputs = s->n_outputs;
    *out = &m->base;
    return ST_OK;
}
status_t oip_model(struct call *c) {
    const Inference__ModelMetadataRequest *q = call_request(c);
    return with_signature(c, q->name, q->version, metadata);
}

static Inference__DataType data_type(const char *dtype) {
    const char *name = oip_datatype(dtype);
    if (!strcmp(name, "BYTES")) return INFERENCE__DATA_TYPE__TYPE_STRING;
    char text[32] = "TYPE_";
    strncat(text, name, 20);
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value_by_name(&inference__data_type__descriptor, text);
    return v ? (Inference__DataType)v->value : INFERENCE__DATA_TYPE__TYPE_INVALID;
}
static void batching_config(struct arena *a, const struct batching *b, Inference__ModelConfig *k) {
    Inference__ModelDynamicBatching *d =
        message_new(a, &inference__model_dynamic_batching__descriptor);
    d->max_queue_delay_microseconds = (uint64_t)b->delay_us;
    d->preferred_batch_size = arena_array(a, int32_t, 32);
    for (int64_t n = 1; d->n_preferred_batch_size == 0 || n / 2 < b->max; n *= 2)
        d->preferred_batch_size[d->n_preferred_batch_size++] = (int32_t)batch_bucket(n, b->max);
    k->max_batch_size = b->max;
    k->dynamic_batching = d;
}
// The device workers: any may run it.
static void instances(struct call *c, Inference__ModelConfig *k) {
    struct pool *p = sched_pool(c->api->sched);
    k->instance_group = arena_array(&c->arena, Inference__ModelInstanceGroup *, pool_size(p) + 1);
    for (int i = 0; i < pool_size(p); i++) {
        struct place_worker w = pool_place(pool_worker(p, i));
        if (w.role != ROLE_DEVICE || w.spare) continue;
        Hlod__V1__Device d; // worker_describe makes it
        worker_describe(pool_worker(p, i), &d);
        Inference__ModelInstanceGroup *g = k->instance_group[k->n_instance_group++] =
            message_new(&c->arena, &inference__model_instance_group__descriptor);
        g->name = arena_strdup(&c->arena, d.name);
        g->count = 1;
        g->kind = !strcmp(d.kind, "cpu") ? INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU
                                         : INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL;
    }
}
// An input or output, which have these fields alike; its dimensions without the first `from`.
#define CONFIG_TENSOR(a, x, spec, from)                                                            \
    ((x)->name = (spec)->name, (x)->data_type = data_type((spec)->dtype),                          \
     (x)->dims = dims_of((a), (spec)) + (from), (x)->n_dims = (spec)->n_dims - (from))
static status_t config(struct call *c, const struct job_result *r, const ProtobufCMessage **out) {
    const Inference__ModelConfigRequest *q = call_request(c);
    struct arena *a = &c->arena;
    Inference__ModelConfigResponse *m =
        message_new(a, &inference__model_config_response__descriptor);
    Inference__ModelConfig *k = message_new(a, &inference__model_config__descriptor);
    k->name = q->name;
    k->platform = arena_printf(a, "hlod_%s", r->model->format);
    k->backend = (char *)"hlod";
    k->default_model_filename = (char *)"model.onnx";

    const struct named_model *named =
        models_find(sched_models(c->api->sched), api_space(c, q->name), q->name, q->version);
    size_t from = named && named->batching.max > 1; // then dims go without the first
    if (from) batching_config(a, &named->batching, k);
    const Hlod__V1__Signature *s = r->model->signature;
    k->input = arena_array(a, Inference__ModelInput *, s->n_inputs + 1);
    for (; k->n_input < s->n_inputs; k->n_input++) {
        Inference__ModelInput *x = message_new(a, &inference__model_input__descriptor);
        CONFIG_TENSOR(a, x, s->inputs[k->n_input], from);
        k->input[k->n_input] = x;
    }
    k->output = arena_array(a, Inference__ModelOutput *, s->n_outputs + 1);
    for (; k->n_output < s->n_outputs; k->n_output++) {
        Inference__ModelOutput *x = message_new(a, &inference__model_output__descriptor);
        CONFIG_TENSOR(a, x, s->outputs[k->n_output], from);
        k->output[k->n_output] = x;
    }
    instances(c, k);

    static Inference__ModelVersionPolicy__All every = INFERENCE__MODEL_VERSION_POLICY__ALL__INIT;
    k->version_policy = message_new(a, &inference__model_version_policy__descriptor);
    k->version_policy->all = &every;
    k->model_transaction_policy = message_new(a, &inference__model_transaction_policy__descriptor);
    m->config = k;
    *out = &m->base;
    return ST_OK;
}
status_t oip_config(struct call *c) {
    const Inference__ModelConfigRequest *q = call_request(c);
    return with_signature(c, q->name, q->version, config);
}

// ---- statistics, index

static Inference__StatisticDuration *duration(struct arena *a, struct model_times t) {
    Inference__StatisticDuration *d = message_new(a, &inference__statistic_duration__descriptor);
    d->count = t.n;
    d->ns = t.ns;
    return d;
}
static Inference__InferBatchStatistics *of_batch(struct arena *a, uint64_t rows, uint64_t n,
                                                 struct model_times infer) {
    Inference__InferBatchStatistics *b =
        message_new(a, &inference__infer_batch_statistics__descriptor);
    b->batch_size = rows;
    b->compute_infer = duration(a, infer);
    b->compute_input = b->compute_output = duration(a, (struct model_times){n, 0});
    return b;
}
static Inference__ModelStatistics *statistics(struct arena *a, const struct named_model *x) {
    Inference__ModelStatistics *m = message_new(a, &inference__model_statistics__descriptor);
    Inference__InferStatistics *s = message_new(a, &inference__infer_statistics__descriptor);
    m->name = arena_strdup(a, x->name);
    m->version = arena_printf(a, "%" PRId64, x->version);
    m->last_inference = x->last_ms;
    m->inference_count = x->inferences;
    m->execution_count = x->executions;
    m->inference_stats = s;
    s->success = duration(a, x->success);
    s->fail = duration(a, x->fail);
    s->queue = duration(a, x->queue);
    s->compute_infer = duration(a, x->infer);
    s->compute_input = s->compute_output = duration(a, (struct model_times){x->success.n, 0});
    s->cache_hit = s->cache_miss = duration(a, (struct model_times){0});

    m->batch_stats = arena_array(a, Inference__InferBatchStatistics *, x->batches.n + 1);
    for (; m->n_batch_stats < x->batches.n; m->n_batch_stats++) {
        const struct model_batches *b = &x->batches.v[m->n_batch_stats];
        m->batch_stats[m->n_batch_stats] = of_batch(a, (uint64_t)b->rows, b->infer.n, b->infer);
    }
    if (!x->executions) return m;
    if (!m->n_batch_stats) // no dimension is declared to be a batch: each execution is one of 1
        m->batch_stats[m->n_batch_stats++] = of_batch(a, 1, x->success.n, x->infer);

    Inference__MemoryUsage *u = message_new(a, &inference__memory_usage__descriptor);
    char *type = arena_strdup(a, x->device);
    for (char *p = type; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    u->type = type;
    u->byte_size = (uint64_t)x->prepared_bytes;
    m->memory_usage = arena_array(a, Inference__MemoryUsage *, 1);
    m->memory_usage[m->n_memory_usage++] = u;
    return m;
}
status_t oip_statistics(struct call *c) {
    const Inference__ModelStatisticsRequest *q = call_request(c);
    Inference__ModelStatisticsResponse *m =
        message_new(&c->arena, &inference__model_statistics_response__descriptor);
    VEC(Inference__ModelStatistics *) rows = {0};
    for (struct named_model *x = models_first(sched_models(c->api->sched)); x; x = x->next) {
        char version[24];
        if (!api_sees(c, x)) continue;
        snprintf(version, sizeof version, "%" PRId64, x->version);
        if ((*q->name && strcmp(q->name, x->name)) || (*q->version && strcmp(q->version, version)))
            continue;
        avec_push(&c->arena, &rows, statistics(&c->arena, x));
    }
    m->model_stats = rows.v;
    m->n_model_stats = rows.n;
    return *q->name && !rows.n ? unknown(c, q->name, q->version) : call_reply(c, &m->base);
}

status_t oip_index(struct call *c) {
    typedef Inference__RepositoryIndexResponse__ModelIndex row;
    const Inference__RepositoryIndexRequest *q = call_request(c);
    Inference__RepositoryIndexResponse *m =
        message_new(&c->arena, &inference__repository_index_response__descriptor);
    VEC(row *) rows = {0};
    for (struct named_model *x = models_first(sched_models(c->api->sched)); x; x = x->next) {
        if ((q->ready && !x->loaded) || !api_sees(c, x)) continue;
        row *r =
            message_new(&c->arena, &inference__repository_index_response__model_index__descriptor);
        r->name = arena_strdup(&c->arena, x->name);
        r->version = arena_printf(&c->arena, "%" PRId64, x->version);
        r->state = (char *)(x->loaded ? "READY" : "UNAVAILABLE");
        r->reason = (char *)x->reason;
        avec_push(&c->arena, &rows, r);
    }
    m->models = rows.v;
    m->n_models = rows.n;
    return call_reply(c, &m->base);
}
