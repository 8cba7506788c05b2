// SPDX-License-Identifier: Apache-2.0
// Products of quantised values as products of 8-bit integers, where the target's library has them.
//   conv((q - z) sx, w sw[c])  ->  (conv(q, w) - z sum(w)[c]) (sx sw)[c]
// q: s8 or u8, w: s8, conv a convolution or a dot of f32 or s32 of such differences. Weights of u8
// become s8, and their zero point 128 less; weights whose zero point zw is not 0 then
// (one for all, or one a channel) also cost the sums over each window or row of q:
//   conv(q - z, w - zw)  =  conv(q, w) - z (sum(w)[c] - n zw[c]) - zw[c] conv(q, 1)
// The 8-bit products are of s32, so they are exact; sums over w depend on weights alone and are
// prepared once. Integer products that the library does not have so (groups in three dimensions, no
// VNNI) are sums in f32 as long as those are exact. Where a convolution pads, q is padded with z
// before. Models come so from quantising tools (dequantise, convolve, quantise; or with integer
// operators).
// Where kernels have sums of two products of 16-bit integers instead (WebAssembly), the factors are
// the differences themselves, as s16: nothing is to be taken from the product.
#include "compiler/passes/pass.h"

enum {
    MAX_PRODUCTS = 65536, // of 255 and 127, whose sum an s32 holds
    MAX_PARTS = 32        // of a product in f32
};

struct quantised { // (q - zero) * scale
    hv q;
    hv zero;           // s32 scalar or vector; NULL = none
    int64_t zero_dim;  // of a vector: the dimension of q
    hv scale;          // f32 scalar or vector; NULL = 1
    int64_t scale_dim; // of a vector: the dimension of q
};

static bool is_8bit(const struct hlo_instr *i) {
    return i->shape->dtype == DT_S8 || i->shape->dtype == DT_U8;
}
static bool all_zero(const struct hlo_instr *i) {
    while (i->op == HLO_CONVERT || i->op == HLO_BROADCAST || i->op == HLO_RESHAPE)
        i = i->operands[0];
    if (i->op != HLO_CONSTANT) return false;
    for (int64_t k = 0, n = shape_elements(i->shape); k < n; k++)
        if (lit_get_f64(i->literal, k) != 0) return false;
    return true;
}
// q, or q less a zero point, as s32; or q as any wider type.
static bool match_centred(hv x, struct quantised *o) {
    if (x->op == HLO_CONVERT && is_8bit(x->operands[0])) {
        o->q = x->operands[0];
        return true;
    }
    if (x->op != HLO_SUBTRACT || x->shape->dtype != DT_S32) return false;
    hv v = x->operands[0], z = x->operands[1];
    if (v->op != HLO_CONVERT || !is_8bit(v->operands[0])) return false;
    o->q = v->operands[0];
    if (all_zero(z)) return true;
    if (z->op != HLO_BROADCAST || z->operands[0]->shape->rank > 1) return false;
    o->zero = z->operands[0];
    if (o->zero->shape->rank == 1) o->zero_dim = HLO_ATTR(z, dims)->dimensions.v[0];
    return true;
}
static bool match_scale(hv s, struct quantised *o) {
    if (s->op != HLO_BROADCAST || s->operands[0]->shape->rank > 1) return false;
    o->scale = s->operands[0];
    if (o->scale->shape->rank == 1) o->scale_dim = HLO_ATTR(s, dims)->dimensions.v[0];
    return true;
}
static bool match_quantised(hv x, struct quantised *o) {
    *o = (struct quantised){.scale_dim = -1, .zero_dim = -1};
    if (x->shape->dtype == DT_S32) return match_centred(x, o);
    if (x->shape->dtype != DT_F32) return false;
    if (x->op == HLO_CONVERT) return match_centred(x->operands[0], o) || match_centred(x, o);
    for (int k = 0; k < 2 && x->op == HLO_MULTIPLY; k++) {
        hv c = x->operands[k];
        if (c->op == HLO_CONVERT && match_scale(x->operands[1 - k], o) &&
            (match_centred(c->operands[0], o) || match_centred(c, o)))
            return true;
    }
    return false;
}
// Where a dimension stands behind a transposition; -1 stays.
static int64_t moved_to(struct i64s perm, int64_t dim) {
    for (int k = 0; k < perm.n; k++)
        if (perm.v[k] == dim) return k;
    return -1;
}
static hv as_wide(struct hb *b, hv scalar, hv vector) {
    return hb_broadcast(b, scalar, vector->shape->dims, vector->shape->rank, NULL);
}
// Also behind a transposition, which is then one of q.
static bool match_weights(struct hb *b, hv x, struct quantised *o) {
    if (x->op != HLO_TRANSPOSE) return match_quantised(x, o);
    struct i64s perm = HLO_ATTR(x, dims)->dimensions;
    if (!match_quantised(x->operands[0], o)) return false;
    o->q = hb_transpose(b, o->q, perm.v);
    o->scale_dim = moved_to(perm, o->scale_dim);
    o->zero_dim = moved_to(perm, o->zero_dim);
    return true;
}
// Weights of u8 as s8, 128 less; their zero point with them. A zero point of 0 is none.
static void centre_weights(struct hb *b, struct quantised *w) {
    struct arena *a = b->c->module->arena;
    if (w->q->shape->dtype == DT_U8) {
        const struct shape *s = w->q->shape;
        hv top = hb_broadcast(b, hb_const_i64(b, DT_U8, 128), s->dims, s->rank, NULL);
        hv less = hb_const_i64(b, DT_S32, -128);
        w->q = hb_op(b, HLO_XOR, s, (hv[]){w->q, top}, 2, NULL);
        w->q = hb_op(b, HLO_BITCAST_CONVERT, shape_with_dtype(a, s, DT_S8), &w->q, 1, NULL);
        if (w->zero && w->zero->op == HLO_CONVERT && w->zero->operands[0]->op == HLO_CONSTANT &&
            w->zero->shape->rank == 0)
            w->zero = hb_const_i64(b, DT_S32, lit_get_i64(w->zero->operands[0]->literal, 0));
        if (!w->zero)
            w->zero = less;
        else if (w->zero->op == HLO_CONSTANT && w->zero->shape->rank == 0)
            w->zero = hb_const_i64(b, DT_S32, lit_get_i64(w->zero->literal, 0) - 128);
        else
            w->zero = hb_add(b, w->zero, w->zero->shape->rank ? as_wide(b, less, w->zero) : less);
    }
    if (w->zero && all_zero(w->zero)) w->zero = NULL;
}

