// SPDX-License-Identifier: Apache-2.0
// What operations say beyond their operands, by the rows of stablehlo_out.def.
#include <string.h>

#include "compiler/frontend/stablehlo/stablehlo_out_inside.h"
#include "compiler/ir/op.h"

// ---- attributes

static struct strbuf *field(struct out_op *op, const char *name) {
    strbuf_printf(&op->attrs, "%s%s = ", op->attrs.n ? ", " : "", name);
    return &op->attrs;
}
static void put_int(struct out_op *op, const char *name, int64_t v) {
    strbuf_printf(field(op, name), "%lld : i64", (long long)v);
}
static void put_flag(struct out_op *op, const char *name, bool v) {
    strbuf_puts(field(op, name), v ? "true" : "false");
}
static void list(struct strbuf *b, const int64_t *v, int n) {
    for (int k = 0; k < n; k++)
        strbuf_printf(b, "%s%lld", k ? ", " : "", (long long)v[k]);
}
static void put_array(struct out_op *op, const char *name, const int64_t *v, int n) {
    struct strbuf *b = field(op, name);
    strbuf_puts(b, n ? "array<i64: " : "array<i64");
    list(b, v, n);
    strbuf_putc(b, '>');
}
static void put_ints(struct out_op *op, const char *name, struct i64s v) {
    put_array(op, name, v.v, v.n);
}
// A field of a structure, left out where it is empty.
static void put_list(struct strbuf *b, const char *name, struct i64s v) {
    if (!v.n) return;
    if (b->p[b->n - 1] != '<') strbuf_puts(b, ", ");
    strbuf_printf(b, "%s = [", name);
    list(b, v.v, v.n);
    strbuf_putc(b, ']');
}
static void put_pairs(struct out_op *op, const char *name, const int64_t (*v)[2], int n) {
    struct strbuf *b = field(op, name);
    strbuf_puts(b, n ? "dense<[" : "dense<");
    for (int k = 0; k < n; k++)
        strbuf_printf(b, "%s[%lld, %lld]", k ? ", " : "", (long long)v[k][0], (long long)v[k][1]);
    strbuf_printf(b, n ? "]> : tensor<%dx2xi64>" : "> : tensor<%dx2xi64>", n);
}
static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
static const char *const compare_types[] = {"", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
static const char *const fft_types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
static const char *const transposes[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
static const char *const algorithms[] = {"DEFAULT", "THREE_FRY", "PHILOX"};

static void regions(struct out_op *op) {
    op->regions = op->i->called;
    op->n_regions = op->i->n_called;
}
static status_t out_plain(UNUSED struct out *o, UNUSED struct out_op *op) {
    return ST_OK;
}
static status_t out_tokens(UNUSED struct out *o, struct out_op *op) {
    for (int32_t k = 0; k < op->in.n; k++)
        if (op->types[k]->dtype != DT_TOKEN) return st_unimplemented("an operand is no token");
    return ST_OK;
}
static status_t out_regions(UNUSED struct out *o, struct out_op *op) {
    regions(op);
    return ST_OK;
}

// ---- elementwise

static status_t out_compare(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_compare *c = HLO_ATTR(op->i, compare);
    strbuf_printf(field(op, "comparison_direction"), "#stablehlo<comparison_direction %s>",
                  directions[c->direction]);
    if (c->type)
        strbuf_printf(field(op, "compare_type"), "#stablehlo<comparison_type %s>",
                      compare_types[c->type]);
    return ST_OK;
}
static status_t out_reduce_precision(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_redprec *r = HLO_ATTR(op->i, redprec);
    strbuf_printf(field(op, "exponent_bits"), "%lld : i32", (long long)r->exponent_bits);
    strbuf_printf(field(op, "mantissa_bits"), "%lld : i32", (long long)r->mantissa_bits);
    return ST_OK;
}
static status_t out_map(UNUSED struct out *o, struct out_op *op) {
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < op->i->shape->rank; d++)
        dims[d] = d;
    put_array(op, "dimensions", dims, op->i->shape->rank);
    regions(op);
    return ST_OK;
}

// ---- leaves, shapes

static status_t out_constant(struct out *o, struct out_op *op) {
    const struct literal *l = op->i->literal;
    if (shape_is_tuple(op->i->shape)) return st_unimplemented("a constant of tuple type");
    if (lit_missing(l)) return st_unimplemented("%s", lit_missing(l));
    if (l->shape->rank != op->i->shape->rank) l = lit_borrow(&o->a, op->i->shape, l->data);
    out_literal(field(op, "value"), l);
    return ST_OK;
}
static status_t out_bitcast(UNUSED struct out *o, struct out_op *op) {
    const struct shape *to = op->i->shape, *from = op->i->operands[0]->shape;
    if (!layout_is_default(to->layout, to->rank) || !layout_is_default(from->layout, from->rank))
        return st_unimplemented("a bitcast between layouts");
    if (to->dtype == from->dtype) return ST_OK;
    if (!shape_same_dims(to, from) && dtype_size(to->dtype) == dtype_size(from->dtype))
        return st_unimplemented("a bitcast of both type and dimensions");
    op->name = "bitcast_convert";
    return ST_OK;
}
static status_t out_broadcast(UNUSED struct out *o, struct out_op *op) {
    put_ints(op, "broadcast_dimensions", HLO_ATTR(op->i, dims)->dimensions);
    return ST_OK;
}
static status_t out_concatenate(UNUSED struct out *o, struct out_op *op) {
    put_int(op, "dimension", HLO_ATTR(op->i, dims)->dimensions.v[0]);
    return ST_OK;
}
// Start indices as one operand of rank 1 are of HLO's past.
static status_t scalar_indices(const struct out_op *op, int first) {
    for (int k = first; k < op->i->n_operands; k++)
        if (op->i->operands[k]->shape->rank)
            return st_unimplemented("start indices that are no scalars");
    return ST_OK;
}
static status_t out_dynamic_slice(UNUSED struct out *o, struct out_op *op) {
    put_ints(op, "slice_sizes", HLO_ATTR(op->i, dynslice)->dynamic_slice_sizes);
    return scalar_indices(op, 1);
}
static status_t out_dynamic_update_slice(UNUSED struct out *o, struct out_op *op) {
    return scalar_indices(op, 2);
}
static status_t out_dimension_size(UNUSED struct out *o, struct out_op *op) {
    put_int(op, "dimension", HLO_ATTR(op->i, dims)->dimensions.v[0]);
    return ST_OK;
}
static status_t out_iota(UNUSED struct out *o, struct out_op *op) {
    if (!op->i->shape->rank) return st_unimplemented("an iota of rank 0");
    put_int(op, "iota_dimension", HLO_ATTR(op->i, iota)->iota_dimension);
    return ST_OK;
}
static status_t out_pad(struct out *o, struct out_op *op) {
    struct padding p = HLO_ATTR(op->i, pad)->padding;
    int64_t *v[3];
    for (int k = 0; k < 3; k++)
        v[k] = arena_array(&o->a, int64_t, p.n + 1);
    for (int d = 0; d < p.n; d++) {
        v[0][d] = p.v[d].low;
        v[1][d] = p.v[d].high;
        v[2][d] = p.v[d].interior;
    }
    put_array(op, "edge_padding_low", v[0], p.n);
    put_array(op, "edge_padding_high", v[1], p.n);
    put_array(op, "interior_padding", v[2], p.n);
    return ST_OK;
}
static status_t out_reverse(UNUSED struct out *o, struct out_op *op) {
    put_ints(op, "dimensions", HLO_ATTR(op->i, dims)->dimensions);
    return ST_OK;
}
static status_t out_slice(struct out *o, struct out_op *op) {
    struct ranges r = HLO_ATTR(op->i, slice)->slice;
    int64_t *v[3];
    for (int k = 0; k < 3; k++)
        v[k] = arena_array(&o->a, int64_t, r.n + 1);
    for (int d = 0; d < r.n; d++) {
        v[0][d] = r.v[d].start;
        v[1][d] = r.v[d].limit;
        v[2][d] = r.v[d].stride;
    }
    put_array(op, "start_indices", v[0], r.n);
    put_array(op, "limit_indices", v[1], r.n);
    put_array(op, "strides", v[2], r.n);
    return ST_OK;
}
static status_t out_transpose(UNUSED struct out *o, struct out_op *op) {
    put_ints(op, "permutation", HLO_ATTR(op->i, dims)->dimensions);
    return ST_OK;
}

// ---- windows and contractions

// The window's fields under the operation's names for them; NULL: it has none, so they must say
// nothing.
static status_t window(struct out *o, struct out_op *op, struct window w, const char *size,
                       const char *stride, const char *base, const char *dilation) {
    int64_t(*pads)[2] = arena_alloc(&o->a, sizeof *pads * (size_t)(w.n + 1)), *v[4];
    for (int k = 0; k < 4; k++)
        v[k] = arena_array(&o->a, int64_t, w.n + 1);
    for (int d = 0; d < w.n; d++) {
        const struct window_dim *x = &w.v[d];
        if ((!base && x->base_dilation != 1) || (!dilation && x->window_dilation != 1))
            return st_unimplemented("a dilated window");
        v[0][d] = x->size;
        v[1][d] = x->stride;
        v[2][d] = x->base_dilation;
        v[3][d] = x->window_dilation;
        pads[d][0] = x->pad_low;
        pads[d][1] = x->pad_high;
    }
    if (size) put_array(op, size, v[0], w.n);
    put_array(op, stride, v[1], w.n);
    if (base) put_array(op, base, v[2], w.n);
    if (dilation) put_array(op, dilation, v[3], w.n);
    put_pairs(op, "padding", (const int64_t(*)[2])pads, w.n);
    return ST_OK;
}
static bool reversed(struct window w) {
    bool any = false;
    for (int d = 0; d < w.n; d++)
        any |= w.v[d].reversal;
    return any;
}
static void role_list(struct strbuf *b, const char *names, int first, int second,
                      const int32_t *spatial, int n) {
    strbuf_putc(b, '[');
    for (int place = 0; place < n + 2; place++) {
        if (place) strbuf_puts(b, ", ");
        if (place == first) strbuf_putc(b, names[0]);
        if (place == second) strbuf_putc(b, names[1]);
        for (int d = 0; d < n; d++)
            if (spatial[d] == place) strbuf_i64(b, d);
    }
    strbuf_putc(b, ']');
}
static struct str next_word(struct str *text) {
    while (text->n && strchr("{}, ", *text->p))
        text->p++, text->n--;
    struct str word = {text->p, 0};
    while (text->n && !strchr("{}, ", *text->p))
        text->p++, text->n--, word.n++;
    return word;
}
// operand_precision={high,highest}: with how many of their digits operands are read. False: it is
// none that StableHLO has a word for.
static bool precision_of(struct str *text, const char **out) {
    static const char *const rows[][2] = {
        {"default", "DEFAULT"}, {"high", "HIGH"}, {"highest", "HIGHEST"}};
    struct str word = next_word(text);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        if (str_is(word, rows[k][0])) return *out = rows[k][1], true;
    return false;
}
static void precision(struct out_op *op) {
    size_t n;
    const char *text = hlo_extra(op->i, "operand_precision", &n), *lhs, *rhs;
    struct str rest = {text, n};
    if (!text || !precision_of(&rest, &lhs) || !precision_of(&rest, &rhs)) return;
    strbuf_printf(field(op, "precision_config"),
                  "[#stablehlo<precision %s>, #stablehlo<precision %s>]", lhs, rhs);
}
// Of PrecisionConfig.Algorithm of xla_data.proto. False: there is none, or one without such types.
// Components are 1 also where a factor is a sum of several: StableHLO's verifier knows no other.
static bool dot_algorithm(struct out_op *op) {
    static const struct {
        const char *name, *operands, *sum;
        int products;
    } rows[] = {
        {"dot_f16_f16_f16", "f16", "f16", 1},       {"dot_f16_f16_f32", "f16", "f32", 1},
        {"dot_bf16_bf16_bf16", "bf16", "bf16", 1},  {"dot_bf16_bf16_f32", "bf16", "f32", 1},
        {"dot_bf16_bf16_f32_x3", "bf16", "f32", 3}, {"dot_bf16_bf16_f32_x6", "bf16", "f32", 6},
        {"dot_bf16_bf16_f32_x9", "bf16", "f32", 9}, {"dot_tf32_tf32_f32", "tf32", "f32", 1},
        {"dot_tf32_tf32_f32_x3", "tf32", "f32", 3}, {"dot_f32_f32_f32", "f32", "f32", 1},
        {"dot_f64_f64_f64", "f64", "f64", 1}};
    size_t n;
    const char *name = hlo_extra(op->i, "algorithm", &n);
    for (size_t k = 0; name && k < sizeof rows / sizeof *rows; k++)
        if (str_is((struct str){name, n}, rows[k].name)) {
            strbuf_printf(
                field(op, "algorithm"),
                "#stablehlo.dot_algorithm<lhs_precision_type = %s, rhs_precision_type = %s, "
                "accumulation_type = %s, lhs_component_count = 1, rhs_component_count = 1, "
                "num_primitive_operations = %d, allow_imprecise_accumulation = false>",
                rows[k].operands, rows[k].operands, rows[k].sum, rows[k].products);
            return true;
        }
    return false;
}
static status_t out_convolution(struct out *o, struct out_op *op) {
    const struct hlo_attr_conv *c = HLO_ATTR(op->i, conv);
    const struct labels *l = &c->dim_labels;
    RETURN_IF_ERR(window(o, op, c->window, NULL, "window_strides", "lhs_dilation", "rhs_dilation"));
    if (reversed(c->window)) {
        struct strbuf *r = field(op, "window_reversal");
        for (int d = 0; d < c->window.n; d++)
            strbuf_printf(r, "%s%s",
                          d ? ", " : "array<i1: ", c->window.v[d].reversal ? "true" : "false");
        strbuf_putc(r, '>');
    }
    struct strbuf *b = field(op, "dimension_numbers");
    strbuf_puts(b, "#stablehlo.conv<");
    role_list(b, "bf", l->in_batch, l->in_feature, l->in_spatial, l->n_spatial);
    strbuf_putc(b, 'x');
    role_list(b, "io", l->k_in, l->k_out, l->k_spatial, l->n_spatial);
    strbuf_puts(b, "->");
    role_list(b, "bf", l->out_batch, l->out_feature, l->out_spatial, l->n_spatial);
    strbuf_putc(b, '>');
    put_int(op, "feature_group_count", c->feature_group_count);
    put_int(op, "batch_group_count", c->batch_group_count);
    precision(op);
    return ST_OK;
}
static status_t out_dot(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_dot *d = HLO_ATTR(op->i, dot);
    struct strbuf *b = field(op, "dot_dimension_numbers");
    strbuf_puts(b, "#stablehlo.dot<");
    put_list(b, "lhs_batching_dimensions", d->lhs_batch_dims);
    put_list(b, "rhs_batching_dimensions", d->rhs_batch_dims);
    put_list(b, "lhs_contracting_dimensions", d->lhs_contracting_dims);
    put_list(b, "rhs_contracting_dimensions", d->rhs_contracting_dims);
    strbuf_putc(b, '>');
    if (!dot_algorithm(op)) precision(op); // an algorithm says it all
    return ST_OK;
}
static status_t out_batch_norm(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_batchnorm *n = HLO_ATTR(op->i, batchnorm);
    union {
        float f;
        uint32_t u;
    } bits = {n->epsilon};
    strbuf_printf(field(op, "epsilon"), "0x%08X : f32", (unsigned)bits.u);
    put_int(op, "feature_index", n->feature_index);
    return ST_OK;
}
static status_t out_cholesky(UNUSED struct out *o, struct out_op *op) {
    put_flag(op, "lower", HLO_ATTR(op->i, cholesky)->lower);
    return ST_OK;
}
static status_t out_fft(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_fft *f = HLO_ATTR(op->i, fft);
    strbuf_printf(field(op, "fft_type"), "#stablehlo<fft_type %s>", fft_types[f->fft_type]);
    put_ints(op, "fft_length", f->fft_length);
    return ST_OK;
}
static status_t out_triangular_solve(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_trisolve *t = HLO_ATTR(op->i, trisolve);
    put_flag(op, "left_side", t->left_side);
    put_flag(op, "lower", t->lower);
    put_flag(op, "unit_diagonal", t->unit_diagonal);
    strbuf_printf(field(op, "transpose_a"), "#stablehlo<transpose %s>", transposes[t->transpose_a]);
    return ST_OK;
}

// ---- reductions, indices, random numbers

static status_t out_reduce(UNUSED struct out *o, struct out_op *op) {
    put_ints(op, "dimensions", HLO_ATTR(op->i, dims)->dimensions);
    regions(op);
    return ST_OK;
}
static status_t out_reduce_window(struct out *o, struct out_op *op) {
    struct window w = HLO_ATTR(op->i, window)->window;
    regions(op);
    if (reversed(w)) return st_unimplemented("a reversed window");
    return window(o, op, w, "window_dimensions", "window_strides", "base_dilations",
                  "window_dilations");
}
static status_t out_select_scatter(struct out *o, struct out_op *op) {
    struct window w = HLO_ATTR(op->i, window)->window;
    regions(op);
    if (reversed(w)) return st_unimplemented("a reversed window");
    return window(o, op, w, "window_dimensions", "window_strides", NULL, NULL);
}
static status_t out_gather(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_gather *g = HLO_ATTR(op->i, gather);
    struct strbuf *b = field(op, "dimension_numbers");
    strbuf_puts(b, "#stablehlo.gather<");
    put_list(b, "offset_dims", g->offset_dims);
    put_list(b, "collapsed_slice_dims", g->collapsed_slice_dims);
    put_list(b, "operand_batching_dims", g->operand_batching_dims);
    put_list(b, "start_indices_batching_dims", g->start_indices_batching_dims);
    put_list(b, "start_index_map", g->start_index_map);
    if (b->p[b->n - 1] != '<') strbuf_puts(b, ", ");
    strbuf_printf(b, "index_vector_dim = %lld>", (long long)g->index_vector_dim);
    put_ints(op, "slice_sizes", g->slice_sizes);
    put_flag(op, "indices_are_sorted", g->indices_are_sorted);
    return ST_OK;
}
static status_t out_scatter(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_scatter *s = HLO_ATTR(op->i, scatter);
    struct strbuf *b = field(op, "scatter_dimension_numbers");
    strbuf_puts(b, "#stablehlo.scatter<");
    put_list(b, "update_window_dims", s->update_window_dims);
    put_list(b, "inserted_window_dims", s->inserted_window_dims);
    put_list(b, "input_batching_dims", s->input_batching_dims);
    put_list(b, "scatter_indices_batching_dims", s->scatter_indices_batching_dims);
    put_list(b, "scatter_dims_to_operand_dims", s->scatter_dims_to_operand_dims);
    if (b->p[b->n - 1] != '<') strbuf_puts(b, ", ");
    strbuf_printf(b, "index_vector_dim = %lld>", (long long)s->index_vector_dim);
    put_flag(op, "indices_are_sorted", s->indices_are_sorted);
    put_flag(op, "unique_indices", s->unique_indices);
    regions(op);
    return ST_OK;
}
static status_t out_sort(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_sort *s = HLO_ATTR(op->i, sort);
    put_int(op, "dimension", s->dimensions.v[0]);
    put_flag(op, "is_stable", s->is_stable);
    regions(op);
    return ST_OK;
}
static status_t out_top_k(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_topk *t = HLO_ATTR(op->i, topk);
    if (!t->largest) return st_unimplemented("the smallest elements");
    put_int(op, "k", t->k);
    return ST_OK;
}
static status_t out_rng(struct out *o, struct out_op *op) {
    const struct hlo_attr_rng *r = HLO_ATTR(op->i, rng);
    const struct shape *s = op->i->shape, **types = arena_array(&o->a, const struct shape *, 3);
    int64_t dims[1] = {s->rank};
    uint32_t *in = arena_array(&o->a, uint32_t, 3);
    for (int k = 0; k < 2; k++) {
        in[k] = op->in.v[k];
        types[k] = op->types[k];
    }
    in[2] = out_indices(o, s->dims, s->rank);
    types[2] = shape_make(&o->a, DT_S64, dims, 1);
    op->in = (struct out_value){in, 3};
    op->types = types;
    strbuf_printf(field(op, "rng_distribution"), "#stablehlo<rng_distribution %s>",
                  r->distribution == RNG_NORMAL ? "NORMAL" : "UNIFORM");
    return ST_OK;
}
static status_t out_rng_bits(UNUSED struct out *o, struct out_op *op) {
    if (op->i->shape->n_elems != 2) return st_unimplemented("random bits without a new state");
    strbuf_printf(field(op, "rng_algorithm"), "#stablehlo<rng_algorithm %s>",
                  algorithms[HLO_ATTR(op->i, rngbits)->algorithm]);
    return ST_OK;
}

static status_t out_ragged_dot(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_ragged_dot *d = HLO_ATTR(op->i, ragged_dot);
    struct strbuf *b = field(op, "ragged_dot_dimension_numbers");
    strbuf_puts(b, "#chlo.ragged_dot<");
    put_list(b, "lhs_batching_dimensions", d->lhs_batch_dims);
    put_list(b, "rhs_batching_dimensions", d->rhs_batch_dims);
    put_list(b, "lhs_contracting_dimensions", d->lhs_contracting_dims);
    put_list(b, "rhs_contracting_dimensions", d->rhs_contracting_dims);
    put_list(b, "lhs_ragged_dimensions", d->lhs_ragged_dims);
    put_list(b, "rhs_group_dimensions", d->rhs_group_dims);
    strbuf_putc(b, '>');
    return ST_OK;
}

// ---- control, calls

static status_t out_call(struct out *o, struct out_op *op) {
    const struct hlo_computation *c = op->i->called[0];
    bool known = false;
    for (size_t k = 0; k < o->calls.n; k++)
        known |= o->calls.v[k] == c;
    if (!known) avec_push(&o->a, &o->calls, c);
    strbuf_putc(field(op, "callee"), '@');
    hlo_quote(&op->attrs, str_of(c->name));
    return ST_OK;
}
// The branches use their operands' values where they stand.
static status_t out_conditional(UNUSED struct out *o, struct out_op *op) {
    if (op->i->operands[0]->shape->dtype == DT_PRED) op->name = "if";
    regions(op);
    op->outer = true;
    op->in.n = 1;
    return ST_OK;
}
static status_t out_custom_call(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_custom *c = HLO_ATTR(op->i, custom);
    size_t n;
    const char *config = hlo_extra(op->i, "backend_config", &n);
    int version = c->api_version == CUSTOM_UNSPECIFIED ? 1 : (int)c->api_version;
    if (op->i->n_called) return st_unimplemented("a custom call with computations");
    hlo_quote(field(op, "call_target_name"), c->custom_call_target);
    if (c->custom_call_has_side_effect) put_flag(op, "has_side_effect", true);
    strbuf_printf(field(op, "api_version"), "%d : i32", version);
    if (config && c->api_version == CUSTOM_TYPED_FFI)
        strbuf_add(field(op, "backend_config"), config, n);
    else if (config && n && *config == '"')
        strbuf_add(field(op, "backend_config"), config, n);
    else if (config)
        hlo_quote(field(op, "backend_config"), (struct str){config, n});
    return ST_OK;
}

// ---- devices

// "{{0,1},{2,3}}" as a table of integers, rows of *out_each.
static status_t groups(struct out_op *op, const char *extra, int64_t *out_each) {
    size_t n;
    const char *p = hlo_extra(op->i, extra, &n), *end = p ? p + n : NULL;
    struct strbuf *b = field(op, extra);
    int64_t rows = 0, all = 0;
    strbuf_puts(b, "dense<");
    for (int depth = 0; p && p < end && n > 2; p++) {
        bool digit = *p >= '0' && *p <= '9';
        if (*p == '{') rows += ++depth == 2;
        if (*p == '}') depth--;
        if (digit && (p[-1] < '0' || p[-1] > '9')) all++;
        if (!digit && !memchr("{}, ", *p, 4)) return st_unimplemented("%s in this form", extra);
        strbuf_putc(b, *p == '{' ? '[' : *p == '}' ? ']' : *p);
    }
    *out_each = rows ? all / rows : op->i->op == HLO_COLLECTIVE_PERMUTE ? 2 : 0;
    if (rows && all % rows) return st_unimplemented("groups of different sizes");
    strbuf_printf(b, "> : tensor<%lldx%lldxi64>", (long long)rows, (long long)*out_each);
    return ST_OK;
}
static status_t out_collective(UNUSED struct out *o, struct out_op *op) {
    const struct hlo_attr_collective *c = HLO_ATTR(op->i, collective);
    enum hlo_op kind = op->i->op;
    bool permute = kind == HLO_COLLECTIVE_PERMUTE;
    int64_t each, d = c->dimensions.n ? c->dimensions.v[0] : -1;
    if (permute && op->in.n != 1) return st_unimplemented("more than one operand");
    RETURN_IF_ERR(groups(op, permute ? "source_target_pairs" : "replica_groups", &each));
    if (c->channel_id > 0)
        strbuf_printf(field(op, "channel_handle"),
                      "#stablehlo.channel_handle<handle = %lld, type = 1>",
                      (long long)c->channel_id);
    if (c->use_global_device_ids) strbuf_puts(field(op, "use_global_device_ids"), "unit");

    if (kind == HLO_ALL_GATHER) put_int(op, "all_gather_dim", d);
    if (kind == HLO_REDUCE_SCATTER) put_int(op, "scatter_dimension", d);
    if (kind == HLO_ALL_TO_ALL) {
        if (d < 0 || !each) return st_unimplemented("an all-to-all of a tuple or of all devices");
        put_int(op, "split_dimension", d);
        put_int(op, "concat_dimension", d);
        put_int(op, "split_count", each);
    }
    if (op->i->n_called) regions(op);
    return ST_OK;
}

struct out_row out_row_of(enum hlo_op op) {
    static const struct out_row rows[HLO_OP_COUNT] = {
#define OUT(opcode, name, fn) [HLO_##opcode] = {name, out_##fn},
#include "compiler/frontend/stablehlo/stablehlo_out.def"
#undef OUT
    };
    return rows[op];
}
