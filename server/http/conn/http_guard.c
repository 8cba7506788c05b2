// SPDX-License-Identifier: Apache-2.0
// A state machine over bytes: each state takes one and names the next. Only bodies go by the piece.
#include "server/http/conn/http_guard.h"

#include <string.h>

enum guard_state { // IN_START is 0
    IN_START,      // before a request line
    IN_METHOD,
    IN_TARGET,
    IN_VERSION,
    AT_LF, // the LF that follows a CR; `next` follows it
    AT_LINE,
    IN_NAME,
    IN_SPACE, // between colon and value
    IN_VALUE,
    IN_LENGTH,
    IN_CODING,
    IN_BODY,
    IN_SIZE, // of a chunk
    IN_EXTENSION,
    IN_CHUNK,
    BEHIND_CHUNK,
};
enum { EMPTY_LINES = 4, SIZE_DIGITS = 15, MANY = 255 };
static const char VERSION[] = "HTTP/1.1";
static const int64_t MOST = INT64_C(1) << 60;

static bool fault(struct http_guard *g, int status, const char *why) {
    g->why = why;
    g->status = status;
    return false;
}
static bool bad(struct http_guard *g, const char *why) {
    return fault(g, 400, why);
}
static bool to(struct http_guard *g, enum guard_state s) {
    g->state = s;
    g->at = 0;
    return true;
}
static bool to_lf(struct http_guard *g, enum guard_state next) {
    g->next = next;
    return to(g, AT_LF);
}

static bool is_token(unsigned char c) { // RFC 9110, 5.6.2
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           (c && strchr("!#$%&'*+.^_`|~", c));
}
static bool is_control(unsigned char c) {
    return c < ' ' || c == 0x7f;
}
static void count(uint8_t *n) {
    if (*n < MANY) ++*n;
}

// ---- the ends of lines, heads and bodies

static bool next_request(struct http_guard *g) {
    g->bytes = g->lines = g->pairs = g->empty = 0;
    g->hosts = g->lengths = g->codings = g->once = 0;
    g->old = g->chunked = g->trailer = false;
    g->left = 0;
    return to(g, IN_START);
}
static bool end_of_head(struct http_guard *g) {
    g->heads++;
    if (g->chunked) {
        g->left = 0;
        return to(g, IN_SIZE);
    }
    return g->left ? to(g, IN_BODY) : next_request(g);
}
// What the head says together, at the CR of the empty line: the library must not have its end where
// this is at fault.
static bool head_is_sound(struct http_guard *g) {
    if (g->trailer) return true;
    if (!g->hosts && !g->old) return bad(g, "no Host");
    if (g->codings && g->lengths) return bad(g, "a length of the body and a Transfer-Encoding");
    if (g->codings && g->old) return bad(g, "a Transfer-Encoding in HTTP/1.0");
    return true;
}
static bool lf(struct http_guard *g, unsigned char c) {
    if (c != '\n') return bad(g, "a CR that ends no line");
    switch ((enum guard_state)g->next) {
    case IN_BODY:
        return g->trailer ? next_request(g) : end_of_head(g);
    case IN_CHUNK:
        if (g->left) return to(g, IN_CHUNK);
        g->trailer = true;
        g->bytes = g->lines = 0;
        return to(g, AT_LINE);
    default:
        return to(g, (enum guard_state)g->next);
    }
}

// ---- the request line

static bool start(struct http_guard *g, unsigned char c) {
    if (c == '\r') // RFC 9112, 2.2: an empty line before a request is let by
        return g->empty++ < EMPTY_LINES ? to_lf(g, IN_START) : bad(g, "empty lines");
    if (!is_token(c)) return bad(g, "no method");
    return to(g, IN_METHOD);
}
static bool target(struct http_guard *g, unsigned char c) {
    if (c == ' ' && g->at) {
        g->pairs = 0;
        return to(g, IN_VERSION);
    }
    g->at = 1;
    if (c == '&' && ++g->pairs >= GUARD_PAIRS) return fault(g, 414, "more than 128 parameters");
    return c == ' ' || is_control(c) ? bad(g, "a NUL, a space or a control character in the path")
                                     : true;
}
static bool version(struct http_guard *g, unsigned char c) {
    if (g->at == sizeof VERSION - 1)
        return c == '\r' ? to_lf(g, AT_LINE) : bad(g, "a request line with more than a version");
    if (g->at == sizeof VERSION - 2 && c == '0') {
        g->old = true;
        g->at++;
        return true;
    }
    return c == VERSION[g->at++]
               ? true
               : fault(g, g->at > 5 ? 505 : 400, "a version other than HTTP/1.1 and HTTP/1.0");
}

