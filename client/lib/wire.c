// SPDX-License-Identifier: Apache-2.0
// Over HTTP a unary call is POST /hlod.v1.Hlod/Method with protobuf both ways; a stream asks for
// frames: a length in 32 bits little-endian, then an Event. Refusals come as JSON. Over gRPC both
// are the method of that name.
#include "client/lib/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "proto/json.h"

// ---- results

struct result_head { // in front of the public struct
    struct arena arena;
    max_align_t align[];
};
void *wire_result_new(size_t public_bytes, struct arena **out_arena) {
    struct result_head *r = calloc(1, sizeof *r + public_bytes);
    if (!r) abort(); // small fixed sizes only
    *out_arena = &r->arena;
    return r->align;
}
void wire_result_free(void *public_struct) {
    if (!public_struct) return;
    struct result_head *r =
        (struct result_head *)((char *)public_struct - offsetof(struct result_head, align));
    arena_done(&r->arena);
    free(r);
}
static void free_message(void *m) {
    protobuf_c_message_free_unpacked(m, NULL);
}
void wire_keep(struct arena *a, void *message) {
    arena_link(a, free_message, message);
}

// ---- errors

// A number that outlives the status: the code is in the public enum by construction.
_Static_assert((int)HLOD_UNAVAILABLE == (int)ST_UNAVAILABLE &&
                   (int)HLOD_UNAUTHENTICATED == (int)ST_UNAUTHENTICATED,
               "public codes are the canonical ones");

static const char *reason_name(int reason) {
    const ProtobufCEnumValue *r =
        reason ? protobuf_c_enum_descriptor_get_value(&hlod__v1__reason__descriptor, reason) : NULL;
    return r ? r->name + strlen("REASON_") : "";
}

enum hlod_code wire_end(struct hlod *h, status_t st) {
    arena_done(&h->error_arena);
    h->error = (struct hlod_error){.reason = "", .message = ""};
    if (!st) return HLOD_OK;
    struct str text = str_of(st_message(st)), line;
    struct {
        const char **v;
        size_t n, cap;
    } lines = {0};
    while (str_cut(&text, '\n', &line))
        avec_push(&h->error_arena, &lines, arena_strndup(&h->error_arena, line.p, line.n));
    h->error.code = (enum hlod_code)st_code(st);
    h->error.reason = reason_name(st_get_reason(st));
    if (lines.n) {
        h->error.message = lines.v[0];
        h->error.details = lines.v + 1;
        h->error.n_details = lines.n - 1;
    }
    h->error.retry_after_ms = st_get_retry_ms(st);
    h->error.answered = h->answered;
    h->answered = false;
    st_drop(st);
    return h->error.code;
}

static status_t status_of(const Hlod__V1__Error *e, int64_t retry_ms) {
    struct strbuf text = {0}, name = {0};
    strbuf_puts(&text, e->message);
    for (size_t i = 0; i < e->n_details; i++)
        strbuf_printf(&text, "\n%s", e->details[i]);
    strbuf_printf(&name, "REASON_%s", e->reason);
    const ProtobufCEnumValue *r =
        protobuf_c_enum_descriptor_get_value_by_name(&hlod__v1__reason__descriptor, name.p);
    enum status_code code = st_code_from_name(e->code, strlen(e->code));
    status_t st = st_new(code ? code : ST_UNKNOWN, "%s", strbuf_cstr(&text));
    strbuf_done(&text);
    strbuf_done(&name);
    return st_retry_after(st_reason(st, r ? r->value : 0),
                          e->retry_after_ms ? e->retry_after_ms : retry_ms);
}

status_t wire_refusal(const struct http_reply *r) {
    struct arena a = {0};
    ProtobufCMessage *m;
    status_t st =
        json_parse(&a, &hlod__v1__error__descriptor, (struct str){r->body.p, r->body.n}, &m);
    if (st) { // not ours: the HTTP library's own, or another server
        st_drop(st);
        st = st_new(r->code >= 500 ? ST_UNAVAILABLE : ST_INVALID_ARGUMENT, "HTTP status %d: %.200s",
                    r->code, strbuf_cstr(&r->body));
    } else
        st = status_of((Hlod__V1__Error *)m, r->retry_after_ms);
    arena_done(&a);
    return st;
}

// ---- calls

