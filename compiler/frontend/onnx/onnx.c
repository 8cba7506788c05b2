// SPDX-License-Identifier: Apache-2.0
// Ingest (D13): decides which initializers are weights, hashes them, writes the program with their
// bytes cut out, and the digest of the canonical graph. The weights are hashed beside all the rest
// (weight_digests.h).
//   source bytes -> model -> {signature, weights} -> program bytes (weights replaced by references)
//   -> digests
#include "compiler/frontend/onnx/onnx.h"

#include <ctype.h>
#include <stdio.h>

#include "base/map.h"
#include "compiler/frontend/onnx/onnx_lower.h"
#include "compiler/frontend/weight_digests.h"
#include "compiler/frontend/wire.h"
#include "proto/hlod.pb-c.h"

enum { BAKE_BYTES = 1024, BAKE_ZERO_POINTS = 65536, BAKE_QUANTISED = 64 };

bool onnx_sniff(struct span head) {
    // ModelProto begins with ir_version (field 1, varint) in every writer we know; otherwise with
    // producer_name or graph.
    if (head.n < 2) return false;
    if (head.p[0] == 0x08) return true; // onnx_parse tells which versions are taken
    return (head.p[0] == 0x12 || head.p[0] == 0x3a) && head.n > 4;
}

// A name that says no more than that a size is not known: no letter or digit in it ("?"), or one of
// the words that exporters write for every such dimension. Two of them are not one size.
static bool is_placeholder(struct str s) {
    static const char *const words[] = {"-1",  "none", "null",    "nan",    "unk",
                                        "any", "dyn",  "unknown", "dynamic"};
    char lower[16];
    bool named = false;
    for (size_t k = 0; k < s.n; k++) {
        unsigned char ch = (unsigned char)s.p[k];
        if (k < sizeof lower) lower[k] = (char)tolower(ch);
        named |= isalnum(ch) || ch == '_' || ch >= 128;
    }
    for (size_t k = 0; k < sizeof words / sizeof words[0] && s.n < sizeof lower; k++)
        if (str_is((struct str){lower, s.n}, words[k])) return true;
    return !named;
}
struct str onnx_dim_symbol(struct arena *a, const struct onnx_value *v, int d) {
    struct str s = v->dims[d].symbol;
    if (is_placeholder(s)) return str_of(arena_printf(a, "_" STR_FMT "_%d", STR_ARG(v->name), d));
    // These begin what is bound besides names (scheduler/job/key.h).
    if (strchr("*=#~@", *s.p)) return str_of(arena_printf(a, "_" STR_FMT, STR_ARG(s)));
    return s;
}

static const char *why_refused(const struct onnx_node *n) {
    if (!n->domain.n && str_is(n->op, "ImageDecoder"))
        return "it decodes image files: send pixels instead";
    return n->domain.n ? "the operator of this domain is not supported"
                       : "the operator is not supported";
}
static void unsupported(const struct onnx_model *m, const struct onnx_graph *g, int64_t opset,
                        struct strbuf *b, int *n) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_node *node = &g->nodes.v[k];
        const char *why = NULL;
        for (size_t i = 0; i < node->attrs.n; i++)
            if (node->attrs.v[i].graph) unsupported(m, node->attrs.v[i].graph, opset, b, n);
        if (onnx_function_find(m, node)) continue;
        if (!onnx_op_find(node, opset)) why = why_refused(node);
        if (!why) continue;
        ++*n;
        strbuf_printf(b, "\n  node %s, domain '" STR_FMT "', opset %lld: %s",
                      onnx_node_name(m->arena, node), STR_ARG(node->domain), (long long)opset, why);
    }
}

status_t onnx_check_supported(const struct onnx_model *m) {
    struct strbuf b = {0};
    int n = 0;
    strbuf_limit(&b, 64 * 1024);
    unsupported(m, &m->main, m->opset, &b, &n);
    for (size_t k = 0; k < m->functions.n; k++)
        unsupported(m, &m->functions.v[k].body, m->functions.v[k].opset, &b, &n);
    status_t st =
        n ? st_invalid("%d unsupported node%s:%s", n, n > 1 ? "s" : "", strbuf_cstr(&b)) : ST_OK;
    strbuf_done(&b);
    return st_reason(st, HLOD__V1__REASON__REASON_UNSUPPORTED_OP);
}

