// SPDX-License-Identifier: Apache-2.0
// depthwise: convolutions of f32 with one filter for each channel, over images in blocks of 16
// channels. Square windows of 3, 5 and 7 are summed by tiles of several rows of results
// (panels/cpu_taps.h) from the image where it lies, or a copy of what a tile reads where that
// reaches over it by more than half a window. Other windows that the library's own kernel (jit_dw)
// takes are the library's; dilated ones and those in three dimensions it does not take. There it
// has a kernel for groups, which multiplies each pixel's 16 channels with 16x16 weights of which
// the diagonal alone counts: 5 to 7 GF/s. Here a row of results is computed at a time: the rows of
// the image and of weights that meet it are found once, and tiles of results stay in registers.
// AVX-512. Does not: other layouts, steps behind products of integers. Those stay the library's.
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "devices/cpu/onednn/cpu_onednn.h"
#include "devices/cpu/panels/cpu_taps.h"
#include "devices/cpu/routines/cpu_thin.h"

enum { LANES = 16, TILE = 8, AXES = 3, ROWS = 256, PIXELS = 128 };
enum { GRAIN_FLOPS = 600000 }; // a share below about 20 us does not pay for waking a thread

#define VECTOR __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define UNROLL _Pragma("GCC unroll 8")

struct axis { // of the image, outermost first; those that are not there have one element
    int64_t in, out, taps, stride, dilation, low;
};
struct depthwise_state {
    struct axis axis[AXES];
    int64_t channels, blocks, rows, taps, grain;
    int x, w, out; // leaves
    bool bound;    // the kernel is packed at PREPARE; else at each run
    struct lib_post post[LIB_MAX_POST];
    int leaf[LIB_MAX_POST]; // of the operand, -1 = none
    int n_post;
    thin_activate_fn activate;
    // of square windows
    struct taps by;             // which
    bool tiled;                 // by tiles
    bool in_registers, bounded; // a bias and bounds alone
    bool adds;                  // a sum's operand may lie where results go
    float low, high;
};
// What one row of results of one block of channels reads.
struct meeting {
    const float *x[ROWS], *w[ROWS];
    int n;
    const struct axis *across;
    __m512 first; // where the sums start
};

// ---- which ones

static bool in_blocks(const struct shape *s) {
    int block;
    return lib_form_of(s->layout, s->rank, &block) == FORM_BLOCKED && block == LANES;
}
static bool posts_ok(const struct lib_call *c) {
    for (int k = 0; k < c->n_post; k++) {
        const struct lib_post *p = &c->post[k];
        if (p->kind > LIB_POST_SWISH || (p->kind == LIB_POST_BIAS && k > 0)) return false;
    }
    return true;
}
static bool square(const struct hlo_instr *h, struct taps *t) {
    const struct window *w = &HLO_ATTR(h, conv)->window;
    const struct window_dim *v = w->v;
    return w->n == 2 && v[0].size == v[1].size && v[0].stride == v[1].stride &&
           v[0].window_dilation == 1 && v[1].window_dilation == 1 &&
           cpu_taps_of(v[0].size, v[0].stride, h->shape->dims[3], t) &&
           cpu_taps_better(h, t->across);
}
// Is it one, wherever its values lie?
static bool one_a_channel(const struct lib_call *c) {
    if (c->hero->op != HLO_CONVOLUTION || c->hero->operands[0]->shape->dtype != DT_F32 ||
        c->result->dtype != DT_F32 || !onednn_conv_ok(c->hero))
        return false;
    const struct hlo_attr_conv *a = HLO_ATTR(c->hero, conv);
    const struct shape *x = c->hero->operands[0]->shape, *w = c->hero->operands[1]->shape;
    int64_t rows = 1;
    struct taps by;
    bool special = a->window.n == AXES || square(c->hero, &by);
    for (int d = 0; d < a->window.n; d++) {
        special |= a->window.v[d].window_dilation > 1;
        if (d < a->window.n - 1) rows *= w->dims[d + 2] <= ROWS ? w->dims[d + 2] : ROWS + 1;
        if (rows > ROWS) return false;
    }
    return a->window.n > 1 && special && a->feature_group_count > 1 &&
           a->feature_group_count == x->dims[1] && w->dims[0] == x->dims[1] && w->dims[1] == 1 &&
           shape_elements(c->result) > 0 && shape_elements(x) > 0 && shape_elements(w) > 0 &&
           posts_ok(c);
}
static bool in_place(const struct lib_call *c) {
    for (int k = 0; k < c->n_post; k++)
        if (c->post[k].kind == LIB_POST_SUM && !in_blocks(c->post[k].operand->shape)) return false;
    return layout_is_default(c->rhs->shape->layout, c->rhs->shape->rank) &&
           in_blocks(c->lhs->shape) && in_blocks(c->result);
}
bool cpu_depthwise_takes(const struct target *t, const struct lib_call *c) {
    return t->vector_bits == 512 && t->conv_block == LANES && one_a_channel(c);
}
bool cpu_depthwise_accepts(const struct hlo_instr *i) {
    struct lib_call c;
    return !shape_is_tuple(i->shape) && lib_match(i, &c) && cpu_depthwise_takes(cpu_target(), &c) &&
           in_place(&c);
}
static bool depthwise_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                              const char **why) {
    *why = "not a convolution of each channel alone by a square, dilated or deep window";
    return cpu_depthwise_accepts(i);
}

