// SPDX-License-Identifier: Apache-2.0
// Resident buffers and plans: unary calls; tensors are the messages' raw fields, borrowed both
// ways.
#include "client/hlod_buffers.h"

#include <string.h>

#include "client/lib/wire.h"
#include "proto/json.h"
#include "proto/message.h"
#include "proto/numbers.h"

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

// The tensors of a message's field; NULL: it has none of that name.
static Hlod__V1__Tensor ***tensors_at(ProtobufCMessage *m, const char *field, size_t **out_n) {
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, field);
    if (!f || f->descriptor != &hlod__v1__tensor__descriptor) return NULL;
    *out_n = (void *)((char *)m + f->quantifier_offset);
    return (void *)((char *)m + f->offset);
}

// m with `in` behind its own inputs, as h's transport sends it.
static status_t request_of(struct arena *a, bool grpc, const char *method, ProtobufCMessage *m,
                           const struct hlod_input *in, size_t n_in, struct wire_request *out) {
    size_t *n;
    Hlod__V1__Tensor ***v = tensors_at(m, "inputs", &n);
    if (!n_in) {
        wire_call(a, grpc, method, m, NULL, out);
        return ST_OK;
    }
    if (!v) return st_new(ST_INVALID_ARGUMENT, "method %s has no inputs", method);
    Hlod__V1__Tensor **all = arena_array(a, Hlod__V1__Tensor *, *n + n_in);
    struct span *parts = arena_array(a, struct span, n_in + 1);
    size_t n_parts = 1;
    if (*n) memcpy(all, *v, *n * sizeof *all);
    *v = all;

    for (size_t k = 0; k < n_in; k++) {
        Hlod__V1__Tensor *t = all[(*n)++] = tensor_of(a, &in[k]);
        if (grpc || in[k].handle) continue;
        parts[n_parts++] = (struct span){t->raw.data, t->raw.len};
        t->parameters = message_new(a, &hlod__v1__tensor_parameters__descriptor);
        t->parameters->binary_data_size = (int64_t)t->raw.len;
        t->raw.len = 0;
    }
    *out = (struct wire_request){.method = method, .message = m};
    if (!grpc) wire_binary(a, arena_printf(a, "/hlod.v1.Hlod/%s", method), m, parts, n_parts, out);
    return ST_OK;
}

// ---- replies

// Takes m. Its tensors' contents are the result's alone: the message is left without them.
static struct hlod_outputs *outputs_of(ProtobufCMessage *m) {
    struct arena *a;
    struct hlod_outputs *x = wire_result_new(sizeof *x, &a);
    wire_keep(a, m);
    size_t none = 0, *n = &none;
    Hlod__V1__Tensor ***v = tensors_at(m, "outputs", &n);
    struct hlod_output *o = arena_zarray(a, struct hlod_output, *n + 1);
    for (size_t k = 0; k < *n; k++) {
        Hlod__V1__Tensor *t = (*v)[k];
        o[k].tensor = (struct hlod_tensor){t->name,  t->dtype,    (int32_t)t->n_shape,
                                           t->shape, t->raw.data, t->raw.len};
        if (*t->handle) o[k].handle = t->handle;
        t->raw.len = 0;
    }
    *x = (struct hlod_outputs){o, *n, NULL, ""};
    if (m->descriptor == &hlod__v1__run_reply__descriptor) {
        const Hlod__V1__RunReply *r = (const Hlod__V1__RunReply *)m;
        if (*r->tuple) x->tuple = r->tuple;
        x->device = r->device;
    }
    return x;
}

// A tensor's elements as one more member of the object at the end of b.
static void print_data(struct strbuf *b, const struct hlod_output *o) {
    const struct hlod_tensor *x = &o->tensor;
    const struct dtype_row *type = numbers_dtype(str_of(x->dtype));
    int64_t n = 1;
    if (o->handle || !type) return;
    for (int32_t d = 0; d < x->rank; d++)
        if (!sz_mul(n, x->dims[d], &n)) return;
    if (type->cls != NUM_STRING && n != (int64_t)x->size_bytes / type->bytes) return;
    b->n--;
    strbuf_puts(b, b->p[b->n - 1] == '{' ? "\"data\":" : ",\"data\":");
    if (type->cls == NUM_STRING)
        numbers_print_strings(b, n, (struct span){x->data, x->size_bytes});
    else
        numbers_print(b, type, n, x->data);
    strbuf_putc(b, '}');
}

