// SPDX-License-Identifier: Apache-2.0
// See pjrt_events.h. Waiting for an event with Event_Await cannot be given up, so what can be
// cancelled sleeps until an Event_OnReady of any event wakes it, and looks at the flag now and
// then. One condition serves the process, which has one plugin: a callback carries nothing whose
// life could end before it is called.
#include "devices/pjrt/pjrt_events.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"

enum { LOOK_NS = 5000000 }; // how often at the flag
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;

void pj_pending_add(struct pj_pending *w, void *event, const char *what, size_t number) {
    if (event) vec_push(&w->events, ((struct pj_event){event, what, number}));
}
void pj_pending_move(struct pj_pending *to, struct pj_pending *from) {
    for (size_t k = 0; k < from->events.n; k++)
        vec_push(&to->events, from->events.v[k]);
    vec_done(&from->events);
}

static bool is_ready(const struct pj_plugin *p, const struct pj_event *e) {
    struct pj_event_ready r = {.event = e->handle};
    status_t st = PJ_CALL(p, Event_IsReady, &r);
    bool yes = st || r.ready; // what cannot be asked is awaited
    st_drop(st);
    return yes;
}
static void on_ready(void *error, void *arg) {
    const struct pj_plugin *p = arg;
    pj_drop_error(p, error); // Event_Await gives it again
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&ready);
    pthread_mutex_unlock(&mutex);
}
static bool all_ready(const struct pj_plugin *p, const struct pj_pending *w) {
    for (size_t k = 0; k < w->events.n; k++)
        if (!is_ready(p, &w->events.v[k])) return false;
    return true;
}

// False when the flag was set first.
static bool sleep_until_ready(const struct pj_plugin *p, const struct pj_pending *w,
                              const _Atomic bool *cancel) {
    for (size_t k = 0; k < w->events.n; k++) {
        struct pj_event_on_ready r = {
            .event = w->events.v[k].handle, .callback = on_ready, .arg = (void *)(uintptr_t)p};
        if (!is_ready(p, &w->events.v[k])) st_drop(PJ_CALL(p, Event_OnReady, &r)); // or LOOK_NS
    }
    pthread_mutex_lock(&mutex);
    bool over;
    while (!(over = all_ready(p, w)) && !*cancel) {
        struct timespec until = clock_after(LOOK_NS);
        pthread_cond_clockwait(&ready, &mutex, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&mutex);
    return over;
}

// What a further event says goes behind the first's error; the same words need no second time.
static status_t join(status_t first, status_t next, const struct pj_event *e) {
    if (first && next && strstr(st_message(first), st_message(next))) {
        st_drop(next);
        return first;
    }
    if (next) next = st_note(next, "%s %zu", e->what, e->number);
    if (!first || !next) return first ? first : next;
    status_t both = st_new(st_code(first), "%s; %s", st_message(first), st_message(next));
    st_drop(first);
    st_drop(next);
    return both;
}
static status_t finish(const struct pj_plugin *p, struct pj_pending *w) {
    status_t st = ST_OK;
    for (size_t k = 0; k < w->events.n; k++)
        st = join(st, pj_await(p, w->events.v[k].handle), &w->events.v[k]);
    vec_done(&w->events);
    return st;
}

status_t pj_pending_wait(const struct pj_plugin *p, struct pj_pending *w,
                         const _Atomic bool *cancel) {
    if (cancel && !all_ready(p, w) && !sleep_until_ready(p, w, cancel))
        return st_new(ST_CANCELLED, "the run was cancelled");
    return finish(p, w);
}
bool pj_pending_over(const struct pj_plugin *p, struct pj_pending *w) {
    if (!all_ready(p, w)) return false;
    st_drop(finish(p, w));
    return true;
}
