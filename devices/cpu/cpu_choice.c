// SPDX-License-Identifier: Apache-2.0
// Which contractions the tiles of generated code (compiler/kernel/lower_tile.c) take from the
// implementations that stand before them in the list, by type and shape. The rows of `rules` are
// measured (tests/bench/kernels.py and random contractions beside them, one thread, AVX-512): tiles
// run f64 and integers 1.2 times as fast as gemm in the mean, but for few rows with many terms,
// which gemm reads where they lie; of f32 they win where the library fills a vector of 16 channels
// with the few that there are, by 2 to 8 times, also short ones (40 random images of 10 to 60
// lines): their kernels are made without LLVM, in 0.5 ms. Those that LLVM makes take 20 to 30 ms:
// short steps are not worth that. And which convolutions are Winograd's (panels/cpu_winograd.h), by
// a table of targets.
#include <math.h>
#include <string.h>

#include "base/span.h"
#include "compiler/passes/fusion/library.h"
#include "devices/cpu/cpu_bind.h"

enum kind {
    DOT_WIDE,   // dots of 32- and 64-bit integers and of f64
    CONV_WIDE,  // convolutions of these
    CONV_SPLIT, // of f32 with batch groups: weight gradients of groups
    CONV_F32    // others of f32
};
enum { ANY = INT64_MAX, SLAB = 512 << 10, WRITTEN_OUT = 12, WORTH = 1 << 17 };
// All of a row must hold. Rows are the output features of a group, or the left operand's; columns
// positions of one image, or the right operand's (of f64 half as many: as wide); fill: of a
// vector's lanes, percent; products: multiplications of all.
static const struct rule {
    enum kind kind;
    int64_t least_rows, most_rows, least_columns, most_terms, least_taps, least_fill;
    int64_t least_products;
} rules[] = {{DOT_WIDE, 128, ANY, 8, ANY, 1, 0, WORTH},
             {DOT_WIDE, 32, ANY, 8, 1024, 1, 0, WORTH},
             {DOT_WIDE, 16, ANY, 8, 256, 1, 0, WORTH},
             {CONV_WIDE, 1, ANY, 1, ANY, 1, 65, WORTH},
             {CONV_SPLIT, 2, ANY, 1, ANY, 1, 20, WORTH},
             // Blocks of channels become rows for it: a copy as long as two to four taps.
             {CONV_F32, 1, 3, 256, ANY, 4, 65, 1 << 12},
             {CONV_F32, 1, 6, 256, ANY, 8, 65, 1 << 12}};

static struct cpu_sizes dot_sizes(const struct hlo_instr *i) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    struct cpu_sizes s = {1, 1, 1, 1, 1, 1};
    for (int k = 0; k < d->lhs_batch_dims.n; k++)
        s.groups *= x->dims[d->lhs_batch_dims.v[k]];
    for (int k = 0; k < d->lhs_contracting_dims.n; k++)
        s.k *= x->dims[d->lhs_contracting_dims.v[k]];
    for (int k = 0; k < x->rank; k++)
        if (!i64s_has(d->lhs_batch_dims, k) && !i64s_has(d->lhs_contracting_dims, k))
            s.m *= x->dims[k];
    for (int k = 0; k < y->rank; k++)
        if (!i64s_has(d->rhs_batch_dims, k) && !i64s_has(d->rhs_contracting_dims, k))
            s.n *= y->dims[k];
    return s;
}
static struct cpu_sizes conv_sizes(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    const struct shape *w = i->operands[1]->shape;
    int64_t groups = c->feature_group_count * c->batch_group_count;
    struct cpu_sizes s = {groups,           w->dims[l->k_out] / groups,   1,
                          w->dims[l->k_in], i->shape->dims[l->out_batch], 1};
    for (int d = 0; d < l->n_spatial; d++) {
        s.n *= i->shape->dims[l->out_spatial[d]];
        s.taps *= w->dims[l->k_spatial[d]];
    }
    s.k *= s.taps;
    return s;
}
struct cpu_sizes cpu_sizes_of(const struct hlo_instr *i) {
    return i->op == HLO_DOT ? dot_sizes(i) : conv_sizes(i);
}

