// SPDX-License-Identifier: Apache-2.0
// dense<...> : tensor<...>: nested lists, one value for all, or the bytes as a hexadecimal string.
#include <string.h>

#include "compiler/frontend/mlir/mlir_parser.h"
#include "compiler/ir/literal.h"

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}
struct elements {
    struct mt *t;
    struct literal lit;
    int64_t n, max; // read so far; what the type holds
};

// ---- one element

static status_t store_bits(struct elements *e, struct str s) {
    uint64_t bits = 0;
    if (s.n < 3 || s.n > 18) return mt_error(e->t, "a hexadecimal number of this size");
    for (size_t k = 2; k < s.n; k++) {
        if (digit(s.p[k]) < 0) return mt_error(e->t, "a hexadecimal number was expected");
        bits = bits << 4 | (uint64_t)digit(s.p[k]);
    }
    size_t size = (size_t)dtype_size(e->lit.shape->dtype);
    memcpy((char *)e->lit.data + (size_t)e->n * size, &bits, size < 8 ? size : 8);
    return ST_OK;
}
static bool range_fits(enum dtype t, int64_t v) {
    int bits = dtype_bits(t);
    if (dtype_class(t) == DC_UNSIGNED) return bits >= 64 || (v >= 0 && v >> bits == 0);
    return bits >= 64 || (v >= -(INT64_C(1) << (bits - 1)) && v < INT64_C(1) << bits);
}
static struct str scalar_text(struct mt *t) {
    mt_skip(t);
    const char *from = t->p;
    while (t->p < t->end &&
           ((*t->p >= '0' && *t->p <= '9') || (*t->p >= 'a' && *t->p <= 'z') ||
            (*t->p >= 'A' && *t->p <= 'Z') || *t->p == '-' || *t->p == '+' || *t->p == '.'))
        t->p++;
    return (struct str){from, (size_t)(t->p - from)};
}
static status_t real_number(struct mt *t, double *out, enum dtype part) {
    struct str s = scalar_text(t);
    if (str_starts(s, "0x")) {
        struct elements one = {.t = t};
        uint64_t bits = 0;
        one.lit = (struct literal){shape_scalar(t->a, part), &bits, 8, NULL, false};
        RETURN_IF_ERR(store_bits(&one, s));
        *out = lit_get_f64(&one.lit, 0);
        return ST_OK;
    }
    return str_to_f64(s, out) ? ST_OK : mt_error(t, "a number was expected");
}
static status_t complex_number(struct elements *e) {
    double re, im;
    enum dtype part = e->lit.shape->dtype == DT_C64 ? DT_F32 : DT_F64;
    RETURN_IF_ERR(mt_want(e->t, "("));
    RETURN_IF_ERR(real_number(e->t, &re, part));
    RETURN_IF_ERR(mt_want(e->t, ","));
    RETURN_IF_ERR(real_number(e->t, &im, part));
    lit_set_c128(&e->lit, e->n, re, im);
    return mt_want(e->t, ")");
}
static status_t one(struct elements *e) {
    enum dtype type = e->lit.shape->dtype;
    int64_t i;
    uint64_t u;
    double f;
    if (e->n >= e->max) return mt_error(e->t, "more elements than the type has");
    if (dtype_is_complex(type)) return complex_number(e);
    struct str s = scalar_text(e->t);
    if (type == DT_PRED) {
        bool yes = str_is(s, "true") || str_is(s, "1");
        if (!yes && !str_is(s, "false") && !str_is(s, "0"))
            return mt_error(e->t, "true or false was expected");
        lit_set_i64(&e->lit, e->n, yes);
    } else if (str_starts(s, "0x")) {
        return store_bits(e, s);
    } else if (dtype_is_float(type)) {
        if (!str_to_f64(s, &f)) return mt_error(e->t, "a number was expected");
        lit_set_f64(&e->lit, e->n, f);
    } else if (str_to_i64(s, &i)) {
        if (!range_fits(type, i)) return mt_error(e->t, "%.*s is out of range", (int)s.n, s.p);
        lit_set_i64(&e->lit, e->n, i);
    } else if (type == DT_U64 && str_to_u64(s, &u)) {
        memcpy((char *)e->lit.data + e->n * 8, &u, 8);
    } else {
        return mt_error(e->t, "an integer was expected");
    }
    return ST_OK;
}

// ---- many

