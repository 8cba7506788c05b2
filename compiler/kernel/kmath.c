// SPDX-License-Identifier: Apache-2.0
// The functions of elementwise.def's kir column for every class of types, and conversions between
// types. Float functions of kmath_float.c; semantics are those of the evaluator's rows.
#include <math.h>

#include "compiler/kernel/lower.h"

struct kir_val *kmath_wrap(struct lower *lw, enum dtype t, struct kir_val *x) {
    struct kir *k = &lw->k;
    if (dtype_is_float(t)) return kir_quant(k, t, x);
    int bits = dtype_bits(t);
    if (!dtype_is_int(t) || bits >= 8) return x;
    if (dtype_class(t) == DC_UNSIGNED)
        return kir_op(k, K_AND, x, kir_int(k, DT_U8, (1 << bits) - 1), NULL);
    struct kir_val *rest = kir_int(k, DT_S8, 8 - bits);
    return kir_op(k, K_SHR, kir_op(k, K_SHL, x, rest, NULL), rest, NULL);
}

static struct kir_val *real_convert(struct lower *lw, enum dtype to, enum dtype from,
                                    struct kir_val *x) {
    struct kir *k = &lw->k;
    enum dtype t = kir_type(to);
    if (to == from) return x;
    if (dtype_is_float(to) && to != DT_F32 && to != DT_F64 && x->type == DT_F64)
        return kir_quant(k, to, kir_to_odd(k, x));
    if (dtype_is_int(to) && dtype_bits(to) < 8 && dtype_is_float(x->type)) {
        bool s = dtype_class(to) == DC_SIGNED;
        int lo = s ? -(1 << (dtype_bits(to) - 1)) : 0, hi = (1 << (dtype_bits(to) - s)) - 1;
        struct kir_val *c = kir_cast(k, t, x); // saturates at 8 bits
        c = kir_op(k, K_MAX, c, kir_int(k, t, lo), NULL);
        return kir_op(k, K_MIN, c, kir_int(k, t, hi), NULL);
    }
    return kmath_wrap(lw, to, kir_cast(k, t, x));
}
struct kir_val *kmath_convert(struct lower *lw, enum dtype to, enum dtype from, struct kir_val *x) {
    struct kir *k = &lw->k;
    if (dtype_is_complex(to))
        return kir_complex(k, real_convert(lw, kir_type(to), kir_type(from), kir_re(k, x)),
                           dtype_is_complex(from)
                               ? real_convert(lw, kir_type(to), kir_type(from), kir_im(k, x))
                               : kir_f(k, kir_type(to), 0));
    if (dtype_is_complex(from) && to == DT_PRED)
        return kir_op(k, K_OR, kir_cast(k, DT_PRED, kir_re(k, x)),
                      kir_cast(k, DT_PRED, kir_im(k, x)), NULL);
    return real_convert(lw, to, dtype_is_complex(from) ? kir_type(from) : from, kir_re(k, x));
}

static struct kir_val *sign(struct kir *k, struct kir_val *x) {
    bool f = dtype_is_float(x->type);
    struct kir_val *zero = kir_zero(k, x->type);
    struct kir_val *one = f ? kir_f(k, x->type, 1) : kir_int(k, x->type, 1),
                   *minus = f ? kir_f(k, x->type, -1) : kir_int(k, x->type, -1);
    struct kir_val *neg = dtype_class(x->type) == DC_UNSIGNED
                              ? zero
                              : kir_select(k, kir_cmp(k, CMP_LT, x, zero), minus, f ? x : zero);
    return kir_select(k, kir_cmp(k, CMP_GT, x, zero), one, neg); // NaN and -0 come out as they are
}

// Functions that are one operation of kir on values of a class; K_CONST: they are not.
static const struct {
    enum kop real, whole, pred;
} direct[KFN_COUNT] = {
    [KFN_ABS] = {.real = K_ABS},         [KFN_CEIL] = {.real = K_CEIL},
    [KFN_FLOOR] = {.real = K_FLOOR},     [KFN_ROUND_AFZ] = {.real = K_ROUND},
    [KFN_ROUND_EVEN] = {.real = K_RINT}, [KFN_SQRT] = {.real = K_SQRT},
    [KFN_NEG] = {K_NEG, K_NEG, 0},       [KFN_ADD] = {K_ADD, K_ADD, K_OR},
    [KFN_SUB] = {K_SUB, K_SUB, 0},       [KFN_MUL] = {0, K_MUL, K_AND}, // of floats: with a flag
    [KFN_DIV] = {.real = K_DIV},         [KFN_MAX] = {K_MAX, K_MAX, K_OR},
    [KFN_MIN] = {K_MIN, K_MIN, K_AND},   [KFN_AND] = {0, K_AND, K_AND},
    [KFN_OR] = {0, K_OR, K_OR},          [KFN_XOR] = {0, K_XOR, K_XOR},
};