// The rule's kind of `i`; false: none of them.
static bool kind_of(const struct hlo_instr *i, enum kind *out) {
    enum dtype t = i->shape->dtype;
    bool wide = t == DT_F64 || (dtype_is_int(t) && dtype_bits(t) >= 32);
    for (int k = 0; k < 2; k++)
        if (i->operands[k]->shape->dtype != t) return false;
    if (i->op == HLO_DOT) {
        *out = DOT_WIDE;
        return wide;
    }
    *out = wide ? CONV_WIDE : HLO_ATTR(i, conv)->batch_group_count > 1 ? CONV_SPLIT : CONV_F32;
    return wide || t == DT_F32;
}
// Channels as blocks of 16 hold them. Phases (compiler/passes/layout/conv_phases.c) are features of
// a result that is interleaved, which a library's block is filled by where the results are few.
bool cpu_transposed_better(const struct hlo_instr *i) {
    enum { BLOCK = 16 };
    const struct window *w = &HLO_ATTR(i, conv)->window;
    const struct shape *k = i->operands[1]->shape;
    double all = 1, in_phases = 1, phases = 1, out = (double)k->dims[1];
    if (i->shape->dtype != DT_F32 || i->operands[0]->shape->dtype != DT_F32 || k->dtype != DT_F32 ||
        k->dims[0] < BLOCK || cpu_target()->conv_block == 0)
        return false;
    for (int d = 0; d < w->n; d++) {
        const struct window_dim *v = &w->v[d];
        int64_t b = v->base_dilation, taps = (v->size + b - 1) / b;
        if (v->pad_low < 0 || v->pad_high < 0 || v->pad_low >= v->size) return false;
        all *= (double)v->size;
        phases *= (double)(v->size < b ? v->size : b);
        in_phases *= (double)taps;
    }
    return ceil(out / BLOCK) * all <= ceil(out * phases / BLOCK) * in_phases;
}

// Is the right matrix read by rows, or turned?
static bool by_rows(const struct lib_call *c) {
    const struct hlo_attr_dot *d = HLO_ATTR(c->hero, dot);
    return d->rhs_contracting_dims.n == 1 &&
           d->rhs_contracting_dims.v[0] < c->hero->operands[1]->shape->rank - 1;
}
// Is a product of complex matrices, or each of many, better packed? Kernels have vectors where
// columns are a multiple of four or many and take some 1.4 ns a product of others. Measured on
// Zen 4, 50 sizes of c64 and c128: at the bounds both are as fast, of 1000 products with 10 columns
// this is three times as fast.
bool cpu_complex_pays(const struct cpu_sizes *s) {
    enum {
        MANY = 8192,
        NARROW = 3000,
        MANY_COLUMNS = 16,
        VECTOR = 4,
        SOME = 512,
        SOME_OF_TWO = 1100
    };
    double each = (double)s->m * (double)s->n * (double)s->k;
    bool apart = s->n % VECTOR && s->n < MANY_COLUMNS;
    int64_t many = s->n <= 2 * VECTOR ? NARROW : MANY;
    return s->m >= 2 && s->n >= 2 && each >= (!apart ? many : s->n == 2 ? SOME_OF_TWO : SOME);
}
// Products of many small matrices, or with few terms of few rows or columns: what a call of a
// library costs is paid for each matrix, kernels run across them (measured on Zen 3: up to 30 times
// as fast at 4x4, no slower up to 32x32; of a matrix and a vector up to 32x32 elements; on Zen 4
// with AVX-512 of those 17 sizes up to 128x128, 0.95 to 1.75 times as fast, 180 random products up
// to 128 rows, terms and columns: 1.5 times in the mean, 4 at most, the least 0.76, where a few
// terms or columns leave lanes empty or are turned first). With fewer products of fewer matrices no
// kernel is worth its making (a call takes some 20 ns for each matrix); loops take theirs without
// (compiler/kernel/merge.h). One product of f32 is worth it where AVX-512 makes its kernel without
// LLVM, in 0.2 ms: a call takes 0.1 to 0.5 us, a kernel of up to 32x32x16 0.05 to 0.3 (on Zen 5,
// 100 random products: 1.9 times as fast in the mean, 0.9 at least; on Zen 4, 240: 1.8 times), but
// of few columns, which fill no vector, and by bound weights that a kernel would turn in each run
// (thin takes those: 1.5 times as fast).
static bool small_alone(const struct lib_call *c, const struct cpu_sizes *s, double each) {
    enum { MOST = 1 << 14, FEW_COLUMNS = 5, FEW_TERMS = 8, LONGEST = 128 };
    if (c->hero->shape->dtype != DT_F32 || c->hero->operands[0]->shape->dtype != DT_F32 ||
        s->groups > 1 || each > MOST || s->k > LONGEST)
        return false;
    return !by_rows(c) || s->n > FEW_COLUMNS || s->k <= FEW_TERMS;
}
bool cpu_small_dot(const struct hlo_instr *i) {
    enum {
        EACH = 1 << 15,
        ANY_512 = 1 << 12,
        FEW_512 = 5,
        COLUMNS_512 = 8,
        TERMS_512 = 10,
        ROWS_512 = 32,
        MOST_512 = 128,
        THIN = 1 << 10,
        THIN_512 = 1 << 14,
        LEAST = 1 << 12,
        MANY = 8,
        FEW = 4
    };
    struct lib_call c;
    if (!lib_match(i, &c) || c.hero->op != HLO_DOT || cpu_forced_impl()) return false;
    struct cpu_sizes s = dot_sizes(c.hero);
    double each = (double)s.m * (double)s.n * (double)s.k;
    bool wide = cpu_target()->vector_bits == 512;
    if (wide && small_alone(&c, &s, each)) return true;
    if (each * (double)s.groups < LEAST && s.groups < MANY) return false;

    bool complex = dtype_is_complex(c.hero->shape->dtype);
    if (s.groups > 1 && complex && cpu_complex_pays(&s)) return false;
    if (s.groups > 1 && (s.m == 1 || s.n == 1)) {
        bool larger = wide && (s.n == 1 || by_rows(&c)) && s.m <= MOST_512 && s.n <= MOST_512 &&
                      s.k <= MOST_512;
        return each <= (larger ? THIN_512 : THIN);
    }
    if (s.groups > 1 && wide && each > ANY_512) {
        bool few = s.m > ROWS_512 && s.n < COLUMNS_512 && s.k < TERMS_512;
        return each <= EACH && !few && s.k >= (by_rows(&c) ? 1 : FEW_512) && s.m <= MOST_512 &&
               s.n <= MOST_512 && s.k <= MOST_512;
    }
    if (s.groups > 1) return each <= EACH;
    return s.k <= FEW && (s.m <= FEW || s.n <= FEW);
}

