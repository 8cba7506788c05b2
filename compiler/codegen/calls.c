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
PARTS(cacos)
PARTS(cacosh)
PARTS(casin)
PARTS(casinh)
PARTS(catanh)

// The names with a prefix are ours, the others libm's.
#define hlod_fmod fmod

const struct code_symbol code_symbols[] = {
#define LIBM(e, name, n) {"hlod_" #name, hlod_##name},
#include "compiler/kernel/libm.def"
#undef LIBM
    // What LLVM may emit calls of.
    {"memcpy", memcpy},
    {"memset", memset},
    {"memmove", memmove},
    {"fmod", fmod},
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
