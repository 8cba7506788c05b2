// SPDX-License-Identifier: Apache-2.0
// A convolution over a dilated input (lhs_dilate: transposed convolution, gradient of a strided
// one's input) as one dense convolution, without a multiplication by the zeros between. With
// dilation b, kernel w and padding p, an output o has (o - p) = b q - r for one q and one phase
// 0 <= r < b; only the taps w[r + b j] meet elements, x[q + j]. All phases read the same window, so
// they are output channels of one convolution with ceil(K/b) taps, whose result is interleaved:
// [N, O, phases, Q] -> [N, O, Q, phases] -> [N, O, Q b], cut at the front and end. (Shi et al.,
// "Is the deconvolution layer the same as a convolutional layer?", 2016.) Any number of dimensions,
// groups, pads of any sign. A kernel shorter than b leaves phases that are zero: they are padding.
// A dilated kernel is spread out first, and a stride taken from the result; both are rare here.
// Expects the labels of conv-canon. Targets with a compiler of their own do this themselves. Where
// a target's library has the gradient of a strided convolution's input, it is told as that.
#include <stdlib.h>

#include "base/span.h"
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/pass.h"

struct plan1 { // one dimension
    int64_t dilation, taps, phases;
    int64_t first, count; // q of the first output, number of q
    int64_t cut, limit;   // of the interleaved result
};

// Window dimension w over `size` elements as a dense one; *out is what was decided, *cut what the
// input loses where its new padding is negative. False: too large to say.
static bool dense(struct window_dim *w, int64_t size, int64_t result, struct plan1 *out,
                  struct range *cut) {
    *out = (struct plan1){1, w->size, 1, 0, result, 0, result};
    *cut = (struct range){0, size, 1};
    if (w->base_dilation == 1) return true;
    int64_t b = w->base_dilation, p = w->pad_low, last = (result - 1) * w->stride;
    if (result < 1 || size < 1 || b > (1 << 20) || llabs(p) > (1 << 30) || last > (1 << 30))
        return false;
    out->dilation = b;
    out->phases = w->size < b ? w->size : b;
    out->taps = ceil_div(w->size, b);
    out->first = ceil_div(-p, b);
    out->count = ceil_div(last - p, b) - out->first + 1;
    out->cut = b - 1 - p - b * out->first;
    out->limit = out->cut + last + 1;
    int64_t low = -out->first, high = out->first + out->count + out->taps - 1 - size;
    if (low < 0) cut->start = -low < size ? -low : size, low += cut->start;
    if (high < 0) cut->limit = size + high > cut->start ? size + high : cut->start;
    if (high < 0) high += size - cut->limit;
    *w = (struct window_dim){out->taps, 1, low, high, 1, 1, false};
    return low >= 0 && high >= 0 && cut->limit > cut->start;
}

static struct hlo_instr *zero_of(struct hb *b, const struct hlo_instr *x) {
    return hb_const_f64(b, x->shape->dtype, 0);
}
// Kernel dilations where the input is dilated too, and taps up to whole phases.
static struct hlo_instr *spread(struct hb *b, struct hlo_instr *k, const struct window *w,
                                const struct window_dim *old, const struct plan1 *p) {
    struct pad_dim pad[HLO_MAX_RANK] = {{0, 0, 0}};
    bool any = false;
    for (int d = 0; d < w->n; d++) {
        if (p[d].dilation == 1) continue;
        pad[d + 2].interior = old[d].window_dilation - 1;
        int64_t span = (old[d].size - 1) * old[d].window_dilation + 1;
        pad[d + 2].high = p[d].taps * p[d].phases - span;
        any |= pad[d + 2].interior || pad[d + 2].high;
    }
    return any ? hb_pad(b, k, zero_of(b, k), pad) : k;
}
// [O, I, K...] -> [O phases..., I, taps...], the last phase first.
static struct hlo_instr *split_kernel(struct hb *b, struct hlo_instr *k, int n,
                                      const struct plan1 *p) {
    int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK], reversed[HLO_MAX_RANK];
    dims[0] = k->shape->dims[0], dims[1] = k->shape->dims[1];
    perm[0] = 0, perm[n + 1] = 1;
    for (int d = 0; d < n; d++) {
        dims[2 + 2 * d] = p[d].taps, dims[3 + 2 * d] = p[d].phases;
        perm[1 + d] = reversed[d] = 3 + 2 * d;
        perm[n + 2 + d] = 2 + 2 * d;
    }
    k = hb_transpose(b, hb_reverse(b, hb_reshape(b, k, dims, 2 * n + 2), reversed, n), perm);
    for (int d = 0; d < n; d++)
        dims[0] *= p[d].phases, dims[2 + d] = p[d].taps;
    return hb_reshape(b, k, dims, n + 2);
}
// [N, O phases..., Q...] -> [N, O, result...].
static struct hlo_instr *interleave(struct hb *b, struct hlo_instr *y, int64_t channels,
                                    const struct window_dim *old, int n, const struct plan1 *p) {
    int64_t dims[HLO_MAX_RANK] = {y->shape->dims[0], channels}, perm[HLO_MAX_RANK] = {0, 1};
    struct pad_dim pad[HLO_MAX_RANK] = {{0, 0, 0}};
    struct range cut[HLO_MAX_RANK];
    bool pads = false;
    for (int d = 0; d < n; d++) {
        dims[2 + d] = p[d].phases, dims[2 + n + d] = p[d].count;
        perm[2 + 2 * d] = 2 + n + d, perm[3 + 2 * d] = 2 + d;
        pad[3 + 2 * d].low = p[d].dilation - p[d].phases; // phases without a tap
        pads |= p[d].dilation > p[d].phases;
    }
    y = hb_transpose(b, hb_reshape(b, y, dims, 2 * n + 2), perm);
    if (pads) y = hb_pad(b, y, zero_of(b, y), pad);
    cut[0] = (struct range){0, dims[0], 1}, cut[1] = (struct range){0, channels, 1};
    for (int d = 0; d < n; d++) {
        dims[2 + d] = p[d].count * p[d].dilation;
        cut[2 + d] = (struct range){p[d].cut, p[d].limit, p[d].dilation > 1 ? old[d].stride : 1};
    }
    return hb_slice(b, hb_reshape(b, y, dims, n + 2), cut);
}

