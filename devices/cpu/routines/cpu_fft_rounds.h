// SPDX-License-Identifier: Apache-2.0
// cpu_fft_rounds: transforms of lanes of vectors, for one element type and instruction set.
// Included by cpu_fft_body.h, which goes on with what is defined here and takes it away. Rounds are
// Stockham's: each reads one array and writes the other in an order that needs no reversal of
// digits.
#ifndef FFT
#define FFT(name) name##_f64_plain
#define FFT_ELEM  double
#define FFT_LANES 2
#define FFT_TARGET
#endif
#include "devices/cpu/routines/cpu_fft.h"

typedef FFT_ELEM FFT(vec) __attribute__((vector_size(FFT_LANES * sizeof(FFT_ELEM)), may_alias));
typedef FFT_ELEM FFT(loose)
    __attribute__((vector_size(FFT_LANES * sizeof(FFT_ELEM)), aligned(sizeof(FFT_ELEM)),
                   may_alias));
#define LINE   FFT(vec)
#define LOOSE  FFT(loose) // in an array
#define INLINE static inline __attribute__((always_inline)) FFT_TARGET
#define UNROLL _Pragma("GCC unroll 16")
#define FOUR   _Pragma("GCC unroll 4") // of all there are for radices to 7, of others at a time
#define LANES  FFT_LANES
#define FFT_PASTE(a, b)  a##b
#define FFT_LIST(a, b)   FFT_PASTE(a, b)
#define FFT_OF(what)     FFT_LIST(TURN_##what##_, FFT_LANES) // lanes of two vectors

struct FFT(pair) {
    LINE *re, *im;
};

INLINE void FFT(turned)(LINE re, LINE im, const FFT_ELEM *w, LINE *to_re, LINE *to_im) {
    *to_re = re * w[0] - im * w[1];
    *to_im = re * w[1] + im * w[0];
}
FFT_TARGET static void FFT(round2)(struct FFT(pair) x, struct FFT(pair) y, int64_t m, int64_t s,
                                   const FFT_ELEM *w) {
    for (int64_t p = 0; p < m; p++, w += 2)
        for (int64_t q = 0; q < s; q++) {
            int64_t a = q + s * p, b = a + s * m, o = q + s * 2 * p;
            LINE ar = x.re[a], ai = x.im[a], br = x.re[b], bi = x.im[b];
            y.re[o] = ar + br;
            y.im[o] = ai + bi;
            FFT(turned)(ar - br, ai - bi, w, &y.re[o + s], &y.im[o + s]);
        }
}
FFT_TARGET static void FFT(round4)(struct FFT(pair) x, struct FFT(pair) y, int64_t m, int64_t s,
                                   const FFT_ELEM *w) {
    for (int64_t p = 0; p < m; p++, w += 6)
        for (int64_t q = 0; q < s; q++) {
            int64_t a = q + s * p, step = s * m, o = q + s * 4 * p;
            LINE ar = x.re[a], ai = x.im[a], br = x.re[a + step], bi = x.im[a + step];
            LINE cr = x.re[a + 2 * step], ci = x.im[a + 2 * step], dr = x.re[a + 3 * step],
                 di = x.im[a + 3 * step];
            LINE er = ar + cr, ei = ai + ci, fr = ar - cr, fi = ai - ci;
            LINE gr = br + dr, gi = bi + di, hr = bi - di, hi = dr - br; // -i (b - d)
            y.re[o] = er + gr;
            y.im[o] = ei + gi;
            FFT(turned)(fr + hr, fi + hi, w, &y.re[o + s], &y.im[o + s]);
            FFT(turned)(er - gr, ei - gi, w + 2, &y.re[o + 2 * s], &y.im[o + 2 * s]);
            FFT(turned)(fr - hr, fi - hi, w + 4, &y.re[o + 3 * s], &y.im[o + 3 * s]);
        }
}
// Odd radices: terms j and r - j share their products.
INLINE void FFT(odd)(struct FFT(pair) x, struct FFT(pair) y, int r, int64_t m, int64_t s,
                     const FFT_ELEM *w, const FFT_ELEM *roots) {
    LINE pr[FFT_MAX_RADIX / 2 + 1], pi[FFT_MAX_RADIX / 2 + 1], nr[FFT_MAX_RADIX / 2 + 1],
        ni[FFT_MAX_RADIX / 2 + 1];
    int half = r / 2;
    for (int64_t p = 0; p < m; p++, w += 2 * (r - 1))
        for (int64_t q = 0; q < s; q++) {
            int64_t a = q + s * p, step = s * m, o = q + s * r * p;
            LINE sr = x.re[a], si = x.im[a], ar = sr, ai = si;
            FOUR
            for (int j = 1; j <= half; j++) {
                LINE br = x.re[a + j * step], bi = x.im[a + j * step],
                     cr = x.re[a + (r - j) * step], ci = x.im[a + (r - j) * step];
                pr[j] = br + cr, pi[j] = bi + ci, nr[j] = br - cr, ni[j] = bi - ci;
                sr += pr[j], si += pi[j];
            }
            y.re[o] = sr;
            y.im[o] = si;
            FOUR
            for (int k = 1; k <= half; k++) {
                LINE ur = ar, ui = ai, vr = {0}, vi = {0};
                FOUR
                for (int j = 1, e = k; j <= half; j++, e = e + k < r ? e + k : e + k - r) {
                    ur += pr[j] * roots[2 * e], ui += pi[j] * roots[2 * e];
                    vr += ni[j] * roots[2 * e + 1], vi += nr[j] * roots[2 * e + 1];
                }
                FFT(turned)(ur - vr, ui + vi, w + 2 * (k - 1), &y.re[o + k * s], &y.im[o + k * s]);
                FFT(turned)(ur + vr, ui - vi, w + 2 * (r - k - 1), &y.re[o + (r - k) * s],
                            &y.im[o + (r - k) * s]);
            }
        }
}
#define ODD(NAME, R)                                                                               \
    FFT_TARGET static void FFT(NAME)(struct FFT(pair) x, struct FFT(pair) y, int r, int64_t m,     \
                                     int64_t s, const FFT_ELEM *w, const FFT_ELEM *roots) {        \
        (void)r;                                                                                   \
        FFT(odd)(x, y, R, m, s, w, roots);                                                         \
    }
