// SPDX-License-Identifier: Apache-2.0
// A whole loop as one kernel: a fusion around a while whose turns do not mix lanes
// (compiler/ops/while.h). A unit takes some lanes through all turns. Their state is in scratch, an
// array of lanes for each value, so that each turn is a loop for vectors over memory that stays in
// the nearest cache; where a turn is short, several are made at once, with the state in registers.
// One lane, or a unit that is an element, carries its state in registers. What all lanes share is
// carried by the loop over turns; every unit computes it for itself.
#include "compiler/kernel/lower_priv.h"
#include "compiler/ops/while.h"

enum { UNIT_BYTES = 16 << 10, LEAST_CHUNK = 64, MOST_CHUNK = 1024 };
enum { TURNS_OPS = 48, MOST_AT_ONCE = 8 }; // operations of turns that are made at once

struct lower_turn {
    const struct hlo_instr *w, *param; // the loop; its body's parameter
    const struct while_lanes *l;       // of it
    struct kir_val *lane;              // the lane that is being computed; NULL: of none
    struct kir_val *state[LANES_STATE][LANES_REST]; // its values
};
struct slot {
    int k; // value c of element k of the state
    int64_t c;
    int64_t at; // of a lane's: bytes in scratch
};
struct slots {
    struct slot v[LANES_VALUES];
    int n;
};
struct turns {
    struct lower_turn now;
    struct while_lanes l;
    const struct hlo_instr *root; // of the fusion
    struct slots shared, own;     // by all lanes; each lane's
    int64_t chunk;
    int result[LANES_STATE]; // number of the fusion's result; -1: none
    struct kir_val *lo;      // first lane of the unit
};
#define EACH_SLOT(s, slots) (const struct slot *s = (slots)->v; s < (slots)->v + (slots)->n; s++)

// What element k of the state began with: asked outside of the body.
static status_t initial(struct lower *lw, int k, struct kir_val *const *index,
                        struct kir_val **out) {
    struct lower_turn *t = lw->turn;
    int64_t number = lw->turn_number;
    lw->turn = NULL;
    lw->turn_number = 0;
    status_t st = lower_value(lw, t->w->operands[0]->operands[k], index, out);
    lw->turn = t;
    lw->turn_number = number;
    return st;
}
bool lower_turn_has(const struct lower *lw, const struct hlo_instr *element) {
    return lw->turn && element->operands[0] == lw->turn->param;
}
status_t lower_turn_get(struct lower *lw, const struct hlo_instr *element,
                        struct kir_val *const *index, struct kir_val **out) {
    struct lower_turn *t = lw->turn;
    int k = (int)HLO_ATTR(element, gte)->index;
    const struct shape *s = element->shape;
    int64_t c = 0, rest = t->l->e[k].rest;
    if (t->l->e[k].kind == LANES_FIXED) return initial(lw, k, index, out);
    if (t->l->e[k].kind == LANES_STACK) return lower_no(lw, "a turn that reads others' results");
    struct kir_val *v = lower_flatten(lw, index, s->dims, s->rank);
    if (t->l->e[k].kind == LANES_VARYING)
        v = kir_idx_add(&lw->k, v, kir_idx_mul(&lw->k, t->lane, -rest));
    if (!kir_is_const(v, &c) || c < 0 || c >= rest)
        return lower_no(lw, "a turn that reads other lanes");
    *out = t->state[k][c];
    return ST_OK;
}

// Index of value c of a lane in an array of shape s, behind `lead` dimensions of one.
static void place(struct lower *lw, const struct turns *t, const struct shape *s, int lead,
                  bool wide, int64_t c, struct kir_val **index) {
    int first = wide ? lead + t->l.rank : 0;
    for (int d = 0; d < lead && wide; d++)
        index[d] = kir_i64(&lw->k, 0);
    if (wide) lower_unflatten(lw, t->now.lane, t->l.dims, t->l.rank, index + lead);
    for (int d = s->rank - 1; d >= first; d--) {
        index[d] = kir_i64(&lw->k, c % s->dims[d]);
        c /= s->dims[d];
    }
}
static status_t value_at(struct lower *lw, const struct turns *t, const struct hlo_instr *i,
                         int lead, bool wide, int64_t c, struct kir_val **out) {
    struct kir_val *index[HLO_MAX_RANK + 1];
    place(lw, t, i->shape, lead, wide, c, index);
    return lower_value(lw, i, index, out);
}

// ---- state

