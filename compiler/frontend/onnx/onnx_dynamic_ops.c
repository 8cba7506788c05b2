// SPDX-License-Identifier: Apache-2.0
// Operators on values of which one dimension has a size that only the run knows (onnx_dynamic.c).
// An operator is lowered on the padded values; what must not count is first masked with what does
// no harm to it. Which dimension of a result has the size is found by lowering the node once more
// on values one element longer and comparing shapes; nothing of that second lowering stays in use.
// Operators that are not in the table refuse, as do those that would move valid elements behind
// others (a reshape in which the dimension is not the outermost).

#include "compiler/frontend/onnx/onnx_dynamic.h"
#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_IN = 64, MAX_OUT = 16 };
struct pass {
    struct onnx_ctx *c;
    onnx_fn fn;
    const struct onnx_op *op;
    struct onnx_val *in[MAX_IN]; // as they were
    struct onnx_val *x;          // the first dynamic one
    hv masked[MAX_IN];           // NULL, or what fn sees instead
    int64_t dims[MAX_OUT][HLO_MAX_RANK];
    int n_in, n_out;
};

static bool node_is(const struct onnx_ctx *c, const char *name) {
    return str_is(c->n->op, name);
}
static hv valid_part(struct onnx_ctx *c, const struct onnx_val *v) {
    hv at = onnx_index_along(c, v->v->shape, DT_S64, v->size_dim);
    return hb_compare(&c->b, at, onnx_spread(c, v->size, at->shape), CMP_LT);
}
static hv masked(struct onnx_ctx *c, const struct onnx_val *v, double with) {
    return hb_select(&c->b, valid_part(c, v), v->v, onnx_splat_like(c, v->v, with));
}

// Input k as fn is to see it: padded, or one element longer.
static hv seen(struct pass *p, int k, bool longer) {
    struct onnx_val *v = p->in[k];
    struct onnx_ctx *c = p->c;
    if (!v || !v->v) return NULL;
    if (v->size) {
        hv x = p->masked[k] ? p->masked[k] : v->v;
        return longer ? onnx_pad_axis(c, x, v->size_dim, 0, 1, 0) : x;
    }
    if (!v->known && v->bound[0] && p->op && (p->op->shape_inputs >> (k < 31 ? k : 31) & 1))
        return hb_constant(&c->b, lit_clone(c->a, v->bound[longer]));
    return p->masked[k];
}
static void run_on(struct pass *p, bool longer) {
    struct onnx_ctx *c = p->c;
    for (int k = 0; k < p->n_in; k++) {
        hv v = seen(p, k, longer);
        if (v) smap_put(&c->values, c->n->in.v[k], onnx_tensor_val(c, v));
    }
    p->fn(c);
    for (int k = 0; k < p->n_in; k++)
        if (p->in[k]) smap_put(&c->values, c->n->in.v[k], p->in[k]);
}
static struct onnx_val *result(struct pass *p, int k) {
    struct onnx_val *y = (size_t)k < p->c->n->out.n && p->c->n->out.v[k].n
                             ? smap_get(&p->c->values, p->c->n->out.v[k])
                             : NULL;
    return y && y->v ? y : NULL;
}
// Lowers both; false when that failed. Results are those of the padded values.
static bool run_both(struct pass *p) {
    run_on(p, true);
    for (int k = 0; k < p->n_out && hb_ok(&p->c->b); k++) {
        struct onnx_val *y = result(p, k);
        for (int d = 0; y && d < y->v->shape->rank; d++)
            p->dims[k][d] = y->v->shape->dims[d];
    }
    run_on(p, false);
    return hb_ok(&p->c->b);
}
// The dimension of result k that has the size; -1 none, -2 several.
static int changed_dim(struct pass *p, int k) {
    struct onnx_val *y = result(p, k);
    int dim = -1;
    for (int d = 0; y && d < y->v->shape->rank; d++)
        if (y->v->shape->dims[d] != p->dims[k][d]) dim = dim == -1 ? d : -2;
    return dim;
}
static void refuse(struct pass *p) {
    struct onnx_ctx *c = p->c;
    const struct onnx_val *x = p->x;
    if (!hb_ok(&c->b)) return;
    if (x)
        onnx_fail(c,
                  "dimension %d of an input, %s, has a size that only the run knows; the operator "
                  "needs it before",
                  x->size_dim, onnx_show(c, x->v));
    else
        onnx_fail(c, "a shape that only the run knows in more than one dimension");
}
static void give(struct pass *p, int k, hv size, int dim) {
    struct onnx_val *y = result(p, k);
    if (y && hb_ok(&p->c->b))
        onnx_out_any(p->c, (size_t)k, onnx_dynamic_val(p->c, y->v, size, dim));
}
// All results, of which the one dimension that grows with the inputs' has their size, or a multiple
// of it.
static void give_all(struct pass *p, const struct onnx_val *x) {
    struct hb *b = &p->c->b;
    for (int k = 0; k < p->n_out && hb_ok(b); k++) {
        int dim = changed_dim(p, k);
        if (dim == -1) continue;
        int64_t have = dim >= 0 ? result(p, k)->v->shape->dims[dim] : 0,
                n = x->v->shape->dims[x->size_dim];
        if (dim < 0 || have * (n + 1) != p->dims[k][dim] * n) return refuse(p);
        hv size = x->size;
        if (have != n) // a reshape: whole multiples or parts
            size = hb_div(b, onnx_mul_k(p->c, size, (double)(have > n ? have / n : 1)),
                          hb_const_i64(b, DT_S64, have > n ? 1 : n / have));
        give(p, k, size, dim);
    }
}

