// SPDX-License-Identifier: Apache-2.0
// Evaluation of gather and scatter with batching dimensions (XLA operation semantics, "Gather",
// "Scatter"). An index vector is read along index_vector_dim; start_index_map says which dimension
// of the operand each of its components moves along. Gather clamps, scatter skips what does not
// fit.
#include "compiler/ops/eval_rules.h"
#include "compiler/ops/index.h"

// The operand position that index vector number `b` points at, before clamping.
static void start_of(const struct literal *idx, const int64_t *batch, int64_t ivd, struct i64s map,
                     int64_t *start) {
    int64_t at[HLO_MAX_RANK + 1];
    const struct shape *s = idx->shape;
    for (int k = 0; k < map.n; k++) {
        int b = 0;
        for (int d = 0; d < s->rank; d++)
            at[d] = d == ivd ? k : batch[b++];
        start[map.v[k]] = lit_get_start(idx, index_linear(at, s->dims, s->rank));
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
                if (g->operand_batching_dims.v[b] == d) { // paired with one of the indices
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
    RETURN_IF_ERR(hlo_fn_open(ev, i->called[0], 2 * n, n, &f));
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
            if (inside) at[d] += offset;
        }

        if (inside && !st) {
            int64_t to = index_linear(at, s->dims, s->rank);
            for (int k = 0; k < n; k++) {
                element_copy(hlo_fn_arg(f, k), 0, r[k], to);
                element_copy(hlo_fn_arg(f, n + k), 0, in[n + 1 + k], j);
            }
            st = hlo_fn_call(f, &result);
            for (int k = 0; k < n && !st; k++)
                element_copy(r[k], to, shape_is_tuple(result->shape) ? result->elems[k] : result,
                             0);
        }
        j++;
    }

    hlo_fn_close(f);
    *out = n == 1 ? r[0] : lit_tuple(ev->arena, i->shape, r);
    return st;
}
