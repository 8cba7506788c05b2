// SPDX-License-Identifier: Apache-2.0
// Shape rules of operations that move data.
#include "compiler/ops/infer.h"
#include "compiler/ops/rules.h"

status_t hlo_infer_broadcast(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    const struct shape *s = rule_shape(i, 0), *r = i->shape;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    if (shape_is_tuple(r) || r->dtype != s->dtype || d.n != s->rank)
        return st_invalid("%s to %s with %d dimensions", shape_text(a, s), shape_text(a, r), d.n);
    RETURN_IF_ERR(rule_dims(d, r->rank, "dimensions"));
    for (int k = 0; k < d.n; k++)
        if (s->dims[k] != r->dims[d.v[k]])
            return st_invalid("dimension %d of %s does not match dimension %lld of %s", k,
                              shape_text(a, s), (long long)d.v[k], shape_text(a, r));
    return ST_OK;
}
// The buffer stays: the same number of bytes, padding of tiles counted. A change of type must keep
// both layouts default.
status_t hlo_infer_bitcast(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    const struct shape *s = rule_shape(i, 0), *r = i->shape;
    if (shape_is_tuple(r) && shape_compatible(s, r)) return ST_OK;
    RETURN_IF_ERR(rule_array(i, 0));
    bool plain = layout_is_default(s->layout, s->rank) && layout_is_default(r->layout, r->rank);
    if (dtype_size(r->dtype) == 0 || shape_bytes(s) != shape_bytes(r) ||
        (s->dtype != r->dtype && !plain))
        return st_invalid("%s does not bitcast to %s", shape_text(a, s), shape_text(a, r));
    return ST_OK;
}
status_t hlo_infer_reshape(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    const struct shape *s = rule_shape(i, 0), *r = i->shape;
    bool known = !s->unbounded && !(!shape_is_tuple(r) && r->unbounded);
    if (shape_is_tuple(r) || s->dtype != r->dtype ||
        (known && shape_elements(s) != shape_elements(r)))
        return st_invalid("%s does not reshape to %s", shape_text(a, s), shape_text(a, r));
    return ST_OK;
}
status_t hlo_infer_transpose(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    const struct shape *s = rule_shape(i, 0);
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    int64_t dims[HLO_MAX_RANK];
    RETURN_IF_ERR(rule_dims(d, s->rank, "dimensions"));
    if (d.n != s->rank) return st_invalid("%d dimensions for rank %d", d.n, s->rank);
    for (int k = 0; k < d.n; k++)
        dims[k] = s->dims[d.v[k]];
    *out = shape_make(a, s->dtype, dims, s->rank);
    return ST_OK;
}
status_t hlo_infer_reverse(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    RETURN_IF_ERR(rule_dims(HLO_ATTR(i, dims)->dimensions, rule_shape(i, 0)->rank, "dimensions"));
    *out = shape_with_layout(a, rule_shape(i, 0), NULL);
    return ST_OK;
}
status_t hlo_infer_concatenate(struct arena *a, const struct hlo_instr *i,
                               const struct shape **out) {
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    if (i->n_operands < 1) return st_invalid("no operands");
    RETURN_IF_ERR(rule_arrays(i));
    const struct shape *s = rule_shape(i, 0);
    if (d.n != 1 || d.v[0] < 0 || d.v[0] >= s->rank)
        return st_invalid("dimensions must name one dimension of rank %d", s->rank);
    int64_t dims[HLO_MAX_RANK], total = 0;
    for (int k = 0; k < i->n_operands; k++) {
        const struct shape *x = rule_shape(i, k);
        RETURN_IF_ERR(rule_same_dtype(a, i, k, 0));
        bool same = x->rank == s->rank;
        for (int e = 0; same && e < s->rank; e++)
            same = e == d.v[0] || x->dims[e] == s->dims[e];
        if (!same || !sz_add(total, x->dims[d.v[0]], &total))
            return st_invalid("operand %d is %s, operand 0 is %s", k, shape_text(a, x),
                              shape_text(a, s));
    }
    memcpy(dims, s->dims, sizeof *dims * (size_t)s->rank);
    dims[d.v[0]] = total;
    *out = shape_make(a, s->dtype, dims, s->rank);
    return ST_OK;
}
status_t hlo_infer_pad(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    const struct shape *s = rule_shape(i, 0);
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    int64_t dims[HLO_MAX_RANK];
    RETURN_IF_ERR(rule_same_dtype(a, i, 0, 1));
    if (p->n != s->rank || rule_shape(i, 1)->rank != 0)
        return st_invalid("padding has %d entries for %s, value is %s", p->n, shape_text(a, s),
                          shape_text(a, rule_shape(i, 1)));
    for (int d = 0; d < s->rank; d++) {
        struct pad_dim w = p->v[d];
        if (w.interior < 0) return st_invalid("negative interior padding in dimension %d", d);
        __int128 n = (__int128)s->dims[d] + w.low + w.high +
                     (s->dims[d] > 1 ? (__int128)(s->dims[d] - 1) * w.interior : 0);
        if (n < 0 || n > INT64_MAX)
            return st_invalid("padding makes dimension %d negative or too large", d);
        dims[d] = (int64_t)n;
    }
    *out = shape_make(a, s->dtype, dims, s->rank);
    return ST_OK;
}
status_t hlo_infer_slice(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_array(i, 0));
    const struct shape *s = rule_shape(i, 0);
    const struct ranges *r = &HLO_ATTR(i, slice)->slice;
    int64_t dims[HLO_MAX_RANK];
    if (r->n != s->rank) return st_invalid("%d ranges for %s", r->n, shape_text(a, s));
    for (int d = 0; d < s->rank; d++) {
        struct range x = r->v[d];
        if (x.start < 0 || x.limit < x.start || x.limit > s->dims[d] || x.stride < 1)
            return st_invalid("[%lld:%lld:%lld] in dimension %d of %s", (long long)x.start,
                              (long long)x.limit, (long long)x.stride, d, shape_text(a, s));
        dims[d] = x.limit > x.start ? (x.limit - x.start - 1) / x.stride + 1 : 0;
    }
    *out = shape_make(a, s->dtype, dims, s->rank);
    return ST_OK;
}

