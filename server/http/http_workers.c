// SPDX-License-Identifier: Apache-2.0
// The library hands over a connection's socket, or with TLS one end of a pair whose other end it
// serves. We keep a copy, watch it for the page's leaving, and end the session when either the page
// or the worker is gone.
#include "server/http/http_workers.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/loop.h"
#include "scheduler/sched.h"
#include "scheduler/workers/pool.h"
#include "server/http/conn/http_conn.h"
#include "server/http/http_req.h"

static const char PATH[] = "/v1/workers", KIND[] = "web", PROTOCOL[] = "hlod.worker.v1",
                  TOKEN[] = "hlod.token.", GUID[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
enum { KEY_CHARS = 24, FIRST_FD = 3, MOST_TOKEN = 256, QUIET_S = 30, PROBE_S = 10, PROBES = 3 };
struct http_session {
    struct http *h;
    struct http_session *prev, *next;
    struct MHD_UpgradeResponseHandle *urh;
    int fd;
    struct loop_watch *watch;
    struct worker *worker; // NULL: none has it yet
    char tenant[72], name[72];
};

// ---- who may

static const char *header(const struct http_req *r, const char *name) {
    return MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
}
// Is the word in the header's list, whatever its case?
static bool lists(const char *list, const char *word) {
    struct str rest = str_of(list), one;
    while (rest.n && str_cut(&rest, ',', &one)) {
        one = str_trim(one);
        if (one.n == strlen(word) && strncasecmp(one.p, word, one.n) == 0) return true;
    }
    return false;
}
// The token among the protocols that the page offers, as Authorization has it; NULL: none.
static const char *token_of(const struct http_req *r, struct arena *a) {
    struct str rest = str_of(header(r, "Sec-WebSocket-Protocol")), one;
    while (rest.n && str_cut(&rest, ',', &one)) {
        one = str_trim(one);
        size_t n = sizeof TOKEN - 1;
        if (str_starts(one, TOKEN) && one.n - n <= MOST_TOKEN)
            return arena_printf(a, "Bearer %.*s", (int)(one.n - n), one.p + n);
    }
    return NULL;
}
static status_t admit(const struct http_req *r, struct arena *a, struct principal *out) {
    static const struct api_row row = {.method = "/v1/workers", .scope = SCOPE_WORKER};
    const char *origin = header(r, "Origin"), *host = header(r, "Host");
    struct credentials who = {.authorization = header(r, "Authorization")};
    if (r->foreign ||
        !http_same_site(host, origin, r->h->cfg.local_only)) // --cors-origin names none for this
        return st_because(ST_PERMISSION_DENIED, CROSS_ORIGIN,
                          "refused: only a page of this server joins it (Origin '%.100s')",
                          origin ? origin : "");
    if (!who.authorization) who.authorization = token_of(r, a);
    RETURN_IF_ERR(http_conn_names(r->conn, &who));
    return api_admit(r->h->api, &row, a, &who, out);
}

// ---- the handshake

static bool wants_upgrade(const struct http_req *r) {
    return lists(header(r, "Upgrade"), "websocket") && lists(header(r, "Connection"), "upgrade");
}
// 16 bytes in base64.
static bool is_key(const char *key) {
    if (!key || strlen(key) != KEY_CHARS || strcmp(key + KEY_CHARS - 2, "==") != 0) return false;
    for (int k = 0; k < KEY_CHARS - 2; k++)
        if (!strchr(str_base64_digits, key[k])) return false;
    return true;
}
static status_t check_handshake(const struct http_req *r) {
    const char *version = header(r, "Sec-WebSocket-Version"), *why = NULL;
    if (header(r, "Content-Length") || header(r, "Transfer-Encoding"))
        why = "a WebSocket's handshake has no body";
    else if (!version || strcmp(version, "13") != 0)
        why = "Sec-WebSocket-Version: expected 13";
    else if (!is_key(header(r, "Sec-WebSocket-Key")))
        why = "Sec-WebSocket-Key: expected 16 bytes in base64";
    else if (!lists(header(r, "Sec-WebSocket-Protocol"), PROTOCOL))
        why = "Sec-WebSocket-Protocol: expected hlod.worker.v1 among those offered";
    return why ? st_invalid("%s", why) : ST_OK;
}
static status_t check(struct http_req *r) {
    struct arena a = {0};
    struct principal p;
    status_t st = admit(r, &a, &p);
    if (!st && (r->h->api->leaving || r->h->stopping))
        st = st_because(ST_UNAVAILABLE, SHUTTING_DOWN, "the server is shutting down");
    if (!st && !pool_may_join(sched_pool(r->h->api->sched), KIND))
        st = st_because(ST_UNAVAILABLE, NO_WORKER, "each device of the kind web has a page");
    if (!st && wants_upgrade(r)) st = check_handshake(r);
    if (!st) st = http_joins_may(&r->h->joins, r->h->cfg.joins_a_minute, &p, wants_upgrade(r));
    arena_done(&a);
    return st;
}
bool http_workers_route(struct http_req *r, const char *verb, const char *url) {
    if (!r->h->cfg.workers || strcmp(url, PATH) != 0) return false;
    r->plain = r->joins = true;
    if (strcmp(verb, "GET") != 0) {
        r->allow = "GET";
        http_fail(r, st_because(ST_INVALID_ARGUMENT, METHOD_NOT_ALLOWED,
                                "%.20s is not allowed here; use GET", verb));
        return true;
    }
    status_t st = check(r);
    if (st) http_fail(r, st);
    return true;
}

// ---- sessions

static void end(struct http_session *s) {
    struct http *h = s->h;
    *(s->prev ? &s->prev->next : &h->sessions) = s->next;
    if (s->next) s->next->prev = s->prev;
    loop_watch_free(s->watch);
    if (s->fd >= 0) {
        shutdown(s->fd, SHUT_RDWR); // the worker's copy too
        close(s->fd);
    }
    MHD_upgrade_action(s->urh, MHD_UPGRADE_ACTION_CLOSE);
    http_kick(h);
    free(s);
}
static void on_left(void *arg) { // its worker is gone
    end(arg);
}
static void on_hangup(void *arg, UNUSED int events) {
    struct http_session *s = arg;
    worker_part(s->worker, "the page left"); // on_left follows
}
// A host that is gone without a word is noticed within a minute.
static void keep_alive(int fd) {
    const int on = 1, idle = QUIET_S, every = PROBE_S, n = PROBES;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
}
static status_t give(struct http_session *s) {
    if (s->h->stopping || s->h->api->leaving || s->fd < 0)
        return st_new(ST_UNAVAILABLE, "the server is shutting down, or has no descriptors");
    RETURN_IF_ERR(loop_watch_new(s->h->loop, s->fd, on_hangup, s, &s->watch));
    RETURN_IF_ERR(
        pool_join(sched_pool(s->h->api->sched), KIND, s->fd, s->tenant, on_left, s, &s->worker));
    loop_watch_set(s->watch, LOOP_HANGUP);
    metric_add(M_JOINS, 1);
    log_event(LOG_INFO, "worker.joined", "worker=%d tenant=%s by=%s", worker_index(s->worker),
              s->tenant, s->name);
    return ST_OK;
}
static void begin(void *arg) {
    struct http_session *s = arg;
    status_t st = give(s);
    if (!st) return;
    log_status(LOG_WARN, "worker.join", st);
    end(s);
}
static void on_upgrade(UNUSED void *cls, struct MHD_Connection *conn, void *con_cls,
                       UNUSED const char *early, size_t n_early, MHD_socket sock,
                       struct MHD_UpgradeResponseHandle *urh) {
    struct http_req *r = con_cls;
    struct http *h = r->h;
    struct http_session *s = arena_must_calloc(1, sizeof *s);
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct arena a = {0};
    struct principal p = {0};
    status_t st = admit(r, &a, &p); // as before; tokens may have been read again since
    *s = (struct http_session){.h = h, .urh = urh, .fd = -1, .next = h->sessions};
    if (h->sessions) h->sessions->prev = s;
    h->sessions = s;

    r->upgraded = true;
    h->open_requests--; // it is no request that a shutdown waits for
    http_conn_upgraded(conn);
    if (!st && !n_early) s->fd = fcntl(sock, F_DUPFD_CLOEXEC, FIRST_FD);
    if (i) keep_alive(i->connect_fd);
    snprintf(s->tenant, sizeof s->tenant, "%s", st ? "" : p.tenant);
    snprintf(s->name, sizeof s->name, "%s", st ? "" : p.name);
    st_drop(st);
    arena_done(&a);
    loop_post(h->loop, begin, s); // not within the library
}

static void answer_key(const struct http_req *r, struct strbuf *out) {
    uint8_t digest[20];
    struct strbuf text = {0};
    strbuf_printf(&text, "%s%s", header(r, "Sec-WebSocket-Key"), GUID);
    sha1_of(text.p, text.n, digest);
    strbuf_base64(out, digest, sizeof digest);
    strbuf_done(&text);
}
void http_workers_reply(struct http_req *r) {
    struct strbuf b = {0};
    if (!wants_upgrade(r)) {
        strbuf_puts(&b, "{\"message\":\"a page may join here, by a WebSocket (/worker)\"}\n");
        http_reply_text(r, 200, "application/json", &b);
        return;
    }
    r->response = MHD_create_response_for_upgrade(on_upgrade, NULL);
    if (!r->response) abort();
    r->code = MHD_HTTP_SWITCHING_PROTOCOLS;
    answer_key(r, &b);
    MHD_add_response_header(r->response, "Upgrade", "websocket");
    MHD_add_response_header(r->response, "Sec-WebSocket-Accept", strbuf_cstr(&b));
    MHD_add_response_header(r->response, "Sec-WebSocket-Protocol", PROTOCOL);
    strbuf_done(&b);
}

void http_workers_stop(struct http *h) {
    for (struct http_session *s = h->sessions, *next; s; s = next) {
        next = s->next;
        if (s->worker) worker_part(s->worker, "shutdown");
    }
    while (h->sessions) // `begin` is on its way to the others, and ends them
        loop_turn(h->loop);
    MHD_run(h->mhd); // lets go of them
    http_joins_done(&h->joins);
}
