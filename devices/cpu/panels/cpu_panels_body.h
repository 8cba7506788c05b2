// SPDX-License-Identifier: Apache-2.0
// cpu_panels_body: the register tiles of cpu_panels.c for one instruction set. Included once for
// each, with PANEL (name), PANEL_LANES, PANEL_ROWS (of the largest tile), PANEL_LOW and PANEL_HIGH
// (lower and upper halves of each quarter of two vectors, in turn) and PANEL_TARGET (attribute)
// set; takes them away.
#ifndef PANEL
#define PANEL(name) name##_plain
#define PANEL_LANES 4
#define PANEL_ROWS  6
#define PANEL_LOW   0, 4, 1, 5
#define PANEL_HIGH  2, 6, 3, 7
#define PANEL_TARGET
#endif
#include <string.h>

#include "devices/cpu/panels/cpu_panels.h"

typedef float PANEL(vec) __attribute__((vector_size(4 * PANEL_LANES), aligned(4), may_alias));
typedef int32_t PANEL(bits) __attribute__((vector_size(4 * PANEL_LANES)));
#define LINE   PANEL(vec)
#define INLINE PANEL_TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") // all bounds are constants once it is inlined

// Runs of four floats, `step` bytes apart.
INLINE LINE PANEL(quarters)(const char *from, int64_t step) {
    typedef float quarter __attribute__((vector_size(16), aligned(1), may_alias));
#if PANEL_LANES == 16
    typedef float half __attribute__((vector_size(32)));
    half a = __builtin_shufflevector(*(const quarter *)from, *(const quarter *)(from + step), 0, 1,
                                     2, 3, 4, 5, 6, 7),
         b = __builtin_shufflevector(*(const quarter *)(from + 2 * step),
                                     *(const quarter *)(from + 3 * step), 0, 1, 2, 3, 4, 5, 6, 7);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif PANEL_LANES == 8
    return __builtin_shufflevector(*(const quarter *)from, *(const quarter *)(from + step), 0, 1, 2,
                                   3, 4, 5, 6, 7);
#else
    return *(const quarter *)from;
#endif
}
INLINE void PANEL(add)(const struct panel_product *p, int64_t row, int rows, int vectors,
                       LINE sum[][PANEL_VECTORS]) {
    const float *out = p->out + row * p->out_row;
    int64_t out_row = p->out_row, out_vector = p->out_vector;
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int c = 0; c < vectors; c++)
        sum[r][c] += *(const LINE *)(out + r * out_row + c * out_vector);
}
INLINE void PANEL(put)(const struct panel_product *p, int64_t row, int rows, int vectors,
                       LINE sum[][PANEL_VECTORS]) {
    float *out = p->out + row * p->out_row;
    int64_t out_row = p->out_row, out_vector = p->out_vector;
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int c = 0; c < vectors; c++)
        *(LINE *)(out + r * out_row + c * out_vector) = sum[r][c];
}
INLINE void PANEL(steps)(const struct panel_product *p, int rows, int vectors,
                         LINE sum[][PANEL_VECTORS]) {
    UNROLL
    for (int c = 0; c < vectors; c++) {
        LINE bias = {0};
        if (p->bias) bias = *(const LINE *)(p->bias + c * PANEL_LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            if (p->bias) sum[r][c] += bias;
            if (p->relu) sum[r][c] = (LINE)(~(sum[r][c] < 0) & (PANEL(bits))sum[r][c]);
        }
    }
}
// ahead: what is fetched meanwhile, `step` bytes on with each term.
INLINE void PANEL(tile)(const struct panel_product *p, int64_t row, int rows, int vectors,
                        const char *ahead, int64_t step) {
    LINE sum[PANEL_VECTORS * PANEL_ROWS][PANEL_VECTORS] = {0};
    int64_t a_row = p->a_row, b_term = p->b_term, depth = p->depth;
    const float *a = p->a + row * a_row, *b = p->b;
    for (int64_t k = 0; k < depth; k++, b += b_term, ahead += step) {
        LINE v[PANEL_VECTORS];
        __builtin_prefetch(ahead, 0, 3);
        UNROLL
        for (int c = 0; c < vectors; c++)
            v[c] = *(const LINE *)(b + c * PANEL_LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            float x = a[r * a_row + k];
            UNROLL
            for (int c = 0; c < vectors; c++)
                sum[r][c] += x * v[c];
        }
    }
    if (p->add) PANEL(add)(p, row, rows, vectors, sum);
    if (p->bias || p->relu) PANEL(steps)(p, rows, vectors, sum);
    PANEL(put)(p, row, rows, vectors, sum);
}
typedef void (*PANEL(tile_fn))(const struct panel_product *p, int64_t row, const char *ahead,
                               int64_t step);
#define TILE(ROWS, VECTORS)                                                                        \
    PANEL_TARGET static void PANEL(tile_##ROWS##_##VECTORS)(                                       \
        const struct panel_product *p, int64_t row, const char *ahead, int64_t step) {             \
        PANEL(tile)(p, row, ROWS, VECTORS, ahead, step);                                           \
    }
// clang-format off
#define SIX(DO, V) DO(1, V) DO(2, V) DO(3, V) DO(4, V) DO(5, V) DO(6, V)
#define SIX_MORE(DO, V) DO(7, V) DO(8, V) DO(9, V) DO(10, V) DO(11, V) DO(12, V)
#define NAME(ROWS, VECTORS) PANEL(tile_##ROWS##_##VECTORS),
SIX(TILE, 1)
SIX_MORE(TILE, 1)
SIX(TILE, 2)
#if PANEL_ROWS > 6
SIX_MORE(TILE, 2)
#endif
// By vectors - 1 and rows. A single vector: more rows, so that no sum waits for itself.
static const PANEL(tile_fn) PANEL(tiles)[PANEL_VECTORS][13] = {
    {NULL, SIX(NAME, 1) SIX_MORE(NAME, 1)},
    {NULL, SIX(NAME, 2)
#if PANEL_ROWS > 6
     SIX_MORE(NAME, 2)
#endif
    }};