// Start indices: one scalar per dimension, or one vector (the older form).
static status_t check_starts(struct arena *a, const struct hlo_instr *i, int first, int rank) {
    int n = i->n_operands - first;
    bool vector =
        n == 1 && rule_shape(i, first)->rank == 1 && rule_shape(i, first)->dims[0] == rank;
    for (int k = first; k < i->n_operands; k++)
        if (!dtype_is_int(rule_shape(i, k)->dtype) || (!vector && rule_shape(i, k)->rank != 0))
            return st_invalid("start index %d is %s, expected an integer scalar", k - first,
                              shape_text(a, rule_shape(i, k)));
    if (!vector && n != rank) return st_invalid("%d start indices for rank %d", n, rank);
    return ST_OK;
}
status_t hlo_infer_dynamic_slice(struct arena *a, const struct hlo_instr *i,
                                 const struct shape **out) {
    if (i->n_operands < 1) return st_invalid("no operands");
    RETURN_IF_ERR(rule_arrays(i));
    const struct shape *s = rule_shape(i, 0);
    struct i64s n = HLO_ATTR(i, dynslice)->dynamic_slice_sizes;
    RETURN_IF_ERR(check_starts(a, i, 1, s->rank));
    if (n.n != s->rank) return st_invalid("%d sizes for %s", n.n, shape_text(a, s));
    for (int d = 0; d < n.n; d++)
        if (n.v[d] < 0 || n.v[d] > s->dims[d])
            return st_invalid("size %lld in dimension %d of %s", (long long)n.v[d], d,
                              shape_text(a, s));
    *out = shape_make(a, s->dtype, n.v, n.n);
    return ST_OK;
}
status_t hlo_infer_dynamic_update_slice(struct arena *a, const struct hlo_instr *i,
                                        const struct shape **out) {
    if (i->n_operands < 2) return st_invalid("%d operands, expected at least 2", i->n_operands);
    RETURN_IF_ERR(rule_arrays(i));
    const struct shape *s = rule_shape(i, 0), *u = rule_shape(i, 1);
    RETURN_IF_ERR(rule_same_dtype(a, i, 0, 1));
    RETURN_IF_ERR(check_starts(a, i, 2, s->rank));
    bool fits = u->rank == s->rank;
    for (int d = 0; fits && d < s->rank; d++)
        fits = u->dims[d] <= s->dims[d];
    if (!fits)
        return st_invalid("update %s does not fit into %s", shape_text(a, u), shape_text(a, s));
    *out = shape_with_layout(a, s, NULL);
    return ST_OK;
}
static status_t one_dim(const struct hlo_instr *i) {
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    RETURN_IF_ERR(rule_array(i, 0));
    RETURN_IF_ERR(rule_dims(d, rule_shape(i, 0)->rank, "dimensions"));
    return d.n == 1 ? ST_OK : st_invalid("dimensions must name one dimension");
}
status_t hlo_infer_get_dimension_size(struct arena *a, const struct hlo_instr *i,
                                      const struct shape **out) {
    RETURN_IF_ERR(one_dim(i));
    *out = shape_scalar(a, DT_S32);
    return ST_OK;
}
status_t hlo_infer_set_dimension_size(UNUSED struct arena *a, const struct hlo_instr *i,
                                      const struct shape **out) {
    RETURN_IF_ERR(one_dim(i));
    if (rule_shape(i, 1)->rank || !dtype_is_int(rule_shape(i, 1)->dtype))
        return st_invalid("the size is %s, expected an integer scalar",
                          shape_text(a, rule_shape(i, 1)));
    *out = i->shape ? i->shape : rule_shape(i, 0);
    return shape_same_dims(*out, rule_shape(i, 0))
               ? ST_OK
               : st_invalid("the bound must stay %s", shape_text(a, rule_shape(i, 0)));
}

