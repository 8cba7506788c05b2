// SPDX-License-Identifier: Apache-2.0
// One thread turns the transport. Over HTTP it alone touches the transfers, so starts and
// cancellations wait for it in the inbox; gRPC takes both from any thread.
//
//   start -> (HTTP: inbox ->) under way -> end: result or error -> done(), or the ended list
//
// Calls are linked in q->calls from start to free, under the mutex; q->open counts those not ended.
#include "client/hlod_async.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vec.h"
#include "client/lib/async.h"

enum call_state { C_NEW, C_UNDER_WAY, C_ENDED };
struct hlod_call {
    struct hlod_async *q;
    struct hlod_call *prev, *next; // of q->calls
    struct hlod_call *later;       // of the inbox, or of the ended
    struct arena arena;
    struct wire_request request;
    struct wire_reader reader;
    hlod_done_fn done;
    void *ctx;
    wire_finish finish;
    void *result;        // what finish made
    struct hlod outcome; // its error
    // Under q->mutex.
    enum call_state state;
    bool cancelled, queued, in_callback, free_later;
    struct grpc_flight *grpc;
    // The library's thread.
    struct http_flight *http;
    const char *headers[2];
};
struct hlod_async {
    struct http_client *http; // one of the two
    struct grpc_client *grpc;
    struct http_flights *flights;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended_one;
    struct hlod_call *calls, *inbox, **inbox_end, *ended, **ended_end;
    int open, fd;
    bool closing;
};

// ---- the end of a call

static void free_call(struct hlod_call *c) { // unlinked
    wire_result_free(c->result);
    arena_done(&c->outcome.error_arena);
    arena_done(&c->arena);
    free(c);
}
static void unlink_call(struct hlod_call *c) {
    *(c->prev ? &c->prev->next : &c->q->calls) = c->next;
    if (c->next) c->next->prev = c->prev;
}

// The lists through `later`.
static void append_to(struct hlod_call ***end, struct hlod_call *c) {
    c->later = NULL;
    **end = c;
    *end = &c->later;
}
static bool remove_from(struct hlod_call **list, struct hlod_call ***end, struct hlod_call *c) {
    struct hlod_call **at = list;
    while (*at && *at != c)
        at = &(*at)->later;
    if (!*at) return false;
    *at = c->later;
    if (*end == &c->later) *end = at;
    return true;
}

static void call_ended(struct hlod_call *c, status_t st, const struct http_reply *reply) {
    struct hlod_async *q = c->q;
    hlod_done_fn done = c->done;

    st = wire_reader_end(&c->reader, st, reply);
    if (!st) st = c->finish(&c->reader, &c->result);
    c->outcome.answered = c->reader.refused;
    wire_end(&c->outcome, st);

    pthread_mutex_lock(&q->mutex);
    if (c->queued) remove_from(&q->inbox, &q->inbox_end, c); // its cancellation came too late
    c->queued = false;
    c->state = C_ENDED;
    c->grpc = NULL;
    c->http = NULL;
    c->in_callback = done != NULL;
    if (!done) { // from the unlock on it may be freed
        append_to(&q->ended_end, c);
        (void)!write(q->fd, &(uint64_t){1}, sizeof(uint64_t));
        q->open--;
    }
    pthread_cond_broadcast(&q->ended_one);
    pthread_mutex_unlock(&q->mutex);
    if (!done) return;

    done(c->ctx, c);
    pthread_mutex_lock(&q->mutex);
    q->open--;
    c->in_callback = false;
    bool freed = c->free_later;
    if (freed) unlink_call(c);
    pthread_cond_broadcast(&q->ended_one);
    pthread_mutex_unlock(&q->mutex);
    if (freed) free_call(c);
}

// ---- the library's thread

