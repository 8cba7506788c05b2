// SPDX-License-Identifier: Apache-2.0
// Gradient of ai.onnx.preview.training: derivatives of a value of the graph by others of it,
// written as HLO beside it. The instructions that lie between them are walked from the last to the
// first; each hands the derivative by its result on to its operands, and sums meet there.
// Instructions without a rule here, loops among them, are refused by name. Where a function has a
// corner (equal operands of a maximum) the derivative is shared among the sides.
#include <math.h>

#include "base/map.h"
#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

struct tape {
    struct onnx_ctx *c;
    struct hb *b;
    struct pmap active; // instructions that depend on one of the xs
    struct pmap sums;   // instruction -> derivative of the result by it, so far
};

// d more for the derivative by x.
static void give(struct tape *t, hv x, hv d) {
    if (!pmap_has_ptr(&t->active, x) || !hb_ok(t->b)) return;
    hv sum = pmap_get_ptr(&t->sums, x);
    pmap_put_ptr(&t->sums, x, sum ? hb_add(t->b, sum, d) : d);
}
static hv one_minus(struct tape *t, hv x) {
    return onnx_add_k(t->c, hb_unary(t->b, HLO_NEGATE, x), 1);
}
// d where the predicate holds, zero elsewhere.
static hv where(struct tape *t, hv p, hv d) {
    return hb_select(t->b, p, d, onnx_splat_like(t->c, d, 0));
}

// d times the derivative of a unary function at x, whose value is y. NULL: no rule.
static hv derivative(struct tape *t, const struct hlo_instr *i, hv d) {
    struct hb *b = t->b;
    struct onnx_ctx *c = t->c;
    hv x = i->operands[0], y = (hv)i, r;

    switch (i->op) {
    case HLO_NEGATE:
        return hb_unary(b, HLO_NEGATE, d);
    case HLO_EXP:
        return hb_mul(b, d, y);
    case HLO_EXPM1:
        return hb_mul(b, d, onnx_add_k(c, y, 1));
    case HLO_LOG:
        return hb_div(b, d, x);
    case HLO_LOG1P:
        return hb_div(b, d, onnx_add_k(c, x, 1));
    case HLO_TANH:
        return hb_mul(b, d, one_minus(t, hb_mul(b, y, y)));
    case HLO_LOGISTIC:
        return hb_mul(b, d, hb_mul(b, y, one_minus(t, y)));
    case HLO_SQRT:
        return hb_div(b, onnx_mul_k(c, d, 0.5), y);
    case HLO_RSQRT:
        return hb_mul(b, onnx_mul_k(c, d, -0.5), hb_div(b, y, x));
    case HLO_SIN:
        return hb_mul(b, d, hb_unary(b, HLO_COS, x));
    case HLO_COS:
        return hb_mul(b, d, hb_unary(b, HLO_NEGATE, hb_unary(b, HLO_SIN, x)));
    case HLO_TAN:
        return hb_mul(b, d, onnx_add_k(c, hb_mul(b, y, y), 1));
    case HLO_SINH:
        return hb_mul(b, d, hb_unary(b, HLO_COSH, x));
    case HLO_COSH:
        return hb_mul(b, d, hb_unary(b, HLO_SINH, x));
    case HLO_ABS:
        return hb_mul(b, d, hb_unary(b, HLO_SIGN, x));
    case HLO_ERF:
        r = hb_unary(b, HLO_EXP, hb_unary(b, HLO_NEGATE, hb_mul(b, x, x)));
        return hb_mul(b, d, onnx_mul_k(c, r, 2 / sqrt(acos(-1.0))));
    case HLO_COPY:
        return d;
    case HLO_CONVERT:
        return hb_convert(b, d, x->shape->dtype);
    default:
        return NULL;
    }
}
// What a unary function gives its operand. False: no rule.
static bool unary(struct tape *t, const struct hlo_instr *i, hv d) {
    bool step = i->op == HLO_CEIL || i->op == HLO_FLOOR || i->op == HLO_ROUND_AFZ ||
                i->op == HLO_ROUND_EVEN || i->op == HLO_SIGN; // their derivative is 0
    hv r = step ? NULL : derivative(t, i, d);
    if (r) give(t, i->operands[0], r);
    return step || r || !hb_ok(t->b);
}
// Of a maximum or minimum: all to the one that is the result, halves where both are.
static void corner(struct tape *t, const struct hlo_instr *i, hv d) {
    struct hb *b = t->b;
    hv x = i->operands[0], y = i->operands[1], half = onnx_mul_k(t->c, d, 0.5);
    hv equal = hb_compare(b, x, y, CMP_EQ);
    enum cmp_direction first = i->op == HLO_MAXIMUM ? CMP_GT : CMP_LT;
    give(t, x, hb_select(b, equal, half, where(t, hb_compare(b, x, y, first), d)));
    give(t, y, hb_select(b, equal, half, where(t, hb_compare(b, y, x, first), d)));
}
static bool binary(struct tape *t, const struct hlo_instr *i, hv d) {
    struct hb *b = t->b;
    hv x = i->operands[0], y = i->n_operands > 1 ? i->operands[1] : NULL, r;

    switch (i->op) {
    case HLO_ADD:
        give(t, x, d);
        give(t, y, d);
        return true;
    case HLO_SUBTRACT:
        give(t, x, d);
        give(t, y, hb_unary(b, HLO_NEGATE, d));
        return true;
    case HLO_MULTIPLY:
        give(t, x, hb_mul(b, d, y));
        give(t, y, hb_mul(b, d, x));
        return true;
    case HLO_DIVIDE:
        r = hb_div(b, d, y);
        give(t, x, r);
        give(t, y, hb_unary(b, HLO_NEGATE, hb_mul(b, r, (hv)i)));
        return true;
    case HLO_MAXIMUM:
    case HLO_MINIMUM:
        corner(t, i, d);
        return true;
    case HLO_POWER: // y x^(y-1); x^y log x, nothing where x is 0
        r = hb_mul(b, y, hb_binary(b, HLO_POWER, x, onnx_add_k(t->c, y, -1)));
        give(t, x, hb_mul(b, d, r));
        r = hb_mul(b, (hv)i, hb_unary(b, HLO_LOG, x));
        give(t, y,
             hb_mul(b, d, where(t, hb_compare(b, x, onnx_splat_like(t->c, x, 0), CMP_NE), r)));
        return true;
    default:
        return false;
    }
}

