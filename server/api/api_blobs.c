// SPDX-License-Identifier: Apache-2.0
// Blobs: put, get, stat, by digest. Over HTTP the bytes are the body: on the way in they were
// streamed to the store before the handler is called, on the way out the transport sends the file.
// Elsewhere they travel in the message, a piece at a time.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/store/store.h"
#include "proto/message.h"
#include "scheduler/records/blobs.h"
#include "server/api/api.h"

enum { PIECE_MAX = 64 << 20 };
struct blob_work {
    struct call *c;
    struct store *store;
    struct journal *journal;
    bool any; // PutBlob without a digest
    struct digest digest;
    ProtobufCMessage *reply;
};

static status_t answer(void *arg) {
    const struct blob_work *w = arg;
    return call_reply(w->c, w->reply);
}
static status_t start(struct call *c, status_t (*work)(void *), const char *digest) {
    struct blob_work *w = arena_new_of(&c->arena, struct blob_work);
    *w = (struct blob_work){.c = c,
                            .store = sched_store(c->api->sched),
                            .journal = sched_journal(c->api->sched),
                            .any = !*digest && c->row->body == BODY_BLOB};
    if (!w->any) RETURN_IF_ERR(api_digest(digest, "digest", &w->digest));
    return call_work(c, work, answer, w);
}

static void set_info(struct blob_work *w, int64_t bytes) {
    Hlod__V1__BlobInfo *m = message_new(&w->c->arena, &hlod__v1__blob_info__descriptor);
    m->digest = api_hex(&w->c->arena, w->digest);
    m->bytes = bytes;
    w->reply = &m->base;
}

// ---- put

MUST_CHECK static status_t mismatch(struct call *c, struct digest want, struct digest got) {
    return st_because(ST_INVALID_ARGUMENT, BLOB_MISMATCH, "the bytes have digest %s, not %s",
                      api_hex(&c->arena, got), api_hex(&c->arena, want));
}
static status_t put(void *arg) {
    struct blob_work *w = arg;
    struct call *c = w->c;
    const Hlod__V1__PutBlobRequest *q = call_request(c);
    struct digest got = c->has_source ? c->source : sha256_of(q->data.data, q->data.len);
    if (!w->any && !digest_eq(got, w->digest)) return mismatch(c, w->digest, got);
    w->digest = got;
    const char *tenant = c->principal.tenant;
    if (c->has_source)
        RETURN_IF_ERR(blob_own(w->journal, tenant, got));
    else
        RETURN_IF_ERR(
            blob_put(w->store, w->journal, tenant, (struct span){q->data.data, q->data.len}, &got));
    int fd;
    int64_t bytes;
    RETURN_IF_ERR(blob_open(w->store, w->journal, tenant, got, &fd, &bytes));
    close(fd);
    set_info(w, bytes);
    return ST_OK;
}
status_t api_put_blob(struct call *c) {
    return start(c, put, ((Hlod__V1__PutBlobRequest *)c->request)->digest);
}

// ---- stat, get

static status_t stat_blob(void *arg) {
    struct blob_work *w = arg;
    int fd;
    int64_t bytes;
    RETURN_IF_ERR(blob_open(w->store, w->journal, w->c->principal.tenant, w->digest, &fd, &bytes));
    close(fd);
    set_info(w, bytes);
    return ST_OK;
}
status_t api_stat_blob(struct call *c) {
    return start(c, stat_blob, ((Hlod__V1__StatBlobRequest *)c->request)->digest);
}

MUST_CHECK static status_t out_of_range(int64_t bytes) {
    return st_because(ST_OUT_OF_RANGE, BAD_RANGE, "the range begins behind the blob's %lld bytes",
                      (long long)bytes);
}
static status_t read_piece(struct blob_work *w, int fd, int64_t total) {
    struct call *c = w->c;
    const Hlod__V1__GetBlobRequest *q = call_request(c);
    if (q->offset < 0 || q->length < 0 || q->offset > total) return out_of_range(total);
    int64_t n = total - q->offset;
    if (q->length && q->length < n) n = q->length;
    if (n > PIECE_MAX) n = PIECE_MAX;
    Hlod__V1__Blob *m = message_new(&c->arena, &hlod__v1__blob__descriptor);
    m->digest = api_hex(&c->arena, w->digest);
    m->bytes = total;
    m->offset = q->offset;
    m->data.data = arena_alloc(&c->arena, (size_t)n + 1);
    while ((int64_t)m->data.len < n) {
        ssize_t k = pread(fd, m->data.data + m->data.len, (size_t)n - m->data.len,
                          q->offset + (int64_t)m->data.len);
        if (k <= 0) return k ? st_errno(errno, "blob") : st_new(ST_DATA_LOSS, "blob cut short");
        m->data.len += (size_t)k;
    }
    w->reply = &m->base;
    return ST_OK;
}
// A small one as a copy: what the disk does to the file while it is sent does not reach the answer.
// A large one is hashed once more by HTTP as it goes out (server/http/http_file.h).
enum { COPY_BYTES = 256 << 10 };
static status_t open_to_send(struct blob_work *w, int *out_fd, int64_t *out_bytes) {
    int64_t offset;
    RETURN_IF_ERR(
        blob_open(w->store, w->journal, w->c->principal.tenant, w->digest, out_fd, out_bytes));
    if (*out_bytes > COPY_BYTES) return ST_OK;
    close(*out_fd);
    return blob_said(
        store_open_fd(w->store, STORE_BLOB, w->digest, STORE_COPY, out_fd, &offset, out_bytes),
        w->digest);
}
static status_t get(void *arg) {
    struct blob_work *w = arg;
    struct call *c = w->c;
    int fd;
    int64_t total;
    RETURN_IF_ERR(open_to_send(w, &fd, &total));
    if (!c->wants_file) {
        status_t st = read_piece(w, fd, total);
        close(fd);
        return st;
    }
    c->file = (struct call_file){.fd = fd, .bytes = total, .total = total};
    set_info(w, total);
    return call_range(c->range, &c->file);
}
status_t api_get_blob(struct call *c) {
    return start(c, get, ((Hlod__V1__GetBlobRequest *)c->request)->digest);
}
