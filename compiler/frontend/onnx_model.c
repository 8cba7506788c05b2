// SPDX-License-Identifier: Apache-2.0
// Reads ModelProto into structs. Recursion goes through subgraphs alone and is bounded by a limit
// of depth; memory by a budget of messages, since an empty message costs two bytes in the file and
// a struct here. Order and names are checked in onnx_graph.c.
#include "compiler/frontend/onnx_model.h"

#include "base/map.h"
#include "compiler/frontend/onnx_wire.h"

static struct str text(struct span s) {
    return (struct str){(const char *)s.p, s.n};
}

static status_t charge(struct onnx_model *m, const struct wire *w) {
    if (++m->n_messages <= m->limits.max_nodes * 16) return ST_OK;
    return st_new(ST_RESOURCE_EXHAUSTED,
                  "byte %zu: more than %lld parts (nodes, attributes, tensors)",
                  (size_t)(w->p - w->start), (long long)m->limits.max_nodes * 16);
}

// A text of a list costs its place, sixteen bytes: one for each four bytes of the file is free of
// the budget (a tree ensemble names a mode for each of its nodes).
static status_t charge_text(struct onnx_model *m, const struct wire *w) {
    return ++m->n_texts <= m->file_bytes / 4 ? ST_OK : charge(m, w);
}

static status_t read_pair(struct onnx_model *m, struct span s, struct str *key, struct str *value) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        if (f.number == 1) *key = text(f.bytes);
        if (f.number == 2) *value = text(f.bytes);
    }
}

static status_t read_dims(struct onnx_model *m, const struct wire_field *f, struct onnx_tensor *t) {
    struct wire w = wire_open(m->file, f->bytes);
    for (bool first = true; f->type == WIRE_LEN ? w.p < w.end : first; first = false) {
        uint64_t v = f->value;
        if (f->type == WIRE_LEN) RETURN_IF_ERR(wire_varint(&w, &v));
        if (t->rank == HLO_MAX_RANK)
            return st_new(ST_INVALID_ARGUMENT, "byte %zu: a tensor has more than %d dimensions",
                          (size_t)(f->at - m->file), HLO_MAX_RANK);
        if ((int64_t)v < 0)
            return st_new(ST_INVALID_ARGUMENT, "byte %zu: a tensor has a negative dimension",
                          (size_t)(f->at - m->file));
        t->dims[t->rank++] = (int64_t)v;
    }
    return ST_OK;
}

// TensorProto
static status_t read_tensor(struct onnx_model *m, struct span s, struct onnx_tensor *t) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    *t = (struct onnx_tensor){.rank = 0};
    RETURN_IF_ERR(charge(m, &w));
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        switch (f.number) {
        case 1:
            RETURN_IF_ERR(read_dims(m, &f, t));
            break;
        case 2:
            t->data_type = (int)f.value;
            break;
        case 8:
            t->name = text(f.bytes);
            break;
        case 9:
            t->raw = f.bytes;
            break;
        case 4:  // float_data
        case 10: // double_data
        case 5:  // int32_data
        case 7:  // int64_data
        case 11: // uint64_data
            t->typed_field = (int)f.number;
            if (f.type != WIRE_LEN)
                avec_push(m->arena, &t->loose, f.value);
            else if (f.number == 4 || f.number == 10)
                t->raw = f.bytes;
            else
                t->varints = f.bytes;
            break;
        case 6:
            RETURN_IF_ERR(charge(m, &w));
            avec_push(m->arena, &t->strings, text(f.bytes));
            break;
        case 13: {
            struct str key = {NULL, 0}, value = {NULL, 0};
            RETURN_IF_ERR(read_pair(m, f.bytes, &key, &value));
            if (str_is(key, "location")) t->location = value;
            break;
        }
        case 14:
            t->external = f.value == 1;
            break;
        default:
            break;
        }
    }
    // int32_data holds narrow types too; packed floats count as raw bytes.
    if (t->typed_field == 4 || t->typed_field == 10) t->typed_field = t->raw.n ? 0 : t->typed_field;
    return ST_OK;
}

static status_t read_graph(struct onnx_model *m, struct span s, int depth, struct onnx_graph *g);

// ---- lists of attributes. Trees have millions of numbers, each a field of its own: a run of them
// is read in one loop, into room for as many as the bytes that are left can hold.

