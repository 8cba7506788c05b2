// SPDX-License-Identifier: Apache-2.0
// Regions that become computations, and the operations that have them: closure conversion. A
// region may use any value defined before it; an HLO computation only its parameters. What a region
// uses is passed to it, behind its arguments; constants are made again inside.
#include <string.h>

#include "compiler/frontend/stablehlo/stablehlo_lower.h"

// ---- what a region uses

struct captures {
    VEC(uint32_t) values;             // of the frame, in the order of their first use
    VEC(int32_t) weights;             // indices, the same
    const struct mlir_func *seen[64]; // functions walked for weights
    int n_seen;
};
static bool has_value(const struct captures *c, uint32_t v) {
    for (size_t k = 0; k < c->values.n; k++)
        if (c->values.v[k] == v) return true;
    return false;
}
static void use_weight(struct shl *l, struct captures *c, int32_t w) {
    for (size_t k = 0; k < c->weights.n; k++)
        if (c->weights.v[k] == w) return;
    avec_push(l->a, &c->weights, w);
}
static void weights_of(struct shl *l, const struct mlir_region *r, struct captures *c);
static void weights_of_call(struct shl *l, struct str callee, struct captures *c) {
    const struct mlir_func *f = mlir_find_func(l->m, callee);
    for (int k = 0; k < c->n_seen; k++)
        if (c->seen[k] == f) return;
    if (!f) return;
    if (c->n_seen < 64) c->seen[c->n_seen++] = f;
    weights_of(l, &f->body, c);
}
static void weights_of(struct shl *l, const struct mlir_region *r, struct captures *c) {
    for (size_t k = 0; k < r->ops.n; k++) {
        const struct mlir_op *op = r->ops.v[k];
        for (size_t i = 0; i < op->attrs.n; i++) {
            const struct mlir_attr *t = op->attrs.v[i].attr;
            if (t->kind == MLIR_A_DENSE && t->weight >= 0) use_weight(l, c, t->weight);
            if (t->kind == MLIR_A_SYMBOL) weights_of_call(l, t->s, c);
        }
        for (int32_t i = 0; i < op->n_regions; i++)
            weights_of(l, &op->regions[i], c);
    }
}
static void values_of(struct shl *l, const struct mlir_region *outer, const struct mlir_region *r,
                      struct captures *c) {
    for (size_t k = 0; k < r->ops.n; k++) {
        const struct mlir_op *op = r->ops.v[k];
        for (int32_t i = 0; i < op->n_operands; i++) {
            uint32_t v = op->operands[i];
            if ((v < outer->first || v >= outer->end) && !has_value(c, v))
                avec_push(l->a, &c->values, v);
        }
        for (int32_t i = 0; i < op->n_regions; i++)
            values_of(l, outer, &op->regions[i], c);
    }
}
// Does a short vector or scalar of integers follow from constants, by at most `left` operations?
static bool follows(hv v, int *left) {
    if (v->op == HLO_CONSTANT || v->op == HLO_IOTA) return true;
    if (--*left < 0 || !v->n_operands || hlo_has_effect(v) || shape_is_tuple(v->shape) ||
        v->shape->rank > 1 || shape_elements(v->shape) > MAX_BOUND_VALUES)
        return false;
    for (int k = 0; k < v->n_operands; k++)
        if (!follows(v->operands[k], left)) return false;
    return true;
}
// Sizes made of dimensions outside a region are known in it too: they become constants, which are
// made again there and may decide shapes.
static void settle(struct shl *l, uint32_t value) {
    hv v = l->frame->values[value];
    int left = 64;
    if (!v || v->op == HLO_CONSTANT || shape_is_tuple(v->shape) || v->shape->rank > 1 ||
        !dtype_is_int(v->shape->dtype) || !follows(v, &left))
        return;
    struct literal *known = shl_known(l, v);
    if (known) l->frame->values[value] = hb_constant(&l->b, known);
}
static void captures_of(struct shl *l, const struct mlir_region *r, struct captures *c) {
    size_t before = c->values.n;
    values_of(l, r, r, c);
    weights_of(l, r, c);
    for (size_t k = before; k < c->values.n; k++)
        settle(l, c->values.v[k]);
}

