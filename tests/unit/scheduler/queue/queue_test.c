// SPDX-License-Identifier: Apache-2.0
// The queue on a clock of its own: order within a lane against a sorted model over random pushes
// and removals; shares of device time between lanes; who leaves when it is full.
#include "scheduler/queue/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool push(struct queue *q, struct queue_lane *l, struct queue_item *it) {
    struct queue_item *victim;
    bool in = queue_push(q, l, it, &victim);
    assert_null(victim);
    return in;
}

static void order(void **state) {
    (void)state;
    enum { N = 200 };
    struct queue q = {0};
    struct queue_lane l = {0};
    struct queue_item it[N] = {0};
    uint32_t rng = 7;
    for (int i = 0; i < N; i++) {
        rng = rng * 1664525 + 1013904223;
        it[i].priority = (int32_t)(rng >> 24) % 5;
        assert_true(push(&q, &l, &it[i]));
        if (i % 7 == 6) queue_remove(&q, &it[i - 3]);
    }
    int32_t n = 0;
    for (struct queue_item *x = queue_first(&q); x; x = queue_next(x), n++) {
        assert_int_equal(queue_position(&q, x), n);
        assert_ptr_equal(x->prev ? x->prev->next : l.head, x);
        if (!x->next) assert_ptr_equal(l.tail, x);
        // Larger priorities first; equal ones in the order they came (the array's).
        else
            assert_true(x->priority > x->next->priority ||
                        (x->priority == x->next->priority && x < x->next));
    }
    assert_int_equal(n, q.n);
    while (queue_first(&q))
        queue_remove(&q, queue_first(&q));
    assert_int_equal(q.n, 0);
    assert_null(q.first);
    assert_null(l.tail);
    queue_remove(&q, &it[0]); // not queued: nothing happens
    assert_int_equal(queue_position(&q, &it[0]), -1);
}

// One server, one item at a time, lanes that always have something waiting.
struct source {
    struct queue_lane lane;
    struct queue_item items[4];
    int64_t cost_ns, guess_ns, got_ns;
};
static void serve(struct queue *q, struct source *s, int n, int64_t until_ns) {
    for (int64_t now = 0; now < until_ns;) {
        for (int k = 0; k < n; k++)
            for (int i = 0; i < 4; i++)
                if (!s[k].items[i].lane) assert_true(push(q, &s[k].lane, &s[k].items[i]));
        struct queue_item *it = queue_first(q);
        struct source *x = (struct source *)(void *)it->lane; // its first member
        queue_serve(q, it, x->guess_ns);
        queue_charge(q, &x->lane, x->cost_ns - x->guess_ns);
        x->got_ns += x->cost_ns;
        now += x->cost_ns;
    }
}

static void shares(void **state) {
    (void)state;
    struct queue q = {0};
    struct source s[3] = {
        {.lane = {.weight = 1}, .cost_ns = 1000, .guess_ns = 1000}, // many short ones
        {.lane = {.weight = 1}, .cost_ns = 50000, .guess_ns = 100}, // long ones, guessed short
        {.lane = {.weight = 3}, .cost_ns = 7000, .guess_ns = 70000}};
    serve(&q, s, 3, 100000000);
    for (int k = 0; k < 3; k++) {
        int64_t fair = 20000000 * (k == 2 ? 3 : 1);
        if (s[k].got_ns < fair - 200000 || s[k].got_ns > fair + 200000)
            fail_msg("source %d got %lld of %lld", k, (long long)s[k].got_ns, (long long)fair);
    }
}

// A lane that comes back has not saved up time, and is served at once before a flood.
static void returns(void **state) {
    (void)state;
    struct queue q = {0};
    struct source flood = {.cost_ns = 1000, .guess_ns = 1000};
    serve(&q, &flood, 1, 1000000000);
    struct source rare = {.cost_ns = 1000, .guess_ns = 1000};
    assert_true(push(&q, &rare.lane, &rare.items[0]));
    assert_true(push(&q, &rare.lane, &rare.items[1]));
    // Equal passes take turns: at most one of the flood goes first, then one each.
    int before[2] = {0}, done = 0;
    while (done < 2) {
        struct queue_item *it = queue_first(&q);
        bool mine = it->lane == &rare.lane;
        queue_serve(&q, it, 1000);
        if (mine)
            done++;
        else
            before[done]++;
        if (!mine) assert_true(push(&q, &flood.lane, it));
    }
    assert_true(before[0] <= 1 && before[1] <= 1);
}

// A priority orders its own tenant's work and nobody else's.
static void priority_stays_at_home(void **state) {
    (void)state;
    struct queue q = {0};
    struct queue_lane a = {0}, b = {0};
    struct queue_item loud[10] = {0}, quiet[10] = {0};
    for (int i = 0; i < 10; i++) {
        loud[i].priority = 100;
        push(&q, &a, &loud[i]);
        push(&q, &b, &quiet[i]);
    }
    int served[2] = {0};
    for (int i = 0; i < 10; i++) {
        struct queue_item *it = queue_first(&q);
        served[it->lane == &b]++;
        queue_serve(&q, it, 500);
    }
    assert_int_equal(served[0], 5);
    assert_int_equal(served[1], 5);
}

static void full(void **state) {
    (void)state;
    struct queue q = {.max = 4};
    struct queue_lane a = {0}, b = {0}, heavy = {.weight = 10};
    struct queue_item x[6] = {0}, y[4] = {0}, z[4] = {0}, *victim;
    for (int i = 0; i < 4; i++)
        assert_true(push(&q, &a, &x[i]));
    assert_false(queue_push(&q, &a, &x[4], &victim)); // its own lane is the longest
    assert_int_equal(queue_position(&q, &x[4]), -1);
    x[5].priority = 1; // but something less urgent waits there
    assert_true(queue_push(&q, &a, &x[5], &victim));
    assert_ptr_equal(victim, &x[3]);
    assert_ptr_equal(queue_first(&q), &x[5]);
    assert_true(queue_push(&q, &b, &y[0], &victim)); // the flood makes room, down to an equal share
    assert_ptr_equal(victim, &x[2]);
    assert_true(queue_push(&q, &b, &y[1], &victim));
    assert_ptr_equal(victim, &x[1]);
    assert_false(queue_push(&q, &b, &y[2], &victim));
    assert_null(victim);
    assert_true(queue_push(&q, &heavy, &z[0], &victim)); // weights count
    assert_true(queue_push(&q, &heavy, &z[1], &victim));
    assert_int_equal(a.n, 1);
    assert_int_equal(b.n, 1);
    assert_true(queue_push(&q, &heavy, &z[2], &victim));
    assert_int_equal(q.n, 4);
}

int main(void) {
    const struct CMUnitTest t[] = {
        cmocka_unit_test(order), cmocka_unit_test(shares), cmocka_unit_test(returns),
        cmocka_unit_test(priority_stays_at_home), cmocka_unit_test(full)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
