// SPDX-License-Identifier: Apache-2.0
// Functions of complex values, as pairs of reals, in f64 for both types: of c64 all sums of
// products of the parts are exact in f64, nothing overflows there, and results are rounded once. Of
// c128 what would overflow is scaled. Zeros, infinities and NaN follow libm, whose functions remain
// for the inverse ones (calls.c, both parts by a call each).
#include <math.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v) kir_f(k, DT_F64, (v))

struct pair { // f64
    V re, im;
    bool narrow; // both hold f32s
};
static struct pair wide(struct kir *k, V x) {
    V re = kir_re(k, x), im = kir_im(k, x);
    return (struct pair){kir_cast(k, DT_F64, re), kir_cast(k, DT_F64, im), re->type == DT_F32};
}
static V narrowed(struct kir *k, enum dtype t, struct pair x) {
    return kir_complex(k, kir_cast(k, t, x.re), kir_cast(k, t, x.im));
}
static V fn(struct kir *k, enum kfn f, V x) {
    return kmath_f64(k, f, x, NULL);
}
static V is_inf(struct kir *k, V x) {
    return CMP(EQ, OP1(ABS, x), kir_f(k, x->type, INFINITY));
}
static V is_nan(struct kir *k, V x) {
    return CMP(NE, x, x);
}
static V either(struct kir *k, V x, V y) {
    return OP2(OR, x, y);
}
static V neg(struct kir *k, V x) {
    return OP1(NEG, x);
}
static void sin_cos(struct kir *k, struct pair of, V x, V *s, V *c) {
    (of.narrow ? kmath_sin_cos_narrow : kmath_sin_cos)(k, x, s, c);
}

// A power of two that brings the larger part of c128 values to where squares neither overflow nor
// lose bits; 1 for c64 and what needs none.
static V scale(struct kir *k, struct pair x, V *back) {
    V a = OP1(ABS, x.re), b = OP1(ABS, x.im), m = SEL(CMP(GT, a, b), a, b);
    if (x.narrow) return *back = C(1);
    V big = CMP(GT, m, C(0x1p500)), tiny = CMP(LT, m, C(0x1p-450));
    *back = SEL(big, C(0x1p600), SEL(tiny, C(0x1p-600), C(1)));
    return SEL(big, C(0x1p-600), SEL(tiny, C(0x1p600), C(1)));
}
static V magnitude(struct kir *k, struct pair x) {
    V back, s = scale(k, x, &back), a = x.re, b = x.im;
    if (!x.narrow) a = OP2(MUL, a, s), b = OP2(MUL, b, s);
    V m = OP1(SQRT, OP2(ADD, OP2(MUL, a, a), OP2(MUL, b, b)));
    if (!x.narrow) m = OP2(MUL, m, back);
    return SEL(either(k, is_inf(k, x.re), is_inf(k, x.im)), C(INFINITY), m); // also beside a NaN
}

// The magnitude of c64 in f32: by a power of two that brings the larger part near 1, then back by
// it, so that no square overflows or loses bits: within 1.1 ULP.
static V magnitude_f32(struct kir *k, V re, V im) {
    V a = OP1(ABS, re), b = OP1(ABS, im), e = kir_bits(k, DT_S32, SEL(CMP(GT, a, b), a, b));
    e = OP2(AND, e, I32(0x7f800000));
    e = OP2(MIN, OP2(MAX, e, I32(1 << 23)), I32(253 << 23));
    V by = kir_bits(k, DT_F32, OP2(SUB, I32(254 << 23), e)), back = kir_bits(k, DT_F32, e);
    V x = OP2(MUL, a, by), y = OP2(MUL, b, by);
    V m = OP2(MUL, OP1(SQRT, FMA(x, x, OP2(MUL, y, y))), back);
    V inf = kir_f(k, DT_F32, INFINITY);
    return SEL(either(k, CMP(EQ, a, inf), CMP(EQ, b, inf)), inf, m);
}

