// SPDX-License-Identifier: Apache-2.0
// The HTTP load: one kept connection for each request under way, all in one epoll set. Replies are
// read only as far as a load needs: status, length, the server's times; bodies are counted and
// dropped. A connection that the server closes between replies is opened again.
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "client/bench/bench.h"
#include "client/bench/bench_tls.h"

enum { HEAD_BYTES = 16 << 10, DROP_BYTES = 256 << 10 };
struct conn {
    int fd;
    struct bench_tls_session *tls; // or NULL
    bool busy, waits_room;
    int64_t sent_ns;
    size_t at;         // of the request, sent
    size_t head_bytes; // gathered
    int64_t body_left; // -1: the head is not whole
    int code;
    char head[HEAD_BYTES];
};
struct load {
    const struct bench_request *q;
    struct bench_progress p;
    struct addrinfo *addr;
    struct bench_tls *tls; // or NULL
    int epoll;
    struct conn **conns;
    char *drop;
};

enum { HOST_BYTES = 256 };
static status_t resolve(const char *addr, char host[HOST_BYTES], struct addrinfo **out) {
    const char *colon = strrchr(addr, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    if (!colon || (size_t)(colon - addr) >= HOST_BYTES)
        return st_new(ST_INVALID_ARGUMENT, "address '%.100s': expected HOST:PORT", addr);
    memcpy(host, addr, (size_t)(colon - addr));
    host[colon - addr] = 0;
    int err = getaddrinfo(host, colon + 1, &hints, out);
    return err ? st_new(ST_UNAVAILABLE, "address '%s': %s", addr, gai_strerror(err)) : ST_OK;
}

static status_t open_conn(struct load *l, struct conn *c) {
    const struct addrinfo *a = l->addr;
    int one = 1;
    c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return st_errno(errno, "socket");
    if (connect(c->fd, a->ai_addr, a->ai_addrlen))
        return st_new(ST_UNAVAILABLE, "cannot reach %s: %s", l->q->addr, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (l->tls) RETURN_IF_ERR(bench_tls_connect(l->tls, c->fd, &c->tls));
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e)) return st_errno(errno, "epoll");
    return ST_OK;
}