static bool strided(const struct hlo_attr_conv *c) {
    for (int d = 0; d < c->window.n; d++)
        if (c->window.v[d].stride > 1) return true;
    return false;
}
// Percent of the lanes that hold results. Rows of an image lie behind each other in the slab, each
// with what its last windows reach over; of few positions features are in the lanes.
static int64_t fill_of(const struct hlo_instr *i, const struct cpu_sizes *s) {
    enum { POSITIONS = 128, FEATURES = 8 };
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    int last = c->dim_labels.n_spatial - 1;
    if (last < 0 || c->window.n != c->dim_labels.n_spatial) return 0;
    const struct window_dim *w = &c->window.v[last];
    double row = (double)i->shape->dims[c->dim_labels.out_spatial[last]],
           over = (double)(w->size - 1) * (double)w->window_dilation / (double)w->stride;
    int64_t lanes = 64 / dtype_size(i->shape->dtype),
            turned = 100 * s->m / ((s->m + lanes - 1) / lanes * lanes),
            fill = last ? (int64_t)(100 * row / (row + over)) : 100;
    if (s->n < FEATURES) fill = 0;
    bool turns =
        s->n <= POSITIONS && s->m >= FEATURES && (!strided(c) || s->images * s->n >= 2 * POSITIONS);
    return turns && turned > fill ? turned : fill;
}
// Windows of one place, strided over images larger than what stays near: the few elements of a line
// that count are gathered, and no other window has them again. Larger windows are the tiles' (f64
// and s32, 16 of 3x3 to 8x8: 1.2 to 6 times gemm's speed).
static bool far_apart(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    const struct shape *x = i->operands[0]->shape;
    int64_t bytes = i->operands[1]->shape->dims[l->k_in] * dtype_size(x->dtype);
    for (int d = 0; d < l->n_spatial; d++)
        bytes *= x->dims[l->in_spatial[d]] * (i->operands[1]->shape->dims[l->k_spatial[d]] == 1);
    return strided(c) && bytes > SLAB;
}
// Share of a window's taps that lie within the image, over all positions along a dimension.
static double within(const struct window_dim *w, int64_t in, int64_t out) {
    double all = 0;
    for (int64_t p = 0; p < out; p++) {
        int64_t at = p * w->stride - w->pad_low, step = w->window_dilation;
        int64_t first = at < 0 ? ceil_div(-at, step) : 0,
                end = at < in ? ceil_div(in - at, step) : 0;
        if (end > w->size) end = w->size;
        if (end > first) all += (double)(end - first);
    }
    return all / (double)w->size / (double)out;
}
static bool far_padding(const struct window_dim *w) {
    enum { PADDING = 4 };
    return w->pad_low >= PADDING || w->pad_high >= PADDING;
}
// Windows as large as images, which a few positions see (long_window).
struct long_window {
    int n;            // dimensions
    int64_t across;   // results of a row
    double inside;    // share of terms that lie within the image
    bool copied, far; // strided with padding; with gaps between its taps
};
static bool long_window_of(const struct hlo_instr *i, struct long_window *out) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    if (c->window.n != l->n_spatial || c->window.n < 1) return false;
    *out = (struct long_window){.n = c->window.n, .inside = 1};
    for (int d = 0; d < c->window.n; d++) {
        const struct window_dim *w = &c->window.v[d];
        if (w->base_dilation != 1 || w->stride < 1 || w->window_dilation < 1) return false;
        out->copied |= w->stride > 1 && (w->pad_low > 0 || w->pad_high > 0);
        out->far |= w->window_dilation > 1;
        out->across = i->shape->dims[l->out_spatial[d]];
        out->inside *= within(w, i->operands[0]->shape->dims[l->in_spatial[d]], out->across);
    }
    return true;
}
enum { NARROW = 3, FEW_TAPS = 16 };
// Of an image with AVX-512 the library's kernels for a row of three results wait for its operands.
// Measured on Zen 4, 60 random gradients of 3 to 256 channels and 1 to 32 images: of rows of two
// and three tiles are 1.3 times as fast in the mean (0.93 to 2.3), of five and seven 0.75.
static bool long_window_narrow(const struct long_window *w, const struct cpu_sizes *s) {
    const double least = .7;
    return w->n == 2 && w->across <= NARROW && s->taps >= FEW_TAPS && w->inside >= least;
}
// Where the data path is as wide as AVX-512's vectors (Zen 5), they reach 37% of the peak for a row
// of three results, of five 60%, of seven 80%; tiles reach 75 to 95%, but for few features, which
// leave lanes empty. Measured there, 200 random gradients of 1 to 256 channels and 1 to 32 images,
// windows of 1 to 31, strided, dilated, NCHW and NHWC: tiles 1.5 times as fast in the mean where
// this and long_window_narrow say so.
static bool long_window_wide(const struct long_window *w, const struct cpu_sizes *s) {
    enum { FIVE = 5, LANES = 16, SOME = 128, MANY = 2048, TERMS = 8192 };
    if (s->taps < FEW_TAPS || w->n > 2) return false;
    if (w->n == 1) return s->m >= 2 * LANES || w->across <= NARROW;
    if (w->across <= NARROW || s->m < 2 * LANES) return false;
    return (s->taps >= MANY && s->k >= TERMS) || (w->across <= FIVE && s->taps >= SOME && !w->far);
}
// Gradients of filters in one and two dimensions: windows as large as images, which a few positions
// see. The library takes them as other convolutions, with the image's images as channels, a row of
// few results at a time; it skips what lies outside of the image, tiles multiply it. Measured on
// AVX2 (Zen 3), 220 random ones of 1 to 128 channels and 1 to 32 images: 2.1 times as fast in one
// dimension, 1.9 in two; those that were slower are what the bounds leave out, and three
// dimensions. The gradient of a dilated filter is a strided window: with padding the library copies
// every window out for a product (gemm:jit), which takes 2.6 times as long (40 random ones). With
// AVX-512 (Zen 4, 32 random ones) that was so in one dimension where padding is long: 1.6 times as
// fast; others were 0.67 to 1.05, and in two dimensions 0.31 to 1.8.
static bool long_window(const struct hlo_instr *i, const struct cpu_sizes *s) {
    enum { POSITIONS = 128, FEATURES = 8, FEW = 36, TAPS = 32 };
    const double least = .92;
    int bits = cpu_target()->vector_bits;
    struct long_window w;
    if (bits < 256 || s->groups != 1 || s->n < 3 || s->n > POSITIONS || s->m < FEATURES ||
        s->taps <= s->n || !long_window_of(i, &w))
        return false;
    if (bits == 512 && long_window_narrow(&w, s)) return true;
    if (cpu_has_wide_path() && long_window_wide(&w, s)) return true;
    if (s->taps < TAPS) return false;
    if (w.n == 1) return bits == 256 || far_padding(&HLO_ATTR(i, conv)->window.v[0]);
    if (w.n != 2 || bits != 256) return false;
    return w.copied || (!w.far && s->n <= FEW && w.inside >= least);
}
// Convolutions along one dimension, where positions fill the lanes. With padding longer than its
// register tile (causal, dilated and long windows) the library copies windows out for a product, or
// runs at a third of its speed. Measured on AVX2 (Zen 3), 55 random ones of 8 to 256 channels, 2 to
// 9 taps, dilations up to 8: 1.7 times as fast in the mean, four of them slower, the least 0.72;
// with shorter padding 45 others were 1.0 in the mean, and less in chains of blocked values. On
// AVX-512 (Zen 4) five of 16 changed hands: 1.4 times as fast, none slower.
static bool along_line(const struct hlo_instr *i, const struct cpu_sizes *s) {
    enum { POSITIONS = 32, FEATURES = 8, TERMS = 16, TAPS = 2 };
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    if (cpu_target()->vector_bits < 256 || c->dim_labels.n_spatial != 1 || c->window.n != 1)
        return false;
    const struct window_dim *w = &c->window.v[0];
    return s->groups == 1 && w->base_dilation == 1 && s->n >= POSITIONS && s->m >= FEATURES &&
           s->k >= TERMS && s->taps >= TAPS && far_padding(w);
}
// How many times the library's work is what it need be: its vectors hold `block` channels.
static double filled_up(const struct cpu_sizes *s, int64_t block) {
    int64_t in = s->k / s->taps, blocks = ceil_div(in, block) * ceil_div(s->m, block);
    return (double)(blocks * block * block) / (double)(in * s->m);
}
// Channels, of a group or of all, that do not fill the library's blocks of 16, or of groups of at
// most 8, of which it has kernels that skip the padding. Measured on Zen 5, 143 random convolutions
// of 3 to 256 channels in 1 to 32 groups, windows of 2x2 to 7x7 and of 3 to 9, images of 7 to 56
// and lines of 100 to 2000, each alone and between two of 1x1, so that blocks of channels become
// rows and back: docs/performance.md, "Channels that do not fill a block"; 70 on Zen 4.
static bool odd_channels(const struct hlo_instr *i, const struct cpu_sizes *s, int64_t fill) {
    enum { BLOCK = 16, SMALL = 8, POSITIONS = 64, FEW = 12, SHORT = 5 };
    const double line = 1.25, groups = 1.5, small = .7, image = 1.6, image_short = 1.9;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    int n = l->n_spatial;
    int64_t in = s->k / s->taps;
    if (cpu_target()->vector_bits != 512 || n < 1 || n > 2 || c->window.n != n || s->m < 2 ||
        s->taps < 2 || s->n < POSITIONS || (strided(c) && (n > 1 || s->groups == 1)))
        return false;
    double inside = 1, share = (double)fill / 100, gain = filled_up(s, BLOCK) * share;
    for (int d = 0; d < n; d++) {
        const struct window_dim *w = &c->window.v[d];
        if (w->base_dilation != 1 || w->window_dilation != 1) return false;
        inside *= within(w, i->operands[0]->shape->dims[l->in_spatial[d]],
                         i->shape->dims[l->out_spatial[d]]);
    }

    if (s->groups > 1 && s->m <= SMALL && in <= SMALL)
        return filled_up(s, SMALL) * share * inside >= small;
    if (s->groups > 1) return gain >= groups && s->m % BLOCK;
    return in >= FEW && gain >= (n == 1 ? line : s->taps <= SHORT ? image_short : image);
}
// Large products of f32 whose right operand is not bound (bound ones are cpu_matmul_better's, which
// is asked before). Where its lines lie multiples of a KiB apart the library, which reads them as
// they lie, waits for the nearest cache. Measured on Zen 5, 62 of 32 to 4000 rows, 64 to 10000
// terms, 64 to 5000 columns: where this says so tiles are 1.07 times as fast in the mean, 0.95 at
// least, 1.19 at most; of other columns the library is 1.1 times as fast.
static bool far_lines(const struct hlo_instr *i, const struct cpu_sizes *s) {
    enum { LINE = 256, ROWS = 512, SOME_ROWS = 256, FEW_ROWS = 128, TERMS = 700, MANY = 1000 };
    enum { MORE = 2000, MOST = 4095, COLUMNS = 768, FAR = 8 << 20, MEASURED = 200 << 20 };
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    if (!cpu_has_wide_path() || x->rank != 2 || y->rank != 2 || s->n % LINE ||
        shape_bytes(y) > MEASURED || d->lhs_contracting_dims.n != 1 ||
        d->lhs_contracting_dims.v[0] != 1 || d->rhs_contracting_dims.v[0] != 0)
        return false;
    return (s->m >= ROWS && s->k >= TERMS) || (s->m >= SOME_ROWS && s->k >= MANY) ||
           (s->m >= FEW_ROWS && s->k >= MORE && s->k <= MOST && s->n >= COLUMNS &&
            shape_bytes(y) > FAR);
}
static bool is_f32_dot(const struct hlo_instr *i) {
    return i->op == HLO_DOT && i->shape->dtype == DT_F32 &&
           i->operands[0]->shape->dtype == DT_F32 && i->operands[1]->shape->dtype == DT_F32;
}
// Filters of signals and images with many taps: where gemm copies what each window sees, tiles read
// the image itself. Measured on Zen 4, 70 random ones of 128 to 20,000 taps, strided, dilated and
// padded: 3.2 times as fast, none slower; by AVX2, 30 of them, 1.7 times, but LLVM makes the
// kernel.
static bool filter_pays(double products) {
    enum { LEAST = 1 << 12 };
    return products >= (cpu_target()->vector_bits == 512 ? LEAST : 16 * WORTH);
}
bool cpu_tiles_better(const struct hlo_instr *i) {
    enum kind kind;
    bool conv = i->op == HLO_CONVOLUTION;
    if ((!conv && i->op != HLO_DOT) || cpu_forced_impl()) return false;
    struct cpu_sizes s = cpu_sizes_of(i);
    if (is_f32_dot(i)) return far_lines(i, &s);
    if (!kind_of(i, &kind)) return false;
    int64_t fill = conv ? fill_of(i, &s) : 100;
    double products = (double)s.groups * (double)s.m * (double)s.n * (double)s.k * (double)s.images;
    if (cpu_gemm_filter(i)) return filter_pays(products);
    if (s.k < 2 || (conv && far_apart(i)) || (s.m == 1 && (s.groups > 1 || s.k <= WRITTEN_OUT)))
        return false;

    if (kind == CONV_F32 && products >= 4 * WORTH && (long_window(i, &s) || along_line(i, &s)))
        return true;

    if (kind == CONV_F32 && products >= WORTH && odd_channels(i, &s, fill)) return true;
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        const struct rule *r = &rules[k];
        if (r->kind == kind && s.m >= r->least_rows && s.m <= r->most_rows &&
            s.n * (i->shape->dtype == DT_F64 && !conv ? 2 : 1) >= r->least_columns &&
            s.k <= r->most_terms && s.taps >= r->least_taps && fill >= r->least_fill &&
            products >= (double)r->least_products)
            return true;
    }
    return false;
}

