// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan. A condition known at compile time takes its branch in place; others become a
// conditional. A branch that makes no sense for the shapes at hand (models hold one for each kind
// of input) ends the run with the reason when it is taken. Loops become one while:
//   state = (i, go, carried..., captured..., buffers...)     buffers: [trip count, ...] per result
//   condition = i < count and go          body = the graph; each buffer gets its row i
// A loop whose carried values are sequences or change shape, or whose body needs the iteration's
// number at compile time, is unrolled, which needs a known trip count. Scan is a loop that also
// takes row i of its inputs.
#include "compiler/eval.h"
#include "compiler/frontend/onnx/onnx_dynamic.h"
#include "compiler/frontend/onnx/onnx_parts.h"
#include "compiler/frontend/onnx/onnx_tools.h"
#include "compiler/frontend/onnx/onnx_turns.h"

// ---- If

static const struct onnx_graph *graph_attr(struct onnx_ctx *c, const char *name) {
    const struct onnx_attr *a = onnx_attr(c->n, name);
    if (!a || !a->graph) onnx_fail(c, "there is no graph '%s'", name);
    return a ? a->graph : NULL;
}
static hv scalar(struct onnx_ctx *c, hv x) {
    if (x->shape->rank && shape_elements(x->shape) != 1)
        onnx_fail(c, "%s where one element is expected", onnx_show(c, x));
    return hb_ok(&c->b) ? hb_reshape(&c->b, x, NULL, 0) : x;
}
static hv tuple_param(struct onnx_ctx *c, struct hlo_computation *comp, hv const *v, size_t n) {
    const struct shape **s = arena_array(c->a, const struct shape *, n + 1);
    for (size_t k = 0; k < n; k++)
        s[k] = v[k]->shape;
    return hlo_add_param(comp, 0, shape_tuple(c->a, s, (int)n), "state");
}
static hv *elements(struct onnx_ctx *c, hv tuple, size_t n) {
    hv *v = arena_array(c->a, hv, n + 1);
    for (size_t k = 0; k < n; k++)
        v[k] = hb_gte(&c->b, tuple, (int64_t)k);
    return v;
}

struct branch {
    const struct onnx_graph *g;
    struct hlo_computation *comp;
    hv operand;
    struct onnx_val **outs;
    struct onnx_leaves leaves;
};

static status_t lower_branch(struct onnx_ctx *c, struct branch *b, const char *name) {
    struct onnx_leaves in = {0};
    size_t at = 0;
    onnx_captures_add(c, b->g, &in);
    b->comp = onnx_computation(c, name);
    b->operand = hb_tuple(&c->b, in.v, (int)in.n);
    hv param = tuple_param(c, b->comp, in.v, in.n);
    struct onnx_ctx *child = onnx_child(c, b->comp);
    hv *from = elements(child, param, in.n);
    onnx_captures_take(c, child, b->g, from, &at);
    b->outs = arena_zarray(c->a, struct onnx_val *, b->g->outputs.n + 1);
    status_t st = onnx_lower_body(child, b->g, NULL, b->outs);
    for (size_t k = 0; !st && k < b->g->outputs.n; k++)
        onnx_leaves_add(child, b->outs[k], true, &b->leaves);
    if (!st) {
        hlo_set_root(b->comp, hb_tuple(&child->b, b->leaves.v, (int)b->leaves.n));
        st = hb_end(&child->b);
    }
    onnx_child_end(c, child);
    return st_note(st, "%s", name);
}

// The branch as one instruction that ends the run; of the type of the other branch.
static void refuse_branch(struct onnx_ctx *c, struct branch *b, const struct branch *other,
                          const char *name, status_t why) {
    hv call;
    b->comp = onnx_computation(c, name);
    hlo_add_param(b->comp, 0, b->operand->shape, "state");
    status_t st = hlo_end_run(b->comp, other->comp->root->shape, st_message(why), &call);
    st_drop(why);
    if (st) return hb_fail(&c->b, st);

    call->op_type = c->b.op_type;
    call->op_name = c->b.op_name;
    hlo_set_root(b->comp, call);
    b->outs = other->outs;
    b->leaves = other->leaves;
}