static void want_room(struct load *l, struct conn *c, bool on) {
    if (c->waits_room == on) return;
    c->waits_room = on;
    struct epoll_event e = {.events = EPOLLIN | (on ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static void send_more(struct load *l, struct conn *c) {
    const struct span *q = &l->q->bytes;
    while (c->at < q->n) {
        const uint8_t *p = q->p + c->at;
        size_t n = q->n - c->at;
        ssize_t k =
            c->tls ? bench_tls_send(c->tls, p, n) : send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break; // full, or broken: reading tells
        c->at += (size_t)k;
    }
    want_room(l, c, c->at < q->n);
}

static void start(struct load *l, struct conn *c) {
    c->busy = bench_may_send(&l->p);
    if (!c->busy) return;
    c->at = c->head_bytes = 0;
    c->body_left = -1;
    c->sent_ns = clock_ns();
    send_more(l, c);
}

static struct str line_value(const char *head, const char *name) {
    size_t n = strlen(name);
    for (const char *p = strstr(head, "\r\n"); p && p[2]; p = strstr(p + 2, "\r\n")) {
        if (strncasecmp(p + 2, name, n)) continue;
        const char *v = p + 2 + n, *e = strstr(v, "\r\n");
        return str_trim((struct str){v, e ? (size_t)(e - v) : strlen(v)});
    }
    return (struct str){0};
}

// A whole reply: on to the next.
static void replied(struct load *l, struct conn *c) {
    char text[160];
    bool good = c->code < 300;
    if (!good) snprintf(text, sizeof text, "HTTP status %d", c->code);
    if (bench_took(&l->p, c->sent_ns, good ? NULL : text))
        bench_split_text(&l->p.r->server, line_value(c->head, "server-timing:"));
    start(l, c);
}

// False: not HTTP as we read it.
static bool read_head(struct load *l, struct conn *c) {
    c->head[c->head_bytes] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return c->head_bytes < HEAD_BYTES - 1;
    size_t extra = c->head_bytes - (size_t)(end + 4 - c->head);
    end[2] = 0;
    int64_t code, length;
    if (strncmp(c->head, "HTTP/1.", 7) ||
        !str_to_i64((struct str){c->head + 9, c->head_bytes > 12 ? 3 : 0}, &code))
        return false;
    if (code == 100 || code == 102) { // interim: the reply follows
        memmove(c->head, end + 4, extra);
        c->head_bytes = extra;
        return read_head(l, c);
    }
    if (!str_to_i64(line_value(c->head, "content-length:"), &length) || length < (int64_t)extra)
        return false;
    c->code = (int)code;
    c->body_left = length - (int64_t)extra;
    l->p.r->reply_bytes += length;
    return true;
}

static void close_conn(struct conn *c) {
    bench_tls_close(c->tls);
    c->tls = NULL;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}
static status_t broken(struct load *l, struct conn *c, const char *why) {
    close_conn(c);
    c->waits_room = false;
    status_t st = open_conn(l, c);
    if (st || !c->busy) return st;
    bench_took(&l->p, c->sent_ns, why);
    start(l, c);
    return ST_OK;
}

static status_t receive(struct load *l, struct conn *c) {
    for (;;) {
        bool head = c->body_left < 0;
        size_t room = head                        ? HEAD_BYTES - 1 - c->head_bytes
                      : c->body_left < DROP_BYTES ? (size_t)c->body_left
                                                  : DROP_BYTES;
        char *to = head ? c->head + c->head_bytes : l->drop;
        ssize_t k = c->tls ? bench_tls_recv(c->tls, to, room) : recv(c->fd, to, room, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno == EAGAIN) return ST_OK;
        if (k <= 0 || !c->busy) return broken(l, c, "the connection was closed before the reply");
        if (head) {
            c->head_bytes += (size_t)k;
            if (!read_head(l, c)) return broken(l, c, "a reply without a length, or not HTTP/1.1");
        } else
            c->body_left -= k;
        if (c->body_left == 0) {
            replied(l, c);
            return ST_OK;
        }
        if ((size_t)k < room) return ST_OK;
    }
}

static status_t loop(struct load *l, int n) {
    struct epoll_event e[64];
    for (int i = 0; i < n; i++)
        start(l, l->conns[i]);
    while (!bench_over(&l->p)) {
        int k = epoll_wait(l->epoll, e, 64, 1000);
        if (k < 0 && errno != EINTR) return st_errno(errno, "epoll");
        for (int i = 0; i < k; i++) {
            struct conn *c = e[i].data.ptr;
            if (e[i].events & EPOLLOUT) send_more(l, c);
            if (e[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) RETURN_IF_ERR(receive(l, c));
        }
    }
    return ST_OK;
}

status_t bench_http(const struct bench_request *q, const struct bench_load *load,
                    struct bench_result *out) {
    struct load l = {.q = q, .epoll = -1};
    int opened = 0;
    char host[HOST_BYTES];
    RETURN_IF_ERR(resolve(q->addr, host, &l.addr));
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.conns = calloc((size_t)load->concurrency, sizeof *l.conns);
    l.drop = malloc(DROP_BYTES);
    status_t st = l.conns && l.drop && l.epoll >= 0 ? ST_OK : st_oom();
    if (!st && q->tls) st = bench_tls_new(q->security, host, &l.tls);
    for (; !st && opened < load->concurrency; opened++) {
        struct conn *c = l.conns[opened] = calloc(1, sizeof *c);
        st = c ? open_conn(&l, c) : st_oom();
    }
    bench_begin(&l.p, load, out);
    if (!st) st = loop(&l, load->concurrency);
    for (int i = 0; i < opened; i++) {
        if (l.conns[i]) close_conn(l.conns[i]);
        free(l.conns[i]);
    }
    bench_tls_free(l.tls);
    if (l.epoll >= 0) close(l.epoll);
    free(l.conns);
    free(l.drop);
    freeaddrinfo(l.addr);
    return st;
}
