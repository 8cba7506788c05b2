// SPDX-License-Identifier: Apache-2.0
// Values of which one dimension has a size that only the run knows: computed up to a bound, with
// the true size beside it. NonZero, Compress and loops that may end early make them; operators that
// take them are in onnx_dynamic_ops.c. A size that turns out to be known at compile time is cut at
// once, and nothing is dynamic.
#include "compiler/frontend/onnx/onnx_dynamic.h"

struct onnx_val *onnx_dynamic_val(struct onnx_ctx *c, hv v, hv size, int dim) {
    struct onnx_val *o = onnx_tensor_val(c, v), s = {.v = hb_convert(&c->b, size, DT_S64)};
    if (v->shape->dims[dim] == 0) return o;
    if (s.v->op == HLO_CONSTANT) {
        int64_t n = lit_get_i64(s.v->literal, 0), bound = v->shape->dims[dim];
        return onnx_tensor_val(c, onnx_part(c, v, dim, 0, n < 0 ? 0 : n > bound ? bound : n));
    }
    o->known = NULL;
    o->size = s.v;
    o->size_dim = dim;
    return o;
}

// Positions are of 32 bits where these hold them, twice as many in a vector and divided without
// calls.
static hv true_positions(struct onnx_ctx *c, hv mask, hv *count) {
    struct hb *b = &c->b;
    int64_t n = mask->shape->dims[0], zero = 0, two[2] = {n, 1};
    enum dtype t = n < INT32_MAX ? DT_S32 : DT_S64;
    const struct shape *s = shape_with_dtype(c->a, mask->shape, t);
    hv pos = hb_iota(b, s, 0), one = hb_convert(b, mask, t);
    *count = hb_reduce(b, one, hb_const_i64(b, t, 0), &zero, 1, HLO_ADD);
    if (n == 0) return pos;
    // How many hold up to each position is where it goes; those that do not hold go behind all
    // others, in their own order.
    struct window_dim w = {n, 1, n - 1, 0, 1, 1, false};
    hv upto = hb_reduce_window(b, one, hb_const_i64(b, t, 0), &(struct window){&w, 1}, HLO_ADD);
    hv behind = hb_add(b, onnx_spread(c, *count, s), hb_sub(b, pos, upto));
    hv to = hb_select(b, mask, onnx_add_k(c, upto, -1), behind);
    return onnx_put_points(c, hb_splat(b, s, 0), hb_reshape(b, to, two, 2), 1, pos, HLO_COPY);
}
hv onnx_true_positions(struct onnx_ctx *c, hv mask, hv *count) {
    hv at = true_positions(c, mask, count);
    *count = hb_convert(&c->b, *count, DT_S64);
    return hb_convert(&c->b, at, DT_S64);
}
static hv truth(struct onnx_ctx *c, hv x) {
    return x->shape->dtype == DT_PRED ? x : onnx_compare_k(c, x, 0, CMP_NE);
}

// Reducers of one step that do the same.
static bool same_reducer(const struct hlo_computation *a, const struct hlo_computation *b) {
    const struct hlo_instr *x = a->root, *y = b->root;
    if (a == b) return true;
    if (a->n_instrs != 3 || b->n_instrs != 3 || x->op != y->op || x->n_operands != 2) return false;
    for (int k = 0; k < 2; k++)
        if (x->operands[k]->op != HLO_PARAMETER || y->operands[k]->op != HLO_PARAMETER ||
            x->operands[k]->param_number != y->operands[k]->param_number)
            return false;
    return shape_equal(x->shape, y->shape) &&
           attr_equal(hlo_op_info(x->op)->attrs, x->attr, y->attr);
}
// Whether a and b are computed alike from the same values; `left`: instructions to look at yet.
static bool alike(const struct hlo_instr *a, const struct hlo_instr *b, int *left) {
    if (a == b) return true;
    if (--*left < 0 || a->op != b->op || a->op == HLO_PARAMETER || hlo_has_effect(a) ||
        a->n_operands != b->n_operands || a->n_called != b->n_called || a->n_called > 1 ||
        !shape_equal(a->shape, b->shape) || !a->literal != !b->literal)
        return false;
    if (a->literal && !lit_equal(a->literal, b->literal)) return false;
    if (a->n_called && !same_reducer(a->called[0], b->called[0])) return false;
    for (int k = 0; k < a->n_operands; k++)
        if (!alike(a->operands[k], b->operands[k], left)) return false;
    return attr_equal(hlo_op_info(a->op)->attrs, a->attr, b->attr);
}
static bool in_order(struct i64s dims) {
    for (int64_t k = 0; k < dims.n; k++)
        if (dims.v[k] != k) return false;
    return true;
}
// What x is made of, without what moves no element and changes none that is zero.
static hv bare(hv x) {
    while (x->op == HLO_RESHAPE ||
           (x->op == HLO_BROADCAST && shape_elements(x->shape) > 0 &&
            shape_elements(x->shape) == shape_elements(x->operands[0]->shape) &&
            in_order(HLO_ATTR(x, dims)->dimensions)) ||
           (x->op == HLO_CONVERT && x->operands[0]->shape->dtype == DT_PRED))
        x = x->operands[0];
    return x;
}

