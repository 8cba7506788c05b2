// SPDX-License-Identifier: Apache-2.0
// Checks common to several shape rules.
#include "compiler/ops/rules.h"

#include "base/map.h"

status_t rule_array(const struct hlo_instr *i, int k) {
    enum dtype t = rule_shape(i, k)->dtype;
    if (t == DT_TUPLE || t == DT_TOKEN || t == DT_OPAQUE)
        return st_invalid("operand %d is a %s, expected an array", k, dtype_name(t));
    return ST_OK;
}
status_t rule_arrays(const struct hlo_instr *i) {
    for (int k = 0; k < i->n_operands; k++)
        RETURN_IF_ERR(rule_array(i, k));
    return ST_OK;
}
status_t rule_same_dims(struct arena *a, const struct hlo_instr *i, int k, int j) {
    const struct shape *x = rule_shape(i, k), *y = rule_shape(i, j);
    if (shape_same_dims(x, y)) return ST_OK;
    return st_invalid("operand %d is %s, operand %d is %s: dimensions differ", k, shape_text(a, x),
                      j, shape_text(a, y));
}
status_t rule_same_dtype(struct arena *a, const struct hlo_instr *i, int k, int j) {
    const struct shape *x = rule_shape(i, k), *y = rule_shape(i, j);
    if (x->dtype == y->dtype) return ST_OK;
    return st_invalid("operand %d is %s, operand %d is %s: element types differ", k,
                      shape_text(a, x), j, shape_text(a, y));
}
status_t rule_dims(struct i64s d, int rank, const char *what) {
    bool seen[HLO_MAX_RANK] = {false};
    for (int k = 0; k < d.n; k++) {
        if (d.v[k] < 0 || d.v[k] >= rank)
            return st_invalid("%s has %lld, the rank is %d", what, (long long)d.v[k], rank);
        if (seen[d.v[k]]) return st_invalid("%s has %lld twice", what, (long long)d.v[k]);
        seen[d.v[k]] = true;
    }
    return ST_OK;
}
status_t rule_callee(const struct hlo_instr *i, int k, int n_params, const struct shape **out) {
    if (k >= i->n_called) return st_invalid("a called computation is missing");
    const struct hlo_computation *c = i->called[k];
    if ((int)c->params.n != n_params)
        return st_invalid("computation '%s' has %zu parameters, expected %d", c->name, c->params.n,
                          n_params);
    *out = c->root->shape;
    return ST_OK;
}

static bool is_scalar_array(const struct shape *s) {
    return s->rank == 0 && dtype_class(s->dtype) != DC_NONE;
}
status_t rule_scalar_callee(const struct hlo_instr *i, int k, int n_params, int n_results,
                            const struct shape **out_each) {
    const struct shape *r;
    RETURN_IF_ERR(rule_callee(i, k, n_params, &r));
    const struct hlo_computation *c = i->called[k];
    for (int p = 0; p < n_params; p++)
        if (!is_scalar_array(c->params.v[p]->shape))
            return st_invalid("parameter %d of '%s' is not a scalar", p, c->name);
    bool tuple = shape_is_tuple(r), ok = tuple ? r->n_elems == n_results : n_results == 1;
    for (int e = 0; ok && e < n_results; e++) {
        out_each[e] = tuple ? r->elems[e] : r;
        ok = is_scalar_array(out_each[e]);
    }
    return ok ? ST_OK : st_invalid("'%s' must give %d scalars", c->name, n_results);
}

// XLA operation semantics: the base is dilated, padded, then windows of dilated size step by
// stride.
int64_t rule_window_size(int64_t size, const struct window_dim *w) {
    __int128 base = size == 0 ? 0 : (__int128)(size - 1) * w->base_dilation + 1;
    __int128 padded = base + w->pad_low + w->pad_high;
    __int128 window = w->size == 0 ? 0 : (__int128)(w->size - 1) * w->window_dilation + 1;
    if (w->stride < 1 || w->base_dilation < 1 || w->window_dilation < 1 || w->size < 0) return -1;
    if (padded < window || padded <= 0) return 0;
    __int128 n = (padded - window) / w->stride + 1;
    return n > INT64_MAX ? -1 : (int64_t)n;
}

