// SPDX-License-Identifier: Apache-2.0
// Loop and input fusion: from each elementwise operation, movement or reduction, backwards, take in
// what computes its elements one by one and has every user inside already: elementwise operations,
// movements (transpose, slice, reverse, pad, dynamic-slice), gathers (with what computes their
// places where a slice is one element), a reduction or window whose results are used one by one,
// and any broadcast or iota (they cost an index, so each fusion may have its own). A concatenation
// of what is computed for it is a root too, so is a reduction of several values. Chains of
// operations on bits (random numbers) are long and keep few values at a time: a fusion with more
// than FLOAT_MEMBERS takes in nothing else. Nothing dear is computed twice: an operation used
// outside stays outside, and one that a broadcast (to more than the few elements that a turn makes
// together) or a window would repeat stays in memory, as does a reduction whose elements two
// movements would ask for. A contraction that the library does not take comes in, one a fusion,
// where only simple elementwise operations follow it. A fusion with a contraction is kOutput, one
// with a reduction kInput, others are kLoop.
#include "compiler/ops/rules.h"
#include "compiler/passes/fusion/fusion.h"
#include "compiler/passes/fusion/library.h"

enum {
    MAX_MEMBERS = FUSION_MOST_MEMBERS,
    FLOAT_MEMBERS = 300,
    MOST_JOINED = 4,
    MOST_AGAIN = 3,
    MOST_JOINS = 1,
    MOST_SPREAD = 4,
    JOINED_WEIGHT = 80,
    SHORT_ROW = 256,
    MANY_USERS = 4 * MAX_MEMBERS // not all of them are in one fusion
};
struct ctx {
    const struct target *t;
    bool layouts; // the computation has convolutions that the library takes: its arrays' layouts
                  // are still to be chosen, and concatenations keep them
};
static const struct target *target_of(const struct fusion_group *g) {
    return ((const struct ctx *)g->ctx)->t;
}

