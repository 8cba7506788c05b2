// SPDX-License-Identifier: Apache-2.0
// grpc_gate: what the library is told where it accepts, on sockets of the test's own.
#include "server/grpc/grpc_gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
static int start(void **state) {
    (void)state;
    gate_start(&(struct gate_config){.max_connections = 1});
    return 0;
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
    assert_true(got >= 0 && gate_strangers());
    close(got);
    assert_false(gate_strangers());
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_and_somebody, start, stop),
        cmocka_unit_test_setup_teardown(shut_down, start, stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
