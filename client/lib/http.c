// SPDX-License-Identifier: Apache-2.0
// Bodies are sent from where they lie. Requests are not retried here, but libcurl may find a kept
// connection closed and send again, so bodies can be rewound; and a first connection to this
// machine that is refused is tried again for half a second, since `hlod & hlo ...` is usual.
#include "client/lib/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/store/file.h"

struct http_client {
    CURL *curl;
    struct arena arena;
    struct http_security with;
    bool tls;
    bool met;         // something has answered
    const char *addr; // HOST:PORT
};
struct transfer {
    CURL *curl;
    const struct http_request *q;
    struct http_reply *r;
    FILE *file;
    struct curl_slist *headers;
    size_t part, at; // of the body
    bool broken_off;
    bool stalled;    // the server takes no more of the body
    curl_off_t sent; // of the body, and since when it is no more (monotonic, ns; 0: not begun)
    int64_t sent_at_ns;
};
enum { STALL_S = 60 };

// ---- who we are, whom we trust

enum { MAX_TOKEN_FILE = 4096 };

static status_t read_token(struct arena *a, const char *path, const char **out) {
    struct str text;
    RETURN_IF_ERR(file_read(a, path, MAX_TOKEN_FILE, NULL, &text));
    text = str_trim(text);
    *out = arena_strndup(a, text.p, text.n);
    return ST_OK;
}
status_t http_security_env(struct arena *a, struct http_security *s) {
    const char *file = getenv("HLOD_TOKEN_FILE");
    if (!s->token) s->token = getenv("HLOD_TOKEN");
    if (!s->token && file && *file) RETURN_IF_ERR(read_token(a, file, &s->token));
    if (!s->cacert) s->cacert = getenv("HLOD_CACERT");
    if (!s->cert) s->cert = getenv("HLOD_CERT");
    if (!s->key) s->key = getenv("HLOD_KEY");
    const char **all[] = {&s->token, &s->cacert, &s->cert, &s->key};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (*all[k] && !**all[k]) *all[k] = NULL;
    return ST_OK;
}

static const char *scheme(const char *given, const char *name) {
    size_t n = strlen(name);
    return !strncmp(given, name, n) && !strncmp(given + n, "://", 3) ? given + n + 3 : NULL;
}
status_t http_where(const char *given, const char *plain, const char *tls,
                    const struct http_security *s, struct http_where *out) {
    const char *said_plain = scheme(given, plain), *said_tls = scheme(given, tls);
    const char *addr = said_plain ? said_plain : said_tls ? said_tls : given;
    const char *colon = strrchr(addr, ':');
    int64_t port;
    *out = (struct http_where){addr, said_tls || (!said_plain && (s->cacert || s->cert))};
    if (!colon || colon == addr || strpbrk(addr, "/ @?#") ||
        !str_to_i64(str_of(colon + 1), &port) || port < 1 || port > 65535)
        return st_new(ST_INVALID_ARGUMENT, "address '%.100s': expected HOST:PORT%s", given,
                      scheme(given, "grpc") || scheme(given, "grpcs")
                          ? " of the server's HTTP port, 8000 by default"
                          : "");
    if (s->token && strpbrk(s->token, "\r\n"))
        return st_new(ST_INVALID_ARGUMENT, "the token has more than one line");
    if (s->token && !out->tls && !said_plain &&
        !str_is_loopback((struct str){addr, (size_t)(colon - addr)}))
        return st_new(ST_INVALID_ARGUMENT,
                      "the token would cross the network unencrypted: say %s://%s, or "
                      "%s://%s to allow it",
                      tls, addr, plain, addr);
    return ST_OK;
}
static const char *keep(struct arena *a, const char *z) {
    return z && *z ? arena_strdup(a, z) : NULL;
}

// As people write addresses: a slash at the end goes, a port that is not said is the usual one.
static const char *whole_address(struct arena *a, const char *given) {
    const char *host = strstr(given, "://");
    host = host ? host + 3 : given;
    size_t n = strlen(host);
    if (n && host[n - 1] == '/') n--;
    bool port = memchr(host, ':', n) && host[n - 1] != ']'; // [::1] has no port
    return arena_printf(a, "%.*s%s", (int)(host - given + (ptrdiff_t)n), given,
                        port || !n ? "" : ":8000");
}