static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && i->shape->dtype != DT_TOKEN && !i->control_preds.n;
}
// Another name for the bits of values that are computed as they lie: for a kernel, nothing to do.
// Small floats and complex numbers are not: of the codes of one that are NaN a kernel keeps one.
static bool keeps_bits(const struct hlo_instr *i) {
    if (i->op != HLO_BITCAST_CONVERT) return false;
    enum dtype t[2] = {i->shape->dtype, i->operands[0]->shape->dtype};
    for (int k = 0; k < 2; k++) {
        bool small = dtype_is_float(t[k]) && dtype_bits(t[k]) <= 16 && t[k] != DT_BF16;
        if (small || t[k] == DT_PRED || dtype_is_complex(t[k]) || dtype_bits(t[k]) < 8)
            return false;
    }
    return dtype_bits(t[0]) == dtype_bits(t[1]);
}
static bool elementwise(const struct hlo_instr *i) {
    return plain(i) && (hlo_is_pointwise(i) || keeps_bits(i));
}
// Each element of the result is one of the operand, or the padding.
static bool moves(const struct hlo_instr *i) {
    bool kind = i->op == HLO_TRANSPOSE || i->op == HLO_SLICE || i->op == HLO_REVERSE ||
                i->op == HLO_PAD || i->op == HLO_DYNAMIC_SLICE;
    return kind && plain(i);
}
// Each element is one of the operand's, whose place is among the indices.
static bool picks(const struct target *t, const struct hlo_instr *i) {
    return i->op == HLO_GATHER && plain(i) && shape_elements(i->operands[0]->shape) &&
           !(t->library_accepts && t->library_accepts(t, i));
}
// Indices are computed once an element where a slice is one.
static bool picks_one(const struct target *t, const struct hlo_instr *i) {
    if (!picks(t, i)) return false;
    struct i64s size = HLO_ATTR(i, gather)->slice_sizes;
    for (int d = 0; d < size.n; d++)
        if (size.v[d] != 1) return false;
    return true;
}
// Computes nothing but the indices of gathers of single elements: the parts of a place, which each
// gather reads one by one, or indices with a dimension of one.
static bool only_indices(const struct target *t, const struct hlo_instr *i) {
    if ((i->op != HLO_CONCATENATE && i->op != HLO_RESHAPE) || !plain(i) || !i->users.n ||
        (i->op == HLO_RESHAPE && !fusion_drops_ones(i)))
        return false;
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        if (u->op == HLO_CONCATENATE ? i->op == HLO_RESHAPE && only_indices(t, u)
                                     : picks_one(t, u) && u->operands[0] != i)
            continue;
        return false;
    }
    const struct hlo_instr *u = i->users.v[0];
    return i->op == HLO_RESHAPE ||
           HLO_ATTR(u, gather)->index_vector_dim == HLO_ATTR(i, dims)->dimensions.v[0];
}
// Each element is one of an operand's; which one is decided where the loops begin anew
// (compiler/kernel/lower_loops.c), so that none is computed twice.
static bool joins(const struct ctx *x, const struct hlo_instr *i) {
    if (i->op != HLO_CONCATENATE || !plain(i) || i->n_operands > MOST_JOINED || x->layouts ||
        only_indices(x->t, i))
        return false;
    return !(x->t->library_accepts && x->t->library_accepts(x->t, i));
}
// A window that the library takes stays outside.
static bool folds(const struct target *t, const struct hlo_instr *i) {
    if (lib_direct(i)) return plain(i) && !(t->library_accepts && t->library_accepts(t, i));
    if ((i->op != HLO_REDUCE && i->op != HLO_REDUCE_WINDOW) || i->n_operands != 2 || !plain(i))
        return false;
    bool sum = i->called[0]->root->op == HLO_ADD;
    if (rule_running_window(i, NULL)) return false; // a kernel of its own
    return (!lib_pool(i) || sum) && !(t->library_accepts && t->library_accepts(t, i));
}
// A reduction of several values together (the largest and its position), which is a root only.
static bool folds_together(const struct hlo_instr *i) {
    if (i->op != HLO_REDUCE || i->n_operands < 4 || i->control_preds.n) return false;
    for (int k = 0; k < i->n_operands; k++)
        if (!plain(i->operands[k])) return false;
    return true;
}
// Is p one of u's initial values?
static bool begins(const struct hlo_instr *p, const struct hlo_instr *u) {
    for (int k = u->n_operands / 2; k < u->n_operands; k++)
        if (u->operands[k] == p) return true;
    return false;
}
// Along the rows there are no vectors for it, and none for what came into its kernel.
static bool goes_along_rows(const struct hlo_instr *i) {
    return i64s_has(HLO_ATTR(i, dims)->dimensions, i->operands[0]->shape->rank - 1);
}
// A contraction of ours: its tiles go through what follows them element by element.
static bool contracts(const struct target *t, const struct hlo_instr *i) {
    return (i->op == HLO_DOT || i->op == HLO_CONVOLUTION) && plain(i) && !lib_direct(i) &&
           !(t->library_accepts && t->library_accepts(t, i));
}
static bool free_to_copy(const struct hlo_instr *i) {
    return plain(i) && (i->op == HLO_BROADCAST || i->op == HLO_IOTA);
}
// A reduction of i's rows and of what lies across them to one. Read from a near cache the rows are
// one long line; made, each is a sum of its own, whose lanes are joined at its end (2 to 5 times as
// long at 16 to 256 elements a row; 0.4 times where i is 4 MB).
static bool joins_rows(const struct hlo_instr *i, const struct hlo_instr *u) {
    enum { NEAR = 1 << 20 };
    const struct shape *s = i->shape;
    struct i64s over = HLO_ATTR(u, dims)->dimensions;
    int last = s->rank - 1, n = 0;
    bool rows = false;
    while (last >= 0 && s->dims[last] == 1)
        last--;
    for (int k = 0; k < over.n; k++) {
        n += s->dims[over.v[k]] > 1;
        rows |= over.v[k] == last;
    }
    return rows && n > 1 && shape_bytes(s) <= NEAR;
}
// A sum or the larger of two broadcasts of what is much smaller (all differences of two rows, the
// scores of a chain's states): each element costs its readers what reading it from memory does, so
// that each may make it. What rounds no result of another operation is the same everywhere.
static bool of_little(const struct target *t, const struct hlo_instr *i) {
    bool exact =
        i->op == HLO_ADD || i->op == HLO_SUBTRACT || i->op == HLO_MAXIMUM || i->op == HLO_MINIMUM;
    if (!exact || !plain(i) || i->parent->root == i || i->users.n < 2 ||
        dtype_bits(i->shape->dtype) < 32 || dtype_is_complex(i->shape->dtype))
        return false;
    for (int k = 0; k < 2; k++) {
        const struct hlo_instr *o = i->operands[k];
        if (o->op != HLO_BROADCAST || !plain(o) ||
            shape_elements(o->operands[0]->shape) * MOST_SPREAD >= shape_elements(i->shape))
            return false;
    }
    for (size_t k = 0; k < i->users.n; k++) {
        const struct hlo_instr *u = i->users.v[k];
        if (!elementwise(u) && !(u->op == HLO_REDUCE && !begins(i, u) && !joins_rows(i, u) &&
                                 (folds(t, u) || (folds_together(u) && !goes_along_rows(u)))))
            return false;
    }
    return true;
}
// A slice of what lies in memory whatever is fused, with or without dimensions of one: reading it
// in place costs an index, so that each of its readers may.
static bool view(const struct ctx *x, const struct hlo_instr *i) {
    if (i->op == HLO_RESHAPE && plain(i) && fusion_drops_ones(i)) i = i->operands[0];
    if (i->op != HLO_SLICE || !plain(i) || x->layouts) return false;
    const struct hlo_instr *from = i->operands[0];
    if (from->op == HLO_RESHAPE) return true; // those are names of what lies in memory
    return !elementwise(from) && !moves(from) && !joins(x, from) && !folds(x->t, from) &&
           !contracts(x->t, from) && !free_to_copy(from) && from->op != HLO_BITCAST;
}
// Dimensions of one more or fewer: an index.
static bool renames(const struct ctx *x, const struct hlo_instr *i) {
    return i->op == HLO_RESHAPE && plain(i) && fusion_drops_ones(i) && !x->layouts;
}
// A rotation of rows of 8 elements and more: parts of one array that are read where they lie.
// Measured on Zen 4 and 5: rows of 16 and more take a fifth to a half of what slices and their
// concatenation do, of 8 a half to a tenth; of 9 to 15 elements of 4 bytes those are sooner.
static bool rotation(const struct hlo_instr *i, int64_t run) {
    enum { LEAST = 8, MOST = 16, WORD = 4 };
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *o = i->operands[k];
        if (o->op != HLO_SLICE || o->operands[0] != i->operands[0]->operands[0]) return false;
    }
    bool whole = run == LEAST || run >= MOST;
    return LEAST <= run && (whole || dtype_size(i->shape->dtype) != WORD);
}
// A stack of single elements along the last dim: a turn of its kernel makes whole rows (lower.c),
// so that what several parts read is computed once.
static bool makes_rows(const struct hlo_instr *i) {
    if (i->op != HLO_CONCATENATE || i->shape->rank == 0) return false;
    int last = i->shape->rank - 1;
    return HLO_ATTR(i, dims)->dimensions.v[0] == last && i->shape->dims[last] == i->n_operands &&
           i->n_operands <= MOST_JOINED && dtype_bits(i->shape->dtype) >= 32 &&
           !dtype_is_complex(i->shape->dtype);
}
static bool makes_together(const struct ctx *x, const struct hlo_instr *i) {
    bool elements = x->t->policy && x->t->policy->elements; // each is a unit of its own
    return !elements && (makes_rows(i) || rule_parts_beside(i));
}
// A concatenation of what is computed for it alone, or of slices; of what lies in memory it is a
// copy. Where a part is a few elements at a time, each element computes all parts: no more than
// two, but for slices side by side that a turn writes together (lower.c).
static bool joins_computed(const struct ctx *x, const struct hlo_instr *i) {
    enum { RUN = 8 };
    bool any = false, views = true;
    int64_t outer = 1, inner = 1, d = joins(x, i) ? HLO_ATTR(i, dims)->dimensions.v[0] : -1;
    int64_t least = INT64_MAX;
    if (d < 0) return false;
    for (int64_t k = 0; k < i->shape->rank; k++)
        if (k != d) *(k < d ? &outer : &inner) *= i->shape->dims[k];
    for (int k = 0; k < i->n_operands; k++) {
        const struct hlo_instr *o = i->operands[k];
        views &= view(x, o) || (o->op == HLO_SLICE && plain(o) && o->users.n == 1);
        if (o->shape->dims[d] < least) least = o->shape->dims[d];
        while (renames(x, o) && o->users.n == 1)
            o = o->operands[0];
        any |= o->users.n == 1 && elementwise(o);
    }
    int64_t run = i->shape->dims[d] * inner;
    if (views && x->t->routine_runs && lib_joins_rows(i)) return true;
    if (views && (run < RUN || (inner == 1 && rotation(i, run)))) return outer > 1;
    // Rows of one vector each, and shorter ones of few places, are copied sooner.
    bool one_vector = inner * dtype_bits(i->shape->dtype) == x->t->vector_bits;
    bool is_long = (inner >= RUN && !one_vector) ||
                   (least >= 2 * RUN && !(one_vector && dtype_bits(i->shape->dtype) >= 32));
    if (views)
        return is_long && outer * inner > 1 && least * inner >= 2 * RUN &&
               (outer > 1 || inner >= RUN);
    return any && (run / i->n_operands >= RUN || i->n_operands <= 2 || makes_together(x, i));
}
static bool can_root(const struct ctx *x, const struct hlo_instr *i) {
    const struct target *t = x->t;
    if (joins_computed(x, i)) return true;
    return elementwise(i) || moves(i) || picks_one(t, i) || folds_together(i) ||
           (i->op == HLO_REDUCE && folds(t, i));
}

