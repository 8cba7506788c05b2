// SPDX-License-Identifier: Apache-2.0
// Under precision=fast all convolutions and dots of f32, and by default those whose operands are
// bf16 in the program (lib_reads_bf16), read bf16 and sum in f32, where the device's library has
// such kernels (XLA calls a change of operand types ChangeOpDataType). Conversions of
// weights move to `prepare` with everything else that depends on weights alone. A value that such a
// contraction reads is rounded for all its readers in this computation, so that it lies in memory
// once and in half the bytes: what computes it writes bf16, other readers widen what they take.
// Results of the program stay f32. In the body of a loop what its state holds stays f32 for those
// who read it otherwise, so that a training's weights take updates that bf16 would lose; what no
// turn changes (a recurrent layer's weights) is not rounded anew in each.
// Dots by batches that blocks of rows take together with the softmax between them (attention.c)
// stay f32. Of others the movements in front are of bf16, too, so that the value behind them is
// rounded where it is made.
// Where the target has no such instructions but is to show the values of one that has them
// (bf16_emulated, for tests), operands are rounded and stay f32.
#include "compiler/calls/bits.h"
#include "compiler/passes/fusion/attention.h"
#include "compiler/passes/pass.h"

struct change {
    const struct hlo_computation *body; // of a loop; NULL: the entry
    struct hb *b;
    struct pass_ctx *p;
    struct pmap narrow;           // value of f32 -> the same in bf16
    VEC(struct hlo_instr *) read; // the values, in scratch memory
    hv fresh[2][2];               // rounded for the contraction at hand: the value, its rounded one
    int n_fresh;
};

static bool is_batched(const struct hlo_instr *i) {
    return i->op == HLO_DOT && HLO_ATTR(i, dot)->lhs_batch_dims.n;
}
static hv rounded(struct change *c, hv x) {
    struct hlo_attr_redprec bf16 = {.exponent_bits = 8, .mantissa_bits = 7};
    if (!c->p->target->bf16_emulated) return hb_convert(c->b, x, DT_BF16);
    return hb_op(c->b, HLO_REDUCE_PRECISION, x->shape, &x, 1, &bf16);
}
// Is x's value of bf16 there already?
static bool was_bf16(const struct change *c, const struct hlo_instr *x) {
    return lib_was_bf16(x) && !c->p->target->bf16_emulated;
}
// A reshape costs nothing, also twice.
static bool moves(const struct hlo_instr *x) {
    return x->op == HLO_RESHAPE || (x->op == HLO_TRANSPOSE && x->users.n == 1);
}
// x for an operand of i.
static hv narrowed(struct change *c, const struct hlo_instr *i, hv x) {
    hv y = pmap_get_ptr(&c->narrow, x);
    if (c->n_fresh && c->fresh[0][0] == x) y = c->fresh[0][1];
    if (y) return y;
    if (was_bf16(c, x)) return x->operands[0];
    if (!is_batched(i) || !moves(x)) {
        y = rounded(c, x);
        c->fresh[c->n_fresh][0] = x;
        c->fresh[c->n_fresh++][1] = y;
        return y;
    }
    y = narrowed(c, i, x->operands[0]);
    return x->op == HLO_TRANSPOSE ? hb_transpose(c->b, y, HLO_ATTR(x, dims)->dimensions.v)
                                  : hb_reshape(c->b, y, x->shape->dims, x->shape->rank);
}
static void keep(struct change *c, hv x, hv y) {
    for (; moves(x) && y->op == x->op; y = y->operands[0])
        x = x->operands[0];
    if (was_bf16(c, x) || pmap_put_ptr(&c->narrow, x, y)) return;
    avec_push(&c->p->scratch, &c->read, x);
    if (x->next) hlo_move_before(y, x->next);
}

