// SPDX-License-Identifier: Apache-2.0
// Sending: the HTTP sink. A stream's head goes out with its first event, so that an error before it
// still has its own status code; tensors of a binary reply are sent from the worker's memory
// without a copy, which is why the call lives until the library is done with the response.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/json.h"
#include "scheduler/error.h"
#include "scheduler/loop.h"
#include "server/body/pieces.h"
#include "server/http/http_file.h"
#include "server/http/http_req.h"
#include "server/oip/oip.h"

static void add_header(struct http_req *r, const char *name, const char *value) {
    MHD_add_response_header(r->response, name, value);
}

static void set_response(struct http_req *r, unsigned code, const char *type,
                         struct MHD_Response *response) {
    if (!response) abort();
    r->response = response;
    r->code = code;
    add_header(r, "Content-Type", type);
    add_header(r, "X-Content-Type-Options", "nosniff");
    if (r->call && r->call->trace && *r->call->trace->reply) {
        add_header(r, "traceparent", r->call->trace->given);
        add_header(r, "traceresponse", r->call->trace->reply);
    }
}

// ---- bodies

struct body { // of a successful reply
    struct http_req *r;
    const char *type;
    struct strbuf text;      // owned; the first part
    const struct span *more; // the call's tensors, which outlive the response
    size_t n_more;
    bool json, squeeze; // text is JSON in front of them; all is to be compressed
    size_t json_bytes;
    text_holes holes; // in text; owned
    struct strbuf small;
};
static void server_timing(struct http_req *r, bool footer);

static void respond(struct body *b, struct MHD_Response *response) {
    struct http_req *r = b->r;
    set_response(r, 200, b->type, response);
    if (b->small.p || r->coding) add_header(r, "Vary", "Accept-Encoding");
    if (b->small.p) add_header(r, "Content-Encoding", coding_name(r->coding));
    if (!b->json) return;
    char text[32];
    struct strbuf length = strbuf_over(text, sizeof text);
    strbuf_u64(&length, b->json_bytes);
    add_header(r, "Inference-Header-Content-Length", text);
}
// A body in parts, which the call outlives. The library sends the head of a reply together with a
// buffer, but apart from parts: two calls, two segments, two wakes of the client. Little is copied.
static struct MHD_Response *response_of(struct arena *a, const struct span *v, size_t n) {
    enum { COPIED = 32 << 10 };
    size_t all = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        all += v[i].n;
    if (all > COPIED) {
        struct MHD_IoVec *parts = arena_array(a, struct MHD_IoVec, n + 1);
        for (size_t i = 0; i < n; i++)
            parts[i] = (struct MHD_IoVec){v[i].p, v[i].n};
        return MHD_create_response_from_iovec(parts, (unsigned)n, NULL, NULL);
    }
    uint8_t *whole = arena_alloc(a, all + 1);
    for (size_t i = 0; i < n; at += v[i++].n)
        if (v[i].n) memcpy(whole + at, v[i].p, v[i].n);
    return MHD_create_response_from_buffer(all, whole, MHD_RESPMEM_PERSISTENT);
}
static void send_whole(struct body *b) {
    size_t n = b->text.n;
    if (b->small.p) {
        n = b->small.n;
        respond(b, MHD_create_response_from_buffer(n, b->small.p, MHD_RESPMEM_MUST_FREE));
        strbuf_done(&b->text);
    } else if (b->n_more) {
        struct arena *a = &b->r->call->arena;
        struct span *v = arena_array(a, struct span, b->n_more + 1);
        v[0] = (struct span){arena_dup(a, b->text.p, n), n};
        memcpy(v + 1, b->more, b->n_more * sizeof *v);
        respond(b, response_of(a, v, b->n_more + 1));
        strbuf_done(&b->text);
    } else {
        respond(b,
                MHD_create_response_from_buffer(n, strbuf_take(&b->text), MHD_RESPMEM_MUST_FREE));
    }
}
// The text's holes filled, all compressed where it is to be.
static void make_whole(void *arg) {
    struct body *b = arg;
    if (b->holes.n) {
        struct strbuf full = {0};
        http_text_fill(&b->text, &b->holes, &full);
        strbuf_done(&b->text);
        vec_done(&b->holes);
        b->text = full;
    }
    b->json_bytes = b->text.n;
    if (!b->squeeze) return;
    struct span *all = arena_array(&b->r->call->arena, struct span, b->n_more + 1);
    all[0] = (struct span){(const uint8_t *)b->text.p, b->text.n};
    if (b->n_more) memcpy(all + 1, b->more, b->n_more * sizeof *all);
    coding_do(b->r->coding, all, b->n_more + 1, &b->small);
}
static void made_whole(void *arg) {
    struct body *b = arg;
    struct http_req *r = b->r;
    r->pooled = false;
    send_whole(b);
    server_timing(r, false);
    if (r->gone)
        http_leave(r);
    else
        http_resume(r);
}