// ---- operators that move or join elements

static void by_broadcast(struct tape *t, const struct hlo_instr *i, hv d) {
    struct i64s map = HLO_ATTR(i, dims)->dimensions;
    int64_t gone[HLO_MAX_RANK];
    int n = 0, rank = i->shape->rank;
    for (int k = 1; k < map.n; k++)
        if (map.v[k] < map.v[k - 1])
            return onnx_fail(t->c, "Gradient through a broadcast that turns");
    for (int64_t k = 0; k < rank; k++)
        if (!i64s_has(map, k)) gone[n++] = k;
    give(t, i->operands[0], onnx_reduce_keep(t->c, d, gone, n, HLO_ADD, false));
}
static void by_transpose(struct tape *t, const struct hlo_instr *i, hv d) {
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    int64_t back[HLO_MAX_RANK];
    for (int k = 0; k < perm.n; k++)
        back[perm.v[k]] = k;
    give(t, i->operands[0], hb_transpose(t->b, d, back));
}
static void by_slice(struct tape *t, const struct hlo_instr *i, hv d) {
    struct ranges r = HLO_ATTR(i, slice)->slice;
    struct pad_dim p[HLO_MAX_RANK];
    const struct shape *s = i->operands[0]->shape;
    for (int k = 0; k < s->rank; k++) {
        int64_t n = i->shape->dims[k], used = n ? (n - 1) * r.v[k].stride + 1 : 0;
        p[k] = (struct pad_dim){r.v[k].start, s->dims[k] - r.v[k].start - used, r.v[k].stride - 1};
    }
    give(t, i->operands[0], hb_pad(t->b, d, hb_const_f64(t->b, d->shape->dtype, 0), p));
}
static bool by_pad(struct tape *t, const struct hlo_instr *i, hv d) {
    struct padding p = HLO_ATTR(i, pad)->padding;
    struct range r[HLO_MAX_RANK];
    if (pmap_has_ptr(&t->active, i->operands[1])) return false;
    for (int k = 0; k < p.n; k++) {
        int64_t n = i->operands[0]->shape->dims[k], step = p.v[k].interior + 1;
        if (p.v[k].low < 0 || p.v[k].high < 0) return false;
        r[k] = (struct range){p.v[k].low, p.v[k].low + (n ? (n - 1) * step + 1 : 0), step};
    }
    give(t, i->operands[0], hb_slice(t->b, d, r));
    return true;
}
static void by_concat(struct tape *t, const struct hlo_instr *i, hv d) {
    int64_t dim = HLO_ATTR(i, dims)->dimensions.v[0], at = 0;
    for (int k = 0; k < i->n_operands; k++) {
        int64_t n = i->operands[k]->shape->dims[dim];
        if (pmap_has_ptr(&t->active, i->operands[k]))
            give(t, i->operands[k], onnx_part(t->c, d, dim, at, at + n));
        at += n;
    }
}
// Of sums, and of maxima and minima, whose derivative the elements that are the result share.
static bool by_reduce(struct tape *t, const struct hlo_instr *i, hv d) {
    struct hb *b = t->b;
    const struct hlo_instr *r = i->called[0]->root;
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    hv x = i->operands[0];
    bool sum = r->op == HLO_ADD, edge = r->op == HLO_MAXIMUM || r->op == HLO_MINIMUM;
    if (i->n_operands != 2 || (!sum && !edge) || i->called[0]->n_instrs != 3 ||
        pmap_has_ptr(&t->active, i->operands[1]))
        return false;
    hv wide = onnx_back_to(t->c, d, x->shape, dims.v, dims.n);
    if (edge) {
        hv is = hb_compare(b, x, onnx_back_to(t->c, (hv)i, x->shape, dims.v, dims.n), CMP_EQ);
        hv n = onnx_reduce_keep(t->c, hb_convert(b, is, d->shape->dtype), dims.v, dims.n, HLO_ADD,
                                false);
        wide = where(t, is, hb_div(b, wide, onnx_back_to(t->c, n, x->shape, dims.v, dims.n)));
    }
    give(t, x, wide);
    return true;
}