static void room(struct arena *a, void **v, size_t n, size_t *cap, size_t more, size_t size) {
    size_t want = more > n ? n + more : 2 * n; // twice at least: lists may come in many parts
    void *p = arena_alloc(a, want * size);
    if (n) memcpy(p, *v, n * size);
    *v = p;
    *cap = want;
}
// How many numbers [p, end) can hold at the most: each ends with a byte below 128.
static size_t count_varints(const uint8_t *p, const uint8_t *end) {
    size_t n = 0;
    for (; p < end; p++)
        n += *p < 0x80;
    return n;
}
static bool is_next(const struct wire *w, int tag) {
    return w->p < w->end && (tag < 0 || *w->p == tag);
}
// Numbers from w->p on, each behind `tag` (-1: they are packed).
static status_t read_ints(struct onnx_model *m, struct wire *w, int tag, struct onnx_attr *at) {
    size_t n = at->ints.n;
    for (; is_next(w, tag); n++) {
        uint64_t u;
        if (n == at->ints.cap)
            room(m->arena, (void **)&at->ints.v, n, &at->ints.cap,
                 count_varints(w->p, w->end) / (tag < 0 ? 1 : 2) + 1, sizeof *at->ints.v);
        w->p += tag >= 0;
        if (w->p < w->end && *w->p < 0x80)
            u = *w->p++;
        else
            RETURN_IF_ERR(wire_varint(w, &u));
        at->ints.v[n] = (int64_t)u;
    }
    at->ints.n = n;
    return ST_OK;
}
// The same of four bytes each; what does not make one is left.
static void read_floats(struct onnx_model *m, struct wire *w, int tag, struct onnx_attr *at) {
    size_t each = tag < 0 ? 4 : 5, n = at->floats.n;
    for (; (size_t)(w->end - w->p) >= each && is_next(w, tag); n++, w->p += each) {
        if (n == at->floats.cap)
            room(m->arena, (void **)&at->floats.v, n, &at->floats.cap,
                 (size_t)(w->end - w->p) / each, sizeof *at->floats.v);
        memcpy(&at->floats.v[n], w->p + each - 4, 4);
    }
    at->floats.n = n;
}

static status_t read_attr(struct onnx_model *m, struct span s, int depth, struct onnx_attr *at) {
    struct wire w = wire_open(m->file, s), packed;
    struct wire_field f;
    bool got;
    *at = (struct onnx_attr){.type = 0};
    RETURN_IF_ERR(charge(m, &w));
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        float v;
        memcpy(&v, &f.value, sizeof v);
        switch (f.number) {
        case 1:
            at->name = text(f.bytes);
            break;
        case 2:
            at->f = v;
            break;
        case 3:
            at->i = (int64_t)f.value;
            break;
        case 4:
            at->s = text(f.bytes);
            break;
        case 5:
            at->t = arena_new_of(m->arena, struct onnx_tensor);
            RETURN_IF_ERR(read_tensor(m, f.bytes, at->t));
            break;
        case 6:
            if (depth >= m->limits.max_depth)
                return st_new(ST_RESOURCE_EXHAUSTED,
                              "byte %zu: subgraphs are nested deeper than %d",
                              (size_t)(f.at - m->file), m->limits.max_depth);
            at->graph = arena_new_of(m->arena, struct onnx_graph);
            RETURN_IF_ERR(read_graph(m, f.bytes, depth + 1, at->graph));
            break;
        case 7:
            packed = wire_open(m->file, f.bytes);
            if (f.type == WIRE_LEN) read_floats(m, &packed, -1, at);
            if (f.type == WIRE_I32) avec_push(m->arena, &at->floats, v);
            if (f.type == WIRE_I32) read_floats(m, &w, 7 << 3 | WIRE_I32, at);
            break;
        case 8:
            packed = wire_open(m->file, f.bytes);
            if (f.type == WIRE_LEN) RETURN_IF_ERR(read_ints(m, &packed, -1, at));
            if (f.type == WIRE_VARINT) avec_push(m->arena, &at->ints, (int64_t)f.value);
            if (f.type == WIRE_VARINT)
                RETURN_IF_ERR(read_ints(m, &w, 8 << 3 | WIRE_VARINT, at));
            break;
        case 9:
            RETURN_IF_ERR(charge_text(m, &w));
            avec_push(m->arena, &at->strings, text(f.bytes));
            break;
        case 20:
            at->type = (int)f.value;
            break;
        case 21:
            at->ref = text(f.bytes);
            break;
        default:
            break;
        }
    }
}

