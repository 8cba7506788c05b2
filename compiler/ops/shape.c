// SPDX-License-Identifier: Apache-2.0
// Evaluation of operations that move data: for each element of the result, where it comes from.
#include "compiler/eval.h"
#include "compiler/ops/index.h"

#define EVAL(op)                                                                                   \
    status_t hlo_eval_##op(struct hlo_eval *ev, const struct hlo_instr *i,                         \
                           struct literal *const *in, struct literal **out)
#define NEW_RESULT(r)                                                                              \
    struct literal *r;                                                                             \
    RETURN_IF_ERR(hlo_eval_alloc(ev, i, &r));                                                      \
    *out = r

EVAL(CONSTANT) {
    (void)ev, (void)in;
    *out = i->literal;
    return ST_OK;
}
EVAL(IOTA) {
    (void)in;
    NEW_RESULT(r);
    int64_t d = HLO_ATTR(i, iota)->iota_dimension, k = 0;
    EACH_INDEX(x, r->shape) lit_set_i64(r, k++, x[d]);
    return ST_OK;
}
EVAL(PARTITION_ID) {
    (void)in;
    NEW_RESULT(r);
    (void)r;
    return ST_OK;
}
EVAL(REPLICA_ID) {
    return hlo_eval_PARTITION_ID(ev, i, in, out);
}

// The same bytes under another shape.
static status_t view(struct hlo_eval *ev, const struct hlo_instr *i, struct literal *x,
                     struct literal **out) {
    *out = shape_is_tuple(i->shape) ? x : lit_borrow(ev->arena, i->shape, x->data);
    return ST_OK;
}
EVAL(COPY) {
    return view(ev, i, in[0], out);
}
EVAL(RESHAPE) {
    return view(ev, i, in[0], out);
}
EVAL(OPT_BARRIER) {
    return view(ev, i, in[0], out);
}
EVAL(ADD_DEPENDENCY) {
    return view(ev, i, in[0], out);
}
EVAL(AFTER_ALL) {
    (void)in;
    *out = lit_new(ev->arena, i->shape);
    return ST_OK;
}

// bitcast reinterprets the buffer: logical orders differ when layouts do.
EVAL(BITCAST) {
    const struct shape *from = i->operands[0]->shape, *to = i->shape;
    if (layout_is_default(from->layout, from->rank) && layout_is_default(to->layout, to->rank))
        return view(ev, i, in[0], out);
    NEW_RESULT(r);
    struct literal *flat =
        lit_new(ev->arena, shape_make(ev->arena, from->dtype,
                                      (int64_t[]){shape_bytes(from) / dtype_size(from->dtype)}, 1));
    int64_t k = 0;
    EACH_INDEX(x, from) element_copy(flat, shape_offset(from, x), in[0], k++);
    k = 0;
    EACH_INDEX(x, to) element_copy(r, k++, flat, shape_offset(to, x));
    return ST_OK;
}

EVAL(BROADCAST) {
    NEW_RESULT(r);
    struct i64s map = HLO_ATTR(i, dims)->dimensions;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t from = 0;
        for (int d = 0; d < map.n; d++)
            from = from * in[0]->shape->dims[d] + x[map.v[d]];
        element_copy(r, k++, in[0], from);
    }
    return ST_OK;
}
EVAL(TRANSPOSE) {
    NEW_RESULT(r);
    struct i64s perm = HLO_ATTR(i, dims)->dimensions;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < perm.n; d++)
            y[perm.v[d]] = x[d];
        element_copy(r, k++, in[0], index_linear(y, in[0]->shape->dims, perm.n));
    }
    return ST_OK;
}
EVAL(REVERSE) {
    NEW_RESULT(r);
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < r->shape->rank; d++)
            y[d] = i64s_has(dims, d) ? r->shape->dims[d] - 1 - x[d] : x[d];
        element_copy(r, k++, in[0], index_linear(y, r->shape->dims, r->shape->rank));
    }
    return ST_OK;
}
EVAL(CONCATENATE) {
    NEW_RESULT(r);
    int64_t d = HLO_ATTR(i, dims)->dimensions.v[0], k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        memcpy(y, x, sizeof y);
        int p = 0;
        while (y[d] >= in[p]->shape->dims[d])
            y[d] -= in[p++]->shape->dims[d];
        element_copy(r, k++, in[p], index_linear(y, in[p]->shape->dims, r->shape->rank));
    }
    return ST_OK;
}
EVAL(PAD) {
    NEW_RESULT(r);
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    const struct shape *s = in[0]->shape;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        bool inside = true;
        for (int d = 0; inside && d < s->rank; d++) {
            int64_t v = x[d] - p->v[d].low, step = p->v[d].interior + 1;
            inside = v >= 0 && v % step == 0 && v / step < s->dims[d];
            y[d] = inside ? v / step : 0;
        }
        if (inside)
            element_copy(r, k, in[0], index_linear(y, s->dims, s->rank));
        else
            element_copy(r, k, in[1], 0);
        k++;
    }
    return ST_OK;
}
EVAL(SLICE) {
    NEW_RESULT(r);
    const struct ranges *s = &HLO_ATTR(i, slice)->slice;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < s->n; d++)
            y[d] = s->v[d].start + x[d] * s->v[d].stride;
        element_copy(r, k++, in[0], index_linear(y, in[0]->shape->dims, s->n));
    }
    return ST_OK;
}

