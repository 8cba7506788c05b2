// SPDX-License-Identifier: Apache-2.0
#include "server/otlp/otlp_encode.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "server/spans.h"

// Numbers of fields, as otlp.proto has them (tests/unit/server/otlp/otlp_encode_test.c reads what
// is written here by that).
enum { RESOURCE_SPANS = 1, RESOURCE = 1, SCOPE_SPANS = 2, SCOPE = 1, SPANS = 2, SCHEMA_URL = 3 };
enum { ATTRIBUTES = 1 }; // of Resource
enum { SCOPE_NAME = 1, SCOPE_VERSION = 2 };
enum {
    SPAN_TRACE = 1,
    SPAN_ID = 2,
    SPAN_STATE = 3,
    SPAN_PARENT = 4,
    SPAN_NAME = 5,
    SPAN_KIND = 6,
    SPAN_START = 7,
    SPAN_END = 8,
    SPAN_ATTRIBUTES = 9,
    SPAN_LINKS = 13,
    SPAN_DROPPED_LINKS = 14,
    SPAN_STATUS = 15,
    SPAN_FLAGS = 16
};
enum { LINK_TRACE = 1, LINK_ID = 2, LINK_FLAGS = 6 };
enum { STATUS_MESSAGE = 2, STATUS_CODE = 3, STATUS_ERROR = 2 };
enum { KEY = 1, VALUE = 2 };
enum { TEXT = 1, BOOL = 2, INT = 3, DOUBLE = 4 }; // of AnyValue
enum kind { INTERNAL = 1, SERVER = 2 };
enum { HAS_IS_REMOTE = 0x100, IS_REMOTE = 0x200 }; // of flags
enum { MOST_LINKS = 128 };
#define US INT64_C(1000)

// ---- attributes

static size_t text_bytes(size_t n) { // of a field of less than 16 with so many bytes
    return 1 + otlp_varint_bytes(n) + n;
}
// A KeyValue as `field`; the lengths are known, so nothing is moved.
static uint8_t *attribute_head(struct otlp_bytes *b, uint32_t field, struct str key, size_t value) {
    size_t n = text_bytes(key.n) + text_bytes(value);
    uint8_t *p = otlp_tag_at(otlp_room(b, n + 16), field, OTLP_BYTES);
    p = otlp_varint_at(p, n);
    p = otlp_tag_at(p, KEY, OTLP_BYTES);
    p = otlp_varint_at(p, key.n);
    memcpy(p, key.p, key.n);
    p = otlp_tag_at(p + key.n, VALUE, OTLP_BYTES);
    return otlp_varint_at(p, value);
}
static void put_text(struct otlp_bytes *b, uint32_t field, struct str key, struct str v) {
    uint8_t *p = attribute_head(b, field, key, text_bytes(v.n));
    p = otlp_tag_at(p, TEXT, OTLP_BYTES);
    p = otlp_varint_at(p, v.n);
    if (v.n) memcpy(p, v.p, v.n);
    b->n = (size_t)(p + v.n - b->p);
}
static void put_number(struct otlp_bytes *b, uint32_t field, struct str key, uint32_t type,
                       uint64_t v) {
    uint8_t *p = attribute_head(b, field, key, 1 + otlp_varint_bytes(v));
    p = otlp_varint_at(otlp_tag_at(p, type, OTLP_VARINT), v);
    b->n = (size_t)(p - b->p);
}
#define TEXT_OF(b, key, v) put_text((b), SPAN_ATTRIBUTES, STR(key), (v))
#define INT_OF(b, key, v)  put_number((b), SPAN_ATTRIBUTES, STR(key), INT, (uint64_t)(v))
#define BOOL_OF(b, key, v) put_number((b), SPAN_ATTRIBUTES, STR(key), BOOL, (v))
// What a text has in front that is UTF-8, at most so many bytes: one that is not would spoil the
// whole message. Names of steps come from workers, and those of nodes from models.
static struct str clean(const char *v) {
    enum { MOST = 1000 };
    struct str s = str_of(v), found = {v, 0};
    uint32_t code;
    while (found.n < s.n && found.n < MOST && !(s.p[found.n] & 0x80)) // ASCII, as most are whole
        found.n++;
    while (found.n < s.n) {
        size_t n = text_first((struct str){s.p + found.n, s.n - found.n}, &code);
        if (code == UINT32_MAX || found.n + n > MOST) break;
        found.n += n;
    }
    return found;
}
static void text_of(struct otlp_bytes *b, struct str key, const char *v) {
    struct str s = clean(v ? v : "");
    if (s.n) put_text(b, SPAN_ATTRIBUTES, key, s);
}

// ---- one span