static status_t read_node(struct onnx_model *m, struct span s, int depth, int index,
                          struct onnx_node *n) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    *n = (struct onnx_node){.index = index};
    RETURN_IF_ERR(charge(m, &w));
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        struct onnx_attr a;
        switch (f.number) {
        case 1:
            RETURN_IF_ERR(charge(m, &w));
            avec_push(m->arena, &n->in, text(f.bytes));
            break;
        case 2:
            RETURN_IF_ERR(charge(m, &w));
            avec_push(m->arena, &n->out, text(f.bytes));
            break;
        case 3:
            n->name = text(f.bytes);
            break;
        case 4:
            n->op = text(f.bytes);
            break;
        case 5:
            RETURN_IF_ERR(read_attr(m, f.bytes, depth, &a));
            avec_push(m->arena, &n->attrs, a);
            break;
        case 7:
            n->domain = text(f.bytes);
            break;
        default:
            break;
        }
    }
    if (str_is(n->domain, "ai.onnx")) n->domain.n = 0;
    return ST_OK;
}

static status_t read_dim(struct onnx_model *m, struct span s, struct onnx_dim *d) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    *d = (struct onnx_dim){.size = -1};
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        if (f.number == 1) {
            d->size = (int64_t)f.value;
            if (d->size < 0) d->size = -1;
        }
        if (f.number == 2) d->symbol = text(f.bytes);
    }
}

// The last LEN field `number` of s; a null span when there is none.
static status_t read_field(struct onnx_model *m, struct span s, uint32_t number, struct span *out,
                           bool *there) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    *out = (struct span){0};
    *there = false;
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        if (f.number == number && f.type == WIRE_LEN) *out = f.bytes, *there = true;
    }
}

// ValueInfoProto { name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 } }, sequence_type
// 4 { elem_type 1: a type }, map_type 5 { value_type 2: a type }, optional_type 9 { elem_type 1: a
// type } } }. Of a sequence, optional or map the tensors' type is kept.
static status_t read_value(struct onnx_model *m, struct span s, struct onnx_value *v) {
    struct wire_field f;
    bool got;
    struct span type = {0}, tensor = {0}, shape = {0}, wrapped;
    *v = (struct onnx_value){.rank = 0};
    struct wire w = wire_open(m->file, s);
    RETURN_IF_ERR(charge(m, &w));
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        if (f.number == 1) v->name = text(f.bytes);
        if (f.number == 2) type = f.bytes;
    }
    for (int level = 0; level < 3; level++) { // optional of sequence of tensor, at most
        RETURN_IF_ERR(read_field(m, type, 9, &wrapped, &got));
        if (got && level == 0) v->is_optional = true;
        if (!got) {
            RETURN_IF_ERR(read_field(m, type, 4, &wrapped, &got));
            if (got) v->is_sequence = true;
        }
        if (!got) break;
        RETURN_IF_ERR(read_field(m, wrapped, 1, &type, &got));
    }
    RETURN_IF_ERR(read_field(m, type, 5, &wrapped, &v->is_map));
    if (v->is_map) { // ZipMap's result, which is a tensor here (onnx_ml.c)
        RETURN_IF_ERR(read_field(m, wrapped, 2, &type, &got));
        v->is_sequence = v->is_optional = false;
    }
    RETURN_IF_ERR(read_field(m, type, 1, &tensor, &v->is_tensor));
    for (w = wire_open(m->file, tensor);;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        if (f.number == 1) v->elem_type = (int)f.value;
        if (f.number == 2) shape = f.bytes, v->has_shape = true;
    }
    if (v->is_sequence) v->is_tensor = false;
    for (w = wire_open(m->file, shape);;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        if (f.number != 1) continue;
        if (v->rank == HLO_MAX_RANK)
            return st_new(ST_INVALID_ARGUMENT, "value '" STR_FMT "' has more than %d dimensions",
                          STR_ARG(v->name), HLO_MAX_RANK);
        RETURN_IF_ERR(read_dim(m, f.bytes, &v->dims[v->rank++]));
    }
}

