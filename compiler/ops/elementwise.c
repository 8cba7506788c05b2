// SPDX-License-Identifier: Apache-2.0
// Evaluation of elementwise operations from elementwise.def: per row and class one scalar function,
// per class one loop. f32 is computed in float, smaller floats in float and rounded once, f64 in
// double; integers in 64 bits and wrapped to their width by lit_set_i64.
#include <complex.h>
#include <math.h>

#include "compiler/eval.h"

static uint64_t ew_zext(uint64_t x, int w) {
    return w >= 64 ? x : x & ((UINT64_C(1) << w) - 1);
}
static int64_t ew_sext(uint64_t x, int w) {
    return w >= 64 ? (int64_t)x : (int64_t)(x << (64 - w)) >> (64 - w);
}
static uint64_t ew_clz(uint64_t x, int w) {
    x = ew_zext(x, w);
    return x ? (uint64_t)(__builtin_clzll(x) - (64 - w)) : (uint64_t)w;
}
static uint64_t ew_popcnt(uint64_t x, int w) {
    return (uint64_t)__builtin_popcountll(ew_zext(x, w));
}
static uint64_t ew_upow(uint64_t x, uint64_t y) {
    uint64_t r = 1;
    for (; y; y >>= 1, x *= x)
        if (y & 1) r *= x;
    return r;
}
// A negative exponent gives 0, but for bases 1 and -1.
static uint64_t ew_ipow(uint64_t x, int64_t y) {
    if (y >= 0) return ew_upow(x, (uint64_t)y);
    return x == 1 ? 1 : x == UINT64_MAX ? ((uint64_t)y & 1 ? UINT64_MAX : 1) : 0;
}

// Five scalar functions a row; NA rows get none (their table entry is NULL).
struct row {
    float (*f32)(float x, float y);
    double (*f64)(double x, double y);
    int64_t (*s)(int64_t x, int64_t y, int W);
    uint64_t (*u)(uint64_t x, uint64_t y, int W);
    uint64_t (*p)(uint64_t x, uint64_t y);
    double complex (*c)(double complex x, double complex y);
};

// A row's NA is the constant 0 in the function, and its table entry is NULL: HAS tests the text of
// the column.
#define HAS(expr) (sizeof(#expr) != sizeof("NA") || #expr[0] != 'N' || #expr[1] != 'A')
enum { NA = 0 };

#define M(fn)  fn##f
#define CM(fn) fn
#define CX(v)  (v)
#define EW(e, n, fx, sx, ux, px, cx, kop)                                                          \
    static float e##_f32(float x, float y) {                                                       \
        return (void)x, (void)y, (float)(fx);                                                      \
    }
#include "compiler/ops/elementwise.def"
#undef EW
#undef M
#define M(fn) fn
#define EW(e, n, fx, sx, ux, px, cx, kop)                                                          \
    static double e##_f64(double x, double y) {                                                    \
        return (void)x, (void)y, (double)(fx);                                                     \
    }                                                                                              \
    static int64_t e##_s(int64_t x, int64_t y, int W) {                                            \
        return (void)x, (void)y, (void)W, (int64_t)(sx);                                           \
    }                                                                                              \
    static uint64_t e##_u(uint64_t x, uint64_t y, int W) {                                         \
        return (void)x, (void)y, (void)W, (uint64_t)(ux);                                          \
    }                                                                                              \
    static uint64_t e##_p(uint64_t x, uint64_t y) {                                                \
        return (void)x, (void)y, (uint64_t)(px);                                                   \
    }                                                                                              \
    static double complex e##_c(double complex x, double complex y) {                              \
        return (void)x, (void)y, (double complex)(cx);                                             \
    }                                                                                              \
    static const struct row e##_row = {HAS(fx) ? e##_f32 : 0, HAS(fx) ? e##_f64 : 0,               \
                                       HAS(sx) ? e##_s : 0,   HAS(ux) ? e##_u : 0,                 \
                                       HAS(px) ? e##_p : 0,   HAS(cx) ? e##_c : 0};