// At which elements the fusion computes a member is said by the first operation on its way to the
// root that is not elementwise (NULL: at the root's own); `several` when there is more than one.
static const struct hlo_instr several;
struct ways {
    const struct hlo_instr *by[MAX_MEMBERS];
    bool done[MAX_MEMBERS];
};
static const struct hlo_instr *way_of(const struct fusion_group *g, const struct hlo_instr *x,
                                      struct ways *w) {
    const struct hlo_instr *way = NULL;
    for (size_t k = 0; k < x->users.n; k++) {
        const struct hlo_instr *u = x->users.v[k], *by;
        int at = fusion_index(g, u);
        if (at < 0) return &several;
        if (!w->done[at]) w->by[at] = at ? way_of(g, u, w) : NULL;
        w->done[at] = true;
        by = w->by[at] == &several || elementwise(u) ? w->by[at] : u;
        if (k && by != way) return &several;
        way = by;
    }
    return way;
}
static bool computed_often(const struct fusion_group *g, const struct hlo_instr *p) {
    struct ways w = {.done = {false}};
    return way_of(g, p, &w) == &several;
}

// A transposition that the target is faster with by itself; a reduction may read in any order.
static bool turned_alone(const struct fusion_group *g, const struct hlo_instr *p) {
    const struct target *t = target_of(g);
    bool reduced = true;
    for (size_t k = 0; k < p->users.n; k++)
        reduced = reduced && p->users.v[k]->op == HLO_REDUCE;
    return !reduced && t->library_accepts && t->library_accepts(t, p);
}

