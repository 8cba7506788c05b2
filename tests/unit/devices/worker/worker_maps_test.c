// SPDX-License-Identifier: Apache-2.0
// Mappings of tensor memory are kept from call to call: of many memfds that come in turn, of as
// many as there is room for when there are more, and of others when those have not come for long.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/worker/worker_maps.h"
#include "proto/frame.h"

enum { MB = 1 << 20, MOST = 100 };
static uint64_t call;

// Maps memfds [0, n) in turn, and lets go of what is not kept. How many were?
static int kept_in_turn(const int *fd, int n, size_t bytes) {
    int kept = 0;
    for (int k = 0; k < n; k++) {
        struct span all;
        bool stays;
        status_t st = worker_map(fd[k], k % 2, ++call, &all, &stays);
        if (st) fail_msg("%s", st_message(st));
        assert_int_equal(all.n, bytes);
        *(volatile const uint8_t *)all.p;
        kept += stays;
        if (!stays) frame_unmap((void *)(uintptr_t)all.p, all.n);
    }
    return kept;
}
static void open_all(int *fd, int n, int64_t bytes) {
    for (int k = 0; k < n; k++) {
        status_t st = frame_memfd("test", bytes, &fd[k]);
        if (st) fail_msg("%s", st_message(st));
    }
}
static void close_all(const int *fd, int n) {
    for (int k = 0; k < n; k++)
        close(fd[k]);
}

static void test_many(void **state) {
    (void)state;
    int fd[MOST];
    open_all(fd, MOST, MB / 8);
    for (int turn = 0; turn < 3; turn++)
        assert_int_equal(kept_in_turn(fd, MOST, MB / 8), MOST);
    struct span first, again;
    bool kept;
    assert_null(worker_map(fd[0], false, ++call, &first, &kept));
    for (int turn = 0; turn < 3; turn++)
        (void)kept_in_turn(fd, MOST, MB / 8);
    assert_null(worker_map(fd[0], false, ++call, &again, &kept));
    assert_ptr_equal(first.p, again.p);
    close_all(fd, MOST);
}
static void test_more_than_there_is_room_for(void **state) {
    (void)state;
    int old[40], fd[MOST];
    open_all(old, 40, MB);
    (void)kept_in_turn(old, 40, MB);
    close_all(old, 40);
    open_all(fd, MOST, MB);
    int kept = 0;
    for (int turn = 0; turn < 12; turn++) // what is not asked for any more goes
        kept = kept_in_turn(fd, MOST, MB);
    assert_in_range(kept, 60, 64);
    close_all(fd, MOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_more_than_there_is_room_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
