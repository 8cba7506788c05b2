// SPDX-License-Identifier: Apache-2.0
// A connection that breaks costs the piece under way. Then the server is asked what it holds: it
// may have got a piece whose reply was lost.
#include "client/lib/upload.h"

#include <string.h>
#include <time.h>

#include "base/hash.h"

enum { PIECE_BYTES = 8 << 20, TRIES = 5, WAIT_MS = 250 };
struct upload {
    struct hlod *h;
    struct arena arena;
    const struct span *parts;
    size_t n_parts;
    struct span *some; // [n_parts], of the piece under way
    int64_t size, at, hashed, piece_bytes;
    struct sha256 hash;
    const char *name;
    hlod_upload_fn on_progress;
    void *ctx;
    int broken; // times in a row
};

// u->some becomes the bytes [from, to); how many parts.
static size_t cut(struct upload *u, int64_t from, int64_t to) {
    size_t n = 0;
    int64_t begin = 0;
    for (size_t k = 0; k < u->n_parts; k++) {
        int64_t end = begin + (int64_t)u->parts[k].n, a = from > begin ? from : begin,
                b = to < end ? to : end;
        if (a < b) u->some[n++] = (struct span){u->parts[k].p + (a - begin), (size_t)(b - a)};
        begin = end;
    }
    return n;
}
static void on_sent(void *ctx, int64_t sent, int64_t total) {
    struct upload *u = ctx;
    (void)total;
    if (u->on_progress) u->on_progress(u->ctx, u->at + sent, u->size);
}

// ---- requests

static status_t send(struct upload *u, const struct wire_request *q, void *out) {
    struct wire_reader r;
    RETURN_IF_ERR(wire_stream(u->h, q, &r));
    *(ProtobufCMessage **)out = r.reply;
    return ST_OK;
}

// Worth another try: the connection broke, the server is busy, or it holds something else than we
// thought. Waits a little.
static bool again(struct upload *u, status_t st) {
    bool offset = st_get_reason(st) == HLOD__V1__REASON__REASON_UPLOAD_OFFSET;
    if ((!offset && st_code(st) != ST_UNAVAILABLE) || u->broken == TRIES) return false;
    int64_t ms = (int64_t)WAIT_MS << u->broken++;
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    return true;
}

// GetUpload and FinishUpload: asked until answered, or often enough.
static status_t ask(struct upload *u, const char *method, const char *verb, const char *tail,
                    const ProtobufCMessageDescriptor *reply, void *out) {
    Hlod__V1__GetUploadRequest get = HLOD__V1__GET_UPLOAD_REQUEST__INIT;
    Hlod__V1__FinishUploadRequest finish = HLOD__V1__FINISH_UPLOAD_REQUEST__INIT;
    get.upload = finish.upload = (char *)(uintptr_t)u->name;
    struct wire_request q = {.reply = reply,
                             .verb = verb,
                             .path = arena_printf(&u->arena, "/v1/uploads/%s%s", u->name, tail),
                             .method = method,
                             .message = *tail ? &finish.base : &get.base};
    for (;;) {
        status_t st = send(u, &q, out);
        if (!st || !again(u, st)) return st;
        st_drop(st);
    }
}

// One piece, once; *out_held: what the server holds now, -1 when it is to be asked.
static status_t put(struct upload *u, size_t n, int64_t *out_held) {
    Hlod__V1__AppendUploadRequest m = HLOD__V1__APPEND_UPLOAD_REQUEST__INIT;
    Hlod__V1__Upload *reply;
    struct arena a = {0};
    struct wire_request q = {
        .reply = &hlod__v1__upload__descriptor,
        .verb = "PUT",
        .path = arena_printf(&a, "/v1/uploads/%s?offset=%lld", u->name, (long long)u->at),
        .content_type = "application/octet-stream",
        .parts = u->some,
        .n_parts = n,
        .on_progress = on_sent,
        .ctx = u,
        .method = "AppendUpload",
        .message = &m.base};
    m.upload = (char *)(uintptr_t)u->name;
    m.offset = u->at;
    if (u->h->grpc) m.data = wire_joined(&a, u->some, n);

    status_t st = send(u, &q, &reply);
    arena_done(&a);
    *out_held = -1;
    if (st && again(u, st)) {
        st_drop(st);
        return ST_OK;
    }
    if (st) return st;
    *out_held = reply->offset;
    hlod__v1__upload__free_unpacked(reply, NULL);
    return ST_OK;
}