status_t http_client_new(const char *addr, const struct http_security *s,
                         struct http_client **out) {
    static const struct http_security none;
    if (!s) s = &none;
    struct http_client *c = calloc(1, sizeof *c);
    if (!c) return st_oom();
    c->with = (struct http_security){keep(&c->arena, s->token), keep(&c->arena, s->cacert),
                                     keep(&c->arena, s->cert), keep(&c->arena, s->key)};
    struct http_where w;
    status_t st = http_where(whole_address(&c->arena, addr), "http", "https", &c->with, &w);
    c->tls = w.tls;
    c->addr = arena_strdup(&c->arena, w.addr);
    if (!st && !(c->curl = curl_easy_init())) st = st_oom();
    if (st)
        http_client_free(c);
    else
        *out = c;
    return st;
}
void http_client_free(struct http_client *c) {
    if (!c) return;
    if (c->curl) curl_easy_cleanup(c->curl);
    arena_done(&c->arena);
    free(c);
}
// Whom the system trusts, where a bundle that was built on another system finds it: libcurl knows
// the place of the system it was built for.
static const char *system_cas(void) {
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    const char *said = getenv("SSL_CERT_FILE");
    if (said && *said) return said;
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        if (access(places[k], R_OK) == 0) return places[k];
    return NULL;
}
static void set_security(const struct http_client *c, CURL *curl) {
    const struct http_security *s = &c->with;
    if (s->token) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, s->token);
    }
    const char *cas = s->cacert ? s->cacert : c->tls ? system_cas() : NULL;
    if (cas) curl_easy_setopt(curl, CURLOPT_CAINFO, cas);
    if (s->cert) curl_easy_setopt(curl, CURLOPT_SSLCERT, s->cert);
    if (s->key) curl_easy_setopt(curl, CURLOPT_SSLKEY, s->key);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
}

// ---- requests

static size_t on_body(char *p, size_t size, size_t n, void *ctx) {
    struct transfer *t = ctx;
    size_t bytes = size * n;
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (!t->q->on_bytes || code >= 300) {
        strbuf_add(&t->r->body, p, bytes);
        return bytes;
    }
    if (t->q->on_bytes(t->q->ctx, (struct span){(const uint8_t *)p, bytes})) return bytes;
    t->broken_off = true;
    return 0;
}

static bool header_is(struct str line, const char *name, int64_t *out) {
    size_t n = strlen(name);
    if (line.n < n || strncasecmp(line.p, name, n) != 0) return false;
    return str_to_i64(str_trim((struct str){line.p + n, line.n - n}), out);
}
static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    struct transfer *t = ctx;
    struct str line = {p, size * n};
    int64_t v;
    if (header_is(line, "inference-header-content-length:", &v)) t->r->json_bytes = v;
    if (header_is(line, "retry-after:", &v) && v < 1 << 30) t->r->retry_after_ms = v * 1000;
    return size * n;
}

static size_t on_read(char *p, size_t size, size_t n, void *ctx) {
    struct transfer *t = ctx;
    size_t room = size * n, done = 0;
    while (done < room && t->part < t->q->n_parts) {
        struct span s = t->q->parts[t->part];
        size_t k = s.n - t->at < room - done ? s.n - t->at : room - done;
        if (k) memcpy(p + done, s.p + t->at, k);
        done += k;
        t->at += k;
        if (t->at == s.n) t->part++, t->at = 0;
    }
    return done;
}
static int on_seek(void *ctx, curl_off_t offset, int origin) {
    struct transfer *t = ctx;
    if (origin != SEEK_SET || offset != 0) return CURL_SEEKFUNC_CANTSEEK;
    t->part = t->at = 0;
    return CURL_SEEKFUNC_OK;
}

// A peer that has gone without closing its socket leaves a body half sent for ever: libcurl goes on
// writing after the other side's end of stream.
static bool stalls(struct transfer *t, curl_off_t total, curl_off_t sent) {
    int64_t now = clock_ns();
    if (sent >= total || sent != t->sent || !t->sent_at_ns) t->sent = sent, t->sent_at_ns = now;
    return now - t->sent_at_ns > (int64_t)STALL_S * 1000000000;
}
static int on_transfer(void *ctx, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
                       curl_off_t ulnow) {
    struct transfer *t = ctx;
    (void)dltotal, (void)dlnow;
    if (t->q->on_progress) t->q->on_progress(t->q->ctx, ulnow, ultotal);
    if (t->q->stop && t->q->stop(t->q->ctx)) t->broken_off = true;
    t->stalled = stalls(t, ultotal, ulnow);
    return t->broken_off || t->stalled;
}