static void lower_branches(struct onnx_ctx *c, struct branch *yes, struct branch *no) {
    c->parts->lacks = false;
    status_t st = lower_branch(c, yes, "then_branch"), other;
    if (st && st_code(st) != ST_INVALID_ARGUMENT) return hb_fail(&c->b, st);
    other = lower_branch(c, no, "else_branch");
    // A branch that lacks what a run finds is one to be cut, once the condition is known.
    bool cut = c->parts->lacks && c->b.c == c->b.c->module->entry;
    if (other && (st || cut || st_code(other) != ST_INVALID_ARGUMENT)) {
        hb_fail(&c->b, other);
        st_drop(st);
    } else if (st && cut) {
        hb_fail(&c->b, st);
    } else if (st) {
        refuse_branch(c, yes, no, "then_branch_refused", st);
    } else if (other) {
        refuse_branch(c, no, yes, "else_branch_refused", other);
    }
}

static bool same_structure(const struct onnx_val *x, const struct onnx_val *y) {
    if (!x->list != !y->list || !x->v != !y->v || !x->size != !y->size ||
        (x->size && x->size_dim != y->size_dim) || x->text != y->text)
        return false;
    for (size_t k = 0; x->list && k < x->list->n; k++)
        if (x->list->n != y->list->n || !same_structure(x->list->v[k], y->list->v[k])) return false;
    return !x->list || x->list->n == y->list->n;
}

void onnx_inline(struct onnx_ctx *c, const struct onnx_graph *g, struct onnx_val *const *formals,
                 struct onnx_val **outs) {
    struct onnx_ctx *child = onnx_child(c, NULL);
    onnx_captures_take(c, child, g, NULL, NULL);
    status_t st = onnx_lower_body(child, g, formals, outs);
    onnx_child_end(c, child);
    if (st) hb_fail(&c->b, st);
}

ONNX(if) {
    struct branch yes = {.g = graph_attr(c, "then_branch")},
                  no = {.g = graph_attr(c, "else_branch")};
    struct onnx_val *cond = onnx_in_any(c, 0);

    if (!hb_ok(b)) return;
    if (!cond || !cond->v) return onnx_fail(c, "the condition is missing");
    if (yes.g->inputs.n || no.g->inputs.n) return onnx_fail(c, "a branch has inputs");

    if (cond->known) {
        const struct onnx_graph *g = lit_get_i64(cond->known, 0) ? yes.g : no.g;
        struct onnx_val **outs = arena_zarray(c->a, struct onnx_val *, g->outputs.n + 1);
        if (shape_elements(cond->known->shape) != 1)
            return onnx_fail(c, "the condition is not scalar");
        onnx_inline(c, g, NULL, outs);
        for (size_t k = 0; hb_ok(b) && k < g->outputs.n; k++)
            onnx_out_any(c, k, outs[k]);
        return;
    }

    lower_branches(c, &yes, &no);
    if (!hb_ok(b)) return;

    if (yes.g->outputs.n != no.g->outputs.n)
        return onnx_fail(c, "the branches have %zu and %zu outputs", yes.g->outputs.n,
                         no.g->outputs.n);
    for (size_t k = 0; k < yes.g->outputs.n; k++)
        if (!same_structure(yes.outs[k], no.outs[k]))
            return onnx_fail(c,
                             "output %zu: the branches give sequences or optionals of different "
                             "structure, and which is taken depends on the request's data",
                             k);
    for (size_t k = 0; k < yes.leaves.n; k++)
        if (!shape_compatible(yes.leaves.v[k]->shape, no.leaves.v[k]->shape))
            return onnx_fail(c,
                             "the branches give %s and %s, and which is taken depends on the "
                             "request's data",
                             shape_text(c->a, yes.leaves.v[k]->shape),
                             shape_text(c->a, no.leaves.v[k]->shape));

    hv operands[] = {scalar(c, cond->v), yes.operand, no.operand};
    hv r = hb_call(b, HLO_CONDITIONAL, yes.comp->root->shape, operands, 3, NULL,
                   (struct hlo_computation *[]){yes.comp, no.comp}, 2);
    hv *leaf = elements(c, r, yes.leaves.n);
    size_t at = 0;
    for (size_t k = 0; hb_ok(b) && k < yes.g->outputs.n; k++)
        onnx_out_any(c, k, onnx_leaves_take(c, yes.outs[k], true, leaf, &at));
}

// ---- loops

