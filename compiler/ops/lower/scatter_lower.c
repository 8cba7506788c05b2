// SPDX-License-Identifier: Apache-2.0
// Kernels of scatter and select-and-scatter: one unit, because updates may meet; the result is
// filled first, by the kernel or (plan_updates_alone) before it, then updated in order, read and
// written in place.
#include "compiler/kernel/lower.h"
#include "compiler/ops/lower/lower_rules.h"
#include "compiler/plan/in_place.h"

struct nest {
    struct kir_loop *loop[HLO_MAX_RANK + 1];
    int n;
};
// Nested loops over dims; index[d] is the loop variable. Those from `joined` on are one loop, the
// innermost.
static void open_joined(struct lower *lw, const int64_t *dims, int rank, int joined,
                        struct nest *nest, struct kir_val **index) {
    struct kir *k = &lw->k;
    nest->n = joined < rank - 1 ? joined + 1 : rank;
    for (int d = 0; d < nest->n; d++) {
        int64_t n = dims[d];
        for (int r = nest->n; d == nest->n - 1 && r < rank; r++)
            n *= dims[r];
        nest->loop[d] = kir_for(k, kir_i64(k, 0), kir_i64(k, n), n, NULL, 0);
        index[d] = nest->loop[d]->var;
    }
    if (nest->n < rank)
        lower_unflatten(lw, index[joined], dims + joined, rank - joined, index + joined);
}
static void open_nest(struct lower *lw, const int64_t *dims, int rank, struct nest *nest,
                      struct kir_val **index) {
    open_joined(lw, dims, rank, rank, nest, index);
}
static void close_nest(struct lower *lw, struct nest *nest) {
    for (int d = nest->n - 1; d >= 0; d--)
        kir_end(&lw->k, nest->loop[d], NULL);
}
static struct kir_val *both(struct kir *k, struct kir_val *x, struct kir_val *y) {
    return kir_op(k, K_AND, x, y, NULL);
}
// Do the computation's parameters have the operands' types? (The evaluator converts, kernels do
// not.)
static bool plain_types(const struct hlo_computation *c, enum dtype t) {
    for (size_t p = 0; p < c->params.n; p++)
        if (c->params.v[p]->shape->dtype != t) return false;
    return true;
}

// The operand position of an update, whether its window fits, and the position to use.
static status_t position(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *x,
                         struct kir_val **at, struct kir_val **inside) {
    const struct hlo_attr_scatter *sc = HLO_ATTR(i, scatter);
    struct kir *k = &lw->k;
    int n = i->n_operands / 2, nb = 0, w = 0, b = 0;
    const struct shape *s = i->operands[0]->shape, *ix = i->operands[n]->shape,
                       *u = i->operands[n + 1]->shape;
    struct kir_val *batch[HLO_MAX_RANK + 1], *sel[HLO_MAX_RANK + 1], *v;

    for (int d = 0; d < u->rank; d++)
        if (!i64s_has(sc->update_window_dims, d)) batch[nb++] = x[d];
    for (int d = 0; d < ix->rank; d++)
        sel[d] = d == sc->index_vector_dim ? kir_i64(k, 0) : batch[b++];
    for (int d = 0; d < s->rank; d++)
        at[d] = kir_i64(k, 0);

    for (int m = 0; m < sc->scatter_dims_to_operand_dims.n; m++) {
        if (sc->index_vector_dim < ix->rank) sel[sc->index_vector_dim] = kir_i64(k, m);
        RETURN_IF_ERR(lower_operand(lw, i, n, sel, &v));
        if (v->type == DT_U64) v = kir_op(k, K_MIN, v, kir_int(k, DT_U64, INT64_MAX), NULL);
        at[sc->scatter_dims_to_operand_dims.v[m]] = kir_cast(k, DT_S64, v);
    }
    for (int m = 0; m < sc->input_batching_dims.n; m++)
        at[sc->input_batching_dims.v[m]] = sel[sc->scatter_indices_batching_dims.v[m]];

    *inside = kir_int(k, DT_PRED, 1);
    for (int d = 0; d < s->rank; d++) {
        if (i64s_has(sc->input_batching_dims, d)) continue; // as many as the indices have
        bool window = !i64s_has(sc->inserted_window_dims, d);
        int64_t from = window ? sc->update_window_dims.v[w++] : 0,
                size = window ? u->dims[from] : 1;
        *inside = both(k, *inside, kir_cmp(k, CMP_GE, at[d], kir_i64(k, 0)));
        *inside = both(k, *inside, kir_cmp(k, CMP_LE, at[d], kir_i64(k, s->dims[d] - size)));
        at[d] = kir_idx_clamp(k, at[d], 0, s->dims[d] > size ? s->dims[d] - size : 0);
        if (window) at[d] = kir_idx_add(k, at[d], x[from]);
    }
    return ST_OK;
}

