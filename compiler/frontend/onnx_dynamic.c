// SPDX-License-Identifier: Apache-2.0
// Values of which one dimension has a size that only the run knows: computed up to a bound, with
// the true size beside it. NonZero, Compress and loops that may end early make them; the operators
// listed here pass them on, since what they do to the unused part does no harm; others refuse. A
// size that turns out to be known at compile time is cut at once, and nothing is dynamic.
#include "compiler/frontend/onnx_dynamic.h"

struct onnx_val *onnx_dynamic_val(struct onnx_ctx *c, hv v, hv size, int dim) {
    struct onnx_val *o = onnx_tensor_val(c, v), s = {.v = hb_convert(&c->b, size, DT_S64)};
    if (s.v->op == HLO_CONSTANT) {
        int64_t n = lit_get_i64(s.v->literal, 0), bound = v->shape->dims[dim];
        return onnx_tensor_val(c, part(c, v, dim, 0, n < 0 ? 0 : n > bound ? bound : n));
    }
    o->known = NULL;
    o->size = s.v;
    o->size_dim = dim;
    return o;
}

hv true_positions(struct onnx_ctx *c, hv mask, hv *count) {
    struct hb *b = &c->b;
    const struct shape *s = shape_with_dtype(c->a, mask->shape, DT_S64);
    hv pos = hb_iota(b, s, 0), n = hb_splat(b, s, (double)s->dims[0]), axis_less = NULL;
    int64_t zero = 0;
    *count =
        hb_reduce(b, hb_convert(b, mask, DT_S64), hb_const_i64(b, DT_S64, 0), &zero, 1, HLO_ADD);
    // Those that do not hold sort behind all others, in their own order.
    hv key = hb_select(b, mask, pos, hb_add(b, pos, n));
    struct hlo_computation *less = onnx_computation(c, "less");
    struct hb in = hb_begin(less);
    hv x = hlo_add_param(less, 0, shape_scalar(c->a, DT_S64), "x"),
       y = hlo_add_param(less, 1, shape_scalar(c->a, DT_S64), "y");
    axis_less = hb_compare(&in, x, y, CMP_LT);
    hlo_set_root(less, axis_less);
    status_t st = hb_end(&in);
    if (st) hb_fail(b, st);
    struct hlo_attr_sort attr = {.dimensions = {&zero, 1}};
    key = hb_call(b, HLO_SORT, s, &key, 1, &attr, &less, 1);
    return hb_select(b, hb_compare(b, key, n, CMP_LT), key, hb_sub(b, key, n));
}
static hv truth(struct onnx_ctx *c, hv x) {
    return x->shape->dtype == DT_PRED ? x : hb_compare(&c->b, x, splat_like(c, x, 0), CMP_NE);
}

ONNX(nonzero) {
    struct hb *b = &c->b;
    hv x = in_val(c, 0), count;
    int rank = x->shape->rank;
    int64_t n = shape_elements(x->shape), row[] = {1, n};
    if (!hb_ok(b)) return;
    if (n == 0 || rank == 0) {
        if (rank == 0) return fail(c, "of a scalar");
        return out_val(
            c, 0, hb_constant(b, lit_new(c->a, shape_make(c->a, DT_S64, (int64_t[]){rank, 0}, 2))));
    }
    hv at = true_positions(c, truth(c, hb_reshape(b, x, &n, 1)), &count);
    hv *rows = arena_array(c->a, hv, rank);
    int64_t stride = n;
    for (int d = 0; d < rank; d++) { // row-major position -> one row for each dimension
        stride /= x->shape->dims[d];
        hv r = hb_div(b, at, hb_splat(b, at->shape, (double)stride));
        r = hb_binary(b, HLO_REMAINDER, r, hb_splat(b, at->shape, (double)x->shape->dims[d]));
        rows[d] = hb_reshape(b, r, row, 2);
    }
    out_any(c, 0, onnx_dynamic_val(c, rank == 1 ? rows[0] : hb_concat(b, rows, rank, 0), count, 1));
}

