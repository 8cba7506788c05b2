// SPDX-License-Identifier: Apache-2.0
// lapack_body: matrix decompositions of one matrix in columns, for T = double or double complex
// (included once for each by lapack_math.c). Reflectors, pivots and factors are LAPACK's, so that
// what it leaves free (signs) comes out alike: Golub and Van Loan, "Matrix Computations", chapters
// 3, 5 and 7; LAPACK Users' Guide, section 5.4. Macros: T, NAME(n), CJ(x), RE(x), IM(x), ABS(x),
// SIZE(x) as LAPACK compares pivots. Does not: work in blocks.
#ifndef NAME // alone
#include "compiler/ops/linalg/lapack_real.h"
#endif

// H = I - tau v v^H with H^H (alpha, x) = (beta, 0) and v = (1, x'). Gives tau; *alpha is beta, x
// becomes x'. n: elements with alpha.
static T NAME(reflector)(int64_t n, T *alpha, T *x, int64_t step) {
    double norm = 0;
    for (int64_t k = 0; k + 1 < n; k++)
        norm = hypot(norm, ABS(x[k * step]));
    if (n < 1 || (norm == 0 && IM(*alpha) == 0)) return 0;
    double beta = -copysign(hypot(hypot(RE(*alpha), IM(*alpha)), norm), RE(*alpha));
    T tau = (beta - *alpha) / beta;
    for (int64_t k = 0; k + 1 < n; k++)
        x[k * step] /= *alpha - beta;
    *alpha = beta;
    return tau;
}
// c -= tau v (v^H c): m rows, n columns; v[0] is taken as 1.
static void NAME(from_left)(int64_t m, int64_t n, const T *v, T tau, T *c, int64_t ld) {
    for (int64_t j = 0; j < n && tau != 0; j++, c += ld) {
        T s = c[0];
        for (int64_t k = 1; k < m; k++)
            s += CJ(v[k]) * c[k];
        s *= tau;
        c[0] -= s;
        for (int64_t k = 1; k < m; k++)
            c[k] -= s * v[k];
    }
}
// c -= tau (c v) v^H: m rows, n columns; v[0] is taken as 1. w: room for m.
static void NAME(from_right)(int64_t m, int64_t n, const T *v, int64_t step, T tau, T *c,
                             int64_t ld, T *w) {
    if (tau == 0) return;
    memset(w, 0, sizeof *w * (size_t)m);
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = 0; k < m; k++)
            w[k] += c[j * ld + k] * (j ? v[j * step] : 1);
    for (int64_t j = 0; j < n; j++) {
        T s = tau * (j ? CJ(v[j * step]) : 1);
        for (int64_t k = 0; k < m; k++)
            c[j * ld + k] -= w[k] * s;
    }
}

// P A = L U by rows exchanged; pivot counts from 1. Gives the first zero pivot's number, or 0.
int NAME(lu)(int64_t m, int64_t n, T *a, int32_t *pivot) {
    int64_t least = m < n ? m : n;
    int info = 0;
    for (int64_t k = 0; k < least; k++) {
        int64_t p = k;
        for (int64_t r = k + 1; r < m; r++)
            if (SIZE(a[k * m + r]) > SIZE(a[k * m + p])) p = r;
        pivot[k] = (int32_t)p + 1;
        if (a[k * m + p] == 0) {
            if (!info) info = (int)k + 1;
            continue;
        }
        for (int64_t j = 0; p != k && j < n; j++) {
            T t = a[j * m + k];
            a[j * m + k] = a[j * m + p], a[j * m + p] = t;
        }
        for (int64_t r = k + 1; r < m; r++)
            a[k * m + r] /= a[k * m + k];
        for (int64_t j = k + 1; j < n; j++) {
            T s = a[j * m + k];
            T *restrict to = a + j * m;
            const T *restrict l = a + k * m;
            for (int64_t r = k + 1; s != 0 && r < m; r++)
                to[r] -= s * l[r];
        }
    }
    return info;
}

