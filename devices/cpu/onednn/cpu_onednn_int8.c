// SPDX-License-Identifier: Apache-2.0
// oneDNN's products of 8-bit integers: s8 or u8 times s8 into s32, which VNNI instructions sum
// exactly. (Without them the library adds pairs in 16 bits, which saturate: then nothing is taken.)
// Its convolutions want channels last (compiler/passes/layout/layout.c sees to that). Where a form
// is another, a call is up to four primitives: the input into the wanted one, a kernel that the
// program computes into the packed one (bound ones are, at PREPARE), the product, the result back.
#include <stdlib.h>

#include "devices/cpu/onednn/cpu_onednn.h"

enum { MAX_CALLS = 4, MAX_ARGS = 7 + LIB_MAX_POST };
struct int8_place { // of a memory: an operand or result, or, leaf -1, behind the scratchpad's begin
    int leaf;
    int64_t offset;
};
struct argument {
    int arg;
    struct int8_place at;
    dnnl_memory_t mem;
};
struct primitive {
    dnnl_primitive_t prim;
    struct argument args[MAX_ARGS];
    int n;
};
struct int8_state {
    struct onednn_packing kernel; // first
    struct primitive calls[MAX_CALLS];
    int n;
    int64_t scratch_bytes;
};

static bool plain(const struct shape *s) {
    return !shape_is_tuple(s) && s->rank <= 5 && shape_elements(s) > 0 &&
           layout_is_default(s->layout, s->rank);
}
// A convolution's image: row-major or with channels last.
static bool is_last(const struct shape *s) {
    int block;
    return s->rank >= 3 && s->rank <= 5 && lib_form_of(s->layout, s->rank, &block) == FORM_LAST;
}
static bool image(const struct shape *s) {
    return !shape_is_tuple(s) && s->rank >= 3 && s->rank <= 5 && shape_elements(s) > 0 &&
           (is_last(s) || layout_is_default(s->layout, s->rank));
}
static dnnl_format_tag_t image_tag(const struct shape *s, int rank) {
    static const dnnl_format_tag_t last[] = {dnnl_acb, dnnl_acdb, dnnl_acdeb};
    return is_last(s) ? last[rank - 3] : onednn_rows(rank);
}
static bool steps_ok(const struct lib_call *c) {
    for (int k = 0; k < c->n_post; k++)
        if (c->post[k].operand && !plain(c->post[k].operand->shape)) return false;
    return true;
}
// The library is not asked about integers: with wider pads it may have no kernel.
static bool pads_ok(const struct hlo_instr *h) {
    dnnl_dims_t stride, dilate, low, high;
    onednn_conv_dims(h, stride, dilate, low, high);
    for (int d = 0; d < HLO_ATTR(h, conv)->window.n; d++)
        if (low[d] > 64 || high[d] > 64) return false;
    return true;
}
// ask: whether the library has a kernel for a convolution. Opening it shows the same.
static bool accepts(const struct hlo_instr *i, bool ask) {
    struct lib_call c;
    if (!lib_match(i, &c) || c.hero->shape->dtype != DT_S32 || !cpu_has_int8() || !steps_ok(&c))
        return false;
    const struct shape *x = c.hero->operands[0]->shape, *w = c.hero->operands[1]->shape;
    bool conv = c.hero->op == HLO_CONVOLUTION;
    if ((x->dtype != DT_S8 && x->dtype != DT_U8) || w->dtype != DT_S8 || !plain(w)) return false;
    if (conv ? !image(x) || !image(i->shape) : !plain(x) || !plain(i->shape)) return false;
    if (!conv) return onednn_dot_ok(c.hero);
    return onednn_conv_ok(c.hero) && pads_ok(c.hero) && (!ask || cpu_int8_runs(&c));
}
bool cpu_int8_accepts(const struct hlo_instr *i) {
    return accepts(i, true);
}
static bool int8_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                         const char **why) {
    *why = "not a product of 8-bit integers";
    return accepts(i, false);
}

// ---- primitives

