// SPDX-License-Identifier: Apache-2.0
// The call and its form as a loop. A turn of the loop looks for the largest element of a column,
// brings its row up and subtracts multiples of it from the rows below, on the whole stack.
#include "compiler/calls/lu.h"

static const char *target_of(enum dtype t) {
    return t == DT_F64 ? "lapack_dgetrf_ffi" : "lapack_sgetrf_ffi";
}
// The results' shapes for a.
static const struct shape *results(struct arena *arena, const struct shape *a) {
    int64_t dims[HLO_MAX_RANK];
    int nb = a->rank - 2;
    int64_t m = a->dims[nb], n = a->dims[nb + 1];
    memcpy(dims, a->dims, sizeof *dims * (size_t)nb);
    dims[nb] = m < n ? m : n;
    const struct shape *each[] = {shape_make(arena, a->dtype, a->dims, a->rank),
                                  shape_make(arena, DT_S32, dims, nb + 1),
                                  shape_make(arena, DT_S32, dims, nb)};
    return shape_tuple(arena, each, 3);
}
bool lu_is(const struct hlo_instr *i) {
    if (i->op != HLO_CUSTOM_CALL || i->n_operands != 1) return false;
    const struct shape *a = i->operands[0]->shape;
    if (shape_is_tuple(a) || (a->dtype != DT_F32 && a->dtype != DT_F64) || a->rank < 2 ||
        a->dynamic || shape_elements(a) == 0)
        return false;
    return str_is(HLO_ATTR(i, custom)->custom_call_target, target_of(a->dtype)) &&
           shape_compatible(i->shape, results(i->parent->module->arena, a));
}
hv lu_call(struct hb *b, hv a) {
    struct hlo_attr_custom call = {.custom_call_target = str_of(target_of(a->shape->dtype))};
    return hb_op(b, HLO_CUSTOM_CALL, results(b->c->module->arena, a->shape), &a, 1, &call);
}

// ---- as a loop: state = (turn s32[], a [B,m,n], pivots s32[B,least], info s32[B])

enum { K, A, PIVOTS, INFO, N_STATE };