// A = H1 H2 ... R: reflectors below the diagonal, their factors in tau. With `order`, columns are
// exchanged so that the diagonal of R falls, and order[j] counts from 1.
static void NAME(exchange)(int64_t m, int64_t n, T *a, int64_t k, int32_t *order) {
    int64_t best = k;
    double most = -1;
    for (int64_t j = k; j < n; j++) {
        double norm = 0;
        for (int64_t r = k; r < m; r++)
            norm = hypot(norm, ABS(a[j * m + r]));
        if (norm > most) most = norm, best = j;
    }
    if (best == k) return;
    for (int64_t r = 0; r < m; r++) {
        T t = a[k * m + r];
        a[k * m + r] = a[best * m + r], a[best * m + r] = t;
    }
    int32_t t = order[k];
    order[k] = order[best], order[best] = t;
}
void NAME(qr)(int64_t m, int64_t n, T *a, T *tau, int32_t *order) {
    for (int64_t k = 0; k < m && k < n; k++) {
        if (order) NAME(exchange)(m, n, a, k, order);
        T *v = a + k * m + k;
        tau[k] = NAME(reflector)(m - k, v, v + 1, 1);
        NAME(from_left)(m - k, n - k - 1, v, CJ(tau[k]), v + m, m);
    }
}
// The first n columns of H1 ... Hk in place of the reflectors (m rows).
void NAME(unit_columns)(int64_t m, int64_t n, int64_t k, T *a, const T *tau) {
    for (int64_t j = k; j < n; j++)
        for (int64_t r = 0; r < m; r++)
            a[j * m + r] = r == j;
    for (int64_t i = k; i-- > 0;) {
        T *v = a + i * m + i;
        NAME(from_left)(m - i, n - i - 1, v, tau[i], v + m, m);
        for (int64_t r = 1; r < m - i; r++)
            v[r] *= -tau[i];
        v[0] = 1 - tau[i];
        for (int64_t r = 0; r < i; r++)
            a[i * m + r] = 0;
    }
}
// c = op(Q) c or c op(Q) with Q = H1 ... Hk (reflectors in columns of a of `rows` rows).
void NAME(times_q)(bool left, bool adjoint, int64_t m, int64_t n, int64_t k, const T *a,
                   int64_t rows, const T *tau, T *c, T *work) {
    for (int64_t e = 0; e < k; e++) {
        int64_t i = left == adjoint ? e : k - 1 - e;
        T t = adjoint ? CJ(tau[i]) : tau[i];
        if (left)
            NAME(from_left)(m - i, n, a + i * rows + i, t, c + i, m);
        else
            NAME(from_right)(m, n - i, a + i * rows + i, 1, t, c + i * m, m, work);
    }
}

// Hessenberg form: reflectors below the first subdiagonal.
void NAME(hessenberg)(int64_t n, T *a, T *tau, T *work) {
    for (int64_t k = 0; k + 1 < n; k++) {
        T *v = a + k * n + k + 1;
        tau[k] = NAME(reflector)(n - k - 1, v, v + 1, 1);
        NAME(from_right)(n, n - k - 1, v, 1, tau[k], a + (k + 1) * n, n, work);
        NAME(from_left)(n - k - 1, n - k - 1, v, CJ(tau[k]), v + n, n);
    }
}
// Tridiagonal form of the lower triangle: diagonal d, subdiagonal e, reflectors below it.
void NAME(tridiagonal)(int64_t n, T *a, double *d, double *e, T *tau, T *w) {
    for (int64_t k = 0; k + 1 < n; k++) {
        T *v = a + k * n + k + 1, *b = a + (k + 1) * n + k + 1, dot = 0;
        int64_t m = n - k - 1;
        tau[k] = NAME(reflector)(m, v, v + 1, 1);
        e[k] = RE(v[0]);
        v[0] = 1;

        memset(w, 0, sizeof *w * (size_t)m);
        for (int64_t j = 0; j < m; j++) { // w = b v of the lower triangle
            const T *col = b + j * n;
            T s = RE(col[j]) * v[j];
            for (int64_t r = j + 1; r < m; r++) {
                w[r] += col[r] * v[j];
                s += CJ(col[r]) * v[r];
            }
            w[j] += s;
        }

        for (int64_t r = 0; r < m; r++) {
            w[r] *= tau[k];
            dot += CJ(w[r]) * v[r];
        }

        for (int64_t r = 0; r < m; r++)
            w[r] -= 0.5 * tau[k] * dot * v[r];
        for (int64_t j = 0; j < m; j++)
            for (int64_t r = j; r < m; r++)
                b[j * n + r] -= v[r] * CJ(w[j]) + w[r] * CJ(v[j]);
        v[0] = e[k];
    }

    for (int64_t k = 0; k < n; k++)
        d[k] = RE(a[k * n + k]);
}
// Q of a form whose reflectors begin one row below the diagonal, in place.
void NAME(unit_shifted)(int64_t n, T *a, const T *tau) {
    for (int64_t j = n - 1; j > 0; j--)
        for (int64_t r = 0; r < n; r++)
            a[j * n + r] = r > j ? a[(j - 1) * n + r] : 0;
    for (int64_t r = 0; r < n; r++)
        a[r] = r == 0;
    for (int64_t i = n - 1; i-- > 0;) {
        T *v = a + (i + 1) * n + i + 1;
        int64_t m = n - i - 1;
        NAME(from_left)(m, m - 1, v, tau[i], v + n, n);
        for (int64_t r = 1; r < m; r++)
            v[r] *= -tau[i];
        v[0] = 1 - tau[i];
    }
}
