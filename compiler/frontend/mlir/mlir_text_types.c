// SPDX-License-Identifier: Apache-2.0
// The cursor, and types.
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/frontend/mlir/mlir_parser.h"

// ---- the cursor

void mt_skip(struct mt *t) {
    for (;;) {
        while (t->p < t->end && (*t->p == ' ' || *t->p == '\n' || *t->p == '\t' || *t->p == '\r'))
            t->p++;
        if (t->end - t->p < 2 || t->p[0] != '/' || t->p[1] != '/') return;
        const char *line = memchr(t->p, '\n', (size_t)(t->end - t->p));
        t->p = line ? line : t->end;
    }
}
bool mt_at(struct mt *t, const char *text) {
    size_t n = strlen(text);
    mt_skip(t);
    return (size_t)(t->end - t->p) >= n && memcmp(t->p, text, n) == 0;
}
bool mt_take(struct mt *t, const char *text) {
    if (!mt_at(t, text)) return false;
    t->p += strlen(text);
    return true;
}
static bool in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '.';
}
bool mt_take_word(struct mt *t, const char *word) {
    const char *was = t->p;
    if (!mt_take(t, word)) return false;
    if (t->p < t->end && in_word(*t->p)) {
        t->p = was;
        return false;
    }
    return true;
}
bool mt_word(struct mt *t, struct str *out) {
    mt_skip(t);
    const char *from = t->p;
    if (from < t->end && *from >= '0' && *from <= '9') return false;
    while (t->p < t->end && in_word(*t->p))
        t->p++;
    *out = (struct str){from, (size_t)(t->p - from)};
    return out->n > 0;
}
bool mt_int(struct mt *t, int64_t *out) {
    mt_skip(t);
    const char *from = t->p;
    if (t->p < t->end && *t->p == '-') t->p++;
    while (t->p < t->end && *t->p >= '0' && *t->p <= '9')
        t->p++;
    bool more = t->p < t->end && *t->p == '.'; // of a float
    if (!more && str_to_i64((struct str){from, (size_t)(t->p - from)}, out)) return true;
    t->p = from;
    return false;
}
int64_t mt_line(const struct mt *t) {
    int64_t n = 1;
    for (const char *p = t->all.p; p < t->p && p < t->end; p++)
        n += *p == '\n';
    return n;
}
status_t mt_error(struct mt *t, const char *fmt, ...) {
    struct strbuf b = {0};
    va_list ap;
    strbuf_limit(&b, 500);
    va_start(ap, fmt);
    strbuf_vprintf(&b, fmt, ap);
    va_end(ap);
    status_t st = st_invalid("line %lld: %s", (long long)mt_line(t), strbuf_cstr(&b));
    strbuf_done(&b);
    return st;
}
status_t mt_want(struct mt *t, const char *text) {
    if (mt_take(t, text)) return ST_OK;
    int n = t->end - t->p < 20 ? (int)(t->end - t->p) : 20;
    const char *line = memchr(t->p, '\n', (size_t)n);
    return mt_error(t, "expected '%s', found '%.*s'", text, line ? (int)(line - t->p) : n, t->p);
}
static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}
// Escapes are \n, \t, \", \\ and two hexadecimal digits.
static struct str unescape(struct arena *a, struct str s) {
    char *to = arena_alloc(a, s.n + 1);
    size_t n = 0;
    for (size_t k = 0; k < s.n; k++) {
        char c = s.p[k];
        if (c == '\\' && k + 1 < s.n) {
            c = s.p[++k];
            int hi = hex_digit(c), lo = k + 1 < s.n ? hex_digit(s.p[k + 1]) : -1;
            if (hi >= 0 && lo >= 0) {
                c = (char)(hi * 16 + lo);
                k++;
            } else if (c == 'n' || c == 't') {
                c = c == 'n' ? '\n' : '\t';
            }
        }
        to[n++] = c;
    }
    return (struct str){to, n};
}
status_t mt_string(struct mt *t, struct str *out) {
    RETURN_IF_ERR(mt_want(t, "\""));
    const char *from = t->p;
    bool escaped = false;
    while (t->p < t->end && *t->p != '"') {
        if (*t->p == '\\' && t->p + 1 < t->end) {
            escaped = true;
            t->p++;
        }
        t->p++;
    }
    if (t->p >= t->end) return mt_error(t, "a string does not end");
    *out = (struct str){from, (size_t)(t->p++ - from)};
    if (!escaped) return ST_OK;
    RETURN_IF_ERR(mt_spend(t, (int64_t)out->n));
    *out = unescape(t->a, *out);
    return ST_OK;
}
status_t mt_balanced(struct mt *t, char close, struct str *out) {
    char stack[64];
    int n = 0;
    const char *from = t->p;
    stack[n++] = close;
    for (; t->p < t->end; t->p++) {
        char c = *t->p;
        if (c == '"') {
            struct str s;
            RETURN_IF_ERR(mt_string(t, &s));
            t->p--;
        } else if (c == '-' && t->p + 1 < t->end && t->p[1] == '>') {
            t->p++;
        } else if (c == '<' || c == '(' || c == '[' || c == '{') {
            if (n == (int)sizeof stack) return mt_error(t, "brackets nest too deep");
            stack[n++] = c == '<' ? '>' : c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == '>' || c == ')' || c == ']' || c == '}') {
            if (c != stack[--n]) return mt_error(t, "'%c' closes no bracket here", c);
            if (n == 0) {
                if (out) *out = (struct str){from, (size_t)(t->p - from)};
                t->p++;
                return ST_OK;
            }
        }
    }
    return mt_error(t, "'%c' is missing", close);
}
status_t mt_spend(struct mt *t, int64_t bytes) {
    t->attr_bytes += bytes;
    return t->attr_bytes <= t->limits.max_attr_bytes
               ? ST_OK
               : st_exhausted("attributes take more than %lld bytes",
                              (long long)t->limits.max_attr_bytes);
}
status_t mt_enter(struct mt *t) {
    if (t->depth >= t->limits.max_depth)
        return st_exhausted("line %lld: nested deeper than %d", (long long)mt_line(t),
                            t->limits.max_depth);
    t->depth++;
    return ST_OK;
}
void mt_loc(struct mt *t) {
    const char *was = t->p;
    if (!mt_take_word(t, "loc") || !mt_take(t, "(")) {
        t->p = was;
        return;
    }
    status_t st = mt_balanced(t, ')', NULL);
    if (st) t->p = was; // what follows is refused then
    st_drop(st);
}

