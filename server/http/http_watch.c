// SPDX-License-Identifier: Apache-2.0
// What the loop does for the library: one watch on its epoll descriptor, one timer for its
// timeouts; and suspended requests, whose clients may leave.
//
// Leaving clients: while a request is suspended the library does not look at its socket, so we
// watch a duplicate of it. HUP or ERR means gone: cancel. A mere FIN may be a half-close of a
// client that still reads, or the whole client gone; only writing tells. So at a FIN we write
// something harmless (a blank line or empty frame in an open stream, else an interim 102) and look
// for the reset that a dead peer answers with.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "scheduler/loop.h"
#include "server/http/conn/http_conn.h"
#include "server/http/conn/http_read.h"
#include "server/http/http_req.h"

// ---- driving the library

enum { SERIES = 10, SERIES_NS = 1000 * 1000 };
static void run_library(struct http *h) {
    if (!h->mhd || h->running) return;
    h->running = true;
    http_reads_of(h->conns);
    int64_t begun = clock_ns();
    uint64_t before;
    do { // it takes so many new connections at a time; where more wait, others wait behind them
        before = http_conns_opened(h->conns);
        MHD_run(h->mhd);
    } while (http_conns_opened(h->conns) - before >= SERIES && clock_ns() - begun < SERIES_NS);
    http_reads_of(NULL);
    h->running = false;
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(h->mhd, &ms) == MHD_YES)
        loop_timer_start(h->timer, ms < 1000000 ? (int64_t)ms : 1000000);
    else
        loop_timer_stop(h->timer);
}
void http_on_epoll(void *arg, UNUSED int events) {
    run_library(arg);
}
void http_on_timer(void *arg) {
    run_library(arg);
}
static void on_kick(void *arg) {
    struct http *h = arg;
    h->kicked = false;
    run_library(h);
}
void http_kick(struct http *h) {
    if (h->kicked) return;
    h->kicked = true;
    loop_post(h->loop, on_kick, h);
}
// ---- watching for a leaving client

static void no_longer_young(struct http_req *r) {
    struct http *h = r->h;
    if (!r->young) return;
    r->young = false;
    *(r->young_prev ? &r->young_prev->young_next : &h->young_first) = r->young_next;
    *(r->young_next ? &r->young_next->young_prev : &h->young_last) = r->young_prev;
    r->young_prev = r->young_next = NULL;
}
void http_watch_stop(struct http_req *r) {
    no_longer_young(r);
    loop_watch_free(r->watch);
    loop_timer_free(r->gone_timer);
    r->watch = NULL;
    r->gone_timer = NULL;
    if (r->watch_fd >= 0) close(r->watch_fd);
    r->watch_fd = -1;
}

static bool peer_dead(const struct http_req *r) {
    struct pollfd p = {.fd = r->watch_fd, .events = 0};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

static void client_gone(struct http_req *r) {
    if (r->gone) return;
    r->gone = true;
    http_watch_stop(r);
    http_leave(r);
}

void http_leave(struct http_req *r) {
    if (r->pooled) return; // the pool holds the request: http_body.c comes back here
    if (r->call && !r->call->finished) call_cancel(r->call);
    r->stream_ended = true;
    if (!r->response) http_reply_error(r, st_because(ST_CANCELLED, CLIENT_GONE, "the client left"));
    if (r->suspended) http_resume(r);
}

// The library's edge-triggered watch can miss an end of file that came together with the last data;
// taking the connection out and in again shows it.
static void nudge(void *arg) {
    struct http_req *r = arg;
    if (!r->started && !r->suspended) {
        http_suspend(r);
        http_resume(r);
    }
    loop_timer_start(r->gone_timer, 20);
}

// Writes something harmless: a dead peer answers with a reset, a half-closed one reads on.
static void probe(struct http_req *r) {
    r->probed = true;
    if (!r->queued) {
        (void)!send(r->watch_fd, "HTTP/1.1 102 Processing\r\n\r\n", 27,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    } else if (r->reader_waits) { // an open stream: a blank line or frame may come between two
                                  // events
        if (r->route.form == FORM_FRAMES)
            strbuf_add(&r->out, "\0\0\0", 4);
        else
            strbuf_putc(&r->out, '\n');
        http_resume(r);
    } else
        r->probed = false; // its next event will do
}

static void look_again(void *arg) {
    struct http_req *r = arg;
    if (!r->started)
        nudge(r);
    else if (peer_dead(r))
        client_gone(r);
    else {
        if (!r->probed) probe(r);
        loop_timer_start(r->gone_timer, 50);
    }
}

static void on_peer(void *arg, UNUSED int events) {
    struct http_req *r = arg;
    if (r->started && (r->h->cfg.tls || peer_dead(r))) { // TLS has no half-close worth the name
        client_gone(r);
        return;
    }
    loop_watch_set(r->watch, 0);
    if (r->started)
        probe(r); // in mid-body the library must see it, when it has read what came before
    r->gone_timer = loop_timer_new(r->h->loop, look_again, r);
    loop_timer_start(r->gone_timer, 5);
}

static void watch_peer(struct http_req *r) {
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!i || r->watch || r->watch_fd >= 0) return;
    r->watch_fd = dup(i->connect_fd);
    if (r->watch_fd < 0) return;
    status_t st = loop_watch_new(r->h->loop, r->watch_fd, on_peer, r, &r->watch);
    if (st)
        st_drop(st);
    else
        loop_watch_set(r->watch, LOOP_HANGUP);
}

// A watch costs eight system calls, and most requests are answered before anybody leaves: those get
// one that have lasted from one look to the next.
enum { LOOK_MS = 10 };
void http_on_look(void *arg) {
    struct http *h = arg;
    h->looks++;
    while (h->young_first && h->young_first->young_since + 1 < h->looks) {
        struct http_req *r = h->young_first;
        no_longer_young(r);
        watch_peer(r);
    }
    if (h->young_first) loop_timer_start(h->look, LOOK_MS);
}
void http_watch_soon(struct http_req *r) {
    struct http *h = r->h;
    if (r->young || r->watch) return;
    if (!h->young_first) loop_timer_start(h->look, LOOK_MS);
    r->young = true;
    r->young_since = h->looks;
    r->young_prev = h->young_last;
    *(h->young_last ? &h->young_last->young_next : &h->young_first) = r;
    h->young_last = r;
}

void http_suspend(struct http_req *r) {
    if (r->suspended) return;
    r->suspended = true;
    MHD_suspend_connection(r->conn);
}
void http_resume(struct http_req *r) {
    if (!r->suspended || r->pooled) return;
    r->suspended = r->reader_waits = false;
    MHD_resume_connection(r->conn);
    http_kick(r->h);
}
