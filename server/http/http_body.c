// SPDX-License-Identifier: Apache-2.0
// Receiving: models stream into an upload, raw tensors straight into their memfd, JSON and protobuf
// are gathered up to a limit. After an error the rest of the body is read and dropped (the library
// can answer only then), but not without end.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/json.h"
#include "proto/query.h"
#include "scheduler/loop.h"
#include "server/http/coding.h"
#include "server/http/http_req.h"
#include "server/oip/oip.h"

enum { MAX_DROPPED = 1 << 30 };

static const char *header(struct http_req *r, const char *name) {
    const char *v = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
    return v ? v : "";
}

void http_fail(struct http_req *r, status_t st) {
    if (r->error)
        st_drop(st);
    else
        r->error = st;
}

MUST_CHECK static status_t framing(const char *why) {
    return st_because(ST_INVALID_ARGUMENT, BAD_FRAMING, "%s", why);
}
MUST_CHECK static status_t too_large(int64_t max) {
    return st_because(ST_INVALID_ARGUMENT, BODY_TOO_LARGE, "the body is larger than %lld bytes",
                      (long long)max);
}

static int64_t limit(const struct http_req *r) {
    const struct http_config *c = &r->h->cfg;
    if (r->route.row && r->route.row->scope == SCOPE_NONE) return API_OPEN_BYTES;
    switch (r->in) {
    case IN_MODEL:
        return c->max_model_bytes;
    case IN_BINARY:
        return c->max_message_bytes;
    case IN_TEXT: // a load brings a model in base64
        return r->protobuf || (r->call && r->call->whole == WHOLE_RAW) ||
                       (r->route.row &&
                        (r->route.row->body == BODY_LOAD || r->route.row->body == BODY_BYTES))
                   ? c->max_message_bytes
                   : c->max_json_bytes;
    case IN_NONE:
        return 1 << 20;
    }
    return 0;
}

// Compressed bodies are gathered as they come and decompressed when whole, on the pool; the lengths
// of their parts then count what is inside.
static status_t choose_coding(struct http_req *r, const char *coding) {
    enum coding c = CODING_NONE;
    bool ours = coding_of(coding, &c);
    if (ours && c == CODING_NONE) return ST_OK;
    r->compressed = ours;
    if (!r->compressed || r->in == IN_MODEL)
        return st_because(ST_INVALID_ARGUMENT, UNSUPPORTED_MEDIA_TYPE,
                          "Content-Encoding '%.40s' is not supported%s", coding,
                          r->in == IN_MODEL ? " for models" : "");
    if (r->in == IN_BINARY) r->in = IN_TEXT;
    return ST_OK;
}

static bool takes_tensors(const struct api_row *row) {
    return row->body == BODY_TENSORS || row->body == BODY_INFER;
}
static bool generates(const struct http_req *r) {
    return r->route.form == FORM_GENERATE || r->route.form == FORM_GENERATE_STREAM;
}

