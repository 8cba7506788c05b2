// SPDX-License-Identifier: Apache-2.0
// Which values must be known at compile time because they decide shapes. Marks go backwards from
// the operands that decide shapes (onnx_ops.def) through the nodes that compute them and stop at
// Shape and Size, whose results need no elements. An initializer so reached is baked, a small graph
// input is bound by value: an executable is made for the elements a request brings. Marks do not
// spread from values that no compile can know, since they depend on a large input or on chance: the
// run finds those, between two parts of the program (onnx_parts.c). Nor from what the main graph
// sums up, counts or computes of an input's elements: an executable for each size is better than
// one for each input. A subgraph cannot be cut: what decides its sizes must be known.
#include "compiler/frontend/onnx/onnx.h"

#include "compiler/frontend/onnx/onnx_lower.h"

// Where a name comes from: a node's output, or input `formal` of the subgraph of a node.
struct origin {
    const struct onnx_node *node;
    int formal; // -1: an output of node
};
struct marker {
    const struct onnx_model *m;
    struct smap from;     // name -> struct origin *
    struct smap *marked;  // the result
    struct smap of_run;   // names of values that no compile can know
    struct smap of_input; // and of those that depend on elements of an input that one may be told
    struct smap better;   // and of those that are better found by a run
    struct smap below;    // marked in a subgraph
    bool deep;            // looking at, or spreading from, subgraphs
    VEC(struct str) open;
};

static void mark(struct marker *k, struct str name) {
    if (!name.n || smap_has(k->marked, name)) return;
    smap_put(k->marked, name, NULL);
    vec_push(&k->open, name);
}

static bool is_input(const struct onnx_model *m, struct str name) {
    for (size_t k = 0; k < m->main.inputs.n; k++)
        if (str_eq(m->main.inputs.v[k].name, name)) return true;
    return false;
}
// As far as both say: one rank, and the same numbers or symbols.
static bool same_form(const struct onnx_value *x, const struct onnx_value *y) {
    if (!x->has_shape || !y->has_shape) return true;
    if (x->rank != y->rank) return false;
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d].size != y->dims[d].size || !str_eq(x->dims[d].symbol, y->dims[d].symbol))
            return false;
    return true;
}
// Whether an optional is there is known at compile time: a branch that says so by itself must be,
// too, where the request brings the condition. Likewise one that gives another shape than the other
// branch: decoders for the first token and for those behind it, merged.
static bool decides_form(const struct onnx_model *m, const struct onnx_node *n) {
    const struct onnx_graph *first = NULL;
    bool decides = false;
    for (size_t k = 0; k < n->attrs.n; k++) {
        const struct onnx_graph *g = n->attrs.v[k].graph;
        for (size_t o = 0; g && o < g->outputs.n; o++)
            decides |=
                g->outputs.v[o].is_optional || (first && o < first->outputs.n &&
                                                !same_form(&g->outputs.v[o], &first->outputs.v[o]));
        if (g && !first) first = g;
    }
    return decides && n->in.n && is_input(m, n->in.v[0]);
}

uint32_t onnx_shape_inputs(const struct onnx_model *m, const struct onnx_node *n) {
    const struct onnx_op *op = onnx_op_find(n, m->opset);
    if (!op) return 0;
    // A loop that stacks results of its iterations has a length.
    if (str_is(n->op, "Loop")) {
        const struct onnx_attr *body = onnx_attr(n, "body");
        return body && body->graph && body->graph->outputs.n > body->graph->inputs.n - 1;
    }
    if (str_is(n->op, "If")) return decides_form(m, n);
    return op->shape_inputs;
}

// An input of which a compile may be told the elements; others it never knows.
static bool small_enough(const struct onnx_value *v) {
    int64_t n = 1;
    if (!v->is_tensor || v->is_optional || !v->has_shape || v->rank > 1 ||
        v->elem_type == ONNX_STRING)
        return false;
    for (int d = 0; d < v->rank; d++)
        n *= v->dims[d].size >= 0 ? v->dims[d].size : 1;
    return n <= MAX_BOUND_VALUES && dtype_size(dtype_from_onnx(v->elem_type)) <= 8;
}
static bool by_chance(struct str op) {
    return str_listed(op, "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli "
                          "Multinomial");
}
static void note(struct smap *in, struct str name) {
    if (name.n) smap_put(in, name, NULL);
}
static bool any_in(const struct smap *names, const struct onnx_node *n) {
    for (size_t i = 0; i < n->in.n; i++)
        if (smap_has(names, n->in.v[i])) return true;
    for (size_t i = 0; i < n->captures.n; i++)
        if (smap_has(names, n->captures.v[i])) return true;
    return false;
}
// Many elements in, few or others out.
static bool condenses(struct str op) {
    return str_listed(op,
                      "ReduceSum ReduceMax ReduceMin ReduceMean ReduceL1 ReduceL2 ArgMax ArgMin "
                      "CumSum MatMul Gemm Conv Einsum Exp Log Softplus Sigmoid Tanh Softmax "
                      "NonZero Unique Compress TopK LSTM GRU Relu Sqrt Erf MatMulInteger GatherND "
                      "ScatterND ScatterElements LayerNormalization");
}
// Can no compile know what n computes from its inputs? Its producers have been looked at.
static bool of_run(const struct marker *k, const struct onnx_node *n) {
    if (str_is(n->op, "Shape") || str_is(n->op, "Size")) return false;
    return by_chance(n->op) || any_in(&k->of_run, n);
}
static void note_formal(struct marker *k, struct str formal, struct str given) {
    if (!given.n) return;
    if (smap_has(&k->of_run, given)) note(&k->of_run, formal);
    if (smap_has(&k->of_input, given)) note(&k->of_input, formal);
    if (smap_has(&k->better, given)) note(&k->better, formal);
}
static void note_output(struct marker *k, const struct onnx_node *n, struct str name, bool run) {
    bool counted = str_is(n->op, "Shape") || str_is(n->op, "Size");
    bool told = !counted && any_in(&k->of_input, n);
    if (run) note(&k->of_run, name);
    if (told) note(&k->of_input, name);
    if (run || (!counted && any_in(&k->better, n)) || (told && condenses(n->op)))
        note(&k->better, name);
}

