// SPDX-License-Identifier: Apache-2.0
// Shape rules of contractions, reductions, windows, sorting, linear algebra and control flow.
#include "compiler/ops/infer.h"
#include "compiler/ops/rules.h"

static const struct shape *tuple_or_one(struct arena *a, const struct shape *const *e, int n) {
    return n == 1 ? e[0] : shape_tuple(a, e, n);
}

status_t hlo_infer_dot(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    const struct hlo_attr_dot *d = HLO_ATTR(i, dot);
    const struct shape *x = rule_shape(i, 0), *y = rule_shape(i, 1);
    int64_t dims[2 * HLO_MAX_RANK];
    int n = 0;

    RETURN_IF_ERR(rule_dims(d->lhs_batch_dims, x->rank, "lhs_batch_dims"));
    RETURN_IF_ERR(rule_dims(d->rhs_batch_dims, y->rank, "rhs_batch_dims"));
    RETURN_IF_ERR(rule_dims(d->lhs_contracting_dims, x->rank, "lhs_contracting_dims"));
    RETURN_IF_ERR(rule_dims(d->rhs_contracting_dims, y->rank, "rhs_contracting_dims"));

    if (d->lhs_batch_dims.n != d->rhs_batch_dims.n ||
        d->lhs_contracting_dims.n != d->rhs_contracting_dims.n)
        return st_invalid("the operands differ in the number of batch or contracting dimensions");

    for (int k = 0; k < d->lhs_batch_dims.n; k++) {
        if (x->dims[d->lhs_batch_dims.v[k]] != y->dims[d->rhs_batch_dims.v[k]])
            return st_invalid("batch dimension %d of %s and %s", k, shape_text(a, x),
                              shape_text(a, y));
        if (i64s_has(d->lhs_contracting_dims, d->lhs_batch_dims.v[k]) ||
            i64s_has(d->rhs_contracting_dims, d->rhs_batch_dims.v[k]))
            return st_invalid("a dimension is both batch and contracting");
        dims[n++] = x->dims[d->lhs_batch_dims.v[k]];
    }

    for (int k = 0; k < d->lhs_contracting_dims.n; k++)
        if (x->dims[d->lhs_contracting_dims.v[k]] != y->dims[d->rhs_contracting_dims.v[k]])
            return st_invalid("contracting dimension %d of %s and %s", k, shape_text(a, x),
                              shape_text(a, y));

    for (int k = 0; k < x->rank; k++)
        if (!i64s_has(d->lhs_batch_dims, k) && !i64s_has(d->lhs_contracting_dims, k))
            dims[n++] = x->dims[k];
    for (int k = 0; k < y->rank; k++)
        if (!i64s_has(d->rhs_batch_dims, k) && !i64s_has(d->rhs_contracting_dims, k))
            dims[n++] = y->dims[k];
    if (n > HLO_MAX_RANK) return st_invalid("the result has rank %d", n);

    enum dtype t = i->shape ? i->shape->dtype : x->dtype; // a wider result type may be asked for
    if (!i->shape && x->dtype != y->dtype)
        return st_invalid("operands are %s and %s", shape_text(a, x), shape_text(a, y));
    *out = shape_make(a, t, dims, n);
    return ST_OK;
}