static void set_body(struct transfer *t) {
    CURL *c = t->curl;
    struct stat sb;
    if (t->file && fstat(fileno(t->file), &sb) == 0) {
        curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c, CURLOPT_READDATA, t->file);
        curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)sb.st_size);
    } else if (t->q->n_parts) {
        curl_off_t n = 0;
        for (size_t i = 0; i < t->q->n_parts; i++)
            n += (curl_off_t)t->q->parts[i].n;
        curl_easy_setopt(c, CURLOPT_POST, 1L);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, n);
        curl_easy_setopt(c, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(c, CURLOPT_READDATA, t);
        curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(c, CURLOPT_SEEKDATA, t);
    }
}

static struct curl_slist *set_headers(const struct http_request *q) {
    char line[512];
    struct curl_slist *h = curl_slist_append(NULL, "Expect:");
    snprintf(line, sizeof line, "Content-Type: %s",
             q->content_type ? q->content_type : "application/json");
    h = curl_slist_append(h, line);
    snprintf(line, sizeof line, "Accept: %s", q->accept ? q->accept : "application/json");
    h = curl_slist_append(h, line);
    for (int k = 0; q->headers && q->headers[k]; k++)
        h = curl_slist_append(h, q->headers[k]);
    return h;
}

static status_t begin(const struct http_client *client, struct transfer *t) {
    CURL *c = t->curl;
    struct strbuf url = {0};
    if (t->q->body_file && !(t->file = fopen(t->q->body_file, "rbe")))
        return st_errno(errno, t->q->body_file);
    strbuf_printf(&url, "%s://%s%s", client->tls ? "https" : "http", client->addr, t->q->path);
    set_security(client, c);
    curl_easy_setopt(c, CURLOPT_URL, url.p);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_transfer);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    set_body(t);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, t->q->method);
    t->headers = set_headers(t->q);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
    strbuf_done(&url);
    return ST_OK;
}
// What may help, behind the reason why nobody answered.
static const char *way_out(const struct http_client *c, CURLcode rc) {
    switch (rc) {
    case CURLE_COULDNT_CONNECT:
        return "; start one with `hlod &`, or say where it is: --addr HOST:PORT or HLOD_ADDR";
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_OPERATION_TIMEDOUT:
        return "; the address comes from --addr HOST:PORT or HLOD_ADDR";
    case CURLE_PEER_FAILED_VERIFICATION:
        return "; name the authority that signed the server's certificate: --cacert FILE or "
               "HLOD_CACERT";
    case CURLE_SSL_CONNECT_ERROR:
        return "; does it serve TLS? Else say http:// before the address. Does it ask for a "
               "certificate: --cert, --key";
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
        return c->tls ? "" : "; if it serves TLS, say https:// before the address";
    default:
        return "";
    }
}
// What went wrong, where libcurl's words for it leave the reader to guess.
static const char *what_failed(CURLcode rc) {
    if (rc == CURLE_PEER_FAILED_VERIFICATION)
        return "its certificate is not trusted: signed by an authority that is not known here, "
               "for another host, or expired";
    return curl_easy_strerror(rc);
}
static status_t end(const struct http_client *client, struct transfer *t, CURLcode rc) {
    const char *addr = client->addr;
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_slist_free_all(t->headers);
    if (t->file) fclose(t->file);
    t->r->code = (int)code;
    if (t->broken_off) return st_new(ST_CANCELLED, "cancelled by the caller");
    if (t->stalled)
        return st_new(ST_UNAVAILABLE, "hlod at %s took nothing of the request for %d s", addr,
                      STALL_S);
    if (rc == CURLE_UNSUPPORTED_PROTOCOL)
        return st_new(ST_UNAVAILABLE,
                      "what answers at %s does not speak HTTP/1.1: the gRPC port? hlo takes the "
                      "one of --http",
                      addr);
    if (rc == CURLE_SSL_CACERT_BADFILE)
        return st_new(ST_INVALID_ARGUMENT,
                      "%s: expected a PEM file with the certificates of trusted authorities",
                      client->with.cacert ? client->with.cacert : "the system's certificates");
    if (rc != CURLE_OK && code == 0)
        return st_new(ST_UNAVAILABLE, "cannot reach hlod at %s: %s%s", addr, what_failed(rc),
                      way_out(client, rc));
    if (rc != CURLE_OK && code < 400)
        return st_new(ST_UNAVAILABLE, "the connection to %s broke: %s", addr,
                      curl_easy_strerror(rc));
    return ST_OK;
}

