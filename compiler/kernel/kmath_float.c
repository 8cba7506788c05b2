// SPDX-License-Identifier: Apache-2.0
// Transcendental functions as kir. f32: argument reduction and polynomials fitted for this file
// (weighted least squares on Chebyshev nodes, relative error below 2^-27); the functions whose
// reduction loses digits (sin, cos, tan, pow, cbrt, atan2) work in f64 and round once. f64:
// kmath_double.c.
// Infinities, NaN, signed zero and subnormals follow libm. The bounds in ULP are those of
// kmath_test.c, at either precision.
#include <math.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v) kir_f(k, t, (v))

static const double ROUND = 12582912; // 1.5 * 2^23: adding it rounds to an integer in the low bits
// x = n ln2 + r: r as f32 and n + plus in the low bits of an s32. |x| below 2^20.
static V reduce_ln2_bits(struct kir *k, V x, int plus, V *out_bits) {
    enum dtype t = DT_F32;
    V magic = C(ROUND + plus);
    V z = FMA(x, C(1.4426950408889634), magic), n = OP2(SUB, z, magic);
    V r = FMA(n, C(-0.693145751953125), x);
    r = FMA(n, C(-1.428606765330187e-06), r);
    *out_bits = kir_bits(k, DT_S32, z);
    return r;
}
static V reduce_ln2(struct kir *k, V x, V *out_n) {
    V bits, r = reduce_ln2_bits(k, x, 0, &bits);
    *out_n = OP2(SUB, bits, I32(0x4b400000));
    return r;
}
static V pow2i(struct kir *k, V n) {
    return kir_bits(k, DT_F32, OP2(SHL, OP2(ADD, n, I32(127)), I32(23)));
}
static const double exp_c[] = {0.50000000801518218,   0.16666666826323343,
                               0.041666263456547011,  0.0083332718097846314,
                               0.0013946497478840487, 0.00019914510851102852};
// n is split in two, since the result may be denormal: each gets the exponents' bias where it is
// rounded, so that its low bits are the exponent of a power of two. The first is 0.84 n, so that
// its exponent is 0 where the result is: a product that underflows costs Intel's CPUs more than all
// else here, and such lanes are as many as an attention's mask hides.
struct kir_val *kmath_exp_scaled(struct kir *k, struct kir_val *x, int by) {
    enum { BIAS = 127, EXPONENT = 23 };
    enum dtype t = DT_F32;
    V bits;
    x = SEL(CMP(GT, x, C(89 - by)), C(89 - by), x);
    x = SEL(CMP(LT, x, C(-105)), C(-105), x);
    V r = reduce_ln2_bits(k, x, by + 2 * BIAS, &bits);
    V p = OP2(ADD, C(1), FMA(OP2(MUL, r, r), POLY(r, exp_c), r));
    V most = kir_bits(k, DT_S32, FMA(x, C(0.84 * 1.4426950408889634), C(ROUND + BIAS))),
      first = kir_bits(k, DT_F32, OP2(SHL, most, I32(EXPONENT))),
      second = kir_bits(k, DT_F32, OP2(SHL, OP2(SUB, bits, most), I32(EXPONENT)));
    return OP2(MUL, OP2(MUL, p, first), second);
}
static V exp32(struct kir *k, V x) {
    return kmath_exp_scaled(k, x, 0);
}
static V expm1_32(struct kir *k, V x) {
    enum dtype t = DT_F32;
    V n, c = SEL(CMP(GT, x, C(89)), C(89), x);
    c = SEL(CMP(LT, c, C(-18)), C(-18), c);
    V r = reduce_ln2(k, c, &n);
    V p = FMA(OP2(MUL, r, r), POLY(r, exp_c), r);
    V s = pow2i(k, OP2(SUB, n, I32(1))), m = FMA(s, p, OP2(SUB, s, C(0.5)));
    V y = OP2(ADD, m, m);
    y = SEL(CMP(LT, OP1(ABS, x), C(1e-5)), FMA(OP2(MUL, x, C(0.5)), x, x), y);
    return SEL(CMP(EQ, x, C(0)), x, y);
}
static const double log_c[] = {0.33333312461656706,  -0.25000009034909387, 0.20002125807118015,
                               -0.16668025748549117, 0.14219454501940915,  -0.12405085572078697,
                               0.11888318957116063,  -0.11678363311415753, 0.067494453773328147};
