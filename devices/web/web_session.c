// SPDX-License-Identifier: Apache-2.0
// Calls as sendmsg and recvmsg: the system call filter has these two (devices/worker/sandbox.c).
#include "devices/web/web_session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    READ_BYTES = 64 << 10,
    LOOK_MS = 10, // at `cancel`, which nobody wakes us for
    PING_MS = 5000,
    IDLE_PING_MS = 10000,
    SILENT_MS = 30000,
    FINISH_MS = 1000,
    MOST_CONTROLS = 64,
    MOST_PIECES = 64
};

void web_session_open(struct web_session *s, int fd) {
    int64_t now = clock_ns();
    *s = (struct web_session){.fd = fd, .heard_ns = now, .pinged_ns = now};
    if (!(s->in = malloc(READ_BYTES))) abort();
}

// ---- ends

static status_t gone(const struct web_session *s) {
    return st_new(ST_UNAVAILABLE, "the page is lost: %s", s->why);
}
status_t web_session_alive(const struct web_session *s) {
    return s->lost ? gone(s) : ST_OK;
}
// As far as it goes at once: nobody waits for who is told to leave.
static void say_close(struct web_session *s, enum ws_code code) {
    uint8_t frame[WS_HEAD_BYTES + 2];
    size_t n = ws_head(frame, WS_CLOSE_FRAME, 2);
    frame[n] = (uint8_t)(code >> 8);
    frame[n + 1] = (uint8_t)code;
    struct iovec v = {frame, n + 2};
    (void)!sendmsg(s->fd, &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1},
                   MSG_NOSIGNAL | MSG_DONTWAIT);
}
status_t web_session_lose(struct web_session *s, const char *why) {
    if (!s->lost) snprintf(s->why, sizeof s->why, "%s", why);
    s->lost = true;
    shutdown(s->fd, SHUT_RDWR); // whoever else has the socket sees it too
    return gone(s);
}
void web_session_close(struct web_session *s) {
    if (!s->lost) say_close(s, WS_NORMAL);
    shutdown(s->fd, SHUT_RDWR);
    close(s->fd);
    free(s->in);
    strbuf_done(&s->msg);
}

// ---- out

static void poll_for(const struct web_session *s, short events) {
    (void)!poll(&(struct pollfd){.fd = s->fd, .events = events}, 1, LOOK_MS);
}
static bool is_cancelled(const struct web_wait *w) {
    return w->cancel && *w->cancel;
}
// Nothing goes out at the moment. *finish_ns: when a message that was cancelled must be out; 0: it
// was not.
static status_t wait_to_send(struct web_session *s, const struct web_wait *w, int64_t *finish_ns) {
    int64_t now = clock_ns();
    if (is_cancelled(w) && !*finish_ns) *finish_ns = now + FINISH_MS * CLOCK_MS;
    if (*finish_ns && now > *finish_ns)
        return web_session_lose(s, "it did not take what was sent, which was cancelled");
    if (w->until_ns && now > w->until_ns)
        return web_session_lose(s, "it did not take what was sent in time");
    if (now - s->sent_ns > SILENT_MS * CLOCK_MS) return web_session_lose(s, "it takes nothing");
    poll_for(s, POLLOUT);
    return ST_OK;
}
// v is used up.
static status_t send_all(struct web_session *s, struct iovec *v, int n, const struct web_wait *w,
                         int64_t *finish_ns) {
    s->sent_ns = clock_ns();
    while (n) {
        struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n};
        ssize_t sent = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return web_session_lose(s, "it closed its connection");
        if (sent < 0) RETURN_IF_ERR(wait_to_send(s, w, finish_ns));
        if (sent > 0) s->sent_ns = clock_ns();
        for (size_t left = sent > 0 ? (size_t)sent : 0; n && left >= v->iov_len; v++, n--)
            left -= v->iov_len, sent -= (ssize_t)v->iov_len;
        if (n && sent > 0) {
            v->iov_base = (char *)v->iov_base + sent;
            v->iov_len -= (size_t)sent;
        }
    }
    return ST_OK;
}
static status_t send_frame(struct web_session *s, enum ws_opcode opcode, const struct span *v,
                           int n, const struct web_wait *w) {
    uint8_t head[WS_HEAD_BYTES];
    struct iovec io[MOST_PIECES];
    uint64_t bytes = 0;
    int64_t finish_ns = 0;
    for (int k = 0; k < n; k++)
        bytes += v[k].n;
    io[0] = (struct iovec){head, ws_head(head, opcode, bytes)};
    for (int k = 0, used = 1; k < n || used; used = 0) {
        for (; k < n && used < MOST_PIECES; k++)
            if (v[k].n) io[used++] = (struct iovec){(void *)(uintptr_t)v[k].p, v[k].n};
        RETURN_IF_ERR(send_all(s, io, used, w, &finish_ns));
    }
    return ST_OK;
}
status_t web_send(struct web_session *s, const struct span *v, int n, const struct web_wait *w) {
    RETURN_IF_ERR(web_session_alive(s));
    return send_frame(s, WS_BINARY_FRAME, v, n, w);
}