// What may follow a contraction in its kernel. Functions that are polynomials have constants that
// the generator keeps in registers, which the contraction's loop wants for its sums.
static bool light(const struct hlo_instr *i) {
    static const bool few[HLO_OP_COUNT] = {
        [HLO_ADD] = true,     [HLO_SUBTRACT] = true, [HLO_MULTIPLY] = true, [HLO_DIVIDE] = true,
        [HLO_MAXIMUM] = true, [HLO_MINIMUM] = true,  [HLO_NEGATE] = true,   [HLO_ABS] = true,
        [HLO_CLAMP] = true,   [HLO_COMPARE] = true,  [HLO_SELECT] = true,   [HLO_CONVERT] = true,
        [HLO_AND] = true,     [HLO_OR] = true,       [HLO_NOT] = true,      [HLO_SIGN] = true};
    return few[i->op] || free_to_copy(i);
}
static bool has_contraction(const struct fusion_group *g) {
    for (int k = 0; k < g->n; k++)
        if (contracts(target_of(g), g->v[k])) return true;
    return false;
}
static bool used_by_contraction(const struct hlo_instr *p) {
    for (size_t k = 0; k < p->users.n; k++)
        if (p->users.v[k]->op == HLO_DOT || p->users.v[k]->op == HLO_CONVOLUTION) return true;
    return false;
}
// It is read where the root is written, and nowhere else.
static const char *keeps_contraction_out(const struct fusion_group *g, const struct hlo_instr *p) {
    struct ways w = {.done = {false}};
    if (p->parent->root == p) return "it is a result of the computation";
    if (!elementwise(g->v[0]) || way_of(g, p, &w))
        return "it is a contraction, used elsewhere than it is made";
    for (int k = 0; k < g->n; k++)
        if (!light(g->v[k])) return "what follows it would take its registers";
    return has_contraction(g) ? "the fusion has a contraction" : NULL;
}

