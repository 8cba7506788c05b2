// SPDX-License-Identifier: Apache-2.0
// Dots whose operands come in blocks. ragged-dot: a dimension of the left side is cut into groups
// of unequal sizes, each group meets its own right side (rows), gives its own result (contracted),
// or is only told apart (batch); what lies behind the last group counts as nothing. scaled-dot:
// each operand element is multiplied by the scale of its block. Shape rules and evaluation.
#include "compiler/ops/dot_blocks.h"
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/rules.h"

// ---- what a result element is summed over: both dots

struct pair {
    const struct literal *x, *y, *xs, *ys; // operands and their scales, or NULL
    int64_t at_x[HLO_MAX_RANK], at_y[HLO_MAX_RANK];
    double re, im;
    uint64_t ints; // wraps
};
// Scale of the block that holds `at`.
static double scale_at(const struct literal *scale, const struct shape *s, const int64_t *at) {
    int64_t block[HLO_MAX_RANK];
    if (!scale) return 1;
    if (scale->shape->rank == 0) return lit_get_f64(scale, 0);
    for (int d = 0; d < s->rank; d++)
        block[d] = at[d] / (s->dims[d] / scale->shape->dims[d]);
    return lit_get_f64(scale, index_linear(block, scale->shape->dims, s->rank));
}
static void add_product(struct pair *p) {
    const struct shape *sx = p->x->shape, *sy = p->y->shape;
    int64_t a = index_linear(p->at_x, sx->dims, sx->rank),
            b = index_linear(p->at_y, sy->dims, sy->rank);
    if (dtype_is_int(sx->dtype) || sx->dtype == DT_PRED) {
        p->ints += (uint64_t)lit_get_i64(p->x, a) * (uint64_t)lit_get_i64(p->y, b);
        return;
    }
    double v[2], w[2], s = scale_at(p->xs, sx, p->at_x) * scale_at(p->ys, sy, p->at_y);
    lit_get_c128(p->x, a, v);
    lit_get_c128(p->y, b, w);
    p->re += (v[0] * w[0] - v[1] * w[1]) * s;
    p->im += (v[0] * w[1] + v[1] * w[0]) * s;
}
static void store(const struct pair *p, struct literal *r, int64_t k) {
    if (dtype_is_int(p->x->shape->dtype) || p->x->shape->dtype == DT_PRED)
        lit_set_i64(r, k, (int64_t)p->ints);
    else
        lit_set_c128(r, k, p->re, p->im);
}

static status_t sized_alike(struct i64s a, const struct shape *x, struct i64s b,
                            const struct shape *y, const char *what) {
    RETURN_IF_ERR(rule_dims(a, x->rank, what));
    RETURN_IF_ERR(rule_dims(b, y->rank, what));
    if (a.n != b.n) return st_invalid("the operands differ in the number of %s", what);
    for (int k = 0; k < a.n; k++)
        if (x->dims[a.v[k]] != y->dims[b.v[k]])
            return st_invalid("%s %lld and %lld differ in size", what, (long long)a.v[k],
                              (long long)b.v[k]);
    return ST_OK;
}

// ---- ragged-dot

enum ragged dot_ragged_mode(const struct hlo_attr_ragged_dot *d) {
    if (d->lhs_ragged_dims.n == 0) return RAGGED_NONE;
    int64_t r = d->lhs_ragged_dims.v[0];
    return i64s_has(d->lhs_contracting_dims, r) ? RAGGED_CONTRACTED
           : i64s_has(d->lhs_batch_dims, r)     ? RAGGED_BATCH
                                                : RAGGED_ROWS;
}
struct hlo_attr_ragged_dot dot_ragged_none(const struct hlo_attr_dot *d) {
    return (struct hlo_attr_ragged_dot){.lhs_batch_dims = d->lhs_batch_dims,
                                        .lhs_contracting_dims = d->lhs_contracting_dims,
                                        .rhs_batch_dims = d->rhs_batch_dims,
                                        .rhs_contracting_dims = d->rhs_contracting_dims};
}
int dot_ragged_leading(const struct hlo_attr_ragged_dot *d, const struct shape *x, int64_t *out) {
    int64_t r = d->lhs_ragged_dims.v[0];
    enum ragged mode = dot_ragged_mode(d);
    int n = 0;
    for (int k = 0; k < d->lhs_batch_dims.n && d->lhs_batch_dims.v[k] != r; k++)
        out[n++] = d->lhs_batch_dims.v[k];
    if (mode == RAGGED_CONTRACTED)
        for (int k = 0; d->lhs_contracting_dims.v[k] != r; k++)
            out[n++] = d->lhs_contracting_dims.v[k];
    if (mode == RAGGED_ROWS)
        for (int e = 0; e < r && e < x->rank; e++)
            if (!i64s_has(d->lhs_batch_dims, e) && !i64s_has(d->lhs_contracting_dims, e))
                out[n++] = e;
    return n;
}

