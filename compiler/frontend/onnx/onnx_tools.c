// SPDX-License-Identifier: Apache-2.0
// Formulas that several operator families share.
#include "compiler/frontend/onnx/onnx_tools.h"

#include "compiler/frontend/onnx/onnx_scope.h"

#include <math.h>
#include <string.h>

hv onnx_add_k(struct onnx_ctx *c, hv x, double k) {
    return k == 0 ? x : hb_add(&c->b, x, onnx_splat_like(c, x, k));
}
hv onnx_mul_k(struct onnx_ctx *c, hv x, double k) {
    return k == 1 ? x : hb_mul(&c->b, x, onnx_splat_like(c, x, k));
}
hv onnx_compare_k(struct onnx_ctx *c, hv x, double k, enum cmp_direction d) {
    return hb_compare(&c->b, x, onnx_splat_like(c, x, k), d);
}
hv onnx_scalar_in(struct onnx_ctx *c, size_t k) {
    hv x = onnx_in_val(c, k);
    if (shape_elements(x->shape) != 1)
        onnx_fail(c, "input %zu is %s, expected one element", k, onnx_show(c, x));
    return hb_reshape(&c->b, x, NULL, 0);
}
hv onnx_spread(struct onnx_ctx *c, hv scalar, const struct shape *like) {
    if (scalar->shape->rank)
        return onnx_fail(c, "%s is not a scalar", onnx_show(c, scalar)), scalar;
    return like->rank ? hb_broadcast(&c->b, scalar, like->dims, like->rank, NULL) : scalar;
}
hv onnx_along(struct onnx_ctx *c, hv vector, const struct shape *like, int64_t axis) {
    if (vector->shape->rank > 1)
        return onnx_fail(c, "%s is not a vector", onnx_show(c, vector)), vector;
    return hb_broadcast(&c->b, vector, like->dims, like->rank, &axis);
}
hv onnx_index_along(struct onnx_ctx *c, const struct shape *like, enum dtype t, int64_t axis) {
    return hb_iota(&c->b, shape_make(c->a, t, like->dims, like->rank), axis);
}

hv onnx_lit_f64s(struct onnx_ctx *c, enum dtype t, const double *v, const int64_t *dims, int rank) {
    struct literal *l = lit_new(c->a, shape_make(c->a, t, dims, rank));
    for (int64_t k = 0, n = shape_elements(l->shape); k < n; k++)
        lit_set_f64(l, k, v[k]);
    return hb_constant(&c->b, l);
}
hv onnx_lit_f32s(struct onnx_ctx *c, const float *v, const int64_t *dims, int rank) {
    struct literal *l = lit_new(c->a, shape_make(c->a, DT_F32, dims, rank));
    memcpy(l->data, v, l->size_bytes);
    return hb_constant(&c->b, l);
}
hv onnx_lit_s64s(struct onnx_ctx *c, const int64_t *v, const int64_t *dims, int rank) {
    struct literal *l = lit_new(c->a, shape_make(c->a, DT_S64, dims, rank));
    for (int64_t k = 0, n = shape_elements(l->shape); k < n; k++)
        lit_set_i64(l, k, v[k]);
    return hb_constant(&c->b, l);
}

