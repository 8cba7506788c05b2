// SPDX-License-Identifier: Apache-2.0
#include "server/http/conn/http_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/str.h"
#include "scheduler/error.h"
#include "server/grpc/grpc_gate.h"
#include "server/http/conn/http_clear.h"
#include "server/http/conn/http_conn.h"
#include "server/http/http_route.h"
#include "server/tls.h"

static _Thread_local struct http_conns *reading;
static int spare = -1; // a descriptor put aside for when there are no more; of the loop's thread

static const char *phrase(int status) {
    return status == 414   ? "URI Too Long"
           : status == 431 ? "Request Header Fields Too Large"
           : status == 505 ? "HTTP Version Not Supported"
                           : "Bad Request";
}
static void reply(const struct http_guard *g, struct strbuf *out) {
    struct strbuf body = {0};
    status_t st = st_because(ST_INVALID_ARGUMENT, BAD_FRAMING, "%s", g->why);
    http_error_json(&body, st);
    st_drop(st);
    strbuf_printf(out,
                  "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n\r\n%s\n",
                  g->status, phrase(g->status), body.n + 1, body.p);
    strbuf_done(&body);
}
// A socket that is closed with bytes unread resets the connection, and the reply may be lost.
static void drain(int fd) {
    enum { PIECES = 64 };
    char waste[4096];
    for (int i = 0; i < PIECES; i++)
        if (recvfrom(fd, waste, sizeof waste, MSG_DONTWAIT, NULL, NULL) <= 0) return;
}
static void tell(struct http_conn *c, int fd) {
    struct strbuf text = {0};
    struct http_guard *g = http_conn_guard(c);
    reply(g, &text);
    if (http_conns_secure(reading)) {
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(http_conn_mhd(c), MHD_CONNECTION_INFO_GNUTLS_SESSION);
        if (i) tls_send(i->tls_session, text.p, text.n);
    } else
        (void)!send(fd, text.p, text.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    strbuf_done(&text);
    shutdown(fd, SHUT_WR);
    drain(fd);
    metric_add(M_REQUESTS, 1);
    metric_add(M_REQUEST_ERRORS, 1);
    log_event(LOG_DEBUG, "server.refused", "why=\"%s\"", g->why);
    g->status = 0; // told
}

static bool over(int fd) {
    struct http_conn *c = reading ? http_conn_of_fd(reading, fd) : NULL;
    struct http_guard *g = c ? http_conn_guard(c) : NULL;
    if (!g || !g->why) return false;
    if (g->status) tell(c, fd);
    return true;
}
static size_t take(int fd, const char *p, size_t n) {
    struct http_conn *c = reading ? http_conn_of_fd(reading, fd) : NULL;
    if (!c) return n;
    size_t good = http_guard_take(http_conn_guard(c), p, n);
    if (good == n) return n;
    if (!good)
        (void)over(fd);
    else
        shutdown(fd, SHUT_RD); // wakes the library's watch, so that it asks for more
    return good;
}

static int may_step(int fd) {
    struct http_conn *c = reading ? http_conn_of_fd(reading, fd) : NULL;
    return c ? http_handshake_may(http_conn_handshake(c)) : HANDSHAKE_GO;
}
static void stepped(int fd, int64_t ns, bool again, bool write) {
    struct http_conn *c = reading ? http_conn_of_fd(reading, fd) : NULL;
    if (c)
        http_handshake_took(http_conn_handshake(c), ns,
                            !again  ? HANDSHAKE_WANTS_NOTHING
                            : write ? HANDSHAKE_WANTS_WRITE
                                    : HANDSHAKE_WANTS_READ);
}

void http_reads_spare(void) {
    if (spare < 0) spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}
// No descriptor is left for a connection that waits. The library would look at the door again only
// after one of its connections has ended: with the spare one the client is told, and may come back.
// Another thread may have taken the place of that: then the client waits, and is looked at again in
// the next turn, not before SOON_NS.
static bool turn_away(int door, int why) {
    static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                               "Retry-After: 1\r\nContent-Length: 0\r\n\r\n";
    enum { EACH_NS = 1000 * 1000 * 1000, SOON_NS = 1000 * 1000 };
    static int64_t told;
    http_reads_spare();
    if (spare < 0) {
        nanosleep(&(struct timespec){.tv_nsec = SOON_NS}, NULL);
        return true;
    }
    syscall(SYS_close, spare); // no descriptor that gRPC's door could wait for (grpc_gate.h)
    int fd = (int)syscall(SYS_accept4, door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        if (!http_conns_secure(reading))
            (void)!send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(fd, SHUT_WR);
        drain(fd);
        syscall(SYS_close, fd);
    }
    spare = -1;
    http_reads_spare();

    int64_t now = clock_ns();
    if (told && now - told < EACH_NS) return true;
    told = now;
    log_event(LOG_WARN, "server.descriptors",
              "why=\"%s: connections are turned away (LimitNOFILE=, ulimit -n)\"",
              why == EMFILE ? "no open file is left to this process"
                            : "no open file is left to this machine");
    return true;
}

void http_reads_of(struct http_conns *all) {
    static const struct tls_reader through = {over, take, may_step, stepped};
    reading = all;
    http_clears = all;
    if (all) http_reads_spare();
    gate_others_full(all ? turn_away : NULL);
    tls_read_through(all && http_conns_secure(all) ? &through : NULL);
}

// Stands before libc's in every library of the process (as server/reserve.c's functions do).
__attribute__((visibility("default"))) ssize_t recv(int fd, void *p, size_t n, int flags) {
    bool plain = reading && !http_conns_secure(reading); // else what GnuTLS reads is ciphertext
    if (plain && over(fd)) return 0;
    ssize_t got = recvfrom(fd, p, n, flags, NULL, NULL);
    return plain && got > 0 ? (ssize_t)take(fd, p, (size_t)got) : got;
}
