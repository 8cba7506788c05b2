// SPDX-License-Identifier: Apache-2.0
// The attribute records of attrs.def in HloInstructionProto: one function a record each way where
// it takes more than a field. What comes from outside is checked as the text parser checks it.
#include "compiler/frontend/hlo_pb.h"

#define PUT_I64S(p, field, s) ((p)->n_##field = (size_t)(s).n, (p)->field = (s).v)
#define GET_I64S(a, p, field) i64s_of((a), (p)->field, (int)(p)->n_##field)
#define TEXT(a, s)            arena_strndup((a), (s).p ? (s).p : "", (s).n)
#define BYTES(s)              ((ProtobufCBinaryData){(s).n, (uint8_t *)(uintptr_t)(s).p})

// ---- windows, labels, padding, slices

Xla__Window *pb_put_window(struct arena *a, const struct window *w) {
    Xla__Window *p = PB_NEW(a, Xla__Window, xla__window__init);
    for (int k = 0; k < w->n; k++) {
        const struct window_dim *d = &w->v[k];
        Xla__WindowDimension *q = PB_NEW(a, Xla__WindowDimension, xla__window_dimension__init);
        q->size = d->size;
        q->stride = d->stride;
        q->padding_low = d->pad_low;
        q->padding_high = d->pad_high;
        q->window_dilation = d->window_dilation;
        q->base_dilation = d->base_dilation;
        q->window_reversal = d->reversal;
        PB_PUSH(a, p, dimensions, q);
    }
    return p;
}
status_t pb_get_window(struct arena *a, const Xla__Window *p, struct window *out) {
    int n = p ? (int)p->n_dimensions : 0;
    if (n > HLO_MAX_RANK) return st_new(ST_INVALID_ARGUMENT, "a window of %d dimensions", n);
    *out = (struct window){n ? arena_zarray(a, struct window_dim, n) : NULL, n};
    for (int k = 0; k < n; k++) {
        const Xla__WindowDimension *q = p->dimensions[k];
        if (q->size < 0 || q->stride < 1 || q->window_dilation < 1 || q->base_dilation < 1)
            return st_new(ST_INVALID_ARGUMENT, "dimension %d of the window is not positive", k);
        out->v[k] = (struct window_dim){.size = q->size,
                                        .stride = q->stride,
                                        .pad_low = q->padding_low,
                                        .pad_high = q->padding_high,
                                        .base_dilation = q->base_dilation,
                                        .window_dilation = q->window_dilation,
                                        .reversal = q->window_reversal != 0};
    }
    return ST_OK;
}

Xla__ConvolutionDimensionNumbers *pb_put_labels(struct arena *a, const struct labels *l) {
    Xla__ConvolutionDimensionNumbers *p =
        PB_NEW(a, Xla__ConvolutionDimensionNumbers, xla__convolution_dimension_numbers__init);
    p->input_batch_dimension = l->in_batch;
    p->input_feature_dimension = l->in_feature;
    p->kernel_input_feature_dimension = l->k_in;
    p->kernel_output_feature_dimension = l->k_out;
    p->output_batch_dimension = l->out_batch;
    p->output_feature_dimension = l->out_feature;
    for (int k = 0; k < l->n_spatial; k++) {
        PB_PUSH(a, p, input_spatial_dimensions, l->in_spatial[k]);
        PB_PUSH(a, p, kernel_spatial_dimensions, l->k_spatial[k]);
        PB_PUSH(a, p, output_spatial_dimensions, l->out_spatial[k]);
    }
    return p;
}
// The two roles and the spatial dimensions are the numbers 0 to n+1, each once.
static bool get_group(int64_t first, int64_t second, const int64_t *spatial, size_t n,
                      int32_t *out_first, int32_t *out_second, int32_t *out_spatial) {
    bool seen[HLO_MAX_RANK] = {false};
    for (size_t k = 0; k < n + 2; k++) {
        int64_t v = k == 0 ? first : k == 1 ? second : spatial[k - 2];
        if (v < 0 || v >= (int64_t)n + 2 || seen[v]) return false;
        seen[v] = true;
        *(k == 0 ? out_first : k == 1 ? out_second : &out_spatial[k - 2]) = (int32_t)v;
    }
    return true;
}
status_t pb_get_labels(const Xla__ConvolutionDimensionNumbers *p, struct labels *l) {
    size_t n = p ? p->n_input_spatial_dimensions : 0;
    bool ok =
        p && n <= 9 && p->n_kernel_spatial_dimensions == n && p->n_output_spatial_dimensions == n &&
        get_group(p->input_batch_dimension, p->input_feature_dimension, p->input_spatial_dimensions,
                  n, &l->in_batch, &l->in_feature, l->in_spatial) &&
        get_group(p->kernel_input_feature_dimension, p->kernel_output_feature_dimension,
                  p->kernel_spatial_dimensions, n, &l->k_in, &l->k_out, l->k_spatial) &&
        get_group(p->output_batch_dimension, p->output_feature_dimension,
                  p->output_spatial_dimensions, n, &l->out_batch, &l->out_feature, l->out_spatial);
    l->n_spatial = (int32_t)n;
    return ok ? ST_OK
              : st_new(ST_INVALID_ARGUMENT, "convolution_dimension_numbers are not permutations");
}