static ssize_t read_text(void *cls, UNUSED uint64_t pos, char *buf, size_t max) {
    struct http_req *r = cls;
    ssize_t n = http_text_read(r->long_text, buf, max);
    return n >= 0    ? n
           : n == -1 ? MHD_CONTENT_READER_END_OF_STREAM
                     : MHD_CONTENT_READER_END_WITH_ERROR;
}
// Text of so many values that it is made while the client reads, without a length in front.
static void reply_long(struct body *b) {
    struct http_req *r = b->r;
    r->long_text = http_text_new(r, &b->text, &b->holes);
    respond(b, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 64 << 10, read_text, r, NULL));
}

// Compressed where the client takes it and it is worth it. What takes long is done on the pool:
// r->response is NULL until then.
static void reply_body(struct body *b) {
    enum { WORTH_IT = 1 << 10, QUICK = 16 << 10, TOO_LONG = 8 << 20 };
    struct http_req *r = b->r;
    int64_t values = http_text_values(&r->holes);
    size_t all = b->text.n + (size_t)values;
    b->holes = r->holes;
    memset(&r->holes, 0, sizeof r->holes);
    for (size_t i = 0; i < b->n_more; i++)
        all += b->more[i].n;

    if (values > TEXT_BESIDE && b->json) {
        strbuf_done(&b->text);
        vec_done(&b->holes);
        http_reply_error(
            r, st_invalid("%lld values as JSON beside binary outputs, at most %d: ask for "
                          "all large outputs in binary",
                          (long long)values, (int)TEXT_BESIDE));
        return;
    }
    if (values > TEXT_WHOLE && !b->json) {
        reply_long(b);
        return;
    }

    b->squeeze = r->coding && all >= WORTH_IT && all <= (r->suspended ? TOO_LONG : QUICK);
    if (r->suspended && (values || (b->squeeze && all > QUICK))) {
        r->pooled = true; // the pool holds the request
        http_away(r->h, make_whole, made_whole, b);
    } else {
        make_whole(b);
        send_whole(b);
    }
}

void http_reply_text(struct http_req *r, unsigned code, const char *type, struct strbuf *text) {
    if (code == 200 && r->call) {
        struct body *b = arena_new_of(&r->call->arena, struct body);
        *b = (struct body){.r = r, .type = type, .text = *text};
        *text = (struct strbuf){0};
        reply_body(b);
        return;
    }
    size_t n = text->n;
    char *p = strbuf_take(text);
    set_response(r, code, type, MHD_create_response_from_buffer(n, p, MHD_RESPMEM_MUST_FREE));
}

void http_reply_bytes(struct http_req *r, const char *type, const void *p, size_t n) {
    set_response(r, 200, type,
                 MHD_create_response_from_buffer(n, (void *)(uintptr_t)p, MHD_RESPMEM_PERSISTENT));
}