// Is it NaN where one of its operands is?
static bool keeps_nan(const struct hlo_instr *i) {
    switch (i->op) {
    case HLO_ADD:
    case HLO_SUBTRACT:
    case HLO_MULTIPLY:
    case HLO_DIVIDE:
    case HLO_NEGATE:
    case HLO_EXP:
    case HLO_LOG:
        return dtype_is_float(i->shape->dtype);
    case HLO_CONVERT:
        return dtype_is_float(i->shape->dtype) && dtype_is_float(i->operands[0]->shape->dtype);
    case HLO_BROADCAST:
    case HLO_RESHAPE:
        return true;
    default:
        return false;
    }
}
// Is i the sum of exponentials of the lines of which r is the extreme, less what follows from r?
static bool sums_exponentials(const struct hlo_instr *i, const struct hlo_instr *r,
                              const struct pmap *loose) {
    enum hlo_op op;
    if (i->op != HLO_REDUCE || i->n_operands != 2 || !hlo_reducer_op(i->called[0], &op) ||
        op != HLO_ADD || !i64s_eq(HLO_ATTR(i, dims)->dimensions, HLO_ATTR(r, dims)->dimensions))
        return false;
    const struct hlo_instr *e = i->operands[0], *d = e->n_operands ? e->operands[0] : NULL;
    return e->op == HLO_EXP && d->op == HLO_SUBTRACT && d->operands[0] == r->operands[0] &&
           pmap_has_ptr(loose, d->operands[1]);
}
// loose: what would be another number if the extreme passed over NaN; told: what is NaN then.
static bool tells_nan(const struct hlo_instr *r, struct pmap *loose, struct pmap *told) {
    pmap_put_ptr(loose, r, (void *)r);
    for (const struct hlo_instr *i = r->next; i; i = i->next) {
        bool follows = false, is_told = false;
        for (int k = 0; k < i->n_operands; k++) {
            is_told |= pmap_has_ptr(told, i->operands[k]);
            follows |= pmap_has_ptr(told, i->operands[k]) || pmap_has_ptr(loose, i->operands[k]);
        }
        if (!follows) continue;
        bool sum = sums_exponentials(i, r, loose);
        if (sum || (is_told && keeps_nan(i)))
            pmap_put_ptr(told, i, (void *)i);
        else if (hlo_is_pointwise(i) || i->op == HLO_BROADCAST || i->op == HLO_RESHAPE)
            pmap_put_ptr(loose, i, (void *)i);
        else
            return false;
    }
    return pmap_has_ptr(told, r->parent->root);
}
bool rule_sum_tells_nan(const struct hlo_instr *r) {
    enum { MOST = 256 }; // instructions
    struct pmap loose = {0}, told = {0};
    enum hlo_op op;
    if (r->op != HLO_REDUCE || r->n_operands != 2 || !dtype_is_float(r->shape->dtype) ||
        !hlo_reducer_op(r->called[0], &op) || (op != HLO_MAXIMUM && op != HLO_MINIMUM) ||
        r->parent->n_instrs > MOST)
        return false;
    bool yes = tells_nan(r, &loose, &told);
    pmap_done(&loose);
    pmap_done(&told);
    return yes;
}
bool rule_parts_beside(const struct hlo_instr *i) {
    enum { MOST_PARTS = 8, LEAST = 64 };
    bool computed = false;
    if (i->op != HLO_CONCATENATE || i->n_operands < 2 || i->n_operands > MOST_PARTS ||
        i->shape->dynamic || !layout_is_default(i->shape->layout, i->shape->rank))
        return false;
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0];
    for (int64_t k = 0; k < d; k++)
        if (i->shape->dims[k] != 1) return false;
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *x = i->operands[k];
        if (!shape_same_dims(x->shape, i->operands[0]->shape) || x->shape->dynamic ||
            !layout_is_default(x->shape->layout, x->shape->rank))
            return false;
        while (x->op == HLO_RESHAPE)
            x = x->operands[0];
        computed |= hlo_is_pointwise(x);
    }
    return computed && shape_elements(i->operands[0]->shape) >= LEAST;
}
bool rule_running_window(const struct hlo_instr *i, struct running_window *out) {
    enum { SHORT = 6 }; // windows up to here are done one by one, and may be fused
    if (i->op != HLO_REDUCE_WINDOW || i->n_operands < 2) return false;
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = i->operands[0]->shape;
    struct running_window r = {.dim = -1};
    if (shape_is_tuple(s) || w->n != s->rank) return false;
    for (int d = 0; d < w->n; d++) {
        const struct window_dim *v = &w->v[d];
        if (v->stride != 1 || v->base_dilation != 1 || v->window_dilation != 1) return false;
        if (v->size == 1 && v->pad_low == 0 && v->pad_high == 0) continue;
        bool exclusive = v->pad_low == -1 || v->pad_high == -1;
        bool fore = v->pad_low == v->size - 1 + exclusive && v->pad_high == -exclusive,
             back = v->pad_high == v->size - 1 + exclusive && v->pad_low == -exclusive;
        if (r.dim >= 0 || v->reversal || v->size <= SHORT || v->size < s->dims[d] ||
            (!fore && !back))
            return false;
        r = (struct running_window){d, back, exclusive};
    }
    if (out) *out = r;
    return r.dim >= 0;
}

