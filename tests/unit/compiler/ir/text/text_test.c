// SPDX-License-Identifier: Apache-2.0
// Tables of texts: places, tables on tables, budgets, through a module and back. Patterns: what
// they match (RE2's answers; tests/models/text.py asks RE2 itself), what they refuse, and that time
// stays linear. Letters' cases.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "compiler/ir/text/text.h"
#include "compiler/ops/string/string_match.h"
#include "compiler/strings.h"

static int32_t place(struct strings *t, const char *s) {
    int32_t p;
    assert_null(strings_add(t, str_of(s), &p));
    return p;
}
static void tables(void **state) {
    (void)state;
    struct strings *program = strings_new(NULL, 0);
    assert_int_equal(place(program, ""), 0);
    int32_t a = place(program, "a"), b = place(program, "b");
    assert_true(a != b && place(program, "a") == a);
    struct strings *run = strings_new(program, 500);
    assert_int_equal(place(run, "b"), b);
    int32_t c = place(run, "c");
    assert_int_equal(c, strings_count(program));
    assert_true(str_is(strings_get(run, c), "c") && str_is(strings_get(run, a), "a"));
    assert_true(strings_get(run, 99).n == 0 && strings_get(run, -1).n == 0);
    status_t st = ST_OK;
    int n = 0;
    for (char text[8]; n < 100 && !st; n++) {
        int32_t p;
        snprintf(text, sizeof text, "t%d", n);
        st = strings_add(run, str_of(text), &p);
    }
    assert_int_equal(st_code(st), ST_RESOURCE_EXHAUSTED);
    st_drop(st);
    assert_true(n > 2 && n < 20);
    assert_int_equal(place(run, "c"), c); // what is there stays
    strings_free(run);
    strings_free(program);
}

static void in_a_module(void **state) {
    (void)state;
    static const char text[] = "HloModule m, frontend_attributes={other=\"1\"}\n"
                               "ENTRY e {\n  a = s32[2] parameter(0)\n  b = f32[2] parameter(1)\n"
                               "  ROOT t = (s32[2], f32[2]) tuple(a, b)\n}\n";
    static const char *const all[] = {"a", "a,b;c\"%\\}", "\xc3\xa9 \xff\n", "a b"};
    struct hlo_module *m, *again;
    struct arena arena = {0};
    struct string_layout l = {strings_new(NULL, 0), (bool[]){true, true}, (bool[]){true, true}, 2,
                              2},
                         got;
    struct strbuf b = {0};
    assert_null(hlo_parse(str_of(text), NULL, &m));
    assert_false(strings_of_module(&arena, m, &got));
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        place(l.table, all[k]);
    strings_to_module(m, &l);
    hlo_print_module(&b, m, 0);
    assert_null(hlo_parse((struct str){b.p, b.n}, NULL, &again));
    assert_true(strings_of_module(&arena, again, &got));
    assert_int_equal(got.n_in, 2);
    assert_true(got.in[0] && got.out[0]);
    assert_false(got.in[1] || got.out[1]); // f32 is no place
    assert_int_equal(strings_count(got.table), strings_count(l.table));
    for (int32_t k = 0; k < strings_count(l.table); k++)
        assert_true(str_eq(strings_get(got.table, k), strings_get(l.table, k)));
    struct str other;
    assert_true(hlo_frontend(again, "other", &other) && str_is(other, "1"));
    assert_false(hlo_frontend(again, "othe", &other));
    strbuf_done(&b);
    strings_free(l.table);
    strings_free(got.table);
    hlo_module_free(m);
    hlo_module_free(again);
    arena_done(&arena);
}

static const struct {
    const char *pattern, *yes, *no; // texts between bars
} matches[] = {{"a*b+c?", "b|aabbc|bc", "a|bcc|"},
               {"(ab|cd)*", "|abcdab", "abc|a"},
               {"[^a-c]+", "xyz|\n|\xc3\xa9", "xa|"},
               {"\\d{2,4}", "12|1234", "1|12345"},
               {"a{2}", "aa", "a|aaa"},
               {"a{,2}", "a{,2}", "aa"},
               {"(?i)\xc3\xa4rger|stra\xc3\x9f"
                "e",
                "\xc3\x84RGER|STRA\xc3\x9f"
                "E",
                "strasse"},
               {".", "a|\xe6\x97\xa5", "\n|ab|"},
               {"(?s).", "\n", ""},
               {"\\bfoo\\b.*", "foo|foo bar", "foobar"},
               {"[[:alpha:]_]+[[:^alpha:]]", "ab1|_-", "ab|1"},
               {"[]a]+", "]a]", "b"},
               {"[\\w.-]+", "a.b-c_1", "a b"},
               {"(?P<y>\\d{4})-(?<m>\\d\\d)", "2024-11", "2024-1"},
               {"\\x41\\x{e4}\\101",
                "A\xc3\xa4"
                "A",
                "Aa"},
               {"\\Qa.b\\E+", "a.b|a.bbb", "axb|a.ba.b"},
               {"(a*)*b", "b|aaab", "aaa"},
               {"(|a)b", "b|ab", "a"},
               {"(?:a|b){3}", "aba", "ab|abab"},
               {"(?i:a)b", "Ab|ab", "AB"},
               {"a(?i)b|c", "aB|ab|C", "AB"}};