// ---- Winograd

// Targets whose convolutions may be ours: what one thread does, measured (AVX2: Zen 3,
// tests/bench/kernels.py; AVX-512: Zen 5, 240 random ones of 8 to 512 channels, images of 3 to 112,
// 1 to 4 of them: in the mean 1.02 times the least of both tiles and the library's sums). Targets
// without a row leave them to the library. Nanoseconds are of a vector.
static const struct winograd_row {
    int vector_bits;
    double products, direct; // operations a ns: of the matrix products, of the library's sums
    double transform_ns;     // a point of a tile, into it and out of it
    double far_bytes, far,
        near; // more weights than this come at `far` bytes a ns, others at `near`
} winograd_rows[] = {{256, 88, 90, 1.5, 12e6, 18, 60}, {512, 240, 230, .8, 12e6, 25, 100}};

static bool winograd_form(const struct hlo_instr *i) {
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    if (c->dim_labels.n_spatial != 2 || c->window.n != 2 || c->feature_group_count != 1 ||
        c->batch_group_count != 1 || !labels_in_order(&c->dim_labels, 0))
        return false;
    for (int d = 0; d < 2; d++) {
        const struct window_dim *w = &c->window.v[d];
        if (w->size != 3 || w->stride != 1 || w->window_dilation != 1 || w->base_dilation != 1 ||
            w->reversal || w->pad_low < 0 || w->pad_high < 0)
            return false;
    }
    return shape_elements(i->shape) > 0;
}
static double up(int64_t n, int64_t block) {
    return ceil((double)n / (double)block) * (double)block;
}
// Weights are read while the products of those before them go on.
static double with_weights(const struct winograd_row *r, double compute, double bytes) {
    double read = bytes / (bytes > r->far_bytes ? r->far : r->near);
    return compute + read / 2 > read ? compute + read / 2 : read;
}
static double winograd_ns(const struct winograd_row *r, const struct hlo_instr *i, int m) {
    const int64_t *out = i->shape->dims;
    int lanes = r->vector_bits / 32;
    double tiles = (double)out[0] * up(out[2], m) * up(out[3], m) / (m * m),
           points = (m + 2) * (m + 2), in = up(i->operands[1]->shape->dims[1], lanes),
           features = up(out[1], 2 * lanes);
    double products = 2 * tiles * points * in * features / r->products;
    return with_weights(r, products, 4 * points * in * features) +
           r->transform_ns * tiles * points * (in + features) / lanes;
}
static double direct_ns(const struct winograd_row *r, const struct hlo_instr *i) {
    int lanes = r->vector_bits / 32;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    double in = up(i->operands[1]->shape->dims[1], lanes), groups = (double)c->feature_group_count,
           features = groups * up(i->shape->dims[1] / c->feature_group_count, lanes),
           positions = (double)(shape_elements(i->shape) / i->shape->dims[1]);
    for (int d = 0; d < c->window.n; d++)
        in *= (double)c->window.v[d].size;
    return with_weights(r, 2 * positions * in * features / r->direct, 4 * in * features);
}
static const struct winograd_row *winograd_row(void) {
    for (size_t k = 0; k < sizeof winograd_rows / sizeof *winograd_rows; k++)
        if (winograd_rows[k].vector_bits == cpu_target()->vector_bits) return &winograd_rows[k];
    return NULL;
}
// The tile that pays for a convolution of this form, whatever its types; 0: none. ns: what it
// takes.
static int winograd_pays(const struct winograd_row *r, const struct hlo_instr *i, double *ns) {
    enum { LEAST_CHANNELS = 8 };
    *ns = direct_ns(r, i);
    if (!winograd_form(i) || i->operands[1]->shape->dims[1] < LEAST_CHANNELS) return 0;
    double two = winograd_ns(r, i, 2), four = winograd_ns(r, i, 4);
    int m = four < .9 * two ? 4 : 2; // the smaller tile errs less and has half the weights
    double best = m == 4 ? four : two;
    if (best >= .9 * *ns) return 0;
    *ns = best;
    return m;
}
int cpu_winograd_tile(const struct hlo_instr *i) {
    enum { SMALL = 3 };
    const char *forced = cpu_forced_impl();
    const struct winograd_row *r = winograd_row();
    if (i->op != HLO_CONVOLUTION || !winograd_form(i) || lib_sums_as_written(i)) return 0;
    if (i->shape->dtype != DT_F32 || i->operands[0]->shape->dtype != DT_F32 ||
        i->operands[1]->shape->dtype != DT_F32)
        return 0;
    const int64_t *out = i->shape->dims;
    if (forced && strcmp(forced, "winograd") != 0) return 0;
    if (cpu_asked()->variant) return cpu_asked()->variant == WINOGRAD_2X2 ? 2 : 4;
    if (forced) return out[2] > SMALL && out[3] > SMALL ? 4 : 2;
    double ns;
    return r ? winograd_pays(r, i, &ns) : 0;
}

