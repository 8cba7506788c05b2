// SPDX-License-Identifier: Apache-2.0
// Times: each connection has its own, and one timer of the loop stands for the earliest of them.
// Requests move times only; the timer is set again where one comes to stand before it, and looks at
// all connections when it fires, at most once in SWEEP_MS.
#include "server/http/conn/http_conn.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/loop.h"
#include "scheduler/sched.h"
#include "server/call.h"
#include "server/tls.h"

enum { SWEEP_MS = 100, LOOK_MS = 1000, PRESSED_MS = 500, PATIENCE_MS = 2000, LITTLE_MS = 250 };
static const int64_t NEVER = INT64_MAX, SLOW_NS = 15259; // a byte at 64 KiB/s
enum conn_state { AT_WORK, IN_HEADERS, IN_BODY, IS_IDLE };

struct http_conn {
    struct http_conns *all;
    struct http_conn *prev, *next;
    int fd;           // the library's; -1: not known
    int64_t until_ns; // headers must be there; NEVER while a request is under way
    bool line;        // of a request that is on its way
    enum conn_state state;
    bool closing;     // we have shut it down
    int64_t since_ns; // of its state, and as much later as its body's, or reply's, bytes are worth
    const struct call *call; // whose reply is being sent; NULL: none
    int64_t looked_ns;       // at what its client has taken of that
    uint64_t taken;          // bytes of the connection, then
    bool unread;             // and some lie in the socket
    uint64_t address;
    struct arena arena;
    struct MHD_Connection *mhd;
    struct http_guard guard; // of what the library reads
    struct http_handshake handshake;
    uint64_t begun;   // requests
    unsigned version; // of the tls that looked at the certificate; 0: not yet
    const char *const *names;
    size_t n_names;
};
struct http_conns {
    struct sched *sched;
    struct loop *loop;
    struct loop_timer *timer;
    struct tls *tls;
    struct http_handshakes *handshakes; // with TLS
    int64_t header_ns, idle_ns;
    int64_t sweep_ns; // when the timer fires; NEVER: it does not
    int n, closing, max;
    int places; // to be made free: more where those made before were taken at once; 0: not pressed
    uint64_t opened;
    struct http_conn *first;
    struct http_conn **by_fd;
    int n_fds;
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
    if (!c->closing) c->all->closing++;
    c->closing = true;
    metric_add(M_CONNECTIONS_LATE, 1);
    if (c->line && !c->all->tls) say_late(c);
    log_event(LOG_DEBUG, "server.late", "headers=%d state=%d", c->line, (int)c->state);
    shutdown(c->fd, SHUT_RDWR);
    if (c->all->handshakes) http_handshake_hurry(&c->handshake);
}

static void sweep_at(struct http_conns *all, int64_t ns, int64_t now) {
    all->sweep_ns = ns;
    int64_t soonest = now + clock_of_ms(SWEEP_MS);
    loop_timer_at(all->timer, ns > soonest ? ns : soonest);
}
// Who has ended its side in the middle of a request's headers sends no more of them. False: nobody
// is in the middle.
static bool close_ended(struct http_conns *all, int64_t now) {
    size_t n = 0, k = 0;
    for (const struct http_conn *c = all->first; c; c = c->next)
        n += c->state == IN_HEADERS;
    struct pollfd *p = n ? calloc(n, sizeof *p) : NULL;
    struct http_conn **of = n ? calloc(n, sizeof *of) : NULL;
    for (struct http_conn *c = all->first; c && p && of; c = c->next)
        if (c->state == IN_HEADERS) {
            of[k] = c;
            p[k++] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
        }
    if (k && poll(p, k, 0) > 0)
        for (size_t i = 0; i < k; i++) {
            int left = 0;
            if (!(p[i].revents & POLLRDHUP) || of[i]->closing) continue;
            if (now - of[i]->since_ns < clock_of_ms(LITTLE_MS)) continue;
            if (!ioctl(of[i]->fd, FIONREAD, &left) && !left) close_late(of[i]);
        }
    free(p);
    free(of);
    return n > 0;
}