status_t hlo_infer_ragged_dot(struct arena *a, const struct hlo_instr *i,
                              const struct shape **out) {
    const struct hlo_attr_ragged_dot *d = HLO_ATTR(i, ragged_dot);
    const struct shape *x = rule_shape(i, 0), *y = rule_shape(i, 1), *g = rule_shape(i, 2);
    int64_t dims[2 * HLO_MAX_RANK + 1], lead[HLO_MAX_RANK];
    int n = 0;

    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(sized_alike(d->lhs_batch_dims, x, d->rhs_batch_dims, y, "batch dimensions"));
    RETURN_IF_ERR(sized_alike(d->lhs_contracting_dims, x, d->rhs_contracting_dims, y,
                              "contracting dimensions"));
    RETURN_IF_ERR(rule_dims(d->lhs_ragged_dims, x->rank, "lhs_ragged_dims"));
    RETURN_IF_ERR(rule_dims(d->rhs_group_dims, y->rank, "rhs_group_dims"));

    if (d->lhs_ragged_dims.n != 1 || !dtype_is_int(g->dtype) || g->rank < 1)
        return st_invalid("%d ragged dimensions, group sizes %s", d->lhs_ragged_dims.n,
                          shape_text(a, g));

    enum ragged mode = dot_ragged_mode(d);
    int64_t groups = g->dims[g->rank - 1];
    if (d->rhs_group_dims.n != (mode == RAGGED_ROWS) ||
        (mode == RAGGED_ROWS && (y->dims[d->rhs_group_dims.v[0]] != groups ||
                                 i64s_has(d->rhs_batch_dims, d->rhs_group_dims.v[0]) ||
                                 i64s_has(d->rhs_contracting_dims, d->rhs_group_dims.v[0]))))
        return st_invalid("rhs_group_dims do not fit %lld groups of %s", (long long)groups,
                          shape_text(a, y));

    int nl = dot_ragged_leading(d, x, lead);
    if (g->rank > 1) {
        bool fit = g->rank == nl + 1;
        for (int k = 0; fit && k < nl; k++)
            fit = g->dims[k] == x->dims[lead[k]];
        if (!fit)
            return st_invalid("group sizes %s do not fit %s", shape_text(a, g), shape_text(a, x));
    }

    if (mode == RAGGED_CONTRACTED) dims[n++] = groups;
    for (int k = 0; k < d->lhs_batch_dims.n; k++)
        dims[n++] = x->dims[d->lhs_batch_dims.v[k]];
    for (int k = 0; k < x->rank; k++)
        if (!i64s_has(d->lhs_batch_dims, k) && !i64s_has(d->lhs_contracting_dims, k))
            dims[n++] = x->dims[k];
    for (int k = 0; k < y->rank; k++)
        if (!i64s_has(d->rhs_batch_dims, k) && !i64s_has(d->rhs_contracting_dims, k) &&
            !i64s_has(d->rhs_group_dims, k))
            dims[n++] = y->dims[k];

    if (n > HLO_MAX_RANK) return st_invalid("the result has rank %d", n);
    *out = shape_make(a, i->shape ? i->shape->dtype : x->dtype, dims, n);
    return ST_OK;
}

