// SPDX-License-Identifier: Apache-2.0
// hlo tokens: the file of tokens and certificates that hlod asks (proto/tokens.h). Works on the
// file itself, on the server's machine; nothing is sent.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/cli/hlo.h"
#include "proto/tokens.h"

struct request {
    const char *words[2]; // add NAME
    int n;
    const char *file, *scopes, *tenant, *subject, *expires;
    int64_t group; // that may read the file; -1: as it is
};

static json_t *as_json(const struct token *x) {
    struct strbuf b = {0};
    scopes_print(&b, x->scopes);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", x->name, "tenant", x->tenant,
                          "scopes", strbuf_cstr(&b), "created", x->created,
                          x->subject ? "subject" : "id", x->subject ? x->subject : x->id);
    strbuf_done(&b);
    if (x->expires) {
        json_object_set_new(j, "expires", json_string(x->expires));
        json_object_set_new(j, "expired", json_boolean(tokens_expired(x, clock_wall_ns())));
    }
    return j;
}
static int list(struct hlo *h, const struct tokens *t) {
    json_t *all = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const struct token *x = &t->v[i];
        json_array_append_new(all, as_json(x));
        if (h->json) continue;
        struct strbuf b = {0};
        scopes_print(&b, x->scopes);
        printf("%-20s %-16s %-24s %s  %s %s", x->name, x->tenant, strbuf_cstr(&b), x->created,
               x->subject ? "certificate" : "token", x->subject ? x->subject : x->id);
        if (x->expires)
            printf("  %s %s", tokens_expired(x, clock_wall_ns()) ? "EXPIRED" : "expires",
                   x->expires);
        putchar('\n');
        strbuf_done(&b);
    }
    if (h->json) print_json(all);
    json_decref(all);
    return 0;
}

static status_t add(struct hlo *h, struct tokens *t, const struct request *q) {
    char today[16], text[TOKEN_TEXT] = "";
    time_t now = time(NULL);
    struct tm tm;
    strftime(today, sizeof today, "%Y-%m-%d", gmtime_r(&now, &tm));
    struct token x = {
        .name = q->words[1], .tenant = q->tenant, .created = today, .subject = q->subject};
    if (!scopes_parse(str_of(q->scopes), &x.scopes))
        return st_new(
            ST_INVALID_ARGUMENT,
            "scopes '%s': expected some of read, run, compile, load, jobs, cache, peer, admin with "
            "commas between",
            q->scopes);
    if (q->expires) RETURN_IF_ERR(tokens_expire(&x, &t->arena, q->expires, clock_wall_ns()));
    RETURN_IF_ERR(tokens_add(t, &x, text));
    RETURN_IF_ERR(tokens_write(q->file, t, q->group));
    if (h->json) {
        json_t *j = as_json(&t->v[t->n - 1]);
        if (*text) json_object_set_new(j, "token", json_string(text));
        print_json(j);
        json_decref(j);
    } else if (*text)
        puts(text);
    if (!h->quiet)
        fprintf(stderr, "%s %s%s%s; a running hlod takes it within seconds%s\n", q->words[1],
                *text ? "has this token" : "is that certificate's owner",
                x.expires ? " until " : "", x.expires ? x.expires : "",
                *text ? ". It is shown this once: the file keeps a hash" : "");
    return ST_OK;
}

// One writer at a time: the folder is locked, since the file itself is replaced.
static status_t lock(const char *file, int *out_fd) {
    const char *slash = strrchr(file, '/');
    char dir[4096];
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - file + 1) : 1, slash ? file : ".");
    *out_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out_fd < 0 || flock(*out_fd, LOCK_EX)) return st_errno(errno, dir);
    return ST_OK;
}

static status_t change(struct hlo *h, const struct request *q) {
    bool adds = strcmp(q->words[0], "add") == 0;
    struct tokens t = {0};
    int fd = -1;
    status_t st = lock(q->file, &fd);
    if (!st) st = tokens_read(q->file, &t);
    if (adds && st_code(st) == ST_NOT_FOUND) { // the first one
        st_drop(st);
        st = ST_OK;
    }
    if (!st && adds)
        st = add(h, &t, q);
    else if (!st && tokens_remove(&t, q->words[1]))
        st = tokens_write(q->file, &t, q->group);
    else if (!st)
        st = st_new(ST_NOT_FOUND, "no entry '%s' in %s", q->words[1], q->file);
    tokens_done(&t);
    if (fd >= 0) close(fd);
    return st;
}

static int read_group(const char *text, int64_t *out) {
    if (str_to_i64(str_of(text), out) && *out >= 0 && *out < UINT32_MAX) return 0;
    const struct group *g = getgrnam(text);
    if (!g)
        return usage_error("tokens: --group %s: no such group here; a number is taken as it is",
                           text);
    *out = g->gr_gid;
    return 0;
}
static int read_words(struct hlo *h, struct request *q) {
    const char *v;
    int rc;
    for (int k = 0; k < h->argc; k++) {
        if ((v = option_value(h, &k, "--file")))
            q->file = v;
        else if ((v = option_value(h, &k, "--scopes")))
            q->scopes = v;
        else if ((v = option_value(h, &k, "--tenant")))
            q->tenant = v;
        else if ((v = option_value(h, &k, "--subject")))
            q->subject = v;
        else if ((v = option_value(h, &k, "--expires")))
            q->expires = v;
        else if ((v = option_value(h, &k, "--group"))) {
            if ((rc = read_group(v, &q->group))) return rc;
        } else if (h->argv[k][0] == '-' || q->n == 2)
            return unknown_word(h, "tokens", k);
        else
            q->words[q->n++] = h->argv[k];
    }
    if (!q->file || !*q->file)
        return usage_error("tokens: say --file FILE (or HLOD_TOKENS), the one hlod --tokens reads");
    return 0;
}

int cmd_tokens(struct hlo *h) {
    struct request q = {
        .file = getenv("HLOD_TOKENS"), .scopes = "read,run", .tenant = "default", .group = -1};
    int rc = read_words(h, &q);
    if (rc) return rc;
    const char *verb = q.n ? q.words[0] : "ls";
    if (strcmp(verb, "list") == 0) verb = "ls";
    if (strcmp(verb, "remove") == 0) verb = "rm";
    if (strcmp(verb, "ls") == 0 && q.n <= 1) {
        struct tokens t;
        status_t st = tokens_read(q.file, &t);
        rc = st ? fail_status(st) : list(h, &t);
        tokens_done(&t);
        return rc;
    }
    if (q.n != 2 || (strcmp(verb, "add") != 0 && strcmp(verb, "rm") != 0))
        return usage_error("tokens takes ls, add NAME, rm NAME");
    status_t st = change(h, &q);
    return st ? fail_status(st) : 0;
}
