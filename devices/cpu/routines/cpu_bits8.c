// SPDX-License-Identifier: Apache-2.0
// bits8: panels of cpu_bits.c for rows rounded to 8 bits (.x8 of compiler/calls/bits.h), by VNNI:
// an instruction multiplies four unsigned bytes with four signed ones in each of 16 lanes. A word
// of a column, shifted by k numbers and masked, is four numbers, `apart` from each other; x of a
// block lies in that order. Sums of a block are exact.
#include "devices/cpu/routines/cpu_bits.h"

#include <immintrin.h>

#include "devices/cpu/cpu.h"

enum { LANES = 16, VECTORS = BITS_PANEL / LANES, BYTES = 4 };
enum { LONGEST = 4096 }; // of a block: 255 * 127 of each stay below 2^31 with room
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 16")

bool cpu_bits8_takes(const struct bits *b) {
    return b->rounding == BITS_X_8 && cpu_has_int8() && b->block % LANES == 0 &&
           b->block <= LONGEST;
}

static inline int32_t four(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, sizeof v);
    return v;
}
// The sums of `rows` rows, each of `split`, with a word of 16 columns; rows of x are wide bytes
// apart.
INLINE void meet(__m512i sums[][VECTORS], int v, const uint32_t *w, const int8_t *x, int64_t wide,
                 int rows, int bits, int split) {
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    const __m512i middles = _mm512_set1_epi32((int32_t)bits_middles(bits));
    const __m512i word = _mm512_xor_si512(_mm512_loadu_si512(w), middles);
    UNROLL
    for (int k = 0; k < 8 / bits; k++) {
        __m512i q = _mm512_srli_epi32(word, (unsigned)(k * bits));
        q = bits == 8 ? word : _mm512_and_si512(q, mask);
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m512i one = _mm512_set1_epi32(four(x + r * wide + k * BYTES));
            __m512i *to = &sums[r * split + k % split][v];
            *to = _mm512_dpbusd_epi32(*to, q, one);
        }
    }
}
// Of one or two rows each shift has sums of its own, which do not wait for each other.
INLINE void panel(const struct bits_state *s, const struct bits_rows *x, const uint32_t *w,
                  const float *scales, const float *zeros, int64_t stride, float *out, int rows,
                  int bits) {
    enum { MOST = 4 };
    const int shifts = 8 / bits, split = rows <= 2 && shifts > 1 ? 2 : 1;
    __m512 total[BITS_GROUP][VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        total[r][v] = _mm512_setzero_ps();
    for (int64_t block = 0; block < s->b.blocks; block++) {
        const int8_t *at = (const int8_t *)x->x + block * s->b.block;
        __m512i sum[MOST][VECTORS];
        UNROLL
        for (int r = 0; r < rows * split; r++)
            UNROLL
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = _mm512_setzero_si512();
        for (int64_t n = 0; n < s->words; n++, w += BITS_PANEL, at += BYTES * shifts)
            UNROLL
        for (int v = 0; v < VECTORS; v++)
            meet(sum, v, w + v * LANES, at, s->wide, rows, bits, split);
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            __m512 scale = _mm512_loadu_ps(scales + block * s->b.n + v * LANES);
            __m512 zero = stride ? _mm512_loadu_ps(zeros + block * stride + v * LANES)
                                 : _mm512_set1_ps(zeros[0]);
            UNROLL
            for (int r = 0; r < rows; r++) {
                __m512i all = sum[r * split][v];
                if (split > 1) all = _mm512_add_epi32(all, sum[r * split + 1][v]);
                int64_t of = r * s->b.blocks + block;
                __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(all), _mm512_set1_ps(x->steps[of]));
                y = _mm512_fnmadd_ps(zero, _mm512_set1_ps(x->sums[of]), y);
                total[r][v] = _mm512_fmadd_ps(scale, y, total[r][v]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        _mm512_storeu_ps(out + r * BITS_PANEL + v * LANES, total[r][v]);
}
#define PANEL_FN(ROWS, BITS)                                                                       \
    static TARGET void panel_##ROWS##_##BITS(                                                      \
        const struct bits_state *s, const struct bits_rows *x, const uint32_t *w,                  \
        const float *scales, const float *zeros, int64_t stride, float *out) {                     \
        panel(s, x, w, scales, zeros, stride, out, ROWS, BITS);                                    \
    }
#define PANEL_FNS(BITS)                                                                            \
    PANEL_FN(1, BITS)                                                                              \
    PANEL_FN(2, BITS)                                                                              \
    PANEL_FN(3, BITS)                                                                              \
    PANEL_FN(4, BITS)
PANEL_FNS(2)
PANEL_FNS(4)
PANEL_FNS(8)

bits_panel_fn cpu_bits8_panel(int bits, int rows) {
#define ROW(BITS) {panel_1_##BITS, panel_2_##BITS, panel_3_##BITS, panel_4_##BITS}
    static const bits_panel_fn all[3][BITS_GROUP] = {ROW(2), ROW(4), ROW(8)};
    return all[bits / 4][rows - 1];
}

// The largest |x| of x[n]; NaN if there is one.
static TARGET float largest(const float *x, int64_t n) {
    __m512 most = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int64_t k = 0; k < n; k += LANES) {
        __mmask16 in = n - k < LANES ? (__mmask16)((1u << (n - k)) - 1) : 0xffff;
        __m512 v = _mm512_maskz_loadu_ps(in, x + k);
        most = _mm512_max_ps(most, _mm512_abs_ps(v));
        odd = _mm512_fmadd_ps(v, _mm512_setzero_ps(), odd); // 0, or NaN
    }
    return _mm512_reduce_max_ps(most) + _mm512_reduce_add_ps(odd);
}
// Lane k of 16 bytes, four a shift: numbers of a word whose place is shift + 8 / bits * (0 to 3).
static __m128i order_of(int bits) {
    int8_t to[LANES];
    for (int k = 0, shifts = 8 / bits; k < LANES; k++) {
        int word = k / (BYTES * shifts), in = k % (BYTES * shifts);
        to[k] = (int8_t)(word * BYTES * shifts + in / BYTES + in % BYTES * shifts);
    }
    return _mm_loadu_si128((const __m128i *)(const void *)to);
}
TARGET bool cpu_bits8_round(const struct bits_state *s, const float *from, int8_t *x, float *sums,
                            float *steps) {
    const __m128i order = order_of(s->b.bits);
    for (int64_t b = 0; b < s->b.blocks; b++) {
        const int64_t at = b * s->b.block;
        const int64_t left = s->b.k - at < s->b.block ? s->b.k - at : s->b.block;
        const float most = largest(from + at, left);
        if (!isfinite(most) || (most < BITS_LEAST && most != 0)) return false;
        const __m512 per_step = _mm512_set1_ps(most != 0 ? 127 / most : 0);
        __m512i sum = _mm512_setzero_si512();
        for (int64_t k = 0; k < s->b.block; k += LANES) {
            int64_t n = left - k < 0 ? 0 : left - k < LANES ? left - k : LANES;
            __m512 v = _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from + at + k);
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v, per_step)); // to nearest
            sum = _mm512_add_epi32(sum, q);
            _mm_storeu_si128((__m128i *)(void *)(x + at + k),
                             _mm_shuffle_epi8(_mm512_cvtepi32_epi8(q), order));
        }
        steps[b] = most / 127;
        sums[b] = steps[b] * (float)_mm512_reduce_add_epi32(sum);
    }
    return true;
}
