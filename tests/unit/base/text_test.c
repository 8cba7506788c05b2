// SPDX-License-Identifier: Apache-2.0
// Texts from outside as they are shown, and the log's lines.
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/str.h"

static void shows(const char *text, const char *want) {
    struct strbuf b = {0};
    text_show(&b, str_of(text), "\"\\");
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_done(&b);
}
static void shown(void **state) {
    (void)state;
    shows("plain, 100 %", "plain, 100 %");
    shows("Zürich 東京 😀 שלום", "Zürich 東京 😀 שלום");
    shows("a\nb\t\x1b[2J\x7f", "a\\u000ab\\u0009\\u001b[2J\\u007f");
    shows("say \"x\" \\", "say \\\"x\\\" \\\\");
    shows("model\xe2\x80\xaetxt.exe", "model\\u202etxt.exe");          // right to left from here
    shows("a\xe2\x80\x8b" "b\xef\xbb\xbf" "c\xc2\xad", "a\\u200bb\\ufeffc\\u00ad"); // not seen
    shows("\xc2\x9b" "31m", "\\u009b31m"); // CSI, of C1
    shows("\xf3\xa0\x81\xa1", "\\U000e0061");                           // a tag
    shows("\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82",
          "\\xff\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xe2\\x82"); // no UTF-8
}

static void names(void **state) {
    (void)state;
    static const char *const good[] = {"a", "resnet-50:v1.2", "два слова", "模型", "é"};
    static const char *const bad[] = {"",         "a\nb",          "a\x1b[0m",      "a\xe2\x80\xae",
                                      "\xe2\x81\xa6x", "a\xe2\x80\x8b", "\xef\xbb\xbf" "a", "\xff",
                                      "\xe3\x85\xa4", "a\xc2\xa0" "b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!text_is_name(str_of(good[i]), 200)) fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (text_is_name(str_of(bad[i]), 200)) fail_msg("taken: %zu", i);
    assert_true(text_is_name(str_of("abc"), 3));
    assert_false(text_is_name(str_of("abcd"), 3));
}

static void json(void **state) {
    (void)state;
    struct strbuf b = {0};
    strbuf_json_str(&b, str_of("a\"\\\n\t\x01\xe2\x80\xae\xc2\x9b\xf3\xa0\x81\xa1\xff é"));
    assert_string_equal(strbuf_cstr(&b), "\"a\\\"\\\\\\n\\t\\u0001\\u202e\\u009b\\udb40\\udc61"
                                         "\xef\xbf\xbd é\"");
    strbuf_done(&b);
}

// What log_event writes, from behind the time.
static void logged(char *out, size_t max, void (*say)(void)) {
    int fds[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(fds), 0);
    dup2(fds[1], STDERR_FILENO);
    say();
    dup2(saved, STDERR_FILENO);
    close(fds[1]);
    ssize_t n = read(fds[0], out, max - 1);
    close(fds[0]);
    close(saved);
    assert_true(n > 0);
    out[n] = 0;
    char *line = strstr(out, " lvl=");
    assert_non_null(line);
    memmove(out, line + 1, strlen(line + 1) + 1);
}
static void say_all(void) {
    log_event(LOG_INFO, "a.b", "s=\"%s\" part=%.3s of=%.*s d=%5d x=%llu z=%zu f=%.1f c=%lld%%",
              "x\" ev=fake\n\x1b[2J", "abcdef", 2, "xyz", -7, 18446744073709551615ull, (size_t)9,
              2.25, -5ll);
}
static void say_long(void) {
    static char text[9000];
    memset(text, 'y', sizeof text - 1);
    log_event(LOG_INFO, "a.b", "s=\"%s\"", text);
}
static void lines(void **state) {
    (void)state;
    char line[8192];
    logged(line, sizeof line, say_all);
    assert_string_equal(line, "lvl=info ev=a.b s=\"x\\\" ev=fake\\u000a\\u001b[2J\" part=abc of=xy "
                              "d=   -7 x=18446744073709551615 z=9 f=2.2 c=-5%\n");
    logged(line, sizeof line, say_long);
    assert_true(strlen(line) < 4096 && line[strlen(line) - 1] == '\n');
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(shown), cmocka_unit_test(names),
                                   cmocka_unit_test(json), cmocka_unit_test(lines)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
