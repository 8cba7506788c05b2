// SPDX-License-Identifier: Apache-2.0
// One call: its blobs and its status, and the socket's sending side, which the loop thread and the
// run thread share behind a mutex.
#include "devices/worker/worker_calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "devices/worker/sandbox.h"
#include "devices/worker/worker_cut.h"
#include "devices/worker/worker_maps.h"

// Each descriptor is mapped once and whole, however many blobs lie in it.
static status_t map_fd(struct worker_call *c, uint32_t fd, struct span *out) {
    struct span *m = &c->maps[fd - 1];
    if (!m->p) RETURN_IF_ERR(worker_map(c->fds[fd - 1], false, c->id, m, &c->kept[fd - 1]));
    *out = *m;
    return ST_OK;
}

status_t worker_call_blob(struct worker_call *c, const Hlod__Wire__Blob *b, struct span *out) {
    struct span all = {0};
    *out = (struct span){0};
    if (!b || (b->fd == 0 && b->inline_bytes.len == 0)) return ST_OK;
    if (b->fd == 0) {
        *out = (struct span){b->inline_bytes.data, b->inline_bytes.len};
        return ST_OK;
    }
    if ((int64_t)b->fd > c->n_fds)
        return st_internal("a blob names descriptor %u of %d", b->fd, c->n_fds);
    if (b->size == 0) return ST_OK;
    RETURN_IF_ERR(map_fd(c, b->fd, &all));
    if (b->offset > all.n || b->size > all.n - b->offset)
        return st_internal("a blob of %llu bytes at %llu in a descriptor of %zu",
                           (unsigned long long)b->size, (unsigned long long)b->offset, all.n);
    *out = (struct span){all.p + b->offset, (size_t)b->size};
    return ST_OK;
}

status_t worker_call_put_blob(struct worker_call *c, const void *p, size_t n,
                              Hlod__Wire__Blob **out) {
    Hlod__Wire__Blob *b = message_new(&c->arena, &hlod__wire__blob__descriptor);
    b->size = n;
    if (n <= 4096) {
        b->inline_bytes = (ProtobufCBinaryData){n, arena_dup(&c->arena, p, n)};
        *out = b;
        return ST_OK;
    }
    int fd;
    uint8_t *map;
    void *base;
    size_t bytes;
    RETURN_IF_ERR(frame_memfd("hlod-reply", (int64_t)n, &fd));
    status_t st = frame_map(fd, 0, (int64_t)n, true, &map, &base, &bytes);
    if (st) {
        close(fd);
        return st;
    }
    memcpy(map, p, n);
    frame_unmap(base, bytes);
    c->reply_fds[c->n_reply_fds++] = fd;
    b->fd = (uint32_t)c->n_reply_fds;
    *out = b;
    return ST_OK;
}

Hlod__Wire__Status *worker_call_status(struct worker_call *c, status_t st) {
    Hlod__Wire__Status *s = message_new(&c->arena, &hlod__wire__status__descriptor);
    const char *refused;
    if (worker_cut_happened()) {
        st_drop(st);
        st = st_reason(st_new(ST_DATA_LOSS, "a file was made shorter while it was read"),
                       HLOD__V1__REASON__REASON_CACHE_DAMAGED);
    }
    if (st && sandbox_refused(&refused) > c->refused_before)
        st = st_note(st, "the worker's filter refused the system call %s", refused);
    s->code = (int32_t)st_code(st);
    s->message = arena_strdup(&c->arena, st_message(st));
    s->reason = st_get_reason(st);
    if (st_code(st) == ST_UNAVAILABLE) { // device.h: the device is lost
        c->device_lost = true;
        s->reason = HLOD__V1__REASON__REASON_WORKER_LOST;
    }
    st_drop(st);
    return s;
}

void worker_send(struct worker_socket *s, uint32_t type, uint64_t id, const ProtobufCMessage *m,
                 const int *fds, int n_fds) {
    pthread_mutex_lock(&s->mutex);
    st_drop(frame_batch_send(s->fd, &s->batch, -1));
    if (m) // the daemon gone: the loop sees it too
        st_drop(frame_send_msg(s->fd, type, id, m, fds, n_fds, -1));
    else
        st_drop(frame_send(s->fd, type, id, (struct span){NULL, 0}, NULL, 0, -1));
    pthread_mutex_unlock(&s->mutex);
}

// The first reply does not wait for long for the last.
void worker_send_soon(struct worker_socket *s, uint32_t type, uint64_t id,
                      const ProtobufCMessage *m, const int *fds, int n_fds) {
    enum { HOLD_NS = 100000 };
    int64_t now = clock_ns();
    pthread_mutex_lock(&s->mutex);
    if (!s->batch.n) s->held_ns = now;
    bool held = !n_fds && now - s->held_ns < HOLD_NS && frame_batch_add(&s->batch, type, id, m);
    pthread_mutex_unlock(&s->mutex);
    if (!held) worker_send(s, type, id, m, fds, n_fds);
}
void worker_send_held(struct worker_socket *s) {
    pthread_mutex_lock(&s->mutex);
    st_drop(frame_batch_send(s->fd, &s->batch, -1));
    pthread_mutex_unlock(&s->mutex);
}

void worker_call_event(struct worker_call *c, uint32_t type, const ProtobufCMessage *m) {
    worker_send(c->socket, type, c->id, m, c->event_fds, m ? c->n_event_fds : 0);
}

void worker_call_free(struct worker_call *c) {
    if (c->request) protobuf_c_message_free_unpacked(c->request, NULL);
    for (int k = 0; k < c->n_fds; k++)
        if (!c->kept[k]) frame_unmap((void *)(uintptr_t)c->maps[k].p, c->maps[k].n);
    for (int k = 0; k < c->n_fds; k++)
        if (c->fds[k] >= 0) close(c->fds[k]);
    for (int k = 0; k < c->n_reply_fds; k++)
        close(c->reply_fds[k]);
    arena_done(&c->arena);
    free(c);
}

// ---- the most memory held

static int peak_fd = -1;

void worker_peak_open(void) {
    peak_fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
}

// The kernel's high-water mark starts again from what is resident now.
void worker_peak_begin(void) {
    if (peak_fd >= 0 && write(peak_fd, "5", 1) != 1)
        peak_fd = -1; // an old kernel: the mark is that of the whole process
}

int64_t worker_peak_bytes(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (int64_t)u.ru_maxrss * 1024;
}
