// SPDX-License-Identifier: Apache-2.0
// One list of kept memfds an owner, oldest first. A list is short (keep_bytes over the smallest
// size), so it is searched. Each owner has a generation, which its death raises; a memfd of an
// older one is closed instead of kept. The pool itself lives until the last memfd is back.
#include "scheduler/workers/memfds.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/span.h"
#include "proto/frame.h"

enum { SMALLEST = 128 * 1024 };

struct memfd {
    struct memfds *pool;
    struct memfd *next; // while kept
    int fd, owner, refs;
    uint8_t *memory; // NULL until asked for
    void *base;
    size_t base_bytes;
    uint64_t tenant, generation;
    int64_t bytes;
};
struct owner {
    struct memfd *oldest;
    int64_t kept_bytes;
    uint64_t generation;
};
struct memfds {
    pthread_mutex_t mutex;
    int64_t keep_bytes;
    int n, out; // owners; memfds not kept
    bool closing;
    struct owner owners[];
};

struct memfds *memfds_new(int owners, int64_t keep_bytes) {
    struct memfds *p = arena_must_calloc(1, sizeof *p + (size_t)owners * sizeof *p->owners);
    p->n = owners;
    p->keep_bytes = keep_bytes;
    pthread_mutex_init(&p->mutex, NULL);
    return p;
}

// Unlinks *at from its list.
static struct memfd *unlink_kept(struct owner *o, struct memfd **at) {
    struct memfd *m = *at;
    *at = m->next;
    m->next = NULL;
    o->kept_bytes -= m->bytes;
    return m;
}
static void close_memfd(struct memfd *m) {
    frame_unmap(m->base, m->base_bytes);
    close(m->fd);
    free(m);
}
static void close_kept(struct owner *o) {
    while (o->oldest)
        close_memfd(unlink_kept(o, &o->oldest));
}
static void free_pool(struct memfds *p) {
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

void memfds_free(struct memfds *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    for (int k = 0; k < p->n; k++)
        close_kept(&p->owners[k]);
    p->closing = true;
    bool last = p->out == 0;
    pthread_mutex_unlock(&p->mutex);
    if (last) free_pool(p);
}

void memfds_drop(struct memfds *p, int owner) {
    pthread_mutex_lock(&p->mutex);
    close_kept(&p->owners[owner]);
    p->owners[owner].generation++;
    pthread_mutex_unlock(&p->mutex);
}

int64_t memfds_kept(struct memfds *p, int owner) {
    pthread_mutex_lock(&p->mutex);
    int64_t n = p->owners[owner].kept_bytes;
    pthread_mutex_unlock(&p->mutex);
    return n;
}

// The smallest that fits and is not wasted on so little; of equal ones the newest, which caches may
// still hold.
static struct memfd *find_kept(struct owner *o, uint64_t tenant, int64_t bytes) {
    struct memfd **best = NULL;
    for (struct memfd **at = &o->oldest; *at; at = &(*at)->next)
        if ((*at)->tenant == tenant && (*at)->bytes >= bytes && (*at)->bytes / 4 <= bytes &&
            (!best || (*at)->bytes <= (*best)->bytes))
            best = at;
    return best ? unlink_kept(o, best) : NULL;
}

status_t memfds_take(struct memfds *p, int owner, uint64_t tenant, int64_t bytes,
                     struct memfd **out) {
    if (bytes <= 0) return st_invalid("memory of %lld bytes", (long long)bytes);
    int64_t size = bytes;
    struct memfd *m = NULL;
    uint64_t generation = 0;

    pthread_mutex_lock(&p->mutex);
    if (owner != MEMFD_NOBODY) {
        generation = p->owners[owner].generation;
        size = SMALLEST; // powers of two, so that sizes that differ a little share
        while (size < bytes && sz_mul(size, 2, &size))
            ;
        if (size < bytes || size > p->keep_bytes)
            size = bytes; // will not be kept
        else
            m = find_kept(&p->owners[owner], tenant, size);
    }
    p->out++;
    pthread_mutex_unlock(&p->mutex);

    status_t st = ST_OK;
    if (!m) {
        m = calloc(1, sizeof *m);
        st = m ? frame_memfd("hlod-tensors", size, &m->fd) : st_oom();
        if (!st)
            *m = (struct memfd){.fd = m->fd,
                                .owner = owner,
                                .tenant = tenant,
                                .generation = generation,
                                .bytes = size};
    }
    if (st) {
        free(m);
        pthread_mutex_lock(&p->mutex);
        p->out--;
        pthread_mutex_unlock(&p->mutex);
        return st;
    }

    m->pool = p;
    m->refs = 1;
    *out = m;
    return ST_OK;
}

int memfd_fd(const struct memfd *m) {
    return m->fd;
}

int64_t memfd_bytes(const struct memfd *m) {
    return m->bytes;
}
status_t memfd_memory(struct memfd *m, uint8_t **out) {
    if (!m->memory)
        RETURN_IF_ERR(frame_map(m->fd, 0, m->bytes, true, &m->memory, &m->base, &m->base_bytes));
    *out = m->memory;
    return ST_OK;
}

struct memfd *memfd_ref(struct memfd *m) {
    pthread_mutex_lock(&m->pool->mutex);
    m->refs++;
    pthread_mutex_unlock(&m->pool->mutex);
    return m;
}

// Keeps m as the newest of its owner. False: it is not kept.
static bool keep(struct memfds *p, struct memfd *m) {
    if (m->owner == MEMFD_NOBODY || p->closing || m->bytes > p->keep_bytes) return false;
    struct owner *o = &p->owners[m->owner];
    if (o->generation != m->generation) return false;
    while (o->kept_bytes + m->bytes > p->keep_bytes)
        close_memfd(unlink_kept(o, &o->oldest));
    struct memfd **at = &o->oldest;
    while (*at)
        at = &(*at)->next;
    *at = m;
    o->kept_bytes += m->bytes;
    return true;
}

void memfd_unref(struct memfd *m) {
    if (!m) return;
    struct memfds *p = m->pool;
    pthread_mutex_lock(&p->mutex);
    bool back = --m->refs == 0;
    if (back) p->out--;
    bool kept = back && keep(p, m), last = back && p->closing && p->out == 0;
    pthread_mutex_unlock(&p->mutex);
    if (back && !kept) close_memfd(m);
    if (last) free_pool(p);
}
