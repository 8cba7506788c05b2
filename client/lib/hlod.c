// SPDX-License-Identifier: Apache-2.0
// Connections, and compiling: hlod.h's first half. Over HTTP the model's bytes go as the body of
// one request, from memory or a file, and all else is in the query; over gRPC it is one message.
#include "client/hlod.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/store/file.h"
#include "client/lib/onnx_external.h"
#include "client/lib/upload.h"
#include "proto/message.h"

status_t wire_open(const char *addr, const struct http_security *s, struct http_client **out_http,
                   struct grpc_client **out_grpc) {
    bool plain = !strncmp(addr, "grpc://", 7), tls = !strncmp(addr, "grpcs://", 8);
    if (plain || tls) return grpc_client_new(addr + (tls ? 8 : 7), tls, s, out_grpc);
    return http_client_new(addr, s, out_http);
}
void wire_close_grpc(struct grpc_client *c) {
    grpc_client_stop(c);
    while (grpc_client_turn(c, false))
        ;
    grpc_client_free(c);
}

enum hlod_code hlod_open_secure(const char *addr, const struct hlod_security *s,
                                struct hlod **out) {
    if (!addr || !*addr) addr = getenv("HLOD_ADDR");
    if (!addr || !*addr) addr = "127.0.0.1:8000";
    struct hlod *h = calloc(1, sizeof *h);
    if (!h) return HLOD_RESOURCE_EXHAUSTED;
    struct http_security with = {0};
    struct arena a = {0};
    if (s && s->size >= sizeof *s)
        with = (struct http_security){s->token, s->cacert, s->cert, s->key};
    status_t st = http_security_env(&a, &with);
    if (!st) st = wire_open(addr, &with, &h->http, &h->grpc);
    arena_done(&a);
    enum hlod_code code = wire_end(h, st);
    if (code)
        hlod_close(h);
    else
        *out = h;
    return code;
}
enum hlod_code hlod_open(const char *addr, struct hlod **out) {
    return hlod_open_secure(addr, NULL, out);
}

void hlod_close(struct hlod *h) {
    if (!h) return;
    http_client_free(h->http);
    if (h->grpc) wire_close_grpc(h->grpc);
    arena_done(&h->error_arena);
    free(h);
}

const struct hlod_error *hlod_error(const struct hlod *h) {
    return &h->error;
}

const char *hlod_code_name(enum hlod_code code) {
    return st_code_name((enum status_code)code);
}

// ---- executables

static struct hlod_spec *specs(struct arena *a, Hlod__V1__TensorSpec *const *v, size_t n) {
    struct hlod_spec *out = arena_array(a, struct hlod_spec, n + 1);
    for (size_t i = 0; i < n; i++) {
        int64_t *dims = arena_array(a, int64_t, v[i]->n_dims + 1);
        for (size_t d = 0; d < v[i]->n_dims; d++)
            dims[d] = v[i]->dims[d]->size;
        out[i] = (struct hlod_spec){v[i]->name, v[i]->dtype, (int32_t)v[i]->n_dims, dims};
    }
    return out;
}