static Xla__PaddingConfig *put_padding(struct arena *a, const struct padding *v) {
    Xla__PaddingConfig *p = PB_NEW(a, Xla__PaddingConfig, xla__padding_config__init);
    for (int k = 0; k < v->n; k++) {
        Xla__PaddingConfig__Dimension *d =
            PB_NEW(a, Xla__PaddingConfig__Dimension, xla__padding_config__dimension__init);
        d->edge_padding_low = v->v[k].low;
        d->edge_padding_high = v->v[k].high;
        d->interior_padding = v->v[k].interior;
        PB_PUSH(a, p, dimensions, d);
    }
    return p;
}
static status_t get_padding(struct arena *a, const Xla__PaddingConfig *p, struct padding *out) {
    int n = p ? (int)p->n_dimensions : 0;
    if (n > HLO_MAX_RANK) return st_new(ST_INVALID_ARGUMENT, "padding of %d dimensions", n);
    *out = (struct padding){arena_zarray(a, struct pad_dim, n + 1), n};
    for (int k = 0; k < n; k++)
        out->v[k] = (struct pad_dim){p->dimensions[k]->edge_padding_low,
                                     p->dimensions[k]->edge_padding_high,
                                     p->dimensions[k]->interior_padding};
    return ST_OK;
}
static void put_slices(struct arena *a, const struct ranges *v, Xla__HloInstructionProto *p) {
    for (int k = 0; k < v->n; k++) {
        Xla__HloInstructionProto__SliceDimensions *d =
            PB_NEW(a, Xla__HloInstructionProto__SliceDimensions,
                   xla__hlo_instruction_proto__slice_dimensions__init);
        d->start = v->v[k].start;
        d->limit = v->v[k].limit;
        d->stride = v->v[k].stride;
        PB_PUSH(a, p, slice_dimensions, d);
    }
}
static status_t get_slices(struct arena *a, const Xla__HloInstructionProto *p, struct ranges *out) {
    int n = (int)p->n_slice_dimensions;
    if (p->n_slice_dimensions > HLO_MAX_RANK)
        return st_new(ST_INVALID_ARGUMENT, "slices of %zu dimensions", p->n_slice_dimensions);
    *out = (struct ranges){arena_zarray(a, struct range, n + 1), n};
    for (int k = 0; k < n; k++)
        out->v[k] = (struct range){p->slice_dimensions[k]->start, p->slice_dimensions[k]->limit,
                                   p->slice_dimensions[k]->stride};
    return ST_OK;
}

// ---- dot, gather, scatter

