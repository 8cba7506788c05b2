// SPDX-License-Identifier: Apache-2.0
// Rules of operations that move data, and of contractions that can take a movement in.
#include "compiler/eval.h"
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/rules/rules.h"

// An operation whose result has its operand's shape and type moves nothing.
#define RULE_SAME(name, kind)                                                                      \
    RULE_FN(name) {                                                                                \
        return i->op == kind && shape_equal(i->shape, i->operands[0]->shape) ? i->operands[0]      \
                                                                             : NULL;               \
    }
RULE_SAME(convert_same, HLO_CONVERT)
RULE_SAME(copy_same, HLO_COPY)
RULE_SAME(reshape_same, HLO_RESHAPE)
RULE_FN(call_same) {
    return hlo_eval_is_operand(i) ? i->operands[0] : NULL;
}
RULE_FN(reshape_reshape) {
    if (i->op != HLO_RESHAPE || i->operands[0]->op != HLO_RESHAPE) return NULL;
    return hb_op(&r->b, HLO_RESHAPE, i->shape, &i->operands[0]->operands[0], 1, NULL);
}
RULE_FN(reshape_constant) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_RESHAPE || x->op != HLO_BROADCAST || x->operands[0]->shape->rank) return NULL;
    return i->shape->rank
               ? hb_broadcast(&r->b, x->operands[0], i->shape->dims, i->shape->rank, NULL)
               : x->operands[0];
}
RULE_FN(transpose_identity) {
    return i->op == HLO_TRANSPOSE &&
                   match_identity_dims(HLO_ATTR(i, dims)->dimensions, i->shape->rank)
               ? i->operands[0]
               : NULL;
}
RULE_FN(transpose_transpose) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_TRANSPOSE || x->op != HLO_TRANSPOSE) return NULL;
    int64_t perm[HLO_MAX_RANK];
    for (int d = 0; d < i->shape->rank; d++)
        perm[d] = HLO_ATTR(x, dims)->dimensions.v[HLO_ATTR(i, dims)->dimensions.v[d]];
    return hb_transpose(&r->b, x->operands[0], perm);
}
RULE_FN(transpose_to_reshape) {
    if (i->op != HLO_TRANSPOSE) return NULL;
    int64_t last = -1;
    for (int d = 0; d < i->shape->rank; d++) { // dims larger than 1 keep their order
        int64_t from = HLO_ATTR(i, dims)->dimensions.v[d];
        if (i->shape->dims[d] == 1) continue;
        if (from < last) return NULL;
        last = from;
    }
    return hb_op(&r->b, HLO_RESHAPE, i->shape, i->operands, 1, NULL);
}
RULE_FN(broadcast_identity) {
    return i->op == HLO_BROADCAST && shape_equal(i->shape, i->operands[0]->shape) &&
                   match_identity_dims(HLO_ATTR(i, dims)->dimensions, i->shape->rank)
               ? i->operands[0]
               : NULL;
}
RULE_FN(broadcast_broadcast) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_BROADCAST || x->op != HLO_BROADCAST) return NULL;
    int64_t map[HLO_MAX_RANK];
    for (int k = 0; k < x->operands[0]->shape->rank; k++)
        map[k] = HLO_ATTR(i, dims)->dimensions.v[HLO_ATTR(x, dims)->dimensions.v[k]];
    return hb_broadcast(&r->b, x->operands[0], i->shape->dims, i->shape->rank, map);
}
// Dims of the operand that are not 1 stand for the same dims of the reshape's operand, in order; 1s
// may be dropped from the map.
RULE_FN(broadcast_reshape) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_BROADCAST || x->op != HLO_RESHAPE) return NULL;
    struct hlo_instr *y = x->operands[0];
    int64_t map[HLO_MAX_RANK];
    int k = 0, n = 0;
    for (int d = 0; d < y->shape->rank; d++) {
        if (y->shape->dims[d] == 1)
            return NULL; // a 1 of the source has no place in the map: handled when it is dropped
                         // first
        while (k < x->shape->rank && x->shape->dims[k] == 1)
            k++;
        if (k == x->shape->rank || x->shape->dims[k] != y->shape->dims[d]) return NULL;
        map[n++] = HLO_ATTR(i, dims)->dimensions.v[k++];
    }
    return hb_broadcast(&r->b, y, i->shape->dims, i->shape->rank, map);
}
RULE_SAME(slice_full, HLO_SLICE)
RULE_FN(slice_slice) {
    struct hlo_instr *x = i->operands[0];
    if (i->op != HLO_SLICE || x->op != HLO_SLICE) return NULL;
    struct range v[HLO_MAX_RANK];
    for (int d = 0; d < i->shape->rank; d++) {
        struct range in = HLO_ATTR(x, slice)->slice.v[d], o = HLO_ATTR(i, slice)->slice.v[d];
        int64_t start = in.start + o.start * in.stride, stride = in.stride * o.stride,
                n = i->shape->dims[d];
        v[d] = n ? (struct range){start, start + (n - 1) * stride + 1, stride}
                 : (struct range){0, 0, 1}; // the start of nothing may lie outside
    }
    return hb_slice(&r->b, x->operands[0], v);
}
RULE_FN(pad_nothing) {
    if (i->op != HLO_PAD || !shape_equal(i->shape, i->operands[0]->shape)) return NULL;
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    for (int d = 0; d < p->n; d++)
        if (p->v[d].low || p->v[d].high || (p->v[d].interior && i->shape->dims[d] > 1)) return NULL;
    return i->operands[0];
}
RULE_FN(concat_one) {
    return i->op == HLO_CONCATENATE && i->n_operands == 1 ? i->operands[0] : NULL;
}
RULE_FN(gte_tuple) {
    return i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0]->op == HLO_TUPLE
               ? i->operands[0]->operands[HLO_ATTR(i, gte)->index]
               : NULL;
}
RULE_FN(reverse_ones) {
    if (i->op != HLO_REVERSE) return NULL;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    for (int k = 0; k < d.n; k++)
        if (i->shape->dims[d.v[k]] != 1) return NULL;
    return i->operands[0];
}
RULE_FN(reduce_nothing) {
    if (i->op != HLO_REDUCE || i->n_operands != 2) return NULL;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    const struct hlo_instr *f = i->called[0]->root;
    bool sum = f->op == HLO_ADD && match_splat_is(i->operands[1], 0);
    for (int k = 0; k < d.n; k++)
        if (!sum || i->operands[0]->shape->dims[d.v[k]] != 1) return NULL;
    if (!sum || f->operands[0]->op != HLO_PARAMETER || f->operands[1]->op != HLO_PARAMETER ||
        i->shape->dtype != i->operands[0]->shape->dtype)
        return NULL;
    return hb_op(&r->b, HLO_RESHAPE, i->shape, i->operands, 1, NULL);
}

