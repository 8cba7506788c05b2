// SPDX-License-Identifier: Apache-2.0
// lapack_body.h, lapack_solve.h and lapack_values.h for real and complex numbers, and eigenvalues
// of general matrices: by QR with double shifts (real; Peters and Wilkinson, "Eigenvectors of real
// and complex matrices by LR and QR triangularizations", 1970) and single shifts (complex).
#include "compiler/ops/linalg/lapack_math.h"

#include "compiler/ops/linalg/lapack_real.h"

#include "compiler/ops/linalg/lapack_body.h"
#include "compiler/ops/linalg/lapack_solve.h"
#include "compiler/ops/linalg/lapack_values.h"
#define T       double complex
#define NAME(n) lapack_##n##_c
#define CJ(x)   conj(x)
#define RE(x)   creal(x)
#define IM(x)   cimag(x)
#define ABS(x)  cabs(x)
#define SIZE(x) (fabs(creal(x)) + fabs(cimag(x)))
#include "compiler/ops/linalg/lapack_body.h"
#include "compiler/ops/linalg/lapack_solve.h"
#include "compiler/ops/linalg/lapack_values.h"

// ---- general complex matrices

typedef double complex cplx;
enum { TURNS = 60 };

static double size_of(cplx x) {
    return fabs(creal(x)) + fabs(cimag(x));
}
// The eigenvalue of the last two rows' block nearest the last element.
static cplx shift_of(int64_t n, const cplx *h, int64_t e) {
    cplx a = h[(e - 1) * n + e - 1], b = h[e * n + e - 1], c = h[(e - 1) * n + e], d = h[e * n + e],
         half = (a - d) / 2, root = csqrt(half * half + b * c);
    if (creal(half) * creal(root) + cimag(half) * cimag(root) < 0) root = -root;
    cplx sum = half + root;
    return sum == 0 ? d : d - b * c / sum;
}
// One sweep over rows l to e: rotations from the left, then from the right.
static void sweep(int64_t n, cplx *h, cplx *q, int64_t l, int64_t e, cplx shift) {
    for (int64_t k = l; k <= e; k++)
        h[k * n + k] -= shift;

    double c = 1;
    cplx s = 0;

    for (int64_t k = l; k <= e; k++) {
        double c0 = c;
        cplx s0 = s;
        if (k < e) { // (f, g) becomes (r, 0)
            cplx f = h[k * n + k], g = h[k * n + k + 1];
            double r = hypot(cabs(f), cabs(g));
            c = r == 0 ? 1 : cabs(f) / r;
            cplx phase = f == 0 ? 1 : f / cabs(f);
            s = r == 0 ? 0 : phase * conj(g) / r;
            for (int64_t j = k; j < n; j++) {
                cplx x = h[j * n + k], y = h[j * n + k + 1];
                h[j * n + k] = c * x + s * y;
                h[j * n + k + 1] = c * y - conj(s) * x;
            }
        }

        if (k == l) continue;
        cplx *x = h + (k - 1) * n, *y = h + k * n; // the rotation before, on columns k - 1 and k
        for (int64_t r = 0; r <= k; r++) {
            cplx t = c0 * x[r] + conj(s0) * y[r];
            y[r] = c0 * y[r] - s0 * x[r];
            x[r] = t;
        }
        x = q + (k - 1) * n, y = q + k * n;
        for (int64_t r = 0; r < n; r++) {
            cplx t = c0 * x[r] + conj(s0) * y[r];
            y[r] = c0 * y[r] - s0 * x[r];
            x[r] = t;
        }
    }
    for (int64_t k = l; k <= e; k++)
        h[k * n + k] += shift;
}
bool lapack_schur_c(int64_t n, cplx *h, cplx *q) {
    int turn = 0;
    for (int64_t e = n - 1; e >= 0;) {
        int64_t l = e;
        for (; l > 0; l--) {
            double near = size_of(h[l * n + l]) + size_of(h[(l - 1) * n + l - 1]);
            if (size_of(h[(l - 1) * n + l]) <= fmax(DBL_EPSILON * near, DBL_MIN)) break;
        }
        if (l > 0) h[(l - 1) * n + l] = 0;
        if (l == e) {
            e--;
            turn = 0;
            continue;
        }
        if (++turn > TURNS) return false;
        cplx shift = turn % 10 ? shift_of(n, h, e) : h[e * n + e] + 0.75 * cabs(h[(e - 1) * n + e]);
        sweep(n, h, q, l, e, shift);
    }
    return true;
}
void lapack_unit_vector(int64_t n, cplx *x) {
    double sum = 0, most = 0;
    cplx phase = 1;
    for (int64_t r = 0; r < n; r++) {
        double s = cabs(x[r]);
        sum = hypot(sum, s);
        if (s > most) {
            most = s;
            phase = conj(x[r]) / s;
        }
    }
    for (int64_t r = 0; r < n && sum > 0; r++)
        x[r] *= phase / sum;
}
void lapack_triangle_vectors(int64_t n, const cplx *t, const cplx *q, cplx *v, cplx *x) {
    double norm = 0;
    for (int64_t k = 0; k < n * n; k++)
        norm = fmax(norm, size_of(t[k]));
    double least = fmax(norm * DBL_EPSILON, DBL_MIN);
    for (int64_t e = 0; e < n; e++) {
        cplx *to = v + e * n;
        for (int64_t r = 0; r <= e; r++)
            x[r] = r == e ? 1 : -t[e * n + r];
        for (int64_t r = e; r-- > 0;) {
            cplx by = t[r * n + r] - t[e * n + e];
            x[r] /= size_of(by) < least ? least : by;
            for (int64_t k = 0; k < r; k++)
                x[k] -= x[r] * t[r * n + k];
        }
        memset(to, 0, sizeof *to * (size_t)n);
        for (int64_t k = 0; k <= e; k++)
            for (int64_t r = 0; r < n; r++)
                to[r] += q[k * n + r] * x[k];
        lapack_unit_vector(n, to);
    }
}

