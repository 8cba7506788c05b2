// SPDX-License-Identifier: Apache-2.0
// The asynchronous calls of libhlod, from the installed headers and library alone: callbacks,
// queue and descriptor, cancellation, events, threads, close with calls under way. argv: address, a
// scripted model (tests/api/fake_worker.c: a run adds one to every number).
#include <hlod_async.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
#define CHECK(what) (void)((what) || (failures++, printf("    line %d: %s\n", __LINE__, #what)))

static const char *addr, *model_path;
static struct hlod_async *q;
static char model[65]; // its digest

struct work {
    float x[4];
    int64_t dims[2];
    struct hlod_tensor in;
    _Atomic int done;
    bool good;
};
static void work_init(struct work *w, int n) {
    memset(w, 0, sizeof *w);
    w->dims[0] = 1;
    w->dims[1] = 4;
    for (int k = 0; k < 4; k++)
        w->x[k] = (float)(n + k);
    w->in = (struct hlod_tensor){"x", "f32", 2, w->dims, w->x, sizeof w->x};
}
static bool right(const struct work *w, const struct hlod_result *r) {
    if (!r || r->n_outputs != 1 || r->outputs[0].size_bytes != sizeof w->x) return false;
    for (int k = 0; k < 4; k++)
        if (((const float *)r->outputs[0].data)[k] != w->x[k] + 1) return false;
    return true;
}
static void on_done(void *ctx, struct hlod_call *c) {
    struct work *w = ctx;
    struct hlod_result *r = hlod_call_take_result(c);
    w->good = right(w, r) && hlod_call_error(c)->code == HLOD_OK;
    hlod_result_free(r);
    hlod_call_free(c);
    w->done++;
}

static void compile(void) {
    const int64_t dims[2] = {1, 4};
    const struct hlod_shape shape = {"x", 2, dims};
    struct hlod_compile_options o = HLOD_COMPILE_OPTIONS;
    o.shapes = &shape;
    o.n_shapes = 1;
    struct hlod_call *c = NULL;
    CHECK(hlod_compile_file_start(q, model_path, &o, NULL, NULL, &c) == HLOD_OK);
    if (!c) return;
    CHECK(hlod_call_wait(c, 20000));
    CHECK(hlod_async_next(q, 1000) == c && !hlod_async_next(q, 0));
    struct hlod_executable *e = hlod_call_take_executable(c);
    CHECK(e && strlen(e->model) == 64 && !hlod_call_take_result(c));
    if (e) memcpy(model, e->model, sizeof model);
    hlod_executable_free(e);
    hlod_call_free(c);
    CHECK(hlod_compile_file_start(q, "/nonexistent", NULL, NULL, NULL, &c) == HLOD_NOT_FOUND);
}

static void callbacks(void) {
    enum { N = 200 };
    struct work *w = calloc(N, sizeof *w);
    if (!w) abort();
    for (int i = 0; i < N; i++) {
        work_init(&w[i], i);
        CHECK(hlod_run_start(q, model, &w[i].in, 1, NULL, on_done, &w[i], NULL) == HLOD_OK);
    }
    int ended = 0;
    for (int tries = 0; ended < N && tries < 2000; tries++) {
        poll(NULL, 0, 10);
        ended = 0;
        for (int i = 0; i < N; i++)
            ended += w[i].done;
    }
    CHECK(ended == N);
    int good = 0;
    for (int i = 0; i < N; i++)
        good += w[i].good && w[i].done == 1;
    CHECK(good == N);
    free(w);
}

static void queue(void) {
    enum { N = 100 };
    struct work *w = calloc(N, sizeof *w);
    if (!w) abort();
    for (int i = 0; i < N; i++) {
        work_init(&w[i], 7 * i);
        CHECK(hlod_run_start(q, model, &w[i].in, 1, NULL, NULL, &w[i], NULL) == HLOD_OK);
    }
    int good = 0;
    for (int i = 0; i < N; i++) {
        struct pollfd p = {.fd = hlod_async_fd(q), .events = POLLIN};
        CHECK(poll(&p, 1, 20000) == 1);
        struct hlod_call *c = hlod_async_next(q, 0);
        CHECK(c != NULL);
        if (!c) break;
        struct work *x = hlod_call_ctx(c);
        struct hlod_result *r = hlod_call_take_result(c);
        good += right(x, r) && !x->done++;
        hlod_result_free(r);
        hlod_call_free(c);
    }
    CHECK(good == N);
    struct pollfd p = {.fd = hlod_async_fd(q), .events = POLLIN};
    CHECK(poll(&p, 1, 0) == 0 && !hlod_async_next(q, 0));
    free(w);
}

struct starter {
    struct work w[50];
};
static void *start_some(void *arg) {
    struct starter *s = arg;
    for (int i = 0; i < 50; i++) {
        work_init(&s->w[i], i);
        struct hlod_call *c;
        if (hlod_run_start(q, model, &s->w[i].in, 1, NULL, NULL, &s->w[i], &c)) continue;
        if (i % 5 == 0) hlod_call_cancel(c);
        if (!hlod_call_wait(c, 20000)) continue;
        struct hlod_result *r = hlod_call_take_result(c);
        s->w[i].good =
            right(&s->w[i], r) || (i % 5 == 0 && hlod_call_error(c)->code == HLOD_CANCELLED);
        hlod_result_free(r);
        hlod_call_free(c);
    }
    return NULL;
}
static void threads(void) {
    enum { N = 4 };
    struct starter *s = calloc(N, sizeof *s);
    pthread_t t[N];
    if (!s) abort();
    for (int i = 0; i < N; i++)
        pthread_create(&t[i], NULL, start_some, &s[i]);
    int good = 0;
    for (int i = 0; i < N; i++) {
        pthread_join(t[i], NULL);
        for (int k = 0; k < 50; k++)
            good += s[i].w[k].good;
    }
    CHECK(good == N * 50);
    free(s);
}

