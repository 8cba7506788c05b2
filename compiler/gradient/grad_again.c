// SPDX-License-Identifier: Apache-2.0
// Rules of operations that are computed again from others that have rules, and whose derivative is
// that of these: map, reductions and windows by any function, and the derivatives of windows and of
// batch normalisation.
#include "compiler/gradient/tape.h"

// ---- the operation again

// Operands of i that stand for themselves: i is computed again from them.
static hv *operands_of(struct tape *t, hv i) {
    hv *xs = arena_zarray(t->a, hv, i->n_operands + 1);
    for (int k = 0; k < i->n_operands; k++)
        xs[k] = tape_wants(t, i->operands[k]) ? hb_unary(t->b, HLO_COPY, i->operands[k])
                                              : i->operands[k];
    return xs;
}
// The derivatives of y, which is i computed from xs, to i's operands.
static void derive_again(struct tape *t, hv i, hv const *d, hv y, hv const *xs) {
    hv **grads = arena_zarray(t->a, hv *, i->n_operands + 1),
       *of = arena_zarray(t->a, hv, i->n_operands + 1);
    int n = 0, *place = arena_zarray(t->a, int, i->n_operands + 1);
    for (int k = 0; k < i->n_operands; k++)
        if (xs[k] != i->operands[k]) place[n] = k, of[n++] = xs[k];
    if (!hb_ok(t->b)) return;
    gradient_of(t->b, y, d, of, n, grads);
    for (int k = 0; k < n && hb_ok(t->b); k++)
        tape_give(t, i->operands[place[k]], grads[k][0]);
}
// f of scalars, for each element of arrays of like's dimensions; NULL where it is refused.
static hv each(struct tape *t, hv i, const struct hlo_computation *f, hv const *args,
               const struct shape *like) {
    struct hb *b = t->b;
    struct pmap made = {0};
    hv in[HLO_MAX_RANK * 2], r = NULL;

    for (hv j = f->first; j && hb_ok(b); j = j->next) {
        bool fits = j->n_operands <= HLO_MAX_RANK * 2;
        for (int k = 0; k < j->n_operands && fits; k++)
            in[k] = pmap_get_ptr(&made, j->operands[k]);
        if (j->op == HLO_PARAMETER) {
            r = args[j->param_number];
        } else if (j->op == HLO_CONSTANT && !j->shape->rank) {
            r = tape_widen(t, hb_constant(b, j->literal), like);
        } else if (fits && j->op == HLO_TUPLE) {
            r = hb_tuple(b, in, j->n_operands);
        } else if (j->op == HLO_GET_TUPLE_ELEMENT) {
            r = hb_gte(b, in[0], HLO_ATTR(j, gte)->index);
        } else if (j->op == HLO_CALL && fits) {
            r = each(t, i, j->called[0], in, like);
        } else if (fits && hlo_is_elementwise(j) && !j->n_called) {
            const struct shape *s = shape_make(t->a, j->shape->dtype, like->dims, like->rank);
            r = hb_op(b, j->op, s, in, j->n_operands, j->attr);
        } else {
            tape_refuse(t, i, "is supported for functions of elementwise operations");
        }
        if (hb_ok(b)) pmap_put_ptr(&made, j, r);
    }
    r = hb_ok(b) ? pmap_get_ptr(&made, f->root) : NULL;
    pmap_done(&made);
    return r;
}
void grad_map(struct tape *t, hv i, hv const *d) {
    hv *xs = operands_of(t, i), y = each(t, i, i->called[0], xs, i->shape);
    if (y) derive_again(t, i, d, y, xs);
}

// ---- reductions and windows by any function

