// SPDX-License-Identifier: Apache-2.0
// Operators that make constants, ask for shapes, and move data.
#include <math.h>

#include "compiler/frontend/onnx/onnx_scope.h"
#include "compiler/frontend/onnx/onnx_tools.h"

static struct literal *text_scalar(struct onnx_ctx *c, struct str s) {
    struct literal *l = lit_new(c->a, shape_scalar(c->a, DT_S32));
    memcpy(l->data, onnx_string_list(c, &s, 1)->data, sizeof(int32_t));
    return l;
}
// The elements of t as numbers of places in a tensor of `dense` dims laid flat; t has one of them a
// row, or one a dimension.
static hv flat_places(struct onnx_ctx *c, const struct onnx_tensor *t, const struct shape *dense) {
    struct literal *l, *flat;
    status_t st = onnx_tensor_literal(c->a, t, &l);
    if (st) return hb_fail(&c->b, st), NULL;
    int per = l->shape->rank == 2 ? dense->rank : 1;
    if (l->shape->dtype != DT_S64 || l->shape->rank < 1 || l->shape->rank > 2 ||
        (l->shape->rank == 2 && l->shape->dims[1] != per))
        return onnx_fail(c, "indices %s of a sparse tensor %s", shape_text(c->a, l->shape),
                         shape_text(c->a, dense)),
               NULL;
    int64_t n = l->shape->dims[0];
    flat = lit_new(c->a, shape_make(c->a, DT_S64, (int64_t[]){n, 1}, 2));
    for (int64_t k = 0; k < n; k++) {
        int64_t at = 0;
        for (int d = 0; d < per; d++) {
            int64_t size = l->shape->rank == 1 ? shape_elements(dense) : dense->dims[d],
                    i = lit_get_i64(l, k * per + d);
            if (i < 0 || i >= size)
                return onnx_fail(c, "index %lld of a sparse tensor is not below %lld", (long long)i,
                                 (long long)size),
                       NULL;
            at = at * size + i;
        }
        lit_set_i64(flat, k, at);
    }
    return hb_constant(&c->b, flat);
}
static void sparse_constant(struct onnx_ctx *c, const struct onnx_sparse *s) {
    struct onnx_tensor like = s->dense;
    struct literal *values;
    const struct shape *dense;
    like.name = s->values.name;
    like.data_type = s->values.data_type;
    status_t st = onnx_tensor_shape(c->a, &like, &dense);
    if (!st) st = onnx_tensor_literal(c->a, &s->values, &values);
    if (st) return hb_fail(&c->b, st);
    int64_t n = shape_elements(dense);
    hv places = flat_places(c, &s->indices, dense);
    if (!places) return;
    if (values->shape->rank != 1 || values->shape->dims[0] != places->shape->dims[0])
        return onnx_fail(c, "values %s at indices %s", shape_text(c->a, values->shape),
                         onnx_show(c, places));
    hv zeros = hb_broadcast(&c->b, hb_const_i64(&c->b, dense->dtype, 0), &n, 1, NULL);
    hv y =
        onnx_put_points(c, zeros, places, 1, hb_constant(&c->b, lit_clone(c->a, values)), HLO_COPY);
    onnx_out_val(c, 0, hb_reshape(&c->b, y, dense->dims, dense->rank));
}
ONNX(constant) {
    const struct onnx_attr *a = c->n->attrs.n ? &c->n->attrs.v[0] : NULL;
    struct literal *l = NULL;

    if (!a) return onnx_fail(c, "no value");
    if (str_is(a->name, "sparse_value") && a->sparse) return sparse_constant(c, a->sparse);
    if (str_is(a->name, "value") && a->t && a->t->data_type == ONNX_STRING) {
        status_t st = onnx_string_literal(c, a->t, &l);
        if (st) return hb_fail(b, st);
        return onnx_out_any(c, 0, onnx_string_val(c, hb_constant(b, l)));
    } else if (str_is(a->name, "value") && a->t) {
        status_t st = onnx_tensor_literal(c->a, a->t, &l);
        if (st) return hb_fail(b, st);
        l = lit_clone(c->a, l);
    } else if (str_is(a->name, "value_string")) {
        return onnx_out_any(c, 0, onnx_string_val(c, hb_constant(b, text_scalar(c, a->s))));
    } else if (str_is(a->name, "value_strings")) {
        l = onnx_string_list(c, a->strings.v, a->strings.n);
        return onnx_out_any(c, 0, onnx_string_val(c, hb_constant(b, l)));
    } else if (str_is(a->name, "value_float")) {
        l = lit_scalar_f64(c->a, DT_F32, (double)a->f);
    } else if (str_is(a->name, "value_int")) {
        l = lit_scalar_i64(c->a, DT_S64, a->i);
    } else if (str_is(a->name, "value_ints")) {
        return onnx_out_val(c, 0, hb_const_s64s(b, a->ints.v, (int)a->ints.n));
    } else if (str_is(a->name, "value_floats")) {
        l = lit_new(c->a, shape_make(c->a, DT_F32, (int64_t[]){(int64_t)a->floats.n}, 1));
        for (size_t k = 0; k < a->floats.n; k++)
            lit_set_f64(l, (int64_t)k, (double)a->floats.v[k]);
    } else {
        return onnx_fail(c, "attribute '" STR_FMT "' is not supported", STR_ARG(a->name));
    }

    onnx_out_val(c, 0, hb_constant(b, l));
}

