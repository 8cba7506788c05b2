// SPDX-License-Identifier: Apache-2.0
// Rules of reductions, windows and batch normalisation.
#include "compiler/gradient/tape.h"

enum hlo_op tape_joined_by(const struct hlo_computation *f, int k, int n) {
    const struct hlo_instr *r = f->root;
    if (n > 1) {
        if (r->op != HLO_TUPLE) return HLO_OP_COUNT;
        r = r->operands[k];
    }
    if (r->n_operands != 2) return HLO_OP_COUNT;
    const struct hlo_instr *x = r->operands[0], *y = r->operands[1];
    if (x->op != HLO_PARAMETER || y->op != HLO_PARAMETER) return HLO_OP_COUNT;
    int64_t p = x->param_number, q = y->param_number;
    bool right = (p == k && q == n + k) || (p == n + k && q == k);
    return right ? r->op : HLO_OP_COUNT;
}

// ---- reduce

struct reduced {
    hv x, init, y, d; // operand, initial value, result, derivative by it
    struct i64s dims;
};
static hv wide(struct tape *t, const struct reduced *r, hv v) {
    return tape_back_to(t, v, r->x->shape, r->dims.v, r->dims.n);
}
// To the elements that are the result, in equal parts; the initial value is one of them.
static void by_reduced_extreme(struct tape *t, const struct reduced *r) {
    struct hb *b = t->b;
    enum dtype dt = r->d->shape->dtype;
    hv is = hb_compare(b, r->x, wide(t, r, r->y), CMP_EQ);
    hv n = tape_sum_over(t, hb_convert(b, is, dt), r->dims.v, r->dims.n), init = NULL;
    if (tape_wants(t, r->init)) {
        init = hb_compare(b, tape_widen(t, r->init, r->y->shape), r->y, CMP_EQ);
        n = hb_add(b, n, hb_convert(b, init, dt));
    }
    hv each = hb_div(b, r->d, n);
    tape_give(t, r->x, tape_where(t, is, wide(t, r, each)));
    if (init) tape_give(t, r->init, tape_sum_all(t, tape_where(t, init, each)));
}
static hv product_of(struct tape *t, const struct reduced *r, hv x) {
    hv one = hb_const_f64(t->b, x->shape->dtype, 1);
    return hb_reduce(t->b, x, one, r->dims.v, r->dims.n, HLO_MULTIPLY);
}
// To each the product of the others: with no zero among them that of all over it; with one, the
// product of the rest goes to that one; with more, nothing.
static void by_product(struct tape *t, const struct reduced *r) {
    struct hb *b = t->b;
    hv is_0 = hb_compare(b, r->x, tape_splat(t, r->x, 0), CMP_EQ), d = r->d;
    hv others = hb_select(b, is_0, tape_splat(t, r->x, 1), r->x);
    if (tape_wants(t, r->init))
        tape_give(t, r->init, tape_sum_all(t, hb_mul(b, d, product_of(t, r, r->x))));
    d = hb_mul(b, d, hb_mul(b, product_of(t, r, others), tape_widen(t, r->init, d->shape)));
    hv itself = hb_convert(b, is_0, DT_S32); // it counts where all zeros are it
    hv zeros = tape_sum_over(t, itself, r->dims.v, r->dims.n);
    hv counts = hb_compare(b, wide(t, r, zeros), itself, CMP_EQ);
    tape_give(t, r->x, tape_where(t, counts, hb_div(b, wide(t, r, d), others)));
}
// What arg-max and arg-min are: the first operand's extreme, and where it is. The second operand is
// an iota along the one dimension reduced, so that its result names an element.
static bool by_selected(struct tape *t, hv i, hv const *d) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    hv places = i->n_operands == 4 ? i->operands[1] : NULL;
    if (!places || dims.n != 1 || tape_differentiable(places->shape)) return false;
    hv source = places;
    int64_t dim = dims.v[0];
    if (source->op == HLO_BROADCAST) {
        struct i64s map = HLO_ATTR(source, dims)->dimensions;
        source = source->operands[0];
        for (int k = 0; k < map.n; k++)
            if (map.v[k] == dim && source->op == HLO_IOTA &&
                HLO_ATTR(source, iota)->iota_dimension == k)
                dim = -1;
    } else if (source->op == HLO_IOTA && HLO_ATTR(source, iota)->iota_dimension == dim) {
        dim = -1;
    }
    if (dim != -1) return false;
    struct reduced r = {i->operands[0], NULL, NULL, d[0], dims};
    hv chosen = wide(t, &r, hb_gte(t->b, i, 1));
    hv is = hb_compare(t->b, places, chosen, CMP_EQ);
    tape_give(t, r.x, tape_where(t, is, wide(t, &r, r.d)));
    return true;
}
static bool is_extreme(enum hlo_op op) {
    return op == HLO_MAXIMUM || op == HLO_MINIMUM;
}
void grad_reduce(struct tape *t, hv i, hv const *d) {
    int n = i->n_operands / 2;
    enum hlo_op *op = arena_zarray(t->a, enum hlo_op, n + 1);
    bool known = true;
    for (int k = 0; k < n; k++) {
        op[k] = tape_joined_by(i->called[0], k, n);
        bool real = !dtype_is_complex(i->operands[k]->shape->dtype);
        known &= !d[k] || op[k] == HLO_ADD || op[k] == HLO_MULTIPLY || (is_extreme(op[k]) && real);
    }
    if (!known && op[0] == HLO_OP_COUNT && d[0] && by_selected(t, i, d)) return;
    if (!known) return tape_reduce_again(t, i, d);

    for (int k = 0; k < n && hb_ok(t->b); k++) {
        hv init = i->operands[n + k];
        struct reduced r = {i->operands[k], init, i, d[k], HLO_ATTR(i, dims)->dimensions};
        if (!d[k]) continue;
        if (n > 1 && is_extreme(op[k])) r.y = hb_gte(t->b, i, k);
        if (op[k] == HLO_ADD) {
            tape_give(t, r.x, wide(t, &r, r.d));
            if (tape_wants(t, init)) tape_give(t, init, tape_sum_all(t, r.d));
        } else if (op[k] == HLO_MULTIPLY) {
            by_product(t, &r);
        } else {
            by_reduced_extreme(t, &r);
        }
    }
}

