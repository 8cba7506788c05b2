// SPDX-License-Identifier: Apache-2.0
// A model with other weights: the same file, but for the data of some initializers of its graph.
#include "compiler/frontend/onnx/onnx.h"
#include "compiler/frontend/wire.h"

// TensorProto: dims 1, data_type 2, name 8, raw_data 9; typed data otherwise.
static bool is_data(uint32_t field) {
    return (field >= 3 && field <= 7) || field == 9 || field == 10 || field == 11 || field == 13 ||
           field == 14;
}
static status_t put_initializer(const uint8_t *file, struct span s, const struct new_weight *w,
                                struct strbuf *b) {
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
    if (!st) wire_put_bytes(b, 5, tensor.p, tensor.n);
    strbuf_done(&tensor);
    return st;
}
static status_t find_weight(const uint8_t *file, struct span s, struct new_weight *v, size_t n,
                            struct new_weight **out) {
    struct wire_field name;
    bool got;
    *out = NULL;
    RETURN_IF_ERR(wire_find(file, s, 8, &name, &got));
    struct str of = {got ? (const char *)name.bytes.p : NULL, got ? name.bytes.n : 0};
    for (size_t k = 0; k < n; k++)
        if (str_is(of, v[k].name)) *out = &v[k];
    return ST_OK;
}
static status_t put_graph(const uint8_t *file, struct span s, struct new_weight *v, size_t n,
                          struct strbuf *b) {
    struct wire r = wire_open(file, s);
    struct wire_field f;
    status_t st = ST_OK;
    while (wire_next(&r, &f, &st)) {
        struct new_weight *w = NULL;
        if (f.number == 5) st = find_weight(file, f.bytes, v, n, &w);
        if (st) break;
        if (w) {
            w->found = true;
            st = put_initializer(file, f.bytes, w, b);
        } else {
            strbuf_add(b, f.at, (size_t)(f.after - f.at));
        }
        if (st) break;
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
        if (!v[k].found) st = st_invalid("the model's graph has no initializer '%s'", v[k].name);
    return st;
}
