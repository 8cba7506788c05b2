// SPDX-License-Identifier: Apache-2.0
// Arrays put together of a few slots along a dimension (stack, array of scalars under vmap,
// piecewise, choose) and taken apart again: op(concatenate(a, b, c)) -> op of a, of b and of c,
// where everything that reads the array goes slot by slot and in the end reduces, selects or takes
// single slots. No array is written then, and all of it is one kernel's. So is op(x) of which
// single columns or rows are read: op of these.
//
// A stack is a value of up to MOST_SLOTS slots along `dim`. Down the list each instruction is asked
// through which dimension it hands on its operands' slots (through); up the list whether all its
// users take slots (`apart`): an array that something reads as a whole stays one. Then those that
// are taken apart get their slots' values, each of size 1 along `dim`.
#include "compiler/passes/fusion/match.h"
#include "compiler/passes/pass.h"

enum {
    MOST_SLOTS = 16,
    MOST_CHOICES = 8, // slots among which a gather selects: all are read for each element
    MOST_COLUMNS = 8, // slots of an array, as columns of so few
    LEAST_LINE = 16,  // elements side by side in a slot of an array that is there
    LEAST_SLOT = 64,  // elements of a slot, where slots begin
    MOST_WINDOWS = 64,
    MOST_BODY = 32, // instructions of a reducer
    MOST_LOOK = 4,
    SHORT_ROW = 256,
    BUDGET = 4096 // values made in a computation
};

struct stack {
    int dim;     // -1: no stack
    int64_t n;   // slots
    bool starts; // it is made of arrays that are there, and users take single slots alone
    bool apart;  // it is taken apart
    hv *slots;   // once that is done
};
struct unstack {
    struct pass_ctx *p;
    struct stack *of; // by id
    uint32_t n_ids;
    int64_t left; // of the budget
    struct hb b;
};

static struct stack *at(const struct unstack *u, const struct hlo_instr *i) {
    static struct stack none = {.dim = -1};
    return i->id < u->n_ids ? &u->of[i->id] : &none;
}
static bool plain(const struct hlo_instr *i) {
    return !shape_is_tuple(i->shape) && !i->shape->dynamic && !i->control_preds.n &&
           !i->n_awaiting && layout_is_default(i->shape->layout, i->shape->rank);
}
static int64_t behind(const struct shape *s, int d) {
    int64_t n = 1;
    for (int k = d + 1; k < s->rank; k++)
        n *= s->dims[k];
    return n;
}
static bool is_short_float(enum dtype t) {
    return dtype_is_float(t) && dtype_bits(t) < 32;
}

// ---- through which dimension slots go

// The dimension of reshape i's result that is dimension d of its operand's.
static int through_reshape(const struct hlo_instr *i, int d) {
    const struct shape *from = i->operands[0]->shape, *to = i->shape;
    for (int k = 0; k < to->rank; k++)
        if (to->dims[k] == from->dims[d] && behind(to, k) == behind(from, d)) return k;
    return -1;
}
static bool window_along(const struct hlo_instr *i, int d) {
    const struct window *w = &HLO_ATTR(i, window)->window;
    enum hlo_op op;
    if (i->n_operands != 2 || !hlo_reducer_op(i->called[0], &op) || w->n != i->shape->rank ||
        is_short_float(i->shape->dtype) || i->shape->dtype != i->operands[0]->shape->dtype)
        return false;
    for (int k = 0; k < w->n; k++) {
        const struct window_dim *v = &w->v[k];
        if (v->base_dilation != 1) return false;
        if (k != d && (v->size != 1 || v->stride != 1 || v->pad_low || v->pad_high)) return false;
    }
    return w->v[d].size * i->shape->dims[d] <= MOST_WINDOWS;
}
static bool pads_slots(const struct hlo_instr *i) {
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    for (int k = 0; k < p->n; k++)
        if (p->v[k].interior || p->v[k].low < 0 || p->v[k].high < 0) return false;
    return true;
}
static int reduced_dim(const struct hlo_instr *i, int d) {
    struct i64s gone = HLO_ATTR(i, dims)->dimensions;
    int to = d;
    for (int k = 0; k < gone.n; k++) {
        if (gone.v[k] == d) return -1;
        to -= gone.v[k] < d;
    }
    return to;
}
// Slots of operand k along d are slots of i along what is given; -1: i does not go by them.
static int through(const struct hlo_instr *i, int k, int d) {
    if (hlo_is_pointwise(i)) return i->operands[k]->shape->rank == i->shape->rank ? d : -1;
    if (i->op == HLO_CONCATENATE) return HLO_ATTR(i, dims)->dimensions.v[0] == d ? d : -1;
    if (k) return -1;
    switch (i->op) {
    case HLO_BROADCAST:
        return (int)HLO_ATTR(i, dims)->dimensions.v[d];
    case HLO_TRANSPOSE:
        for (int to = 0; to < i->shape->rank; to++)
            if (HLO_ATTR(i, dims)->dimensions.v[to] == d) return to;
        return -1;
    case HLO_RESHAPE:
        return through_reshape(i, d);
    case HLO_REVERSE:
    case HLO_SLICE:
        return d;
    case HLO_PAD:
        return pads_slots(i) ? d : -1;
    case HLO_REDUCE_WINDOW:
        return window_along(i, d) ? d : -1;
    case HLO_REDUCE:
        return i->n_operands == 2 ? reduced_dim(i, d) : -1;
    default:
        return -1;
    }
}