// ---- the kernel: [channels, 1, taps] -> [blocks, taps, 16]

static int64_t depthwise_pack_bytes(const struct cpu_step *s) {
    const struct depthwise_state *t = s->state;
    return t->blocks * t->taps * LANES * (int64_t)sizeof(float);
}
static status_t depthwise_pack(UNUSED struct cpu_exe *x, struct cpu_step *s, const void *plain,
                               void *packed) {
    const struct depthwise_state *t = s->state;
    const char *from = plain; // lies as it may
    float *to = packed;
    memset(to, 0, (size_t)depthwise_pack_bytes(s));
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t tap = 0; tap < t->taps; tap++, from += sizeof *to)
            memcpy(&to[(c / LANES * t->taps + tap) * LANES + c % LANES], from, sizeof *to);
    return ST_OK;
}

// ---- running

// Results [at, at + TILE) whose windows lie within the row.
static VECTOR void tile(const struct meeting *m, int64_t at, float *line) {
    const struct axis *a = m->across;
    __m512 sum[TILE];
    UNROLL for (int t = 0; t < TILE; t++) sum[t] = m->first;
    for (int r = 0; r < m->n; r++) {
        const float *x = m->x[r] + (at * a->stride - a->low) * LANES, *w = m->w[r];
        for (int64_t tap = 0; tap < a->taps; tap++) {
            __m512 weight = _mm512_loadu_ps(w + tap * LANES);
            const float *from = x + tap * a->dilation * LANES;
            UNROLL for (int t = 0; t < TILE; t++) sum[t] =
                _mm512_fmadd_ps(_mm512_loadu_ps(from + t * a->stride * LANES), weight, sum[t]);
        }
    }
    UNROLL for (int t = 0; t < TILE; t++) _mm512_storeu_ps(line + t * LANES, sum[t]);
}
// One result whose window may reach over the row. Several rows at once: their sums are apart.
static VECTOR void single(const struct meeting *m, int64_t at, float *line) {
    enum { APART = 4 };
    const struct axis *a = m->across;
    int64_t begin = at * a->stride - a->low, first = 0, last = a->taps;
    if (begin < 0) first = (-begin + a->dilation - 1) / a->dilation;
    if (begin + (last - 1) * a->dilation >= a->in)
        last = begin < a->in ? (a->in - 1 - begin) / a->dilation + 1 : 0;
    __m512 sum[APART] = {m->first, _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    int r = 0;
    for (; r + APART <= m->n; r += APART)
        for (int64_t tap = first; tap < last; tap++) {
            int64_t x = (begin + tap * a->dilation) * LANES, w = tap * LANES;
            UNROLL for (int k = 0; k < APART; k++) sum[k] = _mm512_fmadd_ps(
                _mm512_loadu_ps(m->x[r + k] + x), _mm512_loadu_ps(m->w[r + k] + w), sum[k]);
        }
    for (; r < m->n; r++)
        for (int64_t tap = first; tap < last; tap++)
            sum[0] = _mm512_fmadd_ps(_mm512_loadu_ps(m->x[r] + (begin + tap * a->dilation) * LANES),
                                     _mm512_loadu_ps(m->w[r] + tap * LANES), sum[0]);
    _mm512_storeu_ps(line,
                     _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
}
// Results [at, end) of the row.
static void sums(const struct meeting *m, int64_t at, int64_t end, float *line) {
    const struct axis *a = m->across;
    int64_t within = (a->low + a->stride - 1) / a->stride; // [within, beyond) reach over no end
    int64_t room = a->in - 1 + a->low - (a->taps - 1) * a->dilation;
    int64_t beyond = room < 0 ? 0 : room / a->stride + 1, o = at;
    if (beyond > end) beyond = end;
    for (; o < end && o < within; o++)
        single(m, o, line + (o - at) * LANES);
    for (; o + TILE <= beyond; o += TILE)
        tile(m, o, line + (o - at) * LANES);
    if (o < beyond && beyond - TILE >= at && beyond - TILE >= within) { // some of them once more
        tile(m, beyond - TILE, line + (beyond - TILE - at) * LANES);
        o = beyond;
    }
    for (; o < end; o++)
        single(m, o, line + (o - at) * LANES);
}
static void meet(const struct depthwise_state *t, const float *image, const float *weights,
                 const int64_t *at, struct meeting *m) {
    const struct axis *deep = &t->axis[0], *high = &t->axis[1], *across = &t->axis[2];
    m->n = 0;
    m->across = across;
    for (int64_t d = 0; d < deep->taps; d++) {
        int64_t z = at[0] * deep->stride - deep->low + d * deep->dilation;
        if (z < 0 || z >= deep->in) continue;
        for (int64_t h = 0; h < high->taps; h++) {
            int64_t y = at[1] * high->stride - high->low + h * high->dilation;
            if (y < 0 || y >= high->in) continue;
            m->x[m->n] = image + (z * high->in + y) * across->in * LANES;
            m->w[m->n++] = weights + (d * high->taps + h) * across->taps * LANES;
        }
    }
}
// The steps behind the sums, on n results of a row that begin at element `at` of the result.
static VECTOR void steps(const struct depthwise_state *t, void **bufs, int64_t at, __mmask16 lanes,
                         float *line, int64_t n) {
    float *out = (float *)bufs[t->out] + at;
    for (int k = 0; k < t->n_post; k++) {
        const struct lib_post *p = &t->post[k];
        if (p->kind == LIB_POST_BIAS) continue; // where the sums started
        if (p->kind != LIB_POST_SUM) {
            t->activate(p->kind, p->alpha, p->beta, line, n * LANES);
            continue;
        }
        const float *other = (const float *)bufs[t->leaf[k]] + at;
        for (int64_t o = 0; o < n * LANES; o++)
            line[o] += other[o];
    }
    for (int64_t o = 0; o < n && (line != out || lanes != 0xffff); o++)
        _mm512_storeu_ps(out + o * LANES, // channels that fill up a block stay zero
                         _mm512_maskz_mov_ps(lanes, _mm512_loadu_ps(line + o * LANES)));
}
struct depthwise_call {
    const struct depthwise_state *t;
    const float *w;
    void **bufs;
};
// A block of one image, and where its sums start.
struct block {
    const float *x, *w;
    float first[LANES];
    __mmask16 lanes; // that hold channels
    int64_t number;  // of all images' blocks
};
static VECTOR void read_block(const struct depthwise_call *c, int64_t number, struct block *b) {
    const struct depthwise_state *t = c->t;
    const struct axis *a = t->axis;
    int64_t block = number % t->blocks, left = t->channels - block * LANES;
    b->number = number;
    b->lanes = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
    b->x = (const float *)c->bufs[t->x] + number * a[0].in * a[1].in * a[2].in * LANES;
    b->w = c->w + block * t->taps * LANES;
    __m512 first = _mm512_setzero_ps();
    if (t->n_post && t->post[0].kind == LIB_POST_BIAS)
        first = _mm512_maskz_loadu_ps(b->lanes, (const float *)c->bufs[t->leaf[0]] + block * LANES);
    _mm512_storeu_ps(b->first, first);
}
static VECTOR void part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct depthwise_call *c = ctx;
    const struct depthwise_state *t = c->t;
    const struct axis *a = t->axis;
    float line[PIXELS * LANES] __attribute__((aligned(64)));
    struct meeting m;
    for (int64_t u = begin; u < end; u++) {
        int64_t at[] = {u / a[1].out % a[0].out, u % a[1].out};
        struct block b;
        read_block(c, u / a[1].out / a[0].out, &b);
        meet(t, b.x, b.w, at, &m);
        m.first = _mm512_loadu_ps(b.first);
        for (int64_t o = 0; o < a[2].out; o += PIXELS) {
            int64_t n = a[2].out - o < PIXELS ? a[2].out - o : PIXELS;
            sums(&m, o, o + n, line);
            steps(t, c->bufs, (u * a[2].out + o) * LANES, b.lanes, line, n);
        }
    }
}

// ---- running, square windows

// Pixels [from, from + n) of a row of the image, zero outside of it.
static VECTOR void copy_row(const float *row, int64_t width, int64_t from, int64_t n, float *to) {
    int64_t first = from < 0 ? -from : 0, last = width - from, k = 0;
    if (first > n) first = n;
    if (last > n) last = n;
    for (; k < first; k++)
        _mm512_storeu_ps(to + k * LANES, _mm512_setzero_ps());
    for (row += from * LANES; k < last; k++)
        _mm512_storeu_ps(to + k * LANES, _mm512_loadu_ps(row + k * LANES));
    for (; k < n; k++)
        _mm512_storeu_ps(to + k * LANES, _mm512_setzero_ps());
}
static int64_t reach(const struct axis *a, int64_t results) { // what they read of the image
    return (results - 1) * a->stride + a->taps;
}
// A tile's pixels of each row, from `from` on: false where it reaches over the row by more than
// half a window.
static bool reaches(const struct depthwise_state *t, int64_t from, struct taps_tile *tile) {
    const struct axis *across = &t->axis[2];
    int64_t half = across->taps / 2, over = from + reach(across, t->by.across) - across->in;
    for (int k = 0; k < half; k++) {
        tile->left[k] = from + k >= 0 ? 0xffff : 0;
        tile->right[k] = over - k <= 0 ? 0xffff : 0;
    }
    return from >= -half && over <= half;
}
// The same from copies.
static VECTOR void read_over(const struct depthwise_state *t, const float *const *row, int64_t rows,
                             int64_t from, float *copies, struct taps_tile *tile) {
    int64_t wide = reach(&t->axis[2], t->by.across);
    memset(tile->left, 0xff, sizeof tile->left);
    memset(tile->right, 0xff, sizeof tile->right);
    tile->at = 0;
    for (int64_t k = 0; k < rows; k++, copies += wide * LANES) {
        tile->row[k] = copies;
        if (row[k]) copy_row(row[k], t->axis[2].in, from, wide, copies);
        if (!row[k]) memset(copies, 0, (size_t)wide * LANES * sizeof *copies);
    }
}
// Rows of the image that `rows` rows of results from y on read; NULL: one beside it.
static bool rows_of(const struct depthwise_state *t, const struct block *b, int rows, int64_t y,
                    const float **row) {
    const struct axis *high = &t->axis[1];
    bool all = true;
    for (int k = 0; k < reach(high, rows); k++) {
        int64_t at = y * high->stride - high->low + k;
        bool there = at >= 0 && at < high->in;
        row[k] = there ? b->x + at * t->axis[2].in * LANES : NULL;
        all &= there;
    }
    return all;
}
// `rows` rows of results from y on.
static VECTOR void tiles_of_rows(const struct depthwise_call *c, const struct block *b, int rows,
                                 int64_t y) {
    static const float zeros[TAPS_READ_ACROSS * LANES];
    const struct depthwise_state *t = c->t;
    const struct axis *across = &t->axis[2];
    float line[TAPS_ROWS * TAPS_ACROSS * LANES] __attribute__((aligned(64))),
        copies[TAPS_READ * TAPS_READ_ACROSS * LANES] __attribute__((aligned(64)));
    const float *row[TAPS_READ];
    int64_t read = reach(&t->axis[1], rows), at = (b->number * t->axis[1].out + y) * across->out;
    bool all = rows_of(t, b, rows, y, row);
    struct taps_tile tile = {
        .w = b->w, .first = b->first, .bounded = t->bounded, .low = t->low, .high = t->high};

    for (int64_t next = 0; next < across->out; next += t->by.across) {
        int64_t x = next, n = across->out - x;
        if (n < t->by.across && across->out >= t->by.across && !t->adds) // some once more
            x = across->out - t->by.across;
        int64_t from = x * across->stride - across->low;
        bool whole = across->out - x >= t->by.across, straight = whole && !t->adds;
        if (!reaches(t, from, &tile)) {
            read_over(t, row, read, from, copies, &tile);
        } else {
            tile.at = all ? from * LANES : 0;
            for (int64_t k = 0; k < read; k++)
                tile.row[k] = all ? row[k] : row[k] ? row[k] + from * LANES : zeros;
        }
        tile.out = straight ? (float *)c->bufs[t->out] + (at + x) * LANES : line;
        tile.out_row = (straight ? across->out : t->by.across) * LANES;
        t->by.tile[rows](&tile);
        for (int r = 0; r < rows && !(straight && t->in_registers); r++)
            steps(t, c->bufs, (at + x + r * across->out) * LANES, b->lanes,
                  tile.out + r * tile.out_row, whole ? t->by.across : n);
    }
}
// Units are some rows of results of a block.
static VECTOR void tiles_part(void *ctx, int64_t begin, int64_t end, UNUSED int thread) {
    const struct depthwise_call *c = ctx;
    const struct depthwise_state *t = c->t;
    int64_t high = t->axis[1].out, groups = (high + t->by.rows - 1) / t->by.rows;
    struct block b = {.number = -1};
    for (int64_t u = begin; u < end; u++) {
        if (u / groups != b.number) read_block(c, u / groups, &b);
        int64_t y = u % groups * t->by.rows;
        tiles_of_rows(c, &b, high - y < t->by.rows ? (int)(high - y) : t->by.rows, y);
    }
}
static status_t depthwise_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct depthwise_state *t = s->state;
    const float *w = t->bound ? bufs[t->w] : x->scratch;
    struct depthwise_call c = {t, w, bufs};
    if (!t->bound) RETURN_IF_ERR(depthwise_pack(x, s, bufs[t->w], x->scratch));
    cpu_parallel(t->tiled ? tiles_part : part, &c, t->rows, t->grain);
    return ST_OK;
}

