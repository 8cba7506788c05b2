// SPDX-License-Identifier: Apache-2.0
// Contractions, windows, indices, sorting, random numbers: operations with attributes of their own.
#include <string.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"

// ---- attributes that several have

// So many lists of integers, by the names given.
struct ints_of {
    const char *name;
    struct i64s *to;
};
static status_t all_ints(struct shl *l, const struct mlir_op *op, const struct ints_of *v,
                         size_t n) {
    for (size_t k = 0; k < n; k++)
        RETURN_IF_ERR(shl_ints(l, op, v[k].name, -1, 0, v[k].to));
    return ST_OK;
}
#define ALL_INTS(l, op, ...)                                                                       \
    all_ints(l, op, (const struct ints_of[]){__VA_ARGS__},                                         \
             sizeof((const struct ints_of[]){__VA_ARGS__}) / sizeof(struct ints_of))

// ---- contractions

static status_t set_precision(const struct mlir_op *op, hv x) {
    const struct mlir_attr *t = mlir_op_attr(op, "precision_config");
    struct strbuf b = {0};
    if (!t || t->kind != MLIR_A_ARRAY || x->op == HLO_CONSTANT) return ST_OK;
    strbuf_putc(&b, '{');
    for (int32_t k = 0; k < t->n; k++) {
        if (t->list[k]->kind != MLIR_A_ENUM) continue;
        if (b.n > 1) strbuf_putc(&b, ',');
        for (size_t i = 0; i < t->list[k]->s.n; i++)
            strbuf_putc(&b, (char)(t->list[k]->s.p[i] | 0x20));
    }
    strbuf_putc(&b, '}');
    hlo_set_extra(x, "operand_precision", strbuf_cstr(&b));
    strbuf_done(&b);
    return ST_OK;
}
static bool type_is(const struct mlir_op *op, const char *name, enum dtype t) {
    const struct mlir_attr *x = mlir_op_attr(op, name);
    return x && x->kind == MLIR_A_TYPE && x->type->dtype == t;
}
// The algorithm of a dot that passes know (lib_reads_bf16): one product of operands rounded to
// bf16, summed in f32. Others ask for as many digits as f32 has, or for fewer, which need not be
// dropped.
static status_t set_algorithm(const struct mlir_op *op, hv x) {
    bool bf16 =
        type_is(op, "lhs_precision_type", DT_BF16) && type_is(op, "rhs_precision_type", DT_BF16) &&
        type_is(op, "accumulation_type", DT_F32) && shl_int(op, "num_primitive_operations", 0) == 1;
    if (bf16 && x->op == HLO_DOT) hlo_set_extra(x, "algorithm", "dot_bf16_bf16_f32");
    return set_precision(op, x);
}
static bool shape_is_open(struct shl *l, const struct mlir_op *op) {
    return !shl_shape(l->a, shl_result_type(l, op, 0));
}
status_t shl_dot_general(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_dot a = {0};
    if (op->n_operands != 2) return st_invalid("it has %d operands, expected 2", op->n_operands);
    RETURN_IF_ERR(ALL_INTS(l, op, {"lhs_batching_dimensions", &a.lhs_batch_dims},
                           {"lhs_contracting_dimensions", &a.lhs_contracting_dims},
                           {"rhs_batching_dimensions", &a.rhs_batch_dims},
                           {"rhs_contracting_dimensions", &a.rhs_contracting_dims}));
    if (in[0]->shape->dtype != in[1]->shape->dtype && shape_is_open(l, op)) {
        hv like[2] = {in[0], hb_convert(&l->b, in[1], in[0]->shape->dtype)};
        const struct shape *s = hb_op(&l->b, HLO_DOT, NULL, like, 2, &a)->shape;
        s = shl_result_shape(l, op, 0, s->dims, s->rank);
        RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
        *out = hb_op(&l->b, HLO_DOT, s, in, 2, &a);
        return hb_ok(&l->b) ? set_algorithm(op, out[0]) : ST_OK;
    }
    RETURN_IF_ERR(shl_emit(l, op, HLO_DOT, in, 2, &a, NULL, 0, out));
    return hb_ok(&l->b) ? set_algorithm(op, out[0]) : ST_OK;
}
status_t shl_dot(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 2) return st_invalid("it has %d operands, expected 2", op->n_operands);
    int64_t last = in[0]->shape->rank - 1, first = 0;
    struct hlo_attr_dot a = {.lhs_contracting_dims = {&last, 1},
                             .rhs_contracting_dims = {&first, 1}};
    RETURN_IF_ERR(shl_emit(l, op, HLO_DOT, in, 2, &a, NULL, 0, out));
    return hb_ok(&l->b) ? set_precision(op, out[0]) : ST_OK;
}
static status_t label(const struct mlir_op *op, const char *name, int rank, int32_t *out) {
    int64_t d = shl_int(op, name, -1);
    if (d < 0 || d >= rank) return st_invalid("attribute '%s' is missing or out of range", name);
    *out = (int32_t)d;
    return ST_OK;
}
static status_t spatial(struct shl *l, const struct mlir_op *op, const char *name, int n,
                        int32_t *out) {
    struct i64s v;
    RETURN_IF_ERR(shl_ints(l, op, name, n, -1, &v));
    for (int k = 0; k < n; k++) {
        if (v.v[k] < 0 || v.v[k] >= n + 2)
            return st_invalid("attribute '%s' is out of range", name);
        out[k] = (int32_t)v.v[k];
    }
    return ST_OK;
}
static status_t labels_of(struct shl *l, const struct mlir_op *op, int rank, struct labels *x) {
    x->n_spatial = rank - 2;
    RETURN_IF_ERR(label(op, "input_batch_dimension", rank, &x->in_batch));
    RETURN_IF_ERR(label(op, "input_feature_dimension", rank, &x->in_feature));
    RETURN_IF_ERR(label(op, "kernel_input_feature_dimension", rank, &x->k_in));
    RETURN_IF_ERR(label(op, "kernel_output_feature_dimension", rank, &x->k_out));
    RETURN_IF_ERR(label(op, "output_batch_dimension", rank, &x->out_batch));
    RETURN_IF_ERR(label(op, "output_feature_dimension", rank, &x->out_feature));
    RETURN_IF_ERR(spatial(l, op, "input_spatial_dimensions", rank - 2, x->in_spatial));
    RETURN_IF_ERR(spatial(l, op, "kernel_spatial_dimensions", rank - 2, x->k_spatial));
    return spatial(l, op, "output_spatial_dimensions", rank - 2, x->out_spatial);
}
status_t shl_convolution(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_conv a = {.feature_group_count = shl_int(op, "feature_group_count", 1),
                              .batch_group_count = shl_int(op, "batch_group_count", 1)};
    if (op->n_operands != 2 && op->n_operands != 3)
        return st_invalid("it has %d operands", op->n_operands);
    int rank = in[0]->shape->rank, n = rank - 2;
    if (n < 0 || in[1]->shape->rank != rank)
        return st_invalid("operands must have one rank, from 2");
    struct i64s strides, pads, lhs, rhs, reversal;
    RETURN_IF_ERR(labels_of(l, op, rank, &a.dim_labels));
    RETURN_IF_ERR(shl_ints(l, op, "window_strides", n, 1, &strides));
    RETURN_IF_ERR(shl_ints(l, op, "lhs_dilation", n, 1, &lhs));
    RETURN_IF_ERR(shl_ints(l, op, "rhs_dilation", n, 1, &rhs));
    RETURN_IF_ERR(shl_ints(l, op, "window_reversal", n, 0, &reversal));
    if (op->n_operands == 3)
        RETURN_IF_ERR(shl_known_ints(l, op, 2, in[2], &pads));
    else
        RETURN_IF_ERR(shl_ints(l, op, "padding", 2 * n, 0, &pads));
    if (pads.n != 2 * n) return st_invalid("padding must have %d elements", 2 * n);

    a.window = (struct window){arena_zarray(l->a, struct window_dim, n + 1), n};
    for (int d = 0; d < n; d++)
        a.window.v[d] = (struct window_dim){in[1]->shape->dims[a.dim_labels.k_spatial[d]],
                                            strides.v[d],
                                            pads.v[2 * d],
                                            pads.v[2 * d + 1],
                                            lhs.v[d],
                                            rhs.v[d],
                                            reversal.v[d] != 0};
    RETURN_IF_ERR(shl_emit(l, op, HLO_CONVOLUTION, in, 2, &a, NULL, 0, out));
    return hb_ok(&l->b) ? set_precision(op, out[0]) : ST_OK;
}
status_t shl_cholesky(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_cholesky a = {.lower = shl_flag(op, "lower")};
    return shl_emit(l, op, HLO_CHOLESKY, in, op->n_operands, &a, NULL, 0, out);
}
status_t shl_triangular_solve(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct str t = shl_word(op, "transpose_a");
    struct hlo_attr_trisolve a = {.left_side = shl_flag(op, "left_side"),
                                  .lower = shl_flag(op, "lower"),
                                  .unit_diagonal = shl_flag(op, "unit_diagonal"),
                                  .transpose_a = str_is(t, "TRANSPOSE") ? TRI_TRANSPOSE
                                                 : str_is(t, "ADJOINT") ? TRI_ADJOINT
                                                                        : TRI_NO_TRANSPOSE};
    return shl_emit(l, op, HLO_TRIANGULAR_SOLVE, in, op->n_operands, &a, NULL, 0, out);
}
status_t shl_fft(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    static const char *const types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
    struct hlo_attr_fft a = {0};
    struct str t = shl_word(op, "fft_type");
    int k = 0;
    while (k < 4 && !str_is(t, types[k]))
        k++;
    if (k == 4) return st_invalid("attribute 'fft_type' is missing or unknown");
    a.fft_type = (enum fft_type)k;
    RETURN_IF_ERR(shl_ints(l, op, "fft_length", -1, 0, &a.fft_length));
    return shl_emit(l, op, HLO_FFT, in, op->n_operands, &a, NULL, 0, out);
}
status_t shl_batch_norm(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    const struct mlir_attr *e;
    RETURN_IF_ERR(shl_needs(op, "epsilon", &e));
    struct hlo_attr_batchnorm a = {.epsilon = (float)e->f,
                                   .feature_index = shl_int(op, "feature_index", -1)};
    return shl_emit(l, op, shl_row_of(op->name)->hlo, in, op->n_operands, &a, NULL, 0, out);
}

