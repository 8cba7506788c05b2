// SPDX-License-Identifier: Apache-2.0
// Each place that room gives is the lowest that is free, as a walk over all places given before it
// finds it: lives of all lengths, sizes with and without fragments, none.
#include "compiler/plan/room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

struct given {
    int first, last;
    int64_t from, size;
};
static int64_t lowest(const struct given *v, int n, const struct given *x) {
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < n; k++) {
            bool together = v[k].first <= x->last && x->first <= v[k].last;
            if (!together || at >= v[k].from + v[k].size || v[k].from >= at + x->size) continue;
            at = v[k].from + v[k].size;
            moved = true;
        }
    }
    return at;
}
static uint32_t next(uint32_t *state, uint32_t below) {
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % below;
}
static void gives_the_lowest_place(void **state) {
    enum { MOST = 400 };
    (void)state;
    uint32_t r = 1;
    for (int round = 0; round < 60; round++) {
        struct arena *a = arena_new();
        struct given v[MOST];
        int steps = 1 + (int)next(&r, round % 2 ? 200u : 9u), longest = 1 + round % 7 * steps / 6;
        struct room *room = room_new(a, steps);
        for (int n = 0; n < MOST; n++) {
            struct given *x = &v[n];
            x->first = (int)next(&r, (uint32_t)steps);
            x->last = x->first + (int)next(&r, (uint32_t)longest);
            if (x->last >= steps) x->last = steps - 1;
            x->size = round % 3 ? 64 * (int)next(&r, 9) : 4000 - 64 * (n / 8);
            x->from = room_take(room, x->first, x->last, x->size);
            assert_int_equal(x->from, lowest(v, n, x));
        }
        arena_free(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gives_the_lowest_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
