// SPDX-License-Identifier: Apache-2.0
// Functions of f64 as kir: tan, atan2, asin, acos, erf; hyperbolic ones and their inverses, of
// exponentials and logarithms that keep small values (e^x - 1, log(1 + x)). Polynomials are
// Chebyshev interpolations whose error is below a third of a unit in the last place. Results are
// within the bounds of kmath_double_test; infinities, NaN and signed zeros follow libm.
#include <math.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v) kir_f(k, DT_F64, (v))

V kmath_tan_64(struct kir *k, V x) {
    V s, c;
    kmath_sin_cos(k, x, &s, &c);
    return SEL(CMP(EQ, x, C(0)), x, OP2(DIV, s, c));
}

// The smaller by the larger of |x| and |y|: where that is above tan(pi/8), 45 degrees are taken
// away before the division, atan(n/d) = pi/4 + atan((n - d)/(n + d)).
V kmath_atan2_64(struct kir *k, V y, V x) {
    static const double c[] = {
        -0.3333333333333333322,  0.1999999999999980433,   -0.1428571428565977776,
        0.1111111110515058789,   -0.09090908753259112942, 0.07692296368042297118,
        -0.06666424760200520142, 0.05878927554473806765,  -0.05230443640686947707,
        0.04551544734022161652,  -0.03456931506332608981, 0.01628437505004339444};
    V a = OP1(ABS, y), b = OP1(ABS, x), swap = CMP(GT, a, b), inf = C(INFINITY);
    V n = SEL(swap, b, a), d = SEL(swap, a, b);
    V big = CMP(GT, d, C(0x1p1000)), tiny = CMP(LT, d, C(0x1p-500));
    V s = SEL(big, C(0x1p-600), SEL(tiny, C(0x1p600), C(1)));
    V d_inf = CMP(EQ, d, inf), both = CMP(EQ, n, inf);
    n = SEL(d_inf, SEL(both, C(1), C(0)), OP2(MUL, n, s));
    d = SEL(OP2(OR, d_inf, CMP(EQ, d, C(0))), C(1), OP2(MUL, d, s));

    V high = CMP(GT, n, OP2(MUL, d, C(0.41421356237309503)));
    V t = OP2(DIV, SEL(high, OP2(SUB, n, d), n), SEL(high, OP2(ADD, n, d), d));
    V z = OP2(MUL, t, t), low = SEL(high, C(3.061616997868383e-17), C(0));
    V r = OP2(ADD, t, FMA(OP2(MUL, t, z), POLY(z, c), low));
    r = SEL(high, OP2(ADD, C(0.7853981633974483), r), r);
    r = SEL(swap, OP2(SUB, C(1.5707963267948966), OP2(SUB, r, C(6.123233995736766e-17))), r);
    V left = CMP(LT, OP2(COPYSIGN, C(1), x), C(0));
    r = SEL(left, OP2(SUB, C(3.141592653589793), OP2(SUB, r, C(1.2246467991473532e-16))), r);
    return SEL(OP2(OR, CMP(NE, x, x), CMP(NE, y, y)), C(NAN), OP2(COPYSIGN, r, y));
}
// (1 - x)(1 + x), exact but for one rounding where x is near 1; negative where |x| is above.
static V other_leg(struct kir *k, V x) {
    return OP1(SQRT, OP2(MUL, OP2(SUB, C(1), x), OP2(ADD, C(1), x)));
}
V kmath_asin_64(struct kir *k, V x) {
    return kmath_atan2_64(k, x, other_leg(k, x));
}
V kmath_acos_64(struct kir *k, V x) {
    return kmath_atan2_64(k, other_leg(k, x), x);
}