struct head { // of a span
    const struct trace *trace;
    const uint8_t *id, *parent; // parent NULL: none
    enum kind kind;
    bool remote;
    int64_t start_ns, end_ns; // wall clock
};
static bool is_zero(const uint8_t id[8]) {
    static const uint8_t zeros[8];
    return !memcmp(id, zeros, sizeof zeros);
}
static size_t begin_span(struct otlp_bytes *b, const struct head *h) {
    size_t open = otlp_open(b, SPANS);
    const struct trace *t = h->trace;
    otlp_put_bytes(b, SPAN_TRACE, t->id, sizeof t->id);
    otlp_put_bytes(b, SPAN_ID, h->id, sizeof t->span);
    if (*t->state) otlp_put_bytes(b, SPAN_STATE, t->state, strlen(t->state));
    if (h->parent) otlp_put_bytes(b, SPAN_PARENT, h->parent, sizeof t->parent);
    otlp_put_varint(b, SPAN_KIND, h->kind);
    otlp_put_fixed64(b, SPAN_START, (uint64_t)h->start_ns);
    otlp_put_fixed64(b, SPAN_END, (uint64_t)(h->end_ns > h->start_ns ? h->end_ns : h->start_ns));
    otlp_put_fixed32(b, SPAN_FLAGS,
                     (uint32_t)t->flags | HAS_IS_REMOTE | (h->remote ? IS_REMOTE : 0));
    return open;
}
static void put_link(struct otlp_bytes *b, const struct trace *t) {
    size_t open = otlp_open(b, SPAN_LINKS);
    otlp_put_bytes(b, LINK_TRACE, t->id, sizeof t->id);
    otlp_put_bytes(b, LINK_ID, t->span, sizeof t->span);
    otlp_put_fixed32(b, LINK_FLAGS, (uint32_t)t->flags | HAS_IS_REMOTE);
    otlp_close(b, open);
}
static void put_error(struct otlp_bytes *b, const char *message) {
    size_t open = otlp_open(b, SPAN_STATUS);
    struct str text = clean(message ? message : "");
    if (text.n) otlp_put_bytes(b, STATUS_MESSAGE, text.p, text.n);
    otlp_put_varint(b, STATUS_CODE, STATUS_ERROR);
    otlp_close(b, open);
}

// ---- the work itself

static bool is_rpc(const struct trace_work *w) {
    return !w->name && !w->verb;
}
// By the conventions a server's span is an error where it is the server's fault.
static bool is_error(const struct trace_work *w) {
    if (w->name) return w->code != ST_CODE_OK;
    if (w->verb)
        return w->http >= 500 || (w->code != ST_CANCELLED && w->code &&
                                  st_code_http((enum status_code)w->code) >= 500);
    switch (w->code) {
    case ST_UNKNOWN:
    case ST_DEADLINE_EXCEEDED:
    case ST_UNIMPLEMENTED:
    case ST_INTERNAL:
    case ST_UNAVAILABLE:
    case ST_DATA_LOSS:
        return true;
    default:
        return false;
    }
}

