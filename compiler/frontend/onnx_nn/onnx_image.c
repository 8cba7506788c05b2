// SPDX-License-Identifier: Apache-2.0
// Sampling an image at computed places: GridSample, AffineGrid, RoiAlign, CropAndResize,
// MaxRoiPool, DeformConv. An image is seen as [batch, pixels, channels]; places are [batch,
// points], one value for each spatial dimension. A sample is a sum over taps: gather at the flat
// pixel number, times a weight. Of few channels it is seen as [batch, channels, pixels]: there is
// nothing to win by channels that are neighbours.
#include <math.h>

#include "compiler/frontend/onnx_nn/onnx_spatial.h"

enum { MAX_TAPS = 4, MAX_DIMS = 3, FEW_CHANNELS = 8 };
struct image {
    hv pixels; // [batch, flat, channels], or [batch, channels, flat] where not `last`
    bool last;
    int n; // spatial dimensions
    int64_t dims[MAX_DIMS];
    hv from; // s64[rows of places]: the image that each row samples; NULL: its own
};
struct taps { // of one dimension
    int n;
    hv at[MAX_TAPS];     // s64[batch, points], inside the image
    hv weight[MAX_TAPS]; // of the image's type; NULL = 1
};

// x with its channels in `parts` that are images of their own. samples: how many taps are taken, of
// all images; for few of them it is not worth while to move the pixels.
static struct image image_in(struct onnx_ctx *c, hv x, int64_t parts, double samples) {
    struct image m = {.n = x->shape->rank - 2};
    int64_t flat = 1, n = x->shape->dims[0] * parts, channels = x->shape->dims[1] / parts;
    for (int d = 0; d < m.n; d++)
        flat *= m.dims[d] = x->shape->dims[d + 2];
    m.last = channels >= FEW_CHANNELS && 4 * samples >= (double)n * (double)flat;
    m.pixels = hb_reshape(&c->b, x, (int64_t[]){n, channels, flat}, 3);
    if (m.last) m.pixels = onnx_swap_axes(c, m.pixels, 1, 2);
    return m;
}
static struct image image_of(struct onnx_ctx *c, hv x, double samples) {
    return image_in(c, x, 1, samples);
}
static int channels_at(const struct image *m) {
    return m->last ? 2 : 1;
}
// Samples of m with the channels second, or last.
static hv samples_with(struct onnx_ctx *c, const struct image *m, hv y, bool last) {
    return m->last == last ? y : onnx_swap_axes(c, y, 1, 2);
}
// A value of each point, for all channels.
static hv each_point(struct onnx_ctx *c, const struct image *m, hv w, const struct shape *s) {
    return hb_broadcast(&c->b, w, s->dims, 3, (int64_t[]){0, m->last ? 1 : 2});
}

// m at [batch, points]: the channels stand where they do in m.
static hv pick(struct onnx_ctx *c, const struct image *m, hv at) {
    int64_t flat = m->last ? 1 : 2, map[2] = {0, flat}, offset = channels_at(m);
    int64_t sizes[3] = {1, 1, 1};
    sizes[offset] = m->pixels->shape->dims[offset];
    const struct shape *s = shape_make(c->a, DT_S64, at->shape->dims, 2);
    hv of = m->from ? onnx_along(c, m->from, s, 0) : hb_iota(&c->b, s, 0);
    hv idx = onnx_stack_last(c, (hv[]){of, at}, 2);
    struct hlo_attr_gather g = {.offset_dims = {&offset, 1},
                                .collapsed_slice_dims = {map, 2},
                                .start_index_map = {map, 2},
                                .index_vector_dim = 2,
                                .slice_sizes = {sizes, 3}};
    return hb_gather(&c->b, m->pixels, idx, &g);
}
// One product of taps: its value in every channel, weighted.
static hv tap(struct onnx_ctx *c, const struct image *m, const struct taps *t, const int *which) {
    struct hb *b = &c->b;
    hv at = NULL, w = NULL;
    for (int d = 0; d < m->n; d++) {
        hv a = t[d].at[which[d]], v = t[d].weight[which[d]];
        at = at ? hb_add(b, onnx_mul_k(c, at, (double)m->dims[d]), a) : a;
        if (v) w = w ? hb_mul(b, w, v) : v;
    }
    hv x = pick(c, m, at);
    return w ? hb_mul(b, x, each_point(c, m, w, x->shape)) : x;
}
typedef hv (*tap_join)(struct hb *b, hv x, hv y);
static hv all_taps(struct onnx_ctx *c, const struct image *m, const struct taps *t, tap_join join) {
    int which[MAX_DIMS] = {0};
    hv sum = NULL;
    for (;;) {
        hv one = tap(c, m, t, which);
        sum = sum ? join(&c->b, sum, one) : one;
        int d = m->n - 1;
        for (; d >= 0 && ++which[d] == t[d].n; d--)
            which[d] = 0;
        if (d < 0) return sum;
    }
}

// ---- grids

enum padding_mode { PADDING_ZEROS, PADDING_BORDER, PADDING_REFLECTION };
struct grid {
    enum padding_mode padding;
    bool corners;
    int order; // 1 nearest, 2 linear, 4 cubic
};

