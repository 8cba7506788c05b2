// SPDX-License-Identifier: Apache-2.0
// A dot whose weights the program makes of integers of 2, 4 or 8 bits reads these as they are, by
// the call of compiler/calls/bits.h, instead of f32 that were prepared of them:
//     dot(x, (convert(q) - zeros) * scales)   =>   custom-call(x, packed q, scales, zeros)
// q [k, n] or [n, k] on either side; zeros and scales: none, or the same for runs along k that are
// a multiple of 32 bits (one for each column, of any k, or blocks). A step of few rows runs at the
// speed of the memory it reads, and large weights take 4 to 16 times as much of it in f32.
// In the body of a loop, weights are what the state carries of them unchanged. That is done before
// while-motion, which would move the f32 in front of the loop; it moves the packing instead.
// A loop over layers, which takes their weights of stacks, is written out first where that makes
// them known: 64 turns and 4096 instructions at most. A call whose model lets x be rounded to 8
// bits gets .x8, where the device multiplies such. Does not: small weights; many rows of weights
// that are not large, where a library's dot with what is fused behind it is as quick; integers that
// the program computes; activations of integers, which pass int8 may have; `strict`, since sums of
// a block meet their scale once.
#include "compiler/calls/bits.h"
#include "compiler/ir/turns.h"
#include "compiler/passes/control/graph.h"
#include "compiler/passes/pass.h"

enum { MOST_TURNS = 64, MOST_WRITTEN = 4096 };
enum { WORD = 32, LONGEST = 256, SMALL = 1 << 16, LARGE = 1 << 22 };

struct few {
    hv q, zeros, scales; // the latter NULL: none; of the weights' elements in order
    int64_t k, n, block;
    bool k_first; // [k, n]
    int side;     // the weights' operand
    int bits;
    bool is_signed;
};

static bool is_float(enum dtype t) {
    return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}