static const struct shape *shape_of(const struct turns *t, int k) {
    return t->now.w->shape->elems[k];
}
static bool is_complex(const struct turns *t, const struct slot *s) {
    return dtype_is_complex(shape_of(t, s->k)->dtype);
}
static bool is_own(const struct turns *t, const struct slot *s) {
    return t->l.e[s->k].kind == LANES_VARYING;
}
static struct kir_val **state_of(struct turns *t, const struct slot *s) {
    return &t->now.state[s->k][s->c];
}
// The values that the loop begins with.
static status_t begin(struct lower *lw, struct turns *t, const struct slots *of) {
    struct kir_val *index[HLO_MAX_RANK + 1];
    for
        EACH_SLOT(s, of) {
            place(lw, t, shape_of(t, s->k), 0, is_own(t, s), s->c, index);
            RETURN_IF_ERR(initial(lw, s->k, index, state_of(t, s)));
        }
    return ST_OK;
}
// Carried values are real: flat from n on; gives how many there are then.
static int flatten_state(struct lower *lw, struct turns *t, const struct slots *of,
                         struct kir_val **flat, int n) {
    for
        EACH_SLOT(s, of) {
            flat[n++] = kir_re(&lw->k, *state_of(t, s));
            if (is_complex(t, s)) flat[n++] = kir_im(&lw->k, *state_of(t, s));
        }
    return n;
}
static int restore_state(struct lower *lw, struct turns *t, const struct slots *of,
                         struct kir_val *const *flat, int n) {
    for
        EACH_SLOT(s, of) {
            *state_of(t, s) = flat[n++];
            if (is_complex(t, s)) *state_of(t, s) = kir_complex(&lw->k, *state_of(t, s), flat[n++]);
        }
    return n;
}
// Part p of a lane's value in scratch: complex values lie as two arrays.
static struct kir_val *scratch_at(struct lower *lw, const struct turns *t, const struct slot *s,
                                  int p) {
    enum dtype part = kir_type(shape_of(t, s->k)->dtype);
    struct kir_val *at = kir_idx_add(&lw->k, t->now.lane, kir_idx_mul(&lw->k, t->lo, -1));
    return lower_scratch_index(lw, part, s->at + p * t->chunk * dtype_size(part), at);
}
static struct kir_val *load_part(struct lower *lw, const struct turns *t, const struct slot *s,
                                 int p) {
    return kir_load(&lw->k, KIR_SCRATCH, kir_type(shape_of(t, s->k)->dtype),
                    scratch_at(lw, t, s, p), KF_PINNED);
}
static void load_state(struct lower *lw, struct turns *t) {
    for
        EACH_SLOT(s, &t->own) {
            struct kir_val *v = load_part(lw, t, s, 0);
            *state_of(t, s) = is_complex(t, s) ? kir_complex(&lw->k, v, load_part(lw, t, s, 1)) : v;
        }
}
static void store_state(struct lower *lw, struct turns *t) {
    for
        EACH_SLOT(s, &t->own) {
            enum dtype part = kir_type(shape_of(t, s->k)->dtype);
            struct kir_val *v = *state_of(t, s);
            kir_store(&lw->k, KIR_SCRATCH, part, scratch_at(lw, t, s, 0), kir_re(&lw->k, v));
            if (is_complex(t, s))
                kir_store(&lw->k, KIR_SCRATCH, part, scratch_at(lw, t, s, 1), kir_im(&lw->k, v));
        }
}
static void store_results(struct lower *lw, struct turns *t, const struct slots *of) {
    struct kir_val *index[HLO_MAX_RANK + 1];
    for
        EACH_SLOT(s, of) {
            const struct shape *shape = shape_of(t, s->k);
            if (t->result[s->k] < 0) continue;
            place(lw, t, shape, 0, is_own(t, s), s->c, index);
            kir_store(&lw->k, lw->k.fn->n_in + t->result[s->k], shape->dtype,
                      lower_offset(lw, shape, index), *state_of(t, s));
        }
}

// ---- one turn