struct loop {
    const struct onnx_graph *g;
    bool is_loop;  // formals begin with number and condition, results with the condition
    int64_t count; // iterations at most, -1 = not known
    hv limit;      // the same at run time; NULL = none
    hv go;         // condition before the first iteration; NULL = true
    size_t n_carried, n_rows_in, n_rows_out;
    struct onnx_val **carried;   // initial, then final values
    hv *rows_in;                 // [n_rows_in] whole arrays
    int64_t *in_axis, *out_axis; // out_axis counts in the stacked result
    bool *in_reversed, *out_reversed;
    struct onnx_val **rows_out; // results
};

static hv row_of(struct onnx_ctx *c, const struct loop *l, size_t k, hv x, hv i) {
    int rank = x->shape->rank, n = 0;
    int64_t axis = l->in_axis[k], sizes[HLO_MAX_RANK], rest[HLO_MAX_RANK];
    hv operands[HLO_MAX_RANK + 1] = {x}, zero = hb_const_i64(&c->b, DT_S64, 0);
    if (l->in_reversed[k])
        i = hb_sub(&c->b, hb_const_i64(&c->b, DT_S64, x->shape->dims[axis] - 1), i);
    for (int d = 0; d < rank; d++) {
        operands[d + 1] = d == axis ? i : zero;
        sizes[d] = d == axis ? 1 : x->shape->dims[d];
        if (d != axis) rest[n++] = x->shape->dims[d];
    }
    struct hlo_attr_dynslice at = {.dynamic_slice_sizes = {sizes, rank}};
    hv y = hb_op(&c->b, HLO_DYNAMIC_SLICE, shape_make(c->a, x->shape->dtype, sizes, rank), operands,
                 rank + 1, &at);
    return hb_reshape(&c->b, y, rest, n);
}
static bool row_axis(struct onnx_ctx *c, struct loop *l, size_t k, const struct onnx_val *row) {
    if (!row->v || row->v->shape->rank + 1 > HLO_MAX_RANK) {
        onnx_fail(c, "result %zu of an iteration is not a tensor that can be stacked", k);
        return false;
    }
    l->out_axis[k] = onnx_axis_of(c, l->out_axis[k], row->v->shape->rank + 1);
    return hb_ok(&c->b);
}

// The values an iteration begins with: number, condition, carried, rows.
static struct onnx_val **formals_of(struct onnx_ctx *c, const struct loop *l, hv i,
                                    struct onnx_val *const *carried, hv const *rows) {
    struct onnx_val **f = arena_zarray(c->a, struct onnx_val *, l->g->inputs.n + 1);
    size_t at = 0;
    if (l->is_loop) {
        onnx_turn_number(c, l->g, i, f);
        at = 2;
    }
    for (size_t k = 0; k < l->n_carried; k++)
        f[at++] = carried[k];
    for (size_t k = 0; k < l->n_rows_in; k++)
        f[at++] = onnx_tensor_val(c, row_of(c, l, k, rows[k], i));
    return f;
}

// One iteration after another in place. The condition must be known each time.
static void unroll(struct onnx_ctx *c, struct loop *l, const char *why) {
    struct onnx_row *rows = arena_zarray(c->a, struct onnx_row, l->n_rows_out + 1);
    int64_t n = 0;

    if (l->count < 0 && !l->is_loop) return onnx_fail(c, "the length is not known");
    if (l->limit && l->count < 0)
        return onnx_fail(
            c,
            "%s, so the trip count must be known at compile time, but it depends on the "
            "request's data",
            why);

    for (bool go = true; go && (l->count < 0 || n < l->count) && hb_ok(&c->b); n++) {
        struct onnx_val **outs = arena_zarray(c->a, struct onnx_val *, l->g->outputs.n + 1);
        hv i = hb_const_i64(&c->b, DT_S64, n);
        onnx_inline(c, l->g, formals_of(c, l, i, l->carried, l->rows_in), outs);
        if (!hb_ok(&c->b)) return;
        size_t at = l->is_loop;
        if (l->is_loop) {
            if (!outs[0]->known)
                return onnx_fail(
                    c,
                    "%s, so its condition must be known at compile time, but it depends "
                    "on the request's data",
                    why);
            go = lit_get_i64(outs[0]->known, 0) != 0;
        }
        for (size_t k = 0; k < l->n_carried; k++)
            l->carried[k] = outs[at++];
        for (size_t k = 0; k < l->n_rows_out; k++, at++)
            avec_push(c->a, &rows[k], outs[at]);
    }

    for (size_t k = 0; k < l->n_rows_out && hb_ok(&c->b); k++) {
        rows[k].axis = l->out_axis[k];
        rows[k].reversed = l->out_reversed[k];
        l->rows_out[k] =
            onnx_stack_turns(c, &rows[k], &l->g->outputs.v[l->is_loop + l->n_carried + k]);
    }
}

