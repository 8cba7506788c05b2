// SPDX-License-Identifier: Apache-2.0
// Pools over windows and over everything, their inverses, and normalisation over channels (LRN).
#include <float.h>
#include <math.h>

#include "compiler/frontend/onnx_nn/onnx_spatial.h"

enum { MAX_OFFSETS = 4096 }; // positions in a window that are unrolled

static hv window_reduce(struct onnx_ctx *c, hv x, const struct spatial *s, enum hlo_op op,
                        double init) {
    struct window_dim w[HLO_MAX_RANK] = {{1, 1, 0, 0, 1, 1, false}, {1, 1, 0, 0, 1, 1, false}};
    for (int d = 0; d < s->n; d++)
        w[d + 2] = onnx_window_of(s, d);
    return hb_reduce_window(&c->b, x, hb_const_f64(&c->b, x->shape->dtype, init),
                            &(struct window){w, s->n + 2}, op);
}

// Rounding the output size up: windows that begin inside the input or its left padding count, so
// the right padding grows to hold the last.
static void ceil_mode(const struct shape *x, struct spatial *s) {
    for (int d = 0; d < s->n; d++) {
        int64_t in = x->dims[d + 2], win = (s->kernel[d] - 1) * s->dilation[d] + 1,
                room = in + s->low[d] + s->high[d] - win;
        if (room <= -s->stride[d]) continue; // no window
        int64_t out = room / s->stride[d] + (room > 0 && room % s->stride[d]) + 1;
        if ((out - 1) * s->stride[d] >= in + s->low[d]) out--;
        int64_t need = (out - 1) * s->stride[d] + win - in - s->low[d];
        if (need > s->high[d]) s->high[d] = need;
    }
}
// How many elements the padded input is short of one window.
static int64_t lacks(const struct shape *x, const struct spatial *s, int d) {
    return (s->kernel[d] - 1) * s->dilation[d] + 1 - (x->dims[d + 2] + s->low[d] + s->high[d]);
}
// An input that is shorter than the window by less than a stride has one window, cut short: sizes
// divide towards zero in ONNX's shape inference and in ONNX Runtime.
static void short_input(const struct shape *x, struct spatial *s) {
    for (int d = 0; d < s->n; d++) {
        int64_t n = lacks(x, s, d);
        if (x->dims[d + 2] > 0 && n > 0 && n < s->stride[d]) s->high[d] += n;
    }
}
static bool pool_window(struct onnx_ctx *c, hv x, struct spatial *s, struct spatial *declared) {
    int64_t kernel[HLO_MAX_RANK];
    int n;
    if (!onnx_at_ints(c, "kernel_shape", kernel, HLO_MAX_RANK - 2, &n))
        return onnx_fail(c, "kernel_shape is missing"), false;
    if (!onnx_spatial_of(c, x, kernel, n, s)) return false;
    for (int d = 0; d < s->n; d++)
        if (s->low[d] > (s->kernel[d] - 1) * s->dilation[d] ||
            s->high[d] > (s->kernel[d] - 1) * s->dilation[d])
            return onnx_fail(c, "pads %lld and %lld of a window of %lld: it would hold no element",
                             (long long)s->low[d], (long long)s->high[d],
                             (long long)((s->kernel[d] - 1) * s->dilation[d] + 1)),
                   false;
    *declared = *s;
    if (onnx_at_int(c, "ceil_mode", 0) == 1)
        ceil_mode(x->shape, s);
    else
        short_input(x->shape, s);
    return true;
}