static bool on_grpc_message(void *ctx, struct span bytes) {
    return wire_message(&((struct hlod_call *)ctx)->reader, bytes);
}
static void on_grpc_end(void *ctx, status_t st) {
    struct hlod_call *c = ctx;
    wire_note_status(&c->reader, st);
    if (st_code(st) == ST_CANCELLED) { // in the words of the other transport
        st_drop(st);
        st = st_new(ST_CANCELLED, "cancelled by the caller");
    }
    call_ended(c, st, NULL);
}
static void *turn_grpc(void *arg) {
    struct hlod_async *q = arg;
    while (grpc_client_turn(q->grpc, false))
        ;
    return NULL;
}

static void on_http_end(void *ctx, status_t st, const struct http_reply *r) {
    call_ended(ctx, st, st ? NULL : r);
}
// What others asked for since the last turn. False: close. A call in hand cannot end but by this
// thread; its callbacks may fill the inbox again.
static bool take_inbox(struct hlod_async *q) {
    VEC(struct hlod_call *) taken = {0};
    pthread_mutex_lock(&q->mutex);
    while (q->inbox) {
        struct hlod_call *c = q->inbox;
        remove_from(&q->inbox, &q->inbox_end, c);
        c->queued = false;
        vec_push(&taken, c);
    }
    bool go_on = !q->closing || q->open;
    pthread_mutex_unlock(&q->mutex);
    for (size_t i = 0; i < taken.n; i++) {
        struct hlod_call *c = taken.v[i];
        pthread_mutex_lock(&q->mutex);
        bool cancelled = c->cancelled;
        pthread_mutex_unlock(&q->mutex);
        if (cancelled && c->http) {
            http_flight_cancel(c->http);
        } else if (cancelled) {
            call_ended(c, st_new(ST_CANCELLED, "cancelled by the caller"), NULL);
        } else {
            struct http_request r = wire_http(&c->request, &c->reader, c->headers);
            status_t st = http_flight_start(q->flights, &r, on_http_end, c, &c->http);
            if (st) call_ended(c, st, NULL);
        }
    }
    vec_done(&taken);
    return go_on;
}
static void *turn_http(void *arg) {
    struct hlod_async *q = arg;
    while (take_inbox(q))
        http_flights_turn(q->flights, 1000);
    return NULL;
}
// For the library's thread, under the mutex.
static void tell_http(struct hlod_async *q, struct hlod_call *c) {
    if (c->queued) return;
    c->queued = true;
    append_to(&q->inbox_end, c);
}

// ---- open and close

enum hlod_code hlod_async_open(const char *addr, const struct hlod_security *s,
                               struct hlod_async **out) {
    if (!addr || !*addr) addr = getenv("HLOD_ADDR");
    if (!addr || !*addr) addr = "127.0.0.1:8000";
    struct hlod_async *q = calloc(1, sizeof *q);
    struct http_security with = {0};
    struct arena a = {0};
    if (!q) return HLOD_RESOURCE_EXHAUSTED;
    if (s && s->size >= sizeof *s)
        with = (struct http_security){s->token, s->cacert, s->cert, s->key};

    q->inbox_end = &q->inbox;
    q->ended_end = &q->ended;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_condattr_t mono;
    pthread_condattr_init(&mono);
    pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
    pthread_cond_init(&q->ended_one, &mono);
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);

    status_t st = q->fd < 0 ? st_errno(errno, "eventfd") : http_security_env(&a, &with);
    if (!st) st = wire_open(addr, &with, &q->http, &q->grpc);
    if (!st && q->http) st = http_flights_new(q->http, &q->flights);
    if (!st && pthread_create(&q->thread, NULL, q->grpc ? turn_grpc : turn_http, q))
        st = st_new(ST_RESOURCE_EXHAUSTED, "no thread");
    arena_done(&a);

    if (!st) {
        *out = q;
        return HLOD_OK;
    }

    enum hlod_code code = (enum hlod_code)st_code(st);
    st_drop(st);
    http_flights_free(q->flights);
    http_client_free(q->http);
    if (q->grpc) wire_close_grpc(q->grpc);
    if (q->fd >= 0) close(q->fd);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->ended_one);
    free(q);
    return code;
}