void http_reply_error(struct http_req *r, status_t st) {
    struct strbuf b = {0};
    if (r->oip)
        http_error_oip(&b, st);
    else
        http_error_json(&b, st);
    strbuf_putc(&b, '\n');
    unsigned code = error_http_code(st);
    http_reply_text(r, code, "application/json", &b);
    if (code == 503 || code == 429) {
        int64_t s = (st_get_retry_ms(st) + 999) / 1000;
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)(s > 0 ? s : 1));
        add_header(r, "Retry-After", text);
    }
    if (r->allow) add_header(r, "Allow", r->allow);
    if (code == 401)
        add_header(r, "WWW-Authenticate",
                   st_get_reason(st) == HLOD__V1__REASON__REASON_BAD_CREDENTIALS
                       ? "Bearer realm=\"hlod\", error=\"invalid_token\""
                   : st_get_reason(st) == HLOD__V1__REASON__REASON_EXPIRED_CREDENTIALS
                       ? "Bearer realm=\"hlod\", error=\"invalid_token\", "
                         "error_description=\"expired\""
                       : "Bearer realm=\"hlod\"");
    if (st_get_reason(st) == HLOD__V1__REASON__REASON_MISSING_SCOPE)
        add_header(r, "WWW-Authenticate", "Bearer realm=\"hlod\", error=\"insufficient_scope\"");
    st_drop(st);
}

// `footer`: behind the last chunk of a stream, whose head is long gone.
static void server_timing(struct http_req *r, bool footer) {
    struct strbuf b = {0};
    call_server_timing(r->call, &b);
    if (b.n && footer)
        MHD_add_response_footer(r->response, "Server-Timing", b.p);
    else if (b.n)
        add_header(r, "Server-Timing", b.p);
    strbuf_done(&b);
}

// ---- tensors in a reply

// parameters: the inside of their object; "" where the data are numbers here.
// Values of large outputs are holes.
static void print_output(struct strbuf *b, const struct call_output *o, const char *parameters,
                         text_holes *holes) {
    strbuf_puts(b, "{\"name\":");
    strbuf_json_str(b, str_of(o->name));
    strbuf_puts(b, ",\"dtype\":\"");
    strbuf_puts(b, o->dtype->name);
    if (o->dtype->oip) strbuf_puts(b, "\",\"datatype\":\"");
    if (o->dtype->oip) strbuf_puts(b, o->dtype->oip);
    strbuf_puts(b, "\",\"shape\":[");
    for (int32_t d = 0; d < o->rank; d++) {
        if (d) strbuf_putc(b, ',');
        strbuf_i64(b, o->dims[d]);
    }
    strbuf_puts(b, "]");
    if (o->handle)
        strbuf_printf(b, ",\"handle\":\"%s\"", o->handle);
    else if (*parameters)
        strbuf_printf(b, ",\"parameters\":{%s}", parameters);
    else {
        strbuf_puts(b, ",\"data\":");
        http_text_put(b, o, holes);
    }
    strbuf_putc(b, '}');
}

// The message with the call's outputs as its first field.
static void print_with_outputs(struct strbuf *b, const ProtobufCMessage *m, const struct call *c,
                               bool binary) {
    strbuf_puts(b, "{\"outputs\":[");
    for (size_t i = 0; i < c->n_outputs; i++) {
        if (i) strbuf_putc(b, ',');
        char size[48] = "";
        if (binary) snprintf(size, sizeof size, "\"binary_data_size\":%zu", c->outputs[i].data.n);
        print_output(b, &c->outputs[i], size, &((struct http_req *)c->transport)->holes);
    }
    struct strbuf rest = {0};
    json_print(&rest, m);
    strbuf_printf(b, "]%s%s", rest.n > 2 ? "," : "", strbuf_cstr(&rest) + 1);
    strbuf_done(&rest);
}

static void reply_json(struct http_req *r, const ProtobufCMessage *m) {
    struct strbuf b = {0};
    if (call_has_outputs(m->descriptor))
        print_with_outputs(&b, m, r->call, false);
    else
        json_print(&b, m);
    strbuf_putc(&b, '\n');
    http_reply_text(r, 200, "application/json", &b);
}