// Operand 0 and one scalar size for each dimension of the declared result.
status_t hlo_infer_dynamic_reshape(struct arena *a, const struct hlo_instr *i,
                                   const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(hlo_infer_declared(a, i, out));
    const struct shape *x = rule_shape(i, 0), *r = i->shape;
    if (shape_is_tuple(r) || r->dtype != x->dtype || shape_elements(r) != shape_elements(x) ||
        i->n_operands != r->rank + 1)
        return st_invalid("%s with %d sizes gives %s", shape_text(a, x), i->n_operands - 1,
                          shape_text(a, r));
    for (int k = 1; k < i->n_operands; k++)
        if (rule_shape(i, k)->rank || !dtype_is_int(rule_shape(i, k)->dtype))
            return st_invalid("operand %d is %s, expected a scalar integer", k,
                              shape_text(a, rule_shape(i, k)));
    return ST_OK;
}

// ---- gather and scatter (XLA operation semantics, "Gather", "Scatter")

static status_t index_dims(struct arena *a, const struct shape *idx, int64_t ivd, int64_t n_map,
                           int64_t *batch, int *n_batch) {
    if (!dtype_is_int(idx->dtype))
        return st_invalid("indices are %s, expected integers", shape_text(a, idx));
    if (ivd < 0 || ivd > idx->rank)
        return st_invalid("index_vector_dim %lld of %s", (long long)ivd, shape_text(a, idx));
    if ((ivd == idx->rank ? 1 : idx->dims[ivd]) != n_map)
        return st_invalid("%lld mapped dimensions for indices %s", (long long)n_map,
                          shape_text(a, idx));
    *n_batch = 0;
    for (int d = 0; d < idx->rank; d++)
        if (d != ivd) batch[(*n_batch)++] = idx->dims[d];
    return ST_OK;
}

