// SPDX-License-Identifier: Apache-2.0
// otlp_queue: what is put comes out whole and in order, also around the ring's end; a full queue
// takes nothing; the taker is woken by enough, by time, by hand.
#include "server/otlp/otlp_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"

static void whole(void **state) {
    struct otlp_queue *q = otlp_queue_new(1, 100); // the least there is: 4 KiB
    unsigned put = 0, taken = 0;
    (void)state;
    assert_null(otlp_queue_first(q));
    assert_null(otlp_queue_room(q, 4096));
    for (int round = 0; round < 200; round++) {
        for (unsigned n = 1;; n = n * 7 % 997) { // of many sizes, until it is full
            unsigned *p = otlp_queue_room(q, sizeof *p + n);
            if (!p) break;
            assert_int_equal((uintptr_t)p % 16, 0);
            *p = put++;
            memset(p + 1, (int)(*p & 0xff), n);
            otlp_queue_put(q, 2);
        }
        assert_int_equal(otlp_queue_spans(q), 2 * (put - taken));
        for (int k = 0; k < 3 + round % 5; k++) {
            const unsigned *p = otlp_queue_first(q);
            if (!p) break;
            assert_int_equal(*p, taken++);
            assert_int_equal(((const uint8_t *)(p + 1))[0], *p & 0xff);
            otlp_queue_drop(q);
        }
    }
    assert_true(put > 400);
    otlp_queue_free(q);
    otlp_queue_free(NULL);
}

enum { MANY = 200000 };
static void *putter(void *arg) {
    struct otlp_queue *q = arg;
    for (unsigned k = 0; k < MANY; k++) {
        size_t n = 2 + k % 61;
        unsigned *p;
        while (!(p = otlp_queue_room(q, n * sizeof *p)))
            sched_yield();
        for (size_t i = 0; i < n; i++)
            p[i] = k;
        otlp_queue_put(q, 1);
    }
    return NULL;
}
static void two_threads(void **state) {
    struct otlp_queue *q = otlp_queue_new(1 << 14, 8);
    pthread_t t;
    (void)state;
    assert_int_equal(pthread_create(&t, NULL, putter, q), 0);
    for (unsigned k = 0; k < MANY;) {
        const unsigned *p = otlp_queue_first(q);
        if (!p) {
            otlp_queue_wait(q, clock_ns() + CLOCK_MS);
            continue;
        }
        size_t n = 2 + k % 61;
        for (size_t i = 0; i < n; i++)
            if (p[i] != k) fail_msg("record %u: %u", k, p[i]);
        otlp_queue_drop(q);
        k++;
    }
    pthread_join(t, NULL);
    assert_int_equal(otlp_queue_spans(q), 0);
    otlp_queue_free(q);
}

static const int64_t LONG = INT64_C(60000) * CLOCK_MS;
static void *put_three(void *arg) {
    struct otlp_queue *q = arg;
    for (int k = 0; k < 3; k++) {
        assert_non_null(otlp_queue_room(q, 8));
        otlp_queue_put(q, 3);
    }
    return NULL;
}
static void *wake(void *arg) {
    otlp_queue_wake(arg);
    return NULL;
}
static void waits(void **state) {
    struct otlp_queue *q = otlp_queue_new(1 << 14, 9);
    pthread_t t;
    int64_t begin = clock_ns();
    (void)state;
    otlp_queue_wait(q, begin + 5 * CLOCK_MS); // nothing comes
    assert_true(clock_ns() - begin >= 5 * CLOCK_MS);
    pthread_create(&t, NULL, put_three, q);
    otlp_queue_wait(q, clock_ns() + LONG); // enough come
    assert_int_equal(otlp_queue_spans(q), 9);
    pthread_join(t, NULL);
    otlp_queue_wait(q, clock_ns() + LONG); // they are there
    begin = clock_ns();
    otlp_queue_sleep(q, begin + 5 * CLOCK_MS);
    assert_true(clock_ns() - begin >= 5 * CLOCK_MS); // they do not matter
    pthread_create(&t, NULL, wake, q);
    otlp_queue_sleep(q, clock_ns() + LONG);
    pthread_join(t, NULL);
    otlp_queue_wake(q);
    otlp_queue_sleep(q, clock_ns() + LONG); // was woken before
    assert_true(clock_ns() - begin < LONG);
    otlp_queue_free(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole), cmocka_unit_test(two_threads),
                                       cmocka_unit_test(waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