// The message that o was made of; with o's contents in it, or without.
static status_t json_of(ProtobufCMessage *m, const struct hlod_outputs *o, bool data, char **out) {
    struct strbuf b = {0};
    size_t *n;
    Hlod__V1__Tensor ***v = data && o->n_outputs ? tensors_at(m, "outputs", &n) : NULL;
    if (v) *n = 0;
    json_print(&b, m);
    if (v) {
        b.n--;
        strbuf_puts(&b, b.p[b.n - 1] == '{' ? "\"outputs\":[" : ",\"outputs\":[");
        for (; *n < o->n_outputs; ++*n) {
            if (*n) strbuf_putc(&b, ',');
            json_print(&b, &(*v)[*n]->base);
            print_data(&b, &o->outputs[*n]);
        }
        strbuf_puts(&b, "]}");
    }
    *out = strdup(strbuf_cstr(&b));
    strbuf_done(&b);
    return *out ? ST_OK : st_oom();
}

static status_t call(struct hlod *h, const ProtobufCMethodDescriptor *method, ProtobufCMessage *q,
                     const struct hlod_input *in, size_t n_in, char **json,
                     struct hlod_outputs **out) {
    struct arena a = {0};
    struct wire_request w = {0};
    struct wire_reader r;
    status_t st = request_of(&a, h->grpc != NULL, method->name, q, in, n_in, &w);
    w.reply = method->output;
    if (!st) st = wire_stream(h, &w, &r);
    arena_done(&a);
    if (st) return st;

    struct hlod_outputs *o = outputs_of(r.reply);
    if (json) st = json_of(r.reply, o, !out, json);
    if (st || !out)
        hlod_outputs_free(o);
    else
        *out = o;
    return st;
}
static enum hlod_code call_named(struct hlod *h, const char *method, ProtobufCMessage *q,
                                 const struct hlod_input *in, size_t n_in,
                                 struct hlod_outputs **out) {
    return wire_end(h, call(h,
                            protobuf_c_service_descriptor_get_method_by_name(
                                &hlod__v1__hlod__descriptor, method),
                            q, in, n_in, NULL, out));
}

enum hlod_code hlod_call_tensors(struct hlod *h, const char *method, const char *request,
                                 const struct hlod_input *in, size_t n_in, char **json,
                                 struct hlod_outputs **out) {
    const ProtobufCMethodDescriptor *m =
        protobuf_c_service_descriptor_get_method_by_name(&hlod__v1__hlod__descriptor, method);
    if (!m || m->output == &hlod__v1__event__descriptor)
        return wire_end(h, st_new(ST_UNIMPLEMENTED, "no unary method '%.80s' in hlod.v1", method));
    struct arena a = {0};
    ProtobufCMessage *q;
    status_t st = json_parse(&a, m->input, str_of(request ? request : ""), &q);
    if (!st) st = call(h, m, q, in, n_in, json, out);
    arena_done(&a);
    return wire_end(h, st);
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
    return call_named(h, "GetBuffer", &q.base, NULL, 0, out);
}

// ---- runs and plans

enum hlod_code hlod_run_resident(struct hlod *h, const char *digest, const struct hlod_input *in,
                                 size_t n_in, const struct hlod_resident_options *given,
                                 struct hlod_outputs **out) {
    struct hlod_resident_options o = HLOD_RESIDENT_OPTIONS;
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    Hlod__V1__RunRequest q = HLOD__V1__RUN_REQUEST__INIT;
    Hlod__V1__RunOptions ro = HLOD__V1__RUN_OPTIONS__INIT;
    q.model = (char *)(uintptr_t)digest;
    q.options = &ro;
    if (o.device) ro.device = (char *)(uintptr_t)o.device;
    ro.timeout_ms = o.timeout_ms;
    q.keep = (char **)(uintptr_t)o.keep;
    q.n_keep = o.n_keep;
    q.keep_tuple = o.keep_tuple;
    q.lease_ms = o.lease_ms;
    return call_named(h, "RunUnary", &q.base, in, n_in, out);
}

enum hlod_code hlod_plan(struct hlod *h, const char *json, const struct hlod_input *in, size_t n_in,
                         struct hlod_outputs **out) {
    return hlod_call_tensors(h, "RunPlanUnary", json, in, n_in, NULL, out);
}