const struct hlod_type_count *wire_type_counts(struct arena *a, Hlod__V1__TypeCount *const *v,
                                               size_t n) {
    struct hlod_type_count *c = arena_array(a, struct hlod_type_count, n + 1);
    for (size_t i = 0; i < n; i++)
        c[i] = (struct hlod_type_count){v[i]->type, v[i]->count};
    return c;
}
void wire_executable(struct arena *a, const Hlod__V1__ExecutableInfo *x,
                     struct hlod_executable *out) {
    out->digest = x->digest;
    out->model = x->source_digest;
    if (x->signature) {
        out->inputs = specs(a, x->signature->inputs, x->signature->n_inputs);
        out->n_inputs = x->signature->n_inputs;
        out->outputs = specs(a, x->signature->outputs, x->signature->n_outputs);
        out->n_outputs = x->signature->n_outputs;
    }

    if (x->before) {
        out->entry_before = x->before->entry;
        out->total_before = x->before->total;
    }
    const Hlod__V1__Counts *n = x->optimized && x->optimized->entry ? x->optimized : x->after;
    if (n) { // a plugin's compiler made more of it than is left by ours
        out->entry_after = n->entry;
        out->total_after = n->total;
        out->fusions = n->fusions;
    }
    out->peak_bytes = x->peak_bytes;
    out->weights_bytes = x->weights_bytes;
    out->compile_ms = x->compile_ms;
    struct hlod_pass *p = arena_array(a, struct hlod_pass, x->n_passes + 1);
    for (size_t i = 0; i < x->n_passes; i++)
        p[i] = (struct hlod_pass){x->passes[i]->name, x->passes[i]->ms, x->passes[i]->before,
                                  x->passes[i]->after};
    out->passes = p;
    out->n_passes = x->n_passes;
    out->precision_note = x->precision_note;
    out->computed_in = wire_type_counts(a, x->computed_in, x->n_computed_in);
    out->n_computed_in = x->n_computed_in;
}

void hlod_executable_free(struct hlod_executable *e) {
    wire_result_free(e);
}

// ---- compile

// NULL and "" are left out.
static void query(struct strbuf *b, const char *key, const char *value) {
    if (!value || !*value) return;
    strbuf_printf(b, "%c%s=", strchr(b->p, '?') ? '&' : '?', key);
    for (const char *p = value; *p; p++)
        if (isalnum((unsigned char)*p) || strchr("-_.~", *p))
            strbuf_putc(b, *p);
        else
            strbuf_printf(b, "%%%02X", (unsigned char)*p);
}

static void query_count(struct strbuf *b, const char *key, int64_t n) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, n);
    if (n) query(b, key, text);
}
static bool bounded(const struct hlod_compile_options *o) {
    return o->max_instructions || o->max_bytes || o->max_hbm;
}

static const char *compile_path(struct arena *a, const char *model,
                                const struct hlod_compile_options *o) {
    struct strbuf b = {0}, text = {0};
    strbuf_puts(&b, "/v1/executables");
    query(&b, "model", model);
    query(&b, "format", o->format);
    query(&b, "device", o->device);
    query(&b, "target", o->target);
    query(&b, "precision", o->precision);
    query_count(&b, "timeout_ms", o->timeout_ms);
    query_count(&b, "replicas", o->replicas);
    if (bounded(o)) {
        strbuf_printf(&text, "instructions=%" PRId64 ",bytes=%" PRId64 ",hbm=%" PRId64,
                      o->max_instructions, o->max_bytes, o->max_hbm);
        query(&b, "budget", text.p);
    }
    for (size_t i = 0; i < o->n_shapes; i++) {
        strbuf_clear(&text);
        strbuf_printf(&text, "%s=", o->shapes[i].input);
        for (int32_t d = 0; d < o->shapes[i].rank; d++)
            strbuf_printf(&text, "%s%lld", d ? "x" : "", (long long)o->shapes[i].dims[d]);
        query(&b, "shape", text.p);
    }
    const char *path = arena_strdup(a, b.p);
    strbuf_done(&text);
    strbuf_done(&b);
    return path;
}

