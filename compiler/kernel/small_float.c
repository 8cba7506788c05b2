// SPDX-License-Identifier: Apache-2.0
// 8-bit floats and reduced precision in kir: values are f32 (f64) that lie on the small format's
// grid, memory holds codes. Formats as in compiler/ir/floats.c. Rounding is to nearest even, once;
// f64 reaches a small format by way of f32 rounded to odd, which cannot round twice.
#include <math.h>

#include "compiler/ir/literal.h"
#include "compiler/kernel/kmath_short.h"

#define F(v) kir_f(k, DT_F32, (v))

static double largest(struct float_format f) {
    int top = (1 << f.e) - 1,
        code = f.special == FLOAT_IEEE ? (top << f.m) - 1 : (top << f.m | ((1 << f.m) - 1));
    if (f.special == FLOAT_FN) code--;
    return ldexp((code & ((1 << f.m) - 1)) | 1 << f.m, (code >> f.m) - f.bias - f.m);
}

// The power of two next to x, the larger of two; what is not above 0 or too large is NaN. The
// smallest, 2^-127, has no normal f32.
static V quant_power(struct kir *k, V x) {
    V bits = kir_bits(k, DT_S32, x);
    V r = OP2(AND, OP2(ADD, bits, I32(0x400000)), I32(0x7f800000));
    r = SEL(CMP(LT, bits, I32(0x600000)), I32(0x400000), r);
    V bad =
        OP2(OR, CMP(LE, bits, I32(0)), CMP(GE, bits, I32(0x7f400000))); // -x, 0, and 1.5 * 2^127 on
    return kir_bits(k, DT_F32, SEL(bad, I32(0x7fc00000), r));
}
// x on the grid of f: adding and taking away 1.5 * 2^23 quanta, each a power of two, rounds.
static V round_to(struct kir *k, struct float_format f, V x) {
    double most = largest(f);
    double over = f.special == FLOAT_IEEE  ? (double)INFINITY
                  : f.special == FLOAT_FIN ? most
                                           : (double)NAN;
    V a = OP1(ABS, x);
    a = SEL(CMP(GT, a, F(4 * most)), F(4 * most), a); // all of it is too large
    V e = OP2(MAX, OP2(SHR, kir_bits(k, DT_S32, a), I32(23)), I32(128 - f.bias));
    V quantum = kir_bits(k, DT_F32, OP2(SHL, OP2(SUB, e, I32(f.m)), I32(23)));
    V magic = OP2(MUL, quantum, F(12582912.0));
    V r = OP2(SUB, OP2(ADD, a, magic), magic);
    r = SEL(CMP(GT, r, F(most)), F(over), r);
    r = OP2(COPYSIGN, r, x);
    if (f.special == FLOAT_FNUZ) r = SEL(CMP(EQ, r, F(0)), F(0), r);
    return SEL(CMP(NE, x, x), f.special == FLOAT_FIN ? F(-0.0) : x, r);
}
V kir_quant8(struct kir *k, enum dtype type, V x) {
    struct float_format f = float_format(type);
    if (x->grid == type) return x;
    V r = f.special == FLOAT_POW ? quant_power(k, x) : round_to(k, f, x);
    r->grid = type;
    r->rounded = x;
    return r;
}
// The code of x, rounded: integers of the exponent and the digits kept, with half of the last one
// added; below the smallest normal number, where digits are quanta, those of x + 2^23 quanta.
V kir_encode8(struct kir *k, enum dtype type, V x) {
    struct float_format f = float_format(type);
    int top = (1 << f.e) - 1, sign = 1 << (f.e + f.m), drop = 23 - f.m;
    if (f.special == FLOAT_POW)
        return kir_cast(k, DT_U8, OP2(AND, OP2(SHR, kir_bits(k, DT_S32, x), I32(23)), I32(0xff)));
    if (x->grid == type && x->rounded) x = x->rounded;
    V a = OP1(ABS, x), bits = kir_bits(k, DT_S32, a),
      signs = OP2(AND, OP2(SHR, kir_bits(k, DT_S32, x), I32(31 - f.e - f.m)), I32(sign));
    V quanta = F(ldexp(1, 24 - f.bias - f.m)),
      tiny = OP2(SUB, kir_bits(k, DT_S32, OP2(ADD, a, quanta)), kir_bits(k, DT_S32, quanta));
    V least = I32((127 - f.bias) << 23), normal = OP2(SUB, bits, least);
    if (x->grid != type) { // else nothing is to be rounded
        V odd = OP2(AND, OP2(SHR, bits, I32(drop)), I32(1));
        normal = OP2(ADD, OP2(ADD, normal, I32((1 << (drop - 1)) - 1)), odd);
    }
    normal = OP2(SHR, normal, I32(drop));
    V code = SEL(CMP(LT, a, F(ldexp(1, 1 - f.bias))), tiny, normal);

    if (f.special == FLOAT_IEEE) code = OP2(MIN, code, I32(top << f.m));
    if (f.special == FLOAT_FN || f.special == FLOAT_FIN) code = OP2(MIN, code, I32(sign - 1));
    V whole = OP2(OR, code, signs), nan = I32(sign);
    if (f.special == FLOAT_FNUZ) {
        whole = SEL(CMP(EQ, code, I32(0)), I32(0), whole);
        whole = SEL(CMP(GE, code, I32(sign)), nan, whole);
    }
    if (f.special == FLOAT_FN) nan = OP2(OR, signs, I32(sign - 1));
    if (f.special == FLOAT_IEEE) nan = OP2(OR, signs, I32(top << f.m | 1 << (f.m - 1)));
    return kir_cast(k, DT_U8, SEL(CMP(NE, x, x), nan, whole));
}
// Of powers of two: a table.
static V decode_power(struct kir *k, enum dtype type, V code) {
    float all[256];
    for (int c = 0; c < 256; c++)
        all[c] = (float)f8_to_f64(type, (uint8_t)c);
    V at = kir_cast(k, DT_S64, code);
    at->lo = 0;
    at->hi = 255;
    return kir_table(k, kir_add_table(k, DT_F32, 256, all), at);
}
// Exponent and digits where f32 has them; numbers without an exponent are multiples of the quantum.
V kir_decode8(struct kir *k, enum dtype type, V code) {
    struct float_format f = float_format(type);
    int top = (1 << f.e) - 1, sign = 1 << (f.e + f.m);
    if (f.special == FLOAT_POW) return decode_power(k, type, code);
    V c = kir_cast(k, DT_S32, code), a = OP2(AND, c, I32(sign - 1)),
      signs = OP2(SHL, OP2(AND, c, I32(sign)), I32(31 - f.e - f.m));
    V digits = OP2(SHL, a, I32(23 - f.m)), normal = OP2(ADD, digits, I32((127 - f.bias) << 23));
    V tiny = OP2(MUL, kir_cast(k, DT_F32, a), F(ldexp(1, 1 - f.bias - f.m)));
    V bits = SEL(CMP(LT, a, I32(1 << f.m)), kir_bits(k, DT_S32, tiny), normal);
    V nan = I32(0x7fc00000);

    if (f.special == FLOAT_IEEE) bits = SEL(CMP(GE, a, I32(top << f.m)), I32(0x7f800000), bits);
    if (f.special == FLOAT_FN) bits = SEL(CMP(EQ, a, I32(sign - 1)), nan, bits);
    bits = OP2(OR, bits, signs);
    if (f.special == FLOAT_IEEE) bits = SEL(CMP(GT, a, I32(top << f.m)), nan, bits);
    if (f.special == FLOAT_FNUZ) bits = SEL(CMP(EQ, c, I32(sign)), nan, bits);
    V r = kir_bits(k, DT_F32, bits);
    r->grid = type;
    r->rounded = NULL;
    return r;
}

