// SPDX-License-Identifier: Apache-2.0
// Arithmetic on f16 and bf16 as arithmetic on f32, which CPUs and their libraries are made for.
// Every value of half precision has up to two forms: the narrow one, as declared, and a wide one of
// f32. Arithmetic reads and makes wide values; between two such operations nothing is rounded.
// What can be seen keeps the narrow one: results and parameters of computations, explicit
// conversions, comparisons, sorts, roundings to whole numbers, and everything not named below. A
// conversion to f32 or f64 of a value that arithmetic made is none of these where arithmetic and
// sums alone read it: it asks for more digits, which are there.
// A value that something decides by is the rounded one for all its users. Movements follow what
// they move: a table or a cache stays narrow, and what is taken out of it widens. Under strict
// precision only contractions change, with conversions at their edges; every operation rounds as it
// did. Sums, products and reducers run in f32 in both forms. Products of 8-bit floats are
// contractions too. XLA calls this float-normalization; that it leaves pairs of conversions away is
// its simplify-fp-conversions.
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/pass.h"

enum { ROUNDED = 1 };            // mark of a narrow value that was made of a wide one
enum { MAX_CONSTANT = 1 << 16 }; // elements of a constant that is written again in f32

struct norm {
    struct hb *b;
    bool strict;
    struct pmap takes; // value -> do its conversions take the wide one? (takes_wide)
};

static bool narrow_type(enum dtype t) {
    return t == DT_F16 || t == DT_BF16;
}
static bool is_narrow(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && narrow_type(i->shape->dtype);
}
static const struct shape *as_f32(struct hb *b, const struct shape *s) {
    return shape_with_dtype(b->c->module->arena, s, DT_F32);
}

static hv convert(struct hb *b, hv x, enum dtype t) { // keeps the layout
    if (x->shape->dtype == t) return x;
    return hb_op(b, HLO_CONVERT, shape_with_dtype(b->c->module->arena, x->shape, t), &x, 1, NULL);
}
static hv wide(struct norm *n, hv x);

static hv wide_constant(struct hb *b, hv x) {
    int64_t count = shape_elements(x->shape);
    if (count > MAX_CONSTANT) return convert(b, x, DT_F32);
    struct literal *lit = lit_new(b->c->module->arena, as_f32(b, x->shape));
    for (int64_t k = 0; k < count; k++)
        lit_set_f64(lit, k, lit_get_f64(x->literal, k));
    return hb_constant(b, lit);
}
// Values of these types are whole in f16 and in bf16.
static bool exact_in_halves(enum dtype t) {
    return dtype_bits(t) <= 8 && !dtype_is_complex(t);
}
static hv make_wide(struct norm *n, hv x) {
    switch (x->op) {
    case HLO_CONSTANT:
        return wide_constant(n->b, x);
    case HLO_BROADCAST: { // of the smaller value
        hv from = wide(n, x->operands[0]);
        return hb_op(n->b, HLO_BROADCAST, as_f32(n->b, x->shape), &from, 1, x->attr);
    }
    case HLO_CONVERT:
        if (exact_in_halves(x->operands[0]->shape->dtype)) x = x->operands[0];
        return convert(n->b, x, DT_F32);
    default:
        return convert(n->b, x, DT_F32);
    }
}
// The f32 form of a value; the value itself where it has none.
static hv wide(struct norm *n, hv x) {
    if (shape_is_tuple(x->shape) || !dtype_is_float(x->shape->dtype) ||
        dtype_bits(x->shape->dtype) >= 32)
        return x;
    if (!x->tmp) x->tmp = make_wide(n, x);
    return x->tmp;
}

// ---- reducers

