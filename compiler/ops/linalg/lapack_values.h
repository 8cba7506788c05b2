// SPDX-License-Identifier: Apache-2.0
// lapack_values: eigenvalues of Hermitian matrices, and singular values, for
// T = double or double complex (included behind lapack_body.h, with its macros, which end here).
// The signs (phases) of eigenvectors and singular vectors are free. Golub and Van Loan, "Matrix
// Computations", chapter 8.
#ifndef NAME // alone
#include "compiler/ops/linalg/lapack_body.h"
#endif

static void NAME(rotate)(int64_t n, T *restrict x, T *restrict y, double c, double s) {
    for (int64_t k = 0; k < n; k++) { // (x, y) = (c x + s y, c y - s x)
        T t = c * x[k] + s * y[k];
        y[k] = c * y[k] - s * x[k];
        x[k] = t;
    }
}
static void NAME(swap)(int64_t n, T *x, T *y) {
    for (int64_t k = 0; k < n; k++) {
        T t = x[k];
        x[k] = y[k], y[k] = t;
    }
}
// Eigenvalues of a symmetric tridiagonal matrix into d, rising; z's columns turn with it (implicit
// QL, Martin and Wilkinson 1968). False when it does not converge.
static bool NAME(ql)(int64_t n, double *d, double *e, T *z) {
    for (int64_t l = 0; l < n; l++)
        for (int turn = 0;; turn++) {
            int64_t m = l, i;
            while (m + 1 < n && !(fabs(e[m]) <= DBL_EPSILON * (fabs(d[m]) + fabs(d[m + 1]))))
                m++;
            if (m == l) break;
            if (turn == 60) return false;

            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = hypot(g, 1), s = 1, c = 1, p = 0;
            g = d[m] - d[l] + e[l] / (g + copysign(r, g));
            for (i = m - 1; i >= l; i--) {
                double f = s * e[i], b = c * e[i];
                r = hypot(f, g);
                e[i + 1] = r;
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                s = f / r, c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                NAME(rotate)(n, z + (i + 1) * n, z + i * n, c, s);
            }

            if (r == 0 && i >= l) continue;
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }

    for (int64_t k = 0; k < n; k++) {
        int64_t least = k;
        for (int64_t j = k + 1; j < n; j++)
            if (d[j] < d[least]) least = j;
        if (least == k) continue;
        double t = d[k];
        d[k] = d[least], d[least] = t;
        NAME(swap)(n, z + k * n, z + least * n);
    }
    return true;
}
// Eigenvectors in place of the lower triangle. work: room for 2 n.
bool NAME(eigh)(int64_t n, T *a, double *w, double *e, T *work) {
    NAME(tridiagonal)(n, a, w, e, work, work + n);
    NAME(unit_shifted)(n, a, work);
    return NAME(ql)(n, w, e, a);
}

