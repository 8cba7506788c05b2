// SPDX-License-Identifier: Apache-2.0
// oneDNN 2.6 behind the implementation list: convolutions, dots, maximum pooling and layout
// changes. One primitive a step, made at load; buffers are attached at each run; scratchpads are
// ours. A convolution's kernel is reordered into the form the primitive asked for: once at PREPARE
// when it is a bound weight, at each run when the program computes it. Everything here is about
// f32, and bf16 with sums in f32 (precision=fast); 8-bit integers: cpu_onednn_int8.c.
#include "devices/cpu/onednn/cpu_onednn.h"

#include <stdlib.h>

#include "devices/cpu/routines/cpu_windows.h"

enum { MAX_ARGS = 4 + LIB_MAX_POST, MAX_NDIMS = DNNL_MAX_NDIMS };

struct onednn_arg {
    int arg;
    int leaf;
    dnnl_memory_t mem;
}; // leaf: index into bufs, or one of
enum { LEAF_SCRATCH = -1, LEAF_REPACKED = -2 };
struct onednn_state {
    struct onednn_packing weights; // first; both the same: not packed
    dnnl_primitive_t prim;
    struct onednn_arg args[MAX_ARGS];
    int n_args;
    dnnl_primitive_t repack; // weights.user -> weights.packed before each run; NULL = not needed
    dnnl_memory_t repack_from;
    int repack_leaf;
    int64_t scratch_bytes; // of the primitive, rounded up; the repacked kernel lies behind
    int sum_leaf;          // operand that must be in the destination before the call, -1 = none
    int64_t out_bytes;
    int out_leaf;
    enum onednn_beside beside;    // onednn_reads_beside
    struct onednn_short *without; // made where NaN is met first
};
// The same call up to its first step that loses NaN, by an implementation that spreads none.
struct onednn_short {
    dnnl_primitive_t prim; // NULL: the library has none that takes the weights as they are packed
    status_t why;          // there is none
    dnnl_memory_t scratch;
    void *memory;
    dnnl_primitive_t turn; // from the form that the weights are packed in to `weights`; NULL: none
    dnnl_memory_t weights;
    void *turned;
};

// ---- which instructions

static bool usable(const struct shape *s) {
    int block;
    bool type = s->dtype == DT_F32 || (s->dtype == DT_BF16 && cpu_has_bf16());
    return type && s->rank <= 5 && shape_elements(s) > 0 &&
           lib_form_of(s->layout, s->rank, &block) != FORM_OTHER;
}

// Are results of convolutions in blocks that their channels do not fill?
static bool fills(const struct shape *s) {
    int block = 1;
    return lib_form_of(s->layout, s->rank, &block) == FORM_BLOCKED && s->dims[1] % block != 0;
}
static bool reorder_ok(const struct hlo_instr *i) {
    return i->op == HLO_COPY && i->shape->rank >= 3 &&
           !layout_equal(i->shape->layout, i->operands[0]->shape->layout, i->shape->rank);
}

// A maximum; or a sum, as an average over the whole window (padding counts) times its elements.
static status_t pool_prim(const struct hlo_instr *i, dnnl_memory_desc_t *src,
                          dnnl_memory_desc_t *dst, dnnl_primitive_desc_t *pd) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    dnnl_dims_t stride, kernel, low, high;
    dnnl_pooling_desc_t d;
    dnnl_primitive_attr_t attr;
    struct lib_call scale = {.hero = i, .n_post = 1, .post = {{.kind = LIB_POST_SCALE}}};
    bool sum = i->called[0]->root->op == HLO_ADD;
    onednn_desc_of(i->operands[0]->shape, i->operands[0]->shape->layout, 1, src);
    onednn_desc_of(i->shape, i->shape->layout, 1, dst);
    scale.post[0].alpha = 1;
    for (int k = 0; k < i->shape->rank - 2; k++) {
        stride[k] = w->v[k + 2].stride;
        kernel[k] = w->v[k + 2].size;
        low[k] = w->v[k + 2].pad_low;
        high[k] = w->v[k + 2].pad_high;
        scale.post[0].alpha *= (float)kernel[k];
    }
    RETURN_IF_ERR(onednn_start());
    RETURN_IF_ERR(onednn_make_attr(sum ? &scale : NULL, dst, &attr));
    dnnl_status_t rc = dnnl_pooling_forward_desc_init(
        &d, dnnl_forward_inference, sum ? dnnl_pooling_avg_include_padding : dnnl_pooling_max, src,
        dst, stride, kernel, low, high);
    if (rc == dnnl_success) rc = dnnl_primitive_desc_create(pd, &d, attr, onednn_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return rc != dnnl_success ? onednn_failed("pooling", rc) : ST_OK;
}
// Its plain loops, which take images that are no blocks of channels, are slower than a kernel.
static bool pool_fast(const_dnnl_primitive_desc_t pd) {
    return *onednn_info(pd) && !onednn_is_reference(onednn_info(pd));
}
static bool pool_ok(const struct hlo_instr *i) {
    dnnl_memory_desc_t src, dst;
    dnnl_primitive_desc_t pd = NULL;
    if (!lib_pool(i)) return false;
    status_t st = pool_prim(i, &src, &dst, &pd);
    bool ok = !st && pool_fast(pd);
    st_drop(st);
    if (pd) dnnl_primitive_desc_destroy(pd);
    return ok;
}