status_t hlo_infer_convolution(struct arena *a, const struct hlo_instr *i,
                               const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    const struct hlo_attr_conv *c = HLO_ATTR(i, conv);
    const struct labels *l = &c->dim_labels;
    const struct shape *x = rule_shape(i, 0), *k = rule_shape(i, 1);
    int n = l->n_spatial;
    int64_t dims[HLO_MAX_RANK], g = c->feature_group_count, bg = c->batch_group_count;

    if (x->rank != n + 2 || k->rank != n + 2 || (c->window.n != n && !(c->window.n == 0)))
        return st_invalid("%s with kernel %s: labels say %d spatial dimensions, the window %d",
                          shape_text(a, x), shape_text(a, k), n, c->window.n);

    if (g < 1 || bg < 1 || (g > 1 && bg > 1))
        return st_invalid("group counts %lld and %lld", (long long)g, (long long)bg);

    int64_t batch = x->dims[l->in_batch], in = x->dims[l->in_feature], ki = k->dims[l->k_in],
            ko = k->dims[l->k_out];
    if (in % g || in / g != ki)
        return st_invalid("input features %lld in %lld groups, the kernel takes %lld",
                          (long long)in, (long long)g, (long long)ki);
    if (ko % g || ko % bg || batch % bg)
        return st_invalid("%lld output features, batch %lld do not divide into the groups",
                          (long long)ko, (long long)batch);

    for (int d = 0; d < n; d++) {
        struct window_dim w =
            c->window.n ? c->window.v[d] : (struct window_dim){1, 1, 0, 0, 1, 1, false};
        if (w.size != k->dims[l->k_spatial[d]])
            return st_invalid("window size %lld, kernel %s", (long long)w.size, shape_text(a, k));
        int64_t size = rule_window_size(x->dims[l->in_spatial[d]], &w);
        if (size < 0) return st_invalid("window of spatial dimension %d is not valid", d);
        dims[l->out_spatial[d]] = size;
    }

    dims[l->out_batch] = batch / bg;
    dims[l->out_feature] = ko;
    *out = shape_make(a, i->shape ? i->shape->dtype : x->dtype, dims, n + 2);
    return ST_OK;
}

// ---- reductions

// Results of n inputs folded with n initial values, all of the dims that are left.
static status_t folded(struct arena *a, const struct hlo_instr *i, const int64_t *dims, int rank,
                       const struct shape **out) {
    int n = i->n_operands / 2;
    const struct shape **e = arena_array(a, const struct shape *, n),
                       **result = arena_array(a, const struct shape *, n);
    RETURN_IF_ERR(rule_scalar_callee(i, 0, 2 * n, n, result));
    for (int k = 0; k < n; k++) {
        RETURN_IF_ERR(rule_same_dims(a, i, k, 0));
        if (rule_shape(i, n + k)->rank)
            return st_invalid("initial value %d is %s, expected a scalar", k,
                              shape_text(a, rule_shape(i, n + k)));
        e[k] = shape_make(a, result[k]->dtype, dims, rank);
    }
    *out = tuple_or_one(a, e, n);
    return ST_OK;
}
static status_t inputs_and_initial_values(const struct hlo_instr *i) {
    if (i->n_operands < 2 || i->n_operands % 2)
        return st_invalid("%d operands, expected inputs and as many initial values", i->n_operands);
    return rule_arrays(i);
}
status_t hlo_infer_reduce(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    struct i64s r = HLO_ATTR(i, dims)->dimensions;
    int64_t dims[HLO_MAX_RANK];
    int rank = 0;
    RETURN_IF_ERR(inputs_and_initial_values(i));
    const struct shape *s = rule_shape(i, 0);
    RETURN_IF_ERR(rule_dims(r, s->rank, "dimensions"));
    for (int d = 0; d < s->rank; d++)
        if (!i64s_has(r, d)) dims[rank++] = s->dims[d];
    return folded(a, i, dims, rank, out);
}
status_t hlo_infer_reduce_window(struct arena *a, const struct hlo_instr *i,
                                 const struct shape **out) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    int64_t dims[HLO_MAX_RANK];
    RETURN_IF_ERR(inputs_and_initial_values(i));
    const struct shape *s = rule_shape(i, 0);
    if (w->n != s->rank) return st_invalid("window of %d dimensions on %s", w->n, shape_text(a, s));
    for (int d = 0; d < s->rank; d++)
        if ((dims[d] = rule_window_size(s->dims[d], &w->v[d])) < 0)
            return st_invalid("window dimension %d is not valid", d);
    return folded(a, i, dims, s->rank, out);
}
status_t hlo_infer_select_and_scatter(struct arena *a, const struct hlo_instr *i,
                                      const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = rule_shape(i, 0), *src = rule_shape(i, 1), *r;
    if (w->n != s->rank || src->rank != s->rank || rule_shape(i, 2)->rank)
        return st_invalid("operand %s, source %s, window of %d dimensions", shape_text(a, s),
                          shape_text(a, src), w->n);
    for (int d = 0; d < s->rank; d++)
        if (rule_window_size(s->dims[d], &w->v[d]) != src->dims[d])
            return st_invalid("source %s does not match the window in dimension %d",
                              shape_text(a, src), d);
    RETURN_IF_ERR(rule_scalar_callee(i, 0, 2, 1, &r));
    if (r->dtype != DT_PRED)
        return st_invalid("select gives %s, expected pred[]", shape_text(a, r));
    RETURN_IF_ERR(rule_scalar_callee(i, 1, 2, 1, &r));
    *out = shape_with_layout(a, s, NULL);
    return ST_OK;
}