// ---- what takes slots and gives none

// Can the reducer be written for whole slots?
static bool body_is_pointwise(const struct hlo_computation *f) {
    if (f->n_instrs > MOST_BODY) return false;
    HLO_EACH_INSTR(i, f) {
        bool sums = i->op != HLO_MAXIMUM && i->op != HLO_MINIMUM && i->op != HLO_SELECT;
        if (i->op == HLO_PARAMETER || i->op == HLO_CONSTANT) continue;
        if (i->op == HLO_TUPLE && i == f->root) continue;
        if (!hlo_is_pointwise(i) || (sums && is_short_float(i->shape->dtype))) return false;
    }
    return true;
}
static bool reduces_slots(const struct hlo_instr *i, int d) {
    struct i64s gone = HLO_ATTR(i, dims)->dimensions;
    return i->op == HLO_REDUCE && gone.n == 1 && gone.v[0] == d && body_is_pointwise(i->called[0]);
}
// Does gather i take of each element of its result one slot, named by an index of its own (JAX's
// take_along_axis and choose)? `map`: the result's dimensions that the operand's others are.
static bool chooses(const struct hlo_instr *i, int d, int64_t *map) {
    if (i->op != HLO_GATHER) return false;
    const struct hlo_attr_gather *g = HLO_ATTR(i, gather);
    const struct shape *from = i->operands[0]->shape, *index = i->operands[1]->shape;
    if (g->start_index_map.n != 1 || g->start_index_map.v[0] != d ||
        g->collapsed_slice_dims.n != 1 || g->collapsed_slice_dims.v[0] != d || g->offset_dims.n ||
        g->operand_batching_dims.n != from->rank - 1 || g->slice_sizes.v[d] != 1 ||
        from->dims[d] > MOST_CHOICES || i->operands[1]->shape->dynamic)
        return false;
    for (int k = 0; k < from->rank - 1; k++) {
        int64_t to = g->start_indices_batching_dims.v[k];
        map[k] = to - (to > g->index_vector_dim);
        if (g->operand_batching_dims.v[k] != k + (k >= d) || (k && map[k] <= map[k - 1]))
            return false;
    }
    return g->index_vector_dim <= index->rank;
}
static bool ends(const struct hlo_instr *i, int k, int d) {
    int64_t map[HLO_MAX_RANK];
    if (i->control_preds.n || i->n_awaiting || (!shape_is_tuple(i->shape) && !plain(i)))
        return false;
    if (i->op == HLO_REDUCE) return k < i->n_operands / 2 && reduces_slots(i, d);
    return k == 0 && chooses(i, d, map);
}

// ---- who is taken apart

