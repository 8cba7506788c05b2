// SPDX-License-Identifier: Apache-2.0
// hlo cache: the executables that a server keeps: list, explain, verify, pin, collect, and exchange
// with another server. An exchange goes through here: the two servers need not know each other.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/bundles.h"
#include "client/files/hlox.h"
#include "client/hlod_jobs.h"
#include "proto/hlod.pb-c.h"
#include "proto/json.h"

struct words {
    const char **w; // behind the verb
    int n;
    const char *peer, *peer_token, *max, *unused, *blobs, *key, *out;
    bool recompile, dry_run;
};

static int list(struct hlo *h) {
    json_t *j, *e;
    size_t k;
    int rc = hlo_call(h, "ListExecutables", NULL, &j);
    if (rc) return rc;
    if (list_begin(
            h, j, "executables", "no executable yet: `hlo compile MODEL`",
            "EXECUTABLE                                                            ARTEFACT    "
            "COMPILE    SIZE  FORMAT    CREATED"))
        json_array_foreach(json_object_get(j, "executables"), k, e) printf(
            "%s  %9s  %6.1f ms  entry %4.0f  %s  %s%s\n", text_at(e, "digest"),
            size_text(number_at(e, "artifactBytes")).s, number_at(e, "compileMs"),
            number_at(json_object_get(e, "after"), "entry"), text_at(e, "format"),
            text_at(e, "created"), json_is_true(json_object_get(e, "pinned")) ? "  pinned" : "");
    json_decref(j);
    return 0;
}

// What one executable's key is made of, and where it comes from.
static void explain_one(const json_t *x) {
    static const char *const rows[][2] = {{"program", "programDigest"}, {"options", "options"},
                                          {"target", "targetId"},       {"build", "buildId"},
                                          {"model", "sourceDigest"},    {"made", "created"}};
    const json_t *e;
    size_t k;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("%-10s %s\n", rows[i][0],
               *text_at(x, rows[i][1]) ? text_at(x, rows[i][1]) : "(default)");
    printf("%-10s", "bindings");
    json_array_foreach(json_object_get(x, "bindings"), k, e) printf(" %s", json_string_value(e));
    puts(k ? "" : " (none)");
    const char *by = text_at(x, "signedBy");
    printf("%-10s %s%s%s\n", "origin",
           *text_at(x, "origin") ? text_at(x, "origin") : "compiled here",
           *by                                                  ? ", signed by "
           : json_is_true(json_object_get(x, "unsignedImport")) ? ", signed by nobody"
                                                                : "",
           by);
    json_array_foreach(json_object_get(x, "remotes"), k, e)
        printf("%-10s %s: %s%s%s\n", k ? "" : "before", text_at(e, "remote"), text_at(e, "outcome"),
               *text_at(e, "why") ? ": " : "", text_at(e, "why"));
}
static int explain(struct hlo *h, const struct words *w) {
    json_t *j;
    if (w->n == 1) {
        int code = hlo_print(h, "ExplainCache", json_pack("{s:s}", "a", w->w[0]), &j);
        if (code || !j) return code;
        explain_one(json_object_get(j, "executable"));
        json_decref(j);
        return 0;
    }
    int rc = hlo_print(h, "ExplainCache", json_pack("{s:s, s:s}", "a", w->w[0], "b", w->w[1]), &j);
    if (rc || !j) return rc;
    if (json_is_true(json_object_get(j, "same")))
        puts("same key");
    else
        printf("%s differs\n  A  %s\n  B  %s\n", text_at(j, "component"),
               text_at(j, "a")[0] ? text_at(j, "a") : "(default)",
               text_at(j, "b")[0] ? text_at(j, "b") : "(default)");
    json_decref(j);
    return 0;
}