static struct kir_val *float_fn(struct lower *lw, enum kfn fn, struct kir_val *x,
                                struct kir_val *y) {
    struct kir *k = &lw->k;
    enum dtype t = x->type;
    struct kir_val *one = kir_f(k, t, 1);
    if (direct[fn].real) return kir_op(k, direct[fn].real, x, y, NULL);
    switch (fn) {
    case KFN_RSQRT:
        return kir_op(k, K_DIV, one, kir_op(k, K_SQRT, x, NULL, NULL), NULL);
    case KFN_SIGN:
        return sign(k, x);
    case KFN_REAL:
        return x;
    case KFN_IMAG:
        return kir_f(k, t, 0);
    case KFN_ISFINITE:
        return kir_cmp(k, CMP_LT, kir_op(k, K_ABS, x, NULL, NULL), kir_f(k, t, INFINITY));
    case KFN_MUL:
        return kir_flag(k, K_MUL, x, y, lower_contract(lw));
    case KFN_COMPLEX:
        return kir_complex(k, x, y);
    default:
        return t == DT_F64 ? kmath_f64(k, fn, x, y) : kmath_f32(k, fn, x, y);
    }
}

// x / y and x % y, y not 0 and not -1. No vector unit divides integers, so those of up to 32 bits
// are divided as floats that hold them: with n bits, quotients that are not whole lie 2^-n of
// themselves from the next whole number, further than a rounding of n + 8 bits or more reaches.
// Shaders have no such rounding (GLSL ES 3.0 gives none, WGSL 2.5 ULP: 255/255 was 0 on a GPU), and
// no f64: they divide integers.
static struct kir_val *plain_divide(struct kir *k, enum kop op, struct kir_val *x,
                                    struct kir_val *y) {
    enum dtype t = x->type, f = dtype_bits(t) <= 16 ? DT_F32 : DT_F64;
    int64_t known;
    bool whole = dtype_bits(t) > 32 || k->no_f64;
    if (whole || kir_is_const(y, &known)) return kir_op(k, op, x, y, NULL);
    struct kir_val *q = kir_op(k, K_DIV, kir_cast(k, f, x), kir_cast(k, f, y), NULL);
    q = kir_cast_fits(k, t, q);
    if (op == K_DIV) return q;
    return kir_op(k, K_SUB, x, kir_op(k, K_MUL, q, y, NULL), NULL);
}
// x / y and x % y with the evaluator's answers for zero and overflow.
static struct kir_val *int_divide(struct kir *k, enum kop op, struct kir_val *x,
                                  struct kir_val *y) {
    enum dtype t = x->type;
    bool s = dtype_class(t) == DC_SIGNED, div = op == K_DIV;
    struct kir_val *zero = kir_int(k, t, 0), *one = kir_int(k, t, 1), *ones = kir_int(k, t, -1);
    struct kir_val *by0 = kir_cmp(k, CMP_EQ, y, zero), *bad = by0, *by_m1 = NULL;
    if (s) {
        by_m1 = kir_cmp(k, CMP_EQ, y, ones);
        bad = kir_op(k, K_OR, by0, by_m1, NULL);
    }
    struct kir_val *r = plain_divide(k, op, x, kir_select(k, bad, one, y));
    if (s) r = kir_select(k, by_m1, div ? kir_op(k, K_NEG, x, NULL, NULL) : zero, r);
    return kir_select(k, by0, div ? ones : x, r);
}
static struct kir_val *shift(struct lower *lw, enum kfn fn, enum dtype t, struct kir_val *x,
                             struct kir_val *y) {
    struct kir *k = &lw->k;
    enum dtype c = kir_type(t), u = c == DT_S8    ? DT_U8
                                    : c == DT_S16 ? DT_U16
                                    : c == DT_S32 ? DT_U32
                                    : c == DT_S64 ? DT_U64
                                                  : c;
    enum dtype sg = u == DT_U8 ? DT_S8 : u == DT_U16 ? DT_S16 : u == DT_U32 ? DT_S32 : DT_S64;
    int w = dtype_bits(t);
    if (w < 8 && fn != KFN_SHL) { // few bits: as the shift reads them
        struct kir_val *up = kir_op(k, K_SHL, kir_bits(k, u, x), kir_int(k, u, 8 - w), NULL);
        x = fn == KFN_ASHR ? kir_op(k, K_SHR, kir_bits(k, sg, up), kir_int(k, sg, 8 - w), NULL)
                           : kir_op(k, K_SHR, up, kir_int(k, u, 8 - w), NULL);
    }
    struct kir_val *n = kir_bits(k, u, y), *big = kir_cmp(k, CMP_GE, n, kir_int(k, u, w));
    struct kir_val *some = kir_select(k, big, kir_int(k, u, fn == KFN_ASHR ? w - 1 : 0), n);
    if (fn == KFN_ASHR)
        return kir_bits(k, c, kir_op(k, K_SHR, kir_bits(k, sg, x), kir_bits(k, sg, some), NULL));
    struct kir_val *r = kir_op(k, fn == KFN_SHL ? K_SHL : K_SHR, kir_bits(k, u, x), some, NULL);
    return kir_bits(k, c, kir_select(k, big, kir_int(k, u, 0), r));
}
// By squaring: exponents that are constant as straight code, others in a loop over their bits. A
// negative exponent gives 0, but for bases 1 and -1.
static struct kir_val *int_power(struct lower *lw, struct kir_val *x, struct kir_val *y) {
    struct kir *k = &lw->k;
    enum dtype t = x->type;
    int64_t n;
    struct kir_val *one = kir_int(k, t, 1), *zero = kir_int(k, t, 0), *r = one, *b = x;
    if (kir_is_const(y, &n) && n >= 0) {
        for (; n; n >>= 1, b = kir_op(k, K_MUL, b, b, NULL))
            if (n & 1) r = kir_op(k, K_MUL, r, b, NULL);
        return r;
    }
    struct kir_val *start[3] = {one, x, y}, *next[3];
    int bits = dtype_bits(t);
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, bits), bits, start, 3);
    struct kir_val *odd = kir_cmp(k, CMP_NE, kir_op(k, K_AND, l->carry[2], one, NULL), zero);
    next[0] = kir_select(k, odd, kir_op(k, K_MUL, l->carry[0], l->carry[1], NULL), l->carry[0]);
    next[1] = kir_op(k, K_MUL, l->carry[1], l->carry[1], NULL);
    next[2] = kir_op(k, K_SHR, l->carry[2], one, NULL);
    kir_end(k, l, next);
    r = l->result[0];
    if (dtype_class(t) != DC_SIGNED) return r;
    struct kir_val *minus = kir_int(k, t, -1),
                   *odd_y = kir_cmp(k, CMP_NE, kir_op(k, K_AND, y, one, NULL), zero);
    struct kir_val *inverse = kir_select(
        k, kir_cmp(k, CMP_EQ, x, one), one,
        kir_select(k, kir_cmp(k, CMP_EQ, x, minus), kir_select(k, odd_y, minus, one), zero));
    return kir_select(k, kir_cmp(k, CMP_LT, y, zero), inverse, r);
}
// The upper half of the product: in twice the width, or of 64 bits from products of halves.
static struct kir_val *high_product(struct kir *k, enum dtype st, struct kir_val *x,
                                    struct kir_val *y) {
    enum dtype t = x->type;
    bool s = dtype_class(t) == DC_SIGNED;
    int w = dtype_bits(st);
    if (w < 64) {
        enum dtype d = s ? DT_S64 : DT_U64;
        struct kir_val *p = kir_op(k, K_MUL, kir_cast(k, d, x), kir_cast(k, d, y), NULL);
        return kir_cast(k, t, kir_op(k, K_SHR, p, kir_int(k, d, w), NULL));
    }
    enum dtype u = DT_U64;
    struct kir_val *h = kir_int(k, u, 32), *low = kir_int(k, u, 0xffffffff);
    struct kir_val *a = kir_bits(k, u, x), *b = kir_bits(k, u, y);
    struct kir_val *a0 = kir_op(k, K_AND, a, low, NULL), *a1 = kir_op(k, K_SHR, a, h, NULL),
                   *b0 = kir_op(k, K_AND, b, low, NULL), *b1 = kir_op(k, K_SHR, b, h, NULL);
    struct kir_val *m = kir_op(k, K_ADD, kir_op(k, K_MUL, a1, b0, NULL),
                               kir_op(k, K_SHR, kir_op(k, K_MUL, a0, b0, NULL), h, NULL), NULL);
    struct kir_val *n =
        kir_op(k, K_ADD, kir_op(k, K_MUL, a0, b1, NULL), kir_op(k, K_AND, m, low, NULL), NULL);
    struct kir_val *r =
        kir_op(k, K_ADD, kir_op(k, K_MUL, a1, b1, NULL), kir_op(k, K_SHR, m, h, NULL), NULL);
    r = kir_op(k, K_ADD, r, kir_op(k, K_SHR, n, h, NULL), NULL);
    if (s) { // less the other factor for each negative one
        struct kir_val *zero = kir_int(k, t, 0), *nil = kir_int(k, u, 0);
        r = kir_op(k, K_SUB, r, kir_select(k, kir_cmp(k, CMP_LT, x, zero), b, nil), NULL);
        r = kir_op(k, K_SUB, r, kir_select(k, kir_cmp(k, CMP_LT, y, zero), a, nil), NULL);
    }
    return kir_bits(k, t, r);
}
// Counts bits; of the lower ones where the type has fewer than 8.
static struct kir_val *few_bits(struct kir *k, enum dtype st, enum kop op, struct kir_val *x) {
    enum dtype t = x->type;
    if (dtype_bits(st) >= 8) return kir_op(k, op, x, NULL, NULL);
    int bits = dtype_bits(st);
    x = kir_op(k, op, kir_op(k, K_AND, x, kir_int(k, t, (1 << bits) - 1), NULL), NULL, NULL);
    return op == K_CLZ ? kir_op(k, K_SUB, x, kir_int(k, t, 8 - bits), NULL) : x;
}
static struct kir_val *int_fn(struct lower *lw, enum kfn fn, enum dtype st, struct kir_val *x,
                              struct kir_val *y) {
    struct kir *k = &lw->k;
    enum dtype t = x->type;
    if (direct[fn].whole) return kir_op(k, direct[fn].whole, x, y, NULL);

    switch (fn) {
    case KFN_ABS:
        return dtype_class(t) == DC_SIGNED ? kir_op(k, K_ABS, x, NULL, NULL) : x;
    case KFN_NOT:
        return kir_op(k, K_XOR, x, kir_int(k, t, -1), NULL);
    case KFN_CLZ:
        return few_bits(k, st, K_CLZ, x);
    case KFN_POPCNT:
        return few_bits(k, st, K_POPCNT, x);
    case KFN_SIGN:
        return sign(k, x);
    case KFN_ISFINITE:
        return kir_int(k, DT_PRED, 1);
    case KFN_DIV:
        return int_divide(k, K_DIV, x, y);
    case KFN_REM:
        return int_divide(k, K_REM, x, y);
    case KFN_POW:
        return int_power(lw, x, y);
    case KFN_MULHI:
        return high_product(k, st, x, y);
    case KFN_SHL:
    case KFN_ASHR:
    case KFN_LSHR:
        return shift(lw, fn, st, x, y);
    default:
        return NULL;
    }
}
static struct kir_val *pred_fn(struct kir *k, enum kfn fn, struct kir_val *x, struct kir_val *y) {
    if (direct[fn].pred) return kir_op(k, direct[fn].pred, x, y, NULL);
    switch (fn) {
    case KFN_ABS:
        return x;
    case KFN_NOT:
        return kir_op(k, K_XOR, x, kir_int(k, DT_PRED, 1), NULL);
    case KFN_ISFINITE:
        return kir_int(k, DT_PRED, 1);
    default:
        return NULL;
    }
}
struct kir_val *kmath_total_order(struct kir *k, struct kir_val *x) {
    if (!dtype_is_float(x->type)) return x;
    enum dtype t = x->type == DT_F64 ? DT_S64 : DT_S32;
    struct kir_val *b = kir_bits(k, t, x);
    struct kir_val *sign = kir_op(k, K_SHR, b, kir_int(k, t, t == DT_S64 ? 63 : 31), NULL);
    struct kir_val *low =
        kir_op(k, K_AND, sign, kir_int(k, t, t == DT_S64 ? INT64_MAX : INT32_MAX), NULL);
    return kir_op(k, K_XOR, b, low, NULL);
}

struct kir_val *kmath(struct lower *lw, enum kfn fn, enum dtype t, struct kir_val *x,
                      struct kir_val *y) {
    struct kir_val *r;
    switch (dtype_class(t)) {
    case DC_FLOAT:
        r = float_fn(lw, fn, x, y);
        if (r && kir_is_f8(t) && (fn == KFN_MAX || fn == KFN_MIN)) r->grid = t; // one of x and y
        break;
    case DC_SIGNED:
    case DC_UNSIGNED:
        r = int_fn(lw, fn, t, x, y);
        break;
    case DC_PRED:
        return pred_fn(&lw->k, fn, x, y);
    case DC_COMPLEX:
        return kmath_complex(lw, fn, x, y);
    default:
        return NULL;
    }
    return r && r->type == kir_type(t) && r->op != K_COMPLEX ? kmath_wrap(lw, t, r) : r;
}