// Does the slot of x along d cost no pass over memory of its own?
static bool has_slots(const struct unstack *u, const struct hlo_instr *x, int d) {
    if (x->shape->rank == 0 || x->op == HLO_IOTA || x->op == HLO_CONSTANT) return true;
    if (x->op == HLO_BROADCAST) return true;
    if (at(u, x)->dim == d || x->shape->dims[d] == 1) return true;
    return behind(x->shape, d) >= LEAST_LINE || x->shape->dims[d] <= MOST_COLUMNS;
}
// The dimension along which all users of i take single slots; -1: there is none.
static int sliced_dim(const struct hlo_instr *i) {
    int d = -1;
    for (size_t n = 0; n < i->users.n; n++) {
        const struct hlo_instr *s = i->users.v[n];
        if (s->op != HLO_SLICE || !plain(s)) return -1;
        for (int k = 0; k < s->shape->rank; k++) {
            if (s->shape->dims[k] == i->shape->dims[k]) continue;
            if (s->shape->dims[k] != 1 || (d >= 0 && d != k)) return -1;
            d = k;
        }
    }
    return d >= 0 && i->shape->dims[d] <= MOST_COLUMNS ? d : -1;
}
// Is x made by a loop whose short rows begin and end apart (padding, the next of some operands)?
// Joined with what is dear, as the exponentials of a sum of shifted rows, that is single elements'.
static bool has_edges(const struct hlo_instr *x, int look) {
    bool apart = x->op == HLO_PAD || x->op == HLO_CONCATENATE;
    if (apart) return x->shape->rank && x->shape->dims[x->shape->rank - 1] < SHORT_ROW;
    bool view = x->op == HLO_RESHAPE || x->op == HLO_SLICE;
    if (look == 0 || !(view || hlo_is_pointwise(x))) return false;
    for (int k = 0; k < x->n_operands; k++)
        if (has_edges(x->operands[k], look - 1)) return true;
    return false;
}
static bool begins(const struct hlo_instr *i) {
    for (int k = 0; k < i->n_operands; k++)
        if (has_edges(i->operands[k], MOST_LOOK)) return false;
    return shape_elements(i->shape) / i->shape->dims[HLO_ATTR(i, dims)->dimensions.v[0]] >=
           LEAST_SLOT;
}
static void find(struct unstack *u, struct hlo_instr *i) {
    struct stack *s = at(u, i);
    int d = -1;
    if (!plain(i)) return;
    if (i->op == HLO_CONCATENATE) d = (int)HLO_ATTR(i, dims)->dimensions.v[0];
    for (int k = 0; k < i->n_operands && d < 0; k++)
        if (at(u, i->operands[k])->dim >= 0) d = through(i, k, at(u, i->operands[k])->dim);
    bool starts = d < 0 && hlo_is_pointwise(i);
    if (starts) d = sliced_dim(i);
    if (d < 0 || i->shape->dims[d] > MOST_SLOTS || i->shape->dims[d] < 1) return;
    if (starts && shape_elements(i->shape) / i->shape->dims[d] < LEAST_SLOT) return;
    if (i->op == HLO_CONCATENATE && !begins(i)) return;
    bool by_operand = hlo_is_pointwise(i) || i->op == HLO_CONCATENATE;
    for (int k = 0; k < i->n_operands && by_operand; k++)
        if (!has_slots(u, i->operands[k], d) || !plain(i->operands[k])) return;
    *s = (struct stack){.dim = d, .n = i->shape->dims[d], .starts = starts};
}
// Does each user go by the slots of i?
static bool read_by_slots(const struct unstack *u, const struct hlo_instr *i) {
    int d = at(u, i)->dim;
    for (size_t n = 0; n < i->users.n; n++) {
        const struct hlo_instr *user = i->users.v[n];
        const struct stack *to = at(u, user);
        for (int k = 0; k < user->n_operands; k++) {
            if (user->operands[k] != i || ends(user, k, d)) continue;
            if (to->dim < 0 || through(user, k, d) != to->dim || !(to->apart || to->n == 1))
                return false;
        }
    }
    return i->users.n > 0 && i != i->parent->root;
}
static bool has_parts(const struct unstack *u, const struct hlo_instr *i) {
    if (i->op == HLO_CONCATENATE || at(u, i)->starts) return true;
    for (int k = 0; k < i->n_operands; k++)
        if (at(u, i->operands[k])->apart) return true;
    return false;
}

// ---- slots