// ---- sorting and linear algebra

status_t hlo_infer_sort(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    struct i64s d = HLO_ATTR(i, sort)->dimensions;
    const struct shape *r,
        **e = arena_array(a, const struct shape *, i->n_operands ? i->n_operands : 1);
    if (i->n_operands < 1) return st_invalid("no operands");
    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(rule_dims(d, rule_shape(i, 0)->rank, "dimensions"));
    if (d.n != 1) return st_invalid("dimensions must name one dimension");
    RETURN_IF_ERR(rule_scalar_callee(i, 0, 2 * i->n_operands, 1, &r));
    if (r->dtype != DT_PRED || r->rank)
        return st_invalid("the comparator gives %s, expected pred[]", shape_text(a, r));
    for (int k = 0; k < i->n_operands; k++) {
        RETURN_IF_ERR(rule_same_dims(a, i, k, 0));
        e[k] = shape_with_layout(a, rule_shape(i, k), NULL);
    }
    *out = tuple_or_one(a, e, i->n_operands);
    return ST_OK;
}
status_t hlo_infer_topk(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    const struct shape *s = rule_shape(i, 0), *e[2];
    int64_t dims[HLO_MAX_RANK], k = HLO_ATTR(i, topk)->k;
    if (s->rank < 1 || k < 0 || k > s->dims[s->rank - 1])
        return st_invalid("k=%lld of %s", (long long)k, shape_text(a, s));
    memcpy(dims, s->dims, sizeof *dims * (size_t)s->rank);
    dims[s->rank - 1] = k;
    e[0] = shape_make(a, s->dtype, dims, s->rank);
    e[1] = shape_make(a, DT_S32, dims, s->rank);
    *out = shape_tuple(a, e, 2);
    return ST_OK;
}
status_t hlo_infer_cholesky(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    const struct shape *s = rule_shape(i, 0);
    if (s->rank < 2 || s->dims[s->rank - 1] != s->dims[s->rank - 2])
        return st_invalid("%s is not a batch of square matrices", shape_text(a, s));
    if (!dtype_is_float(s->dtype) && !dtype_is_complex(s->dtype))
        return st_invalid("a matrix of %s", dtype_name(s->dtype));
    *out = shape_with_layout(a, s, NULL);
    return ST_OK;
}
status_t hlo_infer_triangular_solve(struct arena *a, const struct hlo_instr *i,
                                    const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    const struct shape *s = rule_shape(i, 0), *b = rule_shape(i, 1);
    int left = HLO_ATTR(i, trisolve)->left_side ? 2 : 1;
    bool fit = s->rank >= 2 && b->rank == s->rank && s->dims[s->rank - 1] == s->dims[s->rank - 2] &&
               b->dims[b->rank - left] == s->dims[s->rank - 1] && b->dtype == s->dtype &&
               (dtype_is_float(s->dtype) || dtype_is_complex(s->dtype));
    for (int d = 0; fit && d < s->rank - 2; d++)
        fit = s->dims[d] == b->dims[d];
    if (!fit) return st_invalid("matrix %s, right side %s", shape_text(a, s), shape_text(a, b));
    *out = shape_with_layout(a, b, NULL);
    return ST_OK;
}
status_t hlo_infer_fft(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    const struct shape *s = rule_shape(i, 0);
    const struct hlo_attr_fft *f = HLO_ATTR(i, fft);
    int64_t dims[HLO_MAX_RANK];
    int n = f->fft_length.n;
    enum dtype t = s->dtype;
    if (n < 1 || n > 3 || n > s->rank)
        return st_invalid("fft_length of %d dimensions on %s", n, shape_text(a, s));
    memcpy(dims, s->dims, sizeof *dims * (size_t)s->rank);
    bool real_in = f->fft_type == FFT_RFFT, real_out = f->fft_type == FFT_IRFFT;
    if (real_in != (t == DT_F32 || t == DT_F64) || (!real_in && !dtype_is_complex(t)))
        return st_invalid("operand %s", shape_text(a, s));
    for (int k = 0; k < n; k++) {
        // A complex transform of nothing, or to length zero, keeps its shape and gives zeros.
        int64_t len = f->fft_length.v[k], want = real_out && k == n - 1 ? len / 2 + 1 : len;
        bool empty = !real_in && !real_out && (len == 0 || shape_elements(s) == 0);
        if (dims[s->rank - n + k] != want && !empty)
            return st_invalid("dimension %d of %s, fft_length %lld", s->rank - n + k,
                              shape_text(a, s), (long long)len);
    }
    if (real_in) dims[s->rank - 1] = f->fft_length.v[n - 1] / 2 + 1;
    if (real_out) dims[s->rank - 1] = f->fft_length.v[n - 1];
    if (real_in) t = t == DT_F32 ? DT_C64 : DT_C128;
    if (real_out) t = t == DT_C64 ? DT_F32 : DT_F64;
    *out = shape_make(a, t, dims, s->rank);
    return ST_OK;
}

