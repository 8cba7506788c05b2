// SPDX-License-Identifier: Apache-2.0
// Each value of the body is put into a class by what it is made of: of what does not change, of
// values that all lanes share, or of the lane. A value of the lane has the lanes' dimensions in
// front, behind `lead` dimensions of one (a turn's part of a stack), and nothing that makes it may
// move elements across them. The lanes are tried from all dimensions of the largest array down.
#include "compiler/ops/while.h"

#include "compiler/ir/turns.h"
#include "compiler/ir/work.h"

enum {
    MOST_VALUES = 400, // of a body
    MOST_OPS = 1200,   // operations of a lane
    ONE_LANE_REST = 8, // of an array where there is one lane: more are better a vector
    LEAST_LANES = 32,
    SHORT_SUM = 8, // terms that the lowering writes out
    DEAR = 48,     // operations that a transcendental function takes
    MOST_CONSTANTS = 64,
    MOST_NUMBERS = 1 << 21 // values of a stack's place, over all turns
};
static const int64_t MOST_WORK = INT64_C(4000000000); // of a whole loop: seconds

enum cls { CLS_NONE, CLS_SAME, CLS_UNIFORM, CLS_LANE };
struct value {
    enum cls cls;
    bool wide;  // has the lanes' dimensions; uniform: all lanes alike
    bool mixed; // of what is the same each turn: where an element lies takes divisions
    int lead;   // dimensions of one in front of the lanes'
};
struct look {
    const struct hlo_computation *body;
    struct while_lanes *l;
    struct pmap at; // instruction -> index in v + 1
    struct value v[MOST_VALUES];
    int n;
};

// ---- whole numbers by turn

struct numbers {
    const struct hlo_instr *w;
    int64_t turn, left; // values that may still be computed, of all turns
};
static bool number_at(struct numbers *n, const struct hlo_instr *i, int depth, int64_t *out);
static bool counter_at(const struct hlo_instr *w, int64_t k, int64_t turn, int64_t *out) {
    const struct hlo_instr *init = w->operands[0]->operands[k];
    int64_t step;
    if (init->op != HLO_CONSTANT || init->shape->rank || !hlo_turn_step(w->called[1], k, &step))
        return false;
    return !__builtin_mul_overflow(step, turn, out) &&
           !__builtin_add_overflow(*out, lit_get_i64(init->literal, 0), out);
}
static bool both_at(struct numbers *n, const struct hlo_instr *i, int depth, int64_t *out) {
    int64_t x, y;
    if (!number_at(n, i->operands[0], depth + 1, &x) ||
        !number_at(n, i->operands[1], depth + 1, &y))
        return false;
    switch (i->op) {
    case HLO_ADD:
        return !__builtin_add_overflow(x, y, out);
    case HLO_SUBTRACT:
        return !__builtin_sub_overflow(x, y, out);
    case HLO_MULTIPLY:
        return !__builtin_mul_overflow(x, y, out);
    case HLO_MAXIMUM:
        return *out = x > y ? x : y, true;
    case HLO_MINIMUM:
        return *out = x < y ? x : y, true;
    case HLO_COMPARE:
        *out = HLO_ATTR(i, compare)->direction == CMP_LT   ? x < y
               : HLO_ATTR(i, compare)->direction == CMP_GE ? x >= y
                                                           : -1;
        return *out >= 0;
    default:
        return false;
    }
}
// The value of i, a scalar of signed integers, in a turn; false: not known, or beyond its type.
static bool number_at(struct numbers *n, const struct hlo_instr *i, int depth, int64_t *out) {
    enum { DEEPEST = 12 };
    enum dtype t = i->shape->dtype;
    int64_t k;
    bool ok = false;
    if (--n->left < 0 || depth > DEEPEST || shape_is_tuple(i->shape) || i->shape->rank ||
        (dtype_class(t) != DC_SIGNED && t != DT_PRED))
        return false;
    if (i->op == HLO_CONSTANT)
        *out = lit_get_i64(i->literal, 0), ok = true;
    else if (hlo_is_element_of(i, n->w->called[1]->params.v[0], &k))
        ok = counter_at(n->w, k, n->turn, out);
    else if (i->op == HLO_CONVERT)
        ok = number_at(n, i->operands[0], depth + 1, out);
    else if (i->op == HLO_SELECT && number_at(n, i->operands[0], depth + 1, &k))
        ok = number_at(n, i->operands[k ? 1 : 2], depth + 1, out);
    else if (i->n_operands == 2)
        ok = both_at(n, i, depth, out);
    int bits = dtype_bits(t);
    return ok && (t == DT_PRED || bits == 64 ||
                  (*out >= -(INT64_C(1) << (bits - 1)) && *out < INT64_C(1) << (bits - 1)));
}

