// SPDX-License-Identifier: Apache-2.0
// Rules of conditional and while. A branch's derivative is a conditional on the same selector whose
// branches compute the branch again. A loop's runs the turns backward: it computes each turn again
// from the state that the turn began with, which the loop now keeps (of the elements that are
// needed, a row a turn).
#include "compiler/gradient/tape.h"
#include "compiler/ir/turns.h"
#include "compiler/passes/control/graph.h"

// ---- computations of one's own

// A new computation in front of t's, which may call what stands before that.
static struct hlo_computation *new_callee(struct tape *t, const char *name) {
    struct hlo_computation *c = hb_callee(t->b->c->module, name);
    hlo_computation_move_before(c, t->b->c);
    return c;
}
static void take_status(struct tape *t, struct hb *b) {
    status_t st = hb_end(b);
    if (st) hb_fail(t->b, st);
}
// Elements of tuples that are made in the same place as their operands, so that one value has one
// name.
static void fold_elements(struct hlo_computation *c) {
    HLO_EACH_INSTR(i, c)
    if (i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0]->op == HLO_TUPLE) {
        hlo_replace_uses(i, i->operands[0]->operands[HLO_ATTR(i, gte)->index]);
        if (i != c->root) hlo_remove_instr(i);
    }
}
// f's value for args, at the end of b's computation.
static hv inlined(struct hb *b, const struct hlo_computation *f, hv const *args) {
    hv end = hb_const_i64(b, DT_S32, 0), last = end->prev;
    hv r = graph_inline(end, f, args);
    hv keep = hb_tuple(b, &r, 1); // what stands for r when elements are folded
    fold_elements(b->c);
    (void)last;
    r = keep->op == HLO_TUPLE && keep->n_operands ? keep->operands[0] : r;
    return r;
}
static int n_elements(const struct shape *s) {
    return shape_is_tuple(s) ? s->n_elems : 1;
}
// The elements of a value, or itself.
static void explode(struct hb *b, hv v, hv *out) {
    if (!shape_is_tuple(v->shape))
        out[0] = v;
    else
        for (int k = 0; k < v->shape->n_elems; k++)
            out[k] = hb_gte(b, v, k);
}

// ---- conditional

