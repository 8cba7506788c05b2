// SPDX-License-Identifier: Apache-2.0
// Transforms of lengths with a large prime factor as convolutions with a chirp, by transforms of a
// power of two (Bluestein, "A linear filtering approach to the computation of discrete Fourier
// transform", 1970): j k = (j^2 + k^2 - (k - j)^2) / 2. Several dimensions go one after the other.
// Does not: lengths under SHORT, where the sum itself is as quick, and beyond LONG; even lengths
// up to ROUNDS with primes up to 61, where a round of that radix costs less than two transforms;
// what the target's library transforms.
#include <complex.h>
#include <math.h>

#include "compiler/passes/rules/rules.h"

enum { SHORT = 64, LONG = 1 << 21, ROUNDS = 1 << 16 };

static bool hard(int64_t n) {
    if (n <= SHORT || n > LONG) return false;
    int64_t largest = n % 2 == 0 && n <= ROUNDS ? 61 : 31;
    for (int64_t p = 2; p <= largest; p++)
        while (n % p == 0)
            n /= p;
    return n > 1;
}
// In place over n = 2^k elements `step` apart; room: n.
static void transform(double complex *v, double complex *room, int64_t n) {
    if (n == 1) return;
    int64_t h = n / 2;
    for (int64_t k = 0; k < h; k++)
        room[k] = v[2 * k], room[h + k] = v[2 * k + 1];
    transform(room, v, h);
    transform(room + h, v, h);
    for (int64_t k = 0; k < h; k++) {
        double angle = -2 * M_PI * (double)k / (double)n;
        double complex odd = room[h + k] * CMPLX(cos(angle), sin(angle));
        v[k] = room[k] + odd, v[h + k] = room[k] - odd;
    }
}
static double complex chirp(int64_t k, int64_t n) { // exp(-i pi k^2 / n)
    double angle = -M_PI * (double)(k * k % (2 * n)) / (double)n;
    return CMPLX(cos(angle), sin(angle));
}
// A vector of complex numbers, along the last dimension of a value of these dims.
static hv along(struct hb *b, enum dtype t, const double complex *v, int64_t n, const int64_t *dims,
                int rank) {
    struct arena *a = b->c->module->arena;
    struct literal *l = lit_new(a, shape_make(a, t, &n, 1));
    for (int64_t k = 0; k < n; k++)
        lit_set_c128(l, k, creal(v[k]), cimag(v[k]));
    return hb_broadcast(b, hb_constant(b, l), dims, rank, (int64_t[]){rank - 1});
}
static hv fft_op(struct hb *b, hv x, enum fft_type type, int64_t n) {
    struct arena *a = b->c->module->arena;
    struct hlo_attr_fft attr = {.fft_type = type, .fft_length = {.v = &n, .n = 1}};
    enum dtype t = x->shape->dtype;
    int64_t dims[HLO_MAX_RANK];
    int rank = x->shape->rank;
    memcpy(dims, x->shape->dims, sizeof *dims * (size_t)rank);
    if (type == FFT_RFFT) dims[rank - 1] = n / 2 + 1, t = t == DT_F32 ? DT_C64 : DT_C128;
    if (type == FFT_IRFFT) dims[rank - 1] = n, t = t == DT_C64 ? DT_F32 : DT_F64;
    return hb_op(b, HLO_FFT, shape_make(a, t, dims, rank), &x, 1, &attr);
}
static hv first_of(struct hb *b, hv x, int64_t from, int64_t to) { // along the last dimension
    struct range cut[HLO_MAX_RANK];
    int rank = x->shape->rank;
    for (int d = 0; d < rank; d++)
        cut[d] = (struct range){0, x->shape->dims[d], 1};
    cut[rank - 1] = (struct range){from, to, 1};
    return hb_slice(b, x, cut);
}
static hv part(struct hb *b, enum hlo_op op, hv x) {
    enum dtype t = x->shape->dtype == DT_C64 ? DT_F32 : DT_F64;
    return hb_op(b, op, shape_with_dtype(b->c->module->arena, x->shape, t), &x, 1, NULL);
}
static hv complex_of(struct hb *b, hv re, hv im) {
    enum dtype t = re->shape->dtype == DT_F32 ? DT_C64 : DT_C128;
    const struct shape *s = shape_with_dtype(b->c->module->arena, re->shape, t);
    return hb_op(b, HLO_COMPLEX, s, (hv[]){re, im}, 2, NULL);
}
// All n numbers of a spectrum of which n / 2 + 1 are given.
static hv completed(struct hb *b, hv x, int64_t n) {
    hv rest = first_of(b, x, 1, (n + 1) / 2);
    rest = complex_of(b, part(b, HLO_REAL, rest), hb_unary(b, HLO_NEGATE, part(b, HLO_IMAG, rest)));
    int64_t last = x->shape->rank - 1;
    return hb_concat(b, (hv[]){x, hb_reverse(b, rest, &last, 1)}, 2, last);
}
// The transform of the last dimension of complex numbers.
static hv by_chirp(struct hb *b, hv x, int64_t n, bool inverse) {
    enum dtype t = x->shape->dtype;
    int64_t m = 1, dims[HLO_MAX_RANK];
    int rank = x->shape->rank;
    struct arena tmp = {0};
    struct pad_dim pads[HLO_MAX_RANK] = {0};

    while (m < 2 * n - 1)
        m *= 2;
    double complex *c = arena_array(&tmp, double complex, n),
                   *f = arena_zarray(&tmp, double complex, m),
                   *room = arena_array(&tmp, double complex, m);

    memcpy(dims, x->shape->dims, sizeof *dims * (size_t)rank);
    for (int64_t k = 0; k < n; k++) {
        c[k] = inverse ? conj(chirp(k, n)) : chirp(k, n);
        f[k] = f[(m - k) % m] = conj(c[k]);
    }

    transform(f, room, m);
    pads[rank - 1].high = m - n;
    struct literal *zero =
        lit_new(b->c->module->arena, shape_make(b->c->module->arena, t, NULL, 0));

    hv y = hb_mul(b, x, along(b, t, c, n, dims, rank));
    y = fft_op(b, hb_pad(b, y, hb_constant(b, zero), pads), FFT_FFT, m);
    dims[rank - 1] = m;
    y = fft_op(b, hb_mul(b, y, along(b, t, f, m, dims, rank)), FFT_IFFT, m);
    dims[rank - 1] = n;

    for (int64_t k = 0; k < n && inverse; k++)
        c[k] /= (double)n;
    y = hb_mul(b, first_of(b, y, 0, n), along(b, t, c, n, dims, rank));
    arena_done(&tmp);
    return y;
}
static hv one_line(struct hb *b, hv x, enum fft_type type, int64_t n) {
    if (!hard(n)) return fft_op(b, x, type, n);
    if (type == FFT_RFFT) {
        hv zero = hb_splat(b, x->shape, 0);
        return first_of(b, by_chirp(b, complex_of(b, x, zero), n, false), 0, n / 2 + 1);
    }
    if (type == FFT_IRFFT) return part(b, HLO_REAL, by_chirp(b, completed(b, x, n), n, true));
    return by_chirp(b, x, n, type == FFT_IFFT);
}
RULE_FN(fft_chirp) {
    const struct hlo_attr_fft *t = HLO_ATTR(i, fft);
    hv x = i->operands[0];
    bool any = false;
    int rank = i->shape->rank, n = t->fft_length.n;
    for (int k = 0; k < n; k++)
        any |= hard(t->fft_length.v[k]);
    // Strict: what is not finite would reach more results, as NaN.
    if (!any || r->strict || shape_elements(i->shape) == 0 || i->shape->dynamic ||
        x->shape->dynamic || !layout_is_default(i->shape->layout, rank) ||
        !layout_is_default(x->shape->layout, rank))
        return NULL;
    const struct target *target = r->target;
    if (target && target->library_accepts && target->library_accepts(target, i)) return NULL;
    enum fft_type whole = t->fft_type == FFT_RFFT    ? FFT_FFT
                          : t->fft_type == FFT_IRFFT ? FFT_IFFT
                                                     : t->fft_type;
    if (t->fft_type != FFT_IRFFT) x = one_line(&r->b, x, t->fft_type, t->fft_length.v[n - 1]);
    for (int k = 0; k + 1 < n; k++) {
        int64_t swap[HLO_MAX_RANK];
        for (int d = 0; d < rank; d++)
            swap[d] = d;
        swap[rank - n + k] = rank - 1, swap[rank - 1] = rank - n + k;
        x = one_line(&r->b, hb_transpose(&r->b, x, swap), whole, t->fft_length.v[k]);
        x = hb_transpose(&r->b, x, swap);
    }
    return t->fft_type == FFT_IRFFT ? one_line(&r->b, x, FFT_IRFFT, t->fft_length.v[n - 1]) : x;
}
