// SPDX-License-Identifier: Apache-2.0
// hlod_call_json: a method by its name, found among the service's descriptors. JSON becomes the
// message that the transport sends, and the reply's message JSON, by proto/json.
#include <stdlib.h>
#include <string.h>

#include "client/hlod_admin.h"
#include "client/hlod_jobs.h"
#include "client/lib/wire.h"
#include "proto/json.h"

static status_t json_of(const ProtobufCMessage *reply, char **out) {
    struct strbuf b = {0};
    if (reply) json_print(&b, reply);
    *out = reply ? strdup(strbuf_cstr(&b)) : NULL;
    strbuf_done(&b);
    return reply && !*out ? st_oom() : ST_OK;
}

static status_t call(struct hlod *h, struct arena *a, const ProtobufCMethodDescriptor *m,
                     const char *request, hlod_json_fn on_event, void *ctx, char **out) {
    bool stream = m->output == &hlod__v1__event__descriptor;
    struct wire_request q;
    struct wire_reader r;
    ProtobufCMessage *message;
    RETURN_IF_ERR(json_parse(a, m->input, str_of(request), &message));
    wire_call(a, h->grpc != NULL, m->name, message, stream ? NULL : m->output, &q);
    q.any_end = stream;
    q.on_json = on_event;
    q.ctx = ctx;
    RETURN_IF_ERR(wire_stream(h, &q, &r));

    status_t st = out ? json_of(r.reply, out) : ST_OK;
    if (r.reply) protobuf_c_message_free_unpacked(r.reply, NULL);
    if (r.result) hlod__v1__event__free_unpacked(r.result, NULL);
    if (r.profile) hlod__v1__event__free_unpacked(r.profile, NULL);
    return st;
}

static status_t method_of(const char *name, const ProtobufCMethodDescriptor **out) {
    *out = protobuf_c_service_descriptor_get_method_by_name(&hlod__v1__hlod__descriptor, name);
    return *out ? ST_OK : st_new(ST_UNIMPLEMENTED, "no method '%.80s' in hlod.v1", name);
}
enum hlod_code hlod_call_json(struct hlod *h, const char *method, const char *request,
                              hlod_json_fn on_event, void *ctx, char **out) {
    const ProtobufCMethodDescriptor *m;
    status_t found = method_of(method, &m);
    if (found) return wire_end(h, found);

    struct arena a = {0};
    status_t st = call(h, &a, m, request ? request : "", on_event, ctx, out);
    arena_done(&a);
    return wire_end(h, st);
}

// ---- messages as bytes

static status_t call_message(struct hlod *h, const char *method, struct span request,
                             struct hlod_blob **out) {
    const ProtobufCMethodDescriptor *m;
    ProtobufCMessage *reply;
    struct arena *a;
    RETURN_IF_ERR(method_of(method, &m));
    if (m->output == &hlod__v1__event__descriptor)
        return st_new(ST_INVALID_ARGUMENT, "the reply to %s is a stream", method);
    ProtobufCMessage *q = protobuf_c_message_unpack(m->input, NULL, request.n, request.p);
    if (!q) return st_new(ST_INVALID_ARGUMENT, "the bytes are no request of %s", method);
    status_t st = wire_unary(h, m->name, q, m->output, &reply);
    protobuf_c_message_free_unpacked(q, NULL);
    RETURN_IF_ERR(st);

    if (out) {
        struct hlod_blob *x = wire_result_new(sizeof *x, &a);
        x->bytes = protobuf_c_message_get_packed_size(reply);
        uint8_t *data = arena_alloc(a, x->bytes + 1);
        protobuf_c_message_pack(reply, data);
        x->data = data;
        *out = x;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}
enum hlod_code hlod_call_message(struct hlod *h, const char *method, const void *request,
                                 size_t bytes, struct hlod_blob **out) {
    return wire_end(h, call_message(h, method, (struct span){request, bytes}, out));
}