// Reflected at the image's edges until it lies inside.
static hv reflected(struct onnx_ctx *c, hv x, int64_t size, bool corners) {
    struct hb *b = &c->b;
    double lo = corners ? 0 : -0.5, hi = corners ? (double)size - 1 : (double)size - 0.5;
    if (hi <= lo) return onnx_splat_like(c, x, 0);
    double span = hi - lo;
    hv d = hb_unary(b, HLO_ABS, onnx_add_k(c, x, -lo));
    d = hb_binary(b, HLO_REMAINDER, d, onnx_splat_like(c, d, 2 * span));
    hv back = hb_sub(b, onnx_splat_like(c, d, 2 * span), d);
    d = hb_select(b, onnx_compare_k(c, d, span, CMP_GT), back, d);
    return hb_select(b, onnx_within(c, x, lo, hi), x, onnx_add_k(c, d, lo));
}
// A whole position (as a float) as an index, and 0 in *inside where it counts as empty.
static hv settle(struct onnx_ctx *c, const struct grid *g, hv x, int64_t size, hv *inside) {
    struct hb *b = &c->b;
    *inside = g->padding == PADDING_ZEROS ? onnx_within(c, x, 0, (double)size - 1) : NULL;
    if (g->padding == PADDING_REFLECTION) x = reflected(c, x, size, g->corners);
    x = hb_clamp(b, hb_const_f64(b, x->shape->dtype, 0), x,
                 hb_const_f64(b, x->shape->dtype, (double)size - 1));
    return hb_convert(b, x, DT_S64);
}
static hv cubic_weight(struct onnx_ctx *c, hv d, bool near) { // Keys, a = -0.75
    struct hb *b = &c->b;
    const double a = -0.75;
    if (near) { // |d| <= 1
        hv r = onnx_add_k(c, onnx_mul_k(c, d, a + 2), -(a + 3));
        return onnx_add_k(c, hb_mul(b, hb_mul(b, r, d), d), 1);
    }
    hv r = onnx_add_k(c, onnx_mul_k(c, d, a), -5 * a);
    r = onnx_add_k(c, hb_mul(b, r, d), 8 * a);
    return onnx_add_k(c, hb_mul(b, r, d), -4 * a);
}
static struct taps grid_taps(struct onnx_ctx *c, const struct grid *g, hv x, int64_t size,
                             enum dtype t) {
    struct hb *b = &c->b;
    struct taps r = {.n = g->order};
    if (g->order == 1) x = hb_unary(b, HLO_ROUND_EVEN, x);
    if (g->padding == PADDING_BORDER && g->order < 4) // cubic: each tap by itself
        x = hb_clamp(b, hb_const_f64(b, x->shape->dtype, 0), x,
                     hb_const_f64(b, x->shape->dtype, (double)size - 1));
    if (g->padding == PADDING_REFLECTION) x = reflected(c, x, size, g->corners);
    hv low = g->order == 1 ? x : hb_unary(b, HLO_FLOOR, x), f = hb_sub(b, x, low);
    for (int k = 0; k < g->order; k++) {
        int offset = g->order == 4 ? k - 1 : k;
        hv inside, w = NULL;
        r.at[k] = settle(c, g, onnx_add_k(c, low, offset), size, &inside);
        if (g->order == 2) w = k ? f : hb_sub(b, onnx_splat_like(c, f, 1), f);
        if (g->order == 4) {
            hv d = offset <= 0 ? onnx_add_k(c, f, -offset)
                               : hb_sub(b, onnx_splat_like(c, f, offset), f);
            w = cubic_weight(c, d, k == 1 || k == 2);
        }
        if (inside)
            w = w ? hb_select(b, inside, w, onnx_splat_like(c, w, 0)) : hb_convert(b, inside, t);
        r.weight[k] = w ? hb_convert(b, w, t) : NULL;
    }
    return r;
}

ONNX_X(gridsample) {
    hv grid = onnx_in_val(c, 1);
    int n = x->shape->rank - 2;
    int64_t dims[HLO_MAX_RANK], points = 1;
    struct str mode = onnx_at_str(c, "mode", "linear"),
               pad = onnx_at_str(c, "padding_mode", "zeros");
    struct grid g = {.corners = onnx_at_int(c, "align_corners", 0) != 0};
    struct taps t[MAX_DIMS];

    g.order = str_is(mode, "nearest")                            ? 1
              : str_is(mode, "cubic") || str_is(mode, "bicubic") ? 4
                                                                 : 2;
    g.padding = str_is(pad, "border")       ? PADDING_BORDER
                : str_is(pad, "reflection") ? PADDING_REFLECTION
                                            : PADDING_ZEROS;

    if (n < 1 || n > MAX_DIMS || grid->shape->rank != n + 2 || grid->shape->dims[n + 1] != n ||
        grid->shape->dims[0] != x->shape->dims[0])
        return onnx_fail(c, "input %s with grid %s", onnx_show(c, x), onnx_show(c, grid));
    dims[0] = x->shape->dims[0], dims[1] = x->shape->dims[1];
    for (int d = 0; d < n; d++) {
        points *= dims[d + 2] = grid->shape->dims[d + 1];
        if (x->shape->dims[d + 2] == 0) return onnx_fail(c, "an image without pixels");
    }
    if (shape_elements(x->shape) == 0) // no image, or none of its channels
        return onnx_out_val(c, 0, hb_splat(b, shape_make(c->a, x->shape->dtype, dims, n + 2), 0));

    struct image m = image_of(c, x, (double)(x->shape->dims[0] * points) * pow(g.order, n));
    grid = hb_reshape(b, grid, (int64_t[]){x->shape->dims[0], points, n}, 3);

    for (int d = 0; d < n; d++) { // the grid's last component is the first dimension
        double size = (double)m.dims[d];
        hv v = onnx_row(c, grid, 2, n - 1 - d);
        v = onnx_add_k(c, v, 1);
        v = g.corners ? onnx_mul_k(c, v, (size - 1) / 2)
                      : onnx_mul_k(c, onnx_add_k(c, onnx_mul_k(c, v, size), -1), 0.5);
        t[d] = grid_taps(c, &g, v, m.dims[d], x->shape->dtype);
    }

    hv y = samples_with(c, &m, all_taps(c, &m, t, hb_add), false);
    onnx_out_val(c, 0, hb_reshape(b, y, dims, n + 2));
}