// x * y and what rounding it lost, which is 0 where the product is no number.
static V product_with(struct kir *k, V x, V y, V *lost) {
    V p = kir_two_product(k, x, y, lost);
    *lost = SEL(CMP(LT, OP1(ABS, p), C(INFINITY)), *lost, C(0));
    return p;
}
// a c + b d of c128, as exact as the parts of the sum.
static V two_products(struct kir *k, V a, V c, V b, V d) {
    V low, lost, w = product_with(k, b, d, &lost);
    if (!k->no_fma) return OP2(ADD, FMA(a, c, w), lost);
    V p = product_with(k, a, c, &low);
    return OP2(ADD, OP2(ADD, p, w), OP2(ADD, low, lost));
}
// The sign of an infinite part, zero of a finite one.
static V boxed(struct kir *k, V x) {
    return OP2(COPYSIGN, SEL(is_inf(k, x), kir_f(k, x->type, 1), kir_f(k, x->type, 0)), x);
}
// by * x where by is infinite, and zero with x's sign where it is zero, though x overflowed.
static V by_box(struct kir *k, V x_inf, V x) {
    V zero = OP2(COPYSIGN, kir_f(k, x->type, 0), x);
    return SEL(x_inf, OP2(MUL, kir_f(k, x->type, INFINITY), x), SEL(is_nan(k, x), x, zero));
}
// The quotient r of x and y where both its parts are NaN: the answers of C's Annex G. All of one
// type.
static struct pair rescued(struct kir *k, struct pair x, struct pair y, struct pair r) {
    V a = x.re, b = x.im, c = y.re, d = y.im, zero = kir_f(k, a->type, 0),
      nan = kir_f(k, a->type, NAN), signed_inf = OP2(COPYSIGN, kir_f(k, a->type, INFINITY), c);
    V lost = OP2(AND, is_nan(k, r.re), is_nan(k, r.im));
    V x_inf = either(k, is_inf(k, a), is_inf(k, b)), y_inf = either(k, is_inf(k, c), is_inf(k, d));
    V by_zero = OP2(AND, OP2(AND, CMP(EQ, c, zero), CMP(EQ, d, zero)),
                    either(k, CMP(EQ, a, a), CMP(EQ, b, b)));
    V one = kir_op(k, K_XOR, x_inf, y_inf, NULL);

    V p = SEL(x_inf, boxed(k, a), a), q = SEL(x_inf, boxed(k, b), b),
      u = SEL(y_inf, boxed(k, c), c), v = SEL(y_inf, boxed(k, d), d);
    V re = by_box(k, x_inf, OP2(ADD, OP2(MUL, p, u), OP2(MUL, q, v))),
      im = by_box(k, x_inf, OP2(SUB, OP2(MUL, q, u), OP2(MUL, p, v)));
    re = SEL(by_zero, OP2(MUL, signed_inf, a), SEL(one, re, nan));
    im = SEL(by_zero, OP2(MUL, signed_inf, b), SEL(one, im, nan));
    return (struct pair){SEL(lost, re, r.re), SEL(lost, im, r.im), false};
}
// x / y, both near 1 where they are c128 and their parts of f64.
static struct pair quotient(struct kir *k, struct pair x, struct pair y) {
    V a = x.re, b = x.im, c = y.re, d = y.im, den = OP2(ADD, OP2(MUL, c, c), OP2(MUL, d, d));
    struct pair r = {OP2(DIV, two_products(k, a, c, b, d), den),
                     OP2(DIV, two_products(k, b, c, neg(k, a), d), den), false};
    return rescued(k, x, y, r);
}
// x / y of c64: products and sums in f64, where none of them overflows or loses more than a last
// bit; what follows in f32.
static V divide_narrow(struct kir *k, V x, V y) {
    struct pair n = wide(k, x), m = wide(k, y), r;
    V one_over_den = OP2(DIV, C(1), OP2(ADD, OP2(MUL, m.re, m.re), OP2(MUL, m.im, m.im)));
    V re = OP2(ADD, OP2(MUL, n.re, m.re), OP2(MUL, n.im, m.im)),
      im = OP2(SUB, OP2(MUL, n.im, m.re), OP2(MUL, n.re, m.im));
    r.re = kir_cast(k, DT_F32, OP2(MUL, re, one_over_den));
    r.im = kir_cast(k, DT_F32, OP2(MUL, im, one_over_den));
    r = rescued(k, (struct pair){kir_re(k, x), kir_im(k, x), true},
                (struct pair){kir_re(k, y), kir_im(k, y), true}, r);
    return kir_complex(k, r.re, r.im);
}
static struct pair divide(struct kir *k, struct pair x, struct pair y) {
    V back, unused, s = scale(k, y, &unused), t = scale(k, x, &back);
    struct pair n = {OP2(MUL, x.re, t), OP2(MUL, x.im, t), false},
                d = {OP2(MUL, y.re, s), OP2(MUL, y.im, s), false}, r = quotient(k, n, d);
    V even = CMP(EQ, OP2(MUL, s, back), C(1)); // else both in one direction, or one alone
    s = SEL(even, C(1), s), back = SEL(even, C(1), back);
    return (struct pair){OP2(MUL, OP2(MUL, r.re, s), back), OP2(MUL, OP2(MUL, r.im, s), back),
                         false};
}
static struct pair one_over(struct kir *k, struct pair x) {
    return divide(k, (struct pair){C(1), C(0), x.narrow}, x);
}