// A side of a dot without terms to sum, over the result's dims: batch, left, right.
static struct hlo_instr *spread(struct rule_ctx *r, const struct hlo_instr *dot, int side) {
    const struct hlo_attr_dot *d = HLO_ATTR(dot, dot);
    struct i64s batch = side ? d->rhs_batch_dims : d->lhs_batch_dims,
                contract = side ? d->rhs_contracting_dims : d->lhs_contracting_dims;
    const struct shape *x = dot->operands[side]->shape, *all = dot->shape;
    int64_t perm[HLO_MAX_RANK], map[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int n = 0, free = x->rank - batch.n - contract.n, at = side ? all->rank - free : batch.n;
    for (int k = 0; k < batch.n; k++)
        perm[n] = batch.v[k], map[n++] = k;
    for (int k = 0; k < x->rank; k++)
        if (!i64s_has(batch, k) && !i64s_has(contract, k)) perm[n] = k, map[n++] = at++;
    for (int k = 0; k < n; k++)
        dims[k] = x->dims[perm[k]];
    for (int k = 0; k < contract.n; k++)
        perm[n + k] = contract.v[k];
    struct hlo_instr *v = hb_transpose(&r->b, dot->operands[side], perm);
    v = hb_convert(&r->b, hb_reshape(&r->b, v, dims, n), all->dtype);
    return hb_broadcast(&r->b, v, all->dims, all->rank, map);
}
// Zero is added as a sum begins with it: -0 becomes 0.
RULE_FN(dot_one_term) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *s = i->shape;
    if (i->op != HLO_DOT || s->dynamic || (dtype_is_float(s->dtype) && dtype_bits(s->dtype) <= 8))
        return NULL;
    for (int k = 0; k < d->lhs_contracting_dims.n; k++)
        if (i->operands[0]->shape->dims[d->lhs_contracting_dims.v[k]] != 1) return NULL;
    struct hlo_instr *x = spread(r, i, 0), *y = spread(r, i, 1);
    struct hlo_instr *p = hb_mul(&r->b, x, y);
    return dtype_is_int(s->dtype) ? p : hb_add(&r->b, p, hb_splat(&r->b, s, 0));
}

