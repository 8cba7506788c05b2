// SPDX-License-Identifier: Apache-2.0
// Contractions as tiles. A unit of work is a block of positions by a chunk of rows of one group of
// one batch: it gathers its slab, and then, for each tile of rows, all sums of the block in
// registers a tile at a time, into scratch, from where the rest of the fusion reads them. The loop
// over terms is the inner one; the sums stay in vectors over it. Which tile and which block: by the
// shape and a row of the table (BLIS's register blocking; slabs as in Anderson et al. 2017, "Low-
// memory GEMM-based convolution algorithms").
#include "compiler/kernel/lower_tile.h"

#include <math.h>

#include "base/span.h"
#include "compiler/kernel/lower_priv.h"

enum { MAX_SUMS = 28, MAX_SHAPES = 4, MAX_LANES = 4, TEXT_LANES = 16, PLACES = 12 };

// Register tiles by the size of vectors: sums, a vector of positions and a scalar fit the
// registers. `cache`: bytes of a slab that stay near; `near`: of what is read again and again by
// the tiles of a block of terms, 0: terms are not cut into blocks. `over` and `more`: how many
// times as long sums take whose slab does not stay near, and more for each `cache` of bytes
// (AVX-512: Zen 5, f32 and f64 of 3000 to 8192 terms, slabs of up to 16 times as much). `unrolled`:
// terms that are written out at most; 1: none, and the longest dimension of terms is the innermost
// loop. `units`: for how many threads. What runs WebAssembly (V8 12) orders operations by the sums
// that they end in, so that all operands of terms that are written out want a register at once, and
// more than eight sums are moved between registers in each turn. Of GPUs see "tiles in registers
// alone".
static const struct tile_class {
    enum tile_schedule of;
    int bits;
    int64_t cache, near;
    double over, more;
    int unrolled, units;
    struct {
        int vectors, rows;
    } shape[MAX_SHAPES];
} classes[] = {
    {TILES_OF_CPU, 512, 512 << 10, 0, 1.02, .015, 12, 8, {{4, 6}, {3, 8}, {2, 12}, {1, 24}}},
    {TILES_OF_CPU, 256, 256 << 10, 0, 1.2, .1, 12, 8, {{2, 6}, {3, 4}, {1, 12}}},
    {TILES_OF_CPU, 128, 256 << 10, 0, 1.2, .1, 12, 8, {{2, 6}, {3, 4}, {1, 12}}},
    {TILES_OF_WASM, 128, 1024 << 10, 24 << 10, 1.2, .1, 1, 1, {{2, 4}, {4, 2}, {1, 4}}},
    {TILES_OF_GPU, 0, 0, 0, 0, 0, 1, 8192, {{4, 8}, {4, 4}, {4, 2}, {2, 2}}},
    {TILES_OF_GPU_ALWAYS, 0, 0, 0, 0, 0, 1, 1, {{4, 8}, {4, 4}, {4, 2}, {2, 2}}},
    {TILES_OF_DRAWS, 0, 0, 0, 0, 0, 1, 8192, {{4, 4}, {4, 2}, {2, 2}}},
    {TILES_OF_DRAWS_ALWAYS, 0, 0, 0, 0, 0, 1, 1, {{4, 4}, {4, 2}, {2, 2}}}};
static const struct tile_class *class_of(const struct lower *lw) {
    const struct target *t = lw->target;
    enum tile_schedule of = lw->policy->tiles;
    int bits = t && t->vector_bits ? t->vector_bits : 256;
    const struct tile_class *c = &classes[0];
    while (c->of != of || (c->bits > bits && c->bits > 128))
        c++;
    return c;
}

static bool is_gpu(const struct tile_class *c) {
    return c->of >= TILES_OF_GPU;
}
static bool is_drawn(const struct tile_class *c) {
    return c->of >= TILES_OF_DRAWS;
}

static int64_t width(const struct lower_tile *t) {
    return (int64_t)t->vectors * t->lanes;
}
static int64_t positions(const struct lower_tile *t) {
    int64_t last = 0;
    for (int d = 0; d < t->n_pos; d++)
        last += ((d ? t->pos[d] : t->block) - 1) * t->pitch[d];
    return last + 1;
}
static int64_t terms(const struct lower_tile *t) {
    int64_t n = 1;
    for (int d = 0; d < t->n_k; d++)
        n *= t->k[d];
    return n;
}

// Are sums made a block of terms at a time?
static bool is_cut(const struct lower_tile *t) {
    return t->k_block < t->k[t->order[t->n_k - 1]];
}
// May zeros of the slab spoil sums?
static bool is_padded(const struct lower_tile *t) {
    return t->rule->padded && t->rule->padded(t);
}
static int64_t all_tiles(const struct lower_tile *t) {
    return t->rows / t->per * ceil_div(t->per, t->height);
}

// ---- the schedule

