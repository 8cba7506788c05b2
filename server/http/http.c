// SPDX-License-Identifier: Apache-2.0
// The library side of HTTP: its start and stop, and the handler that takes each request through its
// life (http_req.h). Driving it, and watching for clients that leave: http_watch.c.
#include "server/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/store/store.h"
#include "proto/json.h"
#include "scheduler/loop.h"
#include "scheduler/records/journal.h"
#include "scheduler/suite/journal_jobs.h"
#include "scheduler/suite/suite.h"
#include "server/http/conn/http_conn.h"
#include "server/http/conn/http_guard.h"
#include "server/http/conn/http_read.h"
#include "server/http/cors.h"
#include "server/http/http_dashboard.h"
#include "server/http/http_req.h"
#include "server/http/http_workers.h"
#include "server/tls.h"

// ---- who calls

// A browser sends what a page of any origin asks for. Such a request says so (Origin); and where
// no token is needed, a page whose DNS name was pointed at us has that name in Host.
static status_t foreign_page(const struct http_req *r) {
    const struct http *h = r->h;
    struct MHD_Connection *conn = r->conn;
    const char *origin = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Origin"),
               *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Host");
    bool named =
        cors_allows(h->cfg.cors, origin); // by the operator; Host is looked at all the same
    if (!r->foreign && http_same_site(host, named ? NULL : origin, h->cfg.local_only)) return ST_OK;
    return st_because(
        ST_PERMISSION_DENIED, CROSS_ORIGIN,
        "refused: from a web page of another origin (Origin '%.100s', Host '%.100s'); "
        "pages of other origins need --cors-origin, callers by another name --tokens",
        origin ? origin : "", host ? host : "");
}