// `b`: the JSON; taken. The outputs that `binary` names follow it.
static void reply_with_bytes(struct http_req *r, struct strbuf *b,
                             bool (*binary)(const struct call *c, size_t i)) {
    struct call *c = r->call;
    struct span *v = arena_array(&c->arena, struct span, c->n_outputs + 1);
    size_t n = 0;
    for (size_t i = 0; i < c->n_outputs; i++)
        if (c->outputs[i].data.n && (!binary || binary(c, i))) v[n++] = c->outputs[i].data;
    struct body *all = arena_new_of(&c->arena, struct body);
    *all = (struct body){.r = r,
                         .type = "application/octet-stream",
                         .text = *b,
                         .more = v,
                         .n_more = n,
                         .json = true};
    *b = (struct strbuf){0};
    reply_body(all);
}
static void reply_binary(struct http_req *r, const ProtobufCMessage *m) {
    struct strbuf b = {0};
    print_with_outputs(&b, m, r->call, true);
    reply_with_bytes(r, &b, NULL);
}

// ---- the Open Inference Protocol

static void reply_infer(struct http_req *r, const Inference__ModelInferResponse *m) {
    struct call *c = r->call;
    struct strbuf b = {0};
    bool bytes = false;
    strbuf_puts(&b, "{\"model_name\":");
    strbuf_json_str(&b, str_of(m->model_name));
    strbuf_puts(&b, ",\"model_version\":");
    strbuf_json_str(&b, str_of(m->model_version));
    if (*m->id) {
        strbuf_puts(&b, ",\"id\":");
        strbuf_json_str(&b, str_of(m->id));
    }
    for (size_t i = 0; i < m->n_parameters; i++) {
        strbuf_puts(&b, i ? "," : ",\"parameters\":{");
        strbuf_json_str(&b, str_of(m->parameters[i]->key));
        strbuf_putc(&b, ':');
        json_print_oip(&b, &m->parameters[i]->value->base);
        if (i + 1 == m->n_parameters) strbuf_putc(&b, '}');
    }

    strbuf_puts(&b, ",\"outputs\":[");
    for (size_t i = 0; i < c->n_outputs; i++) {
        struct strbuf parameters = {0};
        bytes = bytes || oip_output_binary(c, i);
        oip_output_parameters(c, i, &parameters);
        if (i) strbuf_putc(&b, ',');
        print_output(&b, &c->outputs[i], strbuf_cstr(&parameters), &r->holes);
        strbuf_done(&parameters);
    }
    strbuf_puts(&b, "]}");
    if (bytes)
        reply_with_bytes(r, &b, oip_output_binary);
    else
        http_reply_text(r, 200, "application/json", &b);
}

// Without the brackets.
static void print_one(struct strbuf *b, const struct call_output *o) {
    struct strbuf data = {0};
    http_text_print(&data, o);
    strbuf_add(b, data.p + 1, data.n - 2);
    strbuf_done(&data);
}
// The outputs under their names; one value is itself, more are an array.
static void reply_generate(struct http_req *r, const Inference__ModelInferResponse *m) {
    const struct call *c = r->call;
    bool events = r->route.form == FORM_GENERATE_STREAM;
    struct strbuf b = {0};
    strbuf_puts(&b, events ? "data: {" : "{");
    if (*m->id) {
        strbuf_puts(&b, "\"id\":");
        strbuf_json_str(&b, str_of(m->id));
        strbuf_putc(&b, ',');
    }
    strbuf_puts(&b, "\"model_name\":");
    strbuf_json_str(&b, str_of(m->model_name));
    strbuf_puts(&b, ",\"model_version\":");
    strbuf_json_str(&b, str_of(m->model_version));
    for (size_t i = 0; i < c->n_outputs; i++) {
        const struct call_output *o = &c->outputs[i];
        strbuf_putc(&b, ',');
        strbuf_json_str(&b, str_of(o->name));
        strbuf_putc(&b, ':');
        if (o->dtype->cls == NUM_RAW)
            strbuf_puts(&b, "null"); // a type without a JSON form
        else if (o->elements == 1)
            print_one(&b, o);
        else
            http_text_put(&b, o, &r->holes);
    }
    strbuf_puts(&b, events ? "}\n\n" : "}");
    http_reply_text(r, 200, events ? "text/event-stream; charset=utf-8" : "application/json", &b);
}

