// SPDX-License-Identifier: Apache-2.0
// Objects of a prefix or an object store: their names, GET and PUT, and what the answers mean.
// What a name adds to the remote's own address is a word of ours and hex digits.
#include <stdio.h>
#include <string.h>

#include "scheduler/remote/remotes_inside.h"

enum { PUT_MS_A_MB = 1000 }; // more time for each MiB that is sent

const char *object_url(struct arena *a, const struct remote *x, struct digest key) {
    struct hex_digest hex = digest_to_hex(key);
    const char *base = x->all->secrets->url[x->index];
    if (!base) base = x->all->cfg.specs[x->index].base;
    return arena_printf(a, "%s/executables/%.2s/%s", base, hex.z, hex.z);
}
// What a store wants to be signed: the digest of what is sent. NULL: it is none.
enum { SUM_BYTES = 100 };
static const char *sum_header(const struct remote *x, struct digest d, char out[SUM_BYTES]) {
    if (x->all->cfg.specs[x->index].kind != REMOTE_S3) return NULL;
    snprintf(out, SUM_BYTES, "x-amz-content-sha256: %s", digest_to_hex(d).z);
    return out;
}
struct fetch *object_get(struct remote *x, const char *url, int64_t max_bytes,
                         void (*done)(void *ctx, struct fetch_reply *r), void *ctx) {
    const struct remotes_config *cfg = &x->all->cfg;
    char sum[SUM_BYTES];
    const char *headers[] = {sum_header(x, sha256_of("", 0), sum), NULL};
    struct fetch *out;
    struct fetch_request q = {.method = "GET",
                              .url = url,
                              .headers = headers,
                              .auth = x->all->secrets->auth[x->index],
                              .connect_ms = cfg->connect_ms,
                              .total_ms = cfg->total_ms,
                              .max_bytes = max_bytes,
                              .proxy = true};
    fetch_start(x->all->fetcher, &q, done, ctx, &out);
    return out;
}
struct fetch *object_put(struct remote *x, const char *url, struct fetch_body body,
                         struct digest digest, void (*done)(void *ctx, struct fetch_reply *r),
                         void *ctx) {
    const struct remotes_config *cfg = &x->all->cfg;
    char sum[SUM_BYTES];
    const char *headers[] = {"Content-Type: application/octet-stream", sum_header(x, digest, sum),
                             NULL};
    struct fetch *out;
    struct fetch_request q = {.method = "PUT",
                              .url = url,
                              .headers = headers,
                              .body = body,
                              .auth = x->all->secrets->auth[x->index],
                              .connect_ms = cfg->connect_ms,
                              .total_ms =
                                  cfg->total_ms + (int64_t)(body.bytes.n >> 20) * PUT_MS_A_MB,
                              .max_bytes = 1 << 20,
                              .proxy = true};
    fetch_start(x->all->fetcher, &q, done, ctx, &out);
    return out;
}

static bool says(const struct fetch_reply *r, const char *word) {
    return r->body.n && memmem(r->body.p, r->body.n, word, strlen(word));
}
enum object_answer object_answer(struct remote *x, const struct fetch_reply *r) {
    bool s3 = x->all->cfg.specs[x->index].kind == REMOTE_S3;
    if (r->st) {
        remote_failed(x, r->st, 0, false);
        return OBJECT_FAILED;
    }
    // A store that may not be listed says of an absent object that it may not be read.
    bool absent = r->code == 404 || r->code == 410 ||
                  (s3 && r->code == 403 && says(r, "<Code>AccessDenied</Code>"));
    if (absent || (r->code >= 200 && r->code < 300)) {
        remote_well(x);
        return absent ? OBJECT_ABSENT : OBJECT_THERE;
    }

    status_t st = r->code >= 300 && r->code < 400
                      ? st_new(ST_UNAVAILABLE, "HTTP %d: redirects are not followed", r->code)
                      : st_new(ST_UNAVAILABLE, "HTTP %d: %.*s", r->code,
                               (int)(r->body.n < 120 ? r->body.n : 120),
                               r->body.n ? (const char *)r->body.p : "");
    bool sure = r->code < 500 || r->retry_after_ms;
    remote_failed(x, st, r->retry_after_ms, sure);
    st_drop(st);
    return OBJECT_FAILED;
}
