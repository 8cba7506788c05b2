// SPDX-License-Identifier: Apache-2.0
// cpu_sort_best: the first of a line's order (cpu_sort.c includes it), without sorting what cannot
// be among them. Keys are made by blocks and compared with a bound that most do not pass. The first
// alone is the least of each lane; few are kept in order; of more, candidates are collected, and
// parted about the last one that is kept when there is no more room (Hoare's FIND). Takes the
// file's INLINE, keys_of, radix and pairs.
#pragma once
#ifdef RADIX
#include <immintrin.h>

// Which keys of a block are below the bound, as bits.
#define BELOW(BITS)                                                                                \
    INLINE uint32_t below_##BITS(const uint##BITS##_t *keys, uint##BITS##_t bound) {               \
        uint##BITS##_t any = 0;                                                                    \
        uint32_t bits = 0;                                                                         \
        for (int e = 0; e < BLOCK; e++)                                                            \
            any |= keys[e] < bound;                                                                \
        for (int e = 0; any && e < BLOCK; e++)                                                     \
            bits |= (uint32_t)(keys[e] < bound) << e;                                              \
        return bits;                                                                               \
    }
BELOW(32)
BELOW(64)
#define AVX2   __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
AVX512 static inline uint32_t below_512_32(const uint32_t *keys, uint32_t bound) {
    __m512i b = _mm512_set1_epi32((int)bound);
    return (uint32_t)_mm512_cmplt_epu32_mask(_mm512_loadu_si512(keys), b) |
           (uint32_t)_mm512_cmplt_epu32_mask(_mm512_loadu_si512(keys + 16), b) << 16;
}
AVX512 static inline uint32_t below_512_64(const uint64_t *keys, uint64_t bound) {
    __m512i b = _mm512_set1_epi64((int64_t)bound);
    uint32_t bits = 0;
    for (int e = 0; e < BLOCK; e += 8)
        bits |= (uint32_t)_mm512_cmplt_epu64_mask(_mm512_loadu_si512(keys + e), b) << e;
    return bits;
}

// next: the first block from *at on that is whole and has keys below the bound; 0: none.
// least: the first of the order, lane by lane; the last block begins earlier.
#define SCANS(ISA, TARGET, BITS, BELOW)                                                            \
    TARGET static uint32_t next_##ISA##_##BITS(                                                    \
        const struct block_form *f, const char *line, int64_t n, uint##BITS##_t flip,              \
        uint##BITS##_t bound, int64_t *at, uint##BITS##_t *restrict keys) {                        \
        int64_t size = dtype_size(f->t);                                                           \
        for (uint32_t bits; *at + BLOCK <= n; *at += BLOCK) {                                      \
            keys_of_##BITS(f, line + *at * size, BLOCK, flip, keys);                               \
            if ((bits = BELOW(keys, bound))) return bits;                                          \
        }                                                                                          \
        return 0;                                                                                  \
    }                                                                                              \
    TARGET static pair_##BITS least_##ISA##_##BITS(const struct block_form *f, const char *line,   \
                                                   int64_t n, uint##BITS##_t flip) {               \
        _Alignas(64) uint##BITS##_t best[BLOCK], at[BLOCK], keys[BLOCK];                           \
        uint##BITS##_t least = UINT##BITS##_MAX, first = least;                                    \
        int64_t size = dtype_size(f->t);                                                           \
        for (int e = 0; e < BLOCK; e++)                                                            \
            best[e] = keys[e] = UINT##BITS##_MAX, at[e] = (uint##BITS##_t)e;                       \
        for (int64_t k = 0; k < n; k += BLOCK) {                                                   \
            int many = n < BLOCK ? (int)n : BLOCK;                                                 \
            int64_t from = k + many > n ? n - many : k;                                            \
            keys_of_##BITS(f, line + from * size, many, flip, keys);                               \
            for (int e = 0; e < BLOCK; e++) {                                                      \
                uint##BITS##_t here = (uint##BITS##_t)from + (uint##BITS##_t)e;                    \
                at[e] = keys[e] < best[e] ? here : at[e];                                          \
                best[e] = keys[e] < best[e] ? keys[e] : best[e];                                   \
            }                                                                                      \
        }                                                                                          \
        for (int e = 0; e < BLOCK; e++)                                                            \
            least = best[e] < least ? best[e] : least;                                             \
        for (int e = 0; e < BLOCK; e++) {                                                          \
            uint##BITS##_t here = best[e] == least ? at[e] : UINT##BITS##_MAX;                     \
            first = here < first ? here : first;                                                   \
        }                                                                                          \
        return PAIR_##BITS(least, first);                                                          \
    }
