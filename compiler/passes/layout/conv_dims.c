// SPDX-License-Identifier: Apache-2.0
// Spatial dimensions of a convolution that hold less than they look:
//   - taps that meet nothing but padding, whatever the output, are cut from the kernel (3x3 over a
//     map of height 1 is 1x3);
//   - a dimension that the window covers whole is more input channels, [N, C, H, W] with a window
//     as high as H is [N, C H, W]; where it covers all of them the convolution is a dot;
//   - a last dimension of one element goes in front of the others: libraries compute neighbours
//     along the last one together.
//   - what a kernel of ours will compute (library.h, lib_direct; types that no library has) gets
//     its padding in front, as a value of its own; so does a signal of few channels whose filters
//     reach far over its ends (the frames of a spectrogram).
//   - several filters for each channel alone (a channel multiplier) are one for each channel,
//     repeated: libraries have kernels for one.
// Expects the labels of conv-canon. Convolutions of dequantised values stay as they are: pass int8
// knows them so. Targets with a compiler of their own do this themselves.
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/pass.h"

enum { MAX_LOOK = 8, CHANNELS = 16, MAX_ELEMENTS = 1 << 30 };

struct conv {
    int n; // spatial dimensions
    int64_t groups;
    struct hlo_instr *x, *k;
    int64_t out[HLO_MAX_RANK]; // of the result, batch and channels first
    struct window_dim w[HLO_MAX_RANK];
};

static bool is_quantised(const struct hlo_instr *x) {
    for (int look = 0; look < MAX_LOOK && x->n_operands; look++, x = x->operands[0]) {
        const struct shape *from = x->operands[0]->shape;
        if (x->op == HLO_CONVERT && dtype_is_int(from->dtype) && dtype_bits(from->dtype) <= 8)
            return true;
    }
    return false;
}
static bool read_conv(struct hlo_instr *i, struct conv *c) {
    const struct hlo_attr_conv *a = i->op == HLO_CONVOLUTION ? HLO_ATTR(i, conv) : NULL;
    if (!a || a->batch_group_count != 1 || a->window.n != a->dim_labels.n_spatial ||
        dtype_is_complex(i->shape->dtype) || i->shape->dynamic || i->operands[0]->shape->dynamic)
        return false;
    *c = (struct conv){.n = a->window.n,
                       .groups = a->feature_group_count,
                       .x = i->operands[0],
                       .k = i->operands[1]};
    bool ordered = c->n > 0 && labels_in_order(&a->dim_labels, 0);
    for (int d = 0; d < c->n; d++) {
        c->w[d] = a->window.v[d];
        ordered &= !c->w[d].reversal && c->w[d].base_dilation == 1 && c->w[d].pad_low >= 0 &&
                   c->w[d].pad_high >= 0;
    }
    if (i->shape->rank) memcpy(c->out, i->shape->dims, sizeof *c->out * (size_t)i->shape->rank);
    return ordered && shape_elements(i->shape) > 0 && shape_elements(c->x->shape) > 0 &&
           shape_elements(c->k->shape) > 0 && !is_quantised(c->x) && !is_quantised(c->k);
}

// ---- taps

// Does any of the outputs meet an element with this tap?
static bool meets(const struct window_dim *w, int64_t tap, int64_t size, int64_t outputs) {
    int64_t at = tap * w->window_dilation - w->pad_low;
    int64_t o = at < 0 ? (-at + w->stride - 1) / w->stride : 0; // the first one behind the front
    return o < outputs && at + o * w->stride < size;
}
static bool cut_taps(struct hb *b, struct conv *c) {
    struct range r[HLO_MAX_RANK];
    bool any = false;
    for (int d = 0; d < 2; d++)
        r[d] = (struct range){0, c->k->shape->dims[d], 1};
    for (int d = 0; d < c->n; d++) {
        struct window_dim *w = &c->w[d];
        int64_t size = c->x->shape->dims[d + 2], first = 0, last = w->size;
        bool sane = w->size < MAX_ELEMENTS && w->window_dilation < MAX_ELEMENTS &&
                    w->pad_low < MAX_ELEMENTS && w->stride < MAX_ELEMENTS;
        while (sane && first < last && !meets(w, first, size, c->out[d + 2]) &&
               (first + 1) * w->window_dilation <= w->pad_low)
            first++;
        while (sane && last > first + 1 && !meets(w, last - 1, size, c->out[d + 2]) &&
               (w->size - last + 1) * w->window_dilation <= w->pad_high)
            last--;
        if (first == last) first = 0, last = w->size; // nothing at all: as it is
        r[d + 2] = (struct range){first, last, 1};
        if (last - first == w->size) continue;
        w->pad_low -= first * w->window_dilation;
        w->pad_high -= (w->size - last) * w->window_dilation;
        w->size = last - first;
        any = true;
    }
    if (any) c->k = hb_slice(b, c->k, r);
    return any;
}