static status_t read_graph(struct onnx_model *m, struct span s, int depth, struct onnx_graph *g) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    VEC(struct onnx_value) inputs = {0};
    struct smap weights = {0};
    status_t st = ST_OK;
    *g = (struct onnx_graph){.bytes = s};
    for (;;) {
        GOTO_IF_ERR(out, wire_next(&w, &f, &got));
        if (!got) break;
        struct onnx_node n;
        struct onnx_tensor t;
        struct onnx_value v;
        switch (f.number) {
        case 1:
            GOTO_IF_ERR(out, st_note(read_node(m, f.bytes, depth, (int)g->nodes.n, &n), "node #%zu",
                                     g->nodes.n));
            avec_push(m->arena, &g->nodes, n);
            break;
        case 5:
            GOTO_IF_ERR(out, st_note(read_tensor(m, f.bytes, &t), "initializer #%zu", g->inits.n));
            if (smap_has(&weights, t.name)) {
                st = st_new(ST_INVALID_ARGUMENT, "initializer '" STR_FMT "' is there twice",
                            STR_ARG(t.name));
                goto out;
            }
            smap_put(&weights, t.name, NULL);
            avec_push(m->arena, &g->inits, t);
            break;
        case 11:
        case 12:
            GOTO_IF_ERR(out, read_value(m, f.bytes, &v));
            if (f.number == 11)
                avec_push(m->arena, &inputs, v);
            else
                avec_push(m->arena, &g->outputs, v);
            break;
        case 15:
            st = st_new(ST_INVALID_ARGUMENT, "byte %zu: sparse initializers are not supported",
                        (size_t)(f.at - m->file));
            goto out;
        default:
            break;
        }
    }
    for (size_t k = 0; k < inputs.n;
         k++) // before IR version 4, initializers are listed as inputs too
        if (!smap_has(&weights, inputs.v[k].name)) avec_push(m->arena, &g->inputs, inputs.v[k]);
out:
    smap_done(&weights);
    return st;
}

static status_t read_opset(struct onnx_model *m, struct span s, int64_t *opset, struct opset *out) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    struct str domain = {NULL, 0};
    int64_t version = 0;
    for (;;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        if (f.number == 1) domain = text(f.bytes);
        if (f.number == 2) version = (int64_t)f.value;
    }
    if (domain.n == 0 || str_is(domain, "ai.onnx")) *opset = version;
    if (out) *out = (struct opset){arena_strndup(m->arena, domain.p, domain.n), version};
    return ST_OK;
}

// FunctionProto
static status_t read_function(struct onnx_model *m, struct span s, struct onnx_function *out) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    *out = (struct onnx_function){.opset = m->opset, .body = {.bytes = s}};
    RETURN_IF_ERR(charge(m, &w));
    for (;;) {
        struct onnx_node n;
        struct onnx_attr a;
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        switch (f.number) {
        case 1:
            out->name = text(f.bytes);
            break;
        case 4:
            RETURN_IF_ERR(charge(m, &w));
            avec_push(m->arena, &out->inputs, text(f.bytes));
            break;
        case 5:
            RETURN_IF_ERR(charge(m, &w));
            avec_push(m->arena, &out->outputs, text(f.bytes));
            break;
        case 7:
            RETURN_IF_ERR(st_note(read_node(m, f.bytes, 1, (int)out->body.nodes.n, &n), "node #%zu",
                                  out->body.nodes.n));
            avec_push(m->arena, &out->body.nodes, n);
            break;
        case 9:
            RETURN_IF_ERR(read_opset(m, f.bytes, &out->opset, NULL));
            break;
        case 10:
            out->domain = text(f.bytes);
            break;
        case 11:
            RETURN_IF_ERR(read_attr(m, f.bytes, 1, &a));
            avec_push(m->arena, &out->defaults, a);
            break;
        default:
            break;
        }
    }
    // The body is a graph whose inputs and outputs are those of the function.
    for (size_t k = 0; k < out->inputs.n; k++) {
        struct onnx_value v = {.name = out->inputs.v[k]};
        avec_push(m->arena, &out->body.inputs, v);
    }
    for (size_t k = 0; k < out->outputs.n; k++) {
        struct onnx_value v = {.name = out->outputs.v[k]};
        avec_push(m->arena, &out->body.outputs, v);
    }
    return ST_OK;
}

