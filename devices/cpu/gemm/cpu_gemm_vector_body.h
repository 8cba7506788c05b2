// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_vector_body: the loops of cpu_gemm_vector.c for complex numbers of one size and one
// instruction set. Part of cpu_gemm_body.h, whose macros it uses and leaves.
#ifndef GEMM_SWAP
#include "devices/cpu/gemm/cpu_gemm_body.h" // alone: which has it in it
#else

// Terms side by side: products by x and by x with its parts turned round are summed apart, so that
// the lanes of the one become the real part, those of the other the imaginary one.
INLINE void GEMM(some_lines)(const struct gemm_vector *v, int64_t from, int n) {
    enum { MOST = 4, EACH = GEMM_LANES / 2 };
    const GEMM_ELEM *x = v->x, *a[MOST];
    LINE straight[MOST] = {0}, turned[MOST] = {0};
    int64_t k = 0;
    UNROLL
    for (int r = 0; r < n; r++)
        a[r] = (const GEMM_ELEM *)v->a + 2 * (v->line[from + r] + v->depth[0]);
    for (; k + EACH <= v->k; k += EACH) {
        LINE one = *(const LINE *)(x + 2 * k), other = __builtin_shufflevector(one, one, GEMM_SWAP);
        UNROLL
        for (int r = 0; r < n; r++) {
            LINE w = *(const LINE *)(a[r] + 2 * k);
            straight[r] += w * one;
            turned[r] += w * other;
        }
    }

    UNROLL
    for (int r = 0; r < n; r++) {
        GEMM_ELEM re = 0, im = 0, *to = (GEMM_ELEM *)v->sums + 2 * (from + r);
        UNROLL
        for (int e = 0; e < GEMM_LANES; e++) {
            re += e % 2 ? -straight[r][e] : straight[r][e];
            im += turned[r][e];
        }
        for (int64_t d = k; d < v->k; d++) {
            const GEMM_ELEM *w = a[r] + 2 * d, *y = x + 2 * d;
            re += w[0] * y[0] - w[1] * y[1];
            im += w[0] * y[1] + w[1] * y[0];
        }
        to[0] = re, to[1] = im;
    }
}
GEMM_TARGET static void GEMM(along_terms)(const struct gemm_vector *v) {
    int64_t l = 0;
    for (; l + 4 <= v->n; l += 4)
        GEMM(some_lines)(v, l, 4);
    for (; l < v->n; l++)
        GEMM(some_lines)(v, l, 1);
}
// Lines side by side: a few terms of all lines at a time, their products with the real and the
// imaginary part of x summed apart.
INLINE void GEMM(some_terms)(const struct gemm_vector *v, int64_t from, int n, bool first) {
    enum { MOST = 4 };
    GEMM_ELEM *re = v->sums, *im = v->beside;
    const GEMM_ELEM *a[MOST], *x = (const GEMM_ELEM *)v->x + 2 * from;
    int64_t c = 0, all = 2 * v->n;
    UNROLL
    for (int d = 0; d < n; d++)
        a[d] = (const GEMM_ELEM *)v->a + 2 * (v->line[0] + v->depth[from + d]);
    for (; c + GEMM_LANES <= all; c += GEMM_LANES) {
        LINE s = {0}, t = {0};
        if (!first) s = *(LINE *)(re + c), t = *(LINE *)(im + c);
        UNROLL
        for (int d = 0; d < n; d++) {
            LINE w = *(const LINE *)(a[d] + c);
            s += x[2 * d] * w;
            t += x[2 * d + 1] * w;
        }
        *(LINE *)(re + c) = s;
        *(LINE *)(im + c) = t;
    }
    for (; c < all; c++) {
        GEMM_ELEM s = first ? 0 : re[c], t = first ? 0 : im[c];
        for (int d = 0; d < n; d++)
            s += x[2 * d] * a[d][c], t += x[2 * d + 1] * a[d][c];
        re[c] = s, im[c] = t;
    }
}
GEMM_TARGET static void GEMM(along_lines)(const struct gemm_vector *v) {
    int64_t k = 0;
    for (; k + 4 <= v->k; k += 4)
        GEMM(some_terms)(v, k, 4, k == 0);
    for (; k < v->k; k++)
        GEMM(some_terms)(v, k, 1, k == 0);
    GEMM_ELEM *re = v->sums, *im = v->beside;
    for (int64_t c = 0; c < v->n; c++) {
        re[2 * c] -= im[2 * c + 1];
        re[2 * c + 1] += im[2 * c];
    }
}
#endif