ONNX(affinegrid) { // theta [N, n, n+1] times the homogeneous coordinates of every point
    hv theta = onnx_in_val(c, 0);
    int64_t size[HLO_MAX_RANK], dims[HLO_MAX_RANK], points = 1, two = 2, one = 1;
    int rank, n;
    bool corners = onnx_at_int(c, "align_corners", 0) != 0;

    if (!onnx_in_ints(c, 1, size, HLO_MAX_RANK, &rank)) return;
    n = rank - 2;
    if (n < 2 || n > 3 || theta->shape->rank != 3 || theta->shape->dims[1] != n ||
        theta->shape->dims[2] != n + 1)
        return onnx_fail(c, "theta %s for %d dimensions", onnx_show(c, theta), rank);

    for (int d = 0; d < n; d++)
        if (size[d + 2] < 1 || !sz_mul(points, size[d + 2], &points) || points > 1 << 26)
            return onnx_fail(c, "size %lld", (long long)size[d + 2]);

    double *v = arena_array(c->a, double, points *(n + 1));
    for (int64_t p = 0; p < points; p++) {
        int64_t rest = p;
        for (int d = n - 1; d >= 0; d--) {
            double k = (double)(rest % size[d + 2]), len = (double)size[d + 2];
            rest /= size[d + 2];
            v[p * (n + 1) + n - 1 - d] =
                corners ? (len == 1 ? -1 : -1 + 2 * k / (len - 1)) : -1 + (2 * k + 1) / len;
        }
        v[p * (n + 1) + n] = 1;
    }

    hv base = onnx_lit_f64s(c, theta->shape->dtype, v, (int64_t[]){points, n + 1}, 2);
    hv y = hb_dot_over(b, theta, base, two, one);

    dims[0] = theta->shape->dims[0], dims[n + 1] = n;
    for (int d = 0; d < n; d++)
        dims[d + 1] = size[d + 2];
    onnx_out_val(c, 0, hb_reshape(b, hb_transpose(b, y, (int64_t[]){0, 2, 1}), dims, n + 2));
}

// ---- regions