// Operations that f32 does as well: not those that see a rounding.
static bool is_arithmetic(const struct hlo_instr *i) {
    switch (i->op) {
    case HLO_CONVERT:
    case HLO_BITCAST_CONVERT:
    case HLO_STOCHASTIC_CONVERT:
    case HLO_REDUCE_PRECISION:
    case HLO_COMPARE:
    case HLO_CEIL:
    case HLO_FLOOR:
    case HLO_ROUND_AFZ:
    case HLO_ROUND_EVEN:
    case HLO_SIGN:
    case HLO_REMAINDER:
        return false;
    case HLO_POWER: // whether the exponent is whole decides the sign
        return i->operands[1]->mark != ROUNDED;
    default:
        return hlo_is_elementwise(i);
    }
}
static bool widens(const struct hlo_computation *f) {
    for (const struct hlo_instr *i = f->first; i; i = i->next) {
        if (shape_is_tuple(i->shape) || i->n_called) return false;
        if (i->op == HLO_PARAMETER || i->op == HLO_CONSTANT || i->op == HLO_CONVERT ||
            i->op == HLO_COMPARE)
            continue;
        if (!hlo_is_elementwise(i) || i->op == HLO_BITCAST_CONVERT ||
            i->op == HLO_STOCHASTIC_CONVERT || i->op == HLO_REDUCE_PRECISION)
            return false;
    }
    return true;
}
static status_t widen_body(struct hlo_computation *f) {
    struct hb b = hb_begin(f);
    HLO_EACH_INSTR(i, f) {
        if (!is_narrow(i)) continue;
        if (i->op == HLO_CONSTANT) {
            struct hlo_instr *last = f->last;
            hv c = wide_constant(&b, i);
            pass_place(last, i);
            if (!hb_ok(&b)) break;
            hlo_replace_uses(i, c);
            continue;
        }
        hlo_set_shape(i, as_f32(&b, i->shape));
    }
    HLO_EACH_INSTR(i, f)
    if (i->op == HLO_CONVERT && i->shape->dtype == i->operands[0]->shape->dtype)
        hlo_replace_uses(i, i->operands[0]);
    hlo_remove_dead(f);
    return hb_end(&b);
}
// The same reducer over f32; NULL = there is none.
static struct hlo_computation *wide_reducer(struct hb *b, struct hlo_computation *f) {
    struct hlo_module *m = f->module;
    enum hlo_op op;
    if (!widens(f)) return NULL;
    if (hlo_reducer_op(f, &op) && is_narrow(f->root) && hlo_op_info(op)->arity == 2 &&
        hlo_op_info(op)->traits & HLO_T_COMM)
        return hb_reducer(m, op, DT_F32);
    struct hlo_computation *r = hlo_computation_clone(m, f, f->name);
    hlo_computation_move_before(r, m->first);
    hb_fail(b, widen_body(r));
    return r;
}

// ---- instructions

static bool is_contraction(const struct hlo_instr *i) {
    enum dtype t = i->shape->dtype;
    if ((i->op != HLO_DOT && i->op != HLO_CONVOLUTION && i->op != HLO_RAGGED_DOT) ||
        !dtype_is_float(t) || dtype_bits(t) > 32)
        return false;
    bool any = false;
    for (int k = 0; k < 2; k++) {
        enum dtype x = i->operands[k]->shape->dtype;
        if (!dtype_is_float(x) || dtype_bits(x) > 32) return false;
        any = any || dtype_bits(x) < 32;
    }
    return any || dtype_bits(t) < 32;
}
static int64_t moved(const struct hlo_instr *x, bool rounded) {
    double v;
    if (match_splat(x, &v)) return 0;
    return (x->mark == ROUNDED) == rounded ? shape_elements(x->shape) : 0;
}
// A movement of several values is one of wide values when most of what it moves is: a few new rows
// do not widen a cache, nor a few learned ones an activation.
static bool moves_wide(const struct hlo_instr *i) {
    int first = 0, last = 1;
    switch (i->op) {
    case HLO_BITCAST:
    case HLO_BROADCAST:
    case HLO_COPY:
    case HLO_RESHAPE:
    case HLO_REVERSE:
    case HLO_SLICE:
    case HLO_TRANSPOSE:
    case HLO_DYNAMIC_SLICE:
    case HLO_GATHER:
        return i->operands[0]->mark == ROUNDED;
    case HLO_DYNAMIC_UPDATE_SLICE:
    case HLO_PAD:
        last = 2;
        break;
    case HLO_SELECT:
        first = 1;
        last = 3;
        break;
    case HLO_CONCATENATE:
        last = i->n_operands;
        break;
    default:
        return false;
    }

    int64_t rounded = 0, plain = 0;
    for (int k = first; k < last; k++) {
        rounded += moved(i->operands[k], true);
        plain += moved(i->operands[k], false);
    }
    return rounded > plain;
}
static bool reduces(const struct hlo_instr *i) {
    return (i->op == HLO_REDUCE || i->op == HLO_REDUCE_WINDOW) && i->n_operands == 2;
}
static bool same_types(const struct hlo_instr *i) {
    for (int k = 0; k < i->n_operands; k++) {
        enum dtype t = i->operands[k]->shape->dtype;
        if (t != i->shape->dtype && dtype_is_float(t)) return false;
    }
    return true;
}
// A choice between values by the side of a bound that x lies on, as activations make it: what
// matters is that the same x is looked at and taken.
static bool chooses(const struct hlo_instr *i) {
    double v;
    if (i->op != HLO_COMPARE || !is_narrow(i->operands[0]) || i->parent->root == i ||
        HLO_ATTR(i, compare)->type == CMPT_TOTALORDER || !match_with_splat(i, &v))
        return false;
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        if (u->op != HLO_SELECT || u->operands[0] != i || !is_narrow(u)) return false;
    }
    return true;
}
static bool goes_wide(const struct norm *n, const struct hlo_instr *i) {
    if (shape_is_tuple(i->shape) || i->control_preds.n) return false;
    if (is_contraction(i)) return true;
    if (n->strict) return false;
    if (chooses(i)) return true;
    if (!is_narrow(i) || !same_types(i)) return false;
    if (i->op == HLO_SELECT || hlo_op_info(i->op)->traits & HLO_T_DATA || i->op == HLO_GATHER)
        return moves_wide(i);
    if (i->op == HLO_SCATTER && i->n_operands == 3) return i->operands[0]->mark == ROUNDED;
    return is_arithmetic(i) || reduces(i) || i->op == HLO_BATCH_NORM_INFERENCE;
}