// Two scalar parameters of the distribution, of the type of the values.
status_t hlo_infer_rng(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    for (int k = 0; k < 2; k++)
        if (rule_shape(i, k)->rank || rule_shape(i, k)->dtype != i->shape->dtype)
            return st_invalid("operand %d is %s, expected a scalar %s", k,
                              shape_text(a, rule_shape(i, k)), dtype_name(i->shape->dtype));
    return ST_OK;
}

// ---- batch normalisation: operands x, scale, offset, mean, variance

static status_t bn_vectors(struct arena *a, const struct hlo_instr *i, int from, int to,
                           int64_t *out_n) {
    const struct shape *s = rule_shape(i, 0);
    int64_t f = HLO_ATTR(i, batchnorm)->feature_index;
    RETURN_IF_ERR(rule_arrays(i));
    if (f < 0 || f >= s->rank)
        return st_invalid("feature_index %lld of %s", (long long)f, shape_text(a, s));
    for (int k = from; k < to; k++)
        if (rule_shape(i, k)->rank != 1 || rule_shape(i, k)->dims[0] != s->dims[f])
            return st_invalid("operand %d is %s, expected %lld features", k,
                              shape_text(a, rule_shape(i, k)), (long long)s->dims[f]);
    *out_n = s->dims[f];
    return ST_OK;
}
status_t hlo_infer_batch_norm_inference(struct arena *a, const struct hlo_instr *i,
                                        const struct shape **out) {
    int64_t n;
    RETURN_IF_ERR(bn_vectors(a, i, 1, 5, &n));
    *out = shape_with_layout(a, rule_shape(i, 0), NULL);
    return ST_OK;
}
static status_t bn_triple(struct arena *a, const struct hlo_instr *i, int64_t n,
                          const struct shape **out) {
    const struct shape *s = rule_shape(i, 0), *v = shape_make(a, s->dtype, &n, 1);
    *out = shape_tuple(a, (const struct shape *[]){shape_with_layout(a, s, NULL), v, v}, 3);
    return ST_OK;
}
status_t hlo_infer_batch_norm_training(struct arena *a, const struct hlo_instr *i,
                                       const struct shape **out) {
    int64_t n;
    RETURN_IF_ERR(bn_vectors(a, i, 1, 3, &n));
    return bn_triple(a, i, n, out);
}
status_t hlo_infer_batch_norm_grad(struct arena *a, const struct hlo_instr *i,
                                   const struct shape **out) {
    int64_t n;
    RETURN_IF_ERR(bn_vectors(a, i, 1, 4, &n));
    RETURN_IF_ERR(rule_same_dims(a, i, 0, 4));
    return bn_triple(a, i, n, out);
}

