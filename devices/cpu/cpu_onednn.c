// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.6 behind the implementation list: convolutions, dots, maximum pooling and layout
// changes. One primitive a step, made at load; buffers are attached at each run; scratchpads are
// ours. A convolution's kernel is reordered into the form the primitive asked for: once at PREPARE
// when it is a bound weight, at each run when the program computes it. Everything here is about
// f32; 8-bit integers: cpu_onednn_int8.c.
#include "devices/cpu/cpu_onednn.h"

#include <stdlib.h>

enum { MAX_ARGS = 4 + LIB_MAX_POST, MAX_NDIMS = DNNL_MAX_NDIMS };

struct onednn_arg {
    int arg;
    int leaf;
    dnnl_memory_t mem;
}; // leaf: index into bufs, or one of
enum { LEAF_SCRATCH = -1, LEAF_REPACKED = -2 };
struct onednn_state {
    dnnl_primitive_t prim;
    struct onednn_arg args[MAX_ARGS];
    int n_args;
    dnnl_memory_desc_t weights_user, weights_packed; // packed == user: not packed
    dnnl_primitive_t repack; // weights_user -> weights_packed before each run; NULL = not needed
    dnnl_memory_t repack_from;
    int repack_leaf;
    int64_t scratch_bytes; // of the primitive, rounded up; the repacked kernel lies behind
    int sum_leaf;          // operand that must be in the destination before the call, -1 = none
    int64_t out_bytes;
    int out_leaf;
};

static dnnl_engine_t engine;
static dnnl_stream_t stream;
status_t onednn_start(void) {
    if (engine) return ST_OK;
    // It would look for a profiler's library at the first generated code: a search over the disk.
    dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
        return st_new(ST_INTERNAL, "oneDNN does not start");
    return ST_OK;
}
status_t onednn_failed(const char *what, dnnl_status_t rc) {
    return st_new(ST_INTERNAL, "oneDNN: %s failed (%d)", what, (int)rc);
}
dnnl_engine_t onednn_engine(void) {
    return engine;
}
dnnl_stream_t onednn_stream(void) {
    return stream;
}

// ---- which instructions

static bool block_layout(const struct layout *l, int rank, int *block) {
    *block = 0;
    if (layout_is_default(l, rank)) return true;
    if (l->rest || rank < 3 || l->tile_rank != rank - 1 || (l->tile[0] != 16 && l->tile[0] != 8))
        return false;
    for (int k = 0; k < rank; k++)
        if (l->minor_to_major[k] != rank - 1 - k) return false;
    for (int k = 1; k < l->tile_rank; k++)
        if (l->tile[k] != 1) return false;
    *block = l->tile[0];
    return true;
}
static bool usable(const struct shape *s) {
    int block;
    return s->dtype == DT_F32 && s->rank <= 5 && shape_elements(s) > 0 &&
           block_layout(s->layout, s->rank, &block);
}

bool onednn_conv_ok(const struct hlo_instr *h) {
    const struct hlo_attr_conv *c = HLO_ATTR(h, conv);
    const struct labels *l = &c->dim_labels;
    int n = l->n_spatial;
    if (n < 1 || n > 3 || c->batch_group_count != 1 || c->window.n != n) return false;
    if (l->in_batch != 0 || l->in_feature != 1 || l->out_batch != 0 || l->out_feature != 1 ||
        l->k_out != 0 || l->k_in != 1)
        return false;
    for (int d = 0; d < n; d++) {
        const struct window_dim *w = &c->window.v[d];
        if (l->in_spatial[d] != d + 2 || l->out_spatial[d] != d + 2 || l->k_spatial[d] != d + 2)
            return false;
        if (w->base_dilation != 1 || w->reversal || w->pad_low < 0 || w->pad_high < 0 ||
            w->pad_low > 64 || w->pad_high > 64)
            return false;
    }
    return true;
}