// What each branch's operand wants: its real and complex leaves, those of branch 0 first.
struct wanted {
    int branch, element, leaf, whole; // leaf of the element, and of the operand
    const struct shape *shape;
};
static int find_wanted(struct tape *t, hv i, struct wanted *w) {
    int n = 0;
    for (int j = 0; j < i->n_called; j++) {
        hv x = i->operands[j + 1];
        int whole = 0;
        for (int e = 0; e < n_elements(x->shape); e++) {
            const struct shape *s = shape_is_tuple(x->shape) ? x->shape->elems[e] : x->shape;
            for (int leaf = 0; leaf < shape_leaves(s); leaf++, whole++)
                if (tape_wants(t, x) && tape_differentiable(shape_leaf(s, leaf)))
                    w[n++] = (struct wanted){j, e, leaf, whole, shape_leaf(s, leaf)};
        }
    }
    return n;
}
// Branch j computed again from (operand, derivatives by the result): derivatives by what is wanted,
// zeros for other branches' operands.
static struct hlo_computation *branch_back(struct tape *t, hv i, int j, hv const *d,
                                           const struct wanted *w, int n,
                                           const struct shape *given) {
    struct hlo_computation *c = new_callee(t, "branch_back");
    struct hb b = hb_begin(c);
    hv p = hlo_add_param(c, 0, given, "given"), arg = hb_gte(&b, p, 0);
    int n_x = n_elements(arg->shape), leaves = shape_leaves(i->shape), at = 1;
    hv *xs = arena_zarray(t->a, hv, n_x + 1), *seeds = arena_zarray(t->a, hv, leaves + 1),
       *out = arena_zarray(t->a, hv, n + 1);
    hv **grads = arena_zarray(t->a, hv *, n_x + 1);
    explode(&b, arg, xs);
    if (shape_is_tuple(arg->shape)) arg = hb_tuple(&b, xs, n_x);
    for (int k = 0; k < leaves; k++)
        if (d[k]) seeds[k] = hb_gte(&b, p, at++);
    hv y = inlined(&b, i->called[j], &arg);
    gradient_of(&b, y, seeds, xs, n_x, grads);
    for (int k = 0; k < n && hb_ok(&b); k++) {
        hv g = w[k].branch == j ? grads[w[k].element][w[k].leaf] : NULL;
        out[k] = g ? g : hb_splat(&b, w[k].shape, 0);
    }
    hv root = hb_tuple(&b, out, n);
    if (hb_ok(&b)) hlo_set_root(c, root);
    take_status(t, &b);
    if (c->root) hlo_remove_dead(c);
    return c;
}
void grad_conditional(struct tape *t, hv i, hv const *d) {
    int most = 0, branches = i->n_called, leaves = shape_leaves(i->shape);
    for (int j = 0; j < branches; j++)
        most += shape_leaves(i->operands[j + 1]->shape);
    struct wanted *w = arena_zarray(t->a, struct wanted, most + 1);
    int n = find_wanted(t, i, w), m = 1;
    hv *in = arena_zarray(t->a, hv, branches + 1), *part = arena_zarray(t->a, hv, leaves + 1);
    struct hlo_computation **called = arena_zarray(t->a, struct hlo_computation *, branches);
    const struct shape **shapes = arena_zarray(t->a, const struct shape *, n + 1);
    if (!n) return;
    for (int k = 0; k < leaves; k++)
        if (d[k]) part[m++] = d[k];
    in[0] = i->operands[0];
    for (int j = 0; j < branches && hb_ok(t->b); j++) {
        part[0] = i->operands[j + 1];
        in[j + 1] = hb_tuple(t->b, part, m);
        if (hb_ok(t->b)) called[j] = branch_back(t, i, j, d, w, n, in[j + 1]->shape);
    }
    for (int k = 0; k < n; k++)
        shapes[k] = w[k].shape;
    if (!hb_ok(t->b)) return;
    hv r = hb_call(t->b, HLO_CONDITIONAL, shape_tuple(t->a, shapes, n), in, branches + 1, NULL,
                   called, branches);
    for (int k = 0; k < n && hb_ok(t->b); k++)
        tape_give_leaf(t, i->operands[w[k].branch + 1], w[k].whole, hb_gte(t->b, r, k));
}

// ---- while

