// SPDX-License-Identifier: Apache-2.0
// cpu_thin_body: the loops of cpu_thin.c for one instruction set. Included once for each, with THIN
// (name), THIN_BYTES (of a vector), THIN_TARGET (attribute), THIN_WIDE (vectors of a block of
// columns), THIN_DEEP (rows of the right matrix that the streaming loop takes at once for two rows
// of the left one, twice as many for one) and THIN_FROM_F16 (a vector of f16 widened) set;
// cpu_thin_activate.h follows and takes away what both define.
#ifndef THIN
#define THIN(name) name##_plain
#define THIN_BYTES 16
#define THIN_TARGET
#define THIN_WIDE 2
#define THIN_DEEP 4
#define THIN_FROM_F16(h) ((void)(h), (THIN(vec)){0})
#endif
#include "devices/cpu/routines/cpu_thin.h"

// Weights lie in their file as they may: at any byte.
typedef float THIN(weight) __attribute__((aligned(1), may_alias));
typedef float THIN(vec) __attribute__((vector_size(THIN_BYTES), aligned(1), may_alias));
typedef int32_t THIN(bits) __attribute__((vector_size(THIN_BYTES), aligned(1), may_alias));
typedef uint16_t THIN(halves) __attribute__((vector_size(THIN_BYTES / 2), aligned(1), may_alias));
typedef float THIN(four) __attribute__((vector_size(16)));
typedef uint32_t THIN(words) __attribute__((vector_size(THIN_BYTES), aligned(1), may_alias));
#define FLOATS THIN(vec)
#define BITS THIN(bits)
#define INLINE static inline __attribute__((always_inline)) THIN_TARGET
enum { THIN(LANES) = THIN_BYTES / 4 };
#define LANES THIN(LANES)
#define UNROLL _Pragma("GCC unroll 16") // all bounds are constants where these are inlined
#define AT(p) (*(FLOATS *)(p))
#define CAT(p) (*(const FLOATS *)(p))

// ---- right matrix [k, columns]

// Few rows: `deep` rows of the right matrix meet the sums at once, each read from front to end.
INLINE void THIN(stream_rows)(const struct thin_product *p, int rows, int deep) {
    int64_t k = 0, n;
    for (; k + deep <= p->k; k += deep) {
        const THIN(weight) *w = (const THIN(weight) *)p->w + k * p->w_stride;
        for (n = 0; n + LANES <= p->cols; n += LANES) {
            UNROLL
            for (int r = 0; r < rows; r++) {
                const float *x = p->x + r * p->x_stride + k;
                FLOATS t = AT(p->out + r * p->out_stride + n);
                UNROLL
                for (int d = 0; d < deep; d++)
                    t += x[d] * CAT(w + d * p->w_stride + n);
                AT(p->out + r * p->out_stride + n) = t;
            }
        }
        for (; n < p->cols; n++)
            UNROLL
            for (int r = 0; r < rows; r++)
                UNROLL
                for (int d = 0; d < deep; d++)
                    p->out[r * p->out_stride + n] +=
                        p->x[r * p->x_stride + k + d] * w[d * p->w_stride + n];
    }
    for (; k < p->k; k++)
        UNROLL
        for (int r = 0; r < rows; r++) {
            float x = p->x[r * p->x_stride + k], *out = p->out + r * p->out_stride;
            const THIN(weight) *w = (const THIN(weight) *)p->w + k * p->w_stride;
            for (n = 0; n + LANES <= p->cols; n += LANES)
                AT(out + n) += x * CAT(w + n);
            for (; n < p->cols; n++)
                out[n] += x * w[n];
        }
}
// rows x wide vectors of sums in registers.
INLINE void THIN(block)(const struct thin_product *p, int64_t n, int rows, int wide) {
    FLOATS sum[THIN_ROWS][THIN_WIDE];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int v = 0; v < wide; v++)
            sum[r][v] = CAT(p->out + r * p->out_stride + n + v * LANES);
    for (int64_t k = 0; k < p->k; k++) {
        const THIN(weight) *w = (const THIN(weight) *)p->w + k * p->w_stride + n;
        UNROLL
        for (int v = 0; v < wide; v++) {
            FLOATS one = CAT(w + v * LANES);
            UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][v] += p->x[r * p->x_stride + k] * one;
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int v = 0; v < wide; v++)
            AT(p->out + r * p->out_stride + n + v * LANES) = sum[r][v];
}
INLINE void THIN(blocks)(const struct thin_product *p, int rows) {
    int64_t n = 0;
    for (; n + THIN_WIDE * LANES <= p->cols; n += THIN_WIDE * LANES)
        THIN(block)(p, n, rows, THIN_WIDE);
    for (; n + LANES <= p->cols; n += LANES)
        THIN(block)(p, n, rows, 1);
    if (n == p->cols) return;
    for (int64_t k = 0; k < p->k; k++)
        UNROLL
        for (int r = 0; r < rows; r++)
            for (int64_t e = n; e < p->cols; e++)
                p->out[r * p->out_stride + e] +=
                    p->x[r * p->x_stride + k] * ((const THIN(weight) *)p->w)[k * p->w_stride + e];
}

// ---- right matrix packed: panels of THIN_WIDE vectors, each [k, columns of the panel]

