// SPDX-License-Identifier: Apache-2.0
// Contractions in the one form that libraries take.
//   dot-canon   batch dims first, then at most one free dim and exactly one contracting dim a side:
//               several dims are transposed together and reshaped into one, but for rows on the
//               left that lie together; so are operands whose batch dim is the innermost one in
//               memory (heads behind the scores of talking heads). Dots that the library
//               takes as they are stay (it reads any stride), and so do types that it does not
//               know.
//   conv-canon  bf01_oi01->bf01 (NCHW, OIHW) by transposes; a reversed window is a reversed kernel;
//               negative padding is a slice. The mover and algsimp cancel transposes between
//               layers.
// A 1x1 convolution stays a convolution: in the library's blocked layout its kernel is a matrix
// product already, and a dot would need copies to and from that layout.
#include "compiler/passes/fusion/library.h"
#include "compiler/passes/pass.h"

// ---- dot

struct side { // one operand
    struct hlo_instr *x;
    struct i64s batch, contract;
    int64_t batch_size[HLO_MAX_RANK];
    int64_t free_dims[HLO_MAX_RANK], contract_dims[HLO_MAX_RANK];
    int n_free;
    int64_t free_size, contract_size;
};
static struct side side_of(struct hlo_instr *x, struct i64s batch, struct i64s contract) {
    struct side s = {
        .x = x, .batch = batch, .contract = contract, .free_size = 1, .contract_size = 1};
    for (int k = 0; k < batch.n; k++)
        s.batch_size[k] = x->shape->dims[batch.v[k]];
    for (int d = 0; d < x->shape->rank; d++) {
        if (i64s_has(batch, d) || i64s_has(contract, d)) continue;
        s.free_dims[s.n_free++] = d;
        s.free_size *= x->shape->dims[d];
    }
    return s;
}
// Pairs of contracting dims in the order they have in memory on the left, so that it moves least.
static void order_pairs(struct side *l, struct side *r) {
    int n = l->contract.n;
    for (int k = 0; k < n; k++) {
        int at = 0;
        for (int j = 0; j < n; j++)
            at += l->contract.v[j] < l->contract.v[k];
        l->contract_dims[at] = l->contract.v[k];
        r->contract_dims[at] = r->contract.v[k];
        l->contract_size *= l->x->shape->dims[l->contract.v[k]];
    }
    r->contract_size = l->contract_size;
}
// [batch..., free, contracted], or [batch..., contracted, free]; no free dim when there is none.
static struct hlo_instr *gather_dims(struct hb *b, const struct side *s, bool contract_last) {
    int64_t perm[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int n = 0, r = 0;
    for (int k = 0; k < s->batch.n; k++) {
        perm[n++] = s->batch.v[k];
        dims[r++] = s->batch_size[k];
    }
    for (int half = 0; half < 2; half++) {
        bool contract = (half == 1) == contract_last;
        const int64_t *from = contract ? s->contract_dims : s->free_dims;
        int many = contract ? s->contract.n : s->n_free;
        for (int k = 0; k < many; k++)
            perm[n++] = from[k];
        if (contract || many) dims[r++] = contract ? s->contract_size : s->free_size;
    }
    return hb_reshape(b, hb_transpose(b, s->x, perm), dims, r);
}

static struct hlo_instr *canonical_dot(struct hb *b, struct hlo_instr *i) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    struct side l = side_of(i->operands[0], a->lhs_batch_dims, a->lhs_contracting_dims),
                r = side_of(i->operands[1], a->rhs_batch_dims, a->rhs_contracting_dims);
    int64_t ids[HLO_MAX_RANK];
    int nb = l.batch.n;
    order_pairs(&l, &r);
    for (int k = 0; k < nb; k++)
        ids[k] = k;
    struct hlo_instr *x = gather_dims(b, &l, true), *y = gather_dims(b, &r, false);
    int64_t lc = x->shape->rank - 1, rc = nb;
    struct hlo_attr_dot n = {.lhs_batch_dims = {ids, nb},
                             .rhs_batch_dims = {ids, nb},
                             .lhs_contracting_dims = {&lc, 1},
                             .rhs_contracting_dims = {&rc, 1}};
    // Operands keep their type; the result's is given: it may be wider.
    int64_t dims[HLO_MAX_RANK];
    int rank = nb;
    memcpy(dims, l.batch_size, sizeof *dims * (size_t)nb);
    if (l.n_free) dims[rank++] = l.free_size;
    if (r.n_free) dims[rank++] = r.free_size;
    const struct shape *s = shape_make(b->c->module->arena, i->shape->dtype, dims, rank);
    return hb_reshape(b, hb_op(b, HLO_DOT, s, (hv[]){x, y}, 2, &n), i->shape->dims, i->shape->rank);
}
static bool wants_canonical_dot(const struct target *t, const struct hlo_instr *i) {
    const struct hlo_attr_dot *a = HLO_ATTR(i, dot);
    const struct shape *x = i->operands[0]->shape, *y = i->operands[1]->shape;
    int nc = a->lhs_contracting_dims.n;
    if (!t->library_accepts || i->shape->dtype != DT_F32 || x->dtype != DT_F32 ||
        y->dtype != DT_F32 || x->dynamic || y->dynamic)
        return false;
    if (nc == 0) // an outer product: sums over a dimension of size 1 that is made for it
        return x->rank < HLO_MAX_RANK && y->rank < HLO_MAX_RANK;
    int right = y->rank - a->rhs_batch_dims.n - nc;
    return nc != 1 || right > 1 ||
           !lib_rows_together(x, a->lhs_batch_dims, a->lhs_contracting_dims) ||
           !lib_rows_or_columns(x, a->lhs_batch_dims) || !lib_rows_or_columns(y, a->rhs_batch_dims);
}

