// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_body: the tiles of cpu_gemm.c for one element type and instruction set. Included once
// for each, with GEMM (name), GEMM_ELEM, GEMM_LANES (of a vector), GEMM_TARGET (attribute),
// GEMM_ROWS (of the largest tile) and, for types that have complex numbers, GEMM_SWAP (lanes in
// pairs turned round), GEMM_PAIR_ROWS and GEMM_PAIR_VECS (of the largest complex tile, whose sums
// are twice as many: they and what they are made of must fit the registers) set, and where an
// element is a pair of s16 GEMM_MADD, the instruction that multiplies two such vectors and sums
// each pair, GEMM_MADD_ROWS and GEMM_MADD_VECS (of the largest tile: products need registers of
// their own); takes all but GEMM_TARGET, GEMM_ROWS, GEMM_PAIR_* and GEMM_MADD_* away.
#ifndef GEMM
#define GEMM(name) name##_f64_plain
#define GEMM_ELEM  double
#define GEMM_LANES 2
#define GEMM_TARGET
#define GEMM_ROWS      4
#define GEMM_SWAP      1, 0
#define GEMM_PAIR_ROWS 3
#define GEMM_PAIR_VECS 2
#endif
#include "devices/cpu/gemm/cpu_gemm.h"

#define GEMM_BYTES (GEMM_LANES * sizeof(GEMM_ELEM))
typedef GEMM_ELEM GEMM(vec)
    __attribute__((vector_size(GEMM_BYTES), aligned(sizeof(GEMM_ELEM)), may_alias));
#define LINE   GEMM(vec)
#define INLINE GEMM_TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") // all bounds are constants once it is inlined
#ifdef GEMM_MADD
typedef short GEMM(shorts) __attribute__((vector_size(GEMM_BYTES)));
#define TIMES(x, v) ((LINE)GEMM_MADD((GEMM(shorts))((LINE){0} + (x)), (GEMM(shorts))(v)))
#else
#define TIMES(x, v) ((x) * (v))
#endif

INLINE void GEMM(put)(const struct gemm_tile *t, int64_t wide, LINE sum[][GEMM_VECS], int rows,
                      int vecs) {
    UNROLL
    for (int r = 0; r < rows; r++) {
        LINE *to = (LINE *)((GEMM_ELEM *)t->out + r * wide);
        UNROLL
        for (int c = 0; c < vecs; c++) {
            if (t->add) sum[r][c] += to[c];
            to[c] = sum[r][c];
        }
    }
}
// The lines of the result come meanwhile.
INLINE void GEMM(fetch)(const struct gemm_tile *t, int64_t wide, int rows, int vecs) {
    UNROLL
    for (int r = 0; r < rows; r++) {
        const char *to = (const char *)((GEMM_ELEM *)t->out + r * wide);
        UNROLL
        for (int c = 0; c < vecs; c++)
            __builtin_prefetch(to + c * 64 + 63, 1);
    }
}
INLINE void GEMM(tile)(const struct gemm_tile *t, int rows, int vecs) {
    enum { MOST_ROWS = 8 };
    const GEMM_ELEM *a = t->a, *b = t->b;
    int64_t row = t->a_row;
    LINE sum[MOST_ROWS][GEMM_VECS] = {0};
    GEMM(fetch)(t, t->out_row, rows, vecs);
    for (int64_t k = 0; k < t->k; k++) {
        const GEMM_ELEM *one = a + t->a_depth[k];
        const LINE *line = (const LINE *)(b + t->b_depth[k]);
        const char *next = (const char *)((const GEMM_ELEM *)t->next + t->next_depth[k]);
        LINE v[GEMM_VECS];
        UNROLL
        for (int c = 0; c < vecs; c++) {
            v[c] = line[c];
            __builtin_prefetch(next + c * 64);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            GEMM_ELEM x = one[r * row];
            UNROLL
            for (int c = 0; c < vecs; c++)
                sum[r][c] += TIMES(x, v[c]);
        }
    }
    GEMM(put)(t, t->out_row, sum, rows, vecs);
}
#define TILE(NAME, SUMS, ROWS, VECS)                                                               \
    GEMM_TARGET static void GEMM(NAME)(const struct gemm_tile *t) {                                \
        GEMM(SUMS)(t, ROWS, VECS);                                                                 \
    }