// The number of each element in its tensor; storage_order 1 counts the spatial dimensions with the
// first one fastest.
static hv numbers(struct onnx_ctx *c, const struct shape *x) {
    const struct shape *s = shape_make(c->a, DT_S64, x->dims, x->rank);
    bool columns = onnx_at_int(c, "storage_order", 0) != 0;
    int64_t step = 1;
    hv sum = NULL;
    for (int k = x->rank - 1; k >= 0; k--) {
        int d = columns && k >= 2 ? x->rank + 1 - k : k;
        hv at = onnx_mul_k(c, hb_iota(&c->b, s, d), (double)step);
        sum = sum ? hb_add(&c->b, sum, at) : at;
        step *= x->dims[d];
    }
    return sum;
}
// Windows whose elements are taken one after the other: how many there are along each dimension,
// and of how many elements each. False after a failure.
static bool window_steps(struct onnx_ctx *c, hv x, const struct spatial *s, int64_t *out,
                         int64_t *count) {
    *count = 1;
    for (int d = 0; d < s->n; d++) {
        int64_t win = (s->kernel[d] - 1) * s->dilation[d] + 1,
                room = x->shape->dims[d + 2] + s->low[d] + s->high[d] - win;
        if (room < 0) return onnx_fail(c, "the window is larger than the padded input"), false;
        out[d] = room / s->stride[d] + 1;
        if (s->kernel[d] > MAX_OFFSETS || (*count *= s->kernel[d]) > MAX_OFFSETS)
            return onnx_fail(c, "windows above %d elements are not supported here", MAX_OFFSETS),
                   false;
    }
    return true;
}
// Element `at` of all windows over x, which is padded.
static hv window_element(struct onnx_ctx *c, hv x, const struct spatial *s, const int64_t *out,
                         const int64_t *at) {
    struct range r[HLO_MAX_RANK] = {{0, x->shape->dims[0], 1}, {0, x->shape->dims[1], 1}};
    for (int d = 0; d < s->n; d++) {
        int64_t from = at[d] * s->dilation[d];
        r[d + 2] = (struct range){from, from + (out[d] - 1) * s->stride[d] + 1, s->stride[d]};
    }
    return hb_slice(&c->b, x, r);
}
static void next_element(const struct spatial *s, int64_t *at) {
    for (int d = s->n - 1; d >= 0 && ++at[d] == s->kernel[d]; d--)
        at[d] = 0;
}
// Whether the padded input is too short for one window, so that there are no results.
static bool none_fits(const struct shape *x, const struct spatial *s) {
    for (int d = 0; d < s->n; d++)
        if (lacks(x, s, d) > 0) return true;
    return false;
}
// The maxima of volumes [N, C, d, h, w] are those of planes, and then of what lies behind each
// other there: two pools of images, which libraries have.
static hv maxima(struct onnx_ctx *c, hv x, const struct spatial *s) {
    struct hb *b = &c->b;
    double least = dtype_lowest(x->shape->dtype);
    const int64_t *d = x->shape->dims;
    struct spatial plane = {.n = 2}, depth = {.n = 2, {0, 1}, {0, 1}, {0, 1}, {0}, {0}};
    if (s->n != 3) return window_reduce(c, x, s, HLO_MAXIMUM, least);
    for (int k = 0; k < 2; k++)
        plane.kernel[k] = s->kernel[k + 1], plane.stride[k] = s->stride[k + 1],
        plane.dilation[k] = s->dilation[k + 1], plane.low[k] = s->low[k + 1],
        plane.high[k] = s->high[k + 1];
    depth.kernel[0] = s->kernel[0], depth.stride[0] = s->stride[0];
    depth.dilation[0] = s->dilation[0], depth.low[0] = s->low[0], depth.high[0] = s->high[0];

    x = hb_reshape(b, x, (int64_t[]){d[0], d[1] * d[2], d[3], d[4]}, 4);
    x = window_reduce(c, x, &plane, HLO_MAXIMUM, least);
    if (!hb_ok(b)) return x;
    int64_t high = x->shape->dims[2], wide = x->shape->dims[3];
    x = hb_reshape(b, x, (int64_t[]){d[0], d[1], d[2], high * wide}, 4);
    x = window_reduce(c, x, &depth, HLO_MAXIMUM, least);
    return hb_reshape(b, x, (int64_t[]){d[0], d[1], x->shape->dims[2], high, wide}, 5);
}
// Maximum and its position: the positions of the window one after another, the first that is
// largest stays. Padding has no position (-1) and gives way to any element, the lowest too.
static void max_with_indices(struct onnx_ctx *c, hv x, const struct spatial *s) {
    struct hb *b = &c->b;
    struct pad_dim pads[HLO_MAX_RANK] = {{0, 0, 0}};
    int64_t out[HLO_MAX_RANK], at[HLO_MAX_RANK] = {0}, count;
    hv best = NULL, where = NULL;

    if (none_fits(x->shape, s)) {
        hv none = maxima(c, x, s);
        onnx_out_val(c, 0, none);
        if (hb_ok(b)) onnx_out_val(c, 1, hb_convert(b, none, DT_S64));
        return;
    }
    if (!window_steps(c, x, s, out, &count)) return;
    for (int d = 0; d < s->n; d++)
        pads[d + 2] = (struct pad_dim){s->low[d], s->high[d], 0};
    double low = dtype_lowest(x->shape->dtype);
    hv values = hb_pad(b, x, hb_const_f64(b, x->shape->dtype, low), pads);
    hv index = hb_pad(b, numbers(c, x->shape), hb_const_i64(b, DT_S64, -1), pads);

    for (int64_t k = 0; k < count && hb_ok(b); k++) {
        hv v = window_element(c, values, s, out, at), i = window_element(c, index, s, out, at);
        if (best) {
            hv none = onnx_compare_k(c, where, 0, CMP_LT);
            hv better = hb_binary(b, HLO_OR, hb_compare(b, v, best, CMP_GT), none);
            best = hb_select(b, better, v, best);
            where = hb_select(b, better, i, where);
        } else {
            best = v, where = i;
        }
        next_element(s, at);
    }

    onnx_out_val(c, 0, best);
    onnx_out_val(c, 1, where);
}

