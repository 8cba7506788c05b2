// SPDX-License-Identifier: Apache-2.0
// Functions of f32 without f64, s64, fma or libm, for targets that have none of these (WebAssembly
// has no fma, GLSL ES and WGSL nothing wider than f32). What loses digits is kept as a sum of two
// f32 ("hi" and "lo"; Dekker 1971), or as integers.
//   sin, cos, tan  x/(pi/2) by the bits of 2/pi that x's exponent asks for, in u32, whatever x is
//                  (Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983)
//   pow            y log2 x in two f32, log2 by the series of 2 atanh((m - c) / (m + c))
//   cbrt           a Halley step, then a Newton step whose residue is exact
//   remainder      long division of the mantissas, 8 bits a turn: exact
// Infinities, NaN, signed zero and subnormals follow libm; bounds in ULP: kernel/README.md.
#include <math.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v)   kir_f(k, DT_F32, (v))
#define U32(v) kir_int(k, DT_U32, (int64_t)(v))

struct two { // hi + lo, |lo| below half a unit of hi
    V hi, lo;
};
static struct two sum_of(struct kir *k, V x, V y) { // |x| >= |y|, or x is 0
    V s = OP2(ADD, x, y);
    return (struct two){s, OP2(SUB, y, OP2(SUB, s, x))};
}
static struct two any_sum(struct kir *k, V x, V y) {
    V lo, hi = kmath_two_sum(k, x, y, &lo);
    return (struct two){hi, lo};
}
static struct two product_of(struct kir *k, V x, V y) {
    V lo, hi = kir_two_product(k, x, y, &lo);
    return (struct two){hi, lo};
}
static V bits_of(struct kir *k, V x) {
    return kir_bits(k, DT_U32, x);
}
static V pow2i(struct kir *k, V n) { // n: s32, of a normal number
    return kir_bits(k, DT_F32, OP2(SHL, OP2(ADD, n, I32(127)), I32(23)));
}
// x 2^n in two steps, so that subnormal results are rounded once.
static V scaled(struct kir *k, V x, V n) {
    V h = OP2(SHR, n, I32(1));
    return OP2(MUL, OP2(MUL, x, pow2i(k, h)), pow2i(k, OP2(SUB, n, h)));
}
static V either(struct kir *k, V a, V b) {
    return OP2(OR, a, b);
}
static V is_nan(struct kir *k, V x) {
    return CMP(NE, x, x);
}

// ---- sine, cosine, tangent

