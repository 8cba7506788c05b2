// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_isa: the loops of cpu_gemm.c for SSE2, AVX2 and AVX-512.
#include <immintrin.h>

#include "devices/cpu/gemm/cpu_gemm.h"

#include "devices/cpu/gemm/cpu_gemm_isa.h" // what it is alone: _plain, for SSE2
#define GEMM_ISA(name) name##_avx2
#define GEMM_TARGET    __attribute__((target("avx2,fma")))
#define GEMM_VECTOR    32
#define GEMM_ROWS      4
#define GEMM_PAIR_ROWS 3
#define GEMM_PAIR_VECS 2
#define GEMM_SWAP4     1, 0, 3, 2, 5, 4, 7, 6
#define GEMM_SWAP8     1, 0, 3, 2
#define GEMM_TURN4     8
#define GEMM_LOW4      TURN_LOW_8
#define GEMM_HIGH4     TURN_HIGH_8
#define GEMM_TURN8     4
#define GEMM_LOW8      TURN_LOW_4
#define GEMM_HIGH8     TURN_HIGH_4
#define GEMM_MADD_S16  __builtin_ia32_pmaddwd256
#define GEMM_MADD_ROWS 6
#define GEMM_MADD_VECS 2
#include "devices/cpu/gemm/cpu_gemm_isa.h"
#define GEMM_ISA(name) name##_avx512
#define GEMM_TARGET    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define GEMM_VECTOR    64
#define GEMM_ROWS      8
#define GEMM_PAIR_ROWS 4
#define GEMM_PAIR_VECS 3
#define GEMM_SWAP4     1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#define GEMM_SWAP8     1, 0, 3, 2, 5, 4, 7, 6
#define GEMM_TURN4     8
#define GEMM_LOW4      TURN_LOW_8
#define GEMM_HIGH4     TURN_HIGH_8
#define GEMM_TURN8     8
#define GEMM_LOW8      TURN_LOW_8
#define GEMM_HIGH8     TURN_HIGH_8
#define GEMM_MADD_S16(x, y) _mm512_madd_epi16((__m512i)(x), (__m512i)(y))
#define GEMM_MADD_ROWS 8
#define GEMM_MADD_VECS 3
#include "devices/cpu/gemm/cpu_gemm_isa.h"

const struct gemm_isa *cpu_gemm_isa(int vector_bits) {
    return vector_bits == 512 ? &gemm_avx512 : vector_bits == 256 ? &gemm_avx2 : &gemm_plain;
}
