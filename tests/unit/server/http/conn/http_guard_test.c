// SPDX-License-Identifier: Apache-2.0
// What passes and what does not, whole and cut at every byte; how much of it passes; how many heads
// are counted.
#include "server/http/conn/http_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define GET  "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\n"
#define HOST "Host: a\r\n"

static size_t pass(struct http_guard *g, const char *p, size_t n, size_t piece) {
    size_t at = 0;
    while (at < n && !g->why) {
        size_t some = n - at < piece ? n - at : piece;
        at += http_guard_take(g, p + at, some);
    }
    return at;
}
static void good_n(const char *p, size_t n, uint64_t heads) {
    for (size_t piece = 1; piece <= n; piece++) {
        struct http_guard g = {0};
        size_t at = pass(&g, p, n, piece);
        if (g.why) fail_msg("%s: refused: %s at %zu", p, g.why, at);
        assert_int_equal(at, n);
        assert_int_equal(g.heads, heads);
    }
}
static void bad_n(const char *p, size_t n, size_t at, const char *why, int status) {
    for (size_t piece = 1; piece <= n; piece++) {
        struct http_guard g = {0};
        size_t got = pass(&g, p, n, piece);
        if (!g.why) fail_msg("%s: passes", p);
        assert_string_equal(g.why, why);
        assert_int_equal(g.status, status);
        assert_int_equal(got, at);
        assert_int_equal(http_guard_take(&g, "x", 1), 0); // nothing more
    }
}
#define GOOD(text, heads) good_n(text, sizeof(text) - 1, heads)
#define BAD(before, rest, why)                                                                     \
    bad_n(before rest, sizeof(before rest) - 1, sizeof(before) - 1, why, 400)

static void passes(void **state) {
    (void)state;
    GOOD(GET HOST "\r\n", 1);
    GOOD(GET HOST "\r\n" GET HOST "\r\n", 2);
    GOOD("\r\n\r\n" GET HOST "\r\n", 1);
    GOOD("GET /\xc3\xa4 HTTP/1.1\r\n" HOST "X:\r\nY:\t \xe4 b \t\r\n\r\n", 1);
    GOOD("OPTIONS * HTTP/1.0\r\n\r\n", 1);
    GOOD(POST HOST "Content-Length: 5\r\n\r\n\n\0\r b" GET HOST "\r\n", 2);
    GOOD(POST HOST "content-LENGTH:\t 0\r\n\r\n" GET HOST "\r\n", 2);
    GOOD(POST HOST "Content-Length: 9\r\n\r\nab", 1);
    GOOD(POST HOST "Transfer-Encoding: "
                   "Chunked\r\n\r\n2\r\n\r\n\r\n0A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n" GET HOST
                   "\r\n",
         2);
    GOOD(POST HOST "Transfer-Encoding: chunked\r\n\r\n0;\r\nSum: 5\r\n\r\n" GET HOST "\r\n", 2);
    GOOD(GET HOST "Transfer-Encodings: gzip\r\nContent-Lengths: x\r\nXHost: a\r\n\r\n", 1);
}

static const char NO_CR[] = "a line that ends without CR",
                  CONTROL[] = "a control character in a header";
