// SPDX-License-Identifier: Apache-2.0
// The table of a cluster's nodes: who is there, lost, gone; its bound.
#include "scheduler/cluster/nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/message.h"

static const int64_t MS = 1000000;

static enum nodes_news hear(struct nodes *t, const char *node, const char *life, const char *state,
                            int64_t now) {
    struct arena *a = arena_new();
    Hlod__V1__Node *m = message_new(a, &hlod__v1__node__descriptor);
    m->node = arena_strdup(a, node);
    m->life = arena_strdup(a, life);
    m->state = arena_strdup(a, state);
    m->beat_ms = 100;
    return nodes_hear(t, a, m, now);
}
static void count(void *ctx, const struct node *x) {
    (void)x;
    ++*(int *)ctx;
}

static void life(void **state) {
    (void)state;
    struct nodes t = {0};
    int lost = 0;
    assert_int_equal(hear(&t, "b", "1", "starting", 0), NODES_NEW);
    assert_int_equal(hear(&t, "a", "1", "serving", 0), NODES_NEW);
    assert_int_equal(hear(&t, "b", "1", "serving", 100 * MS), NODES_STATE);
    assert_int_equal(hear(&t, "b", "1", "serving", 200 * MS), NODES_SAME);
    assert_string_equal(t.v.v[0]->m->node, "a");
    nodes_age(&t, 300 * MS, count, &lost);
    assert_int_equal(lost, 0);
    nodes_age(&t, 301 * MS, count, &lost); // a: three beats
    nodes_age(&t, 302 * MS, count, &lost);
    assert_int_equal(lost, 1);
    assert_string_equal(node_state(nodes_find(&t, "a")), "lost");
    assert_int_equal(hear(&t, "a", "1", "serving", 400 * MS), NODES_BACK);

    assert_int_equal(hear(&t, "b", "0", "gone", 400 * MS), NODES_STRANGER); // not that process
    assert_string_equal(node_state(nodes_find(&t, "b")), "serving");
    assert_int_equal(hear(&t, "b", "2", "starting", 400 * MS), NODES_NEW); // a new one
    assert_int_equal(hear(&t, "b", "2", "gone", 500 * MS), NODES_GONE);
    assert_int_equal(hear(&t, "c", "1", "gone", 500 * MS), NODES_STRANGER);
    nodes_age(&t, 5000 * MS, count, &lost); // who is gone is not lost; a is
    assert_int_equal(lost, 2);
    assert_string_equal(node_state(nodes_find(&t, "b")), "gone");
    assert_int_equal(hear(&t, "b", "2", "serving", 5000 * MS), NODES_NEW);
    nodes_age(&t, INT64_C(700000) * MS, count, &lost); // a is forgotten, b lost
    assert_null(nodes_find(&t, "a"));
    assert_int_equal(t.v.n, 1);
    nodes_done(&t);
}

static void excused(void **state) {
    (void)state;
    struct nodes t = {0};
    int lost = 0;
    hear(&t, "a", "1", "serving", 0);
    nodes_excuse(&t, 9000 * MS);
    nodes_age(&t, 9200 * MS, count, &lost);
    assert_int_equal(lost, 0);
    nodes_age(&t, 9400 * MS, count, &lost);
    assert_int_equal(lost, 1);
    nodes_excuse(&t, 9500 * MS);
    assert_string_equal(node_state(nodes_find(&t, "a")), "lost");
    nodes_done(&t);
}

static void sent(void **state) {
    (void)state;
    struct nodes t = {0};
    hear(&t, "a", "1", "serving", 0);
    t.v.v[0]->sent = 2;
    nodes_ended(&t, "a", "1");
    nodes_ended(&t, "a", "0"); // of the process before it
    nodes_ended(&t, "b", "1");
    assert_int_equal(nodes_find(&t, "a")->sent, 1);
    hear(&t, "a", "1", "serving", 100 * MS); // which counts the other one
    nodes_ended(&t, "a", "1");
    assert_int_equal(nodes_find(&t, "a")->sent, -1);
    nodes_done(&t);
}

static void bounded(void **state) {
    (void)state;
    struct nodes t = {0};
    char name[20];
    int lost = 0;
    for (int k = 0; k < NODES_MAX; k++) {
        snprintf(name, sizeof name, "n%d", k);
        assert_int_equal(hear(&t, name, "1", "serving", k), NODES_NEW);
    }
    assert_int_equal(hear(&t, "more", "1", "serving", 0), NODES_FULL);
    assert_int_equal(hear(&t, "n5", "1", "serving", 1), NODES_SAME); // who is there stays
    nodes_age(&t, 300 * MS + 3, count, &lost);                       // n0, n1, n2 and n5
    assert_int_equal(lost, 4);
    assert_int_equal(hear(&t, "more", "1", "serving", 400 * MS), NODES_NEW);
    assert_null(nodes_find(&t, "n0")); // lost for longest
    assert_non_null(nodes_find(&t, "n1"));
    assert_int_equal(t.v.n, NODES_MAX);
    for (size_t k = 1; k < t.v.n; k++)
        assert_true(strcmp(t.v.v[k - 1]->m->node, t.v.v[k]->m->node) < 0);
    nodes_done(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(life), cmocka_unit_test(excused),
                                       cmocka_unit_test(sent), cmocka_unit_test(bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