// ---- reductions and windows

// Operands as the region takes them: it may work in a wider type than they have.
static hv *promoted(struct shl *l, const struct mlir_op *op, hv const *in, int n) {
    hv *v = arena_array(l->a, hv, n + 1);
    const struct mlir_region *r = &op->regions[op->n_regions - 1];
    int half = r->n_args / 2;
    for (int k = 0; k < n; k++) {
        uint32_t arg = r->args + (uint32_t)(half ? k % half : 0);
        v[k] = r->n_args ? hb_convert(&l->b, in[k], l->frame->f->values.v[arg]->dtype) : in[k];
    }
    return v;
}
status_t shl_reduce(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_dims a = {0};
    struct hlo_computation *f;
    if (op->n_operands < 2 || op->n_operands % 2 || op->n_operands / 2 != op->n_results)
        return st_invalid("it needs as many initial values as operands and results");
    RETURN_IF_ERR(shl_ints(l, op, "dimensions", -1, 0, &a.dimensions));
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    hv *v = promoted(l, op, in, op->n_operands);
    return shl_emit(l, op, HLO_REDUCE, v, op->n_operands, &a, &f, 1, out);
}
static status_t window_of(struct shl *l, const struct mlir_op *op, int rank, struct window *out) {
    struct i64s size, stride, pads, base, dilation;
    RETURN_IF_ERR(shl_ints(l, op, "window_dimensions", rank, 1, &size));
    RETURN_IF_ERR(shl_ints(l, op, "window_strides", rank, 1, &stride));
    RETURN_IF_ERR(shl_ints(l, op, "padding", 2 * rank, 0, &pads));
    RETURN_IF_ERR(shl_ints(l, op, "base_dilations", rank, 1, &base));
    RETURN_IF_ERR(shl_ints(l, op, "window_dilations", rank, 1, &dilation));
    *out = (struct window){arena_zarray(l->a, struct window_dim, rank + 1), rank};
    for (int d = 0; d < rank; d++)
        out->v[d] = (struct window_dim){size.v[d], stride.v[d],   pads.v[2 * d], pads.v[2 * d + 1],
                                        base.v[d], dilation.v[d], false};
    return ST_OK;
}
status_t shl_reduce_window(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_window a = {0};
    struct hlo_computation *f;
    if (op->n_operands < 2 || op->n_operands % 2 || op->n_operands / 2 != op->n_results)
        return st_invalid("it needs as many initial values as operands and results");
    RETURN_IF_ERR(window_of(l, op, in[0]->shape->rank, &a.window));
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    hv *v = promoted(l, op, in, op->n_operands);
    return shl_emit(l, op, HLO_REDUCE_WINDOW, v, op->n_operands, &a, &f, 1, out);
}
status_t shl_select_scatter(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_window a = {0};
    struct hlo_computation *f[2];
    if (op->n_operands != 3) return st_invalid("it has %d operands, expected 3", op->n_operands);
    RETURN_IF_ERR(window_of(l, op, in[0]->shape->rank, &a.window));
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f[0]));
    RETURN_IF_ERR(shl_scalar_region(l, op, 1, &f[1]));
    hv *v = promoted(l, op, in, 3);
    return shl_emit(l, op, HLO_SELECT_AND_SCATTER, v, 3, &a, f, 2, out);
}