ONNX(shape) {
    const struct shape *s = onnx_in_val(c, 0)->shape;
    int64_t from = onnx_at_int(c, "start", 0), to = onnx_at_int(c, "end", s->rank);
    from = from < 0 ? from + s->rank : from;
    to = to < 0 ? to + s->rank : to;
    from = from < 0 ? 0 : from > s->rank ? s->rank : from;
    to = to < from ? from : to > s->rank ? s->rank : to;
    onnx_out_val(c, 0, hb_const_s64s(b, s->dims + from, (int)(to - from)));
}
ONNX(size) {
    onnx_out_val(c, 0, hb_const_i64(b, DT_S64, shape_elements(onnx_in_val(c, 0)->shape)));
}

ONNX(constantofshape) {
    int64_t dims[HLO_MAX_RANK];
    int n;
    const struct onnx_attr *a = onnx_attr(c->n, "value");
    struct literal *l = lit_scalar_f64(c->a, DT_F32, 0);
    bool text = a && a->t && a->t->data_type == ONNX_STRING;
    if (!onnx_in_ints(c, 0, dims, HLO_MAX_RANK, &n)) return;
    if (a && a->t) {
        status_t st = text ? onnx_string_literal(c, a->t, &l) : onnx_tensor_literal(c->a, a->t, &l);
        if (st) return hb_fail(b, st);
        l = lit_clone(c->a, l);
    }
    status_t st = shape_check(shape_make(c->a, l->shape->dtype, dims, n), 0);
    if (st) return hb_fail(b, st);
    hv v = hb_reshape(b, hb_constant(b, l), NULL, 0);
    v = n ? hb_broadcast(b, v, dims, n, NULL) : v;
    onnx_out_any(c, 0, text ? onnx_string_val(c, v) : onnx_tensor_val(c, v));
}