// Around a concatenation there is a copy of the kernel's code for each part of its loops (up to
// nine where both dims have edges): what it does must be short.
static int weight(const struct hlo_instr *i) {
    return free_to_copy(i)                                                ? 0
           : light(i) || !elementwise(i) || dtype_is_int(i->shape->dtype) ? 1
                                                                          : 20;
}
static bool too_long_to_join(const struct fusion_group *g, const struct hlo_instr *p) {
    bool any = joins(g->ctx, p);
    int sum = weight(p);
    for (int k = 0; k < g->n; k++) {
        any |= joins(g->ctx, g->v[k]);
        sum += weight(g->v[k]);
    }
    const struct shape *s = g->v[0]->shape;
    bool short_rows = s->rank && s->dims[s->rank - 1] < SHORT_ROW; // parts end in single elements
    if (makes_together(g->ctx, g->v[0])) return sum > JOINED_WEIGHT;
    return any && sum > (short_rows ? JOINED_WEIGHT / 4 : JOINED_WEIGHT);
}
// Is an operation that several movements ask for little to compute again, with those that already
// are?
static bool repeatable(const struct fusion_group *g, const struct hlo_instr *p) {
    struct ways w = {.done = {false}}; // one for all: the group stays as it is
    int again = 0;
    if (!light(p)) return false;
    for (int k = 1; k < g->n && again < MOST_AGAIN; k++)
        again += elementwise(g->v[k]) && way_of(g, g->v[k], &w) == &several;
    return again < MOST_AGAIN;
}
// Of the joins on one way from p to the root, the most that several places ask for.
static int joins_behind(const struct fusion_group *g, const struct hlo_instr *p, struct ways *w,
                        int *known) {
    int most = 0;
    for (size_t k = 0; k < p->users.n; k++) {
        const struct hlo_instr *u = p->users.v[k];
        int at = fusion_index(g, u);
        if (at < 0) continue;
        if (!known[at])
            known[at] = 1 + joins_behind(g, u, w, known) +
                        (joins(g->ctx, u) && at && way_of(g, u, w) == &several);
        if (known[at] - 1 > most) most = known[at] - 1;
    }
    return most;
}
// Each of a chain of joins (rotations of rotations) whose values are wanted as well is computed by
// all before it: of 20 each element made 200 choices (15 times the time, 70 times the compile).
static bool joins_again(const struct fusion_group *g, const struct hlo_instr *p) {
    struct ways w = {.done = {false}};
    int known[MAX_MEMBERS] = {0};
    return joins(g->ctx, p) && joins_behind(g, p, &w, known) >= MOST_JOINS;
}
// A concatenation that chooses among values that u reads, or gives other dimensions.
static bool chosen_by(const struct ctx *x, const struct hlo_instr *u) {
    while (renames(x, u) && u->users.n == 1)
        u = u->users.v[0];
    return u->op == HLO_CONCATENATE && !only_indices(x->t, u);
}
// Gives other dimensions to a part of the concatenation that is the root.
static bool under_join(const struct fusion_group *g, const struct hlo_instr *p) {
    return renames(g->ctx, p) && p->users.n == 1 && p->users.v[0] == g->v[0] &&
           g->v[0]->op == HLO_CONCATENATE;
}
// Is each of p's elements read for the same one of every part of the root? known: 1 yes, -1 no.
static bool stays_in_place(const struct fusion_group *g, const struct hlo_instr *p,
                           signed char *known) {
    for (size_t k = 0; k < p->users.n; k++) {
        const struct hlo_instr *u = p->users.v[k];
        int at = fusion_index(g, u);
        if (at == 0 || (at > 0 && under_join(g, u))) continue;
        if (at < 0 || !elementwise(u)) return false;
        if (!known[at]) known[at] = stays_in_place(g, u, known) ? 1 : -1;
        if (known[at] < 0) return false;
    }
    return true;
}
// How many elements that lie side by side (the channels of a pixel, the parts of a point) a
// broadcast makes of each; 0: they lie apart, or there is but one.
static int64_t spread(const struct hlo_instr *u) {
    int64_t times = 1;
    if (u->op != HLO_BROADCAST || !plain(u)) return 0;
    struct i64s dims = HLO_ATTR(u, dims)->dimensions;
    for (int d = 0; d < dims.n; d++)
        if (dims.v[d] != d) return 0;
    for (int d = dims.n; d < u->shape->rank && times <= MOST_SPREAD; d++)
        times *= u->shape->dims[d];
    return dims.n ? times : 0;
}
// A few: the kernel's turn makes them together, so that what is broadcast is computed once.
static bool spreads_little(const struct hlo_instr *u) {
    int64_t times = spread(u);
    return times && times <= MOST_SPREAD;
}
// To how many such elements each of p's goes, by all broadcasts on its ways to the root.
static int64_t spread_behind(const struct fusion_group *g, const struct hlo_instr *p,
                             int64_t *known) {
    int64_t most = 1;
    for (size_t k = 0; k < p->users.n && most <= MOST_SPREAD; k++) {
        const struct hlo_instr *u = p->users.v[k];
        int at = fusion_index(g, u);
        if (at < 0) continue;
        if (!known[at]) known[at] = at ? spread_behind(g, u, known) : 1;
        int64_t times = known[at] * (u->op == HLO_BROADCAST ? spread(u) : 1);
        if (times > most) most = times;
    }
    return most;
}
// Would broadcasts make p again, or make it together with more than a turn holds?
static const char *keeps_spread_out(const struct fusion_group *g, const struct hlo_instr *p) {
    int64_t known[MAX_MEMBERS] = {0}, times = spread_behind(g, p, known);
    if (times > MOST_SPREAD) return "broadcasts would compute it again for each element";
    if (times > 1 && !elementwise(p) && !renames(g->ctx, p) && p->op != HLO_SLICE)
        return "a broadcast would make it again";
    return NULL;
}
// Gives other dimensions to what is broadcast so.
static bool under_spread(const struct fusion_group *g, const struct hlo_instr *p) {
    if (!renames(g->ctx, p)) return false;
    for (size_t k = 0; k < p->users.n; k++)
        if (!spreads_little(p->users.v[k])) return false;
    return true;
}
// Why p stays outside; NULL when it may come in.
static const char *keeps_out(const struct fusion_group *g, const struct hlo_instr *p) {
    if (p->op == HLO_PARAMETER || p->op == HLO_CONSTANT) return "it lies in memory";
    if (!free_to_copy(p) && p->users.n > MANY_USERS)
        return "it has a user outside, and nothing is computed twice";
    if (free_to_copy(p) || (view(g->ctx, p) && !has_contraction(g) && !used_by_contraction(p)))
        return NULL;
    if (folds_together(g->v[0]) && goes_along_rows(g->v[0]))
        return "the reduction has no vectors for it";
    if (contracts(target_of(g), p)) return keeps_contraction_out(g, p);
    if (used_by_contraction(p)) return "a contraction would compute it again";
    if (!light(p) && has_contraction(g)) return "it would take a contraction's registers";
    bool picked = picks(target_of(g), p), index = only_indices(target_of(g), p),
         little = of_little(target_of(g), p);
    if (!elementwise(p) && !moves(p) && !joins(g->ctx, p) && !folds(target_of(g), p) && !picked &&
        !index && !under_join(g, p) && !under_spread(g, p))
        return "it is neither elementwise nor a movement nor a reduction";
    if (p->parent->root == p) return "it is a result of the computation";
    if (too_long_to_join(g, p)) return "a concatenation's parts would each have a copy of it";
    if (g->n >= FLOAT_MEMBERS && (!elementwise(p) || dtype_is_float(p->shape->dtype)))
        return "the fusion is full";
    if (p->op == HLO_TRANSPOSE && turned_alone(g, p)) return "the library runs it";

    for (size_t k = 0; k < p->users.n; k++) {
        const struct hlo_instr *u = p->users.v[k];
        if (little && !fusion_has(g, u)) continue;
        if (!fusion_has(g, u)) return "it has a user outside, and nothing is computed twice";
        if (u->op == HLO_BROADCAST && !(spreads_little(u) && (light(p) || renames(g->ctx, p))))
            return "the broadcast would compute it again for each element";
        if (u->op == HLO_GATHER && u->operands[0] == p) return "a gather reads it anywhere";
        if (u->op == HLO_GATHER && !picks_one(target_of(g), u))
            return "each element of a gather's slice would compute it again";
        if (chosen_by(g->ctx, u) && !makes_together(g->ctx, g->v[0]) && !light(p) && !moves(p) &&
            !index && !renames(g->ctx, p))
            return "a concatenation would choose among what is dear";
        if (u->op == HLO_REDUCE_WINDOW) return "each window would compute it again";
        if (u->op == HLO_REDUCE && begins(p, u)) return "it is the reduction's initial value";
        if (moves(u) && u->operands[0] != p) return "it is an index or the padding";
        if (folds(target_of(g), p) && !elementwise(u))
            return "it is a reduction, used elsewhere than it is made";
    }
    const char *again = keeps_spread_out(g, p);
    if (again || !computed_often(g, p)) return again;
    if (folds(target_of(g), p)) return "it is a reduction that would be made at each use";
    if (picked) return "a gather would read it at several places";
    if (little) return NULL;
    signed char known[MAX_MEMBERS] = {0};
    if (elementwise(p) && makes_together(g->ctx, g->v[0]) && stays_in_place(g, p, known))
        return NULL;
    if (joins_again(g, p)) return "joins would compute it at several places";
    if (elementwise(p) && g->v[0]->op == HLO_CONCATENATE)
        return "several parts of the concatenation would compute it";
    return elementwise(p) && !repeatable(g, p) ? "movements would compute it at several places"
                                               : NULL;
}

