// SPDX-License-Identifier: Apache-2.0
// A convolution over a dilated input (lhs_dilate: transposed convolution, gradient of a strided
// one's input) as dense ones, without a multiplication by the zeros between. With dilation b and
// padding p, an output o has (o - p) = b q - r for one q and one phase 0 <= r < b. Over a kernel of
// K taps that is itself dilated by e, with g = gcd(e, b), phase r = t0 e mod b has the taps
// t0 + (b/g) j and no others; they meet the elements x[q + floor(t0 e / b) + (e/g) j]. Phases with
// as many taps at the same elements read the same window, so they are output channels of one
// convolution: of an undilated kernel all of them, or two kinds where b does not divide K. A tap
// filled up with a zero would make NaN of an infinity or NaN that the place's sum does not have. On
// the CPU, whose library computes blocks of channels, all phases are one convolution with taps
// filled up nevertheless: where one of its results is NaN, which may have come of such a zero, all
// are computed again without. Elsewhere, and where a dilated kernel's phases lie apart, there are
// several convolutions. The results are put together and interleaved: [N, O, phases, Q] ->
// [N, O, Q, phases] -> [N, O, Q b], cut at the front and end. (Shi et al., "Is the deconvolution
// layer the same as a convolutional layer?", 2016.) Any number of dimensions, groups, pads of any
// sign. Phases without a tap are zero. A stride is taken from the result; it is rare here. Expects
// the labels of conv-canon. Targets with a compiler of their own do this themselves. Where a
// target's library has the gradient of a strided convolution's input, it is told as that.
#include <stdlib.h>
#include <string.h>

#include "base/span.h"
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/pass.h"

enum { MAX_PARTS = 16, MAX_CONVOLUTIONS = 64 };
struct part { // neighbouring phases of one dimension, the last first
    int64_t phases;
    int64_t tap, every, taps; // of the kernel, for its first phase: tap, tap + every, ...
    struct window_dim window; // taps 0: zeros
    struct range cut;         // of the input, where the window's padding would be negative
};
struct plan1 { // one dimension
    struct part part[MAX_PARTS];
    int n;
    int64_t dilation, phases; // phases: of all parts
    int64_t first, count;     // q of the first output, number of q
    int64_t cut, limit;       // of the interleaved result
};

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b, b = t;
    }
    return a;
}

// Adds phases whose taps lie `step` elements apart, the first of them `shift` from the output's q.
static bool add_part(struct plan1 *p, struct part x, int64_t size, int64_t shift, int64_t step) {
    if (p->n == MAX_PARTS) return false;
    int64_t low = -(p->first + shift),
            high = p->first + p->count + shift + step * (x.taps - 1) - size;
    x.cut = (struct range){0, size, 1};
    if (low < 0) x.cut.start = -low < size ? -low : size, low += x.cut.start;
    if (high < 0) x.cut.limit = size + high > x.cut.start ? size + high : x.cut.start;
    if (high < 0) high += size - x.cut.limit;
    if (low < 0 || high < 0 || x.cut.limit == x.cut.start) x.taps = 0; // they meet nothing
    x.window = (struct window_dim){x.taps, 1, low, high, 1, step, false};
    p->part[p->n++] = x;
    p->phases += x.phases;
    return true;
}
// Phases of a dilated kernel: each is a part of its own, those between are zero.
static bool add_scattered(struct plan1 *p, const struct window_dim *w, int64_t size) {
    int64_t b = w->base_dilation, e = w->window_dilation, every = b / gcd(e, b), above = b;
    int64_t starts = every < w->size ? every : w->size, tap[MAX_PARTS];
    if (starts > MAX_PARTS / 2) return false;
    for (int k = 0; k < starts; k++) { // by falling phase
        int at = k;
        for (; at > 0 && tap[at - 1] * e % b < k * e % b; at--)
            tap[at] = tap[at - 1];
        tap[at] = k;
    }

    for (int k = 0; k <= starts; k++) {
        int64_t phase = k < starts ? tap[k] * e % b : -1;
        struct part zero = {.phases = above - phase - 1};
        if (zero.phases && !add_part(p, zero, size, 0, 1)) return false;
        if (k == starts) break;
        struct part x = {
            .phases = 1, .tap = tap[k], .every = every, .taps = ceil_div(w->size - tap[k], every)};
        if (!add_part(p, x, size, tap[k] * e / b, e * every / b)) return false;
        above = phase;
    }
    return true;
}
static bool scattered(const struct window_dim *w) {
    return w->base_dilation > 1 && w->window_dilation > 1 && w->size > 1;
}
// How window dimension w over `size` elements becomes dense ones. False: too large to say.
static bool dense(const struct window_dim *w, int64_t size, int64_t result, struct plan1 *out) {
    int64_t b = w->base_dilation, p = w->pad_low, last = (result - 1) * w->stride;
    *out = (struct plan1){.dilation = 1, .phases = 1, .count = result, .limit = result, .n = 1};
    if (b == 1) {
        out->part[0] = (struct part){1, 0, 1, w->size, *w, {0, size, 1}};
        return true;
    }
    if (result < 1 || size < 1 || b > (1 << 20) || w->window_dilation > (1 << 20) ||
        w->size > (1 << 20) || llabs(p) > (1 << 30) || last > (1 << 30))
        return false;

    out->n = 0, out->phases = 0;
    out->dilation = b;
    out->first = ceil_div(-p, b);
    out->count = ceil_div(last - p, b) - out->first + 1;
    out->cut = b - 1 - p - b * out->first;
    out->limit = out->cut + last + 1;
    if (scattered(w)) return add_scattered(out, w, size);

    int64_t less = w->size / b, more = w->size % b; // of the first phases one tap more
    struct part few = {b - more, more, b, less, {0}, {0}}, many = {more, 0, b, less + 1, {0}, {0}};
    if (!less) many.every = more; // phases without a tap: `interleave` pads
    return (!less || add_part(out, few, size, 0, 1)) && (!more || add_part(out, many, size, 0, 1));
}