// The while's body while it is built.
struct body {
    struct onnx_ctx *child;
    struct hlo_computation *comp;
    hv param, *from; // from: the elements of the parameter
    struct onnx_leaves init, next;
    size_t n_captured;
    struct onnx_val **outs;
    bool early; // the condition may turn false
};

// Lowers the graph into a computation. False: not possible as a while (*why), or an error in c.
static bool lower_iteration(struct onnx_ctx *c, struct loop *l, struct body *b, const char **why) {
    struct hb *hb = &c->b;
    size_t at = 2;

    avec_push(c->a, &b->init, hb_const_i64(hb, DT_S64, 0));
    avec_push(c->a, &b->init, l->go ? l->go : hb_constant(hb, lit_scalar_i64(c->a, DT_PRED, 1)));
    for (size_t k = 0; k < l->n_carried; k++)
        onnx_leaves_add(c, l->carried[k], true, &b->init);
    size_t first = b->init.n;
    for (size_t k = 0; k < l->n_rows_in; k++)
        avec_push(c->a, &b->init, l->rows_in[k]);
    onnx_captures_add(c, l->g, &b->init);
    b->n_captured = b->init.n - first;

    b->comp = onnx_computation(c, "loop_body");
    b->param = tuple_param(c, b->comp, b->init.v, b->init.n);
    b->child = onnx_child(c, b->comp);
    b->from = elements(b->child, b->param, b->init.n);
    struct onnx_val **carried = arena_zarray(c->a, struct onnx_val *, l->n_carried + 1);

    for (size_t k = 0; k < l->n_carried; k++)
        carried[k] = onnx_leaves_take(b->child, l->carried[k], true, b->from, &at);
    const hv *rows = b->from + at;
    at += l->n_rows_in;
    onnx_captures_take(c, b->child, l->g, b->from, &at);

    b->outs = arena_zarray(c->a, struct onnx_val *, l->g->outputs.n + 1);
    struct onnx_val **formals = formals_of(b->child, l, b->from[0], carried, rows);
    status_t st = onnx_lower_body(b->child, l->g, formals, b->outs);

    if (st && (l->count >= 0 || !l->limit)) { // perhaps a shape that differs by iteration
        st_drop(st);
        *why = "the body cannot be lowered once for all iterations";
        return false;
    }
    if (st) {
        hb_fail(hb, st);
        return false;
    }

    for (size_t k = 0; k < l->n_carried; k++) {
        const struct onnx_val *was = l->carried[k], *is = b->outs[k + l->is_loop];
        if (!same_structure(was, is) ||
            (was->v && !shape_compatible(was->v->shape, is->v->shape))) {
            *why = was->v && is->v
                       ? arena_printf(c->a, "carried value %zu changes from %s to %s", k,
                                      onnx_show(c, was->v), onnx_show(c, is->v))
                       : arena_printf(c->a, "carried value %zu changes its structure", k);
            return false;
        }
    }
    return true;
}

// Row i of each buffer; buffers are appended to the state, whose parameter grows with them.
static void stack_rows(struct onnx_ctx *c, struct loop *l, struct body *b) {
    struct onnx_ctx *in = b->child;
    size_t n = b->init.n;

    for (size_t k = 0; k < l->n_rows_out; k++) {
        const struct onnx_val *row = b->outs[l->is_loop + l->n_carried + k];
        if (!row_axis(c, l, k, row)) return;
        hv r = onnx_add_axis(in, row->v, l->out_axis[k]);
        int64_t dims[HLO_MAX_RANK];
        memcpy(dims, r->shape->dims, sizeof(int64_t) * (size_t)r->shape->rank);
        dims[l->out_axis[k]] = l->count;
        const struct shape *s = shape_make(c->a, r->shape->dtype, dims, r->shape->rank);
        status_t st = shape_check(s, 0);
        if (st) return hb_fail(&c->b, st);
        avec_push(c->a, &b->init, hb_splat(&c->b, s, 0));
        avec_push(c->a, &b->next, r); // for now: the row
    }

    const struct shape **all = arena_array(c->a, const struct shape *, b->init.n + 1);
    for (size_t k = 0; k < b->init.n; k++)
        all[k] = b->init.v[k]->shape;
    hlo_set_shape(b->param, shape_tuple(c->a, all, (int)b->init.n));

    for (size_t k = 0; k < l->n_rows_out; k++) {
        hv row = b->next.v[b->next.n - l->n_rows_out + k], i = b->from[0];
        hv buffer = hb_gte(&in->b, b->param, (int64_t)(n + k)), zero, operands[HLO_MAX_RANK + 2];
        int rank = row->shape->rank;
        zero = hb_const_i64(&in->b, DT_S64, 0);
        if (l->out_reversed[k]) i = hb_sub(&in->b, hb_const_i64(&in->b, DT_S64, l->count - 1), i);
        operands[0] = buffer;
        operands[1] = row;
        for (int d = 0; d < rank; d++)
            operands[d + 2] = d == l->out_axis[k] ? i : zero;
        b->next.v[b->next.n - l->n_rows_out + k] =
            hb_op(&in->b, HLO_DYNAMIC_UPDATE_SLICE, buffer->shape, operands, rank + 2, NULL);
    }
}

