// SPDX-License-Identifier: Apache-2.0
// thin8: products of a few rows of 8-bit integers with an s8 matrix (compiler/passes/layout/int8.c
// makes them), with the post-operations of library.h: the steps of quantised recurrent layers and
// decoders, quantised models of one short sequence. As cpu_thin.c, they read each weight a few
// times; panels of 64 columns hold four rows of the matrix in 32 bits, which is what VNNI's
// instruction multiplies and sums exactly. Bound weights are packed at PREPARE, others, if few, at
// each run.
// s8 on the left is taken as u8, 128 more; what this adds, 128 times the sum of a column, is the
// sums' start. Does not: batches of matrices, left operands whose rows do not lie together.
#include "devices/cpu/routines/cpu_thin.h"

#include <immintrin.h>

#include "devices/cpu/cpu.h"
#include "devices/cpu/onednn/cpu_onednn.h"

enum { MAX_ROWS = 16, PANEL = 64, LANES = 16, VECTORS = PANEL / LANES, GROUP = 4 };
enum { PACKED_EACH_RUN = 1 << 14 }; // weights; the library takes more at a run in less time
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 16")

struct thin8_state {
    thin_activate_fn activate;
    int x, w, out; // leaves
    int64_t rows, cols, k;
    bool by_column; // the matrix before packing: [columns, k]
    bool flip;      // x is s8
    enum dtype result;
    struct lib_post post[LIB_MAX_POST];
    int leaf[LIB_MAX_POST]; // of the operand, -1 = none
    int n_post;
    int64_t units, grain;
};

// ---- which products

struct thin8_dims {
    int64_t rows, cols, k;
    bool by_column;
};
static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && !s->dynamic && layout_is_default(s->layout, s->rank) &&
           shape_elements(s) > 0;
}
static bool form_of(const struct lib_call *c, struct thin8_dims *f) {
    const struct hlo_instr *h = c->hero;
    if (h->op != HLO_DOT || h->shape->dtype != DT_S32) return false;
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    const struct shape *x = h->operands[0]->shape, *w = h->operands[1]->shape;
    if (d->lhs_batch_dims.n || d->lhs_contracting_dims.n != 1 || d->rhs_contracting_dims.n != 1 ||
        !plain(x) || !plain(w) || !plain(c->result) || w->dtype != DT_S8 ||
        (x->dtype != DT_U8 && x->dtype != DT_S8))
        return false;
    int64_t xc = d->lhs_contracting_dims.v[0], wc = d->rhs_contracting_dims.v[0];
    *f = (struct thin8_dims){.k = x->dims[xc]};
    f->rows = shape_elements(x) / f->k;
    f->cols = shape_elements(w) / f->k;
    f->by_column = wc == w->rank - 1;
    return (xc == x->rank - 1 || f->rows == 1) && (wc == 0 || f->by_column);
}
static bool posts_ok(const struct lib_call *c) {
    for (int k = 0; k < c->n_post; k++)
        if (c->post[k].operand && !plain(c->post[k].operand->shape)) return false;
    return true;
}
bool cpu_thin8_runs(const struct lib_call *c) {
    struct thin8_dims f;
    return cpu_has_int8() && form_of(c, &f) && f.rows <= MAX_ROWS && posts_ok(c);
}
static bool thin8_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                          const char **why) {
    struct lib_call c;
    *why = "not a product of few rows of 8-bit integers";
    return !shape_is_tuple(i->shape) && lib_match(i, &c) && cpu_thin8_runs(&c);
}

// ---- the product: rows x 64 columns of sums in registers