// All phases of a dimension as one part, kernels filled up to whole phases.
static bool fill_up(const struct window_dim *w, int64_t size, const struct plan1 *exact,
                    struct plan1 *out) {
    int64_t b = w->base_dilation, taps = ceil_div(w->size, b);
    *out = *exact;
    if (exact->n == 1) return true;
    out->n = 0, out->phases = 0;
    return add_part(out, (struct part){b, 0, b, taps, {0}, {0}}, size, 0, 1) && out->part[0].taps;
}

static struct hlo_instr *zero_of(struct hb *b, const struct hlo_instr *x) {
    return hb_const_f64(b, x->shape->dtype, 0);
}
// The taps of some phases: [O, I, K...] -> [O phases..., I, taps...], the last phase first.
static struct hlo_instr *split_kernel(struct hb *b, struct hlo_instr *k, int n,
                                      const struct part *const *p) {
    int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK], reversed[HLO_MAX_RANK];
    struct pad_dim pad[HLO_MAX_RANK] = {{0, 0, 0}};
    struct range of[HLO_MAX_RANK], some[HLO_MAX_RANK];
    bool pads = false, part = false, fewer = false;
    for (int d = 0; d < 2; d++) {
        dims[d] = k->shape->dims[d];
        of[d] = some[d] = (struct range){0, dims[d], 1};
    }
    perm[0] = 0, perm[n + 1] = 1;

    for (int d = 0; d < n; d++) {
        int64_t size = k->shape->dims[d + 2], end = p[d]->tap + p[d]->every * p[d]->taps;
        if (end > size) pad[d + 2].high = end - size; // what `some` leaves out again
        of[d + 2] = (struct range){p[d]->tap, end, 1};
        some[2 + 2 * d] = (struct range){0, p[d]->taps, 1};
        some[3 + 2 * d] = (struct range){0, p[d]->phases, 1};
        pads |= end > size;
        part |= p[d]->tap > 0 || end < size;
        fewer |= p[d]->every > p[d]->phases;
        dims[2 + 2 * d] = p[d]->taps, dims[3 + 2 * d] = p[d]->every;
        perm[1 + d] = reversed[d] = 3 + 2 * d;
        perm[n + 2 + d] = 2 + 2 * d;
    }

    if (pads) k = hb_pad(b, k, zero_of(b, k), pad);
    if (part) k = hb_slice(b, k, of);
    k = hb_reshape(b, k, dims, 2 * n + 2);
    if (fewer) k = hb_slice(b, k, some);
    k = hb_transpose(b, hb_reverse(b, k, reversed, n), perm);
    for (int d = 0; d < n; d++)
        dims[0] *= p[d]->phases, dims[2 + d] = p[d]->taps;
    return hb_reshape(b, k, dims, n + 2);
}