// Kernels of bf16 multiply pairs of neighbours along the summed dimension, and where its size is
// odd the last one's neighbour, whatever it is, by zero: NaN or an infinity there would be in the
// result of another place. So a convolution gets one more channel of zeros, unless the library
// looks for such values (library_odd), and such a dot stays f32. Of one channel in each of several
// groups there are no pairs; of one in all, half of each pair is nothing: it stays f32, too.
static int64_t depth(const struct hlo_instr *i) {
    const struct hlo_instr *w = i->operands[1];
    if (i->op == HLO_CONVOLUTION) return w->shape->dims[HLO_ATTR(i, conv)->dim_labels.k_in];
    struct i64s over = HLO_ATTR(i, dot)->rhs_contracting_dims;
    return over.n == 1 ? w->shape->dims[over.v[0]] : 1;
}
// An element of a loop's state, also as moved or converted.
static const struct hlo_instr *state(const struct change *c, const struct hlo_instr *x) {
    while (x->op == HLO_RESHAPE || x->op == HLO_TRANSPOSE || x->op == HLO_BITCAST ||
           x->op == HLO_CONVERT || x->op == HLO_COPY)
        x = x->operands[0];
    bool element =
        c->body && x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == c->body->params.v[0];
    return element ? x : NULL;
}
// An element that each turn hands on as it is.
static bool unchanged(const struct change *c, const struct hlo_instr *x) {
    const struct hlo_instr *e = state(c, x), *root = c->body ? c->body->root : NULL;
    if (!e || root->op != HLO_TUPLE) return false;
    int64_t at = HLO_ATTR(e, gte)->index;
    const struct hlo_instr *out = root->operands[at];
    return out->op == HLO_GET_TUPLE_ELEMENT && out->operands[0] == c->body->params.v[0] &&
           HLO_ATTR(out, gte)->index == at;
}
// Of a dot by batches: is it one of two around a softmax that blocks of rows take, or has it so few
// rows or columns that rounding an operand takes longer than reading it?
static bool stays(const struct target *t, const struct hlo_instr *i) {
    enum { FEW = 16 };
    int64_t square = 1, terms = depth(i), x = shape_elements(i->operands[0]->shape),
            y = shape_elements(i->operands[1]->shape), z = shape_elements(i->shape);
    struct i64s batch = HLO_ATTR(i, dot)->lhs_batch_dims;
    for (int k = 0; k < batch.n; k++)
        square *= i->operands[0]->shape->dims[batch.v[k]];
    square *= terms;
    if (x / square < FEW || y / square < FEW) return true;
    return t->library_attention && 4 * (x > z ? x : z) >= ATTENTION_LEAST_BYTES;
}
// Where the precision does not ask for it, the program does, of this contraction: but few rows read
// weights of bf16 as they are and multiply them in f32, by which they take no longer.
static bool asked_for(const struct change *c, const struct hlo_instr *i) {
    enum { FEW = 16 };
    if (c->p->opt->precision == PRECISION_FAST) return true;
    if (!lib_reads_bf16(i)) return false;
    if (i->op != HLO_DOT || is_batched(i)) return true;
    return shape_elements(i->operands[0]->shape) / depth(i) > FEW;
}
static bool may_change(const struct change *c, const struct hlo_instr *i) {
    if (shape_is_tuple(i->shape) || i->shape->dtype != DT_F32 || i->shape->dynamic ||
        shape_elements(i->shape) == 0)
        return false;
    if (i->op != HLO_DOT && i->op != HLO_CONVOLUTION) return false;
    if (shape_elements(i->operands[1]->shape) == 0 || !asked_for(c, i)) return false; // no terms
    if (unchanged(c, i->operands[0]) || unchanged(c, i->operands[1])) return false;
    if (is_batched(i) && (HLO_ATTR(i, dot)->rhs_contracting_dims.n != 1 || stays(c->p->target, i)))
        return false;
    bool groups = i->op == HLO_CONVOLUTION && HLO_ATTR(i, conv)->feature_group_count > 1;
    bool padded = i->op == HLO_CONVOLUTION && !groups && depth(i) > 1,
         none = groups && depth(i) == 1;
    if (depth(i) % 2 && !padded && !none) return false;
    return i->operands[0]->shape->dtype == DT_F32 && i->operands[1]->shape->dtype == DT_F32;
}

static hv with_zeros(struct change *c, hv x, int64_t dim) {
    struct pad_dim p[HLO_MAX_RANK] = {0};
    p[dim].high = 1;
    return hb_pad(c->b, x, hb_const_f64(c->b, DT_F32, 0), p);
}

// The same contraction of bf16; NULL: the library has none that is made for speed.
static hv changed(struct change *c, hv i) {
    const struct target *t = c->p->target;
    hv x = i->operands[0], w = i->operands[1], in[2];
    if (depth(i) % 2 && depth(i) > 1 && !t->library_odd) {
        const struct labels *l = &HLO_ATTR(i, conv)->dim_labels;
        x = with_zeros(c, x, l->in_feature);
        w = with_zeros(c, w, l->k_in);
    }
    c->n_fresh = 0;
    in[0] = narrowed(c, i, x);
    in[1] = w == x ? in[0] : narrowed(c, i, w);
    hv y = hb_op(c->b, i->op, i->shape, in, 2, i->attr);
    struct lib_call call;
    if (!hb_ok(c->b) || !lib_match(y, &call) || !t->library_runs(t, &call)) return NULL;
    keep(c, x, in[0]);
    keep(c, w, in[1]);
    return y;
}