static V log32(struct kir *k, V x) {
    enum dtype t = DT_F32;
    V tiny = CMP(LT, x, C(0x1p-126)), s = SEL(tiny, OP2(MUL, x, C(0x1p24)), x);
    V u = OP2(SUB, kir_bits(k, DT_S32, s), I32(0x3f3504f3)), e = OP2(SHR, u, I32(23));
    V m = kir_bits(k, DT_F32, OP2(ADD, OP2(AND, u, I32(0x7fffff)), I32(0x3f3504f3)));
    V f = OP2(SUB, m, C(1)), z = OP2(MUL, f, f);
    V ef = kir_cast(k, DT_F32, SEL(tiny, OP2(SUB, e, I32(24)), e));
    V y = OP2(MUL, OP2(MUL, f, z), POLY(f, log_c));
    y = FMA(ef, C(-2.12194440054690583e-4), y);
    y = FMA(z, C(-0.5), y);
    y = FMA(ef, C(0.693359375), OP2(ADD, f, y));
    y = SEL(CMP(EQ, x, C(0)), C(-INFINITY), y);
    y = SEL(CMP(LT, x, C(0)), C(NAN), y);
    y = SEL(CMP(EQ, x, C(INFINITY)), x, y);
    return SEL(CMP(NE, x, x), x, y);
}
static V log1p_32(struct kir *k, V x) {
    enum dtype t = DT_F32;
    V u = OP2(ADD, x, C(1)), l = log32(k, u);
    V c = OP2(DIV, OP2(SUB, x, OP2(SUB, u, C(1))), u);
    V fine = OP2(AND, CMP(GT, u, C(0)), CMP(LT, u, C(INFINITY)));
    V y = SEL(fine, OP2(ADD, l, c), l);
    return SEL(CMP(LT, OP1(ABS, x), C(1e-5)), FMA(OP2(MUL, x, C(-0.5)), x, x), y);
}
static V tanh32(struct kir *k, V x) {
    enum dtype t = DT_F32;
    V a = OP1(ABS, x), m = expm1_32(k, OP2(MUL, SEL(CMP(GT, a, C(10)), C(10), a), C(2)));
    V y = OP2(COPYSIGN, OP2(DIV, m, OP2(ADD, m, C(2))), x);
    return SEL(CMP(LT, a, C(1e-4)), x, y);
}
static V logistic32(struct kir *k, V x) {
    enum dtype t = DT_F32; // e^-|x| neither overflows nor loses the small results of x < 0
    V e = exp32(k, OP1(NEG, OP1(ABS, x)));
    return OP2(DIV, SEL(CMP(LT, x, C(0)), e, C(1)), OP2(ADD, C(1), e));
}
static const double erf_c[] = {0.1283791657265433,   -0.3761262582246202,  0.11283585124176804,
                               -0.02685381074711854, 0.005188325121855752, -0.0008010168437641049,
                               7.853769423634659e-05};
// 1 - erf(x) by t = FACTOR x - 1 - FACTOR, from 1 to where f32 is 1.
static const double erfc_c[] = {
    0.00043303806822917248, -0.003435690787773428,   0.012723711290345299,   -0.028882876283679113,
    0.044102279843389089,   -0.046089014583061458,   0.030784333010150801,   -0.0085441659640751663,
    -0.0065810410296488478, 0.0098417222903008049,   -0.0047281722981939375, -0.0014283728507500856,
    0.0022674227262577153,  -0.00011121487257525808, -0.00035197589252970604};
