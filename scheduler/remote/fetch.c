// SPDX-License-Identifier: Apache-2.0
// The loop hands a fetch to the thread by a list under a lock, and gets it back by another; in
// between it is the thread's alone, but for `cancelled`.
//
//   fetch_start -> new list -> thread: multi handle ... -> finished list -> loop: done, freed
#include "scheduler/remote/fetch.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "scheduler/loop.h"

enum { ERROR_BYTES = 64 << 10, FIRST_BYTES = 64 << 10 };
struct fetch {
    struct fetch *next; // in one of the lists
    struct fetcher *f;
    struct arena arena; // copies of the request
    struct fetch_request q;
    void (*done)(void *ctx, struct fetch_reply *r);
    void *ctx;
    atomic_bool cancelled;
    // The thread's.
    CURL *curl;
    struct curl_slist *headers, *connect_to;
    uint8_t *body;
    size_t n, cap, at; // at: of what is sent
    size_t told;       // of a body that is told as it comes
    bool too_much;
    struct fetch *next_arrived; // under lock, as are body, n and cap of such a body
    bool arrived;
    struct fetch_reply r;
};
struct fetcher {
    struct loop *loop;
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    struct fetch *fresh, *finished; // under lock, newest first
    struct fetch *arrived;          // the same: bytes have come that are to be told
    bool stop, told;                // under lock; told: the loop will look at `finished`
    bool running;
    struct fetch *under_way; // the thread's: all that it has
};

// ---- credentials

struct auth { // what a fetch_auth is the head of
    struct fetch_auth is;
    atomic_int refs;
    struct arena arena;
};
static struct auth *of_auth(struct fetch_auth *x) {
    return (struct auth *)(void *)x;
}
struct fetch_auth *fetch_auth_new(const struct fetch_auth *what) {
    struct auth *x = arena_must_calloc(1, sizeof *x);
    x->refs = 1;
    x->is = *what;
    const char **all[] = {&x->is.bearer,    &x->is.ca,    &x->is.cert,      &x->is.key,
                          &x->is.s3_region, &x->is.s3_id, &x->is.s3_secret, &x->is.s3_session};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (*all[i]) *all[i] = arena_strdup(&x->arena, *all[i]);
    return &x->is;
}
struct fetch_auth *fetch_auth_ref(struct fetch_auth *x) {
    if (x) atomic_fetch_add_explicit(&of_auth(x)->refs, 1, memory_order_relaxed);
    return x;
}
struct fetch_auth *fetch_auth_unref(struct fetch_auth *x) {
    if (!x || atomic_fetch_sub_explicit(&of_auth(x)->refs, 1, memory_order_acq_rel) > 1)
        return NULL;
    arena_done(&of_auth(x)->arena);
    free(of_auth(x));
    return NULL;
}

// ---- one transfer, on the thread

static bool hold(struct fetch *x, const char *p, size_t bytes) {
    if (x->n + bytes > x->cap) { // as it comes: what was announced is only said
        size_t cap = x->cap ? x->cap : FIRST_BYTES;
        while (cap < x->n + bytes)
            cap *= 2;
        uint8_t *more = realloc(x->body, cap);
        if (!more) return false;
        x->body = more;
        x->cap = cap;
    }
    memcpy(x->body + x->n, p, bytes);
    x->n += bytes;
    return true;
}
static void look_at_finished(void *arg);
static bool tell(struct fetch *x, const char *p, size_t bytes) {
    struct fetcher *f = x->f;
    pthread_mutex_lock(&f->lock);
    bool held = hold(x, p, bytes), post = held && !f->told && !f->stop;
    if (held && !x->arrived) {
        x->arrived = true;
        x->next_arrived = f->arrived;
        f->arrived = x;
    }
    f->told = f->told || post;
    pthread_mutex_unlock(&f->lock);
    x->told += bytes;
    if (post) loop_post(f->loop, look_at_finished, f);
    return held;
}
static size_t on_body(char *p, size_t size, size_t n, void *ctx) {
    struct fetch *x = ctx;
    size_t bytes = size * n, most = (size_t)x->q.max_bytes;
    long code = 0;
    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &code);
    bool tells = x->q.data && code == 200;
    if ((code < 200 || code > 299) && most > ERROR_BYTES) most = ERROR_BYTES;
    if (atomic_load(&x->cancelled) || bytes > most - (tells ? x->told : x->n)) {
        x->too_much = !atomic_load(&x->cancelled);
        return 0;
    }
    return (tells ? tell : hold)(x, p, bytes) ? bytes : 0;
}
static size_t on_read(char *p, size_t size, size_t n, void *ctx) {
    struct fetch *x = ctx;
    size_t left = x->q.body.bytes.n - x->at, k = size * n < left ? size * n : left;
    if (atomic_load(&x->cancelled)) return CURL_READFUNC_ABORT;
    if (k) memcpy(p, x->q.body.bytes.p + x->at, k);
    x->at += k;
    return k;
}
static int on_seek(void *ctx, curl_off_t offset, int origin) {
    struct fetch *x = ctx;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > x->q.body.bytes.n)
        return CURL_SEEKFUNC_CANTSEEK;
    x->at = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}