// ---- signature

static status_t sig_of(struct arena *a, const struct onnx_value *v, bool input,
                       struct sig_tensor *out) {
    bool loose = v->is_sequence || v->is_optional;
    struct sig_tensor t = {.name = arena_strndup(a, v->name.p, v->name.n),
                           .dtype = onnx_dtype_of(v),
                           .text = v->elem_type == ONNX_STRING,
                           .rank = v->has_shape && !loose ? v->rank : -1,
                           .sequence = v->is_sequence,
                           .optional = v->is_optional};
    if (input && (t.dtype == DT_INVALID || (!v->is_tensor && !v->is_sequence)))
        return st_invalid("input '%s': the element type is not supported", t.name);
    if (input && v->is_map)
        return st_invalid("input '%s': sequences and optionals of maps are not supported", t.name);
    if (t.rank < 0) {
        *out = t;
        return ST_OK;
    }
    t.dims = arena_zarray(a, struct sig_dim, v->rank + 1);
    for (int d = 0; d < v->rank; d++) {
        t.dims[d].size = v->dims[d].size;
        t.dims[d].usual = v->dims[d].usual;
        struct str symbol = onnx_dim_symbol(a, v, d);
        if (v->dims[d].size < 0) t.dims[d].symbol = arena_strndup(a, symbol.p, symbol.n);
    }
    *out = t;
    return ST_OK;
}

static status_t signature_of(struct arena *a, const struct onnx_model *m,
                             const struct smap *static_names, struct signature *out) {
    const struct onnx_graph *g = &m->main;
    *out = (struct signature){.n_in = (int32_t)g->inputs.n, .n_out = (int32_t)g->outputs.n};
    out->in = arena_zarray(a, struct sig_tensor, g->inputs.n + 1);
    out->out = arena_zarray(a, struct sig_tensor, g->outputs.n + 1);
    for (size_t k = 0; k < g->inputs.n; k++) {
        RETURN_IF_ERR(sig_of(a, &g->inputs.v[k], true, &out->in[k]));
        out->in[k].by_value = onnx_by_value(static_names, &g->inputs.v[k]);
    }
    for (size_t k = 0; k < g->outputs.n; k++)
        RETURN_IF_ERR(sig_of(a, &g->outputs.v[k], false, &out->out[k]));
    out->n_defaults = (int32_t)g->defaults.n;
    out->defaults = arena_zarray(a, struct sig_tensor, g->defaults.n + 1);
    for (size_t k = 0; k < g->defaults.n; k++) {
        RETURN_IF_ERR(sig_of(a, &g->defaults.v[k], true, &out->defaults[k]));
        out->defaults[k].by_value = onnx_by_value(static_names, &g->defaults.v[k]);
    }
    return ST_OK;
}

// ---- weights

static status_t add_weight(struct arena *a, const struct onnx_model *m, const struct onnx_tensor *t,
                           const struct shape *s, struct strbuf *sidecar, struct weight *w) {
    *w = (struct weight){.name = arena_strndup(a, t->name.p, t->name.n),
                         .dtype = s->dtype,
                         .rank = s->rank,
                         .dims = s->dims,
                         .size_bytes = shape_bytes(s)};
    if (t->typed_field == 0 && !onnx_packed(s->dtype)) {
        if ((int64_t)t->raw.n != w->size_bytes)
            return st_invalid("initializer '%s': %zu bytes of data, its shape needs %lld", w->name,
                              t->raw.n, (long long)w->size_bytes);
        w->offset = t->raw.p - m->file;
        return ST_OK;
    }
    struct arena tmp = {0};
    struct literal *l;
    status_t st = onnx_tensor_literal(&tmp, t, &l);
    if (!st) {
        w->sidecar = true;
        w->offset = (int64_t)sidecar->n;
        strbuf_add(sidecar, l->data, l->size_bytes);
    }
    arena_done(&tmp);
    return st;
}

