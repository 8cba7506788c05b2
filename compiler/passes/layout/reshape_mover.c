// SPDX-License-Identifier: Apache-2.0
// Moves reshapes and transposes towards the results: op(move(x), move(y)) -> move(op(x, y)) for
// elementwise operations, and for transposes also slices, pads, reverses, concatenates, windows and
// gathers.
// On the way they meet others and cancel (algsimp), and what they stood between fuses. A movement
// is taken along only when nothing else uses it, so there are never more of them than before;
// scalars, broadcasts, constants and weights are written in the other shape instead.
#include "compiler/passes/pass.h"

enum { MAX_OPERANDS = 64 };

static bool is_move(const struct hlo_instr *i) {
    return i->op == HLO_RESHAPE || i->op == HLO_TRANSPOSE;
}
static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && !i->shape->dynamic && !i->control_preds.n &&
           layout_is_default(i->shape->layout, i->shape->rank);
}
static struct i64s perm_of(const struct hlo_instr *t) {
    return HLO_ATTR(t, dims)->dimensions;
}
static bool same_move(const struct hlo_instr *a, const struct hlo_instr *b) {
    return a->op == b->op && plain(a) && plain(b->operands[0]) &&
           shape_same_dims(a->operands[0]->shape, b->operands[0]->shape) &&
           (a->op == HLO_RESHAPE || i64s_eq(perm_of(a), perm_of(b)));
}
static bool only_user(const struct hlo_instr *x, const struct hlo_instr *u) {
    for (size_t k = 0; k < x->users.n; k++)
        if (x->users.v[k] != u) return false;
    return x->parent->root != x;
}

// The dimension of m's operand that is dimension d of m's result: the same size, the same number of
// elements behind it. -1 when there is none.
static int source_dim(const struct hlo_instr *m, int64_t d) {
    if (m->op == HLO_TRANSPOSE) return (int)perm_of(m).v[d];
    const struct shape *from = m->operands[0]->shape, *to = m->shape;
    int64_t behind = 1, at = 1;
    for (int k = to->rank - 1; k > d; k--)
        behind *= to->dims[k];
    for (int k = from->rank - 1; k >= 0; k--) {
        if (at == behind && from->dims[k] == to->dims[d] && to->dims[d] != 1) return k;
        at *= from->dims[k];
    }
    return -1;
}
static bool source_map(const struct hlo_instr *m, const struct hlo_instr *broadcast, int64_t *map) {
    struct i64s d = HLO_ATTR(broadcast, dims)->dimensions;
    for (int k = 0; k < d.n; k++) {
        map[k] = source_dim(m, d.v[k]);
        if (map[k] < 0 || (k && map[k] <= map[k - 1])) return false;
    }
    return true;
}

static bool can_undo(const struct hlo_instr *m, const struct hlo_instr *x,
                     const struct hlo_instr *u) {
    int64_t map[HLO_MAX_RANK];
    if (x->shape->rank == 0 && m->shape->rank) return true; // a predicate, a bound of clamp
    if (is_move(x) && same_move(m, x)) return only_user(x, u);
    if (x->op == HLO_BROADCAST) return source_map(m, x, map);
    return x->op == HLO_CONSTANT || (x->op == HLO_PARAMETER && x->param_kind == PARAM_WEIGHT);
}
// x as it was before m.
static struct hlo_instr *undo(struct hb *b, const struct hlo_instr *m, struct hlo_instr *x) {
    const struct shape *from = m->operands[0]->shape;
    int64_t map[HLO_MAX_RANK];
    if (x->shape->rank == 0 && m->shape->rank) return x;
    if (is_move(x) && same_move(m, x)) return x->operands[0];
    if (x->op == HLO_BROADCAST) {
        source_map(m, x, map);
        return hb_broadcast(b, x->operands[0], from->dims, from->rank, map);
    }
    if (m->op == HLO_RESHAPE) return hb_reshape(b, x, from->dims, from->rank);
    for (int d = 0; d < from->rank; d++)
        map[perm_of(m).v[d]] = d;
    return hb_transpose(b, x, map);
}
static struct hlo_instr *redo(struct hb *b, const struct hlo_instr *m, struct hlo_instr *x,
                              const struct shape *to) {
    return m->op == HLO_RESHAPE ? hb_reshape(b, x, to->dims, to->rank)
                                : hb_transpose(b, x, perm_of(m).v);
}