// A window's maximum over the elements in front of the first one that the mask [1 or N, 1 or C,
// d...] hides, in each line of the last dimension; a window of nothing gives the lowest finite
// value. Where there are lines, the very first element of a channel is never hidden, as ONNX
// Runtime has it.
ONNX_X(maxpoolwithmask) {
    hv mask = onnx_in_val(c, 1), best = NULL, open = NULL;
    struct spatial s, declared;
    struct pad_dim pads[HLO_MAX_RANK] = {{0, 0, 0}};
    int64_t out[HLO_MAX_RANK], at[HLO_MAX_RANK] = {0}, count;
    int rank = x->shape->rank, last = rank - 3;
    if (rank != mask->shape->rank) return onnx_fail(c, "mask %s", onnx_show(c, mask));
    if (!pool_window(c, x, &s, &declared)) return;
    for (int d = 0; d < s.n; d++)
        s.dilation[d] = 1;
    if (!window_steps(c, x, &s, out, &count)) return;

    mask = onnx_compare_k(c, mask, 0, CMP_NE);
    mask = hb_broadcast_numpy(b, mask, x->shape->dims, rank);
    for (int d = 0; d < s.n; d++)
        pads[d + 2] = (struct pad_dim){s.low[d], s.high[d], 0};
    if (rank > 3 && hb_ok(b)) {
        const struct shape *n = shape_make(c->a, DT_S64, x->shape->dims, rank);
        hv from = hb_iota(b, n, 2);
        for (int d = 3; d < rank; d++)
            from = hb_max(b, from, hb_iota(b, n, d));
        mask = hb_binary(b, HLO_OR, mask, onnx_compare_k(c, from, 0, CMP_EQ));
    }
    double least = -(double)FLT_MAX;
    hv values = hb_pad(b, x, hb_const_f64(b, x->shape->dtype, least), pads);
    mask = hb_pad(b, mask, hb_const_i64(b, DT_PRED, 1), pads);
    for (int64_t k = 0; k < count && hb_ok(b); k++) {
        hv v = window_element(c, values, &s, out, at), m = window_element(c, mask, &s, out, at);
        open = at[last] ? onnx_and(c, open, m) : m;
        if (!best) best = onnx_splat_like(c, v, least);
        hv more = onnx_and(c, open, hb_compare(b, v, best, CMP_GT));
        best = hb_select(b, more, v, best);
        next_element(&s, at);
    }
    onnx_out_val(c, 0, best);
}

// Elements under each window: ones over the input (and its declared padding), summed the same way.
static hv window_counts(struct onnx_ctx *c, hv x, struct spatial s, const struct spatial *declared,
                        bool with_pads) {
    int64_t dims[HLO_MAX_RANK] = {1, 1};
    for (int d = 0; d < s.n; d++) {
        dims[d + 2] =
            x->shape->dims[d + 2] + (with_pads ? declared->low[d] + declared->high[d] : 0);
        if (with_pads) s.low[d] -= declared->low[d], s.high[d] -= declared->high[d];
    }
    hv ones = hb_splat(&c->b, shape_make(c->a, x->shape->dtype, dims, s.n + 2), 1);
    return window_reduce(c, ones, &s, HLO_ADD, 0);
}
ONNX_X(pool) {
    struct spatial s, declared;
    if (!pool_window(c, x, &s, &declared)) return;
    if (onnx_op_arg(c) == HLO_MAXIMUM) {
        if (c->n->out.n > 1 && c->n->out.v[1].n) return max_with_indices(c, x, &s);
        return onnx_out_val(c, 0, maxima(c, x, &s));
    }
    hv sum = window_reduce(c, x, &s, HLO_ADD, 0);
    bool padded = false, grown = false, with_pads = onnx_at_int(c, "count_include_pad", 0) != 0;
    double area = 1;
    for (int d = 0; d < s.n; d++) {
        padded |= s.low[d] || s.high[d];
        grown |= s.high[d] != declared.high[d];
        area *= (double)s.kernel[d];
    }
    // Before opset 19 ONNX Runtime divides by the whole window also where a short input cuts it.
    bool whole = !grown || (c->opset < 19 && onnx_at_int(c, "ceil_mode", 0) != 1);
    if (!padded || (with_pads && whole)) return onnx_out_val(c, 0, onnx_mul_k(c, sum, 1 / area));
    hv count = window_counts(c, x, s, &declared, with_pads);
    onnx_out_val(c, 0,
                 hb_div(b, sum, hb_broadcast_numpy(b, count, sum->shape->dims, sum->shape->rank)));
}