// ---- in

static status_t ping(struct web_session *s, const struct web_wait *w) {
    s->pinged_ns = clock_ns();
    s->controls = 0;
    return send_frame(s, WS_PING_FRAME, NULL, 0, w);
}
static status_t wait_to_read(struct web_session *s, const struct web_wait *w) {
    int64_t now = clock_ns();
    if (is_cancelled(w)) return st_new(ST_CANCELLED, "the call was cancelled");
    if (w->until_ns && now > w->until_ns) return web_session_lose(s, "it did not answer in time");
    if (now - s->heard_ns > SILENT_MS * CLOCK_MS) return web_session_lose(s, "it is silent");
    int64_t since = s->heard_ns > s->pinged_ns ? s->heard_ns : s->pinged_ns;
    if (now - since > PING_MS * CLOCK_MS) RETURN_IF_ERR(ping(s, w));
    poll_for(s, POLLIN);
    return ST_OK;
}
// *out_any: there was something.
static status_t read_now(struct web_session *s, bool *out_any) {
    struct iovec v = {s->in, READ_BYTES};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    ssize_t n = recvmsg(s->fd, &m, MSG_DONTWAIT);
    *out_any = n > 0;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return web_session_lose(s, "it closed its connection");
    if (n < 0) return ST_OK;
    s->rest = (struct ws_bytes){s->in, (size_t)n};
    s->heard_ns = clock_ns();
    return ST_OK;
}
static status_t read_more(struct web_session *s, const struct web_wait *w) {
    for (;;) {
        bool any;
        RETURN_IF_ERR(read_now(s, &any));
        if (any) return ST_OK;
        RETURN_IF_ERR(wait_to_read(s, w));
    }
}
static status_t control(struct web_session *s, enum ws_event e, const struct web_wait *w) {
    if (e == WS_CLOSE) {
        say_close(s, WS_NORMAL);
        return web_session_lose(s, "it left");
    }
    if (++s->controls > MOST_CONTROLS) return web_session_lose(s, "too many pings");
    if (e == WS_PONG) return ST_OK;
    uint8_t text[WS_CONTROL_BYTES]; // the next frame may come before this has gone out
    size_t n = s->ws.n_control;
    memcpy(text, s->ws.control, n);
    return send_frame(s, WS_PONG_FRAME, &(struct span){text, n}, 1, w);
}

static status_t bad(struct web_session *s) {
    say_close(s, s->ws.code);
    return web_session_lose(s, s->ws.why);
}
status_t web_receive(struct web_session *s, int64_t most, const struct web_wait *w,
                     struct span *out) {
    RETURN_IF_ERR(web_session_alive(s));
    if (s->whole) strbuf_clear(&s->msg);
    s->whole = false;
    s->ws.most = most;
    if (!s->msg.n) s->heard_ns = s->pinged_ns = clock_ns(); // it had nothing to say
    for (;;) {
        struct ws_bytes piece;
        enum ws_event e = ws_take(&s->ws, &s->rest, &piece);
        if (e == WS_BAD) return bad(s);
        if (e == WS_MORE)
            RETURN_IF_ERR(read_more(s, w));
        else if (e == WS_BYTES)
            strbuf_add(&s->msg, piece.p, piece.n);
        else if (e != WS_END)
            RETURN_IF_ERR(control(s, e, w));
        else
            break;
    }
    s->whole = true;
    *out = (struct span){(const uint8_t *)strbuf_cstr(&s->msg), s->msg.n};
    return ST_OK;
}

status_t web_session_idle(struct web_session *s) {
    const struct web_wait now = {.until_ns = clock_ns() + FINISH_MS * CLOCK_MS};
    bool any = true;
    RETURN_IF_ERR(web_session_alive(s));
    s->ws.most = 0;
    while (any) {
        struct ws_bytes piece;
        enum ws_event e = ws_take(&s->ws, &s->rest, &piece);
        if (e == WS_BAD) return bad(s);
        if (e == WS_BYTES || e == WS_END)
            return web_session_lose(s, "it speaks without being asked");
        if (e == WS_MORE)
            RETURN_IF_ERR(read_now(s, &any));
        else
            RETURN_IF_ERR(control(s, e, &now));
    }
    if (clock_ns() - s->heard_ns > SILENT_MS * CLOCK_MS) return web_session_lose(s, "it is silent");
    int64_t since = s->heard_ns > s->pinged_ns ? s->heard_ns : s->pinged_ns;
    return clock_ns() - since > IDLE_PING_MS * CLOCK_MS ? ping(s, &now) : ST_OK;
}
