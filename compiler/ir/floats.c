// SPDX-License-Identifier: Apache-2.0
// The small float formats by one parametric routine: sign, e exponent bits, m mantissa bits, bias,
// and what the top codes mean. Rounding is to nearest even from the double, once. Sources: IEEE
// 754-2019 (binary16), OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), OCP Microscaling
// Formats 1.0 (E2M1, E8M0), the FNUZ variants and what is left open as ml_dtypes defines them.
#include "compiler/ir/literal.h"

#include <math.h>

struct float_format float_format(enum dtype t) {
    switch (t) {
    case DT_F4E2M1FN:
        return (struct float_format){2, 1, 1, FLOAT_FIN};
    case DT_F8E8M0FNU:
        return (struct float_format){8, 0, 127, FLOAT_POW};
    case DT_F8E3M4:
        return (struct float_format){3, 4, 3, FLOAT_IEEE};
    case DT_F8E4M3:
        return (struct float_format){4, 3, 7, FLOAT_IEEE};
    case DT_F8E4M3FN:
        return (struct float_format){4, 3, 7, FLOAT_FN};
    case DT_F8E4M3B11FNUZ:
        return (struct float_format){4, 3, 11, FLOAT_FNUZ};
    case DT_F8E4M3FNUZ:
        return (struct float_format){4, 3, 8, FLOAT_FNUZ};
    case DT_F8E5M2:
        return (struct float_format){5, 2, 15, FLOAT_IEEE};
    case DT_F8E5M2FNUZ:
        return (struct float_format){5, 2, 16, FLOAT_FNUZ};
    case DT_BF16:
        return (struct float_format){8, 7, 127, FLOAT_IEEE};
    default:
        return (struct float_format){5, 10, 15, FLOAT_IEEE};
    }
}

int float_least(enum dtype t) {
    if (t == DT_F64) return -1022;
    return t == DT_F32 ? -126 : 1 - float_format(t).bias;
}

// A double that is NaN with this sign and these upper bits behind the one that says it is quiet.
static double nan_of(bool negative, uint64_t payload) {
    uint64_t bits = (negative ? UINT64_C(1) << 63 : 0) | UINT64_C(0x7ff8) << 48 | payload;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static double decode(struct float_format f, uint32_t bits) {
    bits &= f.special == FLOAT_POW ? 0xff : (1u << (f.e + f.m + 1)) - 1;
    uint32_t man = bits & ((1u << f.m) - 1), exp = bits >> f.m & ((1u << f.e) - 1),
             sign = bits >> (f.e + f.m);
    uint32_t top = (1u << f.e) - 1;
    if (f.special == FLOAT_POW) return bits == top ? (double)NAN : ldexp(1, (int)bits - f.bias);
    if (f.special == FLOAT_FNUZ && sign && !exp && !man) return (double)NAN;
    if (f.special == FLOAT_FN && exp == top && man == (1u << f.m) - 1)
        return sign ? -(double)NAN : (double)NAN;
    if (f.special == FLOAT_IEEE && exp == top && man)
        return nan_of(sign, (uint64_t)man << (52 - f.m));
    if (f.special == FLOAT_IEEE && exp == top) return sign ? -(double)INFINITY : (double)INFINITY;
    double v = exp ? ldexp((double)(man | 1u << f.m), (int)exp - f.bias - f.m)
                   : ldexp((double)man, 1 - f.bias - f.m);
    return sign ? -v : v;
}

// The power of two next to v; between two, the larger. What has none is NaN.
static uint32_t encode_power(struct float_format f, double v) {
    uint32_t nan = (1u << f.e) - 1;
    int exp;
    if (!(v > 0) || isinf(v)) return nan;
    double m = frexp(v, &exp); // v in [2^(exp-1), 2^exp)
    int code = exp - 1 + f.bias + (m >= 0.75);
    return code < 0 ? 0 : code >= (int)nan ? nan : (uint32_t)code;
}
static uint32_t encode(struct float_format f, double v) {
    if (f.special == FLOAT_POW) return encode_power(f, v);
    uint32_t sign = signbit(v) ? 1u << (f.e + f.m) : 0, top = (1u << f.e) - 1,
             ones = (1u << f.m) - 1;

    uint32_t inf = top << f.m;
    bool alone = f.special == FLOAT_FNUZ || f.special == FLOAT_FIN;
    uint32_t nan = alone                   ? 1u << (f.e + f.m)
                   : f.special == FLOAT_FN ? (sign | inf | ones)
                                           : (sign | inf | 1u << (f.m - 1));
    uint32_t over = f.special == FLOAT_IEEE  ? (sign | inf)
                    : f.special == FLOAT_FIN ? (sign | inf | ones)
                                             : nan;

    if (isnan(v) && f.special == FLOAT_IEEE && f.m >= 7) { // with the bits that have a place
        uint64_t bits;
        memcpy(&bits, &v, sizeof bits);
        nan |= (uint32_t)(bits >> (52 - f.m)) & ones;
    }
    if (isnan(v)) return nan;
    double a = fabs(v);
    if (isinf(a)) return over;
    if (a == 0) return f.special == FLOAT_FNUZ ? 0 : sign;

    int exp;
    frexp(a, &exp); // a in [2^(exp-1), 2^exp)
    int scale = exp - 1 < 1 - f.bias ? 1 - f.bias - f.m : exp - 1 - f.m;
    // Exact scaling, one rounding (to nearest even by default).
    uint64_t q = (uint64_t)nearbyint(ldexp(a, -scale));
    // q counts units of 2^scale: a carry into the next binade needs no special case when read as
    // one integer.
    int64_t code = exp - 1 < 1 - f.bias
                       ? (int64_t)q
                       : ((int64_t)(exp - 1 + f.bias) << f.m) + (int64_t)q - ((int64_t)1 << f.m);

    int64_t largest = f.special == FLOAT_IEEE ? (int64_t)inf - 1
                      : f.special == FLOAT_FN ? (int64_t)(inf | ones) - 1
                                              : (int64_t)(inf | ones);
    if (code > largest) return over;
    if (code == 0 && f.special == FLOAT_FNUZ) return 0;
    return sign | (uint32_t)code;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, em = h & 0x7fff, bits;
    if (em >= 0x7c00)
        bits = sign | 0x7f800000 | (em & 0x3ff) << 13;
    else if (em >= 0x0400)
        bits = sign | ((em << 13) + 0x38000000);
    else
        return (sign ? -1.0f : 1.0f) * (float)em * 0x1p-24f;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
uint16_t f32_to_f16(float f) { // to nearest even; infinity where it overflows
    uint32_t u, sign;
    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x1ff));
    if (u >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000) { // subnormal: its last bit is that of the sum
        float tiny;
        memcpy(&tiny, &u, 4);
        tiny += 0.5f;
        memcpy(&u, &tiny, 4);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    return (uint16_t)(sign | ((u + 0xc8000fff + (u >> 13 & 1)) >> 13));
}
uint16_t f64_to_f16(double v) {
    return (uint16_t)encode(float_format(DT_F16), v);
}
float bf16_to_f32(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
uint16_t f32_to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); // quiet NaN, sign kept
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
uint16_t f64_to_bf16(double v) {
    return (uint16_t)encode(float_format(DT_BF16), v);
}
double f8_to_f64(enum dtype t, uint8_t b) {
    return decode(float_format(t), b);
}
uint8_t f64_to_f8(enum dtype t, double v) {
    return (uint8_t)encode(float_format(t), v);
}
