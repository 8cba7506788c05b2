// SPDX-License-Identifier: Apache-2.0
// A convolution or dot of f32 or bf16 with its steps as a primitive of oneDNN 2.6: descriptors,
// attributes, and the question which implementation the library would choose. Whether a form or a
// chain of steps is fast is not written down here: the library is asked, by the same descriptors
// that run later, so that compiler and device agree with it by construction (D20). Its
// implementation `ref` (one element after another, a thousand times slower) is never chosen while
// another way exists: such a call is refused, and the compiler takes fewer steps or another form.
#include <string.h>

#include "devices/cpu/onednn/cpu_onednn.h"

dnnl_format_tag_t onednn_rows(int rank) {
    static const dnnl_format_tag_t tags[] = {0,         dnnl_a,     dnnl_ab,    dnnl_abc,
                                             dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    return tags[rank];
}
dnnl_data_type_t onednn_type(const struct shape *s) {
    return s->dtype == DT_BF16 ? dnnl_bf16 : dnnl_f32;
}
dnnl_status_t onednn_desc_of(const struct shape *s, const struct layout *l, int64_t fold,
                             dnnl_memory_desc_t *out) {
    static const dnnl_format_tag_t by16[] = {0, 0, 0, dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b},
                                   by8[] = {0, 0, 0, dnnl_aBc8b, dnnl_aBcd8b, dnnl_aBcde8b},
                                   last[] = {0, 0, 0, dnnl_acb, dnnl_acdb, dnnl_acdeb};
    const dnnl_format_tag_t *tags = NULL;
    int block;
    switch (lib_form_of(l, s->rank, &block)) {
    case FORM_BLOCKED:
        tags = block == 16 ? by16 : by8;
        break;
    case FORM_LAST:
        tags = last;
        break;
    default:
        break;
    }
    dnnl_dims_t dims;
    int rank = onednn_fold_dims(s, fold, dims);
    return dnnl_memory_desc_init_by_tag(out, rank, dims, onednn_type(s),
                                        tags ? tags[rank] : onednn_rows(rank));
}

// ---- steps

int onednn_first_post(const struct lib_call *c) {
    return c->n_post && c->post[0].kind == LIB_POST_BIAS;
}
bool onednn_adds_in_place(const struct lib_call *c, int k) {
    return c->post[k].kind == LIB_POST_SUM && k == onednn_first_post(c) &&
           c->post[k].operand->shape->dtype == c->result->dtype;
}
dnnl_status_t onednn_channel_desc(const struct lib_call *c, int n, const struct shape *v,
                                  dnnl_data_type_t t, dnnl_memory_desc_t *out) {
    int channel = c->hero->op == HLO_CONVOLUTION ? 1 : n - 1;
    dnnl_dims_t dims;
    for (int k = 0; k < n; k++)
        dims[k] = k == channel && v->rank ? v->dims[0] : 1;
    return dnnl_memory_desc_init_by_tag(out, n, dims, t, onednn_rows(n));
}
bool onednn_post_desc(const struct lib_call *c, int k, const dnnl_memory_desc_t *result,
                      dnnl_memory_desc_t *out) {
    const struct lib_post *p = &c->post[k];
    if (k < onednn_first_post(c) || !p->operand || onednn_adds_in_place(c, k)) return false;
    if (p->kind == LIB_POST_BIAS)
        onednn_channel_desc(c, result->ndims, p->operand->shape, dnnl_f32, out);
    else
        *out = *result, out->data_type = onednn_type(p->operand->shape);
    return true;
}

dnnl_status_t onednn_add_function(dnnl_post_ops_t ops, const struct lib_post *p) {
    static const dnnl_alg_kind_t algs[] = {
        [LIB_POST_RELU] = dnnl_eltwise_relu,         [LIB_POST_CLIP] = dnnl_eltwise_clip_v2,
        [LIB_POST_LOGISTIC] = dnnl_eltwise_logistic, [LIB_POST_TANH] = dnnl_eltwise_tanh,
        [LIB_POST_GELU_ERF] = dnnl_eltwise_gelu_erf, [LIB_POST_SWISH] = dnnl_eltwise_swish,
        [LIB_POST_SCALE] = dnnl_eltwise_linear,      [LIB_POST_QUANTISE] = dnnl_eltwise_linear};
    if ((size_t)p->kind >= sizeof algs / sizeof *algs || !algs[p->kind])
        return dnnl_invalid_arguments;
    float alpha = p->kind == LIB_POST_QUANTISE ? 1 / p->alpha : p->alpha;
    return dnnl_post_ops_append_eltwise(ops, 1, algs[p->kind], alpha, p->beta);
}
static dnnl_status_t add_post(dnnl_post_ops_t ops, const struct lib_call *c, int k,
                              const dnnl_memory_desc_t *result) {
    const struct lib_post *p = &c->post[k];
    dnnl_memory_desc_t d;
    switch (p->kind) {
    case LIB_POST_BF16: // the destination's type
        return dnnl_success;
    case LIB_POST_QUANTISE: // of 8-bit products: cpu_onednn_int8.c
        return dnnl_invalid_arguments;
    case LIB_POST_SUM:
        // Into the destination as the first step. Behind another its kernels take no sum, but they
        // take an addition that reads a tensor of the result's form.
        if (onednn_adds_in_place(c, k)) return dnnl_post_ops_append_sum(ops, 1);
        d = *result;
        d.data_type = onednn_type(p->operand->shape);
        return dnnl_post_ops_append_binary(ops, dnnl_binary_add, &d);
    case LIB_POST_BIAS: // not the first: a broadcast addition
        onednn_channel_desc(c, result->ndims, p->operand->shape, dnnl_f32, &d);
        return dnnl_post_ops_append_binary(ops, dnnl_binary_add, &d);
    default:
        return onednn_add_function(ops, p);
    }
}
// Post-operations and a scratchpad of ours. The first bias is the primitive's own argument.
status_t onednn_make_attr(const struct lib_call *c, const dnnl_memory_desc_t *result,
                          dnnl_primitive_attr_t *out) {
    dnnl_post_ops_t ops;
    dnnl_primitive_attr_create(out);
    dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    dnnl_post_ops_create(&ops);
    dnnl_status_t rc = dnnl_success;
    for (int k = c ? onednn_first_post(c) : 0; c && k < c->n_post && rc == dnnl_success; k++)
        rc = add_post(ops, c, k, result);
    if (rc == dnnl_success) rc = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    if (rc == dnnl_success) return ST_OK;
    dnnl_primitive_attr_destroy(*out);
    return onednn_failed("post-operations", rc);
}

// ---- convolution

// The gradient of a strided convolution's input: p->dst from p->src. The library has no steps
// behind it.
static dnnl_status_t transposed_desc(const struct onednn_prim *p, const dnnl_memory_desc_t *weights,
                                     const dnnl_dims_t stride, const dnnl_dims_t low,
                                     const dnnl_dims_t high, const_dnnl_primitive_attr_t attr,
                                     dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t forward, backward;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t rc =
        dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training, dnnl_convolution_direct,
                                           &p->dst, weights, NULL, &p->src, stride, low, high);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&hint, &forward, NULL, onednn_engine(), NULL);
    if (rc == dnnl_success)
        rc = dnnl_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &p->dst,
                                                      weights, &p->src, stride, low, high);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(out, &backward, attr, onednn_engine(), hint);
    if (hint) dnnl_primitive_desc_destroy(hint);
    return rc;
}
static status_t conv_prim(const struct lib_call *c, const struct onednn_ask *q,
                          struct onednn_prim *p) {
    const struct hlo_instr *h = c->hero;
    dnnl_dims_t stride, dilate, low, high, wdims;
    dnnl_memory_desc_t weights;
    int n = onednn_kernel_dims(h, wdims);
    onednn_desc_of(h->operands[0]->shape, q->in, onednn_fold(h), &p->src);
    onednn_desc_of(c->result, q->out, onednn_fold(h), &p->dst);
    dnnl_data_type_t type = onednn_type(h->operands[1]->shape);
    dnnl_memory_desc_init_by_tag(&p->user, n, wdims, type, onednn_rows(n));
    dnnl_memory_desc_init_by_tag(&weights, n, wdims, type, dnnl_format_tag_any);
    if (q->weights) weights = *q->weights;
    if (p->has_bias) onednn_desc_of(c->post[0].operand->shape, NULL, 1, &p->bias);
    onednn_conv_dims(h, stride, dilate, low, high);

    dnnl_primitive_attr_t attr;
    RETURN_IF_ERR(onednn_make_attr(c, &p->dst, &attr));
    dnnl_status_t rc = dnnl_unimplemented;
    if (lib_transposed(h)) {
        if (!c->n_post) rc = transposed_desc(p, &weights, stride, low, high, attr, &p->pd);
        dnnl_primitive_attr_destroy(attr);
        return rc == dnnl_success ? ST_OK : onednn_failed("gradient of a convolution", rc);
    }
    // Not its Winograd, which makes NaN of what an infinity or NaN of a tile does not reach; ours
    // is as fast (panels/cpu_winograd.h).
    dnnl_convolution_desc_t d;
    rc = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_inference, dnnl_convolution_direct, &p->src, &weights,
        p->has_bias ? &p->bias : NULL, &p->dst, stride, dilate, low, high);
    if (rc == dnnl_success) rc = onednn_conv_choose(&d, attr, q->no_tiles, &p->pd);
    dnnl_primitive_attr_destroy(attr);
    return rc == dnnl_success ? ST_OK : onednn_failed("convolution", rc);
}