// One contracting dim; the free dims of a side lie together. Where a batch dim lies is a matter of
// strides.
bool onednn_dot_ok(const struct hlo_instr *h) {
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    const struct shape *x = h->operands[0]->shape, *y = h->operands[1]->shape;
    int nb = d->lhs_batch_dims.n;
    if (d->lhs_contracting_dims.n != 1 || nb > 4) return false;
    if (!lib_rows_together(x, d->lhs_batch_dims, d->lhs_contracting_dims) ||
        !lib_rows_together(y, d->rhs_batch_dims, d->rhs_contracting_dims))
        return false;
    return layout_is_default(x->layout, x->rank) && layout_is_default(y->layout, y->rank);
}

static bool reorder_ok(const struct hlo_instr *i) {
    return i->op == HLO_COPY && i->shape->rank >= 3 &&
           !layout_equal(i->shape->layout, i->operands[0]->shape->layout, i->shape->rank);
}

static bool shapes_ok(const struct hlo_instr *i) {
    if (shape_is_tuple(i->shape) || !usable(i->shape)) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (shape_is_tuple(i->operands[k]->shape) ||
            (i->operands[k]->shape->rank > 0 && !usable(i->operands[k]->shape)))
            return false;
    return true;
}

static bool accepts_call(const struct hlo_instr *i) {
    struct lib_call c;
    if (!shapes_ok(i) || !lib_match(i, &c)) return false;
    return c.hero->op == HLO_CONVOLUTION ? onednn_conv_ok(c.hero) : onednn_dot_ok(c.hero);
}
// What the library takes gets no kernel of ours.
bool cpu_library_accepts(const struct target *t, const struct hlo_instr *i) {
    (void)t;
    return accepts_call(i) || cpu_int8_accepts(i) ||
           (shapes_ok(i) && (lib_max_pool(i) || reorder_ok(i)));
}
// 8-bit integers: channels last. f32: blocks of channels everywhere but for inputs of few (images),
// which the direct kernel reads as they are.
bool cpu_wants_form(const struct target *t, const struct hlo_instr *i, enum conv_form *out_input,
                    enum conv_form *out_output) {
    struct lib_call c;
    *out_input = *out_output = FORM_LAST;
    if (!t->conv_block || !lib_match(i, &c) || c.hero->op != HLO_CONVOLUTION || i->shape->rank != 4)
        return false;
    if (c.hero->shape->dtype == DT_S32) return true;
    if (c.hero->shape->dtype != DT_F32) return false;
    // Groups that do not fill blocks: the blocked kernels do not take them, and what is left is the
    // library's reference. Row-major it multiplies matrices.
    int64_t groups = HLO_ATTR(c.hero, conv)->feature_group_count;
    const struct shape *k = c.hero->operands[1]->shape;
    bool depthwise = groups > 1 && k->dims[1] == 1 && k->dims[0] == groups;
    if (groups > 1 && !depthwise &&
        (k->dims[1] % t->conv_block || k->dims[0] / groups % t->conv_block))
        return false;
    *out_output = FORM_BLOCKED;
    *out_input = c.hero->operands[0]->shape->dims[1] > 4 ? FORM_BLOCKED : FORM_ROWS;
    return true;
}
static bool onednn_accepts(const struct cpu_exe *x, const struct hlo_instr *i, const char **why) {
    (void)x;
    *why = "the library has no primitive for it";
    return cpu_library_accepts(NULL, i) && !cpu_int8_accepts(i);
}

// ---- descriptors

