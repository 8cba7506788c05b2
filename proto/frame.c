// SPDX-License-Identifier: Apache-2.0
// Frames, see frame.h. Wire form of a message: struct head, then the body, or (flag BODY_FD) the
// body's length while the body lies in the last descriptor. Where no descriptor comes along, more
// of the same may follow.
#include "proto/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

enum { MAGIC = 0x31464c48 /* "HLF1" */, FLAG_BODY_FD = 1 };

struct head {
    uint32_t magic, type;
    uint64_t call;
    uint32_t flags, n_fds; // n_fds without the body's own
    uint64_t body_bytes;
};
_Static_assert(sizeof(struct head) == 32, "the wire form has no padding");

struct frame_buf {
    size_t at, end; // of the last message: what has not been given yet
    uint8_t bytes[FRAME_MAX_BYTES + 1]; // one more, so that an oversized message shows
};

struct frame_buf *frame_buf_new(void) {
    struct frame_buf *b = malloc(sizeof *b);
    if (!b) abort();
    frame_buf_empty(b);
    return b;
}

void frame_buf_free(struct frame_buf *b) {
    free(b);
}
bool frame_buf_has_more(const struct frame_buf *b) {
    return b->at < b->end;
}
void frame_buf_empty(struct frame_buf *b) {
    b->at = b->end = 0;
}

status_t frame_pair(int out_fds[2]) {
    int fds[2], size = 4 * FRAME_MAX_BYTES;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return st_errno(errno, "socketpair");
    // Best effort: the kernel caps this, and the default already holds one full message.
    for (int i = 0; i < 2; i++)
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    memcpy(out_fds, fds, sizeof fds);
    return ST_OK;
}

// Waits until the socket is ready for `events`; false when the time is over, -1: no limit.
static bool wait_for(int sock, short events, int timeout_ms) {
    if (timeout_ms == 0) return false;
    int64_t end_ns = clock_ns() + clock_of_ms(timeout_ms);
    for (;;) {
        int left_ms = timeout_ms < 0 ? -1 : (int)clock_ms_left(end_ns);
        if (timeout_ms > 0 && left_ms <= 0) return false;
        struct pollfd p = {.fd = sock, .events = events};
        int n = poll(&p, 1, left_ms);
        if (n > 0) return true;
        if (n == 0 || errno != EINTR) return false;
    }
}

static status_t send_message(int sock, struct span head, struct span inline_body, const int *fds,
                             int n_fds, int timeout_ms) {
    struct iovec iov[2] = {{(void *)(uintptr_t)head.p, head.n},
                           {(void *)(uintptr_t)inline_body.p, inline_body.n}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (FRAME_MAX_FDS + 1))];
    } control = {0};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = inline_body.n ? 2 : 1};
    if (n_fds) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n_fds);
    }
    for (;;) {
        if (sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return ST_OK;
        if (errno == EINTR) continue;
        if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            return st_new(ST_UNAVAILABLE, "the peer of a frame is gone");
        if (errno != EAGAIN && errno != ENOBUFS) return st_errno(errno, "sendmsg");
        if (!wait_for(sock, POLLOUT, timeout_ms))
            return st_new(ST_DEADLINE_EXCEEDED, "frame socket full");
    }
}

status_t frame_send(int sock, uint32_t type, uint64_t call, struct span body, const int *fds,
                    int n_fds, int timeout_ms) {
    if (n_fds < 0 || n_fds > FRAME_MAX_FDS)
        return st_invalid("frame with %d descriptors, at most %d", n_fds, FRAME_MAX_FDS);
    if (body.n > FRAME_MAX_BODY)
        return st_invalid("frame body of %zu bytes, at most %d", body.n, FRAME_MAX_BODY);
    struct head h = {
        .magic = MAGIC, .type = type, .call = call, .n_fds = (uint32_t)n_fds, .body_bytes = body.n};
    struct span head = {(const uint8_t *)&h, sizeof h};
    if (sizeof h + body.n <= FRAME_MAX_BYTES)
        return send_message(sock, head, body, fds, n_fds, timeout_ms);

    int all[FRAME_MAX_FDS + 1], body_fd;
    RETURN_IF_ERR(frame_memfd("hlod-frame", (int64_t)body.n, &body_fd));
    uint8_t *p;
    void *base;
    size_t base_bytes;
    status_t st = frame_map(body_fd, 0, (int64_t)body.n, true, &p, &base, &base_bytes);
    if (st == ST_OK) {
        memcpy(p, body.p, body.n);
        frame_unmap(base, base_bytes);
        if (n_fds) memcpy(all, fds, sizeof(int) * (size_t)n_fds);
        all[n_fds] = body_fd;
        h.flags = FLAG_BODY_FD;
        st = send_message(sock, head, (struct span){0}, all, n_fds + 1, timeout_ms);
    }
    close(body_fd);
    return st;
}

