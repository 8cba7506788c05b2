// SPDX-License-Identifier: Apache-2.0
// Builder and scanners. Numbers are read and written in ASCII, whatever the locale.
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <float.h>
#include <fnmatch.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/text.h"

void strbuf_done(struct strbuf *b) {
    free(b->p);
    *b = (struct strbuf){0};
}
void strbuf_clear(struct strbuf *b) {
    b->n = 0;
    b->truncated = false;
    if (b->p) b->p[0] = 0;
}
void strbuf_limit(struct strbuf *b, size_t max_bytes) {
    b->limit = max_bytes;
}

static size_t cap_for(const struct strbuf *b, size_t n) {
    size_t cap = b->cap ? b->cap : 64;
    while (cap < b->n + n + 1)
        cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
    return cap;
}
// Room for n more bytes and the NUL; less when the limit says so. Gives how many may be added.
static size_t reserve(struct strbuf *b, size_t n) {
    if (b->limit && n > b->limit - (b->n < b->limit ? b->n : b->limit)) {
        n = b->limit > b->n ? b->limit - b->n : 0;
        b->truncated = true;
    }
    if (b->n + n + 1 > b->cap) {
        b->cap = cap_for(b, n);
        b->p = arena_must_realloc(b->p, b->cap);
    }
    return n;
}
bool strbuf_room(struct strbuf *b, size_t n) {
    if (n > SIZE_MAX / 4) return false;
    if (b->n + n + 1 <= b->cap) return true;
    size_t cap = cap_for(b, n);
    char *p = realloc(b->p, cap);
    if (!p) return false;
    b->p = p;
    b->cap = cap;
    return true;
}

void strbuf_add(struct strbuf *b, const void *p, size_t n) {
    if (b->limit || n >= b->cap - b->n) n = reserve(b, n);
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}
void strbuf_puts(struct strbuf *b, const char *z) {
    strbuf_add(b, z, strlen(z));
}
void strbuf_putc(struct strbuf *b, char c) {
    if (b->limit || b->cap - b->n < 2) {
        strbuf_add(b, &c, 1);
        return;
    }
    b->p[b->n++] = c;
    b->p[b->n] = 0;
}
static void put_number(struct strbuf *b, bool negative, uint64_t n) {
    char text[24], *end = text + sizeof text, *at = end;
    do
        *--at = (char)('0' + n % 10);
    while (n /= 10);
    if (negative) *--at = '-';
    strbuf_add(b, at, (size_t)(end - at));
}
void strbuf_i64(struct strbuf *b, int64_t v) {
    put_number(b, v < 0, v < 0 ? -(uint64_t)v : (uint64_t)v);
}
void strbuf_u64(struct strbuf *b, uint64_t v) {
    put_number(b, false, v);
}
void strbuf_ms(struct strbuf *b, double v) {
    if (!(v >= 0 && v < 1e12)) {
        strbuf_printf(b, "%.3f", v);
        return;
    }
    uint64_t k = (uint64_t)(v * 1000 + 0.5);
    char digits[4] = {'.', (char)('0' + k / 100 % 10), (char)('0' + k / 10 % 10),
                      (char)('0' + k % 10)};
    strbuf_u64(b, k / 1000);
    strbuf_add(b, digits, sizeof digits);
}
void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap) {
    char small[256];
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n >= 0 && (size_t)n < sizeof small) {
        strbuf_add(b, small, (size_t)n);
    } else if (n >= 0) {
        char *big = arena_must_realloc(NULL, (size_t)n + 1);
        vsnprintf(big, (size_t)n + 1, fmt, again);
        strbuf_add(b, big, (size_t)n);
        free(big);
    }
    va_end(again);
}
void strbuf_printf(struct strbuf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    strbuf_vprintf(b, fmt, ap);
    va_end(ap);
}