static struct hlo_computation *condition_of(struct onnx_ctx *c, const struct loop *l,
                                            const struct body *b, int64_t limit_at) {
    struct hlo_computation *comp = onnx_computation(c, "loop_condition");
    struct hb hb = hb_begin(comp);
    hv p = hlo_add_param(comp, 0, b->param->shape, "state"), r = NULL;
    hv i = hb_gte(&hb, p, 0), go = hb_gte(&hb, p, 1);
    if (l->limit)
        r = hb_compare(
            &hb, i, limit_at < 0 ? hb_const_i64(&hb, DT_S64, l->count) : hb_gte(&hb, p, limit_at),
            CMP_LT);
    if (!r)
        r = go;
    else if (b->early || l->go)
        r = hb_binary(&hb, HLO_AND, r, go);
    hlo_set_root(comp, r);
    hb_fail(&c->b, hb_end(&hb));
    hlo_remove_dead(comp);
    return comp;
}

static void finish_while(struct onnx_ctx *c, struct loop *l, struct body *b) {
    struct onnx_ctx *in = b->child;
    struct hb *hb = &in->b;
    int64_t limit_at = -1;

    avec_push(c->a, &b->next, hb_add(hb, b->from[0], hb_const_i64(hb, DT_S64, 1)));
    hv go = b->from[1];
    if (l->is_loop && b->early) go = scalar(in, b->outs[0]->v);
    avec_push(c->a, &b->next, go);
    for (size_t k = 0; k < l->n_carried; k++)
        onnx_leaves_add(in, b->outs[k + l->is_loop], true, &b->next);
    size_t n_carried = b->next.n;
    for (size_t k = 0; k < b->n_captured; k++)
        avec_push(c->a, &b->next, b->from[n_carried + k]);

    if (l->limit && l->count < 0) { // the trip count rides along
        limit_at = (int64_t)b->init.n;
        avec_push(c->a, &b->init, l->limit);
    }

    size_t buffers = b->init.n;
    if (limit_at >= 0) {
        const struct shape **all = arena_array(c->a, const struct shape *, b->init.n + 1);
        for (size_t k = 0; k < b->init.n; k++)
            all[k] = b->init.v[k]->shape;
        hlo_set_shape(b->param, shape_tuple(c->a, all, (int)b->init.n));
        avec_push(c->a, &b->next, hb_gte(hb, b->param, limit_at));
    }

    stack_rows(c, l, b);
    if (!hb_ok(&c->b)) return;

    hlo_set_root(b->comp, hb_tuple(hb, b->next.v, (int)b->next.n));
    status_t st = hb_end(hb);
    if (st) return hb_fail(&c->b, st);

    struct hlo_computation *called[] = {condition_of(c, l, b, limit_at), b->comp};
    hv init = hb_tuple(&c->b, b->init.v, (int)b->init.n);
    hv r = hb_call(&c->b, HLO_WHILE, init->shape, &init, 1, NULL, called, 2);

    hv *leaf = elements(c, r, b->init.n);
    size_t at = 2;
    for (size_t k = 0; k < l->n_carried && hb_ok(&c->b); k++)
        l->carried[k] = onnx_leaves_take(c, l->carried[k], true, leaf, &at);
    for (size_t k = 0; k < l->n_rows_out && hb_ok(&c->b); k++)
        l->rows_out[k] = b->early || l->go // then the number of iterations is the length
                             ? onnx_dynamic_val(c, leaf[buffers + k], leaf[0], (int)l->out_axis[k])
                             : onnx_tensor_val(c, leaf[buffers + k]);
}