ONNX(range) {
    const struct literal *from = onnx_in_known(c, 0), *to = onnx_in_known(c, 1), *by = NULL;
    if (!from || !to) return;
    enum dtype t = from->shape->dtype;
    by = onnx_in_has(c, 2) ? onnx_in_known(c, 2) : lit_scalar_f64(c->a, t, 1);
    if (!by) return;
    double start = lit_get_f64(from, 0), step = lit_get_f64(by, 0),
           way = lit_get_f64(to, 0) - start;
    int64_t whole; // of integers that a double does not hold, the way mostly is one that it does
    if (dtype_is_int(t) &&
        !__builtin_sub_overflow(lit_get_i64(to, 0), lit_get_i64(from, 0), &whole))
        way = (double)whole;
    double n = ceil(way / step);
    if (isnan(n) || n > 1e8)
        return onnx_fail(c, "%g elements, from %g by %g to %g", n, start, step, lit_get_f64(to, 0));
    if (n < 0) n = 0;
    int64_t count = (int64_t)n;
    struct literal *l = lit_new(c->a, shape_make(c->a, t, &count, 1));
    for (int64_t k = 0; k < count; k++) {
        if (dtype_is_int(t))
            lit_set_i64(l, k,
                        (int64_t)((uint64_t)lit_get_i64(from, 0) +
                                  (uint64_t)k * (uint64_t)lit_get_i64(by, 0)));
        else
            lit_set_f64(l, k, start + (double)k * step);
    }
    onnx_out_val(c, 0, hb_constant(b, l));
}