static struct hlo_instr *through_elementwise(struct hb *b, struct hlo_instr *u) {
    const struct hlo_instr *m = NULL;
    struct hlo_instr *in[MAX_OPERANDS];
    for (int k = 0; k < u->n_operands && !m; k++)
        if (is_move(u->operands[k]) && shape_same_dims(u->operands[k]->shape, u->shape))
            m = u->operands[k];
    if (!m || !plain(u) || !plain(m) || !plain(m->operands[0])) return NULL;
    if (u->shape->rank == 0 && m->operands[0]->shape->rank) return NULL; // scalars stay as they are
    for (int k = 0; k < u->n_operands; k++)
        if (!can_undo(m, u->operands[k], u)) return NULL;
    for (int k = 0; k < u->n_operands; k++)
        in[k] = undo(b, m, u->operands[k]);
    const struct shape *from = m->operands[0]->shape;
    struct hlo_instr *r = hb_op(
        b, u->op, shape_make(u->parent->module->arena, u->shape->dtype, from->dims, from->rank), in,
        u->n_operands, u->attr);
    return redo(b, m, r, u->shape);
}

// Operations that name dims: the transpose goes through when their attributes are permuted with it.
static struct hlo_instr *through_dims(struct hb *b, struct hlo_instr *u) {
    const struct hlo_instr *m = u->operands[0];
    int rank = u->shape->rank;
    struct hlo_instr *x, *r = NULL;

    if (m->op != HLO_TRANSPOSE || !plain(u) || !plain(m) || !plain(m->operands[0]) ||
        !only_user(m, u))
        return NULL;
    struct i64s perm = perm_of(m);
    x = m->operands[0];

    if (u->op == HLO_SLICE) {
        struct range v[HLO_MAX_RANK];
        for (int d = 0; d < rank; d++)
            v[perm.v[d]] = HLO_ATTR(u, slice)->slice.v[d];
        r = hb_slice(b, x, v);
    } else if (u->op == HLO_PAD) {
        struct pad_dim v[HLO_MAX_RANK];
        for (int d = 0; d < rank; d++)
            v[perm.v[d]] = HLO_ATTR(u, pad)->padding.v[d];
        r = hb_pad(b, x, u->operands[1], v);
    } else if (u->op == HLO_REVERSE) {
        struct i64s d = HLO_ATTR(u, dims)->dimensions;
        int64_t v[HLO_MAX_RANK];
        for (int k = 0; k < d.n; k++)
            v[k] = perm.v[d.v[k]];
        r = hb_reverse(b, x, v, d.n);
    } else if (u->op == HLO_REDUCE_WINDOW && u->n_operands == 2 &&
               HLO_ATTR(u, window)->window.n == rank) {
        struct window_dim v[HLO_MAX_RANK];
        for (int d = 0; d < rank; d++)
            v[perm.v[d]] = HLO_ATTR(u, window)->window.v[d];
        r = hb_call(b, u->op, NULL, (hv[]){x, u->operands[1]}, 2,
                    &(struct hlo_attr_window){.window = {v, rank}}, u->called, 1);
    }

    return r ? redo(b, m, r, u->shape) : NULL;
}

static struct hlo_instr *through_concat(struct hb *b, struct hlo_instr *u) {
    struct hlo_instr *m = u->operands[0], *in[MAX_OPERANDS];
    if (m->op != HLO_TRANSPOSE || u->n_operands > MAX_OPERANDS || !plain(u)) return NULL;
    for (int k = 0; k < u->n_operands; k++) {
        struct hlo_instr *x = u->operands[k];
        if (x->op != HLO_TRANSPOSE || !i64s_eq(perm_of(x), perm_of(m)) || !plain(x) ||
            !plain(x->operands[0]) || !only_user(x, u))
            return NULL;
        in[k] = x->operands[0];
    }
    int64_t d = perm_of(m).v[HLO_ATTR(u, dims)->dimensions.v[0]];
    return redo(b, m, hb_concat(b, in, u->n_operands, d), u->shape);
}

