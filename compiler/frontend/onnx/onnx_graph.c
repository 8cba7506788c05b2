// SPDX-License-Identifier: Apache-2.0
// Scopes and order. A name is searched in the graph itself, then in those around it; what a graph
// takes from outside are its captures, and a node captures what its subgraphs do. Nodes are sorted
// so that producers of inputs and captures come first.
#include "compiler/frontend/onnx/onnx_model.h"

#include "base/map.h"

// Where each name of one graph comes from: producer's position + 1, 0 for inputs and initializers.
static status_t definitions(struct onnx_model *m, const struct onnx_graph *g, struct smap *from) {
    for (size_t k = 0; k < g->inputs.n; k++)
        smap_put(from, g->inputs.v[k].name, NULL);
    for (size_t k = 0; k < g->inits.n; k++)
        smap_put(from, g->inits.v[k].name, NULL);
    for (size_t k = 0; k < g->nodes.n; k++)
        for (size_t o = 0; o < g->nodes.v[k].out.n; o++) {
            struct str name = g->nodes.v[k].out.v[o];
            if (!name.n) continue;
            if (smap_has(from, name))
                return st_invalid("node %s: value '" STR_FMT "' is defined twice",
                                  onnx_node_name(m->arena, &g->nodes.v[k]), STR_ARG(name));
            smap_put(from, name, (void *)(k + 1));
        }
    return ST_OK;
}

static status_t charge(struct onnx_model *m) {
    if (++m->n_messages <= m->limits.max_nodes * 16) return ST_OK;
    return st_exhausted("subgraphs use more than %lld outer values",
                        (long long)m->limits.max_nodes * 16);
}

static status_t capture(struct onnx_model *m, struct onnx_graph *g, const struct smap *from,
                        struct smap *seen, struct str name) {
    if (!name.n || smap_has(from, name) || smap_has(seen, name)) return ST_OK;
    smap_put(seen, name, NULL);
    RETURN_IF_ERR(charge(m));
    avec_push(m->arena, &g->captures, name);
    return ST_OK;
}

static status_t node_captures(struct onnx_model *m, struct onnx_node *n) {
    struct smap seen = {0};
    status_t st = ST_OK;
    for (size_t i = 0; i < n->attrs.n && !st; i++) {
        const struct onnx_graph *sub = n->attrs.v[i].graph;
        for (size_t k = 0; sub && k < sub->captures.n && !st; k++) {
            if (smap_has(&seen, sub->captures.v[k])) continue;
            smap_put(&seen, sub->captures.v[k], NULL);
            st = charge(m);
            if (!st) avec_push(m->arena, &n->captures, sub->captures.v[k]);
        }
    }
    const struct onnx_attr *y = str_is(n->op, "Gradient") ? onnx_attr(n, "y") : NULL;
    if (y && y->s.n && !smap_has(&seen, y->s)) // a value that is named, not an input
        avec_push(m->arena, &n->captures, y->s);
    smap_done(&seen);
    return st;
}

static status_t graph_captures(struct onnx_model *m, struct onnx_graph *g,
                               const struct smap *from) {
    struct smap seen = {0};
    status_t st = ST_OK;
    for (size_t k = 0; k < g->nodes.n && !st; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        for (size_t i = 0; i < n->in.n && !st; i++)
            st = capture(m, g, from, &seen, n->in.v[i]);
        for (size_t i = 0; i < n->captures.n && !st; i++)
            st = capture(m, g, from, &seen, n->captures.v[i]);
    }
    for (size_t k = 0; k < g->outputs.n && !st; k++)
        st = capture(m, g, from, &seen, g->outputs.v[k].name);
    smap_done(&seen);
    return st;
}

static struct str nth_use(const struct onnx_node *n, size_t i) {
    return i < n->in.n ? n->in.v[i] : n->captures.v[i - n->in.n];
}

