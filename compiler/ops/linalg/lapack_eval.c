// SPDX-License-Identifier: Apache-2.0
// The calls of LAPACK that HLO has no operation for, on literals: computed in double whatever the
// type. Eigenvectors and singular vectors are right up to sign (phase), as LAPACK leaves them free.

#include "compiler/ops/linalg/lapack_cases.h"
#define T       double complex
#define NAME(n) lapack_##n##_c
#define HALF    float complex
#define CJ(x)   conj(x)
#include "compiler/ops/linalg/lapack_cases.h"

// ---- eigenvalues of general matrices

typedef double complex cplx;
struct eigen {
    int64_t n;
    cplx *t, *q, *v; // Schur's form and vectors; eigenvectors
    double *re, *im, *h, *z; // of a real matrix: eigenvalues, Schur's form and vectors
};
// A block of two at row e - 1 of a real Schur form gets equal diagonal elements, as LAPACK has it.
static void equal_diagonal(const struct eigen *x, int64_t e) {
    int64_t n = x->n;
    double *first = x->h + (e - 1) * n, *second = x->h + e * n;
    double angle = 0.5 * atan2(second[e] - first[e - 1], second[e - 1] + first[e]);
    double c = cos(angle), s = sin(angle);
    for (int64_t j = e - 1; j < n; j++) {
        double *at = x->h + j * n + e - 1, u = at[0], v = at[1];
        at[0] = c * u + s * v, at[1] = c * v - s * u;
    }
    for (int64_t r = 0; r < n; r++) {
        double u = first[r], v = second[r], y = x->z[(e - 1) * n + r], z = x->z[e * n + r];
        if (r <= e) first[r] = c * u + s * v, second[r] = c * v - s * u;
        x->z[(e - 1) * n + r] = c * y + s * z, x->z[e * n + r] = c * z - s * y;
    }
}
static void real_schur_form(const struct eigen *x) {
    int64_t n = x->n;
    for (int64_t j = 0; j < n; j++)
        for (int64_t r = j + 1; r < n; r++)
            if (r > j + 1 || !(x->im[j] > 0)) x->h[j * n + r] = 0;
    for (int64_t e = 1; e < n; e++)
        if (x->im[e - 1] > 0) equal_diagonal(x, e);
}
// Of a matrix in columns, which is lost.
static bool eigen_of(struct eigen *x, cplx *a, bool real, struct arena *tmp) {
    int64_t n = x->n;
    x->t = lapack_room_c(tmp, n * n);
    x->q = lapack_room_c(tmp, n * n);
    if (real) {
        double *h = lapack_room_r(tmp, n * n), *v = lapack_room_r(tmp, n * n),
               *tau = lapack_room_r(tmp, 2 * n);
        x->re = lapack_room_r(tmp, n);
        x->im = lapack_room_r(tmp, n);
        for (int64_t k = 0; k < n * n; k++)
            h[k] = creal(a[k]);
        lapack_hessenberg_r(n, h, tau, tau + n);
        memcpy(v, h, sizeof *v * (size_t)(n * n));
        lapack_unit_shifted_r(n, v, tau);
        if (!lapack_eigen_r(n, h, v, x->re, x->im)) return false;
        lapack_schur_from_real(n, h, v, x->re, x->im, x->t, x->q);
        x->h = h, x->z = v;
        real_schur_form(x);
        return true;
    }
    cplx *tau = lapack_room_c(tmp, 2 * n);
    lapack_hessenberg_c(n, a, tau, tau + n);
    memcpy(x->q, a, sizeof *a * (size_t)(n * n));
    lapack_unit_shifted_c(n, x->q, tau);
    for (int64_t k = 0; k < n * n; k++)
        x->t[k] = k % n > k / n + 1 ? 0 : a[k];
    return lapack_schur_c(n, x->t, x->q);
}
// Left eigenvectors: columns of the inverse of v^H, of norm 1 with the largest element real.
static void left_vectors(const struct eigen *x, cplx *to, struct arena *tmp) {
    int64_t n = x->n;
    cplx *lu = lapack_room_c(tmp, n * n);
    int32_t *pivot = arena_array(tmp, int32_t, n + 1);
    for (int64_t k = 0; k < n * n; k++)
        lu[k] = conj(x->v[k % n * n + k / n]);
    lapack_lu_c(n, n, lu, pivot);
    for (int64_t j = 0; j < n; j++) {
        cplx *b = to + j * n;
        for (int64_t k = 0; k < n; k++)
            b[k] = k == j;
        for (int64_t k = 0; k < n; k++) {
            cplx t = b[k];
            b[k] = b[pivot[k] - 1], b[pivot[k] - 1] = t;
        }
        for (int64_t k = 0; k < n; k++)
            for (int64_t r = k + 1; r < n; r++)
                b[r] -= b[k] * lu[k * n + r];
        for (int64_t k = n; k-- > 0;) {
            b[k] /= lu[k * n + k];
            for (int64_t r = 0; r < k; r++)
                b[r] -= b[k] * lu[k * n + r];
        }
        lapack_unit_vector(n, b);
    }
}
static void run_eigen(const struct lapack_call *c, int64_t b, struct literal *const *in,
                      struct literal *const *out, struct arena *tmp) {
    bool real = !dtype_is_complex(in[0]->shape->dtype);
    int64_t n = c->n, k = 0;
    struct eigen x = {.n = n};

    cplx *a = lapack_room_c(tmp, n * n), *w = lapack_room_c(tmp, n), *room = lapack_room_c(tmp, n);
    if (real) {
        double *h = lapack_room_r(tmp, n * n);
        lapack_load_r(h, in[0], b * n * n, n, n);
        for (int64_t e = 0; e < n * n; e++)
            a[e] = h[e];
    } else
        lapack_load_c(a, in[0], b * n * n, n, n);

    bool good = eigen_of(&x, a, real, tmp);
    for (int64_t e = 0; e < n; e++)
        w[e] = x.t[e * n + e];

    if (c->kind == LAPACK_GEES && real) {
        if (good) lapack_store_r(x.h, out[0], b * n * n, n, n);
        if (good) lapack_store_r(x.z, out[1], b * n * n, n, n);
        lapack_store_r(x.re, out[2], b * n, n, 1);
        lapack_store_r(x.im, out[3], b * n, n, 1);
        lit_set_i64(out[5], b, good ? 0 : 1);
        return;
    }
    if (c->kind == LAPACK_GEES) {
        lapack_store_c(x.t, out[0], b * n * n, n, n);
        lapack_store_c(x.q, out[1], b * n * n, n, n);
        lapack_store_c(w, out[2], b * n, n, 1);
        lit_set_i64(out[4], b, good ? 0 : 1);
        return;
    }

    if (real) {
        lapack_store_r(x.re, out[k++], b * n, n, 1);
        lapack_store_r(x.im, out[k++], b * n, n, 1);
    } else
        lapack_store_c(w, out[k++], b * n, n, 1);

    if (good && (c->left_vectors || c->right_vectors)) {
        x.v = lapack_room_c(tmp, n * n);
        lapack_triangle_vectors(n, x.t, x.q, x.v, room);
        if (c->right_vectors) lapack_store_c(x.v, out[k + 1], b * n * n, n, n);
        if (c->left_vectors) left_vectors(&x, a, tmp);
        if (c->left_vectors) lapack_store_c(a, out[k], b * n * n, n, n);
    }
    lit_set_i64(out[k + 2], b, good ? 0 : 1);
}

