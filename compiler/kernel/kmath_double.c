// SPDX-License-Identifier: Apache-2.0
// Transcendental functions of f64 as kir: exp, expm1, log, log1p, tanh, logistic, sin and cos, by
// argument reduction and Taylor polynomials whose rest is below half a unit in the last place;
// results are within 2.5 units of the exact ones. Others are in kmath_inverse.c and kmath_power.c.
// Arguments of sin and cos below 2^20 are reduced
// by pi/2 in three parts, larger ones by the bits of 2/pi that their exponent asks for (Payne and
// Hanek, "Radian Reduction for Trigonometric Functions", 1983). Infinities, NaN, signed zero and
// subnormals follow libm.
#include <math.h>
#include <pthread.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v) kir_f(k, DT_F64, (v))

// ---- exponentials and logarithms

// x = n ln2 + r, for |x| below 2^20; n as s64.
static V reduce_ln2(struct kir *k, V x, V *out_n) {
    V magic = C(6755399441055744.0); // 1.5 * 2^52: adding it rounds to an integer in the low bits
    V z = FMA(x, C(1.4426950408889634), magic), n = OP2(SUB, z, magic);
    *out_n = OP2(SUB, kir_bits(k, DT_S64, z), I64(INT64_C(0x4338000000000000)));
    return FMA(n, C(-1.9082149292705877e-10), FMA(n, C(-0.6931471803691238), x));
}
static V pow2i(struct kir *k, V n) {
    return kir_bits(k, DT_F64, OP2(SHL, OP2(ADD, n, I64(1023)), I64(52)));
}
static V clamped(struct kir *k, V x, double lo, double hi) { // NaN stays
    x = SEL(CMP(GT, x, C(hi)), C(hi), x);
    return SEL(CMP(LT, x, C(lo)), C(lo), x);
}
// e^r = 1 + r + r^2 p(r), |r| <= ln2 / 2
static V expm1_near(struct kir *k, V r) {
    static const double c[] = {1. / 2,       1. / 6,         1. / 24,        1. / 120,
                               1. / 720,     1. / 5040,      1. / 40320,     1. / 362880,
                               1. / 3628800, 1. / 39916800., 1. / 479001600, 1. / 6227020800.};
    return FMA(OP2(MUL, r, r), POLY(r, c), r);
}
// As in kmath_float.c: the low part has most of n, and is 0 where the result is.
struct kmath_exp kmath_exp_parts(struct kir *k, V x, V low) {
    enum { BIAS = 1023, EXPONENT = 52 };
    x = clamped(k, x, -745.5, 712);
    V n, r = reduce_ln2(k, x, &n), magic = C(6755399441055744.0 + BIAS);
    if (low) r = OP2(ADD, r, low);
    V most = kir_bits(k, DT_S64, FMA(x, C(0.951 * 1.4426950408889634), magic)),
      rest = OP2(SUB, OP2(ADD, n, I64(2 * BIAS)), most);
    return (struct kmath_exp){OP2(ADD, C(1), expm1_near(k, r)),
                              kir_bits(k, DT_F64, OP2(SHL, most, I64(EXPONENT))),
                              kir_bits(k, DT_F64, OP2(SHL, rest, I64(EXPONENT)))};
}
static V exp64(struct kir *k, V x) {
    struct kmath_exp e = kmath_exp_parts(k, x, NULL);
    return OP2(MUL, OP2(MUL, e.p, e.low), e.high);
}
static V expm1_64(struct kir *k, V x) {
    V n, p = expm1_near(k, reduce_ln2(k, clamped(k, x, -45, 710), &n));
    V s = pow2i(k, OP2(SUB, n, I64(1))), m = FMA(s, p, OP2(SUB, s, C(0.5)));
    return SEL(CMP(EQ, x, C(0)), x, OP2(ADD, m, m));
}
// x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), s = f / (2 + f);
// log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)).
static V log64(struct kir *k, V x) {
    static const double c[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9, 2. / 11,
                               2. / 13, 2. / 15, 2. / 17, 2. / 19};
    const int64_t root = INT64_C(0x3fe6a09e667f3bcd); // of 1/2
    V tiny = CMP(LT, x, C(0x1p-1022)), a = SEL(tiny, OP2(MUL, x, C(0x1p54)), x);
    V u = OP2(SUB, kir_bits(k, DT_S64, a), I64(root)), e = OP2(SHR, u, I64(52));
    V m = OP2(ADD, OP2(AND, u, I64(INT64_C(0xfffffffffffff))), I64(root));
    V f = OP2(SUB, kir_bits(k, DT_F64, m), C(1)), s = OP2(DIV, f, OP2(ADD, f, C(2)));
    V z = OP2(MUL, s, s), half = OP2(MUL, OP2(MUL, f, f), C(0.5));
    V n = kir_cast(k, DT_F64, SEL(tiny, OP2(SUB, e, I64(54)), e));
    V y = OP2(MUL, s, OP2(ADD, half, OP2(MUL, z, POLY(z, c))));
    y = OP2(SUB, OP2(SUB, half, FMA(n, C(1.9082149292705877e-10), y)), f);
    y = OP2(SUB, OP2(MUL, n, C(0.6931471803691238)), y);
    y = SEL(CMP(EQ, x, C(0)), C(-INFINITY), y);
    y = SEL(CMP(LT, x, C(0)), C(NAN), y);
    y = SEL(CMP(EQ, x, C(INFINITY)), x, y);
    return SEL(CMP(NE, x, x), x, y);
}
// What rounding 1 + x lost is added (Kahan).
static V log1p_64(struct kir *k, V x) {
    V u = OP2(ADD, x, C(1)), l = log64(k, u);
    V lost = OP2(DIV, OP2(SUB, x, OP2(SUB, u, C(1))), u);
    V fine = OP2(AND, CMP(GT, u, C(0)), CMP(LT, u, C(INFINITY)));
    return SEL(CMP(EQ, x, C(0)), x, SEL(fine, OP2(ADD, l, lost), l));
}
static V tanh64(struct kir *k, V x) {
    V m = expm1_64(k, OP2(MUL, clamped(k, OP1(ABS, x), 0, 22), C(2)));
    return OP2(COPYSIGN, OP2(DIV, m, OP2(ADD, m, C(2))), x);
}
static V logistic64(struct kir *k, V x) {
    V e = exp64(k, OP1(NEG, OP1(ABS, x)));
    return OP2(DIV, SEL(CMP(LT, x, C(0)), e, C(1)), OP2(ADD, C(1), e));
}