static status_t stack_part(struct lower *lw, struct turns *t, int k, struct kir_val *turn) {
    struct kir *b = &lw->k;
    const struct hlo_instr *part = t->l.e[k].next;
    int64_t each = t->l.lanes * t->l.e[k].rest;
    if (t->l.e[k].back) turn = kir_idx_add(b, kir_i64(b, t->l.turns - 1), kir_idx_mul(b, turn, -1));
    for (int64_t c = 0; c < t->l.e[k].rest; c++) {
        struct kir_val *v, *at = kir_idx_mul(b, turn, each);
        RETURN_IF_ERR(value_at(lw, t, part, 1, t->l.lanes > 1, c, &v));
        if (t->l.lanes > 1) at = kir_idx_add(b, at, kir_idx_mul(b, t->now.lane, t->l.e[k].rest));
        at = kir_idx_add(b, at, kir_i64(b, c));
        kir_store(b, b->fn->n_in + t->result[k], shape_of(t, k)->dtype, at, v);
    }
    return ST_OK;
}
static status_t next_state(struct lower *lw, struct turns *t, const struct slots *of,
                           struct kir_val **next) {
    for
        EACH_SLOT(s, of)
    RETURN_IF_ERR(value_at(lw, t, t->l.e[s->k].next, 0, is_own(t, s), s->c, next++));
    return ST_OK;
}
static void set_state(struct turns *t, const struct slots *of, struct kir_val *const *next) {
    for
        EACH_SLOT(s, of)
    *state_of(t, s) = *next++;
}
// The state after one turn of the lane, in place of the one before.
static status_t turn(struct lower *lw, struct turns *t, struct kir_val *number) {
    struct kir_val *next[LANES_VALUES];
    lw->turn_number++;
    for (int k = 0; k < t->l.n; k++)
        if (t->l.e[k].kind == LANES_STACK && t->result[k] >= 0)
            RETURN_IF_ERR(stack_part(lw, t, k, number));
    RETURN_IF_ERR(next_state(lw, t, &t->shared, next));
    RETURN_IF_ERR(next_state(lw, t, &t->own, next + t->shared.n));
    set_state(t, &t->shared, next);
    set_state(t, &t->own, next + t->shared.n);
    return lw->k.overflow ? lower_no(lw, "the kernel is too large") : ST_OK;
}
// The results that all lanes share: by the first unit alone.
static void store_shared(struct lower *lw, struct turns *t, struct kir_val *unit) {
    struct kir *k = &lw->k;
    bool any = false;
    for
        EACH_SLOT(s, &t->shared)
    any |= t->result[s->k] >= 0;
    if (!any) return;
    struct kir_val *first =
        kir_select(k, kir_cmp(k, CMP_EQ, unit, kir_i64(k, 0)), kir_i64(k, 1), kir_i64(k, 0));
    struct kir_loop *once = kir_for(k, kir_i64(k, 0), first, 1, NULL, 0);
    store_results(lw, t, &t->shared);
    kir_end(k, once, NULL);
}

// ---- a lane in registers

static status_t carried(struct lower *lw, struct turns *t) {
    struct kir *k = &lw->k;
    struct kir_val *flat[2 * LANES_VALUES];
    k->fn->extent = t->l.lanes;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, t->l.lanes, NULL, 0);
    u->var->hi = t->l.lanes - 1;
    t->now.lane = u->var;
    RETURN_IF_ERR(begin(lw, t, &t->shared));
    RETURN_IF_ERR(begin(lw, t, &t->own));
    int n = flatten_state(lw, t, &t->own, flat, flatten_state(lw, t, &t->shared, flat, 0));
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, t->l.turns), t->l.turns, flat, n);
    restore_state(lw, t, &t->own, l->carry, restore_state(lw, t, &t->shared, l->carry, 0));
    RETURN_IF_ERR(turn(lw, t, l->var));
    flatten_state(lw, t, &t->own, flat, flatten_state(lw, t, &t->shared, flat, 0));
    kir_end(k, l, flat);
    restore_state(lw, t, &t->own, l->result, restore_state(lw, t, &t->shared, l->result, 0));
    store_results(lw, t, &t->own);
    store_shared(lw, t, u->var);
    kir_end(k, u, NULL);
    return ST_OK;
}

// ---- lanes in vectors

static struct kir_loop *open_row(struct lower *lw, struct turns *t, struct kir_val *hi) {
    struct kir_loop *l = kir_for(&lw->k, t->lo, hi, t->l.lanes, NULL, 0);
    l->trip = t->chunk;
    l->vectorize = true;
    t->now.lane = l->var;
    return l;
}
// `times` turns of the unit's lanes from turn `first` on; leaves what they share after these.
static status_t row_of_turns(struct lower *lw, struct turns *t, struct kir_val *hi,
                             struct kir_val *first, int times) {
    struct kir *k = &lw->k;
    struct kir_loop *row = open_row(lw, t, hi);
    load_state(lw, t);
    for (int s = 0; s < times; s++)
        RETURN_IF_ERR(turn(lw, t, kir_idx_add(k, first, kir_i64(k, s))));
    store_state(lw, t);
    row->interleave = lower_side_by_side(lw, &row->body);
    kir_end(k, row, NULL);
    return ST_OK;
}
static status_t in_rows(struct lower *lw, struct turns *t) {
    struct kir *k = &lw->k;
    struct kir_val *flat[2 * LANES_VALUES];
    int64_t units = (t->l.lanes + t->chunk - 1) / t->chunk;
    int times = (int)(TURNS_OPS / (t->l.ops + 1));
    times = times < 1 ? 1 : times > MOST_AT_ONCE ? MOST_AT_ONCE : times;
    if (times > t->l.turns) times = (int)t->l.turns;
    k->fn->extent = units;
    struct kir_loop *u = kir_for(k, k->fn->begin, k->fn->end, units, NULL, 0), *row;
    u->var->hi = units - 1;
    t->lo = kir_idx_mul(k, u->var, t->chunk);
    struct kir_val *hi =
        kir_op(k, K_MIN, kir_idx_add(k, t->lo, kir_i64(k, t->chunk)), kir_i64(k, t->l.lanes), NULL);

    RETURN_IF_ERR(begin(lw, t, &t->shared));
    row = open_row(lw, t, hi);
    RETURN_IF_ERR(begin(lw, t, &t->own));
    store_state(lw, t);
    kir_end(k, row, NULL);

    int n = flatten_state(lw, t, &t->shared, flat, 0);
    int64_t trips = t->l.turns / times, left = t->l.turns % times;
    struct kir_loop *l = kir_for(k, kir_i64(k, 0), kir_i64(k, trips), trips, flat, n);
    restore_state(lw, t, &t->shared, l->carry, 0);
    RETURN_IF_ERR(row_of_turns(lw, t, hi, kir_idx_mul(k, l->var, times), times));
    flatten_state(lw, t, &t->shared, flat, 0);
    kir_end(k, l, flat);
    restore_state(lw, t, &t->shared, l->result, 0);
    if (left) RETURN_IF_ERR(row_of_turns(lw, t, hi, kir_i64(k, t->l.turns - left), (int)left));

    row = open_row(lw, t, hi);
    load_state(lw, t);
    store_results(lw, t, &t->own);
    kir_end(k, row, NULL);
    store_shared(lw, t, u->var);
    kir_end(k, u, NULL);
    return ST_OK;
}

