// SPDX-License-Identifier: Apache-2.0
// Quantised types. A value of !quant.uniform<storage:expressed, scale:zero> is what is stored:
//   real = (stored - zero) * scale
//   stored = round_even(clamp(min, real / scale + zero, max))
// Operations that move values or call others work on what is stored; every other one is its
// arithmetic between the two, as the StableHLO specification says (dequantize_op_quantize). Where
// only some operands are quantised, those are made real (hybrid operations).
#include "compiler/frontend/stablehlo/stablehlo_lower.h"

// Operations on what is stored. Those with regions have quantised values in them.
static const char *const on_stored[] = {
    "bitcast_convert", "broadcast", "broadcast_in_dim", "case", "collective_broadcast",
    "collective_permute", "composite", "concatenate", "constant", "custom_call",
    "dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad", "dynamic_reshape",
    "dynamic_slice", "dynamic_update_slice", "func.call", "gather", "get_dimension_size",
    "get_tuple_element", "if", "map", "optimization_barrier", "pad", "real_dynamic_slice",
    "reduce", "reduce_window", "reshape", "reverse", "scatter", "select",
    "select_and_scatter", "set_dimension_size", "slice", "sort", "torch_index_select",
    "transpose", "tuple", "uniform_dequantize", "uniform_quantize", "while", "all_gather",
    "all_reduce", "all_to_all", "reduce_scatter", "chlo.scan", "chlo.top_k"};

static bool works_on_stored(const struct shl_row *row) {
    for (size_t k = 0; k < sizeof on_stored / sizeof *on_stored; k++)
        if (str_is(str_of(row->name), on_stored[k])) return true;
    return false;
}
static const struct mlir_quant *operand_quant(const struct shl *l, const struct mlir_op *op,
                                              int k) {
    return l->frame->f->values.v[op->operands[k]]->quant;
}
static const struct mlir_quant *result_quant(const struct shl *l, const struct mlir_op *op, int k) {
    return l->frame->f->values.v[op->result + (uint32_t)k]->quant;
}

// Scales (as the expressed type) or zero points (as t), one for all or one along the axis, over s.
static status_t spread(struct shl *l, const struct mlir_quant *q, bool scales, enum dtype t,
                       const struct shape *s, hv *out) {
    int64_t axis = q->axis, n = q->n;
    if (n < 1 || (axis < 0 && n != 1) || (axis >= 0 && (axis >= s->rank || s->dims[axis] != n)))
        return st_invalid("%lld scales do not fit %s along dimension %lld", (long long)n,
                          shape_text(l->a, s), (long long)axis);
    struct literal *lit = lit_new(l->a, shape_make(l->a, t, &n, axis >= 0));
    for (int64_t k = 0; k < n; k++) {
        if (scales)
            lit_set_f64(lit, k, q->scales[k]);
        else
            lit_set_i64(lit, k, q->zero_points[k]);
    }
    *out = hb_broadcast(&l->b, hb_constant(&l->b, lit), s->dims, s->rank, &axis);
    return ST_OK;
}
static bool has_zero_point(const struct mlir_quant *q) {
    for (int32_t k = 0; k < q->n; k++)
        if (q->zero_points[k]) return true;
    return false;
}
static status_t real_of(struct shl *l, const struct mlir_quant *q, hv x, hv *out) {
    enum dtype wide = dtype_bits(q->storage) < 32 ? DT_S32 : DT_S64;
    hv scale, zero;
    RETURN_IF_ERR(spread(l, q, true, q->expressed, x->shape, &scale));
    if (has_zero_point(q)) {
        RETURN_IF_ERR(spread(l, q, false, wide, x->shape, &zero));
        x = hb_sub(&l->b, hb_convert(&l->b, x, wide), zero);
    }
    *out = hb_mul(&l->b, hb_convert(&l->b, x, q->expressed), scale);
    return ST_OK;
}
static status_t stored_of(struct shl *l, const struct mlir_quant *q, hv x, hv *out) {
    hv scale, zero;
    x = hb_convert(&l->b, x, q->expressed);
    RETURN_IF_ERR(hb_end(&l->b));
    RETURN_IF_ERR(spread(l, q, true, q->expressed, x->shape, &scale));
    x = hb_div(&l->b, x, scale);
    if (has_zero_point(q)) {
        RETURN_IF_ERR(spread(l, q, false, q->expressed, x->shape, &zero));
        x = hb_add(&l->b, x, zero);
    }
    x = hb_clamp(&l->b, hb_const_f64(&l->b, q->expressed, (double)q->storage_min), x,
                 hb_const_f64(&l->b, q->expressed, (double)q->storage_max));
    *out = hb_convert(&l->b, hb_unary(&l->b, HLO_ROUND_EVEN, x), q->storage);
    return ST_OK;
}

status_t shl_run(struct shl *l, const struct shl_row *row, const struct mlir_op *op, hv const *in,
                 hv *out) {
    bool quantised = false;
    for (int32_t k = 0; k < op->n_operands; k++)
        quantised |= operand_quant(l, op, k) != NULL;
    for (int32_t k = 0; k < op->n_results; k++)
        quantised |= result_quant(l, op, k) != NULL;
    if (!quantised || works_on_stored(row)) return row->lower(l, op, in, out);

    hv *real = arena_array(l->a, hv, op->n_operands + 1);
    for (int32_t k = 0; k < op->n_operands; k++) {
        const struct mlir_quant *q = operand_quant(l, op, k);
        real[k] = in[k];
        if (q) RETURN_IF_ERR(real_of(l, q, in[k], &real[k]));
    }
    l->real = true;
    status_t st = row->lower(l, op, real, out);
    l->real = false;
    if (!st) st = hb_end(&l->b);
    for (int32_t k = 0; !st && k < op->n_results; k++) {
        const struct mlir_quant *q = result_quant(l, op, k);
        if (q) st = stored_of(l, q, out[k], &out[k]);
    }
    return st;
}
// From real or quantised values to quantised ones.
status_t shl_quantize(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 1 || op->n_results != 1 || !result_quant(l, op, 0))
        return st_invalid("it takes a value and gives a quantised one");
    hv x = in[0];
    if (operand_quant(l, op, 0)) RETURN_IF_ERR(real_of(l, operand_quant(l, op, 0), x, &x));
    return stored_of(l, result_quant(l, op, 0), x, out);
}
status_t shl_dequantize(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 1 || !operand_quant(l, op, 0))
        return st_invalid("it takes a quantised value");
    return real_of(l, operand_quant(l, op, 0), in[0], out);
}
