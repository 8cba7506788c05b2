// SPDX-License-Identifier: Apache-2.0
// See numbers.h. Decimal text of up to 19 digits and a small exponent is converted exactly by one
// multiplication or division (both operands are exact in a double); the rest goes to strtod.
#include "proto/numbers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/float8.h"
#include "proto/reason.h"

static const struct dtype_row rows[] = {
#define DTYPE(name, oip, bytes, cls) {name, oip, bytes, NUM_##cls},
#include "proto/dtypes.def"
#undef DTYPE
};

const struct dtype_row *numbers_dtype(struct str name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_is(name, rows[i].name) || (rows[i].oip && str_is(name, rows[i].oip)))
            return &rows[i];
    return NULL;
}

static uint16_t f16_of(float f) {
    uint32_t x;
    memcpy(&x, &f, 4);
    uint32_t sign = x >> 16 & 0x8000, mag = x & 0x7fffffff;
    if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (mag >= 0x47800000) return (uint16_t)(sign | 0x7c00); // 65536 and more
    if (mag < 0x38800000) {                                  // subnormal: let the adder round
        float t;
        memcpy(&t, &mag, 4);
        t += 0.5f; // 2^-24 is the last bit of 0.5
        uint32_t u;
        memcpy(&u, &t, 4);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    mag += 0xc8000fff + (mag >> 13 & 1); // rebias and round to even
    return (uint16_t)(sign | mag >> 13);
}

static float f16_to(uint16_t h) {
    int e = h >> 10 & 31;
    float m = (float)(h & 1023);
    float v = e == 31 ? (m != 0 ? NAN : INFINITY) : e ? ldexpf(m + 1024, e - 25) : ldexpf(m, -24);
    return h & 0x8000 ? -v : v;
}

static uint16_t bf16_of(float f) {
    uint32_t x;
    memcpy(&x, &f, 4);
    if ((x & 0x7fffffff) > 0x7f800000) return (uint16_t)(x >> 16 | 0x40);
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

static float bf16_to(uint16_t h) {
    uint32_t x = (uint32_t)h << 16;
    float f;
    memcpy(&f, &x, 4);
    return f;
}

// ---- scan

struct number {
    bool negative, is_int; // is_int: magnitude is exact
    uint64_t magnitude;
    double d;
};

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool digit(const char *p, const char *end) {
    return p < end && *p >= '0' && *p <= '9';
}

// Appends a decimal digit; false when the number would no longer fit.
static bool append(uint64_t *m, char c) {
    uint64_t t;
    if (__builtin_mul_overflow(*m, 10, &t) || __builtin_add_overflow(t, (uint64_t)(c - '0'), &t))
        return false;
    *m = t;
    return true;
}

// The common form: at most 17 digits and no exponent, in the midst of a text that goes on for
// SHORT_BYTES, so that nothing here looks for its end. NULL: another form, or not a number.
enum { SHORT_DIGITS = 17, SHORT_BYTES = SHORT_DIGITS + 4 };
static const char *scan_short(const char *p, struct number *out) {
    struct number n = {.negative = *p == '-'};
    const char *start = p += n.negative;
    unsigned d;
    for (; (d = (unsigned)(*p - '0')) < 10 && p - start <= SHORT_DIGITS; p++)
        n.magnitude = n.magnitude * 10 + d;
    int64_t whole = p - start, part = 0;
    if (whole == 0 || (whole > 1 && *start == '0')) return NULL;
    n.is_int = *p != '.';
    if (!n.is_int) {
        const char *from = ++p;
        for (; (d = (unsigned)(*p - '0')) < 10 && p - start <= SHORT_DIGITS; p++)
            n.magnitude = n.magnitude * 10 + d;
        part = p - from;
        if (part == 0) return NULL;
    }
    bool goes_on = (unsigned)(*p - '0') < 10 || (*p | 0x20) == 'e';
    if (goes_on || whole + part > SHORT_DIGITS || n.magnitude >= 1ull << 53) return NULL;
    n.d = (double)n.magnitude;
    if (part) n.d /= powers[part];
    if (n.negative) n.d = -n.d;
    *out = n;
    return p;
}

// One JSON number at p; returns its end, or NULL.
static const char *scan_number(const char *p, const char *end, struct number *out) {
    const char *start = p;
    if (end - p > SHORT_BYTES && (p = scan_short(p, out))) return p;
    p = start;
    struct number n = {.is_int = true};
    if (p < end && *p == '-') n.negative = true, p++;
    if (!digit(p, end) || (*p == '0' && digit(p + 1, end))) return NULL;

    uint64_t m = 0;
    int exp10 = 0;
    bool exact = true; // all digits so far are in m
    for (; digit(p, end); p++)
        exact = exact && append(&m, *p);
    n.is_int = exact;

    if (p < end && *p == '.') {
        n.is_int = false;
        p++;
        if (!digit(p, end)) return NULL;
        for (; digit(p, end); p++, exp10--)
            exact = exact && append(&m, *p);
    }

    if (p < end && (*p == 'e' || *p == 'E')) {
        n.is_int = false;
        p++;
        bool neg = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (!digit(p, end)) return NULL;
        int e = 0;
        for (; digit(p, end); p++)
            if (e < 100000) e = e * 10 + (*p - '0');
        exp10 += neg ? -e : e;
    }

    n.magnitude = m;
    if (exact && m < 1ull << 53 && exp10 >= -22 && exp10 <= 22) {
        double d = (double)m;
        n.d = exp10 < 0 ? d / powers[-exp10] : d * powers[exp10];
        if (n.negative) n.d = -n.d;
    } else {
        // strtod needs a terminator; a number this long is rare.
        char tmp[800];
        size_t len = (size_t)(p - start);
        if (len >= sizeof tmp) return NULL;
        memcpy(tmp, start, len);
        tmp[len] = 0;
        n.d = strtod(tmp, NULL);
    }
    *out = n;
    return p;
}

static bool word(const char *p, const char *end, const char *w, size_t *len) {
    size_t n = strlen(w);
    if ((size_t)(end - p) < n || memcmp(p, w, n)) return false;
    *len = n;
    return true;
}

// Words that stand for elements: booleans, and non-finite numbers bare or quoted.
static const char *scan_word(const char *p, const char *end, struct number *out) {
    size_t n;
    *out = (struct number){.is_int = true};
    if (word(p, end, "true", &n)) {
        out->magnitude = 1;
        out->d = 1;
        return p + n;
    }
    if (word(p, end, "false", &n)) return p + n;
    out->is_int = false;
    bool quoted = p < end && *p == '"';
    p += quoted;
    if (word(p, end, "NaN", &n))
        out->d = (double)NAN;
    else if (word(p, end, "Infinity", &n))
        out->d = (double)INFINITY;
    else if (word(p, end, "-Infinity", &n))
        out->d = (double)-INFINITY;
    else
        return NULL;
    p += n;
    if (quoted && (p >= end || *p++ != '"')) return NULL;
    return p;
}

static bool to_int(const struct number *v, int64_t *out) {
    if (v->is_int) {
        if (v->negative ? v->magnitude > 1ull << 63 : v->magnitude > INT64_MAX) return false;
        *out = v->negative ? (int64_t)(0 - v->magnitude) : (int64_t)v->magnitude;
        return true;
    }
    if (!(fabs(v->d) < 9007199254740993.0) || v->d != floor(v->d))
        return false; // 1.0 and 1e3 are integers too
    *out = (int64_t)v->d;
    return true;
}

// Integers that an int64_t holds: their bounds and width in memory; no bytes: another class.
static const struct {
    int64_t lo, hi;
    size_t bytes;
} range[NUM_CLASSES] = {[NUM_PRED] = {0, 1, 1},
                        [NUM_S4] = {-8, 7, 1},
                        [NUM_U4] = {0, 15, 1},
                        [NUM_S8] = {-128, 127, 1},
                        [NUM_S16] = {-32768, 32767, 2},
                        [NUM_S32] = {INT32_MIN, INT32_MAX, 4},
                        [NUM_S64] = {INT64_MIN, INT64_MAX, 8},
                        [NUM_U8] = {0, 255, 1},
                        [NUM_U16] = {0, 65535, 2},
                        [NUM_U32] = {0, UINT32_MAX, 4}};
// Stores an integer of class c; false when it does not fit.
static bool store_int(const struct number *v, enum number_class c, uint8_t *out) {
    int64_t i;
    if (!to_int(v, &i) || i < range[c].lo || i > range[c].hi) return false;
    memcpy(out, &i, range[c].bytes); // little-endian
    return true;
}

// Stores one element; false when it does not fit the type.
static bool store(const struct number *v, enum number_class c, uint8_t *out) {
    float f = (float)v->d;
    int64_t i;
    switch (c) {
    case NUM_F32:
        memcpy(out, &f, 4);
        return isfinite(f) || !isfinite(v->d);
    case NUM_F64:
        memcpy(out, &v->d, 8);
        return true;
    case NUM_F16:
    case NUM_BF16: {
        uint16_t h = c == NUM_F16 ? f16_of(f) : bf16_of(f);
        memcpy(out, &h, 2);
        return (h & 0x7fff) < (c == NUM_F16 ? 0x7c00 : 0x7f80) || !isfinite(v->d);
    }
    case NUM_U64:
        if (v->is_int && !v->negative) {
            memcpy(out, &v->magnitude, 8);
            return true;
        }
        if (!to_int(v, &i) || i < 0) return false;
        memcpy(out, &i, 8);
        return true;
    default: // f8: float8_code
        return range[c].bytes && store_int(v, c, out);
    }
}

MUST_CHECK static status_t bad_data(const char *why, int64_t index, size_t offset) {
    return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                      "tensor data, element %" PRId64 " (byte %zu): %s", index, offset, why);
}

// Reads the element at p: its end, or NULL with *why.
typedef const char *(*element_fn)(void *ctx, const char *p, const char *end, const char **why);

// One JSON value that is an element or nested arrays of exactly n of them.
static inline __attribute__((always_inline)) status_t walk(struct str text, int64_t n,
                                                           element_fn element, void *ctx) {
    const char *p = text.p, *end = text.p + text.n;
    int64_t i = 0;
    int depth = 0;
    bool value_may = true, opened = false,
         array_seen = false; // value_may: a value or '[' may come here; opened: nothing since '['

    while (p < end) {
        char c = *p;
        size_t at = (size_t)(p - text.p);
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t')
            p++;
        else if (c == '[') {
            if (!value_may || ++depth > 64) return bad_data("unexpected '['", i, at);
            array_seen = opened = true;
            p++;
        } else if (c == ']') {
            if (depth == 0 || (value_may && !opened)) return bad_data("unexpected ']'", i, at);
            depth--;
            value_may = opened = false;
            p++;
        } else if (c == ',') {
            if (value_may || depth == 0) return bad_data("unexpected ','", i, at);
            value_may = true;
            p++;
        } else {
            const char *why = "unexpected here";
            if (i >= n) return bad_data("more elements than the shape has", i, at);
            p = value_may ? element(ctx, p, end, &why) : NULL;
            if (!p) return bad_data(why, i, at);
            i++;
            value_may = opened = false;
        }
    }

    if (depth || (value_may && !array_seen)) return bad_data("data ends too early", i, text.n);
    if (i != n)
        return st_because(ST_INVALID_ARGUMENT, BAD_TENSOR_DATA,
                          "tensor data has %" PRId64 " elements, its shape has %" PRId64, i, n);
    return ST_OK;
}

struct number_out {
    const struct dtype_row *t;
    const struct float8 *f8; // NULL = another class
    uint8_t *o;
};
static const char *number_element(void *ctx, const char *p, const char *end, const char **why) {
    struct number_out *to = ctx;
    struct number v;
    const char *q = *p == '-' && p + 1 < end && p[1] == 'I' ? NULL : scan_number(p, end, &v);
    bool beyond = q && !isfinite(v.d); // digits for more than any double: Infinity is a word
    if (!q) q = scan_word(p, end, &v);
    *why = q ? "value does not fit the type" : "not a number";
    if (!q || beyond || !(to->f8 ? float8_code(to->f8, v.d, to->o) : store(&v, to->t->cls, to->o)))
        return NULL;
    to->o += to->t->bytes;
    return q;
}
status_t numbers_scan(struct str text, const struct dtype_row *t, int64_t n, void *out) {
    struct number_out to = {t, t->cls == NUM_F8 ? float8_find(t->name) : NULL, out};
    if (t->cls == NUM_RAW || t->cls == NUM_STRING)
        return bad_data("this type has no numbers in JSON; send it as binary", 0, 0);
    return walk(text, n, number_element, &to);
}

// ---- strings

static bool hex4(const char *p, const char *end, uint32_t *out) {
    *out = 0;
    for (int k = 0; k < 4; k++) {
        char c = p + k < end ? p[k] : 0;
        int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (v < 0) return false;
        *out = *out << 4 | (uint32_t)v;
    }
    return true;
}
static int utf8(uint32_t u, uint8_t *o) {
    int n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int k = n - 1; k > 0; k--, u >>= 6)
        o[k] = (uint8_t)(0x80 | (u & 0x3f));
    o[0] = (uint8_t)(lead[n] | u);
    return n;
}
// The escape behind a backslash at p: its end and its 1 to 4 bytes.
static const char *scan_escape(const char *p, const char *end, uint8_t *o, int *n) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t u, low;
    if (p >= end || !*p) return NULL;
    const char *found = strchr(from, *p);
    *n = 1;
    if (found) {
        *o = (uint8_t)to[found - from];
        return p + 1;
    }
    if (*p != 'u' || !hex4(p + 1, end, &u)) return NULL;
    p += 5;
    if (u >= 0xd800 && u < 0xe000) { // half of a pair
        if (u >= 0xdc00 || end - p < 6 || p[0] != '\\' || p[1] != 'u' || !hex4(p + 2, end, &low) ||
            low < 0xdc00 || low >= 0xe000)
            return NULL;
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    *n = utf8(u, o);
    return p;
}