// Kernels of ours take a conversion in with what they read. What only weights make stays as it is:
// it costs nothing at a run.
static bool widens_free(const struct hlo_instr *u) {
    return hlo_is_elementwise(u) || u->op == HLO_REDUCE || u->op == HLO_BROADCAST;
}
// The greatest of rounded values is the rounded greatest one: y, the rounded x, from rounded
// values, where x is a maximum over windows of what nothing else reads.
static void greatest(struct change *c, hv x, hv y) {
    if (x->op != HLO_REDUCE_WINDOW || x->n_operands != 2 || x->users.n != 1 || !lib_pool(x) ||
        x->called[0]->root->op != HLO_MAXIMUM || x->operands[0]->users.n != 1)
        return;
    double least = lit_get_f64(x->operands[1]->literal, 0);
    hv last = c->b->c->last, init = hb_const_f64(c->b, DT_BF16, least),
       z = hb_reduce_window(c->b, hb_convert(c->b, x->operands[0], DT_BF16), init,
                            &HLO_ATTR(x, window)->window, HLO_MAXIMUM);
    if (hb_ok(c->b)) hlo_replace_uses(y, z);
    pass_place(last, x);
}
static void round_for_all(struct change *c, hv x) {
    hv y = pmap_get_ptr(&c->narrow, x), w = NULL;
    c->b->op_type = x->op_type;
    c->b->op_name = x->op_name;
    if (x->op == HLO_PARAMETER || state(c, x) || x->mark == 1 || x == c->b->c->root) return;
    for (size_t k = 0; k < x->users.n; k++)
        if (!widens_free(x->users.v[k])) return;

    for (size_t k = x->users.n; k-- > 0;) {
        hv u = x->users.v[k];
        if (u == y) continue;
        if (!w) {
            w = hb_convert(c->b, y, DT_F32); // y itself where it is emulated
            if (!hb_ok(c->b)) return;
            if (w != y && y->next) hlo_move_before(w, y->next);
        }
        for (int o = 0; o < u->n_operands; o++)
            if (u->operands[o] == x) hlo_set_operand(u, o, w);
        if (k > x->users.n) k = x->users.n; // an operand read twice was two users
    }
    if (!c->p->target->bf16_emulated) greatest(c, x, y);
}

static status_t change_in(struct hlo_computation *comp, bool body, struct pass_ctx *p) {
    struct hb b = hb_begin(comp);
    struct change c = {.body = body ? comp : NULL, .b = &b, .p = p};
    pass_mark_weights(comp);
    HLO_EACH_INSTR(i, comp) {
        if (!may_change(&c, i)) continue;
        struct hlo_instr *last = comp->last;
        b.op_type = i->op_type;
        b.op_name = i->op_name;
        hv y = changed(&c, i);
        if (!hb_ok(&b)) break;
        if (y) hlo_replace_uses(i, y);
        pass_place(last, i);
    }
    if (c.read.n) hlo_remove_dead(comp); // what was replaced reads nothing
    for (size_t k = 0; k < c.read.n && hb_ok(&b); k++)
        round_for_all(&c, c.read.v[k]);
    p->changed = p->changed || c.read.n;
    pmap_done(&c.narrow);
    RETURN_IF_ERR(hb_end(&b));
    hlo_remove_dead(comp);
    return ST_OK;
}

// Weights of few bits that many rows meet, as what a dot of bf16 reads: prepared once. They take
// more memory then, which `fast` pays for its speed; few rows read them as they are.
static status_t unpack_for_many(struct hlo_computation *comp, struct pass_ctx *p) {
    HLO_EACH_INSTR(i, comp) {
        struct hlo_instr *last = comp->last, *r;
        struct bits d;
        if (!bits_is(i)) continue;
        RETURN_IF_ERR(bits_read(&p->scratch, i, &d));
        if (d.rows <= BITS_FEW_ROWS) continue;
        struct hb b = hb_begin(comp);
        r = bits_as_dot(&b, d.bits, i->operands);
        RETURN_IF_ERR(pass_put_instead(&b, last, i, r));
        p->changed = true;
    }
    return ST_OK;
}

status_t pass_change_op_data_type(struct hlo_module *m, struct pass_ctx *p) {
    const struct target *t = p->target;
    if (!p->opt || p->opt->precision == PRECISION_STRICT || !t || !t->library_runs) return ST_OK;
    bool emulated = t->bf16_emulated && p->opt->precision == PRECISION_FAST;
    if (!t->library_bf16 && !emulated) return ST_OK;
    struct pmap bodies = {0};
    status_t st = ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c)
    if (i->op == HLO_WHILE) pmap_put_ptr(&bodies, i->called[1], NULL);
    HLO_EACH_COMPUTATION(c, m) {
        bool body = pmap_has_ptr(&bodies, c);
        if (!st && p->opt->precision == PRECISION_FAST) st = unpack_for_many(c, p);
        if (!st && (body || c == m->entry)) st = change_in(c, body, p);
    }
    pmap_done(&bodies);
    return st;
}
