// SPDX-License-Identifier: Apache-2.0
// lapack_math: decompositions of one matrix in columns, in double (suffix r) and complex double
// (suffix c); what each does stands in lapack_body.h. Nothing here allocates; sizes are the
// caller's word.
#pragma once
#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

#define LAPACK_MATH(T, kind)                                                                       \
    struct lapack_svd_##kind {                                                                     \
        int64_t m, n;                                                                              \
        double *s, *e;                                                                             \
        T *u, *v;                                                                                  \
    };                                                                                             \
    int lapack_lu_##kind(int64_t m, int64_t n, T *a, int32_t *pivot);                              \
    void lapack_qr_##kind(int64_t m, int64_t n, T *a, T *tau, int32_t *order);                     \
    void lapack_unit_columns_##kind(int64_t m, int64_t n, int64_t k, T *a, const T *tau);          \
    void lapack_times_q_##kind(bool left, bool adjoint, int64_t m, int64_t n, int64_t k,           \
                               const T *a, int64_t rows, const T *tau, T *c, T *work);             \
    void lapack_hessenberg_##kind(int64_t n, T *a, T *tau, T *work);                               \
    void lapack_tridiagonal_##kind(int64_t n, T *a, double *d, double *e, T *tau, T *w);           \
    void lapack_unit_shifted_##kind(int64_t n, T *a, const T *tau);                                \
    bool lapack_eigh_##kind(int64_t n, T *a, double *w, double *e, T *work);                       \
    bool lapack_svd_run_##kind(struct lapack_svd_##kind *x, T *a, int64_t columns, T *work);       \
    int lapack_tridiagonal_solve_##kind(int64_t n, int64_t columns, T *dl, T *d, T *du, T *b);
LAPACK_MATH(double, r)
LAPACK_MATH(double complex, c)
// General matrices: h, a Hessenberg form, becomes upper triangular (Schur's form, real: with blocks
// of two), q turns with it. False when it does not converge.
bool lapack_schur_c(int64_t n, double complex *h, double complex *q);
// x becomes of norm 1, with its largest element real.
void lapack_unit_vector(int64_t n, double complex *x);
// Eigenvectors of an upper triangular matrix times q, of norm 1 with the largest element real.
// room: n.
void lapack_triangle_vectors(int64_t n, const double complex *t, const double complex *q,
                             double complex *v, double complex *room);
// h: Hessenberg form, becomes triangular but for blocks of two; v turns with it. Eigenvalues
// (re, im) in the order of the diagonal, of a pair the positive imaginary part first.
bool lapack_eigen_r(int64_t n, double *h, double *v, double *re, double *im);
// The same as a complex triangle.
void lapack_schur_from_real(int64_t n, const double *h, const double *v, const double *re,
                            const double *im, double complex *t, double complex *q);
