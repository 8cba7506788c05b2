// SPDX-License-Identifier: Apache-2.0
// Lowers the nodes of a graph in order, each through its row of onnx_ops.def. A node whose inputs
// are all known at compile time is evaluated at once by the reference evaluator, so that shape
// arithmetic folds as it goes.
#include "compiler/eval.h"
#include "compiler/frontend/onnx_dynamic.h"
#include "compiler/frontend/onnx_parts.h"

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

static status_t add_initializers(struct onnx_ctx *c, const struct onnx_graph *g) {
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

static bool depends_on_failed(struct onnx_ctx *c, const struct onnx_node *n) {
    for (size_t k = 0; k < n->in.n + n->captures.n; k++) {
        const struct onnx_val *v =
            smap_get(&c->values, k < n->in.n ? n->in.v[k] : n->captures.v[k - n->in.n]);
        if (v && v->failed) return true;
    }
    return false;
}
static void fail_outputs(struct onnx_ctx *c, const struct onnx_node *n) {
    for (size_t k = 0; k < n->out.n; k++) {
        struct onnx_val *v = arena_new_of(c->a, struct onnx_val);
        v->failed = true;
        smap_put(&c->values, n->out.v[k], v);
    }
}
static status_t refused(const struct strbuf *lines, int n) {
    const char *text = lines->p ? lines->p : "";
    if (n == 0) return ST_OK;
    if (n == 1) return st_new(ST_INVALID_ARGUMENT, "%s", text + 3); // behind the line break
    return st_new(ST_INVALID_ARGUMENT, "%d nodes cannot be lowered:%s", n, text);
}

// One node after the other; those that cannot be lowered, and what depends on them, are left.
// *curable: values that a run finds would do for all that was refused.
static status_t lower_those(struct onnx_ctx *c, const struct onnx_todo *todo,
                            struct strbuf *lines, int *n_refused, struct onnx_todo *left,
                            bool *curable) {
    status_t st = ST_OK;
    for (size_t k = 0; k < todo->n && !st; k++) {
        const struct onnx_node *node = todo->v[k];
        if (*n_refused && depends_on_failed(c, node)) {
            fail_outputs(c, node);
            avec_push(c->a, left, node);
            continue;
        }
        st = st_note(lower_node(c, node), "node %s, opset %lld", onnx_node_name(c->a, node),
                     (long long)c->opset);
        if (c->depth > 0 || st_code(st) != ST_INVALID_ARGUMENT) continue;
        *curable = onnx_parts_need(c, node) && *curable;
        strbuf_printf(lines, "\n  %s", st_message(st));
        ++*n_refused;
        st_drop(st);
        st = ST_OK;
        fail_outputs(c, node);
        avec_push(c->a, left, node);
    }
    return st;
}

status_t onnx_lower_nodes(struct onnx_ctx *c, const struct onnx_graph *g) {
    struct onnx_todo todo = {0};
    status_t st = add_initializers(c, g);
    for (size_t k = 0; k < g->nodes.n; k++)
        avec_push(c->a, &todo, &g->nodes.v[k]);
    while (!st && todo.n) {
        struct strbuf lines = {0};
        struct onnx_todo left = {0};
        bool curable = true;
        int n = 0;
        strbuf_limit(&lines, 64 * 1024);
        st = lower_those(c, &todo, &lines, &n, &left, &curable);
        if (!st && n) st = curable ? onnx_parts_cut(c, g, &left) : refused(&lines, n);
        strbuf_done(&lines);
        if (c->depth == 0 && c->parts->open) break;
        todo = left;
    }
    return st;
}
