// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_short: panels of 8- and 16-bit integers for cpu_gemm.c, two terms of a line together as
// a pair of s16. An instruction multiplies such pairs and sums the two products in 32 bits, exactly
// (modulo 2^32): twice the terms of 32-bit integers in fewer operations. Vectors with AVX2, for
// terms or lines that lie side by side; else one by one.
#include <immintrin.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/gemm/cpu_gemm.h"

#define TARGET __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline)) TARGET
enum { LINES = 4, TERMS = 16 }; // of a square that is turned

INLINE __m256i widen_s8(const int8_t *from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}
INLINE __m256i widen_u8(const uint8_t *from) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}
INLINE __m256i widen_s16(const int16_t *from) {
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}
INLINE __m128i half_s8(const int8_t *from) {
    return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)from));
}
INLINE __m128i half_u8(const uint8_t *from) {
    return _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)from));
}
INLINE __m128i half_s16(const int16_t *from) {
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}
// Pairs of one term of 16 or 8 lines and the next term.
INLINE void beside(__m256i x, __m256i y, uint32_t *to) {
    __m256i low = _mm256_unpacklo_epi16(x, y), high = _mm256_unpackhi_epi16(x, y);
    __m256i *out = (__m256i *)(void *)to;
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(low, high, 0x31));
}
INLINE void half_beside(__m128i x, __m128i y, uint32_t *to) {
    __m128i *out = (__m128i *)(void *)to;
    _mm_storeu_si128(out, _mm_unpacklo_epi16(x, y));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(x, y));
}
// Four lines of eight pairs: eight rows of four.
INLINE void turn(const __m256i r[LINES], uint32_t *to, int wide) {
    __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]),
            c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
    __m256i v[] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c),
                   _mm256_unpacklo_epi64(b, d), _mm256_unpackhi_epi64(b, d)};
    for (int k = 0; k < LINES; k++) {
        _mm_storeu_si128((__m128i *)(void *)(to + k * wide), _mm256_castsi256_si128(v[k]));
        _mm_storeu_si128((__m128i *)(void *)(to + (k + LINES) * wide),
                         _mm256_extracti128_si256(v[k], 1));
    }
}
static bool together(const int64_t *depth) {
    for (int d = 1; d < TERMS; d++)
        if (depth[d] - depth[d - 1] != 1) return false;
    return true;
}

// Has a panel this piece alone? Then what is written behind its lines is written again.
static bool alone(const struct gemm_piece *pieces, const struct gemm_piece *p,
                  const struct gemm_piece *end) {
    return (p == pieces || p->to - p[-1].to >= p->wide) &&
           (p + 1 == end || p[1].to - p->to >= p->wide);
}

// A last pair may have one term: the other is 0.
#define PACK(T, ELEM)                                                                              \
    INLINE void one_by_one_##T(const struct gemm_piece *p, const ELEM *from, int e,                \
                               const int64_t *depth, bool two, uint32_t *to) {                     \
        for (; e < p->n; e++) {                                                                    \
            const ELEM *at = from + e * p->step;                                                   \
            uint16_t x = (uint16_t)(int16_t)at[depth[0]],                                          \
                     y = two ? (uint16_t)(int16_t)at[depth[1]] : 0;                                \
            to[e] = x | (uint32_t)y << 16;                                                         \
        }                                                                                          \
    }                                                                                              \
    static void plain_##T(const struct gemm_piece *pieces, int n, const void *from,                \
                          const int64_t *depth, int64_t k, void *to) {                             \
        for (const struct gemm_piece *p = pieces; p < pieces + n; p++)                             \
            for (int64_t d = 0; d < k; d += 2)                                                     \
                for (int e = 0; e < p->n; e++) {                                                   \
                    const ELEM *at = (const ELEM *)from + p->from + e * p->step;                   \
                    uint16_t x = (uint16_t)(int16_t)at[depth[d]],                                  \
                             y = d + 1 < k ? (uint16_t)(int16_t)at[depth[d + 1]] : 0;              \
                    ((uint32_t *)to)[p->to + d / 2 * p->wide + e] = x | (uint32_t)y << 16;         \
                }                                                                                  \
    }                                                                                              \
    INLINE void line_##T(const struct gemm_piece *p, const ELEM *from, const int64_t *depth,       \
                         bool beyond, uint32_t *to) {                                              \
        int e = 0, end = beyond ? p->n : p->n - TERMS / 2 + 1;                                     \
        for (; p->step == 1 && e + TERMS <= p->n; e += TERMS)                                      \
            beside(widen_##T(from + depth[0] + e), widen_##T(from + depth[1] + e), to + e);        \
        for (; p->step == 1 && e < end; e += TERMS / 2)                                            \
            half_beside(half_##T(from + depth[0] + e), half_##T(from + depth[1] + e), to + e);     \
        one_by_one_##T(p, from, e, depth, true, to);                                               \
    }                                                                                              \
    INLINE void four_##T(const struct gemm_piece *p, const ELEM *from, int e, uint32_t *to) {      \
        __m256i r[LINES];                                                                          \
        for (int k = 0; k < LINES; k++)                                                            \
            r[k] = widen_##T(from + (e + k) * p->step);                                            \
        turn(r, to + e, p->wide);                                                                  \
    }                                                                                              \
    INLINE void square_##T(const struct gemm_piece *p, const ELEM *from, const int64_t *depth,     \
                           uint32_t *to) {                                                         \
        int e = 0;                                                                                 \
        for (; e + LINES <= p->n; e += LINES)                                                      \
            four_##T(p, from + depth[0], e, to);                                                   \
        if (e && e < p->n) four_##T(p, from + depth[0], p->n - LINES, to);                         \
        for (int d = 0; d < TERMS && !e; d += 2)                                                   \
            one_by_one_##T(p, from, 0, depth + d, true, to + d / 2 * p->wide);                     \
    }                                                                                              \
    TARGET static void avx2_##T(const struct gemm_piece *pieces, int n, const void *from,          \
                                const int64_t *depth, int64_t k, void *to) {                       \
        for (const struct gemm_piece *p = pieces; p < pieces + n; p++) {                           \
            const ELEM *base = (const ELEM *)from + p->from;                                       \
            uint32_t *out = (uint32_t *)to + p->to;                                                \
            bool beyond = !p->exact && alone(pieces, p, pieces + n);                               \
            int64_t d = 0;                                                                         \
            for (; p->step != 1 && d + TERMS <= k && together(depth + d); d += TERMS)              \
                square_##T(p, base, depth + d, out + d / 2 * p->wide);                             \
            for (; d + 1 < k; d += 2)                                                              \
                line_##T(p, base, depth + d, beyond, out + d / 2 * p->wide);                       \
            if (d < k) one_by_one_##T(p, base, 0, depth + d, false, out + d / 2 * p->wide);        \
        }                                                                                          \
    }
PACK(s8, int8_t)
PACK(u8, uint8_t)
PACK(s16, int16_t)

gemm_pack_fn cpu_gemm_pack_short(enum dtype t) {
    bool avx2 = cpu_target()->vector_bits >= 256;
    if (t == DT_S8) return avx2 ? avx2_s8 : plain_s8;
    if (t == DT_U8) return avx2 ? avx2_u8 : plain_u8;
    if (t == DT_S16) return avx2 ? avx2_s16 : plain_s16;
    return NULL;
}