// e^a as p * f * g, so that what it is multiplied with overflows only if it must: sines and cosines
// of c128 may be as small as e^-700.
static V exp_in_parts(struct kir *k, bool narrow, V a, V *f, V *g) {
    V far = CMP(GT, a, C(700)), b = narrow ? a : SEL(far, OP2(SUB, a, C(700)), a);
    struct kmath_exp e = kmath_exp_parts(k, b, NULL);
    *f = e.high;
    *g = narrow ? C(1) : SEL(far, C(0x1.d945df4f8ec8ep1009), C(1)); // e^700
    return OP2(MUL, e.p, e.low);
}
// e^a (cos b, sin b)
static struct pair exponential(struct kir *k, struct pair x) {
    V s, c, f, g, a = x.re, b = x.im, inf = C(INFINITY), nan = C(NAN);
    sin_cos(k, x, b, &s, &c);
    V p = exp_in_parts(k, x.narrow, a, &f, &g), up = CMP(EQ, a, inf);
    V zero = CMP(EQ, a, neg(k, inf)), wild = either(k, is_inf(k, b), is_nan(k, b));
    p = SEL(up, inf, SEL(zero, C(0), p)), f = SEL(up, C(1), f);
    V re = OP2(MUL, OP2(MUL, OP2(MUL, p, c), f), g), im = OP2(MUL, OP2(MUL, OP2(MUL, p, s), f), g);
    re = SEL(wild, SEL(zero, C(0), SEL(up, inf, nan)), re);
    im = SEL(OP2(AND, wild, zero), OP2(COPYSIGN, C(0), b), im);
    im = SEL(is_nan(k, a), nan, im);
    return (struct pair){SEL(is_nan(k, a), nan, re), SEL(CMP(EQ, b, C(0)), b, im), false};
}
// e^a cos b - 1 = (e^a - 1) cos b - 2 sin(b/2)^2
static struct pair exponential_less_one(struct kir *k, struct pair x) {
    struct pair e = exponential(k, x);
    V s, c, unused, half = OP2(MUL, x.im, C(0.5));
    sin_cos(k, x, x.im, &unused, &c);
    sin_cos(k, x, half, &s, &unused);
    V near = OP2(SUB, OP2(MUL, fn(k, KFN_EXPM1, x.re), c), OP2(MUL, OP2(MUL, s, s), C(2)));
    V small = CMP(LT, OP1(ABS, x.re), C(1));
    return (struct pair){SEL(small, near, OP2(SUB, e.re, C(1))), e.im, false};
}
// (log|x|, the angle), x.re + low the real part (NULL: 0): |x|^2 with what rounding lost, which
// counts where |x| is near 1.
static struct pair logarithm_of(struct kir *k, struct pair x, V low) {
    V back, s = scale(k, x, &back), a = OP2(MUL, x.re, s), b = OP2(MUL, x.im, s), lost;
    V la, lb, aa = kir_two_product(k, a, a, &la), bb = kir_two_product(k, b, b, &lb);
    V sum = kmath_two_sum(k, aa, bb, &lost);
    if (!x.narrow) lost = OP2(ADD, OP2(ADD, lost, la), lb);
    if (low) lost = FMA(OP2(ADD, a, a), OP2(MUL, low, s), lost);
    V l = OP2(MUL, OP2(ADD, fn(k, KFN_LOG, sum), OP2(DIV, lost, sum)), C(0.5));
    V far = C(600 * 0.6931471805599453);
    if (!x.narrow)
        l = OP2(ADD, l, SEL(CMP(GT, s, C(1)), neg(k, far), SEL(CMP(LT, s, C(1)), far, C(0))));
    l = SEL(CMP(EQ, sum, C(0)), C(-INFINITY), l);
    l = SEL(either(k, is_inf(k, x.re), is_inf(k, x.im)), C(INFINITY), l);
    return (struct pair){l, kmath_atan2_64(k, x.im, x.re), false};
}
static struct pair logarithm(struct kir *k, struct pair x) {
    return logarithm_of(k, x, NULL);
}
static struct pair root(struct kir *k, struct pair x) {
    V back, s = scale(k, x, &back), a = OP2(MUL, x.re, s), b = OP2(MUL, x.im, s);
    V half = SEL(CMP(GT, s, C(1)), C(0x1p-300), SEL(CMP(LT, s, C(1)), C(0x1p300), C(1)));
    V m = magnitude(k, (struct pair){a, b, true});
    V t = OP1(SQRT, OP2(MUL, OP2(ADD, OP1(ABS, a), m), C(0.5)));
    V u = OP2(MUL, OP2(DIV, b, OP2(ADD, t, t)), half), left = CMP(LT, a, C(0));
    t = OP2(MUL, t, half);
    V re = SEL(left, OP1(ABS, u), t), im = SEL(left, OP2(COPYSIGN, t, b), u);
    V none = CMP(EQ, t, C(0)), b_inf = is_inf(k, b);
    re = SEL(none, C(0), SEL(b_inf, C(INFINITY), re));
    return (struct pair){re, SEL(either(k, none, b_inf), b, im), false};
}

