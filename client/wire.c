// SPDX-License-Identifier: Apache-2.0
// Over HTTP a unary call is POST /hlod.v1.Hlod/Method with protobuf both ways; a stream asks for
// frames: a length in 32 bits little-endian, then an Event. Refusals come as JSON.
#include "client/wire.h"

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

static status_t refusal(const struct http_reply *r) {
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

status_t wire_unary(struct hlod *h, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **out) {
    size_t n = protobuf_c_message_get_packed_size(request);
    uint8_t *body = malloc(n + 1);
    if (!body) return st_oom();
    protobuf_c_message_pack(request, body);
    struct strbuf path = {0};
    strbuf_printf(&path, "/hlod.v1.Hlod/%s", method);
    struct span part = {body, n};
    struct http_reply r;
    status_t st = http_send(h->http,
                            &(struct http_request){.method = "POST",
                                                   .path = path.p,
                                                   .content_type = "application/x-protobuf",
                                                   .accept = "application/x-protobuf",
                                                   .parts = &part,
                                                   .n_parts = 1},
                            &r);
    free(body);
    strbuf_done(&path);
    if (st) return st;
    if (r.code != 200)
        st = refusal(&r);
    else if (!(*out = protobuf_c_message_unpack(reply_type, NULL, r.body.n,
                                                (const uint8_t *)strbuf_cstr(&r.body))))
        st = st_new(ST_DATA_LOSS, "the reply to %s cannot be read", method);
    http_reply_done(&r);
    return st;
}

struct reader {
    const struct wire_stream *w;
    struct strbuf buf; // of an unfinished frame
    Hlod__V1__Event *result, *profile;
    status_t st;
    bool done;
};

static bool tell(const struct wire_stream *w, const Hlod__V1__Event *e) {
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

// Takes e.
static bool take_event(struct reader *r, Hlod__V1__Event *e) {
    Hlod__V1__Event **keep = NULL;
    bool go_on = true;
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
        break;
    case HLOD__V1__EVENT__KIND_DONE:
        r->done = true;
        break;
    default:
        go_on = tell(r->w, e);
    }
    if (keep && !*keep)
        *keep = e;
    else
        hlod__v1__event__free_unpacked(e, NULL);
    return go_on;
}

static bool on_bytes(void *ctx, struct span piece) {
    struct reader *r = ctx;
    strbuf_add(&r->buf, piece.p, piece.n);
    size_t at = 0;
    bool go_on = true;
    while (go_on && r->buf.n - at >= 4) {
        const uint8_t *p = (const uint8_t *)r->buf.p + at;
        size_t n = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        if (r->buf.n - at - 4 < n) break;
        at += 4 + n;
        if (n == 0) continue;
        Hlod__V1__Event *e = hlod__v1__event__unpack(NULL, n, p + 4);
        if (!e && !r->st) r->st = st_new(ST_DATA_LOSS, "an event of the reply cannot be read");
        go_on = e && take_event(r, e);
    }
    size_t left = r->buf.n - at;
    if (at && left) memmove(r->buf.p, r->buf.p + at, left);
    if (at) r->buf.n = left;
    return go_on;
}

status_t wire_stream(struct hlod *h, const struct wire_stream *w, Hlod__V1__Event **out_result,
                     Hlod__V1__Event **out_profile) {
    struct reader r = {.w = w};
    struct http_reply reply;
    const char *headers[2] = {w->header, NULL};
    status_t st = http_send(h->http,
                            &(struct http_request){.method = "POST",
                                                   .path = w->path,
                                                   .content_type = w->content_type,
                                                   .accept = "application/x-protobuf-stream",
                                                   .headers = headers,
                                                   .parts = w->parts,
                                                   .n_parts = w->n_parts,
                                                   .body_file = w->body_file,
                                                   .on_bytes = on_bytes,
                                                   .ctx = &r},
                            &reply);
    if (!st) {
        if (reply.code != 200) st = refusal(&reply);
        http_reply_done(&reply);
    }
    if (r.st) { // says more than a broken transfer
        st_drop(st);
        st = r.st;
    }
    if (!st && (!r.done || !r.result))
        st = st_new(ST_UNAVAILABLE, "the server ended the stream without a result");
    strbuf_done(&r.buf);
    if (st) {
        if (r.result) hlod__v1__event__free_unpacked(r.result, NULL);
        if (r.profile) hlod__v1__event__free_unpacked(r.profile, NULL);
        return st;
    }
    *out_result = r.result;
    *out_profile = r.profile;
    return ST_OK;
}
