// SPDX-License-Identifier: Apache-2.0
// One transfer at a time over a connection that is kept. A collector that answers nothing costs the
// time that a request has, one that floods what OTLP_MOST_ANSWER lets through; a redirect is an
// answer like any other, so that nothing goes where no option says.
#include "server/otlp/otlp_http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/str.h"
#include "scheduler/remote/pem.h"
#include "server/http/coding.h"

enum { LOOK_MS = 100, MOST_RETRY_S = 1000000 };
struct sender {
    const struct otlp_target *target;
    CURL *curl;
    CURLM *multi;
    struct curl_slist *headers;
    struct strbuf packed; // the body, compressed
    size_t n;             // of the answer
    bool too_much;
    uint8_t answer[OTLP_MOST_ANSWER];
};

// ---- what is set once

static size_t on_answer(char *p, size_t size, size_t count, void *ctx) {
    struct sender *s = ctx;
    size_t n = size * count;
    s->too_much = n > sizeof s->answer - s->n;
    if (s->too_much) return 0;
    memcpy(s->answer + s->n, p, n);
    s->n += n;
    return n;
}
// Descriptors are not for the workers that are started meanwhile.
static curl_socket_t on_socket(UNUSED void *ctx, UNUSED curlsocktype purpose,
                               struct curl_sockaddr *a) {
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static status_t set_blob(CURL *c, CURLoption option, const char *path) {
    struct arena a = {0};
    const char *text = NULL;
    status_t st = ST_OK;
    if (*path)
        st = pem_read(&a, path, false, &text);
    else if (option == CURLOPT_CAINFO_BLOB)
        st = pem_of_system(&a, &text);
    struct curl_blob b = {(void *)(uintptr_t)text, text ? strlen(text) : 0, CURL_BLOB_COPY};
    if (!st && text && curl_easy_setopt(c, option, &b))
        st = st_invalid("%s: libcurl does not take it", path);
    arena_done(&a);
    return st;
}
static status_t set_tls(CURL *c, const struct otlp_target *t) {
    if (!t->tls) return ST_OK;
    RETURN_IF_ERR(set_blob(c, CURLOPT_CAINFO_BLOB, t->ca));
    if (!*t->cert || !*t->key) return ST_OK;
    RETURN_IF_ERR(set_blob(c, CURLOPT_SSLCERT_BLOB, t->cert));
    return set_blob(c, CURLOPT_SSLKEY_BLOB, t->key);
}
static void set_headers(struct sender *s, const struct otlp_target *t) {
    struct strbuf b = {0};
    s->headers = curl_slist_append(NULL, "Content-Type: application/x-protobuf");
    s->headers = curl_slist_append(s->headers, "Expect:"); // or it may wait for a 100
    if (t->gzip) s->headers = curl_slist_append(s->headers, "Content-Encoding: gzip");
    for (size_t k = 0; k < t->n_headers; k++) {
        const struct otlp_attribute *h = &t->headers[k];
        strbuf_clear(&b);
        // With a colon an empty one would be none.
        strbuf_printf(&b, *h->value ? "%s: %s" : "%s;", h->key, h->value);
        s->headers = curl_slist_append(s->headers, strbuf_cstr(&b));
    }
    strbuf_done(&b);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
}
static void set_all(struct sender *s, const struct otlp_target *t) {
    CURL *c = s->curl;
    curl_easy_setopt(c, CURLOPT_URL, t->url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, OTLP_AGENT);
    curl_easy_setopt(c, CURLOPT_POST, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L); // the end waits for no look-up of a name
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, s);
    set_headers(s, t);
}

static void close_sender(void *x) {
    struct sender *s = x;
    if (!s) return;
    if (s->curl) curl_easy_cleanup(s->curl);
    if (s->multi) curl_multi_cleanup(s->multi);
    curl_slist_free_all(s->headers);
    strbuf_done(&s->packed);
    free(s);
}
static status_t open_sender(const struct otlp_target *t, UNUSED enum otlp_signal signal,
                            void **out) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) return st_internal("cannot start libcurl");
    struct sender *s = arena_must_calloc(1, sizeof *s);
    s->target = t;
    s->curl = curl_easy_init();
    s->multi = curl_multi_init();
    status_t st = s->curl && s->multi ? set_tls(s->curl, t) : st_oom();
    if (st) {
        close_sender(s);
        return st;
    }
    set_all(s, t);
    *out = s;
    return ST_OK;
}

// ---- one request

// False: its time was over, or it could not begin; what libcurl says of it is *out.
static bool transfer(struct sender *s, int64_t (*until)(void *ctx), void *ctx, CURLcode *out) {
    int running = 1, left;
    bool ended = false;
    *out = CURLE_OPERATION_TIMEDOUT;
    if (curl_multi_add_handle(s->multi, s->curl) != CURLM_OK) *out = CURLE_OUT_OF_MEMORY;
    while (*out == CURLE_OPERATION_TIMEDOUT && !ended && clock_ns() < until(ctx)) {
        curl_multi_perform(s->multi, &running);
        for (CURLMsg *m; (m = curl_multi_info_read(s->multi, &left));) {
            ended = m->msg == CURLMSG_DONE;
            *out = m->data.result;
        }
        if (!ended) curl_multi_poll(s->multi, NULL, 0, LOOK_MS, NULL);
    }
    curl_multi_remove_handle(s->multi, s->curl); // under way: its connection is closed
    return ended;
}
static void read_answer(struct sender *s, CURLcode rc, struct otlp_answer *out) {
    long code = 0;
    curl_off_t seconds = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(s->curl, CURLINFO_RETRY_AFTER, &seconds); // a date too, as so long from now
    bool whole = rc == CURLE_OK || s->too_much;
    if (!whole || !code) {
        *out = (struct otlp_answer){.how = OTLP_AGAIN};
        snprintf(out->why, sizeof out->why, "%s",
                 rc ? curl_easy_strerror(rc) : "it does not answer by HTTP");
        return;
    }
    otlp_answer_http((int)code, (struct span){s->answer, s->n}, out);
    if (out->how == OTLP_AGAIN && seconds > 0)
        out->retry_ms = (seconds < MOST_RETRY_S ? seconds : MOST_RETRY_S) * 1000;
    if (out->how != OTLP_TAKEN || !s->too_much) return;
    *out = (struct otlp_answer){.how = OTLP_REFUSED};
    snprintf(out->why, sizeof out->why, "it answers with more than %d bytes", OTLP_MOST_ANSWER);
}
static void send_request(void *x, struct span body, int64_t (*until)(void *ctx), void *ctx,
                         struct otlp_answer *out) {
    struct sender *s = x;
    CURLcode rc;
    if (s->target->gzip) {
        strbuf_clear(&s->packed);
        coding_do(CODING_GZIP, &body, 1, &s->packed);
        body = (struct span){(const uint8_t *)s->packed.p, s->packed.n};
    }
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, body.p); // borrowed
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
    s->n = 0;
    s->too_much = false;
    if (transfer(s, until, ctx, &rc)) {
        read_answer(s, rc, out);
        return;
    }
    *out = (struct otlp_answer){.how = OTLP_AGAIN};
    snprintf(out->why, sizeof out->why, "%s",
             rc == CURLE_OPERATION_TIMEDOUT ? "it did not answer in time" : curl_easy_strerror(rc));
}

const struct otlp_transport otlp_http = {open_sender, send_request, close_sender};