// ---- p-norms

static double norm_p(struct onnx_ctx *c) { // an integer from opset 2 on
    return c->opset >= 2 ? (double)onnx_at_int(c, "p", 2) : onnx_at_float(c, "p", 2);
}
static hv powers(struct onnx_ctx *c, hv x, double p) {
    if (p == 2) return hb_mul(&c->b, x, x);
    x = hb_unary(&c->b, HLO_ABS, x);
    return p == 1 ? x : hb_binary(&c->b, HLO_POWER, x, onnx_splat_like(c, x, p));
}
static hv root(struct onnx_ctx *c, hv x, double p) {
    if (p == 1) return x;
    if (p == 2) return hb_unary(&c->b, HLO_SQRT, x);
    return hb_binary(&c->b, HLO_POWER, x, onnx_splat_like(c, x, 1 / p));
}
ONNX_X(lppool) {
    struct spatial s, declared;
    double p = norm_p(c);
    if (p <= 0) return onnx_fail(c, "p is %g", p);
    if (!pool_window(c, x, &s, &declared)) return;
    onnx_out_val(c, 0, root(c, window_reduce(c, powers(c, x, p), &s, HLO_ADD, 0), p));
}

static int spatial_axes(hv x, int64_t *axes) {
    int n = 0;
    for (int d = 2; d < x->shape->rank; d++)
        axes[n++] = d;
    return n;
}
ONNX_X(globalpool) {
    int64_t axes[HLO_MAX_RANK];
    int n = spatial_axes(x, axes);
    enum hlo_op op = (enum hlo_op)onnx_op_arg(c);
    onnx_out_val(c, 0,
                 op == HLO_ADD ? onnx_mean_of(c, x, axes, n, true)
                               : onnx_reduce_keep(c, x, axes, n, op, true));
}
ONNX_X(globallppool) {
    int64_t axes[HLO_MAX_RANK];
    int n = spatial_axes(x, axes);
    double p = norm_p(c);
    if (p <= 0) return onnx_fail(c, "p is %g", p);
    onnx_out_val(c, 0, root(c, onnx_reduce_keep(c, powers(c, x, p), axes, n, HLO_ADD, true), p));
}

// ---- inverses

// Values go to the positions that MaxPool gave; the rest is 0. A larger output_shape adds zeros
// behind.
ONNX_X(maxunpool) {
    hv idx = onnx_in_val(c, 1);
    struct spatial cut, s; // of the pool that this undoes: an input may be shorter than its window
    int64_t dims[HLO_MAX_RANK], want[HLO_MAX_RANK], total, count = shape_elements(x->shape);
    struct pad_dim grow[HLO_MAX_RANK] = {{0, 0, 0}};
    int n, rank = x->shape->rank;
    if (!pool_window(c, x, &cut, &s)) return;
    for (int d = 0; d < rank; d++)
        dims[d] = d < 2 ? x->shape->dims[d]
                        : (x->shape->dims[d] - 1) * s.stride[d - 2] + s.kernel[d - 2] -
                              s.low[d - 2] - s.high[d - 2];
    const struct shape *out = shape_make(c->a, x->shape->dtype, dims, rank);
    status_t st = shape_check(out, 0);
    if (st) return hb_fail(b, st);
    total = shape_elements(out);
    hv flat = hb_splat(b, shape_make(c->a, x->shape->dtype, &total, 1), 0);
    hv at = hb_reshape(b, hb_convert(b, idx, DT_S64), (int64_t[]){count, 1}, 2);
    hv y = onnx_put_points(c, flat, at, 1, hb_reshape(b, x, &count, 1), HLO_COPY);
    y = hb_reshape(b, y, dims, rank);
    if (onnx_in_has(c, 2)) {
        if (!onnx_in_ints(c, 2, want, HLO_MAX_RANK, &n)) return;
        if (n != rank) return onnx_fail(c, "output_shape has %d dimensions, expected %d", n, rank);
        for (int d = 0; d < rank; d++)
            grow[d].high = want[d] - dims[d];
        y = hb_pad(b, y, hb_const_f64(b, x->shape->dtype, 0), grow);
    }
    onnx_out_val(c, 0, y);
}