// ---- convolutions of 8-bit integers

// What one thread takes, ns, measured as the rows above (chains of quantised convolutions, 3 to 256
// channels, windows of 1 and 3, groups of 1 to 8): for a row of results of a group, and more for
// each run of bytes behind the first; for each panel of 16 columns; and for four terms of each.
// f32: for a row of results.
bool cpu_pairs_better(const struct hlo_instr *i) {
    enum { PANEL = 16, QUAD = 4 };
    const double row = 14, run = 2, panel = 10, quad = .77, row_f32 = 10, margin = .95;
    const struct winograd_row *r = winograd_row();
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct shape *w = i->operands[1]->shape;
    if (cpu_forced_impl() || !r || r->vector_bits != 256) return true;
    int64_t taps = 1, groups = c->feature_group_count, across = 1;
    for (int d = 0; d < c->window.n; d++)
        taps *= c->window.v[d].size;
    if (groups == 1) across = c->window.v[c->window.n - 1].size; // pixels that are one run
    double positions = (double)(shape_elements(i->shape) / i->shape->dims[1]),
           panels = up(w->dims[0] / groups, PANEL) / PANEL, runs = (double)(taps / across),
           quads = runs * up(across * w->dims[1], QUAD) / QUAD;

    double ours = (double)groups * (row + run * (runs - 1) + panels * (panel + quad * quads)), f32;
    if (!winograd_pays(r, i, &f32) || lib_sums_as_written(i)) f32 = direct_ns(r, i);
    return ours < margin * (f32 / positions + row_f32);
}