bool rule_sort_plain(const struct hlo_instr *i, enum cmp_direction *out) {
    if (i->op != HLO_SORT || i->n_operands != 1 || !dtype_is_int(i->operands[0]->shape->dtype))
        return false;
    const struct hlo_computation *c = i->called[0];
    const struct hlo_instr *r = c->root;
    if (r->op != HLO_COMPARE || r->operands[0] != c->params.v[0] ||
        r->operands[1] != c->params.v[1])
        return false;
    *out = HLO_ATTR(r, compare)->direction;
    return *out == CMP_LT || *out == CMP_GT;
}
// Lines of more than SOME_VALUES at once have kernels that take some 10 ms to make.
bool rule_sort_beside(const struct hlo_instr *i) {
    enum { LEAST_LINES = 64, MANY_LINES = 512, MOST = 32, SOME_VALUES = 48, MOST_STEPS = 5000 };
    enum { MOST_VALUES = 64 };
    if (i->op != HLO_SORT || shape_elements(i->operands[0]->shape) == 0) return false;
    const struct shape *s = i->operands[0]->shape;
    int64_t n = s->dims[HLO_ATTR(i, sort)->dimensions.v[0]], steps = 2 * i->n_operands;
    enum cmp_direction d;
    if (n < 2 || n > MOST || n * i->n_operands > MOST_VALUES ||
        shape_elements(s) / n < (n * i->n_operands > SOME_VALUES ? MANY_LINES : LEAST_LINES) ||
        s->dynamic)
        return false;
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *o = i->operands[k]->shape;
        if (dtype_is_complex(o->dtype) || dtype_size(o->dtype) > 8 || o->dtype == DT_PRED ||
            dtype_bits(o->dtype) < 8 || (dtype_is_float(o->dtype) && dtype_bits(o->dtype) < 16) ||
            !shape_in_order(o))
            return false;
    }
    HLO_EACH_INSTR(x, i->called[0]) {
        bool free = x->op == HLO_PARAMETER || x->op == HLO_CONSTANT;
        steps += !free;
        if (!free && x->op != HLO_COMPARE && x->op != HLO_SELECT && x->op != HLO_AND &&
            x->op != HLO_OR)
            return false;
        if (x->op != HLO_COMPARE) continue;
        d = HLO_ATTR(x, compare)->direction; // true of equal ones: these would change places
        if (d == CMP_LE || d == CMP_GE) return false;
    }
    return rule_sort_plain(i, &d) || n * (n - 1) / 2 * steps <= MOST_STEPS;
}
