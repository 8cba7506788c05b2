// SPDX-License-Identifier: Apache-2.0
// Placement: warm before cold, free before busy, waiting against never.
#include "scheduler/queue/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct place_worker cpu(void) {
    return (struct place_worker){
        .role = ROLE_DEVICE, .kind = "cpu", .name = "cpu:0", .ready = true, .max_calls = 2};
}
static const struct place_want any = {.role = ROLE_DEVICE, .device = ""};

static void prefers(void **state) {
    (void)state;
    struct place_worker w[3] = {cpu(), cpu(), cpu()};
    assert_int_equal(place_choose(&any, w, 3), 0);
    w[0].calls = 1;
    assert_int_equal(place_choose(&any, w, 3), 1);
    w[2].has_executable = true;
    w[2].calls = 1;
    assert_int_equal(place_choose(&any, w, 3), 2);
    w[0].has_prepared = true;
    assert_int_equal(place_choose(&any, w, 3), 0);
    w[0].calls = 2; // warm but full: a cold free one is better than a queue
    assert_int_equal(place_choose(&any, w, 3), 2);
    w[2].held = true; // by who knows how long
    assert_int_equal(place_choose(&any, w, 3), 1);
    w[1].calls = 2;
    assert_int_equal(place_choose(&any, w, 3), 2); // nobody else has room
    w[0].calls = 1, w[0].held = true;
    assert_int_equal(place_choose(&any, w, 3), 0); // of those the warm one
}

// A relief takes brief work, while nobody else is there that is not held.
static void relieved(void **state) {
    (void)state;
    struct place_worker w[2] = {cpu(), cpu()};
    struct place_want brief = any;
    brief.expected_ns = 1000, brief.relief_ns = 5000;
    w[1].relief = w[1].spare = true;
    w[1].ready = false;
    assert_int_equal(place_choose(&brief, w, 2), 0);
    w[0].calls = 1, w[0].held = true;
    assert_int_equal(place_choose(&any, w, 2), 0); // not known to be brief: behind it
    assert_int_equal(place_choose(&brief, w, 2), PLACE_WAIT);
    assert_int_equal(place_relief(&brief, w, 2), -1); // not yet
    w[0].stuck = true;
    assert_int_equal(place_relief(&any, w, 2), -1);
    assert_int_equal(place_relief(&brief, w, 2), 1);
    w[1].spare = false; // starts
    assert_int_equal(place_relief(&brief, w, 2), -1);
    assert_int_equal(place_choose(&brief, w, 2), PLACE_WAIT);
    w[1].ready = true;
    assert_int_equal(place_choose(&brief, w, 2), 1);
    assert_int_equal(place_choose(&any, w, 2), 0);
    w[0].calls = 2;
    assert_int_equal(place_choose(&any, w, 2), PLACE_WAIT);
    w[0].ready = false; // lost, starts again
    assert_int_equal(place_choose(&brief, w, 2), 1);
    w[0] = cpu();
    w[0].calls = 2; // busy, not held: warm, and soon free
    assert_int_equal(place_choose(&brief, w, 2), 0);
    w[0].calls = PLACE_BRIEF_CALLS;
    assert_int_equal(place_choose(&brief, w, 2), PLACE_WAIT);
    w[0].calls = 0;
    assert_int_equal(place_choose(&brief, w, 2), 0);
    brief.pinned = 2; // resident buffers lie there
    assert_int_equal(place_choose(&brief, w, 2), 1);
    // Where it has no memory, or gave up, work goes as without it.
    brief.pinned = 0;
    w[0].calls = 1, w[0].held = w[0].stuck = true;
    w[1].needed_bytes = 10, w[1].memory_bytes = 5;
    assert_int_equal(place_choose(&brief, w, 2), 0);
    w[1].needed_bytes = 0, w[1].hopeless = true;
    assert_int_equal(place_choose(&brief, w, 2), 0);
    w[0].hopeless = true;
    assert_int_equal(place_choose(&brief, w, 2), PLACE_NEVER);
    w[0].hopeless = false, w[0].drained = true, w[1].hopeless = false, w[1].spare = true;
    assert_int_equal(place_choose(&any, w, 2), 0); // a drained one, where there is no other
}

