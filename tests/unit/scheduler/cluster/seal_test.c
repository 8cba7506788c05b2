// SPDX-License-Identifier: Apache-2.0
// What nodes prove by a shared secret: messages and passes, whose they are, for how long, and every
// byte of them changed.
#include "scheduler/cluster/seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/message.h"

static char path[40];
static status_t seal_of(const char *text, const char *cluster, mode_t mode, struct seal **out) {
    snprintf(path, sizeof path, "/tmp/seal-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    status_t st = seal_new(path, cluster, out);
    unlink(path);
    return st;
}
#define ONE "11111111111111111111111111111111"
#define TWO "22222222222222222222222222222222"
static struct seal *seal(const char *text, const char *cluster) {
    struct seal *s;
    assert_null(seal_of(text, cluster, 0600, &s));
    return s;
}
static struct span names(const struct seal *s, struct arena *a) {
    Hlod__Cluster__Body b = HLOD__CLUSTER__BODY__INIT;
    b.names = message_new(a, &hlod__cluster__names__descriptor);
    b.names->sum = 7;
    return seal_message(s, a, &b);
}
static bool opens(const struct seal *s, struct arena *a, struct span bytes) {
    const char *why;
    Hlod__Cluster__Body *b = seal_open(s, a, bytes, &why);
    assert_true(!b == (why != NULL));
    return b && b->names && b->names->sum == 7;
}

static void files(void **state) {
    (void)state;
    static const char *const bad[] = {"", "# " ONE "\n", "short\n", ONE "\nshort\n",
                                      ONE "\n" ONE "\n" ONE "\n" ONE "\n" ONE "\n"};
    struct seal *s;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        status_t st = seal_of(bad[k], "c", 0600, &s);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        st_drop(st);
    }
    status_t st = seal_of(ONE, "c", 0644, &s); // others may read it
    assert_non_null(st);
    st_drop(st);
    seal_free(seal("# of the cluster\n\n  " ONE "  \n" TWO "\n", "c"));
    seal_free(NULL);
}

static void messages(void **state) {
    (void)state;
    struct arena a = {0};
    struct seal *one = seal(ONE "\n", "c"), *two = seal(TWO "\n", "c");
    struct seal *both = seal(TWO "\n" ONE "\n", "c"), *other = seal(ONE "\n", "d");
    struct span m = names(one, &a);
    assert_true(opens(one, &a, m));
    assert_true(opens(both, &a, m)); // while the secret is being replaced
    assert_false(opens(two, &a, m));
    assert_true(opens(two, &a, names(both, &a))); // the first seals
    assert_false(opens(one, &a, names(both, &a)));
    assert_false(opens(other, &a, m));

    for (size_t n = 0; n < m.n; n++)
        assert_false(opens(one, &a, (struct span){m.p, n}));
    for (size_t k = 0; k < 8 * m.n; k++) {
        uint8_t *bad = arena_dup(&a, m.p, m.n);
        bad[k / 8] ^= (uint8_t)(1 << k % 8);
        assert_false(opens(one, &a, (struct span){bad, m.n}));
    }
    Hlod__Cluster__Body empty = HLOD__CLUSTER__BODY__INIT;
    assert_false(opens(one, &a, seal_message(one, &a, &empty)));
    seal_free(one);
    seal_free(two);
    seal_free(both);
    seal_free(other);
    arena_done(&a);
}