// The upper half of x * y, of u32.
static V high(struct kir *k, V x, V y) {
    V mask = U32(0xffff), n = U32(16);
    V a = OP2(SHR, x, n), b = OP2(AND, x, mask), c = OP2(SHR, y, n), d = OP2(AND, y, mask);
    V mid = OP2(ADD, OP2(MUL, a, d), OP2(SHR, OP2(MUL, b, d), n));
    V other = OP2(ADD, OP2(MUL, b, c), OP2(AND, mid, mask));
    return OP2(ADD, OP2(ADD, OP2(MUL, a, c), OP2(SHR, mid, n)), OP2(SHR, other, n));
}
// 96 bits of 2/pi times 2^e modulo 4, for e from -24 to 105: the top bit weighs 2. The words are
// chosen by halves, so that no table is read.
static void window(struct kir *k, V e, V *out) {
    enum { WORDS = 8 };
    static const uint32_t bits[WORDS] = {0,          0x28BE60DB, 0x9391054A, 0x7F09D5F4,
                                         0x7D4D3770, 0x36D8A566, 0x4F10E410, 0x7F9458EA};
    V w[WORDS], at = OP2(ADD, e, I32(32)), shift = kir_bits(k, DT_U32, OP2(AND, at, I32(31)));
    for (int i = 0; i < WORDS; i++)
        w[i] = U32(bits[i]);
    for (int by = 4; by > 0; by /= 2) {
        V skip = CMP(NE, OP2(AND, at, I32(by * 32)), I32(0));
        for (int i = 0; i < 3 + by; i++)
            w[i] = SEL(skip, i + by < WORDS ? w[i + by] : U32(0), w[i]);
    }
    V none = CMP(EQ, shift, U32(0)), back = SEL(none, U32(0), OP2(SUB, U32(32), shift));
    for (int i = 0; i < 3; i++)
        out[i] = OP2(OR, OP2(SHL, w[i], shift), SEL(none, U32(0), OP2(SHR, w[i + 1], back)));
}
// Signed fixed point hi * 2^-30 + lo * 2^-62 as floats: cut where parts are exact, at 18, 24 and 20
// bits.
static struct two from_fixed(struct kir *k, V hi, V lo) {
    V top = OP2(AND, hi, U32(0xfffff000)), mid = OP2(AND, hi, U32(0xfff)), low;
    mid = OP2(OR, OP2(SHL, mid, U32(12)), OP2(SHR, lo, U32(20)));
    top = OP2(MUL, kir_cast(k, DT_F32, kir_bits(k, DT_S32, top)), C(0x1p-30));
    mid = OP2(MUL, kir_cast(k, DT_F32, kir_bits(k, DT_S32, mid)), C(0x1p-42));
    low = kir_cast(k, DT_F32, kir_bits(k, DT_S32, OP2(AND, lo, U32(0xfffff))));
    struct two r = any_sum(k, top, mid);
    return any_sum(k, r.hi, OP2(ADD, r.lo, OP2(MUL, low, C(0x1p-62))));
}
// Whole quarter turns of a >= 0 modulo 4, the nearest, and the rest in radians.
static struct two quarters(struct kir *k, V a, V *out_n) {
    V u = bits_of(k, a), m = OP2(OR, OP2(AND, u, U32(0x7fffff)), U32(0x800000)), w[3];
    V e = OP2(SUB, kir_bits(k, DT_S32, OP2(SHR, u, U32(23))), I32(150));
    window(k, SEL(CMP(LT, e, I32(-24)), I32(-24), e), w);

    V below = high(k, m, w[2]), lo = OP2(ADD, OP2(MUL, m, w[1]), below);
    V carry = kir_cast(k, DT_U32, CMP(LT, lo, below));
    V hi = OP2(ADD, OP2(ADD, OP2(MUL, m, w[0]), high(k, m, w[1])), carry);
    V n = OP2(SHR, OP2(ADD, hi, U32(0x20000000)), U32(30));
    struct two f = from_fixed(k, OP2(SUB, hi, OP2(SHL, n, U32(30))), lo);
    struct two r = product_of(k, f.hi, C(1.57079637));
    r.lo = OP2(ADD, r.lo, FMA(f.hi, C(-4.37113883e-08), OP2(MUL, f.lo, C(1.57079637))));

    V near = CMP(LT, a, C(0.785398163)); // nothing to take away
    *out_n = kir_bits(k, DT_S32, SEL(near, U32(0), n));
    return (struct two){SEL(near, a, r.hi), SEL(near, C(0), r.lo)};
}
static V sin_near(struct kir *k, struct two r) {
    static const double c[] = {-0.166666666, 0.00833332914, -0.00019839257, 2.71756788e-06};
    V z = OP2(MUL, r.hi, r.hi);
    return OP2(ADD, r.hi, FMA(OP2(MUL, r.hi, z), POLY(z, c), r.lo));
}
static V cos_near(struct kir *k, struct two r) {
    static const double c[] = {0.0416666457, -0.00138873063, 2.44312339e-05};
    V z = OP2(MUL, r.hi, r.hi), half = OP2(MUL, z, C(0.5)), w = OP2(SUB, C(1), half);
    V rest = OP2(SUB, OP2(SUB, OP2(SUB, C(1), w), half), OP2(MUL, r.hi, r.lo));
    return OP2(ADD, w, FMA(OP2(MUL, z, z), POLY(z, c), rest));
}
static V trig(struct kir *k, enum kfn fn, V x) {
    V n, a = OP1(ABS, x), y;
    struct two r = quarters(k, a, &n);
    V s = sin_near(k, r), c = cos_near(k, r);
    if (fn == KFN_COS) n = OP2(ADD, n, I32(1));
    V odd = CMP(NE, OP2(AND, n, I32(1)), I32(0));
    if (fn == KFN_TAN) {
        y = OP2(DIV, SEL(odd, OP1(NEG, c), s), SEL(odd, s, c));
    } else {
        V sign = OP2(SHL, OP2(AND, kir_bits(k, DT_U32, n), U32(2)), U32(30));
        y = kir_bits(k, DT_F32, OP2(XOR, bits_of(k, SEL(odd, c, s)), sign));
    }
    if (fn != KFN_COS)
        y = kir_bits(k, DT_F32, OP2(XOR, bits_of(k, y), OP2(AND, bits_of(k, x), U32(1u << 31))));
    return SEL(CMP(LT, a, C(INFINITY)), y, C(NAN));
}