// A list at depth d must have dims[d] elements.
static status_t nested(struct elements *e, const struct mlir_type *type, int d) {
    int64_t n = 0;
    if (d >= type->rank) {
        RETURN_IF_ERR(one(e));
        e->n++;
        return ST_OK;
    }
    RETURN_IF_ERR(mt_want(e->t, "["));
    for (; !mt_take(e->t, "]"); n++) {
        if (n) RETURN_IF_ERR(mt_want(e->t, ","));
        RETURN_IF_ERR(nested(e, type, d + 1));
    }
    return n == type->dims[d] ? ST_OK
                              : mt_error(e->t, "%lld elements in dimension %d of %lld",
                                         (long long)n, d, (long long)type->dims[d]);
}
// "0x...": bytes of all elements or of one, little-endian; i1 are bytes, in older MLIR bits.
static status_t from_hex(struct mt *t, struct str s, struct mlir_attr *x, int64_t n) {
    size_t size = (size_t)dtype_size(x->type->dtype), bytes = (s.n - 2) / 2;
    bool bits = x->type->dtype == DT_PRED;
    size_t all = bits ? ((size_t)n + 7) / 8 : (size_t)n * size;
    if (!str_starts(s, "0x") || s.n % 2) return mt_error(t, "a hexadecimal string was expected");
    uint8_t *to = arena_alloc(t->a, bytes + 1);
    for (size_t k = 0; k < bytes; k++) {
        int hi = digit(s.p[2 + 2 * k]), lo = digit(s.p[3 + 2 * k]);
        if (hi < 0 || lo < 0) return mt_error(t, "a hexadecimal string was expected");
        to[k] = (uint8_t)(hi << 4 | lo);
    }
    bool one_byte = bits && bytes == 1 && (to[0] == 0 || to[0] == 0xFF);
    x->splat = n > 0 && (bits ? one_byte : bytes == size);
    if (bits && bytes == (size_t)n) bits = false, all = bytes, x->splat = n == 1;
    if (!x->splat && bytes != all)
        return mt_error(t, "%zu bytes for a type that has %zu", bytes, all);
    x->bytes = (struct span){to, bytes};
    if (!bits) return ST_OK;
    size_t held = x->splat ? 1 : (size_t)n;
    RETURN_IF_ERR(mt_spend(t, (int64_t)held));
    uint8_t *each = arena_alloc(t->a, held + 1);
    for (size_t k = 0; k < held; k++)
        each[k] = to[k / 8] >> k % 8 & 1;
    x->bytes = (struct span){each, held};
    return ST_OK;
}
static status_t from_lists(struct mt *t, struct mlir_attr *x, int64_t n) {
    int64_t size = dtype_size(x->type->dtype);
    bool empty = n == 0; // which may be written as one value: it is not kept
    x->splat = !mt_at(t, "[") && x->type->rank > 0;
    if (x->splat || empty) n = 1;
    int64_t left = t->end - t->p;
    if (n > left) return mt_error(t, "fewer elements than the type has");
    RETURN_IF_ERR(mt_spend(t, n * size));
    struct elements e = {.t = t, .max = n};
    e.lit =
        (struct literal){shape_make(t->a, x->type->dtype, &n, 1),
                         arena_zalloc(t->a, (size_t)(n * size)), (size_t)(n * size), NULL, false};
    if (x->splat) {
        RETURN_IF_ERR(one(&e));
        e.n = 1;
    } else {
        RETURN_IF_ERR(nested(&e, x->type, 0));
    }
    if (empty) e.n = 0;
    x->splat = x->splat && !empty;
    x->bytes = (struct span){e.lit.data, (size_t)(e.n * size)};
    return mt_want(t, ">");
}
// The type stands behind the elements: it is read first, then they are.
static status_t type_behind(struct mt *t, const struct mlir_type **out, const char **after) {
    const char *was = t->p;
    RETURN_IF_ERR(mt_balanced(t, '>', NULL));
    RETURN_IF_ERR(mt_want(t, ":"));
    RETURN_IF_ERR(mt_type(t, out));
    *after = t->p;
    t->p = was;
    return ST_OK;
}
status_t mt_dense(struct mt *t, const struct mlir_attr **out) {
    struct mlir_attr *x = mt_new_attr(t, MLIR_A_DENSE);
    const char *after;
    int64_t w = -1;
    bool resource = mt_take(t, "dense_resource<");
    if (resource && (!mt_take(t, "w") || !mt_int(t, &w) || w < 0 || w >= 1 << 20 || !mt_at(t, ">")))
        return mt_error(t, "elements that lie in another place (dense_resource) are not here");
    RETURN_IF_ERR(type_behind(t, &x->type, &after));
    int64_t n = mlir_type_elements(x->type);
    if (x->type->kind == MLIR_TENSOR && x->type->dtype == DT_INVALID)
        return mt_error(t, "elements of type %s are not known", x->type->name);
    if (x->type->kind != MLIR_TENSOR || n < 0 || x->type->rank > HLO_MAX_RANK)
        return mt_error(t, "dense elements must have a static tensor type");

    if (x->type->quant) { // elements are what is stored
        struct mlir_type as = *x->type;
        as.quant = NULL;
        x->type = mt_new_type(t, as);
    }
    if (resource) {
        x->weight = (int32_t)w;
    } else if (mt_at(t, "\"")) {
        struct str s;
        RETURN_IF_ERR(mt_string(t, &s));
        RETURN_IF_ERR(mt_spend(t, (int64_t)s.n / 2));
        RETURN_IF_ERR(from_hex(t, s, x, n));
    } else if (!mt_take(t, ">")) {
        RETURN_IF_ERR(from_lists(t, x, n));
    } else if (n) {
        return mt_error(t, "elements were expected");
    }
    x->bytes = dtype_whole_codes(t->a, x->type->dtype, x->bytes);
    t->p = after;
    *out = x;
    return ST_OK;
}
