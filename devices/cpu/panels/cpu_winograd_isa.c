// SPDX-License-Identifier: Apache-2.0
// cpu_winograd_isa: the transforms of cpu_winograd.c for AVX2 and AVX-512.
#include "devices/cpu/panels/cpu_winograd.h"

#define WINO(name)  name##_avx2
#define WINO_LANES  8
#define WINO_TARGET __attribute__((target("avx2,fma")))
#include "devices/cpu/panels/cpu_winograd_body.h"
#include "devices/cpu/panels/cpu_winograd_results.h"
#define WINO(name)  name##_avx512
#define WINO_LANES  16
#define WINO_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#include "devices/cpu/panels/cpu_winograd_body.h"
#include "devices/cpu/panels/cpu_winograd_results.h"

const struct winograd_isa *winograd_isa(int vector_bits) {
    static const struct winograd_isa avx2 = {transform_avx2, finish_avx2},
                                     avx512 = {transform_avx512, finish_avx512};
    return vector_bits == 512 ? &avx512 : vector_bits == 256 ? &avx2 : NULL;
}