static bool has_fold(const struct fusion_group *g) {
    for (int k = 0; k < g->n; k++)
        if (folds(target_of(g), g->v[k]) || folds_together(g->v[k])) return true;
    return false;
}
static bool has_layouts(const struct target *t, const struct hlo_computation *c) {
    for (const struct hlo_instr *i = c->first; i; i = i->next) {
        const struct hlo_instr *hero = i->op == HLO_FUSION ? i->called[0]->first : i;
        for (; hero; hero = i->op == HLO_FUSION ? hero->next : NULL)
            if (hero->op == HLO_CONVOLUTION && t->library_accepts && t->library_accepts(t, i))
                return true;
    }
    return false;
}
static status_t fuse(struct hlo_computation *c, struct pass_ctx *p) {
    const struct target *t = p->target;
    struct ctx x = {t, has_layouts(t, c)};
    hlo_number_list(c);
    for (struct hlo_instr *i = c->last, *prev; i; i = prev) {
        struct fusion_group g = {
            .v = {i}, .n = 1, .max = MAX_MEMBERS, .keeps_out = keeps_out, .ctx = &x};
        prev = i->prev;
        if ((!i->users.n && i != c->root) || !can_root(&x, i) ||
            (t->library_accepts && t->library_accepts(t, i)))
            continue;
        fusion_grow(&g);
        fusion_tell(p, &g);
        if (g.n < 2) continue;
        enum fusion_kind kind = has_contraction(&g) ? FUSION_OUTPUT
                                : has_fold(&g)      ? FUSION_INPUT
                                                    : FUSION_LOOP;
        RETURN_IF_ERR(fusion_take(&g, kind, &prev));
        p->changed = true;
    }
    return ST_OK;
}