// A shape that was written for another batch than the one that it is lowered for: where x begins
// with the batch, or with a multiple of it, so does the new shape.
static void follow_batch(const struct onnx_ctx *c, hv x, int64_t *dims, int n) {
    int64_t known = 1, whole, now;
    bool hole = false;
    if (!c->batch || !n || !x->shape->rank || dims[0] <= 0 || dims[0] % c->fixed_batch) return;
    for (int d = 0; d < n; d++) {
        hole |= dims[d] <= 0;
        if (dims[d] > 0 && !sz_mul(known, dims[d], &known)) return;
    }
    bool follows = hole ? x->shape->dims[0] == c->batch && dims[0] == c->fixed_batch
                        : sz_mul(shape_elements(x->shape), c->fixed_batch, &whole) &&
                              sz_mul(known, c->batch, &now) && whole == now;
    if (follows) dims[0] = dims[0] / c->fixed_batch * c->batch;
}
ONNX_X(reshape) {
    int64_t dims[HLO_MAX_RANK], known = 1, total = shape_elements(x->shape);
    int n, hole = -1;
    if (!(onnx_in_has(c, 1) ? onnx_in_ints(c, 1, dims, HLO_MAX_RANK, &n)
                            : onnx_at_ints(c, "shape", dims, HLO_MAX_RANK, &n)))
        return onnx_fail(c, "no shape");
    follow_batch(c, x, dims, n);
    for (int d = 0; d < n; d++) {
        if (dims[d] == 0 && !onnx_at_int(c, "allowzero", 0)) {
            if (d >= x->shape->rank)
                return onnx_fail(c, "0 in dimension %d of the new shape, the input has rank %d", d,
                                 x->shape->rank);
            dims[d] = x->shape->dims[d];
        }
        if (dims[d] == -1) {
            if (hole >= 0) return onnx_fail(c, "more than one -1 in the new shape");
            hole = d;
        } else if (!sz_mul(known, dims[d], &known)) {
            return onnx_fail(c, "dimension %lld in the new shape", (long long)dims[d]);
        }
    }
    if (hole >= 0) {
        if (known == 0 || total % known)
            return onnx_fail(c, "%s does not divide into the new shape", onnx_show(c, x));
        dims[hole] = total / known;
    }
    onnx_out_val(c, 0, hb_reshape(b, x, dims, n));
}
ONNX_X(flatten) {
    int rank = x->shape->rank;
    int64_t axis = onnx_at_int(c, "axis", 1), dims[2] = {1, 1};
    if (axis < 0) axis += rank;
    if (axis < 0 || axis > rank) return onnx_fail(c, "axis %lld of rank %d", (long long)axis, rank);
    for (int d = 0; d < rank; d++)
        dims[d >= axis] *= x->shape->dims[d];
    onnx_out_val(c, 0, hb_reshape(b, x, dims, 2));
}
ONNX_X(squeeze) {
    int64_t axes[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int n, rank = 0;
    bool given;
    onnx_axis_set(c, 1, x->shape->rank, axes, &n, &given);
    if (!hb_ok(b)) return;
    for (int d = 0; d < x->shape->rank; d++) {
        bool drop = given ? i64s_has((struct i64s){axes, n}, d) : x->shape->dims[d] == 1;
        if (drop && x->shape->dims[d] != 1)
            return onnx_fail(c, "dimension %d of %s is not 1", d, onnx_show(c, x));
        if (!drop) dims[rank++] = x->shape->dims[d];
    }
    onnx_out_val(c, 0, hb_reshape(b, x, dims, rank));
}
ONNX_X(unsqueeze) {
    int64_t raw[HLO_MAX_RANK], axes[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int n, from = 0;
    bool given;
    // The axes count in the result, whose rank needs their number first.
    if (onnx_in_has(c, 1) ? !onnx_in_ints(c, 1, raw, HLO_MAX_RANK, &n)
                          : !onnx_at_ints(c, "axes", raw, HLO_MAX_RANK, &n))
        return onnx_fail(c, "no axes");
    int rank = x->shape->rank + n;
    if (rank > HLO_MAX_RANK) return onnx_fail(c, "the result has rank %d", rank);
    onnx_axes_of(c, 1, rank, axes, &n, &given);
    if (!hb_ok(b)) return;
    for (int d = 0; d < rank; d++)
        dims[d] = i64s_has((struct i64s){axes, n}, d) ? 1 : x->shape->dims[from++];
    onnx_out_val(c, 0, hb_reshape(b, x, dims, rank));
}
ONNX_X(transpose) {
    int64_t perm[HLO_MAX_RANK];
    int n, rank = x->shape->rank;
    if (!onnx_at_ints(c, "perm", perm, HLO_MAX_RANK, &n))
        for (n = 0; n < rank; n++)
            perm[n] = rank - 1 - n;
    if (n != rank) return onnx_fail(c, "perm has %d values for rank %d", n, rank);
    for (int d = 0; d < n; d++)
        perm[d] = onnx_axis_of(c, perm[d], rank);
    if (hb_ok(b)) onnx_out_val(c, 0, hb_transpose(b, x, perm));
}
ONNX(concat) {
    hv first = onnx_in_val(c, 0), *xs = arena_array(c->a, hv, c->n->in.n);
    for (size_t k = 0; k < c->n->in.n; k++)
        xs[k] = onnx_in_val(c, k);
    onnx_out_val(c, 0,
                 hb_concat(b, xs, (int)c->n->in.n,
                           onnx_axis_of(c, onnx_at_int(c, "axis", 1), first->shape->rank)));
}
ONNX_X(split) {
    int n, outs = (int)c->n->out.n;
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), x->shape->rank),
            *sizes = arena_array(c->a, int64_t, outs + 1),
            size = x->shape->rank ? x->shape->dims[axis] : 0, at = 0;
    bool given = onnx_in_has(c, 1) ? onnx_in_ints(c, 1, sizes, outs, &n)
                                   : onnx_at_ints(c, "split", sizes, outs, &n);
    if (!given)
        for (n = 0; n < outs; n++) {
            int64_t each = (size + outs - 1) / outs;
            sizes[n] =
                n < outs - 1 ? each : size - each * (outs - 1); // the last one may be smaller
        }
    if (n != outs || !hb_ok(b)) return onnx_fail(c, "%d sizes for %d outputs", n, outs);
    for (int k = 0; k < n; k++) {
        struct range r[HLO_MAX_RANK];
        for (int d = 0; d < x->shape->rank; d++)
            r[d] = (struct range){0, x->shape->dims[d], 1};
        if (sizes[k] < 0 || sizes[k] > size - at)
            return onnx_fail(c, "sizes do not sum to %lld", (long long)size);
        r[axis] = (struct range){at, at + sizes[k], 1};
        at += sizes[k];
        onnx_out_val(c, (size_t)k, hb_slice(b, x, r));
    }
    if (at != size)
        onnx_fail(c, "sizes sum to %lld, the dimension is %lld", (long long)at, (long long)size);
}

