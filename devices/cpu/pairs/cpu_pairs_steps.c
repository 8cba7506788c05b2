// SPDX-License-Identifier: Apache-2.0
// Steps behind the products of cpu_pairs.c, on a tile of sums, which become floats on the way. Most
// products have them in one order (cpu_pairs_order): then each vector goes through them in
// registers; else step after step goes over the tile.
#include <immintrin.h>
#include <string.h>

#include "devices/cpu/pairs/cpu_pairs.h"

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 2")
enum { LANES = 8, VECTORS = PAIRS_PANEL / LANES, TILE = PAIRS_ROWS * VECTORS };

void cpu_pairs_order(struct pairs_state *t) {
    enum { BIAS_S32, TO_F32, SCALE, BIAS, SUM, BOUNDS, QUANTISE };
    int next = 0;
    t->in_order = true;
    t->bias_s32 = t->scale = t->bias = t->bounds = t->quantise = -1;
    for (int k = 0; k < t->n_post; k++) {
        enum lib_post_kind kind = t->post[k].kind;
        int place = kind == LIB_POST_BIAS_S32        ? BIAS_S32
                    : kind == LIB_POST_TO_F32        ? TO_F32
                    : kind == LIB_POST_CHANNEL_SCALE ? SCALE
                    : kind == LIB_POST_SCALE         ? SCALE
                    : kind == LIB_POST_BIAS          ? BIAS
                    : kind == LIB_POST_SUM           ? SUM
                    : kind == LIB_POST_RELU          ? BOUNDS
                    : kind == LIB_POST_CLIP          ? BOUNDS
                    : kind == LIB_POST_QUANTISE      ? QUANTISE
                                                     : -1;
        t->in_order = t->in_order && place >= next;
        next = place + 1;
        if (place == BIAS_S32) t->bias_s32 = k;
        if (place == TO_F32) t->floats = true;
        if (place == SCALE) t->scale = k;
        if (place == BIAS) t->bias = k;
        if (place == BOUNDS) t->bounds = k;
        if (place == QUANTISE) t->quantise = k;
    }
    t->in_order = t->in_order && t->floats;
}

// ---- what a panel's steps read

// One value a column, or one for all.
static void read_columns(const struct pairs_steps *s, int step, void *to) {
    const struct pairs_state *t = s->call->t;
    const char *with = s->call->bufs[t->leaf[step]];
    bool one = t->post[step].operand->shape->rank == 0;
    int64_t n = s->n < PAIRS_PANEL ? s->n : PAIRS_PANEL;
    if (!one) memcpy(to, with + 4 * s->column, (size_t)n * 4);
    for (int k = 0; k < PAIRS_PANEL && one; k++)
        memcpy((char *)to + 4 * k, with, 4);
}
static void fill(float *to, float v) {
    for (int k = 0; k < PAIRS_PANEL; k++)
        to[k] = v;
}
// Bounds on what is quantised within which the rest stays finite; packing saturates what is left.
static void begin_quantising(const struct lib_post *p, bool u8, struct pairs_steps *s) {
    float low = ((u8 ? -1 : -129) - p->beta) * p->alpha,
          high = ((u8 ? 256 : 128) - p->beta) * p->alpha;
    s->step = p->alpha;
    s->inverse = 1 / p->alpha;
    s->zero = p->beta;
    s->least = low < high ? low : high;
    s->most = low < high ? high : low;
}
void cpu_pairs_begin(const struct pairs_call *c, int64_t column, int64_t n, struct pairs_steps *s) {
    const struct pairs_state *t = c->t;
    s->call = c, s->column = column, s->n = n, s->row = t->groups * t->cols;
    for (int k = 0; k < PAIRS_PANEL; k++)
        s->in[k] = k < n ? -1 : 0;
    if (t->quantise >= 0) begin_quantising(&t->post[t->quantise], t->result == DT_U8, s);
    if (!t->in_order) return;

    memset(s->bias_s32, 0, sizeof s->bias_s32);
    fill(s->scale, 1);
    fill(s->bias, -0.0f);
    if (t->bias_s32 >= 0) read_columns(s, t->bias_s32, s->bias_s32);
    if (t->scale >= 0 && t->leaf[t->scale] < 0)
        fill(s->scale, t->post[t->scale].alpha);
    else if (t->scale >= 0)
        read_columns(s, t->scale, s->scale);
    if (t->bias >= 0) read_columns(s, t->bias, s->bias);
    if (t->bounds < 0) return;
    const struct lib_post *p = &t->post[t->bounds];
    bool relu = p->kind == LIB_POST_RELU;
    s->low = relu ? 0 : p->alpha;
    s->high = relu ? __builtin_inff() : p->beta;
    if (t->quantise < 0) return;
    float least = s->least, most = s->most; // bounds within bounds
    s->least = s->low < least ? least : s->low > most ? most : s->low;
    s->most = s->high < least ? least : s->high > most ? most : s->high;
}