static bool admits(const struct seal *s, struct arena *a, const char *pass, const char *self) {
    Hlod__Cluster__Pass *p;
    status_t st = seal_admit(s, a, pass, self, &p);
    bool well = !st && !strcmp(p->tenant, "t") && p->scopes == 5 && !strcmp(p->from, "n1");
    if (st) assert_int_equal(st_code(st), ST_UNAUTHENTICATED);
    st_drop(st);
    return well;
}
static void passes(void **state) {
    (void)state;
    struct arena a = {0};
    struct seal *one = seal(ONE "\n", "c"), *two = seal(TWO "\n", "c");
    const char *text = seal_pass(one, &a, "n1", "life", "t", 5);
    static const char SCHEME[] = SEAL_SCHEME " ";
    assert_int_equal(strncmp(text, SCHEME, sizeof SCHEME - 1), 0);
    text += sizeof SCHEME - 1;
    assert_true(admits(one, &a, text, "life"));
    assert_false(admits(one, &a, text, "another"));
    assert_false(admits(two, &a, text, "life"));
    for (size_t k = 0; text[k]; k++) {
        char *bad = arena_strdup(&a, text);
        bad[k] = bad[k] == '1' ? '2' : '1';
        assert_false(admits(one, &a, bad, "life"));
        bad[k] = 0;
        assert_false(admits(one, &a, bad, "life"));
    }
    assert_false(admits(one, &a, seal_pass(one, &a, "n 1", "life", "t", 5), "life"));
    assert_false(admits(one, &a, seal_pass(one, &a, "n1", "life", "", 5), "life"));
    // What is sealed is no pass.
    struct span m = names(one, &a);
    char *hex = arena_alloc(&a, 2 * m.n + 1);
    for (size_t k = 0; k < m.n; k++)
        snprintf(hex + 2 * k, 3, "%02x", m.p[k]);
    assert_false(admits(one, &a, hex, "life"));
    seal_free(one);
    seal_free(two);
    arena_done(&a);
}

// One secret is replaced by another while it is used: who had both, then either alone.
static void renewed(void **state) {
    (void)state;
    struct arena a = {0};
    struct seal *s = seal(ONE "\n", "c"), *one = seal(ONE "\n", "c"), *two = seal(TWO "\n", "c");
    seal_renew(s, seal(ONE "\n" TWO "\n", "c"));
    assert_true(opens(s, &a, names(one, &a)));
    assert_true(opens(s, &a, names(two, &a)));
    assert_true(opens(one, &a, names(s, &a)));
    seal_renew(s, seal(TWO "\n", "other")); // of a seal the keys alone
    assert_false(opens(s, &a, names(one, &a)));
    assert_true(opens(s, &a, names(two, &a)));
    assert_true(opens(two, &a, names(s, &a)));
    seal_free(s);
    seal_free(one);
    seal_free(two);
    arena_done(&a);
}

// A record holds under its key alone, in its cluster alone, for ever, and with no byte changed.
static void records(void **state) {
    (void)state;
    struct arena a = {0};
    const char *why;
    struct span out, none = {0};
    struct seal *s = seal(TWO "\n" ONE "\n", "c"), *old = seal(ONE "\n" TWO "\n", "c"),
                *other = seal(TWO "\n", "d");
    struct span text = {(const uint8_t *)"some bytes", 10};
    struct span r = seal_record(s, &a, "head.1", text);
    assert_true(seal_open_record(old, &a, "head.1", r, &out, &why));
    assert_true(out.n == 10 && !memcmp(out.p, text.p, 10));
    assert_false(seal_open_record(s, &a, "head.2", r, &out, &why));
    assert_false(seal_open_record(s, &a, "head.", r, &out, &why));
    assert_false(seal_open_record(other, &a, "head.1", r, &out, &why));
    assert_null(seal_open(s, &a, r, &why)); // nor is it a message
    for (size_t k = 0; k < r.n; k++) {
        uint8_t *p = arena_dup(&a, r.p, r.n);
        p[k] ^= 1;
        bool same = seal_open_record(s, &a, "head.1", (struct span){p, r.n}, &out, &why) &&
                    out.n == 10 && !memcmp(out.p, text.p, 10);
        assert_false(same);
        assert_false(seal_open_record(s, &a, "head.1", (struct span){r.p, k}, &out, &why));
    }
    r = seal_record(s, &a, "k", none);
    assert_true(seal_open_record(s, &a, "k", r, &out, &why) && !out.n);
    assert_false(seal_open_record(s, &a, "k", names(s, &a), &out, &why));
    arena_done(&a);
    seal_free(s);
    seal_free(old);
    seal_free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(files), cmocka_unit_test(messages),
                                       cmocka_unit_test(passes), cmocka_unit_test(records),
                                       cmocka_unit_test(renewed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