// Producers before users, by depth-first search with a stack of its own.
static status_t sort_nodes(struct onnx_model *m, struct onnx_graph *g, const struct smap *from) {
    size_t n = g->nodes.n;
    int *state = arena_zarray(m->arena, int, n + 1); // 1 open, 2 placed
    status_t st = ST_OK;
    VEC(size_t) stack = {0};
    VEC(struct onnx_node) sorted = {0};

    for (size_t first = 0; first < n && !st; first++) {
        if (!state[first]) vec_push(&stack, first);
        while (stack.n && !st) {
            size_t k = stack.v[stack.n - 1];
            const struct onnx_node *node = &g->nodes.v[k];
            if (state[k]) {
                (void)vec_pop(&stack);
                if (state[k] == 1) avec_push(m->arena, &sorted, *node);
                state[k] = 2;
                continue;
            }
            state[k] = 1;
            for (size_t i = node->in.n + node->captures.n; i-- > 0 && !st;) {
                size_t p = (size_t)smap_get(from, nth_use(node, i));
                if (p && state[p - 1] == 1)
                    st = st_invalid("node %s: the graph has a cycle through value '" STR_FMT "'",
                                    onnx_node_name(m->arena, node), STR_ARG(nth_use(node, i)));
                else if (p && state[p - 1] == 0)
                    vec_push(&stack, p - 1);
            }
        }
    }

    if (!st) memcpy(&g->nodes, &sorted, sizeof sorted);
    vec_done(&stack);
    return st;
}

// Depth is that of the reader, which has bounded it.
static status_t resolve(struct onnx_model *m, struct onnx_graph *g) {
    struct smap from = {0};
    status_t st = ST_OK;
    for (size_t k = 0; k < g->nodes.n && !st; k++) {
        struct onnx_node *n = &g->nodes.v[k];
        for (size_t i = 0; i < n->attrs.n && !st; i++)
            if (n->attrs.v[i].graph)
                st = st_note(resolve(m, n->attrs.v[i].graph), "node %s, graph '" STR_FMT "'",
                             onnx_node_name(m->arena, n), STR_ARG(n->attrs.v[i].name));
        if (!st) st = node_captures(m, n);
    }
    if (!st) st = definitions(m, g, &from);
    if (!st) st = graph_captures(m, g, &from);
    if (!st) st = sort_nodes(m, g, &from);
    smap_done(&from);
    return st;
}

static bool uses(const struct onnx_node *n, struct str name) {
    for (size_t i = 0; i < n->in.n + n->captures.n; i++)
        if (str_eq(nth_use(n, i), name)) return true;
    return false;
}

// ---- inputs that are maps

static bool takes_map(const struct onnx_node *n) {
    return str_is(n->domain, "ai.onnx.ml") && str_is(n->op, "DictVectorizer") && n->in.n == 1;
}
static struct onnx_value half_of(struct onnx_model *m, const struct onnx_value *map, bool keys) {
    struct onnx_value v = {.name = str_of(arena_printf(m->arena, STR_FMT ".%s", STR_ARG(map->name),
                                                       keys ? "keys" : "values")),
                           .elem_type = keys ? map->key_type : map->elem_type,
                           .has_shape = true,
                           .is_tensor = true,
                           .rank = 1};
    v.dims[0].size = -1;
    v.dims[0].symbol = str_of(arena_printf(m->arena, STR_FMT ".count", STR_ARG(map->name)));
    return v;
}
status_t onnx_split_maps(struct onnx_model *m, struct onnx_graph *g) {
    size_t n = g->inputs.n;
    struct onnx_value *in = g->inputs.v;
    memset(&g->inputs, 0, sizeof g->inputs);
    for (size_t k = 0; k < n; k++) {
        if (!in[k].is_map || !in[k].key_type) {
            avec_push(m->arena, &g->inputs, in[k]); // of other kinds; ingest refuses some
            continue;
        }
        struct onnx_value half[2] = {half_of(m, &in[k], true), half_of(m, &in[k], false)};
        for (int h = 0; h < 2; h++)
            avec_push(m->arena, &g->inputs, half[h]);
        for (size_t i = 0; i < g->nodes.n; i++) {
            struct onnx_node *node = &g->nodes.v[i];
            bool reads = uses(node, in[k].name);
            if (reads && !takes_map(node))
                return st_invalid("node %s: input '" STR_FMT "' is a map, which DictVectorizer "
                                  "alone takes",
                                  onnx_node_name(m->arena, node), STR_ARG(in[k].name));
            if (!reads) continue;
            node->in.n = 0;
            for (int h = 0; h < 2; h++)
                avec_push(m->arena, &node->in, half[h].name);
        }
    }
    return ST_OK;
}