static dnnl_status_t desc_of(const struct shape *s, dnnl_memory_desc_t *out) {
    static const dnnl_format_tag_t plain[] = {0, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
    static const dnnl_format_tag_t by16[] = {0, 0, 0, dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b},
                                   by8[] = {0, 0, 0, dnnl_aBc8b, dnnl_aBcd8b, dnnl_aBcde8b};
    int block = 0;
    block_layout(s->layout, s->rank, &block);
    return dnnl_memory_desc_init_by_tag(out, s->rank, s->dims, dnnl_f32,
                                        block == 16  ? by16[s->rank]
                                        : block == 8 ? by8[s->rank]
                                                     : plain[s->rank]);
}

static dnnl_status_t add_post(dnnl_post_ops_t ops, const struct lib_post *p,
                              const struct shape *result) {
    dnnl_memory_desc_t d;
    dnnl_dims_t dims;
    switch (p->kind) {
    case LIB_POST_BIAS_S32:
    case LIB_POST_TO_F32: // of 8-bit products: cpu_onednn_int8.c
    case LIB_POST_CHANNEL_SCALE:
    case LIB_POST_QUANTISE:
        break;
    case LIB_POST_RELU:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
    case LIB_POST_CLIP:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_clip_v2, p->alpha, p->beta);
    case LIB_POST_LOGISTIC:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_logistic, 0, 0);
    case LIB_POST_TANH:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_tanh, 0, 0);
    case LIB_POST_SCALE:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_linear, p->alpha, 0);
    case LIB_POST_GELU_ERF:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_gelu_erf, 0, 0);
    case LIB_POST_SWISH:
        return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_swish, p->alpha, 0);
    case LIB_POST_SUM:
        return dnnl_post_ops_append_sum(ops, 1);
    case LIB_POST_BIAS: { // not the first: a broadcast addition
        int channel =
            result->rank == 4 || result->rank == 3 || result->rank == 5 ? 1 : result->rank - 1;
        for (int k = 0; k < result->rank; k++)
            dims[k] = k == channel ? p->operand->shape->dims[0] : 1;
        dnnl_memory_desc_init_by_tag(&d, result->rank, dims, dnnl_f32,
                                     result->rank == 4   ? dnnl_abcd
                                     : result->rank == 3 ? dnnl_abc
                                     : result->rank == 5 ? dnnl_abcde
                                                         : dnnl_ab);
        return dnnl_post_ops_append_binary(ops, dnnl_binary_add, &d);
    }
    }
    return dnnl_invalid_arguments;
}

static status_t add_arg(struct onednn_state *st, int arg, int leaf, const dnnl_memory_desc_t *d) {
    struct onednn_arg *a = &st->args[st->n_args++];
    *a = (struct onednn_arg){.arg = arg, .leaf = leaf};
    dnnl_status_t rc = dnnl_memory_create(&a->mem, d, engine, DNNL_MEMORY_NONE);
    return rc == dnnl_success ? ST_OK : onednn_failed("memory_create", rc);
}

// The attributes of a call: post-operations and a scratchpad of ours. The first bias is the
// primitive's own argument.
static status_t make_attr(const struct lib_call *c, int first, const struct shape *result,
                          dnnl_primitive_attr_t *out) {
    dnnl_post_ops_t ops;
    dnnl_primitive_attr_create(out);
    dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    dnnl_post_ops_create(&ops);
    dnnl_status_t rc = dnnl_success;
    for (int k = first; k < c->n_post && rc == dnnl_success; k++)
        rc = add_post(ops, &c->post[k], result);
    if (rc == dnnl_success) rc = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    return rc == dnnl_success ? ST_OK : onednn_failed("post-operations", rc);
}