// Escapes what is not seen (base/text.h) too: the same text in JSON, and harmless in a terminal.
static void json_char(struct strbuf *b, uint32_t code, const char *p, size_t n) {
    if (code == UINT32_MAX)
        strbuf_puts(b, "\xef\xbf\xbd");
    else if (code == '\n')
        strbuf_puts(b, "\\n");
    else if (code == '\t')
        strbuf_puts(b, "\\t");
    else if (code > 0xffff && !text_seen(code))
        strbuf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                      0xdc00 + (code & 0x3ff));
    else if (!text_seen(code))
        strbuf_printf(b, "\\u%04x", code);
    else
        strbuf_add(b, p, n);
}
void strbuf_json_str(struct strbuf *b, struct str s) {
    strbuf_putc(b, '"');
    while (s.n) {
        size_t n = 0; // as they are
        while (n < s.n && s.p[n] >= ' ' && s.p[n] < 0x7f && s.p[n] != '"' && s.p[n] != '\\')
            n++;
        strbuf_add(b, s.p, n);
        s = (struct str){s.p + n, s.n - n};
        if (!s.n) break;
        uint32_t code;
        n = text_first(s, &code);
        if (code == '"' || code == '\\') strbuf_putc(b, '\\');
        json_char(b, code, s.p, n);
        s = (struct str){s.p + n, s.n - n};
    }
    strbuf_putc(b, '"');
}

char *strbuf_take(struct strbuf *b) {
    reserve(b, 0);
    b->p[b->n] = 0;
    char *p = b->p;
    *b = (struct strbuf){0};
    return p;
}
const char *strbuf_cstr(const struct strbuf *b) {
    return b->p ? b->p : "";
}

bool str_to_u64(struct str s, uint64_t *out) {
    uint64_t v = 0;
    if (s.n == 0) return false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned d = (unsigned)(uint8_t)s.p[i] - '0';
        if (d > 9 || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, d, &v))
            return false;
    }
    *out = v;
    return true;
}

