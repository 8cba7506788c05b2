// SPDX-License-Identifier: Apache-2.0
// What a message weighs is at least what building it takes, and not wildly more.
#include "proto/weigh.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/str.h"
#include "proto/hlod.pb-c.h"
#include "proto/json.h"

static const ProtobufCMessageDescriptor *run = &hlod__v1__run_request__descriptor;
static size_t in_use(void) {
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}
static struct strbuf times(const char *head, const char *piece, size_t n, int k, const char *tail) {
    struct strbuf b = {0};
    strbuf_puts(&b, head);
    while (k--)
        strbuf_add(&b, piece, n);
    strbuf_puts(&b, tail);
    return b;
}

static void protobuf(void **state) {
    (void)state;
    static const struct {
        const char *piece;
        size_t n;
    } cases[] = {{"\x1a\0", 2},             // an input
                 {"\x1a\x04\x0a\x02xy", 6}, // with a name
                 {"\xfa\x7f\0", 3}};        // unknown
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b = times("", cases[i].piece, cases[i].n, 1000, "");
        struct span s = {(const uint8_t *)b.p, b.n};
        int64_t weight = weigh_message(run, s);
        size_t before = in_use();
        ProtobufCMessage *m = protobuf_c_message_unpack(run, NULL, s.n, s.p);
        int64_t took = (int64_t)(in_use() - before);
        assert_non_null(m);
        (void)weight, (void)took;
#if !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__ // mallinfo does not know theirs
        assert_true(weight >= took && weight < 4 * took);
#endif
        protobuf_c_message_free_unpacked(m, NULL);
        strbuf_done(&b);
    }
    static const uint8_t cut[] = {0x1a, 5, 0};
    assert_int_equal(weigh_message(run, (struct span){cut, sizeof cut}), -1);
}

static void json(void **state) {
    (void)state;
    static const char *const pieces[] = {"{},", "{\"name\":\"x\"},", "{\"shape\":[1,2,3]},"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct strbuf b = times("{\"inputs\":[", pieces[i], strlen(pieces[i]), 3000, "{}]}");
        struct arena a = {0};
        ProtobufCMessage *m;
        assert_null(json_parse(&a, run, (struct str){b.p, b.n}, &m));
        assert_true(weigh_json(run, (struct str){b.p, b.n}) >= (int64_t)a.used_bytes);
        arena_done(&a);
        strbuf_done(&b);
    }
}

static void refused(void **state) {
    (void)state;
    struct strbuf b = times("", "\x1a\0", 2, 3 << 20, "");
    ProtobufCMessage *m;
    status_t st = weigh_unpack(run, (struct span){(const uint8_t *)b.p, b.n}, &m);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BODY_TOO_LARGE);
    st_drop(st);
    strbuf_done(&b);
    b = times("{\"inputs\":[", "{},", 3, 3 << 20, "{}]}");
    struct arena a = {0};
    st = json_parse(&a, run, (struct str){b.p, b.n}, &m);
    assert_int_equal(st_get_reason(st), HLOD__V1__REASON__REASON_BODY_TOO_LARGE);
    st_drop(st);
    arena_done(&a);
    strbuf_done(&b);
}

// An arena whose guard stands says that memory ran out.
static void guarded(void **state) {
    (void)state;
    struct arena a = {0};
    struct arena_guard outer, inner;
    volatile int out = 0;
    volatile size_t more_than_there_is = SIZE_MAX - 8; // which sanitizers need not be asked
    if (ARENA_GUARD(&a, &outer)) {
        if (ARENA_GUARD(&a, &inner))
            arena_alloc(&a, more_than_there_is);
        else
            out = 1;
        arena_unguard(&a, &inner);
        assert_ptr_equal(a.guard, &outer);
    }
    arena_unguard(&a, &outer);
    assert_int_equal(out, 1);
    assert_non_null(arena_alloc(&a, 100));
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(protobuf), cmocka_unit_test(json),
                                       cmocka_unit_test(refused), cmocka_unit_test(guarded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
