// SPDX-License-Identifier: Apache-2.0
// Who waits for a turn stands in one of a table's queues, by address; the table is walked in a
// circle. Who waits for bytes is in an epoll set of ours.
#include "server/http/conn/http_handshake.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "scheduler/loop.h"

enum { QUEUES = 256, EVENTS = 64, MOST_AT_ONCE = 64, MOST_LEFT = 1024 };
static const int64_t LONGEST_PAUSE_NS = 10 * 1000 * 1000, BATCH_NS = 1000 * 1000;
struct http_handshakes {
    struct loop *loop;
    void (*resumed)(void *arg);
    void *arg;
    int epoll;
    struct loop_watch *watch;
    struct loop_timer *timer;
    struct queue {
        struct http_handshake *first, *last;
    } turns[QUEUES], bytes, resuming;
    int n_turns;      // in all queues
    unsigned at;      // the queue that was served last
    int64_t until_ns; // of the pause
    int64_t spent_ns; // since the last pause
    int64_t usual_ns; // of the last steps, the older the less
    bool stopped;
};

static struct queue *queue_of(struct http_handshake *h) {
    struct http_handshakes *all = h->all;
    return h->state == HANDSHAKE_BYTES  ? &all->bytes
           : h->state == HANDSHAKE_TURN ? &all->turns[h->address % QUEUES]
           : h->state == HANDSHAKE_NEXT ? &all->resuming
                                        : NULL;
}
static void enter(struct http_handshake *h, enum handshake_state s) {
    struct queue *q = queue_of(h);
    if (q) {
        *(h->prev ? &h->prev->next : &q->first) = h->next;
        *(h->next ? &h->next->prev : &q->last) = h->prev;
    }
    h->all->n_turns += (s == HANDSHAKE_TURN) - (h->state == HANDSHAKE_TURN);
    h->state = s;
    h->prev = h->next = NULL;
    if (!(q = queue_of(h))) return;
    h->prev = q->last;
    *(q->last ? &q->last->next : &q->first) = h;
    q->last = h;
}
static void unwatch(struct http_handshake *h) {
    if (h->watched) epoll_ctl(h->all->epoll, EPOLL_CTL_DEL, h->fd, NULL);
    h->watched = false;
}
// The library asks http_handshake_may again, and is let by.
static void resume(struct http_handshake *h) {
    unwatch(h);
    enter(h, HANDSHAKE_NEXT);
    MHD_resume_connection(h->mhd);
    h->all->resumed(h->all->arg);
}

// Has the client closed, with bytes of its unread perhaps?
static bool has_left(const struct http_handshake *h) {
    struct pollfd p = {.fd = h->fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}
// Several at a time where steps are brief: for each time, the library walks over all that are
// suspended.
static void on_turn(void *arg) {
    struct http_handshakes *all = arg;
    if (all->resuming.first) return; // `settle` comes back here
    int64_t n = all->usual_ns ? BATCH_NS / all->usual_ns : MOST_AT_ONCE;
    if (n < 1) n = 1;
    if (n > MOST_AT_ONCE) n = MOST_AT_ONCE;
    for (int64_t left = MOST_LEFT; n && left && all->n_turns;) {
        do
            all->at++;
        while (!all->turns[all->at % QUEUES].first);
        struct http_handshake *h = all->turns[all->at % QUEUES].first;
        *(has_left(h) ? &left : &n) -= 1; // no step is taken for those
        resume(h);
    }
}
// After those that were resumed: a pause, then the next.
static void settle(struct http_handshakes *all) {
    if (all->resuming.first) return;
    int64_t now = clock_ns();
    if (all->spent_ns)
        all->until_ns = now + (all->spent_ns < LONGEST_PAUSE_NS ? all->spent_ns : LONGEST_PAUSE_NS);
    all->spent_ns = 0;
    if (all->n_turns) loop_timer_start_ns(all->timer, all->until_ns - now);
}
static void on_bytes(void *arg, UNUSED int events) {
    struct http_handshakes *all = arg;
    struct epoll_event e[EVENTS];
    int n = epoll_wait(all->epoll, e, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct http_handshake *h = e[i].data.ptr;
        unwatch(h);
        enter(h, HANDSHAKE_TURN);
    }
    settle(all);
}

struct http_handshakes *http_handshakes_new(struct loop *l, void (*resumed)(void *arg), void *arg) {
    struct http_handshakes *all = arena_must_calloc(1, sizeof *all);
    *all = (struct http_handshakes){
        .loop = l, .resumed = resumed, .arg = arg, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    status_t st =
        all->epoll < 0 ? st_oom() : loop_watch_new(l, all->epoll, on_bytes, all, &all->watch);
    if (st) {
        st_drop(st);
        if (all->epoll >= 0) close(all->epoll);
        free(all);
        return NULL;
    }
    loop_watch_set(all->watch, LOOP_READ);
    all->timer = loop_timer_new(l, on_turn, all);
    return all;
}
void http_handshakes_stop(struct http_handshakes *all) {
    if (!all) return;
    all->stopped = true;
    while (all->bytes.first)
        resume(all->bytes.first);
    for (int i = 0; i < QUEUES; i++)
        while (all->turns[i].first)
            resume(all->turns[i].first);
}
void http_handshakes_free(struct http_handshakes *all) {
    if (!all) return;
    loop_watch_free(all->watch);
    loop_timer_free(all->timer);
    close(all->epoll);
    free(all);
}

enum handshake_may http_handshake_may(struct http_handshake *h) {
    if (has_left(h)) return HANDSHAKE_LEFT;
    struct http_handshakes *all = h->all;
    bool next = h->state == HANDSHAKE_NEXT && all->spent_ns < BATCH_NS,
         free = !all->n_turns && !all->resuming.first && clock_ns() >= all->until_ns;
    if (next || free || h->hurried || all->stopped) return HANDSHAKE_GO;
    enter(h, HANDSHAKE_TURN);
    MHD_suspend_connection(h->mhd);
    settle(all);
    return HANDSHAKE_WAIT;
}
void http_handshake_took(struct http_handshake *h, int64_t ns, enum handshake_wants wants) {
    struct http_handshakes *all = h->all;
    enter(h, HANDSHAKE_FREE);
    all->spent_ns += ns;
    all->usual_ns = (3 * all->usual_ns + ns) / 4;
    settle(all);
    if (!wants || h->hurried || all->stopped) return;
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT |
                                      (wants == HANDSHAKE_WANTS_READ ? EPOLLIN : EPOLLOUT),
                            .data.ptr = h};
    if (epoll_ctl(all->epoll, EPOLL_CTL_ADD, h->fd, &e)) return; // the library asks on
    h->watched = true;
    enter(h, HANDSHAKE_BYTES);
    MHD_suspend_connection(h->mhd);
}
void http_handshake_hurry(struct http_handshake *h) {
    if (h->hurried) return;
    h->hurried = true;
    if (h->state == HANDSHAKE_BYTES || h->state == HANDSHAKE_TURN) resume(h);
}
void http_handshake_gone(struct http_handshake *h) {
    unwatch(h);
    enter(h, HANDSHAKE_FREE);
    settle(h->all);
}