void wire_call(struct arena *a, bool grpc, const char *method, const ProtobufCMessage *m,
               const ProtobufCMessageDescriptor *reply, struct wire_request *out) {
    *out = (struct wire_request){.reply = reply, .method = method, .message = m};
    if (grpc) return;
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *body = arena_alloc(a, n + 1);
    struct span *part = arena_new_of(a, struct span);
    *part = (struct span){body, protobuf_c_message_pack(m, body)};
    out->path = arena_printf(a, "/hlod.v1.Hlod/%s", method);
    out->content_type = "application/x-protobuf";
    out->parts = part;
    out->n_parts = 1;
}
status_t wire_unary(struct hlod *h, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **out) {
    struct arena a = {0};
    struct wire_request q;
    struct wire_reader r;
    wire_call(&a, h->grpc != NULL, method, request, reply_type, &q);
    status_t st = wire_stream(h, &q, &r);
    if (!st) *out = r.reply;
    arena_done(&a);
    return st;
}

// ---- streams

static bool tell(const struct wire_request *w, const Hlod__V1__Event *e) {
    struct hlod_event p = {.t_ms = e->t_ms, .name = ""};

    switch (e->kind_case) {
    case HLOD__V1__EVENT__KIND_INGEST:
        p.kind = HLOD_EVENT_INGESTED;
        p.hit = e->ingest->hit;
        p.ms = e->ingest->ms;
        break;
    case HLOD__V1__EVENT__KIND_QUEUED:
        p.kind = HLOD_EVENT_QUEUED;
        break;
    case HLOD__V1__EVENT__KIND_COMPILING:
        p.kind = HLOD_EVENT_COMPILING;
        p.hit = e->compiling->joined;
        break;
    case HLOD__V1__EVENT__KIND_PASS:
        if (e->pass->begins) return true; // struct hlod_event tells of those that ended
        p.kind = HLOD_EVENT_PASS;
        p.name = e->pass->name;
        p.ms = e->pass->ms;
        break;
    case HLOD__V1__EVENT__KIND_COMPILED:
        p.kind = HLOD_EVENT_COMPILED;
        p.hit = e->compiled->cache_hit;
        p.ms = e->compiled->ms;
        break;
    case HLOD__V1__EVENT__KIND_PREPARED:
        p.kind = HLOD_EVENT_PREPARED;
        p.hit = e->prepared->hit;
        p.ms = e->prepared->ms;
        break;
    case HLOD__V1__EVENT__KIND_RUNNING:
        p.kind = HLOD_EVENT_RUNNING;
        p.name = e->running->device;
        break;
    default:
        return true; // of a later version
    }

    return !w->on_event || w->on_event(w->ctx, &p);
}

static bool tell_json(const struct wire_request *w, const Hlod__V1__Event *e) {
    struct strbuf b = {0};
    if (!w->on_json) return true;
    json_print(&b, &e->base);
    bool go_on = w->on_json(w->ctx, strbuf_cstr(&b));
    strbuf_done(&b);
    return go_on;
}

// Takes e.
static bool take_event(struct wire_reader *r, Hlod__V1__Event *e) {
    Hlod__V1__Event **keep = NULL;
    bool go_on = (!r->q->on_message || r->q->on_message(r->q->ctx, e)) && tell_json(r->q, e);
    switch (e->kind_case) {
    case HLOD__V1__EVENT__KIND_RESULT:
    case HLOD__V1__EVENT__KIND_COMPILE_RESULT:
        keep = &r->result;
        break;
    case HLOD__V1__EVENT__KIND_PROFILE: // belongs to the result that follows
        keep = &r->profile;
        break;
    case HLOD__V1__EVENT__KIND_ERROR:
        if (!r->st) r->st = status_of(e->error, 0);
        r->refused = true;
        break;
    case HLOD__V1__EVENT__KIND_DONE:
        r->done = true;
        break;
    default:
        go_on = go_on && tell(r->q, e);
    }
    if (keep && !*keep)
        *keep = e;
    else
        hlod__v1__event__free_unpacked(e, NULL);
    return go_on;
}

bool wire_message(void *reader, struct span bytes) {
    struct wire_reader *r = reader;
    if (r->q->reply) {
        if (!r->reply) r->reply = protobuf_c_message_unpack(r->q->reply, NULL, bytes.n, bytes.p);
        return true;
    }
    Hlod__V1__Event *e = hlod__v1__event__unpack(NULL, bytes.n, bytes.p);
    if (!e && !r->st) r->st = st_new(ST_DATA_LOSS, "an event of the reply cannot be read");
    return e && take_event(r, e);
}
bool wire_frames(void *reader, struct span piece) {
    struct wire_reader *r = reader;
    strbuf_add(&r->buf, piece.p, piece.n);
    size_t at = 0;
    bool go_on = true;
    while (go_on && r->buf.n - at >= 4) {
        const uint8_t *p = (const uint8_t *)r->buf.p + at;
        size_t n = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        if (r->buf.n - at - 4 < n) break;
        at += 4 + n;
        if (n) go_on = wire_message(r, (struct span){p + 4, n});
    }
    size_t left = r->buf.n - at;
    if (at && left) memmove(r->buf.p, r->buf.p + at, left);
    if (at) r->buf.n = left;
    return go_on;
}

