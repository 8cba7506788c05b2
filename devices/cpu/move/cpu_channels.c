// SPDX-License-Identifier: Apache-2.0
// channels: whole channels of images moved between forms: rows, blocks of 16 channels, channels
// last. Copies to another layout, and the fusions of the pass `channels` (shuffles, slices,
// concatenations). Where channels lie together, as in blocks, 16 of the result come for a pixel by
// one masked permutation from each vector of the operands that holds some; between those and rows
// 16 pixels of 16 channels are transposed in registers. Elements of 32 bits, AVX-512.
// Does not: other types, which the library or kernels copy.
#include <immintrin.h>

#include "compiler/passes/fusion/library.h"
#include "compiler/passes/layout/channels.h"
#include "devices/cpu/cpu.h"

enum { LANES = 16, TOGETHER = 8, PIXELS = 128, MAX_CHANNELS = 1 << 16, LEAST_ROW = 16 };
// Units of LANES * PIXELS elements that a thread takes at least. Few: their values were made by all
// threads and are read by all, so a thread alone would fetch half of them from other cores' caches.
enum { GRAIN = 4 };

#define VECTOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline)) VECTOR

// How an image lies: where a channel or a vector of them begins, and the way to the next pixel.
struct lie {
    enum conv_form form;
    int64_t channels, image; // image: elements of one of the batch
};
// Lanes of one vector of the result that come from one vector of an operand.
struct term {
    int32_t from[LANES];  // lane of the operand's vector
    __mmask16 lanes, has; // of the result; of the operand's vector, what is there
    int operand;
    int64_t block;
};
// Of LANES channels of the result.
struct block {
    const struct term *terms;
    int n;
    bool whole; // the operand's vector as it lies
    __mmask16 lanes;
};
struct origin { // of a channel of the result
    int operand;
    int64_t channel;
};
struct channels_state {
    int n; // operands
    struct lie *in, out;
    int64_t batch, pixels, blocks, chunks;
    bool by_pixels; // all channels of some pixels after each other: they share lines of the cache
    struct block *block;   // [blocks] where operands do not lie in rows
    struct origin *origin; // [channels]
};

static bool lie_of(const struct shape *s, struct lie *l) {
    int block;
    l->form = lib_form_of(s->layout, s->rank, &block);
    l->channels = s->dims[1];
    l->image = shape_bytes(s) / 4 / s->dims[0];
    return l->form != FORM_OTHER && (l->form != FORM_BLOCKED || block == LANES);
}
static bool can_take(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && s->rank >= 3 && s->rank <= 5 &&
           dtype_bits(s->dtype) == 32 && shape_elements(s) > 0 && s->dims[1] <= MAX_CHANNELS;
}
bool cpu_channels_accepts(const struct hlo_instr *i) {
    struct lie in, out, first = {0};
    if (cpu_target()->vector_bits != 512 || (i->op != HLO_COPY && i->op != HLO_FUSION) ||
        !can_take(i->shape) || !channels_match(i) || !lie_of(i->shape, &out))
        return false;
    for (int k = 0; k < i->n_operands; k++) {
        if (!can_take(i->operands[k]->shape) || !lie_of(i->operands[k]->shape, &in)) return false;
        if (!k) first = in;
        if (in.form != first.form) return false;
    }
    int64_t pixels = shape_elements(i->shape) / i->shape->dims[0] / i->shape->dims[1];
    if (first.form == FORM_ROWS && out.form == FORM_ROWS) // else kernels, or copies, are as good
        return i->op == HLO_FUSION && pixels >= LEAST_ROW && !lib_joins_rows(i->called[0]->root);
    return true;
}
static bool channels_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                             const char **why) {
    *why = "not a movement of channels";
    return cpu_channels_accepts(i);
}

// ---- opening