// ---- the state

// Element k of the state as a stack: one update of itself, at the turn or from behind.
static bool is_stack(const struct hlo_instr *w, struct while_lanes *l, int k) {
    const struct hlo_instr *u = w->called[1]->root->operands[k], *p = w->called[1]->params.v[0];
    int64_t of, at;
    if (u->op != HLO_DYNAMIC_UPDATE_SLICE || u->users.n != 1 ||
        !hlo_is_element_of(u->operands[0], p, &of))
        return false;
    const struct shape *s = u->shape, *part = u->operands[1]->shape;
    if (of != k || u->n_operands != s->rank + 2 || s->rank < 1 || s->dims[0] != l->turns ||
        part->dims[0] != 1)
        return false;
    for (int d = 1; d < s->rank; d++)
        if (part->dims[d] != s->dims[d]) return false;
    for (size_t e = 0; e < p->users.n; e++)
        if (hlo_is_element_of(p->users.v[e], p, &of) && of == k &&
            (p->users.v[e]->users.n != 1 || p->users.v[e] != u->operands[0]))
            return false;

    bool forth = true, back = true;
    struct numbers n = {.w = w, .left = MOST_NUMBERS};
    for (; n.turn < l->turns && (forth || back); n.turn++) {
        if (!number_at(&n, u->operands[2], 0, &at)) return false;
        forth &= at == n.turn;
        back &= at == l->turns - 1 - n.turn;
    }
    l->e[k].kind = LANES_STACK;
    l->e[k].back = !forth;
    l->e[k].next = u->operands[1];
    return forth || back;
}
// Everything but which arrays have lanes.
static bool read_state(const struct hlo_instr *w, struct while_lanes *l) {
    const struct hlo_instr *p = w->called[1]->params.v[0], *r = w->called[1]->root;
    if (!shape_is_tuple(w->shape) || w->control_preds.n || w->operands[0]->op != HLO_TUPLE ||
        r->op != HLO_TUPLE || r->users.n || w->called[1]->n_instrs > MOST_VALUES)
        return false;
    l->n = w->shape->n_elems;
    l->turns = hlo_turns(w);
    if (l->n < 1 || l->n > LANES_STATE || l->turns < 2) return false;
    for (size_t u = 0; u < p->users.n; u++)
        if (p->users.v[u]->op != HLO_GET_TUPLE_ELEMENT) return false;
    for (int k = 0; k < l->n; k++) {
        const struct shape *s = w->shape->elems[k];
        int64_t same;
        if (shape_is_tuple(s) || dtype_class(s->dtype) == DC_NONE || s->dynamic ||
            !layout_is_default(s->layout, s->rank) || !shape_elements(s))
            return false;
        l->e[k].kind = LANES_VARYING;
        l->e[k].next = r->operands[k];
        if (hlo_is_element_of(r->operands[k], p, &same) && same == k)
            l->e[k].kind = LANES_FIXED;
        else if (r->operands[k]->op == HLO_DYNAMIC_UPDATE_SLICE && !is_stack(w, l, k))
            return false;
    }
    return true;
}

// ---- values

