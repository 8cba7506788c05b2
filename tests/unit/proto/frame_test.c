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

#include "proto/wire.pb-c.h"

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

static void next_is(uint64_t call, const char *device) {
    struct frame f;
    ok(frame_recv(pair[1], buf, 0, &f));
    assert_int_equal(f.type, 9);
    assert_int_equal(f.call, call);
    Hlod__Wire__Hello *h = hlod__wire__hello__unpack(NULL, f.body.n, f.body.p);
    assert_non_null(h);
    assert_string_equal(h->device_name, device);
    hlod__wire__hello__free_unpacked(h, NULL);
    frame_done(&f);
}
static void batches(void **state) {
    (void)state;
    Hlod__Wire__Hello m = HLOD__WIRE__HELLO__INIT;
    struct frame_batch b = {0};
    ok(frame_batch_send(pair[0], &b, 0)); // nothing
    const char *const names[] = {"a", "", "another"};
    for (uint64_t k = 0; k < 3; k++) {
        m.device_name = (char *)(uintptr_t)names[k];
        assert_true(frame_batch_add(&b, 9, k, &m.base));
    }
    ok(frame_batch_send(pair[0], &b, 0));
    assert_int_equal(b.n, 0);
    ok(frame_send_msg(pair[0], 9, 3, &m.base, NULL, 0, 0));
    for (uint64_t k = 0; k < 3; k++) {
        next_is(k, names[k]);
        assert_int_equal(frame_buf_has_more(buf), k < 2);
    }
    next_is(3, "another");
    assert_false(frame_buf_has_more(buf));

    uint64_t n = 0; // more than it has room for
    while (frame_batch_add(&b, 9, n, &m.base))
        n++;
    assert_true(n > 100 && b.n <= FRAME_BATCH_BYTES);
    char *large = calloc(1, FRAME_BATCH_BYTES + 1);
    memset(large, 'x', FRAME_BATCH_BYTES);
    m.device_name = large;
    struct frame_batch none = {0};
    assert_false(frame_batch_add(&none, 9, 0, &m.base));
    ok(frame_batch_send(pair[0], &b, 0));
    for (uint64_t k = 0; k < n; k++)
        next_is(k, "another");
    frame_batch_done(&b);
    frame_batch_done(&none);
    free(large);
}
// What a socket without room did not take stays, and goes later.
static void batch_waits_for_room(void **state) {
    (void)state;
    Hlod__Wire__Hello m = HLOD__WIRE__HELLO__INIT;
    struct frame_batch b = {0};
    status_t s = ST_OK;
    while (!s)
        s = frame_send(pair[0], 1, 1, (struct span){(const uint8_t *)"x", 1}, NULL, 0, 0);
    st_drop(s);
    assert_true(frame_batch_add(&b, 9, 77, &m.base));
    size_t n = b.n;
    is(frame_batch_send(pair[0], &b, 0), ST_DEADLINE_EXCEEDED);
    assert_int_equal(b.n, n);
    struct frame f = {.type = 1};
    for (int i = 0; i < 20; i++) {
        ok(frame_recv(pair[1], buf, 0, &f));
        frame_done(&f);
    }
    ok(frame_batch_send(pair[0], &b, 0));
    do {
        frame_done(&f);
        ok(frame_recv(pair[1], buf, 0, &f));
    } while (f.type == 1);
    assert_int_equal(f.call, 77);
    frame_done(&f);
    frame_batch_done(&b);
}
// A sound frame, and behind it what is none: the first is given, then the peer is refused.
static void broken_behind_sound(void **state) {
    (void)state;
    Hlod__Wire__Hello m = HLOD__WIRE__HELLO__INIT;
    struct frame_batch b = {0};
    assert_true(frame_batch_add(&b, 9, 1, &m.base));
    size_t first = b.n;
    assert_true(frame_batch_add(&b, 9, 2, &m.base));
    const struct {
        size_t at, n; // a byte of the second that is made wrong; how much is sent
        uint8_t by;
    } rows[] = {{first, b.n, 1}, {first + 24, b.n, 9}, {0, first + 31, 0}, {first + 20, b.n, 1}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        b.p[rows[k].at] ^= rows[k].by;
        assert_int_equal(send(pair[0], b.p, rows[k].n, 0), rows[k].n);
        b.p[rows[k].at] ^= rows[k].by;
        struct frame f;
        next_is(1, "");
        is(frame_recv(pair[1], buf, 0, &f), ST_DATA_LOSS);
        assert_false(frame_buf_has_more(buf));
    }
    uint8_t *many = malloc(2 * FRAME_BATCH_BYTES); // more than a batch
    size_t n = 0;
    for (; n <= FRAME_BATCH_BYTES; n += first)
        memcpy(many + n, b.p, first);
    assert_int_equal(send(pair[0], many, n, 0), n);
    free(many);
    struct frame none;
    is(frame_recv(pair[1], buf, 0, &none), ST_DATA_LOSS);

    int mem; // descriptors belong to one frame
    ok(frame_memfd("t", 10, &mem));
    uint32_t one = 1;
    memcpy(b.p + 20, &one, sizeof one);
    struct iovec iov = {b.p, b.n};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof control};
    *CMSG_FIRSTHDR(&msg) = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &mem, sizeof mem);
    assert_int_equal(sendmsg(pair[0], &msg, 0), b.n);
    struct frame f;
    is(frame_recv(pair[1], buf, 0, &f), ST_DATA_LOSS);
    close(mem);
    frame_batch_done(&b);
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
        cmocka_unit_test_setup_teardown(batches, setup, teardown),
        cmocka_unit_test_setup_teardown(batch_waits_for_room, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_behind_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(mapping_checks, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_on_tmpfs_is_a_file, setup, teardown),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