static void heads(void **state) {
    (void)state;
    const char *no_name = "a header's name with other characters than names have",
               *path = "a NUL, a space or a control character in the path";
    BAD("", "\n" GET HOST "\r\n", "no method");
    BAD("G", "\1T / HTTP/1.1\r\n", "no method");
    BAD("", " GET / HTTP/1.1\r\n", "no method");
    BAD("", "\x16\3\1", "no method");
    BAD("GET ", " / HTTP/1.1\r\n", path);
    BAD("GET /", "\0 HTTP/1.1\r\n", path);
    BAD("GET /", "\r\n" HOST, path);
    BAD("GET / HTTP/1.1", "\n" HOST "\r\n", "a request line with more than a version");
    BAD("GET / HTTP/1.1", " \r\n" HOST "\r\n", "a request line with more than a version");
    BAD("GET / ", "x HTTP/1.1\r\n" HOST "\r\n", "a version other than HTTP/1.1 and HTTP/1.0");
    BAD(GET "Host: a", "\n\r\n", NO_CR);
    BAD(GET HOST "X: a\r", "b\r\n\r\n", "a CR that ends no line");
    BAD(GET HOST, "\n", NO_CR);
    BAD(GET HOST "\r", "x", "a CR that ends no line");
    BAD(GET HOST, " folded\r\n\r\n", "a folded header line");
    BAD(GET HOST, "\tfolded\r\n\r\n", "a folded header line");
    BAD(GET HOST, ": empty\r\n\r\n", "a header without a name");
    BAD(GET HOST "Name", "\r\n\r\n", no_name);
    BAD(GET HOST "Name", " : x\r\n\r\n", no_name);
    BAD(GET HOST "Na", "\0me: x\r\n\r\n", no_name);
    BAD(GET HOST "X: a", "\0\r\n\r\n", CONTROL);
    BAD(GET HOST "X: a", "\x7f\r\n\r\n", CONTROL);
    BAD(GET, "\r\n", "no Host");
    BAD(GET HOST "HOST", ": a\r\n\r\n", "more than one Host");
}
static void framing(void **state) {
    (void)state;
    const char *number = "a length that is no number",
               *coding = "a Transfer-Encoding other than chunked",
               *size = "a chunk's size that is no number";
    BAD(POST HOST "Content-Length: 2\r\nContent-Length", ": 2\r\n\r\n",
        "several lengths of the body");
    BAD(POST HOST "Content-Length: ", "\r\n\r\n", number);
    BAD(POST HOST "Content-Length: ", "-1\r\n\r\n", number);
    BAD(POST HOST "Content-Length: ", "+1\r\n\r\n", number);
    BAD(POST HOST "Content-Length: 2", ", 2\r\n\r\n", number);
    BAD(POST HOST "Content-Length: 2", " \r\n\r\n", number);
    BAD(POST HOST "Content-Length: 0", "x2\r\n\r\n", number);
    BAD(POST HOST "Content-Length: 184467440737095516", "1\r\n\r\n", number);
    BAD(POST HOST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "\r\n",
        "a length of the body and a Transfer-Encoding");
    BAD(POST HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding", ": chunked\r\n\r\n",
        "several Transfer-Encodings");
    BAD("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", "\r\n",
        "a Transfer-Encoding in HTTP/1.0");
    BAD(POST HOST "Transfer-Encoding: ", "gzip, chunked\r\n\r\n", coding);
    BAD(POST HOST "Transfer-Encoding: chunked", " \r\n\r\n", coding);
    BAD(POST HOST "Transfer-Encoding: chunked", ", chunked\r\n\r\n", coding);
    BAD(POST HOST "Transfer-Encoding: ",
        "\x0b"
        "chunked\r\n\r\n",
        coding);
    BAD(POST HOST "Transfer-Encoding: ", "\r\n\r\n", coding);
#define CHUNKED POST HOST "Transfer-Encoding: chunked\r\n\r\n"
    BAD(CHUNKED, "\r\n", size);
    BAD(CHUNKED, "x\r\n", size);
    BAD(CHUNKED "0", "x2\r\n", size);
    BAD(CHUNKED "2", " \r\n", size);
    BAD(CHUNKED "2", "\nab\r\n", size);
    BAD(CHUNKED "000000000000002", "2\r\n", size);
    BAD(CHUNKED "2\r\nab", "c\r\n", "a chunk longer than its size");
    BAD(CHUNKED "2\r\nab", "\n", "a chunk longer than its size");
    BAD(CHUNKED "2\r\nab\r", "x", "a CR that ends no line");
    BAD(CHUNKED "2;a", "\nab\r\n0\r\n\r\n", "a control character in a chunk's extension");
    BAD(CHUNKED "0\r\n", " x: y\r\n\r\n", "a folded header line");
    BAD(CHUNKED "0\r\nContent-Length", ": 4\r\n\r\n", "a length, coding or Host behind the body");
    BAD(CHUNKED "0\r\n", "\n", NO_CR);
}
static void versions(void **state) {
    (void)state;
    const char *why = "a version other than HTTP/1.1 and HTTP/1.0", text[] = "PRI * HTTP/2.0\r\n",
               other[] = "GET / HTTP/1.2\r\n";
    bad_n(text, sizeof text - 1, 11, why, 505);
    bad_n(other, sizeof other - 1, 13, why, 505);
}

static char *text;
static size_t n_text;
static void add(const char *p, size_t times) {
    size_t n = strlen(p);
    text = realloc(text, n_text + n * times + 1);
    for (size_t i = 0; i < times; i++, n_text += n)
        memcpy(text + n_text, p, n + 1);
}
static void ends_with(const char *why, int status) {
    struct http_guard g = {0};
    pass(&g, text, n_text, 1000);
    if (why)
        assert_string_equal(g.why, why);
    else
        assert_null(g.why);
    if (why) assert_int_equal(g.status, status);
    free(text);
    text = NULL;
    n_text = 0;
}
static void bounds(void **state) {
    (void)state;
    add("GET /", 1), add("x", 40000);
    ends_with("a path longer than 32 KiB", 414);
    add(GET HOST "X: ", 1), add("x", 40000);
    ends_with("more than 32 KiB of headers", 431);
    add(GET HOST, 1), add("X: y\r\n", 128);
    ends_with("more than 128 header lines", 431);
    add(GET HOST, 1), add("X: y\r\n", 127), add("\r\n", 1);
    ends_with(NULL, 0);
    add("\r\n", 9);
    ends_with("empty lines", 400);
    add(CHUNKED "1;", 1), add("e", 300);
    ends_with("a long chunk extension", 400);
    add(CHUNKED, 1), add("1;e=f\r\nx\r\n", 100000), add("0\r\n\r\n" GET HOST "\r\n", 1);
    ends_with(NULL, 0);
    add(CHUNKED "0\r\n", 1), add("Trailer: of some length\r\n", 400);
    ends_with("more than 128 header lines", 431);
    add(CHUNKED "0\r\nX: ", 1), add("y", 5000);
    ends_with("more than 4 KiB of headers behind the body", 431);
    add(GET HOST "\r\n", 100000); // nor of requests
    ends_with(NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes), cmocka_unit_test(heads),
                                       cmocka_unit_test(framing), cmocka_unit_test(versions),
                                       cmocka_unit_test(bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