// ---- vectors

INLINE __m256i words(const int32_t *p, int v) {
    return _mm256_loadu_si256((const __m256i *)(const void *)(p + v * LANES));
}
INLINE __m256 tensor_at(const struct pairs_steps *s, int64_t at, int v) {
    const float *with = (const float *)(const void *)s->call->sum + at + v * LANES;
    return s->n >= PAIRS_PANEL ? _mm256_loadu_ps(with) : _mm256_maskload_ps(with, words(s->in, v));
}
// round(x / step) + zero. The quotient of x and a constant is its product with the reciprocal,
// corrected by what is left (Markstein 1990). NaN becomes the least.
INLINE __m256i quantised(const struct pairs_steps *s, __m256 x) {
    __m256 inverse = _mm256_set1_ps(s->inverse);
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(s->least)), _mm256_set1_ps(s->most));
    __m256 y = _mm256_mul_ps(x, inverse);
    y = _mm256_fmadd_ps(_mm256_fnmadd_ps(y, _mm256_set1_ps(s->step), x), inverse, y);
    y = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_cvtps_epi32(_mm256_add_ps(y, _mm256_set1_ps(s->zero)));
}
INLINE void store_bytes(const struct pairs_steps *s, __m256i a, __m256i b, int64_t at) {
    const struct pairs_call *c = s->call;
    __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    __m128i low = _mm256_castsi256_si128(both), high = _mm256_extracti128_si256(both, 1),
            bytes =
                c->t->result == DT_U8 ? _mm_packus_epi16(low, high) : _mm_packs_epi16(low, high);
    if (s->n >= PAIRS_PANEL) {
        _mm_storeu_si128((__m128i *)(void *)(c->out + at), bytes);
        return;
    }
    uint8_t all[PAIRS_PANEL];
    _mm_storeu_si128((__m128i *)(void *)all, bytes);
    memcpy(c->out + at, all, (size_t)s->n);
}
INLINE void store_words(const struct pairs_steps *s, __m256i a, __m256i b, int64_t at) {
    int32_t *out = (int32_t *)(void *)s->call->out + at;
    if (s->n >= PAIRS_PANEL) {
        _mm256_storeu_si256((__m256i *)(void *)out, a);
        _mm256_storeu_si256((__m256i *)(void *)(out + LANES), b);
        return;
    }
    int32_t all[PAIRS_PANEL];
    _mm256_storeu_si256((__m256i *)(void *)all, a);
    _mm256_storeu_si256((__m256i *)(void *)(all + LANES), b);
    memcpy(out, all, (size_t)s->n * sizeof *out);
}

// ---- in one order