// cosh(b) = ch f g and sinh(b) = sh f g, where only the last factors overflow.
struct hyperbolic {
    V ch, sh, f, g;
};
static struct hyperbolic hyperbolic(struct kir *k, bool narrow, V b) {
    V a = OP1(ABS, b), far = CMP(GT, a, C(22)), inf = is_inf(k, b), nan = is_nan(k, b);
    struct hyperbolic r;
    V h = OP2(MUL, exp_in_parts(k, narrow, a, &r.f, &r.g), C(0.5));
    r.f = SEL(far, r.f, C(1)), r.g = SEL(far, r.g, C(1));
    r.ch = SEL(far, h, fn(k, KFN_COSH, b));
    r.sh = SEL(far, OP2(COPYSIGN, h, b), fn(k, KFN_SINH, b));
    r.ch = SEL(inf, C(INFINITY), SEL(nan, b, r.ch));
    r.sh = SEL(either(k, inf, nan), b, r.sh);
    return r;
}
static V product(struct kir *k, V x, V y, const struct hyperbolic *h) {
    return OP2(MUL, OP2(MUL, OP2(MUL, x, y), h->f), h->g);
}
// (sin a cosh b, cos a sinh b); a factor of zero gives zero beside anything.
static struct pair sine(struct kir *k, struct pair x) {
    V s, c, a = x.re, b = x.im, zero = C(0), wild_a = either(k, is_inf(k, a), is_nan(k, a));
    sin_cos(k, x, a, &s, &c);
    struct hyperbolic h = hyperbolic(k, x.narrow, b);
    V re = product(k, s, h.ch, &h), im = product(k, c, h.sh, &h);
    im = SEL(wild_a, SEL(is_inf(k, b), C(INFINITY), SEL(CMP(EQ, b, zero), b, im)), im);
    return (struct pair){SEL(CMP(EQ, a, zero), a, re), im, false};
}
// (cos a cosh b, -sin a sinh b)
static struct pair cosine(struct kir *k, struct pair x) {
    V s, c, a = x.re, b = x.im, zero = C(0), wild_a = either(k, is_inf(k, a), is_nan(k, a));
    sin_cos(k, x, a, &s, &c);
    struct hyperbolic h = hyperbolic(k, x.narrow, b);
    V re = product(k, c, h.ch, &h), im = neg(k, product(k, s, h.sh, &h));
    re = SEL(OP2(AND, is_inf(k, b), wild_a), C(INFINITY), re);
    im = SEL(OP2(AND, CMP(EQ, b, zero), wild_a), b, im);
    im = SEL(CMP(EQ, a, zero), neg(k, OP2(MUL, a, OP2(COPYSIGN, C(1), b))), im);
    return (struct pair){re, im, false};
}
// By the tangent of b and the sine of a (Kahan, "Branch cuts for complex elementary functions",
// 1987); far out 1 and what is left of the phase.
static struct pair hyperbolic_tangent(struct kir *k, struct pair x) {
    V s, c, a = x.re, b = x.im, far = CMP(GT, OP1(ABS, a), C(22));
    sin_cos(k, x, b, &s, &c);
    V t = OP2(DIV, s, c), beta = FMA(t, t, C(1)), sh = fn(k, KFN_SINH, SEL(far, C(0), a));
    V z = OP2(MUL, sh, sh), rho = OP1(SQRT, OP2(ADD, z, C(1))), den = FMA(beta, z, C(1));
    V re = OP2(DIV, OP2(MUL, OP2(MUL, beta, rho), sh), den), im = OP2(DIV, t, den);
    V down = fn(k, KFN_EXP, OP2(MUL, OP1(ABS, a), C(-2)));
    V wild = either(k, is_inf(k, b), is_nan(k, b));
    V phase = OP2(MUL, OP2(MUL, OP2(MUL, s, c), C(4)), down);
    phase = SEL(OP2(AND, is_inf(k, a), wild), OP2(COPYSIGN, C(0), b), phase);
    re = SEL(far, OP2(COPYSIGN, C(1), a), re);
    im = SEL(far, phase, im);
    re = SEL(OP2(AND, wild, CMP(LT, OP1(ABS, a), C(INFINITY))), SEL(CMP(EQ, a, C(0)), a, C(NAN)),
             re);
    im = SEL(OP2(AND, wild, CMP(LT, OP1(ABS, a), C(INFINITY))), C(NAN), im);
    return (struct pair){re, SEL(CMP(EQ, b, C(0)), b, im), false};
}
static struct pair swapped(struct pair x) {
    return (struct pair){x.im, x.re, x.narrow};
}
static struct pair power(struct kir *k, struct pair x, struct pair y) {
    struct pair l = logarithm(k, x);
    V re = OP2(SUB, OP2(MUL, y.re, l.re), OP2(MUL, y.im, l.im)),
      im = OP2(ADD, OP2(MUL, y.re, l.im), OP2(MUL, y.im, l.re));
    return exponential(k, (struct pair){re, im, false});
}

