// SPDX-License-Identifier: Apache-2.0
// Collective operations: shape rules for any number of participants, evaluation for one. A device
// is one participant, number 0: alone, a reduction or gathering is its own operand, a permutation
// gives the operand if 0 sends to 0 and zeros otherwise. Groups that name others are refused.
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/rules.h"

#define INFER(rule)                                                                                \
    status_t hlo_infer_##rule(struct arena *a, const struct hlo_instr *i, const struct shape **out)

// ---- shapes

// One operand gives an array, several a tuple; a tuple may be asked for.
static const struct shape *each_or_tuple(struct arena *a, const struct hlo_instr *i) {
    const struct shape **e = arena_array(a, const struct shape *, i->n_operands);
    bool tuple = i->n_operands != 1 || (i->shape && shape_is_tuple(i->shape));
    for (int k = 0; k < i->n_operands; k++)
        e[k] = rule_shape(i, k);
    return tuple ? shape_tuple(a, e, i->n_operands) : e[0];
}
INFER(each) {
    if (i->n_operands < 1) return st_invalid("no operands");
    RETURN_IF_ERR(rule_arrays(i));
    *out = each_or_tuple(a, i);
    return ST_OK;
}

// Result k of r: r itself, or its element.
static const struct shape *result_of(const struct shape *r, int k, int n) {
    return shape_is_tuple(r) ? (r->n_elems == n ? r->elems[k] : NULL) : n == 1 ? r : NULL;
}
// Dimension d of one side is a multiple of the other's; all other dimensions are equal.
static bool scaled(const struct shape *small, const struct shape *large, int64_t d) {
    if (small->dtype != large->dtype || small->rank != large->rank || d < 0 || d >= small->rank)
        return false;
    for (int k = 0; k < small->rank; k++)
        if (k != d && small->dims[k] != large->dims[k]) return false;
    return small->dims[d] == 0 ? large->dims[d] == 0 : large->dims[d] % small->dims[d] == 0;
}
static status_t scaled_each(struct arena *a, const struct hlo_instr *i, const struct shape *r,
                            bool grows) {
    struct i64s d = HLO_ATTR(i, collective)->dimensions;
    if (d.n != 1) return st_invalid("dimensions must name one dimension");
    RETURN_IF_ERR(rule_arrays(i));
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *x = rule_shape(i, k), *y = result_of(r, k, i->n_operands);
        if (!y || !(grows ? scaled(x, y, d.v[0]) : scaled(y, x, d.v[0])))
            return st_invalid("operand %d is %s, the result %s along %lld", k, shape_text(a, x),
                              shape_text(a, r), (long long)d.v[0]);
    }
    return ST_OK;
}
INFER(all_gather) {
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    const struct shape *r = i->shape;
    if (i->op == HLO_ALL_GATHER_START) { // ((operands), (results))
        if (!shape_is_tuple(r) || r->n_elems != 2)
            return st_invalid("expected (operand, result), found %s", shape_text(a, r));
        r = r->elems[1];
    }
    return scaled_each(a, i, r, true);
}
INFER(reduce_scatter) {
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    return scaled_each(a, i, i->shape, false);
}
INFER(all_to_all) {
    struct i64s d = HLO_ATTR(i, collective)->dimensions;
    RETURN_IF_ERR(hlo_infer_each(a, i, out));
    if (d.n) RETURN_IF_ERR(rule_dims(d, rule_shape(i, 0)->rank, "dimensions"));
    return ST_OK;
}
INFER(ragged_all_to_all) {
    RETURN_IF_ERR(rule_arrays(i));
    for (int k = 2; k < 6; k++)
        if (!dtype_is_int(rule_shape(i, k)->dtype))
            return st_invalid("operand %d is %s, expected integers", k,
                              shape_text(a, rule_shape(i, k)));
    *out = rule_shape(i, 1);
    return ST_OK;
}
// permute(x, ...), or in place: permute(input, output, where in the input, where in the output).
static bool in_place(const struct hlo_instr *i) {
    return i->n_operands == 4 && shape_is_tuple(rule_shape(i, 2));
}
INFER(permute) {
    if (i->n_operands < 1) return st_invalid("no operands");
    if (i->op == HLO_COLLECTIVE_PERMUTE) {
        *out = in_place(i) ? rule_shape(i, 1) : each_or_tuple(a, i);
        return ST_OK;
    }
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    if (!shape_is_tuple(i->shape) || i->shape->n_elems < 2)
        return st_invalid("expected (operand, result, ...), found %s", shape_text(a, i->shape));
    return ST_OK;
}
// The result of a start: element 1 of its tuple.
INFER(second) {
    const struct shape *s = rule_shape(i, 0);
    if (!shape_is_tuple(s) || s->n_elems < 2)
        return st_invalid("operand %s is not the tuple of a start", shape_text(a, s));
    *out = s->elems[1];
    return ST_OK;
}

// ---- evaluation

