// SPDX-License-Identifier: Apache-2.0
// Evaluation of Cholesky decomposition, triangular solve and Fourier transform, all in complex
// double whatever the type (a real matrix has zero imaginary parts).
#include <complex.h>
#include <math.h>

#include "compiler/ops/eval_rules.h"

static double complex get(const struct literal *l, int64_t k) {
    double v[2];
    lit_get_c128(l, k, v);
    return CMPLX(v[0], v[1]);
}
static void set(struct literal *l, int64_t k, double complex v) {
    lit_set_c128(l, k, creal(v), cimag(v));
}

// One matrix: a = l l^H by columns. The upper form is the conjugate transpose of the lower one of
// the same matrix, read from the upper triangle. False when the matrix is not positive definite.
static bool cholesky_one(const struct literal *a, struct literal *r, int64_t base, int64_t n,
                         bool lower) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t row = j; row < n; row++) {
            int64_t to = base + (lower ? row * n + j : j * n + row);
            double complex s = get(a, to);
            if (!lower) s = conj(s);
            for (int64_t k = 0; k < j; k++) {
                double complex x = get(r, base + (lower ? row * n + k : k * n + row)),
                               y = get(r, base + (lower ? j * n + k : k * n + j));
                s -= lower ? x * conj(y) : conj(x) * y;
            }
            if (row > j)
                s /= creal(get(r, base + j * n + j));
            else if (creal(s) > 0)
                s = sqrt(creal(s));
            else
                return false;
            set(r, to, lower || row == j ? s : conj(s));
        }
    return true;
}
EVAL(CHOLESKY) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    int64_t n = r->shape->dims[r->shape->rank - 1], all = shape_elements(r->shape);
    for (int64_t base = 0; base < all; base += n * n)
        if (!cholesky_one(in[0], r, base, n, HLO_ATTR(i, cholesky)->lower))
            for (int64_t k = 0; k < n * n; k++)
                set(r, base + k, (double)NAN);
    *out = r;
    return ST_OK;
}

// op(a) x = b, or x op(a) = b, for one right side: a vector of n elements of b from `base` with
// `step`. x op(a) = b is op(a)^T x^T = b^T.
struct triangle {
    const struct literal *a;
    int64_t base, n;
    bool lower, transposed, conjugated, unit; // of the matrix as it is solved
};
static double complex element(const struct triangle *t, int64_t row, int64_t col) {
    double complex v = get(t->a, t->base + (t->transposed ? col * t->n + row : row * t->n + col));
    return t->conjugated ? conj(v) : v;
}
static void solve_one(const struct triangle *t, struct literal *x, int64_t base, int64_t step) {
    for (int64_t e = 0; e < t->n; e++) {
        int64_t row = t->lower ? e : t->n - 1 - e;
        double complex s = get(x, base + row * step);
        for (int64_t done = 0; done < e; done++) {
            int64_t col = t->lower ? done : t->n - 1 - done;
            s -= element(t, row, col) * get(x, base + col * step);
        }
        set(x, base + row * step, t->unit ? s : s / element(t, row, row));
    }
}
EVAL(TRIANGULAR_SOLVE) {
    const struct hlo_attr_trisolve *t = HLO_ATTR(i, trisolve);
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_charge(ev, i->shape));
    r = lit_clone(ev->arena, in[1]);
    const struct shape *s = r->shape;
    int64_t rows = s->dims[s->rank - 2], cols = s->dims[s->rank - 1], all = shape_elements(s);
    bool flip = (t->transpose_a != TRI_NO_TRANSPOSE) != !t->left_side;
    struct triangle m = {.a = in[0],
                         .n = t->left_side ? rows : cols,
                         .lower = t->lower != flip,
                         .transposed = flip,
                         .conjugated = t->transpose_a == TRI_ADJOINT,
                         .unit = t->unit_diagonal};
    for (int64_t base = 0; base < all; base += rows * cols, m.base += m.n * m.n)
        for (int64_t k = 0; k < (t->left_side ? cols : rows); k++)
            solve_one(&m, r, base + (t->left_side ? k : k * cols), t->left_side ? cols : 1);
    *out = r;
    return ST_OK;
}

// ---- Fourier transform