ODD(round3, 3)
ODD(round5, 5)
ODD(round7, 7)
ODD(round_odd, r)
// Gives where the result is.
FFT_TARGET static struct FFT(pair)
    FFT(rounds)(const struct fft_plan *f, struct FFT(pair) x, struct FFT(pair) y) {
    int64_t n = f->n, s = 1;
    for (int k = 0; k < f->n_factors; k++) {
        int r = f->radix[k];
        int64_t m = n / r;
        if (r == 4)
            FFT(round4)(x, y, m, s, f->turns[k]);
        else if (r == 2)
            FFT(round2)(x, y, m, s, f->turns[k]);
        else
            (r == 3   ? FFT(round3)
             : r == 5 ? FFT(round5)
             : r == 7 ? FFT(round7)
                      : FFT(round_odd))(x, y, r, m, s, f->turns[k], f->roots[k]);
        struct FFT(pair) t = x;
        x = y, y = t;
        n = m, s *= r;
    }
    return x;
}

// k k = (k k + j j - (j - k)(j - k)) / 2: the sum over x[j] exp(-2 pi i j k / n) is a convolution
// with chirps. Its transform back is one of swapped parts.
FFT_TARGET static struct FFT(pair)
    FFT(transform)(const struct fft_plan *f, struct FFT(pair) x, struct FFT(pair) y) {
    if (!f->around) return FFT(rounds)(f, x, y);
    const FFT_ELEM *chirp = f->chirp, *spectrum = f->spectrum;
    int64_t n = f->n, length = f->around->n;
    for (int64_t k = 0; k < n; k++)
        FFT(turned)(x.re[k], x.im[k], chirp + 2 * k, &x.re[k], &x.im[k]);
    for (int64_t k = n; k < length; k++)
        x.re[k] = x.im[k] = (LINE){0};

    struct FFT(pair) t = FFT(rounds)(f->around, x, y), o = t.re == x.re ? y : x;
    for (int64_t k = 0; k < length; k++)
        FFT(turned)(t.re[k], t.im[k], spectrum + 2 * k, &t.re[k], &t.im[k]);
    t = FFT(rounds)(f->around, (struct FFT(pair)){t.im, t.re}, o);
    t = (struct FFT(pair)){t.im, t.re};
    for (int64_t k = 0; k < n; k++)
        FFT(turned)(t.re[k], t.im[k], chirp + 2 * k, &t.re[k], &t.im[k]);
    return t;
}