// ---- sine and cosine

static const double pi_half[] = {1.5707963267948966, 6.123233995736766e-17,
                                 -1.4973849048591833e-33};
struct angle { // n quarter turns and hi + lo, |hi| <= pi/4
    V n, hi, lo;
};
V kmath_two_sum(struct kir *k, V x, V y, V *lost) {
    V s = OP2(ADD, x, y), t = OP2(SUB, s, x);
    *lost = OP2(ADD, OP2(SUB, x, OP2(SUB, s, t)), OP2(SUB, y, t));
    return s;
}
static struct angle small_angle(struct kir *k, V x) { // |x| < 2^20
    V n = OP1(RINT, OP2(MUL, x, C(0.6366197723675814))), m = OP1(NEG, n);
    V h = EXACT(m, C(pi_half[0]), x), lost, under, p = kir_two_product(k, m, C(pi_half[1]), &under);
    V hi = kmath_two_sum(k, h, p, &lost), lo = OP2(ADD, lost, under); // h is exact
    return (struct angle){n, hi, FMA(m, C(pi_half[2]), lo)};
}
// 2/pi times 2^e modulo 4, e = FIRST.., in pieces of 53 bits.
enum { FIRST = -33, EXPONENTS = 1005, PIECES = 4, PIECE_BITS = 53 };
static double two_over_pi[PIECES * EXPONENTS];
static void make_two_over_pi(void) {
    static const uint32_t word[] = {
        0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
        0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E,
        0xE88235F5, 0x2EBB4484, 0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B,
        0xBDF9283B, 0x1FF897FF, 0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7,
        0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1,
        0x1F8D5D08, 0x56033046, 0xFC7B6BAB, 0xF0CFBC20, 0x9AF4361D};
    for (int p = 0; p < PIECES; p++)
        for (int e = 0; e < EXPONENTS; e++) {
            double v = 0;
            for (int b = 0; b < PIECE_BITS; b++) {
                int weight = 1 - PIECE_BITS * p - b, i = e + FIRST - weight - 1; // of the fraction
                if (i >= 0 && word[i / 32] >> (31 - i % 32) & 1) v += ldexp(1, weight);
            }
            two_over_pi[p * EXPONENTS + e] = v;
        }
}
static struct angle large_angle(struct kir *k, V x) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_two_over_pi);
    V u = kir_bits(k, DT_S64, OP1(ABS, x)), lost, tail = C(0), sum = C(0);
    V e = kir_idx_clamp(k, OP2(SUB, OP2(SHR, u, I64(52)), I64(1075 + FIRST)), 0, EXPONENTS - 1);
    V m = OP2(OR, OP2(AND, u, I64(INT64_C(0xfffffffffffff))), I64(INT64_C(1075) << 52));
    m = OP2(COPYSIGN, kir_bits(k, DT_F64, m), x); // whole
    for (int p = 0; p < PIECES; p++) {
        V piece = kir_table(k, kir_add_table(k, DT_F64, EXPONENTS, two_over_pi + p * EXPONENTS), e);
        V l, h = kir_two_product(k, m, piece, &l);
        if (p == 0) h = OP2(SUB, h, OP2(MUL, OP1(FLOOR, OP2(MUL, h, C(0.25))), C(4)));
        sum = kmath_two_sum(k, sum, h, &lost);
        tail = OP2(ADD, tail, lost);
        sum = kmath_two_sum(k, sum, l, &lost);
        tail = OP2(ADD, tail, lost);
        if (p == 0) continue;
        sum = kmath_two_sum(k, sum, tail, &tail);
    }
    V n = OP1(RINT, sum), f = kmath_two_sum(k, OP2(SUB, sum, n), tail, &tail);
    V lo, hi = kir_two_product(k, f, C(pi_half[0]), &lo);
    lo = FMA(f, C(pi_half[1]), FMA(tail, C(pi_half[0]), lo));
    return (struct angle){n, hi, lo};
}
static V sin_near(struct kir *k, V x, V lo) {
    static const double c[] = {
        -1. / 6,        1. / 120,         -1. / 5040,         1. / 362880,
        -1. / 39916800, 1. / 6227020800., -1. / 1307674368e3, 1. / 355687428096e3};
    V z = OP2(MUL, x, x);
    lo = FMA(OP2(MUL, z, C(-0.5)), lo, lo);
    return OP2(ADD, x, FMA(OP2(MUL, z, x), POLY(z, c), lo));
}
static V cos_near(struct kir *k, V x, V lo) {
    static const double c[] = {1. / 24,           -1. / 720,       1. / 40320,
                               -1. / 3628800,     1. / 479001600., -1. / 87178291200.,
                               1. / 20922789888e3};
    V z = OP2(MUL, x, x), half = OP2(MUL, z, C(0.5)), w = OP2(SUB, C(1), half);
    V rest = FMA(OP1(NEG, x), lo, OP2(SUB, OP2(SUB, C(1), w), half));
    return OP2(ADD, w, FMA(OP2(MUL, z, z), POLY(z, c), rest));
}
// What the magnitude of v stays below, as far as its last operations say; infinity: unknown.
// Angles are often places or random bits times a constant.
static double whole_bound(const struct kir_val *v) {
    int64_t by = 0;
    double all = ldexp(1, dtype_bits(v->type));
    if (v->op == K_SHR && dtype_class(v->type) == DC_UNSIGNED && kir_is_const(v->args[1], &by))
        return ldexp(all, -(int)by);
    if ((v->op == K_BITS || v->op == K_CAST) && dtype_class(v->args[0]->type) == DC_UNSIGNED) {
        double inner = whole_bound(v->args[0]);
        return inner < all / 2 ? inner : all;
    }
    if (v->type != DT_S64) return all;
    double lo = fabs((double)v->lo), hi = fabs((double)v->hi);
    return lo > hi ? lo : hi;
}
static double bound(const struct kir_val *v, int depth) {
    if (v->op == K_CONST) return fabs(v->imm_f);
    if (depth == 0) return INFINITY;
    if (v->op == K_CAST && dtype_is_int(v->args[0]->type)) return whole_bound(v->args[0]);
    if (v->op == K_ADD || v->op == K_SUB)
        return bound(v->args[0], depth - 1) + bound(v->args[1], depth - 1);
    if (v->op == K_MUL) return bound(v->args[0], depth - 1) * bound(v->args[1], depth - 1);
    return INFINITY;
}
// Either of out_sin and out_cos may be NULL.
void kmath_sin_cos(struct kir *k, V x, V *out_sin, V *out_cos) {
    struct angle a = small_angle(k, x);
    bool small = bound(x, 4) < 0x1p20;
    V n = a.n, hi = a.hi, lo = a.lo, finite = CMP(LT, OP1(ABS, x), C(INFINITY));

    if (!small) {
        struct angle b = large_angle(k, x);
        V large = kir_cmp_rare(k, CMP_GE, OP1(ABS, x), C(0x1p20));
        n = SEL(large, b.n, n), hi = SEL(large, b.hi, hi), lo = SEL(large, b.lo, lo);
    }

    V q = OP2(SUB, n, OP2(MUL, OP1(FLOOR, OP2(MUL, n, C(0.25))), C(4))); // n mod 4
    V s = sin_near(k, hi, lo), c = cos_near(k, hi, lo);
    V odd = OP2(OR, CMP(EQ, q, C(1)), CMP(EQ, q, C(3)));
    if (out_sin) {
        V y = SEL(odd, c, s);
        y = SEL(CMP(EQ, x, C(0)), x, SEL(CMP(GE, q, C(2)), OP1(NEG, y), y));
        *out_sin = small ? y : SEL(finite, y, C(NAN));
    }
    if (out_cos) {
        V y = SEL(odd, s, c), less = OP2(OR, CMP(EQ, q, C(1)), CMP(EQ, q, C(2)));
        y = SEL(less, OP1(NEG, y), y);
        *out_cos = small ? y : SEL(finite, y, C(NAN));
    }
}
static V sin64(struct kir *k, V x) {
    V s;
    kmath_sin_cos(k, x, &s, NULL);
    return s;
}
static V cos64(struct kir *k, V x) {
    V c;
    kmath_sin_cos(k, x, NULL, &c);
    return c;
}

