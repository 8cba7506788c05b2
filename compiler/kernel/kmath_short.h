// SPDX-License-Identifier: Apache-2.0
// kmath_short: short names for what kmath_*.c and small_float.c write of kir, where `k` is the
// kernel that is built.
#pragma once
#include "compiler/kernel/kir.h"

typedef struct kir_val *V;
#define OP2(o, x, y) kir_op(k, K_##o, (x), (y), NULL)
#define OP1(o, x)    kir_op(k, K_##o, (x), NULL, NULL)
// FMA: approximations, in which nothing depends on whether the product is rounded. EXACT: what it
// loses is wanted.
#define FMA(x, y, z)   kir_mul_add(k, (x), (y), (z))
#define EXACT(x, y, z) kir_fma_exact(k, (x), (y), (z))
#define SEL(c, x, y)   kir_select(k, (c), (x), (y))
#define CMP(d, x, y)   kir_cmp(k, CMP_##d, (x), (y))
#define I32(v)         kir_int(k, DT_S32, (v))
#define I64(v)         kir_int(k, DT_S64, (v))

// c[0] + c[1] x + ... + c[n - 1] x^(n - 1), in the type of x: one term after the other (Horner),
// which rounds least.
static inline V poly(struct kir *k, V x, const double *c, int n) {
    V r = kir_f(k, x->type, c[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        r = FMA(r, x, kir_f(k, x->type, c[i]));
    return r;
}
// The same by pairs of terms, then pairs of these (Estrin, "Organization of computer systems",
// 1960): a step a level, where a long kernel waits for the steps and digits are to spare. n <= 32.
static inline V poly_pairs(struct kir *k, V x, const double *c, int n) {
    V v[32];
    for (int i = 0; i < n; i++)
        v[i] = kir_f(k, x->type, c[i]);
    for (; n > 1; n = (n + 1) / 2) {
        for (int i = 0; i < n; i += 2)
            v[i / 2] = i + 1 < n ? FMA(v[i + 1], x, v[i]) : v[i];
        if (n > 2) x = OP2(MUL, x, x);
    }
    return v[0];
}
#define COUNT(c)         ((int)(sizeof(c) / sizeof((c)[0])))
#define POLY(x, c)       poly(k, (x), (c), COUNT(c))
#define POLY_PAIRS(x, c) poly_pairs(k, (x), (c), COUNT(c))