// Both operands are bf16: who has instructions for that may round what it reads (PrecisionConfig's
// algorithm of XLA; change_op_data_type.c).
static bool reads_bf16(const struct hlo_instr *i) {
    return is_contraction(i) && i->op != HLO_RAGGED_DOT &&
           i->operands[0]->shape->dtype == DT_BF16 && i->operands[1]->shape->dtype == DT_BF16;
}
static void widen(struct norm *n, struct hlo_instr *i, bool *changed) {
    struct hb *b = n->b;
    struct hlo_computation *reducer = NULL;
    if (!goes_wide(n, i)) return;
    if (i->n_called && !(reducer = wide_reducer(b, i->called[0]))) return;
    hv *in = arena_array(b->c->module->arena, hv, i->n_operands + 1);
    for (int k = 0; k < i->n_operands; k++)
        in[k] = wide(n, i->operands[k]);
    if (!hb_ok(b)) return;
    hv y = hlo_clone_instr(b->c, i, in);
    if (reducer) hlo_set_called(y, 0, reducer);
    if (!n->strict && reads_bf16(i)) pass_ask_bf16(y);
    y->mark = 0;
    y->tmp = NULL;
    if (i->op != HLO_COMPARE) hlo_set_shape(y, as_f32(b, i->shape));
    hv rounded = i->op == HLO_COMPARE ? y : convert(b, y, i->shape->dtype);
    if (rounded != y && !n->strict) {
        rounded->mark = ROUNDED;
        rounded->tmp = y;
    }
    hlo_replace_uses(i, rounded);
    *changed = true;
}

// Does u decide something by the value, so that another use must see the same one? x - floor(x)
// lies in [0, 1) only if both are the rounded x.
static bool decides(const struct hlo_instr *u) {
    switch (u->op) {
    case HLO_CONVERT:
        return !dtype_is_float(u->shape->dtype);
    case HLO_COMPARE:
    case HLO_CEIL:
    case HLO_FLOOR:
    case HLO_ROUND_AFZ:
    case HLO_ROUND_EVEN:
    case HLO_SIGN:
    case HLO_REMAINDER:
    case HLO_POWER:
    case HLO_IS_FINITE:
    case HLO_SORT:
    case HLO_TOPK:
    case HLO_REDUCE:
    case HLO_MAP:
        return true;
    default:
        return false;
    }
}
// Where the rounded value decides, it is the value for everyone.
static void settle(struct norm *n, struct hlo_instr *i) {
    bool any = false;
    for (size_t k = 0; k < i->users.n; k++)
        any = any || decides(i->users.v[k]);
    hv w = i->tmp;
    if (i->mark != ROUNDED || !any || w->users.n < 2) return;
    hv again = convert(n->b, i, DT_F32);
    if (i->next) hlo_move_before(again, i->next);
    hlo_replace_uses(w, again);
    hlo_set_operand(i, 0, w);
}

// ---- explicit conversions

