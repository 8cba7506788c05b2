// SPDX-License-Identifier: Apache-2.0
// The tiles of cpu_taps.h.
#include "devices/cpu/panels/cpu_taps.h"

#include <immintrin.h>
#include <stddef.h>

enum { L = TAPS_LANES, SUMS = TAPS_ROWS * TAPS_ACROSS };
#define VECTOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define UNROLL _Pragma("GCC unroll 32")

// Pixel x of `wide` ones of a row.
static inline __attribute__((always_inline)) VECTOR __m512 pixel(const int half, const int wide,
                                                                 const struct taps_tile *t,
                                                                 const float *row, const int x) {
    if (x < half) return _mm512_maskz_loadu_ps(t->left[x], row + x * L);
    if (x >= wide - half) return _mm512_maskz_loadu_ps(t->right[wide - 1 - x], row + x * L);
    return _mm512_loadu_ps(row + x * L);
}
static inline __attribute__((always_inline)) VECTOR void tile(const int window, const int stride,
                                                              const int rows, const int across,
                                                              const struct taps_tile *t) {
    __m512 sum[SUMS], first = _mm512_loadu_ps(t->first);
    const int high = (rows - 1) * stride + window, wide = (across - 1) * stride + window;
    const float *w = t->w;
    UNROLL for (int k = 0; k < rows * across; k++) sum[k] = first;
    UNROLL for (int y = 0; y < high; y++) {
        UNROLL for (int x = 0; x < wide; x++) {
            __m512 element = pixel(window / 2, wide, t, t->row[y] + t->at, x);
            UNROLL for (int r = 0; r < rows; r++) {
                UNROLL for (int c = 0; c < across; c++) {
                    const int down = y - r * stride, right = x - c * stride;
                    if (down < 0 || down >= window || right < 0 || right >= window) continue;
                    sum[r * across + c] =
                        _mm512_fmadd_ps(element, _mm512_loadu_ps(w + (down * window + right) * L),
                                        sum[r * across + c]);
                }
            }
        }
    }

    if (t->bounded) {
        __m512 least = _mm512_set1_ps(t->low), most = _mm512_set1_ps(t->high);
        UNROLL for (int k = 0; k < rows * across; k++) sum[k] =
            _mm512_min_ps(most, _mm512_max_ps(least, sum[k]));
    }
    UNROLL for (int k = 0; k < rows * across; k++)
        _mm512_storeu_ps(t->out + k / across * t->out_row + k % across * L, sum[k]);
}
#define TILE(W, S, R, C)                                                                           \
    static VECTOR void tile_##W##_##S##_##R##_##C(const struct taps_tile *t) {                     \
        tile(W, S, R, C, t);                                                                       \
    }
#define TWO(W, S, C)    TILE(W, S, 1, C) TILE(W, S, 2, C)
#define THREE(W, S, C)  TWO(W, S, C) TILE(W, S, 3, C)
#define ALL(ROWS, W, S) TWO(W, S, 8) ROWS(W, S, 5) ROWS(W, S, 7)
ALL(THREE, 3, 1)
ALL(THREE, 3, 2)
ALL(THREE, 5, 1)
ALL(THREE, 5, 2)
ALL(TWO, 7, 1)

#define ROW_2(W, S, C)                                                                             \
    {                                                                                              \
        W, S, {                                                                                    \
            {NULL, tile_##W##_##S##_1_##C, tile_##W##_##S##_2_##C}, 2, C                           \
        }                                                                                          \
    }
#define ROW_3(W, S, C)                                                                             \
    {                                                                                              \
        W, S, {                                                                                    \
            {NULL, tile_##W##_##S##_1_##C, tile_##W##_##S##_2_##C, tile_##W##_##S##_3_##C}, 3, C   \
        }                                                                                          \
    }
#define ROWS(ROW, W, S) ROW_2(W, S, 8), ROW(W, S, 5), ROW(W, S, 7)
static const struct {
    int window, stride;
    struct taps taps;
} all[] = {ROWS(ROW_3, 3, 1), ROWS(ROW_3, 3, 2), ROWS(ROW_3, 5, 1), ROWS(ROW_3, 5, 2),
           ROWS(ROW_2, 7, 1)};

bool cpu_taps_of(int64_t window, int64_t stride, int64_t out, struct taps *t) {
    int64_t best = INT64_MAX; // pixels that the tiles of a row hold
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        int64_t across = all[k].taps.across, held = (out + across - 1) / across * across;
        if (all[k].window != window || all[k].stride != stride || held > best) continue;
        best = held;
        *t = all[k].taps;
    }
    return best < INT64_MAX;
}
