// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_isa: all loops of cpu_gemm.c for one instruction set. Included once for each, with
// GEMM_ISA (name), GEMM_TARGET (attribute), GEMM_VECTOR (bytes), GEMM_ROWS (of the largest tile),
// GEMM_PAIR_ROWS and GEMM_PAIR_VECS (of the largest complex one),
// GEMM_SWAP4 and GEMM_SWAP8 (lanes of a vector of 4 and 8 bytes, in pairs turned round) and
// GEMM_TURN4, GEMM_LOW4, GEMM_HIGH4 and the same of 8 (PACK_TURN and so on of cpu_gemm_pack.h) and
// GEMM_MADD_S16, GEMM_MADD_ROWS and GEMM_MADD_VECS (of pairs of s16, cpu_gemm_body.h) set; takes
// them away.
#ifndef GEMM_ISA
#define GEMM_ISA(name) name##_plain
#define GEMM_TARGET
#define GEMM_VECTOR    16
#define GEMM_ROWS      4
#define GEMM_PAIR_ROWS 3
#define GEMM_PAIR_VECS 2
#define GEMM_SWAP4     1, 0, 3, 2
#define GEMM_SWAP8     1, 0
#define GEMM_TURN4     4
#define GEMM_LOW4      TURN_LOW_4
#define GEMM_HIGH4     TURN_HIGH_4
#define GEMM_TURN8     2
#define GEMM_LOW8      TURN_LOW_2
#define GEMM_HIGH8     TURN_HIGH_2
#define GEMM_MADD_S16  __builtin_ia32_pmaddwd128
#define GEMM_MADD_ROWS 6
#define GEMM_MADD_VECS 2
#endif

#define PACK(name) GEMM_ISA(name##_4)
#define PACK_ELEM  uint32_t
#define PACK_BYTES GEMM_VECTOR
#define PACK_TURN  GEMM_TURN4
#define PACK_LOW   GEMM_LOW4
#define PACK_HIGH  GEMM_HIGH4
#include "devices/cpu/gemm/cpu_gemm_pack.h"
#define PACK(name) GEMM_ISA(name##_8)
#define PACK_ELEM  uint64_t
#define PACK_BYTES GEMM_VECTOR
#define PACK_TURN  GEMM_TURN8
#define PACK_LOW   GEMM_LOW8
#define PACK_HIGH  GEMM_HIGH8
#include "devices/cpu/gemm/cpu_gemm_pack.h"
#define PACK(name) GEMM_ISA(name##_16)
#define PACK_ELEM  struct gemm_double_pair
#define PACK_BYTES GEMM_VECTOR
#define PACK_TURN  4 // a line of the cache
#include "devices/cpu/gemm/cpu_gemm_pack.h"

#define GEMM(name) GEMM_ISA(name##_f32)
#define GEMM_ELEM  float
#define GEMM_LANES (GEMM_VECTOR / 4)
#define GEMM_SWAP  GEMM_SWAP4
#include "devices/cpu/gemm/cpu_gemm_body.h"
#define GEMM(name) GEMM_ISA(name##_f64)
#define GEMM_ELEM  double
#define GEMM_LANES (GEMM_VECTOR / 8)
#define GEMM_SWAP  GEMM_SWAP8
#include "devices/cpu/gemm/cpu_gemm_body.h"
#define GEMM(name) GEMM_ISA(name##_u32)
#define GEMM_ELEM  uint32_t
#define GEMM_LANES (GEMM_VECTOR / 4)
#include "devices/cpu/gemm/cpu_gemm_body.h"
#define GEMM(name) GEMM_ISA(name##_s16)
#define GEMM_ELEM  uint32_t
#define GEMM_LANES (GEMM_VECTOR / 4)
#define GEMM_MADD  GEMM_MADD_S16
#include "devices/cpu/gemm/cpu_gemm_body.h"
#define GEMM(name) GEMM_ISA(name##_u64)
#define GEMM_ELEM  uint64_t
#define GEMM_LANES (GEMM_VECTOR / 8)
#include "devices/cpu/gemm/cpu_gemm_body.h"

static const struct gemm_isa GEMM_ISA(gemm) = {
    {&GEMM_ISA(kernel_f32), &GEMM_ISA(kernel_f64), &GEMM_ISA(kernel_u32), &GEMM_ISA(kernel_u64),
     &GEMM_ISA(kernel_pairs_f32), &GEMM_ISA(kernel_pairs_f64), &GEMM_ISA(kernel_s16)},
    {GEMM_ISA(pack_4), GEMM_ISA(pack_8), GEMM_ISA(pack_16)},
    GEMM_VECTOR};
#undef GEMM_ISA
#undef GEMM_TARGET
#undef GEMM_VECTOR
#undef GEMM_ROWS
#undef GEMM_PAIR_ROWS
#undef GEMM_PAIR_VECS
#undef GEMM_SWAP4
#undef GEMM_SWAP8
#undef GEMM_TURN4
#undef GEMM_LOW4
#undef GEMM_HIGH4
#undef GEMM_TURN8
#undef GEMM_LOW8
#undef GEMM_HIGH8
#undef GEMM_MADD_S16
#undef GEMM_MADD_ROWS
#undef GEMM_MADD_VECS
