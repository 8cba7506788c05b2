// SPDX-License-Identifier: Apache-2.0
// The builder. A failed call yields the placeholder, a scalar constant, so that formulas need no
// checks between their steps; hb_end gives the first error.
#include "compiler/ir/build.h"

#include <stdio.h>

struct hb hb_begin(struct hlo_computation *c) {
    return (struct hb){.c = c};
}
status_t hb_end(struct hb *b) {
    status_t s = b->st;
    b->st = ST_OK;
    return s;
}
void hb_fail(struct hb *b, status_t s) {
    if (b->st)
        st_drop(s);
    else
        b->st = s;
}

static struct arena *mem(struct hb *b) {
    return b->c->module->arena;
}

static hv tag(struct hb *b, hv i) {
    i->op_type = b->op_type;
    i->op_name = b->op_name;
    return i;
}

// Its dims can be read though it has none: formulas look at those of what they computed.
static hv placeholder(struct hb *b) {
    static int64_t none[HLO_MAX_RANK];
    if (!b->placeholder) {
        struct literal *l = lit_scalar_f64(mem(b), DT_F32, 0);
        struct shape *s = arena_dup(mem(b), l->shape, sizeof *l->shape);
        s->dims = none;
        l->shape = s;
        b->placeholder = hlo_add_constant(b->c, l);
    }
    return b->placeholder;
}

hv hb_call(struct hb *b, enum hlo_op op, const struct shape *shape, hv const *operands, int n,
           const void *attr, struct hlo_computation *const *called, int n_called) {
    hv out = NULL;
    if (!b->st) b->st = hlo_add_instr(b->c, op, shape, operands, n, attr, called, n_called, &out);
    return out ? tag(b, out) : placeholder(b);
}
hv hb_op(struct hb *b, enum hlo_op op, const struct shape *shape, hv const *operands, int n,
         const void *attr) {
    return hb_call(b, op, shape, operands, n, attr, NULL, 0);
}
hv hb_unary(struct hb *b, enum hlo_op op, hv x) {
    return hb_op(b, op, NULL, &x, 1, NULL);
}
hv hb_binary(struct hb *b, enum hlo_op op, hv x, hv y) {
    return hb_op(b, op, NULL, (hv[]){x, y}, 2, NULL);
}
hv hb_compare(struct hb *b, hv x, hv y, enum cmp_direction d) {
    return hb_op(b, HLO_COMPARE, NULL, (hv[]){x, y}, 2, &(struct hlo_attr_compare){.direction = d});
}
hv hb_select(struct hb *b, hv pred, hv on_true, hv on_false) {
    return hb_op(b, HLO_SELECT, NULL, (hv[]){pred, on_true, on_false}, 3, NULL);
}
hv hb_clamp(struct hb *b, hv lo, hv x, hv hi) {
    return hb_op(b, HLO_CLAMP, NULL, (hv[]){lo, x, hi}, 3, NULL);
}

// ---- constants

hv hb_constant(struct hb *b, struct literal *lit) {
    return tag(b, hlo_add_constant(b->c, lit));
}
hv hb_const_f64(struct hb *b, enum dtype t, double v) {
    return hb_constant(b, lit_scalar_f64(mem(b), t, v));
}
hv hb_const_i64(struct hb *b, enum dtype t, int64_t v) {
    return hb_constant(b, lit_scalar_i64(mem(b), t, v));
}
hv hb_const_s64s(struct hb *b, const int64_t *v, int n) {
    int64_t dim = n;
    struct literal *l = lit_new(mem(b), shape_make(mem(b), DT_S64, &dim, 1));
    for (int k = 0; k < n; k++)
        lit_set_i64(l, k, v[k]);
    return hb_constant(b, l);
}
hv hb_splat(struct hb *b, const struct shape *s, double v) {
    hv c = hb_const_f64(b, s->dtype, v);
    return s->rank ? hb_broadcast(b, c, s->dims, s->rank, NULL) : c;
}
hv hb_iota(struct hb *b, const struct shape *s, int64_t dim) {
    return hb_op(b, HLO_IOTA, s, NULL, 0, &(struct hlo_attr_iota){.iota_dimension = dim});
}

// ---- shapes

