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
V kir_quant8(struct kir *k, enum dtype type, V x) {
    struct float_format f = float_format(type);
    if (f.special == FLOAT_POW) return quant_power(k, x);
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
// The code of a value on the grid.
V kir_encode8(struct kir *k, enum dtype type, V x) {
    struct float_format f = float_format(type);
    int top = (1 << f.e) - 1;
    if (f.special == FLOAT_POW)
        return kir_cast(k, DT_U8, OP2(AND, OP2(SHR, kir_bits(k, DT_S32, x), I32(23)), I32(0xff)));
    V a = OP1(ABS, x), sign = OP2(SHR, kir_bits(k, DT_S32, x), I32(31 - f.e - f.m));
    sign = OP2(AND, sign, I32(1 << (f.e + f.m)));
    V tiny = kir_cast(k, DT_S32, OP2(MUL, a, F(ldexp(1, f.m - 1 + f.bias))));
    V normal =
        OP2(SUB, OP2(SHR, kir_bits(k, DT_S32, a), I32(23 - f.m)), I32((127 - f.bias) << f.m));
    V code = SEL(CMP(LT, a, F(ldexp(1, 1 - f.bias))), tiny, normal);
    if (f.special == FLOAT_IEEE) code = SEL(CMP(EQ, a, F(INFINITY)), I32(top << f.m), code);
    V nan = f.special == FLOAT_FNUZ
                ? I32(0x80)
                : OP2(OR, sign, I32(f.special == FLOAT_FN ? 0x7f : top << f.m | 1 << (f.m - 1)));
    code = SEL(CMP(NE, x, x), nan, OP2(OR, code, sign));
    return kir_cast(k, DT_U8, code);
}
V kir_decode8(struct kir *k, enum dtype type, V code) {
    float all[256];
    for (int c = 0; c < 256; c++)
        all[c] = (float)f8_to_f64(type, (uint8_t)c);
    V at = kir_cast(k, DT_S64, code);
    at->lo = 0;
    at->hi = 255;
    return kir_table(k, kir_add_table(k, DT_F32, 256, all), at);
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