// ---- dot

struct side { // an operand's dimensions: batch and contracting in the order of the other side's
    hv v;
    struct i64s batch, contracting;
    int64_t free[HLO_MAX_RANK];
    int n_free;
};
static void find_free(struct side *s) {
    for (int64_t k = 0; k < s->v->shape->rank; k++)
        if (!i64s_has(s->batch, k) && !i64s_has(s->contracting, k)) s->free[s->n_free++] = k;
}
// By `to`, of which the result d has the free dimensions at [at, ...) and those of `from` at
// [from_at, ...): d times from, then in to's order.
static void by_side(struct tape *t, const struct side *to, const struct side *from, int64_t from_at,
                    hv d) {
    int64_t ones[HLO_MAX_RANK], places[HLO_MAX_RANK], perm[HLO_MAX_RANK];
    int n = 0;
    if (!pmap_has_ptr(&t->active, to->v)) return;
    for (int64_t k = 0; k < HLO_MAX_RANK; k++)
        ones[k] = k, places[k] = from_at + k;
    struct hlo_attr_dot a = {
        .lhs_batch_dims = {ones, to->batch.n},
        .rhs_batch_dims = from->batch,
        .lhs_contracting_dims = {places, from->n_free},
        .rhs_contracting_dims = {(int64_t *)(uintptr_t)from->free, from->n_free}};
    hv r = hb_dot(t->b, d, from->v, &a); // batch, to's free, from's contracting in its own order
    for (int k = 0; k < to->batch.n; k++)
        perm[to->batch.v[k]] = n++;
    for (int k = 0; k < to->n_free; k++)
        perm[to->free[k]] = n++;
    for (int64_t k = 0; k < from->v->shape->rank; k++)
        for (int j = 0; j < from->contracting.n; j++)
            if (from->contracting.v[j] == k) perm[to->contracting.v[j]] = n++;
    if (hb_ok(t->b)) give(t, to->v, hb_transpose(t->b, r, perm));
}
static void by_dot(struct tape *t, const struct hlo_instr *i, hv d) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    struct side x = {i->operands[0], a->lhs_batch_dims, a->lhs_contracting_dims, {0}, 0},
                y = {i->operands[1], a->rhs_batch_dims, a->rhs_contracting_dims, {0}, 0};
    find_free(&x);
    find_free(&y);
    by_side(t, &x, &y, x.batch.n + x.n_free, d);
    by_side(t, &y, &x, x.batch.n, d);
}

// ---- the walk

