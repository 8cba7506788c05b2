// SPDX-License-Identifier: Apache-2.0
#include "scheduler/suite/compare.h"

#include <math.h>
#include <string.h>

// One number; what it adds to the extremes, and whether it fits.
static bool number_fits(long double f, long double e, double rtol, double atol,
                        struct compare_result *r) {
    if (isnan(f) || isnan(e)) return isnan(f) && isnan(e);
    if (isinf(f) || isinf(e)) return f == e;
    long double abs = fabsl(f - e), mag = fabsl(e);
    if (abs > (long double)r->max_abs) r->max_abs = (double)abs;
    if (mag > 0 && abs / mag > (long double)r->max_rel) r->max_rel = (double)(abs / mag);
    return abs <= (long double)atol + (long double)rtol * mag;
}

// The numbers that one element is made of: two for complex types; NULL: bytes.
static const struct dtype_row *part_type(const struct dtype_row *t, int64_t *out_parts) {
    *out_parts = 1;
    if (t->cls != NUM_RAW) return t;
    *out_parts = 2;
    if (!strcmp(t->name, "c64")) return numbers_dtype(STR("f32"));
    if (!strcmp(t->name, "c128")) return numbers_dtype(STR("f64"));
    return NULL;
}

// The bits that say something of an element's first byte, of types that are bytes.
static uint8_t code_bits(const struct dtype_row *t) {
    if (!strcmp(t->name, "s2") || !strcmp(t->name, "u2")) return 3;
    return strcmp(t->name, "f4e2m1fn") ? 0xFF : 15;
}

void compare_values(const struct dtype_row *t, int64_t n, const void *found, const void *expected,
                    double rtol, double atol, struct compare_result *out) {
    *out = (struct compare_result){.first = -1};
    int64_t parts;
    const struct dtype_row *part = part_type(t, &parts);
    const uint8_t *f = found, *e = expected;
    for (int64_t i = 0; i < n; i++) {
        size_t at = (size_t)(i * t->bytes);
        if (!memcmp(f + at, e + at, (size_t)t->bytes)) continue;
        bool fits = part || (t->bytes == 1 && !((f[at] ^ e[at]) & code_bits(t)));
        for (int64_t k = 0; part && k < parts; k++)
            fits = number_fits(numbers_at(part, f, i * parts + k),
                               numbers_at(part, e, i * parts + k), rtol, atol, out) &&
                   fits;
        if (fits) continue;
        if (out->mismatches++ == 0) out->first = i;
    }
}