static hv through_reshapes(hv v) {
    while (v->op == HLO_RESHAPE)
        v = v->operands[0];
    return v;
}
// The longest run along k of equal values in v, which has the weights' shape: by how it is
// broadcast. 0: unknown.
static int64_t run_of(const struct few *f, hv v) {
    v = through_reshapes(v);
    if (v->op == HLO_CONVERT) v = through_reshapes(v->operands[0]);
    if (v->op != HLO_BROADCAST) return 0;
    const struct shape *s = v->shape;
    struct i64s kept = HLO_ATTR(v, dims)->dimensions;
    // The dimensions that k was flattened of: the first ones or the last ones.
    int from = 0, to = 0;
    int64_t size = 1;
    if (f->k_first) {
        while (to < s->rank && size < f->k)
            size *= s->dims[to++];
    } else {
        from = to = s->rank;
        while (from > 0 && size < f->k)
            size *= s->dims[--from];
    }
    if (size != f->k) return 0;
    int64_t run = 1;
    for (int d = to - 1; d >= from; d--) {
        for (int e = 0; e < kept.n; e++)
            if (kept.v[e] == d && s->dims[d] > 1) return run;
        run *= s->dims[d];
    }
    return run;
}
static bool few_type(enum dtype t, struct few *f) {
    f->bits = t == DT_S2 || t == DT_U2 ? 2 : t == DT_S4 || t == DT_U4 ? 4 : 8;
    f->is_signed = t == DT_S2 || t == DT_S4 || t == DT_S8;
    return f->is_signed || t == DT_U2 || t == DT_U4 || t == DT_U8;
}
static bool holds_bytes(enum dtype t) {
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_S16 || t == DT_S32 || t == DT_S64;
}
// What v is a conversion of, by types that hold every byte; NULL: no integers of few bits.
static hv converted(hv v, struct few *f) {
    while (v->op == HLO_RESHAPE || (v->op == HLO_CONVERT && holds_bytes(v->shape->dtype)))
        v = v->operands[0];
    return few_type(v->shape->dtype, f) ? v : NULL;
}
// Behind reshapes, and roundings between floats, which f32 of the weights need not keep.
static hv through_floats(hv v) {
    while (v->op == HLO_RESHAPE || (v->op == HLO_CONVERT && is_float(v->shape->dtype) &&
                                    is_float(v->operands[0]->shape->dtype)))
        v = v->operands[0];
    return v;
}
// What w is made of.
static bool read(hv w, struct few *f) {
    hv v = through_floats(w);
    if (v->op == HLO_MULTIPLY) {
        int s = run_of(f, v->operands[1]) ? 1 : 0;
        f->scales = v->operands[s];
        v = through_floats(v->operands[1 - s]);
    }
    hv inner = v->op == HLO_CONVERT ? through_reshapes(v->operands[0]) : v;
    if (inner->op == HLO_SUBTRACT && (inner == v || inner->shape->dtype == DT_S32)) {
        f->zeros = inner->operands[1];
        v = inner->operands[0];
    }
    f->q = converted(v, f);
    if (!f->q) return false;
    int64_t scales = f->scales ? run_of(f, f->scales) : f->k,
            zeros = f->zeros ? run_of(f, f->zeros) : f->k;
    if (!scales || !zeros) return false;
    f->block = scales < zeros ? scales : zeros;
    if (scales % f->block || zeros % f->block) return false;
    if (f->block == f->k && f->k * f->bits % WORD) { // the last block reaches beyond k
        int64_t word = WORD / f->bits;
        f->block = f->k > LONGEST ? LONGEST : (f->k + word - 1) / word * word;
    }
    while (f->block > LONGEST && f->block * f->bits % (2 * WORD) == 0)
        f->block /= 2;
    return f->block * f->bits % WORD == 0;
}
// x is made of integers of few bits, as activations are that pass int8 looks for.
static bool of_integers(hv x) {
    struct few f;
    for (;;) {
        if (few_type(x->shape->dtype, &f)) return true;
        bool first = x->op == HLO_CONVERT || x->op == HLO_MULTIPLY || x->op == HLO_SUBTRACT ||
                     x->op == HLO_RESHAPE || x->op == HLO_TRANSPOSE;
        if (!first) return false;
        x = x->operands[0];
    }
}
static bool fits(const struct hlo_instr *i, struct few *f) {
    if (i->op != HLO_DOT || !is_float(i->shape->dtype) || i->shape->dynamic) return false;
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    int side = i->operands[1]->mark == 1;
    if (i->operands[side]->mark != 1 || i->operands[1 - side]->mark == 1) return false;
    const struct shape *x = i->operands[1 - side]->shape, *s = i->operands[side]->shape;
    if (d->lhs_batch_dims.n || d->lhs_contracting_dims.n != 1 || !is_float(x->dtype) ||
        !is_float(s->dtype) || x->dynamic || s->rank != 2 || x->rank < 1)
        return false;

    int64_t of_k = (side ? d->rhs_contracting_dims : d->lhs_contracting_dims).v[0];
    int64_t all = shape_elements(s);
    *f = (struct few){
        .k = s->dims[of_k], .n = s->dims[1 - of_k], .k_first = of_k == 0, .side = side};
    if (all < SMALL || shape_elements(x) == 0) return false;
    if (shape_elements(x) / f->k > BITS_FEW_ROWS && (all < LARGE || s->dtype != DT_F32))
        return false;
    if (i->parent != i->parent->module->entry && of_integers(i->operands[1 - side])) return false;
    return read(i->operands[side], f);
}
// All that read the weights take them so; what nothing reads does not count.
static bool takes(const struct hlo_instr *i, struct few *f) {
    if (!fits(i, f)) return false;
    const struct hlo_instr *w = i->operands[f->side];
    struct few other;
    for (size_t k = 0; k < w->users.n; k++) {
        const struct hlo_instr *u = w->users.v[k];
        if (u == i || (!u->users.n && u != u->parent->root)) continue;
        if (!fits(u, &other)) return false;
    }
    return true;
}