static status_t choose(struct http_req *r) {
    const char *type = header(r, "Content-Type"), *length = header(r, "Content-Length"),
               *coding = header(r, "Transfer-Encoding");
    r->length = -1;
    if (*length && *coding) return framing("Content-Length together with Transfer-Encoding");
    if (*length && (!str_to_i64(str_of(length), &r->length) || r->length < 0))
        return framing("bad Content-Length");
    if (!*length && !*coding) r->length = 0;

    const struct api_row *row = r->route.row;
    r->protobuf =
        !strncmp(type, "application/x-protobuf", 22) || !strncmp(type, "application/protobuf", 20);
    const char *split = header(r, "Inference-Header-Content-Length");

    if (row->body == BODY_BLOB && !r->route.rpc)
        r->in = IN_MODEL;
    else if (row->body == BODY_BYTES && !r->route.rpc)
        r->in = IN_TEXT;
    else if (row->body == BODY_MODEL && !r->route.rpc && !r->protobuf &&
             strncmp(type, "application/json", 16)) {
        r->in = r->length == 0 ? IN_NONE : IN_MODEL;
        // curl's default for --data-binary says nothing about the bytes.
        bool vague = !strncmp(type, "application/x-www-form-urlencoded", 33) ||
                     !strncmp(type, "application/octet-stream", 24);
        r->call->content_type = arena_strdup(&r->call->arena, vague ? "" : type);
        r->call->as_form = *type == 'a' && vague && type[12] == 'x';
        if (!strncmp(type, "multipart/", 10))
            return st_because(
                ST_INVALID_ARGUMENT, UNSUPPORTED_MEDIA_TYPE,
                "multipart bodies are not supported: send the model's bytes as they are");
    } else if (row->body == BODY_INFER && (generates(r) || !strcmp(split, "0"))) {
        r->in = IN_TEXT;
        r->call->whole = generates(r) ? WHOLE_GENERATE : WHOLE_RAW;
    } else if (takes_tensors(row) && *split) {
        r->in = IN_BINARY;
        if (!str_to_i64(str_of(split), &r->json_bytes) || r->json_bytes <= 0 ||
            r->json_bytes > r->h->cfg.max_json_bytes)
            return framing("Inference-Header-Content-Length: expected the length of the JSON in "
                           "front of the tensors");
        if (r->length >= 0 && r->json_bytes > r->length && !*header(r, "Content-Encoding"))
            return framing("Inference-Header-Content-Length is larger than the body");
    } else if (row->body == BODY_NONE && !r->route.rpc)
        r->in = IN_NONE;
    else {
        r->in = IN_TEXT;
        bool json = !*type || row->dialect == DIALECT_OIP || // whose clients say what they like
                    !strncmp(type, "application/json", 16) ||
                    !strncmp(type, "application/x-www-form-urlencoded", 33);
        if (!json && !r->protobuf)
            return st_because(
                ST_INVALID_ARGUMENT, UNSUPPORTED_MEDIA_TYPE,
                "Content-Type '%.80s': expected application/json or application/x-protobuf", type);
    }

    RETURN_IF_ERR(choose_coding(r, header(r, "Content-Encoding")));
    return r->length > limit(r) ? too_large(limit(r)) : ST_OK;
}

static void upload_ready(void *ctx) {
    struct http_req *r = ctx;
    if (upload_finished(r->upload)) {
        struct call *c = r->call;
        status_t st = upload_result(r->upload, &c->source, &c->source_fresh);
        if (st) http_fail(r, st);
        c->has_source = true;
        c->upload_ms = clock_ms_since(c->start_ns);
        upload_free(r->upload);
        r->upload = NULL;
        budget_set(r->h->api->budget, &r->hold, 0);
        http_body_end(r);
        return;
    }
    if (r->suspended) http_resume(r);
}

void http_body_begin(struct http_req *r) {
    status_t st = choose(r);
    if (!st && r->in == IN_MODEL) {
        r->upload = upload_new(r->h->loop, sched_store(r->h->api->sched), upload_ready, r);
        if (!r->upload) st = st_oom();
    }
    if (st) http_fail(r, st);
}

// The JSON in front of raw tensors is complete: now their places are known.
static status_t begin_binary(struct http_req *r) {
    r->binary_ready = true;
    struct tensors_limits l = {r->h->cfg.max_message_bytes};
    RETURN_IF_ERR(tensors_head(r->call, &l, (struct str){r->text.p, r->text.n}));
    int64_t rest = r->length - r->json_bytes, want = tensors_binary_left(r->call, &r->binary);
    if (r->length >= 0 && rest != want)
        return st_because(ST_INVALID_ARGUMENT, BAD_FRAMING,
                          "%lld bytes follow the JSON, the inputs' binary_data_size say %lld",
                          (long long)rest, (long long)want);
    return ST_OK;
}

