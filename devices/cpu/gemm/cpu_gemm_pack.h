// SPDX-License-Identifier: Apache-2.0
// cpu_gemm_pack: copies of blocks of a matrix into panels for cpu_gemm.c, for elements of one size
// and one instruction set. Included once for each, with PACK (name), PACK_ELEM (an integer or
// struct of that size), PACK_BYTES (of a vector), PACK_TURN (side of the squares that are turned),
// PACK_LOW and PACK_HIGH (lower and upper halves of two of their rows, elements in turn; not
// defined: turned one by one) and GEMM_TARGET set; takes all but the last away.
#ifndef PACK
#define PACK(name) name##_8_plain
#define PACK_ELEM  uint64_t
#define PACK_BYTES 16
#define PACK_TURN  2
#define PACK_LOW   0, 2
#define PACK_HIGH  1, 3
#define GEMM_TARGET
#endif
#include "devices/cpu/gemm/cpu_gemm.h"

#include <string.h>

#define INLINE GEMM_TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

// Lines of a piece that lie side by side: whole vectors, beyond its end too where that is safe.
INLINE void PACK(line)(const struct gemm_piece *p, const PACK_ELEM *from, PACK_ELEM *to) {
    enum { LANES = PACK_BYTES / sizeof(PACK_ELEM) };
    if (p->exact)
        for (int e = 0; e < p->n; e++)
            to[e] = from[e];
    else
        for (int e = 0; e < p->n; e += LANES)
            memcpy(to + e, from + e, PACK_BYTES);
}
INLINE void PACK(apart)(const struct gemm_piece *p, const PACK_ELEM *from, PACK_ELEM *to) {
    int64_t step = p->step;
    for (int e = 0; e < p->n; e++)
        to[e] = from[e * step];
}
#ifdef PACK_LOW
// PACK_TURN lines whose elements lie side by side along the depth. Each round puts the halves of a
// row beside those of another; after log2 rounds the square is turned.
INLINE void PACK(turn)(const PACK_ELEM *from, int64_t step, PACK_ELEM *to, int wide) {
    typedef PACK_ELEM vec __attribute__((vector_size(PACK_TURN * sizeof(PACK_ELEM))));
    vec v[PACK_TURN], w[PACK_TURN];
    UNROLL
    for (int k = 0; k < PACK_TURN; k++)
        memcpy(&v[k], from + k * step, sizeof *v);
    UNROLL
    for (int half = 1; half < PACK_TURN; half *= 2) {
        UNROLL
        for (int k = 0; k < PACK_TURN / 2; k++) {
            w[2 * k] = __builtin_shufflevector(v[k], v[k + PACK_TURN / 2], PACK_LOW);
            w[2 * k + 1] = __builtin_shufflevector(v[k], v[k + PACK_TURN / 2], PACK_HIGH);
        }
        UNROLL
        for (int k = 0; k < PACK_TURN; k++)
            v[k] = w[k];
    }
    UNROLL
    for (int k = 0; k < PACK_TURN; k++)
        memcpy(to + k * wide, &v[k], sizeof *v);
}
#endif
// Depths [0, depths) of a piece, a multiple of PACK_TURN: few lines at a time, each from front to
// end, so that what lies far apart is fetched ahead.
GEMM_TARGET static void PACK(squares)(const struct gemm_piece *p, const PACK_ELEM *from,
                                      PACK_ELEM *to, int64_t depths) {
    int e = 0;
#ifdef PACK_LOW
    for (; e + PACK_TURN <= p->n; e += PACK_TURN)
        for (int64_t d = 0; d < depths; d += PACK_TURN)
            PACK(turn)(from + e * p->step + d, p->step, to + d * p->wide + e, p->wide);
#endif
    for (; e < p->n; e++)
        for (int64_t d = 0; d < depths; d++)
            to[d * p->wide + e] = from[e * p->step + d];
}
// How many depths from `depth` on lie side by side, of k; whole squares, or 0.
INLINE int64_t PACK(together)(const int64_t *depth, int64_t k) {
    int64_t n = 1;
    while (n < k && depth[n] - depth[n - 1] == 1)
        n++;
    return n - n % PACK_TURN;
}
GEMM_TARGET static void PACK(pack)(const struct gemm_piece *pieces, int n, const void *from,
                                   const int64_t *depth, int64_t k, void *to) {
    const PACK_ELEM *base = from;
    bool apart = true;
    for (int e = 0; e < n; e++)
        apart = apart && pieces[e].step != 1;
    for (int64_t d = 0; d < k;) {
        int64_t turned = apart ? PACK(together)(depth + d, k - d) : 0;
        for (const struct gemm_piece *p = pieces; p < pieces + n; p++) {
            const PACK_ELEM *at = base + p->from + depth[d];
            PACK_ELEM *line = (PACK_ELEM *)to + p->to + d * p->wide;
            if (turned)
                PACK(squares)(p, at, line, turned);
            else if (p->step != 1)
                PACK(apart)(p, at, line);
            else
                PACK(line)(p, at, line);
        }
        d += turned ? turned : 1;
    }
}
#undef PACK
#undef PACK_ELEM
#undef PACK_BYTES
#undef PACK_TURN
#undef PACK_LOW
#undef PACK_HIGH
#undef INLINE
#undef UNROLL