bool str_to_i64(struct str s, int64_t *out) {
    bool neg = s.n > 0 && s.p[0] == '-';
    if (neg || (s.n > 0 && s.p[0] == '+')) s.p++, s.n--;
    uint64_t v;
    if (!str_to_u64(s, &v) || v > (uint64_t)INT64_MAX + neg) return false;
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

// A number and perhaps one of the units, whose factors stand in their order.
static bool with_unit(struct str s, const char *units, const int64_t *factors, int64_t *out) {
    const char *unit = s.n ? memchr(units, s.p[s.n - 1], strlen(units)) : NULL;
    int64_t v;
    if (unit) s.n--;
    if (!str_to_i64(s, &v) || v < 0) return false;
    return sz_mul(v, unit ? factors[unit - units] : 1, out);
}
bool str_to_bytes(struct str s, int64_t *out) {
    static const int64_t factors[] = {1 << 10, 1 << 20, 1 << 30, INT64_C(1) << 40};
    return with_unit(s, "KMGT", factors, out);
}
bool str_to_seconds(struct str s, int64_t *out) {
    static const int64_t factors[] = {1, 60, 3600, 86400};
    return with_unit(s, "smhd", factors, out);
}

// 10^k is exact for these k; so m * 10^k and m / 10^k are rounded once where m < 2^53, as strtod
// rounds (W. D. Clinger, How to read floating point numbers accurately, 1990).
static const double exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { EXACT_POWERS = sizeof exact_powers / sizeof exact_powers[0], EXACT_DIGITS = 15 };

static double scaled(double m, int k) {
    return k < 0 ? m / exact_powers[-k] : m * exact_powers[k];
}

// The same where long double has a mantissa of 64 bits, in which m and 10^k are exact up to these
// bounds. The quotient or product is rounded to 64 bits and then to 53: right unless the 11 bits
// between are just a half. False: strtod decides.
enum { LONG_POWERS = 28, LONG_DIGITS = 19 };
#if LDBL_MANT_DIG == 64
static long double long_scaled(long double m, int k) {
    static const long double powers[LONG_POWERS] = {
        1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
        1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
        1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    return k < 0 ? m / powers[-k] : m * powers[k];
}
static bool long_number(uint64_t m, int k, double *out) {
    if (abs(k) >= LONG_POWERS) return false;
    long double v = long_scaled((long double)m, k);
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    *out = (double)v;
    return (bits & 0x7ff) != 0x400;
}
#else
static bool long_number(UNUSED uint64_t m, UNUSED int k, UNUSED double *out) {
    return false;
}
#endif

// Digits with a point and an exponent, few enough to be exact. False: strtod decides.
static bool short_number(struct str s, double *out) {
    size_t i = 0, n = s.n;
    bool negative = n && s.p[0] == '-', point = false;
    int digits = 0, k = 0, e = 0;
    uint64_t m = 0;

    for (i = negative; i < n; i++) {
        char c = s.p[i];
        if (c == '.' && !point) {
            point = true;
            continue;
        }
        if (c < '0' || c > '9') break;
        if (m || c != '0') digits++;
        if (digits > LONG_DIGITS) return false;
        m = m * 10 + (uint64_t)(c - '0');
        k -= point;
    }
    if (i == (size_t)negative || (point && i == (size_t)negative + 1)) return false;

    if (i < n) {
        if (s.p[i] != 'e' && s.p[i] != 'E') return false;
        bool minus = ++i < n && s.p[i] == '-';
        if (i < n && (s.p[i] == '-' || s.p[i] == '+')) i++;
        if (i == n || n - i > 3) return false;
        for (; i < n; i++) {
            if (s.p[i] < '0' || s.p[i] > '9') return false;
            e = e * 10 + (s.p[i] - '0');
        }
        k += minus ? -e : e;
    }

    double v;
    if (digits <= EXACT_DIGITS && abs(k) < EXACT_POWERS)
        v = scaled((double)m, k);
    else if (!long_number(m, k, &v))
        return false;
    *out = negative ? -v : v;
    return true;
}

// The number of magnitude m * 10^(e + 1 - n) as %.*g writes n digits; m has n digits or n + 1.
static void put_digits(struct strbuf *b, bool negative, uint64_t m, int n, int e) {
    char digits[24];
    int have = snprintf(digits, sizeof digits, "%llu", (unsigned long long)m);
    int at = e + have - n, last = have;
    while (last > 1 && digits[last - 1] == '0')
        last--;
    if (negative) strbuf_putc(b, '-');
    if (at < -4 || at >= n) {
        strbuf_putc(b, digits[0]);
        if (last > 1) strbuf_putc(b, '.');
        strbuf_add(b, digits + 1, (size_t)last - 1);
        strbuf_printf(b, "e%c%02d", at < 0 ? '-' : '+', abs(at));
    } else if (at < 0) {
        strbuf_add(b, "0.000", (size_t)(1 - at));
        strbuf_add(b, digits, (size_t)last);
    } else {
        int whole = at + 1 < last ? at + 1 : last;
        strbuf_add(b, digits, (size_t)whole);
        strbuf_add(b, "00000000000000000", (size_t)(at + 1 - whole));
        if (last > whole) strbuf_putc(b, '.');
        strbuf_add(b, digits + whole, (size_t)(last - whole));
    }
}

void strbuf_f32(struct strbuf *b, float v) {
    char text[40];
    int e = v == 0 || !isfinite(v) ? EXACT_POWERS : (int)floor(log10(fabs((double)v)));
    for (int n = 6; n <= 9 && abs(e) + n < EXACT_POWERS; n++) {
        int k = n - 1 - e;
        double m = rint(scaled(fabs((double)v), k));
        if ((float)scaled(m, -k) != fabsf(v)) continue;
        put_digits(b, v < 0, (uint64_t)m, n, e);
        return;
    }
    for (int n = fabsf(v) < 0x1p-126f ? 1 : 6; n <= 9; n++) {
        double back = 0;
        snprintf(text, sizeof text, "%.*g", n, (double)v);
        if (str_to_f64(str_of(text), &back) && (float)back == v) break;
    }
    strbuf_puts(b, text);
}

void strbuf_f64(struct strbuf *b, double v) {
    char text[40];
    double back;
#if LDBL_MANT_DIG == 64
    int e = v == 0 || !isfinite(v) ? 2 * LONG_POWERS : (int)floor(log10(fabs(v)));
    for (int n = 15; n <= 17 && abs(n - 1 - e) < LONG_POWERS; n++) {
        uint64_t m = (uint64_t)rintl(long_scaled((long double)fabs(v), n - 1 - e));
        if (!long_number(m, e + 1 - n, &back)) break;
        if (back != fabs(v)) continue;
        put_digits(b, v < 0, m, n, e);
        return;
    }
#endif
    // %g drops trailing zeros, so digits that a normal number always keeps need not be tried.
    for (int n = fabs(v) < 0x1p-1022 ? 1 : 15; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*g", n, v);
        if (str_to_f64(str_of(text), &back) && back == v) break;
    }
    strbuf_puts(b, text);
}

bool str_to_f64(struct str s, double *out) {
    if (short_number(s, out)) return true;
    char buf[512]; // longer decimal texts than this are not numbers people write
    if (s.n == 0 || s.n >= sizeof buf) return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || strchr("+-.eEinfatyINFATYxXpPbcdBCD", c))) return false;
        buf[i] = c;
    }
    buf[s.n] = 0;
    static locale_t c_locale; // made once; a lost race only makes it twice
    if (!c_locale) c_locale = newlocale(LC_ALL_MASK, "C", NULL);
    char *end;
    double v = strtod_l(buf, &end, c_locale);
    if (end != buf + s.n) return false;
    *out = v;
    return true;
}