// Paired batching dimensions have the same size, and none is the index vector's.
static status_t batching_dims(const struct shape *s, struct i64s dims, const struct shape *idx,
                              struct i64s idx_dims, int64_t ivd) {
    if (dims.n != idx_dims.n)
        return st_invalid("batching dimensions of operand and indices differ in number");
    for (int k = 0; k < dims.n; k++)
        if (idx_dims.v[k] == ivd || s->dims[dims.v[k]] != idx->dims[idx_dims.v[k]])
            return st_invalid("batching dimension %lld of the operand does not match %lld of the "
                              "indices",
                              (long long)dims.v[k], (long long)idx_dims.v[k]);
    return ST_OK;
}
static status_t disjoint(struct i64s x, struct i64s y, const char *what) {
    for (int k = 0; k < x.n; k++)
        if (i64s_has(y, x.v[k]))
            return st_invalid("dimension %lld is twice in %s", (long long)x.v[k], what);
    return ST_OK;
}

status_t hlo_infer_gather(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    RETURN_IF_ERR(rule_arrays(i));
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct shape *s = rule_shape(i, 0);
    int64_t batch[HLO_MAX_RANK], dims[HLO_MAX_RANK], window[HLO_MAX_RANK];
    int nb, nw = 0, rank, b = 0, w = 0;

    RETURN_IF_ERR(
        index_dims(a, rule_shape(i, 1), g->index_vector_dim, g->start_index_map.n, batch, &nb));
    RETURN_IF_ERR(rule_dims(g->start_index_map, s->rank, "start_index_map"));
    RETURN_IF_ERR(rule_dims(g->collapsed_slice_dims, s->rank, "collapsed_slice_dims"));
    RETURN_IF_ERR(rule_dims(g->operand_batching_dims, s->rank, "operand_batching_dims"));
    RETURN_IF_ERR(rule_dims(g->start_indices_batching_dims, rule_shape(i, 1)->rank,
                            "start_indices_batching_dims"));

    RETURN_IF_ERR(batching_dims(s, g->operand_batching_dims, rule_shape(i, 1),
                                g->start_indices_batching_dims, g->index_vector_dim));
    RETURN_IF_ERR(disjoint(g->operand_batching_dims, g->collapsed_slice_dims,
                           "collapsed_slice_dims and operand_batching_dims"));
    RETURN_IF_ERR(disjoint(g->operand_batching_dims, g->start_index_map,
                           "start_index_map and operand_batching_dims"));

    if (g->slice_sizes.n != s->rank)
        return st_invalid("%d slice sizes for %s", g->slice_sizes.n, shape_text(a, s));
    for (int d = 0; d < s->rank; d++) {
        int64_t n = g->slice_sizes.v[d];
        bool dropped =
            i64s_has(g->collapsed_slice_dims, d) || i64s_has(g->operand_batching_dims, d);
        if (n < 0 || n > s->dims[d] || (dropped && n > 1))
            return st_invalid("slice size %lld in dimension %d of %s", (long long)n, d,
                              shape_text(a, s));
        if (!dropped) window[nw++] = n;
    }

    rank = nb + nw;
    if (g->offset_dims.n != nw || rank > HLO_MAX_RANK)
        return st_invalid("%d offset dimensions, the slices have %d", g->offset_dims.n, nw);
    RETURN_IF_ERR(rule_dims(g->offset_dims, rank, "offset_dims"));

    for (int d = 0; d < rank; d++)
        dims[d] = i64s_has(g->offset_dims, d) ? window[w++] : batch[b++];
    *out = shape_make(a, s->dtype, dims, rank);
    return ST_OK;
}