// Term k of a side of a dot, of the type that sums have, over the result's dims.
static struct hlo_instr *term(struct rule_ctx *r, const struct hlo_instr *dot, int side, int64_t k,
                              enum dtype sums) {
    const struct hlo_attr_dot *d = HLO_ATTR(dot, dot);
    struct i64s batch = side ? d->rhs_batch_dims : d->lhs_batch_dims,
                contract = side ? d->rhs_contracting_dims : d->lhs_contracting_dims;
    const struct shape *x = dot->operands[side]->shape, *all = dot->shape;
    struct range one[HLO_MAX_RANK];
    int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK], map[HLO_MAX_RANK];
    int n = 0, place[HLO_MAX_RANK]; // of x's dims, without those that are contracted

    for (int j = contract.n - 1; j >= 0; j--) {
        int64_t size = x->dims[contract.v[j]];
        one[contract.v[j]] = (struct range){k % size, k % size + 1, 1};
        k /= size;
    }
    for (int j = 0; j < x->rank; j++) {
        if (i64s_has(contract, j)) continue;
        one[j] = (struct range){0, x->dims[j], 1};
        place[j] = n;
        dims[n++] = x->dims[j];
    }

    int m = 0, at = side ? all->rank - (n - batch.n) : batch.n;
    for (int j = 0; j < batch.n; j++)
        perm[m] = place[batch.v[j]], map[m++] = j;
    for (int j = 0; j < x->rank; j++)
        if (!i64s_has(batch, j) && !i64s_has(contract, j)) perm[m] = place[j], map[m++] = at++;

    hv v = hb_reshape(&r->b, hb_slice(&r->b, dot->operands[side], one), dims, n);
    v = hb_convert(&r->b, hb_transpose(&r->b, v, perm), sums);
    return hb_broadcast(&r->b, v, all->dims, all->rank, map);
}
// Products of matrices: how many of a batch, of so many elements each; 0 of vectors.
static int64_t matrices(const struct hlo_instr *i, int64_t *each) {
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    int64_t batch = 1, rows = 1, columns = 1;
    int n = d->lhs_batch_dims.n, left = i->operands[0]->shape->rank - d->lhs_contracting_dims.n;
    for (int k = 0; k < i->shape->rank; k++)
        *(k < n ? &batch : k < left ? &rows : &columns) *= i->shape->dims[k];
    *each = rows * columns;
    return rows > 1 && columns > 1 ? batch : 0;
}
// Large products of matrices that another rule should see first, or that would gather: of those
// that are transposed transpose_dot makes one dot, which is looked at then; where the columns of
// the result lie apart in the right operand, each row would gather them anew.
static bool is_left(const struct hlo_instr *i, int64_t batch) {
    enum { SMALL = 1 << 12 };
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    if (batch == 0 || shape_elements(i->shape) <= SMALL) return false;
    bool turned = batch == 1 && i->users.n == 1 && i->users.v[0]->op == HLO_TRANSPOSE;
    return turned || i64s_has(d->rhs_contracting_dims, i->operands[1]->shape->rank - 1);
}
// Vectors in space, quaternions, points of few coordinates: a kernel of their own costs more than
// the few products, which go with what is around them. Measured on Zen 4 (AVX-512), two, three and
// four terms, 64 to 2^20 products, with and without neighbours: 1 to 56 times as fast as the dot,
// and less (0.33 to 0.7) of matrices of a batch alone, from 4096 products on. A product of two
// small matrices lies in registers, which their users in a loop's kernel read.
RULE_FN(dot_few_terms) {
    enum { TERMS = 4, PRODUCTS = 1 << 20, OF_MATRICES = 1 << 11, SMALL = 16, LARGE = 1 << 14 };
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *s = i->shape;
    int64_t terms = 1, each;
    if (i->op != HLO_DOT || s->dynamic || s->dtype == DT_PRED ||
        (dtype_is_float(s->dtype) && dtype_bits(s->dtype) <= 8) ||
        (r->strict && !dtype_is_int(s->dtype)) ||
        (r->target && strcmp(r->target->kind, "cpu") != 0))
        return NULL;
    for (int k = 0; k < d->lhs_contracting_dims.n && terms <= TERMS; k++)
        terms *= i->operands[0]->shape->dims[d->lhs_contracting_dims.v[k]];
    if (terms < 2 || terms > TERMS || i->parent->n_instrs > LARGE) return NULL; // it makes some 30
    int64_t batch = matrices(i, &each);
    if (shape_elements(s) > (batch > 1 ? OF_MATRICES : PRODUCTS) / terms) return NULL;
    if ((batch == 1 && each <= SMALL) || is_left(i, batch)) return NULL;

    bool half = dtype_is_float(s->dtype) && dtype_bits(s->dtype) == 16;
    enum dtype sums = half ? DT_F32 : s->dtype;
    struct hlo_instr *sum = NULL;
    for (int64_t k = 0; k < terms; k++) {
        hv p = hb_mul(&r->b, term(r, i, 0, k, sums), term(r, i, 1, k, sums));
        sum = sum ? hb_add(&r->b, sum, p) : p;
    }
    return hb_convert(&r->b, sum, s->dtype);
}

