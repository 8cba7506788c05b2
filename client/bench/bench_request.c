// SPDX-License-Identifier: Apache-2.0
// Made once, sent many times: what it costs to make them is not measured.
#include "client/bench/bench_request.h"

#include <stdlib.h>
#include <string.h>

#include "proto/formats/inference.pb-c.h"
#include "proto/hlod.pb-c.h"
#include "proto/message.h"
#include "proto/numbers.h"

// ---- HTTP

static void put_input(struct strbuf *b, const struct npy *x, bool json) {
    const char *type = input_type(x);
    strbuf_puts(b, "{\"name\":");
    strbuf_json_str(b, str_of(x->name));
    strbuf_printf(b, ",\"datatype\":\"%s\",\"shape\":[", type);
    for (int d = 0; d < x->rank; d++)
        strbuf_printf(b, "%s%lld", d ? "," : "", (long long)x->dims[d]);
    if (json) {
        const struct dtype_row *t = numbers_dtype(str_of(type));
        strbuf_puts(b, "],\"data\":");
        numbers_print(b, t, (int64_t)x->size_bytes / t->bytes, x->data);
        strbuf_putc(b, '}');
    } else
        strbuf_printf(b, "],\"parameters\":{\"binary_data_size\":%zu}}", x->size_bytes);
}

static void make_http(struct arena *a, const struct bench_what *w, struct bench_request *out) {
    bool oip = w->protocol == BENCH_OIP;
    struct strbuf b = {0}, h = {0};

    strbuf_putc(&b, '{');
    if (!oip) {
        strbuf_puts(&b, "\"model\":");
        strbuf_json_str(&b, str_of(w->model));
        strbuf_putc(&b, ',');
        if (w->weights) {
            strbuf_puts(&b, "\"weights\":");
            strbuf_json_str(&b, str_of(w->weights));
            strbuf_putc(&b, ',');
        }
    } else if (!w->json)
        strbuf_puts(&b, "\"parameters\":{\"binary_data_output\":true},");
    strbuf_puts(&b, "\"inputs\":[");
    for (int i = 0; i < w->n_in; i++) {
        if (i) strbuf_putc(&b, ',');
        put_input(&b, &w->in[i], w->json);
    }
    strbuf_puts(&b, "]}");

    size_t json_bytes = b.n;
    for (int i = 0; i < w->n_in && !w->json; i++)
        strbuf_add(&b, w->in[i].data, w->in[i].size_bytes);

    strbuf_puts(&h, "POST ");
    if (oip)
        strbuf_printf(&h, "/v2/models/%s/infer", w->model);
    else
        strbuf_puts(&h, "/v1/run");
    strbuf_printf(&h, " HTTP/1.1\r\nHost: %s\r\nContent-Length: %zu\r\n", w->addr, b.n);
    if (w->json)
        strbuf_puts(&h, "Content-Type: application/json\r\nAccept: application/json\r\n");
    else
        strbuf_printf(&h,
                      "Content-Type: application/octet-stream\r\nAccept: "
                      "application/octet-stream\r\nInference-Header-Content-Length: %zu\r\n",
                      json_bytes);
    if (out->authorization) strbuf_printf(&h, "Authorization: %s\r\n", out->authorization);
    strbuf_puts(&h, "\r\n");

    strbuf_add(&h, b.p, b.n);
    out->bytes = (struct span){arena_dup(a, h.p, h.n), h.n};
    strbuf_done(&b);
    strbuf_done(&h);
}

// ---- gRPC

static void pack(struct arena *a, const ProtobufCMessage *m, struct bench_request *out) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *p = arena_alloc(a, n + 1);
    protobuf_c_message_pack(m, p);
    out->bytes = (struct span){p, n};
}

static void make_run(struct arena *a, const struct bench_what *w, struct bench_request *out) {
    Hlod__V1__RunRequest q = HLOD__V1__RUN_REQUEST__INIT;
    q.model = (char *)(uintptr_t)w->model;
    if (w->weights) q.weights = (char *)(uintptr_t)w->weights;
    q.inputs = arena_array(a, Hlod__V1__Tensor *, w->n_in + 1);
    for (; q.n_inputs < (size_t)w->n_in; q.n_inputs++) {
        const struct npy *x = &w->in[q.n_inputs];
        Hlod__V1__Tensor *t = q.inputs[q.n_inputs] = message_new(a, &hlod__v1__tensor__descriptor);
        t->name = (char *)(uintptr_t)x->name;
        t->datatype = (char *)(uintptr_t)input_type(x);
        t->shape = (int64_t *)(uintptr_t)x->dims;
        t->n_shape = (size_t)x->rank;
        t->raw = (ProtobufCBinaryData){x->size_bytes, x->data};
    }
    out->method = "/hlod.v1.Hlod/RunUnary";
    pack(a, &q.base, out);
}

static void make_infer(struct arena *a, const struct bench_what *w, struct bench_request *out) {
    typedef Inference__ModelInferRequest__InferInputTensor input;
    typedef Inference__ModelInferRequest__ParametersEntry entry;
    Inference__ModelInferRequest q = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__InferParameter yes = INFERENCE__INFER_PARAMETER__INIT;
    entry timing = INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT, *timings = &timing;
    timing.key = (char *)(uintptr_t)"hlod_timing";
    timing.value = &yes;
    yes.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    yes.bool_param = true;
    q.parameters = &timings;
    q.n_parameters = 1;
    q.model_name = (char *)(uintptr_t)w->model;
    q.inputs = arena_array(a, input *, w->n_in + 1);
    q.raw_input_contents = arena_array(a, ProtobufCBinaryData, w->n_in + 1);
    for (; q.n_inputs < (size_t)w->n_in; q.n_inputs++) {
        const struct npy *x = &w->in[q.n_inputs];
        input *t = q.inputs[q.n_inputs] = arena_new_of(a, input);
        inference__model_infer_request__infer_input_tensor__init(t);
        t->name = (char *)(uintptr_t)x->name;
        t->datatype = (char *)(uintptr_t)input_type(x);
        t->shape = (int64_t *)(uintptr_t)x->dims;
        t->n_shape = (size_t)x->rank;
        q.raw_input_contents[q.n_raw_input_contents++] =
            (ProtobufCBinaryData){x->size_bytes, x->data};
    }
    out->method = "/inference.GRPCInferenceService/ModelInfer";
    pack(a, &q.base, out);
}

status_t bench_request_make(struct arena *a, const struct bench_what *w,
                            struct bench_request *out) {
    const char *token = w->security->token;
    *out =
        (struct bench_request){.addr = w->addr,
                               .tls = w->tls,
                               .security = w->security,
                               .authorization = token ? arena_printf(a, "Bearer %s", token) : NULL};
    for (int i = 0; i < w->n_in; i++)
        RETURN_IF_ERR(input_sendable(&w->in[i]));
    if (w->protocol == BENCH_GRPC)
        make_run(a, w, out);
    else if (w->protocol == BENCH_OIP_GRPC)
        make_infer(a, w, out);
    else
        make_http(a, w, out);
    return ST_OK;
}
