// SPDX-License-Identifier: Apache-2.0
// Turns of a Loop: what those that are lowered one after the other begin and end with; and how
// often it turns when its condition follows from what is known at compile time: counters that start
// at a constant, the lengths they are compared with (as TensorFlow's while loops come). Only what
// the condition needs is evaluated, turn by turn, within the budget of folding. Does not:
// conditions on tensors, or on values that only the run knows; these stay conditions.
#include "compiler/frontend/onnx/onnx_turns.h"
#include "compiler/eval.h"
#include "compiler/frontend/onnx/onnx_tools.h"

enum { MAX_ELEMENTS = 16, MAX_DEPTH = 64, MAX_NEEDED = 64, MAX_TURNS = 1 << 16 };

struct counter {
    hv param;
    struct arena *a; // of one turn
    struct hlo_eval ev;
    struct pmap seen;                  // value -> literal of this turn
    size_t needed[MAX_NEEDED], n;      // elements of the state
    struct literal *state[MAX_NEEDED]; // of them
};

static int position(const struct counter *k, size_t element) {
    for (size_t e = 0; e < k->n; e++)
        if (k->needed[e] == element) return (int)e;
    return -1;
}
// Notes which elements x reads. False: x is not for the compiler.
static bool look(struct counter *k, const struct hlo_instr *x, int depth) {
    if (pmap_has_ptr(&k->seen, x)) return true;
    pmap_put_ptr(&k->seen, x, NULL);
    if (x->op == HLO_CONSTANT) return true;
    if (x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == k->param) {
        if (k->n == MAX_NEEDED) return false;
        k->needed[k->n++] = (size_t)HLO_ATTR(x, gte)->index;
        return true;
    }
    if (depth > MAX_DEPTH || shape_is_tuple(x->shape) || !x->n_operands || x->n_called ||
        !(hlo_op_info(x->op)->traits & HLO_T_P) || shape_elements(x->shape) > MAX_ELEMENTS)
        return false;
    for (int o = 0; o < x->n_operands; o++)
        if (!look(k, x->operands[o], depth + 1)) return false;
    return true;
}
static status_t value(struct counter *k, const struct hlo_instr *x, struct literal **out) {
    struct literal *in[8];
    if (x->op == HLO_CONSTANT) {
        *out = x->literal;
        return ST_OK;
    }
    if (x->op == HLO_GET_TUPLE_ELEMENT) {
        *out = k->state[position(k, (size_t)HLO_ATTR(x, gte)->index)];
        return ST_OK;
    }
    if ((*out = pmap_get_ptr(&k->seen, x))) return ST_OK;
    if (x->n_operands > 8) return st_unimplemented("many operands");
    for (int o = 0; o < x->n_operands; o++)
        RETURN_IF_ERR(value(k, x->operands[o], &in[o]));
    RETURN_IF_ERR(hlo_op_info(x->op)->eval(&k->ev, x, in, out));
    pmap_put_ptr(&k->seen, x, *out);
    return ST_OK;
}

// Everything that the condition needs, also by way of the elements that it needs.
static bool find_needed(struct counter *k, hv const *init, hv const *next, hv go) {
    if (!look(k, go, 0)) return false;
    for (size_t e = 0; e < k->n; e++) {
        size_t at = k->needed[e];
        if (init[at]->op != HLO_CONSTANT || shape_elements(init[at]->shape) > MAX_ELEMENTS ||
            !next[at] || !look(k, next[at], 0))
            return false;
        k->state[e] = init[at]->literal;
    }
    return true;
}
// One turn: whether another follows, and the new state in `to`.
static status_t turn(struct counter *k, hv const *next, hv go, struct arena *to, bool *more) {
    struct literal *l, *fresh[MAX_NEEDED];
    RETURN_IF_ERR(value(k, go, &l));
    *more = lit_get_i64(l, 0) != 0;
    for (size_t e = 0; e < k->n; e++) {
        RETURN_IF_ERR(value(k, next[k->needed[e]], &l));
        fresh[e] = lit_new(to, l->shape);
        memcpy(fresh[e]->data, l->data, l->size_bytes);
    }
    memcpy(k->state, fresh, sizeof *fresh * k->n);
    return ST_OK;
}