status_t frame_send_msg(int sock, uint32_t type, uint64_t call, const ProtobufCMessage *m,
                        const int *fds, int n_fds, int timeout_ms) {
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *p = malloc(n ? n : 1);
    if (!p) return st_oom();
    protobuf_c_message_pack(m, p);
    status_t st = frame_send(sock, type, call, (struct span){p, n}, fds, n_fds, timeout_ms);
    free(p);
    return st;
}

// ---- several at once

bool frame_batch_add(struct frame_batch *b, uint32_t type, uint64_t call,
                     const ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    struct head h = {.magic = MAGIC, .type = type, .call = call, .body_bytes = n};
    if (n > FRAME_BATCH_BYTES - sizeof h || b->n > FRAME_BATCH_BYTES - sizeof h - n) return false;
    if (!b->p && !(b->p = malloc(FRAME_BATCH_BYTES))) return false;
    memcpy(b->p + b->n, &h, sizeof h);
    protobuf_c_message_pack(m, b->p + b->n + sizeof h);
    b->n += sizeof h + n;
    return true;
}

status_t frame_batch_send(int sock, struct frame_batch *b, int timeout_ms) {
    if (!b->n) return ST_OK;
    status_t st =
        send_message(sock, (struct span){b->p, b->n}, (struct span){0}, NULL, 0, timeout_ms);
    if (st_code(st) != ST_DEADLINE_EXCEEDED) b->n = 0;
    return st;
}

void frame_batch_done(struct frame_batch *b) {
    free(b->p);
    *b = (struct frame_batch){0};
}

// ---- receiving

// Closes every descriptor that came with a message we refuse.
static status_t refuse(const int *fds, int n, const char *why) {
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return st_new(ST_DATA_LOSS, "frame refused: %s", why);
}

// Reads the ancillary data into fds; returns the count.
static int collect_fds(struct msghdr *m, int *fds) {
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int k = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (n + k > FRAME_MAX_FDS + 1)
            k = FRAME_MAX_FDS + 1 - n; // cannot be: the control buffer holds no more
        memcpy(fds + n, CMSG_DATA(c), sizeof(int) * (size_t)k);
        n += k;
    }
    return n;
}

// What is wrong with the header of a frame with n_fds descriptors, of which `got` bytes are there;
// NULL: nothing.
static const char *wrong_head(const struct head *h, size_t got, int n_fds) {
    bool body_fd = h->flags & FLAG_BODY_FD;
    size_t rest = got - sizeof *h;
    if (h->magic != MAGIC || h->type == 0 || (h->flags & ~(uint32_t)FLAG_BODY_FD))
        return "bad header";
    if (h->n_fds > FRAME_MAX_FDS || (int)h->n_fds + body_fd != n_fds) return "descriptor count";
    if (body_fd ? h->body_bytes > FRAME_MAX_BODY || rest
        : n_fds ? h->body_bytes != rest
                : h->body_bytes > rest)
        return "body length";
    return NULL;
}

// One message into the buffer. *out_n_fds: -1 where the peer closed the socket.
static status_t receive(int sock, struct frame_buf *b, int timeout_ms, int *fds, int *out_n_fds) {
    struct iovec iov = {b->bytes, sizeof b->bytes};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * (FRAME_MAX_FDS + 1))];
    } control;
    struct msghdr m;
    ssize_t got;
    int wait = timeout_ms < 0 ? 0 : MSG_DONTWAIT; // one that never blocks says EAGAIN all the same
    for (;;) {
        m = (struct msghdr){.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
        got = recvmsg(sock, &m, wait | MSG_CMSG_CLOEXEC);
        if (got >= 0) break;
        if (errno == EINTR) continue;
        if (errno == ECONNRESET) {
            got = 0;
            break;
        }
        if (errno != EAGAIN) return st_errno(errno, "recvmsg");
        if (!wait_for(sock, POLLIN, timeout_ms)) return st_new(ST_DEADLINE_EXCEEDED, "no frame");
    }

    *out_n_fds = got ? collect_fds(&m, fds) : -1;
    b->end = (size_t)got;
    return m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? refuse(fds, *out_n_fds, "truncated") : ST_OK;
}

