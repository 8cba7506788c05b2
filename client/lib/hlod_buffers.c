// SPDX-License-Identifier: Apache-2.0
// Resident buffers and plans: unary calls; tensors are the messages' raw fields, borrowed both
// ways.
#include "client/hlod_buffers.h"

#include <string.h>

#include "client/lib/wire.h"
#include "proto/json.h"
#include "proto/message.h"

static Hlod__V1__Tensor *tensor_of(struct arena *a, const struct hlod_input *in) {
    const struct hlod_tensor *x = &in->tensor;
    Hlod__V1__Tensor *t = message_new(a, &hlod__v1__tensor__descriptor);
    if (x->name) t->name = (char *)(uintptr_t)x->name;
    if (in->handle) {
        t->handle = (char *)(uintptr_t)in->handle;
        t->donate = in->donate;
        return t;
    }
    if (x->dtype) t->dtype = (char *)(uintptr_t)x->dtype;
    t->shape = (int64_t *)(uintptr_t)x->dims;
    t->n_shape = x->rank > 0 ? (size_t)x->rank : 0;
    t->raw = (ProtobufCBinaryData){x->size_bytes, (uint8_t *)(uintptr_t)x->data};
    return t;
}
static Hlod__V1__Tensor **tensors_of(struct arena *a, const struct hlod_input *in, size_t n) {
    Hlod__V1__Tensor **v = arena_array(a, Hlod__V1__Tensor *, n + 1);
    for (size_t k = 0; k < n; k++)
        v[k] = tensor_of(a, &in[k]);
    return v;
}

// ---- replies

static struct hlod_outputs *outputs_of(ProtobufCMessage *m, Hlod__V1__Tensor *const *v, size_t n,
                                       const char *tuple, const char *device) {
    struct arena *a;
    struct hlod_outputs *x = wire_result_new(sizeof *x, &a);
    wire_keep(a, m);
    struct hlod_output *o = arena_zarray(a, struct hlod_output, n + 1);
    for (size_t k = 0; k < n; k++) {
        const Hlod__V1__Tensor *t = v[k];
        o[k].tensor = (struct hlod_tensor){t->name,  t->dtype,    (int32_t)t->n_shape,
                                           t->shape, t->raw.data, t->raw.len};
        if (*t->handle) o[k].handle = t->handle;
    }
    *x = (struct hlod_outputs){o, n, tuple && *tuple ? tuple : NULL, device};
    return x;
}
void hlod_outputs_free(struct hlod_outputs *o) {
    wire_result_free(o);
}

static struct hlod_buffers *buffers_of(ProtobufCMessage *m, Hlod__V1__Buffer *const *v, size_t n) {
    struct arena *a;
    struct hlod_buffers *x = wire_result_new(sizeof *x, &a);
    wire_keep(a, m);
    struct hlod_buffer *b = arena_zarray(a, struct hlod_buffer, n + 1);
    for (size_t k = 0; k < n; k++)
        b[k] = (struct hlod_buffer){v[k]->handle,  v[k]->name,  v[k]->device,
                                    v[k]->state,   v[k]->dtype, (int32_t)v[k]->n_shape,
                                    v[k]->shape,   v[k]->bytes, v[k]->lease_ms,
                                    v[k]->left_ms, v[k]->tuple, v[k]->n_elements};
    *x = (struct hlod_buffers){b, n};
    return x;
}
void hlod_buffers_free(struct hlod_buffers *b) {
    wire_result_free(b);
}

// ---- buffers

enum hlod_code hlod_buffer_put(struct hlod *h, const struct hlod_tensor *in, size_t n_in,
                               const struct hlod_put_options *given, struct hlod_buffers **out) {
    struct hlod_put_options o = HLOD_PUT_OPTIONS;
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    struct arena a = {0};
    Hlod__V1__PutBufferRequest q = HLOD__V1__PUT_BUFFER_REQUEST__INIT;
    q.inputs = arena_array(&a, Hlod__V1__Tensor *, n_in + 1);
    for (; q.n_inputs < n_in; q.n_inputs++)
        q.inputs[q.n_inputs] = tensor_of(&a, &(struct hlod_input){.tensor = in[q.n_inputs]});
    if (o.device) q.device = (char *)(uintptr_t)o.device;
    q.lease_ms = o.lease_ms;
    q.tuple = o.tuple;
    ProtobufCMessage *m;
    status_t st = wire_unary(h, "PutBuffer", &q.base, &hlod__v1__put_buffer_reply__descriptor, &m);
    arena_done(&a);
    if (!st) {
        const Hlod__V1__PutBufferReply *r = (const Hlod__V1__PutBufferReply *)m;
        *out = buffers_of(m, r->buffers, r->n_buffers);
    }
    return wire_end(h, st);
}

enum hlod_code hlod_buffer_list(struct hlod *h, struct hlod_buffers **out) {
    Hlod__V1__ListBuffersRequest q = HLOD__V1__LIST_BUFFERS_REQUEST__INIT;
    ProtobufCMessage *m;
    status_t st =
        wire_unary(h, "ListBuffers", &q.base, &hlod__v1__list_buffers_reply__descriptor, &m);
    if (!st) {
        const Hlod__V1__ListBuffersReply *r = (const Hlod__V1__ListBuffersReply *)m;
        *out = buffers_of(m, r->buffers, r->n_buffers);
    }
    return wire_end(h, st);
}