// Initializers that nothing but these operators reads, in the main graph: what training changes. At
// any size they are weights, so that a model with other values is the same program.
static const char *const takes_weights[] = {"Conv",
                                            "ConvTranspose",
                                            "Gemm",
                                            "MatMul",
                                            "BatchNormalization",
                                            "InstanceNormalization",
                                            "LSTM",
                                            "LayerNormalization",
                                            "GRU",
                                            "RNN",
                                            "GroupNormalization",
                                            "PRelu",
                                            "Gather",
                                            "Einsum",
                                            "Add",
                                            "Sub",
                                            "Mul",
                                            "Div"};
static bool is_weight_taker(const struct onnx_node *n) {
    bool found = false;
    for (size_t k = 0; k < sizeof takes_weights / sizeof *takes_weights; k++)
        found |= n->domain.n == 0 && str_is(n->op, takes_weights[k]);
    return found;
}
// Into *out what anything else reads.
static void read_otherwise(const struct onnx_graph *g, bool main, struct smap *out) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        for (size_t i = 0; i < n->in.n && !(main && is_weight_taker(n)); i++)
            smap_put(out, n->in.v[i], out);
        for (size_t i = 0; i < n->attrs.n; i++)
            if (n->attrs.v[i].graph) read_otherwise(n->attrs.v[i].graph, false, out);
    }
    for (size_t k = 0; k < g->outputs.n; k++)
        smap_put(out, g->outputs.v[k].name, out);
}

struct collector {
    struct arena *a;
    const struct onnx_model *m;
    const struct smap *static_names, *otherwise; // otherwise: read_otherwise
    struct strbuf *sidecar;
    bool trainable; // frontend_limits.trainable
    bool constants; // those of Constant nodes of the main graph are trained as well
    const char *singles;
    VEC(struct weight) all;
};

static bool is_real(const struct shape *s) {
    return dtype_is_float(s->dtype) && dtype_bits(s->dtype) >= 16;
}
// Single numbers are constants of the model more often than weights.
static bool is_counted(const struct collector *c, const struct onnx_tensor *t,
                       const struct shape *s) {
    if (shape_elements(s) != 1) return shape_elements(s) > 1;
    return c->singles && str_in_globs(c->singles, arena_strndup(c->a, t->name.p, t->name.n));
}
static status_t elsewhere(const struct onnx_tensor *t) {
    return st_invalid("tensor '" STR_FMT "' keeps its data in another file ('" STR_FMT
                      "'): send a model with its weights inside",
                      STR_ARG(t->name), STR_ARG(t->location));
}
// Have the attributes of all nodes their data inside? A file's name is in no digest, and where the
// data of a program's weights lies is ours to say.
static status_t check_inside(const struct onnx_graph *g) {
    for (size_t k = 0; k < g->nodes.n; k++)
        for (size_t i = 0; i < g->nodes.v[k].attrs.n; i++) {
            const struct onnx_attr *at = &g->nodes.v[k].attrs.v[i];
            if (at->t && at->t->external) return elsewhere(at->t);
            if (at->sparse && at->sparse->values.external) return elsewhere(&at->sparse->values);
            if (at->sparse && at->sparse->indices.external) return elsewhere(&at->sparse->indices);
            for (size_t j = 0; at->graph && j < at->graph->inits.n; j++)
                if (at->graph->inits.v[j].external) return elsewhere(&at->graph->inits.v[j]);
            if (at->graph) RETURN_IF_ERR(check_inside(at->graph));
        }
    return ST_OK;
}

// Is a tensor bound rather than baked? One that decides shapes is baked at any size. `initializer`:
// of the main graph, or as good as one.
static status_t is_weight(struct collector *c, const struct onnx_tensor *t, bool initializer,
                          bool *out) {
    const struct shape *s;
    *out = false;
    if (t->external) return elsewhere(t);
    if (t->data_type == ONNX_STRING) return ST_OK;
    RETURN_IF_ERR(onnx_tensor_shape(c->a, t, &s));
    if (initializer && is_real(s) && is_counted(c, t, s) &&
        (c->trainable || !smap_has(c->otherwise, t->name)))
        return *out = !smap_has(c->static_names, t->name), ST_OK;
    // Zero points, one a channel: whether they are zero decides what the compiler does.
    // Kernels and matrices of such are kept as they are, which folding would turn into f32.
    bool bytes = dtype_bits(s->dtype) == 8 && dtype_is_int(s->dtype);
    int64_t bake = !bytes         ? BAKE_BYTES
                   : s->rank == 1 ? BAKE_ZERO_POINTS
                   : s->rank > 1  ? BAKE_QUANTISED
                                  : BAKE_BYTES;
    *out = shape_bytes(s) > bake && !smap_has(c->static_names, t->name);
    return ST_OK;
}