// Functions that are made here, of one argument and of two; the remainder is libm's.
static V (*const made[KFN_COUNT])(struct kir *, V) = {[KFN_EXP] = exp64,
                                                      [KFN_EXPM1] = expm1_64,
                                                      [KFN_LOG] = log64,
                                                      [KFN_LOG1P] = log1p_64,
                                                      [KFN_TANH] = tanh64,
                                                      [KFN_LOGISTIC] = logistic64,
                                                      [KFN_SIN] = sin64,
                                                      [KFN_COS] = cos64,
                                                      [KFN_TAN] = kmath_tan_64,
                                                      [KFN_ERF] = kmath_erf_64,
                                                      [KFN_CBRT] = kmath_cbrt_64,
                                                      [KFN_ASIN] = kmath_asin_64,
                                                      [KFN_ACOS] = kmath_acos_64,
                                                      [KFN_SINH] = kmath_sinh_64,
                                                      [KFN_COSH] = kmath_cosh_64,
                                                      [KFN_ASINH] = kmath_asinh_64,
                                                      [KFN_ACOSH] = kmath_acosh_64,
                                                      [KFN_ATANH] = kmath_atanh_64};

struct kir_val *kmath_f64(struct kir *k, enum kfn fn, struct kir_val *x, struct kir_val *y) {
    if (made[fn]) return made[fn](k, x);
    switch (fn) {
    case KFN_POW:
        return kmath_pow_64(k, x, y);
    case KFN_ATAN2:
        return kmath_atan2_64(k, x, y);
    case KFN_REM:
        return kir_call(k, KLIBM_FMOD, x, y);
    default:
        return NULL;
    }
}