static int64_t clamp64(int64_t v, int64_t lo, int64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}
ONNX_X(slice) {
    int rank = x->shape->rank, n, m, reversed = 0;
    int64_t starts[HLO_MAX_RANK], ends[HLO_MAX_RANK], axes[HLO_MAX_RANK], steps[HLO_MAX_RANK],
        rev[HLO_MAX_RANK];
    struct range r[HLO_MAX_RANK];
    bool inputs = c->opset >= 10, given;

    if (!(inputs ? onnx_in_ints(c, 1, starts, HLO_MAX_RANK, &n) &&
                       onnx_in_ints(c, 2, ends, HLO_MAX_RANK, &m)
                 : onnx_at_ints(c, "starts", starts, HLO_MAX_RANK, &n) &&
                       onnx_at_ints(c, "ends", ends, HLO_MAX_RANK, &m)) ||
        n != m)
        return onnx_fail(c, "starts and ends do not match");
    onnx_axes_of(c, 3, rank, axes, &m, &given);
    if (!hb_ok(b)) return;

    for (int k = 0; k < n && !given; k++)
        axes[k] = k;
    if ((given && m != n) || (!given && n > rank))
        return onnx_fail(c, "%d axes for %d starts", m, n);
    for (int k = 0; k < n; k++)
        steps[k] = 1;
    if (inputs && onnx_in_has(c, 4) && (!onnx_in_ints(c, 4, steps, HLO_MAX_RANK, &m) || m != n))
        return onnx_fail(c, "%d steps for %d starts", m, n);

    for (int d = 0; d < rank; d++)
        r[d] = (struct range){0, x->shape->dims[d], 1};

    for (int k = 0; k < n && hb_ok(b); k++) {
        int64_t size = x->shape->dims[axes[k]], s = starts[k], e = ends[k];
        if (steps[k] == 0) return onnx_fail(c, "step 0");
        steps[k] = clamp64(steps[k], -size - 1, size + 1); // as far beyond the dimension
        if (s < 0) s = s < -size ? (steps[k] > 0 ? 0 : -1) : s + size;
        if (e < 0) e = e < -size ? -1 : e + size;
        // The largest integers are no places but the end, as ONNX Runtime has them.
        if (steps[k] < 0 && (ends[k] == INT64_MAX || ends[k] == INT32_MAX)) e = -1;
        if (steps[k] > 0) {
            s = clamp64(s, 0, size);
            e = clamp64(e, s, size);
            r[axes[k]] = (struct range){s, e, steps[k]};
            continue;
        }
        // Backwards: the same slice of the reversed dimension.
        s = size ? clamp64(s, 0, size - 1) : -1; // not -1: ONNX's text, unlike NumPy
        e = clamp64(e, -1, s);
        r[axes[k]] = (struct range){size - 1 - s, size - 1 - e, -steps[k]};
        rev[reversed++] = axes[k];
    }

    if (reversed) x = hb_reverse(b, x, rev, reversed);
    onnx_out_val(c, 0, hb_slice(b, x, r));
}

ONNX_X(gather) {
    hv idx = onnx_in_val(c, 1);
    int64_t axis = onnx_axis_of(c, onnx_at_int(c, "axis", 0), x->shape->rank);
    if (!hb_ok(b)) return;
    onnx_out_val(c, 0, onnx_take(c, x, onnx_wrapped(c, idx, x->shape->dims[axis]), axis));
}

