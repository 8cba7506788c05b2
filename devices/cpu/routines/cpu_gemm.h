// SPDX-License-Identifier: Apache-2.0
// cpu_gemm: what cpu_gemm.c and its loops share.
#pragma once
#include <stdint.h>

enum { GEMM_MAX_TILE = 1024 }; // numbers of a tile: rows x columns, twice for complex types
// One tile of sums: out[r][c] = sum over k of a[k][r] * b[k][c], both packed without gaps; complex
// numbers as rows or columns of real parts and then of imaginary ones, out as two tiles.
typedef void (*gemm_tile_fn)(const void *a, const void *b, int64_t k, void *out);
struct gemm_kernel {
    gemm_tile_fn tile;
    int rows, cols;
};