// Do arithmetic, reductions and what is spread for them alone read it?
static bool only_computes(const struct hlo_instr *i, int depth) {
    enum hlo_op op;
    if (i->parent->root == i || !depth) return false;
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        bool sum = reduces(u) && hlo_reducer_op(u->called[0], &op);
        bool spread = u->op == HLO_BROADCAST && only_computes(u, depth - 1);
        if (!sum && !spread && (!is_arithmetic(u) || decides(u))) return false;
    }
    return true;
}
// A conversion to a wide type, of what was computed in f32, gives that. Of several conversions of
// one value all do or none: a sum may be compared with another's terms.
static bool takes_wide(struct norm *n, const struct hlo_instr *i) {
    enum { DEPTH = 16 };
    const struct hlo_instr *x = i->op == HLO_CONVERT ? i->operands[0] : NULL;
    enum dtype t = x ? i->shape->dtype : DT_PRED;
    if (n->strict || (t != DT_F32 && t != DT_F64) || x->mark != ROUNDED || i->control_preds.n)
        return false;
    if (pmap_has_ptr(&n->takes, x)) return pmap_get_ptr(&n->takes, x) != NULL;
    bool all = true;
    for (size_t k = 0; k < x->users.n && all; k++) {
        const struct hlo_instr *u = x->users.v[k];
        all = u->op != HLO_CONVERT || only_computes(u, DEPTH);
    }
    pmap_put_ptr(&n->takes, x, all ? n : NULL);
    return all;
}
// A contraction of f32 whose program asks for operands of bf16: these are rounded here, each for
// this reader alone. What else reads them has all their digits.
static bool asks_for_bf16(const struct norm *n, const struct pass_ctx *p,
                          const struct hlo_instr *i) {
    return !n->strict && p->target && p->target->library_bf16 && !p->target->bf16_emulated &&
           (i->op == HLO_DOT || i->op == HLO_CONVOLUTION) && !i->control_preds.n &&
           i->operands[0]->shape->dtype == DT_F32 && i->operands[1]->shape->dtype == DT_F32 &&
           lib_reads_bf16(i);
}
static void round_operands(struct norm *n, struct hlo_instr *i, bool *changed) {
    hv in[2] = {i->operands[0], i->operands[1]};
    if (lib_was_bf16(in[0]) && lib_was_bf16(in[1])) return;
    for (int k = 0; k < 2; k++)
        if (!lib_was_bf16(in[k])) in[k] = convert(n->b, convert(n->b, in[k], DT_BF16), DT_F32);
    hv y = hb_ok(n->b) ? hlo_clone_instr(n->b->c, i, in) : NULL;
    if (y) hlo_replace_uses(i, y);
    *changed = true;
}
static void take_wide(struct norm *n, struct hlo_instr *i, bool *changed) {
    hlo_replace_uses(i, convert(n->b, i->operands[0]->tmp, i->shape->dtype));
    *changed = true;
}

static status_t normalize(struct hlo_computation *c, struct pass_ctx *p) {
    struct hb b = hb_begin(c);
    struct norm n = {.b = &b, .strict = p->opt && p->opt->precision == PRECISION_STRICT};
    for (struct hlo_instr *i = c->first; i; i = i->next)
        i->mark = 0, i->tmp = NULL;
    bool changed = false;
    HLO_EACH_INSTR(i, c) {
        struct hlo_instr *last = c->last;
        b.op_type = i->op_type;
        b.op_name = i->op_name;
        if (takes_wide(&n, i))
            take_wide(&n, i, &changed);
        else if (asks_for_bf16(&n, p, i))
            round_operands(&n, i, &changed);
        else
            widen(&n, i, &changed);
        pass_place(last, i);
        if (!hb_ok(&b)) break;
    }
    pmap_done(&n.takes);
    if (changed) hlo_remove_dead(c); // what was replaced decides nothing
    for (struct hlo_instr *i = c->first; i; i = i->next)
        settle(&n, i);
    RETURN_IF_ERR(hb_end(&b));
    p->changed = p->changed || changed;
    return ST_OK;
}

// Bodies of reductions, sorts and the like are scalars in the types of their callers.
static void mark_flow(struct hlo_module *m) {
    HLO_EACH_COMPUTATION(c, m)
    c->mark = c == m->entry;
    HLO_EACH_COMPUTATION(c, m)
    for (const struct hlo_instr *i = c->first; i; i = i->next)
        for (int k = 0; k < i->n_called; k++)
            if (i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL)
                i->called[k]->mark = 1;
}

status_t pass_float_normalization(struct hlo_module *m, struct pass_ctx *p) {
    if (p->target && p->target->emit) return ST_OK; // its compiler knows its device
    mark_flow(m);
    HLO_EACH_COMPUTATION(c, m)
    if (c->mark && !c->fusion) RETURN_IF_ERR(normalize(c, p));
    return ST_OK;
}