// The vectors that the channels of block b come from.
static void open_block(struct cpu_exe *x, struct channels_state *c, int64_t b) {
    struct term terms[LANES];
    struct block *block = &c->block[b];
    int n = 0;
    memset(terms, 0, sizeof terms);
    for (int lane = 0; lane < LANES && b * LANES + lane < c->out.channels; lane++) {
        const struct origin *o = &c->origin[b * LANES + lane];
        const struct lie *in = &c->in[o->operand];
        int64_t from = o->channel / LANES, left = in->channels - from * LANES;
        int k = 0;
        while (k < n && (terms[k].operand != o->operand || terms[k].block != from))
            k++;
        if (k == n) {
            bool all = in->form == FORM_BLOCKED || left >= LANES;
            terms[n++] = (struct term){.operand = o->operand,
                                       .block = from,
                                       .has = all ? 0xffff : (__mmask16)((1 << left) - 1)};
        }
        terms[k].from[lane] = (int32_t)(o->channel % LANES);
        terms[k].lanes |= (__mmask16)(1 << lane);
        block->lanes |= (__mmask16)(1 << lane);
    }

    block->whole = n == 1 && terms[0].lanes == block->lanes;
    for (int lane = 0; lane < LANES && block->whole; lane++)
        block->whole = !(block->lanes >> lane & 1) || terms[0].from[lane] == lane;
    if (block->whole) terms[0].has &= block->lanes; // beside them stands nothing

    struct term *own = arena_array(&x->arena, struct term, n);
    memcpy(own, terms, (size_t)n * sizeof *own);
    block->terms = own;
    block->n = n;
}
static status_t channels_open(struct cpu_exe *x, struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr;
    struct channels_state *c = arena_new_of(&x->arena, struct channels_state);
    c->n = i->n_operands;
    c->in = arena_array(&x->arena, struct lie, c->n);
    for (int k = 0; k < c->n; k++)
        lie_of(i->operands[k]->shape, &c->in[k]);
    lie_of(i->shape, &c->out);
    c->batch = i->shape->dims[0];
    c->pixels = shape_elements(i->shape) / c->batch / c->out.channels;
    c->blocks = (c->out.channels + LANES - 1) / LANES;
    c->chunks = (c->pixels + PIXELS - 1) / PIXELS;
    c->by_pixels = c->in[0].form == FORM_LAST || c->out.form == FORM_LAST;
    c->origin = arena_array(&x->arena, struct origin, c->out.channels);
    for (int64_t k = 0; k < c->out.channels; k++)
        channels_source(i, k, &c->origin[k].operand, &c->origin[k].channel);
    c->block = arena_zalloc(&x->arena, (size_t)c->blocks * sizeof *c->block);
    for (int64_t b = 0; b < c->blocks && c->in[0].form != FORM_ROWS; b++)
        open_block(x, c, b);
    s->alone = c->batch * c->blocks * c->chunks < 2 * GRAIN;
    s->apart = true;
    s->detail = "channels";
    s->state = c;
    return ST_OK;
}

// ---- running

// Where vector `block` of pixel 0 lies, and how far it is to the next pixel's.
static inline int64_t vector_at(const struct lie *l, int64_t image, int64_t block, int64_t pixels) {
    return image * l->image + block * LANES * (l->form == FORM_LAST ? 1 : pixels);
}
static inline int64_t pixel_stride(const struct lie *l) {
    return l->form == FORM_LAST ? l->channels : LANES;
}
static inline int64_t row_at(const struct lie *l, int64_t image, int64_t channel, int64_t pixels) {
    return image * l->image + channel * pixels;
}