static double middle(const struct few *f) {
    return f->is_signed ? 1 << (f->bits - 1) : 0;
}
// v of as many elements as the weights in their shape.
static hv as_weights(struct hb *b, const struct few *f, hv v) {
    int64_t dims[2] = {f->k_first ? f->k : f->n, f->k_first ? f->n : f->k};
    const struct shape *s = v->shape;
    bool is = s->rank == 2 && s->dims[0] == dims[0] && s->dims[1] == dims[1];
    return is ? v : hb_reshape(b, v, dims, 2);
}
// v, one of each run along k: f32[blocks, n].
static hv of_blocks(struct hb *b, const struct few *f, hv v) {
    v = as_weights(b, f, v);
    struct range r[2] = {{0, f->k, f->block}, {0, f->n, 1}};
    if (f->k_first) return hb_convert(b, hb_slice(b, v, r), DT_F32);
    struct range by_column[2] = {{0, f->n, 1}, {0, f->k, f->block}};
    v = hb_transpose(b, hb_slice(b, v, by_column), (int64_t[]){1, 0});
    return hb_convert(b, v, DT_F32);
}
// q as u8[n, blocks, bytes]: by their order, signed ones more by the middle.
static hv packed(struct hb *b, const struct few *f) {
    hv q = hb_convert(b, as_weights(b, f, f->q), f->is_signed ? DT_S8 : DT_U8);
    if (f->k_first) q = hb_transpose(b, q, (int64_t[]){1, 0});
    const struct shape *s = q->shape;
    if (f->is_signed) {
        q = hb_op(b, HLO_BITCAST_CONVERT, shape_with_dtype(b->c->module->arena, s, DT_U8), &q, 1,
                  NULL);
        q = hb_add(b, q, hb_splat(b, q->shape, middle(f)));
    }
    int64_t blocks = (f->k + f->block - 1) / f->block, parts = 8 / f->bits,
            bytes = f->block / parts;
    if (blocks * f->block > f->k) {
        struct pad_dim p[2] = {{0}, {.high = blocks * f->block - f->k}};
        q = hb_pad(b, q, hb_const_i64(b, DT_U8, 0), p);
    }
    if (f->bits == 8) return hb_reshape(b, q, (int64_t[]){f->n, blocks, f->block}, 3);

    q = hb_reshape(b, q, (int64_t[]){f->n, blocks, bytes, parts}, 4);
    hv all = NULL;
    for (int64_t k = 0; k < parts; k++) {
        struct range r[4] = {{0, f->n, 1}, {0, blocks, 1}, {0, bytes, 1}, {k, k + 1, 1}};
        hv part = hb_slice(b, q, r);
        if (k) part = hb_binary(b, HLO_SHIFT_LEFT, part, hb_splat(b, part->shape, k * f->bits));
        all = all ? hb_binary(b, HLO_OR, all, part) : part;
    }
    return hb_reshape(b, all, (int64_t[]){f->n, blocks, bytes}, 3);
}
// v with dimension d moved to the end, or its last one to dimension d.
static hv turned(struct hb *b, hv v, int64_t d, bool to_end) {
    int64_t perm[HLO_MAX_RANK], last = v->shape->rank - 1;
    if (d == last) return v;
    for (int64_t k = 0; k <= last; k++)
        perm[k] = to_end ? (k < d ? k : k < last ? k + 1 : d) : k < d ? k : k == d ? last : k - 1;
    return hb_transpose(b, v, perm);
}
static hv rewritten(struct hb *b, const struct few *f, const struct hlo_instr *dot) {
    const struct hlo_attr_dot *d = HLO_ATTR(dot, dot);
    int64_t of[2] = {(f->k + f->block - 1) / f->block, f->n};
    int64_t at = (f->side ? d->lhs_contracting_dims : d->rhs_contracting_dims).v[0];
    hv x = hb_convert(b, turned(b, dot->operands[1 - f->side], at, true), DT_F32);
    hv in[BITS_OPERANDS] = {x, packed(b, f)};
    in[BITS_SCALES] = f->scales ? of_blocks(b, f, f->scales)
                                : hb_broadcast(b, hb_const_f64(b, DT_F32, 1), of, 2, NULL);
    in[BITS_ZEROS] = hb_const_f64(b, DT_F32, middle(f));
    if (f->zeros) {
        hv z = of_blocks(b, f, f->zeros);
        in[BITS_ZEROS] = f->is_signed ? hb_add(b, z, hb_splat(b, z->shape, middle(f))) : z;
    }
    hv y = hb_convert(b, bits_call(b, f->bits, BITS_X_F32, in), dot->shape->dtype);
    return f->side ? y : turned(b, y, 0, false);
}

// ---- a computation

