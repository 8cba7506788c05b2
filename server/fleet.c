// SPDX-License-Identifier: Apache-2.0
#include "server/fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/store/file.h"
#include "base/str.h"
#include "scheduler/remote/aws.h"
#include "scheduler/remote/peers.h"
#include "scheduler/sched.h"
#include "server/config.h"
#include "server/secrets.h"

// ---- the files, also when they change

static status_t load_trust(void *ctx, void **out) {
    struct fleet *f = ctx;
    struct trust *t;
    RETURN_IF_ERR(trust_open(&f->keys, &t));
    *out = t;
    return ST_OK;
}
static void drop_trust(void *t) {
    trust_unref(t);
}
static void take_trust(void *ctx, void *loaded) {
    struct fleet *f = ctx;
    trust_unref(f->trust);
    f->trust = loaded;
    if (f->sched) sched_set_trust(f->sched, trust_ref(f->trust));
    if (f->remotes) remotes_set_trust(f->remotes, f->trust);
}
static status_t load_secrets(void *ctx, void **out) {
    struct fleet *f = ctx;
    struct remote_secrets *x;
    RETURN_IF_ERR(remote_secrets_read(f->specs, f->n_specs, &f->peers, &x));
    *out = x;
    return ST_OK;
}
static void drop_secrets(void *x) {
    remote_secrets_free(x);
}
static void take_secrets(void *ctx, void *loaded) {
    struct fleet *f = ctx;
    if (f->remotes)
        remotes_set_secrets(f->remotes, loaded);
    else
        remote_secrets_free(loaded);
}
static const char *env(const char *name) {
    return getenv(name);
}
static void watch_files(struct fleet *f, struct secrets *watch) {
    struct secret_group keys = {.what = "cache_keys",
                                .files = {f->keys.secrets, f->keys.verify, f->keys.sign},
                                .n = 3,
                                .load = load_trust,
                                .take = take_trust,
                                .drop = drop_trust,
                                .ctx = f};
    if (*f->keys.secrets || *f->keys.verify || *f->keys.sign) secrets_add(watch, &keys);

    struct secret_group all = {.what = "remotes",
                               .files = {f->peers.token, f->peers.ca, f->peers.cert, f->peers.key},
                               .n = 4,
                               .load = load_secrets,
                               .take = take_secrets,
                               .drop = drop_secrets,
                               .ctx = f};
    bool s3 = false;
    for (size_t k = 0; k < f->n_specs; k++) {
        s3 = s3 || f->specs[k].kind == REMOTE_S3;
        if (f->specs[k].token) all.files[all.n++] = f->specs[k].token;
        if (f->specs[k].ca) all.files[all.n++] = f->specs[k].ca;
    }
    struct aws_files aws;
    aws_files(&f->cfg->arena, env, &aws);
    if (s3) all.files[all.n++] = aws.credentials;
    if (s3) all.files[all.n++] = aws.config;
    bool any = false;
    for (int k = 0; k < all.n; k++)
        any = any || *all.files[k];
    if (any) secrets_add(watch, &all);
}

// ---- judged