static void put_joined(struct otlp_bytes *b, struct str first, char between, struct str second) {
    size_t n = first.n + 1 + second.n;
    uint8_t *p = otlp_tag_at(otlp_room(b, n + 20), SPAN_NAME, OTLP_BYTES);
    p = otlp_varint_at(p, n);
    memcpy(p, first.p, first.n);
    p += first.n;
    *p++ = (uint8_t)between;
    if (second.n) memcpy(p, second.p, second.n);
    b->n = (size_t)(p + second.n - b->p);
}
static void put_rpc_path(char path[200], const struct trace_work *w) {
    snprintf(path, 200, "/" STR_FMT "/" STR_FMT, STR_ARG(w->service), STR_ARG(w->method));
}
static void put_http(struct otlp_bytes *b, const struct trace_work *w,
                     const struct otlp_origin *o) {
    char path[200];
    struct str verb = str_of(w->verb), route = w->route;
    bool other = !strcmp(w->verb, "_OTHER");
    if (!route.n && w->method.n) {
        put_rpc_path(path, w);
        route = str_of(path);
    }
    struct str named = other ? STR("HTTP") : verb;
    if (route.n)
        put_joined(b, named, ' ', route);
    else
        otlp_put_bytes(b, SPAN_NAME, named.p, named.n);
    otlp_put_raw(b, o->http.p, o->http.n);
    TEXT_OF(b, "http.request.method", verb);
    if (route.n) TEXT_OF(b, "http.route", route);
    if (route.n && !memchr(route.p, '{', route.n)) TEXT_OF(b, "url.path", route);
    if (w->http) INT_OF(b, "http.response.status_code", w->http);
}
static void put_rpc(struct otlp_bytes *b, const struct trace_work *w, const struct otlp_origin *o) {
    put_joined(b, w->service, '/', w->method);
    otlp_put_raw(b, o->grpc.p, o->grpc.n);
    TEXT_OF(b, "rpc.service", w->service);
    TEXT_OF(b, "rpc.method", w->method);
    INT_OF(b, "rpc.grpc.status_code", w->code);
}
static void put_failure(struct otlp_bytes *b, const struct trace_work *w) {
    const ProtobufCEnumValue *r =
        w->reason ? protobuf_c_enum_descriptor_get_value(&hlod__v1__reason__descriptor, w->reason)
                  : NULL;
    char http[12];
    if (!w->code) return;
    TEXT_OF(b, "hlod.code", str_of(st_code_name((enum status_code)w->code)));
    if (r) TEXT_OF(b, "hlod.reason", str_of(r->name + strlen("REASON_")));
    if (!is_error(w)) return;
    snprintf(http, sizeof http, "%d", w->http);
    bool by_number = w->verb && w->http >= 400;
    TEXT_OF(b, "error.type", str_of(by_number ? http : st_code_name((enum status_code)w->code)));
    put_error(b, w->message);
}
// What is known of the job, or asked for.
static void put_work(struct otlp_bytes *b, const struct trace_work *w) {
    const Hlod__V1__RunRecord *r = w->record;
    text_of(b, STR("hlod.model.name"), w->model);
    text_of(b, STR("hlod.tenant"), w->tenant);
    if (w->job) TEXT_OF(b, "hlod.batch_job", str_of(w->job));
    if (w->attempt) INT_OF(b, "hlod.attempt", w->attempt);
    if (w->rows) INT_OF(b, "hlod.batch.rows", w->rows);
    if (!r) return;
    INT_OF(b, "hlod.job", r->job);
    BOOL_OF(b, "hlod.cache_hit", r->cache_hit);
    text_of(b, STR("hlod.device"), r->device);
    text_of(b, STR("hlod.model"), r->model);
    text_of(b, STR("hlod.executable"), r->executable);
}

static void put_itself(struct otlp_bytes *b, const struct trace_work *w,
                       const struct otlp_origin *o, int64_t wall_ns) {
    const struct trace *t = w->trace;
    struct head h = {.trace = t,
                     .id = t->span,
                     .parent = is_zero(t->parent) ? NULL : t->parent,
                     .kind = w->name ? INTERNAL : SERVER,
                     .remote = t->remote,
                     .start_ns = w->start_ns + wall_ns,
                     .end_ns = w->end_ns + wall_ns};
    size_t open = begin_span(b, &h);
    if (w->name)
        otlp_put_bytes(b, SPAN_NAME, w->name, strlen(w->name));
    else if (is_rpc(w))
        put_rpc(b, w, o);
    else
        put_http(b, w, o);

    put_work(b, w);
    put_failure(b, w);
    for (size_t k = 0; k < w->n_links && k < MOST_LINKS; k++)
        put_link(b, w->links[k]);
    if (w->n_links > MOST_LINKS) otlp_put_varint(b, SPAN_DROPPED_LINKS, w->n_links - MOST_LINKS);
    otlp_close(b, open);
}

// ---- its parts