// In which order loops run over terms, and which of them are written out.
static void order_terms(struct lower_tile *t, const struct tile_class *c) {
    int64_t written = 1;
    t->unrolled = 0;
    for (int d = 0; d < t->n_k; d++)
        t->order[d] = d;
    if (is_gpu(c) && t->rule->inside) { // features, whose places are hoisted so
        for (int d = 0; d < t->n_k; d++)
            t->order[d] = (d + 1) % t->n_k;
        return;
    }
    if (c->unrolled == 1) {
        int longest = 0;
        for (int d = 1; d < t->n_k; d++)
            if (t->k[d] > t->k[longest]) longest = d;
        for (int d = longest; d < t->n_k - 1; d++)
            t->order[d] = d + 1;
        t->order[t->n_k - 1] = longest;
        return;
    }
    while (t->unrolled < t->n_k - 1 && written * t->k[t->n_k - 1 - t->unrolled] <= c->unrolled)
        written *= t->k[t->n_k - 1 - t->unrolled++];
}
// How many of the innermost loop's terms a block has, with all others of theirs.
static void block_terms(struct lower_tile *t, const struct tile_class *c) {
    int64_t all = t->k[t->order[t->n_k - 1]],
            each = (t->slab + t->height * terms(t)) / all * dtype_size(kir_type(t->type));
    t->k_block = all;
    if (!c->near || t->rule->begin || each * all <= c->near) return;
    int64_t blocks = ceil_div(each * all, c->near);
    if (blocks > all / 4) blocks = all / 4 ? all / 4 : 1; // a loop of few terms is mostly its begin
    t->k_block = ceil_div(all, blocks);
}
// What it costs to cut them: the sums of all rows come from scratch and go there for each block.
static double cost_of_cuts(const struct lower_tile *t, const struct tile_class *c, double vectors) {
    int64_t all = t->k[t->order[t->n_k - 1]], bytes = (int64_t)vectors * c->bits / 8;
    return is_cut(t) ? (double)ceil_div(all, t->k_block) * vectors * (bytes <= c->near ? 3 : 6) : 0;
}

static bool is_crowded(const struct lower_tile *t) {
    return t->least_crowded && t->height >= t->least_crowded;
}
// Cycles of all, about.
static double cost_of(struct lower_tile *t, const struct tile_class *c) {
    enum { CROWDED = 2 };
    t->rule->lay_out(t);
    int64_t q = ceil_div(positions(t), width(t)), tiles = all_tiles(t),
            blocks = ceil_div(t->pos[0], t->block);
    int sums = t->vectors * t->height, loads = t->vectors + t->height;
    double step = sums > 8 ? sums : 8;
    if (step < loads) step = loads;
    double each = (double)terms(t) * step + 3 * sums + 20;
    block_terms(t, c);
    if (is_crowded(t)) each *= CROWDED;
    double all = (double)blocks * ((double)(q * tiles) * each + t->gather * (double)t->slab +
                                   t->gather_line * (double)terms(t) +
                                   (double)tiles * t->gather_beside * (double)t->beside +
                                   cost_of_cuts(t, c, (double)(q * tiles * sums)));
    int64_t held = t->slab + t->beside + q * width(t) * t->height;
    double full = (double)(held * dtype_size(kir_type(t->type))) / (double)c->cache;
    return full > 1 && t->gather_line <= 0 ? all * (c->over + c->more * full) : all;
}
// The next larger block; more than all: there is none.
static int64_t next_block(const struct lower_tile *t, int64_t block) {
    int64_t all = t->pos[0];
    if (t->n_pos == 1) return block < all && block * 2 >= all ? all : block * 2;
    for (int64_t parts = ceil_div(all, block) - 1; parts > 0; parts--)
        if (ceil_div(all, parts) > block) return ceil_div(all, parts);
    return all + 1;
}
// Tiles a unit: enough units for the threads of any machine that counts, but slabs are gathered
// again for each, which may take an eighth of their time; two units in any case.
static int64_t chunk_of(const struct lower_tile *t, const struct tile_class *c) {
    int64_t tiles = all_tiles(t), units = t->batch * t->groups * ceil_div(t->pos[0], t->block),
            few = ceil_div(tiles, ceil_div(c->units, units)), half = ceil_div(tiles, 2);
    double tile =
               (double)terms(t) * t->vectors * t->height * (double)ceil_div(positions(t), width(t)),
           least = 8 * t->gather * (double)t->slab / tile;
    if (units >= 2 || c->units == 1) half = tiles;
    return (double)few >= least ? few : least < (double)half ? (int64_t)least + 1 : half;
}
// The next height that may be best: of four below the largest, and the largest that is not crowded.
static int lower_height(const struct lower_tile *t, int most) {
    return t->height > most - 4 ? t->height - 1 : is_crowded(t) ? t->least_crowded - 1 : 0;
}
static double schedule(const struct lower *lw, struct lower_tile *t) {
    const struct tile_class *c = class_of(lw);
    int bits = dtype_bits(kir_type(t->type));
    struct lower_tile best;
    double least = 0;
    order_terms(t, c);
    best = *t;
    for (int n = 0; n < MAX_SHAPES && c->shape[n].rows; n++) {
        int most = t->per < c->shape[n].rows ? (int)t->per : c->shape[n].rows;
        t->vectors = c->shape[n].vectors;
        t->lanes = c->bits / bits;
        if (lw->policy->elements && t->lanes > TEXT_LANES) t->lanes = TEXT_LANES; // of OpenCL C
        for (t->height = most; t->height > 0; t->height = lower_height(t, most))
            for (t->block = t->n_pos > 1           ? 1
                            : width(t) < t->pos[0] ? width(t)
                                                   : t->pos[0];
                 t->block <= t->pos[0]; t->block = next_block(t, t->block)) {
                double cost = cost_of(t, c);
                if (least == 0 || cost < least) best = *t, least = cost;
            }
    }
    *t = best;
    t->rule->lay_out(t);

    t->chunk = chunk_of(t, c);
    block_terms(t, c);
    return least * (double)(t->batch * t->groups);
}

// ---- the tile

