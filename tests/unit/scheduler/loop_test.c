// SPDX-License-Identifier: Apache-2.0
// Posts: each once, in order, from the loop's own thread and from another, also those that posts
// post; a loop that has none waits.
#include "scheduler/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>

enum { EACH = 1000 };
static struct loop *l;
static int own, others, chain;

static void on_own(void *arg) {
    assert_int_equal((intptr_t)arg, own++);
}
static void on_other(void *arg) {
    assert_int_equal((intptr_t)arg, others++);
}
static void on_chain(void *arg) {
    (void)arg;
    if (++chain < EACH) loop_post(l, on_chain, NULL);
}
static void *post_others(void *arg) {
    (void)arg;
    for (intptr_t k = 0; k < EACH; k++)
        loop_post(l, on_other, (void *)k);
    return NULL;
}

static void posts(void **state) {
    (void)state;
    pthread_t thread;
    own = others = chain = 0;
    assert_int_equal(loop_new(&l), ST_OK);
    assert_int_equal(pthread_create(&thread, NULL, post_others, NULL), 0);
    for (intptr_t k = 0; k < EACH; k++)
        loop_post(l, on_own, (void *)k);
    loop_post(l, on_chain, NULL);
    assert_int_equal(own + chain, 0); // never from inside
    while (own < EACH || others < EACH || chain < EACH)
        loop_turn(l);
    pthread_join(thread, NULL);
    assert_int_equal(own + others + chain, 3 * EACH);
    loop_free(l);
}

static void on_late(void *arg) {
    *(int *)arg = own;
    loop_stop(l);
}
static void timers_before_posts(void **state) {
    (void)state;
    int late = -1;
    own = 0;
    assert_int_equal(loop_new(&l), ST_OK);
    struct loop_timer *t = loop_timer_new(l, on_late, &late);
    loop_timer_start(t, 20);
    loop_post(l, on_own, (void *)0);
    loop_run(l); // until the timer: with no posts left the loop must not turn without end
    assert_int_equal(late, 1);
    loop_timer_free(t);
    loop_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(posts),
                                       cmocka_unit_test(timers_before_posts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