static inline int32_t group_at(const uint8_t *x, int n) { // n bytes, zeros behind
    int32_t v = 0;
    memcpy(&v, x, (size_t)n);
    return v;
}
// The depth goes to `split` sums side by side, so that few rows do not wait for their own sums.
INLINE void panel(const struct thin8_state *t, const uint8_t *x, const char *w,
                  const int32_t *start, int32_t *out, int rows, int split) {
    const __m512i flip = _mm512_set1_epi32(t->flip ? (int32_t)0x80808080 : 0);
    __m512i sum[4][VECTORS];
    int64_t k = 0;
    UNROLL
    for (int r = 0; r < rows * split; r++)
        UNROLL
    for (int v = 0; v < VECTORS; v++)
        sum[r][v] = r < rows ? _mm512_loadu_si512(start + v * LANES) : _mm512_setzero_si512();
    for (; k + GROUP * split <= t->k; k += GROUP * split)
        UNROLL
    for (int d = 0; d < split; d++, w += PANEL * GROUP)
        UNROLL
    for (int r = 0; r < rows; r++) {
        __m512i one = _mm512_set1_epi32(group_at(x + r * t->k + k + GROUP * d, GROUP));
        one = _mm512_xor_si512(one, flip);
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            sum[d * rows + r][v] =
                _mm512_dpbusd_epi32(sum[d * rows + r][v], one, _mm512_loadu_si512(w + v * 64));
    }
    for (; k < t->k; k += GROUP, w += PANEL * GROUP) { // weights are 0 behind the end
        int n = t->k - k < GROUP ? (int)(t->k - k) : GROUP;
        UNROLL
        for (int r = 0; r < rows; r++) {
            __m512i one = _mm512_set1_epi32(group_at(x + r * t->k + k, n));
            one = _mm512_xor_si512(one, flip);
            UNROLL
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], one, _mm512_loadu_si512(w + v * 64));
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
    for (int v = 0; v < VECTORS; v++) {
        __m512i s = sum[r][v];
        UNROLL
        for (int d = 1; d < split; d++)
            s = _mm512_add_epi32(s, sum[d * rows + r][v]);
        _mm512_storeu_si512(out + r * PANEL + v * LANES, s);
    }
}
static TARGET void product(const struct thin8_state *t, const uint8_t *x, const char *w,
                           const int32_t *start, int32_t *out, int rows) {
    switch (rows) {
    case 1:
        return panel(t, x, w, start, out, 1, 4);
    case 2:
        return panel(t, x, w, start, out, 2, 2);
    case 3:
        return panel(t, x, w, start, out, 3, 1);
    default:
        return panel(t, x, w, start, out, 4, 1);
    }
}

// ---- post-operations on 64 sums of a row, which become floats on the way and stay in registers

struct line {
    __m512i sum[VECTORS];
    __m512 v[VECTORS];
    __mmask16 in[VECTORS]; // columns that there are
};
INLINE void add_s32(struct line *l, const int32_t *with, bool one) {
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        __m512i b = one ? _mm512_set1_epi32(*with)
                        : _mm512_maskz_loadu_epi32(l->in[v], with + v * LANES);
        l->sum[v] = _mm512_add_epi32(l->sum[v], b);
    }
}
INLINE void each_f32(struct line *l, const float *with, bool one, bool times) {
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        __m512 b =
            one ? _mm512_set1_ps(*with) : _mm512_maskz_loadu_ps(l->in[v], with + v * LANES);
        l->v[v] = times ? _mm512_mul_ps(l->v[v], b) : _mm512_add_ps(l->v[v], b);
    }
}
// Saturated round(x / alpha) + beta; NaN becomes what the clamp makes of it, the least.
INLINE void quantise(struct line *l, const struct lib_post *p, bool wide, uint8_t *out) {
    __m512 low = _mm512_set1_ps(wide ? 0 : -128), high = _mm512_set1_ps(wide ? 255 : 127);
    __m512 inverse = _mm512_set1_ps(1 / p->alpha), zero = _mm512_set1_ps(p->beta);
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        __m512 x = _mm512_mul_ps(l->v[v], inverse);
        x = _mm512_add_ps(_mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT), zero);
        x = _mm512_min_ps(_mm512_max_ps(x, low), high);
        _mm_mask_storeu_epi8(out + v * LANES, l->in[v],
                             _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
    }
}
INLINE void activated(const struct thin8_state *t, const struct lib_post *p, struct line *l) {
    float line[PANEL] __attribute__((aligned(64)));
    for (int v = 0; v < VECTORS; v++)
        _mm512_store_ps(line + v * LANES, l->v[v]);
    t->activate(p->kind, p->alpha, p->beta, line, PANEL);
    for (int v = 0; v < VECTORS; v++)
        l->v[v] = _mm512_load_ps(line + v * LANES);
}
static TARGET void finish(const struct thin8_state *t, void **bufs, const int32_t *sums, int64_t at,
                          int64_t col, int64_t n) {
    struct line l;
    bool floats = false;
    char *out = (char *)bufs[t->out] + (at + col) * dtype_size(t->result);
    UNROLL
    for (int v = 0; v < VECTORS; v++) {
        int64_t left = n - v * LANES;
        l.in[v] = left >= LANES ? 0xffff : left > 0 ? (__mmask16)((1 << left) - 1) : 0;
        l.sum[v] = _mm512_loadu_si512(sums + v * LANES);
        l.v[v] = _mm512_setzero_ps();
    }
    for (int k = 0; k < t->n_post; k++) {
        const struct lib_post *p = &t->post[k];
        const char *with = t->leaf[k] < 0 ? NULL : bufs[t->leaf[k]];
        bool one = with && p->operand->shape->rank == 0;
        if (with && !one) with += (p->kind == LIB_POST_SUM ? at + col : col) * 4;
        switch (p->kind) {
        case LIB_POST_BIAS_S32:
            add_s32(&l, (const int32_t *)(const void *)with, one);
            break;
        case LIB_POST_TO_F32:
            UNROLL
            for (int v = 0; v < VECTORS; v++)
                l.v[v] = _mm512_cvtepi32_ps(l.sum[v]);
            floats = true;
            break;
        case LIB_POST_BIAS:
        case LIB_POST_SUM:
        case LIB_POST_CHANNEL_SCALE:
            each_f32(&l, (const float *)(const void *)with, one, p->kind == LIB_POST_CHANNEL_SCALE);
            break;
        case LIB_POST_QUANTISE:
            return quantise(&l, p, t->result == DT_U8, (uint8_t *)out);
        default:
            activated(t, p, &l);
        }
    }
    UNROLL
    for (int v = 0; v < VECTORS; v++)
        _mm512_mask_storeu_epi32(out + v * LANES * 4, l.in[v],
                                 floats ? _mm512_castps_si512(l.v[v]) : l.sum[v]);
}