// ---- operators

static const char elementwise[] =
    "Abs Neg Relu Sigmoid Tanh Exp Log Sqrt Floor Ceil Not Cast Sign Sin Cos Round Erf "
    "Softplus Add Sub Mul Div Mod Min Max Pow Equal Greater Less And Or Xor Where IsNaN IsInf "
    "GreaterOrEqual LessOrEqual Clip StringConcat RegexFullMatch LabelEncoder Reciprocal "
    "LeakyRelu Elu Selu Celu Gelu Mish Softsign HardSigmoid HardSwish PRelu Tan Asin Acos "
    "Atan Sinh Cosh Asinh Acosh Atanh BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot "
    "CastLike Sum Mean Shrink ThresholdedRelu Swish Dropout Binarizer";
// Each element of dimension 0 by itself.
static const char by_rows[] =
    "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool "
    "BatchNormalization InstanceNormalization GroupNormalization Resize Upsample DepthToSpace "
    "SpaceToDepth LRN LayerNormalization RMSNormalization Pad OneHot Normalizer Scaler "
    "OneHotEncoder Imputer LinearClassifier LinearRegressor TreeEnsembleClassifier "
    "TreeEnsembleRegressor SVMClassifier SVMRegressor ZipMap LpNormalization";
static const char movers[] = "Transpose Unsqueeze Squeeze";
// What the rest is filled with for a reduction, or an order, along the dimension.
static const struct neutral {
    const char *op;
    enum { LOWEST, HIGHEST, NUMBER } kind;
    double number;
} neutral[] = {
    {"ReduceMax", LOWEST, 0},       {"ReduceMin", HIGHEST, 0}, {"ReduceSum", NUMBER, 0},
    {"ReduceL1", NUMBER, 0},        {"ReduceL2", NUMBER, 0},   {"ReduceSumSquare", NUMBER, 0},
    {"ReduceLogSum", NUMBER, 0},    {"ReduceProd", NUMBER, 1}, {"ReduceMean", NUMBER, 0},
    {"ReduceLogSumExp", LOWEST, 0}, {"Softmax", LOWEST, 0},    {"LogSoftmax", LOWEST, 0},
    {"CumSum", NUMBER, 0},          {"ArgMax", LOWEST, 0},     {"ArgMin", HIGHEST, 0},
};