static status_t needs_others(const struct hlo_instr *i) {
    return st_unimplemented("instruction '%s': %s needs more participants than one", i->name,
                            hlo_op_name(i->op));
}
// Groups are {}, {{0}} or [1,1]<=[1]: no participant but 0.
static bool alone(const struct hlo_instr *i) {
    size_t n = 0;
    const char *t = hlo_extra(i, "replica_groups", &n);
    struct str s = {t, n};
    if (!t || str_starts(s, "[1,1]<=[1]")) return true;
    if (t[0] != '{') return false;
    for (size_t k = 0; k < n; k++)
        if (t[k] >= '1' && t[k] <= '9') return false;
    return true;
}
static struct literal *operands(struct hlo_eval *ev, struct literal *const *in,
                                const struct shape *s) {
    return shape_is_tuple(s) ? lit_tuple(ev->arena, s, in) : in[0];
}
static status_t same(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                     struct literal **out) {
    struct literal *r = operands(ev, in, i->shape);
    if (!alone(i) || (shape_is_tuple(i->shape) && i->shape->n_elems != i->n_operands))
        return needs_others(i);
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *s = shape_is_tuple(i->shape) ? i->shape->elems[k] : i->shape;
        if (!shape_compatible(in[k]->shape, s)) return needs_others(i);
    }
    *out = r;
    return ST_OK;
}
EVAL(ALL_REDUCE) {
    return same(ev, i, in, out);
}
EVAL(ALL_REDUCE_START) {
    return same(ev, i, in, out);
}
EVAL(ALL_REDUCE_DONE) {
    *out = in[0];
    return ST_OK;
}
EVAL(ALL_GATHER) {
    return same(ev, i, in, out);
}
EVAL(ALL_TO_ALL) {
    return same(ev, i, in, out);
}
EVAL(COLLECTIVE_BROADCAST) {
    return same(ev, i, in, out);
}
EVAL(REDUCE_SCATTER) {
    return same(ev, i, in, out);
}
EVAL(ALL_GATHER_DONE) {
    *out = in[0]->elems[1];
    return ST_OK;
}
EVAL(COLLECTIVE_PERMUTE_DONE) {
    *out = in[0]->elems[1];
    return ST_OK;
}
// (operands, results) from the operands alone.
static status_t start(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                      struct literal *result, struct literal **out) {
    struct literal *r;
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));
    if (!shape_compatible(result->shape, i->shape->elems[1])) return needs_others(i);
    if (shape_compatible(in[0]->shape, i->shape->elems[0])) r->elems[0] = in[0];
    r->elems[1] = result;
    *out = r;
    return ST_OK;
}
EVAL(ALL_GATHER_START) {
    if (!alone(i)) return needs_others(i);
    return start(ev, i, in, operands(ev, in, i->shape->elems[1]), out);
}

// Does participant 0 send to itself? {{0,0}} among the pairs.
static bool to_itself(const struct hlo_instr *i) {
    size_t n = 0;
    const char *t = hlo_extra(i, "source_target_pairs", &n);
    int64_t v[2] = {-1, -1}, now = -1;
    int at = 0;
    for (size_t k = 0; t && k < n; k++) {
        if (t[k] >= '0' && t[k] <= '9') {
            now = (now < 0 ? 0 : now) * 10 + (t[k] - '0');
            now = now > INT32_MAX ? INT32_MAX : now;
            continue;
        }
        if (now >= 0) v[at++ & 1] = now;
        if (now >= 0 && (at & 1) == 0 && v[0] == 0 && v[1] == 0) return true;
        now = -1;
    }
    return false;
}
static status_t permuted(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                         const struct shape *s, struct literal **out) {
    if (in_place(i)) return needs_others(i);
    if (to_itself(i)) {
        *out = operands(ev, in, s);
        return ST_OK;
    }
    RETURN_IF_ERR(hlo_eval_charge(ev, s));
    *out = lit_new(ev->arena, s);
    return ST_OK;
}
EVAL(COLLECTIVE_PERMUTE) {
    return permuted(ev, i, in, i->shape, out);
}
EVAL(COLLECTIVE_PERMUTE_START) {
    struct literal *r;
    RETURN_IF_ERR(permuted(ev, i, in, i->shape->elems[1], &r));
    return start(ev, i, in, r, out);
}

// The one slice for participant 0: rows of the input at input_offsets[0] go to output_offsets[0].
EVAL(RAGGED_ALL_TO_ALL) {
    struct literal *r = lit_clone(ev->arena, in[1]);
    if (!alone(i)) return needs_others(i);
    RETURN_IF_ERR(hlo_eval_charge(ev, i->shape));
    for (int k = 2; k < 6; k++)
        if (shape_elements(in[k]->shape) != 1) return needs_others(i);
    const struct shape *x = in[0]->shape, *y = r->shape;
    if (x->rank < 1 || y->rank != x->rank || x->dtype != y->dtype || x->dims[0] == 0)
        return st_invalid("instruction '%s': operands do not fit", i->name);
    int64_t from = lit_get_i64(in[2], 0), n = lit_get_i64(in[3], 0), to = lit_get_i64(in[4], 0);
    int64_t row = shape_elements(x) / x->dims[0];
    if (from < 0 || n < 0 || to < 0 || n > x->dims[0] || from > x->dims[0] - n || n > y->dims[0] ||
        to > y->dims[0] - n || row * y->dims[0] != shape_elements(y))
        return st_invalid("instruction '%s': offsets beyond the operands", i->name);
    for (int64_t k = 0; k < n * row; k++)
        element_copy(r, to * row + k, in[0], from * row + k);
    *out = r;
    return ST_OK;
}