// The gradient of a strided convolution's input as the target's library has it (library.h); NULL:
// it is none, or better by phases. k: [O, I, taps], which is what transpositions and reversals made
// of the strided one's kernel, mostly.
static struct hlo_instr *transposed(struct hb *b, const struct hlo_instr *i,
                                    const struct target *t) {
    struct hlo_attr_conv a = *HLO_ATTR(i, conv);
    struct window_dim w[HLO_MAX_RANK];
    struct hlo_instr *k = i->operands[1];
    int64_t perm[HLO_MAX_RANK] = {1, 0}, reversed[HLO_MAX_RANK], next[HLO_MAX_RANK];
    bool turned[HLO_MAX_RANK] = {false};
    int n = a.window.n, n_reversed = 0;
    if (!t->library_accepts || a.feature_group_count != 1) return NULL;

    for (int d = 0; d < n; d++) {
        w[d] = a.window.v[d];
        w[d].reversal = turned[d + 2] = true;
        perm[d + 2] = d + 2;
    }
    for (; k->op == HLO_TRANSPOSE || k->op == HLO_REVERSE; k = k->operands[0]) {
        struct i64s dims = HLO_ATTR(k, dims)->dimensions;
        for (int d = 0; d < n + 2; d++) {
            turned[d] ^= k->op == HLO_REVERSE && i64s_has(dims, perm[d]);
            next[d] = k->op == HLO_TRANSPOSE ? dims.v[perm[d]] : perm[d];
        }
        memcpy(perm, next, sizeof *perm * (size_t)(n + 2));
    }
    for (int d = 0; d < n + 2; d++)
        if (turned[d]) reversed[n_reversed++] = d;

    k = hb_transpose(b, k, perm);
    if (n_reversed) k = hb_reverse(b, k, reversed, n_reversed);
    a.window.v = w;
    a.dim_labels.k_in = 0, a.dim_labels.k_out = 1;
    struct hlo_instr *y = hb_op(b, HLO_CONVOLUTION, i->shape, (hv[]){i->operands[0], k}, 2, &a);
    return hb_ok(b) && lib_transposed(y) && t->library_accepts(t, y) ? y : NULL;
}

static struct hlo_instr *rewrite(struct hb *b, struct hlo_instr *i, const struct pass_ctx *p) {
    const struct hlo_attr_conv *a = i->op == HLO_CONVOLUTION ? HLO_ATTR(i, conv) : NULL;
    struct window_dim w[HLO_MAX_RANK];
    struct plan1 plan[HLO_MAX_RANK];
    struct range cut[HLO_MAX_RANK];
    bool dilated = false, cuts = false;

    if (!a || a->batch_group_count != 1 || a->window.n > 3 || i->shape->dynamic ||
        i->operands[0]->shape->dynamic || a->window.n != a->dim_labels.n_spatial)
        return NULL;

    int n = a->window.n;
    struct hlo_instr *x = i->operands[0], *k = i->operands[1];
    bool ordered = labels_in_order(&a->dim_labels, 0);
    for (int d = 0; d < 2; d++)
        cut[d] = (struct range){0, x->shape->dims[d], 1};

    for (int d = 0; d < n; d++) {
        w[d] = a->window.v[d];
        dilated |= w[d].base_dilation != 1;
        ordered &= !w[d].reversal;
        if (w[d].base_dilation != 1 && w[d].window_dilation != 1) {
            if (w[d].window_dilation > 1024) return NULL;
            w[d].size = (w[d].size - 1) * w[d].window_dilation + 1;
            w[d].window_dilation = 1;
        }
        if (!dense(&w[d], x->shape->dims[d + 2], i->shape->dims[d + 2], &plan[d], &cut[d + 2]))
            return NULL;
        cuts |= cut[d + 2].start || cut[d + 2].limit != x->shape->dims[d + 2];
    }

    if (!dilated || !ordered) return NULL;
    struct hlo_instr *back = transposed(b, i, p->target);
    if (back) return back;
    struct hlo_attr_conv c = *a;
    int64_t dims[HLO_MAX_RANK] = {i->shape->dims[0], i->shape->dims[1]};
    c.window = (struct window){w, n};
    for (int d = 0; d < n; d++)
        dims[1] *= plan[d].phases, dims[d + 2] = plan[d].count;

    if (cuts) x = hb_slice(b, x, cut);
    k = split_kernel(b, spread(b, k, &a->window, a->window.v, plan), n, plan);
    const struct shape *s = shape_make(b->c->module->arena, i->shape->dtype, dims, n + 2);
    struct hlo_instr *y = hb_op(b, HLO_CONVOLUTION, s, (hv[]){x, k}, 2, &c);
    return interleave(b, y, i->shape->dims[1], a->window.v, n, plan);
}

status_t pass_conv_phases(struct hlo_module *m, struct pass_ctx *p) {
    return p->target && !p->target->emit ? pass_rewrite(m, p, rewrite) : ST_OK;
}