// Is it called for each element (a reducer, a comparator), and so part of its caller's kernel?
static bool runs_steps(const struct hlo_instr *i) {
    return i->op == HLO_WHILE || i->op == HLO_CONDITIONAL || i->op == HLO_CALL;
}
static void find_inner(struct hlo_module *m, struct pmap *out) {
    HLO_EACH_COMPUTATION(c, m)
    HLO_EACH_INSTR(i, c)
    for (int k = 0; k < i->n_called && !runs_steps(i); k++)
        pmap_put_ptr(out, i->called[k], i->called[k]);
}

status_t pass_fuse_loop(struct hlo_module *m, struct pass_ctx *p) {
    struct pmap inner = {0};
    if (!p->target) return ST_OK;
    find_inner(m, &inner);
    VEC(struct hlo_computation *)
    bodies = {0}; // fusing adds computations: the list is taken before
    HLO_EACH_COMPUTATION(c, m) {
        bool scalar = c != m->entry; // not worth a fusion
        for (const struct hlo_instr *i = c->first; i && scalar; i = i->next)
            scalar = !shape_is_tuple(i->shape) && i->shape->rank == 0;
        if (!c->fusion && !scalar && !pmap_has_ptr(&inner, c)) avec_push(&p->scratch, &bodies, c);
    }
    pmap_done(&inner);
    for (size_t k = 0; k < bodies.n; k++)
        RETURN_IF_ERR(fuse(bodies.v[k], p));
    return ST_OK;
}
