// SPDX-License-Identifier: Apache-2.0
// The tiles and loops of cpu_pointwise.h.
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/panels/cpu_pointwise.h"
#include "devices/cpu/routines/cpu_thin.h"

enum { L = POINT_LANES, HALF = L / 2, MOST_TILE = 28, MOST_SUMS = 28, MOST_HALVED = 18 };
enum { GRAIN_FLOPS = 2000000 }; // a share below about 10 us does not pay for waking a thread

#define VECTOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define UNROLL _Pragma("GCC unroll 28")

// ---- a tile: some pixels by the blocks of a panel

struct spot {
    const float *x; // its first pixel in the first block of channels
    int64_t x_block;
    int64_t channels;
    const float *w, *next; // the panel; what is fetched meanwhile, as much
    const float *bias;     // of the panel
    float *out;            // its first pixel in the first block of features
    int64_t out_block;
    const float *sum; // lies as out; or NULL
    bool bounded;
    float low, high;
    __mmask16 lanes; // of the last block: those that hold features, others are zero
};
// Bounds give the first where the second is NaN: so NaN stays.
static inline __attribute__((always_inline)) VECTOR void finish(const int pixels, const int blocks,
                                                                const struct spot *s, __m512 *sum) {
    if (s->sum)
        UNROLL for (int k = 0; k < pixels * blocks; k++) sum[k] = _mm512_add_ps(
            sum[k], _mm512_loadu_ps(s->sum + k % blocks * s->out_block + k / blocks * L));
    if (s->bounded) {
        __m512 low = _mm512_set1_ps(s->low), high = _mm512_set1_ps(s->high);
        UNROLL for (int k = 0; k < pixels * blocks; k++) sum[k] =
            _mm512_min_ps(high, _mm512_max_ps(low, sum[k]));
    }
    UNROLL for (int p = 0; p < pixels; p++) sum[p * blocks + blocks - 1] =
        _mm512_maskz_mov_ps(s->lanes, sum[p * blocks + blocks - 1]);
    UNROLL for (int k = 0; k < pixels * blocks; k++)
        _mm512_storeu_ps(s->out + k % blocks * s->out_block + k / blocks * L, sum[k]);
}
static inline __attribute__((always_inline)) VECTOR void tile(const int pixels, const int blocks,
                                                              const struct spot *s) {
    __m512 sum[MOST_SUMS], weight[POINT_BLOCKS];
    const float *x = s->x, *w = s->w, *next = s->next;
    UNROLL for (int k = 0; k < pixels * blocks; k++) sum[k] =
        _mm512_loadu_ps(s->bias + k % blocks * L);
    for (int64_t left = s->channels; left > 0; left -= L, x += s->x_block) {
        int64_t n = left < L ? left : L;
        for (int64_t c = 0; c < n; c++, w += blocks * L, next += blocks * L) {
            UNROLL for (int b = 0; b < blocks; b++) {
                weight[b] = _mm512_loadu_ps(w + b * L);
                _mm_prefetch((const char *)(next + b * L), _MM_HINT_T1);
            }
            UNROLL for (int p = 0; p < pixels; p += L) // of the block after the next one
                _mm_prefetch((const char *)(x + 2 * s->x_block + (p + c) * L), _MM_HINT_T0);
            UNROLL for (int p = 0; p < pixels; p++) {
                __m512 element = _mm512_set1_ps(x[p * L + c]);
                UNROLL for (int b = 0; b < blocks; b++) sum[p * blocks + b] =
                    _mm512_fmadd_ps(element, weight[b], sum[p * blocks + b]);
            }
        }
    }
    finish(pixels, blocks, s, sum);
}
// The same where the last block holds at most half a vector of features: a vector is two pixels'
// sums of it. Its weights and bias lie there twice; of an odd pixel the second half is dropped.
static inline __attribute__((always_inline)) VECTOR void put(const struct spot *s, __m512 v, int b,
                                                             int pixel, __mmask16 lanes) {
    int64_t at = b * s->out_block + pixel * L;
    if (s->sum) v = _mm512_add_ps(v, _mm512_loadu_ps(s->sum + at));
    if (s->bounded)
        v = _mm512_min_ps(_mm512_set1_ps(s->high), _mm512_max_ps(_mm512_set1_ps(s->low), v));
    _mm512_storeu_ps(s->out + at, _mm512_maskz_mov_ps(lanes, v));
}
static inline __attribute__((always_inline)) VECTOR void
tile_halved(const int pixels, const int whole, const struct spot *s) {
    __m512 sum[MOST_HALVED * POINT_BLOCKS], half[MOST_HALVED / 2], weight[POINT_BLOCKS];
    const float *x = s->x, *w = s->w, *next = s->next;
    const int pairs = (pixels + 1) / 2;
    UNROLL for (int k = 0; k < pixels * whole; k++) sum[k] =
        _mm512_loadu_ps(s->bias + k % whole * L);
    UNROLL for (int k = 0; k < pairs; k++) half[k] = _mm512_loadu_ps(s->bias + whole * L);
    for (int64_t left = s->channels; left > 0; left -= L, x += s->x_block) {
        int64_t n = left < L ? left : L;
        for (int64_t c = 0; c < n; c++, w += (whole + 1) * L, next += (whole + 1) * L) {
            UNROLL for (int b = 0; b <= whole; b++) {
                weight[b] = _mm512_loadu_ps(w + b * L);
                _mm_prefetch((const char *)(next + b * L), _MM_HINT_T1);
            }
            UNROLL for (int p = 0; p < pixels; p += L)
                _mm_prefetch((const char *)(x + 2 * s->x_block + (p + c) * L), _MM_HINT_T0);
            UNROLL for (int k = 0; k < pairs; k++) {
                const int p = 2 * k, q = p + 1 < pixels ? p + 1 : p;
                __m512 first = _mm512_set1_ps(x[p * L + c]), second = _mm512_set1_ps(x[q * L + c]);
                UNROLL for (int b = 0; b < whole; b++) {
                    sum[p * whole + b] = _mm512_fmadd_ps(first, weight[b], sum[p * whole + b]);
                    if (q > p)
                        sum[q * whole + b] = _mm512_fmadd_ps(second, weight[b], sum[q * whole + b]);
                }
                half[k] = _mm512_fmadd_ps(_mm512_mask_blend_ps(0xff00, first, second),
                                          weight[whole], half[k]);
            }
        }
    }

    UNROLL for (int k = 0; k < pixels * whole; k++) put(s, sum[k], k % whole, k / whole, 0xffff);
    UNROLL for (int p = 0; p < pixels; p++) {
        __m512 v = p % 2 ? _mm512_shuffle_f32x4(half[p / 2], half[p / 2], 0x4e) : half[p / 2];
        put(s, v, whole, p, s->lanes);
    }
}