// The group that position `at` of lhs lies in, -1 behind the last.
static int64_t group_of(const struct hlo_attr_ragged_dot *d, const struct literal *sizes,
                        const struct shape *x, const int64_t *at) {
    int64_t lead[HLO_MAX_RANK], row = 0, end = 0, n = sizes->shape->dims[sizes->shape->rank - 1];
    if (sizes->shape->rank > 1)
        for (int k = 0, nl = dot_ragged_leading(d, x, lead); k < nl; k++)
            row = row * x->dims[lead[k]] + at[lead[k]];
    for (int64_t g = 0; g < n; g++) {
        end += lit_get_i64(sizes, row * n + g);
        if (at[d->lhs_ragged_dims.v[0]] < end) return g;
    }
    return -1;
}

// Both dots: the sum of every result element.
static status_t contract(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *const *in,
                         const struct hlo_attr_ragged_dot *d, struct literal **out) {
    const struct shape *x = in[0]->shape, *y = in[1]->shape;
    enum ragged mode = dot_ragged_mode(d);
    bool any = true, scaled = mode == RAGGED_NONE;
    struct literal *r;
    int64_t k = 0, depth[HLO_MAX_RANK + 1];
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));

    for (int c = 0; c < d->lhs_contracting_dims.n; c++)
        any &= (depth[c] = x->dims[d->lhs_contracting_dims.v[c]]) > 0;

    EACH_INDEX(o, r->shape) {
        struct pair p = {
            .x = in[0], .y = in[1], .xs = scaled ? in[2] : NULL, .ys = scaled ? in[3] : NULL};
        int64_t c[HLO_MAX_RANK + 1] = {0};
        int at = mode == RAGGED_CONTRACTED;
        if ((k & 1023) == 0 && ev->cancel && *ev->cancel)
            return st_new(ST_CANCELLED, "evaluation was cancelled");

        for (int e = 0; e < d->lhs_batch_dims.n; e++, at++)
            p.at_x[d->lhs_batch_dims.v[e]] = p.at_y[d->rhs_batch_dims.v[e]] = o[at];
        for (int e = 0; e < x->rank; e++)
            if (!i64s_has(d->lhs_batch_dims, e) && !i64s_has(d->lhs_contracting_dims, e))
                p.at_x[e] = o[at++];
        for (int e = 0; e < y->rank; e++)
            if (!i64s_has(d->rhs_batch_dims, e) && !i64s_has(d->rhs_contracting_dims, e) &&
                !i64s_has(d->rhs_group_dims, e))
                p.at_y[e] = o[at++];

        int64_t g = mode == RAGGED_ROWS ? group_of(d, in[2], x, p.at_x) : 0;
        if (mode == RAGGED_ROWS && g >= 0) p.at_y[d->rhs_group_dims.v[0]] = g;

        if (any && g >= 0) do {
                for (int e = 0; e < d->lhs_contracting_dims.n; e++)
                    p.at_x[d->lhs_contracting_dims.v[e]] = p.at_y[d->rhs_contracting_dims.v[e]] =
                        c[e];
                if (mode != RAGGED_CONTRACTED || group_of(d, in[2], x, p.at_x) == o[0])
                    add_product(&p);
            } while (index_next(c, depth, d->lhs_contracting_dims.n));
        store(&p, r, k++);
    }

    *out = r;
    return ST_OK;
}
EVAL(RAGGED_DOT) {
    return contract(ev, i, in, HLO_ATTR(i, ragged_dot), out);
}

// ---- scaled-dot: lhs, rhs, and their scales, each a scalar or of the operand's rank with
// dimensions that divide the operand's

status_t hlo_infer_scaled_dot(struct arena *a, const struct hlo_instr *i,
                              const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    for (int k = 0; k < 2; k++) {
        const struct shape *x = rule_shape(i, k), *s = rule_shape(i, k + 2);
        bool fit = dtype_is_float(s->dtype) && dtype_is_float(x->dtype) &&
                   (s->rank == 0 || s->rank == x->rank);
        for (int d = 0; fit && d < s->rank; d++)
            fit = s->dims[d] == x->dims[d] || (s->dims[d] > 0 && x->dims[d] % s->dims[d] == 0);
        if (!fit)
            return st_invalid("operand %d is %s, its scale %s", k, shape_text(a, x),
                              shape_text(a, s));
    }
    return hlo_infer_dot(a, i, out);
}

EVAL(SCALED_DOT) {
    struct hlo_attr_ragged_dot d = dot_ragged_none(HLO_ATTR(i, dot));
    return contract(ev, i, in, &d, out);
}