static const void *member(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f) {
    return (const char *)m + f->offset;
}
// A bare list of what the first field of a message, repeated or a map, holds.
static void print_list(struct strbuf *b, const ProtobufCMessage *m) {
    const ProtobufCFieldDescriptor *f = m->descriptor->fields;
    const ProtobufCMessageDescriptor *entry = json_is_map(f) ? f->descriptor : NULL;
    size_t n;
    memcpy(&n, (const char *)m + f->quantifier_offset, sizeof n);
    ProtobufCMessage *const *v = *(ProtobufCMessage * *const *)member(m, f);

    strbuf_putc(b, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) strbuf_putc(b, ',');
        const ProtobufCMessage *x =
            entry ? *(ProtobufCMessage *const *)member(v[i], &entry->fields[1]) : v[i];
        json_print_oip(b, x);
    }
    strbuf_putc(b, ']');
}
// {"ready": true}, of a model with its name in front, which the message lacks.
static void print_status(struct strbuf *b, const ProtobufCMessage *request,
                         const ProtobufCFieldDescriptor *f, bool yes) {
    const ProtobufCFieldDescriptor *name =
        request ? protobuf_c_message_descriptor_get_field_by_name(request->descriptor, "name")
                : NULL;
    strbuf_putc(b, '{');
    if (name) {
        strbuf_puts(b, "\"name\":");
        strbuf_json_str(b, str_of(*(char *const *)member(request, name)));
        strbuf_putc(b, ',');
    }
    strbuf_printf(b, "\"%s\":%s}", f->name, yes ? "true" : "false");
}
static void reply_oip(struct http_req *r, const ProtobufCMessage *m) {
    const ProtobufCMessageDescriptor *d = m->descriptor;
    struct strbuf b = {0};
    unsigned code = 200;
    switch (r->route.row->reply) {
    case REPLY_INFER:
        if (r->route.form == FORM_OIP)
            reply_infer(r, (const Inference__ModelInferResponse *)m);
        else
            reply_generate(r, (const Inference__ModelInferResponse *)m);
        return;
    case REPLY_STATUS:
        code = *(const protobuf_c_boolean *)member(m, d->fields) ? 200 : 400;
        print_status(&b, r->call->request, d->fields, code == 200);
        break;
    case REPLY_MEMBER:
        json_print_oip(&b, *(ProtobufCMessage *const *)member(m, d->fields));
        break;
    case REPLY_LIST:
        print_list(&b, m);
        break;
    case REPLY_SETTINGS:
        oip_print_settings(&b, m);
        break;
    default:
        if (d->n_fields) json_print_oip(&b, m); // an empty reply has no body
    }
    http_reply_text(r, code, "application/json", &b);
}

static void reply_protobuf(struct http_req *r, const ProtobufCMessage *m) {
    if (call_has_outputs(m->descriptor))
        call_outputs_into(r->call, (ProtobufCMessage *)(uintptr_t)m);
    struct pieces p;
    pieces_of(r->call, m, &p);
    set_response(r, 200, "application/x-protobuf", response_of(&r->call->arena, p.v, p.n));
}

// ---- streams

static ssize_t read_stream(void *cls, UNUSED uint64_t pos, char *buf, size_t max) {
    struct http_req *r = cls;
    while (r->long_text && r->long_text->at == r->out_at) { // a line of many numbers
        struct http_text *t = r->long_text;
        ssize_t n = http_text_read(t, buf, max);
        if (n >= 0) return n;
        if (n != -1) return MHD_CONTENT_READER_END_WITH_ERROR;
        r->long_text = t->next;
        http_text_free(t);
    }

    struct http_lent *l = &r->lent;
    if (l->n && l->at == r->out_at) {
        struct span part = {l->v->p + l->offset, l->v->n - l->offset};
        if (part.n > max) part.n = max;
        memcpy(buf, part.p, part.n);
        l->offset += part.n;
        if (l->offset == l->v->n)
            *l = (struct http_lent){.at = l->at, .v = l->v + 1, .n = l->n - 1};
        return (ssize_t)part.n;
    }

    size_t until = r->long_text ? r->long_text->at : l->n ? l->at : r->out.n;
    size_t n = until - r->out_at;
    if (n == 0 && r->stream_ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        r->reader_waits = true;
        http_suspend(r);
        return 0;
    }

    if (n > max) n = max;
    memcpy(buf, r->out.p + r->out_at, n);
    r->out_at += n;
    if (r->out_at == r->out.n) {
        for (struct http_text *t = r->long_text; t; t = t->next)
            t->at = 0;
        l->at = 0;
        strbuf_clear(&r->out);
        r->out_at = 0;
    }
    return (ssize_t)n;
}