typedef void (*tile_fn)(const struct spot *s);
#define TILE(P, B)                                                                                 \
    static VECTOR void tile_##P##_##B(const struct spot *s) {                                      \
        tile(P, B, s);                                                                             \
    }
#define HALVED(P, B)                                                                               \
    static VECTOR void halved_##P##_##B(const struct spot *s) {                                    \
        tile_halved(P, B, s);                                                                      \
    }
#define TO_9(X, B)  X(1, B) X(2, B) X(3, B) X(4, B) X(5, B) X(6, B) X(7, B) X(8, B) X(9, B)
#define TO_14(X, B) TO_9(X, B) X(10, B) X(11, B) X(12, B) X(13, B) X(14, B)
#define TO_18(X, B) TO_14(X, B) X(15, B) X(16, B) X(17, B) X(18, B)
#define TO_28(X, B)                                                                                \
    TO_18(X, B)                                                                                    \
    X(19, B) X(20, B) X(21, B) X(22, B) X(23, B) X(24, B) X(25, B) X(26, B) X(27, B) X(28, B)
TO_28(TILE, 1)
TO_14(TILE, 2)
TO_9(TILE, 3)
TO_18(HALVED, 1)
TO_9(HALVED, 2)
HALVED(10, 2)
#define ROW(P, B)      [P] = tile_##P##_##B,
#define HALF_ROW(P, B) [P] = halved_##P##_##B,
static const tile_fn tiles[POINT_BLOCKS + 1][MOST_TILE + 1] = {
    [1] = {TO_28(ROW, 1)}, [2] = {TO_14(ROW, 2)}, [3] = {TO_9(ROW, 3)}};