// The first of an update's last dimensions that lie one behind the other in the operand as well:
// windows as long as the operand, but for the first of them. Short ones (heads, colours) would each
// be a loop of their own. Else the last.
static int joined_from(const struct hlo_instr *i) {
    const struct hlo_attr_scatter *sc = HLO_ATTR(i, scatter);
    int n = i->n_operands / 2, joined = 0;
    const struct shape *s = i->operands[0]->shape, *u = i->operands[n + 1]->shape;
    for (int o = 0; o < i->n_operands; o++)
        if (!layout_is_default(i->operands[o]->shape->layout, i->operands[o]->shape->rank))
            return u->rank - 1;
    for (int r = 0; r < n; r++) {
        const struct shape *to = shape_is_tuple(i->shape) ? shape_leaf(i->shape, r) : i->shape;
        if (!layout_is_default(to->layout, to->rank)) return u->rank - 1;
    }
    for (;; joined++) { // from the last on
        int from = u->rank - 1 - joined, to = s->rank - 1 - joined;
        bool window = from >= 0 && to >= 0 && i64s_has(sc->update_window_dims, from) &&
                      !i64s_has(sc->inserted_window_dims, to) &&
                      !i64s_has(sc->input_batching_dims, to);
        if (!window) break;
        if (u->dims[from] != s->dims[to]) return from;
    }
    return joined ? u->rank - joined : u->rank - 1;
}

// ---- updates as integers

static bool plain_extreme(const struct hlo_computation *c, bool *largest) {
    enum hlo_op op;
    if (!hlo_reducer_op(c, &op)) return false;
    *largest = op == HLO_MAXIMUM;
    return *largest || op == HLO_MINIMUM;
}
// A half as an integer in the order of its type, NaN before all, -0 below 0; and back.
static struct kir_val *order(struct kir *k, struct kir_val *bits) {
    struct kir_val *sign = kir_op(k, K_SHR, bits, kir_int(k, DT_S32, 31), NULL);
    return kir_op(k, K_XOR, bits, kir_op(k, K_AND, sign, kir_int(k, DT_S32, INT16_MAX), NULL),
                  NULL);
}
static struct kir_val *key_of(struct kir *k, enum dtype t, struct kir_val *code, bool largest) {
    struct kir_val *bits = kir_cast(k, DT_S32, kir_bits(k, DT_S16, code)),
                   *size = kir_op(k, K_AND, bits, kir_int(k, DT_S32, INT16_MAX), NULL),
                   *most = kir_int(k, DT_S32, t == DT_F16 ? 0x7c00 : 0x7f80),
                   *nan = kir_int(k, DT_S32, largest ? INT16_MAX : INT16_MIN);
    return kir_select(k, kir_cmp(k, CMP_GT, size, most), nan, order(k, bits));
}
static struct kir_val *extreme_of(struct kir *k, enum dtype t, struct kir_val *const *code,
                                  bool largest) {
    struct kir_val *r = kir_op(k, largest ? K_MAX : K_MIN, key_of(k, t, code[0], largest),
                               key_of(k, t, code[1], largest), NULL);
    return kir_bits(k, DT_U16, kir_cast(k, DT_S16, order(k, r)));
}
// What an element becomes. Values that kernels compute in wider types stay as they lie in memory
// (lw->moves) where updates take their place, and the larger or smaller half is one of integers:
// each update of an element waits for the one before it, conversions and all.
static status_t updated(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *args,
                        struct kir_val **out) {
    bool largest;
    if (!lw->moves) return lower_call(lw, i->called[0], args, i->n_operands - 1, out);
    *out = plain_extreme(i->called[0], &largest)
               ? extreme_of(&lw->k, i->shape->dtype, args, largest)
               : args[i->called[0]->root == i->called[0]->params.v[1]];
    return ST_OK;
}
static bool by_integers(const struct lower *lw, const struct hlo_instr *i) {
    const struct hlo_computation *c = i->called[0];
    enum dtype t = i->n_operands == 3 ? i->operands[0]->shape->dtype : DT_PRED;
    bool largest, moved = c->root && c->root->op == HLO_PARAMETER;
    if (lw->policy->tiles != TILES_OF_CPU || !lw->policy->has_s64 || lower_moved(t) == t)
        return false;
    return moved || ((t == DT_F16 || t == DT_BF16) && plain_extreme(c, &largest));
}