// ---- computations

// Is it made again inside a computation rather than passed? The same with operands of that kind.
static bool made_again(hv v) {
    return v->op == HLO_CONSTANT ||
           (v->op == HLO_BROADCAST && v->operands[0]->op == HLO_CONSTANT) || v->op == HLO_IOTA;
}
static hv make_again(struct shl *l, hv v) {
    hv operand = v->n_operands ? hlo_clone_instr(l->b.c, v->operands[0], NULL) : NULL;
    return hlo_clone_instr(l->b.c, v, v->n_operands ? &operand : NULL);
}
// What stands for captured values outside a computation, kept while another is made.
struct outside {
    struct hb b;
    hv *values, *weights;
};
// Begins computation `name`; what the captures are in it: `passed` (in their order, those that are
// not made again), or NULL: all must be constants.
static status_t enter(struct shl *l, const struct captures *c, struct hlo_computation *into,
                      hv const *passed, struct outside *out) {
    size_t n = c->values.n, n_w = c->weights.n;
    *out = (struct outside){l->b, arena_zarray(l->a, hv, n + 1), arena_zarray(l->a, hv, n_w + 1)};
    l->b = hb_begin(into);
    l->b.op_type = out->b.op_type;
    for (size_t k = 0; k < n; k++) {
        hv v = out->values[k] = l->frame->values[c->values.v[k]];
        if (!v) return st_invalid("a region uses a value that is not computed before it");
        if (!made_again(v) && !passed)
            return st_unimplemented("its region uses a value from outside that is no constant");
    }
    for (size_t k = 0; k < n; k++) {
        hv v = out->values[k];
        l->frame->values[c->values.v[k]] = made_again(v) ? make_again(l, v) : *passed++;
    }
    for (size_t k = 0; k < n_w; k++) {
        out->weights[k] = l->weights[c->weights.v[k]];
        if (!passed) return st_unimplemented("its region uses a large constant");
        l->weights[c->weights.v[k]] = *passed++;
    }
    return ST_OK;
}
static status_t leave(struct shl *l, const struct captures *c, const struct outside *was,
                      status_t st) {
    status_t built = hb_end(&l->b);
    for (size_t k = 0; k < c->values.n; k++)
        if (was->values[k]) l->frame->values[c->values.v[k]] = was->values[k];
    for (size_t k = 0; k < c->weights.n; k++)
        if (was->weights[k]) l->weights[c->weights.v[k]] = was->weights[k];
    l->b = was->b;
    return st_first(st, built);
}