// All dynamic inputs have the same size in the same dimension of the result, the others 1 there.
static bool sizes_agree(struct pass *p, int rank, bool ones) {
    int dim = p->x->size_dim + rank - p->x->v->shape->rank;
    for (int k = 0; k < p->n_in; k++) {
        const struct onnx_val *v = p->in[k];
        if (!v || !v->v) continue;
        int d = dim - rank + v->v->shape->rank;
        if (v->size ? v->size != p->x->size || v->size_dim != d
                    : !ones || (d >= 0 && v->v->shape->dims[d] != 1))
            return onnx_fail(p->c,
                             "inputs of different sizes in a dimension that only the run knows"),
                   false;
    }
    return true;
}
static void pass_elementwise(struct pass *p) {
    if (!run_both(p)) return;
    struct onnx_val *y = result(p, 0);
    if (y && sizes_agree(p, y->v->shape->rank, true)) give_all(p, p->x);
}
static void pass_plain(struct pass *p) {
    if (run_both(p)) give_all(p, p->x);
}
static void pass_neutral(struct pass *p, const struct neutral *how) {
    struct onnx_ctx *c = p->c;
    enum dtype t = p->x->v->shape->dtype;
    if (p->x != p->in[0]) return refuse(p);
    p->masked[0] = masked(c, p->x,
                          how->kind == LOWEST    ? dtype_lowest(t)
                          : how->kind == HIGHEST ? dtype_highest(t)
                                                 : how->number);
    if (!run_both(p)) return;
    if (node_is(c, "ReduceMean") && changed_dim(p, 0) == -1) { // of all; of those that count
        struct onnx_val *y = result(p, 0);
        hv n = hb_max(&c->b, p->x->size, hb_const_i64(&c->b, DT_S64, 1)); // of none: 0
        n = hb_convert(&c->b, n, t);
        hv all = onnx_mul_k(c, y->v, (double)p->x->v->shape->dims[p->x->size_dim]);
        return onnx_out_val(c, 0, hb_div(&c->b, all, onnx_spread(c, n, all->shape)));
    }
    give_all(p, p->x);
}
// Element k of a vector of integers that has bounds, as a size.
static hv size_at(struct onnx_ctx *c, const struct onnx_val *v, int64_t k) {
    if (v->bound_of && lit_get_i64(v->bound[0], k) != lit_get_i64(v->bound[1], k))
        return v->bound_of;
    int64_t n = shape_elements(v->v->shape);
    hv x = onnx_part(c, hb_reshape(&c->b, v->v, &n, 1), 0, k, k + 1);
    return hb_convert(&c->b, hb_reshape(&c->b, x, NULL, 0), DT_S64);
}
// The K largest of fewer are all of them.
static void pass_topk(struct pass *p) {
    struct onnx_ctx *c = p->c;
    struct hb *b = &c->b;
    const struct onnx_val *k = p->in[1];
    if (p->x && p->x != p->in[0]) return refuse(p);
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", -1), p->in[0]->v->shape->rank);
    enum dtype t = p->in[0]->v->shape->dtype;
    if (!hb_ok(b)) return;
    if (p->x)
        p->masked[0] =
            masked(c, p->x, onnx_at_int(c, "largest", 1) ? dtype_lowest(t) : dtype_highest(t));
    bool along_it = p->x && p->x->size_dim == axis;
    if (p->x && !along_it && k && k->known) return pass_plain(p);
    if ((p->x && !along_it) || !k || shape_elements(k->v->shape) != 1) return refuse(p);
    // K may exceed the padded size only where a run would be refused.
    hv want = k->known ? hb_convert(b, onnx_scalar_in(c, 1), DT_S64) : size_at(c, k, 0);
    run_on(p, false);
    if (p->x && want != p->x->size) want = hb_min(b, want, p->x->size);
    for (int o = 0; o < 2; o++)
        give(p, o, want, (int)axis);
}
static void pass_concat(struct pass *p) {
    struct onnx_ctx *c = p->c;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), p->x->v->shape->rank);
    hv marks[MAX_IN], count;
    if (!hb_ok(&c->b)) return;
    if (axis != p->x->size_dim) {
        if (sizes_agree(p, p->x->v->shape->rank, false)) pass_plain(p);
        return;
    }
    for (int k = 0; k < p->n_in; k++) { // the elements that count, moved together
        const struct onnx_val *v = p->in[k];
        if (!v || !v->v || (v->size && v->size_dim != axis)) return refuse(p);
        const struct shape *row = shape_make(c->a, DT_S64, &v->v->shape->dims[axis], 1);
        hv at = hb_iota(&c->b, row, 0);
        marks[k] = hb_compare(&c->b, at,
                              v->size ? onnx_spread(c, v->size, row)
                                      : hb_splat(&c->b, row, (double)row->dims[0]),
                              CMP_LT);
    }
    run_on(p, false);
    struct onnx_val *y = result(p, 0);
    if (!y || !hb_ok(&c->b)) return;
    hv at = onnx_true_positions(c, hb_concat(&c->b, marks, p->n_in, 0), &count);
    onnx_out_any(c, 0, onnx_dynamic_val(c, onnx_take(c, y->v, at, axis), count, (int)axis));
}
// Reshape, Flatten: valid elements stay in front where nothing but ones lies before the dimension,
// or the dimension and what lies before it stay as they are.
static void pass_reshape(struct pass *p) {
    struct onnx_ctx *c = p->c;
    const struct onnx_val *x = p->x, *to = p->n_in > 1 ? p->in[1] : NULL;
    if (x && x != p->in[0]) return refuse(p);
    if (!run_both(p)) return;
    struct onnx_val *y = result(p, 0);
    int dim = changed_dim(p, 0);
    if (dim == -1 || !y) return;
    if (dim < 0) return refuse(p);
    int64_t before = 1, now = 1;
    for (int d = 0; x && d < x->size_dim; d++)
        before *= x->v->shape->dims[d];
    for (int d = 0; d < dim; d++)
        now *= y->v->shape->dims[d];
    if (!x || before != now) return refuse(p);
    if (before != 1 && y->v->shape->dims[dim] != x->v->shape->dims[x->size_dim]) return refuse(p);
    if (to && !to->known && lit_get_i64(to->bound[0], dim) > 0) { // said by the shape itself
        return give(p, 0, size_at(c, to, dim), dim);
    }
    give_all(p, x);
}
// Starts are known and count from the front; steps of 1.
static void pass_slice(struct pass *p) {
    struct onnx_ctx *c = p->c;
    struct hb *b = &c->b;
    const struct onnx_val *x = p->in[0];
    int64_t starts[HLO_MAX_RANK], ends[HLO_MAX_RANK], axes[HLO_MAX_RANK], steps[HLO_MAX_RANK];
    int n, m, n_ends = 0, rank = x->v->shape->rank, moved = -1;
    bool inputs = c->opset >= 10, given;

    if (p->x && p->x != x) return refuse(p);
    if (!(inputs ? onnx_in_ints(c, 1, starts, HLO_MAX_RANK, &n)
                 : onnx_at_ints(c, "starts", starts, HLO_MAX_RANK, &n)))
        return refuse(p);

    const struct onnx_val *e = inputs ? p->in[2] : NULL;
    bool run_time = e && !e->known;
    if (run_time && !e->bound[0]) return refuse(p);
    if (!run_time && !(inputs ? onnx_in_ints(c, 2, ends, HLO_MAX_RANK, &n_ends)
                              : onnx_at_ints(c, "ends", ends, HLO_MAX_RANK, &n_ends)))
        return refuse(p);

    onnx_axes_of(c, 3, rank, axes, &m, &given);
    if (!hb_ok(b) || (given ? m != n : n > rank)) return refuse(p);
    if (run_time ? shape_elements(e->v->shape) != n : n_ends != n) return refuse(p);
    bool stepped =
        inputs && p->n_in > 4 && onnx_in_has(c, 4) && onnx_in_ints(c, 4, steps, HLO_MAX_RANK, &m);
    if (stepped && m != n) return refuse(p);

    hv size = NULL;
    for (int k = 0; k < n && hb_ok(b); k++) {
        int64_t axis = given ? axes[k] : k, have = x->v->shape->dims[axis];
        bool here = x->size && axis == x->size_dim,
             bounded = run_time && lit_get_i64(e->bound[0], k) != lit_get_i64(e->bound[1], k);
        if (!here && !bounded) continue;
        if (size || starts[k] < 0 || (stepped && steps[k] != 1)) return refuse(p);
        hv all = here ? x->size : hb_const_i64(b, DT_S64, have);
        hv end = run_time ? size_at(c, e, k) : hb_const_i64(b, DT_S64, ends[k]);
        moved = (int)axis;
        if (end == all && starts[k] == 0) { // all of it
            size = all;
            continue;
        }
        hv zero = hb_const_i64(b, DT_S64, 0);
        end = hb_select(b, hb_compare(b, end, zero, CMP_LT), hb_add(b, end, all), end);
        size = hb_sub(b, hb_min(b, end, all), hb_const_i64(b, DT_S64, starts[k]));
        size = hb_max(b, size, zero);
    }

    if (!size) return x->size ? pass_plain(p) : refuse(p);
    if (x->size && moved != x->size_dim) return refuse(p);
    run_on(p, false);
    give(p, 0, size, moved);
}
static void pass_split(struct pass *p) {
    struct onnx_ctx *c = p->c;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), p->x->v->shape->rank);
    if (p->x != p->in[0] || axis == p->x->size_dim) return refuse(p);
    pass_plain(p);
}
// Rows of the left, columns of the right, or what is summed over: zeros.
static void pass_product(struct pass *p) {
    struct onnx_ctx *c = p->c;
    const struct onnx_val *dynamic = NULL;
    for (int k = 0; k < p->n_in; k++) {
        if (!p->in[k] || !p->in[k]->size) continue;
        if (k > 1 || (dynamic && dynamic->size != p->in[k]->size)) return refuse(p);
        dynamic = p->in[k];
        p->masked[k] = masked(c, dynamic, 0);
    }
    if (run_both(p)) give_all(p, p->x);
}
static hv index_from_end(struct onnx_ctx *c, hv idx, hv size) {
    struct hb *b = &c->b;
    idx = hb_convert(b, idx, DT_S64);
    hv back = hb_add(b, idx, onnx_spread(c, size, idx->shape));
    return hb_select(b, onnx_compare_k(c, idx, 0, CMP_LT), back, idx);
}
static void pass_gather(struct pass *p) {
    struct onnx_ctx *c = p->c;
    struct onnx_val *x = p->in[0], *idx = p->in[1];
    if (!x || !idx || !x->v || !idx->v) return refuse(p);
    bool elements = node_is(c, "GatherElements");
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), x->v->shape->rank);
    if (!hb_ok(&c->b)) return;
    if (x->size && x->size_dim == axis) // negative indices count from the true end
        p->masked[1] = index_from_end(c, idx->v, x->size);
    else if (x->size && idx->size && !elements)
        return refuse(p);
    else if (elements && x->size && (x->size != idx->size || x->size_dim != idx->size_dim))
        return refuse(p);
    if (run_both(p)) give_all(p, idx->size ? idx : x);
}
static void pass_points(struct pass *p) { // GatherND at points of which the run knows how many
    const struct onnx_val *x = p->in[0], *at = p->in[1];
    if (!at || !at->size || (x && x->size) || onnx_at_int(p->c, "batch_dims", 0) ||
        at->size_dim >= at->v->shape->rank - 1)
        return refuse(p);
    if (run_both(p)) give_all(p, at);
}
// The indices of ScatterND: negative ones count from the true end, those that do not count go
// nowhere.
static void pass_scatter_into(struct pass *p) {
    struct onnx_ctx *c = p->c;
    struct hb *b = &c->b;
    struct onnx_val *x = p->in[0], *idx = p->in[1], *upd = p->in[2];
    int last = idx->v->shape->rank - 1;
    if (!node_is(c, "ScatterND") || last < 0 || x->size_dim >= idx->v->shape->dims[last] ||
        (idx->size && (idx->size_dim >= last || upd->v->shape->rank <= idx->size_dim ||
                       upd->v->shape->dims[idx->size_dim] != idx->v->shape->dims[idx->size_dim])))
        return refuse(p);
    hv at = hb_convert(b, idx->v, DT_S64);
    hv here = hb_compare(b, onnx_index_along(c, at->shape, DT_S64, last),
                         onnx_splat_like(c, at, (double)x->size_dim), CMP_EQ);
    struct onnx_val fixed = *idx;
    fixed.v = hb_select(b, here, index_from_end(c, at, x->size), at);
    if (idx->size && upd->size && upd->size != idx->size)
        fixed.size = hb_min(b, idx->size, upd->size);
    p->masked[1] = idx->size ? masked(c, &fixed, 0x7fffffff) : fixed.v;
    run_on(p, false);
    give(p, 0, x->size, x->size_dim);
}
// What lies behind the indices that count goes nowhere.
static void pass_scatter(struct pass *p) {
    struct onnx_ctx *c = p->c;
    struct onnx_val *x = p->in[0], *idx = p->in[1], *upd = p->in[2];
    if (!x || !idx || !upd || (upd->size && (!idx->size || upd->size_dim != idx->size_dim)))
        return refuse(p);
    if (x->size) return pass_scatter_into(p);
    if (upd->v->shape->rank <= idx->size_dim ||
        upd->v->shape->dims[idx->size_dim] != idx->v->shape->dims[idx->size_dim])
        return refuse(p);
    // As many updates as indices; where a run finds fewer, it would be refused elsewhere.
    struct onnx_val both = *idx;
    if (upd->size && upd->size != idx->size) both.size = hb_min(&c->b, idx->size, upd->size);
    p->masked[1] = masked(c, &both, 0x7fffffff);
    run_on(p, false);
}
// Makers of dynamic values, and RoiAlign: with what does not count made void.
static void pass_maker(struct pass *p) {
    struct onnx_ctx *c = p->c;
    if (node_is(c, "NonZero")) {
        p->masked[0] = masked(c, p->in[0], 0);
    } else if (node_is(c, "Compress")) {
        if (!p->in[1] || !p->in[1]->size) return refuse(p);
        p->masked[1] = masked(c, p->in[1], 0);
    } else { // NonMaxSuppression: scores below every limit
        const struct onnx_val *boxes = p->in[0], *scores = p->in[1];
        if (!scores || scores->size_dim != 2 || !scores->size ||
            (boxes->size && boxes->size != scores->size))
            return refuse(p);
        p->masked[1] = masked(c, scores, dtype_lowest(scores->v->shape->dtype));
    }
    run_on(p, false);
}
static void pass_roialign(struct pass *p) {
    if (p->in[0]->size || !p->in[1]->size || !p->in[2]->size || p->in[1]->size != p->in[2]->size ||
        p->in[1]->size_dim != 0)
        return refuse(p);
    if (onnx_at_int(p->c, "sampling_ratio", 0) <
        1) // no region that does not count asks for samples
        p->masked[1] = masked(p->c, p->in[1], 0);
    pass_plain(p);
}