static dnnl_data_type_t type_of(const struct shape *s) {
    return s->dtype == DT_U8    ? dnnl_u8
           : s->dtype == DT_S8  ? dnnl_s8
           : s->dtype == DT_F32 ? dnnl_f32
                                : dnnl_s32;
}
static status_t add_arg(struct primitive *c, int arg, struct int8_place at,
                        const dnnl_memory_desc_t *d) {
    struct argument *a = &c->args[c->n++];
    *a = (struct argument){.arg = arg, .at = at};
    dnnl_status_t rc = dnnl_memory_create(&a->mem, d, onednn_engine(), DNNL_MEMORY_NONE);
    return rc == dnnl_success ? ST_OK : onednn_failed("memory_create", rc);
}
// Room behind what the calls hold already.
static struct int8_place reserve(struct int8_state *st, const dnnl_memory_desc_t *d) {
    struct int8_place at = {.leaf = -1, .offset = st->scratch_bytes};
    st->scratch_bytes += ((int64_t)dnnl_memory_desc_get_size(d) + 63) / 64 * 64;
    return at;
}
// A call that changes the form of what lies at a place.
static status_t reform(struct int8_state *st, const dnnl_memory_desc_t *from, struct int8_place at,
                       const dnnl_memory_desc_t *to, struct int8_place there) {
    struct primitive *c = &st->calls[st->n++];
    RETURN_IF_ERR(onednn_reorder_prim(from, to, &c->prim));
    RETURN_IF_ERR(add_arg(c, DNNL_ARG_FROM, at, from));
    return add_arg(c, DNNL_ARG_TO, there, to);
}
// `from` at a place in the form of `to`: there, or a new place that a call fills.
static status_t in_form(struct int8_state *st, const dnnl_memory_desc_t *from,
                        const dnnl_memory_desc_t *to, struct int8_place *at) {
    if (dnnl_memory_desc_equal(from, to)) return ST_OK;
    struct int8_place was = *at;
    *at = reserve(st, to);
    return reform(st, from, was, to, *at);
}

// What the product needs: its descriptor's forms against the plain ones.
struct product {
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t src, dst; // plain
    dnnl_memory_desc_t bias;     // of s32, as the product's own argument
    int lhs, rhs;
    const struct lib_call *call;
    const struct shape *result;
};
static bool has_bias(const struct lib_call *c) {
    return c->n_post && c->post[0].kind == LIB_POST_BIAS_S32;
}

// A bias of s32, an argument of the product: of one dim for a convolution, of all for a dot.
static void bias_desc(struct product *p, bool conv) {
    const struct shape *v = p->call->post[0].operand->shape;
    if (conv)
        dnnl_memory_desc_init_by_tag(&p->bias, 1, v->dims, dnnl_s32, dnnl_a);
    else
        onednn_channel_desc(p->call, p->dst.ndims, v, dnnl_s32, &p->bias);
}
// Scales, bias and functions are post-operations; a scale of the whole is part of the product.
static status_t make_attr(const struct product *p, dnnl_primitive_attr_t *out) {
    dnnl_post_ops_t ops;
    dnnl_memory_desc_t d;
    dnnl_status_t rc = dnnl_primitive_attr_create(out);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (rc == dnnl_success) rc = dnnl_post_ops_create(&ops);
    if (rc != dnnl_success) return onednn_failed("attributes", rc);
    for (int k = has_bias(p->call); k < p->call->n_post && rc == dnnl_success; k++) {
        const struct lib_post *post = &p->call->post[k];
        bool scale = post->kind == LIB_POST_CHANNEL_SCALE;
        if (scale || post->kind == LIB_POST_BIAS) { // output scales of a run are not in its kernels
            rc = onednn_channel_desc(p->call, p->dst.ndims, post->operand->shape, dnnl_f32, &d);
            if (rc == dnnl_success)
                rc =
                    dnnl_post_ops_append_binary(ops, scale ? dnnl_binary_mul : dnnl_binary_add, &d);
        } else if (post->kind == LIB_POST_SCALE) {
            rc = dnnl_primitive_attr_set_output_scales(*out, 1, 0, &post->alpha);
        } else if (post->kind != LIB_POST_TO_F32) {
            rc = onednn_add_function(ops, post);
        }
    }
    if (rc == dnnl_success) rc = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    return rc == dnnl_success ? ST_OK : onednn_failed("post-operations", rc);
}
// The vectors of a call's steps as arguments of its product.
static status_t add_vectors(const struct hlo_instr *i, const struct product *p,
                            struct primitive *c) {
    dnnl_memory_desc_t d;
    int op = 0; // of the post-operations
    if (has_bias(p->call))
        RETURN_IF_ERR(add_arg(c, DNNL_ARG_BIAS,
                              (struct int8_place){.leaf = lib_operand(i, p->call->post[0].operand)},
                              &p->bias));
    for (int k = has_bias(p->call); k < p->call->n_post; k++) {
        const struct lib_post *post = &p->call->post[k];
        if (post->operand) {
            struct int8_place at = {.leaf = lib_operand(i, post->operand)};
            onednn_channel_desc(p->call, p->dst.ndims, post->operand->shape, dnnl_f32, &d);
            RETURN_IF_ERR(add_arg(c, DNNL_ARG_ATTR_MULTIPLE_POST_OP(op) | DNNL_ARG_SRC_1, at, &d));
        }
        op += post->kind != LIB_POST_TO_F32 && post->kind != LIB_POST_SCALE;
    }
    return ST_OK;
}