enum hlod_code hlod_buffer_tuple(struct hlod *h, const char *const *handles, size_t n,
                                 int64_t lease_ms, struct hlod_buffers **out) {
    Hlod__V1__MakeTupleRequest q = HLOD__V1__MAKE_TUPLE_REQUEST__INIT;
    q.elements = (char **)(uintptr_t)handles;
    q.n_elements = n;
    q.lease_ms = lease_ms;
    ProtobufCMessage *m;
    status_t st = wire_unary(h, "MakeTuple", &q.base, &hlod__v1__buffer__descriptor, &m);
    if (!st) {
        Hlod__V1__Buffer *one = (Hlod__V1__Buffer *)m;
        *out = buffers_of(m, &one, 1);
    }
    return wire_end(h, st);
}

enum hlod_code hlod_buffer_free(struct hlod *h, const char *handle) {
    Hlod__V1__FreeBufferRequest q = HLOD__V1__FREE_BUFFER_REQUEST__INIT;
    q.handle = (char *)(uintptr_t)handle;
    ProtobufCMessage *m;
    status_t st =
        wire_unary(h, "FreeBuffer", &q.base, &hlod__v1__free_buffer_reply__descriptor, &m);
    if (!st) protobuf_c_message_free_unpacked(m, NULL);
    return wire_end(h, st);
}

enum hlod_code hlod_buffer_renew(struct hlod *h, const char *handle, int64_t lease_ms) {
    Hlod__V1__RenewBufferRequest q = HLOD__V1__RENEW_BUFFER_REQUEST__INIT;
    q.handle = (char *)(uintptr_t)handle;
    q.lease_ms = lease_ms;
    ProtobufCMessage *m;
    status_t st = wire_unary(h, "RenewBuffer", &q.base, &hlod__v1__buffer__descriptor, &m);
    if (!st) protobuf_c_message_free_unpacked(m, NULL);
    return wire_end(h, st);
}

enum hlod_code hlod_buffer_get(struct hlod *h, const char *handle, struct hlod_outputs **out) {
    Hlod__V1__GetBufferRequest q = HLOD__V1__GET_BUFFER_REQUEST__INIT;
    q.handle = (char *)(uintptr_t)handle;
    ProtobufCMessage *m;
    status_t st = wire_unary(h, "GetBuffer", &q.base, &hlod__v1__get_buffer_reply__descriptor, &m);
    if (!st) {
        const Hlod__V1__GetBufferReply *r = (const Hlod__V1__GetBufferReply *)m;
        *out = outputs_of(m, r->outputs, r->n_outputs, NULL, "");
    }
    return wire_end(h, st);
}

// ---- runs and plans

static enum hlod_code run(struct hlod *h, const char *method, const ProtobufCMessage *q,
                          struct hlod_outputs **out) {
    ProtobufCMessage *m;
    status_t st = wire_unary(h, method, q, &hlod__v1__run_reply__descriptor, &m);
    if (!st) {
        const Hlod__V1__RunReply *r = (const Hlod__V1__RunReply *)m;
        *out = outputs_of(m, r->outputs, r->n_outputs, r->tuple, r->device);
    }
    return wire_end(h, st);
}

enum hlod_code hlod_run_resident(struct hlod *h, const char *digest, const struct hlod_input *in,
                                 size_t n_in, const struct hlod_resident_options *given,
                                 struct hlod_outputs **out) {
    struct hlod_resident_options o = HLOD_RESIDENT_OPTIONS;
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    struct arena a = {0};
    Hlod__V1__RunRequest q = HLOD__V1__RUN_REQUEST__INIT;
    Hlod__V1__RunOptions ro = HLOD__V1__RUN_OPTIONS__INIT;
    q.model = (char *)(uintptr_t)digest;
    q.inputs = tensors_of(&a, in, n_in);
    q.n_inputs = n_in;
    q.options = &ro;
    if (o.device) ro.device = (char *)(uintptr_t)o.device;
    ro.timeout_ms = o.timeout_ms;
    q.keep = (char **)(uintptr_t)o.keep;
    q.n_keep = o.n_keep;
    q.keep_tuple = o.keep_tuple;
    q.lease_ms = o.lease_ms;
    enum hlod_code code = run(h, "RunUnary", &q.base, out);
    arena_done(&a);
    return code;
}

enum hlod_code hlod_plan(struct hlod *h, const char *json, const struct hlod_input *in, size_t n_in,
                         struct hlod_outputs **out) {
    struct arena a = {0};
    ProtobufCMessage *m;
    status_t st = json_parse(&a, &hlod__v1__run_plan_request__descriptor, str_of(json), &m);
    if (st) {
        arena_done(&a);
        return wire_end(h, st);
    }
    Hlod__V1__RunPlanRequest *q = (Hlod__V1__RunPlanRequest *)m;
    q->inputs = tensors_of(&a, in, n_in);
    q->n_inputs = n_in;
    enum hlod_code code = run(h, "RunPlanUnary", &q->base, out);
    arena_done(&a);
    return code;
}