static bool has_lanes(const struct look *x, const struct shape *s, int lead) {
    if (x->l->lanes == 1 || s->rank < lead + x->l->rank) return false;
    for (int d = 0; d < lead; d++)
        if (s->dims[d] != 1) return false;
    for (int d = 0; d < x->l->rank; d++)
        if (s->dims[lead + d] != x->l->dims[d]) return false;
    return shape_elements(s) / x->l->lanes <= LANES_REST;
}
static bool is_few(const struct look *x, const struct shape *s) {
    return shape_elements(s) <= (x->l->lanes == 1 ? ONE_LANE_REST : LANES_REST);
}
static const struct value *value_of(const struct look *x, const struct hlo_instr *i) {
    static const struct value none = {CLS_NONE, false, false, 0};
    intptr_t k = (intptr_t)pmap_get_ptr(&x->at, i);
    return k ? &x->v[k - 1] : &none;
}
// `lead` of a value that keeps the lanes of s, which has `from` of them; -1: it does not.
static int same_lanes(const struct look *x, const struct shape *s, int from) {
    return has_lanes(x, s, from) ? from : has_lanes(x, s, !from) ? !from : -1;
}

// The dimensions up to `d` stay as they are.
static bool keeps_front(const struct hlo_instr *i, int d) {
    const struct shape *from = i->operands[0]->shape;
    for (int k = 0; k < d; k++)
        if (i->op == HLO_SLICE) {
            struct range r = HLO_ATTR(i, slice)->slice.v[k];
            if (r.start || r.stride != 1 || r.limit != from->dims[k]) return false;
        } else if (i->op == HLO_PAD) {
            struct pad_dim p = HLO_ATTR(i, pad)->padding.v[k];
            if (p.low || p.high || p.interior) return false;
        } else if (i->op == HLO_TRANSPOSE) {
            if (HLO_ATTR(i, dims)->dimensions.v[k] != k) return false;
        } else if (i64s_has(HLO_ATTR(i, dims)->dimensions, k)) {
            return false; // reverse, concatenate, reduce: dimensions that they change
        }
    return true;
}
// Where a broadcast puts the dimensions of an operand that has lanes (wide) or few elements.
static bool broadcast_to(const struct look *x, const struct hlo_instr *i, const struct value *of,
                         struct value *v) {
    struct i64s dims = HLO_ATTR(i, dims)->dimensions;
    int lead = same_lanes(x, i->shape, 0), rank = x->l->rank;
    v->wide = lead >= 0;
    v->lead = lead;
    if (!v->wide) return !of->wide && is_few(x, i->shape);
    for (int d = 0; d < dims.n; d++) {
        bool lane = of->wide && d >= of->lead && d < of->lead + rank;
        bool one = i->operands[0]->shape->dims[d] == 1;
        if (lane ? dims.v[d] != lead + d - of->lead : !one && dims.v[d] < lead + rank) return false;
    }
    return true;
}
static bool slice_of_same(const struct look *x, const struct hlo_instr *i, struct value *v) {
    const struct shape *from = i->operands[0]->shape;
    v->lead = same_lanes(x, i->shape, 0);
    v->wide = v->lead >= 0;
    v->cls = v->wide ? CLS_LANE : CLS_UNIFORM;
    if (i->n_operands != from->rank + 1) return false;
    for (int d = 0; v->wide && d < x->l->rank; d++)
        if (from->dims[v->lead + d] != x->l->dims[d]) return false;
    return v->wide || is_few(x, i->shape);
}
static int64_t sum_terms(const struct hlo_instr *i) {
    const struct shape *s = i->operands[0]->shape;
    struct i64s d =
        i->op == HLO_DOT ? HLO_ATTR(i, dot)->lhs_contracting_dims : HLO_ATTR(i, dims)->dimensions;
    int64_t n = 1;
    for (int k = 0; k < d.n; k++)
        n *= s->dims[d.v[k]];
    return n;
}
// The same operation on operands of one class, `of`, elsewhere.
static bool moved(const struct look *x, const struct hlo_instr *i, const struct value *of,
                  struct value *v) {
    *v = (struct value){of->cls, of->wide, of->mixed, of->lead};
    int front = of->wide ? of->lead + x->l->rank : 0;
    switch (i->op) {
    case HLO_BROADCAST:
        return broadcast_to(x, i, of, v);
    case HLO_RESHAPE:
        if (of->wide) v->lead = same_lanes(x, i->shape, 0);
        return of->wide ? v->lead >= 0 : is_few(x, i->shape);
    case HLO_REDUCE:
        if (i->n_operands != 2 || sum_terms(i) > SHORT_SUM) return false;
        break;
    case HLO_SLICE:
    case HLO_PAD:
    case HLO_TRANSPOSE:
    case HLO_REVERSE:
    case HLO_CONCATENATE:
        break;
    default:
        return false;
    }
    bool fits = of->wide ? has_lanes(x, i->shape, of->lead) : is_few(x, i->shape);
    return fits && keeps_front(i, front);
}

