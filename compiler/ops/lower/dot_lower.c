// SPDX-License-Identifier: Apache-2.0
// Lowering of dot and convolution, for shapes and types that no library takes.
#include "compiler/kernel/lower_tile.h"
#include "compiler/ops/dot_blocks.h"
#include "compiler/ops/lower/lower_rules.h"

static status_t zero(struct lower *lw, struct lower_reduce *f, struct kir_val **acc) {
    acc[0] = kir_zero(&lw->k, f->type[0]);
    return ST_OK;
}
// acc + x * y in the type of the sum; floats may be reordered and fused.
static struct kir_val *multiply_add(struct lower *lw, enum dtype t, enum dtype tx,
                                    struct kir_val *x, enum dtype ty, struct kir_val *y,
                                    struct kir_val *acc) {
    struct kir *k = &lw->k;
    x = kmath_convert(lw, t, tx, x);
    y = kmath_convert(lw, t, ty, y);
    if (dtype_is_complex(t)) return kmath(lw, KFN_ADD, t, acc, kmath(lw, KFN_MUL, t, x, y));
    if (t == DT_PRED) return kir_op(k, K_OR, acc, kir_op(k, K_AND, x, y, NULL), NULL);
    uint8_t fl = dtype_is_float(t) && !lw->ordered ? KF_REASSOC | KF_CONTRACT : 0;
    return kir_flag(k, K_ADD, acc, kir_flag(k, K_MUL, x, y, fl), fl);
}

// dot, scaled-dot and ragged-dot. Dimensions as ragged-dot has them; a plain dot has no groups.
struct contraction {
    struct hlo_attr_ragged_dot d;
    enum ragged mode;
    struct kir_val *group; // of the row (RAGGED_ROWS) or of the result (RAGGED_CONTRACTED)
    int64_t dims[HLO_MAX_RANK];
};

// The group that `at` of lhs lies in, as the number of groups that end before it.
struct groups {
    const struct hlo_instr *i;
    struct kir_val *size_at[HLO_MAX_RANK + 1], *row;
};
static status_t no_group(struct lower *lw, UNUSED struct lower_reduce *f, struct kir_val **acc) {
    acc[0] = acc[1] = kir_i64(&lw->k, 0); // where the group ends, how many ended
    return ST_OK;
}
static status_t next_group(struct lower *lw, struct lower_reduce *f,
                           UNUSED struct kir_val *const *index, struct kir_val *r,
                           struct kir_val *const *acc, struct kir_val **out) {
    struct groups *g = f->ctx;
    struct kir *k = &lw->k;
    struct kir_val *size;
    const struct shape *s = g->i->operands[2]->shape;
    g->size_at[s->rank - 1] = r;
    RETURN_IF_ERR(lower_operand(lw, g->i, 2, g->size_at, &size));
    out[0] = kir_op(k, K_ADD, acc[0], kir_cast(k, DT_S64, size), NULL);
    struct kir_val *over =
        kir_op(k, K_AND, kir_cmp(k, CMP_GE, g->row, out[0]), kir_cmp(k, CMP_EQ, acc[1], r), NULL);
    out[1] = kir_op(k, K_ADD, acc[1], kir_select(k, over, kir_i64(k, 1), kir_i64(k, 0)), NULL);
    return ST_OK;
}
static status_t group_of(struct lower *lw, const struct hlo_instr *i, const struct contraction *c,
                         struct kir_val *const *at, struct kir_val **out) {
    const struct shape *x = i->operands[0]->shape, *s = i->operands[2]->shape;
    struct groups g = {.i = i, .row = at[c->d.lhs_ragged_dims.v[0]]};
    struct kir_val *both[LOWER_MAX_RESULTS], *index[HLO_MAX_RANK + 1];
    enum dtype types[2] = {DT_S64, DT_S64};
    int64_t lead[HLO_MAX_RANK];
    int n = s->rank > 1 ? dot_ragged_leading(&c->d, x, lead) : 0;
    for (int k = 0; k < n; k++)
        index[k] = g.size_at[k] = at[lead[k]];
    index[n] = g.row;
    struct lower_reduce f = {.i = i,
                             .n = 2,
                             .type = types,
                             .total = s->dims[s->rank - 1],
                             .unroll = s->dims[s->rank - 1] <= 8,
                             .ctx = &g,
                             .init = no_group,
                             .step = next_group};
    RETURN_IF_ERR(lower_reduce(lw, &f, index, n + 1, both));
    *out = both[1];
    return ST_OK;
}