// A = U S V^H of m >= n: s falling, U of m x columns, V of n x n; without u only s, v is lost.
static void NAME(bidiagonal)(struct NAME(svd) * x, T *a, int64_t columns, T *work) {
    int64_t m = x->m, n = x->n;
    T *tau = work, *right = work + n, *room = work + 2 * n;
    memset(x->v, 0, sizeof(T) * (size_t)(n * n));
    for (int64_t k = 0; k < n; k++) {
        T *v = a + k * m + k;
        tau[k] = NAME(reflector)(m - k, v, v + 1, 1);
        NAME(from_left)(m - k, n - k - 1, v, CJ(tau[k]), v + m, m);
        x->s[k] = RE(v[0]);
        x->e[k] = 0;
        if (k + 1 == n) break;
        T *row = x->v + k * n + k + 1; // the reflector of the row, where V's will be
        for (int64_t j = k + 1; j < n; j++)
            row[j - k - 1] = CJ(a[j * m + k]);
        right[k] = NAME(reflector)(n - k - 1, row, row + 1, 1);
        x->e[k] = RE(row[0]);
        NAME(from_right)(m - k - 1, n - k - 1, row, 1, right[k], v + m + 1, m, room);
    }
    if (!x->u) return;
    memcpy(x->u, a, sizeof(T) * (size_t)(m * n));
    NAME(unit_columns)(m, columns, n, x->u, tau);
    NAME(unit_shifted)(n, x->v, right);
}
// What of the bidiagonal matrix is done: 4 = the last value, 1 = the last is zero, 2 = value *k is
// zero, 3 = a step of QR from *k.
static int NAME(svd_case)(const struct NAME(svd) * x, int64_t p, int64_t *k) {
    int64_t at = p - 2, z;
    for (; at >= 0; at--)
        if (fabs(x->e[at]) <= DBL_MIN + DBL_EPSILON * (fabs(x->s[at]) + fabs(x->s[at + 1]))) {
            x->e[at] = 0;
            break;
        }
    *k = at + 1;
    if (at == p - 2) return 4;
    for (z = p - 1; z > at; z--) {
        double t = (z + 1 < p ? fabs(x->e[z]) : 0) + (z != at + 1 ? fabs(x->e[z - 1]) : 0);
        if (fabs(x->s[z]) <= DBL_MIN + DBL_EPSILON * t) {
            x->s[z] = 0;
            break;
        }
    }
    if (z == at) return 3;
    if (z == p - 1) return 1;
    *k = z + 1;
    return 2;
}
static void NAME(turn_columns)(struct NAME(svd) * x, bool u, int64_t j, int64_t k, double c,
                               double s) {
    if (!x->u) return;
    if (u)
        NAME(rotate)(x->m, x->u + j * x->m, x->u + k * x->m, c, s);
    else
        NAME(rotate)(x->n, x->v + j * x->n, x->v + k * x->n, c, s);
}
static void NAME(svd_zero_last)(struct NAME(svd) * x, int64_t p, int64_t k) {
    double f = x->e[p - 2], c, s;
    x->e[p - 2] = 0;
    for (int64_t j = p - 2; j >= k; j--) {
        x->s[j] = givens(x->s[j], f, &c, &s);
        if (j != k) {
            f = -s * x->e[j - 1];
            x->e[j - 1] *= c;
        }
        NAME(turn_columns)(x, false, j, p - 1, c, s);
    }
}
static void NAME(svd_zero)(struct NAME(svd) * x, int64_t p, int64_t k) {
    double f = x->e[k - 1], c, s;
    x->e[k - 1] = 0;
    for (int64_t j = k; j < p; j++) {
        x->s[j] = givens(x->s[j], f, &c, &s);
        f = -s * x->e[j];
        x->e[j] *= c;
        NAME(turn_columns)(x, true, j, k - 1, c, s);
    }
}
static void NAME(svd_step)(struct NAME(svd) * x, int64_t p, int64_t k) {
    double *s = x->s, *e = x->e, cs, sn;
    double scale = fmax(fmax(fabs(s[p - 1]), fabs(s[p - 2])), fmax(fabs(e[p - 2]), fabs(s[k])));
    scale = fmax(scale, fabs(e[k]));
    double last = s[p - 1] / scale, before = s[p - 2] / scale, off = e[p - 2] / scale,
           first = s[k] / scale, shift = 0;
    double b = ((before + last) * (before - last) + off * off) / 2, c = last * off * (last * off);
    if (b != 0 || c != 0) shift = c / (b + copysign(sqrt(b * b + c), b));
    double f = (first + last) * (first - last) + shift, g = first * (e[k] / scale);
    for (int64_t j = k; j < p - 1; j++) {
        double t = givens(f, g, &cs, &sn);
        if (j != k) e[j - 1] = t;
        f = cs * s[j] + sn * e[j];
        e[j] = cs * e[j] - sn * s[j];
        g = sn * s[j + 1];
        s[j + 1] *= cs;
        NAME(turn_columns)(x, false, j, j + 1, cs, sn);
        s[j] = givens(f, g, &cs, &sn);
        f = cs * e[j] + sn * s[j + 1];
        s[j + 1] = cs * s[j + 1] - sn * e[j];
        g = sn * e[j + 1];
        e[j + 1] *= cs;
        NAME(turn_columns)(x, true, j, j + 1, cs, sn);
    }
    e[p - 2] = f;
}
static void NAME(svd_place)(struct NAME(svd) * x, int64_t k) {
    if (x->s[k] <= 0) {
        x->s[k] = -x->s[k] + 0.0;
        for (int64_t r = 0; x->u && r < x->n; r++)
            x->v[k * x->n + r] *= -1;
    }
    for (; k + 1 < x->n && x->s[k] < x->s[k + 1]; k++) {
        double t = x->s[k];
        x->s[k] = x->s[k + 1], x->s[k + 1] = t;
        if (!x->u) continue;
        NAME(swap)(x->n, x->v + k * x->n, x->v + (k + 1) * x->n);
        NAME(swap)(x->m, x->u + k * x->m, x->u + (k + 1) * x->m);
    }
}
// a is lost; x->u has `columns` columns. work: room for 2 n + m. Golub and Reinsch 1970.
bool NAME(svd_run)(struct NAME(svd) * x, T *a, int64_t columns, T *work) {
    NAME(bidiagonal)(x, a, columns, work);
    int64_t k, turns = 0;
    for (int64_t p = x->n; p > 0;) {
        int which = NAME(svd_case)(x, p, &k);
        if (which == 4) {
            NAME(svd_place)(x, p - 1);
            p--;
            turns = 0;
            continue;
        }
        if (++turns > 100) return false;
        if (which == 1)
            NAME(svd_zero_last)(x, p, k);
        else if (which == 2)
            NAME(svd_zero)(x, p, k);
        else
            NAME(svd_step)(x, p, k);
    }
    return true;
}
#undef T
#undef NAME
#undef CJ
#undef RE
#undef IM
#undef SIZE
#undef ABS
#undef HALF