static status_t conv_desc(const struct hlo_instr *h, dnnl_primitive_attr_t attr, struct product *p,
                          struct int8_state *st) {
    dnnl_dims_t stride, dilate, low, high, wdims;
    dnnl_memory_desc_t src, weights, dst;
    dnnl_convolution_desc_t d;
    const struct shape *x = h->operands[0]->shape;
    dnnl_dims_t in, out;
    int n = onednn_kernel_dims(h, wdims), rank = onednn_fold_dims(x, onednn_fold(h), in);
    onednn_fold_dims(p->result, onednn_fold(h), out);
    dnnl_memory_desc_init_by_tag(&p->src, rank, in, type_of(x), image_tag(x, rank));
    dnnl_memory_desc_init_by_tag(&p->dst, rank, out, type_of(p->result),
                                 image_tag(p->result, rank));
    dnnl_memory_desc_init_by_tag(&st->kernel.user, n, wdims, dnnl_s8, onednn_rows(n));
    dnnl_memory_desc_init_by_tag(&src, rank, in, type_of(x), dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&weights, n, wdims, dnnl_s8, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&dst, rank, out, type_of(p->result), dnnl_format_tag_any);
    onednn_conv_dims(h, stride, dilate, low, high);
    if (has_bias(p->call)) bias_desc(p, true);
    dnnl_status_t rc = dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_inference, dnnl_convolution_direct, &src, &weights,
        has_bias(p->call) ? &p->bias : NULL, &dst, stride, dilate, low, high);
    if (rc == dnnl_success) rc = onednn_conv_choose(&d, attr, false, &p->pd);
    return rc == dnnl_success ? ST_OK : onednn_failed("convolution of integers", rc);
}
static status_t dot_desc(const struct hlo_instr *h, bool bound, dnnl_primitive_attr_t attr,
                         struct product *p, struct int8_state *st) {
    struct onednn_dot d;
    dnnl_matmul_desc_t m;
    onednn_dot_dims(h, &d);
    dnnl_memory_desc_init_by_strides(&p->src, d.n, d.left, type_of(h->operands[0]->shape),
                                     d.left_strides);
    dnnl_memory_desc_init_by_strides(&p->dst, d.n, d.out, type_of(p->result), d.out_strides);
    dnnl_memory_desc_init_by_strides(&st->kernel.user, d.n, d.right, dnnl_s8, d.right_strides);
    dnnl_memory_desc_t weights = st->kernel.user;
    if (bound) dnnl_memory_desc_init_by_tag(&weights, d.n, d.right, dnnl_s8, dnnl_format_tag_any);
    if (has_bias(p->call)) bias_desc(p, false);
    dnnl_status_t rc =
        dnnl_matmul_desc_init(&m, &p->src, &weights, has_bias(p->call) ? &p->bias : NULL, &p->dst);
    if (rc == dnnl_success)
        rc = dnnl_primitive_desc_create(&p->pd, &m, attr, onednn_engine(), NULL);
    return rc == dnnl_success ? ST_OK : onednn_failed("matmul of integers", rc);
}

