// SPDX-License-Identifier: Apache-2.0
// ModelInfer: the same run job as hlod.v1's; the model by its name. The reply is the message
// without tensor data; each transport puts the call's outputs where they belong.
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "server/oip.h"
#include "server/tensors.h"

struct infer { // c->state
    struct oip_model model;
    const struct job_result *r; // when it is done
};

// A parameter of a request, input or output by its key, NULL if it was not given. The entries of
// their maps are types of their own, all of one shape: hence by descriptor.
static const Inference__InferParameter *parameter(const ProtobufCMessage *m, const char *key) {
    const uint8_t *base = (const uint8_t *)m;
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "parameters");
    const ProtobufCMessageDescriptor *entry = f->descriptor;
    const uint8_t *const *v = *(const uint8_t *const *const *)(const void *)(base + f->offset);
    size_t n = *(const size_t *)(const void *)(base + f->quantifier_offset);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(*(char *const *)(const void *)(v[i] + entry->fields[0].offset), key))
            return *(Inference__InferParameter *const *)(const void *)(v[i] +
                                                                       entry->fields[1].offset);
    return NULL;
}
static bool integer(const Inference__InferParameter *p, int64_t *out) {
    if (!p) return false;
    if (p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
        *out = p->int64_param;
    else if (p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM)
        *out = p->uint64_param > INT64_MAX ? INT64_MAX : (int64_t)p->uint64_param;
    else
        return false;
    return true;
}
static int flag(const Inference__InferParameter *p) { // -1: not given
    if (!p || p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
        return -1;
    return p->bool_param;
}

// ---- inputs

struct tensor_desc *tensors_of_infer(struct call *c, int from) {
    const Inference__ModelInferRequest *q = (const Inference__ModelInferRequest *)c->request;
    struct tensor_desc *t = arena_array(&c->arena, struct tensor_desc, q->n_inputs + 1);
    for (size_t i = 0; i < q->n_inputs; i++) {
        const Inference__ModelInferRequest__InferInputTensor *x = q->inputs[i];
        t[i] = (struct tensor_desc){.name = x->name,
                                    .type = x->datatype,
                                    .dims = x->shape,
                                    .rank = x->n_shape,
                                    .given = -1};
        if (from == TENSORS_RAW)
            t[i].given = c->given[i];
        else if (!integer(parameter(&x->base, "binary_data_size"), &t[i].given))
            t[i].in_json = true;
        if (from == TENSORS_JSON && x->contents && x->contents->n_bytes_contents) {
            t[i].given = 0;
            for (size_t k = 0; k < x->contents->n_bytes_contents; k++)
                t[i].given += 4 + (int64_t)x->contents->bytes_contents[k].len;
        }
    }
    c->n_inputs = q->n_inputs;
    return t;
}

// One element of a typed list to its place; narrow integers travel as 32 bits.
static status_t put_list(struct call *c, const struct job_input *in, const void *v, size_t n,
                         size_t from_bytes) {
    size_t to = (size_t)in->dtype->bytes;
    if ((int64_t)n * in->dtype->bytes != in->size)
        return st_reason(st_new(ST_INVALID_ARGUMENT,
                                "input '%.80s': %zu values, its shape has %lld", in->name, n,
                                (long long)(in->size / in->dtype->bytes)),
                         HLOD__V1__REASON__REASON_BAD_TENSOR_DATA);
    if (from_bytes == to) return tensors_put(c, in->offset, v, n * to);
    for (size_t i = 0; i < n; i++) // little-endian: the low bytes
        RETURN_IF_ERR(tensors_put(c, in->offset + (int64_t)(i * to),
                                  (const uint8_t *)v + i * from_bytes, to));
    return ST_OK;
}

static status_t put_texts(struct call *c, const struct job_input *in,
                          const Inference__InferTensorContents *k) {
    int64_t at = in->offset;
    if ((int64_t)k->n_bytes_contents != in->elements)
        return st_reason(st_new(ST_INVALID_ARGUMENT,
                                "input '%.80s': %zu values, its shape has %lld", in->name,
                                k->n_bytes_contents, (long long)in->elements),
                         HLOD__V1__REASON__REASON_BAD_TENSOR_DATA);
    for (size_t i = 0; i < k->n_bytes_contents; i++) {
        uint32_t n = (uint32_t)k->bytes_contents[i].len; // little-endian; a message is below 2 GiB
        RETURN_IF_ERR(tensors_put(c, at, &n, sizeof n));
        RETURN_IF_ERR(tensors_put(c, at + 4, k->bytes_contents[i].data, n));
        at += 4 + n;
    }
    return ST_OK;
}

status_t oip_contents(struct call *c) {
    const Inference__ModelInferRequest *q = (const Inference__ModelInferRequest *)c->request;
    for (size_t i = 0; i < q->n_inputs; i++) {
        const struct job_input *in = &c->inputs[i];
        static const Inference__InferTensorContents none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
        const Inference__InferTensorContents *k =
            q->inputs[i]->contents ? q->inputs[i]->contents : &none;
        switch (in->dtype->cls) {
        case NUM_PRED:
            RETURN_IF_ERR(
                put_list(c, in, k->bool_contents, k->n_bool_contents, sizeof *k->bool_contents));
            break;
        case NUM_S8:
        case NUM_S16:
        case NUM_S32:
            RETURN_IF_ERR(put_list(c, in, k->int_contents, k->n_int_contents, 4));
            break;
        case NUM_U8:
        case NUM_U16:
        case NUM_U32:
            RETURN_IF_ERR(put_list(c, in, k->uint_contents, k->n_uint_contents, 4));
            break;
        case NUM_S64:
            RETURN_IF_ERR(put_list(c, in, k->int64_contents, k->n_int64_contents, 8));
            break;
        case NUM_U64:
            RETURN_IF_ERR(put_list(c, in, k->uint64_contents, k->n_uint64_contents, 8));
            break;
        case NUM_F32:
            RETURN_IF_ERR(put_list(c, in, k->fp32_contents, k->n_fp32_contents, 4));
            break;
        case NUM_F64:
            RETURN_IF_ERR(put_list(c, in, k->fp64_contents, k->n_fp64_contents, 8));
            break;
        case NUM_TEXT:
            RETURN_IF_ERR(put_texts(c, in, k));
            break;
        case NUM_F16:
        case NUM_BF16:
        case NUM_RAW:
            return st_reason(st_new(ST_INVALID_ARGUMENT,
                                    "input '%.80s': %s has no typed form, send raw_input_contents",
                                    in->name, in->dtype->name),
                             HLOD__V1__REASON__REASON_BAD_TENSOR_DATA);
        }
    }
    return ST_OK;
}

// ---- outputs

bool oip_output_binary(const struct call *c, size_t i) {
    const Inference__ModelInferRequest *q = (const Inference__ModelInferRequest *)c->request;
    if (c->outputs[i].dtype->cls == NUM_RAW) return true; // has no JSON form
    int own = i < q->n_outputs ? flag(parameter(&q->outputs[i]->base, "binary_data")) : -1;
    if (own >= 0) return own;
    return flag(parameter(&q->base, "binary_data_output")) == 1;
}

void oip_outputs_into(struct call *c, Inference__ModelInferResponse *m) {
    m->n_raw_output_contents = m->n_outputs;
    m->raw_output_contents = arena_array(&c->arena, ProtobufCBinaryData, m->n_outputs + 1);
    for (size_t i = 0; i < m->n_outputs; i++)
        m->raw_output_contents[i] =
            (ProtobufCBinaryData){c->outputs[i].data.n, (uint8_t *)c->outputs[i].data.p};
}

// "queue=0.012 run=3.100 total=3.400" in ms, under the key of the request.
static void put_timing(struct call *c, Inference__ModelInferResponse *m) {
    typedef Inference__ModelInferResponse__ParametersEntry entry;
    struct arena *a = &c->arena;
    struct strbuf b = {0};
    for (size_t i = 0; i < c->n_timings; i++)
        strbuf_printf(&b, "%s%s=%.3f", i ? " " : "", c->timings[i]->name, c->timings[i]->ms);
    entry *e = arena_new_of(a, entry);
    inference__model_infer_response__parameters_entry__init(e);
    e->key = (char *)"hlod_timing";
    e->value = arena_new_of(a, Inference__InferParameter);
    inference__infer_parameter__init(e->value);
    e->value->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    e->value->string_param = arena_strdup(a, strbuf_cstr(&b));
    strbuf_done(&b);
    m->parameters = arena_new_of(a, entry *);
    m->parameters[m->n_parameters++] = e;
}

static status_t inferred(struct call *c, const struct job_result *r, Hlod__V1__Event *result,
                         const ProtobufCMessage **out) {
    (void)result;
    typedef Inference__ModelInferResponse__InferOutputTensor output;
    const Inference__ModelInferRequest *q = (const Inference__ModelInferRequest *)c->request;
    struct infer *f = c->state;
    f->r = r;
    RETURN_IF_ERR(api_take_outputs(c, r));
    Inference__ModelInferResponse *m = arena_new_of(&c->arena, Inference__ModelInferResponse);
    inference__model_infer_response__init(m);
    m->model_name = q->model_name;
    m->model_version = (char *)f->model.version;
    m->id = q->id;
    m->outputs = arena_array(&c->arena, output *, c->n_outputs + 1);
    for (; m->n_outputs < c->n_outputs; m->n_outputs++) {
        const struct call_output *o = &c->outputs[m->n_outputs];
        output *t = m->outputs[m->n_outputs] = arena_new_of(&c->arena, output);
        inference__model_infer_response__infer_output_tensor__init(t);
        t->name = (char *)o->name;
        t->datatype = (char *)(o->dtype->oip ? o->dtype->oip : o->dtype->name);
        t->shape = (int64_t *)o->dims;
        t->n_shape = (size_t)o->rank;
    }
    if (flag(parameter(&q->base, "hlod_timing")) == 1) put_timing(c, m);
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
    struct named_model *x = // may be gone meanwhile
        models_find(sched_models(c->api->sched), f->model.name, f->model.version);
    if (!x) return;
    count(ok ? &x->success : &x->fail, (uint64_t)(clock_ns() - c->start_ns));
    if (!ok || !f->r) return;
    if (!f->r->batch_rows) { // else the scheduler counts
        x->inferences++;
        x->executions++;
    }
    x->last_ms = (uint64_t)(clock_wall_ns() / 1000000);
    for (size_t i = 0; i < f->r->n_timings; i++) {
        uint64_t ns = (uint64_t)(f->r->timings[i]->ms * 1e6);
        if (!strcmp(f->r->timings[i]->name, "queue")) count(&x->queue, ns);
        if (!strcmp(f->r->timings[i]->name, "run")) count(&x->infer, ns);
    }
}

void oip_infer(struct call *c) {
    const Inference__ModelInferRequest *q = (const Inference__ModelInferRequest *)c->request;
    struct infer *f = arena_new_of(&c->arena, struct infer);
    status_t st = oip_find(c, q->model_name, q->model_version, &f->model);
    int64_t timeout_us = 0, level = 0;
    integer(parameter(&q->base, "timeout"), &timeout_us);
    // There 1 is the highest and 0 the default; here the default is below all that is asked for.
    integer(parameter(&q->base, "priority"), &level);
    if (!st && level)
        st = call_check_priority(level < 0 ? INT64_MIN : CALL_MAX_PRIORITY + 1 - level);
    for (size_t i = 0; i < q->n_inputs && !st; i++)
        if (parameter(&q->inputs[i]->base, "shared_memory_region"))
            st = st_reason(st_new(ST_INVALID_ARGUMENT, "shared memory is not supported"),
                           HLOD__V1__REASON__REASON_BAD_OPTION);
    if (st) {
        call_finish(c, NULL, st);
        return;
    }
    c->state = f;
    c->on_finished = finished;
    struct job_spec spec = {.kind = JOB_RUN,
                            .model = f->model.source,
                            .inputs = c->inputs,
                            .n_inputs = c->n_inputs,
                            .payload_fd = c->payload_fd,
                            .payload = c->payload,
                            .payload_bytes = c->payload_bytes,
                            .timeout_ms = timeout_us > 0 ? timeout_us / 1000 + 1 : 0,
                            .priority = level ? (int32_t)(CALL_MAX_PRIORITY + 1 - level) : 0};
    if (f->model.named) {
        spec.name = f->model.name;
        spec.version = f->model.named->version;
        spec.batching = f->model.named->batching;
    }
    spec.outputs = arena_array(&c->arena, char *, q->n_outputs + 1);
    for (; spec.n_outputs < q->n_outputs; spec.n_outputs++)
        spec.outputs[spec.n_outputs] = q->outputs[spec.n_outputs]->name;
    api_start_job(c, &spec, inferred);
}
