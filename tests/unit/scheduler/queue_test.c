// SPDX-License-Identifier: Apache-2.0
// The queue: order against a sorted model over random pushes and removals, the bound, deadlines.
#include "scheduler/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void order(void **state) {
    (void)state;
    enum { N = 200 };
    struct queue q = {0};
    struct queue_item it[N] = {0};
    uint32_t rng = 7;
    for (int i = 0; i < N; i++) {
        rng = rng * 1664525 + 1013904223;
        it[i].priority = (int32_t)(rng >> 24) % 5;
        assert_true(queue_push(&q, &it[i]));
        if (i % 7 == 6) queue_remove(&q, &it[i - 3]);
    }
    int32_t n = 0;
    for (struct queue_item *x = q.head; x; x = x->next, n++) {
        assert_int_equal(queue_position(&q, x), n);
        assert_ptr_equal(x->prev ? x->prev->next : q.head, x);
        if (!x->next) {
            assert_ptr_equal(q.tail, x);
            break;
        }
        // Larger priorities first; equal ones in the order they came (the array's).
        assert_true(x->priority > x->next->priority ||
                    (x->priority == x->next->priority && x < x->next));
    }
    assert_int_equal(n + 1, q.n);
    while (q.head)
        queue_remove(&q, q.head);
    assert_int_equal(q.n, 0);
    assert_null(q.tail);
    queue_remove(&q, &it[0]); // not queued: nothing happens
}

static void bound_and_deadline(void **state) {
    (void)state;
    struct queue q = {.max = 2};
    struct queue_item a = {.deadline_ns = 50}, b = {.deadline_ns = 20}, c = {0};
    assert_true(queue_push(&q, &a) && queue_push(&q, &b));
    assert_false(queue_push(&q, &c));
    assert_int_equal(queue_position(&q, &c), -1);
    assert_null(queue_expired(&q, 19));
    assert_ptr_equal(queue_expired(&q, 20), &b);
    queue_remove(&q, &b);
    assert_true(queue_push(&q, &c));
    assert_ptr_equal(queue_expired(&q, 1000), &a);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(order), cmocka_unit_test(bound_and_deadline)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
