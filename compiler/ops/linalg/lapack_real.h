// SPDX-License-Identifier: Apache-2.0
// lapack_real: what the bodies of lapack_math.c and lapack_eval.c stand on, and their macros for
// T = double, which the last body of each takes away again.
#pragma once
#include <complex.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "compiler/ops/linalg/lapack.h"
#include "compiler/ops/linalg/lapack_math.h"

// c and s with c f + s g = r, c g = s f; gives r.
static inline double givens(double f, double g, double *c, double *s) {
    double r = hypot(f, g);
    *c = r == 0 ? 1 : f / r;
    *s = r == 0 ? 0 : g / r;
    return r;
}
#define T       double
#define NAME(n) lapack_##n##_r
#define CJ(x)   (x)
#define RE(x)   (x)
#define IM(x)   0.0
#define ABS(x)  fabs(x)
#define SIZE(x) fabs(x)
#define HALF    float