// Row (dim 1) or column (dim 2) k of x, [B, the other].
static hv line_at(struct hb *b, hv x, hv k, int dim) {
    const int64_t *d = x->shape->dims;
    int64_t size[3] = {d[0], d[1], d[2]}, left[2] = {d[0], d[3 - dim]};
    hv zero = hb_const_i64(b, DT_S32, 0), in[4] = {x, zero, zero, zero};
    size[dim] = 1;
    in[1 + dim] = k;
    hv r = hb_op(b, HLO_DYNAMIC_SLICE, NULL, in, 4,
                 &(struct hlo_attr_dynslice){.dynamic_slice_sizes = {size, 3}});
    return hb_reshape(b, r, left, 2);
}
static hv over(struct hb *b, hv x, const struct shape *like, int dim) { // [B] or [B, of dim]
    int64_t map[2] = {0, dim};
    return hb_broadcast(b, x, like->dims, like->rank, x->shape->rank ? map : NULL);
}
// Which places along dim of `like` compare so with v, a scalar or [B].
static hv places(struct hb *b, const struct shape *like, int dim, enum cmp_direction d, hv v) {
    const struct shape *s = shape_with_dtype(b->c->module->arena, like, DT_S32);
    return hb_compare(b, hb_iota(b, s, dim), over(b, v, s, 0), d);
}
// The first row from k on with the column's largest absolute value, [B]; k where NaN hides it.
static hv pivot_row(struct hb *b, hv column, hv k) {
    const struct shape *s = column->shape, *rows = shape_with_dtype(b->c->module->arena, s, DT_S32);
    int64_t dim = 1;
    hv size =
        hb_select(b, places(b, s, 1, CMP_GE, k), hb_unary(b, HLO_ABS, column), hb_splat(b, s, -1));
    hv most = hb_reduce(b, size, hb_const_f64(b, s->dtype, -1), &dim, 1, HLO_MAXIMUM);
    hv at = hb_select(b, hb_compare(b, size, over(b, most, s, 0), CMP_EQ), hb_iota(b, rows, 1),
                      hb_splat(b, rows, INT32_MAX));
    at = hb_reduce(b, at, hb_const_i64(b, DT_S32, INT32_MAX), &dim, 1, HLO_MINIMUM);
    hv none = hb_compare(b, at, hb_splat(b, at->shape, INT32_MAX), CMP_EQ);
    return hb_select(b, none, over(b, k, at->shape, 0), at);
}
static void turn(struct hb *b, hv *s) {
    const struct shape *all = s[A]->shape;
    hv k = s[K], zero = hb_splat(b, all, 0), next = hb_add(b, k, hb_const_i64(b, DT_S32, 1));
    int64_t dim = 1;
    hv first = pivot_row(b, line_at(b, s[A], k, 2), k);
    hv here = places(b, all, 1, CMP_EQ, first), top = line_at(b, s[A], k, 1);
    hv low = hb_reduce(b, hb_select(b, here, s[A], zero), hb_const_f64(b, all->dtype, 0), &dim, 1,
                       HLO_ADD); // the pivot's row
    hv below = places(b, all, 1, CMP_GT, k), right = places(b, all, 2, CMP_GT, k);
    hv a = hb_select(b, here, over(b, top, all, 2), s[A]);
    a = hb_select(b, places(b, all, 1, CMP_EQ, k), over(b, low, all, 2), a);

    hv pivot = hb_reduce(
        b, hb_select(b, places(b, low->shape, 1, CMP_EQ, k), low, hb_splat(b, low->shape, 0)),
        hb_const_f64(b, all->dtype, 0), &dim, 1, HLO_ADD);
    hv empty = hb_compare(b, pivot, hb_splat(b, pivot->shape, 0), CMP_EQ);
    hv ratio = line_at(b, a, k, 2),
       divisor = hb_select(b, empty, hb_splat(b, pivot->shape, 1), pivot);
    ratio = over(b, hb_div(b, ratio, over(b, divisor, ratio->shape, 0)), all, 1);
    hv less = hb_sub(b, a, hb_mul(b, ratio, over(b, low, all, 2)));
    hv at_k = places(b, all, 2, CMP_EQ, k);
    a = hb_select(b, hb_binary(b, HLO_AND, below, right), less, a);
    s[A] = hb_select(b, hb_binary(b, HLO_AND, below, at_k), ratio, a);

    hv number = over(b, next, s[INFO]->shape, 0);
    hv new = hb_compare(b, s[INFO], hb_splat(b, s[INFO]->shape, 0), CMP_EQ);
    s[INFO] = hb_select(b, hb_binary(b, HLO_AND, new, empty), number, s[INFO]);
    first = hb_add(b, first, hb_splat(b, first->shape, 1));
    s[PIVOTS] = hb_select(b, places(b, s[PIVOTS]->shape, 1, CMP_EQ, k),
                          over(b, first, s[PIVOTS]->shape, 0), s[PIVOTS]);
    s[K] = next;
}
static struct hlo_computation *part(struct hb *outer, bool body, hv init, int64_t turns) {
    struct hlo_computation *comp = hlo_computation_add(outer->c->module, body ? "lu" : "lu_more");
    hlo_computation_move_before(comp, outer->c);
    struct hb b = hb_begin(comp);
    hv p = hlo_add_param(comp, 0, init->shape, "state"), s[N_STATE], root;
    for (int k = 0; k < N_STATE; k++)
        s[k] = hb_gte(&b, p, k);
    if (body) {
        turn(&b, s);
        root = hb_tuple(&b, s, N_STATE);
    } else {
        root = hb_compare(&b, s[K], hb_const_i64(&b, DT_S32, turns), CMP_LT);
    }
    hlo_set_root(comp, root);
    status_t st = hb_end(&b);
    if (st) hb_fail(outer, st);
    hlo_remove_dead(comp);
    return comp;
}
hv lu_as_while(struct hb *b, hv a) {
    struct arena *arena = b->c->module->arena;
    const struct shape *s = a->shape, *whole = results(arena, s);
    int nb = s->rank - 2;
    int64_t m = s->dims[nb], n = s->dims[nb + 1], least = m < n ? m : n;
    int64_t batch = shape_elements(s) / (m * n), flat[3] = {batch, m, n};

    hv start[N_STATE] = {[K] = hb_const_i64(b, DT_S32, 0), [A] = hb_reshape(b, a, flat, 3)};
    flat[1] = least;
    start[PIVOTS] = hb_splat(b, shape_make(arena, DT_S32, flat, 2), 0);
    start[INFO] = hb_splat(b, shape_make(arena, DT_S32, flat, 1), 0);
    hv init = hb_tuple(b, start, N_STATE), each[3];
    struct hlo_computation *called[2] = {NULL, part(b, true, init, least)};
    called[0] = part(b, false, init, least);
    hv end = hb_call(b, HLO_WHILE, init->shape, &init, 1, NULL, called, 2);

    for (int k = 0; k < 3; k++)
        each[k] =
            hb_reshape(b, hb_gte(b, end, A + k), whole->elems[k]->dims, whole->elems[k]->rank);
    return hb_tuple(b, each, 3);
}