// The operator counts in rows and leaves out by itself what does not count.
static void pass_counting(struct pass *p) {
    const struct onnx_val *x = p->in[0];
    if (!x->size || x->size_dim != x->v->shape->rank - 1) return refuse(p);
    p->fn(p->c);
}

// ---- shapes made of such sizes

static void pass_shape(struct pass *p) {
    struct onnx_ctx *c = p->c;
    const struct onnx_val *x = p->x;
    int rank = x->v->shape->rank, n = 0;
    int64_t from = onnx_at_int(c, "start", 0), to = onnx_at_int(c, "end", rank), one = 1;
    hv parts[HLO_MAX_RANK];
    from = from < 0 ? from + rank : from;
    to = to < 0 ? to + rank : to > rank ? rank : to;
    from = from < 0 ? 0 : from;
    for (int64_t d = from; d < to; d++)
        parts[n++] = d == x->size_dim ? hb_reshape(&c->b, x->size, &one, 1)
                                      : hb_const_s64s(&c->b, &x->v->shape->dims[d], 1);
    if (!n) return onnx_out_val(c, 0, hb_const_s64s(&c->b, &one, 0));
    struct onnx_val *y = onnx_tensor_val(c, n == 1 ? parts[0] : hb_concat(&c->b, parts, n, 0));
    int64_t count = n;
    for (int t = 0; t < 2 && !y->known; t++) {
        y->bound[t] = lit_new(c->a, shape_make(c->a, DT_S64, &count, 1));
        for (int d = 0; d < n; d++)
            lit_set_i64(y->bound[t], d,
                        x->v->shape->dims[from + d] + (t && from + d == x->size_dim));
    }
    y->bound_of = y->known ? NULL : x->size;
    onnx_out_any(c, 0, y);
}
static void pass_size(struct pass *p) {
    int64_t others = 1;
    const struct shape *s = p->x->v->shape;
    for (int d = 0; d < s->rank; d++)
        others *= d == p->x->size_dim ? 1 : s->dims[d];
    onnx_out_val(p->c, 0, onnx_mul_k(p->c, p->x->size, (double)others));
}
// Expand, Tile, ConstantOfShape, Range: the size is an element of the operand that has a bound.
static void pass_sized(struct pass *p, int operand) {
    struct onnx_ctx *c = p->c;
    struct hb *b = &c->b;
    const struct onnx_val *to = p->n_in > operand ? p->in[operand] : NULL;
    if (p->x && (p->x != p->in[0] || node_is(c, "Tile"))) return refuse(p);
    if (!to || to->known || !to->bound[0]) return p->x ? pass_plain(p) : refuse(p);
    if (!run_both(p)) return;
    struct onnx_val *y = result(p, 0);
    int dim = changed_dim(p, 0);
    if (dim == -1 || !y) return;
    if (dim < 0) return refuse(p);
    int64_t have = y->v->shape->dims[dim];
    hv size;
    if (node_is(c, "Range")) {
        const struct literal *from = onnx_in_known(c, 0),
                             *by = onnx_in_has(c, 2) ? onnx_in_known(c, 2) : NULL;
        if (!from || !dtype_is_int(from->shape->dtype) || (by && lit_get_i64(by, 0) != 1))
            return refuse(p);
        size = size_at(c, to, 0);
        if (lit_get_i64(from, 0))
            size = hb_sub(b, size, hb_const_i64(b, DT_S64, lit_get_i64(from, 0)));
        if (size != to->bound_of) size = hb_max(b, size, hb_const_i64(b, DT_S64, 0));
    } else {
        int64_t n = shape_elements(to->v->shape), at = dim - (y->v->shape->rank - n);
        if (at < 0 || lit_get_i64(to->bound[0], at) != have) return refuse(p);
        size = size_at(c, to, at);
    }
    give(p, 0, size, dim);
}