// Vector v behind w, of the form's type. bf16 lies in words, of vector 2v in the lower half and of
// 2v + 1 in the upper one, which a shift and a mask widen.
INLINE FLOATS THIN(weights)(const char *w, int v, enum thin_form form) {
    if (form == THIN_PANELS) return CAT((const float *)w + v * LANES);
    if (form == THIN_PANELS_F16) return THIN_FROM_F16(*(const THIN(halves) *)(w + v * LANES * 2));
    THIN(words) both = *(const THIN(words) *)(w + v / 2 * LANES * 4);
    return (FLOATS)(both << (v % 2 ? 0 : 16) & 0xffff0000);
}
// The depth goes to `split` sums side by side, so that few rows do not wait for their own sums.
INLINE void THIN(panel)(const char *w, enum thin_form form, const float *x, int64_t x_stride,
                        float *out, int64_t out_stride, int64_t depth, int rows, int split) {
    const int64_t line = THIN_WIDE * LANES * (form == THIN_PANELS ? 4 : 2);
    FLOATS sum[THIN_ROWS][THIN_WIDE];
    int64_t k = 0;
    UNROLL
    for (int r = 0; r < rows * split; r++)
        UNROLL
        for (int v = 0; v < THIN_WIDE; v++)
            sum[r][v] = r < rows ? CAT(out + r * out_stride + v * LANES) : (FLOATS){0};
    for (; k + split <= depth; k += split)
        UNROLL
        for (int d = 0; d < split; d++, w += line)
            UNROLL
            for (int v = 0; v < THIN_WIDE; v++) {
                FLOATS one = THIN(weights)(w, v, form);
                UNROLL
                for (int r = 0; r < rows; r++)
                    sum[d * rows + r][v] += x[r * x_stride + k + d] * one;
            }
    for (; k < depth; k++, w += line)
        UNROLL
        for (int v = 0; v < THIN_WIDE; v++)
            UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][v] += x[r * x_stride + k] * THIN(weights)(w, v, form);
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int v = 0; v < THIN_WIDE; v++) {
            FLOATS s = sum[r][v];
            UNROLL
            for (int d = 1; d < split; d++)
                s += sum[d * rows + r][v];
            AT(out + r * out_stride + v * LANES) = s;
        }
}
INLINE void THIN(panels)(const struct thin_product *p, enum thin_form form, int rows, int split) {
    const int64_t each = p->k * (form == THIN_PANELS ? 4 : 2);
    for (int64_t n = 0; n < p->cols; n += THIN_WIDE * LANES)
        THIN(panel)
        ((const char *)p->w + n * each, form, p->x, p->x_stride, p->out + n, p->out_stride, p->k,
         rows, split);
}
INLINE void THIN(panel_rows)(const struct thin_product *p, enum thin_form form) {
    switch (p->rows) {
    case 1:
        return THIN(panels)(p, form, 1, 4);
    case 2:
        return THIN(panels)(p, form, 2, 2);
    case 3:
        return THIN(panels)(p, form, 3, 1);
    case 4:
        return THIN(panels)(p, form, 4, 1);
    case 5:
        return THIN(panels)(p, form, 5, 1);
    default:
        return THIN(panels)(p, form, THIN_ROWS, 1);
    }
}

// ---- right matrix [columns, k]

INLINE float THIN(total)(FLOATS v) {
    THIN(four) part[LANES / 4];
    memcpy(part, &v, sizeof part);
    UNROLL
    for (int half = LANES / 8; half; half /= 2)
        UNROLL
        for (int k = 0; k < half; k++)
            part[k] += part[k + half];
    return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
}
INLINE void THIN(dots)(const struct thin_product *p, int64_t n, int rows, int cols) {
    FLOATS sum[THIN_ROWS][8];
    int64_t k = 0;
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int c = 0; c < cols; c++)
            sum[r][c] = (FLOATS){0};
    for (; k + LANES <= p->k; k += LANES)
        UNROLL
        for (int c = 0; c < cols; c++) {
            FLOATS w = CAT((const THIN(weight) *)p->w + (n + c) * p->w_stride + k);
            UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][c] += CAT(p->x + r * p->x_stride + k) * w;
        }
    UNROLL
    for (int c = 0; c < cols; c++)
        UNROLL
        for (int r = 0; r < rows; r++) {
            float s = THIN(total)(sum[r][c]);
            for (int64_t e = k; e < p->k; e++)
                s += p->x[r * p->x_stride + e] *
                     ((const THIN(weight) *)p->w)[(n + c) * p->w_stride + e];
            p->out[r * p->out_stride + n + c] += s;
        }
}
INLINE void THIN(all_dots)(const struct thin_product *p, int rows, int cols) {
    int64_t n = 0;
    for (; n + cols <= p->cols; n += cols)
        THIN(dots)(p, n, rows, cols);
    for (; n + 2 <= p->cols; n += 2)
        THIN(dots)(p, n, rows, 2);
    for (; n < p->cols; n++)
        THIN(dots)(p, n, rows, 1);
}

static THIN_TARGET void THIN(product)(const struct thin_product *p) {
    switch (p->rows + 8 * (int)p->form) {
    case 1: return THIN(stream_rows)(p, 1, 2 * THIN_DEEP);
    case 2: return THIN(stream_rows)(p, 2, THIN_DEEP);
    case 3: return THIN(blocks)(p, 3);
    case 4: return THIN(blocks)(p, 4);
    case 5: return THIN(blocks)(p, 5);
    case 6: return THIN(blocks)(p, 6);
    case 9: return THIN(all_dots)(p, 1, 8);
    case 10: return THIN(all_dots)(p, 2, 4);
    case 11: return THIN(all_dots)(p, 3, 4);
    case 12: return THIN(all_dots)(p, 4, 4);
    case 13: return THIN(all_dots)(p, 5, THIN_WIDE);
    case 14: return THIN(all_dots)(p, 6, THIN_WIDE);
    default:
        if (p->form == THIN_PANELS) return THIN(panel_rows)(p, THIN_PANELS);
        if (p->form == THIN_PANELS_F16) return THIN(panel_rows)(p, THIN_PANELS_F16);
        return THIN(panel_rows)(p, THIN_PANELS_BF16);
    }
}