// Start indices as given, clamped so that the slice stays inside (XLA operation semantics,
// "DynamicSlice").
static void clamped_starts(const struct hlo_instr *i, struct literal *const *in, int first,
                           const int64_t *size, int64_t *start) {
    const struct shape *s = in[0]->shape;
    bool vector = i->n_operands - first == 1 && in[first]->shape->rank == 1;
    for (int d = 0; d < s->rank; d++) {
        int64_t v = vector ? lit_get_i64(in[first], d) : lit_get_i64(in[first + d], 0);
        bool huge = (vector ? in[first] : in[first + d])->shape->dtype == DT_U64 && v < 0;
        int64_t max = s->dims[d] - size[d];
        start[d] = huge || v > max ? max : v < 0 ? 0 : v;
    }
}
EVAL(DYNAMIC_SLICE) {
    NEW_RESULT(r);
    int64_t start[HLO_MAX_RANK], k = 0;
    clamped_starts(i, in, 1, r->shape->dims, start);
    EACH_INDEX(x, r->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < r->shape->rank; d++)
            y[d] = start[d] + x[d];
        element_copy(r, k++, in[0], index_linear(y, in[0]->shape->dims, r->shape->rank));
    }
    return ST_OK;
}
EVAL(DYNAMIC_UPDATE_SLICE) {
    NEW_RESULT(r);
    int64_t start[HLO_MAX_RANK], k = 0;
    if (r->size_bytes) memcpy(r->data, in[0]->data, r->size_bytes);
    clamped_starts(i, in, 2, in[1]->shape->dims, start);
    EACH_INDEX(x, in[1]->shape) {
        int64_t y[HLO_MAX_RANK];
        for (int d = 0; d < r->shape->rank; d++)
            y[d] = start[d] + x[d];
        element_copy(r, index_linear(y, r->shape->dims, r->shape->rank), in[1], k++);
    }
    return ST_OK;
}
EVAL(GET_DIMENSION_SIZE) {
    NEW_RESULT(r);
    lit_set_i64(r, 0, in[0]->shape->dims[HLO_ATTR(i, dims)->dimensions.v[0]]);
    return ST_OK;
}

// ---- tuples

EVAL(TUPLE) {
    *out = lit_tuple(ev->arena, i->shape, in);
    return ST_OK;
}
EVAL(GET_TUPLE_ELEMENT) {
    (void)ev;
    *out = in[0]->elems[HLO_ATTR(i, gte)->index];
    return ST_OK;
}

// ---- gather and scatter

// The operand position that index vector number `b` points at, before clamping.
static void start_of(const struct literal *idx, const int64_t *batch, int64_t ivd, struct i64s map,
                     int64_t *start) {
    int64_t at[HLO_MAX_RANK + 1];
    const struct shape *s = idx->shape;
    for (int k = 0; k < map.n; k++) {
        int b = 0;
        for (int d = 0; d < s->rank; d++)
            at[d] = d == ivd ? k : batch[b++];
        start[map.v[k]] = lit_get_i64(idx, index_linear(at, s->dims, s->rank));
    }
}

