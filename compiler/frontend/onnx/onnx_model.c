// SPDX-License-Identifier: Apache-2.0
// Reads ModelProto into structs. Recursion goes through subgraphs alone and is bounded by a limit
// of depth; memory by a budget of messages, since an empty message costs two bytes in the file and
// a struct here. Order and names are checked in onnx_graph.c.
#include "compiler/frontend/onnx/onnx_model.h"

#include "base/map.h"
#include "compiler/frontend/wire.h"

static struct str text(struct span s) {
    return (struct str){(const char *)s.p, s.n};
}

static status_t charge(struct onnx_model *m, const struct wire *w) {
    if (++m->n_messages <= m->limits.max_nodes * 16) return ST_OK;
    return st_exhausted("byte %zu: more than %lld parts (nodes, attributes, tensors)",
                        (size_t)(w->p - w->start), (long long)m->limits.max_nodes * 16);
}

// A text of a list costs its place, sixteen bytes: one for each four bytes of the file is free of
// the budget (a tree ensemble names a mode for each of its nodes).
static status_t charge_text(struct onnx_model *m, const struct wire *w) {
    return ++m->n_texts <= m->file_bytes / 4 ? ST_OK : charge(m, w);
}

// ---- messages as tables

// Where a reader stands: `wire` is that of the innermost message, `depth` counts subgraphs.
struct reading {
    struct onnx_model *m;
    struct wire *wire;
    int depth;
};
// What becomes of a field: its value goes to `at` in the message's struct, or `read` takes it.
enum take {
    TAKE_NOTHING,
    TAKE_TEXT,
    TAKE_TEXTS,
    TAKE_BYTES,
    TAKE_INT,
    TAKE_I64,
    TAKE_F32,
    TAKE_READ
};
struct field_row {
    enum take take;
    uint16_t at;
    status_t (*read)(struct reading *r, const struct wire_field *f, void *into);
};
// A message: its rows by field number. Numbers without a row are skipped, as protobuf has it.
struct message {
    uint32_t n;
    const struct field_row *rows;
};
#define MESSAGE(name, ...)                                                                         \
    static const struct field_row name##_rows[] = {__VA_ARGS__};                                   \
    static const struct message name = {sizeof name##_rows / sizeof *name##_rows, name##_rows}
#define FIELD(kind, type, member) {TAKE_##kind, offsetof(type, member), NULL}
#define READ(function)            {TAKE_READ, 0, function}

static status_t take_field(struct reading *r, const struct field_row *row,
                           const struct wire_field *f, void *into) {
    void *at = (char *)into + row->at;
    switch (row->take) {
    case TAKE_NOTHING:
        break;
    case TAKE_TEXT:
        *(struct str *)at = text(f->bytes);
        break;
    case TAKE_TEXTS:
        RETURN_IF_ERR(charge_text(r->m, r->wire));
        avec_push(r->m->arena, (onnx_texts *)at, text(f->bytes));
        break;
    case TAKE_BYTES:
        *(struct span *)at = f->bytes;
        break;
    case TAKE_INT:
        *(int *)at = (int)f->value;
        break;
    case TAKE_I64:
        *(int64_t *)at = (int64_t)f->value;
        break;
    case TAKE_F32:
        memcpy(at, &f->value, sizeof(float));
        break;
    case TAKE_READ:
        return row->read(r, f, into);
    }
    return ST_OK;
}

// Reads message s of kind `of` into a struct that the caller has set to its defaults.
static status_t read_message(struct reading *r, struct span s, const struct message *of,
                             void *into) {
    struct wire w = wire_open(r->m->file, s), *outer = r->wire;
    struct wire_field f;
    status_t st = ST_OK;
    r->wire = &w;
    while (wire_next(&w, &f, &st))
        if (f.number < of->n) st = take_field(r, &of->rows[f.number], &f, into);
    r->wire = outer;
    return st;
}
static status_t too_deep(const struct reading *r, const struct wire_field *f) {
    return st_exhausted("byte %zu: subgraphs are nested deeper than %d",
                        (size_t)(f->at - r->m->file), r->m->limits.max_depth);
}

// ---- TensorProto

static status_t read_dims(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_tensor *t = into;
    struct wire w = wire_open(r->m->file, f->bytes);
    for (bool first = true; f->type == WIRE_LEN ? w.p < w.end : first; first = false) {
        uint64_t v = f->value;
        if (f->type == WIRE_LEN) RETURN_IF_ERR(wire_varint(&w, &v));
        if (t->rank == HLO_MAX_RANK)
            return st_invalid("byte %zu: a tensor has more than %d dimensions",
                              (size_t)(f->at - r->m->file), HLO_MAX_RANK);
        if ((int64_t)v < 0)
            return st_invalid("byte %zu: a tensor has a negative dimension",
                              (size_t)(f->at - r->m->file));
        t->dims[t->rank++] = (int64_t)v;
    }
    return ST_OK;
}
// float_data 4, int32_data 5, int64_data 7, double_data 10, uint64_data 11
static status_t read_data(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_tensor *t = into;
    t->typed_field = (int)f->number;
    if (f->type != WIRE_LEN)
        avec_push(r->m->arena, &t->loose, f->value);
    else if (f->number == 4 || f->number == 10)
        t->raw = f->bytes;
    else
        t->varints = f->bytes;
    return ST_OK;
}
struct pair {
    struct str key, value;
};
MESSAGE(string_entry, [1] = FIELD(TEXT, struct pair, key), [2] = FIELD(TEXT, struct pair, value));
static status_t read_external(struct reading *r, const struct wire_field *f, void *into) {
    struct pair p = {0};
    RETURN_IF_ERR(read_message(r, f->bytes, &string_entry, &p));
    if (str_is(p.key, "location")) ((struct onnx_tensor *)into)->location = p.value;
    return ST_OK;
}
static status_t read_data_location(UNUSED struct reading *r, const struct wire_field *f,
                                   void *into) {
    ((struct onnx_tensor *)into)->external = f->value == 1;
    return ST_OK;
}
MESSAGE(
    tensor_proto, [1] = READ(read_dims), [2] = FIELD(INT, struct onnx_tensor, data_type),
    [4] = READ(read_data), [5] = READ(read_data), [6] = FIELD(TEXTS, struct onnx_tensor, strings),
    [7] = READ(read_data), [8] = FIELD(TEXT, struct onnx_tensor, name),
    [9] = FIELD(BYTES, struct onnx_tensor, raw), [10] = READ(read_data), [11] = READ(read_data),
    [13] = READ(read_external), [14] = READ(read_data_location));
// Each element type has one field for its numbers; another's would be read as other numbers.
static status_t check_field(const struct onnx_tensor *t) {
    enum { FLOAT = 1, UINT32 = 12, INT64 = 7, DOUBLE = 11, UINT64 = 13, C64 = 14, C128 = 15 };
    static const char *const names[] = {[4] = "float_data",
                                        [5] = "int32_data",
                                        [7] = "int64_data",
                                        [10] = "double_data",
                                        [11] = "uint64_data"};
    int type = t->data_type;
    int field = type == FLOAT || type == C64       ? 4
                : type == INT64                    ? 7
                : type == DOUBLE || type == C128   ? 10
                : type == UINT32 || type == UINT64 ? 11
                                                   : 5;
    if (!t->typed_field || t->typed_field == field || dtype_from_onnx(type) == DT_INVALID)
        return ST_OK;
    return st_invalid("tensor '" STR_FMT "' of %s has its numbers in %s: they belong in %s",
                      STR_ARG(t->name), dtype_name(dtype_from_onnx(type)), names[t->typed_field],
                      names[field]);
}
static status_t read_tensor(struct reading *r, struct span s, struct onnx_tensor *t) {
    *t = (struct onnx_tensor){.rank = 0};
    RETURN_IF_ERR(charge(r->m, r->wire));
    RETURN_IF_ERR(read_message(r, s, &tensor_proto, t));
    RETURN_IF_ERR(check_field(t));
    // int32_data holds narrow types too; packed floats count as raw bytes.
    if (t->typed_field == 4 || t->typed_field == 10) t->typed_field = t->raw.n ? 0 : t->typed_field;
    return ST_OK;
}

static status_t read_sparse_values(struct reading *r, const struct wire_field *f, void *into) {
    return read_tensor(r, f->bytes, &((struct onnx_sparse *)into)->values);
}
static status_t read_sparse_indices(struct reading *r, const struct wire_field *f, void *into) {
    return read_tensor(r, f->bytes, &((struct onnx_sparse *)into)->indices);
}
static status_t read_sparse_dims(struct reading *r, const struct wire_field *f, void *into) {
    return read_dims(r, f, &((struct onnx_sparse *)into)->dense);
}
MESSAGE(sparse_tensor_proto, [1] = READ(read_sparse_values), [2] = READ(read_sparse_indices),
        [3] = READ(read_sparse_dims));

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

// ---- AttributeProto, NodeProto

static status_t read_floats_field(struct reading *r, const struct wire_field *f, void *into) {
    struct wire packed = wire_open(r->m->file, f->bytes);
    struct onnx_attr *at = into;
    float v;
    memcpy(&v, &f->value, sizeof v);
    if (f->type == WIRE_LEN) read_floats(r->m, &packed, -1, at);
    if (f->type != WIRE_I32) return ST_OK;
    avec_push(r->m->arena, &at->floats, v);
    read_floats(r->m, r->wire, 7 << 3 | WIRE_I32, at);
    return ST_OK;
}
static status_t read_ints_field(struct reading *r, const struct wire_field *f, void *into) {
    struct wire packed = wire_open(r->m->file, f->bytes);
    struct onnx_attr *at = into;
    if (f->type == WIRE_LEN) return read_ints(r->m, &packed, -1, at);
    if (f->type != WIRE_VARINT) return ST_OK;
    avec_push(r->m->arena, &at->ints, (int64_t)f->value);
    return read_ints(r->m, r->wire, 8 << 3 | WIRE_VARINT, at);
}
static status_t read_attr_tensor(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_attr *at = into;
    at->t = arena_new_of(r->m->arena, struct onnx_tensor);
    return read_tensor(r, f->bytes, at->t);
}
static status_t read_attr_sparse(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_attr *at = into;
    at->sparse = arena_new_of(r->m->arena, struct onnx_sparse);
    *at->sparse = (struct onnx_sparse){.dense = {.rank = 0}};
    return read_message(r, f->bytes, &sparse_tensor_proto, at->sparse);
}
static status_t read_graph(struct reading *r, struct span s, struct onnx_graph *g);
static status_t read_attr_graph(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_attr *at = into;
    if (r->depth >= r->m->limits.max_depth) return too_deep(r, f);
    at->graph = arena_new_of(r->m->arena, struct onnx_graph);
    r->depth++;
    status_t st = read_graph(r, f->bytes, at->graph);
    r->depth--;
    return st;
}
MESSAGE(attribute_proto, [1] = FIELD(TEXT, struct onnx_attr, name),
        [2] = FIELD(F32, struct onnx_attr, f), [3] = FIELD(I64, struct onnx_attr, i),
        [4] = FIELD(TEXT, struct onnx_attr, s), [5] = READ(read_attr_tensor),
        [6] = READ(read_attr_graph), [7] = READ(read_floats_field), [8] = READ(read_ints_field),
        [9] = FIELD(TEXTS, struct onnx_attr, strings), [20] = FIELD(INT, struct onnx_attr, type),
        [21] = FIELD(TEXT, struct onnx_attr, ref), [22] = READ(read_attr_sparse));
static status_t read_attr(struct reading *r, struct span s, struct onnx_attr *at) {
    *at = (struct onnx_attr){.type = 0};
    RETURN_IF_ERR(charge(r->m, r->wire));
    return read_message(r, s, &attribute_proto, at);
}
static status_t read_node_attr(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_attr a;
    RETURN_IF_ERR(read_attr(r, f->bytes, &a));
    avec_push(r->m->arena, &((struct onnx_node *)into)->attrs, a);
    return ST_OK;
}
MESSAGE(node_proto, [1] = FIELD(TEXTS, struct onnx_node, in),
        [2] = FIELD(TEXTS, struct onnx_node, out), [3] = FIELD(TEXT, struct onnx_node, name),
        [4] = FIELD(TEXT, struct onnx_node, op), [5] = READ(read_node_attr),
        [7] = FIELD(TEXT, struct onnx_node, domain), [8] = FIELD(TEXT, struct onnx_node, overload));
// A node of `g`, or of a function's body.
static status_t add_node(struct reading *r, const struct wire_field *f, struct onnx_graph *g) {
    struct onnx_node n = {.index = (int)g->nodes.n};
    RETURN_IF_ERR(charge(r->m, r->wire));
    RETURN_IF_ERR(st_note(read_message(r, f->bytes, &node_proto, &n), "node #%zu", g->nodes.n));
    if (str_is(n.domain, "ai.onnx")) n.domain.n = 0;
    avec_push(r->m->arena, &g->nodes, n);
    return ST_OK;
}

// ---- ValueInfoProto: TypeProto nests itself

MESSAGE(
    dimension, [1] = FIELD(I64, struct onnx_dim, size), [2] = FIELD(TEXT, struct onnx_dim, symbol));
static status_t read_dim(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_value *v = into;
    if (v->rank == HLO_MAX_RANK)
        return st_invalid("value '" STR_FMT "' has more than %d dimensions", STR_ARG(v->name),
                          HLO_MAX_RANK);
    struct onnx_dim *d = &v->dims[v->rank++];
    *d = (struct onnx_dim){.size = -1};
    RETURN_IF_ERR(read_message(r, f->bytes, &dimension, d));
    if (d->size < 0) d->size = -1;
    return ST_OK;
}
struct type { // as far as it is read
    struct onnx_value *v;
    int level; // of sequences, maps and optionals around it
};
static status_t read_shape(struct reading *r, const struct wire_field *f, void *into);
static status_t read_type(struct reading *r, const struct wire_field *f, void *into);
MESSAGE(shape_proto, [1] = READ(read_dim));
MESSAGE(tensor_type, [1] = FIELD(INT, struct onnx_value, elem_type), [2] = READ(read_shape));
MESSAGE(type_of_elements, [1] = READ(read_type)); // Sequence, Optional: elem_type
static status_t read_key_type(struct reading *r, const struct wire_field *f, void *into);
MESSAGE(map_type, [1] = READ(read_key_type), [2] = READ(read_type)); // of its values
static status_t read_shape(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_value *v = into;
    v->has_shape = true;
    return read_message(r, f->bytes, &shape_proto, v);
}
static status_t read_tensor_type(struct reading *r, const struct wire_field *f, void *into) {
    struct type *t = into;
    t->v->is_tensor = true;
    return read_message(r, f->bytes, &tensor_type, t->v);
}
static status_t read_sequence(struct reading *r, const struct wire_field *f, void *into) {
    struct type *t = into;
    t->v->is_sequence = true;
    return read_message(r, f->bytes, &type_of_elements, t);
}
static status_t read_map(struct reading *r, const struct wire_field *f, void *into) {
    struct type *t = into;
    t->v->is_map = true;
    return read_message(r, f->bytes, &map_type, t);
}
static status_t read_key_type(struct reading *r, const struct wire_field *f, void *into) {
    (void)r;
    const struct type *t = into;
    bool plain = t->level == 0 && f->type == WIRE_VARINT && f->value < 64;
    t->v->key_type = plain ? (int)f->value : 0;
    return ST_OK;
}
static status_t read_optional(struct reading *r, const struct wire_field *f, void *into) {
    struct type *t = into;
    if (t->level == 0) t->v->is_optional = true;
    return read_message(r, f->bytes, &type_of_elements, t);
}
MESSAGE(type_proto, [1] = READ(read_tensor_type), [4] = READ(read_sequence), [5] = READ(read_map),
        [9] = READ(read_optional));
static status_t read_type(struct reading *r, const struct wire_field *f, void *into) {
    const struct type *outer = into;
    struct type t = {outer->v, outer->level + 1};
    // An optional of a sequence of tensors is the deepest that any operator has.
    return t.level > 3 ? ST_OK : read_message(r, f->bytes, &type_proto, &t);
}
static status_t read_value_type(struct reading *r, const struct wire_field *f, void *into) {
    return read_message(r, f->bytes, &type_proto, &(struct type){into, 0});
}
MESSAGE(value_info, [1] = FIELD(TEXT, struct onnx_value, name), [2] = READ(read_value_type));
// Of a sequence, optional or map the tensors' type is kept.
static status_t read_value(struct reading *r, struct span s, struct onnx_value *v) {
    *v = (struct onnx_value){.rank = 0};
    RETURN_IF_ERR(charge(r->m, r->wire));
    RETURN_IF_ERR(read_message(r, s, &value_info, v));
    if (v->is_map) v->is_sequence = v->is_optional = false; // ZipMap's: a tensor here (onnx_ml.c)
    if (v->is_sequence) v->is_tensor = false;
    return ST_OK;
}

// ---- GraphProto

struct graph_reading {
    struct onnx_graph *g;
    VEC(struct onnx_value) inputs;
    VEC(struct onnx_node) sparse; // initializers
    struct smap weights;          // names of initializers: their last one's place in inits, and one
    bool again;                   // a name came twice
};
static status_t read_graph_node(struct reading *r, const struct wire_field *f, void *into) {
    return add_node(r, f, ((struct graph_reading *)into)->g);
}
static status_t read_initializer(struct reading *r, const struct wire_field *f, void *into) {
    struct graph_reading *to = into;
    struct onnx_tensor t;
    RETURN_IF_ERR(st_note(read_tensor(r, f->bytes, &t), "initializer #%zu", to->g->inits.n));
    avec_push(r->m->arena, &to->g->inits, t);
    to->again |= smap_put(&to->weights, t.name, (void *)to->g->inits.n) != NULL;
    return ST_OK;
}
// Of several initializers of one name the last counts, as ONNX Runtime's warning has it.
static void drop_replaced(struct onnx_model *m, const struct graph_reading *from) {
    struct onnx_graph *g = from->g;
    size_t n = g->inits.n, kept = 0;
    g->replaced = arena_zarray(m->arena, bool, n);
    for (size_t k = 0; k < n; k++)
        if (smap_get(&from->weights, g->inits.v[k].name) == (void *)(k + 1))
            g->inits.v[kept++] = g->inits.v[k];
        else
            g->replaced[k] = true;
    g->inits.n = kept;
}
static status_t read_graph_value(struct reading *r, const struct wire_field *f, void *into) {
    struct graph_reading *to = into;
    struct onnx_value v;
    RETURN_IF_ERR(read_value(r, f->bytes, &v));
    if (f->number == 11)
        avec_push(r->m->arena, &to->inputs, v);
    else
        avec_push(r->m->arena, &to->g->outputs, v);
    return ST_OK;
}
// As a Constant node, which comes behind the nodes of the file.
static status_t read_sparse_initializer(struct reading *r, const struct wire_field *f, void *into) {
    struct graph_reading *to = into;
    struct onnx_node n = {.op = STR("Constant")};
    struct onnx_attr a = {.name = STR("sparse_value")};
    RETURN_IF_ERR(charge(r->m, r->wire));
    RETURN_IF_ERR(st_note(read_attr_sparse(r, f, &a), "sparse initializer #%zu", to->sparse.n));
    n.name = a.sparse->values.name;
    if (smap_has(&to->weights, n.name))
        return st_invalid("initializer '" STR_FMT "' is there twice", STR_ARG(n.name));
    smap_put(&to->weights, n.name, NULL);
    avec_push(r->m->arena, &n.out, n.name);
    avec_push(r->m->arena, &n.attrs, a);
    avec_push(r->m->arena, &to->sparse, n);
    return ST_OK;
}
MESSAGE(graph_proto, [1] = READ(read_graph_node), [5] = READ(read_initializer),
        [11] = READ(read_graph_value), [12] = READ(read_graph_value),
        [15] = READ(read_sparse_initializer));
static status_t read_graph(struct reading *r, struct span s, struct onnx_graph *g) {
    struct graph_reading to = {.g = g};
    *g = (struct onnx_graph){.bytes = s};
    status_t st = read_message(r, s, &graph_proto, &to);
    if (!st && to.again) drop_replaced(r->m, &to);
    for (size_t k = 0; !st && k < to.inputs.n; k++)
        if (smap_has(&to.weights, to.inputs.v[k].name))
            avec_push(r->m->arena, &g->defaults, to.inputs.v[k]);
        else
            avec_push(r->m->arena, &g->inputs, to.inputs.v[k]);
    for (size_t k = 0; !st && k < to.sparse.n; k++) {
        to.sparse.v[k].index = (int)g->nodes.n;
        avec_push(r->m->arena, &g->nodes, to.sparse.v[k]);
    }
    smap_done(&to.weights);
    return st;
}

// Before IR version 4 all initializers are listed as inputs; since then those are whose values are
// defaults. These get the shapes of the values, but for dimensions that they leave open themselves.
static void settle_defaults(struct onnx_model *m) {
    struct onnx_graph *g = &m->main;
    struct smap inits = {0};
    size_t kept = 0;
    for (size_t k = 0; g->defaults.n && k < g->inits.n; k++)
        smap_put(&inits, g->inits.v[k].name, &g->inits.v[k]);
    for (size_t k = 0; m->ir_version >= 4 && k < g->defaults.n; k++) {
        struct onnx_value v = g->defaults.v[k];
        const struct onnx_tensor *t = smap_get(&inits, v.name);
        if (!t || !v.is_tensor || v.is_sequence || v.is_optional || v.elem_type != t->data_type)
            continue;
        smap_del(&inits, v.name); // listed once
        bool open = v.has_shape && v.rank == t->rank;
        v.has_shape = true;
        v.rank = t->rank;
        for (int d = 0; d < t->rank; d++)
            if (open && v.dims[d].size < 0)
                v.dims[d].usual = t->dims[d];
            else
                v.dims[d] = (struct onnx_dim){.size = t->dims[d]};
        g->defaults.v[kept++] = v;
    }
    g->defaults.n = kept;
    smap_done(&inits);
}

// ---- FunctionProto, ModelProto

struct opset_id {
    struct str domain;
    int64_t version;
};
MESSAGE(opset_entry, [1] = FIELD(TEXT, struct opset_id, domain),
        [2] = FIELD(I64, struct opset_id, version));
static status_t read_opset(struct reading *r, struct span s, struct opset_id *o, int64_t *main) {
    RETURN_IF_ERR(st_note(read_message(r, s, &opset_entry, o), "opset_import"));
    if (o->domain.n == 0 || str_is(o->domain, "ai.onnx")) *main = o->version;
    return ST_OK;
}
static status_t read_function_opset(struct reading *r, const struct wire_field *f, void *into) {
    struct opset_id o = {.version = 0};
    return read_opset(r, f->bytes, &o, &((struct onnx_function *)into)->opset);
}
static status_t read_function_node(struct reading *r, const struct wire_field *f, void *into) {
    return add_node(r, f, &((struct onnx_function *)into)->body);
}
static status_t read_function_attr(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_attr a;
    RETURN_IF_ERR(read_attr(r, f->bytes, &a));
    avec_push(r->m->arena, &((struct onnx_function *)into)->defaults, a);
    return ST_OK;
}
MESSAGE(function_proto, [1] = FIELD(TEXT, struct onnx_function, name),
        [4] = FIELD(TEXTS, struct onnx_function, inputs),
        [5] = FIELD(TEXTS, struct onnx_function, outputs), [7] = READ(read_function_node),
        [9] = READ(read_function_opset), [10] = FIELD(TEXT, struct onnx_function, domain),
        [11] = READ(read_function_attr), [13] = FIELD(TEXT, struct onnx_function, overload));
static status_t read_function(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_model *m = into;
    struct onnx_function fn = {.opset = m->opset, .body = {.bytes = f->bytes}};
    RETURN_IF_ERR(charge(m, r->wire));
    r->depth = 1;
    RETURN_IF_ERR(
        st_note(read_message(r, f->bytes, &function_proto, &fn), "function #%zu", m->functions.n));
    if (str_is(fn.domain, "ai.onnx")) fn.domain.n = 0;
    // The body is a graph whose inputs and outputs are those of the function.
    for (size_t k = 0; k < fn.inputs.n; k++) {
        struct onnx_value v = {.name = fn.inputs.v[k]};
        avec_push(m->arena, &fn.body.inputs, v);
    }
    for (size_t k = 0; k < fn.outputs.n; k++) {
        struct onnx_value v = {.name = fn.outputs.v[k]};
        avec_push(m->arena, &fn.body.outputs, v);
    }
    RETURN_IF_ERR(
        st_note(onnx_graph_resolve(m, &fn.body), "function '" STR_FMT "'", STR_ARG(fn.name)));
    avec_push(m->arena, &m->functions, fn);
    return ST_OK;
}
static status_t read_model_opset(struct reading *r, const struct wire_field *f, void *into) {
    struct onnx_model *m = into;
    struct opset_id o = {.version = 0};
    RETURN_IF_ERR(read_opset(r, f->bytes, &o, &m->opset));
    struct opset kept = {arena_strndup(m->arena, o.domain.p, o.domain.n), o.version};
    if (m->opsets.n < 64) avec_push(m->arena, &m->opsets, kept);
    return ST_OK;
}
// Functions and the graph are read when the opsets are known, which may stand behind them.
MESSAGE(model_proto, [1] = FIELD(I64, struct onnx_model, ir_version),
        [2] = FIELD(TEXT, struct onnx_model, producer),
        [3] = FIELD(TEXT, struct onnx_model, producer_version),
        [7] = FIELD(BYTES, struct onnx_model, main.bytes), [8] = READ(read_model_opset));
MESSAGE(model_functions, [25] = READ(read_function));

status_t onnx_parse(struct arena *a, struct span source, const struct frontend_limits *limits,
                    struct onnx_model *out) {
    struct onnx_model m = {.arena = a, .file = source.p, .file_bytes = (int64_t)source.n};
    struct wire whole = wire_open(source.p, source);
    struct reading r = {&m, &whole, 0};
    if (limits) m.limits = *limits;
    if (!m.limits.max_nodes) m.limits.max_nodes = 200000;
    if (!m.limits.max_depth) m.limits.max_depth = 100;
    if (!m.limits.max_tensor_bytes) m.limits.max_tensor_bytes = INT64_C(64) << 30;
    RETURN_IF_ERR(st_note(read_message(&r, source, &model_proto, &m), "ModelProto"));
    if (m.ir_version < 0 || m.ir_version > ONNX_LAST_IR)
        return st_invalid("an ONNX model of ir_version %lld: those up to %d are taken",
                          (long long)m.ir_version, ONNX_LAST_IR);
    if (!m.main.bytes.p)
        return st_invalid(
            "not an ONNX model: there is no graph (a TensorFlow SavedModel begins alike: convert "
            "it with tf2onnx)");
    if (m.opset == 0) m.opset = 1;
    RETURN_IF_ERR(st_note(read_graph(&r, m.main.bytes, &m.main), "graph"));
    settle_defaults(&m);
    RETURN_IF_ERR(onnx_split_maps(&m, &m.main));
    if (m.main.outputs.n == 0) return st_invalid("the graph has no outputs");
    RETURN_IF_ERR(read_message(&r, source, &model_functions, &m));
    RETURN_IF_ERR(onnx_functions_check(&m));
    RETURN_IF_ERR(onnx_graph_resolve(&m, &m.main));
    *out = m;
    return ST_OK;
}

const struct onnx_function *onnx_function_find(const struct onnx_model *m,
                                               const struct onnx_node *n) {
    for (size_t k = 0; k < m->functions.n; k++) {
        const struct onnx_function *f = &m->functions.v[k];
        if (str_eq(f->name, n->op) && str_eq(f->domain, n->domain) &&
            str_eq(f->overload, n->overload))
            return f;
    }
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
        return st_invalid("tensor '" STR_FMT "' has element type %d, which is not supported",
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
            return st_invalid("tensor '" STR_FMT "': the data is shorter than its shape",
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
        return st_invalid("tensor '" STR_FMT "': %zu bytes of data, its shape needs %zu",
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
        return st_invalid("tensor '" STR_FMT "' keeps its data in another file ('" STR_FMT
                          "'): send a model with its weights inside",
                          STR_ARG(t->name), STR_ARG(t->location));

    if (onnx_packed(s->dtype)) return packed_literal(a, t, s, out);
    if (t->typed_field == 0) {
        if (t->raw.n != bytes)
            return st_invalid("tensor '" STR_FMT "': %zu bytes of data, its shape needs %zu",
                              STR_ARG(t->name), t->raw.n, bytes);
        *out = lit_borrow(a, s, t->raw.p);
        return ST_OK;
    }

    if (dtype_size(s->dtype) > 8)
        return st_invalid("tensor '" STR_FMT "': typed data of %s is not supported, raw data is",
                          STR_ARG(t->name), dtype_name(s->dtype));

    // Typed data: at least one byte an element in the file, so the file bounds the memory.
    if (n > (int64_t)(t->varints.n + t->loose.n))
        return st_invalid("tensor '" STR_FMT "': the data is shorter than its shape",
                          STR_ARG(t->name));

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
            lit_set_i64(l, k, (int64_t)v);
        else // the low bytes are the element, floats as bits too
            memcpy((char *)l->data + k * size, &v, (size_t)size);
    }
    *out = l;

    return ST_OK;
}