// ---- indices

status_t shl_gather(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_gather a = {.index_vector_dim = shl_int(op, "index_vector_dim", 0),
                                .indices_are_sorted = shl_flag(op, "indices_are_sorted")};
    if (op->n_operands != 2 && op->n_operands != 3)
        return st_invalid("it has %d operands", op->n_operands);
    RETURN_IF_ERR(ALL_INTS(l, op, {"offset_dims", &a.offset_dims},
                           {"collapsed_slice_dims", &a.collapsed_slice_dims},
                           {"start_index_map", &a.start_index_map},
                           {"operand_batching_dims", &a.operand_batching_dims},
                           {"start_indices_batching_dims", &a.start_indices_batching_dims}));
    if (op->n_operands == 3)
        RETURN_IF_ERR(shl_known_ints(l, op, 2, in[2], &a.slice_sizes));
    else
        RETURN_IF_ERR(shl_ints(l, op, "slice_sizes", in[0]->shape->rank, 1, &a.slice_sizes));
    return shl_emit(l, op, HLO_GATHER, in, 2, &a, NULL, 0, out);
}
status_t shl_scatter(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_scatter a = {.index_vector_dim = shl_int(op, "index_vector_dim", 0),
                                 .indices_are_sorted = shl_flag(op, "indices_are_sorted"),
                                 .unique_indices = shl_flag(op, "unique_indices")};
    struct hlo_computation *f;
    int n = op->n_results;
    if (op->n_operands != 2 * n + 1) return st_invalid("it has %d operands", op->n_operands);
    RETURN_IF_ERR(ALL_INTS(l, op, {"update_window_dims", &a.update_window_dims},
                           {"inserted_window_dims", &a.inserted_window_dims},
                           {"scatter_dims_to_operand_dims", &a.scatter_dims_to_operand_dims},
                           {"input_batching_dims", &a.input_batching_dims},
                           {"scatter_indices_batching_dims", &a.scatter_indices_batching_dims}));
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    hv *v = arena_array(l->a, hv, op->n_operands + 1), *wide;
    for (int k = 0; k < op->n_operands; k++)
        v[k] = in[k];
    wide = promoted(l, op, v, n);
    memcpy(v, wide, sizeof *v * (size_t)n);
    wide = promoted(l, op, v + n + 1, n);
    memcpy(v + n + 1, wide, sizeof *v * (size_t)n);
    return shl_emit(l, op, HLO_SCATTER, v, op->n_operands, &a, &f, 1, out);
}
status_t shl_sort(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    int64_t dim = shl_int(op, "dimension", -1);
    struct hlo_computation *f;
    if (op->n_operands < 1) return st_invalid("it needs an operand");
    if (dim < 0) dim += in[0]->shape->rank;
    struct hlo_attr_sort a = {.dimensions = {&dim, 1}, .is_stable = shl_flag(op, "is_stable")};
    RETURN_IF_ERR(shl_scalar_region(l, op, 0, &f));
    return shl_emit(l, op, HLO_SORT, in, op->n_operands, &a, &f, 1, out);
}
// Rows of in[0] along `dim`, chosen by in[1]; both share their first batch_dims dimensions.
status_t shl_index_select(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    int64_t dim = shl_int(op, "dim", 0), batch = shl_int(op, "batch_dims", 0);
    if (op->n_operands != 2) return st_invalid("it has %d operands, expected 2", op->n_operands);
    const struct shape *s = in[0]->shape, *i = in[1]->shape;
    if (dim < 0 || dim >= s->rank || batch < 0 || batch > dim || batch > i->rank)
        return st_invalid("dim %lld or batch_dims %lld is out of range", (long long)dim,
                          (long long)batch);
    int64_t offset[HLO_MAX_RANK], sizes[HLO_MAX_RANK], batches[HLO_MAX_RANK];
    int n_offset = 0;
    for (int d = 0; d < s->rank; d++) {
        bool kept = d >= batch && d != dim;
        sizes[d] = kept ? s->dims[d] : 1;
        if (kept) offset[n_offset++] = d < dim ? d : d - 1 + i->rank - batch;
        if (d < batch) batches[d] = d;
    }
    struct hlo_attr_gather a = {.offset_dims = {offset, n_offset},
                                .collapsed_slice_dims = {&dim, 1},
                                .start_index_map = {&dim, 1},
                                .operand_batching_dims = {batches, (int32_t)batch},
                                .start_indices_batching_dims = {batches, (int32_t)batch},
                                .index_vector_dim = i->rank,
                                .slice_sizes = {sizes, s->rank}};
    return shl_emit(l, op, HLO_GATHER, in, 2, &a, NULL, 0, out);
}