static status_t collect_tensor(struct collector *c, struct onnx_tensor *t, struct str name,
                               bool initializer) {
    const struct shape *s;
    struct weight w;
    bool bound;
    t->name = name; // of a Constant node: its output
    RETURN_IF_ERR(is_weight(c, t, initializer, &bound));
    if (!bound) return ST_OK;
    RETURN_IF_ERR(onnx_tensor_shape(c->a, t, &s));
    RETURN_IF_ERR(add_weight(c->a, c->m, t, s, c->sidecar, &w));
    w.inner = !initializer;
    avec_push(c->a, &c->all, w);
    t->weight = (int)c->all.n;
    return ST_OK;
}

static struct onnx_tensor *constant_of(const struct onnx_node *n) {
    bool plain = n->domain.n == 0 && str_is(n->op, "Constant") && n->attrs.n == 1 && n->out.n == 1;
    return plain && n->attrs.v[0].t && !n->attrs.v[0].t->external ? n->attrs.v[0].t : NULL;
}
static int64_t real_numbers(struct arena *a, const struct onnx_tensor *t) {
    const struct shape *s = NULL;
    status_t st = t->data_type == ONNX_STRING ? ST_OK : onnx_tensor_shape(a, t, &s);
    st_drop(st); // is_weight says what is wrong with it
    int64_t n = !st && s && is_real(s) ? shape_elements(s) : 0;
    return n > 1 ? n : 0;
}
// Do most of the numbers that could be trained stand in Constant nodes?
static bool weights_in_constants(struct arena *a, const struct onnx_graph *g) {
    double inits = 0, constants = 0;
    for (size_t k = 0; k < g->inits.n; k++)
        inits += (double)real_numbers(a, &g->inits.v[k]);
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_tensor *t = constant_of(&g->nodes.v[k]);
        constants += t ? (double)real_numbers(a, t) : 0;
    }
    return constants > inits;
}

static void for_training(struct collector *c, const struct frontend_limits *l) {
    c->trainable = l && l->trainable;
    if (!c->trainable) return;
    c->singles = l->singles;
    c->constants = l->constants == CONSTANTS_TRAINED ||
                   (l->constants == CONSTANTS_AUTO && weights_in_constants(c->a, &c->m->main));
}

// Initializers and the tensors of Constant nodes, of this graph and those below.
static status_t collect_weights(struct collector *c, struct onnx_graph *g) {
    for (size_t k = 0; k < g->inits.n; k++)
        RETURN_IF_ERR(collect_tensor(c, &g->inits.v[k], g->inits.v[k].name, g == &c->m->main));
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct onnx_node *n = &g->nodes.v[k];
        for (size_t i = 0; i < n->attrs.n; i++)
            if (n->attrs.v[i].graph) RETURN_IF_ERR(collect_weights(c, n->attrs.v[i].graph));
        struct onnx_tensor *t = constant_of(n);
        if (t) RETURN_IF_ERR(collect_tensor(c, t, n->out.v[0], c->constants && g == &c->m->main));
    }
    return ST_OK;
}

// ---- the program with the weights cut out: the same messages, but such an initializer has no data
// and refers to "weight:N"

static void put_cut_tensor(struct strbuf *b, uint32_t field, const struct onnx_tensor *t) {
    struct strbuf tensor = {0}, pair = {0};
    char where[32];
    int n = snprintf(where, sizeof where, "weight:%d", t->weight - 1);
    for (int d = 0; d < t->rank; d++)
        wire_put_int(&tensor, 1, (uint64_t)t->dims[d]);
    wire_put_int(&tensor, 2, (uint64_t)t->data_type);
    wire_put_bytes(&tensor, 8, t->name.p, t->name.n);
    wire_put_bytes(&pair, 1, "location", 8);
    wire_put_bytes(&pair, 2, where, (size_t)n);
    wire_put_bytes(&tensor, 13, pair.p, pair.n);
    wire_put_int(&tensor, 14, 1);
    wire_put_bytes(b, field, tensor.p, tensor.n);
    strbuf_done(&tensor);
    strbuf_done(&pair);
}