static bool shapes_ok(const struct hlo_instr *i) {
    if (shape_is_tuple(i->shape) || !usable(i->shape)) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (shape_is_tuple(i->operands[k]->shape) ||
            (i->operands[k]->shape->rank > 0 && !usable(i->operands[k]->shape)))
            return false;
    return true;
}

// The form in which the library runs it best: blocks of channels; with the input in rows, where
// that has too few of them to fill a block (images); channels last, which its matrix kernels read
// whatever the number of channels and groups is, and in bf16 few channels by far the fastest.
// False: rows.
//
// AMX's tiles have 32 terms in a row, of which a block of 16 channels fills half: it reads channels
// last. Convolutions of each channel alone lie between such ones and do as well so.
static bool last_by_tiles(const struct lib_call *c) {
    const struct layout *last = lib_layout(FORM_LAST, c->hero->operands[0]->shape->rank, 0);
    const struct shape *k = c->hero->operands[1]->shape;
    enum onednn_answer says = onednn_asked(c, last, last);
    bool alone = HLO_ATTR(c->hero, conv)->feature_group_count == k->dims[0] && k->dims[1] == 1;
    return says == ONEDNN_TILES || (says == ONEDNN_RUNS && alone);
}
static bool best_form(const struct target *t, const struct lib_call *c, enum conv_form *in,
                      enum conv_form *out) {
    static const enum conv_form forms[][2] = {
        {FORM_BLOCKED, FORM_BLOCKED}, {FORM_ROWS, FORM_BLOCKED}, {FORM_LAST, FORM_LAST}};
    const struct shape *x = c->hero->operands[0]->shape;
    bool few = x->dims[1] <= 4, bf16 = x->dtype == DT_BF16;
    *in = *out = FORM_BLOCKED;
    if (cpu_depthwise_takes(t, c)) return true;
    if (bf16 && cpu_has_tiles() && last_by_tiles(c)) {
        *in = *out = FORM_LAST;
        return true;
    }
    for (size_t k = few ? 1 + bf16 : 0; k < sizeof forms / sizeof forms[0]; k++) {
        *in = forms[k][0], *out = forms[k][1];
        if ((*in == FORM_BLOCKED || *out == FORM_BLOCKED) && !t->conv_block) continue;
        if (onednn_runs(c, lib_layout(*in, x->rank, t->conv_block),
                        lib_layout(*out, x->rank, t->conv_block)))
            return true;
    }
    return false;
}
// ask: whether it has a kernel made for speed. Opening the call shows the same.
// Both operands of f32 or both of bf16; the result bf16 only behind these.
static bool types_ok(const struct lib_call *c) {
    enum dtype t = c->hero->operands[0]->shape->dtype;
    return c->hero->shape->dtype == DT_F32 && t == c->hero->operands[1]->shape->dtype &&
           (c->result->dtype == DT_F32 || t == DT_BF16);
}
static bool accepts_call(const struct hlo_instr *i, bool ask) {
    struct lib_call c;
    if (!shapes_ok(i) || !lib_match(i, &c) || !types_ok(&c)) return false;
    if (c.hero->op == HLO_DOT) return onednn_dot_ok(c.hero);
    return !lib_direct(c.hero) && onednn_conv_ok(c.hero) &&
           (!ask || onednn_runs(&c, c.hero->operands[0]->shape->layout, i->shape->layout));
}
bool cpu_library_runs(const struct target *t, const struct lib_call *c) {
    enum conv_form in, out;
    if (c->hero->shape->dtype != DT_F32)
        return cpu_thin8_runs(c) || cpu_int8_runs(c) || cpu_pairs_runs(c);
    if (cpu_gemm_filter(c->hero) && cpu_gemm_accepts(c->hero)) return false; // without steps
    if (!shapes_ok(c->hero) || !types_ok(c)) return false;
    if (c->hero->op == HLO_DOT) return onednn_dot_ok(c->hero) && onednn_runs(c, NULL, NULL);
    if (lib_direct(c->hero) || !onednn_conv_ok(c->hero)) return false;
    return best_form(t, c, &in, &out) || onednn_runs(c, NULL, NULL);
}
// What the library takes gets no kernel of ours.
bool cpu_library_accepts(UNUSED const struct target *t, const struct hlo_instr *i) {
    return cpu_depthwise_accepts(i) || accepts_call(i, true) || cpu_attention_accepts(i) ||
           cpu_int8_accepts(i) || cpu_pairs_accepts(i) || cpu_gemm_accepts(i) ||
           cpu_sort_accepts(i) || cpu_fft_accepts(i) || cpu_table_accepts(i) ||
           cpu_channels_accepts(i) || cpu_transpose_alone(i) || cpu_lapack_accepts(i) ||
           cpu_windows_accepts(i) || (shapes_ok(i) && (pool_ok(i) || reorder_ok(i)));
}
// 8-bit integers: channels last.
bool cpu_wants_form(const struct target *t, const struct hlo_instr *i, enum conv_form *out_input,
                    enum conv_form *out_output) {
    struct lib_call c;
    *out_input = *out_output = FORM_LAST;
    if (!lib_match(i, &c) || c.hero->op != HLO_CONVOLUTION) return false;
    if (c.hero->shape->dtype == DT_S32)
        return t->conv_block && (cpu_int8_accepts(i) || cpu_pairs_accepts(i));
    if (c.hero->shape->dtype != DT_F32 || lib_direct(c.hero)) return false;
    return shapes_ok(i) && types_ok(&c) && onednn_conv_ok(c.hero) &&
           best_form(t, &c, out_input, out_output);
}
static bool onednn_accepts(UNUSED const struct cpu_exe *x, const struct hlo_instr *i,
                           const char **why) {
    *why = "the library has no primitive for it";
    return accepts_call(i, false) || (shapes_ok(i) && (lib_pool(i) || reorder_ok(i)));
}

