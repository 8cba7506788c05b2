// SPDX-License-Identifier: Apache-2.0
// Unique: slices along an axis (or single elements) are sorted by all their elements, stably; where
// a slice differs from the one before, a group begins. How many groups only the run knows
// (onnx_dynamic.c).
//   keys [n] x m, index [n] --sort--> begins [n] --positions--> p [n], of which `count` hold
#include "compiler/frontend/onnx/onnx_dynamic.h"

enum { MAX_KEYS = 256 };

// Sorts m keys lexicographically and what follows them along; stable. v: m keys, then `more`.
static void sort_by(struct onnx_ctx *c, hv *v, int m, int more) {
    struct hlo_computation *comp = onnx_computation(c, "unique_less");
    struct hb b = hb_begin(comp);
    const struct shape **s = arena_array(c->a, const struct shape *, m + more);
    hv less = NULL, *x = arena_array(c->a, hv, 2 * (m + more));
    int64_t zero = 0;
    for (int k = 0; k < 2 * (m + more); k++)
        x[k] = hlo_add_param(comp, k, shape_scalar(c->a, v[k / 2]->shape->dtype), "x");
    for (int k = m; k-- > 0;) {
        hv lt = hb_compare(&b, x[2 * k], x[2 * k + 1], CMP_LT);
        hv eq = hb_compare(&b, x[2 * k], x[2 * k + 1], CMP_EQ);
        less = less ? hb_binary(&b, HLO_OR, lt, hb_binary(&b, HLO_AND, eq, less)) : lt;
    }
    hlo_set_root(comp, less);
    hlo_remove_dead(comp);
    hb_fail(&c->b, hb_end(&b));
    for (int k = 0; k < m + more; k++)
        s[k] = v[k]->shape;
    struct hlo_attr_sort attr = {.dimensions = {&zero, 1}, .is_stable = true};
    const struct shape *result = m + more == 1 ? s[0] : shape_tuple(c->a, s, m + more);
    hv r = hb_call(&c->b, HLO_SORT, result, v, m + more, &attr, &comp, 1);
    for (int k = 0; k < m + more; k++)
        v[k] = m + more == 1 ? r : hb_gte(&c->b, r, k);
}

static hv begins(struct onnx_ctx *c, hv const *keys, int m, int64_t n) {
    struct hb *b = &c->b;
    int64_t one = 1;
    hv first = hb_broadcast(b, hb_const_i64(b, DT_PRED, 1), &one, 1, NULL), rest = NULL;
    for (int k = 0; k < m && n > 1; k++) {
        hv differs = hb_compare(b, onnx_part(c, keys[k], 0, 1, n),
                                onnx_part(c, keys[k], 0, 0, n - 1), CMP_NE);
        rest = rest ? hb_binary(b, HLO_OR, rest, differs) : differs;
    }
    return rest ? hb_concat(b, (hv[]){first, rest}, 2, 0) : first;
}
static hv running_sum(struct hb *b, hv x, int64_t n) {
    struct window_dim w = {n, 1, n - 1, 0, 1, 1, false};
    return hb_reduce_window(b, x, hb_const_i64(b, DT_S64, 0), &(struct window){&w, 1}, HLO_ADD);
}

struct groups {
    hv at, count; // positions in x of the first of each group
    hv number;    // of each group: how often
    hv inverse;   // of each slice: its group
};

// Groups in the order of their first occurrence instead: by the place of each one's first slice.
static void by_occurrence(struct onnx_ctx *c, struct groups *g) {
    struct hb *b = &c->b;
    const struct shape *s = g->at->shape;
    hv of = onnx_take(c, g->at, g->inverse, 0); // the first slice that is equal to each
    hv first = hb_compare(b, of, hb_iota(b, s, 0), CMP_EQ);
    hv upto = running_sum(b, hb_convert(b, first, DT_S64), s->dims[0]);
    g->at = onnx_true_positions(c, first, &g->count);
    g->number = onnx_take(c, g->number, onnx_take(c, g->inverse, g->at, 0), 0);
    g->inverse = onnx_take(c, onnx_add_k(c, upto, -1), of, 0);
}

