// SPDX-License-Identifier: Apache-2.0
// Child contexts and captures; the bodies of model-local functions with attributes put in.
#include "compiler/frontend/onnx/onnx_scope.h"

void onnx_leaves_add(struct onnx_ctx *c, const struct onnx_val *v, bool known_too,
                     struct onnx_leaves *out) {
    if (v->list) {
        for (size_t k = 0; k < v->list->n; k++)
            onnx_leaves_add(c, v->list->v[k], known_too, out);
        return;
    }
    if (v->v && (known_too || !v->known)) avec_push(c->a, out, v->v);
    if (v->size) avec_push(c->a, out, v->size);
}

struct onnx_val *onnx_leaves_take(struct onnx_ctx *c, const struct onnx_val *like, bool known_too,
                                  hv const *from, size_t *at) {
    struct onnx_val *o = arena_new_of(c->a, struct onnx_val);
    if (like->list) {
        o->list = arena_new_of(c->a, struct onnx_list);
        o->list->dtype = like->list->dtype;
        o->list->text = like->list->text;
        for (size_t k = 0; k < like->list->n; k++)
            avec_push(c->a, o->list, onnx_leaves_take(c, like->list->v[k], known_too, from, at));
        return o;
    }
    if (!like->v) { // an absent optional
        *o = *like;
        return o;
    }
    o->text = like->text;
    if (like->known && !known_too) {
        o->known = like->known;
        o->v = hb_constant(&c->b, o->known);
    } else {
        o->v = from[(*at)++];
    }
    if (like->size) {
        o->size = from[(*at)++];
        o->size_dim = like->size_dim;
    }
    return o;
}

// ---- weights below a graph: they enter a computation like captures

static void weights_below(const struct onnx_graph *g, struct onnx_ctx *c, struct pmap *seen,
                          struct onnx_leaves *out) {
    for (size_t k = 0; k < g->inits.n + g->nodes.n; k++) {
        const struct onnx_node *n = k < g->inits.n ? NULL : &g->nodes.v[k - g->inits.n];
        const struct onnx_tensor *t = n ? NULL : &g->inits.v[k];
        for (size_t i = 0; n && i < n->attrs.n; i++) {
            if (n->attrs.v[i].graph) weights_below(n->attrs.v[i].graph, c, seen, out);
            if (n->attrs.v[i].t && n->attrs.v[i].t->weight) t = n->attrs.v[i].t;
        }
        if (!t || !t->weight || pmap_has(seen, (uint64_t)t->weight)) continue;
        pmap_put(seen, (uint64_t)t->weight, NULL);
        avec_push(c->a, out, pmap_get(c->weights, (uint64_t)t->weight));
    }
}

void onnx_captures_add(struct onnx_ctx *c, const struct onnx_graph *g, struct onnx_leaves *out) {
    struct pmap seen = {0};
    for (size_t k = 0; k < g->captures.n; k++) {
        const struct onnx_val *v = smap_get(&c->values, g->captures.v[k]);
        if (v) onnx_leaves_add(c, v, false, out);
    }
    weights_below(g, c, &seen, out);
    pmap_done(&seen);
}

static void take_weights(const struct onnx_graph *g, struct onnx_ctx *child, hv const *from,
                         size_t *at) {
    for (size_t k = 0; k < g->inits.n + g->nodes.n; k++) {
        const struct onnx_node *n = k < g->inits.n ? NULL : &g->nodes.v[k - g->inits.n];
        const struct onnx_tensor *t = n ? NULL : &g->inits.v[k];
        for (size_t i = 0; n && i < n->attrs.n; i++) {
            if (n->attrs.v[i].graph) take_weights(n->attrs.v[i].graph, child, from, at);
            if (n->attrs.v[i].t && n->attrs.v[i].t->weight) t = n->attrs.v[i].t;
        }
        if (!t || !t->weight || pmap_has(child->weights, (uint64_t)t->weight)) continue;
        pmap_put(child->weights, (uint64_t)t->weight, from[(*at)++]);
    }
}

void onnx_captures_take(struct onnx_ctx *c, struct onnx_ctx *child, const struct onnx_graph *g,
                        hv const *from, size_t *at) {
    for (size_t k = 0; k < g->captures.n; k++) {
        struct onnx_val *v = smap_get(&c->values, g->captures.v[k]);
        if (v && from) v = onnx_leaves_take(child, v, false, from, at);
        if (v) smap_put(&child->values, g->captures.v[k], v);
    }
    if (from) take_weights(g, child, from, at);
}