status_t onnx_parse(struct arena *a, struct span source, const struct frontend_limits *limits,
                    struct onnx_model *out) {
    struct onnx_model m = {.arena = a, .file = source.p, .file_bytes = (int64_t)source.n};
    struct wire w = wire_open(source.p, source);
    struct wire_field f;
    struct span graph = {0};
    bool got, there = false;
    if (limits) m.limits = *limits;
    if (!m.limits.max_nodes) m.limits.max_nodes = 200000;
    if (!m.limits.max_depth) m.limits.max_depth = 100;
    if (!m.limits.max_tensor_bytes) m.limits.max_tensor_bytes = INT64_C(64) << 30;
    for (;;) {
        RETURN_IF_ERR(st_note(wire_next(&w, &f, &got), "ModelProto"));
        if (!got) break;
        if (f.number == 1) m.ir_version = (int64_t)f.value;
        if (f.number == 7 && f.type == WIRE_LEN) graph = f.bytes, there = true;
        if (f.number == 2 && f.type == WIRE_LEN) m.producer = text(f.bytes);
        if (f.number == 3 && f.type == WIRE_LEN) m.producer_version = text(f.bytes);
        if (f.number == 8 && f.type == WIRE_LEN) {
            struct opset o;
            RETURN_IF_ERR(st_note(read_opset(&m, f.bytes, &m.opset, &o), "opset_import"));
            if (m.opsets.n < 64) avec_push(a, &m.opsets, o);
        }
    }
    if (!there) return st_new(ST_INVALID_ARGUMENT, "not an ONNX model: there is no graph");
    if (m.opset == 0) m.opset = 1;
    RETURN_IF_ERR(st_note(read_graph(&m, graph, 0, &m.main), "graph"));
    if (m.main.outputs.n == 0) return st_new(ST_INVALID_ARGUMENT, "the graph has no outputs");
    for (w = wire_open(source.p, source);;) {
        struct onnx_function fn;
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) break;
        if (f.number != 25 || f.type != WIRE_LEN) continue;
        RETURN_IF_ERR(st_note(read_function(&m, f.bytes, &fn), "function #%zu", m.functions.n));
        RETURN_IF_ERR(
            st_note(onnx_graph_resolve(&m, &fn.body), "function '" STR_FMT "'", STR_ARG(fn.name)));
        avec_push(a, &m.functions, fn);
    }
    RETURN_IF_ERR(onnx_graph_resolve(&m, &m.main));
    *out = m;
    return ST_OK;
}

const struct onnx_function *onnx_function_find(const struct onnx_model *m, struct str domain,
                                               struct str name) {
    for (size_t k = 0; k < m->functions.n; k++)
        if (str_eq(m->functions.v[k].name, name) && str_eq(m->functions.v[k].domain, domain))
            return &m->functions.v[k];
    return NULL;
}

const char *onnx_node_name(struct arena *a, const struct onnx_node *n) {
    if (n->name.n)
        return arena_printf(a, "'" STR_FMT "' (" STR_FMT ")", STR_ARG(n->name), STR_ARG(n->op));
    return arena_printf(a, "#%d (" STR_FMT ")", n->index, STR_ARG(n->op));
}
const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name) {
    for (size_t k = 0; k < n->attrs.n; k++)
        if (str_is(n->attrs.v[k].name, name)) return &n->attrs.v[k];
    return NULL;
}

enum dtype onnx_dtype_of(const struct onnx_value *v) {
    return v->elem_type == ONNX_STRING ? DT_S32 : dtype_from_onnx(v->elem_type);
}

status_t onnx_tensor_shape(struct arena *a, const struct onnx_tensor *t, const struct shape **out) {
    enum dtype d = dtype_from_onnx(t->data_type);
    if (d == DT_INVALID)
        return st_new(ST_INVALID_ARGUMENT,
                      "tensor '" STR_FMT "' has element type %d, which is not supported",
                      STR_ARG(t->name), t->data_type);
    const struct shape *s = shape_make(a, d, t->dims, t->rank);
    RETURN_IF_ERR(st_note(shape_check(s, 0), "tensor '" STR_FMT "'", STR_ARG(t->name)));
    *out = s;
    return ST_OK;
}

