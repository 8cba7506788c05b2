// SPDX-License-Identifier: Apache-2.0
// Reads ModelProto into structs. Depth is bounded because attributes' subgraphs are kept as spans
// and opened only by those who need them; memory by a budget of messages, since an empty message
// costs two bytes in the file and a struct here.
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
            return st_new(ST_INVALID_ARGUMENT, "byte %zu: string tensors are not supported",
                          (size_t)(f.at - m->file));
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

static status_t read_attr(struct onnx_model *m, struct span s, struct onnx_attr *at) {
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
            at->graph = f.bytes;
            break;
        case 7:
            if (f.type == WIRE_I32) avec_push(m->arena, &at->floats, v);
            for (size_t k = 0; f.type == WIRE_LEN && k + 4 <= f.bytes.n; k += 4) {
                memcpy(&v, f.bytes.p + k, 4);
                avec_push(m->arena, &at->floats, v);
            }
            break;
        case 8:
            if (f.type == WIRE_VARINT) avec_push(m->arena, &at->ints, (int64_t)f.value);
            packed = wire_open(m->file, f.bytes);
            while (f.type == WIRE_LEN && packed.p < packed.end) {
                uint64_t u;
                RETURN_IF_ERR(wire_varint(&packed, &u));
                avec_push(m->arena, &at->ints, (int64_t)u);
            }
            break;
        case 20:
            at->type = (int)f.value;
            break;
        default:
            break;
        }
    }
}