static V erf32(struct kir *k, V x) {
    enum dtype t = DT_F32;
    static const double FACTOR = 0.671875, MOST = 2 / 0.671875 + 1; // FACTOR is whole in f32
    V a = OP1(ABS, x), b = SEL(CMP(GT, a, C(MOST)), C(MOST), a);
    V small = FMA(POLY_PAIRS(OP2(MUL, x, x), erf_c), x, x);
    V rest = POLY(FMA(b, C(FACTOR), C(-1 - FACTOR)), erfc_c);
    V large = OP2(COPYSIGN, OP2(SUB, C(1), rest), x);
    return SEL(CMP(LT, a, C(1)), small, large);
}

// ---- through f64

static V wide(struct kir *k, V x) {
    return kir_cast(k, DT_F64, x);
}
static V exp64(struct kir *k, V x) { // for |x| < 700, about 1e-12; 0 at -709.1
    enum dtype t = DT_F64;
    static const double c[] = {1,        1,         1. / 2,     1. / 6,      1. / 24,     1. / 120,
                               1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800};
    V magic = C(6755399441055744.0), z = FMA(x, C(1.4426950408889634), magic),
      n = OP2(SUB, z, magic);
    V r = FMA(n, C(-1.9082149292705877e-10), FMA(n, C(-0.6931471803691238), x));
    V bits = OP2(SHL, OP2(ADD, kir_bits(k, DT_S64, z), I64(1023)), I64(52));
    return OP2(MUL, POLY_PAIRS(r, c), kir_bits(k, DT_F64, bits));
}
static V log64(struct kir *k, V x) { // for positive normal x, about 1e-13
    enum dtype t = DT_F64;
    static const double c[] = {2,       2. / 3,  2. / 5,  2. / 7, 2. / 9,
                               2. / 11, 2. / 13, 2. / 15, 2. / 17};
    V u = OP2(SUB, kir_bits(k, DT_S64, x), I64(INT64_C(0x3fe6a09e667f3bcd))),
      e = OP2(SHR, u, I64(52));
    V m = kir_bits(
        k, DT_F64,
        OP2(ADD, OP2(AND, u, I64(INT64_C(0xfffffffffffff))), I64(INT64_C(0x3fe6a09e667f3bcd))));
    V s = OP2(DIV, OP2(SUB, m, C(1)), OP2(ADD, m, C(1)));
    return FMA(kir_cast(k, DT_F64, e), C(0.6931471805599453),
               OP2(MUL, s, POLY_PAIRS(OP2(MUL, s, s), c)));
}
static V pow32(struct kir *k, V x, V y) {
    enum dtype t = DT_F32;
    V a = OP1(ABS, x), l = OP2(MUL, wide(k, y), log64(k, wide(k, a)));
    t = DT_F64;
    l = SEL(CMP(GT, l, C(200)), C(200), l);
    l = SEL(CMP(LT, l, C(-105)), C(-709.1), l); // 0 in f64 already, so that the cast is exact
    V r = kir_cast(k, DT_F32, exp64(k, l));
    t = DT_F32;
    V whole = CMP(EQ, OP1(FLOOR, y), y), half = OP2(MUL, y, C(0.5));
    V odd = OP2(AND, whole, CMP(NE, OP1(FLOOR, half), half)), up = CMP(GT, y, C(0));
    V a_inf = CMP(EQ, a, C(INFINITY)), y_inf = CMP(EQ, OP1(ABS, y), C(INFINITY));
    r = SEL(CMP(EQ, a, C(0)), SEL(up, C(0), C(INFINITY)), r);
    r = SEL(a_inf, SEL(up, C(INFINITY), C(0)), r);
    r = SEL(y_inf,
            SEL(CMP(EQ, a, C(1)), C(1),
                SEL(kir_op(k, K_XOR, CMP(GT, a, C(1)), up, NULL), C(0), C(INFINITY))),
            r);
    V negative = CMP(LT, OP2(COPYSIGN, C(1), x), C(0));
    r = SEL(OP2(AND, negative, odd), OP1(NEG, r), r);
    V bad = OP2(AND, OP2(AND, CMP(LT, x, C(0)), CMP(NE, a, C(INFINITY))),
                OP2(XOR, whole, kir_int(k, DT_PRED, 1)));
    r = SEL(bad, C(NAN), r);
    r = SEL(OP2(OR, CMP(NE, x, x), CMP(NE, y, y)), C(NAN), r);
    return SEL(OP2(OR, CMP(EQ, x, C(1)), CMP(EQ, y, C(0))), C(1), r);
}
static V cbrt32(struct kir *k, V x) {
    enum dtype t = DT_F64;
    V a = OP1(ABS, wide(k, x)), e = exp64(k, OP2(MUL, log64(k, a), C(1.0 / 3)));
    V r = kir_cast(k, DT_F32, OP2(COPYSIGN, e, wide(k, x)));
    t = DT_F32;
    V same = OP2(OR, CMP(EQ, x, C(0)), OP2(OR, CMP(NE, x, x), CMP(EQ, OP1(ABS, x), C(INFINITY))));
    return SEL(same, x, r);
}
// x/(2 pi) is a number of turns, of which only the fraction matters. The constant is four doubles;
// each product is split by an FMA into its rounded value and the rest, both exact, and whole turns
// are taken from each part for itself, which is exact too (the idea of Payne and Hanek, "Radian
// Reduction for Trigonometric Functions", 1983, without a table). Quarters of a turn, `out_n`, are
// taken away before the parts are summed: whenever what is left is small, all sums are exact.
static V part_of_turn(struct kir *k, V turns) {
    return OP2(SUB, turns, OP1(RINT, turns));
}
// |x| below 2^20 asks for two of the doubles: what the others add is below what f32 tells from 0.
static V quarter(struct kir *k, V x, V *out_n) {
    static const double c[] = {0.15915494309189535, -9.839338337591243e-18, -5.360718141446502e-34,
                               4.0267819632921097e-50};
    enum dtype t = DT_F64;
    V d = wide(k, x), part[5], rest = NULL, p0 = NULL, low0 = NULL;
    for (int i = 0; i < 3; i++) {
        V low, p = kir_two_product(k, d, C(c[i]), &low);
        if (i == 0) p0 = p, low0 = low;
        part[2 * i] = part_of_turn(k, p);
        if (i < 2)
            part[2 * i + 1] = part_of_turn(k, low);
        else
            rest = FMA(d, C(c[3]), low);
    }
    V about = part[0], magic = C(6755399441055744.0); // 1.5 * 2^52: adding it rounds
    for (int i = 1; i < 5; i++)
        about = OP2(ADD, about, part[i]);
    V z = FMA(about, C(4), magic), f = FMA(OP2(SUB, z, magic), C(-0.25), part[0]);
    for (int i = 1; i < 5; i++)
        f = OP2(ADD, f, part[i]);
    f = OP2(ADD, f, rest);

    V near = FMA(p0, C(4), magic), g = FMA(OP2(SUB, near, magic), C(-0.25), p0);
    g = OP2(ADD, g, FMA(d, C(c[1]), low0));
    V large = kir_cmp_rare(k, CMP_GE, OP1(ABS, d), C(0x1p20));
    *out_n = kir_bits(k, DT_S64, SEL(large, z, near)); // modulo 4
    return SEL(large, f, g);
}
// sin(2 pi u) for |u| <= 1/4, about 6e-14.
static V sin_turns(struct kir *k, V u) {
    static const double c[] = {6.2831853071791945, -41.34170223981848, 81.60524913341627,
                               -76.70584649402774, 42.05810283858391,  -15.081031675428914,
                               3.663464503001106};
    return OP2(MUL, u, POLY_PAIRS(OP2(MUL, u, u), c));
}
// f turns and n quarters: sin is sin f, cos f, -sin f, -cos f for n = 0..3; cos f = sin(1/4 - |f|).
static V trig32(struct kir *k, enum kfn fn, V x) {
    enum dtype t = DT_F64;
    V n, f = quarter(k, x, &n), cross = OP2(SUB, C(0.25), OP1(ABS, f)), y;
    V odd = CMP(NE, OP2(AND, n, I64(1)), I64(0));
    if (fn == KFN_TAN) {
        V s = sin_turns(k, f), c = sin_turns(k, cross);
        y = OP2(DIV, SEL(odd, OP1(NEG, c), s), SEL(odd, s, c));
    } else {
        if (fn == KFN_COS) n = OP2(ADD, n, I64(1));
        y = sin_turns(k, fn == KFN_COS ? SEL(odd, f, cross) : SEL(odd, cross, f));
        V sign = OP2(AND, OP2(SHL, n, I64(62)), I64(INT64_MIN));
        y = kir_bits(k, DT_F64, OP2(XOR, kir_bits(k, DT_S64, y), sign));
    }
    y = kir_cast(k, DT_F32, y);
    t = DT_F32;
    return fn == KFN_COS ? y : SEL(CMP(EQ, x, C(0)), x, y); // of infinities f is NaN
}
void kmath_sin_cos_narrow(struct kir *k, V x, V *out_sin, V *out_cos) {
    enum dtype t = DT_F64;
    V n, f = quarter(k, x, &n), cross = OP2(SUB, C(0.25), OP1(ABS, f));
    V odd = CMP(NE, OP2(AND, n, I64(1)), I64(0)), s = sin_turns(k, f), c = sin_turns(k, cross);
    V ys = SEL(odd, c, s), yc = SEL(odd, s, c);
    V less_s = CMP(GE, OP2(AND, n, I64(3)), I64(2)),
      less_c = CMP(GE, OP2(AND, OP2(ADD, n, I64(1)), I64(3)), I64(2));
    *out_sin = SEL(CMP(EQ, x, C(0)), x, SEL(less_s, OP1(NEG, ys), ys));
    *out_cos = SEL(less_c, OP1(NEG, yc), yc);
}
static const double atan_c[] = {
    -0.33333333328565518,  0.19999998541459119,  -0.14285640182677073,   0.1110962820552463,
    -0.090754226893088985, 0.075953083220675705, -0.062713232594457366,  0.047759219243856767,
    -0.030467528886331238, 0.014484127503663374, -0.0043940914574480197, 0.0006242809505022269};
