// SPDX-License-Identifier: Apache-2.0
// cpu_windows_isa: the loops of cpu_windows.c for SSE2, AVX2 and AVX-512.
#include <immintrin.h>
#include <string.h>

#include "devices/cpu/routines/cpu_turn.h"
#include "devices/cpu/routines/cpu_windows.h"

// Lanes of two vectors: one before the second, one and two behind the first.
#define LANES_BEFORE_4  3, 4, 5, 6
#define LANES_BEHIND_4  1, 2, 3, 4
#define LANES_SECOND_4  2, 3, 4, 5
#define LANES_BEFORE_8  7, 8, 9, 10, 11, 12, 13, 14
#define LANES_BEHIND_8  1, 2, 3, 4, 5, 6, 7, 8
#define LANES_SECOND_8  2, 3, 4, 5, 6, 7, 8, 9
#define LANES_BEFORE_16 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
#define LANES_BEHIND_16 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
#define LANES_SECOND_16 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17
#define LANES_EVEN_4    TURN_EVEN_4
#define LANES_ODD_4     TURN_ODD_4
#define LANES_EVEN_8    TURN_EVEN_8
#define LANES_ODD_8     TURN_ODD_8
#define LANES_EVEN_16   TURN_EVEN_16
#define LANES_ODD_16    TURN_ODD_16

typedef float four __attribute__((vector_size(16)));
static inline four first_lanes(const float *p, int64_t n, four v) {
    for (int64_t k = 0; k < n; k++)
        v[k] = p[k];
    return v;
}
static inline void keep_lanes(float *p, int64_t n, four v) {
    for (int64_t k = 0; k < n; k++)
        p[k] = v[k];
}
__attribute__((target("avx2"))) static inline __m256i lanes_before(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__attribute__((target("avx2"))) static inline __m256 lanes_loaded(const float *p, int64_t n,
                                                                  __m256 v) {
    __m256i mask = lanes_before(n);
    return _mm256_blendv_ps(v, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}

#define WIN(name) windows_plain_##name
#define WIN_TARGET
#define WIN_LANES      4
#define WIN_OF(which)  LANES_##which##_4
#define WIN_MAX        _mm_max_ps
#define WIN_MIN        _mm_min_ps
#define WIN_MOST(a, b) ((((a) > (b)) & (a)) | (~((a) > (b)) & (b)))
#define WIN_LOAD       first_lanes
#define WIN_STORE      keep_lanes
#include "devices/cpu/routines/cpu_windows_body.h"

#define WIN(name)          windows_avx2_##name
#define WIN_TARGET         __attribute__((target("avx2,fma")))
#define WIN_LANES          8
#define WIN_OF(which)      LANES_##which##_8
#define WIN_MAX            _mm256_max_ps
#define WIN_MIN            _mm256_min_ps
#define WIN_MOST(a, b)     ((ints)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#define WIN_LOAD           lanes_loaded
#define WIN_STORE(p, n, v) _mm256_maskstore_ps(p, lanes_before(n), v)
#include "devices/cpu/routines/cpu_windows_body.h"

#define WIN(name)          windows_avx512_##name
#define WIN_TARGET         __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define WIN_LANES          16
#define WIN_OF(which)      LANES_##which##_16
#define WIN_MAX            _mm512_max_ps
#define WIN_MIN            _mm512_min_ps
#define WIN_MOST(a, b)     ((ints)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#define WIN_LOAD(p, n, v)  _mm512_mask_loadu_ps(v, (__mmask16)((1u << (n)) - 1), p)
#define WIN_STORE(p, n, v) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), v)
#include "devices/cpu/routines/cpu_windows_body.h"