static bool note(void *ctx, const struct hlod_event *e) {
    int *seen = ctx;
    seen[e->kind]++;
    return e->kind != HLOD_EVENT_RUNNING;
}
static void cancel_and_errors(void) {
    static const char slow[] = "FAKE\nin x f32 4\nout y f32 4\nrun_ms 20000\n";
    struct hlod_call *c = NULL;
    CHECK(hlod_compile_start(q, slow, sizeof slow - 1, NULL, NULL, NULL, &c) == HLOD_OK);
    if (!c || !hlod_call_wait(c, 20000)) return;
    struct hlod_executable *e = hlod_call_take_executable(c);
    hlod_call_free(c);
    CHECK(e != NULL);
    if (!e) return;
    struct work w;
    work_init(&w, 1);
    w.dims[0] = 4;
    w.in.rank = 1;
    CHECK(hlod_run_start(q, e->digest, &w.in, 1, NULL, NULL, NULL, &c) == HLOD_OK);
    CHECK(!hlod_call_wait(c, 100));
    hlod_call_cancel(c);
    hlod_call_cancel(c);
    CHECK(hlod_call_wait(c, 5000) && hlod_call_error(c)->code == HLOD_CANCELLED);
    CHECK(!hlod_call_take_result(c));
    hlod_call_free(c);
    int seen[16] = {0}; // an event breaks it off
    struct hlod_run_options o = HLOD_RUN_OPTIONS;
    o.on_event = note;
    o.ctx = seen;
    CHECK(hlod_run_start(q, e->digest, &w.in, 1, &o, NULL, NULL, &c) == HLOD_OK);
    CHECK(hlod_call_wait(c, 10000) && hlod_call_error(c)->code == HLOD_CANCELLED);
    CHECK(seen[HLOD_EVENT_QUEUED] == 1 && seen[HLOD_EVENT_RUNNING] == 1);
    hlod_call_free(c);
    o = (struct hlod_run_options)HLOD_RUN_OPTIONS;
    o.timeout_ms = 100;
    CHECK(hlod_run_start(q, e->digest, &w.in, 1, &o, NULL, NULL, &c) == HLOD_OK);
    CHECK(hlod_call_wait(c, 10000) && hlod_call_error(c)->code == HLOD_DEADLINE_EXCEEDED);
    hlod_call_free(c);
    CHECK(hlod_run_start(q, "xyz", NULL, 0, NULL, NULL, NULL, &c) == HLOD_OK);
    CHECK(hlod_call_wait(c, 10000) && hlod_call_error(c)->code == HLOD_NOT_FOUND);
    CHECK(!strcmp(hlod_call_error(c)->reason, "MODEL_NOT_FOUND"));
    hlod_call_free(c);
    while ((c = hlod_async_next(q, 0))) // all freed, none left here
        CHECK(c == NULL);
    hlod_executable_free(e);
}

static void on_any(void *ctx, struct hlod_call *c) {
    (void)c; // close frees it
    ++*(_Atomic int *)ctx;
}
static void closing(void) {
    struct hlod_async *other = NULL;
    _Atomic int ended = 0;
    struct work w[20];
    CHECK(hlod_async_open("not an address", NULL, &other) == HLOD_INVALID_ARGUMENT && !other);
    CHECK(hlod_async_open(addr, NULL, &other) == HLOD_OK);
    for (int i = 0; i < 20; i++) {
        work_init(&w[i], i);
        CHECK(hlod_run_start(other, model, &w[i].in, 1, NULL, i % 2 ? on_any : NULL, &ended,
                             NULL) == HLOD_OK);
    }
    hlod_async_close(other);
    CHECK(ended == 10);
    hlod_async_close(NULL);
    bool grpc = !strncmp(addr, "grpc", 4);
    CHECK(hlod_async_open(grpc ? "grpc://127.0.0.1:1" : "127.0.0.1:1", NULL, &other) == HLOD_OK);
    struct hlod_call *c;
    CHECK(hlod_run_start(other, model, &w[0].in, 1, NULL, NULL, NULL, &c) == HLOD_OK);
    CHECK(hlod_call_wait(c, 30000) && hlod_call_error(c)->code == HLOD_UNAVAILABLE);
    hlod_async_close(other);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    addr = argv[1];
    model_path = argv[2];
    if (hlod_async_open(addr, NULL, &q)) return 1;
    static const struct {
        const char *name;
        void (*fn)(void);
    } tests[] = {{"compile", compile},
                 {"callbacks", callbacks},
                 {"queue", queue},
                 {"threads", threads},
                 {"cancel and errors", cancel_and_errors},
                 {"close", closing}};
    int bad = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        failures = 0;
        tests[i].fn();
        printf("%s libhlod async %s\n", failures ? "FAIL" : "PASS", tests[i].name);
        fflush(stdout);
        bad += failures;
    }
    hlod_async_close(q);
    return bad ? 1 : 0;
}