static status_t admit(const struct http_req *r, const struct api_row *row, struct arena *a,
                      struct principal *out) {
    struct credentials who = {
        .authorization = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Authorization")};
    RETURN_IF_ERR(foreign_page(r));
    RETURN_IF_ERR(http_conn_names(r->conn, &who));
    return api_admit(r->h->api, row, a, &who, out);
}

static const char *header(void *conn, const char *name) {
    return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

// ---- strictness

// What two readers of one request could understand differently is refused by the connection's guard
// (http_guard.h), before the library sees it. Here is what needs no raw bytes.
MUST_CHECK static status_t strictly(struct MHD_Connection *conn, bool nul, bool seen) {
    const char *expect = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Expect");
    if (!seen) return st_internal("the request came past its guard");
    const char *why = nul ? "a NUL, a space or a control character in the path"
                      : expect && strcasecmp(expect, "100-continue")
                          ? "an Expect other than 100-continue"
                          : NULL;
    return why ? st_because(ST_INVALID_ARGUMENT, BAD_FRAMING, "%s", why) : ST_OK;
}
static char nul_in_path; // its address in a request's slot

// ---- plain routes

static bool plain_route(struct http_req *r, const char *verb, const char *url) {
    static const char *const paths[] = {"/healthz", "/readyz", "/metrics", "/v1/openapi.json"};
    static const struct api_row metrics = {.method = "/metrics", .scope = SCOPE_READ};
    bool known = http_dashboard_find(url, r->h->cfg.workers) != NULL;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        known |= !strcmp(url, paths[i]);
    bool server = r->options && !strcmp(url, "*"); // of it as a whole
    if (known || server) {
        r->plain = true;
        snprintf(r->plain_path, sizeof r->plain_path, "%s", url);
        if (strcmp(verb, "GET") && strcmp(verb, "HEAD")) {
            r->allow = server ? "GET, HEAD, POST, PUT, DELETE" : "GET, HEAD";
            http_fail(r, st_because(ST_INVALID_ARGUMENT, METHOD_NOT_ALLOWED,
                                    "%.20s is not allowed here; use GET", verb));
        } else if (!strcmp(url, "/metrics")) {
            struct arena a = {0};
            struct principal p;
            status_t st = admit(r, &metrics, &a, &p);
            if (st) http_fail(r, st);
            arena_done(&a);
        }
        return true;
    }
    return false;
}

// Is it alive, or, which is more, ready?
static bool put_health(const struct api *api, bool readiness, struct strbuf *b) {
    bool ok = !readiness || api_serves(api);
    bool more = ok && readiness;
    if (more && store_free_bytes(sched_store(api->sched)) < STORE_LITTLE) // it serves what it has
        strbuf_puts(b, "ok, but the disk is full: uploads, compiles, names and batch jobs are "
                       "refused\n");
    else if (more && (journal_alone(sched_journal(api->sched)) ||
                      journal_jobs_alone(suites_journal(api->suites))))
        strbuf_puts(b, "ok, but one of the two files of a database cannot be made again: uploads, "
                       "compiles, names and batch jobs are refused\n");
    else if (more && api_apart(api))
        strbuf_puts(b, "ok, but the cluster is not reached: this node serves alone\n");
    else
        strbuf_puts(b, ok ? "ok\n" : api->leaving ? "shutting down\n" : "workers are starting\n");
    return ok;
}
static void plain_reply(struct http_req *r) {
    struct strbuf b = {0};
    struct api *api = r->h->api;
    const struct dashboard_file *file = http_dashboard_find(r->plain_path, r->h->cfg.workers);
    const char *accept = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Accept");
    if (!strcmp(r->plain_path, "/metrics")) {
        api_metrics(api, &b);
        http_reply_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
    } else if (!strcmp(r->plain_path, "/v1/openapi.json")) {
        static struct strbuf all; // the same for as long as the daemon lives, of the loop's thread
        if (!all.n) api_openapi(&all);
        http_reply_bytes(r, "application/json", all.p, all.n);
    } else if (!strcmp(r->plain_path, "/") && !strstr(accept ? accept : "", "text/html")) {
        strbuf_printf(
            &b, "hlod %s\nAPI: /v1/openapi.json   health: /healthz /readyz   metrics: /metrics\n",
            api_version_text());
        http_reply_text(r, 200, "text/plain; charset=utf-8", &b);
    } else if (file) {
        http_dashboard_reply(r, file);
    } else {
        bool ok = put_health(api, !strcmp(r->plain_path, "/readyz"), &b);
        http_reply_text(r, ok ? 200 : 503, "text/plain; charset=utf-8", &b);
    }
}

// ---- a request's life

static void on_completed(UNUSED void *cls, struct MHD_Connection *conn, void **con_cls,
                         UNUSED enum MHD_RequestTerminationCode why) {
    struct http_req *r = *con_cls;
    http_conn_replied(conn);
    if (!r || *con_cls == &nul_in_path) return;
    *con_cls = NULL;
    http_watch_stop(r);
    if (r->call && r->started && !r->call->finished) call_cancel(r->call);
    if (r->response) MHD_destroy_response(r->response);
    budget_drop(&r->hold);
    upload_free(r->upload);
    strbuf_done(&r->text);
    strbuf_done(&r->out);
    vec_done(&r->holes);
    for (struct http_text *t = r->long_text, *next; t; t = next) {
        next = t->next;
        http_text_free(t);
    }
    st_drop(r->error);
    if (r->call) call_done(r->call);
    if (!r->upgraded) r->h->open_requests--;
    free(r);
}

// A browser shows the reply to the page that asked only if it says so.
static void cors_headers(struct http_req *r) {
    const char *list = r->h->cfg.cors,
               *origin = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Origin");
    if (!*list || !r->response) return;
    bool any = cors_any(list);
    if (!any) MHD_add_response_header(r->response, "Vary", "Origin");
    if (!cors_allows(list, origin)) return;
    MHD_add_response_header(r->response, "Access-Control-Allow-Origin", any ? "*" : origin);
    if (r->preflight) {
        MHD_add_response_header(r->response, "Access-Control-Allow-Methods", CORS_METHODS);
        MHD_add_response_header(r->response, "Access-Control-Allow-Headers", CORS_REQUEST_HEADERS);
        MHD_add_response_header(r->response, "Access-Control-Max-Age", "600");
    } else
        MHD_add_response_header(r->response, "Access-Control-Expose-Headers", CORS_REPLY_HEADERS);
}
// The question that a browser asks before a page's request: answered without a token, for it has
// none, and says nothing about who may do what.
static bool from_page(struct MHD_Connection *conn) {
    return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Access-Control-Request-Method");
}
static bool is_preflight(struct http *h, struct MHD_Connection *conn, const char *verb) {
    return !strcmp(verb, "OPTIONS") && from_page(conn) &&
           cors_allows(h->cfg.cors, MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Origin"));
}

static enum MHD_Result queue_reply(struct http_req *r) {
    cors_headers(r);
    if (r->h->api->leaving) MHD_add_response_header(r->response, "Connection", "close");
    r->queued = true;
    http_conn_replies(r->conn, r->call);
    if (!r->stream_open) http_watch_stop(r); // from here the library sees the socket itself
    // A request we did not read to its end leaves the connection in an unknown state; the library
    // closes it then.
    return MHD_queue_response(r->conn, r->code, r->response);
}

// OPTIONS: what the path takes, without a token, since that is published. Balancers ask so whether
// a server is to be sent requests (HAProxy's httpchk, where nothing else is said).
static void reply_options(struct http_req *r) {
    struct strbuf none = {0};
    char allow[80];
    snprintf(allow, sizeof allow, "%s, OPTIONS", r->allow);
    http_reply_text(r, api_serves(r->h->api) ? 204 : 503, "text/plain; charset=utf-8", &none);
    MHD_add_response_header(r->response, "Allow", allow);
}
// A reply without a call, before any body is read. Takes st.
static enum MHD_Result refuse(struct http_req *r, status_t st) {
    r->error = ST_OK;
    if (r->options && r->allow &&
        st_get_reason(st) == HLOD__V1__REASON__REASON_METHOD_NOT_ALLOWED) {
        st_drop(st);
        reply_options(r);
    } else {
        http_reply_error(r, st);
    }
    return queue_reply(r);
}

// As a literal; "_OTHER" is OpenTelemetry's word.
static const char *verb_name(const char *verb) {
    static const char *const names[] = {"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (!strcmp(verb, names[k])) return names[k];
    return "_OTHER";
}
// The call of a request to a row: route, caller and headers into it.
MUST_CHECK static status_t begin_call(struct http_req *r, const char *url, const char *verb) {
    struct MHD_Connection *conn = r->conn;
    struct call *c = r->call = malloc(sizeof *c);
    if (!c) abort();
    call_init(c, r->h->api);
    c->sink = &http_sink;
    c->transport = r;

    const char *codings = header(conn, "Accept-Encoding"), *accept = header(conn, "Accept");
    r->coding = coding_accepted(codings ? codings : "");
    call_trace(c, header(conn, "traceparent"), header(conn, "tracestate"));
    c->verb = verb_name(verb);
    const char *stream = MHD_lookup_connection_value(conn, MHD_GET_ARGUMENT_KIND, "stream");
    int want = !stream ? -1 : !strcmp(stream, "1") || !strcmp(stream, "true");
    RETURN_IF_ERR(
        http_route(&c->arena, verb, url, accept ? accept : "", want, &r->route, &r->allow));

    c->row = r->route.row;
    c->route = r->route.alias;
    c->wants_file = r->route.form == FORM_FILE || r->route.form == FORM_BYTES;
    const char *range = header(conn, "Range");
    if (range) c->range = arena_strdup(&c->arena, range);
    RETURN_IF_ERR(admit(r, c->row, &c->arena, &c->principal));
    return call_headers(c, header, conn);
}

static bool is_oip(const char *url) {
    struct str path = str_of(url);
    return str_is(path, "/v2") || str_starts(path, "/v2/") ||
           str_starts(path, "/inference.GRPCInferenceService/");
}
static enum MHD_Result begin(struct http *h, struct MHD_Connection *conn, const char *target,
                             const char *verb, void **con_cls) {
    struct http_req *r = calloc(1, sizeof *r);
    if (!r) return MHD_NO;
    char authority[HTTP_AUTHORITY];
    const char *url = http_path_of(target, authority);
    status_t bad = strictly(conn, *con_cls == &nul_in_path, http_conn_begun(conn));
    *con_cls = r;
    h->open_requests++;
    *r = (struct http_req){.h = h, .conn = conn, .watch_fd = -1, .oip = is_oip(url)};
    r->foreign = *authority && !http_same_site(authority, NULL, h->cfg.local_only);
    r->preflight = !bad && is_preflight(h, conn, verb);
    r->options = !strcmp(verb, "OPTIONS") && !from_page(conn);
    r->plain = bad || r->preflight;
    if (bad) return refuse(r, bad);
    if (r->preflight) {
        struct strbuf none = {0};
        http_reply_text(r, 204, "text/plain; charset=utf-8", &none);
        return queue_reply(r);
    }
    if (http_workers_route(r, verb, url) || plain_route(r, verb, url))
        return r->error ? refuse(r, r->error) : MHD_YES;

    status_t st = begin_call(r, url, verb);
    if (st)
        http_fail(r, st);
    else
        http_body_begin(r);
    if (!r->error) {
        if (r->in != IN_NONE) http_watch_soon(r);
        return MHD_YES;
    }
    // Refused before its body: the library closes the connection after the reply if one follows.
    call_refused(r->call, r->error);
    return refuse(r, r->error);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *verb, UNUSED const char *version, const char *data,
                                  size_t *n, void **con_cls) {
    struct http *h = cls;
    struct http_req *r = *con_cls;
    if (!r || *con_cls == &nul_in_path) return begin(h, conn, url, verb, con_cls);
    if (r->plain) {
        if (*n) {
            *n = 0;
            return MHD_YES;
        }
        (r->joins ? http_workers_reply : plain_reply)(r);
        return queue_reply(r);
    }
    if (*n) {
        size_t came = *n;
        http_body_add(r, data, n);
        http_conn_body(conn, came - *n, *n > 0);
        return r->error && r->received > 1 << 30 ? MHD_NO : MHD_YES; // enough dropped: cut the line
    }

    if (!r->started) {
        r->started = true;
        http_conn_whole(conn);
        http_suspend(r);
        http_watch_soon(r);
        http_body_end(r);
        return MHD_YES;
    }
    if (r->response && !r->queued) return queue_reply(r);
    if (!r->response) http_suspend(r); // resumed too early
    return MHD_YES;
}

static void *on_line(UNUSED void *cls, const char *uri, struct MHD_Connection *conn) {
    http_conn_line(conn);
    for (const char *p = uri; *p; p++) // neither control characters nor spaces
        if ((unsigned char)*p <= ' ' || *p == 0x7f) return &nul_in_path;
    return strstr(uri, "%00") ? &nul_in_path : NULL; // the request's slot
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **ctx,
                          enum MHD_ConnectionNotificationCode what) {
    struct http *h = cls;
    metric_add(M_CONNECTIONS, what == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1);
    http_reads_spare();
    if (what != MHD_CONNECTION_NOTIFY_STARTED) {
        // Where all places were taken, or descriptors, the library looks at the door again in its
        // next turn only.
        h->connections--;
        http_kick(h);
        http_conn_closed(h->conns, ctx);
        return;
    }
    h->connections++;
    http_conn_opened(h->conns, conn, ctx);
    const union MHD_ConnectionInfo *i =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

    // The kernel keeps little for who does not read: it would let a socket have megabytes.
    int one = 1, unsent = 256 << 10;
    if (!i) return;
    setsockopt(i->connect_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(i->connect_fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

// ---- start and stop

static void on_resumed(void *arg) {
    http_kick(arg);
}

static status_t bind_address(const char *host, uint16_t port, struct sockaddr_storage *out,
                             socklen_t *out_n) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *res;
    char text[8];
    snprintf(text, sizeof text, "%u", port);
    int err = getaddrinfo(host, text, &hints, &res);
    if (err) return st_invalid("address '%s': %s", host, gai_strerror(err));
    memcpy(out, res->ai_addr, res->ai_addrlen);
    *out_n = res->ai_addrlen;
    freeaddrinfo(res);
    return ST_OK;
}

// Who finds no place there comes again after a second, then two, then four.
enum { BACKLOG = 4096 };
static status_t listen_on(struct http *h) {
    struct sockaddr_storage a = {0};
    socklen_t n;
    RETURN_IF_ERR(bind_address(h->cfg.host, h->cfg.port, &a, &n));
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0) return st_errno(errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, n) || listen(fd, BACKLOG)) {
        int err = errno;
        close(fd);
        status_t st = st_note(st_errno(err, "listen"), "%s port %u", h->cfg.host, h->cfg.port);
        errno = err;
        return st;
    }

    n = sizeof a;
    getsockname(fd, (struct sockaddr *)&a, &n);
    h->port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                            : ((struct sockaddr_in *)&a)->sin_port);
    h->listen_fd = fd;
    return ST_OK;
}

static struct MHD_Daemon *start_library(struct http *h) {
    struct MHD_OptionItem secure[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)tls_certificate_callback()},
        {MHD_OPTION_HTTPS_PRIORITIES, 0,
         (void *)(uintptr_t)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
        {MHD_OPTION_END, 0, NULL}};
    struct arena pem = {0};
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    if (h->cfg.workers) flags |= MHD_ALLOW_UPGRADE;
    if (h->cfg.tls) {
        struct tls_pem p;
        tls_pem(h->cfg.tls, &pem, &p);
        flags |= MHD_USE_TLS;
        if (p.client_ca) // that clients are asked for a certificate; tls_peer judges it
            secure[2] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0,
                                                (void *)(uintptr_t)p.client_ca};
    } else
        secure[0].option = MHD_OPTION_END;

    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_URI_LOG_CALLBACK, on_line, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->cfg.max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)h->cfg.max_per_address, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->cfg.idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)GUARD_LIBRARY_BYTES, MHD_OPTION_ARRAY, secure,
        MHD_OPTION_END);
    arena_done(&pem);
    return d;
}

