// SPDX-License-Identifier: Apache-2.0
// hlo inspect: the text of one stage of an executable, or how two differ.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/hlo.h"

int stage_text(struct hlo *h, const char *digest, const char *stage, char **out) {
    status_t st = hlo_open(h);
    if (st) return fail_status(st);
    return hlod_inspect(h->hlod, digest, stage, out) ? hlo_fail(h, EXIT_REFUSED) : 0;
}

// Two stages or passes side by side, through diff(1).
static int diff(struct hlo *h, const char *digest, const char *a, const char *b) {
    char name[2][32] = {"/tmp/hlo-a-XXXXXX", "/tmp/hlo-b-XXXXXX"};
    const char *stages[2] = {a, b};
    int rc = 0;
    for (int k = 0; k < 2 && !rc; k++) {
        char *text = NULL;
        rc = stage_text(h, digest, stages[k], &text);
        int fd = rc ? -1 : mkstemp(name[k]);
        if (!rc && (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)))
            rc = EXIT_RUN;
        if (fd >= 0) close(fd);
        hlod_text_free(text);
    }
    if (!rc) {
        FILE *p = popen(
            arena_printf(&h->arena, "diff -u --label %s %s --label %s %s", a, name[0], b, name[1]),
            "re");
        char buf[4096];
        for (size_t n; p && (n = fread(buf, 1, sizeof buf, p)) > 0;)
            fwrite(buf, 1, n, stdout);
        if (p) pclose(p);
    }
    unlink(name[0]);
    unlink(name[1]);
    return rc;
}

// The only executable of a model's program, NULL if there are several or none.
static int only_executable(struct hlo *h, const char *model, const char **out) {
    json_t *m, *all, *e;
    size_t k, n = 0;
    *out = NULL;
    int rc = hlo_call(h, "ShowModel", json_pack("{s:s}", "model", model), &m);
    if (rc) return rc;
    rc = hlo_call(h, "ListExecutables", json_pack("{s:i}", "limit", 1000000), &all);
    json_array_foreach(rc ? NULL : json_object_get(all, "executables"), k, e) {
        if (strcmp(text_at(e, "programDigest"), text_at(m, "programDigest")) != 0) continue;
        n++;
        *out = arena_strdup(&h->arena, text_at(e, "digest"));
    }
    if (n != 1) *out = NULL;
    if (!rc) json_decref(all);
    json_decref(m);
    return rc;
}

// The word may be an executable's digest or its first digits, a model's file, digest or name: then
// the only executable of it, or what is compiled for the shapes given, or the usual ones.
static int executable_of(struct hlo *h, const char **word, const char *shapes) {
    bool file, done = false;
    char hex[65];
    const char *only = NULL;
    size_t digits = strspn(*word, "0123456789abcdef");

    if (digits >= 6 && digits < 64 && !(*word)[digits]) return full_digest(h, word);
    int rc = model_is_file(*word, &file);
    if (!rc && file) {
        rc = upload_model(h, *word, hex);
        if (!rc) *word = arena_strdup(&h->arena, hex);
    } else if (!rc && digits == 64) {
        json_t *found = hlo_try(h, "GetExecutable", json_pack("{s:s}", "digest", *word));
        done = found != NULL;
        json_decref(found);
    }
    if (rc || done) return rc;

    if (!*shapes) rc = only_executable(h, *word, &only);
    if (!rc && !only) {
        struct hlod_executable *x;
        rc = compile_known(h, *word, shapes, &x);
        if (!rc) only = arena_strdup(&h->arena, x->digest);
        if (!rc) hlod_executable_free(x);
    }
    if (!rc && !h->quiet) fprintf(stderr, "executable %s\n", only);
    if (!rc) *word = only;
    return rc;
}

int cmd_inspect(struct hlo *h) {
    const char *digest = NULL, *stage = NULL, *a = NULL, *b = NULL, *v;
    struct strbuf shapes = {0};

    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--stage")))
            stage = v;
        else if ((v = option_value(h, &k, "--pass")))
            stage = arena_printf(&h->arena, "pass/%s", v);
        else if ((v = option_value(h, &k, "--shape")))
            query_add(&shapes, "shape", v);
        else if ((v = option_value(h, &k, "--diff")))
            a = v, b = k + 1 < h->argc ? h->argv[++k] : NULL;
        else if (h->argv[k][0] == '-' || digest)
            return unknown_word(h, "inspect", k);
        else
            digest = h->argv[k];
    }

    if (!digest) return usage_error("inspect needs a digest, name or file");
    if (a && !b) return usage_error("--diff needs two: --diff hlo-before hlo-after");
    if (!stage) stage = "hlo-after";
    int rc = executable_of(h, &digest, strbuf_cstr(&shapes));
    strbuf_done(&shapes);
    if (rc) return rc;
    if (b) return diff(h, digest, a, b);

    char *text;
    rc = stage_text(h, digest, stage, &text);
    if (rc) return rc;
    fputs(text, stdout);
    hlod_text_free(text);
    return 0;
}