// ---- dimensions that the window covers

static bool covered(const struct conv *c, int d) {
    const struct window_dim *w = &c->w[d];
    return !w->pad_low && !w->pad_high && w->size == c->x->shape->dims[d + 2] &&
           (w->window_dilation == 1 || w->size == 1);
}
// [N, C, those covered, the others] -> [N, C times those, the others].
static struct hlo_instr *as_channels(struct hb *b, const struct conv *c, struct hlo_instr *x) {
    int64_t perm[HLO_MAX_RANK] = {0, 1}, dims[HLO_MAX_RANK];
    int at = 2, rank = 2;
    for (int d = 0; d < c->n; d++)
        if (covered(c, d)) perm[at++] = d + 2;
    for (int d = 0; d < c->n; d++)
        if (!covered(c, d)) perm[at++] = d + 2;
    dims[0] = x->shape->dims[0];
    dims[1] = x->shape->dims[1];
    for (int d = 0; d < c->n; d++)
        if (covered(c, d))
            dims[1] *= x->shape->dims[d + 2];
        else
            dims[rank++] = x->shape->dims[d + 2];
    return hb_reshape(b, hb_transpose(b, x, perm), dims, rank);
}
// Worth it where the library would else compute neighbours one by one, or pad channels.
static bool merge(struct hb *b, struct conv *c) {
    int64_t channels = c->x->shape->dims[1];
    bool large = false, all = true;
    int kept = 0;
    for (int d = 0; d < c->n; d++) {
        large |= covered(c, d) && c->w[d].size > 1;
        all &= covered(c, d);
    }
    if (!large || c->groups != 1 || c->out[1] < CHANNELS / 2) return false;
    if (!all && !covered(c, c->n - 1) && channels % CHANNELS == 0) return false;
    struct hlo_instr *x = as_channels(b, c, c->x), *k = as_channels(b, c, c->k);
    for (int d = 0; d < c->n; d++) {
        if (covered(c, d)) continue;
        c->w[kept] = c->w[d];
        c->out[2 + kept++] = c->out[d + 2];
    }
    c->n = kept;
    c->x = x;
    c->k = k;
    return true;
}

// ---- a last dimension of one element

static struct hlo_instr *last_in_front(struct hb *b, struct hlo_instr *x, int n) {
    int64_t dims[HLO_MAX_RANK] = {x->shape->dims[0], x->shape->dims[1], 1};
    for (int d = 1; d < n; d++)
        dims[d + 2] = x->shape->dims[d + 1];
    return hb_reshape(b, x, dims, n + 2);
}
static bool turn(struct hb *b, struct conv *c) {
    bool more = false;
    for (int d = 0; d < c->n - 1; d++)
        more |= c->out[d + 2] > 1;
    if (!more || c->x->shape->dims[c->n + 1] != 1 || !covered(c, c->n - 1)) return false;
    c->x = last_in_front(b, c->x, c->n);
    c->k = last_in_front(b, c->k, c->n);
    struct window_dim one = c->w[c->n - 1];
    for (int d = c->n - 1; d > 0; d--) {
        c->w[d] = c->w[d - 1];
        c->out[d + 2] = c->out[d + 1];
    }
    c->w[0] = one;
    c->out[2] = 1;
    return true;
}

// ---- several filters a channel