static struct kir_val *in_scratch(struct lower *lw, int64_t at, struct kir_val *i) {
    return kir_idx_add(&lw->k, i, kir_i64(&lw->k, at));
}
void lower_tile_put(struct lower *lw, const struct lower_tile *t, struct kir_val *at,
                    enum dtype from, struct kir_val *v) {
    v = kmath_convert(lw, t->type, from, v);
    kir_store(&lw->k, KIR_SCRATCH, kir_type(t->type), in_scratch(lw, t->slab_at, at), v);
}
static int64_t all_positions(const struct lower_tile *t) {
    int64_t n = 1;
    for (int d = 0; d < t->n_pos; d++)
        n *= t->pos[d];
    return n;
}
#define FEW_UNITS(t)                                                                               \
    {(t)->batch, (t)->groups, (t)->turns[(t)->rows_minor], (t)->turns[!(t)->rows_minor]}
// Of sums that were drawn before, any.
static status_t drawn_sum(struct lower *lw, struct kir_val *const *index, struct kir_val **out) {
    struct lower_tile *t = lw->tile;
    const struct shape *s = t->i->shape;
    struct kir *k = &lw->k;
    struct kir_val *in[HLO_MAX_RANK + 1], *row, *pos[TILE_DIMS], *unit[4];
    int64_t extent[4] = FEW_UNITS(t);
    for (int d = 0; d < s->rank; d++)
        in[d] = kir_idx_divmod(k, index[d], 1, s->dims[d]);
    t->rule->find(lw, t, in, &row, pos);
    struct kir_val *q = lower_flatten(lw, pos, t->pos, t->n_pos);

    unit[0] = t->b;
    unit[1] = t->g;
    unit[2 + t->rows_minor] = kir_idx_divmod(k, row, 1, t->turns[0]);
    unit[2 + !t->rows_minor] = kir_idx_divmod(k, q, 1, t->turns[1]);
    struct kir_val *at = kir_idx_mul(k, kir_idx_divmod(k, row, t->turns[0], 0), t->lanes);
    at = kir_idx_add(k, at, kir_idx_divmod(k, q, t->turns[1], 0));
    at = kir_idx_add(k, at, kir_idx_mul(k, lower_flatten(lw, unit, extent, 4), KIR_SUMS_OF_UNIT));
    *out = kir_load(k, KIR_SUMS, kir_type(t->type), at, 0);
    *out = kmath_wrap(lw, t->type, *out);
    return ST_OK;
}
status_t lower_tile_get(struct lower *lw, struct kir_val *const *index, struct kir_val **out) {
    const struct lower_tile *t = lw->tile;
    if (lw->sums) return drawn_sum(lw, index, out);
    for (int d = 0; d < t->i->shape->rank; d++)
        if (index[d] != t->index[d]) return lower_no(lw, "a contraction read elsewhere");
    *out = kir_load(&lw->k, t->few ? KIR_OWN : KIR_SCRATCH, kir_type(t->type), t->at, KF_PINNED);
    *out = kmath_wrap(lw, t->type, *out);
    return ST_OK;
}