// Linear taps along one side of a region's samples; outside [-1, size] the weight is 0.
static struct taps roi_taps(struct onnx_ctx *c, hv x, int64_t size) {
    struct hb *b = &c->b;
    double last = (double)size - 1;
    struct taps r = {.n = 2};
    hv zero = hb_const_f64(b, x->shape->dtype, 0), end = hb_const_f64(b, x->shape->dtype, last);
    hv inside = onnx_within(c, x, -1, (double)size), none = onnx_splat_like(c, x, 0);
    x = hb_clamp(b, zero, x, end);
    hv low = hb_unary(b, HLO_FLOOR, x), f = hb_sub(b, x, low);
    r.at[0] = hb_convert(b, low, DT_S64);
    r.at[1] = hb_convert(b, hb_clamp(b, zero, onnx_add_k(c, low, 1), end), DT_S64);
    r.weight[0] = hb_select(b, inside, hb_sub(b, onnx_splat_like(c, f, 1), f), none);
    r.weight[1] = hb_select(b, inside, f, none);
    return r;
}
// Divided, for its ends are rounded up: 7 * (1 / 7.) is above 1.
static hv bin_size(struct onnx_ctx *c, hv size, int64_t bins) {
    return hb_div(&c->b, size, onnx_splat_like(c, size, (double)bins));
}
// Positions [rois, bins*samples] along one side: start + (bin + (sample + 0.5) / samples) * size.
static hv roi_positions(struct onnx_ctx *c, hv from, hv size, int64_t bins, int64_t samples) {
    int64_t n = bins * samples, dims[2] = {from->shape->dims[0], n};
    double *v = arena_array(c->a, double, n + 1);
    for (int64_t k = 0; k < n; k++)
        v[k] = ((double)k + 0.5) / (double)samples;
    const struct shape *s = shape_make(c->a, from->shape->dtype, dims, 2);
    hv at = onnx_along(c, onnx_lit_f64s(c, from->shape->dtype, v, &n, 1), s, 1);
    return hb_add(&c->b, onnx_along(c, from, s, 0), hb_mul(&c->b, at, onnx_along(c, size, s, 0)));
}
// [rois, p] and [rois, q] over all pairs, [rois, p*q].
static hv pairs(struct onnx_ctx *c, hv x, int64_t p, int64_t q, bool first) {
    int64_t n = x->shape->dims[0], dims[3] = {n, p, q}, flat[2] = {n, p * q};
    x = hb_broadcast(&c->b, x, dims, 3, (int64_t[]){0, first ? 1 : 2});
    return hb_reshape(&c->b, x, flat, 2);
}
// Where each region has a number of samples of its own, ceil(size of a bin) along each side: sample
// t of all regions at a time, as long as any has one that may lie on the image. A side of a bin has
// no more of those than the image takes at their distance, however large the region is: the others,
// which are 0, are not looked at.
struct roi_samples {
    int64_t out[2]; // bins
    struct image m;
    bool max;
};
enum {
    ROI_LIMIT,
    ROI_SUM,
    ROI_IMAGE,
    ROI_OF,
    ROI_FROM,
    ROI_BIN = ROI_FROM + 2,
    ROI_GRID = ROI_BIN + 2,
    ROI_FIRST = ROI_GRID + 2, // f[rois, bins]: of the samples that are looked at
    ROI_TURNS = ROI_FIRST + 2,
    ROI_N = ROI_TURNS + 2
};
static hv roi_sample_at(struct onnx_ctx *c, hv const *v, int d, hv k, int64_t bins) {
    struct hb *b = &c->b;
    enum dtype t = v[ROI_BIN]->shape->dtype;
    const struct shape *s = shape_make(c->a, t, (int64_t[]){v[ROI_BIN]->shape->dims[0], bins}, 2);
    hv bin = onnx_along(c, v[ROI_BIN + d], s, 0),
       n = onnx_along(c, hb_convert(b, v[ROI_GRID + d], t), s, 0);
    hv at = hb_add(b, onnx_along(c, v[ROI_FROM + d], s, 0),
                   hb_mul(b, hb_convert(b, onnx_index_along(c, s, DT_S64, 1), t), bin));
    hv turn = hb_add(b, onnx_along(c, hb_convert(b, k, t), s, 0), v[ROI_FIRST + d]);
    at = hb_add(b, at, hb_div(b, hb_mul(b, onnx_add_k(c, turn, 0.5), bin), n));
    return hb_select(b, hb_compare(b, turn, n, CMP_LT), at, onnx_splat_like(c, at, -2));
}
// Which samples of each bin may lie on an image of this size: from ROI_FIRST on, ROI_TURNS of them.
static void roi_turns(struct onnx_ctx *c, hv *v, int d, int64_t bins, int64_t size) {
    struct hb *b = &c->b;
    enum dtype t = v[ROI_BIN]->shape->dtype;
    const struct shape *s = shape_make(c->a, t, (int64_t[]){v[ROI_BIN]->shape->dims[0], bins}, 2);
    hv n = hb_convert(b, v[ROI_GRID + d], t), apart = hb_div(b, v[ROI_BIN + d], n);
    hv most =
        hb_unary(b, HLO_CEIL, hb_div(b, onnx_splat_like(c, apart, (double)(size + 1)), apart));
    most = onnx_add_k(c, most, 4);           // the first is up to two early
    hv few = hb_compare(b, most, n, CMP_LT); // false where they are NaN
    v[ROI_TURNS + d] = hb_convert(b, hb_select(b, few, most, n), DT_S64);
    hv bin = onnx_along(c, v[ROI_BIN + d], s, 0), wide = onnx_along(c, n, s, 0);
    hv at = hb_add(b, onnx_along(c, v[ROI_FROM + d], s, 0),
                   hb_mul(b, hb_convert(b, onnx_index_along(c, s, DT_S64, 1), t), bin));
    hv skip = hb_div(b, hb_sub(b, onnx_splat_like(c, at, -1), at), onnx_along(c, apart, s, 0));
    skip = hb_unary(b, HLO_FLOOR, onnx_add_k(c, skip, -1.5));
    hv some = onnx_and(c, onnx_compare_k(c, skip, 0, CMP_GT), onnx_along(c, few, s, 0));
    v[ROI_FIRST + d] =
        hb_select(b, some, hb_binary(b, HLO_MINIMUM, skip, wide), onnx_splat_like(c, skip, 0));
}
static void roi_sample(struct onnx_ctx *c, hv turn, hv *v, void *user) {
    const struct roi_samples *r = user;
    struct hb *b = &c->b;
    struct taps t[2];
    hv now = onnx_spread(c, turn, v[ROI_TURNS]->shape), y = hb_div(b, now, v[ROI_TURNS + 1]);
    hv at[2] = {y, hb_sub(b, now, hb_mul(b, y, v[ROI_TURNS + 1]))};
    hv valid = hb_compare(b, y, v[ROI_TURNS], CMP_LT);
    for (int d = 0; d < 2; d++) {
        t[d] = roi_taps(c, roi_sample_at(c, v, d, at[d], r->out[d]), r->m.dims[d]);
        for (int k = 0; k < 2; k++) {
            t[d].at[k] = pairs(c, t[d].at[k], r->out[0], r->out[1], d == 0);
            t[d].weight[k] = pairs(c, t[d].weight[k], r->out[0], r->out[1], d == 0);
        }
    }
    struct image m = r->m;
    m.pixels = v[ROI_IMAGE];
    m.from = v[ROI_OF];
    hv one = all_taps(c, &m, t, r->max ? hb_max : hb_add), sum = v[ROI_SUM];
    hv both = r->max ? hb_max(b, sum, one) : hb_add(b, sum, one);
    if (!hb_ok(b)) return;
    v[ROI_SUM] =
        hb_select(b, hb_broadcast(b, valid, sum->shape->dims, 3, (int64_t[]){0}), both, sum);
}
static hv roi_adaptive(struct onnx_ctx *c, hv x, hv batch, hv const *from, hv const *size,
                       struct roi_samples *r) {
    struct hb *b = &c->b;
    hv v[ROI_N] = {[ROI_IMAGE] = r->m.pixels, [ROI_OF] = batch}, all = NULL, any = NULL,
       turns = NULL, left = NULL;
    enum dtype t = x->shape->dtype;
    int64_t n = batch->shape->dims[0], axis = 0, dims[3] = {n};
    dims[channels_at(&r->m)] = x->shape->dims[1];
    dims[r->m.last ? 1 : 2] = r->out[0] * r->out[1];
    for (int d = 0; d < 2; d++) {
        hv bin = v[ROI_BIN + d] = bin_size(c, size[d], r->out[d]);
        hv grid = hb_clamp(b, hb_const_f64(b, t, 0), hb_unary(b, HLO_CEIL, bin),
                           hb_const_f64(b, t, 32768));
        hv some = onnx_compare_k(c, grid, 0, CMP_GT);
        v[ROI_FROM + d] = from[d];
        v[ROI_GRID + d] = hb_convert(b, hb_max(b, grid, onnx_splat_like(c, grid, 1)), DT_S64);
        any = any ? onnx_and(c, any, some) : some;
        all = all ? hb_mul(b, all, v[ROI_GRID + d]) : v[ROI_GRID + d];
        roi_turns(c, v, d, r->out[d], r->m.dims[d]);
        turns = turns ? hb_mul(b, turns, v[ROI_TURNS + d]) : v[ROI_TURNS + d];
        hv less = hb_compare(b, v[ROI_TURNS + d], v[ROI_GRID + d], CMP_LT);
        left = left ? hb_binary(b, HLO_OR, left, less) : less;
    }

    hv count = hb_select(b, any, turns, onnx_splat_like(c, turns, 0));
    v[ROI_LIMIT] =
        n ? onnx_reduce_keep(c, count, &axis, 1, HLO_MAXIMUM, false) : hb_const_i64(b, DT_S64, 0);
    v[ROI_SUM] = hb_splat(b, shape_make(c->a, t, dims, 3), r->max ? dtype_lowest(t) : 0);
    onnx_loop_times(c, -1, v, ROI_N, roi_sample, r);
    if (!hb_ok(b)) return x;
    hv some = hb_broadcast(b, any, dims, 3, (int64_t[]){0}), sum = v[ROI_SUM];
    hv each = hb_broadcast(b, hb_convert(b, all, t), dims, 3, (int64_t[]){0});
    if (r->max) { // those that were not looked at
        hv least = hb_max(b, sum, onnx_splat_like(c, sum, 0));
        sum = hb_select(b, hb_broadcast(b, left, dims, 3, (int64_t[]){0}), least, sum);
    }
    sum = hb_select(b, some, r->max ? sum : hb_div(b, sum, each), onnx_splat_like(c, sum, 0));
    return samples_with(c, &r->m, sum, false);
}
static bool takes_the_largest(struct onnx_ctx *c) {
    struct str mode = onnx_at_str(c, "mode", "avg");
    if (!onnx_says(mode, "max") && !onnx_says(mode, "avg"))
        onnx_fail(c, "mode '" STR_FMT "' is none of: avg max", STR_ARG(mode));
    return onnx_says(mode, "max");
}
static bool rois_fit(struct onnx_ctx *c, hv x, hv rois, hv batch, const int64_t *out,
                     int64_t samples) {
    int64_t n = rois->shape->rank ? rois->shape->dims[0] : 0;
    if (x->shape->rank != 4 || rois->shape->rank != 2 || rois->shape->dims[1] != 4 ||
        batch->shape->rank != 1 || out[0] < 1 || out[1] < 1 || out[0] > 4096 || out[1] > 4096 ||
        samples > 256)
        onnx_fail(c, "input %s, rois %s", onnx_show(c, x), onnx_show(c, rois));
    else if (batch->shape->dims[0] != n)
        onnx_fail(c, "%lld rois of %lld images", (long long)n, (long long)batch->shape->dims[0]);
    else if (n > 0 && x->shape->dims[1] > 0 && shape_elements(x->shape) == 0)
        onnx_fail(c, "an image without pixels");
    return hb_ok(&c->b);
}

