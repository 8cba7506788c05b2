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

#include "base/clock.h"

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

enum { SLOW_POSTS = 200, SLOW_US = 100 };
static int n_slow;
static void on_slow(void *arg) {
    (void)arg;
    int64_t end = clock_ns() + SLOW_US * 1000;
    while (clock_ns() < end)
        continue;
    if (++n_slow == SLOW_POSTS) loop_stop(l);
}
static void *post_slow(void *arg) {
    (void)arg;
    for (int k = 0; k < SLOW_POSTS; k++)
        loop_post(l, on_slow, NULL);
    return NULL;
}
static void on_between(void *arg) {
    *(int *)arg = n_slow;
}
// Many at once do not keep what else the loop does waiting.
static void many_posts(void **state) {
    (void)state;
    pthread_t thread;
    int between = -1;
    n_slow = 0;
    assert_int_equal(loop_new(&l), ST_OK);
    assert_int_equal(pthread_create(&thread, NULL, post_slow, NULL), 0);
    pthread_join(thread, NULL);
    struct loop_timer *t = loop_timer_new(l, on_between, &between);
    loop_timer_start(t, 1);
    loop_run(l);
    assert_int_equal(n_slow, SLOW_POSTS);
    assert_true(between >= 0 && between < SLOW_POSTS);
    loop_timer_free(t);
    loop_free(l);
}

enum { FINE = 8, COARSE = 6 };
static struct loop_timer *fine[FINE];
static int64_t began, fired_at[FINE];
static int order[FINE], n_fired;
static void on_fine(void *arg) {
    int k = (int)(intptr_t)arg;
    fired_at[k] = clock_ns() - began;
    if (k != COARSE) order[n_fired++] = k;
    if (k == 1) loop_timer_stop(fine[2]); // waits behind it
    if (fired_at[COARSE] && fired_at[FINE - 1]) loop_stop(l);
}
// In the order of their times, none early, one that is stopped not at all. One that is started anew
// as a coarse timer has no place in that order where this process gets no processor for a while.
static void fine_timers(void **state) {
    (void)state;
    static const int64_t us[FINE] = {700, 300, 900, 500, 300, 100, 200, 5000};
    static const int expect[] = {5, 1, 4, 3, 0, 7};
    n_fired = 0;
    assert_int_equal(loop_new(&l), ST_OK);
    for (intptr_t k = 0; k < FINE; k++)
        fine[k] = loop_timer_new(l, on_fine, (void *)k);
    do { // until nothing held this thread up between two of them
        began = clock_ns();
        for (int k = 0; k < FINE; k++)
            loop_timer_start_ns(fine[k], us[k] * 1000);
    } while (clock_ns() - began > 90 * 1000);
    loop_timer_start(fine[COARSE], 3);
    loop_run(l);
    assert_int_equal(n_fired, sizeof expect / sizeof *expect);
    for (int i = 0; i < n_fired; i++) {
        assert_int_equal(order[i], expect[i]);
        assert_true(fired_at[order[i]] >= us[order[i]] * 1000);
    }
    for (int k = 0; k < FINE; k++)
        loop_timer_free(fine[k]);
    loop_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(posts),
                                       cmocka_unit_test(timers_before_posts),
                                       cmocka_unit_test(many_posts), cmocka_unit_test(fine_timers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