static status_t cut_graph(const struct onnx_model *m, const struct onnx_graph *g, struct strbuf *b);

// The fields of s as they are, but for those that `drop` names.
static status_t put_others(const struct onnx_model *m, struct span s, uint32_t drop,
                           struct strbuf *b) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    status_t st = ST_OK;
    while (wire_next(&w, &f, &st))
        if (f.number != drop) strbuf_add(b, f.at, (size_t)(f.after - f.at));
    return st;
}

// An attribute that holds a weight or a graph.
static status_t cut_attr(const struct onnx_model *m, const struct onnx_attr *at, struct span s,
                         struct strbuf *b) {
    struct strbuf attr = {0}, graph = {0};
    status_t st = put_others(m, s, at->graph ? 6 : 5, &attr);
    if (!st && at->graph) {
        st = cut_graph(m, at->graph, &graph);
        if (!st) wire_put_bytes(&attr, 6, graph.p, graph.n);
    } else if (!st) {
        put_cut_tensor(&attr, 5, at->t);
    }
    if (!st) wire_put_bytes(b, 5, attr.p, attr.n);
    strbuf_done(&attr);
    strbuf_done(&graph);
    return st;
}

static status_t cut_node(const struct onnx_model *m, const struct onnx_node *n, struct span s,
                         struct strbuf *b) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    size_t k = 0;
    struct strbuf node = {0};
    status_t st = ST_OK;
    while (wire_next(&w, &f, &st)) {
        const struct onnx_attr *at = f.number == 5 && k < n->attrs.n ? &n->attrs.v[k++] : NULL;
        if (at && (at->graph || (at->t && at->t->weight)))
            st = cut_attr(m, at, f.bytes, &node);
        else
            strbuf_add(&node, f.at, (size_t)(f.after - f.at));
    }
    if (!st) wire_put_bytes(b, 1, node.p, node.n);
    strbuf_done(&node);
    return st;
}

// Does a node hold graphs or weights? Others are copied as they are.
static bool must_cut(const struct onnx_node *n) {
    for (size_t i = 0; n && i < n->attrs.n; i++)
        if (n->attrs.v[i].graph || (n->attrs.v[i].t && n->attrs.v[i].t->weight)) return true;
    return false;
}

static status_t cut_graph(const struct onnx_model *m, const struct onnx_graph *g,
                          struct strbuf *b) {
    struct wire w = wire_open(m->file, g->bytes);
    struct wire_field f;
    status_t st = ST_OK;
    size_t init = 0, all = 0, node = 0;
    const struct onnx_node **by_index =
        arena_zarray(m->arena, const struct onnx_node *, g->nodes.n + 1);
    for (size_t k = 0; k < g->nodes.n; k++) // back to the file's order
        by_index[g->nodes.v[k].index] = &g->nodes.v[k];
    while (wire_next(&w, &f, &st)) {
        if (f.number == 5 && g->replaced && g->replaced[all++]) continue;
        const struct onnx_tensor *t = f.number == 5 ? &g->inits.v[init++] : NULL;
        const struct onnx_node *n = f.number == 1 ? by_index[node++] : NULL;
        if (t && t->weight)
            put_cut_tensor(b, 5, t);
        else if (must_cut(n))
            st = cut_node(m, n, f.bytes, b);
        else if (f.number != 10 && f.number != 13 && f.number != 14)
            strbuf_add(b, f.at, (size_t)(f.after - f.at)); // without doc, value_info, annotations
    }
    return st;
}
static status_t cut_model(const struct onnx_model *m, struct span source, struct strbuf *b) {
    struct wire w = wire_open(m->file, source);
    struct wire_field f;
    struct strbuf g = {0};
    status_t st = ST_OK;
    while (wire_next(&w, &f, &st))
        if (f.number == 1 || f.number == 8 || f.number == 25) // version, opsets, functions
            strbuf_add(b, f.at, (size_t)(f.after - f.at));
    if (!st) st = cut_graph(m, &m->main, &g);
    if (!st) wire_put_bytes(b, 7, g.p, g.n);
    strbuf_done(&g);
    return st;
}

