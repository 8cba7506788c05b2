// SPDX-License-Identifier: Apache-2.0
// cpu_winograd_results: products and results of Winograd's tiles (cpu_winograd.h) for one
// instruction set. Included behind cpu_winograd_body.h, whose names it takes away.
#ifndef WINO
#include "devices/cpu/panels/cpu_winograd_body.h"
#endif

// A': outputs from the products at the points.
INLINE void WINO(output_line)(int m, const LINE *s, LINE *y) {
    const float a = WINOGRAD_A, aa = a * a, b = WINOGRAD_B, bb = b * b;
    if (m == 2) {
        y[0] = s[0] + (s[1] + s[2]);
        y[1] = (s[1] - s[2]) + s[3];
        return;
    }
    LINE sum = s[1] + s[2], difference = s[1] - s[2], sum_b = s[3] + s[4],
         difference_b = s[3] - s[4];
    y[0] = s[0] + (sum + sum_b);
    y[1] = a * difference + b * difference_b;
    y[2] = aa * sum + bb * sum_b;
    y[3] = a * aa * difference + b * bb * difference_b + s[5];
}

// Of a tile: where its results are, and how many of them the image has.
struct WINO(results) {
    int64_t at, row; // floats
    int64_t high, wide;
};
// The steps on the results of a tile, which lie at y as m lines of m vectors.
INLINE void WINO(steps)(int m, const struct winograd_run *r, int64_t block,
                        const struct WINO(results) * o, float *y) {
    const struct winograd *w = r->w;
    for (int k = 0; k < w->n_post; k++) {
        const struct lib_post *p = &w->post[k];
        if (p->kind == LIB_POST_BIAS) {
            LINE bias = {0};
            int64_t n = w->features - block * LANES;
            memcpy(&bias, r->operand[k] + block * LANES,
                   (size_t)(n < LANES ? n : LANES) * sizeof(float));
            UNROLL
            for (int e = 0; e < m * m; e++)
                AT(y + e * LANES) += bias;
        } else if (p->kind == LIB_POST_SUM) {
            for (int64_t a = 0; a < o->high; a++)
                for (int64_t b = 0; b < o->wide; b++)
                    AT(y + (a * m + b) * LANES) +=
                        CAT(r->operand[k] + o->at + a * o->row + b * LANES);
        } else if (p->kind == LIB_POST_RELU) {
            UNROLL
            for (int e = 0; e < m * m; e++) {
                LINE x = CAT(y + e * LANES);
                AT(y + e * LANES) = (LINE)(~(x < 0) & (WINO(bits))x); // keeps NaN
            }
        } else {
            w->activate(p->kind, p->alpha, p->beta, y, m * m * LANES);
        }
    }
}
// Sums at the points of a tile and one block of features, two vectors apart, to its results.
INLINE void WINO(output_tile)(int m, const float *s, float *y) {
    const int n = m + 2, step = PANEL_VECTORS * LANES;
    LINE half[WINOGRAD_MOST][WINOGRAD_MOST + 2], line[WINOGRAD_MOST + 2], to[WINOGRAD_MOST];
    for (int c = 0; c < n; c++) {
        UNROLL
        for (int r = 0; r < n; r++)
            line[r] = CAT(s + (r * n + c) * step);
        WINO(output_line)(m, line, to);
        UNROLL
        for (int r = 0; r < m; r++)
            half[r][c] = to[r];
    }
    for (int r = 0; r < m; r++) {
        WINO(output_line)(m, half[r], to);
        UNROLL
        for (int c = 0; c < m; c++)
            AT(y + (r * m + c) * LANES) = to[c];
    }
}
// The results y of a tile and block of features through the steps to where they belong.
INLINE void WINO(put)(int m, const struct winograd_run *r, const struct WINO(place) * at,
                      int64_t block, float *y) {
    const struct winograd *w = r->w;
    int64_t oy = at->y + w->top, ox = at->x + w->left, left = w->features - block * LANES;
    struct WINO(results) o = {.row = w->out_width * LANES,
                              .high = w->out_height - oy < m ? w->out_height - oy : m,
                              .wide = w->out_width - ox < m ? w->out_width - ox : m};
    o.at = (((at->image * w->out_blocks + block) * w->out_height + oy) * w->out_width + ox) * LANES;
    WINO(steps)(m, r, block, &o, y);
    if (left < LANES) // channels that fill up a block stay zero
        for (int e = 0; e < m * m; e++)
            memset(y + e * LANES + left, 0, (size_t)(LANES - left) * sizeof *y);
    float *out = r->out + o.at;
    if (o.high == m && o.wide == m) {
        UNROLL
        for (int e = 0; e < m * m; e++)
            AT(out + e / m * o.row + e % m * LANES) = CAT(y + e * LANES);
        return;
    }
    for (int64_t a = 0; a < o.high; a++)
        for (int64_t b = 0; b < o.wide; b++)
            AT(out + a * o.row + b * LANES) = CAT(y + (a * m + b) * LANES);
}

// ---- inputs that are no finite numbers

