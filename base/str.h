// SPDX-License-Identifier: Apache-2.0
// str: a growing text builder, and scanners that check. The builder is malloc-backed, always
// NUL-terminated, and aborts on out of memory (cap it with strbuf_limit for text whose size comes
// from outside: beyond the limit it drops text and sets `truncated`).
#pragma once
#include "base/span.h"
#include <stdarg.h>

struct strbuf {
    char *p;
    size_t n, cap, limit;
    bool truncated;
}; // zero-initialise
void strbuf_done(struct strbuf *b);
void strbuf_clear(struct strbuf *b); // keeps the memory
void strbuf_limit(struct strbuf *b, size_t max_bytes);
// Over n bytes of the caller's: takes up to n - 1, and no memory. Not for strbuf_done.
static inline struct strbuf strbuf_over(char *p, size_t n) {
    *p = 0;
    return (struct strbuf){.p = p, .cap = n, .limit = n - 1};
}
// Makes room for n bytes more, so that adding them cannot fail. False: no memory; b is as it was.
bool strbuf_room(struct strbuf *b, size_t n);
void strbuf_add(struct strbuf *b, const void *p, size_t n);
void strbuf_puts(struct strbuf *b, const char *z);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_i64(struct strbuf *b, int64_t v); // as %lld writes it, much faster
void strbuf_u64(struct strbuf *b, uint64_t v);
void strbuf_ms(struct strbuf *b, double v); // as %.3f, but for ties
void strbuf_printf(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The shortest decimal, of six digits or more but for zeros at its end, that reads back as v
// through str_to_f64, in the form of %g. v is finite.
void strbuf_f32(struct strbuf *b, float v);
void strbuf_f64(struct strbuf *b, double v); // the same of 15 digits or more
void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap);
void strbuf_json_str(struct strbuf *b,
                     struct str s); // quoted and escaped JSON string; invalid UTF-8 becomes U+FFFD
// Text of a manual page: what roff would take for its own is escaped.
void strbuf_roff(struct strbuf *b, struct str s);
// The words of text in lines of at most width columns, and a line's end; the first begins where
// column says, the others are indented.
void strbuf_wrapped(struct strbuf *b, struct str text, size_t column, size_t indent, size_t width);
char *strbuf_take(struct strbuf *b); // the text, caller frees; leaves the builder empty. Never NULL
const char *strbuf_cstr(const struct strbuf *b); // "" when empty

// Whole-string number scanners: true and *out on success; false on junk, overflow or empty.
bool str_to_i64(struct str s, int64_t *out);
bool str_to_bytes(struct str s, int64_t *out);   // "64K", "8G", "123": powers of 1024, not negative
bool str_to_seconds(struct str s, int64_t *out); // "90s", "15m", "12h", "30d", "45": not negative
bool str_to_u64(struct str s, uint64_t *out);
bool str_to_f64(struct str s, double *out); // also inf, -inf, nan
// Bytes as text: 2 n lower-case digits. str_put_hex adds a NUL, and gives where that is. Of
// str_from_hex s has exactly so many, else it is false, and *out undefined.
char *str_put_hex(char *to, const void *p, size_t n);
void strbuf_hex(struct strbuf *b, const void *p, size_t n);
bool str_from_hex(struct str s, void *out, size_t n);
extern const char str_base64_digits[]; // the 64 of RFC 4648, section 4
void strbuf_base64(struct strbuf *b, const void *p, size_t n);
// Cuts at the first `sep`: *head gets the part before, `s` advances past it. False when nothing is
// left; *head is empty then.
bool str_cut(struct str *s, char sep, struct str *head);
struct str str_trim(struct str s);
// Is it one of the words, which stand between single blanks?
bool str_listed(struct str word, const char *words);
// Of comma separated globs, as of fnmatch, the last that the name matches decides: "w*,!w2" has w1
// and not w2. "" has none; a glob of 256 bytes or more, or an empty one, matches nothing.
bool str_in_globs(const char *globs, const char *name);
void strbuf_glob(struct strbuf *b, const char *name); // the glob that matches this name alone
// The host part of an address means this machine: localhost, a number of 127.0.0.0/8, ::1 with or
// without brackets. A name that only begins like one (127.example.org) does not.
bool str_is_loopback(struct str host);
// Is `known` likely what was meant by `given`? Levenshtein's distance, swapped neighbours counted
// as one, is at most a third of its length. Both are below 64 bytes.
bool str_is_like(struct str given, struct str known);
