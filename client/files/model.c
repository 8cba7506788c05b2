// SPDX-License-Identifier: Apache-2.0
// A model's file to the server, and its compile: in pieces ahead of the request where it is large,
// by its digest where the server has it, else as the request's body.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/store/file.h"
#include "client/cli/progress.h"
#include "client/files/digest_memo.h"
#include "client/files/model.h"
#include "client/lib/onnx_external.h"
#include "client/lib/upload.h"
#include "proto/hlod.pb-c.h"
#include "proto/message.h"
#include "proto/query.h"

struct watch {
    struct hlo *h;
    struct progress progress;
    json_t *result;
};

static bool on_event(void *ctx, const char *event) {
    struct watch *w = ctx;
    json_error_t e;
    json_t *j = shown_json(w->h, json_loads(event, 0, &e));
    json_t *pass = json_object_get(j, "pass"), *r = json_object_get(j, "compileResult");
    if (json_is_true(json_object_get(pass, "begins")))
        progress_begins(&w->progress, text_at(pass, "name"));
    else if (pass)
        progress_pass(&w->progress, text_at(pass, "name"), number_at(pass, "ms"));
    else
        progress_tick(&w->progress);
    const json_t *remote = json_object_get(json_object_get(j, "remote"), "answer");
    if (!strcmp(text_at(remote, "outcome"), "waits") && !w->h->quiet) {
        progress_end(&w->progress);
        fprintf(stderr, "hlo: %s compiles it: waiting for that\n", text_at(remote, "why"));
    }
    if (r) {
        json_decref(w->result);
        w->result = json_incref(r);
    }
    json_decref(j);
    return true;
}

static void on_upload(void *ctx, int64_t sent, int64_t total) {
    struct watch *w = ctx;
    if (sent >= total)
        progress_tick(&w->progress);
    else
        progress_bytes(&w->progress, "uploading", sent, total);
}

status_t source_open(struct hlo *h, const char *path, struct source *s) {
    struct stat sb = {0};
    *s = (struct source){.path = path};
    if (stat(path, &sb) == 0 && sb.st_size == 0)
        return st_new(ST_INVALID_ARGUMENT, "%s: the file is empty", path);
    s->ahead = hlox_sniff(path);
    if (s->ahead) {
        RETURN_IF_ERR(hlox_open(&h->arena, path, &s->hlox));
        s->parts = &s->hlox.model;
        s->n_parts = 1;
        s->bytes = (int64_t)s->hlox.model.n;
        return ST_OK;
    }
    RETURN_IF_ERR(
        onnx_external_files(&h->arena, path, &s->parts, &s->n_parts, &s->paths, &s->n_paths));
    if (!s->n_parts) s->bytes = (int64_t)sb.st_size;
    for (size_t k = 0; k < s->n_parts; k++)
        s->bytes += (int64_t)s->parts[k].n;
    return ST_OK;
}

// Does the server hold this model already? Asked of what was sent by an earlier command.
static bool server_holds(struct hlo *h, const char *hex) {
    json_t *info = hlo_try(h, "StatBlob", json_pack("{s:s}", "digest", hex));
    json_decref(info);
    return info != NULL;
}

static void on_piece(void *ctx, int64_t sent, int64_t total) {
    progress_bytes(ctx, "uploading", sent, total);
}
static int send_pieces(struct hlo *h, const struct span *parts, size_t n, char hex[65]) {
    struct hlod_bytes *v = arena_array(&h->arena, struct hlod_bytes, n);
    struct progress p;
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    for (size_t k = 0; k < n; k++)
        v[k] = (struct hlod_bytes){parts[k].p, parts[k].n};

    progress_begin(&p, h);
    enum hlod_code code = hlod_upload(h->hlod, v, n, on_piece, &p, hex);
    progress_end(&p);
    return code ? hlo_fail(h, EXIT_REFUSED) : 0;
}

// The model goes to the server, unless it holds it; hex gets its digest. A large one is not read
// for its digest alone: it is known by its files' names and times, or by the upload.
static int send_source(struct hlo *h, const struct source *s, char hex[65]) {
    struct span whole, *parts = s->n_parts ? s->parts : &whole;
    bool hash = s->bytes <= UPLOAD_IN_PIECES || s->ahead;
    char key[65];
    status_t st = hash ? file_digest(s->path, s->parts, s->n_parts, hex) : ST_OK;
    if (st) return fail_status(st);
    bool memo = !hash && s->n_paths && digest_memo_key(s->paths, s->n_paths, key);
    if ((hash || (memo && digest_memo_get(key, hex))) && server_holds(h, hex)) return 0;

    st = s->n_parts ? ST_OK : file_map(&h->arena, s->path, &whole);
    if (st) return fail_status(st);
    int rc = send_pieces(h, parts, s->n_parts ? s->n_parts : 1, hex);
    if (!rc && memo) digest_memo_put(key, hex);
    return rc;
}
int upload_model(struct hlo *h, const char *path, char hex[65]) {
    struct source src;
    status_t st = source_open(h, path, &src);
    return st ? fail_status(st) : send_source(h, &src, hex);
}