hv hb_convert(struct hb *b, hv x, enum dtype t) {
    if (x->shape->dtype == t) return x;
    return hb_op(b, HLO_CONVERT,
                 shape_with_dtype(mem(b), shape_with_layout(mem(b), x->shape, NULL), t), &x, 1,
                 NULL);
}
// After a failure `dims` may be those of a placeholder, which has none.
hv hb_reshape(struct hb *b, hv x, const int64_t *dims, int rank) {
    if (b->st) return placeholder(b);
    const struct shape *s = shape_make(mem(b), x->shape->dtype, dims, rank);
    return shape_same_dims(s, x->shape) ? x : hb_op(b, HLO_RESHAPE, s, &x, 1, NULL);
}
hv hb_broadcast(struct hb *b, hv x, const int64_t *dims, int rank, const int64_t *map) {
    if (b->st) return placeholder(b);
    if (x->shape->rank > (map ? rank : 0)) // map has no more than that
        return hb_fail(b,
                       st_invalid("%s broadcast to rank %d", shape_text(mem(b), x->shape), rank)),
               placeholder(b);
    const struct shape *s = shape_make(mem(b), x->shape->dtype, dims, rank);
    struct hlo_attr_dims d = {.dimensions = {(int64_t *)(uintptr_t)map, x->shape->rank}};
    return hb_op(b, HLO_BROADCAST, s, &x, 1, &d);
}

hv hb_broadcast_numpy(struct hb *b, hv x, const int64_t *dims, int rank) {
    if (b->st) return placeholder(b);
    const struct shape *s = x->shape;
    if (s->rank == rank && (rank == 0 || memcmp(s->dims, dims, sizeof *dims * (size_t)rank) == 0))
        return x;
    int64_t kept[HLO_MAX_RANK], map[HLO_MAX_RANK];
    int n = 0;
    if (s->rank > rank) {
        hb_fail(b, st_invalid("rank %d does not broadcast to rank %d", s->rank, rank));
        return placeholder(b);
    }
    for (int d = 0; d < s->rank; d++) {
        int64_t to = dims[rank - s->rank + d];
        if (s->dims[d] != to && s->dims[d] != 1) {
            hb_fail(b, st_invalid("dimension of size %lld does not broadcast to %lld",
                                  (long long)s->dims[d], (long long)to));
            return placeholder(b);
        }
        if (s->dims[d] == 1 && to != 1) continue; // dropped by the reshape, filled by the broadcast
        kept[n] = s->dims[d];
        map[n++] = rank - s->rank + d;
    }
    return hb_broadcast(b, hb_reshape(b, x, kept, n), dims, rank, map);
}

void hb_numpy_pair(struct hb *b, hv *x, hv *y) {
    const struct shape *s = (*x)->shape, *t = (*y)->shape;
    int rank = s->rank > t->rank ? s->rank : t->rank;
    int64_t dims[HLO_MAX_RANK];
    for (int k = 1; k <= rank; k++) {
        int64_t p = k <= s->rank ? s->dims[s->rank - k] : 1,
                q = k <= t->rank ? t->dims[t->rank - k] : 1;
        dims[rank - k] = p == 1 ? q : p;
        if (p != q && p != 1 && q != 1) {
            hb_fail(b, st_invalid("shapes %s and %s do not broadcast together",
                                  shape_text(mem(b), s), shape_text(mem(b), t)));
            return;
        }
    }
    *x = hb_broadcast_numpy(b, *x, dims, rank);
    *y = hb_broadcast_numpy(b, *y, dims, rank);
}

hv hb_transpose(struct hb *b, hv x, const int64_t *perm) {
    bool identity = true;
    for (int d = 0; d < x->shape->rank; d++)
        identity &= perm[d] == d;
    if (identity) return x;
    struct hlo_attr_dims d = {.dimensions = {(int64_t *)(uintptr_t)perm, x->shape->rank}};
    return hb_op(b, HLO_TRANSPOSE, NULL, &x, 1, &d);
}
hv hb_slice(struct hb *b, hv x, const struct range *r) {
    struct hlo_attr_slice s = {.slice = {(struct range *)(uintptr_t)r, x->shape->rank}};
    return hb_op(b, HLO_SLICE, NULL, &x, 1, &s);
}
hv hb_pad(struct hb *b, hv x, hv value, const struct pad_dim *p) {
    struct hlo_attr_pad s = {.padding = {(struct pad_dim *)(uintptr_t)p, x->shape->rank}};
    return hb_op(b, HLO_PAD, NULL, (hv[]){x, value}, 2, &s);
}
hv hb_concat(struct hb *b, hv const *xs, int n, int64_t dim) {
    enum { MOST = 4096 }; // of one step: devices have a limit
    struct hlo_attr_dims d = {.dimensions = {&dim, 1}};
    if (n == 1) return xs[0];
    if (n <= MOST) return hb_op(b, HLO_CONCATENATE, NULL, xs, n, &d);

    hv *part = arena_array(mem(b), hv, n / MOST + 1);
    int parts = 0;
    for (int k = 0; k < n; k += MOST)
        part[parts++] = hb_concat(b, xs + k, n - k < MOST ? n - k : MOST, dim);
    return hb_concat(b, part, parts, dim);
}
hv hb_reverse(struct hb *b, hv x, const int64_t *dims, int n) {
    struct hlo_attr_dims d = {.dimensions = {(int64_t *)(uintptr_t)dims, n}};
    return hb_op(b, HLO_REVERSE, NULL, &x, 1, &d);
}