status_t http_start(struct loop *l, struct api *api, const struct http_config *cfg,
                    struct http **out) {
    struct http *h = calloc(1, sizeof *h);
    if (!h) return st_oom();
    h->loop = l;
    h->api = api;
    h->cfg = *cfg;
    h->listen_fd = -1;
    status_t st = listen_on(h);
    if (st) {
        free(h);
        return st;
    }

    h->timer = loop_timer_new(l, http_on_timer, h);
    h->look = loop_timer_new(l, http_on_look, h);
    h->conns = http_conns_new(api->sched, cfg, on_resumed, h);
    h->mhd = h->conns ? start_library(h) : NULL;
    const union MHD_DaemonInfo *info =
        h->mhd ? MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info)
        st = st_internal("cannot start the HTTP server");
    else
        st = loop_watch_new(l, info->epoll_fd, http_on_epoll, h, &h->watch);
    if (st) {
        loop_timer_free(h->timer);
        loop_timer_free(h->look);
        if (h->mhd) MHD_stop_daemon(h->mhd);
        http_conns_free(h->conns);
        free(h);
        return st;
    }
    loop_watch_set(h->watch, LOOP_READ);
    http_kick(h);
    *out = h;
    return ST_OK;
}

status_t http_try(const struct http_config *cfg, bool *out_in_use) {
    struct http h = {.cfg = *cfg, .listen_fd = -1};
    status_t st = listen_on(&h);
    *out_in_use = st && errno == EADDRINUSE;
    RETURN_IF_ERR(st);
    h.mhd = start_library(&h);
    if (h.mhd)
        MHD_stop_daemon(h.mhd); // closes what it listens on
    else
        close(h.listen_fd);
    return h.mhd ? ST_OK : st_internal("cannot start the HTTP server");
}