// ---- digests

static void digest_tensor(struct sha256 *h, const struct onnx_tensor *t) {
    sha256_u64(h, (uint64_t)t->data_type);
    sha256_u64(h, (uint64_t)t->rank);
    sha256_add(h, t->dims, sizeof(int64_t) * (size_t)t->rank);
    sha256_u64(h, (uint64_t)t->weight);
    if (t->weight) return;
    sha256_str(h, (struct str){(const char *)t->raw.p, t->raw.n});
    sha256_str(h, (struct str){(const char *)t->varints.p, t->varints.n});
    sha256_u64(h, t->loose.n);
    sha256_add(h, t->loose.v, t->loose.n * sizeof(uint64_t));
    sha256_u64(h, t->strings.n);
    for (size_t k = 0; k < t->strings.n; k++)
        sha256_str(h, t->strings.v[k]);
}

// Values are numbered as they appear (inputs, initializers, node outputs), so names do not count;
// symbols are numbered by first use. A subgraph's names are numbered on from those around it, and
// end with it: one that hides a name of the graph around it hides it there only.
struct naming {
    struct sha256 h;
    struct smap ids, symbols;
    uintptr_t next;
    VEC(struct renamed {
        struct str name;
        void *before;
    })
    renamed;
};

static void number(struct arena *a, struct naming *d, struct str name) {
    struct renamed r = {name, smap_put(&d->ids, name, (void *)++d->next)};
    avec_push(a, &d->renamed, r);
}
static void digest_elements(struct sha256 *h, const struct onnx_value *v) {
    sha256_u64(h, (uint64_t)v->elem_type);
    sha256_u64(h, (uint64_t)(v->is_sequence + 2 * v->is_optional + 4 * v->is_map));
}
static void digest_type(struct arena *a, struct naming *d, const struct onnx_value *v) {
    digest_elements(&d->h, v);
    sha256_u64(&d->h, v->has_shape);
    sha256_u64(&d->h, (uint64_t)v->rank);
    for (int k = 0; k < v->rank; k++) {
        struct str s = onnx_dim_symbol(a, v, k);
        if (v->dims[k].size < 0 && !smap_has(&d->symbols, s))
            smap_put(&d->symbols, s, (void *)(d->symbols.n + 1));
        sha256_u64(&d->h, v->dims[k].size >= 0 ? (uint64_t)v->dims[k].size
                                               : ~(uint64_t)(uintptr_t)smap_get(&d->symbols, s));
    }
}
static void digest_value(struct arena *a, struct naming *d, const struct onnx_value *v) {
    number(a, d, v->name);
    digest_type(a, d, v);
}

static void digest_graph(struct arena *a, struct naming *d, const struct onnx_graph *g);

// As 32-bit numbers, or 16-bit ones, where all of them fit: lists may be long, mostly of indices.
static void digest_ints(struct sha256 *h, const int64_t *v, size_t n) {
    uint64_t all = 0;
    for (size_t k = 0; k < n; k++)
        all |= (uint64_t)v[k];
    int size = all >> 32 ? 8 : all >> 16 ? 4 : 2;
    sha256_u64(h, n);
    sha256_u64(h, (uint64_t)size);
    if (size == 8) sha256_add(h, v, n * sizeof *v);
    for (size_t from = 0; size < 8 && from < n; from += 512) {
        size_t part = n - from < 512 ? n - from : 512;
        union {
            uint16_t half[512];
            uint32_t word[512];
        } to;
        for (size_t k = 0; k < part && size == 2; k++)
            to.half[k] = (uint16_t)v[from + k];
        for (size_t k = 0; k < part && size == 4; k++)
            to.word[k] = (uint32_t)v[from + k];
        sha256_add(h, &to, part * (size_t)size);
    }
}

