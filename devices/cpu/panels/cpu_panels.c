// SPDX-License-Identifier: Apache-2.0
// cpu_panels: the register tiles for AVX2 and AVX-512.
#include "devices/cpu/panels/cpu_panels.h"

#include <stddef.h>

#define PANEL(name)  name##_avx2
#define PANEL_LANES  8
#define PANEL_ROWS   6
#define PANEL_LOW    0, 8, 1, 9, 4, 12, 5, 13
#define PANEL_HIGH   2, 10, 3, 11, 6, 14, 7, 15
#define PANEL_TARGET __attribute__((target("avx2,fma")))
#include "devices/cpu/panels/cpu_panels_body.h"
#define PANEL(name)  name##_avx512
#define PANEL_LANES  16
#define PANEL_ROWS   12
#define PANEL_LOW    0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define PANEL_HIGH   2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define PANEL_TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#include "devices/cpu/panels/cpu_panels_body.h"

const struct panel_isa *cpu_panel_isa(int vector_bits) {
    static const struct panel_isa avx2 = {8, "avx2", multiply_avx2, pack_avx2, add_to_avx2},
                                  avx512 = {16, "avx512", multiply_avx512, pack_avx512,
                                            add_to_avx512};
    return vector_bits == 512 ? &avx512 : vector_bits == 256 ? &avx2 : NULL;
}