bool onnx_packed(enum dtype t) {
    return t != DT_PRED && dtype_bits(t) < 8;
}
// Elements of 2 or 4 bits, the first in the lowest of a byte; typed data has a byte an integer.
static status_t packed_literal(struct arena *a, const struct onnx_tensor *t, const struct shape *s,
                               struct literal **out) {
    int64_t n = shape_elements(s);
    int bits = dtype_bits(s->dtype), per = 8 / bits;
    size_t want = (size_t)(n + per - 1) / (size_t)per;
    const uint8_t *bytes = t->raw.p;
    if (t->typed_field) { // at least one byte an integer in the file, so the file bounds the memory
        if (want > t->varints.n + t->loose.n)
            return st_new(ST_INVALID_ARGUMENT,
                          "tensor '" STR_FMT "': the data is shorter than its shape",
                          STR_ARG(t->name));
        uint8_t *own = arena_alloc(a, want + 1);
        struct wire w = wire_open(t->varints.p, t->varints);
        for (size_t k = 0; k < want; k++) {
            uint64_t v = k < t->loose.n ? t->loose.v[k] : 0;
            if (k >= t->loose.n)
                RETURN_IF_ERR(
                    st_note(wire_varint(&w, &v), "tensor '" STR_FMT "'", STR_ARG(t->name)));
            own[k] = (uint8_t)v;
        }
        bytes = own;
    } else if (t->raw.n != want) {
        return st_new(ST_INVALID_ARGUMENT,
                      "tensor '" STR_FMT "': %zu bytes of data, its shape needs %zu",
                      STR_ARG(t->name), t->raw.n, want);
    }
    *out = lit_new(a, s);
    for (int64_t k = 0; k < n; k++) {
        int v = bytes[k / per] >> (k % per * bits) & ((1 << bits) - 1);
        if (dtype_is_float(s->dtype))
            ((uint8_t *)(*out)->data)[k] = (uint8_t)v;
        else
            lit_set_i64(*out, k, v);
    }
    return ST_OK;
}

status_t onnx_tensor_literal(struct arena *a, const struct onnx_tensor *t, struct literal **out) {
    const struct shape *s;
    RETURN_IF_ERR(onnx_tensor_shape(a, t, &s));
    int64_t n = shape_elements(s);
    size_t bytes = (size_t)(n * dtype_size(s->dtype));
    if (t->external)
        return st_new(ST_INVALID_ARGUMENT,
                      "tensor '" STR_FMT "' keeps its data in another file ('" STR_FMT
                      "'): send a model with its weights inside",
                      STR_ARG(t->name), STR_ARG(t->location));
    if (onnx_packed(s->dtype)) return packed_literal(a, t, s, out);
    if (t->typed_field == 0) {
        if (t->raw.n != bytes)
            return st_new(ST_INVALID_ARGUMENT,
                          "tensor '" STR_FMT "': %zu bytes of data, its shape needs %zu",
                          STR_ARG(t->name), t->raw.n, bytes);
        *out = lit_borrow(a, s, t->raw.p);
        return ST_OK;
    }
    if (dtype_size(s->dtype) > 8)
        return st_new(ST_INVALID_ARGUMENT,
                      "tensor '" STR_FMT "': typed data of %s is not supported, raw data is",
                      STR_ARG(t->name), dtype_name(s->dtype));
    // Typed data: at least one byte an element in the file, so the file bounds the memory.
    if (n > (int64_t)(t->varints.n + t->loose.n))
        return st_new(ST_INVALID_ARGUMENT,
                      "tensor '" STR_FMT "': the data is shorter than its shape", STR_ARG(t->name));
    struct literal *l = lit_new(a, s);
    struct wire w = wire_open(t->varints.p, t->varints);
    int size = dtype_size(s->dtype);
    for (int64_t k = 0; k < n; k++) {
        uint64_t v;
        if ((size_t)k < t->loose.n)
            v = t->loose.v[k];
        else
            RETURN_IF_ERR(st_note(wire_varint(&w, &v), "tensor '" STR_FMT "'", STR_ARG(t->name)));
        if (s->dtype == DT_PRED)
            lit_set_i64(l, k,
                        (int64_t)v); // otherwise the low bytes are the element, floats as bits too
        else
            memcpy((char *)l->data + k * size, &v, (size_t)size);
    }
    *out = l;
    return ST_OK;
}