// ---- products of f32

// Targets whose products are ours from so many rows, columns and bytes of the right operand on,
// measured beside thin and oneDNN 2.6. AVX2 on Zen 3: 500 random products, bound ones 1.6 times as
// fast up to 16 rows and 1.1 times beyond, others 1.5 and 1.2 times. AVX-512 on Zen 5, 120 random
// ones of bound weights: from 1 MB on 1.2 to 1.5 times up to 40 rows, 1.05 up to 150, 1.02 beyond,
// since the next panel comes from memory while one is multiplied; smaller ones 0.9 to 1. Fewer
// columns leave a vector's lanes empty. Right operands that are not bound are read by terms, or
// along the terms of each column (turned), which thin does as they lie; far: of more bytes than
// pages are at hand for. Without Zen 5's wide data path (Zen 4, chains of 120 MB of bound weights
// by 13 to 256 rows) thin is 1.15 times as fast up to 16 rows, panels are 1.03 to 1.4 times up to
// 40, and the library, which copies its left operand, is 1.04 to 1.14 times from 128 rows on and
// from 50 on where weights are far. Targets without a row leave all of them to these.
enum { NEVER = 1 << 30, ALWAYS = 1 << 30 };
static const struct matmul_row {
    int vector_bits;
    bool wide; // cpu_has_wide_path
    int64_t bound_rows, rows, far_rows, turned_rows, turned_far_rows, columns, far_bytes, bytes,
        kept_rows, kept_bytes, most_rows, most_far_rows; // the last two: bound ones
} matmul_rows[] = {
    {256, false, 3, 5, 6, 8, 12, 10, 8 << 20, 0, 3, 0, ALWAYS, ALWAYS},
    {512, true, 13, NEVER, NEVER, NEVER, NEVER, 64, 8 << 20, 1 << 20, 13, 1 << 17, ALWAYS, ALWAYS},
    {512, false, 17, NEVER, NEVER, NEVER, NEVER, 64, 8 << 20, 1 << 20, 13, 1 << 17, 100, 40}};

