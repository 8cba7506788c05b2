// SPDX-License-Identifier: Apache-2.0
// Options: precedence of flags, environment, file and default; bounds; what is refused and how it
// is named.
#include "server/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char file[] = "/tmp/config-test-XXXXXX";

static void write_file(const char *text) {
    FILE *f = fopen(file, "w");
    fputs(text, f);
    fclose(f);
}
static status_t read_it(struct config *c, const char *flag, const char *env) {
    char *argv[] = {(char *)"hlod", (char *)"--config", file, (char *)flag, NULL},
         *envp[] = {(char *)env, NULL};
    memset(c, 0, sizeof *c);
    return config_read(flag ? 4 : 3, argv, envp, c);
}
static void refused(const char *text, const char *flag, const char *env, const char *words) {
    struct config c;
    write_file(text);
    status_t st = read_it(&c, flag, env);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    if (!strstr(st_message(st), words)) fail_msg("'%s' lacks '%s'", st_message(st), words);
    st_drop(st);
    config_done(&c);
}

static void precedence(void **state) {
    (void)state;
    struct config c;
    write_file("# a comment\nmax-queue = 7 # behind\nmax_json_bytes = \"64K\"\ndevice = [\"cpu\", "
               "\"sim\"]\ninsecure_allow_anonymous = true\ndata = \"/a \\\"b\"\n");
    assert_null(read_it(&c, NULL, NULL));
    assert_int_equal(c.max_queue, 7);
    assert_int_equal(c.max_json_bytes, 65536);
    assert_string_equal(c.device, "cpu,sim");
    assert_true(c.insecure_allow_anonymous);
    assert_string_equal(c.data, "/a \"b");
    assert_string_equal(c.http, "127.0.0.1:8000");
    config_done(&c);
    assert_null(read_it(&c, NULL, "HLOD_MAX_QUEUE=8"));
    assert_int_equal(c.max_queue, 8);
    config_done(&c);
    assert_null(read_it(&c, "--max-queue=9", "HLOD_MAX_QUEUE=8"));
    assert_int_equal(c.max_queue, 9);
    config_done(&c);
}

static void refusals(void **state) {
    (void)state;
    refused("max_queue = 0\n", NULL, NULL, ":1: max_queue: 0 is not within");
    refused("\ncolour = 1\n", NULL, NULL, ":2: no option 'colour'");
    refused("max_queue 3\n", NULL, NULL, "key = value");
    refused("max_queue = \"3\n", NULL, NULL, "cannot read");
    refused("max_queue = 3 4\n", NULL, NULL, "cannot read");
    refused("[table]\n", NULL, NULL, "key = value");
    refused("", "--colour=1", NULL, "--colour");
    refused("", "extra", NULL, "unexpected argument");
    refused("", "--max-queue", NULL, "needs a value");
    refused("", NULL, "HLOD_COLOUR=1", "HLOD_COLOUR");
    refused("", "--insecure-allow-anonymous=maybe", NULL, "true or false");
    refused("", "--cache-bytes=9999999999T", NULL, "cache_bytes");
}

static void plugins(void **state) {
    (void)state;
    struct config c;
    write_file("max_queue = 7\nplugins = [\"a=/a.so\"]\n\n[plugins] # more\n");
    status_t st = read_it(&c, NULL, NULL); // a comment behind a section is not in the subset
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
    config_done(&c);
    write_file("max_queue = 7\nplugins = [\"a=/a.so\"]\n\n[plugins]\nb = \"/b.so:set.n=4\"\n"
               "max_queue = \"/c.so\" # a name like any\n");
    assert_null(read_it(&c, NULL, NULL));
    assert_int_equal(c.max_queue, 7);
    assert_string_equal(c.plugins, "a=/a.so,b=/b.so:set.n=4,max_queue=/c.so");
    config_done(&c);
    refused("[plugins]\nb\n", NULL, NULL, ":2: expected `key = value`");
    refused("[plugins]\nb = /b.so\n", NULL, NULL, "cannot read the value of 'b'");
    refused("[devices]\n", NULL, NULL, "expected `key = value`");
}

static void addresses(void **state) {
    (void)state;
    struct arena a = {0};
    const char *host;
    uint16_t port;
    assert_null(config_address(&a, "[::1]:80", &host, &port));
    assert_string_equal(host, "::1");
    assert_int_equal(port, 80);
    const char *bad[] = {"", "127.0.0.1", ":80", "h:70000", "h:-1", "h:x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        status_t st = config_address(&a, bad[i], &host, &port);
        assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
        st_drop(st);
    }
    arena_done(&a);
}

// roff's escapes begin with a backslash: none became a control character.
static void manual_pages_are_text(void **state) {
    (void)state;
    void (*const pages[])(struct strbuf *) = {config_man, config_man_file};
    for (size_t k = 0; k < 2; k++) {
        struct strbuf b = {0};
        pages[k](&b);
        for (size_t i = 0; i < b.n; i++)
            assert_true(b.p[i] == '\n' || (unsigned char)b.p[i] >= ' ');
        strbuf_done(&b);
    }
}

int main(void) {
    close(mkstemp(file));
    const struct CMUnitTest t[] = {cmocka_unit_test(precedence), cmocka_unit_test(refusals),
                                   cmocka_unit_test(plugins), cmocka_unit_test(addresses),
                                   cmocka_unit_test(manual_pages_are_text)};
    int bad = cmocka_run_group_tests(t, NULL, NULL);
    unlink(file);
    return bad;
}