// ---- powers and roots

// log2 a, a >= 0 and finite; not of 0.
static struct two log2_of(struct kir *k, V a) {
    static const double c[] = {0.600000097, 0.428527433, 0.339517772};
    const int64_t first = 0x3f5105ec; // sqrt(2/3): c is 1 below sqrt(3/2), else 3/2
    V tiny = CMP(LT, a, C(0x1p-126));
    V u = OP2(SUB, kir_bits(k, DT_S32, SEL(tiny, OP2(MUL, a, C(0x1p24)), a)), I32(first));
    V e = kir_cast(k, DT_F32, OP2(SUB, OP2(SHR, u, I32(23)), SEL(tiny, I32(24), I32(0))));
    V m = kir_bits(k, DT_F32, OP2(ADD, OP2(AND, u, I32(0x7fffff)), I32(first)));
    V more = CMP(GT, m, C(1.22474487)), base = SEL(more, C(1.5), C(1));

    V f = OP2(SUB, m, base), g = OP2(ADD, m, base), g_lo = OP2(SUB, m, OP2(SUB, g, base));
    V s = OP2(DIV, f, g);
    struct two p = product_of(k, s, g);
    V rest = OP2(SUB, OP2(SUB, OP2(SUB, f, p.hi), p.lo), OP2(MUL, s, g_lo));
    V s_lo = OP2(DIV, rest, g);
    struct two z = product_of(k, s, s), v;
    V r = OP2(MUL, OP2(MUL, z.hi, z.hi), POLY(z.hi, c));
    v = sum_of(k, C(3), z.hi);
    v.lo = OP2(ADD, v.lo, OP2(ADD, r, FMA(OP2(ADD, s, s), s_lo, z.lo)));