// true_positions of what is true of `of`, found once for the same values: masks that are computed
// twice alike choose as many, which the operators that take both have to know.
static hv positions_in(struct onnx_ctx *c, hv of, hv mask, hv *count) {
    enum { MAX_LOOK = 256 };
    const size_t room = sizeof c->chosen / sizeof c->chosen[0];
    of = bare(of);
    for (size_t k = 0; k < room && c->chosen[k].of; k++) {
        int left = MAX_LOOK;
        if (c->chosen[k].at->shape->dims[0] == mask->shape->dims[0] &&
            alike(c->chosen[k].of, of, &left))
            return *count = c->chosen[k].count, c->chosen[k].at;
    }
    hv at = true_positions(c, mask, count);
    if (hb_ok(&c->b)) c->chosen[c->n_chosen++ % room] = (struct onnx_chosen){of, at, *count};
    return at;
}
ONNX_X(nonzero) {
    hv count;
    int rank = x->shape->rank;
    int64_t n = shape_elements(x->shape), row[] = {1, n};
    if (!hb_ok(b)) return;
    if (rank == 0) x = hb_reshape(b, x, &n, rank = 1); // as ONNX Runtime takes a scalar
    if (n == 0) {
        return onnx_out_val(
            c, 0, hb_constant(b, lit_new(c->a, shape_make(c->a, DT_S64, (int64_t[]){rank, 0}, 2))));
    }
    hv at = positions_in(c, x, truth(c, hb_reshape(b, x, &n, 1)), &count);
    hv *rows = arena_array(c->a, hv, rank);
    int64_t stride = n;
    for (int d = 0; d < rank; d++) { // row-major position -> one row for each dimension
        stride /= x->shape->dims[d];
        hv r = d == rank - 1 ? at : hb_div(b, at, hb_splat(b, at->shape, (double)stride));
        rows[d] = hb_reshape(b, r, row, 2);
        if (d < rank - 1) at = hb_sub(b, at, hb_mul(b, r, hb_splat(b, at->shape, (double)stride)));
    }
    hv all = rank == 1 ? rows[0] : hb_concat(b, rows, rank, 0);
    onnx_out_any(c, 0, onnx_dynamic_val(c, hb_convert(b, all, DT_S64), count, 1));
}

ONNX_X(compress) {
    hv cond = onnx_in_val(c, 1), count;
    int64_t axis = 0, n = shape_elements(x->shape);
    if (!hb_ok(b)) return;
    if (onnx_attr(c->n, "axis"))
        axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), x->shape->rank);
    else
        x = hb_reshape(b, x, &n, 1);
    if (cond->shape->rank != 1 || x->shape->rank == 0)
        return onnx_fail(c, "a condition of %s", onnx_show(c, cond));
    if (!hb_ok(b)) return;
    n = cond->shape->dims[0] < x->shape->dims[axis] ? cond->shape->dims[0] : x->shape->dims[axis];
    if (n == 0) return onnx_out_val(c, 0, onnx_part(c, x, axis, 0, 0));
    hv at = positions_in(c, cond, truth(c, onnx_part(c, cond, 0, 0, n)), &count);
    onnx_out_any(c, 0, onnx_dynamic_val(c, onnx_take(c, x, at, axis), count, (int)axis));
}