// ---- running

static int64_t panels(const struct thin8_state *t) {
    return (t->cols + PANEL - 1) / PANEL;
}
static int64_t panel_bytes(const struct thin8_state *t) {
    return (t->k + GROUP - 1) / GROUP * GROUP * PANEL;
}
static int64_t pack_bytes(const struct thin8_state *t) {
    return panels(t) * (panel_bytes(t) + PANEL * (int64_t)sizeof(int32_t));
}
// Rows k.. k + n of 16 columns from `col` on, those of `in`: a row's bytes beside each other.
INLINE __m512i group_of(const struct thin8_state *t, const int8_t *from, int64_t k, int n,
                        int64_t col, __mmask16 in, bool gathers) {
    __m512i words = _mm512_setzero_si512();
    if (!t->by_column) {
        UNROLL
        for (int q = 0; q < n; q++) {
            __m128i row = _mm_maskz_loadu_epi8(in, from + (k + q) * t->cols + col);
            words = _mm512_or_si512(
                words, _mm512_sllv_epi32(_mm512_cvtepu8_epi32(row), _mm512_set1_epi32(8 * q)));
        }
        return words;
    }
    if (gathers) {
        const __m512i lane =
                          _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                      at = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int32_t)t->k));
        return _mm512_mask_i32gather_epi32(words, in, at, from + col * t->k + k, 1);
    }
    int32_t each[LANES] = {0};
    for (int c = 0; c < LANES; c++)
        if (in >> c & 1) each[c] = group_at((const uint8_t *)from + (col + c) * t->k + k, n);
    return _mm512_loadu_si512(each);
}
// Panel u of `from`, and the starts of its sums.
static TARGET void pack_panel(const struct thin8_state *t, const int8_t *from, int64_t u,
                              char *packed) {
    const __m512i ones = _mm512_set1_epi32(0x01010101);
    char *to = packed + u * panel_bytes(t);
    int32_t *start = (int32_t *)(void *)(packed + panels(t) * panel_bytes(t)) + u * PANEL;
    bool near = t->k <= INT32_MAX / LANES;
    __m512i sum[VECTORS];
    __mmask16 in[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        int64_t left = t->cols - u * PANEL - v * LANES;
        in[v] = left >= LANES ? 0xffff : left > 0 ? (__mmask16)((1 << left) - 1) : 0;
        sum[v] = _mm512_setzero_si512();
    }

    for (int64_t k = 0; k < t->k; k += GROUP, to += PANEL * GROUP) {
        int n = t->k - k < GROUP ? (int)(t->k - k) : GROUP;
        for (int v = 0; v < VECTORS; v++) {
            __m512i w = n == GROUP ? group_of(t, from, k, GROUP, u * PANEL + v * LANES, in[v], near)
                                   : group_of(t, from, k, n, u * PANEL + v * LANES, in[v], false);
            sum[v] = _mm512_dpbusd_epi32(sum[v], ones, w);
            _mm512_storeu_si512(to + v * LANES * GROUP, w);
        }
    }
    for (int v = 0; v < VECTORS; v++)
        _mm512_storeu_si512(start + v * LANES,
                            _mm512_mullo_epi32(sum[v], _mm512_set1_epi32(t->flip ? -128 : 0)));
}
static void pack(const struct thin8_state *t, const int8_t *from, char *to) {
    for (int64_t u = 0; u < panels(t); u++)
        pack_panel(t, from, u, to);
}

