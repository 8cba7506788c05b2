// SPDX-License-Identifier: Apache-2.0
// Frames as a peer of RFC 6455 sends them, in every cut, and what is none.
#include "devices/web/ws.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static const uint8_t MASK[4] = {0x12, 0xff, 0x00, 0x9a};
// As a client writes it. form: 0 = the shortest length, 2 or 8 = that many bytes of it.
static void put(struct strbuf *b, uint8_t first, const uint8_t *p, size_t n, int form) {
    uint8_t head[WS_HEAD_BYTES];
    size_t at = ws_head(head, WS_BINARY_FRAME, n);
    if (form) {
        head[1] = form == 2 ? 126 : 127;
        for (int k = 0; k < form; k++)
            head[2 + k] = (uint8_t)((uint64_t)n >> 8 * (form - 1 - k));
        at = 2 + (size_t)form;
    }
    head[0] = first;
    head[1] |= 0x80;
    strbuf_add(b, head, at);
    strbuf_add(b, MASK, 4);
    for (size_t k = 0; k < n; k++)
        strbuf_putc(b, (char)(p[k] ^ MASK[k & 3]));
}
// What comes of it, in pieces of `cut`: payloads joined; events as letters, but for pieces.
static void take(struct ws *w, const struct strbuf *from, size_t cut, struct strbuf *payload,
                 struct strbuf *events) {
    static const char letters[] = "..EIOCB";
    uint8_t *copy = malloc(from->n + 1);
    memcpy(copy, from->p, from->n);
    for (size_t at = 0; at < from->n; at += cut) {
        struct ws_bytes in = {copy + at, from->n - at < cut ? from->n - at : cut}, out;
        for (enum ws_event e; (e = ws_take(w, &in, &out)) != WS_MORE;) {
            if (e == WS_BYTES)
                strbuf_add(payload, out.p, out.n);
            else
                strbuf_putc(events, letters[e]);
            if (e == WS_BAD || e == WS_CLOSE) at = from->n, in.n = 0;
            if (e == WS_BAD || e == WS_CLOSE) break;
        }
    }
    free(copy);
}

static void test_lengths_and_cuts(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 3, 125, 126, 127, 65535, 65536};
    uint8_t *data = malloc(65536);
    for (int k = 0; k < 65536; k++)
        data[k] = (uint8_t)(k * 7 + (k >> 8));
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t cut = 1; cut < 70000; cut = cut * 3 + 1) {
            struct strbuf b = {0}, payload = {0}, events = {0};
            struct ws w = {.most = 65536};
            put(&b, 0x82, data, sizes[s], 0);
            put(&b, 0x89, data, 4, 0);
            put(&b, 0x82, data, sizes[s], 0);
            take(&w, &b, cut, &payload, &events);
            assert_string_equal(strbuf_cstr(&events), "EIE");
            assert_int_equal(payload.n, 2 * sizes[s]);
            assert_memory_equal(strbuf_cstr(&payload), data, sizes[s]);
            assert_memory_equal(strbuf_cstr(&payload) + sizes[s], data, sizes[s]);
            assert_int_equal(w.n_control, 0); // the last frame's
            strbuf_done(&b);
            strbuf_done(&payload);
            strbuf_done(&events);
        }
    free(data);
}

static void test_fragments(void **state) {
    (void)state;
    struct strbuf b = {0}, payload = {0}, events = {0};
    struct ws w = {.most = 8};
    put(&b, 0x02, (const uint8_t *)"abc", 3, 0);
    put(&b, 0x89, (const uint8_t *)"ping", 4, 0);
    put(&b, 0x00, NULL, 0, 0);
    put(&b, 0x8a, (const uint8_t *)"pong", 4, 0);
    put(&b, 0x80, (const uint8_t *)"defgh", 5, 0);
    put(&b, 0x82, (const uint8_t *)"12345678", 8, 0); // the bound is each message's
    put(&b, 0x88, (const uint8_t *)"\3\xe8", 2, 0);
    put(&b, 0x82, (const uint8_t *)"x", 1, 0); // behind the end
    take(&w, &b, b.n, &payload, &events);
    assert_string_equal(strbuf_cstr(&events), "IOEEC");
    assert_string_equal(strbuf_cstr(&payload), "abcdefgh12345678");
    assert_int_equal(w.n_control, 2);
    assert_memory_equal(w.control, "\3\xe8", 2);
    strbuf_done(&b);
    strbuf_done(&payload);
    strbuf_done(&events);
}