void hlod_async_close(struct hlod_async *q) {
    if (!q) return;
    pthread_mutex_lock(&q->mutex);
    q->closing = true;
    for (struct hlod_call *c = q->calls; c; c = c->next) {
        if (c->state == C_ENDED) continue;
        c->cancelled = true;
        if (c->grpc) grpc_flight_cancel(c->grpc);
        if (q->http) tell_http(q, c);
    }
    if (q->http) http_flights_wake(q->flights);
    while (q->open)
        pthread_cond_wait(&q->ended_one, &q->mutex);
    if (q->http) http_flights_wake(q->flights);
    pthread_mutex_unlock(&q->mutex);
    if (q->grpc) grpc_client_stop(q->grpc);
    pthread_join(q->thread, NULL);
    http_flights_free(q->flights);
    http_client_free(q->http);
    grpc_client_free(q->grpc);
    while (q->calls) {
        struct hlod_call *c = q->calls;
        unlink_call(c);
        free_call(c);
    }
    close(q->fd);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->ended_one);
    free(q);
}

// ---- start

enum hlod_code async_start(struct hlod_call *c, status_t st, struct hlod_call **out) {
    struct hlod_async *q = c->q;
    if (st) {
        enum hlod_code code = (enum hlod_code)st_code(st);
        st_drop(st);
        free_call(c);
        return code;
    }

    c->reader.q = &c->request;
    pthread_mutex_lock(&q->mutex);
    if (q->closing) {
        pthread_mutex_unlock(&q->mutex);
        free_call(c);
        return HLOD_FAILED_PRECONDITION;
    }

    c->next = q->calls;
    if (c->next) c->next->prev = c;
    q->calls = c;
    q->open++;
    c->state = C_UNDER_WAY;
    if (out) *out = c;

    if (q->grpc) { // its end waits for the mutex
        struct grpc_request r = {c->request.method, c->request.message, on_grpc_message,
                                 on_grpc_end, c};
        c->grpc = grpc_flight_start(q->grpc, &r);
    } else
        tell_http(q, c);
    pthread_mutex_unlock(&q->mutex);
    if (q->http) http_flights_wake(q->flights);
    return HLOD_OK;
}
struct hlod_call *async_call(struct hlod_async *q, wire_finish finish, hlod_done_fn done,
                             void *ctx) {
    struct hlod_call *c = calloc(1, sizeof *c);
    if (!c) abort(); // small fixed size
    c->q = q;
    c->finish = finish;
    c->done = done;
    c->ctx = ctx;
    wire_end(&c->outcome, ST_OK);
    return c;
}
bool async_grpc(const struct hlod_async *q) {
    return q->grpc != NULL;
}
struct arena *async_arena(struct hlod_call *c) {
    return &c->arena;
}
struct wire_request *async_request(struct hlod_call *c) {
    return &c->request;
}
void *async_take(struct hlod_call *c, wire_finish finish) {
    if (c->finish != finish) return NULL;
    void *result = c->result;
    c->result = NULL;
    return result;
}