// By the blocks before the one of half a vector.
static const tile_fn halved[POINT_BLOCKS][MOST_HALVED + 1] = {
    [1] = {TO_18(HALF_ROW, 1)}, [2] = {TO_9(HALF_ROW, 2) HALF_ROW(10, 2)}};

// ---- planning

// Panels are of two blocks; of what is left, one alone or the last three.
static int panel_blocks(const struct pointwise *p, int64_t panel) {
    int64_t left = p->blocks - 2 * panel;
    return left == 1 ? 1 : left == 3 ? 3 : 2;
}
// Does the panel's last block hold half a vector of features at most?
static bool panel_halved(const struct pointwise *p, int64_t panel) {
    int64_t over = p->features % L;
    return panel + 1 == p->panels && p->blocks > 1 && over > 0 && over <= HALF;
}
static int64_t most_pixels(const struct pointwise *p, int64_t panel) {
    static const int most[POINT_BLOCKS + 1] = {0, 28, 14, 9}, most_halved[] = {0, 0, 18, 10};
    return (panel_halved(p, panel) ? most_halved : most)[panel_blocks(p, panel)];
}
static void read_posts(struct pointwise *p) {
    int k = 0;
    p->sum = -1;
    p->bias = p->n_post && p->post[0].kind == LIB_POST_BIAS;
    k += p->bias;
    if (k < p->n_post && p->post[k].kind == LIB_POST_SUM) p->sum = k++;
    if (k < p->n_post && (p->post[k].kind == LIB_POST_RELU || p->post[k].kind == LIB_POST_CLIP)) {
        bool relu = p->post[k].kind == LIB_POST_RELU;
        p->low = relu ? 0 : p->post[k].alpha;
        p->high = relu ? INFINITY : p->post[k].beta;
        p->bounded = p->low <= 0 && p->high >= 0; // the channels that fill up a block stay zero
        k += p->bounded;
    }
    p->rest = k;
}
void pointwise_plan(struct pointwise *p, int threads) {
    enum { NEAR = 32 << 10, MIDDLE = 256 << 10, SHARES = 4 }; // of the caches
    int64_t weights = pointwise_packed_bytes(p),
            pixel = (p->channels + L - 1) / L * L * (int64_t)sizeof(float);
    p->blocks = (p->features + L - 1) / L;
    p->panels = p->blocks < 2 ? 1 : p->blocks / 2;
    p->weights_stay = weights <= p->images * p->pixels * pixel;
    int64_t tile = most_pixels(p, 0);
    p->chunk = p->pixels;
    if (p->weights_stay) {
        p->chunk = (weights <= MIDDLE ? NEAR : MIDDLE) / pixel / tile * tile;
    } else if (p->panels * p->images < SHARES * threads && threads > 1) {
        p->chunk = (p->pixels * p->panels * p->images / SHARES / threads + tile - 1) / tile * tile;
    }
    if (p->chunk < tile) p->chunk = tile;
    if (p->chunk > p->pixels) p->chunk = p->pixels;
    p->chunks = (p->pixels + p->chunk - 1) / p->chunk;
    p->units = p->images * p->chunks * p->panels;
    p->grain = GRAIN_FLOPS / (4 * L * p->chunk * p->channels) + 1;
    read_posts(p);
}
int64_t pointwise_packed_bytes(const struct pointwise *p) {
    return (p->features + L - 1) / L * L * p->channels * (int64_t)sizeof(float);
}
void pointwise_pack(const struct pointwise *p, const void *plain, float *packed) {
    const char *from = plain;
    memset(packed, 0, (size_t)pointwise_packed_bytes(p));
    for (int64_t panel = 0; panel < p->panels; panel++) {
        int64_t wide = panel_blocks(p, panel) * L;
        float *to = packed + 2 * panel * L * p->channels;
        for (int64_t f = 0; f < wide && 2 * panel * L + f < p->features; f++)
            for (int64_t c = 0; c < p->channels; c++, from += sizeof *to)
                memcpy(&to[c * wide + f], from, sizeof *to);
        for (int64_t c = 0; panel_halved(p, panel) && c < p->channels; c++)
            memcpy(to + (c + 1) * wide - HALF, to + (c + 1) * wide - L, HALF * sizeof *to);
    }
}