static bool matmul_rows_of(const struct matmul_row *r, const struct hlo_instr *i, bool bound,
                           bool kept, int64_t rows) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *right = i->operands[1]->shape;
    bool turned = i64s_has(d->rhs_contracting_dims, right->rank - 1),
         far = shape_bytes(right) > r->far_bytes;
    if (kept) return rows >= r->kept_rows;
    if (bound) return rows >= r->bound_rows && rows <= (far ? r->most_far_rows : r->most_rows);
    return rows >= (turned ? far ? r->turned_far_rows : r->turned_rows
                    : far  ? r->far_rows
                           : r->rows);
}
bool cpu_matmul_better(const struct hlo_instr *i, bool bound, bool kept) {
    const char *forced = cpu_forced_impl();
    if (i->op != HLO_DOT || i->shape->dtype != DT_F32) return false;
    if (forced) return strcmp(forced, "matmul") == 0;
    struct cpu_sizes s = cpu_sizes_of(i);
    const struct target *target = cpu_target();
    for (size_t k = 0; k < sizeof matmul_rows / sizeof *matmul_rows; k++) {
        const struct matmul_row *r = &matmul_rows[k];
        if (r->vector_bits == target->vector_bits &&
            (r->vector_bits < 512 || r->wide == cpu_has_wide_path()))
            return matmul_rows_of(r, i, bound, kept, s.m) && s.n >= r->columns &&
                   shape_bytes(i->operands[1]->shape) >= (kept ? r->kept_bytes : r->bytes);
    }
    return false;
}