// Below 1 a polynomial of x^2; above, erfc(x) = e^(-x^2) R(1/(x + 2)), which is 0 from 6 on.
V kmath_erf_64(struct kir *k, V x) {
    static const double c[] = {
        -0.3761263890318375246,     0.1128379167095512544,     -0.02686617064513108302,
        0.005223977625438468971,    -0.0008548327023024696184, 0.0001205533295270043946,
        -0.00001492564908236478483, 1.646207679479343336e-6,   -1.636508559263206227e-7,
        1.479661890129041672e-8,    -1.219035624032117001e-9,  8.800680090460203028e-11,
        -4.374621450325064037e-12};
    static const double rest[] = {
        0.2214295402299318065,     0.1618935680410249828,     0.03856057042518240663,
        0.005588816281839573584,   0.0001971391777283486946,  -0.0000807922042624364513,
        -7.340517941415228276e-6,  1.97956181585397738e-6,    1.634993861464746728e-7,
        -7.005318546704507298e-8,  -5.886316438866986411e-10, 2.624002410316086444e-9,
        -2.686673727909544878e-10, -7.360635504868663342e-11, 2.211654530754847031e-11,
        -1.391934782638739735e-13, -9.321424201169892246e-13, 1.449564311341957891e-13};
    V a = OP1(ABS, x), z = OP2(MUL, x, x), b = SEL(CMP(LT, a, C(6)), a, C(6));
    V small = OP2(MUL, x, FMA(z, POLY(z, c), C(1.1283791670955126)));
    V u = FMA(OP2(DIV, C(1), OP2(ADD, b, C(2))), C(9.6), C(-2.2));
    V e = kmath_f64(k, KFN_EXP, OP1(NEG, OP2(MUL, b, b)), NULL);
    V large = OP2(COPYSIGN, OP2(SUB, C(1), OP2(MUL, e, POLY(u, rest))), x);
    return SEL(CMP(LT, a, C(1)), small, SEL(CMP(NE, x, x), x, large));
}

// ---- hyperbolic functions

static V fn(struct kir *k, enum kfn f, V x) {
    return kmath_f64(k, f, x, NULL);
}

// e^a / 2, which is finite a little longer than e^a.
static V half_exp(struct kir *k, V a) {
    struct kmath_exp e = kmath_exp_parts(k, a, NULL);
    return OP2(MUL, OP2(MUL, e.p, e.low), OP2(MUL, e.high, C(0.5)));
}
V kmath_sinh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), m = fn(k, KFN_EXPM1, SEL(CMP(GT, a, C(22)), C(22), a));
    V small = OP2(MUL, OP2(ADD, m, OP2(DIV, m, OP2(ADD, m, C(1)))), C(0.5));
    V r = OP2(COPYSIGN, SEL(CMP(GT, a, C(22)), half_exp(k, a), small), x);
    return SEL(CMP(NE, x, x), x, r);
}
V kmath_cosh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), h = half_exp(k, a);
    V r = SEL(CMP(GT, a, C(22)), h, OP2(ADD, h, OP2(DIV, C(0.25), h)));
    return SEL(CMP(NE, x, x), x, r);
}
// log(2 a) for what is so large that the rest is rounded off.
static V log_twice(struct kir *k, V a) {
    return OP2(ADD, fn(k, KFN_LOG, a), C(0.6931471805599453));
}
V kmath_asinh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), b = SEL(CMP(GT, a, C(0x1p28)), C(1), a), z = OP2(MUL, b, b);
    V root = OP1(SQRT, OP2(ADD, z, C(1)));
    V y = fn(k, KFN_LOG1P, OP2(ADD, b, OP2(DIV, z, OP2(ADD, root, C(1)))));
    y = OP2(COPYSIGN, SEL(CMP(GT, a, C(0x1p28)), log_twice(k, a), y), x);
    return SEL(CMP(NE, x, x), x, y);
}
V kmath_acosh_64(struct kir *k, V x) {
    V far = CMP(GT, x, C(0x1p28)), t = OP2(SUB, SEL(far, C(1), x), C(1));
    V y = fn(k, KFN_LOG1P, OP2(ADD, t, OP1(SQRT, FMA(t, t, OP2(ADD, t, t)))));
    y = SEL(far, log_twice(k, x), y);
    return SEL(CMP(GE, x, C(1)), y, C(NAN));
}
V kmath_atanh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), q = OP2(DIV, OP2(ADD, a, a), OP2(SUB, C(1), a));
    V y = OP2(COPYSIGN, OP2(MUL, fn(k, KFN_LOG1P, q), C(0.5)), x);
    return SEL(CMP(GT, a, C(1)), C(NAN), SEL(CMP(NE, x, x), x, y));
}