INLINE void transpose16(__m512i v[LANES]) {
    __m512i t[LANES];
    UNROLL
    for (int k = 0; k < LANES; k += 2) { // pairs of rows, by elements
        t[k] = _mm512_unpacklo_epi32(v[k], v[k + 1]);
        t[k + 1] = _mm512_unpackhi_epi32(v[k], v[k + 1]);
    }
    UNROLL
    for (int k = 0; k < LANES; k += 4) { // fours, by pairs
        v[k] = _mm512_unpacklo_epi64(t[k], t[k + 2]);
        v[k + 1] = _mm512_unpackhi_epi64(t[k], t[k + 2]);
        v[k + 2] = _mm512_unpacklo_epi64(t[k + 1], t[k + 3]);
        v[k + 3] = _mm512_unpackhi_epi64(t[k + 1], t[k + 3]);
    }
    UNROLL
    for (int k = 0; k < LANES; k += 8) // eights, by quarters of vectors
        UNROLL
        for (int j = 0; j < 4; j++) {
            t[k + j] = _mm512_shuffle_i32x4(v[k + j], v[k + 4 + j], 0x88);
            t[k + 4 + j] = _mm512_shuffle_i32x4(v[k + j], v[k + 4 + j], 0xdd);
        }
    UNROLL
    for (int j = 0; j < 8; j++) {
        v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
    }
}

struct channels_call {
    const struct channels_state *c;
    void **bufs;
};
// What one unit reads and writes.
struct unit {
    const struct channels_state *c;
    const struct block *block;
    int64_t from, to;           // pixels
    const int32_t *in[LANES];   // rows of channels, or vectors of terms: of pixel 0
    int64_t stride[LANES];      // of the terms
    int32_t *out;
    int rows; // channels in the block
};

// The vectors of n <= TOGETHER pixels from p on; those behind are zero.
INLINE void gathered(const struct unit *u, int64_t p, int n, __m512i v[TOGETHER]) {
    const struct block *b = u->block;
    UNROLL
    for (int j = 0; j < TOGETHER; j++)
        v[j] = _mm512_setzero_si512();
    if (b->whole) {
        UNROLL
        for (int j = 0; j < TOGETHER; j++)
            if (j < n)
                v[j] = _mm512_maskz_loadu_epi32(b->terms->has, u->in[0] + (p + j) * u->stride[0]);
        return;
    }
    for (int k = 0; k < b->n; k++) {
        const struct term *t = &b->terms[k];
        const int32_t *in = u->in[k] + p * u->stride[k];
        __m512i from = _mm512_loadu_si512(t->from);
        UNROLL
        for (int j = 0; j < TOGETHER; j++)
            if (j < n)
                v[j] = _mm512_mask_permutexvar_epi32(
                    v[j], t->lanes, from,
                    _mm512_maskz_loadu_epi32(t->has, in + j * u->stride[k]));
    }
}
INLINE void some_vectors(const struct unit *u, int64_t p, int n, int64_t stride, __mmask16 lanes) {
    __m512i v[TOGETHER];
    gathered(u, p, n, v);
    UNROLL
    for (int j = 0; j < TOGETHER; j++)
        if (j < n) _mm512_mask_storeu_epi32(u->out + (p + j) * stride, lanes, v[j]);
}
VECTOR static void between_vectors(const struct unit *u) {
    int64_t stride = pixel_stride(&u->c->out), p = u->from;
    __mmask16 lanes = u->c->out.form == FORM_LAST ? u->block->lanes : 0xffff;
    for (; p + TOGETHER <= u->to; p += TOGETHER)
        some_vectors(u, p, TOGETHER, stride, lanes);
    some_vectors(u, p, (int)(u->to - p), stride, lanes);
}
// n pixels from p on, of `rows` channels; both are constants where there are LANES.
INLINE void some_to_rows(const struct unit *u, int64_t p, int n, int rows) {
    __m512i v[LANES];
    gathered(u, p, n < TOGETHER ? n : TOGETHER, v);
    gathered(u, p + TOGETHER, n - TOGETHER, v + TOGETHER);
    transpose16(v);
    UNROLL
    for (int k = 0; k < LANES; k++)
        if (k < rows)
            _mm512_mask_storeu_epi32(u->out + k * u->c->pixels + p, (__mmask16)((1 << n) - 1),
                                     v[k]);
}
INLINE void some_from_rows(const struct unit *u, int64_t p, int n, int rows) {
    int64_t stride = pixel_stride(&u->c->out);
    __mmask16 lanes = u->c->out.form == FORM_LAST ? (__mmask16)((1 << rows) - 1) : 0xffff;
    __m512i v[LANES];
    UNROLL
    for (int k = 0; k < LANES; k++)
        v[k] = k < rows ? _mm512_maskz_loadu_epi32((__mmask16)((1 << n) - 1), u->in[k] + p)
                        : _mm512_setzero_si512();
    transpose16(v);
    UNROLL
    for (int k = 0; k < LANES; k++)
        if (k < n) _mm512_mask_storeu_epi32(u->out + (p + k) * stride, lanes, v[k]);
}
// LANES pixels at a time. `some` comes into each of its two callers.
INLINE void in_squares(const struct unit *u, void (*some)(const struct unit *, int64_t, int, int)) {
    int64_t p = u->from;
    for (; p + LANES <= u->to && u->rows == LANES; p += LANES)
        some(u, p, LANES, LANES);
    for (; p < u->to; p += LANES)
        some(u, p, u->to - p < LANES ? (int)(u->to - p) : LANES, u->rows);
}
VECTOR static void to_rows(const struct unit *u) {
    in_squares(u, some_to_rows);
}
VECTOR static void from_rows(const struct unit *u) {
    in_squares(u, some_from_rows);
}
static void between_rows(const struct unit *u) {
    for (int k = 0; k < u->rows; k++)
        memcpy(u->out + k * u->c->pixels + u->from, u->in[k] + u->from,
               (size_t)(u->to - u->from) * sizeof *u->out);
}