struct text_out {
    uint8_t *o; // NULL: only the size is wanted
    int64_t bytes;
};
static void text_put(struct text_out *to, const void *p, int64_t n) {
    if (to->o && n) memcpy(to->o + to->bytes, p, (size_t)n);
    to->bytes += n;
}
static const char *text_element(void *ctx, const char *p, const char *end, const char **why) {
    struct text_out *to = ctx;
    int64_t head = to->bytes;
    *why = *p == '"' ? "no end of the string, or not one of JSON" : "not a string";
    if (*p++ != '"') return NULL;
    to->bytes += 4;
    while (p < end && *p != '"') {
        const char *start = p;
        uint8_t o[4];
        int n;
        while (p < end && *p != '"' && *p != '\\' && (uint8_t)*p >= 0x20)
            p++;
        text_put(to, start, p - start);
        if (p >= end || (uint8_t)*p < 0x20) return NULL;
        if (*p != '\\') continue;
        p = scan_escape(p + 1, end, o, &n);
        if (!p) return NULL;
        text_put(to, o, n);
    }
    uint32_t len = (uint32_t)(to->bytes - head - 4);
    if (to->o) memcpy(to->o + head, &len, 4); // little-endian
    return p < end ? p + 1 : NULL;
}
status_t numbers_scan_strings(struct str text, int64_t n, void *out, int64_t *out_bytes) {
    struct text_out to = {.o = out};
    if (text.n > INT32_MAX) return bad_data("more than 2 GiB of strings in JSON", 0, 0);
    RETURN_IF_ERR(walk(text, n, text_element, &to));
    *out_bytes = to.bytes;
    return ST_OK;
}

