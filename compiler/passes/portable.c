// SPDX-License-Identifier: Apache-2.0
// What a foreign compiler takes less well than its specification says. Scalars that stand for a
// whole shape (bounds of a clamp, the predicate of a select) become that shape: XLA:CPU moves
// layouts through the instruction and transposes its scalars. A bitcast, which is a promise about
// layouts that are not there yet, becomes a reshape. A reduction's initial value, which XLA may
// take as often as it likes (XLA:GPU does), is taken once, behind it. A domain is its operand.
// Calls of ours become what they stand for: decision trees gathers, products with weights of few
// bits unpacking and a dot, suppressions of boxes and LU decompositions loops. The entry gives one
// flat tuple.
#include "compiler/calls/expand.h"
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/pass.h"

static status_t widen(struct hlo_instr *i) {
    struct hlo_computation *c = i->parent;
    struct hlo_instr *last = c->last;
    struct hb b = hb_begin(c);
    for (int k = 0; k < i->n_operands; k++) {
        struct hlo_instr *x = i->operands[k];
        if (x->shape->rank == i->shape->rank) continue;
        hlo_set_operand(i, k, hb_broadcast(&b, x, i->shape->dims, i->shape->rank, NULL));
    }
    pass_place(last, i);
    return hb_end(&b);
}

static bool has_scalar_operand(const struct hlo_instr *i) {
    if ((i->op != HLO_CLAMP && i->op != HLO_SELECT) || shape_is_tuple(i->shape)) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (i->operands[k]->shape->rank != i->shape->rank) return true;
    return false;
}

static bool is_reshape(const struct hlo_instr *i) {
    const struct hlo_instr *x = i->operands[0];
    return i->op == HLO_BITCAST && i->shape->dtype == x->shape->dtype &&
           layout_is_default(i->shape->layout, i->shape->rank) &&
           layout_is_default(x->shape->layout, x->shape->rank);
}

static status_t to_reshape(struct hlo_instr *i) {
    struct hlo_instr *last = i->parent->last;
    struct hb b = hb_begin(i->parent);
    struct hlo_instr *r = hb_op(&b, HLO_RESHAPE, i->shape, i->operands, 1, NULL);
    return pass_put_instead(&b, last, i, r);
}

static status_t to_operations(struct hlo_instr *i, struct pass_ctx *p) {
    struct hlo_instr *last = i->parent->last, *r;
    struct hb b = hb_begin(i->parent);
    RETURN_IF_ERR(call_expand(&b, &p->scratch, i, &r));
    if (!r) return ST_OK;
    p->changed = true;
    return pass_put_instead(&b, last, i, r);
}

// Does it count how often the initial value is taken?
static bool counts_initial(const struct hlo_instr *i, enum hlo_op *op) {
    double v;
    if (i->op != HLO_REDUCE || i->n_operands != 2 || !hlo_reducer_op(i->called[0], op))
        return false;
    bool counts = *op == HLO_ADD || *op == HLO_MULTIPLY || *op == HLO_XOR;
    return counts && !(match_splat(i->operands[1], &v) && v == (*op == HLO_MULTIPLY));
}
// x with the initial value in front of each sum's terms, alone in a slab of neutral values: where
// the order of roundings counts.
static hv with_initial(struct hb *b, const struct hlo_instr *i, hv neutral) {
    struct hlo_instr *x = i->operands[0];
    struct i64s over = HLO_ATTR(i, dims)->dimensions;
    int64_t ones[HLO_MAX_RANK], first = -1;
    struct pad_dim pad[HLO_MAX_RANK] = {{0}};
    for (int d = 0; d < x->shape->rank; d++) {
        bool summed = i64s_has(over, d);
        ones[d] = summed ? 1 : x->shape->dims[d];
        if (summed && first < 0)
            first = d;
        else if (summed)
            pad[d].high = x->shape->dims[d] - 1;
    }
    hv slab = hb_broadcast(b, i->operands[1], ones, x->shape->rank, NULL);
    return hb_concat(b, (hv[]){hb_pad(b, slab, neutral, pad), x}, 2, first);
}
static status_t initial_once(struct hlo_instr *i, enum hlo_op op, bool strict) {
    struct hlo_instr *last = i->parent->last;
    struct hb b = hb_begin(i->parent);
    bool rounds = !dtype_is_int(i->shape->dtype) && i->shape->dtype != DT_PRED;
    bool ordered = strict && rounds && HLO_ATTR(i, dims)->dimensions.n > 0 &&
                   shape_elements(i->operands[0]->shape) > 0;
    hv neutral = hb_const_f64(&b, i->shape->dtype, op == HLO_MULTIPLY ? 1 : ordered ? -0.0 : 0);
    hv x = ordered ? with_initial(&b, i, neutral) : i->operands[0];
    hv r = hb_call(&b, HLO_REDUCE, i->shape, (hv[]){x, neutral}, 2, i->attr, i->called, 1);
    if (ordered) return pass_put_instead(&b, last, i, r);
    hv initial = i->operands[1];
    if (i->shape->rank) initial = hb_broadcast(&b, initial, i->shape->dims, i->shape->rank, NULL);
    return pass_put_instead(&b, last, i, hb_binary(&b, op, initial, r));
}

static void leaves(struct hb *b, struct hlo_instr *x, struct hlo_instr **out, int *n) {
    if (!shape_is_tuple(x->shape)) {
        out[(*n)++] = x;
        return;
    }
    for (int k = 0; k < x->shape->n_elems; k++)
        leaves(b, x->op == HLO_TUPLE ? x->operands[k] : hb_gte(b, x, k), out, n);
}

static bool nested(const struct shape *s) {
    for (int k = 0; shape_is_tuple(s) && k < s->n_elems; k++)
        if (shape_is_tuple(s->elems[k])) return true;
    return false;
}

static status_t flatten_root(struct hlo_computation *c, struct pass_ctx *p) {
    struct hlo_instr **parts =
        arena_array(&p->scratch, struct hlo_instr *, shape_leaves(c->root->shape) + 1);
    int n = 0;
    struct hb b = hb_begin(c);
    leaves(&b, c->root, parts, &n);
    struct hlo_instr *root = hb_tuple(&b, parts, n);
    RETURN_IF_ERR(hb_end(&b));
    hlo_set_root(c, root);
    hlo_drop_donors(c->module); // they name results by their old places
    return ST_OK;
}

status_t pass_portable(struct hlo_module *m, struct pass_ctx *p) {
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c) {
        enum hlo_op op;
        if (i->op == HLO_CUSTOM_CALL) {
            RETURN_IF_ERR(to_operations(i, p));
            continue;
        }
        if (i->op == HLO_DOMAIN && !i->control_preds.n)
            hlo_replace_uses(i, i->operands[0]);
        else if (counts_initial(i, &op))
            RETURN_IF_ERR(initial_once(i, op, p->opt->precision == PRECISION_STRICT));
        else if (has_scalar_operand(i))
            RETURN_IF_ERR(widen(i));
        else if (i->n_operands && is_reshape(i))
            RETURN_IF_ERR(to_reshape(i));
        else
            continue;
        p->changed = true;
    }
    if (!nested(m->entry->root->shape)) return ST_OK;
    p->changed = true;
    return flatten_root(m->entry, p);
}