static const char *computation_name(struct shl *l, const struct mlir_op *op, const char *what) {
    const char *dot = memchr(op->name.p, '.', op->name.n);
    size_t at = dot ? (size_t)(dot - op->name.p) + 1 : 0;
    return arena_printf(l->a, "%.*s_%s", (int)(op->name.n - at), op->name.p + at, what);
}
static int n_results_of(const struct mlir_region *r) {
    return r->ops.n ? r->ops.v[r->ops.n - 1]->n_operands : 0;
}
status_t shl_scalar_region(struct shl *l, const struct mlir_op *op, int k,
                           struct hlo_computation **out) {
    if (k >= op->n_regions) return st_invalid("region %d is missing", k);
    const struct mlir_region *r = &op->regions[k];
    struct captures c = {0};
    struct outside was;
    captures_of(l, r, &c);
    struct hlo_computation *into = hb_callee(l->hlo, computation_name(l, op, "region"));
    status_t st = enter(l, &c, into, NULL, &was);

    int n = n_results_of(r);
    hv *args = arena_array(l->a, hv, r->n_args + 1), *results = arena_zarray(l->a, hv, n + 1);
    for (int32_t i = 0; !st && i < r->n_args; i++) {
        const struct mlir_type *t = l->frame->f->values.v[r->args + (uint32_t)i];
        const struct shape *s = shl_shape(l->a, t);
        if (!s) st = st_invalid("its region has an argument of dynamic shape");
        if (s) args[i] = hlo_add_param(into, i, s, arena_printf(l->a, "p%d", i));
    }
    if (!st) st = shl_inline_region(l, r, args, results);
    if (!st && n < 1) st = st_invalid("its region returns nothing");
    if (!st) hlo_set_root(into, n == 1 ? results[0] : hb_tuple(&l->b, results, n));
    *out = into;
    return leave(l, &c, &was, st);
}
status_t shl_scalar_function(struct shl *l, struct str callee, struct hlo_computation **out) {
    const struct mlir_func *f = mlir_find_func(l->m, callee);
    struct captures c = {0};
    struct outside was;
    if (!f || !f->body.ops.n)
        return st_invalid("there is no function @%.*s", (int)callee.n, callee.p);
    weights_of_call(l, callee, &c);
    *out = hb_callee(l->hlo, arena_strndup(l->a, callee.p, callee.n));
    status_t st = enter(l, &c, *out, NULL, &was);
    hv *args = arena_array(l->a, hv, f->body.n_args + 1), result = NULL;
    for (int32_t k = 0; !st && k < f->body.n_args; k++) {
        const struct shape *s = shl_shape(l->a, f->values.v[f->body.args + (uint32_t)k]);
        if (!s) st = st_invalid("@%.*s has an argument of dynamic shape", (int)callee.n, callee.p);
        if (s) args[k] = hlo_add_param(*out, k, s, arena_printf(l->a, "p%d", k));
    }
    if (!st) st = shl_inline_call(l, callee, args, f->body.n_args, &result, 1);
    if (!st) hlo_set_root(*out, result);
    return leave(l, &c, &was, st);
}

// ---- while, if, case

// Captured values that are passed: instructions of the computation outside.
static int passed_of(struct shl *l, const struct captures *c, hv *out) {
    int n = 0;
    for (size_t k = 0; k < c->values.n; k++) {
        hv v = l->frame->values[c->values.v[k]];
        if (v && !made_again(v)) out[n++] = v;
    }
    for (size_t k = 0; k < c->weights.n; k++)
        out[n++] = l->weights[c->weights.v[k]];
    return n;
}
// A computation over one tuple: elements [0, n_args) are the region's arguments, then `n_passed`
// captured ones from `first` on. keeps: the root is the results followed by the passed ones (a
// body's), else the results: a tuple, or the single one where `bare`.
struct over_tuple {
    const struct mlir_op *op;
    const struct mlir_region *r;
    const struct shape *state;
    int n_passed, first;
    bool keeps, bare;
    const char *what;
};
static status_t region_over_tuple(struct shl *l, const struct over_tuple *x,
                                  const struct captures *c, struct hlo_computation **out) {
    struct hlo_computation *into = hb_callee(l->hlo, computation_name(l, x->op, x->what));
    int n = n_results_of(x->r);
    hv *args = arena_array(l->a, hv, x->r->n_args + 1), *all = NULL;
    hv *passed = arena_array(l->a, hv, x->n_passed + 1);
    all = arena_zarray(l->a, hv, n + x->n_passed + 1);
    struct hb b = hb_begin(into);
    hv p = hlo_add_param(into, 0, x->state, "state");
    for (int k = 0; k < x->r->n_args; k++)
        args[k] = hb_gte(&b, p, k);
    for (int k = 0; k < x->n_passed; k++)
        passed[k] = hb_gte(&b, p, x->first + k);
    RETURN_IF_ERR(hb_end(&b));

    struct outside was;
    status_t st = enter(l, c, into, passed, &was);
    if (!st) st = shl_inline_region(l, x->r, args, all);
    for (int k = 0; k < x->n_passed; k++)
        all[n + k] = passed[k];
    if (!st && x->bare && n != 1) st = st_invalid("its region must return one value");
    if (!st)
        hlo_set_root(into, x->bare ? all[0] : hb_tuple(&l->b, all, x->keeps ? n + x->n_passed : n));
    *out = into;
    return leave(l, c, &was, st);
}