// No iteration at all: initial values, and stacked results of length 0 whose other dims are those
// that one iteration would give.
static void run_none(struct onnx_ctx *c, struct loop *l, struct body *b) {
    for (size_t k = 0; k < l->n_rows_out; k++) {
        const struct onnx_val *row = b->outs[l->is_loop + l->n_carried + k];
        if (!row_axis(c, l, k, row)) return;
        int64_t dims[HLO_MAX_RANK];
        const struct shape *s = row->v->shape;
        for (int d = 0, i = 0; d <= s->rank; d++)
            dims[d] = d == l->out_axis[k] ? 0 : s->dims[i++];
        l->rows_out[k] = onnx_tensor_val(
            c, hb_constant(&c->b, lit_new(c->a, shape_make(c->a, s->dtype, dims, s->rank + 1))));
    }
}

// A condition that is known at compile time is a trip count.
static void count_turns(struct onnx_ctx *c, struct loop *l, struct body *b) {
    struct onnx_leaves next = {0};
    if (l->go || l->count == 0) return;
    hv go = scalar(b->child, b->outs[0]->v);
    avec_push(c->a, &next, hb_add(&b->child->b, b->from[0], hb_const_i64(&b->child->b, DT_S64, 1)));
    avec_push(c->a, &next, go);
    for (size_t k = 0; k < l->n_carried; k++)
        onnx_leaves_add(b->child, b->outs[k + 1], true, &next);
    for (size_t e = next.n; e < b->init.n; e++) // rows and captures: as they are
        avec_push(c->a, &next, b->from[e]);
    if (!hb_ok(&c->b) || !hb_ok(&b->child->b)) return;
    int64_t n = onnx_known_turns(c, b->param, b->init.v, next.v, go, l->count);
    if (n < 0) return;
    l->count = n;
    l->limit = hb_const_i64(&c->b, DT_S64, n);
    b->early = false;
}

static void run_loop(struct onnx_ctx *c, struct loop *l) {
    size_t gives = l->n_carried + l->n_rows_out;
    if (c->n->out.n > gives)
        return onnx_fail(c, "%zu outputs of a body that gives %zu", c->n->out.n, gives);
    struct body b = {.early = false};
    const char *why = "a carried value is a sequence or an optional";

    bool lists = false;
    for (size_t k = 0; k < l->n_carried; k++)
        lists |= !l->carried[k] || !l->carried[k]->v;
    for (size_t k = 0; k < l->n_carried; k++)
        if (!l->carried[k]) return onnx_fail(c, "carried value %zu is missing", k);
    l->rows_out = arena_zarray(c->a, struct onnx_val *, l->n_rows_out + 1);
    if (lists || (l->count == 1 && !l->go)) return unroll(c, l, why);

    bool ok = lower_iteration(c, l, &b, &why);
    if (ok && l->is_loop) {
        const struct literal *go = b.outs[0]->known;
        b.early = !go || lit_get_i64(go, 0) == 0;
        if (b.early) count_turns(c, l, &b);
        for (size_t k = 0; k < l->n_rows_out; k++)
            if (l->out_reversed[k] || b.outs[l->n_carried + 1 + k]->size)
                onnx_fail(c, "stacked result %zu has rows of a size that only the run knows", k);
        ok = hb_ok(&c->b);
    }
    if (ok && l->n_rows_out && l->count < 0) {
        onnx_fail(c,
                  "the trip count must be known at compile time (it is the length of the stacked "
                  "results), but it depends on the request's data");
        ok = false;
    }
    if (ok && l->count == 0) {
        run_none(c, l, &b);
        ok = false;
        why = NULL;
    }
    if (ok) finish_while(c, l, &b);

    for (size_t k = 0; (ok || !why) && k < l->n_rows_out && l->rows_out[k]; k++)
        l->rows_out[k]->text = b.outs[l->is_loop + l->n_carried + k]->text;

    status_t st = hb_end(&b.child->b);
    if (!hb_ok(&c->b))
        st_drop(st);
    else if (st)
        hb_fail(&c->b, st);
    onnx_child_end(c, b.child);
    if (!ok && hb_ok(&c->b) && why) unroll(c, l, why); // the driver drops what was tried
}