// ---- reduce-window

static int64_t dilated(int64_t n, int64_t by) {
    return n ? (n - 1) * by + 1 : 0;
}
// A windowed sum of d, dilated by the stride.
static void by_window_sum(struct tape *t, hv i, hv d) {
    struct window w = HLO_ATTR(i, window)->window;
    hv x = i->operands[0], zero = hb_const_f64(t->b, d->shape->dtype, 0);
    struct window_dim v[HLO_MAX_RANK];
    struct pad_dim p[HLO_MAX_RANK];
    for (int s = 0; s < w.n; s++) {
        struct window_dim o = w.v[s];
        int64_t in = dilated(x->shape->dims[s], o.base_dilation),
                k = dilated(o.size, o.window_dilation), out = dilated(d->shape->dims[s], o.stride),
                low = k - o.pad_low - 1;
        p[s] = (struct pad_dim){low, in + k - 1 - out - low, o.stride - 1};
        v[s] = (struct window_dim){o.size, o.base_dilation, 0, 0, 1, o.window_dilation, false};
    }
    hv wide = hb_pad(t->b, d, zero, p);
    tape_give(t, x, hb_reduce_window(t->b, wide, zero, &(struct window){v, w.n}, HLO_ADD));
}
// The comparison of select-and-scatter that keeps the first of equals.
static struct hlo_computation *selecter(struct tape *t, enum cmp_direction dir, enum dtype dt) {
    struct hlo_module *m = t->b->c->module;
    struct hlo_computation *c =
        hb_callee(m, arena_printf(t->a, "%s_%s", dir == CMP_GE ? "ge" : "le", dtype_name(dt)));
    const struct shape *s = shape_scalar(m->arena, dt);
    struct hb b = hb_begin(c);
    hv x = hlo_add_param(c, 0, s, "x"), y = hlo_add_param(c, 1, s, "y");
    hlo_set_root(c, hb_compare(&b, x, y, dir));
    status_t st = hb_end(&b);
    if (st) hb_fail(t->b, st);
    return c;
}
static void by_window_extreme(struct tape *t, hv i, enum hlo_op op, hv d) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    hv x = i->operands[0], in[3] = {x, d, hb_const_f64(t->b, d->shape->dtype, 0)};
    enum dtype dt = x->shape->dtype;
    enum cmp_direction keep = op == HLO_MAXIMUM ? CMP_GE : CMP_LE;
    for (int s = 0; s < w->n; s++) // select-and-scatter has none
        if (w->v[s].base_dilation != 1 || w->v[s].window_dilation != 1)
            return tape_window_again(t, i, &d, &keep);
    struct hlo_computation *called[2] = {selecter(t, keep, dt), hb_reducer_for(t->b, HLO_ADD, dt)};
    hv init = i->operands[1];
    if (tape_wants(t, init)) {
        hv is = hb_compare(t->b, tape_widen(t, init, i->shape), i, CMP_EQ);
        tape_give(t, init, tape_sum_all(t, tape_where(t, is, d)));
        in[1] = tape_where_not(t, is, d);
    }
    tape_give(t, x,
              hb_call(t->b, HLO_SELECT_AND_SCATTER, x->shape, in, 3,
                      &(struct hlo_attr_window){.window = *w}, called, 2));
}
void grad_reduce_window(struct tape *t, hv i, hv const *d) {
    enum hlo_op op = i->n_operands == 2 ? tape_joined_by(i->called[0], 0, 1) : HLO_OP_COUNT;
    if (op == HLO_ADD) {
        by_window_sum(t, i, d[0]);
        if (tape_wants(t, i->operands[1])) tape_give(t, i->operands[1], tape_sum_all(t, d[0]));
    } else if (is_extreme(op)) {
        by_window_extreme(t, i, op, d[0]);
    } else {
        tape_window_again(t, i, d, NULL);
    }
}