static char *copy(struct arena *a, const char *s) {
    return s ? arena_strdup(a, s) : (char *)protobuf_c_empty_string;
}
ProtobufCBinaryData wire_joined(struct arena *a, const struct span *parts, size_t n) {
    size_t bytes = 0;
    if (n == 1) return (ProtobufCBinaryData){parts[0].n, (uint8_t *)(uintptr_t)parts[0].p};
    for (size_t i = 0; i < n; i++)
        bytes += parts[i].n;

    uint8_t *p = arena_alloc(a, bytes + 1), *end = p;
    for (size_t i = 0; i < n; end += parts[i++].n)
        if (parts[i].n) memcpy(end, parts[i].p, parts[i].n);
    return (ProtobufCBinaryData){bytes, p};
}
// The model in one piece: a message field.
static status_t whole(struct arena *a, const struct wire_model *m, ProtobufCBinaryData *out) {
    struct span file;
    if (m->file) RETURN_IF_ERR(file_map(a, m->file, &file));
    *out = wire_joined(a, m->file ? &file : m->parts, m->file ? 1 : m->n_parts);
    if (out->len > INT32_MAX - (1 << 20))
        return st_new(ST_INVALID_ARGUMENT,
                      "a model of %zu bytes is beyond one gRPC message: use http:// for it",
                      out->len);
    return ST_OK;
}
Hlod__V1__ShapeBinding **wire_shapes(struct arena *a, const struct hlod_shape *v, size_t n) {
    Hlod__V1__ShapeBinding **out = arena_array(a, Hlod__V1__ShapeBinding *, n + 1);
    for (size_t i = 0; i < n; i++) {
        Hlod__V1__ShapeBinding *s = out[i] = message_new(a, &hlod__v1__shape_binding__descriptor);
        s->input = copy(a, v[i].input);
        s->n_dims = v[i].rank > 0 ? (size_t)v[i].rank : 0;
        s->dims = arena_dup(a, v[i].dims, s->n_dims * sizeof *s->dims);
    }
    return out;
}
static status_t compile_message(struct arena *a, const struct wire_model *m,
                                const struct hlod_compile_options *o,
                                const ProtobufCMessage **out) {
    Hlod__V1__CompileRequest *q = message_new(a, &hlod__v1__compile_request__descriptor);
    q->model = copy(a, m->digest);
    q->format = copy(a, o->format);
    q->device = copy(a, o->device);
    q->timeout_ms = o->timeout_ms;
    q->target = copy(a, o->target);
    q->options = message_new(a, &hlod__v1__compile_options__descriptor);
    q->options->precision = copy(a, o->precision);
    q->options->replicas = o->replicas;
    if (bounded(o)) {
        q->budget = message_new(a, &hlod__v1__budget__descriptor);
        q->budget->instructions = o->max_instructions;
        q->budget->bytes = o->max_bytes;
        q->budget->hbm = o->max_hbm;
    }
    q->shapes = wire_shapes(a, o->shapes, o->n_shapes);
    q->n_shapes = o->n_shapes;
    if (!m->digest) RETURN_IF_ERR(whole(a, m, &q->source));
    *out = &q->base;
    return ST_OK;
}

// The caller may have been built with a shorter struct: what it does not know is zero.
static struct hlod_compile_options options_of(const struct hlod_compile_options *given) {
    struct hlod_compile_options o = HLOD_COMPILE_OPTIONS;
    if (given) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    return o;
}
// Shapes of many inputs do not fit into a path (server/http/conn/http_guard.h): a model with a
// cache of keys and values for each of its layers, a table with an input for each of its columns.
static bool beyond_a_path(const struct hlod_compile_options *o) {
    enum { MOST_SHAPES = 64, MOST_BYTES = 8 << 10 };
    size_t bytes = 0;
    for (size_t i = 0; i < o->n_shapes; i++)
        bytes +=
            strlen(o->shapes[i].input) + (size_t)(o->shapes[i].rank > 0 ? o->shapes[i].rank : 0);
    return o->n_shapes > MOST_SHAPES || bytes > MOST_BYTES;
}
status_t wire_compile(struct arena *a, bool grpc, const struct wire_model *m,
                      const struct hlod_compile_options *given, struct wire_request *out) {
    struct hlod_compile_options o = options_of(given);
    const ProtobufCMessage *message = NULL;
    *out = (struct wire_request){.method = "CompileStream"};
    if (grpc || beyond_a_path(&o)) RETURN_IF_ERR(compile_message(a, m, &o, &message));
    if (message) wire_call(a, grpc, "CompileStream", message, NULL, out);
    out->on_event = o.on_event;
    out->on_json = o.on_json;
    out->on_progress = o.on_progress;
    out->ctx = o.ctx;
    if (message) return ST_OK;
    out->path = compile_path(a, m->digest, &o);
    out->content_type = "application/octet-stream";
    out->parts = m->parts;
    out->n_parts = m->n_parts;
    out->body_file = m->file;
    return ST_OK;
}

