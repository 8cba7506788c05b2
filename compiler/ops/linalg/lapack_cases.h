// SPDX-License-Identifier: Apache-2.0
// lapack_cases: the calls of LAPACK on literals, for T = double or double complex (included once
// for each by lapack_eval.c): each matrix of a stack into columns, through lapack_math.h, back.
#ifndef NAME // alone
#include "compiler/ops/linalg/lapack_real.h"
#endif

static T *NAME(room)(struct arena *a, int64_t n) {
    return arena_alloc_aligned(a, sizeof(T) * (size_t)(n + 1), 64);
}
// m x n elements from `base` in rows, into columns; and back.
static void NAME(load)(T *to, const struct literal *l, int64_t base, int64_t m, int64_t n) {
    bool wide = dtype_size(l->shape->dtype) == (int)sizeof(T);
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++) {
            int64_t at = base + r * n + c;
            T v;
            HALF h;
            if (wide)
                memcpy(&v, (const T *)l->data + at, sizeof v);
            else {
                memcpy(&h, (const HALF *)l->data + at, sizeof h);
                v = h;
            }
            to[c * m + r] = v;
        }
}
static void NAME(store)(const T *from, struct literal *l, int64_t base, int64_t m, int64_t n) {
    bool wide = dtype_size(l->shape->dtype) == (int)sizeof(T);
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++) {
            int64_t at = base + r * n + c;
            if (wide)
                ((T *)l->data)[at] = from[c * m + r];
            else
                ((HALF *)l->data)[at] = (HALF)from[c * m + r];
        }
}

