// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_body: the innermost loops of cpu_gemm.c for one element type and instruction set.
// Included once for each, with GEMM (name), GEMM_ELEM, GEMM_BYTES (of a vector), GEMM_TARGET
// (attribute), GEMM_ROWS and GEMM_VECS (the tile, of which a complex one holds half the rows) set;
// takes them away.
#ifndef GEMM
#define GEMM(name) name##_f64_plain
#define GEMM_ELEM  double
#define GEMM_BYTES 16
#define GEMM_TARGET
#define GEMM_ROWS 4
#define GEMM_VECS 2
#endif
#include "devices/cpu/routines/cpu_gemm.h"

typedef GEMM_ELEM GEMM(vec) __attribute__((vector_size(GEMM_BYTES), may_alias));
#define LINE   GEMM(vec)
#define UNROLL _Pragma("GCC unroll 16") // all bounds are constants
enum {
    GEMM(LANES) = GEMM_BYTES / (int)sizeof(GEMM_ELEM),
    GEMM(COLS) = GEMM(LANES) * GEMM_VECS,
    GEMM(HALF) = GEMM_ROWS / 2
};

GEMM_TARGET static void GEMM(tile)(const void *pa, const void *pb, int64_t k, void *out) {
    const GEMM_ELEM *a = pa;
    const LINE *b = pb;
    LINE sum[GEMM_ROWS][GEMM_VECS] = {0}, *to = out;
    for (; k > 0; k--) {
        LINE line[GEMM_VECS];
        UNROLL
        for (int v = 0; v < GEMM_VECS; v++)
            line[v] = b[v];
        UNROLL
        for (int r = 0; r < GEMM_ROWS; r++) {
            GEMM_ELEM one = a[r];
            UNROLL
            for (int v = 0; v < GEMM_VECS; v++)
                sum[r][v] += one * line[v];
        }
        a += GEMM_ROWS;
        b += GEMM_VECS;
    }
    UNROLL
    for (int r = 0; r < GEMM_ROWS; r++)
        UNROLL
    for (int v = 0; v < GEMM_VECS; v++)
        to[r * GEMM_VECS + v] = sum[r][v];
}
GEMM_TARGET static void GEMM(pairs)(const void *pa, const void *pb, int64_t k, void *out) {
    enum { ROWS = GEMM(HALF), N = GEMM_VECS };
    const GEMM_ELEM *a = pa;
    const LINE *b = pb;
    LINE re[ROWS][N] = {0}, im[ROWS][N] = {0}, *to = out;
    for (; k > 0; k--) {
        LINE line[2 * N];
        UNROLL
        for (int v = 0; v < 2 * N; v++)
            line[v] = b[v];
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            GEMM_ELEM ar = a[r], ai = a[ROWS + r];
            UNROLL
            for (int v = 0; v < N; v++) {
                re[r][v] += ar * line[v];
                im[r][v] += ar * line[N + v];
                re[r][v] -= ai * line[N + v];
                im[r][v] += ai * line[v];
            }
        }
        a += 2 * ROWS;
        b += 2 * N;
    }
    UNROLL
    for (int r = 0; r < ROWS; r++)
        UNROLL
    for (int v = 0; v < N; v++) {
        to[r * N + v] = re[r][v];
        to[(ROWS + r) * N + v] = im[r][v];
    }
}
static const struct gemm_kernel GEMM(kernels)[2] = {{GEMM(tile), GEMM_ROWS, GEMM(COLS)},
                                                    {GEMM(pairs), GEMM(HALF), GEMM(COLS)}};
#undef GEMM
#undef GEMM_ELEM
#undef GEMM_BYTES
#undef GEMM_TARGET
#undef GEMM_ROWS
#undef GEMM_VECS
#undef LINE
#undef UNROLL