// Of compiles nobody knows how long they take: each may go to the relief, what that gave up may
// not.
static void compiles_relieved(void **state) {
    (void)state;
    struct place_worker w[2] = {cpu(), cpu()};
    struct place_want first = {.role = ROLE_COMPILE, .device = "cpu", .relief_ns = 1000}, moved;
    moved = first, moved.moved = true;
    for (int i = 0; i < 2; i++)
        w[i].role = ROLE_COMPILE, w[i].max_calls = 1;
    w[1].relief = w[1].spare = true, w[1].ready = false;
    w[0].calls = 1, w[0].held = true;
    assert_int_equal(place_choose(&first, w, 2), PLACE_WAIT);
    assert_int_equal(place_relief(&first, w, 2), -1);
    w[0].stuck = true;
    assert_int_equal(place_relief(&first, w, 2), 1);
    assert_int_equal(place_relief(&moved, w, 2), -1);
    w[1].spare = false, w[1].ready = true;
    assert_int_equal(place_choose(&first, w, 2), 1);
    assert_int_equal(place_choose(&moved, w, 2), PLACE_WAIT);
    w[1].calls = 1;
    assert_int_equal(place_relief(&first, w, 2), -1); // busy, for a moment
    w[1].stuck = true;
    assert_int_equal(place_relief(&first, w, 2), 1); // is to give up what it does
    assert_int_equal(place_relief(&moved, w, 2), -1);
    w[0].stuck = false; // began another piece of work: soon done, perhaps
    assert_int_equal(place_relief(&first, w, 2), -1);
    w[0].calls = 0, w[0].held = false;
    assert_int_equal(place_choose(&moved, w, 2), 0);
    first.relief_ns = 0;
    w[0].calls = 1;
    w[1].calls = 0;
    assert_int_equal(place_choose(&first, w, 2), PLACE_WAIT);
}

// Workers of tenants: one's own, nobody's, a spare one, the one that was idle for longest.
static void by_tenant(void **state) {
    (void)state;
    struct place_worker w[4] = {cpu(), cpu(), cpu(), cpu()};
    struct place_want a = any;
    a.tenant = "a";
    for (int k = 0; k < 4; k++)
        w[k].tenant = "";
    w[0].tenant = "b";
    w[1].spare = true;
    w[1].ready = false;
    assert_int_equal(place_choose(&a, w, 4), 2); // nobody's
    w[2].tenant = "c";
    w[3].tenant = "d";
    assert_int_equal(place_choose(&a, w, 4), 1); // spare
    assert_false(place_is_mine(&a, &w[1]));
    w[1].spare = false;
    w[1].tenant = "e"; // starting
    assert_int_equal(place_choose(&a, w, 4), PLACE_WAIT);
    w[0].idle = w[2].idle = w[3].idle = true;
    w[0].used = 30, w[2].used = 10, w[3].used = 20;
    assert_int_equal(place_choose(&a, w, 4), 2);
    assert_false(place_is_mine(&a, &w[2]));
    w[1].tenant = "a"; // its own is starting: no other is taken for it
    assert_int_equal(place_choose(&a, w, 4), PLACE_WAIT);
    w[1].ready = true;
    assert_int_equal(place_choose(&a, w, 4), 1);
    assert_true(place_is_mine(&a, &w[1]));
    w[0].calls = 2, w[0].planned_bytes = 5; // of the same device: it has no place
    place_group(w, 4);
    assert_int_equal(w[1].calls, 2);
    assert_int_equal(w[3].planned_bytes, 5);
    assert_int_equal(place_choose(&a, w, 4), PLACE_WAIT);
}

static void waits_or_never(void **state) {
    (void)state;
    struct place_worker w[2] = {cpu(), cpu()};
    w[0].ready = false;
    w[1].calls = 2;
    assert_int_equal(place_choose(&any, w, 2), PLACE_WAIT);
    w[0].hopeless = w[1].hopeless = true;
    assert_int_equal(place_choose(&any, w, 2), PLACE_NEVER);
    assert_int_equal(place_choose(&any, w, 0), PLACE_NEVER);
    const struct place_want compile = {.role = ROLE_COMPILE, .device = ""},
                            tpu = {.role = ROLE_DEVICE, .device = "tpu"},
                            named = {.role = ROLE_DEVICE, .device = "cpu:0"};
    w[0] = w[1] = cpu();
    assert_int_equal(place_choose(&compile, w, 2), PLACE_NEVER);
    assert_int_equal(place_choose(&tpu, w, 2), PLACE_NEVER);
    assert_int_equal(place_choose(&named, w, 2), 0);
}

static void alone(void **state) {
    (void)state;
    const struct place_want lengthy = {.role = ROLE_DEVICE, .device = "", .alone = true};
    struct place_worker w[2] = {cpu(), cpu()};
    w[0].has_prepared = true;
    w[0].calls = 1; // a short run may go behind it, a long one goes elsewhere
    assert_int_equal(place_choose(&any, w, 2), 0);
    assert_int_equal(place_choose(&lengthy, w, 2), 1);
    w[1].calls = 1;
    assert_int_equal(place_choose(&lengthy, w, 2), PLACE_WAIT);
}

