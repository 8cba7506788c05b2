// SPDX-License-Identifier: Apache-2.0
// cpu_thin_activate: the activations of cpu_thin.c for one instruction set, behind its loops
// (cpu_thin_body.h). exp, tanh: range reduction and polynomials of Cephes (Moshier, "Methods and
// Programs for Mathematical Functions", 1989), within 2 ulp; erf: Abramowitz and Stegun 7.1.26, as
// the library.
#include <math.h>

#ifndef FLOATS
#include "devices/cpu/routines/cpu_thin_body.h"
#endif

INLINE FLOATS THIN(pick)(BITS where, FLOATS yes, FLOATS no) {
    return (FLOATS)((where & (BITS)yes) | (~where & (BITS)no));
}
INLINE FLOATS THIN(all)(float v) { // not x * 0 + v: x may be infinite
    return (FLOATS){0} + v;
}
INLINE FLOATS THIN(exp)(FLOATS x) {
    FLOATS given = x, low = THIN(all)(-87.3f), high = THIN(all)(88.3f);
    FLOATS magic = THIN(all)(12582912.0f), most = THIN(all)(88.7228317f); // beyond: infinity
    x = THIN(pick)(x < low, low, x);
    x = THIN(pick)(x > high, high, x);
    FLOATS shifted = x * 1.44269504088896341f + 12582912.0f, n = shifted - magic;
    BITS power = ((BITS)shifted - (BITS)magic) << 23;
    x = x - n * 0.693359375f - n * -2.12194440e-4f;
    FLOATS y = x * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * (x * x) + x + 1;
    y = THIN(pick)(given > most, THIN(all)(INFINITY), (FLOATS)((BITS)y + power));
    return THIN(pick)(given == given, y, given); // NaN stays NaN
}
INLINE FLOATS THIN(logistic)(FLOATS x) {
    return 1 / (1 + THIN(exp)(-x));
}
INLINE FLOATS THIN(magnitude)(FLOATS x) {
    return (FLOATS)((BITS)x & 0x7fffffff);
}
INLINE FLOATS THIN(with_sign)(FLOATS x, FLOATS of) {
    return (FLOATS)((BITS)x | ((BITS)of & (int32_t)0x80000000));
}
INLINE FLOATS THIN(tanh)(FLOATS x) {
    FLOATS a = THIN(magnitude)(x), z = x * x, limit = THIN(all)(0.625f);
    FLOATS y = z * -5.70498872745e-3f + 2.06390887954e-2f;
    y = y * z + -5.37397155531e-2f;
    y = y * z + 1.33314422036e-1f;
    y = y * z + -3.33332819422e-1f;
    y = y * z * x + x;
    FLOATS far = THIN(with_sign)(1 - 2 / (THIN(exp)(2 * a) + 1), x);
    return THIN(pick)(a < limit, y, far);
}
INLINE FLOATS THIN(erf)(FLOATS x) {
    FLOATS a = THIN(magnitude)(x), t = 1 / (1 + 0.3275911f * a);
    FLOATS y = 1.061405429f * t + -1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t + -0.284496736f;
    y = y * t + 0.254829592f;
    return THIN(with_sign)(1 - y * t * THIN(exp)(-a * a), x);
}
static THIN_TARGET void THIN(activate)(enum lib_post_kind kind, float alpha, float beta, float *v,
                                       int64_t n) {
    for (int64_t k = 0; k < n; k += LANES) { // v has room for whole vectors
        FLOATS x = AT(v + k), low = THIN(all)(alpha), high = THIN(all)(beta);
        switch (kind) {
        case LIB_POST_RELU:
            x = THIN(pick)(x < 0, (FLOATS){0}, x);
            break;
        case LIB_POST_CLIP:
            x = THIN(pick)(x < low, low, x);
            x = THIN(pick)(x > high, high, x);
            break;
        case LIB_POST_LOGISTIC:
            x = THIN(logistic)(x);
            break;
        case LIB_POST_TANH:
            x = THIN(tanh)(x);
            break;
        case LIB_POST_SCALE:
            x = x * alpha;
            break;
        case LIB_POST_GELU_ERF:
            x = 0.5f * x * (1 + THIN(erf)(x * 0.70710678118654752f));
            break;
        case LIB_POST_SWISH:
            x = x * THIN(logistic)(alpha * x);
            break;
        default:
            break;
        }
        AT(v + k) = x;
    }
}

#undef FLOATS
#undef BITS
#undef INLINE
#undef LANES
#undef UNROLL
#undef AT
#undef CAT
#undef THIN
#undef THIN_BYTES
#undef THIN_TARGET
#undef THIN_WIDE
#undef THIN_DEEP
#undef THIN_FROM_F16