#include "compiler/ops/elementwise.def"
#undef EW

static status_t not_defined(const struct hlo_instr *i, enum dtype t) {
    return st_invalid("instruction '%s': %s is not defined for %s", i->name, hlo_op_name(i->op),
                      dtype_name(t));
}

static void run_floats(const struct row *row, const struct literal *a, const struct literal *b,
                       struct literal *r) {
    enum dtype t = a->shape->dtype;
    int64_t n = shape_elements(a->shape);
    const float *x = a->data, *y = b->data;
    float *z = r->data;
    bool aligned = ((uintptr_t)x | (uintptr_t)y) % 4 == 0;

    for (int64_t k = 0; k < n; k++)
        if (t == DT_F64)
            lit_set_f64(r, k, row->f64(lit_get_f64(a, k), lit_get_f64(b, k)));
        else if (aligned && t == DT_F32 && r->shape->dtype == DT_F32)
            z[k] = row->f32(x[k], y[k]);
        else
            lit_set_f64(r, k, (double)row->f32((float)lit_get_f64(a, k), (float)lit_get_f64(b, k)));
}
static status_t run(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                    const struct row *row, struct literal **out) {
    const struct literal *a = in[0], *b = in[i->n_operands - 1];
    enum dtype t = a->shape->dtype;
    int64_t n = shape_elements(a->shape);
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));

    switch (dtype_class(t)) {
    case DC_FLOAT:
        if (!row->f32) return not_defined(i, t);
        run_floats(row, a, b, r);
        break;
    case DC_SIGNED:
        if (!row->s) return not_defined(i, t);
        for (int64_t k = 0; k < n; k++)
            lit_set_i64(r, k, row->s(lit_get_i64(a, k), lit_get_i64(b, k), dtype_bits(t)));
        break;
    case DC_UNSIGNED:
        if (!row->u) return not_defined(i, t);
        for (int64_t k = 0; k < n; k++)
            lit_set_i64(r, k,
                        (int64_t)row->u((uint64_t)lit_get_i64(a, k), (uint64_t)lit_get_i64(b, k),
                                        dtype_bits(t)));
        break;
    case DC_PRED:
        if (!row->p) return not_defined(i, t);
        for (int64_t k = 0; k < n; k++)
            lit_set_i64(r, k,
                        (int64_t)row->p((uint64_t)lit_get_i64(a, k), (uint64_t)lit_get_i64(b, k)));
        break;
    case DC_COMPLEX:
        if (!row->c) return not_defined(i, t);
        for (int64_t k = 0; k < n; k++) {
            double x[2], y[2];
            lit_get_c128(a, k, x);
            lit_get_c128(b, k, y);
            double complex z = row->c(CMPLX(x[0], x[1]), CMPLX(y[0], y[1]));
            lit_set_c128(r, k, creal(z), cimag(z));
        }
        break;
    case DC_NONE:
        return not_defined(i, t);
    }

    *out = r;
    return ST_OK;
}

// The op that makes a complex from two reals does not fit the pattern of one type in, one type out.
static status_t make_complex(struct hlo_eval *ev, const struct hlo_instr *i,
                             struct literal *const *in, struct literal **out) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    for (int64_t k = 0, n = shape_elements(r->shape); k < n; k++)
        lit_set_c128(r, k, lit_get_f64(in[0], k), lit_get_f64(in[1], k));
    *out = r;
    return ST_OK;
}

#define EW(e, n, fx, sx, ux, px, cx, kop)                                                          \
    status_t hlo_eval_##e(struct hlo_eval *ev, const struct hlo_instr *i,                          \
                          struct literal *const *in, struct literal **out) {                       \
        return HLO_##e == HLO_COMPLEX ? make_complex(ev, i, in, out)                               \
                                      : run(ev, i, in, &e##_row, out);                             \
    }
#include "compiler/ops/elementwise.def"
#undef EW