ONNX_X(roialign) {
    hv rois = onnx_in_val(c, 1), batch = hb_convert(b, onnx_in_val(c, 2), DT_S64);
    int64_t out[2] = {onnx_at_int(c, "output_height", 1), onnx_at_int(c, "output_width", 1)},
            samples = onnx_at_int(c, "sampling_ratio", 0), span[2];
    double scale = onnx_at_float(c, "spatial_scale", 1);
    struct str way = onnx_at_str(c, "coordinate_transformation_mode",
                                 c->opset >= 16 ? "half_pixel" : "output_half_pixel");
    bool half = str_is(way, "half_pixel"), max = takes_the_largest(c);
    struct taps t[2];

    if (!rois_fit(c, x, rois, batch, out, samples)) return;
    int64_t n = rois->shape->dims[0], ch = x->shape->dims[1], y_dims[] = {n, ch, out[0], out[1]};
    if (n == 0 || ch == 0)
        return onnx_out_val(c, 0, hb_splat(b, shape_make(c->a, x->shape->dtype, y_dims, 4), 0));

    rois =
        onnx_add_k(c, onnx_mul_k(c, hb_convert(b, rois, x->shape->dtype), scale), half ? -0.5 : 0);
    hv from[2], size[2];
    for (int d = 0; d < 2; d++) { // rois are x1, y1, x2, y2
        from[d] = onnx_row(c, rois, 1, 1 - d);
        size[d] = hb_sub(b, onnx_row(c, rois, 1, 3 - d), from[d]);
        if (!half) size[d] = hb_max(b, size[d], onnx_splat_like(c, size[d], 1));
    }

    if (!hb_ok(b)) return;
    if (samples < 1) {
        double some = 16.0 * (double)(n * out[0] * out[1]); // two along each side
        struct roi_samples r = {{out[0], out[1]}, image_of(c, x, some), max};
        hv all = roi_adaptive(c, x, batch, from, size, &r);
        return onnx_out_val(c, 0, hb_reshape(b, all, y_dims, 4));
    }

    for (int d = 0; d < 2; d++) {
        span[d] = out[d] * samples;
        hv at = roi_positions(c, from[d], bin_size(c, size[d], out[d]), out[d], samples);
        t[d] = roi_taps(c, at, x->shape->dims[d + 2]);
    }
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 2; k++) {
            t[d].at[k] = pairs(c, t[d].at[k], span[0], span[1], d == 0);
            t[d].weight[k] = pairs(c, t[d].weight[k], span[0], span[1], d == 0);
        }

    struct image m = image_of(c, x, 4.0 * (double)(n * span[0]) * (double)span[1]);
    m.from = batch;
    hv y = all_taps(c, &m, t, max ? hb_max : hb_add); // max: of the weighted corners
    int64_t first = m.last ? 1 : 2, axes[2] = {first + 1, first + 3}, dims[6] = {n};
    dims[m.last ? 5 : 1] = ch;
    for (int d = 0; d < 2; d++)
        dims[first + 2 * d] = out[d], dims[first + 2 * d + 1] = samples;
    y = hb_reshape(b, y, dims, 6);
    y = max ? onnx_reduce_keep(c, y, axes, 2, HLO_MAXIMUM, false)
            : onnx_mean_of(c, y, axes, 2, false);
    onnx_out_val(c, 0, m.last && hb_ok(b) ? hb_transpose(b, y, (int64_t[]){0, 3, 1, 2}) : y);
}

