// SPDX-License-Identifier: Apache-2.0
// Attention (compiler/passes/fusion/attention.h) by blocks of rows: scores of a block by the
// library, the row fusion's generated kernel on them, the product with the values by the library.
// What lies between is a thread's own and stays in its second cache, so memory grows with the keys,
// not with their square. A unit is a block of one head; a thread packs keys and values of a head
// once for the blocks that it takes. The last block of a head begins where it ends with the rows:
// rows that two blocks have get the same values twice.
#include <stdatomic.h>

#include "compiler/codegen/abi.h"
#include "compiler/passes/fusion/attention.h"
#include "devices/cpu/onednn/cpu_onednn.h"

enum { BLOCK_ELEMENTS = 131072, MOST_ROWS = 128, MAX_OPERANDS = 16, LINE = 64 };
enum { MEM_Q, MEM_K, MEM_SCORES, MEM_SCRATCH1, MEM_P, MEM_V, MEM_OUT, MEM_SCRATCH2, MEMS };

// One of the products: n columns out of k terms; its right operand as the program has it lies at
// heads' offsets by strides.
struct side {
    dnnl_primitive_t prim, pack;
    dnnl_memory_desc_t left, user, packed, dst, scratch;
    const struct hlo_instr *hero;
    int leaf; // of the right operand
};
struct own { // a thread's
    dnnl_stream_t stream;
    dnnl_memory_t mem[MEMS], user[2];
    int64_t head; // whose keys and values are packed
};
struct attention_state {
    struct attention_call c;
    struct side side[2];
    int64_t block, blocks, depth, width, key_bytes, own_bytes;
    int64_t at[MEMS], at_kernel; // in a thread's memory
    int q_leaf;
    const struct kernel_info *info;
    void *code;
    int n_threads;
    struct own *own;
};

// The fusion's operand that x, of its body, is.
static int leaf_of(const struct hlo_instr *x) {
    return x->op == HLO_PARAMETER ? (int)x->param_number : -1;
}
static int side_leaf(const struct attention_call *c, int side, int operand) {
    if (side) return leaf_of(c->product->operands[operand]);
    const struct hlo_instr *x = operand ? c->first.rhs : c->first.lhs;
    if (c->scores->op != HLO_FUSION) return leaf_of(x);
    return leaf_of(c->scores->operands[lib_operand(c->scores, x)]);
}

bool cpu_attention_accepts(const struct hlo_instr *i) {
    struct attention_call c;
    if (!attention_match(i, &c) || c.rows->n_operands >= MAX_OPERANDS) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (shape_is_tuple(i->operands[k]->shape)) return false;
    for (int k = 0; k < c.rows->n_operands; k++) {
        const struct hlo_instr *x = c.rows->operands[k];
        bool known = x->op == HLO_PARAMETER || x->op == HLO_CONSTANT;
        if (!known && shape_elements(x->shape) != shape_elements(c.rows->shape)) return false;
    }
    return side_leaf(&c, 0, 0) >= 0 && side_leaf(&c, 0, 1) >= 0 && side_leaf(&c, 1, 1) >= 0;
}
static bool attention_accepts(const struct cpu_exe *x, const struct hlo_instr *i,
                              const char **why) {
    struct attention_call c;
    *why = "not attention over a large square";
    if (!cpu_attention_accepts(i) || !attention_match(i, &c)) return false;
    const struct kernel_info *k = cpu_find_kernel(x, c.rows);
    *why = "attention whose rows have no kernel";
    return k && k->extent == c.heads * c.n_rows && k->n_bufs == c.rows->n_operands + 1;
}

// ---- opening

