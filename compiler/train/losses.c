// SPDX-License-Identifier: Apache-2.0
// Losses, an example at a time. Sums and logarithms are in f32 (f64 for scores in f64), in the
// forms that neither overflow nor cancel: log-sum-exp of differences from the largest score;
// max(y, 0) - y t + log(1 + exp(-|y|)) for the logistic loss.
#include "compiler/train/parts.h"

#include <math.h>

const struct loss_row loss_rows[TRAIN_LOSS_COUNT] = {
#define LOSS(id, text, target, likelihood) {text, LOSS_##target, likelihood},
#include "compiler/train/losses.def"
#undef LOSS
};

hv part_sum(struct hb *b, hv x) {
    int64_t dims[HLO_MAX_RANK];
    for (int k = 0; k < x->shape->rank; k++)
        dims[k] = k;
    if (!x->shape->rank) return x;
    return hb_reduce(b, x, hb_const_f64(b, x->shape->dtype, 0), dims, x->shape->rank, HLO_ADD);
}

static int64_t class_axis(const struct train_spec *s, const struct shape *y) {
    return s->axis < 0 ? y->rank + s->axis : s->axis;
}
static const struct shape *without_axis(struct arena *a, const struct shape *y, int64_t axis) {
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int k = 0; k < y->rank; k++)
        if (k != axis) dims[n++] = y->dims[k];
    return shape_make(a, DT_S32, dims, n);
}
status_t loss_label_shape(struct arena *a, const struct train_spec *s, const struct shape *y,
                          const struct shape **out) {
    const struct loss_row *row = &loss_rows[s->loss];
    int64_t axis = class_axis(s, y);
    *out = NULL;
    if (shape_is_tuple(y) || !dtype_is_float(y->dtype))
        return st_invalid("loss %s: result %lld of the model is %s", row->name,
                          (long long)s->output, shape_text(a, y));
    if (row->target == LOSS_NONE)
        return shape_elements(y) == 1
                   ? ST_OK
                   : st_invalid("loss output: result %lld of the model is %s, not one number",
                                (long long)s->output, shape_text(a, y));
    if (row->target == LOSS_VALUES && s->loss != TRAIN_LOSS_softmax_dense) {
        *out = y;
        return ST_OK;
    }
    if (y->rank < 2 || axis < 0 || axis >= y->rank || axis == 0)
        return st_invalid("loss %s: result %lld of the model is %s, which has no dimension %lld of "
                          "classes behind that of the batch",
                          row->name, (long long)s->output, shape_text(a, y), (long long)s->axis);
    *out = row->target == LOSS_VALUES ? y : without_axis(a, y, axis);
    return ST_OK;
}

// ---- along the classes

struct classes {
    struct hb *b;
    hv y;
    int64_t axis;
    int64_t others[HLO_MAX_RANK];
};
static struct classes classes_of(struct hb *b, const struct train_spec *s, hv y) {
    struct classes c = {.b = b, .y = y, .axis = class_axis(s, y->shape)};
    int n = 0;
    for (int k = 0; k < y->shape->rank; k++)
        if (k != c.axis) c.others[n++] = k;
    return c;
}
static hv widen(struct classes *c, hv x) { // over the classes
    return hb_broadcast(c->b, x, c->y->shape->dims, c->y->shape->rank, c->others);
}
static hv over(struct classes *c, hv x, enum hlo_op reducer) {
    enum dtype t = x->shape->dtype;
    double none = reducer == HLO_MAXIMUM ? -INFINITY : 0;
    return hb_reduce(c->b, x, hb_const_f64(c->b, t, none), &c->axis, 1, reducer);
}
static hv log_softmax(struct classes *c, hv y) {
    hv d = hb_sub(c->b, y, widen(c, over(c, y, HLO_MAXIMUM)));
    hv sum = over(c, hb_unary(c->b, HLO_EXP, d), HLO_ADD);
    return hb_sub(c->b, d, widen(c, hb_unary(c->b, HLO_LOG, sum)));
}
static hv is_class(struct classes *c, hv label) { // pred of y's shape
    struct arena *a = c->b->c->module->arena;
    hv place = hb_iota(c->b, shape_with_dtype(a, c->y->shape, DT_S32), c->axis);
    return hb_compare(c->b, place, widen(c, label), CMP_EQ);
}
static hv picked(struct classes *c, hv hit, hv x) {
    return over(c, hb_select(c->b, hit, x, part_like(c->b, x, 0)), HLO_ADD);
}
// loss where the label is a class, else NaN: a wrong label must not pass for one that is free.
static hv in_range(struct classes *c, hv label, hv loss) {
    struct hb *b = c->b;
    hv low = hb_compare(b, label, part_like(b, label, 0), CMP_GE);
    hv high = hb_compare(b, label, part_like(b, label, (double)c->y->shape->dims[c->axis]), CMP_LT);
    hv ok = hb_binary(b, HLO_AND, low, high);
    return hb_select(b, ok, loss, part_like(b, loss, NAN));
}
static hv likelihood(struct hb *b, const struct train_spec *s, hv logp, hv label) {
    struct classes c = classes_of(b, s, logp);
    hv loss = hb_unary(b, HLO_NEGATE, picked(&c, is_class(&c, label), logp));
    if (s->smoothing > 0) {
        double n = (double)logp->shape->dims[c.axis];
        hv all = part_mul(b, over(&c, logp, HLO_ADD), -s->smoothing / n);
        loss = hb_add(b, part_mul(b, loss, 1 - s->smoothing), all);
    }
    return in_range(&c, label, loss);
}
static hv correct(struct hb *b, const struct train_spec *s, hv y, hv label) {
    struct classes c = classes_of(b, s, y);
    hv best = over(&c, y, HLO_MAXIMUM), own = picked(&c, is_class(&c, label), y);
    return hb_convert(b, hb_compare(b, own, best, CMP_GE), DT_F32);
}

