// SPDX-License-Identifier: Apache-2.0
// Hyperbolic functions of f64 as kir and their inverses, of exponentials and logarithms that keep
// small values (e^x - 1, log(1 + x)). Bounds: kmath_double_test.
#include <math.h>

#include "compiler/kernel/kmath_short.h"
#include "compiler/kernel/kmath_wide.h"
#include "compiler/kernel/lower.h"

#define C(v) kir_f(k, DT_F64, (v))
static V fn(struct kir *k, enum kfn f, V x) {
    return kmath_f64(k, f, x, NULL);
}

// e^a / 2, which is finite a little longer than e^a.
static V half_exp(struct kir *k, V a) {
    struct kmath_exp e = kmath_exp_parts(k, a, NULL);
    return OP2(MUL, OP2(MUL, e.p, e.low), OP2(MUL, e.high, C(0.5)));
}
V kmath_sinh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), m = fn(k, KFN_EXPM1, SEL(CMP(GT, a, C(22)), C(22), a));
    V small = OP2(MUL, OP2(ADD, m, OP2(DIV, m, OP2(ADD, m, C(1)))), C(0.5));
    V r = OP2(COPYSIGN, SEL(CMP(GT, a, C(22)), half_exp(k, a), small), x);
    return SEL(CMP(NE, x, x), x, r);
}
V kmath_cosh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), h = half_exp(k, a);
    V r = SEL(CMP(GT, a, C(22)), h, OP2(ADD, h, OP2(DIV, C(0.25), h)));
    return SEL(CMP(NE, x, x), x, r);
}
// log(2 a) for what is so large that the rest is rounded off.
static V log_twice(struct kir *k, V a) {
    return OP2(ADD, fn(k, KFN_LOG, a), C(0.6931471805599453));
}
V kmath_asinh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), b = SEL(CMP(GT, a, C(0x1p28)), C(1), a), z = OP2(MUL, b, b);
    V root = OP1(SQRT, OP2(ADD, z, C(1)));
    V y = fn(k, KFN_LOG1P, OP2(ADD, b, OP2(DIV, z, OP2(ADD, root, C(1)))));
    y = OP2(COPYSIGN, SEL(CMP(GT, a, C(0x1p28)), log_twice(k, a), y), x);
    return SEL(CMP(NE, x, x), x, y);
}
V kmath_acosh_64(struct kir *k, V x) {
    V far = CMP(GT, x, C(0x1p28)), t = OP2(SUB, SEL(far, C(1), x), C(1));
    V y = fn(k, KFN_LOG1P, OP2(ADD, t, OP1(SQRT, FMA(t, t, OP2(ADD, t, t)))));
    y = SEL(far, log_twice(k, x), y);
    return SEL(CMP(GE, x, C(1)), y, C(NAN));
}
V kmath_atanh_64(struct kir *k, V x) {
    V a = OP1(ABS, x), q = OP2(DIV, OP2(ADD, a, a), OP2(SUB, C(1), a));
    V y = OP2(COPYSIGN, OP2(MUL, fn(k, KFN_LOG1P, q), C(0.5)), x);
    return SEL(CMP(GT, a, C(1)), C(NAN), SEL(CMP(NE, x, x), x, y));
}