// Positions [rois, n] along one side: from the first to the last of the box's, both exactly.
static hv crop_positions(struct onnx_ctx *c, hv from, hv to, int64_t n, int64_t size) {
    struct hb *b = &c->b;
    double last = (double)(size - 1);
    const struct shape *s =
        shape_make(c->a, from->shape->dtype, (int64_t[]){from->shape->dims[0], n}, 2);
    if (n == 1) return hb_reshape(b, onnx_mul_k(c, hb_add(b, from, to), 0.5 * last), s->dims, 2);
    hv start = onnx_mul_k(c, from, last), end = onnx_mul_k(c, to, last);
    hv step = hb_sub(b, to, from);
    step = hb_div(b, onnx_mul_k(c, step, last), onnx_splat_like(c, step, (double)(n - 1)));
    hv k = onnx_index_along(c, s, DT_S64, 1), at = hb_convert(b, k, s->dtype);
    at = hb_add(b, onnx_along(c, start, s, 0), hb_mul(b, at, onnx_along(c, step, s, 0)));
    hv ends = hb_compare(b, k, onnx_splat_like(c, k, (double)(n - 1)), CMP_EQ);
    return hb_select(b, ends, onnx_along(c, end, s, 0), at);
}
// The taps at positions that lie inside the image.
static struct taps crop_taps(struct onnx_ctx *c, hv x, int64_t size, bool nearest) {
    struct hb *b = &c->b;
    struct taps r = {.n = nearest ? 1 : 2};
    hv zero = hb_const_f64(b, x->shape->dtype, 0);
    x = hb_clamp(b, zero, x, hb_const_f64(b, x->shape->dtype, (double)(size - 1)));
    hv low = hb_unary(b, nearest ? HLO_ROUND_AFZ : HLO_FLOOR, x);
    r.at[0] = hb_convert(b, low, DT_S64);
    if (nearest) return r;
    hv f = hb_sub(b, x, low);
    r.at[1] = hb_convert(b, hb_unary(b, HLO_CEIL, x), DT_S64);
    r.weight[0] = hb_sub(b, onnx_splat_like(c, f, 1), f);
    r.weight[1] = f;
    return r;
}
ONNX_X(cropandresize) { // x, boxes y1 x1 y2 x2 in parts of the image, their images, the size
    hv rois = onnx_in_val(c, 1), which = onnx_in_val(c, 2), inside = NULL;
    int64_t out[2];
    int n;
    struct str mode = onnx_at_str(c, "mode", "bilinear");
    bool nearest = str_is(mode, "nearest");
    struct taps t[2];

    if (!onnx_in_ints(c, 3, out, 2, &n)) return;
    if (!nearest && !str_is(mode, "bilinear"))
        return onnx_fail(c, "mode \"%.*s\"", (int)mode.n, mode.p);
    if (n != 2 || out[0] < 1 || out[1] < 1 || out[0] > 1 << 15 || out[1] > 1 << 15)
        return onnx_fail(c, "crop_size: expected two positive numbers");
    if (x->shape->rank != 4 || rois->shape->rank != 2 || rois->shape->dims[1] != 4 ||
        which->shape->rank != 1 || which->shape->dims[0] != rois->shape->dims[0] ||
        !dtype_is_float(x->shape->dtype) || shape_elements(x->shape) == 0)
        return onnx_fail(c, "input %s, rois %s, batch_indices %s", onnx_show(c, x),
                         onnx_show(c, rois), onnx_show(c, which));

    rois = hb_convert(b, rois, x->shape->dtype);
    for (int d = 0; d < 2; d++) {
        int64_t size = x->shape->dims[d + 2];
        hv at =
            crop_positions(c, onnx_row(c, rois, 1, d), onnx_row(c, rois, 1, d + 2), out[d], size);
        at = pairs(c, at, out[0], out[1], d == 0);
        hv in = onnx_within(c, at, 0, (double)(size - 1));
        inside = inside ? onnx_and(c, inside, in) : in;
        t[d] = crop_taps(c, at, size, nearest);
    }

    struct image m = image_of(c, x, 4.0 * (double)(rois->shape->dims[0] * out[0]) * (double)out[1]);
    m.from = hb_convert(b, which, DT_S64);
    hv y = all_taps(c, &m, t, hb_add);
    if (!hb_ok(b)) return;

    inside = each_point(c, &m, inside, y->shape);
    y = hb_select(b, inside, y, onnx_splat_like(c, y, onnx_at_float(c, "extrapolation_value", 0)));
    y = samples_with(c, &m, y, false);
    onnx_out_val(
        c, 0,
        hb_reshape(b, y, (int64_t[]){y->shape->dims[0], y->shape->dims[1], out[0], out[1]}, 4));
}

