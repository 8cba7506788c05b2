// SPDX-License-Identifier: Apache-2.0
// Functions of complex values, as pairs of reals. Sums and products are written out; the rest calls
// both parts of the library's function in f64 (calls.c), as the evaluator does, and rounds once.
#include <math.h>

#include "compiler/kernel/lower.h"

typedef struct kir_val *V;

static V part(struct kir *k, enum dtype t, int fn, V x, V y) {
    V a[4] = {kir_re(k, x), kir_im(k, x), y ? kir_re(k, y) : NULL, y ? kir_im(k, y) : NULL};
    for (int n = 0; n < kir_fn_args(fn); n++)
        a[n] = kir_cast(k, DT_F64, a[n]);
    return kir_cast(k, t, kir_call_n(k, fn, a));
}
static V call(struct kir *k, int fn, V x, V y) { // fn is the real part's, the other follows it
    enum dtype t = kir_re(k, x)->type;
    return kir_complex(k, part(k, t, fn, x, y), part(k, t, fn + 1, x, y));
}
static V real(struct kir *k, enum dtype t, double v) {
    return kir_complex(k, kir_f(k, t, v), kir_f(k, t, 0));
}
static V in_type(struct kir *k, enum dtype t, V x) {
    return kir_complex(k, kir_cast(k, t, kir_re(k, x)), kir_cast(k, t, kir_im(k, x)));
}
static V both(struct kir *k, enum kop op, V x, V y) {
    return kir_complex(k, kir_op(k, op, kir_re(k, x), kir_re(k, y), NULL),
                       kir_op(k, op, kir_im(k, x), kir_im(k, y), NULL));
}
static V one_over(struct kir *k, V x) {
    return call(k, KLIBM_CDIV_RE, real(k, DT_F64, 1), x);
}

// Functions that are made of others, in f64.
static V composed(struct kir *k, enum kfn fn, V x) {
    V one = real(k, DT_F64, 1), e;
    switch (fn) {
    case KFN_EXPM1:
        return both(k, K_SUB, call(k, KLIBM_CEXP_RE, x, NULL), one);
    case KFN_LOG1P:
        return call(k, KLIBM_CLOG_RE, both(k, K_ADD, x, one), NULL);
    case KFN_LOGISTIC:
        e = kir_complex(k, kir_op(k, K_NEG, kir_re(k, x), NULL, NULL),
                        kir_op(k, K_NEG, kir_im(k, x), NULL, NULL));
        return one_over(k, both(k, K_ADD, one, call(k, KLIBM_CEXP_RE, e, NULL)));
    case KFN_RSQRT:
        return one_over(k, call(k, KLIBM_CSQRT_RE, x, NULL));
    case KFN_CBRT:
        return call(k, KLIBM_CPOW_RE, x, real(k, DT_F64, 1.0 / 3));
    case KFN_SIGN: {
        V m = part(k, DT_F64, KLIBM_HYPOT, x, NULL), zero = real(k, DT_F64, 0);
        V r = kir_complex(k, kir_op(k, K_DIV, kir_re(k, x), m, NULL),
                          kir_op(k, K_DIV, kir_im(k, x), m, NULL));
        return kir_select(k, kir_cmp(k, CMP_EQ, m, kir_f(k, DT_F64, 0)), zero, r);
    }
    default:
        return NULL;
    }
}

// |x| of f32 parts: their squares are exact in f64 and do not overflow, so no scaling is needed.
static V magnitude(struct kir *k, V x) {
    V w = in_type(k, DT_F64, x), a = kir_re(k, w), b = kir_im(k, w),
      inf = kir_f(k, DT_F64, HUGE_VAL);
    V m = kir_op(k, K_SQRT,
                 kir_op(k, K_ADD, kir_op(k, K_MUL, a, a, NULL), kir_op(k, K_MUL, b, b, NULL), NULL),
                 NULL, NULL);
    V any = kir_op(k, K_OR, kir_cmp(k, CMP_EQ, kir_op(k, K_ABS, a, NULL, NULL), inf),
                   kir_cmp(k, CMP_EQ, kir_op(k, K_ABS, b, NULL, NULL), inf), NULL);
    return kir_cast(k, DT_F32, kir_select(k, any, inf, m)); // also beside a NaN
}

// Functions of the library: the one for the real part.
static const uint8_t library[KFN_COUNT] = {
    [KFN_DIV] = KLIBM_CDIV_RE,     [KFN_POW] = KLIBM_CPOW_RE,     [KFN_EXP] = KLIBM_CEXP_RE,
    [KFN_LOG] = KLIBM_CLOG_RE,     [KFN_SQRT] = KLIBM_CSQRT_RE,   [KFN_SIN] = KLIBM_CSIN_RE,
    [KFN_COS] = KLIBM_CCOS_RE,     [KFN_TAN] = KLIBM_CTAN_RE,     [KFN_TANH] = KLIBM_CTANH_RE,
    [KFN_ACOS] = KLIBM_CACOS_RE,   [KFN_ACOSH] = KLIBM_CACOSH_RE, [KFN_ASIN] = KLIBM_CASIN_RE,
    [KFN_ASINH] = KLIBM_CASINH_RE, [KFN_ATANH] = KLIBM_CATANH_RE, [KFN_COSH] = KLIBM_CCOSH_RE,
    [KFN_SINH] = KLIBM_CSINH_RE};

V kmath_complex(struct lower *lw, enum kfn fn, V x, V y) {
    struct kir *k = &lw->k;
    V a = kir_re(k, x), b = kir_im(k, x), c = y ? kir_re(k, y) : NULL, d = y ? kir_im(k, y) : NULL;
    enum dtype t = a->type;
    if (library[fn]) return call(k, library[fn], x, y);
    switch (fn) {
    case KFN_REAL:
        return a;
    case KFN_IMAG:
        return b;
    case KFN_NEG:
        return kir_complex(k, kir_op(k, K_NEG, a, NULL, NULL), kir_op(k, K_NEG, b, NULL, NULL));
    case KFN_ADD:
        return both(k, K_ADD, x, y);
    case KFN_SUB:
        return both(k, K_SUB, x, y);
    case KFN_MUL:
        return kir_complex(
            k, kir_op(k, K_SUB, kir_op(k, K_MUL, a, c, NULL), kir_op(k, K_MUL, b, d, NULL), NULL),
            kir_op(k, K_ADD, kir_op(k, K_MUL, a, d, NULL), kir_op(k, K_MUL, b, c, NULL), NULL));
    case KFN_ABS:
        return t == DT_F32 ? magnitude(k, x) : part(k, t, KLIBM_HYPOT, x, NULL);
    default: {
        V r = composed(k, fn, in_type(k, DT_F64, x));
        return r ? in_type(k, t, r) : NULL;
    }
    }
}