static int margin(const struct http_conns *all) {
    return all->max / 16 < 1 ? 1 : all->max / 16 > 64 ? 64 : all->max / 16;
}
static bool pressed(const struct http_conns *all) {
    return all->n - all->closing > all->max - margin(all);
}
static bool may_go(const struct http_conn *c, int64_t now) {
    return (c->state != AT_WORK || c->unread) && !c->closing && c->fd >= 0 &&
           now - c->since_ns > clock_of_ms(PATIENCE_MS);
}
// What the kernel holds for the client of a reply, and how much it has taken since the last look:
// that is worth its time, as a body's bytes are. Who has left nothing there waits for us.
static void look_at_reader(struct http_conn *c, int64_t now) {
    struct tcp_info i = {0};
    socklen_t n = sizeof i;
    int left = 0;
    c->unread = false;
    if (c->state != AT_WORK || c->fd < 0) return;
    if (ioctl(c->fd, SIOCOUTQ, &left) || getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &i, &n)) return;
    bool again = now - c->looked_ns < clock_of_ms(4 * PRESSED_MS);
    uint64_t taken = i.tcpi_bytes_acked, more = again ? taken - c->taken : 0;
    int64_t worth = more < 1 << 30 ? (int64_t)more * SLOW_NS : NEVER;
    bool behind = left && again && worth < now - c->since_ns;
    c->since_ns = behind ? c->since_ns + worth : now;
    c->unread = left > 0;
    c->taken = taken;
    c->looked_ns = now;
}
// Of tenants whose work waits until results are taken, who does not take them. False: no reply with
// results is on its way.
static bool close_unread(struct http_conns *all, int64_t now) {
    bool any = false;
    for (struct http_conn *c = all->first; c; c = c->next) {
        if (!c->call || !c->call->n_outputs || c->state != AT_WORK || c->closing) continue;
        any = true;
        if (!sched_waits_for_reply(all->sched, c->call->principal.tenant)) continue;
        look_at_reader(c, now);
        if (may_go(c, now)) close_late(c);
    }
    return any;
}
// Of which address are most of those that may go? Counted by a table that may mix a few of them.
enum { ADDRESSES = 4096 };
static uint64_t worst_address(const struct http_conns *all, int64_t now, int *out_more) {
    static int count[ADDRESSES]; // of the loop's thread
    int most = 0, next = 0;
    uint64_t worst = ADDRESSES;
    memset(count, 0, sizeof count);
    for (const struct http_conn *c = all->first; c; c = c->next)
        if (may_go(c, now)) count[c->address % ADDRESSES]++;
    for (uint64_t k = 0; k < ADDRESSES; k++) {
        if (count[k] > most)
            next = most, most = count[k], worst = k;
        else if (count[k] > next)
            next = count[k];
    }
    *out_more = most > next ? most - next : 1;
    return worst;
}
// Idle ones first, then who has made others wait the longest.
static int by_patience(const void *x, const void *y) {
    const struct http_conn *a = *(struct http_conn *const *)x, *b = *(struct http_conn *const *)y;
    if ((a->state == IS_IDLE) != (b->state == IS_IDLE)) return a->state == IS_IDLE ? -1 : 1;
    return a->since_ns < b->since_ns ? -1 : a->since_ns > b->since_ns;
}
static int places_lacking(const struct http_conns *all) {
    return all->n - all->closing - (all->max - all->places);
}
// Of the address with most, as many as it has more than the next one, until there are enough.
// False: none may go.
static bool make_some(struct http_conns *all, int64_t now) {
    int more, n = 0;
    uint64_t of = worst_address(all, now, &more);
    struct http_conn **v = calloc((size_t)all->n + 1, sizeof *v);
    for (struct http_conn *c = all->first; c && v; c = c->next)
        if (may_go(c, now) && c->address % ADDRESSES == of) v[n++] = c;
    if (n) qsort(v, (size_t)n, sizeof *v, by_patience);
    for (int k = 0; k < n && k < more && places_lacking(all) > 0; k++)
        close_late(v[k]);
    free(v);
    return n > 0;
}
// Who comes behind thousands of others waits in the kernel until they have had a place: where those
// that were made are taken at the next look, twice as many are.
static void make_places(struct http_conns *all, int64_t now) {
    enum { ROUNDS = 64 }; // for the loop's sake, where many addresses have as many
    int before = all->places, least = margin(all), most = all->max / 4;
    all->places = before ? before * 2 : least;
    if (all->places > most) all->places = most > least ? most : least;
    for (int k = 0; k < ROUNDS && places_lacking(all) > 0; k++)
        if (!make_some(all, now)) break;
    if (places_lacking(all) > 0) all->places = before;
}