static V atan2_32(struct kir *k, V y, V x) {
    enum dtype t = DT_F64;
    V a = OP1(ABS, wide(k, y)), b = OP1(ABS, wide(k, x)), swap = CMP(GT, a, b);
    V n = SEL(swap, b, a), d = SEL(swap, a, b), inf = C(INFINITY);
    V q = OP2(DIV, n, SEL(CMP(EQ, d, C(0)), C(1), d));
    q = SEL(OP2(AND, CMP(EQ, a, inf), CMP(EQ, b, inf)), C(1), q);
    V z = OP2(MUL, q, q), r = FMA(OP2(MUL, q, z), POLY_PAIRS(z, atan_c), q);
    r = SEL(swap, OP2(SUB, C(1.5707963267948966), r), r);
    V left = CMP(LT, OP2(COPYSIGN, C(1), wide(k, x)), C(0));
    r = SEL(left, OP2(SUB, C(3.141592653589793), r), r);
    V res = kir_cast(k, DT_F32, OP2(COPYSIGN, r, wide(k, y)));
    t = DT_F32;
    return SEL(OP2(OR, CMP(NE, x, x), CMP(NE, y, y)), C(NAN), res);
}

// How many turns rem32 takes and how many of a quotient's lowest bits it leaves out, by the
// divisor: the fewer bits y has, the more may its factor have; the larger y, the smaller are the
// quotients.
static void rem32_turns(const struct kir_val *y, int *out_turns, int *out_dropped) {
    enum { BITS = 24, KEPT = 52, LEAST = 2, TOP = 128, ALL = 278 };
    int bits = ALL, own = BITS;
    if (y->op == K_CONST && y->imm_f != 0 && fabs(y->imm_f) < INFINITY) {
        // |y| < 2^bits
        uint32_t m = (uint32_t)ldexp(frexp(fabs(y->imm_f), &bits), BITS);
        bits = TOP + 1 - bits;
        own = BITS - __builtin_ctz(m);
    }
    *out_dropped = own < LEAST ? LEAST : own;
    *out_turns = bits > 0 ? (bits + KEPT - *out_dropped - 1) / (KEPT - *out_dropped) : 1;
}
// |x| mod |y| in f64, where both are exact: so few bits of the quotient a turn that its product
// with y is exact and what is left has no more bits than x. A quotient that is one too large leaves
// less than nothing, and the next one is -1. The quotients of f32 end below 2^278.
static V rem32(struct kir *k, V x, V y) {
    enum dtype t = DT_F64;
    int turns, dropped;
    rem32_turns(y, &turns, &dropped);
    V a = OP1(ABS, wide(k, x)), b = OP1(ABS, wide(k, y)), inf = C(INFINITY);
    V over = OP2(DIV, C(1), b), r = a, minus = OP1(NEG, b);
    for (int i = 0; i < turns; i++) {
        V q = OP2(AND, kir_bits(k, DT_S64, OP2(MUL, r, over)), I64(-(INT64_C(1) << dropped)));
        r = FMA(OP1(FLOOR, kir_bits(k, DT_F64, q)), minus, r);
    }
    r = SEL(CMP(LT, r, C(0)), OP2(ADD, r, b), r);
    r = SEL(CMP(GE, r, b), OP2(SUB, r, b), r);
    r = SEL(CMP(EQ, b, inf), a, r);
    V bad =
        OP2(OR, OP2(OR, CMP(EQ, a, inf), CMP(EQ, b, C(0))), OP2(OR, CMP(NE, a, a), CMP(NE, b, b)));
    return kir_cast(k, DT_F32, OP2(COPYSIGN, SEL(bad, C(NAN), r), wide(k, x)));
}

