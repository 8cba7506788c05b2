// SPDX-License-Identifier: Apache-2.0
// Expressions of sizes: values as Python gives them, what is linear in one unknown, and texts that
// are refused.
#include "proto/size_expr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// b = 7, c = 3, big = 2^62; nothing else is known
static bool known(void *ctx, struct str symbol, int64_t *out) {
    (void)ctx;
    *out = str_is(symbol, "b") ? 7 : str_is(symbol, "c") ? 3 : INT64_C(1) << 62;
    return str_is(symbol, "b") || str_is(symbol, "c") || str_is(symbol, "big");
}
static struct size_expr read_text(const char *text) {
    struct size_expr x;
    status_t st = size_expr_read(str_of(text), known, NULL, &x);
    if (st) fail_msg("%s: %s", text, st_message(st));
    return x;
}
static void values(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {{"2*b", 14},
                {"b + 1", 8},
                {" b+1 ", 8},
                {"floordiv(b, 2)", 3},
                {"floordiv(b, - 2)", -4},
                {"floordiv(- b, 2)", -4},
                {"mod(b, 3)", 1},
                {"mod(b, -3)", -2},
                {"mod(-b,3)", 2},
                {"max(b, 4)", 7},
                {"min(b, c)", 3},
                {"non_negative(c-b)", 0},
                {"b*c - 1", 20},
                {"3*b^2*c - 7", 434},
                {"- c + b", 4},
                {"4*floordiv(b + 1, 2)", 16},
                {"floordiv(b, 2)^2", 9},
                {"(b - c)*(b + c)", 40},
                {"2^10", 1024},
                {"big + (big - 1)", INT64_MAX}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct size_expr x = read_text(rows[k].text);
        if (x.form != SIZE_KNOWN || x.value != rows[k].value)
            fail_msg("%s gives %lld", rows[k].text, (long long)x.value);
        assert_int_equal(size_expr_is(str_of(rows[k].text)),
                         rows[k].text[0] != 'b' || strlen(rows[k].text) > 1);
    }
}
static void unknowns(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum size_form form;
        int64_t factor, value, size, solution; // solution -1: none
    } rows[] = {{"2*n", SIZE_LINEAR, 2, 0, 6, 3},
                {"2*n", SIZE_LINEAR, 2, 0, 7, -1},
                {"n + 1", SIZE_LINEAR, 1, 1, 6, 5},
                {"b - n", SIZE_LINEAR, -1, 7, 2, 5},
                {"b*n + 3*(n - 1) + c", SIZE_LINEAR, 10, 0, 40, 4},
                {"n", SIZE_LINEAR, 1, 0, 9, 9},
                {"n^1", SIZE_LINEAR, 1, 0, 9, 9},
                {"n - n", SIZE_OPEN, 0, 0, 0, 0},
                {"n*n", SIZE_OPEN, 0, 0, 0, 0},
                {"n^2", SIZE_OPEN, 0, 0, 0, 0},
                {"n + m", SIZE_OPEN, 0, 0, 0, 0},
                {"max(n, 1)", SIZE_OPEN, 0, 0, 0, 0},
                {"mod(b, n) + floordiv(1, 0*n)", SIZE_OPEN, 0, 0, 0, 0}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct size_expr x = read_text(rows[k].text);
        int64_t found = -1;
        assert_int_equal(x.form, rows[k].form);
        if (x.form != SIZE_LINEAR) continue;
        assert_true(str_is(x.unknown, "n"));
        assert_int_equal(x.factor, rows[k].factor);
        assert_int_equal(x.value, rows[k].value);
        bool solved = size_expr_solve(&x, rows[k].size, &found);
        assert_int_equal(solved, rows[k].solution >= 0);
        if (solved) assert_int_equal(found, rows[k].solution);
    }
    int64_t found;
    assert_false(size_expr_solve(&(struct size_expr){SIZE_LINEAR, INT64_MIN, 1, {0}}, 1, &found));
    assert_false(size_expr_solve(&(struct size_expr){SIZE_LINEAR, 0, -1, {0}}, INT64_MIN, &found));
}
static void refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",           "+",       "2*",         "*b",        "b b",        "b c",
        "(b",         "b)",      "b^",         "b^c",       "b^0",        "b^65",
        "b^-1",       "max(b)",  "max(b,c,b)", "sin(b)",    "b.c",        "1.5*b",
        "b/2",        "b%2",     "9223372036854775808",     "big*big",    "big+big",
        "big^2",      "- big - big - 1 - b", "mod(b,0)",    "floordiv(b, c - 3)",
        "99999999999999999999", "b-",         "--b",        "max(,)",     "\x80",
        "floordiv(- big - big, -1)",          "mod(- big - big, - 1)",   "b\n+1"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct size_expr x;
        status_t st = size_expr_read(str_of(texts[k]), known, NULL, &x);
        if (!st) fail_msg("'%s' is taken", texts[k]);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        st_drop(st);
    }
}
static void budgets(void **state) {
    (void)state;
    char text[2 * SIZE_EXPR_MAX];
    struct size_expr x;
    for (size_t deep = SIZE_EXPR_DEPTH - 1; deep <= SIZE_EXPR_DEPTH; deep++) {
        memset(text, '(', deep);
        text[deep] = 'b';
        memset(text + deep + 1, ')', deep);
        status_t st = size_expr_read((struct str){text, 2 * deep + 1}, known, NULL, &x);
        assert_int_equal(st != ST_OK, deep == SIZE_EXPR_DEPTH);
        st_drop(st);
    }
    memset(text, 'n', sizeof text);
    status_t st = size_expr_read((struct str){text, SIZE_EXPR_MAX + 1}, known, NULL, &x);
    assert_non_null(st);
    st_drop(st);
    assert_false(size_expr_is(str_of("batch")));
    assert_false(size_expr_is(str_of("128")));
    assert_false(size_expr_is(str_of("")));
    assert_false(size_expr_is(str_of("past_length + new length")));
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(values), cmocka_unit_test(unknowns),
                                   cmocka_unit_test(refused), cmocka_unit_test(budgets)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