// Events that only say what was known already: they wait in the buffer, so that a refusal that
// follows is still a proper error reply.
static bool holds_back(const Hlod__V1__Event *e) {
    return (e->kind_case == HLOD__V1__EVENT__KIND_INGEST && e->ingest->hit) ||
           (e->kind_case == HLOD__V1__EVENT__KIND_COMPILED && e->compiled->cache_hit);
}

// The result, once a stream, is sent from where it lies.
static void put_frame(struct http_req *r, const Hlod__V1__Event *e) {
    if (e->kind_case == HLOD__V1__EVENT__KIND_RESULT) call_outputs_into(r->call, &e->result->base);
    uint32_t n = (uint32_t)hlod__v1__event__get_packed_size(e); // messages end at 2 GiB
    uint8_t head[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    strbuf_add(&r->out, head, 4);
    struct pieces p;
    pieces_of(r->call, &e->base, &p);
    bool lend = e->kind_case == HLOD__V1__EVENT__KIND_RESULT && !r->lent.n;
    if (lend) r->lent = (struct http_lent){.at = r->out.n, .v = p.v, .n = p.n};
    for (size_t i = 0; i < p.n && !lend; i++)
        strbuf_add(&r->out, p.v[i].p, p.v[i].n);
}

static void put_line(struct http_req *r, const Hlod__V1__Event *e) {
    if (e->kind_case == HLOD__V1__EVENT__KIND_RESULT) {
        struct strbuf line = {0};
        strbuf_printf(&line, "{\"tMs\":%.3f,\"result\":", e->t_ms);
        print_with_outputs(&line, &e->result->base, r->call, false);
        strbuf_puts(&line, "}\n");
        if (r->holes.n) {
            struct http_text *t = http_text_new(r, &line, &r->holes), **last = &r->long_text;
            while (*last)
                last = &(*last)->next;
            t->at = r->out.n;
            *last = t;
        } else {
            strbuf_add(&r->out, line.p, line.n);
            strbuf_done(&line);
        }
        return;
    }
    json_print(&r->out, &e->base);
    strbuf_putc(&r->out, '\n');
}

static void stream_event(struct http_req *r, const Hlod__V1__Event *e) {
    bool frames = r->route.form == FORM_FRAMES;
    if (frames)
        put_frame(r, e);
    else
        put_line(r, e);
    if (!r->stream_open && holds_back(e)) return;
    if (!r->stream_open) {
        r->stream_open = true;
        set_response(
            r, 200, frames ? "application/x-protobuf-stream" : "application/x-ndjson",
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 32 << 10, read_stream, r, NULL));
        add_header(r, "Cache-Control", "no-store");
        add_header(r, "Trailer", "Server-Timing");
    }
    if (r->suspended) http_resume(r);
}

static void on_event(struct call *c, const Hlod__V1__Event *e) {
    stream_event(c->transport, e);
}

// An error inside a stream, and the last line of every stream.
static void end_stream(struct http_req *r, status_t st) {
    Hlod__V1__Event e = HLOD__V1__EVENT__INIT;
    e.t_ms = clock_ms_since(r->call->start_ns);
    if (st) {
        e.kind_case = HLOD__V1__EVENT__KIND_ERROR;
        e.error = error_of(&r->call->arena, st);
        stream_event(r, &e);
    }
    call_done_event(r->call, st, &e);
    stream_event(r, &e);
    server_timing(r, true);
    r->stream_ended = true;
    st_drop(st);
}