// ---- types

const struct mlir_type *mt_new_type(struct mt *t, struct mlir_type x) {
    return arena_dup(t->a, &x, sizeof x);
}
static status_t number_f64(struct mt *t, double *out) {
    mt_skip(t);
    const char *from = t->p;
    while (t->p < t->end && (in_word(*t->p) || *t->p == '-' || *t->p == '+'))
        t->p++;
    return str_to_f64((struct str){from, (size_t)(t->p - from)}, out)
               ? ST_OK
               : mt_error(t, "a number was expected");
}
static status_t scale(struct mt *t, double *out, int64_t *zero) {
    *zero = 0;
    RETURN_IF_ERR(number_f64(t, out));
    if (mt_take(t, ":") && !mt_int(t, zero)) return mt_error(t, "a zero point was expected");
    return ST_OK;
}
static enum dtype element(struct mt *t) {
    struct str w;
    if (!mt_word(t, &w)) return DT_INVALID;
    if (str_is(w, "complex") && mt_take(t, "<")) {
        enum dtype part = element(t);
        if (!mt_take(t, ">")) return DT_INVALID;
        return part == DT_F32 ? DT_C64 : part == DT_F64 ? DT_C128 : DT_INVALID;
    }
    return mlir_dtype(w);
}
// i8, or u8, which a quantised type writes for ui8.
static enum dtype storage(struct mt *t) {
    struct str w;
    if (!mt_word(t, &w)) return DT_INVALID;
    if (w.n > 1 && w.p[0] == 'u' && isdigit((unsigned char)w.p[1]))
        w = str_of(arena_printf(t->a, "ui%.*s", (int)w.n - 1, w.p + 1));
    return mlir_dtype(w);
}
// Behind "!quant.uniform<".
static status_t quantised(struct mt *t, struct mlir_type *x) {
    struct mlir_quant *q = arena_new_of(t->a, struct mlir_quant);
    VEC(double) scales = {0};
    VEC(int64_t) zeros = {0};
    double s;
    int64_t z, axis;
    q->axis = -1;
    q->storage = storage(t);
    mlir_storage_range(q->storage, &q->storage_min, &q->storage_max);
    if (mt_take(t, "<")) {
        if (!mt_int(t, &q->storage_min)) return mt_error(t, "the least stored value was expected");
        RETURN_IF_ERR(mt_want(t, ":"));
        if (!mt_int(t, &q->storage_max))
            return mt_error(t, "the largest stored value was expected");
        RETURN_IF_ERR(mt_want(t, ">"));
    }
    RETURN_IF_ERR(mt_want(t, ":"));
    q->expressed = element(t);
    if (!dtype_is_int(q->storage) || !dtype_is_float(q->expressed))
        return mt_error(t, "a quantised type of this kind is not known");
    if (mt_take(t, ":")) {
        if (mt_at(t, "{")) return mt_error(t, "scales of blocks (sub-channels) are not supported");
        if (!mt_int(t, &axis) || axis < 0 || axis >= HLO_MAX_RANK)
            return mt_error(t, "an axis was expected");
        q->axis = (int32_t)axis;
    }

    RETURN_IF_ERR(mt_want(t, ","));
    bool several = mt_take(t, "{");
    do {
        RETURN_IF_ERR(mt_spend(t, 16));
        RETURN_IF_ERR(scale(t, &s, &z));
        avec_push(t->a, &scales, s);
        avec_push(t->a, &zeros, z);
    } while (several && mt_take(t, ","));
    if (several) RETURN_IF_ERR(mt_want(t, "}"));
    q->scales = scales.v;
    q->zero_points = zeros.v;
    q->n = (int32_t)scales.n;
    const char *wrong = mlir_quant_wrong(q);
    if (wrong) return mt_error(t, "a quantised type %s", wrong);
    x->quant = q;
    x->dtype = q->storage;
    return mt_want(t, ">");
}
static status_t bounds(struct mt *t, struct mlir_type *x) {
    x->bounds = arena_zarray(t->a, int64_t, (x->rank > 0 ? x->rank : 0) + 1);
    for (int32_t d = 0; d < x->rank; d++) {
        if (d) RETURN_IF_ERR(mt_want(t, ","));
        x->bounds[d] = -1;
        if (!mt_take(t, "?") && !mt_int(t, &x->bounds[d]))
            return mt_error(t, "a bound was expected");
    }
    return ST_OK;
}
// #stablehlo.bounds<2, ?> or #stablehlo.type_extensions<bounds = [2, ?]>
static status_t encoding(struct mt *t, struct mlir_type *x) {
    if (!mt_take(t, "#stablehlo") && !mt_take(t, "#mhlo"))
        return mt_error(t, "an encoding of this kind is not known");
    if (mt_take(t, ".bounds<")) {
        RETURN_IF_ERR(bounds(t, x));
        return mt_want(t, ">");
    }
    RETURN_IF_ERR(mt_want(t, ".type_extensions<"));
    RETURN_IF_ERR(mt_want(t, "bounds"));
    RETURN_IF_ERR(mt_want(t, "="));
    RETURN_IF_ERR(mt_want(t, "["));
    RETURN_IF_ERR(bounds(t, x));
    return mt_want(t, "]>");
}
static status_t tensor(struct mt *t, struct mlir_type *x) {
    VEC(int64_t) dims = {0};
    x->kind = MLIR_TENSOR;
    if (mt_take(t, "*")) {
        x->rank = -1;
        RETURN_IF_ERR(mt_want(t, "x"));
    }
    for (int64_t d; x->rank >= 0;) {
        mt_skip(t);
        const char *was = t->p;
        if (mt_take(t, "?"))
            d = -1;
        else if (t->p < t->end && *t->p >= '0' && *t->p <= '9' && mt_int(t, &d))
            ;
        else
            break;
        if (!mt_take(t, "x")) {
            t->p = was;
            break;
        }
        RETURN_IF_ERR(mt_spend(t, 8));
        avec_push(t->a, &dims, d);
    }

    if (x->rank >= 0) {
        x->rank = (int32_t)dims.n;
        x->dims = dims.v;
    }
    if (mt_at(t, "!")) { // a quantised type, or the alias of an element type
        const struct mlir_type *e;
        RETURN_IF_ERR(mt_type(t, &e));
        if (e->kind != MLIR_SCALAR) return mt_error(t, "the element type of a tensor is not known");
        x->dtype = e->dtype;
        x->index = e->index;
        x->quant = e->quant;
    } else if (mt_take_word(t, "index")) {
        x->index = true;
        x->dtype = DT_S64;
    } else {
        mt_skip(t);
        const char *from = t->p;
        x->dtype = element(t);
        if (!x->dtype && (t->p == from || t->p - from > 16))
            return mt_error(t, "the element type of a tensor is not known");
        if (!x->dtype) x->name = arena_strndup(t->a, from, (size_t)(t->p - from));
    }
    if (mt_take(t, ",")) RETURN_IF_ERR(encoding(t, x));
    return mt_want(t, ">");
}
status_t mt_type_list(struct mt *t, const char *close, mt_types *out) {
    const struct mlir_type *x;
    if (mt_take(t, close)) return ST_OK;
    do {
        RETURN_IF_ERR(mt_type(t, &x));
        avec_push(t->a, out, x);
    } while (mt_take(t, ","));
    return mt_want(t, close);
}
status_t mt_function_type(struct mt *t, mt_types *in, mt_types *out) {
    const struct mlir_type *x;
    RETURN_IF_ERR(mt_want(t, "("));
    RETURN_IF_ERR(mt_type_list(t, ")", in));
    RETURN_IF_ERR(mt_want(t, "->"));
    if (mt_take(t, "(")) return mt_type_list(t, ")", out);
    RETURN_IF_ERR(mt_type(t, &x));
    avec_push(t->a, out, x);
    return ST_OK;
}
static status_t several(struct mt *t, struct mlir_type *x) {
    mt_types in = {0}, all = {0};
    if (x->kind == MLIR_TUPLE) {
        RETURN_IF_ERR(mt_type_list(t, ">", &all));
    } else {
        RETURN_IF_ERR(mt_function_type(t, &all, &in));
        x->n_in = (int32_t)all.n;
        for (size_t k = 0; k < in.n; k++)
            avec_push(t->a, &all, in.v[k]);
    }
    x->elems = all.v;
    x->n_elems = (int32_t)all.n;
    return ST_OK;
}
// !stablehlo.token, aliases, and types that only travel.
static status_t dialect_type(struct mt *t, struct mlir_type *x, const struct mlir_type **alias) {
    const char *from = t->p - 1;
    struct str w;
    if (!mt_word(t, &w)) return mt_error(t, "a type was expected");
    if (str_is(w, "stablehlo.token") || str_is(w, "mhlo.token")) {
        x->kind = MLIR_TOKEN;
        return ST_OK;
    }
    if (str_is(w, "quant.uniform") && mt_take(t, "<")) {
        x->kind = MLIR_SCALAR;
        return quantised(t, x);
    }
    *alias = smap_get(&t->type_aliases, w);
    if (*alias) return ST_OK;
    if (t->p < t->end && *t->p == '<') {
        t->p++;
        RETURN_IF_ERR(mt_balanced(t, '>', NULL));
    }
    RETURN_IF_ERR(mt_spend(t, t->p - from));
    x->kind = MLIR_OTHER;
    x->name = arena_strndup(t->a, from, (size_t)(t->p - from));
    return ST_OK;
}
status_t mt_type(struct mt *t, const struct mlir_type **out) {
    struct mlir_type x = {0};
    const struct mlir_type *alias = NULL;
    status_t st;
    RETURN_IF_ERR(mt_enter(t));
    RETURN_IF_ERR(mt_spend(t, sizeof x));

    if (mt_take(t, "tensor<")) {
        st = tensor(t, &x);
    } else if (mt_take(t, "tuple<")) {
        x.kind = MLIR_TUPLE;
        st = several(t, &x);
    } else if (mt_at(t, "(")) {
        x.kind = MLIR_FUNCTION;
        st = several(t, &x);
    } else if (mt_take(t, "!")) {
        st = dialect_type(t, &x, &alias);
    } else if (mt_at(t, "memref<")) {
        const char *from = t->p;
        t->p += 7;
        st = mt_balanced(t, '>', NULL);
        x.kind = MLIR_OTHER;
        if (!st) x.name = arena_strndup(t->a, from, (size_t)(t->p - from));
    } else if (mt_take_word(t, "none")) {
        x.kind = MLIR_NONE;
        st = ST_OK;
    } else if (mt_take_word(t, "index")) {
        x = (struct mlir_type){.kind = MLIR_SCALAR, .dtype = DT_S64, .index = true};
        st = ST_OK;
    } else {
        const char *from = t->p;
        x.kind = MLIR_SCALAR;
        x.dtype = element(t);
        st = x.dtype ? ST_OK : mt_error(t, "a type was expected");
        if (st && t->p - from >= 2 && t->p - from <= 8) { // tf32 and its like, in attributes
            st_drop(st);
            st = ST_OK;
            x.kind = MLIR_OTHER;
            x.name = arena_strndup(t->a, from, (size_t)(t->p - from));
        }
    }
    t->depth--;
    if (!st) *out = alias ? alias : mt_new_type(t, x);
    return st;
}