// Columns of blocks back to an image, overlapping elements summed: each position in the block is a
// strided image of its own.
ONNX_X(col2im) {
    hv sum = NULL;
    int64_t image[HLO_MAX_RANK], block[HLO_MAX_RANK], dims[HLO_MAX_RANK], at[HLO_MAX_RANK] = {0},
                                                                          count = 1, blocks = 1;
    struct spatial s;
    int n, m;

    if (!onnx_in_ints(c, 1, image, HLO_MAX_RANK - 3, &n) ||
        !onnx_in_ints(c, 2, block, HLO_MAX_RANK - 3, &m))
        return;
    if (n != m || n < 1 || x->shape->rank != 3)
        return onnx_fail(c, "image of %d, block of %d dimensions, input %s", n, m, onnx_show(c, x));

    dims[0] = dims[1] = 1;
    for (int d = 0; d < n; d++)
        dims[d + 2] = image[d];
    hv like = hb_splat(b, shape_make(c->a, x->shape->dtype, dims, n + 2), 0);
    if (!onnx_spatial_of(c, like, block, n, &s)) return;
    dims[0] = x->shape->dims[0];
    for (int d = 0; d < n; d++) {
        int64_t room = image[d] + s.low[d] + s.high[d] - (block[d] - 1) * s.dilation[d] - 1;
        if (room < 0 || block[d] > MAX_OFFSETS || (count *= block[d]) > MAX_OFFSETS)
            return onnx_fail(c, "blocks of this size are not supported");
        dims[d + 2] = room / s.stride[d] + 1;
        if (!sz_mul(blocks, dims[d + 2], &blocks)) return onnx_fail(c, "too many blocks");
    }

    if (x->shape->dims[1] % count || x->shape->dims[2] != blocks)
        return onnx_fail(c, "input %s for %lld blocks of %lld elements", onnx_show(c, x),
                         (long long)blocks, (long long)count);
    dims[1] = x->shape->dims[1] / count;
    x = hb_reshape(b, x, (int64_t[]){dims[0], dims[1], count, blocks}, 4);

    for (int64_t k = 0; k < count && hb_ok(b); k++) {
        struct pad_dim p[HLO_MAX_RANK] = {{0, 0, 0}};
        for (int d = 0; d < n; d++) {
            int64_t first = at[d] * s.dilation[d] - s.low[d],
                    span = (dims[d + 2] - 1) * s.stride[d] + 1;
            p[d + 2] = (struct pad_dim){first, image[d] - first - span, s.stride[d] - 1};
        }
        hv one = hb_pad(b, hb_reshape(b, onnx_row(c, x, 2, k), dims, n + 2),
                        hb_const_f64(b, x->shape->dtype, 0), p);
        sum = sum ? hb_add(b, sum, one) : one;
        for (int d = n - 1; d >= 0 && ++at[d] == block[d]; d--)
            at[d] = 0;
    }

    onnx_out_val(c, 0, sum);
}

// x / (bias + alpha/size * sum of squares over `size` channels around)^beta
ONNX_X(lrn) {
    int64_t size = onnx_at_int(c, "size", 0);
    struct window_dim w[HLO_MAX_RANK];
    if (x->shape->rank < 2 || size < 1)
        return onnx_fail(c, "size %lld on %s", (long long)size, onnx_show(c, x));
    for (int d = 0; d < x->shape->rank; d++)
        w[d] = (struct window_dim){1, 1, 0, 0, 1, 1, false};
    int64_t most = x->shape->dims[1], before = (size - 1) / 2, behind = size / 2;
    if (before > most) before = most; // there is nothing farther away
    if (behind > most) behind = most;
    w[1] = (struct window_dim){before + 1 + behind, 1, before, behind, 1, 1, false};
    hv sq = hb_reduce_window(b, hb_mul(b, x, x), hb_const_f64(b, x->shape->dtype, 0),
                             &(struct window){w, x->shape->rank}, HLO_ADD);
    hv base = hb_add(
        b, onnx_splat_like(c, x, onnx_at_float(c, "bias", 1)),
        hb_mul(b, sq, onnx_splat_like(c, x, onnx_at_float(c, "alpha", 1e-4f) / (double)size)));
    onnx_out_val(c, 0,
                 hb_div(b, x,
                        hb_binary(b, HLO_POWER, base,
                                  onnx_splat_like(c, x, onnx_at_float(c, "beta", 0.75f)))));
}
