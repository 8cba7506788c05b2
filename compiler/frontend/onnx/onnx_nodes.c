// SPDX-License-Identifier: Apache-2.0
// Lowers the nodes of a graph in order, each through its row of onnx_ops.def. A node whose inputs
// are all known at compile time is evaluated at once by the reference evaluator, so that shape
// arithmetic folds as it goes.
#include "compiler/eval.h"
#include "compiler/frontend/onnx/onnx_dynamic.h"
#include "compiler/frontend/onnx/onnx_parts.h"

enum { MAX_FOLD_BYTES = 1 << 20, MAX_SPLAT = 256 };

static struct onnx_val *weight_val(struct onnx_ctx *c, const struct onnx_tensor *t) {
    struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
    o->v = pmap_get(c->weights, (uint64_t)t->weight);
    o->weight = true;
    return o;
}

// One value many times stays a broadcast: it would be printed, hashed and kept element by element.
static hv folded(struct onnx_ctx *c, struct literal *l) {
    size_t n = (size_t)shape_elements(l->shape), size = (size_t)dtype_size(l->shape->dtype);
    bool splat = n > MAX_SPLAT;
    for (size_t k = 1; k < n && splat; k++)
        splat = memcmp((char *)l->data + k * size, l->data, size) == 0;
    if (!splat) return hb_constant(&c->b, l);
    struct literal *one = lit_new(c->a, shape_make(c->a, l->shape->dtype, NULL, 0));
    memcpy(one->data, l->data, size);
    return hb_broadcast(&c->b, hb_constant(&c->b, one), l->shape->dims, l->shape->rank, NULL);
}

status_t onnx_add_initializers(struct onnx_ctx *c, const struct onnx_graph *g) {
    for (size_t k = 0; k < g->inits.n; k++) {
        const struct onnx_tensor *t = &g->inits.v[k];
        struct onnx_val *o;
        struct literal *l;
        if (t->weight) {
            o = weight_val(c, t);
        } else if (t->data_type == ONNX_STRING) {
            RETURN_IF_ERR(onnx_text_literal(c, t, &l));
            o = onnx_text_val(c, hb_constant(&c->b, l));
        } else {
            RETURN_IF_ERR(onnx_tensor_literal(c->a, t, &l));
            l = lit_clone(c->a, l); // the program's bytes may go away
            o = onnx_tensor_val(c, folded(c, l));
            o->known = l;
        }
        smap_put(&c->values, t->name, o);
    }
    return ST_OK;
}

// ---- folding