// By groups, its general products are slower than f32.
static bool grouped(const struct hlo_instr *h) {
    return h->op == HLO_CONVOLUTION && HLO_ATTR(h, conv)->feature_group_count > 1;
}
static int result_rank(const struct hlo_instr *h) {
    return h->op == HLO_CONVOLUTION ? h->shape->rank + (onednn_fold(h) > 1)
                                    : HLO_ATTR(h, dot)->lhs_batch_dims.n + 2;
}
static bool fast(const struct hlo_instr *h, const_dnnl_primitive_desc_t pd) {
    const char *info = onednn_info(pd);
    return *info && !onednn_is_reference(info) && (!grouped(h) || !strstr(info, "gemm"));
}
bool cpu_int8_runs(const struct lib_call *call) {
    return accepts(call->hero, false) && onednn_runs(call, NULL, NULL);
}
bool cpu_int8_asked(const struct lib_call *call) {
    const struct hlo_instr *h = call->hero;
    struct int8_state st = {.n = 0};
    struct product p = {.call = call, .result = call->result};
    dnnl_primitive_attr_t attr = NULL;
    p.dst.ndims = result_rank(h);
    status_t status = onednn_start();
    if (!status) status = make_attr(&p, &attr);
    if (!status)
        status = h->op == HLO_CONVOLUTION ? conv_desc(h, attr, &p, &st)
                                          : dot_desc(h, true, attr, &p, &st);
    if (attr) dnnl_primitive_attr_destroy(attr);
    bool ok = !status && p.pd && fast(h, p.pd);
    if (p.pd) dnnl_primitive_desc_destroy(p.pd);
    st_drop(status);
    return ok;
}

// The product between its operands and result, each in the form it wants.
static status_t assemble(struct cpu_exe *x, struct cpu_step *s, struct int8_state *st,
                         const struct product *p, bool bound) {
    const dnnl_memory_desc_t *src = dnnl_primitive_desc_query_md(p->pd, dnnl_query_src_md, 0),
                             *dst = dnnl_primitive_desc_query_md(p->pd, dnnl_query_dst_md, 0),
                             *scratch =
                                 dnnl_primitive_desc_query_md(p->pd, dnnl_query_scratchpad_md, 0);
    struct int8_place from = {.leaf = p->lhs}, kernel = {.leaf = p->rhs},
                      to = {.leaf = s->plan->n_in};
    st->kernel.packed = *dnnl_primitive_desc_query_md(p->pd, dnnl_query_weights_md, 0);
    RETURN_IF_ERR(in_form(st, &p->src, src, &from));
    if (!bound) {
        RETURN_IF_ERR(in_form(st, &st->kernel.user, &st->kernel.packed, &kernel));
    } else if (!dnnl_memory_desc_equal(&st->kernel.user, &st->kernel.packed)) {
        s->packed_in = p->rhs;
        s->pack_slot = x->n_packs++;
    }

    bool turned = !dnnl_memory_desc_equal(&p->dst, dst);
    struct int8_place result = turned ? reserve(st, dst) : to;
    struct primitive *c = &st->calls[st->n++];
    dnnl_status_t rc = dnnl_primitive_create(&c->prim, p->pd);
    if (rc != dnnl_success) return onednn_failed("primitive_create", rc);
    RETURN_IF_ERR(add_arg(c, DNNL_ARG_SRC, from, src));
    RETURN_IF_ERR(add_arg(c, DNNL_ARG_WEIGHTS, kernel, &st->kernel.packed));
    RETURN_IF_ERR(add_arg(c, DNNL_ARG_DST, result, dst));
    RETURN_IF_ERR(add_vectors(s->plan->instr, p, c));
    RETURN_IF_ERR(add_arg(c, DNNL_ARG_SCRATCHPAD, reserve(st, scratch), scratch));
    if (turned) RETURN_IF_ERR(reform(st, dst, result, &p->dst, to));

    if (st->scratch_bytes > x->scratch_bytes) x->scratch_bytes = st->scratch_bytes;
    if (*onednn_info(p->pd)) s->detail = arena_printf(&x->arena, "onednn:%s", onednn_info(p->pd));
    return ST_OK;
}