struct loop {
    struct tape *t;
    hv i;
    const struct hlo_computation *body;
    int n; // elements of the state, arrays
    int64_t turns;
    bool *carried; // has a derivative
    bool *same;    // the body leaves it as it is
    bool *kept;    // a row a turn is needed: it is read, and no counter
    bool *read;    // the derivative of a turn reads it
};
// Elements that depend on what is wanted, in this or a later turn.
static void find_carried(struct loop *l) {
    hv state = l->i->operands[0], p = l->body->params.v[0];
    for (int k = 0; k < l->n; k++)
        l->carried[k] = tape_differentiable(l->i->shape->elems[k]) &&
                        (state->op != HLO_TUPLE || tape_wants(l->t, state->operands[k]));
    for (bool more = true; more;) {
        struct pmap on = {0};
        more = false;
        for (hv i = l->body->first; i; i = i->next) {
            bool is = i->op == HLO_GET_TUPLE_ELEMENT && i->operands[0] == p
                          ? l->carried[HLO_ATTR(i, gte)->index]
                          : false;
            for (int k = 0; k < i->n_operands && !is; k++)
                is = pmap_has_ptr(&on, i->operands[k]);
            if (is) pmap_put_ptr(&on, i, NULL);
        }
        for (int k = 0; k < l->n; k++) {
            hv r = l->body->root->operands[k];
            if (l->carried[k] || !tape_differentiable(r->shape) || !pmap_has_ptr(&on, r)) continue;
            l->carried[k] = more = true;
        }
        pmap_done(&on);
    }
}
static bool stays(const struct hlo_computation *body, int k) {
    hv r = body->root->operands[k];
    return r->op == HLO_GET_TUPLE_ELEMENT && r->operands[0] == body->params.v[0] &&
           HLO_ATTR(r, gte)->index == k;
}
// A computation of (elements..., derivatives of the carried...) that gives the derivatives by the
// carried elements before the turn. Its parameters are told apart by number; it is only inlined.
static struct hlo_computation *turn_back(struct loop *l) {
    struct tape *t = l->t;
    struct hlo_computation *c = new_callee(t, "turn_back");
    struct hb b = hb_begin(c);
    hv *xs = arena_zarray(t->a, hv, l->n + 1), *seeds = arena_zarray(t->a, hv, l->n + 1),
       *out = arena_zarray(t->a, hv, l->n + 1), **grads = arena_zarray(t->a, hv *, l->n + 1);
    int at = l->n, m = 0;
    for (int k = 0; k < l->n; k++)
        xs[k] = hlo_add_param(c, k, l->i->shape->elems[k], "state");
    for (int k = 0; k < l->n; k++)
        if (l->carried[k]) seeds[k] = hlo_add_param(c, at++, l->i->shape->elems[k], "by_state");

    hv state = hb_tuple(&b, xs, l->n), y = inlined(&b, l->body, &state);
    hv *of = arena_zarray(t->a, hv, l->n + 1);
    int *place = arena_zarray(t->a, int, l->n + 1), n_of = 0;
    for (int k = 0; k < l->n; k++)
        if (l->carried[k]) place[n_of] = k, of[n_of++] = xs[k];
    gradient_of(&b, y, seeds, of, n_of, grads);
    for (int k = 0; k < n_of && hb_ok(&b); k++)
        out[m++] = grads[k][0] ? grads[k][0] : hb_splat(&b, of[k]->shape, 0);
    hv root = hb_tuple(&b, out, m);
    if (hb_ok(&b)) hlo_set_root(c, root);
    take_status(t, &b);
    if (!c->root) return NULL;
    hlo_remove_dead(c);

    int64_t step;
    for (int k = 0; k < l->n; k++) {
        l->read[k] = xs[k]->users.n > 0;
        l->kept[k] = l->read[k] && !l->same[k] && !hlo_turn_step(l->body, k, &step);
    }
    return c;
}
static const struct shape *rows(struct loop *l, int k) {
    const struct shape *s = l->i->shape->elems[k];
    int64_t dims[HLO_MAX_RANK + 1] = {l->turns};
    for (int j = 0; j < s->rank; j++)
        dims[j + 1] = s->dims[j];
    return shape_make(l->t->a, s->dtype, dims, s->rank + 1);
}
static void row_at(struct hb *b, hv turn, int rank, hv *at) {
    hv zero = hb_const_i64(b, DT_S32, 0);
    for (int k = 0; k <= rank; k++)
        at[k] = k ? zero : turn;
}
static hv put_row(struct hb *b, hv all, hv row, hv turn) {
    const struct shape *s = row->shape;
    int64_t dims[HLO_MAX_RANK + 1] = {1};
    hv in[HLO_MAX_RANK + 3];
    for (int k = 0; k < s->rank; k++)
        dims[k + 1] = s->dims[k];
    in[0] = all, in[1] = hb_reshape(b, row, dims, s->rank + 1);
    row_at(b, turn, s->rank, in + 2);
    return hb_op(b, HLO_DYNAMIC_UPDATE_SLICE, NULL, in, s->rank + 3, NULL);
}
static hv get_row(struct hb *b, hv all, hv turn, const struct shape *s) {
    int64_t dims[HLO_MAX_RANK + 1] = {1};
    hv in[HLO_MAX_RANK + 2] = {all};
    for (int k = 0; k < s->rank; k++)
        dims[k + 1] = s->dims[k];
    row_at(b, turn, s->rank, in + 1);
    struct hlo_attr_dynslice a = {.dynamic_slice_sizes = {dims, s->rank + 1}};
    hv r = hb_op(b, HLO_DYNAMIC_SLICE, NULL, in, s->rank + 2, &a);
    return hb_reshape(b, r, s->dims, s->rank);
}