#ifdef GEMM_MADD
#define HIGH GEMM_MADD_ROWS
#define WIDE GEMM_MADD_VECS
#else
#define HIGH GEMM_ROWS
#define WIDE GEMM_VECS
#endif
TILE(tile_1_1, tile, HIGH, 1)
TILE(tile_1_2, tile, HIGH, 2)
TILE(tile_2_1, tile, HIGH / 2, 1)
TILE(tile_2_2, tile, HIGH / 2, 2)
TILE(tile_4_1, tile, HIGH / 4, 1)
TILE(tile_4_2, tile, HIGH / 4, 2)
#if WIDE == 2
#define THIRD(HEIGHT) NULL
#else
TILE(tile_1_3, tile, HIGH, 3)
TILE(tile_2_3, tile, HIGH / 2, 3)
TILE(tile_4_3, tile, HIGH / 4, 3)
#define THIRD(HEIGHT) GEMM(tile_##HEIGHT##_3)
#endif
static const struct gemm_kernel GEMM(kernel) = {{{GEMM(tile_1_1), GEMM(tile_1_2), THIRD(1)},
                                                 {GEMM(tile_2_1), GEMM(tile_2_2), THIRD(2)},
                                                 {GEMM(tile_4_1), GEMM(tile_4_2), THIRD(4)}},
                                                {HIGH, HIGH / 2, HIGH / 4},
                                                WIDE,
                                                GEMM_LANES,
                                                NULL,
                                                NULL};
#undef THIRD
#undef HIGH
#undef WIDE

#ifdef GEMM_SWAP
// Complex numbers lie as pairs in both operands and in the result: products with the real and with
// the imaginary part of the left one are summed apart and put together at the end.
INLINE void GEMM(pairs)(const struct gemm_tile *t, int rows, int vecs) {
    enum { MOST = GEMM_PAIR_ROWS };
    const GEMM_ELEM *a = t->a, *b = t->b;
    int64_t row = 2 * t->a_row;
    LINE re[MOST][GEMM_VECS] = {0}, im[MOST][GEMM_VECS] = {0}, sign;
    GEMM(fetch)(t, 2 * t->out_row, rows, vecs);
    for (int64_t k = 0; k < t->k; k++) {
        const GEMM_ELEM *one = a + 2 * t->a_depth[k];
        const LINE *line = (const LINE *)(b + 2 * t->b_depth[k]);
        const char *next = (const char *)((const GEMM_ELEM *)t->next + 2 * t->next_depth[k]);
        LINE v[GEMM_VECS];
        UNROLL
        for (int c = 0; c < vecs; c++) {
            v[c] = line[c];
            __builtin_prefetch(next + c * 64);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            GEMM_ELEM x = one[r * row], y = one[r * row + 1];
            UNROLL
            for (int c = 0; c < vecs; c++) {
                re[r][c] += x * v[c];
                im[r][c] += y * v[c];
            }
        }
    }

    UNROLL
    for (int k = 0; k < GEMM_LANES; k++)
        sign[k] = k % 2 ? 1 : -1;
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int c = 0; c < vecs; c++)
        re[r][c] += sign * __builtin_shufflevector(im[r][c], im[r][c], GEMM_SWAP);
    GEMM(put)(t, 2 * t->out_row, re, rows, vecs);
}
TILE(pairs_1_1, pairs, GEMM_PAIR_ROWS, 1)
TILE(pairs_1_2, pairs, GEMM_PAIR_ROWS, 2)
TILE(pairs_2_1, pairs, 2, 1)
TILE(pairs_2_2, pairs, 2, 2)
TILE(pairs_4_1, pairs, 1, 1)
TILE(pairs_4_2, pairs, 1, 2)
#if GEMM_PAIR_VECS == 3
TILE(pairs_1_3, pairs, GEMM_PAIR_ROWS, 3)
TILE(pairs_2_3, pairs, 2, 3)
TILE(pairs_4_3, pairs, 1, 3)
#define THIRD(HEIGHT) GEMM(pairs_##HEIGHT##_3)
#else
#define THIRD(HEIGHT) NULL
#endif
#include "devices/cpu/gemm/cpu_gemm_vector_body.h"
static const struct gemm_kernel GEMM(kernel_pairs) = {
    {{GEMM(pairs_1_1), GEMM(pairs_1_2), THIRD(1)},
     {GEMM(pairs_2_1), GEMM(pairs_2_2), THIRD(2)},
     {GEMM(pairs_4_1), GEMM(pairs_4_2), THIRD(4)}},
    {GEMM_PAIR_ROWS, 2, 1},
    GEMM_PAIR_VECS,
    GEMM_LANES / 2,
    GEMM(along_terms),
    GEMM(along_lines)};
#undef THIRD
#endif
#undef GEMM
#undef GEMM_ELEM
#undef GEMM_LANES
#undef GEMM_BYTES
#undef GEMM_SWAP
#undef GEMM_MADD
#undef TIMES
#undef LINE
#undef INLINE
#undef UNROLL
#undef TILE