// ---- reductions and contractions

// Callees stand before callers.
static void to_front(struct hlo_module *m, struct hlo_computation *c) {
    if (!c->prev) return;
    c->prev->next = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        m->last = c->prev;
    c->prev = NULL;
    c->next = m->first;
    m->first->prev = c;
    m->first = c;
}
struct hlo_computation *hb_callee(struct hlo_module *m, const char *name) {
    struct hlo_computation *c = hlo_computation_add(m, name);
    if (m->entry) to_front(m, c);
    return c;
}
struct hlo_computation *hb_reducer(struct hlo_module *m, enum hlo_op op, enum dtype t) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", hlo_op_name(op), dtype_name(t));
    HLO_EACH_COMPUTATION(c, m)
    if (strcmp(c->name, name) == 0 && c->params.n == 2 && c->root->op == op &&
        c->root->shape->dtype == t)
        return c;
    struct hlo_computation *c = hb_callee(m, name);
    const struct shape *s = shape_scalar(m->arena, t);
    hv in[2] = {hlo_add_param(c, 0, s, "x"), hlo_add_param(c, 1, s, "y")}, out = NULL;
    status_t st = hlo_add_instr(c, op, NULL, in, 2, NULL, NULL, 0, &out);
    st_drop(st); // two scalars of one type: only a type the op does not take can fail, and the
                 // caller's infer rule names it then
    hlo_set_root(c, out ? out : in[0]);
    return c;
}
// The computation may be younger than the one it is made for.
struct hlo_computation *hb_reducer_for(struct hb *b, enum hlo_op op, enum dtype t) {
    struct hlo_computation *c = hb_reducer(b->c->module, op, t);
    const struct hlo_computation *above = b->c->prev;
    while (above && above != c)
        above = above->prev;
    if (!above) to_front(b->c->module, c);
    return c;
}

hv hb_reduce(struct hb *b, hv x, hv init, const int64_t *dims, int n, enum hlo_op reducer) {
    struct hlo_computation *c = hb_reducer_for(b, reducer, x->shape->dtype);
    struct hlo_attr_dims d = {.dimensions = {(int64_t *)(uintptr_t)dims, n}};
    return hb_call(b, HLO_REDUCE, NULL, (hv[]){x, init}, 2, &d, &c, 1);
}