static bool header_is(struct str *line, const char *name) {
    size_t n = strlen(name);
    if (line->n < n || strncasecmp(line->p, name, n) != 0) return false;
    *line = str_trim((struct str){line->p + n, line->n - n});
    return true;
}
static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    struct fetch *x = ctx;
    struct str line = {p, size * n};
    int64_t v;
    if (header_is(&line, "retry-after:") && str_to_i64(line, &v) && v >= 0 && v < 1 << 30)
        x->r.retry_after_ms = v * 1000;
    return size * n;
}
// Descriptors are not for the workers that are started meanwhile.
static curl_socket_t on_open(UNUSED void *ctx, UNUSED curlsocktype purpose,
                             struct curl_sockaddr *a) {
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static void set_blob(CURL *c, CURLoption option, const char *text) {
    struct curl_blob b = {(void *)(uintptr_t)text, text ? strlen(text) : 0, CURL_BLOB_COPY};
    if (text) curl_easy_setopt(c, option, &b);
}
static void set_auth(struct fetch *x) {
    const struct fetch_auth *a = x->q.auth;
    CURL *c = x->curl;
    if (!a) return;
    if (a->bearer) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, a->bearer);
    }
    set_blob(c, CURLOPT_CAINFO_BLOB, a->ca);
    set_blob(c, CURLOPT_SSLCERT_BLOB, a->cert);
    set_blob(c, CURLOPT_SSLKEY_BLOB, a->key);
    if (!a->s3_id) return;
    char how[200];
    snprintf(how, sizeof how, "aws:amz:%.150s:s3", a->s3_region);
    curl_easy_setopt(c, CURLOPT_AWS_SIGV4, how);
    curl_easy_setopt(c, CURLOPT_USERNAME, a->s3_id);
    curl_easy_setopt(c, CURLOPT_PASSWORD, a->s3_secret);
    if (a->s3_session) {
        struct strbuf b = {0};
        strbuf_printf(&b, "x-amz-security-token:%s", a->s3_session);
        x->headers = curl_slist_append(x->headers, strbuf_cstr(&b));
        strbuf_done(&b);
    }
}
static void set_body(struct fetch *x) {
    CURL *c = x->curl;
    size_t n = x->q.body.bytes.n;
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, x->q.method);
    if (!n && strcmp(x->q.method, "PUT") && strcmp(x->q.method, "POST")) return;
    curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)n);
    curl_easy_setopt(c, CURLOPT_READFUNCTION, on_read);
    curl_easy_setopt(c, CURLOPT_READDATA, x);
    curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(c, CURLOPT_SEEKDATA, x);
}
static void set_bounds(struct fetch *x) {
    CURL *c = x->curl;
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)x->q.connect_ms);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)x->q.total_ms);
    curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)x->q.max_bytes);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_open);
    if (!x->q.proxy) curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
}
static bool begin(struct fetch *x) {
    CURL *c = x->curl = curl_easy_init();
    if (!c) return false;
    // Where libcurl signs, it would sign the absence of a header too; then it may wait for a 100.
    bool signs = x->q.auth && x->q.auth->s3_id;
    if (!signs) x->headers = curl_slist_append(NULL, "Expect:");
    curl_easy_setopt(c, CURLOPT_EXPECT_100_TIMEOUT_MS, 100L);
    for (int k = 0; x->q.headers && x->q.headers[k]; k++)
        x->headers = curl_slist_append(x->headers, x->q.headers[k]);
    set_auth(x);
    set_body(x);
    set_bounds(x);

    curl_easy_setopt(c, CURLOPT_URL, x->q.url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "hlod/" HLOD_VERSION);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, x->headers);
    curl_easy_setopt(c, CURLOPT_PRIVATE, x);
    if (x->q.address) {
        struct strbuf b = {0};
        strbuf_printf(&b, "::%s", x->q.address); // of every host and port
        x->connect_to = curl_slist_append(NULL, strbuf_cstr(&b));
        curl_easy_setopt(c, CURLOPT_CONNECT_TO, x->connect_to);
        strbuf_done(&b);
    }
    return curl_multi_add_handle(x->f->multi, c) == CURLM_OK;
}