static void refused(const char *name, const struct strbuf *b, enum ws_code code, const char *why) {
    for (size_t cut = 1; cut <= b->n; cut += b->n > 64 ? 61 : 1) {
        struct strbuf payload = {0}, events = {0};
        struct ws w = {.most = 100};
        take(&w, b, cut, &payload, &events);
        if (!events.n || events.p[events.n - 1] != 'B' || w.code != code || !strstr(w.why, why))
            fail_msg("%s, cut at %zu: '%s', %s", name, cut, strbuf_cstr(&events),
                     w.why ? w.why : "no fault");
        struct ws_bytes more = {(uint8_t[]){0x82}, 1}, out;
        assert_int_equal(ws_take(&w, &more, &out), WS_BAD); // it stays so
        assert_int_equal(more.n, 1);
        strbuf_done(&payload);
        strbuf_done(&events);
    }
}
static void test_refused(void **state) {
    (void)state;
    static uint8_t zeros[200];
    static const struct {
        const char *name, *why;
        uint8_t first;
        size_t n;
        int form;
        enum ws_code code;
    } one[] = {
        {"a reserved bit", "reserved", 0xc2, 1, 0, WS_PROTOCOL},
        {"opcode 3", "opcode", 0x83, 1, 0, WS_PROTOCOL},
        {"opcode 11", "opcode", 0x8b, 1, 0, WS_PROTOCOL},
        {"text", "text", 0x81, 1, 0, WS_NOT_BINARY},
        {"a fragment first", "of no message", 0x80, 1, 0, WS_PROTOCOL},
        {"a ping of 126", "control", 0x89, 126, 0, WS_PROTOCOL},
        {"a ping in parts", "control", 0x09, 1, 0, WS_PROTOCOL},
        {"a close in parts", "control", 0x08, 2, 0, WS_PROTOCOL},
        {"16 bits for 125", "shorter", 0x82, 100, 2, WS_PROTOCOL},
        {"64 bits for 100", "shorter", 0x82, 100, 8, WS_PROTOCOL},
        {"more than it may have", "larger", 0x82, 101, 0, WS_TOO_LARGE},
    };
    for (size_t k = 0; k < sizeof one / sizeof *one; k++) {
        struct strbuf b = {0};
        put(&b, one[k].first, zeros, one[k].n, one[k].form);
        refused(one[k].name, &b, one[k].code, one[k].why);
        strbuf_done(&b);
    }
}
static void test_refused_of_several(void **state) {
    (void)state;
    static uint8_t zeros[200];
    struct strbuf within = {0}, grows = {0}, empty = {0}, bare = {0}, huge = {0};
    put(&within, 0x02, zeros, 3, 0);
    put(&within, 0x82, zeros, 3, 0);
    refused("a message within one", &within, WS_PROTOCOL, "within");
    put(&grows, 0x02, zeros, 60, 0);
    put(&grows, 0x80, zeros, 41, 0);
    refused("fragments that grow", &grows, WS_TOO_LARGE, "larger");
    for (int k = 0; k < WS_EMPTY_FRAGMENTS + 1; k++)
        put(&empty, k ? 0x00 : 0x02, NULL, 0, 0);
    refused("empty fragments", &empty, WS_PROTOCOL, "empty");
    strbuf_add(&bare, "\x82\x01x", 3);
    refused("no mask", &bare, WS_PROTOCOL, "mask");
    strbuf_add(&huge, "\x82\xff\x80\0\0\0\0\0\0\0abcd", 14); // 2^63: nothing of it has come
    refused("2^63 bytes", &huge, WS_TOO_LARGE, "larger");
    strbuf_done(&within);
    strbuf_done(&grows);
    strbuf_done(&empty);
    strbuf_done(&bare);
    strbuf_done(&huge);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_and_cuts), cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_refused_of_several)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