hv onnx_part(struct onnx_ctx *c, hv x, int64_t axis, int64_t from, int64_t to) {
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        r[d] = (struct range){0, x->shape->dims[d], 1};
    if (axis < 0 || axis >= x->shape->rank) return onnx_fail(c, "axis of a scalar"), x;
    if (from == 0 && to == x->shape->dims[axis]) return x;
    r[axis] = (struct range){from, to, 1};
    return hb_slice(&c->b, x, r);
}
hv onnx_row(struct onnx_ctx *c, hv x, int64_t axis, int64_t k) {
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int d = 0; d < x->shape->rank; d++)
        if (d != axis) dims[n++] = x->shape->dims[d];
    return hb_reshape(&c->b, onnx_part(c, x, axis, k, k + 1), dims, n);
}
hv onnx_add_axis(struct onnx_ctx *c, hv x, int64_t axis) {
    int64_t dims[HLO_MAX_RANK + 1];
    if (x->shape->rank == HLO_MAX_RANK) return onnx_fail(c, "rank above %d", HLO_MAX_RANK), x;
    for (int d = 0, k = 0; d <= x->shape->rank; d++)
        dims[d] = d == axis ? 1 : x->shape->dims[k++];
    return hb_reshape(&c->b, x, dims, x->shape->rank + 1);
}
hv onnx_swap_axes(struct onnx_ctx *c, hv x, int64_t p, int64_t q) {
    int64_t perm[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        perm[d] = d == p ? q : d == q ? p : d;
    return hb_transpose(&c->b, x, perm);
}
hv onnx_pad_axis(struct onnx_ctx *c, hv x, int64_t axis, int64_t low, int64_t high, double value) {
    struct pad_dim p[HLO_MAX_RANK] = {{0, 0, 0}};
    if (low == 0 && high == 0) return x;
    p[axis] = (struct pad_dim){low, high, 0};
    return hb_pad(&c->b, x, hb_const_f64(&c->b, x->shape->dtype, value), p);
}

// ---- indices

hv onnx_wrapped(struct onnx_ctx *c, hv idx, int64_t size) {
    struct hb *b = &c->b;
    if (dtype_class(idx->shape->dtype) == DC_UNSIGNED) return idx;
    hv negative = onnx_compare_k(c, idx, 0, CMP_LT);
    return hb_select(b, negative, onnx_add_k(c, idx, (double)size), idx);
}
// x with an element to point at in dimensions [from, from + n) that have none, where no index
// points at one: there are none, or none that counts.
static hv never_empty(struct onnx_ctx *c, hv x, hv idx, int from, int n) {
    for (int d = from; d < from + n; d++)
        if (x->shape->dims[d] == 0 && (c->dynamic_ok || shape_elements(idx->shape) == 0))
            x = onnx_pad_axis(c, x, d, 0, 1, 0);
    return x;
}
hv onnx_take(struct onnx_ctx *c, hv x, hv idx, int64_t axis) {
    int rank = x->shape->rank, n = idx->shape->rank, k = 0;
    int64_t offsets[HLO_MAX_RANK], sizes[HLO_MAX_RANK];
    if (axis >= rank || rank - 1 + n > HLO_MAX_RANK)
        return onnx_fail(c, "the result has rank %d", rank - 1 + n), x;
    x = never_empty(c, x, idx, (int)axis, 1);
    for (int d = 0; d < rank; d++) {
        sizes[d] = d == axis ? 1 : x->shape->dims[d];
        if (d != axis) offsets[k++] = d < axis ? d : d - 1 + n;
    }
    struct hlo_attr_gather g = {.offset_dims = {offsets, k},
                                .collapsed_slice_dims = {&axis, 1},
                                .start_index_map = {&axis, 1},
                                .index_vector_dim = n,
                                .slice_sizes = {sizes, rank}};
    return hb_gather(&c->b, x, idx, &g);
}
hv onnx_take_points(struct onnx_ctx *c, hv x, hv idx, int n) {
    int rank = x->shape->rank, batch = idx->shape->rank - 1, k = 0;
    int64_t offsets[HLO_MAX_RANK], sizes[HLO_MAX_RANK], first[HLO_MAX_RANK];
    if (n > rank || batch < 0 || batch + rank - n > HLO_MAX_RANK)
        return onnx_fail(c, "indices %s on %s", onnx_show(c, idx), onnx_show(c, x)), x;
    x = never_empty(c, x, idx, 0, n);
    for (int d = 0; d < rank; d++) {
        sizes[d] = d < n ? 1 : x->shape->dims[d];
        if (d < n)
            first[d] = d;
        else
            offsets[k] = batch + k, k++;
    }
    struct hlo_attr_gather g = {.offset_dims = {offsets, k},
                                .collapsed_slice_dims = {first, n},
                                .start_index_map = {first, n},
                                .index_vector_dim = batch,
                                .slice_sizes = {sizes, rank}};
    return hb_gather(&c->b, x, idx, &g);
}

// The reducer of a scatter that puts the new value: (old, new) -> new.
static struct hlo_computation *assigner(struct onnx_ctx *c, enum dtype t) {
    const char *name = arena_printf(c->a, "assign_%s", dtype_name(t));
    struct hlo_module *m = c->b.c->module;
    HLO_EACH_COMPUTATION(k, m)
    if (strcmp(k->name, name) == 0) return k;
    struct hlo_computation *f = hb_callee(m, name);
    const struct shape *s = shape_scalar(m->arena, t);
    hlo_add_param(f, 0, s, "old");
    hlo_set_root(f, hlo_add_param(f, 1, s, "new"));
    return f;
}
static hv put(struct onnx_ctx *c, hv x, hv idx, hv upd, const struct hlo_attr_scatter *s,
              enum hlo_op op) {
    enum dtype t = x->shape->dtype;
    struct hlo_computation *f = op == HLO_COPY ? assigner(c, t) : hb_reducer(c->b.c->module, op, t);
    return hb_call(&c->b, HLO_SCATTER, NULL, (hv[]){x, idx, upd}, 3, s, &f, 1);
}
hv onnx_put_points(struct onnx_ctx *c, hv x, hv idx, int n, hv upd, enum hlo_op op) {
    int rank = x->shape->rank, batch = idx->shape->rank - 1, k = 0;
    int64_t windows[HLO_MAX_RANK], first[HLO_MAX_RANK];
    if (n > rank || batch < 0)
        return onnx_fail(c, "indices %s on %s", onnx_show(c, idx), onnx_show(c, x)), x;
    for (int d = 0; d < rank; d++)
        if (d < n)
            first[d] = d;
        else
            windows[k] = batch + k, k++;
    struct hlo_attr_scatter s = {.update_window_dims = {windows, k},
                                 .inserted_window_dims = {first, n},
                                 .scatter_dims_to_operand_dims = {first, n},
                                 .index_vector_dim = batch};
    return put(c, x, idx, upd, &s, op);
}
hv onnx_stack_last(struct onnx_ctx *c, hv const *xs, int n) {
    hv wide[HLO_MAX_RANK];
    for (int k = 0; k < n; k++)
        wide[k] = onnx_add_axis(c, xs[k], xs[k]->shape->rank);
    return hb_concat(&c->b, wide, n, xs[0]->shape->rank);
}
hv onnx_element_points(struct onnx_ctx *c, hv idx, int64_t axis) {
    hv at[HLO_MAX_RANK];
    int rank = idx->shape->rank;
    for (int d = 0; d < rank; d++)
        at[d] = d == axis ? idx : onnx_index_along(c, idx->shape, idx->shape->dtype, d);
    return rank ? onnx_stack_last(c, at, rank) : idx;
}

// Dimensions other than the axis: the batching ones of a gather or scatter. Gives how many; -1: the
// operands do not lie side by side in them, or a single element is better told by its position.
static int beside(hv x, hv idx, int64_t axis, int64_t *dims) {
    int n = 0, rank = x->shape->rank;
    if (idx->shape->rank != rank || x->shape->dynamic || idx->shape->dynamic ||
        shape_elements(x->shape) == 0 || shape_elements(idx->shape) < 2)
        return -1;
    for (int d = 0; d < rank; d++) {
        if (d == axis) continue;
        if (x->shape->dims[d] != idx->shape->dims[d]) return -1;
        dims[n++] = d;
    }
    return n;
}
hv onnx_take_elements(struct onnx_ctx *c, hv x, hv idx, int64_t axis) {
    int64_t dims[HLO_MAX_RANK], ones[HLO_MAX_RANK];
    int rank = x->shape->rank, n = beside(x, idx, axis, dims);
    if (n < 0) return onnx_take_points(c, x, onnx_element_points(c, idx, axis), rank);
    for (int d = 0; d < rank; d++)
        ones[d] = 1;
    struct hlo_attr_gather g = {.collapsed_slice_dims = {&axis, 1},
                                .start_index_map = {&axis, 1},
                                .operand_batching_dims = {dims, n},
                                .start_indices_batching_dims = {dims, n},
                                .index_vector_dim = rank,
                                .slice_sizes = {ones, rank}};
    return hb_gather(&c->b, x, idx, &g);
}
hv onnx_put_elements(struct onnx_ctx *c, hv x, hv idx, int64_t axis, hv upd, enum hlo_op op) {
    int64_t dims[HLO_MAX_RANK];
    int rank = x->shape->rank, n = beside(x, idx, axis, dims);
    if (n < 0) return onnx_put_points(c, x, onnx_element_points(c, idx, axis), rank, upd, op);
    struct hlo_attr_scatter s = {.inserted_window_dims = {&axis, 1},
                                 .scatter_dims_to_operand_dims = {&axis, 1},
                                 .input_batching_dims = {dims, n},
                                 .scatter_indices_batching_dims = {dims, n},
                                 .index_vector_dim = rank};
    return put(c, x, idx, upd, &s, op);
}

// ---- small formulas

hv onnx_batch_dot(struct onnx_ctx *c, hv x, hv y, bool transposed) {
    int64_t batch[2] = {0, 1}, last = 3, over = transposed ? 3 : 2;
    return hb_dot(&c->b, x, y,
                  &(struct hlo_attr_dot){.lhs_batch_dims = {batch, 2},
                                         .rhs_batch_dims = {batch, 2},
                                         .lhs_contracting_dims = {&last, 1},
                                         .rhs_contracting_dims = {&over, 1}});
}
hv onnx_add_along(struct onnx_ctx *c, hv y, size_t k, int64_t dim) {
    if (!onnx_in_has(c, k) || !hb_ok(&c->b)) return y;
    return hb_add(&c->b, y, onnx_along(c, onnx_in_val(c, k), y->shape, dim));
}
hv onnx_softmax_over(struct onnx_ctx *c, hv x, const int64_t *axes, int n) {
    hv m = onnx_reduce_keep(c, x, axes, n, HLO_MAXIMUM, false);
    hv e = hb_unary(&c->b, HLO_EXP, hb_sub(&c->b, x, onnx_back_to(c, m, x->shape, axes, n)));
    hv sum = onnx_reduce_keep(c, e, axes, n, HLO_ADD, false);
    return hb_div(&c->b, e, onnx_back_to(c, sum, x->shape, axes, n));
}
hv onnx_mean_of(struct onnx_ctx *c, hv x, const int64_t *axes, int n, bool keep) {
    double count = 1;
    for (int k = 0; k < n; k++)
        count *= (double)x->shape->dims[axes[k]];
    return onnx_mul_k(c, onnx_reduce_keep(c, x, axes, n, HLO_ADD, keep), 1 / count);
}
hv onnx_and(struct onnx_ctx *c, hv x, hv y) {
    return hb_binary(&c->b, HLO_AND, x, y);
}
hv onnx_within(struct onnx_ctx *c, hv x, double lo, double hi) {
    return onnx_and(c, onnx_compare_k(c, x, lo, CMP_GE), onnx_compare_k(c, x, hi, CMP_LE));
}
size_t onnx_at_floats(const struct onnx_ctx *c, const char *name, const float **v) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    *v = a ? a->floats.v : NULL;
    return a ? a->floats.n : 0;
}
enum dtype onnx_attr_dtype(struct onnx_ctx *c, const char *name, enum dtype def) {
    int64_t code = onnx_at_int(c, name, 0);
    if (!onnx_attr(c->n, name) || (code == 0 && def != DT_INVALID)) return def; // 0: undefined
    enum dtype t = dtype_from_onnx((int)code);
    if (t != DT_INVALID) return t;
    onnx_fail(c, "attribute %s: element type %lld is not supported", name, (long long)code);
    return def;
}

