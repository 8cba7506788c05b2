// SPDX-License-Identifier: Apache-2.0
// Frames: round trip with and without descriptors, long bodies through a memfd, what a broken peer
// may send.
#include "proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static struct frame_buf *buf;

static int setup(void **state) {
    (void)state;
    buf = frame_buf_new();
    return frame_pair(pair) != ST_OK;
}
static int teardown(void **state) {
    (void)state;
    close(pair[0]);
    close(pair[1]);
    frame_buf_free(buf);
    return 0;
}
static void ok(status_t s) {
    if (s) fail_msg("%s", st_message(s));
}
static void is(status_t s, enum status_code c) {
    assert_int_equal(st_code(s), c);
    st_drop(s);
}

static void small_body(void **state) {
    (void)state;
    ok(frame_send(pair[0], 7, 42, (struct span){(const uint8_t *)"hello", 5}, NULL, 0, -1));
    struct frame f;
    ok(frame_recv(pair[1], buf, -1, &f));
    assert_int_equal(f.type, 7);
    assert_int_equal(f.call, 42);
    assert_int_equal(f.n_fds, 0);
    assert_int_equal(f.body.n, 5);
    assert_memory_equal(f.body.p, "hello", 5);
    frame_done(&f);
}

static void body_lengths(void **state) {
    (void)state;
    const size_t sizes[] = {
        0, 1, FRAME_MAX_BYTES - 33, FRAME_MAX_BYTES - 32, FRAME_MAX_BYTES - 31, 3 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint8_t *p = malloc(sizes[k] + 1);
        for (size_t i = 0; i < sizes[k]; i++)
            p[i] = (uint8_t)(i * 31 + k);
        int mem;
        ok(frame_memfd("t", 10, &mem));
        ok(frame_send(pair[0], 1, k, (struct span){p, sizes[k]}, &mem, 1, -1));
        close(mem);
        struct frame f;
        ok(frame_recv(pair[1], buf, 1000, &f));
        assert_int_equal(f.body.n, sizes[k]);
        if (sizes[k]) assert_memory_equal(f.body.p, p, sizes[k]);
        assert_int_equal(f.n_fds, 1); // the body's own descriptor does not show
        int fd = frame_take_fd(&f, 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(frame_take_fd(&f, 0), -1);
        frame_done(&f);
        assert_int_equal(lseek(fd, 0, SEEK_END), 10);
        close(fd);
        free(p);
    }
}

static void limits(void **state) {
    (void)state;
    int fds[FRAME_MAX_FDS + 1];
    for (int i = 0; i <= FRAME_MAX_FDS; i++)
        fds[i] = 0;
    is(frame_send(pair[0], 1, 1, (struct span){0}, fds, FRAME_MAX_FDS + 1, -1),
       ST_INVALID_ARGUMENT);
    is(frame_send(pair[0], 1, 1, (struct span){(const uint8_t *)"", (size_t)FRAME_MAX_BODY + 1},
                  NULL, 0, -1),
       ST_INVALID_ARGUMENT);
    struct frame f;
    is(frame_recv(pair[1], buf, 0, &f), ST_DEADLINE_EXCEEDED);
    status_t s = ST_OK; // a full socket does not block
    for (int i = 0; i < 100000 && !s; i++)
        s = frame_send(pair[0], 1, 1, (struct span){buf ? (const uint8_t *)"x" : NULL, 1}, NULL, 0,
                       0);
    is(s, ST_DEADLINE_EXCEEDED);
}

static void peer_gone(void **state) {
    (void)state;
    close(pair[0]);
    struct frame f;
    ok(frame_recv(pair[1], buf, -1, &f));
    assert_int_equal(f.type, 0);
    is(frame_send(pair[1], 1, 1, (struct span){0}, NULL, 0, -1), ST_UNAVAILABLE);
    pair[0] = dup(pair[1]);
}

static void garbage(void **state) {
    (void)state;
    uint8_t junk[64];
    struct frame f;
    for (int seed = 0; seed < 200; seed++) {
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = (uint8_t)((size_t)seed * 131 + i * 17);
        if (seed & 1) memcpy(junk, "HLF1", 4);
        assert_true(send(pair[0], junk, (size_t)(1 + seed % 64), 0) > 0);
        is(frame_recv(pair[1], buf, -1, &f), ST_DATA_LOSS);
    }
}

static void mapping_checks(void **state) {
    (void)state;
    int fd = memfd_create("t", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 8192), 0);
    uint8_t *p;
    void *base;
    size_t n;
    is(frame_map(fd, 0, 10, false, &p, &base, &n), ST_INVALID_ARGUMENT); // could shrink under us
    close(fd);
    ok(frame_memfd("t", 10000, &fd));
    is(frame_map(fd, 9000, 1001, false, &p, &base, &n), ST_INVALID_ARGUMENT);
    is(frame_map(fd, INT64_MAX, 1, false, &p, &base, &n), ST_INVALID_ARGUMENT);
    is(frame_map(fd, -1, 1, false, &p, &base, &n), ST_INVALID_ARGUMENT);
    ok(frame_map(fd, 5000, 5000, true, &p, &base, &n));
    p[4999] = 9;
    frame_unmap(base, n);
    ok(frame_map(fd, 9999, 1, false, &p, &base, &n));
    assert_int_equal(p[0], 9);
    frame_unmap(base, n);
    close(fd);
    is(frame_memfd("t", 0, &fd), ST_INVALID_ARGUMENT);
}

// tmpfs has seals for its files too; a data folder may lie there.
static void a_file_on_tmpfs_is_a_file(void **state) {
    (void)state;
    char name[] = "/dev/shm/hlod-frame-XXXXXX";
    int out = mkstemp(name), in = out < 0 ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    uint8_t *p;
    void *base;
    size_t n;
    if (in < 0) skip();
    unlink(name);
    assert_int_equal(write(out, "0123456789", 10), 10);
    is(frame_map(out, 0, 10, false, &p, &base, &n), ST_INVALID_ARGUMENT); // as a memfd
    ok(frame_map(in, 2, 8, false, &p, &base, &n));
    assert_memory_equal(p, "23456789", 8);
    frame_unmap(base, n);
    close(in);
    close(out);
}

int main(void) {
    const struct CMUnitTest t[] = {
        cmocka_unit_test_setup_teardown(small_body, setup, teardown),
        cmocka_unit_test_setup_teardown(body_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(limits, setup, teardown),
        cmocka_unit_test_setup_teardown(peer_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(mapping_checks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_on_tmpfs_is_a_file, setup, teardown),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
