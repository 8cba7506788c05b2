// SPDX-License-Identifier: Apache-2.0
// Evaluation while reading: what each part gives is factor * unknown + value. Beyond what is linear
// in one unknown the reader goes on for the grammar alone (`open`), and computes nothing.
#include "proto/size_expr.h"

struct part {
    int64_t factor, value;
};
struct reader {
    const char *start, *p, *end;
    size_lookup lookup;
    void *ctx;
    struct str unknown; // p NULL: none yet
    bool open;
    int depth;
};

static status_t bad(const struct reader *r, const char *why) {
    return st_invalid("byte %zu: %s", (size_t)(r->p - r->start), why);
}
static status_t too_large(const struct reader *r) {
    return bad(r, "a value is beyond 64 bits");
}
static void skip_blanks(struct reader *r) {
    while (r->p < r->end && *r->p == ' ')
        r->p++;
}
static bool next_is(struct reader *r, char c) {
    skip_blanks(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// ---- arithmetic

static int64_t floored(int64_t x, int64_t y) {
    return x / y - (x % y && (x < 0) != (y < 0));
}
static status_t divisor(struct reader *r, int64_t x, int64_t y) {
    if (!y) return bad(r, "a division by zero");
    return x == INT64_MIN && y == -1 ? too_large(r) : ST_OK;
}
static status_t do_floordiv(struct reader *r, const int64_t *x, int64_t *out) {
    RETURN_IF_ERR(divisor(r, x[0], x[1]));
    *out = floored(x[0], x[1]);
    return ST_OK;
}
static status_t do_mod(struct reader *r, const int64_t *x, int64_t *out) {
    RETURN_IF_ERR(divisor(r, x[0], x[1]));
    *out = x[0] - floored(x[0], x[1]) * x[1];
    return ST_OK;
}
static status_t do_max(struct reader *r, const int64_t *x, int64_t *out) {
    (void)r;
    *out = x[0] > x[1] ? x[0] : x[1];
    return ST_OK;
}
static status_t do_min(struct reader *r, const int64_t *x, int64_t *out) {
    (void)r;
    *out = x[0] < x[1] ? x[0] : x[1];
    return ST_OK;
}
static status_t do_non_negative(struct reader *r, const int64_t *x, int64_t *out) {
    (void)r;
    *out = x[0] > 0 ? x[0] : 0;
    return ST_OK;
}
static const struct function {
    const char *name;
    int n;
    status_t (*fn)(struct reader *r, const int64_t *x, int64_t *out);
} functions[] = {{"floordiv", 2, do_floordiv},
                 {"mod", 2, do_mod},
                 {"max", 2, do_max},
                 {"min", 2, do_min},
                 {"non_negative", 1, do_non_negative}};

static status_t multiply(struct reader *r, struct part *x, struct part y) {
    if (x->factor && y.factor) r->open = true;
    if (r->open) return ST_OK;
    int64_t a, b, value;
    if (__builtin_mul_overflow(x->factor, y.value, &a) ||
        __builtin_mul_overflow(x->value, y.factor, &b) ||
        __builtin_mul_overflow(x->value, y.value, &value))
        return too_large(r);
    *x = (struct part){a + b, value}; // one of them is 0
    return ST_OK;
}
static status_t add(struct reader *r, struct part *x, struct part y, bool minus) {
    if (r->open) return ST_OK;
    bool over = minus ? __builtin_sub_overflow(x->factor, y.factor, &x->factor) ||
                            __builtin_sub_overflow(x->value, y.value, &x->value)
                      : __builtin_add_overflow(x->factor, y.factor, &x->factor) ||
                            __builtin_add_overflow(x->value, y.value, &x->value);
    return over ? too_large(r) : ST_OK;
}

// ---- grammar

static status_t read_sum(struct reader *r, struct part *out);

static status_t read_number(struct reader *r, int64_t *out) {
    const char *from = r->p;
    while (r->p < r->end && is_digit(*r->p))
        r->p++;
    if (r->p == from) return bad(r, "expected a number");
    return str_to_i64((struct str){from, (size_t)(r->p - from)}, out) ? ST_OK : too_large(r);
}
static status_t read_call(struct reader *r, struct str name, struct part *out) {
    const struct function *f = NULL;
    struct part in[2];
    int64_t values[2];
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (str_is(name, functions[k].name)) f = &functions[k];
    if (!f) return bad(r, "no such function");
    for (int k = 0; k < f->n; k++) {
        if (k && !next_is(r, ',')) return bad(r, "expected a comma");
        RETURN_IF_ERR(read_sum(r, &in[k]));
        if (in[k].factor) r->open = true;
        values[k] = in[k].value;
    }
    if (!next_is(r, ')')) return bad(r, "expected )");
    return r->open ? ST_OK : f->fn(r, values, &out->value);
}
static status_t read_symbol(struct reader *r, struct str name, struct part *out) {
    if (r->lookup(r->ctx, name, &out->value)) return ST_OK;
    r->open |= r->unknown.p && !str_eq(r->unknown, name);
    r->unknown = name;
    *out = (struct part){1, 0};
    return ST_OK;
}
static status_t read_atom(struct reader *r, struct part *out) {
    *out = (struct part){0};
    if (next_is(r, '(')) {
        RETURN_IF_ERR(read_sum(r, out));
        return next_is(r, ')') ? ST_OK : bad(r, "expected )");
    }
    if (r->p < r->end && is_digit(*r->p)) return read_number(r, &out->value);
    const char *from = r->p;
    while (r->p < r->end && (is_letter(*r->p) || (r->p > from && is_digit(*r->p))))
        r->p++;
    struct str name = {from, (size_t)(r->p - from)};
    if (!name.n) return bad(r, "expected a number, a name or (");
    return next_is(r, '(') ? read_call(r, name, out) : read_symbol(r, name, out);
}
// Exponents are numbers.
static status_t read_power(struct reader *r, struct part *out) {
    RETURN_IF_ERR(read_atom(r, out));
    while (next_is(r, '^')) {
        int64_t n;
        struct part base = *out;
        skip_blanks(r);
        RETURN_IF_ERR(read_number(r, &n));
        if (n < 1 || n > 64) return bad(r, "an exponent is not from 1 to 64");
        while (n-- > 1)
            RETURN_IF_ERR(multiply(r, out, base));
    }
    return ST_OK;
}
static status_t read_product(struct reader *r, struct part *out) {
    RETURN_IF_ERR(read_power(r, out));
    while (next_is(r, '*')) {
        struct part more;
        RETURN_IF_ERR(read_power(r, &more));
        RETURN_IF_ERR(multiply(r, out, more));
    }
    return ST_OK;
}
static status_t read_sum(struct reader *r, struct part *out) {
    if (++r->depth > SIZE_EXPR_DEPTH) return bad(r, "nested too deep");
    *out = (struct part){0};
    bool minus = next_is(r, '-');
    if (!minus) next_is(r, '+');
    do {
        struct part more;
        RETURN_IF_ERR(read_product(r, &more));
        RETURN_IF_ERR(add(r, out, more, minus));
        minus = next_is(r, '-');
    } while (minus || next_is(r, '+'));
    r->depth--;
    return ST_OK;
}

// ---- the whole

status_t size_expr_read(struct str text, size_lookup lookup, void *ctx, struct size_expr *out) {
    struct reader r = {text.p, text.p, text.p + text.n, lookup, ctx, {0}, false, 0};
    struct part all;
    if (text.n > SIZE_EXPR_MAX)
        return st_invalid("an expression of %zu bytes, at most %d", text.n, SIZE_EXPR_MAX);
    RETURN_IF_ERR(read_sum(&r, &all));
    skip_blanks(&r);
    if (r.p < r.end) return bad(&r, "expected the end");

    *out = (struct size_expr){SIZE_KNOWN, all.value, all.factor, r.unknown};
    if (r.unknown.p) out->form = r.open || !all.factor ? SIZE_OPEN : SIZE_LINEAR;
    return ST_OK;
}
static bool nothing(void *ctx, struct str symbol, int64_t *out) {
    (void)ctx, (void)symbol, (void)out;
    return false;
}
bool size_expr_is(struct str text) {
    size_t names = 0;
    struct size_expr x;
    while (names < text.n && (is_letter(text.p[names]) || is_digit(text.p[names])))
        names++;
    if (names == text.n) return false;
    status_t st = size_expr_read(text, nothing, NULL, &x);
    bool is = !st;
    st_drop(st);
    return is;
}
bool size_expr_solve(const struct size_expr *x, int64_t size, int64_t *out) {
    int64_t rest;
    if (__builtin_sub_overflow(size, x->value, &rest)) return false;
    if (x->factor == -1 && rest == INT64_MIN) return false;
    *out = rest / x->factor;
    return rest % x->factor == 0;
}