struct made { // what the convolutions are made of
    struct hb *b;
    const struct hlo_instr *old;
    const struct plan1 *plan;
    int n;
    struct hlo_instr *x, *k;
};
// One convolution: [N, O, phases..., Q...].
static struct hlo_instr *convolve(const struct made *m, const struct part *const *p) {
    struct hlo_attr_conv c = *HLO_ATTR(m->old, conv);
    struct hlo_instr *x = m->x;
    const struct shape *to = m->old->shape;
    struct window_dim w[HLO_MAX_RANK];
    struct range cut[HLO_MAX_RANK];
    int64_t dims[HLO_MAX_RANK] = {to->dims[0], to->dims[1]};
    bool cuts = false;
    int n = m->n;

    for (int d = 0; d < 2; d++)
        cut[d] = (struct range){0, x->shape->dims[d], 1};
    for (int d = 0; d < n; d++) {
        w[d] = p[d]->window;
        cut[d + 2] = p[d]->cut;
        cuts |= cut[d + 2].start || cut[d + 2].limit != x->shape->dims[d + 2];
        dims[1] *= p[d]->phases, dims[d + 2] = m->plan[d].count;
    }
    c.window = (struct window){w, n};
    if (cuts) x = hb_slice(m->b, x, cut);
    struct hlo_instr *k = split_kernel(m->b, m->k, n, p);
    const struct shape *s = shape_make(m->b->c->module->arena, to->dtype, dims, n + 2);
    struct hlo_instr *y = hb_op(m->b, HLO_CONVOLUTION, s, (hv[]){x, k}, 2, &c);
    if (hb_ok(m->b)) pass_ask_alike(y, m->old);

    dims[1] = to->dims[1];
    for (int d = 0; d < n; d++)
        dims[2 + d] = p[d]->phases, dims[2 + n + d] = m->plan[d].count;
    return hb_reshape(m->b, y, dims, 2 * n + 2);
}
// All phases of the dimensions from d on, side by side; p: the parts chosen in those before.
static struct hlo_instr *together(const struct made *m, const struct part **p, int d) {
    struct hlo_instr *piece[MAX_PARTS];
    const struct plan1 *all = &m->plan[d];
    if (d == m->n) return convolve(m, p);
    for (int k = 0; k < all->n; k++) {
        p[d] = &all->part[k];
        if (p[d]->taps) {
            piece[k] = together(m, p, d + 1);
            continue;
        }
        int64_t dims[HLO_MAX_RANK] = {m->old->shape->dims[0], m->old->shape->dims[1]};
        for (int e = 0; e < m->n; e++) {
            dims[2 + e] = e <= d ? p[e]->phases : m->plan[e].phases;
            dims[2 + m->n + e] = m->plan[e].count;
        }
        piece[k] = hb_broadcast(m->b, zero_of(m->b, m->old), dims, 2 * m->n + 2, NULL);
    }
    return all->n == 1 ? piece[0] : hb_concat(m->b, piece, all->n, 2 + d);
}
// Is there NaN in what filled-up phases gave? The last phase of each dimension, which comes first,
// has a zero wherever another one has, and what it meets spoils each channel of a group: one is
// looked at. y: [N, O, phases..., Q...].
static struct hlo_instr *spoilt(const struct made *m, struct hlo_instr *y) {
    struct hb *b = m->b;
    int64_t groups = HLO_ATTR(m->old, conv)->feature_group_count, over[HLO_MAX_RANK];
    struct range first[HLO_MAX_RANK];
    for (int d = 0; d < y->shape->rank; d++) {
        int64_t size = y->shape->dims[d];
        bool one = d > 1 && d < 2 + m->n;
        first[d] = (struct range){0, one ? 1 : size, d == 1 ? size / groups : 1};
        over[d] = d;
    }
    y = hb_slice(b, y, first);
    return hb_reduce(b, hb_compare(b, y, y, CMP_NE), hb_const_i64(b, DT_PRED, 0), over,
                     y->shape->rank, HLO_OR);
}
// What `y` is where it is not spoilt, else the results of several convolutions.
static struct hlo_instr *guarded(const struct made *m, struct hlo_instr *y) {
    struct hlo_module *module = m->b->c->module;
    struct hlo_computation *f[2];
    const struct part *parts[3];
    struct hlo_instr *in[] = {y, m->old->operands[0], m->old->operands[1]};
    struct hlo_instr *any = spoilt(m, y), *arg = hb_tuple(m->b, in, 3);
    if (!hb_ok(m->b)) return y;
    for (int k = 0; k < 2; k++) {
        f[k] = hb_callee(module, k ? "as_they_are" : "phases_one_by_one");
        struct hb b = hb_begin(f[k]);
        struct made again = {&b, m->old, m->plan, m->n, NULL, NULL};
        struct hlo_instr *p = hlo_add_param(f[k], 0, arg->shape, "p");
        again.x = hb_gte(&b, p, 1);
        again.k = hb_gte(&b, p, 2);
        struct hlo_instr *r = k ? hb_gte(&b, p, 0) : together(&again, parts, 0);
        if (hb_ok(&b)) hlo_set_root(f[k], r);
        if (f[k]->root) hlo_remove_dead(f[k]);
        status_t st = hb_end(&b);
        if (st) hb_fail(m->b, st);
    }
    return hb_call(m->b, HLO_CONDITIONAL, y->shape, (hv[]){any, arg, arg}, 3, NULL, f, 2);
}
// [N, O, phases..., Q...] -> [N, O, result...].
static struct hlo_instr *interleave(const struct made *m, struct hlo_instr *y) {
    const struct window_dim *old = HLO_ATTR(m->old, conv)->window.v;
    const struct plan1 *p = m->plan;
    int n = m->n;
    int64_t dims[HLO_MAX_RANK] = {y->shape->dims[0], y->shape->dims[1]},
            perm[HLO_MAX_RANK] = {0, 1};
    struct pad_dim pad[HLO_MAX_RANK] = {{0, 0, 0}};
    struct range cut[HLO_MAX_RANK];
    bool pads = false;
    for (int d = 0; d < n; d++) {
        perm[2 + 2 * d] = 2 + n + d, perm[3 + 2 * d] = 2 + d;
        pad[3 + 2 * d].low = p[d].dilation - p[d].phases; // phases without a tap
        pads |= p[d].dilation > p[d].phases;
    }
    y = hb_transpose(m->b, y, perm);
    if (pads) y = hb_pad(m->b, y, zero_of(m->b, y), pad);
    cut[0] = (struct range){0, dims[0], 1}, cut[1] = (struct range){0, dims[1], 1};
    for (int d = 0; d < n; d++) {
        dims[2 + d] = p[d].count * p[d].dilation;
        cut[2 + d] = (struct range){p[d].cut, p[d].limit, p[d].dilation > 1 ? old[d].stride : 1};
    }
    return hb_slice(m->b, hb_reshape(m->b, y, dims, n + 2), cut);
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
    struct plan1 plan[3], filled[3];
    const struct part *parts[3];
    bool dilated = false, fills = true;