static void digest_attr(struct arena *a, struct naming *d, const struct onnx_attr *at) {
    struct sha256 *h = &d->h;
    sha256_str(h, at->name);
    sha256_str(h, at->ref);
    sha256_u64(h, (uint64_t)at->type);
    sha256_add(h, &at->f, sizeof at->f);
    sha256_u64(h, (uint64_t)at->i);
    sha256_str(h, at->s);
    sha256_u64(h, at->floats.n);
    sha256_add(h, at->floats.v, at->floats.n * sizeof(float));
    digest_ints(h, at->ints.v, at->ints.n);
    sha256_u64(h, at->strings.n);
    for (size_t k = 0; k < at->strings.n; k++)
        sha256_str(h, at->strings.v[k]);
    sha256_u64(h, (uint64_t)(at->t != NULL) + 2 * (uint64_t)(at->graph != NULL));
    if (at->t) digest_tensor(h, at->t);
    if (at->sparse) {
        sha256_str(h, STR("sparse"));
        digest_tensor(h, &at->sparse->values);
        digest_tensor(h, &at->sparse->indices);
        digest_tensor(h, &at->sparse->dense);
    }
    if (!at->graph) return;

    size_t outside = d->renamed.n;
    digest_graph(a, d, at->graph);
    // What a branch or body says of its results counts where it is not taken, or has no turn.
    for (size_t k = 0; k < at->graph->outputs.n; k++)
        digest_type(a, d, &at->graph->outputs.v[k]);
    for (; d->renamed.n > outside; d->renamed.n--)
        smap_put(&d->ids, d->renamed.v[d->renamed.n - 1].name,
                 d->renamed.v[d->renamed.n - 1].before);
}

static void digest_nodes(struct arena *a, struct naming *d, const struct onnx_graph *g) {
    struct sha256 *h = &d->h;
    sha256_u64(h, g->nodes.n);
    for (size_t k = 0; k < g->nodes.n; k++) {
        const struct onnx_node *n = &g->nodes.v[k];
        sha256_str(h, n->op);
        sha256_str(h, n->domain);
        if (n->overload.n) sha256_str(h, n->overload);
        sha256_u64(h, n->in.n);
        for (size_t i = 0; i < n->in.n; i++)
            sha256_u64(h, (uint64_t)(uintptr_t)smap_get(&d->ids, n->in.v[i]));
        sha256_u64(h, n->attrs.n);
        for (size_t i = 0; i < n->attrs.n; i++)
            digest_attr(a, d, &n->attrs.v[i]);
        sha256_u64(h, n->out.n);
        for (size_t i = 0; i < n->out.n; i++)
            if (n->out.v[i].n)
                number(a, d, n->out.v[i]);
            else
                ++d->next;
    }
}

static void digest_graph(struct arena *a, struct naming *d, const struct onnx_graph *g) {
    sha256_u64(&d->h, g->inputs.n);
    for (size_t k = 0; k < g->inputs.n; k++)
        digest_value(a, d, &g->inputs.v[k]);
    sha256_u64(&d->h, g->inits.n);
    for (size_t k = 0; k < g->inits.n; k++) {
        number(a, d, g->inits.v[k].name);
        digest_tensor(&d->h, &g->inits.v[k]);
    }
    digest_nodes(a, d, g);
    sha256_u64(&d->h, g->outputs.n);
    for (size_t k = 0; k < g->outputs.n; k++)
        sha256_u64(&d->h, (uint64_t)(uintptr_t)smap_get(&d->ids, g->outputs.v[k].name));
}