// libcurl's outcome of the request. A refused connection has sent nothing, so trying again is safe.
static CURLcode perform(struct http_client *c) {
    enum { PATIENCE_MS = 500, PAUSE_MS = 20 };
    bool wait = !c->met &&
                str_is_loopback((struct str){c->addr, (size_t)(strrchr(c->addr, ':') - c->addr)});
    int64_t until = clock_ns() + clock_of_ms(PATIENCE_MS);
    CURLcode rc;
    while ((rc = curl_easy_perform(c->curl)) == CURLE_COULDNT_CONNECT && wait && clock_ns() < until)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    c->met = c->met || rc == CURLE_OK;
    return rc;
}

status_t http_send(struct http_client *c, const struct http_request *q, struct http_reply *out) {
    struct transfer t = {.curl = c->curl, .q = q, .r = out};
    *out = (struct http_reply){.json_bytes = -1};
    curl_easy_reset(c->curl); // keeps the connection
    RETURN_IF_ERR(begin(c, &t));
    status_t st = end(c, &t, perform(c));
    if (st) http_reply_done(out);
    return st;
}

// ---- side by side

struct http_flight {
    struct http_flights *f;
    struct http_flight *prev, *next;
    struct transfer t;
    struct http_request q;
    struct http_reply r;
    void (*done)(void *ctx, status_t st, const struct http_reply *r);
    void *ctx;
};
struct http_flights {
    struct http_client *client;
    CURLM *multi;
    struct http_flight *first;
};
status_t http_flights_new(struct http_client *c, struct http_flights **out) {
    struct http_flights *f = calloc(1, sizeof *f);
    if (!f) return st_oom();
    f->client = c;
    if (!(f->multi = curl_multi_init())) {
        free(f);
        return st_oom();
    }
    *out = f;
    return ST_OK;
}
static void land(struct http_flight *x, status_t st) {
    struct http_flights *f = x->f;
    curl_multi_remove_handle(f->multi, x->t.curl);
    curl_easy_cleanup(x->t.curl);
    *(x->prev ? &x->prev->next : &f->first) = x->next;
    if (x->next) x->next->prev = x->prev;
    x->done(x->ctx, st, &x->r);
    http_reply_done(&x->r);
    free(x);
}
status_t http_flight_start(struct http_flights *f, const struct http_request *q,
                           void (*done)(void *ctx, status_t st, const struct http_reply *r),
                           void *ctx, struct http_flight **out) {
    struct http_flight *x = calloc(1, sizeof *x);
    if (!x) return st_oom();
    *x = (struct http_flight){.f = f, .q = *q, .done = done, .ctx = ctx};
    x->r.json_bytes = -1;
    x->t = (struct transfer){.curl = curl_easy_init(), .q = &x->q, .r = &x->r};
    status_t st = x->t.curl ? begin(f->client, &x->t) : st_oom();
    if (st) {
        if (x->t.curl) curl_easy_cleanup(x->t.curl);
        free(x);
        return st;
    }
    curl_easy_setopt(x->t.curl, CURLOPT_PRIVATE, x);
    x->next = f->first;
    if (x->next) x->next->prev = x;
    f->first = x;
    curl_multi_add_handle(f->multi, x->t.curl);
    *out = x;
    return ST_OK;
}
void http_flight_cancel(struct http_flight *x) {
    x->t.broken_off = true;
    land(x, end(x->f->client, &x->t, CURLE_OK));
}
void http_flights_turn(struct http_flights *f, int timeout_ms) {
    int running, left;
    curl_multi_poll(f->multi, NULL, 0, timeout_ms, NULL);
    curl_multi_perform(f->multi, &running);
    for (CURLMsg *m; (m = curl_multi_info_read(f->multi, &left));) {
        if (m->msg != CURLMSG_DONE) continue;
        struct http_flight *x;
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        land(x, end(f->client, &x->t, rc));
    }
}
void http_flights_wake(struct http_flights *f) {
    curl_multi_wakeup(f->multi);
}
void http_flights_free(struct http_flights *f) {
    if (!f) return;
    while (f->first)
        http_flight_cancel(f->first);
    curl_multi_cleanup(f->multi);
    free(f);
}

void http_reply_done(struct http_reply *r) {
    strbuf_done(&r->body);
}