// ---- headers

static bool line(struct http_guard *g, unsigned char c) {
    if (c == '\r') return head_is_sound(g) && to_lf(g, IN_BODY);
    if (c == ' ' || c == '\t') return bad(g, "a folded header line");
    if (c == ':') return bad(g, "a header without a name");
    if (c == '\n') return bad(g, "a line that ends without CR");
    if (!is_token(c)) return bad(g, "a header's name with other characters than names have");
    if (++g->lines > GUARD_HEAD_LINES) return fault(g, 431, "more than 128 header lines");
    g->n_name = 0;
    return to(g, IN_NAME);
}
static bool named(const struct http_guard *g, const char *name) {
    return g->n_name == strlen(name) && !memcmp(g->name, name, g->n_name);
}
// Of these a reader may take the first, another the last: who calls, and what the body is.
static bool comes_once(struct http_guard *g) {
    static const char *const names[] = {"authorization", "content-type", "content-encoding",
                                        "origin"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        if (!named(g, names[k])) continue;
        bool again = g->once >> k & 1;
        g->once |= (uint8_t)(1 << k);
        return !again || bad(g, "more than one Authorization, Content-Type, Content-Encoding or "
                                "Origin");
    }
    return true;
}
static bool value_begins(struct http_guard *g) {
    bool length = named(g, "content-length"), coding = named(g, "transfer-encoding"),
         host = named(g, "host");
    if (g->trailer && (length || coding || host))
        return bad(g, "a length, coding or Host behind the body");
    if (host) count(&g->hosts);
    if (length) count(&g->lengths);
    if (coding) count(&g->codings);
    if (g->hosts > 1) return bad(g, "more than one Host");
    if (g->lengths > 1) return bad(g, "several lengths of the body");
    if (g->codings > 1) return bad(g, "several Transfer-Encodings");
    if (!comes_once(g)) return false;
    return to(g, IN_SPACE);
}
static void add_to_name(struct http_guard *g, unsigned char c) {
    if (g->n_name < sizeof g->name) g->name[g->n_name] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    g->n_name++;
}
static bool name(struct http_guard *g, unsigned char c) {
    if (c == ':') return g->n_name <= sizeof g->name ? value_begins(g) : to(g, IN_SPACE);
    add_to_name(g, c);
    return is_token(c) || bad(g, "a header's name with other characters than names have");
}
static bool value(struct http_guard *g, unsigned char c) {
    if (c == '\r') return to_lf(g, AT_LINE);
    if (c == '\n') return bad(g, "a line that ends without CR");
    if ((c == ';' || c == ',') && g->n_name <= sizeof g->name && named(g, "cookie") &&
        ++g->pairs >= GUARD_PAIRS)
        return fault(g, 431, "more than 128 cookies");
    return c == '\t' || !is_control(c) || bad(g, "a control character in a header");
}
static bool length(struct http_guard *g, unsigned char c) {
    if (c == '\r' && g->at) return to_lf(g, AT_LINE);
    if (c < '0' || c > '9' || g->left > MOST / 10) return bad(g, "a length that is no number");
    g->at = 1;
    g->left = g->left * 10 + (c - '0');
    return true;
}
static bool coding(struct http_guard *g, unsigned char c) {
    static const char word[] = "chunked";
    if (g->at == sizeof word - 1 && c == '\r') {
        g->chunked = true;
        return to_lf(g, AT_LINE);
    }
    return (g->at < sizeof word - 1 && (c | 32) == word[g->at++]) ||
           bad(g, "a Transfer-Encoding other than chunked");
}
static bool space(struct http_guard *g, unsigned char c) {
    if (c == ' ' || c == '\t') return true;
    bool known = g->n_name <= sizeof g->name;
    if (known && named(g, "content-length")) return to(g, IN_LENGTH) && length(g, c);
    if (known && named(g, "transfer-encoding")) return to(g, IN_CODING) && coding(g, c);
    return to(g, IN_VALUE) && value(g, c);
}