// The names of sizes that are open. A key binds by these, so that two models of one graph whose
// names stand in other places must not share a key.
static void digest_symbols(struct arena *a, struct naming *d, const struct onnx_value *v,
                           size_t n) {
    for (size_t k = 0; k < n; k++)
        for (int i = 0; i < v[k].rank; i++)
            if (v[k].dims[i].size < 0) {
                sha256_str(&d->h, STR("symbol"));
                sha256_str(&d->h, onnx_dim_symbol(a, &v[k], i));
            }
}
static struct digest digest_program(struct arena *a, const struct onnx_model *m) {
    struct naming d = {.next = 0};
    sha256_init(&d.h);
    sha256_str(&d.h, STR("hlod.onnx.4"));
    sha256_u64(&d.h, (uint64_t)m->opset);
    digest_graph(a, &d, &m->main);
    digest_symbols(a, &d, m->main.inputs.v, m->main.inputs.n);
    digest_symbols(a, &d, m->main.defaults.v, m->main.defaults.n);
    for (size_t k = 0; k < m->main.outputs.n; k++) // they are checked (onnx_check_declared)
        digest_elements(&d.h, &m->main.outputs.v[k]);
    if (m->main.defaults.n) sha256_str(&d.h, STR("defaults"));
    for (size_t k = 0; k < m->main.defaults.n; k++)
        sha256_u64(&d.h, (uint64_t)(uintptr_t)smap_get(&d.ids, m->main.defaults.v[k].name));
    sha256_u64(&d.h, m->functions.n);
    for (size_t k = 0; k < m->functions.n; k++) {
        const struct onnx_function *f = &m->functions.v[k];
        sha256_str(&d.h, f->domain);
        sha256_str(&d.h, f->name);
        if (f->overload.n) sha256_str(&d.h, f->overload);
        sha256_u64(&d.h, (uint64_t)f->opset);
        sha256_u64(&d.h, f->defaults.n);
        for (size_t i = 0; i < f->defaults.n; i++)
            digest_attr(a, &d, &f->defaults.v[i]);
        digest_graph(a, &d, &f->body);
    }
    smap_done(&d.ids);
    smap_done(&d.symbols);
    return sha256_end(&d.h);
}

// Where the bytes of each weight lie.
static const struct span *weight_spans(struct arena *a, struct span source,
                                       const struct ingest_result *r) {
    struct span *v = arena_array(a, struct span, r->n_weights + 1);
    for (int k = 0; k < r->n_weights; k++) {
        const struct weight *w = &r->weights[k];
        v[k] = (struct span){(w->sidecar ? r->sidecar.p : source.p) + w->offset,
                             (size_t)w->size_bytes};
    }
    return v;
}
static struct span to_arena(struct arena *a, struct strbuf *b) {
    struct span s = {b->n ? arena_dup(a, b->p, b->n) : NULL, b->n};
    strbuf_done(b);
    return s;
}

status_t onnx_ingest(struct arena *a, struct span source, const struct frontend_limits *limits,
                     struct ingest_result *out) {
    struct onnx_model m;
    struct ingest_result r = {.format = "onnx"};
    struct strbuf program = {0}, sidecar = {0};
    struct smap static_names = {0}, otherwise = {0};

    RETURN_IF_ERR(onnx_parse(a, source, limits, &m));
    RETURN_IF_ERR(onnx_check_supported(&m));
    RETURN_IF_ERR(check_inside(&m.main));
    for (size_t k = 0; k < m.functions.n; k++)
        RETURN_IF_ERR(check_inside(&m.functions.v[k].body));
    onnx_static_names(&m, &static_names);
    status_t st = signature_of(a, &m, &static_names, &r.sig);
    struct collector c = {.a = a,
                          .m = &m,
                          .static_names = &static_names,
                          .otherwise = &otherwise,
                          .sidecar = &sidecar};

    struct weight_digests hashing;
    smap_seed_random(&otherwise);
    read_otherwise(&m.main, true, &otherwise);
    for_training(&c, limits);
    if (!st) st = collect_weights(&c, &m.main);
    r.weights = c.all.v;
    r.n_weights = st ? 0 : (int32_t)c.all.n;
    r.sidecar = to_arena(a, &sidecar);
    struct digest *digests = arena_array(a, struct digest, r.n_weights + 1);
    weight_digests_begin(&hashing, weight_spans(a, source, &r), (size_t)r.n_weights, digests);

    if (!st) st = cut_model(&m, source, &program);
    if (!st) r.program_digest = digest_program(a, &m);
    if (!st && limits && limits->max_program_bytes &&
        (int64_t)program.n > limits->max_program_bytes)
        st = st_exhausted("the program without weights has %zu bytes, the limit is %lld", program.n,
                          (long long)limits->max_program_bytes);
    r.program = to_arena(a, &program);
    smap_done(&static_names);
    smap_done(&otherwise);

    if (!st) {
        onnx_info(a, &m, &r.info);
        onnx_usual_sizes(a, limits, &r);
    }
    weight_digests_end(&hashing);

    for (int k = 0; k < r.n_weights; k++)
        r.weights[k].digest = digests[k];
    r.weights_digest = weight_digests_of(r.weights, r.n_weights);
    if (!st) *out = r;
    return st;
}
