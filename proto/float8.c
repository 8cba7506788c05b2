// SPDX-License-Identifier: Apache-2.0
// A format is its widths, its bias, and what its last codes mean. IEEE: the last exponent holds
// infinity and NaN. FN: only all ones are NaN, no infinity. FNUZ: neither that nor a negative zero,
// whose code is the one NaN.
#include "proto/float8.h"

#include <math.h>
#include <string.h>

enum kind { IEEE, FN, FNUZ };
struct float8 {
    const char *name;
    int mantissa, bias;
    enum kind kind;
};
static const struct float8 formats[] = {{"f8e3m4", 4, 3, IEEE},     {"f8e4m3", 3, 7, IEEE},
                                        {"f8e4m3fn", 3, 7, FN},     {"f8e4m3b11fnuz", 3, 11, FNUZ},
                                        {"f8e4m3fnuz", 3, 8, FNUZ}, {"f8e5m2", 2, 15, IEEE},
                                        {"f8e5m2fnuz", 2, 16, FNUZ}};

const struct float8 *float8_find(const char *name) {
    for (size_t k = 0; k < sizeof formats / sizeof formats[0]; k++)
        if (strcmp(formats[k].name, name) == 0) return &formats[k];
    return NULL;
}

float float8_value(const struct float8 *f, uint8_t code) {
    int m = code & ((1 << f->mantissa) - 1), e = (code & 0x7f) >> f->mantissa,
        last = 0x7f >> f->mantissa;
    if (f->kind == FNUZ && code == 0x80) return NAN;
    if (f->kind == FN && (code & 0x7f) == 0x7f) return NAN;
    float v = e ? ldexpf((float)(m + (1 << f->mantissa)), e - f->bias - f->mantissa)
                : ldexpf((float)m, 1 - f->bias - f->mantissa);
    if (f->kind == IEEE && e == last) v = m ? NAN : INFINITY;
    return code & 0x80 ? -v : v;
}

bool float8_code(const struct float8 *f, double v, uint8_t *out) {
    uint8_t sign = signbit(v) ? 0x80 : 0, inf = (uint8_t)((0x7f >> f->mantissa) << f->mantissa),
            most = f->kind == IEEE ? (uint8_t)(inf - 1)
                   : f->kind == FN ? 0x7e
                                   : 0x7f;

    if (isnan(v)) {
        *out = f->kind == FNUZ ? 0x80 : f->kind == FN ? 0x7f | sign : inf | 1 << (f->mantissa - 1);
        return true;
    }
    if (isinf(v)) {
        *out = sign | inf;
        return f->kind == IEEE;
    }

    double x = fabs(v);
    uint8_t lo = 0, hi = most; // codes of one sign are in the order of their values
    while (lo < hi) {
        uint8_t mid = (uint8_t)((lo + hi + 1) / 2);
        if (float8_value(f, mid) <= x)
            lo = mid;
        else
            hi = (uint8_t)(mid - 1);
    }

    double below = float8_value(f, lo),
           step = lo > 0 ? below - float8_value(f, (uint8_t)(lo - 1)) : 0,
           above = lo < most ? float8_value(f, (uint8_t)(lo + 1)) : below + step;
    bool up = x - below > above - x || (x - below == above - x && (lo & 1));
    if (lo == most && up) return false;
    lo = (uint8_t)(lo + up);
    *out = f->kind == FNUZ && lo == 0 ? 0 : sign | lo;
    return true;
}
