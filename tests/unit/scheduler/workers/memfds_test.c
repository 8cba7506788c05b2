// SPDX-License-Identifier: Apache-2.0
// Kept memory goes to the same worker and tenant only, never after a death, never beyond the
// budget, and never while somebody still holds it.
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/workers/memfds.h"

enum { MB = 1 << 20 };

static struct memfd *take(struct memfds *p, int owner, uint64_t tenant, int64_t bytes) {
    struct memfd *m = NULL;
    status_t st = memfds_take(p, owner, tenant, bytes, &m);
    if (st) fail_msg("%s", st_message(st));
    return m;
}
static ino_t inode(const struct memfd *m) {
    struct stat sb;
    assert_int_equal(fstat(memfd_fd(m), &sb), 0);
    return sb.st_ino;
}
static int64_t size_of(const struct memfd *m) {
    struct stat sb;
    assert_int_equal(fstat(memfd_fd(m), &sb), 0);
    return sb.st_size;
}
// Puts one back and says whether the next one taken is the same.
static bool same_again(struct memfds *p, struct memfd *m, int owner, uint64_t tenant,
                       int64_t bytes) {
    ino_t before = inode(m);
    memfd_unref(m);
    struct memfd *n = take(p, owner, tenant, bytes);
    bool same = inode(n) == before;
    memfd_unref(n);
    return same;
}

static void test_reuse(void **state) {
    (void)state;
    struct memfds *p = memfds_new(2, 8 * MB);
    assert_true(same_again(p, take(p, 0, 7, MB), 0, 7, MB));
    assert_true(same_again(p, take(p, 0, 7, MB), 0, 7, MB - 1000));   // a little less
    assert_false(same_again(p, take(p, 0, 7, 2 * MB), 0, 7, 200000)); // much less
    assert_false(same_again(p, take(p, 0, 7, 4 * MB), 1, 7, 4 * MB)); // another worker
    assert_false(same_again(p, take(p, 0, 7, 4 * MB), 0, 8, 4 * MB)); // another tenant
    struct memfd *m = take(p, 1, 0, 3 * MB);
    assert_true(size_of(m) >= 3 * MB);
    assert_true(fcntl(memfd_fd(m), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW));
    assert_int_equal(ftruncate(memfd_fd(m), 1), -1);
    memfd_unref(m);
    memfds_free(p);
}

static void test_nobody(void **state) {
    (void)state;
    struct memfds *p = memfds_new(1, 8 * MB);
    struct memfd *m = take(p, MEMFD_NOBODY, 0, MB);
    assert_int_equal(size_of(m), MB);
    int fd = memfd_fd(m);
    memfd_unref(m);
    assert_int_equal(fcntl(fd, F_GETFD), -1); // closed
    assert_int_equal(memfds_kept(p, 0), 0);
    memfds_free(p);
}

static void test_in_use_is_not_given_out(void **state) {
    (void)state;
    struct memfds *p = memfds_new(1, 8 * MB);
    struct memfd *a = take(p, 0, 0, MB), *b = take(p, 0, 0, MB);
    assert_true(inode(a) != inode(b));
    memfd_ref(a); // the worker still has it after its request is gone
    memfd_unref(a);
    struct memfd *c = take(p, 0, 0, MB);
    assert_true(inode(c) != inode(a));
    memfd_unref(a);
    struct memfd *d = take(p, 0, 0, MB);
    assert_ptr_equal(a, d);
    memfd_unref(b);
    memfd_unref(c);
    memfd_unref(d);
    memfds_free(p);
}

static void test_death(void **state) {
    (void)state;
    struct memfds *p = memfds_new(2, 8 * MB);
    struct memfd *out = take(p, 0, 0, MB), *kept = take(p, 0, 0, MB), *other = take(p, 1, 0, MB);
    ino_t of_kept = inode(kept), of_out = inode(out);
    memfd_unref(kept);
    memfd_unref(other);
    memfds_drop(p, 0);
    assert_int_equal(memfds_kept(p, 0), 0);
    assert_int_equal(memfds_kept(p, 1), MB);
    memfd_unref(out); // was with the worker when it died
    assert_int_equal(memfds_kept(p, 0), 0);
    struct memfd *fresh = take(p, 0, 0, MB);
    char byte = 1;
    assert_int_equal(pread(memfd_fd(fresh), &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    (void)of_kept, (void)of_out; // numbers of closed inodes may come again
    memfd_unref(fresh);
    assert_int_equal(memfds_kept(p, 0), MB);
    memfds_free(p);
}

static void test_budget(void **state) {
    (void)state;
    struct memfds *p = memfds_new(1, 4 * MB), *none = memfds_new(1, 0);
    struct memfd *m[6];
    for (int k = 0; k < 6; k++)
        m[k] = take(p, 0, 0, MB);
    ino_t last = inode(m[5]), first = inode(m[0]);
    for (int k = 0; k < 6; k++)
        memfd_unref(m[k]);
    assert_int_equal(memfds_kept(p, 0), 4 * MB);
    bool seen_last = false, seen_first = false;
    for (int k = 0; k < 4; k++) {
        m[k] = take(p, 0, 0, MB);
        seen_last |= inode(m[k]) == last;
        seen_first |= inode(m[k]) == first;
    }
    assert_true(seen_last && !seen_first); // the oldest went
    for (int k = 0; k < 4; k++)
        memfd_unref(m[k]);
    struct memfd *huge = take(p, 0, 0, 5 * MB);
    assert_int_equal(size_of(huge), 5 * MB); // not rounded up: it will not be kept
    memfd_unref(huge);
    assert_int_equal(memfds_kept(p, 0), 4 * MB);
    memfd_unref(take(none, 0, 0, MB));
    assert_int_equal(memfds_kept(none, 0), 0);
    status_t st = memfds_take(p, 0, 0, 0, &huge);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
    memfds_free(p);
    memfds_free(none);
}

static void test_pool_goes_first(void **state) {
    (void)state;
    struct memfds *p = memfds_new(1, 4 * MB);
    struct memfd *m = take(p, 0, 0, MB);
    int fd = memfd_fd(m);
    memfds_free(p);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    memfd_unref(m);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void *hammer(void *arg) {
    struct memfds *p = arg;
    for (int k = 0; k < 2000; k++) {
        struct memfd *m = NULL;
        status_t st = memfds_take(p, k & 1, 0, 100000 + k * 50, &m);
        if (st) return st_drop(st), NULL;
        memfd_ref(m);
        if (k % 100 == 0) memfds_drop(p, 0);
        memfd_unref(m);
        memfd_unref(m);
    }
    return arg;
}
static void test_threads(void **state) {
    (void)state;
    struct memfds *p = memfds_new(2, 2 * MB);
    pthread_t t[3];
    void *done;
    for (int k = 0; k < 3; k++)
        assert_int_equal(pthread_create(&t[k], NULL, hammer, p), 0);
    for (int k = 0; k < 3; k++) {
        pthread_join(t[k], &done);
        assert_ptr_equal(done, p);
    }
    memfds_free(p);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_reuse),
                                              cmocka_unit_test(test_nobody),
                                              cmocka_unit_test(test_in_use_is_not_given_out),
                                              cmocka_unit_test(test_death),
                                              cmocka_unit_test(test_budget),
                                              cmocka_unit_test(test_pool_goes_first),
                                              cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