static hv slot(struct unstack *u, hv x, int d, int64_t k) {
    const struct stack *s = at(u, x);
    int64_t dims[HLO_MAX_RANK];
    if (s->slots && s->dim == d) return s->slots[k];
    if (x->shape->rank == 0 || x->shape->dims[d] == 1) return x;
    memcpy(dims, x->shape->dims, sizeof *dims * (size_t)x->shape->rank);
    dims[d] = 1;
    const struct shape *one =
        shape_make(u->b.c->module->arena, x->shape->dtype, dims, x->shape->rank);
    if (x->op == HLO_BROADCAST) {
        struct i64s map = HLO_ATTR(x, dims)->dimensions;
        hv of = x->operands[0];
        for (int j = 0; j < map.n; j++)
            if (map.v[j] == d) of = slot(u, of, j, k);
        return hb_broadcast(&u->b, of, dims, x->shape->rank, map.v);
    }
    bool counts = x->op == HLO_IOTA, along = counts && HLO_ATTR(x, iota)->iota_dimension == d;
    if (along && (double)k <= dtype_highest(x->shape->dtype)) // places behind it begin anew
        return hb_splat(&u->b, one, (double)k);
    if (counts && !along) return hb_iota(&u->b, one, HLO_ATTR(x, iota)->iota_dimension);
    struct range v[HLO_MAX_RANK];
    for (int e = 0; e < x->shape->rank; e++)
        v[e] = (struct range){0, x->shape->dims[e], 1};
    v[d] = (struct range){k, k + 1, 1};
    return hb_slice(&u->b, x, v);
}
// Slot k of concatenate i.
static hv part(struct unstack *u, const struct hlo_instr *i, int d, int64_t k) {
    for (int j = 0; j < i->n_operands; j++) {
        int64_t n = i->operands[j]->shape->dims[d];
        if (k < n) return slot(u, i->operands[j], d, k);
        k -= n;
    }
    return NULL;
}
// A sum that begins with 0 begins with its first term: 0 + -0 is 0, which strict tells from -0.
static bool starts_at_zero(const struct unstack *u, enum hlo_op op, const struct hlo_instr *init) {
    bool strict = u->p->opt && u->p->opt->precision == PRECISION_STRICT;
    return !strict && op == HLO_ADD && match_splat_is(init, 0);
}
static hv window_slot(struct unstack *u, const struct hlo_instr *i, int from, int d, int64_t k) {
    const struct window_dim *w = &HLO_ATTR(i, window)->window.v[d];
    hv x = i->operands[0];
    const struct shape *s = slot(u, x, from, 0)->shape;
    enum hlo_op op;
    hlo_reducer_op(i->called[0], &op);
    bool free = starts_at_zero(u, op, i->operands[1]);
    hv y = free ? NULL : hb_broadcast(&u->b, i->operands[1], s->dims, s->rank, NULL);
    for (int64_t j = 0; j < w->size; j++) {
        int64_t place =
            k * w->stride + (w->reversal ? w->size - 1 - j : j) * w->window_dilation - w->pad_low;
        bool inside = place >= 0 && place < x->shape->dims[from];
        if (!inside) continue;
        hv z = slot(u, x, from, place);
        y = y ? hb_binary(&u->b, op, y, z) : z;
    }
    return y ? y : hb_splat(&u->b, s, 0);
}
static hv slice_slot(struct unstack *u, const struct hlo_instr *i, int d, int64_t k) {
    struct ranges s = HLO_ATTR(i, slice)->slice;
    struct range v[HLO_MAX_RANK];
    memcpy(v, s.v, sizeof *v * (size_t)s.n);
    hv x = slot(u, i->operands[0], d, v[d].start + k * v[d].stride);
    v[d] = (struct range){0, 1, 1};
    return hb_slice(&u->b, x, v);
}
static hv pad_slot(struct unstack *u, const struct hlo_instr *i, int d, int64_t k) {
    const struct padding *p = &HLO_ATTR(i, pad)->padding;
    struct pad_dim v[HLO_MAX_RANK];
    int64_t dims[HLO_MAX_RANK], from = k - p->v[d].low;
    memcpy(v, p->v, sizeof *v * (size_t)p->n);
    v[d] = (struct pad_dim){0, 0, 0};
    if (from >= 0 && from < i->operands[0]->shape->dims[d])
        return hb_pad(&u->b, slot(u, i->operands[0], d, from), i->operands[1], v);
    memcpy(dims, i->shape->dims, sizeof *dims * (size_t)i->shape->rank);
    dims[d] = 1;
    return hb_broadcast(&u->b, i->operands[1], dims, i->shape->rank, NULL);
}
// Operations on one operand that name dimensions; s: the shape of a slot of i's.
static hv moved_slot(struct unstack *u, const struct hlo_instr *i, int from, int d, int64_t k,
                     const struct shape *s) {
    hv x = i->operands[0];
    struct i64s all = HLO_ATTR(i, dims)->dimensions;
    switch (i->op) {
    case HLO_BROADCAST:
        return hb_broadcast(&u->b, slot(u, x, from, k), s->dims, s->rank, all.v);
    case HLO_TRANSPOSE:
        return hb_transpose(&u->b, slot(u, x, from, k), all.v);
    case HLO_REVERSE:
        return hb_reverse(&u->b, slot(u, x, from, i64s_has(all, d) ? at(u, i)->n - 1 - k : k),
                          all.v, (int)all.n);
    default: // a reduction of other dimensions
        return hb_call(&u->b, HLO_REDUCE, s, (hv[]){slot(u, x, from, k), i->operands[1]}, 2,
                       i->attr, i->called, 1);
    }
}
static int source_of(const struct unstack *u, const struct hlo_instr *i, int d) {
    int from = at(u, i->operands[0])->dim;
    return from >= 0 && through(i, 0, from) == d ? from : -1;
}
static hv make_slot(struct unstack *u, const struct hlo_instr *i, int d, int64_t k) {
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, i->shape->dims, sizeof *dims * (size_t)i->shape->rank);
    dims[d] = 1;
    const struct shape *s =
        shape_make(i->parent->module->arena, i->shape->dtype, dims, i->shape->rank);
    if (i->op == HLO_CONCATENATE) return part(u, i, d, k);
    if (hlo_is_pointwise(i)) {
        hv *in = arena_array(&u->p->scratch, hv, (size_t)i->n_operands);
        for (int j = 0; j < i->n_operands; j++)
            in[j] = slot(u, i->operands[j], d, k);
        return hb_op(&u->b, i->op, s, in, i->n_operands, i->attr);
    }

    int from = source_of(u, i, d);
    switch (i->op) {
    case HLO_RESHAPE:
        return hb_reshape(&u->b, slot(u, i->operands[0], from, k), s->dims, s->rank);
    case HLO_SLICE:
        return slice_slot(u, i, d, k);
    case HLO_PAD:
        return pad_slot(u, i, d, k);
    case HLO_REDUCE_WINDOW:
        return window_slot(u, i, from, d, k);
    default:
        return moved_slot(u, i, from, d, k, s);
    }
}