int64_t onnx_known_turns(struct onnx_ctx *c, hv param, hv const *init, hv const *next, hv go,
                         int64_t most) {
    struct arena kept[2] = {{0}, {0}}; // state of this turn and of the next
    struct counter k = {.param = param};
    int64_t n = 0, limit = most >= 0 && most < MAX_TURNS ? most : MAX_TURNS;
    bool more = true, known = find_needed(&k, init, next, go);
    status_t st = ST_OK;
    pmap_done(&k.seen);
    while (known && more && n < limit && !st) {
        struct arena a = {0};
        k.seen = (struct pmap){0};
        k.ev = hlo_eval_at_compile(&a, *c->folding, c->cancel);
        arena_done(&kept[n & 1]);
        kept[n & 1] = (struct arena){0};
        st = turn(&k, next, go, &kept[n & 1], &more);
        *c->folding -= k.ev.work;
        pmap_done(&k.seen);
        arena_done(&a);
        n++;
    }
    arena_done(&kept[0]);
    arena_done(&kept[1]);
    known &= !st && (!more || n == most);
    st_drop(st);
    return known ? n : -1;
}

// ---- turns that are lowered one after the other

void onnx_turn_number(struct onnx_ctx *c, const struct onnx_graph *g, hv i, struct onnx_val **f) {
    const struct onnx_value *number = &g->inputs.v[0], *cond = &g->inputs.v[1];
    hv go = hb_constant(&c->b, lit_scalar_i64(c->a, DT_PRED, 1));
    int64_t one = 1;
    f[0] = onnx_tensor_val(c, number->has_shape ? hb_reshape(&c->b, i, &one, number->rank) : i);
    f[1] = onnx_tensor_val(c, cond->has_shape && cond->rank ? hb_reshape(&c->b, go, &one, 1) : go);
    for (int k = 0; k < 2; k++) // a reshaped constant is known too
        if (i->op == HLO_CONSTANT || k) onnx_fold_value(c, f[k]);
}

struct onnx_val *onnx_stack_turns(struct onnx_ctx *c, const struct onnx_row *rows,
                                  const struct onnx_value *like) {
    size_t n = rows->n;

    if (!n) {
        int64_t dims[HLO_MAX_RANK] = {0};
        enum dtype type = onnx_dtype_of(like);
        if (!like->has_shape || like->rank + 1 > HLO_MAX_RANK || type == DT_INVALID) {
            onnx_fail(c, "no iteration tells the shape of a stacked result");
            return NULL;
        }
        int axis = (int)rows->axis + (rows->axis < 0 ? like->rank + 1 : 0);
        for (int d = 0, i = 0; d <= like->rank; d++)
            if (d != axis) dims[d] = like->dims[i].size > 0 ? like->dims[i].size : 0, i++;
        return onnx_tensor_val(
            c, hb_constant(&c->b, lit_new(c->a, shape_make(c->a, type, dims, like->rank + 1))));
    }

    hv *v = arena_array(c->a, hv, n);
    for (size_t i = 0; i < n; i++) {
        const struct onnx_val *row = rows->v[rows->reversed ? n - 1 - i : i];
        if (!row->v || row->v->shape->rank + 1 > HLO_MAX_RANK)
            onnx_fail(c, "a result of an iteration is not a tensor that can be stacked");
        else if (row->size)
            onnx_fail(c, "a stacked result has rows of a size that only the run knows");
        else if (row->text != rows->v[0]->text)
            onnx_fail(c, "a stacked result is text at times");
        if (!hb_ok(&c->b)) return NULL;
        v[i] = onnx_add_axis(c, row->v, onnx_axis_of(c, rows->axis, row->v->shape->rank + 1));
    }

    struct onnx_val *all = onnx_tensor_val(
        c, n == 1 ? v[0]
                  : hb_concat(&c->b, v, (int)n, onnx_axis_of(c, rows->axis, v[0]->shape->rank)));
    all->text = rows->v[0]->text;
    return all;
}
