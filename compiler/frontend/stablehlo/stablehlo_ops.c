// SPDX-License-Identifier: Apache-2.0
// Elementwise operations, constants, tuples, and those that only move data.
#include <string.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"

static status_t want_operands(const struct mlir_op *op, int n) {
    return op->n_operands == n ? ST_OK
                               : st_invalid("it has %d operands, expected %d", op->n_operands, n);
}

// ---- elementwise

status_t shl_each(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    return shl_emit(l, op, shl_row_of(op->name)->hlo, in, op->n_operands, NULL, NULL, 0, out);
}
status_t shl_barrier(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != op->n_results) return st_invalid("it gives what it takes");
    for (int k = 0; k < op->n_results; k++)
        out[k] = hb_unary(&l->b, HLO_OPT_BARRIER, in[k]);
    return ST_OK;
}
static status_t with_type(struct shl *l, const struct mlir_op *op, enum hlo_op hlo, hv x, hv *out) {
    const struct shape *s = shl_result_shape(l, op, 0, x->shape->dims, x->shape->rank);
    *out = hb_op(&l->b, hlo, s, &x, 1, NULL);
    return ST_OK;
}
status_t shl_bitcast(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(want_operands(op, 1));
    const struct shape *x = in[0]->shape;
    int64_t dims[HLO_MAX_RANK + 1];
    int rank = x->rank;
    if (shape_is_tuple(x)) return st_invalid("its operand must be an array");
    for (int d = 0; d < rank; d++)
        dims[d] = x->dims[d];
    int from = dtype_bits(x->dtype), to = dtype_bits(shl_result_type(l, op, 0)->dtype);
    if (to > 0 && from > to) dims[rank++] = from / to; // an element's parts are the last dimension
    if (rank > HLO_MAX_RANK) return st_invalid("its rank is too large");
    const struct shape *s = shl_result_shape(l, op, 0, dims, rank - (rank > 0 && from < to));
    *out = hb_op(&l->b, HLO_BITCAST_CONVERT, s, in, 1, NULL);
    return ST_OK;
}
status_t shl_convert(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(want_operands(op, 1));
    return with_type(l, op, HLO_CONVERT, in[0], out);
}
static bool direction_of(struct str s, enum cmp_direction *out) {
    static const char names[][3] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
    for (int k = 0; k < 6; k++)
        if (str_is(s, names[k])) {
            *out = (enum cmp_direction)k;
            return true;
        }
    return false;
}
status_t shl_compare(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_compare a = {0};
    struct str type = shl_word(op, "compare_type");
    RETURN_IF_ERR(want_operands(op, 2));
    if (!direction_of(shl_word(op, "comparison_direction"), &a.direction))
        return st_invalid("attribute 'comparison_direction' is missing or unknown");
    if (str_is(type, "TOTALORDER")) a.type = CMPT_TOTALORDER; // others say what the types do
    return shl_emit(l, op, HLO_COMPARE, in, 2, &a, NULL, 0, out);
}
status_t shl_reduce_precision(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_redprec a = {.exponent_bits = shl_int(op, "exponent_bits", -1),
                                 .mantissa_bits = shl_int(op, "mantissa_bits", -1)};
    RETURN_IF_ERR(want_operands(op, 1));
    return shl_emit(l, op, HLO_REDUCE_PRECISION, in, 1, &a, NULL, 0, out);
}
status_t shl_select(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(want_operands(op, 3));
    hv p = in[0];
    if (p->shape->rank == 0 && in[1]->shape->rank > 0)
        p = hb_broadcast(&l->b, p, in[1]->shape->dims, in[1]->shape->rank, NULL);
    *out = hb_select(&l->b, p, in[1], in[2]);
    return ST_OK;
}
status_t shl_map(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_dims a = {0};
    struct hlo_computation *f;
    RETURN_IF_ERR(shl_ints(l, op, "dimensions", -1, 0, &a.dimensions));
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    return shl_emit(l, op, HLO_MAP, in, op->n_operands, &a, &f, 1, out);
}