// Which of `size` positions lie in bin k of a region: pred[rois, bins, size].
static hv roi_bins(struct onnx_ctx *c, hv from, hv to, int64_t bins, int64_t size) {
    struct hb *b = &c->b;
    hv len = hb_max(b, onnx_add_k(c, hb_sub(b, to, from), 1), onnx_splat_like(c, from, 1));
    int64_t dims[3] = {from->shape->dims[0], bins, size};
    const struct shape *s = shape_make(c->a, from->shape->dtype, dims, 3);
    hv each = onnx_along(c, bin_size(c, len, bins), s, 0), start = onnx_along(c, from, s, 0);
    hv k = hb_convert(b, onnx_index_along(c, s, DT_S32, 1), s->dtype);
    hv at = hb_convert(b, onnx_index_along(c, s, DT_S32, 2), s->dtype);
    hv lo = hb_add(b, hb_unary(b, HLO_FLOOR, hb_mul(b, k, each)), start);
    hv hi = hb_add(b, hb_unary(b, HLO_CEIL, hb_mul(b, onnx_add_k(c, k, 1), each)), start);
    return onnx_and(c, hb_compare(b, at, lo, CMP_GE), hb_compare(b, at, hi, CMP_LT));
}
// x [rois, channels, ..] reduced along `axis` by each bin; a new dimension of bins takes its place.
static hv bin_maximum(struct onnx_ctx *c, hv x, hv in, int64_t axis) {
    struct hb *b = &c->b;
    int64_t dims[5], map[4], over = axis + 1;
    for (int d = 0; d < 4; d++) {
        map[d] = d < axis ? d : d + 1;
        dims[map[d]] = x->shape->dims[d];
    }
    dims[axis] = in->shape->dims[1];
    x = hb_broadcast(b, x, dims, 5, map);
    in = hb_broadcast(b, in, dims, 5, (int64_t[]){0, axis, over});
    hv none = onnx_splat_like(c, x, dtype_lowest(x->shape->dtype));
    return onnx_reduce_keep(c, hb_select(b, in, x, none), &over, 1, HLO_MAXIMUM, false);
}
ONNX_X(maxroipool) { // rois: batch, x1, y1, x2, y2, rounded to pixels; an empty bin gives 0
    hv rois = onnx_in_val(c, 1), in[2];
    int64_t out[2];
    int n;
    if (!onnx_at_ints(c, "pooled_shape", out, 2, &n) || n != 2 || x->shape->rank != 4 ||
        rois->shape->rank != 2 || rois->shape->dims[1] != 5 || out[0] < 1 || out[1] < 1)
        return onnx_fail(c, "input %s, rois %s", onnx_show(c, x), onnx_show(c, rois));
    hv at = onnx_mul_k(c, rois, onnx_at_float(c, "spatial_scale", 1));
    at = hb_unary(b, HLO_ROUND_AFZ, at);
    for (int d = 0; d < 2; d++)
        in[d] = roi_bins(c, onnx_row(c, at, 1, 2 - d), onnx_row(c, at, 1, 4 - d), out[d],
                         x->shape->dims[d + 2]);
    x = onnx_take(c, x, hb_convert(b, onnx_row(c, rois, 1, 0), DT_S64), 0);
    hv y = bin_maximum(c, bin_maximum(c, x, in[0], 2), in[1], 3);
    hv none = hb_compare(b, y, onnx_splat_like(c, y, dtype_lowest(y->shape->dtype)), CMP_EQ);
    onnx_out_val(c, 0, hb_select(b, none, onnx_splat_like(c, y, 0), y));
}