static Xla__DotDimensionNumbers *put_dot(struct arena *a, struct i64s lb, struct i64s lc,
                                         struct i64s rb, struct i64s rc) {
    Xla__DotDimensionNumbers *p =
        PB_NEW(a, Xla__DotDimensionNumbers, xla__dot_dimension_numbers__init);
    PUT_I64S(p, lhs_batch_dimensions, lb);
    PUT_I64S(p, lhs_contracting_dimensions, lc);
    PUT_I64S(p, rhs_batch_dimensions, rb);
    PUT_I64S(p, rhs_contracting_dimensions, rc);
    return p;
}
#define GET_DOT(a, p, t)                                                                           \
    do {                                                                                           \
        (t)->lhs_batch_dims = GET_I64S(a, p, lhs_batch_dimensions);                                \
        (t)->lhs_contracting_dims = GET_I64S(a, p, lhs_contracting_dimensions);                    \
        (t)->rhs_batch_dims = GET_I64S(a, p, rhs_batch_dimensions);                                \
        (t)->rhs_contracting_dims = GET_I64S(a, p, rhs_contracting_dimensions);                    \
    } while (0)

static void put_gather(struct arena *a, const struct hlo_attr_gather *t,
                       Xla__HloInstructionProto *p) {
    Xla__GatherDimensionNumbers *g =
        PB_NEW(a, Xla__GatherDimensionNumbers, xla__gather_dimension_numbers__init);
    PUT_I64S(g, offset_dims, t->offset_dims);
    PUT_I64S(g, collapsed_slice_dims, t->collapsed_slice_dims);
    PUT_I64S(g, start_index_map, t->start_index_map);
    PUT_I64S(g, operand_batching_dims, t->operand_batching_dims);
    PUT_I64S(g, start_indices_batching_dims, t->start_indices_batching_dims);
    g->index_vector_dim = t->index_vector_dim;
    p->gather_dimension_numbers = g;
    PUT_I64S(p, gather_slice_sizes, t->slice_sizes);
    p->indices_are_sorted = t->indices_are_sorted;
}
static void get_gather(struct arena *a, const Xla__HloInstructionProto *p,
                       struct hlo_attr_gather *t) {
    const Xla__GatherDimensionNumbers *g = p->gather_dimension_numbers;
    t->slice_sizes = GET_I64S(a, p, gather_slice_sizes);
    t->indices_are_sorted = p->indices_are_sorted != 0;
    if (!g) return;
    t->offset_dims = GET_I64S(a, g, offset_dims);
    t->collapsed_slice_dims = GET_I64S(a, g, collapsed_slice_dims);
    t->start_index_map = GET_I64S(a, g, start_index_map);
    t->operand_batching_dims = GET_I64S(a, g, operand_batching_dims);
    t->start_indices_batching_dims = GET_I64S(a, g, start_indices_batching_dims);
    t->index_vector_dim = g->index_vector_dim;
}
static void put_scatter(struct arena *a, const struct hlo_attr_scatter *t,
                        Xla__HloInstructionProto *p) {
    Xla__ScatterDimensionNumbers *g =
        PB_NEW(a, Xla__ScatterDimensionNumbers, xla__scatter_dimension_numbers__init);
    PUT_I64S(g, update_window_dims, t->update_window_dims);
    PUT_I64S(g, inserted_window_dims, t->inserted_window_dims);
    PUT_I64S(g, scatter_dims_to_operand_dims, t->scatter_dims_to_operand_dims);
    PUT_I64S(g, input_batching_dims, t->input_batching_dims);
    PUT_I64S(g, scatter_indices_batching_dims, t->scatter_indices_batching_dims);
    g->index_vector_dim = t->index_vector_dim;
    p->scatter_dimension_numbers = g;
    p->indices_are_sorted = t->indices_are_sorted;
    p->unique_indices = t->unique_indices;
}
static void get_scatter(struct arena *a, const Xla__HloInstructionProto *p,
                        struct hlo_attr_scatter *t) {
    const Xla__ScatterDimensionNumbers *g = p->scatter_dimension_numbers;
    t->indices_are_sorted = p->indices_are_sorted != 0;
    t->unique_indices = p->unique_indices != 0;
    if (!g) return;
    t->update_window_dims = GET_I64S(a, g, update_window_dims);
    t->inserted_window_dims = GET_I64S(a, g, inserted_window_dims);
    t->scatter_dims_to_operand_dims = GET_I64S(a, g, scatter_dims_to_operand_dims);
    t->input_batching_dims = GET_I64S(a, g, input_batching_dims);
    t->scatter_indices_batching_dims = GET_I64S(a, g, scatter_indices_batching_dims);
    t->index_vector_dim = g->index_vector_dim;
}

