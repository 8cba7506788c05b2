// SPDX-License-Identifier: Apache-2.0
// The loops of cpu_pairs.c. A share of the work packs its rows of x and multiplies them with one
// panel of weights after the other: a tile of 4 x 16 sums stays in registers.
#include <immintrin.h>

#include "devices/cpu/pairs/cpu_pairs.h"

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 8")
enum { LANES = 8, VECTORS = PAIRS_PANEL / LANES, BYTES = 32 };

// ---- tiles

INLINE __m256i load(const void *p) {
    return _mm256_loadu_si256(p);
}
INLINE __m256i add_quads(__m256i sum, __m256i x, __m256i w) {
    return _mm256_add_epi32(sum,
                            _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), _mm256_set1_epi16(1)));
}
// Even and odd bytes as 16 bits.
INLINE __m256i add_wide(__m256i sum, __m256i x, __m256i w) {
    const __m256i low = _mm256_set1_epi16(0xff);
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, low),
                                     _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8)),
            odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
// Steps `from`.. `to` of a panel, each with the part of x that `order` says.
INLINE void in_order_of(const struct pairs_panel *p, int64_t from, int64_t to, const int32_t *x,
                        bool narrow, int rows, __m256i s[PAIRS_ROWS][2 * VECTORS]) {
    const char *w = p->steps + from * PAIRS_STEP;
    for (int64_t k = from; k < to; k++, w += PAIRS_STEP) {
        const int32_t *at = x + (int64_t)p->order[k] * PAIRS_ROWS;
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m256i one = _mm256_set1_epi32(at[r]);
            UNROLL
            for (int v = 0; v < VECTORS; v++)
                s[r][v] = narrow ? add_quads(s[r][v], one, load(w + v * BYTES))
                                 : add_wide(s[r][v], one, load(w + v * BYTES));
        }
    }
}
// `vectors` of one panel, or of two that lie `apart`.
INLINE void tile(const struct pairs_state *t, const int32_t *x, const struct pairs_panel *p,
                 int64_t apart, int rows, int vectors, int32_t *sums) {
    __m256i s[PAIRS_ROWS][2 * VECTORS];
    const char *w = p->steps, *start = (const char *)p->start;
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        s[r][v] = load(start + v / VECTORS * apart + v % VECTORS * BYTES);

    if (p->narrow < t->quads && vectors == VECTORS) {
        in_order_of(p, 0, p->narrow, x, true, rows, s);
        in_order_of(p, p->narrow, t->quads, x, false, rows, s);
    } else {
        for (int64_t k = 0; k < t->quads; k++, w += PAIRS_STEP)
            UNROLL
        for (int r = 0; r < rows; r++) {
            __m256i one = _mm256_set1_epi32(x[k * PAIRS_ROWS + r]);
            UNROLL
            for (int v = 0; v < vectors; v++)
                s[r][v] =
                    add_quads(s[r][v], one, load(w + v / VECTORS * apart + v % VECTORS * BYTES));
        }
    }

    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < vectors; v++) {
        int32_t *to = sums + (v / VECTORS * PAIRS_ROWS + r) * PAIRS_PANEL + v % VECTORS * LANES;
        _mm256_storeu_si256((__m256i *)(void *)to, s[r][v]);
    }
}
static TARGET void tile_of(const struct pairs_state *t, const int32_t *x,
                           const struct pairs_panel *p, int rows, int32_t *sums) {
    switch (rows) {
    case 1:
        return tile(t, x, p, 0, 1, VECTORS, sums);
    case 2:
        return tile(t, x, p, 0, 2, VECTORS, sums);
    case 3:
        return tile(t, x, p, 0, 3, VECTORS, sums);
    default:
        return tile(t, x, p, 0, 4, VECTORS, sums);
    }
}
// Two panels at once, where one row alone has few sums to wait for.
static TARGET void two_tiles(const struct pairs_state *t, const int32_t *x,
                             const struct pairs_panel *p, int rows, int32_t *sums) {
    int64_t apart = cpu_pairs_panel_bytes(t);
    if (rows == 1)
        tile(t, x, p, apart, 1, 2 * VECTORS, sums);
    else
        tile(t, x, p, apart, 2, 2 * VECTORS, sums);
}