static bool pass_on(struct tape *t, const struct hlo_instr *i, hv d) {
    struct hb *b = t->b;

    switch (i->op) {
    case HLO_RESHAPE:
        give(t, i->operands[0],
             hb_reshape(b, d, i->operands[0]->shape->dims, i->operands[0]->shape->rank));
        return true;
    case HLO_BROADCAST:
        by_broadcast(t, i, d);
        return true;
    case HLO_TRANSPOSE:
        by_transpose(t, i, d);
        return true;
    case HLO_SLICE:
        by_slice(t, i, d);
        return true;
    case HLO_PAD:
        return by_pad(t, i, d);
    case HLO_CONCATENATE:
        by_concat(t, i, d);
        return true;
    case HLO_REVERSE:
        give(t, i->operands[0],
             hb_reverse(b, d, HLO_ATTR(i, dims)->dimensions.v, HLO_ATTR(i, dims)->dimensions.n));
        return true;
    case HLO_SELECT:
        give(t, i->operands[1], where(t, i->operands[0], d));
        give(t, i->operands[2], hb_select(b, i->operands[0], onnx_splat_like(t->c, d, 0), d));
        return true;
    case HLO_CLAMP: {
        hv x = i->operands[1];
        if (pmap_has_ptr(&t->active, i->operands[0]) || pmap_has_ptr(&t->active, i->operands[2]))
            return false;
        give(t, x, where(t, hb_compare(b, x, (hv)i, CMP_EQ), d));
        return true;
    }
    case HLO_REDUCE:
        return by_reduce(t, i, d);
    case HLO_DOT:
        by_dot(t, i, d);
        return true;
    default:
        return unary(t, i, d) || binary(t, i, d);
    }
}

static void mark_active(struct tape *t, hv last) {
    struct hlo_computation *comp = last->parent;
    for (struct hlo_instr *i = comp->first; i; i = i->next) {
        for (int k = 0; k < i->n_operands && !pmap_has_ptr(&t->active, i); k++)
            if (pmap_has_ptr(&t->active, i->operands[k]) &&
                (shape_is_tuple(i->shape) || dtype_is_float(i->shape->dtype)))
                pmap_put_ptr(&t->active, i, NULL);
        if (i == last) return;
    }
}

static void walk(struct tape *t, hv y) {
    pmap_put_ptr(&t->sums, y, onnx_splat_like(t->c, y, 1));
    for (struct hlo_instr *i = y; i && hb_ok(t->b); i = i->prev) {
        hv d = pmap_has_ptr(&t->active, i) ? pmap_get_ptr(&t->sums, i) : NULL;
        bool on = false; // does anything before it want the derivative?
        for (int k = 0; k < i->n_operands; k++)
            on = on || pmap_has_ptr(&t->active, i->operands[k]);
        if (d && on && !pass_on(t, i, d))
            onnx_fail(t->c, "the derivative of %s%s%s is not supported", hlo_op_name(i->op),
                      i->op_type ? ", which is part of " : "", i->op_type ? i->op_type : "");
    }
}

// Names of the values, in the attribute; they must be those of the inputs: derivatives at other
// places than where the graph has been would need it once more.
static bool names_inputs(struct onnx_ctx *c, const char *attr, size_t first, size_t *n) {
    const struct onnx_attr *a = onnx_attr(c->n, attr);
    *n = a ? a->strings.n : 0;
    for (size_t k = 0; k < *n; k++)
        if (first + k >= c->n->in.n || !str_eq(a->strings.v[k], c->n->in.v[first + k])) {
            onnx_fail(c, "%s names '" STR_FMT "', input %zu is another value", attr,
                      STR_ARG(a->strings.v[k]), first + k);
            return false;
        }
    return true;
}

ONNX(gradient) {
    struct tape t = {.c = c, .b = b};
    size_t n, rest;
    if (c->b.c != c->b.c->module->entry)
        return onnx_fail(c,
                         "in the body of a branch or a loop, which does not see how y came about");
    if (!names_inputs(c, "xs", 0, &n) || !names_inputs(c, "zs", n, &rest)) return;
    const struct onnx_val *y = smap_get(&c->values, onnx_at_str(c, "y", ""));
    if (!n || !y || !y->v || y->size || !dtype_is_float(y->v->shape->dtype))
        return onnx_fail(c, "y is not a tensor of numbers that the graph has");
    for (size_t k = 0; k < n; k++) {
        const struct onnx_val *x = onnx_in_any(c, k);
        if (!x || !x->v || x->known || !dtype_is_float(onnx_in_val(c, k)->shape->dtype)) {
            pmap_done(&t.active);
            return onnx_fail(c, "input %zu is not a tensor of numbers that a request brings", k);
        }
        pmap_put_ptr(&t.active, x->v, NULL);
    }
    // What was built between stays in order; derivatives are appended behind.
    mark_active(&t, y->v);
    walk(&t, y->v);
    for (size_t k = 0; k < n && hb_ok(b); k++) {
        hv x = onnx_in_val(c, k), d = pmap_get_ptr(&t.sums, x);
        onnx_out_val(c, k, d ? d : onnx_splat_like(c, x, 0));
    }
    pmap_done(&t.active);
    pmap_done(&t.sums);
}