struct registers {
    struct kir_val *row, *q, *k[TILE_DIMS];
    struct kir_val *sum[MAX_SUMS];
};
static status_t one_term(struct lower *lw, const struct lower_tile *t, struct registers *r) {
    struct kir *k = &lw->k;
    enum dtype e = kir_type(t->type);
    uint8_t flags = dtype_is_float(e) ? KF_CONTRACT : 0;
    enum kop times = t->pairs ? K_PAIRS : K_MUL;
    struct kir_val *at = kir_idx_add(k, t->rule->place(lw, t, r->k), r->q), *v[MAX_SUMS];
    at = in_scratch(lw, t->slab_at, at);
    for (int n = 0; n < t->vectors; n++)
        v[n] = kir_load_lanes(k, KIR_SCRATCH, e, kir_idx_add(k, at, kir_i64(k, n * t->lanes)),
                              t->lanes);
    for (int h = 0; h < t->height; h++) {
        struct kir_val *s, *row = kir_idx_add(k, r->row, kir_i64(k, h));
        RETURN_IF_ERR(t->rule->scalar(lw, t, row, r->k, &s));
        s = kir_splat(k, s, t->lanes);
        for (int n = 0; n < t->vectors; n++) {
            struct kir_val **sum = &r->sum[h * t->vectors + n];
            *sum = kir_flag(k, K_ADD, *sum, kir_flag(k, times, v[n], s, flags), flags);
        }
    }
    return ST_OK;
}
static status_t all_terms(struct lower *lw, const struct lower_tile *t, struct registers *r,
                          int d) {
    struct kir *k = &lw->k;
    if (d == t->n_k) return one_term(lw, t, r);
    int at = t->order[d];
    if (t->k[at] == 1 || d >= t->n_k - t->unrolled) {
        for (int64_t n = 0; n < t->k[at]; n++) {
            r->k[at] = kir_i64(k, n);
            RETURN_IF_ERR(all_terms(lw, t, r, d + 1));
        }
        return ST_OK;
    }
    int n = t->height * t->vectors;
    bool cut = d == t->n_k - 1 && t->k_from;
    struct kir_val *from = cut ? t->k_from : kir_i64(k, 0),
                   *to = cut ? t->k_to : kir_i64(k, t->k[at]);
    struct kir_loop *l = kir_for(k, from, to, cut ? t->k_block : t->k[at], r->sum, n);
    if (cut) l->var->hi = t->k[at] - 1;
    memcpy(r->sum, l->carry, sizeof *r->sum * (size_t)n);
    r->k[at] = l->var;
    RETURN_IF_ERR(all_terms(lw, t, r, d + 1));
    kir_end(k, l, r->sum);
    memcpy(r->sum, l->result, sizeof *r->sum * (size_t)n);
    return ST_OK;
}
static int64_t line_of(const struct lower_tile *t) {
    return ceil_div(positions(t), width(t)) * width(t);
}
// Of vector v of the tile, at position q: the element of scratch.
static struct kir_val *sum_at(struct lower *lw, const struct lower_tile *t, struct kir_val *q,
                              int v) {
    int64_t to = v / t->vectors * line_of(t) + v % t->vectors * t->lanes;
    struct kir_val *at = kir_idx_add(&lw->k, q, kir_i64(&lw->k, to));
    return in_scratch(lw, t->sums_at, kir_idx_add(&lw->k, at, t->sums));
}
// The sums of rows row.. at all positions of the block; of a block of terms, added to what is
// there. Zero times them is added to what is at t->spoilt_at.
static status_t sums(struct lower *lw, const struct lower_tile *t, struct kir_val *row) {
    struct kir *k = &lw->k;
    enum dtype e = kir_type(t->type);
    int64_t turns = ceil_div(positions(t), width(t));
    int n = t->height * t->vectors, looked = is_padded(t);
    struct kir_val *zero = kir_splat(k, kir_zero(k, e), t->lanes), *spoilt = NULL,
                   *at = kir_i64(k, t->spoilt_at);
    if (looked) spoilt = kir_load_lanes(k, KIR_SCRATCH, e, at, t->lanes);
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, turns), turns, &spoilt, looked);
    struct registers r = {.row = row, .q = kir_idx_mul(k, l->var, width(t))};
    for (int v = 0; v < n; v++)
        r.sum[v] =
            t->k_from ? kir_load_lanes(k, KIR_SCRATCH, e, sum_at(lw, t, r.q, v), t->lanes) : zero;
    RETURN_IF_ERR(all_terms(lw, t, &r, 0));

    if (looked) spoilt = l->carry[0];
    for (int v = 0; v < n; v++) {
        kir_store(k, KIR_SCRATCH, e, sum_at(lw, t, r.q, v), r.sum[v]);
        if (looked) spoilt = kir_op(k, K_ADD, spoilt, kir_op(k, K_MUL, r.sum[v], zero, NULL), NULL);
    }
    kir_end(k, l, &spoilt);
    if (looked) kir_store(k, KIR_SCRATCH, e, at, l->result[0]);
    return ST_OK;
}
// Loops over rows skip.. of the tile that begins at `row` and over the positions of the block:
// t->index and t->at are set, the first of the loops comes back.
static void each_result(struct lower *lw, struct lower_tile *t, struct kir_val *row,
                        struct kir_val *skip, struct kir_loop **loops) {
    struct kir *k = &lw->k;
    struct kir_val *pos[TILE_DIMS], *q = t->sums;
    loops[0] = kir_for(k, skip, kir_i64(k, t->height), t->height, NULL, 0);
    for (int d = 0; d < t->n_pos; d++) {
        int64_t most = d ? t->pos[d] : t->block;
        struct kir_val *end = kir_i64(k, most);
        if (d == 0 && t->pos[0] % t->block)
            end = kir_op(k, K_MIN, end,
                         kir_idx_add(k, kir_i64(k, t->pos[0]), kir_idx_mul(k, t->first, -1)), NULL);
        struct kir_loop *l = loops[1 + d] = kir_for(k, kir_i64(k, 0), end, most, NULL, 0);
        l->var->hi = most - 1;
        pos[d] = d ? l->var : kir_idx_add(k, t->first, l->var);
        q = kir_idx_add(k, q, kir_idx_mul(k, l->var, t->pitch[d]));
    }
    t->rule->index(lw, t, kir_idx_add(k, row, loops[0]->var), pos, t->index);
    t->at =
        in_scratch(lw, t->sums_at, kir_idx_add(k, q, kir_idx_mul(k, loops[0]->var, line_of(t))));
}
static void end_each(struct lower *lw, const struct lower_tile *t, struct kir_loop *const *loops) {
    for (int d = t->n_pos; d >= 0; d--)
        kir_end(&lw->k, loops[d], NULL);
}
// Rows skip.. of a tile, through the rest of the fusion.
static status_t write_out(struct lower *lw, struct lower_tile *t, const struct lower_outputs *o,
                          const struct shape *first, struct kir_val *row, struct kir_val *skip) {
    struct kir_loop *loops[TILE_DIMS + 1];
    each_result(lw, t, row, skip, loops);
    loops[t->n_pos]->vectorize = true;
    RETURN_IF_ERR(lower_store(lw, o, first, t->index));
    end_each(lw, t, loops);
    return ST_OK;
}
// A loop over the tiles of a chunk.
struct tile_loop {
    struct kir_val *begin, *end; // tiles
    struct kir_loop *loop;
    struct kir_val *row;         // the first of the one that goes on
    struct kir_val *from, *part; // within its part: where it begins, and where its rows do
};
static void each_tile(struct lower *lw, struct lower_tile *t, struct tile_loop *l) {
    struct kir *k = &lw->k;
    int64_t all = all_tiles(t), each = ceil_div(t->per, t->height);
    l->loop = kir_for(k, l->begin, l->end, t->chunk, NULL, 0);
    l->loop->var->hi = all - 1;
    struct kir_val *var = l->loop->var,
                   *from = kir_idx_mul(k, kir_idx_divmod(k, var, 1, each), t->height),
                   *part = kir_op(k, K_MIN, from, kir_i64(k, t->per - t->height), NULL),
                   *row = kir_idx_mul(k, kir_idx_divmod(k, var, each, 0), t->per);
    l->row = kir_idx_add(k, row, part);
    l->from = from;
    l->part = part;
    t->sums = kir_i64(k, 0);
    if (!is_cut(t)) return;
    struct kir_val *nth = kir_idx_add(k, var, kir_idx_mul(k, l->begin, -1));
    t->sums = kir_idx_mul(k, nth, line_of(t) * t->height);
}
// The sums of all tiles of a chunk, a block of terms after the other.
static status_t cut_sums(struct lower *lw, struct lower_tile *t, struct tile_loop *l) {
    struct kir *k = &lw->k;
    enum dtype e = kir_type(t->type);
    int64_t n = t->chunk * line_of(t) * t->height, all = t->k[t->order[t->n_k - 1]];
    struct kir_loop *zero = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
    zero->vectorize = true;
    kir_store(k, KIR_SCRATCH, e, in_scratch(lw, t->sums_at, zero->var), kir_zero(k, e));
    kir_end(k, zero, NULL);

    int64_t blocks = ceil_div(all, t->k_block);
    struct kir_loop *b = kir_for(k, kir_i64(k, 0), kir_i64(k, blocks), blocks, NULL, 0);
    t->k_from = kir_idx_mul(k, b->var, t->k_block);
    t->k_to =
        kir_op(k, K_MIN, kir_idx_add(k, t->k_from, kir_i64(k, t->k_block)), kir_i64(k, all), NULL);
    each_tile(lw, t, l);
    RETURN_IF_ERR(sums(lw, t, l->row));
    kir_end(k, l->loop, NULL);
    kir_end(k, b, NULL);
    t->k_from = t->k_to = NULL;
    return ST_OK;
}
// ---- sums that zeros of the slab have spoilt: NaN, by a weight that is infinite or NaN

