// SPDX-License-Identifier: Apache-2.0
// Rules of two movements of data in a row: one is left, or none.
#include "base/span.h"
#include "compiler/passes/rules/rules.h"

RULE_FN(copy_copy) {
    if (i->op != HLO_COPY || i->operands[0]->op != HLO_COPY) return NULL;
    return hb_op(&r->b, HLO_COPY, i->shape, i->operands[0]->operands, 1, NULL);
}
RULE_FN(reverse_reverse) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_REVERSE || x->op != HLO_REVERSE) return NULL;
    struct i64s a = HLO_ATTR(i, dims)->dimensions, b = HLO_ATTR(x, dims)->dimensions;
    bool same = a.n == b.n;
    for (int k = 0; k < a.n && same; k++)
        same = i64s_has(b, a.v[k]);
    return same ? x->operands[0] : NULL;
}
RULE_FN(sort_of_one) {
    bool topk = i->op == HLO_TOPK;
    if (!topk && i->op != HLO_SORT) return NULL;
    const struct shape *s = i->operands[0]->shape;
    int64_t d = topk ? s->rank - 1 : HLO_ATTR(i, sort)->dimensions.v[0];
    if (s->dims[d] != 1 || (topk && HLO_ATTR(i, topk)->k != 1)) return NULL;
    if (!topk)
        return i->n_operands == 1 ? i->operands[0] : hb_tuple(&r->b, i->operands, i->n_operands);
    struct hlo_instr *both[] = {i->operands[0], hb_splat(&r->b, i->shape->elems[1], 0)};
    return hb_tuple(&r->b, both, 2);
}
// The order of topk's values: total, so that equal ones are the same and stay as they lie.
static struct hlo_computation *topk_order(struct rule_ctx *r, const struct hlo_instr *i) {
    struct arena *a = i->parent->module->arena;
    enum dtype t = i->operands[0]->shape->dtype;
    struct hlo_computation *c = hb_callee(i->parent->module, "topk_order");
    struct hb b = hb_begin(c);
    hv v[4];
    for (int k = 0; k < 4; k++)
        v[k] = hlo_add_param(c, k, shape_scalar(a, k < 2 ? t : DT_S32), "x");
    struct hlo_attr_compare order = {.direction = HLO_ATTR(i, topk)->largest ? CMP_GT : CMP_LT,
                                     .type = dtype_is_float(t) ? CMPT_TOTALORDER : CMPT_DEFAULT};
    hlo_set_root(c, hb_op(&b, HLO_COMPARE, shape_scalar(a, DT_PRED), v, 2, &order));
    hb_fail(&r->b, hb_end(&b));
    return c;
}
// Many short lines are sorted side by side in vectors (rule_sort_beside); topk takes each by
// itself, in one pass for each result: of more than 16 elements, 8 of 64 bits, one or two are found
// as soon (s32 1.6 times). Of 64 bits more than 16, of others more than 20 take more registers than
// there are: 24 of f64 10 times topk's time, 24 of f32 0.4 s to compile.
RULE_FN(topk_of_short) {
    enum { MOST = 20, MOST_64 = 16, FEW = 3, LEAST_LINES = 1024 };
    if (i->op != HLO_TOPK || (r->target && strcmp(r->target->kind, "cpu") != 0)) return NULL;
    const struct shape *s = i->operands[0]->shape;
    int64_t last = s->rank - 1, n = s->dims[last], k = HLO_ATTR(i, topk)->k;
    int bits = dtype_bits(s->dtype);
    int64_t most = bits > 32 ? MOST_64 : MOST, most_few = bits > 32 ? MOST_64 / 2 : MOST_64;
    if (n < 2 || n > most || (n > most_few && k < FEW) || s->dynamic || s->layout ||
        shape_elements(s) < n * LEAST_LINES || i->shape->elems[1]->dtype != DT_S32 ||
        i->shape->elems[0]->layout || dtype_is_complex(s->dtype) ||
        bits < (dtype_is_float(s->dtype) ? 16 : 8))
        return NULL;

    struct arena *a = i->parent->module->arena;
    const struct shape *places = shape_make(a, DT_S32, s->dims, s->rank);
    hv in[] = {i->operands[0], hb_iota(&r->b, places, last)}, out[2];
    struct hlo_computation *c = topk_order(r, i);
    struct hlo_attr_sort attr = {.dimensions = {&last, 1}, .is_stable = true};
    hv sorted = hb_call(&r->b, HLO_SORT, shape_tuple(a, (const struct shape *[]){s, places}, 2), in,
                        2, &attr, &c, 1);
    struct range first[HLO_MAX_RANK];
    for (int d = 0; d < s->rank; d++)
        first[d] = (struct range){0, d == last ? k : s->dims[d], 1};
    for (int e = 0; e < 2; e++)
        out[e] = hb_slice(&r->b, hb_gte(&r->b, sorted, e), first);
    return hb_tuple(&r->b, out, 2);
}
RULE_FN(tuple_of_elements) {
    if (i->op != HLO_TUPLE || i->operands[0]->op != HLO_GET_TUPLE_ELEMENT) return NULL;
    struct hlo_instr *t = i->operands[0]->operands[0];
    if (t->shape->n_elems != i->n_operands) return NULL;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *e = i->operands[k];
        if (e->op != HLO_GET_TUPLE_ELEMENT || e->operands[0] != t || HLO_ATTR(e, gte)->index != k)
            return NULL;
    }
    return t;
}
// Dims of the broadcast that are not 1 keep their order; those that came from its operand must find
// their place in the result.
RULE_FN(reshape_broadcast) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_RESHAPE || x->op != HLO_BROADCAST) return NULL;
    int64_t place[HLO_MAX_RANK], map[HLO_MAX_RANK];
    int k = 0;
    for (int d = 0; d < x->shape->rank; d++) {
        place[d] = -1;
        if (x->shape->dims[d] == 1) continue;
        while (k < i->shape->rank && i->shape->dims[k] == 1)
            k++;
        if (k == i->shape->rank || i->shape->dims[k] != x->shape->dims[d]) return NULL;
        place[d] = k++;
    }
    struct i64s from = HLO_ATTR(x, dims)->dimensions;
    for (int d = 0; d < from.n; d++)
        if ((map[d] = place[from.v[d]]) < 0) return NULL;
    return hb_broadcast(&r->b, x->operands[0], i->shape->dims, i->shape->rank, map);
}
RULE_FN(transpose_broadcast) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_TRANSPOSE || x->op != HLO_BROADCAST) return NULL;
    struct i64s perm = HLO_ATTR(i, dims)->dimensions, from = HLO_ATTR(x, dims)->dimensions;
    int64_t map[HLO_MAX_RANK], last = -1;
    for (int k = 0; k < from.n; k++) {
        for (int d = 0; d < perm.n; d++)
            if (perm.v[d] == from.v[k]) map[k] = d;
        if (map[k] < last) return NULL; // the operand itself would have to be transposed
        last = map[k];
    }
    return hb_broadcast(&r->b, x->operands[0], i->shape->dims, i->shape->rank, map);
}
RULE_FN(slice_broadcast) {
    struct hlo_instr *x = i->operands[0], *of = x->n_operands ? x->operands[0] : NULL;
    struct range v[HLO_MAX_RANK];
    int64_t dims[HLO_MAX_RANK], to[HLO_MAX_RANK];
    int n = 0;
    bool part = false;
    if (i->op != HLO_SLICE || x->op != HLO_BROADCAST) return NULL;
    struct i64s map = HLO_ATTR(x, dims)->dimensions;
    for (int k = 0; k < map.n; k++) {
        int d = (int)map.v[k];
        v[k] = HLO_ATTR(i, slice)->slice.v[d];
        part |= i->shape->dims[d] != x->shape->dims[d];
        if (i->shape->dims[d] == 1) continue;
        dims[n] = i->shape->dims[d];
        to[n++] = d;
    }

    if (!part) return hb_broadcast(&r->b, of, i->shape->dims, i->shape->rank, map.v);
    of = hb_slice(&r->b, of, v);
    return hb_broadcast(&r->b, n < map.n ? hb_reshape(&r->b, of, dims, n) : of, i->shape->dims,
                        i->shape->rank, to);
}
RULE_FN(slice_concat) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_SLICE || x->op != HLO_CONCATENATE) return NULL;
    int64_t d = HLO_ATTR(x, dims)->dimensions.v[0], at = 0;
    struct ranges s = HLO_ATTR(i, slice)->slice;
    for (int k = 0; k < x->n_operands; k++) {
        int64_t n = x->operands[k]->shape->dims[d];
        if (s.v[d].start >= at && s.v[d].limit <= at + n && s.v[d].limit > s.v[d].start) {
            struct range v[HLO_MAX_RANK];
            memcpy(v, s.v, sizeof *v * (size_t)s.n);
            v[d].start -= at;
            v[d].limit -= at;
            return hb_slice(&r->b, x->operands[k], v);
        }
        at += n;
    }
    return NULL;
}
// What slice i of transpose x reads of x's operand.
static void ranges_before(const struct hlo_instr *i, const struct hlo_instr *x, struct range *v) {
    struct i64s perm = HLO_ATTR(x, dims)->dimensions;
    for (int d = 0; d < perm.n; d++)
        v[perm.v[d]] = HLO_ATTR(i, slice)->slice.v[d];
}
// Is slice i of transpose x, but for dims of one, in the order of x's operand, and little of it or
// one of a few columns, which a reader takes where it lies? (Measured on Zen 5: 2 to 8 columns 1.4
// to 6 times as fast where one kernel reads them, 0.85 to 1.4 where each has its own; bytes of 16
// and more lose.)
static bool is_column(const struct hlo_instr *i, const struct hlo_instr *x) {
    enum { FEW = 8, LITTLE = 8 };
    const struct shape *from = x->operands[0]->shape;
    struct i64s perm = HLO_ATTR(x, dims)->dimensions;
    struct range v[HLO_MAX_RANK];
    int64_t last = -1, apart = 1;
    if (i->op != HLO_SLICE) return false;
    for (int d = 0; d < perm.n; d++) {
        if (i->shape->dims[d] == 1) continue;
        if (perm.v[d] < last) return false;
        last = perm.v[d];
    }
    ranges_before(i, x, v);
    int64_t all = (int64_t)x->users.n * shape_elements(i->shape); // slices are of one size, mostly
    if (all <= shape_elements(from) / LITTLE) return true;
    for (int d = from->rank - 1; d >= 0 && (from->dims[d] == 1 || v[d].start > 0 ||
                                            v[d].limit < from->dims[d] || v[d].stride > 1);
         d--)
        apart *= from->dims[d];
    return apart <= FEW;
}
// Does slice i of transpose x read one operand of a concatenate alone, which slice_concat takes?
static bool in_one_part(const struct hlo_instr *i, const struct hlo_instr *x) {
    const struct hlo_instr *c = x->operands[0];
    struct range v[HLO_MAX_RANK];
    if (c->op != HLO_CONCATENATE) return false;
    ranges_before(i, x, v);
    struct range along = v[HLO_ATTR(c, dims)->dimensions.v[0]];
    int64_t at = 0;
    for (int k = 0; k < c->n_operands; k++) {
        int64_t n = c->operands[k]->shape->dims[HLO_ATTR(c, dims)->dimensions.v[0]];
        if (along.start >= at && along.limit <= at + n && along.limit > along.start) return true;
        at += n;
    }
    return false;
}
RULE_FN(slice_transpose) {
    struct hlo_instr *x = i->operands[0];
    struct range v[HLO_MAX_RANK];
    if (i->op != HLO_SLICE || x->op != HLO_TRANSPOSE) return NULL;
    bool columns = x != x->parent->root;
    for (size_t k = 0; k < x->users.n && columns; k++)
        columns = is_column(x->users.v[k], x);
    if (!columns && !in_one_part(i, x)) return NULL;
    ranges_before(i, x, v);
    return hb_transpose(&r->b, hb_slice(&r->b, x->operands[0], v), HLO_ATTR(x, dims)->dimensions.v);
}
static bool among(struct i64s v, int64_t d) {
    for (int64_t k = 0; k < v.n; k++)
        if (v.v[k] == d) return true;
    return false;
}
// Which slice of a product's operand makes its result's slices v: those of the batch, then, from
// v[at] on, those of its own dims. Gives where the next operand's begin.
static int sliced_operand(const struct shape *s, struct i64s batch, struct i64s contracting,
                          const struct range *v, int at, struct range *own) {
    for (int d = 0; d < s->rank; d++)
        if (among(contracting, d))
            own[d] = (struct range){0, s->dims[d], 1};
        else if (!among(batch, d))
            own[d] = v[at++];
    for (int64_t k = 0; k < batch.n; k++)
        own[batch.v[k]] = v[k];
    return at;
}
static bool is_weight(const struct hlo_instr *i) {
    while (i->n_operands == 1)
        i = i->operands[0];
    return i->op == HLO_CONSTANT || (i->op == HLO_PARAMETER && i->param_kind != PARAM_INPUT);
}
// What the slice of an operand costs: a copy, of which each element takes the time of so many
// products. Of a weight it is made once, but kept; of all that there is it is none.
static double slice_cost(const struct hlo_instr *x, const struct range *v) {
    enum { PRODUCTS = 16 };
    double n = 1;
    for (int d = 0; d < x->shape->rank; d++)
        n *= (double)ceil_div(v[d].limit - v[d].start, v[d].stride);
    if (n == (double)shape_elements(x->shape)) return 0;
    return is_weight(x) && x->users.n == 1 ? n : n * PRODUCTS;
}
// What is not read of a product, as the logits of all words but the last, is not made, where that
// repays the slices: of a large matrix of which most is read they are no gain.
RULE_FN(slice_dot) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_SLICE || x->op != HLO_DOT || x->users.n != 1 || x->shape->dynamic ||
        x->operands[0]->shape->dynamic || x->operands[1]->shape->dynamic ||
        shape_equal(i->shape, x->shape))
        return NULL;
    const struct hlo_attr_dot *a = HLO_ATTR(x, dot);
    const struct range *v = HLO_ATTR(i, slice)->slice.v;
    const struct shape *s[2] = {x->operands[0]->shape, x->operands[1]->shape};
    struct range own[2][HLO_MAX_RANK];
    int at = sliced_operand(s[0], a->lhs_batch_dims, a->lhs_contracting_dims, v,
                            (int)a->lhs_batch_dims.n, own[0]);
    sliced_operand(s[1], a->rhs_batch_dims, a->rhs_contracting_dims, v, at, own[1]);

    double less = (double)shape_elements(x->shape) - (double)shape_elements(i->shape);
    for (int64_t k = 0; k < a->lhs_contracting_dims.n; k++)
        less *= (double)s[0]->dims[a->lhs_contracting_dims.v[k]];
    if (less < slice_cost(x->operands[0], own[0]) + slice_cost(x->operands[1], own[1])) return NULL;
    hv in[2];
    for (int k = 0; k < 2; k++)
        in[k] = hb_slice(&r->b, x->operands[k], own[k]);
    hv y = hb_op(&r->b, HLO_DOT, i->shape, in, 2, a);
    if (hb_ok(&r->b)) pass_ask_alike(y, x);
    return y;
}
RULE_FN(concat_slices) {
    if (i->op != HLO_CONCATENATE || i->operands[0]->op != HLO_SLICE || i->n_operands < 2)
        return NULL;
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0];
    const struct hlo_instr *first = i->operands[0];
    struct range all[HLO_MAX_RANK];
    memcpy(all, HLO_ATTR(first, slice)->slice.v, sizeof *all * (size_t)i->shape->rank);
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (x->op != HLO_SLICE || x->operands[0] != first->operands[0]) return NULL;
        const struct range *v = HLO_ATTR(x, slice)->slice.v;
        for (int e = 0; e < i->shape->rank; e++) {
            bool next = e == d && k > 0;
            if (v[e].stride != (e == d ? 1 : all[e].stride) ||
                v[e].start != (next ? all[d].limit : all[e].start) ||
                (e != d && v[e].limit != all[e].limit))
                return NULL;
        }
        all[d].limit = v[d].limit;
    }
    return hb_slice(&r->b, first->operands[0], all);
}
RULE_FN(concat_concat) {
    enum { MOST = 64 };
    struct hlo_instr *in[MOST];
    int n = 0;
    bool found = false;
    if (i->op != HLO_CONCATENATE) return NULL;
    for (int k = 0; k < i->n_operands; k++) {
        struct hlo_instr *x = i->operands[k];
        bool nested = x->op == HLO_CONCATENATE && x->users.n == 1 &&
                      HLO_ATTR(x, dims)->dimensions.v[0] == HLO_ATTR(i, dims)->dimensions.v[0];
        int many = nested ? x->n_operands : 1;
        if (n + many > MOST) return NULL;
        for (int j = 0; j < many; j++)
            in[n++] = nested ? x->operands[j] : x;
        found |= nested;
    }
    return found ? hb_concat(&r->b, in, n, HLO_ATTR(i, dims)->dimensions.v[0]) : NULL;
}
RULE_FN(dynamic_slice_fixed) {
    if (i->op != HLO_DYNAMIC_SLICE || i->n_operands != i->shape->rank + 1) return NULL;
    struct range v[HLO_MAX_RANK];
    const struct shape *s = i->operands[0]->shape;
    for (int d = 0; d < s->rank; d++) {
        const struct hlo_instr *at = i->operands[d + 1];
        if (at->op != HLO_CONSTANT || at->shape->rank) return NULL;
        int64_t n = i->shape->dims[d], start = lit_get_start(at->literal, 0), most = s->dims[d] - n;
        start = start < 0 ? 0 : start > most ? most : start;
        v[d] = (struct range){start, start + n, 1};
    }
    return hb_slice(&r->b, i->operands[0], v);
}
RULE_FN(update_all) {
    bool all =
        i->op == HLO_DYNAMIC_UPDATE_SLICE && shape_same_dims(i->shape, i->operands[1]->shape);
    return all ? i->operands[1] : NULL;
}

