// SPDX-License-Identifier: Apache-2.0
// Waiting for a plugin's events, with a plugin of our own whose events end when the test says so.
#include "devices/pjrt/pjrt_events.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>


// ---- the plugin: an error is a text, an event is a struct of ours

struct fake_event {
    _Atomic bool over;
    const char *error; // or NULL
    void (*callback)(void *error, void *arg);
    void *arg;
};
static _Atomic int alive, errors_alive, awaited;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *make_error(const char *text) {
    if (!text) return NULL;
    errors_alive++;
    return (void *)(uintptr_t)text;
}
static void *error_destroy(void *args) {
    (void)args;
    errors_alive--;
    return NULL;
}
static void *error_message(void *args) {
    struct pj_error_message *m = args;
    m->message = m->error;
    m->message_size = strlen(m->message);
    return NULL;
}
static void *error_code(void *args) {
    ((struct pj_error_code *)args)->code = ST_RESOURCE_EXHAUSTED;
    return NULL;
}
static void *event_destroy(void *args) {
    struct fake_event *e = ((struct pj_object_args *)args)->object;
    assert_true(e->over);
    free(e);
    alive--;
    return NULL;
}
static void *event_is_ready(void *args) {
    struct pj_event_ready *r = args;
    r->ready = ((struct fake_event *)r->event)->over;
    return NULL;
}
static void *event_await(void *args) {
    struct fake_event *e = ((struct pj_object_args *)args)->object;
    awaited++;
    while (!e->over)
        usleep(1000);
    return make_error(e->error);
}
static void *event_on_ready(void *args) {
    struct pj_event_on_ready *r = args;
    struct fake_event *e = r->event;
    pthread_mutex_lock(&mutex);
    if (e->over) {
        r->callback(make_error(e->error), r->arg);
    } else {
        e->callback = r->callback;
        e->arg = r->arg;
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}
// Who waits may destroy the event as soon as it is over.
static void end_event(struct fake_event *e) {
    pthread_mutex_lock(&mutex);
    void (*callback)(void *error, void *arg) = e->callback;
    void *arg = e->arg, *error = callback ? make_error(e->error) : NULL;
    e->over = true;
    pthread_mutex_unlock(&mutex);
    if (callback) callback(error, arg);
}

static struct {
    struct pj_api api;
    void *slots[PJ_SLOT_COUNT];
} table;
static struct pj_plugin plugin = {.api = &table.api, .path = "fake"};
static int begin(void **state) {
    (void)state;
    table.api.struct_size = sizeof table;
    table.slots[PJ_Error_Destroy] = error_destroy;
    table.slots[PJ_Error_Message] = error_message;
    table.slots[PJ_Error_GetCode] = error_code;
    table.slots[PJ_Event_Destroy] = event_destroy;
    table.slots[PJ_Event_IsReady] = event_is_ready;
    table.slots[PJ_Event_Await] = event_await;
    table.slots[PJ_Event_OnReady] = event_on_ready;
    alive = errors_alive = awaited = 0;
    return 0;
}
static int end(void **state) {
    (void)state;
    assert_int_equal(alive, 0);
    assert_int_equal(errors_alive, 0);
    return 0;
}
static struct fake_event *make(const char *error, bool over) {
    struct fake_event *e = calloc(1, sizeof *e);
    assert_non_null(e);
    alive++;
    e->error = error;
    e->over = over;
    return e;
}

// ---- tests

struct later {
    struct fake_event *v[3];
    _Atomic bool *flag;
    int us;
};
static void *end_later(void *arg) {
    struct later *l = arg;
    for (int k = 0; k < 3; k++) {
        usleep((useconds_t)l->us);
        if (l->v[k]) end_event(l->v[k]);
    }
    if (l->flag) *l->flag = true;
    return NULL;
}
static pthread_t start(struct later *l) {
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, end_later, l), 0);
    return t;
}

static void waits_for_all(bool on_ready, bool cancellable) {
    struct pj_pending w = {0};
    _Atomic bool cancel = false;
    if (!on_ready) table.slots[PJ_Event_OnReady] = NULL;
    struct later l = {.v = {make(NULL, false), make(NULL, false), make(NULL, false)}, .us = 3000};
    for (size_t k = 0; k < 3; k++)
        pj_pending_add(&w, l.v[2 - k], "result", k); // the first to end was the last to come
    pj_pending_add(&w, NULL, "nothing", 0);
    pthread_t t = start(&l);
    assert_null(pj_pending_wait(&plugin, &w, cancellable ? &cancel : NULL));
    assert_int_equal(alive, 0);
    assert_int_equal(w.events.n, 0);
    pthread_join(t, NULL);
}
static void test_wait(void **state) {
    (void)state;
    waits_for_all(true, true);
    waits_for_all(true, false);
    waits_for_all(false, true); // a plugin without OnReady is asked now and then
    struct pj_pending none = {0};
    assert_null(pj_pending_wait(&plugin, &none, NULL));
    assert_true(pj_pending_over(&plugin, &none));
}

// The flag ends the waiting, not the work; what is left is asked for later.
static void test_cancel(void **state) {
    (void)state;
    struct pj_pending w = {0}, rest = {0};
    _Atomic bool cancel = false;
    struct fake_event *e = make("too late", false);
    pj_pending_add(&w, make(NULL, true), "execution", 0);
    pj_pending_add(&w, e, "execution", 1);
    struct later l = {.flag = &cancel, .us = 7000};
    pthread_t t = start(&l);
    status_t st = pj_pending_wait(&plugin, &w, &cancel); // nothing else ends it
    assert_int_equal(st_code(st), ST_CANCELLED);
    st_drop(st);
    assert_true(awaited == 0);
    pthread_join(t, NULL);
    assert_int_equal(w.events.n, 2);
    pj_pending_move(&rest, &w);
    assert_int_equal(w.events.n, 0);
    assert_false(pj_pending_over(&plugin, &rest));
    end_event(e);
    assert_true(pj_pending_over(&plugin, &rest)); // nobody hears its error
    assert_int_equal(rest.events.n, 0);
}

static void says(struct pj_pending *w, const char *want) {
    status_t st = pj_pending_wait(&plugin, w, NULL);
    assert_int_equal(st_code(st), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(st_message(st), want);
    st_drop(st);
}
// Each in the plugin's words, none twice.
static void test_errors(void **state) {
    (void)state;
    struct pj_pending w = {0};
    pj_pending_add(&w, make(NULL, true), "execution on device", 0);
    pj_pending_add(&w, make("out of HBM", true), "execution on device", 1);
    says(&w, "execution on device 1: Event_Await: out of HBM");
    pj_pending_add(&w, make("out of HBM", true), "execution on device", 0);
    pj_pending_add(&w, make("out of HBM", true), "execution on device", 1);
    pj_pending_add(&w, make("link is down", true), "execution on device", 2);
    says(&w, "execution on device 0: Event_Await: out of HBM; execution on device 2: Event_Await: "
             "link is down");
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_wait, begin, end),
        cmocka_unit_test_setup_teardown(test_cancel, begin, end),
        cmocka_unit_test_setup_teardown(test_errors, begin, end),
    };
    return cmocka_run_group_tests_name("devices/pjrt_events", tests, NULL, NULL);
}