// What a reply that seems to be over lacks.
static status_t missing(const struct wire_reader *r) {
    const struct wire_request *q = r->q;
    if (q->reply)
        return r->reply ? ST_OK : st_new(ST_DATA_LOSS, "the reply to %s cannot be read", q->method);
    if (r->done && (r->result || q->any_end)) return ST_OK;
    return st_new(ST_UNAVAILABLE, "the server ended the stream without a result");
}
status_t wire_reader_end(struct wire_reader *r, status_t st, const struct http_reply *reply) {
    if (!st && reply && reply->code != 200) {
        st = wire_refusal(reply);
        r->refused = true;
    }
    if (!st && reply && r->q->reply)
        wire_message(r, (struct span){(const uint8_t *)reply->body.p, reply->body.n});
    if (r->st) { // says more than a broken transfer
        st_drop(st);
        st = r->st;
        r->st = ST_OK;
    }
    if (!st) st = missing(r);
    strbuf_done(&r->buf);
    if (st) {
        if (r->reply) protobuf_c_message_free_unpacked(r->reply, NULL);
        if (r->result) hlod__v1__event__free_unpacked(r->result, NULL);
        if (r->profile) hlod__v1__event__free_unpacked(r->profile, NULL);
        r->reply = NULL;
        r->result = r->profile = NULL;
    }
    return st;
}

void wire_note_status(struct wire_reader *r, status_t st) {
    bool local = st_code(st) == ST_UNAVAILABLE || st_code(st) == ST_CANCELLED;
    r->refused = r->refused || (st && (st_get_reason(st) || !local));
}

static void on_sent(void *ctx, int64_t sent, int64_t total) {
    const struct wire_request *q = ((struct wire_reader *)ctx)->q;
    q->on_progress(q->ctx, sent, total);
}
static bool stops(void *ctx) {
    const struct hlod *h = ((struct wire_reader *)ctx)->h;
    return h->stop(h->stop_ctx);
}
struct http_request wire_http(const struct wire_request *q, struct wire_reader *r,
                              const char *headers[2]) {
    headers[0] = q->header;
    headers[1] = NULL;
    return (struct http_request){.method = q->verb ? q->verb : "POST",
                                 .path = q->path,
                                 .content_type = q->content_type,
                                 .accept = q->reply ? "application/x-protobuf"
                                                    : "application/x-protobuf-stream",
                                 .headers = headers,
                                 .parts = q->parts,
                                 .n_parts = q->n_parts,
                                 .body_file = q->body_file,
                                 .on_bytes = q->reply ? NULL : wire_frames,
                                 .on_progress = q->on_progress ? on_sent : NULL,
                                 .stop = r->h && r->h->stop ? stops : NULL,
                                 .ctx = r};
}

struct stream_wait {
    struct wire_reader *r;
    bool ended;
    status_t st;
};
static bool on_message(void *ctx, struct span bytes) {
    return wire_message(((struct stream_wait *)ctx)->r, bytes);
}
static void on_stream_end(void *ctx, status_t st) {
    struct stream_wait *w = ctx;
    w->st = st;
    w->ended = true;
}
status_t wire_stream(struct hlod *h, const struct wire_request *q, struct wire_reader *out) {
    *out = (struct wire_reader){.q = q, .h = h};
    h->answered = false;
    if (h->grpc) {
        struct stream_wait w = {.r = out};
        struct grpc_request g = {q->method, q->message, on_message, on_stream_end, &w};
        struct grpc_flight *f = grpc_flight_start(h->grpc, &g);
        for (bool stopped = false; !w.ended; grpc_client_turn(h->grpc, h->stop && !stopped)) {
            if (stopped || !h->stop || !h->stop(h->stop_ctx)) continue;
            grpc_flight_cancel(f);
            stopped = true;
        }
        wire_note_status(out, w.st);
        h->answered = out->refused;
        return wire_reader_end(out, w.st, NULL);
    }
    struct http_reply reply;
    const char *headers[2];
    struct http_request http = wire_http(q, out, headers);
    status_t st = http_send(h->http, &http, &reply);
    if (st) return wire_reader_end(out, st, NULL);
    st = wire_reader_end(out, ST_OK, &reply);
    h->answered = out->refused;
    http_reply_done(&reply);
    return st;
}