INLINE bool WINO(finite)(int m, const float *y) {
    LINE sum = {0};
    UNROLL
    for (int e = 0; e < m * m; e++)
        sum += CAT(y + e * LANES) * 0; // NaN of any of them
    WINO(bits) same = sum == sum;
    int32_t all = -1;
    for (int e = 0; e < LANES; e++)
        all &= same[e];
    return all;
}
// What such inputs make of the results: in none of a tile's transforms do they stay where they are.
// So the tile is computed anew with zeros in their place, and the results that they belong to are
// what the products' signs say (winograd_taint); so are those of such filters, which are zeros in
// the transformed weights, with each input of the image. y: both halves of panel p.
INLINE void WINO(mend)(int m, const struct winograd_run *r, const struct WINO(place) * at,
                       int64_t p, float *y) {
    const struct winograd *w = r->w;
    const int points = (m + 2) * (m + 2), wide = PANEL_VECTORS * LANES;
    float patch[WINOGRAD_POINTS * LANES] __attribute__((aligned(64))) = {0},
                                         v[WINOGRAD_POINTS * LANES] __attribute__((aligned(64)));
    LINE sums[WINOGRAD_POINTS][PANEL_VECTORS] = {0};
    struct winograd_taints t = {0};
    bool filters = winograd_filters(r, p);
    for (int64_t b = 0; b < w->in_blocks; b++) {
        int64_t row;
        const float *x = WINO(inputs)(r, at, b, patch, &row);
        for (int k = 0; k < m + 2 && x != patch; k++)
            memcpy(patch + k * (m + 2) * LANES, x + k * row, (size_t)(m + 2) * LANES * sizeof *x);
        for (int e = 0; e < points * LANES; e++) {
            bool finite = patch[e] - patch[e] == 0;
            int place = e / LANES, row_at = place / (m + 2), at_x = place % (m + 2);
            bool within = row_at >= at->y0 && row_at < at->y1 && at_x >= at->x0 && at_x < at->x1;
            if (finite && !(filters && within)) continue;
            winograd_taint(r, p, b * LANES + e % LANES, place, patch[e], &t);
            if (!finite) patch[e] = 0;
        }

        WINO(transform_tile)(m, patch, (m + 2) * LANES, v, LANES);
        const float *u = r->weights + (p * points * w->in_blocks + b) * LANES * wide;
        for (int k = 0; k < points; k++, u += w->in_blocks * LANES * wide)
            for (int c = 0; c < LANES; c++)
                for (int h = 0; h < PANEL_VECTORS; h++)
                    sums[k][h] += v[k * LANES + c] * CAT(u + c * wide + h * LANES);
    }
    for (int h = 0; h < PANEL_VECTORS && t.any; h++) {
        float *half = y + h * m * m * LANES;
        WINO(output_tile)(m, (const float *)sums + h * LANES, half);
        for (int e = 0; e < m * m; e++)
            for (int f = 0; f < LANES; f++)
                if (t.of[e][h * LANES + f])
                    half[e * LANES + f] = winograd_tainted(t.of[e][h * LANES + f]);
    }
}
INLINE void WINO(results_of)(int m, const struct winograd_run *r, int64_t tile, int64_t p,
                             const float *sums, int halves) {
    float y[PANEL_VECTORS * WINOGRAD_MOST * WINOGRAD_MOST * LANES] __attribute__((aligned(64)));
    struct WINO(place) at = WINO(place_of)(r->w, tile);
    for (int h = 0; h < halves; h++)
        WINO(output_tile)(m, sums + h * LANES, y + h * m * m * LANES);
    if (!WINO(finite)(m, y) || winograd_filters(r, p)) WINO(mend)(m, r, &at, p, y);
    for (int h = 0; h < halves; h++)
        WINO(put)(m, r, &at, 2 * p + h, y + h * m * m * LANES);
}
WINO_TARGET static void WINO(finish)(const struct winograd_run *r, int64_t tile, int64_t n,
                                     int64_t p, const float *v, float *sums) {
    const struct winograd *w = r->w;
    int64_t depth = w->in_blocks * LANES, each = depth * PANEL_VECTORS * LANES;
    int halves = 2 * p + 1 < w->out_blocks ? 2 : 1;
    struct panel_product q = {.rows = n,
                              .depth = depth,
                              .a_row = depth,
                              .b_term = PANEL_VECTORS * LANES,
                              .out_row = w->points * PANEL_VECTORS * LANES,
                              .out_vector = LANES,
                              .single = halves == 1};
    for (int k = 0; k < w->points; k++) {
        q.a = v + k * w->step;
        q.b = r->weights + (p * w->points + k) * each;
        q.next = q.b + each;
        q.out = sums + k * PANEL_VECTORS * LANES;
        w->panel->multiply(&q);
    }
    for (int64_t t = 0; t < n; t++)
        if (w->m == 4)
            WINO(results_of)(4, r, tile + t, p, sums + t * q.out_row, halves);
        else
            WINO(results_of)(2, r, tile + t, p, sums + t * q.out_row, halves);
}
#undef WINO
#undef WINO_LANES
#undef WINO_TARGET
#undef LINE
#undef LANES
#undef INLINE
#undef UNROLL
#undef AT
#undef CAT
