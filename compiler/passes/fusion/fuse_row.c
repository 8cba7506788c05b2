// SPDX-License-Identifier: Apache-2.0
// Row fusion: a computation that reduces the trailing dims and uses the result again along them
// (softmax, layer norm, logsumexp, a variance) becomes one kCustom fusion, which the kernels run
// row by row: each row is read once into the cache and nothing in between goes to memory.
//     x -> max -> x - max -> exp -> sum -> exp * (1 / sum)
// From a candidate root backwards the group takes in what has all its users inside: operations on
// whole rows, operations on one value a row, reductions of rows, and broadcasts, which are free. It
// is a row fusion when a reduction inside is broadcast back over its own row.
#include "compiler/passes/fusion/fusion.h"

// A row must fit the kernel's scratch for values that two phases need; few long rows would leave
// threads idle.
enum { MAX_ROW = 65536, LONG_ROW = 4096, FEW_ROWS = 8 };

struct rows {
    const struct shape *full; // of a whole value
    int kept;                 // leading dims that number the rows
};

static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && dtype_class(i->shape->dtype) != DC_NONE &&
           layout_is_default(i->shape->layout, i->shape->rank) && !i->shape->dynamic &&
           !i->control_preds.n;
}
static bool is_row_shape(const struct rows *r, const struct shape *s) {
    bool same = s->rank == r->kept;
    for (int d = 0; d < r->kept && same; d++)
        same = s->dims[d] == r->full->dims[d];
    return same;
}
// Reduces the trailing dims, and only them: gives how many stay; -1 otherwise.
static int row_reduce(const struct hlo_instr *i) {
    if (i->op != HLO_REDUCE || i->n_operands != 2 || !plain(i) || !plain(i->operands[0])) return -1;
    struct i64s d = HLO_ATTR(i, dims)->dimensions;
    int kept = i->operands[0]->shape->rank - d.n;
    for (int k = 0; k < d.n; k++)
        if (d.v[k] < kept) return -1;
    return d.n ? kept : -1;
}
static bool over_rows(const struct rows *r, const struct hlo_instr *i) {
    return row_reduce(i) == r->kept && shape_same_dims(i->operands[0]->shape, r->full);
}
// One value a row, spread over the row.
static bool spreads_rows(const struct rows *r, const struct hlo_instr *b) {
    if (b->op != HLO_BROADCAST || !shape_same_dims(b->shape, r->full)) return false;
    struct i64s d = HLO_ATTR(b, dims)->dimensions;
    for (int k = 0; k < d.n; k++)
        if (d.v[k] != k) return false;
    return d.n == r->kept;
}

// Why p stays outside; NULL when it may come in.
static const char *keeps_out(const struct fusion_group *g, const struct hlo_instr *p) {
    const struct rows *r = g->ctx;
    if (!plain(p)) return "it is no array in row-major order";
    if (p->op == HLO_BROADCAST || p->op == HLO_IOTA) return NULL;
    bool whole = shape_same_dims(p->shape, r->full), row = is_row_shape(r, p->shape);
    if (!over_rows(r, p) && !hlo_is_pointwise(p))
        return "it is neither elementwise nor a reduction of these rows";
    if (!whole && !row) return "it is of another shape than the rows";
    if (p->parent->root == p) return "it is a result of the computation";
    for (size_t k = 0; k < p->users.n; k++) {
        const struct hlo_instr *u = p->users.v[k];
        if (!fusion_has(g, u)) return "it has a user outside";
        if (u->op == HLO_BROADCAST && !spreads_rows(r, u)) return "it is spread across rows";
        if (u->op == HLO_REDUCE && u->operands[0] != p) return "it is a reduction's initial value";
    }
    return NULL;
}

// Is a reduction inside broadcast back over its own row?
static bool comes_back(const struct fusion_group *g) {
    for (int k = 0; k < g->n; k++)
        if (spreads_rows(g->ctx, g->v[k]) && g->v[k]->operands[0]->op != HLO_CONSTANT &&
            fusion_has(g, g->v[k]->operands[0]))
            return true;
    return false;
}

// In ->tmp of each instruction: the reduction of rows that it reaches first through elementwise
// operations and broadcasts; it says what a row is.
static void find_reduces(struct hlo_computation *c) {
    for (struct hlo_instr *i = c->first; i; i = i->next) {
        i->tmp = row_reduce(i) >= 0 ? i : NULL;
        if (!hlo_is_elementwise(i) && i->op != HLO_BROADCAST) continue;
        for (int k = 0; k < i->n_operands && !i->tmp; k++)
            i->tmp = i->operands[k]->tmp;
    }
}

static bool worth_it(const struct rows *r) {
    int64_t rows = 1, row = 1;
    for (int d = 0; d < r->full->rank; d++)
        *(d < r->kept ? &rows : &row) *= r->full->dims[d];
    return rows > 0 && row > 1 && row <= MAX_ROW && (row <= LONG_ROW || rows >= FEW_ROWS);
}

static status_t fuse(struct hlo_computation *c, struct pass_ctx *p) {
    find_reduces(c);
    hlo_number_list(c);
    for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
        prev = i->prev;
        if ((!i->users.n && i != c->root) || !plain(i) ||
            (!hlo_is_elementwise(i) && row_reduce(i) < 0))
            continue;
        const struct hlo_instr *r = i->tmp;
        if (!r || r->parent != c) continue;
        struct rows rows = {.full = r->operands[0]->shape, .kept = row_reduce(r)};
        struct fusion_group g = {
            .v = {i}, .n = 1, .max = FUSION_MAX_MEMBERS, .keeps_out = keeps_out, .ctx = &rows};
        if ((!shape_same_dims(i->shape, rows.full) && !is_row_shape(&rows, i->shape)) ||
            !worth_it(&rows))
            continue;
        fusion_grow(&g);
        if (!comes_back(&g)) continue;
        fusion_tell(p, &g);
        RETURN_IF_ERR(fusion_take(&g, FUSION_CUSTOM, &prev));
        p->changed = true;
    }
    return ST_OK;
}

status_t pass_fuse_row(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_computation *) bodies = {0};
    const struct kernel_policy *its = p->target ? p->target->policy : NULL;
    // Without rows each element would compute again what its row has in common.
    if (!p->target || (its && its->elements && !its->rows)) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) avec_push(&p->scratch, &bodies, c);
    for (size_t k = 0; k < bodies.n; k++)
        RETURN_IF_ERR(fuse(bodies.v[k], p));
    return ST_OK;
}