// ---- random

status_t shl_rng(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct str d = shl_word(op, "rng_distribution");
    struct hlo_attr_rng a = {.distribution = str_is(d, "UNIFORM")  ? RNG_UNIFORM
                                             : str_is(d, "NORMAL") ? RNG_NORMAL
                                                                   : RNG_INVALID};
    struct i64s dims;
    if (op->n_operands != 3) return st_invalid("it has %d operands, expected 3", op->n_operands);
    RETURN_IF_ERR(shl_known_ints(l, op, 2, in[2], &dims));
    const struct shape *s = shl_result_shape(l, op, 0, dims.v, dims.n);
    RETURN_IF_ERR(shape_check(s, l->hlo->max_bytes));
    *out = hb_op(&l->b, HLO_RNG, s, in, 2, &a);
    return ST_OK;
}
enum rng_algorithm shl_rng_algorithm(const struct mlir_op *op) {
    struct str t = shl_word(op, "rng_algorithm");
    return str_is(t, "THREE_FRY") ? RNG_THREE_FRY : str_is(t, "PHILOX") ? RNG_PHILOX : RNG_DEFAULT;
}
status_t shl_rng_bits(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct hlo_attr_rngbits a = {.algorithm = shl_rng_algorithm(op)};
    return shl_emit(l, op, HLO_RNG_BIT_GENERATOR, in, op->n_operands, &a, NULL, 0, out);
}