static void on_sweep(void *arg) {
    struct http_conns *all = arg;
    int64_t now = clock_ns(), next = NEVER;
    all->sweep_ns = NEVER;
    for (struct http_conn *c = all->first; c; c = c->next) {
        if (c->until_ns <= now && c->fd >= 0) close_late(c);
        if (c->until_ns < next) next = c->until_ns;
    }
    int64_t look = close_ended(all, now) ? now + clock_of_ms(LOOK_MS) : NEVER;
    bool replies = close_unread(all, now), press = pressed(all);
    if (press) {
        for (struct http_conn *c = all->first; c; c = c->next)
            look_at_reader(c, now);
        make_places(all, now);
    } else
        all->places = 0;
    if (press || replies) look = now + clock_of_ms(PRESSED_MS);
    if (look < next) next = look;
    if (next != NEVER) sweep_at(all, next, now);
}
static void sweep_by(struct http_conns *all, int64_t ns, int64_t now) {
    if (ns < all->sweep_ns) sweep_at(all, ns, now);
}
static void expect_within(struct http_conn *c, int64_t ns) {
    int64_t now = clock_ns();
    c->until_ns = now + ns;
    c->since_ns = now;
    sweep_by(c->all, c->until_ns, now);
}
static void enter(struct http_conn *c, enum conn_state s) {
    c->state = s;
    int64_t now = clock_ns();
    c->since_ns = now;
    if (s == IN_HEADERS) sweep_by(c->all, now + clock_of_ms(LOOK_MS), now);
}

struct http_conns *http_conns_new(struct sched *s, const struct http_config *cfg,
                                  void (*resumed)(void *arg), void *arg) {
    struct http_conns *all = calloc(1, sizeof *all);
    struct loop *l = sched_loop(s);
    if (!all) abort();
    *all = (struct http_conns){.sched = s,
                               .loop = l,
                               .timer = loop_timer_new(l, on_sweep, all),
                               .tls = cfg->tls,
                               .header_ns = cfg->header_s * INT64_C(1000000000),
                               .idle_ns = cfg->idle_s * INT64_C(1000000000),
                               .max = cfg->max_connections,
                               .sweep_ns = NEVER};
    if (cfg->tls && !(all->handshakes = http_handshakes_new(l, resumed, arg))) {
        http_conns_free(all);
        return NULL;
    }
    return all;
}
void http_conns_stop(struct http_conns *all) {
    http_handshakes_stop(all->handshakes);
}
void http_conns_free(struct http_conns *all) {
    if (!all) return;
    loop_timer_free(all->timer);
    http_handshakes_free(all->handshakes);
    free(all->by_fd);
    free(all);
}

static uint64_t address_of(struct MHD_Connection *conn) {
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = i ? i->client_addr : NULL;
    if (a && a->sa_family == AF_INET)
        return hash64(&((const struct sockaddr_in *)(const void *)a)->sin_addr, 4, 0);
    if (a && a->sa_family == AF_INET6) // a network of one's own
        return hash64(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 8, 0);
    return 0;
}