static void NAME(run_lu)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                         struct literal *const *out, struct arena *tmp) {
    int64_t least = c->m < c->n ? c->m : c->n;
    T *a = NAME(room)(tmp, c->m * c->n);
    NAME(load)(a, in[0], b * c->m * c->n, c->m, c->n);
    int info = NAME(lu)(c->m, c->n, a, (int32_t *)out[1]->data + b * least);
    NAME(store)(a, out[0], b * c->m * c->n, c->m, c->n);
    lit_set_i64(out[2], b, info);
}
static void NAME(run_qr)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                         struct literal *const *out, struct arena *tmp) {
    int64_t least = c->m < c->n ? c->m : c->n;
    bool pivots = c->kind == LAPACK_GEQP3;
    T *a = NAME(room)(tmp, c->m * c->n), *tau = NAME(room)(tmp, least);
    int32_t *order = pivots ? (int32_t *)out[1]->data + b * c->n : NULL;
    for (int64_t j = 0; pivots && j < c->n; j++)
        order[j] = (int32_t)j + 1;
    NAME(load)(a, in[0], b * c->m * c->n, c->m, c->n);
    NAME(qr)(c->m, c->n, a, tau, order);
    NAME(store)(a, out[0], b * c->m * c->n, c->m, c->n);
    NAME(store)(tau, out[pivots ? 2 : 1], b * least, least, 1);
}
static void NAME(run_q)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                        struct literal *const *out, struct arena *tmp) {
    const struct shape *s = in[1]->shape, *of = out[0]->shape;
    int64_t k = s->dims[s->rank - 1], m = of->dims[of->rank - 2], n = of->dims[of->rank - 1];
    T *a = NAME(room)(tmp, c->m * c->n), *tau = NAME(room)(tmp, k), *x = a;
    NAME(load)(a, in[0], b * c->m * c->n, c->m, c->n);
    NAME(load)(tau, in[1], b * k, k, 1);
    if (c->kind == LAPACK_ORGQR)
        NAME(unit_columns)(m, n, k, a, tau);
    else {
        x = NAME(room)(tmp, m * n);
        NAME(load)(x, in[2], b * m * n, m, n);
        NAME(times_q)(c->left, c->adjoint, m, n, k, a, c->m, tau, x, NAME(room)(tmp, m));
    }
    NAME(store)(x, out[0], b * m * n, m, n);
}
static void NAME(run_eigh)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                           struct literal *const *out, struct arena *tmp) {
    int64_t n = c->n;
    T *a = NAME(room)(tmp, n * n), *work = NAME(room)(tmp, 2 * n);
    double *w = lapack_room_r(tmp, n), *e = lapack_room_r(tmp, n);
    NAME(load)(a, in[0], b * n * n, n, n);
    for (int64_t j = 0; c->upper && j < n; j++)
        for (int64_t r = j + 1; r < n; r++)
            a[j * n + r] = CJ(a[r * n + j]);
    bool good = NAME(eigh)(n, a, w, e, work);
    NAME(store)(a, out[0], b * n * n, n, n);
    lapack_store_r(w, out[1], b * n, n, 1);
    lit_set_i64(out[2], b, good ? 0 : 1);
}
// A matrix with more columns than rows: the conjugate transpose's vectors change places.
static void NAME(run_svd)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                          struct literal *const *out, struct arena *tmp) {
    bool turned = c->m < c->n;
    int64_t m = turned ? c->n : c->m, n = turned ? c->m : c->n;
    const struct shape *us = out[2]->shape, *vs = out[3]->shape;
    int64_t u_columns = us->dims[us->rank - 1], v_rows = vs->dims[vs->rank - 2];
    int64_t columns = turned ? v_rows : u_columns;
    T *a = NAME(room)(tmp, m * n),
      *t = NAME(room)(tmp, turned ? v_rows * m : m * n); // the matrix, then V^H
    struct NAME(svd) x = {.m = m,
                          .n = n,
                          .s = lapack_room_r(tmp, n),
                          .e = lapack_room_r(tmp, n),
                          .u = c->left_vectors ? NAME(room)(tmp, m * columns) : NULL,
                          .v = NAME(room)(tmp, n * n)};
    NAME(load)(t, in[0], b * m * n, c->m, c->n);
    for (int64_t j = 0; j < n; j++)
        for (int64_t r = 0; r < m; r++)
            a[j * m + r] = turned ? CJ(t[r * n + j]) : t[j * m + r];
    bool good = NAME(svd_run)(&x, a, columns, NAME(room)(tmp, 2 * n + m));
    lapack_store_r(x.s, out[1], b * n, n, 1);
    lit_set_i64(out[4], b, good ? 0 : 1);
    if (!x.u) return;
    const T *v = turned ? x.u : x.v; // its rows' conjugates are V^H's
    for (int64_t r = 0; r < v_rows; r++)
        for (int64_t j = 0; j < c->n; j++)
            t[j * v_rows + r] = CJ(v[r * c->n + j]);
    NAME(store)(turned ? x.v : x.u, out[2], b * c->m * u_columns, c->m, u_columns);
    NAME(store)(t, out[3], b * v_rows * c->n, v_rows, c->n);
}
static void NAME(reverse)(T *x, int64_t n) {
    for (int64_t k = 0; k < n / 2; k++) {
        T t = x[k];
        x[k] = x[n - 1 - k], x[n - 1 - k] = t;
    }
}
// The upper half's form is that of the matrix from its end on.
static void NAME(run_forms)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                            struct literal *const *out, struct arena *tmp) {
    int64_t n = c->n, off = n ? n - 1 : 0;
    T *a = NAME(room)(tmp, n * n), *tau = NAME(room)(tmp, n), *work = NAME(room)(tmp, n);
    NAME(load)(a, in[0], b * n * n, n, n);
    if (c->kind == LAPACK_GEHRD) {
        NAME(hessenberg)(n, a, tau, work);
        NAME(store)(tau, out[1], b * off, off, 1);
    } else {
        double *d = lapack_room_r(tmp, n), *e = lapack_room_r(tmp, n);
        if (c->upper) NAME(reverse)(a, n * n);
        NAME(tridiagonal)(n, a, d, e, tau, work);
        for (int64_t k = 0; k < n; k++)
            a[k * n + k] = d[k];
        if (c->upper) {
            NAME(reverse)(a, n * n);
            lapack_reverse_r(d, n);
            lapack_reverse_r(e, off);
            NAME(reverse)(tau, off);
        }
        lapack_store_r(d, out[1], b * n, n, 1);
        lapack_store_r(e, out[2], b * off, off, 1);
        NAME(store)(tau, out[3], b * off, off, 1);
    }
    NAME(store)(a, out[0], b * n * n, n, n);
}
static void NAME(run_gtsv)(const struct lapack_call *c, int64_t b, struct literal *const *in,
                           struct literal *const *out, struct arena *tmp) {
    T *d[3], *x = NAME(room)(tmp, c->m * c->n);
    for (int k = 0; k < 3; k++) {
        d[k] = NAME(room)(tmp, c->m);
        NAME(load)(d[k], in[k], b * c->m, c->m, 1);
    }
    // JAX's lower diagonal begins with a number that is not used.
    if (c->m) memmove(d[0], d[0] + 1, sizeof(T) * (size_t)(c->m - 1));
    NAME(load)(x, in[3], b * c->m * c->n, c->m, c->n);
    int info = NAME(tridiagonal_solve)(c->m, c->n, d[0], d[1], d[2], x);
    if (c->m) memmove(d[0] + 1, d[0], sizeof(T) * (size_t)(c->m - 1));
    for (int k = 0; k < 3; k++)
        NAME(store)(d[k], out[k], b * c->m, c->m, 1);
    NAME(store)(x, out[3], b * c->m * c->n, c->m, c->n);
    lit_set_i64(out[4], b, info);
}
#undef T
#undef NAME
#undef HALF
#undef CJ
#undef RE
#undef IM
#undef SIZE
#undef ABS