enum { CLEAN = 0, SUSPECT = 1, UNKNOWN = 2 }; // of a chunk's weights
static struct kir_val *known(struct lower *lw, const struct lower_tile *t) {
    return kir_load(&lw->k, KIR_SCRATCH, DT_S32, kir_i64(&lw->k, t->known_at), KF_PINNED);
}
static void set_known(struct lower *lw, const struct lower_tile *t, struct kir_val *v) {
    kir_store(&lw->k, KIR_SCRATCH, DT_S32, kir_i64(&lw->k, t->known_at), v);
}
// A loop of one turn where `yes`, else of none.
static struct kir_loop *where(struct kir *k, struct kir_val *yes) {
    struct kir_val *turns = kir_select(k, yes, kir_i64(k, 1), kir_i64(k, 0));
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), turns, 1, NULL, 0);
    l->trip = 0; // as good as never
    return l;
}
// Is a sum of this chunk NaN so far, or infinite?
static struct kir_val *any_nan(struct lower *lw, const struct lower_tile *t) {
    struct kir *k = &lw->k;
    struct kir_val *sum = NULL, *v;
    for (int n = 0; n < t->lanes; n++) {
        v = kir_load(k, KIR_SCRATCH, kir_type(t->type), kir_i64(k, t->spoilt_at + n), KF_PINNED);
        sum = sum ? kir_op(k, K_ADD, sum, v, NULL) : v;
    }
    return kir_cmp(k, CMP_NE, sum, sum);
}
// Of the weights of all rows of a chunk, which are many more than the sums often.
static status_t look_at_weights(struct lower *lw, const struct lower_tile *t,
                                const struct tile_loop *l) {
    struct kir *k = &lw->k;
    bool whole = t->per == t->rows;
    struct kir_val *last = kir_i64(k, t->rows), *one = kir_int(k, DT_S32, SUSPECT), *found,
                   *from = whole ? kir_idx_mul(k, l->begin, t->height) : kir_i64(k, 0),
                   *to = whole ? kir_op(k, K_MIN, kir_idx_mul(k, l->end, t->height), last, NULL)
                               : last;
    RETURN_IF_ERR(t->rule->suspect(lw, t, from, to, &found));
    found = kir_cmp(k, CMP_GT, found, kir_i64(k, 0));
    set_known(lw, t, kir_select(k, found, one, kir_int(k, DT_S32, CLEAN)));
    return ST_OK;
}
// Single sums in place of the tile's where they may be spoilt.
static status_t exact_sums(struct lower *lw, struct lower_tile *t, const struct tile_loop *l) {
    struct kir *k = &lw->k;
    struct kir_loop *loops[TILE_DIMS + 1], *nan, *ask, *again;
    struct kir_val *v;
    if (!is_padded(t)) return ST_OK;
    nan = where(k, any_nan(lw, t));
    ask = where(k, kir_cmp(k, CMP_EQ, known(lw, t), kir_int(k, DT_S32, UNKNOWN)));
    RETURN_IF_ERR(look_at_weights(lw, t, l));
    kir_end(k, ask, NULL);
    again = where(k, kir_cmp(k, CMP_EQ, known(lw, t), kir_int(k, DT_S32, SUSPECT)));
    each_result(lw, t, l->row, kir_i64(k, 0), loops);
    RETURN_IF_ERR(t->rule->exact(lw, t->i, t->index, &v));
    kir_store(k, KIR_SCRATCH, kir_type(t->type), t->at, v);
    end_each(lw, t, loops);
    kir_end(k, again, NULL);
    kir_end(k, nan, NULL);
    return ST_OK;
}

// ---- a chunk