bool str_cut(struct str *s, char sep, struct str *head) {
    if (s->n == 0) {
        *head = (struct str){s->p, 0};
        return false;
    }
    const char *at = memchr(s->p, sep, s->n);
    size_t n = at ? (size_t)(at - s->p) : s->n;
    *head = (struct str){s->p, n};
    s->p += n + (at != NULL);
    s->n -= n + (at != NULL);
    return true;
}

bool str_listed(struct str word, const char *words) {
    struct str all = {words, strlen(words)}, one;
    while (str_cut(&all, ' ', &one))
        if (str_eq(word, one)) return true;
    return false;
}
void strbuf_glob(struct strbuf *b, const char *name) {
    for (const char *p = name; *p; p++) {
        if (strchr("*?[\\!", *p)) strbuf_putc(b, '\\');
        strbuf_putc(b, *p);
    }
}
bool str_in_globs(const char *globs, const char *name) {
    struct str all = {globs, strlen(globs)}, one;
    bool found = false;
    char pattern[256];
    while (str_cut(&all, ',', &one)) {
        one = str_trim(one);
        bool not = one.n && one.p[0] == '!';
        if (not) one.p++, one.n--;
        if (!one.n || one.n >= sizeof pattern) continue;
        memcpy(pattern, one.p, one.n);
        pattern[one.n] = 0;
        if (fnmatch(pattern, name, 0) == 0) found = !not;
    }
    return found;
}

// ---- bytes as text

#define SIXTEEN(a)                                                                                 \
    a "0" a "1" a "2" a "3" a "4" a "5" a "6" a "7" a "8" a "9" a "a" a "b" a "c" a "d" a "e" a "f"