enum hlod_code hlod_run_start(struct hlod_async *q, const char *digest,
                              const struct hlod_tensor *in, size_t n_in,
                              const struct hlod_run_options *o, hlod_done_fn done, void *ctx,
                              struct hlod_call **out) {
    struct hlod_call *c = async_call(q, wire_ran, done, ctx);
    return async_start(c, wire_run(&c->arena, q->grpc != NULL, digest, in, n_in, o, &c->request),
                       out);
}
enum hlod_code hlod_compile_start(struct hlod_async *q, const void *model, size_t model_bytes,
                                  const struct hlod_compile_options *o, hlod_done_fn done,
                                  void *ctx, struct hlod_call **out) {
    struct hlod_call *c = async_call(q, wire_compiled, done, ctx);
    struct span *part = arena_new_of(&c->arena, struct span);
    *part = (struct span){model, model_bytes};
    struct wire_model m = {.parts = part, .n_parts = 1};
    return async_start(c, wire_compile(&c->arena, q->grpc != NULL, &m, o, &c->request), out);
}
enum hlod_code hlod_compile_file_start(struct hlod_async *q, const char *path,
                                       const struct hlod_compile_options *o, hlod_done_fn done,
                                       void *ctx, struct hlod_call **out) {
    struct hlod_call *c = async_call(q, wire_compiled, done, ctx);
    struct wire_model m;
    status_t st = wire_model_file(&c->arena, path, &m);
    if (!st) st = wire_compile(&c->arena, q->grpc != NULL, &m, o, &c->request);
    return async_start(c, st, out);
}

// ---- ends

int hlod_async_fd(const struct hlod_async *q) {
    return q->fd;
}
struct hlod_call *hlod_async_next(struct hlod_async *q, int timeout_ms) {
    int64_t until = clock_ns() + clock_of_ms(timeout_ms);
    for (;;) {
        pthread_mutex_lock(&q->mutex);
        struct hlod_call *c = q->ended;
        uint64_t one;
        if (c) {
            remove_from(&q->ended, &q->ended_end, c);
            (void)!read(q->fd, &one, sizeof one);
        }
        pthread_mutex_unlock(&q->mutex);
        if (c) return c;
        int64_t left = timeout_ms < 0 ? -1 : clock_ms_left(until);
        if (timeout_ms >= 0 && left <= 0) return NULL;
        struct pollfd p = {.fd = q->fd, .events = POLLIN};
        if (poll(&p, 1, (int)left) < 0 && errno != EINTR) return NULL;
    }
}

void hlod_call_cancel(struct hlod_call *c) {
    struct hlod_async *q = c->q;
    pthread_mutex_lock(&q->mutex);
    if (c->state == C_UNDER_WAY && !c->cancelled) {
        c->cancelled = true;
        if (c->grpc) grpc_flight_cancel(c->grpc);
        if (q->http) tell_http(q, c);
    }
    pthread_mutex_unlock(&q->mutex);
    if (q->http) http_flights_wake(q->flights);
}

bool hlod_call_wait(struct hlod_call *c, int timeout_ms) {
    struct hlod_async *q = c->q;
    struct timespec until = clock_after(clock_of_ms(timeout_ms));
    pthread_mutex_lock(&q->mutex);
    int rc = 0;
    while (!(c->state == C_ENDED && !c->in_callback) && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&q->ended_one, &q->mutex)
                            : pthread_cond_timedwait(&q->ended_one, &q->mutex, &until);
    bool ended = c->state == C_ENDED && !c->in_callback;
    pthread_mutex_unlock(&q->mutex);
    return ended;
}
void *hlod_call_ctx(const struct hlod_call *c) {
    return c->ctx;
}
const struct hlod_error *hlod_call_error(const struct hlod_call *c) {
    return &c->outcome.error;
}
struct hlod_result *hlod_call_take_result(struct hlod_call *c) {
    return async_take(c, wire_ran);
}
struct hlod_executable *hlod_call_take_executable(struct hlod_call *c) {
    return async_take(c, wire_compiled);
}

void hlod_call_free(struct hlod_call *c) {
    if (!c) return;
    struct hlod_async *q = c->q;
    pthread_mutex_lock(&q->mutex);
    bool later = c->in_callback;
    c->free_later = later;
    uint64_t one; // ended, waited for, never asked for with next
    if (remove_from(&q->ended, &q->ended_end, c)) (void)!read(q->fd, &one, sizeof one);
    if (!later) unlink_call(c);
    pthread_mutex_unlock(&q->mutex);
    if (!later) free_call(c);
}