// ---- dot

// An operand as [batch..., rows, cols] by strides.
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
        if (first) row_stride = st[d];
        first = first && s->dims[d] == 1; // a single row keeps a stride as long as a row
        rows *= s->dims[d];
    }
    int r = contract_last ? n : n + 1, c = contract_last ? n + 1 : n;
    dims[r] = rows, strides[r] = row_stride;
    dims[c] = s->dims[contract], strides[c] = st[contract];
    // Of one element any stride is right; the library wants one that fits rows or columns.
    if (dims[c] == 1) strides[c] = !contract_last && row_stride == 1 ? rows : 1;
}

void onednn_dot_dims(const struct hlo_instr *h, struct onednn_dot *out) {
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    int nb = d->lhs_batch_dims.n;
    int64_t stride = 1;
    onednn_matrix(h->operands[0]->shape, d->lhs_batch_dims, d->lhs_contracting_dims.v[0], true,
                  out->left, out->left_strides);
    onednn_matrix(h->operands[1]->shape, d->rhs_batch_dims, d->rhs_contracting_dims.v[0], false,
                  out->right, out->right_strides);
    out->n = nb + 2;
    for (int k = nb + 1; k >= 0; k--) {
        out->out[k] = k <= nb ? out->left[k] : out->right[k];
        out->out_strides[k] = stride;
        stride *= out->out[k];
    }
}