static void run_unit(const struct channels_call *call, int64_t at) {
    const struct channels_state *c = call->c;
    int64_t image = at / c->blocks / c->chunks, b = at / c->chunks % c->blocks;
    int64_t chunk = at % c->chunks;
    if (c->by_pixels) b = at % c->blocks, chunk = at / c->blocks % c->chunks;
    struct unit u = {.c = c, .block = &c->block[b]};
    bool rows = c->in[0].form == FORM_ROWS, out_rows = c->out.form == FORM_ROWS;
    u.from = chunk * PIXELS;
    u.to = u.from + PIXELS < c->pixels ? u.from + PIXELS : c->pixels;
    u.rows = c->out.channels - b * LANES < LANES ? (int)(c->out.channels - b * LANES) : LANES;
    u.out = (int32_t *)call->bufs[c->n] + (out_rows ? row_at(&c->out, image, b * LANES, c->pixels)
                                                    : vector_at(&c->out, image, b, c->pixels));
    for (int k = 0; rows && k < u.rows; k++) {
        const struct origin *o = &c->origin[b * LANES + k];
        u.in[k] = (const int32_t *)call->bufs[o->operand] +
                  row_at(&c->in[o->operand], image, o->channel, c->pixels);
    }
    for (int k = 0; !rows && k < u.block->n; k++) {
        const struct term *t = &u.block->terms[k];
        const struct lie *in = &c->in[t->operand];
        u.in[k] = (const int32_t *)call->bufs[t->operand] +
                  vector_at(in, image, t->block, c->pixels);
        u.stride[k] = pixel_stride(in);
    }
    if (rows)
        (out_rows ? between_rows : from_rows)(&u);
    else
        (out_rows ? to_rows : between_vectors)(&u);
}
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    for (int64_t at = begin; at < end; at++)
        run_unit(ctx, at);
}
static status_t channels_run(UNUSED struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct channels_state *c = s->state;
    cpu_parallel(part, &(struct channels_call){c, bufs}, c->batch * c->blocks * c->chunks, GRAIN);
    return ST_OK;
}
const struct cpu_impl cpu_impl_channels = {"channels", channels_accepts, channels_open, NULL,
                                           channels_run, NULL, NULL, NULL};
