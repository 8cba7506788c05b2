// SPDX-License-Identifier: Apache-2.0
// traceparent: the forms that the W3C recommendation allows, and those it calls invalid.
#include "server/traceparent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#define ID   "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"

static void taken(void **state) {
    struct traceparent t;
    (void)state;
    assert_true(traceparent_parse("00-" ID "-" SPAN "-01", &t));
    assert_string_equal(t.id, ID);
    assert_string_equal(t.given, "00-" ID "-" SPAN "-01");
    assert_memory_equal(t.reply, "00-" ID "-", 36);
    assert_string_equal(t.reply + 52, "-01");
    assert_memory_not_equal(t.reply + 36, SPAN, 16); // a span of ours
    assert_true(traceparent_parse("00-" ID "-" SPAN "-00", &t));
    assert_true(traceparent_parse("01-" ID "-" SPAN "-01-more", &t)); // a later version
    assert_string_equal(t.given, "01-" ID "-" SPAN "-01");
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
    struct traceparent t = {.id = "untouched"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (traceparent_parse(bad[k], &t)) fail_msg("taken: '%s'", bad[k]);
    assert_false(traceparent_parse(NULL, &t));
    assert_string_equal(t.id, "untouched");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(taken), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