// The result of i's function for n pairs of arrays, as arrays: from x and y to x.
static void join(struct tape *t, hv i, int n, hv *x, hv const *y) {
    hv *args = arena_zarray(t->a, hv, 2 * n);
    for (int k = 0; k < n; k++)
        args[k] = x[k], args[n + k] = y[k];
    hv r = each(t, i, i->called[0], args, x[0]->shape);
    for (int k = 0; k < n && r; k++)
        x[k] = shape_is_tuple(r->shape) ? hb_gte(t->b, r, k) : r;
}
enum { MOST_TAPS = 1024 };
// The elements that windows have at one of their places, one a window.
struct taps {
    struct window w;
    int64_t at[HLO_MAX_RANK]; // the place
    const struct shape *out;  // a window an element
    bool partial;             // some windows have places where nothing is
};
static bool taps_begin(struct tape *t, hv i, struct window w, const struct shape *out,
                       struct taps *p) {
    int64_t n = 1;
    *p = (struct taps){.w = w, .out = out};
    for (int k = 0; k < w.n && n <= MOST_TAPS; k++) {
        const struct window_dim *o = &w.v[k];
        n = o->size > MOST_TAPS ? MOST_TAPS + 1 : n * o->size;
        p->partial |= o->pad_low > 0 || o->pad_high > 0 || o->base_dilation > 1;
    }
    if (n > MOST_TAPS)
        tape_refuse(t, i, "by its function is supported for 1,024 elements a result at most");
    return hb_ok(t->b);
}
static bool taps_next(struct taps *p) {
    for (int k = p->w.n - 1; k >= 0; p->at[k--] = 0)
        if (++p->at[k] < p->w.v[k].size) return true;
    return false;
}
static hv taps_padded(struct tape *t, const struct taps *p, hv x, hv value) {
    struct pad_dim pad[HLO_MAX_RANK];
    for (int k = 0; k < p->w.n; k++)
        pad[k] =
            (struct pad_dim){p->w.v[k].pad_low, p->w.v[k].pad_high, p->w.v[k].base_dilation - 1};
    return hb_pad(t->b, x, value, pad);
}
static hv taps_of(struct tape *t, const struct taps *p, hv padded) {
    struct range r[HLO_MAX_RANK];
    for (int k = 0; k < p->w.n; k++) {
        const struct window_dim *o = &p->w.v[k];
        int64_t at = p->at[k] * o->window_dilation, n = p->out->dims[k];
        r[k] = (struct range){at, n ? at + (n - 1) * o->stride + 1 : at, o->stride};
    }
    return hb_slice(t->b, padded, r);
}
// Where there is an element of x and not padding.
static hv taps_mask(struct tape *t, const struct taps *p, const struct shape *x) {
    struct hb *b = t->b;
    struct literal *l[2];
    for (int k = 0; k < 2; k++) {
        l[k] = lit_new(t->a, shape_scalar(t->a, DT_PRED));
        lit_set_i64(l[k], 0, k);
    }
    hv is = hb_broadcast(b, hb_constant(b, l[1]), x->dims, x->rank, NULL);
    return taps_padded(t, p, is, hb_constant(b, l[0]));
}
// The windows' places one after the other, from the initial values on. `keep`: instead of i's
// function, what there is so far where it compares so with the next.
static void fold(struct tape *t, hv i, hv const *d, struct taps *p,
                 const enum cmp_direction *keep) {
    struct hb *b = t->b;
    int n = i->n_operands / 2;
    const struct shape *s = shape_leaf(i->shape, 0);
    hv *xs = operands_of(t, i), *wide = arena_zarray(t->a, hv, 4 * n), *acc = wide + n,
       *next = wide + 2 * n, *old = wide + 3 * n, mask = NULL;

    for (int k = 0; k < n; k++) {
        wide[k] = taps_padded(t, p, xs[k], i->operands[n + k]);
        acc[k] = tape_widen(t, xs[n + k], p->out);
    }
    if (p->partial && !keep) mask = taps_mask(t, p, i->operands[0]->shape);
    bool more = shape_elements(i->operands[0]->shape) > 0;
    for (; more && hb_ok(b); more = taps_next(p)) {
        for (int k = 0; k < n; k++)
            next[k] = taps_of(t, p, wide[k]), old[k] = acc[k];
        if (keep)
            acc[0] = hb_select(b, hb_compare(b, acc[0], next[0], *keep), acc[0], next[0]);
        else
            join(t, i, n, acc, next);
        hv is = mask ? taps_of(t, p, mask) : NULL;
        for (int k = 0; k < n && is; k++)
            acc[k] = hb_select(b, is, acc[k], old[k]);
    }
    for (int k = 0; k < n; k++)
        acc[k] = hb_reshape(b, acc[k], s->dims, s->rank);
    derive_again(t, i, d, n > 1 ? hb_tuple(b, acc, n) : acc[0], xs);
}
void tape_reduce_again(struct tape *t, hv i, hv const *d) {
    const struct shape *s = i->operands[0]->shape;
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    struct window_dim w[HLO_MAX_RANK];
    int64_t out[HLO_MAX_RANK];
    struct taps p;
    for (int k = 0; k < s->rank; k++) {
        bool in = i64s_has(dims, k);
        w[k] = (struct window_dim){in ? s->dims[k] : 1, 1, 0, 0, 1, 1, false};
        out[k] = in ? 1 : s->dims[k];
    }
    const struct shape *left = shape_make(t->a, s->dtype, out, s->rank);
    if (taps_begin(t, i, (struct window){w, s->rank}, left, &p)) fold(t, i, d, &p, NULL);
}
void tape_window_again(struct tape *t, hv i, hv const *d, const enum cmp_direction *keep) {
    struct taps p;
    if (taps_begin(t, i, HLO_ATTR(i, window)->window, shape_leaf(i->shape, 0), &p))
        fold(t, i, d, &p, keep);
}

