// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/store/store.h"
#include "scheduler/loop.h"
#include "scheduler/records/blobs.h"
#include "scheduler/sched.h"

enum { PIECE = 64 << 10 }; // with its header less than what the reserve is for (server/reserve.c)
struct sent_file {
    struct sched *sched;
    int fd;
    int64_t bytes, sent;
    struct digest digest;
    struct sha256 hash; // of what was sent
    bool hashed;        // ended
};

struct second_look {
    struct store *store;
    struct digest digest;
};
static void look(void *arg) {
    struct second_look *x = arg;
    int fd;
    int64_t offset, bytes;
    status_t st =
        blob_said(store_open_fd(x->store, STORE_BLOB, x->digest, STORE_CHECK, &fd, &offset, &bytes),
                  x->digest);
    if (!st) close(fd);
    st_drop(st);
}
// True: these are the bytes of its name.
static bool is_right(struct sent_file *f) {
    f->hashed = true;
    if (digest_eq(sha256_end(&f->hash), f->digest)) return true;
    log_event(LOG_ERROR, "blob.changed", "digest=%s why=\"its file changed while it was sent\"",
              digest_to_hex(f->digest).z);
    struct second_look *x = malloc(sizeof *x);
    if (!x) return false;
    *x = (struct second_look){sched_store(f->sched), f->digest};
    loop_work(sched_loop(f->sched), look, free, x);
    return false;
}
static ssize_t read_piece(void *cls, uint64_t at, char *buf, size_t max) {
    struct sent_file *f = cls;
    ssize_t n;
    do
        n = pread(f->fd, buf, max, (off_t)at);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return MHD_CONTENT_READER_END_WITH_ERROR; // shorter than it was
    sha256_add(&f->hash, buf, (size_t)n);
    f->sent += n;
    return f->sent < f->bytes || is_right(f) ? n : MHD_CONTENT_READER_END_WITH_ERROR;
}
static void close_file(void *cls) {
    struct sent_file *f = cls;
    if (!f->hashed) sha256_abandon(&f->hash);
    close(f->fd);
    free(f);
}

struct MHD_Response *http_file_response(struct http_req *r, struct call_file *f,
                                        struct digest digest) {
    int fd = f->fd;
    f->fd = -1;
    if (f->offset || f->bytes != f->total || !f->bytes)
        return MHD_create_response_from_fd_at_offset64((uint64_t)f->bytes, fd, (uint64_t)f->offset);
    struct sent_file *x = malloc(sizeof *x);
    if (!x) abort();
    *x = (struct sent_file){
        .sched = r->h->api->sched, .fd = fd, .bytes = f->bytes, .digest = digest};
    sha256_init(&x->hash);
    return MHD_create_response_from_callback((uint64_t)f->bytes, PIECE, read_piece, x, close_file);
}