// ---- the rows

static hv loss_softmax_cross_entropy(struct hb *b, const struct train_spec *s, hv y, hv label) {
    struct classes c = classes_of(b, s, y);
    return likelihood(b, s, log_softmax(&c, y), label);
}
static hv loss_softmax_dense(struct hb *b, const struct train_spec *s, hv y, hv label) {
    struct classes c = classes_of(b, s, y);
    return hb_unary(b, HLO_NEGATE, over(&c, hb_mul(b, label, log_softmax(&c, y)), HLO_ADD));
}
static hv loss_cross_entropy(struct hb *b, const struct train_spec *s, hv y, hv label) {
    hv safe = hb_max(b, y, part_like(b, y, y->shape->dtype == DT_F64 ? 1e-300 : 1e-37));
    return likelihood(b, s, hb_unary(b, HLO_LOG, safe), label);
}
static hv loss_nll(struct hb *b, const struct train_spec *s, hv y, hv label) {
    return likelihood(b, s, y, label);
}
static hv loss_sigmoid_bce(struct hb *b, UNUSED const struct train_spec *s, hv y, hv label) {
    hv small = hb_unary(b, HLO_NEGATE, hb_unary(b, HLO_ABS, y));
    hv tail = hb_unary(b, HLO_LOG1P, hb_unary(b, HLO_EXP, small));
    // max(y, 0) as (y + |y|) / 2: its derivative at 0 is a half, and so the sum's is right there
    hv above = part_mul(b, hb_add(b, y, hb_unary(b, HLO_ABS, y)), 0.5);
    return hb_add(b, hb_sub(b, above, hb_mul(b, y, label)), tail);
}
static hv loss_bce(struct hb *b, UNUSED const struct train_spec *s, hv y, hv label) {
    double least = y->shape->dtype == DT_F64 ? 1e-300 : 1e-37;
    hv one = part_like(b, y, 1), low = part_like(b, y, least);
    hv p = hb_unary(b, HLO_LOG, hb_max(b, y, low));
    hv q = hb_unary(b, HLO_LOG, hb_max(b, hb_sub(b, one, y), low));
    hv sum = hb_add(b, hb_mul(b, label, p), hb_mul(b, hb_sub(b, one, label), q));
    return hb_unary(b, HLO_NEGATE, sum);
}
static hv loss_mse(struct hb *b, UNUSED const struct train_spec *s, hv y, hv label) {
    hv d = hb_sub(b, y, label);
    return hb_mul(b, d, d);
}
static hv loss_mae(struct hb *b, UNUSED const struct train_spec *s, hv y, hv label) {
    return hb_unary(b, HLO_ABS, hb_sub(b, y, label));
}
static hv loss_huber(struct hb *b, const struct train_spec *s, hv y, hv label) {
    hv d = hb_sub(b, y, label), size = hb_unary(b, HLO_ABS, d);
    hv square = part_mul(b, hb_mul(b, d, d), 0.5);
    hv line = part_mul(b, part_add(b, size, -s->delta / 2), s->delta);
    return hb_select(b, hb_compare(b, size, part_like(b, size, s->delta), CMP_LE), square, line);
}
static hv loss_output(struct hb *b, UNUSED const struct train_spec *s, hv y, UNUSED hv label) {
    return hb_reshape(b, y, NULL, 0);
}

struct loss loss_of(struct hb *b, const struct train_spec *s, hv y, hv label) {
    static hv (*const rules[TRAIN_LOSS_COUNT])(struct hb *, const struct train_spec *, hv, hv) = {
#define LOSS(id, ...) loss_##id,
#include "compiler/train/losses.def"
#undef LOSS
    };
    if (!hb_ok(b)) return (struct loss){y, NULL};
    enum dtype t = y->shape->dtype == DT_F64 ? DT_F64 : DT_F32;
    y = hb_convert(b, y, t);
    if (loss_rows[s->loss].target == LOSS_VALUES) label = hb_convert(b, label, t);
    struct loss l = {.each = rules[s->loss](b, s, y, label)};
    if (loss_rows[s->loss].likelihood && hb_ok(b)) l.correct = correct(b, s, y, label);
    return l;
}
