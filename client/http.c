// SPDX-License-Identifier: Apache-2.0
// Bodies are sent from where they lie; nothing is retried here, but libcurl may find a kept
// connection closed and send again, so bodies can be rewound.
#include "client/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct http_client {
    CURL *curl;
    char addr[256];
};
struct transfer {
    CURL *curl;
    const struct http_request *q;
    struct http_reply *r;
    FILE *file;
    size_t part, at; // of the body
    bool broken_off;
};

status_t http_client_new(const char *addr, struct http_client **out) {
    size_t n = strlen(addr);
    const char *colon = strrchr(addr, ':');
    int64_t port;
    if (!colon || colon == addr || n >= sizeof((*out)->addr) || strpbrk(addr, "/ @?#") ||
        !str_to_i64(str_of(colon + 1), &port) || port < 1 || port > 65535)
        return st_new(ST_INVALID_ARGUMENT, "address '%.100s': expected HOST:PORT", addr);
    struct http_client *c = calloc(1, sizeof *c);
    if (!c) return st_oom();
    memcpy(c->addr, addr, n + 1);
    if (!(c->curl = curl_easy_init())) {
        free(c);
        return st_oom();
    }
    *out = c;
    return ST_OK;
}
void http_client_free(struct http_client *c) {
    if (!c) return;
    curl_easy_cleanup(c->curl);
    free(c);
}

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

static int on_transfer(void *ctx, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
                       curl_off_t ulnow) {
    struct transfer *t = ctx;
    (void)dltotal, (void)dlnow;
    if (t->q->on_progress) t->q->on_progress(t->q->ctx, ulnow, ultotal);
    return 0;
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

static status_t perform(const char *addr, struct transfer *t) {
    CURL *c = t->curl;
    struct strbuf url = {0};
    strbuf_printf(&url, "http://%s%s", addr, t->q->path);
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
    struct curl_slist *h = set_headers(t->q);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h);
    CURLcode rc = curl_easy_perform(c);
    long code = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &code);
    curl_slist_free_all(h);
    strbuf_done(&url);
    t->r->code = (int)code;
    if (t->broken_off) return st_new(ST_CANCELLED, "cancelled by the caller");
    if (rc != CURLE_OK && code == 0)
        return st_new(ST_UNAVAILABLE, "cannot reach hlod at %s: %s", addr, curl_easy_strerror(rc));
    if (rc != CURLE_OK && code < 400)
        return st_new(ST_UNAVAILABLE, "the connection to %s broke: %s", addr,
                      curl_easy_strerror(rc));
    return ST_OK;
}

status_t http_send(struct http_client *c, const struct http_request *q, struct http_reply *out) {
    struct transfer t = {.curl = c->curl, .q = q, .r = out};
    *out = (struct http_reply){.json_bytes = -1};
    if (q->body_file && !(t.file = fopen(q->body_file, "rbe")))
        return st_errno(errno, q->body_file);
    curl_easy_reset(c->curl); // keeps the connection
    status_t st = perform(c->addr, &t);
    if (t.file) fclose(t.file);
    if (st) http_reply_done(out);
    return st;
}
void http_reply_done(struct http_reply *r) {
    strbuf_done(&r->body);
}
