// SPDX-License-Identifier: Apache-2.0
// Times: each connection has its own, and one timer of the loop stands for the earliest of them.
// Requests move times only; the timer is set again where one comes to stand before it, and looks at
// all connections when it fires, at most once in SWEEP_MS.
#include "server/http_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/loop.h"
#include "server/tls.h"

enum { SWEEP_MS = 100 };
static const int64_t NEVER = INT64_MAX;

struct http_conn {
    struct http_conns *all;
    struct http_conn *prev, *next;
    int fd;           // the library's; -1: not known
    int64_t until_ns; // headers must be there; NEVER while a request is under way
    bool line;        // of a request that is on its way
    struct arena arena;
    unsigned version; // of the tls that looked at the certificate; 0: not yet
    const char *const *names;
    size_t n_names;
};
struct http_conns {
    struct loop *loop;
    struct loop_timer *timer;
    struct tls *tls;
    int64_t header_ns, idle_ns;
    int64_t sweep_ns; // when the timer fires; NEVER: it does not
    struct http_conn *first;
};

static struct http_conn *conn_of(struct MHD_Connection *conn) {
    const union MHD_ConnectionInfo *slot =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return slot ? slot->socket_context : NULL;
}

static void say_late(const struct http_conn *c) {
    char body[160], all[320];
    int n = snprintf(body, sizeof body,
                     "{\"code\":\"DEADLINE_EXCEEDED\",\"reason\":\"DEADLINE\",\"message\":\"the "
                     "request's headers took longer than %lld s (header_s)\"}\n",
                     (long long)(c->all->header_ns / 1000000000));
    n = snprintf(all, sizeof all,
                 "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
                 "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                 n, body);
    (void)!send(c->fd, all, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
}
// The library sees the end of its socket and lets the connection go.
static void close_late(struct http_conn *c) {
    c->until_ns = NEVER;
    metric_add(M_CONNECTIONS_LATE, 1);
    if (c->line && !c->all->tls) say_late(c);
    log_event(LOG_DEBUG, "server.late", "headers=%d", c->line);
    shutdown(c->fd, SHUT_RDWR);
}

static void sweep_at(struct http_conns *all, int64_t ns, int64_t now) {
    all->sweep_ns = ns;
    int64_t ms = (ns - now) / 1000000 + 1;
    loop_timer_start(all->timer, ms > SWEEP_MS ? ms : SWEEP_MS);
}
static void on_sweep(void *arg) {
    struct http_conns *all = arg;
    int64_t now = clock_ns(), next = NEVER;
    all->sweep_ns = NEVER;
    for (struct http_conn *c = all->first; c; c = c->next) {
        if (c->until_ns <= now && c->fd >= 0) close_late(c);
        if (c->until_ns < next) next = c->until_ns;
    }
    if (next != NEVER) sweep_at(all, next, now);
}
static void expect_within(struct http_conn *c, int64_t ns) {
    int64_t now = clock_ns();
    c->until_ns = now + ns;
    if (c->until_ns < c->all->sweep_ns) sweep_at(c->all, c->until_ns, now);
}

struct http_conns *http_conns_new(struct loop *l, const struct http_config *cfg) {
    struct http_conns *all = calloc(1, sizeof *all);
    if (!all) abort();
    *all = (struct http_conns){.loop = l,
                               .timer = loop_timer_new(l, on_sweep, all),
                               .tls = cfg->tls,
                               .header_ns = cfg->header_s * INT64_C(1000000000),
                               .idle_ns = cfg->idle_s * INT64_C(1000000000),
                               .sweep_ns = NEVER};
    return all;
}
void http_conns_free(struct http_conns *all) {
    if (!all) return;
    loop_timer_free(all->timer);
    free(all);
}

void http_conn_opened(struct http_conns *all, struct MHD_Connection *conn, void **slot) {
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_conn *c = calloc(1, sizeof *c);
    if (!c) abort();
    *c = (struct http_conn){.all = all, .next = all->first, .fd = i ? i->connect_fd : -1};
    if (all->first) all->first->prev = c;
    all->first = c;
    *slot = c;
    expect_within(c, all->header_ns);
}
void http_conn_closed(struct http_conns *all, void **slot) {
    struct http_conn *c = *slot;
    *slot = NULL;
    if (!c) return;
    *(c->prev ? &c->prev->next : &all->first) = c->next;
    if (c->next) c->next->prev = c->prev;
    arena_done(&c->arena);
    free(c);
}

void http_conn_line(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (!c) return;
    c->line = true;
    int64_t until = clock_ns() + c->all->header_ns;
    if (until < c->until_ns) expect_within(c, c->all->header_ns);
}
void http_conn_begun(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (!c) return;
    c->line = false;
    c->until_ns = NEVER;
}
void http_conn_replied(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (c) expect_within(c, c->all->idle_ns);
}

status_t http_conn_names(struct MHD_Connection *conn, struct credentials *who) {
    struct http_conn *c = conn_of(conn);
    if (!c || !c->all->tls) return ST_OK;
    struct tls *tls = c->all->tls;
    if (c->version != tls_version(tls)) {
        const union MHD_ConnectionInfo *i =
            MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        if (!i) return ST_OK;
        arena_done(&c->arena);
        c->version = 0;
        RETURN_IF_ERR(tls_peer(tls, i->tls_session, &c->arena, &c->names, &c->n_names));
        c->version = tls_version(tls);
    }
    who->names = c->names;
    who->n_names = c->n_names;
    return ST_OK;
}