static bool cheap_move(const struct hlo_instr *i) {
    return i->op == HLO_BROADCAST || i->op == HLO_RESHAPE || i->op == HLO_SLICE ||
           i->op == HLO_TRANSPOSE || i->op == HLO_REVERSE || i->op == HLO_CONCATENATE ||
           i->op == HLO_PAD || i->op == HLO_IOTA;
}
// What no turn changes: memory, read anywhere.
static bool same_each_turn(const struct look *x, const struct hlo_instr *i, struct value *v) {
    *v = (struct value){.cls = CLS_SAME};
    if (i->op == HLO_CONSTANT) return shape_elements(i->shape) <= MOST_CONSTANTS;
    bool scalar = i->n_operands && !i->operands[0]->shape->rank;
    v->mixed = cheap_move(i) && !(i->op == HLO_BROADCAST && scalar) && i->shape->rank > 0 &&
               x->l->rank > 1;
    for (int k = 0; k < i->n_operands; k++)
        v->mixed |= value_of(x, i->operands[k])->mixed;
    return hlo_is_pointwise(i) || cheap_move(i);
}
// A dot of a few elements, all lanes alike.
static bool small_dot(const struct look *x, const struct hlo_instr *i) {
    int64_t most = dtype_is_complex(i->shape->dtype) ? SHORT_SUM / 2 : SHORT_SUM;
    return i->op == HLO_DOT && x->l->lanes == 1 && sum_terms(i) <= most && is_few(x, i->shape);
}
static bool made_of(const struct look *x, const struct hlo_instr *i, struct value *v) {
    struct value top = {.cls = CLS_SAME, .lead = -1};
    bool same = true;
    for (int k = 0; k < i->n_operands; k++) {
        const struct value *o = value_of(x, i->operands[k]);
        if (o->cls == CLS_NONE) return false;
        same &= o->cls == CLS_SAME;
        if (o->wide && top.lead >= 0 && o->lead != top.lead) return false;
        if (o->cls > top.cls) top.cls = o->cls;
        if (o->wide) top.wide = true, top.lead = o->lead;
    }
    if (same) return same_each_turn(x, i, v);
    for (int k = 0; k < i->n_operands; k++) {
        const struct value *o = value_of(x, i->operands[k]);
        if (o->cls == CLS_SAME && o->mixed && top.cls == CLS_LANE) return false;
    }
    if (i->op == HLO_DYNAMIC_SLICE)
        return value_of(x, i->operands[0])->cls == CLS_SAME &&
               !value_of(x, i->operands[0])->mixed && top.cls == CLS_UNIFORM &&
               slice_of_same(x, i, v);
    if (top.lead < 0) top.lead = 0;
    *v = top;
    if (hlo_is_pointwise(i))
        return top.wide ? has_lanes(x, i->shape, top.lead) : is_few(x, i->shape);
    if (small_dot(x, i)) return true;
    return moved(x, i, &top, v);
}
static bool classify(struct look *x, const struct hlo_instr *i, struct value *v) {
    int64_t k;
    if (shape_is_tuple(i->shape) || i->shape->dynamic || i->control_preds.n ||
        dtype_class(i->shape->dtype) == DC_NONE)
        return false;
    if (!hlo_is_element_of(i, x->body->params.v[0], &k)) return made_of(x, i, v);
    switch (x->l->e[k].kind) {
    case LANES_FIXED:
        *v = (struct value){.cls = CLS_SAME};
        return true;
    case LANES_UNIFORM:
        *v = (struct value){.cls = CLS_UNIFORM};
        return true;
    case LANES_VARYING:
        *v = (struct value){.cls = CLS_LANE, .wide = true};
        return true;
    case LANES_STACK:
        break;
    }
    return false; // read by its own update alone, which is not looked at
}