status_t shl_while(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct captures c = {0};
    int n = op->n_operands;
    if (op->n_regions != 2 || op->n_results != n || op->regions[0].n_args != n ||
        op->regions[1].n_args != n || n_results_of(&op->regions[1]) != n)
        return st_invalid("its regions and results do not fit its operands");
    for (int k = 0; k < 2; k++)
        captures_of(l, &op->regions[k], &c);
    hv *all = arena_array(l->a, hv, (size_t)n + c.values.n + c.weights.n + 1);
    for (int k = 0; k < n; k++)
        all[k] = in[k];
    int n_passed = passed_of(l, &c, all + n);

    hv state = hb_tuple(&l->b, all, n + n_passed);
    RETURN_IF_ERR(hb_end(&l->b));
    struct hlo_computation *called[2];
    struct over_tuple x = {op, &op->regions[0], state->shape, n_passed,
                           n,  false,           true,         "condition"};
    RETURN_IF_ERR(region_over_tuple(l, &x, &c, &called[0]));
    x = (struct over_tuple){op, &op->regions[1], state->shape, n_passed, n, true, false, "body"};
    RETURN_IF_ERR(region_over_tuple(l, &x, &c, &called[1]));
    hv r = hb_call(&l->b, HLO_WHILE, state->shape, &state, 1, NULL, called, 2);
    for (int k = 0; k < n; k++)
        out[k] = hb_gte(&l->b, r, k);
    return ST_OK;
}
// scan: operands are arrays, then initial carries; the region takes an array's slice at each place
// along the dimension (which is gone) and the carries, and gives a slice of each result and the
// carries. One while over (place, carries, results, arrays, captured values).
struct scan {
    int n_in, n_carry, n_out; // arrays, carries, stacked results
    int64_t dim, length;
    bool reverse;
};
static hv slice_at(struct shl *l, hv x, int64_t dim, hv at) {
    int64_t sizes[HLO_MAX_RANK], kept[HLO_MAX_RANK];
    hv in[HLO_MAX_RANK + 1] = {x}, zero = hb_const_i64(&l->b, DT_S32, 0);
    int rank = x->shape->rank, n = 0;
    for (int d = 0; d < rank; d++) {
        sizes[d] = d == dim ? 1 : x->shape->dims[d];
        in[d + 1] = d == dim ? at : zero;
        if (d != dim) kept[n++] = sizes[d];
    }
    struct hlo_attr_dynslice a = {.dynamic_slice_sizes = {sizes, rank}};
    return hb_reshape(&l->b, hb_op(&l->b, HLO_DYNAMIC_SLICE, NULL, in, rank + 1, &a), kept, n);
}
static hv with_slice(struct shl *l, hv x, int64_t dim, hv at, hv slice) {
    int64_t sizes[HLO_MAX_RANK];
    hv in[HLO_MAX_RANK + 2] = {x}, zero = hb_const_i64(&l->b, DT_S32, 0);
    for (int d = 0; d < x->shape->rank; d++) {
        sizes[d] = d == dim ? 1 : x->shape->dims[d];
        in[d + 2] = d == dim ? at : zero;
    }
    in[1] = hb_reshape(&l->b, slice, sizes, x->shape->rank);
    return hb_op(&l->b, HLO_DYNAMIC_UPDATE_SLICE, x->shape, in, x->shape->rank + 2, NULL);
}
// What follows the state of one place: its carries and stacked results behind the place.
static status_t scan_step(struct shl *l, const struct mlir_op *op, const struct scan *s,
                          hv *state) {
    hv *carry = state + 1, *stacked = carry + s->n_carry, *arrays = stacked + s->n_out;
    hv *args = arena_array(l->a, hv, s->n_in + s->n_carry + 1);
    hv *given = arena_zarray(l->a, hv, s->n_out + s->n_carry + 1);
    hv one = hb_const_i64(&l->b, DT_S32, 1), last = hb_const_i64(&l->b, DT_S32, s->length - 1);
    hv at = s->reverse ? hb_sub(&l->b, last, state[0]) : state[0];
    for (int k = 0; k < s->n_in; k++)
        args[k] = slice_at(l, arrays[k], s->dim, at);
    for (int k = 0; k < s->n_carry; k++)
        args[s->n_in + k] = carry[k];
    RETURN_IF_ERR(shl_inline_region(l, op->regions, args, given));
    state[0] = hb_add(&l->b, state[0], one);
    for (int k = 0; k < s->n_out; k++)
        stacked[k] = with_slice(l, stacked[k], s->dim, at, given[k]);
    for (int k = 0; k < s->n_carry; k++)
        carry[k] = given[s->n_out + k];
    return ST_OK;
}
static status_t scan_body(struct shl *l, const struct mlir_op *op, const struct scan *s,
                          const struct captures *c, const struct shape *state,
                          struct hlo_computation **out) {
    struct hlo_computation *into = hb_callee(l->hlo, computation_name(l, op, "body"));
    hv *all = arena_array(l->a, hv, state->n_elems + 1);
    struct hb b = hb_begin(into);
    hv p = hlo_add_param(into, 0, state, "state");
    for (int k = 0; k < state->n_elems; k++)
        all[k] = hb_gte(&b, p, k);
    RETURN_IF_ERR(hb_end(&b));
    struct outside was;
    status_t st = enter(l, c, into, all + 1 + s->n_carry + s->n_out + s->n_in, &was);
    if (!st) st = scan_step(l, op, s, all);
    if (!st) hlo_set_root(into, hb_tuple(&l->b, all, state->n_elems));
    *out = into;
    return leave(l, c, &was, st);
}
static status_t scan_of(struct shl *l, const struct mlir_op *op, hv const *in, struct scan *out) {
    struct i64s n;
    RETURN_IF_ERR(shl_ints(l, op, "operandSegmentSizes", 2, 0, &n));
    int64_t dim = shl_int(op, "dimension", -1);
    if (n.v[0] < 0 || n.v[1] < 0 || n.v[0] + n.v[1] != op->n_operands || op->n_regions != 1)
        return st_invalid("its operands and regions do not fit");
    *out = (struct scan){.n_in = (int)n.v[0], .n_carry = (int)n.v[1], .dim = dim, .length = -1};
    out->n_out = op->n_results - out->n_carry;
    out->reverse = shl_flag(op, "is_reverse");
    if (out->n_out < 0 || op->regions->n_args != op->n_operands ||
        n_results_of(op->regions) != op->n_results)
        return st_invalid("its region does not fit its operands and results");
    for (int k = 0; k < out->n_in; k++) {
        const struct shape *s = in[k]->shape;
        if (dim < 0 || dim >= s->rank) return st_invalid("dimension %lld", (long long)dim);
        if (out->length >= 0 && s->dims[dim] != out->length)
            return st_invalid("its arrays have different lengths");
        out->length = s->dims[dim];
    }
    return out->length < 0 ? st_unimplemented("a scan over no array") : ST_OK;
}
status_t shl_scan(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    struct scan s;
    struct captures c = {0};
    RETURN_IF_ERR(scan_of(l, op, in, &s));
    captures_of(l, op->regions, &c);
    int n = 1 + op->n_operands + s.n_out, at = 0;
    hv *all = arena_array(l->a, hv, (size_t)n + c.values.n + c.weights.n + 1);
    all[at++] = hb_const_i64(&l->b, DT_S32, 0);
    for (int k = 0; k < s.n_carry; k++)
        all[at++] = in[s.n_in + k];
    for (int k = 0; k < s.n_out; k++) {
        const struct shape *r = shl_shape(l->a, shl_result_type(l, op, k));
        if (!r || s.dim >= r->rank || r->dims[s.dim] != s.length)
            return st_invalid("result %d does not have the arrays' length", k);
        RETURN_IF_ERR(shape_check(r, l->hlo->max_bytes));
        all[at++] = hb_splat(&l->b, r, 0);
    }
    for (int k = 0; k < s.n_in; k++)
        all[at++] = in[k];
    if (s.length == 0) { // the body could not take an element
        for (int k = 0; k < op->n_results; k++)
            out[k] = all[k < s.n_out ? 1 + s.n_carry + k : 1 + k - s.n_out];
        return ST_OK;
    }
    at += passed_of(l, &c, all + at);
    hv state = hb_tuple(&l->b, all, at);
    RETURN_IF_ERR(hb_end(&l->b));

    struct hlo_computation *called[2];
    called[0] = hb_callee(l->hlo, computation_name(l, op, "condition"));
    struct hb b = hb_begin(called[0]);
    hv place = hb_gte(&b, hlo_add_param(called[0], 0, state->shape, "state"), 0);
    hlo_set_root(called[0], hb_compare(&b, place, hb_const_i64(&b, DT_S32, s.length), CMP_LT));
    RETURN_IF_ERR(hb_end(&b));
    RETURN_IF_ERR(scan_body(l, op, &s, &c, state->shape, &called[1]));
    hv r = hb_call(&l->b, HLO_WHILE, state->shape, &state, 1, NULL, called, 2);
    for (int k = 0; k < op->n_results; k++)
        out[k] = hb_gte(&l->b, r, k < s.n_out ? 1 + s.n_carry + k : 1 + k - s.n_out);
    return ST_OK;
}

