// SPDX-License-Identifier: Apache-2.0
// See loop.h. Functions posted by other threads wait in a list under a mutex; the async handle
// wakes the loop, which takes the whole list at once and runs a while of it each turn. Those that
// the loop posts itself cost no system call: they wait in a list of its own, which is run after the
// events of each turn. libuv's timers count milliseconds; the finer ones wait in a list in their
// order, and one descriptor of the kernel's (timerfd) fires for the first.
#include "scheduler/loop.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/spin.h"
#include "base/vec.h"

struct post {
    void (*fn)(void *);
    void *arg;
};
typedef VEC(struct post) posts;
struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    uv_prepare_t before; // the wait for events: none when own posts are left or it looks for them
    uv_check_t after;
    uv_idle_t awake;
    uv_mutex_t lock;
    posts others; // under lock
    posts taken;  // of those; from taken_at on they have not run
    size_t taken_at;
    bool stopped;     // under lock
    posts own, spare; // spare: an empty list's memory
    pthread_t thread;
    struct spin spin; // of the wait for descriptors and other threads
    bool waits;       // spin_begin was called, spin_end was not
    size_t works;     // begun, their done not called yet
    int fine_fd;      // for timers in nanoseconds; -1: none was asked for yet
    uv_poll_t fine;
    struct loop_timer *fine_first, *fine_last;
};

static void *must(void *p) {
    if (!p) abort(); // small fixed sizes only
    return p;
}

// Something came from outside the loop.
static void stir(struct loop *l) {
    if (l->waits) spin_end(&l->spin);
    l->waits = false;
}

// In their order, but not so many at once that what comes by sockets would wait: some thousand may
// be there, where a connection with as many calls ends.
static void on_wake(uv_async_t *a) {
    enum { LONG_NS = 500 * 1000, LOOK = 8 };
    struct loop *l = a->data;
    stir(l);
    uv_mutex_lock(&l->lock);
    if (l->taken_at == l->taken.n) {
        posts done = l->taken;
        l->taken = l->others;
        l->others = done;
        l->others.n = l->taken_at = 0;
    }
    bool stopped = l->stopped, more = l->others.n > 0;
    uv_mutex_unlock(&l->lock);
    int64_t begun = clock_ns();
    while (l->taken_at < l->taken.n) {
        struct post p = l->taken.v[l->taken_at++];
        p.fn(p.arg);
        if (l->taken_at % LOOK == 0 && !stopped && clock_ns() - begun > LONG_NS) break;
    }
    if (more || l->taken_at < l->taken.n)
        uv_async_send(a);
    else if (stopped)
        uv_stop(&l->uv);
}

static void nothing(UNUSED uv_idle_t *i) {}
static void on_before(uv_prepare_t *p) {
    struct loop *l = p->data;
    bool stay = l->own.n > 0;
    if (!stay) {
        if (!l->waits) spin_begin(&l->spin);
        l->waits = true;
        stay = spin_again(&l->spin);
    }
    if (stay)
        uv_idle_start(&l->awake, nothing);
    else
        uv_idle_stop(&l->awake);
}
// What they post in turn runs too, but sockets are looked at now and then.
static void on_after(uv_check_t *c) {
    struct loop *l = c->data;
    for (int round = 0; round < 16 && l->own.n; round++) {
        posts taken = l->own;
        l->own = l->spare;
        l->spare = (posts){0};
        for (size_t i = 0; i < taken.n; i++)
            taken.v[i].fn(taken.v[i].arg);
        taken.n = 0;
        vec_done(&l->spare);
        l->spare = taken;
    }
}

status_t loop_new(struct loop **out) {
    struct loop *l = must(calloc(1, sizeof *l));
    if (uv_loop_init(&l->uv)) {
        free(l);
        return st_internal("cannot make an event loop");
    }
    if (uv_mutex_init(&l->lock)) abort();
    uv_async_init(&l->uv, &l->wake, on_wake);
    uv_prepare_init(&l->uv, &l->before);
    uv_check_init(&l->uv, &l->after);
    uv_idle_init(&l->uv, &l->awake);
    l->wake.data = l->before.data = l->after.data = l;
    uv_prepare_start(&l->before, on_before);
    uv_check_start(&l->after, on_after);
    l->uv.data = l;
    l->fine_fd = -1;
    l->thread = pthread_self();
    *out = l;
    return ST_OK;
}