// ---- leaves and tuples

status_t shl_literal(struct shl *l, const struct mlir_op *op, UNUSED hv const *in, hv *out) {
    const struct mlir_attr *t;
    RETURN_IF_ERR(shl_needs(op, "value", &t));
    return shl_constant(l, t, out);
}
status_t shl_iota(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    const struct shape *s = shl_shape(l->a, shl_result_type(l, op, 0));
    struct i64s dims;
    if (!s && op->n_operands != 1) return st_invalid("its result must have a static shape");
    if (!s) {
        RETURN_IF_ERR(shl_known_ints(l, op, 0, in[0], &dims));
        s = shape_make(l->a, shl_result_type(l, op, 0)->dtype, dims.v, dims.n);
        RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
    }
    *out = hb_iota(&l->b, s, shl_int(op, "iota_dimension", -1));
    return ST_OK;
}
status_t shl_tuple_element(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(want_operands(op, 1));
    *out = hb_gte(&l->b, in[0], shl_int(op, "index", -1));
    return ST_OK;
}

// ---- shapes

// The dimensions of the result: its type's, or elements of the operand that says them.
static status_t result_dims(struct shl *l, const struct mlir_op *op, hv const *in, int operand,
                            struct i64s *out) {
    const struct mlir_type *t = shl_result_type(l, op, 0);
    if (shl_shape(l->a, t)) {
        *out = (struct i64s){t->dims, t->rank};
        return ST_OK;
    }
    if (op->n_operands <= operand) return st_invalid("its result must have a static shape");
    RETURN_IF_ERR(shl_known_ints(l, op, operand, in[operand], out));
    if (out->n > HLO_MAX_RANK) return st_invalid("rank %d is too large", out->n);
    for (int k = 0; k < out->n; k++)
        if (out->v[k] < 0) return st_invalid("dimension %d would be negative", k);
    return shape_check(shape_make(l->a, t->dtype, out->v, out->n), l->hlo->max_bytes);
}
status_t shl_broadcast_in_dim(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct i64s map, dims;
    hv x = in[0];
    if (op->n_operands < 1) return st_invalid("it needs an operand");
    RETURN_IF_ERR(result_dims(l, op, in, 1, &dims));
    RETURN_IF_ERR(shl_ints(l, op, "broadcast_dimensions", x->shape->rank, 0, &map));

    // A dimension of size 1 that grows is dropped first: HLO broadcasts only what fits.
    int64_t kept[HLO_MAX_RANK], to[HLO_MAX_RANK];
    int n = 0;
    for (int d = 0; d < x->shape->rank; d++) {
        if (map.v[d] < 0 || map.v[d] >= dims.n)
            return st_invalid("broadcast_dimensions[%d] is out of range", d);
        int64_t has = x->shape->dims[d], want = dims.v[map.v[d]];
        if (has != want && has != 1)
            return st_invalid("dimension %d of size %lld does not broadcast to %lld", d,
                              (long long)has, (long long)want);
        if (has != want) continue;
        kept[n] = has;
        to[n++] = map.v[d];
    }
    x = hb_reshape(&l->b, x, kept, n);

    // HLO wants rising dimensions: others are a transpose.
    int64_t perm[HLO_MAX_RANK];
    bool rising = true;
    for (int d = 0; d < n; d++)
        perm[d] = d;
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && to[perm[k - 1]] > to[perm[k]]; k--) {
            int64_t t = perm[k];
            perm[k] = perm[k - 1];
            perm[k - 1] = t;
            rising = false;
        }
    int64_t sorted[HLO_MAX_RANK];
    for (int d = 0; d < n; d++)
        sorted[d] = to[perm[d]];
    if (!rising) x = hb_transpose(&l->b, x, perm);
    *out = hb_broadcast(&l->b, x, dims.v, dims.n, sorted);
    return ST_OK;
}
status_t shl_broadcast(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct i64s sizes;
    RETURN_IF_ERR(want_operands(op, 1));
    RETURN_IF_ERR(shl_ints(l, op, "broadcast_sizes", -1, 0, &sizes));
    const struct shape *s = in[0]->shape;
    int64_t dims[2 * HLO_MAX_RANK], map[HLO_MAX_RANK];
    if (sizes.n + s->rank > HLO_MAX_RANK) return st_invalid("its rank is too large");
    for (int k = 0; k < sizes.n; k++)
        dims[k] = sizes.v[k];
    for (int k = 0; k < s->rank; k++) {
        dims[sizes.n + k] = s->dims[k];
        map[k] = sizes.n + k;
    }
    *out = hb_broadcast(&l->b, in[0], dims, sizes.n + s->rank, map);
    return ST_OK;
}
status_t shl_concatenate(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands < 1) return st_invalid("it needs an operand");
    *out = hb_concat(&l->b, in, op->n_operands, shl_int(op, "dimension", -1));
    return ST_OK;
}
status_t shl_reshape(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct i64s dims;
    if (op->n_operands < 1) return st_invalid("it needs an operand");
    RETURN_IF_ERR(result_dims(l, op, in, 1, &dims));
    *out = hb_reshape(&l->b, in[0], dims.v, dims.n);
    return ST_OK;
}
status_t shl_dims(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_dims a = {0};
    bool transpose = shl_row_of(op->name)->hlo == HLO_TRANSPOSE;
    RETURN_IF_ERR(want_operands(op, 1));
    RETURN_IF_ERR(shl_ints(l, op, transpose ? "permutation" : "dimensions", -1, 0, &a.dimensions));
    return shl_emit(l, op, shl_row_of(op->name)->hlo, in, 1, &a, NULL, 0, out);
}
// One element of a vector of integers, a scalar; what it was joined from where that shows.
static hv element_of(struct shl *l, hv v, int64_t at) {
    for (int k = 0; v->op == HLO_CONCATENATE && k < v->n_operands; k++) {
        int64_t n = v->operands[k]->shape->dims[0];
        if (at < n) return element_of(l, v->operands[k], at);
        at -= n;
    }
    if (v->op == HLO_RESHAPE && v->operands[0]->shape->rank == 0) return v->operands[0];
    return hb_reshape(&l->b, hb_slice(&l->b, v, &(struct range){at, at + 1, 1}), NULL, 0);
}
// Are all elements of a known value those of `want`, or 0 where it is NULL?
static bool known_as(struct shl *l, hv v, const int64_t *want, int n) {
    struct literal *lit = shl_known(l, v);
    bool same = lit && shape_elements(lit->shape) == n;
    for (int k = 0; same && k < n; k++)
        same = lit_get_i64(lit, k) == (want ? want[k] : 0);
    return same;
}
// real_dynamic_slice of steps of 1 whose start only a run knows, its limit a sum with a known size:
// dynamic-slice, which clamps the start as jax.export's programs do before it.
static status_t slice_from(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    const struct shape *s = in[0]->shape;
    hv start = in[1], limit = in[2], args[HLO_MAX_RANK + 1] = {in[0]};
    int at = limit->op == HLO_ADD && limit->operands[0] == start;
    struct hlo_attr_dynslice a = {0};
    struct i64s steps;
    int64_t last[HLO_MAX_RANK];
    if (limit->op != HLO_ADD || limit->operands[1 - at] != start)
        return shl_known_ints(l, op, 1, start, &steps); // the error that says so
    RETURN_IF_ERR(shl_known_ints(l, op, 2, limit->operands[at], &a.dynamic_slice_sizes));
    RETURN_IF_ERR(shl_known_ints(l, op, 3, in[3], &steps));
    if (start->shape->rank != 1 || a.dynamic_slice_sizes.n != s->rank || steps.n != s->rank)
        return st_invalid("its operands must have %d elements", s->rank);
    for (int d = 0; d < s->rank; d++) {
        if (steps.v[d] != 1) return st_unimplemented("steps from where only a run knows");
        if (__builtin_sub_overflow(s->dims[d], a.dynamic_slice_sizes.v[d], &last[d])) last[d] = -1;
    }

    if (start->op == HLO_CLAMP && known_as(l, start->operands[0], NULL, s->rank) &&
        known_as(l, start->operands[2], last, s->rank))
        start = start->operands[1];
    for (int d = 0; d < s->rank; d++)
        args[d + 1] = element_of(l, start, d);
    *out = hb_op(&l->b, HLO_DYNAMIC_SLICE, NULL, args, s->rank + 1, &a);
    return ST_OK;
}
// slice has start, limit and stride as attributes, real_dynamic_slice as operands.
status_t shl_slice(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    static const char *const names[] = {"start_indices", "limit_indices", "strides"};
    if (op->n_operands != 1 && op->n_operands != 4)
        return st_invalid("it has %d operands", op->n_operands);
    int rank = in[0]->shape->rank;
    struct i64s v[3];
    if (op->n_operands == 4 && !shl_known(l, in[1])) return slice_from(l, op, in, out);
    for (int k = 0; k < 3; k++) {
        if (op->n_operands == 1)
            RETURN_IF_ERR(shl_ints(l, op, names[k], rank, 1, &v[k]));
        else
            RETURN_IF_ERR(shl_known_ints(l, op, k + 1, in[k + 1], &v[k]));
        if (v[k].n != rank) return st_invalid("%s must have %d elements", names[k], rank);
    }
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < rank; d++)
        r[d] = (struct range){v[0].v[d], v[1].v[d], v[2].v[d]};
    *out = hb_slice(&l->b, in[0], r);
    return ST_OK;
}
status_t shl_pad(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    static const char *const names[] = {"edge_padding_low", "edge_padding_high",
                                        "interior_padding"};
    if (op->n_operands != 2 && op->n_operands != 5)
        return st_invalid("it has %d operands", op->n_operands);
    int rank = in[0]->shape->rank;
    struct i64s v[3];
    for (int k = 0; k < 3; k++) {
        if (op->n_operands == 2)
            RETURN_IF_ERR(shl_ints(l, op, names[k], rank, 0, &v[k]));
        else
            RETURN_IF_ERR(shl_known_ints(l, op, k + 2, in[k + 2], &v[k]));
        if (v[k].n != rank) return st_invalid("%s must have %d elements", names[k], rank);
    }
    struct pad_dim p[HLO_MAX_RANK];
    for (int d = 0; d < rank; d++)
        p[d] = (struct pad_dim){v[0].v[d], v[1].v[d], v[2].v[d]};
    *out = hb_pad(&l->b, in[0], in[1], p);
    return ST_OK;
}
status_t shl_dynamic_slice(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_dynslice a = {0};
    RETURN_IF_ERR(shl_ints(l, op, "slice_sizes", -1, 0, &a.dynamic_slice_sizes));
    return shl_emit(l, op, HLO_DYNAMIC_SLICE, in, op->n_operands, &a, NULL, 0, out);
}
// Dimensions are numbers here.
status_t shl_dimension_size(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    int64_t d = shl_int(op, "dimension", -1);
    RETURN_IF_ERR(want_operands(op, 1));
    if (d < 0 || d >= in[0]->shape->rank) return st_invalid("dimension %lld", (long long)d);
    *out = hb_const_i64(&l->b, DT_S32, in[0]->shape->dims[d]);
    return ST_OK;
}
status_t shl_set_dimension(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    int64_t d = shl_int(op, "dimension", -1);
    struct i64s size;
    RETURN_IF_ERR(want_operands(op, 2));
    RETURN_IF_ERR(shl_known_ints(l, op, 1, in[1], &size));
    if (d < 0 || d >= in[0]->shape->rank || size.n != 1 || size.v[0] != in[0]->shape->dims[d])
        return st_unimplemented("a dimension whose size is not that of the memory");
    *out = in[0];
    return ST_OK;
}