// Scratchpad, weights form, arguments that all calls share.
static status_t finish(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st,
                       const_dnnl_primitive_desc_t pd, const struct lib_call *c, int first) {
    const struct hlo_instr *i = s->plan->instr;
    const char *info = NULL;
    dnnl_status_t rc = dnnl_primitive_create(&st->prim, pd);
    if (rc != dnnl_success) return onednn_failed("primitive_create", rc);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    st->scratch_bytes = ((int64_t)dnnl_memory_desc_get_size(scratch) + 63) / 64 * 64;
    if (st->scratch_bytes > x->scratch_bytes) x->scratch_bytes = st->scratch_bytes;
    RETURN_IF_ERR(add_arg(st, DNNL_ARG_SCRATCHPAD, LEAF_SCRATCH, scratch));
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info) == dnnl_success && info)
        s->detail = arena_printf(&x->arena, "onednn:%s", info);
    st->sum_leaf = -1;
    st->out_leaf = s->plan->n_in;
    st->out_bytes = s->plan->out[0].size_bytes;
    for (int k = first; c && k < c->n_post; k++) {
        int leaf = c->post[k].operand ? lib_operand(i, c->post[k].operand) : -1;
        if (c->post[k].kind == LIB_POST_SUM) st->sum_leaf = leaf;
        if (c->post[k].kind != LIB_POST_BIAS) continue;
        dnnl_memory_desc_t d;
        desc_of(c->post[k].operand->shape, &d);
        RETURN_IF_ERR(
            add_arg(st, DNNL_ARG_ATTR_MULTIPLE_POST_OP(k - first) | DNNL_ARG_SRC_1, leaf, &d));
    }
    return ST_OK;
}

static void set_packed(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st, int leaf,
                       const dnnl_memory_desc_t *wanted) {
    st->weights_packed = *wanted;
    if (dnnl_memory_desc_equal(&st->weights_user, wanted)) return;
    s->packed_in = leaf;
    s->pack_slot = x->n_packs++;
}

static status_t make_reorder(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                             dnnl_primitive_desc_t *pd) {
    dnnl_status_t rc = dnnl_reorder_primitive_desc_create(pd, from, engine, to, engine, NULL);
    return rc == dnnl_success ? ST_OK : onednn_failed("reorder", rc);
}
// A kernel that the program computes is reordered at each run, behind the scratchpad. Only the
// plain form's reference implementation would take it as it is, at a hundredth of the speed.
static status_t repack_open(struct cpu_exe *x, struct onednn_state *st, int leaf,
                            const dnnl_memory_desc_t *wanted) {
    dnnl_primitive_desc_t pd = NULL;
    st->weights_packed = *wanted;
    if (dnnl_memory_desc_equal(&st->weights_user, wanted)) return ST_OK;
    RETURN_IF_ERR(make_reorder(&st->weights_user, wanted, &pd));
    dnnl_status_t rc = dnnl_primitive_create(&st->repack, pd);
    dnnl_primitive_desc_destroy(pd);
    if (rc == dnnl_success)
        rc = dnnl_memory_create(&st->repack_from, &st->weights_user, engine, DNNL_MEMORY_NONE);
    if (rc != dnnl_success) return onednn_failed("reorder", rc);
    st->repack_leaf = leaf;
    int64_t total = st->scratch_bytes + (int64_t)dnnl_memory_desc_get_size(wanted);
    if (total > x->scratch_bytes) x->scratch_bytes = total;
    return ST_OK;
}

// ---- convolution

void onednn_conv_dims(const struct hlo_instr *h, dnnl_dims_t stride, dnnl_dims_t dilate,
                      dnnl_dims_t low, dnnl_dims_t high) {
    const struct window *w = &HLO_ATTR(h, conv)->window;
    for (int d = 0; d < w->n; d++) {
        stride[d] = w->v[d].stride;
        dilate[d] = w->v[d].window_dilation - 1;
        low[d] = w->v[d].pad_low;
        high[d] = w->v[d].pad_high;
    }
}

int onednn_kernel_dims(const struct hlo_instr *h, dnnl_dims_t dims) {
    const struct shape *k = h->operands[1]->shape;
    int64_t g = HLO_ATTR(h, conv)->feature_group_count;
    int n = 0;
    if (g > 1)
        dims[n++] = g, dims[n++] = k->dims[0] / g;
    else
        dims[n++] = k->dims[0];
    for (int d = 1; d < k->rank; d++)
        dims[n++] = k->dims[d];
    return n;
}

