// SPDX-License-Identifier: Apache-2.0
// Lowering of reductions and windows: each is a fold whose step asks the operands at one position
// and calls the reducer.
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower_rules.h"

// Is the computation one commutative operation of floats on its two parameters? Then its order may
// change; of a product only where precision is not strict.
static bool plain_sum(const struct lower *lw, const struct hlo_computation *c) {
    struct hlo_instr *r = hlo_root(c);
    bool product = r->op == HLO_MULTIPLY && lw->prec != PRECISION_STRICT;
    bool plain = (r->op == HLO_ADD || product) && r->n_operands == 2 &&
                 r->operands[0]->op == HLO_PARAMETER && r->operands[1]->op == HLO_PARAMETER &&
                 r->operands[0] != r->operands[1];
    return plain && dtype_is_float(r->shape->dtype);
}
static status_t combine(struct lower *lw, struct lower_fold *f, struct kir_val *const *acc,
                        struct kir_val *const *x, struct kir_val **out) {
    const struct hlo_computation *c = f->i->called[0];
    struct kir_val *args[2 * LOWER_MAX_RESULTS];
    if (f->n == 1 && plain_sum(lw, c)) { // small floats accumulate in f32, rounded at the end
        enum kop op = hlo_root(c)->op == HLO_ADD ? K_ADD : K_MUL;
        *out = kir_flag(&lw->k, op, acc[0], x[0], lower_reassoc(lw));
        return ST_OK;
    }
    memcpy(args, acc, sizeof *acc * (size_t)f->n);
    memcpy(args + f->n, x, sizeof *x * (size_t)f->n);
    return lower_call(lw, c, args, 2 * f->n, out);
}
static status_t init_values(struct lower *lw, struct lower_fold *f, struct kir_val **acc) {
    for (int n = 0; n < f->n; n++)
        RETURN_IF_ERR(lower_operand(lw, f->i, f->n + n, NULL, &acc[n]));
    return ST_OK;
}
static void round_results(struct lower *lw, struct lower_fold *f, struct kir_val **out) {
    for (int n = 0; n < f->n; n++)
        out[n] = kir_quant(&lw->k, f->type[n], out[n]);
}