// ---- opening

static status_t add_arg(struct onednn_state *st, int arg, int leaf, const dnnl_memory_desc_t *d) {
    struct onednn_arg *a = &st->args[st->n_args++];
    *a = (struct onednn_arg){.arg = arg, .leaf = leaf};
    dnnl_status_t rc = dnnl_memory_create(&a->mem, d, onednn_engine(), DNNL_MEMORY_NONE);
    return rc == dnnl_success ? ST_OK : onednn_failed("memory_create", rc);
}

// Scratchpad, weights form, arguments that all calls share.
static status_t finish(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st,
                       const_dnnl_primitive_desc_t pd, const struct lib_call *c,
                       const dnnl_memory_desc_t *result) {
    const struct hlo_instr *i = s->plan->instr;
    dnnl_status_t rc = dnnl_primitive_create(&st->prim, pd);
    if (rc != dnnl_success) return onednn_failed("primitive_create", rc);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    st->scratch_bytes = ((int64_t)dnnl_memory_desc_get_size(scratch) + 63) / 64 * 64;
    if (st->scratch_bytes > x->scratch_bytes) x->scratch_bytes = st->scratch_bytes;
    RETURN_IF_ERR(add_arg(st, DNNL_ARG_SCRATCHPAD, LEAF_SCRATCH, scratch));
    if (*onednn_info(pd)) s->detail = arena_printf(&x->arena, "onednn:%s", onednn_info(pd));
    st->sum_leaf = -1;
    s->swallows = c && onednn_swallows(c, s->detail) < c->n_post;
    st->out_leaf = s->plan->n_in;
    st->out_bytes = s->plan->out[0].size_bytes;
    for (int k = 0; c && k < c->n_post; k++) {
        int leaf = c->post[k].operand ? lib_operand(i, c->post[k].operand) : -1;
        dnnl_memory_desc_t d;
        if (onednn_adds_in_place(c, k)) st->sum_leaf = leaf;
        if (!onednn_post_desc(c, k, result, &d)) continue;
        RETURN_IF_ERR(
            add_arg(st, DNNL_ARG_ATTR_MULTIPLE_POST_OP(k - onednn_first_post(c)) | DNNL_ARG_SRC_1,
                    leaf, &d));
    }
    return ST_OK;
}