// What a gather reads lies in x, the operand's operand if that is a transpose. Its slices come out
// as they lie in x, behind the dims of the indices, and a transpose puts them where they were asked
// for: a row is one movement, not one of each element. Only for slices with more than a few
// elements in x's last dim, or of one element, which have no order.
struct rows {
    struct hlo_instr *x;
    int64_t perm[HLO_MAX_RANK];   // dim of x of each dim of the operand
    int64_t offset[HLO_MAX_RANK]; // dim of the result of each dim of x that a slice keeps, else -1
};
static bool rows_of(const struct hlo_instr *u, struct rows *r) {
    enum { ROW = 8 };
    const struct hlo_attr_gather *g = HLO_ATTR(u, gather);
    struct hlo_instr *m = u->operands[0];
    int rank = m->shape->rank, kept = 0;
    bool turned = m->op == HLO_TRANSPOSE;
    r->x = turned ? m->operands[0] : m;
    if (!rank || !plain(u) || !plain(m) || !plain(r->x) || !plain(u->operands[1]) ||
        g->operand_batching_dims.n)
        return false;

    int64_t slice = 1;
    for (int d = 0; d < rank; d++) {
        r->perm[d] = turned ? perm_of(m).v[d] : d;
        bool gone = i64s_has(g->collapsed_slice_dims, d);
        r->offset[r->perm[d]] = gone ? -1 : g->offset_dims.v[kept++];
        slice *= g->slice_sizes.v[d];
    }
    int64_t last = r->offset[rank - 1];
    if (slice == 1) return turned;
    return last >= 0 && u->shape->dims[last] >= ROW && (turned || last != u->shape->rank - 1);
}
static struct hlo_instr *through_gather(struct hb *b, struct hlo_instr *u) {
    const struct hlo_attr_gather *g = HLO_ATTR(u, gather);
    struct rows r;
    if (!rows_of(u, &r)) return NULL;
    int64_t at[HLO_MAX_RANK], gone[HLO_MAX_RANK], map[HLO_MAX_RANK], size[HLO_MAX_RANK],
        back[HLO_MAX_RANK];
    int rank = r.x->shape->rank, to = u->shape->rank, n_gone = 0, n = 0;
    for (int d = 0; d < rank; d++)
        size[r.perm[d]] = g->slice_sizes.v[d];
    for (int k = 0; k < g->start_index_map.n; k++)
        map[k] = r.perm[g->start_index_map.v[k]];
    for (int d = 0; d < rank; d++)
        if (r.offset[d] < 0) gone[n_gone++] = d;

    for (int d = 0; d < to; d++)
        if (!i64s_has(g->offset_dims, d)) back[d] = n++;
    for (int d = 0, k = 0; d < rank; d++)
        if (r.offset[d] >= 0) back[r.offset[d]] = n + k, at[k] = n + k, k++;
    struct hlo_attr_gather rows = *g;
    rows.offset_dims = (struct i64s){at, to - n};
    rows.collapsed_slice_dims = (struct i64s){gone, n_gone};
    rows.start_index_map = (struct i64s){map, g->start_index_map.n};
    rows.slice_sizes = (struct i64s){size, rank};
    return hb_transpose(b, hb_gather(b, r.x, u->operands[1], &rows), back);
}

// Operands come first in the list: one walk carries a movement to its end.
static struct hlo_instr *moved(struct hb *b, struct hlo_instr *u, UNUSED const struct pass_ctx *p) {
    if (!u->n_operands || (!u->users.n && u->parent->root != u)) return NULL;
    if (hlo_is_pointwise(u) && u->n_operands <= MAX_OPERANDS) return through_elementwise(b, u);
    if (u->op == HLO_GATHER) return through_gather(b, u);
    return u->op == HLO_CONCATENATE ? through_concat(b, u) : through_dims(b, u);
}

status_t pass_reshape_mover(struct hlo_module *m, struct pass_ctx *p) {
    return pass_rewrite(m, p, moved);
}
