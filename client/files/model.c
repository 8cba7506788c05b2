// SPDX-License-Identifier: Apache-2.0
// A model's file to the server, and its compile: in pieces ahead of the request where it is large,
// by its digest where the server has it, else as the request's body.
#include <string.h>
#include <sys/stat.h>

#include "base/store/file.h"
#include "client/files/model.h"
#include "client/cli/progress.h"
#include "client/files/digest_memo.h"
#include "client/lib/onnx_external.h"
#include "client/lib/upload.h"

struct watch {
    struct hlo *h;
    struct progress progress;
    struct strbuf line;
    json_t *result, *error;
};

static void on_event(void *ctx, struct str line) {
    struct watch *w = ctx;
    json_error_t e;
    json_t *j = shown_json(w->h, json_loadb(line.p, line.n, 0, &e));
    if (!j) return;
    json_t *pass = json_object_get(j, "pass"), *r = json_object_get(j, "compileResult"),
           *err = json_object_get(j, "error");
    if (json_is_true(json_object_get(pass, "begins")))
        progress_begins(&w->progress, text_at(pass, "name"));
    else if (pass)
        progress_pass(&w->progress, text_at(pass, "name"), number_at(pass, "ms"));
    if (r) w->result = json_incref(r);
    if (err) w->error = json_incref(err);
    json_decref(j);
}
static bool on_bytes(void *ctx, struct span piece) {
    split_lines(&((struct watch *)ctx)->line, piece, on_event, ctx);
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

// A model of more bytes than `above` goes ahead of its request, in pieces, unless the server is
// known to hold it; hex stays as it is for the others.
static int send_ahead(struct hlo *h, const struct source *s, int64_t above, char hex[65]) {
    struct span whole, *parts = s->n_parts ? s->parts : &whole;
    if (s->bytes <= above) return 0;
    char key[65];
    bool known = s->n_paths && digest_memo_key(s->paths, s->n_paths, key);
    if (known && digest_memo_get(key, hex) && server_holds(h, hex)) return 0;
    status_t st = s->n_parts ? ST_OK : file_map(&h->arena, s->path, &whole);
    if (st) return fail_status(st);
    int rc = send_pieces(h, parts, s->n_parts ? s->n_parts : 1, hex);
    if (!rc && known) digest_memo_put(key, hex);
    return rc;
}

// Shapes or values that decide shapes are missing: a run brings them.
static bool run_will_tell(const json_t *error, enum compile_then then) {
    const char *reason = text_at(error, "reason");
    return (then != THEN_NOTHING && strcmp(reason, "UNBOUND_VALUE") == 0) ||
           (then == THEN_RUN && strcmp(reason, "UNBOUND_DIM") == 0);
}

static int send_source(struct hlo *h, const struct source *src, char hex[65]) {
    bool hash = src->bytes <= UPLOAD_IN_PIECES || src->ahead;
    status_t st = hash ? file_digest(src->path, src->parts, src->n_parts, hex) : ST_OK;
    if (st) return fail_status(st);
    return hash && server_holds(h, hex) ? 0 : send_ahead(h, src, 0, hex);
}
int upload_model(struct hlo *h, const char *path, char hex[65]) {
    struct source src;
    status_t st = source_open(h, path, &src);
    return st ? fail_status(st) : send_source(h, &src, hex);
}

// What is to be compiled: what came with the request, or by the name that the server has for it.
static int send_compile(struct hlo *h, const struct source *src, const char *name,
                        const char *query, struct watch *w, struct http_reply *r) {
    const char *dot = strrchr(src->path, '.'),
               *type = dot && strcmp(dot, ".onnx") == 0  ? "application/onnx"
                       : dot && strcmp(dot, ".hlo") == 0 ? "text/x-hlo"
                                                         : "application/octet-stream";
    struct strbuf known = {0};
    if (*name) query_add(&known, "model", name);
    const char *url = arena_printf(&h->arena, "/v1/executables?%s%s%s", strbuf_cstr(&known),
                                   known.n && query[0] ? "&" : "", query);
    strbuf_done(&known);

    progress_begin(&w->progress, h);
    status_t st =
        hlo_http(h,
                 &(struct http_request){.method = "POST",
                                        .path = url,
                                        .content_type = type,
                                        .accept = "application/x-ndjson",
                                        .parts = src->parts,
                                        .n_parts = *name ? 0 : src->n_parts,
                                        .body_file = *name || src->n_parts ? NULL : src->path,
                                        .on_bytes = on_bytes,
                                        .on_progress = on_upload,
                                        .ctx = w},
                 r);
    progress_end(&w->progress);
    strbuf_done(&w->line);
    if (st) return fail_status(st);

    json_error_t e;
    if (r->code >= 300) // refused before the stream began
        w->error = shown_json(h, json_loadb(strbuf_cstr(&r->body), r->body.n, 0, &e));
    http_reply_done(r);
    return 0;
}

static int compile_failed(const struct watch *w) {
    print_error(w->error, "the server ended the stream without a result");
    const char *code = text_at(w->error, "code");
    if (strcmp(code, "INVALID_ARGUMENT") == 0) return EXIT_REFUSED;
    if (strcmp(code, "DEADLINE_EXCEEDED") == 0) return EXIT_DEADLINE;
    bool busy = strcmp(code, "UNAVAILABLE") == 0 || strcmp(code, "RESOURCE_EXHAUSTED") == 0;
    return busy ? EXIT_BUSY : EXIT_COMPILE;
}

int compile_model(struct hlo *h, const char *path, const char *query, enum compile_then then,
                  json_t **out) {
    struct watch w = {.h = h};
    struct http_reply r;
    struct source src = {.path = path};
    bool file;
    char hex[65] = ""; // by which the server knows what was sent
    int rc = model_is_file(path, &file);
    status_t st = !rc && file ? source_open(h, path, &src) : ST_OK;
    if (st) return fail_status(st);

    if (!rc && file)
        rc = src.ahead ? send_source(h, &src, hex) : send_ahead(h, &src, UPLOAD_IN_PIECES, hex);
    if (!rc && src.ahead) {
        rc = hlox_import(h, &src.hlox);
        query = src.hlox.query;
    }
    if (!rc) rc = send_compile(h, &src, file ? hex : path, query, &w, &r);
    if (rc) return rc;

    if (run_will_tell(w.error, then)) {
        if (!hex[0]) st = file_digest(path, src.parts, src.n_parts, hex);
        if (st)
            rc = fail_status(st);
        else
            *out = json_pack("{s:s}", "sourceDigest", hex);
    } else if (w.error || !w.result) {
        rc = compile_failed(&w);
        json_decref(w.result);
    } else {
        *out = w.result;
    }
    json_decref(w.error);
    return rc;
}