static bool each(struct string_pattern *p, const char *texts, bool want, const char **bad) {
    for (const char *at = texts, *bar; at; at = bar ? bar + 1 : NULL) {
        bar = strchr(at, '|');
        *bad = at;
        struct str s = {at, bar ? (size_t)(bar - at) : strlen(at)};
        if (string_pattern_matches(p, s, NULL) != want) return false;
    }
    return true;
}
static void patterns(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof matches / sizeof matches[0]; k++) {
        struct string_pattern *p;
        const char *bad;
        assert_null(string_pattern_new(str_of(matches[k].pattern), &p));
        if (!each(p, matches[k].yes, true, &bad) || !each(p, matches[k].no, false, &bad))
            fail_msg("%s: '%s'", matches[k].pattern, bad);
        string_pattern_free(p);
    }
    static const char *const refused[] = {"(a",
                                          "a)",
                                          "[a",
                                          "*a",
                                          "a**",
                                          "\\1",
                                          "(?=a)",
                                          "\\pL",
                                          "a{1001}",
                                          "[b-a]",
                                          "(?z)a",
                                          "\\",
                                          "\\x",
                                          "\\C",
                                          "(?<>a)",
                                          "[[:no:]]",
                                          "((a{100}){100}){100}"};
    for (size_t k = 0; k < sizeof refused / sizeof refused[0]; k++) {
        struct string_pattern *p;
        status_t st = string_pattern_new(str_of(refused[k]), &p);
        if (!st) fail_msg("%s was taken", refused[k]);
        st_drop(st);
    }
}
static void linear(void **state) {
    (void)state;
    enum { N = 200000 };
    struct string_pattern *p;
    char *text = malloc(N);
    memset(text, 'a', N);
    assert_null(string_pattern_new(STR("(a*)*(a|aa)*b"), &p));
    int64_t start = clock_ns();
    assert_false(string_pattern_matches(p, (struct str){text, N}, NULL));
    assert_true(clock_ns() - start < 60000000000); // backtracking would take ages
    string_pattern_free(p);
    free(text);
}

static void cases(void **state) {
    (void)state;
    static const uint32_t pairs[][2] = {
        {'A', 'a'},     {0xc4, 0xe4},   {0x100, 0x101},     {0x178, 0xff},    {0x391, 0x3b1},
        {0x410, 0x430}, {0x1e9e, 0xdf}, {0x10400, 0x10428}, {0x24b6, 0x24d0}, {0x118a0, 0x118c0}};
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
        assert_int_equal(text_lower(pairs[k][0]), pairs[k][1]);
        if (pairs[k][0] != 0x1e9e) assert_int_equal(text_upper(pairs[k][1]), pairs[k][0]);
    }
    static const uint32_t none[] = {'1', 0xdf, 0x65e5, 0x10ffff, 0xf7, 0xd7};
    for (size_t k = 0; k < sizeof none / sizeof none[0]; k++) {
        assert_int_equal(text_lower(none[k]), none[k]);
        assert_int_equal(text_upper(none[k]), none[k]);
    }
    size_t at = 0;
    static const char odd[] = "\xc3\xa9\xff\xe6\x97\xed\xa0\x80";
    uint32_t got[8], n = 0;
    while (at < sizeof odd - 1)
        got[n++] = string_utf8((struct str){odd, sizeof odd - 1}, &at);
    assert_int_equal(n, 7); // each byte that begins nothing by itself
    assert_int_equal(got[0], 0xe9);
    for (uint32_t k = 1; k < n; k++)
        assert_int_equal(got[k], 0xfffd);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(tables), cmocka_unit_test(in_a_module),
                                   cmocka_unit_test(patterns), cmocka_unit_test(linear),
                                   cmocka_unit_test(cases)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