ONNX(compress) {
    struct hb *b = &c->b;
    hv x = in_val(c, 0), cond = in_val(c, 1), count;
    int64_t axis = 0, n = shape_elements(x->shape);
    if (!hb_ok(b)) return;
    if (onnx_attr(c->n, "axis"))
        axis = axis_of(c, at_int(c, "axis", 0), x->shape->rank);
    else
        x = hb_reshape(b, x, &n, 1);
    if (cond->shape->rank != 1 || x->shape->rank == 0)
        return fail(c, "a condition of %s", shape_text(c->a, cond->shape));
    if (!hb_ok(b)) return;
    n = cond->shape->dims[0] < x->shape->dims[axis] ? cond->shape->dims[0] : x->shape->dims[axis];
    if (n == 0) return out_val(c, 0, part(c, x, axis, 0, 0));
    hv at = true_positions(c, truth(c, part(c, cond, 0, 0, n)), &count);
    out_any(c, 0, onnx_dynamic_val(c, take(c, x, at, axis), count, (int)axis));
}

// ---- operators that pass a dynamic size on

static const char *const elementwise[] = {"Abs",          "Neg",
                                          "Relu",         "Sigmoid",
                                          "Tanh",         "Exp",
                                          "Log",          "Sqrt",
                                          "Floor",        "Ceil",
                                          "Not",          "Cast",
                                          "Sign",         "Sin",
                                          "Cos",          "Round",
                                          "Erf",          "Softplus",
                                          "Add",          "Sub",
                                          "Mul",          "Div",
                                          "Mod",          "Min",
                                          "Max",          "Pow",
                                          "Equal",        "Greater",
                                          "Less",         "And",
                                          "Or",           "Where",
                                          "IsNaN",        "GreaterOrEqual",
                                          "LessOrEqual",  "Clip",
                                          "StringConcat", "RegexFullMatch",
                                          "LabelEncoder"};

// The text functions too: each element by itself.
static bool is_elementwise(struct str op) {
    for (size_t k = 0; k < sizeof elementwise / sizeof elementwise[0]; k++)
        if (str_is(op, elementwise[k])) return true;
    return false;
}

// All dynamic inputs have the same size in the same dimension of the result; others broadcast over
// it.
static int elementwise_dim(struct onnx_ctx *c, int rank, const struct onnx_val *first) {
    int dim = first->size_dim + rank - first->v->shape->rank;
    for (size_t k = 0; k < c->n->in.n; k++) {
        const struct onnx_val *v = in_any(c, k);
        if (!v || !v->v) continue;
        int d = dim - rank + v->v->shape->rank;
        if (v->size ? v->size != first->size || v->size_dim != d
                    : d >= 0 && v->v->shape->dims[d] != 1)
            return fail(c, "inputs of different sizes in a dimension that only the run knows"), -1;
    }
    return dim;
}

static int gather_dim(struct onnx_ctx *c, const struct onnx_val *x, const struct onnx_val *idx) {
    int rank = idx->v->shape->rank;
    int64_t axis = axis_of(c, at_int(c, "axis", 0), x->v->shape->rank);
    if (x->size && !idx->size && x->size_dim != axis)
        return x->size_dim < axis ? x->size_dim : x->size_dim - 1 + rank;
    if (!x->size && idx->size) return (int)axis + idx->size_dim;
    return fail(c, "gathers along a dimension whose size only the run knows"), -1;
}

