// SPDX-License-Identifier: Apache-2.0
// cpu_amx_isa: blocks of cpu_amx.h by the instructions.
#include "devices/cpu/amx/cpu_amx.h"

#include <immintrin.h>
#include <stdlib.h>

#include "compiler/ir/literal.h"
#include "devices/cpu/cpu.h"

#define TILES  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))
#define SUM00  0 // the instructions name their tiles: no enum
#define SUM01  1
#define SUM10  2
#define SUM11  3
#define LEFT0  4
#define LEFT1  5
#define RIGHT0 6
#define RIGHT1 7

TILES static void begin_amx(int rows) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c __attribute__((aligned(64))) = {.palette = 1};
    int first = rows < AMX_ROWS ? rows : AMX_ROWS, second = rows > AMX_ROWS ? rows - AMX_ROWS : 1;
    const int high[] = {first, first, second, second, first, second, AMX_ROWS, AMX_ROWS};
    for (size_t t = 0; t < sizeof high / sizeof *high; t++) {
        c.row_bytes[t] = 64;
        c.rows[t] = (uint8_t)high[t];
    }
    __asm__ volatile("" ::"r"(&c) : "memory"); // GCC 12 knows of the first 8 bytes that are read
    _tile_loadconfig(&c);
}
TILES static inline void fetch(const char *next, int lines) {
    for (int k = 0; k < lines; k++)
        _mm_prefetch(next + k * 64, _MM_HINT_T1);
}
// two: of 17 rows and more.
TILES static inline __attribute__((always_inline)) void sums(const struct amx_block *b, bool two) {
    const char *left = b->left, *right = b->right, *next = b->next;
    int64_t row = b->left_row, tile = b->left_tile, step = b->left_step, steps = b->steps;
    int lines = next ? b->next_lines : 0;
    for (int64_t k = 0; k < steps; k++) {
        _tile_loadd(LEFT0, left, row);
        _tile_loadd(RIGHT0, right, 64);
        _tile_dpbf16ps(SUM00, LEFT0, RIGHT0);
        _tile_loadd(RIGHT1, right + AMX_TILE, 64);
        _tile_dpbf16ps(SUM01, LEFT0, RIGHT1);
        if (two) {
            _tile_loadd(LEFT1, left + tile, row);
            _tile_dpbf16ps(SUM10, LEFT1, RIGHT0);
            _tile_dpbf16ps(SUM11, LEFT1, RIGHT1);
        }
        fetch(next, lines);
        left += step, right += 2 * AMX_TILE, next += lines * 64;
    }
}
TILES static void multiply_amx(const struct amx_block *b) {
    __asm__ volatile("" ::: "memory"); // GCC 12 does not know that loads of tiles read memory
    _tile_zero(SUM00);
    _tile_zero(SUM01);
    if (b->rows > AMX_ROWS) {
        _tile_zero(SUM10);
        _tile_zero(SUM11);
        sums(b, true);
        _tile_stored(SUM10, b->out + AMX_ROWS * AMX_BLOCK, AMX_BLOCK * sizeof(float));
        _tile_stored(SUM11, b->out + AMX_ROWS * AMX_BLOCK + AMX_ROWS, AMX_BLOCK * sizeof(float));
    } else {
        sums(b, false);
    }
    _tile_stored(SUM00, b->out, AMX_BLOCK * sizeof(float));
    _tile_stored(SUM01, b->out + AMX_ROWS, AMX_BLOCK * sizeof(float));
}
TILES static void end_amx(void) {
    _tile_release();
}

typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
// n: whole vectors, but for the last elements, which C does as well.
TILES static void add_bf16_amx(float *to, const uint16_t *from, int64_t n) {
    int64_t k = 0;
    for (; k + 16 <= n; k += 16) {
        words w = __builtin_convertvector(*(const halves *)(from + k), words) << 16;
        *(floats *)(to + k) += (floats)w;
    }
    for (; k < n; k++)
        to[k] += bf16_to_f32(from[k]);
}
TILES static void to_bf16_amx(uint16_t *to, const float *from, int64_t n) {
    int64_t k = 0;
    for (; k + 16 <= n; k += 16) {
        floats v = *(const floats *)(from + k);
        words bits = (words)v, even = bits + 0x7fff + (bits >> 16 & 1), nan = bits | 0x400000;
        words same = (words)(v == v);
        *(halves *)(to + k) =
            __builtin_convertvector(((even & same) | (nan & ~same)) >> 16, halves);
    }
    for (; k < n; k++)
        to[k] = f32_to_bf16(from[k]);
}

const struct amx_isa *cpu_amx_isa(void) {
    static const struct amx_isa amx = {begin_amx, multiply_amx, end_amx, add_bf16_amx, to_bf16_amx};
    const char *emulated = getenv("HLOD_CPU_AMX");
    return cpu_has_tiles() || (emulated && *emulated) ? &amx : NULL;
}