// Elements of a loop's state that it leaves as they are and that start as weights are weights.
static bool carried(const struct hlo_instr *i, const struct hlo_instr *loop) {
    const struct hlo_computation *c = i->parent;
    if (!loop || i->op != HLO_GET_TUPLE_ELEMENT || i->operands[0] != c->params.v[0] ||
        c->root->op != HLO_TUPLE || loop->operands[0]->op != HLO_TUPLE)
        return false;
    int64_t k = HLO_ATTR(i, gte)->index;
    const struct hlo_instr *next = c->root->operands[k];
    return next->op == HLO_GET_TUPLE_ELEMENT && next->operands[0] == c->params.v[0] &&
           HLO_ATTR(next, gte)->index == k && loop->operands[0]->operands[k]->mark == 1;
}
static void mark(struct hlo_computation *c, const struct hlo_instr *loop) {
    pass_mark_weights(c);
    HLO_EACH_INSTR(i, c) {
        bool only = i->n_operands && (hlo_op_info(i->op)->traits & HLO_T_P);
        for (int k = 0; k < i->n_operands && only; k++)
            only = i->operands[k]->mark == 1;
        if (i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0]->op == HLO_TUPLE)
            only = i->operands[0]->operands[HLO_ATTR(i, gte)->index]->mark == 1;
        if (only || carried(i, loop)) i->mark = 1;
    }
}
// A product of few rows with integers that a loop takes of a stack of weights.
static bool of_stack(const struct hlo_instr *i, int side, const struct hlo_instr *loop) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *w = i->operands[side]->shape;
    if (w->rank != 2 || d->lhs_contracting_dims.n != 1 || shape_elements(w) < SMALL) return false;
    int64_t of_k = (side ? d->rhs_contracting_dims : d->lhs_contracting_dims).v[0];
    struct few f = {.k = w->dims[of_k], .n = w->dims[1 - of_k], .k_first = of_k == 0, .side = side};
    if (shape_elements(i->operands[1 - side]->shape) > BITS_FEW_ROWS * f.k ||
        !read(i->operands[side], &f))
        return false;
    hv stack = f.q->op == HLO_DYNAMIC_SLICE ? f.q->operands[0] : NULL;
    return stack && (stack->op == HLO_CONSTANT || carried(stack, loop));
}
// A loop of turns that are known, each of which multiplies by weights of a stack.
static bool over_layers(const struct hlo_instr *loop) {
    const struct hlo_computation *body = loop->called[1];
    int64_t turns = hlo_turns(loop);
    if (turns < 2 || turns > MOST_TURNS || turns * body->n_instrs > MOST_WRITTEN ||
        loop->control_preds.n || hlo_computation_has_effect(loop->called[0]) ||
        hlo_computation_has_effect(body))
        return false;
    HLO_EACH_INSTR(i, body)
    for (int side = 0; i->op == HLO_DOT && side < 2; side++)
        if (of_stack(i, side, loop)) return true;
    return false;
}
static bool write_out(struct hlo_computation *c) {
    bool any = false;
    HLO_EACH_INSTR(i, c) {
        if (i->op != HLO_WHILE || i->n_awaiting || !over_layers(i)) continue;
        struct hlo_instr *state = i->operands[0];
        for (int64_t n = hlo_turns(i); n > 0; n--)
            state = graph_inline(i, i->called[1], &state);
        hlo_replace_uses(i, state);
        hlo_remove_instr(i);
        any = true;
    }
    return any;
}
// The weights' bits of a call of .level4 whose shapes fit; 0: another instruction.
static int lets_round(struct pass_ctx *p, const struct hlo_instr *i) {
    struct bits d;
    bool fits = bits_is(i) && !bits_read(&p->scratch, i, &d);
    return fits && d.rounding == BITS_X_LEVEL4 ? d.bits : 0;
}
static status_t in_computation(struct hlo_computation *c, struct pass_ctx *p) {
    HLO_EACH_INSTR(i, c) {
        struct few f;
        int bits = p->target->few_bits_x8 ? lets_round(p, i) : 0;
        if (!bits && !takes(i, &f)) continue;
        struct hlo_instr *last = c->last;
        struct hb b = hb_begin(c);
        b.op_type = i->op_type;
        b.op_name = i->op_name;
        hv r = bits ? bits_call(&b, bits, BITS_X_8, i->operands) : rewritten(&b, &f, i);
        RETURN_IF_ERR(pass_put_instead(&b, last, i, r));
        p->changed = true;
    }
    return ST_OK;
}
static bool wanted(const struct pass_ctx *p) {
    return p->target && p->target->few_bits && p->opt && p->opt->precision != PRECISION_STRICT;
}
status_t pass_few_bits(struct hlo_module *m, struct pass_ctx *p) {
    if (!wanted(p)) return ST_OK;
    HLO_EACH_COMPUTATION(c, m) {
        pass_mark_weights(c);
        RETURN_IF_ERR(in_computation(c, p));
    }
    return ST_OK;
}
status_t pass_few_bits_loops(struct hlo_module *m, struct pass_ctx *p) {
    if (!wanted(p)) return ST_OK;
    struct pmap loops = {0}; // body -> its while
    status_t st = ST_OK;
    for (struct hlo_computation *c = m->last; c && !st; c = c->prev) { // callers first
        const struct hlo_instr *loop = pmap_get_ptr(&loops, c);
        mark(c, loop);
        if (write_out(c)) {
            mark(c, loop);
            p->changed = true;
        }
        HLO_EACH_INSTR(i, c)
        if (i->op == HLO_WHILE && i->called[1]->n_callers == 1)
            pmap_put_ptr(&loops, i->called[1], i);
        if (loop) st = in_computation(c, p);
    }
    pmap_done(&loops);
    return st;
}