// 1x1 convolutions of f32 over blocks of channels (AVX-512): tiles of our own, of an even number of
// pixels each, beside oneDNN's jit_1x1, which multiplies the channels that fill up a block too.
// Measured on Zen 5, 40 random ones of 8 to 1024 channels and images of 3 to 80: 0.99 to 2 times
// its speed. Results of few terms that go to memory it writes past the caches, twice as fast.
bool cpu_pointwise_better(const struct hlo_instr *i) {
    enum { PIXELS = 7, TERMS = 128, FAR = 4 << 20 }; // fewer pixels: too few sums at a time
    const char *forced = cpu_forced_impl();
    if (forced) return strcmp(forced, "pointwise") == 0;
    int64_t pixels = 1;
    for (int d = 2; d < i->shape->rank; d++)
        pixels *= i->shape->dims[d];
    return pixels >= PIXELS &&
           (i->operands[0]->shape->dims[1] > TERMS || shape_bytes(i->shape) <= FAR);
}

// Convolutions of each channel alone by square windows (AVX-512): tiles multiply what a window has
// beside the image, and what a row's last tile has beside the row, which the library skips.
// Measured on Zen 5, 96 channels, images of 5 to 56, windows of 3, 5 and 7: 1.2 to 1.6, 1.1 to 1.4
// and 1 to 1.2 times its speed where nearly all counts, slower where less than these shares do.
bool cpu_taps_better(const struct hlo_instr *i, int64_t across) {
    enum { FEW = 4 }; // channels, or results in a row
    const double least_of_3 = .7, least = .8, copied = .8;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const int64_t *in = i->operands[0]->shape->dims, *out = i->shape->dims;
    if (cpu_forced_impl()) return strcmp(cpu_forced_impl(), "depthwise") == 0;
    if (out[1] <= FEW || out[3] <= FEW) return false;
    double share = (double)out[3] / up(out[3], across);
    if (out[3] < across) share *= copied;
    for (int d = 0; d < 2; d++)
        share *= within(&c->window.v[d], in[d + 2], out[d + 2]);
    return share >= (c->window.v[0].size == 3 ? least_of_3 : least);
}

// Only where a tuning, or HLOD_CPU_IMPL, asks for them: what they take beside the library's was not
// measured yet (docs/performance.md, "Precision fast"), so that none is chosen unmeasured.
bool cpu_amx_better(void) {
    const char *forced = cpu_forced_impl();
    return forced && strcmp(forced, "amx") == 0;
}