// ---- compile

static const char *unescaped(struct arena *a, struct str s) {
    char *out = arena_strndup(a, s.p, s.n), *end = out, hex[3] = "";
    for (const char *p = out; *p; p++) {
        bool escape = *p == '%' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2]);
        if (escape) memcpy(hex, p + 1, 2);
        *end++ = escape ? (char)strtoul(hex, NULL, 16) : *p;
        p += escape ? 2 : 0;
    }
    *end = 0;
    return out;
}
// A query's parameters (query_add) as options, which point into h->arena.
static status_t options_of(struct hlo *h, const char *query, struct hlod_compile_options *o) {
    struct arena *a = &h->arena;
    Hlod__V1__CompileRequest *q = message_new(a, &hlod__v1__compile_request__descriptor);
    struct str rest = str_of(query), value, key;
    while (rest.n && str_cut(&rest, '&', &value)) {
        str_cut(&value, '=', &key);
        RETURN_IF_ERR(query_set(a, &q->base, unescaped(a, key), unescaped(a, value)));
    }

    struct hlod_shape *shapes = arena_array(a, struct hlod_shape, q->n_shapes);
    for (size_t k = 0; k < q->n_shapes; k++)
        shapes[k] = (struct hlod_shape){q->shapes[k]->input, (int32_t)q->shapes[k]->n_dims,
                                        q->shapes[k]->dims};
    *o = (struct hlod_compile_options)HLOD_COMPILE_OPTIONS;
    o->shapes = shapes;
    o->n_shapes = q->n_shapes;
    o->device = q->device;
    o->target = q->target;
    if (q->options) {
        o->precision = q->options->precision;
        o->replicas = q->options->replicas;
    }
    if (q->budget) {
        o->max_instructions = q->budget->instructions;
        o->max_bytes = q->budget->bytes;
        o->max_hbm = q->budget->hbm;
    }
    return ST_OK;
}
int compile_known(struct hlo *h, const char *model, const char *query,
                  struct hlod_executable **out) {
    struct hlod_compile_options o;
    status_t st = options_of(h, query, &o);
    if (!st) st = hlo_open(h);
    if (st) return fail_status(st);
    return hlod_compile_digest(h->hlod, model, &o, out) ? hlo_fail(h, EXIT_REFUSED) : 0;
}

// Shapes or values that decide shapes are missing: a run brings them.
static bool run_will_tell(const char *reason, enum compile_then then) {
    return (then != THEN_NOTHING && strcmp(reason, "UNBOUND_VALUE") == 0) ||
           (then == THEN_RUN && strcmp(reason, "UNBOUND_DIM") == 0);
}

// What is to be compiled: what comes with the request, or by the name that the server has for it.
static int send_compile(struct hlo *h, const char *path, const char *name,
                        struct hlod_compile_options *o, struct watch *w) {
    const char *dot = *name ? NULL : strrchr(path, '.');
    struct hlod_executable *x;
    if (dot && strcmp(dot, ".onnx") == 0) o->format = "onnx";
    if (dot && strcmp(dot, ".hlo") == 0) o->format = "hlo-text";
    if (dot && strcmp(dot, ".mlir") == 0) o->format = "stablehlo";
    o->on_json = on_event;
    o->on_progress = on_upload;
    o->ctx = w;

    progress_begin(&w->progress, h);
    enum hlod_code code =
        *name ? hlod_compile_digest(h->hlod, name, o, &x) : hlod_compile_file(h->hlod, path, o, &x);
    progress_end(&w->progress);
    if (!code) hlod_executable_free(x);
    return code ? code == HLOD_INVALID_ARGUMENT ? EXIT_REFUSED : EXIT_COMPILE : 0;
}

int compile_model(struct hlo *h, const char *path, const char *query, enum compile_then then,
                  json_t **out) {
    struct watch w = {.h = h};
    struct hlod_compile_options o;
    struct source src = {.path = path};
    bool file;
    char hex[65] = ""; // by which the server knows what was sent
    int rc = model_is_file(path, &file);
    status_t st = !rc && file ? source_open(h, path, &src) : ST_OK;
    if (!st && !rc) st = options_of(h, src.ahead ? src.hlox.query : query, &o);
    if (!st && !rc) st = hlo_open(h);
    if (st) return fail_status(st);

    if (!rc && file && (src.ahead || src.bytes > UPLOAD_IN_PIECES)) rc = send_source(h, &src, hex);
    if (!rc && src.ahead) rc = hlox_import(h, &src.hlox);
    if (rc) return rc;
    rc = send_compile(h, path, file ? hex : path, &o, &w);
    if (rc && run_will_tell(hlod_error(h->hlod)->reason, then)) {
        rc = 0;
        if (file && !hex[0]) st = file_digest(path, src.parts, src.n_parts, hex);
        if (st) return fail_status(st);
        *out = json_pack("{s:s}", "sourceDigest", file ? hex : path);
    } else if (rc)
        rc = hlo_fail(h, rc);
    else
        *out = json_incref(w.result);
    json_decref(w.result);
    return rc;
}