// In place over n elements: halves while n is even, the defining sum for what is left. tmp and
// roots[n]: powers of exp(+-2 pi i / n); `step` reaches the root of the current length.
static void transform(double complex *v, double complex *tmp, const double complex *roots,
                      int64_t n, int64_t step) {
    if (n == 1) return;
    if (n % 2) {
        for (int64_t k = 0; k < n; k++) {
            tmp[k] = 0;
            for (int64_t j = 0; j < n; j++)
                tmp[k] += v[j] * roots[j * k % n * step];
        }
        memcpy(v, tmp, sizeof *v * (size_t)n);
        return;
    }
    int64_t h = n / 2;
    for (int64_t k = 0; k < h; k++)
        tmp[k] = v[2 * k], tmp[h + k] = v[2 * k + 1];
    memcpy(v, tmp, sizeof *v * (size_t)n);
    transform(v, tmp, roots, h, 2 * step);
    transform(v + h, tmp, roots, h, 2 * step);
    for (int64_t k = 0; k < h; k++) {
        double complex even = v[k], odd = v[h + k] * roots[k * step];
        v[k] = even + odd, v[h + k] = even - odd;
    }
}

struct fft {
    double complex *v; // the whole value
    int64_t dims[HLO_MAX_RANK];
    int rank;
};
static void along(struct arena *a, struct fft *f, int d, bool inverse) {
    int64_t n = f->dims[d], stride = 1, lines = 1;
    for (int e = 0; e < f->rank; e++)
        *(e > d ? &stride : &lines) *= e == d ? 1 : f->dims[e];
    lines *= stride;
    if (n < 1 || lines < 1) return;
    double complex *roots = arena_array(a, double complex, n),
                   *line = arena_array(a, double complex, n),
                   *tmp = arena_array(a, double complex, n);
    for (int64_t k = 0; k < n; k++)
        roots[k] = cexp(CMPLX(0, (inverse ? 2 : -2) * M_PI * (double)k / (double)n));
    for (int64_t l = 0; l < lines; l++) {
        int64_t base = l / stride * stride * n + l % stride;
        for (int64_t k = 0; k < n; k++)
            line[k] = f->v[base + k * stride];
        transform(line, tmp, roots, n, 1);
        for (int64_t k = 0; k < n; k++)
            f->v[base + k * stride] = inverse ? line[k] / (double)n : line[k];
    }
}
// Changes the length of the last dimension: cuts a spectrum, or completes half of one by X[n-k] =
// conj(X[k]) (all dimensions but the last are transformed already, so the symmetry is per line).
static void resize_last(struct arena *a, struct fft *f, int64_t to) {
    int64_t from = f->dims[f->rank - 1], lines = 1;
    for (int d = 0; d < f->rank - 1; d++)
        lines *= f->dims[d];
    double complex *v = arena_array(a, double complex, lines *to + 1);
    for (int64_t l = 0; l < lines; l++)
        for (int64_t k = 0; k < to; k++)
            v[l * to + k] = k < from ? f->v[l * from + k] : conj(f->v[l * from + to - k]);
    f->v = v;
    f->dims[f->rank - 1] = to;
}
EVAL(FFT) {
    const struct hlo_attr_fft *t = HLO_ATTR(i, fft);
    const struct shape *s = in[0]->shape;
    struct literal *r;
    struct arena tmp = {0};
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    int64_t n = shape_elements(s), last = t->fft_length.v[t->fft_length.n - 1];
    *out = r;
    for (int k = 0; k < t->fft_length.n; k++)
        if (t->fft_length.v[k] == 0) return ST_OK; // zeros
    struct fft f = {.v = arena_array(&tmp, double complex, n + 1), .rank = s->rank};
    memcpy(f.dims, s->dims, sizeof *f.dims * (size_t)s->rank);
    for (int64_t k = 0; k < n; k++)
        f.v[k] = get(in[0], k);
    bool inverse = t->fft_type == FFT_IFFT || t->fft_type == FFT_IRFFT;
    if (t->fft_type != FFT_IRFFT) along(&tmp, &f, s->rank - 1, inverse);
    if (t->fft_type == FFT_RFFT) resize_last(&tmp, &f, last / 2 + 1);
    for (int k = 2; k <= t->fft_length.n; k++)
        along(&tmp, &f, s->rank - k, inverse);
    if (t->fft_type == FFT_IRFFT) {
        resize_last(&tmp, &f, last);
        along(&tmp, &f, s->rank - 1, true);
    }
    for (int64_t k = 0, m = shape_elements(r->shape); k < m; k++)
        set(r, k, f.v[k]);
    arena_done(&tmp);
    *out = r;
    return ST_OK;
}