    p = product_of(k, s, v.hi); // 3/2 log(m / base) = s (3 + s^2 + ...)
    p.lo = OP2(ADD, p.lo, FMA(s, v.lo, OP2(MUL, s_lo, v.hi)));
    p = sum_of(k, p.hi, p.lo);
    struct two l = product_of(k, p.hi, C(0.961796701));
    l.lo = OP2(ADD, l.lo, FMA(p.hi, C(-7.02846181e-09), OP2(MUL, p.lo, C(0.961796701))));
    struct two t = any_sum(k, SEL(more, C(0.584962487), C(0)), l.hi), all = any_sum(k, e, t.hi);
    V low = OP2(ADD, OP2(ADD, t.lo, l.lo), SEL(more, C(1.35003919e-08), C(0)));
    return any_sum(k, all.hi, OP2(ADD, all.lo, low));
}
// 2^(x.hi + x.lo)
static V exp2_of(struct kir *k, struct two x) {
    static const double c[] = {0.50000001, 0.166665188, 0.0416662059, 0.00836888841, 0.00139504807};
    V far = CMP(GT, OP1(ABS, x.hi), C(160)),
      n = OP1(RINT, SEL(far, OP2(COPYSIGN, C(160), x.hi), x.hi));
    V hi = SEL(far, C(0), OP2(SUB, x.hi, n));
    struct two f = any_sum(k, hi, SEL(far, C(0), x.lo)), t = product_of(k, f.hi, C(0.693147182));
    t.lo = OP2(ADD, t.lo, FMA(f.hi, C(-1.90465421e-09), OP2(MUL, f.lo, C(0.693147182))));
    V rest = FMA(OP2(MUL, t.hi, t.hi), POLY(t.hi, c), t.lo);
    V y = OP2(ADD, C(1), OP2(ADD, t.hi, rest));
    return scaled(k, y, kir_cast(k, DT_S32, n));
}
static V power(struct kir *k, V x, V y) {
    V a = OP1(ABS, x), big = CMP(GT, OP1(ABS, y), C(0x1p60));
    struct two l = log2_of(k, a);
    V by = SEL(big, OP2(COPYSIGN, C(0x1p60), y), y); // enough for any a but 1
    struct two p = product_of(k, by, l.hi);
    p.lo = FMA(by, l.lo, p.lo);
    V r = exp2_of(k, any_sum(k, p.hi, p.lo));

    V whole = CMP(EQ, OP1(FLOOR, y), y), half = OP2(MUL, y, C(0.5));
    V odd = OP2(AND, whole, CMP(NE, OP1(FLOOR, half), half)), up = CMP(GT, y, C(0));
    V y_inf = CMP(EQ, OP1(ABS, y), C(INFINITY)), wide = CMP(EQ, a, C(INFINITY));
    r = SEL(CMP(EQ, a, C(0)), SEL(up, C(0), C(INFINITY)), r);
    r = SEL(wide, SEL(up, C(INFINITY), C(0)), r);
    V grows = OP2(XOR, CMP(GT, a, C(1)), up);
    r = SEL(y_inf, SEL(CMP(EQ, a, C(1)), C(1), SEL(grows, C(0), C(INFINITY))), r);
    V negative = CMP(LT, OP2(COPYSIGN, C(1), x), C(0));
    r = SEL(OP2(AND, negative, odd), OP1(NEG, r), r);
    V bad = OP2(AND, OP2(AND, CMP(LT, x, C(0)), CMP(NE, a, C(INFINITY))),
                OP2(XOR, whole, kir_int(k, DT_PRED, 1)));
    r = SEL(either(k, bad, either(k, is_nan(k, x), is_nan(k, y))), C(NAN), r);
    return SEL(either(k, CMP(EQ, x, C(1)), CMP(EQ, y, C(0))), C(1), r);
}
// |x| = m 2^(3q), m from 1 to 8.
static V cube_root(struct kir *k, V x) {
    static const double c[] = {0.681704678, 0.364503348, -0.0433027631, 0.00231262674};
    V a = OP1(ABS, x), tiny = CMP(LT, a, C(0x1p-126));
    V u = kir_bits(k, DT_S32, SEL(tiny, OP2(MUL, a, C(0x1p24)), a));
    V e = OP2(ADD, OP2(SHR, u, I32(23)), I32(384 - 127)); // above 0, and 384 = 3 * 128
    V q = OP2(SUB, kir_bits(k, DT_S32, OP2(DIV, kir_bits(k, DT_U32, e), U32(3))), I32(128));
    V m = kir_bits(k, DT_F32, OP2(SUB, u, OP2(SHL, OP2(MUL, q, I32(3)), I32(23))));

    V t = POLY(m, c), cube = OP2(MUL, OP2(MUL, t, t), t);
    t = OP2(DIV, OP2(MUL, t, OP2(ADD, cube, OP2(ADD, m, m))), OP2(ADD, OP2(ADD, cube, cube), m));
    struct two square = product_of(k, t, t), p = product_of(k, square.hi, t);
    V rest = OP2(SUB, OP2(SUB, m, p.hi), FMA(square.lo, t, p.lo));
    t = OP2(ADD, t, OP2(DIV, rest, OP2(MUL, square.hi, C(3))));
    q = OP2(SUB, q, SEL(tiny, I32(8), I32(0)));
    t = OP2(COPYSIGN, OP2(MUL, t, pow2i(k, q)), x);
    V same = either(k, CMP(EQ, x, C(0)), either(k, is_nan(k, x), CMP(EQ, a, C(INFINITY))));
    return SEL(same, x, t);
}

