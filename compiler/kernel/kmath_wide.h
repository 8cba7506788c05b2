// SPDX-License-Identifier: Apache-2.0
// kmath_wide: functions that the kmath_*.c files make for each other. All operate on and return f64
// values of kernel `k`, kmath_two_sum those of any float type.
#pragma once
#include "compiler/kernel/kir.h"

struct kmath_exp {
    struct kir_val *p, *low, *high; // e^x = p * low * high, where that overflows or underflows too
};
// Of x + low, where low is as much as x's roundings; NULL: 0.
struct kmath_exp kmath_exp_parts(struct kir *k, struct kir_val *x, struct kir_val *low);
// Sine and cosine; either may be NULL.
void kmath_sin_cos(struct kir *k, struct kir_val *x, struct kir_val **out_sin,
                   struct kir_val **out_cos);
// The same of an x that holds an f32, by a shorter reduction and within 1e-13.
void kmath_sin_cos_narrow(struct kir *k, struct kir_val *x, struct kir_val **out_sin,
                          struct kir_val **out_cos);
// The sum of x and y, and what rounding it lost.
struct kir_val *kmath_two_sum(struct kir *k, struct kir_val *x, struct kir_val *y,
                              struct kir_val **out_lost);
// kmath_inverse.c, kmath_power.c: one function each, in kmath_f64.
struct kir_val *kmath_atan2_64(struct kir *k, struct kir_val *y, struct kir_val *x);
struct kir_val *kmath_asin_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_acos_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_tan_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_erf_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_sinh_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_cosh_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_asinh_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_acosh_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_atanh_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_cbrt_64(struct kir *k, struct kir_val *x);
struct kir_val *kmath_pow_64(struct kir *k, struct kir_val *x, struct kir_val *y);
