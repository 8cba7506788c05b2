// SPDX-License-Identifier: Apache-2.0
// grpc_head: heads that end and heads that go on, in pieces of any size.
#include "server/grpc/grpc_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { DATA = 0, HEADERS = 1, CONTINUATION = 9, END_STREAM = 1, END_HEADERS = 4, ROOM = 600 << 10 };
static uint8_t bytes[ROOM];
static size_t n_bytes;

static void begin(void) {
    memcpy(bytes, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", n_bytes = 24);
}
static void frame(int kind, int flags, size_t n) {
    const uint8_t head[9] = {(uint8_t)(n >> 16),
                             (uint8_t)(n >> 8),
                             (uint8_t)n,
                             (uint8_t)kind,
                             (uint8_t)flags,
                             0,
                             0,
                             0,
                             1};
    assert_true(n_bytes + sizeof head + n <= ROOM);
    memcpy(bytes + n_bytes, head, sizeof head);
    memset(bytes + n_bytes + sizeof head, HEADERS, n); // what looks like a frame is none
    n_bytes += sizeof head + n;
}
// How many of the bytes are let by, in such pieces.
static size_t let_by(size_t piece) {
    struct grpc_head h = {0};
    size_t at = 0;
    for (size_t n; at < n_bytes; at += n) {
        n = n_bytes - at < piece ? n_bytes - at : piece;
        if (!grpc_head_follow(&h, bytes + at, n)) break;
    }
    return at;
}
static void all_is_let_by(void) {
    static const size_t pieces[] = {1, 7, 9, 4096, ROOM};
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
        assert_int_equal(let_by(pieces[k]), n_bytes);
}

static void heads_that_end(void **state) {
    (void)state;
    begin();
    frame(4, 0, 0);
    for (int k = 0; k < 20; k++) { // each below the bound, together above it
        frame(HEADERS, 0, 8000);
        frame(CONTINUATION, END_HEADERS, 8000);
        frame(DATA, END_STREAM, 3);
    }
    all_is_let_by();
    begin();
    frame(HEADERS, END_HEADERS | END_STREAM, 200);
    for (int k = 0; k < 30; k++)
        frame(DATA, 0, 16384);
    all_is_let_by();
}
static void heads_that_go_on(void **state) {
    (void)state;
    begin();
    frame(HEADERS, END_STREAM, 100);
    size_t before = n_bytes;
    for (int k = 0; k < 40; k++)
        frame(CONTINUATION, 0, 8000);
    for (size_t piece = 1; piece < 5000; piece *= 3) {
        size_t n = let_by(piece);
        assert_true(n > before + GRPC_HEAD_BYTES - 9000 && n < before + GRPC_HEAD_BYTES + 9000);
    }
    assert_int_equal(let_by(ROOM), 0);
    begin();
    frame(HEADERS, 0, 100);
    while (n_bytes < ROOM - 9) // of frames that are empty
        frame(CONTINUATION, 0, 0);
    assert_true(let_by(100) < GRPC_HEAD_BYTES + 1000);
}
static void other_protocols(void **state) {
    (void)state;
    begin();
    frame(HEADERS, 0, 100);
    while (n_bytes < ROOM - 9)
        frame(CONTINUATION, 0, 0);
    bytes[23] = 'x';
    all_is_let_by();
    memset(bytes, 0x16, ROOM); // TLS
    all_is_let_by();
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(heads_that_end),
                                   cmocka_unit_test(heads_that_go_on),
                                   cmocka_unit_test(other_protocols)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
