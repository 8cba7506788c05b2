// SPDX-License-Identifier: Apache-2.0
// What the files and variables of all remotes say at one moment: who we are there, whom TLS trusts.
// Texts of files are read here, on the pool, so that transfers touch no disk and a file that
// changed is seen. What they hold is in no message.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/store/file.h"
#include "base/str.h"
#include "scheduler/remote/aws.h"
#include "scheduler/remote/fetch.h"
#include "scheduler/remote/pem.h"
#include "scheduler/remote/remotes.h"

enum { MAX_SECRET = 1 << 16 };

// One line: a token.
static status_t read_token(struct arena *a, const char *path, const char **out) {
    struct str text;
    RETURN_IF_ERR(file_read_secret(a, path, MAX_SECRET, &text));
    text = str_trim(text);
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] <= ' ' || (unsigned char)text.p[i] > '~')
            return st_invalid("%s: expected one token", path);
    if (!text.n) return st_invalid("%s is empty", path);
    *out = arena_strndup(a, text.p, text.n);
    return ST_OK;
}
// A file that need not be there.
static status_t read_known(struct arena *a, const char *path, struct str *out) {
    *out = (struct str){0};
    if (!*path || access(path, F_OK)) return ST_OK;
    return file_read(a, path, MAX_SECRET, NULL, out);
}
static const char *env(const char *name) {
    return getenv(name);
}
static status_t read_s3(struct arena *a, const struct remote_spec *s, struct fetch_auth *x,
                        const char **out_url) {
    struct aws_files files;
    struct str credentials, config;
    struct aws found;
    aws_files(a, env, &files);
    RETURN_IF_ERR(read_known(a, files.credentials, &credentials));
    RETURN_IF_ERR(read_known(a, files.config, &config));
    RETURN_IF_ERR(aws_find(a, env, credentials, config, &found));
    x->s3_id = found.id;
    x->s3_secret = found.secret;
    x->s3_session = found.session;
    x->s3_region = found.region;
    *out_url = aws_url(a, &found, s->bucket, s->base);
    if (found.ca) return pem_read(a, found.ca, false, &x->ca);
    return str_starts(str_of(*out_url), "https:") ? pem_of_system(a, &x->ca) : ST_OK;
}
static status_t read_one(struct arena *a, const struct remote_spec *s, struct fetch_auth *x,
                         const char **out_url) {
    if (s->kind == REMOTE_S3) return read_s3(a, s, x, out_url);
    if (s->kind != REMOTE_PREFIX) return ST_OK;
    if (s->token) RETURN_IF_ERR(read_token(a, s->token, &x->bearer));
    if (s->ca) return pem_read(a, s->ca, false, &x->ca);
    return s->tls ? pem_of_system(a, &x->ca) : ST_OK;
}
static status_t read_peers(struct arena *a, const struct peer_files *f, bool tls,
                           struct fetch_auth *x) {
    if (*f->token) RETURN_IF_ERR(st_note(read_token(a, f->token, &x->bearer), "peer_token"));
    if (*f->ca) RETURN_IF_ERR(st_note(pem_read(a, f->ca, false, &x->ca), "peer_ca"));
    if (*f->cert) RETURN_IF_ERR(st_note(pem_read(a, f->cert, false, &x->cert), "peer_cert"));
    if (*f->key) RETURN_IF_ERR(st_note(pem_read(a, f->key, true, &x->key), "peer_key"));
    return tls && !x->ca ? pem_of_system(a, &x->ca) : ST_OK;
}

static status_t read_all(struct remote_secrets *x, const struct remote_spec *specs,
                         const struct peer_files *files) {
    struct arena a = {0}; // what is kept is copied by fetch_auth_new
    struct fetch_auth peers = {0};
    bool tls = false;
    status_t st = ST_OK;
    for (size_t k = 0; k < x->n && !st; k++) {
        struct fetch_auth one = {0};
        const char *url = NULL;
        bool peer = specs[k].kind == REMOTE_PEER || specs[k].kind == REMOTE_DNS;
        tls = tls || (peer && specs[k].tls);
        st = st_note(read_one(&a, &specs[k], &one, &url), "cache_remote %s", specs[k].name);
        if (st) break;
        x->auth[k] = fetch_auth_new(&one);
        if (url) x->url[k] = arena_strdup(x->arena, url);
    }
    if (!st) st = read_peers(&a, files, tls, &peers);
    if (!st) x->peers = fetch_auth_new(&peers);
    arena_done(&a);
    return st;
}
status_t remote_secrets_read(const struct remote_spec *specs, size_t n,
                             const struct peer_files *files, struct remote_secrets **out) {
    struct arena *a = arena_new();
    struct remote_secrets *x = arena_new_of(a, struct remote_secrets);
    *x = (struct remote_secrets){.auth = arena_zarray(a, struct fetch_auth *, n + 1),
                                 .url = arena_zarray(a, const char *, n + 1),
                                 .n = n,
                                 .arena = a};
    status_t st = read_all(x, specs, files);
    if (st)
        remote_secrets_free(x);
    else
        *out = x;
    return st;
}
void remote_secrets_free(struct remote_secrets *x) {
    if (!x) return;
    for (size_t k = 0; k < x->n; k++)
        fetch_auth_unref(x->auth[k]);
    fetch_auth_unref(x->peers);
    arena_free(x->arena);
}