static bool has_peers(const struct fleet *f, bool *out_clear) {
    bool any = false;
    *out_clear = false;
    for (size_t k = 0; k < f->n_specs; k++) {
        const struct remote_spec *s = &f->specs[k];
        bool peer = s->kind == REMOTE_PEER || s->kind == REMOTE_DNS;
        any = any || peer;
        *out_clear = *out_clear || (peer && !s->tls && !str_is_loopback(str_of(s->host)));
    }
    return any;
}
static status_t judge_trust(const struct fleet *f) {
    bool unsigned_ones = f->cfg->insecure_cache_unsigned;
    if (unsigned_ones && trust_asks(f->trust))
        return st_invalid("insecure_cache_unsigned contradicts cache_key, cache_verify and "
                          "cache_sign");
    if (!f->n_specs || trust_asks(f->trust) || unsigned_ones) return ST_OK;
    return st_new(
        ST_FAILED_PRECONDITION,
        "cache_remote: executables are code that runs here, and nothing would show who "
        "made them. Name a secret that the servers share (--cache-key), or public keys of "
        "who signs (--cache-verify, `hlo cache keygen`), or say "
        "--insecure-cache-unsigned to allow it");
}
static status_t judge_peers(const struct fleet *f) {
    const struct config *c = f->cfg;
    bool clear, peers = has_peers(f, &clear);
    if (!peers && (*c->peer_token || (!*c->cluster_secret && (*c->peer_ca || *c->peer_cert))))
        return st_invalid("peer_token, peer_ca and peer_cert are for peers, of which cache_remote "
                          "names none");
    if (!*c->peer_cert != !*c->peer_key) return st_invalid("peer_cert and peer_key go together");
    if (clear && *c->peer_token)
        log_event(
            LOG_WARN, "server.peers",
            "why=\"the token of peer_token crosses the network unencrypted: peers with TLS\"");
    return ST_OK;
}
static status_t judge_node(const char *name) {
    if (peer_name_fits(name)) return ST_OK;
    return st_invalid("node '%.80s': expected 1 to %d letters, digits, '.', '_' or '-'", name,
                      PEER_NAME_MAX);
}
status_t fleet_read(struct fleet *f, struct config *c, struct secrets *watch) {
    f->cfg = c;
    f->keys = (struct trust_files){c->cache_key, c->cache_verify, c->cache_sign};
    f->peers = (struct peer_files){c->peer_token, c->peer_ca, c->peer_cert, c->peer_key};
    RETURN_IF_ERR(
        st_note(remote_specs(&c->arena, c->cache_remote, &f->specs, &f->n_specs), "cache_remote"));
    watch_files(f, watch);
    RETURN_IF_ERR(trust_open(&f->keys, &f->trust));
    RETURN_IF_ERR(judge_trust(f));
    RETURN_IF_ERR(judge_peers(f));
    if (*c->node) RETURN_IF_ERR(judge_node(c->node));
    return f->n_specs ? remote_secrets_read(f->specs, f->n_specs, &f->peers, &f->secrets) : ST_OK;
}

// ---- made

// The name that an option gives, or the folder keeps; drawn at its first use.
static status_t find_node(struct fleet *f, const char *dir) {
    struct arena *a = &f->cfg->arena;
    const char *path = arena_printf(a, "%s/node", dir);
    struct str text;
    f->node = f->cfg->node;
    if (*f->node) return ST_OK;
    status_t st = file_read(a, path, 100, NULL, &text);
    if (!st) {
        text = str_trim(text);
        f->node = arena_strndup(a, text.p, text.n);
        return st_note(judge_node(f->node), "%s", path);
    }
    if (st_code(st) != ST_NOT_FOUND) return st;
    st_drop(st);
    uint8_t drawn[8];
    struct strbuf b = {0};
    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn) return st_errno(errno, "getrandom");
    strbuf_puts(&b, "node-");
    strbuf_hex(&b, drawn, sizeof drawn);
    f->node = arena_strdup(a, b.p);
    strbuf_putc(&b, '\n');
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    st = fd < 0 ? st_errno(errno, path) : file_write(fd, b.p, b.n, path);
    if (fd >= 0) close(fd);
    if (fd >= 0 && st) unlink(path);
    strbuf_done(&b);
    return st;
}
status_t fleet_open(struct fleet *f, struct loop *l, struct store *store, struct journal *journal,
                    const char *dir) {
    const struct config *c = f->cfg;
    if (f->n_specs || *c->cluster) RETURN_IF_ERR(find_node(f, dir));
    if (!f->n_specs) return ST_OK;
    struct remotes_config rc = {.specs = f->specs,
                                .n_specs = f->n_specs,
                                .node = f->node,
                                .connect_ms = c->cache_remote_connect_ms,
                                .total_ms = c->cache_remote_ms,
                                .wait_ms = c->cache_remote_wait_ms,
                                .max_bytes = c->max_message_bytes};
    RETURN_IF_ERR(remotes_new(l, store, journal, &rc, f->trust, &f->remotes));
    remotes_set_secrets(f->remotes, f->secrets);
    f->secrets = NULL;
    return ST_OK;
}
void fleet_close(struct fleet *f) {
    remotes_free(f->remotes);
    remote_secrets_free(f->secrets);
    trust_unref(f->trust);
}