// ---- opening

static void read_axes(const struct lib_call *c, struct depthwise_state *t) {
    const struct window *w = &HLO_ATTR(c->hero, conv)->window;
    t->taps = 1;
    for (int k = 0; k < AXES; k++) {
        int d = k - (AXES - w->n);
        const struct window_dim *v = d < 0 ? NULL : &w->v[d];
        t->axis[k] = v ? (struct axis){.in = c->lhs->shape->dims[d + 2],
                                       .out = c->result->dims[d + 2],
                                       .taps = v->size,
                                       .stride = v->stride,
                                       .dilation = v->window_dilation,
                                       .low = v->pad_low}
                       : (struct axis){1, 1, 1, 1, 1, 0};
        t->taps *= t->axis[k].taps;
    }
}
static void plan_tiles(const struct hlo_instr *h, struct depthwise_state *t) {
    int64_t row = t->axis[2].out * LANES * (2 * t->taps + 4 * t->n_post);
    int k = t->n_post && t->post[0].kind == LIB_POST_BIAS;
    t->grain = GRAIN_FLOPS / row + 1;
    t->tiled = square(h, &t->by);
    if (!t->tiled) return;
    int64_t groups = (t->axis[1].out + t->by.rows - 1) / t->by.rows;
    t->rows = t->rows / t->axis[1].out * groups;
    t->grain = GRAIN_FLOPS / (row * t->by.rows) + 1;

    if (k < t->n_post && (t->post[k].kind == LIB_POST_RELU || t->post[k].kind == LIB_POST_CLIP)) {
        bool relu = t->post[k].kind == LIB_POST_RELU;
        t->low = relu ? 0 : t->post[k].alpha;
        t->high = relu ? INFINITY : t->post[k].beta;
        t->bounded = t->low <= 0 && t->high >= 0; // channels that fill up a block stay zero
        k += t->bounded;
    }
    t->in_registers = k == t->n_post;
    for (; k < t->n_post; k++)
        t->adds |= t->post[k].kind == LIB_POST_SUM;
    t->bounded = t->bounded && t->in_registers;
}
static status_t depthwise_open(struct cpu_exe *x, struct cpu_step *s) {
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call c;
    if (!lib_match(i, &c)) return st_internal("accepted a convolution that does not match");
    struct depthwise_state *t = arena_new_of(&x->arena, struct depthwise_state);
    read_axes(&c, t);
    t->x = lib_operand(i, c.lhs), t->w = lib_operand(i, c.rhs), t->out = s->plan->n_in;
    t->channels = i->shape->dims[1];
    t->blocks = (t->channels + LANES - 1) / LANES;
    t->rows = i->shape->dims[0] * t->blocks * t->axis[0].out * t->axis[1].out;
    t->activate = cpu_thin_activate();
    t->n_post = c.n_post;
    lib_copy_posts(&c, t->post, t->leaf);
    s->flops = 2 * t->rows * t->axis[2].out * LANES * t->taps;
    plan_tiles(c.hero, t);
    s->alone = t->rows < 2 * t->grain;
    s->detail = "depthwise:avx512";
    s->state = t;
    s->apart = t->bound = cpu_is_bound(x, s, t->w);
    if (t->bound) {
        s->packed_in = t->w;
        s->pack_slot = x->n_packs++;
    } else if (depthwise_pack_bytes(s) > x->scratch_bytes) {
        x->scratch_bytes = depthwise_pack_bytes(s);
    }
    return ST_OK;
}
static bool depthwise_same_pack(const struct cpu_step *a, const struct cpu_step *b) {
    const struct depthwise_state *s = a->state, *t = b->state;
    return s->channels == t->channels && s->taps == t->taps;
}
const struct cpu_impl cpu_impl_depthwise = {
    "depthwise",   depthwise_accepts,    depthwise_open, NULL,
    depthwise_run, depthwise_pack_bytes, depthwise_pack, depthwise_same_pack};