// ---- control

static status_t check_args(struct arena *a, const struct hlo_instr *i, int called, int first,
                           int n) {
    const struct shape *r;
    RETURN_IF_ERR(rule_callee(i, called, n, &r));
    for (int k = 0; k < n; k++) {
        const struct shape *p = i->called[called]->params.v[k]->shape;
        if (!shape_compatible(p, rule_shape(i, first + k)))
            return st_invalid("parameter %d of '%s' is %s, the operand %s", k,
                              i->called[called]->name, shape_text(a, p),
                              shape_text(a, rule_shape(i, first + k)));
    }
    return ST_OK;
}
status_t hlo_infer_call(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    if (i->n_called != 1) return st_invalid("%d called computations, expected 1", i->n_called);
    RETURN_IF_ERR(check_args(a, i, 0, 0, i->n_operands));
    *out = i->called[0]->root->shape;
    return ST_OK;
}
status_t hlo_infer_while(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    if (i->n_called != 2)
        return st_invalid("%d called computations, expected condition and body", i->n_called);
    RETURN_IF_ERR(check_args(a, i, 0, 0, 1));
    RETURN_IF_ERR(check_args(a, i, 1, 0, 1));
    const struct shape *c = i->called[0]->root->shape, *b = i->called[1]->root->shape;
    if (c->dtype != DT_PRED || c->rank)
        return st_invalid("the condition gives %s, expected pred[]", shape_text(a, c));
    if (!shape_compatible(b, rule_shape(i, 0)))
        return st_invalid("the body gives %s, the state is %s", shape_text(a, b),
                          shape_text(a, rule_shape(i, 0)));
    *out = rule_shape(i, 0);
    return ST_OK;
}
status_t hlo_infer_conditional(struct arena *a, const struct hlo_instr *i,
                               const struct shape **out) {
    if (i->n_operands < 1 || i->n_called < 1 || i->n_operands != i->n_called + 1)
        return st_invalid("%d operands, %d branches", i->n_operands, i->n_called);
    const struct shape *p = rule_shape(i, 0);
    if (p->rank || (p->dtype != DT_PRED && p->dtype != DT_S32) ||
        (p->dtype == DT_PRED && i->n_called != 2))
        return st_invalid("selector %s with %d branches", shape_text(a, p), i->n_called);
    for (int k = 0; k < i->n_called; k++) {
        RETURN_IF_ERR(check_args(a, i, k, k + 1, 1));
        if (!shape_compatible(i->called[k]->root->shape, i->called[0]->root->shape))
            return st_invalid("branches 0 and %d give different shapes", k);
    }
    *out = i->called[0]->root->shape;
    return ST_OK;
}
status_t hlo_infer_map(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    const struct shape *r;
    if (i->n_operands < 1) return st_invalid("no operands");
    RETURN_IF_ERR(rule_arrays(i));
    for (int k = 1; k < i->n_operands; k++)
        RETURN_IF_ERR(rule_same_dims(a, i, k, 0));
    RETURN_IF_ERR(rule_scalar_callee(i, 0, i->n_operands, 1, &r));
    *out = shape_with_dtype(a, shape_with_layout(a, rule_shape(i, 0), NULL), r->dtype);
    return ST_OK;
}
