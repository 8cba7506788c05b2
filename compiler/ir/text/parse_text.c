// SPDX-License-Identifier: Apache-2.0
// The lexical part of HLO text: cursors, words, strings, cuts by bracket depth, and the normal form
// of text that is kept. Kept text (attributes that no row of attrs.def knows, layout remainders) is
// read as tokens: strings end, brackets match by kind, white space between tokens becomes one
// blank. So what is kept prints on one line and reads back as the same tokens.
#include <stdarg.h>
#include <stdio.h>

#include "compiler/ir/text/parser.h"

enum { MAX_NESTING = 64 };

status_t p_error(const struct parser *p, const char *at, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int line = 1, column = 1;
    for (const char *q = p->start; q < at && q < p->c.end; q++)
        column = *q == '\n' ? (line++, 1) : column + 1;
    return st_invalid("%d:%d: %s", line, column, text);
}

// A string runs to the next '"' that no '\' stands before; it may hold line breaks. q is at the
// opening quote; gives the position behind the closing one, or NULL when there is none.
static const char *string_end(const char *q, const char *end) {
    for (q++; q < end && *q != '"'; q++)
        if (*q == '\\' && q + 1 < end) q++;
    return q < end ? q + 1 : NULL;
}

char *p_blank_comments(struct arena *a, struct str text) {
    char *t = arena_strndup(a, text.p, text.n), *end = t + text.n;
    for (char *q = t; q < end; q++) {
        if (*q == '"') {
            const char *close = string_end(q, end);
            if (!close) return t; // whoever reads the string says so
            q += close - q - 1;
        } else if (*q == '/' && q + 1 < end && q[1] == '/') {
            while (q < end && *q != '\n')
                *q++ = ' ';
        } else if (*q == '/' && q + 1 < end && q[1] == '*') {
            for (; q < end && !(*q == '*' && q + 1 < end && q[1] == '/'); q++)
                if (*q != '\n') *q = ' ';
            if (q < end) *q++ = ' ';
            if (q < end) *q = ' ';
        }
    }
    return t;
}

// ---- cursor

