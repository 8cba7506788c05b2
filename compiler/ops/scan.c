// SPDX-License-Identifier: Apache-2.0
// scan: a computation carried along one dimension. scan(xs..., inits...) calls f(slices...,
// carries) at each position, in order or from the end; f gives (outputs..., carries...). The result
// is the outputs stacked along the dimension, then the last carries.
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/rules.h"

static const struct shape *without_dim(struct arena *a, const struct shape *s, int64_t d) {
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int k = 0; k < s->rank; k++)
        if (k != d) dims[n++] = s->dims[k];
    return shape_make(a, s->dtype, dims, n);
}

status_t hlo_infer_scan(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    const struct hlo_attr_scan *t = HLO_ATTR(i, scan);
    const struct shape *r;
    RETURN_IF_ERR(rule_arrays(i));

    if (t->num_carries < 0 || t->num_carries >= i->n_operands)
        return st_invalid("num_carries is %lld of %d operands", (long long)t->num_carries,
                          i->n_operands);

    int carries = (int)t->num_carries, xs = i->n_operands - carries;
    RETURN_IF_ERR(rule_dims(t->dimensions, rule_shape(i, 0)->rank, "dimensions"));
    if (t->dimensions.n != 1) return st_invalid("dimensions must name one dimension");
    int64_t d = t->dimensions.v[0], length = rule_shape(i, 0)->dims[d];
    RETURN_IF_ERR(rule_callee(i, 0, i->n_operands, &r));

    const struct hlo_computation *f = i->called[0];
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *s = rule_shape(i, k);
        if (k < xs && (d >= s->rank || s->dims[d] != length))
            return st_invalid("operand %d is %s, expected %lld along %lld", k, shape_text(a, s),
                              (long long)length, (long long)d);
        const struct shape *want = k < xs ? without_dim(a, s, d) : s;
        if (!shape_compatible(f->params.v[k]->shape, want))
            return st_invalid("parameter %d of '%s' is %s, expected %s", k, f->name,
                              shape_text(a, f->params.v[k]->shape), shape_text(a, want));
    }

    int n = shape_is_tuple(r) ? r->n_elems : 1, ys = n - carries;
    if (ys < 0 || (n == 1 && !shape_is_tuple(r) && carries > 1))
        return st_invalid("'%s' gives %d values, expected %d carries at least", f->name, n,
                          carries);

    const struct shape **e = arena_array(a, const struct shape *, n ? n : 1);
    for (int k = 0; k < n; k++) {
        const struct shape *s = shape_is_tuple(r) ? r->elems[k] : r;
        if (k >= ys && !shape_compatible(s, rule_shape(i, xs + k - ys)))
            return st_invalid("carry %d is %s, '%s' gives %s", k - ys,
                              shape_text(a, rule_shape(i, xs + k - ys)), f->name, shape_text(a, s));
        if (k < ys && (shape_is_tuple(s) || dtype_size(s->dtype) == 0 || d > s->rank ||
                       s->rank == HLO_MAX_RANK))
            return st_invalid("output %d is %s, stacked along %lld", k, shape_text(a, s),
                              (long long)d);
        e[k] = s;

        if (k >= ys) continue;
        int64_t dims[HLO_MAX_RANK];
        for (int j = 0; j <= s->rank; j++)
            dims[j] = j == d ? length : s->dims[j - (j > d)];
        e[k] = shape_make(a, s->dtype, dims, s->rank + 1);
    }

    *out = shape_is_tuple(r) ? shape_tuple(a, e, n) : e[0];
    return ST_OK;
}

// Copies slice `at` along d of `whole` to or from `part`.
static void slice_copy(struct literal *whole, struct literal *part, int64_t d, int64_t at,
                       bool to_part) {
    const struct shape *s = whole->shape;
    int64_t inner = 1, outer = 1;
    for (int k = 0; k < s->rank; k++)
        *(k < d ? &outer : &inner) *= k == d ? 1 : s->dims[k];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < inner; j++) {
            int64_t w = (o * s->dims[d] + at) * inner + j, p = o * inner + j;
            if (to_part)
                element_copy(part, p, whole, w);
            else
                element_copy(whole, w, part, p);
        }
}

// Steps alternate between two arenas, so that a long scan keeps only two states.
EVAL(SCAN) {
    const struct hlo_attr_scan *t = HLO_ATTR(i, scan);
    struct arena two[2] = {{0}, {0}}, *home = ev->arena;
    struct literal *r, **results, **args = arena_array(home, struct literal *, i->n_operands);
    int carries = (int)t->num_carries, xs = i->n_operands - carries;
    int n = shape_is_tuple(i->shape) ? i->shape->n_elems : 1, ys = n - carries;
    int64_t d = t->dimensions.v[0], length = in[0]->shape->dims[d], used;

    RETURN_IF_ERR(hlo_eval_alloc_each(ev, i, n, &results, &r));
    status_t st = ST_OK;
    for (int k = xs; k < i->n_operands; k++)
        args[k] = in[k];
    used = ev->used_bytes;

    for (int64_t step = 0; step < length && !st; step++) {
        int64_t at = t->is_reverse ? length - 1 - step : step;
        struct literal *y = NULL;
        ev->arena = &two[step & 1];
        arena_reset(ev->arena);
        ev->used_bytes = used;

        for (int k = 0; k < xs; k++) {
            args[k] = lit_new(ev->arena, i->called[0]->params.v[k]->shape);
            slice_copy(in[k], args[k], d, at, true);
        }

        st = hlo_eval_computation(ev, i->called[0], args, i->n_operands, &y);
        for (int k = 0; k < n && !st; k++) {
            struct literal *v = shape_is_tuple(y->shape) ? y->elems[k] : y;
            if (k < ys)
                slice_copy(results[k], v, d, at, false);
            else
                args[xs + k - ys] = lit_clone(ev->arena, v);
        }
    }

    ev->arena = home;
    for (int k = ys; k < n && !st; k++) { // into r's own elements
        struct literal *v = args[xs + k - ys];
        if (v->size_bytes) memcpy(results[k]->data, v->data, v->size_bytes);
    }
    if (!st) *out = r;
    arena_done(&two[0]);
    arena_done(&two[1]);
    return st;
}