// ---- batch normalisation

static hv along(struct tape *t, hv v, hv x, int64_t feature) {
    return hb_broadcast(t->b, v, x->shape->dims, x->shape->rank, &feature);
}
static hv per_feature(struct tape *t, hv x, int64_t feature) {
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int64_t k = 0; k < x->shape->rank; k++)
        if (k != feature) dims[n++] = k;
    return tape_sum_over(t, x, dims, n);
}
// (x - mean) / sqrt(variance + epsilon) * scale + offset
void grad_batch_norm_inference(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index;
    hv x = i->operands[0], scale = i->operands[1], var = i->operands[4];
    hv inv = hb_unary(b, HLO_RSQRT, tape_add_k(t, var, HLO_ATTR(i, batchnorm)->epsilon));
    hv factor = hb_mul(b, scale, inv), centred = hb_sub(b, x, along(t, i->operands[3], x, f));
    hv sum = per_feature(t, d[0], f), moment = per_feature(t, hb_mul(b, d[0], centred), f);
    tape_give(t, x, hb_mul(b, d[0], along(t, factor, x, f)));
    tape_give(t, scale, hb_mul(b, moment, inv));
    tape_give(t, i->operands[2], sum);
    tape_give(t, i->operands[3], tape_neg(t, hb_mul(b, sum, factor)));
    tape_give(t, var,
              hb_mul(b, tape_mul_k(t, moment, -0.5), hb_mul(b, factor, hb_mul(b, inv, inv))));
}
// The operation that HLO has for it, and what goes through the mean and the variance, if they are
// used for more.
void grad_batch_norm_training(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index;
    hv x = i->operands[0], mean = hb_gte(b, i, 1), var = hb_gte(b, i, 2);
    if (d[0]) {
        hv in[5] = {x, i->operands[1], mean, var, d[0]};
        hv r = hb_op(b, HLO_BATCH_NORM_GRAD, NULL, in, 5, i->attr);
        for (int k = 0; k < 3 && hb_ok(b); k++)
            tape_give(t, i->operands[k], hb_gte(b, r, k));
    }
    if (!hb_ok(b) || (!d[1] && !d[2])) return;
    double n = 1;
    for (int k = 0; k < x->shape->rank; k++)
        n *= k == f ? 1 : (double)x->shape->dims[k];
    if (d[1]) tape_give(t, x, along(t, tape_mul_k(t, d[1], 1 / n), x, f));
    if (d[2]) {
        hv centred = hb_sub(b, x, along(t, mean, x, f));
        tape_give(t, x, hb_mul(b, centred, along(t, tape_mul_k(t, d[2], 2 / n), x, f)));
    }
}