// ---- remainder

struct digits { // v = m 2^(e - 150), m of 24 bits
    V m, e;
};
static struct digits digits_of(struct kir *k, V v) {
    V tiny = CMP(LT, v, C(0x1p-126)), u = bits_of(k, SEL(tiny, OP2(MUL, v, C(0x1p24)), v));
    return (struct digits){
        OP2(OR, OP2(AND, u, U32(0x7fffff)), U32(0x800000)),
        OP2(SUB, kir_bits(k, DT_S32, OP2(SHR, u, U32(23))), SEL(tiny, I32(24), I32(0)))};
}
static V remainder_of(struct kir *k, V x, V y) {
    enum { STEP = 8, TURNS = (254 + 24 + STEP) / STEP };
    V a = OP1(ABS, x), b = OP1(ABS, y);
    struct digits p = digits_of(k, a), q = digits_of(k, b);
    V far = OP2(SUB, p.e, q.e), r = OP2(REM, p.m, q.m);
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, TURNS), TURNS, &r, 1);
    V left = OP2(SUB, far, OP2(MUL, kir_cast(k, DT_S32, l->var), I32(STEP)));
    left = SEL(CMP(LT, left, I32(0)), I32(0), left);
    left = SEL(CMP(GT, left, I32(STEP)), I32(STEP), left);
    r = OP2(REM, OP2(SHL, l->carry[0], kir_bits(k, DT_U32, left)), q.m);
    kir_end(k, l, &r);
    r = kir_cast(k, DT_F32, kir_bits(k, DT_S32, l->result[0]));
    r = OP2(COPYSIGN, scaled(k, r, OP2(SUB, q.e, I32(150))), x);

    r = SEL(either(k, CMP(LT, a, b), CMP(EQ, a, C(0))), x, r);
    V bad = either(k, CMP(EQ, b, C(0)), CMP(EQ, a, C(INFINITY)));
    return SEL(either(k, bad, either(k, is_nan(k, x), is_nan(k, y))), C(NAN), r);
}

// ---- inverse and hyperbolic functions