// Operand `s` of a scaled dot is multiplied by the scale of the block that holds `at`.
static status_t scale(struct lower *lw, const struct hlo_instr *i, int s, enum dtype t,
                      struct kir_val *const *at, struct kir_val **v) {
    const struct shape *x = i->operands[s]->shape, *by = i->operands[s + 2]->shape;
    struct kir_val *block[HLO_MAX_RANK + 1], *f;
    for (int d = 0; d < by->rank; d++)
        block[d] = kir_idx_divmod(&lw->k, at[d], x->dims[d] / by->dims[d], 0);
    RETURN_IF_ERR(lower_operand(lw, i, s + 2, block, &f));
    *v = kir_op(&lw->k, K_MUL, kmath_convert(lw, t, x->dtype, *v),
                kmath_convert(lw, t, by->dtype, f), NULL);
    return ST_OK;
}

// Of a unit that is an element: so many loads of each operand are on their way at a time.
static int terms_a_turn(int64_t total) {
    enum { MOST = 4 };
    int n = MOST;
    while (total % n)
        n--;
    return n;
}

enum { SHORT = 8 }; // terms of a product that are written out, so that its columns are one loop
static status_t dot_step(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                         struct kir_val *r, struct kir_val *const *acc, struct kir_val **out) {
    const struct hlo_instr *i = f->i;
    const struct contraction *c = f->ctx;
    const struct i64s batch[2] = {c->d.lhs_batch_dims, c->d.rhs_batch_dims},
                      con[2] = {c->d.lhs_contracting_dims, c->d.rhs_contracting_dims};
    enum dtype types[2] = {i->operands[0]->shape->dtype, i->operands[1]->shape->dtype};
    struct kir *k = &lw->k;
    struct kir_val *red[HLO_MAX_RANK + 1], *v[2], *group = c->group, *in_group = NULL;
    int lead = c->mode == RAGGED_CONTRACTED, o = lead + batch[0].n;

    lower_unflatten(lw, r, c->dims, con[0].n, red);
    for (int s = 0; s < 2; s++) {
        struct kir_val *at[HLO_MAX_RANK + 1];
        const struct shape *sh = i->operands[s]->shape;
        for (int n = 0; n < sh->rank; n++)
            at[n] = i64s_has(batch[s], n) || i64s_has(con[s], n) ? NULL
                    : s == 1 && i64s_has(c->d.rhs_group_dims, n) ? group
                                                                 : index[o++];

        for (int n = 0; n < batch[s].n; n++)
            at[batch[s].v[n]] = index[lead + n];
        for (int n = 0; n < con[s].n; n++)
            at[con[s].v[n]] = red[n];
        RETURN_IF_ERR(lower_operand(lw, i, s, at, &v[s]));
        if (s == 0 && c->mode == RAGGED_CONTRACTED) {
            RETURN_IF_ERR(group_of(lw, i, c, at, &in_group));
            in_group = kir_cmp(k, CMP_EQ, in_group, index[0]);
        }

        if (i->op != HLO_SCALED_DOT) continue;
        RETURN_IF_ERR(scale(lw, i, s, f->type[0], at, &v[s]));
        types[s] = f->type[0];
    }

    *out = multiply_add(lw, f->type[0], types[0], v[0], types[1], v[1], acc[0]);
    if (in_group) *out = kir_select(k, in_group, *out, acc[0]);
    return ST_OK;
}
// Does the operand whose free dimension is the result's innermost lie along it? Then neighbours of
// a row read neighbours, and its sums are made side by side.
static bool by_columns(const struct hlo_instr *i, const struct contraction *c) {
    const struct i64s *batch[2] = {&c->d.lhs_batch_dims, &c->d.rhs_batch_dims},
                      *con[2] = {&c->d.lhs_contracting_dims, &c->d.rhs_contracting_dims};
    struct shape_phys p[3];
    for (int s = 0; s < 2; s++)
        shape_physical(i->operands[s]->shape, &p[s]);
    shape_physical(i->shape, &p[2]);
    int minor[3];
    for (int s = 0; s < 3; s++)
        minor[s] = lower_innermost(&p[s]);
    if (c->mode != RAGGED_NONE) return false;
    if (minor[1] >= 0 && !i64s_has(*con[1], minor[1])) return true;
    if (minor[0] < 0 || i64s_has(*con[0], minor[0]) || i64s_has(*batch[0], minor[0])) return false;
    int at = batch[0]->n; // of the left operand's innermost, in the result
    for (int d = 0; d < minor[0]; d++)
        at += !i64s_has(*con[0], d) && !i64s_has(*batch[0], d);
    return minor[2] == at;
}
static status_t lower_dot(struct lower *lw, const struct hlo_instr *i, struct contraction *c,
                          struct kir_val *const *index, struct kir_val **out) {
    const struct shape *a = i->operands[0]->shape;
    enum dtype t = i->shape->dtype;
    struct lower_reduce f = {
        .i = i, .n = 1, .type = &t, .total = 1, .ctx = c, .init = zero, .step = dot_step};
    for (int n = 0; n < c->d.lhs_contracting_dims.n; n++)
        f.total *= c->dims[n] = a->dims[c->d.lhs_contracting_dims.v[n]];
    f.lines = i->op == HLO_DOT;
    f.unroll = f.lines && f.total <= (dtype_is_complex(t) ? SHORT / 2 : SHORT);
    if (c->d.lhs_contracting_dims.n == 1) f.times = terms_a_turn(f.total);
    f.column = by_columns(i, c);
    RETURN_IF_ERR(lower_reduce(lw, &f, index, i->shape->rank, out));
    *out = kmath_wrap(lw, t, *out);
    return ST_OK;
}
LOWER(DOT) {
    if (lw->tile && lw->tile->i == i) return lower_tile_get(lw, index, out);
    struct contraction c = {.d = dot_ragged_none(HLO_ATTR(i, dot)), .mode = RAGGED_NONE};
    return lower_dot(lw, i, &c, index, out);
}
LOWER(SCALED_DOT) {
    struct contraction c = {.d = dot_ragged_none(HLO_ATTR(i, dot)), .mode = RAGGED_NONE};
    return lower_dot(lw, i, &c, index, out);
}
LOWER(RAGGED_DOT) {
    struct contraction c = {.d = *HLO_ATTR(i, ragged_dot)};
    struct kir *k = &lw->k;
    const struct shape *x = i->operands[0]->shape;
    struct kir_val *at[HLO_MAX_RANK + 1] = {NULL}, *group;
    int o = 0;
    c.mode = dot_ragged_mode(&c.d);
    int64_t groups = i->operands[2]->shape->dims[i->operands[2]->shape->rank - 1];
    if (groups == 0) return lower_no(lw, "no groups");
    if (c.mode != RAGGED_ROWS) return lower_dot(lw, i, &c, index, out);
    for (int n = 0; n < c.d.lhs_batch_dims.n; n++)
        at[c.d.lhs_batch_dims.v[n]] = index[o++];
    for (int n = 0; n < x->rank; n++)
        if (!i64s_has(c.d.lhs_batch_dims, n) && !i64s_has(c.d.lhs_contracting_dims, n))
            at[n] = index[o++];
    RETURN_IF_ERR(group_of(lw, i, &c, at, &group));
    c.group = kir_idx_clamp(k, group, 0, groups - 1);
    RETURN_IF_ERR(lower_dot(lw, i, &c, index, out));
    struct kir_val *none = kir_zero(k, i->shape->dtype);
    *out = kir_select(k, kir_cmp(k, CMP_LT, group, kir_i64(k, groups)), *out, none);
    return ST_OK;
}