// ---- records

// The record of i as a variable t of its type.
#define REC(i, record) const struct hlo_attr_##record *t = HLO_ATTR(i, record)

static void put_more(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p);
void pb_put_attrs(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p) {
    switch (hlo_op_info(i->op)->attrs) {
    case ATTR_dims: {
        REC(i, dims);
        PUT_I64S(p, dimensions, t->dimensions);
        break;
    }
    case ATTR_iota:
        PB_PUSH(a, p, dimensions, HLO_ATTR(i, iota)->iota_dimension);
        break;
    case ATTR_slice:
        put_slices(a, &HLO_ATTR(i, slice)->slice, p);
        break;
    case ATTR_dynslice: {
        REC(i, dynslice);
        PUT_I64S(p, dynamic_slice_sizes, t->dynamic_slice_sizes);
        break;
    }
    case ATTR_pad:
        p->padding_config = put_padding(a, &HLO_ATTR(i, pad)->padding);
        break;
    case ATTR_window:
        p->window = pb_put_window(a, &HLO_ATTR(i, window)->window);
        break;
    case ATTR_conv: {
        REC(i, conv);
        p->window = pb_put_window(a, &t->window);
        p->convolution_dimension_numbers = pb_put_labels(a, &t->dim_labels);
        p->feature_group_count = t->feature_group_count;
        p->batch_group_count = t->batch_group_count;
        break;
    }
    case ATTR_dot: {
        REC(i, dot);
        p->dot_dimension_numbers = put_dot(a, t->lhs_batch_dims, t->lhs_contracting_dims,
                                           t->rhs_batch_dims, t->rhs_contracting_dims);
        break;
    }
    case ATTR_ragged_dot: {
        REC(i, ragged_dot);
        Xla__RaggedDotDimensionNumbers *r =
            PB_NEW(a, Xla__RaggedDotDimensionNumbers, xla__ragged_dot_dimension_numbers__init);
        r->dot_dimension_numbers = put_dot(a, t->lhs_batch_dims, t->lhs_contracting_dims,
                                           t->rhs_batch_dims, t->rhs_contracting_dims);
        PUT_I64S(r, lhs_ragged_dimensions, t->lhs_ragged_dims);
        PUT_I64S(r, rhs_group_dimensions, t->rhs_group_dims);
        p->ragged_dot_dimension_numbers = r;
        break;
    }
    case ATTR_gather:
        put_gather(a, i->attr, p);
        break;
    case ATTR_scatter:
        put_scatter(a, i->attr, p);
        break;
    default:
        put_more(a, i, p);
    }
}