// Where else executables are looked for, and how that goes.
static int remotes(struct hlo *h) {
    json_t *j, *e, *p;
    size_t k, i;
    int rc = hlo_call(h, "CacheStats", NULL, &j);
    if (rc) return rc;
    if (list_begin(h, j, "remotes", "no remotes: hlod --cache-remote",
                   "STATE      HITS  MISSES  ERRORS  REFUSED    PUTS  REMOTE"))
        json_array_foreach(json_object_get(j, "remotes"), k, e) {
            printf("%-6s %8.0f %7.0f %7.0f %8.0f %7.0f  %s%s%s\n", text_at(e, "state"),
                   number_at(e, "hits"), number_at(e, "misses"), number_at(e, "errors"),
                   number_at(e, "refused"), number_at(e, "puts"), text_at(e, "remote"),
                   *text_at(e, "why") ? "  last error: " : "", text_at(e, "why"));
            json_array_foreach(json_object_get(e, "peers"), i, p)
                printf("  %-8s %-24s %s%s%s\n", text_at(p, "state"), text_at(p, "node"),
                       text_at(p, "address"), *text_at(p, "why") ? "  " : "", text_at(p, "why"));
        }
    json_decref(j);
    return 0;
}

static int change(struct hlo *h, const char *method, const char *digest) {
    json_t *j;
    int rc = hlo_print(h, method, json_pack("{s:s}", "digest", digest), &j);
    if (!rc) json_decref(j);
    return rc;
}

static int verify(struct hlo *h, const struct words *w) {
    json_t *j, *f;
    size_t k;
    int rc = hlo_call(
        h, "VerifyCache",
        json_pack("{s:s, s:b}", "digest", w->n ? w->w[0] : "", "recompile", (int)w->recompile), &j);
    if (rc) return rc;
    const json_t *findings = json_object_get(j, "findings");
    bool bad = false;
    if (h->json)
        print_json(j);
    else
        printf("%.0f checked, %s%s\n", number_at(j, "checked"), size_text(number_at(j, "bytes")).s,
               json_is_true(json_object_get(j, "recompiled")) ? "; a new compile is the same" : "");
    json_array_foreach(findings, k, f) {
        bad = bad || strcmp(text_at(f, "state"), "forgotten");
        if (!h->json)
            printf("%-9s %s  %s\n", text_at(f, "state"), text_at(f, "digest"),
                   text_at(f, "message"));
    }
    json_decref(j);
    return bad ? EXIT_DIFFERS : 0;
}

static int collect(struct hlo *h, const struct words *w) {
    int64_t max = 0, unused = 0, blobs = 0;
    if (w->max && !(str_to_bytes(str_of(w->max), &max) && max > 0))
        return usage_error("--max: as in 512M");
    if (w->unused && !(str_to_seconds(str_of(w->unused), &unused) && unused > 0))
        return usage_error("--unused: as in 30d");
    if (w->blobs && !(str_to_seconds(str_of(w->blobs), &blobs) && blobs > 0))
        return usage_error("--blobs: as in 30d");
    if (!max && !unused && !blobs)
        return usage_error("cache gc needs --max BYTES, --unused TIME or --blobs TIME");
    json_t *j, *d;
    size_t k;
    int rc = hlo_print(h, "CollectCache",
                       json_pack("{s:I, s:I, s:I, s:b}", "maxBytes", (json_int_t)max, "unusedS",
                                 (json_int_t)unused, "blobsUnusedS", (json_int_t)blobs, "dryRun",
                                 (int)w->dry_run),
                       &j);
    if (rc || !j) return rc;

    json_array_foreach(json_object_get(j, "removed"), k, d) puts(json_string_value(d));
    json_array_foreach(json_object_get(j, "blobs"), k, d)
        printf("%s  upload\n", json_string_value(d));
    json_array_foreach(json_object_get(j, "packages"), k, d)
        printf("%s  package\n", json_string_value(d));
    size_t n = json_array_size(json_object_get(j, "removed")) +
               json_array_size(json_object_get(j, "blobs")) +
               json_array_size(json_object_get(j, "packages"));
    printf("%zu %s, %s; %s of executables and packages kept\n", n,
           w->dry_run ? "would go" : "removed", size_text(number_at(j, "freedBytes")).s,
           size_text(number_at(j, "keptBytes")).s);
    json_decref(j);
    return 0;
}

// ---- exchange