// ---- operators made of others

hv onnx_result(struct onnx_ctx *c, size_t k) {
    struct onnx_val *v = k < c->n->out.n ? smap_get(&c->values, c->n->out.v[k]) : NULL;
    if (v && v->v) return v->v;
    onnx_fail(c, "result %zu is missing", k);
    return hb_const_f64(&c->b, DT_F32, 0);
}
void onnx_with_input(struct onnx_ctx *c, size_t k, hv v, onnx_fn fn) {
    struct onnx_val *old = onnx_in_any(c, k);
    if (!old || !hb_ok(&c->b)) return;
    smap_put(&c->values, c->n->in.v[k], onnx_tensor_val(c, v));
    fn(c);
    smap_put(&c->values, c->n->in.v[k], old);
}
void onnx_channels_first(struct onnx_ctx *c, onnx_fn fn) {
    hv x = onnx_in_val(c, 0);
    int rank = x->shape->rank;
    int64_t there[HLO_MAX_RANK] = {0}, back[HLO_MAX_RANK] = {0};
    if (rank < 3) return onnx_fail(c, "input %s", onnx_show(c, x));
    there[1] = rank - 1, back[rank - 1] = 1;
    for (int d = 2; d < rank; d++)
        there[d] = d - 1, back[d - 1] = d;
    onnx_with_input(c, 0, hb_transpose(&c->b, x, there), fn);
    if (!hb_ok(&c->b)) return;
    hv y = onnx_result(c, 0);
    if (y->shape->rank != rank) return onnx_fail(c, "result %s", onnx_show(c, y));
    onnx_out_val(c, 0, hb_transpose(&c->b, y, back));
}

