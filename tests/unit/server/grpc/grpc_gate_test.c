// SPDX-License-Identifier: Apache-2.0
// grpc_gate: what the library is told where it accepts and reads, on sockets of the test's own.
#include "server/grpc/grpc_gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct sockaddr_in any_port = {.sin_family = AF_INET};

static int listener(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&any_port, sizeof any_port), 0);
    gate_listens(true);
    assert_int_equal(listen(fd, 8), 0);
    gate_listens(false);
    return fd;
}
static int client_of(int fd) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    int c = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(c, (struct sockaddr *)&a, sizeof a), 0);
    return c;
}
static bool keeps_up;
static int n_held;
static bool says_keeps_up(void *ctx) {
    (void)ctx;
    return keeps_up;
}
static void on_held(void *ctx) {
    (void)ctx;
    n_held++;
}
static int start(void **state) {
    (void)state;
    keeps_up = true;
    n_held = 0;
    gate_start(&(struct gate_config){
        .max_connections = 2, .max_calls = 3, .held = on_held, .keeps_up = says_keeps_up});
    return 0;
}
// A connection of the gate's whose event an epoll descriptor waits for, as the library's does.
struct pair {
    int listener, client, fd, epoll;
    char peer[64];
};
static void open_pair(struct pair *p) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};
    p->listener = listener();
    p->client = client_of(p->listener);
    p->fd = accept4(p->listener, NULL, NULL, SOCK_NONBLOCK);
    p->epoll = epoll_create1(0);
    assert_true(p->fd >= 0 && p->epoll >= 0);
    assert_int_equal(epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->fd, &e), 0);
    assert_int_equal(getsockname(p->client, (struct sockaddr *)&a, &n), 0);
    snprintf(p->peer, sizeof p->peer, "ipv4:127.0.0.1:%d", ntohs(a.sin_port));
}
static void close_pair(struct pair *p) {
    close(p->fd);
    close(p->client);
    close(p->listener);
    close(p->epoll);
}
static bool wakes(const struct pair *p) {
    struct epoll_event e;
    return epoll_wait(p->epoll, &e, 1, 0) == 1;
}
static ssize_t read_of(const struct pair *p) {
    static char room[1 << 16];
    struct iovec v = {room, sizeof room};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    return recvmsg(p->fd, &m, 0);
}
static int stop(void **state) {
    (void)state;
    gate_stop();
    return 0;
}

static void nobody_and_somebody(void **state) {
    (void)state;
    int fd = listener();
    assert_int_equal(accept4(fd, NULL, NULL, 0), -1);
    assert_int_equal(errno, EAGAIN);
    int client = client_of(fd), got = accept4(fd, NULL, NULL, 0);
    assert_true(got >= 0);
    close(got);
    close(client);
    close(fd);
}
// The library's listener is shut down while it accepts: told anything else, it would ask without
// end and the daemon would not stop.
static void shut_down(void **state) {
    (void)state;
    int fd = listener();
    assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
    assert_int_equal(accept4(fd, NULL, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    close(fd);
    assert_int_equal(accept4(fd, NULL, NULL, 0), -1);
    assert_int_equal(errno, EBADF);
}

// While calls wait in the library, also those read no more who were vouched for; then they are
// woken.
static void vouched_waits(void **state) {
    (void)state;
    static const char bytes[1 << 15];
    struct gate_call call;
    struct pair p;
    open_pair(&p);
    assert_true(gate_admit(p.peer, &call));
    assert_int_equal(write(p.client, bytes, sizeof bytes), sizeof bytes);
    assert_true(wakes(&p));
    ssize_t first = read_of(&p), second = read_of(&p);
    assert_true(first > 0 && second > first); // little at first
    keeps_up = false;
    assert_int_equal(read_of(&p), -1);
    assert_int_equal(errno, EAGAIN);
    assert_true(gate_waits() && n_held > 0 && !wakes(&p));
    keeps_up = true;
    gate_turn(false);
    assert_true(wakes(&p));
    assert_int_equal(read_of(&p), first); // it had filled the library: little again
    gate_ended(&call);
    close_pair(&p);
}
// The daemon ends: who knocks is refused, and what comes is not read.
static void ends(void **state) {
    (void)state;
    struct gate_call call;
    struct pair p;
    open_pair(&p);
    assert_true(gate_admit(p.peer, &call));
    gate_shut_doors();
    assert_int_equal(accept4(p.listener, NULL, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(write(p.client, "ab", 2), 2);
    assert_true(read_of(&p) > 0);
    assert_int_equal(write(p.client, "cd", 2), 2);
    gate_hold_all();
    assert_int_equal(read_of(&p), -1);
    assert_int_equal(errno, EAGAIN);
    gate_end_all();
    assert_int_equal(read_of(&p), 0);
    gate_ended(&call);
    close_pair(&p);
}
static void calls_of_a_connection(void **state) {
    (void)state;
    struct gate_call call[4];
    struct pair p;
    open_pair(&p);
    for (int i = 0; i < 3; i++)
        assert_true(gate_admit(p.peer, &call[i]));
    assert_false(gate_admit(p.peer, &call[3]));
    gate_ended(&call[0]);
    gate_ended(&call[0]); // once counts
    assert_true(gate_admit(p.peer, &call[0]));
    assert_false(gate_admit(p.peer, &call[3]));
    close_pair(&p);
    gate_ended(&call[1]); // its connection has gone
}
// Without a descriptor for the next connection the listener tries again when one is closed.
static void no_descriptors(void **state) {
    (void)state;
    struct rlimit was, few;
    int fd = listener(), client = client_of(fd), epoll = epoll_create1(0), spare = dup(fd);
    struct epoll_event e = {.events = EPOLLIN | EPOLLET};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e), 0);
    assert_int_equal(epoll_wait(epoll, &e, 1, 0), 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){(rlim_t)spare + 1, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int got = accept4(fd, NULL, NULL, 0), error = errno;
    gate_turn(true); // too early
    bool early = epoll_wait(epoll, &e, 1, 0) == 1;
    int before = n_held;
    close(spare);
    int after = n_held;
    gate_turn(true);
    bool woken = epoll_wait(epoll, &e, 1, 0) == 1;
    int again = accept4(fd, NULL, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(got, -1);
    assert_int_equal(error, EAGAIN);
    assert_true(!early && after > before && woken && again >= 0);
    close(again);
    close(client);
    close(fd);
    close(epoll);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_and_somebody, start, stop),
        cmocka_unit_test_setup_teardown(shut_down, start, stop),
        cmocka_unit_test_setup_teardown(vouched_waits, start, stop),
        cmocka_unit_test_setup_teardown(ends, start, stop),
        cmocka_unit_test_setup_teardown(calls_of_a_connection, start, stop),
        cmocka_unit_test_setup_teardown(no_descriptors, start, stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