// The dimensions that the attributes of a scatter name, against the first input, the indices and
// the first updates.
static status_t scatter_dims(struct arena *a, const struct hlo_instr *i,
                             const struct hlo_attr_scatter *sc) {
    int n = i->n_operands / 2, nb, b = 0, w = 0;
    int64_t batch[HLO_MAX_RANK];
    const struct shape *s = rule_shape(i, 0), *u = rule_shape(i, n + 1);

    RETURN_IF_ERR(index_dims(a, rule_shape(i, n), sc->index_vector_dim,
                             sc->scatter_dims_to_operand_dims.n, batch, &nb));
    RETURN_IF_ERR(rule_dims(sc->update_window_dims, u->rank, "update_window_dims"));
    RETURN_IF_ERR(rule_dims(sc->inserted_window_dims, s->rank, "inserted_window_dims"));
    RETURN_IF_ERR(
        rule_dims(sc->scatter_dims_to_operand_dims, s->rank, "scatter_dims_to_operand_dims"));
    RETURN_IF_ERR(rule_dims(sc->input_batching_dims, s->rank, "input_batching_dims"));
    RETURN_IF_ERR(rule_dims(sc->scatter_indices_batching_dims, rule_shape(i, n)->rank,
                            "scatter_indices_batching_dims"));

    RETURN_IF_ERR(batching_dims(s, sc->input_batching_dims, rule_shape(i, n),
                                sc->scatter_indices_batching_dims, sc->index_vector_dim));
    RETURN_IF_ERR(disjoint(sc->input_batching_dims, sc->inserted_window_dims,
                           "inserted_window_dims and input_batching_dims"));
    RETURN_IF_ERR(disjoint(sc->input_batching_dims, sc->scatter_dims_to_operand_dims,
                           "scatter_dims_to_operand_dims and input_batching_dims"));

    if (sc->update_window_dims.n + sc->inserted_window_dims.n + sc->input_batching_dims.n !=
        s->rank)
        return st_invalid("window dimensions do not cover operand %s", shape_text(a, s));
    if (u->rank != sc->update_window_dims.n + nb)
        return st_invalid("updates %s do not match the indices", shape_text(a, u));

    for (int d = 0; d < u->rank; d++) {
        if (i64s_has(sc->update_window_dims, d)) {
            while (i64s_has(sc->inserted_window_dims, w) || i64s_has(sc->input_batching_dims, w))
                w++;
            if (u->dims[d] > s->dims[w++])
                return st_invalid("updates %s are larger than operand %s", shape_text(a, u),
                                  shape_text(a, s));
        } else if (u->dims[d] != batch[b++]) {
            return st_invalid("updates %s do not match the indices in dimension %d",
                              shape_text(a, u), d);
        }
    }
    return ST_OK;
}
status_t hlo_infer_scatter(struct arena *a, const struct hlo_instr *i, const struct shape **out) {
    int n = i->n_operands / 2;
    if (i->n_operands < 3 || i->n_operands % 2 == 0)
        return st_invalid("%d operands, expected N inputs, indices, N updates", i->n_operands);
    RETURN_IF_ERR(rule_arrays(i));
    RETURN_IF_ERR(scatter_dims(a, i, HLO_ATTR(i, scatter)));
    for (int k = 1; k < n; k++) {
        RETURN_IF_ERR(rule_same_dims(a, i, k, 0));
        RETURN_IF_ERR(rule_same_dims(a, i, n + 1 + k, n + 1));
    }

    const struct shape **result = arena_array(a, const struct shape *, n);
    RETURN_IF_ERR(rule_scalar_callee(i, 0, 2 * n, n, result));
    if (n == 1) {
        *out = shape_with_layout(a, rule_shape(i, 0), NULL);
        return ST_OK;
    }

    const struct shape **e = arena_array(a, const struct shape *, n);
    for (int k = 0; k < n; k++)
        e[k] = rule_shape(i, k);
    *out = shape_tuple(a, e, n);
    return ST_OK;
}