static status_t dot_prim(const struct lib_call *c, const struct onednn_ask *q,
                         struct onednn_prim *p) {
    struct onednn_dot d;
    onednn_dot_dims(c->hero, &d);
    int n = d.n;
    int64_t cols = d.out[n - 1];
    dnnl_dims_t bias, bias_strides;
    for (int k = 0; k < n; k++) {
        bias[k] = k == n - 1 ? cols : 1;
        bias_strides[k] = k == n - 1 ? 1 : cols;
    }
    dnnl_data_type_t type = onednn_type(c->hero->operands[1]->shape), to = onednn_type(c->result);
    dnnl_memory_desc_init_by_strides(&p->src, n, d.left, type, d.left_strides);
    dnnl_memory_desc_init_by_strides(&p->user, n, d.right, type, d.right_strides);
    dnnl_memory_desc_init_by_strides(&p->dst, n, d.out, to, d.out_strides);
    dnnl_memory_desc_init_by_strides(&p->bias, n, bias, dnnl_f32, bias_strides);

    dnnl_memory_desc_t weights = p->user;
    if (q->bound && n == 2)
        dnnl_memory_desc_init_by_tag(&weights, n, d.right, type, dnnl_format_tag_any);
    if (q->weights) weights = *q->weights;
    dnnl_primitive_attr_t attr;
    RETURN_IF_ERR(onednn_make_attr(c, &p->dst, &attr));
    dnnl_matmul_desc_t md;
    dnnl_status_t rc =
        dnnl_matmul_desc_init(&md, &p->src, &weights, p->has_bias ? &p->bias : NULL, &p->dst);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&p->pd, &md, attr, onednn_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return rc == dnnl_success ? ST_OK : onednn_failed("matmul", rc);
}

// ---- the question

status_t onednn_prim_of(const struct lib_call *c, const struct onednn_ask *q,
                        struct onednn_prim *p) {
    *p = (struct onednn_prim){.has_bias = onednn_first_post(c)};
    RETURN_IF_ERR(onednn_start());
    RETURN_IF_ERR(c->hero->op == HLO_CONVOLUTION ? conv_prim(c, q, p) : dot_prim(c, q, p));
    p->info = onednn_info(p->pd);
    return ST_OK;
}
const char *onednn_info(const_dnnl_primitive_desc_t pd) {
    const char *info = NULL;
    dnnl_status_t rc = dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info);
    return rc == dnnl_success && info ? info : "";
}
bool onednn_is_reference(const char *info) {
    return strncmp(info, "ref", 3) == 0 || strncmp(info, "simple", 6) == 0;
}

// One contracting dim; the free dims of a side lie together, its batch dims anywhere.
bool onednn_dot_ok(const struct hlo_instr *h) {
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    const struct shape *x = h->operands[0]->shape, *y = h->operands[1]->shape;
    int nb = d->lhs_batch_dims.n;
    if (d->lhs_contracting_dims.n != 1 || nb > 4 || cpu_small_dot(h) || cpu_tiles_better(h))
        return false;
    if (!lib_rows_together(x, d->lhs_batch_dims, d->lhs_contracting_dims) ||
        !lib_rows_together(y, d->rhs_batch_dims, d->rhs_contracting_dims))
        return false;
    if (!lib_rows_or_columns(x, d->lhs_batch_dims) || !lib_rows_or_columns(y, d->rhs_batch_dims))
        return false;
    return layout_is_default(x->layout, x->rank) && layout_is_default(y->layout, y->rank);
}

int64_t onednn_flops(const struct hlo_instr *i, const struct lib_call *c) {
    const struct shape *left = c->hero->operands[0]->shape, *right = c->hero->operands[1]->shape;
    int64_t each = c->hero->op == HLO_CONVOLUTION
                       ? shape_elements(right) / right->dims[0]
                       : left->dims[HLO_ATTR(c->hero, dot)->lhs_contracting_dims.v[0]];
    const struct shape *of = lib_transposed(c->hero) ? left : i->shape; // each meets all taps
    return 2 * shape_elements(of) * each;
}