// clang-format on
// Rows in tiles of the same height, or nearly: a low last one would wait for its own sums. What is
// fetched meanwhile is spread over all of them.
static void PANEL(multiply)(const struct panel_product *p) {
    enum { BYTES = PANEL_VECTORS * PANEL_LANES * sizeof(float) }; // of a term's columns
    int64_t most = p->single ? 12 : PANEL_ROWS, n = (p->rows + most - 1) / most,
            step = p->next_term ? p->next_term * (int64_t)sizeof(float)
                   : p->next    ? (BYTES + n - 1) / n
                                : 0;
    const char *ahead = (const char *)(p->next ? p->next : p->b);
    for (int64_t t = 0; t < n; t++, ahead += p->depth * step) {
        int64_t row = p->rows * t / n, end = p->rows * (t + 1) / n;
        PANEL(tiles)[!p->single][end - row](p, row, ahead, step);
    }
}

// ---- packing

// Four terms of LANES columns that lie `step` bytes apart to lines of a panel. Columns four apart
// share a vector, of which each quarter (four lanes) is then turned.
INLINE void PANEL(turn)(const char *from, int64_t step, float *to) {
    LINE v[4], w[4];
    UNROLL
    for (int c = 0; c < 4; c++)
        v[c] = PANEL(quarters)(from + c * step, 4 * step);
    UNROLL
    for (int c = 0; c < 2; c++) {
        w[2 * c] = __builtin_shufflevector(v[c], v[c + 2], PANEL_LOW);
        w[2 * c + 1] = __builtin_shufflevector(v[c], v[c + 2], PANEL_HIGH);
    }
    UNROLL
    for (int c = 0; c < 2; c++) {
        v[2 * c] = __builtin_shufflevector(w[c], w[c + 2], PANEL_LOW);
        v[2 * c + 1] = __builtin_shufflevector(w[c], w[c + 2], PANEL_HIGH);
    }
    UNROLL
    for (int k = 0; k < 4; k++)
        *(LINE *)(to + k * PANEL_VECTORS * PANEL_LANES) = v[k];
}
// Columns that lie along the depth: one panel, from line k on where `to` is. Gives how many lines.
INLINE int64_t PANEL(pack_turned)(const struct panel_source *s, int64_t column, int64_t columns,
                                  float *to) {
    enum { WIDE = PANEL_VECTORS * PANEL_LANES };
    const int64_t size = (int64_t)sizeof *to, step = s->column_step * size;
    const char *from = (const char *)s->from + column * step;
    int64_t k = 0, whole = columns / PANEL_LANES * PANEL_LANES;
    for (; k + 4 <= s->depth; k += 4, to += 4 * WIDE) {
        for (int64_t c = 0; c < whole; c += PANEL_LANES)
            PANEL(turn)(from + c * step + k * size, step, to + c);
        for (int64_t c = whole; c < columns; c++)
            for (int e = 0; e < 4; e++)
                memcpy(to + e * WIDE + c, from + c * step + (k + e) * size, sizeof *to);
    }
    return k;
}
PANEL_TARGET static void PANEL(pack)(const struct panel_source *s, float *to) {
    enum { WIDE = PANEL_VECTORS * PANEL_LANES, AHEAD = 8 };
    const int64_t size = (int64_t)sizeof *to, each = s->panel_step, step = s->k_step * size;
    int64_t whole = s->columns / WIDE, over = s->columns % WIDE, k = 0;
    if (over) memset(to + whole * each, 0, (size_t)s->depth * WIDE * sizeof *to);
    if (s->k_step == 1) {
        for (int64_t p = 0; p < whole; p++)
            k = PANEL(pack_turned)(s, p * WIDE, WIDE, to + p * each);
        if (over) k = PANEL(pack_turned)(s, whole * WIDE, over, to + whole * each);
    }
    for (; k < s->depth; k++) {
        const char *from = (const char *)s->from + k * step;
        float *line = to + k * WIDE;
        int64_t c = 0;
        for (int64_t p = 0; p < whole && s->column_step == 1; p++, c += WIDE, line += each) {
            __builtin_prefetch(from + AHEAD * step + c * size);
            memcpy(line, from + c * size, WIDE * sizeof *line);
        }
        for (; c + PANEL_LANES <= s->columns && s->column_step == 1; c += PANEL_LANES)
            memcpy(line, from + c * size, sizeof(LINE));
        for (; c < s->columns; c++)
            memcpy(to + c / WIDE * each + k * WIDE + c % WIDE, from + c * s->column_step * size,
                   sizeof *to);
    }
}
PANEL_TARGET static void PANEL(add_to)(float *to, const float *from, int64_t n) {
    int64_t k = 0;
    for (; k + PANEL_LANES <= n; k += PANEL_LANES)
        *(LINE *)(to + k) += *(const LINE *)(from + k);
    for (; k < n; k++)
        to[k] += from[k];
}
#undef PANEL
#undef PANEL_LANES
#undef PANEL_ROWS
#undef PANEL_LOW
#undef PANEL_HIGH
#undef PANEL_TARGET
#undef LINE
#undef INLINE
#undef UNROLL
#undef TILE
#undef SIX
#undef SIX_MORE
#undef NAME