INLINE void chained(const struct pairs_steps *s, const int32_t *sums, int rows, int64_t at,
                    bool sum, bool bounds, bool bytes) {
    __m256i bias_s32[VECTORS];
    __m256 scale[VECTORS], bias[VECTORS], y[VECTORS];
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        bias_s32[v] = words(s->bias_s32, v);
        scale[v] = _mm256_loadu_ps(s->scale + v * LANES);
        bias[v] = _mm256_loadu_ps(s->bias + v * LANES);
    }
    for (int r = 0; r < rows; r++, at += s->row, sums += PAIRS_PANEL) {
        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            y[v] = _mm256_cvtepi32_ps(_mm256_add_epi32(words(sums, v), bias_s32[v]));
            y[v] = _mm256_add_ps(_mm256_mul_ps(y[v], scale[v]), bias[v]);
            if (sum) y[v] = _mm256_add_ps(y[v], tensor_at(s, at, v));
            if (bounds) // NaN stays
                y[v] = _mm256_min_ps(_mm256_set1_ps(s->high),
                                     _mm256_max_ps(_mm256_set1_ps(s->low), y[v]));
        }
        if (bytes)
            store_bytes(s, quantised(s, y[0]), quantised(s, y[1]), at);
        else
            store_words(s, _mm256_castps_si256(y[0]), _mm256_castps_si256(y[1]), at);
    }
}
static TARGET void in_order(const struct pairs_steps *s, const int32_t *sums, int rows,
                            int64_t at) {
    const struct pairs_state *t = s->call->t;
    bool sum = t->sum >= 0, bounds = t->bounds >= 0;
    if (t->quantise >= 0 && sum)
        chained(s, sums, rows, at, true, false, true);
    else if (t->quantise >= 0)
        chained(s, sums, rows, at, false, false, true);
    else if (sum)
        chained(s, sums, rows, at, true, bounds, false);
    else
        chained(s, sums, rows, at, false, bounds, false);
}

// ---- step after step

struct tile {
    union {
        __m256i i[TILE];
        __m256 f[TILE];
    } v;
    int rows;
};
static TARGET void by_column(const struct pairs_steps *s, struct tile *x, int step) {
    enum lib_post_kind kind = s->call->t->post[step].kind;
    int32_t with[PAIRS_PANEL] = {0};
    read_columns(s, step, with);
    for (int k = 0; k < x->rows * VECTORS; k++) {
        __m256i w = words(with, k % VECTORS);
        __m256 f = _mm256_castsi256_ps(w);
        if (kind == LIB_POST_BIAS_S32)
            x->v.i[k] = _mm256_add_epi32(x->v.i[k], w);
        else if (kind == LIB_POST_CHANNEL_SCALE)
            x->v.f[k] = _mm256_mul_ps(x->v.f[k], f);
        else
            x->v.f[k] = _mm256_add_ps(x->v.f[k], f);
    }
}
static TARGET void one_step(const struct pairs_steps *s, struct tile *x, int step, int64_t at) {
    const struct lib_post *p = &s->call->t->post[step];
    switch (p->kind) {
    case LIB_POST_TO_F32:
        for (int k = 0; k < x->rows * VECTORS; k++)
            x->v.f[k] = _mm256_cvtepi32_ps(x->v.i[k]);
        break;
    case LIB_POST_BIAS_S32:
    case LIB_POST_BIAS:
    case LIB_POST_CHANNEL_SCALE:
        by_column(s, x, step);
        break;
    case LIB_POST_SUM:
        for (int k = 0; k < x->rows * VECTORS; k++)
            x->v.f[k] =
                _mm256_add_ps(x->v.f[k], tensor_at(s, at + k / VECTORS * s->row, k % VECTORS));
        break;
    case LIB_POST_QUANTISE: // the last
        for (int k = 0; k < x->rows * VECTORS; k++)
            x->v.i[k] = quantised(s, x->v.f[k]);
        break;
    default:
        s->call->t->activate(p->kind, p->alpha, p->beta, (float *)x->v.f, x->rows * PAIRS_PANEL);
    }
}

TARGET void cpu_pairs_finish(const struct pairs_steps *s, const int32_t *sums, int rows,
                             int64_t at) {
    const struct pairs_state *t = s->call->t;
    struct tile x;
    if (t->in_order) {
        in_order(s, sums, rows, at);
        return;
    }
    x.rows = rows;
    for (int k = 0; k < rows * VECTORS; k++)
        x.v.i[k] = words(sums, k);
    for (int k = 0; k < t->n_post; k++)
        one_step(s, &x, k, at);
    for (int r = 0; r < rows; r++, at += s->row)
        (t->quantise >= 0 ? store_bytes : store_words)(s, x.v.i[r * VECTORS],
                                                       x.v.i[r * VECTORS + 1], at);
}