// Both parts by a call each, and rounded once: functions of libm that have no code here.
static V part(struct kir *k, enum dtype t, int f, V x) {
    V a[4] = {kir_cast(k, DT_F64, kir_re(k, x)), kir_cast(k, DT_F64, kir_im(k, x)), NULL, NULL};
    return kir_cast(k, t, kir_call_n(k, f, a));
}
static const uint8_t library[KFN_COUNT] = { // the function for the real part; the other follows it
    [KFN_ACOS] = KLIBM_CACOS_RE,
    [KFN_ACOSH] = KLIBM_CACOSH_RE,
    [KFN_ASIN] = KLIBM_CASIN_RE,
    [KFN_ASINH] = KLIBM_CASINH_RE,
    [KFN_ATANH] = KLIBM_CATANH_RE};

static struct pair logarithm_plus_one(struct kir *k, struct pair x) {
    V low, re = kmath_two_sum(k, x.re, C(1), &low);
    low = SEL(CMP(LT, OP1(ABS, re), C(0x1p60)), low, C(0)); // beyond, and of infinities, none
    return logarithm_of(k, (struct pair){re, x.im, false}, low);
}
static struct pair pair_of(V re, V im) {
    return (struct pair){re, im, false};
}
// What is made of one of the functions above and little else.
static bool composed(struct kir *k, enum kfn f, struct pair x, struct pair *r) {
    struct pair e, turned = {neg(k, x.re), neg(k, x.im), x.narrow};
    V m, none;

    switch (f) {
    case KFN_LOGISTIC:
        e = exponential(k, turned);
        *r = one_over(k, pair_of(OP2(ADD, e.re, C(1)), e.im));
        return true;
    case KFN_RSQRT:
        *r = one_over(k, root(k, x));
        return true;
    case KFN_CBRT:
        *r = power(k, x, pair_of(C(1.0 / 3), C(0)));
        return true;
    case KFN_SINH:
        *r = swapped(sine(k, swapped(x)));
        return true;
    case KFN_COSH:
        *r = cosine(k, swapped((struct pair){turned.re, x.im, x.narrow}));
        return true;
    case KFN_TAN:
        *r = swapped(hyperbolic_tangent(k, swapped(x)));
        return true;
    case KFN_SIGN:
        m = magnitude(k, x);
        none = CMP(EQ, m, C(0));
        *r = pair_of(SEL(none, C(0), OP2(DIV, x.re, m)), SEL(none, C(0), OP2(DIV, x.im, m)));
        return true;
    default:
        return false;
    }
}
static struct pair (*const made[KFN_COUNT])(struct kir *,
                                            struct pair) = {[KFN_EXP] = exponential,
                                                            [KFN_EXPM1] = exponential_less_one,
                                                            [KFN_LOG] = logarithm,
                                                            [KFN_SQRT] = root,
                                                            [KFN_SIN] = sine,
                                                            [KFN_COS] = cosine,
                                                            [KFN_TANH] = hyperbolic_tangent,
                                                            [KFN_LOG1P] = logarithm_plus_one};