static status_t tiles(struct lower *lw, struct lower_tile *t, const struct lower_outputs *o,
                      const struct shape *first, struct kir_val *chunk) {
    struct kir *k = &lw->k;
    struct tile_loop l = {.begin = kir_idx_mul(k, chunk, t->chunk)};
    l.end = kir_op(k, K_MIN, kir_idx_add(k, l.begin, kir_i64(k, t->chunk)),
                   kir_i64(k, all_tiles(t)), NULL);
    if (is_padded(t)) {
        struct kir_val *zero = kir_splat(k, kir_zero(k, kir_type(t->type)), t->lanes);
        set_known(lw, t, kir_int(k, DT_S32, UNKNOWN));
        kir_store(k, KIR_SCRATCH, kir_type(t->type), kir_i64(k, t->spoilt_at), zero);
    }
    if (is_cut(t)) RETURN_IF_ERR(cut_sums(lw, t, &l));
    each_tile(lw, t, &l);
    if (t->rule->begin) RETURN_IF_ERR(t->rule->begin(lw, t, l.row));
    if (!is_cut(t)) RETURN_IF_ERR(sums(lw, t, l.row));
    RETURN_IF_ERR(exact_sums(lw, t, &l));
    struct kir_val *skip = kir_idx_add(k, l.from, kir_idx_mul(k, l.part, -1));
    RETURN_IF_ERR(write_out(lw, t, o, first, l.row, skip)); // without rows that the last has had
    kir_end(k, l.loop, NULL);
    return ST_OK;
}

// ---- the kernel

static status_t build(struct lower *lw, struct lower_tile *t, const struct lower_outputs *o,
                      const struct shape *first) {
    struct kir *k = &lw->k;
    enum dtype e = kir_type(t->type);
    int64_t size = dtype_size(e), blocks = ceil_div(t->pos[0], t->block),
            chunks = ceil_div(all_tiles(t), t->chunk), kept = is_cut(t) ? t->chunk : 1;
    // The last vectors of a slab may read behind it, into lanes that are not written out.
    t->slab_at = lower_scratch(lw, e, t->slab + width(t)) / size;
    t->spoilt_at = is_padded(t) ? lower_scratch(lw, e, t->lanes) / size : 0;
    t->known_at = is_padded(t) ? lower_scratch(lw, DT_S32, 1) / 4 : 0;
    t->beside_at = t->beside ? lower_scratch(lw, e, t->beside) / size : 0;
    t->sums_at = lower_scratch(lw, e, kept * line_of(t) * t->height) / size;

    int64_t extent[4] = {t->batch, t->groups, blocks, chunks}, units = 1;
    for (int d = 0; d < 4; d++)
        units *= extent[d];
    k->fn->extent = units;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0);
    struct kir_val *unit[4];
    lower_unflatten(lw, u->var, extent, 4, unit);
    t->b = unit[0];
    t->g = unit[1];
    t->first = kir_idx_mul(k, unit[2], t->block);
    RETURN_IF_ERR(t->rule->fill(lw, t));
    for (int64_t n = 0; n < width(t) && is_padded(t); n++) // not what lay there before
        kir_store(k, KIR_SCRATCH, e, kir_i64(k, t->slab_at + t->slab + n), kir_zero(k, e));
    RETURN_IF_ERR(tiles(lw, t, o, first, unit[3]));
    kir_end(k, u, NULL);
    return lw->k.overflow ? lower_no(lw, "the kernel is too large") : ST_OK;
}

// ---- tiles in registers alone: of GPUs
//
// A unit reads memory for each term: a value of each of its positions, which lie side by side in a
// vector, and one of each of its rows, so 4 by 4 sums cost 8 loads a term where single results cost
// 32. It has every turns[]-th row and position, so what neighbouring units read and write lies side
// by side. Terms at the edges of an image are left out: the sums of one place of the window, over
// all features, are made first and then added where the place is inside. The sums go to KIR_OWN,
// from where the rest of the fusion reads them; of draws, from where units of single elements do.