// The weights' dimension that becomes the result's channel, which is the only free one; -1: none.
static int64_t weight_channel(const struct hlo_instr *hero, const struct shape *w) {
    if (hero->op == HLO_CONVOLUTION) return HLO_ATTR(hero, conv)->dim_labels.k_out;
    const struct hlo_attr_dot *d = HLO_ATTR(hero, dot);
    if (d->rhs_batch_dims.n || d->rhs_contracting_dims.n + 1 != w->rank) return -1;
    for (int k = 0; k < w->rank; k++)
        if (!i64s_has(d->rhs_contracting_dims, k)) return k;
    return -1;
}
static int64_t result_channel(const struct hlo_instr *hero) {
    return hero->op == HLO_CONVOLUTION ? HLO_ATTR(hero, conv)->dim_labels.out_feature
                                       : hero->shape->rank - 1;
}

// What the window pads is z, not 0: q padded before, and the window without.
static bool pad_before(struct hb *b, struct quantised *x, struct hlo_attr_conv *attr) {
    struct pad_dim pads[HLO_MAX_RANK] = {0};
    struct window_dim *v = arena_array(b->c->module->arena, struct window_dim, attr->window.n + 1);
    bool any = false;
    hv z = x->zero;
    for (int d = 0; d < attr->window.n; d++) {
        v[d] = attr->window.v[d];
        if (v[d].pad_low < 0 || v[d].pad_high < 0 || v[d].base_dilation != 1) return false;
        pads[attr->dim_labels.in_spatial[d]] = (struct pad_dim){v[d].pad_low, v[d].pad_high, 0};
        any = any || v[d].pad_low || v[d].pad_high;
        v[d].pad_low = v[d].pad_high = 0;
    }
    if (!any) return true;
    if (z->op == HLO_CONVERT && z->operands[0]->shape->dtype == x->q->shape->dtype)
        z = z->operands[0];
    else if (z->op == HLO_CONSTANT)
        z = hb_const_i64(b, x->q->shape->dtype, lit_get_i64(z->literal, 0));
    else
        return false;
    x->q = hb_pad(b, x->q, z, pads);
    attr->window.v = v;
    return true;
}