static void add_origin(struct marker *k, struct str name, const struct onnx_node *n, int formal) {
    struct origin *o = arena_new_of(k->m->arena, struct origin);
    *o = (struct origin){n, formal};
    if (name.n) smap_put(&k->from, name, o);
}

// Names are unique over all graphs of a model that follows the standard; where they are not, too
// much is marked, which costs a specialisation and is never wrong.
static void scan(struct marker *k, const struct onnx_graph *g) {
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct onnx_node *n = &g->nodes.v[i];
        uint32_t shapes = onnx_shape_inputs(k->m, n);
        bool run = of_run(k, n);
        for (size_t o = 0; o < n->out.n; o++) {
            add_origin(k, n->out.v[o], n, -1);
            note_output(k, n, n->out.v[o], run);
        }
        for (size_t j = 0; j < n->in.n && j < 32; j++)
            if (shapes >> j & 1) {
                mark(k, n->in.v[j]);
                if (k->deep) note(&k->below, n->in.v[j]);
            }
        for (size_t j = 0; j < n->attrs.n; j++) {
            const struct onnx_graph *sub = n->attrs.v[j].graph;
            if (!sub) continue;
            for (size_t f = 0; f < sub->inputs.n; f++) {
                add_origin(k, sub->inputs.v[f].name, n, (int)f);
                note_formal(k, sub->inputs.v[f].name, f < n->in.n ? n->in.v[f] : (struct str){0});
            }
            bool deep = k->deep;
            k->deep = true;
            scan(k, sub);
            k->deep = deep;
        }
    }
}

static void spread(struct marker *k, struct str name) {
    const struct origin *o = smap_get(&k->from, name);
    if (!o || smap_has(k->deep ? &k->of_run : &k->better, name)) return;
    if (o->formal >= 0) { // Loop's body has trip count and condition first, Scan's has all inputs
        if ((size_t)o->formal < o->node->in.n) mark(k, o->node->in.v[o->formal]);
        return;
    }
    if (str_is(o->node->op, "Shape") || str_is(o->node->op, "Size")) return;
    for (size_t i = 0; i < o->node->in.n; i++)
        mark(k, o->node->in.v[i]);
    for (size_t i = 0; i < o->node->attrs.n; i++) {
        const struct onnx_graph *sub = o->node->attrs.v[i].graph;
        for (size_t f = 0; sub && f < sub->outputs.n; f++)
            mark(k, sub->outputs.v[f].name);
    }
}

static void spread_all(struct marker *k) {
    while (k->open.n) {
        struct str name = vec_pop(&k->open);
        spread(k, name);
    }
}

void onnx_static_names(const struct onnx_model *m, struct smap *out) {
    struct marker k = {.m = m, .marked = out};

    for (size_t i = 0; i < m->main.inputs.n; i++) {
        const struct onnx_value *v = &m->main.inputs.v[i];
        bool plain = v->is_tensor && !v->is_optional && v->elem_type != ONNX_STRING;
        if (plain) note(small_enough(v) ? &k.of_input : &k.of_run, v->name);
        if (plain && !small_enough(v)) note(&k.better, v->name);
    }
    scan(&k, &m->main);

    size_t deep = 0; // those of subgraphs first: they spread further
    for (size_t i = 0; i < k.open.n; i++)
        if (smap_has(&k.below, k.open.v[i])) {
            struct str name = k.open.v[i];
            k.open.v[i] = k.open.v[deep];
            k.open.v[deep++] = name;
        }

    VEC(struct str) rest = {0};
    for (size_t i = deep; i < k.open.n; i++)
        vec_push(&rest, k.open.v[i]);
    k.open.n = deep;
    k.deep = true;
    spread_all(&k);
    k.deep = false;
    for (size_t i = 0; i < rest.n; i++)
        vec_push(&k.open, rest.v[i]);
    spread_all(&k);

    smap_done(&k.from);
    smap_done(&k.of_run);
    smap_done(&k.of_input);
    smap_done(&k.better);
    smap_done(&k.below);
    vec_done(&k.open);
    vec_done(&rest);
}

bool onnx_by_value(const struct smap *names, const struct onnx_value *v) {
    return smap_has(names, v->name) && small_enough(v);
}
