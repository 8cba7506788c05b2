// SPDX-License-Identifier: Apache-2.0
// The functions of libm.def: what generated kernels may call. Complex functions come as two real
// ones, one a part, in terms of <complex.h>, which is what the reference evaluator uses.
#include "compiler/codegen/calls.h"

#include <complex.h>
#include <math.h>
#include <string.h>

static double complex z(double re, double im) {
    return CMPLX(re, im);
}
#define PARTS(f)                                                                                   \
    static double hlod_##f##_re(double re, double im) {                                            \
        return creal(f(z(re, im)));                                                                \
    }                                                                                              \
    static double hlod_##f##_im(double re, double im) {                                            \
        return cimag(f(z(re, im)));                                                                \
    }
PARTS(cexp)
PARTS(clog)
PARTS(csqrt)
PARTS(csin)
PARTS(ccos)
PARTS(ctan)
PARTS(ctanh)
PARTS(cacos)
PARTS(cacosh)
PARTS(casin)
PARTS(casinh)
PARTS(catanh)
PARTS(ccosh)
PARTS(csinh)
static double hlod_cdiv_re(double a, double b, double c, double d) {
    return creal(z(a, b) / z(c, d));
}
static double hlod_cdiv_im(double a, double b, double c, double d) {
    return cimag(z(a, b) / z(c, d));
}
static double hlod_cpow_re(double a, double b, double c, double d) {
    return creal(cpow(z(a, b), z(c, d)));
}
static double hlod_cpow_im(double a, double b, double c, double d) {
    return cimag(cpow(z(a, b), z(c, d)));
}

// The names with a prefix are ours, the others libm's.
#define hlod_exp   exp
#define hlod_expm1 expm1
#define hlod_log   log
#define hlod_log1p log1p
#define hlod_tanh  tanh
#define hlod_erf   erf
#define hlod_sin   sin
#define hlod_cos   cos
#define hlod_tan   tan
#define hlod_cbrt  cbrt
#define hlod_acos  acos
#define hlod_acosh acosh
#define hlod_asin  asin
#define hlod_asinh asinh
#define hlod_atanh atanh
#define hlod_cosh  cosh
#define hlod_sinh  sinh
#define hlod_hypot hypot
#define hlod_pow   pow
#define hlod_atan2 atan2
#define hlod_fmod  fmod

const struct code_symbol code_symbols[] = {
#define LIBM(e, name, n) {"hlod_" #name, hlod_##name},
#include "compiler/kernel/libm.def"
#undef LIBM
    // What LLVM may emit calls of.
    {"memcpy", memcpy},
    {"memset", memset},
    {"memmove", memmove},
    {"floor", floor},
    {"ceil", ceil},
    {"rint", rint},
    {"round", round},
    {"roundeven", roundeven},
    {"floorf", floorf},
    {"ceilf", ceilf},
    {"rintf", rintf},
    {"roundf", roundf},
    {"roundevenf", roundevenf},
    {"fma", fma},
    {"fmaf", fmaf},
    {NULL, NULL},
};