// An s64 of 32 bits that orders as x does.
static hv order_of(struct hb *b, hv x, bool largest) {
    if (!dtype_is_float(x->shape->dtype)) {
        hv wide = hb_convert(b, x, DT_S64);
        return x->shape->dtype == DT_U32 ? hb_add(b, wide, hb_splat(b, wide->shape, -0x1p31))
                                         : wide;
    }
    hv f = hb_convert(b, x, DT_F32), zero = hb_splat(b, f->shape, 0);
    f = hb_select(b, hb_compare(b, f, zero, CMP_EQ), zero, f);
    const struct shape *s = shape_with_dtype(mem(b), f->shape, DT_S32);
    hv bits = hb_op(b, HLO_BITCAST_CONVERT, s, &f, 1, NULL);
    hv sign = hb_binary(b, HLO_SHIFT_RIGHT_ARITH, bits, hb_splat(b, s, 31));
    hv below = hb_binary(b, HLO_AND, sign, hb_splat(b, s, INT32_MAX));
    hv order = hb_binary(b, HLO_XOR, bits, below);
    hv nan = hb_splat(b, s, largest ? INT32_MAX : INT32_MIN);
    order = hb_select(b, hb_compare(b, f, f, CMP_NE), nan, order);
    return hb_convert(b, order, DT_S64);
}
hv hb_place_of_extreme(struct hb *b, hv x, int64_t axis, bool largest, bool last) {
    const struct shape *s = shape_with_dtype(mem(b), x->shape, DT_S64);
    double end = (double)(s->dims[axis] - 1);
    bool back = largest != last; // the larger position below wins: count from the end
    hv pos = hb_iota(b, s, axis);
    if (back) pos = hb_sub(b, hb_splat(b, s, end), pos);
    hv key = hb_add(b, hb_mul(b, order_of(b, x, largest), hb_splat(b, s, 0x1p32)), pos);
    hv none = hb_const_i64(b, DT_S64, largest ? INT64_MIN : INT64_MAX);
    hv r = hb_reduce(b, key, none, &axis, 1, largest ? HLO_MAXIMUM : HLO_MINIMUM);
    r = hb_binary(b, HLO_AND, r, hb_splat(b, r->shape, 0x1p32 - 1));
    return back ? hb_sub(b, hb_splat(b, r->shape, end), r) : r;
}
hv hb_reduce_window(struct hb *b, hv x, hv init, const struct window *w, enum hlo_op reducer) {
    struct hlo_computation *c = hb_reducer_for(b, reducer, x->shape->dtype);
    return hb_call(b, HLO_REDUCE_WINDOW, NULL, (hv[]){x, init}, 2,
                   &(struct hlo_attr_window){.window = *w}, &c, 1);
}
hv hb_dot(struct hb *b, hv x, hv y, const struct hlo_attr_dot *d) {
    return hb_op(b, HLO_DOT, NULL, (hv[]){x, y}, 2, d);
}
hv hb_dot_over(struct hb *b, hv x, hv y, int64_t xd, int64_t yd) {
    return hb_dot(
        b, x, y,
        &(struct hlo_attr_dot){.lhs_contracting_dims = {&xd, 1}, .rhs_contracting_dims = {&yd, 1}});
}
hv hb_conv(struct hb *b, hv x, hv k, const struct hlo_attr_conv *c) {
    return hb_op(b, HLO_CONVOLUTION, NULL, (hv[]){x, k}, 2, c);
}
hv hb_gather(struct hb *b, hv x, hv idx, const struct hlo_attr_gather *g) {
    return hb_op(b, HLO_GATHER, NULL, (hv[]){x, idx}, 2, g);
}

hv hb_matmul(struct hb *b, hv x, hv y) {
    const struct shape *s = x->shape, *t = y->shape;
    if (s->rank < 1 || t->rank < 1) {
        hb_fail(b, st_invalid("matmul of a scalar"));
        return placeholder(b);
    }

    int xb = s->rank > 2 ? s->rank - 2 : 0, yb = t->rank > 2 ? t->rank - 2 : 0;
    int64_t ycontract = t->rank > 1 ? t->rank - 2 : 0;
    if (yb == 0) { // a matrix or vector on the right: one plain dot, whatever the rank on the left
        struct hlo_attr_dot d = {.lhs_contracting_dims = {(int64_t[]){s->rank - 1}, 1},
                                 .rhs_contracting_dims = {&ycontract, 1}};
        return hb_dot(b, x, y, &d);
    }

    int nb = xb > yb ? xb : yb;
    int64_t batch[HLO_MAX_RANK], dims[HLO_MAX_RANK], ids[HLO_MAX_RANK];
    for (int k = 1; k <= nb; k++) {
        int64_t p = k <= xb ? s->dims[xb - k] : 1, q = k <= yb ? t->dims[yb - k] : 1;
        batch[nb - k] = p == 1 ? q : p;
        ids[nb - k] = nb - k;
        if (p != q && p != 1 && q != 1) {
            hb_fail(b, st_invalid("matmul: batch dimensions of %s and %s do not broadcast",
                                  shape_text(mem(b), s), shape_text(mem(b), t)));
            return placeholder(b);
        }
    }

    int xm = s->rank > 1 ? 2 : 1;
    memcpy(dims, batch, sizeof *batch * (size_t)nb);
    memcpy(dims + nb, s->dims + s->rank - xm, sizeof *dims * (size_t)xm);
    x = hb_broadcast_numpy(b, x, dims, nb + xm);
    memcpy(dims + nb, t->dims + t->rank - 2, sizeof *dims * 2);
    y = hb_broadcast_numpy(b, y, dims, nb + 2);

    struct hlo_attr_dot d = {.lhs_batch_dims = {ids, nb},
                             .rhs_batch_dims = {ids, nb},
                             .lhs_contracting_dims = {(int64_t[]){nb + xm - 1}, 1},
                             .rhs_contracting_dims = {(int64_t[]){nb}, 1}};
    return hb_dot(b, x, y, &d);
}

hv hb_tuple(struct hb *b, hv const *xs, int n) {
    return hb_op(b, HLO_TUPLE, NULL, xs, n, NULL);
}
hv hb_gte(struct hb *b, hv x, int64_t index) {
    return hb_op(b, HLO_GET_TUPLE_ELEMENT, NULL, &x, 1, &(struct hlo_attr_gte){.index = index});
}