// The executable's bundle from one server, as it is or with a signature, to the other.
static int move(struct hlo *from, struct hlo *to, const char *digest, const char *key) {
    struct hlod_blob *bundle, *answer = NULL;
    int rc = hlox_export(from, digest, &bundle);
    if (rc) return rc;
    struct span bytes = {bundle->data, bundle->bytes};
    Hlod__V1__ExecutableBundle *b =
        hlod__v1__executable_bundle__unpack(NULL, bundle->bytes, bundle->data);
    status_t st = hlo_open(to);
    if (!st && key) st = cache_signed(from, bytes, key, &bytes);
    if (!st && (!b || !b->info || strcmp(b->info->digest, digest)))
        st = st_new(ST_DATA_LOSS, "the server sent another executable than was asked for");
    if (st)
        rc = fail_status(st);
    else if (hlod_call_message(to->hlod, "ImportExecutable", bytes.p, bytes.n, &answer))
        rc = hlo_fail(to, EXIT_REFUSED);

    Hlod__V1__ImportExecutableReply *r =
        answer ? hlod__v1__import_executable_reply__unpack(NULL, answer->bytes, answer->data)
               : NULL;
    if (r && from->json) {
        struct strbuf text = {0};
        json_error_t e;
        json_print(&text, &r->base);
        json_t *j = json_loads(strbuf_cstr(&text), 0, &e);
        print_json(j);
        json_decref(j);
        strbuf_done(&text);
    } else if (r)
        printf("%s  %s%s\n", digest, size_text((double)b->artifact.len).s,
               r->existed ? "  was there" : "");
    if (r) hlod__v1__import_executable_reply__free_unpacked(r, NULL);
    if (b) hlod__v1__executable_bundle__free_unpacked(b, NULL);
    hlod_blob_free(answer);
    hlod_blob_free(bundle);
    return rc;
}

// How it was made, as the request of a compile: the model, the inputs' dims, the options, of which
// the canonical text is "disable_passes=a,b;precision=strict;replicas=2".
static json_t *compile_request(const json_t *info) {
    const json_t *in, *d;
    size_t k, i;
    json_t *shapes = json_array(), *options = json_object();
    json_array_foreach(json_object_get(json_object_get(info, "signature"), "inputs"), k, in) {
        json_t *dims = json_array();
        json_array_foreach(json_object_get(in, "dims"), i, d)
            json_array_append_new(dims, json_integer((json_int_t)number_at(d, "size")));
        if (json_array_size(dims))
            json_array_append_new(
                shapes, json_pack("{s:s, s:O}", "input", text_at(in, "name"), "dims", dims));
        json_decref(dims);
    }

    struct str text = str_of(text_at(info, "options")), one, key, value;
    while (text.n && str_cut(&text, ';', &one)) {
        int64_t number;
        if (!str_cut(&one, '=', &key)) continue;
        json_t *v = str_is(one, "1") && str_is(key, "verify_each") ? json_true() : NULL;
        if (!v && str_to_i64(one, &number)) v = json_integer((json_int_t)number);
        if (!v && str_starts(key, "disable_"))
            for (v = json_array(); one.n && str_cut(&one, ',', &value);)
                json_array_append_new(v, json_stringn(value.p, value.n));
        json_object_setn_new(options, key.p, key.n, v ? v : json_stringn(one.p, one.n));
    }
    return json_pack("{s:s, s:o, s:o}", "model", text_at(info, "sourceDigest"), "shapes", shapes,
                     "options", options);
}
// Trusts nobody: the other server says how, this one compiles.
static int recompile(struct hlo *from, struct hlo *to, const char *digest) {
    json_t *info, *made;
    int rc = hlo_call(from, "GetExecutable", json_pack("{s:s}", "digest", digest), &info);
    if (rc) return rc;
    rc = hlo_call(to, "Compile", compile_request(info), &made);
    json_decref(info);
    if (rc) return rc;

    bool same = !strcmp(text_at(made, "digest"), digest);
    if (from->json)
        print_json(made);
    else if (same)
        printf("%s  %s\n", digest,
               json_is_true(json_object_get(made, "cacheHit")) ? "was there" : "compiled");
    else
        printf("%s  compiled: this server's compiler or target differs, see `hlo cache explain`\n",
               text_at(made, "digest"));
    json_decref(made);
    return same ? 0 : EXIT_DIFFERS;
}

static int exchange(struct hlo *h, const struct words *w, bool push) {
    struct hlo peer = {
        .addr = w->peer, .security = h->security, .json = h->json, .quiet = h->quiet};
    if (!w->peer)
        return usage_error("cache %s", push ? "push needs --to ADDR" : "pull needs --from ADDR");
    const char *token = w->peer_token ? w->peer_token : getenv("HLOD_PEER_TOKEN");
    if (token) peer.security.token = token;
    struct hlo *from = push ? h : &peer, *to = push ? &peer : h;
    int rc = 0;
    for (int k = 0; k < w->n && !rc; k++)
        rc = w->recompile ? recompile(from, to, w->w[k]) : move(from, to, w->w[k], w->key);
    hlod_close(peer.hlod);
    arena_done(&peer.arena);
    return rc;
}

