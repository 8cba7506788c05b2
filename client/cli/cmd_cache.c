// SPDX-License-Identifier: Apache-2.0
// hlo cache: the executables that a server keeps: list, explain, verify, pin, collect, and exchange
// with another server. An exchange goes through here: the two servers need not know each other.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/hlo.h"
#include "proto/hlod.pb-c.h"

struct words {
    const char *w[3]; // behind the verb
    int n;
    const char *peer, *peer_token, *max, *unused, *blobs;
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

static int explain(struct hlo *h, const struct words *w) {
    json_t *j;
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
    size_t n = json_array_size(json_object_get(j, "removed")) +
               json_array_size(json_object_get(j, "blobs"));
    printf("%zu %s, %s; %s of executables kept\n", n, w->dry_run ? "would go" : "removed",
           size_text(number_at(j, "freedBytes")).s, size_text(number_at(j, "keptBytes")).s);
    json_decref(j);
    return 0;
}

// ---- exchange

// The executable's bundle from one server, as it is, to the other.
static int move(struct hlo *h, struct http_client *from, struct http_client *to,
                const char *digest) {
    struct http_reply r;
    json_t *j;
    status_t st = http_send(
        from,
        &(struct http_request){.method = "GET",
                               .path = arena_printf(&h->arena, "/v1/executables/%s/bundle", digest),
                               .accept = "application/x-protobuf"},
        &r);
    if (st) return fail_status(st);
    int rc = r.code < 300 ? 0 : fail_reply(&r, EXIT_REFUSED);

    Hlod__V1__ExecutableBundle *b = rc ? NULL
                                       : hlod__v1__executable_bundle__unpack(
                                             NULL, r.body.n, (const uint8_t *)strbuf_cstr(&r.body));
    if (!rc && (!b || !b->info || strcmp(b->info->digest, digest))) {
        fputs("hlo: the server sent another executable than was asked for\n", stderr);
        rc = EXIT_RUN;
    }

    struct span part = {(const uint8_t *)strbuf_cstr(&r.body), r.body.n};
    if (!rc)
        rc = send_json(h, to,
                       &(struct http_request){.method = "POST",
                                              .path = "/v1/cache/import",
                                              .content_type = "application/x-protobuf",
                                              .parts = &part,
                                              .n_parts = 1},
                       &j);
    if (!rc) {
        if (h->json)
            print_json(j);
        else
            printf("%s  %s%s\n", digest, size_text((double)b->artifact.len).s,
                   json_is_true(json_object_get(j, "existed")) ? "  was there" : "");
        json_decref(j);
    }

    if (b) hlod__v1__executable_bundle__free_unpacked(b, NULL);
    http_reply_done(&r);
    return rc;
}

static void put_query(struct strbuf *b, const char *key, const char *value, size_t n) {
    strbuf_printf(b, "&%s=", key);
    for (size_t i = 0; i < n; i++)
        if (strchr("&=%+# ", value[i]))
            strbuf_printf(b, "%%%02X", (unsigned char)value[i]);
        else
            strbuf_putc(b, value[i]);
}
// How it was made, as the query of a compile: the model, the inputs' dims, the canonical options.
static void compile_query(struct strbuf *b, const json_t *info) {
    const json_t *in, *d;
    size_t k, i;
    strbuf_printf(b, "/v1/executables?model=%s", text_at(info, "sourceDigest"));
    json_array_foreach(json_object_get(json_object_get(info, "signature"), "inputs"), k, in) {
        struct strbuf shape = {0};
        strbuf_printf(&shape, "%s=", text_at(in, "name"));
        json_array_foreach(json_object_get(in, "dims"), i, d)
            strbuf_printf(&shape, "%s%.0f", i ? "x" : "", number_at(d, "size"));
        if (json_array_size(json_object_get(in, "dims"))) put_query(b, "shape", shape.p, shape.n);
        strbuf_done(&shape);
    }
    struct str options = str_of(text_at(info, "options")), one, key, value;
    while (options.n && str_cut(&options, ';', &one)) {
        char name[64];
        if (!str_cut(&one, '=', &key)) continue;
        snprintf(name, sizeof name, STR_FMT, STR_ARG(key));
        while (one.n && str_cut(&one, ',', &value))
            put_query(b, name, value.p, value.n);
    }
}
// Trusts nobody: the other server says how, this one compiles.
static int recompile(struct hlo *h, struct http_client *from, struct http_client *to,
                     const char *digest) {
    json_t *info, *made;
    int rc = send_json(
        h, from,
        &(struct http_request){.method = "GET",
                               .path = arena_printf(&h->arena, "/v1/executables/%s", digest)},
        &info);
    if (rc) return rc;
    struct strbuf path = {0};
    compile_query(&path, info);
    json_decref(info);
    rc = send_json(h, to, &(struct http_request){.method = "POST", .path = path.p}, &made);
    strbuf_done(&path);
    if (rc) return rc;
    bool same = !strcmp(text_at(made, "digest"), digest);
    if (h->json)
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
    struct http_security with = h->security;
    struct http_client *peer;
    if (!w->peer)
        return usage_error("cache %s", push ? "push needs --to ADDR" : "pull needs --from ADDR");
    const char *token = w->peer_token ? w->peer_token : getenv("HLOD_PEER_TOKEN");
    if (token) with.token = token;
    status_t st = hlo_http_open(h);
    if (!st) st = http_client_new(w->peer, &with, &peer);
    if (st) return fail_status(st);
    struct http_client *from = push ? h->http : peer, *to = push ? peer : h->http;
    int rc = 0;
    for (int k = 0; k < w->n && !rc; k++)
        rc = w->recompile ? recompile(h, from, to, w->w[k]) : move(h, from, to, w->w[k]);
    http_client_free(peer);
    return rc;
}

// ---- the command

static int options(struct hlo *h, struct words *w, const char **verb) {
    const char *v;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--to")) || (v = option_value(h, &k, "--from")))
            w->peer = v;
        else if ((v = option_value(h, &k, "--peer-token")))
            w->peer_token = v;
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
        else if (h->argv[k][0] == '-' || w->n == 3)
            return unknown_word(h, "cache", k);
        else if (!*verb)
            *verb = h->argv[k];
        else
            w->w[w->n++] = h->argv[k];
    }
    if (!*verb) *verb = "ls";
    return 0;
}