static int64_t ops_of(const struct look *x, const struct hlo_instr *i, const struct value *v) {
    int64_t n = shape_elements(i->shape);
    if (dtype_is_complex(i->shape->dtype)) n *= 4;
    bool counts = v->cls == CLS_LANE || (v->cls == CLS_UNIFORM && x->l->lanes == 1);
    if (v->wide) n /= x->l->lanes;
    if (!counts || !(hlo_is_pointwise(i) || i->op == HLO_REDUCE || i->op == HLO_DOT)) return 0;
    return n * (hlo_is_dear(i) ? DEAR : hlo_is_pointwise(i) ? 1 : sum_terms(i));
}

static bool fits(struct look *x, const struct hlo_instr *w) {
    int64_t rests = 0;
    for (int k = 0; k < x->l->n; k++) {
        const struct shape *s = w->shape->elems[k];
        if (x->l->e[k].kind == LANES_FIXED || x->l->e[k].kind == LANES_STACK) continue;
        bool wide = has_lanes(x, s, 0);
        x->l->e[k].kind = wide ? LANES_VARYING : LANES_UNIFORM;
        x->l->e[k].rest = wide ? shape_elements(s) / x->l->lanes : shape_elements(s);
        rests += x->l->e[k].rest;
        if (!wide && !is_few(x, s)) return false;
    }
    if (rests > LANES_VALUES) return false;

    x->n = 0;
    x->l->ops = 0;
    for (const struct hlo_instr *i = x->body->first; i; i = i->next) {
        if (i->op == HLO_PARAMETER || i == x->body->root) continue;
        if (!classify(x, i, &x->v[x->n])) continue; // whatever needs it does not fit
        x->l->ops += ops_of(x, i, &x->v[x->n]);
        pmap_put_ptr(&x->at, i, (void *)(intptr_t)++x->n);
    }
    for (int k = 0; k < x->l->n; k++) {
        if (x->l->e[k].kind == LANES_FIXED) continue;
        const struct value *v = value_of(x, x->l->e[k].next);
        const struct shape *s = x->l->e[k].next->shape;
        bool stack = x->l->e[k].kind == LANES_STACK;
        bool wide = has_lanes(x, s, stack);
        if (stack) x->l->e[k].rest = shape_elements(s) / (wide ? x->l->lanes : 1);
        if (stack && x->l->lanes > 1 && !wide) return false;
        if (v->cls == CLS_NONE || v->mixed || (wide && v->cls != CLS_SAME && !v->wide) ||
            (!wide && (v->cls == CLS_LANE || !is_few(x, s))))
            return false;
    }
    int64_t work = x->l->ops + 1;
    return x->l->ops <= MOST_OPS && !__builtin_mul_overflow(work, x->l->turns, &work) &&
           !__builtin_mul_overflow(work, x->l->lanes, &work) && work <= MOST_WORK;
}

bool while_lanes(const struct hlo_instr *w, struct while_lanes *out) {
    *out = (struct while_lanes){.turns = 0};
    if (w->op != HLO_WHILE || !read_state(w, out)) return false;
    const struct shape *largest = NULL;
    for (int k = 0; k < out->n; k++) {
        const struct shape *s = w->shape->elems[k];
        bool changes = out->e[k].kind == LANES_VARYING;
        if (changes && (!largest || shape_elements(s) > shape_elements(largest))) largest = s;
    }
    if (!largest) return false;

    bool one = shape_elements(largest) <= ONE_LANE_REST, found = false;
    for (int rank = one ? 0 : largest->rank; rank >= !one && !found; rank--) {
        struct look x = {.body = w->called[1], .l = out};
        out->rank = rank;
        out->lanes = 1;
        for (int d = 0; d < rank; d++)
            out->lanes *= out->dims[d] = largest->dims[d];
        if (rank && out->lanes < LEAST_LANES) break;
        found = fits(&x, w);
        pmap_done(&x.at);
    }
    return found;
}

const struct hlo_instr *while_of_fusion(const struct hlo_instr *fusion) {
    if (fusion->op != HLO_FUSION || !fusion->n_called) return NULL;
    for (const struct hlo_instr *i = fusion->called[0]->last; i; i = i->prev)
        if (i->op == HLO_WHILE) return i;
    return NULL;
}