static status_t fold(struct onnx_ctx *c, struct onnx_val *o) {
    if (!o || !o->v || o->known || shape_is_tuple(o->v->shape) ||
        shape_bytes(o->v->shape) > MAX_FOLD_BYTES)
        return ST_OK;
    struct arena tmp = {0};
    struct literal *l = NULL;
    struct hlo_eval ev = hlo_eval_at_compile(&tmp, *c->folding, c->cancel);
    ev.texts = c->texts->table;
    status_t st = hlo_eval_value(&ev, o->v, &l);
    *c->folding -= ev.work;
    if (!st) {
        o->known = lit_clone(c->a, l);
        o->v = folded(c, o->known);
    }
    arena_done(&tmp);
    // What cannot be evaluated here, or takes too much, the run computes.
    if (st_code(st) != ST_UNIMPLEMENTED && st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    st_drop(st);
    return ST_OK;
}
void onnx_fold_value(struct onnx_ctx *c, struct onnx_val *v) {
    status_t st = fold(c, v);
    if (st) hb_fail(&c->b, st);
}

static bool known(const struct onnx_val *v) {
    if (!v) return false;
    for (size_t k = 0; v->list && k < v->list->n; k++)
        if (!known(v->list->v[k])) return false;
    return !v->v || v->known;
}
static bool has_weights(const struct onnx_graph *g) {
    for (size_t k = 0; k < g->inits.n; k++)
        if (g->inits.v[k].weight) return true;
    for (size_t k = 0; k < g->nodes.n; k++)
        for (size_t i = 0; i < g->nodes.v[k].attrs.n; i++) {
            const struct onnx_attr *at = &g->nodes.v[k].attrs.v[i];
            if ((at->t && at->t->weight) || (at->graph && has_weights(at->graph))) return true;
        }
    return false;
}

// Replaces outputs that depend on known values alone by constants.
static status_t fold_outputs(struct onnx_ctx *c) {
    const struct onnx_node *n = c->n;
    for (size_t k = 0; k < n->in.n; k++)
        if (n->in.v[k].n && !known(in_any(c, k))) return ST_OK;
    for (size_t k = 0; k < n->captures.n; k++)
        if (!known(smap_get(&c->values, n->captures.v[k]))) return ST_OK;
    for (size_t k = 0; k < n->attrs.n; k++)
        if (n->attrs.v[k].graph && has_weights(n->attrs.v[k].graph)) return ST_OK;
    for (size_t k = 0; k < n->out.n; k++) {
        struct onnx_val *o = smap_get(&c->values, n->out.v[k]);
        if (o && o->size) { // known after all
            struct onnx_val size = {.v = o->size};
            RETURN_IF_ERR(fold(c, &size));
            bool text = o->text;
            o = onnx_dynamic_val(c, o->v, size.v, o->size_dim);
            o->text = text;
            out_any(c, k, o);
        }
        for (size_t i = 0; o && o->list && i < o->list->n; i++)
            RETURN_IF_ERR(fold(c, o->list->v[i]));
        RETURN_IF_ERR(fold(c, o));
    }
    return ST_OK;
}

// ---- nodes

static status_t lower_op(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_op *op = onnx_op_find(n, c->opset);
    if (!op) return st_new(ST_INVALID_ARGUMENT, "operator is not supported");
    if ((int)n->in.n < op->min_in || (op->max_in >= 0 && (int)n->in.n > op->max_in))
        return st_new(ST_INVALID_ARGUMENT, "%zu inputs, expected %d to %d", n->in.n, op->min_in,
                      op->max_in);
    for (int k = 0; k < op->min_in; k++)
        if (!in_has(c, (size_t)k)) return st_new(ST_INVALID_ARGUMENT, "input %d is empty", k);
    if (onnx_has_text(c))
        onnx_pass_text(c, op->fn);
    else if (onnx_has_dynamic(c))
        onnx_pass_dynamic(c, op->fn);
    else
        op->fn(c);
    onnx_bound_outputs(c, op->fn);
    return hb_end(&c->b);
}

static status_t lower_node(struct onnx_ctx *c, const struct onnx_node *n) {
    const struct onnx_function *f = onnx_function_find(c->m, n->domain, n->op);
    c->n = n;
    c->wanted = 0;
    c->b.op_type = arena_strndup(c->a, n->op.p, n->op.n);
    c->b.op_name = n->name.n  ? arena_strndup(c->a, n->name.p, n->name.n)
                   : n->out.n ? arena_strndup(c->a, n->out.v[0].p, n->out.v[0].n)
                              : NULL;
    if (c->cancel && *c->cancel) return st_new(ST_CANCELLED, "the compile was cancelled");
    if (--*c->budget < 0)
        return st_new(ST_RESOURCE_EXHAUSTED,
                      "more than %lld nodes, counting those of unrolled loops and functions",
                      (long long)c->m->limits.max_nodes);
    if (n->attrs.n && n->attrs.v[0].t && n->attrs.v[0].t->weight) { // a constant kept as a weight
        out_any(c, 0, weight_val(c, n->attrs.v[0].t));
        return ST_OK;
    }
    RETURN_IF_ERR(f ? onnx_call_function(c, f) : lower_op(c, n));
    c->n = n;
    for (size_t k = 0; k < n->out.n; k++)
        if (n->out.v[k].n && !smap_get(&c->values, n->out.v[k]))
            return st_new(ST_INVALID_ARGUMENT, "output %zu is not supported", k);
    return fold_outputs(c);
}

// ---- refusals: every node of the main graph that can be tried is, so that one error lists all

static status_t refused(const struct strbuf *lines, int n) {
    const char *text = lines->p ? lines->p : "";
    if (n == 0) return ST_OK;
    if (n == 1) return st_new(ST_INVALID_ARGUMENT, "%s", text + 3); // behind the line break
    return st_new(ST_INVALID_ARGUMENT, "%d nodes cannot be lowered:%s", n, text);
}

struct sweep {           // once through what is to be lowered
    struct strbuf lines; // of what was refused
    int n_refused;
    struct onnx_todo left; // that, and what depends on it
    bool curable;          // values that a run finds would do for all that was refused
};

// Contexts of opened graphs build into the main computation, too.
static void hand_over(const struct onnx_ctx *from, struct onnx_ctx *to) {
    if (from == to) return;
    to->b = from->b;
    to->n_chosen = from->n_chosen;
    memcpy(to->chosen, from->chosen, sizeof to->chosen);
}

static void leave(struct onnx_ctx *c, const struct onnx_step *s, struct sweep *w) {
    onnx_step_give_up(s);
    avec_push(c->a, &w->left, *s);
}

// One step of the main graph; what it opens goes to `more`.
static status_t sweep_step(struct onnx_ctx *c, const struct onnx_step *s, struct sweep *w,
                           struct onnx_todo *more) {
    struct onnx_ctx *x = s->c;
    bool curable = false, failed = w->n_refused && onnx_step_failed(s);
    if (failed && !s->begins) {
        leave(c, s, w);
        return ST_OK;
    }
    hand_over(c, x);
    status_t st = s->n ? lower_node(x, s->n) : onnx_open_go_on(s, more, &curable);
    if (st && s->n && st_code(st) == ST_INVALID_ARGUMENT) {
        bool last = str_is(s->n->op, "Loop"); // one loop is better than many turns
        curable = last && onnx_parts_need(x, s->n);
        bool opened = !curable && w->curable && onnx_open(x, s->n, more);
        curable = curable || opened || (!last && onnx_parts_need(x, s->n));
        if (opened) {
            st_drop(st);
            st = ST_OK;
        }
    }
    hand_over(x, c);
    if (failed) avec_push(c->a, &w->left, *s);
    if (!st) return ST_OK;
    if (st_code(st) == ST_FAILED_PRECONDITION && !s->n) { // waits for what was refused
        st_drop(st);
        leave(c, s, w);
        return ST_OK;
    }
    if (s->n)
        st = st_note(st, "%snode %s, opset %lld", x->within ? x->within : "",
                     onnx_node_name(c->a, s->n), (long long)x->opset);
    else
        st = st_note(st, "%s", x->within);
    if (st_code(st) != ST_INVALID_ARGUMENT) return st;
    w->curable = curable && w->curable;
    strbuf_printf(&w->lines, "\n  %s", st_message(st));
    w->n_refused++;
    st_drop(st);
    leave(c, s, w);
    return ST_OK;
}

// One step after the other; those that cannot be lowered, and what depends on them, are left.
static status_t sweep(struct onnx_ctx *c, const struct onnx_todo *todo, struct sweep *w) {
    struct onnx_todo stack = {0}; // the next one last
    status_t st = ST_OK;
    for (size_t k = todo->n; k-- > 0;)
        avec_push(c->a, &stack, todo->v[k]);
    while (!st && stack.n) {
        struct onnx_step s = stack.v[--stack.n];
        struct onnx_todo more = {0};
        st = sweep_step(c, &s, w, &more);
        for (size_t k = more.n; k-- > 0 && !st;)
            avec_push(c->a, &stack, more.v[k]);
    }
    return st;
}

// A nested graph, in the computation of its own or in place: the first refusal ends it.
static status_t lower_nested(struct onnx_ctx *c, const struct onnx_graph *g) {
    status_t st = ST_OK;
    for (size_t k = 0; k < g->nodes.n && !st; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        st = st_note(lower_node(c, n), "node %s, opset %lld", onnx_node_name(c->a, n),
                     (long long)c->opset);
        if (st_code(st) == ST_INVALID_ARGUMENT) onnx_parts_note(c, n);
    }
    return st;
}

status_t onnx_lower_nodes(struct onnx_ctx *c, const struct onnx_graph *g) {
    struct onnx_todo todo = {0};
    RETURN_IF_ERR(onnx_add_initializers(c, g));
    if (c->depth) return lower_nested(c, g);
    status_t st = ST_OK;
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct onnx_step s = {.c = c, .n = &g->nodes.v[k]};
        avec_push(c->a, &todo, s);
    }
    while (!st && todo.n && !c->parts->open) {
        struct sweep w = {.curable = true};
        strbuf_limit(&w.lines, 64 * 1024);
        st = sweep(c, &todo, &w);
        if (!st && w.n_refused)
            st = w.curable ? onnx_parts_cut(c, g, &w.left) : refused(&w.lines, w.n_refused);
        strbuf_done(&w.lines);
        todo = w.left;
    }
    return st;
}
