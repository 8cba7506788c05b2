// SPDX-License-Identifier: Apache-2.0
// Sums of convolutions and products of one value: blocks of several branches, as networks are
// trained that are run with one (Ding et al., "RepVGG: Making VGG-style ConvNets Great Again", CVPR
// 2021, section 3.3). Filters are added, a smaller one where it lies in the larger.
#include "compiler/ir/work.h"
#include "compiler/passes/rules/rules.h"

// Weights that lie as integers: their sum would lie as floats.
static bool is_quantised(const struct hlo_instr *w, int depth) {
    enum { FAR = 6 };
    if (depth == FAR || w->op == HLO_CUSTOM_CALL || dtype_is_int(w->shape->dtype)) return true;
    if (w->op == HLO_PARAMETER || w->op == HLO_CONSTANT) return false;
    bool moves = w->op == HLO_CONVERT || w->op == HLO_RESHAPE || w->op == HLO_TRANSPOSE ||
                 w->op == HLO_BROADCAST || w->op == HLO_MULTIPLY || w->op == HLO_ADD ||
                 w->op == HLO_SUBTRACT || w->op == HLO_PAD || w->op == HLO_SLICE;
    for (int k = 0; k < w->n_operands && moves; k++)
        if (is_quantised(w->operands[k], depth + 1)) return true;
    return false;
}
// A branch: a convolution or product that nothing else reads, and what is added to each feature.
struct branch {
    struct hlo_instr *hero, *bias; // bias: a broadcast, or NULL
};
static bool is_hero(const struct hlo_instr *i) {
    return (i->op == HLO_CONVOLUTION || i->op == HLO_DOT) && i->users.n == 1 &&
           i->control_preds.n == 0 && !i->shape->dynamic &&
           (i->shape->dtype == DT_F32 || i->shape->dtype == DT_F64) &&
           i->operands[0]->shape->dtype == i->shape->dtype &&
           i->operands[1]->shape->dtype == i->shape->dtype;
}
static bool is_branch(struct hlo_instr *i, struct branch *out) {
    *out = (struct branch){i, NULL};
    for (int k = 0; k < 2 && i->op == HLO_ADD && i->users.n == 1; k++)
        if (i->operands[k]->op == HLO_BROADCAST && is_hero(i->operands[1 - k]))
            *out = (struct branch){i->operands[1 - k], i->operands[k]};
    return is_hero(out->hero);
}

// Where filter y's window begins in filter x's; false: it does not lie in it.
static bool lies_in(const struct window_dim *x, const struct window_dim *y, int64_t *at) {
    int64_t before = x->pad_low - y->pad_low, apart = x->window_dilation;
    if (x->stride != y->stride || x->base_dilation != y->base_dilation ||
        (y->size > 1 && apart != y->window_dilation) || before < 0 || before % apart != 0)
        return false;
    *at = before / apart;
    bool same = x->size == y->size && *at == 0 && x->reversal == y->reversal;
    return same || (!x->reversal && !y->reversal && *at + y->size <= x->size);
}
// y's filter as one of x's size; NULL when both are no convolutions of the same form.
static hv filter_in(struct rule_ctx *r, const struct hlo_instr *x, const struct hlo_instr *y) {
    const struct hlo_attr_conv *cx = HLO_ATTR(x, conv), *cy = HLO_ATTR(y, conv);
    struct hlo_attr_conv other = *cy;
    struct pad_dim pad[HLO_MAX_RANK] = {0};
    bool any = false;
    other.window = cx->window;
    if (cx->window.n != cy->window.n || cx->batch_group_count != 1 ||
        (cx->window.n && cx->window.n != cx->dim_labels.n_spatial) ||
        !attr_equal(hlo_op_info(x->op)->attrs, cx, &other))
        return NULL;
    for (int d = 0; d < cx->window.n; d++) {
        struct pad_dim *p = &pad[cx->dim_labels.k_spatial[d]];
        if (!lies_in(&cx->window.v[d], &cy->window.v[d], &p->low)) return NULL;
        p->high = cx->window.v[d].size - cy->window.v[d].size - p->low;
        any |= p->low || p->high;
    }
    hv w = y->operands[1];
    return any ? hb_pad(&r->b, w, hb_const_f64(&r->b, w->shape->dtype, 0), pad) : w;
}
// What of x and y is not the same, as x reads it; NULL when they are not of one form.
static hv other_in(struct rule_ctx *r, const struct hlo_instr *x, const struct hlo_instr *y,
                   int side) {
    if (x->op == HLO_CONVOLUTION) return side == 1 ? filter_in(r, x, y) : NULL;
    bool same = attr_equal(hlo_op_info(x->op)->attrs, x->attr, y->attr) &&
                shape_equal(x->operands[side]->shape, y->operands[side]->shape);
    return same ? y->operands[side] : NULL;
}
// x + y as one, NULL when they cannot be.
static hv both(struct rule_ctx *r, struct branch x, struct branch y) {
    enum { WORTH = 8 };
    const struct hlo_instr *a = x.hero, *b = y.hero;
    int side = a->operands[0] == b->operands[0] ? 1 : 0;
    if (a == b || a->op != b->op || !shape_equal(a->shape, b->shape) ||
        a->operands[1 - side] != b->operands[1 - side])
        return NULL;
    if (x.bias && y.bias &&
        (!attr_equal(hlo_op_info(HLO_BROADCAST)->attrs, x.bias->attr, y.bias->attr) ||
         !shape_equal(x.bias->operands[0]->shape, y.bias->operands[0]->shape)))
        return NULL;

    // The sum of what differs must cost less than what it saves, also where it is made in each run.
    if (hlo_flops(b) / WORTH < shape_elements(b->operands[side]->shape)) return NULL;
    if (is_quantised(a->operands[side], 0) || is_quantised(b->operands[side], 0)) return NULL;
    hv more = other_in(r, a, b, side);
    if (!more) return NULL;
    hv in[2] = {a->operands[0], a->operands[1]};
    in[side] = hb_add(&r->b, in[side], more);
    hv sum = hb_op(&r->b, a->op, a->shape, in, 2, a->attr);
    if (x.bias && y.bias)
        return hb_add(&r->b, sum,
                      hb_op(&r->b, HLO_BROADCAST, x.bias->shape,
                            (hv[]){hb_add(&r->b, x.bias->operands[0], y.bias->operands[0])}, 1,
                            x.bias->attr));
    hv bias = x.bias ? x.bias : y.bias;
    return bias ? hb_add(&r->b, sum, bias) : sum;
}
static hv either(struct rule_ctx *r, struct branch x, struct branch y) {
    hv sum = both(r, x, y);
    return sum ? sum : both(r, y, x);
}
// Branches are added one after the other: the last may belong to the one before.
RULE_FN(branch_sum) {
    struct branch x, y;
    if (i->op != HLO_ADD || r->strict) return NULL;
    for (int k = 0; k < 2; k++) {
        struct hlo_instr *rest = i->operands[1 - k];
        if (!is_branch(i->operands[k], &x)) continue;
        if (is_branch(rest, &y)) return either(r, y, x);
        for (int j = 0; j < 2 && rest->op == HLO_ADD && rest->users.n == 1; j++) {
            hv sum = is_branch(rest->operands[j], &y) ? either(r, y, x) : NULL;
            if (sum) return hb_add(&r->b, rest->operands[1 - j], sum);
        }
    }
    return NULL;
}