// Winograd F(4x4,3x3) reads the input once for four outputs a side but packs weights fourfold: it
// pays for 3x3 stride 1 with many channels (facts measured offline, version COST_VERSION of
// cpu_target.c).
static bool winograd_pays(const struct hlo_instr *h) {
    const struct window *w = &HLO_ATTR(h, conv)->window;
    const struct shape *k = h->operands[1]->shape;
    if (w->n != 2 || HLO_ATTR(h, conv)->feature_group_count != 1) return false;
    for (int d = 0; d < 2; d++)
        if (w->v[d].size != 3 || w->v[d].stride != 1 || w->v[d].window_dilation != 1) return false;
    return k->dims[0] >= 64 && k->dims[1] >= 64 && h->shape->dims[2] >= 7;
}

static status_t conv_open(struct cpu_exe *x, struct cpu_step *s, const struct lib_call *c,
                          struct onednn_state *st) {
    const struct hlo_instr *i = s->plan->instr, *h = c->hero;
    dnnl_memory_desc_t src, dst, weights, bias = {0};
    dnnl_dims_t stride, dilate, low, high, wdims;
    int lhs = lib_operand(i, c->lhs), rhs = lib_operand(i, c->rhs), n;
    bool has_bias = c->n_post && c->post[0].kind == LIB_POST_BIAS,
         bound = cpu_is_bound(x, s, rhs);
    static const dnnl_format_tag_t tags[] = {0, 0, 0, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    desc_of(i->operands[lhs]->shape, &src);
    desc_of(i->shape, &dst);
    n = onednn_kernel_dims(h, wdims);
    dnnl_memory_desc_init_by_tag(&st->weights_user, n, wdims, dnnl_f32, tags[n]);
    dnnl_memory_desc_init_by_tag(&weights, n, wdims, dnnl_f32, dnnl_format_tag_any);
    if (has_bias) desc_of(c->post[0].operand->shape, &bias);
    onednn_conv_dims(h, stride, dilate, low, high);
    dnnl_primitive_attr_t attr;
    RETURN_IF_ERR(make_attr(c, has_bias, i->shape, &attr));
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t rc = dnnl_unimplemented;
    const dnnl_alg_kind_t algs[] = {dnnl_convolution_winograd, dnnl_convolution_direct};
    for (int a = winograd_pays(h) && bound && !x->strict ? 0 : 1; a < 2 && rc != dnnl_success;
         a++) {
        dnnl_convolution_desc_t d;
        rc = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_inference, algs[a], &src,
                                                        &weights, has_bias ? &bias : NULL, &dst,
                                                        stride, dilate, low, high);
        if (rc == dnnl_success) rc = dnnl_primitive_desc_create(&pd, &d, attr, engine, NULL);
    }
    dnnl_primitive_attr_destroy(attr);
    if (rc != dnnl_success) return onednn_failed("convolution", rc);
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (bound) set_packed(x, s, st, rhs, wanted);
    status_t status = finish(x, s, st, pd, c, has_bias);
    if (!status && !bound) status = repack_open(x, st, rhs, wanted);
    if (!status) status = add_arg(st, DNNL_ARG_SRC, lhs, &src);
    if (!status) status = add_arg(st, DNNL_ARG_WEIGHTS, st->repack ? LEAF_REPACKED : rhs, wanted);
    if (!status && has_bias)
        status = add_arg(st, DNNL_ARG_BIAS, lib_operand(i, c->post[0].operand), &bias);
    if (!status) status = add_arg(st, DNNL_ARG_DST, s->plan->n_in, &dst);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

// ---- dot

// An operand as [batch..., rows, cols] by strides. free_n rows collapse into one when they lie
// together.
void onednn_matrix(const struct shape *s, struct i64s batch, int64_t contract, bool contract_last,
                   dnnl_dims_t dims, dnnl_dims_t strides) {
    int64_t st[HLO_MAX_RANK], rows = 1, row_stride = 1;
    int n = 0;
    bool first = true;
    shape_strides(s, st);
    for (int k = 0; k < batch.n; k++)
        dims[n] = s->dims[batch.v[k]], strides[n++] = st[batch.v[k]];
    for (int d = s->rank - 1; d >= 0; d--) {
        if (d == contract || i64s_has(batch, d)) continue;
        if (s->dims[d] == 1) continue;
        if (first) row_stride = st[d];
        first = false;
        rows *= s->dims[d];
    }
    int r = contract_last ? n : n + 1, c = contract_last ? n + 1 : n;
    dims[r] = rows, strides[r] = row_stride;
    dims[c] = s->dims[contract], strides[c] = st[contract];
}

static status_t dot_open(struct cpu_exe *x, struct cpu_step *s, const struct lib_call *c,
                         struct onednn_state *st) {
    const struct hlo_instr *i = s->plan->instr, *h = c->hero;
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    int lhs = lib_operand(i, c->lhs), rhs = lib_operand(i, c->rhs), nb = d->lhs_batch_dims.n,
        nd = nb + 2;
    bool has_bias = c->n_post && c->post[0].kind == LIB_POST_BIAS,
         bound = cpu_is_bound(x, s, rhs) && nb == 0;
    dnnl_dims_t xd, xs, yd, ys, rd, rs, bd, bs;
    dnnl_memory_desc_t src, user, weights, dst, bias;
    onednn_matrix(h->operands[0]->shape, d->lhs_batch_dims, d->lhs_contracting_dims.v[0], true, xd,
                  xs);
    onednn_matrix(h->operands[1]->shape, d->rhs_batch_dims, d->rhs_contracting_dims.v[0], false, yd,
                  ys);
    int64_t stride = 1;
    for (int k = nd - 1; k >= 0; k--) {
        rd[k] = k < nb ? xd[k] : k == nb ? xd[nb] : yd[nb + 1];
        rs[k] = stride;
        stride *= rd[k];
        bd[k] = k == nd - 1 ? rd[k] : 1;
        bs[k] = k == nd - 1 ? 1 : rd[nd - 1];
    }
    dnnl_memory_desc_init_by_strides(&src, nd, xd, dnnl_f32, xs);
    dnnl_memory_desc_init_by_strides(&user, nd, yd, dnnl_f32, ys);
    dnnl_memory_desc_init_by_strides(&dst, nd, rd, dnnl_f32, rs);
    dnnl_memory_desc_init_by_strides(&bias, nd, bd, dnnl_f32, bs);
    st->weights_user = user;
    weights = user;
    if (bound) dnnl_memory_desc_init_by_tag(&weights, nd, yd, dnnl_f32, dnnl_format_tag_any);
    dnnl_primitive_attr_t attr;
    int64_t flat[2] = {rd[0], rd[nd - 1]};
    RETURN_IF_ERR(make_attr(c, has_bias, shape_make(&x->arena, DT_F32, nb ? rd : flat, nd), &attr));
    dnnl_matmul_desc_t md;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t rc = dnnl_matmul_desc_init(&md, &src, &weights, has_bias ? &bias : NULL, &dst);
    if (rc == dnnl_success) rc = dnnl_primitive_desc_create(&pd, &md, attr, engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    if (rc != dnnl_success) return onednn_failed("matmul", rc);
    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (bound) set_packed(x, s, st, rhs, wanted);
    status_t status = finish(x, s, st, pd, c, has_bias);
    if (!status) status = add_arg(st, DNNL_ARG_SRC, lhs, &src);
    if (!status) status = add_arg(st, DNNL_ARG_WEIGHTS, rhs, wanted);
    if (!status && has_bias)
        status = add_arg(st, DNNL_ARG_BIAS, lib_operand(i, c->post[0].operand), &bias);
    if (!status) status = add_arg(st, DNNL_ARG_DST, s->plan->n_in, &dst);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

// ---- pooling and reorders

static status_t pool_open(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st) {
    const struct hlo_instr *i = s->plan->instr;
    const struct window *w = &HLO_ATTR(i, window)->window;
    dnnl_memory_desc_t src, dst;
    dnnl_dims_t stride, kernel, low, high;
    dnnl_pooling_desc_t d;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr;
    struct lib_call none = {.n_post = 0};
    desc_of(i->operands[0]->shape, &src);
    desc_of(i->shape, &dst);
    for (int k = 0; k < 2; k++) {
        stride[k] = w->v[k + 2].stride;
        kernel[k] = w->v[k + 2].size;
        low[k] = w->v[k + 2].pad_low;
        high[k] = w->v[k + 2].pad_high;
    }
    RETURN_IF_ERR(make_attr(&none, 0, i->shape, &attr));
    dnnl_status_t rc = dnnl_pooling_forward_desc_init(&d, dnnl_forward_inference, dnnl_pooling_max,
                                                      &src, &dst, stride, kernel, low, high);
    if (rc == dnnl_success) rc = dnnl_primitive_desc_create(&pd, &d, attr, engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    if (rc != dnnl_success) return onednn_failed("pooling", rc);
    status_t status = finish(x, s, st, pd, NULL, 0);
    if (!status) status = add_arg(st, DNNL_ARG_SRC, 0, &src);
    if (!status) status = add_arg(st, DNNL_ARG_DST, s->plan->n_in, &dst);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static status_t reorder_open(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st) {
    dnnl_memory_desc_t src, dst;
    dnnl_primitive_desc_t pd = NULL;
    desc_of(s->plan->instr->operands[0]->shape, &src);
    desc_of(s->plan->instr->shape, &dst);
    RETURN_IF_ERR(make_reorder(&src, &dst, &pd));
    status_t status = finish(x, s, st, pd, NULL, 0);
    if (!status) status = add_arg(st, DNNL_ARG_FROM, 0, &src);
    if (!status) status = add_arg(st, DNNL_ARG_TO, s->plan->n_in, &dst);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

// ---- the implementation

static void onednn_close(struct cpu_step *s) {
    struct onednn_state *st = s->state;
    if (!st) return;
    for (int k = 0; k < st->n_args; k++)
        dnnl_memory_destroy(st->args[k].mem);
    if (st->prim) dnnl_primitive_destroy(st->prim);
    if (st->repack) dnnl_primitive_destroy(st->repack);
    if (st->repack_from) dnnl_memory_destroy(st->repack_from);
}
int64_t onednn_flops(const struct hlo_instr *i, const struct lib_call *c) {
    const struct shape *left = c->hero->operands[0]->shape, *right = c->hero->operands[1]->shape;
    int64_t each = c->hero->op == HLO_CONVOLUTION
                       ? shape_elements(right) / right->dims[0]
                       : left->dims[HLO_ATTR(c->hero, dot)->lhs_contracting_dims.v[0]];
    return 2 * shape_elements(i->shape) * each;
}
static status_t open_call(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st) {
    struct lib_call c;
    if (lib_max_pool(s->plan->instr)) return pool_open(x, s, st);
    if (reorder_ok(s->plan->instr)) return reorder_open(x, s, st);
    if (!lib_match(s->plan->instr, &c))
        return st_new(ST_INTERNAL, "accepted a call that does not match");
    s->flops = onednn_flops(s->plan->instr, &c);
    s->alone = s->flops < ONEDNN_ALONE_FLOPS;
    int threads = s->alone ? cpu_use_threads(1) : 0; // the library divides the work here
    status_t status =
        c.hero->op == HLO_CONVOLUTION ? conv_open(x, s, &c, st) : dot_open(x, s, &c, st);
    if (s->alone) cpu_use_threads(threads);
    return status;
}
static status_t onednn_open(struct cpu_exe *x, struct cpu_step *s) {
    struct onednn_state *st = arena_new_of(&x->arena, struct onednn_state);
    RETURN_IF_ERR(onednn_start());
    s->state = st;
    return open_call(x, s, st);
}
static status_t onednn_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    struct onednn_state *st = s->state;
    dnnl_exec_arg_t args[MAX_ARGS];
    if (st->sum_leaf >= 0 && bufs[st->sum_leaf] != bufs[st->out_leaf])
        memcpy(bufs[st->out_leaf], bufs[st->sum_leaf], (size_t)st->out_bytes);
    for (int k = 0; k < st->n_args; k++) {
        const struct onednn_arg *a = &st->args[k];
        void *p = a->leaf == LEAF_SCRATCH    ? x->scratch
                  : a->leaf == LEAF_REPACKED ? (char *)x->scratch + st->scratch_bytes
                                             : bufs[a->leaf];
        dnnl_memory_set_data_handle_v2(a->mem, p, stream);
        args[k] = (dnnl_exec_arg_t){a->arg, a->mem};
        if (a->leaf != LEAF_REPACKED) continue;
        dnnl_memory_set_data_handle_v2(st->repack_from, bufs[st->repack_leaf], stream);
        dnnl_exec_arg_t r[] = {{DNNL_ARG_FROM, st->repack_from}, {DNNL_ARG_TO, a->mem}};
        dnnl_status_t rc = dnnl_primitive_execute(st->repack, stream, 2, r);
        if (rc != dnnl_success) return onednn_failed("reorder", rc);
    }
    int threads = s->alone ? cpu_use_threads(1) : 0;
    dnnl_status_t rc = dnnl_primitive_execute(st->prim, stream, st->n_args, args);
    if (s->alone) cpu_use_threads(threads);
    return rc == dnnl_success ? ST_OK : onednn_failed("execute", rc);
}
static int64_t onednn_pack_bytes(const struct cpu_step *s) {
    return (int64_t)dnnl_memory_desc_get_size(
        &((const struct onednn_state *)s->state)->weights_packed);
}

status_t onednn_reorder_once(const dnnl_memory_desc_t *user, const dnnl_memory_desc_t *wanted,
                             const void *plain, void *packed) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t prim = NULL;
    dnnl_memory_t from = NULL, to = NULL;
    void *bounce = NULL;
    // A mapped model file gives no alignment: one weight at a time goes through an aligned copy.
    if ((uintptr_t)plain % 64) {
        size_t n = dnnl_memory_desc_get_size(user);
        if (posix_memalign(&bounce, 64, n + 64))
            return st_new(ST_RESOURCE_EXHAUSTED, "no memory for %zu bytes while preparing weights",
                          n);
        memcpy(bounce, plain, n);
        plain = bounce;
    }
    status_t status = make_reorder(user, wanted, &pd);
    dnnl_status_t rc = dnnl_success;
    if (!status) rc = dnnl_primitive_create(&prim, pd);
    if (!status && rc == dnnl_success)
        rc = dnnl_memory_create(&from, user, engine, (void *)(uintptr_t)plain);
    if (!status && rc == dnnl_success) rc = dnnl_memory_create(&to, wanted, engine, packed);
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    if (!status && rc == dnnl_success) rc = dnnl_primitive_execute(prim, stream, 2, args);
    if (!status && rc == dnnl_success) rc = dnnl_stream_wait(stream);
    if (!status && rc != dnnl_success) status = onednn_failed("packing weights", rc);
    dnnl_memory_destroy(from);
    dnnl_memory_destroy(to);
    if (prim) dnnl_primitive_destroy(prim);
    if (pd) dnnl_primitive_desc_destroy(pd);
    free(bounce);
    return status;
}
static status_t onednn_pack(struct cpu_exe *x, struct cpu_step *s, const void *plain,
                            void *packed) {
    const struct onednn_state *st = s->state;
    (void)x;
    return onednn_reorder_once(&st->weights_user, &st->weights_packed, plain, packed);
}
const struct cpu_impl cpu_impl_onednn = {"onednn",   onednn_accepts,    onednn_open, onednn_close,
                                         onednn_run, onednn_pack_bytes, onednn_pack};
