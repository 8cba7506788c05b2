// SPDX-License-Identifier: Apache-2.0
// cpu_winograd_body: the transforms of cpu_winograd.c for one instruction set, a block of channels
// (a vector) at a time. Included once for each by cpu_winograd_isa.c, with WINO (name), WINO_LANES
// and WINO_TARGET (attribute) set; cpu_winograd_results.h behind it takes them away.
#ifndef WINO
#define WINO(name) name##_plain
#define WINO_LANES 4
#define WINO_TARGET
#endif
#include <string.h>

#include "devices/cpu/panels/cpu_winograd.h"

typedef float WINO(vec) __attribute__((vector_size(4 * WINO_LANES), aligned(4), may_alias));
typedef int32_t WINO(bits) __attribute__((vector_size(4 * WINO_LANES)));
#define LINE   WINO(vec)
#define LANES  WINO_LANES
#define INLINE WINO_TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 36") // all bounds are constants once it is inlined
#define AT(p)  (*(LINE *)(p))
#define CAT(p) (*(const LINE *)(p))

// ---- one line of a transform

// B': the values of d at the points, each but for the factor that G has.
INLINE void WINO(input_line)(int m, const LINE *d, LINE *v) {
    const float a = m == 2 ? 1 : WINOGRAD_A, aa = a * a, b = WINOGRAD_B, bb = b * b;
    if (m == 2) {
        v[0] = d[2] - d[0];
        v[1] = d[2] + d[1];
        v[2] = d[2] - d[1];
        v[3] = d[3] - d[1];
        return;
    }
    LINE even = d[4] - bb * d[2], odd = a * (d[3] - bb * d[1]);
    v[0] = d[4] - (aa + bb) * d[2] + aa * bb * d[0];
    v[1] = even + odd;
    v[2] = even - odd;
    even = d[4] - aa * d[2];
    odd = b * (d[3] - aa * d[1]);
    v[3] = even + odd;
    v[4] = even - odd;
    v[5] = d[5] - (aa + bb) * d[3] + aa * bb * d[1];
}

// ---- input

// A tile's inputs at x, rows `row` floats apart, to v, points `step` floats apart.
INLINE void WINO(transform_tile)(int m, const float *x, int64_t row, float *v, int64_t step) {
    const int n = m + 2;
    LINE half[WINOGRAD_MOST + 2][WINOGRAD_MOST + 2], line[WINOGRAD_MOST + 2], to[WINOGRAD_MOST + 2];
    for (int c = 0; c < n; c++) {
        UNROLL
        for (int r = 0; r < n; r++)
            line[r] = CAT(x + r * row + c * LANES);
        WINO(input_line)(m, line, to);
        UNROLL
        for (int r = 0; r < n; r++)
            half[r][c] = to[r];
    }
    for (int r = 0; r < n; r++, v += n * step) {
        WINO(input_line)(m, half[r], to);
        UNROLL
        for (int c = 0; c < n; c++)
            AT(v + c * step) = to[c];
    }
}
struct WINO(place) {        // of a tile
    int64_t image, y, x;    // the first input's
    int64_t y0, y1, x0, x1; // of its inputs: what lies in the image
    bool inside;            // all
};
INLINE struct WINO(place) WINO(place_of)(const struct winograd *w, int64_t tile) {
    int64_t each = w->tiles_high * w->tiles_wide, t = tile % each, side = w->m + 2;
    struct WINO(place) at = {.image = tile / each,
                             .y = t / w->tiles_wide * w->m - w->top,
                             .x = t % w->tiles_wide * w->m - w->left};
    at.y0 = at.y < 0 ? -at.y : 0;
    at.y1 = at.y + side > w->height ? w->height - at.y : side;
    at.x0 = at.x < 0 ? -at.x : 0;
    at.x1 = at.x + side > w->width ? w->width - at.x : side;
    at.inside = at.y0 == 0 && at.x0 == 0 && at.y1 == side && at.x1 == side;
    return at;
}
// The inputs of a tile in block b of the image; from there, or among zeros in `patch`, which holds
// zeros before the first call for this tile.
INLINE const float *WINO(inputs)(const struct winograd_run *r, const struct WINO(place) * at,
                                 int64_t b, float *patch, int64_t *row) {
    const struct winograd *w = r->w;
    int64_t plane = w->height * w->width * LANES, side = w->m + 2, wide = w->width * LANES;
    const float *first =
        r->image + (at->image * w->in_blocks + b) * plane + (at->y * w->width + at->x) * LANES;
    *row = at->inside ? wide : side * LANES;
    if (at->inside) return first;
    for (int64_t k = at->y0; k < at->y1 && at->x0 < at->x1; k++)
        memcpy(patch + (k * side + at->x0) * LANES, first + k * wide + at->x0 * LANES,
               (size_t)(at->x1 - at->x0) * LANES * sizeof *patch);
    return patch;
}
INLINE void WINO(transform_all)(int m, const struct winograd_run *r, int64_t tile, int64_t n,
                                int64_t from, int64_t to, float *v) {
    const struct winograd *w = r->w;
    int64_t line = w->in_blocks * LANES, row;
    for (int64_t t = 0; t < n; t++, v += line) {
        struct WINO(place) at = WINO(place_of)(w, tile + t);
        float patch[WINOGRAD_POINTS * LANES] __attribute__((aligned(64)));
        if (!at.inside) memset(patch, 0, sizeof patch);
        for (int64_t b = from; b < to; b++) {
            const float *x = WINO(inputs)(r, &at, b, patch, &row);
            WINO(transform_tile)(m, x, row, v + b * LANES, w->step);
        }
    }
}
WINO_TARGET static void WINO(transform)(const struct winograd_run *r, int64_t tile, int64_t n,
                                        int64_t from, int64_t to, float *v) {
    if (r->w->m == 4)
        WINO(transform_all)(4, r, tile, n, from, to, v);
    else
        WINO(transform_all)(2, r, tile, n, from, to, v);
}
