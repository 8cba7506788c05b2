// SPDX-License-Identifier: Apache-2.0
// trace: the forms of both headers that the W3C recommendation allows, and those it calls invalid.
#include "scheduler/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#define ID   "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static void taken(void **state) {
    struct trace t;
    char text[TRACE_PARENT_TEXT], id[TRACE_ID_TEXT];
    (void)state;
    assert_true(trace_parse("00-" ID "-" SPAN "-01", &t));
    assert_true(trace_sampled(&t) && t.remote);
    trace_write_id(&t, id);
    assert_string_equal(id, ID);
    assert_int_equal(t.parent[0], 0xb7);
    assert_int_equal(t.parent[7], 0x31);
    trace_write(&t, text);
    assert_memory_equal(text, "00-" ID "-", 36);
    assert_string_equal(text + 52, "-01");
    assert_memory_not_equal(text + 36, SPAN, 16); // a span of ours
    assert_true(trace_parse(text, &t));

    assert_true(trace_parse("00-" ID "-" SPAN "-00", &t));
    assert_false(trace_sampled(&t));
    assert_true(trace_parse("01-" ID "-" SPAN "-fd-more", &t)); // a later version: flags we know
    trace_write(&t, text);
    assert_string_equal(text + 52, "-01");
}

static void made(void **state) {
    struct trace root, part;
    uint8_t zeros[16] = {0}, before[8];
    (void)state;
    trace_begin(&root);
    assert_false(trace_sampled(&root));
    assert_memory_equal(root.parent, zeros, 8);
    root.flags = TRACE_SAMPLED;
    trace_child(&root, &part);
    assert_memory_equal(part.id, root.id, 16);
    assert_memory_equal(part.parent, root.span, 8);
    assert_memory_not_equal(part.span, root.span, 8);
    assert_true(trace_sampled(&part) && !part.remote);
    for (int k = 0; k < 1000; k++) { // over several fillings of the pool
        memcpy(before, root.id, 8);
        trace_begin(&root);
        assert_memory_not_equal(root.id, before, 8);
        assert_memory_not_equal(root.id, root.id + 8, 8);
    }
    assert_false(trace_sampled(NULL));
}

static void states(void **state) {
    static const char *const good[] = {"a=1", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
                                       "tenant@system=a b", "a=1, b=2 ,\t c=3,,", "0a/*_-=~!"};
    static const char *const bad[] = {"", ",", "a", "=1", "a=", "A=1", "a=1=2", "a=\x01", "\xc3=1"};
    char many[TRACE_STATE_MOST + 2];
    (void)state;
    for (size_t k = 0; k < sizeof good / sizeof *good; k++)
        if (!trace_state_fits(good[k])) fail_msg("refused: '%s'", good[k]);
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (trace_state_fits(bad[k])) fail_msg("taken: '%s'", bad[k]);
    for (size_t k = 0; k < sizeof many; k++)
        many[k] = "a=1,"[k % 4];
    many[32 * 4] = 0;
    assert_true(trace_state_fits(many));
    many[32 * 4] = 'a';
    many[33 * 4] = 0;
    assert_false(trace_state_fits(many)); // 33 members
    memset(many, 'a', sizeof many);
    many[1] = '=';
    many[sizeof many - 1] = 0;
    assert_false(trace_state_fits(many));
}

static void refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "00",
        "00-" ID "-" SPAN,
        "00-" ID "-" SPAN "-1",
        "00-" ID "-" SPAN "-01-more", // version 00 has no more fields
        "00-" ID "-" SPAN "-01 ",
        "ff-" ID "-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" ID "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-" ID "-" SPAN "-0g",
        "0x-" ID "-" SPAN "-01",
        "00_" ID "-" SPAN "-01",
        "00-" ID "\"" SPAN "-01",
    };
    struct trace t = {.id = "untouched"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (trace_parse(bad[k], &t)) fail_msg("taken: '%s'", bad[k]);
    assert_false(trace_parse(NULL, &t));
    assert_string_equal((const char *)t.id, "untouched");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(taken), cmocka_unit_test(refused),
                                       cmocka_unit_test(made), cmocka_unit_test(states)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