// ---- a scatter of one window

// Component k of the one index vector.
static hv start_at(struct hb *b, hv indices, int64_t k, enum dtype t) {
    int64_t n = shape_elements(indices->shape);
    hv flat = hb_reshape(b, indices, &n, 1);
    if (n > 1) flat = hb_slice(b, flat, &(struct range){k, k + 1, 1});
    return hb_convert(b, hb_reshape(b, flat, NULL, 0), t);
}
// Does the reducer put the new element, or make one operation of the old and the new?
static bool combines(const struct hlo_computation *f) {
    enum hlo_op op;
    if (f->params.n != 2) return false;
    if (f->root == f->params.v[1]) return true;
    return hlo_reducer_op(f, &op) && (op == HLO_ADD || op == HLO_SUBTRACT || op == HLO_MULTIPLY ||
                                      op == HLO_DIVIDE || op == HLO_MAXIMUM || op == HLO_MINIMUM ||
                                      op == HLO_AND || op == HLO_OR || op == HLO_XOR);
}
static hv combined(struct hb *b, const struct hlo_computation *f, hv old, hv upd) {
    if (f->root == f->params.v[1]) return upd;
    bool turned = f->root->operands[0] == f->params.v[1];
    return hb_binary(b, f->root->op, turned ? upd : old, turned ? old : upd);
}
// A window that does not fit is skipped, where dynamic-update-slice would move it: then the old
// elements are put back.
RULE_FN(scatter_one) {
    struct hb *b = &r->b;
    const struct hlo_attr_scatter *a = HLO_ATTR(i, scatter);

    if (i->n_operands != 3 || a->input_batching_dims.n ||
        shape_elements(i->operands[2]->shape) == 0)
        return NULL;

    hv x = i->operands[0], indices = i->operands[1], upd = i->operands[2];
    const struct shape *s = x->shape;
    int64_t windows[HLO_MAX_RANK], n = a->scatter_dims_to_operand_dims.n;
    int w = 0;
    if (n == 0 || shape_elements(indices->shape) != n || s->dynamic || upd->shape->dynamic ||
        !combines(i->called[0]))
        return NULL;

    // A type that holds the sizes; of 64 bits without a sign, what s64 does not hold is out of
    // bounds either way.
    enum dtype t = indices->shape->dtype == DT_S32 ? DT_S32 : DT_S64;
    for (int d = 0; d < s->rank; d++) {
        windows[d] = i64s_has(a->inserted_window_dims, d)
                         ? 1
                         : upd->shape->dims[a->update_window_dims.v[w++]];
        if (windows[d] > s->dims[d]) return NULL;
        if (s->dims[d] > INT32_MAX) t = DT_S64;
    }

    hv start[HLO_MAX_RANK + 2], inside = NULL, zero = hb_const_i64(b, t, 0);
    for (int d = 0; d < s->rank; d++)
        start[d + 2] = zero;
    for (int64_t k = 0; k < n; k++) {
        int64_t d = a->scatter_dims_to_operand_dims.v[k];
        hv at = start[d + 2] = start_at(b, indices, k, t);
        hv last = hb_const_i64(b, t, s->dims[d] - windows[d]);
        hv fits =
            hb_binary(b, HLO_AND, hb_compare(b, at, zero, CMP_GE), hb_compare(b, at, last, CMP_LE));
        inside = inside ? hb_binary(b, HLO_AND, inside, fits) : fits;
    }

    struct hlo_attr_dynslice sizes = {.dynamic_slice_sizes = {windows, s->rank}};
    start[1] = x;
    hv old = hb_op(b, HLO_DYNAMIC_SLICE, NULL, start + 1, s->rank + 1, &sizes);
    hv put = combined(b, i->called[0], old, hb_reshape(b, upd, windows, s->rank));
    start[0] = x;
    start[1] = hb_select(b, hb_broadcast(b, inside, windows, s->rank, NULL), put, old);
    return hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, i->shape, start, s->rank + 2, NULL);
}
RULE_FN(pad_pad) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_PAD || x->op != HLO_PAD || x->users.n != 1) return NULL;
    const struct hlo_instr *a = i->operands[1], *b = x->operands[1];
    bool same = a == b || (a->op == HLO_CONSTANT && b->op == HLO_CONSTANT &&
                           lit_equal(a->literal, b->literal));
    struct pad_dim v[HLO_MAX_RANK];
    const struct padding *p = &HLO_ATTR(i, pad)->padding, *q = &HLO_ATTR(x, pad)->padding;
    for (int d = 0; d < p->n && same; d++) {
        v[d] = (struct pad_dim){p->v[d].low + q->v[d].low, p->v[d].high + q->v[d].high,
                                q->v[d].interior};
        same = p->v[d].low >= 0 && p->v[d].high >= 0 && q->v[d].low >= 0 && q->v[d].high >= 0 &&
               p->v[d].interior == 0;
    }
    return same ? hb_pad(&r->b, x->operands[0], i->operands[1], v) : NULL;
}
// Is p a pad with zeros that leaves a place free behind each of x's (*low = 0) or before (1) along
// one dim, but for the last, and does nothing else? -1: no; else that dim.
static int takes_turns(const struct hlo_instr *p, int64_t *low) {
    int along = -1;
    if (p->op != HLO_PAD || p->users.n != 1 || !match_zero(p->operands[1])) return -1;
    const struct padding *v = &HLO_ATTR(p, pad)->padding;
    for (int d = 0; d < v->n; d++) {
        if (!v->v[d].low && !v->v[d].high && !v->v[d].interior) continue;
        if (along >= 0 || v->v[d].interior != 1 || (v->v[d].low | v->v[d].high | 1) != 1) return -1;
        along = d;
        *low = v->v[d].low;
    }
    return along;
}
// x[.., n, ..] as [.., n, 1, ..].
static struct hlo_instr *with_one(struct hb *b, struct hlo_instr *x, int d) {
    int64_t dims[HLO_MAX_RANK];
    for (int n = 0; n <= x->shape->rank; n++)
        dims[n] = n <= d ? x->shape->dims[n] : n == d + 1 ? 1 : x->shape->dims[n - 1];
    return hb_reshape(b, x, dims, x->shape->rank + 1);
}
static struct hlo_instr *part(struct hb *b, struct hlo_instr *x, int d, int64_t from, int64_t to) {
    struct range v[HLO_MAX_RANK];
    for (int k = 0; k < x->shape->rank; k++)
        v[k] = (struct range){k == d ? from : 0, k == d ? to : x->shape->dims[k], 1};
    return hb_slice(b, x, v);
}
RULE_FN(interleave) {
    enum { SHORT_RUN = 8 }; // elements behind the dim: longer runs are vectors as they lie
    int64_t low[2] = {0}, run = 1, dims[HLO_MAX_RANK];
    const struct shape *s = i->shape;
    bool floats = dtype_is_float(s->dtype) || dtype_is_complex(s->dtype);
    if ((i->op != HLO_ADD && i->op != HLO_OR) || (floats && r->strict) || s->rank == HLO_MAX_RANK)
        return NULL;
    int d = takes_turns(i->operands[0], &low[0]);
    if (d < 0 || takes_turns(i->operands[1], &low[1]) != d || low[0] == low[1]) return NULL;
    for (int k = d + 1; k < s->rank; k++)
        run *= s->dims[k];
    struct hlo_instr *first = i->operands[low[0]]->operands[0],
                     *second = i->operands[low[1]]->operands[0];
    int64_t n = second->shape->dims[d], more = first->shape->dims[d] - n;
    if (run >= SHORT_RUN || n < 1 || s->dims[d] != 2 * n + more || (more != 0 && more != 1))
        return NULL;
    memcpy(dims, s->dims, sizeof *dims * (size_t)s->rank);
    dims[d] = 2 * n;
    struct hlo_instr *turns[] = {with_one(&r->b, more ? part(&r->b, first, d, 0, n) : first, d),
                                 with_one(&r->b, second, d)};
    struct hlo_instr *all = hb_reshape(&r->b, hb_concat(&r->b, turns, 2, d + 1), dims, s->rank);
    return more ? hb_concat(&r->b, (hv[]){all, part(&r->b, first, d, n, n + 1)}, 2, d) : all;
}
RULE_FN(pad_negative) {
    if (i->op != HLO_PAD || !i->shape->rank) return NULL;
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    struct range v[HLO_MAX_RANK];
    bool less = false;
    for (int d = 0; d < p->n; d++) {
        int64_t n = i->operands[0]->shape->dims[d];
        if (p->v[d].low > 0 || p->v[d].high > 0 || p->v[d].interior ||
            n + p->v[d].low + p->v[d].high < 0)
            return NULL;
        less |= p->v[d].low < 0 || p->v[d].high < 0;
        v[d] = (struct range){-p->v[d].low, n + p->v[d].high, 1};
    }
    return less ? hb_slice(&r->b, i->operands[0], v) : NULL;
}
// dot gives [batch, left, right]: the transpose that gives [batch, right, left] is the dot of the
// operands in the other order. Weights stay on the right, where libraries pack them.
RULE_FN(transpose_dot) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_TRANSPOSE || x->op != HLO_DOT || x->users.n != 1 ||
        (is_weight(x->operands[1]) && !is_weight(x->operands[0])))
        return NULL;
    const struct hlo_attr_dot *a = HLO_ATTR(x, dot);
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    int nb = a->lhs_batch_dims.n,
        left = x->operands[0]->shape->rank - nb - a->lhs_contracting_dims.n,
        right = perm.n - nb - left;
    for (int d = 0; d < perm.n; d++)
        if (perm.v[d] != (d < nb ? d : d < nb + right ? d + left : d - right)) return NULL;
    struct hlo_attr_dot swapped = {.lhs_batch_dims = a->rhs_batch_dims,
                                   .rhs_batch_dims = a->lhs_batch_dims,
                                   .lhs_contracting_dims = a->rhs_contracting_dims,
                                   .rhs_contracting_dims = a->lhs_contracting_dims};
    hv y = hb_op(&r->b, HLO_DOT, i->shape, (hv[]){x->operands[1], x->operands[0]}, 2, &swapped);
    if (hb_ok(&r->b)) pass_ask_alike(y, x);
    return y;
}
// Is every value of integer type `from` itself in type `to`?
static bool holds(enum dtype to, enum dtype from) {
    if (!dtype_is_int(from) || !dtype_is_int(to) || dtype_bits(from) < 8 ||
        dtype_bits(to) <= dtype_bits(from))
        return false;
    return dtype_class(from) == DC_UNSIGNED || dtype_class(to) != DC_UNSIGNED;
}
// Does reshape `at` do nothing but give the indices a dim of 1 for the index alone?
static bool adds_index_dim(const struct hlo_instr *at, int64_t index_dim) {
    const struct shape *x = at->operands[0]->shape;
    if (at->op != HLO_RESHAPE || x->rank != index_dim || at->shape->rank != index_dim + 1 ||
        at->shape->dims[index_dim] != 1)
        return false;
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] != at->shape->dims[d]) return false;
    return true;
}
// Indices are clamped as whole numbers, whatever their type; one that has a dim of its own is read
// as well without it.
RULE_FN(gather_index) {
    if (i->op != HLO_GATHER) return NULL;
    struct hlo_instr *at = i->operands[1];
    int64_t dim = HLO_ATTR(i, gather)->index_vector_dim;
    while (at->n_operands == 1 && at->users.n == 1 && !at->shape->dynamic) {
        struct hlo_instr *x = at->operands[0];
        bool wider = at->op == HLO_CONVERT && holds(at->shape->dtype, x->shape->dtype);
        if (!wider && !adds_index_dim(at, dim)) break;
        at = x;
    }
    return at == i->operands[1] ? NULL : hb_gather(&r->b, i->operands[0], at, HLO_ATTR(i, gather));
}
// Windows that lie one behind the other at constant places, or one alone: a slice, of which what
// reads and what makes the operand can be told more.
RULE_FN(gather_fixed) {
    if (i->op != HLO_GATHER || i->shape->dynamic || i->operands[0]->shape->dynamic) return NULL;
    const struct hlo_attr_gather *a = HLO_ATTR(i, gather);
    const struct hlo_instr *at = i->operands[1];
    const struct shape *s = i->operands[0]->shape;
    int64_t depth = a->start_index_map.n, rows, step = 1, first = 0;
    struct range v[HLO_MAX_RANK];
    if (at->op != HLO_CONSTANT || a->operand_batching_dims.n || depth < 1 || !shape_elements(s))
        return NULL;
    rows = shape_elements(at->shape) / depth;
    for (int d = 0; d < s->rank; d++)
        v[d] = (struct range){0, a->slice_sizes.v[d], 1};

    if (rows == 1) {
        for (int64_t k = 0; k < depth; k++) {
            int64_t d = a->start_index_map.v[k], most = s->dims[d] - v[d].limit,
                    start = lit_get_start(at->literal, k);
            start = start < 0 ? 0 : start > most ? most : start;
            v[d].start += start, v[d].limit += start;
        }
    } else { // the indices' one dimension stands where the operand's did
        int64_t d = a->start_index_map.v[0];
        if (depth > 1 || rows < 2 || s->rank != i->shape->rank || a->slice_sizes.v[d] != 1 ||
            a->collapsed_slice_dims.n != 1 || a->collapsed_slice_dims.v[0] != d ||
            i->shape->dims[d] != rows)
            return NULL;
        for (int64_t k = 0; k < a->offset_dims.n; k++)
            if (a->offset_dims.v[k] == d) return NULL;
        first = lit_get_start(at->literal, 0), step = lit_get_start(at->literal, 1) - first;
        if (first < 0 || step < 1 || first >= s->dims[d] ||
            rows - 1 > (s->dims[d] - 1 - first) / step)
            return NULL;
        for (int64_t k = 2; k < rows; k++)
            if (lit_get_start(at->literal, k) != first + k * step) return NULL;
        v[d] = (struct range){first, first + (rows - 1) * step + 1, step};
    }
    return hb_reshape(&r->b, hb_slice(&r->b, i->operands[0], v), i->shape->dims, i->shape->rank);
}
static bool broadcast_alike(const struct hlo_instr *x, const struct hlo_instr *y) {
    struct i64s a = HLO_ATTR(x, dims)->dimensions, b = HLO_ATTR(y, dims)->dimensions;
    for (int k = 0; k < a.n && k < b.n; k++)
        if (a.v[k] != b.v[k]) return false;
    return shape_same_dims(x->operands[0]->shape, y->operands[0]->shape);
}
// Of i's operands, all broadcasts along the same dims (or from scalars): what is broadcast, the
// scalars to as many elements. NULL: something else is among them, or nothing becomes smaller.
static const struct hlo_instr *broadcasts_only(const struct hlo_instr *i) {
    const struct hlo_instr *like = NULL;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (x->shape->rank == 0) continue;
        if (x->op != HLO_BROADCAST) return NULL;
        bool whole = like && like->operands[0]->shape->rank, here = x->operands[0]->shape->rank;
        if (whole && here && !broadcast_alike(x, like)) return NULL;
        if (!like || here) like = x;
    }
    if (!like || shape_elements(like->operands[0]->shape) >= shape_elements(i->shape)) return NULL;
    return like;
}
RULE_FN(of_broadcasts) {
    enum { MOST = 4 };
    hv in[MOST];
    if (!i->shape->rank || i->op == HLO_STOCHASTIC_CONVERT || i->n_called || i->control_preds.n ||
        i->n_operands > MOST || i->shape->dynamic)
        return NULL;
    const struct hlo_instr *like = broadcasts_only(i);
    if (!like) return NULL;
    const struct shape *s = like->operands[0]->shape;
    for (int k = 0; k < i->n_operands; k++) {
        in[k] = i->operands[k]->shape->rank ? i->operands[k]->operands[0] : i->operands[k];
        bool may_be_scalar = !i->operands[k]->shape->rank;
        if (!may_be_scalar && !in[k]->shape->rank && s->rank)
            in[k] = hb_broadcast(&r->b, in[k], s->dims, s->rank, NULL);
    }
    struct arena *a = i->parent->module->arena;
    hv small = hb_op(&r->b, i->op, shape_make(a, i->shape->dtype, s->dims, s->rank), in,
                     i->n_operands, i->attr);
    hv all = hb_broadcast(&r->b, small, i->shape->dims, i->shape->rank,
                          HLO_ATTR(like, dims)->dimensions.v);
    return shape_equal(all->shape, i->shape) ? all : NULL;
}