ONNX(loop) {
    const struct onnx_graph *g = graph_attr(c, "body");
    struct loop l = {.g = g, .is_loop = true, .count = -1};
    struct onnx_val *m = onnx_in_any(c, 0), *go = onnx_in_any(c, 1);
    if (!hb_ok(b)) return;
    if (g->inputs.n < 2 || g->outputs.n < g->inputs.n - 1 || c->n->in.n < 2 ||
        c->n->in.n - 2 != g->inputs.n - 2)
        return onnx_fail(c, "%zu inputs for a body of %zu inputs and %zu outputs", c->n->in.n,
                         g->inputs.n, g->outputs.n);
    if ((onnx_in_has(c, 0) && (!m || !m->v)) || (onnx_in_has(c, 1) && (!go || !go->v)))
        return onnx_fail(c, "trip count or condition is not a tensor");
    l.n_carried = g->inputs.n - 2;
    l.n_rows_out = g->outputs.n - 1 - l.n_carried;
    l.carried = arena_zarray(c->a, struct onnx_val *, l.n_carried + 1);
    l.out_axis = arena_zarray(c->a, int64_t, l.n_rows_out + 1);
    l.out_reversed = arena_zarray(c->a, bool, l.n_rows_out + 1);
    for (size_t k = 0; k < l.n_carried; k++)
        l.carried[k] = onnx_in_any(c, k + 2);
    if (m) l.limit = hb_convert(b, scalar(c, m->v), DT_S64);
    if (m && m->known) l.count = lit_get_i64(m->known, 0) > 0 ? lit_get_i64(m->known, 0) : 0;
    if (go && go->known && shape_elements(go->known->shape) == 1) {
        if (!lit_get_i64(go->known, 0)) l.count = 0, l.limit = hb_const_i64(b, DT_S64, 0);
    } else if (go) {
        l.go = scalar(c, go->v);
    }
    if (!hb_ok(b)) return;
    run_loop(c, &l);
    for (size_t k = 0; hb_ok(b) && k < c->n->out.n; k++)
        onnx_out_any(c, k, k < l.n_carried ? l.carried[k] : l.rows_out[k - l.n_carried]);
}

// ---- Scan

static void scan_ints(struct onnx_ctx *c, const char *name, int64_t *v, size_t n) {
    int got;
    for (size_t k = 0; k < n; k++)
        v[k] = 0;
    if (n > 1024) return onnx_fail(c, "%zu scan values", n);
    if (onnx_at_ints(c, name, v, (int)n, &got) && got != (int)n)
        onnx_fail(c, "%s has %d values for %zu", name, got, n);
}
static bool *directions(struct onnx_ctx *c, const char *name, size_t n) {
    int64_t *v = arena_zarray(c->a, int64_t, n + 1);
    bool *b = arena_zarray(c->a, bool, n + 1);
    scan_ints(c, name, v, n);
    for (size_t k = 0; k < n; k++)
        b[k] = v[k] != 0;
    return b;
}

// first: of the inputs behind an opset 8 Scan's sequence_lens.
static bool scan_of(struct onnx_ctx *c, size_t first, struct loop *l) {
    int64_t rows = onnx_at_int(c, "num_scan_inputs", 0);
    l->g = graph_attr(c, "body");
    if (!hb_ok(&c->b)) return false;
    size_t n = c->n->in.n - first;
    if (rows < 1 || (size_t)rows > n || l->g->inputs.n != n || l->g->outputs.n < n - (size_t)rows) {
        onnx_fail(c,
                  "%zu inputs of which %lld are scanned, for a body of %zu inputs and %zu outputs",
                  n, (long long)rows, l->g->inputs.n, l->g->outputs.n);
        return false;
    }
    l->n_rows_in = (size_t)rows;
    l->n_carried = n - l->n_rows_in;
    l->n_rows_out = l->g->outputs.n - l->n_carried;
    l->carried = arena_zarray(c->a, struct onnx_val *, l->n_carried + 1);
    l->rows_in = arena_zarray(c->a, hv, l->n_rows_in + 1);
    l->in_axis = arena_zarray(c->a, int64_t, l->n_rows_in + 1);
    l->out_axis = arena_zarray(c->a, int64_t, l->n_rows_out + 1);
    scan_ints(c, "scan_input_axes", l->in_axis, l->n_rows_in);
    scan_ints(c, "scan_output_axes", l->out_axis, l->n_rows_out);
    l->in_reversed = directions(c, first ? "directions" : "scan_input_directions", l->n_rows_in);
    l->out_reversed = directions(c, "scan_output_directions", l->n_rows_out);
    return hb_ok(&c->b);
}
static bool scan_length(struct onnx_ctx *c, struct loop *l) {
    for (size_t k = 0; k < l->n_rows_in && hb_ok(&c->b); k++) {
        const struct shape *s = l->rows_in[k]->shape;
        l->in_axis[k] = onnx_axis_of(c, l->in_axis[k], s->rank);
        if (!hb_ok(&c->b)) break;
        if (k && s->dims[l->in_axis[k]] != l->count)
            onnx_fail(c, "scanned inputs have lengths %lld and %lld", (long long)l->count,
                      (long long)s->dims[l->in_axis[k]]);
        l->count = s->dims[l->in_axis[k]];
    }
    l->limit = hb_const_i64(&c->b, DT_S64, l->count);
    return hb_ok(&c->b);
}

