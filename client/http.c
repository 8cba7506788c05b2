// SPDX-License-Identifier: Apache-2.0
// Progress and lines are handed on as libcurl gives them; nothing is retried here.
#include "client/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct transfer {
    const struct http_request *q;
    struct http_reply *r;
    struct strbuf line;
};

static size_t on_body(char *p, size_t size, size_t n, void *ctx) {
    struct transfer *t = ctx;
    size_t bytes = size * n;
    if (!t->q->on_line) {
        strbuf_add(&t->r->body, p, bytes);
        return bytes;
    }
    for (size_t k = 0; k < bytes; k++) {
        if (p[k] != '\n') {
            strbuf_putc(&t->line, p[k]);
            continue;
        }
        t->q->on_line(t->q->ctx, (struct str){strbuf_cstr(&t->line), t->line.n});
        strbuf_clear(&t->line);
    }
    return bytes;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    static const char name[] = "inference-header-content-length:";
    struct transfer *t = ctx;
    size_t bytes = size * n, k = 0;
    while (k < bytes && name[k] && (p[k] | 32) == (name[k] | 32))
        k++;
    if (!name[k]) str_to_i64(str_trim((struct str){p + k, bytes - k}), &t->r->json_bytes);
    return bytes;
}

static int on_transfer(void *ctx, curl_off_t dltotal, curl_off_t dlnow, curl_off_t ultotal,
                       curl_off_t ulnow) {
    struct transfer *t = ctx;
    (void)dltotal, (void)dlnow;
    if (t->q->on_progress) t->q->on_progress(t->q->ctx, ulnow, ultotal);
    return 0;
}

static status_t perform(CURL *c, const char *addr, const struct http_request *q, struct transfer *t,
                        FILE *file) {
    char url[4096];
    struct curl_slist *h = NULL;
    struct stat sb;
    snprintf(url, sizeof url, "http://%s%s", addr, q->path);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_transfer);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    char line[512];
    snprintf(line, sizeof line, "Content-Type: %s",
             q->content_type ? q->content_type : "application/json");
    h = curl_slist_append(h, line);
    snprintf(line, sizeof line, "Accept: %s", q->accept ? q->accept : "application/json");
    h = curl_slist_append(h, line);
    for (int k = 0; q->headers && q->headers[k]; k++)
        h = curl_slist_append(h, q->headers[k]);
    if (file && fstat(fileno(file), &sb) == 0) {
        curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c, CURLOPT_READDATA, file);
        curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)sb.st_size);
    } else if (q->body.n) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, (const char *)q->body.p);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body.n);
    }
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h);
    CURLcode rc = curl_easy_perform(c);
    long code = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &code);
    curl_slist_free_all(h);
    if (t->line.n) q->on_line(q->ctx, (struct str){t->line.p, t->line.n});
    t->r->code = (int)code;
    if (rc != CURLE_OK && code == 0)
        return st_new(ST_UNAVAILABLE, "cannot reach hlod at %s: %s", addr, curl_easy_strerror(rc));
    if (rc != CURLE_OK && code < 400)
        return st_new(ST_UNAVAILABLE, "the connection to %s broke: %s", addr,
                      curl_easy_strerror(rc));
    return ST_OK;
}

status_t http_call(const char *addr, const struct http_request *q, struct http_reply *out) {
    struct transfer t = {.q = q, .r = out};
    FILE *file = NULL;
    *out = (struct http_reply){.json_bytes = -1};
    if (q->body_file && !(file = fopen(q->body_file, "rbe"))) return st_errno(errno, q->body_file);
    CURL *c = curl_easy_init();
    status_t st = c ? perform(c, addr, q, &t, file) : st_oom();
    if (c) curl_easy_cleanup(c);
    if (file) fclose(file);
    strbuf_done(&t.line);
    if (st) http_reply_done(out);
    return st;
}
void http_reply_done(struct http_reply *r) {
    strbuf_done(&r->body);
}