// ---- the driver's side

bool onnx_has_dynamic(struct onnx_ctx *c) {
    const struct onnx_op *op = onnx_op_find(c->n, c->opset);
    for (size_t k = 0; k < c->n->in.n; k++) {
        const struct onnx_val *v = onnx_in_any(c, k);
        if (v && v->size) return true;
        if (v && v->v && !v->known && v->bound[0] && op &&
            (op->shape_inputs >> (k < 31 ? k : 31) & 1))
            return true;
    }
    return false;
}

static void dispatch(struct pass *p) {
    static const struct {
        const char *ops;
        void (*pass)(struct pass *);
    } special[] = {{"Concat", pass_concat},
                   {"Reshape Flatten", pass_reshape},
                   {"Slice", pass_slice},
                   {"Split", pass_split},
                   {"MatMul Gemm", pass_product},
                   {"Gather GatherElements", pass_gather},
                   {"GatherND", pass_points},
                   {"ScatterND ScatterElements", pass_scatter},
                   {"NonZero Compress NonMaxSuppression", pass_maker},
                   {"RoiAlign", pass_roialign},
                   {"TfIdfVectorizer", pass_counting},
                   {"TopK", pass_topk}};

    struct onnx_ctx *c = p->c;
    struct str op = c->n->op;
    for (size_t k = 0; k < sizeof special / sizeof special[0]; k++)
        if (str_listed(op, special[k].ops) && (p->x || str_is(op, "TopK") || str_is(op, "Slice")))
            return special[k].pass(p);

    if (str_is(op, "Expand") || str_is(op, "Tile") || str_is(op, "Range")) return pass_sized(p, 1);
    if (str_is(op, "ConstantOfShape")) return pass_sized(p, 0);

    if (!p->x) return refuse(p);
    for (size_t k = 0; k < sizeof neutral / sizeof neutral[0]; k++)
        if (str_is(op, neutral[k].op)) return pass_neutral(p, &neutral[k]);

    if (str_is(op, "Shape")) return pass_shape(p);
    if (str_is(op, "Size")) return pass_size(p);
    if (str_listed(op, elementwise)) return pass_elementwise(p);
    if (str_listed(op, movers) && p->x == p->in[0]) return pass_plain(p);
    if (str_listed(op, by_rows) && p->x == p->in[0] && p->x->size_dim == 0) {
        for (int k = 1; k < p->n_in; k++)
            if (p->in[k] && p->in[k]->size) return refuse(p);
        return pass_plain(p);
    }
    refuse(p);
}