MUST_CHECK static status_t outcome(const struct fetch *x, CURLcode rc) {
    if (rc == CURLE_OK) return ST_OK;
    if (x->too_much || rc == CURLE_FILESIZE_EXCEEDED)
        return st_exhausted("it sends more than %lld bytes", (long long)x->q.max_bytes);
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_CACERT_BADFILE ||
        rc == CURLE_SSL_CONNECT_ERROR || rc == CURLE_SSL_CERTPROBLEM)
        return st_new(ST_UNAUTHENTICATED, "TLS: %s", curl_easy_strerror(rc));
    return st_new(ST_UNAVAILABLE, "%s", curl_easy_strerror(rc));
}

// ---- the thread

static void unlink_fetch(struct fetch **list, struct fetch *x) {
    for (struct fetch **at = list; *at; at = &(*at)->next)
        if (*at == x) {
            *at = x->next;
            break;
        }
}
static void to_loop(struct fetcher *f, struct fetch *x);
static void end(struct fetch *x, CURLcode rc) {
    struct fetcher *f = x->f;
    long code = 0;
    if (x->curl) {
        curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &code);
        curl_multi_remove_handle(f->multi, x->curl);
        curl_easy_cleanup(x->curl);
        x->curl = NULL;
    }
    curl_slist_free_all(x->headers);
    curl_slist_free_all(x->connect_to);
    x->headers = x->connect_to = NULL;
    bool refusal = code != 0 && (code < 200 || code > 299);
    x->r.st = refusal && x->too_much ? ST_OK : outcome(x, rc);
    x->r.code = (int)code;
    if (!x->told) x->r.body = (struct span){x->body, x->n};
    x->r.sent = (int64_t)x->at;
    unlink_fetch(&f->under_way, x);
    to_loop(f, x);
}

// False: it is to stop.
static bool take_fresh(struct fetcher *f) {
    pthread_mutex_lock(&f->lock);
    struct fetch *x = f->fresh;
    bool stop = f->stop;
    f->fresh = NULL;
    pthread_mutex_unlock(&f->lock);
    while (x) {
        struct fetch *next = x->next;
        x->next = f->under_way;
        f->under_way = x;
        if (!begin(x)) end(x, CURLE_OUT_OF_MEMORY);
        x = next;
    }
    return !stop;
}
static void end_cancelled(struct fetcher *f) {
    for (struct fetch *x = f->under_way, *next; x; x = next) {
        next = x->next;
        if (atomic_load(&x->cancelled)) end(x, CURLE_ABORTED_BY_CALLBACK);
    }
}
static void *work(void *arg) {
    struct fetcher *f = arg;
    int running, left;
    while (take_fresh(f)) {
        end_cancelled(f);
        curl_multi_perform(f->multi, &running);
        for (CURLMsg *m; (m = curl_multi_info_read(f->multi, &left));) {
            struct fetch *x;
            if (m->msg != CURLMSG_DONE) continue;
            CURLcode rc = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
            end(x, rc);
        }
        curl_multi_poll(f->multi, NULL, 0, 60000, NULL);
    }
    while (f->under_way)
        end(f->under_way, CURLE_ABORTED_BY_CALLBACK);
    return NULL;
}

// ---- back on the loop