// ---- ends

// What reducer f gives for the values `in`, elementwise: as many as it has results, in `out`.
static void apply(struct unstack *u, const struct hlo_computation *f, hv const *in,
                  const struct shape *s, hv *out) {
    struct arena *a = f->module->arena;
    hv *made = arena_array(&u->p->scratch, hv, (size_t)f->n_instrs), ops[MOST_BODY];
    uint32_t n = 0;
    HLO_EACH_INSTR(i, f) {
        i->place = n;
        if (i->op == HLO_TUPLE) break; // the root
        for (int k = 0; k < i->n_operands; k++)
            ops[k] = made[i->operands[k]->place];
        const struct shape *wide = shape_make(a, i->shape->dtype, s->dims, s->rank);
        made[n++] =
            i->op == HLO_PARAMETER ? in[i->param_number]
            : i->op == HLO_CONSTANT
                ? hb_broadcast(&u->b, hb_constant(&u->b, i->literal), s->dims, s->rank, NULL)
                : hb_op(&u->b, i->op, wide, ops, i->n_operands, i->attr);
    }
    const struct hlo_instr *root = f->root;
    bool several = root->op == HLO_TUPLE;
    for (int k = 0; k < (several ? root->n_operands : 1); k++)
        out[k] = made[several ? root->operands[k]->place : root->place];
}
static hv reduce_slots(struct unstack *u, const struct hlo_instr *i, int d) {
    int n = i->n_operands / 2;
    bool several = shape_is_tuple(i->shape);
    const struct shape *s = several ? i->shape->elems[0] : i->shape;
    hv *in = arena_array(&u->p->scratch, hv, (size_t)i->n_operands);
    for (int k = 0; k < n; k++)
        in[k] = hb_broadcast(&u->b, i->operands[n + k], s->dims, s->rank, NULL);
    enum hlo_op op;
    bool free =
        n == 1 && hlo_reducer_op(i->called[0], &op) && starts_at_zero(u, op, i->operands[1]);
    for (int64_t j = 0; j < i->operands[0]->shape->dims[d]; j++) {
        for (int k = 0; k < n; k++)
            in[n + k] = hb_reshape(&u->b, slot(u, i->operands[k], d, j), s->dims, s->rank);
        hv *out = arena_array(&u->p->scratch, hv, (size_t)n);
        if (free && j == 0)
            out[0] = in[1];
        else
            apply(u, i->called[0], in, s, out);
        memcpy(in, out, sizeof *in * (size_t)n);
    }
    return several ? hb_tuple(&u->b, in, n) : in[0];
}
// Places below 0 are the first slot, those behind the end the last one.
static hv choose(struct unstack *u, const struct hlo_instr *i, int d, const int64_t *map) {
    const struct shape *s = i->shape, *from = i->operands[0]->shape;
    hv index = hb_reshape(&u->b, i->operands[1], s->dims, s->rank), y = NULL;
    int64_t dims[HLO_MAX_RANK];
    int rank = 0;
    for (int k = 0; k < from->rank; k++)
        if (k != d) dims[rank++] = from->dims[k];
    for (int64_t k = from->dims[d] - 1; k >= 0; k--) {
        hv x = hb_reshape(&u->b, slot(u, i->operands[0], d, k), dims, rank);
        x = hb_broadcast(&u->b, x, s->dims, s->rank, map);
        y = y ? hb_select(
                    &u->b,
                    hb_compare(&u->b, index, hb_splat(&u->b, index->shape, (double)k), CMP_LE), x,
                    y)
              : x;
    }
    return y;
}