int cmd_cache(struct hlo *h) {
    struct words w = {.n = 0};
    const char *verb = NULL;
    json_t *j;
    int rc = options(h, &w, &verb);
    if (rc) return rc;
    if (!strcmp(verb, "ls") && !w.n) return list(h);
    for (int k = 0; k < w.n && strcmp(verb, "pull") && !rc; k++) // what is pulled is elsewhere
        rc = full_digest(h, &w.w[k]);
    if (rc) return rc;
    if (!strcmp(verb, "explain") && w.n == 2) return explain(h, &w);
    if (!strcmp(verb, "verify") && w.n <= 1) return verify(h, &w);
    if (!strcmp(verb, "gc") && !w.n) return collect(h, &w);
    if (!strcmp(verb, "push") && w.n) return exchange(h, &w, true);
    if (!strcmp(verb, "pull") && w.n) return exchange(h, &w, false);
    if (!strcmp(verb, "rm") && w.n == 1) return change(h, "RemoveExecutable", w.w[0]);
    if (!strcmp(verb, "pin") && w.n == 1) return change(h, "PinExecutable", w.w[0]);
    if (!strcmp(verb, "unpin") && w.n == 1) return change(h, "UnpinExecutable", w.w[0]);
    if (strcmp(verb, "stats") || w.n)
        return usage_error("cache takes ls, stats, rm DIGEST, explain A B, verify [DIGEST], pin, "
                           "unpin, gc, push, pull");
    rc = hlo_call(h, "CacheStats", NULL, &j);
    if (rc) return rc;
    print_json(j);
    json_decref(j);
    return 0;
}
