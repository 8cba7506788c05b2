// SPDX-License-Identifier: Apache-2.0
// A model with other weights: the same file, but for the data of some initializers and Constant
// nodes of its graph.
#include "compiler/frontend/onnx/onnx.h"
#include "compiler/frontend/wire.h"

// TensorProto: dims 1, data_type 2, name 8, raw_data 9; typed data otherwise.
static bool is_data(uint32_t field) {
    return (field >= 3 && field <= 7) || field == 9 || field == 10 || field == 11 || field == 13 ||
           field == 14;
}
// The tensor with w's numbers as its data, as field `field` of *b.
static status_t put_tensor(const uint8_t *file, struct span s, uint32_t field,
                           const struct new_weight *w, struct strbuf *b) {
    struct wire r = wire_open(file, s);
    struct wire_field f;
    struct strbuf tensor = {0};
    status_t st = ST_OK;
    bool got;
    RETURN_IF_ERR(wire_find(file, s, 2, &f, &got));
    enum dtype t = got ? dtype_from_onnx((int)f.value) : DT_INVALID;
    if (onnx_packed(t))
        return st_unimplemented("initializer '%s': other values of %s", w->name, dtype_name(t));

    while (wire_next(&r, &f, &st))
        if (!is_data(f.number)) strbuf_add(&tensor, f.at, (size_t)(f.after - f.at));
    wire_put_bytes(&tensor, 9, w->data.p, w->data.n);
    if (!st) wire_put_bytes(b, field, tensor.p, tensor.n);
    strbuf_done(&tensor);
    return st;
}
static status_t text_of(const uint8_t *file, struct span s, uint32_t field, struct str *out) {
    struct wire_field f;
    bool got;
    RETURN_IF_ERR(wire_find(file, s, field, &f, &got));
    *out = got ? (struct str){(const char *)f.bytes.p, f.bytes.n} : (struct str){0};
    return ST_OK;
}
// Which weight s is, an initializer or a Constant node by its output; NULL: none of them.
// NodeProto: output 2, op_type 4.
static status_t find_weight(const uint8_t *file, struct span s, bool node, struct new_weight *v,
                            size_t n, struct new_weight **out) {
    struct str of, op = STR("Constant");
    *out = NULL;
    RETURN_IF_ERR(text_of(file, s, node ? 2 : 8, &of));
    if (node) RETURN_IF_ERR(text_of(file, s, 4, &op));
    for (size_t k = 0; k < n && str_is(op, "Constant"); k++)
        if (str_is(of, v[k].name)) *out = &v[k];
    return ST_OK;
}

// A message with its field `field` changed by `put`, appended to *b.
typedef status_t (*put_fn)(const uint8_t *file, struct span s, struct new_weight *w,
                           struct strbuf *b);
static status_t put_with(const uint8_t *file, struct span s, uint32_t field, put_fn put,
                         struct new_weight *w, struct strbuf *b) {
    struct wire r = wire_open(file, s);
    struct wire_field f;
    status_t st = ST_OK;
    while (!st && wire_next(&r, &f, &st)) {
        if (f.number == field)
            st = put(file, f.bytes, w, b);
        else
            strbuf_add(b, f.at, (size_t)(f.after - f.at));
    }
    return st;
}
static status_t put_value(const uint8_t *file, struct span s, struct new_weight *w,
                          struct strbuf *b) { // AttributeProto.t
    w->found = true;
    return put_tensor(file, s, 5, w, b);
}
static status_t put_attribute(const uint8_t *file, struct span s, struct new_weight *w,
                              struct strbuf *b) { // NodeProto.attribute
    struct strbuf attr = {0};
    status_t st = put_with(file, s, 5, put_value, w, &attr);
    if (!st) wire_put_bytes(b, 5, attr.p, attr.n);
    strbuf_done(&attr);
    return st;
}
static status_t put_constant(const uint8_t *file, struct span s, struct new_weight *w,
                             struct strbuf *b) {
    struct strbuf node = {0};
    status_t st = put_with(file, s, 5, put_attribute, w, &node);
    if (!st) wire_put_bytes(b, 1, node.p, node.n);
    strbuf_done(&node);
    return st;
}

static status_t put_graph(const uint8_t *file, struct span s, struct new_weight *v, size_t n,
                          struct strbuf *b) {
    struct wire r = wire_open(file, s);
    struct wire_field f;
    status_t st = ST_OK;
    while (!st && wire_next(&r, &f, &st)) {
        struct new_weight *w = NULL;
        bool node = f.number == 1;
        if (node || f.number == 5) st = find_weight(file, f.bytes, node, v, n, &w);
        if (st) break;
        if (!w) {
            strbuf_add(b, f.at, (size_t)(f.after - f.at));
        } else if (node) {
            st = put_constant(file, f.bytes, w, b);
        } else {
            w->found = true;
            st = put_tensor(file, f.bytes, 5, w, b);
        }
    }
    return st;
}
status_t onnx_with_weights(struct span source, struct new_weight *v, size_t n, struct strbuf *out) {
    struct wire r = wire_open(source.p, source);
    struct wire_field f;
    status_t st = ST_OK;
    while (!st && wire_next(&r, &f, &st)) {
        struct strbuf graph = {0};
        if (f.number == 7) {
            st = put_graph(source.p, f.bytes, v, n, &graph);
            if (!st) wire_put_bytes(out, 7, graph.p, graph.n);
        } else {
            strbuf_add(out, f.at, (size_t)(f.after - f.at));
        }
        strbuf_done(&graph);
    }
    for (size_t k = 0; k < n && !st; k++)
        if (!v[k].found)
            st = st_invalid("the model's graph has no initializer and no Constant '%s'", v[k].name);
    return st;
}