struct thin8_call {
    const struct thin8_state *t;
    void **bufs;
    char *w;             // packed
    const int8_t *plain; // to be packed first; NULL: it is
};
static void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct thin8_call *c = ctx;
    const struct thin8_state *t = c->t;
    const int32_t *start =
        (const int32_t *)(const void *)(c->w + panels(t) * panel_bytes(t)) + begin * PANEL;
    int32_t sums[GROUP * PANEL] __attribute__((aligned(64)));
    for (int64_t u = begin; u < end; u++, start += PANEL) {
        int64_t col = u * PANEL, n = t->cols - col < PANEL ? t->cols - col : PANEL;
        if (c->plain) pack_panel(t, c->plain, u, c->w);
        for (int64_t row = 0; row < t->rows; row += GROUP) {
            int rows = (int)(t->rows - row < GROUP ? t->rows - row : GROUP);
            product(t, (const uint8_t *)c->bufs[t->x] + row * t->k, c->w + u * panel_bytes(t),
                    start, sums, rows);
            for (int r = 0; r < rows; r++)
                finish(t, c->bufs, sums + r * PANEL, (row + r) * t->cols, col, n);
        }
    }
}
static status_t thin8_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct thin8_state *t = s->state;
    struct thin8_call c = {t, bufs, bufs[t->w], NULL};
    if (s->packed_in < 0) c.plain = bufs[t->w], c.w = x->scratch;
    cpu_parallel(part, &c, t->units, t->grain);
    return ST_OK;
}
static status_t thin8_open(struct cpu_exe *x, struct cpu_step *s) {
    struct thin8_state *t = arena_new_of(&x->arena, struct thin8_state);
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    struct thin8_dims f;
    if (!lib_match(i, &c) || !form_of(&c, &f))
        return st_internal("accepted a product that does not match");
    bool bound = cpu_is_bound(x, s, lib_operand(i, c.rhs));
    bool much = !bound && f.k * f.cols > PACKED_EACH_RUN;
    s->declined = much && !cpu_forced_impl() && cpu_int8_runs(&c);
    if (s->declined) return ST_OK;
    t->activate = cpu_thin_activate();
    t->x = lib_operand(i, c.lhs), t->w = lib_operand(i, c.rhs), t->out = s->plan->n_in;
    t->rows = f.rows, t->cols = f.cols, t->k = f.k, t->by_column = f.by_column;
    t->flip = c.hero->operands[0]->shape->dtype == DT_S8;
    t->result = c.result->dtype;
    t->n_post = c.n_post;
    lib_copy_posts(&c, t->post, t->leaf);
    t->units = panels(t);
    if (bound) {
        s->packed_in = t->w;
        s->pack_slot = x->n_packs++;
        s->apart = true; // no scratch
    } else if (pack_bytes(t) > x->scratch_bytes) {
        x->scratch_bytes = pack_bytes(t);
    }
    // Shares that pay for waking a thread; in a loop it is awake behind the first turn.
    int64_t least = x->in_loop ? 400000 : 1200000;
    t->grain = least / (t->k * PANEL * (t->rows > 4 ? t->rows / 2 : 2)) + 1;
    s->flops = 2 * t->rows * t->cols * t->k;
    s->alone = t->units < 2 * t->grain;
    s->detail = "thin:vnni";
    s->state = t;
    return ST_OK;
}
static int64_t thin8_pack_bytes(const struct cpu_step *s) {
    return pack_bytes(s->state);
}
static status_t thin8_pack(UNUSED struct cpu_exe *x, struct cpu_step *s, const void *plain_weights,
                           void *packed) {
    pack(s->state, plain_weights, packed);
    return ST_OK;
}
static bool thin8_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct thin8_state *s = a->state, *t = b->state;
    return s->k == t->k && s->cols == t->cols && s->by_column == t->by_column && s->flip == t->flip;
}
const struct cpu_impl cpu_impl_thin8 = {"thin", thin8_accepts, thin8_open, NULL, thin8_run,
                                        thin8_pack_bytes, thin8_pack, thin8_same_pack};