// Branches [0, n): each takes the tuple of all that any of them uses. What is chosen by a value
// that is known is lowered in place.
static status_t branches(struct shl *l, const struct mlir_op *op, hv which, int chosen, hv *out) {
    int n = op->n_regions;
    for (int k = 0; k < n; k++)
        if (n_results_of(&op->regions[k]) != op->n_results)
            return st_invalid("branch %d gives %d values, expected %d", k,
                              n_results_of(&op->regions[k]), op->n_results);
    if (chosen >= 0) return shl_inline_region(l, &op->regions[chosen], NULL, out);

    struct hlo_computation **called = arena_array(l->a, struct hlo_computation *, n + 1);
    hv *operands = arena_array(l->a, hv, n + 1);
    operands[0] = which;
    for (int k = 0; k < n; k++) {
        struct captures c = {0};
        captures_of(l, &op->regions[k], &c);
        hv *all = arena_array(l->a, hv, c.values.n + c.weights.n + 1);
        int n_passed = passed_of(l, &c, all);
        operands[k + 1] = hb_tuple(&l->b, all, n_passed);
        RETURN_IF_ERR(hb_end(&l->b));
        struct over_tuple x = {op,    &op->regions[k], operands[k + 1]->shape, n_passed, 0, false,
                               false, "branch"};
        RETURN_IF_ERR(region_over_tuple(l, &x, &c, &called[k]));
    }
    hv r = hb_call(&l->b, HLO_CONDITIONAL, NULL, operands, n + 1, NULL, called, n);
    for (int k = 0; k < op->n_results; k++)
        out[k] = hb_gte(&l->b, r, k);
    return ST_OK;
}
status_t shl_if(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 1 || op->n_regions != 2) return st_invalid("it needs two regions");
    struct literal *known = shl_known(l, in[0]);
    return branches(l, op, in[0], known ? !lit_get_i64(known, 0) : -1, out);
}
status_t shl_case(struct shl *l, const struct mlir_op *op, hv const *in, hv *out) {
    if (op->n_operands != 1 || op->n_regions < 1) return st_invalid("it needs a region");
    struct literal *known = shl_known(l, in[0]);
    int64_t k = known ? lit_get_i64(known, 0) : -1, n = op->n_regions;
    if (known && (k < 0 || k >= n)) k = n - 1; // the last one stands for all other numbers
    return branches(l, op, in[0], (int)k, out);
}