WHOLE(SCATTER) {
    struct kir *k = &lw->k;
    int n = i->n_operands / 2;
    const struct shape *s = i->operands[0]->shape, *u = i->operands[n + 1]->shape;
    struct kir_val *index[HLO_MAX_RANK + 1], *at[HLO_MAX_RANK + 1], *inside, *v;
    struct kir_val *args[2 * LOWER_MAX_RESULTS], *out[LOWER_MAX_RESULTS];
    struct nest nest;

    if (n > LOWER_MAX_RESULTS) return lower_no(lw, "too many operands");
    for (int o = 0; o < n; o++)
        if (i->called[0]->params.v[o]->shape->dtype != i->operands[o]->shape->dtype ||
            i->called[0]->params.v[n + o]->shape->dtype != i->operands[n + 1 + o]->shape->dtype)
            return lower_no(lw, "a computation of other types");

    lw->moves = by_integers(lw, i);
    k->fn->extent = 1;
    struct kir_loop *unit = kir_for(k, k->fn->begin, k->fn->end, 1, NULL, 0);
    if (shape_elements(s) && !plan_updates_alone(i)) {
        open_nest(lw, s->dims, s->rank, &nest, index);
        for (int o = 0; o < n; o++) {
            RETURN_IF_ERR(lower_operand(lw, i, o, index, &v));
            lower_put(lw, i, o, index, v);
        }
        if (nest.n) nest.loop[nest.n - 1]->vectorize = true;
        close_nest(lw, &nest);
    }

    if (shape_elements(s) && shape_elements(u)) {
        open_joined(lw, u->dims, u->rank, joined_from(i), &nest, index);
        RETURN_IF_ERR(position(lw, i, index, at, &inside));
        // Only updates of different windows meet.
        bool row = i64s_has(HLO_ATTR(i, scatter)->update_window_dims, u->rank - 1);
        // A window of one element that does not fit is passed over: a loop of no turns.
        struct kir_loop *fits =
            row ? NULL : kir_for(k, kir_i64(k, 0), kir_cast(k, DT_S64, inside), 1, NULL, 0);
        for (int o = 0; o < n; o++) {
            args[o] = lower_get(lw, i, o, at);
            RETURN_IF_ERR(lower_operand(lw, i, n + 1 + o, index, &args[n + o]));
        }
        RETURN_IF_ERR(updated(lw, i, args, out));
        for (int o = 0; o < n; o++)
            lower_put(lw, i, o, at, row ? kir_select(k, inside, out[o], args[o]) : out[o]);
        if (fits) kir_end(k, fits, NULL);
        if (row) nest.loop[nest.n - 1]->vectorize = true;
        close_nest(lw, &nest);
    }

    kir_end(k, unit, NULL);
    return ST_OK;
}

// One position of a window on the operand: where, and whether it lies on a value.
static struct kir_val *tap(struct lower *lw, const struct window_dim *w, int64_t size,
                           struct kir_val *o, struct kir_val *p, struct kir_val **at) {
    struct kir *k = &lw->k;
    int64_t last = (size - 1) * w->base_dilation;
    struct kir_val *x =
        kir_idx_add(k, kir_idx_mul(k, o, w->stride), kir_idx_mul(k, p, w->window_dilation));
    x = kir_idx_add(k, x, kir_i64(k, -w->pad_low));
    struct kir_val *ok =
        both(k, kir_cmp(k, CMP_GE, x, kir_i64(k, 0)), kir_cmp(k, CMP_LE, x, kir_i64(k, last)));
    x = kir_idx_clamp(k, x, 0, last);
    if (w->base_dilation > 1) {
        ok = both(k, ok,
                  kir_cmp(k, CMP_EQ, kir_idx_divmod(k, x, 1, w->base_dilation), kir_i64(k, 0)));
        x = kir_idx_divmod(k, x, w->base_dilation, 0);
    }
    *at = x;
    return ok;
}