static status_t send_pieces(struct upload *u) {
    while (u->at < u->size) {
        int64_t end = u->size - u->at < u->piece_bytes ? u->size : u->at + u->piece_bytes, held;
        if (end > u->hashed) {
            size_t n = cut(u, u->hashed, end);
            for (size_t k = 0; k < n; k++)
                sha256_add(&u->hash, u->some[k].p, u->some[k].n);
            u->hashed = end;
        }
        RETURN_IF_ERR(put(u, cut(u, u->at, end), &held));

        if (held < 0) {
            Hlod__V1__Upload *reply;
            RETURN_IF_ERR(ask(u, "GetUpload", "GET", "", &hlod__v1__upload__descriptor, &reply));
            held = reply->offset;
            hlod__v1__upload__free_unpacked(reply, NULL);
        }
        if (held < 0 || held > u->hashed)
            return st_new(ST_INTERNAL, "the server holds %lld bytes, %lld were sent",
                          (long long)held, (long long)u->hashed);
        if (held > u->at) u->broken = 0;
        u->at = held;
        on_sent(u, 0, 0);
    }
    return ST_OK;
}

static status_t start(struct upload *u) {
    Hlod__V1__StartUploadRequest m = HLOD__V1__START_UPLOAD_REQUEST__INIT;
    ProtobufCMessage *reply;
    m.size = u->size;
    RETURN_IF_ERR(wire_unary(u->h, "StartUpload", &m.base, &hlod__v1__upload__descriptor, &reply));

    const Hlod__V1__Upload *up = (const Hlod__V1__Upload *)reply;
    u->name = up->upload;
    u->piece_bytes =
        up->piece_bytes > 0 && up->piece_bytes < PIECE_BYTES ? up->piece_bytes : PIECE_BYTES;
    wire_keep(&u->arena, reply);
    return ST_OK;
}
static status_t finish(struct upload *u, char out_hex[65]) {
    Hlod__V1__BlobInfo *reply;
    RETURN_IF_ERR(
        ask(u, "FinishUpload", "POST", "/finish", &hlod__v1__blob_info__descriptor, &reply));
    digest_hex(sha256_end(&u->hash), out_hex);
    status_t st = ST_OK;
    if (strcmp(reply->digest, out_hex) != 0)
        st = st_new(ST_DATA_LOSS, "the server stored %s, what was sent is %s", reply->digest,
                    out_hex);
    hlod__v1__blob_info__free_unpacked(reply, NULL);
    return st;
}
// What is of no use need not wait until it expires.
static void cancel(struct upload *u) {
    Hlod__V1__CancelUploadRequest m = HLOD__V1__CANCEL_UPLOAD_REQUEST__INIT;
    bool answered = u->h->answered;
    ProtobufCMessage *reply;
    m.upload = (char *)(uintptr_t)u->name;
    status_t st = wire_unary(u->h, "CancelUpload", &m.base,
                             &hlod__v1__cancel_upload_reply__descriptor, &reply);
    if (!st) protobuf_c_message_free_unpacked(reply, NULL);
    st_drop(st);
    u->h->answered = answered;
}

status_t upload_parts(struct hlod *h, const struct span *parts, size_t n_parts,
                      hlod_upload_fn on_progress, void *ctx, char out_hex[65]) {
    struct upload u = {
        .h = h, .parts = parts, .n_parts = n_parts, .on_progress = on_progress, .ctx = ctx};
    for (size_t k = 0; k < n_parts; k++)
        u.size += (int64_t)parts[k].n;
    u.some = arena_array(&u.arena, struct span, n_parts + 1);
    status_t st = start(&u);
    if (!st) {
        sha256_init(&u.hash);
        st = send_pieces(&u);
        if (!st) st = finish(&u, out_hex);
        if (st && (h->answered || st_code(st) != ST_UNAVAILABLE)) cancel(&u);
        sha256_abandon(&u.hash);
    }
    arena_done(&u.arena);
    return st;
}

enum hlod_code hlod_upload(struct hlod *h, const struct hlod_bytes *parts, size_t n_parts,
                           hlod_upload_fn on_progress, void *ctx,
                           char out_digest[HLOD_DIGEST_CHARS]) {
    struct arena a = {0};
    struct span *v = arena_array(&a, struct span, n_parts + 1);
    for (size_t k = 0; k < n_parts; k++)
        v[k] = (struct span){parts[k].data, parts[k].size_bytes};
    status_t st = upload_parts(h, v, n_parts, on_progress, ctx, out_digest);
    arena_done(&a);
    return wire_end(h, st);
}