static status_t take_apart(struct unstack *u, struct hlo_instr *i) {
    struct stack *s = at(u, i);
    struct hlo_instr *last = i->parent->last;
    int64_t map[HLO_MAX_RANK];
    hv y = NULL;
    u->b.op_type = i->op_type;
    u->b.op_name = i->op_name;
    int d = i->n_operands ? at(u, i->operands[0])->dim : -1;
    bool reads = i->n_operands && at(u, i->operands[0])->slots;
    for (int k = 1; k < i->n_operands; k++)
        reads |= at(u, i->operands[k])->slots != NULL;
    if (s->apart && has_parts(u, i)) {
        s->slots = arena_array(&u->p->scratch, hv, (size_t)s->n);
        for (int64_t k = 0; k < s->n; k++)
            s->slots[k] = make_slot(u, i, s->dim, k);
        pass_place(last, i);
        u->p->changed = true;
    } else if (reads) {
        if (s->dim >= 0 && s->n == 1)
            y = make_slot(u, i, s->dim, 0);
        else if (i->op == HLO_REDUCE)
            y = reduce_slots(u, i, (int)HLO_ATTR(i, dims)->dimensions.v[0]);
        else if (chooses(i, d, map))
            y = choose(u, i, d, map);
    }
    return y ? pass_put_instead(&u->b, last, i, y) : hb_end(&u->b);
}
static status_t each(struct unstack *u, struct hlo_computation *c) {
    int64_t made = 0;
    HLO_EACH_INSTR(i, c)
    *at(u, i) = (struct stack){.dim = -1};
    HLO_EACH_INSTR(i, c)
    find(u, i);
    for (struct hlo_instr *i = c->last; i; i = i->prev)
        if (at(u, i)->dim >= 0) at(u, i)->apart = at(u, i)->n > 1 && read_by_slots(u, i);
    HLO_EACH_INSTR(i, c) { // what an array that stays is read by stays, too
        struct stack *s = at(u, i);
        s->apart = s->apart && has_parts(u, i);
        made += s->apart ? s->n : 0;
    }
    if (made == 0 || (u->left -= made) < 0) return ST_OK;
    u->b = hb_begin(c);
    HLO_EACH_INSTR(i, c)
    if (i->id < u->n_ids) RETURN_IF_ERR(take_apart(u, i));
    hlo_remove_dead(c);
    return ST_OK;
}
status_t pass_unstack(struct hlo_module *m, struct pass_ctx *p) {
    struct unstack u = {.p = p,
                        .of = arena_array(&p->scratch, struct stack, m->next_id),
                        .n_ids = m->next_id,
                        .left = BUDGET};
    HLO_EACH_COMPUTATION(c, m)
    if (!c->fusion) RETURN_IF_ERR(each(&u, c));
    return ST_OK;
}