// The next frame of the buffer. Takes the descriptors.
static status_t next_frame(struct frame_buf *b, const int *fds, int n_fds, struct frame *out) {
    struct head h;
    size_t got = b->end - b->at;
    if (got < sizeof h) return refuse(fds, n_fds, "shorter than its header");
    memcpy(&h, b->bytes + b->at, sizeof h);
    const char *why = wrong_head(&h, got, n_fds);
    if (why) return refuse(fds, n_fds, why);
    if (h.body_bytes < got - sizeof h && b->end > FRAME_BATCH_BYTES)
        return refuse(fds, n_fds, "more of them in a message than there may be");

    struct frame f = {.type = h.type, .call = h.call, .n_fds = (int)h.n_fds};
    f.body = (struct span){b->bytes + b->at + sizeof h, (size_t)h.body_bytes};
    b->at += sizeof h;
    if (h.flags & FLAG_BODY_FD) {
        uint8_t *p;
        status_t st =
            frame_map(fds[h.n_fds], 0, (int64_t)h.body_bytes, false, &p, &f.map, &f.map_bytes);
        if (st != ST_OK) {
            st_drop(st);
            return refuse(fds, n_fds, "body descriptor");
        }
        close(fds[h.n_fds]);
        f.body.p = p;
    } else
        b->at += (size_t)h.body_bytes;

    if (h.n_fds) memcpy(f.fds, fds, sizeof(int) * h.n_fds);
    *out = f;
    return ST_OK;
}

status_t frame_recv(int sock, struct frame_buf *b, int timeout_ms, struct frame *out) {
    int fds[FRAME_MAX_FDS + 1], n_fds = 0;
    status_t st = ST_OK;
    if (!frame_buf_has_more(b)) {
        frame_buf_empty(b);
        st = receive(sock, b, timeout_ms, fds, &n_fds);
        if (!st && n_fds < 0) {
            *out = (struct frame){0};
            return ST_OK;
        }
    }
    if (!st) st = next_frame(b, fds, n_fds, out);
    if (st) frame_buf_empty(b); // what follows a broken frame is as broken
    return st;
}

void frame_done(struct frame *f) {
    for (int i = 0; i < f->n_fds; i++)
        if (f->fds[i] >= 0) close(f->fds[i]);
    frame_unmap(f->map, f->map_bytes);
    *f = (struct frame){0};
}

int frame_take_fd(struct frame *f, int i) {
    if (i < 0 || i >= f->n_fds) return -1;
    int fd = f->fds[i];
    f->fds[i] = -1;
    return fd;
}

status_t frame_memfd(const char *name, int64_t bytes, int *out_fd) {
    if (bytes <= 0) return st_invalid("memfd of %lld bytes", (long long)bytes);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return st_errno(errno, "memfd_create");
    if (ftruncate(fd, bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
        int err = errno;
        close(fd);
        return st_errno(err, "memfd");
    }
    *out_fd = fd;
    return ST_OK;
}

status_t frame_map(int fd, int64_t offset, int64_t size, bool writable, uint8_t **out,
                   void **out_base, size_t *out_base_bytes) {
    struct stat sb;
    int64_t end;
    if (size <= 0 || !sz_add(offset, size, &end)) return st_invalid("mapping of a bad range");
    if (fstat(fd, &sb)) return st_errno(errno, "fstat");
    if (!S_ISREG(sb.st_mode) || end > sb.st_size)
        return st_invalid("mapping [%lld, %lld) of %lld bytes", (long long)offset, (long long)end,
                          (long long)sb.st_size);
    // Files of most file systems have no seals. On tmpfs they do, as memfds do: what tells a file
    // of the store from a memfd there is that it was opened for reading, which a memfd never is.
    int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
    if (seals >= 0 && !(seals & F_SEAL_SHRINK) && (flags & O_ACCMODE) != O_RDONLY)
        return st_invalid("memfd is not sealed against shrinking");
    int64_t page = sysconf(_SC_PAGESIZE), start = offset / page * page;
    size_t n = (size_t)(end - start);
    void *base =
        mmap(NULL, n, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, start);
    if (base == MAP_FAILED) return st_errno(errno, "mmap");
    *out = (uint8_t *)base + (offset - start);
    *out_base = base;
    *out_base_bytes = n;
    return ST_OK;
}

void frame_unmap(void *base, size_t base_bytes) {
    if (base) munmap(base, base_bytes);
}