// ---- the kernel

// Which result of the fusion element k of the state is.
static bool find_results(struct turns *t) {
    const struct hlo_instr *r = t->root;
    int n = r->op == HLO_TUPLE ? r->n_operands : 1;
    for (int k = 0; k < t->l.n; k++)
        t->result[k] = -1;
    for (int e = 0; e < n; e++) {
        const struct hlo_instr *x = r->op == HLO_TUPLE ? r->operands[e] : r;
        if (x->op != HLO_GET_TUPLE_ELEMENT || x->operands[0] != t->now.w) return false;
        int64_t k = HLO_ATTR(x, gte)->index;
        if (t->l.e[k].kind == LANES_FIXED || t->result[k] >= 0) return false;
        t->result[k] = e;
    }
    return true;
}
static void add_slots(const struct turns *t, enum lanes_kind kind, struct slots *out) {
    for (int k = 0; k < t->l.n; k++)
        for (int64_t c = 0; t->l.e[k].kind == kind && c < t->l.e[k].rest; c++)
            out->v[out->n++] = (struct slot){.k = k, .c = c};
}
// Places of the lanes' values in scratch, and how many lanes a unit takes.
static void lay_out(struct lower *lw, struct turns *t) {
    int64_t bytes = 1;
    for
        EACH_SLOT(s, &t->own)
    bytes += dtype_size(lower_scratch_type(shape_of(t, s->k)->dtype));
    int64_t chunk = UNIT_BYTES / bytes, share = t->l.lanes / 16;
    chunk = chunk < share ? chunk : share;
    chunk = chunk < LEAST_CHUNK  ? LEAST_CHUNK
            : chunk > MOST_CHUNK ? MOST_CHUNK
                                 : chunk / LEAST_CHUNK * LEAST_CHUNK;
    t->chunk = chunk;
    for (struct slot *s = t->own.v; s < t->own.v + t->own.n; s++)
        s->at = lower_scratch(lw, kir_type(shape_of(t, s->k)->dtype),
                              is_complex(t, s) ? 2 * chunk : chunk);
}
status_t lower_turns(struct lower *lw, const struct hlo_instr *w, int n_in, int n_out) {
    struct turns *t = arena_new_of(lw->arena, struct turns);
    *t = (struct turns){.now = {.w = w, .param = w->called[1]->params.v[0]},
                        .root = hlo_root(lw->instr->called[0])};
    bool ok = while_lanes(w, &t->l);
    t->now.l = &t->l;
    if (!ok || !find_results(t)) return lower_no(lw, "a loop whose turns mix lanes");
    add_slots(t, LANES_UNIFORM, &t->shared);
    add_slots(t, LANES_VARYING, &t->own);
    lower_begin(lw, n_in, n_out);
    lw->in_range = true;
    lw->turn = &t->now;
    bool registers = t->l.lanes == 1 || lw->elements;
    if (!registers) lay_out(lw, t);
    status_t st = registers ? carried(lw, t) : in_rows(lw, t);
    lw->turn = NULL;
    lw->turn_number = 0;
    lw->in_range = false;
    RETURN_IF_ERR(st);
    if (lw->k.overflow) return lower_no(lw, "the kernel is too large");
    kir_sweep(&lw->k);
    lw->k.fn->turns = true;
    lw->k.fn->scratch_bytes = lw->scratch;
    return ST_OK;
}
