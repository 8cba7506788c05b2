// SPDX-License-Identifier: Apache-2.0
// Whole files: limits to the byte, pipes, what is not there; a map lives as long as its arena.
#include "base/store/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/hlod-file-XXXXXX";

static int make(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}
static int drop(void **state) {
    (void)state;
    return unlink(path);
}
static void put(size_t n) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (size_t k = 0; k < n; k++)
        fputc('a' + (int)(k % 23), f);
    assert_int_equal(fclose(f), 0);
}
static void check(struct str s, size_t n) {
    assert_int_equal(s.n, n);
    for (size_t k = 0; k < n; k++)
        assert_int_equal(s.p[k], 'a' + (int)(k % 23));
    assert_int_equal(s.p[n], 0);
}

static void reads_up_to_the_limit(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4095, 4096, 100000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct arena a = {0};
        struct str s;
        unsigned mode = 0;
        put(sizes[k]);
        assert_int_equal(chmod(path, 0640), 0);
        assert_null(file_read(&a, path, sizes[k], &mode, &s));
        check(s, sizes[k]);
        assert_int_equal(mode & 0777, 0640);
        assert_null(file_read(&a, path, SIZE_MAX / 4, NULL, &s));
        check(s, sizes[k]);
        if (sizes[k]) {
            status_t st = file_read(&a, path, sizes[k] - 1, NULL, &s);
            assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
            st_drop(st);
        }
        arena_done(&a);
    }
}

static void reads_a_pipe_to_its_end(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 8191, 8192, 50000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct arena a = {0};
        struct str s;
        int fd[2];
        char name[32];
        put(sizes[k]);
        assert_int_equal(pipe(fd), 0);
        struct str whole;
        assert_null(file_read(&a, path, 1 << 20, NULL, &whole));
        assert_int_equal(write(fd[1], whole.p, whole.n), (ssize_t)whole.n);
        close(fd[1]);
        snprintf(name, sizeof name, "/dev/fd/%d", fd[0]);
        assert_null(file_read(&a, name, 50000, NULL, &s));
        check(s, sizes[k]);
        close(fd[0]);
        arena_done(&a);
    }
}

static void says_what_is_wrong(void **state) {
    (void)state;
    struct arena a = {0};
    struct str s;
    struct span b;
    status_t st = file_read(&a, "/nonexistent/x", 10, NULL, &s);
    assert_int_equal(st_code(st), ST_NOT_FOUND);
    assert_non_null(strstr(st_message(st), "/nonexistent/x"));
    st_drop(st);
    assert_non_null(st = file_read(&a, "/tmp", 1 << 20, NULL, &s)); // a folder
    st_drop(st);
    assert_non_null(st = file_map(&a, "/tmp", &b));
    st_drop(st);
    put(0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_non_null(st = file_map(&a, path, &b)); // at once: nobody writes into it
    assert_non_null(strstr(st_message(st), "a pipe or a device"));
    st_drop(st);
    assert_int_equal(unlink(path), 0);
    arena_done(&a);
}

static void maps(void **state) {
    (void)state;
    struct arena a = {0};
    struct span b;
    put(0);
    assert_null(file_map(&a, path, &b));
    assert_int_equal(b.n, 0);
    put(70000);
    assert_null(file_map(&a, path, &b));
    assert_int_equal(b.n, 70000);
    assert_int_equal(b.p[69999], 'a' + 69999 % 23);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_up_to_the_limit), cmocka_unit_test(reads_a_pipe_to_its_end),
        cmocka_unit_test(says_what_is_wrong), cmocka_unit_test(maps)};
    return cmocka_run_group_tests(tests, make, drop);
}
