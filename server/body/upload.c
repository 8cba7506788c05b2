// SPDX-License-Identifier: Apache-2.0
#include "server/body/upload.h"

#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "base/store/store.h"
#include "scheduler/error.h"
#include "scheduler/loop.h"

struct upload {
    struct loop *loop;
    struct store *store;
    void (*ready)(void *);
    void *ctx;
    struct store_writer *w; // pool's while writing
    uint8_t *buf[2];
    size_t n[2];
    int filling; // index of the loop's buffer; the other is the pool's while `writing`
    bool writing, ending, finished, orphan, ended_work;
    int64_t bytes;
    struct digest digest;
    uint64_t fresh;
    status_t st; // first error; what comes after is dropped
};

static void destroy(struct upload *u) {
    store_write_abort(u->w);
    st_drop(u->st);
    free(u->buf[0]);
    free(u->buf[1]);
    free(u);
}

struct upload *upload_new(struct loop *l, struct store *s, void (*ready)(void *), void *ctx) {
    struct upload *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    *u = (struct upload){.loop = l, .store = s, .ready = ready, .ctx = ctx};
    for (int i = 0; i < 2; i++)
        u->buf[i] = malloc(UPLOAD_BUFFER_BYTES);
    if (u->buf[0] && u->buf[1]) return u;
    destroy(u);
    return NULL;
}

static void write_work(void *arg) {
    struct upload *u = arg;
    int i = !u->filling;
    if (!u->w && !u->st) u->st = store_write_begin(u->store, STORE_BLOB, &u->w);
    if (!u->st && u->n[i]) u->st = store_write(u->w, u->buf[i], u->n[i]);
    if (u->ended_work && !u->st) {
        struct store_writer *w = u->w;
        u->w = NULL;
        u->st = store_write_end(w, &u->digest, &u->fresh);
    }
    u->st = error_of_store(u->st);
}

static void start_write(struct upload *u);
static void written(void *arg) {
    struct upload *u = arg;
    u->writing = false;
    u->n[!u->filling] = 0;
    if (u->orphan) {
        destroy(u);
        return;
    }
    if (u->ended_work)
        u->finished = true;
    else if (u->n[u->filling] == UPLOAD_BUFFER_BYTES || u->ending)
        start_write(u);
    if (!u->ending || u->finished) u->ready(u->ctx);
}

static void start_write(struct upload *u) {
    u->filling = !u->filling;
    u->writing = true;
    u->ended_work = u->ending;
    loop_work(u->loop, write_work, written, u);
}

size_t upload_add(struct upload *u, const void *p, size_t n) {
    size_t taken = 0;
    while (taken < n) {
        size_t room = UPLOAD_BUFFER_BYTES - u->n[u->filling];
        if (room == 0) break;
        size_t k = n - taken < room ? n - taken : room;
        memcpy(u->buf[u->filling] + u->n[u->filling], (const uint8_t *)p + taken, k);
        u->n[u->filling] += k;
        taken += k;
        if (u->n[u->filling] == UPLOAD_BUFFER_BYTES && !u->writing) start_write(u);
    }
    u->bytes += (int64_t)taken;
    metric_add(M_UPLOAD_BYTES, (int64_t)taken);
    return taken;
}

void upload_end(struct upload *u) {
    u->ending = true;
    if (!u->writing) start_write(u);
}

bool upload_finished(const struct upload *u) {
    return u->finished;
}

status_t upload_result(struct upload *u, struct digest *out_digest, uint64_t *out_fresh) {
    status_t st = u->st;
    u->st = ST_OK;
    if (st) return st;
    *out_digest = u->digest;
    *out_fresh = u->fresh;
    return ST_OK;
}

void upload_free(struct upload *u) {
    if (!u) return;
    if (u->writing)
        u->orphan = true;
    else
        destroy(u);
}