bool numbers_next_string(struct span *rest, struct str *out) {
    uint32_t n;
    if (rest->n < sizeof n) return false;
    memcpy(&n, rest->p, sizeof n);
    if (n > rest->n - sizeof n) return false;
    *out = (struct str){(const char *)rest->p + sizeof n, n};
    rest->p += sizeof n + n;
    rest->n -= sizeof n + n;
    return true;
}
status_t numbers_check_strings(struct span data, int64_t n) {
    struct span rest = data;
    struct str s;
    int64_t i = 0;
    while (i < n && numbers_next_string(&rest, &s))
        i++;
    if (i == n && rest.n == 0) return ST_OK;
    return bad_data(i == n ? "bytes behind the last string"
                           : "its length reaches beyond the end of the data",
                    i, data.n - rest.n);
}

// ---- print

int64_t numbers_bits(const struct dtype_row *t, const void *p) {
    enum number_class c = t->cls;
    uint64_t u = 0;
    memcpy(&u, p, (size_t)t->bytes); // little-endian
    if (c == NUM_PRED) return u != 0;
    int unused = 64 - (c == NUM_S4 || c == NUM_U4 ? 4 : 8 * (int)t->bytes);
    return range[c].lo < 0 ? (int64_t)(u << unused) >> unused : (int64_t)(u << unused >> unused);
}
// The element at p, of a class of floats.
static double float_at(const struct dtype_row *t, const struct float8 *f8, const uint8_t *p) {
    uint16_t h = 0;
    float f;
    double d;
    switch (t->cls) {
    case NUM_F8:
        return (double)float8_value(f8, *p);
    case NUM_F16:
    case NUM_BF16:
        memcpy(&h, p, sizeof h);
        return (double)(t->cls == NUM_F16 ? f16_to(h) : bf16_to(h));
    case NUM_F32:
        memcpy(&f, p, sizeof f);
        return (double)f;
    default:
        memcpy(&d, p, sizeof d);
        return d;
    }
}