static int64_t up(int64_t n) {
    return (n + LINE - 1) / LINE * LINE;
}
static status_t make_side(struct attention_state *s, int k, int64_t terms, int64_t cols) {
    struct side *d = &s->side[k];
    const struct hlo_attr_dot *a = HLO_ATTR(d->hero, dot);
    dnnl_dims_t dims, strides, wide = {terms, cols}, in = {s->block, terms}, out = {s->block, cols};
    int nb = a->rhs_batch_dims.n;
    onednn_matrix(d->hero->operands[1]->shape, a->rhs_batch_dims, a->rhs_contracting_dims.v[0],
                  false, dims, strides);
    dnnl_memory_desc_init_by_strides(&d->user, 2, wide, dnnl_f32, strides + nb);
    dnnl_memory_desc_init_by_tag(&d->left, 2, in, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_init_by_tag(&d->dst, 2, out, dnnl_f32, dnnl_ab);
    dnnl_memory_desc_t any;
    dnnl_memory_desc_init_by_tag(&any, 2, wide, dnnl_f32, dnnl_format_tag_any);

    dnnl_primitive_attr_t attr;
    dnnl_matmul_desc_t md;
    dnnl_primitive_desc_t pd = NULL;
    RETURN_IF_ERR(onednn_make_attr(k ? NULL : &s->c.first, &d->dst, &attr));

    dnnl_status_t rc = dnnl_matmul_desc_init(&md, &d->left, &any, NULL, &d->dst);
    if (rc == dnnl_success) rc = dnnl_primitive_desc_create(&pd, &md, attr, onednn_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    if (rc != dnnl_success) return onednn_failed("attention", rc);
    d->packed = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    d->scratch = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    rc = dnnl_primitive_create(&d->prim, pd);
    dnnl_primitive_desc_destroy(pd);

    if (rc != dnnl_success) return onednn_failed("attention", rc);
    return onednn_reorder_prim(&d->user, &d->packed, &d->pack);
}
static dnnl_status_t make_own(struct attention_state *s, struct own *o) {
    const dnnl_memory_desc_t *mds[MEMS] = {
        &s->side[0].left, &s->side[0].packed, &s->side[0].dst, &s->side[0].scratch,
        &s->side[1].left, &s->side[1].packed, &s->side[1].dst, &s->side[1].scratch};
    dnnl_status_t rc = dnnl_stream_create(&o->stream, onednn_engine(), dnnl_stream_default_flags);
    for (int k = 0; k < MEMS && rc == dnnl_success; k++)
        rc = dnnl_memory_create(&o->mem[k], mds[k], onednn_engine(), DNNL_MEMORY_NONE);
    for (int k = 0; k < 2 && rc == dnnl_success; k++)
        rc = dnnl_memory_create(&o->user[k], &s->side[k].user, onednn_engine(), DNNL_MEMORY_NONE);
    return rc;
}
// Where each thread has what, all of it behind the others' scratch of the executable.
static void lay_out(struct cpu_exe *x, struct attention_state *s) {
    int64_t at = 0;
    const int64_t bytes[MEMS] = {s->block * s->depth * 4,
                                 (int64_t)dnnl_memory_desc_get_size(&s->side[0].packed),
                                 s->block * s->c.n_keys * 4 + LINE,
                                 (int64_t)dnnl_memory_desc_get_size(&s->side[0].scratch),
                                 s->block * s->c.n_keys * 4 + LINE,
                                 (int64_t)dnnl_memory_desc_get_size(&s->side[1].packed),
                                 0, // the result's own place
                                 (int64_t)dnnl_memory_desc_get_size(&s->side[1].scratch)};
    for (int k = 0; k < MEMS; k++) {
        s->at[k] = at;
        at += up(bytes[k]);
    }
    s->at_kernel = at;
    s->own_bytes = at + up(s->info->scratch_bytes);
    if (s->own_bytes * s->n_threads > x->scratch_bytes)
        x->scratch_bytes = s->own_bytes * s->n_threads;
}
static status_t attention_open(struct cpu_exe *x, struct cpu_step *step) {
    struct attention_state *s = arena_new_of(&x->arena, struct attention_state);
    step->state = s;
    RETURN_IF_ERR(onednn_start());
    attention_match(step->plan->instr, &s->c);
    s->info = cpu_find_kernel(x, s->c.rows);
    s->code = code_symbol(x->binding, s->info->symbol);
    if (!s->code) return st_internal("kernel '%s' is not in the object code", s->info->symbol);

    const struct hlo_instr *first = s->c.first.hero;
    s->side[0] = (struct side){.hero = first, .leaf = side_leaf(&s->c, 0, 1)};
    s->side[1] = (struct side){.hero = s->c.product, .leaf = side_leaf(&s->c, 1, 1)};
    s->q_leaf = side_leaf(&s->c, 0, 0);
    s->depth = first->operands[0]->shape->dims[HLO_ATTR(first, dot)->lhs_contracting_dims.v[0]];
    s->width = s->c.product->shape->dims[s->c.product->shape->rank - 1];

    s->block = BLOCK_ELEMENTS / s->c.n_keys;
    s->block = s->block < ATTENTION_MIN_ROWS ? ATTENTION_MIN_ROWS
               : s->block > MOST_ROWS        ? MOST_ROWS
                                             : s->block;
    if (s->block > s->c.n_rows) s->block = s->c.n_rows;
    s->blocks = (s->c.n_rows + s->block - 1) / s->block;

    s->n_threads = cpu_threads();
    s->own = arena_zarray(&x->arena, struct own, s->n_threads);
    int threads = cpu_use_threads(1); // the units are divided here
    status_t st = make_side(s, 0, s->depth, s->c.n_keys);
    if (!st) st = make_side(s, 1, s->c.n_keys, s->width);
    cpu_use_threads(threads);
    RETURN_IF_ERR(st);
    dnnl_status_t rc = dnnl_success;
    for (int t = 0; t < s->n_threads && rc == dnnl_success; t++)
        rc = make_own(s, &s->own[t]);
    if (rc != dnnl_success) return onednn_failed("attention", rc);
    lay_out(x, s);
    step->flops = 2 * s->c.heads * s->c.n_rows * s->c.n_keys * (s->depth + s->width);
    step->detail = "attention:onednn+kernel";
    return ST_OK;
}
static void attention_close(struct cpu_step *step) {
    struct attention_state *s = step->state;
    for (int t = 0; s && s->own && t < s->n_threads; t++) {
        for (int k = 0; k < MEMS; k++)
            if (s->own[t].mem[k]) dnnl_memory_destroy(s->own[t].mem[k]);
        for (int k = 0; k < 2; k++)
            if (s->own[t].user[k]) dnnl_memory_destroy(s->own[t].user[k]);
        if (s->own[t].stream) dnnl_stream_destroy(s->own[t].stream);
    }
    for (int k = 0; s && k < 2; k++) {
        if (s->side[k].prim) dnnl_primitive_destroy(s->side[k].prim);
        if (s->side[k].pack) dnnl_primitive_destroy(s->side[k].pack);
    }
}

// ---- running

struct attention_run {
    const struct attention_state *s;
    void **bufs;
    char *out, *memory;
    _Atomic bool failed;
};
// Bytes to the head's part of an operand whose batch dims these are.
static int64_t head_offset(const struct shape *s, struct i64s batch, int64_t head) {
    int64_t strides[HLO_MAX_RANK], at = 0;
    shape_strides(s, strides);
    for (int k = batch.n - 1; k >= 0; k--) {
        at += head % s->dims[batch.v[k]] * strides[batch.v[k]];
        head /= s->dims[batch.v[k]];
    }
    return at * 4;
}
static bool pack(struct attention_run *r, struct own *o, int k, char *to, int64_t head) {
    const struct side *d = &r->s->side[k];
    int place = k ? MEM_V : MEM_K;
    char *from =
        (char *)r->bufs[d->leaf] +
        head_offset(d->hero->operands[1]->shape, HLO_ATTR(d->hero, dot)->rhs_batch_dims, head);
    dnnl_memory_set_data_handle_v2(o->user[k], from, o->stream);
    dnnl_memory_set_data_handle_v2(o->mem[place], to + r->s->at[place], o->stream);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, o->user[k]}, {DNNL_ARG_TO, o->mem[place]}};
    return dnnl_primitive_execute(d->pack, o->stream, 2, args) == dnnl_success;
}
static void copy_rows(const struct attention_state *s, const char *from, int64_t row, float *to) {
    const struct hlo_instr *h = s->side[0].hero;
    const struct hlo_attr_dot *d = HLO_ATTR(h, dot);
    dnnl_dims_t dims, strides;
    int nb = d->lhs_batch_dims.n;
    onednn_matrix(h->operands[0]->shape, d->lhs_batch_dims, d->lhs_contracting_dims.v[0], true,
                  dims, strides);
    int64_t by_row = strides[nb], by_term = strides[nb + 1];
    for (int64_t r = 0; r < s->block; r++) {
        const float *x = (const float *)(const void *)from + (row + r) * by_row;
        for (int64_t k = 0; k < s->depth; k++)
            to[r * s->depth + k] = x[k * by_term];
    }
}
static bool multiply(const struct attention_state *s, struct own *o, int k, void *left, void *dst,
                     char *own) {
    static const int places[2][4] = {{MEM_Q, MEM_K, MEM_SCORES, MEM_SCRATCH1},
                                     {MEM_P, MEM_V, MEM_OUT, MEM_SCRATCH2}};
    const int *p = places[k];
    dnnl_memory_set_data_handle_v2(o->mem[p[0]], left, o->stream);
    dnnl_memory_set_data_handle_v2(o->mem[p[1]], own + s->at[p[1]], o->stream);
    dnnl_memory_set_data_handle_v2(o->mem[p[2]], dst, o->stream);
    dnnl_memory_set_data_handle_v2(o->mem[p[3]], own + s->at[p[3]], o->stream);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, o->mem[p[0]]},
                                    {DNNL_ARG_WEIGHTS, o->mem[p[1]]},
                                    {DNNL_ARG_DST, o->mem[p[2]]},
                                    {DNNL_ARG_SCRATCHPAD, o->mem[p[3]]}};
    return dnnl_primitive_execute(s->side[k].prim, o->stream, 4, args) == dnnl_success;
}
// The kernel finds rows by their number in the whole: it gets an address so far in front of the
// block that they lie there. Lines of the cache begin where they do in the whole.
static char *aligned_as(char *p, int64_t offset) {
    return p + offset % LINE;
}
static void rows_kernel(struct attention_run *r, int64_t row, char *scores, char *result,
                        char *scratch) {
    const struct attention_state *s = r->s;
    void *bufs[MAX_OPERANDS + 1];
    int n = s->c.rows->n_operands;
    uintptr_t ahead = (uintptr_t)(row * s->c.n_keys * 4);
    for (int k = 0; k < n; k++) {
        const struct hlo_instr *x = s->c.rows->operands[k];
        bufs[k] = x->op == HLO_PARAMETER  ? r->bufs[x->param_number]
                  : x->op == HLO_CONSTANT ? x->literal->data
                                          : (void *)((uintptr_t)scores - ahead);
    }
    bufs[n] = (void *)((uintptr_t)result - ahead);
    hlod_kernel_call(s->code, n + 1, bufs, row, row + s->block, scratch, s->info->sizes);
}
static void part(void *ctx, int64_t begin, int64_t end, int thread) {
    struct attention_run *r = ctx;
    const struct attention_state *s = r->s;
    struct own *o = &s->own[thread];
    char *own = r->memory + s->own_bytes * thread;
    const struct hlo_instr *h = s->side[0].hero;
    for (int64_t u = begin; u < end && !r->failed; u++) {
        int64_t head = u / s->blocks, row = u % s->blocks * s->block;
        if (row > s->c.n_rows - s->block) row = s->c.n_rows - s->block;
        bool ok = o->head == head || (pack(r, o, 0, own, head) && pack(r, o, 1, own, head));
        o->head = head;
        int64_t all = head * s->c.n_rows + row, ahead = all * s->c.n_keys * 4;
        char *scores = aligned_as(own + s->at[MEM_SCORES], ahead),
             *p = aligned_as(own + s->at[MEM_P], ahead);
        const char *q = (char *)r->bufs[s->q_leaf] +
                        head_offset(h->operands[0]->shape, HLO_ATTR(h, dot)->lhs_batch_dims, head);
        copy_rows(s, q, row, (float *)(void *)(own + s->at[MEM_Q]));
        ok = ok && multiply(s, o, 0, own + s->at[MEM_Q], scores, own);
        if (ok) rows_kernel(r, all, scores, p, own + s->at_kernel);
        ok = ok && multiply(s, o, 1, p, r->out + all * s->width * 4, own);
        if (!ok) r->failed = true;
    }
}
static status_t attention_run(struct cpu_exe *x, struct cpu_step *step, void **bufs) {
    struct attention_state *s = step->state;
    struct attention_run r = {
        .s = s, .bufs = bufs, .out = bufs[step->plan->n_in], .memory = x->scratch};
    for (int t = 0; t < s->n_threads; t++)
        s->own[t].head = -1;
    cpu_parallel(part, &r, s->c.heads * s->blocks, 1);
    return r.failed ? st_internal("oneDNN: attention failed") : ST_OK;
}
const struct cpu_impl cpu_impl_attention = {
    "attention", attention_accepts, attention_open, attention_close, attention_run, NULL, NULL,
    NULL};