static hv channel_sums(struct hb *b, hv w, int64_t channel) {
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int k = 0; k < w->shape->rank; k++)
        if (k != channel) dims[n++] = k;
    return hb_reduce(b, hb_convert(b, w, DT_S32), hb_const_i64(b, DT_S32, 0), dims, n, HLO_ADD);
}
static hv over_result(struct hb *b, hv v, const struct shape *s, int64_t channel) {
    return hb_broadcast(b, v, s->dims, s->rank, v->shape->rank ? &channel : NULL);
}

// The product of scales, a scalar or one a channel; NULL = 1.
static hv scales(struct hb *b, const struct quantised *x, const struct quantised *w) {
    if (!x->scale || !w->scale) return x->scale ? x->scale : w->scale;
    hv s = x->scale;
    if (w->scale->shape->rank) s = as_wide(b, s, w->scale);
    return hb_mul(b, s, w->scale);
}

// What the weights' zero point takes from the product: zw[c] times the sum of q over each row or
// window.
static hv window_sums(struct hb *b, hv i, const struct quantised *x, const struct quantised *w,
                      const void *attr, int64_t from, int64_t to) {
    int64_t dims[HLO_MAX_RANK];
    const struct shape *ws = w->q->shape;
    struct arena *a = b->c->module->arena;
    memcpy(dims, ws->dims, sizeof *dims * (size_t)ws->rank);
    hv one = hb_const_i64(b, DT_S8, 1), sums;
    if (i->op == HLO_DOT) {
        const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
        sums = hb_reduce(b, hb_convert(b, x->q, DT_S32), hb_const_i64(b, DT_S32, 0),
                         d->lhs_contracting_dims.v, d->lhs_contracting_dims.n, HLO_ADD);
        int64_t lead[HLO_MAX_RANK];
        for (int k = 0; k < sums->shape->rank; k++)
            lead[k] = k;
        sums = hb_broadcast(b, sums, i->shape->dims, i->shape->rank, lead);
    } else {
        int64_t out[HLO_MAX_RANK];
        bool each = HLO_ATTR(i, conv)->feature_group_count > 1; // a kernel for each group
        memcpy(out, i->shape->dims, sizeof *out * (size_t)i->shape->rank);
        if (!each) dims[from] = out[to] = 1;
        hv ones = hb_broadcast(b, one, dims, ws->rank, NULL);
        sums = hb_op(b, i->op, shape_make(a, DT_S32, out, i->shape->rank), (hv[]){x->q, ones}, 2,
                     attr);
        if (!each) sums = hb_broadcast_numpy(b, sums, i->shape->dims, i->shape->rank);
    }
    return hb_mul(b, sums, over_result(b, hb_unary(b, HLO_NEGATE, w->zero), i->shape, to));
}
// What the zero point of q takes: z (sum(w)[c] - n zw[c]), one value a channel.
static hv channel_terms(struct hb *b, const struct quantised *x, const struct quantised *w,
                        int64_t from) {
    hv sums = channel_sums(b, w->q, from);
    int64_t n = shape_elements(w->q->shape) / w->q->shape->dims[from];
    if (w->zero) {
        hv z = w->zero->shape->rank ? w->zero : as_wide(b, w->zero, sums);
        z = hb_mul(b, z, as_wide(b, hb_const_i64(b, DT_S32, n), z));
        sums = hb_sub(b, sums, z);
    }
    return hb_mul(b, sums, as_wide(b, hb_unary(b, HLO_NEGATE, x->zero), sums));
}

// The operands as quantised values that the 8-bit product can take.
static bool match_operands(struct hb *b, hv i, struct quantised *x, struct quantised *w) {
    return match_quantised(i->operands[0], x) && match_weights(b, i->operands[1], w);
}
static bool one_for_all(const struct quantised *x) {
    return (!x->scale || !x->scale->shape->rank) && (!x->zero || !x->zero->shape->rank);
}
static bool along_channel(const struct quantised *w, int64_t from) {
    return (!w->scale || !w->scale->shape->rank || w->scale_dim == from) &&
           (!w->zero || !w->zero->shape->rank || w->zero_dim == from);
}