static void print_f64(struct strbuf *b, double v, int digits_min, int digits_max, bool single) {
    if (isnan(v))
        strbuf_puts(b, "\"NaN\"");
    else if (isinf(v))
        strbuf_puts(b, v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else if (v == 0)
        strbuf_puts(b, signbit(v) ? "-0.0" : "0");
    else if (fabs(v) < (digits_min < 4 ? 100 : 1000) && v == (double)(int)v)
        strbuf_i64(b, (int)v); // as %g has it
    else {
        char tmp[40];
        for (int d = digits_min;;
             d = digits_max) { // two tries: most values are short or need all digits
            snprintf(tmp, sizeof tmp, "%.*g", d, v);
            if (d == digits_max ||
                (single ? strtof(tmp, NULL) == (float)v : strtod(tmp, NULL) == v))
                break;
        }
        strbuf_puts(b, tmp);
    }
}

void numbers_print(struct strbuf *b, const struct dtype_row *t, int64_t n, const void *in) {
    // The least digits of a float that are tried, and those that are always enough.
    static const struct {
        int least, most;
    } digits[NUM_CLASSES] = {[NUM_F8] = {2, 9},
                             [NUM_F16] = {4, 9},
                             [NUM_BF16] = {4, 9},
                             [NUM_F32] = {8, 9},
                             [NUM_F64] = {15, 17}};
    const uint8_t *p = in;
    enum number_class c = t->cls;
    const struct float8 *f8 = c == NUM_F8 ? float8_find(t->name) : NULL;
    uint64_t u;

    strbuf_putc(b, '[');
    for (int64_t i = 0; i < n; i++, p += t->bytes) {
        if (i) strbuf_putc(b, ',');
        if (digits[c].most)
            print_f64(b, float_at(t, f8, p), digits[c].least, digits[c].most, c != NUM_F64);
        else if (c == NUM_PRED)
            strbuf_puts(b, *p ? "true" : "false");
        else if (range[c].bytes)
            strbuf_i64(b, numbers_bits(t, p));
        else if (c == NUM_U64)
            strbuf_u64(b, (memcpy(&u, p, sizeof u), u));
        else
            strbuf_puts(b, "null");
    }
    strbuf_putc(b, ']');
}

void numbers_print_strings(struct strbuf *b, int64_t n, struct span data) {
    struct str s = {0};
    strbuf_putc(b, '[');
    for (int64_t i = 0; i < n && numbers_next_string(&data, &s); i++) {
        if (i) strbuf_putc(b, ',');
        strbuf_json_str(b, s);
    }
    strbuf_putc(b, ']');
}

long double numbers_at(const struct dtype_row *t, const void *in, int64_t i) {
    const uint8_t *p = (const uint8_t *)in + i * t->bytes;
    uint64_t u;
    if (t->cls == NUM_PRED) return *p != 0;
    if (range[t->cls].bytes) return numbers_bits(t, p);
    switch (t->cls) {
    case NUM_U64:
        memcpy(&u, p, sizeof u);
        return u;
    case NUM_RAW:
        return *p;
    case NUM_STRING:
        return 0;
    default:
        return (long double)float_at(t, t->cls == NUM_F8 ? float8_find(t->name) : NULL, p);
    }
}

static bool is_whole(long double v, long double low, long double high) { // high: not included
    return v >= low && v < high && !(truncl(v) < v || truncl(v) > v);
}
static bool put_integer(void *to, int bytes, bool is_signed, long double v) {
    const int bits = 8 * bytes;
    const long double half = ldexpl(1, bits - 1);
    if (!is_whole(v, is_signed ? -half : 0, is_signed ? half : 2 * half)) return false;
    const uint64_t u = is_signed ? (uint64_t)(int64_t)v : (uint64_t)v;
    memcpy(to, &u, (size_t)bytes); // little-endian, as all that travels
    return true;
}
static bool put_16(void *to, uint16_t h, bool fits) {
    memcpy(to, &h, sizeof h);
    return fits;
}
bool numbers_put(const struct dtype_row *t, void *p, int64_t i, long double v) {
    uint8_t *to = (uint8_t *)p + i * t->bytes;
    const float f = (float)v;

    switch (t->cls) {
    case NUM_F32:
        memcpy(to, &f, sizeof f);
        return !isfinite(v) || isfinite(f);
    case NUM_F64:
        memcpy(to, &(double){(double)v}, sizeof(double));
        return true;
    case NUM_F16:
        return put_16(to, f16_of(f), !isfinite(v) || isfinite(f16_to(f16_of(f))));
    case NUM_BF16:
        return put_16(to, bf16_of(f), !isfinite(v) || isfinite(bf16_to(bf16_of(f))));
    case NUM_S8:
    case NUM_S16:
    case NUM_S32:
    case NUM_S64:
        return put_integer(to, t->bytes, true, v);
    case NUM_U8:
    case NUM_U16:
    case NUM_U32:
    case NUM_U64:
        return put_integer(to, t->bytes, false, v);
    case NUM_PRED:
        *to = v > 0;
        return is_whole(v, 0, 2);
    default:
        return false;
    }
}