// ---- children

struct onnx_ctx *onnx_child(struct onnx_ctx *c, struct hlo_computation *comp) {
    struct onnx_ctx *child = arena_new_of(c->a, struct onnx_ctx);
    *child = *c;
    child->values = (struct smap){0};
    child->depth++;
    if (comp) {
        child->b = hb_begin(comp);
        child->weights = arena_new_of(c->a, struct pmap);
        child->n_chosen = 0; // those belong to the other computation
        memset(child->chosen, 0, sizeof child->chosen);
    }
    return child;
}
void onnx_child_end(struct onnx_ctx *c, struct onnx_ctx *child) {
    const char *type = c->b.op_type, *name = c->b.op_name;
    smap_done(&child->values);
    if (child->b.c == c->b.c) {
        c->b = child->b;
        c->b.op_type = type;
        c->b.op_name = name;
        return;
    }
    pmap_done(child->weights);
    hlo_remove_dead(child->b.c);
}

struct hlo_computation *onnx_computation(struct onnx_ctx *c, const char *name) {
    struct hlo_computation *comp = hlo_computation_add(c->b.c->module, name);
    hlo_computation_move_before(comp, c->b.c);
    return comp;
}

// ---- model-local functions: inlined

// Names of inputs that the calling node leaves out are no names in the body: its nodes have no such
// input.
static void put_inputs(struct onnx_ctx *c, const struct onnx_function *f,
                       const struct onnx_node *call, const struct onnx_node *in,
                       struct onnx_node *out) {
    memset(&out->in, 0, sizeof out->in);
    for (size_t k = 0; k < in->in.n; k++) {
        struct str name = in->in.v[k];
        for (size_t i = 0; i < f->inputs.n; i++)
            if (str_eq(f->inputs.v[i], name) && (i >= call->in.n || !call->in.v[i].n))
                name = (struct str){0};
        avec_push(c->a, &out->in, name);
    }
}

// The body's node with the calling node's attributes in the place of references.
static void put_attrs(struct onnx_ctx *c, const struct onnx_function *f,
                      const struct onnx_node *call, const struct onnx_node *in,
                      struct onnx_node *out) {
    *out = *in;
    memset(&out->attrs, 0, sizeof out->attrs);
    put_inputs(c, f, call, in, out);

    for (size_t k = 0; k < in->attrs.n; k++) {
        struct onnx_attr a = in->attrs.v[k];
        const struct onnx_attr *from = NULL;
        if (a.ref.n) {
            for (size_t i = 0; i < f->defaults.n; i++)
                if (str_eq(f->defaults.v[i].name, a.ref)) from = &f->defaults.v[i];
            for (size_t i = 0; i < call->attrs.n; i++)
                if (str_eq(call->attrs.v[i].name, a.ref)) from = &call->attrs.v[i];
            if (!from) continue; // the caller left it out: the operator's own default
            struct str name = a.name;
            a = *from;
            a.name = name;
        }

        if (a.graph) { // references may stand in subgraphs too
            struct onnx_graph *g = arena_new_of(c->a, struct onnx_graph);
            *g = *a.graph;
            memset(&g->nodes, 0, sizeof g->nodes);
            for (size_t i = 0; i < a.graph->nodes.n; i++) {
                struct onnx_node n;
                put_attrs(c, f, call, &a.graph->nodes.v[i], &n);
                avec_push(c->a, &g->nodes, n);
            }
            a.graph = g;
        }
        avec_push(c->a, &out->attrs, a);
    }
}

const struct onnx_graph *onnx_function_body(struct onnx_ctx *c, const struct onnx_function *f) {
    struct onnx_graph *body = arena_new_of(c->a, struct onnx_graph);
    *body = f->body;
    memset(&body->nodes, 0, sizeof body->nodes);
    for (size_t k = 0; k < f->body.nodes.n; k++) {
        struct onnx_node n;
        put_attrs(c, f, c->n, &f->body.nodes.v[k], &n);
        avec_push(c->a, &body->nodes, n);
    }
    return body;
}