// ---- the implementation

static status_t int8_open(struct cpu_exe *x, struct cpu_step *s) {
    struct int8_state *st = arena_new_of(&x->arena, struct int8_state);
    const struct hlo_instr *i = s->plan->instr;
    struct lib_call call;
    dnnl_primitive_attr_t attr = NULL;
    RETURN_IF_ERR(onednn_start());
    if (!lib_match(i, &call)) return st_internal("accepted a call that does not match");
    const struct hlo_instr *h = call.hero;
    struct product p = {.lhs = lib_operand(i, call.lhs),
                        .rhs = lib_operand(i, call.rhs),
                        .call = &call,
                        .result = i->shape};

    s->state = st;
    s->flops = onednn_flops(i, &call);
    s->alone = s->flops < ONEDNN_ALONE_FLOPS;
    int threads = s->alone ? cpu_use_threads(1) : 0; // the library divides the work here
    p.dst.ndims = result_rank(h);
    bool bound =
        cpu_is_bound(x, s, p.rhs) && (h->op != HLO_DOT || HLO_ATTR(h, dot)->lhs_batch_dims.n == 0);

    status_t status = make_attr(&p, &attr);
    if (!status)
        status = h->op == HLO_CONVOLUTION ? conv_desc(h, attr, &p, st)
                                          : dot_desc(h, bound, attr, &p, st);
    if (attr) dnnl_primitive_attr_destroy(attr);

    s->declined = h->op == HLO_CONVOLUTION && (status || !p.pd || !fast(h, p.pd));
    if (s->declined) {
        st_drop(status);
        status = ST_OK;
    } else if (!status) {
        status = assemble(x, s, st, &p, bound);
    }
    if (p.pd) dnnl_primitive_desc_destroy(p.pd);
    if (s->alone) cpu_use_threads(threads);
    return status;
}
static void int8_close(struct cpu_step *s) {
    struct int8_state *st = s->state;
    for (int k = 0; st && k < st->n; k++) {
        for (int a = 0; a < st->calls[k].n; a++)
            dnnl_memory_destroy(st->calls[k].args[a].mem);
        if (st->calls[k].prim) dnnl_primitive_destroy(st->calls[k].prim);
    }
}
static status_t int8_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct int8_state *st = s->state;
    int threads = s->alone ? cpu_use_threads(1) : 0;
    dnnl_status_t rc = dnnl_success;
    for (int k = 0; k < st->n && rc == dnnl_success; k++) {
        const struct primitive *c = &st->calls[k];
        dnnl_exec_arg_t args[MAX_ARGS];
        for (int a = 0; a < c->n; a++) {
            struct int8_place at = c->args[a].at;
            void *p = at.leaf < 0 ? (char *)x->scratch + at.offset : bufs[at.leaf];
            dnnl_memory_set_data_handle_v2(c->args[a].mem, p, onednn_stream());
            args[a] = (dnnl_exec_arg_t){c->args[a].arg, c->args[a].mem};
        }
        rc = dnnl_primitive_execute(c->prim, onednn_stream(), c->n, args);
    }
    if (s->alone) cpu_use_threads(threads);
    return rc == dnnl_success ? ST_OK : onednn_failed("execute", rc);
}
const struct cpu_impl cpu_impl_int8 = {"onednn", int8_accepts,      int8_open,   int8_close,
                                       int8_run, onednn_pack_bytes, onednn_pack, onednn_same_pack};