static void content_range(struct http_req *r, const struct call_file *f) {
    char text[100];
    add_header(r, "Accept-Ranges", "bytes");
    if (!f->part) return;
    snprintf(text, sizeof text, "bytes %lld-%lld/%lld", (long long)f->offset,
             (long long)(f->offset + f->bytes - 1), (long long)f->total);
    add_header(r, "Content-Range", text);
}

// A blob. Its digest is its name for ever: it may be cached.
static void reply_file(struct http_req *r, const Hlod__V1__BlobInfo *info) {
    struct call_file *f = &r->call->file;
    char text[100];
    struct digest digest = {0};
    if (!digest_parse(str_of(info->digest), &digest)) abort(); // our own print of one
    set_response(r, f->part ? 206 : 200, "application/octet-stream",
                 http_file_response(r, f, digest));
    content_range(r, f);
    add_header(r, "Cache-Control", "private, immutable");
    snprintf(text, sizeof text, "\"%s\"", info->digest);
    add_header(r, "ETag", text);
}

// What was made for the call. A page is to be saved: in a browser it would run as a page of ours.
static void reply_made(struct http_req *r) {
    struct call_file *f = &r->call->file;
    struct strbuf name = {0};
    int fd = f->fd;
    f->fd = -1;
    set_response(
        r, 200, f->type,
        MHD_create_response_from_fd_at_offset64((uint64_t)f->bytes, fd, (uint64_t)f->offset));
    strbuf_printf(&name, "attachment; filename=\"%s\"", f->name);
    add_header(r, "Content-Disposition", strbuf_cstr(&name));
    add_header(r, "Content-Security-Policy", "sandbox");
    add_header(r, "Cache-Control", "no-store");
    strbuf_done(&name);
}

// The bytes of one tensor, or a part of them, from where they lie.
static void reply_bytes(struct http_req *r) {
    struct call *c = r->call;
    const struct call_output *o = &c->outputs[0];
    struct strbuf type = {0};
    set_response(r, c->file.part ? 206 : 200, "application/octet-stream",
                 response_of(&c->arena, &o->data, 1));
    content_range(r, &c->file);
    strbuf_printf(&type, "%s[", o->dtype->name);
    for (int32_t d = 0; d < o->rank; d++)
        strbuf_printf(&type, "%s%lld", d ? "," : "", (long long)o->dims[d]);
    strbuf_putc(&type, ']');
    add_header(r, "Hlod-Tensor", type.p);
    add_header(r, "Cache-Control", "no-store");
    strbuf_done(&type);
}

static void on_finish(struct call *c, const ProtobufCMessage *reply, status_t st) {
    struct http_req *r = c->transport;

    if (c->row->stream && (r->stream_open || !st))
        end_stream(r, st);
    else if (st)
        http_reply_error(r, st);
    else {
        switch (r->route.form) {
        case FORM_TEXT: {
            struct strbuf b = {0};
            strbuf_puts(&b, ((const Hlod__V1__InspectReply *)reply)->text);
            http_reply_text(r, 200, "text/plain; charset=utf-8", &b);
            break;
        }
        case FORM_BYTES:
            reply_bytes(r);
            break;
        case FORM_FILE:
            if (c->file.type)
                reply_made(r);
            else
                reply_file(r, (const Hlod__V1__BlobInfo *)reply);
            break;
        case FORM_BINARY:
            reply_binary(r, reply);
            break;
        case FORM_PROTO:
            reply_protobuf(r, reply);
            break;
        case FORM_OIP:
        case FORM_GENERATE:
        case FORM_GENERATE_STREAM:
            reply_oip(r, reply);
            break;
        case FORM_JSON:
        case FORM_NDJSON:
        case FORM_FRAMES: // streams end above
            reply_json(r, reply);
            break;
        }
        if (!r->response) return; // being compressed
        server_timing(r, false);
    }
    if (r->suspended) http_resume(r);
}

const struct call_sink http_sink = {on_event, on_finish};