static struct hlo_instr *dot_rewrite(struct hb *b, struct hlo_instr *i, const struct pass_ctx *p) {
    return i->op == HLO_DOT && wants_canonical_dot(p->target, i) ? canonical_dot(b, i) : NULL;
}
status_t pass_dot_canon(struct hlo_module *m, struct pass_ctx *p) {
    return p->target ? pass_rewrite(m, p, dot_rewrite) : ST_OK;
}

// ---- convolution

static bool has_order(int first, int second, const int32_t *spatial, int n) {
    bool yes = first == 0 && second == 1;
    for (int d = 0; d < n; d++)
        yes &= spatial[d] == d + 2;
    return yes;
}
static struct hlo_instr *ordered(struct hb *b, struct hlo_instr *x, int first, int second,
                                 const int32_t *spatial, int n) {
    int64_t perm[HLO_MAX_RANK] = {first, second};
    for (int d = 0; d < n; d++)
        perm[d + 2] = spatial[d];
    return hb_transpose(b, x, perm);
}

static struct hlo_instr *canonical_conv(struct hb *b, struct hlo_instr *i) {
    const struct hlo_attr_conv *a = HLO_ATTR(i, conv);
    const struct labels *l = &a->dim_labels;
    int n = l->n_spatial, n_reversed = 0;
    struct hlo_attr_conv c = *a;
    struct window_dim w[HLO_MAX_RANK];
    struct hlo_instr *x = ordered(b, i->operands[0], l->in_batch, l->in_feature, l->in_spatial, n),
                     *k = ordered(b, i->operands[1], l->k_out, l->k_in, l->k_spatial, n);
    struct range cut[HLO_MAX_RANK];
    int64_t reversed[HLO_MAX_RANK], back[HLO_MAX_RANK];

    for (int d = 0; d < n + 2; d++)
        cut[d] = (struct range){0, x->shape->dims[d], 1};
    bool cuts = false;
    for (int d = 0; d < n; d++) {
        w[d] = a->window.v[d];
        if (w[d].reversal) reversed[n_reversed++] = d + 2;
        w[d].reversal = false;
        if (w[d].base_dilation != 1) continue;
        if (w[d].pad_low < 0) cut[d + 2].start = -w[d].pad_low, w[d].pad_low = 0, cuts = true;
        if (w[d].pad_high < 0) cut[d + 2].limit += w[d].pad_high, w[d].pad_high = 0, cuts = true;
        if (cut[d + 2].limit < cut[d + 2].start) return NULL;
    }

    if (cuts) x = hb_slice(b, x, cut);
    if (n_reversed) k = hb_reverse(b, k, reversed, n_reversed);

    c.window = (struct window){w, n};
    c.dim_labels = (struct labels){.n_spatial = n, .in_feature = 1, .k_in = 1, .out_feature = 1};
    int64_t dims[HLO_MAX_RANK] = {i->shape->dims[l->out_batch], i->shape->dims[l->out_feature]};
    back[l->out_batch] = 0;
    back[l->out_feature] = 1;

    for (int d = 0; d < n; d++) {
        c.dim_labels.in_spatial[d] = c.dim_labels.k_spatial[d] = c.dim_labels.out_spatial[d] =
            d + 2;
        dims[d + 2] = i->shape->dims[l->out_spatial[d]];
        back[l->out_spatial[d]] = d + 2;
    }

    const struct shape *s = shape_make(b->c->module->arena, i->shape->dtype, dims, n + 2);
    return hb_transpose(b, hb_op(b, HLO_CONVOLUTION, s, (hv[]){x, k}, 2, &c), back);
}
static bool wants_canonical_conv(const struct hlo_instr *i) {
    const struct hlo_attr_conv *a = HLO_ATTR(i, conv);
    const struct labels *l = &a->dim_labels;
    bool odd = false;
    if (a->window.n != l->n_spatial || i->shape->dynamic || i->operands[0]->shape->dynamic)
        return false;
    for (int d = 0; d < a->window.n; d++)
        odd |= a->window.v[d].reversal ||
               (a->window.v[d].base_dilation == 1 &&
                (a->window.v[d].pad_low < 0 || a->window.v[d].pad_high < 0));
    return odd || !has_order(l->in_batch, l->in_feature, l->in_spatial, l->n_spatial) ||
           !has_order(l->k_out, l->k_in, l->k_spatial, l->n_spatial) ||
           !has_order(l->out_batch, l->out_feature, l->out_spatial, l->n_spatial);
}

static struct hlo_instr *conv_rewrite(struct hb *b, struct hlo_instr *i,
                                      UNUSED const struct pass_ctx *p) {
    return i->op == HLO_CONVOLUTION && wants_canonical_conv(i) ? canonical_conv(b, i) : NULL;
}
status_t pass_conv_canon(struct hlo_module *m, struct pass_ctx *p) {
    return pass_rewrite(m, p, conv_rewrite);
}