static bool repeat_channels(struct hb *b, struct conv *c, const struct hlo_instr *i) {
    enum { FILTERS = 8 };
    const struct shape *x = c->x->shape;
    int64_t each = c->out[1] / c->groups;
    if (c->n != 2 || c->groups < 2 || c->k->shape->dims[1] != 1 || x->dims[1] != c->groups ||
        each < 2 || each > FILTERS || c->out[1] < CHANNELS || lib_direct(i))
        return false;
    const int64_t wide[] = {x->dims[0], c->groups, each, x->dims[2], x->dims[3]},
                  from[] = {0, 1, 3, 4},
                  dims[] = {x->dims[0], c->out[1], x->dims[2], x->dims[3]};
    c->x = hb_reshape(b, hb_broadcast(b, c->x, wide, 5, from), dims, 4);
    c->groups = c->out[1];
    return true;
}

// ---- what kernels of ours compute

// A kernel of ours reads a row of the input from front to end where no padding is in the way.
static bool pad_first(struct hb *b, struct conv *c) {
    struct pad_dim pad[HLO_MAX_RANK] = {{0, 0, 0}};
    bool any = false;
    for (int d = 0; d < c->n; d++) {
        struct window_dim *w = &c->w[d];
        pad[d + 2] = (struct pad_dim){w->pad_low, w->pad_high, 0};
        any |= w->pad_low || w->pad_high;
        w->pad_low = w->pad_high = 0;
    }
    if (any) c->x = hb_pad(b, c->x, hb_const_f64(b, c->x->shape->dtype, 0), pad);
    return any;
}
static bool padded_fits(const struct conv *c) {
    int64_t size = 1;
    for (int d = 0; d < c->n; d++) {
        int64_t n = c->x->shape->dims[d + 2] + c->w[d].pad_low + c->w[d].pad_high;
        if (n > MAX_ELEMENTS / size) return false; // more padding than is worth memory
        size *= n;
    }
    return true;
}
static bool wants_padding_in_front(const struct hlo_instr *i, const struct conv *c) {
    return padded_fits(c) &&
           (lib_of_ours(i) || (c->groups == 1 && lib_reaches_far(c->x->shape, 1, &c->w[c->n - 1])));
}

// ---- the new one

static struct hlo_instr *build(struct hb *b, struct conv *c, const struct hlo_instr *i) {
    const struct shape *s = shape_make(b->c->module->arena, i->shape->dtype, c->out, c->n + 2);
    if (!c->n) {
        int64_t one = 1;
        struct hlo_attr_dot d = {.lhs_contracting_dims = {&one, 1},
                                 .rhs_contracting_dims = {&one, 1}};
        return hb_op(b, HLO_DOT, s, (hv[]){c->x, c->k}, 2, &d);
    }
    struct hlo_attr_conv a = *HLO_ATTR(i, conv);
    a.window = (struct window){c->w, c->n};
    a.feature_group_count = c->groups;
    a.dim_labels = (struct labels){.n_spatial = c->n, .in_feature = 1, .k_in = 1, .out_feature = 1};
    for (int d = 0; d < c->n; d++)
        a.dim_labels.in_spatial[d] = a.dim_labels.k_spatial[d] = a.dim_labels.out_spatial[d] =
            d + 2;
    return hb_op(b, HLO_CONVOLUTION, s, (hv[]){c->x, c->k}, 2, &a);
}
static struct hlo_instr *rewrite(struct hb *b, struct hlo_instr *i, const struct pass_ctx *p) {
    struct conv c;
    if (!read_conv(i, &c)) return NULL;
    bool any = cut_taps(b, &c);
    if (i->shape->dtype == DT_F32) {
        any |= merge(b, &c);
        any |= turn(b, &c);
        any |= repeat_channels(b, &c, i);
    }
    // Strict: a padding of zeros times an infinite weight is NaN, a window's is skipped.
    bool strict = p->opt && p->opt->precision == PRECISION_STRICT;
    if (c.n && (!strict || dtype_is_int(i->shape->dtype)) && wants_padding_in_front(i, &c))
        any |= pad_first(b, &c);
    if (!any) return NULL;
    return hb_reshape(b, build(b, &c, i), i->shape->dims, i->shape->rank);
}

status_t pass_conv_dims(struct hlo_module *m, struct pass_ctx *p) {
    return p->target && !p->target->emit ? pass_rewrite(m, p, rewrite) : ST_OK;
}