// The loop once more, with a counter and the rows of what is kept behind its state; it takes the
// place of l->i. Gives the first of these, in front of l->i, or NULL where nothing is kept.
static hv with_rows(struct loop *l) {
    struct tape *t = l->t;
    hv *in = arena_zarray(t->a, hv, 2 * l->n + 2), *p = arena_zarray(t->a, hv, 2 * l->n + 2),
       *old = arena_zarray(t->a, hv, l->n + 1), last = t->b->c->last;
    int m = l->n + 1;
    explode(t->b, l->i->operands[0], in);
    in[l->n] = hb_const_i64(t->b, DT_S32, 0);
    for (int k = 0; k < l->n; k++)
        if (l->kept[k]) in[m++] = hb_splat(t->b, rows(l, k), 0);
    if (m == l->n + 1) return NULL;
    hv first = hb_tuple(t->b, in, m);
    if (!hb_ok(t->b)) return NULL;

    struct hlo_computation *c[2] = {new_callee(t, "condition_kept"), new_callee(t, "body_kept")};
    for (int f = 0; f < 2; f++) {
        struct hb b = hb_begin(c[f]);
        explode(&b, hlo_add_param(c[f], 0, first->shape, "state"), p);
        hv state = hb_tuple(&b, p, l->n), y = inlined(&b, l->i->called[f], &state);
        if (f == 1) {
            int at = l->n + 1;
            for (int k = 0; k < l->n; k++)
                if (l->kept[k]) p[at] = put_row(&b, p[at], p[k], p[l->n]), at++;
            p[l->n] = hb_add(&b, p[l->n], hb_const_i64(&b, DT_S32, 1));
            for (int k = 0; k < l->n; k++)
                p[k] = y->operands[k];
            y = hb_tuple(&b, p, m);
        }
        if (hb_ok(&b)) hlo_set_root(c[f], y);
        take_status(t, &b);
        if (c[f]->root) hlo_remove_dead(c[f]);
    }
    if (!hb_ok(t->b)) return NULL;
    hv w = hb_call(t->b, HLO_WHILE, first->shape, &first, 1, NULL, c, 2);
    for (int k = 0; k < l->n; k++)
        old[k] = hb_gte(t->b, w, k);
    hv all = hb_tuple(t->b, old, l->n);
    if (!hb_ok(t->b)) return NULL;
    for (hv k = last->next, next; k; k = next) {
        next = k->next;
        hlo_move_before(k, l->i);
    }
    hlo_replace_uses(l->i, all);
    return w;
}