static status_t add(struct http_req *r, const char *p, size_t n) {
    if (r->in != IN_NONE && !strbuf_room(&r->text, n)) return st_oom();
    if (r->in == IN_TEXT) {
        strbuf_add(&r->text, p, n);
        return ST_OK;
    }
    if (r->in == IN_NONE) return framing("no body is expected here");
    size_t head = 0;
    if ((int64_t)r->text.n < r->json_bytes) {
        head = n < (size_t)r->json_bytes - r->text.n ? n : (size_t)r->json_bytes - r->text.n;
        strbuf_add(&r->text, p, head);
    }
    if ((int64_t)r->text.n == r->json_bytes && !r->binary_ready) RETURN_IF_ERR(begin_binary(r));
    return tensors_binary_add(r->call, &r->binary, p + head, n - head);
}

static void on_room(void *ctx, status_t st) {
    struct http_req *r = ctx;
    if (st) http_fail(r, st);
    http_resume(r);
}
// Room for the whole body where its length is known, so that nobody waits in the middle holding
// what others wait for; chunked bodies ask as they grow.
static bool reserve(struct http_req *r, size_t more) {
    int64_t need = r->in == IN_MODEL ? 2 * UPLOAD_BUFFER_BYTES
                   : r->length >= 0 && !r->hold.slow
                       ? r->length
                       : (r->received + (int64_t)more + 0xffff) & ~0xffffll;
    r->hold.arrived = r->in == IN_MODEL ? 0 : r->received + (int64_t)more;
    if (!r->hold.tenant && r->call) r->hold.tenant = r->call->principal.tenant;
    return r->hold.held >= need ||
           budget_take(r->h->api->budget, &r->hold, need - r->hold.held, on_room, r);
}

void http_body_add(struct http_req *r, const char *p, size_t *n) {
    size_t all = *n;
    if (!r->error && r->received + (int64_t)all > limit(r)) http_fail(r, too_large(limit(r)));
    if (!r->error && !reserve(r, all)) {
        http_suspend(r); // on_room resumes
        return;
    }
    *n = 0;
    if (r->error) {
        r->received += (int64_t)all;
        return;
    }
    if (r->in == IN_MODEL) {
        size_t taken = upload_add(r->upload, p, all);
        r->received += (int64_t)taken;
        *n = all - taken;
        if (*n) http_suspend(r); // upload_ready resumes
        return;
    }
    r->received += (int64_t)all;
    status_t st = add(r, p, all);
    if (st) http_fail(r, st);
}

// ---- from body to request message

// A body that was compressed: JSON alone, or with tensors behind it.
static status_t decompress(struct http_req *r) {
    struct strbuf inside = {0};
    int64_t max = r->json_bytes ? r->h->cfg.max_message_bytes : limit(r);
    status_t st = coding_undo((struct str){r->text.p, r->text.n}, max, &inside);
    strbuf_done(&r->text);
    r->text = inside;
    return st;
}
static status_t parse_split(struct http_req *r) {
    struct call *c = r->call;
    struct tensors_limits l = {r->h->cfg.max_message_bytes};
    size_t head = (size_t)r->json_bytes;
    if (head > r->text.n) return framing("Inference-Header-Content-Length is larger than the body");
    RETURN_IF_ERR(tensors_head(c, &l, (struct str){r->text.p, head}));
    RETURN_IF_ERR(tensors_binary_add(c, &r->binary, r->text.p + head, r->text.n - head));
    return tensors_binary_left(c, &r->binary) ? framing("the body ends before the tensors do")
                                              : ST_OK;
}