    if (!a || a->batch_group_count != 1 || a->window.n > 3 || i->shape->dynamic ||
        i->operands[0]->shape->dynamic || a->window.n != a->dim_labels.n_spatial)
        return NULL;

    int n = a->window.n, convolutions = 1;
    bool ordered = labels_in_order(&a->dim_labels, 0);
    for (int d = 0; d < n; d++) {
        const struct window_dim *w = &a->window.v[d];
        dilated |= w->base_dilation != 1;
        ordered &= !w->reversal;
        if (!dense(w, i->operands[0]->shape->dims[d + 2], i->shape->dims[d + 2], &plan[d]))
            return NULL;
        convolutions *= plan[d].n;
    }

    if (!dilated || !ordered || convolutions > MAX_CONVOLUTIONS) return NULL;
    struct hlo_instr *back = transposed(b, i, p->target);
    if (back) return back;
    struct made m = {b, i, plan, n, i->operands[0], i->operands[1]}, all = m;
    all.plan = filled;
    for (int d = 0; d < n; d++)
        fills = fills && !scattered(&a->window.v[d]) &&
                fill_up(&a->window.v[d], m.x->shape->dims[d + 2], &plan[d], &filled[d]);
    bool whole = dtype_is_int(i->shape->dtype);
    if (convolutions == 1 || !fills || (!whole && strcmp(p->target->kind, "cpu") != 0))
        return interleave(&m, together(&m, parts, 0));
    struct hlo_instr *y = together(&all, parts, 0);
    return interleave(&m, whole ? y : guarded(&m, y));
}

status_t pass_conv_phases(struct hlo_module *m, struct pass_ctx *p) {
    return p->target && !p->target->emit ? pass_rewrite(m, p, rewrite) : ST_OK;
}