// The state of the loop backward: turn, derivatives, then rows and constants that a turn reads.
static hv backward(struct loop *l, struct hlo_computation *turn, hv kept, hv const *d) {
    struct tape *t = l->t;
    struct hb *b = t->b;
    hv *in = arena_zarray(t->a, hv, 2 * l->n + 2), *p = arena_zarray(t->a, hv, 2 * l->n + 2),
       *args = arena_zarray(t->a, hv, 2 * l->n + 2), *out = arena_zarray(t->a, hv, 2 * l->n + 2);
    int m = 1, row = 0;
    in[0] = hb_const_i64(b, DT_S32, l->turns - 1);
    for (int k = 0; k < l->n; k++)
        if (l->carried[k]) in[m++] = d[k] ? d[k] : hb_splat(b, l->i->shape->elems[k], 0);
    int carried = m;
    for (int k = 0; k < l->n; k++) {
        if (!l->read[k]) continue;
        in[m++] = l->kept[k] ? hb_gte(b, kept, l->n + 1 + row++) : hb_gte(b, l->i->operands[0], k);
    }
    hv first = hb_tuple(b, in, m);
    if (!hb_ok(b)) return NULL;

    struct hlo_computation *c[2] = {new_callee(t, "condition_back"), new_callee(t, "body_back")};
    struct hb cond = hb_begin(c[0]), body = hb_begin(c[1]);
    hv s = hlo_add_param(c[0], 0, first->shape, "state");
    hlo_set_root(c[0],
                 hb_compare(&cond, hb_gte(&cond, s, 0), hb_const_i64(&cond, DT_S32, 0), CMP_GE));
    take_status(t, &cond);

    explode(&body, hlo_add_param(c[1], 0, first->shape, "state"), p);
    int at = carried, by = l->n;
    for (int k = 0; k < l->n; k++) {
        const struct shape *e = l->i->shape->elems[k];
        int64_t step;
        args[k] = !l->read[k]  ? hb_splat(&body, e, 0)
                  : l->kept[k] ? get_row(&body, p[at], p[0], e)
                               : p[at];
        if (l->read[k] && !l->same[k] && hlo_turn_step(l->body, k, &step)) {
            hv turns = hb_convert(&body, p[0], e->dtype), one = hb_const_i64(&body, e->dtype, step);
            args[k] = hb_add(&body, p[at], hb_mul(&body, turns, one));
        }
        at += l->read[k];
    }
    for (int k = 1; k < carried; k++)
        args[by++] = p[k];
    hv y = inlined(&body, turn, args);
    out[0] = hb_sub(&body, p[0], hb_const_i64(&body, DT_S32, 1));
    for (int k = 1; k < m; k++)
        out[k] = k < carried ? y->operands[k - 1] : p[k];
    hv root = hb_tuple(&body, out, m);
    if (hb_ok(&body)) hlo_set_root(c[1], root);
    take_status(t, &body);
    if (!hb_ok(b)) return NULL;
    hlo_remove_dead(c[1]);
    return hb_call(b, HLO_WHILE, first->shape, &first, 1, NULL, c, 2);
}
void grad_while(struct tape *t, hv i, hv const *d) {
    struct loop l = {.t = t, .i = i, .body = i->called[1], .n = n_elements(i->shape)};
    bool flat = shape_is_tuple(i->shape) && l.body->root->op == HLO_TUPLE;
    for (int k = 0; k < l.n && flat; k++)
        flat = !shape_is_tuple(i->shape->elems[k]) && i->shape->elems[k]->rank < HLO_MAX_RANK;
    l.turns = flat ? hlo_turns(i) : -1;
    if (l.turns < 0)
        return tape_refuse(t, i,
                           flat ? "is supported where the number of turns is a constant"
                                : "is supported where its state is a flat tuple");
    if (l.turns == 0) return grad_same(t, i, d);
    bool *flags = arena_zarray(t->a, bool, 4 * l.n + 1);
    l.carried = flags, l.same = flags + l.n, l.kept = flags + 2 * l.n, l.read = flags + 3 * l.n;
    find_carried(&l);
    for (int k = 0; k < l.n; k++)
        l.same[k] = stays(l.body, k);
    struct hlo_computation *turn = turn_back(&l);
    if (!hb_ok(t->b)) return;
    hv kept = with_rows(&l);
    if (!hb_ok(t->b)) return;
    hv r = backward(&l, turn, kept, d);
    if (!hb_ok(t->b)) return;
    hlo_computation_remove(turn);
    for (int k = 0, at = 1; k < l.n && hb_ok(t->b); k++)
        if (l.carried[k]) tape_give_leaf(t, i->operands[0], k, hb_gte(t->b, r, at++));
}