static status_t parse(struct http_req *r) {
    struct call *c = r->call;
    if (r->compressed) RETURN_IF_ERR(decompress(r));
    if (r->compressed && r->json_bytes) return parse_split(r);
    struct str text = {r->text.p, r->text.n};
    struct tensors_limits l = {r->h->cfg.max_message_bytes};
    bool oip = c->row->dialect == DIALECT_OIP, tensors = takes_tensors(c->row);
    if (r->in == IN_TEXT && r->protobuf && !oip) {
        RETURN_IF_ERR(call_unpack(c, (struct span){(const uint8_t *)text.p, text.n}));
        return tensors ? tensors_raw(c, &l) : ST_OK;
    }

    if (c->whole) { // its meaning is the model's to say: oip_infer.c
        c->whole_body = text;
        text = (struct str){0};
        tensors = false;
    }
    if (c->row->body == BODY_BYTES && !r->route.rpc) { // the call may outlive the request
        c->body = (struct span){(const uint8_t *)r->text.p, r->text.n};
        if (r->text.p) arena_link(&c->arena, free, r->text.p);
        r->text = (struct strbuf){0};
        return json_parse(&c->arena, c->row->input, (struct str){0}, &c->request);
    }
    if (c->row->body == BODY_SETTINGS && !r->route.rpc) return oip_parse_settings(c, text);

    if (r->in == IN_TEXT && tensors) return tensors_json(c, &l, text);
    if (r->in == IN_TEXT && oip) return json_parse_oip(&c->arena, c->row->input, text, &c->request);
    if (r->in == IN_TEXT) return json_parse(&c->arena, c->row->input, text, &c->request);
    if (r->in == IN_BINARY) {
        if (!r->binary_ready || tensors_binary_left(c, &r->binary))
            return framing("the body ends before the tensors do");
        return ST_OK;
    }
    return json_parse(&c->arena, c->row->input, (struct str){0}, &c->request);
}

static void parse_work(void *arg) {
    struct http_req *r = arg;
    struct arena_guard g;
    r->error = ARENA_GUARD(&r->call->arena, &g) ? parse(r) : st_oom();
    arena_unguard(&r->call->arena, &g);
}

struct query {
    struct http_req *r;
    status_t st;
};
static enum MHD_Result on_query(void *cls, UNUSED enum MHD_ValueKind kind, const char *key,
                                const char *value) {
    struct query *q = cls;
    if (!q->st) q->st = query_set(&q->r->call->arena, q->r->call->request, key, value ? value : "");
    return q->st ? MHD_NO : MHD_YES;
}
static status_t query_parameters(struct http_req *r) {
    if (r->route.rpc || r->route.row->dialect == DIALECT_OIP) return ST_OK;
    struct query q = {r, ST_OK};
    MHD_get_connection_values(r->conn, MHD_GET_ARGUMENT_KIND, on_query, &q);
    return q.st;
}

static void parsed(void *arg) {
    struct http_req *r = arg;
    struct call *c = r->call;
    r->pooled = false;
    budget_set(r->h->api->budget, &r->hold,
               (int64_t)(r->text.n + c->body.n) + call_bytes(c) + tensors_bytes(c));
    if (r->gone) {
        http_leave(r);
        return;
    }
    if (!r->error) r->error = query_parameters(r);
    if (!r->error) r->error = http_route_params(&c->arena, &r->route, c->request);
    if (!r->error && c->row->input == &hlod__v1__run_request__descriptor && !c->row->stream &&
        ((Hlod__V1__RunRequest *)c->request)->binary_data_output && r->route.form == FORM_JSON)
        r->route.form = FORM_BINARY;
    if (r->error) {
        status_t st = r->error;
        r->error = ST_OK;
        call_finish(c, NULL, st);
    } else
        api_dispatch(c);
}

static void parse_on_pool(struct http_req *r) {
    loop_work(r->h->loop, parse_work, parsed, r);
}
static void on_room_inside(void *ctx, status_t st) {
    struct http_req *r = ctx;
    if (st) {
        http_fail(r, st);
        parsed(r);
    } else
        parse_on_pool(r);
}
// What is inside a compressed body has its room before it is taken out.
static void unpack_body(struct http_req *r) {
    int64_t max = r->json_bytes ? r->h->cfg.max_message_bytes : limit(r),
            need = (int64_t)r->text.n + coding_most((int64_t)r->text.n, max);
    if (r->hold.held >= need ||
        budget_take(r->h->api->budget, &r->hold, need - r->hold.held, on_room_inside, r))
        parse_on_pool(r);
}

void http_body_end(struct http_req *r) {
    if (!r->error && r->upload) {
        upload_end(r->upload);
        return;
    }
    r->pooled = true;
    if (r->error)
        parsed(r);
    else if (r->compressed)
        unpack_body(r);
    else if (r->text.n > 64 << 10 && r->in == IN_TEXT)
        parse_on_pool(r);
    else {
        parse_work(r);
        parsed(r);
    }
}
