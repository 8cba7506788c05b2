// SPDX-License-Identifier: Apache-2.0
// Which executable goes: a model whose inputs grow lets go of its own shapes, models go by their
// last use, and weights that a model's shapes share are not spare.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/worker/worker_room.h"

static struct room_item items[64];

static struct digest named(int kind, int n) {
    struct digest d = {{0}};
    d.b[0] = (uint8_t)kind;
    d.b[1] = (uint8_t)n;
    return d;
}
// Item n, of the program `program` (0: not known), with so much of its own.
static struct room_item *put(struct room *r, int n, int program, int64_t bytes) {
    struct room_item *i = &items[n];
    *i = (struct room_item){.key = named(1, n)};
    room_add(r, i, program ? named(2, program) : (struct digest){{0}});
    room_weigh(i, bytes, bytes);
    return i;
}
static void empty(struct room *r) {
    while (r->items.n)
        room_del(r, r->items.v[0]);
    assert_int_equal(r->models.n, 0);
    room_done(r);
}

static void test_growing_model_pushes_out_its_own(void **state) {
    (void)state;
    struct room r = {0};
    struct room_item *other = put(&r, 0, 1, 1000);
    for (int k = 1; k <= 40; k++)
        put(&r, k, 2, 10);
    assert_int_equal(room_spare(&r), 390);
    assert_ptr_equal(room_oldest(&r), other);
    for (int k = 1; k < 40; k++) {
        assert_ptr_equal(room_oldest_spare(&r), &items[k]);
        room_del(&r, &items[k]);
    }
    assert_int_equal(room_spare(&r), 0);
    assert_null(room_oldest_spare(&r)); // each is its model's last
    empty(&r);
}

static void test_use_is_what_counts(void **state) {
    (void)state;
    struct room r = {0};
    for (int k = 0; k < 4; k++)
        put(&r, k, 1, 10);
    room_use(&r, &items[0]);
    assert_ptr_equal(room_find(&r, named(1, 0)), &items[0]);
    assert_null(room_find(&r, named(1, 9)));
    assert_ptr_equal(room_oldest_spare(&r), &items[1]);
    items[1].pinned = true;
    assert_ptr_equal(room_oldest_spare(&r), &items[2]);
    room_del(&r, &items[0]); // the newest: the one before it is, from then on
    assert_int_equal(room_spare(&r), 20);
    room_del(&r, &items[2]);
    room_del(&r, &items[1]);
    assert_null(room_oldest_spare(&r));
    empty(&r);
}

// The first counts what all read; the newest needs it too, so it will not be free.
static void test_shared_weights_are_not_spare(void **state) {
    (void)state;
    struct room r = {0};
    room_weigh(put(&r, 0, 1, 0), 1010, 1010);
    for (int k = 1; k < 5; k++)
        room_weigh(put(&r, k, 1, 0), 10, 1010);
    assert_int_equal(room_spare(&r), 40);
    room_del(&r, &items[0]);
    room_weigh(&items[1], 1010, 1010); // counted there now
    assert_int_equal(room_spare(&r), 30);
    empty(&r);
}

static void test_who_keeps_most_lets_go(void **state) {
    (void)state;
    struct room r = {0};
    put(&r, 0, 1, 10);
    put(&r, 1, 1, 10);
    put(&r, 2, 2, 500);
    put(&r, 3, 2, 500);
    put(&r, 4, 0, 9000); // no program is said: models of their own
    put(&r, 5, 0, 9000);
    assert_int_equal(r.models.n, 4);
    assert_int_equal(room_spare(&r), 510);
    assert_ptr_equal(room_oldest_spare(&r), &items[2]);
    empty(&r);
}

static void test_models_go_by_their_last_use(void **state) {
    (void)state;
    struct room r = {0};
    put(&r, 0, 1, 10);
    put(&r, 1, 2, 10);
    put(&r, 2, 1, 10);
    assert_ptr_equal(room_of_oldest_model(&r), &items[1]);
    room_use(&r, &items[1]);
    assert_ptr_equal(room_of_oldest_model(&r), &items[0]);
    items[0].pinned = items[2].pinned = true;
    assert_null(room_of_oldest_model(&r));
    assert_ptr_equal(room_oldest(&r), &items[1]);
    empty(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing_model_pushes_out_its_own),
        cmocka_unit_test(test_use_is_what_counts),
        cmocka_unit_test(test_shared_weights_are_not_spare),
        cmocka_unit_test(test_who_keeps_most_lets_go),
        cmocka_unit_test(test_models_go_by_their_last_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