// ---- shares of the work

static int64_t tiles_of(const struct pairs_state *t) {
    return (t->block + PAIRS_ROWS - 1) / PAIRS_ROWS;
}
int64_t cpu_pairs_thread_bytes(const struct pairs_state *t) {
    return tiles_of(t) * cpu_pairs_rows_bytes(t) + cpu_pairs_room_bytes(t);
}
static int rows_left(int64_t n) {
    return n < PAIRS_ROWS ? (int)n : PAIRS_ROWS;
}
// One group's panels from..to of a block of rows.
static TARGET void block(const struct pairs_call *c, int64_t row, int64_t end, int64_t group,
                         int64_t from, int64_t to, char *own) {
    enum { TILE = PAIRS_ROWS * PAIRS_PANEL };
    const struct pairs_state *t = c->t;
    int32_t sums[2 * TILE] __attribute__((aligned(32)));
    int64_t each = cpu_pairs_rows_bytes(t), row_elements = t->groups * t->cols;
    uint8_t *room = (uint8_t *)own + tiles_of(t) * each;
    struct pairs_window at;
    cpu_pairs_window(t, row, &at);
    for (int64_t r = row; r < end; r += PAIRS_ROWS)
        cpu_pairs_pack_rows(t, (const uint8_t *)c->x, group, &at, rows_left(end - r), room,
                            (int32_t *)(void *)(own + (r - row) / PAIRS_ROWS * each));

    for (int64_t p = from, n_panels; p < to; p += n_panels) {
        struct pairs_panel w = cpu_pairs_panel(t, c->w, group * t->panels + p);
        int64_t column = group * t->cols + p * PAIRS_PANEL, left = t->cols - p * PAIRS_PANEL;
        struct pairs_steps steps[2];
        bool two = end - row <= 2 && p + 1 < to && w.narrow == t->quads &&
                   cpu_pairs_panel(t, c->w, group * t->panels + p + 1).narrow == t->quads;
        n_panels = 1 + two;
        for (int q = 0; q < n_panels; q++)
            cpu_pairs_begin(c, column + q * PAIRS_PANEL, left - q * PAIRS_PANEL, &steps[q]);
        for (int64_t r = row; r < end; r += PAIRS_ROWS) {
            int rows = rows_left(end - r);
            const int32_t *x = (const int32_t *)(void *)(own + (r - row) / PAIRS_ROWS * each);
            (two ? two_tiles : tile_of)(t, x, &w, rows, sums);
            for (int q = 0; q < n_panels; q++)
                cpu_pairs_finish(&steps[q], sums + q * TILE, rows,
                                 r * row_elements + column + q * PAIRS_PANEL);
        }
    }
}
static TARGET void part(void *ctx, int64_t begin, int64_t end, int thread) {
    const struct pairs_call *c = ctx;
    const struct pairs_state *t = c->t;
    char *own = c->scratch + cpu_pairs_thread_bytes(t) * thread;
    int64_t all = t->groups * t->panels, chunks = (all + t->chunk - 1) / t->chunk;
    for (int64_t u = begin; u < end; u++) {
        int64_t row = u / chunks * t->block, p = u % chunks * t->chunk;
        int64_t last = row + t->block < t->rows ? row + t->block : t->rows;
        int64_t stop = p + t->chunk < all ? p + t->chunk : all;
        for (int64_t next; p < stop; p = next) {
            int64_t group = p / t->panels, of_group = (group + 1) * t->panels;
            next = of_group < stop ? of_group : stop;
            block(c, row, last, group, p - group * t->panels, next - group * t->panels, own);
        }
    }
}

void cpu_pairs_multiply(const struct pairs_call *c) {
    cpu_parallel(part, (void *)(uintptr_t)c, c->t->units, c->t->grain);
}