void onnx_pass_dynamic(struct onnx_ctx *c, onnx_fn fn) {
    struct pass p = {.c = c, .fn = fn, .op = onnx_op_find(c->n, c->opset)};
    if (c->n->in.n > MAX_IN || c->n->out.n > MAX_OUT)
        return onnx_fail(c, "more than %d inputs where one has a size that only the run knows",
                         MAX_IN);
    p.n_in = (int)c->n->in.n;
    p.n_out = (int)c->n->out.n;
    bool tensors = true;
    for (int k = p.n_in; k-- > 0;) {
        p.in[k] = onnx_in_any(c, (size_t)k);
        if (p.in[k] && p.in[k]->size) p.x = p.in[k];
        tensors = tensors && (!p.in[k] || p.in[k]->v);
    }
    if (str_is(c->n->op, "Identity")) return fn(c);
    if (!tensors || !p.n_in || !p.in[0]) return refuse(&p); // a sequence among them
    c->dynamic_ok = true;
    dispatch(&p);
    c->dynamic_ok = false;
}

// ---- bounds of shape arithmetic

enum { MAX_BOUND = 64 }; // elements
static const char moving[] =
    "Gather Slice Squeeze Unsqueeze Concat Reshape Identity Cast Split Flatten";
// The one size that the inputs move about; NULL where there are several, or it is computed with.
static hv one_size(struct pass *p) {
    hv size = NULL;
    bool chosen = node_is(p->c, "Where") && p->n_in == 3 && p->in[0] && p->in[0]->known;
    if (!chosen && !str_listed(p->c->n->op, moving)) return NULL;
    for (int k = 0; k < p->n_in; k++) {
        const struct onnx_val *v = p->in[k];
        if (!v || v->known) continue;
        if (!v->bound_of || (size && size != v->bound_of)) return NULL;
        size = v->bound_of;
    }
    return size;
}
// Equal of such integers and what none of them can be, below 0 or beyond their bound, or what does
// not vary: known whatever the size. Models ask so whether a dimension of a shape is -1.
static bool known_equal(struct pass *p) {
    struct onnx_ctx *c = p->c;
    if (!node_is(c, "Equal") || p->n_in != 2) return false;
    int k = p->in[0] && p->in[0]->bound_of ? 0 : 1;
    const struct onnx_val *v = p->in[k], *other = p->in[1 - k];
    if (!v || !v->bound_of || !other || !other->known || !result(p, 0)) return false;
    int64_t n = shape_elements(v->v->shape), m = shape_elements(other->known->shape);
    const struct shape *s = result(p, 0)->v->shape;
    if ((m != n && m != 1) || shape_elements(s) != n) return false;
    struct literal *l = lit_new(c->a, s);
    for (int64_t e = 0; e < n; e++) {
        int64_t at = lit_get_i64(v->bound[0], e), to = lit_get_i64(other->known, m == 1 ? 0 : e);
        bool varies = at != lit_get_i64(v->bound[1], e);
        if (varies && to >= 0 && to <= at) return false;
        lit_set_i64(l, e, !varies && at == to);
    }
    onnx_out_val(c, 0, hb_constant(&c->b, l));
    return true;
}
// A node whose inputs are known or have bounds: its result at those bounds.
void onnx_bound_outputs(struct onnx_ctx *c, onnx_fn fn) {
    struct pass p = {.c = c, .fn = fn, .n_in = (int)c->n->in.n, .n_out = 1};
    struct onnx_val *y = result(&p, 0), at[2];
    bool any = false;

    bool truth = y && y->v->shape->dtype == DT_PRED && node_is(c, "Equal");
    if (!y || !hb_ok(&c->b) || y->known || y->size || c->n->in.n > 16 || c->n->out.n != 1 ||
        (!dtype_is_int(y->v->shape->dtype) && !truth) || shape_elements(y->v->shape) > MAX_BOUND)
        return;

    for (int k = 0; k < p.n_in; k++) {
        p.in[k] = onnx_in_any(c, (size_t)k);
        if (!p.in[k]) continue;
        if (!p.in[k]->v || p.in[k]->size || (!p.in[k]->known && !p.in[k]->bound[0])) return;
        any = any || !p.in[k]->known;
    }
    if (!any || known_equal(&p) || truth) return;

    for (int t = 0; t < 2; t++) {
        for (int k = 0; k < p.n_in; k++) {
            if (!p.in[k] || p.in[k]->known) continue;
            hv v = hb_constant(&c->b, lit_clone(c->a, p.in[k]->bound[t]));
            smap_put(&c->values, c->n->in.v[k], onnx_tensor_val(c, v));
        }
        fn(c);
        for (int k = 0; k < p.n_in; k++)
            if (p.in[k]) smap_put(&c->values, c->n->in.v[k], p.in[k]);
        struct onnx_val *r = result(&p, 0);
        if (!r || !hb_ok(&c->b)) return;
        at[t] = (struct onnx_val){.v = r->v, .known = r->known};
        onnx_fold_value(c, &at[t]);
        onnx_out_any(c, 0, y);
    }

    if (!at[0].known || !at[1].known) return;
    y->bound[0] = at[0].known, y->bound[1] = at[1].known;
    y->bound_of = one_size(&p);
}