static status_t read_node(struct onnx_model *m, struct span s, struct onnx_node *n) {
    struct wire w = wire_open(m->file, s);
    struct wire_field f;
    bool got;
    *n = (struct onnx_node){.index = (int)m->nodes.n};
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
            RETURN_IF_ERR(read_attr(m, f.bytes, &a));
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

// ValueInfoProto { name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 } } } }
static status_t read_value(struct onnx_model *m, struct span s, struct onnx_value *v) {
    struct wire_field name, type, tensor, elem, f;
    bool got;
    *v = (struct onnx_value){.rank = 0};
    struct wire w = wire_open(m->file, s);
    RETURN_IF_ERR(charge(m, &w));
    RETURN_IF_ERR(wire_find(m->file, s, 1, &name, &got));
    if (got) v->name = text(name.bytes);
    RETURN_IF_ERR(wire_find(m->file, s, 2, &type, &got));
    if (!got) return ST_OK;
    RETURN_IF_ERR(wire_find(m->file, type.bytes, 1, &tensor, &v->is_tensor));
    if (!v->is_tensor) return ST_OK;
    RETURN_IF_ERR(wire_find(m->file, tensor.bytes, 1, &elem, &got));
    if (got) v->elem_type = (int)elem.value;
    RETURN_IF_ERR(wire_find(m->file, tensor.bytes, 2, &f, &v->has_shape));
    if (!v->has_shape) return ST_OK;
    for (w = wire_open(m->file, f.bytes);;) {
        RETURN_IF_ERR(wire_next(&w, &f, &got));
        if (!got) return ST_OK;
        if (f.number != 1) continue;
        if (v->rank == HLO_MAX_RANK)
            return st_new(ST_INVALID_ARGUMENT, "value '" STR_FMT "' has more than %d dimensions",
                          STR_ARG(v->name), HLO_MAX_RANK);
        RETURN_IF_ERR(read_dim(m, f.bytes, &v->dims[v->rank++]));
    }
}

static status_t read_graph(struct onnx_model *m) {
    struct wire w = wire_open(m->file, m->graph);
    struct wire_field f;
    bool got;
    VEC(struct onnx_value) inputs = {0};
    struct smap weights = {0};
    status_t st = ST_OK;
    for (;;) {
        GOTO_IF_ERR(out, wire_next(&w, &f, &got));
        if (!got) break;
        struct onnx_node n;
        struct onnx_tensor t;
        struct onnx_value v;
        switch (f.number) {
        case 1:
            GOTO_IF_ERR(out, st_note(read_node(m, f.bytes, &n), "node #%zu", m->nodes.n));
            avec_push(m->arena, &m->nodes, n);
            break;
        case 5:
            GOTO_IF_ERR(out, st_note(read_tensor(m, f.bytes, &t), "initializer #%zu", m->inits.n));
            if (smap_has(&weights, t.name)) {
                st = st_new(ST_INVALID_ARGUMENT, "initializer '" STR_FMT "' is there twice",
                            STR_ARG(t.name));
                goto out;
            }
            smap_put(&weights, t.name, NULL);
            avec_push(m->arena, &m->inits, t);
            break;
        case 11:
        case 12:
            GOTO_IF_ERR(out, read_value(m, f.bytes, &v));
            if (f.number == 11)
                avec_push(m->arena, &inputs, v);
            else
                avec_push(m->arena, &m->outputs, v);
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
        if (!smap_has(&weights, inputs.v[k].name)) avec_push(m->arena, &m->inputs, inputs.v[k]);
out:
    smap_done(&weights);
    return st;
}

// Producers before users (Kahn's algorithm); names are checked on the way.
static status_t sort_nodes(struct onnx_model *m) {
    struct smap from = {0}; // value -> producer + 1; inputs and initializers -> 0
    size_t n = m->nodes.n, done = 0;
    int *state = arena_zarray(m->arena, int, n + 1);
    status_t st = ST_OK;
    VEC(size_t) stack = {0};
    VEC(struct onnx_node) sorted = {0};
    for (size_t k = 0; k < m->inputs.n; k++)
        smap_put(&from, m->inputs.v[k].name, NULL);
    for (size_t k = 0; k < m->inits.n; k++)
        smap_put(&from, m->inits.v[k].name, NULL);
    for (size_t k = 0; k < n && !st; k++)
        for (size_t o = 0; o < m->nodes.v[k].out.n && !st; o++) {
            struct str name = m->nodes.v[k].out.v[o];
            if (!name.n) continue;
            if (smap_has(&from, name))
                st = st_new(ST_INVALID_ARGUMENT, "node %s: value '" STR_FMT "' is defined twice",
                            onnx_node_name(m->arena, &m->nodes.v[k]), STR_ARG(name));
            smap_put(&from, name, (void *)(k + 1));
        }
    for (size_t first = 0; first < n && !st; first++) {
        if (!state[first]) vec_push(&stack, first);
        while (stack.n && !st) {
            size_t k = stack.v[stack.n - 1];
            const struct onnx_node *node = &m->nodes.v[k];
            if (state[k]) {
                (void)vec_pop(&stack);
                if (state[k] == 1) avec_push(m->arena, &sorted, *node), done++;
                state[k] = 2;
                continue;
            }
            state[k] = 1;
            for (size_t i = node->in.n; i-- > 0 && !st;) {
                size_t p = (size_t)smap_get(&from, node->in.v[i]);
                if (node->in.v[i].n && !smap_has(&from, node->in.v[i]))
                    st = st_new(ST_INVALID_ARGUMENT,
                                "node %s: input '" STR_FMT "' is not defined anywhere",
                                onnx_node_name(m->arena, node), STR_ARG(node->in.v[i]));
                else if (p && state[p - 1] == 1)
                    st = st_new(ST_INVALID_ARGUMENT,
                                "node %s: the graph has a cycle through value '" STR_FMT "'",
                                onnx_node_name(m->arena, node), STR_ARG(node->in.v[i]));
                else if (p && state[p - 1] == 0)
                    vec_push(&stack, p - 1);
            }
        }
    }
    if (!st) memcpy(&m->nodes, &sorted, sizeof sorted);
    vec_done(&stack);
    smap_done(&from);
    return st;
}

static status_t read_opset(struct onnx_model *m, struct span s) {
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
    if (domain.n == 0 || str_is(domain, "ai.onnx")) m->opset = version;
    return ST_OK;
}

status_t onnx_parse(struct arena *a, struct span source, const struct frontend_limits *limits,
                    struct onnx_model *out) {
    struct onnx_model m = {.arena = a, .file = source.p};
    struct wire w = wire_open(source.p, source);
    struct wire_field f;
    bool got, graph = false;
    if (limits) m.limits = *limits;
    if (!m.limits.max_nodes) m.limits.max_nodes = 200000;
    if (!m.limits.max_tensor_bytes) m.limits.max_tensor_bytes = INT64_C(64) << 30;
    for (;;) {
        RETURN_IF_ERR(st_note(wire_next(&w, &f, &got), "ModelProto"));
        if (!got) break;
        if (f.number == 1) m.ir_version = (int64_t)f.value;
        if (f.number == 7 && f.type == WIRE_LEN) m.graph = f.bytes, graph = true;
        if (f.number == 8 && f.type == WIRE_LEN)
            RETURN_IF_ERR(st_note(read_opset(&m, f.bytes), "opset_import"));
    }
    if (!graph) return st_new(ST_INVALID_ARGUMENT, "not an ONNX model: there is no graph");
    if (m.opset == 0) m.opset = 1;
    RETURN_IF_ERR(st_note(read_graph(&m), "graph"));
    if (m.outputs.n == 0) return st_new(ST_INVALID_ARGUMENT, "the graph has no outputs");
    RETURN_IF_ERR(sort_nodes(&m));
    *out = m;
    return ST_OK;
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

status_t onnx_tensor_literal(struct arena *a, const struct onnx_tensor *t, struct literal **out) {
    const struct shape *s;
    RETURN_IF_ERR(onnx_tensor_shape(a, t, &s));
    int64_t n = shape_elements(s);
    size_t bytes = (size_t)(n * dtype_size(s->dtype));
    bool nibbles = s->dtype == DT_S4 || s->dtype == DT_U4;
    if (t->external)
        return st_new(ST_INVALID_ARGUMENT,
                      "tensor '" STR_FMT "' keeps its data in another file ('" STR_FMT
                      "'): send a model with its weights inside",
                      STR_ARG(t->name), STR_ARG(t->location));
    if (t->typed_field == 0) {
        size_t want = nibbles ? (size_t)(n + 1) / 2 : bytes;
        if (t->raw.n != want)
            return st_new(ST_INVALID_ARGUMENT,
                          "tensor '" STR_FMT "': %zu bytes of data, its shape needs %zu",
                          STR_ARG(t->name), t->raw.n, want);
        if (!nibbles) {
            *out = lit_borrow(a, s, t->raw.p);
            return ST_OK;
        }
        struct literal *l = lit_new(a, s);
        for (int64_t k = 0; k < n; k++)
            lit_set_i64(l, k, t->raw.p[k / 2] >> (k % 2 * 4) & 15);
        *out = l;
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