status_t wire_model_file(struct arena *a, const char *path, struct wire_model *out) {
    struct span *parts;
    *out = (struct wire_model){0};
    RETURN_IF_ERR(onnx_external_inline(a, path, &parts, &out->n_parts));
    out->parts = parts;
    if (!out->n_parts) out->file = arena_strdup(a, path);
    return ST_OK;
}

status_t wire_compiled(struct wire_reader *r, void **out) {
    struct arena *a;
    struct hlod_executable *x = wire_result_new(sizeof *x, &a);
    wire_keep(a, r->result);
    if (r->profile) wire_keep(a, r->profile);
    const Hlod__V1__CompileReply *c = r->result->kind_case == HLOD__V1__EVENT__KIND_COMPILE_RESULT
                                          ? r->result->compile_result
                                          : NULL;
    r->result = r->profile = NULL;
    if (!c || !c->executable) {
        wire_result_free(x);
        return st_new(ST_DATA_LOSS, "the reply has no executable");
    }
    wire_executable(a, c->executable, x);
    x->model = c->source_digest;
    x->cache_hit = c->cache_hit;
    *out = x;
    return ST_OK;
}

// A large model goes ahead of its request, which then names its digest, kept in hex.
static status_t send_ahead(struct hlod *h, struct arena *a, struct wire_model *m,
                           const struct hlod_compile_options *o, char hex[65]) {
    struct stat sb;
    struct span file;
    int64_t bytes = m->file && stat(m->file, &sb) == 0 ? (int64_t)sb.st_size : 0;
    for (size_t i = 0; i < m->n_parts; i++)
        bytes += (int64_t)m->parts[i].n;
    if (bytes <= UPLOAD_IN_PIECES) return ST_OK;

    if (m->file) RETURN_IF_ERR(file_map(a, m->file, &file));
    RETURN_IF_ERR(upload_parts(h, m->file ? &file : m->parts, m->file ? 1 : m->n_parts,
                               o->on_progress, o->ctx, hex));
    *m = (struct wire_model){.digest = hex};
    return ST_OK;
}
static enum hlod_code compile(struct hlod *h, struct arena *a, struct wire_model *m,
                              const struct hlod_compile_options *o, struct hlod_executable **out) {
    struct wire_request q;
    struct wire_reader r;
    char hex[65];
    struct hlod_compile_options all = options_of(o);
    status_t st = send_ahead(h, a, m, &all, hex);
    if (!st) st = wire_compile(a, h->grpc != NULL, m, &all, &q);
    if (!st) st = wire_stream(h, &q, &r);
    void *got;
    if (!st) st = wire_compiled(&r, &got);
    if (!st) *out = got;
    arena_done(a);
    return wire_end(h, st);
}
enum hlod_code hlod_compile(struct hlod *h, const void *model, size_t model_bytes,
                            const struct hlod_compile_options *o, struct hlod_executable **out) {
    struct arena a = {0};
    struct span part = {model, model_bytes};
    return compile(h, &a, &(struct wire_model){.parts = &part, .n_parts = 1}, o, out);
}
enum hlod_code hlod_compile_file(struct hlod *h, const char *path,
                                 const struct hlod_compile_options *o,
                                 struct hlod_executable **out) {
    struct arena a = {0};
    struct wire_model m;
    status_t st = wire_model_file(&a, path, &m);
    if (!st) return compile(h, &a, &m, o, out);
    arena_done(&a);
    return wire_end(h, st);
}
enum hlod_code hlod_compile_digest(struct hlod *h, const char *model,
                                   const struct hlod_compile_options *o,
                                   struct hlod_executable **out) {
    struct arena a = {0};
    return compile(h, &a, &(struct wire_model){.digest = model}, o, out);
}