static bool is_space(char x) {
    return x == ' ' || x == '\n' || x == '\t' || x == '\r';
}
void p_space(struct cursor *c) {
    while (c->p < c->end && is_space(*c->p))
        c->p++;
}
bool p_take(struct cursor *c, const char *token) {
    size_t n = strlen(token);
    p_space(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, token, n) != 0) return false;
    c->p += n;
    return true;
}
bool p_peek(struct cursor *c, char x) {
    p_space(c);
    return c->p < c->end && *c->p == x;
}
bool p_at_end(struct cursor *c) {
    p_space(c);
    return c->p == c->end;
}
static bool word_char(char x) {
    return (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || (x >= '0' && x <= '9') || x == '_' ||
           x == '.' || x == '-';
}
struct str p_word(struct cursor *c) {
    p_space(c);
    const char *from = c->p;
    if (c->p < c->end && *c->p == '%') from = ++c->p;
    while (c->p < c->end && word_char(*c->p))
        c->p++;
    if (c->p < c->end && *c->p == '>' && c->p > from && c->p[-1] == '-') c->p--; // "a->b"
    return (struct str){from, (size_t)(c->p - from)};
}
bool p_i64(struct cursor *c, int64_t *out) {
    p_space(c);
    const char *from = c->p;
    if (c->p < c->end && *c->p == '-') c->p++;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
        c->p++;
    return str_to_i64((struct str){from, (size_t)(c->p - from)}, out);
}

struct str p_cut(struct cursor *c, const char *stop) {
    p_space(c);
    const char *from = c->p;
    int depth = 0;
    for (; c->p < c->end; c->p++) {
        char x = *c->p;
        if (x == '"') {
            const char *close = string_end(c->p, c->end);
            c->p = close ? close - 1 : c->end - 1;
            continue;
        }
        if (depth == 0 && strchr(stop, x)) break;
        if (x == '{' || x == '(' || x == '[')
            depth++;
        else if (x == '}' || x == ')' || x == ']')
            depth--;
        if (depth < 0) break;
    }
    return str_trim((struct str){from, (size_t)(c->p - from)});
}

// ---- strings

bool p_is_string(struct str s) {
    return s.n >= 2 && s.p[0] == '"' && string_end(s.p, s.p + s.n) == s.p + s.n;
}

static int digit_of(char x, int base) {
    int d = x >= '0' && x <= '9'   ? x - '0'
            : x >= 'a' && x <= 'f' ? x - 'a' + 10
            : x >= 'A' && x <= 'F' ? x - 'A' + 10
                                   : 99;
    return d < base ? d : -1;
}

// C's escapes: \n \t \r, up to three octal or two hexadecimal digits; any other character stands
// for itself.
struct str p_unescape(struct arena *a, struct str s) {
    char *t = arena_alloc(a, s.n + 1);
    size_t n = 0;
    for (size_t k = 1; k + 1 < s.n; k++) {
        char x = s.p[k];
        if (x == '\\' && k + 2 < s.n) {
            int v = 0, digits = 0, base = s.p[k + 1] == 'x' ? 16 : 8, most = base == 16 ? 2 : 3;
            size_t j = k + (base == 16 ? 2 : 1);
            while (digits < most && j + 1 < s.n && digit_of(s.p[j], base) >= 0)
                v = v * base + digit_of(s.p[j++], base), digits++;
            if (digits) {
                x = (char)v;
                k = j - 1;
            } else {
                x = s.p[++k];
                x = x == 'n' ? '\n' : x == 't' ? '\t' : x == 'r' ? '\r' : x;
            }
        }
        t[n++] = x;
    }
    t[n] = 0;
    return (struct str){t, n};
}

void hlo_quote(struct strbuf *b, struct str s) {
    strbuf_putc(b, '"');
    for (size_t k = 0, plain; k < s.n; k++) {
        for (plain = k; k < s.n && s.p[k] >= 32 && s.p[k] != 127; k++)
            if (s.p[k] == '"' || s.p[k] == '\\') break;
        strbuf_add(b, s.p + plain, k - plain);
        if (k == s.n) break;
        unsigned char x = (unsigned char)s.p[k];
        if (x == '"' || x == '\\')
            strbuf_printf(b, "\\%c", x);
        else if (x < 32 || x == 127)
            strbuf_printf(b, "\\%03o", x);
        else
            strbuf_putc(b, (char)x);
    }
    strbuf_putc(b, '"');
}

// ---- kept text

// Appends v in normal form; false when a string or a bracket does not close, brackets close by the
// wrong kind, or a control character stands outside a string.
bool p_normal(struct strbuf *out, struct str v) {
    char open[MAX_NESTING];
    int depth = 0;
    bool blank = false;
    const char *end = v.p + v.n;

    for (const char *q = v.p; q < end; q++) {
        char x = *q;
        if (is_space(x)) {
            blank = true;
            continue;
        }
        if ((unsigned char)x < 32 || x == 127) return false;
        if (x == '/' && q + 1 < end && (q[1] == '/' || q[1] == '*')) return false; // a comment
        if (blank && out->n) strbuf_putc(out, ' ');
        blank = false;

        if (x == '"') {
            const char *close = string_end(q, end);
            if (!close) return false;
            strbuf_add(out, q, (size_t)(close - q));
            q = close - 1;
            continue;
        }

        if (x == '{' || x == '(' || x == '[') {
            if (depth == MAX_NESTING) return false;
            open[depth++] = x == '{' ? '}' : x == '(' ? ')' : ']';
        } else if (x == '}' || x == ')' || x == ']') {
            if (depth == 0 || open[--depth] != x) return false;
        }
        strbuf_putc(out, x);
    }
    return depth == 0;
}

bool p_is_braced(struct str s) {
    struct strbuf b = {0};
    bool ok = s.n >= 2 && s.p[0] == '{' && s.p[s.n - 1] == '}' && p_normal(&b, s) && b.n == s.n &&
              memcmp(b.p, s.p, s.n) == 0;
    strbuf_done(&b);
    return ok;
}

status_t p_keep(struct parser *p, struct str what, struct str v, struct str *out) {
    struct strbuf b = {0};
    status_t st = ST_OK;
    if (p_normal(&b, v)) {
        *out = (struct str){arena_strndup(p->m->arena, strbuf_cstr(&b), b.n), b.n};
    } else {
        size_t n = 0; // the first line of it
        while (n < v.n && n < 60 && v.p[n] != '\n')
            n++;
        st = p_error(p, v.p, STR_FMT ": a string or bracket in '%.*s' does not close",
                     STR_ARG(what), (int)n, v.p);
    }
    strbuf_done(&b);
    return st;
}

// ", name=value, name=value": cut into pairs. Stops where no comma follows.
status_t p_attrs(struct parser *p, struct attr_text *out, int *n) {
    *n = 0;
    while (p_take(&p->c, ",")) {
        const char *at = p->c.p;
        struct attr_text t = {.name = p_word(&p->c)};
        if (!t.name.n || !p_take(&p->c, "=")) return p_error(p, at, "expected name=value");
        for (int k = 0; k < *n; k++)
            if (str_eq(out[k].name, t.name))
                return p_error(p, at, "attribute " STR_FMT " is there twice", STR_ARG(t.name));
        if (*n == P_MAX_ATTRS) return p_error(p, at, "more than %d attributes", P_MAX_ATTRS);
        // A value ends at a comma or at the end of the instruction: a line break outside brackets,
        // or the closing brace of the computation.
        t.value = p_cut(&p->c, ",\n");
        if (!t.value.n)
            return p_error(p, at, "attribute " STR_FMT " has no value", STR_ARG(t.name));
        out[(*n)++] = t;
    }
    return ST_OK;
}
struct attr_text *p_attr_find(struct attr_text *attrs, int n, const char *name) {
    for (int k = 0; k < n; k++)
        if (str_is(attrs[k].name, name)) {
            attrs[k].used = true;
            return &attrs[k];
        }
    return NULL;
}
