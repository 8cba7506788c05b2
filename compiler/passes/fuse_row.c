// SPDX-License-Identifier: Apache-2.0
// Row fusion: a computation that reduces the trailing dims and uses the result again along them
// (softmax, layer norm, logsumexp, a variance) becomes one kCustom fusion, which the kernels run
// row by row: each row is read once into the cache and nothing in between goes to memory.
//     x -> max -> x - max -> exp -> sum -> exp * (1 / sum)
// From a candidate root backwards the group takes in what has all its users inside: operations on
// whole rows, operations on one value a row, reductions of rows, and broadcasts, which are free. It
// is a row fusion when a reduction inside is broadcast back over its own row.
#include "compiler/passes/fusion.h"
#include "compiler/passes/pass.h"

// A row must fit the kernel's scratch for values that two phases need; few long rows would leave
// threads idle.
enum { MAX_MEMBERS = 96, MAX_ROW = 65536, LONG_ROW = 4096, FEW_ROWS = 8 };

struct rows {
    struct hlo_instr *v[MAX_MEMBERS];
    int n;
    const struct shape *full; // of a whole value
    int kept;                 // leading dims that number the rows
    bool back;                // a reduction inside is broadcast back
};

static bool in_group(const struct rows *g, const struct hlo_instr *i) {
    for (int k = 0; k < g->n; k++)
        if (g->v[k] == i) return true;
    return false;
}
static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && dtype_class(i->shape->dtype) != DC_NONE &&
           layout_is_default(i->shape->layout, i->shape->rank) && !i->shape->dynamic &&
           !i->control_preds.n;
}
static bool is_row_shape(const struct rows *g, const struct shape *s) {
    bool same = s->rank == g->kept;
    for (int d = 0; d < g->kept && same; d++)
        same = s->dims[d] == g->full->dims[d];
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
static bool over_rows(const struct rows *g, const struct hlo_instr *i) {
    return row_reduce(i) == g->kept && shape_same_dims(i->operands[0]->shape, g->full);
}
// One value a row, spread over the row.
static bool spreads_rows(const struct rows *g, const struct hlo_instr *b) {
    if (b->op != HLO_BROADCAST || !shape_same_dims(b->shape, g->full)) return false;
    struct i64s d = HLO_ATTR(b, dims)->dimensions;
    for (int k = 0; k < d.n; k++)
        if (d.v[k] != k) return false;
    return d.n == g->kept;
}

// Why p stays outside; NULL when it may come in.
static const char *keeps_out(const struct rows *g, const struct hlo_instr *p) {
    if (!plain(p)) return "it is no array in row-major order";
    if (p->op == HLO_BROADCAST || p->op == HLO_IOTA) return NULL;
    bool whole = shape_same_dims(p->shape, g->full), row = is_row_shape(g, p->shape);
    if (!over_rows(g, p) && !(hlo_is_elementwise(p) && p->op != HLO_STOCHASTIC_CONVERT))
        return "it is neither elementwise nor a reduction of these rows";
    if (!whole && !row) return "it is of another shape than the rows";
    if (p->parent->root == p) return "it is a result of the computation";
    for (size_t k = 0; k < p->users.n; k++) {
        const struct hlo_instr *u = p->users.v[k];
        if (!in_group(g, u)) return "it has a user outside";
        if (u->op == HLO_BROADCAST && !spreads_rows(g, u)) return "it is spread across rows";
        if (u->op == HLO_REDUCE && u->operands[0] != p) return "it is a reduction's initial value";
    }
    return NULL;
}

static void grow(struct rows *g) {
    for (bool more = true; more;) {
        more = false;
        for (int k = 0; k < g->n && !more; k++)
            for (int j = 0; j < g->v[k]->n_operands && !more; j++) {
                struct hlo_instr *p = g->v[k]->operands[j];
                if (g->n == MAX_MEMBERS || in_group(g, p) || keeps_out(g, p)) continue;
                g->v[g->n++] = p;
                more = true;
            }
    }
    for (int k = 0; k < g->n; k++)
        g->back |= spreads_rows(g, g->v[k]) && g->v[k]->operands[0]->op != HLO_CONSTANT &&
                   in_group(g, g->v[k]->operands[0]);
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

static bool worth_it(const struct rows *g) {
    int64_t rows = 1, row = 1;
    for (int d = 0; d < g->full->rank; d++)
        *(d < g->kept ? &rows : &row) *= g->full->dims[d];
    return rows > 0 && row > 1 && row <= MAX_ROW && (row <= LONG_ROW || rows >= FEW_ROWS);
}

static void tell(const struct pass_ctx *p, const struct rows *g) {
    for (int k = 0; k < g->n; k++)
        for (int j = 0; j < g->v[k]->n_operands; j++) {
            const struct hlo_instr *x = g->v[k]->operands[j];
            if (x->op == HLO_CONSTANT || x->op == HLO_PARAMETER) continue;
            pass_tell_fusion(p, x, g->v[k],
                             in_group(g, x)        ? NULL
                             : g->n == MAX_MEMBERS ? "the fusion is full"
                                                   : keeps_out(g, x));
        }
}

static status_t fuse(struct hlo_computation *c, struct pass_ctx *p) {
    find_reduces(c);
    for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
        struct rows g = {.v = {i}, .n = 1};
        struct hlo_instr *f;
        prev = i->prev;
        if ((!i->users.n && i != c->root) || !plain(i) ||
            (!hlo_is_elementwise(i) && row_reduce(i) < 0))
            continue;
        const struct hlo_instr *r = i->tmp;
        if (!r || r->parent != c) continue;
        g.full = r->operands[0]->shape;
        g.kept = row_reduce(r);
        if ((!shape_same_dims(i->shape, g.full) && !is_row_shape(&g, i->shape)) || !worth_it(&g))
            continue;
        grow(&g);
        if (!g.back) continue;
        tell(p, &g);
        fusion_in_list_order(g.v, g.n);
        RETURN_IF_ERR(fusion_make(g.v, g.n, FUSION_CUSTOM, i, &f));
        p->changed = true;
        prev = f->prev;
        for (int k = g.n - 1; k >= 0; k--) { // members come before f: from the end
            if (g.v[k]->users.n || g.v[k] == c->root) continue;
            if (g.v[k] == prev) prev = prev->prev;
            hlo_remove_instr(g.v[k]);
        }
    }
    return ST_OK;
}

status_t pass_fuse_row(struct hlo_module *m, struct pass_ctx *p) {
    VEC(struct hlo_computation *) bodies = {0};
    if (!p->target) return ST_OK;
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) avec_push(&p->scratch, &bodies, c);
    for (size_t k = 0; k < bodies.n; k++)
        RETURN_IF_ERR(fuse(bodies.v[k], p));
    return ST_OK;
}