static bool in_f64(struct kir *k, enum kfn f, struct pair x, struct pair y, struct pair *r) {
    if (made[f])
        *r = made[f](k, x);
    else if (f == KFN_DIV)
        *r = divide(k, x, y);
    else if (f == KFN_POW)
        *r = power(k, x, y);
    else
        return composed(k, f, x, r);
    return true;
}

static V both(struct kir *k, enum kop op, V x, V y) {
    return kir_complex(k, kir_op(k, op, kir_re(k, x), kir_re(k, y), NULL),
                       kir_op(k, op, kir_im(k, x), kir_im(k, y), NULL));
}
V kmath_complex(struct lower *lw, enum kfn f, V x, V y) {
    struct kir *k = &lw->k;
    V a = kir_re(k, x), b = kir_im(k, x), c = y ? kir_re(k, y) : NULL, d = y ? kir_im(k, y) : NULL;
    enum dtype t = a->type;
    struct pair r;
    if (f == KFN_DIV && t == DT_F32) return divide_narrow(k, x, y);
    if (library[f]) return kir_complex(k, part(k, t, library[f], x), part(k, t, library[f] + 1, x));
    switch (f) {
    case KFN_REAL:
        return a;
    case KFN_IMAG:
        return b;
    case KFN_NEG:
        return kir_complex(k, neg(k, a), neg(k, b));
    case KFN_ADD:
        return both(k, K_ADD, x, y);
    case KFN_SUB:
        return both(k, K_SUB, x, y);
    case KFN_MUL:
        return kir_complex(k, OP2(SUB, OP2(MUL, a, c), OP2(MUL, b, d)),
                           OP2(ADD, OP2(MUL, a, d), OP2(MUL, b, c)));
    case KFN_ABS:
        return t == DT_F32 ? magnitude_f32(k, kir_re(k, x), kir_im(k, x))
                           : magnitude(k, wide(k, x));
    default:
        if (!in_f64(k, f, wide(k, x), wide(k, y ? y : x), &r)) return NULL;
        return narrowed(k, t, r);
    }
}