// ---- the command

static int options(struct hlo *h, struct words *w, const char **verb) {
    const char *v;
    w->w = arena_zarray(&h->arena, const char *, h->argc + 1);

    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--to")) || (v = option_value(h, &k, "--from")))
            w->peer = v;
        else if ((v = option_value(h, &k, "--peer-token")))
            w->peer_token = v;
        else if ((v = option_value(h, &k, "--sign-key")))
            w->key = v;
        else if ((v = option_value(h, &k, "-o")))
            w->out = v;
        else if ((v = option_value(h, &k, "--max")))
            w->max = v;
        else if ((v = option_value(h, &k, "--blobs")))
            w->blobs = v;
        else if ((v = option_value(h, &k, "--unused")))
            w->unused = v;
        else if (!strcmp(h->argv[k], "--recompile"))
            w->recompile = true;
        else if (!strcmp(h->argv[k], "--dry-run"))
            w->dry_run = true;
        else if (h->argv[k][0] == '-')
            return unknown_word(h, "cache", k);
        else if (!*verb)
            *verb = h->argv[k];
        else
            w->w[w->n++] = h->argv[k];
    }
    if (!*verb) *verb = "ls";
    return 0;
}

// Keys, and executables as files.
static int of_files(struct hlo *h, const struct words *w, const char *verb) {
    if (!strcmp(verb, "keygen") && w->n == 1) return cache_keygen(h, w->w[0]);
    if (!strcmp(verb, "keygen")) return usage_error("cache keygen FILE");
    if (!strcmp(verb, "import") && w->n) return cache_import(h, w->w, w->n);
    if (!strcmp(verb, "import")) return usage_error("cache import FILE...");
    if (!w->n || !w->key) return usage_error("cache sign FILE... --sign-key FILE");
    return cache_sign(h, w->w, w->n, w->key);
}
static bool is_of_files(const char *verb) {
    return !strcmp(verb, "keygen") || !strcmp(verb, "sign") || !strcmp(verb, "import");
}

int cmd_cache(struct hlo *h) {
    struct words w = {.n = 0};
    const char *verb = NULL;
    json_t *j;
    int rc = options(h, &w, &verb);
    if (rc) return rc;
    if (!strcmp(verb, "ls") && !w.n) return list(h);
    if (!strcmp(verb, "remotes") && !w.n) return remotes(h);
    if (is_of_files(verb)) return of_files(h, &w, verb);
    for (int k = 0; k < w.n && strcmp(verb, "pull") && !rc; k++) // what is pulled is elsewhere
        rc = full_digest(h, &w.w[k]);
    if (rc) return rc;
    if (!strcmp(verb, "explain") && (w.n == 1 || w.n == 2)) return explain(h, &w);
    if (!strcmp(verb, "export") && w.n)
        return w.out ? cache_export(h, w.w, w.n, w.out, w.key)
                     : usage_error("cache export needs -o DIR");

    if (!strcmp(verb, "verify") && w.n <= 1) return verify(h, &w);
    if (!strcmp(verb, "gc") && !w.n) return collect(h, &w);
    if (!strcmp(verb, "push") && w.n) return exchange(h, &w, true);
    if (!strcmp(verb, "pull") && w.n) return exchange(h, &w, false);
    if (!strcmp(verb, "rm") && w.n == 1) return change(h, "RemoveExecutable", w.w[0]);
    if (!strcmp(verb, "pin") && w.n == 1) return change(h, "PinExecutable", w.w[0]);
    if (!strcmp(verb, "unpin") && w.n == 1) return change(h, "UnpinExecutable", w.w[0]);
    if (strcmp(verb, "stats") || w.n)
        return usage_error("cache takes ls, stats, remotes, rm DIGEST, explain A [B], "
                           "verify [DIGEST], pin, unpin, gc, push, pull, export, import, keygen, "
                           "sign");
    rc = hlo_call(h, "CacheStats", NULL, &j);
    if (rc) return rc;
    print_json(j);
    json_decref(j);
    return 0;
}