struct parts {
    struct otlp_bytes *b;
    const struct trace_work *w;
    int64_t wall_ns;
    void (*put)(void *ctx);
    void *ctx;
};
static size_t begin_part(const struct parts *x, const char *name, const uint8_t id[8],
                         const uint8_t parent[8], int64_t start_ns, int64_t end_ns) {
    struct head h = {.trace = x->w->trace,
                     .id = id,
                     .parent = parent,
                     .kind = INTERNAL,
                     .start_ns = start_ns + x->wall_ns,
                     .end_ns = end_ns + x->wall_ns};
    size_t open = begin_span(x->b, &h);
    struct str shown = clean(name);
    if (!shown.n) shown = STR("?");
    otlp_put_bytes(x->b, SPAN_NAME, shown.p, shown.n);
    return open;
}
static void put_row(struct otlp_bytes *b, const Hlod__V1__ProfileRow *r) {
    text_of(b, STR("hlod.op"), r->op);
    text_of(b, STR("hlod.impl"), r->impl);
    text_of(b, STR("hlod.bound"), r->bound);
    if (r->flops) INT_OF(b, "hlod.flops", r->flops);
    if (r->bytes) INT_OF(b, "hlod.bytes", r->bytes);
}
// Before the job: the model's bytes, or a request that was long in coming.
static void put_receiving(const struct parts *x) {
    const struct trace_work *w = x->w;
    int64_t ns = w->upload_ms > 0 ? clock_of_ms(w->upload_ms) : w->work_ns - w->start_ns;
    uint8_t id[8];
    if (!w->record || (w->upload_ms <= 0 && ns < 1000 * US)) return;
    trace_new_span(id);
    size_t open = begin_part(x, w->upload_ms > 0 ? "upload" : "receive", id, w->trace->span,
                             w->start_ns, w->start_ns + ns);
    otlp_close(x->b, open);
    x->put(x->ctx);
}
static void put_parts(const struct parts *x, struct arena *a) {
    const struct trace_work *w = x->w;
    struct spans all = spans_of(a, w->record, SPANS_STEPS); // no more than was kept
    uint8_t(*ids)[8] = arena_alloc(a, all.n * sizeof *ids + 1);
    for (size_t k = 0; k < all.n; k++)
        trace_new_span(ids[k]);
    for (size_t k = 0; k < all.n; k++) {
        const struct spans_one *s = &all.v[k];
        int64_t start_ns = w->work_ns + clock_of_ms(s->start_ms);
        size_t open =
            begin_part(x, s->name, ids[k], s->parent < 0 ? w->trace->span : ids[s->parent],
                       start_ns, start_ns + clock_of_ms(s->ms));
        if (s->pass) {
            INT_OF(x->b, "hlod.instructions.before", s->pass->before);
            INT_OF(x->b, "hlod.instructions.after", s->pass->after);
        }
        if (s->row) put_row(x->b, s->row);
        if (w->run && s->kind == SPAN_PHASE && !strcmp(s->name, "run")) put_link(x->b, w->run);
        otlp_close(x->b, open);
        x->put(x->ctx);
    }
}

void otlp_encode_work(struct otlp_bytes *b, const struct trace_work *w, const struct otlp_origin *o,
                      int64_t wall_ns, struct arena *a, void (*put)(void *ctx), void *ctx) {
    struct parts x = {.b = b, .w = w, .wall_ns = wall_ns, .put = put, .ctx = ctx};
    put_itself(b, w, o, wall_ns);
    put(ctx);
    if (!w->record) return;
    put_receiving(&x);
    put_parts(&x, a);
}

// ---- who sends, the request around

static void put_address(struct otlp_bytes *b, const struct otlp_address *a) {
    if (!a->port) return;
    TEXT_OF(b, "server.address", str_of(a->host));
    INT_OF(b, "server.port", a->port);
}
void otlp_origin_make(struct otlp_origin *o, const char *version,
                      const struct otlp_attribute *resource, size_t n,
                      const struct otlp_address *http, const struct otlp_address *grpc) {
    *o = (struct otlp_origin){0};
    for (size_t k = 0; k < n; k++)
        put_text(&o->resource, ATTRIBUTES, str_of(resource[k].key), str_of(resource[k].value));
    otlp_put_bytes(&o->scope, SCOPE_NAME, "hlod", 4);
    otlp_put_bytes(&o->scope, SCOPE_VERSION, version, strlen(version));
    TEXT_OF(&o->http, "url.scheme", str_of(http->scheme));
    put_address(&o->http, http);
    TEXT_OF(&o->grpc, "rpc.system", STR("grpc"));
    put_address(&o->grpc, grpc);
}
void otlp_origin_done(struct otlp_origin *o) {
    free(o->resource.p);
    free(o->scope.p);
    free(o->http.p);
    free(o->grpc.p);
    *o = (struct otlp_origin){0};
}

static size_t schema_bytes(void) {
    return text_bytes(strlen(OTLP_SCHEMA));
}
void otlp_request_head(struct otlp_bytes *b, const struct otlp_origin *o, size_t bytes) {
    size_t scoped = text_bytes(o->scope.n) + bytes + schema_bytes();
    size_t all = text_bytes(o->resource.n) + text_bytes(scoped) + schema_bytes();
    uint8_t *p = otlp_tag_at(otlp_room(b, 20), RESOURCE_SPANS, OTLP_BYTES);
    b->n = (size_t)(otlp_varint_at(p, all) - b->p);
    otlp_put_bytes(b, RESOURCE, o->resource.p, o->resource.n);
    p = otlp_tag_at(otlp_room(b, 20), SCOPE_SPANS, OTLP_BYTES);
    b->n = (size_t)(otlp_varint_at(p, scoped) - b->p);
    otlp_put_bytes(b, SCOPE, o->scope.p, o->scope.n);
}
void otlp_request_tail(struct otlp_bytes *b) {
    for (int k = 0; k < 2; k++) // of the scope's spans, of the resource's
        otlp_put_bytes(b, SCHEMA_URL, OTLP_SCHEMA, strlen(OTLP_SCHEMA));
}