// ---- loops

enum { MAX_REPEATED = 16 };
// The parts of the state in the computation being built: [turn, values that are there...].
static hv unpack_state(struct onnx_ctx *c, hv state, hv *v, int nv) {
    int64_t n = 1;
    for (int k = 0; k < nv; k++)
        if (v[k]) v[k] = hb_gte(&c->b, state, n++);
    return hb_gte(&c->b, state, 0);
}
static hv pack_state(struct onnx_ctx *c, hv turn, hv const *v, int nv) {
    hv all[MAX_REPEATED + 1] = {turn};
    int n = 1;
    for (int k = 0; k < nv; k++)
        if (v[k]) all[n++] = v[k];
    return hb_tuple(&c->b, all, n);
}
void onnx_loop_times(struct onnx_ctx *c, int64_t n, hv *v, int nv, repeat_fn step, void *user) {
    hv start, in[MAX_REPEATED];
    if (nv > MAX_REPEATED) return onnx_fail(c, "%d values in a loop", nv);
    start = pack_state(c, hb_const_i64(&c->b, DT_S64, 0), v, nv);
    if (!hb_ok(&c->b)) return;
    struct hb outer = c->b;
    struct hlo_computation *called[2]; // condition, body
    for (int k = 1; k >= 0 && !outer.st; k--) {
        called[k] = onnx_computation(c, k ? "repeat_body" : "repeat_condition");
        c->b = hb_begin(called[k]);
        c->b.op_name = outer.op_name, c->b.op_type = outer.op_type;
        hv state = hlo_add_param(called[k], 0, start->shape, "state"), root;
        memcpy(in, v, sizeof *v * (size_t)nv);
        hv turn = k ? unpack_state(c, state, in, nv) : hb_gte(&c->b, state, 0);
        if (k) {
            step(c, turn, in, user);
            root = pack_state(c, hb_add(&c->b, turn, hb_const_i64(&c->b, DT_S64, 1)), in, nv);
        } else {
            hv limit = n < 0 ? hb_gte(&c->b, state, 1) : hb_const_i64(&c->b, DT_S64, n);
            root = hb_compare(&c->b, turn, limit, CMP_LT);
        }
        if (hb_ok(&c->b)) hlo_set_root(called[k], root);
        outer.st = hb_end(&c->b);
    }
    c->b = outer;
    if (outer.st) return;
    unpack_state(c, hb_call(&c->b, HLO_WHILE, NULL, &start, 1, NULL, called, 2), v, nv);
}