// asin x for |x| <= 1/2, as x + x z R(z).
static V asin_rest(struct kir *k, V x) {
    static const double c[] = {0.166666599,  0.0750051091, 0.0445157217,
                               0.0318175972, 0.0144026653, 0.037565114};
    V z = OP2(MUL, x, x);
    return OP2(MUL, OP2(MUL, x, z), POLY(z, c));
}
static V arc(struct kir *k, bool cosine, V x) {
    V a = OP1(ABS, x), far = CMP(GT, a, C(0.5)), less = OP2(SUB, C(1), a);
    V s = SEL(far, OP1(SQRT, OP2(MUL, less, C(0.5))), a), r = asin_rest(k, s);
    V up = C(1.57079637), lo = C(-4.37113883e-08), back = OP2(ADD, s, r);
    if (!cosine) { // pi/2 - 2 asin s
        V y = OP2(SUB, up, OP2(SUB, OP2(ADD, back, back), lo));
        return OP2(COPYSIGN, SEL(far, y, back), x);
    }
    V signed_back = OP2(COPYSIGN, back, x), twice = OP2(ADD, back, back);
    V near = OP2(SUB, up, OP2(SUB, signed_back, lo));
    V left = OP2(SUB, C(3.14159274), OP2(ADD, twice, C(8.74227766e-08)));
    return SEL(far, SEL(CMP(LT, x, C(0)), left, twice), near);
}
static V arc_tangent(struct kir *k, V y, V x) {
    static const double c[] = {-0.333332991,  0.19998548,    -0.142642383,
                               0.109521679,   -0.0840339807, 0.0579567001,
                               -0.0311769576, 0.0109141302,  -0.00179351572};
    V a = OP1(ABS, y), b = OP1(ABS, x), swap = CMP(GT, a, b), n = SEL(swap, b, a);
    V d = SEL(swap, a, b), inf = C(INFINITY);
    V q = OP2(DIV, n, SEL(CMP(EQ, d, C(0)), C(1), d));
    q = SEL(OP2(AND, CMP(EQ, a, inf), CMP(EQ, b, inf)), C(1), q);
    V z = OP2(MUL, q, q), r = FMA(OP2(MUL, q, z), POLY(z, c), q);
    r = SEL(swap, OP2(SUB, C(1.57079637), OP2(ADD, r, C(4.37113883e-08))), r);
    V left = CMP(LT, OP2(COPYSIGN, C(1), x), C(0));
    r = SEL(left, OP2(SUB, C(3.14159274), OP2(ADD, r, C(8.74227766e-08))), r);
    return SEL(either(k, is_nan(k, x), is_nan(k, y)), C(NAN), OP2(COPYSIGN, r, y));
}
static V hyperbolic(struct kir *k, bool cosine, V x) {
    V a = OP1(ABS, x), h = kmath_exp_scaled(k, a, -1), back = OP2(DIV, C(0.25), h);
    if (cosine) return SEL(is_nan(k, x), x, OP2(ADD, h, back));
    V m = kmath_f32(k, KFN_EXPM1, a, NULL);
    V near = OP2(MUL, C(0.5), OP2(ADD, m, OP2(DIV, m, OP2(ADD, m, C(1)))));
    return OP2(COPYSIGN, SEL(CMP(LT, a, C(9)), near, OP2(SUB, h, back)), x);
}
static V area_sine(struct kir *k, V x) {
    V a = OP1(ABS, x), far = CMP(GT, a, C(0x1p12)), s = SEL(far, C(1), a), z = OP2(MUL, s, s);
    V root = OP1(SQRT, OP2(ADD, z, C(1)));
    V near = kmath_f32(k, KFN_LOG1P, OP2(ADD, s, OP2(DIV, z, OP2(ADD, C(1), root))), NULL);
    V wide = OP2(ADD, kmath_f32(k, KFN_LOG, a, NULL), C(0.693147182));
    return OP2(COPYSIGN, SEL(far, wide, SEL(CMP(LT, a, C(1e-4)), a, near)), x);
}
static V area_cosine(struct kir *k, V x) {
    V far = CMP(GT, x, C(0x1p12)), t = OP2(SUB, SEL(far, C(2), x), C(1));
    V root = OP1(SQRT, FMA(t, t, OP2(ADD, t, t)));
    V near = kmath_f32(k, KFN_LOG1P, OP2(ADD, t, root), NULL);
    return SEL(far, OP2(ADD, kmath_f32(k, KFN_LOG, x, NULL), C(0.693147182)), near);
}
static V area_tangent(struct kir *k, V x) {
    V a = OP1(ABS, x), twice = OP2(ADD, a, a);
    V l = kmath_f32(k, KFN_LOG1P, OP2(DIV, twice, OP2(SUB, C(1), a)), NULL);
    return OP2(COPYSIGN, SEL(CMP(LT, a, C(1e-4)), a, OP2(MUL, l, C(0.5))), x);
}

struct kir_val *kmath_narrow(struct kir *k, enum kfn fn, struct kir_val *x, struct kir_val *y) {
    switch (fn) {
    case KFN_SIN:
    case KFN_COS:
    case KFN_TAN:
        return trig(k, fn, x);
    case KFN_POW:
        return power(k, x, y);
    case KFN_CBRT:
        return cube_root(k, x);
    case KFN_REM:
        return remainder_of(k, x, y);
    case KFN_ASIN:
    case KFN_ACOS:
        return arc(k, fn == KFN_ACOS, x);
    case KFN_ATAN2:
        return arc_tangent(k, x, y);
    case KFN_SINH:
    case KFN_COSH:
        return hyperbolic(k, fn == KFN_COSH, x);
    case KFN_ASINH:
        return area_sine(k, x);
    case KFN_ACOSH:
        return area_cosine(k, x);
    case KFN_ATANH:
        return area_tangent(k, x);
    default:
        return NULL;
    }
}