// Functions of one argument that are made of f32 alone.
static V (*const made[KFN_COUNT])(struct kir *, V) = {
    [KFN_EXP] = exp32,   [KFN_EXPM1] = expm1_32,      [KFN_LOG] = log32, [KFN_LOG1P] = log1p_32,
    [KFN_TANH] = tanh32, [KFN_LOGISTIC] = logistic32, [KFN_ERF] = erf32};

struct kir_val *kmath_f32(struct kir *k, enum kfn fn, struct kir_val *x, struct kir_val *y) {
    if (made[fn]) return made[fn](k, x);
    if (k->no_f64 || k->no_fma || k->no_libm) return kmath_narrow(k, fn, x, y);
    switch (fn) {
    case KFN_CBRT:
        return cbrt32(k, x);
    case KFN_POW:
        return pow32(k, x, y);
    case KFN_SIN:
    case KFN_COS:
    case KFN_TAN:
        return trig32(k, fn, x);
    case KFN_ATAN2:
        return atan2_32(k, x, y);
    case KFN_REM:
        return rem32(k, x, y);
    default: { // rare ones: rounded once
        V r = kmath_f64(k, fn, wide(k, x), y ? wide(k, y) : NULL);
        return r ? kir_cast(k, DT_F32, r) : NULL;
    }
    }
}
