// SPDX-License-Identifier: Apache-2.0
// CHLO: the client dialect's operations, from text and from composites of their names.
#include <math.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"

static status_t one_operand(const struct mlir_op *op) {
    return op->n_operands == 1 ? ST_OK
                               : st_invalid("it has %d operands, expected 1", op->n_operands);
}
status_t shl_conj(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(one_operand(op));
    hv re = hb_unary(&l->b, HLO_REAL, in[0]), im = hb_unary(&l->b, HLO_IMAG, in[0]);
    bool complex = dtype_is_complex(in[0]->shape->dtype);
    *out = complex ? hb_binary(&l->b, HLO_COMPLEX, re, hb_unary(&l->b, HLO_NEGATE, im)) : in[0];
    return ST_OK;
}
status_t shl_square(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(one_operand(op));
    *out = hb_mul(&l->b, in[0], in[0]);
    return ST_OK;
}
// value: a number of the result's type.
status_t shl_constant_like(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    const struct mlir_attr *t;
    RETURN_IF_ERR(one_operand(op));
    RETURN_IF_ERR(shl_needs(op, "value", &t));
    enum dtype type = shl_result_type(l, op, 0)->dtype;
    if (t->kind != MLIR_A_FLOAT && t->kind != MLIR_A_INT && t->kind != MLIR_A_BOOL)
        return st_unimplemented("a value of this kind");
    hv c =
        t->kind == MLIR_A_FLOAT ? hb_const_f64(&l->b, type, t->f) : hb_const_i64(&l->b, type, t->i);
    *out = hb_broadcast(&l->b, c, in[0]->shape->dims, in[0]->shape->rank, NULL);
    return ST_OK;
}
status_t shl_is_inf(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    RETURN_IF_ERR(one_operand(op));
    bool any = str_is(op->name, "chlo.is_inf"), negative = str_is(op->name, "chlo.is_neg_inf");
    hv x = any ? hb_unary(&l->b, HLO_ABS, in[0]) : in[0];
    *out = hb_compare(&l->b, x, hb_splat(&l->b, x->shape, negative ? -INFINITY : INFINITY), CMP_EQ);
    return ST_OK;
}
status_t shl_top_k(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    const struct mlir_attr *largest = mlir_op_attr(op, "largest");
    struct hlo_attr_topk a = {.k = shl_int(op, "k", -1), .largest = !largest || largest->i};
    RETURN_IF_ERR(one_operand(op));
    return shl_emit(l, op, HLO_TOPK, in, 1, &a, NULL, 0, out);
}
status_t shl_ragged_dot(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_ragged_dot a = {0};
    RETURN_IF_ERR(shl_ints(l, op, "lhs_batching_dimensions", -1, 0, &a.lhs_batch_dims));
    RETURN_IF_ERR(shl_ints(l, op, "lhs_contracting_dimensions", -1, 0, &a.lhs_contracting_dims));
    RETURN_IF_ERR(shl_ints(l, op, "rhs_batching_dimensions", -1, 0, &a.rhs_batch_dims));
    RETURN_IF_ERR(shl_ints(l, op, "rhs_contracting_dimensions", -1, 0, &a.rhs_contracting_dims));
    RETURN_IF_ERR(shl_ints(l, op, "lhs_ragged_dimensions", -1, 0, &a.lhs_ragged_dims));
    RETURN_IF_ERR(shl_ints(l, op, "rhs_group_dimensions", -1, 0, &a.rhs_group_dims));
    return shl_emit(l, op, HLO_RAGGED_DOT, in, op->n_operands, &a, NULL, 0, out);
}

// ---- operands of different shapes

// x so broadcast that its dimensions lie at broadcast_dimensions, or at the end.
static hv lay(struct shl *l, hv x, const int64_t *dims, int rank, struct i64s at) {
    if (!at.n || x->shape->rank == rank || at.n != x->shape->rank)
        return hb_broadcast_numpy(&l->b, x, dims, rank);
    int64_t wide[HLO_MAX_RANK];
    for (int d = 0; d < rank; d++)
        wide[d] = 1;
    for (int k = 0; k < at.n; k++)
        if (at.v[k] >= 0 && at.v[k] < rank) wide[at.v[k]] = x->shape->dims[k];
    return hb_broadcast_numpy(&l->b, hb_reshape(&l->b, x, wide, rank), dims, rank);
}
static int common_dims(hv const *in, int n, int64_t *dims) {
    int rank = 0;
    for (int k = 0; k < n; k++)
        if (in[k]->shape->rank > rank) rank = in[k]->shape->rank;
    for (int d = 0; d < rank; d++)
        dims[d] = 1;
    for (int k = 0; k < n; k++)
        for (int d = 0; d < in[k]->shape->rank; d++) {
            int64_t size = in[k]->shape->dims[d];
            int to = rank - in[k]->shape->rank + d;
            if (size != 1) dims[to] = size;
        }
    return rank;
}
status_t shl_numpy(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct i64s at;
    int64_t dims[HLO_MAX_RANK];
    if (op->n_operands != 2) return st_invalid("it has %d operands, expected 2", op->n_operands);
    RETURN_IF_ERR(shl_ints(l, op, "broadcast_dimensions", -1, 0, &at));
    int rank = common_dims(in, 2, dims);
    hv v[2] = {lay(l, in[0], dims, rank, at), lay(l, in[1], dims, rank, at)};
    enum hlo_op hlo = shl_row_of(op->name)->hlo;
    if (hlo == HLO_COMPARE) return shl_compare(l, op, v, out);
    *out = hb_binary(&l->b, hlo, v[0], v[1]);
    return ST_OK;
}
status_t shl_numpy_select(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    int64_t dims[HLO_MAX_RANK];
    hv v[3];
    if (op->n_operands != 3) return st_invalid("it has %d operands, expected 3", op->n_operands);
    int rank = common_dims(in, 3, dims);
    for (int k = 0; k < 3; k++)
        v[k] = hb_broadcast_numpy(&l->b, in[k], dims, rank);
    *out = hb_select(&l->b, v[0], v[1], v[2]);
    return ST_OK;
}