void loop_free(struct loop *l) {
    if (!l) return;
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_close((uv_handle_t *)&l->before, NULL);
    uv_close((uv_handle_t *)&l->after, NULL);
    uv_close((uv_handle_t *)&l->awake, NULL);
    if (l->fine_fd >= 0) uv_close((uv_handle_t *)&l->fine, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    if (l->fine_fd >= 0) close(l->fine_fd);
    uv_loop_close(&l->uv);
    uv_mutex_destroy(&l->lock);
    vec_done(&l->others);
    vec_done(&l->taken);
    vec_done(&l->own);
    vec_done(&l->spare);
    free(l);
}

void loop_spin(struct loop *l, int64_t limit_ns) {
    l->spin = (struct spin){.limit_ns = limit_ns};
    l->waits = false;
}

void loop_run(struct loop *l) {
    // Threads that post may be there already: no write where nothing changes.
    if (!pthread_equal(l->thread, pthread_self())) l->thread = pthread_self();
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_turn(struct loop *l) {
    uv_run(&l->uv, UV_RUN_ONCE);
}
void loop_stop(struct loop *l) {
    uv_mutex_lock(&l->lock);
    l->stopped = true;
    uv_mutex_unlock(&l->lock);
    uv_async_send(&l->wake);
}

struct uv_loop_s *loop_uv(struct loop *l) {
    return &l->uv;
}

void loop_post(struct loop *l, void (*fn)(void *), void *arg) {
    struct post p = {fn, arg};
    if (pthread_equal(pthread_self(), l->thread)) {
        vec_push(&l->own, p);
        return;
    }
    uv_mutex_lock(&l->lock);
    vec_push(&l->others, p);
    uv_mutex_unlock(&l->lock);
    uv_async_send(&l->wake);
}

struct work {
    struct loop *l;
    uv_work_t req;
    void (*work)(void *);
    void (*done)(void *);
    void *arg;
};
static void on_work(uv_work_t *r) {
    struct work *w = r->data;
    w->work(w->arg);
}
static void on_worked(uv_work_t *r, UNUSED int code) {
    struct work *w = r->data;
    w->l->works--;
    w->done(w->arg);
    free(w);
}

void loop_work(struct loop *l, void (*work)(void *), void (*done)(void *), void *arg) {
    struct work *w = must(calloc(1, sizeof *w));
    *w = (struct work){.l = l, .work = work, .done = done, .arg = arg};
    w->req.data = w;
    l->works++;
    uv_queue_work(&l->uv, &w->req, on_work, on_worked);
}

bool loop_works(const struct loop *l) {
    return l->works > 0;
}

// ---- timers

struct loop_timer {
    uv_timer_t uv;
    void (*fn)(void *);
    void *arg;
    struct loop *l;
    int64_t at_ns; // where it waits in the list of fine ones; 0: it does not
    struct loop_timer *prev, *next;
};
static void no_longer_fine(struct loop_timer *t) {
    struct loop *l = t->l;
    if (!t->at_ns) return;
    *(t->prev ? &t->prev->next : &l->fine_first) = t->next;
    *(t->next ? &t->next->prev : &l->fine_last) = t->prev;
    t->prev = t->next = NULL;
    t->at_ns = 0;
}
static void arm_fine(struct loop *l) { // one that fires for nobody is harmless
    if (!l->fine_first) return;
    struct itimerspec when = {
        .it_value = {l->fine_first->at_ns / 1000000000, l->fine_first->at_ns % 1000000000}};
    timerfd_settime(l->fine_fd, TFD_TIMER_ABSTIME, &when, NULL);
}
static void on_fine(uv_poll_t *u, UNUSED int status, UNUSED int events) {
    struct loop *l = u->data;
    uint64_t times;
    (void)!read(l->fine_fd, &times, sizeof times);
    int64_t now = clock_ns();
    while (l->fine_first && l->fine_first->at_ns <= now) {
        struct loop_timer *t = l->fine_first;
        no_longer_fine(t);
        t->fn(t->arg);
    }
    arm_fine(l);
}
static bool have_fine(struct loop *l) {
    if (l->fine_fd >= 0) return true;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0) return false;
    if (uv_poll_init(&l->uv, &l->fine, fd)) {
        close(fd);
        return false;
    }
    l->fine_fd = fd;
    l->fine.data = l;
    uv_poll_start(&l->fine, UV_READABLE, on_fine);
    return true;
}

static void free_handle(uv_handle_t *h) {
    free(h->data);
}
static void on_timer(uv_timer_t *u) {
    struct loop_timer *t = u->data;
    t->fn(t->arg);
}

struct loop_timer *loop_timer_new(struct loop *l, void (*fn)(void *), void *arg) {
    struct loop_timer *t = must(calloc(1, sizeof *t));
    t->fn = fn;
    t->arg = arg;
    t->l = l;
    uv_timer_init(&l->uv, &t->uv);
    t->uv.data = t;
    return t;
}
void loop_timer_start(struct loop_timer *t, int64_t ms) {
    no_longer_fine(t);
    uv_update_time(t->uv.loop);
    uv_timer_start(&t->uv, on_timer, ms > 0 ? (uint64_t)ms : 0, 0);
}
void loop_timer_at(struct loop_timer *t, int64_t at_ns) {
    loop_timer_start(t, clock_ms_left(at_ns) + 1);
}
// Times mostly come in their order: the place is looked for from the end.
void loop_timer_start_ns(struct loop_timer *t, int64_t ns) {
    struct loop *l = t->l;
    if (ns <= 0 || !have_fine(l)) {
        loop_timer_start(t, (ns + CLOCK_MS - 1) / CLOCK_MS);
        return;
    }
    loop_timer_stop(t);
    t->at_ns = clock_ns() + ns;
    t->prev = l->fine_last;
    while (t->prev && t->prev->at_ns > t->at_ns)
        t->prev = t->prev->prev;
    t->next = t->prev ? t->prev->next : l->fine_first;
    *(t->prev ? &t->prev->next : &l->fine_first) = t;
    *(t->next ? &t->next->prev : &l->fine_last) = t;
    if (l->fine_first == t) arm_fine(l);
}
void loop_timer_stop(struct loop_timer *t) {
    if (!t) return;
    no_longer_fine(t);
    uv_timer_stop(&t->uv);
}
void loop_timer_free(struct loop_timer *t) {
    loop_timer_stop(t);
    if (t) uv_close((uv_handle_t *)&t->uv, free_handle);
}

// ---- descriptors

struct loop_watch {
    uv_poll_t uv;
    void (*fn)(void *, int);
    void *arg;
};
static void on_poll(uv_poll_t *u, int status, int events) {
    struct loop_watch *w = u->data;
    stir(u->loop->data);
    int e = (events & UV_READABLE ? LOOP_READ : 0) | (events & UV_WRITABLE ? LOOP_WRITE : 0) |
            (events & UV_DISCONNECT ? LOOP_HANGUP : 0);
    if (status < 0) e = LOOP_READ | LOOP_HANGUP; // the error shows at the next read
    w->fn(w->arg, e);
}

status_t loop_watch_new(struct loop *l, int fd, void (*fn)(void *, int), void *arg,
                        struct loop_watch **out) {
    struct loop_watch *w = must(calloc(1, sizeof *w));
    w->fn = fn;
    w->arg = arg;
    int err = uv_poll_init(&l->uv, &w->uv, fd);
    if (err) {
        free(w);
        return st_errno(-err, "watch");
    }
    w->uv.data = w;
    *out = w;
    return ST_OK;
}
void loop_watch_set(struct loop_watch *w, int events) {
    int e = (events & LOOP_READ ? UV_READABLE : 0) | (events & LOOP_WRITE ? UV_WRITABLE : 0) |
            (events & LOOP_HANGUP ? UV_DISCONNECT : 0);
    if (e)
        uv_poll_start(&w->uv, e, on_poll);
    else
        uv_poll_stop(&w->uv);
}
void loop_watch_free(struct loop_watch *w) {
    if (w) uv_close((uv_handle_t *)&w->uv, free_handle);
}