// Where the dimension of the input is in the result when dimensions of 1 come or go.
static int moved_dim(struct onnx_ctx *c, const struct onnx_val *x, const struct shape *to,
                     bool more) {
    int64_t axes[HLO_MAX_RANK];
    int n, at = 0;
    bool given;
    int rank = more ? to->rank : x->v->shape->rank;
    axes_of(c, 1, rank, axes, &n, &given);
    if (!given) return fail(c, "axes are needed where a size is known to the run alone"), -1;
    for (int d = 0; d < rank; d++) { // at: the same dimension in the narrower shape
        if (i64s_has((struct i64s){axes, n}, d)) continue;
        if (more ? at == x->size_dim : d == x->size_dim) return more ? d : at;
        at++;
    }
    return fail(c, "the dimension whose size only the run knows would go"), -1;
}

static void dynamic_shape(struct onnx_ctx *c, const struct onnx_val *x) {
    int64_t from = at_int(c, "start", 0), to = at_int(c, "end", x->v->shape->rank);
    int rank = x->v->shape->rank;
    int64_t one = 1;
    hv parts[HLO_MAX_RANK];
    int n = 0;
    from = from < 0 ? from + rank : from;
    to = to < 0 ? to + rank : to > rank ? rank : to;
    for (int64_t d = from < 0 ? 0 : from; d < to; d++)
        parts[n++] = d == x->size_dim ? hb_reshape(&c->b, x->size, &one, 1)
                                      : hb_const_s64s(&c->b, &x->v->shape->dims[d], 1);
    if (!n) return out_val(c, 0, hb_const_s64s(&c->b, &one, 0));
    out_val(c, 0, n == 1 ? parts[0] : hb_concat(&c->b, parts, n, 0));
}

bool onnx_has_dynamic(struct onnx_ctx *c) {
    for (size_t k = 0; k < c->n->in.n; k++) {
        const struct onnx_val *v = in_any(c, k);
        if (v && v->size) return true;
    }
    return false;
}

void onnx_pass_dynamic(struct onnx_ctx *c, onnx_fn fn) {
    struct str op = c->n->op;
    const struct onnx_val *x = NULL, *in0 = in_any(c, 0), *in1 = in_any(c, 1);
    for (size_t k = 0; k < c->n->in.n && !x; k++)
        if (in_any(c, k) && in_any(c, k)->size) x = in_any(c, k);
    if (str_is(op, "Shape")) return dynamic_shape(c, x);
    if (str_is(op, "Identity")) return fn(c);
    bool same = is_elementwise(op), gather = str_is(op, "Gather"), more = str_is(op, "Unsqueeze"),
         less = str_is(op, "Squeeze"), points = str_is(op, "GatherND");
    if (!(same || gather || more || less || str_is(op, "Transpose") ||
          (points && in1 && in1->size && !in0->size && !at_int(c, "batch_dims", 0) &&
           in1->size_dim < in1->v->shape->rank - 1)))
        return fail(c,
                    "dimension %d of an input, %s, has a size that only the run knows; the "
                    "operator needs it before",
                    x->size_dim, shape_text(c->a, x->v->shape));
    c->dynamic_ok = true;
    fn(c);
    c->dynamic_ok = false;
    const struct onnx_val *y = c->n->out.n ? smap_get(&c->values, c->n->out.v[0]) : NULL;
    if (!hb_ok(&c->b) || !y || !y->v) return;
    int dim = -1;
    if (same) {
        dim = elementwise_dim(c, y->v->shape->rank, x);
    } else if (gather) {
        dim = gather_dim(c, in0, in1);
    } else if (points) {
        dim = x->size_dim;
    } else if (more || less) {
        dim = moved_dim(c, x, y->v->shape, more);
    } else {
        int64_t perm[HLO_MAX_RANK];
        int n, rank = x->v->shape->rank;
        if (!at_ints(c, "perm", perm, HLO_MAX_RANK, &n))
            for (n = 0; n < rank; n++)
                perm[n] = rank - 1 - n;
        for (int d = 0; d < n; d++)
            if (perm[d] == x->size_dim) dim = d;
    }
    if (hb_ok(&c->b) && dim >= 0) out_any(c, 0, onnx_dynamic_val(c, y->v, x->size, dim));
}