static void free_fetch(struct fetch *x) {
    if (x->q.body.free) x->q.body.free(x->q.body.owner);
    fetch_auth_unref(x->q.auth);
    st_drop(x->r.st);
    free(x->body);
    arena_done(&x->arena);
    free(x);
}
static void tell_arrived(struct fetcher *f, struct fetch *x) {
    for (struct fetch *next; x; x = next) {
        pthread_mutex_lock(&f->lock);
        struct span bytes = {x->body, x->n};
        next = x->next_arrived;
        x->arrived = false;
        x->body = NULL;
        x->n = x->cap = 0;
        pthread_mutex_unlock(&f->lock);
        if (!atomic_load(&x->cancelled)) x->q.data(x->ctx, bytes);
        free((void *)(uintptr_t)bytes.p);
    }
}
static void look_at_finished(void *arg) {
    struct fetcher *f = arg;
    pthread_mutex_lock(&f->lock);
    struct fetch *x = f->stop ? NULL : f->finished, *arrived = f->stop ? NULL : f->arrived;
    struct fetch *oldest = NULL;
    if (!f->stop) f->finished = f->arrived = NULL;
    f->told = false;
    pthread_mutex_unlock(&f->lock);
    tell_arrived(f, arrived);
    while (x) {
        struct fetch *next = x->next;
        x->next = oldest;
        oldest = x;
        x = next;
    }
    for (; oldest; oldest = x) {
        x = oldest->next;
        if (!atomic_load(&oldest->cancelled)) {
            oldest->done(oldest->ctx, &oldest->r);
            if (!oldest->r.body.p) oldest->body = NULL; // taken
        }
        free_fetch(oldest);
    }
}
static void to_loop(struct fetcher *f, struct fetch *x) {
    pthread_mutex_lock(&f->lock);
    bool tell = !f->told && !f->stop;
    x->next = f->finished;
    f->finished = x;
    f->told = f->told || tell;
    pthread_mutex_unlock(&f->lock);
    if (tell) loop_post(f->loop, look_at_finished, f);
}

// ---- its life

status_t fetcher_new(struct loop *l, struct fetcher **out) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) return st_internal("cannot start libcurl");
    struct fetcher *f = arena_must_calloc(1, sizeof *f);
    f->loop = l;
    pthread_mutex_init(&f->lock, NULL);
    f->multi = curl_multi_init();
    f->running = f->multi && !pthread_create(&f->thread, NULL, work, f);
    if (!f->running) {
        fetcher_free(f);
        return st_exhausted("cannot start a thread for transfers");
    }
    *out = f;
    return ST_OK;
}
void fetcher_stop(struct fetcher *f) {
    if (!f || !f->running) return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    curl_multi_wakeup(f->multi);
    pthread_join(f->thread, NULL);
    f->running = false;
    for (struct fetch *x = f->finished, *next; x; x = next) {
        next = x->next;
        free_fetch(x);
    }
    f->finished = NULL;
}
void fetcher_free(struct fetcher *f) {
    if (!f) return;
    fetcher_stop(f);
    if (f->multi) curl_multi_cleanup(f->multi);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void fetch_start(struct fetcher *f, const struct fetch_request *q,
                 void (*done)(void *ctx, struct fetch_reply *r), void *ctx, struct fetch **out) {
    struct fetch *x = arena_must_calloc(1, sizeof *x);
    size_t n = 0;
    x->f = f;
    x->q = *q;
    x->done = done;
    x->ctx = ctx;
    x->q.method = arena_strdup(&x->arena, q->method);
    x->q.url = arena_strdup(&x->arena, q->url);
    if (q->address) x->q.address = arena_strdup(&x->arena, q->address);
    fetch_auth_ref(q->auth);
    while (q->headers && q->headers[n])
        n++;
    const char **headers = arena_zarray(&x->arena, const char *, n + 1);
    for (size_t k = 0; k < n; k++)
        headers[k] = arena_strdup(&x->arena, q->headers[k]);
    x->q.headers = headers;

    pthread_mutex_lock(&f->lock);
    x->next = f->fresh;
    f->fresh = x;
    pthread_mutex_unlock(&f->lock);
    curl_multi_wakeup(f->multi);
    *out = x;
}
void fetch_cancel(struct fetch *x) {
    if (!x) return;
    atomic_store(&x->cancelled, true);
    curl_multi_wakeup(x->f->multi);
}