static struct groups group(struct onnx_ctx *c, hv *keys, int m, int64_t n) {
    struct hb *b = &c->b;
    struct groups g;
    const struct shape *s = shape_make(c->a, DT_S64, &n, 1);
    hv one = hb_splat(b, s, 1), end = hb_splat(b, s, (double)n);
    keys[m] = hb_iota(b, s, 0);
    sort_by(c, keys, m, 1);
    hv first = begins(c, keys, m, n);
    hv at = onnx_true_positions(c, first, &g.count);
    hv which = hb_sub(b, running_sum(b, hb_convert(b, first, DT_S64), n), one);
    hv place = hb_reshape(b, keys[m], (int64_t[]){n, 1}, 2); // the original one
    g.inverse = onnx_put_points(c, hb_splat(b, s, 0), place, 1, which, HLO_COPY);
    g.at = onnx_take(c, keys[m], at, 0);
    // A group ends where the next begins; the last one at the end.
    hv next =
        n > 1 ? hb_concat(b, (hv[]){onnx_part(c, at, 0, 1, n), onnx_part(c, end, 0, 0, 1)}, 2, 0)
              : end;
    hv last = hb_broadcast(b, hb_sub(b, g.count, hb_const_i64(b, DT_S64, 1)), &n, 1, NULL);
    next = hb_select(b, hb_compare(b, hb_iota(b, s, 0), last, CMP_LT), next, end);
    g.number = hb_sub(b, next, at);
    return g;
}

// Of n slices without elements: all are equal; none where n is 0.
static void unique_of_nothing(struct onnx_ctx *c, hv x, int axis, bool own) {
    struct hb *b = &c->b;
    int64_t n = x->shape->dims[axis], groups = n ? 1 : 0;
    const struct shape *each = shape_make(c->a, DT_S64, &groups, 1);
    onnx_out_val(c, 0, onnx_part(c, x, axis, 0, groups));
    if (!own) onnx_out_val(c, 1, hb_splat(b, each, 0));
    onnx_out_val(c, own ? 1 : 2, hb_splat(b, shape_make(c->a, DT_S64, &n, 1), 0));
    onnx_out_val(c, own ? 2 : 3, hb_splat(b, each, (double)n));
}

ONNX_X(unique) { // arg 1: com.microsoft's, by occurrence, without the places of the first
    bool own = onnx_op_arg(c) != 0;
    hv rows = x;
    int64_t n = shape_elements(x->shape), axis = 0, m = 1;
    if (!hb_ok(b)) return;

    if (onnx_attr(c->n, "axis"))
        axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), x->shape->rank);
    else
        x = rows = hb_reshape(b, x, &n, 1);
    if (!hb_ok(b)) return;
    n = x->shape->dims[axis];
    m = n ? shape_elements(x->shape) / n : 0;
    if (n == 0 || m == 0) return unique_of_nothing(c, x, (int)axis, own);
    if (m > MAX_KEYS)
        return onnx_fail(c, "%lld slices of %lld elements", (long long)n, (long long)m);
    int64_t perm[HLO_MAX_RANK] = {axis};
    for (int d = 0, k = 1; d < x->shape->rank; d++)
        if (d != axis) perm[k++] = d;
    rows = hb_reshape(b, hb_transpose(b, x, perm), (int64_t[]){n, m}, 2);
    if (onnx_has_text(c)) rows = onnx_text_ranks(c, rows); // their places tell them apart alone
    hv *keys = arena_array(c->a, hv, m + 1);
    for (int64_t k = 0; k < m; k++)
        keys[k] = onnx_row(c, rows, 1, k);
    if (!hb_ok(b)) return;
    struct groups g = group(c, keys, (int)m, n);
    if (own || onnx_at_int(c, "sorted", 1) != 1) by_occurrence(c, &g);
    onnx_out_any(c, 0, onnx_dynamic_val(c, onnx_take(c, x, g.at, axis), g.count, (int)axis));
    if (!own) onnx_out_any(c, 1, onnx_dynamic_val(c, g.at, g.count, 0));
    onnx_out_val(c, own ? 1 : 2, g.inverse);
    onnx_out_any(c, own ? 2 : 3, onnx_dynamic_val(c, g.number, g.count, 0));
}