// ---- general real matrices

struct real_qr {
    int64_t n, low; // low: first row of the block at hand
    double *h, *v, *re, *im, shifted, norm;
};
#define H(i, j) x->h[(j) * x->n + (i)]
#define V(i, j) x->v[(j) * x->n + (i)]
// The last two rows up to e are a block: two real eigenvalues, turned apart, or a pair.
static void real_pair(struct real_qr *x, int64_t e) {
    double w = H(e, e - 1) * H(e - 1, e), p = (H(e - 1, e - 1) - H(e, e)) / 2, q = p * p + w,
           z = sqrt(fabs(q));
    H(e, e) += x->shifted;
    H(e - 1, e - 1) += x->shifted;

    double last = H(e, e);

    if (q < 0) {
        x->re[e - 1] = x->re[e] = last + p;
        x->im[e - 1] = z, x->im[e] = -z;
        return;
    }

    z = p + copysign(z, p);
    x->re[e - 1] = last + z;
    x->re[e] = z != 0 ? last - w / z : last + z;
    x->im[e - 1] = x->im[e] = 0;

    double f = H(e, e - 1), c, s;
    givens(z, f, &c, &s); // (s, c) is the eigenvector of the second
    double cc = s, ss = c;

    for (int64_t j = e - 1; j < x->n; j++) {
        double t = H(e - 1, j);
        H(e - 1, j) = ss * t + cc * H(e, j);
        H(e, j) = ss * H(e, j) - cc * t;
    }
    for (int64_t i = 0; i <= e; i++) {
        double t = H(i, e - 1);
        H(i, e - 1) = ss * t + cc * H(i, e);
        H(i, e) = ss * H(i, e) - cc * t;
    }
    for (int64_t i = 0; i < x->n; i++) {
        double t = V(i, e - 1);
        V(i, e - 1) = ss * t + cc * V(i, e);
        V(i, e) = ss * V(i, e) - cc * t;
    }
}
// One double step on rows l to e, from the row where two small subdiagonals meet.
static void double_step(struct real_qr *x, int64_t l, int64_t e, double a, double b, double w) {
    double p = 0, q = 0, r = 0;
    int64_t m = e - 2;

    for (;; m--) {
        double z = H(m, m), f = a - z, g = b - z;
        p = (f * g - w) / H(m + 1, m) + H(m, m + 1);
        q = H(m + 1, m + 1) - z - f - g;
        r = H(m + 2, m + 1);
        double s = fabs(p) + fabs(q) + fabs(r);
        if (s > 0) p /= s, q /= s, r /= s;
        if (m <= l) break;
        if (fabs(H(m, m - 1)) * (fabs(q) + fabs(r)) <
            DBL_EPSILON * fabs(p) * (fabs(H(m - 1, m - 1)) + fabs(z) + fabs(H(m + 1, m + 1))))
            break;
    }

    for (int64_t i = m + 2; i <= e; i++) {
        H(i, i - 2) = 0;
        if (i > m + 2) H(i, i - 3) = 0;
    }

    for (int64_t k = m; k < e; k++) {
        bool three = k != e - 1;
        double scale = 1;
        if (k != m) {
            p = H(k, k - 1), q = H(k + 1, k - 1), r = three ? H(k + 2, k - 1) : 0;
            scale = fabs(p) + fabs(q) + fabs(r);
            if (scale == 0) break;
            p /= scale, q /= scale, r /= scale;
        }

        double s = copysign(sqrt(p * p + q * q + r * r), p);
        if (s == 0) continue;
        if (k != m)
            H(k, k - 1) = -s * scale;
        else if (l != m)
            H(k, k - 1) = -H(k, k - 1);

        p += s;
        double f = p / s, g = q / s, z = r / s;
        q /= p, r /= p;

        for (int64_t j = k; j < x->n; j++) {
            double t = H(k, j) + q * H(k + 1, j) + (three ? r * H(k + 2, j) : 0);
            H(k, j) -= t * f, H(k + 1, j) -= t * g;
            if (three) H(k + 2, j) -= t * z;
        }
        for (int64_t i = 0; i <= (e < k + 3 ? e : k + 3); i++) {
            double t = f * H(i, k) + g * H(i, k + 1) + (three ? z * H(i, k + 2) : 0);
            H(i, k) -= t, H(i, k + 1) -= t * q;
            if (three) H(i, k + 2) -= t * r;
        }
        for (int64_t i = 0; i < x->n; i++) {
            double t = f * V(i, k) + g * V(i, k + 1) + (three ? z * V(i, k + 2) : 0);
            V(i, k) -= t, V(i, k + 1) -= t * q;
            if (three) V(i, k + 2) -= t * r;
        }
    }
}
static bool real_schur(struct real_qr *x) {
    int turn = 0;

    for (int64_t e = x->n - 1; e >= 0;) {
        int64_t l = e;
        for (; l > 0; l--) {
            double near = fabs(H(l - 1, l - 1)) + fabs(H(l, l));
            if (!(fabs(H(l, l - 1)) > DBL_EPSILON * (near == 0 ? x->norm : near))) break;
        }

        if (l >= e - 1) {
            if (l == e) {
                H(e, e) += x->shifted;
                x->re[e] = H(e, e), x->im[e] = 0;
            } else
                real_pair(x, e);
            e = l - 1;
            turn = 0;
            continue;
        }

        double a = H(e, e), b = H(e - 1, e - 1), w = H(e, e - 1) * H(e - 1, e);
        if (turn == 10 || turn == 30) { // an exceptional shift
            x->shifted += a;
            for (int64_t i = 0; i <= e; i++)
                H(i, i) -= a;
            double s = fabs(H(e, e - 1)) + fabs(H(e - 1, e - 2));
            a = b = 0.75 * s;
            w = -0.4375 * s * s;
        }

        if (++turn > TURNS) return false;
        double_step(x, l, e, a, b, w);
    }
    return true;
}
bool lapack_eigen_r(int64_t n, double *h, double *v, double *re, double *im) {
    struct real_qr x = {.n = n, .h = h, .v = v, .re = re, .im = im};
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++) {
            if (i > j + 1) h[j * n + i] = 0;
            x.norm += fabs(h[j * n + i]);
        }
    return real_schur(&x);
}
// The columns of q and the pairs of an upper quasi-triangle as complex ones: a block of two becomes
// triangular by one more rotation.
void lapack_schur_from_real(int64_t n, const double *h, const double *v, const double *re,
                            const double *im, cplx *t, cplx *q) {
    for (int64_t k = 0; k < n * n; k++) {
        bool below = k % n > k / n + 1;
        t[k] = below ? 0 : h[k];
        q[k] = v[k];
    }

    for (int64_t e = 1; e < n; e++) {
        if (!(im[e - 1] > 0)) {
            t[(e - 1) * n + e] = 0;
            continue;
        }

        cplx shift = re[e - 1] + I * im[e - 1];
        cplx a = t[(e - 1) * n + e - 1] - shift, b = t[e * n + e - 1]; // (b, -a) is its eigenvector
        double r = hypot(cabs(a), cabs(b));
        cplx c = b / r, s = -a / r;

        for (int64_t i = 0; i <= e; i++) { // columns: (c, s) first, then what stands upright on it
            cplx x = t[(e - 1) * n + i], y = t[e * n + i];
            t[(e - 1) * n + i] = c * x + s * y;
            t[e * n + i] = conj(c) * y - conj(s) * x;
        }
        for (int64_t i = 0; i < n; i++) {
            cplx x = q[(e - 1) * n + i], y = q[e * n + i];
            q[(e - 1) * n + i] = c * x + s * y;
            q[e * n + i] = conj(c) * y - conj(s) * x;
        }
        for (int64_t j = e - 1; j < n; j++) {
            cplx x = t[j * n + e - 1], y = t[j * n + e];
            t[j * n + e - 1] = conj(c) * x + conj(s) * y;
            t[j * n + e] = c * y - s * x;
        }
        t[(e - 1) * n + e] = 0;
    }
}
