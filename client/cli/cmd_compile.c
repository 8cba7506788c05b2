// SPDX-License-Identifier: Apache-2.0
// hlo compile, inspect, devices, doctor.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/store/file.h"
#include "client/cli/hlo.h"
#include "client/cli/progress.h"
#include "client/files/digest_memo.h"
#include "client/files/hlox.h"
#include "client/files/model_inputs.h"
#include "client/files/upload.h"
#include "client/lib/onnx_external.h"

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

// A model's file, or the parts that stand for it.
struct source {
    const char *path;
    struct span *parts;
    size_t n_parts;
    const char *const *paths; // [n_paths] all files that were read
    size_t n_paths;
    int64_t bytes;
    bool ahead; // an executable and its model in one file (client/files/hlox.h)
    struct hlox hlox;
};

static status_t source_open(struct hlo *h, const char *path, struct source *s) {
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
    int rc = upload_pieces(h, parts, s->n_parts ? s->n_parts : 1, hex);
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

int compile_model(struct hlo *h, const char *path, const char *query, enum compile_then then,
                  json_t **out) {
    struct watch w = {.h = h};
    struct http_reply r;
    const char *dot = strrchr(path, '.'),
               *type = dot && strcmp(dot, ".onnx") == 0  ? "application/onnx"
                       : dot && strcmp(dot, ".hlo") == 0 ? "text/x-hlo"
                                                         : "application/octet-stream";
    struct source src = {0};
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
    if (rc) return rc;
    struct strbuf known = {0}; // what the server has is asked for by name
    if (hex[0] || !file) query_add(&known, "model", hex[0] ? hex : path);
    const char *url = arena_printf(&h->arena, "/v1/executables?%s%s%s", strbuf_cstr(&known),
                                   known.n && query[0] ? "&" : "", query);
    bool body = !known.n;
    strbuf_done(&known);
    progress_begin(&w.progress, h);
    st = hlo_http(h,
                  &(struct http_request){.method = "POST",
                                         .path = url,
                                         .content_type = type,
                                         .accept = "application/x-ndjson",
                                         .parts = src.parts,
                                         .n_parts = body ? src.n_parts : 0,
                                         .body_file = body && !src.n_parts ? path : NULL,
                                         .on_bytes = on_bytes,
                                         .on_progress = on_upload,
                                         .ctx = &w},
                  &r);
    progress_end(&w.progress);
    strbuf_done(&w.line);
    if (st) return fail_status(st);
    json_error_t e;
    if (r.code >= 300) // refused before the stream began
        w.error = shown_json(h, json_loadb(strbuf_cstr(&r.body), r.body.n, 0, &e));
    if (run_will_tell(w.error, then)) {
        if (!hex[0]) st = file_digest(path, src.parts, src.n_parts, hex);
        if (st)
            rc = fail_status(st);
        else
            *out = json_pack("{s:s}", "sourceDigest", hex);
    } else if (w.error || !w.result) {
        print_error(w.error, "the server ended the stream without a result");
        const char *code = text_at(w.error, "code");
        rc = strcmp(code, "INVALID_ARGUMENT") == 0 ? EXIT_REFUSED
             : strcmp(code, "UNAVAILABLE") == 0 || strcmp(code, "RESOURCE_EXHAUSTED") == 0
                 ? EXIT_BUSY
             : strcmp(code, "DEADLINE_EXCEEDED") == 0 ? EXIT_DEADLINE
                                                      : EXIT_COMPILE;
        json_decref(w.result);
    } else {
        *out = w.result;
    }
    json_decref(w.error);
    http_reply_done(&r);
    return rc;
}

// What a plugin's compiler says of what it made.
static void print_plugin(const json_t *e) {
    const json_t *n = json_object_get(e, "optimized"), *m = json_object_get(e, "memory");
    printf("target       %s\nwork         %.4g flops, %s moved\n", text_at(e, "targetId"),
           number_at(e, "flops"), size_text(number_at(e, "bytesAccessed")).s);
    printf("artefact     %s\n", size_text(number_at(e, "artifactBytes")).s);
    if (n)
        printf(
            "on device    entry %.0f, total %.0f instructions, %.0f fusions, %.0f computations\n",
            number_at(n, "entry"), number_at(n, "total"), number_at(n, "fusions"),
            number_at(n, "computations"));
    if (!m) return;
    printf("memory       needs %s", size_text(number_at(m, "needed")).s);
    if (number_at(m, "limit") > 0)
        printf(" of the device's %s: %s", size_text(number_at(m, "limit")).s,
               json_is_true(json_object_get(m, "fits")) ? "fits" : "does not fit");
    printf("; arguments %s, results %s, temporaries %s, code %s",
           size_text(number_at(m, "arguments")).s, size_text(number_at(m, "results")).s,
           size_text(number_at(m, "temporaries")).s, size_text(number_at(m, "code")).s);
    putchar('\n');
}

void print_assumed(const json_t *compiled, FILE *f) {
    const json_t *s;
    size_t k;
    json_array_foreach(json_object_get(compiled, "assumed"), k, s) {
        fprintf(f, "%s%s=", k ? " " : "shapes       ", text_at(s, "input"));
        print_shape(json_object_get(s, "dims"), f);
    }
    if (!k) return;
    s = json_array_get(json_object_get(compiled, "assumed"), 0);
    fprintf(f, "  (assumed; to choose: --shape %s=", text_at(s, "input"));
    print_shape(json_object_get(s, "dims"), f);
    fputs(")\n", f);
}

// The passes that took longest, in the order in which they ran, and the others together.
static void print_passes(const json_t *executable) {
    enum { LONGEST = 6 };
    const json_t *rows = json_object_get(executable, "passes"), *row;
    double total = number_at(executable, "compileMs"), rest = 0, ms;
    size_t longest[LONGEST], n = 0, k, others = 0;
    printf("compile      %s, peak %s\n", time_text(total).s,
           size_text(number_at(executable, "compilePeakRss")).s);
    json_array_foreach(rows, k, row) {
        size_t at = n;
        for (ms = number_at(row, "ms"); at > 0; at--)
            if (ms <= number_at(json_array_get(rows, longest[at - 1]), "ms")) break;
        if (at == LONGEST || ms < total / 100) continue;
        if (n < LONGEST) n++;
        memmove(longest + at + 1, longest + at, (n - 1 - at) * sizeof *longest);
        longest[at] = k;
    }
    json_array_foreach(rows, k, row) {
        size_t at = 0;
        while (at < n && longest[at] != k)
            at++;
        ms = number_at(row, "ms");
        if (at < n)
            printf("  %-21s %9s  %5.0f -> %.0f instructions\n", text_at(row, "name"),
                   time_text(ms).s, number_at(row, "before"), number_at(row, "after"));
        else
            rest += ms, others++;
    }
    if (others) printf("  %-3zu %-17s %9s\n", others, "other passes", time_text(rest).s);
}

static void print_compiled(const json_t *c) {
    const json_t *e = json_object_get(c, "executable"), *b = json_object_get(e, "before"),
                 *a = json_object_get(e, "after"), *p = json_object_get(e, "prepare"), *row;
    bool hit = json_is_true(json_object_get(c, "cacheHit"));
    size_t k;
    printf("executable   %s\nmodel        %s\n", text_at(c, "digest"), text_at(c, "sourceDigest"));
    printf("cache        %s\n", hit ? "hit, not compiled" : "miss, compiled");
    print_assumed(c, stdout);
    printf("instructions before: entry %.0f, total %.0f; after: entry %.0f, total %.0f; prepare: "
           "%.0f\n",
           number_at(b, "entry"), number_at(b, "total"), number_at(a, "entry"),
           number_at(a, "total"), number_at(p, "entry"));
    if (!json_object_get(e, "optimized")) { // else the plugin's compiler did that, see below
        printf("fusions      %.0f\n", number_at(a, "fusions"));
        printf("memory       peak %s; all values together %s; weights %s\n",
               size_text(number_at(e, "peakBytes")).s, size_text(number_at(e, "valuesBytes")).s,
               size_text(number_at(e, "weightsBytes")).s);
    } else
        printf("weights      %s\n", size_text(number_at(e, "weightsBytes")).s);
    print_plugin(e);
    json_array_foreach(json_object_get(c, "overBudget"), k, row)
        printf("over budget  %s\n", json_string_value(row));
    if (!hit) print_passes(e);
}

// Behind `query`: the shapes that the compile took.
static void add_assumed(struct strbuf *query, const json_t *compiled) {
    const json_t *s, *d;
    size_t k, i;
    json_array_foreach(json_object_get(compiled, "assumed"), k, s) {
        struct strbuf one = {0};
        strbuf_printf(&one, "%s=", text_at(s, "input"));
        json_array_foreach(json_object_get(s, "dims"), i, d)
            strbuf_printf(&one, "%s%lld", i ? "x" : "", (long long)json_integer_value(d));
        query_add(query, "shape", strbuf_cstr(&one));
        strbuf_done(&one);
    }
}
static int write_ahead(struct hlo *h, const char *path, const char *out, const json_t *compiled,
                       struct strbuf *query) {
    struct source src;
    struct span whole;
    status_t st = source_open(h, path, &src);
    if (!st && !src.n_parts) st = file_map(&h->arena, path, &whole);
    if (st) return fail_status(st);
    add_assumed(query, compiled);
    int rc = hlox_write(h, out, text_at(compiled, "digest"), strbuf_cstr(query),
                        text_at(json_object_get(compiled, "executable"), "targetId"),
                        src.n_parts ? src.parts : &whole, src.n_parts ? src.n_parts : 1);
    if (!rc && !h->quiet) fprintf(stderr, "written      %s\n", out);
    return rc;
}

// What each step should take; measured: and what it takes, on inputs of our own making.
static int print_explained(struct hlo *h, const char *digest, bool measured) {
    char *text;
    int rc = stage_text(h, digest, "explain", &text);
    if (rc) return rc;
    printf("\n%s", text);
    hlod_text_free(text);
    if (!measured) return 0;
    putchar('\n');
    struct model_inputs *in = arena_zarray(&h->arena, struct model_inputs, 1);
    rc = model_inputs_default(h, digest, in->v, &in->n);
    return rc ? rc : explain_measured(h, digest, in);
}

struct compile_words {
    const char *path, *trace, *out;
    bool explain, measured;
    struct strbuf query, made; // made: what decides the executable
};
static int read_words(struct hlo *h, struct compile_words *w) {
    static const struct {
        const char *option, *key;
        bool decides;
    } keys[] = {{"--shape", "shape", true},       {"--precision", "precision", true},
                {"--target", "target", true},     {"--device", "device", false},
                {"--replicas", "replicas", true}, {"--budget", "budget", false}};
    for (int k = 0; k < h->argc; k++) {
        const char *v = NULL;
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && !(v = option_value(h, &k, keys[i].option)))
            i++;
        if (v) {
            query_add(&w->query, keys[i].key, v);
            if (keys[i].decides) query_add(&w->made, keys[i].key, v);
        } else if ((v = option_value(h, &k, "-o")))
            w->out = v;
        else if ((v = option_value(h, &k, "--trace")))
            w->trace = v;
        else if (strcmp(h->argv[k], "--explain") == 0)
            w->explain = true;
        else if (strcmp(h->argv[k], "--explain=measured") == 0)
            w->explain = w->measured = true;
        else if (h->argv[k][0] == '-' || w->path)
            return unknown_word(h, "compile", k);
        else
            w->path = h->argv[k];
    }
    if (!w->path) return usage_error("compile needs a model: a file, name or digest");
    bool file;
    int rc = model_is_file(w->path, &file);
    if (rc) return rc;
    if (w->out && !file) return usage_error("-o takes a model's file, which goes into the other");
    if (w->explain && h->json)
        return usage_error("--explain is a text: with --json see inspect --stage explain and "
                           "doctor MODEL");
    if (w->query.n && hlox_sniff(w->path))
        return usage_error("%s is compiled: it has its shapes and options", w->path);
    return 0;
}
static int tell_compiled(struct hlo *h, const struct compile_words *w, const json_t *c) {
    int rc = 0;
    if (h->json)
        print_json(c);
    else
        print_compiled(c);
    if (w->explain) rc = print_explained(h, text_at(c, "digest"), w->measured);
    if (w->trace && !rc) rc = save_trace(h, (int64_t)number_at(c, "job"), w->trace);
    return rc ? rc : json_array_size(json_object_get(c, "overBudget")) > 0 ? EXIT_BUDGET : 0;
}

int cmd_compile(struct hlo *h) {
    struct compile_words w = {0};
    json_t *c = NULL;
    int rc = read_words(h, &w);
    if (!rc) rc = compile_model(h, w.path, strbuf_cstr(&w.query), THEN_NOTHING, &c);
    if (!rc && w.out) rc = write_ahead(h, w.path, w.out, c, &w.made);
    if (!rc) rc = tell_compiled(h, &w, c);
    json_decref(c);
    strbuf_done(&w.query);
    strbuf_done(&w.made);
    return rc;
}
