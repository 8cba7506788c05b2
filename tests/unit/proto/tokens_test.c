// SPDX-License-Identifier: Apache-2.0
// The tokens file: what is written is read back and found; what was tampered with is not.
#include "proto/tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

static char file[] = "/tmp/hlod-tokens-XXXXXX";

static void scopes(void **state) {
    (void)state;
    unsigned s = 0;
    assert_true(scopes_parse(STR("read,run"), &s));
    assert_int_equal(s, SCOPE_READ | SCOPE_RUN);
    assert_true(scopes_parse(STR("admin"), &s));
    assert_int_equal(s, SCOPE_ALL);
    struct strbuf b = {0};
    scopes_print(&b, SCOPE_LOAD | SCOPE_READ);
    assert_string_equal(b.p, "read,load");
    strbuf_done(&b);
    assert_false(scopes_parse(STR(""), &s));
    assert_false(scopes_parse(STR("read,,run"), &s));
    assert_false(scopes_parse(STR("read,root"), &s));
}

static void round_trip(void **state) {
    (void)state;
    struct tokens t = {0}, back;
    char one[TOKEN_TEXT] = "", two[TOKEN_TEXT] = "";
    struct token x = {.name = "ci", .tenant = "a", .created = "2026-01-02", .scopes = SCOPE_RUN};
    assert_null(tokens_add(&t, &x, one));
    x.name = "other";
    assert_null(tokens_add(&t, &x, two));
    x.name = "robot";
    x.subject = "spiffe://x/y";
    assert_null(tokens_add(&t, &x, NULL));
    assert_int_equal(strlen(one), TOKEN_TEXT - 1);
    assert_string_not_equal(one, two);
    status_t st = tokens_add(&t, &x, NULL);
    assert_int_equal(st_code(st), ST_ALREADY_EXISTS);
    st_drop(st);
    assert_null(tokens_write(file, &t, -1));
    struct stat sb;
    assert_int_equal(stat(file, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0600);
    // A group that may read it, and that later writes leave it.
    assert_null(tokens_write(file, &t, getegid()));
    assert_int_equal(stat(file, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0640);
    assert_int_equal(sb.st_gid, getegid());
    chmod(file, 0664);
    assert_null(tokens_write(file, &t, -1));
    assert_int_equal(stat(file, &sb), 0);
    assert_int_equal(sb.st_mode & 0777, 0644);
    chmod(file, 0600);
    assert_null(tokens_read(file, &back));
    assert_int_equal(back.n, 3);
    const struct token *got = tokens_find(&back, str_of(one));
    assert_non_null(got);
    assert_string_equal(got->name, "ci");
    assert_string_equal(got->tenant, "a");
    assert_int_equal(got->scopes, SCOPE_RUN);
    assert_string_equal(tokens_find(&back, str_of(two))->name, "other");
    assert_string_equal(tokens_find_subject(&back, "spiffe://x/y")->name, "robot");
    assert_null(tokens_find_subject(&back, "spiffe://x"));
    // One's id with the other's secret, each single character changed, shorter, longer.
    char mixed[TOKEN_TEXT];
    memcpy(mixed, one, TOKEN_TEXT);
    memcpy(mixed + 22, two + 22, 64);
    assert_null(tokens_find(&back, str_of(mixed)));
    for (size_t i = 0; i < TOKEN_TEXT - 1; i++) {
        memcpy(mixed, one, TOKEN_TEXT);
        mixed[i] = mixed[i] == '0' ? '1' : '0';
        assert_null(tokens_find(&back, str_of(mixed)));
        assert_null(tokens_find(&back, (struct str){one, i}));
    }
    assert_null(tokens_find(&back, STR("")));
    assert_true(tokens_remove(&back, "ci"));
    assert_false(tokens_remove(&back, "ci"));
    assert_null(tokens_find(&back, str_of(one)));
    assert_non_null(tokens_find(&back, str_of(two)));
    tokens_done(&t);
    tokens_done(&back);
}

static void refused(const char *text, mode_t mode, const char *words) {
    FILE *f = fopen(file, "w");
    fputs(text, f);
    fclose(f);
    chmod(file, mode);
    struct tokens t;
    status_t st = tokens_read(file, &t);
    assert_non_null(st);
    if (!strstr(st_message(st), words)) fail_msg("%s", st_message(st));
    st_drop(st);
    tokens_done(&t);
}
static void refusals(void **state) {
    (void)state;
    refused("", 0660, "chmod");
    refused("# fine\n\na b read 2026\n", 0600, ":3: expected NAME");
    refused("a b root 2026 cert:x\n", 0600, "scopes 'root'");
    refused("a b read 2026 cert:\n", 0600, "has no token");
    refused("a b read 2026 token:1:2:3\n", 0600, "has no token");
    refused("a b read 2026 cert:x more\n", 0600, "ends with 'more'");
    refused("a b read 2026 cert:x expires:soon\n", 0600, "ends with 'expires:soon'");
    refused("a b read 2026 cert:x expires:2027-01-31 more\n", 0600, "has no token");
    refused("a;b b read 2026 cert:x\n", 0600, "name 'a;b'");
    refused("a b/../c read 2026 cert:x\n", 0600, "tenant");
    refused("a b read 2026 cert:x;y\n", 0600, "subject");
}

static int64_t moment(const char *text) {
    int64_t ns = -1;
    if (!clock_wall_read(str_of(text), &ns)) fail_msg("not read: %s", text);
    return ns;
}
static void expiry(void **state) {
    (void)state;
    struct tokens t = {0}, back;
    char text[TOKEN_TEXT];
    int64_t now = moment("2026-11-21T14:00:00.5Z");
    struct token x = {.name = "a", .tenant = "t", .created = "2026-11-21", .scopes = SCOPE_RUN};
    assert_null(tokens_expire(&x, &t.arena, "90d", now));
    assert_string_equal(x.expires, "2027-02-19T14:00:00Z");
    assert_null(tokens_add(&t, &x, text));
    x.name = "b";
    x.subject = "robot";
    assert_null(tokens_expire(&x, &t.arena, "2027-01-31T01:30:00+02:00", now));
    assert_null(tokens_add(&t, &x, NULL));
    chmod(file, 0600);
    assert_null(tokens_write(file, &t, -1));
    assert_null(tokens_read(file, &back));
    const struct token *a = tokens_find(&back, str_of(text)),
                       *b = tokens_find_subject(&back, "robot");
    assert_string_equal(a->expires, "2027-02-19T14:00:00Z");
    assert_string_equal(b->expires, "2027-01-30T23:30:00Z");
    int64_t end = moment("2027-02-19T14:00:00Z");
    assert_false(tokens_expired(a, end - 1));
    assert_true(tokens_expired(a, end));
    static const char *const wrong[] = {"2026-11-20",     "0d",  "",
                                        "soon",           "90w", "2027-02-30",
                                        "9999999999999d", "-5d", "2027-01-01T10:00:00"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        status_t st = tokens_expire(&x, &t.arena, wrong[i], now);
        if (st_code(st) != ST_INVALID_ARGUMENT) fail_msg("taken: '%s'", wrong[i]);
        st_drop(st);
    }
    x.expires = NULL;
    assert_false(tokens_expired(&x, INT64_MAX)); // never
    tokens_done(&t);
    tokens_done(&back);
}

int main(void) {
    close(mkstemp(file));
    const struct CMUnitTest t[] = {cmocka_unit_test(scopes), cmocka_unit_test(round_trip),
                                   cmocka_unit_test(refusals), cmocka_unit_test(expiry)};
    int bad = cmocka_run_group_tests(t, NULL, NULL);
    unlink(file);
    return bad;
}