// The first element of the window that `select` keeps: found, its linear position, its value.
static status_t choose(struct lower *lw, const struct hlo_instr *i, struct kir_val *const *o,
                       struct kir_val **best) {
    struct kir *k = &lw->k;
    const struct window *w = &HLO_ATTR(i, window)->window;
    const struct shape *s = i->operands[0]->shape;
    int64_t sizes[HLO_MAX_RANK + 1], total = 1;
    struct kir_val *pos[HLO_MAX_RANK + 1], *at[HLO_MAX_RANK + 1], *ok = kir_int(k, DT_PRED, 1), *x,
                                                                  *keep, *next[3];
    for (int d = 0; d < w->n; d++)
        total *= sizes[d] = w->v[d].size;
    struct kir_val *none[3] = {kir_int(k, DT_PRED, 0), kir_i64(k, 0), kir_zero(k, s->dtype)};
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, total), total, none, 3);
    lower_unflatten(lw, l->var, sizes, w->n, pos);
    for (int d = 0; d < w->n; d++)
        ok = both(k, ok, tap(lw, &w->v[d], s->dims[d], o[d], pos[d], &at[d]));
    RETURN_IF_ERR(lower_operand(lw, i, 0, at, &x));
    RETURN_IF_ERR(lower_call(lw, i->called[0], (struct kir_val *[]){l->carry[2], x}, 2, &keep));
    struct kir_val *no = kir_op(k, K_XOR, both(k, l->carry[0], keep), kir_int(k, DT_PRED, 1), NULL);
    struct kir_val *take = both(k, ok, no);
    next[0] = kir_op(k, K_OR, l->carry[0], ok, NULL);
    next[1] = kir_select(k, take, lower_flatten(lw, at, s->dims, s->rank), l->carry[1]);
    next[2] = kir_select(k, take, x, l->carry[2]);
    kir_end(k, l, next);
    memcpy(best, l->result, sizeof *best * 3);
    return ST_OK;
}

WHOLE(SELECT_AND_SCATTER) {
    struct kir *k = &lw->k;
    const struct shape *s = i->operands[0]->shape, *u = i->operands[1]->shape;
    struct kir_val *index[HLO_MAX_RANK + 1], *at[HLO_MAX_RANK + 1], *best[3], *args[2], *v;
    struct nest nest;

    if (dtype_is_complex(s->dtype) || !plain_types(i->called[0], s->dtype) ||
        !plain_types(i->called[1], s->dtype))
        return lower_no(lw, "a computation of other types");

    k->fn->extent = shape_elements(s) ? 1 : 0;
    struct kir_loop *unit = kir_for(k, k->fn->begin, k->fn->end, 1, NULL, 0);
    if (shape_elements(s)) {
        open_nest(lw, s->dims, s->rank, &nest, index);
        RETURN_IF_ERR(lower_operand(lw, i, 2, NULL, &v));
        lower_put(lw, i, 0, index, v);
        if (nest.n) nest.loop[nest.n - 1]->vectorize = true;
        close_nest(lw, &nest);
    }

    if (shape_elements(s) && shape_elements(u)) {
        open_nest(lw, u->dims, u->rank, &nest, index);
        RETURN_IF_ERR(choose(lw, i, index, best));
        best[1]->lo = 0;
        best[1]->hi = shape_elements(s) - 1;
        lower_unflatten(lw, best[1], s->dims, s->rank, at);
        args[0] = lower_get(lw, i, 0, at);
        RETURN_IF_ERR(lower_operand(lw, i, 1, index, &args[1]));
        RETURN_IF_ERR(lower_call(lw, i->called[1], args, 2, &v));
        lower_put(lw, i, 0, at, kir_select(k, best[0], v, args[0]));
        close_nest(lw, &nest);
    }

    kir_end(k, unit, NULL);
    return ST_OK;
}
