// SPDX-License-Identifier: Apache-2.0
// A memfd is recognized by its inode, which names no other one while a mapping holds it. When there
// are too many or too much the least recently used goes, but none that the present call uses, nor
// any that calls have come back to lately: where more requests are under way than there is room
// for, their memfds come in turn, and the one used longest ago is the one that comes next. Room for
// the first of them serves these; for the others there is a mapping for the call.
#include "devices/worker/worker_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/frame.h"

enum { KEPT = 256, KEPT_BYTES = 64 << 20, LATELY = 2 * KEPT };
static struct kept {
    dev_t dev;
    ino_t ino;
    bool writable;
    uint8_t *p; // NULL: free
    void *base;
    size_t n;
    uint64_t call; // the last one
} kept[KEPT];
static size_t kept_bytes;
static uint64_t since = UINT64_MAX; // calls that go on
void worker_maps_since(uint64_t call) {
    since = call;
}

static void drop(struct kept *k) {
    frame_unmap(k->base, k->n);
    kept_bytes -= k->n;
    *k = (struct kept){0};
}
// A free place, with room for n bytes; NULL when the present call holds too much.
static struct kept *make_room(size_t n, uint64_t call) {
    for (;;) {
        struct kept *oldest = NULL, *empty = NULL;
        for (int i = 0; i < KEPT; i++) {
            struct kept *k = &kept[i];
            if (!k->p)
                empty = k;
            else if (k->call != call && k->call < since && (!oldest || k->call < oldest->call))
                oldest = k;
        }
        if (empty && kept_bytes + n <= KEPT_BYTES) return empty;
        if (!oldest || call - oldest->call < LATELY) return NULL;
        drop(oldest);
    }
}

// The C library's fstat may be a system call that the filter does not let through but makes up for
// (sandbox.c), by a signal each time.
static int stat_of(int fd, struct stat *out) {
    return (int)syscall(SYS_fstat, fd, out);
}

status_t worker_map(int fd, bool writable, uint64_t call, struct span *out, bool *out_kept) {
    struct stat sb;
    *out_kept = false;
    if (stat_of(fd, &sb)) return st_errno(errno, "a descriptor of the request");
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &kept[i];
        if (!k->p || k->ino != sb.st_ino || k->dev != sb.st_dev || k->writable != writable ||
            k->n != (size_t)sb.st_size)
            continue;
        k->call = call;
        *out = (struct span){k->p, k->n};
        *out_kept = true;
        return ST_OK;
    }
    struct kept m = {.dev = sb.st_dev, .ino = sb.st_ino, .writable = writable, .call = call};
    RETURN_IF_ERR(frame_map(fd, 0, (int64_t)sb.st_size, writable, &m.p, &m.base, &m.n));
    *out = (struct span){m.p, (size_t)sb.st_size};
    int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
    // Not a file of the store, nor a copy of one, which comes once.
    bool memory = seals >= 0 && (seals & F_SEAL_SHRINK) && (flags & O_ACCMODE) != O_RDONLY;
    struct kept *k = memory && m.n <= KEPT_BYTES ? make_room(m.n, call) : NULL;
    if (!k) return ST_OK;
    *k = m;
    kept_bytes += m.n;
    *out_kept = true;
    return ST_OK;
}