struct few {
    struct lower_tile *t;
    int64_t all;              // positions
    struct kir_val *first[2]; // of its rows and positions
    struct kir_val *row[MAX_SUMS], *pos[MAX_LANES][TILE_DIMS], *k[TILE_DIMS], *sum[MAX_SUMS];
};
static struct kir_val *few_zero(struct lower *lw, const struct lower_tile *t) {
    return kir_splat(&lw->k, kir_zero(&lw->k, kir_type(t->type)), t->lanes);
}
static status_t few_products(struct lower *lw, struct few *f) {
    const struct lower_tile *t = f->t;
    struct kir *k = &lw->k;
    struct kir_val *x[MAX_LANES], *v, *s;
    uint8_t flags = dtype_is_float(kir_type(t->type)) ? KF_REASSOC | KF_CONTRACT : 0;
    for (int p = 0; p < t->lanes; p++) {
        RETURN_IF_ERR(t->rule->value(lw, t, f->pos[p], f->k, &x[p]));
        x[p] = kmath_convert(lw, t->type, t->i->operands[t->operand]->shape->dtype, x[p]);
    }
    v = kir_join(k, x, t->lanes);
    for (int h = 0; h < t->height; h++) {
        RETURN_IF_ERR(t->rule->scalar(lw, t, f->row[h], f->k, &s));
        s = kir_flag(k, K_MUL, v, kir_splat(k, s, t->lanes), flags);
        f->sum[h] = kir_flag(k, K_ADD, f->sum[h], s, flags);
    }
    return ST_OK;
}
static status_t few_terms(struct lower *lw, struct few *f, int d, bool guarded);
// The terms of one place of the window, where it is inside.
static status_t few_inside(struct lower *lw, struct few *f, int d) {
    const struct lower_tile *t = f->t;
    struct kir *k = &lw->k;
    struct kir_val *in[MAX_LANES], *before[MAX_SUMS];
    bool always = true;
    int64_t one;
    for (int p = 0; p < t->lanes; p++) {
        in[p] = t->rule->inside(lw, t, f->pos[p], f->k);
        always &= kir_is_const(in[p], &one) && one == 1;
    }
    if (always) return few_terms(lw, f, d, false);

    struct kir_val *inside = kir_join(k, in, t->lanes);
    for (int h = 0; h < t->height; h++) {
        before[h] = f->sum[h];
        f->sum[h] = few_zero(lw, t);
    }
    RETURN_IF_ERR(few_terms(lw, f, d, false));
    uint8_t flags = dtype_is_float(kir_type(t->type)) ? KF_REASSOC : 0;
    for (int h = 0; h < t->height; h++)
        f->sum[h] =
            kir_select(k, inside, kir_flag(k, K_ADD, before[h], f->sum[h], flags), before[h]);
    return ST_OK;
}
static status_t few_terms(struct lower *lw, struct few *f, int d, bool guarded) {
    const struct lower_tile *t = f->t;
    struct kir *k = &lw->k;
    if (d == t->n_k) return few_products(lw, f);
    if (d == t->n_k - 1 && guarded) return few_inside(lw, f, d);
    int at = t->order[d];
    f->k[at] = kir_i64(k, 0);
    if (t->k[at] == 1) return few_terms(lw, f, d + 1, guarded);

    struct kir_loop *l = kir_for(k, f->k[at], kir_i64(k, t->k[at]), t->k[at], f->sum, t->height);
    memcpy(f->sum, l->carry, sizeof *f->sum * (size_t)t->height);
    f->k[at] = l->var;
    RETURN_IF_ERR(few_terms(lw, f, d + 1, guarded));
    kir_end(k, l, f->sum);
    memcpy(f->sum, l->result, sizeof *f->sum * (size_t)t->height);
    return ST_OK;
}
// A loop over those of a unit's rows or positions that there are.
static struct kir_loop *few_each(struct lower *lw, const struct few *f, int of, int n, int64_t all,
                                 struct kir_val **at) {
    struct kir *k = &lw->k;
    int64_t turns = f->t->turns[of];
    struct kir_val *left = kir_idx_add(k, kir_i64(k, all - 1 + turns),
                                       kir_idx_mul(k, f->first[of], -1)),
                   *end = n * turns == all ? kir_i64(k, n) : kir_idx_divmod(k, left, turns, 0);
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), end, n, NULL, 0);
    *at = kir_idx_add(k, f->first[of], kir_idx_mul(k, l->var, turns));
    *at = kir_idx_between(k, *at, 0, all - 1);
    return l;
}
static status_t few_out(struct lower *lw, struct few *f, const struct lower_outputs *o,
                        const struct shape *first) {
    struct lower_tile *t = f->t;
    struct kir *k = &lw->k;
    struct kir_val *row, *q, *pos[TILE_DIMS];
    struct kir_loop *rows = few_each(lw, f, 0, t->height, t->rows, &row),
                    *places = few_each(lw, f, 1, t->lanes, f->all, &q);
    lower_unflatten(lw, q, t->pos, t->n_pos, pos);
    t->rule->index(lw, t, row, pos, t->index);
    t->at = kir_idx_add(k, kir_idx_mul(k, rows->var, t->lanes), places->var);
    RETURN_IF_ERR(lower_store(lw, o, first, t->index));
    kir_end(k, places, NULL);
    kir_end(k, rows, NULL);
    return ST_OK;
}
// o NULL: the sums alone.
static status_t build_few(struct lower *lw, struct lower_tile *t, const struct lower_outputs *o,
                          const struct shape *first) {
    struct kir *k = &lw->k;
    struct few f = {.t = t, .all = all_positions(t)};
    int64_t extent[4] = FEW_UNITS(t);
    struct kir_val *unit[4];
    k->fn->own = (struct kir_own){kir_type(t->type), t->lanes, t->height};
    k->fn->extent = extent[0] * extent[1] * extent[2] * extent[3];
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, k->fn->extent, NULL, 0);
    lower_unflatten(lw, u->var, extent, 4, unit);
    t->b = unit[0];
    t->g = unit[1];
    f.first[t->rows_minor] = unit[2];
    f.first[!t->rows_minor] = unit[3];

    for (int h = 0; h < t->height; h++) {
        struct kir_val *at = kir_idx_add(k, f.first[0], kir_i64(k, h * t->turns[0]));
        f.row[h] = kir_op(k, K_MIN, at, kir_i64(k, t->rows - 1), NULL);
        f.sum[h] = few_zero(lw, t);
    }
    for (int p = 0; p < t->lanes; p++) {
        struct kir_val *at = kir_idx_add(k, f.first[1], kir_i64(k, p * t->turns[1]));
        at = kir_op(k, K_MIN, at, kir_i64(k, f.all - 1), NULL);
        lower_unflatten(lw, at, t->pos, t->n_pos, f.pos[p]);
    }
    RETURN_IF_ERR(few_terms(lw, &f, 0, t->edges));
    for (int h = 0; h < t->height; h++)
        kir_store(k, KIR_OWN, kir_type(t->type), kir_i64(k, h * t->lanes), f.sum[h]);
    if (o) RETURN_IF_ERR(few_out(lw, &f, o, first));
    kir_end(k, u, NULL);
    return lw->k.overflow ? lower_no(lw, "the kernel is too large") : ST_OK;
}
// The tile whose steps cost least, if there are enough units for all of a device: a load costs as
// much as some products, and fewer units than it runs at a time leave parts of it idle. A tile's
// sums are twice its size where edges are left out. False: single results are no dearer.
static bool schedule_few(const struct lower *lw, struct lower_tile *t) {
    enum { LOAD = 4, MOST_AT_EDGES = 16 };
    const struct tile_class *c = class_of(lw);
    int64_t all = all_positions(t), groups = t->batch * t->groups, units = groups * t->rows * all;
    double least = (double)(1 + 2 * LOAD) * (double)(units > c->units ? units : c->units);
    t->lanes = 0;
    for (int n = 0; n < MAX_SHAPES && c->shape[n].rows; n++) {
        int lanes = c->shape[n].vectors,
            rows = t->rows < c->shape[n].rows ? (int)t->rows : c->shape[n].rows;
        if (lanes > all || (t->edges && rows * lanes > MOST_AT_EDGES)) continue;
        units = groups * ceil_div(t->rows, rows) * ceil_div(all, lanes);
        double cost = (double)(rows * lanes + LOAD * (rows + lanes)) *
                      (double)(units > c->units ? units : c->units);
        if (cost >= least) continue;
        least = cost;
        t->lanes = lanes;
        t->height = rows;
    }

    order_terms(t, c);
    t->few = true;
    if (!t->lanes) return false;
    t->turns[0] = ceil_div(t->rows, t->height);
    t->turns[1] = ceil_div(all, t->lanes);
    return !is_drawn(c) || groups * t->turns[0] * t->turns[1] < INT32_MAX / KIR_SUMS_OF_UNIT;
}
// Sums that the vectors of all languages hold; not what is written out anyway.
static bool worth_few(const struct lower_tile *t) {
    enum dtype e = kir_type(t->type);
    bool depthwise = t->i->op == HLO_CONVOLUTION && t->rows == 1 && terms(t) <= PLACES;
    bool any = t->batch * t->groups * t->rows * all_positions(t) > 0 && terms(t) > 1;
    return (e == DT_F32 || e == DT_S32 || e == DT_U32) && any && !depthwise;
}