// ---- calls

// Results of a call that is made for finite numbers only; 0: made for all.
static int finite_results(enum lapack_kind kind, bool real) {
    switch (kind) {
    case LAPACK_SYEVD:
        return 3;
    case LAPACK_GESDD:
    case LAPACK_GESVD:
        return 5;
    case LAPACK_GEEV:
        return real ? 5 : 4;
    case LAPACK_GEES:
        return real ? 6 : 5;
    default:
        return 0;
    }
}
static bool is_finite(const struct literal *x, int64_t begin, int64_t n) {
    double v[2];
    for (int64_t k = begin; k < begin + n; k++) {
        lit_get_c128(x, k, v);
        if (!isfinite(v[0]) || !isfinite(v[1])) return false;
    }
    return true;
}
static void set_no_values(int64_t b, int64_t batch, struct literal *const *out, int n) {
    for (int k = 0; k < n; k++) {
        int64_t each = shape_elements(out[k]->shape) / batch;
        for (int64_t e = b * each; e < (b + 1) * each; e++)
            if (out[k]->shape->dtype == DT_S32)
                lit_set_i64(out[k], e, -1);
            else if (dtype_is_complex(out[k]->shape->dtype))
                lit_set_c128(out[k], e, NAN, NAN);
            else
                lit_set_f64(out[k], e, NAN);
    }
}
status_t lapack_run(const struct lapack_call *c, struct literal *const *in,
                    struct literal *const *out) {
    typedef void (*fn)(const struct lapack_call *, int64_t, struct literal *const *,
                       struct literal *const *, struct arena *);
    static const fn all[][2] = {[LAPACK_GETRF] = {lapack_run_lu_r, lapack_run_lu_c},
                                [LAPACK_GEQRF] = {lapack_run_qr_r, lapack_run_qr_c},
                                [LAPACK_GEQP3] = {lapack_run_qr_r, lapack_run_qr_c},
                                [LAPACK_ORGQR] = {lapack_run_q_r, lapack_run_q_c},
                                [LAPACK_ORMQR] = {lapack_run_q_r, lapack_run_q_c},
                                [LAPACK_SYEVD] = {lapack_run_eigh_r, lapack_run_eigh_c},
                                [LAPACK_GESDD] = {lapack_run_svd_r, lapack_run_svd_c},
                                [LAPACK_GESVD] = {lapack_run_svd_r, lapack_run_svd_c},
                                [LAPACK_GEEV] = {run_eigen, run_eigen},
                                [LAPACK_GEES] = {run_eigen, run_eigen},
                                [LAPACK_GEHRD] = {lapack_run_forms_r, lapack_run_forms_c},
                                [LAPACK_SYTRD] = {lapack_run_forms_r, lapack_run_forms_c},
                                [LAPACK_GTSV] = {lapack_run_gtsv_r, lapack_run_gtsv_c}};
    size_t k = (size_t)c->kind;
    fn f = k < sizeof all / sizeof all[0] ? all[k][dtype_is_complex(in[0]->shape->dtype) ? 1 : 0]
                                          : NULL;
    if (!f) return st_internal("no such call of LAPACK");

    int finite = finite_results(c->kind, !dtype_is_complex(in[0]->shape->dtype));
    for (int64_t b = 0; b < c->batch; b++) {
        struct arena tmp = {0};
        if (finite && !is_finite(in[0], b * c->m * c->n, c->m * c->n)) {
            set_no_values(b, c->batch, out, finite);
            continue;
        }
        f(c, b, in, out, &tmp);
        arena_done(&tmp);
    }
    return ST_OK;
}