uint16_t http_port(const struct http *h) {
    return h->port;
}
int http_open_requests(const struct http *h) {
    return h->open_requests;
}
void http_quiesce(struct http *h) {
    if (h->listen_fd < 0) return;
    MHD_socket fd = MHD_quiesce_daemon(h->mhd);
    if (fd != MHD_INVALID_SOCKET) close(fd);
    h->listen_fd = -1;
}
// What the end of the work has answered goes out, streams with their last event.
static void settle(struct http *h) {
    enum { MOST_MS = 500, LOOK_MS = 10 };
    int64_t until = clock_ns() + MOST_MS * CLOCK_MS;
    while (h->open_requests && clock_ns() < until) {
        loop_timer_start(h->look, LOOK_MS);
        loop_turn(h->loop);
    }
}
void http_stop(struct http *h) {
    http_quiesce(h);
    settle(h);
    h->stopping = true;
    while (loop_works(h->loop)) // on requests, which the library frees below
        loop_turn(h->loop);
    loop_watch_free(h->watch);
    loop_timer_free(h->timer);
    http_conns_stop(h->conns);
    http_workers_stop(h);
    MHD_stop_daemon(h->mhd);
    http_conns_free(h->conns);
    loop_timer_free(h->look);
    h->mhd = NULL; // h itself stays: a posted kick may still come
}
