// SPDX-License-Identifier: Apache-2.0
// cpu_windows_body: the loops of cpu_windows.c for one instruction set. Included once for each,
// with WIN (name), WIN_TARGET (attribute), WIN_LANES, WIN_OF (EVEN or ODD: lanes of cpu_turn.h),
// WIN_MAX and WIN_MIN (of two vectors), WIN_MOST (of integers), WIN_LOAD and WIN_STORE (the first n
// lanes) set; takes them away.
#ifdef WIN
#define INLINE static inline __attribute__((always_inline)) WIN_TARGET
#define UNROLL _Pragma("GCC unroll 4")
#define LANES  WIN_LANES
#define WIDE   WIN(vector)
#define LOOSE  WIN(loose)
typedef float WIDE __attribute__((vector_size(4 * LANES)));
typedef float LOOSE __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE WIDE WIN(put)(enum windows_kind kind, WIDE a, WIDE b) {
    return kind == WINDOWS_MAX   ? (WIDE)WIN_MAX(a, b)
           : kind == WINDOWS_MIN ? (WIDE)WIN_MIN(a, b)
                                 : a + b;
}
INLINE float WIN(put_one)(enum windows_kind kind, float a, float b) {
    if (kind == WINDOWS_ADD) return a + b;
    return (kind == WINDOWS_MAX ? b > a : b < a) ? b : a;
}
INLINE WIDE WIN(load)(const float *p) {
    return *(const LOOSE *)p;
}
INLINE void WIN(store)(float *p, WIDE v) {
    *(LOOSE *)p = v;
}
INLINE WIDE WIN(all)(float x) {
    return x - (WIDE){0};
}
#include "devices/cpu/routines/cpu_windows_lines.h"

// The places of a window along dimension d at result `at`, [*from, *to) of its taps.
INLINE void WIN(taps)(const struct windows *w, int d, int64_t at, int64_t *from, int64_t *to) {
    int64_t first = at * w->stride[d] - w->low[d], step = w->step[d];
    int64_t low = first < 0 ? -first : 0, high = first < w->in[d] ? w->in[d] - first : 0;
    *from = step == 1 ? low : (low + step - 1) / step;
    *to = step == 1 ? high : (high + step - 1) / step;
    if (*to > w->size[d]) *to = w->size[d];
}
// The lines that the windows of line y of results meet, from place x on.
INLINE int WIN(lines_of)(const struct windows *w, const struct windows_unit *u, int64_t y,
                         int64_t x, const float **line) {
    int64_t d0, d1, h0, h1, wide = w->in[2], step = w->step[1] * wide;
    int n = 0;
    WIN(taps)(w, 0, u->plane, &d0, &d1);
    WIN(taps)(w, 1, y, &h0, &h1);
    const float *at = u->image + (y * w->stride[1] - w->low[1]) * wide + h0 * step + x;
    int64_t plane = u->plane * w->stride[0] - w->low[0] + d0 * w->step[0];
    for (int64_t d = d0; d < d1; d++, plane += w->step[0]) {
        const float *p = at + plane * w->in[1] * wide;
        for (int64_t h = h0; h < h1; h++, p += step)
            line[n++] = p;
    }
    return n;
}
// Where place k of a line lies in scratch: with stride 2, odd ones behind even ones.
INLINE float *WIN(place)(const struct windows *w, float *s, int64_t k) {
    return w->stride[2] == 2 ? s + (k & 1) * w->half + (k >> 1) : s + k;
}
// Some lines at a time: what is read along a line was written long enough ago that it has reached
// the cache, from which vectors are read at any place.
INLINE void WIN(some)(enum windows_kind kind, const struct windows *w, const struct windows_unit *u,
                      int64_t y0, int64_t y1, int64_t x) {
    const float *line[WINDOWS_LINES];
    const float first = u->first;
    const int64_t places = w->places, in = w->in[2], stride = w->stride[2], wide = w->out[2];
    const int64_t n = u->end - x < w->block ? u->end - x : w->block, from = x * stride - w->low[2],
                  reach = (w->size[2] - 1) * w->step[2] + 1, to = from + (n - 1) * stride + reach;
    const int64_t a = from < 0 ? 0 : from > in ? in : from, b = to > in ? in : to < a ? a : to;
    float *const begin =
        u->scratch + ((from - a) & (LANES - 1)); // so that places in the image are aligned
    float *s = begin;
    for (int64_t y = y0; y < y1; y++, s += places) {
        int lines = WIN(lines_of)(w, u, y, a, line);
        for (int64_t k = from; k < a; k++)
            *WIN(place)(w, s, k - from) = first;
        if (stride != 2)
            WIN(down)(kind, line, lines, b - a, first, s + (a - from));
        else
            WIN(down_apart)(kind, line, lines, b - a, first, WIN(place)(w, s, a - from),
                            WIN(place)(w, s, a - from + 1));
        for (int64_t k = b; k < to; k++)
            *WIN(place)(w, s, k - from) = first;
    }
    s = begin;
    float *out = u->out + y0 * wide + x;
    for (int64_t y = y0; y < y1; y++, s += places, out += wide)
        WIN(across)(kind, w, s, n, out);
}
#include "devices/cpu/routines/cpu_windows_close.h"

INLINE void WIN(unit)(enum windows_kind kind, const struct windows *w,
                      const struct windows_unit *u) {
    if (w->close) {
        WIN(close)(kind, w, u);
        return;
    }
    for (int64_t y = u->from; y < u->to; y += w->lines)
        for (int64_t x = u->begin; x < u->end; x += w->block)
            WIN(some)(kind, w, u, y, u->to - y < w->lines ? u->to : y + w->lines, x);
}
WIN_TARGET static void WIN(lines)(const struct windows *w, const struct windows_unit *u) {
    switch (w->kind) {
    case WINDOWS_MAX:
        WIN(unit)(WINDOWS_MAX, w, u);
        break;
    case WINDOWS_MIN:
        WIN(unit)(WINDOWS_MIN, w, u);
        break;
    default:
        WIN(unit)(WINDOWS_ADD, w, u);
    }
}
// By the largest exponent and mantissa, as an integer.
WIN_TARGET static bool WIN(nan)(const float *x, int64_t n) {
    typedef int32_t ints __attribute__((vector_size(4 * LANES)));
    typedef int32_t loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
    ints most[4] = {0};
    int64_t k = 0;
    const int32_t ones = 0x7f800000, rest = 0x7fffffff;
    for (; k + 4 * LANES <= n; k += 4 * LANES)
        _Pragma("GCC unroll 4") for (int e = 0; e < 4; e++) {
            ints v = *(const loose *)(x + k + e * LANES) & rest;
            most[e] = WIN_MOST(most[e], v);
        }
    for (; k < n; k++) {
        int32_t v;
        memcpy(&v, x + k, sizeof v);
        if ((v & rest) > ones) return true;
    }
    most[0] = WIN_MOST(WIN_MOST(most[0], most[1]), WIN_MOST(most[2], most[3]));
    bool found = false;
    for (int l = 0; l < LANES; l++)
        found |= most[0][l] > ones;
    return found;
}
const struct windows_isa WIN(isa) = {WIN(lines), WIN(nan)};

#undef INLINE
#undef UNROLL
#undef LANES
#undef WIDE
#undef LOOSE
#undef WIN
#undef WIN_TARGET
#undef WIN_LANES
#undef WIN_OF
#undef WIN_MAX
#undef WIN_MIN
#undef WIN_MOST
#undef WIN_LOAD
#undef WIN_STORE
#endif