// ---- running

// Post-operations behind those that are done in registers, on a tile's results.
static VECTOR void post(const struct pointwise *p, const struct spot *s, int64_t pixels,
                        int blocks) {
    thin_activate_fn activate = cpu_thin_activate();
    for (int b = 0; b < blocks; b++) {
        float *out = s->out + b * s->out_block;
        for (int k = p->rest; k < p->n_post; k++)
            activate(p->post[k].kind, p->post[k].alpha, p->post[k].beta, out, pixels * L);
        for (int64_t e = 0; b == blocks - 1 && s->lanes != 0xffff && e < pixels * L; e += L)
            _mm512_storeu_ps(out + e, _mm512_maskz_mov_ps(s->lanes, _mm512_loadu_ps(out + e)));
    }
}
// Pixels [from, end) of an image by one panel.
static VECTOR void panel(const struct pointwise_run *r, int64_t image, int64_t from, int64_t end,
                         int64_t number) {
    const struct pointwise *p = r->p;
    float bias[POINT_BLOCKS * L] = {0};
    int blocks = panel_blocks(p, number);
    int64_t feature = 2 * number * L, n = end - from, most = most_pixels(p, number),
            shares = (n + most - 1) / most, left = p->features - feature;
    if (p->bias)
        memcpy(bias, r->operand[0] + feature,
               (size_t)(left < blocks * L ? left : blocks * L) * sizeof *bias);

    const tile_fn *of = tiles[blocks];
    if (panel_halved(p, number)) {
        memcpy(bias + blocks * L - HALF, bias + (blocks - 1) * L, HALF * sizeof *bias);
        of = halved[blocks - 1];
    }

    const float *w = r->weights + feature * p->channels,
                *x = r->image + image * ((p->channels + L - 1) / L) * p->pixels * L;
    struct spot s = {
        .x_block = p->pixels * L,
        .channels = p->channels,
        .w = w,
        .bias = bias,
        .out_block = p->pixels * L,
        .lanes = left >= blocks * L ? 0xffff : (__mmask16)((1u << (left - (blocks - 1) * L)) - 1),
        .bounded = p->bounded,
        .low = p->low,
        .high = p->high};
    for (int64_t k = 0; k < shares; k++) {
        int64_t first = from + n * k / shares, pixels = from + n * (k + 1) / shares - first,
                at = (image * p->blocks + 2 * number) * p->pixels * L + first * L;
        bool more = number + 1 < p->panels;
        s.x = x + first * L;
        s.next = k + 1 == shares && more ? w + blocks * L * p->channels : w;
        s.out = r->out + at;
        s.sum = p->sum < 0 ? NULL : r->operand[p->sum] + at;
        of[pixels](&s);
        if (p->rest < p->n_post) post(p, &s, pixels, blocks);
    }
}
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct pointwise_run *r = ctx;
    const struct pointwise *p = r->p;
    for (int64_t u = begin; u < end; u++) {
        int64_t inner = p->weights_stay ? p->panels : p->images * p->chunks, outer_at = u / inner,
                inner_at = u % inner, number = p->weights_stay ? inner_at : outer_at,
                place = p->weights_stay ? outer_at : inner_at, from = place % p->chunks * p->chunk,
                to = from + p->chunk < p->pixels ? from + p->chunk : p->pixels;
        panel(r, place / p->chunks, from, to, number);
    }
}
void pointwise_run(const struct pointwise_run *r) {
    cpu_parallel(part, (void *)(uintptr_t)r, r->p->units, r->p->grain);
}