// f64 to f32, to odd: truncated, the last bit set when digits were lost. Rounding the result to a
// format of at most 22 digits equals rounding x.
V kir_to_odd(struct kir *k, V x) {
    V f = kir_cast(k, DT_F32, x), back = kir_cast(k, DT_F64, f), bits = kir_bits(k, DT_S32, f);
    V above = CMP(GT, OP1(ABS, back), OP1(ABS, x));
    V odd = kir_bits(k, DT_F32, OP2(OR, SEL(above, OP2(SUB, bits, I32(1)), bits), I32(1)));
    V exact = OP2(OR, CMP(EQ, back, x), CMP(NE, x, x));
    return SEL(exact, f, odd);
}

// To e exponent and m mantissa bits as XLA's reduce-precision: below the smallest normal number of
// a narrower exponent signed zero, above its largest infinity; NaN without mantissa bits becomes
// infinity. What is below the smallest normal number of its own type loses the same bits as that.
V kir_reduce_precision(struct kir *k, enum dtype type, V x, int e, int m) {
    bool wide = x->type == DT_F64;
    enum dtype t = x->type, it = wide ? DT_S64 : DT_S32;
    int digits = wide ? 52 : 23, bias = (1 << (e - 1)) - 1, least = float_least(type);
    V a = OP1(ABS, x), u = kir_bits(k, it, a), r = u;
    if (m < digits) {
        int drop = digits - m;
        V lsb = OP2(AND, OP2(SHR, u, kir_int(k, it, drop)), kir_int(k, it, 1));
        r = OP2(ADD, OP2(ADD, u, kir_int(k, it, (INT64_C(1) << (drop - 1)) - 1)), lsb);
        r = OP2(AND, r, kir_int(k, it, -(INT64_C(1) << drop)));
    }
    V v = kir_bits(k, t, r);
    if (1 - bias > least) {
        v = SEL(CMP(GE, v, kir_f(k, t, ldexp(1, bias + 1))), kir_f(k, t, INFINITY), v);
        v = SEL(CMP(LT, v, kir_f(k, t, ldexp(1, 1 - bias))), kir_f(k, t, 0), v);
    } else if (least > float_least(t) && m < digits) { // subnormal there, normal here
        V grid = kir_f(k, t, ldexp(1.5, digits + least - m));
        v = SEL(CMP(LT, a, kir_f(k, t, ldexp(1, least))), OP2(SUB, OP2(ADD, a, grid), grid), v);
    }
    v = OP2(COPYSIGN, v, x);
    return SEL(CMP(NE, x, x), m == 0 ? kir_f(k, t, INFINITY) : x, v);
}