static void set_packed(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st, int leaf,
                       const dnnl_memory_desc_t *wanted) {
    st->weights.packed = *wanted;
    if (dnnl_memory_desc_equal(&st->weights.user, wanted)) return;
    s->packed_in = leaf;
    s->pack_slot = x->n_packs++;
}

// A kernel that the program computes is reordered at each run, behind the scratchpad. Only the
// plain form's reference implementation would take it as it is, at a hundredth of the speed.
static status_t repack_open(struct cpu_exe *x, struct onednn_state *st, int leaf,
                            const dnnl_memory_desc_t *wanted) {
    st->weights.packed = *wanted;
    if (dnnl_memory_desc_equal(&st->weights.user, wanted)) return ST_OK;
    RETURN_IF_ERR(onednn_reorder_prim(&st->weights.user, wanted, &st->repack));
    dnnl_status_t rc =
        dnnl_memory_create(&st->repack_from, &st->weights.user, onednn_engine(), DNNL_MEMORY_NONE);
    if (rc != dnnl_success) return onednn_failed("reorder", rc);
    st->repack_leaf = leaf;
    int64_t total = st->scratch_bytes + (int64_t)dnnl_memory_desc_get_size(wanted);
    if (total > x->scratch_bytes) x->scratch_bytes = total;
    return ST_OK;
}

// ---- convolution and dot

static status_t open_prim(struct cpu_exe *x, struct cpu_step *s, const struct lib_call *c,
                          struct onednn_state *st) {
    const struct hlo_instr *i = s->plan->instr;
    int lhs = lib_operand(i, c->lhs), rhs = lib_operand(i, c->rhs);
    bool conv = c->hero->op == HLO_CONVOLUTION;
    bool bound = cpu_is_bound(x, s, rhs) && (conv || HLO_ATTR(c->hero, dot)->lhs_batch_dims.n == 0);
    struct onednn_ask q = {
        .in = i->operands[lhs]->shape->layout, .out = i->shape->layout, .bound = bound};
    struct onednn_prim p;
    status_t status = onednn_prim_of(c, &q, &p);
    if (conv && (status || !onednn_fast(c, &p))) { // as onednn_runs says it
        s->declined = true;
        dnnl_primitive_desc_destroy(p.pd);
        st_drop(status);
        return ST_OK;
    }
    RETURN_IF_ERR(status);

    const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(p.pd, dnnl_query_weights_md, 0);
    st->weights.user = p.user;
    if (bound) set_packed(x, s, st, rhs, wanted);

    status = finish(x, s, st, p.pd, c, &p.dst);
    st->beside = conv ? onednn_reads_beside(c->hero, p.info) : BESIDE_NOT;
    s->swallows = s->swallows || st->beside || fills(i->shape);
    if (!status && conv && !bound) status = repack_open(x, st, rhs, wanted);
    bool back = lib_transposed(c->hero);
    if (!status) status = add_arg(st, back ? DNNL_ARG_DIFF_DST : DNNL_ARG_SRC, lhs, &p.src);
    if (!status) status = add_arg(st, DNNL_ARG_WEIGHTS, st->repack ? LEAF_REPACKED : rhs, wanted);
    if (!status && p.has_bias)
        status = add_arg(st, DNNL_ARG_BIAS, lib_operand(i, c->post[0].operand), &p.bias);
    if (!status)
        status = add_arg(st, back ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DST, s->plan->n_in, &p.dst);
    dnnl_primitive_desc_destroy(p.pd);
    return status;
}