SCANS(plain, , 32, below_32)
SCANS(plain, , 64, below_64)
SCANS(avx2, AVX2, 32, below_32)
SCANS(avx2, AVX2, 64, below_64)
SCANS(avx512, AVX512, 32, below_512_32)
SCANS(avx512, AVX512, 64, below_512_64)
#define OF_BITS(NAME, BITS, bits)                                                                  \
    ((bits) == 512   ? NAME##_avx512_##BITS                                                        \
     : (bits) == 256 ? NAME##_avx2_##BITS                                                          \
                     : NAME##_plain_##BITS)
#define least_32(bits) OF_BITS(least, 32, bits)
#define least_64(bits) OF_BITS(least, 64, bits)
#define next_32(bits)  OF_BITS(next, 32, bits)
#define next_64(bits)  OF_BITS(next, 64, bits)

// order: merges runs; the result is in a or b. select: brings the least `kept` to the beginning of
// a, the largest of them last; what its pivots, near the last one in a sample, do not part, it
// sorts.
#define BEST(BITS)                                                                                 \
    static pair_##BITS *order_##BITS(pair_##BITS *a, pair_##BITS *b, int64_t n) {                  \
        enum { RUN = 8 };                                                                          \
        pair_##BITS *t, x;                                                                         \
        for (int64_t i = 0, j; i < n; i++) {                                                       \
            for (x = a[i], j = i; j % RUN && a[j - 1] > x; j--)                                    \
                a[j] = a[j - 1];                                                                   \
            a[j] = x;                                                                              \
        }                                                                                          \
        for (int64_t run = RUN; run < n; run *= 2, t = a, a = b, b = t)                            \
            for (int64_t from = 0; from < n; from += 2 * run) {                                    \
                int64_t i = from, mid = from + run < n ? from + run : n, j = mid, k = from;        \
                int64_t end = mid + run < n ? mid + run : n;                                       \
                while (i < mid && j < end) {                                                       \
                    bool right = a[j] < a[i];                                                      \
                    b[k++] = right ? a[j] : a[i];                                                  \
                    j += right, i += !right;                                                       \
                }                                                                                  \
                memcpy(b + k, a + i, (size_t)(mid - i) * sizeof *a);                               \
                memcpy(b + k + (mid - i), a + j, (size_t)(end - j) * sizeof *a);                   \
            }                                                                                      \
        return a;                                                                                  \
    }                                                                                              \
    static int64_t pivot_##BITS(const pair_##BITS *a, int64_t from, int64_t end, int64_t last) {   \
        enum { SAMPLE = 16 };                                                                      \
        int64_t n = end - from, of[SAMPLE], rank = SAMPLE * (last - from) / n;                     \
        for (int64_t e = 0, j; e < SAMPLE; e++) {                                                  \
            int64_t x = from + n * e / SAMPLE;                                                     \
            for (j = e; j > 0 && a[of[j - 1]] > a[x]; j--)                                         \
                of[j] = of[j - 1];                                                                 \
            of[j] = x;                                                                             \
        }                                                                                          \
        if (2 * rank < SAMPLE)                                                                     \
            rank += rank < SAMPLE - 1;                                                             \
        else                                                                                       \
            rank -= 1;                                                                             \
        return of[rank];                                                                           \
    }                                                                                              \
    static void select_##BITS(pair_##BITS *a, pair_##BITS *b, int64_t n, int64_t kept) {           \
        enum { SHORT = 24, ROUNDS = 48 };                                                          \
        int64_t from = 0, end = n;                                                                 \
        for (int round = 0; end - from > SHORT && round < ROUNDS; round++) {                       \
            int64_t p = pivot_##BITS(a, from, end, kept - 1), to = from, last = end - 1;           \
            pair_##BITS x = a[p];                                                                  \
            a[p] = a[last], a[last] = x;                                                           \
            for (int64_t i = from; i < last; i++) {                                                \
                pair_##BITS y = a[i];                                                              \
                a[i] = a[to];                                                                      \
                a[to] = y;                                                                         \
                to += y < x;                                                                       \
            }                                                                                      \
            a[last] = a[to], a[to] = x;                                                            \
            if (to == kept - 1) return;                                                            \
            *(to < kept ? &from : &end) = to < kept ? to + 1 : to;                                 \
        }                                                                                          \
        pair_##BITS *done = order_##BITS(a + from, b, end - from);                                 \
        if (done == b) memcpy(a + from, b, (size_t)(end - from) * sizeof *a);                      \
    }                                                                                              \
    static int64_t keep_##BITS(pair_##BITS *a, int64_t n, int64_t kept, pair_##BITS x) {           \
        int64_t j = n < kept ? n : kept - 1;                                                       \
        for (; j > 0 && a[j - 1] > x; j--)                                                         \
            a[j] = a[j - 1];                                                                       \
        a[j] = x;                                                                                  \
        return n < kept ? n + 1 : n;                                                               \
    }                                                                                              \
    static pair_##BITS *best_##BITS(const struct sort_state *s, const char *line, pair_##BITS *a,  \
                                    pair_##BITS *b) {                                              \
        const struct key *key = &s->keys.v[0];                                                     \
        enum dtype t = key->type;                                                                  \
        const struct block_form form = {block_of(t, key), t, key};                                 \
        int of = dtype_bits(t) < 8 ? 8 : dtype_bits(t), many = s->n < BLOCK ? (int)s->n : BLOCK;   \
        uint##BITS##_t flip = key->down ? UINT##BITS##_MAX >> (BITS - of) : 0, bound = 0;          \
        _Alignas(64) uint##BITS##_t keys[BLOCK];                                                   \
        int64_t n = 0, kept = s->kept;                                                             \
        bool bounded = false; /* only keys below the bound may be among them */                    \
        if (kept == 1) *a = least_##BITS(s->bits)(&form, line, s->n, flip);                        \
        if (kept <= 1) return a;                                                                   \
        for (int64_t at = 0, from; at < s->n; at += BLOCK) {                                       \
            uint32_t left =                                                                        \
                bounded ? next_##BITS(s->bits)(&form, line, s->n, flip, bound, &at, keys) : 0;     \
            if (at >= s->n) break;                                                                 \
            from = at + many > s->n ? s->n - many : at; /* the last block begins earlier */        \
            if (!left) {                                                                           \
                keys_of_##BITS(&form, line + from * dtype_size(t), many, flip, keys);              \
                left = UINT32_MAX >> (BLOCK - many) & UINT32_MAX << (at - from);                   \
            }                                                                                      \
            for (; left; left &= left - 1) {                                                       \
                int e = __builtin_ctz(left);                                                       \
                if (bounded && keys[e] >= bound) continue;                                         \
                pair_##BITS x = PAIR_##BITS(keys[e], from + e);                                    \
                if (kept <= IN_ORDER) {                                                            \
                    n = keep_##BITS(a, n, kept, x);                                                \
                } else {                                                                           \
                    a[n++] = x;                                                                    \
                    if (n < s->room) continue;                                                     \
                    if (s->parted) {                                                               \
                        select_##BITS(a, b, n, kept);                                              \
                    } else {                                                                       \
                        pair_##BITS *done = radix_##BITS(a, b, n);                                 \
                        if (done != a) b = a, a = done;                                            \
                    }                                                                              \
                    n = kept;                                                                      \
                }                                                                                  \
                bounded = n == kept;                                                               \
                bound = bounded ? KEY_##BITS(a[n - 1]) : 0;                                        \
            }                                                                                      \
        }                                                                                          \
        if (kept <= IN_ORDER) return a;                                                            \
        if (!s->parted) return radix_##BITS(a, b, n);                                              \
        if (n > kept) select_##BITS(a, b, n, kept);                                                \
        return order_##BITS(a, b, kept);                                                           \
    }
BEST(32)
BEST(64)
#endif