// Sums of integers are exact, whatever type they are computed in: no convolution by way of sums of
// others.
static void as_written(hv conv) {
    hlo_set_extra(conv, "operand_precision", "{highest,highest}");
}
static hv on_8bit(struct hb *b, hv i, struct quantised x, struct quantised w,
                  const struct target *t) {
    bool wide = i->shape->dtype == DT_F32;
    int64_t from = weight_channel(i, w.q->shape), to = result_channel(i);
    if (from < 0 || w.q->shape->dims[from] < 1 || !along_channel(&w, from) ||
        shape_elements(w.q->shape) / w.q->shape->dims[from] > MAX_PRODUCTS)
        return NULL;
    centre_weights(b, &w);
    const void *attr = i->attr;
    struct hlo_attr_conv conv;
    if (i->op == HLO_CONVOLUTION) {
        conv = *HLO_ATTR(i, conv);
        if (conv.batch_group_count != 1 || (x.zero && !pad_before(b, &x, &conv))) return NULL;
        attr = &conv;
    }
    hv y = hb_op(b, i->op, shape_with_dtype(b->c->module->arena, i->shape, DT_S32),
                 (hv[]){x.q, w.q}, 2, attr);
    if (hb_ok(b) && !wide && i->op == HLO_CONVOLUTION) as_written(y);
    if (!hb_ok(b) || !t->library_accepts(t, y)) return NULL;
    if (x.zero) y = hb_add(b, y, over_result(b, channel_terms(b, &x, &w, from), y->shape, to));
    if (w.zero) y = hb_add(b, y, window_sums(b, i, &x, &w, attr, from, to));
    if (!wide) return y;
    hv s = scales(b, &x, &w);
    y = hb_convert(b, y, DT_F32);
    return s ? hb_mul(b, y, over_result(b, s, y->shape, to)) : y;
}

// ---- products of 16-bit integers, two at a time

// q less its zero point.
static hv difference(struct hb *b, const struct quantised *v) {
    const struct shape *s = v->q->shape;
    hv q = hb_convert(b, v->q, DT_S16);
    if (!v->zero) return q;
    const int64_t *dim = v->zero->shape->rank ? &v->zero_dim : NULL;
    return hb_sub(b, q, hb_broadcast(b, hb_convert(b, v->zero, DT_S16), s->dims, s->rank, dim));
}
// Is the zero point a value of q's type, so that differences have nine bits?
static bool is_near(const struct quantised *v) {
    const struct hlo_instr *z = v->zero;
    bool sign = v->q->shape->dtype == DT_S8;
    if (!z) return true;
    if (z->op == HLO_CONVERT) return z->operands[0]->shape->dtype == v->q->shape->dtype;
    if (z->op != HLO_CONSTANT) return false;
    for (int64_t k = 0, n = shape_elements(z->shape); k < n; k++) {
        int64_t x = lit_get_i64(z->literal, k);
        if (x < (sign ? -128 : 0) || x > (sign ? 127 : 255)) return false;
    }
    return true;
}
// How many products a sum has, and of how many terms lie side by side two are taken at a time.
static int64_t products_of(const struct hlo_instr *i, const struct shape *w, int64_t *out_terms) {
    if (i->op == HLO_CONVOLUTION) {
        const struct labels *l = &HLO_ATTR(i, conv)->dim_labels;
        *out_terms = w->dims[l->k_in];
        return w->dims[l->k_out] ? shape_elements(w) / w->dims[l->k_out] : 0;
    }
    struct i64s terms = HLO_ATTR(i, dot)->rhs_contracting_dims;
    int64_t n = 1;
    for (int k = 0; k < terms.n; k++)
        n *= *out_terms = w->dims[terms.v[k]];
    return n;
}
// Weights with the features that a sum goes over innermost, where kernels read two at a time.
static hv features_last(struct hb *b, hv w, struct labels *l) {
    int64_t perm[HLO_MAX_RANK], n = 0;
    perm[n++] = l->k_out;
    for (int d = 0; d < l->n_spatial; d++)
        perm[n++] = l->k_spatial[d];
    perm[n] = l->k_in;
    l->k_out = 0;
    for (int d = 0; d < l->n_spatial; d++)
        l->k_spatial[d] = d + 1;
    l->k_in = (int)n;
    return hb_transpose(b, w, perm);
}
static hv in_pairs(struct hb *b, hv i, const struct quantised *x, const struct quantised *w) {
    enum { MOST = INT32_MAX / (255 * 255) };
    bool wide = i->shape->dtype == DT_F32;
    int64_t from = weight_channel(i, w->q->shape), to = result_channel(i), terms = 0;
    if (from < 0 || !along_channel(w, from) || !is_near(x) || !is_near(w)) return NULL;
    int64_t n = products_of(i, w->q->shape, &terms);
    if (n < 1 || n > MOST || terms % 2) return NULL;

    const void *attr = i->attr;
    hv q = difference(b, x), k = difference(b, w);
    if (i->op == HLO_CONVOLUTION) {
        struct hlo_attr_conv *conv = arena_dup(b->c->module->arena, attr, sizeof *conv);
        k = features_last(b, k, &conv->dim_labels);
        attr = conv;
    }
    const struct shape *s = shape_with_dtype(b->c->module->arena, i->shape, DT_S32);
    hv y = hb_op(b, i->op, s, (hv[]){q, k}, 2, attr);
    if (!hb_ok(b)) return NULL;
    if (i->op == HLO_CONVOLUTION) as_written(y);
    if (!wide) return y;
    hv scale = scales(b, x, w);
    y = hb_convert(b, y, DT_F32);
    return scale ? hb_mul(b, y, over_result(b, scale, y->shape, to)) : y;
}