// ---- pooling and reorders

static status_t pool_open(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st) {
    dnnl_memory_desc_t src, dst;
    dnnl_primitive_desc_t pd = NULL;
    RETURN_IF_ERR(pool_prim(s->plan->instr, &src, &dst, &pd));
    s->declined = !pool_fast(pd); // as pool_ok says it
    if (s->declined) {
        dnnl_primitive_desc_destroy(pd);
        return ST_OK;
    }
    status_t status = finish(x, s, st, pd, NULL, NULL);
    if (!status) status = add_arg(st, DNNL_ARG_SRC, 0, &src);
    if (!status) status = add_arg(st, DNNL_ARG_DST, s->plan->n_in, &dst);
    s->swallows = s->plan->instr->called[0]->root->op == HLO_MAXIMUM;
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static status_t reorder_open(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st) {
    dnnl_memory_desc_t src, dst;
    dnnl_primitive_desc_t pd = NULL;
    const struct shape *from = s->plan->instr->operands[0]->shape, *to = s->plan->instr->shape;
    onednn_desc_of(from, from->layout, 1, &src);
    onednn_desc_of(to, to->layout, 1, &dst);
    RETURN_IF_ERR(onednn_reorder_desc(&src, &dst, &pd));
    status_t status = finish(x, s, st, pd, NULL, NULL);
    if (!status) status = add_arg(st, DNNL_ARG_FROM, 0, &src);
    if (!status) status = add_arg(st, DNNL_ARG_TO, s->plan->n_in, &dst);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

// ---- the implementation

static void close_short(struct onednn_short *w) {
    if (!w) return;
    if (w->prim) dnnl_primitive_destroy(w->prim);
    if (w->turn) dnnl_primitive_destroy(w->turn);
    if (w->scratch) dnnl_memory_destroy(w->scratch);
    if (w->weights) dnnl_memory_destroy(w->weights);
    free(w->memory);
    free(w->turned);
    st_drop(w->why);
    free(w);
}
static void onednn_close(struct cpu_step *s) {
    struct onednn_state *st = s->state;
    if (!st) return;
    close_short(st->without);
    for (int k = 0; k < st->n_args; k++)
        dnnl_memory_destroy(st->args[k].mem);
    if (st->prim) dnnl_primitive_destroy(st->prim);
    if (st->repack) dnnl_primitive_destroy(st->repack);
    if (st->repack_from) dnnl_memory_destroy(st->repack_from);
}
static status_t open_call(struct cpu_exe *x, struct cpu_step *s, struct onednn_state *st) {
    struct lib_call c;
    if (lib_pool(s->plan->instr)) return pool_open(x, s, st);
    if (reorder_ok(s->plan->instr)) return reorder_open(x, s, st);
    if (!lib_match(s->plan->instr, &c)) return st_internal("accepted a call that does not match");
    s->flops = onednn_flops(s->plan->instr, &c);
    s->alone = s->flops < ONEDNN_ALONE_FLOPS;
    int threads = s->alone ? cpu_use_threads(1) : 0; // the library divides the work here
    status_t status = open_prim(x, s, &c, st);
    if (s->alone) cpu_use_threads(threads);
    return status;
}
static status_t onednn_open(struct cpu_exe *x, struct cpu_step *s) {
    struct onednn_state *st = arena_new_of(&x->arena, struct onednn_state);
    RETURN_IF_ERR(onednn_start());
    s->state = st;
    return open_call(x, s, st);
}
static status_t turn(dnnl_primitive_t reorder, dnnl_memory_t from, dnnl_memory_t to) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    dnnl_status_t rc = dnnl_primitive_execute(reorder, onednn_stream(), 2, args);
    return rc == dnnl_success ? ST_OK : onednn_failed("reorder", rc);
}
// w: instead of the call's own primitive; or NULL.
static status_t execute(struct cpu_exe *x, struct cpu_step *s, const struct onednn_short *w,
                        void **bufs) {
    struct onednn_state *st = s->state;
    dnnl_exec_arg_t args[MAX_ARGS];
    if (st->sum_leaf >= 0 && bufs[st->sum_leaf] != bufs[st->out_leaf])
        memcpy(bufs[st->out_leaf], bufs[st->sum_leaf], (size_t)st->out_bytes);
    for (int k = 0; k < st->n_args; k++) {
        const struct onednn_arg *a = &st->args[k];
        if (w && a->leaf == LEAF_SCRATCH) {
            args[k] = (dnnl_exec_arg_t){a->arg, w->scratch};
            continue;
        }
        void *p = a->leaf == LEAF_SCRATCH    ? x->scratch
                  : a->leaf == LEAF_REPACKED ? (char *)x->scratch + st->scratch_bytes
                                             : bufs[a->leaf];
        dnnl_memory_set_data_handle_v2(a->mem, p, onednn_stream());
        args[k] = (dnnl_exec_arg_t){a->arg, a->mem};
        if (a->leaf == LEAF_REPACKED) {
            dnnl_memory_set_data_handle_v2(st->repack_from, bufs[st->repack_leaf], onednn_stream());
            RETURN_IF_ERR(turn(st->repack, st->repack_from, a->mem));
        }
        if (a->arg != DNNL_ARG_WEIGHTS || !w || !w->turn) continue;
        RETURN_IF_ERR(turn(w->turn, a->mem, w->weights));
        args[k].memory = w->weights;
    }

    int threads = s->alone ? cpu_use_threads(1) : 0;
    dnnl_status_t rc =
        dnnl_primitive_execute(w ? w->prim : st->prim, onednn_stream(), st->n_args, args);
    if (s->alone) cpu_use_threads(threads);
    return rc == dnnl_success ? ST_OK : onednn_failed("execute", rc);
}

// ---- NaN (cpu_nan.c)

// Its logistic behind products of windows that it copies out (gemm:jit) loses NaN too.
int onednn_swallows(const struct lib_call *c, const char *detail) {
    bool copies = detail && strstr(detail, "gemm:jit");
    int k = 0;
    while (k < c->n_post && c->post[k].kind != LIB_POST_RELU && c->post[k].kind != LIB_POST_CLIP &&
           !(copies && c->post[k].kind == LIB_POST_LOGISTIC))
        k++;
    return k;
}
// Weights in the form that another primitive wants.
static status_t own_weights(const struct onednn_state *st, const_dnnl_primitive_desc_t pd,
                            struct onednn_short *w) {
    const dnnl_memory_desc_t *to = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    w->turned = cpu_memory((int64_t)dnnl_memory_desc_get_size(to) + 64);
    if (!w->turned) return st_oom();
    dnnl_status_t rc = dnnl_memory_create(&w->weights, to, onednn_engine(), w->turned);
    if (rc != dnnl_success) return onednn_failed("memory_create", rc);
    return onednn_reorder_prim(&st->weights.packed, to, &w->turn);
}
static status_t short_prim(const struct onednn_state *st, const struct cpu_step *s,
                           const struct lib_call *c, struct onednn_short *w) {
    const struct hlo_instr *i = s->plan->instr;
    bool packed = st->weights.packed.ndims > 0;
    struct onednn_ask q = {.in = i->operands[lib_operand(i, c->lhs)]->shape->layout,
                           .out = i->shape->layout,
                           .no_tiles = st->beside,
                           .weights = packed && !st->beside ? &st->weights.packed : NULL};
    struct onednn_prim p;
    status_t status = onednn_prim_of(c, &q, &p);
    if (!status && st->beside) status = own_weights(st, p.pd, w);
    const dnnl_memory_desc_t *scratch =
        status ? NULL : dnnl_primitive_desc_query_md(p.pd, dnnl_query_scratchpad_md, 0);
    dnnl_status_t rc = dnnl_success;
    if (!status && !scratch) rc = dnnl_unimplemented;
    if (scratch) rc = dnnl_memory_create(&w->scratch, scratch, onednn_engine(), DNNL_MEMORY_NONE);
    if (scratch && rc == dnnl_success) {
        w->memory = cpu_memory((int64_t)dnnl_memory_desc_get_size(scratch) + 64);
        if (!w->memory) rc = dnnl_out_of_memory;
    }
    if (scratch && rc == dnnl_success) {
        dnnl_memory_set_data_handle_v2(w->scratch, w->memory, onednn_stream());
        rc = dnnl_primitive_create(&w->prim, p.pd);
    }
    if (p.pd) dnnl_primitive_desc_destroy(p.pd);
    return status ? status : rc == dnnl_success ? ST_OK : onednn_failed("primitive_create", rc);
}
// Runs are on the thread that loads, so that primitives are made by one at a time here too.
static const struct onednn_short *short_of(const struct cpu_step *s, const struct lib_call *c) {
    struct onednn_state *st = s->state;
    if (st->without) return st->without;
    st->without = calloc(1, sizeof *st->without);
    if (!st->without) return NULL;
    int threads = s->alone ? cpu_use_threads(1) : 0;
    st->without->why = short_prim(st, s, c, st->without);
    if (s->alone) cpu_use_threads(threads);
    return st->without;
}
// By the evaluator, of weights as they were. Not made for speed.
static status_t run_plain(struct cpu_exe *x, struct cpu_step *s, int rhs, void **bufs) {
    const struct onednn_state *st = s->state;
    void *all[CPU_MAX_BUFS], *plain = NULL;
    memcpy(all, bufs, sizeof *all * (size_t)(s->plan->n_in + s->plan->n_out));
    if (s->packed_in == rhs) {
        plain = cpu_memory((int64_t)dnnl_memory_desc_get_size(&st->weights.user));
        if (!plain) return st_oom();
        all[rhs] = plain;
        status_t status =
            onednn_reorder_once(&st->weights.packed, &st->weights.user, bufs[rhs], plain);
        if (status) {
            free(plain);
            return status;
        }
    }
    status_t status = cpu_impl_reference.run(x, s, all);
    free(plain);
    return status;
}
// Channels that fill up the last block are zeros to who reads them; as the library writes them they
// are zero weights times the image, NaN where that is not finite.
static void clear_fill(const struct shape *s, char *out) {
    int block = 1;
    (void)lib_form_of(s->layout, s->rank, &block);
    int64_t width = dtype_size(s->dtype), pixels = 1, used = s->dims[1] % block,
            blocks = ceil_div(s->dims[1], block);
    for (int d = 2; d < s->rank; d++)
        pixels *= s->dims[d];
    for (int64_t image = 1; image <= s->dims[0]; image++)
        for (int64_t p = 0; p < pixels; p++) {
            char *at = out + ((image * blocks - 1) * pixels + p) * block * width;
            memset(at + used * width, 0, (size_t)((block - used) * width));
        }
}
static status_t run_with_nan(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    struct lib_call c, up_to;
    if (lib_pool(s->plan->instr)) return cpu_impl_reference.run(x, s, bufs);
    if (!lib_match(s->plan->instr, &c)) return execute(x, s, NULL, bufs);
    const struct onednn_state *st = s->state;
    if (st->beside == BESIDE_ODD) return run_plain(x, s, lib_operand(s->plan->instr, c.rhs), bufs);
    up_to = c;
    up_to.n_post = onednn_swallows(&c, s->detail);
    if (up_to.n_post == c.n_post && !st->beside) return execute(x, s, NULL, bufs);
    const struct onednn_short *w = short_of(s, &up_to);
    if (!w) return st_oom();
    if (!w->prim && st->beside)
        return st_note(st_copy(w->why), "a convolution that keeps NaN apart");
    if (!w->prim) w = NULL;
    RETURN_IF_ERR(execute(x, s, w, bufs));
    if (w) onednn_steps(&c, up_to.n_post, s->plan->instr, bufs);
    return ST_OK;
}
static status_t onednn_run(struct cpu_exe *x, struct cpu_step *s, void **bufs) {
    const struct onednn_state *st = s->state;
    if (!s->swallows || !cpu_meets_nan(x, s, bufs)) return execute(x, s, NULL, bufs);
    RETURN_IF_ERR(run_with_nan(x, s, bufs));
    if (fills(s->plan->instr->shape)) clear_fill(s->plan->instr->shape, bufs[st->out_leaf]);
    return ST_OK;
}
const struct cpu_impl cpu_impl_onednn = {"onednn",     onednn_accepts,  onednn_open,
                                         onednn_close, onednn_run,      onednn_pack_bytes,
                                         onednn_pack,  onednn_same_pack};
