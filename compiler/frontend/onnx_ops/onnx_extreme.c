// SPDX-License-Identifier: Apache-2.0
// Where the extreme value stands: ArgMax, ArgMin, Hardmax and what other operators need of it. One
// reduction carries value and position together, so the result is the position of an element that
// was seen: no value is compared with a copy of itself, and none can be out of range. Of equal
// elements the first (or last) position wins; -0 equals 0; NaN is more extreme than every number,
// as in numpy.
// Types of up to 32 bits travel as one s64 (hb_place_of_extreme), which vectorises; wider ones take
// a reduction of two values.
#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

struct extreme {
    bool largest, last;
};

static hv by_key(struct onnx_ctx *c, hv x, int64_t axis, struct extreme e, bool keep) {
    hv r = hb_place_of_extreme(&c->b, x, axis, e.largest, e.last);
    return keep && hb_ok(&c->b) ? onnx_add_axis(c, r, axis) : r;
}

// (value, position), (value, position) -> the more extreme of both.
static struct hlo_computation *picker(struct onnx_ctx *c, enum dtype t, struct extreme e) {
    struct hlo_computation *f = onnx_computation(c, "extreme");
    struct hb b = hb_begin(f);
    const struct shape *v = shape_scalar(c->a, t), *s = shape_scalar(c->a, DT_S64);
    hv x = hlo_add_param(f, 0, v, "x"), i = hlo_add_param(f, 1, s, "i");
    hv y = hlo_add_param(f, 2, v, "y"), j = hlo_add_param(f, 3, s, "j");
    hv more = hb_compare(&b, y, x, e.largest ? CMP_GT : CMP_LT),
       same = hb_compare(&b, y, x, CMP_EQ);
    if (dtype_is_float(t)) {
        hv nx = hb_compare(&b, x, x, CMP_NE), ny = hb_compare(&b, y, y, CMP_NE);
        more = hb_binary(&b, HLO_OR, more, hb_binary(&b, HLO_AND, ny, hb_unary(&b, HLO_NOT, nx)));
        same = hb_binary(&b, HLO_OR, same, hb_binary(&b, HLO_AND, nx, ny));
    }
    hv wins = hb_compare(&b, j, i, e.last ? CMP_GT : CMP_LT);
    hv take_y = hb_binary(&b, HLO_OR, more, hb_binary(&b, HLO_AND, same, wins));
    hlo_set_root(f,
                 hb_tuple(&b, (hv[]){hb_select(&b, take_y, y, x), hb_select(&b, take_y, j, i)}, 2));
    hb_fail(&c->b, hb_end(&b));
    return f;
}
static hv by_pair(struct onnx_ctx *c, hv x, int64_t axis, struct extreme e, bool keep) {
    struct hb *b = &c->b;
    enum dtype t = x->shape->dtype;
    struct hlo_computation *f = picker(c, t, e);
    struct hlo_attr_dims d = {.dimensions = {&axis, 1}};
    hv in[] = {x, onnx_index_along(c, x->shape, DT_S64, axis),
               hb_const_f64(b, t, e.largest ? dtype_lowest(t) : dtype_highest(t)),
               hb_const_i64(b, DT_S64, e.last ? -1 : INT64_MAX)};
    int64_t dims[HLO_MAX_RANK];
    int rank = 0;
    for (int k = 0; k < x->shape->rank; k++)
        if (k != axis) dims[rank++] = x->shape->dims[k];
    const struct shape *s[] = {shape_make(c->a, t, dims, rank),
                               shape_make(c->a, DT_S64, dims, rank)};
    hv r = hb_call(b, HLO_REDUCE, shape_tuple(c->a, s, 2), in, 4, &d, &f, 1);
    if (!hb_ok(b)) return r;
    r = hb_gte(b, r, 1);
    return keep ? onnx_add_axis(c, r, axis) : r;
}

hv onnx_place_of_extreme(struct onnx_ctx *c, hv x, int64_t axis, bool largest, bool last,
                         bool keep) {
    struct extreme e = {largest, last};
    int64_t n = x->shape->dims[axis];
    if (n == 0) onnx_fail(c, "axis %lld of %s is empty", (long long)axis, onnx_show(c, x));
    if (!hb_ok(&c->b)) return x;
    bool narrow = dtype_bits(x->shape->dtype) <= 32 && n < INT32_MAX;
    return narrow ? by_key(c, x, axis, e, keep) : by_pair(c, x, axis, e, keep);
}

ONNX_X(argminmax) {
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), x->shape->rank);
    if (!hb_ok(b)) return;
    onnx_out_val(c, 0,
                 onnx_place_of_extreme(c, x, axis, onnx_op_arg(c) == HLO_MAXIMUM,
                                       onnx_at_int(c, "select_last_index", 0) != 0,
                                       onnx_at_int(c, "keepdims", 1) == 1));
}

// One in the place of the first largest element. Until opset 12 over the dimensions from axis on.
ONNX_X(hardmax) {
    const struct shape *s = x->shape;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", c->opset >= 13 ? -1 : 1), s->rank),
            flat[2] = {1, 1};
    if (!hb_ok(b)) return;
    if (c->opset < 13) {
        for (int d = 0; d < s->rank; d++)
            flat[d >= axis] *= s->dims[d];
        x = hb_reshape(b, x, flat, 2);
        axis = 1;
    }
    if (shape_elements(s) == 0) return onnx_out_val(c, 0, hb_splat(b, s, 0));
    hv first = onnx_place_of_extreme(c, x, axis, true, false, false);
    if (!hb_ok(b)) return;
    hv pos = onnx_index_along(c, x->shape, DT_S64, axis);
    hv r = hb_compare(b, pos, onnx_back_to(c, first, x->shape, &axis, 1), CMP_EQ);
    onnx_out_val(c, 0, hb_reshape(b, hb_convert(b, r, s->dtype), s->dims, s->rank));
}