static void put_more(struct arena *a, const struct hlo_instr *i, Xla__HloInstructionProto *p) {
    switch (hlo_op_info(i->op)->attrs) {
    case ATTR_compare: {
        REC(i, compare);
        p->comparison_direction = (char *)(uintptr_t)hlo_enum_cmp_direction[t->direction];
        if (t->type) p->comparison_type = (char *)(uintptr_t)hlo_enum_cmp_type[t->type];
        break;
    }
    case ATTR_scan: {
        REC(i, scan);
        PUT_I64S(p, dimensions, t->dimensions);
        p->num_carries = t->num_carries;
        p->is_reverse = t->is_reverse;
        p->is_associative = t->is_associative ? 1 : 2;
        break;
    }
    case ATTR_sort: {
        REC(i, sort);
        PUT_I64S(p, dimensions, t->dimensions);
        p->is_stable = t->is_stable;
        break;
    }
    case ATTR_fusion:
        p->fusion_kind = (char *)(uintptr_t)hlo_enum_fusion_kind[HLO_ATTR(i, fusion)->kind];
        break;
    case ATTR_gte:
        p->tuple_index = HLO_ATTR(i, gte)->index;
        break;
    case ATTR_custom: {
        REC(i, custom);
        p->custom_call_target = TEXT(a, t->custom_call_target);
        p->custom_call_has_side_effect = t->custom_call_has_side_effect;
        // XLA's text says nothing of the original version, its messages do.
        p->custom_call_api_version = t->api_version ? (int32_t)t->api_version : CUSTOM_ORIGINAL;
        break;
    }
    case ATTR_rng:
        p->distribution = (int32_t)HLO_ATTR(i, rng)->distribution;
        break;
    case ATTR_rngbits:
        p->rng_algorithm = (int32_t)HLO_ATTR(i, rngbits)->algorithm;
        break;
    case ATTR_fft: {
        REC(i, fft);
        p->fft_type = (int32_t)t->fft_type;
        PUT_I64S(p, fft_length, t->fft_length);
        break;
    }
    case ATTR_trisolve: {
        REC(i, trisolve);
        Xla__TriangularSolveOptions *o =
            PB_NEW(a, Xla__TriangularSolveOptions, xla__triangular_solve_options__init);
        o->left_side = t->left_side;
        o->lower = t->lower;
        o->unit_diagonal = t->unit_diagonal;
        o->transpose_a = (int32_t)t->transpose_a + 1;
        p->triangular_solve_options = o;
        break;
    }
    case ATTR_cholesky:
        p->cholesky_options = PB_NEW(a, Xla__CholeskyOptions, xla__cholesky_options__init);
        p->cholesky_options->lower = HLO_ATTR(i, cholesky)->lower;
        break;
    case ATTR_batchnorm:
        p->epsilon = HLO_ATTR(i, batchnorm)->epsilon;
        p->feature_index = HLO_ATTR(i, batchnorm)->feature_index;
        break;
    case ATTR_redprec:
        p->exponent_bits = (int32_t)HLO_ATTR(i, redprec)->exponent_bits;
        p->mantissa_bits = (int32_t)HLO_ATTR(i, redprec)->mantissa_bits;
        break;
    case ATTR_topk:
        p->k = HLO_ATTR(i, topk)->k;
        p->largest = HLO_ATTR(i, topk)->largest;
        break;
    case ATTR_rngstate:
        p->delta = HLO_ATTR(i, rngstate)->delta;
        break;
    case ATTR_channel:
        p->channel_id = HLO_ATTR(i, channel)->channel_id;
        p->is_host_transfer = HLO_ATTR(i, channel)->is_host_transfer;
        break;
    case ATTR_infeed:
        p->infeed_config = BYTES(HLO_ATTR(i, infeed)->infeed_config);
        break;
    case ATTR_outfeed:
        p->outfeed_config = BYTES(HLO_ATTR(i, outfeed)->outfeed_config);
        break;
    case ATTR_collective: {
        REC(i, collective);
        p->channel_id = t->channel_id;
        PUT_I64S(p, dimensions, t->dimensions);
        p->constrain_layout = t->constrain_layout;
        p->use_global_device_ids = t->use_global_device_ids;
        break;
    }
    default:
        break;
    }
}

// An enumerated value by number or by name.
static status_t get_enum(int64_t v, int64_t n, const char *what, int *out) {
    *out = (int)v;
    return v >= 0 && v < n
               ? ST_OK
               : st_new(ST_INVALID_ARGUMENT, "%s has the unknown value %lld", what, (long long)v);
}
static status_t get_name(const char *v, const char *const *names, const char *what, int *out) {
    for (int k = 0; names[k]; k++)
        if (strcmp(v, names[k]) == 0) {
            *out = k;
            return ST_OK;
        }
    return st_new(ST_INVALID_ARGUMENT, "%s has the unknown value '%.40s'", what, v);
}
static struct str get_str(struct arena *a, const char *s) {
    return (struct str){arena_strdup(a, s), strlen(s)};
}
static struct str get_bytes(struct arena *a, ProtobufCBinaryData d) {
    return (struct str){arena_strndup(a, d.len ? (const char *)d.data : "", d.len), d.len};
}

