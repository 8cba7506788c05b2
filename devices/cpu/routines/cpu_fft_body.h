// SPDX-License-Identifier: Apache-2.0
// cpu_fft_body: the loops of cpu_fft.c for one element type and instruction set. Included once for
// each, with FFT (name), FFT_ELEM, FFT_BYTES (of a vector) and FFT_TARGET (attribute) set; takes
// them away. Rounds are Stockham's: each reads one array and writes the other in an order that
// needs no reversal of digits.
#ifndef FFT
#define FFT(name) name##_f64_plain
#define FFT_ELEM  double
#define FFT_BYTES 16
#define FFT_TARGET
#endif
#include "devices/cpu/routines/cpu_fft.h"

typedef FFT_ELEM FFT(vec) __attribute__((vector_size(FFT_BYTES), may_alias));
#define LINE   FFT(vec)
#define INLINE static inline __attribute__((always_inline)) FFT_TARGET
enum { FFT(LANES) = FFT_BYTES / (int)sizeof(FFT_ELEM) };
#define LANES FFT(LANES)

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
FFT_TARGET static void FFT(round_odd)(struct FFT(pair) x, struct FFT(pair) y, int r, int64_t m,
                                      int64_t s, const FFT_ELEM *w, const FFT_ELEM *roots) {
    LINE pr[FFT_MAX_RADIX / 2 + 1], pi[FFT_MAX_RADIX / 2 + 1], nr[FFT_MAX_RADIX / 2 + 1],
        ni[FFT_MAX_RADIX / 2 + 1];
    int half = r / 2;
    for (int64_t p = 0; p < m; p++, w += 2 * (r - 1))
        for (int64_t q = 0; q < s; q++) {
            int64_t a = q + s * p, step = s * m, o = q + s * r * p;
            LINE sr = x.re[a], si = x.im[a], ar = sr, ai = si;
            for (int j = 1; j <= half; j++) {
                LINE br = x.re[a + j * step], bi = x.im[a + j * step],
                     cr = x.re[a + (r - j) * step], ci = x.im[a + (r - j) * step];
                pr[j] = br + cr, pi[j] = bi + ci, nr[j] = br - cr, ni[j] = bi - ci;
                sr += pr[j], si += pi[j];
            }
            y.re[o] = sr;
            y.im[o] = si;
            for (int k = 1; k <= half; k++) {
                LINE ur = ar, ui = ai, vr = {0}, vi = {0};
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
// Gives where the result is.
FFT_TARGET static struct FFT(pair)
    FFT(transform)(const struct fft_plan *f, struct FFT(pair) x, struct FFT(pair) y) {
    int64_t n = f->n, s = 1;
    for (int k = 0; k < f->n_factors; k++) {
        int r = f->radix[k];
        int64_t m = n / r;
        if (r == 4)
            FFT(round4)(x, y, m, s, f->turns[k]);
        else if (r == 2)
            FFT(round2)(x, y, m, s, f->turns[k]);
        else
            FFT(round_odd)(x, y, r, m, s, f->turns[k], f->roots[k]);
        struct FFT(pair) t = x;
        x = y, y = t;
        n = m, s *= r;
    }
    return x;
}

// n numbers of each lane, `parts` reals each. Eight at a time where a line's lie together.
INLINE void FFT(load)(const FFT_ELEM *from, const int64_t *off, int lanes, int64_t n,
                      int64_t stride, int parts, FFT_ELEM *re, FFT_ELEM *im) {
    for (int64_t at = 0; at < n; at += 8) {
        int64_t to = at + 8 < n ? at + 8 : n;
        for (int l = 0; l < lanes; l++)
            for (int64_t j = at; j < to; j++) {
                const FFT_ELEM *p = from + parts * (off[l] + j * stride);
                re[j * LANES + l] = p[0];
                im[j * LANES + l] = parts == 2 ? p[1] : 0;
            }
        for (int l = lanes; l < LANES; l++)
            for (int64_t j = at; j < to; j++)
                re[j * LANES + l] = im[j * LANES + l] = 0;
    }
}
INLINE void FFT(store)(FFT_ELEM *to, const int64_t *off, int lanes, int64_t n, int64_t stride,
                       int parts, const FFT_ELEM *re, const FFT_ELEM *im) {
    for (int64_t at = 0; at < n; at += 8) {
        int64_t end = at + 8 < n ? at + 8 : n;
        for (int l = 0; l < lanes; l++)
            for (int64_t j = at; j < end; j++) {
                FFT_ELEM *p = to + parts * (off[l] + j * stride);
                p[0] = re[j * LANES + l];
                if (parts == 2) p[1] = im[j * LANES + l];
            }
    }
}
// The spectrum of n pairs as that of their 2n numbers: n + 1 values, to y.
FFT_TARGET static void FFT(unpair)(struct FFT(pair) z, struct FFT(pair) y, int64_t n,
                                   const FFT_ELEM *w) {
    for (int64_t k = 0; k <= n; k++, w += 2) {
        int64_t a = k == n ? 0 : k, b = k == 0 ? 0 : n - k;
        LINE er = (z.re[a] + z.re[b]) * (FFT_ELEM)0.5, ei = (z.im[a] - z.im[b]) * (FFT_ELEM)0.5;
        LINE or = (z.im[a] + z.im[b]) * (FFT_ELEM)0.5, oi = (z.re[b] - z.re[a]) * (FFT_ELEM)0.5;
        y.re[k] = er + or * w[0] - oi * w[1];
        y.im[k] = ei + or * w[1] + oi * w[0];
    }
}
// The other way, twice as large: n + 1 values of x to n of y.
FFT_TARGET static void FFT(pair_up)(struct FFT(pair) x, struct FFT(pair) y, int64_t n,
                                    const FFT_ELEM *w) {
    x.im[0] = x.im[n] = (LINE){0};
    for (int64_t k = 0; k < n; k++, w += 2) {
        LINE er = x.re[k] + x.re[n - k], ei = x.im[k] - x.im[n - k];
        LINE dr = x.re[k] - x.re[n - k], di = x.im[k] + x.im[n - k];
        LINE or = dr * w[0] + di * w[1], oi = di * w[0] - dr * w[1];
        y.re[k] = er - oi;
        y.im[k] = ei + or ;
    }
}
// The same for one line of complex numbers: to n + 1 of y.
FFT_TARGET static void FFT(unpair_line)(const void *from, void *to, int64_t n, const void *turns) {
    const FFT_ELEM *z = from, *w = turns;
    FFT_ELEM *y = to;
    for (int64_t k = 0; k <= n; k++) {
        int64_t a = k == n ? 0 : k, b = k == 0 ? 0 : n - k;
        FFT_ELEM er = (z[2 * a] + z[2 * b]) / 2, ei = (z[2 * a + 1] - z[2 * b + 1]) / 2;
        FFT_ELEM or = (z[2 * a + 1] + z[2 * b + 1]) / 2, oi = (z[2 * b] - z[2 * a]) / 2;
        y[2 * k] = er + or * w[2 * k] - oi * w[2 * k + 1];
        y[2 * k + 1] = ei + or * w[2 * k + 1] + oi * w[2 * k];
    }
}
// And back: n + 1 of x, whose first and last count as real, to n of y.
FFT_TARGET static void FFT(pair_up_line)(const void *from, void *to, int64_t n, const void *turns) {
    const FFT_ELEM *x = from, *w = turns;
    FFT_ELEM *y = to;
    y[0] = x[0] + x[2 * n];
    y[1] = x[0] - x[2 * n];
    for (int64_t k = 1; k < n; k++) {
        int64_t b = n - k;
        FFT_ELEM er = x[2 * k] + x[2 * b], ei = x[2 * k + 1] - x[2 * b + 1];
        FFT_ELEM dr = x[2 * k] - x[2 * b], di = x[2 * k + 1] + x[2 * b + 1];
        y[2 * k] = er - (di * w[2 * k] - dr * w[2 * k + 1]);
        y[2 * k + 1] = ei + (dr * w[2 * k] + di * w[2 * k + 1]);
    }
}
FFT_TARGET static void FFT(group)(const struct fft_lines *c, int64_t group, void *memory) {
    const struct fft_plan *f = c->plan;
    int64_t n = f->n, room = n + 1, off_in[LANES], off_out[LANES], first = group * LANES;
    int lanes = c->lines - first < LANES ? (int)(c->lines - first) : LANES;
    LINE *v = memory;
    struct FFT(pair) x = {v, v + room}, y = {v + 2 * room, v + 3 * room}, t;
    bool odd_in = c->kind == FFT_FROM_REAL && !c->even,
         odd_out = c->kind == FFT_TO_REAL && !c->even;
    for (int l = 0; l < lanes; l++) {
        off_in[l] = (first + l) / c->inner * c->outer_in + (first + l) % c->inner;
        off_out[l] = (first + l) / c->inner * c->outer_out + (first + l) % c->inner;
    }
    int64_t have = c->kind != FFT_TO_REAL ? n : c->even ? n + 1 : n / 2 + 1;
    if (odd_in)
        FFT(load)(c->from, off_in, lanes, n, c->stride_in, 1, (FFT_ELEM *)x.re, (FFT_ELEM *)x.im);
    else
        FFT(load)(c->from, off_in, lanes, have, c->stride_in, 2, (FFT_ELEM *)x.re,
                  (FFT_ELEM *)x.im);
    if (odd_out) {
        x.im[0] = (LINE){0};
        for (int64_t k = have; k < n; k++)
            x.re[k] = x.re[n - k], x.im[k] = -x.im[n - k];
    }
    if (c->kind == FFT_TO_REAL && c->even) {
        FFT(pair_up)(x, y, n, c->half_turns);
        t = x, x = y, y = t;
    }
    if (c->swap_in) x = (struct FFT(pair)){x.im, x.re};
    t = FFT(transform)(f, x, y);
    y = t.re == x.re || t.re == x.im ? y : x;
    x = t;
    if (c->turns) {
        const LINE *w = (const LINE *)c->turns + group * n * 2;
        for (int64_t k = 0; k < n; k++) {
            LINE re = x.re[k] * w[2 * k] - x.im[k] * w[2 * k + 1];
            x.im[k] = x.re[k] * w[2 * k + 1] + x.im[k] * w[2 * k];
            x.re[k] = re;
        }
    }
    if (c->swap_out) x = (struct FFT(pair)){x.im, x.re};
    if (c->scale != 1)
        for (int64_t k = 0; k < n; k++)
            x.re[k] *= (FFT_ELEM)c->scale, x.im[k] *= (FFT_ELEM)c->scale;
    int64_t give = n;
    if (c->kind == FFT_FROM_REAL && c->even) {
        FFT(unpair)(x, y, n, c->half_turns);
        x = y;
        give = n + 1;
    } else if (c->kind == FFT_FROM_REAL) {
        give = n / 2 + 1;
    }
    if (odd_out)
        FFT(store)(c->to, off_out, lanes, n, c->stride_out, 1, (FFT_ELEM *)x.re, (FFT_ELEM *)x.im);
    else
        FFT(store)(c->to, off_out, lanes, give, c->stride_out, 2, (FFT_ELEM *)x.re,
                   (FFT_ELEM *)x.im);
}
static const struct fft_loops FFT(loops) = {FFT(group), FFT(unpair_line), FFT(pair_up_line), LANES};
#undef FFT
#undef FFT_ELEM
#undef FFT_BYTES
#undef FFT_TARGET
#undef LINE
#undef INLINE
#undef LANES