struct reduce {
    int64_t dims[HLO_MAX_RANK]; // extents of the reduced dimensions, in order
    int which[HLO_MAX_RANK], n;
};
static status_t reduce_step(struct lower *lw, struct lower_fold *f, struct kir_val *const *index,
                            struct kir_val *r, struct kir_val *const *acc, struct kir_val **out) {
    const struct reduce *rd = f->ctx;
    struct kir_val *at[HLO_MAX_RANK + 1], *red[HLO_MAX_RANK + 1], *x[LOWER_MAX_RESULTS];
    int rank = f->i->operands[0]->shape->rank, q = 0, o = 0;
    lower_unflatten(lw, r, rd->dims, rd->n, red);
    for (int d = 0; d < rank; d++)
        at[d] = q < rd->n && rd->which[q] == d ? red[q++] : index[o++];
    for (int n = 0; n < f->n; n++)
        RETURN_IF_ERR(lower_operand(lw, f->i, n, at, &x[n]));
    return combine(lw, f, acc, x, out);
}
LOWER(REDUCE) {
    const struct shape *s = i->operands[0]->shape;
    struct reduce rd = {.n = 0};
    enum dtype types[LOWER_MAX_RESULTS];
    struct lower_fold f = {.i = i,
                           .n = i->n_operands / 2,
                           .type = types,
                           .total = 1,
                           .ctx = &rd,
                           .init = init_values,
                           .step = reduce_step};
    struct shape_phys p;
    if (f.n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    for (int n = 0; n < f.n; n++)
        types[n] = i->operands[n]->shape->dtype;
    for (int d = 0; d < s->rank; d++)
        if (i64s_has(HLO_ATTR(i, dims)->dimensions, d)) {
            rd.which[rd.n] = d;
            rd.dims[rd.n++] = s->dims[d];
            f.total *= s->dims[d];
        }
    shape_physical(s, &p);
    f.column = p.rank > 0 && !i64s_has(HLO_ATTR(i, dims)->dimensions, p.of[p.rank - 1]);
    RETURN_IF_ERR(lower_fold(lw, &f, index, s->rank - rd.n, out));
    round_results(lw, &f, out);
    return ST_OK;
}

// One position of a window: operand index, and whether it lies on a value.
static struct kir_val *window_at(struct lower *lw, const struct window_dim *w, int64_t size,
                                 struct kir_val *o, struct kir_val *pos, struct kir_val **at) {
    struct kir *k = &lw->k;
    struct kir_val *p =
        w->reversal ? kir_idx_add(k, kir_i64(k, w->size - 1), kir_idx_mul(k, pos, -1)) : pos;
    struct kir_val *x =
        kir_idx_add(k, kir_idx_mul(k, o, w->stride), kir_idx_mul(k, p, w->window_dilation));
    int64_t last = (size - 1) * w->base_dilation;
    x = kir_idx_add(k, x, kir_i64(k, -w->pad_low));
    struct kir_val *ok = kir_op(k, K_AND, kir_cmp(k, CMP_GE, x, kir_i64(k, 0)),
                                kir_cmp(k, CMP_LE, x, kir_i64(k, last)), NULL);
    x = kir_idx_clamp(k, x, 0, last);
    if (w->base_dilation > 1) {
        ok = kir_op(k, K_AND, ok,
                    kir_cmp(k, CMP_EQ, kir_idx_divmod(k, x, 1, w->base_dilation), kir_i64(k, 0)),
                    NULL);
        x = kir_idx_divmod(k, x, w->base_dilation, 0);
    }
    *at = x;
    return ok;
}
static status_t window_step(struct lower *lw, struct lower_fold *f, struct kir_val *const *index,
                            struct kir_val *r, struct kir_val *const *acc, struct kir_val **out) {
    const struct hlo_instr *i = f->i;
    struct window w = HLO_ATTR(i, window)->window;
    struct kir *k = &lw->k;
    int64_t dims[HLO_MAX_RANK];
    struct kir_val *at[HLO_MAX_RANK + 1], *pos[HLO_MAX_RANK + 1], *x[LOWER_MAX_RESULTS],
        *ok = kir_int(k, DT_PRED, 1);
    for (int d = 0; d < w.n; d++)
        dims[d] = w.v[d].size;
    lower_unflatten(lw, r, dims, w.n, pos);
    for (int d = 0; d < w.n; d++)
        ok = kir_op(
            k, K_AND, ok,
            window_at(lw, &w.v[d], i->operands[0]->shape->dims[d], index[d], pos[d], &at[d]), NULL);
    for (int n = 0; n < f->n; n++)
        RETURN_IF_ERR(lower_operand(lw, i, n, at, &x[n]));
    RETURN_IF_ERR(combine(lw, f, acc, x, out));
    for (int n = 0; n < f->n; n++)
        out[n] = kir_select(k, ok, out[n], acc[n]);
    return ST_OK;
}
LOWER(REDUCE_WINDOW) {
    struct window w = HLO_ATTR(i, window)->window;
    enum dtype types[LOWER_MAX_RESULTS];
    struct lower_fold f = {.i = i,
                           .n = i->n_operands / 2,
                           .type = types,
                           .total = 1,
                           .init = init_values,
                           .step = window_step};
    if (f.n > LOWER_MAX_RESULTS) return lower_no(lw, "too many results");
    if (w.n != i->operands[0]->shape->rank || shape_elements(i->operands[0]->shape) == 0)
        return lower_no(lw, "a window without values");
    for (int n = 0; n < f.n; n++)
        types[n] = i->operands[n]->shape->dtype;
    for (int d = 0; d < w.n; d++)
        f.total *= w.v[d].size;
    f.unroll = f.total <= 32;
    f.column = true;
    RETURN_IF_ERR(lower_fold(lw, &f, index, w.n, out));
    round_results(lw, &f, out);
    return ST_OK;
}