// The record of `out` as a variable t of its type.
#define NEW(record) struct hlo_attr_##record *t = *out

static status_t get_more(struct arena *a, enum hlo_op op, const Xla__HloInstructionProto *p,
                         void **out) MUST_CHECK;
status_t pb_get_attrs(struct arena *a, enum hlo_op op, const Xla__HloInstructionProto *p,
                      void **out) {
    *out = attr_clone(a, hlo_op_info(op)->attrs, NULL);
    switch (hlo_op_info(op)->attrs) {
    case ATTR_dims: {
        NEW(dims);
        t->dimensions = GET_I64S(a, p, dimensions);
        return ST_OK;
    }
    case ATTR_iota: {
        NEW(iota);
        if (p->n_dimensions) t->iota_dimension = p->dimensions[0];
        return ST_OK;
    }
    case ATTR_slice: {
        NEW(slice);
        return get_slices(a, p, &t->slice);
    }
    case ATTR_dynslice: {
        NEW(dynslice);
        t->dynamic_slice_sizes = GET_I64S(a, p, dynamic_slice_sizes);
        return ST_OK;
    }
    case ATTR_pad: {
        NEW(pad);
        return get_padding(a, p->padding_config, &t->padding);
    }
    case ATTR_window: {
        NEW(window);
        return pb_get_window(a, p->window, &t->window);
    }
    case ATTR_conv: {
        NEW(conv);
        t->feature_group_count = p->feature_group_count ? p->feature_group_count : 1;
        t->batch_group_count = p->batch_group_count ? p->batch_group_count : 1;
        RETURN_IF_ERR(pb_get_window(a, p->window, &t->window));
        return pb_get_labels(p->convolution_dimension_numbers, &t->dim_labels);
    }
    case ATTR_dot: {
        NEW(dot);
        const Xla__DotDimensionNumbers *d = p->dot_dimension_numbers;
        if (d) GET_DOT(a, d, t);
        return ST_OK;
    }
    case ATTR_ragged_dot: {
        NEW(ragged_dot);
        const Xla__RaggedDotDimensionNumbers *r = p->ragged_dot_dimension_numbers;
        if (!r) return ST_OK;
        if (r->dot_dimension_numbers) GET_DOT(a, r->dot_dimension_numbers, t);
        t->lhs_ragged_dims = GET_I64S(a, r, lhs_ragged_dimensions);
        t->rhs_group_dims = GET_I64S(a, r, rhs_group_dimensions);
        return ST_OK;
    }
    case ATTR_gather:
        get_gather(a, p, *out);
        return ST_OK;
    case ATTR_scatter:
        get_scatter(a, p, *out);
        return ST_OK;
    default:
        return get_more(a, op, p, out);
    }
}