// ---- products of integers that the library has only for f32

// The most that a factor can be, less its zero point.
static int64_t largest(const struct quantised *v) {
    return v->zero || v->q->shape->dtype == DT_U8 ? 255 : 128;
}
static hv span_f32(struct hb *b, hv x, int64_t dim, int64_t from, int64_t to) {
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        r[d] = (struct range){0, x->shape->dims[d], 1};
    if (from || to < x->shape->dims[dim]) {
        r[dim] = (struct range){from, to, 1};
        x = hb_slice(b, x, r);
    }
    return hb_convert(b, x, DT_F32);
}
// i, of s32, as sums in f32 that are exact, of so many terms that they stay below 2^24.
static hv through_f32(struct hb *b, hv i, const struct quantised *x, const struct quantised *w,
                      const struct target *t) {
    const struct hlo_attr_conv *conv = i->op == HLO_CONVOLUTION ? HLO_ATTR(i, conv) : NULL;
    const struct hlo_attr_dot *dot = conv ? NULL : HLO_ATTR(i, dot);
    if (dot && dot->lhs_contracting_dims.n != 1) return NULL;
    int64_t left = conv ? conv->dim_labels.in_feature : dot->lhs_contracting_dims.v[0];
    int64_t right = conv ? conv->dim_labels.k_in : dot->rhs_contracting_dims.v[0];
    const struct shape *ws = i->operands[1]->shape, *xs = i->operands[0]->shape;
    bool whole = conv && (conv->feature_group_count > 1 || conv->batch_group_count > 1);
    int64_t terms = ((int64_t)1 << 24) / (largest(x) * largest(w)), depth = ws->dims[right];
    int64_t window = 1, step;
    for (int d = 0; conv && d < conv->window.n; d++)
        window *= conv->window.v[d].size;
    step = window > 0 ? terms / window : 0;
    if (step < 1 || depth < 1 || (step < depth && (whole || depth > MAX_PARTS * step))) return NULL;
    const struct shape *s = shape_with_dtype(b->c->module->arena, i->shape, DT_F32);
    hv all = NULL;
    for (int64_t k = 0; k < depth; k += step) {
        int64_t to = k + step < depth ? k + step : depth;
        hv part = hb_op(b, i->op, s,
                        (hv[]){span_f32(b, i->operands[0], left, k, whole ? xs->dims[left] : to),
                               span_f32(b, i->operands[1], right, k, to)},
                        2, i->attr);
        if (!hb_ok(b) || !t->library_accepts(t, part)) return NULL;
        if (conv) as_written(part);
        part = hb_convert(b, part, DT_S32);
        all = all ? hb_add(b, all, part) : part;
    }
    return all;
}

static hv rewrite(struct hb *b, hv i, const struct pass_ctx *p) {
    const struct target *t = p->target;
    struct quantised x, w;
    bool wide = i->shape->dtype == DT_F32;
    if ((i->op != HLO_CONVOLUTION && i->op != HLO_DOT) || !t ||
        (!t->library_accepts && !t->kernel_pairs) || (!wide && i->shape->dtype != DT_S32) ||
        !match_operands(b, i, &x, &w))
        return NULL;
    bool strict = p->opt && p->opt->precision == PRECISION_STRICT;
    if (t->kernel_pairs)
        return one_for_all(&x) && !(wide && strict) ? in_pairs(b, i, &x, &w) : NULL;
    hv y = t->library_int8 && !strict && one_for_all(&x) ? on_8bit(b, i, x, w, t) : NULL;
    return y || wide || !hb_ok(b) ? y : through_f32(b, i, &x, &w, t);
}

status_t pass_int8(struct hlo_module *m, struct pass_ctx *p) {
    return pass_rewrite(m, p, rewrite);
}