// ---- deformable convolution

// Positions of every output and kernel element, displaced: [batch*groups, outputs*kernel].
static hv displaced(struct onnx_ctx *c, hv offset, const struct spatial *s, int d, int64_t oh,
                    int64_t ow) {
    int64_t kh = s->kernel[0], kw = s->kernel[1], n = kh * kw * oh * ow, k = 0;
    double *v = arena_array(c->a, double, n + 1);
    for (int64_t o = 0; o < oh * ow; o++)
        for (int64_t i = 0; i < kh * kw; i++, k++) {
            int64_t tap = d ? i % kw : i / kw, at = d ? o % ow : o / ow;
            v[k] = (double)(at * s->stride[d] - s->low[d] + tap * s->dilation[d]);
        }
    hv move = onnx_row(c, offset, 3, d); // [batch*groups, outputs, kernel]
    move = hb_reshape(&c->b, move, (int64_t[]){move->shape->dims[0], n}, 2);
    hv base = onnx_lit_f64s(c, move->shape->dtype, v, &n, 1);
    return hb_add(&c->b, move, onnx_along(c, base, move->shape, 1));
}
ONNX_X(deformconv) { // x, weights, offset, bias, mask
    hv w = onnx_in_val(c, 1), off = onnx_in_val(c, 2);
    int64_t group = onnx_at_int(c, "group", 1), og = onnx_at_int(c, "offset_group", 1);
    struct spatial s;
    struct taps t[2];
    struct grid g = {.padding = PADDING_ZEROS, .order = 2};

    if (x->shape->rank != 4 || w->shape->rank != 4 || off->shape->rank != 4)
        return onnx_fail(c, "only images of two dimensions are supported");
    if (!onnx_spatial_of(c, x, w->shape->dims + 2, 2, &s)) return;
    int64_t n = x->shape->dims[0], ch = x->shape->dims[1], outc = w->shape->dims[0],
            k = s.kernel[0] * s.kernel[1], oh = off->shape->dims[2], ow = off->shape->dims[3];

    if (group < 1 || og < 1 || ch % group || ch % og || outc % group ||
        w->shape->dims[1] != ch / group || off->shape->dims[1] != og * k * 2 ||
        off->shape->dims[0] != n || shape_elements(x->shape) == 0)
        return onnx_fail(c, "input %s, weights %s, offset %s", onnx_show(c, x), onnx_show(c, w),
                         onnx_show(c, off));

    off = hb_reshape(b, off, (int64_t[]){n * og, k, 2, oh * ow}, 4);
    off = hb_transpose(b, off, (int64_t[]){0, 3, 1, 2});
    for (int d = 0; d < 2; d++)
        t[d] = grid_taps(c, &g, displaced(c, off, &s, d, oh, ow), x->shape->dims[d + 2],
                         x->shape->dtype);
    double samples = 4.0 * (double)(n * og * k) * (double)(oh * ow);
    struct image m = image_in(c, x, og, samples);
    hv y = all_taps(c, &m, t, hb_add); // of each group of offsets, outputs*kernel

    if (onnx_in_has(c, 4)) {
        hv mask = hb_reshape(b, onnx_in_val(c, 4), (int64_t[]){n * og, k, oh * ow}, 3);
        mask = hb_reshape(b, onnx_swap_axes(c, mask, 1, 2), (int64_t[]){n * og, k * oh * ow}, 2);
        y = hb_mul(b, y, each_point(c, &m, mask, y->shape));
    }

    y = samples_with(c, &m, y, true);
    if (og > 1) {
        y = hb_reshape(b, y, (int64_t[]){n, og, oh * ow * k, ch / og}, 4);
        y = onnx_swap_axes(c, y, 1, 2);
    }
    y = hb_reshape(b, y, (int64_t[]){n, oh * ow, k, group, ch / group}, 5);
    w = onnx_swap_axes(c, hb_reshape(b, w, (int64_t[]){group, outc / group, ch / group, k}, 4), 2,
                       3);
    int64_t zero = 0, three = 3, mine[2] = {2, 3}, theirs[2] = {2, 4};
    y = hb_dot(b, w, y, // [group, out/group, batch, outputs]
               &(struct hlo_attr_dot){.lhs_batch_dims = {&zero, 1},
                                      .rhs_batch_dims = {&three, 1},
                                      .lhs_contracting_dims = {mine, 2},
                                      .rhs_contracting_dims = {theirs, 2}});
    y = hb_transpose(b, y, (int64_t[]){2, 0, 1, 3});
    y = hb_reshape(b, y, (int64_t[]){n, outc, oh, ow}, 4);

    y = onnx_add_along(c, y, 3, 1);
    onnx_out_val(c, 0, y);
}
