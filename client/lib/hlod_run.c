// SPDX-License-Identifier: Apache-2.0
// hlod_run: the request as JSON, the tensors' bytes behind it from where they lie (docs/api.md,
// "Binary tensors"); the reply's tensors stay in the message they came in.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/wire.h"
#include "proto/json.h"
#include "proto/message.h"

static Hlod__V1__RunRequest *request_of(struct arena *a, bool grpc, const char *digest,
                                        const struct hlod_tensor *in, size_t n_in,
                                        const struct hlod_run_options *o) {
    Hlod__V1__RunRequest *q = arena_new_of(a, Hlod__V1__RunRequest);
    Hlod__V1__RunOptions *ro = arena_new_of(a, Hlod__V1__RunOptions);
    hlod__v1__run_request__init(q);
    hlod__v1__run_options__init(ro);

    q->model = arena_strdup(a, digest);
    if (o->weights) q->weights = arena_strdup(a, o->weights);
    q->options = ro;
    if (o->device) ro->device = arena_strdup(a, o->device);
    ro->timeout_ms = o->timeout_ms;
    ro->repeat = o->repeat;
    ro->profile = o->profile;
    ro->no_compile = o->no_compile;

    q->outputs = arena_array(a, char *, o->n_outputs + 1);
    for (; q->n_outputs < o->n_outputs; q->n_outputs++)
        q->outputs[q->n_outputs] = arena_strdup(a, o->outputs[q->n_outputs]);

    q->inputs = arena_array(a, Hlod__V1__Tensor *, n_in + 1);
    for (; q->n_inputs < n_in; q->n_inputs++) {
        const struct hlod_tensor *x = &in[q->n_inputs];
        Hlod__V1__Tensor *t = q->inputs[q->n_inputs] =
            message_new(a, &hlod__v1__tensor__descriptor);
        if (x->name) t->name = arena_strdup(a, x->name);
        t->dtype = arena_strdup(a, x->dtype ? x->dtype : "");
        t->shape = (int64_t *)(uintptr_t)x->dims;
        t->n_shape = x->rank > 0 ? (size_t)x->rank : 0;
        if (grpc) {
            t->raw = (ProtobufCBinaryData){x->size_bytes, (uint8_t *)(uintptr_t)x->data};
            continue;
        }
        t->parameters = message_new(a, &hlod__v1__tensor_parameters__descriptor);
        t->parameters->binary_data_size = (int64_t)x->size_bytes;
    }
    return q;
}

static void put_profile(struct arena *a, const Hlod__V1__Profile *p, struct hlod_result *out) {
    if (!p) return;
    struct hlod_step *s = arena_array(a, struct hlod_step, p->n_rows + 1);
    for (size_t i = 0; i < p->n_rows; i++) {
        const Hlod__V1__ProfileRow *r = p->rows[i];
        s[i] = (struct hlod_step){.name = r->name,
                                  .op = r->op,
                                  .impl = r->impl,
                                  .start_ms = r->start_ms,
                                  .ms = r->ms,
                                  .flops = r->flops,
                                  .bytes = r->bytes,
                                  .hlo = (const char *const *)r->hlo,
                                  .nodes = (const char *const *)r->nodes,
                                  .n_hlo = r->n_hlo,
                                  .n_nodes = r->n_nodes,
                                  .of_peak = r->of_peak,
                                  .bound = r->bound,
                                  .depth = r->depth,
                                  .estimate_ms = r->estimate_ms};
    }
    out->profile = s;
    out->n_profile = p->n_rows;
}

status_t wire_ran(struct wire_reader *reader, void **out) {
    struct arena *a;
    struct hlod_result *x = wire_result_new(sizeof *x, &a);
    Hlod__V1__Event *e = reader->result, *profile = reader->profile;
    reader->result = reader->profile = NULL;
    wire_keep(a, e);
    if (profile) wire_keep(a, profile);
    if (e->kind_case != HLOD__V1__EVENT__KIND_RESULT) {
        wire_result_free(x);
        return st_new(ST_DATA_LOSS, "the reply has no result");
    }

    const Hlod__V1__RunReply *r = e->result;
    struct hlod_tensor *t = arena_array(a, struct hlod_tensor, r->n_outputs + 1);
    for (size_t i = 0; i < r->n_outputs; i++) {
        const Hlod__V1__Tensor *o = r->outputs[i];
        t[i] = (struct hlod_tensor){o->name,  o->dtype,    (int32_t)o->n_shape,
                                    o->shape, o->raw.data, o->raw.len};
    }

    x->outputs = t;
    x->n_outputs = r->n_outputs;
    x->executable = r->executable;
    x->device = r->device;
    x->run_ms = r->run_ms;
    x->n_run_ms = r->n_run_ms;
    x->peak_bytes = r->peak_bytes;
    x->prepared_bytes = r->prepared_bytes;
    x->precision_note = r->precision_note;
    x->computed_in = wire_type_counts(a, r->computed_in, r->n_computed_in);
    x->n_computed_in = r->n_computed_in;
    put_profile(a, profile ? profile->profile : r->profile, x);
    *out = x;
    return ST_OK;
}

void wire_binary(struct arena *a, const char *path, const ProtobufCMessage *m, struct span *parts,
                 size_t n_parts, struct wire_request *out) {
    struct strbuf head = {0};
    json_print(&head, m);
    parts[0] = (struct span){arena_dup(a, head.p, head.n), head.n};
    out->path = path;
    out->content_type = "application/octet-stream";
    out->header = arena_printf(a, "Inference-Header-Content-Length: %zu", head.n);
    out->parts = parts;
    out->n_parts = n_parts;
    strbuf_done(&head);
}

status_t wire_run(struct arena *a, bool grpc, const char *digest, const struct hlod_tensor *in,
                  size_t n_in, const struct hlod_run_options *given, struct wire_request *out) {
    struct hlod_run_options o = HLOD_RUN_OPTIONS;
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    *out = (struct wire_request){.on_event = o.on_event, .ctx = o.ctx, .method = "Run"};
    const ProtobufCMessage *m = &request_of(a, grpc, digest, in, n_in, &o)->base;
    if (grpc) {
        out->message = m;
        return ST_OK;
    }
    struct span *parts = arena_array(a, struct span, n_in + 1);
    for (size_t i = 0; i < n_in; i++)
        parts[i + 1] = (struct span){in[i].data, in[i].size_bytes};
    wire_binary(a, "/v1/run", m, parts, n_in + 1, out);
    return ST_OK;
}

enum hlod_code hlod_run(struct hlod *h, const char *digest, const struct hlod_tensor *in,
                        size_t n_in, const struct hlod_run_options *o, struct hlod_result **out) {
    struct arena a = {0};
    struct wire_request q;
    struct wire_reader r;
    status_t st = wire_run(&a, h->grpc != NULL, digest, in, n_in, o, &q);
    if (!st) st = wire_stream(h, &q, &r);
    void *got;
    if (!st) st = wire_ran(&r, &got);
    if (!st) *out = got;
    arena_done(&a);
    return wire_end(h, st);
}

void hlod_result_free(struct hlod_result *r) {
    wire_result_free(r);
}