ONNX_X(expand) {
    int64_t want[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int n;
    if (!onnx_in_ints(c, 1, want, HLO_MAX_RANK, &n)) return;
    int rank = n > x->shape->rank ? n : x->shape->rank;
    for (int k = 1; k <= rank; k++) { // both ways: a 1 in the wanted shape keeps the input's size
        int64_t p = k <= x->shape->rank ? x->shape->dims[x->shape->rank - k] : 1,
                q = k <= n ? want[n - k] : 1;
        dims[rank - k] = q == 1 ? p : q;
        if (dims[rank - k] < 0) return onnx_fail(c, "dimension %lld", (long long)q);
    }
    onnx_out_val(c, 0, hb_broadcast_numpy(b, x, dims, rank));
}
ONNX_X(tile) {
    int64_t reps[HLO_MAX_RANK], wide[HLO_MAX_RANK], map[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int n, rank = x->shape->rank;
    if (!onnx_in_ints(c, 1, reps, HLO_MAX_RANK, &n)) return;
    if (n != rank || 2 * rank > HLO_MAX_RANK)
        return onnx_fail(c, "%d repeats for rank %d", n, rank);
    for (int d = 0; d < rank; d++) {
        wide[2 * d] = reps[d];
        wide[2 * d + 1] = x->shape->dims[d];
        map[d] = 2 * d + 1;
        if (!sz_mul(reps[d], x->shape->dims[d], &dims[d]))
            return onnx_fail(c, "repeat %lld", (long long)reps[d]);
    }
    onnx_out_val(c, 0, hb_reshape(b, hb_broadcast(b, x, wide, 2 * rank, map), dims, rank));
}
// Which of n elements stands at position p when the others are repeated beyond the ends.
static int64_t repeated(struct str mode, int64_t p, int64_t n) {
    if (str_is(mode, "edge")) return clamp64(p, 0, n - 1);
    int64_t period = str_is(mode, "wrap") ? n : n > 1 ? 2 * (n - 1) : 1;
    p = (p % period + period) % period;
    return p < n ? p : period - p;
}

// The axis from -low to its size + high: runs of neighbours, forwards or backwards, joined.
// Negative pads cut first, so that what is repeated is what is left.
static hv pad_repeated(struct onnx_ctx *c, hv x, int64_t axis, int64_t low, int64_t high,
                       struct str mode) {
    enum { MAX_RUNS = 4096 };
    int64_t n = x->shape->dims[axis], lo = low < 0 ? low : 0, hi = high < 0 ? high : 0, end;

    bool fits = lo >= -n && hi >= -n - lo;
    if (fits && (lo || hi)) {
        x = onnx_part(c, x, axis, -lo, n + hi);
        low -= lo, high -= hi, n += lo + hi;
        if (low == 0 && high == 0) return x;
    }

    int64_t p = -low;
    if (!fits || !sz_add(n, high, &end) || !sz_add(end, low, &(int64_t){0}) || n == 0) {
        onnx_fail(c, "pads %lld and %lld of a dimension of %lld", (long long)low, (long long)high,
                  (long long)n);
        return x;
    }

    struct {
        hv *v;
        size_t n, cap;
    } runs = {0};

    for (int64_t len; p < end && hb_ok(&c->b); p += len) {
        int64_t from = repeated(mode, p, n), last = from, step = 0;
        for (len = 1; p + len < end; len++) {
            int64_t next = repeated(mode, p + len, n), by = next - last;
            if (len == 1 ? by < -1 || by > 1 : by != step) break;
            step = by;
            last = next;
        }
        hv run = onnx_part(c, x, axis, from < last ? from : last, (from < last ? last : from) + 1);
        if (step < 0) run = hb_reverse(&c->b, run, &axis, 1);
        if (step == 0 && len > 1) {
            int64_t dims[HLO_MAX_RANK];
            memcpy(dims, x->shape->dims, sizeof(int64_t) * (size_t)x->shape->rank);
            dims[axis] = len;
            run = hb_broadcast_numpy(&c->b, run, dims, x->shape->rank);
        }
        avec_push(c->a, &runs, run);
        if (runs.n > MAX_RUNS) onnx_fail(c, "a pad that repeats a small dimension too often");
    }

    if (!hb_ok(&c->b)) return x;
    if (runs.n == 0) return onnx_part(c, x, axis, 0, 0);
    return runs.n == 1 ? runs.v[0] : hb_concat(&c->b, runs.v, (int)runs.n, axis);
}

ONNX_X(pad) {
    hv value;
    int64_t pads[2 * HLO_MAX_RANK], axes[HLO_MAX_RANK];
    int n, m = 0, rank = x->shape->rank;
    bool given = false;
    struct pad_dim p[HLO_MAX_RANK] = {{0, 0, 0}};
    struct str mode = onnx_at_str(c, "mode", "constant");
    bool by_input = c->opset >= 11 || c->n->domain.n; // com.microsoft always had inputs

    if (!(by_input ? onnx_in_ints(c, 1, pads, 2 * HLO_MAX_RANK, &n)
                   : onnx_at_ints(c, "pads", pads, 2 * HLO_MAX_RANK, &n) ||
                         onnx_at_ints(c, "paddings", pads, 2 * HLO_MAX_RANK, &n)))
        return onnx_fail(c, "no pads");

    if (onnx_in_has(c, 3)) onnx_axes_of(c, 3, rank, axes, &m, &given);
    if (!hb_ok(b)) return;
    for (int k = 0; k < rank && !given; k++)
        axes[m++] = k;
    if (n != 2 * m) return onnx_fail(c, "%d pads for %d axes", n, m);

    if (str_is(mode, "edge") || str_is(mode, "reflect") || str_is(mode, "wrap")) {
        for (int k = 0; k < m && hb_ok(b); k++)
            if (pads[k] || pads[m + k]) x = pad_repeated(c, x, axes[k], pads[k], pads[m + k], mode);
        return onnx_out_val(c, 0, x);
    }

    if (!str_is(mode, "constant"))
        return onnx_fail(c, "mode '" STR_FMT "' is not known", STR_ARG(mode));
    for (int k = 0; k < m && hb_ok(b); k++)
        p[axes[k]] = (struct pad_dim){pads[k], pads[m + k], 0};

    if (by_input && onnx_in_has(c, 2))
        value = hb_reshape(b, onnx_in_val(c, 2), NULL, 0);
    else
        value = hb_const_f64(b, x->shape->dtype, onnx_at_float(c, "value", 0));
    onnx_out_val(c, 0, hb_pad(b, x, value, p));
}

// [N, C, H, W] <-> blocks: one reshape, one transpose, one reshape.
ONNX_X(depthtospace) {
    int64_t k = onnx_at_int(c, "blocksize", 0), *d = x->shape->dims;
    if (x->shape->rank != 4 || k < 1 || d[1] % k || d[1] / k % k)
        return onnx_fail(c, "blocksize %lld on %s", (long long)k, onnx_show(c, x));
    bool crd = str_is(onnx_at_str(c, "mode", "DCR"), "CRD");
    int64_t ch = d[1] / (k * k), dcr[6] = {d[0], k, k, ch, d[2], d[3]},
            other[6] = {d[0], ch, k, k, d[2], d[3]};
    hv y = hb_reshape(b, x, crd ? other : dcr, 6);
    y = hb_transpose(b, y, crd ? (int64_t[]){0, 1, 4, 2, 5, 3} : (int64_t[]){0, 3, 4, 1, 5, 2});
    onnx_out_val(c, 0, hb_reshape(b, y, (int64_t[]){d[0], ch, d[2] * k, d[3] * k}, 4));
}
ONNX_X(spacetodepth) {
    int64_t k = onnx_at_int(c, "blocksize", 0), *d = x->shape->dims;
    if (x->shape->rank != 4 || k < 1 || d[2] % k || d[3] % k)
        return onnx_fail(c, "blocksize %lld on %s", (long long)k, onnx_show(c, x));
    hv y = hb_reshape(b, x, (int64_t[]){d[0], d[1], d[2] / k, k, d[3] / k, k}, 6);
    y = hb_transpose(b, y, (int64_t[]){0, 3, 5, 1, 2, 4});
    onnx_out_val(c, 0, hb_reshape(b, y, (int64_t[]){d[0], d[1] * k * k, d[2] / k, d[3] / k}, 4));
}