static status_t get_compare(const Xla__HloInstructionProto *p, struct hlo_attr_compare *t) {
    int v = 0;
    RETURN_IF_ERR(get_name(p->comparison_direction, hlo_enum_cmp_direction, "direction", &v));
    t->direction = (enum cmp_direction)v;
    if (!p->comparison_type[0]) return ST_OK;
    RETURN_IF_ERR(get_name(p->comparison_type, hlo_enum_cmp_type, "comparison type", &v));
    t->type = (enum cmp_type)v;
    return ST_OK;
}
static status_t get_trisolve(const Xla__TriangularSolveOptions *o, struct hlo_attr_trisolve *t) {
    int v = 0;
    if (!o) return ST_OK;
    RETURN_IF_ERR(get_enum(o->transpose_a ? o->transpose_a - 1 : 0, 3, "transpose_a", &v));
    t->left_side = o->left_side != 0;
    t->lower = o->lower != 0;
    t->unit_diagonal = o->unit_diagonal != 0;
    t->transpose_a = (enum transpose_a)v;
    return ST_OK;
}
static status_t get_custom(struct arena *a, const Xla__HloInstructionProto *p,
                           struct hlo_attr_custom *t) {
    int v = 0;
    t->custom_call_target = get_str(a, p->custom_call_target);
    t->custom_call_has_side_effect = p->custom_call_has_side_effect != 0;
    RETURN_IF_ERR(get_enum(p->custom_call_api_version, 5, "custom_call_api_version", &v));
    t->api_version = v == CUSTOM_ORIGINAL ? CUSTOM_UNSPECIFIED : (enum custom_api)v;
    return ST_OK;
}
static status_t get_more(struct arena *a, enum hlo_op op, const Xla__HloInstructionProto *p,
                         void **out) {
    int v = 0;
    switch (hlo_op_info(op)->attrs) {
    case ATTR_compare:
        return get_compare(p, *out);
    case ATTR_scan: {
        NEW(scan);
        t->dimensions = GET_I64S(a, p, dimensions);
        t->num_carries = p->num_carries;
        t->is_reverse = p->is_reverse != 0;
        t->is_associative = p->is_associative == 1;
        break;
    }
    case ATTR_sort: {
        NEW(sort);
        t->dimensions = GET_I64S(a, p, dimensions);
        t->is_stable = p->is_stable != 0;
        break;
    }
    case ATTR_fusion: {
        NEW(fusion);
        RETURN_IF_ERR(get_name(p->fusion_kind, hlo_enum_fusion_kind, "fusion_kind", &v));
        t->kind = (enum fusion_kind)v;
        break;
    }
    case ATTR_gte: {
        NEW(gte);
        t->index = p->tuple_index;
        break;
    }
    case ATTR_custom:
        return get_custom(a, p, *out);
    case ATTR_rng: {
        NEW(rng);
        RETURN_IF_ERR(get_enum(p->distribution, 3, "distribution", &v));
        t->distribution = (enum rng_distribution)v;
        break;
    }
    case ATTR_rngbits: {
        NEW(rngbits);
        RETURN_IF_ERR(get_enum(p->rng_algorithm, 3, "rng_algorithm", &v));
        t->algorithm = (enum rng_algorithm)v;
        break;
    }
    case ATTR_fft: {
        NEW(fft);
        RETURN_IF_ERR(get_enum(p->fft_type, 4, "fft_type", &v));
        t->fft_type = (enum fft_type)v;
        t->fft_length = GET_I64S(a, p, fft_length);
        break;
    }
    case ATTR_trisolve:
        return get_trisolve(p->triangular_solve_options, *out);
    case ATTR_cholesky: {
        NEW(cholesky);
        t->lower = p->cholesky_options && p->cholesky_options->lower;
        break;
    }
    case ATTR_batchnorm: {
        NEW(batchnorm);
        t->epsilon = p->epsilon;
        t->feature_index = p->feature_index;
        break;
    }
    case ATTR_redprec: {
        NEW(redprec);
        t->exponent_bits = p->exponent_bits;
        t->mantissa_bits = p->mantissa_bits;
        break;
    }
    case ATTR_topk: {
        NEW(topk);
        t->k = p->k;
        t->largest = p->largest != 0;
        break;
    }
    case ATTR_rngstate: {
        NEW(rngstate);
        t->delta = p->delta;
        break;
    }
    case ATTR_channel: {
        NEW(channel);
        t->channel_id = p->channel_id;
        t->is_host_transfer = p->is_host_transfer != 0;
        break;
    }
    case ATTR_infeed: {
        NEW(infeed);
        t->infeed_config = get_bytes(a, p->infeed_config);
        break;
    }
    case ATTR_outfeed: {
        NEW(outfeed);
        t->outfeed_config = get_bytes(a, p->outfeed_config);
        break;
    }
    case ATTR_collective: {
        NEW(collective);
        t->channel_id = p->channel_id;
        t->dimensions = GET_I64S(a, p, dimensions);
        t->constrain_layout = p->constrain_layout != 0;
        t->use_global_device_ids = p->use_global_device_ids != 0;
        break;
    }
    default:
        break;
    }
    return ST_OK;
}