status_t onnx_graph_resolve(struct onnx_model *m, struct onnx_graph *g) {
    RETURN_IF_ERR(resolve(m, g));
    if (g->captures.n == 0) return ST_OK;
    struct str name = g->captures.v[0];
    for (size_t k = 0; k < g->nodes.n; k++)
        if (uses(&g->nodes.v[k], name))
            return st_invalid("node %s: input '" STR_FMT "' is not defined anywhere",
                              onnx_node_name(m->arena, &g->nodes.v[k]), STR_ARG(name));
    return st_invalid("output '" STR_FMT "' is not defined by any node", STR_ARG(name));
}

// ---- functions

// Walks from function to function by the nodes that call them; one that is met on its own way calls
// itself.
struct calls {
    const struct onnx_model *m;
    struct smap places; // domain, name and overload -> place + 1
    enum { UNSEEN, ON_THE_WAY, DONE } * seen;
};
static struct str key_of(const struct calls *w, struct str domain, struct str name,
                         struct str overload) {
    return str_of(arena_printf(w->m->arena, STR_FMT "\n" STR_FMT "\n" STR_FMT, STR_ARG(domain),
                               STR_ARG(name), STR_ARG(overload)));
}
static status_t follow(struct calls *w, const struct onnx_graph *g, int depth);
static status_t follow_function(struct calls *w, size_t place, int depth) {
    const struct onnx_function *f = &w->m->functions.v[place];
    if (w->seen[place] == DONE || depth > w->m->limits.max_depth) return ST_OK; // lowering tells
    if (w->seen[place] == ON_THE_WAY)
        return st_invalid("function '" STR_FMT "' of domain '" STR_FMT
                          "' calls itself, at once or by others: functions may not recur",
                          STR_ARG(f->name), STR_ARG(f->domain));
    w->seen[place] = ON_THE_WAY;
    RETURN_IF_ERR(follow(w, &f->body, depth + 1));
    w->seen[place] = DONE;
    return ST_OK;
}
static status_t follow(struct calls *w, const struct onnx_graph *g, int depth) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        void *place = smap_get(&w->places, key_of(w, n->domain, n->op, n->overload));
        if (place) RETURN_IF_ERR(follow_function(w, (size_t)(uintptr_t)place - 1, depth));
        for (size_t i = 0; i < n->attrs.n; i++)
            if (n->attrs.v[i].graph) RETURN_IF_ERR(follow(w, n->attrs.v[i].graph, depth + 1));
    }
    return ST_OK;
}

status_t onnx_functions_check(const struct onnx_model *m) {
    if (!m->functions.n) return ST_OK;
    struct calls w = {.m = m};
    w.seen = arena_zarray(m->arena, __typeof__(*w.seen), m->functions.n);
    smap_seed_random(&w.places);
    for (size_t k = m->functions.n; k-- > 0;) { // of several alike the first counts
        const struct onnx_function *f = &m->functions.v[k];
        smap_put(&w.places, key_of(&w, f->domain, f->name, f->overload), (void *)(k + 1));
    }
    status_t st = ST_OK;
    for (size_t k = 0; k < m->functions.n && !st; k++)
        st = follow_function(&w, k, 0);
    smap_done(&w.places);
    return st;
}