char *str_put_hex(char *to, const void *p, size_t n) {
    static const char pairs[] =
        SIXTEEN("0") SIXTEEN("1") SIXTEEN("2") SIXTEEN("3") SIXTEEN("4") SIXTEEN("5") SIXTEEN("6")
            SIXTEEN("7") SIXTEEN("8") SIXTEEN("9") SIXTEEN("a") SIXTEEN("b") SIXTEEN("c")
                SIXTEEN("d") SIXTEEN("e") SIXTEEN("f");
    const uint8_t *v = p;
    for (size_t i = 0; i < n; i++, to += 2)
        memcpy(to, pairs + 2 * (size_t)v[i], 2);
    *to = 0;
    return to;
}
void strbuf_hex(struct strbuf *b, const void *p, size_t n) {
    const uint8_t *v = p;
    for (size_t i = 0; i < n; i++) {
        char two[3];
        str_put_hex(two, v + i, 1);
        strbuf_add(b, two, 2);
    }
}
static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
bool str_from_hex(struct str s, void *out, size_t n) {
    uint8_t *v = out;
    if (s.n % 2 || s.n / 2 != n) return false;
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(s.p[2 * i]), low = hex_digit(s.p[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        v[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

const char str_base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void strbuf_base64(struct strbuf *b, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (; n > 0; p += 3, n -= n < 3 ? n : 3) {
        uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
        char four[4] = {str_base64_digits[v >> 18], str_base64_digits[v >> 12 & 63],
                        n > 1 ? str_base64_digits[v >> 6 & 63] : '=',
                        n > 2 ? str_base64_digits[v & 63] : '='};
        strbuf_add(b, four, sizeof four);
    }
}

struct str str_trim(struct str s) {
    while (s.n && strchr(" \t\r\n", s.p[0]))
        s.p++, s.n--;
    while (s.n && strchr(" \t\r\n", s.p[s.n - 1]))
        s.n--;
    return s;
}

void strbuf_roff(struct strbuf *b, struct str s) {
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if ((c == '.' || c == '\'') && (b->n == 0 || b->p[b->n - 1] == '\n'))
            strbuf_puts(b, "\\&"); // not a request
        if (c == '\\')
            strbuf_puts(b, "\\e");
        else if (c == '-')
            strbuf_puts(b, "\\-"); // a hyphen to copy, not a typographer's
        else
            strbuf_putc(b, c);
    }
}

// A piece in brackets stays on one line where it can.
void strbuf_wrapped(struct strbuf *b, struct str text, size_t column, size_t indent, size_t width) {
    size_t depth = 0, from = 0;
    bool first = true;
    for (size_t k = 0; k <= text.n; k++) {
        char c = k < text.n ? text.p[k] : ' ';
        depth += (size_t)(c == '[') - (size_t)(c == ']' && depth);
        size_t n = k - from;
        if (c != ' ' || (depth && k < text.n && n + indent < width)) continue;
        if (n && !first && column + 1 + n > width) {
            strbuf_printf(b, "\n%*s", (int)indent, "");
            column = indent;
        } else if (n && !first) {
            strbuf_putc(b, ' ');
            column++;
        }
        strbuf_add(b, text.p + from, n);
        column += n;
        first = first && !n;
        from = k + 1;
    }
    strbuf_putc(b, '\n');
}

bool str_is_loopback(struct str host) {
    char text[INET6_ADDRSTRLEN];
    unsigned char a[sizeof(struct in6_addr)];
    if (str_is(host, "localhost")) return true;
    if (host.n > 1 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = (struct str){host.p + 1, host.n - 2};
    if (host.n >= sizeof text) return false;
    memcpy(text, host.p, host.n);
    text[host.n] = 0;
    if (inet_pton(AF_INET, text, a) == 1) return a[0] == 127;
    return inet_pton(AF_INET6, text, a) == 1 && !memcmp(a, &in6addr_loopback, sizeof a);
}

bool str_is_like(struct str given, struct str known) {
    enum { MOST = 64 };
    size_t rows[3][MOST]; // of the letters of `given` before, and the two before that
    if (given.n >= MOST || known.n >= MOST) return false;
    for (size_t k = 0; k <= known.n; k++)
        rows[0][k] = k;
    for (size_t g = 1; g <= given.n; g++) {
        const char *p = given.p + g - 1;
        size_t *row = rows[g % 3], *last = rows[(g + 2) % 3], *before = rows[(g + 1) % 3];
        row[0] = g;
        for (size_t k = 1; k <= known.n; k++) {
            const char *q = known.p + k - 1;
            size_t change = last[k - 1] + (*p != *q);
            row[k] = (last[k] < row[k - 1] ? last[k] : row[k - 1]) + 1;
            if (change < row[k]) row[k] = change;
            bool swapped = g > 1 && k > 1 && *p == q[-1] && p[-1] == *q;
            if (swapped && before[k - 2] + 1 < row[k]) row[k] = before[k - 2] + 1;
        }
    }
    size_t distance = rows[given.n % 3][known.n];
    return distance && distance * 3 <= known.n;
}