// The one contraction of a fusion; NULL: none, or several.
static const struct hlo_instr *contraction(const struct hlo_instr *i) {
    const struct hlo_instr *found = NULL;
    if (i->op == HLO_DOT || i->op == HLO_CONVOLUTION) return i;
    if (i->op != HLO_FUSION) return NULL;
    HLO_EACH_INSTR(b, i->called[0])
    if (b->op == HLO_DOT || b->op == HLO_CONVOLUTION) {
        if (found) return NULL;
        found = b;
    }
    return found;
}
// Few rows do not repay a slab: columns of a dot are summed as they lie, a depthwise filter of few
// places is written out.
static bool repays(const struct lower *lw, const struct lower_tile *t) {
    enum { ROWS = 16, FEW_ROWS = 5 };
    if (t->i->op != HLO_DOT) return t->rows > 1 || terms(t) > PLACES;
    bool copies = t->lines && class_of(lw)->of == TILES_OF_CPU;
    return t->rows >= (copies ? FEW_ROWS : ROWS);
}
static bool worth(const struct lower *lw, const struct lower_tile *t) {
    enum { PRODUCTS = 4096 };
    int64_t p = all_positions(t), n = t->batch * t->groups * t->rows * p * terms(t);
    return p >= hlo_tile_least(lw, t->type) && terms(t) > 1 && n >= PRODUCTS && repays(lw, t);
}
// False: it is no product of many small matrices.
static bool in_small(struct lower *lw, const struct hlo_instr *i, const struct lower_outputs *o,
                     const struct shape *first, int n_in, status_t *st) {
    const struct tile_class *c = class_of(lw);
    struct small_dot s;
    return c->of == TILES_OF_CPU && !lw->policy->elements && hlo_small_dot(lw, i, c->bits, &s) &&
           hlo_small_dot_build(lw, &s, o, first, n_in, st);
}
static bool finish(struct lower *lw, const status_t *st) {
    if (*st) return true;
    kir_sweep(&lw->k);
    lw->k.fn->scratch_bytes = lw->scratch;
    lw->k.fn->tiles = true;
    return true;
}
bool lower_in_tiles(struct lower *lw, const struct lower_outputs *o, const struct shape *first,
                    int n_in, status_t *st) {
    const struct hlo_instr *i = contraction(lw->instr);
    struct lower_tile t = {.i = i};
    struct shape_phys p;
    shape_physical(first, &p);
    if (!i || p.padded || !shape_same_dims(first, i->shape) || p.rank == 0) return false;
    enum dtype type = i->shape->dtype;
    if (dtype_is_complex(type) || type == DT_PRED || !shape_elements(first)) return false;
    if (in_small(lw, i, o, first, n_in, st)) return finish(lw, st);
    t.type = type;
    int minor = p.of[p.rank - 1];
    *st =
        i->op == HLO_DOT ? hlo_tile_dot(lw, i, minor, &t) : hlo_tile_convolution(lw, i, minor, &t);
    if (!t.per) t.per = t.rows;
    struct lower_tile turned = {.i = i, .type = type};
    bool few = is_gpu(class_of(lw)), drawn = is_drawn(class_of(lw));
    bool two = !*st && !few && i->op == HLO_CONVOLUTION && hlo_tile_turned(lw, &t, &turned) &&
               worth(lw, &turned);
    if (*st || !(few ? worth_few(&t) && schedule_few(lw, &t) : two || worth(lw, &t))) {
        st_drop(*st);
        return false;
    }

    double cost = !few && worth(lw, &t) ? schedule(lw, &t) : INFINITY;
    if (two && schedule(lw, &turned) < cost) t = turned;
    lw->tile = &t;
    lw->in_range = true;
    lower_begin(lw, n_in, o->n);
    *st = few ? build_few(lw, &t, drawn ? NULL : o, first) : build(lw, &t, o, first);
    lw->tile = NULL;
    lw->in_range = false;
    if (st_code(*st) == ST_UNIMPLEMENTED) {
        st_drop(*st);
        lw->why = NULL;
        return false;
    }
    if (!drawn || *st) return finish(lw, st);
    finish(lw, st); // of units that write nothing but their own place
    lw->sums = lw->k.fn;
    lw->tile = arena_dup(lw->arena, &t, sizeof t);
    return true;
}