struct conv {
    int64_t dims[HLO_MAX_RANK + 1]; // input features of a group, then kernel spatial
    int n;
    int64_t group_in, group_out;
    int64_t batch, batch_out; // with batch groups: images and output features of one, else 0
};
// Where the term at pos lies in the image and in the filters; true in *ok: it lies in the image.
static void conv_place(struct lower *lw, const struct hlo_instr *i, const struct conv *c,
                       struct kir_val *const *index, struct kir_val *const *pos,
                       struct kir_val **xi, struct kir_val **ki, struct kir_val **ok) {
    const struct hlo_attr_conv *a = HLO_ATTR(i, conv);
    const struct labels *l = &a->dim_labels;
    const struct shape *in = i->operands[0]->shape;
    struct kir *k = &lw->k;
    *ok = kir_int(k, DT_PRED, 1);

    struct kir_val *of = index[l->out_feature];
    xi[l->in_batch] = index[l->out_batch];
    if (c->batch)
        xi[l->in_batch] =
            kir_idx_add(k, index[l->out_batch],
                        kir_idx_mul(k, kir_idx_divmod(k, of, c->batch_out, 0), c->batch));

    xi[l->in_feature] = pos[0];
    if (a->feature_group_count > 1)
        xi[l->in_feature] = kir_idx_add(
            k, pos[0], kir_idx_mul(k, kir_idx_divmod(k, of, c->group_out, 0), c->group_in));

    ki[l->k_in] = pos[0];
    ki[l->k_out] = of;

    for (int d = 0; d < l->n_spatial; d++) {
        const struct window_dim *wd = &a->window.v[d];
        int64_t size = in->dims[l->in_spatial[d]], last = (size - 1) * wd->base_dilation;
        struct kir_val *p = pos[1 + d];
        ki[l->k_spatial[d]] =
            wd->reversal ? kir_idx_add(k, kir_i64(k, wd->size - 1), kir_idx_mul(k, p, -1)) : p;
        struct kir_val *v = kir_idx_add(k, kir_idx_mul(k, index[l->out_spatial[d]], wd->stride),
                                        kir_idx_mul(k, p, wd->window_dilation));
        v = kir_idx_add(k, v, kir_i64(k, -wd->pad_low));

        *ok = kir_op(k, K_AND, *ok,
                     kir_op(k, K_AND, kir_cmp(k, CMP_GE, v, kir_i64(k, 0)),
                            kir_cmp(k, CMP_LE, v, kir_i64(k, last)), NULL),
                     NULL);
        v = kir_idx_clamp(k, v, 0, last);
        if (wd->base_dilation > 1) {
            *ok = kir_op(
                k, K_AND, *ok,
                kir_cmp(k, CMP_EQ, kir_idx_divmod(k, v, 1, wd->base_dilation), kir_i64(k, 0)),
                NULL);
            v = kir_idx_divmod(k, v, wd->base_dilation, 0);
        }
        xi[l->in_spatial[d]] = v;
    }
}
// acc + the product of what lies at xi and ki.
static status_t conv_product(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *xi,
                             struct kir_val *const *ki, struct kir_val *acc, struct kir_val **out) {
    struct kir_val *x, *w;
    RETURN_IF_ERR(lower_operand(lw, i, 0, xi, &x));
    RETURN_IF_ERR(lower_operand(lw, i, 1, ki, &w));
    *out = multiply_add(lw, i->shape->dtype, i->operands[0]->shape->dtype, x,
                        i->operands[1]->shape->dtype, w, acc);
    return ST_OK;
}
static status_t conv_step(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                          struct kir_val *r, struct kir_val *const *acc, struct kir_val **out) {
    const struct conv *c = f->ctx;
    struct kir_val *pos[HLO_MAX_RANK + 1], *xi[HLO_MAX_RANK + 1], *ki[HLO_MAX_RANK + 1], *ok, *sum;
    lower_unflatten(lw, r, c->dims, c->n, pos);
    conv_place(lw, f->i, c, index, pos, xi, ki, &ok);
    RETURN_IF_ERR(conv_product(lw, f->i, xi, ki, acc[0], &sum));
    *out = kir_select(&lw->k, ok, sum, acc[0]);
    return ST_OK;
}
// For units that are elements: loops over the places of the window from dimension d on, and inside
// of them one over features, so that where a place lies is computed once for all of these, which
// are left out together where it is not inside.
static status_t conv_places(struct lower *lw, struct lower_reduce *f, struct kir_val *const *index,
                            int d, struct kir_val **pos, struct kir_val **acc) {
    const struct conv *c = f->ctx;
    struct kir *k = &lw->k;
    struct kir_val *xi[HLO_MAX_RANK + 1], *ki[HLO_MAX_RANK + 1], *ok, *sum;
    bool last = d == c->n;
    int at = last ? 0 : d;
    pos[at] = kir_i64(k, 0);
    if (c->dims[at] == 1 && !last) return conv_places(lw, f, index, d + 1, pos, acc);
    if (c->dims[at] == 1) {
        conv_place(lw, f->i, c, index, pos, xi, ki, &ok);
        RETURN_IF_ERR(conv_product(lw, f->i, xi, ki, *acc, &sum));
        *acc = kir_select(k, ok, sum, *acc);
        return ST_OK;
    }

    RETURN_IF_ERR(zero(lw, f, &sum));
    struct kir_val *init = last ? sum : *acc;
    int times = last ? terms_a_turn(c->dims[at]) : 1;
    int64_t turns = c->dims[at] / times;
    struct kir_loop *l = kir_for(k, pos[at], kir_i64(k, turns), turns, &init, 1);
    pos[at] = l->var;
    sum = l->carry[0];
    if (!last) RETURN_IF_ERR(conv_places(lw, f, index, d + 1, pos, &sum));
    for (int n = 0; n < times && last; n++) {
        pos[at] = kir_idx_add(k, kir_idx_mul(k, l->var, times), kir_i64(k, n));
        conv_place(lw, f->i, c, index, pos, xi, ki, &ok);
        RETURN_IF_ERR(conv_product(lw, f->i, xi, ki, sum, &sum));
    }
    kir_end(k, l, &sum);

    uint8_t fl = dtype_is_float(f->type[0]) ? lower_reassoc(lw) : 0;
    if (last) sum = kir_flag(k, K_ADD, *acc, l->result[0], fl);
    *acc = last ? kir_select(k, ok, sum, *acc) : l->result[0];
    return ST_OK;
}
static status_t conv_by_places(struct lower *lw, struct lower_reduce *f,
                               struct kir_val *const *index, int rank, struct kir_val **out) {
    struct kir_val *pos[HLO_MAX_RANK + 1];
    lower_note(lw, f);
    struct kir_block *now = kir_at_level(&lw->k, lower_level(index, rank));
    status_t st = zero(lw, f, out);
    if (!st) st = conv_places(lw, f, index, 1, pos, out);
    kir_restore(&lw->k, now);
    return st;
}
status_t hlo_convolution_at(struct lower *lw, const struct hlo_instr *i,
                            struct kir_val *const *index, struct kir_val **out) {
    const struct hlo_attr_conv *a = HLO_ATTR(i, conv);
    const struct labels *l = &a->dim_labels;
    const struct shape *in = i->operands[0]->shape, *ker = i->operands[1]->shape;
    struct conv c = {.n = 1 + l->n_spatial,
                     .group_in = ker->dims[l->k_in],
                     .group_out = ker->dims[l->k_out] /
                                  (a->feature_group_count ? a->feature_group_count : 1)};
    enum dtype t = i->shape->dtype;
    struct lower_reduce f = {
        .i = i, .n = 1, .type = &t, .ctx = &c, .init = zero, .step = conv_step, .column = true};
    if (a->batch_group_count > 1) {
        c.batch = in->dims[l->in_batch] / a->batch_group_count;
        c.batch_out = ker->dims[l->k_out] / a->batch_group_count;
    }
    if (a->window.n != l->n_spatial) return lower_no(lw, "a convolution without a window");
    f.total = c.dims[0] = c.group_in;
    for (int d = 0; d < l->n_spatial; d++)
        f.total *= c.dims[1 + d] = a->window.v[d].size;
    if (shape_elements(in) == 0) f.total = 0;
    f.unroll = f.total <= 12;
    bool places = lw->elements && !f.unroll && l->n_spatial && t != DT_PRED && !dtype_is_complex(t);
    RETURN_IF_ERR((places ? conv_by_places : lower_reduce)(lw, &f, index, i->shape->rank, out));
    *out = kmath_wrap(lw, t, *out);
    return ST_OK;
}
LOWER(CONVOLUTION) {
    if (lw->tile && lw->tile->i == i) return lower_tile_get(lw, index, out);
    return hlo_convolution_at(lw, i, index, out);
}