// A dot names its dims, so a transposed operand needs no transpose, as long as the order of the
// free dims stays, and as long as rows that lie together still do (libraries read them as one dim)
// and the matrices stay rows or columns.
RULE_FN(dot_transpose) {
    if (i->op != HLO_DOT) return NULL;
    for (int side = 0; side < 2; side++) {
        struct hlo_instr *t = i->operands[side];
        if (t->op != HLO_TRANSPOSE) continue;

        const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
        struct i64s perm = HLO_ATTR(t, dims)->dimensions,
                    batch = side ? d->rhs_batch_dims : d->lhs_batch_dims,
                    contract = side ? d->rhs_contracting_dims : d->lhs_contracting_dims;

        int64_t nb[HLO_MAX_RANK], nc[HLO_MAX_RANK], last = -1;
        bool ordered = true;
        for (int k = 0; k < t->shape->rank; k++) {
            if (i64s_has(batch, k) || i64s_has(contract, k)) continue;
            ordered &= perm.v[k] > last;
            last = perm.v[k];
        }
        if (!ordered) continue;

        for (int k = 0; k < batch.n; k++)
            nb[k] = perm.v[batch.v[k]];
        for (int k = 0; k < contract.n; k++)
            nc[k] = perm.v[contract.v[k]];
        struct hlo_attr_dot n = *d;
        *(side ? &n.rhs_batch_dims : &n.lhs_batch_dims) = (struct i64s){nb, batch.n};
        *(side ? &n.rhs_contracting_dims : &n.lhs_contracting_dims) = (struct i64s){nc, contract.n};

        struct hlo_instr *x[2] = {i->operands[0], i->operands[1]};
        x[side] = t->operands[0];
        struct i64s moved = {nb, batch.n};
        if (lib_rows_together(t->shape, batch, contract) &&
            !lib_rows_together(x[side]->shape, moved, (struct i64s){nc, contract.n}))
            continue;
        if (lib_rows_or_columns(t->shape, batch) && !lib_rows_or_columns(x[side]->shape, moved))
            continue;

        return hb_op(&r->b, HLO_DOT, i->shape, x, 2, &n);
    }
    return NULL;
}

