// SPDX-License-Identifier: Apache-2.0
// cpu_fft_body: the loops of cpu_fft.c for one element type and instruction set. Included once for
// each, with FFT (name), FFT_ELEM, FFT_LANES (of a vector) and FFT_TARGET (attribute) set; takes
// them away.
#include "devices/cpu/routines/cpu_fft_rounds.h"

// Squares of vectors turned: lane l of v[k] becomes lane k of v[l]. Each round puts the halves of
// two vectors beside each other.
INLINE void FFT(turn)(LINE *v) {
    LINE w[LANES];
    UNROLL
    for (int round = 1; round < LANES; round *= 2) {
        UNROLL
        for (int k = 0; k < LANES / 2; k++) {
            w[2 * k] = __builtin_shufflevector(v[k], v[k + LANES / 2], FFT_OF(LOW));
            w[2 * k + 1] = __builtin_shufflevector(v[k], v[k + LANES / 2], FFT_OF(HIGH));
        }
        UNROLL
        for (int k = 0; k < LANES; k++)
            v[k] = w[k];
    }
}
INLINE bool FFT(together)(const int64_t *off, int lanes) {
    for (int l = 1; l < LANES; l++)
        if (l >= lanes || off[l] != off[0] + l) return false;
    return true;
}
// n numbers of each lane, `parts` reals each; lanes that have no line repeat the first one. Vectors
// where the numbers of a line, or those of the lanes, lie together.
INLINE void FFT(load)(const FFT_ELEM *from, const int64_t *off, int lanes, int64_t n,
                      int64_t stride, int parts, LINE *re, LINE *im) {
    int64_t at = 0, each = LANES / parts;
    if (parts == 2 && FFT(together)(off, lanes))
        for (; at < n; at++) {
            const LOOSE *p = (const LOOSE *)(from + 2 * (off[0] + at * stride));
            re[at] = __builtin_shufflevector(p[0], p[1], FFT_OF(EVEN));
            im[at] = __builtin_shufflevector(p[0], p[1], FFT_OF(ODD));
        }
    for (; stride == 1 && at + each <= n; at += each) {
        LINE v[LANES];
        UNROLL
        for (int l = 0; l < LANES; l++)
            v[l] = *(const LOOSE *)(from + parts * (off[l < lanes ? l : 0] + at));
        FFT(turn)(v);
        UNROLL
        for (int k = 0; k < LANES; k += parts) {
            re[at + k / parts] = v[k];
            im[at + k / parts] = parts == 2 ? v[k + 1] : (LINE){0};
        }
    }
    for (; at < n; at++)
        for (int l = 0; l < LANES; l++) {
            const FFT_ELEM *p = from + parts * (off[l < lanes ? l : 0] + at * stride);
            re[at][l] = p[0];
            im[at][l] = parts == 2 ? p[1] : 0;
        }
}
INLINE void FFT(store)(FFT_ELEM *to, const int64_t *off, int lanes, int64_t n, int64_t stride,
                       int parts, const LINE *re, const LINE *im) {
    int64_t at = 0, each = LANES / parts;
    if (parts == 2 && FFT(together)(off, lanes))
        for (; at < n; at++) {
            LOOSE *p = (LOOSE *)(to + 2 * (off[0] + at * stride));
            p[0] = __builtin_shufflevector(re[at], im[at], FFT_OF(LOW));
            p[1] = __builtin_shufflevector(re[at], im[at], FFT_OF(HIGH));
        }
    for (; stride == 1 && at + each <= n; at += each) {
        LINE v[LANES];
        UNROLL
        for (int k = 0; k < LANES; k += parts) {
            v[k] = re[at + k / parts];
            if (parts == 2) v[k + 1] = im[at + k / parts];
        }
        FFT(turn)(v);
        UNROLL
        for (int l = 0; l < LANES; l++)
            if (l < lanes) *(LOOSE *)(to + parts * (off[l] + at)) = v[l];
    }
    for (; at < n; at++)
        for (int l = 0; l < lanes; l++) {
            FFT_ELEM *p = to + parts * (off[l] + at * stride);
            p[0] = re[at][l];
            if (parts == 2) p[1] = im[at][l];
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
    int64_t n = f->n, room = f->around ? f->around->n : n + 1, first = group * LANES;
    int64_t off_in[LANES], off_out[LANES];
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
        FFT(load)(c->from, off_in, lanes, n, c->stride_in, 1, x.re, x.im);
    else
        FFT(load)(c->from, off_in, lanes, have, c->stride_in, 2, x.re, x.im);
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
        FFT(store)(c->to, off_out, lanes, n, c->stride_out, 1, x.re, x.im);
    else
        FFT(store)(c->to, off_out, lanes, give, c->stride_out, 2, x.re, x.im);
}
static const struct fft_loops FFT(loops) = {FFT(group), FFT(unpair_line), FFT(pair_up_line), LANES};
#undef FFT
#undef FFT_ELEM
#undef FFT_LANES
#undef FFT_TARGET
#undef LINE
#undef INLINE
#undef LANES
#undef LOOSE
#undef UNROLL
#undef FOUR
#undef ODD
#undef FFT_PASTE
#undef FFT_LIST
#undef FFT_OF
