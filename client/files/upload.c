// SPDX-License-Identifier: Apache-2.0
// A connection that breaks costs the piece under way. Then the server is asked what it holds: it
// may have got a piece whose reply was lost.
#include "client/files/upload.h"

#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "client/cli/progress.h"

enum { PIECE_BYTES = 8 << 20, TRIES = 5, WAIT_MS = 250 };
struct pieces {
    struct hlo *h;
    const struct span *parts;
    size_t n_parts;
    struct span *some; // [n_parts], of the piece under way
    int64_t size, at, hashed;
    struct sha256 hash;
    const char *path; // of the upload
    struct progress progress;
    int broken; // times in a row
};

// p->some becomes the bytes [from, to); how many parts.
static size_t cut(struct pieces *p, int64_t from, int64_t to) {
    size_t n = 0;
    int64_t begin = 0;
    for (size_t k = 0; k < p->n_parts; k++) {
        int64_t end = begin + (int64_t)p->parts[k].n, a = from > begin ? from : begin,
                b = to < end ? to : end;
        if (a < b) p->some[n++] = (struct span){p->parts[k].p + (a - begin), (size_t)(b - a)};
        begin = end;
    }
    return n;
}
static void on_progress(void *ctx, int64_t sent, int64_t total) {
    struct pieces *p = ctx;
    (void)total;
    progress_bytes(&p->progress, "uploading", p->at + sent, p->size);
}

// Worth another try: the connection broke, the server is busy, or it holds something else than we
// thought. Waits a little.
static bool again(struct pieces *p, status_t st, const struct http_reply *r) {
    bool offset = !st && r->code == 400 && r->body.n && strstr(r->body.p, "UPLOAD_OFFSET");
    if (!offset && (st ? st_code(st) != ST_UNAVAILABLE : r->code != 503)) return false;
    if (!p->path || p->broken == TRIES) return false; // no path: not even begun
    int64_t ms = (int64_t)WAIT_MS << p->broken++;
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    return true;
}

// One request until it is answered, or was tried often enough. A piece is not sent again before the
// server has said what it holds: *out NULL and 0.
static int ask(struct pieces *p, const struct http_request *q, json_t **out) {
    struct http_reply r;
    json_error_t e;
    *out = NULL;
    for (;;) {
        status_t st = hlo_http(p->h, q, &r);
        bool more = again(p, st, &r);
        if (st && !more) return fail_status(st);
        if (!more) break;
        if (st)
            st_drop(st);
        else
            http_reply_done(&r);
        if (q->on_progress) return 0;
    }
    int rc = r.code < 300 ? 0 : fail_reply(&r, EXIT_REFUSED);
    if (!rc && !(*out = json_loadb(strbuf_cstr(&r.body), r.body.n, 0, &e)))
        rc = fail_status(st_new(ST_INTERNAL, "the server's reply is not JSON: %s", e.text));
    http_reply_done(&r);
    return rc;
}

static int send_pieces(struct pieces *p, int64_t piece_bytes) {
    while (p->at < p->size) {
        int64_t end = p->size - p->at < piece_bytes ? p->size : p->at + piece_bytes;
        if (end > p->hashed) {
            size_t n = cut(p, p->hashed, end);
            for (size_t k = 0; k < n; k++)
                sha256_add(&p->hash, p->some[k].p, p->some[k].n);
            p->hashed = end;
        }
        struct http_request put = {
            .method = "PUT",
            .path = arena_printf(&p->h->arena, "%s?offset=%lld", p->path, (long long)p->at),
            .content_type = "application/octet-stream",
            .parts = p->some,
            .n_parts = cut(p, p->at, end),
            .on_progress = on_progress,
            .ctx = p};
        json_t *j;
        int rc = ask(p, &put, &j);
        if (!rc && !j) rc = ask(p, &(struct http_request){.method = "GET", .path = p->path}, &j);
        if (rc) return rc;
        int64_t held = (int64_t)number_at(j, "offset");
        json_decref(j);
        if (held < 0 || held > p->hashed)
            return fail_status(st_new(ST_INTERNAL, "the server holds %lld bytes, %lld were sent",
                                      (long long)held, (long long)p->hashed));
        if (held > p->at) p->broken = 0;
        p->at = held;
    }
    return 0;
}

static int start(struct pieces *p, int64_t *out_piece_bytes) {
    const char *text = arena_printf(&p->h->arena, "{\"size\":%lld}", (long long)p->size);
    struct span body = {(const uint8_t *)text, strlen(text)};
    json_t *j;
    int rc = ask(p,
                 &(struct http_request){
                     .method = "POST", .path = "/v1/uploads", .parts = &body, .n_parts = 1},
                 &j);
    if (rc) return rc;
    p->path = arena_printf(&p->h->arena, "/v1/uploads/%s", text_at(j, "upload"));
    int64_t most = (int64_t)number_at(j, "pieceBytes");
    *out_piece_bytes = most > 0 && most < PIECE_BYTES ? most : PIECE_BYTES;
    json_decref(j);
    return 0;
}
static int finish(struct pieces *p, char out_hex[65]) {
    json_t *j;
    const char *path = arena_printf(&p->h->arena, "%s/finish", p->path);
    int rc = ask(p, &(struct http_request){.method = "POST", .path = path}, &j);
    if (rc) return rc;
    digest_hex(sha256_end(&p->hash), out_hex);
    p->hash.ctx = NULL;
    if (strcmp(text_at(j, "digest"), out_hex) != 0)
        rc = fail_status(st_new(ST_DATA_LOSS, "the server stored %s, what was sent is %s",
                                text_at(j, "digest"), out_hex));
    json_decref(j);
    return rc;
}

int upload_pieces(struct hlo *h, const struct span *parts, size_t n_parts, char out_hex[65]) {
    struct pieces p = {.h = h, .parts = parts, .n_parts = n_parts};
    int64_t piece_bytes;
    for (size_t k = 0; k < n_parts; k++)
        p.size += (int64_t)parts[k].n;
    p.some = arena_array(&h->arena, struct span, n_parts);
    int rc = start(&p, &piece_bytes);
    if (rc) return rc;
    sha256_init(&p.hash);
    progress_begin(&p.progress, h);
    rc = send_pieces(&p, piece_bytes);
    progress_end(&p.progress);
    if (!rc) rc = finish(&p, out_hex);
    if (rc && rc != EXIT_UNREACHABLE) { // what is of no use need not wait until it expires
        struct http_reply r;
        status_t st = hlo_http(h, &(struct http_request){.method = "DELETE", .path = p.path}, &r);
        if (!st) http_reply_done(&r);
        st_drop(st);
    }
    if (p.hash.ctx) sha256_abandon(&p.hash);
    return rc;
}