RULE_FN(pad_into_conv) {
    struct hlo_instr *x = i->operands[0];
    // Strict: a zero of the pad times an infinite weight is NaN, a window's padding is skipped.
    if (r->strict || i->op != HLO_CONVOLUTION || x->op != HLO_PAD ||
        !match_splat_is(x->operands[1], 0) || lib_of_ours(i))
        return NULL;
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct padding *p = &HLO_ATTR(x, pad)->padding;
    struct hlo_attr_conv n = *c;
    struct window_dim w[HLO_MAX_RANK];
    if (c->window.n != c->dim_labels.n_spatial) return NULL;
    struct pad_dim b = p->v[c->dim_labels.in_batch], f = p->v[c->dim_labels.in_feature];
    if (b.low || b.high || b.interior || f.low || f.high || f.interior) return NULL;
    for (int d = 0; d < c->window.n; d++) {
        struct pad_dim q = p->v[c->dim_labels.in_spatial[d]];
        w[d] = c->window.v[d];
        if (q.interior || q.low < 0 || q.high < 0 || w[d].base_dilation != 1) return NULL;
        w[d].pad_low += q.low;
        w[d].pad_high += q.high;
    }
    if (c->feature_group_count == 1 && c->window.n &&
        lib_reaches_far(x->shape, c->dim_labels.in_feature, &w[c->window.n - 1]))
        return NULL;
    n.window = (struct window){w, c->window.n};
    return hb_op(&r->b, HLO_CONVOLUTION, i->shape, (hv[]){x->operands[0], i->operands[1]}, 2, &n);
}

// A stack whose new dimension is put elsewhere, as jnp.cross and moveaxis do: stacked there.
RULE_FN(transpose_stack) {
    enum { MOST = 16 };
    struct hlo_instr *x = i->operands[0], *in[MOST];
    if (i->op != HLO_TRANSPOSE || x->op != HLO_CONCATENATE || x->users.n != 1 ||
        x->n_operands > MOST || i->shape->dynamic ||
        !layout_is_default(i->shape->layout, i->shape->rank) ||
        !layout_is_default(x->shape->layout, x->shape->rank))
        return NULL;
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    int64_t d = HLO_ATTR(x, dims)->dimensions.v[0], to = -1, last = -1, dims[HLO_MAX_RANK];
    for (int k = 0; k < perm.n; k++) {
        if (perm.v[k] == d) {
            to = k;
        } else if (x->shape->dims[perm.v[k]] != 1) {
            if (perm.v[k] < last) return NULL; // the parts themselves are turned
            last = perm.v[k];
        }
    }
    for (int k = 0; k < x->n_operands; k++)
        if (x->operands[k]->shape->dims[d] != 1) return NULL;
    memcpy(dims, i->shape->dims, sizeof *dims * (size_t)i->shape->rank);
    dims[to] = 1;
    for (int k = 0; k < x->n_operands; k++)
        in[k] = hb_reshape(&r->b, x->operands[k], dims, i->shape->rank);
    return hb_concat(&r->b, in, x->n_operands, to);
}