ONNX(scan) {
    struct loop l = {.count = -1};
    if (!scan_of(c, 0, &l)) return;
    for (size_t k = 0; k < l.n_carried; k++)
        l.carried[k] = onnx_in_any(c, k);
    for (size_t k = 0; k < l.n_rows_in; k++)
        l.rows_in[k] = onnx_in_val(c, l.n_carried + k);
    if (!scan_length(c, &l)) return;
    run_loop(c, &l);
    for (size_t k = 0; hb_ok(b) && k < c->n->out.n; k++)
        onnx_out_any(c, k, k < l.n_carried ? l.carried[k] : l.rows_out[k - l.n_carried]);
}

// Element b of a batch, without the batch dimension.
static hv batch_at(struct onnx_ctx *c, hv x, int64_t b) {
    struct range r[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++)
        r[d] = d ? (struct range){0, x->shape->dims[d], 1} : (struct range){b, b + 1, 1};
    return hb_reshape(&c->b, hb_slice(&c->b, x, r), x->shape->dims + 1, x->shape->rank - 1);
}

// Opset 8: the first input has the length of each sequence, all others lead with a batch dimension,
// whose elements are scanned one by one.
ONNX(scan8) {
    struct loop l = {.count = -1};

    if (c->n->in.n < 2) return onnx_fail(c, "%zu inputs", c->n->in.n);
    if (onnx_in_has(c, 0))
        return onnx_fail(c, "sequence_lens is not supported: sequences of one length are");
    if (!scan_of(c, 1, &l)) return;

    hv any = onnx_in_val(c, l.n_carried + 1);
    if (!any->shape->rank) return onnx_fail(c, "a scanned input has no batch dimension");
    int64_t batch = any->shape->dims[0];
    for (size_t k = 1; k < c->n->in.n; k++)
        if (!onnx_in_val(c, k)->shape->rank || onnx_in_val(c, k)->shape->dims[0] != batch)
            return onnx_fail(c, "input %zu is %s, expected a batch of %lld", k,
                             shape_text(c->a, onnx_in_val(c, k)->shape), (long long)batch);
    if (batch < 1 || batch > 4096) return onnx_fail(c, "a batch of %lld", (long long)batch);

    struct onnx_leaves *outs = arena_zarray(c->a, struct onnx_leaves, c->n->out.n + 1);
    for (int64_t sample = 0; sample < batch && hb_ok(b); sample++) {
        struct loop one = l;
        for (size_t k = 0; k < l.n_carried; k++)
            one.carried[k] = onnx_tensor_val(c, batch_at(c, onnx_in_val(c, k + 1), sample));
        for (size_t k = 0; k < l.n_rows_in; k++)
            one.rows_in[k] = batch_at(c, onnx_in_val(c, l.n_carried + 1 + k), sample);
        if (!scan_length(c, &one)) return;
        run_loop(c, &one);
        for (size_t k = 0; hb_ok(b) && k < c->n->out.n; k++) {
            const struct onnx_val *v =
                k < l.n_carried ? one.carried[k] : one.rows_out[k - l.n_carried];
            if (!v->v) return onnx_fail(c, "output %zu is not a tensor", k);
            avec_push(c->a, &outs[k], onnx_add_axis(c, v->v, 0));
        }
    }

    for (size_t k = 0; hb_ok(b) && k < c->n->out.n; k++)
        onnx_out_any(c, k,
                     onnx_tensor_val(c, outs[k].n == 1
                                            ? outs[k].v[0]
                                            : hb_concat(b, outs[k].v, (int)outs[k].n, 0)));
}
