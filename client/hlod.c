// SPDX-License-Identifier: Apache-2.0
// Connections, and compiling: hlod.h's first half. The model's bytes go as the body of one request,
// from memory or a file; all else is in the query.
#include "client/hlod.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "client/onnx_external.h"
#include "client/wire.h"

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
    if (!st) st = http_client_new(addr, &with, &h->http);
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
    if (x->after) {
        out->entry_after = x->after->entry;
        out->total_after = x->after->total;
        out->fusions = x->after->fusions;
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
}

void hlod_executable_free(struct hlod_executable *e) {
    wire_result_free(e);
}

// ---- compile

static void query(struct strbuf *b, const char *key, const char *value) {
    strbuf_printf(b, "%c%s=", strchr(b->p, '?') ? '&' : '?', key);
    for (const char *p = value; *p; p++)
        if (isalnum((unsigned char)*p) || strchr("-_.~", *p))
            strbuf_putc(b, *p);
        else
            strbuf_printf(b, "%%%02X", (unsigned char)*p);
}

static void compile_path(struct strbuf *b, const char *model,
                         const struct hlod_compile_options *o) {
    strbuf_puts(b, "/v1/executables");
    if (model) query(b, "model", model);
    if (o->format) query(b, "format", o->format);
    if (o->device) query(b, "device", o->device);
    if (o->precision) query(b, "precision", o->precision);
    struct strbuf text = {0};
    if (o->timeout_ms) {
        strbuf_printf(&text, "%u", o->timeout_ms);
        query(b, "timeout_ms", text.p);
    }
    for (size_t i = 0; i < o->n_shapes; i++) {
        strbuf_clear(&text);
        strbuf_printf(&text, "%s=", o->shapes[i].input);
        for (int32_t d = 0; d < o->shapes[i].rank; d++)
            strbuf_printf(&text, "%s%lld", d ? "x" : "", (long long)o->shapes[i].dims[d]);
        query(b, "shape", text.p);
    }
    strbuf_done(&text);
}

// The caller may have been built with a shorter struct: what it does not know is zero.
static struct hlod_compile_options options_of(const struct hlod_compile_options *o) {
    struct hlod_compile_options all = HLOD_COMPILE_OPTIONS;
    if (o) memcpy(&all, o, o->size < sizeof all ? o->size : sizeof all);
    return all;
}

static enum hlod_code compile(struct hlod *h, struct wire_stream *w, const char *model,
                              const struct hlod_compile_options *given,
                              struct hlod_executable **out) {
    struct hlod_compile_options o = options_of(given);
    struct strbuf path = {0};
    compile_path(&path, model, &o);
    w->path = path.p;
    w->content_type = "application/octet-stream";
    w->on_event = o.on_event;
    w->ctx = o.ctx;
    Hlod__V1__Event *e, *profile;
    status_t st = wire_stream(h, w, &e, &profile);
    strbuf_done(&path);
    if (st) return wire_end(h, st);
    struct arena *a;
    struct hlod_executable *x = wire_result_new(sizeof *x, &a);
    wire_keep(a, e);
    if (profile) wire_keep(a, profile);
    const Hlod__V1__CompileReply *r =
        e->kind_case == HLOD__V1__EVENT__KIND_COMPILE_RESULT ? e->compile_result : NULL;
    if (!r || !r->executable) {
        wire_result_free(x);
        return wire_end(h, st_new(ST_DATA_LOSS, "the reply has no executable"));
    }
    wire_executable(a, r->executable, x);
    x->model = r->source_digest;
    x->cache_hit = r->cache_hit;
    *out = x;
    return wire_end(h, ST_OK);
}

enum hlod_code hlod_compile(struct hlod *h, const void *model, size_t model_bytes,
                            const struct hlod_compile_options *o, struct hlod_executable **out) {
    struct span part = {model, model_bytes};
    return compile(h, &(struct wire_stream){.parts = &part, .n_parts = 1}, NULL, o, out);
}
enum hlod_code hlod_compile_file(struct hlod *h, const char *path,
                                 const struct hlod_compile_options *o,
                                 struct hlod_executable **out) {
    struct arena a = {0};
    struct wire_stream w = {0};
    struct span *parts;
    status_t st = onnx_external_inline(&a, path, &parts, &w.n_parts);
    w.parts = parts;
    if (!w.n_parts) w.body_file = path;
    enum hlod_code code = st ? wire_end(h, st) : compile(h, &w, NULL, o, out);
    arena_done(&a);
    return code;
}
enum hlod_code hlod_compile_digest(struct hlod *h, const char *model,
                                   const struct hlod_compile_options *o,
                                   struct hlod_executable **out) {
    return compile(h, &(struct wire_stream){0}, model, o, out);
}