static void brief(void **state) {
    (void)state;
    const struct place_want quick = {
        .role = ROLE_DEVICE, .device = "", .expected_ns = PLACE_BRIEF_NS / 4};
    struct place_worker w = cpu();
    w.calls = 2;
    w.expected_ns = PLACE_BRIEF_NS / 2;
    assert_int_equal(place_choose(&any, &w, 1), PLACE_WAIT);
    assert_int_equal(place_choose(&quick, &w, 1), 0);
    w.calls = PLACE_BRIEF_CALLS;
    assert_int_equal(place_choose(&quick, &w, 1), PLACE_WAIT);
    w.calls = 2;
    w.expected_ns = PLACE_BRIEF_NS; // behind long work nothing queues up
    assert_int_equal(place_choose(&quick, &w, 1), PLACE_WAIT);
}

static void memory(void **state) {
    (void)state;
    struct place_worker w[2] = {cpu(), cpu()};
    w[0].memory_bytes = 100;
    w[0].needed_bytes = w[0].alone_bytes = 60;
    assert_int_equal(place_choose(&any, w, 1), 0);
    w[0].planned_bytes = 40;
    assert_int_equal(place_choose(&any, w, 1), 0);
    w[0].planned_bytes = 41; // waits for memory, not for a place
    assert_int_equal(place_choose(&any, w, 1), PLACE_MEMORY);
    assert_int_equal(place_choose(&any, w, 2), 1); // another worker has room
    w[1].ready = false;
    assert_int_equal(place_choose(&any, w, 2), PLACE_MEMORY);
    w[0].ready = false;
    assert_int_equal(place_choose(&any, w, 2), PLACE_WAIT);
    w[0] = cpu();
    w[0].memory_bytes = 50;
    w[0].alone_bytes = 60;
    assert_int_equal(place_choose(&any, w, 1), PLACE_TOO_LARGE);
    assert_int_equal(place_choose(&any, w, 2), PLACE_WAIT); // the other one will be up again
    w[1].hopeless = true;
    assert_int_equal(place_choose(&any, w, 2), PLACE_TOO_LARGE);
}

// What a worker holds can only be read there, however busy it is.
static void pinned(void **state) {
    (void)state;
    struct place_worker w[3];
    for (int k = 0; k < 3; k++)
        w[k] = (struct place_worker){
            .role = ROLE_DEVICE, .kind = "cpu", .name = "cpu:0", .ready = true, .max_calls = 2};
    struct place_want want = {.role = ROLE_DEVICE, .device = "", .pinned = 2};
    assert_int_equal(place_choose(&want, w, 3), 1);
    w[1].calls = 2;
    assert_int_equal(place_choose(&want, w, 3), PLACE_WAIT);
    w[1].calls = 0;
    w[1].ready = false;
    assert_int_equal(place_choose(&want, w, 3), PLACE_WAIT);
    w[1].hopeless = true;
    assert_int_equal(place_choose(&want, w, 3), PLACE_NEVER);
}

// A device that somebody lends takes work for its kind, of its owner's tenant.
static void lent(void **state) {
    (void)state;
    struct place_worker w[2] = {cpu(), cpu()};
    w[1].kind = "web", w[1].name = "web:0", w[1].asked_only = true, w[1].owner = "one";
    struct place_want want = {.role = ROLE_DEVICE, .device = "web", .owner = "one"};
    assert_int_equal(place_choose(&want, w, 2), 1);
    want.device = "web:0";
    assert_int_equal(place_choose(&want, w, 2), 1);
    want.owner = "two";
    assert_int_equal(place_choose(&want, w, 2), PLACE_NEVER);
    want.pinned = 2;
    assert_int_equal(place_choose(&want, w, 2), PLACE_NEVER);
    want = (struct place_want){.role = ROLE_DEVICE, .device = "", .owner = "one"};
    assert_int_equal(place_choose(&want, w, 2), 0);
    w[0].calls = w[0].max_calls;
    assert_int_equal(place_choose(&want, w, 2), PLACE_WAIT);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(prefers),
                                   cmocka_unit_test(relieved),
                                   cmocka_unit_test(compiles_relieved),
                                   cmocka_unit_test(waits_or_never),
                                   cmocka_unit_test(by_tenant),
                                   cmocka_unit_test(alone),
                                   cmocka_unit_test(brief),
                                   cmocka_unit_test(memory),
                                   cmocka_unit_test(pinned),
                                   cmocka_unit_test(lent)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