EVAL(GATHER) {
    NEW_RESULT(r);
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct shape *s = in[0]->shape;
    int64_t k = 0;
    EACH_INDEX(x, r->shape) {
        int64_t batch[HLO_MAX_RANK] = {0}, start[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK];
        int nb = 0, w = 0;
        for (int d = 0; d < r->shape->rank; d++)
            if (!i64s_has(g->offset_dims, d)) batch[nb++] = x[d];
        start_of(in[1], batch, g->index_vector_dim, g->start_index_map, start);
        for (int d = 0; d < s->rank; d++) {
            int64_t max = s->dims[d] - g->slice_sizes.v[d], offset = 0;
            at[d] = start[d] < 0 ? 0 : start[d] > max ? max : start[d];
            for (int b = 0; b < g->operand_batching_dims.n; b++)
                if (g->operand_batching_dims.v[b] ==
                    d) { // paired with a batch dimension of the indices
                    int64_t pos = g->start_indices_batching_dims.v[b];
                    at[d] = batch[pos > g->index_vector_dim ? pos - 1 : pos];
                }
            if (!i64s_has(g->collapsed_slice_dims, d) && !i64s_has(g->operand_batching_dims, d)) {
                int p = 0;
                for (int seen = -1; p < r->shape->rank; p++)
                    if (i64s_has(g->offset_dims, p) && ++seen == w) break;
                offset = x[p];
                w++;
            }
            at[d] += offset;
        }
        element_copy(r, k++, in[0], index_linear(at, s->dims, s->rank));
    }
    return ST_OK;
}

EVAL(SCATTER) {
    const struct hlo_attr_scatter *sc = HLO_ATTR(i, scatter);
    int n = i->n_operands / 2;
    const struct shape *s = in[0]->shape, *u = in[n + 1]->shape;
    struct literal **r = arena_array(ev->arena, struct literal *, n), *result;
    for (int k = 0; k < n; k++) {
        RETURN_IF_ERR(hlo_eval_charge(ev, in[k]->shape));
        r[k] = lit_clone(ev->arena, in[k]);
    }
    struct hlo_fn *f;
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], &f));
    status_t st = ST_OK;
    int64_t j = 0;
    EACH_INDEX(x, u) {
        int64_t batch[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK] = {0};
        int nb = 0, w = 0;
        bool inside = true;
        for (int d = 0; d < u->rank; d++)
            if (!i64s_has(sc->update_window_dims, d)) batch[nb++] = x[d];
        start_of(in[n], batch, sc->index_vector_dim, sc->scatter_dims_to_operand_dims, at);
        for (int d = 0; d < s->rank; d++) {
            for (int b = 0; b < sc->input_batching_dims.n; b++)
                if (sc->input_batching_dims.v[b] == d) {
                    int64_t pos = sc->scatter_indices_batching_dims.v[b];
                    at[d] = batch[pos > sc->index_vector_dim ? pos - 1 : pos];
                }
            int64_t size = 1, offset = 0; // a window that does not fit is skipped whole
            if (!i64s_has(sc->inserted_window_dims, d) && !i64s_has(sc->input_batching_dims, d)) {
                int64_t from = sc->update_window_dims.v[w++];
                size = u->dims[from], offset = x[from];
            }
            inside &= at[d] >= 0 && at[d] <= s->dims[d] - size;
            at[d] += offset;
        }
        if (inside && !st) {
            int64_t to = index_linear(at, s->dims, s->rank);
            for (int k = 0; k < n; k++) {
                element_copy(hlo_fn_arg(f, k), 0, r[k], to);
                element_copy(hlo_fn_arg(f, n + k), 0, in[n + 1 + k], j);
            }
            st = hlo_fn_call(f, &result);
            for (int k = 0; k < n && !st; k++)
                element_copy(r[k], to, n == 1 ? result : result->elems[k], 0);
        }
        j++;
    }
    hlo_fn_close(f);
    *out = n == 1 ? r[0] : lit_tuple(ev->arena, i->shape, r);
    return st;
}