static void enter_fd(struct http_conns *all, struct http_conn *c) {
    if (c->fd < 0) return;
    if (c->fd >= all->n_fds) {
        int n = c->fd * 2 + 64;
        all->by_fd = realloc(all->by_fd, (size_t)n * sizeof *all->by_fd);
        if (!all->by_fd) abort();
        memset(all->by_fd + all->n_fds, 0, (size_t)(n - all->n_fds) * sizeof *all->by_fd);
        all->n_fds = n;
    }
    all->by_fd[c->fd] = c;
}
struct http_conn *http_conn_of_fd(const struct http_conns *all, int fd) {
    return fd >= 0 && fd < all->n_fds ? all->by_fd[fd] : NULL;
}
struct http_guard *http_conn_guard(struct http_conn *c) {
    return &c->guard;
}
struct http_handshake *http_conn_handshake(struct http_conn *c) {
    return &c->handshake;
}
struct MHD_Connection *http_conn_mhd(const struct http_conn *c) {
    return c->mhd;
}
uint64_t http_conns_opened(const struct http_conns *all) {
    return all->opened;
}
bool http_conns_secure(const struct http_conns *all) {
    return all->tls != NULL;
}

void http_conn_opened(struct http_conns *all, struct MHD_Connection *conn, void **slot) {
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_conn *c = arena_must_calloc(1, sizeof *c);
    *c = (struct http_conn){.all = all, .next = all->first, .fd = i ? i->connect_fd : -1};
    if (all->first) all->first->prev = c;
    all->first = c;
    *slot = c;
    c->mhd = conn;
    enter_fd(all, c);
    c->address = address_of(conn);
    c->handshake = (struct http_handshake){
        .all = all->handshakes, .mhd = conn, .fd = c->fd, .address = c->address};
    all->n++;
    all->opened++;
    enter(c, IN_HEADERS);
    expect_within(c, all->header_ns);
    if (pressed(all)) sweep_by(all, clock_ns() + clock_of_ms(PRESSED_MS), clock_ns());
}
void http_conn_closed(struct http_conns *all, void **slot) {
    struct http_conn *c = *slot;
    *slot = NULL;
    if (!c) return;
    *(c->prev ? &c->prev->next : &all->first) = c->next;
    if (c->next) c->next->prev = c->prev;
    if (http_conn_of_fd(all, c->fd) == c) all->by_fd[c->fd] = NULL;
    if (all->handshakes) http_handshake_gone(&c->handshake);
    all->n--;
    all->closing -= c->closing;
    arena_done(&c->arena);
    free(c);
}

void http_conn_line(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (!c) return;
    c->line = true;
    enter(c, IN_HEADERS);
    int64_t until = clock_ns() + c->all->header_ns;
    if (until < c->until_ns) expect_within(c, c->all->header_ns);
}
bool http_conn_begun(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (!c) return false;
    c->line = false;
    c->until_ns = NEVER;
    enter(c, IN_BODY);
    return ++c->begun <= c->guard.heads;
}
void http_conn_body(struct MHD_Connection *conn, size_t n, bool waits) {
    struct http_conn *c = conn_of(conn);
    int64_t now = clock_ns(), worth = n < (1 << 30) ? (int64_t)n * SLOW_NS : NEVER;
    if (!c) return;
    bool behind = c->state == IN_BODY && worth < now - c->since_ns;
    c->since_ns = behind ? c->since_ns + worth : now;
    c->state = waits ? AT_WORK : IN_BODY;
}
void http_conn_whole(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (c) c->state = AT_WORK;
}
void http_conn_replies(struct MHD_Connection *conn, const struct call *call) {
    struct http_conn *c = conn_of(conn);
    int64_t now = clock_ns();
    if (!c) return;
    c->state = AT_WORK;
    c->unread = false;
    c->call = call;
    if (call) sweep_by(c->all, now + clock_of_ms(PRESSED_MS), now);
}
void http_conn_replied(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (!c) return;
    c->call = NULL;
    c->unread = false;
    enter(c, IS_IDLE);
    expect_within(c, c->all->idle_ns);
}

void http_conn_upgraded(struct MHD_Connection *conn) {
    struct http_conn *c = conn_of(conn);
    if (c) http_guard_pass(&c->guard);
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