// ---- chunks

static int hex(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
static bool size(struct http_guard *g, unsigned char c) {
    if (g->at && c == '\r') return to_lf(g, IN_CHUNK);
    if (g->at && c == ';') return to(g, IN_EXTENSION);
    if (hex(c) < 0 || g->at++ >= SIZE_DIGITS) return bad(g, "a chunk's size that is no number");
    g->left = g->left * 16 + hex(c);
    return true;
}
static bool extension(struct http_guard *g, unsigned char c) {
    if (c == '\r') return to_lf(g, IN_CHUNK);
    if (++g->at > GUARD_EXTENSION_BYTES) return bad(g, "a long chunk extension");
    return c == '\t' || !is_control(c) || bad(g, "a control character in a chunk's extension");
}

static bool one(struct http_guard *g, unsigned char c) {
    switch ((enum guard_state)g->state) {
    case IN_START:
        return start(g, c);
    case IN_METHOD:
        return c == ' ' ? to(g, IN_TARGET) : is_token(c) || bad(g, "no method");
    case IN_TARGET:
        return target(g, c);
    case IN_VERSION:
        return version(g, c);
    case AT_LF:
        return lf(g, c);
    case AT_LINE:
        return line(g, c) && (g->state != IN_NAME || name(g, c));
    case IN_NAME:
        return name(g, c);
    case IN_SPACE:
        return space(g, c);
    case IN_VALUE:
        return value(g, c);

    case IN_LENGTH:
        return length(g, c);
    case IN_CODING:
        return coding(g, c);
    case IN_SIZE:
        return size(g, c);
    case IN_EXTENSION:
        return extension(g, c);
    case BEHIND_CHUNK:
        g->left = 0;
        return c == '\r' ? to_lf(g, IN_SIZE) : bad(g, "a chunk longer than its size");
    case IN_BODY:
    case IN_CHUNK:
        break; // by the piece, below
    }
    return true;
}
static bool within(struct http_guard *g) {
    if (g->state >= IN_BODY || g->state == AT_LF) return true; // no head, no trailer; a chunk's LF
    uint32_t most = g->trailer ? GUARD_TRAILER_BYTES : GUARD_HEAD_BYTES;
    if (++g->bytes <= most) return true;
    return g->state == IN_TARGET ? fault(g, 414, "a path longer than 32 KiB")
           : g->trailer          ? fault(g, 431, "more than 4 KiB of headers behind the body")
                                 : fault(g, 431, "more than 32 KiB of headers");
}

// How many bytes of a path or value are let by whatever they are next to, as far as the bounds go.
static size_t plain(const struct http_guard *g, const char *p, size_t n) {
    size_t most = (g->trailer ? GUARD_TRAILER_BYTES : GUARD_HEAD_BYTES) - (size_t)g->bytes, i = 0;
    if (n < most) most = n;
    if (g->state == IN_VALUE)
        while (i < most && (unsigned char)p[i] >= ' ' && p[i] != 0x7f && p[i] != ';' && p[i] != ',')
            i++;
    if (g->state == IN_TARGET && g->at)
        while (i < most && (unsigned char)p[i] > ' ' && p[i] != 0x7f && p[i] != '&')
            i++;
    return i;
}

void http_guard_pass(struct http_guard *g) {
    to(g, IN_BODY);
    g->left = INT64_MAX;
}
size_t http_guard_take(struct http_guard *g, const char *p, size_t n) {
    size_t i = 0, k;
    while (i < n && !g->why) {
        if (g->state == IN_BODY || g->state == IN_CHUNK) {
            size_t some = (uint64_t)g->left < n - i ? (size_t)g->left : n - i;
            i += some;
            g->left -= (int64_t)some;
            if (g->left) continue;
            if (g->state == IN_BODY)
                next_request(g);
            else
                to(g, BEHIND_CHUNK);
        } else if ((k = plain(g, p + i, n - i)) > 0) {
            g->bytes += (uint32_t)k;
            i += k;
        } else if (within(g) && one(g, (unsigned char)p[i]))
            i++;
    }
    return i;
}