// ---- derivatives

// To each source the derivative at the element that its window selects.
void grad_select_and_scatter(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    hv x = i->operands[0], source = i->operands[1], init = i->operands[2];
    enum hlo_op op;
    struct taps p;
    if (!hlo_reducer_op(i->called[1], &op) || op != HLO_ADD)
        return tape_refuse(t, i, "is supported for sums");
    if (tape_wants(t, init)) tape_give(t, init, tape_sum_all(t, d[0]));
    if (!tape_wants(t, source) || !taps_begin(t, i, HLO_ATTR(i, window)->window, source->shape, &p))
        return;

    hv zero = hb_const_f64(b, d[0]->shape->dtype, 0), best = NULL, by = NULL, any = NULL;
    hv wide = taps_padded(t, &p, x, hb_const_f64(b, x->shape->dtype, 0)),
       wide_d = taps_padded(t, &p, d[0], zero), mask = taps_mask(t, &p, x->shape);
    do {
        hv v = taps_of(t, &p, wide), v_d = taps_of(t, &p, wide_d), is = taps_of(t, &p, mask);
        if (best) {
            hv keeps = hb_ok(b) ? each(t, i, i->called[0], (hv[]){best, v}, p.out) : NULL;
            if (!keeps) return;
            hv takes = hb_unary(b, HLO_NOT, hb_binary(b, HLO_AND, any, keeps));
            takes = hb_binary(b, HLO_AND, is, takes);
            v = hb_select(b, takes, v, best), v_d = hb_select(b, takes, v_d, by);
            is = hb_binary(b, HLO_OR, any, is);
        }
        best = v, by = v_d, any = is;
    } while (taps_next(&p));
    tape_give(t, source, tape_where(t, any, by));
}
// What ops.def says batch-norm-grad gives, from operations that have rules.
void grad_batch_norm_grad(struct tape *t, hv i, hv const *d) {
    struct hb *b = t->b;
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index, dims[HLO_MAX_RANK];
    hv *xs = operands_of(t, i), x = xs[0], dy = xs[4];
    const struct shape *s = x->shape;
    int n = 0;
    double count = 1;

    for (int64_t k = 0; k < s->rank; k++)
        if (k != f) dims[n++] = k, count *= (double)s->dims[k];
    hv inv = hb_unary(b, HLO_RSQRT, tape_add_k(t, xs[3], HLO_ATTR(i, batchnorm)->epsilon));
    hv centred = hb_sub(b, x, hb_broadcast(b, xs[2], s->dims, s->rank, &f));
    hv sum = tape_sum_over(t, dy, dims, n),
       moment = tape_sum_over(t, hb_mul(b, dy, centred), dims, n),
       scaled = hb_mul(b, moment, hb_mul(b, inv, inv));
    hv of[3] = {tape_mul_k(t, sum, 1 / count), tape_mul_k(t, scaled, 1 / count),
                hb_mul(b, xs[1], inv)};
    for (int k = 0; k < 3; k++)
        of[k] = hb_broadcast(b, of[k], s->dims, s->rank, &f);
    hv dx = hb_mul(b, of[2], hb_sub(b, hb_sub(b, dy, of[0]), hb_mul(b, centred, of[1])));
    hv all[3] = {dx, hb_mul(b, moment, inv), sum};
    if (hb_ok(b)) derive_again(t, i, d, hb_tuple(b, all, 3), xs);
}
